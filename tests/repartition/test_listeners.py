"""The procedure and its two shortcuts on an exact model: random runs, all runs of small logs, fewest messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listeners import (
    Log,
    World,
    at_random,
    every_run,
    faults,
    just_added,
    later_checkpoint,
    run,
    size,
    with_feedback,
    without_feedback,
)

KEYS = "0123"
TABLES = {"0": "a", "1": "a", "2": "b", "3": "b"}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to twelve changes of four rows in two tables, and any two numbers of partitions."""
    n = draw(st.integers(1, 12))
    changes = tuple((ts, draw(st.sampled_from(KEYS))) for ts in range(1, n + 1))
    at = draw(st.integers(0, n))
    stops = {t: draw(st.integers(at, n)) for t in "ab"}
    marks = tuple(sorted({*draw(st.sets(st.integers(1, n), max_size=5)), n + 1}))
    before, after = draw(st.sampled_from([(1, 2), (2, 1), (2, 3), (3, 2), (2, 4), (4, 2), (1, 4)]))
    return World(changes, TABLES, marks, at, stops, before, after, draw(st.integers(0, 3)))


@settings(max_examples=300, deadline=None)
@given(worlds(), st.integers(0, 2**32))
def test_the_procedure_applies_each_change_once_and_in_order(world: World, seed: int) -> None:
    """With feedback no order in which listeners take their steps loses, doubles or swaps a change of a row."""
    assert faults(run(with_feedback(world), world.before, at_random(seed)), world) == set()


def test_every_run_of_small_logs_keeps_the_procedure() -> None:
    """The same over all runs, not only those that chance finds: three changes of one row that moves."""
    runs = 0
    for at, stop, marks in itertools.product((1, 2), (2, 3), ((1, 4), (2, 4), (3, 4))):
        world = World(((1, "1"), (2, "1"), (3, "1")), TABLES, marks, at, {"a": stop}, 1, 2)
        for applied in every_run(with_feedback(world), world.before):
            assert applied == [(1, "1"), (2, "1"), (3, "1")]
            runs += 1
    assert runs > 60


def small_worlds() -> Iterator[World]:
    """Every world of up to two changes of one row that moves from partition 0 to 1."""
    for times in ((1,), (2,), (1, 2), (2, 3)):
        for marks in ((2,), (3,), (2, 3)):
            for at, stop, slack in itertools.product((1, 2), (1, 2), (0, 1)):
                if at <= stop:
                    yield World(tuple((t, "1") for t in times), TABLES, marks, at, {"a": stop}, 1, 2, slack)


def fewest(make: Callable[[World], Log], fault: str, listeners: int) -> Log:
    """The log of the fewest messages with which some run has the fault."""
    for log, world in sorted(((make(w), w) for w in small_worlds()), key=lambda c: (size(c[0]), str(c))):
        if any(fault in faults(applied, world) for applied in every_run(log, listeners)):
            return log
    raise AssertionError(f"no world shows {fault}")


LOST = [[("row", 1, "1"), ("admin", 2, ""), ("resolved", 2, "")], [("admin", 2, ""), ("resolved", 2, "")]]
TWICE = [("admin", 2, ""), ("row", 2, "1"), ("resolved", 2, "")]
SWAPPED = [
    [("admin", 2, ""), ("row", 2, "1"), ("resolved", 3, "")],
    [("admin", 2, ""), ("row", 2, "1"), ("row", 3, "1"), ("resolved", 3, "")],
]


@pytest.mark.parametrize(("fault", "want"), [("lost", LOST), ("doubled", [TWICE, TWICE]), ("order", SWAPPED)])
def test_without_feedback_every_fault_happens(fault: str, want: Log) -> None:
    """The checkpoint moves on after what was held was dropped; a processor that has not heard writes by the old count.

    Lost: change 1 is dropped, and the restart begins above it. Doubled: change 2 is written by the old count behind
    the Admin event and again by the new one. Order: the first delivery of 2 may be applied after 3.
    """
    assert fewest(without_feedback, fault, 1) == want


def test_just_adding_partitions_breaks_the_order_and_nothing_else() -> None:
    """Four messages: the row's old change waits in its old partition while the new one is applied from the new."""
    fewest_messages = [[("row", 1, "1"), ("resolved", 2, "")], [("row", 2, "1"), ("resolved", 2, "")]]
    assert fewest(just_added, "order", 2) == fewest_messages
    for world in small_worlds():
        for applied in every_run(just_added(world), 2):
            assert faults(applied, world) <= {"order"}


def test_a_restart_above_what_was_broadcast_loses_changes() -> None:
    """What the design leaves open: consumers drop by their resolved_ts, so that must be the checkpoint of the
    restart.
    """
    assert fewest(later_checkpoint, "lost", 1) == LOST


def test_the_judge_sees_planted_faults() -> None:
    """A missing, a repeated and a swapped change are each named."""
    world = World(((1, "1"), (2, "1")), TABLES, (3,), 1, {"a": 1}, 1, 2)
    assert faults([(1, "1")], world) == {"lost"}
    assert faults([(1, "1"), (2, "1"), (2, "1")], world) == {"doubled"}
    assert faults([(2, "1"), (1, "1")], world) == {"order"}
    assert faults([(1, "1"), (2, "1")], world) == set()
