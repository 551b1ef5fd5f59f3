"""Repair under placement rules: orphans, then rule by rule (pkg/schedule/checker/rule_checker.go)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster, fit_of, region_stores
from ticdc_lab.pd_core.create import add_peer, move_peer, remove_peer, set_role, set_witness, transfer_leader
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.filters import LEADER_TARGET, state_forbids
from ticdc_lab.pd_core.location import distinct_score
from ticdc_lab.pd_core.operators import Kind, Operator, Priority
from ticdc_lab.pd_core.regions import LEARNER, VOTER, Peer, Region, is_learner
from ticdc_lab.pd_core.rules import ANY_VOTER, AS_FOLLOWER, AS_LEADER, AS_LEARNER, RegionFit, Rule, RuleFit, matches
from ticdc_lab.pd_core.stores import PREPARING, SERVING, Store, is_disconnected, label
from ticdc_lab.pd_core.strategy import Strategy, store_to_add, store_to_better, store_to_fix, store_to_improve


def better_location(
    cluster: Cluster, region: Region, fit: RegionFit, rf: RuleFit, notes: Notes
) -> tuple[Operator, ...]:
    """Give the moves of a rule's worst placed peer to the stores that isolate the region best."""
    if not rf.rule.location_labels:
        return ()
    strategy = _strategy(cluster, region, rf)
    found: tuple[Operator, ...] = ()
    for old in store_to_better(strategy, _stores(cluster, rf), notes).stores:
        better = store_to_improve(strategy, _beside(cluster, region, fit, rf, old), old, notes)
        moves = (_new_peer(to, rf.rule, strategy.failover) for to in better.stores)
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


def _new_peer(store: int, rule: Rule, witness: bool) -> Peer:
    return Peer(0, store, LEARNER if rule.role == AS_LEARNER else VOTER, witness)


def _stores(cluster: Cluster, rf: RuleFit) -> list[Store]:
    return [cluster.stores[p.store] for p in rf.peers]


def _beside(cluster: Cluster, region: Region, fit: RegionFit, rf: RuleFit, old: int) -> list[Store]:
    """Stores of the region that may serve a rule of the same role, of the same engine as the one left."""
    alike = [r.rule.constraints for r in fit.rules if r.rule.role == rf.rule.role]
    engine = label(cluster.stores[old], "engine")
    stores = [s for s in region_stores(cluster, region) if label(s, "engine") == engine]
    return [s for s in stores if any(matches(s, c) for c in alike)]


def fix_orphans(cluster: Cluster, region: Region, fit: RegionFit) -> tuple[Operator, ...]:
    """Give the removal of an orphan, or of the lost peer that one can replace.

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
    """Check whether a rule misses a healthy peer, and which peer is lost, if one is."""
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


Found = tuple[Operator, ...]
_NO_LEADERS: Mapping[int, int] = MappingProxyType({})


def check_rules(cluster: Cluster, region: Region, leaders_given: Mapping[int, int] = _NO_LEADERS) -> Explained:
    """Give the operator that makes a region fit its placement rules; none where it fits, or nothing can be done.

    ``leaders_given`` counts how often each store was given the leader of an offline peer; the least used is next.
    """
    notes = Notes()
    if not region.leader:
        return notes.explained((), "the region has no leader")
    fit = fit_of(cluster, region)
    if not fit.rules:
        return notes.explained((), "no rule applies to the whole region: it must be split first")
    check = _Check(cluster, region, fit, notes, leaders_given)
    attempts: list[Callable[[], Found]] = [check.orphans, *(partial(check.fix_rule, r) for r in fit.rules)]
    for attempt in attempts:
        operators: Found = ()
        try:
            operators = attempt()
        except CannotBuild as e:  # it ends the attempt, not the check
            notes.said.append(str(e))
        if operators:
            return notes.explained(operators, f"{operators[0].desc}: {operators[0].brief}")
    return notes.explained((), notes.said[-1] if notes.said else "the region fits its rules")


class _Check:
    """One check of one region."""

    def __init__(
        self, cluster: Cluster, region: Region, fit: RegionFit, notes: Notes, leaders_given: Mapping[int, int]
    ) -> None:
        self.cluster, self.region, self.fit, self.notes = cluster, region, fit, notes
        self.leaders_given = leaders_given

    def orphans(self) -> Found:
        found = fix_orphans(self.cluster, self.region, self.fit)
        if self.fit.orphans and not found:
            self.notes.said.append("a peer that no rule wants stays until healthy peers satisfy every rule")
        return found

    def fix_rule(self, rf: RuleFit) -> Found:
        if len(rf.peers) < rf.rule.replicas:
            return self._add(rf)
        for peer in rf.peers:
            store = self.cluster.stores[peer.store]
            if peer.store in self.region.down:
                if store.heartbeat_age_s >= self.cluster.config.max_store_down_time_s:
                    return self._replace(rf, peer, "down")
                witness = self._witness_beside(peer) if self.cluster.config.witness and not is_learner(peer) else None
                if witness is not None:
                    return (set_witness(self.cluster, self.region, witness.store, False, "promote-witness-for-down"),)
            if store.state not in (PREPARING, SERVING):
                return self._replace(rf, peer, "offline")
        for peer in rf.misfits:
            found = self._fix_role(rf, peer)
            if found:
                return found
        return better_location(self.cluster, self.region, self.fit, rf, self.notes)

    def _witness_beside(self, peer: Peer) -> Peer | None:
        others = (p for p in self.region.peers if p.witness and p.id != peer.id)
        return next((p for p in others if p.store not in self.region.down and p.store in self.cluster.stores), None)

    def _add(self, rf: RuleFit) -> Found:
        strategy = _strategy(self.cluster, self.region, rf)
        chosen = store_to_add(strategy, _stores(self.cluster, rf), self.notes)
        if not chosen.stores:
            return self._swap(rf)
        return tuple(
            add_peer(
                self.cluster, self.region, _new_peer(to, rf.rule, strategy.failover), "add-rule-peer",
                kind=Kind.REPLICA, priority=Priority.HIGH,
            )
            for to in chosen.stores
        )  # fmt: skip

    def _swap(self, rf: RuleFit) -> Found:
        """Free a store that this rule needs by replacing the peer there that serves another rule."""
        for peer in self.region.peers:
            store = self.cluster.stores.get(peer.store)
            if not matches(store, rf.rule.constraints):
                continue
            other = self.fit.of_store(peer.store)
            if other is None or other is rf or not other.satisfied:
                continue
            return self._replace(other, peer, "swap-fit")
        return ()

    def _replace(self, rf: RuleFit, peer: Peer, status: str) -> Found:
        witness = self.cluster.config.witness and label(self.cluster.stores[peer.store], "engine") != "tiflash"
        failover = witness and (status == "down" or rf.rule.witness)
        strategy = _strategy(self.cluster, self.region, rf)._replace(failover=failover)
        chosen = store_to_fix(strategy, _stores(self.cluster, rf), peer.store, self.notes)
        leader = self._next_leader(peer) if self.region.leader == peer.store else 0
        desc = f"replace-rule-{status}-{'leader-' if leader else ''}peer"
        if failover and not leader:
            desc = f"fast-{desc}"
        return tuple(
            move_peer(
                self.cluster, self.region, peer.store, _new_peer(to, rf.rule, failover), desc, kind=Kind.REPLICA,
                priority=Priority.URGENT if failover else Priority.HIGH, leader=leader,
            )
            for to in chosen.stores
        )  # fmt: skip

    def _next_leader(self, peer: Peer) -> int:
        """Give the peer that leads meanwhile, so that a leaving store does not send all snapshots; 0: the old one."""
        ill = self.region.down | self.region.pending
        able = [
            p for p in self.region.peers if p.store == peer.store or (p.store not in ill and self._may_lead(p))
        ]  # fmt: skip
        best = min(able, key=lambda p: self.leaders_given.get(p.store, 0))
        return 0 if best.store == peer.store else best.store

    def _may_lead(self, peer: Peer) -> bool:
        store = self.cluster.stores.get(peer.store)
        if store is None or is_learner(peer) or peer.witness:
            return False
        if state_forbids(store, LEADER_TARGET, self.cluster.config):
            return False
        leading = (r.rule for r in self.fit.rules if r.rule.role in (AS_LEADER, ANY_VOTER))
        return any(matches(store, r.constraints) for r in leading)

    def _fix_role(self, rf: RuleFit, peer: Peer) -> Found:
        region, leads, role = self.region, self.region.leader == peer.store, rf.rule.role
        if is_learner(peer) and role != AS_LEARNER:
            return (set_role(self.cluster, region, peer.store, VOTER, "fix-peer-role"),)
        if role == AS_LEADER and not leads:
            if not self._may_lead(peer):
                raise CannotBuild(f"store {peer.store} may not lead")
            return (transfer_leader(self.cluster, region, peer.store, "fix-leader-role"),)
        if role == AS_FOLLOWER and leads:
            for other in region.peers:
                if self._may_lead(other):
                    return (transfer_leader(self.cluster, region, other.store, "fix-follower-role"),)
            raise CannotBuild("no other peer may lead")
        if role == AS_LEARNER and not is_learner(peer):
            return (set_role(self.cluster, region, peer.store, LEARNER, "fix-demote-voter"),)
        wanted = rf.rule.witness and self.cluster.config.witness
        if self.region.leader == peer.store and rf.rule.witness:
            raise CannotBuild("the leader cannot become a witness")
        if peer.witness == wanted or (wanted and self.region.pending):
            return ()
        desc = "fix-witness-peer" if wanted else "fix-non-witness-peer"
        return (set_witness(self.cluster, self.region, peer.store, wanted, desc),)
