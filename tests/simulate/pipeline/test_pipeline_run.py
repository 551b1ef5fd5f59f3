"""The whole pipeline: what was committed in TiKV comes downstream, no matter what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc
import pytest
from exploring import seeds
from planted_pipeline import (
    DDL_BEFORE_BARRIER,
    DROPS_EARLY_COMMIT,
    EMITS_UNRESOLVED,
    FORGETS_PART,
    FROM_NOW,
    FRONTIER_MAX,
    SENT_IS_WRITTEN,
    planted,
)

from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Lose, Part, Pause, Restart
from ticdc_lab.simulate.pipeline.downstream import DdlEntry, Pace, Rows
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, PUT, Merge, Mutation, Split, TransferLeader
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.settings import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    BASE,
    BY_DEDUPLICATION,
    BY_SNAPSHOT,
    MQ,
    SEMANTICS,
    CaptureSettings,
    DownstreamSettings,
    PipelineSettings,
    TikvSettings,
)
from ticdc_lab.simulate.pipeline.tables import Change, Column, FinishedJob, Raw, TableInfo, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.simulate.scheduler.roles import MoveTable
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler

COLUMNS = (Column(1, "id", "bigint", True), Column(2, "v", "varchar"))
TABLES = tuple(TableInfo(100 + i, "s", f"t{i}", COLUMNS) for i in range(4))
WIDER = TABLES[0]._replace(columns=(*COLUMNS, Column(3, "extra", "int", False, 5)))
SECOND = 1_000_000


def steady(transactions: int = 600, every_us: int = 10_000) -> tuple[ClientTxn, ...]:
    """Give transactions over all tables: inserts, updates and deletes of sixty rows each."""
    found = []
    for n in range(transactions):
        table, handle = 100 + n % 4, n // 4 % 60 * 11  # on both sides of where the regions meet
        one = Mutation(key_of(table, handle), PUT, Raw((1, 2), (handle, f"v{n}")))
        gone = n // 240 % 2 == 1 and n % 3 == 0
        other = key_of(100 + (n + 1) % 4, 100 + n)
        mutations = (
            one._replace(op=DELETE, value=None) if gone else one,
            Mutation(other, PUT, Raw((1, 2), (100 + n, "x"))),
        )
        found.append(ClientTxn(20_000 + n * every_us, 0, mutations))
    return tuple(found)


LOAD = Load(TABLES, steady())


def ddl_load() -> Load:
    """Give a load whose first table gets a column at 3 s, and whose last is dropped at 5 s."""
    jobs = (
        (
            3 * SECOND,
            FinishedJob(1, "add column", "ALTER TABLE s.t0 ADD COLUMN extra INT DEFAULT 5", "s", "t0", None, WIDER),
        ),
        (5 * SECOND, FinishedJob(2, "drop table", "DROP TABLE s.t3", "s", "t3", 103, None)),
    )
    found = []
    for txn in steady():
        kept = [m for m in txn.mutations if txn.start_us < 5 * SECOND or m.key >> 40 != 103]
        wide = [
            m._replace(value=Raw((1, 2, 3), (*m.value.cells, 7)))
            if m.value and m.key >> 40 == 100 and txn.start_us > 3 * SECOND
            else m
            for m in kept
        ]
        if wide:
            found.append(txn._replace(mutations=tuple(wide)))
    return Load(TABLES, tuple(found), jobs)


def run(
    load: Load = LOAD, *, until_us: int = 12 * SECOND, captures: int = 2, variant: str = "v2", **more: Any
) -> PipelineRun:
    """Run with a few settings by their names."""
    own = {k: more.pop(k) for k in list(more) if k in CaptureSettings.__dataclass_fields__}
    created_us = more.pop("created_us", 0)
    downstream, tikv = more.pop("downstream", DownstreamSettings()), more.pop("tikv", TikvSettings())
    settings = PipelineSettings(
        Scheduler(captures=captures, variant=variant), tikv, CaptureSettings(**own), downstream, created_us=created_us
    )
    return simulate(settings, load, until_us=until_us, **more)


def delivered(found: PipelineRun) -> list[Change]:
    """Give what can be seen downstream, in the order of arrival."""
    return [c for e in found.entries if isinstance(e, Rows) for c in e.changes]


def in_order(changes: Sequence[Change]) -> list[Change]:
    """Sort as the truth is sorted."""
    return sorted(changes, key=lambda c: (c.commit_ts, c.key))


def final(changes: Sequence[Change]) -> dict[int, Any]:
    """Apply changes one after another; each overwrites."""
    rows: dict[int, Any] = {}
    for change in changes:
        rows[change.key] = change.after
    return {k: v for k, v in rows.items() if v is not None}


def assert_whole(found: PipelineRun) -> None:
    """Everything came, nothing that was promised is broken, and the checkpoint is near the end."""
    assert found.violation is None
    assert not found.monitor.owed
    assert {(c.commit_ts, c.key) for c in delivered(found)} == {(c.commit_ts, c.key) for c in found.changes}
    assert found.until_us - us_of(found.checkpoint_ts) < 2 * SECOND


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
@pytest.mark.parametrize("rule", [BASE, MQ])
def test_without_faults_the_downstream_has_exactly_what_was_committed(variant, rule):
    """Row by row with both images, once, no matter what protocol dispatches the tables."""
    found = run(variant=variant, rule=rule)
    assert_whole(found)
    assert in_order(delivered(found)) == found.changes
    assert found.measures.repeated == 0


def test_rows_committed_before_the_changefeed_come_from_the_scan_and_none_of_them_twice():
    """The start is in the middle of the load."""
    found = run(created_us=3 * SECOND)
    assert 0 < len(found.changes) < len(run().changes)
    assert in_order(delivered(found)) == found.changes
    assert min(c.commit_ts for c in found.changes) > found.start_ts


def test_a_changefeed_can_start_in_the_past():
    """Its scan finds what was committed since, also versions that were overwritten."""
    past = run(created_us=3 * SECOND)
    settings = PipelineSettings(Scheduler(captures=2), start_ts=run().start_ts, created_us=3 * SECOND)
    found = simulate(settings, LOAD, until_us=12 * SECOND)
    assert in_order(delivered(found)) == found.changes
    assert len(found.changes) > len(past.changes)


@pytest.mark.parametrize("semantics", SEMANTICS)
@pytest.mark.parametrize("seed", seeds([0], of=range(3)))
def test_chaos_breaks_no_promise_and_all_is_well_once_it_ends(semantics, seed):
    """Crashes, pauses, partitions and clocks of captures and stores."""
    chaos = Chaos(8 * SECOND, every_us=SECOND)
    found = run(captures=3, semantics=semantics, seed=seed, chaos=chaos, until_us=20 * SECOND)
    assert found.violation is None
    changes = delivered(found)
    if semantics == AT_MOST_ONCE:
        assert len(changes) == len({(c.commit_ts, c.key) for c in changes})
    else:
        assert_whole(found)
        assert final(changes) == final(found.changes)
    if semantics in (BY_DEDUPLICATION, BY_SNAPSHOT):
        assert in_order(changes) == found.changes


@pytest.mark.parametrize("semantics", SEMANTICS)
def test_a_capture_that_crashes_repeats_loses_or_neither_as_the_semantics_say(semantics):
    """Architecture model, section 6, case 2; the sink is slow enough that rows are under way."""
    faults = [Crash(2 * SECOND, "capture-1"), Restart(4 * SECOND, "capture-1")]
    found = run(semantics=semantics, faults=faults, downstream=DownstreamSettings(rows_per_s=250), until_us=20 * SECOND)
    assert found.violation is None
    changes = delivered(found)
    missing = {(c.commit_ts, c.key) for c in found.changes} - {(c.commit_ts, c.key) for c in changes}
    repeated = len(changes) - len({(c.commit_ts, c.key) for c in changes})
    expected = {AT_MOST_ONCE: (True, False), AT_LEAST_ONCE: (False, True)}.get(semantics, (False, False))
    assert (bool(missing), bool(repeated)) == expected
    if semantics != AT_MOST_ONCE:
        assert final(changes) == final(found.changes)


def test_an_older_version_that_was_lost_on_the_way_takes_the_newer_ones_with_it():
    """One write is lost for good and those behind it are acknowledged: all of them are written again, in order."""
    versions = [Mutation(key_of(100, 5), PUT, Raw((1, 2), (5, f"v{n}"))) for n in range(100)]
    hot = Load(TABLES, tuple(ClientTxn(20_000 + n * 20_000, 0, (one,)) for n, one in enumerate(versions)))
    found = run(hot, faults=[Lose(1_900_000, "Write", to="downstream")], sink_batch_rows=1, until_us=8 * SECOND)
    assert_whole(found)
    assert found.measures.repeated
    assert final(delivered(found)) == final(found.changes)


def test_a_capture_that_ended_by_itself_and_is_resumed_with_its_state_ends_again():
    """Its session is over; it writes nothing and its streams are gone already."""
    faults = [Part(SECOND, "capture-1", "etcd", for_us=8 * SECOND), Restart(5_400_000, "capture-1", keep_state=True)]
    found = run(faults=faults, until_us=20 * SECOND)
    ends = [r for r in found.kernel.recorder.rows if r.kind == "crashed" and r.node.startswith("capture-1")]
    assert len(ends) >= 2
    assert_whole(found)


def test_regions_that_change_their_leader_split_and_merge_lose_nothing():
    """Architecture model, section 6, case 1."""
    key = key_of(101, 30)
    faults = [
        *(Ask(2 * SECOND, s, Split(key)) for s in ("tikv-1", "tikv-2", "tikv-3")),
        *(Ask(3 * SECOND, s, TransferLeader(key_of(100, 5), "tikv-3")) for s in ("tikv-1", "tikv-2")),
        *(Ask(5 * SECOND, s, Merge(key_of(101, 5))) for s in ("tikv-1", "tikv-2", "tikv-3")),
    ]  # fmt: skip
    found = run(faults=faults)
    assert_whole(found)
    changed = [r.subject for r in found.kernel.recorder.rows if r.kind == "changed" and r.node.startswith("tikv")]
    assert any(s.startswith("region:") for s in changed)


def test_a_table_that_is_moved_goes_on_where_it_was():
    """The scheduler's protocol moves it."""
    faults = [Ask(2 * SECOND, f"capture-{n}", MoveTable(100, "capture-2")) for n in (1, 2)]
    found = run(faults=faults)
    assert_whole(found)
    writers = {e.writer for e in found.entries if isinstance(e, Rows) for c in e.changes if c.info.id == 100}
    assert "capture-2" in writers


@pytest.mark.parametrize("variant", ["v3", "v4"])
def test_snapshots_show_nothing_twice_when_the_new_writer_is_lost_before_the_checkpoint_came_to_its_start(variant):
    """A long transaction of another table holds the checkpoint while tables move and their new capture crashes."""
    long = ClientTxn(SECOND, 5 * SECOND, (Mutation(key_of(103, 999), PUT, Raw((1, 2), (999, "long"))),))
    load = Load(TABLES, tuple(sorted([*LOAD.transactions, long], key=lambda t: t.start_us)))
    moves = [Ask(3 * SECOND, f"capture-{n}", MoveTable(t, "capture-3")) for t in (100, 101) for n in (1, 2, 3)]
    faults = [*moves, Crash(3_800_000, "capture-3"), Restart(4_800_000, "capture-3")]
    found = run(load, captures=3, variant=variant, rule=MQ, semantics=BY_SNAPSHOT, faults=faults, until_us=20 * SECOND)
    assert_whole(found)
    assert in_order(delivered(found)) == found.changes


@pytest.mark.parametrize("rule", [BASE, MQ])
@pytest.mark.parametrize("faults", [[], [Crash(2_990_000, "capture-1"), Restart(4 * SECOND, "capture-1")]])
def test_a_ddl_stands_between_the_rows_before_and_after_it(rule, faults):
    """Rows have the columns of their commit_ts; under the base rule no later row comes before the DDL."""
    found = run(ddl_load(), rule=rule, faults=faults, until_us=20 * SECOND)
    assert_whole(found)
    ddls = [e for e in found.entries if isinstance(e, DdlEntry)]
    assert list(dict.fromkeys(e.job.id for e in ddls)) == [1, 2]
    added_ts = ddls[0].ts
    for change in delivered(found):
        if change.info.id == 100:
            assert (len(change.info.columns) == 3) == (change.commit_ts > added_ts)
    if rule == BASE and not faults:
        seen = found.entries.index(ddls[0])
        before = [c.commit_ts for e in found.entries[:seen] if isinstance(e, Rows) for c in e.changes]
        assert max(before) <= added_ts
    assert {c.op for c in found.changes} == {"insert", "update", "delete"}


def test_a_row_that_was_written_before_a_column_came_has_its_default_in_the_image_before():
    """The value in TiKV is older than the column."""
    found = run(ddl_load(), until_us=20 * SECOND)
    old = [c for c in delivered(found) if c.info == WIDER and c.before and c.before[2] == 5]
    assert old


def test_a_sorter_with_little_memory_spills_and_gives_the_same():
    """A sink that stalls for a while makes rows wait."""
    stop = [Ask(SECOND, "downstream", Pace(0)), Ask(5 * SECOND, "downstream", Pace(None))]
    little = run(faults=stop, sorter_memory_rows=10, rule=BASE)
    assert_whole(little)
    assert in_order(delivered(little)) == little.changes


def test_a_long_transaction_holds_the_checkpoint_and_nothing_else_does():
    """Resolved_ts stays below its start_ts until it commits."""
    long = ClientTxn(SECOND, 5 * SECOND, (Mutation(key_of(100, 999), PUT, Raw((1, 2), (999, "long"))),))
    load = Load(TABLES, tuple(sorted([*LOAD.transactions, long], key=lambda t: t.start_us)))
    held = run(load, until_us=4 * SECOND)
    free = run(until_us=4 * SECOND)
    assert (held.checkpoint_ts - held.start_ts) >> 18 < 1010
    assert (free.checkpoint_ts - free.start_ts) >> 18 > 3000
    assert_whole(run(load))


def test_the_same_seed_gives_the_same_run_byte_for_byte():
    """With faults, and another seed gives another one."""
    chaos = Chaos(4 * SECOND, every_us=SECOND)
    first, again, other = (run(seed=s, chaos=chaos, until_us=6 * SECOND) for s in (5, 5, 6))
    assert first.trace.equals(again.trace)
    assert first.log.equals(again.log)
    assert not first.trace.equals(other.trace)


def test_a_run_again_with_another_fault_is_the_same_world_up_to_it():
    """Rows of the trace before the moment are the same."""
    first = run(until_us=6 * SECOND)
    other = first.again(3 * SECOND, [Crash(3 * SECOND, "capture-1")])
    early = pc.less(first.trace["time_us"], 3 * SECOND)
    assert first.trace.filter(early).equals(other.trace.filter(pc.less(other.trace["time_us"], 3 * SECOND)))
    assert first.trace.num_rows != other.trace.num_rows
    with pytest.raises(ValueError, match="lies before"):
        first.again(3 * SECOND, [Crash(2 * SECOND, "capture-1")])


CRASHES = [Crash(2 * SECOND, "capture-1"), Restart(3 * SECOND, "capture-1")]
SLOW = DownstreamSettings(rows_per_s=140)
SPLITS = [Ask(t * SECOND, s, Split(key_of(100 + t, 30))) for t in (1, 2, 3) for s in ("tikv-1", "tikv-2", "tikv-3")]
PAUSES = [Pause(t * SECOND + 3_000 * t, "tikv-1", 700_000) for t in range(1, 6)]
HELD = Load(
    TABLES, (ClientTxn(15_000, 3 * SECOND, (Mutation(key_of(100, 650), PUT, Raw((1, 2), (650, "held"))),)), *steady())
)
SLOW_SCAN = TikvSettings(scan_rows_per_s=200, scan_batch=4)
PLANTED = {
    FRONTIER_MAX: {"faults": PAUSES},
    FORGETS_PART: {"faults": SPLITS},
    DROPS_EARLY_COMMIT: {"created_us": 2 * SECOND, "tikv": SLOW_SCAN},
    FROM_NOW: {"faults": SPLITS},
    EMITS_UNRESOLVED: {"rule": MQ},
    SENT_IS_WRITTEN: {"faults": CRASHES, "downstream": SLOW, "until_us": 20 * SECOND},
    DDL_BEFORE_BARRIER: {"load": ddl_load()},
    "ignores_locks": {},
    "scan_misses_locks": {"load": HELD, "created_us": 2 * SECOND},
    "streams_after_scan": {"created_us": 2 * SECOND, "tikv": SLOW_SCAN},
    "keeps_streams_at_split": {"faults": SPLITS},
}  # fmt: skip
"""Bugs, and a run in which each shows; the ones of owners and of stopping tables are in ``capture/``."""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught_by_the_auditor_or_leaves_rows_behind_or_repeats_without_a_fault(bug):
    """The same run without it is whole, and repeats nothing where there is no fault."""
    given = dict(PLANTED[bug])
    load = given.pop("load", LOAD)
    caught = []
    for seed in range(6):
        with planted(bug):
            found = run(load, seed=seed, **given)
        if found.violation or found.monitor.owed or (not given.get("faults") and found.measures.repeated):
            caught.append(seed)
            break
    assert caught
    healthy = run(load, seed=caught[0], **given)
    assert_whole(healthy)
    assert given.get("faults") or not healthy.measures.repeated
