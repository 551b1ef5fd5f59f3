"""Can the Python workers of a session of the caller's own run this package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession

from ticdc_lab.engine.sessions import made_here
from ticdc_lab.errors import SetupError

_CAUSES = (
    (
        r"Python in worker has different version: ([\d.]+)",
        "The Spark workers run Python {found}, but the driver runs {ours}.",
        "Run, before the session starts: export PYSPARK_PYTHON=PATH_OF_A_PYTHON_{ours}_ON_THE_WORKERS",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "The Spark workers have no Python at {found}.",
        "Run, before the session starts: export PYSPARK_PYTHON=PATH_OF_A_PYTHON_{ours}_ON_THE_WORKERS",
    ),
    (
        r"No module named '([^']+)'",
        "The Python of the Spark workers has no module {found}.",
        "Run, on every worker and with its PYSPARK_PYTHON: python -m pip install FOLDER_OF_TICDC_LAB",
    ),
)


_FIT: WeakSet[SparkSession] = WeakSet()


def require_workers_once(session: SparkSession) -> None:
    """:func:`require_workers`, once for each session of a caller's own; one that was made here always passes.

    Raises SetupError: as :func:`require_workers`.
    """
    if session not in _FIT and not made_here(session):
        require_workers(session)
    _FIT.add(session)


def require_workers(session: SparkSession) -> None:
    """Check, with one job of one row, that the session's workers can run this package.

    A session from :func:`ticdc_lab.session` always can.

    ``session``: the caller's own; nothing in it is changed. Raises SetupError: the workers run another Python than the
    driver, have none, or miss the package or a library.
    """
    try:
        session.range(1).mapInArrow(_decode_nothing, "id bigint").collect()
    except Exception as error:
        raise _explained(str(error)) from error


def _decode_nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import numba

    assert numba
    return batches


def _explained(said: str) -> SetupError:
    ours = "{}.{}".format(*sys.version_info)
    for pattern, message, hint in _CAUSES:
        if found := re.search(pattern, said):
            return SetupError(message.format(found=found[1], ours=ours), hint=hint.format(ours=ours))
    return SetupError(
        f"A Spark worker failed: {said.strip().splitlines()[-1]}",
        hint="Run with --debug for the whole trace; the log of the worker has it, too.",
    )
