"""How a changefeed begins: what the stores' incremental scans gave, and what was streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.pipeline.cdc_messages import COMMITTED, INITIALIZED, PREWRITE
from ticdc_lab.simulate.pipeline.keys import shown
from ticdc_lab.simulate.pipeline.tables import Change
from ticdc_lab.simulate.scheduler.clock import us_of

SCAN, STREAM = "scan", "stream"

TOLD = pa.schema(
    [
        ("at_us", pa.int64()),  # when the store sent it
        ("store", pa.string()),
        ("capture", pa.string()),
        ("region", pa.int64()),
        ("by", pa.string()),  # scan or stream
        ("type", pa.string()),  # as in cdc_messages.KvRow
        ("key", pa.int64()),
        ("start_ts", pa.int64()),
        ("commit_ts", pa.int64()),  # 0 where there is none
        ("asked_us", pa.int64()),  # when the store got the request, which is when the snapshot is taken
    ]
)
"""One row a KvRow; ``initialized`` only of requests that gave some of the keys."""

TRANSACTIONS = pa.schema([("name", pa.string()), ("start_ts", pa.int64()), ("commit_ts", pa.int64())])


def transactions(changes: Iterable[Change]) -> pa.Table:
    """Give :data:`TRANSACTIONS`, each once, named after the first key that it changed."""
    first: dict[int, Change] = {}
    for change in changes:
        first.setdefault(change.start_ts, change)
    rows = [(ts, c.commit_ts, f"{c.op} {shown(c.key)}") for ts, c in sorted(first.items())]
    return pa.Table.from_pylist(
        [{"name": name, "start_ts": start, "commit_ts": commit} for start, commit, name in rows], schema=TRANSACTIONS
    )


def changes_told(trace: pa.Table, *, keys: Iterable[int]) -> pa.Table:
    """Give what stores sent of some keys.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`, with messages.
    keys
        Those of interest.

    Returns
    -------
    pa.Table
        :data:`TOLD`. A prewrite is the scan's if it comes before the scan's end and its transaction began before the
        request: one that began before and wrote after it is taken for the scan's too.
    """
    wanted = frozenset(keys)
    of = pc.and_(pc.equal(trace["kind"], "sent"), pc.equal(trace["message"], "Entries"))
    asked = pc.and_(pc.equal(trace["kind"], "received"), pc.equal(trace["message"], "Register"))
    columns = ["time_us", "node", "peer", "detail", "message"]
    requests: dict[tuple[str, str, int], int] = {}
    scanned: set[tuple[str, str, int]] = set()
    out: list[dict[str, Any]] = []
    for r in trace.select(columns).filter(pc.or_(of, asked)).to_pylist():
        fields = orjson.loads(r["detail"])
        if "request-id" not in fields:  # etcd's message of the same name
            continue
        request = (r["node"], r["peer"], fields["request-id"])
        if r["message"] == "Register":
            requests[request] = r["time_us"]
            continue
        rows = list(_rows(fields["rows"], wanted, requests.get(request, 0), done=request in scanned))
        if any(row["type"] == INITIALIZED for row in rows):
            scanned.add(request)
        place = {"at_us": r["time_us"], "store": node_of(r["node"]), "capture": node_of(r["peer"])}
        out += [{**place, "request": request, "region": fields["region"], **row} for row in rows]
    gave = {row["request"] for row in out if row["type"] != INITIALIZED}
    return pa.Table.from_pylist([row for row in out if row["request"] in gave], schema=TOLD)


def _rows(rows: list[dict[str, Any]], keys: frozenset[int], asked_us: int, *, done: bool) -> Iterator[dict[str, Any]]:
    for row in rows:
        kind, start_ts = row["type"], row["start-ts"]
        if kind != INITIALIZED and row["key"] not in keys:
            continue
        old = kind == PREWRITE and us_of(start_ts) < asked_us
        by = SCAN if not done and (kind in (COMMITTED, INITIALIZED) or old) else STREAM
        stamps = {"start_ts": start_ts, "commit_ts": row["commit-ts"], "asked_us": asked_us}
        yield {"by": by, "type": kind, "key": row["key"], **stamps}
