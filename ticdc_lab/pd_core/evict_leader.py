"""Leaders off a store, and onto one: what evict-leader, evict-slow-store and grant-leader do in a round."""

from __future__ import annotations

from ticdc_lab.pd_core import balance_leader
from ticdc_lab.pd_core.balance import FOLLOWER_HERE, LEADER_HERE, Draw
from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.config import EVICT_LEADER
from ticdc_lab.pd_core.create import transfer_leader
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.filters import LEADER_TARGET, by_state, keep
from ticdc_lab.pd_core.operators import Kind, Operator, Priority
from ticdc_lab.pd_core.regions import SCHEDULE, Region, voters

EVICT_BATCH = 3


def evict_leaders(cluster: Cluster, draw: Draw, store: int, desc: str, batch: int = 0) -> Explained:
    """Give a round that moves leaders away from a store: ``batch`` or three at most, urgently.

    A label forbids that to other schedulers, not to evict-leader, without which a store could not restart (since v8.2).
    Of regions drawn at once a healthy one goes first; of others the leader goes to a peer that is neither down nor
    pending. PD names all followers that may lead and TiKV takes its pick; as in PD's simulated stores it is the first
    here.
    """
    notes = Notes()
    found: dict[int, Operator] = {}
    for _ in range(batch or EVICT_BATCH):
        drawn = [r for r in draw(store, LEADER_HERE) if desc == EVICT_LEADER or SCHEDULE not in r.denied]
        region = next((r for r in drawn if not r.down | r.pending), drawn[0] if drawn else None)
        if region is None or region.id in found:
            continue
        others = (p.store for p in voters(region) if p.store not in region.down | region.pending | {region.leader})
        followers = [cluster.stores[i] for i in others if i in cluster.stores]
        targets = keep(followers, [by_state(LEADER_TARGET, cluster.config)], notes)
        if targets:
            _transfer(cluster, region, targets[0].id, desc, found, notes, Priority.URGENT, forced=False)
    because = f"leaders leave store {store}" if found else f"store {store} has no leader that could leave"
    return notes.explained(tuple(found.values()), because)


def grant_leader(cluster: Cluster, draw: Draw, store: int, desc: str) -> Explained:
    """Give a round that brings a leader to a store, for any state of the store and any rules."""
    notes = Notes()
    found: dict[int, Operator] = {}
    region = next((r for r in draw(store, FOLLOWER_HERE) if balance_leader.may_transfer(r)), None)
    if region is not None:
        _transfer(cluster, region, store, desc, found, notes, Priority.HIGH, forced=True)
    because = f"leaders come to store {store}" if found else f"store {store} has no follower that could lead"
    return notes.explained(tuple(found.values()), because)


def _transfer(
    cluster: Cluster, region: Region, to: int, desc: str, found: dict[int, Operator], notes: Notes,
    priority: Priority, *, forced: bool,
) -> None:  # fmt: skip
    try:
        found[region.id] = transfer_leader(
            cluster, region, to, desc, kind=Kind.LEADER, priority=priority, forced=forced
        )
    except CannotBuild as e:
        notes.said.append(str(e))
