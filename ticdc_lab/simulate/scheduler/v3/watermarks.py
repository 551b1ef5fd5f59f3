"""How far the whole changefeed is: the lowest of all wanted spans, and which of them it is."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3.plan import Plan, unscheduled
from ticdc_lab.simulate.scheduler.v3.replications import Replications


class Progress(NamedTuple):
    """The global watermarks, TSO integers; all None where the checkpoint cannot proceed.

    ``last_synced_ts`` is the highest, the others are the lowest of all spans. ``because`` names the span that holds the
    checkpoint. TiCDC's redo log, which would hold them as well, is not modelled.
    """

    checkpoint_ts: int | None
    resolved_ts: int | None
    last_synced_ts: int | None
    puller_resolved_ts: int | None
    because: str


class _Mark(NamedTuple):
    checkpoint_ts: int
    resolved_ts: int
    last_synced_ts: int
    puller_resolved_ts: int
    rank: tuple[int, str]
    who: str


def advance(
    replications: Replications,
    plan: Plan,
    *,
    barrier_ts: int | None = None,
    floor_ts: int = 0,
) -> Progress:
    """Find how far all wanted spans are.

    Parameters
    ----------
    replications, plan
        What there is and what is wanted; a wanted span without a record holds everything.
    barrier_ts
        No watermark passes it. Without any wanted span it is the watermark, or ``floor_ts`` where it is None.
    floor_ts
        A checkpoint that is known to be safe, as the persisted one is: spans that share their primary's watermark are
        not below it.
    """
    missing = next(unscheduled(plan, replications.sets), None)
    if missing is not None:
        because = f"table {missing} is not scheduled to any capture yet"
        return Progress(None, None, None, None, because)
    if not plan.spans:
        at = floor_ts if barrier_ts is None else barrier_ts
        return Progress(at, at, 0, at, "no table is wanted")
    marks = _exact_marks(replications, plan) + _steady_marks(replications, floor_ts)
    slowest = min(marks, key=lambda m: (m.checkpoint_ts, m.resolved_ts, m.rank))
    checkpoint, resolved = slowest.checkpoint_ts, min(m.resolved_ts for m in marks)
    because = f"{slowest.who} is the slowest"
    if barrier_ts is not None:
        because = f"a barrier stands at {barrier_ts}" if checkpoint > barrier_ts else because
        checkpoint, resolved = min(checkpoint, barrier_ts), min(resolved, barrier_ts)
    return Progress(
        checkpoint,
        resolved,
        max(m.last_synced_ts for m in marks),
        min(m.puller_resolved_ts for m in marks),
        because,
    )


def _exact_marks(replications: Replications, plan: Plan) -> list[_Mark]:
    marks = []
    for span in replications.exact:
        if span not in plan.spans:
            continue
        found = replications.sets[span]
        where = f"{found.state} on {found.primary}" if found.primary else found.state
        marks.append(_Mark(*found.checkpoint, found.puller_resolved_ts, order(span), f"table {span} ({where})"))
    return marks


def _steady_marks(replications: Replications, floor_ts: int) -> list[_Mark]:
    marks = []
    for address in sorted(replications.steady):
        held = replications.primaries.get(address)
        if held is None or len(held) <= _exact_primaries(replications, address):
            continue
        status = replications.steady[address]
        checkpoint, resolved, synced = status.checkpoint
        puller = status.puller_resolved_ts or resolved
        who = f"{address}, with all its undisturbed tables,"
        marks.append(_Mark(max(checkpoint, floor_ts), max(resolved, floor_ts), synced, puller, (0, address), who))
    return marks


def _exact_primaries(replications: Replications, address: str) -> int:
    watched: list[Key] = list(replications.watched.get(address, ()))
    return sum(1 for span in watched if span in replications.primaries[address])
