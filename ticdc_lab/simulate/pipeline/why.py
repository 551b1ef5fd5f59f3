"""Why the watermarks of a run are where they are, and what holds them, read off the states of the pipeline's nodes.

What the owner itself gives as the cause, in the trace of any model, is in :mod:`ticdc_lab.simulate.what_holds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.machines.machine import TABLE, node_of
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, Moment, RegionFacts, Reported, StreamFacts, TableFacts
from ticdc_lab.simulate.pipeline.settings import BASE, MQ
from ticdc_lab.simulate.pipeline.tables import shown as shown_key
from ticdc_lab.simulate.pipeline.tables import span_of
from ticdc_lab.simulate.reading import shown
from ticdc_lab.simulate.scheduler.executor import WRITING

# A bound of a watermark, and the kinds of its causes.

KINDS = (
    "transaction", "scan", "store", "region", "ddl", "ddl puller", "mounter", "sink", "capture", "scheduler", "report",
    "passing", "stopped",
)  # fmt: skip
"""Of what can hold a watermark; ``passing``: nothing does any more, and what is newer is on its way; ``stopped``: a
user has stopped the changefeed, and nothing else is asked."""
TRANSACTION, SCAN, STORE, REGION, DDL, DDL_PULLER, MOUNTER, SINK, CAPTURE, SCHEDULER, REPORT, PASSING, STOPPED = KINDS

RESOLVED, CHECKPOINT = WATERMARKS = "resolved_ts", "checkpoint_ts"

CURRENT_US = 1_000_000
"""A watermark that is less behind than this is on its way: nothing holds it."""


class ChainStep(NamedTuple):
    """A level of a chain (``processor``, ``table``, ``region``, ``lock``, ..) and its value; None where it has none."""

    level: str
    name: str
    ts: int | None = None


class Hold(NamedTuple):
    """A bound of a watermark."""

    # Of its cause: bounds of one cause (the locks of one transaction in five regions) share it, and go together.
    key: tuple[str, str]
    kind: str  # one of ``KINDS``
    ts: int  # the watermark cannot be above it
    path: tuple[ChainStep, ...]  # from the processor down to the cause
    because: str  # a sentence: what it is
    since_us: int | None = None  # since when the cause is there, if the facts show it


def is_unexplained(ts: int, bounds: Iterable[int], current_us: int) -> bool:
    """Whether a value is lower than what is below it can explain."""
    return us_of(ts) < min(map(us_of, bounds)) - current_us


# What bounds resolved_ts in the processors: locks, scans, silent stores, regions without a leader, the DDL puller.
#
# Values in between (of a region, a table, a puller) are no causes: they bound only where nothing below explains them.


def of_processors(moment: Moment, current_us: int) -> Iterator[Hold]:
    """Give the bounds of resolved_ts in every capture that runs."""
    for capture in moment.captures:
        tables = counted(moment, capture)
        processor = ChainStep("processor", capture.address, lowest_ts(moment, tables, "resolved_ts"))
        for table in tables:
            yield from _of_table(moment, capture, table, processor, current_us)
        yield from _of_ddl_puller(moment, capture, processor, current_us)


def counted(moment: Moment, capture: CaptureFacts) -> list[TableFacts]:
    """Give the tables of a capture that its owner waits for: not those that another capture still writes."""
    written = {t.table for c in moment.captures if c is not capture for t in c.tables if t.state in WRITING}
    return [t for t in capture.tables if t.state in WRITING or t.table not in written]


def lowest_ts(moment: Moment, tables: Iterable[TableFacts], watermark: str) -> int:
    """Give what a processor has to report: the lowest of its tables."""
    return min([getattr(t, watermark) for t in tables], default=ts_of(moment.at_us))


def _of_table(
    moment: Moment, capture: CaptureFacts, table: TableFacts, processor: ChainStep, current_us: int
) -> Iterator[Hold]:
    path = (processor, ChainStep("table", f"{table.name} ({table.table})", table.resolved_ts))
    bounds = [h for stream in table.streams for h in _of_stream(moment, stream, path, current_us)]
    yield from bounds
    if is_unexplained(table.resolved_ts, _and_now(moment, bounds), current_us):
        because = f"{table.name} is {table.state} on {capture.address} and has received nothing newer"
        key = ("table", f"{table.table} on {capture.address}")
        yield Hold(key, REPORT if table.streams else SCAN, table.resolved_ts, path, because)


def _of_ddl_puller(moment: Moment, capture: CaptureFacts, processor: ChainStep, current_us: int) -> Iterator[Hold]:
    path = (processor, ChainStep("ddl puller", capture.address, capture.ddl_resolved_ts))
    bounds = [h for stream in capture.ddl_streams for h in _of_stream(moment, stream, path, current_us)]
    yield from bounds
    if is_unexplained(capture.ddl_resolved_ts, _and_now(moment, bounds), current_us):
        because = f"the DDL puller of {capture.address} has received nothing newer"
        yield Hold(("ddl puller", capture.address), DDL_PULLER, capture.ddl_resolved_ts, path, because)


def _of_stream(moment: Moment, stream: StreamFacts, path: tuple[ChainStep, ...], current_us: int) -> Iterator[Hold]:
    """Locks in a region of a puller, its scan, its silence."""
    span = f"[{shown_key(stream.start)}, {shown_key(stream.end)})"
    path = (*path, ChainStep("region", f"{stream.region} {span} on {stream.store}", stream.resolved_ts))
    overlapping = [r for r in moment.regions if r.start < stream.end and stream.start < r.end]
    bounds = list(_of_locks(overlapping, path))
    yield from bounds
    if stream.state != "streaming":
        yield _not_streaming(moment, stream, path)
    elif is_unexplained(stream.resolved_ts, _and_now(moment, bounds), current_us):
        yield _silent(moment, stream, path)


def of_lost(moment: Moment, lost: Reported) -> Iterator[Hold]:
    """Give the locks in tables of a capture that does not run: wherever these restart, they wait for them too."""
    for table in lost.tables:
        start, end = span_of(table)
        path = (ChainStep("processor", lost.capture, lost.resolved_ts), ChainStep("table", str(table)))
        yield from _of_locks([r for r in moment.regions if r.start < end and start < r.end], path)


def _of_locks(regions: Iterable[RegionFacts], path: tuple[ChainStep, ...]) -> Iterator[Hold]:
    for region in regions:
        for lock in region.locks:
            name = f"transaction {lock.start_ts} (primary {shown_key(lock.primary)})"
            n = f"{len(lock.keys)} lock{'s' if len(lock.keys) > 1 else ''}"
            because = f"{name} is open: {n} in region {region.id} on {region.store}"
            key = (TRANSACTION, str(lock.start_ts))
            own = (*path, ChainStep("lock", name, lock.start_ts))
            yield Hold(key, TRANSACTION, lock.start_ts, own, because, us_of(lock.start_ts))


def _not_streaming(moment: Moment, stream: StreamFacts, path: tuple[ChainStep, ...]) -> Hold:
    where, ts = f"region {stream.region}", stream.resolved_ts
    if stream.store in moment.down:
        because = f"{where} has no leader: {stream.store} is down, and no other store has taken it over"
        return Hold((STORE, stream.store), STORE, ts, path, because)
    kind, because = {
        "scanning": (SCAN, f"the incremental scan of {where} on {stream.store} has not ended"),
        "waiting": (SCAN, f"{where} waits for its incremental scan until others have ended"),
    }.get(stream.state, (REGION, f"{where} is being requested: no store has answered as its leader"))
    return Hold((kind, str(stream.region)), kind, ts, path, because, stream.since_us)


def _silent(moment: Moment, stream: StreamFacts, path: tuple[ChainStep, ...]) -> Hold:
    where, ts = f"region {stream.region}", stream.resolved_ts
    leads = next((r for r in moment.regions if r.id == stream.region), None)
    if stream.store in moment.down:
        return Hold((STORE, stream.store), STORE, ts, path, f"{stream.store}, which streams {where}, is down or paused")
    if leads is None:
        because = f"{where} has no leader that runs; {stream.store} streamed it last"
        return Hold((REGION, str(stream.region)), REGION, ts, path, because)
    if leads.resolved_ts > ts:
        because = f"{leads.store} resolved {where} up to {leads.resolved_ts}, and that has not come here"
    else:
        because = f"{leads.store} does not advance {where}, though no lock is in it"
    return Hold((STORE, leads.store), STORE, ts, path, because)


def _and_now(moment: Moment, bounds: Iterable[Hold]) -> list[int]:
    return [ts_of(moment.at_us), *(h.ts for h in bounds)]


# What bounds the global watermarks beyond the pullers: sinks, DDL, the owner, and what has not been reported.


def of_sinks(moment: Moment, rule: str, current_us: int) -> Iterator[Hold]:
    """Give the bounds of checkpoint_ts in the sinks of every capture that runs."""
    for capture in moment.captures:
        tables = counted(moment, capture)
        processor = ChainStep("processor", capture.address, lowest_ts(moment, tables, CHECKPOINT))
        for table in tables:
            if table.state in WRITING:
                yield from _of_sink(capture, table, (processor,), rule, current_us, moment.at_us)
        if rule == BASE and is_unexplained(capture.limit_ts, [moment.resolved_ts], current_us):
            because = f"{capture.address} has not heard of the global resolved_ts {moment.resolved_ts}"
            yield Hold(("limit", capture.address), REPORT, capture.limit_ts, (processor,), because)


def _of_sink(
    capture: CaptureFacts, table: TableFacts, path: tuple[ChainStep, ...], rule: str, current_us: int, at_us: int
) -> Iterator[Hold]:
    path = (*path, ChainStep("table", f"{table.name} ({table.table})", table.checkpoint_ts))
    key, oldest_ts = (SINK, str(table.table)), table.oldest_under_way_ts
    waiting = f"{table.under_way} rows are under way and {table.mounting} wait for it"
    if oldest_ts is not None:
        because = f"the sink of {table.name} has not acknowledged a row of {oldest_ts}: {waiting}"
        own = (*path, ChainStep("sink", "oldest unacknowledged row", oldest_ts))
        yield Hold(key, SINK, oldest_ts - 1, own, because, table.oldest_since_us)
    explained = [table.resolved_ts, *([capture.limit_ts] if rule == BASE else [])]
    explained += [oldest_ts] if oldest_ts is not None else []
    if not is_unexplained(table.checkpoint_ts, explained, current_us):
        return
    if capture.mounting_until_us > at_us:
        because = f"the mounters of {capture.address} are busy: {table.mounting} rows of {table.name} wait for them"
        yield Hold((MOUNTER, capture.address), MOUNTER, table.checkpoint_ts, path, because)
    else:
        because = f"the sink of {table.name} takes nothing: {waiting}"
        yield Hold(key, SINK, table.checkpoint_ts, path, because)


def of_ddl(moment: Moment) -> Iterator[Hold]:
    """Give the barriers: no watermark passes the commit_ts of a DDL that is not executed."""
    owner = moment.owner
    for ts, query in owner.jobs if owner else ():
        if owner and owner.executing_ts == ts:
            because = f"the DDL {query!r} is being executed downstream"
        else:
            behind = sorted(t.name for c in moment.captures for t in c.tables if t.checkpoint_ts < ts)
            because = f"the DDL {query!r} waits until every checkpoint is at its commit_ts"
            because += (
                f"; {len(behind)} not yet: {behind[0]}, .."
                if len(behind) > 1
                else "".join(f"; {t} is not" for t in behind)
            )
        yield Hold((DDL, str(ts)), DDL, ts, (ChainStep("ddl", query, ts),), because)


def of_owner(moment: Moment, bounds: Iterable[Hold], watermark: str, current_us: int) -> Iterator[Hold]:
    """Give what the owner cannot count, and what has not come to it or to etcd."""
    bounds = list(bounds)
    own_ts: int = getattr(moment, watermark)
    behind = [h for h in bounds if us_of(h.ts) < moment.at_us - current_us]
    stands = list(_scheduler(moment, behind, own_ts))
    yield from stands
    lives = {c.address: c for c in moment.captures}
    for one in moment.reported:
        told_ts = one.checkpoint_ts if watermark == CHECKPOINT else one.resolved_ts
        path = (ChainStep("processor", one.capture, told_ts),)
        if one.capture not in lives:
            why = "is down or paused" if one.capture in moment.down else "is gone"
            because = f"{one.capture} {why}, and the owner counts it still"
            stands.append(Hold((CAPTURE, one.capture), CAPTURE, told_ts, path, because))
            yield stands[-1]
            yield from of_lost(moment, one)
        else:
            said_ts = lowest_ts(moment, counted(moment, lives[one.capture]), watermark)
            if is_unexplained(told_ts, [said_ts, ts_of(moment.at_us)], current_us):
                because = f"{one.capture} is at {said_ts}, and the owner has not heard of it"
                stands.append(Hold(("told", one.capture), REPORT, told_ts, path, because))
                yield stands[-1]
    explained = [ts_of(moment.at_us), *(h.ts for h in (*bounds, *stands))]
    if is_unexplained(own_ts, explained, current_us):
        because = "the processors are further, and etcd does not have their progress yet"
        chain = (ChainStep("owner", moment.owner.address if moment.owner else ""),)
        yield Hold(("told", "etcd"), REPORT, own_ts, chain, because)


def _scheduler(moment: Moment, bounds: list[Hold], own_ts: int) -> Iterator[Hold]:
    """Where the owner is silent: the watermark stays where it is."""
    if "etcd" in moment.down:
        yield Hold((SCHEDULER, "etcd"), SCHEDULER, own_ts, (ChainStep("etcd", "etcd"),), "etcd is down or paused")
    if moment.owner is None:
        because = "there is no owner that runs"
        yield Hold((SCHEDULER, "no owner"), SCHEDULER, own_ts, (ChainStep("owner", "none"),), because)
    elif moment.stuck is not None:
        said = moment.stuck
        table = said.name.partition("[")[0] if said.kind == TABLE else None
        beneath = [h for h in bounds for s in h.path if s.level == "table" and s.name.endswith(f"({table})")]
        lowest = min(beneath, key=lambda h: h.ts, default=None)
        because = f"the owner cannot count: {said}" + (f" ({lowest.because})" if lowest else "")
        path = (ChainStep("owner", moment.owner.address), *(lowest.path if lowest else ()))
        yield Hold((SCHEDULER, said.words), SCHEDULER, own_ts, path, because, said.since_us)


# Why is resolved_ts or checkpoint_ts not moving: what holds it, since when, and what it would be without it.
#
# A watermark is a minimum: each of its causes bounds it by itself (``hold``). The lowest bound holds it; without
# this cause the next one would, and so on until the watermark would be now's.
#
# References
# ----------
# Design "Analyzing the Architecture Model", sections 3.1, 3.2 and 5.

_FINER = 4
"""Since when something has been silent is looked for so much finer than whether it is."""
_TOLD = 4
"""Holders that the text names."""

HOLDERS = pa.schema(
    [
        ("watermark", pa.string()),  # resolved_ts or checkpoint_ts
        ("at_us", pa.int64()),  # the moment that was asked about
        ("place", pa.int64()),  # 1 holds it now, 2 would without it, ...
        ("kind", pa.string()),  # one of ticdc_lab.simulate.pipeline.why.KINDS
        ("cause", pa.string()),
        ("path", pa.list_(pa.struct([("level", pa.string()), ("name", pa.string()), ("ts", pa.int64())]))),
        ("held_ts", pa.int64()),  # where it holds the watermark
        ("since_us", pa.int64()),  # since when it has been there; null before the first sample
        ("without_ts", pa.int64()),  # what the watermark would be without it; null: now's
        ("n_bounds", pa.int64()),  # in how many places: regions with its locks, tables of the store
        ("because", pa.string()),
    ]
)
"""A row a holder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One cause; see :data:`HOLDERS`."""

    kind: str
    cause: str
    path: tuple[ChainStep, ...]
    held_ts: int
    since_us: int | None
    without_ts: int | None
    n_bounds: int
    because: str


@dataclass(frozen=True, slots=True)
class Why:
    """The answer."""

    watermark: str
    rule: str
    at_us: int
    value_ts: int  # the global watermark
    stands_since_us: int  # since when it has this value, by the samples
    # The first holds it, each further one would without those before it; empty where it is on its way.
    holders: tuple[Holder, ...]
    waiting_rows: int  # rows in sorters and mounters
    of: str = ""  # the changefeed, where there are several
    usual_us: int = CURRENT_US  # what is less behind than this is on its way

    @property
    def table(self) -> pa.Table:
        """:data:`HOLDERS`."""
        rows = [
            {name: getattr(h, name) for name in HOLDERS.names if hasattr(h, name)}
            | {"watermark": self.watermark, "at_us": self.at_us, "place": i, "path": [s._asdict() for s in h.path]}
            for i, h in enumerate(self.holders, 1)
        ]
        return pa.Table.from_pylist(rows, schema=HOLDERS)

    @property
    def text(self) -> str:
        if self.watermark == RESOLVED and self.rule == MQ:
            return "The global resolved_ts is MaxUint64: by the MQ rule nothing waits for it."
        behind_us = self.at_us - us_of(self.value_ts)
        head = f"The global {self.watermark} is {self.value_ts}, {shown(behind_us)} behind"
        if not self.holders and behind_us <= self.usual_us:
            return f"{head}, within the {shown(self.usual_us)} that are usual: nothing holds it."
        if not self.holders:
            return f"{head}, more than the {shown(self.usual_us)} that are usual, and catches up: nothing holds it."
        stood_us = self.at_us - self.stands_since_us
        told = [f"{head}, and has stalled for {shown(stood_us)}." if stood_us else f"{head}."]
        for i, h in enumerate(self.holders[:_TOLD]):
            age = "" if h.since_us is None else f", for {shown(self.at_us - h.since_us)}"
            told.append(f"{'It is held by this' if i == 0 else 'Then by this'}: {h.because}{age} ({_chain(h.path)}).")
            if h.kind != STOPPED:
                told.append(f"Without it: {self._value(h.without_ts)}.")
        if more := self.holders[_TOLD:]:
            told.append(f"After these {len(more)} more: {_counted(more)}.")
        if self.watermark == CHECKPOINT and self.waiting_rows:
            told.append(f"{self.waiting_rows} rows wait in sorters and mounters.")
        return " ".join(told)

    def _value(self, ts: int | None) -> str:
        return "the current one" if ts is None else f"{ts}, {shown(self.at_us - us_of(ts))} behind"


def why(history: Sequence[Moment], *, watermark: str = RESOLVED, rule: str = BASE, current_us: int = CURRENT_US) -> Why:
    """Find what holds a global watermark.

    ``history``: samples of a run by time; the last one is the moment that is asked about. Those before it show since
    when. ``watermark``: of :data:`WATERMARKS`. ``rule``: of :data:`ticdc_lab.simulate.pipeline.settings.RULES`. By the
    MQ rule nothing holds the global resolved_ts. ``current_us``: what is less behind than this is on its way. Raises
    ValueError: there is no sample, or no such watermark.
    """
    if not history or watermark not in WATERMARKS:
        raise ValueError(f"why needs a sample and one of {WATERMARKS}; found {len(history)} samples, {watermark!r}")
    now = history[-1]
    left = [] if watermark == RESOLVED and rule == MQ else holds(now, watermark, rule, current_us)
    holders = []
    while left and (now.is_stopped or us_of(left[0].ts) < now.at_us - current_us):
        first = left[0]
        n_bounds, left = sum(h.key == first.key for h in left), [h for h in left if h.key != first.key]
        behind = left and us_of(left[0].ts) < now.at_us - current_us
        without_ts = left[0].ts if behind else None
        since_us = first.since_us
        if since_us is None:
            since_us = _since(first.key, history, watermark, rule, current_us // _FINER)
        kind, because = _passing(first, since_us, history, current_us)
        because += _rate(first, history)
        holders.append(Holder(kind, first.key[1], first.path, first.ts, since_us, without_ts, n_bounds, because))
    waiting = sum(t.sorting + t.spilled + t.mounting for c in now.captures for t in c.tables)
    value_ts: int = getattr(now, watermark)
    stands_us = _stands(history, watermark)
    return Why(watermark, rule, now.at_us, value_ts, stands_us, tuple(holders), waiting, usual_us=current_us)


def holds(moment: Moment, watermark: str, rule: str = BASE, current_us: int = CURRENT_US) -> list[Hold]:
    """Give every bound of a global watermark at a moment, the lowest first."""
    if moment.is_stopped:
        ts: int = getattr(moment, watermark)
        return [Hold((STOPPED, ""), STOPPED, ts, (ChainStep("changefeed", STOPPED, ts),), "the changefeed is stopped")]
    found = list(of_processors(moment, current_us))
    if watermark == CHECKPOINT and rule == BASE:
        found = [
            h._replace(path=(ChainStep("waits for", "global resolved_ts", moment.resolved_ts), *h.path)) for h in found
        ]
    if watermark == CHECKPOINT:
        found += of_sinks(moment, rule, current_us)
    found += of_ddl(moment)
    found += of_owner(moment, found, watermark, current_us)
    return sorted(found, key=lambda h: (h.ts, h.key, h.path))


def _since(key: tuple[str, str], history: Sequence[Moment], watermark: str, rule: str, current_us: int) -> int | None:
    """The first sample of those without a break in which a cause bounds the watermark; None for the first of all."""
    since_us = history[-1].at_us
    for moment in reversed(history[:-1]):
        if all(h.key != key for h in holds(moment, watermark, rule, current_us)):
            return since_us
        since_us = moment.at_us
    return None


def _passing(hold: Hold, since_us: int | None, history: Sequence[Moment], current_us: int) -> tuple[str, str]:
    """A silence that has just begun is none, unless a node is down: what held the watermark before is over."""
    now = history[-1]
    young = now.at_us < current_us if since_us is None else now.at_us - since_us < current_us
    if hold.kind in (STORE, REPORT) and young and node_of(hold.key[1]) not in now.down:
        return PASSING, f"what held it has ended, and what is newer is on its way ({hold.because})"
    return hold.kind, hold.because


def _rate(hold: Hold, history: Sequence[Moment]) -> str:
    """How fast a sink was in the last second or so."""
    if hold.kind != SINK or len(history) < 2:
        return ""
    now = history[-1]
    earlier = next((m for m in reversed(history[:-1]) if m.at_us <= now.at_us - CURRENT_US), history[0])
    written = [sum(t.written for c in m.captures for t in c.tables if str(t.table) == hold.key[1])
               for m in (earlier, now)]  # fmt: skip
    rate = max(0, written[1] - written[0]) * 1_000_000 // max(1, now.at_us - earlier.at_us)
    return f"; it took {rate} rows/s lately"


def _stands(history: Sequence[Moment], watermark: str) -> int:
    value_ts, since_us = getattr(history[-1], watermark), history[-1].at_us
    for moment in reversed(history):
        if getattr(moment, watermark) != value_ts:
            break
        since_us = moment.at_us
    return since_us


def _counted(holders: Sequence[Holder]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(h.kind for h in holders).items()))


def _chain(path: tuple[ChainStep, ...]) -> str:
    return " <- ".join(["global", *(f"{s.level} {s.name}" for s in path)])
