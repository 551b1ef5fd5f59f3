"""The ``cluster`` of a scenario of the table scheduler: captures, their versions, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ticdc_lab.simulate.planned import Planned, Versions
from ticdc_lab.simulate.reading import Names, ReadBy, Reader, new_name
from ticdc_lab.simulate.scenario_yaml import Value
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts

MOST_CAPTURES, MOST_TABLES = 1_000, 2_000_000
ETCD = "etcd"


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


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> SchedulerFacts:
    """Give what is known before a run begins."""
    names = {*scenario_cluster.captures, *(e.what.capture for e in events if e.kind == "join")}
    return SchedulerFacts({t.id for t in scenario_cluster.tables}, frozenset(names))
