"""How long until done in a recorded run: the forecast of its moment, and what only the model knows: disks and the pace.

Each limit alone would let the work be done in some time; the slowest one holds it back. The pace is what really
happened lately. Where both agree the limit is the reason; where the pace is much slower, something else is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ticdc_lab.pd_core.forecast import BALANCE, CAUTION, MERGES, Forecast, at_pace, duration, forecast
from ticdc_lab.pd_core.limits import PerMinute
from ticdc_lab.pd_core.stores import takes_part
from ticdc_lab.simulate.pd.looking.recording import columns_of
from ticdc_lab.simulate.pd.world.recording import ClusterSample, Recording
from ticdc_lab.simulate.pd.world.start import SECOND_US, WorldSettings
from ticdc_lab.words import rounded

PACE_S = 30.0
"""The pace is measured over so many seconds."""

_STEPS_TICKS = 8
"""Ticks that the steps of a move take besides its snapshot: sent, entered, left, removed, each reported."""

_SLOWER = 2.0
_CAUTION = "what moved in the last 10 s counts five times, and rounds that find nothing come up to 5 s apart"
_MEANT = "nothing: it is meant so"


class Bound(NamedTuple):
    """A limit: how long the work takes if only it counted, s, and why; ``turn`` is the pd-ctl command."""

    name: str
    seconds: float
    because: str
    turn: str


class TimeLeft(NamedTuple):
    """How long until done."""

    work: tuple[Forecast, ...]  # what is left: repairs, or where there are none the balance of sizes
    at_best_s: float  # what the limits allow, s; infinite where nothing can be done
    # At the pace of the last half minute, s; infinite where nothing moved, None where it is not known.
    at_pace_s: float | None
    bounds: tuple[Bound, ...]  # all limits, the one that holds it back first

    @property
    def peers(self) -> int:
        """How many peers are still to be made."""
        return sum(f.moves for f in self.work)

    @property
    def held_by(self) -> Bound | None:
        """The limit that holds it back."""
        return self.bounds[0] if self.bounds else None


def work_left(sample: ClusterSample) -> tuple[Forecast, ...]:
    """Give what is left to do: repairs first, and where there are none what balance would move."""
    limits = {i: PerMinute(*rates) for i, rates in sample.rates.items()}
    found = forecast(sample.cluster, columns_of(sample), limits)
    return tuple(f for f in found if f.what != BALANCE) or found


def bounds(work: Sequence[Forecast], sample: ClusterSample, settings: WorldSettings) -> list[Bound]:
    """Give how long the work takes under each limit alone, the slowest first; what is never done is not counted."""
    todo = [f for f in work if f.peers > f.stay and not math.isinf(f.at_best_s)]
    if not todo:
        whys = [f"{f.what}: {f.never[0][0]}" for f in work if f.never]
        return [Bound("nothing may be done", math.inf, why, "what the reason names") for why in whys]
    config, peers, of_balance = sample.cluster.config, sum(f.moves for f in todo), todo[0].what == BALANCE
    size, tick_s = max(1.0, float(sample.cluster.average_region_size)), settings.tick_us / SECOND_US
    name = "region-schedule-limit" if of_balance else "replica-schedule-limit"
    limit = config.region_schedule_limit if of_balance else config.replica_schedule_limit
    each_s = tick_s * (_STEPS_TICKS + size / settings.io_mib_a_tick)
    seconds = peers * each_s / limit if limit else math.inf
    why = f"{limit} at a time, about {rounded(each_s, 2)} s each"
    found = [Bound(f"{name} {limit}", seconds, why, f"config set {name} N")]
    mib_s = settings.io_mib_a_tick / tick_s
    stores = sum(takes_part(s, config.max_store_down_time_s) for s in sample.cluster.stores.values())
    seconds = peers / max(1, stores) * size / settings.compression / mib_s
    why = f"a store reads or writes {rounded(mib_s, 4)} MiB of snapshots a second"
    found.append(Bound("disks of the stores that take peers", seconds, why, "faster disks"))
    for f in todo:
        which = "remove-peer" if f.held_by.startswith("remove") else "add-peer"
        setting, unit = f.held_by.split(" ")[0], "regions" if f.what == MERGES else "peers"
        why = f"{f.what}: {f.peers - f.stay:,} {unit}"
        turn = f"store limit all N {which}" if "peer" in setting or f.what != MERGES else f"config set {setting} N"
        why, turn = (_CAUTION, _MEANT) if f.held_by == CAUTION else (why, turn)
        found.append(Bound(f.held_by, f.at_best_s, why, turn))
    found.sort(key=lambda b: -b.seconds)
    waits_s, down_s = max(f.waits_s for f in todo), config.max_store_down_time_s
    if waits_s:
        why = f"a silent store counts as down after {down_s:,.0f} s, that is in {waits_s:,.0f} s"
        turn = "config set max-store-down-time T"
        found.insert(0, Bound("max-store-down-time", waits_s + found[0].seconds, why, turn))
    return found


def pace(samples: Sequence[ClusterSample], at_us: int) -> float | None:
    """Give how many peers a second were copied lately, from when on any were; None of one moment only."""
    lately = [s for s in samples if at_us - PACE_S * SECOND_US <= s.at_us <= at_us]
    began = next((i for i, s in enumerate(lately) if s.moved_mib > lately[0].moved_mib), 1) - 1
    a, b = lately[began], lately[-1]
    if a.at_us == b.at_us:
        return None
    size = max(1.0, float(b.cluster.average_region_size))
    return (b.moved_mib - a.moved_mib) / size / ((b.at_us - a.at_us) / SECOND_US)


def time_left(recording: Recording, settings: WorldSettings, *, at_us: int) -> TimeLeft:
    """Estimate how long until done, from a moment on.

    ``recording``: the run up to there, for the pace. ``settings``: of the stores: disks and ticks.
    ``at_us``: the moment, µs.
    """
    sample = recording.at(at_us)
    work = work_left(sample)
    found = bounds(work, sample, settings)
    left = TimeLeft(work, found[0].seconds if found else 0.0, None, tuple(found))
    speed = pace(recording.samples, at_us)
    if speed is None:
        return left
    at_pace_s = at_pace(left.peers, speed)
    of_balance = bool(work) and work[0].what == BALANCE
    if of_balance and at_pace_s > _SLOWER * left.at_best_s > 0:
        found = [Bound(CAUTION, at_pace_s, _CAUTION, _MEANT), *found]
    return left._replace(at_pace_s=at_pace_s, bounds=tuple(found))


def time_left_sentence(left: TimeLeft) -> str:
    """Give it in a sentence."""
    if not left.work:
        return "Nothing is left to do: balance tolerates the differences that are left"
    held = left.held_by
    if held is None or math.isinf(left.at_best_s):
        why = f"{held.name}: {held.because}" if held else "nothing can be done"
        return f"Never, as things are: {why}"
    pace_s, slow = left.at_pace_s, ""
    if pace_s is not None:
        slow = ", nothing moves now" if math.isinf(pace_s) else f", {duration(pace_s)} at the pace so far"
    what = " and ".join(f.what for f in left.work[:3])
    merged = sum(f.peers - f.stay for f in left.work if f.what == MERGES)
    counts = [f"{left.peers:,} peers"] * (left.peers > 0 or not merged) + [f"{merged:,} merges"] * (merged > 0)
    done = f"{duration(left.at_best_s)} at best until done: {what} ({', '.join(counts)})"
    return f"{done}{slow}; held back by {held.name}"
