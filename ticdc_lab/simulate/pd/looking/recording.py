"""What pictures ask of a recording: a moment's regions, why an operator or nothing came of one, what a run cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_lab.pd_core.measures import counts, shares
from ticdc_lab.pd_core.regions import Region, RegionColumns, place_of, region_at
from ticdc_lab.pd_core.stores import NEVER_S
from ticdc_lab.pd_core.survey import neighbours
from ticdc_lab.pd_core.why import Opinion, explain
from ticdc_lab.simulate.pd.world.recording import ClusterSample, Decision, Recording
from ticdc_lab.simulate.pd.world.running import Future, measured
from ticdc_lab.simulate.pd.world.start import KEYS_A_MIB, SECOND_US


def columns_of(sample: ClusterSample) -> RegionColumns:
    """Give the regions of a moment as columns, which forecasts and surveys ask."""
    p, ids = sample.placement, tuple(sorted(sample.cluster.stores))
    at = np.full(max([*ids, 0]) + 1, -1, np.int32)
    at[list(ids)] = np.arange(len(ids))
    there, n = p.store > 0, len(p.id)
    keys = pa.chunked_array([pa.array([*p.start_key, ""], pa.large_string())])
    down = np.isin(p.store, list(p.down)) & there
    slots = np.broadcast_to(np.arange(1, p.store.shape[1] + 1), p.store.shape)
    return RegionColumns(
        ids, p.id, at[p.leader], np.where(there, at[p.store], -1), np.where(there, slots, 0),
        (p.learner & there).astype(np.int8), np.zeros_like(there), down, p.pending,
        np.where(down.any(axis=1), NEVER_S, 0.0),
        p.size, (p.size * KEYS_A_MIB).astype(np.int64), keys.slice(0, n), keys.slice(1, n),
    )  # fmt: skip


def excess(counts: Mapping[int, int], share: Mapping[int, float]) -> float:
    """Give by how much the store farthest from its share misses it, as a part of the mean share."""
    mean = sum(share.values()) / max(1, sum(t > 0 for t in share.values()))
    return max((abs(counts[i] - t) for i, t in share.items()), default=0.0) / mean if mean else 0.0


def peers(sample: ClusterSample) -> dict[int, int]:
    """Give the peers on each store."""
    return counts(sample.cluster)


def region_in(sample: ClusterSample, region_id: int) -> Region | None:
    """Give a region as it was at a moment, None where there was none of this id."""
    columns = columns_of(sample)
    place = place_of(columns, region_id)
    return None if place is None else region_at(columns, place)


def why_region(sample: ClusterSample, region_id: int) -> tuple[Opinion, ...]:
    """Ask every checker and scheduler what it would do with a region at a moment.

    ``sample``: the moment. ``region_id``: the region; an absent one gives nothing.
    """
    columns = columns_of(sample)
    place = place_of(columns, region_id)
    if place is None:
        return ()
    region, beside = region_at(columns, place), neighbours(columns, place)
    return explain(sample.cluster, region, beside, running=dict(sample.running))


def why_operator(recording: Recording, number: int) -> Decision | None:
    """Give the decision that an operator came from, by its number; None where it was asked for from outside."""
    life = next((f for f in recording.lives if f.number == number), None)
    if life is None:
        return None
    same = (
        d
        for d in recording.decisions
        if d.at_us == life.created_us
        and any(op.region == life.region and op.desc == life.desc for op in d.told.operators)
    )
    return next(same, None)


def costs(recording: Recording, *, from_us: int = 0) -> Future:
    """Measure a run from a moment on, as :func:`ticdc_lab.simulate.pd.world.run.future` does."""
    return measured((s.measured for s in recording.samples), recording.lives, from_us)


class Curve(NamedTuple):
    """A run over time: seconds, how far the worst store is from its share (percent of the mean share), GiB copied."""

    times_s: list[float]
    off_percent: list[float]
    moved_gib: list[float]


def curve(recording: Recording) -> Curve:
    samples = recording.samples
    off = [100 * excess(peers(s), shares(s.cluster)) for s in samples]
    return Curve([s.at_us / SECOND_US for s in samples], off, [s.moved_mib / 1024 for s in samples])
