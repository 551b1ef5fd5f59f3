"""Would moving a hot peer even out two stores? PD's rank formula v2 (hot_region_rank_v2.go)."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.pd.hot_loads import HotSettings, StoreLoad

_PERCEIVED, _LEAST_HOT = (0.2, 0.3), (0.02, 0.03)
_PENDING_FACTOR = 2.0
_TOP = 10
"""The peer that ranks so in its store says what is small there."""


class Ratios(NamedTuple):
    """When two loads are even, and nearly so: the lower over the higher; looser for what is than for what shall be."""

    even: float
    nearly: float
    even_now: float
    nearly_now: float
    perceived: float
    least_hot: float


def ratios(settings: HotSettings) -> tuple[Ratios, Ratios]:
    """Give the ratios of the first and of the second dimension, which is taken less strictly."""
    first = _ratios(settings.great_dec_ratio, 0)
    return first, _ratios(first.nearly, 1)


def _ratios(even: float, which: int) -> Ratios:
    even = min(max(even, 0.7), 0.95)
    nearly = max(2 * even - 1, even - 0.1)
    return Ratios(even, nearly, even - 0.02, nearly - 0.03, _PERCEIVED[which], _LEAST_HOT[which])


class Pair(NamedTuple):
    """A source, a target and what would move between them in one dimension."""

    source: StoreLoad
    target: StoreLoad
    dim: int
    rate: float
    least: float


def score(pair: Pair, r: Ratios) -> int:
    """Say how good a move is for one dimension.

    Returns
    -------
    int
        3: both are even then. 2: on the way there. 1: a little beyond. 0: no worse. -1, -2: worse.
    """
    high, low = pair.source.least(pair.dim), pair.target.most(pair.dim)
    rate, reverse, top = pair.rate, False, pair.source
    if high < low:
        high, low, rate, reverse, top = low, high, -rate, True, pair.target
    if high * r.even_now <= low:
        return _score_even(pair, r, high, low, rate)
    from_, to = _range(high, low, r.even)
    if high * r.nearly_now <= low:
        worse_from, worse_to = _range(high, low, r.nearly)
        worse_from = min(worse_from, -pair.least)
        better_from, better_to = from_, to
        waits = True
    else:
        better_from = min(from_ * r.perceived, low * r.least_hot, _top_rate(top, pair.dim))
        better_to = to + r.perceived * (high - low - to - better_from)
        worse_from, worse_to = -pair.least, to + r.perceived * (high - low - to)
        waits = False
    if better_from <= rate <= better_to:
        if rate < pair.least or not _tolerated(pair, reverse) or (waits and _pending(pair) >= 1):
            return 0
        return 2 if rate < from_ else 1 if rate > to else 3
    if worse_from <= rate < better_from:
        return 0
    return -1 if better_to < rate <= worse_to else -2


def _score_even(pair: Pair, r: Ratios, high: float, low: float, rate: float) -> int:
    """Two even stores stay so, or it is worse."""
    from_, to = _range(high, low, r.even)
    return 0 if min(from_, -pair.least) <= rate <= to else -2


def _range(high: float, low: float, ratio: float) -> tuple[float, float]:
    """Give the rates that would bring two loads within a ratio."""
    return (high * ratio - low) / (1 + ratio), (high - low * ratio) / (1 + ratio)


def _top_rate(load: StoreLoad, dim: int) -> float:
    if len(load.peers) < _TOP:
        return float("inf")
    return sorted((p.loads[dim] for p in load.peers), reverse=True)[_TOP - 1]


def _pending(pair: Pair) -> float:
    return abs(pair.source.pending[pair.dim]) + abs(pair.target.pending[pair.dim])


def _tolerated(pair: Pair, reverse: bool) -> bool:
    """Whether the source stays the hotter one with what is under way counted twice and more."""
    source, target = (pair.target, pair.source) if reverse else (pair.source, pair.target)
    a, b = source.now[pair.dim], target.now[pair.dim]
    if a <= b:
        return False
    factor = 1 + _PENDING_FACTOR * a / (a - b)
    return a - factor * source.pending[pair.dim] > b + factor * target.pending[pair.dim]


def rank(first: int, second: int) -> int:
    """Rank a move by its scores in both dimensions: above 0 it is made, 4 is the best."""
    if first > 0:
        return 4 if second > 0 else 3 if second == 0 else 2
    if second > 0:
        return 1 if first == 0 else 0
    return -1
