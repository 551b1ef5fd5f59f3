"""What balance of sizes and merging of small regions have ahead: moves until none pays, merges until none is left."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core import balance_region
from ticdc_lab.pd_core.balance import AMPLIFICATION, REGIONS, Scale, influence, scale, score
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.explained import Notes
from ticdc_lab.pd_core.limits import LARGE_COST, step_cost, step_costs
from ticdc_lab.pd_core.merge_checker import Neighbours, check_merge
from ticdc_lab.pd_core.operators import AddLearner, RemovePeer
from ticdc_lab.pd_core.regions import LEARNER, OUTSIDE, ROLES, KeyRanges, Region, RegionColumns, lies_in, region_at
from ticdc_lab.pd_core.stores import MIB, Store, label, takes_part

_DRAWN_REGIONS = 2000
_MOST_STEPS = 600
_COUNTS_ON_S = 11.0
"""How long PD counts a move: the second that it takes, and ten more where it took less than ten."""


class _Drawn(NamedTuple):
    """Regions of a store that were looked at: how many of all may go to each store, and why others stay.

    ``size`` is the MiB of one that may move.
    """

    room: Mapping[int, float]
    size: float
    cost: float
    stays: Counter[str]


class BalanceAhead(NamedTuple):
    """What balance of sizes has ahead: regions that leave and reach each store, and why others stay.

    ``costs`` is the part of a large region's tokens that one of a store takes. ``paces`` are numbers of moves, and the
    seconds from one to the next that PD lets pass at least. Where nothing moves although sizes differ, ``stays`` has
    the reasons, and how many peers of ``peers`` each keeps.
    """

    out: Mapping[int, float]
    into: Mapping[int, float]
    costs: Mapping[int, float]
    peers: int
    paces: tuple[tuple[float, float], ...] = ()
    stays: tuple[tuple[str, int], ...] = ()


def _as_it_is(region: Region) -> Region:
    return region


def balance_ahead(
    cluster: Cluster, c: RegionColumns, repaired: Callable[[Region], Region] = _as_it_is, ranges: KeyRanges = ()
) -> BalanceAhead | None:
    """Let the fullest store give a region to the emptiest that may take it, until no move pays.

    As balance-region would, with what regions drawn from each store may do; stores become fuller and emptier in steps.

    ``cluster``: the cluster as it is once what passes has passed, with the influence of running operators. ``c``: its
    regions. ``repaired``: gives a region as the checkers will have made it. ``ranges``: the keys that
    balance-region is about. Returns: None where nothing is to be balanced.
    """
    if not cluster.average_region_size:
        return None
    by = scale(cluster, REGIONS)
    field = balance_region.field(cluster._replace(influence={}), Notes())
    down_s = cluster.config.max_store_down_time_s
    sources = {s.id: grown(s, influence(by, s.id)) for s in field.sources if takes_part(s, down_s)}
    drawn = _drawn(cluster, c, sources, field.closed, repaired, ranges)
    costs = {s: d.cost for s, d in drawn.items()}
    out, into, paces = _moved(by, sources, {s: d.room for s, d in drawn.items()}, {s: d.size for s, d in drawn.items()})
    if out:
        return BalanceAhead(out, into, costs, max(1, round(sum(out.values()))), tuple(paces))
    wanted, *_ = _moved(by, sources, {s: dict.fromkeys(_alike(sources, s), math.inf) for s in sources}, {})
    stays = sum((drawn[s].stays for s in wanted if s in drawn), Counter[str]())
    if not wanted or not stays:
        return None
    total, n = round(sum(wanted.values())), sum(stays.values())
    reasons = tuple((why, max(1, round(total * k / n))) for why, k in stays.most_common(3))
    return BalanceAhead({}, {}, costs, total, stays=reasons)


_MOST_AMPLIFIED = 2.0
"""Disk that a MiB of regions takes at most; what a store uses beyond that are other files."""


def amplification(s: Store) -> float:
    """Give the MiB of its disk that a MiB of a store's regions takes."""
    return min(_MOST_AMPLIFIED, s.used / (s.region_size * MIB)) if s.region_size else 1.0


def grown(s: Store, mib: float) -> Store:
    """Give a store with so many MiB of regions more, its disk as much fuller as its regions take space."""
    room = mib * amplification(s) * MIB if s.available < s.capacity else 0.0
    return s._replace(
        region_size=max(0.0, s.region_size + mib), used=max(0.0, s.used + room),
        available=min(max(0.0, s.available - room), s.capacity),
        averaged=None if s.averaged is None else min(max(0.0, s.averaged - room), s.capacity),
    )  # fmt: skip


def _alike(sources: Mapping[int, Store], store: int) -> frozenset[int]:
    """Give the stores of the same engine: others never take its regions."""
    engine = label(sources[store], "engine")
    return frozenset(i for i, s in sources.items() if i != store and label(s, "engine") == engine)


def _drawn(
    cluster: Cluster, c: RegionColumns, sources: Mapping[int, Store], closed: Collection[int],
    repaired: Callable[[Region], Region], ranges: KeyRanges,
) -> dict[int, _Drawn]:  # fmt: skip
    at = {s: i for i, s in enumerate(c.stores)}
    field = balance_region.Field(scale(cluster, REGIONS), tuple(sources.values()), frozenset(closed))
    each = max(8, min(64, _DRAWN_REGIONS // max(1, len(sources))))
    found = {}
    for source in sources:
        here, leads = c.peers == at.get(source, -2), c.leader == at.get(source, -2)
        learns = (here & (c.role == ROLES.index(LEARNER))).any(axis=1)
        held = here.any(axis=1)
        targets: Counter[int] = Counter()
        stays: Counter[str] = Counter()
        looked_at, sizes = 0, []
        for kind in (held & ~leads & ~learns, leads, learns):  # in the order in which PD draws
            rows = np.flatnonzero(kind)
            some = rows[np.linspace(0, len(rows) - 1, min(each, len(rows))).astype(np.int64)] if len(rows) else rows
            drawn = False
            looked_at += len(some)
            for place in some.tolist():
                region = repaired(region_at(c, place))
                why = _why_it_stays(cluster, region, source, c.busy) if lies_in(region, ranges) else OUTSIDE
                takers = () if why else balance_region.takers(field, source, region, Notes())
                drawn |= not why
                if takers:
                    targets.update(t.id for t in takers)
                    sizes.append(region.size)
                else:
                    stays[why or "no other store may take it by its rules or places"] += 1
            if drawn:
                break  # PD draws the others only where it finds none of these
        each_of = cluster.regions_on.get(source, int(held.sum())) / max(1, looked_at)
        cost = float(step_costs(np.array(sizes)).mean()) / LARGE_COST if sizes else 1.0
        size = sum(sizes) / len(sizes) if sizes else 0.0
        found[source] = _Drawn({t: n * each_of for t, n in targets.items()}, size, cost, stays)
    return found


def _why_it_stays(cluster: Cluster, region: Region, source: int, busy: Collection[int]) -> str:
    if not region.leader:
        return "the region has no leader"
    if region.hot:
        return "the region is hot"
    if region.id in busy:
        return "an operator runs for it"
    return balance_region.may_move(cluster, region, source, "")


def _moved(
    by: Scale, sources: Mapping[int, Store], room: Mapping[int, Mapping[int, float]], sizes: Mapping[int, float]
) -> tuple[dict[int, float], dict[int, float], list[tuple[float, float]]]:
    """Move regions while a move pays; give how many leave and reach each store, and the paces.

    ``room`` is how many regions of a store may go to each other one, ``sizes`` their MiB. Stores share regions; a
    region goes to a store once.
    """
    stores, left = dict(sources), {a: dict(to) for a, to in room.items()}
    average = float(max(1, by.cluster.average_region_size))
    on, regions = by.cluster.regions_on, max(1, by.cluster.region_count)
    from_: dict[int, list[int]] = defaultdict(list)
    for a, to in room.items():
        for t in to:
            from_[t].append(a)
    most = {
        t: sum(room[a][t] for a in some) / max(1.0, sum(on.get(a, 0) for a in some) / regions)
        for t, some in from_.items()
    }
    step = max(1.0, sum(s.region_size for s in stores.values()) / average / _MOST_STEPS)
    give = {i: score(by, s, -by.tolerance) for i, s in stores.items()}
    take = {i: score(by, s, by.tolerance) for i, s in stores.items()}
    net: dict[int, float] = defaultdict(float)
    paces: list[tuple[float, float]] = []
    for _ in range(2 * _MOST_STEPS):
        pairs = (
            (source, min(some, key=lambda t: take[t]))
            for source in sorted(give, key=lambda s: -give[s])
            if (some := [t for t, n in left.get(source, {}).items() if n >= 0.5 and net[t] < most[t] and t in take])
        )
        found = next(
            ((a, b) for a, b in pairs if give[a] > take[b] and stores[a].region_size >= sizes.get(a, average)), None
        )
        if found is None:
            if step <= 1.0:
                break
            step = max(1.0, step / 4)
            continue
        a, b = found
        size = sizes.get(a, average)
        n = max(1.0, min(step, left[a][b], most[b] - net[b]))
        while n > 1.0 and not score(by, grown(stores[a], -size * (n - 1)), -by.tolerance) > score(
            by, grown(stores[b], size * (n - 1)), by.tolerance
        ):
            n = max(1.0, n / 2)
        left[a][b] -= n
        fuller = sum(give[s] > take[b] for s in left)  # those that give and take beside the two
        emptier = sum(give[a] > take[t] for t in left[a])
        gave = give[a] - score(by, stores[a], -by.tolerance - AMPLIFICATION * size)
        took = score(by, stores[b], by.tolerance + AMPLIFICATION * size) - take[b]
        at_once = (give[a] - take[b]) / (gave / fuller + took / emptier)
        paces.append((n, _COUNTS_ON_S / max(min(fuller, emptier), at_once)))
        for store, mib, more in ((a, -size * n, -n), (b, size * n, n)):
            stores[store] = grown(stores[store], mib)
            give[store], take[store] = (score(by, stores[store], sign * by.tolerance) for sign in (-1, 1))
            net[store] += more
    return {i: -n for i, n in net.items() if n < -0.5}, {i: n for i, n in net.items() if n > 0.5}, paces


# Merges in the order of keys until none is left, and why regions stay.


_MOST_MERGED = 2000


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

    asked = small[:_MOST_MERGED].tolist()
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
