"""The ``cluster`` of a scenario of the pipeline: captures, stores, tables and their regions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from ticdc_lab.simulate.pipeline.consumer import CONSUMER, partition_node
from ticdc_lab.simulate.pipeline.facts import PipelineFacts
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tidb import PD, TIDB
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.reading import Names, Read, Reader
from ticdc_lab.simulate.scenario_yaml import Value
from ticdc_lab.simulate.scheduler.cluster import captures_first
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.facts import Facts
from ticdc_lab.simulate.scheduler.planned import Join

OF_CONSUMER = (CONSUMER, *map(partition_node, range(64)))
"""Nodes that are there in a run with a consumer."""


def _captures(value: Value, names: Names) -> tuple[str, ...]:
    return tuple(f"capture-{i + 1}" for i in range(value.integer(least=1, most=100)))


def _tables(value: Value, names: Names) -> tuple[int, ...]:
    return tuple(range(1, value.integer(least=1, most=1_000) + 1))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Captures, TiKV stores, ids of tables, and into how many regions each is divided at first.

    ``{captures: 2, stores: 3, tables: 4, regions: 2}``; a workload brings its own tables. ``reading`` are the nodes
    behind the sink.
    """

    captures: Annotated[tuple[str, ...], Read(_captures)]
    tables: Annotated[tuple[int, ...], Read(_tables)] = ()
    stores: Annotated[int, Meta(ge=1, le=100)] = 3
    regions: Annotated[int, Meta(ge=1, le=100)] = 2
    reading: tuple[str, ...] = (DOWNSTREAM, *OF_CONSUMER)

    @property
    def fallible(self) -> tuple[str, ...]:
        """Those that random faults hit."""
        return (*self.captures, *(f"tikv-{i + 1}" for i in range(self.stores)))

    @property
    def nodes(self) -> frozenset[str]:
        """Whatever a fault can hit."""
        return frozenset({*self.fallible, ETCD, PD, TIDB, *self.reading})

    def everyone(self, joining: tuple[str, ...]) -> tuple[str, ...]:
        """Give all nodes, captures first."""
        return captures_first((*self.captures, *joining, ETCD), self.nodes)


def cluster(value: Value) -> Cluster:
    """Read the section."""
    return Reader(without=("reading",)).record(value, Cluster)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> PipelineFacts:
    """Give what is known before a run begins."""
    captures = {*scenario_cluster.captures, *(e.what.capture for e in events if isinstance(e.what, Join))}
    return PipelineFacts(Facts(set(scenario_cluster.tables), frozenset(captures)))
