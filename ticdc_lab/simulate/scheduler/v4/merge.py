"""Replace neighbouring spans of one node by one (maintainer/operator/operator_merge.go).

While a merge runs, an occupy operator holds each of the old spans. They are released last, when the old spans are out
of the span controller: nobody can take a released span that still exists there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from ticdc_lab.simulate.machine import Address, Output
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.messages import MergeDispatcherRequest, TableSpanStatus
from ticdc_lab.simulate.scheduler.v4.operation import Order, Stepped
from ticdc_lab.simulate.scheduler.v4.spans import Spans


@dataclass(frozen=True, slots=True)
class Merge:
    """``key`` is the span of the whole range; ``by_ddl`` says that a DDL, not a lost node, ended it."""

    key: Span
    node: Address
    merged: tuple[Key, ...]
    done: bool = False
    removed: str = ""
    by_ddl: bool = False
    posted: bool = False
    kind: str = "merge"

    @property
    def finished(self) -> bool:
        """The new dispatcher works, or the merge was given up."""
        return self.done

    @property
    def phase(self) -> str:
        """Where it is."""
        return "done" if self.done else "merging"

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give the node of all its spans."""
        return (self.node,)

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

    def on_node_remove(self, state: Spans, node: Address, at_us: int) -> Stepped:
        """Without the node nothing is merged, and the old spans have to be created elsewhere."""
        if node != self.node or self.posted or self.removed:
            return self, state, []
        return replace(self, done=True, removed=f"{node} is gone"), state, []

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


def merge_of(state: Spans, keys: tuple[Key, ...]) -> Merge | str:
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
    return Merge(Span(ranges[0].table, ranges[0].start, ranges[-1].end), node, keys)


def taken_up(state: Spans, merge: Merge, at_us: int) -> tuple[Spans, list[Output]]:
    """Take up the new span, bound to the node, at the lowest checkpoint of the old ones."""
    lowest = min(spans.start_ts(state, key) for key in merge.merged)
    because = f"{len(merge.merged)} spans become one"
    state, changes = spans.added(state, [merge.key], lowest, at_us, because)
    state, more = spans.bound(state, merge.key, merge.node, at_us, because)
    return state, changes + more
