"""Two moments of a user's cluster, from what pd-ctl printed: what moved, at what pace, what is left, what holds it."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.errors import SourceError
from ticdc_lab.pd_core.forecast import MERGES, Forecast, at_pace, duration, forecast, in_words
from ticdc_lab.pd_core.pd_ctl_files import COMMANDS, OPERATORS
from ticdc_lab.pd_core.pd_ctl_json import Loaded
from ticdc_lab.pd_core.survey import survey
from ticdc_lab.words import count


class Left(NamedTuple):
    """A piece of work that is left: how long at best, and at the pace between the two moments; None where it rests."""

    forecast: Forecast
    at_best_s: float
    at_pace_s: float | None


class BeforeAfter(NamedTuple):
    """What became of a cluster between two moments."""

    seconds: float  # between the latest heartbeats of the two
    # ``moved``, ``moved_mib``, ``leaders``: peers that came to a store, MiB of their regions, and leaders that changed.
    moved: int
    moved_mib: float
    leaders: int
    # For each store: peers before and after, those that came and went, leaders before and after.
    stores: tuple[dict[str, int], ...]
    # ``compared``, ``new``, ``gone``: regions that are in both, only after, and only before.
    compared: int
    new: int
    gone: int
    left: tuple[Left, ...]  # what is left to do
    running: int  # operators that run after
    held_by: tuple[str, ...]  # what holds the rest, the most likely first
    whole: bool = True  # whether both have all regions
    running_given: bool = True  # whether the running operators were printed

    @property
    def moves(self) -> bool:
        """Whether the cluster still moved: regions or operators show it, or where some are missing stores' counts."""
        counted = any(s["peers_before"] != s["peers_after"] for s in self.stores)
        return bool(self.moved or self.removed or self.running or (counted and not self.whole))

    @property
    def removed(self) -> int:
        """How many peers went without another one in their place."""
        return max(0, sum(s["went"] for s in self.stores) - self.moved)

    @property
    def sentence(self) -> str:
        """It in words."""
        pace = f", {self.moved / self.seconds * 60:,.1f} a minute" if self.seconds and self.moved else ""
        gib = f"{self.moved_mib / 1024:,.1f} GiB"
        when = f"In {duration(self.seconds)}" if self.seconds else "Within a time that no heartbeat shows"
        told = f"{when} {self.moved:,} peers came to another store ({gib}{pace})"
        told = told if self.whole else f"Of {self.compared:,} regions that both have: {told[0].lower()}{told[1:]}"
        told += f", {count(self.removed, 'peer was', 'peers were')} removed without a new one" if self.removed else ""
        told += f" and {count(self.leaders, 'leader')} changed"
        todo = [f for f in self.left if f.forecast.peers > f.forecast.stay]
        never = [f for f in self.left if f.forecast.never]
        if not self.left:
            return f"{told}; nothing is left to do"
        rest = sum(f.forecast.peers for f in self.left if f.forecast.what != MERGES)
        small = sum(f.forecast.peers for f in self.left if f.forecast.what == MERGES)
        counts = [f"{rest:,} peers are left"] * (rest > 0 or not small) + [f"{small:,} regions are small"] * (small > 0)
        rests = self.running_given and not self.running
        now = "it does not move" if not self.moves else "no operator runs now" if rests else "it still moves"
        told += f"; {', '.join(counts)} and {now}"
        if todo:
            slowest = max(todo, key=lambda f: f.at_best_s)
            pace_s = slowest.at_pace_s
            told += f": {duration(slowest.at_best_s)} at best"
            told += f", {duration(pace_s)} at this pace" if pace_s is not None else ""
        if never:
            told += f"; {sum(f.forecast.stay for f in never):,} never"
        return told + (f"; held by {self.held_by[0]}" if self.held_by else "")


def before_after(before: Loaded, after: Loaded) -> BeforeAfter:
    """Compare two moments of a cluster.

    ``before``, ``after``: what :func:`ticdc_lab.pd_core.pd_ctl_json.from_folder` gives of each; regions are the
    same by their ids. Raises SourceError: the second is not later than the first, or they are of two clusters.
    """
    seconds = after.heard_s - before.heard_s if before.heard_s and after.heard_s else 0.0
    if seconds < 0:
        words = f"--after was printed {duration(-seconds)} before --before, by the stores' heartbeats"
        first, second = shlex.quote(after.source), shlex.quote(before.source)
        hint = f"Exchange them: `ticdc-lab pd explain --before {first} --after {second}`."
        raise SourceError(words, hint=hint)
    a, b = before.regions, after.regions
    _, at, at_after = np.intersect1d(a.id, b.id, return_indices=True)
    same = np.asarray(pc.equal(a.start_key.take(pa.array(at)), b.start_key.take(pa.array(at_after)))).sum()
    why = (
        "no store is in both" if not set(before.cluster.stores) & set(after.cluster.stores)
        else "no region is in both" if not len(at)
        else f"{len(at) - same:,} of {len(at):,} regions that are in both have other keys" if same * 2 < len(at) else ""
    )  # fmt: skip
    if why:
        hint = f"Print {after.source} again from the cluster of {before.source}: `pd-ctl store` and `pd-ctl region`."
        raise SourceError(f"--before and --after are of two clusters: {why}", hint=hint)
    whole = before.whole and after.whole
    one, other = (np.array([*c.stores, 0])[c.peers[rows]] for c, rows in ((a, at), (b, at_after)))
    fresh = (other > 0) & ~(other[:, :, None] == one[:, None, :]).any(axis=2)
    lost = (one > 0) & ~(one[:, :, None] == other[:, None, :]).any(axis=2)
    mib = float((b.size[at_after] * fresh.sum(axis=1)).sum())
    came, went = Counter(other[fresh].tolist()), Counter(one[lost].tolist())
    leads = [np.array([*c.stores, 0])[c.leader[rows]] for c, rows in ((a, at), (b, at_after))]
    changed = int((leads[0] != leads[1]).sum())
    moved = sum(came.values())
    if not (seconds or moved or changed):
        hint = f"`ticdc-lab pd explain --from {shlex.quote(after.source)}` explains one moment."
        raise SourceError("--before and --after are of the same moment, by the stores' heartbeats", hint=hint)
    ids = sorted(set(before.cluster.stores) | set(after.cluster.stores))
    stores = tuple(
        {
            "store": i, "peers_before": _count(before, i), "peers_after": _count(after, i), "came": came[i],
            "went": went[i], "leaders_before": _led(before, i), "leaders_after": _led(after, i),
        }
        for i in ids
    )  # fmt: skip
    found = survey(after.cluster, b, schedulers=after.schedulers, running=after.running, doubted=after.doubted)
    expected = {} if after.whole else {s.id: s.region_count for s in after.cluster.stores.values()}
    ahead = forecast(
        after.cluster, b, after.limits, groups=found.groups, expected=expected, schedulers=after.schedulers
    )
    done = max(moved, sum(went.values()))  # peers too many only go
    pace = done / seconds if whole and seconds else 0.0
    best = [f.waits_s + f.at_best_s for f in ahead]
    left = tuple(
        Left(f, s, max(s, at_pace(f.moves, pace)) if pace and f.moves and not math.isinf(s) else None)
        for f, s in zip(ahead, best, strict=True)
    )
    held = _held(after, left, done, seconds if whole else 0.0)
    return BeforeAfter(
        seconds, moved, mib, changed, stores, len(at), len(b.id) - len(at), len(a.id) - len(at), left,
        len(after.operators), tuple(held), whole, not any(m.command == COMMANDS[OPERATORS] for m in after.missing),
    )  # fmt: skip


def _count(loaded: Loaded, store: int) -> int:
    s = loaded.cluster.stores.get(store)
    return loaded.cluster.regions_on.get(store, 0) if s is not None else 0


def _led(loaded: Loaded, store: int) -> int:
    s = loaded.cluster.stores.get(store)
    return s.leader_count if s is not None else 0


_AS_FAST = 0.5
"""From half of what store limits let through on, they hold the work back."""


def _held(after: Loaded, left: tuple[Left, ...], moved: int, seconds: float) -> list[str]:
    """Name what holds the rest: limits that are reached, else what slows operators down, and what is never done.

    What concerns more peers comes first.
    """
    stays = [f"{f.forecast.what}: {f.forecast.never[0][0]}" for f in left if f.forecast.never]
    todo = [f for f in left if not math.isinf(f.at_best_s)]
    slowed = _slowed(after, todo, moved, seconds) if todo else []
    goes = sum(f.forecast.moves for f in todo)
    return [*slowed, *stays] if goes > sum(f.forecast.stay for f in left) else [*stays, *slowed]


def _slowed(after: Loaded, todo: Sequence[Left], moved: int, seconds: float) -> list[str]:
    """Name what holds the work that is done: a limit that is reached, or operators that are slow or not made."""
    found: list[str] = []
    worst = max(todo, key=lambda f: f.at_best_s)
    waits = [f for f in todo if f.forecast.waits_s]
    if waits:
        found.append(f"max-store-down-time: {waits[0].forecast.what}, begins in {duration(waits[0].forecast.waits_s)}")
    if not seconds:  # some regions only: how fast the others move is not known
        return [*found, worst.forecast.held_by]
    could = sum(f.forecast.moves for f in todo) / max(1e-9, max(f.at_best_s for f in todo))
    if moved / seconds >= _AS_FAST * could:
        return [*found, worst.forecast.held_by]
    config, running = after.cluster.config, len(after.operators)
    limit = min(config.replica_schedule_limit, config.region_schedule_limit)
    if running and running >= limit:
        return [*found, f"a schedule limit: {running} operators run, {limit} may"]
    if running:
        per_s = f"{moved / seconds * 60:,.1f} of {could * 60:,.1f} peers a minute that store limits let through"
        return [*found, f"operators that are slow: {running} run, {per_s}"]
    not_given = any(m.command == COMMANDS[OPERATORS] for m in after.missing)
    what = f"not made or not given (`{COMMANDS[OPERATORS]}`)" if not_given else "not made"
    return [*found, f"operators that are {what}: {moved} of {could * seconds:,.0f} moves"]


def words(found: BeforeAfter) -> list[str]:
    """Give what is left as lines: at best, and at the pace between the two moments."""
    told = in_words([f.forecast for f in found.left])
    paces = [f.at_pace_s for f in found.left]
    return [
        line + (f"; {duration(pace)} at the pace between the two" if pace is not None else "")
        for line, pace in zip(told, paces, strict=True)
    ]
