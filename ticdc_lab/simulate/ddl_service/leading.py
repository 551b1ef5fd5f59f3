"""The leader: it sees that every cluster has a worker, and that no worker has two more than another."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_lab.simulate.ddl_service import keys, records
from ticdc_lab.simulate.ddl_service.assignment import Plan, assign
from ticdc_lab.simulate.ddl_service.connection import asked
from ticdc_lab.simulate.ddl_service.mirror import Mirror, Part, winner
from ticdc_lab.simulate.ddl_service.settings import MOST_OPS
from ticdc_lab.simulate.ddl_service.store_messages import CREATE, Compare, Delete, Op, Put
from ticdc_lab.simulate.ddl_service.versions import Versions, serving, unsupported
from ticdc_lab.simulate.ddl_service.worker_state import WorkerState
from ticdc_lab.simulate.machine import Changed, Decided, Now, Output


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
    parts = (
        mirror.under(keys.REGISTERS),
        mirror.under(keys.ASSIGNMENTS),
        serving(mirror.under(keys.WORKERS)),
    )
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

    A plan of more than :data:`ticdc_lab.simulate.ddl_service.settings.MOST_OPS` changes is written in parts: what is
    left is planned again from what then holds, and comes to the same end.
    """
    current = {cluster: entry.value for cluster, entry in assignments.items()}
    plan: Plan = assign(registers, workers, current, refused(registers, workers))
    first = sorted(plan.changes.items())[:MOST_OPS]
    ops = tuple(Delete(keys.ASSIGNMENTS + c) if w is None else Put(keys.ASSIGNMENTS + c, w) for c, w in first)
    if not ops:
        return (), []
    chosen = ", ".join(f"{c} -> {w}" for c, w in first[:10]) + (", ..." if len(plan.changes) > 10 else "")
    return ops, [Decided("assignment", chosen, plan.because, plan.rejected)]
