"""What is left to do in a cluster: lost and leaving replicas first; if there are none, what balance would move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ticdc_lab.simulate.pd.balance import REGIONS, scale
from ticdc_lab.simulate.pd.looking.recording import Sample
from ticdc_lab.simulate.pd.looking.shares import live, region_targets
from ticdc_lab.simulate.pd.stores import REMOVING, is_disconnected, is_low_on_space


class Work(NamedTuple):
    """What is left to do: peers that must go from each store, and come to each; ``size`` is MiB of one.

    ``repair`` says that lost or leaving replicas are what it is about; ``takers`` are the stores that may take peers.
    """

    what: str
    out: Mapping[int, int]
    into: Mapping[int, int]
    takers: tuple[int, ...]
    size: float
    repair: bool

    @property
    def peers(self) -> int:
        """How many peers are to be made."""
        return max(sum(self.out.values()), sum(self.into.values()))


def work_left(sample: Sample) -> Work:
    """Give what is left to do: leaving and lost replicas first, and where there are none what balancing would move."""
    c, stores = sample.cluster, sample.cluster.stores
    leaving = {i: s.region_count for i, s in stores.items() if s.state == REMOVING and s.region_count}
    lost = {i: s.region_count for i, s in stores.items() if is_disconnected(s) and s.region_count and i not in leaving}
    low = c.config.low_space_ratio
    takers = tuple(s.id for s in live(sample) if not is_disconnected(s) and not is_low_on_space(s, low))
    size = float(c.average_region_size)
    if leaving or lost:
        names = [f"{_stores(leaving)} emptied"] if leaving else []
        names += [f"what {_stores(lost).rsplit(' ', 1)[0]} held is replaced"] if lost else []
        return Work(" and ".join(names), leaving | lost, {}, _able(sample, takers), size, True)
    missing = _missing(sample)
    if missing:
        return Work(f"{missing} missing peers are made", {}, {0: missing}, takers, size, True)
    out, into = _uneven(sample)
    return Work("the stores are even", out, into, takers, size, False)


def _stores(ids: Iterable[int]) -> str:
    some = sorted(ids)
    return f"store {some[0]} is" if len(some) == 1 else f"stores {', '.join(map(str, some))} are"


def _able(sample: Sample, takers: tuple[int, ...]) -> tuple[int, ...]:
    """Whoever may take a peer of a region that is on all the others already: none where there are too few stores."""
    need = sample.cluster.config.max_replicas
    return takers if len(takers) >= need else ()


def _missing(sample: Sample) -> int:
    placed = sample.placement.store
    voters = (placed > 0) & ~sample.placement.learner
    return int(max(0, sample.cluster.config.max_replicas * len(placed) - int(voters.sum())))


def _uneven(sample: Sample) -> tuple[dict[int, int], dict[int, int]]:
    targets, stores = region_targets(sample), sample.cluster.stores
    size = max(1.0, float(sample.cluster.average_region_size))
    slack = scale(sample.cluster, REGIONS).tolerance / size
    out = {i: int(s.region_count - targets[i] - slack) for i, s in stores.items()}
    into = {i: int(targets[i] - s.region_count - slack) for i, s in stores.items()}
    return {i: n for i, n in out.items() if n > 0}, {i: n for i, n in into.items() if n > 0}
