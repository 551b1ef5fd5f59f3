"""Even, moved back, moved: one definition of each, for runs, recordings, scenarios, snapshots of a user's cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.stores import is_tikv, takes_part

CLOSE = 0.05
"""Within so much of its share, and one more, a store counts as even: the measure of the reference runs."""

BACK_WITHIN_US = 60_000_000
"""A move that is taken back within a minute was in vain: thrash."""


PEERS, LEADERS = "peers", "leaders"
_OF = {PEERS: ("region_count", "region_weight"), LEADERS: ("leader_count", "leader_weight")}


def counts(cluster: Cluster, of: str = PEERS) -> dict[int, int]:
    """Give the peers (or leaders) on each store, by id."""
    return {i: getattr(s, _OF[of][0]) for i, s in sorted(cluster.stores.items())}


def shares(cluster: Cluster, of: str = PEERS) -> dict[int, float]:
    """Give each store's share of all peers (or leaders) by weight, of TiKV's and TiFlash's each by themselves.

    A store that is Offline, Down or a Tombstone has no share: what it has is to go to the others.
    """
    count, weight = _OF[of]
    found = dict.fromkeys(sorted(cluster.stores), 0.0)
    for engine in (True, False):
        stores = [s for s in cluster.stores.values() if is_tikv(s) is engine]
        total = sum(getattr(s, count) for s in stores)
        weights = {
            s.id: getattr(s, weight) for s in stores if takes_part(s, cluster.config.max_store_down_time_s)
        }  # fmt: skip
        together = sum(weights.values())
        found |= {i: total * w / together if together else 0.0 for i, w in weights.items()}
    return found


def uneven(cluster: Cluster, of: str = PEERS) -> dict[int, int]:
    """Give the counts of the stores that are not even: farther than five percent, and one, from their share."""
    have = counts(cluster, of)
    return {i: have[i] for i, share in shares(cluster, of).items() if not is_close(have[i], share)}


def is_close(count: float, share: float) -> bool:
    """Whether a count is within five percent, and one, of a share."""
    return abs(count - share) <= CLOSE * share + 1


def since_when(moments: Iterable[tuple[int, bool]]) -> int | None:
    """Give the moment since when something has been so to the end, None where it is not so at the end."""
    since = None
    for at, so in moments:
        since = (at if since is None else since) if so else None
    return since


class RunMoment(NamedTuple):
    """What is measured of a run at a moment."""

    at_us: int
    peers: Mapping[int, int]  # on each store
    leaders: Mapping[int, int]
    # The counts of the stores that are not even (:func:`uneven`).
    uneven_peers: Mapping[int, int]
    uneven_leaders: Mapping[int, int]
    moved_mib: float  # copied between stores since the start
    io_mib: Mapping[int, float]  # what each store sent and received of snapshots since the start


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
