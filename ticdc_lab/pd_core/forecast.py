"""How long until done: what checkers and schedulers would do with each region, what store limits let through, and why
some of it is never done. All estimates are from here: `explain`, two moments, recordings, and PD's own progress.

The repairs of a region are played out (:mod:`ticdc_lab.pd_core.course`); regions that nothing distinguishes are
played once. Peers that may go to several stores wait for the slowest group of stores that all of them need.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.pd_core.cluster import Cluster, borders_within
from ticdc_lab.pd_core.config import BALANCE_REGION, PATROL_REGIONS
from ticdc_lab.pd_core.course import BETTER, EXTRA, MISSING, TO_FULL, TO_WITNESS, course_of, is_well, why_it_leaves
from ticdc_lab.pd_core.limits import LARGE_COST, SMALL_COST, Limits, PerMinute, limits_nothing, step_costs
from ticdc_lab.pd_core.pd_ctl_running import PdSchedulers, default_schedulers
from ticdc_lab.pd_core.regions import VOTER, Region, RegionColumns, has_quorum, region_at
from ticdc_lab.pd_core.scores import region_score
from ticdc_lab.pd_core.stores import NEVER_S, REMOVED, REMOVING, Store, is_disconnected
from ticdc_lab.pd_core.strategy import NO_STORE
from ticdc_lab.pd_core.survey import BUSY, DOUBTED, FITS, SMALL, Group, classes, kinds, triage
from ticdc_lab.pd_core.work_ahead import BalanceAhead, MergesAhead, balance_ahead, grown, merges_ahead

DEFAULT = PerMinute()
BALANCE, MERGES = "balance of regions", "merges of small regions"
CAUTION = "PD's own caution"
"""Rounds wait until moves of the last ten seconds no longer count."""
_DEFAULTS: Limits = MappingProxyType({})


class Forecast(NamedTuple):
    """One piece of work: how many peers must be made, what PD waits for before it begins, and how long it takes.

    ``at_best_s`` is what the store limits alone would take for the peers that can be made, infinite where none can;
    snapshots, schedule limits and PD's own pauses come on top. ``held_by`` is the limit that decides. ``never`` are
    reasons why peers are not made, the most frequent first, each with their number. Of merges ``peers`` are the regions
    that are merged away or stay small; merge-schedule-limit and the patrol count too.
    """

    what: str
    peers: int
    waits_s: float
    at_best_s: float
    held_by: str
    never: tuple[tuple[str, int], ...] = ()

    @property
    def stay(self) -> int:
        """Peers that are never made."""
        return sum(n for _, n in self.never)

    @property
    def moves(self) -> int:
        """Peers that are made."""
        return 0 if self.what == MERGES else self.peers - self.stay


class Bundle(NamedTuple):
    """Peers that may go to the same stores: their tokens, of :data:`~ticdc_lab.pd_core.limits.LARGE_COST` each."""

    cost: float
    targets: frozenset[int]


_MOST_BUNDLES, _MOST_NAMED = 10, 6


def shared(bundles: Sequence[Bundle], limits: Limits, verb: str = "add") -> list[tuple[float, str]]:
    """Give for each bundle when its peers are taken, or removed (``verb`` remove), and which limits decide that.

    Some bundles together can only go to the stores that one of them may go to: the most loaded such group is done last
    (as in Hall's theorem), and its stores take no others before; these share the other stores in the same way. Of more
    than ten different sets of stores only single ones and all together are looked at.
    """
    cost: dict[frozenset[int], float] = defaultdict(float)
    for b in bundles:
        cost[b.targets] += b.cost
    rest = {targets: targets for targets in cost}
    found: dict[frozenset[int], tuple[float, str]] = {}
    while rest:
        groups = sorted(set(rest.values()), key=sorted)
        sizes = range(1, len(groups) + 1) if len(groups) <= _MOST_BUNDLES else (1, len(groups))
        worst: tuple[float, frozenset[int]] = (0.0, frozenset().union(*groups))
        for stores in (frozenset().union(*some) for size in sizes for some in combinations(groups, size)):
            work = sum(cost[targets] for targets, able in rest.items() if able <= stores)
            seconds = work / per_second(getattr(limits.get(i, DEFAULT), verb) for i in stores)
            if seconds > worst[0]:
                worst = seconds, stores
        ids = sorted(worst[1])
        named = ", ".join(map(str, ids)) if len(ids) <= _MOST_NAMED else ""
        of = f" of {'store' if len(ids) == 1 else 'stores'} {named}" if named else f" of {len(ids)} stores"
        held_by = f"{verb}-peer limit{'' if len(ids) == 1 else 's'}{of}"
        found |= {targets: (worst[0], held_by) for targets, able in rest.items() if able <= worst[1]}
        rest = {targets: able - worst[1] for targets, able in rest.items() if targets not in found}
    return [found[b.targets] if b.cost else (0.0, found[b.targets][1]) for b in bundles]


def per_second(per_minute: Iterable[float]) -> float:
    """Give the tokens a second of some stores together; a limit of 0 is none."""
    rates = list(per_minute)
    return math.inf if any(limits_nothing(r) for r in rates) else sum(rates) * LARGE_COST / 60


# All repairs of a cluster.


class Ahead(NamedTuple):
    """A cluster as it will be when what passes has passed: silent stores are down, nothing is busy."""

    cluster: Cluster
    regions: RegionColumns
    gone: tuple[int, ...]


def ahead(cluster: Cluster, c: RegionColumns) -> Ahead:
    """Give a cluster as it will be when its silent stores stay silent; their peers are reported as down."""
    stores = {i: _later(s, cluster.config.max_store_down_time_s) for i, s in cluster.stores.items()}
    later = cluster._replace(stores=stores, influence=MappingProxyType({}), fits={})
    gone = tuple(i for i in stores if why_it_leaves(cluster, i))
    silent = [i for i in gone if is_disconnected(stores[i])]
    marks = np.append(np.isin(c.stores, silent), False)[c.peers] & (c.peers >= 0)
    if not marks.any():
        return Ahead(later, c, gone)
    down_s = np.where(marks.any(axis=1), np.maximum(c.down_s, NEVER_S), c.down_s)
    return Ahead(later, c._replace(down=c.down | marks, down_s=down_s), gone)


def _later(s: Store, max_down_s: float) -> Store:
    age_s = max(s.heartbeat_age_s, max_down_s + 1) if is_disconnected(s) else s.heartbeat_age_s
    return s._replace(
        heartbeat_age_s=age_s, busy=False, sending_snapshots=0, receiving_snapshots=0, pending_peers=0,
        add_open=True, remove_open=True,
    )  # fmt: skip


def forecast(
    cluster: Cluster, c: RegionColumns, limits: Limits = _DEFAULTS, *, groups: Sequence[Group] = (),
    expected: Mapping[int, int] = MappingProxyType({}),
    schedulers: PdSchedulers | None = None,
) -> tuple[Forecast, ...]:  # fmt: skip
    """Estimate how long each repair, the merges and the balance of regions take at best, and what is never done.

    Parameters
    ----------
    cluster
        The cluster.
    c
        Its regions.
    limits
        Store limits, 15 peers a minute for each store that is not named; none for what leaves an offline store.
    groups
        What :func:`~ticdc_lab.pd_core.survey.triage` found of these regions, where it was asked already.
    expected
        Peers on each store where ``c`` has only some of the regions: what is found of those is scaled.
    schedulers
        PD's schedulers: whether balance-region has rounds, and the keys that it is about.

    Returns
    -------
    tuple[Forecast, ...]
        For every leaving, down or silent store with peers, for the peers that each rule misses, for better places, for
        merges, and for the balance of sizes; only where something is to be done. Source: `pd_notes.md` section 7.
    """
    if cluster.config.halt_scheduling:
        return ()
    leave = {i: DEFAULT._replace(remove=0.0) for i, s in cluster.stores.items() if s.state == REMOVING}
    limits = {**leave, **limits}  # `store delete` takes their limit of removals off
    windows = cluster.config.store_limit_version == "v2"
    limits = dict.fromkeys(cluster.stores, PerMinute(0.0, 0.0)) if windows else limits
    moved: dict[tuple[int, frozenset[int]], float] = defaultdict(float)
    found = list(_repairs(cluster, c, limits, groups or triage(cluster, c), expected, moved))
    later = ahead(cluster, c).cluster
    runs = schedulers or default_schedulers()
    no_balance = runs.no_balance or ("" if cluster.config.region_schedule_limit else "region-schedule-limit is 0")
    full = _after(later, moved)._replace(influence=cluster.influence)
    repaired = _repaired_in(later)
    if merges := merges_ahead(later, c, repaired, math.inf):
        told_of = sum(expected.values()) / max(1, int((c.peers >= 0).sum()))
        found.append(_merged(merges, limits, cluster, len(c.id), max(1.0, told_of)))
    balance = balance_ahead(full, c, repaired, runs.get(BALANCE_REGION).keys_of())
    if balance is not None and no_balance:
        balance = balance._replace(out={}, stays=((no_balance, balance.peers),))
    told = (*found, *([_balanced(balance, limits)] if balance is not None else []))
    return tuple(f._replace(held_by=_WINDOWS) if windows and not math.isinf(f.at_best_s) else f for f in told)


_WINDOWS = "store-limit-version v2 has windows of snapshots, which follow the disks, and no limits"


def _repaired_in(later: Cluster) -> Callable[[Region], Region]:
    """Give what makes a region what the checkers will have made of it."""

    def repaired(region: Region) -> Region:
        if is_well(later, region) and not region.down:
            return region
        told = course_of(later, region)
        return region if told.stuck else told.region

    return repaired


def _after(later: Cluster, moved: Mapping[tuple[int, frozenset[int]], float]) -> Cluster:
    """Give a cluster whose stores are as full as repairs make them: MiB that leave a store for one of some others.

    As PD does, a part after the other goes to the store with the lowest score.
    """
    stores = dict(later.stores)
    for (old, targets), mib in sorted(moved.items(), key=lambda m: (len(m[0][1]), m[1])):
        if old in stores:
            stores[old] = grown(stores[old], -mib)
        able = [i for i in sorted(targets) if i in stores]
        parts = min(_MOST_PARTS, max(1, round(mib / max(1.0, later.average_region_size))))
        for _ in range(parts if able else 0):
            lowest = min(able, key=lambda i: region_score(stores[i], later.config))
            stores[lowest] = grown(stores[lowest], mib / parts)
    return later._replace(stores=stores)


_MOST_PARTS = 64


def _balanced(found: BalanceAhead, limits: Limits) -> Forecast:
    """Give how long a balance takes: until the store that has most to give or to take, at its limits, is done.

    As stores become even, rounds wait until moves of the last seconds no longer count.
    """
    if not found.out:
        return Forecast(BALANCE, found.peers, 0.0, math.inf, "", found.stays)
    times = [_time(s, n, limits, "remove", found.costs[s]) for s, n in sorted(found.out.items())]
    cost = sum(found.costs[s] * n for s, n in found.out.items()) / sum(found.out.values())
    times += [_time(s, n, limits, "add", cost) for s, n in sorted(found.into.items())]
    longest, held_by = max(times, key=lambda t: t[0])
    moves = sum(n for n, _ in found.paces)
    seconds = sum(n * max(pace, longest / moves) for n, pace in found.paces)
    held_by = held_by if longest * 2 > seconds else CAUTION
    return Forecast(BALANCE, found.peers, 0.0, seconds, held_by)


_STEP_S = 0.2
"""A step is sent, and reported with the next heartbeat: two ticks of stores."""


def _merged(
    found: MergesAhead, limits: Limits, cluster: Cluster, regions: int, factor: float
) -> Forecast:  # fmt: skip
    """Give how long merges take: by the limit of two operators each, the patrol, and the peers that move before."""
    config, small = cluster.config, round((found.merges + sum(n for _, n in found.stays)) * factor)
    stays = tuple((why, round(n * factor)) for why, n in found.stays)
    if not config.merge_schedule_limit:
        return Forecast(MERGES, small, 0.0, math.inf, "", (("merge-schedule-limit is 0", small),))
    if not found.merges:
        return Forecast(MERGES, small, 0.0, math.inf, "", stays)
    at_once, every_s = (config.merge_schedule_limit + 1) // 2, config.patrol_region_interval_s
    a_slice = max(PATROL_REGIONS, regions // 1024)
    rounds = found.merges / at_once / len(np.unique(found.places // a_slice))
    times = [
        (found.steps * _STEP_S / at_once, f"merge-schedule-limit {config.merge_schedule_limit}"),
        (rounds * every_s * math.ceil(regions / a_slice), f"patrol-region-interval {every_s:g} s"),
    ]
    for verb, tokens in (("add", found.add), ("remove", found.remove)):
        times += [_time(s, n / LARGE_COST, limits, verb, 1.0) for s, n in sorted(tokens.items())]
    seconds, held_by = max(times, key=lambda t: t[0])
    return Forecast(MERGES, small, 0.0, seconds * factor, held_by, stays)


_LEFT_ALONE = (FITS, SMALL)


def _repairs(
    cluster: Cluster, c: RegionColumns, limits: Limits, groups: Sequence[Group], expected: Mapping[int, int],
    moved: dict[tuple[int, frozenset[int]], float],
) -> Iterator[Forecast]:  # fmt: skip
    """Give the forecast of each repair; ``moved`` is filled with the MiB that leave a store for one of some others."""
    later, at = ahead(cluster, c), {s: i for i, s in enumerate(c.stores)}
    lost = {s: (c.peers == at[s]).any(axis=1) for s in later.gone if s in at}
    work = np.zeros(len(c.id), dtype=np.bool_)
    for g in groups:
        if g.name not in _LEFT_ALONE:
            work[g.places] = True
    for here in lost.values():
        work |= here
    unjudged = [g.places for g in groups if g.name in _UNJUDGED]
    for places in unjudged:
        work[places] = False
    places = np.flatnonzero(work)
    if not len(places) and not unjudged:
        return
    made: dict[str, list[Bundle]] = defaultdict(list)
    unmade: dict[str, list[Bundle]] = defaultdict(list)
    peers: Counter[str] = Counter()
    never: dict[str, Counter[str]] = defaultdict(Counter)
    busy: set[str] = set()
    some = _rows(later.regions, places)
    silent = {i for i, s in cluster.stores.items() if is_disconnected(s)}
    alike_regions = _alike_regions(later.cluster, some, [here[places] for here in lost.values()])
    played = (
        (alike, part, len(parts)) for alike in alike_regions
        for parts in (_parts(later.cluster, _with_leader(later.cluster, region_at(some, alike.example))),)
        for part in parts
    )  # fmt: skip
    for alike, region, share in played:
        told, size = course_of(later.cluster, region), some.size[alike.which] / share
        n, costs, mib = len(size), step_costs(size), float(size.sum())
        for at_move, move in enumerate(told.moves):
            what = move.what or why_it_leaves(cluster, move.old) or BETTER
            peers[what] += n
            # what an earlier move of the region took here, it leaves to this one in other regions of the kind
            larger = (m.targets for m in told.moves[:at_move] if move.targets and len(m.targets - move.targets) == 1)
            able = next(larger, frozenset()) | move.targets
            beside = (alike.beside.get(t, frozenset({t})) for t in able)
            targets = frozenset().union(*beside) - {move.old}
            if targets:
                made[what].append(Bundle(float(costs.sum()) if move.costs else 0.0, targets))
            if move.old in cluster.stores and cluster.stores[move.old].state != REMOVED:
                small = cluster.config.removals_of_down_are_small and move.old in silent
                freed = float((np.minimum(costs, SMALL_COST) if small else costs).sum())
                unmade[what].append(Bundle(freed if move.frees else 0.0, frozenset({move.old})))
            if what not in (TO_FULL, TO_WITNESS):
                moved[move.old, targets] += mib
        if told.stuck:
            replaced = {m.old for m in told.moves}
            for s in (s for s in sorted(region.stores) if s in later.gone and s not in replaced):
                what = why_it_leaves(cluster, s)
                peers[what] += n
                never[what][told.stuck] += n
            if not region.stores & set(later.gone):
                what = UNFIT if region.leader else LEADERLESS
                peers[what] += n
                never[what][told.stuck] += n
    for group in (g for g in groups if g.name in _UNJUDGED):
        for s, here in lost.items():
            if n := int(here[group.places].sum()):
                what = why_it_leaves(cluster, s)
                peers[what] += n
                if group.name == BUSY:
                    busy.add(what)
                else:
                    never[what][f"not judged: regions {group.name}"] += n
    on = Counter({s: int(here.sum()) for s, here in lost.items()})
    order = sorted(peers, key=lambda w: (w.startswith(_LAST), w.startswith(BETTER), w))
    of = {what: next((s for s in on if why_it_leaves(cluster, s) == what), 0) for what in order}
    factors = {w: max(1.0, expected.get(s, 0) / on[s]) if s and on[s] else 1.0 for w, s in of.items()}
    ages = {w: cluster.stores[s].heartbeat_age_s if s in cluster.stores else 0.0 for w, s in of.items()}
    down_s = cluster.config.max_store_down_time_s
    waits = {w: max(0.0, down_s - ages[w]) if w.endswith("is silent") else 0.0 for w in order}
    times: dict[str, list[tuple[float, str]]] = defaultdict(list)
    begins = sorted(set(waits.values()))
    for verb, by_what in (("add", made), ("remove", unmade)):
        left: list[tuple[str, Bundle]] = []
        for begin_s, until_s in pairwise([*begins, math.inf]):  # what begins later shares the limits with what is left
            whats = (w for w in order if waits[w] == begin_s)
            left += [(w, b._replace(cost=b.cost * factors[w])) for w in whats for b in by_what[w]]
            done = list(zip(left, shared([b for _, b in left], limits, verb), strict=True))
            left = []
            for (what, bundle), (seconds, held_by) in done:
                if begin_s + seconds <= until_s:
                    times[what].append((begin_s + seconds - waits[what], held_by))
                else:
                    left.append((what, bundle._replace(cost=bundle.cost * (1 - (until_s - begin_s) / seconds))))
    for what in order:
        seconds, held_by = max(times[what], key=lambda found: found[0], default=(math.inf if never[what] else 0.0, ""))
        if not math.isinf(seconds) and not any(b.cost for b in (*made[what], *unmade[what])):
            held_by = "operators run for them" if what in busy else "no store limit counts them"
        elif not seconds:
            held_by = "no store is limited"
        reasons = tuple((why, round(n * factors[what])) for why, n in never[what].most_common())
        yield Forecast(what, round(peers[what] * factors[what]), waits[what], seconds, held_by, reasons)


_MOST_SETS = 200


class _Alike(NamedTuple):
    """Regions that nothing distinguishes: which, one of them, and the stores that can replace each of its targets."""

    which: NDArray[np.bool_]
    example: int
    beside: Mapping[int, frozenset[int]]


def _alike_regions(cluster: Cluster, c: RegionColumns, lost: Sequence[NDArray[np.bool_]]) -> Iterator[_Alike]:
    """Divide regions by what the checkers distinguish, by the lost stores that they have peers on, and by where.

    Of more than 200 different sets of stores the interchangeable ones are merged: then all stores
    like a target may take the peer, also those where some of the regions have one already.
    """
    if not len(c.id):
        return
    of = kinds(cluster, c).of
    for here in lost:
        _, of = np.unique(of * 2 + here, return_inverse=True)
    _, sets = np.unique(np.sort(c.peers, axis=1), axis=0, return_inverse=True)
    beside: dict[int, frozenset[int]] = {}
    if int(sets.max()) < _MOST_SETS:
        _, of = np.unique(of * _MOST_SETS + sets.reshape(-1), return_inverse=True)
    else:
        ids = sorted(cluster.stores)
        numbers = classes(cluster, [cluster.stores[i] for i in ids])
        beside = {i: frozenset(x for x, k in zip(ids, numbers, strict=True) if k == n)
                  for i, n in zip(ids, numbers, strict=True)}  # fmt: skip
    for example in np.unique(of, return_index=True)[1].tolist():
        yield _Alike(of == of[example], example, beside)


UNFIT, LEADERLESS = "regions that do not fit their rules", "regions without a leader"
_LAST = (MISSING, BETTER, EXTRA, TO_FULL, TO_WITNESS, UNFIT, LEADERLESS)
_UNJUDGED = (DOUBTED, BUSY)


def _parts(cluster: Cluster, region: Region) -> list[Region]:
    """Give the parts, of the same size, that the checkers cut a region into where rules begin or end within it."""
    keys = [region.start_key, *borders_within(cluster, region), region.end_key]
    return [region._replace(start_key=a, end_key=b, size=region.size / (len(keys) - 1)) for a, b in pairwise(keys)]


def _rows(c: RegionColumns, places: NDArray[np.int64]) -> RegionColumns:
    """Give some of the regions."""
    at = pa.array(places)
    return c._replace(
        id=c.id[places], leader=c.leader[places], peers=c.peers[places], peer_id=c.peer_id[places], role=c.role[places],
        witness=c.witness[places], down=c.down[places], pending=c.pending[places], down_s=c.down_s[places],
        size=c.size[places], keys=c.keys[places], start_key=c.start_key.take(at), end_key=c.end_key.take(at),
        read=None, write=None,
    )  # fmt: skip


def _with_leader(cluster: Cluster, region: Region) -> Region:
    """Let a region whose leader is on a lost store elect another, where its voters can."""
    if not region.leader or region.leader not in region.down:
        return region
    able = [p.store for p in region.peers if p.store not in region.down and p.store in cluster.stores]
    if not has_quorum(region, able):
        return region._replace(leader=0)
    voters = [p.store for p in region.peers if p.store in able and p.role == VOTER]
    return region._replace(leader=(voters or [0])[0])


def _time(store: int, peers: float, limits: Limits, verb: str, cost: float) -> tuple[float, str]:
    limit = limits.get(store, DEFAULT)
    rate = limit.add if verb == "add" else limit.remove
    seconds = 0.0 if limits_nothing(rate) else peers * cost / rate * 60
    return seconds, f"{verb}-peer limit {rate:g} of store {store}"


def in_words(forecasts: Sequence[Forecast]) -> list[str]:
    """Give forecasts as sentences."""
    return [_sentence(f) for f in forecasts]


def _sentence(f: Forecast) -> str:
    goes, begins = f.peers - f.stay, f"begins in {duration(f.waits_s)}, " if f.waits_s else ""
    of = f" of {f.peers:,}" if goes > 0 else ""
    unit = "region" if f.what in (UNFIT, LEADERLESS, MERGES) else "peer"
    never = "; ".join(f"{why} ({n:,}{of} {unit}{'s' if n != 1 or of else ''})" for why, n in f.never)
    if goes <= 0 or math.isinf(f.at_best_s):
        return f"{f.what}: never: {never or f.held_by or NO_STORE}"
    if not f.never:
        peers = f"{f.peers:,} {unit}{'s' if f.peers != 1 else ''}"
        return f"{f.what}: {peers}, {begins}{duration(f.at_best_s)} at best ({f.held_by})"
    rest = f"the other {goes:,} {begins}in {duration(f.at_best_s)} at best ({f.held_by})"
    return f"{f.what}: never all: {never}; {rest}"


def duration(seconds: float) -> str:
    """Give a duration in words."""
    if math.isinf(seconds):
        return "never"
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def at_pace(left: float, per_s: float) -> float:
    """Give how long what is left takes at a pace: 0 where nothing is left, infinite while nothing moves."""
    return left / per_s if per_s > 0 else math.inf if left else 0.0


class StoreProgress(NamedTuple):
    """PD's progress of a store: the part done, MiB a second, the seconds left (infinite while nothing moves)."""

    progress: float
    speed_mib_s: float
    left_s: float


def progress(done: float, whole: float, elapsed_s: float) -> StoreProgress:
    """Give the progress of an offline store from the MiB that went, or of a new one towards its share, MiB."""
    speed = done / elapsed_s if elapsed_s > 0 else 0.0
    left = max(0.0, whole - done)
    return StoreProgress(min(1.0, done / whole) if whole else 1.0, speed, left / speed if speed else math.inf)
