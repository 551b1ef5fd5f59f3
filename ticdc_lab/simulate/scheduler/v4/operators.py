"""What an operator is: one span's way from one place to another, as a state machine over the span controller.

An operator is frozen; every method gives the next operator, the next spans and what changed. Whoever drives it
(:mod:`.operators`) asks it for its order again and again until it is finished, and then runs ``post_finish`` once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, NamedTuple, TypeAlias

from ticdc_lab.machines.machine import Address, Output, replace
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.messages import (
    MergeDispatcherRequest,
    OperatorType,
    ScheduleDispatcherRequest,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.spans import Spans, start_ts

SpanOperator: TypeAlias = "OneNodeOperator | MoveOperator"
Stepped: TypeAlias = tuple[SpanOperator, Spans, list[Output]]


class Order(NamedTuple):
    """A message that an operator wants sent, again until it is answered."""

    to: Address
    message: ScheduleDispatcherRequest | MergeDispatcherRequest


@dataclass(frozen=True, slots=True)
class OneNodeOperator:
    """One operator on one node, in one phase: it does something until it is done, or given up."""

    key: Key  # the span it holds: no other operator works on that span
    node: Address  # where its dispatcher is, or is to be
    done: bool = field(default=False, kw_only=True)  # whether nothing is left but ``post_finish``
    removed: str = field(default="", kw_only=True)  # why it was given up
    posted: bool = field(default=False, kw_only=True)  # whether the last step was done
    kind: ClassVar[str]
    doing: ClassVar[str]
    after: ClassVar[str] = "done"

    @property
    def finished(self) -> bool:
        """Whether nothing is left but ``post_finish``."""
        return self.done

    @property
    def phase(self) -> str:
        """Where it is, in one word."""
        return self.after if self.done else self.doing

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give the nodes whose loss concerns it."""
        return (self.node,)

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Take the span."""
        return self, state, []

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """Take a status that a node reported of the span."""
        return self, state, []

    def schedule(self, state: Spans) -> Order | None:
        """Give what has to be said now, None where nothing."""
        return None

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """Without its node it is given up, even if it was done already."""
        if node != self.node or self.posted:
            return self, state, []
        return replace(self, done=True, removed=self.removed or f"{node} is gone"), state, []

    def on_task_removed(self, state: Spans, at_us: int) -> Stepped:
        """Take that a DDL removes the span."""
        return replace(self, done=True, removed="a DDL removes it"), state, []

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Leave the span in its last state; a second time changes nothing."""
        return self, state, []


def create(spans: Spans, key: Key, node: Address, operator_type: OperatorType) -> Order:
    """Give the order to create a dispatcher from where the span is known to be."""
    return Order(node, ScheduleDispatcherRequest("Create", key, start_ts(spans, key), operator_type))


def remove(key: Key, node: Address, operator_type: OperatorType) -> Order:
    """Give the order to remove a dispatcher."""
    return Order(node, ScheduleDispatcherRequest("Remove", key, 0, operator_type))


# Create the dispatcher of an absent span on a node (maintainer/operator/operator_add.go).


@dataclass(frozen=True, slots=True)
class Add(OneNodeOperator):
    """``removed`` says why the span has to become absent again."""

    kind = "add"
    doing = "addDest"

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Bind the span to its node, unless that is gone already."""
        if self.done:
            return self, state, []
        return self, *spans.bound(state, self.key, self.node, at_us, f"it is to be created on {self.node}")

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """Working ends it, Removed gives up; Stopped is not what was asked for, and the create is sent again."""
        if self.done or sender != self.node:
            return self, state, []
        if status.component_status == "Working":
            return replace(self, done=True), state, []
        if status.component_status == "Removed":
            return replace(self, done=True, removed=f"{sender} could not create it"), state, []
        return self, state, []

    def schedule(self, state: Spans) -> Order | None:
        """Create, until it works."""
        return None if self.done else create(state, self.key, self.node, "Add")

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Replicating where it works, absent where it was given up."""
        if self.posted:
            return self, state, []
        after = replace(self, posted=True)
        if self.removed:
            return after, *spans.marked_absent(state, self.key, at_us, self.removed)
        return after, *spans.marked_replicating(state, self.key, at_us, f"{self.node} reports it working")


# Move a span from one node to another (maintainer/operator/operator_move.go).
#
# ``removeOrigin`` until the origin says that it stopped (or is gone), then ``addDest`` until the destination works.
# With the destination gone before the origin stopped, ``abortRemoveOrigin``: the span may become absent only when
# nothing can be writing it any more. The destination is never asked before the origin has stopped, so the span is
# never twice.

REMOVE_ORIGIN, ADD_DEST, ABORT_REMOVE_ORIGIN = "removeOrigin", "addDest", "abortRemoveOrigin"
DONE_SUCCESS, DONE_NO_POST_FINISH = "doneSuccess", "doneNoPostFinish"


@dataclass(frozen=True, slots=True)
class MoveOperator:
    """``force`` restarts a dispatcher on its own node; ``origin`` is None where the span was on no node."""

    key: Key
    origin: Address | None
    dest: Address
    force: bool = False
    state: str = REMOVE_ORIGIN
    posted: bool = False
    kind: ClassVar[str] = "move"

    @property
    def finished(self) -> bool:
        """Moved, or given up with the span left in a state of its own."""
        return self.state in (DONE_SUCCESS, DONE_NO_POST_FINISH)

    @property
    def phase(self) -> str:
        """Where it is."""
        return self.state

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give origin and destination, in this order."""
        return (self.dest,) if self.origin is None else (self.origin, self.dest)

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Take the span from its origin; nothing to do where it is there already."""
        if self.finished or self.state != REMOVE_ORIGIN:
            return self, state, []
        if self.origin is None:
            return self._add_dest(state, at_us, f"it is to be created on {self.dest}")
        if self.dest == self.origin and not self.force:
            return replace(self, state=DONE_SUCCESS), state, []
        because = f"it moves from {self.origin} to {self.dest}"
        return self, *spans.marked_scheduling(state, self.key, at_us, because)

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """The origin stopped, or the destination works; anything else changes nothing."""
        if self.state == ADD_DEST and sender == self.dest and status.component_status == "Working":
            return replace(self, state=DONE_SUCCESS), state, []
        if sender == self.origin and status.component_status in ("Stopped", "Removed"):
            return self._origin_stopped(state, at_us, f"{sender} has stopped it")
        return self, state, []

    def schedule(self, state: Spans) -> Order | None:
        """Remove at the origin, later create at the destination."""
        if self.state == ADD_DEST:
            return create(state, self.key, self.dest, "Move")
        if self.state in (REMOVE_ORIGIN, ABORT_REMOVE_ORIGIN) and self.origin is not None:
            return remove(self.key, self.origin, "Move")
        return None

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """Without the destination give up, but only once the origin cannot write; without the origin go on."""
        if node == self.dest and self.state != DONE_NO_POST_FINISH and not self.posted:
            if self.state in (ADD_DEST, DONE_SUCCESS):
                return self._as_absent(state, at_us, f"{node} is gone")
            if node != self.origin:
                return replace(self, state=ABORT_REMOVE_ORIGIN), state, []
            return self._as_absent(state, at_us, f"{node} is gone")
        if node == self.origin:
            return self._origin_stopped(state, at_us, f"{node} is gone, and what it ran with it")
        return self, state, []

    def on_task_removed(self, state: Spans, at_us: int) -> Stepped:
        """Leave the span as replicating where it is bound, for the remove operator to take it from there."""
        after = replace(self, state=DONE_NO_POST_FINISH)
        return after, *spans.marked_replicating(state, self.key, at_us, "a DDL removes it in the middle of a move")

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Replicating at the destination; nothing where the move was given up."""
        if self.state != DONE_SUCCESS or self.posted:
            return self, state, []
        after = replace(self, posted=True)
        return after, *spans.marked_replicating(state, self.key, at_us, f"{self.dest} reports it working")

    def _origin_stopped(self, state: Spans, at_us: int, because: str) -> Stepped:
        if self.state == REMOVE_ORIGIN:
            return self._add_dest(state, at_us, f"{because}; it is to be created on {self.dest}")
        if self.state == ABORT_REMOVE_ORIGIN:
            return self._as_absent(state, at_us, f"{because}, and {self.dest} is gone")
        return self, state, []

    def _add_dest(self, state: Spans, at_us: int, because: str) -> Stepped:
        return replace(self, state=ADD_DEST), *spans.bound(state, self.key, self.dest, at_us, because)

    def _as_absent(self, state: Spans, at_us: int, because: str) -> Stepped:
        return replace(self, state=DONE_NO_POST_FINISH), *spans.marked_absent(state, self.key, at_us, because)


# Remove a dispatcher from its node (maintainer/operator/operator_remove.go).


@dataclass(frozen=True, slots=True)
class Remove(OneNodeOperator):
    """``node`` is where the dispatcher was when the operator began, wherever the span is bound later.

    ``then_absent``: the span stays wanted (a removal that an earlier maintainer had begun), so it becomes absent.
    """

    then_absent: bool = False
    kind = "remove"
    doing = "removing"

    def start(self, state: Spans, at_us: int) -> Stepped:
        """A span that is still wanted is being scheduled from now on."""
        if not self.then_absent:
            return self, state, []
        return self, *spans.marked_scheduling(state, self.key, at_us, f"{self.node} is stopping it")

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """Only what has ended counts: a dispatcher that waits for a merge is still there."""
        ended = status.component_status in ("Stopped", "Removed")
        return replace(self, done=self.done or (sender == self.node and ended)), state, []

    def schedule(self, state: Spans) -> Order | None:
        """Remove, until it has stopped."""
        return None if self.done else remove(self.key, self.node, "Remove")

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """With its node the dispatcher is gone."""
        return replace(self, done=self.done or node == self.node), state, []

    def on_task_removed(self, state: Spans, at_us: int) -> Stepped:
        """The span is not wanted any more: it must not come back as absent."""
        return replace(self, done=True, then_absent=False), state, []

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Absent where it is still wanted, nothing otherwise."""
        if self.posted or not self.then_absent:
            return replace(self, posted=True), state, []
        after = replace(self, posted=True)
        return after, *spans.marked_absent(state, self.key, at_us, f"{self.node} has stopped it")


# Hold a span while a merge works on it, so that nothing else does (maintainer/operator/operator_occupy.go).


@dataclass(frozen=True, slots=True)
class Occupy(OneNodeOperator):
    """It says nothing and waits for its merge to end, or its node to go."""

    kind = "occupy"
    doing = "held"
    after = "released"

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """With its node gone the span has to be created elsewhere."""
        if node != self.node or self.done:
            return self, state, []
        return replace(self, done=True), *spans.marked_absent(state, self.key, at_us, f"{node} is gone")


# Replace a span by parts of it (maintainer/operator/operator_split.go).


@dataclass(frozen=True, slots=True)
class SplitOperator(OneNodeOperator):
    """The dispatcher is removed from ``node``; what replaces it are ``parts``, on ``targets`` where those are given.

    ``removed`` says why it is not split: the origin's loss, also after it had stopped, or a DDL.
    """

    parts: tuple[Span, ...]
    targets: tuple[Address, ...] = ()
    checkpoint_ts: int = 0
    kind = "split"
    doing = "removeOrigin"

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Take the span."""
        because = f"it is to be split into {len(self.parts)}"
        return self, *spans.marked_scheduling(state, self.key, at_us, because)

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """The parts start where the dispatcher ended."""
        if self.done or sender != self.node or status.component_status not in ("Stopped", "Removed"):
            return self, state, []
        return replace(self, done=True, checkpoint_ts=max(self.checkpoint_ts, status.checkpoint_ts)), state, []

    def schedule(self, state: Spans) -> Order | None:
        """Remove, until it has stopped."""
        return None if self.done else remove(self.key, self.node, "Split")

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Put the parts in place of the span; one without a target is absent."""
        if self.posted:
            return self, state, []
        after = replace(self, posted=True)
        if self.removed:
            return after, *spans.marked_absent(state, self.key, at_us, f"{self.removed}: not split")
        checkpoint_ts = max(self.checkpoint_ts, spans.start_ts(state, self.key))
        state, changes = spans.removed(state, self.key, f"it is split into {len(self.parts)}")
        state, more = spans.added(state, self.parts, checkpoint_ts, at_us, f"a part of {self.key}")
        placed: list[Output] = []
        for part, node in zip(self.parts, self.targets, strict=False):
            state, put = spans.bound(state, part, node, at_us, f"a part of {self.key}, to be created on {node}")
            placed += put
        return after, state, changes + more + placed


# Replace neighbouring spans of one node by one (maintainer/operator/operator_merge.go).
#
# While a merge runs, an occupy operator holds each of the old spans. They are released last, when the old spans are
# out of the span controller: nobody can take a released span that still exists there.


@dataclass(frozen=True, slots=True)
class MergeOperator(OneNodeOperator):
    """``key`` is the span of the whole range; ``by_ddl`` says that a DDL, not a lost node, ended it."""

    merged: tuple[Key, ...]
    by_ddl: bool = False
    kind = "merge"
    doing = "merging"

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Take the old spans."""
        changes: list[Output] = []
        for key in self.merged:
            state, more = spans.marked_scheduling(state, key, at_us, f"it is to be merged into {self.key}")
            changes += more
        return self, state, changes

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """Working of the new dispatcher ends it."""
        if self.done or sender != self.node or status.component_status != "Working":
            return self, state, []
        return replace(self, done=True), spans.checkpointed(state, self.key, status.checkpoint_ts), []

    def schedule(self, state: Spans) -> Order | None:
        """Ask for the merge, until it is done."""
        return None if self.done else Order(self.node, MergeDispatcherRequest(self.merged, self.key))

    def on_task_removed(self, state: Spans, at_us: int) -> Stepped:
        """A DDL removes the table: the old spans are left as they are for their own removal."""
        return replace(self, done=True, removed="a DDL removes it", by_ddl=True), state, []

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Put the new span in place of the old ones; the caller releases the occupy operators afterwards."""
        if self.posted:
            return self, state, []
        after, changes = replace(self, posted=True), list[Output]()
        if self.removed:
            for key in self.merged if not self.by_ddl else ():
                state, more = spans.marked_absent(state, key, at_us, f"{self.removed}: not merged")
                changes += more
            state, more = spans.removed(state, self.key, f"{self.removed}: not merged")
            return after, state, changes + more
        for key in self.merged:
            state, more = spans.removed(state, key, f"it is merged into {self.key}")
            changes += more
        state, more = spans.marked_replicating(state, self.key, at_us, f"{self.node} reports it working")
        return after, state, changes + more


def merge_of(state: Spans, keys: tuple[Key, ...]) -> MergeOperator | str:
    """Give the merge of spans, or why they cannot be merged."""
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
    return MergeOperator(Span(ranges[0].table, ranges[0].start, ranges[-1].end), node, keys)


def taken_up(state: Spans, merge: MergeOperator, at_us: int) -> tuple[Spans, list[Output]]:
    """Take up the new span, bound to the node, at the lowest checkpoint of the old ones."""
    lowest = min(spans.start_ts(state, key) for key in merge.merged)
    because = f"{len(merge.merged)} spans become one"
    state, changes = spans.added(state, [merge.key], lowest, at_us, because)
    state, more = spans.bound(state, merge.key, merge.node, at_us, because)
    return state, changes + more
