"""What is put in the place of a rule, for a while: the service itself knows no bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from immutables import Map
from planting import Bugs, Patch, planted_in

from ticdc_lab.ddl_core import jobs, keys, leading, owner, registering, server, sysvars, worker
from ticdc_lab.ddl_core.leading import AssignmentPlan
from ticdc_lab.ddl_core.owner import OwnerState
from ticdc_lab.ddl_core.server_state import Schema
from ticdc_lab.ddl_core.store import Put, Txn
from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Output, Send, Wake


def _never(*_: Any) -> bool:
    return False


def _with_seen(put: Callable[[OwnerState], Put]) -> Callable[[], list[Patch]]:
    """Let an owner publish one thing more with its schema version."""

    def patches() -> list[Patch]:
        sound = owner._ask

        def ask(o: OwnerState, what: str, compares: Any, ops: Any, now: Any) -> Any:
            return sound(o, what, compares, (*ops, put(o)) if what == "load" else ops, now)

        return [(owner, "_ask", ask)]

    return patches


def _tells_gc_nothing() -> list[Patch]:
    def held(o: OwnerState, mirror: Any, now: Any) -> Any:
        return o._replace(holds_ts=ts_of(now.at_us)), []

    return [(owner, "_held", held)]


def _waits_for_nobody() -> list[Patch]:
    sound = owner._facts
    return [(owner, "_facts", lambda *given: sound(*given)._replace(versions=()))]


def _never_reloads() -> list[Patch]:
    def variables(o: OwnerState, mirror: Any) -> Map[str, str]:
        won = mirror.under(keys.OWNER)[f"{o.link.lease:x}"].create
        return Map({name: e.value for name, e in mirror.under(keys.SYSVARS).items() if e.mod < won})

    return [(owner, "variables", variables)]


def _shares_variables() -> list[Patch]:
    """What Go programs keep in static fields is one for all owners of a process: what the last has loaded."""
    sound, statics = worker.Worker._of_owner, dict[str, str]()

    def of_owner(self: Any, state: Any, cluster: str, now: Any) -> Any:
        for _, own in sorted(state.owners.items()):
            if own.link.mirror is not None:
                statics.update(owner.values(own.link.mirror.under(keys.SYSVARS)))
        return sound(self, state, cluster, now)

    return [(worker.Worker, "_of_owner", of_owner), (owner, "variables", lambda o, mirror: Map(statics))]


def _shares_sessions() -> list[Patch]:
    """One session for the owners of a process: it begins with what the first cluster has set."""
    sound, first = sysvars.inherited, list[Map[str, str]]()

    def inherited(cluster: Map[str, str]) -> Map[str, str]:
        first.append(sound(cluster))
        return first[0]

    return [(sysvars, "inherited", inherited)]


def _shares_the_infosyncer() -> list[Patch]:
    """The one infosyncer of a process, the one of its first owner, writes what is for GC of every cluster."""
    sound = worker.Worker._of_owner

    def misdirected(first: Any, output: Output) -> Output:
        if not isinstance(output, Send) or not isinstance(output.message, Txn) or output.to == first.store:
            return output
        put = output.message.ops[0]
        if not isinstance(put, Put) or not put.key.startswith(keys.MIN_START_TS):
            return output
        return Send(first.store, Txn(output.message.tag, (), (put._replace(lease=first.lease),)))

    def of_owner(self: Any, state: Any, cluster: str, now: Any) -> Any:
        after, outputs = sound(self, state, cluster, now)
        first = after.owners[min(after.owners)].link if after.owners else None
        return after, [misdirected(first, o) for o in outputs] if first else outputs

    return [(worker.Worker, "_of_owner", of_owner)]


def _keeps_the_lost() -> list[Patch]:
    sound = leading.assign

    def assign(clusters: Any, workers: Any, current: Any, refused: Any) -> AssignmentPlan:
        return sound(clusters, set(workers) | set(current.values()), current, refused)

    return [(leading, "assign", assign)]


def _never_rebalances() -> list[Patch]:
    sound = leading.assign

    def assign(clusters: Any, workers: Any, current: Any, refused: Any) -> AssignmentPlan:
        plan = sound(clusters, workers, current, refused)
        return plan._replace(changes={c: w for c, w in plan.changes.items() if current.get(c) not in workers})

    return [(leading, "assign", assign)]


def _publishes_first() -> list[Patch]:
    sound = server.Server._tells

    def tells(self: Any, state: Any, now: Any) -> Any:
        newest = int(state.link.mirror.value(keys.GLOBAL_VERSION) or "0")
        after, outputs = sound(self, state._replace(loaded=Schema(newest, Map())), now)
        return after._replace(loaded=state.loaded), outputs

    return [(server.Server, "_tells", tells)]


def _serves_unverified() -> list[Patch]:
    sound = server.Server._loaded

    def loaded(self: Any, state: Any, mirror: Any, now: Any) -> Any:
        after, outputs = sound(self, state, mirror, now)
        if after.serves is None and after.loaded and server.is_bootstrapped(mirror, self.habits):
            after = after._replace(serves=after.loaded)
        return after, outputs

    return [(server.Server, "_loaded", loaded)]


def _bootstraps_without_the_lock() -> list[Patch]:
    def bootstrapped(state: Any, mirror: Any, habits: Any, now: Any) -> Any:
        if server.is_bootstrapped(mirror, habits) or state.upgrading:
            return state, []
        return state._replace(upgrading=True), [Wake(habits.bootstrap_us, "upgraded")]

    return [(server, "_bootstrapped", bootstrapped)]


def _one_id() -> list[Patch]:
    sound = keys.ddl_id
    return [(keys, "ddl_id", lambda lease, cluster: sound(1, "cluster1"))]


PLANTED: Bugs = {
    "keeps on": lambda: [(worker, "is_over", _never), (owner, "is_over", _never)],
    "writes without its campaign": lambda: [(owner, "_guards", lambda *_: ())],
    "waits for nobody": _waits_for_nobody,
    "tells GC nothing": _tells_gc_nothing,
    "shares variables": _shares_variables,
    "never reloads variables": _never_reloads,
    "shares the ddl id": _one_id,
    "shares the infosyncer": _shares_the_infosyncer,
    "shows server info": _with_seen(lambda o: Put(keys.SERVER_INFO + o.ddl_id, "10.0.0.1:4000", o.link.lease)),
    "shows topology": _with_seen(lambda o: Put(f"{keys.TOPOLOGY}10.0.0.1:4000/ttl", "0", o.link.lease)),
    "asks no cluster": lambda: [(registering, "versions_told", lambda _: ())],
    "shares sessions": _shares_sessions,
    "takes any version": lambda: [(registering, "unsupported", lambda *_: None)],
    "runs any job": lambda: [(jobs, "unsupported", lambda *_: None)],
    "ignores removals": lambda: [(worker, "is_to_stop", _never)],
    "keeps the lost": _keeps_the_lost,
    "never rebalances": _never_rebalances,
    "serves on": lambda: [(server, "is_over", _never)],
    "publishes first": _publishes_first,
    "serves unverified": _serves_unverified,
    "bootstraps as the owner": lambda: [(server, "_bootstrapped", lambda state, *_: (state, []))],
    "bootstraps without the lock": _bootstraps_without_the_lock,
}


def planted(*bugs: str) -> Any:
    """Let some bugs be there."""
    return planted_in(PLANTED, *bugs)
