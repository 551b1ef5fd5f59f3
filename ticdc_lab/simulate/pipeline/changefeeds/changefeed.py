"""What etcd holds of a changefeed, what users ask, and how messages say of which changefeed they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ticdc_lab.machines.machine import Address
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.scheduler.roles import Key

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
    kind: str | None = None  # of the downstream; None for what the settings say
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
