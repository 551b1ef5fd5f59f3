"""Watermarks at every level, rows in every stage, the history of a key: from facts made by hand."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pipeline_samples import BARRIER, END, EVERY, FREE, KEY, LOCKED, MEMORY, MS, RATES, SLOW, entries, sample, story

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.simulate.pipeline.samples import (
    FAMILIES,
    FLOW,
    LEVELS,
    QUEUES,
    REGIONS,
    STAGES,
    WATERMARKS,
    chain,
    chains,
    families,
    flow,
    marks,
    seen,
)
from ticdc_lab.simulate.scheduler.executor import MAX_TS


def total(table: pa.Table, stage: str, of: int | None = None) -> int:
    """Sum the rows of a stage."""
    rows = [r["rows"] for r in table.to_pylist() if r["stage"] == stage and of in (None, r["table"])]
    return sum(rows)


def test_levels_stand_below_each_other() -> None:
    """Global, processor, table, region, lock: each path begins with its parent's, except below the root."""
    found = {m.path: m for m in marks(sample(2_000 * MS))}
    lock = f"capture-2/table 102/region 21/lock {ts_of(LOCKED)}"
    assert found[lock].level == "lock" and found[lock].resolved_ts == ts_of(LOCKED)
    assert found[lock].name == "a lock on t102_r7 and 1 more" and found[lock].since_us == LOCKED
    assert {m.level for m in found.values()} == {"global", "processor", "ddl", "table", "region", "lock"}
    for mark in found.values():
        assert mark.level in LEVELS
        assert not mark.parent or mark.parent in found
        assert mark.parent in ("", "changefeed") or mark.path.startswith(mark.parent + "/")


def test_sink_and_barrier_are_leaves() -> None:
    """A sink with rows under way holds its table since then; a job of the owner holds the changefeed."""
    slow = {m.path: m for m in marks(sample(5_000 * MS))}["capture-1/table 103/sink"]
    assert (slow.level, slow.checkpoint_ts, slow.since_us) == ("sink", ts_of(SLOW), SLOW)
    ddl = [m for m in marks(sample(5_600 * MS)) if m.level == "barrier"]
    assert [(m.parent, m.resolved_ts, m.state) for m in ddl] == [("changefeed", ts_of(BARRIER), "executing")]


def test_without_a_limit_global_has_no_resolved_ts() -> None:
    """The MQ rule publishes the largest number, which is no moment."""
    root = marks(sample(2_000 * MS)._replace(resolved_ts=MAX_TS))[0]
    assert root.resolved_ts is None and "no limit" in root.state
    assert chain(seen([sample(2_000 * MS)._replace(resolved_ts=MAX_TS)]).watermarks, at_us=END) is not None


def test_the_chain_ends_at_the_lock() -> None:
    """The checkpoint waits for the global resolved ts, which the transaction holds; without it 50 ms are missing."""
    held = chain(story().watermarks, at_us=2_500 * MS)
    assert (
        held is not None and held.leaf.level == "lock" and held.leaf.path.startswith("capture-2/table 102/region 21/")
    )
    assert [m.level for m in held.marks[-4:]] == ["processor", "table", "region", "lock"]
    assert held.since_us == LOCKED and held.ts == ts_of(LOCKED)
    assert us_of(held.without_ts) == 2_450 * MS
    resolved = chain(story().watermarks, at_us=2_500 * MS, of="resolved")
    assert resolved is not None and resolved.leaf == held.leaf


@pytest.mark.parametrize(("at_ms", "level"), [(2_000, "lock"), (4_800, "sink"), (5_700, "barrier"), (3_600, "region")])
def test_the_leaf_is_the_cause(at_ms: int, level: str) -> None:
    """A lock, a slow sink, a DDL; otherwise just the slowest region."""
    held = chain(story().watermarks, at_us=at_ms * MS)
    assert held is not None and held.leaf.level == level


def test_a_young_lock_holds_nothing() -> None:
    """The region's resolved ts is far behind the start of the transaction: something else keeps it there."""
    now = sample(1_000 * MS)
    late = [
        c._replace(
            tables=tuple(t._replace(streams=tuple(s._replace(resolved_ts=1) for s in t.streams)) for t in c.tables)
        )
        for c in now.captures
    ]
    held = chain(seen([now._replace(captures=tuple(late))]).watermarks, at_us=END, of="resolved")
    assert held is not None and held.leaf.level == "region"


def test_since_when_is_the_first_sample_of_the_stretch() -> None:
    """Where the leaf does not know it: a barrier from the sample on in which it holds."""
    held = chain(story().watermarks, at_us=5_700 * MS)
    assert held is not None and BARRIER <= held.since_us <= BARRIER + EVERY
    assert len(chains(story().watermarks)) == END // EVERY + 1


def test_stages_hold_what_was_received() -> None:
    """Received is what waits in the stages and what was written, in every sample and table."""
    last = [r for r in story().queues.to_pylist() if r["time_us"] == 2_900 * MS and r["table"] == 101]
    assert [(r["stage"], r["rows"]) for r in last] == [
        ("puller", 0), ("sorter", MEMORY), ("disk", 900), ("mounter", 0), ("sink", 0),
    ]  # fmt: skip
    assert {r["stage"] for r in story().queues.to_pylist()} == set(STAGES)


def test_flow_adds_up() -> None:
    """What went through the stages in all intervals is what was received and written in the end."""
    rows = story().flow
    for table, rate in RATES.items():
        assert total(rows, "tikv", table) == total(rows, "puller", table) == rate * (END // EVERY)
        assert total(rows, "sink", table) == rate * (END // EVERY) - rate
    held = rows.filter(pc.and_(pc.greater(rows["time_us"], LOCKED + EVERY), pc.less(rows["time_us"], FREE)))
    assert total(held, "sorter") == 0


def test_a_new_pipeline_counts_from_its_beginning() -> None:
    """After a crash the counters are small again: nothing negative, nothing lost."""
    first, again = sample(2_000 * MS), sample(500 * MS)._replace(at_us=2_100 * MS)
    rows = flow([first, again])
    later = rows.filter(pc.equal(rows["time_us"], 2_100 * MS))
    assert min(later["rows"].to_pylist()) >= 0 and total(later, "puller", 101) == 5 * RATES[101]


def test_the_history_of_a_key() -> None:
    """Default and write appear, then a lock with its value; the lock goes when the write record comes."""
    rows = families(entries()).to_pylist()
    assert [(r["cf"], r["from_us"] // MS, r["to_us"]) for r in rows] == [
        ("default", 500, None), ("write", 500, None), ("lock", 1000, FREE), ("default", 1000, None),
        ("write", 3000, None),
    ]  # fmt: skip
    assert rows[3]["value"] == "7, Jan Su" and rows[4]["value"] is None and rows[0]["key"] == KEY


def test_nothing_seen_gives_empty_tables() -> None:
    """With their columns."""
    nothing = seen([])
    schemas = [t.schema for t in nothing]
    assert schemas == [WATERMARKS, QUEUES, FLOW, REGIONS] and not any(len(t) for t in nothing)
    assert families([]).schema == FAMILIES and chains(nothing.watermarks) == []
