"""What a scenario of the table scheduler can let happen, beside the faults that every model knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.planned import FAULTS, Lasting, NewNode, NewTableId, Node, Planned, TableId, Text
from ticdc_lab.simulate.scheduler import etcd_messages, roles
from ticdc_lab.simulate.scheduler.capture import Stick

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True)
class JoinCapture:
    """A capture that was not there starts and registers."""

    capture: NewNode
    version: Text | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Join(event.at_us, self.capture)


@dataclass(frozen=True, slots=True)
class RestartProcessor:
    """The processor of a capture loses its state; the capture keeps its id (design, "Processor restarts")."""

    capture: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.capture, roles.Restart())


@dataclass(frozen=True, slots=True)
class ExpireCapture:
    """Etcd ends the session of a capture, which hears of it as the settings say."""

    capture: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Expire(self.capture))


@dataclass(frozen=True, slots=True)
class TwoOwnersEvent:
    """Etcd elects a second owner beside the first one: what TiCDC's design assumes never to happen."""

    same_rev: bool = False

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.TwoOwners(self.same_rev))


@dataclass(frozen=True, slots=True)
class StuckTable:
    """The sink of a table takes nothing any more, on the capture that has it then, for a while or until freed."""

    table: TableId
    for_us: Lasting | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _asked(Stick(self.table), event.at_us, scenario)
        if self.for_us is not None:
            yield from _asked(Stick(self.table, free=True), event.at_us + self.for_us, scenario)


@dataclass(frozen=True, slots=True)
class FreeTable:
    """The sink of a stuck table takes rows again."""

    table: TableId

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _asked(Stick(self.table, free=True), event.at_us, scenario)


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A DDL of this moment: no watermark passes it until it is executed, which takes this long once all are there."""

    takes_us: Lasting

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Ddl(takes_us=self.takes_us))


@dataclass(frozen=True, slots=True)
class AddTableEvent:
    """A table is created and should be replicated."""

    table: NewTableId
    traffic: int = 1

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Ddl(add=(self.table,)))


@dataclass(frozen=True, slots=True)
class DropTableEvent:
    """A table is dropped and should no longer be replicated."""

    table: TableId

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Ddl(drop=(self.table,)))


@dataclass(frozen=True, slots=True)
class MoveTableEvent:
    """A user asks for a table on a certain capture."""

    table: TableId
    to: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _asked(roles.MoveTable(self.table, self.to), event.at_us, scenario)


@dataclass(frozen=True, slots=True)
class MoveMaintainerEvent:
    """A user asks for the maintainer on a certain capture: of v4 with a coordinator."""

    to: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _asked(roles.MoveMaintainer(self.to), event.at_us, scenario)


@dataclass(frozen=True, slots=True)
class RebalanceEvent:
    """A user asks for tables to be spread evenly."""

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _asked(roles.Rebalance(), event.at_us, scenario)


@dataclass(frozen=True, slots=True)
class DrainEvent:
    """A user asks for a capture without tables."""

    capture: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield from _asked(roles.Drain(self.capture), event.at_us, scenario)


def _asked(command: Any, at_us: int, scenario: Scenario) -> Iterator[kernel.Fault]:
    """Ask every capture that is there: the one that owns, or has the table, does it; the others ignore it."""
    joined = [e.what.capture for e in scenario.events if isinstance(e.what, JoinCapture) and e.at_us < at_us]
    for capture in (*scenario.cluster.captures, *joined):
        yield kernel.Ask(at_us, capture, command)


EVENTS: dict[str, type] = FAULTS | {
    "join": JoinCapture,
    "restart_processor": RestartProcessor,
    "expire_session": ExpireCapture,
    "two_owners": TwoOwnersEvent,
    "stuck_table": StuckTable,
    "free_table": FreeTable,
    "ddl": DdlEvent,
    "add_table": AddTableEvent,
    "drop_table": DropTableEvent,
    "move_table": MoveTableEvent,
    "move_maintainer": MoveMaintainerEvent,
    "rebalance": RebalanceEvent,
    "drain": DrainEvent,
}
