"""The schedulers of a maintainer: who gets what, how much at once, and why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from v4_operating import A, B, absent, controlled, counts, hear, replicating, sent

from ticdc_lab.machines.machine import Decided, Output
from ticdc_lab.simulate.scheduler.roles import Span
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.schedulers import (
    NO_DRAIN,
    balanced,
    drained,
    move_limit,
    moves_from,
    placed,
    targeted,
)
from ticdc_lab.simulate.scheduler.v4.settings import V4Settings

C = "node-c"


def decided(outputs: list[Output]) -> list[Decided]:
    """Give the decisions among outputs."""
    return [output for output in outputs if isinstance(output, Decided)]


# Basic


def test_absent_spans_are_spread_over_all_nodes() -> None:
    """Each gets as many; equals go to the smaller name."""
    control, outputs = placed(controlled(absent(*range(1, 7)), (A, B, C)), V4Settings(), None, (), 0)
    assert [to for to, _, _ in sent(outputs)] == [A, B, C, A, B, C] and counts(control.spans) == (0, 6, 0)


def test_what_is_preferred_comes_first() -> None:
    """Nodes of one load, and absent spans, in the order that the explorer asks for."""
    _, outputs = placed(controlled(absent(1, 2, 3), (A, B)), V4Settings(), None, (3, B), 0)
    assert sent(outputs) == [(B, "Create", 3), (A, "Create", 1), (B, "Create", 2)]


def test_no_more_operators_run_than_a_batch_holds() -> None:
    """And none is begun while more than half of them run."""
    settings = V4Settings(batch_size=4)
    control, outputs = placed(controlled(absent(*range(1, 11))), settings, None, (), 0)
    assert len(sent(outputs)) == 4 and counts(control.spans) == (6, 4, 0)
    control, _ = hear(control, A, 1, "Working")
    waiting, outputs = placed(control, settings, None, (), 1)
    assert (
        waiting is control and decided(outputs)[0].chosen is None and "3 operators run" in decided(outputs)[0].because
    )
    control, _ = hear(control, B, 2, "Working")
    control, outputs = placed(control, settings, None, (), 2)
    assert [key for _, _, key in sent(outputs)] == [5, 6]


def test_a_node_that_drains_gets_nothing() -> None:
    """It is named as rejected; without another node nothing happens."""
    _, outputs = placed(controlled(absent(1, 2)), V4Settings(), A, (), 0)
    assert {to for to, _, _ in sent(outputs)} == {B} and decided(outputs)[0].rejected == ((A, "it is being drained"),)
    control, outputs = placed(controlled(absent(1), (A,)), V4Settings(), A, (), 0)
    assert not sent(outputs) and counts(control.spans) == (1, 0, 0)


def test_a_node_creates_one_part_of_a_split_table_at_a_time() -> None:
    """scheduling-task-count-per-node; whole tables have no such limit."""
    parts = [Span(9, f"{i}", f"{i + 1}") for i in range(5)]
    control, outputs = placed(controlled(absent(*parts, 1, 2, 3)), V4Settings(), None, (), 0)
    assert [key for _, _, key in sent(outputs)] == [*parts[:2], 1, 2, 3]
    control, outputs = placed(control, V4Settings(), None, (), 1)
    assert not sent(outputs)
    control, _ = hear(control, A, parts[0], "Working")
    _, outputs = placed(control, V4Settings(), None, (), 2)
    assert sent(outputs) == [(A, "Create", parts[2])]


# Balance


def test_spans_move_until_nodes_differ_by_one() -> None:
    """From the fullest to the emptiest, and each move shows what it compared."""
    control, outputs = balanced(controlled(replicating(*range(1, 8)), (A, B, C)), 100, (), 0)
    moves = [running.operator for running in control.running.values()]
    assert sorted(move.dest for move in moves if move.kind == operators.MOVE) == [B, B, C, C]
    assert decided(outputs)[0].because == f"{A} had 7 spans, {B} 0" and (A, "7 spans") in decided(outputs)[0].rejected


def test_balance_waits_for_operators_and_absent_spans() -> None:
    """The counts have to settle first."""
    busy, _, _ = operators.added(controlled(replicating(*range(1, 8))), operators.move(1, A, B), 0)
    for control in (busy, controlled(spans.added(replicating(*range(1, 8)), [8], 0, 0, "new")[0])):
        after, outputs = balanced(control, 100, (), 1)
        assert after is control and decided(outputs)[0].chosen is None


def test_a_balance_that_is_good_enough_moves_nothing_and_says_so() -> None:
    """One span more is no imbalance."""
    state, _ = spans.restored(replicating(1, 2), 3, B, 0, 0, "given")
    control, outputs = balanced(controlled(state), 100, (), 0)
    assert not control.running and decided(outputs)[0].rejected == ((A, "2 spans"), (B, "1 span"))


def test_one_round_moves_no_more_than_a_batch() -> None:
    """The rest follows in later rounds."""
    control, _ = balanced(controlled(replicating(*range(1, 101))), 10, (), 0)
    assert len(control.running) == 10


# Drain


@pytest.mark.parametrize(
    ("initial", "limit"), [(0, 10), (1, 10), (999, 10), (1000, 10), (1001, 11), (1100, 11), (9901, 100)]
)
def test_v4_23_the_limit_is_one_percent_and_ten_at_least(initial: int, limit: int) -> None:
    """TestCalculateDrainMoveLimit: max(10, ceil(1 % of the initial count))."""
    assert move_limit(initial) == limit


def test_v4_23_the_limit_is_fixed_within_a_drain_epoch() -> None:
    """1100 spans, batch 100: 11 at once; also with 200 spans fewer; 10 in a new epoch."""
    control = controlled(replicating(*range(1, 1101)), (A, B, C))
    drain = targeted(NO_DRAIN, A, 1)
    control, drain, _ = drained(control, drain, B, 100, (), 0)
    assert moves_from(control, A) == 11
    ended = min(control.running)
    control, _ = hear(control, A, ended, "Stopped")
    control, _ = hear(control, control.spans.replicas[ended].node or "", ended, "Working")
    control, _ = operators.tasks_removed(control, range(901, 1101), 1, "dropped")
    control, drain, _ = drained(control, drain, B, 100, (), 2)
    assert moves_from(control, A) == 11 and spans.size(control.spans, A) < 1000
    idle = controlled(replicating(*range(1, 900)), (A, B, C))
    idle, drain, _ = drained(idle, targeted(drain, A, 2), B, 100, (), 3)
    assert moves_from(idle, A) == drain.limit == 10


def test_v4_24_the_maintainers_own_node_is_not_drained() -> None:
    """No move operator: the maintainer has to move first, and the limit is not fixed yet."""
    control, drain, outputs = drained(controlled(replicating(1, 2)), targeted(NO_DRAIN, A, 1), A, 100, (), 0)
    assert not control.running and drain.limit == 0 and "maintainer" in decided(outputs)[0].because


def test_a_drain_stays_within_a_batch_and_goes_to_the_emptiest() -> None:
    """Nodes that have fewer get more."""
    state, _ = spans.restored(replicating(*range(1, 20)), 20, B, 0, 0, "given")
    control, _, outputs = drained(controlled(state, (A, B, C)), targeted(NO_DRAIN, A, 1), C, 3, (), 0)
    assert [output.chosen for output in decided(outputs)] == [C, B, C] and len(control.running) == 3


def test_a_drain_without_another_node_says_so() -> None:
    """Nothing moves."""
    control, _, outputs = drained(controlled(replicating(1), (A,)), targeted(NO_DRAIN, A, 1), B, 3, (), 0)
    assert not control.running and decided(outputs)[0].because == "no other node is there"


def test_a_drain_target_of_an_older_epoch_is_ignored() -> None:
    """The same epoch can only clear it; a new one sets another."""
    drain = targeted(NO_DRAIN, A, 5)
    assert targeted(drain, B, 4) == drain and targeted(drain, B, 5) == drain
    assert targeted(drain, None, 5).target is None and targeted(drain, B, 6).target == B
    control = controlled(replicating(1))
    _, cleared, outputs = drained(control, replace(targeted(drain, None, 5), limit=11), B, 3, (), 0)
    assert cleared.limit == 0 and not outputs
