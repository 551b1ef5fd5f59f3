"""What the downstream of a run holds, as the change log that TiCDC would have written, and the truth of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.encode import encoder
from ticdc_lab.encode.messages import writer
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import EVENTS, MESSAGES
from ticdc_lab.simulate.pipeline.downstream import Ddl, Entry, Partitions, Rows
from ticdc_lab.simulate.pipeline.images import images, text_of
from ticdc_lab.simulate.pipeline.keys import handle_of
from ticdc_lab.simulate.pipeline.settings import KAFKA, DownstreamSettings
from ticdc_lab.simulate.pipeline.tables import Change, Job

TABLE, TS, INDEX_VALUE, TIDB_ROWID = "table", "ts", "index-value", "tidb-rowid"
DISPATCHERS = (TABLE, TS, INDEX_VALUE, TIDB_ROWID)
"""Those that need neither state nor a catalog."""
MAX_BATCH_SIZE = 16


def partition_of(change: Change, dispatcher: str, partitions: int) -> tuple[int, str]:
    """Give a change's partition and the key that TiCDC gives its message.

    Raises
    ------
    DispatchError
        The dispatcher is none of :data:`DISPATCHERS`.
    """
    info = change.info
    if dispatcher == TS:
        return change.commit_ts % partitions, str(change.commit_ts)
    if dispatcher == TIDB_ROWID:
        row_id = handle_of(change.key)
        return row_id % partitions, str(row_id)
    number = zlib.crc32((info.schema_name + info.name).encode())
    if dispatcher == TABLE:
        return number % partitions, info.quoted
    if dispatcher != INDEX_VALUE:
        raise DispatchError(
            f"A run's downstream cannot dispatch by {dispatcher!r}; expected one of {', '.join(DISPATCHERS)}.",
            hint="Produce the log anew with ticdc_lab.produce, which knows them all.",
        )
    image = change.before if change.op == "delete" else change.after
    for column, cell in zip(info.columns, image or (), strict=False):
        if column.is_key and cell is not None:
            number ^= zlib.crc32((column.name + (text_of(cell) or "")).encode())
    return number % partitions, str(number)


def log_events(entries: Sequence[Entry], settings: DownstreamSettings, *, topic: str = "simulated") -> pa.Table:
    """Write what came downstream as events, in the order in which it came to each partition.

    Parameters
    ----------
    entries
        See :func:`ticdc_lab.simulate.pipeline.downstream.entries`.
    settings
        How many partitions, and the dispatcher; a database is one partition.

    Returns
    -------
    pyarrow.Table
        The events contract and ``target_partition`` (int), ``dispatch_key`` (string), ``arrived_us`` (bigint, virtual
        time). A watermark and a DDL stand in every partition, an Admin event in old and new ones;
        ``offset`` is the place in the partition.
    """
    n = settings.partitions if settings.kind == KAFKA else 1
    changes: list[Change] = []
    rows: list[dict[str, Any]] = []
    for entry in entries:
        if isinstance(entry, Partitions):
            for partition in range(max(n, entry.partitions)):
                rows.append({"kind": "admin", "at": entry.at_us, "partition": partition, "key": None,
                             "count": entry.partitions})  # fmt: skip
            n = entry.partitions
            continue
        if isinstance(entry, Rows):
            for change in entry.changes:
                partition, key = partition_of(change, settings.dispatcher, n)
                rows.append({"kind": "row", "at": entry.at_us, "partition": partition, "key": key, "n": len(changes)})
                changes.append(change)
            continue
        job = entry.job if isinstance(entry, Ddl) else None
        for partition in range(n):
            rows.append({"kind": "ddl" if job else "watermark", "at": entry.at_us, "partition": partition,
                         "key": None, "ts": entry.ts, "job": job})  # fmt: skip
    return _table(rows, changes, topic)


def truth_events(changes: Iterable[Change], jobs: Iterable[tuple[int, Job]], *, topic: str = "truth") -> pa.Table:
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

    Parameters
    ----------
    log
        Of :func:`log_events`.
    protocol
        A name of :data:`ticdc_lab.encode.ENCODERS`.

    Returns
    -------
    pyarrow.Table
        :data:`ticdc_lab.events.schema.MESSAGES`.

    Raises
    ------
    ProtocolError
        The protocol is unknown, or has no form for something in the log.
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
