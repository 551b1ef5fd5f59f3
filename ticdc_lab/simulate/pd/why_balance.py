"""What the balance schedulers would do with one region if they drew it."""

from __future__ import annotations

from ticdc_lab.simulate.pd import balance_leader, balance_region
from ticdc_lab.simulate.pd.balance import LEADERS, PENDING_HERE, scale, score_after
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.explained import Explained, Notes
from ticdc_lab.simulate.pd.queue_of_stores import OUT
from ticdc_lab.simulate.pd.regions import Region


def why_leader_stays(cluster: Cluster, region: Region) -> Explained:
    """Give the leader transfer of a round that drew this region, or why there is none."""
    notes = Notes()
    if not cluster.config.leader_schedule_limit:
        return _limited(notes, "leader-schedule-limit 0")
    leader = cluster.stores.get(region.leader)
    if leader is None:
        return notes.explained((), "the region has no leader, or on a store that is not known")
    if not balance_leader.may_transfer(region):
        return notes.explained((), "a peer is down or pending, or a label forbids it")
    if region.hot:
        return notes.explained((), "the region is hot")
    by = scale(cluster, LEADERS)
    notes.look_at([s for s in sorted(region.stores) if s != leader.id])
    found = balance_leader.transfer(by, OUT, leader, region, notes)
    return notes.explained(found, found[0].brief if found else _least(notes, "no follower may lead instead"))


def why_peers_stay(cluster: Cluster, region: Region) -> Explained:
    """Give the move of a round that drew this region, from the fullest of its stores that may give a peer.

    PD draws a region for one source at a time; the sources are asked from the highest score down, as it does.
    """
    notes = Notes()
    if not cluster.config.region_schedule_limit:
        return _limited(notes, "region-schedule-limit 0")
    found = balance_region.field(cluster, notes)
    here = [i for i, s in enumerate(found.sources[:-1]) if s.id in region.stores]
    if not here:
        return notes.explained((), "no store of the region is a source with a lower one after it")
    reasons = []
    for i in here:
        source = found.sources[i]
        kind = PENDING_HERE if source.id in region.pending else ""
        why = balance_region.may_move(cluster, region, source.id, kind) or ("the region is hot" if region.hot else "")
        operators = () if why or not region.leader else balance_region.transfer(found, i, region, notes)
        if operators:
            return notes.explained(operators, operators[0].brief)
        score = score_after(found.scale, source)
        reasons.append(f"from store {source.id} (score {score:.2f}): {why or 'no store that may take it pays'}")
    return notes.explained((), "; ".join(reasons))


def _limited(notes: Notes, limit: str) -> Explained:
    notes.limit = limit
    return notes.explained((), f"the scheduler is off: {limit}")


def _least(notes: Notes, otherwise: str) -> str:
    """Say by how little the move that comes nearest to paying fails."""
    lost = [c for c in notes.compared if not c.held]
    if not lost:
        return otherwise
    c = min(lost, key=lambda c: c.target_score - c.source_score)
    have, would = f"store {c.source} has {c.source_score:.2f}", f"store {c.target} would have {c.target_score:.2f}"
    return f"no transfer pays: {have}, {would}"
