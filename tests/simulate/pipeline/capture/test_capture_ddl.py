"""DDL: a barrier for rows, executed when the checkpoint has come to it; rows are mounted as of their commit."""

from __future__ import annotations

import pytest
from scripted import MS, Txn, World, ddl, history, info, regions, row, told, truth

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Crash
from ticdc_lab.simulate.pipeline.settings import BASE, MQ, CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import Execute, Resolved, Write
from ticdc_lab.simulate.pipeline.tables import Column, FinishedJob, TableInfo, key_of, table_of

T1, T2, T3 = info(1), info(2), info(3)
WIDER = TableInfo(1, "test", "t1", (*T1.columns, Column(3, "c3", "bigint", False, 7)))
RENAMED = TableInfo(1, "test", "other", WIDER.columns)
MOVED = TableInfo(1, "test", "other", (WIDER.columns[0], WIDER.columns[2]))
ADD = FinishedJob(1, "add column", "alter table t1 add c3", "test", "t1", info=WIDER)
RENAME = FinishedJob(2, "rename table", "rename t1", "test", "other", info=RENAMED)
DROP_COLUMN = FinishedJob(3, "drop column", "alter table other drop c2", "test", "other", info=MOVED)
CREATE = FinishedJob(4, "create table", "create table t3", "test", "t3", info=T3)
DROP = FinishedJob(5, "drop table", "drop table t2", "test", "t2", dropped=2)
TRUNCATE = FinishedJob(6, "truncate table", "truncate table t2", "test", "t2", dropped=2, info=info(3, name="t2"))
LAYOUT = [(0, regions((1, 2, 3), ["tikv-1"]))]
MANY = [ddl(500, ADD), ddl(520, RENAME), ddl(1200, DROP_COLUMN), ddl(1500, CREATE)]


def third(from_ms, until_ms):
    """Rows of table 3, which is created while the changefeed runs."""
    return [Txn(ms * MS, ms * MS + 3000, ((key_of(3, ms), row(ms, ms), None),)) for ms in range(from_ms, until_ms, 9)]


@pytest.mark.parametrize("rule", [BASE, MQ])
def test_each_ddl_is_executed_once_in_order_when_every_row_before_it_is_downstream(rule):
    """And, by the base rule, before any row after it: the global resolved_ts does not pass it."""
    txns = [*history((1, 2), 2900), *MANY, *third(1501, 2900)]
    world = World((1, 2), txns, LAYOUT, audited=False, settings=CaptureSettings(rule=rule)).run(3500)
    assert world.end.violation is None
    executed = world.downstream.of(Execute)
    assert [e.job for e in executed] == [ADD, RENAME, DROP_COLUMN, CREATE]
    assert [e.finished_ts for e in executed] == [ts_of(ms * MS) for ms in (500, 520, 1200, 1500)]
    messages = [m for _, _, m in world.downstream.got]
    for e in executed:
        before = [c for m in messages[: messages.index(e)] if isinstance(m, Write) for c in m.changes]
        assert truth(txns, e.finished_ts) <= told(before)
        if rule == BASE:
            assert max(c.commit_ts for c in before) <= e.finished_ts
        resolved = [m.ts for m in messages[: messages.index(e)] if isinstance(m, Resolved)]
        assert resolved[-1] == e.finished_ts
    checkpoint_ts = world.state().checkpoint_ts
    assert checkpoint_ts > ts_of(3_000_000)
    assert truth(txns, checkpoint_ts) == told(world.downstream.changes())
    created = [c for c in world.downstream.changes() if table_of(c.key) == 3]
    assert len(created) > 100 and all(c.info is T3 for c in created)


def test_rows_are_mounted_with_the_table_as_of_their_commit():
    """Columns added later get their defaults, dropped ones vanish, ids that moved are found."""
    txns = [*history((1, 2), 2900), *MANY]
    world = World((1, 2), txns, LAYOUT, audited=False).run(3000)
    ends = [(500, T1), (520, WIDER), (1200, RENAMED), (9999, MOVED)]
    seen = set()
    for c in world.downstream.changes():
        if table_of(c.key) == 1:
            expected = next(t for ms, t in ends if c.commit_ts < ts_of(ms * MS))
            assert c.info == expected
            for image in (c.before, c.after):
                assert image is None or len(image) == len(expected.columns)
            if c.after is not None and len(c.after) == 3:
                assert c.after[2] == 7
            if expected is MOVED and c.after is not None:
                assert c.after[1] == 7
            assert (c.op == "insert") == (c.before is None) and (c.op == "delete") == (c.after is None)
            seen.add((expected.name, len(expected.columns), c.op))
    assert {op for _, _, op in seen} == {"insert", "update", "delete"}
    assert {(n, k) for n, k, _ in seen} == {("t1", 2), ("t1", 3), ("other", 3), ("other", 2)}


@pytest.mark.parametrize(("job", "new"), [(DROP, None), (TRUNCATE, 3)])
def test_a_table_that_is_dropped_or_truncated_ends_and_the_new_one_begins(job, new):
    """The old one's rows all come; the new one starts at the job's finished_ts."""
    early = history((1, 2), 900)
    late = history((1,), 2900)[len(early) + 20 :]
    txns = [*early, ddl(1000, job), *late, *(third(1002, 2900) if new else [])]
    world = World((1, 2), txns, LAYOUT, audited=False).run(3200)
    assert world.end.violation is None
    assert set(world.state().paths) == {1, new} - {None}
    assert truth(txns, world.state().checkpoint_ts) == told(world.downstream.changes())
    assert world.state().checkpoint_ts > ts_of(2_900_000)


def test_a_new_owner_may_execute_the_ddl_at_the_checkpoint_again_and_skips_none():
    """It cannot know whether the old one got an answer (at least once)."""
    txns = [*history((1, 2), 9000, every_ms=19), *MANY, *third(1501, 9000)]
    world = World((1, 2), txns, LAYOUT, captures=2, audited=False).run(2000)
    at_us = next(at for at, _, m in world.downstream.got if isinstance(m, Execute))
    faults = [Crash(at_us + 5 * MS, "capture-1")]
    world = World((1, 2), txns, LAYOUT, captures=2, audited=False, faults=faults).run(10_000)
    jobs = [e.job.id for e in world.downstream.of(Execute)]
    assert sorted(set(jobs)) == [1, 2, 3, 4] and jobs == sorted(jobs) and len(jobs) > 4
    checkpoint_ts = world.state("capture-2").checkpoint_ts
    assert checkpoint_ts > ts_of(9_000_000)
    assert truth(txns, checkpoint_ts) <= told(world.downstream.changes())


def test_a_ddl_without_an_answer_is_sent_again():
    """After retry_us, and nothing continues before it."""
    txns = [*history((1, 2), 5900), ddl(1000, ADD)]
    world = World((1, 2), txns, LAYOUT, audited=False)
    world.downstream.ddl_us = 10_000_000
    world.run(6000)
    assert [e.job for e in world.downstream.of(Execute)] == [ADD] * 3
    assert world.state().checkpoint_ts == ts_of(1_000_000)
    assert max(c.commit_ts for c in world.downstream.changes()) <= ts_of(1_000_000)


def test_a_row_of_a_table_that_was_not_there_is_never_dropped_silently():
    """The run ends there: resolved_ts of the DDL puller shows that no definition is missing."""
    txns = [*history((1, 2), 900), ddl(500, DROP)]
    world = World((1, 2), txns, LAYOUT, audited=False, settings=CaptureSettings(rule=MQ)).run(1500)
    assert world.end.violation is not None
    assert world.end.violation.invariant == "Every Row Has A Definition"
