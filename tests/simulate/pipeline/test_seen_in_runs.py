"""What pictures show of a run: it adds up with what the run counted, and nothing is blamed that is not at fault."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest

from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.samples import SeenRun, chains, families_in, seen_in
from ticdc_lab.simulate.pipeline.settings import MQ, RULES, CaptureSettings, PipelineSettings
from ticdc_lab.simulate.pipeline.tables import key_of
from ticdc_lab.simulate.pipeline.tryout import (
    FAULTS,
    LONG_KEY,
    MEMORY_ROWS,
    SAMPLE_US,
    changes_told,
    design_example,
    shop,
    transactions,
)
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler

UNTIL_US = 10_000_000


@cache
def ran(rule: str) -> PipelineRun:
    """A long transaction from 3 to 5 s, a sink that stops from 6 to 7.5 s, a DDL at 8 s."""
    settings = PipelineSettings(
        Scheduler(captures=2), capture=CaptureSettings(rule=rule, sorter_memory_rows=MEMORY_ROWS)
    )
    load = shop(long_us=2_000_000, until_us=UNTIL_US - 1_500_000, ddl_us=8_000_000)
    stops = FAULTS["the sink takes nothing for 3 s"](6_000_000)
    stops = [stops[0], stops[1]._replace(at_us=7_500_000)]
    return simulate(settings, load, faults=stops, until_us=UNTIL_US, sample_us=SAMPLE_US)


@cache
def looked_at(rule: str) -> SeenRun:
    """Its tables."""
    return seen_in(ran(rule).snapshots)


def total(rows: pa.Table, stage: str) -> int:
    """Sum a stage."""
    return sum(r["rows"] for r in rows.to_pylist() if r["stage"] == stage)


@pytest.mark.parametrize("rule", RULES)
def test_flow_is_what_was_delivered(rule: str) -> None:
    """Every row that was committed goes through every stage once."""
    for stage in ("tikv", "puller", "sorter", "mounter", "sink"):
        assert total(looked_at(rule).flow, stage) == ran(rule).measures.delivered == ran(rule).measures.committed, stage


@pytest.mark.parametrize("rule", RULES)
def test_who_held_the_checkpoint(rule: str) -> None:
    """The lock, then a sink, then the DDL; for the time in which they did, and not before."""
    held = {c.time_us: c for c in chains(looked_at(rule).watermarks)}
    lock = [t for t, c in held.items() if c.leaf.level == "lock"]
    assert min(lock) > 3_000_000 and 4_800_000 < max(lock) < 5_400_000 and len(lock) > 14
    assert {held[t].leaf.name for t in lock} == {"a lock on t102_r900"}
    assert {held[t].leaf.since_us // 1000 for t in lock} == {3000}
    stopped = [c.leaf.level for t, c in held.items() if 6_400_000 < t < 7_400_000]
    assert set(stopped) == {"sink"}
    assert {t for t, c in held.items() if c.leaf.level == "barrier"} <= set(range(8_000_000, 8_800_000, 100_000))


def test_without_the_lock_the_checkpoint_would_be_recent() -> None:
    """All others were within half a second."""
    for c in chains(looked_at("base").watermarks, of="resolved"):
        if c.leaf.level == "lock":
            others = [m.resolved_ts for m in c.marks[:-1] if m.resolved_ts]
            assert c.without_ts > max(others) and c.ts is not None and c.without_ts >= c.ts


def test_only_the_locked_table_waits_under_the_mq_rule() -> None:
    """Base: all three sorters fill; MQ: customers' alone, and there is no global resolved ts."""
    filled = {}
    for rule in RULES:
        rows = [r for r in looked_at(rule).queues.to_pylist() if r["time_us"] < 6_000_000 and r["stage"] == "disk"]
        filled[rule] = {r["name"] for r in rows if r["rows"]}
    assert filled == {"base": {"shop.orders", "shop.customers", "shop.stock"}, "mq": {"shop.customers"}}
    roots = [r for r in looked_at(MQ).watermarks.to_pylist() if r["level"] == "global" and r["time_us"] > 1_000_000]
    assert roots and all(r["resolved_ts"] is None and r["checkpoint_ts"] for r in roots)


def test_a_lock_in_the_column_families_is_the_one_in_the_tree() -> None:
    """Locked, with its value in default, until the write record is there."""
    rows = {r["cf"]: r for r in families_in(ran("base").snapshots, [LONG_KEY]).to_pylist()}
    assert rows["lock"]["start_ts"] == rows["default"]["ts"] == rows["write"]["start_ts"]
    assert rows["lock"]["to_us"] == rows["write"]["from_us"] and rows["default"]["to_us"] is None


def test_the_designs_example_is_scanned_and_streamed() -> None:
    """One committed row and one lock from the scan, the commit of the second from the stream, each once."""
    settings, load = design_example()
    run = simulate(settings, load, until_us=4_000_000)
    own = transactions(run.changes).to_pylist()
    given = changes_told(run.trace, keys=[key_of(104, 1), key_of(104, 2)]).to_pylist()
    first, second = (t["start_ts"] for t in own)
    rows = [(r["by"], r["type"], r["start_ts"]) for r in given if r["type"] != "initialized"]
    assert rows == [("scan", "committed", first), ("scan", "prewrite", second), ("stream", "commit", second)]
    assert own[0]["commit_ts"] < own[1]["commit_ts"] and given[0]["asked_us"] > 1_600_000
