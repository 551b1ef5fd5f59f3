"""Move a span from one node to another (maintainer/operator/operator_move.go).

``removeOrigin`` until the origin says that it stopped (or is gone), then ``addDest`` until the destination works. With
the destination gone before the origin stopped, ``abortRemoveOrigin``: the span may become absent only when nothing can
be writing it any more. The destination is never asked before the origin has stopped, so the span is never twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import operation, spans
from ticdc_lab.simulate.scheduler.v4.messages import TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operation import Order, Stepped
from ticdc_lab.simulate.scheduler.v4.spans import Spans

REMOVE_ORIGIN, ADD_DEST, ABORT_REMOVE_ORIGIN = "removeOrigin", "addDest", "abortRemoveOrigin"
DONE_SUCCESS, DONE_NO_POST_FINISH = "doneSuccess", "doneNoPostFinish"


@dataclass(frozen=True, slots=True)
class Move:
    """``force`` restarts a dispatcher on its own node; ``origin`` is None where the span was on no node."""

    key: Key
    origin: Address | None
    dest: Address
    force: bool = False
    state: str = REMOVE_ORIGIN
    posted: bool = False
    kind: str = "move"

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
            return operation.create(state, self.key, self.dest, "Move")
        if self.state in (REMOVE_ORIGIN, ABORT_REMOVE_ORIGIN) and self.origin is not None:
            return operation.remove(self.key, self.origin, "Move")
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
