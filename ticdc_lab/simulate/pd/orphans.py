"""Peers that no placement rule wants: when they may go, and when they stand in for a lost one."""

from __future__ import annotations

from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.create import remove_peer, set_role
from ticdc_lab.simulate.pd.fit import RegionFit
from ticdc_lab.simulate.pd.operators import Operator
from ticdc_lab.simulate.pd.regions import VOTER, Peer, Region
from ticdc_lab.simulate.pd.stores import is_disconnected


def fix_orphans(cluster: Cluster, region: Region, fit: RegionFit) -> tuple[Operator, ...]:
    """Give the removal of an orphan, or of the lost peer that one can stand in for.

    Orphans go only once every rule is satisfied by healthy peers. Before that an orphan may replace a peer on a
    disconnected store, and of two or more orphans unhealthy ones go.
    """
    if not fit.orphans:
        return ()
    sick, lost = _first_sick(cluster, region, fit)
    if not sick:
        return (remove_peer(cluster, region, fit.orphans[0].store, "remove-orphan-peer"),)
    stands_in = _stand_in(cluster, region, fit, lost) if lost is not None else None
    if stands_in is not None:
        return (stands_in,)
    extra = len(region.peers) - sum(r.rule.replicas for r in fit.rules)
    return _surplus(cluster, region, fit, extra) if len(fit.orphans) >= 2 else ()


def _first_sick(cluster: Cluster, region: Region, fit: RegionFit) -> tuple[bool, Peer | None]:
    """Say whether a rule lacks a healthy peer, and which peer is lost, if one is."""
    for rule_fit in fit.rules:
        if not rule_fit.satisfied:
            return True, None
        for peer in rule_fit.peers:
            if _silent(cluster, peer) or peer.store in region.down:
                return True, peer
            if peer.store in region.pending:
                return True, None
    return False, None


def _silent(cluster: Cluster, peer: Peer) -> bool:
    store = cluster.stores.get(peer.store)
    return store is None or is_disconnected(store)


def _stand_in(cluster: Cluster, region: Region, fit: RegionFit, lost: Peer) -> Operator | None:
    """Let a healthy orphan take the place of a peer on a disconnected store."""
    for orphan in fit.orphans:
        unhealthy = orphan.store in region.down | region.pending or _silent(cluster, orphan)
        if unhealthy or lost.witness or orphan.witness or not _silent(cluster, lost):
            continue
        if not fit.allows(lost.store, cluster.stores[orphan.store]):
            continue
        if orphan.role == lost.role:
            return remove_peer(cluster, region, lost.store, "remove-replaced-orphan-peer")
        role = VOTER if lost.role == VOTER else lost.role
        desc = "replace-down-peer-with-orphan-peer"
        return set_role(cluster, region, orphan.store, role, desc, remove=lost.store)
    return None


def _surplus(cluster: Cluster, region: Region, fit: RegionFit, extra: int) -> tuple[Operator, ...]:
    """Of several orphans an unhealthy one goes, or, while there are peers enough, a disconnected or second one."""
    silent = next((p for p in fit.orphans if _silent(cluster, p)), None)
    healthy_seen = False
    for orphan in fit.orphans:
        if orphan.store in region.down | region.pending:
            return (remove_peer(cluster, region, orphan.store, "remove-unhealthy-orphan-peer"),)
        if healthy_seen and extra > 0:
            return (remove_peer(cluster, region, (silent or orphan).store, "remove-orphan-peer"),)
        healthy_seen = True
    return ()
