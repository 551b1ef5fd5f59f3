"""Messages between stores and from PD to stores: raft-lite, in which a log entry is the whole region by reference.

``(term, index)`` orders the states of a region as it orders entries of a log. A message is for many regions.
"""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.machines.machine import Address
from ticdc_lab.simulate.pipeline.tikv.region_data import Data

RegionTerm = tuple[int, int]
"""A region and a term."""
RegionIndex = tuple[int, int, int]
"""A region, a term and an index."""


class Append(NamedTuple):
    """A leader's regions as they are now: (region, term, index, data)."""

    regions: tuple[tuple[int, int, int, Data], ...]


class Appended(NamedTuple):
    """The answer to :class:`Append`."""

    held: tuple[RegionIndex, ...]  # these are held, by a peer that votes
    stale: tuple[RegionTerm, ...] = ()  # here a higher term is known
    gone: tuple[int, ...] = ()  # these regions were merged into others


class Vote(NamedTuple):
    """A candidate asks for votes: (region, term)."""

    regions: tuple[RegionTerm, ...]


class Voted(NamedTuple):
    """The answer to :class:`Vote`."""

    # (region, term of the vote, term and index of what the voter holds, and that; None for nothing).
    granted: tuple[tuple[int, int, int, int, Data | None], ...]
    stale: tuple[RegionTerm, ...] = ()  # the voter knows this term, which is not lower
    gone: tuple[int, ...] = ()  # as in ``Appended``


class CheckLeader(NamedTuple):
    """A leader asks whether it still is one: (region, term, index) of what it leads at ``sent_us``."""

    sent_us: int
    regions: tuple[RegionIndex, ...]


class CheckedLeader(NamedTuple):
    """The answer to :class:`CheckLeader`."""

    sent_us: int  # of the question
    agreed: tuple[int, ...]  # no higher term is known here
    lacking: tuple[int, ...] = ()  # the last state is not held here: send it (again)
    learning: tuple[int, ...] = ()  # this peer began empty and does not vote yet, and holds the last state
    # As in ``Appended``.
    stale: tuple[RegionTerm, ...] = ()
    gone: tuple[int, ...] = ()


class Admit(NamedTuple):
    """These peers that began empty may vote from now on: (region, term of the leader)."""

    regions: tuple[RegionTerm, ...]


class Campaign(NamedTuple):
    """Campaign in these regions: PD, or the leader that gives its place up, asks for it."""

    regions: tuple[int, ...]
    because: str


class Destroy(NamedTuple):
    """These regions were merged into others, for good."""

    regions: tuple[int, ...]


class Stores(NamedTuple):
    """PD sends where stores are: (name, address)."""

    addresses: tuple[tuple[str, Address], ...]


class AskSplit(NamedTuple):
    """Asked of PD: an id for what is split off this region at a key."""

    region: int
    epoch: int
    key: int


class SplitId(NamedTuple):
    """PD's answer to :class:`AskSplit`; ``new`` is an id that no region ever had."""

    region: int
    epoch: int
    key: int
    new: int
