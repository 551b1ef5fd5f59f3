"""A user's own cluster, from what pd-ctl printed, played on: as it is, and with other settings, limits and stores."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ticdc_lab.errors import ScenarioError, SourceError
from ticdc_lab.pd_core.config import (
    BALANCE_HOT,
    BALANCE_LEADER,
    BALANCE_REGION,
    EVICT_LEADER,
    EVICT_SLOW_STORE,
    GRANT_LEADER,
    Config,
)
from ticdc_lab.pd_core.forecast import duration
from ticdc_lab.pd_core.pd_ctl_files import COMMANDS, RULES
from ticdc_lab.pd_core.pd_ctl_json import Loaded, gaps_between
from ticdc_lab.pd_core.regions import DEMOTING, LEARNER, ROLES
from ticdc_lab.pd_core.stores import MIB, REMOVED, REMOVING, Store, is_disconnected
from ticdc_lab.pd_core.work_ahead import amplification
from ticdc_lab.simulate.pd.world.changes import ClusterChange, Pdctl, StartStore, StopStore, Timed
from ticdc_lab.simulate.pd.world.pd_policies import (
    BALANCE_LEADER_POLICY,
    BALANCE_REGION_POLICY,
    EVICT_SLOW_POLICY,
    HOT_REGION_POLICY,
    balance_leaders,
    evict_leaders,
    grant_leaders,
)
from ticdc_lab.simulate.pd.world.pdctl_config import decimal, with_setting
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.recording import Recording
from ticdc_lab.simulate.pd.world.reference import Case
from ticdc_lab.simulate.pd.world.run import PdRun, Watch, future, simulate
from ticdc_lab.simulate.pd.world.running import Future
from ticdc_lab.simulate.pd.world.start import SECOND_US, RegionsStart, Start, StoreStart, WorldSettings
from ticdc_lab.words import are, count

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

_HEARTBEAT_S = 60.0
"""What a region's heartbeat counts is of the minute before."""


def own_case(
    loaded: Loaded, *, name: str = "own cluster", minutes: float = 30.0, settings: WorldSettings | None = None
) -> Case:
    """Give a user's own cluster as a case in which nothing happens from outside.

    ``loaded``: what :func:`ticdc_lab.pd_core.pd_ctl_json.from_folder` gives. ``name``: how it is called.
    ``minutes``: how long the case lasts, virtual time. ``settings``: disks and clocks, which pd-ctl does not print;
    by default a cluster's in real time.

    Stores that are offline leave, those that are silent stop, at the start. What a store uses besides its regions
    counts as foreign files. Regions are read and written as in their last heartbeat, and store limits are those given.
    Running operators are not taken up.

    Raises SourceError: some regions or the rules of some were not given, or there are witnesses: these cannot be
    played.
    """
    if not loaded.whole and (loaded.expected > len(loaded.regions.id) or gaps_between(loaded.regions)):
        found = f"{len(loaded.regions.id):,} regions with gaps between their keys"
        hint = f"Save all of them: `pd-ctl region > {shlex.quote(f'{loaded.source}/region.json')}`."
        raise SourceError(f"expected all regions of the cluster, found {found}", hint=hint)
    stores = [s for s in loaded.cluster.stores.values() if s.state != REMOVED]
    r = loaded.regions
    if loaded.doubted is not None:
        hint = f"Save them: `pd-ctl {COMMANDS[RULES]} > {shlex.quote(f'{loaded.source}/rules.json')}`."
        raise SourceError(f"the placement rules of {int(loaded.doubted.sum()):,} regions were not given", hint=hint)
    if (n := int(r.witness.any(axis=1).sum())) or any(rule.witness for rule in loaded.cluster.rules):
        hint = f"`ticdc-lab pd explain --from {shlex.quote(loaded.source)}` explains and forecasts them."
        have = count(n, "region has one", "regions have one")
        raise SourceError(f"witnesses are not played: {have}, or a rule asks for them", hint=hint)
    there = r.peers >= 0
    sizes = np.bincount(r.peers[there], np.broadcast_to(r.size[:, None], r.peers.shape)[there], len(r.stores))
    held = dict(zip(r.stores, sizes.tolist(), strict=True))
    start = Start(
        stores=tuple(_store(s, held.get(s.id, 0.0)) for s in stores), regions=_regions(loaded),
        config=loaded.cluster.config, rules=loaded.cluster.rules if loaded.cluster.config.placement_rules else (),
        settings=settings or WorldSettings(), labels=loaded.regions.labels,
    )  # fmt: skip
    told: list[ClusterChange] = [HasRun(), *(Leaves(s.id) for s in stores if s.state == REMOVING)]
    told += [IsSilent(s.id, s.heartbeat_age_s) for s in stores if is_disconnected(s)]
    told += [
        Paused(s.id, s.leader_in_paused, s.leader_out_paused)
        for s in stores
        if s.leader_in_paused or s.leader_out_paused
    ]
    for i, limit in sorted(loaded.limits.items()):
        if i in {s.id for s in stores}:
            told += [
                Pdctl(f"store limit {i} {limit.add:g} add-peer"),
                Pdctl(f"store limit {i} {limit.remove:g} remove-peer"),
            ]
    until_us = round(minutes * 60 * SECOND_US)
    return Case(name, start, tuple(Timed(0, t) for t in told), 0, until_us, until_us)


@dataclass(frozen=True, slots=True)
class HasRun(ClusterChange):
    """PD has led for longer than split-merge-interval, in which it merges nothing."""

    says = "PD has led for long"

    def apply(self, world: World) -> None:
        world.patrol.since_us = -_LONG_US


_LONG_US = 10**15


@dataclass(frozen=True, slots=True)
class Leaves(ClusterChange):
    """A store that was taken offline before the start, whether PD would still let it go or not."""

    says = "store {0.store} is offline"
    store: int

    def apply(self, world: World) -> None:
        i = world.regions.at[self.store]
        world.nodes.change(i, state=REMOVING)


@dataclass(frozen=True, slots=True)
class IsSilent(ClusterChange):
    """A store whose last heartbeat came so many seconds before the start."""

    says = "store {0.store} is silent"
    store: int
    age_s: float

    def apply(self, world: World) -> None:
        StopStore(self.store, round(self.age_s * SECOND_US)).apply(world)
        world.nodes.all[world.regions.at[self.store]].heartbeat_us = world.now_us - round(self.age_s * SECOND_US)


@dataclass(frozen=True, slots=True)
class Paused(ClusterChange):
    """A store that balance moves no leader into or out of, since a scheduler evicts or grants its leaders."""

    says = "leaders of store {0.store} are evicted or granted"
    store: int
    into: bool
    out: bool

    def apply(self, world: World) -> None:
        i = world.regions.at[self.store]
        world.nodes.change(i, leader_in_paused=self.into, leader_out_paused=self.out)


def _store(s: Store, held_mib: float) -> StoreStart:
    amplified = amplification(s._replace(region_size=held_mib))
    foreign = max(0.0, (s.capacity - s.available) / MIB - held_mib * amplified)
    return StoreStart(s.id, s.capacity / MIB, s.labels, True, foreign, s.leader_weight, s.region_weight, amplified)


def _regions(loaded: Loaded) -> RegionsStart:
    r = loaded.regions
    ids = np.array([*r.stores, 0], np.int32)
    nothing = np.zeros(len(r.id))
    by_age = np.argsort(np.where(r.peers >= 0, r.peer_id, np.iinfo(np.int64).max), axis=1)  # PD fits older peers first
    learns = np.isin(r.role, (ROLES.index(LEARNER), ROLES.index(DEMOTING))) & (r.peers >= 0)  # joint states are left
    read, write = (nothing.copy() if x is None else x / _HEARTBEAT_S for x in (r.read, r.write))
    return RegionsStart(
        r.size.astype(np.float64), r.keys.astype(np.int64), ids[r.leader],
        np.take_along_axis(ids[r.peers], by_age, axis=1), np.take_along_axis(learns, by_age, axis=1), read, write,
        r.id.astype(np.int64), tuple(r.start_key.to_pylist()),
    )  # fmt: skip


def own_policies(loaded: Loaded) -> tuple[Policy, ...]:
    """Give the schedulers that run in the user's PD; the notes of ``loaded`` name the ones that are not modelled."""
    run = loaded.schedulers
    pairs = (
        (BALANCE_REGION, BALANCE_REGION_POLICY), (BALANCE_LEADER, BALANCE_LEADER_POLICY),
        (BALANCE_HOT, HOT_REGION_POLICY), (EVICT_SLOW_STORE, EVICT_SLOW_POLICY),
    )  # fmt: skip
    found = [policy._replace(ranges=run.get(name).keys_of()) for name, policy in pairs if run.get(name).runs]
    if batch := run.get(BALANCE_LEADER).batch:
        schedule = partial(balance_leaders, batch=batch)
        found = [p._replace(schedule=schedule) if p.name == BALANCE_LEADER else p for p in found]
    evict, grant = run.get(EVICT_LEADER), run.get(GRANT_LEADER)
    found += [evict_leaders(i, evict.keys_of(i), evict.batch) for i in evict.stores if evict.runs]
    found += [grant_leaders(i, grant.keys_of(i)) for i in grant.stores if grant.runs]
    return tuple(found)


def changed(
    *, settings: Sequence[str] = (), store_limits: Sequence[str] = (), remove: Sequence[int] = (),
    add: Sequence[str] = (), down: Sequence[int] = (), like: Start | None = None,
) -> tuple[ClusterChange, ...]:  # fmt: skip
    """Give what would be done to a cluster, from words of a command line.

    ``settings``: ``region-schedule-limit=4``: as ``config set``. ``store_limits``: ``30`` for all stores, ``4=30`` for
    one. ``remove``, ``down``: stores that are deleted, and that fall silent. ``add``: ``9`` or ``9,zone=a,host=h9``: a
    store that joins; as large as the largest one of ``like``. ``like``: the cluster that it joins. Raises
    ScenarioError: the words have another form, or ``like`` has no store of this id. Refused: PD has no setting of this
    name, or it cannot have this value.
    """
    told: list[ClusterChange] = []
    known = None if like is None else {s.id for s in like.stores}

    def require_store(option: str, store: str) -> None:
        if known is not None and store not in map(str, known):
            near = get_close_matches(store, map(str, sorted(known)), n=1)
            ids = ", ".join(map(str, sorted(known)))
            raise ScenarioError(
                f"{option}: the cluster has no store {store}; it has {ids}.",
                hint=f"Did you mean {near[0]}?" if near else f"Give one of {ids}.",
            )

    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise ScenarioError(f"--set {text}: expected NAME=VALUE", hint="Give --set region-schedule-limit=4.")
        with_setting(Config(), name, value)  # PD would refuse it only after the cluster was played as it is
        told.append(Pdctl(f"config set {name} {value}"))
    for text in store_limits:
        store, equals, rate = text.rpartition("=")
        if equals and store != "all":
            require_store(f"--store-limit {text}", store)
        decimal(rate, f"--store-limit {text}: peers a minute")
        told.append(Pdctl(f"store limit {store if equals else 'all'} {rate}"))
    for text in add:
        first, *labels = text.split(",")
        if not re.fullmatch(r"\d+", first) or not all("=" in one for one in labels):
            raise ScenarioError(f"--add-store {text}: expected ID[,LABEL=VALUE..]", hint="Give --add-store 9,zone=a.")
        if known is not None and int(first) in known:
            raise ScenarioError(f"--add-store {text}: the cluster has a store {first}.", hint="Give an unused `id`.")
        largest = max((s.capacity_mib for s in like.stores), default=0.0) if like is not None else 0.0
        more = {"capacity_mib": largest} if largest else {}
        pairs = dict(one.split("=", 1) for one in labels)
        told.append(StartStore(StoreStart(int(first), labels=pairs, started=False, **more)))
    for option, ids in (("--remove-store", remove), ("--down", down)):
        for i in ids:
            require_store(f"{option} {i}", str(i))
    told += [Pdctl(f"store delete {i}") for i in remove]
    return (*told, *(StopStore(i) for i in down))


class OwnFutures(NamedTuple):
    """The user's cluster as it is, and changed: runs, what each came to, and what pictures are drawn from."""

    runs: dict[str, PdRun]
    numbers: dict[str, Future]
    recordings: dict[str, Recording]

    @property
    def sentence(self) -> str:
        told = []
        for name, run in self.runs.items():
            now = self.numbers[name]
            refused = [h for h in run.happened if h.error]
            if run.world.config.halt_scheduling:
                told.append(f"{name}: PD does nothing, since halt-scheduling is true")
            elif refused:
                told.append(f"{name}: PD refuses {refused[0].change.text}: {refused[0].error}")
            elif run.end.because != "settled" or now.done_s is None:
                told.append(f"{name}: not done after {duration(run.end.time_us / SECOND_US)}")
            elif left := _left_undone(run):
                told.append(f"{name}: PD does nothing more after {duration(now.done_s)}, but {left}")
            elif not now.operators:
                told.append(f"{name}: nothing is to be done")
            else:
                told.append(f"{name}: done after {duration(now.done_s)}, {now.moved_mib / 1024:,.1f} GiB copied")
        return "; ".join(told)


def _left_undone(run: PdRun) -> str:
    """Peers that lie on stores that are deleted or down when a run has settled, and the limits that keep them there."""
    config, world = run.world.config, run.world
    stores = world.nodes.view(world.now_us).values()
    left = {s.id: s.region_count for s in stores if s.region_count and (s.state == REMOVING or is_disconnected(s))}
    if not left:
        return ""
    where = ", ".join(f"{count(n, 'peer')} of store {i}" for i, n in left.items())
    limits = [] if config.replica_schedule_limit else ["replica-schedule-limit"]
    limits += [] if config.region_schedule_limit else ["region-schedule-limit"]
    return f"{where} {are(sum(left.values()))} still there" + (f", since {' and '.join(limits)} is 0" if limits else "")


_QUIET_US = 120 * SECOND_US
"""Without a step for so long a cluster is done: rounds that find nothing come up to five seconds apart."""


Progress = Callable[[str, "World"], None]

MANY_REGIONS = 20_000
"""From here on a run takes so long that a user is to know it before."""


def own_futures(
    loaded: Loaded, changes: Sequence[ClusterChange | Timed] = (), *, minutes: float = 120.0, seed: int = 1,
    settings: WorldSettings | None = None, record: bool = False, progress: Progress | None = None,
) -> OwnFutures:  # fmt: skip
    """Play a user's cluster as it is and, where anything is changed, with the changes, until nothing moves any more.

    ``loaded``: what :func:`ticdc_lab.pd_core.pd_ctl_json.from_folder` gives. ``changes``: what is done at the
    start, see :func:`changed`, or at a moment. ``minutes``: the longest that is played, virtual time. ``seed``: the
    only source of chance. ``settings``: as of :func:`own_case`. ``record``: whether the runs are recorded for pictures,
    a moment a second. ``progress``: called with a run's name and its cluster, every second of it.
    """
    case = own_case(loaded, minutes=minutes, settings=settings)
    timed = tuple(c if isinstance(c, Timed) else Timed(0, c) for c in changes)
    plans = {"as it is": (), **({"changed": timed} if timed else {})}
    runs, recordings = {}, {}
    for name, plan in plans.items():
        run = own_run(loaded, case, plan, seed=seed, name=name, record=record, progress=progress)
        runs[name] = run
        if record:
            recordings[name] = run.recorder.recording
    return OwnFutures(runs, {name: future(run) for name, run in runs.items()}, recordings)


def own_run(
    loaded: Loaded, case: Case, changes: Sequence[Timed] = (), *, policies: Sequence[Policy] = (), seed: int = 1,
    name: str = "as it is", record: bool = True, sample_us: int = SECOND_US, progress: Progress | None = None,
) -> PdRun:  # fmt: skip
    """Play a user's cluster once, with its own schedulers or others, until nothing moves; record it, where wanted."""
    down_us = round(loaded.cluster.config.max_store_down_time_s * SECOND_US)
    last_us = max((c.at_us for c in changes), default=0)

    def settled(world: World) -> bool:
        if progress is not None:
            progress(name, world)
        waits = any(
            n.silent_us is not None and n.known and world.now_us - n.heartbeat_us < down_us + _QUIET_US
            for n in world.nodes.all
        )  # its peers are replaced once it is down
        quiet_us = world.now_us - max(world.last_change_us, last_us)
        return not world.controller.running and not waits and quiet_us >= _QUIET_US

    return simulate(
        case.start, case.most_us, seed=seed, changes=(*case.changes, *changes),
        policies=policies or own_policies(loaded), name=name, on_sample=settled,
        watch=Watch(sample_us=sample_us, placement_us=None, pictured=record),
    )  # fmt: skip
