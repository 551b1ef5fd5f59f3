"""What an operator is: one span's way from one place to another, as a table of transitions over the span controller.

A report of its nodes, the loss of one or a DDL moves an operator on by :data:`TURNS`. The one that drives it
(:mod:`.controller`) asks it for its order again and again until it is finished, and then lets :func:`ended` leave the
span in its last state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ticdc_lab.machines.machine import Address, Output, replace
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.messages import (
    MergeDispatcherRequest,
    OperatorType,
    ScheduleDispatcherRequest,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.spans import ABSENT, REPLICATING, Spans, start_ts

ADD, MOVE, REMOVE, OCCUPY, SPLIT, MERGE = "add", "move", "remove", "occupy", "split", "merge"
"""Kinds of operators; ``occupy`` holds a span while a merge works on it, so that nothing else does."""

ADD_DEST, REMOVE_ORIGIN, ABORT_REMOVE_ORIGIN, REMOVING = "addDest", "removeOrigin", "abortRemoveOrigin", "removing"
RELEASING, HELD, MERGING = "releasing", "held", "merging"
DONE, RELEASED, DONE_SUCCESS, DONE_NO_POST_FINISH = "done", "released", "doneSuccess", "doneNoPostFinish"
"""Phases. ``releasing`` removes the dispatcher of a span that stays wanted."""

BOUND, DIVIDED, UNITED, NOT_UNITED, LEFT_APART = "bound", "divided", "united", "not united", "left apart"
"""What may become of a span beside absent and replicating: bound to the destination at once; of a merge, where a lost
node or a DDL ended it, the old spans are absent or left for their own removal."""


@dataclass(frozen=True, slots=True)
class SpanOperator:
    """An operator in one phase.

    ``key`` is the span that it holds: no other operator works on that. ``becomes`` is what its last step makes of the
    span, ``checkpoint_ts`` what its dispatcher had reached.
    """

    kind: str
    phase: str
    key: Key
    origin: Address | None = None
    dest: Address | None = None
    becomes: str = ""
    because: str = ""
    checkpoint_ts: int = 0
    parts: tuple[Span, ...] = ()
    targets: tuple[Address, ...] = ()
    merged: tuple[Key, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether nothing is left but its last step."""
        return self.phase in (DONE, RELEASED, DONE_SUCCESS, DONE_NO_POST_FINISH)

    @property
    def nodes(self) -> tuple[Address, ...]:
        """The nodes whose loss concerns it, the origin first."""
        return tuple(node for node in (self.origin, self.dest) if node is not None)


Stepped: TypeAlias = tuple[SpanOperator, Spans, list[Output]]


def add(key: Key, node: Address) -> SpanOperator:
    """Create the dispatcher of an absent span on a node (maintainer/operator/operator_add.go)."""
    return SpanOperator(ADD, ADD_DEST, key, dest=node)


def move(key: Key, origin: Address, dest: Address) -> SpanOperator:
    """Move a span from one node to another (maintainer/operator/operator_move.go).

    The destination is never asked before the origin has stopped, so the span is never twice. With the destination gone
    before that, the span becomes absent only when nothing can be writing it any more.
    """
    return SpanOperator(MOVE, REMOVE_ORIGIN, key, origin, dest)


def removal(key: Key, node: Address, *, then_absent: bool = False) -> SpanOperator:
    """Remove a dispatcher from where it is now, wherever the span is bound later (operator_remove.go).

    ``then_absent``: the span stays wanted (a removal that an earlier maintainer had begun), so it becomes absent.
    """
    return SpanOperator(REMOVE, RELEASING if then_absent else REMOVING, key, node)


def occupy(key: Key, node: Address) -> SpanOperator:
    """Hold a span until its merge has ended or its node is gone (maintainer/operator/operator_occupy.go)."""
    return SpanOperator(OCCUPY, HELD, key, node)


def split(key: Key, node: Address, parts: tuple[Span, ...], targets: tuple[Address, ...] = ()) -> SpanOperator:
    """Replace a span by parts of it, on ``targets`` where those are given (maintainer/operator/operator_split.go)."""
    return SpanOperator(SPLIT, REMOVE_ORIGIN, key, node, parts=parts, targets=targets)


def merge_of(state: Spans, keys: tuple[Key, ...]) -> SpanOperator | str:
    """Give the merge of neighbouring spans of one node (operator_merge.go), or why they cannot be merged."""
    if len(keys) < 2:
        return "one span alone is not merged"
    if not all(isinstance(key, Span) and key in state.replicas for key in keys):
        return "not all of them are spans of a split table"
    ranges = [key for key in keys if isinstance(key, Span)]
    for left, right in pairwise(ranges):
        if left.table != right.table or left.end != right.start:
            return f"{left} and {right} are no neighbours"
    replicas = [state.replicas[key] for key in keys]
    node = replicas[0].node
    if node is None or any(replica.node != node for replica in replicas):
        return "they are not on one node"
    whole = Span(ranges[0].table, ranges[0].start, ranges[-1].end)
    return SpanOperator(MERGE, MERGING, whole, dest=node, merged=keys)


def taken_up(state: Spans, merge: SpanOperator, node: Address, at_us: int) -> tuple[Spans, list[Output]]:
    """Take up the new span of a merge, bound to the node, at the lowest checkpoint of the old ones."""
    lowest = min(start_ts(state, key) for key in merge.merged)
    because = f"{len(merge.merged)} spans become one"
    state, changes = spans.added(state, [merge.key], lowest, at_us, because)
    state, more = spans.bound(state, merge.key, node, at_us, because)
    return state, changes + more


# What happens to an operator. A dispatcher that waits for a merge has not stopped; of an add that has stopped is not
# what was asked for, and the create is sent again.

_ENDED = ("Stopped", "Removed")
ORIGIN_STOPPED, ORIGIN_GONE = "origin stopped", "origin gone"
DEST_WORKS, DEST_REMOVED, DEST_GONE = "dest works", "dest removed", "dest gone"
DROPPED = "dropped"
"""``dropped``: a DDL removes the span."""


class Turn(NamedTuple):
    """The next phase, and what becomes of the span: at once where it is bound, else with the last step."""

    phase: str
    becomes: str = ""
    because: str = ""


ANY = ""
_MOVED_ON = "it is to be created on {dest}"
TURNS: Mapping[tuple[str, str, str], Turn] = {
    (ADD, ADD_DEST, DEST_WORKS): Turn(DONE, REPLICATING, "{dest} reports it working"),
    (ADD, ADD_DEST, DEST_REMOVED): Turn(DONE, ABSENT, "{dest} could not create it"),
    (ADD, ANY, DEST_GONE): Turn(DONE, ABSENT, "{dest} is gone"),
    (ADD, ANY, DROPPED): Turn(DONE, ABSENT, "a DDL removes it"),
    (MOVE, REMOVE_ORIGIN, ORIGIN_STOPPED): Turn(ADD_DEST, BOUND, f"{{origin}} has stopped it; {_MOVED_ON}"),
    (MOVE, REMOVE_ORIGIN, ORIGIN_GONE): Turn(
        ADD_DEST, BOUND, f"{{origin}} is gone, and what it ran with it; {_MOVED_ON}"
    ),
    (MOVE, REMOVE_ORIGIN, DEST_GONE): Turn(ABORT_REMOVE_ORIGIN),
    (MOVE, ABORT_REMOVE_ORIGIN, ORIGIN_STOPPED): Turn(
        DONE_NO_POST_FINISH, ABSENT, "{origin} has stopped it, and {dest} is gone"
    ),
    (MOVE, ABORT_REMOVE_ORIGIN, ORIGIN_GONE): Turn(
        DONE_NO_POST_FINISH, ABSENT, "{origin} is gone, and what it ran with it, and {dest} is gone"
    ),
    (MOVE, ADD_DEST, DEST_WORKS): Turn(DONE_SUCCESS, REPLICATING, "{dest} reports it working"),
    (MOVE, ADD_DEST, DEST_GONE): Turn(DONE_NO_POST_FINISH, ABSENT, "{dest} is gone"),
    (MOVE, DONE_SUCCESS, DEST_GONE): Turn(DONE_NO_POST_FINISH, ABSENT, "{dest} is gone"),
    (MOVE, ANY, DROPPED): Turn(DONE_NO_POST_FINISH, REPLICATING, "a DDL removes it in the middle of a move"),
    (REMOVE, REMOVING, ORIGIN_STOPPED): Turn(DONE),
    (REMOVE, REMOVING, ORIGIN_GONE): Turn(DONE),
    (REMOVE, RELEASING, ORIGIN_STOPPED): Turn(DONE, ABSENT, "{origin} has stopped it"),
    (REMOVE, RELEASING, ORIGIN_GONE): Turn(DONE, ABSENT, "{origin} has stopped it"),
    (REMOVE, ANY, DROPPED): Turn(DONE),
    (OCCUPY, HELD, ORIGIN_GONE): Turn(RELEASED, ABSENT, "{origin} is gone"),
    (OCCUPY, ANY, DROPPED): Turn(RELEASED),
    (SPLIT, REMOVE_ORIGIN, ORIGIN_STOPPED): Turn(DONE, DIVIDED),
    (SPLIT, ANY, ORIGIN_GONE): Turn(DONE, ABSENT, "{origin} is gone: not split"),
    (SPLIT, ANY, DROPPED): Turn(DONE, ABSENT, "a DDL removes it: not split"),
    (MERGE, MERGING, DEST_WORKS): Turn(DONE, UNITED, "{dest} reports it working"),
    (MERGE, ANY, DEST_GONE): Turn(DONE, NOT_UNITED, "{dest} is gone: not merged"),
    (MERGE, ANY, DROPPED): Turn(DONE, LEFT_APART, "a DDL removes it: not merged"),
}
"""By kind, phase (any, where it has no row of its own) and what happens; where nothing stands it changes nothing."""


def turned(operator: SpanOperator, state: Spans, what: str, at_us: int, checkpoint_ts: int = 0) -> Stepped:
    """Take what happens to an operator."""
    kind = operator.kind
    turn = TURNS.get((kind, operator.phase, what)) or TURNS.get((kind, ANY, what))
    if turn is None:
        return operator, state, []
    because = turn.because.format(origin=operator.origin, dest=operator.dest)
    if turn.becomes == BOUND and operator.dest is not None:
        return replace(operator, phase=turn.phase), *spans.bound(state, operator.key, operator.dest, at_us, because)
    after = replace(
        operator,
        phase=turn.phase,
        becomes=turn.becomes,
        because=because,
        checkpoint_ts=max(operator.checkpoint_ts, checkpoint_ts),
    )
    return after, state, []


def reported(operator: SpanOperator, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
    """Take a status that a node reported of the span."""
    what = ""
    if sender == operator.origin and status.component_status in _ENDED:
        what = ORIGIN_STOPPED
    elif sender == operator.dest:
        what = {"Working": DEST_WORKS, "Removed": DEST_REMOVED}.get(status.component_status, "")
    return turned(operator, state, what, at_us, status.checkpoint_ts)


def without_node(operator: SpanOperator, state: Spans, node: Address, at_us: int) -> Stepped:
    """Take that a node is gone."""
    what = {operator.origin: ORIGIN_GONE, operator.dest: DEST_GONE}.get(node, "")
    return turned(operator, state, what, at_us)


def begun(operator: SpanOperator, state: Spans, at_us: int) -> Stepped:
    """Take the span, unless a node that is gone has ended it already."""
    if operator.phase == ADD_DEST and operator.kind == ADD and operator.dest is not None:
        because = f"it is to be created on {operator.dest}"
        return operator, *spans.bound(state, operator.key, operator.dest, at_us, because)
    because = {
        (MOVE, REMOVE_ORIGIN): f"it moves from {operator.origin} to {operator.dest}",
        (REMOVE, RELEASING): f"{operator.origin} is stopping it",
        (SPLIT, REMOVE_ORIGIN): f"it is to be split into {len(operator.parts)}",
        (MERGE, MERGING): f"it is to be merged into {operator.key}",
    }.get((operator.kind, operator.phase), "")
    changes: list[Output] = []
    for key in (operator.merged or (operator.key,)) if because else ():
        state, more = spans.marked_scheduling(state, key, at_us, because)
        changes += more
    return operator, state, changes


class Order(NamedTuple):
    """A message that an operator wants sent, again until it is answered."""

    to: Address
    message: ScheduleDispatcherRequest | MergeDispatcherRequest


_OF_ORDERS: Mapping[str, OperatorType] = {ADD: "Add", MOVE: "Move", REMOVE: "Remove", SPLIT: "Split"}


def create(state: Spans, key: Key, node: Address, operator_type: OperatorType) -> Order:
    """Give the order to create a dispatcher from where the span is known to be."""
    return Order(node, ScheduleDispatcherRequest("Create", key, start_ts(state, key), operator_type))


def order(operator: SpanOperator, state: Spans) -> Order | None:
    """Give what has to be sent now, None if nothing."""
    if operator.finished or operator.kind == OCCUPY:
        return None
    if operator.kind == MERGE and operator.dest is not None:
        return Order(operator.dest, MergeDispatcherRequest(operator.merged, operator.key))
    of = _OF_ORDERS[operator.kind]
    if operator.phase == ADD_DEST and operator.dest is not None:
        return create(state, operator.key, operator.dest, of)
    assert operator.origin is not None
    return Order(operator.origin, ScheduleDispatcherRequest("Remove", operator.key, 0, of))


def ended(operator: SpanOperator, state: Spans, at_us: int) -> Stepped:
    """Leave the span in its last state; a second time changes nothing.

    The spans of a merge stay occupied meanwhile: none can take one that is released and still exists there.
    """
    key, because, changes = operator.key, operator.because, list[Output]()
    if operator.becomes == REPLICATING:
        state, changes = spans.marked_replicating(state, key, at_us, because)
    elif operator.becomes == ABSENT:
        state, changes = spans.marked_absent(state, key, at_us, because)
    elif operator.becomes == DIVIDED:
        state, changes = _divided(operator, state, at_us)
    elif operator.becomes == UNITED:
        state = spans.checkpointed(state, key, operator.checkpoint_ts)
        for old in operator.merged:
            state, more = spans.removed(state, old, f"it is merged into {key}")
            changes += more
        state, more = spans.marked_replicating(state, key, at_us, because)
        changes += more
    elif operator.becomes in (NOT_UNITED, LEFT_APART):
        for old in operator.merged if operator.becomes == NOT_UNITED else ():
            state, more = spans.marked_absent(state, old, at_us, because)
            changes += more
        state, more = spans.removed(state, key, because)
        changes += more
    return replace(operator, becomes=""), state, changes


def _divided(operator: SpanOperator, state: Spans, at_us: int) -> tuple[Spans, list[Output]]:
    """Put the parts in place of the span, from where its dispatcher ended; one without a target is absent."""
    key, parts = operator.key, operator.parts
    checkpoint_ts = max(operator.checkpoint_ts, start_ts(state, key))
    state, changes = spans.removed(state, key, f"it is split into {len(parts)}")
    state, more = spans.added(state, parts, checkpoint_ts, at_us, f"a part of {key}")
    changes += more
    for part, node in zip(parts, operator.targets, strict=False):
        state, more = spans.bound(state, part, node, at_us, f"a part of {key}, to be created on {node}")
        changes += more
    return state, changes
