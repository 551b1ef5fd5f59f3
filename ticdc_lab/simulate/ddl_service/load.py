"""What users of many clusters do, drawn by a seed: DDL, cancellations, variables, clusters that come and go."""

from __future__ import annotations

import random

from ticdc_lab.simulate.ddl_service.jobs import LADDERS
from ticdc_lab.simulate.ddl_service.server_state import Cancel, SetVariable, Submit
from ticdc_lab.simulate.ddl_service.sysvars import BATCH, WORKERS
from ticdc_lab.simulate.ddl_service.worker_state import Register, Unregister
from ticdc_lab.simulate.ddl_service.world import Settings, store_of
from ticdc_lab.simulate.faults import Ask, Fault

_TABLES, _NAMES = ("orders", "users"), ("a", "b")


def drawn_load(settings: Settings, *, until_us: int, every_us: int, seed: int) -> list[Fault]:
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


def _comings_and_goings(chance: random.Random, settings: Settings, at_us: int, until_us: int) -> list[Fault]:
    """Let a cluster leave the service and come back before the end."""
    cluster = chance.choice(settings.cluster_names())
    first, second = chance.choice(settings.worker_names()), chance.choice(settings.worker_names())
    back_us = min(until_us, at_us + 1 + int(chance.random() * 3_000_000))
    back = Register(cluster, store_of(cluster))
    return [Ask(at_us, first, Unregister(cluster)), Ask(back_us, second, back)]
