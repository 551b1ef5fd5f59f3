"""The nodes as a maintainer knows them, and its own state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Output, Send
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4.barrier import NO_BARRIER, Barrier
from ticdc_lab.simulate.scheduler.v4.control import NOTHING, Control
from ticdc_lab.simulate.scheduler.v4.drain_scheduler import NO_DRAIN, DrainState
from ticdc_lab.simulate.scheduler.v4.messages import (
    MaintainerBootstrapRequest,
    MaintainerBootstrapResponse,
    MergeDispatcherRequest,
    ScheduleDispatcherRequest,
    Stamp,
)


class Node(NamedTuple):
    """One node.

    Attributes
    ----------
    since_us
        When the maintainer first heard of this life of it.
    asked_us
        When it was asked for its bootstrap response last.
    epoch, seq
        The life of its dispatcher manager and the number of the last message taken; 0 before its response.
    checkpoint_ts, resolved_ts
        Its last watermark, None before the first heartbeat.
    slowest
        The span that is behind all others there.
    """

    since_us: int
    asked_us: int
    epoch: int = 0
    seq: int = 0
    checkpoint_ts: int | None = None
    resolved_ts: int | None = None
    slowest: Key | None = None


@dataclass(frozen=True, slots=True)
class MaintainerState:
    """A maintainer; ``owner_rev``, its epoch, is 0 while it is not elected.

    Attributes
    ----------
    responses
        What nodes said while not all had answered.
    tables
        What should be replicated, as last told; compared with ``is``.
    seq
        Number of the last message sent to a node.
    balance_due_us, balance_blocked_us
        When to look at the balance next, and until when a drain that ended holds it back.
    said
        What each scheduler said last of why it does nothing: it is not said twice.
    stuck_us
        Since when the checkpoint does not proceed.
    """

    address: Address
    owner_rev: int = 0
    control: Control = NOTHING
    nodes: Map[Address, Node] = Map()
    responses: Map[Address, MaintainerBootstrapResponse] = Map()
    bootstrapped: bool = False
    tables: frozenset[Key] = frozenset()
    barrier: Barrier = NO_BARRIER
    drain: DrainState = NO_DRAIN
    seq: int = 0
    balance_due_us: int = 0
    balance_blocked_us: int = 0
    said: Map[str, str] = Map()
    stuck_us: int | None = None


Stepped = tuple[MaintainerState, list[Output]]


def asked(state: MaintainerState, node: Address, at_us: int) -> Stepped:
    """Ask a node for everything that it runs."""
    old = state.nodes.get(node, Node(at_us, at_us))
    nodes = state.nodes.set(node, old._replace(asked_us=at_us))
    return replace(state, nodes=nodes), [Send(node, MaintainerBootstrapRequest(state.owner_rev))]


def stamped(state: MaintainerState, outputs: list[Output]) -> Stepped:
    """Number the messages to nodes; what is for a life of a node that nobody knows is not sent."""
    seq, ready = state.seq, list[Output]()
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.message, ScheduleDispatcherRequest | MergeDispatcherRequest):
            node = state.nodes.get(output.to)
            if node is None or not node.epoch:
                continue
            seq += 1
            message = output.message._replace(stamp=Stamp(state.owner_rev, node.epoch, seq))
            ready.append(Send(output.to, message))
        else:
            ready.append(output)
    return replace(state, seq=seq), ready
