"""Is a storage sink's folder whole: a check of names against each other, and of names against contents.

Names and sizes are compared on the driver, contents by the workers. What a reader cannot use is an error, what a
reader can live with a warning, and what is no fault but worth knowing an info.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import SourceError
from ticdc_lab.events import FILE_BITS
from ticdc_lab.events.arrays import Batches
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.sources import local_path, storage
from ticdc_lab.sources.pieces import Source
from ticdc_lab.sources.storage import Listing
from ticdc_lab.sources.storage_layout import (
    METADATA,
    StoragePlace,
    named_by_index,
    numbered_twice,
    place_of,
    schema_files,
    series_of,
)
from ticdc_lab.sources.storage_reading import Reading, Row, Unreadable, checkpoint_of

FINDINGS = StructType(
    [
        StructField("kind", StringType(), False, {"comment": "short stable name of the fault"}),
        StructField("severity", StringType(), False, {"comment": "error, warning or info"}),
        StructField("path", StringType(), False, {"comment": "file or folder, relative to the root"}),
        StructField("expected", StringType(), False, {"comment": "what should be there"}),
        StructField("found", StringType(), False, {"comment": "what is there"}),
        StructField("n", LongType(), False, {"comment": "how many records or files it concerns"}),
    ]
)
"""What :func:`fsck` finds, a row each."""


_REFUSED = {"link", "unsafe-path", "no-plain-file"}


class Finding(NamedTuple):
    """A row of :data:`FINDINGS`."""

    kind: str
    severity: str
    path: str
    expected: str
    found: str
    n: int = 1


def fsck(spark: SparkSession, folder: str, *, settings: Settings = UNKNOWN) -> DataFrame:
    """Check a folder that TiCDC's storage sink wrote.

    Parameters
    ----------
    spark
        The caller's session.
    folder
        A path or a URL; the folder in which the file ``metadata`` lies.
    settings
        By which they are read (:func:`ticdc_lab.sources.storage.read_by`): what the files omit.

    Returns
    -------
    DataFrame
        :data:`FINDINGS`: holes in file numbers, index files against data, schema files against their names, table
        versions without a schema file, the checkpoint against the data, damaged and unknown files.

    Raises
    ------
    SourceError
        The folder is not there or has no file of the storage sink.

    References
    ----------
    docs/reading.md; TiCDC's source (cmd/storage-consumer).
    """
    local = local_path(folder)
    if local is not None and not local.is_dir():
        raise SourceError(f"{folder} is no folder.", hint="Name the folder that contains the file `metadata`.")
    found = storage.listing(spark, folder, local=local, settings=settings)
    if error := storage.misplaced(found, folder, local=local):
        raise error
    if not found.is_storage:
        raise SourceError(
            f"{folder} contains no file of TiCDC's storage sink: no metadata, schema*.json or CDC*.csv or .json.",
            hint="Name the folder that contains the file `metadata`.",
        )
    files, reading, _ = storage.opened(spark, found, settings=settings, with_index=True)
    source = Source(folder, spark, files.frame, reading.messages, shares=files.shares)
    guesses = [Finding("guess", "info", ".", "a setting of the changefeed's [sink]", g) for g in reading.guesses]
    by_name = pa.Table.from_pylist([f._asdict() for f in (*name_findings(found), *guesses)], arrow_schema(FINDINGS))
    stated = source.found(partial(_checkpoints, reading), _CHECKPOINT)["checkpoint"].to_pylist()
    content_findings = _content_findings(reading, stated[0] if stated else None)
    by_content = source.found(content_findings, by_name.schema)
    return spark.createDataFrame(pa.concat_tables([by_name, by_content]), FINDINGS)


_CHECKPOINT = pa.schema([("checkpoint", pa.int64())])


def name_findings(found: Listing) -> Iterator[Finding]:
    """What names and sizes alone show; starts no job."""
    for r in found.refused:
        severity = "error" if r.error_class in _REFUSED else "warning"
        yield Finding(r.error_class, severity, r.path, "a file of the storage sink's layout", r.reason)
    if METADATA not in found.sizes:
        yield Finding("metadata-missing", "error", METADATA, "a file with checkpoint-ts", "no such file")
    yield from _without_schema(found.places)
    for first, *others in numbered_twice(found.places):
        yield Finding("number-twice", "error", first.folder, f"one data file with number {first.number}",
                      ", ".join(map(_name, (first, *others))), len(others))  # fmt: skip
    indexed = {(p.folder, p.dispatcher) for p in found.places if p.kind == "index"}
    # TiCDC before v6.5.3 and v7.1 wrote none, or for some releases only: its schema files have no checksum
    without = {key for key, p in schema_files(found.places).items() if p.checksum is None}
    for (folder, dispatcher), files in series_of(found.places).items():
        yield from _holes(folder, sorted({p.number for p in files}))
        if (folder, dispatcher) not in indexed and files[0].version_key not in without:
            last = max(files, key=lambda p: p.number)
            yield Finding("index-missing", "warning", folder, "an index file that names the newest data file",
                          f"none; the newest is {_name(last)}", len(files))  # fmt: skip


def _without_schema(places: Iterable[StoragePlace]) -> Iterator[Finding]:
    """Table versions with data and without a schema file."""
    known = schema_files(places)
    lost: dict[tuple[str, str, int], list[StoragePlace]] = {}
    for p in places:
        if p.kind == "data" and p.version_key not in known:
            lost.setdefault(p.version_key, []).append(p)
    for (schema, table, version), files in lost.items():
        parent = f"{schema}/{table}" if table else schema
        yield Finding("schema-missing", "error", f"{parent}/{version}", f"{parent}/meta/schema_{version}_*.json",
                      f"{len(files)} data files and no schema file", len(files))  # fmt: skip


def _holes(folder: str, numbers: list[int]) -> Iterator[Finding]:
    """Runs of numbers, counted from 1, that no file has."""
    for before, after in zip([0, *numbers], numbers, strict=False):
        if after > before + 1:
            lost = f"{before + 1}" if after == before + 2 else f"{before + 1} to {after - 1}"
            named = f"none with number {lost}"
            yield Finding("hole", "error", folder, f"data files numbered 1 to {numbers[-1]}", named,
                          after - before - 1)  # fmt: skip


def _name(p: StoragePlace) -> str:
    return p.path.rsplit("/", 1)[-1]


def checkpoint_in(reading: Reading, metadata: Sequence[dict[str, Any]]) -> int | None:
    """checkpoint-ts in the file ``metadata`` (no row or one), or None where the folder does not have it."""
    try:
        return checkpoint_of(reading.content(metadata[0])) if metadata else None
    except (Unreadable, ValueError):
        return None


def _checkpoints(reading: Reading, batches: Batches) -> Batches:
    for batch in batches:
        metadata = batch.filter(pc.equal(batch["kind"], "metadata")).slice(0, 1)
        if (at := checkpoint_in(reading, metadata.to_pylist())) is not None:
            yield pa.record_batch([[at]], schema=_CHECKPOINT)


def _content_findings(reading: Reading, checkpoint: int | None) -> Any:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            found = [f._asdict() for f in file_findings(reading, checkpoint, batch.to_pylist())]
            if found:
                yield pa.RecordBatch.from_pylist(found, arrow_schema(FINDINGS))

    return run


def file_findings(reading: Reading, checkpoint: int | None, rows: Sequence[Row]) -> Iterator[Finding]:
    """What is wrong in files (rows of :data:`ticdc_lab.sources.storage.FILES`); needs no Spark."""
    for row in rows:
        if row["kind"] == "index":
            yield from _index(reading, row)
    said = {(row["partition"], row["rank"]): row for row in rows if _to_be_decoded(row)}
    faults: dict[tuple[int, int], dict[str, list[Any]]] = {}
    over: dict[tuple[int, int], tuple[int, int]] = {}
    for events in reading.decoded(list(said.values()), images=False):
        bad = events.filter(pc.is_valid(events.column("error_class")))
        for place, name, reason in zip(
            _places(bad), *(bad.column(c).to_pylist() for c in ("error_class", "reason")), strict=True
        ):
            faults.setdefault(place, {}).setdefault(name, [reason, 0])[1] += 1
        for place, n, highest in _above(events, checkpoint):
            known = over.get(place, (0, 0))
            over[place] = known[0] + n, max(known[1], highest)
    for place, row in said.items():
        for name, (reason, n) in faults.get(place, {}).items():
            yield Finding(name, "error", row["path"], _EXPECTED[row["kind"]], reason, n)
        if place in over:
            n, latest = over[place]
            yield Finding("above-checkpoint", "info", row["path"], f"rows up to the checkpoint {checkpoint}",
                          f"{n} rows above it, up to {latest}", n)  # fmt: skip


def _to_be_decoded(row: Row) -> bool:
    """Without what the listing has reported; metadata is at the end of every partition, and is read once."""
    if row["kind"] in ("refused", "index") or (row["kind"] == "metadata" and row["partition"]):
        return False
    return not (row["kind"] == "data" and row["schema_path"] is None and row["extension"] == "csv")


_EXPECTED = {
    "data": "whole records that the table's definition describes",
    "schema": "a table definition with the version and checksum of its name",
    "metadata": '{"checkpoint-ts": N}',
}


def _places(events: pa.RecordBatch) -> list[tuple[int, int]]:
    """Partition and rank of the file that each event comes from."""
    ranks = pc.shift_right(events.column("offset"), FILE_BITS)
    return list(zip(events.column("partition").to_pylist(), ranks.to_pylist(), strict=True))


def _above(events: pa.RecordBatch, checkpoint: int | None) -> Iterator[tuple[tuple[int, int], int, int]]:
    """How many row changes of each file have a commit_ts above the checkpoint, and the highest."""
    if checkpoint is None:
        return
    is_row = pc.equal(events.column("kind"), "row")
    over = events.filter(pc.and_(is_row, pc.greater(events.column("commit_ts"), checkpoint)))
    each = zip(_places(over), over.column("commit_ts").to_pylist(), strict=True)
    for place, of in groupby(each, itemgetter(0)):
        commits = [ts for _, ts in of]
        yield place, len(commits), max(commits)


def _index(reading: Reading, row: dict[str, Any]) -> Iterator[Finding]:
    """An index file against the data files beside it; ``schema_path`` holds the newest of them."""
    path, newest = row["path"], row["schema_path"]
    try:
        raw = reading.content(row)
    except Unreadable as fault:
        yield Finding(fault.error_class, "error", path, "an index file", fault.reason)
        return
    named, told = raw.decode("utf-8", "replace").strip("\r\n"), named_by_index(path, raw)
    if told is None:
        yield Finding(
            "index-malformed", "error", path, "the name of a data file in the folder above", f"{named!r:.200}"
        )
        return
    last = place_of(newest) if newest else None
    number = last.number if isinstance(last, StoragePlace) else 0
    expected = f"the newest data file, {newest or 'none'}"
    if told.number > number:
        yield Finding("index-ahead", "error", path, expected, f"{named}, which is not there")
    elif told.number < number:
        unseen = f"{named}; readers that trust the index do not see the newer files yet"
        yield Finding("index-behind", "warning", path, expected, unseen, number - told.number)
