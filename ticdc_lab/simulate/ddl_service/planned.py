"""What a scenario of DDL as a Service can let happen, beside the faults that every model knows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from ticdc_lab.ddl_core import server_state, sysvars, worker_state
from ticdc_lab.ddl_core.jobs import LADDERS
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.server_state import Cancel, SetVariable, Submit
from ticdc_lab.ddl_core.store import ExpireOf
from ticdc_lab.ddl_core.sysvars import BATCH, WORKERS
from ticdc_lab.ddl_core.worker_state import Register, Unregister
from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Fault
from ticdc_lab.simulate.planned import FAULTS, Duration, EventKind, Lasting, NewNode, Node, Planned, Text, table

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


# What a seed draws of users of many clusters.

_TABLES, _NAMES = ("orders", "users"), ("a", "b")


def drawn_load(settings: ServiceSettings, *, until_us: int, every_us: int, seed: int) -> list[Fault]:
    """Draw what users do, one thing about every ``every_us``, the first after a second."""
    chance = random.Random(f"users {seed}")
    asked: list[Fault] = []
    at_us = 1_000_000
    while (at_us := at_us + 1 + int(chance.expovariate(1 / every_us))) < until_us:
        if chance.random() < 0.1:
            # Let a cluster leave the service and come back before the end.
            cluster = chance.choice(settings.cluster_names())
            first, second = chance.choice(settings.worker_names()), chance.choice(settings.worker_names())
            back_us = min(until_us, at_us + 1 + int(chance.random() * 3_000_000))
            back = Register(cluster, store_of(cluster))
            asked += [Ask(at_us, first, Unregister(cluster)), Ask(back_us, second, back)]
            continue
        server = chance.choice(settings.server_names())
        kind = chance.random()
        if kind < 0.15:
            asked.append(Ask(at_us, server, Cancel(chance.randrange(1, 8))))
        elif kind < 0.25:
            name, among = (BATCH, (64, 256, 1024)) if chance.random() < 0.6 else (WORKERS, (1, 4, 16))
            asked.append(Ask(at_us, server, SetVariable(name, str(chance.choice(among)))))
        else:
            asked.append(Ask(at_us, server, _statement(chance)))
    return asked


def _statement(chance: random.Random) -> Submit:
    kind = chance.choice(sorted(LADDERS))
    name = "" if kind.endswith("table") else chance.choice(_NAMES)
    rows = chance.randrange(0, 3000) if kind == "add index" else 0
    fails_at = chance.randrange(rows) if rows and chance.random() < 0.2 else None
    version = "v5.4.0" if chance.random() < 0.05 else ""
    errors = chance.randrange(1, 4) if rows and chance.random() < 0.1 else 0
    return Submit(kind, chance.choice(_TABLES), name, rows, fails_at, version, errors=errors)


# The events of a file.


def _registered(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    store = what.store or store_of(what.cluster)
    if store not in scenario.cluster.nodes:
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a cluster with a store; found {what.cluster}.",
            hint="Give it to `cluster.clusters`, or name the `store` of one that is there.",
        )
    yield kernel.Ask(event.at_us, what.worker, worker_state.Register(what.cluster, store, what.version or ""))


def _submitted(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    where = f"{scenario.file}:{event.line}"
    if what.job not in LADDERS:
        raise ScenarioError(
            f"{where}: expected a kind of job; found {what.job}.", hint=f"There is {', '.join(LADDERS)}."
        )
    if bool(what.element) == what.job.endswith("table"):
        of = "the table alone" if what.element else "the name of one, `element`, beside its table"
        raise ScenarioError(f"{where}: expected of {what.job} {of}; found {what.element or 'none'}.")
    submit = server_state.Submit(
        what.job, what.table, what.element, what.rows, what.fails_at, what.version, errors=what.errors
    )
    yield kernel.Ask(event.at_us, what.server, submit)


def _set_global(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    if refused := sysvars.refusal(what.variable, what.value):
        known = ", ".join(sysvars.COUNTS)
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a variable that a cluster can set; found {refused}.",
            hint=f"There is {known}; `enable_ddl` sets what is of a server.",
        )
    yield kernel.Ask(event.at_us, what.server, server_state.SetVariable(what.variable, what.value))


def _set_instance(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    if refused := sysvars.instance_refusal(what.variable, what.value):
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a variable of an instance; found {refused}.",
            hint=f"There is {sysvars.SLOW_MS}; `enable_ddl` sets tidb_enable_ddl.",
        )
    yield kernel.Ask(event.at_us, what.node, server_state.SetInstance(what.variable, what.value))


def _slowed(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.server, server_state.Slow(what.load_us))
    if what.for_us is not None:
        yield kernel.Ask(event.at_us + what.for_us, what.server, server_state.Slow(0))


EVENTS: dict[str, type] = table(
    {
        "join": EventKind(
            "A worker that was not there starts and registers (scale-out).",
            {"worker": NewNode},
            lambda w, e, s: [kernel.Join(e.at_us, w.worker)],
        ),
        "leave": EventKind(
            "A worker stops its owners, gives its sessions back and ends (scale-in); it comes back after `back`.",
            {"worker": Node, "back_us": (Lasting | None, None)},
            lambda w, e, s: [
                kernel.Ask(e.at_us, w.worker, worker_state.Leave(*(() if w.back_us is None else (w.back_us,))))
            ],
        ),
        "resign": EventKind(
            "A worker gives up the DDL of a cluster, and campaigns again.",
            {"worker": Node, "cluster": Text},
            lambda w, e, s: [kernel.Ask(e.at_us, w.worker, worker_state.Resign(w.cluster))],
        ),
        "enable_ddl": EventKind(
            "A tidb-server campaigns for its cluster's DDL from now on (`tidb_enable_ddl`), or `off` no more.",
            {"server": Node, "off": (bool, False)},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.EnableDdl(not w.off))],
        ),
        "expire_session": EventKind(
            "The service's store ends the session of a worker, which hears of it.",
            {"worker": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, PD, ExpireOf(w.worker))],
        ),
        "break_session": EventKind(
            "A cluster's store ends the sessions of a node before their time: what the rules assume never to happen.",
            {"node": Node, "store": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.store, ExpireOf(w.node))],
        ),
        "register": EventKind(
            "A user registers a cluster at a worker, or updates it; without a `version` the service asks the cluster.",
            {"cluster": Text, "worker": Node, "version": (Text | None, None), "store": (Text | None, None)},
            _registered,
        ),
        "unregister": EventKind(
            "A user takes a cluster out of the service.",
            {"cluster": Text, "worker": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.worker, worker_state.Unregister(w.cluster))],
        ),
        "ddl": EventKind(
            "A user sends a DDL statement to a tidb-server; one from an old server has its `version`.",
            {
                "server": Node, "job": Text, "table": Text, "element": (Text, ""), "rows": (int, 0),
                "fails_at": (int | None, None), "version": (Text, ""), "errors": (int, 0),
            },
            _submitted,
        ),
        "cancel": EventKind(
            "A user sends `admin cancel ddl jobs` to a tidb-server.",
            {"server": Node, "id": (int, 1)},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.Cancel(w.id))],
        ),
        "set_global": EventKind(
            "A user sends `set global` to a tidb-server.",
            {"server": Node, "variable": Text, "value": Text},
            _set_global,
        ),
        "set_instance": EventKind(
            "A user sets a variable of an instance, a worker or a tidb-server: all owners in its process have it.",
            {"node": Node, "variable": Text, "value": Text},
            _set_instance,
        ),
        "show_ddl": EventKind(
            "A user sends `admin show ddl` to a tidb-server.",
            {"server": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.ShowDdl())],
        ),
        "slow_server": EventKind(
            "A tidb-server takes so long to load a schema, for a while or for good.",
            {"server": Node, "load_us": Duration, "for_us": (Lasting | None, None)},
            _slowed,
        ),
        "transact": EventKind(
            "A user's transaction on a tidb-server reads for so long.",
            {"server": Node, "for_us": Lasting},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.Transact(w.for_us))],
        ),
    }
)  # fmt: skip


# Faults at random of this model: events of its table, drawn.

_CUT_US = (5_000_000, 9_000_000)
"""Longer than a lease, with the workers' default settings."""

Drawn: TypeAlias = Iterator[tuple[str, dict[str, Any]]]
"""Names of events, and the values of their fields; all begin at once."""


def mischief(
    settings: ServiceSettings, kinds: tuple[str, ...], *, from_us: int, until_us: int, every_us: int, seed: int
) -> list[Fault]:
    """Draw faults of some kinds, one about every ``every_us``, all over at ``until_us``.

    ``kinds``: of :data:`KINDS`.
    """
    chance = random.Random(f"mischief {seed}")
    found: list[Fault] = []
    at_us = from_us
    while (at_us := at_us + 1 + int(chance.expovariate(1 / every_us))) < until_us:
        for kind, values in KINDS[chance.choice(kinds)](chance, settings, until_us - at_us):
            what: Any = (FAULTS | EVENTS)[kind](**values)
            found += what.apply(Planned(at_us, kind, kind, what, 0), None)
    return sorted(found, key=lambda f: f.at_us)


def _cut(chance: random.Random, settings: ServiceSettings, left_us: int) -> Drawn:
    worker = chance.choice(settings.worker_names())
    stores = chance.choice([(PD,), tuple(map(store_of, settings.cluster_names())), (PD, store_of("cluster1"))])
    for_us = max(1, min(chance.randrange(*_CUT_US), left_us))
    yield "partition", {"nodes": (worker,), "from_": stores, "one_way": chance.random() < 0.3, "for_us": for_us}


def _resign(chance: random.Random, settings: ServiceSettings, left_us: int) -> Drawn:
    cluster = chance.choice(settings.cluster_names())
    yield from (("resign", {"worker": worker, "cluster": cluster}) for worker in settings.worker_names())


def _leave(chance: random.Random, settings: ServiceSettings, left_us: int) -> Drawn:
    back_us = max(1, min(1 + int(chance.random() * 4_000_000), left_us))
    yield "leave", {"worker": chance.choice(settings.worker_names()), "back_us": back_us}


def _slow(chance: random.Random, settings: ServiceSettings, left_us: int) -> Drawn:
    server, back_us = chance.choice(settings.server_names()), chance.randrange(1_000_000, 5_000_000)
    load_us = chance.randrange(100_000, 1_000_000)
    yield "slow_server", {"server": server, "load_us": load_us, "for_us": min(left_us, back_us)}


def _lose(chance: random.Random, settings: ServiceSettings, left_us: int) -> Drawn:
    """Requests and answers that come often: what is to be lost must not wait until after the end.

    Not what a store sends of changes: an observer would see the gap, and ask again.
    """
    node = chance.choice([*settings.worker_names(), *settings.server_names()])
    message = chance.choice(("KeepAlive", "Txn", "KeptAlive", "Done"))
    yield "lose", {"message": message, "from_" if message in ("KeepAlive", "Txn") else "to": node, "for_us": left_us}


KINDS: Mapping[str, Callable[[random.Random, ServiceSettings, int], Drawn]] = MappingProxyType({
    # The service ends a worker's session.
    "expire": lambda chance, settings, _: iter(
        [("expire_session", {"worker": chance.choice(settings.worker_names())})]
    ),
    "cut": _cut,  # a worker loses a store for longer than a lease
    "resign": _resign,  # an owner gives up
    "leave": _leave,  # a worker leaves and comes back
    "slow": _slow,  # a server takes up to a second to load a schema
    "lose": _lose,  # a request to a store, or its answer, is lost for good
})  # fmt: skip
"""Faults that can come at random, beside the faults of every model; each is given the time that is left."""
