"""Operators one by one, as maintainer/operator/*_test.go drives them; cases of the golden file by their id."""

from __future__ import annotations

import pytest
from v4_operating import A, B, Driven, absent, controlled, counts, hear, replicating, sent, status

from ticdc_lab.machines.machine import Changed
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.schedulers import moves_from
from ticdc_lab.simulate.scheduler.v4.spans import Spans

LEFT, RIGHT, WHOLE = Span(100, "a", "m"), Span(100, "m", "z"), Span(100, "a", "z")


def moving() -> Driven:
    """Give a move from A to B that has begun."""
    return Driven(operators.move(100, A, B), replicating(100))


# Move


def test_a_move_removes_the_origin_and_then_creates_at_the_destination() -> None:
    """The destination hears nothing before the origin has stopped, and starts where the origin ended."""
    move = moving()
    assert move.counts == (0, 1, 0) and move.order() == (A, "Remove", 100)
    move.check(B, "Working")
    assert move.operator.phase == "removeOrigin", "the destination cannot finish what it was not asked for"
    move.check(A, "Working")
    assert move.operator.phase == "removeOrigin"
    move.spans = spans.checkpointed(move.spans, 100, 1500)
    move.check(A, "Stopped")
    assert move.operator.phase == "addDest" and move.spans.replicas[100].node == B
    said = operators.order(move.operator, move.spans)
    assert said is not None and (said.to, said.message.start_ts) == (B, 1500)  # type: ignore[union-attr]
    move.check(B, "Working", 2000)
    assert move.operator.finished and move.order() is None
    move.post_finish()
    assert move.counts == (0, 0, 1) and move.spans.replicas[100].node == B


def test_v4_02_a_destination_lost_after_the_origin_stopped_leaves_the_span_absent() -> None:
    """Op finishes at once, the span is absent."""
    move = moving()
    move.check(A, "Stopped")
    move.node_removed(B)
    move.post_finish()
    assert move.operator.finished and move.counts == (1, 0, 0) and move.order() is None


def test_v4_03_an_origin_lost_before_it_stopped_is_as_good_as_stopped() -> None:
    """State jumps to addDest, a create goes to B; unfinished until B works."""
    move = moving()
    move.node_removed(A)
    assert move.operator.phase == "addDest" and move.order() == (B, "Create", 100)
    assert not move.operator.finished
    move.check(B, "Working", 2000)
    assert move.operator.finished


def test_v4_04_both_nodes_gone_before_the_start_leave_nothing_scheduling() -> None:
    """Span is absent, none is left scheduling without a node."""
    control, _, why_not = operators.added(controlled(replicating(100), nodes=()), operators.move(100, A, B), 1)
    assert not why_not and counts(control.spans) == (1, 0, 0)
    assert control.spans.replicas[100].node is None and not control.running


def test_v4_05_destination_then_origin_lost_make_the_span_absent_once() -> None:
    """Op finishes; PostFinish is idempotent."""
    move = moving()
    move.node_removed(B)
    assert move.operator.phase == "abortRemoveOrigin" and not move.operator.finished
    move.node_removed(A)
    assert move.operator.finished
    for n_changes in (1, 0):
        move.post_finish()
        assert move.counts == (1, 0, 0) and len(move.outputs) == n_changes


def test_v4_06_a_ddl_ends_a_move_with_the_span_where_it_is() -> None:
    """DoneNoPostFinish, replicating on A, no more messages."""
    move = moving()
    move.task_removed()
    assert move.operator.phase == "doneNoPostFinish" and move.order() is None
    move.post_finish()
    assert move.counts == (0, 0, 1) and move.spans.replicas[100].node == A
    move.post_finish()
    assert move.counts == (0, 0, 1)


def test_a_destination_lost_before_the_origin_stopped_aborts_without_letting_go() -> None:
    """The origin is still removed, and the span is absent only when that has stopped (no second dispatcher)."""
    move = moving()
    move.node_removed(B)
    assert move.operator.phase == "abortRemoveOrigin" and move.order() == (A, "Remove", 100)
    assert move.counts == (0, 1, 0)
    move.check(A, "Stopped")
    move.post_finish()
    assert move.operator.finished and move.counts == (1, 0, 0)


def test_an_origin_lost_after_it_stopped_changes_nothing() -> None:
    """The move waits for the destination."""
    move = moving()
    move.check(A, "Stopped")
    move.node_removed(A)
    assert move.order() == (B, "Create", 100) and not move.operator.finished
    move.check(B, "Working")
    assert move.operator.finished


@pytest.mark.parametrize("state", ["Initializing", "WaitingMerge", "Working"])
def test_only_what_has_ended_counts_as_stopped(state: str) -> None:
    """A dispatcher in between is still there."""
    move = moving()
    move.check(A, state)
    assert move.operator.phase == "removeOrigin"


# Add


@pytest.mark.parametrize(
    ("reported", "finished", "after"),
    [("Stopped", False, (0, 1, 0)), ("Removed", True, (1, 0, 0)), ("Working", True, (0, 0, 1))],
)
def test_v4_07_what_an_add_makes_of_a_status(reported: str, finished: bool, after: tuple[int, int, int]) -> None:
    """Stopped is ignored and the create sent again; Removed gives up; Working ends it."""
    add = Driven(operators.add(100, B), absent(100))
    add.check(A, "Working")
    assert not add.operator.finished, "another node's status is nothing to it"
    add.check(B, reported)
    assert add.operator.finished == finished
    assert add.order() == (None if finished else (B, "Create", 100))
    if finished:
        add.post_finish()
    assert add.counts == after


def test_v4_07_an_add_without_its_node_leaves_the_span_absent() -> None:
    """Node loss -> absent."""
    add = Driven(operators.add(100, B), absent(100))
    add.node_removed(A)
    assert not add.operator.finished
    add.node_removed(B)
    add.post_finish()
    assert add.operator.finished and add.counts == (1, 0, 0)


def test_a_finished_add_does_its_last_step_once() -> None:
    """A second PostFinish must not take back what happened since."""
    add = Driven(operators.add(100, B), absent(100))
    add.node_removed(B)
    add.post_finish()
    add.spans, _ = spans.bound(add.spans, 100, A, 9, "somebody else creates it")
    add.post_finish()
    assert add.counts == (0, 1, 0)


# Remove and occupy


def test_a_removal_ends_with_the_dispatcher_or_its_node() -> None:
    """Waiting for a merge is not the end; the node is the one of the beginning."""
    for end in ("Stopped", "Removed"):
        remove = Driven(operators.removal(100, A), replicating(100))
        remove.check(A, "WaitingMerge")
        assert not remove.operator.finished and remove.order() == (A, "Remove", 100)
        remove.spans, _ = spans.marked_absent(remove.spans, 100, 2, "meanwhile")
        assert remove.order() == (A, "Remove", 100)
        remove.check(B, end)
        assert not remove.operator.finished
        remove.check(A, end)
        assert remove.operator.finished and remove.order() is None
    gone = Driven(operators.removal(100, A), replicating(100))
    gone.node_removed(A)
    assert gone.operator.finished


def test_a_removal_of_a_wanted_span_makes_it_absent_unless_a_ddl_drops_it() -> None:
    """The last step must not bring back a span that is gone."""
    kept = Driven(operators.removal(100, A, then_absent=True), replicating(100))
    kept.check(A, "Stopped")
    kept.post_finish()
    assert kept.counts == (1, 0, 0)
    dropped = Driven(operators.removal(100, A, then_absent=True), replicating(100))
    dropped.task_removed()
    dropped.post_finish()
    assert dropped.counts == (0, 1, 0)


def test_an_occupied_span_is_held_until_released_or_its_node_is_gone() -> None:
    """It reports nothing, hears nothing."""
    occupy = Driven(operators.occupy(100, A), replicating(100))
    occupy.check(A, "Stopped")
    assert occupy.order() is None and not occupy.operator.finished
    occupy.node_removed(B)
    assert not occupy.operator.finished
    occupy.node_removed(A)
    occupy.post_finish()
    assert occupy.operator.finished and occupy.counts == (1, 0, 0)


# Split


def splitting(targets: tuple[str, ...] = ()) -> Driven:
    """Give a split of the left span that has begun."""
    parts = (Span(100, "a", "h"), Span(100, "h", "m"))
    return Driven(operators.split(LEFT, A, parts, targets), replicating(LEFT, RIGHT))


def test_v4_10_a_split_to_targets_binds_the_parts() -> None:
    """0 absent, 2 scheduling, nodes {A, B}; the neighbour is untouched."""
    split = splitting((A, B))
    assert split.order() == (A, "Remove", LEFT)
    split.check(A, "Stopped", 1500)
    split.post_finish()
    assert split.counts == (0, 2, 1) and LEFT not in split.spans.replicas
    parts = [split.spans.replicas[key] for key in spans.of_table(split.spans, 100)[:2]]
    assert [(part.node, part.checkpoint_ts) for part in parts] == [(A, 1500), (B, 1500)]
    assert split.spans.replicas[RIGHT].state == "replicating"
    split.post_finish()
    assert split.counts == (0, 2, 1)


def test_a_split_without_targets_leaves_the_parts_absent() -> None:
    """The basic scheduler places them."""
    split = splitting()
    split.check(A, "Stopped")
    split.post_finish()
    assert split.counts == (2, 0, 1)


@pytest.mark.parametrize("stopped", [False, True])
def test_v4_11_a_split_whose_origin_is_lost_is_not_executed(stopped: bool) -> None:
    """The original span becomes absent: one span, not two."""
    split = splitting((A, B))
    if stopped:
        split.check(A, "Stopped")
    split.node_removed(A)
    split.post_finish()
    assert split.spans.replicas[LEFT].state == "absent" and split.counts == (1, 0, 1)


def test_a_ddl_ends_a_split_without_parts() -> None:
    """PostFinish creates nothing."""
    split = splitting()
    split.task_removed()
    split.post_finish()
    assert set(split.spans.replicas) == {LEFT, RIGHT} and split.counts == (1, 0, 1)


def test_the_controller_creates_the_parts_of_a_split_on_their_targets() -> None:
    """Nothing stays scheduling without an operator."""
    control, outputs, _ = operators.added(
        controlled(replicating(LEFT)), operators.split(LEFT, A, (Span(100, "a", "h"), Span(100, "h", "m")), (A, B)), 1
    )
    assert sent(outputs) == [(A, "Remove", LEFT)]
    control, outputs = hear(control, A, LEFT, "Stopped")
    assert sent(outputs) == [(A, "Create", Span(100, "a", "h")), (B, "Create", Span(100, "h", "m"))]
    assert set(control.running) == set(control.spans.scheduling)


# Merge


def merging(n: int = 2, checkpoints: tuple[int, ...] = ()) -> tuple[Driven, list[Span]]:
    """Give a merge that has begun, and the old spans."""
    ends = [f"{i:05d}" for i in range(n + 1)]
    old = [Span(100, ends[i], ends[i + 1]) for i in range(n)]
    state = Spans()
    for i, key in enumerate(old):
        state, _ = spans.restored(state, key, A, checkpoints[i] if checkpoints else 1000, 0, "given")
    merged = operators.merge_of(state, tuple(old))
    assert not isinstance(merged, str)
    state, _ = operators.taken_up(state, merged, A, 1)
    return Driven(merged, state), old


def test_a_merge_replaces_the_old_spans_by_one() -> None:
    """The new span starts at the lowest checkpoint of the old ones."""
    driven, old = merging(2, (1500, 1000))
    assert driven.counts == (0, 3, 0) and driven.order() == (A, "Merge", driven.operator.key)
    assert driven.spans.replicas[driven.operator.key].checkpoint_ts == 1000
    driven.check(B, "Working")
    driven.check(A, "Stopped")
    assert not driven.operator.finished
    driven.check(A, "Working", 1200)
    assert driven.operator.finished and driven.order() is None
    driven.post_finish()
    assert driven.counts == (0, 0, 1) and not set(old) & set(driven.spans.replicas)
    driven.post_finish()
    assert driven.counts == (0, 0, 1)


def test_a_merge_without_its_node_leaves_the_old_spans_absent() -> None:
    """Nothing is merged."""
    driven, old = merging()
    driven.node_removed(A)
    driven.post_finish()
    assert driven.counts == (2, 0, 0) and set(driven.spans.replicas) == set(old)


def test_a_ddl_ends_a_merge_and_leaves_the_old_spans_to_their_removal() -> None:
    """They stay where they are; the new span is gone."""
    driven, old = merging()
    driven.task_removed()
    driven.post_finish()
    assert {driven.spans.replicas[key].node for key in old} == {A}
    assert set(driven.spans.replicas) == set(old) and not spans.absent_size(driven.spans)


@pytest.mark.parametrize(
    ("keys", "why_not"),
    [
        ((LEFT,), "one span alone"),
        ((LEFT, Span(100, "n", "z")), "no neighbours"),
        ((LEFT, Span(101, "m", "z")), "no neighbours"),
        ((LEFT, Span(100, "m", "x")), "not on one node"),
        ((LEFT, 7), "not all of them are spans"),
    ],
)
def test_spans_that_cannot_be_merged_are_refused_with_a_reason(keys: tuple[Key, ...], why_not: str) -> None:
    """Less than two, no neighbours, of two tables, on two nodes, or no spans of a split table."""
    state = replicating(LEFT, Span(100, "n", "z"), Span(101, "m", "z"), 7)
    state, _ = spans.restored(state, Span(100, "m", "x"), B, 1000, 0, "given")
    control, outputs, said = operators.merged(controlled(state), keys, 1)
    assert why_not in said and not outputs and not control.running


def test_v4_14_occupy_operators_are_released_after_the_old_spans_are_gone() -> None:
    """No one can see an occupy operator released while an old replica still exists: 4096 spans, in order."""
    ends = [f"{i:05d}" for i in range(4097)]
    old = tuple(Span(100, ends[i], ends[i + 1]) for i in range(4096))
    control, outputs, why_not = operators.merged(controlled(replicating(*old)), old, 1)
    new = Span(100, ends[0], ends[-1])
    assert not why_not and sent(outputs) == [(A, "Merge", new)] and len(control.running) == 4097
    for key in (old[0], old[-1]):
        _, _, held = operators.added(control, operators.move(key, A, B), 2)
        assert "occupy" in held
    control, outputs = hear(control, A, new, "Working")
    changes = [(i, o) for i, o in enumerate(outputs) if isinstance(o, Changed)]
    gone = [i for i, o in changes if o.after is None and o.subject.startswith("span:")]
    released = [i for i, o in changes if o.before == "occupy"]
    assert len(gone) == len(released) == 4096 and max(gone) < min(released)
    assert not control.running and set(control.spans.replicas) == {new}


def test_a_merge_that_cannot_begin_holds_nothing() -> None:
    """One span is taken: none of the others is left occupied."""
    control, _, _ = operators.added(controlled(replicating(LEFT, RIGHT)), operators.move(RIGHT, A, B), 1)
    control, outputs, why_not = operators.merged(control, (LEFT, RIGHT), 2)
    assert "move" in why_not and not outputs and set(control.running) == {RIGHT}


def test_a_node_lost_in_a_merge_frees_everything() -> None:
    """All old spans are absent, no operator is left."""
    control, _, _ = operators.merged(controlled(replicating(LEFT, RIGHT)), (LEFT, RIGHT), 1)
    control, _ = operators.node_removed(control, A, 2)
    assert counts(control.spans) == (2, 0, 0) and not control.running


def test_a_dropped_table_ends_its_merge_and_removes_every_dispatcher() -> None:
    """Also the new one, which may have been created."""
    control, _, _ = operators.merged(controlled(replicating(LEFT, RIGHT)), (LEFT, RIGHT), 1)
    control, outputs = operators.tasks_removed(control, spans.of_table(control.spans, 100), 2, "dropped")
    assert set(sent(outputs)) == {(A, "Remove", LEFT), (A, "Remove", RIGHT), (A, "Remove", WHOLE)}
    assert not control.spans.replicas and {running.operator.kind for running in control.running.values()} == {"remove"}


# The controller


def test_one_operator_a_span_and_only_of_spans_that_exist() -> None:
    """A second one is refused, as is one for a span no one knows."""
    control, _, _ = operators.added(controlled(replicating(1)), operators.move(1, A, B), 1)
    same, outputs, why_not = operators.added(control, operators.move(1, A, B), 2)
    assert same is control and not outputs and "move" in why_not
    assert operators.added(control, operators.add(9, A), 2)[2] == "it is unknown"


def test_orders_are_sent_again_until_they_are_answered() -> None:
    """Not before the resend interval, and at once in the next phase."""
    control, outputs, _ = operators.added(controlled(replicating(1)), operators.move(1, A, B), 0)
    assert sent(outputs) == [(A, "Remove", 1)]
    control, outputs = operators.executed(control, control.resend_us - 1)
    assert not outputs
    control, outputs = operators.executed(control, control.resend_us)
    assert sent(outputs) == [(A, "Remove", 1)]
    control, outputs = hear(control, A, 1, "Stopped", control.resend_us + 1)
    assert sent(outputs) == [(B, "Create", 1)]
    control, outputs = hear(control, B, 1, "Working", control.resend_us + 2)
    assert not control.running and counts(control.spans) == (0, 0, 1) and not sent(outputs)


def test_a_lost_node_makes_absent_what_no_operator_holds() -> None:
    """Occupied and moving spans go their operator's way."""
    control, _, _ = operators.added(controlled(replicating(1, 2, 3)), operators.move(1, A, B), 0)
    control, _, _ = operators.added(control, operators.occupy(2, A), 0)
    control, _ = operators.node_removed(control, A, 1)
    states = {key: str(replica) for key, replica in control.spans.replicas.items()}
    assert states == {1: f"scheduling@{B}", 2: "absent", 3: "absent"}


def test_a_dropped_span_replaces_its_operator_by_a_removal() -> None:
    """The removal goes to where the span was bound last; nothing comes back as absent."""
    control, _, _ = operators.added(controlled(replicating(1)), operators.move(1, A, B), 0)
    control, _ = hear(control, A, 1, "Stopped")
    control, outputs = operators.tasks_removed(control, [1], 3, "dropped")
    assert sent(outputs) == [(B, "Remove", 1)] and not control.spans.replicas
    control, _ = hear(control, B, 1, "Stopped")
    assert not control.running and not control.spans.replicas


def test_moves_in_flight_are_counted_by_origin() -> None:
    """CountInflightDrainMovesFromNode."""
    state, _ = spans.restored(replicating(1), 2, B, 1000, 0, "given")
    control, _, _ = operators.added(controlled(state), operators.move(1, A, B), 0)
    control, _, _ = operators.added(control, operators.move(2, B, A), 0)
    assert [moves_from(control, node) for node in (A, B, "node-c")] == [1, 1, 0]


def test_a_status_of_a_span_without_operator_changes_nothing() -> None:
    """The controller only drives operators."""
    control = controlled(replicating(1))
    assert operators.checked(control, A, status(1, "Stopped"), 1) == (control, [])
