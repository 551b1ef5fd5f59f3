"""What a scenario of the table scheduler can let happen, beside the faults that every model knows."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.simulate.planned import FAULTS, Duration, NewNode, NewTableId, Node, TableId, Text


@dataclass(frozen=True, slots=True)
class Join:
    """A capture that was not there starts and registers."""

    capture: NewNode
    version: Text | None = None


@dataclass(frozen=True, slots=True)
class RestartProcessor:
    """The processor of a capture loses its state; the capture keeps its id (design, "Processor restarts")."""

    capture: Node


@dataclass(frozen=True, slots=True)
class ExpireSession:
    """Etcd ends the session of a capture, which hears of it as the settings say."""

    capture: Node


@dataclass(frozen=True, slots=True)
class TwoOwners:
    """Etcd elects a second owner beside the first one: what TiCDC's design assumes never to happen."""

    same_rev: bool = False


@dataclass(frozen=True, slots=True)
class StuckTable:
    """The sink of a table takes nothing any more, on the capture that has it then, for a while or until freed."""

    table: TableId
    for_us: Duration | None = None


@dataclass(frozen=True, slots=True)
class FreeTable:
    """The sink of a stuck table takes rows again."""

    table: TableId


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL of this moment: no watermark passes it until it is executed, which takes this long once all are there."""

    takes_us: Duration


@dataclass(frozen=True, slots=True)
class AddTable:
    """A table is created and should be replicated."""

    table: NewTableId
    traffic: int = 1


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table is dropped and should no longer be replicated."""

    table: TableId


@dataclass(frozen=True, slots=True)
class MoveTable:
    """A user asks for a table on a certain capture."""

    table: TableId
    to: Node


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A user asks for tables to be spread evenly."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A user asks for a capture without tables."""

    capture: Node


EVENTS: dict[str, type] = FAULTS | {
    "join": Join,
    "restart_processor": RestartProcessor,
    "expire_session": ExpireSession,
    "two_owners": TwoOwners,
    "stuck_table": StuckTable,
    "free_table": FreeTable,
    "ddl": Ddl,
    "add_table": AddTable,
    "drop_table": DropTable,
    "move_table": MoveTable,
    "rebalance": Rebalance,
    "drain": Drain,
}
