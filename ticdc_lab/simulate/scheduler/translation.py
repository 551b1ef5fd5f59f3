"""A scenario in the words of the kernel: settings, network, and what happens at which moment."""

from __future__ import annotations

from immutables import Map

from ticdc_lab.machines.machine import replace
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler import etcd_messages
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

_SEEDS_APART = 1_000_003


def settings_of(scenario: Scenario) -> SchedulerSettings:
    """Give the settings with the cluster; captures that join later are in it too."""
    cluster, settings = scenario.cluster, scenario.settings
    joins, versions = joined(scenario)
    added = [e.what for e in scenario.events if e.kind == "add_table"]
    traffic = {t.id: t.traffic for t in cluster.tables if t.traffic != 1} | {t.table: t.traffic for t in added}
    found: SchedulerSettings = replace(
        settings,
        variant=scenario.variant,
        captures=(*cluster.captures, *joins),
        tables=tuple(t.id for t in cluster.tables),
        versions=Map(cluster.versions).update(versions),
        balance=replace(settings.balance, traffic=Map(traffic)),
    )
    return found


def joined(scenario: Scenario) -> tuple[tuple[str, ...], Map[str, str]]:
    """Give the captures that join later, and the versions of those that have one of their own."""
    joins = [e.what for e in scenario.events if e.kind == "join"]
    return tuple(j.capture for j in joins), Map({j.capture: j.version for j in joins if j.version})


def faults_of(scenario: Scenario, seed: int) -> list[kernel.Fault]:
    """Give what happens: as planned, and as the seed draws it."""
    found = [fault for event in scenario.events for fault in event.what.apply(event, scenario)]
    for i, some in enumerate(scenario.random):
        chaos = kernel.Chaos(some.until_us - some.from_us, some.every_us, some.faults)
        drawn = kernel.drawn(chaos, scenario.cluster.fallible, etcd_messages.ETCD, seed + i * _SEEDS_APART)
        found += [fault._replace(at_us=fault.at_us + some.from_us) for fault in drawn]
    return sorted(found, key=lambda fault: fault.at_us)
