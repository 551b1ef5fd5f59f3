"""One pass of the workers over a batch of messages: they decode it and write the tables' files themselves.

A row on its way from Python into Delta passes through Spark's own rows and its Parquet writer, which cost three times
what decoding it does. So each task writes what it has into files in the tables' folders and yields which, with Delta's
statistics of them, and what the batch's watermarks are made of. What it wrote becomes part of a table when the driver
commits it (:func:`ticdc_lab.lake.tables.append`); files of a pass that was cut short are left for ``VACUUM``.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.engine.delta_log import DataFile
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.schemas import GROUPS, arrow_of
from ticdc_lab.facts.watermarks import partitions_of

BYTES_A_GROUP = 32 << 20
"""What a task holds of a table before it writes it as a row group."""

MESSAGE = "message"
"""In the place of a kind: the messages of a partition."""

PASSED = f"{GROUPS}, table string, name string, size bigint, modified_ms bigint, stats string"
"""What a task yields: a row with ``table`` names a file, others are groups of events, or of messages."""

_HEADERS = arrow_schema(MESSAGES).field("headers").type
_PASSED, _GROUPS = arrow_of(PASSED), arrow_of(GROUPS)
_KEYS = ("topic", "partition", "kind", "_offset", "_seq")
_SUMS = {"n": "sum", "commit_ts": "min", "last_ts": "max", "offset": "min", "last_offset": "max"}
_FILE = [f.name for f in fields(DataFile)]

Decode = Callable[[Batches], Batches]


class LakeFile:
    """A Parquet file of a table, begun with its first row."""

    def __init__(self, folder: str, name: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._written: list[pq.FileMetaData] = []
        self._path = Path(folder) / name / f"part-{uuid4()}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.Table] = []
        self._size = 0

    def add(self, rows: pa.Table) -> None:
        """Rows with the table's columns, in any order."""
        if rows.num_rows:
            self._held.append(rows.select(self._schema.names).cast(self._schema))
            self._size += rows.nbytes
            if self._size >= BYTES_A_GROUP:
                self._flush()

    def closed(self) -> DataFile | None:
        """The file when it is whole; None if there was no row."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        found = self._path.stat()
        stats = json.dumps(statistics(self._written[0], self._schema))
        return DataFile(self._path.name, found.st_size, found.st_mtime_ns // 1_000_000, stats)

    def dropped(self) -> None:
        """Remove it."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._held:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, self._schema, store_schema=False, metadata_collector=self._written
            )
        rows = pa.concat_tables(self._held)
        self._writer.write_table(rows, row_group_size=len(rows))
        self._held, self._size = [], 0


@contextmanager
def whole_or_removed(files: Iterable[LakeFile]) -> Iterator[None]:
    """Leave no file where a task fails: each time that it is tried again there would be more, until ``VACUUM``."""
    with ExitStack() as left:
        for file in files:
            left.callback(file.dropped)
        yield
        left.pop_all()


def statistics(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Delta's statistics of a file: how many rows, and the least, the greatest and the nulls of each integer column."""
    whole = {f.name for f in schema if pa.types.is_integer(f.type)}
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    nulls: dict[str, int] = {}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name in whole:
                nulls[name] = nulls.get(name, 0) + found.null_count
                if found.has_min_max:
                    low[name] = min(low.get(name, found.min), found.min)
                    high[name] = max(high.get(name, found.max), found.max)
    return {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def passing(
    folder: str, schemas: Mapping[str, pa.Schema], decode: Decode, batch_id: int
) -> Callable[[Batches], Batches]:
    """Write messages, their events and what could not be decoded; yields :data:`PASSED`.

    The messages come with their headers as JSON text (:func:`with_headers`).

    ``folder``: where the tables lie: a path that the driver and all workers share. ``schemas``: of ``messages``,
    ``events`` and ``quarantine``. ``decode``: batches of messages to :data:`ticdc_lab.events.schema.DECODED`.
    ``batch_id``: of all rows.
    """

    def run(batches: Batches) -> Batches:
        files = {name: LakeFile(folder, name, schema) for name, schema in schemas.items()}
        groups: list[pa.Table] = []

        def kept() -> Batches:
            for batch in batches:
                messages = with_headers(pa.Table.from_batches([batch]))
                files["messages"].add(_with(messages, batch_id=batch_id))
                groups.append(message_groups(messages))
                yield batch.select(["topic", "partition", "offset", "key", "value"])

        with whole_or_removed(files.values()):
            for batch in decode(kept()):
                decoded = pa.Table.from_batches([batch])
                whole = pc.is_null(decoded["error_class"])
                events = decoded.filter(whole) if batch["error_class"].null_count < len(batch) else decoded
                files["events"].add(_with(events, batch_id=batch_id, late=False))
                groups.append(event_groups(events))
                if len(events) < len(decoded):
                    files["quarantine"].add(_with(decoded.filter(pc.invert(whole)), batch_id=batch_id))
            for name, file in files.items():
                yield from _closed(name, file)
        yield from _as_passed(summed(groups))

    return run


def writing(folder: str, table: str, schema: pa.Schema, *, apart: str) -> Callable[[Batches], Batches]:
    """Write rows into files of a table, rows with a false boolean column apart; yields :data:`PASSED`."""

    def run(batches: Batches) -> Batches:
        files = LakeFile(folder, table, schema), LakeFile(folder, table, schema)
        with whole_or_removed(files):
            for batch in batches:
                rows = pa.Table.from_batches([batch])
                files[0].add(rows.filter(rows[apart]))
                files[1].add(rows.filter(pc.invert(rows[apart])))
            for file in files:
                yield from _closed(table, file)

    return run


def merging(folder: str, schemas: Mapping[str, pa.Schema]) -> Callable[[Batches], Batches]:
    """Put the files that a row names (``table``, ``names``) into one; yields :data:`PASSED`."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                table = row["table"]
                whole = LakeFile(folder, table, schemas[table])
                for name in row["names"]:
                    with pq.ParquetFile(Path(folder) / table / name) as file:
                        for i in range(file.num_row_groups):
                            whole.add(file.read_row_group(i))
                yield from _closed(table, whole)

    return run


def with_headers(messages: pa.Table) -> pa.Table:
    """Messages with their headers as Arrow has them, from the JSON text in which Spark has sent them.

    Spark counts the bytes of a list again with each row that it sends, which costs more than all else of a message.
    """
    text = messages["headers"]
    if text.null_count == len(text):
        headers = pa.nulls(len(text), _HEADERS)
    else:
        read = (None if t is None else orjson.loads(t) for t in text.to_pylist())
        rows = [None if of is None else [_header(**header) for header in of] for of in read]
        headers = pa.array(rows, _HEADERS)
    return messages.set_column(messages.schema.get_field_index("headers"), "headers", headers)


def _header(key: str | None = None, value: str | None = None) -> dict[str, object]:
    return {"key": key, "value": None if value is None else b64decode(value)}


def message_groups(messages: pa.Table) -> pa.Table:
    """How many messages each partition has, and between which offsets, as :data:`GROUPS`."""
    n = len(messages)
    return _grouped({
        **{c: messages[c] for c in ("topic", "partition", "offset")},
        "kind": pa.array([MESSAGE]).take(pa.repeat(0, n)),
        "commit_ts": pa.nulls(n, pa.int64()),
        "_offset": pa.nulls(n, pa.int64()),
        "_seq": pa.nulls(n, pa.int32()),
    })  # fmt: skip


def event_groups(events: pa.Table) -> pa.Table:
    """Events of a partition and kind, and each watermark by its place: :data:`GROUPS`.

    As :func:`ticdc_lab.facts.watermarks.by_watermark` counts them, of events in Arrow's form.
    """
    mark = pc.equal(events["kind"], "watermark")
    own = {f"_{c}": pc.if_else(mark, events[c], None) for c in ("offset", "seq")}
    return _grouped({c: events[c] for c in ("topic", "partition", "kind", "commit_ts", "offset")} | own)


def summed(groups: list[pa.Table]) -> pa.Table:
    """Groups of several parts, each once."""
    found = pa.concat_tables([_GROUPS.empty_table(), *groups]).group_by(list(_KEYS), use_threads=False)
    whole = found.aggregate(list(_SUMS.items()))
    named = {f"{name}_{how}": name for name, how in _SUMS.items()}
    return whole.rename_columns([named.get(c, c) for c in whole.column_names]).select(_GROUPS.names).cast(_GROUPS)


def _grouped(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    n = len(columns["offset"])
    more = {"n": pa.repeat(pa.scalar(1, pa.int64()), n), "last_ts": columns["commit_ts"]}
    of = {**columns, **more, "last_offset": columns["offset"]}
    return summed([pa.table([of[c] for c in _GROUPS.names], names=_GROUPS.names).cast(_GROUPS)])


def _with(rows: pa.Table, **values: object) -> pa.Table:
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), len(rows)))
    return rows


def _closed(table: str, file: LakeFile) -> Batches:
    """Report which file of a table this was, now that it is whole."""
    if (written := file.closed()) is not None:
        yield from _as_passed(pa.Table.from_pylist([{"table": table, **asdict(written)}]))


def _as_passed(rows: pa.Table) -> Batches:
    n, of = rows.num_rows, {c: rows[c] for c in rows.column_names}
    columns = [of[f.name].cast(f.type) if f.name in of else pa.nulls(n, f.type) for f in _PASSED]
    yield from pa.table(columns, schema=_PASSED).to_batches()


@dataclass(frozen=True, slots=True)
class Passed:
    """Reports of the tasks of a pass."""

    said: pa.Table

    def files(self, table: str) -> list[DataFile]:
        """What they wrote for a table."""
        own = self.said.filter(pc.equal(self.said["table"], table)).select(_FILE)
        return [DataFile(**row) for row in own.to_pylist()]

    def has(self, kind: str) -> bool:
        """Whether they found events of a kind."""
        return bool(pc.any(pc.equal(self._groups()["kind"], kind)).as_py())

    def spans(self) -> list[dict[str, Any]]:
        """``topic, partition, n, first, end``: how many messages of each partition came, and between which offsets."""
        rows = summed([self._groups().filter(pc.equal(self._groups()["kind"], MESSAGE))]).to_pylist()
        return [
            {"topic": r["topic"], "partition": r["partition"], "n": r["n"],
             "first": r["offset"], "end": r["last_offset"] + 1} for r in rows
        ]  # fmt: skip

    def facts(self, carried: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """:func:`ticdc_lab.facts.watermarks.partition_watermarks` of the events, with watermarks that go before them.

        ``carried``: each partition's watermark so far: ``topic, partition, offset, commit_ts``.
        """
        before = [
            {"kind": "watermark", "n": 1, "_offset": w["offset"], "_seq": 0, "last_ts": w["commit_ts"],
             "last_offset": w["offset"], **w} for w in carried
        ]  # fmt: skip
        events = self._groups().filter(pc.not_equal(self._groups()["kind"], MESSAGE))
        whole = summed([events, pa.Table.from_pylist(before, _GROUPS)])
        return list(partitions_of(LogFacts.of_groups(whole)).to_pylist())

    def _groups(self) -> pa.Table:
        return self.said.filter(pc.is_null(self.said["table"])).select(_GROUPS.names)
