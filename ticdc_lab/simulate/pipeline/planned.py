"""What a scenario of the pipeline can let happen, beside what every model and the table scheduler know."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.simulate import planned as common
from ticdc_lab.simulate.planned import Disk, Duration, Node, TableId, Text
from ticdc_lab.simulate.scheduler.planned import EVENTS as OF_SCHEDULER


@dataclass(frozen=True, slots=True)
class Restart(common.Restart):
    """A crashed node comes back; a store with its disk, with all of it but a torn last write, or without it."""

    disk: Disk | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """The region that holds a row of a table is divided there."""

    table: TableId
    handle: int = 50


@dataclass(frozen=True, slots=True)
class Merge:
    """The region that holds a row of a table is united with the one behind it."""

    table: TableId
    handle: int = 1


@dataclass(frozen=True, slots=True)
class TransferLeader:
    """The region that holds a row of a table is led by another store from now on."""

    table: TableId
    to: Node
    handle: int = 1


@dataclass(frozen=True, slots=True)
class SlowSink:
    """The downstream takes no more than so many rows a second, for a while or for good."""

    rows_per_s: int
    for_us: Duration | None = None


@dataclass(frozen=True, slots=True)
class StandingSink:
    """The downstream takes nothing for a while."""

    for_us: Duration


@dataclass(frozen=True, slots=True)
class LongTransaction:
    """A transaction locks some new rows of a table and is committed, or rolled back, only after a while."""

    table: TableId
    hold_us: Duration
    rows: int = 1
    rolls_back: bool = False


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A DDL adds a column to a table."""

    table: TableId
    column: Text = "added"


@dataclass(frozen=True, slots=True)
class DropTable:
    """A DDL drops a table."""

    table: TableId


@dataclass(frozen=True, slots=True)
class Repartition:
    """A user wants another number of partitions: all tables stop, Admin events are written, all go on."""

    partitions: int


_NOT_OF_THE_PIPELINE = ("ddl", "add_table", "drop_table")

EVENTS: dict[str, type] = {k: v for k, v in OF_SCHEDULER.items() if k not in _NOT_OF_THE_PIPELINE} | {
    "restart": Restart,
    "split": Split,
    "merge": Merge,
    "transfer_leader": TransferLeader,
    "slow_sink": SlowSink,
    "standing_sink": StandingSink,
    "long_transaction": LongTransaction,
    "add_column": AddColumn,
    "drop_table": DropTable,
    "repartition": Repartition,
}
