"""The pipelines of a processor."""

from __future__ import annotations

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.scheduler.executor import (
    STEADY,
    Executor,
    added,
    checkpoint_of,
    freed,
    promoted,
    settled,
    stuck,
)


def test_a_sink_that_is_stuck_before_it_writes_stands_where_it_begins() -> None:
    """Found by seed 285 of the swarm of v3: it stayed where it was prepared, below what the primary had written."""
    executor, _ = added(Executor(STEADY, ts_of(9_000_000)), 1, ts_of(0), 0, "", primary=False)
    executor, _ = settled(executor, 1_000_000)
    executor = stuck(executor, 1, 1_000_000)
    executor, _ = promoted(executor, 1, ts_of(2_000_000), 2_500_000, "")
    assert checkpoint_of(executor, 1, 4_000_000) == ts_of(2_000_000)
    assert checkpoint_of(freed(executor, 1, 5_000_000), 1, 5_000_000) == ts_of(2_000_000)
