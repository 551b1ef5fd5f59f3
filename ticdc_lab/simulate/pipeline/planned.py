"""What a scenario of the pipeline can let happen, beside what every model and the table scheduler know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.pipeline import kv_messages as kv
from ticdc_lab.simulate.pipeline.downstream import Pace
from ticdc_lab.simulate.pipeline.keys import key_of
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.planned import Disk, EventKind, Lasting, Node, Planned, TableId, Text, table
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, WantPartitions
from ticdc_lab.simulate.scheduler.planned import EVENTS as OF_SCHEDULER

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


def _restarted(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    if what.disk is not None and (what.keep_state or not what.node.startswith("tikv-")):
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a `disk` of a store that begins anew; found one of {what.node}.",
            hint="Leave `disk` out: a capture has none, and who keeps its state does not read it.",
        )
    yield kernel.Restart(event.at_us, what.node, what.keep_state, what.disk or kernel.KEPT)


def _of_stores(event: Planned, scenario: Scenario, command: Any) -> Iterator[kernel.Fault]:
    """Ask every store: the one that leads the region does it."""
    for i in range(scenario.cluster.stores):
        yield kernel.Ask(event.at_us, f"tikv-{i + 1}", command)


def paced(
    rows_per_s: int, for_us: int | None, event: Planned, scenario: Scenario, node: str = DOWNSTREAM
) -> Iterator[kernel.Fault]:
    """Let a downstream take no more than so many rows a second, for a while or for good."""
    yield kernel.Ask(event.at_us, node, Pace(rows_per_s))
    if for_us is not None:
        yield kernel.Ask(event.at_us + for_us, node, Pace(scenario.settings.downstream.rows_per_s))


_NOT_OF_THE_PIPELINE = ("ddl", "add_table", "drop_table", "move_maintainer", "split_table", "merge_spans")

EVENTS: dict[str, type] = {k: v for k, v in OF_SCHEDULER.items() if k not in _NOT_OF_THE_PIPELINE} | table(
    {
        "restart": EventKind(
            "A crashed node comes back; a store with its disk, with all of it but a torn last write, or without it.",
            {"node": Node, "keep_state": (bool, False), "disk": (Disk | None, None)},
            _restarted,
        ),
        "split": EventKind(
            "The region that contains a row of a table is divided there.",
            {"table": TableId, "handle": (int, 50)},
            lambda w, e, s: _of_stores(e, s, kv.Split(key_of(w.table, w.handle))),
        ),
        "merge": EventKind(
            "The region that contains a row of a table is united with the one behind it.",
            {"table": TableId, "handle": (int, 1)},
            lambda w, e, s: _of_stores(e, s, kv.Merge(key_of(w.table, w.handle))),
        ),
        "transfer_leader": EventKind(
            "The region that contains a row of a table is led by another store from now on.",
            {"table": TableId, "to": Node, "handle": (int, 1)},
            lambda w, e, s: _of_stores(e, s, kv.TransferLeader(key_of(w.table, w.handle), w.to)),
        ),
        "slow_sink": EventKind(
            "The downstream takes no more than so many rows a second, for a while or for good.",
            {"rows_per_s": int, "for_us": (Lasting | None, None)},
            lambda w, e, s: paced(w.rows_per_s, w.for_us, e, s),
        ),
        "standing_sink": EventKind(
            "The downstream takes nothing for a while.",
            {"for_us": Lasting},
            lambda w, e, s: paced(0, w.for_us, e, s),
        ),
        "long_transaction": EventKind(
            "A transaction locks some new rows of a table and is committed, or rolled back, only after a while.",
            {"table": TableId, "hold_us": Lasting, "rows": (int, 1), "rolls_back": (bool, False)},
        ),
        "add_column": EventKind("A DDL adds a column to a table.", {"table": TableId, "column": (Text, "added")}),
        "drop_table": EventKind("A DDL drops a table.", {"table": TableId}),
        "repartition": EventKind(
            "A user wants another number of partitions: all tables stop, Admin events are written, all resume.",
            {"partitions": int},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, WantPartitions(w.partitions))],
        ),
    }
)
