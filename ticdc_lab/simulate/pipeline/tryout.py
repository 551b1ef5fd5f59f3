"""How a changefeed begins: what the stores' incremental scans gave, and what was streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.faults import Ask, Crash, Fault, Part, Restart
from ticdc_lab.simulate.network import Link, Network
from ticdc_lab.simulate.pipeline.cdc_messages import COMMITTED, INITIALIZED, PREWRITE
from ticdc_lab.simulate.pipeline.downstream import Pace
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Mutation, Split, TransferLeader
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.settings import CaptureSettings, DownstreamSettings, PipelineSettings
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tables import Change, Column, FinishedJob, Raw, TableInfo, key_of, shown
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.simulate.scheduler.roles import MoveTable
from ticdc_lab.simulate.scheduler.roles import Restart as RestartProcessor
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler

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

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`, with messages. ``keys``: of interest. Returns:
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


# A pipeline to try out in a panel: a small load, what can be set, and which faults can be injected at a moment.

COLUMNS = (Column(1, "id", "bigint", True), Column(2, "name", "varchar"), Column(3, "amount", "bigint"))
TABLES = tuple(TableInfo(101 + i, "shop", name, COLUMNS) for i, name in enumerate(("orders", "customers", "stock")))
CAPTURES, STORES = ("capture-1", "capture-2"), ("tikv-1", "tikv-2", "tikv-3")
MEMORY_ROWS = 60
"""Rows that a sorter holds in memory: few, so that it is seen what becomes of them."""

LONG_KEY = key_of(102, 900)
"""The row of customers that the long transaction locks."""

LONG_US = 3_000_000
"""When it begins."""

SAMPLE_US = 100_000

_EVERY_US, _BACK_US = 20_000, 5_000_000
_HANDLES, _HOT = 800, 850
_QUIET_US = 2_000_000
"""At the end of a run, so that what was written comes downstream."""

_NOTE = Column(4, "note", "varchar")


def shop(*, long_us: int = 0, until_us: int = 12_000_000, ddl_us: int | None = None, hot: bool = False) -> Load:
    """Three tables, 150 row changes a second, and if wanted a long transaction and a DDL.

    ``long_us``: how long a transaction on customers holds its lock from :data:`LONG_US` on; 0 for none. ``until_us``:
    when the last transaction begins, µs. ``ddl_us``: when stock gets a new column, µs. ``hot``: whether every second
    transaction changes the same row of each table.
    """
    often = []
    for k, at_us in enumerate(range(500_000, until_us, _EVERY_US)):
        rows = [(t.id, _HOT if hot and k % 2 else (3 * k + i) % _HANDLES) for i, t in enumerate(TABLES)]
        often.append(ClientTxn(at_us, 0, tuple(_put(table, handle, k) for table, handle in rows)))
    held = (
        [ClientTxn(LONG_US, long_us, (Mutation(LONG_KEY, PUT, Raw((1, 2, 3), (900, "long", 1))),))] if long_us else []
    )
    wider = TABLES[2]._replace(columns=(*COLUMNS, _NOTE))
    query = "ALTER TABLE `stock` ADD COLUMN `note` VARCHAR(64)"
    jobs = [] if ddl_us is None else [(ddl_us, FinishedJob(1, "add column", query, "shop", "stock", None, wider))]
    return Load(TABLES, tuple(sorted(often + held, key=lambda t: t.start_us)), tuple(jobs))


def design_example() -> tuple[PipelineSettings, Load]:
    """Give the architecture model's example: the changefeed begins at @TS1 and is created after @TS5.

    ``@TS1`` begin, ``@TS2`` update id 1, ``@TS3`` another begin, ``@TS4`` commit, ``@TS5`` update id 2, whose commit
    comes when the changefeed streams.

    References
    ----------
    Design "Analyzing the Architecture Model", section 4.1.
    """
    table = TableInfo(104, "test", "Table_Jan", COLUMNS[:2])
    first, second = (Mutation(key_of(104, i), PUT, Raw((1, 2), (i, "Jan Su"))) for i in (1, 2))
    load = Load((table,), (ClientTxn(1_000_000, 400_000, (first,)), ClientTxn(1_200_000, 1_300_000, (second,))))
    scheduler = Scheduler(captures=1)
    return PipelineSettings(scheduler, start_ts=ts_of(1_000_000), created_us=1_600_000), load


def tried(until_s: float) -> Callable[[str, str, int, int, float, int], PipelineRun]:
    """Give what a panel calls to get a run of ``until_s``.

    Its arguments are semantics, rule, latency (ms), rows a second that the downstream takes (0: all at once), how long
    the long transaction is open (s), and the seed.
    """

    def ran(semantics: str, rule: str, latency_ms: int, rows_per_s: int, long_s: float, seed: int) -> PipelineRun:
        settings = PipelineSettings(
            Scheduler(captures=CAPTURES),
            capture=CaptureSettings(rule=rule, semantics=semantics, sorter_memory_rows=MEMORY_ROWS),
            downstream=DownstreamSettings(rows_per_s=rows_per_s or None),
        )
        load = shop(long_us=round(1e6 * long_s), until_us=round(1e6 * until_s) - _QUIET_US)
        network = Network(Link((500 * latency_ms, 1_500 * latency_ms)))
        return simulate(
            settings, load, seed=seed, until_us=round(1e6 * until_s), network=network, sample_us=SAMPLE_US,
            stops_at_violation=False,
        )  # fmt: skip

    return ran


def _put(table: int, handle: int, amount: int) -> Mutation:
    return Mutation(key_of(table, handle), PUT, Raw((1, 2, 3), (handle, f"row {handle}", amount)))


def _stops(at_us: int, for_us: int = 3_000_000) -> list[Fault]:
    return [Ask(at_us, DOWNSTREAM, Pace(0)), Ask(at_us + for_us, DOWNSTREAM, Pace(None))]


FAULTS: Mapping[str, Callable[[int], Sequence[Fault]]] = MappingProxyType(
    {
        "the sink takes nothing for 3 s": _stops,
        "capture-1 crashes for 5 s": lambda at: [Crash(at, CAPTURES[0]), Restart(at + _BACK_US, CAPTURES[0])],
        "capture-2 crashes for 5 s": lambda at: [Crash(at, CAPTURES[1]), Restart(at + _BACK_US, CAPTURES[1])],
        "the processor of capture-1 restarts": lambda at: [Ask(at, CAPTURES[0], RestartProcessor())],
        "shop.orders moves to capture-2": lambda at: [Ask(at, c, MoveTable(101, CAPTURES[1])) for c in CAPTURES],
        "a leader moves to tikv-3": lambda at: [
            Ask(at, s, TransferLeader(key_of(102, 0), STORES[2])) for s in STORES[:2]
        ],
        "a region of customers splits": lambda at: [Ask(at, s, Split(key_of(102, 200))) for s in STORES],
        "tikv-1 crashes for 5 s": lambda at: [Crash(at, STORES[0]), Restart(at + _BACK_US, STORES[0])],
        "capture-1 is cut off from tikv-1 for 3 s": lambda at: [Part(at, CAPTURES[0], STORES[0], for_us=3_000_000)],
    }
)
"""What can be injected: moment (µs) to faults."""
