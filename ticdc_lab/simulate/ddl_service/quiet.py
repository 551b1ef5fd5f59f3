"""What must be so once nothing has gone wrong for a while: every cluster owned, balanced, no job left."""

from __future__ import annotations

from collections import Counter

from ticdc_lab.simulate.ddl_service import keys, records
from ticdc_lab.simulate.ddl_service.checks import BALANCED, ENDS_WELL, OWNED, SERVED, Found
from ticdc_lab.simulate.ddl_service.server_state import ServerState
from ticdc_lab.simulate.ddl_service.worker_state import WorkerState
from ticdc_lab.simulate.ddl_service.world import PD, Settings, store_of
from ticdc_lab.simulate.kernel import Kernel


def unsettled(kernel: Kernel, settings: Settings) -> Found:
    """Give what is not as it should be, at the end of a run whose faults are long over."""
    states = {a: s for a, s in kernel.states.items() if a not in kernel.down and a not in kernel.paused}
    workers = {a: s for a, s in sorted(states.items()) if isinstance(s, WorkerState)}
    service = kernel.states[PD]
    registered = sorted(k.removeprefix(keys.REGISTERS) for k in service.keys if k.startswith(keys.REGISTERS))
    assigned = Counter(e.value for k, e in sorted(service.keys.items()) if k.startswith(keys.ASSIGNMENTS))
    counts = [assigned[s.node] for s in workers.values()]
    if workers and max(counts) - min(counts) > 1:
        return BALANCED, f"workers have {counts} clusters"
    for cluster in registered:
        entry = service.keys.get(keys.ASSIGNMENTS + cluster)
        owners = [s.node for s in workers.values() if _owns(s, cluster)]
        if any(_has_ddl(s, cluster) for s in states.values()):
            continue  # a tidb-server campaigned first: the worker that is assigned to it stays CAMPAIGNING
        if workers and (entry is None or owners != [entry.value]):
            return OWNED, f"{cluster} is assigned to {entry.value if entry else 'nobody'} and owned by {owners}"
        left = sorted(k for k in kernel.states[store_of(cluster)].keys if k.startswith(keys.JOBS))
        if workers and left:
            record = records.job(kernel.states[store_of(cluster)].keys[left[0]].value)
            return ENDS_WELL, f"{cluster} still has {len(left)} jobs, the first {record}"
    idle = [a for a, s in sorted(states.items()) if isinstance(s, ServerState) and s.serves is None]
    return (SERVED, f"{idle[0]} serves nobody") if idle else None


def _owns(state: WorkerState, cluster: str) -> bool:
    return cluster in state.owners and state.owners[cluster].status == records.IS_OWNER


def _has_ddl(state: object, cluster: str) -> bool:
    own = state.ddl if isinstance(state, ServerState) else None
    return own is not None and own.cluster == cluster and own.status == records.IS_OWNER
