"""Where each cell of the region map stands: peers of a store packed into rows, kind by kind, leaders at the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ticdc_lab.simulate.pd.looking.recording import Sample

COLUMN = 1.0
"""Width of a store's column."""

_INSET = 0.06
_MOST_CELLS = 2400
_LENGTHEN = 1.06
_PLOT_ASPECT = 2.7
"""Width by height of the plot, so that cells come out as squares."""

KINDS = ("leader", "follower", "learner", "pending", "down")


class Cells(NamedTuple):
    """``each`` peers are a cell, ``across`` cells a row, the axis reaches up to ``top`` peers."""

    each: int
    across: int
    top: float


def fit(samples: Sequence[Sample]) -> Cells:
    """Choose cells that are neither too many nor too flat, the same for all moments."""
    counts = [s.region_count for sample in samples for s in sample.cluster.stores.values()]
    peers = max((sum(s.region_count for s in sample.cluster.stores.values()) for sample in samples), default=1)
    stores = max((len(sample.cluster.stores) for sample in samples), default=1)
    highest = max(1, *counts) if counts else 1
    each = max(1, -(-peers // _MOST_CELLS))
    cells = max(1, -(-highest // each))
    across = int(np.clip(round(np.sqrt(cells * _PLOT_ASPECT / stores)), 1, 24))
    return Cells(each, across, _LENGTHEN * highest)


def cells(sample: Sample, order: Sequence[int], size: Cells) -> dict[str, dict[str, list[Any]]]:
    """Give the cells of each kind.

    Returns
    -------
    dict
        ``x``, ``y`` (height), ``base``, ``width``, what they are ``of`` in words, their ``store``, and the ``region``
        of a cell that stands for one.
    """
    kinds = kinds_of(sample)
    out: dict[str, dict[str, list[Any]]] = {
        kind: {name: [] for name in ("x", "y", "base", "width", "of", "store", "region")} for kind in KINDS
    }
    p = sample.placement
    each_px = size.across * size.each
    width = (COLUMN - 2 * _INSET) / size.across
    for k, store in enumerate(order):
        rows, slots = np.nonzero(p.store == store)
        of = kinds[rows, slots]
        place = 0
        for code, kind in enumerate(KINDS):
            mine = p.id[rows[of == code]].tolist()
            groups = [mine[i : i + size.each] for i in range(0, len(mine), size.each)]
            part = out[kind]
            for group in groups:
                row, column = divmod(place, size.across)
                part["x"].append(round(k * COLUMN + _INSET + column * width, 4))
                part["width"].append(round(width, 4))
                part["base"].append(row * each_px)
                part["y"].append(each_px)
                part["of"].append(_said(group))
                part["store"].append(store)
                part["region"].append(group[0] if len(group) == 1 else None)
                place += 1
    return out


def _said(group: Sequence[int]) -> str:
    return f"region {group[0]}" if len(group) == 1 else f"{len(group)} regions: {group[0]} … {group[-1]}"


def kinds_of(sample: Sample) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Give the kind of each peer, as a position in :data:`KINDS`."""
    p = sample.placement
    kinds = np.where(p.store == p.leader[:, None], 0, 1).astype(np.int8)
    kinds[p.learner] = 2
    kinds[p.pending] = 3
    kinds[np.isin(p.store, sorted(p.down)) & (p.store > 0)] = 4
    return kinds
