"""What a scenario of the pipeline can let happen, beside what every model and the table scheduler know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate import planned as common
from ticdc_lab.simulate.pipeline import kv_messages as kv
from ticdc_lab.simulate.pipeline import sink_messages
from ticdc_lab.simulate.pipeline.downstream import Pace
from ticdc_lab.simulate.pipeline.keys import key_of
from ticdc_lab.simulate.planned import Disk, Lasting, Node, Planned, TableId, Text
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, WantPartitions
from ticdc_lab.simulate.scheduler.planned import EVENTS as OF_SCHEDULER

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True)
class RestartStoreEvent(common.RestartEvent):
    """A crashed node comes back; a store with its disk, with all of it but a torn last write, or without it."""

    disk: Disk | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        if self.disk is not None and (self.keep_state or not self.node.startswith("tikv-")):
            raise ScenarioError(
                f"{scenario.file}:{event.line}: expected a `disk` of a store that begins anew; found one of "
                f"{self.node}.",
                hint="Leave `disk` out: a capture has none, and who keeps its state does not read it.",
            )
        yield kernel.Restart(event.at_us, self.node, self.keep_state, self.disk or kernel.KEPT)


@dataclass(frozen=True, slots=True)
class SplitEvent:
    """The region that holds a row of a table is divided there."""

    table: TableId
    handle: int = 50

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _of_stores(event, scenario, kv.Split(key_of(self.table, self.handle)))


@dataclass(frozen=True, slots=True)
class MergeEvent:
    """The region that holds a row of a table is united with the one behind it."""

    table: TableId
    handle: int = 1

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _of_stores(event, scenario, kv.Merge(key_of(self.table, self.handle)))


@dataclass(frozen=True, slots=True)
class TransferLeaderEvent:
    """The region that holds a row of a table is led by another store from now on."""

    table: TableId
    to: Node
    handle: int = 1

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _of_stores(event, scenario, kv.TransferLeader(key_of(self.table, self.handle), self.to))


@dataclass(frozen=True, slots=True)
class SlowSink:
    """The downstream takes no more than so many rows a second, for a while or for good."""

    rows_per_s: int
    for_us: Lasting | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from paced(self.rows_per_s, self.for_us, event, scenario)


@dataclass(frozen=True, slots=True)
class StandingSink:
    """The downstream takes nothing for a while."""

    for_us: Lasting

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from paced(0, self.for_us, event, scenario)


@dataclass(frozen=True, slots=True)
class LongTransaction:
    """A transaction locks some new rows of a table and is committed, or rolled back, only after a while."""

    table: TableId
    hold_us: Lasting
    rows: int = 1
    rolls_back: bool = False

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give nothing: it is of the load."""
        yield from ()


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A DDL adds a column to a table."""

    table: TableId
    column: Text = "added"

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give nothing: it is of the load."""
        yield from ()


@dataclass(frozen=True, slots=True)
class DropTableDdl:
    """A DDL drops a table."""

    table: TableId

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give nothing: it is of the load."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Repartition:
    """A user wants another number of partitions: all tables stop, Admin events are written, all go on."""

    partitions: int

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, ETCD, WantPartitions(self.partitions))


def _of_stores(event: Planned, scenario: Scenario, command: Any) -> Iterator[kernel.Fault]:
    """Ask every store: the one that leads the region does it."""
    for i in range(scenario.cluster.stores):
        yield kernel.Ask(event.at_us, f"tikv-{i + 1}", command)


def paced(
    rows_per_s: int, for_us: int | None, event: Planned, scenario: Scenario, node: str = sink_messages.DOWNSTREAM
) -> Iterator[kernel.Fault]:
    """Let a downstream take no more than so many rows a second, for a while or for good."""
    yield kernel.Ask(event.at_us, node, Pace(rows_per_s))
    if for_us is not None:
        yield kernel.Ask(event.at_us + for_us, node, Pace(scenario.settings.downstream.rows_per_s))


_NOT_OF_THE_PIPELINE = ("ddl", "add_table", "drop_table", "move_maintainer")

EVENTS: dict[str, type] = {k: v for k, v in OF_SCHEDULER.items() if k not in _NOT_OF_THE_PIPELINE} | {
    "restart": RestartStoreEvent,
    "split": SplitEvent,
    "merge": MergeEvent,
    "transfer_leader": TransferLeaderEvent,
    "slow_sink": SlowSink,
    "standing_sink": StandingSink,
    "long_transaction": LongTransaction,
    "add_column": AddColumn,
    "drop_table": DropTableDdl,
    "repartition": Repartition,
}
