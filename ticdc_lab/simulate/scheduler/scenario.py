"""A scenario of the table scheduler: its ``cluster``, and all of it as settings and faults of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import replace
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.planned import (
    EventKind,
    Lasting,
    NewNode,
    NewTableId,
    Node,
    Nodes,
    Planned,
    RandomFaults,
    TableId,
    Text,
    Versions,
    one_or_more,
    table,
)
from ticdc_lab.simulate.reading import Names, ReadBy, Reader, Value, new_name
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler import roles
from ticdc_lab.simulate.scheduler.capture import Stick
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl, Expire, TwoOwners
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

# What a scenario of the table scheduler can let happen, beside the faults that every model knows.


Keys: TypeAlias = Annotated[
    tuple[str, ...], ReadBy(lambda value, names: tuple(one.text() for one in one_or_more(value)))
]
"""Keys of a table at which spans meet; a single one needs no list."""


def _spans(table: int, keys: tuple[str, ...]) -> tuple[roles.Span, ...]:
    return tuple(roles.Span(table, left, right) for left, right in pairwise(("", *keys, "")))


def asked(command: Any, at_us: int, scenario: Scenario) -> Iterator[kernel.Fault]:
    """Ask every capture that is there: the one that owns, or has the table, does it; the others ignore it."""
    joined = [e.what.capture for e in scenario.events if e.kind == "join" and e.at_us < at_us]
    for capture in (*scenario.cluster.captures, *joined):
        yield kernel.Ask(at_us, capture, command)


EVENTS: dict[str, Any] = table(
    {
        "join": EventKind(
            "A capture that was not there starts and registers.",
            {"capture": NewNode, "version": (Text | None, None)},
            lambda w, e, s: [kernel.Join(e.at_us, w.capture)],
        ),
        "restart_processor": EventKind(
            'The processor of a capture loses its state; the capture keeps its id (design, "Processor restarts").',
            {"capture": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.capture, roles.Restart())],
            reach="one",
        ),
        "expire_session": EventKind(
            "Etcd ends the session of a capture, which hears of it as the settings say.",
            {"capture": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Expire(w.capture))],
        ),
        "two_owners": EventKind(
            "Etcd elects a second owner beside the first one: what TiCDC's design assumes never to happen.",
            {"same_rev": (bool, False)},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, TwoOwners(w.same_rev))],
        ),
        "stuck_table": EventKind(
            "The sink of a table takes nothing any more, on the capture that has it then, for a while or until freed.",
            {"table": TableId, "for_us": (Lasting | None, None)},
            lambda w, e, s: [
                *asked(Stick(w.table), e.at_us, s),
                *(() if w.for_us is None else asked(Stick(w.table, free=True), e.at_us + w.for_us, s)),
            ],
            reach="one",
        ),
        "free_table": EventKind(
            "The sink of a stuck table takes rows again.",
            {"table": TableId},
            lambda w, e, s: asked(Stick(w.table, free=True), e.at_us, s),
            reach="one",
        ),
        "ddl": EventKind(
            "A DDL of this moment: no watermark passes it until it is executed, which takes this long once all are "
            "there.",
            {"takes_us": Lasting},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Ddl(takes_us=w.takes_us))],
            reach="own",
        ),
        "add_table": EventKind(
            "A table is created and should be replicated.",
            {"table": NewTableId, "traffic": (int, 1)},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Ddl(add=(w.table,)))],
            reach="own",
        ),
        "drop_table": EventKind(
            "A table is dropped and should no longer be replicated.",
            {"table": TableId},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Ddl(drop=(w.table,)))],
            reach="own",
        ),
        "move_table": EventKind(
            "A user asks for a table on a certain capture.",
            {"table": TableId, "to": Node},
            lambda w, e, s: asked(roles.MoveTable(w.table, w.to), e.at_us, s),
            reach="one",
        ),
        "split_table": EventKind(
            "A user asks for a table to be divided at some keys into spans, on any nodes or on one for each: of v4.",
            {"table": TableId, "keys": Keys, "to": (Nodes, ())},
            lambda w, e, s: asked(roles.SplitTable(w.table, w.keys, w.to), e.at_us, s),
            reach="own",
        ),
        "merge_spans": EventKind(
            "A user asks for the spans of a table that meet at some keys, all on one node, to become one: of v4.",
            {"table": TableId, "keys": Keys},
            lambda w, e, s: asked(roles.MergeSpans(_spans(w.table, w.keys)), e.at_us, s),
            reach="own",
        ),
        "move_maintainer": EventKind(
            "A user asks for the maintainer on a certain capture: of v4 with a coordinator.",
            {"to": Node},
            lambda w, e, s: asked(roles.MoveMaintainer(w.to), e.at_us, s),
            reach="own",
        ),
        "rebalance": EventKind(
            "A user asks for tables to be spread evenly.",
            {},
            lambda w, e, s: asked(roles.Rebalance(), e.at_us, s),
            reach="one",
        ),
        "drain": EventKind(
            "A user asks for a capture without tables.",
            {"capture": Node},
            lambda w, e, s: asked(roles.Drain(w.capture), e.at_us, s),
            reach="one",
        ),
    }
)


# The sections of a file.


MOST_CAPTURES, MOST_TABLES = 1_000, 2_000_000


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
        """Refuse a version of no capture."""
        for name, _ in given["versions"].entries() if "versions" in given else ():
            name.choice(self.captures, "a capture of the cluster")

    @property
    def nodes(self) -> frozenset[str]:
        """All that a fault can hit."""
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


def drawn_for(scenario: Scenario) -> Callable[[RandomFaults, int], list[kernel.Fault]]:
    """Give what draws random faults of captures, and of their links to each other and to etcd."""
    able = scenario.cluster.fallible
    return lambda some, seed: some.chaos(some.faults, lambda chaos: kernel.drawn(chaos, able, ETCD, seed))
