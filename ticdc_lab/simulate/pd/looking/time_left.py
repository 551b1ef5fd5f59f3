"""How long until done, and what holds it back: from what is left to do, the limits, and the pace so far.

Each limit alone would let the work be done in some time; the slowest one holds it back. The pace is what really
happened lately. Where both agree the limit is the reason; where the pace is much slower, something else is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ticdc_lab.simulate.pd.balance import REGIONS, scale
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.limits import LARGE_COST, UNLIMITED_PER_S, step_cost
from ticdc_lab.simulate.pd.looking.recording import ClusterSample, Recording, live, region_targets
from ticdc_lab.simulate.pd.operators import Kind
from ticdc_lab.simulate.pd.stores import REMOVING, is_disconnected, is_low_on_space
from ticdc_lab.simulate.pd.world.start import SECOND_US, WorldSettings


class WorkLeft(NamedTuple):
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


def work_left(sample: ClusterSample) -> WorkLeft:
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
        return WorkLeft(" and ".join(names), leaving | lost, {}, _able(sample, takers), size, True)
    missing = _missing(sample)
    if missing:
        return WorkLeft(f"{missing} missing peers are made", {}, {0: missing}, takers, size, True)
    out, into = _uneven(sample)
    return WorkLeft("the stores are even", out, into, takers, size, False)


def _stores(ids: Iterable[int]) -> str:
    some = sorted(ids)
    return f"store {some[0]} is" if len(some) == 1 else f"stores {', '.join(map(str, some))} are"


def _able(sample: ClusterSample, takers: tuple[int, ...]) -> tuple[int, ...]:
    """Whoever may take a peer of a region that is on all the others already: none where there are too few stores."""
    need = sample.cluster.config.max_replicas
    return takers if len(takers) >= need else ()


def _missing(sample: ClusterSample) -> int:
    placed = sample.placement.store
    voters = (placed > 0) & ~sample.placement.learner
    return int(max(0, sample.cluster.config.max_replicas * len(placed) - int(voters.sum())))


def _uneven(sample: ClusterSample) -> tuple[dict[int, int], dict[int, int]]:
    targets, stores = region_targets(sample), sample.cluster.stores
    size = max(1.0, float(sample.cluster.average_region_size))
    slack = scale(sample.cluster, REGIONS).tolerance / size
    out = {i: int(s.region_count - targets[i] - slack) for i, s in stores.items()}
    into = {i: int(targets[i] - s.region_count - slack) for i, s in stores.items()}
    return {i: n for i, n in out.items() if n > 0}, {i: n for i, n in into.items() if n > 0}


PACE_S = 30.0
"""The pace is that of so many seconds."""

_STEPS_TICKS = 8
"""Ticks that the steps of a move take besides its snapshot: told, entered, left, removed, each reported."""


_SLOWER = 2.0
_CAUTION = "what moved in the last 10 s counts five times, and rounds that find nothing come up to 5 s apart"


class Bound(NamedTuple):
    """A limit: how long the work takes if only it counted, s, and why; ``turn`` is what one would say to pd-ctl."""

    name: str
    seconds: float
    because: str
    turn: str


class TimeLeft(NamedTuple):
    """How long until done.

    Parameters
    ----------
    work
        What is left.
    at_best_s
        What the limits allow, s; infinite where nothing can be done.
    at_pace_s
        At the pace of the last half minute, s; infinite where nothing moved, None where it is not known.
    bounds
        All limits, the one that holds it back first.
    """

    work: WorkLeft
    at_best_s: float
    at_pace_s: float | None
    bounds: tuple[Bound, ...]

    @property
    def held_by(self) -> Bound | None:
        """The limit that holds it back."""
        return self.bounds[0] if self.bounds else None


def bounds(work: WorkLeft, sample: ClusterSample, settings: WorldSettings) -> list[Bound]:
    """Give how long the work takes under each limit alone, the slowest first."""
    if not work.peers:
        return []
    if not work.takers:
        need = sample.cluster.config.max_replicas
        why = f"{need} replicas of a region need {need} stores that take peers"
        return [Bound("no store may take a peer", math.inf, why, "add a store")]
    found = [*_store_limits(work, sample), _concurrency(work, sample.cluster, settings), _disks(work, settings)]
    found.sort(key=lambda b: -b.seconds)
    return [*_down_time(work, sample, found[0].seconds), *found]


def _down_time(work: WorkLeft, sample: ClusterSample, then_s: float) -> list[Bound]:
    """A silent store that does not count as down yet: nothing is replaced before."""
    down_s, stores = sample.cluster.config.max_store_down_time_s, sample.cluster.stores
    ages = [stores[i].heartbeat_age_s for i in work.out if i in stores and stores[i].state != REMOVING]
    wait_s = down_s - min([a for a in ages if a <= down_s], default=down_s)
    why = f"a silent store counts as down after {down_s:,.0f} s, that is in {wait_s:,.0f} s"
    waits = work.repair and wait_s > 0
    return [Bound("max-store-down-time", wait_s + then_s, why, "config set max-store-down-time T")] if waits else []


def _store_limits(work: WorkLeft, sample: ClusterSample) -> list[Bound]:
    share = step_cost(work.size) / LARGE_COST
    add = {i: sample.rates.get(i, (0.0, 0.0))[0] for i in work.takers}
    found = [_add_together(work, add, share)]
    for i, n in work.into.items():
        if _limited(add.get(i, 0.0)) and len(work.into) > 1:
            seconds = 60 * n * share / add[i]
            why = f"it takes {add[i]:,.0f} peers a minute, {n} are to come"
            found.append(Bound(f"add-peer limit of store {i}", seconds, why, f"store limit {i} N add-peer"))
    for i, n in work.out.items():
        rate, store = sample.rates.get(i, (0.0, 0.0))[1], sample.cluster.stores[i]
        if store.state != REMOVING and not is_disconnected(store) and _limited(rate):
            why = f"it gives away {rate:,.0f} peers a minute, {n} are to go"
            turn = f"store limit {i} N remove-peer"
            found.append(Bound(f"remove-peer limit of store {i}", 60 * n * share / rate, why, turn))
    return found


def _limited(rate: float) -> bool:
    return 0 < rate / 60 * LARGE_COST < UNLIMITED_PER_S


def _add_together(work: WorkLeft, add: Mapping[int, float], share: float) -> Bound:
    takers = sorted(work.into) if work.into and 0 not in work.into else sorted(add)
    rates = [add[i] for i in takers if i in add]
    together = sum(rates) if all(_limited(r) for r in rates) else math.inf
    named = f"{', '.join(map(str, takers[:6]))}{' …' if len(takers) > 6 else ''}"
    many = len(takers) != 1
    who = "together they take" if many else "it takes"
    why = f"{who} {together:,.0f} peers a minute, {work.peers} are to come"
    seconds = 60 * work.peers * share / together if together else math.inf
    name = f"add-peer limits of stores {named}" if many else f"add-peer limit of store {named}"
    return Bound(name, seconds, why, f"store limit {'all' if many else named} N add-peer")


def move_s(size: float, settings: WorldSettings) -> float:
    """Give how long one move takes, undisturbed: its snapshot, and its steps."""
    tick_s = settings.tick_us / SECOND_US
    return tick_s * (_STEPS_TICKS + size / settings.io_mib_a_tick)


def _concurrency(work: WorkLeft, c: Cluster, settings: WorldSettings) -> Bound:
    kind = Kind.REPLICA if work.repair else Kind.REGION
    name = "replica-schedule-limit" if kind == Kind.REPLICA else "region-schedule-limit"
    limit = c.config.replica_schedule_limit if kind == Kind.REPLICA else c.config.region_schedule_limit
    each = move_s(work.size, settings)
    seconds = work.peers * each / limit if limit else math.inf
    why = f"{limit} at a time, about {each:,.2g} s each"
    return Bound(f"{name} {limit}", seconds, why, f"config set {name} N")


def _disks(work: WorkLeft, settings: WorldSettings) -> Bound:
    mib_s = settings.io_mib_a_tick * SECOND_US / settings.tick_us
    receive = work.size / settings.compression
    fullest = max([*work.into.values(), work.peers / max(1, len(work.takers))])
    why = f"a store reads or writes {mib_s:,.4g} MiB of snapshots a second"
    return Bound("disks of the stores that take peers", fullest * receive / mib_s, why, "faster disks")


def pace(samples: Sequence[ClusterSample], at_us: int, pace_s: float = PACE_S) -> float | None:
    """Give how many peers a second were copied lately, None where it cannot be known: nothing was to be done then."""
    lately = [s for s in samples if at_us - pace_s * SECOND_US <= s.at_us <= at_us]
    first = next((k for k, s in enumerate(lately) if work_left(s).peers), len(lately))
    if len(lately) - first < 2:
        return None
    a, b = lately[first], lately[-1]
    size = max(1.0, float(b.cluster.average_region_size))
    return (b.moved_mib - a.moved_mib) / size / ((b.at_us - a.at_us) / SECOND_US)


def time_left(recording: Recording, settings: WorldSettings, *, at_us: int) -> TimeLeft:
    """Say how long until done, from a moment on.

    Parameters
    ----------
    recording
        The run up to there, of which the pace is taken.
    settings
        Of the stores: disks and ticks.
    at_us
        The moment, µs.
    """
    sample = recording.at(at_us)
    work = work_left(sample)
    found = bounds(work, sample, settings)
    speed = pace(recording.samples, at_us)
    at_pace = None if speed is None else (work.peers / speed if speed else math.inf if work.peers else 0.0)
    at_best = found[0].seconds if found else 0.0
    if at_pace is not None and not work.repair and at_pace > _SLOWER * at_best > 0:
        found = [Bound("PD's own caution", at_pace, _CAUTION, "nothing: it is meant so"), *found]
    return TimeLeft(work, at_best, at_pace, tuple(found))


def time_left_sentence(left: TimeLeft) -> str:
    """Say it in a sentence."""
    if not left.work.peers:
        return "Nothing is left to do: the stores are even within what balance tolerates"
    held = left.held_by
    if held is None or math.isinf(left.at_best_s):
        why = f"{held.name}: {held.because}" if held else "nothing can be done"
        return f"Never, as things are: {why}"
    n = left.work.peers
    at_pace = ""
    if left.at_pace_s is not None:
        slow = "nothing moves now" if math.isinf(left.at_pace_s) else f"{_long(left.at_pace_s)} at the pace so far"
        at_pace = f", {slow}"
    return f"{_long(left.at_best_s)} at best until {left.work.what} ({n:,} peers){at_pace}; held back by {held.name}"


def _long(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
