"""How the transactions of a round are divided among the lanes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.workload.draws import Ints
from ticdc_lab.workload.settings import HOT_KEYS, Workload

_TURNS = 4
"""Transactions of hot keys that a lane commits in a round, on average."""


def weights_of(workload: Workload) -> NDArray[np.float64]:
    """Give what each key of hot-keys is worth, in the order of the keys."""
    weights: NDArray[np.float64] = np.arange(1.0, workload.keys_a_lane * workload.lanes + 1) ** -workload.zipf
    return weights


def widths_of(workload: Workload) -> Ints:
    """Give how many transactions each lane commits in a round; a lane of hot keys as many as its keys are worth."""
    if workload.kind != HOT_KEYS:
        return np.ones(workload.lanes, np.int64)
    worth = weights_of(workload).reshape(-1, workload.lanes).sum(axis=0)
    share: Ints = np.rint(worth / worth.sum() * workload.lanes * _TURNS).astype(np.int64)
    return np.maximum(1, share)
