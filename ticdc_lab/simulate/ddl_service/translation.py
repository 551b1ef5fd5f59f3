"""A scenario of DDL as a Service in the words of its model: settings, load, and what happens at which moment."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.ddl_service import planned as own
from ticdc_lab.simulate.ddl_service.load import drawn_load
from ticdc_lab.simulate.ddl_service.mischief import KINDS, mischief
from ticdc_lab.simulate.ddl_service.run import mishaps
from ticdc_lab.simulate.ddl_service.world import Settings
from ticdc_lab.simulate.scenario import Scenario

_SEEDS_APART = 1_000_003


def settings_of(scenario: Scenario) -> Settings:
    """Give the settings with the cluster; workers that join later are in it too."""
    cluster = scenario.cluster
    joining = tuple(e.what.worker for e in scenario.events if isinstance(e.what, own.Join))
    found: Settings = replace(
        scenario.settings, workers=cluster.workers, clusters=cluster.clusters, servers=cluster.servers,
        unregistered=cluster.unregistered, joining=joining, versions=Map(dict(cluster.versions)),
    )  # fmt: skip
    return found


def faults_of(scenario: Scenario, seed: int) -> list[kernel.Fault]:
    """Give what happens: as planned, as the seed draws it, and what users do."""
    settings = settings_of(scenario)
    found = [fault for event in scenario.events for fault in event.what.apply(event, scenario)]
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
