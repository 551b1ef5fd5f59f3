"""What every worker does: it registers, runs the owners assigned to it, and tells how they stand."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_lab.simulate.ddl_service import infosyncer, keys, owner, records
from ticdc_lab.simulate.ddl_service.connection import asked
from ticdc_lab.simulate.ddl_service.mirror import Mirror
from ticdc_lab.simulate.ddl_service.settings import Duties
from ticdc_lab.simulate.ddl_service.store_messages import CREATE, MOD, Compare, Put
from ticdc_lab.simulate.ddl_service.versions import unsupported
from ticdc_lab.simulate.ddl_service.worker_state import WorkerState, registered
from ticdc_lab.simulate.machine import Changed, Now, Output


def entered(
    state: WorkerState, mirror: Mirror, duties: Duties, address: str, now: Now
) -> tuple[WorkerState, list[Output]]:
    """Register, once no earlier life of this node is registered any more; in its own cluster it shows where it is."""
    if state.node in mirror.under(keys.WORKERS):
        return state, []
    key, lease = keys.WORKERS + state.node, state.service.lease
    own = records.Worker(duties.versions.own, oldest=duties.versions.oldest)
    shown = infosyncer.published(f"{state.node}-{lease:x}", address, duties.versions.own, lease)
    puts = (Put(key, records.written(own), lease), *shown)
    link, outputs = asked(state.service, "register", (Compare(key, CREATE, 0),), puts, now)
    return state._replace(service=link), outputs


def followed(state: WorkerState, mirror: Mirror, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """Start the owners that are assigned to this node, and stop those that are not."""
    registers, assignments = mirror.under(keys.REGISTERS), mirror.under(keys.ASSIGNMENTS)
    if state.followed and state.followed[0] is registers and state.followed[1] is assignments:
        return state, []
    wanted = {
        c: records.cluster(registers[c].value).identity
        for c, entry in assignments.items()
        if entry.value == state.node
        and c in registers
        and not unsupported(records.cluster(registers[c].value).version, duties.versions)
    }
    outputs: list[Output] = []
    owners, lives = state.owners, state.lives
    for cluster in sorted(owners):
        if is_to_stop(owners[cluster], wanted):
            outputs += owner.stopped(owners[cluster], "it is assigned to this node no more")
            owners = owners.delete(cluster)
    for cluster in sorted(wanted.keys() - owners.keys()):
        lives += 1
        fresh = owner.opened(cluster, wanted[cluster], lives)
        fresh, more = owner.acted(fresh, duties, now)
        owners = owners.set(cluster, fresh)
        outputs += [Changed(f"assigned:{cluster}", None, state.node, "the leader assigned it"), *more]
    return state._replace(owners=owners, lives=lives, followed=(registers, assignments)), outputs


def is_to_stop(own: owner.OwnerState, wanted: Mapping[str, str]) -> bool:
    """Whether the owner of a cluster is not, or no more for this store, wanted on this node."""
    return wanted.get(own.cluster) != own.link.store


def published(state: WorkerState, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """Tell the status of each owner under the node's key."""
    own = registered(state)
    if own is None:
        return state, []
    running = tuple((c, o.status) for c, o in sorted(state.owners.items()))
    text = records.written(records.Worker(duties.versions.own, running, duties.versions.oldest))
    if text == own.value:
        return state, []
    key = keys.WORKERS + state.node
    guard = (Compare(key, MOD, own.mod),)
    link, outputs = asked(state.service, "status", guard, (Put(key, text, own.lease),), now)
    return state._replace(service=link), outputs
