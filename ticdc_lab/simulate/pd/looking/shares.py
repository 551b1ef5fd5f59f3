"""What each store should have, and how far a cluster is from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ticdc_lab.simulate.pd.looking.recording import Recording, Sample
from ticdc_lab.simulate.pd.stores import PREPARING, SERVING, Store

CLOSE = 0.05
"""Within so much of its share, and one more, a store counts as even: the measure of the reference runs."""


def is_live(s: Store, max_down_s: float) -> bool:
    """Whether a store takes part: neither leaving nor gone nor down."""
    return s.state in (PREPARING, SERVING) and s.heartbeat_age_s <= max_down_s


def live(sample: Sample) -> list[Store]:
    """Give the stores that take part, by id."""
    stores = sample.cluster.stores
    return [stores[i] for i in sorted(stores) if is_live(stores[i], sample.cluster.config.max_store_down_time_s)]


def region_targets(sample: Sample) -> dict[int, float]:
    """Give the peers each store would have if they were shared by region weight; 0 for one that leaves."""
    return _targets(sample, (s.region_count for s in sample.cluster.stores.values()), "region_weight")


def leader_targets(sample: Sample) -> dict[int, float]:
    """Give the leaders each store would have if they were shared by leader weight; 0 for one that leaves."""
    return _targets(sample, (s.leader_count for s in sample.cluster.stores.values()), "leader_weight")


def _targets(sample: Sample, counts: Iterable[int], weight: str) -> dict[int, float]:
    some = live(sample)
    total, weights = sum(counts), sum(getattr(s, weight) for s in some)
    shares = {s.id: total * getattr(s, weight) / weights if weights else 0.0 for s in some}
    return {i: shares.get(i, 0.0) for i in sorted(sample.cluster.stores)}


def excess(counts: Mapping[int, int], targets: Mapping[int, float]) -> float:
    """Give by how much the store farthest from its share misses it, as a part of the mean share."""
    mean = sum(targets.values()) / max(1, sum(t > 0 for t in targets.values()))
    return max((abs(counts.get(i, 0) - t) for i, t in targets.items()), default=0.0) / mean if mean else 0.0


def peers(sample: Sample) -> dict[int, int]:
    """Give the peers on each store."""
    return {i: s.region_count for i, s in sorted(sample.cluster.stores.items())}


def leaders(sample: Sample) -> dict[int, int]:
    """Give the leaders on each store."""
    return {i: s.leader_count for i, s in sorted(sample.cluster.stores.items())}


def is_even(counts: Mapping[int, int], targets: Mapping[int, float]) -> bool:
    """Whether every store is within five percent of its share, and one."""
    return all(abs(counts.get(i, 0) - t) <= CLOSE * t + 1 for i, t in targets.items())


def even_from_us(recording: Recording, of: str = "peers") -> int | None:
    """Give the moment from which on peers (or leaders) stay even, None where they are not at the end."""
    since: int | None = None
    for s in recording.samples:
        even = is_even(peers(s), region_targets(s)) if of == "peers" else is_even(leaders(s), leader_targets(s))
        since = (s.at_us if since is None else since) if even else None
    return since


def standing(samples: Sequence[Sample], store: int) -> list[int]:
    """Give the peers of a store over time."""
    return [peers(s).get(store, 0) for s in samples]
