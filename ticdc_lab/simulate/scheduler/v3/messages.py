"""Messages between owner and processors of the two-phase scheduler, with the field names of TiCDC's protobuf.

Every message has a header. Its ``seq`` represents the order that TiCDC's peer-to-peer streams keep: the receiver takes
nothing that was sent before what it has already taken of the same span (0: sent without order, always taken).
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key

ABSENT, PREPARING, PREPARED = "Absent", "Preparing", "Prepared"
REPLICATING, STOPPING, STOPPED = "Replicating", "Stopping", "Stopped"
TABLE_STATES = (ABSENT, PREPARING, PREPARED, REPLICATING, STOPPING, STOPPED)
"""The states in which a processor can report a span (tablepb.TableState)."""

ALIVE, LEAVING = "Alive", "Stopping"
"""Liveness of a capture; it never goes back to Alive."""


class Checkpoint(NamedTuple):
    """How far a span is: all up to ``checkpoint_ts`` is downstream, all up to ``resolved_ts`` was received."""

    checkpoint_ts: int = 0
    resolved_ts: int = 0
    last_synced_ts: int = 0


class TableStatus(NamedTuple):
    """A processor's report of one span; ``puller_resolved_ts`` is None where statistics were not collected."""

    span: Key
    state: str
    checkpoint: Checkpoint = Checkpoint()
    puller_resolved_ts: int | None = None


class Header(NamedTuple):
    """Who speaks under which revision and epochs (0 and None: unknown, or it is too old to have one)."""

    version: str
    owner_revision: int
    processor_epoch: int = 0
    changefeed_epoch: int | None = None
    seq: int = 0


class AddTable(NamedTuple):
    """Prepare a span (secondary), or write it from ``checkpoint`` on."""

    span: Key
    is_secondary: bool
    checkpoint: Checkpoint


class RemoveTable(NamedTuple):
    """Stop a span."""

    span: Key


Request: TypeAlias = AddTable | RemoveTable


class DispatchTableRequest(NamedTuple):
    """Owner to processor."""

    header: Header
    to: Address
    request: Request


class DispatchTableResponse(NamedTuple):
    """Processor to owner, whenever a request has led to something."""

    header: Header
    to: Address
    status: TableStatus


class Heartbeat(NamedTuple):
    """Owner to processor: report all you have, and these spans also where you have not.

    ``is_stopping``: the capture is being drained, ``collect_stats`` asks for the pullers' resolved ts.
    """

    header: Header
    to: Address
    spans: Map[Key, None] = Map()
    is_stopping: bool = False
    collect_stats: bool = False


class Steady(NamedTuple):
    """The statuses that can be sent for many spans at once, so that a heartbeat costs the same for any number of them.

    Every span of ``held`` that the statuses do not name replicates and is at ``checkpoint``; every one of ``asked``
    that is neither named nor held is absent.
    """

    held: Map[Key, None]
    asked: Map[Key, None]
    checkpoint: Checkpoint
    puller_resolved_ts: int | None


class HeartbeatResponse(NamedTuple):
    """Processor to owner, exactly one for each heartbeat; without ``steady`` the statuses are all there is."""

    header: Header
    to: Address
    statuses: tuple[TableStatus, ...] = ()
    liveness: str = ALIVE
    steady: Steady | None = None


Message: TypeAlias = DispatchTableRequest | DispatchTableResponse | Heartbeat | HeartbeatResponse


# What nodes of older versions cannot do.


CHANGEFEED_EPOCH_SINCE = (6, 7, 0)
"""A node of an earlier version knows no epochs of changefeeds."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def parsed(version: str) -> tuple[int, int, int]:
    """Read the numbers of a version, also of ``v6.6.0-alpha-12-gabc``; (0, 0, 0) where there are none."""
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def epoch_matches(header: Header, changefeed_epoch: int | None) -> bool:
    """Whether a message is of this changefeed's life; one of a node too old to know epochs is taken."""
    if header.changefeed_epoch is None or changefeed_epoch is None:
        return True
    if header.version and parsed(header.version) < CHANGEFEED_EPOCH_SINCE:
        return True
    return header.changefeed_epoch == changefeed_epoch
