"""Create the dispatcher of an absent span on a node (maintainer/operator/operator_add.go)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import operation, spans
from ticdc_lab.simulate.scheduler.v4.messages import TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operation import Order, Stepped
from ticdc_lab.simulate.scheduler.v4.spans import Spans


@dataclass(frozen=True, slots=True)
class Add:
    """``removed`` says why the span has to become absent again; ``posted`` that the last step was done."""

    key: Key
    dest: Address
    done: bool = False
    removed: str = ""
    posted: bool = False
    kind: str = "add"

    @property
    def finished(self) -> bool:
        """Created, or given up."""
        return self.done

    @property
    def phase(self) -> str:
        """Where it is."""
        return "done" if self.done else "addDest"

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give the node of the new dispatcher."""
        return (self.dest,)

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Bind the span to its node, unless that is gone already."""
        if self.done:
            return self, state, []
        return self, *spans.bound(state, self.key, self.dest, at_us, f"it is to be created on {self.dest}")

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """Working ends it, Removed gives up; Stopped is not what was asked for, and the create is sent again."""
        if self.done or sender != self.dest:
            return self, state, []
        if status.component_status == "Working":
            return replace(self, done=True), state, []
        if status.component_status == "Removed":
            return replace(self, done=True, removed=f"{sender} could not create it"), state, []
        return self, state, []

    def schedule(self, state: Spans) -> Order | None:
        """Create, until it works."""
        return None if self.done else operation.create(state, self.key, self.dest, "Add")

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """Without its node the span has to go elsewhere, even if it worked already."""
        if node != self.dest or self.posted:
            return self, state, []
        return replace(self, done=True, removed=f"{node} is gone"), state, []

    def on_task_removed(self, state: Spans, at_us: int) -> Stepped:
        """Stop asking for a span that a DDL removes."""
        return replace(self, done=True, removed="a DDL removes it"), state, []

    def post_finish(self, state: Spans, at_us: int) -> Stepped:
        """Replicating where it works, absent where it was given up."""
        if self.posted:
            return self, state, []
        after = replace(self, posted=True)
        if self.removed:
            return after, *spans.marked_absent(state, self.key, at_us, self.removed)
        return after, *spans.marked_replicating(state, self.key, at_us, f"{self.dest} reports it working")
