"""Assertions are judged row by row: each kind holds where it should and fails at the first moment at which it must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.ledger import Total
from ticdc_lab.machines.machine import KEPT_STATE, Reason
from ticdc_lab.simulate.assertions import Judge, Outcome
from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.scheduler.etcd_messages import Ddl
from ticdc_lab.simulate.scheduler.executor import WRITING
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor, WriterMeasures
from ticdc_lab.simulate.trace import Row

MS = 1_000


def row(
    step: int, us: int, node: str, kind: str, message: object = None, subject: str | None = None,
    before: str | None = None, after: str | None = None, because: str | Reason | None = None,
) -> Row:  # fmt: skip
    """A row of a trace, of few fields."""
    return Row(step, us, node, kind, None, message, None, subject, before, after, because)


def table(step: int, ms: int, key: int | str, node: str, before: str | None, after: str | None) -> Row:
    """A pipeline changes its state."""
    return row(step, ms * MS, node, "changed", None, f"table:{key}", before, after)


def checkpoint(step: int, ms: int, of_ms: int) -> Row:
    """The global checkpoint becomes the ts of a moment."""
    return row(step, ms * MS, "etcd", "changed", None, "global-checkpoint", None, str(ts_of(of_ms * MS)))


def owner(step: int, ms: int, name: str) -> Row:
    """A capture learns that it was elected, at a revision that rises."""
    return row(step, ms * MS, name, "changed", None, "owner", None, str(step))


UP = [row(0, 0, f"capture-{i}", "started") for i in (1, 2)]
BOTH = [
    *UP,
    owner(1, 10, "capture-1"),
    table(2, 100, 1, "capture-1", None, "preparing"),
    table(3, 150, 2, "capture-2", None, "preparing"),
    table(4, 300, 1, "capture-1", "preparing", "replicating"),
    table(5, 350, 2, "capture-2", "preparing", "replicating"),
    checkpoint(6, 400, 200),
]
"""Two captures, each with one of two tables from 350 ms on."""

MOVED = [
    *BOTH,
    table(7, 1000, 1, "capture-1", "replicating", "stopping"),
    table(8, 1050, 1, "capture-1", "stopping", None),
    table(9, 1250, 1, "capture-2", None, "preparing"),
    table(10, 1450, 1, "capture-2", "preparing", "replicating"),
]
"""Table 1 goes from capture-1 to capture-2 with a gap of 400 ms."""

DOUBLE = [
    *BOTH,
    table(7, 1000, 1, "capture-2", "preparing", "replicating"),
    table(8, 1500, 1, "capture-1", "replicating", None),
]
"""Capture-2 writes table 1 for 500 ms beside capture-1."""

CRASHED = [*BOTH, row(7, 1_000_000, "capture-2", "crashed"), owner(8, 2000, "capture-1")]


def judged(rows: Sequence[Row], *assertions: str, end_ms: int = 10_000, events: str = "") -> list[Outcome]:
    """Outcomes of assertions over a run of two captures and two tables."""
    lines = ["model: scheduler", "until: 10s", "cluster: {captures: 2, tables: 2}", f"events: [{events}]", "assert:"]
    scenario = scenario_from_text("\n".join([*lines, *[f"  - {{{a}}}" for a in assertions]]))
    facts = scenario.model.facts(scenario.cluster, scenario.events)
    assert isinstance(facts, SchedulerFacts)
    judge, auditor = Judge(scenario.assertions, facts), Writers(facts)
    facts.auditor = cast(SchedulerMonitor, auditor)
    for row in rows:
        judge.see(row)
        auditor.look()
    return judge.end(end_ms * MS)


class Writers:
    """In place of the auditor of a run: it counts the time with two writers, and with none, from the facts."""

    def __init__(self, facts: SchedulerFacts) -> None:
        self.facts = facts
        self.writers: dict[str, list[str]] = {}
        self.double, self.idle = Total(), Total()

    def look(self) -> None:
        at_us = self.facts.at_us
        for key in sorted({*self.writers, *self.facts.keys}):
            entry = self.facts.keys.get(key)
            writers = [a for a, s in entry.states.items() if s in WRITING] if entry else []
            if writers or key in self.writers:
                self.writers[key] = writers
                self.double.put(key, len(writers) > 1, at_us)
                self.idle.put(key, not writers and int(key.partition("[")[0]) in self.facts.wanted, at_us)

    @property
    def since_us(self) -> dict[str, int]:
        self.look()
        return self.double.since_us

    def until(self, at_us: int) -> WriterMeasures:
        self.look()
        return WriterMeasures(overlap_us=self.double.until(at_us), gap_us=self.idle.until(at_us))


HELD = {
    "eventually: every table replicates": (BOTH, 350, "all 2 tables replicate"),
    "eventually: table 1 on capture-2": (MOVED, 1450, "table 1 is replicating on capture-2"),
    "eventually: table 2 replicates": (BOTH, 350, "table 2 is replicating on capture-2"),
    "eventually: no table on capture-1": (MOVED, 1050, "capture-1 has 0 tables"),
    "eventually: owner is capture-1": (BOTH, 10, "the owner is capture-1"),
    "eventually: there is an owner": (BOTH, 10, "the owner is capture-1"),
    "eventually: imbalance <= 1": (BOTH, 0, "imbalance is 0"),
    "eventually: imbalance = 2": (MOVED, 1450, "imbalance is 2"),
    "eventually: No Double Write is violated": (
        [*DOUBLE, row(9, 1_600_000, "capture-1", "violated", None, "No Double Write")], 1600, "No Double Write is"),
    "eventually: tables on capture-2 = 2": (MOVED, 1450, "tables on capture-2 is 2"),
    "eventually: captures = 1": (CRASHED, 1000, "captures is 1"),
    "eventually: overlap = 500ms": (DOUBLE, 1500, "overlap is 500ms"),
    "eventually: gap = 400ms": (MOVED, 1450, "gap is 400ms"),
    "eventually: moves = 1": (MOVED, 1450, "moves is 1"),
    "always: no double write": (MOVED, 10_000, "so until 10s: no table has two writers"),
    "always: no violation": (BOTH, 10_000, "no invariant is violated"),
    "always: global checkpoint lag < 1s, from: 400ms, for: 700ms": (BOTH, 1100, "global checkpoint lag is 900ms"),
    "within: 400ms, holds: every table replicates": (BOTH, 350, "so at 350ms"),
    "within: 2s, from: 300ms, holds: checkpoint proceeds": (BOTH, 400, "is 200ms behind and rose 0s ago"),
    "at_most: 1, of: moves": (MOVED, 10_000, "moves is 1"),
    "at_most: 0, of: moves, from: 1450ms": (MOVED, 10_000, "moves is 1"),
    "at_most: 400ms, of: gap": (MOVED, 10_000, "gap is 400ms"),
    "always: thrash index <= 0": (MOVED, 10_000, "thrash index is 0"),
}  # fmt: skip


@pytest.mark.parametrize("assertion", HELD)
def test_an_assertion_that_holds_says_since_when(assertion: str) -> None:
    """And what is there then."""
    rows, ms, because = HELD[assertion]
    [outcome] = judged(rows, assertion)
    assert (outcome.held, outcome.at_us) == (True, ms * MS), outcome
    assert because in outcome.because


FAILED = {
    "eventually: every table replicates": (CRASHED, 10_000, "table 2 is on no capture"),
    "eventually: table 1 on capture-1": (MOVED, 10_000, "table 1 is replicating on capture-2"),
    "eventually: table 2 replicates": (CRASHED, 10_000, "table 2 is on no capture"),
    "eventually: no table on capture-2": (MOVED, 10_000, "capture-2 has 2 tables"),
    "eventually: owner is capture-2": (BOTH, 10_000, "the owner is capture-1"),
    "eventually: there is an owner": (UP, 10_000, "there is no owner"),
    "eventually: checkpoint proceeds": (BOTH, 10_000, "rose 9.6s ago"),
    "eventually: No Lost Table is violated": (BOTH, 10_000, "no invariant is violated"),
    "always: no double write": (DOUBLE, 1000, "table 1 is written by capture-1 and capture-2"),
    "always: every table replicates, from: 500ms": (MOVED, 1000, "table 1 is stopping on capture-1"),
    "always: no violation": ([*BOTH, row(9, 2_000_000, "x", "violated", None, "One Owner")], 2000, "One Owner is"),
    "always: global checkpoint lag < 1s, from: 400ms": (CRASHED, 2000, "global checkpoint lag is 1.8s"),
    "always: time without progress <= 1s, from: 400ms": (BOTH, 10_000, "time without progress is 9.6s"),
    "always: imbalance <= 1": (MOVED, 1450, "imbalance is 2"),
    "always: overlap = 0s": (DOUBLE, 1500, "overlap is 500ms"),
    "always: gap < 300ms": (MOVED, 1450, "gap is 400ms"),
    "within: 300ms, holds: every table replicates": (BOTH, 300, "table 2 is preparing on capture-2"),
    "within: 1s, from: 1s, holds: table 1 on capture-1": (MOVED, 2000, "table 1 is replicating on capture-2"),
    "at_most: 0, of: moves": (MOVED, 1450, "moves is 1"),
    "at_most: 399ms, of: gap": (MOVED, 1450, "400ms at 1.45s: gap is 400ms"),
    "at_most: 0, of: violations": ([*BOTH, row(9, 2_000_000, "x", "violated", None, "One Owner")], 2000, "is 1"),
}  # fmt: skip


@pytest.mark.parametrize("assertion", FAILED)
def test_an_assertion_that_fails_says_when_first_and_why(assertion: str) -> None:
    """The reason names the table, the capture or the number."""
    rows, ms, because = FAILED[assertion]
    [outcome] = judged(rows, assertion)
    assert (outcome.held, outcome.at_us) == (False, ms * MS), outcome
    assert because in outcome.because


def test_messages_are_counted_in_their_window() -> None:
    """By name, all together, and those that the network lost."""
    rows = [row(i, i * 100 * MS, "capture-1", "sent", "Sync" if i % 2 else "Announce") for i in range(1, 11)]
    rows.append(row(11, 1_100_000, "capture-1", "lost", "Sync"))
    held = judged(
        rows,
        "at_most: 5, of: Sync messages",
        "at_most: 4, of: Sync messages",
        "at_most: 9, of: messages",
        "at_most: 2, of: Sync messages, from: 500ms",
        "at_most: 1, of: Sync messages, from: 500ms",
        "at_most: 0, of: lost messages",
        "always: messages < 3, for: 250ms",
    )
    assert [(o.held, o.at_us // MS) for o in held] == [
        (True, 10_000), (False, 900), (False, 1000), (True, 10_000), (False, 900), (False, 1100), (True, 250),
    ]  # fmt: skip


def test_a_window_begins_after_what_happened_at_its_moment() -> None:
    """The crash itself has been seen when `within` is asked first."""
    crash = "at: 1s, crash: capture-2"
    late = [*CRASHED, table(9, 2500, 2, "capture-1", None, "preparing"),
            table(10, 2700, 2, "capture-1", "preparing", "replicating")]  # fmt: skip
    [slow, fast, at_once] = judged(
        late,
        "within: 2s, after: crash capture-2, holds: every table replicates",
        "within: 1s, after: crash capture-2, holds: every table replicates",
        "within: 1s, after: crash capture-2, holds: table 1 on capture-1",
        events=f"{{{crash}}}",
    )
    assert (slow.held, slow.at_us, slow.because[:40]) == (True, 2_700_000, "so at 2.7s, 1.7s after crash capture-2: ")
    assert (fast.held, fast.at_us) == (False, 2_000_000)
    assert (at_once.held, at_once.at_us) == (True, 1_000_000)


def test_a_run_that_ends_early_fails_what_was_not_looked_at() -> None:
    """It does not hold for want of a look."""
    [always, within] = judged(
        BOTH, "always: no violation, from: 5s", "within: 1s, from: 5s, holds: no violation", end_ms=2_000
    )
    assert not always.held and not within.held
    assert "the run ended at 2s, before its window began" in always.because


def test_tables_are_wanted_from_when_they_are_added_until_they_are_dropped() -> None:
    """One that is dropped need not replicate and leaves no gap."""
    executed = {"subject": "barrier", "before": "5", "after": None}
    rows = [
        *BOTH,
        row(7, 1_900_000, "etcd", "asked", Ddl(add=(3,))),
        row(8, 2_000_000, "etcd", "changed", **executed),
        table(9, 3000, 3, "capture-1", None, "replicating"),
        row(10, 3_900_000, "etcd", "asked", Ddl(drop=(1,))),
        row(11, 4_000_000, "etcd", "changed", **executed),
        table(12, 5000, 1, "capture-1", "replicating", None),
    ]
    [all_up, early, gap] = judged(
        rows, "eventually: every table replicates", "always: every table replicates, from: 1s", "at_most: 0s, of: gap"
    )
    assert (all_up.held, all_up.at_us) == (True, 3_000_000)
    assert (early.held, early.at_us) == (False, 2_000_000)
    assert early.because.endswith(": table 3 is on no capture")
    assert gap.held


@pytest.mark.parametrize("down", ["crashed", "paused"])
def test_a_capture_that_keeps_its_state_comes_back_with_its_tables(down: str) -> None:
    """While it is away they are nowhere; a session that is over has ended with its first step."""
    away = [*BOTH, row(7, 1_000_000, "capture-2", down)]
    assert not judged(away, "eventually: every table replicates")[0].held
    back = row(7, 3_000_000, "capture-2", "resumed" if down == "paused" else "restarted",
               because=Reason(KEPT_STATE, "", "with its state"))  # fmt: skip
    went_on = [*away, back, row(9, 3_100_000, "capture-1", "sent", "Sync")]
    up, captures = judged(went_on, "eventually: every table replicates", "eventually: captures = 2")
    assert (up.held, up.at_us, captures.held) == (True, 3_100_000, True)
    ended = [table(8, 3000, 2, "capture-2", "replicating", None), row(8, 3_000_000, "capture-2", "crashed")]
    double = [table(6, 2000, 2, "capture-1", None, "replicating")]
    fenced = [*away, *double, back, *ended, row(9, 3_100_000, "capture-1", "sent", "Sync")]
    assert [o.held for o in judged(fenced, "always: no double write", "eventually: captures = 1")] == [True, True]


def test_a_capture_that_lost_its_state_comes_back_empty() -> None:
    """Under an address of its own."""
    fresh = [*CRASHED, row(9, 3_000_000, "capture-2", "restarted", because="without its state"),
             row(9, 3_000_000, "capture-2.2", "started")]  # fmt: skip
    up, captures = judged(fresh, "eventually: every table replicates", "eventually: captures = 2")
    assert (up.held, captures.held) == (False, True)


def test_the_owner_is_the_one_elected_last_and_a_crash_ends_it() -> None:
    """An old owner that does not know yet is none."""
    rows = [*BOTH, owner(7, 1000, "capture-2"), row(8, 2_000_000, "capture-2", "crashed")]
    first, second = judged(rows, "within: 1s, from: 999ms, holds: owner is capture-2", "at_most: 0, of: owner changes")
    assert (first.held, second.held, second.at_us) == (True, False, 1_000_000)
    alone = [*rows[:-2], row(8, 2_000_000, "capture-1", "crashed")]
    assert judged(alone, "always: there is an owner, from: 1s")[0] == (
        "always: there is an owner (from 1s to 10s)", False, 2_000_000, 8, "not so at 2s: there is no owner", 6,
    )  # fmt: skip


def test_a_table_that_comes_back_at_once_was_moved_for_nothing() -> None:
    """The thrash index is the share of such moves."""
    back = [*MOVED, table(11, 2000, 1, "capture-2", "replicating", None),
            table(12, 2200, 1, "capture-1", None, "replicating")]  # fmt: skip
    assert [o.held for o in judged(back, "eventually: thrash index = 0.5", "eventually: moves = 2")] == [True, True]
    late = [*MOVED, table(11, 200_000, 1, "capture-2", "replicating", None),
            table(12, 200_200, 1, "capture-1", None, "replicating")]  # fmt: skip
    assert judged(late, "eventually: thrash index = 0", end_ms=300_000)[0].held


def test_a_table_replicates_when_each_of_its_spans_does() -> None:
    """And a span that went down with its capture is missed."""
    spans = [*UP, table(1, 100, "1[a,m)", "capture-1", None, "replicating"),
             table(2, 200, "1[m,z)", "capture-2", None, "replicating")]  # fmt: skip
    assert judged(spans, "eventually: table 1 replicates")[0].held
    down = judged([*spans, row(3, 300 * MS, "capture-2", "crashed")], "eventually: table 1 replicates")[0]
    assert not down.held


def test_states_of_an_owner_are_not_taken_for_pipelines() -> None:
    """Only the states of :mod:`ticdc_lab.simulate.scheduler.executor` are a processor's."""
    assert not judged([*UP, table(1, 10, 1, "capture-1", None, "Running")], "eventually: table 1 replicates")[0].held
