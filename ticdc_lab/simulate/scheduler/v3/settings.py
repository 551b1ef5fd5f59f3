"""What can be set of the two-phase scheduler; defaults as TiCDC has them."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.simulate.scheduler.executor import STEADY, TablePace


@dataclass(frozen=True)
class V3Settings:
    """Settings of coordinator and agent; durations in µs."""

    version: str = "v8.5.0"  # of this node, sent in every header
    changefeed_epoch: int | None = 1  # messages of another epoch are void; None is a node too old to know of epochs
    heartbeat_ticks: int = 2  # every how many ticks the owner asks all captures (heartbeat-tick)
    # Every how many ticks the next heartbeat asks for statistics too (collect-stats-tick).
    collect_stats_ticks: int = 200
    max_task_concurrency: int = 10  # so many spans at most have a task other than a burst (max-task-concurrency)
    add_table_batch_size: int = 50  # so many spans at most are added in one tick (add-table-batch-size)
    # So long after a look that found nothing to move the balance is looked at again (check-balance-interval).
    check_balance_us: int = 60_000_000
    pace: TablePace = STEADY  # how fast a processor's pipelines are
