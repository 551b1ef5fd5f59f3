"""The operator controller: which operator works on which span, and what comes of it (maintainer/operator)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Output, Send, stepped
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.messages import TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operators import SpanOperator
from ticdc_lab.simulate.scheduler.v4.spans import NO_SPANS, Spans, position

# What an operator controller holds: the spans, the operators that work on them, the nodes alive.


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


NOTHING = Control()


def moves_from(control: Control, node: Address) -> int:
    """Count the unfinished moves away from a node."""
    running = (found.operator for found in control.running.values())
    return sum(operator.kind == operators.MOVE and operator.origin == node for operator in running)


# The operator controller: which operators run, their orders, and their last step, done once.
#
# (maintainer/operator/operator_controller.go.) Orders come out as ``Send`` of unstamped messages: who knows the
# lives of the nodes stamps them (:mod:`.maintainer`).

Stepped = tuple[Control, list[Output]]


def added(control: Control, operator: SpanOperator, at_us: int) -> tuple[Control, list[Output], str]:
    """Let an operator begin; the text is why it does not, or empty."""
    if operator.key in control.running:
        return control, [], f"a {control.running[operator.key].operator.kind} operator works on it"
    if operator.key not in control.spans.replicas:
        return control, [], "it is unknown"
    control, outputs = _pushed(control, operator, at_us)
    return control, outputs, ""


def merged(control: Control, keys: tuple[Key, ...], at_us: int) -> tuple[Control, list[Output], str]:
    """Begin a merge: one operator for the new span, and one for each old span to hold it; all of them or none."""
    operator = operators.merge_of(control.spans, keys)
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
        control, more = _pushed(control, operators.occupy(key, node), at_us)
        outputs += more
    state, changes = operators.taken_up(control.spans, operator, node, at_us)
    control, more = _pushed(control._replace(spans=state), operator, at_us)
    return control, outputs + changes + more, ""


def checked(control: Control, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
    """Hand a node's report of a span to its operator."""
    found = control.running.get(status.id)
    if found is None:
        return control, []
    after, state, changes = operators.reported(found.operator, control.spans, sender, status, at_us)
    control, more = _stepped(control, found, after, state, at_us)
    return control, changes + more


def node_removed(control: Control, node: Address, at_us: int) -> Stepped:
    """A node is gone: spans without an operator become absent, every operator hears of it."""
    control, outputs = control._replace(nodes=control.nodes - {node}), list[Output]()
    state = control.spans
    for key in sorted(spans.of_node(state, node), key=position):
        found = control.running.get(key)
        if found is None or node not in found.operator.nodes:
            state, changes = spans.marked_absent(state, key, at_us, f"{node} is gone")
            outputs += changes
    control = control._replace(spans=state)
    for key in sorted(control.running, key=position):
        found = control.running.get(key)
        if found is None or node not in found.operator.nodes:
            continue
        after, state, changes = operators.without_node(found.operator, control.spans, node, at_us)
        control, more = _stepped(control, found, after, state, at_us)
        outputs += changes + more
    return control, outputs


def tasks_removed(control: Control, keys: Iterable[Key], at_us: int, because: str) -> Stepped:
    """Spans are not wanted any more: end their operators, forget them, remove their dispatchers."""
    outputs: list[Output] = []
    for key in sorted(keys, key=position):
        replica = control.spans.replicas.get(key)
        found = control.running.get(key)
        if replica is None:
            continue
        if found is not None:
            after, state, changes = operators.turned(found.operator, control.spans, operators.DROPPED, at_us)
            control, more = _ended(control, after, state, at_us)
            outputs += changes + more
        state, changes = spans.removed(control.spans, key, because)
        control = control._replace(spans=state)
        outputs += changes
        is_removal = found is not None and found.operator.kind == operators.REMOVE
        node = found.operator.origin if found is not None and is_removal else replica.node
        if node is not None:
            control, more = _pushed(control, operators.removal(key, node), at_us)
            outputs += more
    return control, outputs


def executed(control: Control, at_us: int) -> Stepped:
    """Send every order that is due (again)."""
    due = sorted((key for key, found in control.running.items() if found.due_us <= at_us), key=position)
    outputs: list[Output] = []
    for key in due:
        found = control.running.get(key)
        if found is not None:
            control, more = _advanced(control, found.operator, control.spans, found.since_us, at_us)
            outputs += more
    return control, outputs


def adopted(control: Control, operator: SpanOperator, at_us: int) -> Stepped:
    """Continue what an earlier maintainer had begun."""
    return _pushed(control, operator, at_us)


def _pushed(control: Control, operator: SpanOperator, at_us: int) -> Stepped:
    state, outputs = control.spans, list[Output]()
    for node in operator.nodes:
        if node not in control.nodes:
            operator, state, more = operators.without_node(operator, state, node, at_us)
            outputs += more
    operator, state, more = operators.begun(operator, state, at_us)
    about = f"{operator.kind} of {operator.key}: {' to '.join(operator.nodes)}"
    outputs += [*more, Changed(f"operator:{operator.key}", None, operator.kind, about)]
    control, last = _advanced(control, operator, state, at_us, at_us)
    return control, outputs + last


def _stepped(control: Control, found: RunningOperator, after: SpanOperator, state: Spans, at_us: int) -> Stepped:
    if after == found.operator:
        return control._replace(spans=state), []
    return _advanced(control, after, state, found.since_us, at_us)


def _advanced(control: Control, operator: SpanOperator, state: Spans, since_us: int, at_us: int) -> Stepped:
    if operator.finished:
        return _ended(control, operator, state, at_us)
    said = operators.order(operator, state)
    running = control.running.set(operator.key, RunningOperator(operator, since_us, at_us + control.resend_us))
    return control._replace(spans=state, running=running), [] if said is None else [Send(said.to, said.message)]


def _ended(control: Control, operator: SpanOperator, state: Spans, at_us: int) -> Stepped:
    _, state, outputs = operators.ended(operator, state, at_us)
    held = operator.key in control.running
    running = control.running.delete(operator.key) if held else control.running
    control = control._replace(spans=state, running=running)
    outputs.append(Changed(f"operator:{operator.key}", operator.kind, None, f"it is {operator.phase}"))
    if operator.kind == operators.MERGE:
        at_work = control.running.mutate()
        for key in operator.merged:
            if key in at_work and at_work[key].operator.kind == operators.OCCUPY:
                del at_work[key]
                because = f"the merge into {operator.key} has ended"
                outputs.append(Changed(f"operator:{key}", operators.OCCUPY, None, because))
        return control._replace(running=at_work.finish()), outputs
    if operator.becomes == operators.DIVIDED:
        for part, node in zip(operator.parts, operator.targets, strict=False):
            control, more = _pushed(control, operators.add(part, node), at_us)
            outputs += more
    return control, outputs
