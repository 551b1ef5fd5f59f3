"""Where stores are, compared along the labels: a few stores, or many regions at once; `pd_notes.md` section 4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.stores import Store, StoreLabels, label

BASE = 100
"""A difference at one label outweighs a hundred at the next."""


def compare_location(one: Store, other: Store, labels: Sequence[str]) -> int:
    """Give the index of the first label at which two stores differ, -1 for none.

    A missing label counts as the same place; values are compared without regard to case.
    """
    return _differ(one.labels, other.labels, labels)


def _differ(one: StoreLabels, other: StoreLabels, labels: Sequence[str]) -> int:
    for i, key in enumerate(labels):
        a, b = one.get(key.lower(), ""), other.get(key.lower(), "")
        if a and b and a.lower() != b.lower():
            return i
    return -1


def pair_score(one: Store, other: Store, labels: Sequence[str]) -> int:
    """Give how far apart two stores are: 100 to the power of the labels after the one that differs, 0 for none."""
    return _apart(one.labels, other.labels, tuple(labels))


@lru_cache(1 << 16)  # a large cluster compares the same places thousands of times a second, as _isolation does
def _apart(one: StoreLabels, other: StoreLabels, labels: tuple[str, ...]) -> int:
    i = _differ(one, other, labels)
    return 0 if i < 0 else BASE ** (len(labels) - i - 1)


def distinct_score(labels: Sequence[str], stores: Iterable[Store], other: Store) -> int:
    """Give the isolation score of ``other`` beside the stores of a region's other peers: higher is better."""
    return sum(pair_score(s, other, labels) for s in stores if s.id != other.id)


def isolation_score(stores: Sequence[Store], labels: Sequence[str]) -> int:
    """Give the isolation score of a whole set of stores: the sum over its pairs."""
    return _isolation(tuple(s.labels for s in stores), tuple(labels)) if labels else 0


@lru_cache(1 << 16)
def _isolation(places: tuple[StoreLabels, ...], labels: tuple[str, ...]) -> int:
    return sum(_apart(a, b, labels) for i, a in enumerate(places) for b in places[i + 1 :])


def matched_labels(one: Store, other: Store, labels: Sequence[str]) -> int:
    """Give how many location labels two stores share, from the widest on; a missing label is a value of its own."""
    for i, key in enumerate(labels):
        if label(one, key) != label(other, key):
            return i
    return len(labels)


Positions = NDArray[np.int32]
Distances = NDArray[np.int64]

_CHUNK = 8192
"""Regions that are looked at together, so that the candidates of all fit in the cache."""


def distances(stores: Sequence[Store], labels: Sequence[str]) -> Distances:
    """Give the pair scores of all stores, a row and a column each; the last ones are no store."""
    n = len(stores)
    found = np.zeros((n + 1, n + 1), dtype=np.int64)
    for i, a in enumerate(stores):
        for j in range(i):
            found[i, j] = found[j, i] = pair_score(a, stores[j], labels)
    return found


def may_improve(apart: Distances, peers: Positions, takes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Find the regions that the checkers would move to a better location, and few others.

    A store that ``takes`` peers, now or soon, would be better isolated than the worst peer's; ``apart`` are
    :func:`distances`, ``peers`` regions by replicas.
    """
    found = [_may_improve(apart, peers[i : i + _CHUNK], takes) for i in range(0, len(peers), _CHUNK)]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.bool_)


def _may_improve(apart: Distances, peers: Positions, takes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    rows = np.arange(len(peers))
    there = peers >= 0
    own = apart[peers[:, :, None], peers[:, None, :]].sum(axis=2)
    own[~there] = np.iinfo(np.int64).max
    worst = own.min(axis=1)
    to_peers = apart[peers][:, :, :-1]
    all_ = to_peers.sum(axis=1)
    better = np.zeros(len(peers), dtype=np.bool_)
    for k in range(peers.shape[1]):
        without = all_ - to_peers[:, k]
        without[:, ~takes] = -1
        for other in range(peers.shape[1]):
            held = there[:, other]
            without[rows[held], peers[held, other]] = -1
        better |= (own[:, k] == worst) & (without.max(axis=1) > worst)
    return better
