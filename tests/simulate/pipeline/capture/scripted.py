"""A scripted upstream and downstream: a history of transactions, regions that change, stores that stream them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Fired, Received, ReceivedMany, Send, Wake, one_by_one
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.network import Link, Network
from ticdc_lab.simulate.pipeline.capture import DataCapture
from ticdc_lab.simulate.pipeline.cdc_messages import (
    COMMIT,
    COMMITTED,
    INITIALIZED,
    PREWRITE,
    ROLLED_BACK,
    Deregister,
    Entries,
    KvRow,
    RegionFailed,
    Register,
    ResolvedTs,
)
from ticdc_lab.simulate.pipeline.kv_messages import (
    EpochNotMatch,
    GetRegions,
    KvRegion,
    NotLeader,
    RegionNotFound,
    Regions,
)
from ticdc_lab.simulate.pipeline.settings import MEASURED, MQ, CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import SEVERAL, Execute, Executed, Write, Written
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, META, Column, FinishedJob, Raw, TableInfo, key_of, table_of
from ticdc_lab.simulate.scheduler.capture import Capture
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor
from ticdc_lab.simulate.scheduler.variants import VARIANTS, SchedulerSettings
from ticdc_lab.simulate.trace import CHANGES, Recorder

START_TS = ts_of(0)
MS = 1000


class Txn(NamedTuple):
    """A transaction; ``puts`` are (key, value or None, old value); without a commit it is rolled back or open."""

    start_us: int
    commit_us: int | None
    puts: tuple[tuple[int, Any, Any], ...]
    rollback_us: int | None = None


def info(table: int, columns: int = 2, name: str = "") -> TableInfo:
    """Give a table with columns 1..n; the first is its key."""
    return TableInfo(
        table, "test", name or f"t{table}", tuple(Column(i + 1, f"c{i + 1}", "bigint", i == 0) for i in range(columns))
    )


def row(*cells: Any) -> Raw:
    """Give a row of columns 1..n."""
    return Raw(tuple(range(1, len(cells) + 1)), cells)


def history(tables: Sequence[int], until_ms: int, every_ms: int = 7, lasts_ms: int = 12, keys: int = 20) -> list[Txn]:
    """Give transactions over all tables: inserts, then updates, now and then a delete; no key has two locks."""
    known: dict[int, Any] = {}
    found = []
    for n, at_ms in enumerate(range(50, until_ms, every_ms)):
        puts = []
        for table in tables:
            key = key_of(table, (n * 37 + table) % keys)
            value = None if known.get(key) is not None and n % 11 == 0 else row(key & 0xFFFF, n)
            puts.append((key, value, known.get(key)))
            known[key] = value
        start_us = at_ms * MS + n % 5 * 100
        found.append(Txn(start_us, start_us + min(lasts_ms, every_ms) * MS - 1 - n % 3, tuple(puts)))
    return found


def ddl(at_ms: int, job: FinishedJob) -> Txn:
    """Give the transaction that finishes a job."""
    return Txn(at_ms * MS - 500, at_ms * MS, ((key_of(META, job.id), job, None),))


def regions(tables: Sequence[int], leaders: Sequence[str], per_table: int = 2, epoch: int = 1) -> tuple[KvRegion, ...]:
    """Give regions over the whole key space: one for the DDL jobs, some per table (handles up to 100)."""
    cuts = [FIRST]
    for table in tables:
        cuts += [key_of(table, 0)] + [key_of(table, i * 20 // per_table) for i in range(1, per_table)]
    cuts += [key_of(max(tables, default=0) + 1, 0), LAST]
    cuts = sorted(set(cuts))
    return tuple(KvRegion(i + 1, a, b, epoch, leaders[i % len(leaders)]) for i, (a, b) in enumerate(pairwise(cuts)))


Layout = Sequence[tuple[int, tuple[KvRegion, ...]]]


def layout_at(layout: Layout, at_us: int) -> tuple[KvRegion, ...]:
    """Give the regions of a moment."""
    return [found for since_us, found in layout if since_us <= at_us][-1]


@dataclass(frozen=True)
class Pd:
    """Answers where regions are, ``late_us`` behind."""

    layout: Layout
    late_us: int = 0

    def start(self, address: str, now: Any) -> Any:
        return None, []

    def step(self, state: Any, event: Any, now: Any) -> Any:
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if not isinstance(event, Received):
            return state, []
        ask: GetRegions = event.message
        known = layout_at(self.layout, max(0, now.at_us - self.late_us))
        found = tuple(r for r in known if r.start < ask.end and ask.start < r.end)
        return state, [Send(event.sender, Regions(ask.start, ask.end, found))]


class Sub(NamedTuple):
    """A registration; scanned at ``snapshot_us``."""

    to: str
    register: Register
    snapshot_us: int
    initialized: bool = False


class StoreState(NamedTuple):
    """Registrations, and up to when the log was streamed."""

    address: str
    told_us: int = 0
    subs: Map[Any, Sub] = Map()


@dataclass(frozen=True)
class Store:
    """Streams the history of the regions that it leads: the log at once, the scan ``scan_us`` later."""

    layout: Layout
    txns: Sequence[Txn]
    scan_us: int = 3 * MS
    tick_us: int = 5 * MS
    resolved_us: int = 20 * MS
    log: list[tuple[int, KvRow]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for txn in self.txns:
            ts = ts_of(txn.start_us)
            for key, value, old in txn.puts:
                self.log.append((txn.start_us, _prewrite(key, value, old, ts)))
                if txn.commit_us is not None:
                    self.log.append((txn.commit_us, KvRow(COMMIT, key, ts, ts_of(txn.commit_us))))
                if txn.rollback_us is not None:
                    self.log.append((txn.rollback_us, KvRow(ROLLED_BACK, key, ts)))
        self.log.sort(key=lambda e: e[0])

    def start(self, address: str, now: Any) -> Any:
        return StoreState(address, now.at_us), [Wake(self.tick_us, "stream"), Wake(self.resolved_us, "resolved")]

    def step(self, state: StoreState, event: Any, now: Any) -> Any:
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Received):
            return self._asked(state, event.sender, event.message, now.at_us)
        if isinstance(event, Fired):
            if event.name == "stream":
                return self._stream(state, now.at_us)
            if event.name == "resolved":
                state, outputs = self._stream(state, now.at_us)
                return state, [*outputs[:-1], *self._resolved(state), Wake(self.resolved_us, "resolved"), outputs[-1]]
            if isinstance(event.name, tuple):
                return self._scan(state, event.name)
        return state, []

    def _asked(self, state: StoreState, sender: str, message: Any, at_us: int) -> Any:
        if isinstance(message, Deregister):
            return state._replace(
                subs=Map({k: s for k, s in state.subs.items() if k != (sender, message.request_id)})
            ), []
        assert isinstance(message, Register)
        error = self._error(state.address, message, at_us)
        if error:
            return state, [Send(sender, RegionFailed(message.request_id, message.region, error))]
        state, outputs = self._stream(state, at_us)
        key = (sender, message.request_id)
        state = state._replace(subs=state.subs.set(key, Sub(sender, message, at_us)))
        return state, [*outputs[:-1], Wake(self.scan_us, key)]

    def _error(self, address: str, register: Register, at_us: int) -> Any:
        now = layout_at(self.layout, at_us)
        found = [r for r in now if r.id == register.region]
        if not found:
            return RegionNotFound(register.region)
        if found[0].leader != address:
            return NotLeader(register.region, found[0].leader)
        if found[0].epoch != register.epoch:
            return EpochNotMatch(
                register.region, tuple(r for r in now if r.start < register.end and register.start < r.end)
            )
        return None

    def _stream(self, state: StoreState, at_us: int) -> Any:
        outputs: list[Any] = []
        subs = state.subs
        for key in sorted(subs):
            sub = subs[key]
            error = self._error(state.address, sub.register, at_us)
            if error:
                outputs.append(Send(sub.to, RegionFailed(sub.register.request_id, sub.register.region, error)))
                subs = subs.delete(key)
                continue
            rows = self._log(sub.register, state.told_us, at_us)
            if rows:
                outputs.append(Send(sub.to, Entries(sub.register.request_id, sub.register.region, rows)))
        return state._replace(told_us=at_us, subs=subs), [*outputs, Wake(self.tick_us, "stream")]

    def _log(self, register: Register, after_us: int, upto_us: int) -> tuple[KvRow, ...]:
        first = bisect_right(self.log, after_us, key=lambda e: e[0])
        last = bisect_right(self.log, upto_us, key=lambda e: e[0])
        return tuple(r for _, r in self.log[first:last] if register.start <= r.key < register.end)

    def _scan(self, state: StoreState, key: Any) -> Any:
        sub = state.subs.get(key)
        if sub is None:
            return state, []
        register, at_us = sub.register, sub.snapshot_us
        rows = []
        for txn in self.txns:
            mine = [p for p in txn.puts if register.start <= p[0] < register.end and txn.start_us <= at_us]
            ts = ts_of(txn.start_us)
            ended_us = txn.commit_us if txn.commit_us is not None else txn.rollback_us
            if ended_us is None or ended_us > at_us:
                rows += [_prewrite(k, v, old, ts) for k, v, old in mine]
            elif txn.commit_us is not None and ts_of(txn.commit_us) > register.checkpoint_ts:
                rows += [
                    KvRow(COMMITTED, k, ts, ts_of(txn.commit_us), "delete" if v is None else "put", v, old)
                    for k, v, old in mine
                ]
        rows.reverse()
        done = KvRow(INITIALIZED, 0, 0)
        state = state._replace(subs=state.subs.set(key, sub._replace(initialized=True)))
        return state, [Send(sub.to, Entries(register.request_id, register.region, (*rows, done)))]

    def _resolved(self, state: StoreState) -> list[Any]:
        told: dict[tuple[str, int], list[tuple[int, int]]] = {}
        at_us = state.told_us
        open_ = [t for t in self.txns if t.start_us <= at_us < (t.commit_us or t.rollback_us or 1 << 60)]
        for key in sorted(state.subs):
            sub = state.subs[key]
            if sub.initialized:
                locks = [
                    ts_of(t.start_us)
                    for t in open_
                    if any(sub.register.start <= p[0] < sub.register.end for p in t.puts)
                ]
                ts = min([ts_of(state.told_us), *locks])
                told.setdefault((sub.to, ts), []).append((sub.register.request_id, sub.register.region))
        return [Send(to, ResolvedTs(ts, tuple(found))) for (to, ts), found in sorted(told.items())]


def _prewrite(key: int, value: Any, old: Any, ts: int) -> KvRow:
    return KvRow(PREWRITE, key, ts, 0, "delete" if value is None else "put", value, old)


@dataclass
class Downstream:
    """Keeps what it gets; answers ``takes_us`` later, or drops everything between two moments."""

    takes_us: int = 2 * MS
    ddl_us: int = 30 * MS
    deaf_us: tuple[int, int] = (0, 0)
    got: list[tuple[int, str, Any]] = field(default_factory=list)

    def start(self, address: str, now: Any) -> Any:
        return None, []

    def step(self, state: Any, event: Any, now: Any) -> Any:
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Fired):
            return state, [Send(*event.name)]
        if not isinstance(event, Received) or self.deaf_us[0] <= now.at_us < self.deaf_us[1]:
            return state, []
        message = event.message
        self.got += [(now.at_us, event.sender, part) for part in _by_table(message)]
        if isinstance(message, Write):
            return state, [Wake(self.takes_us, (event.sender, Written(message.id, message.table)))]
        if isinstance(message, Execute):
            return state, [Wake(self.ddl_us, (event.sender, Executed(message.finished_ts)))]
        return state, []

    def of(self, kind: type) -> list[Any]:
        """Give the messages of a kind."""
        return [m for _, _, m in self.got if isinstance(m, kind)]

    def changes(self) -> list[Any]:
        """Give all row changes, in the order in which they came."""
        return [c for w in self.of(Write) for c in w.changes]


def _by_table(message: Any) -> list[Any]:
    """Give a write of several tables as one of each run of rows of a table; all else as it is."""
    if not isinstance(message, Write) or message.table != SEVERAL:
        return [message]
    runs = groupby(message.changes, key=lambda c: table_of(c.key))
    return [Write(message.id, table, tuple(changes)) for table, changes in runs]


@dataclass
class World:
    """A run: what it is made of, and what came of it."""

    tables: tuple[int, ...] = (1,)
    txns: Sequence[Txn] = ()
    layout: Layout = ()
    captures: int = 1
    settings: CaptureSettings = field(default_factory=CaptureSettings)
    variant: str = "v2"
    stores: int = 1
    faults: Sequence[Any] = ()
    downstream: Downstream = field(default_factory=Downstream)
    store: dict[str, Any] = field(default_factory=dict)
    pd_late_us: int = 0
    audited: bool = True
    seed: int = 0

    def run(self, until_ms: int) -> World:
        """Run it."""
        names = [f"tikv-{i + 1}" for i in range(self.stores)]
        layout = self.layout or ((0, regions(self.tables, names)),)
        known = tuple(info(t) for t in self.tables)
        keys = frozenset(self.tables)
        settings = SchedulerSettings(
            variant=self.variant, captures=self.captures, tables=tuple(self.tables), pace=MEASURED
        )
        free_ts = MAX_TS if self.settings.rule == MQ else None
        machines: dict[str, Any] = {
            "etcd": Etcd(keys, START_TS, resolved_ts=free_ts),
            "pd": Pd(layout, self.pd_late_us),
        }
        machines |= {name: Store(layout, self.txns, **self.store) for name in names}
        machines["downstream"] = self.downstream
        for name in settings.nodes():
            capture = Capture(VARIANTS[self.variant](settings))
            machines[name] = DataCapture(capture, self.settings, known, START_TS)
        monitor = SchedulerMonitor(START_TS, keys) if self.audited else None
        self.recorder = Recorder("test", CHANGES)
        self.kernel = Kernel(
            machines, network=Network(Link((300, 1200))), faults=self.faults, seed=self.seed, auditor=monitor,
            recorder=self.recorder,
        )  # fmt: skip
        self.end = self.kernel.run(until_ms * MS)
        return self

    def state(self, node: str = "capture-1") -> Any:
        """Give the state of a node."""
        return self.kernel.states[self.kernel.address[node]]

    def checkpoints(self) -> list[int]:
        """Give the persisted global checkpoints."""
        return [int(r.after) for r in self.recorder.rows if r.subject == "global-checkpoint" and r.after is not None]


def truth(txns: Iterable[Txn], upto_ts: int, after_ts: int = START_TS) -> set[tuple[int, int]]:
    """Give (commit_ts, key) of every row that must be downstream."""
    return {
        (ts_of(t.commit_us), k)
        for t in txns
        if t.commit_us is not None and after_ts < ts_of(t.commit_us) <= upto_ts
        for k, v, _ in t.puts
        if not isinstance(v, FinishedJob)
    }


def told(changes: Iterable[Any]) -> set[tuple[int, int]]:
    """Give (commit_ts, key) of changes."""
    return {(c.commit_ts, c.key) for c in changes}
