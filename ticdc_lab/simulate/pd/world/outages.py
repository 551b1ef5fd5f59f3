"""Stores that stop, come back and join: elections, peers that leaders report as down, what PD sees of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.simulate.pd.regions import LEARNER, Region
from ticdc_lab.simulate.pd.world.columns import NONE
from ticdc_lab.simulate.pd.world.members import LEADS
from ticdc_lab.simulate.pd.world.settings import SECOND_US
from ticdc_lab.simulate.pd.world.start import StoreStart

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

_BUCKET = 8
"""Elections are won as in PD's simulated stores: by the last healthy peer of a map walked from a random place."""


def stop(world: World, store: int, down_s: float | None = None) -> None:
    """Let a store fall silent; its leaders are elected anew elsewhere.

    Parameters
    ----------
    world
        The cluster.
    store
        The store's id.
    down_s
        For how long leaders say at once that its peers are down; None: they say so with their next heartbeat after
        ``peer_down_after_s`` of silence.
    """
    i = world.regions.at[store]
    node = world.nodes.all[i]
    node.runs, node.silent_us = False, world.now_us
    node.down_after_s = world.settings.peer_down_after_s if down_s is None else -down_s
    world.tasks.forget(i)
    elect(world, list(world.regions.members.lists[i][LEADS]))
    report_down(world)


def resume(world: World, store: int) -> None:
    """Let a silent store come back with all its peers; PD hears of it with the next heartbeat."""
    i = world.regions.at[store]
    node = world.nodes.all[i]
    node.runs = True
    world.regions.down.pop(i, None)
    world.regions.down_rows.pop(i, None)
    world.heartbeats.expect_stale(i)
    leaderless = [row for row in world.regions.rows().tolist() if world.regions.leader[row] == NONE]
    elect(world, leaderless)
    world.patrol.mark_all(rows_on(world, i))


def join(world: World, start: StoreStart | int) -> None:
    """Let a store join: a new one, or one that was there at the start but not yet started."""
    if isinstance(start, int):
        start = next(s for s in world.start.stores if s.id == start)
    world.nodes.join(start, world.now_us)


def rows_on(world: World, i: int) -> list[int]:
    """Give the regions that have a peer on a store."""
    leads, follows, learns = world.regions.members.lists[i]
    return [*leads, *follows, *learns]


def elect(world: World, rows: list[int]) -> None:
    """Elect leaders for regions that have none that runs."""
    for row in rows:
        region = world.regions.region(row)
        leader = _elected(world, region)
        if leader != region.leader:
            world.regions.put(row, region._replace(leader=leader))
            world.controller.reported(row, 0, world.cluster(), world.now_us, world.tick)
            world.patrol.mark(row)


def _elected(world: World, region: Region) -> int:
    regions, nodes = world.regions, world.nodes.all
    able = [
        n
        for n, p in enumerate(region.peers)
        if nodes[regions.at[p.store]].runs and p.role != LEARNER and p.store not in region.pending
    ]
    votes = sum(p.role != LEARNER for p in region.peers)
    alive = sum(p.role != LEARNER and nodes[regions.at[p.store]].runs for p in region.peers)
    if not able or alive * 2 <= votes:
        return 0
    first = world.chance.randrange(_BUCKET)
    return region.peers[max(able, key=lambda n: (n - first) % _BUCKET)].store


def report_down(world: World) -> None:
    """Let leaders report the peers of stores that are silent for long enough."""
    for i, node in enumerate(world.nodes.all):
        if node.silent_us is None or not node.known or node.runs:
            continue
        silent_s = (world.now_us - node.silent_us) / SECOND_US
        if silent_s >= node.down_after_s:
            if i not in world.regions.down and node.down_after_s > 0:
                world.heartbeats.expect_down(i)
            elif i not in world.regions.down:
                world.patrol.mark_all(rows_on(world, i))
            world.regions.down[i] = silent_s + max(0.0, -node.down_after_s)


def any_silent(world: World) -> bool:
    """Whether a store that PD knows is silent, so that its age matters."""
    return any(n.silent_us is not None and n.known for n in world.nodes.all)
