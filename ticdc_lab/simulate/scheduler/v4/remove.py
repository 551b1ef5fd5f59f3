"""Remove a dispatcher from its node (maintainer/operator/operator_remove.go)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import operation, spans
from ticdc_lab.simulate.scheduler.v4.messages import TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operation import Order, Stepped
from ticdc_lab.simulate.scheduler.v4.spans import Spans


@dataclass(frozen=True, slots=True)
class Remove:
    """``node`` is where the dispatcher was when the operator began, wherever the span is bound later.

    ``then_absent``: the span stays wanted (a removal that an earlier maintainer had begun), so it becomes absent.
    """

    key: Key
    node: Address
    then_absent: bool = False
    done: bool = False
    posted: bool = False
    kind: str = "remove"

    @property
    def finished(self) -> bool:
        """Stopped, or its node is gone."""
        return self.done

    @property
    def phase(self) -> str:
        """Where it is."""
        return "done" if self.done else "removing"

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give the dispatcher's node."""
        return (self.node,)

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
        return None if self.done else operation.remove(self.key, self.node, "Remove")

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
