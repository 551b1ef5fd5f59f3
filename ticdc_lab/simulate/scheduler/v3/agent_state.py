"""What a processor remembers, and how it speaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Output, Send
from ticdc_lab.simulate.scheduler.executor import Executor
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.messages import (
    ALIVE,
    DispatchTableResponse,
    Header,
    Request,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.settings import Settings

ADD, REMOVE = "add", "remove"
"""Calls of the executor that a fault can let fail."""


class Failing(NamedTuple):
    """A fault asks the processor: these calls of the executor (``add``, ``remove``) fail from now on."""

    calls: frozenset[str] = frozenset()


class Owner(NamedTuple):
    """The owner that counts for a processor: that of the highest revision it has heard."""

    address: Address
    revision: int
    version: str


@dataclass(frozen=True, slots=True)
class AgentState:
    """One processor.

    Attributes
    ----------
    address, epoch
        Who it is and in which life; every new owner and every restart begins another.
    executor
        The pipelines.
    held
        The spans it has.
    tasks
        By span, the request that has not been carried out yet.
    ready
        Those that are prepared and wait to be told to write.
    gone
        Those it has no more; they are reported Absent while the owner asks for them.
    owner
        Whom it obeys, None before one has spoken.
    liveness
        Alive until it is told to stop.
    seq
        Of the last message sent.
    taken
        By span, the ``seq`` of the last request of this owner.
    failing
        Calls of the executor that fail.
    """

    address: Address
    executor: Executor
    epoch: int = 1
    held: Map[Key, None] = Map()
    tasks: Map[Key, Request] = Map()
    ready: Map[Key, None] = Map()
    gone: Map[Key, None] = Map()
    owner: Owner | None = None
    liveness: str = ALIVE
    seq: int = 0
    taken: Map[Key, int] = Map()
    failing: frozenset[str] = frozenset()


@dataclass(slots=True)
class Desk:
    """An :class:`AgentState` while one step changes it, with what comes out of the step."""

    of: AgentState
    settings: Settings
    at_us: int
    outputs: list[Output] = field(default_factory=list)
    executor: Executor = field(init=False)
    held: Map[Key, None] = field(init=False)
    tasks: Map[Key, Request] = field(init=False)
    ready: Map[Key, None] = field(init=False)
    gone: Map[Key, None] = field(init=False)
    taken: Map[Key, int] = field(init=False)
    seq: int = field(init=False)

    def __post_init__(self) -> None:
        of = self.of
        self.executor, self.held, self.tasks = of.executor, of.held, of.tasks
        self.ready, self.gone, self.taken, self.seq = of.ready, of.gone, of.taken, of.seq

    def finished(self) -> AgentState:
        """Give the state after the step."""
        of = self.of
        mine = (of.address, self.executor, of.epoch, self.held, self.tasks, self.ready, self.gone)
        return AgentState(*mine, of.owner, of.liveness, self.seq, self.taken, of.failing)

    def header(self, owner: Owner) -> Header:
        """Make the header of the next message."""
        self.seq += 1
        its = self.settings
        return Header(its.version, owner.revision, self.of.epoch, its.changefeed_epoch, self.seq)

    def respond(self, status: TableStatus) -> None:
        """Tell the owner of one span."""
        owner = self.of.owner
        if owner is not None:
            response = DispatchTableResponse(self.header(owner), owner.address, status)
            self.outputs.append(Send(owner.address, response))
