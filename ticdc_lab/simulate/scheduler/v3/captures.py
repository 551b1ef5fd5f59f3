"""The captures as the owner knows them: Uninitialized, Initialized, Stopping; which came and which went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address, replace, stepped
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.messages import LEAVING, Header, HeartbeatResponse

UNINITIALIZED, INITIALIZED, STOPPING = "Uninitialized", "Initialized", "Stopping"
"""It has not answered this owner; it has; it is shutting down or being drained, which never ends otherwise."""


@stepped
class V3CaptureStatus(NamedTuple):
    """One capture.

    ``epoch`` is of its processor; ``response`` is its last one, kept until the owner knows all captures. ``seq`` is
    its last heartbeat response's and ``newer`` of what it has reported of single spans since.
    """

    address: Address
    state: str = UNINITIALIZED
    epoch: int = 0
    is_owner: bool = False
    response: HeartbeatResponse | None = None
    seq: int = 0
    newer: Map[Key, int] = Map()


@dataclass(frozen=True, slots=True)
class Captures:
    """All captures that are registered."""

    members: Map[Address, V3CaptureStatus] = Map()  # by address
    initialized: bool = False  # all of them had answered once: the owner's record has been made
    removed: tuple[Address, ...] = ()  # those that went and are still to be taken out of the record
    ticks: int = 0  # the owner's calls so far
    collect_stats: bool = False  # the next heartbeat asks for statistics


def heard(status: V3CaptureStatus, response: HeartbeatResponse, header: Header) -> V3CaptureStatus:
    """Take a heartbeat response; one of another processor epoch than the first is ignored."""
    if status.state != UNINITIALIZED and status.epoch != header.processor_epoch:
        return status
    state = INITIALIZED if status.state == UNINITIALIZED else status.state
    if response.liveness == LEAVING:
        state = STOPPING
    newer = Map({span: seq for span, seq in status.newer.items() if seq > header.seq}) if status.newer else status.newer
    seq = max(status.seq, header.seq)
    return status._replace(state=state, epoch=header.processor_epoch, response=response, seq=seq, newer=newer)


def registered(
    captures: Captures, alive: frozenset[Address], owner: Address
) -> tuple[Captures, list[Address], list[Address]]:
    """Compare with those that etcd has registered and give those that came and those that went."""
    came = sorted(alive - set(captures.members))
    went = sorted(set(captures.members) - alive)
    if not came and not went:
        return captures, came, went
    members = captures.members.mutate()
    for address in came:
        members[address] = V3CaptureStatus(address, is_owner=address == owner)
    for address in went:
        del members[address]
    removed = (*captures.removed, *went) if captures.initialized else captures.removed
    return replace(captures, members=members.finish(), removed=removed), came, went


def silent(captures: Captures) -> list[Address]:
    """List those that have not answered this owner."""
    return sorted(a for a, status in captures.members.items() if status.state == UNINITIALIZED)


def all_initialized(captures: Captures) -> bool:
    """Whether the owner may schedule: it knows what every registered capture has."""
    return captures.initialized and bool(captures.members) and not silent(captures)


def forgotten(captures: Captures) -> Captures:
    """Drop the last responses, once the owner's record has been made from them."""
    members = captures.members.mutate()
    for address, status in captures.members.items():
        members[address] = status._replace(response=None)
    return replace(captures, members=members.finish(), initialized=True)
