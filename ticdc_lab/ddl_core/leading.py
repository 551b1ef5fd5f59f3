"""The leader: it sees that every cluster has a worker, and that no worker has two more than another.

Which worker owns the DDL of which cluster is balanced, and takes as few moves as that can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.connection import Mirror, Part, asked, winner
from ticdc_lab.ddl_core.settings import MOST_OPS, Versions, serving, unsupported
from ticdc_lab.ddl_core.store import CREATE, Compare, Delete, Op, Put
from ticdc_lab.ddl_core.worker_state import WorkerState
from ticdc_lab.machines.machine import Changed, Decided, Now, Output


class AssignmentPlan(NamedTuple):
    """What a leader writes."""

    changes: dict[str, str | None]  # the worker of each cluster whose assignment changes; None where it is deleted
    moves: int  # how many clusters leave a worker that lives and go to another
    because: str  # in a sentence
    rejected: tuple[tuple[str, str], ...] = ()  # (worker, why it neither gives nor takes)


NOBODY: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def assign(
    clusters: Iterable[str],
    workers: Iterable[str],
    current: Mapping[str, str],
    refused: Mapping[str, Mapping[str, str]] = NOBODY,
) -> AssignmentPlan:
    """List what has to change for every cluster to have a worker and no two workers to differ by more than one.

    ``clusters``: registered ones. ``workers``: live ones. ``current``: assignments as they are, also of what is
    registered or lives no more. ``refused``: of each cluster that not every worker can serve, which cannot, and why.
    Returns: with the fewest moves there can be: those with the most clusters may keep the one more, so every worker
    gives only what is above its share; what has no worker fills the shares first. Names decide between equals. Where
    some cannot serve some clusters, each goes only where it is served, and moves from one to another as long as that
    makes their numbers more even.

    Examples
    --------
    >>> plan = assign(["a", "b", "c"], ["worker-1", "worker-2"], {"a": "worker-1", "b": "worker-1", "c": "worker-1"})
    >>> plan.changes, plan.moves
    ({'c': 'worker-2'}, 1)
    >>> plan.because
    '3 clusters on 2 workers: 0 had none, 1 move'
    """
    registered, alive = set(clusters), sorted(workers)
    held: dict[str, list[str]] = {w: [] for w in alive}
    homeless = registered - current.keys()
    changes: dict[str, str | None] = {}
    for name, place in current.items():
        if name not in registered:
            changes[name] = None
        elif place in held:
            held[place].append(name)
        else:
            homeless.add(name)
    if refused and alive:
        return _restricted(registered, alive, current, refused)
    if not alive:
        return AssignmentPlan(changes | dict.fromkeys(homeless & current.keys()), 0, "no worker lives")
    shares = _shares({w: len(own) for w, own in held.items()}, len(registered))
    given = [name for w in alive for name in sorted(held[w])[shares[w] :]]
    waiting = iter([*sorted(homeless), *given])
    for w in alive:
        for _ in range(shares[w] - len(held[w])):
            changes[next(waiting)] = w
    kept = tuple((w, f"has {len(held[w])} clusters, its share") for w in alive if len(held[w]) == shares[w])
    because = f"{len(registered)} clusters on {len(alive)} workers: {len(homeless)} had none, {len(given)} move"
    return AssignmentPlan(changes, len(given), because, kept)


def _restricted(
    registered: set[str], alive: list[str], current: Mapping[str, str], refused: Mapping[str, Mapping[str, str]]
) -> AssignmentPlan:
    """Assign where not every worker can serve every cluster: those with the least choice first."""
    able = {c: [w for w in alive if w not in refused.get(c, ())] for c in registered}
    after = {c: w for c, w in current.items() if w in able.get(c, ())}
    counts = Counter(after.values())
    for name in sorted(registered - after.keys(), key=lambda c: (len(able[c]), c)):
        if able[name]:
            after[name] = min(able[name], key=lambda w: (counts[w], w))
            counts[after[name]] += 1
    while step := _evener(after, able, counts):
        name, place = step
        counts[after[name]] -= 1
        counts[place] += 1
        after[name] = place
    changes = {c: after.get(c) for c in registered | current.keys() if current.get(c) != after.get(c)}
    moves = sum(c in current and current[c] in alive and w is not None for c, w in changes.items())
    left = sorted(registered - after.keys())
    why = tuple((f"{c} on {w}", because) for c in sorted(refused) for w, because in sorted(refused[c].items()))
    because = f"{len(registered)} clusters on {len(alive)} workers; not every worker serves every cluster: {moves} move"
    return AssignmentPlan(changes, moves, because + (f"; no worker can serve {', '.join(left)}" if left else ""), why)


def _evener(
    after: Mapping[str, str], able: Mapping[str, list[str]], counts: Mapping[str, int]
) -> tuple[str, str] | None:
    """Give a cluster and a worker that has two fewer than the one it is on."""
    for name in sorted(after):
        place = min(able[name], key=lambda w: (counts[w], w))
        if counts[after[name]] - counts[place] > 1:
            return name, place
    return None


def _shares(counts: Mapping[str, int], n: int) -> dict[str, int]:
    """Give how many clusters each worker is to have."""
    each, more = divmod(n, len(counts))
    fullest = sorted(counts, key=lambda w: (-counts[w], w))
    return {w: each + (i < more) for i, w in enumerate(fullest)}


def led(state: WorkerState, mirror: Mirror, now: Now) -> tuple[WorkerState, list[Output]]:
    """Campaign; as leader see that every cluster has a worker."""
    campaigns, lease = mirror.under(keys.LEADER), state.service.lease
    key = keys.campaign(keys.LEADER, lease)
    if f"{lease:x}" not in campaigns:
        put = Put(key, state.node, lease)
        link, outputs = asked(state.service, "campaign", (Compare(key, CREATE, 0),), (put,), now)
        return state._replace(service=link), outputs
    won = winner(campaigns)
    leads = won[1].create if won and won[0] == f"{lease:x}" else 0
    outputs = []
    if leads != state.leads:
        because = "its campaign is the oldest" if leads else "its campaign is gone"
        outputs = [Changed("leader", state.leads or None, leads or None, because)]
        state = state._replace(leads=leads, planned=())
    if not leads:
        return state, outputs
    state, more = _assigned(state, mirror, now)
    return state, [*outputs, *more]


def _assigned(state: WorkerState, mirror: Mirror, now: Now) -> tuple[WorkerState, list[Output]]:
    parts = (mirror.under(keys.REGISTERS), mirror.under(keys.ASSIGNMENTS), serving(mirror.under(keys.WORKERS)))
    seen = state.planned
    if seen and seen[0] is parts[0] and seen[1] is parts[1] and seen[2] == parts[2]:
        return state, []
    if "assign" in state.service.pending:
        return state, []
    ops, outputs = planned(*parts)
    if not ops:
        return state._replace(planned=parts), outputs
    guard = Compare(keys.campaign(keys.LEADER, state.service.lease), CREATE, state.leads)
    link, more = asked(state.service, "assign", (guard,), ops, now)
    return state._replace(service=link), [*outputs, *more]


def refused(registers: Part, workers: Mapping[str, Versions]) -> dict[str, dict[str, str]]:
    """Give, for each cluster that not every worker can serve, which cannot, and why."""
    wanted = {cluster: records.cluster(entry.value).version for cluster, entry in registers.items()}
    able = set(workers.values())
    whys = {(v, own): why for v in set(wanted.values()) for own in able if (why := unsupported(v, own))}
    if not whys:
        return {}
    found = {c: {w: whys[v, own] for w, own in sorted(workers.items()) if (v, own) in whys} for c, v in wanted.items()}
    return {c: own for c, own in found.items() if own}


def planned(registers: Part, assignments: Part, workers: Mapping[str, Versions]) -> tuple[tuple[Op, ...], list[Output]]:
    """Give what to write next, and the decision behind it; nothing where all is as it should be.

    A plan of more than :data:`ticdc_lab.ddl_core.settings.MOST_OPS` changes is written in parts: what is
    left is planned again from what then holds, and comes to the same end.
    """
    current = {cluster: entry.value for cluster, entry in assignments.items()}
    plan: AssignmentPlan = assign(registers, workers, current, refused(registers, workers))
    first = sorted(plan.changes.items())[:MOST_OPS]
    ops = tuple(Delete(keys.ASSIGNMENTS + c) if w is None else Put(keys.ASSIGNMENTS + c, w) for c, w in first)
    if not ops:
        return (), []
    chosen = ", ".join(f"{c} -> {w}" for c, w in first[:10]) + (", ..." if len(plan.changes) > 10 else "")
    return ops, [Decided("assignment", chosen, plan.because, plan.rejected)]
