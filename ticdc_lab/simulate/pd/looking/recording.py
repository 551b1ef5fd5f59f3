"""A run as pictures need it: what PD knew and where regions were, moment by moment; every operator, and why of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.measures import LEADERS, RunMoment, counts, shares, uneven
from ticdc_lab.pd_core.merge_checker import Neighbours
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.regions import LEARNER, VOTER, Peer, Region, RegionColumns
from ticdc_lab.pd_core.stores import NEVER_S
from ticdc_lab.pd_core.why import Opinion, explain
from ticdc_lab.simulate.pd.looking.decisions import Decision, Noted
from ticdc_lab.simulate.pd.world.changes import AppliedChange
from ticdc_lab.simulate.pd.world.running import Finished, Future, OperatorLife, finished_of, measured
from ticdc_lab.simulate.pd.world.start import KEYS_A_MIB, SECOND_US
from ticdc_lab.simulate.pd.world.world import World


class Placement(NamedTuple):
    """Where all regions are at a moment, a row a region in key order, a slot a peer.

    ``store`` and ``leader`` are store ids, 0 for none; ``size`` is MiB, ``read`` and ``write`` bytes a second, ``down``
    the stores whose peers leaders report as down.
    """

    id: NDArray[np.int64]
    store: NDArray[np.int32]
    leader: NDArray[np.int32]
    pending: NDArray[np.bool_]
    learner: NDArray[np.bool_]
    size: NDArray[np.float64]
    read: NDArray[np.float64]
    write: NDArray[np.float64]
    start_key: tuple[str, ...]
    down: frozenset[int]


class ClusterSample(NamedTuple):
    """A moment: what PD knows, where regions are, what runs.

    ``rates`` are each store's limits (add-peer, remove-peer; peers a minute), ``running`` counts operators by the kind
    they are limited as, ``moved_mib`` is what was copied since the start, ``io_mib`` what each store read and wrote of
    snapshots.
    """

    at_us: int
    cluster: Cluster
    placement: Placement
    rates: Mapping[int, tuple[float, float]]
    running: Mapping[Kind, int]
    moved_mib: float
    io_mib: Mapping[int, float]


class Drop(NamedTuple):
    """An operator that was created and cancelled before it started."""

    at_us: int
    desc: str
    region: int
    because: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A run."""

    samples: tuple[ClusterSample, ...]  # moments in order, the first at the start
    # Operators that started, in the order in which they ended; those that still run at the end come last.
    lives: tuple[Finished, ...]
    drops: tuple[Drop, ...]  # operators that never started
    decisions: tuple[Decision, ...]  # what was decided and why, see :mod:`ticdc_lab.simulate.pd.looking.decisions`
    happened: tuple[AppliedChange, ...] = ()  # what came from outside, words to PD with its answers or refusals

    def at(self, at_us: int) -> ClusterSample:
        """Give the last moment up to a time, the first where there is none."""
        return next((s for s in reversed(self.samples) if s.at_us <= at_us), self.samples[0])


class MomentRecorder(Noted):
    """Records the run that it is given to as ``on_sample``, from its first sample on."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: list[ClusterSample] = []
        self.drops: list[Drop] = []

    def __call__(self, world: World) -> bool:
        """Keep a moment; it never ends a run."""
        still_wanted()
        if not self.samples:
            self.world, world.listener = world, self
        if not self.samples or self.samples[-1].at_us < world.now_us:
            self.samples.append(sampled(world, self.samples[-1] if self.samples else None))
        return False

    def operator_changed(self, running: OperatorLife, before: str) -> None:
        if running.started_us < 0 and running.status in ("canceled", "expired"):
            op = running.op
            self.drops.append(Drop(self.world.now_us, op.desc, op.region, running.ended_because))

    @property
    def recording(self) -> Recording:
        """What was recorded so far."""
        world = self.world
        still = (finished_of(r, world.now_us) for r in world.controller.running.values())
        lives, kept = (*world.controller.ended, *still), tuple(self.kept)
        return Recording(tuple(self.samples), lives, tuple(self.drops), kept, tuple(world.happened))


def sampled(world: World, before: ClusterSample | None = None) -> ClusterSample:
    """Look at a cluster as it is now."""
    nodes = world.nodes.all
    cluster = world.cluster()
    cluster = cluster._replace(stores=dict(cluster.stores), influence=dict(cluster.influence))
    rates = {n.told.id: n.rates for n in nodes if n.known}
    running = {kind: n for kind, n in sorted(world.controller.counts.items()) if n}
    moved = float(world.tasks.moved_mib)
    io = {n.told.id: n.io_mib for n in nodes if n.known}
    return ClusterSample(world.now_us, cluster, placed(world, before and before.placement), rates, running, moved, io)


def placed(world: World, before: Placement | None = None) -> Placement:
    """Give where all regions are; keys are shared with an earlier moment where they are the same."""
    r = world.regions
    rows = np.fromiter(r.in_key_order(), np.int64)
    ids = np.array([*r.store_ids, 0], np.int32)
    width = max(1, int((r.store[rows] >= 0).sum(axis=1).max(initial=1)))
    order = np.argsort(r.store[rows] < 0, axis=1, kind="stable")[:, :width]
    slots = rows[:, None], order
    store = ids[r.store[slots]]
    key = r.start_key
    keys = tuple(key[row] for row in rows.tolist())
    if before is not None and before.start_key == keys:
        keys = before.start_key
    return Placement(
        r.id[rows], store, ids[r.leader[rows]], r.pending[slots] & (store > 0), (r.role[slots] == 1) & (store > 0),
        r.size[rows].copy(), r.read[rows].copy(), r.write[rows].copy(), keys,
        frozenset(r.store_ids[i] for i in r.down),
    )  # fmt: skip


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
    found = np.flatnonzero(sample.placement.id == region_id)
    return _region(sample, int(found[0])) if len(found) else None


def _region(sample: ClusterSample, i: int) -> Region:
    p = sample.placement
    slots = [k for k in range(p.store.shape[1]) if p.store[i, k] > 0]
    peers = tuple(Peer(k + 1, int(p.store[i, k]), LEARNER if p.learner[i, k] else VOTER) for k in slots)
    stores = frozenset(peer.store for peer in peers)
    pending = frozenset(int(p.store[i, k]) for k in slots if p.pending[i, k])
    end = p.start_key[i + 1] if i + 1 < len(p.start_key) else ""
    return Region(
        int(p.id[i]), peers, int(p.leader[i]), float(p.size[i]), 0, p.down & stores, pending, p.start_key[i], end
    )


def why_region(sample: ClusterSample, region_id: int) -> tuple[Opinion, ...]:
    """Ask every checker and scheduler what it would do with a region at a moment.

    ``sample``: the moment. ``region_id``: the region; an absent one gives nothing.
    """
    region = region_in(sample, region_id)
    if region is None:
        return ()
    place = int(np.flatnonzero(sample.placement.id == region_id)[0])
    last = len(sample.placement.id) - 1
    before = _region(sample, place - 1) if place else None
    after = _region(sample, place + 1) if place < last else None
    return explain(sample.cluster, region, Neighbours(before, after), running=dict(sample.running))


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
    moments = (
        RunMoment(
            s.at_us, peers(s), counts(s.cluster, LEADERS), not uneven(s.cluster), not uneven(s.cluster, LEADERS),
            s.moved_mib, s.io_mib,
        )
        for s in recording.samples
    )  # fmt: skip
    return measured(moments, recording.lives, from_us)


class Curve(NamedTuple):
    """A run over time: seconds, how far the worst store is from its share (percent of the mean share), GiB copied."""

    times_s: list[float]
    off_percent: list[float]
    moved_gib: list[float]


def curve(recording: Recording) -> Curve:
    samples = recording.samples
    off = [100 * excess(peers(s), shares(s.cluster)) for s in samples]
    return Curve([s.at_us / SECOND_US for s in samples], off, [s.moved_mib / 1024 for s in samples])
