"""What an answer was made from: settings, versions and inputs, so that it can be made again and checked."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import DEVNULL, PIPE, SubprocessError, run
from types import MappingProxyType

import pandas as pd
from pyspark.sql import SparkSession

from ticdc_lab.engine.environment import require_java
from ticdc_lab.engine.jvm import java_version
from ticdc_lab.engine.sessions import engine_of, is_sail
from ticdc_lab.errors import SetupError
from ticdc_lab.errors.redaction import HIDDEN, redacted, secrets, without_secrets
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.inputs import Input, inputs_of

_LIBRARIES = (
    "pyspark", "delta-spark", "pyarrow", "pandas", "numpy", "numba", "duckdb", "plotly", "ipywidgets", "anywidget",
    "nbconvert", "click",
)  # fmt: skip
MARK = "ticdc-provenance"
"""Class of the HTML form, by which an exported notebook is known to say it already."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Settings, versions and inputs; shows as tables in a notebook, as text when printed.

    Attributes
    ----------
    settings
        Name to value, as text, in the order given. Secrets are ``***``.
    versions
        Of this package, its commit where it runs from a git checkout, Python, Java, Spark and the libraries.
    inputs
        Name, kind, size, modification time and fingerprint of each.
    """

    settings: Mapping[str, str]
    versions: Mapping[str, str]
    inputs: tuple[Input, ...]

    def frames(self) -> dict[str, pd.DataFrame]:
        """Title to frame, those that hold something: ``Settings``, ``Inputs``, ``Versions``."""
        named = {
            "Settings": pd.DataFrame(self.settings.items(), columns=["setting", "value"]),
            "Inputs": pd.DataFrame(
                [(i.name, i.kind, i.bytes, i.modified, i.fingerprint, i.how) for i in self.inputs],
                columns=["input", "kind", "bytes", "modified (UTC)", "fingerprint", "which is"],
            ),
            "Versions": pd.DataFrame(self.versions.items(), columns=["of", "version"]),
        }
        return {title: frame for title, frame in named.items() if len(frame)}

    def _repr_html_(self) -> str:
        tables = [f"<h4>{title}</h4>{_table(frame)}" for title, frame in self.frames().items()]
        return f'<div class="{MARK}">{"".join(tables)}</div>'

    def __str__(self) -> str:
        return "\n\n".join(f"{t}\n{f.to_string(index=False, na_rep='')}" for t, f in self.frames().items())


def provenance(
    of: ChangeLog | str | Path | Sequence[str | Path] = (),
    *,
    settings: Mapping[str, object] = MappingProxyType({}),
    spark: SparkSession | None = None,
) -> Provenance:
    """Say what an answer was made from; put it at the end of a notebook.

    Parameters
    ----------
    of
        A log, or sources as :func:`ticdc_lab.sources.load.load` takes them; nothing for a simulation.
    settings
        Parameters of the answer by name: seed, partitions, ... Options of a source can be among them: what a name or a
        text marks as secret shows as ``***``.
    spark
        Needed for sources that only Spark can read (``s3a://..``) where no log is given.

    Returns
    -------
    Provenance
        Of the same inputs in the same environment always the same: it holds no time but that of the files.

    Notes
    -----
    Files of this machine are hashed as a stream, those elsewhere by Spark's workers, see
    :mod:`ticdc_lab.sources.inputs`. A log in Kafka costs one job over its offsets.

    Examples
    --------
    >>> from ticdc_lab.sources.provenance import provenance
    >>> made_from = provenance("data/messages_simple_small.jsonl.gz", settings={"seed": 7, "password": "x"})
    >>> dict(made_from.settings)
    {'seed': '7', 'password': '***'}
    >>> made_from.inputs[0].how
    'SHA-256 of all bytes'
    """
    session = of.decoded.sparkSession if isinstance(of, ChangeLog) else spark
    said = {name: _shown(name, value) for name, value in settings.items()}
    return Provenance(MappingProxyType(said), MappingProxyType(versions(session)), inputs_of(of, session))


def versions(spark: SparkSession | None = None) -> dict[str, str]:
    """Name to version of what computes here; Java and Spark as the session has them, if there is one."""
    here = {"ticdc_lab": _version("ticdc_lab"), "git commit": _commit(), "Python": platform.python_version()}
    where = {"Java": _java(spark), "system": f"{platform.system()} {platform.machine()}"}
    libraries = {name: _version(name) for name in _LIBRARIES}
    if spark is not None:
        libraries = {"engine": engine_of(spark)} | libraries if is_sail(spark) else {"Spark": spark.version} | libraries
    return {name: v for name, v in (here | where | libraries).items() if v}


def _shown(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_shown(str(k), v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_shown(name, v) for v in value)
    text = "" if value is None else str(value)
    if secrets({name: text}):
        return HIDDEN
    return redacted(without_secrets(text) if "://" in text and re.search("[@?]", text) else text, {})


def _table(frame: pd.DataFrame) -> str:
    return str(frame.to_html(index=False, escape=True, na_rep="", border=0))


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _java(spark: SparkSession | None) -> str:
    if spark is not None and is_sail(spark):
        return ""  # none runs
    return (None if spark is None else java_version(spark)) or _java_found()


@cache
def _java_found() -> str:
    try:
        return str(require_java().version)
    except SetupError:
        return ""


@cache
def _commit() -> str:
    """The commit of the checkout that this package runs from; empty where it is installed."""
    if not _git("ls-files", "--error-unmatch", Path(__file__).name):
        return ""
    changed = ", with changes since" if _git("status", "--porcelain", "--untracked-files=no", ".") else ""
    return _git("rev-parse", "HEAD") + changed


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return run(command, stdout=PIPE, stderr=DEVNULL, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, SubprocessError):
        return ""
