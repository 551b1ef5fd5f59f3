"""The auditor of the scheduler catches what is planted: it reads what processors really do, and believes no message."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import fields
from types import SimpleNamespace

import pytest
from planted_schedulers import planted
from v2_cases import A, B

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Changed
from ticdc_lab.simulate.faults import Ask, Chaos
from ticdc_lab.simulate.scheduler import run
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl
from ticdc_lab.simulate.scheduler.executor import Executor, TablePace, added, gone, settled, stopping, stuck
from ticdc_lab.simulate.scheduler.monitor import DOUBLE, LOST, MONOTONE, REVISIONS, SchedulerMonitor
from ticdc_lab.simulate.scheduler.roles import Span
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

PACE = TablePace(prepare_us=0, stop_us=0, lag_us=0, catch_up=1000)
FAR = ts_of(1 << 40)


class Watched:
    """Two processors and an etcd, whose steps the auditor is shown."""

    def __init__(self, *tables, stops=True):
        self.monitor = SchedulerMonitor(ts_of(0), frozenset(tables), stops)
        self.at_us = 0
        self.executors = {A: Executor(PACE, FAR), B: Executor(PACE, FAR)}
        self.tables = self.monitor.wanted

    def kernel(self):
        """Give what the auditor reads of a kernel."""
        return SimpleNamespace(now_us=self.at_us, states={n: _capture(e) for n, e in self.executors.items()})

    def _step(self, name, executor, changes):
        before, self.executors[name] = self.executors[name], executor
        return self.monitor.saw(self.kernel(), name, _capture(before), _capture(executor), changes)

    def begin(self, name, table, start_us=0):
        """Let a processor write a table."""
        executor, changes = added(self.executors[name], table, ts_of(start_us), self.at_us, "test")
        assert self._step(name, executor, changes) is None
        return self._step(name, *settled(self.executors[name], self.at_us))

    def end(self, name, table):
        """Let a processor stop to write a table: stopping writes, gone does not."""
        assert self._step(name, *stopping(self.executors[name], table, self.at_us, "test")) is None
        return self._step(name, *gone(self.executors[name], table, "test"))

    def publish(self, at_us, tables=None):
        """Let the owner persist a checkpoint."""
        self.tables = self.tables if tables is None else frozenset(tables)
        after = SimpleNamespace(tables=self.tables, checkpoint_ts=ts_of(at_us))
        changes = [Changed("global-checkpoint", None, ts_of(at_us))]
        return self.monitor.saw(self.kernel(), ETCD, None, after, changes)

    def elect(self, name, rev):
        """Let a capture take itself for the owner."""
        state = _capture(self.executors[name])
        return self.monitor.saw(self.kernel(), name, state, state, [Changed("owner", None, rev)])


def _capture(executor):
    return SimpleNamespace(processor=SimpleNamespace(executor=executor))


def test_two_writers_are_caught():
    """No Double Write, and the overlap is measured."""
    seen = Watched(1)
    assert seen.begin(A, 1) is None
    seen.at_us = 1000
    invariant, because = seen.begin(B, 1)
    assert invariant == DOUBLE and "table 1" in because
    seen.at_us = 1700
    seen.end(A, 1)
    assert seen.monitor.measures.overlap_us == 700 and seen.monitor.measures.starts == 2


def test_two_writers_of_two_tables_are_none():
    """Nor one after the other."""
    seen = Watched(1, 2)
    assert seen.begin(A, 1) is None and seen.begin(B, 2) is None
    seen.at_us = 1000
    assert seen.end(A, 1) is None and seen.begin(B, 1, 1000) is None
    assert seen.monitor.measures.overlap_us == 0


def test_a_gap_is_caught():
    """The next writer begins above where the last one ended; not above is right, and what is doubled is measured."""
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = 1000
    seen.end(A, 1)
    seen.at_us = 3000
    invariant, because = seen.begin(B, 1, 2000)
    assert invariant == LOST and "resumes from" in because
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = 1000
    seen.end(A, 1)
    seen.at_us = 3000
    assert seen.begin(B, 1, 400) is None
    assert (seen.monitor.measures.gap_us, seen.monitor.measures.doubled_us) == (2000, 600)


LEFT, RIGHT, WHOLE = Span(1, "", "m"), Span(1, "m", ""), Span(1, "", "")


def split_at(at_us):
    """A table that was written up to a moment and is divided then."""
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = at_us
    seen.end(A, 1)
    return seen


def test_spans_take_over_from_their_table_and_a_span_from_them():
    """What is written by spans is not lost, a merge continues from the lowest of them, and a DDL drops them all."""
    seen = split_at(1000)
    assert seen.begin(A, LEFT, 1000) is None and seen.begin(B, RIGHT, 900) is None
    seen.at_us = 2000
    assert seen.publish(1500) is None
    assert seen.end(B, RIGHT) is None and seen.begin(A, RIGHT, 2000) is None
    seen.at_us = 3000
    assert seen.end(A, LEFT) is None and seen.end(A, RIGHT) is None and seen.begin(A, WHOLE, 3000) is None
    seen.at_us = 4000
    assert seen.publish(3500) is None and seen.monitor.measures.doubled_us == 100
    seen.end(A, WHOLE)
    assert seen.publish(5000, tables=()) is None


def test_what_a_split_or_a_merge_leaves_out_is_lost():
    """A span that no one begins, one that begins above where its table ended, and a merge above one of its spans."""
    seen = split_at(1000)
    assert seen.begin(A, LEFT, 1000) is None
    seen.at_us = 2000
    invariant, because = seen.publish(1500)
    assert invariant == LOST and "1[m,)" in because
    seen = split_at(1000)
    seen.at_us = 2000
    invariant, because = seen.begin(B, RIGHT, 1500)
    assert invariant == LOST and "resumes from" in because
    seen = split_at(1000)
    assert seen.begin(A, LEFT, 1000) is None and seen.begin(A, RIGHT, 1000) is None
    seen.at_us = 2000
    seen.end(A, LEFT)
    seen.at_us = 3000
    seen.end(A, RIGHT)
    seen.at_us = 4000
    assert seen.begin(A, WHOLE, 3000)[0] == LOST


def test_a_span_and_its_table_are_two_writers():
    """As are two spans that overlap; neighbours are not."""
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = 1000
    invariant, because = seen.begin(B, RIGHT, 1000)
    assert invariant == DOUBLE and "1[m,)" in because
    seen.at_us = 1700
    seen.end(A, 1)
    assert seen.monitor.measures.overlap_us == 700
    assert seen.begin(A, LEFT, 1700) is None
    assert seen.begin(A, Span(1, "a", "n"), 1700)[0] == DOUBLE


def test_a_gap_before_the_first_writer_is_caught():
    """No one wrote the table before: it begins where the changefeed does, or what lies between is lost."""
    seen = Watched(1, 2)
    seen.at_us = 1000
    assert seen.begin(A, 1) is None
    invariant, because = seen.begin(A, 2, 500)
    assert invariant == LOST and "resumes from" in because
    dropped = Watched(1)
    dropped.publish(0, tables=())
    assert dropped.begin(A, 1, 500) is None


@pytest.mark.parametrize(("published_us", "found"), [(1000, None), (1001, LOST)])
def test_a_checkpoint_above_a_table_that_nobody_writes_is_caught(published_us, found):
    """Up to where the table was written is right, one microsecond more is not."""
    seen = Watched(1, 2)
    seen.begin(A, 1)
    seen.begin(A, 2)
    seen.at_us = 1000
    seen.end(A, 1)
    seen.at_us = 5000
    assert (seen.publish(published_us) or (None,))[0] == found


def test_a_checkpoint_while_a_table_was_never_written_is_caught():
    """The start is right, anything above is not."""
    seen = Watched(1, 2)
    seen.begin(A, 1)
    seen.at_us = 1000
    assert seen.publish(0) is None
    invariant, because = seen.publish(1)
    assert invariant == LOST and "no capture ever wrote table 2" in because


def test_a_checkpoint_above_a_slow_table_is_caught():
    """One whose sink is stuck, and one that is behind."""
    seen = Watched(1, 2)
    seen.begin(A, 1)
    seen.begin(B, 2)
    seen.at_us = 1000
    seen.executors[B] = stuck(seen.executors[B], 2, 1000)
    seen.at_us = 2000
    assert seen.publish(1000) is None
    assert seen.publish(1001)[0] == LOST


@pytest.mark.parametrize(("published_us", "found"), [(2900, None), (3100, LOST)])
def test_a_checkpoint_that_comes_late_is_held_against_all_that_is_downstream(published_us, found):
    """It was reported while the writer before still wrote; the next begins below, and is behind for a while (seed
    3561).
    """
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = 3000
    assert seen.end(A, 1) is None
    seen.executors[B] = Executor(TablePace(prepare_us=0, stop_us=0, lag_us=0, catch_up=1), FAR)
    assert seen.begin(B, 1, 1000) is None
    violation = seen.publish(published_us)
    assert (violation and violation[0]) == found


def test_a_checkpoint_above_what_all_have_written_is_caught():
    """It is ahead of the upstream."""
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = 1000
    seen.executors[A], _ = settled(seen.executors[A], 1000)
    assert seen.publish(1000) is None and seen.publish(1001)[0] == LOST


def test_a_falling_checkpoint_is_caught():
    """By one microsecond."""
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = 1000
    assert seen.publish(500) is None and seen.publish(500) is None
    assert seen.publish(499)[0] == MONOTONE


def test_an_owner_of_an_older_revision_is_caught():
    """Revisions rise, from capture to capture."""
    seen = Watched(1)
    assert seen.elect(A, 2) is None and seen.elect(B, 5) is None
    assert seen.elect(A, 5)[0] == REVISIONS and seen.elect(A, 4)[0] == REVISIONS


def test_a_capture_that_is_down_writes_nothing_and_one_that_wakes_does():
    """A pause ends its writing; another may take the table; when it wakes and still has it, that is a double write."""
    seen = Watched(1)
    seen.begin(A, 1)
    seen.at_us = 1000
    assert seen.monitor.went_down(seen.kernel(), A, seen.kernel().states[A]) is None
    assert seen.begin(B, 1, 1000) is None
    assert seen.monitor.came_up(seen.kernel(), A, seen.kernel().states[A])[0] == DOUBLE
    alone = Watched(1)
    alone.begin(A, 1)
    alone.monitor.went_down(alone.kernel(), A, alone.kernel().states[A])
    assert alone.monitor.came_up(alone.kernel(), A, alone.kernel().states[A]) is None


def test_tables_come_and_go():
    """A dropped one holds no checkpoint any more; a new one does from where it was created."""
    seen = Watched(1, 2)
    seen.begin(A, 1)
    seen.begin(A, 2)
    seen.at_us = 1000
    seen.end(A, 2)
    seen.at_us = 2000
    assert seen.publish(1000) is None
    assert seen.publish(1001)[0] == LOST
    seen.monitor.checkpoint_ts = ts_of(1000)
    assert seen.publish(1500, tables=[1]) is None
    assert seen.publish(1500, tables=[1, 3]) is None
    assert seen.publish(1501)[0] == LOST


@pytest.mark.parametrize(("beyond", "found"), [(0, None), (1, LOST)])
def test_a_table_that_a_ddl_brings_has_nothing_up_to_the_ddl(beyond, found):
    """A checkpoint at the DDL, and a writer that begins there, are right (v4's swarm, seed 1075); one more is not."""
    for then in ("publish", "begin"):
        seen = Watched(1)
        seen.begin(A, 1)
        seen.at_us = 2000
        executed = SimpleNamespace(tables=frozenset({1, 3}), checkpoint_ts=ts_of(900))
        seen.tables = executed.tables
        assert seen.monitor.saw(seen.kernel(), ETCD, None, executed, [Changed("barrier", ts_of(1000), None)]) is None
        seen.at_us = 3000
        broken = seen.publish(1000 + beyond) if then == "publish" else seen.begin(B, 3, 1000 + beyond)
        assert (broken or (None,))[0] == found


def test_a_dropped_table_that_still_stops_holds_no_checkpoint():
    """However far behind it is: a swarm found that it did (v4, the owner gone as the table was dropped)."""
    seen = Watched(1, 2)
    seen.begin(A, 1)
    seen.executors[A] = stuck(seen.executors[A], 1, 0)
    seen.begin(A, 2)
    seen.at_us = 3000
    assert seen.publish(1000)[0] == LOST
    seen.monitor.checkpoint_ts = ts_of(0)
    assert seen.publish(1000, tables=[2]) is None


def test_it_can_count_only():
    """The run continues; violations are counted."""
    seen = Watched(1, stops=False)
    seen.begin(A, 1)
    assert seen.begin(B, 1) is None and seen.monitor.n_violations == 1


@pytest.mark.parametrize("takes_us", [1000, 20_000, 100_000])
@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_a_table_that_is_dropped_and_comes_again_is_not_lost(variant, takes_us):
    """Also where the processor has not heard of it yet, or still stops it: what it writes counts."""
    ddl = [Ask(5_000_000, ETCD, Ddl(drop=(1,), takes_us=1000)), Ask(5_000_000, ETCD, Ddl(add=(1,), takes_us=takes_us))]
    run = simulate(
        SchedulerSettings(variant=variant, captures=3, tables=4), faults=ddl, until_us=8_000_000, level="nothing"
    )
    assert run.violation is None and run.end.because == "time"


class Unasked(SchedulerMonitor):
    """An auditor that is shown every step, and shows whether one without a change showed it anything."""

    sees_changes_alone = False
    told = 0

    def saw(self, kernel, at, before, after, outputs):
        """As the auditor, and compare what it knew."""
        is_calm = not any(type(output) is Changed for output in outputs)
        known = copy.deepcopy(vars_of(self)) if is_calm else None
        found = super().saw(kernel, at, before, after, outputs)
        if is_calm:
            type(self).told += found is not None or vars_of(self) != known
        return found


def vars_of(monitor):
    """Give all that an auditor knows."""
    return {f.name: getattr(monitor, f.name) for f in fields(SchedulerMonitor)}


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_a_step_without_a_change_tells_the_auditor_nothing(variant, monkeypatch):
    """So the loop need not show it: shown all, it finds the same, and a planted bug in the same step."""
    chaos, seen = Chaos(4_000_000, 500_000), []
    ddl = Ask(2_000_000, ETCD, Ddl(add=(9,), drop=(1,)))
    for kind in (SchedulerMonitor, Unasked):
        monkeypatch.setattr(run, "SchedulerMonitor", kind)
        for plant in (nullcontext, lambda: planted("skips_minimum")):
            with plant():
                found = simulate(
                    SchedulerSettings(variant=variant, tables=5), faults=[ddl], chaos=chaos, seed=3, until_us=8_000_000
                )
            seen.append((found.end, found.measures))
    assert seen[:2] == seen[2:] and Unasked.told == 0
    assert variant != "v2" or seen[1][0].violation is not None
