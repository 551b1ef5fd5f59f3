"""Operators: each takes one span from one place to another, as rows of one table (maintainer/operator).

A node's report, the loss of a node or a DDL moves an operator on by :data:`TURNS`; in each phase it sends the order of
:data:`ORDERS` again and again. The operator controller (operator_controller.go) keeps those that run, at most one a
span, and lets :func:`ended` leave the span in its last state, once. Orders come out as ``Send`` of unstamped messages:
the maintainer, which knows the lives of the nodes, stamps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Output, Send, replace, stepped
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.messages import (
    MergeDispatcherRequest,
    OperatorType,
    ScheduleDispatcherRequest,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.spans import ABSENT, NO_SPANS, REPLICATING, SCHEDULING, Spans, position, start_ts

ADD, MOVE, REMOVE, OCCUPY, SPLIT, MERGE = "add", "move", "remove", "occupy", "split", "merge"
"""Kinds; ``occupy`` holds a span while a merge works on it, so that nothing else does."""

ADD_DEST, REMOVE_ORIGIN, ABORT_REMOVE_ORIGIN, REMOVING = "addDest", "removeOrigin", "abortRemoveOrigin", "removing"
RELEASING, HELD, MERGING = "releasing", "held", "merging"
DONE, RELEASED, DONE_SUCCESS, DONE_NO_POST_FINISH = "done", "released", "doneSuccess", "doneNoPostFinish"
"""Phases. ``releasing`` removes the dispatcher of a span that stays wanted."""

BEGUN, DROPPED = "begun", "dropped"
ORIGIN_STOPPED, ORIGIN_GONE = "origin stopped", "origin gone"
DEST_WORKS, DEST_REMOVED, DEST_GONE = "dest works", "dest removed", "dest gone"
"""What happens to an operator. ``dropped``: a DDL removes the span. A dispatcher that waits for a merge has not
stopped. If an add finds its dispatcher stopped, the create is sent again."""

BOUND, DIVIDED, UNITED, NOT_UNITED, LEFT_APART = "bound", "divided", "united", "not united", "left apart"
"""What may become of a span besides absent, scheduling and replicating: bound to the destination; of a merge, where a
lost node or a DDL ended it, the old spans are absent or left for their own removal."""


class Turn(NamedTuple):
    """The next phase, and what becomes of the span: bound or scheduling at once, all else with the last step."""

    phase: str
    becomes: str = ""
    because: str = ""


ANY = ""
_CREATED = "it is to be created on {dest}"
_GONE = "{origin} is gone, and what it ran with it"
TURNS: Mapping[tuple[str, str, str], Turn] = {
    (ADD, ADD_DEST, BEGUN): Turn(ADD_DEST, BOUND, _CREATED),
    (ADD, ADD_DEST, DEST_WORKS): Turn(DONE, REPLICATING, "{dest} reports it working"),
    (ADD, ADD_DEST, DEST_REMOVED): Turn(DONE, ABSENT, "{dest} could not create it"),
    (ADD, ANY, DEST_GONE): Turn(DONE, ABSENT, "{dest} is gone"),
    (ADD, ANY, DROPPED): Turn(DONE, ABSENT, "a DDL removes it"),
    (MOVE, REMOVE_ORIGIN, BEGUN): Turn(REMOVE_ORIGIN, SCHEDULING, "it moves from {origin} to {dest}"),
    (MOVE, REMOVE_ORIGIN, ORIGIN_STOPPED): Turn(ADD_DEST, BOUND, f"{{origin}} has stopped it; {_CREATED}"),
    (MOVE, REMOVE_ORIGIN, ORIGIN_GONE): Turn(ADD_DEST, BOUND, f"{_GONE}; {_CREATED}"),
    (MOVE, REMOVE_ORIGIN, DEST_GONE): Turn(ABORT_REMOVE_ORIGIN),
    (MOVE, ABORT_REMOVE_ORIGIN, ORIGIN_STOPPED): Turn(
        DONE_NO_POST_FINISH, ABSENT, "{origin} has stopped it, and {dest} is gone"
    ),
    (MOVE, ABORT_REMOVE_ORIGIN, ORIGIN_GONE): Turn(DONE_NO_POST_FINISH, ABSENT, f"{_GONE}, and {{dest}} is gone"),
    (MOVE, ADD_DEST, DEST_WORKS): Turn(DONE_SUCCESS, REPLICATING, "{dest} reports it working"),
    (MOVE, ADD_DEST, DEST_GONE): Turn(DONE_NO_POST_FINISH, ABSENT, "{dest} is gone"),
    (MOVE, DONE_SUCCESS, DEST_GONE): Turn(DONE_NO_POST_FINISH, ABSENT, "{dest} is gone"),
    (MOVE, ANY, DROPPED): Turn(DONE_NO_POST_FINISH, REPLICATING, "a DDL removes it in the middle of a move"),
    (REMOVE, REMOVING, ORIGIN_STOPPED): Turn(DONE),
    (REMOVE, REMOVING, ORIGIN_GONE): Turn(DONE),
    (REMOVE, RELEASING, BEGUN): Turn(RELEASING, SCHEDULING, "{origin} is stopping it"),
    (REMOVE, RELEASING, ORIGIN_STOPPED): Turn(DONE, ABSENT, "{origin} has stopped it"),
    (REMOVE, RELEASING, ORIGIN_GONE): Turn(DONE, ABSENT, "{origin} has stopped it"),
    (REMOVE, ANY, DROPPED): Turn(DONE),
    (OCCUPY, HELD, ORIGIN_GONE): Turn(RELEASED, ABSENT, "{origin} is gone"),
    (OCCUPY, ANY, DROPPED): Turn(RELEASED),
    (SPLIT, REMOVE_ORIGIN, BEGUN): Turn(REMOVE_ORIGIN, SCHEDULING, "it is to be split into {n}"),
    (SPLIT, REMOVE_ORIGIN, ORIGIN_STOPPED): Turn(DONE, DIVIDED),
    (SPLIT, ANY, ORIGIN_GONE): Turn(DONE, ABSENT, "{origin} is gone: not split"),
    (SPLIT, ANY, DROPPED): Turn(DONE, ABSENT, "a DDL removes it: not split"),
    (MERGE, MERGING, BEGUN): Turn(MERGING, SCHEDULING, "it is to be merged into {key}"),
    (MERGE, MERGING, DEST_WORKS): Turn(DONE, UNITED, "{dest} reports it working"),
    (MERGE, ANY, DEST_GONE): Turn(DONE, NOT_UNITED, "{dest} is gone: not merged"),
    (MERGE, ANY, DROPPED): Turn(DONE, LEFT_APART, "a DDL removes it: not merged"),
}
"""By kind, phase (any, where it has no row of its own) and what happens; without a row it changes nothing."""

ORDERS: Mapping[str, Literal["create", "remove", "merge"]] = {
    ADD_DEST: "create", MERGING: "merge",
    REMOVE_ORIGIN: "remove", ABORT_REMOVE_ORIGIN: "remove", REMOVING: "remove", RELEASING: "remove",
}  # fmt: skip
"""What is sent in a phase: to remove the dispatcher at the origin, to create one at the destination or merge there."""


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
    """Create the dispatcher of an absent span on a node (operator_add.go)."""
    return SpanOperator(ADD, ADD_DEST, key, dest=node)


def move(key: Key, origin: Address, dest: Address) -> SpanOperator:
    """Move a span from one node to another (operator_move.go).

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
    """Hold a span until its merge has ended or its node is gone (operator_occupy.go)."""
    return SpanOperator(OCCUPY, HELD, key, node)


def split(key: Key, node: Address, parts: tuple[Span, ...], targets: tuple[Address, ...] = ()) -> SpanOperator:
    """Replace a span by parts of it, on ``targets`` where those are given (operator_split.go)."""
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
    node = state.replicas[keys[0]].node
    if node is None or any(state.replicas[key].node != node for key in keys):
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


def turned(operator: SpanOperator, state: Spans, what: str, at_us: int, checkpoint_ts: int = 0) -> Stepped:
    """Take what happens to an operator."""
    turn = TURNS.get((operator.kind, operator.phase, what)) or TURNS.get((operator.kind, ANY, what))
    if turn is None:
        return operator, state, []
    phase, becomes, because = turn
    because = because.format(origin=operator.origin, dest=operator.dest, key=operator.key, n=len(operator.parts))
    if becomes == BOUND and operator.dest is not None:
        return replace(operator, phase=phase), *spans.bound(state, operator.key, operator.dest, at_us, because)
    if becomes == SCHEDULING:
        changes: list[Output] = []
        for key in operator.merged or (operator.key,):
            state, more = spans.marked(state, key, SCHEDULING, at_us, because)
            changes += more
        return operator, state, changes
    known_ts = max(operator.checkpoint_ts, checkpoint_ts)
    return replace(operator, phase=phase, becomes=becomes, because=because, checkpoint_ts=known_ts), state, []


def reported(operator: SpanOperator, sender: Address, status: TableSpanStatus) -> str:
    """Give what a status that a node reports of the span is to its operator; empty for nothing."""
    if sender == operator.origin and status.component_status in ("Stopped", "Removed"):
        return ORIGIN_STOPPED
    of_dest = {"Working": DEST_WORKS, "Removed": DEST_REMOVED} if sender == operator.dest else {}
    return of_dest.get(status.component_status, "")


def without_node(operator: SpanOperator, node: Address) -> str:
    """Give what the loss of one of its nodes is to an operator."""
    return ORIGIN_GONE if node == operator.origin else DEST_GONE


_OF_ORDERS: Mapping[str, OperatorType] = {ADD: "Add", MOVE: "Move", REMOVE: "Remove", SPLIT: "Split"}


def order(operator: SpanOperator, state: Spans) -> Send | None:
    """Give what has to be sent in this phase, None if nothing; a dispatcher begins where the span is known to be."""
    action, key = ORDERS.get(operator.phase), operator.key
    if action is None:
        return None
    to = operator.origin if action == "remove" else operator.dest
    assert to is not None
    if action == "merge":
        return Send(to, MergeDispatcherRequest(operator.merged, key))
    of = _OF_ORDERS[operator.kind]
    if action == "create":
        return Send(to, ScheduleDispatcherRequest("Create", key, start_ts(state, key), of))
    return Send(to, ScheduleDispatcherRequest("Remove", key, 0, of))


def ended(operator: SpanOperator, state: Spans, at_us: int) -> Stepped:
    """Leave the span in its last state; a second time changes nothing.

    The spans of a merge stay occupied meanwhile: none can take one that is released and still exists there.
    """
    key, becomes, because, changes = operator.key, operator.becomes, operator.because, list[Output]()
    if becomes == REPLICATING:
        state, changes = spans.marked(state, key, REPLICATING, at_us, because)
    elif becomes == ABSENT:
        state, changes = spans.marked_absent(state, key, at_us, because)
    elif becomes == DIVIDED:  # the parts begin where its dispatcher ended; one without a target is absent
        checkpoint_ts = max(operator.checkpoint_ts, start_ts(state, key))
        state, changes = spans.removed(state, key, f"it is split into {len(operator.parts)}")
        state, more = spans.added(state, operator.parts, checkpoint_ts, at_us, f"a part of {key}")
        changes += more
        for part, node in zip(operator.parts, operator.targets, strict=False):
            state, more = spans.bound(state, part, node, at_us, f"a part of {key}, to be created on {node}")
            changes += more
    elif becomes == UNITED:
        state = spans.checkpointed(state, key, operator.checkpoint_ts)
        for old in operator.merged:
            state, more = spans.removed(state, old, f"it is merged into {key}")
            changes += more
        state, more = spans.marked(state, key, REPLICATING, at_us, because)
        changes += more
    elif becomes in (NOT_UNITED, LEFT_APART):
        for old in operator.merged if becomes == NOT_UNITED else ():
            state, more = spans.marked_absent(state, old, at_us, because)
            changes += more
        state, more = spans.removed(state, key, because)
        changes += more
    return replace(operator, becomes=""), state, changes


# The operator controller


class RunningOperator(NamedTuple):
    """An operator, since when it runs and when its order is due (again)."""

    operator: SpanOperator
    since_us: int
    due_us: int


@stepped
class Control(NamedTuple):
    """The spans and the operators that work on them; ``nodes`` are those alive."""

    spans: Spans = NO_SPANS
    running: Map[Key, RunningOperator] = Map()
    nodes: frozenset[Address] = frozenset()
    resend_us: int = 500_000


Controlled: TypeAlias = tuple[Control, list[Output]]


def added(control: Control, operator: SpanOperator, at_us: int) -> tuple[Control, list[Output], str]:
    """Let an operator begin; the text is why it does not, or empty."""
    if operator.key in control.running:
        return control, [], f"a {control.running[operator.key].operator.kind} operator works on it"
    if operator.key not in control.spans.replicas:
        return control, [], "it is unknown"
    return *begun(control, operator, at_us), ""


def merged(control: Control, keys: tuple[Key, ...], at_us: int) -> tuple[Control, list[Output], str]:
    """Begin a merge: one operator for the new span, and one for each old span to hold it; all of them or none."""
    operator = merge_of(control.spans, keys)
    if isinstance(operator, str):
        return control, [], operator
    (node,) = operator.nodes
    if node not in control.nodes:
        return control, [], f"{node} is gone"
    for key in (*keys, operator.key):
        if key in control.running:
            return control, [], f"a {control.running[key].operator.kind} operator works on {key}"
    if operator.key in control.spans.replicas:
        return control, [], f"{operator.key} exists"
    outputs: list[Output] = []
    for key in keys:
        control, more = begun(control, occupy(key, node), at_us)
        outputs += more
    state, changes = taken_up(control.spans, operator, node, at_us)
    control, more = begun(control._replace(spans=state), operator, at_us)
    return control, outputs + changes + more, ""


def checked(control: Control, sender: Address, status: TableSpanStatus, at_us: int) -> Controlled:
    """Hand a node's report of a span to its operator."""
    found = control.running.get(status.id)
    if found is None:
        return control, []
    return _happened(control, found, reported(found.operator, sender, status), at_us, status.checkpoint_ts)


def node_removed(control: Control, node: Address, at_us: int) -> Controlled:
    """A node is gone: spans without an operator become absent, every operator hears of it."""
    state, outputs = control.spans, list[Output]()
    for key in sorted(spans.of_node(state, node), key=position):
        found = control.running.get(key)
        if found is None or node not in found.operator.nodes:
            state, changes = spans.marked_absent(state, key, at_us, f"{node} is gone")
            outputs += changes
    control = control._replace(spans=state, nodes=control.nodes - {node})
    for key in sorted(control.running, key=position):
        found = control.running.get(key)  # a merge that ends releases others
        if found is not None and node in found.operator.nodes:
            control, more = _happened(control, found, without_node(found.operator, node), at_us)
            outputs += more
    return control, outputs


def tasks_removed(control: Control, keys: Iterable[Key], at_us: int, because: str) -> Controlled:
    """Spans are not wanted any more: end their operators, forget them, remove their dispatchers."""
    outputs: list[Output] = []
    for key in sorted(keys, key=position):
        replica, found = control.spans.replicas.get(key), control.running.get(key)
        if replica is None:
            continue
        node = replica.node
        if found is not None:
            after, state, changes = turned(found.operator, control.spans, DROPPED, at_us)
            control, more = _ended(control, after, state, at_us)
            outputs += changes + more
            node = found.operator.origin if found.operator.kind == REMOVE else node
        state, changes = spans.removed(control.spans, key, because)
        control = control._replace(spans=state)
        outputs += changes
        if node is not None:
            control, more = begun(control, removal(key, node), at_us)
            outputs += more
    return control, outputs


def executed(control: Control, at_us: int) -> Controlled:
    """Send every order that is due (again)."""
    outputs: list[Output] = []
    for key in sorted((key for key, found in control.running.items() if found.due_us <= at_us), key=position):
        found = control.running[key]
        control, more = _advanced(control, found.operator, control.spans, found.since_us, at_us)
        outputs += more
    return control, outputs


def begun(control: Control, operator: SpanOperator, at_us: int) -> Controlled:
    """Let an operator begin, or continue what an earlier maintainer had begun; without its node it may end at once."""
    state, outputs = control.spans, list[Output]()
    for what in (*(without_node(operator, n) for n in operator.nodes if n not in control.nodes), BEGUN):
        operator, state, more = turned(operator, state, what, at_us)
        outputs += more
    about = f"{operator.kind} of {operator.key}: {' to '.join(operator.nodes)}"
    outputs.append(Changed(f"operator:{operator.key}", None, operator.kind, about))
    control, more = _advanced(control, operator, state, at_us, at_us)
    return control, outputs + more


def _happened(control: Control, found: RunningOperator, what: str, at_us: int, checkpoint_ts: int = 0) -> Controlled:
    after, state, changes = turned(found.operator, control.spans, what, at_us, checkpoint_ts)
    if after is found.operator:
        return control, changes
    control, more = _advanced(control, after, state, found.since_us, at_us)
    return control, changes + more


def _advanced(control: Control, operator: SpanOperator, state: Spans, since_us: int, at_us: int) -> Controlled:
    if operator.finished:
        return _ended(control, operator, state, at_us)
    said = order(operator, state)
    running = control.running.set(operator.key, RunningOperator(operator, since_us, at_us + control.resend_us))
    return control._replace(spans=state, running=running), [] if said is None else [said]


def _ended(control: Control, operator: SpanOperator, state: Spans, at_us: int) -> Controlled:
    _, state, outputs = ended(operator, state, at_us)
    running = control.running.mutate()
    running.pop(operator.key, None)
    outputs.append(Changed(f"operator:{operator.key}", operator.kind, None, f"it is {operator.phase}"))
    for key in operator.merged:
        if key in running and running[key].operator.kind == OCCUPY:
            del running[key]
            outputs.append(Changed(f"operator:{key}", OCCUPY, None, f"the merge into {operator.key} has ended"))
    control = control._replace(spans=state, running=running.finish())
    if operator.becomes == DIVIDED:
        for part, node in zip(operator.parts, operator.targets, strict=False):
            control, more = begun(control, add(part, node), at_us)
            outputs += more
    return control, outputs
