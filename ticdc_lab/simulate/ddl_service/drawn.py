"""What a seed draws: what users of many clusters do, and the faults of this model beside those that all have."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ticdc_lab.ddl_core.jobs import LADDERS
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.server_state import Cancel, SetVariable, Slow, Submit
from ticdc_lab.ddl_core.store import ExpireOf
from ticdc_lab.ddl_core.sysvars import BATCH, WORKERS
from ticdc_lab.ddl_core.worker_state import Leave, Register, Resign, Unregister
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Fault, Lose, Part

_TABLES, _NAMES = ("orders", "users"), ("a", "b")


def drawn_load(settings: ServiceSettings, *, until_us: int, every_us: int, seed: int) -> list[Fault]:
    """Draw what users do, one thing about every ``every_us``, the first after a second."""
    chance = random.Random(f"users {seed}")
    asked: list[Fault] = []
    at_us = 1_000_000
    while (at_us := at_us + 1 + int(chance.expovariate(1 / every_us))) < until_us:
        if chance.random() < 0.1:
            asked += _comings_and_goings(chance, settings, at_us, until_us)
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


def _comings_and_goings(chance: random.Random, settings: ServiceSettings, at_us: int, until_us: int) -> list[Fault]:
    """Let a cluster leave the service and come back before the end."""
    cluster = chance.choice(settings.cluster_names())
    first, second = chance.choice(settings.worker_names()), chance.choice(settings.worker_names())
    back_us = min(until_us, at_us + 1 + int(chance.random() * 3_000_000))
    back = Register(cluster, store_of(cluster))
    return [Ask(at_us, first, Unregister(cluster)), Ask(back_us, second, back)]


_CUT_US = (5_000_000, 9_000_000)
"""Longer than a lease, with the settings that workers have unless told otherwise."""


def mischief(
    settings: ServiceSettings, kinds: tuple[str, ...], *, from_us: int, until_us: int, every_us: int, seed: int
) -> list[Fault]:
    """Draw faults of some kinds, one about every ``every_us``, all over at ``until_us``.

    ``kinds``: of :data:`KINDS`: ``expire`` (the service ends a worker's session), ``cut`` (a worker loses a store for
    longer than a lease), ``resign`` (an owner gives up), ``leave`` (a worker leaves and comes back), ``slow`` (a server
    takes up to a second to load a schema), ``lose`` (a request to a store, or its answer, is lost for good).
    """
    chance = random.Random(f"mischief {seed}")
    found: list[Fault] = []
    at_us = from_us
    while (at_us := at_us + 1 + int(chance.expovariate(1 / every_us))) < until_us:
        found += KINDS[chance.choice(kinds)](chance, settings, at_us, until_us)
    return sorted(found, key=lambda f: f.at_us)


def _expire(chance: random.Random, settings: ServiceSettings, at_us: int, until_us: int) -> list[Fault]:
    return [Ask(at_us, PD, ExpireOf(chance.choice(settings.worker_names())))]


def _cut(chance: random.Random, settings: ServiceSettings, at_us: int, until_us: int) -> list[Fault]:
    worker = chance.choice(settings.worker_names())
    stores = chance.choice([(PD,), tuple(map(store_of, settings.cluster_names())), (PD, store_of("cluster1"))])
    for_us = max(1, min(chance.randrange(*_CUT_US), until_us - at_us))
    one_way = chance.random() < 0.3
    return [Part(at_us, worker, store, one_way, for_us) for store in stores]


def _resign(chance: random.Random, settings: ServiceSettings, at_us: int, until_us: int) -> list[Fault]:
    cluster = chance.choice(settings.cluster_names())
    return [Ask(at_us, worker, Resign(cluster)) for worker in settings.worker_names()]


def _leave(chance: random.Random, settings: ServiceSettings, at_us: int, until_us: int) -> list[Fault]:
    back_us = max(1, min(1 + int(chance.random() * 4_000_000), until_us - at_us))
    return [Ask(at_us, chance.choice(settings.worker_names()), Leave(back_us))]


def _slow(chance: random.Random, settings: ServiceSettings, at_us: int, until_us: int) -> list[Fault]:
    server, back_us = chance.choice(settings.server_names()), chance.randrange(1_000_000, 5_000_000)
    load_us = chance.randrange(100_000, 1_000_000)
    return [Ask(at_us, server, Slow(load_us)), Ask(min(until_us, at_us + back_us), server, Slow(0))]


def _lose(chance: random.Random, settings: ServiceSettings, at_us: int, until_us: int) -> list[Fault]:
    """Requests and answers that come often: what is to be lost must not wait until after the end.

    Not what a store tells of changes: who observes it would know of the gap, and ask anew.
    """
    node = chance.choice([*settings.worker_names(), *settings.server_names()])
    message = chance.choice(("KeepAlive", "Txn", "KeptAlive", "Done"))
    asks = message in ("KeepAlive", "Txn")
    return [Lose(at_us, message, node if asks else None, None if asks else node, until_us=until_us)]


KINDS: Mapping[str, Callable[[random.Random, ServiceSettings, int, int], list[Fault]]] = MappingProxyType(
    {"expire": _expire, "cut": _cut, "resign": _resign, "leave": _leave, "slow": _slow, "lose": _lose}
)
