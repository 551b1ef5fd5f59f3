"""What the downstream of a run holds, as the change log that TiCDC would have written, and the truth of it."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.encode import encoder
from ticdc_lab.encode.encoders import writer
from ticdc_lab.errors import SourceError, missing_folder
from ticdc_lab.events.schema import EVENTS, MESSAGES
from ticdc_lab.simulate.pipeline.downstream import Align, DdlEntry, Entry, Partitions, Rows
from ticdc_lab.simulate.pipeline.partitions import Placing, homes
from ticdc_lab.simulate.pipeline.settings import KAFKA, DownstreamSettings
from ticdc_lab.simulate.pipeline.tables import Cell, Change, FinishedJob, TableInfo, text_of

COLUMN = pa.struct(
    [
        ("name", pa.string()),
        ("mysql_type", pa.string()),
        ("value", pa.string()),
        ("is_key", pa.bool_()),
        ("flags", pa.int64()),
    ]
)
"""One column of an image (:data:`ticdc_lab.events.schema.COLUMN`)."""

Image = tuple[TableInfo, tuple[Cell, ...] | None]


def images(rows: Sequence[Image]) -> pa.Array:
    """Write cells as images; None is no image."""
    names: list[str] = []
    types: list[str] = []
    keys: list[bool] = []
    values: list[str | None] = []
    lengths = np.zeros(len(rows), np.int32)
    for at, (info, cells) in enumerate(rows):
        if cells is None:
            continue
        found = _SHAPES.get(info)
        if found is None:
            columns = info.columns
            found = [c.name for c in columns], [c.mysql_type for c in columns], [c.is_key for c in columns]
            _SHAPES[info] = found
        own_names, own_types, own_keys = found
        names += own_names
        types += own_types
        keys += own_keys
        values += [text_of(c) for c in cells]
        lengths[at] = len(cells)
    flat = pa.StructArray.from_arrays(
        [
            pa.array(names, pa.string()),
            pa.array(types, pa.string()),
            pa.array(values, pa.string()),
            pa.array(keys, pa.bool_()),
            pa.nulls(len(names), pa.int64()),
        ],
        fields=list(COLUMN),
    )
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    absent = np.array([cells is None for _, cells in rows], np.bool_)
    return pa.ListArray.from_arrays(pa.array(ends), flat, mask=pa.array(absent)) if len(rows) else pa.array([], _LIST)


_LIST = pa.list_(COLUMN)
_SHAPES: dict[TableInfo, tuple[list[str], list[str], list[bool]]] = {}


# The log and the truth

MAX_BATCH_SIZE = 16


def log_events(entries: Sequence[Entry], settings: DownstreamSettings, *, topic: str = "simulated") -> pa.Table:
    """Write what came downstream as events, in the order in which it came to each partition.

    ``entries``: see :func:`ticdc_lab.simulate.pipeline.downstream.entries`. ``settings``: how many partitions, and the
    dispatcher; a database is one partition. Returns: the events contract and ``target_partition`` (int),
    ``dispatch_key`` (string), ``arrived_us`` (bigint, virtual time). A watermark and a DDL are in every partition, an
    Admin event in old and new ones; ``offset`` is the place in the partition. Alignments of conflict detection have no
    event.
    """
    n = settings.partitions if settings.kind == KAFKA else 1
    placing = Placing(settings.dispatcher, n)
    changes: list[Change] = []
    rows: list[dict[str, Any]] = []
    for entry in entries:
        if isinstance(entry, Align):
            continue
        if isinstance(entry, Partitions):
            for partition in range(max(n, entry.partitions)):
                rows.append({"kind": "admin", "at": entry.at_us, "partition": partition, "key": None,
                             "count": entry.partitions})  # fmt: skip
            n = entry.partitions
            placing = placing.over(n)
            continue
        if isinstance(entry, Rows):
            placing, placed = homes(placing, entry)
            for change, (partition, key, _) in zip(entry.changes, placed, strict=True):
                rows.append({"kind": "row", "at": entry.at_us, "partition": partition, "key": key, "n": len(changes)})
                changes.append(change)
            continue
        job = entry.job if isinstance(entry, DdlEntry) else None
        placing = placing.behind(entry) if isinstance(entry, DdlEntry) else placing
        for partition in range(n):
            rows.append({"kind": "ddl" if job else "watermark", "at": entry.at_us, "partition": partition,
                         "key": None, "ts": entry.ts, "job": job})  # fmt: skip
    return _table(rows, changes, topic)


def truth_events(
    changes: Iterable[Change], jobs: Iterable[tuple[int, FinishedJob]], *, topic: str = "truth"
) -> pa.Table:
    """Write what was committed upstream as events, in commit order in one partition."""
    found = sorted(changes, key=lambda c: (c.commit_ts, c.key))
    rows: list[dict[str, Any]] = [
        {"kind": "row", "at": None, "partition": 0, "key": None, "n": n, "ts": c.commit_ts} for n, c in enumerate(found)
    ]
    rows += [{"kind": "ddl", "at": None, "partition": 0, "key": None, "ts": ts, "job": job} for ts, job in jobs]
    rows.sort(key=lambda r: r["ts"])
    return _table(rows, found, topic)


def messages(log: pa.Table, protocol: str) -> pa.Table:
    """Write a log in a wire format.

    ``log``: of :func:`log_events`. ``protocol``: a name of :data:`ticdc_lab.encode.ENCODERS`. Returns:
    :data:`ticdc_lab.events.schema.MESSAGES`. Raises ProtocolError: the protocol is unknown, or has no form for
    something in the log.
    """
    if not encoder(protocol).ddl_to_all:
        log = log.filter(pc.or_(pc.not_equal(log["kind"], "ddl"), pc.equal(log["target_partition"], 0)))
    ordered = log.take(np.argsort(log["target_partition"].to_numpy(), kind="stable"))
    found = list(writer(protocol, max_batch_size=MAX_BATCH_SIZE)(iter(ordered.combine_chunks().to_batches())))
    schema = arrow_schema(MESSAGES)
    places = pa.Table.from_batches(found) if found else schema.empty_table().select(["partition", "offset"])
    topic = log["topic"][0].as_py() if log.num_rows else "simulated"
    return pa.table(
        {
            "topic": pa.repeat(topic, places.num_rows),
            "timestamp": pa.nulls(places.num_rows, schema.field("timestamp").type),
            "headers": pa.array([[]] * places.num_rows, schema.field("headers").type),
            **{name: places[name] for name in ("partition", "offset", "key", "value") if name in places.column_names},
        }
    ).select(schema.names).cast(schema)  # fmt: skip


def _table(rows: Sequence[dict[str, Any]], changes: Sequence[Change], topic: str) -> pa.Table:
    of = [changes[r["n"]] if "n" in r else None for r in rows]
    jobs = [r.get("job") for r in rows]
    at = np.full(len(rows), -1, np.int64)
    at[[i for i, c in enumerate(of) if c is not None]] = np.fromiter(
        (r["n"] for r in rows if "n" in r), np.int64, count=sum("n" in r for r in rows)
    )
    place = pa.array(np.where(at < 0, 0, at), mask=at < 0)
    columns: dict[str, Any] = {
        "kind": [r["kind"] for r in rows],
        "commit_ts": [c.commit_ts if c else r.get("ts") for c, r in zip(of, rows, strict=True)],
        "start_ts": [c.start_ts if c else None for c in of],
        "schema_name": [
            c.info.schema_name if c else j.schema_name if j else None for c, j in zip(of, jobs, strict=True)
        ],
        "table_name": [
            c.info.name if c else (j.table_name or "") if j else None for c, j in zip(of, jobs, strict=True)
        ],
        "table_id": [c.info.id if c else None for c in of],
        "op": [c.op if c else None for c in of],
        "columns": images([(c.info, c.after) for c in changes]).take(place),
        "before": images([(c.info, c.before) for c in changes]).take(place),
        "query": [j.query if j else None for j in jobs],
        "admin": [{"partition_count": r["count"]} if "count" in r else None for r in rows],
        "topic": [topic] * len(rows),
        "partition": [r["partition"] for r in rows],
        "offset": _offsets([r["partition"] for r in rows]),
        "seq": [0] * len(rows),
        "protocol": ["simulated"] * len(rows),
    }
    schema = arrow_schema(EVENTS)
    table = pa.table(
        {f.name: pa.array(columns[f.name], f.type) if isinstance(columns.get(f.name), list)
         else columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(rows), f.type) for f in schema}
    )  # fmt: skip
    return (
        table.append_column("target_partition", pa.array([r["partition"] for r in rows], pa.int32()))
        .append_column("dispatch_key", pa.array([r["key"] for r in rows], pa.string()))
        .append_column("arrived_us", pa.array([r["at"] for r in rows], pa.int64()))
    )


def _offsets(partitions: Sequence[int]) -> list[int]:
    next_of: dict[int, int] = {}
    found = []
    for partition in partitions:
        found.append(next_of.get(partition, 0))
        next_of[partition] = found[-1] + 1
    return found


# The log of a run as a recorded topic, and its truth, as files.

_BATCH = 10_000
ENDINGS = (".parquet", ".jsonl", ".jsonl.gz")


def write_rows(rows: pa.Table, out: str) -> None:
    """Write messages as a capture file, which every command reads, or events; what is there is replaced.

    ``rows``: of :func:`ticdc_lab.simulate.pipeline.log.messages`, or the truth of a run. Bytes are base64 in JSON.
    ``out``: ``*.parquet``, ``*.jsonl`` or ``*.jsonl.gz``. The same rows give the same bytes, under any name. Raises
    SourceError: another ending, or the folder does not exist.
    """
    require_writable(out)
    if out.endswith(".parquet"):
        pq.write_table(rows, out)
        return
    with _opened(out) as target:
        for batch in rows.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                target.write(orjson.dumps(row, _base64, orjson.OPT_APPEND_NEWLINE))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


@contextmanager
def _opened(out: str) -> Iterator[BinaryIO]:
    """Open a file; neither its name nor the moment of writing is part of what is written."""
    with Path(out).open("wb") as plain:
        if not out.endswith(".gz"):
            yield plain
            return
        with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as packed:
            yield cast(BinaryIO, packed)


def require_writable(out: str) -> None:
    """Refuse a file that cannot be written, before there is anything to write.

    Raises SourceError: another ending, or the folder does not exist.
    """
    if not out.endswith(ENDINGS):
        raise SourceError(f"Cannot write {out}: expected a name that ends in one of {', '.join(ENDINGS)}.",
                          hint="Name the file `*.jsonl` or `*.jsonl.gz`.")  # fmt: skip
    if not Path(out).absolute().parent.is_dir():
        raise missing_folder(out)
