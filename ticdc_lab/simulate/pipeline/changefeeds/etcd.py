"""Etcd with several changefeeds: they share sessions and election, and each has its own state and checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import (
    Address,
    Asked,
    Changed,
    Event,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    not_taken,
    one_by_one,
    replace,
)
from ticdc_lab.simulate.pipeline.settings import KAFKA
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.scheduler.etcd import Etcd, EtcdState
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Expire, NoLease, TwoOwners, View
from ticdc_lab.simulate.scheduler.roles import Key

# What etcd has of a changefeed, what users ask, and how messages name their changefeed.


NORMAL, STOPPED = "normal", "stopped"
"""The state of a changefeed; a paused one is stopped, one that was removed is not there."""


class Changefeed(NamedTuple):
    """A changefeed as of a revision of etcd."""

    id: str
    state: str
    epoch: int  # the revision at which it was created, or resumed last: what is of another epoch is void
    start_ts: int  # where it started first (exclusive)
    only: frozenset[int] | None  # ids of the tables that its filter lets through; None for all
    sink: str  # the kind of its downstream
    tables: frozenset[Key]  # what is to be replicated now
    # The persisted watermarks.
    checkpoint_ts: int
    resolved_ts: int


class Of(NamedTuple):
    """A message of one changefeed, from capture to capture and between captures and etcd."""

    changefeed: str
    epoch: int
    message: Any


class Changefeeds(NamedTuple):
    """All sessions and changefeeds as of a revision, pushed to every session when something but a status changed."""

    revision: int
    captures: frozenset[Address]
    owner: Address | None
    owner_rev: int
    changefeeds: tuple[Changefeed, ...]

    def get(self, name: str) -> Changefeed | None:
        return next((c for c in self.changefeeds if c.id == name), None)


# What users ask of etcd, as the first versions of cdc cli wrote there


@dataclass(frozen=True, slots=True)
class CreateChangefeed:
    """A changefeed begins, into a downstream of its own."""

    id: str
    tables: tuple[int, ...] = ()  # those that its filter lets through; none named lets all through
    kind: str | None = None  # of the downstream; None for the settings' kind
    start_us: int | None = None  # from which moment on changes are wanted (exclusive); None for now

    @property
    def only(self) -> frozenset[int] | None:
        """Give the tables that its filter lets through; None for all."""
        return frozenset(self.tables) or None


@dataclass(frozen=True, slots=True)
class PauseChangefeed:
    """A changefeed stops, and its checkpoint stands."""

    id: str


@dataclass(frozen=True, slots=True)
class ResumeChangefeed:
    """A changefeed that is paused resumes from its checkpoint."""

    id: str


@dataclass(frozen=True, slots=True)
class RemoveChangefeed:
    """A changefeed ends for good."""

    id: str


Command: TypeAlias = CreateChangefeed | PauseChangefeed | ResumeChangefeed | RemoveChangefeed


class ForChangefeed(NamedTuple):
    """Asked of captures: a command for one changefeed, such as the move of a table."""

    changefeed: str
    command: Any


def downstream_of(changefeed: str) -> str:
    """Give the node that a changefeed writes to."""
    return f"{DOWNSTREAM}-{changefeed}"


def named(changefeed: str, subject: str) -> str:
    """Give the subject of a row of the trace that is about one changefeed."""
    return f"{changefeed}/{subject}"


# The machine.


class SharedState(NamedTuple):
    """What etcd holds: ``sessions`` is a cluster's without tables."""

    sessions: EtcdState
    changefeeds: Map[str, Changefeed] = Map()


@dataclass(frozen=True, slots=True)
class SharedEtcd:
    """The machine of etcd."""

    sessions: Etcd  # etcd of a cluster without tables; it also judges what an owner persists for one changefeed
    tables: frozenset[Key]  # all there are before any DDL
    first: tuple[CreateChangefeed, ...] = ()  # changefeeds that are there from the beginning
    free_ts: int | None = None  # the global resolved_ts of every changefeed at its beginning; None for its start
    sink: str = KAFKA  # the kind of downstream of a changefeed without one

    def start(self, address: Address, now: Now) -> tuple[SharedState, list[Output]]:
        state, outputs = SharedState(self.sessions.start(address, now)[0]), []
        for create in self.first:
            state, more = self._asked(state, create, now)
            outputs += more
        return state, outputs

    def step(self, state: SharedState, event: Event, now: Now) -> tuple[SharedState, list[Output]]:
        if isinstance(event, Received) and isinstance(event.message, Of):
            return self._persisted(state, event.sender, event.message, now)
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Asked) and isinstance(event.command, Command):
            return self._asked(state, event.command, now)
        if isinstance(event, Asked) and not isinstance(event.command, Expire | TwoOwners):
            raise not_taken(event.command, f"{ETCD} of several changefeeds")
        sessions, outputs = self.sessions.step(state.sessions, event, now)
        state = state._replace(sessions=sessions)
        return state, _seen(state, outputs)

    def _persisted(self, state: SharedState, sender: Address, of: Of, now: Now) -> tuple[SharedState, list[Output]]:
        """Let the owner persist something of one changefeed, as if there were no other."""
        one = state.changefeeds.get(of.changefeed)
        if one is None or one.state != NORMAL or one.epoch != of.epoch:
            what = "is removed" if one is None else f"is {one.state}, of epoch {one.epoch}"
            return state, [Ignored(of, f"changefeed {of.changefeed} {what}")]
        alone = replace(state.sessions, tables=one.tables, checkpoint_ts=one.checkpoint_ts, resolved_ts=one.resolved_ts)
        after, outputs = self.sessions.step(alone, Received(sender, of.message), now)
        own = one._replace(tables=after.tables, checkpoint_ts=after.checkpoint_ts, resolved_ts=after.resolved_ts)
        state = SharedState(
            replace(after, tables=frozenset(), checkpoint_ts=0, resolved_ts=0),
            state.changefeeds if own == one else state.changefeeds.set(one.id, own),
        )
        return state, _seen(state, outputs, one)

    def _asked(self, state: SharedState, command: Command, now: Now) -> tuple[SharedState, list[Output]]:
        known = state.changefeeds.get(command.id)
        sessions = replace(state.sessions, revision=state.sessions.revision + 1)
        if isinstance(command, CreateChangefeed):
            only = command.only
            start_ts = ts_of(now.at_us if command.start_us is None else command.start_us)
            new = Changefeed(
                command.id, NORMAL, sessions.revision, start_ts, only, command.kind or self.sink,
                self.tables if only is None else self.tables & only, start_ts,
                start_ts if self.free_ts is None else self.free_ts,
            )  # fmt: skip
            refused = "it is there already" if known else ""
        elif known is None:
            return state, [Ignored(command, "there is no such changefeed")]
        elif isinstance(command, PauseChangefeed):
            new = known._replace(state=STOPPED)
            refused = "" if known.state == NORMAL else "it is stopped already"
        elif isinstance(command, ResumeChangefeed):
            new = known._replace(state=NORMAL, epoch=sessions.revision)
            refused = "" if known.state == STOPPED else "it is not stopped"
        else:
            new, refused = None, ""
        if refused:
            return state, [Ignored(command, refused)]
        feeds = state.changefeeds.delete(command.id) if new is None else state.changefeeds.set(command.id, new)
        state = SharedState(sessions, feeds)
        because = f"a user asked to {type(command).__name__.removesuffix('Changefeed').lower()} it"
        told = Changed(f"changefeed:{command.id}", known and known.state, new and new.state, because)
        outputs: list[Output] = [told, *self.sessions.views(sessions)]
        if known is None and new is not None:
            subject = named(new.id, "global-checkpoint")
            outputs.insert(1, Changed(subject, None, new.checkpoint_ts, "the changefeed starts here"))
        return state, _seen(state, outputs)


def _seen(state: SharedState, outputs: Iterable[Any], one: Changefeed | None = None) -> list[Output]:
    """Show every session all changefeeds, and name the one that the outputs are of."""
    found: list[Output] = []
    feeds = tuple(state.changefeeds[name] for name in sorted(state.changefeeds))
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.message, View):
            view = output.message
            seen = Changefeeds(view.revision, view.captures, view.owner, view.owner_rev, feeds)
            found.append(Send(output.to, seen))
        elif one is not None and isinstance(output, Send) and not isinstance(output.message, NoLease):
            found.append(Send(output.to, Of(one.id, one.epoch, output.message)))
        elif one is not None and isinstance(output, Changed):
            found.append(output._replace(subject=named(one.id, output.subject)))
        else:
            found.append(output)
    return found
