"""A run of a cluster as pictures need it: what PD knew and where regions were, moment by moment; every operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.looking.decisions import Decision, listen
from ticdc_lab.simulate.pd.operators import Kind
from ticdc_lab.simulate.pd.world.changes import Happened
from ticdc_lab.simulate.pd.world.run import Run
from ticdc_lab.simulate.pd.world.running import Finished, finished_of
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


class Sample(NamedTuple):
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
    """A run.

    Parameters
    ----------
    samples
        Moments in order, the first at the start.
    lives
        Operators that started, in the order in which they ended; those that still run at the end come last.
    drops
        Operators that never started.
    decisions
        What was decided and why, see :mod:`ticdc_lab.simulate.pd.looking.decisions`.
    happened
        What came from outside, words to PD with its answers or refusals.
    """

    samples: tuple[Sample, ...]
    lives: tuple[Finished, ...]
    drops: tuple[Drop, ...]
    decisions: tuple[Decision, ...]
    happened: tuple[Happened, ...] = ()

    def at(self, at_us: int) -> Sample:
        """Give the last moment up to a time, the first where there is none."""
        return next((s for s in reversed(self.samples) if s.at_us <= at_us), self.samples[0])


def record(world: World, *, until_us: int, every_us: int = 1_000_000) -> Recording:
    """Let a cluster go on, and record it.

    Parameters
    ----------
    world
        A cluster that has not begun; it stands at ``until_us`` afterwards.
    until_us
        Virtual time, µs.
    every_us
        Between two samples, µs.
    """
    noted = listen(world)
    drops: list[Drop] = []
    told = world.controller.on_change

    def changed(running: object, before: str) -> None:
        told(running, before)  # type: ignore[arg-type]
        drop = _drop_of(running, world.now_us)
        if drop is not None:
            drops.append(drop)

    world.controller.on_change = changed
    samples = [sampled(world)]
    while world.now_us < until_us:
        still_wanted()
        world.run(min(until_us, samples[-1].at_us + every_us))
        samples.append(sampled(world, before=samples[-1]))
    return Recording(tuple(samples), _lives(world), tuple(drops), tuple(noted.kept), tuple(world.happened))


def recorded(run: Run, *, every_us: int = 1_000_000) -> Recording:
    """Play a run once more, which comes out the same, and record it.

    Parameters
    ----------
    run
        What :func:`ticdc_lab.simulate.pd.world.run.simulate` gave.
    every_us
        Between two samples, µs.
    """
    world = World(run.start, run.seed, run.policies, run.changes)
    return record(world, until_us=run.until_us, every_us=every_us)


def _drop_of(running: object, now_us: int) -> Drop | None:
    status, started_us = getattr(running, "status", ""), getattr(running, "started_us", 0)
    if started_us >= 0 or status not in ("canceled", "expired"):
        return None
    op = running.op  # type: ignore[attr-defined]
    return Drop(now_us, op.desc, op.region, running.ended_because)  # type: ignore[attr-defined]


def _lives(world: World) -> tuple[Finished, ...]:
    still = (finished_of(r, world.now_us) for r in world.controller.running.values())
    return (*world.controller.ended, *still)


def sampled(world: World, before: Sample | None = None) -> Sample:
    """Look at a cluster as it is now."""
    nodes = world.nodes.all
    cluster = world.cluster()
    cluster = cluster._replace(stores=dict(cluster.stores), influence=dict(cluster.influence))
    rates = {n.told.id: n.rates for n in nodes if n.known}
    running = {kind: n for kind, n in sorted(world.controller.counts.items()) if n}
    moved = float(world.tasks.moved_mib)
    io = {n.told.id: n.io_mib for n in nodes if n.known}
    return Sample(world.now_us, cluster, placed(world, before and before.placement), rates, running, moved, io)


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
