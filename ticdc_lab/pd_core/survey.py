"""What PD would do with a whole cluster now: the checkers for every region, one round of each balance scheduler.

Columns find which of a million regions a checker may have work with; of each kind one is
checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.pd_core import balance_leader, balance_region
from ticdc_lab.pd_core.balance import DRAWN, FOLLOWER_HERE, LEADER_HERE, LEARNER_HERE, PENDING_HERE
from ticdc_lab.pd_core.checkers import check_region
from ticdc_lab.pd_core.cluster import Cluster, borders_within, fit_of
from ticdc_lab.pd_core.config import BALANCE_LEADER, BALANCE_REGION, EVICT_LEADER, GRANT_LEADER
from ticdc_lab.pd_core.evict_leader import evict_leaders, grant_leader
from ticdc_lab.pd_core.explained import HALTED, Explained
from ticdc_lab.pd_core.filters import FAILOVER_TARGET, LEADER_TARGET, REGION_TARGET, TABLE, state_forbids
from ticdc_lab.pd_core.location import distances, may_improve
from ticdc_lab.pd_core.merge_checker import Neighbours, check_merge
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.pd_ctl_running import PdSchedulers, default_schedulers
from ticdc_lab.pd_core.regions import (
    DEMOTING,
    EMPTY_MIB,
    FEW_REGIONS,
    INCOMING,
    LEARNER,
    ROLES,
    Flags,
    KeyRanges,
    Region,
    RegionColumns,
    lie_in,
    region_at,
)
from ticdc_lab.pd_core.rule_checker import may_be_better
from ticdc_lab.pd_core.rules import ANY_VOTER, matches
from ticdc_lab.pd_core.stores import PREPARING, SERVING, Store, is_low_on_space, label
from ticdc_lab.pd_core.why import Opinion
from ticdc_lab.words import count


class Kinds(NamedTuple):
    """``of`` gives each region's kind, ``example`` the place of a region of each."""

    of: NDArray[np.int64]
    example: NDArray[np.int64]


def kinds(cluster: Cluster, c: RegionColumns) -> Kinds:
    """Divide regions by what placement rules and places distinguish.

    Regions between the same borders of rules are of one kind where their peers, in the order of their ids, have the
    same roles and troubles and are on stores that differ in nothing but how full they are.
    """
    numbers = np.append(classes(cluster, [cluster.stores.get(i) for i in c.stores]), -1)
    order = np.argsort(np.where(c.peers >= 0, c.peer_id, np.iinfo(np.int64).max), axis=1, kind="stable")
    leads = (c.peers == c.leader[:, None]) & (c.peers >= 0)
    facts = [numbers[c.peers], c.role, leads, c.witness, c.down, c.pending]
    sorted_facts = [np.take_along_axis(f, order, axis=1).T for f in facts]
    like = np.stack([np.asarray(f, dtype=np.int64) for f in (*_between(cluster, c), *np.vstack(sorted_facts))], axis=1)
    _, example, of = np.unique(_packed(like), return_index=True, return_inverse=True)
    return Kinds(of.reshape(-1), example)


def _packed(like: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number rows so that equal rows have equal numbers, column by column: far quicker than comparing whole rows."""
    packed = np.zeros(len(like), dtype=np.int64)
    for column in like.T:
        _, values = np.unique(column, return_inverse=True)
        _, packed = np.unique(packed * (int(values.max()) + 1) + values, return_inverse=True)
    return packed


def _between(cluster: Cluster, c: RegionColumns) -> list[NDArray[np.bool_]]:
    """Find on which side of each border of a rule a region begins and ends."""
    borders = sorted({k for r in cluster.rules for k in (r.start_key, r.end_key) if k})
    begins = [np.asarray(pc.greater_equal(c.start_key, b)) for b in borders]
    ends = [np.asarray(pc.less_equal(c.end_key, b)) & np.asarray(pc.not_equal(c.end_key, "")) for b in borders]
    return [*begins, *ends]


def classes(cluster: Cluster, stores: Sequence[Store | None]) -> NDArray[np.int64]:
    """Number stores so that equal numbers are interchangeable."""
    known = [s for _, s in sorted(cluster.stores.items())]
    places = [_places(known, r.location_labels) for r in cluster.rules]
    seen: dict[Hashable, int] = {}
    numbers = []
    for i, store in enumerate(stores):
        facts: Hashable = ("unknown", i)
        if store is not None:
            facts = (_state(cluster, store), *(p[store.id] for p in places))
        numbers.append(seen.setdefault(facts, len(seen)))
    return np.array(numbers, dtype=np.int64)


def _state(cluster: Cluster, store: Store) -> Hashable:
    roles = (REGION_TARGET, LEADER_TARGET, FAILOVER_TARGET)
    states = tuple(c.holds(store, cluster.config) for role in roles for c in TABLE[role])
    serves = tuple(matches(store, r.constraints) for r in cluster.rules)
    special = label(store, "specialUse"), label(store, "engine"), store.witness_count
    return store.state, states, serves, special, is_low_on_space(store, cluster.config.low_space_ratio)


def _places(stores: Sequence[Store], labels: Sequence[str]) -> dict[int, Hashable]:
    """Give the places of stores; one that a store has for itself needs no name, since nothing else can be there."""
    paths = {s.id: tuple(label(s, key) for key in labels) for s in stores}
    if any("" in path for path in paths.values()):
        return dict(paths)  # a missing label counts as the same place, so that names matter
    shared = Counter(path[: n + 1] for path in paths.values() for n in range(len(labels)))
    return {
        i: tuple(value if shared[path[: n + 1]] > 1 else None for n, value in enumerate(path))
        for i, path in paths.items()
    }


FITS, SMALL = "as they should be", "small enough to merge"
BUSY, DOUBTED = "with an operator that runs", "whose placement rules were not given"

Places = NDArray[np.int64]


class Group(NamedTuple):
    """Regions with the same finding: where they are in the columns, and what a checker looks at first."""

    name: str
    places: Places


def triage(cluster: Cluster, c: RegionColumns, doubted: Flags | None = None) -> tuple[Group, ...]:
    """Divide regions by what the checkers would find first.

    ``cluster``: the cluster. ``c``: its regions. ``doubted``: marks regions that cannot be judged, since placement
    rules are missing. Returns: every region in one group; no group is empty. Those that are :data:`FITS` get nothing
    from any checker, of the others most do, and :mod:`~ticdc_lab.pd_core.survey` asks the checkers themselves.
    """
    left = np.ones(len(c.id), dtype=np.bool_)
    groups = []
    first = [(BUSY, np.isin(c.id, list(c.busy)))] if c.busy else []
    first += [(DOUBTED, doubted)] if doubted is not None else []
    for name, found in (*first, *_findings(cluster, c)):
        here = left & found
        if here.any():
            groups.append(Group(name, np.flatnonzero(here)))
        left &= ~here
    return (*groups, *([Group(FITS, np.flatnonzero(left))] if left.any() else []))


def _findings(cluster: Cluster, c: RegionColumns) -> list[tuple[str, Flags]]:
    config, stores = cluster.config, [cluster.stores.get(i) for i in c.stores]
    there = c.peers >= 0
    silent = _of_stores(c, stores, lambda s: s.heartbeat_age_s >= config.max_store_down_time_s)
    leaving = _of_stores(c, stores, lambda s: s.state not in (PREPARING, SERVING))
    unknown = _by_position(c, np.array([s is None for s in stores]))
    joint = there & np.isin(c.role, [ROLES.index(INCOMING), ROLES.index(DEMOTING)])
    unfit, badly_placed = _by_one_rule(cluster, c, stores) if _has_one_rule(cluster) else _by_kinds(cluster, c)
    small = config.is_small(c.size, c.keys)
    return [
        ("without a leader", c.leader < 0),
        ("in a joint state", _any(joint)),
        ("with a peer on an unknown store", _any(there & unknown)),
        ("with a peer on a store that is down", _any(c.down & silent)),
        ("with a peer on a store that leaves", _any(there & leaving)),
        ("with peers that do not fit the rules", unfit),
        ("within which a rule for labels ends", np.isin(c.id, list(c.labels.split))),
        ("with a peer reported down", _any(there & c.down)),
        ("that could be better placed", badly_placed),
        (SMALL, small),
    ]


_AMISS = (
    "without a leader", "in a joint state", "with a peer on an unknown store", "with a peer on a store that is down",
    "with a peer on a store that leaves", "with peers that do not fit the rules", "with a peer reported down",
)  # fmt: skip
"""Where no operator means that something stays wrong."""

_NOT_BALANCED = (
    "without a leader", "in a joint state", "with a peer on an unknown store", "with peers that do not fit the rules",
    BUSY, DOUBTED,
)  # fmt: skip


def _any(of_peers: Flags) -> Flags:
    return np.asarray(of_peers.any(axis=1), dtype=np.bool_)


def _of_stores(c: RegionColumns, stores: list[Store | None], holds: Callable[[Store], bool]) -> Flags:
    return _by_position(c, np.array([s is not None and holds(s) for s in stores]))


def _by_position(c: RegionColumns, marked: Flags) -> Flags:
    """Mark the peers on marked stores."""
    return np.asarray(np.append(marked, False)[c.peers], dtype=np.bool_)


def _has_one_rule(cluster: Cluster) -> bool:
    """Whether one rule for voters holds everywhere, or none at all, so that columns suffice."""
    first = cluster.rules[0]
    bounded = first.constraints or first.start_key or first.end_key or first.witness
    return not cluster.config.placement_rules or (len(cluster.rules) == 1 and first.role == ANY_VOTER and not bounded)


def _by_one_rule(cluster: Cluster, c: RegionColumns, stores: list[Store | None]) -> tuple[Flags, Flags]:
    """Find regions without the peers they should have, and which a store that lasts would isolate better."""
    config, rule, there = cluster.config, cluster.rules[0], c.peers >= 0
    replicas, labels = rule.replicas, rule.location_labels
    if not config.placement_rules:
        replicas, labels = config.max_replicas, config.location_labels
    serve = _by_position(c, np.array([matches(s, ()) for s in stores]))
    unfit = _any(there & (~serve | (c.role != 0) | c.witness)) | (there.sum(axis=1) != replicas)
    if not labels:
        return unfit, np.zeros(len(c.id), dtype=np.bool_)
    known = [s if s is not None else Store(0) for s in stores]
    known += [s for i, s in sorted(cluster.stores.items()) if i not in c.stores]
    takes = np.array([s.id in cluster.stores and _takes(cluster, s) for s in known], dtype=np.bool_)
    return unfit, may_improve(distances(known, labels), c.peers, takes)


def _takes(cluster: Cluster, store: Store) -> bool:
    return state_forbids(store, REGION_TARGET, cluster.config, temporary_too=False) is None


def _by_kinds(cluster: Cluster, c: RegionColumns) -> tuple[Flags, Flags]:
    """Check one region of each kind by its rules."""
    found = kinds(cluster, c)
    told = np.array([_checked(cluster, c, int(i)) for i in found.example], dtype=np.bool_)[found.of]
    return told[:, 0], told[:, 1]


def _checked(cluster: Cluster, c: RegionColumns, place: int) -> tuple[bool, bool]:
    region = region_at(c, place)
    fit = fit_of(cluster, region)
    if borders_within(cluster, region) or not fit.satisfied:
        return True, False
    return False, may_be_better(cluster, region, fit)


class Draws:
    """Draws regions from a seed, of some key ranges or all; the regions of a store are looked up once."""

    def __init__(self, regions: RegionColumns, seed: int, ranges: KeyRanges = ()) -> None:
        self.regions = regions
        self._within = lie_in(regions, ranges) if ranges else True
        self._random = np.random.default_rng(seed)
        self._positions = {s: i for i, s in enumerate(regions.stores)}
        self._found: dict[tuple[int, str], NDArray[np.int64]] = {}

    def __call__(self, store: int, kind: str) -> Iterator[Region]:
        """Draw, with replacement, regions whose peer on a store is of a kind."""
        places, busy = self._of(store, kind), self.regions.busy
        for _ in range(DRAWN if len(places) else 0):
            region = region_at(self.regions, int(places[self._random.integers(len(places))]))
            if region.id not in busy:  # PD makes an operator for it and cancels it at once
                yield region

    def _of(self, store: int, kind: str) -> NDArray[np.int64]:
        if (store, kind) not in self._found:
            self._found[store, kind] = self._look_up(store, kind)
        return self._found[store, kind]

    def _look_up(self, store: int, kind: str) -> NDArray[np.int64]:
        position = self._positions.get(store)
        if position is None:
            return np.zeros(0, dtype=np.int64)
        c = self.regions
        here, leads = c.peers == position, c.leader == position
        votes = c.role != ROLES.index(LEARNER)
        marked = {
            PENDING_HERE: lambda: (here & c.pending).any(axis=1),
            LEADER_HERE: lambda: leads,
            LEARNER_HERE: lambda: (here & ~votes).any(axis=1),
            FOLLOWER_HERE: lambda: (here & votes).any(axis=1) & ~leads,
        }
        return np.flatnonzero(marked[kind]() & self._within)


MOST = 2000
"""Regions of a group that the checkers are asked about one by one; of more the first ones."""


class CheckOutcome(NamedTuple):
    """What the checkers do with regions of one group.

    ``regions`` is how many the group has, ``asked`` how many of them were checked, ``here`` how many of those ended
    this way: with an operator ``does`` ("" for none), or without one because of ``why``. ``example`` is one's id.
    ``limit`` is what an operator waits for.
    """

    group: str
    regions: int
    asked: int
    here: int
    does: str
    why: str
    example: int
    limit: str = ""

    @property
    def of_group(self) -> int:
        """Regions of the group that end this way; of those that were not checked as large a part."""
        return round(self.here / self.asked * self.regions) if self.asked else self.regions


class NotChosen(NamedTuple):
    """Stores that were not chosen for the same reason, or regions that stay: how often, and one of the regions.

    ``who`` names the stores, or is ``regions``; ``as_what`` is what they would have been, as ``target``.
    """

    who: str
    as_what: str
    times: int
    why: str
    example: int


OF_ITS_RANGES = "of regions within its key ranges only"
PD = "PD"
"""Who is asked where no checker and no scheduler has rounds."""


class Survey(NamedTuple):
    """What PD would do: outcomes of the checkers, a round of each scheduler, and why the rest is left alone."""

    regions: int
    outcomes: tuple[CheckOutcome, ...]
    rounds: tuple[Opinion, ...]
    not_chosen: tuple[NotChosen, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def sentence(self) -> str:
        """The survey in a few words."""
        if halted := [a.explained.because for a in self.rounds if a.asked == PD]:
            return f"nothing: {halted[0]}"
        acts, waits, left = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
        for o in self.outcomes:
            if o.does:
                acts[o.does] += o.of_group
            elif o.limit:
                waits[o.limit] += o.of_group
            elif o.group in _AMISS:
                left[o.group, o.why] += o.of_group
        told = [f"{name} for about {count(n, 'region')}" for name, n in acts.most_common()]
        busy = [a.asked for a in self.rounds if a.explained.operators]
        told += [f"{' and '.join(busy)} would move something"] if busy else []
        runs, doubted = (sum(o.regions for o in self.outcomes if o.group == name) for name in (BUSY, DOUBTED))
        more = [f"about {count(n, 'region waits', 'regions wait')} for {limit}" for limit, n in waits.most_common()]
        more += [f"no operator for {count(n, 'region')} {group}: {why}" for (group, why), n in left.most_common()]
        held = [a for a in self.rounds if a.explained.limit and not a.explained.operators]
        more += [f"{a.asked}: {a.explained.because}" for a in held]
        more += [f"{count(runs, 'region has', 'regions have')} an operator that runs"] if runs else []
        if not told:
            told, more = [f"nothing: {'; '.join(more) or 'no checker finds work and no move pays'}"], []
        if doubted:
            more.append(f"{count(doubted, 'region is', 'regions are')} not judged without their placement rules")
        return "; ".join([*told, *more])


def survey(
    cluster: Cluster, regions: RegionColumns, *, up_s: float = float("inf"), most: int = MOST, seed: int = 1,
    schedulers: PdSchedulers | None = None, running: Mapping[Kind, int] = MappingProxyType({}),
    doubted: Flags | None = None,
) -> Survey:  # fmt: skip
    """Ask PD's checkers and schedulers what they would do now.

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
    schedulers
        PD's schedulers; its default ones where they are not given.
    running
        Operators that run now, by the kind that they are limited as.
    doubted
        Marks regions that cannot be judged, since placement rules are missing.
    """
    if cluster.config.halt_scheduling:
        halted = Explained((), HALTED, limit="halt-scheduling")
        return Survey(len(regions.id), (), (Opinion(PD, halted),))
    outcomes: list[CheckOutcome] = []
    refused: dict[tuple[int, str, str], list[int]] = {}
    groups = triage(cluster, regions, doubted)
    for group in groups:
        first = int(regions.id[group.places[0]])
        if group.name in _SETTLED:
            outcomes.append(CheckOutcome(group.name, len(group.places), 0, 0, "", _SETTLED[group.name], first))
            continue
        asked = [int(p) for p in group.places[:most]]
        stuck_first = group.name != SMALL
        found = _counted(cluster, regions, asked, up_s, running, refused, of_merge=group.name == SMALL)
        outcomes.extend(
            CheckOutcome(group.name, len(group.places), len(asked), len(ids), does, why, ids[0], limit)
            for (does, why, limit), ids in sorted(
                found.items(), key=lambda f: (stuck_first and bool(f[0][0]), -len(f[1]))
            )
        )
    rounds = _rounds(cluster, partial(Draws, regions, seed), schedulers or default_schedulers(), running)
    for opinion in rounds:
        for r in opinion.explained.rejected:
            if r.filter != "excluded":
                refused.setdefault((r.store, f"{opinion.asked} {r.role}", r.why), [1, 0])
        if opinion.asked.startswith("balance") and not opinion.explained.operators:
            pairs = opinion.explained.compared
            named = {r.store for r in opinion.explained.rejected} | {i for p in pairs for i in (p.source, p.target)}
            for store in sorted(set(cluster.stores) - named):  # no region was drawn that could come or go
                refused[store, opinion.asked, opinion.explained.because] = [1, 0]
    stays = [*_grouped(refused), *_unmoved(cluster, regions, groups)]
    return Survey(len(regions.id), tuple(outcomes), rounds, tuple(stays), groups)


_SETTLED = {
    FITS: "nothing to do",
    BUSY: "PD makes no second operator",
    DOUBTED: "give --rules: what is too much or missing there depends on them",
}


def _counted(
    cluster: Cluster, regions: RegionColumns, places: list[int], up_s: float, running: Mapping[Kind, int],
    refused: dict[tuple[int, str, str], list[int]], *, of_merge: bool,
) -> dict[tuple[str, str, str], list[int]]:  # fmt: skip
    """Give the ids of regions by what is done, why nothing is, and its limit; note who refused which store."""
    found: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place in places:
        region, beside = region_at(regions, place), neighbours(regions, place)
        told = check_region(cluster, region, beside, up_s=up_s, running=dict(running))
        if of_merge and not told.operators:
            told = check_merge(cluster, region, beside, up_s=up_s)
        for r in told.rejected:
            if r.filter != "excluded":
                noted = refused.setdefault((r.store, f"checker {r.role}", r.why), [0, region.id])
                noted[0] += 1
        op = told.operator
        found[(op.desc, "", "") if op is not None else ("", told.because, told.limit)].append(region.id)
    return found


def _grouped(refused: Mapping[tuple[int, str, str], Sequence[int]]) -> list[NotChosen]:
    """Put stores with the same reason together, the most frequent reason first."""
    same: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for (store, as_what, why), (times, example) in refused.items():
        same[as_what, why].append((store, times, example))
    found = []
    for (as_what, why), some in same.items():
        ids = [str(s) for s, _, _ in sorted(some)]
        named = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        who = f"store{'s' if len(ids) > 1 else ''} {named}"
        found.append(NotChosen(who, as_what, max(t for _, t, _ in some), why, max(e for _, _, e in some)))
    return sorted(found, key=lambda n: (-n.times, n.who))


def _unmoved(cluster: Cluster, c: RegionColumns, groups: Sequence[Group]) -> list[NotChosen]:
    """Find the regions that balance leaves where they are, at any scores: the largest group first."""
    few = cluster.region_count < FEW_REGIONS
    leads = [s.id for s in cluster.stores.values() if s.busy]
    marks: list[tuple[str, NDArray[np.int64]]] = [
        ("it is empty", np.flatnonzero(c.size <= EMPTY_MIB) if not few else np.zeros(0, np.int64)),
        ("a label of the region forbids scheduling", np.flatnonzero(np.isin(c.id, list(c.labels.unscheduled)))),
        ("a peer is down", np.flatnonzero((c.down & (c.peers >= 0)).any(axis=1))),
        ("a peer is pending", np.flatnonzero((c.pending & (c.peers >= 0)).any(axis=1))),
        ("it is hot", np.flatnonzero(np.isin(c.id, list(c.hot))) if c.hot else np.zeros(0, np.int64)),
        ("its leader's store is busy", np.flatnonzero(np.isin(np.array([*c.stores, 0])[c.leader], leads))),
    ]
    marks += [(f"it is {g.name}" if g.name.startswith("in ") else f"regions {g.name}", g.places)
              for g in groups if g.name in _NOT_BALANCED]  # fmt: skip
    found = [NotChosen("regions", "balance", len(at), why, int(c.id[at[0]])) for why, at in marks if len(at)]
    return sorted(found, key=lambda n: -n.times)


def _rounds(
    cluster: Cluster, draws: Callable[[KeyRanges], Draws], schedulers: PdSchedulers, running: Mapping[Kind, int]
) -> tuple[Opinion, ...]:
    """Play a round of each scheduler that has rounds, and explain why the others have none."""
    found = []
    for name, kind in ((BALANCE_LEADER, Kind.LEADER), (BALANCE_REGION, Kind.REGION)):
        state, runs = schedulers.get(name), running.get(kind, 0)
        draw, batch = draws(state.keys_of()), state.batch or balance_leader.BATCH
        if not state.runs:
            told = Explained((), f"the scheduler has no rounds: {state.why_not}")
        elif kind == Kind.LEADER:
            told, _ = balance_leader.schedule(cluster, draw, running=runs, batch=batch)
        else:
            told, _ = balance_region.schedule(cluster, draw, running=runs)
        if state.keys_of():
            told = replace(told, because=f"{told.because} ({OF_ITS_RANGES})")
        found.append(Opinion(name.removesuffix("-scheduler"), told))
    for name in (EVICT_LEADER, GRANT_LEADER):
        state = schedulers.get(name)
        for store in state.stores if state.runs else ():
            draw = draws(state.keys_of(store))
            if name == EVICT_LEADER:
                told = evict_leaders(cluster, draw, store, name, state.batch)
            else:
                told = grant_leader(cluster, draw, store, name)
            if state.keys_of(store):
                told = replace(told, because=f"{told.because} ({OF_ITS_RANGES})")
            if running.get(Kind.LEADER, 0) >= cluster.config.leader_schedule_limit:
                limit = f"leader-schedule-limit {cluster.config.leader_schedule_limit}"
                told = Explained((), f"waits for {limit}: {told.because}", limit=limit)
            found.append(Opinion(f"{name.removesuffix('-scheduler')} {store}", told))
    return tuple(found)


def neighbours(regions: RegionColumns, place: int) -> Neighbours:
    """Give the regions whose keys border on a region's."""
    before = region_at(regions, place - 1) if place > 0 else None
    after = region_at(regions, place + 1) if place + 1 < len(regions.id) else None
    start, end = regions.start_key[place].as_py(), regions.end_key[place].as_py()
    return Neighbours(
        before if before is not None and before.end_key == start and start else None,
        after if after is not None and after.start_key == end and end else None,
        borders=regions.labels.borders,
    )
