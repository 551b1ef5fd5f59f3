"""Isolation of many regions at once: which of them could be placed better, so that only those are checked one by one.

A region's peers are a row of store positions (positions in the list of stores, not ids), -1 for none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.location import pair_score
from ticdc_lab.simulate.pd.stores import Store

Positions = NDArray[np.int32]
Distances = NDArray[np.int64]

_CHUNK = 8192
"""Regions that are looked at together, so that the candidates of all fit in the cache."""


def distances(stores: Sequence[Store], labels: Sequence[str]) -> Distances:
    """Give the pair scores of all stores, a row and a column each; the last ones stand for no store."""
    n = len(stores)
    found = np.zeros((n + 1, n + 1), dtype=np.int64)
    for i, a in enumerate(stores):
        for j in range(i):
            found[i, j] = found[j, i] = pair_score(a, stores[j], labels)
    return found


def isolation_scores(apart: Distances, peers: Positions) -> Distances:
    """Give the isolation score of each region: the sum over the pairs of its peers."""
    own = apart[peers[:, :, None], peers[:, None, :]].sum(axis=(1, 2))
    return np.asarray(own // 2, dtype=np.int64)


def may_improve(apart: Distances, peers: Positions, takes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say for which regions a store that takes peers would be better isolated than the worst peer's.

    Parameters
    ----------
    apart
        From :func:`distances`.
    peers
        Regions by replicas.
    takes
        The stores that may take peers now or soon.

    Returns
    -------
    NDArray[np.bool_]
        True for every region that the checkers would move to a better location, and for few others.
    """
    found = np.zeros(len(peers), dtype=np.bool_)
    for start in range(0, len(peers), _CHUNK):
        found[start : start + _CHUNK] = _may_improve(apart, peers[start : start + _CHUNK], takes)
    return found


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
