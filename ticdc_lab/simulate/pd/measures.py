"""Even, moved back, moved: one definition of each, for runs, recordings, scenarios, snapshots of a user's cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

CLOSE = 0.05
"""Within so much of its share, and one more, a store counts as even: the measure of the reference runs."""

BACK_WITHIN_US = 60_000_000
"""A move that is taken back within a minute was in vain: thrash."""


def shares(total: float, weights: Mapping[int, float]) -> dict[int, float]:
    """Give what each store would have of a total by its weight."""
    together = sum(weights.values())
    return {i: total * w / together if together else 0.0 for i, w in weights.items()}


def uneven(counts: Mapping[int, float], share: Mapping[int, float]) -> dict[int, float]:
    """Give the counts of those stores that are farther than five percent, and one, from their share."""
    return {i: counts.get(i, 0) for i, t in share.items() if abs(counts.get(i, 0) - t) > CLOSE * t + 1}


def is_even(counts: Mapping[int, float], share: Mapping[int, float]) -> bool:
    return not uneven(counts, share)


def since_when(moments: Iterable[tuple[int, bool]]) -> int | None:
    """Give the moment since when something has been so to the end, None where it is not so at the end."""
    since = None
    for at, so in moments:
        since = (at if since is None else since) if so else None
    return since


class MoveMade(NamedTuple):
    """A move of a region's peer, or of its leadership, that was carried out; ``at_us`` is when it began."""

    region: int
    leads: bool
    from_store: int
    to_store: int
    at_us: int


class MovesMade(NamedTuple):
    """How many moves there were, and how many of them took back one of the minute before."""

    moves: int
    back: int

    @property
    def thrash(self) -> float:
        """The share of moves that took one back."""
        return self.back / self.moves if self.moves else 0.0


def moved_back(moves: Iterable[MoveMade]) -> MovesMade:
    """Count moves, and those that take back the region's move before, if that is no more than a minute old."""
    last: dict[tuple[int, bool], MoveMade] = {}
    n = back = 0
    for m in sorted(moves, key=lambda m: m.at_us):
        before = last.get((m.region, m.leads))
        n += 1
        back += (
            before is not None
            and (before.to_store, before.from_store) == (m.from_store, m.to_store)
            and (m.at_us - before.at_us <= BACK_WITHIN_US)
        )
        last[m.region, m.leads] = m
    return MovesMade(n, back)
