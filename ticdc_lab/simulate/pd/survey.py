"""What PD would do with a whole cluster now: the checkers for every region, one round of each balance scheduler."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ticdc_lab.simulate.pd import balance_leader, balance_region
from ticdc_lab.simulate.pd.checkers import check_region
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.draws import Draws
from ticdc_lab.simulate.pd.merge_checker import Neighbours, check_merge
from ticdc_lab.simulate.pd.region_columns import RegionColumns, region_at
from ticdc_lab.simulate.pd.triage import FITS, SMALL, triage
from ticdc_lab.simulate.pd.why import Answer

MOST = 2000
"""Regions of a group that the checkers are asked about one by one; of more the first ones."""


class Outcome(NamedTuple):
    """What the checkers do with regions of one group.

    ``regions`` is how many the group has, ``asked`` how many of them were checked, ``here`` how many of those ended
    this way: with an operator ``does`` ("" for none), or without one because of ``why``. ``example`` is one's id.
    """

    group: str
    regions: int
    asked: int
    here: int
    does: str
    why: str
    example: int


class Survey(NamedTuple):
    """What PD would do: outcomes of the checkers, and a round of each balance scheduler."""

    regions: int
    outcomes: tuple[Outcome, ...]
    rounds: tuple[Answer, ...]

    @property
    def sentence(self) -> str:
        """The survey in a few words."""
        acts: dict[str, int] = defaultdict(int)
        for o in self.outcomes:
            if o.does:
                acts[o.does] += round(o.here / o.asked * o.regions)
        told = [f"{name} for about {n:,} regions" for name, n in sorted(acts.items(), key=lambda a: -a[1])]
        busy = [a.asked for a in self.rounds if a.explained.operators]
        told += [f"{' and '.join(busy)} would move something"] if busy else []
        return "; ".join(told) or f"nothing: all {self.regions:,} regions are left alone and no move pays"


def survey(
    cluster: Cluster, regions: RegionColumns, *, up_s: float = float("inf"), most: int = MOST, seed: int = 1
) -> Survey:
    """Ask PD's checkers and balance schedulers what they would do now.

    Parameters
    ----------
    cluster
        The cluster.
    regions
        Its regions, in key order.
    up_s
        Seconds since PD started.
    most
        Regions of a group that are checked one by one.
    seed
        What the schedulers draw regions by.
    """
    outcomes: list[Outcome] = []
    for group in triage(cluster, regions):
        if group.name == FITS:
            first = int(regions.id[group.places[0]])
            outcomes.append(Outcome(FITS, len(group.places), 0, 0, "", "nothing to do", first))
            continue
        asked = [int(p) for p in group.places[:most]]
        found = _counted(cluster, regions, asked, up_s, of_merge=group.name == SMALL)
        outcomes.extend(
            Outcome(group.name, len(group.places), len(asked), len(ids), does, why, ids[0])
            for (does, why), ids in sorted(found.items(), key=lambda f: -len(f[1]))
        )
    leader, _ = balance_leader.schedule(cluster, Draws(regions, seed))
    region, _ = balance_region.schedule(cluster, Draws(regions, seed))
    rounds = (Answer("balance-leader", leader), Answer("balance-region", region))
    return Survey(len(regions.id), tuple(outcomes), rounds)


def _counted(
    cluster: Cluster, regions: RegionColumns, places: list[int], up_s: float, *, of_merge: bool
) -> dict[tuple[str, str], list[int]]:
    """Give the ids of regions by what is done with them and why nothing is."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place in places:
        region, beside = region_at(regions, place), neighbours(regions, place)
        told = check_region(cluster, region, beside, up_s=up_s)
        if of_merge and not told.operators:
            told = check_merge(cluster, region, beside, up_s=up_s)
        op = told.operator
        found[(op.desc, "") if op is not None else ("", told.because)].append(region.id)
    return found


def neighbours(regions: RegionColumns, place: int) -> Neighbours:
    """Give the regions whose keys border on a region's."""
    before = region_at(regions, place - 1) if place > 0 else None
    after = region_at(regions, place + 1) if place + 1 < len(regions.id) else None
    start, end = regions.start_key[place].as_py(), regions.end_key[place].as_py()
    return Neighbours(
        before if before is not None and before.end_key == start and start else None,
        after if after is not None and after.start_key == end and end else None,
    )
