"""Replace a span by parts of it (maintainer/operator/operator_split.go)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ticdc_lab.simulate.machine import Address, Output
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import operation, spans
from ticdc_lab.simulate.scheduler.v4.messages import TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operation import Order, Stepped
from ticdc_lab.simulate.scheduler.v4.spans import Spans


@dataclass(frozen=True, slots=True)
class Split:
    """The dispatcher is removed from ``origin``; what replaces it are ``parts``, on ``targets`` where those are given.

    ``removed`` says why it is not split: the origin's loss, also after it had stopped, or a DDL.
    """

    key: Key
    origin: Address
    parts: tuple[Span, ...]
    targets: tuple[Address, ...] = ()
    checkpoint_ts: int = 0
    done: bool = False
    removed: str = ""
    posted: bool = False
    kind: str = "split"

    @property
    def finished(self) -> bool:
        """The dispatcher is not there any more."""
        return self.done

    @property
    def phase(self) -> str:
        """Where it is."""
        return "done" if self.done else "removeOrigin"

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give the dispatcher's node."""
        return (self.origin,)

    def start(self, state: Spans, at_us: int) -> Stepped:
        """Take the span."""
        because = f"it is to be split into {len(self.parts)}"
        return self, *spans.marked_scheduling(state, self.key, at_us, because)

    def check(self, state: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """The parts start where the dispatcher ended."""
        if self.done or sender != self.origin or status.component_status not in ("Stopped", "Removed"):
            return self, state, []
        return replace(self, done=True, checkpoint_ts=max(self.checkpoint_ts, status.checkpoint_ts)), state, []

    def schedule(self, state: Spans) -> Order | None:
        """Remove, until it has stopped."""
        return None if self.done else operation.remove(self.key, self.origin, "Split")

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """Without the origin nothing is split."""
        if node != self.origin or self.posted:
            return self, state, []
        return replace(self, done=True, removed=f"{node} is gone"), state, []

    def on_task_removed(self, state: Spans, at_us: int) -> Stepped:
        """A span that a DDL removes is not split."""
        return replace(self, done=True, removed="a DDL removes it"), state, []

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
