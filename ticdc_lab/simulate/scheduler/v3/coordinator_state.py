"""What the owner's side remembers, and how it speaks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from immutables import Map

from ticdc_lab.simulate.machine import Address, Send
from ticdc_lab.simulate.scheduler.roles import Key, OwnerOutput
from ticdc_lab.simulate.scheduler.v3.captures import Captures
from ticdc_lab.simulate.scheduler.v3.messages import DispatchTableRequest, Header, Heartbeat
from ticdc_lab.simulate.scheduler.v3.plan import Plan, noted
from ticdc_lab.simulate.scheduler.v3.reconciler import Known
from ticdc_lab.simulate.scheduler.v3.replications import EMPTY, Draft, Keys, Replications
from ticdc_lab.simulate.scheduler.v3.schedulers import Schedulers
from ticdc_lab.simulate.scheduler.v3.settings import Settings


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """The state of one owner.

    Attributes
    ----------
    address, owner_rev
        Who it is; a capture of a higher revision is the owner that counts.
    captures, replications, plan, known, schedulers
        Who is there, who has what, what is wanted, of which spans, and what the schedulers remember.
    tables
        The wanted tables as the last tick gave them, None before the captures have been heard.
    seq
        Of the last message sent.
    stuck
        The checkpoint of the last tick, None where it could not proceed, with why and since when, µs.
    """

    address: Address
    owner_rev: int
    captures: Captures = field(default_factory=Captures)
    replications: Replications = field(default_factory=Replications)
    plan: Plan = field(default_factory=Plan)
    known: Known = Map()
    schedulers: Schedulers = field(default_factory=Schedulers)
    tables: frozenset[Key] | None = None
    seq: int = 0
    stuck: tuple[int | None, str, int] | None = None


def finished(
    settings: Settings, state: CoordinatorState, draft: Draft, captures: Captures | None = None
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    """End a step on the owner's records: its notes, and its requests as messages."""
    replications, seq = draft.finished(), state.seq
    outputs: list[OwnerOutput] = [*draft.notes]
    for to, request in draft.requests:
        seq += 1
        outputs.append(Send(to, DispatchTableRequest(_header(settings, state, to, seq), to, request)))
    plan = noted(state.plan, draft.gone, replications.sets)
    captures = state.captures if captures is None else captures
    mine = (state.address, state.owner_rev, captures, replications, plan, state.known, state.schedulers)
    return CoordinatorState(*mine, state.tables, seq, state.stuck), outputs


def heartbeat(
    settings: Settings, state: CoordinatorState, to: Address, spans: Keys = EMPTY, collect_stats: bool = False
) -> tuple[CoordinatorState, Send]:
    """Make one heartbeat."""
    seq = state.seq + 1
    draining = state.schedulers.drain_target == to
    message = Heartbeat(_header(settings, state, to, seq), to, spans, draining, collect_stats)
    return replace(state, seq=seq), Send(to, message)


def _header(settings: Settings, state: CoordinatorState, to: Address, seq: int) -> Header:
    status = state.captures.members.get(to)
    epoch = status.epoch if status else 0
    return Header(settings.version, state.owner_rev, epoch, settings.changefeed_epoch, seq)
