"""What schedulers want done: tasks for single spans, and bursts that no limit holds up."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key


class AddTask(NamedTuple):
    """Give a span that nobody has to a capture; ``checkpoint_ts`` counts only where the owner has no record of it."""

    span: Key
    to: Address
    checkpoint_ts: int


class MoveTask(NamedTuple):
    """Move a span to another capture; ``asked`` where a user wants it."""

    span: Key
    to: Address
    asked: bool = False


class RemoveTask(NamedTuple):
    """Stop a span, which ``at`` has among others."""

    span: Key
    at: Address


class Burst(NamedTuple):
    """Many tasks at once that ``max_task_concurrency`` does not hold up; ``asked`` where a user wants it."""

    tasks: tuple[AddTask | MoveTask | RemoveTask, ...]
    asked: bool = False


Single: TypeAlias = AddTask | MoveTask | RemoveTask
Task: TypeAlias = Single | Burst
