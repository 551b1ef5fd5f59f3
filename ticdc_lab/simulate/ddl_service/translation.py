"""A scenario of DDL as a Service in the words of its model: settings, load, and what happens at which moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatch
from itertools import product
from typing import Any

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate import planned as file
from ticdc_lab.simulate.ddl_service import planned as own
from ticdc_lab.simulate.ddl_service import server_state, worker_state
from ticdc_lab.simulate.ddl_service.load import drawn_load
from ticdc_lab.simulate.ddl_service.mischief import KINDS, mischief
from ticdc_lab.simulate.ddl_service.run import mishaps
from ticdc_lab.simulate.ddl_service.store_messages import ExpireOf
from ticdc_lab.simulate.ddl_service.world import PD, Settings, store_of
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler import translation as common

_SEEDS_APART = 1_000_003


def settings_of(scenario: Scenario) -> Settings:
    """Give the settings with the cluster; workers that join later are in it too."""
    cluster = scenario.cluster
    joining = tuple(e.what.worker for e in scenario.events if isinstance(e.what, own.Join))
    found: Settings = replace(
        scenario.settings, workers=cluster.workers, clusters=cluster.clusters, servers=cluster.servers,
        unregistered=cluster.unregistered, joining=joining,
    )  # fmt: skip
    return found


def faults_of(scenario: Scenario, seed: int) -> list[kernel.Fault]:
    """Give what happens: as planned, as the seed draws it, and what users do."""
    settings = settings_of(scenario)
    found = [fault for event in scenario.events for fault in happens(event.what, event, scenario)]
    for i, some in enumerate(scenario.random):
        other = seed + i * _SEEDS_APART
        kinds = tuple(k for k in some.faults if k in KINDS)
        if kinds:
            found += mischief(
                settings, kinds, from_us=some.from_us, until_us=some.until_us, every_us=some.every_us, seed=other
            )
        if common_kinds := tuple(k for k in some.faults if k not in KINDS):
            chaos = kernel.Chaos(some.until_us - some.from_us, some.every_us, common_kinds)
            found += [f._replace(at_us=f.at_us + some.from_us) for f in mishaps(settings, chaos, other)]
    return sorted([*found, *_users(scenario, settings, seed)], key=lambda fault: fault.at_us)


def _users(scenario: Scenario, settings: Settings, seed: int) -> list[kernel.Fault]:
    if scenario.load is None:
        return []
    until_us = scenario.until_us * 3 // 4 if scenario.load.until_us is None else scenario.load.until_us
    drawn = drawn_load(settings, until_us=until_us, every_us=scenario.load.every_us, seed=seed)
    return [f for f in drawn if f.at_us >= scenario.load.from_us]


@singledispatch
def happens(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    """Give the kernel's faults for an event of the file."""
    yield from common.happens(what, event, scenario)


@happens.register
def _(what: file.Partition, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from common.parted(what, event.at_us, _pairs(what, scenario))


@happens.register
def _(what: file.Heal, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from common.healed(what, event.at_us, scenario, _pairs)


def _pairs(cut: file.Partition, scenario: Scenario) -> list[tuple[str, str]]:
    joined = {e.what.worker for e in scenario.events if isinstance(e.what, own.Join)}
    others = cut.from_ or tuple(n for n in sorted(scenario.cluster.nodes | joined) if n not in cut.nodes)
    return list(product(cut.nodes, others))


@happens.register
def _(what: own.Join, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Join(event.at_us, what.worker)


@happens.register
def _(what: own.Leave, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    leave = worker_state.Leave() if what.back_us is None else worker_state.Leave(what.back_us)
    yield kernel.Ask(event.at_us, what.worker, leave)


@happens.register
def _(what: own.EnableDdl, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.server, server_state.EnableDdl(not what.off))


@happens.register
def _(what: own.Resign, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.worker, worker_state.Resign(what.cluster))


@happens.register
def _(what: own.ExpireSession, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, PD, ExpireOf(what.worker))


@happens.register
def _(what: own.BreakSession, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.store, ExpireOf(what.node))


@happens.register
def _(what: own.RegisterCluster, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    store = what.store or store_of(what.cluster)
    if store not in scenario.cluster.nodes:
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a cluster with a store; found {what.cluster}.",
            hint="Give it to `cluster.clusters`, or name the `store` of one that is there.",
        )
    version = what.version or scenario.settings.habits.version
    yield kernel.Ask(event.at_us, what.worker, worker_state.Register(what.cluster, store, version))


@happens.register
def _(what: own.UnregisterCluster, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.worker, worker_state.Unregister(what.cluster))


@happens.register
def _(what: own.Ddl, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    submit = server_state.Submit(what.job, what.table, what.element, what.rows, what.fails_at, what.version)
    yield kernel.Ask(event.at_us, what.server, submit)


@happens.register
def _(what: own.CancelDdl, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.server, server_state.Cancel(what.id))


@happens.register
def _(what: own.SetGlobal, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.server, server_state.SetVariable(what.variable, what.value))


@happens.register
def _(what: own.SlowServer, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.server, server_state.Slow(what.load_us))
    if what.for_us is not None:
        yield kernel.Ask(event.at_us + what.for_us, what.server, server_state.Slow(0))


@happens.register
def _(what: own.Transact, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.server, server_state.Transact(what.for_us))
