"""What can be set of the two-phase scheduler; defaults as TiCDC has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.scheduler.executor import STEADY, TablePace


class TableRegion(NamedTuple):
    """A region of TiKV below a table: ``start <= key < end``, and the keys written to it of late."""

    start: str
    end: str
    written_keys: int = 0


@dataclass(frozen=True, slots=True)
class V3Settings:
    """Settings of coordinator and agent; durations in µs.

    Attributes
    ----------
    version
        Of this node, sent in every header.
    changefeed_epoch
        Messages of another epoch are void; None is a node too old to know of epochs.
    heartbeat_ticks
        Every how many ticks the owner asks all captures (heartbeat-tick).
    collect_stats_ticks
        Every how many ticks the next heartbeat asks for statistics too (collect-stats-tick).
    max_task_concurrency
        So many spans at most have a task other than a burst (max-task-concurrency).
    add_table_batch_size
        So many spans at most are added in one tick (add-table-batch-size).
    check_balance_us
        So long after a look that found nothing to move the balance is looked at again (check-balance-interval).
    pace
        How fast a processor's pipelines are.
    table_across_nodes
        Whether tables are split into spans (enable-table-across-nodes).
    region_threshold
        Only a table of more regions is split (region-threshold).
    write_key_threshold
        Split by written keys where at least so many were written; 0 is off (write-key-threshold).
    regions
        By table, sorted by key: what the splitters see of the upstream.
    """

    version: str = "v8.5.0"
    changefeed_epoch: int | None = 1
    heartbeat_ticks: int = 2
    collect_stats_ticks: int = 200
    max_task_concurrency: int = 10
    add_table_batch_size: int = 50
    check_balance_us: int = 60_000_000
    pace: TablePace = STEADY
    table_across_nodes: bool = False
    region_threshold: int = 100_000
    write_key_threshold: int = 0
    regions: Mapping[int, tuple[TableRegion, ...]] = Map()
