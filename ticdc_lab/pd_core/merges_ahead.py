"""What merging of small regions has ahead: merges in the order of keys until none is left, and why regions stay."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.limits import step_cost
from ticdc_lab.pd_core.merge_checker import Neighbours, check_merge
from ticdc_lab.pd_core.operators import AddLearner, RemovePeer
from ticdc_lab.pd_core.regions import Region, RegionColumns, region_at

_MOST = 2000


class MergesAhead(NamedTuple):
    """How many regions are merged away, the steps of the operators, and tokens that peers use which move before.

    ``places`` are where the small regions are. ``add`` and ``remove`` are tokens by store. ``stays`` are the reasons of
    the regions that stay small.
    """

    places: NDArray[np.int64]
    merges: int
    steps: int
    add: Mapping[int, float]
    remove: Mapping[int, float]
    stays: tuple[tuple[str, int], ...]


def merges_ahead(
    cluster: Cluster, c: RegionColumns, repaired: Callable[[Region], Region], up_s: float
) -> MergesAhead | None:
    """Merge the small regions in the order of keys, again and again until no merge is possible.

    ``cluster``: the cluster as it is once what passes has passed. ``c``: its regions. ``repaired``: gives a region as
    the checkers will have made it. ``up_s``: since when PD leads. Of many small regions the first 2,000 are merged and
    the rest scaled. Returns: None if no region is small.
    """
    config = cluster.config
    small = np.flatnonzero(config.is_small(c.size, c.keys) & ~np.isin(c.id, list(c.busy)))
    if not len(small):
        return None
    known: dict[int, Region | None] = {-1: None, len(c.id): None}
    after: dict[int, int] = {}
    before: dict[int, int] = {}

    def at(place: int) -> Region | None:
        if place not in known:
            known[place] = repaired(region_at(c, place))
        return known[place]

    def beside(place: int, region: Region) -> Neighbours:
        a, b = at(before.get(place, place - 1)), at(after.get(place, place + 1))
        return Neighbours(
            a if a is not None and a.end_key == region.start_key and a.end_key else None,
            b if b is not None and b.start_key == region.end_key and b.start_key else None,
            borders=c.labels.borders,
        )

    asked = small[:_MOST].tolist()
    todo, merges, steps = asked, 0, 0
    add: dict[int, float] = defaultdict(float)
    remove: dict[int, float] = defaultdict(float)
    stays: dict[int, str] = {}
    while todo:
        changed: list[int] = []
        met = set[int]()  # what is merged into in this pass of the patrol
        for place in todo:
            region = at(place)
            if region is None or place in met:
                continue
            told = check_merge(cluster, region, beside(place, region), up_s=up_s)
            if not told.operators:
                stays[place] = told.because
                continue
            active, passive = told.operators
            a, b = before.get(place, place - 1), after.get(place, place + 1)
            following, preceding = at(b), at(a)
            to = b if following is not None and following.id == passive.region else a
            target = following if to == b else preceding
            assert target is not None
            merges, steps = merges + 1, steps + len(active.steps)
            cost = step_cost(region.size)
            for step in active.steps:
                if isinstance(step, AddLearner):
                    add[step.store] += cost
                elif isinstance(step, RemovePeer):
                    remove[step.store] += cost
            first, last = (region, target) if to == b else (target, region)
            known[to] = target._replace(
                size=target.size + region.size, keys=target.keys + region.keys, start_key=first.start_key,
                end_key=last.end_key,
            )  # fmt: skip
            known[place] = None
            met.add(to)
            stays.pop(place, None)
            after[a], before[b] = b, a
            changed += [p for p in (a, b) if p == to or p in stays]
        todo = sorted({p for p in changed if (r := at(p)) is not None and config.is_small(r.size, r.keys)})
        for place in changed:
            if place not in todo:
                stays.pop(place, None)  # it is large now
    scale = len(small) / len(asked)
    reasons = Counter(why for place, why in stays.items() if known.get(place) is not None)
    return MergesAhead(
        small, round(merges * scale), round(steps * scale), {i: cost * scale for i, cost in add.items()},
        {i: cost * scale for i, cost in remove.items()},
        tuple((why, round(n * scale)) for why, n in reasons.most_common()),
    )  # fmt: skip
