"""Hold a span while a merge works on it, so that nothing else does (maintainer/operator/operator_occupy.go)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.messages import TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operation import Order, Stepped
from ticdc_lab.simulate.scheduler.v4.spans import Spans


@dataclass(frozen=True, slots=True)
class Occupy:
    """It says nothing and waits for its merge to end, or its node to go."""

    key: Key
    node: Address
    done: bool = False
    kind: str = "occupy"

    @property
    def finished(self) -> bool:
        """Released."""
        return self.done

    @property
    def phase(self) -> str:
        """Where it is."""
        return "released" if self.done else "held"

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give the span's node."""
        return (self.node,)

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Nothing changes for the span itself."""
        return self, state, []

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """What becomes of the span is the merge's to say."""
        return self, state, []

    def schedule(self, state: Spans) -> Order | None:
        """Say nothing."""
        return None

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """With its node gone the span has to be created elsewhere."""
        if node != self.node or self.done:
            return self, state, []
        return replace(self, done=True), *spans.marked_absent(state, self.key, at_us, f"{node} is gone")

    def on_task_removed(self, state: Spans, at_us: int) -> Stepped:
        """Let go."""
        return replace(self, done=True), state, []

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Nothing is left to do."""
        return self, state, []
