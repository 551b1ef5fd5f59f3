"""The messages of the design's protocol (v2), by its names; a trace writes fields as the design does (``owner-rev``).

Released versions added an epoch of the processor's incarnation and the start ts (docs/scheduler.md).
"""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.scheduler.roles import Key


class DispatchTable(NamedTuple):
    """Owner to processor: start, or stop, to replicate a table."""

    owner_rev: int
    id: Key
    is_delete: bool
    start_ts: int
    epoch: int


class DispatchTableResponse(NamedTuple):
    """Processor to owner: the operation on the table is finished."""

    id: Key
    epoch: int


class Announce(NamedTuple):
    """Owner to processor: the sender was elected."""

    owner_rev: int
    owner_version: str


class Sync(NamedTuple):
    """Processor to owner: the state of a processor, to a new owner or after a restart."""

    processor_version: str
    running: tuple[Key, ...]
    adding: tuple[Key, ...]
    removing: tuple[Key, ...]
    epoch: int


class Checkpoint(NamedTuple):
    """Processor to owner: its watermarks, and the table that holds the lower one."""

    checkpoint_ts: int
    resolved_ts: int
    slowest: Key | None = None


def compatible(a: str, b: str) -> bool:
    """Whether two versions may work together: the same major version (``v6.1.0`` and ``v6.5.2``)."""
    return a.lstrip("v").split(".")[0] == b.lstrip("v").split(".")[0]
