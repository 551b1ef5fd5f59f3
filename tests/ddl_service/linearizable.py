"""Whether what clients learned of registrations can have happened in one order (Wing and Gong's search, Porcupine's).

Each call took effect at one moment between its begin and its end, all in one order, and each answer is what the service
as one sequential machine would have given at that moment. A call without a known end took effect some time after
its begin, or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OK, CONFLICT, ABSENT, UNKNOWN = "ok", "conflict", "absent", "unknown"
NEVER = float("inf")


class Call(NamedTuple):
    """What a client asked and was answered.

    Attributes
    ----------
    what
        ``put``, ``delete`` or ``list``.
    name, pds
        The cluster, and the addresses of a ``put``.
    begun_s, ended_s
        When it was asked and answered; never for one without a known end.
    said
        ``ok``, ``conflict``, ``absent``, ``unknown``.
    seen
        What a list showed: (cluster, its addresses).
    """

    what: str
    begun_s: float
    ended_s: float
    said: str
    name: str = ""
    pds: tuple[str, ...] = ()
    seen: frozenset[tuple[str, tuple[str, ...]]] = frozenset()


class State(NamedTuple):
    """Registered clusters as (name, addresses, store), and the store of each address that was ever registered."""

    clusters: frozenset[tuple[str, tuple[str, ...], str]] = frozenset()
    stores: frozenset[tuple[str, str]] = frozenset()


def taken(state: State, call: Call) -> tuple[str, State]:
    """Give what a sequential service shows to a call, and how it is afterwards."""
    own = next((c for c in state.clusters if c[0] == call.name), None)
    if call.what == "delete":
        return (OK, state._replace(clusters=state.clusters - {own})) if own else (ABSENT, state)
    stores = {store for pd, store in state.stores if pd in call.pds} | ({own[2]} if own else set())
    others = state.clusters - {own} if own else state.clusters
    if len(stores) > 1 or any(store in stores or set(pds) & set(call.pds) for _, pds, store in others):
        return CONFLICT, state
    store = next(iter(stores), call.pds[0])
    known = state.stores | {(pd, store) for pd in call.pds}
    return OK, State(others | {(call.name, call.pds, store)}, known)


def is_linearizable(calls: Sequence[Call]) -> bool:
    """Search for an order in which every answer is right."""
    return _has_order(tuple(calls), (1 << len(calls)) - 1, State(), set())


def _has_order(calls: tuple[Call, ...], left: int, state: State, dead: set[tuple[int, State]]) -> bool:
    waiting = [i for i in range(len(calls)) if left >> i & 1]
    if all(calls[i].said == UNKNOWN for i in waiting):
        return True
    if (left, state) in dead:
        return False
    first_end_s = min(calls[i].ended_s for i in waiting)
    for i in waiting:
        if calls[i].begun_s <= first_end_s and any(
            _has_order(calls, left & ~(1 << i), after, dead) for after in _afters(state, calls[i])
        ):
            return True
    dead.add((left, state))
    return False


def _afters(state: State, call: Call) -> list[State]:
    """Give how the service may be after a call, where its answer fits."""
    if call.what == "list":
        return [state] if {(name, pds) for name, pds, _ in state.clusters} == call.seen else []
    said, after = taken(state, call)
    return [after] if call.said in (said, UNKNOWN) else []


def once(acknowledged: Sequence[str], written: Sequence[str]) -> list[str]:
    """Show which requests have become no job although they were acknowledged, or more than one.

    Parameters
    ----------
    acknowledged
        Requests whose sender got the number of a job.
    written
        The request of each job that was ever in the store.
    """
    lost = [f"{r} was acknowledged, and is no job" for r in acknowledged if r not in written]
    return lost + [f"{r} became {written.count(r)} jobs" for r in sorted(set(written)) if written.count(r) > 1]
