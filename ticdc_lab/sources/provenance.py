"""What an answer was made from: settings, versions and inputs, so that it can be made again and checked."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
from subprocess import DEVNULL, PIPE, SubprocessError, run
from types import MappingProxyType

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.engine.environment import require_java
from ticdc_lab.engine.jvm import java_version
from ticdc_lab.engine.object_stores import Store, Stored
from ticdc_lab.engine.sessions import engine_of, is_sail
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.errors.redaction import HIDDEN, redacted, secrets, shown_source, without_secrets
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.places import data_files, is_kafka, may_be_table

_LIBRARIES = (
    "pyspark", "delta-spark", "pyarrow", "pandas", "numpy", "numba", "duckdb", "plotly", "ipywidgets", "anywidget",
    "nbconvert", "click",
)  # fmt: skip
MARK = "ticdc-provenance"
"""Class of the HTML form, by which an exported notebook is known to have it."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Settings, versions and inputs; shows as tables in a notebook, as text when printed."""

    settings: Mapping[str, str]  # name to value, as text, in the order given. Secrets are ``***``.
    # Of this package, its commit where it runs from a git checkout, Python, Java, Spark and the libraries.
    versions: Mapping[str, str]
    inputs: tuple[Input, ...]  # name, kind, size, modification time and fingerprint of each

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
    """Name what an answer was made from; put it at the end of a notebook.

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
        Of the same inputs in the same environment always the same: it contains no time except the files'.

    Notes
    -----
    Files of this machine are hashed as a stream, those elsewhere by Spark's workers, see
    :mod:`ticdc_lab.sources.provenance`. A log in Kafka costs one job over its offsets.

    Examples
    --------
    >>> from ticdc_lab.sources.provenance import provenance
    >>> made_from = provenance("data/messages_simple_small.jsonl.gz", settings={"seed": 7, "password": "x"})
    >>> dict(made_from.settings)
    {'seed': '7', 'password': '***'}
    >>> made_from.inputs[0].how
    'SHA-256 of all bytes'
    """
    session = of.spark if isinstance(of, ChangeLog) else spark
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


# Fingerprints of inputs: what was read, so that others can check whether they have the same. Files of this
# machine are read as a stream, a MiB at a time; what lies elsewhere is hashed by Spark's workers. An input above
# :data:`WHOLE` bytes is identified by the size, the first and the last MiB of each file, one of more than :data:`FILES`
# files by their names and sizes; each fingerprint names its method.

WHOLE = 1 << 30
"""Bytes of an input up to which all are hashed."""
FILES = 10_000
"""Files up to which each is opened."""
NAMED = 12
"""Files of a folder up to which each gets a line."""
_MIB = 1 << 20

_ALL, _EDGES, _NAMES = "all bytes", "size, first and last MiB", "name and size"


@dataclass(frozen=True, slots=True)
class Input:
    """One input; ``how``: what the fingerprint is of, in words."""

    name: str
    kind: str
    bytes: int | None
    modified: str
    fingerprint: str
    how: str


def inputs_of(of: ChangeLog | str | Path | Sequence[str | Path], spark: SparkSession | None) -> tuple[Input, ...]:
    """Fingerprints of a log's source, or of sources.

    Raises SourceError: a source is not there, or only Spark can read it and no session was given.
    """
    if isinstance(of, ChangeLog):
        if is_kafka(of.source):
            return tuple(_offsets(of))
        source = of.source if of.origin is None else of.origin.source
        return tuple(replace(i, kind=f"{i.kind}, {of.protocol}") for i in _of(source, spark))
    sources = [of] if isinstance(of, str | Path) else of
    return tuple(i for source in sources for i in _of(str(source), spark))


def _of(source: str, spark: SparkSession | None) -> Iterator[Input]:
    name = shown_source(source)
    if is_kafka(source):
        yield Input(name, "kafka", None, "", "", "not known: offsets are known of a log that was loaded")
        return
    is_table = spark is not None and may_be_table(source) and not Path(source).exists()
    if is_table and spark is not None and spark.catalog.tableExists(source):
        yield _of_table(source, spark)
        return
    if (local := local_path(source)) is not None:
        if (local / "_delta_log").is_dir():
            yield _delta(name, local)
        else:
            yield from _local(name, local, data_files(source) or [])
        return
    if (store := Store.of(source)) is not None:
        yield _in_store(name, store)
        return
    if spark is None:
        raise SourceError(f"{name} is not on this machine.", hint="Pass spark=..., whose workers read it.")
    yield _elsewhere(name, source, spark)


def _local(name: str, place: Path, files: list[Path]) -> Iterator[Input]:
    """A file, each of a few files, or a folder of many as one."""
    stats = {f: f.stat() for f in files}
    size = sum(s.st_size for s in stats.values())
    modified = _utc(max(s.st_mtime for s in stats.values()))
    what = _NAMES if len(files) > FILES else _EDGES if size > WHOLE else _ALL
    if place.is_file():
        yield Input(name, "file", size, modified, _digest(place, what), f"SHA-256 of {what}")
        return
    hashes = {f: _digest(f, what) for f in files}
    whole = hashlib.sha256()
    for f in files:
        whole.update(f"{f.relative_to(place).as_posix()}\t{stats[f].st_size}\t{hashes[f]}\n".encode())
    listed = f"SHA-256 of the list of files: path, size{'' if what == _NAMES else f', SHA-256 of {what}'}"
    yield Input(name, f"folder of {len(files):,}", size, modified, whole.hexdigest(), listed)
    for f in files if len(files) <= NAMED else []:
        below = f"{name.rstrip('/')}/{f.relative_to(place).as_posix()}"
        yield Input(below, "file", stats[f].st_size, _utc(stats[f].st_mtime), hashes[f], f"SHA-256 of {what}")


def _digest(file: Path, what: str) -> str:
    if what == _NAMES:
        return ""
    size, whole = file.stat().st_size, hashlib.sha256()
    with file.open("rb") as f:
        if what == _ALL or size <= 2 * _MIB:
            while piece := f.read(_MIB):
                whole.update(piece)
        else:
            whole.update(f"{size}\n".encode() + f.read(_MIB))
            f.seek(size - _MIB)
            whole.update(f.read(_MIB))
    return whole.hexdigest()


def _delta(name: str, table: Path) -> Input:
    """The newest version of a Delta table of this machine, from its log."""
    commits = sorted(p for p in (table / "_delta_log").glob("*.json") if p.stem.isdigit())
    if not commits:
        raise SourceError(
            f"{name} has a folder _delta_log without a commit.", hint=f"List it: ls {quote(str(table))}/_delta_log"
        )
    last = commits[-1]
    how = f"SHA-256 of the commit that made version {int(last.stem)}, the newest now"
    kind = f"Delta table, version {int(last.stem)}"
    return Input(name, kind, None, _utc(last.stat().st_mtime), _digest(last, _ALL), how)


def _of_table(name: str, spark: SparkSession) -> Input:
    """A table that the session knows, by the files that hold it now; a view of no files has no fingerprint."""
    files = sorted(spark.table(name).inputFiles())
    listed = hashlib.sha256("\n".join(files).encode()).hexdigest() if files else ""
    how = "SHA-256 of the list of its files: path" if files else "not known: no file contains it"
    return Input(name, "table", None, "", listed, how)


def _in_store(name: str, store: Store) -> Input:
    """A file or folder of an object store, by names and sizes: its contents are not read a second time."""
    files = store.files() if store.is_folder() else [Stored("", store.size())]
    listed = "".join(f"{f.path}\t{f.size}\t\n" for f in files)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    what = "SHA-256 of the list of files: path, size"
    return Input(name, f"{len(files):,} files", sum(f.size for f in files), "", digest, what)


def _elsewhere(name: str, source: str, spark: SparkSession) -> Input:
    """What only Spark can read: a Delta table by its version, files by a hash that the workers compute."""
    from delta import DeltaTable

    if DeltaTable.isDeltaTable(spark, source):
        last = DeltaTable.forPath(spark, source).history(1).select("version", "timestamp").first()
        assert last is not None
        version = f"version {last['version']}"
        return Input(
            name, f"Delta table, {version}", None, f"{last['timestamp']:%Y-%m-%d %H:%M:%S}", version, "version"
        )
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(source)
    sizes = files.agg(
        F.count(F.lit(1)).alias("n"), F.sum("length").alias("bytes"), F.max("length").alias("most")
    ).first()
    if sizes is None or not sizes["n"]:
        raise SourceError(f"{name} contains no file.", hint="Name a `source` that the workers see.")
    is_whole = sizes["n"] <= FILES and sizes["bytes"] <= WHOLE and sizes["most"] <= WHOLE // 4
    found = files.transform(_hashed, content=is_whole).first()
    assert found is not None
    how = f"SHA-256 of the list of files: path, size{', SHA-256 of all bytes' if is_whole else ''}"
    modified = f"{found['modified']:%Y-%m-%d %H:%M:%S}"
    return Input(name, f"{sizes['n']:,} files", sizes["bytes"], modified, found["fingerprint"], how)


def _hashed(files: DataFrame, *, content: bool) -> DataFrame:
    """One row: a hash of all files (Spark's ``binaryFile``), and the latest change; only hashes leave a task."""
    each = [F.col("path"), F.col("length").cast("string"), *([F.sha2("content", 256)] if content else [])]
    listed = F.array_join(F.array_sort(F.collect_list(F.concat_ws("\t", *each))), "\n")
    return files.agg(
        F.sha2(listed.cast("binary"), 256).alias("fingerprint"), F.max("modificationTime").alias("modified")
    )


def _offsets(log: ChangeLog) -> Iterator[Input]:
    """Of a topic the offsets that were read, a line a partition; as many rows as partitions come here."""
    by = log.decoded.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.max("commit_ts").alias("ts")
    )
    name = without_secrets(log.source).rpartition("/")[0]
    which = "read" if log.sample is None else "kept in the sample"
    for r in by.orderBy("topic", "partition").toArrow().to_pylist():
        at = f"offsets {r['first']} to {r['last']}"
        where = f"{name}/{r['topic']} partition {r['partition']}"
        yield Input(
            where, f"kafka, {log.protocol}", None, "", at, f"first and last offset {which}; last commit ts {r['ts']}"
        )


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
