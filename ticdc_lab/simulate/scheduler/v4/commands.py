"""What users ask a maintainer for: moves, an even spread, a node without spans, splits and merges."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from ticdc_lab.simulate.machine import Decided, Ignored, Now, Output
from ticdc_lab.simulate.scheduler.roles import Drain, Key, MoveTable, Rebalance, Span
from ticdc_lab.simulate.scheduler.v4 import operators
from ticdc_lab.simulate.scheduler.v4.drain_scheduler import targeted
from ticdc_lab.simulate.scheduler.v4.messages import MergeSpans, SplitTable
from ticdc_lab.simulate.scheduler.v4.move import Move
from ticdc_lab.simulate.scheduler.v4.nodes import MaintainerState, Stepped
from ticdc_lab.simulate.scheduler.v4.operation import Operator
from ticdc_lab.simulate.scheduler.v4.replica import REPLICATING
from ticdc_lab.simulate.scheduler.v4.split import Split


def taken(state: MaintainerState, command: Any, now: Now) -> Stepped:
    """Take a command; one that cannot be followed is answered with why not and forgotten."""
    if isinstance(command, Rebalance):
        return replace(state, balance_due_us=now.at_us, balance_blocked_us=now.at_us), []
    if isinstance(command, Drain):
        return replace(state, drain=targeted(state.drain, command.capture, state.drain.epoch + 1)), []
    if isinstance(command, MoveTable):
        return _begun(state, command.table, _move(state, command), now)
    if isinstance(command, SplitTable):
        return _begun(state, command.table, _split(state, command), now)
    if isinstance(command, MergeSpans):
        control, outputs, why_not = operators.merged(state.control, command.spans, now.at_us)
        subject = f"span:{command.spans[0] if command.spans else ''}"
        return replace(state, control=control), [*outputs, _decided(subject, "merge", why_not)]
    return state, [Ignored(command, "a maintainer knows no such command")]


def _begun(state: MaintainerState, key: Key, operator: Operator | str, now: Now) -> Stepped:
    if isinstance(operator, str):
        return state, [_decided(f"span:{key}", None, operator)]
    control, outputs, why_not = operators.added(state.control, operator, now.at_us)
    return replace(state, control=control), [*outputs, _decided(f"span:{key}", operator.kind, why_not)]


def _move(state: MaintainerState, command: MoveTable) -> Operator | str:
    replica = state.control.spans.replicas.get(command.table)
    if replica is None:
        return f"{command.table} is unknown"
    if command.to not in state.control.nodes:
        return f"{command.to} is not ready"
    if replica.state != REPLICATING or replica.node is None:
        return f"{command.table} is {replica}"
    if replica.node == command.to:
        return f"{command.table} is there already"
    return Move(command.table, replica.node, command.to)


def _split(state: MaintainerState, command: SplitTable) -> Operator | str:
    replica = state.control.spans.replicas.get(command.table)
    if replica is None:
        return f"{command.table} is unknown"
    if replica.state != REPLICATING or replica.node is None:
        return f"{command.table} is {replica}"
    key = command.table
    whole = key if isinstance(key, Span) else Span(key, "", "")
    ends = (whole.start, *command.at, whole.end)
    if any(left >= right for left, right in pairwise(ends[:-1])) or (whole.end and ends[-2] >= whole.end):
        return f"{', '.join(command.at)} do not divide {whole}"
    parts = tuple(Span(whole.table, left, right) for left, right in pairwise(ends))
    if len(parts) < 2 or (command.targets and len(command.targets) != len(parts)):
        return f"{len(parts)} parts and {len(command.targets)} targets"
    return Split(key, replica.node, parts, command.targets)


def _decided(subject: str, chosen: str | None, why_not: str) -> Output:
    return Decided(subject, None if why_not else chosen, why_not or "a user asked for it")
