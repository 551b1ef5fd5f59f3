"""Two engines in one process: classic Spark and the embedded one, each while it is asked.

PySpark's functions build columns of one kind at a time, and an environment variable shows which. People get one engine
a process; tests switch between both, so that their answers can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ticdc_lab.engine import embedded, sessions

CORES = 2
_begun: dict[str, sessions._Active] = {}


@contextmanager
def using(engine: str) -> Iterator[None]:
    """Let the body build columns for ``spark`` (classic) or ``embedded``, and find that session active, if begun."""
    mode, active = os.environ.pop(embedded.CONNECT_MODE, None), sessions._active
    if engine == "embedded":
        os.environ[embedded.CONNECT_MODE] = "1"
    sessions._active = _begun.get(engine)
    try:
        yield
    finally:
        os.environ.pop(embedded.CONNECT_MODE, None)
        if mode is not None:
            os.environ[embedded.CONNECT_MODE] = mode
        sessions._active = active


def session_of(engine: str) -> SparkSession:
    """The suite's one session of an engine, begun when it is asked for; call it inside :func:`using`."""
    if engine not in _begun:
        begun = sessions._begin(sessions.EngineChoice(engine, "a test"), "ticdc_lab", "4g", CORES, True, {})
        begun = begun.begin() if isinstance(begun, sessions.Later) else begun
        _begun[engine] = sessions._Active(begun, engine, sessions._SessionRequest(cores=str(CORES)))
    sessions._active = _begun[engine]
    return _begun[engine].session


def stop_all() -> None:
    """End what was begun."""
    for engine, active in _begun.items():
        with using(engine):
            active.session.stop()
    _begun.clear()
