"""Worlds of two nodes for the tests of operators: how to set one up and drive one operator without its operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ticdc_lab.machines.machine import Output, Send
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.messages import MergeDispatcherRequest, ScheduleDispatcherRequest, TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operators import Control, SpanOperator
from ticdc_lab.simulate.scheduler.v4.spans import ABSENT, REPLICATING, SCHEDULING, Spans

A, B = "node-a", "node-b"


def status(key: Key, state: Any, checkpoint_ts: int = 1500) -> TableSpanStatus:
    """Give what a node reports of a span."""
    return TableSpanStatus(key, state, checkpoint_ts)


def replicating(*keys: Key, node: str = A, checkpoint_ts: int = 1000) -> Spans:
    """Give spans that replicate on one node."""
    state = Spans()
    for key in keys:
        state, _ = spans.restored(state, key, node, checkpoint_ts, 0, "given")
    return state


def absent(*keys: Key, checkpoint_ts: int = 1000) -> Spans:
    """Give spans on no node."""
    return spans.added(Spans(), keys, checkpoint_ts, 0, "given")[0]


def controlled(state: Spans, nodes: Iterable[str] = (A, B)) -> Control:
    """Give an operator controller over spans."""
    return Control(state, nodes=frozenset(nodes))


def counts(state: Spans) -> tuple[int, int, int]:
    """Count the absent, the scheduling and the replicating spans."""
    states = [replica.state for replica in state.replicas.values()]
    assert spans.absent_size(state) == states.count(ABSENT)
    assert len(state.scheduling) == states.count(SCHEDULING)
    return states.count(ABSENT), states.count(SCHEDULING), states.count(REPLICATING)


def sent(outputs: Sequence[Output]) -> list[tuple[str, str, Key]]:
    """Give (to, action, span) of the orders among outputs."""
    found: list[tuple[str, str, Key]] = []
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.message, ScheduleDispatcherRequest):
            found.append((output.to, output.message.schedule_action, output.message.dispatcher_id))
        if isinstance(output, Send) and isinstance(output.message, MergeDispatcherRequest):
            found.append((output.to, "Merge", output.message.merged_dispatcher_id))
    return found


class Driven:
    """One operator over its spans, step by step as the Go tests drive it."""

    def __init__(self, operator: SpanOperator, state: Spans, *, started: bool = True) -> None:
        self.operator, self.spans = operator, state
        if started:
            self._take(operators.turned(operator, state, operators.BEGUN, 1))

    def _take(self, stepped: Any) -> None:
        self.operator, self.spans, self.outputs = stepped
        for replica in self.spans.replicas.values():
            assert (replica.node is None) == (replica.state == ABSENT), "never scheduling without a node"

    def check(self, sender: str, state: Any, checkpoint_ts: int = 1500) -> None:
        """Report a status."""
        said = status(self.operator.key, state, checkpoint_ts)
        what = operators.reported(self.operator, sender, said)
        self._take(operators.turned(self.operator, self.spans, what, 2, checkpoint_ts))

    def node_removed(self, node: str) -> None:
        """Lose a node."""
        if node in self.operator.nodes:
            self._take(operators.turned(self.operator, self.spans, operators.without_node(self.operator, node), 3))

    def task_removed(self) -> None:
        """Let a DDL remove the span."""
        self._take(operators.turned(self.operator, self.spans, operators.DROPPED, 4))

    def post_finish(self) -> None:
        """Do the last step."""
        self._take(operators.ended(self.operator, self.spans, 5))

    def order(self) -> tuple[str, str, Key] | None:
        """Give (to, action, span) of the order of this moment."""
        said = operators.order(self.operator, self.spans)
        return None if said is None else sent([said])[0]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Count the absent, the scheduling and the replicating spans."""
        return counts(self.spans)


def hear(control: Control, sender: str, key: Key, state: Any, at_us: int = 2) -> tuple[Control, list[Output]]:
    """Report a status to the operators."""
    return operators.checked(control, sender, status(key, state), at_us)
