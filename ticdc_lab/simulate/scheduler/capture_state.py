"""What a capture knows, and how it changes with what etcd and users say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, NamedTuple

from ticdc_lab.simulate.machine import Address, Changed, Ignored, Machine, Now, Output
from ticdc_lab.simulate.scheduler.etcd_messages import View
from ticdc_lab.simulate.scheduler.executor import freed, stuck
from ticdc_lab.simulate.scheduler.roles import Drain, Key, MoveTable


class Stick(NamedTuple):
    """Asked of a capture: the sink of a table takes nothing, or goes on."""

    table: Key
    free: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """A protocol: both its machines, and which messages are the owner's."""

    name: str
    owner: Any
    processor: Machine[Any]
    to_owner: tuple[type, ...]


class CaptureState(NamedTuple):
    """A capture.

    Attributes
    ----------
    address
        Its id in etcd; another one after each restart of the process.
    processor, owner
        States of the variant's machines; the owner's is None while another capture is elected.
    view
        What etcd told last; None before the first time.
    checkpoint_ts, resolved_ts
        The global watermarks, as far as this capture knows.
    ends_us
        When it must stop to write, on its own clock.
    lost
        Whether etcd said that the session is gone.
    stuck
        Why the checkpoint does not proceed, and since when; only an owner's.
    moved_us
        When the global checkpoint moved last, as the owner saw it.
    asked_us
        Since when the owner has been waiting for etcd to confirm a checkpoint.
    elected_us
        Since when it is the owner.
    put_ts
        The highest watermarks that this owner has asked etcd to persist: the answer may be slower than its ticks.
    """

    address: Address
    processor: Any
    ends_us: int
    owner: Any = None
    view: View | None = None
    checkpoint_ts: int = 0
    resolved_ts: int = 0
    lost: bool = False
    stuck: str | None = None
    moved_us: int = 0
    asked_us: int | None = None
    elected_us: int = 0
    put_ts: tuple[int, int] = (0, 0)


def with_status(state: CaptureState, checkpoint_ts: int, resolved_ts: int, now: Now) -> CaptureState:
    """Take the global watermarks, which never fall."""
    moved_us = now.at_us if checkpoint_ts > state.checkpoint_ts else state.moved_us
    return state._replace(
        checkpoint_ts=max(checkpoint_ts, state.checkpoint_ts),
        resolved_ts=max(resolved_ts, state.resolved_ts),
        moved_us=moved_us,
    )


def sticking(state: CaptureState, stick: Stick, now: Now) -> tuple[CaptureState, list[Output]]:
    """Let a sink stick, or go on."""
    executor = state.processor.executor
    if stick.table not in executor.pipelines or (stick.free and stick.table not in executor.stalled):
        return state, [Ignored(stick, f"table {stick.table} is not on {state.address}, or not stuck")]
    changed = freed(executor, stick.table, now.at_us) if stick.free else stuck(executor, stick.table, now.at_us)
    told = Changed(f"sink:{stick.table}", "stuck" if stick.free else None, None if stick.free else "stuck", "a fault")
    return state._replace(processor=with_executor(state.processor, changed)), [told]


def with_executor(processor: Any, executor: Any) -> Any:
    """Give a processor other pipelines."""
    if is_dataclass(processor):
        return replace(processor, executor=executor)  # type: ignore[type-var]
    return processor._replace(executor=executor)


def addressed(command: Any, view: View | None) -> Any:
    """Users call a capture by its name; its address is another one after each restart."""
    field = "to" if isinstance(command, MoveTable) else "capture" if isinstance(command, Drain) else None
    if field is None or view is None:
        return command
    name = getattr(command, field)
    lives = [c for c in view.captures if c == name or c.startswith(f"{name}.")]
    return command._replace(**{field: max(lives, key=lambda c: (len(c), c))}) if lives else command


def owner_rev(state: CaptureState) -> int | None:
    """Give the owner-rev of an owner."""
    return state.owner.owner_rev if state.owner is not None else None


def names(captures: int | Iterable[str]) -> tuple[str, ...]:
    """Give the names of captures: ``capture-1``, ... for a number."""
    return tuple(f"capture-{i + 1}" for i in range(captures)) if isinstance(captures, int) else tuple(captures)
