"""A scenario of the table scheduler: its ``cluster``, and all of it as settings and faults of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from immutables import Map

from ticdc_lab.machines.machine import replace
from ticdc_lab.simulate import faults
from ticdc_lab.simulate.planned import Planned, Versions
from ticdc_lab.simulate.reading import Names, ReadBy, Reader, new_name
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scenario_yaml import Value
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

MOST_CAPTURES, MOST_TABLES = 1_000, 2_000_000
_SEEDS_APART = 1_000_003


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """A table and its rows a second, relative to the others."""

    id: int
    traffic: int = 1


def _captures(value: Value, names: Names) -> tuple[str, ...]:
    if value.is_text:
        return tuple(f"capture-{i + 1}" for i in range(value.integer(least=1, most=MOST_CAPTURES)))
    found: list[str] = []
    for one in value.items():
        if new_name(one) in (*found, ETCD):
            raise one.wrong("each name once", found=f"{one.text()} again")
        found.append(one.text())
    if not found:
        raise value.wrong("at least one capture", found="none")
    return tuple(found)


def _tables(value: Value, names: Names) -> tuple[ClusterTable, ...]:
    if value.is_text:
        return tuple(map(ClusterTable, range(1, value.integer(most=MOST_TABLES) + 1)))
    tables: dict[int, ClusterTable] = {}
    for one in value.items():
        table = ClusterTable(one.integer()) if one.is_text else Reader().record(one, ClusterTable)
        if table.id in tables:
            raise one.wrong("each table once", found=f"{table.id} again")
        tables[table.id] = table
    return tuple(tables.values())


@dataclass(frozen=True, slots=True)
class SchedulerCluster:
    """The captures that are there from the beginning, the versions of those that have another one, and the tables.

    ``{captures: 3, tables: 8}``, or names and ids.
    """

    captures: Annotated[tuple[str, ...], ReadBy(_captures)]
    tables: Annotated[tuple[ClusterTable, ...], ReadBy(_tables)]
    versions: Versions = ()

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse a version of nobody."""
        for name, _ in given["versions"].entries() if "versions" in given else ():
            name.choice(self.captures, "a capture of the cluster")

    @property
    def nodes(self) -> frozenset[str]:
        """Whatever a fault can hit."""
        return frozenset({*self.captures, ETCD})

    @property
    def fallible(self) -> tuple[str, ...]:
        """Those that random faults hit."""
        return self.captures

    def everyone(self, joining: tuple[str, ...]) -> tuple[str, ...]:
        """Give all nodes, captures first."""
        return captures_first((*self.captures, *joining, ETCD), self.nodes)


def captures_first(known: tuple[str, ...], nodes: frozenset[str]) -> tuple[str, ...]:
    """Give nodes in the order in which faults go through them."""
    return (*known, *sorted(nodes - set(known)))


def facts_of(scenario_cluster: Any, events: Iterable[Planned]) -> SchedulerFacts:
    """Give what is known before a run begins."""
    names = {*scenario_cluster.captures, *(e.what.capture for e in events if e.kind == "join")}
    return SchedulerFacts({t.id for t in scenario_cluster.tables}, frozenset(names))


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


def faults_of(scenario: Scenario, seed: int) -> list[faults.Fault]:
    """Give what happens: as planned, and as the seed draws it."""
    found = [fault for event in scenario.events for fault in event.what.apply(event, scenario)]
    for i, some in enumerate(scenario.random):
        chaos = faults.Chaos(some.until_us - some.from_us, some.every_us, some.faults)
        drawn_faults = faults.drawn(chaos, scenario.cluster.fallible, ETCD, seed + i * _SEEDS_APART)
        found += [fault._replace(at_us=fault.at_us + some.from_us) for fault in drawn_faults]
    return sorted(found, key=lambda fault: fault.at_us)
