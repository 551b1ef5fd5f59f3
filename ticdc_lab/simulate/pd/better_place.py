"""Moving a peer of a rule to a place that isolates the region better (pkg/schedule/checker/rule_checker.go)."""

from __future__ import annotations

from ticdc_lab.simulate.pd.cluster import Cluster, region_stores
from ticdc_lab.simulate.pd.create import move_peer
from ticdc_lab.simulate.pd.explained import Notes
from ticdc_lab.simulate.pd.fit import RegionFit, RuleFit
from ticdc_lab.simulate.pd.location import distinct_score
from ticdc_lab.simulate.pd.operators import Kind, Operator
from ticdc_lab.simulate.pd.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.rules import AS_LEARNER, matches
from ticdc_lab.simulate.pd.stores import Store, label
from ticdc_lab.simulate.pd.strategy import Strategy, store_to_better, store_to_improve


def better_location(
    cluster: Cluster, region: Region, fit: RegionFit, rf: RuleFit, notes: Notes
) -> tuple[Operator, ...]:
    """Give the moves of a rule's worst placed peer to the stores that isolate the region best."""
    if not rf.rule.location_labels:
        return ()
    strategy = _strategy(cluster, region, rf)
    role = LEARNER if rf.rule.role == AS_LEARNER else VOTER
    found: tuple[Operator, ...] = ()
    for old in store_to_better(strategy, _stores(cluster, rf), notes).stores:
        better = store_to_improve(strategy, _beside(cluster, region, fit, rf, old), old, notes)
        moves = (Peer(0, to, role) for to in better.stores)
        desc = "move-to-better-location"
        found += tuple(move_peer(cluster, region, old, new, desc, kind=Kind.REPLICA) for new in moves)
    return found


def may_be_better(cluster: Cluster, region: Region, fit: RegionFit) -> bool:
    """Whether a better place is there now or soon for any of the worst placed peers, whichever of them PD takes."""
    for rf in fit.rules:
        stores, labels = _stores(cluster, rf), rf.rule.location_labels
        scores = {s.id: distinct_score(labels, stores, s) for s in stores} if labels else {}
        for old in [i for i, score in scores.items() if score == min(scores.values())]:
            beside = _beside(cluster, region, fit, rf, old)
            found = store_to_improve(_strategy(cluster, region, rf), beside, old, Notes())
            if found.stores or found.waits:
                return True
    return False


def _strategy(cluster: Cluster, region: Region, rf: RuleFit) -> Strategy:
    rule = rf.rule
    failover = rule.witness and cluster.config.witness
    return Strategy(cluster, region, rule.location_labels, rule.isolation_level, rule.constraints, failover)


def _stores(cluster: Cluster, rf: RuleFit) -> list[Store]:
    return [cluster.stores[p.store] for p in rf.peers]


def _beside(cluster: Cluster, region: Region, fit: RegionFit, rf: RuleFit, old: int) -> list[Store]:
    """Stores of the region that may serve a rule of the same role, of the same engine as the one left."""
    alike = [r.rule.constraints for r in fit.rules if r.rule.role == rf.rule.role]
    engine = label(cluster.stores[old], "engine")
    stores = [s for s in region_stores(cluster, region) if label(s, "engine") == engine]
    return [s for s in stores if any(matches(s, c) for c in alike)]
