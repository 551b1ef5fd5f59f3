"""What every worker does: it registers, runs the owners assigned to it, tells how they stand, and takes wishes."""

from __future__ import annotations

from ticdc_lab.simulate.ddl_service import keys, owner, records
from ticdc_lab.simulate.ddl_service.connection import asked
from ticdc_lab.simulate.ddl_service.mirror import Mirror
from ticdc_lab.simulate.ddl_service.settings import Duties
from ticdc_lab.simulate.ddl_service.store_messages import CREATE, MOD, Compare, Delete, Op, Put
from ticdc_lab.simulate.ddl_service.versions import unsupported
from ticdc_lab.simulate.ddl_service.worker_state import Register, Unregister, WorkerState, registered
from ticdc_lab.simulate.machine import Changed, Ignored, Now, Output


def entered(state: WorkerState, mirror: Mirror, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """Register, once no earlier life of this node is registered any more."""
    if state.node in mirror.under(keys.WORKERS):
        return state, []
    key = keys.WORKERS + state.node
    put = Put(key, records.written(records.Worker(duties.versions.own)), state.service.lease)
    link, outputs = asked(state.service, "register", (Compare(key, CREATE, 0),), (put,), now)
    return state._replace(service=link), outputs


def followed(state: WorkerState, mirror: Mirror, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """Start the owners that are assigned to this node, and stop those that are not."""
    registers, assignments = mirror.under(keys.REGISTERS), mirror.under(keys.ASSIGNMENTS)
    if state.followed and state.followed[0] is registers and state.followed[1] is assignments:
        return state, []
    wanted = {
        c: records.cluster(registers[c].value).store_addr
        for c, entry in assignments.items()
        if entry.value == state.node and c in registers
    }
    outputs: list[Output] = []
    owners, lives = state.owners, state.lives
    for cluster in sorted(owners):
        if wanted.get(cluster) != owners[cluster].link.store and "ignores removals" not in duties.bugs:
            outputs += owner.stopped(owners[cluster], "it is assigned to this node no more")
            owners = owners.delete(cluster)
    for cluster in sorted(wanted.keys() - owners.keys()):
        lives += 1
        fresh, more = owner.acted(owner.opened(cluster, wanted[cluster], lives), duties, now)
        owners = owners.set(cluster, fresh)
        outputs += [Changed(f"assigned:{cluster}", None, state.node, "the leader assigned it"), *more]
    return state._replace(owners=owners, lives=lives, followed=(registers, assignments)), outputs


def published(state: WorkerState, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """Tell the status of each owner under the node's key."""
    own = registered(state)
    if own is None:
        return state, []
    running = tuple((c, o.status) for c, o in sorted(state.owners.items()))
    text = records.written(records.Worker(duties.versions.own, running))
    if text == own.value:
        return state, []
    key = keys.WORKERS + state.node
    guard = (Compare(key, MOD, own.mod),)
    link, outputs = asked(state.service, "status", guard, (Put(key, text, own.lease),), now)
    return state._replace(service=link), outputs


def asked_for(
    state: WorkerState, command: Register | Unregister, duties: Duties, now: Now
) -> tuple[WorkerState, list[Output]]:
    """Write what a user asks for; without a session the user is told to ask another worker."""
    if not state.service.is_ready:
        return state, [Ignored(command, f"{state.node} has no session with the service")]
    if isinstance(command, Register):
        error = unsupported(command.version, duties.versions)
        if error and "takes any version" not in duties.bugs:
            return state, [Ignored(command, error)]
        value = records.written(records.Cluster(command.store_addr, command.version))
        ops: tuple[Op, ...] = (Put(keys.REGISTERS + command.cluster, value),)
    else:
        ops = (Delete(keys.REGISTERS + command.cluster),)
    link, outputs = asked(state.service, f"{type(command).__name__} {' '.join(command)}", (), ops, now)
    return state._replace(service=link), outputs
