"""A worker of the service: it runs the DDL owners that are assigned to it, and leads the service while it is elected.

Its mirror of the service's store defines its work; it changes each thing that differs from what should be,
at each event and at each tick. The same machine runs in the kernel and in the service that really runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticdc_lab.ddl_core import infosyncer, keys, leading, owner, records, registering
from ticdc_lab.ddl_core.connection import Connection, Mirror, answered, asked, is_over, kept, left, renewed
from ticdc_lab.ddl_core.records import IS_OWNER
from ticdc_lab.ddl_core.server_state import SetInstance
from ticdc_lab.ddl_core.settings import DUTIES, Duties, unsupported
from ticdc_lab.ddl_core.store import CREATE, MOD, Compare, Done, Found, Put
from ticdc_lab.ddl_core.worker_state import PREFIXES, SERVICE, Leave, Resign, WorkerState, registered
from ticdc_lab.machines.machine import (
    Address,
    Asked,
    Changed,
    Event,
    Exit,
    Fired,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Wake,
    one_by_one,
)


def entered(
    state: WorkerState, mirror: Mirror, duties: Duties, address: str, now: Now
) -> tuple[WorkerState, list[Output]]:
    """Register, once no earlier life of this node is registered any more; in its own cluster it shows where it is."""
    if state.node in mirror.under(keys.WORKERS):
        return state, []
    key, lease = keys.WORKERS + state.node, state.service.lease
    own = records.WorkerRecord(duties.versions.own, oldest=duties.versions.oldest)
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
        fresh, more = owner.acted(fresh, duties, now, state.instance)
        owners = owners.set(cluster, fresh)
        outputs += [Changed(f"assigned:{cluster}", None, state.node, "the leader assigned it"), *more]
    return state._replace(owners=owners, lives=lives, followed=(registers, assignments)), outputs


def is_to_stop(own: owner.OwnerState, wanted: Mapping[str, str]) -> bool:
    """Whether the owner of a cluster is not, or no more for this store, wanted on this node."""
    return wanted.get(own.cluster) != own.link.store


def published(state: WorkerState, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """Publish the status of each owner under the node's key."""
    own = registered(state)
    if own is None:
        return state, []
    running = tuple((c, o.status) for c, o in sorted(state.owners.items()))
    text = records.written(records.WorkerRecord(duties.versions.own, running, duties.versions.oldest))
    if text == own.value:
        return state, []
    key = keys.WORKERS + state.node
    guard = (Compare(key, MOD, own.mod),)
    link, outputs = asked(state.service, "status", guard, (Put(key, text, own.lease),), now)
    return state._replace(service=link), outputs


GONE = "the session with the service may be gone"


@dataclass(frozen=True, slots=True)
class Worker:
    """The machine of a worker."""

    node: str  # its id
    store: Address = keys.PD  # where the service's metadata is
    duties: Duties = DUTIES  # how it works
    address: str = ""  # where it is reached, as the service's own cluster sees it; its id where that contains it

    def start(self, address: Address, now: Now) -> tuple[WorkerState, list[Output]]:
        state = WorkerState(self.node, Connection(self.store, SERVICE, 1, PREFIXES))
        state, outputs = self._acted(state, now)
        wakes = [Wake(self.duties.tick_us, "tick"), Wake(self.duties.topology_us, "topology")]
        return state, [*wakes, *outputs]

    def step(self, state: WorkerState, event: Event, now: Now) -> tuple[WorkerState, list[Output]]:
        if is_over(state.service, now):
            state, outputs = self.ended(state, GONE)
            state, more = self.step(state, event, now)
            return state, [*outputs, *more]
        if isinstance(event, Received):
            return self._received(state, event, now)
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Fired) and isinstance(event.name, tuple):
            return self._of_owner(state, str(event.name[1]), now)
        if isinstance(event, Asked):
            return self._asked(state, event.command, now)
        if isinstance(event, Fired) and event.name == "topology":
            soon: list[Output] = [Wake(self.duties.topology_us, "topology")]
            if registered(state) is None:
                return state, soon
            link, outputs = infosyncer.kept_alive(state.service, self.address or self.node, now)
            return state._replace(service=link), [*soon, *outputs]
        state, outputs = self._acted(state, now)
        for cluster in sorted(state.owners):
            state, more = self._of_owner(state, cluster, now)
            outputs += more
        state, more = registering.again(state, self.duties, now)
        again = [Wake(self.duties.tick_us, "tick")] if isinstance(event, Fired) and event.name == "tick" else []
        return state, [*again, *outputs, *more]

    def ended(self, state: WorkerState, because: str) -> tuple[WorkerState, list[Output]]:
        """Stop every owner, and give the session back; what is left is a fresh worker."""
        outputs: list[Output] = [o for _, own in sorted(state.owners.items()) for o in owner.stopped(own, because)]
        if state.leads:
            outputs.append(Changed("leader", state.leads, None, because))
        outputs += [*registering.given_up(state, because), *left(state.service)]
        return WorkerState(state.node, renewed(state.service), lives=state.lives, instance=state.instance), outputs

    def _asked(self, state: WorkerState, command: Any, now: Now) -> tuple[WorkerState, list[Output]]:
        if isinstance(command, Leave):
            because = "it leaves the service"
            state, outputs = self.ended(state, because)
            return state, [*outputs, Exit(command.back_us, because)]
        if isinstance(command, SetInstance):
            return state._replace(instance=state.instance.set(command.name, command.value)), []
        if not isinstance(command, Resign):
            return registering.wished(state, command, now)
        own = state.owners.get(command.cluster)
        if own is None or own.status != IS_OWNER:
            return state, [Ignored(command, f"{state.node} does not own the DDL of {command.cluster}")]
        after, outputs = owner.resigned(own)
        state = state._replace(owners=state.owners.set(command.cluster, after))
        state, more = self._of_owner(state, command.cluster, now)
        return state, [*outputs, *more]

    def _received(self, state: WorkerState, event: Received, now: Now) -> tuple[WorkerState, list[Output]]:
        message: Any = event.message
        name = message.tag[0]
        if name == SERVICE:
            link = answered(state.service, message, self.duties.terms)
            if link is None:
                return state, [Ignored(message, "it answers an earlier session")]
            state = state._replace(service=link)
            if is_over(link, now):
                state, outputs = self.ended(state, GONE)
                state, more = self._acted(state, now)
                return state, [*outputs, *more]
            outputs = []
            if isinstance(message, (Done, Found)):
                state, outputs = registering.went_on(state, message, self.duties, now)
            state, more = self._acted(state, now)
            return state, [*outputs, *more]
        own = state.owners.get(name)
        link = answered(own.link, message, self.duties.terms) if own else None
        if own is None or link is None:
            return state, [Ignored(message, f"{state.node} has no such session with {name} any more")]
        own = own._replace(link=link)
        if isinstance(message, Done):
            own = owner.settled(own, message)
        return self._of_owner(state._replace(owners=state.owners.set(name, own)), name, now)

    def _of_owner(self, state: WorkerState, cluster: str, now: Now) -> tuple[WorkerState, list[Output]]:
        own = state.owners.get(cluster)
        if own is None:
            return state, []
        after, outputs = owner.acted(own, self.duties, now, state.instance)
        state = state._replace(owners=state.owners.set(cluster, after))
        if after.status != own.status:
            state, more = published(state, self.duties, now)
            outputs = [*outputs, *more]
        return state, outputs

    def _acted(self, state: WorkerState, now: Now) -> tuple[WorkerState, list[Output]]:
        """Do what the service's store requires."""
        link, outputs = kept(state.service, self.duties.terms, now)
        state = state._replace(service=link)
        mirror = link.mirror
        if mirror is None or not link.lease:
            return state, outputs
        if registered(state) is None:
            state, more = entered(state, mirror, self.duties, self.address or self.node, now)
            return state, [*outputs, *more]
        state, more = followed(state, mirror, self.duties, now)
        outputs += more
        state, more = leading.led(state, mirror, now)
        outputs += more
        state, more = published(state, self.duties, now)
        return state, [*outputs, *more]
