"""What bounds the global watermarks beyond the pullers: sinks, DDL, the owner, and what has not been told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ticdc_lab.simulate.pipeline.hold import (
    CAPTURE,
    CHECKPOINT,
    DDL,
    MOUNTER,
    REPORT,
    SCHEDULER,
    SINK,
    Hold,
    Step,
    is_unexplained,
)
from ticdc_lab.simulate.pipeline.holds_resolved import counted, lowest_ts, of_lost
from ticdc_lab.simulate.pipeline.moment import Moment
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, TableFacts
from ticdc_lab.simulate.pipeline.settings import BASE
from ticdc_lab.simulate.scheduler.clock import ts_of, us_of
from ticdc_lab.simulate.scheduler.executor import WRITING


def of_sinks(moment: Moment, rule: str, current_us: int) -> Iterator[Hold]:
    """Give the bounds of checkpoint_ts in the sinks of every capture that runs."""
    for capture in moment.captures:
        tables = counted(moment, capture)
        processor = Step("processor", capture.address, lowest_ts(moment, tables, CHECKPOINT))
        for table in tables:
            if table.state in WRITING:
                yield from _of_sink(capture, table, (processor,), rule, current_us, moment.at_us)
        if rule == BASE and is_unexplained(capture.limit_ts, [moment.resolved_ts], current_us):
            because = f"{capture.address} has not heard of the global resolved_ts {moment.resolved_ts}"
            yield Hold(("limit", capture.address), REPORT, capture.limit_ts, (processor,), because)


def _of_sink(
    capture: CaptureFacts, table: TableFacts, path: tuple[Step, ...], rule: str, current_us: int, at_us: int
) -> Iterator[Hold]:
    path = (*path, Step("table", f"{table.name} ({table.table})", table.checkpoint_ts))
    key, oldest_ts = (SINK, str(table.table)), table.oldest_under_way_ts
    waiting = f"{table.under_way} rows are under way and {table.mounting} wait for it"
    if oldest_ts is not None:
        because = f"the sink of {table.name} has not acknowledged a row of {oldest_ts}: {waiting}"
        own = (*path, Step("sink", "oldest unacknowledged row", oldest_ts))
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
        yield Hold((DDL, str(ts)), DDL, ts, (Step("ddl", query, ts),), because)


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
        path = (Step("processor", one.capture, told_ts),)
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
        because = "the processors are further, and etcd has not been told"
        yield Hold(("told", "etcd"), REPORT, own_ts, (Step("owner", moment.owner.address if moment.owner else ""),),
                   because)  # fmt: skip


def _scheduler(moment: Moment, bounds: list[Hold], own_ts: int) -> Iterator[Hold]:
    """Where the owner cannot say anything: the watermark stays where it is."""
    if "etcd" in moment.down:
        yield Hold((SCHEDULER, "etcd"), SCHEDULER, own_ts, (Step("etcd", "etcd"),), "etcd is down or paused")
    if moment.owner is None:
        because = "there is no owner that runs"
        yield Hold((SCHEDULER, "no owner"), SCHEDULER, own_ts, (Step("owner", "none"),), because)
    elif moment.stuck is not None:
        said, since_us = moment.stuck
        words = f" {said} ".replace(",", " ")
        beneath = [h for h in bounds for s in h.path if s.level == "table" and f" {_id(s.name)} " in words]
        lowest = min(beneath, key=lambda h: h.ts, default=None)
        because = f"the owner cannot count: {said}" + (f" ({lowest.because})" if lowest else "")
        path = (Step("owner", moment.owner.address), *(lowest.path if lowest else ()))
        yield Hold((SCHEDULER, said), SCHEDULER, own_ts, path, because, since_us)


def _id(name: str) -> str:
    """The id in ``shop.orders (104)``."""
    return name[name.rfind("(") + 1 : -1]
