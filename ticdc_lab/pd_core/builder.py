"""From the peers a region has to those it should have: the steps in between, with joint consensus and without it
(pkg/schedule/operator/builder.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ticdc_lab.pd_core.cluster import Cluster, rules_of
from ticdc_lab.pd_core.filters import LEADER_TARGET, state_forbids
from ticdc_lab.pd_core.location import matched_labels
from ticdc_lab.pd_core.operators import (
    AddLearner,
    BecomeNonWitness,
    BecomeWitness,
    EnterJoint,
    Kind,
    LeaveJoint,
    PromoteLearner,
    RemovePeer,
    Step,
    TransferLeader,
)
from ticdc_lab.pd_core.regions import DEMOTING, LEARNER, Peer, Region
from ticdc_lab.pd_core.rules import ANY_VOTER, AS_LEADER, matches
from ticdc_lab.pd_core.scores import leader_score
from ticdc_lab.pd_core.stores import PREPARING, SERVING

Peers = dict[int, Peer]


class CannotBuild(Exception):
    """No operator leads to the wanted peers; the message has the reason."""


class StepPlan:
    """The state while steps are laid out: peers now, peers wanted, and what is still to do."""

    def __init__(
        self, cluster: Cluster, region: Region, wanted: Mapping[int, Peer], leader: int, *, check_rules: bool = True,
        forced: bool = False,
    ) -> None:  # fmt: skip
        self.cluster, self.region = cluster, region
        self.rules = rules_of(cluster, region) if check_rules and cluster.config.placement_rules else ()
        self.origin: Peers = {p.store: p for p in region.peers}
        self.now: Peers = dict(self.origin)
        self.wanted: Peers = dict(wanted)
        self.leader, self.wanted_leader = region.leader, leader
        self.forced = forced
        self.steps: list[Step] = []
        self.kind = Kind(0)
        self.added_at: dict[int, int] = {}
        self.add: Peers = {}
        self.remove: Peers = {}
        self.promote: Peers = {}
        self.demote: Peers = {}
        self.to_witness: Peers = {}
        self.to_full: Peers = {}
        self.promote_full: Peers = {}
        self.joint = cluster.config.joint_consensus
        self._compare()

    def _compare(self) -> None:
        if not any(p.role != LEARNER for p in self.wanted.values()):
            raise CannotBuild("the wanted peers have no voter")
        for store, old in sorted(self.origin.items()):
            new = self.wanted.get(store)
            if new is None:
                self.remove[store] = old
            else:
                self._compare_peer(old, new._replace(id=old.id))
        for store, new in sorted(self.wanted.items()):
            if store not in self.origin:
                self.add[store] = new
        changed = (self.add, self.remove, self.promote, self.to_witness, self.to_full, self.promote_full)
        changes = sum(len(peers) for peers in changed)
        if changes <= 1 and not self.demote and not (self.remove and len(self.wanted) == 1):
            self.joint = False
        if self.wanted_leader:
            leader = self.wanted.get(self.wanted_leader)
            if leader is None or leader.role == LEARNER:
                self.wanted_leader = 0
            elif not self.may_lead(leader):
                raise CannotBuild(f"store {leader.store} may not lead")

    def _compare_peer(self, old: Peer, new: Peer) -> None:
        if old.witness and not new.witness:
            if new.role != LEARNER:
                # A witness that votes gets its data as a learner and votes again afterwards.
                self.promote_full[new.store] = new
                self.wanted[new.store] = new._replace(role=LEARNER, witness=True)
                new = self.wanted[new.store]
            self.to_full[old.store] = new
        elif new.witness and not old.witness:
            self.to_witness[old.store] = new
        if old.role == LEARNER and new.role != LEARNER:
            self.promote[old.store] = new
        elif old.role != LEARNER and new.role == LEARNER:
            if self.joint:
                self.demote[old.store] = new
            else:
                self.remove[old.store], self.add[old.store] = old, new

    def may_lead(self, peer: Peer) -> bool:
        """Whether a peer may become the leader: a voter, its store in order, and a rule that lets it."""
        if peer.role in (LEARNER, DEMOTING) or peer.witness:
            return False
        if peer.store == self.leader:
            return True
        store = self.cluster.stores.get(peer.store)
        if store is None:
            return False
        if self.forced:
            return True
        if state_forbids(store, LEADER_TARGET, self.cluster.config):
            return False
        leading = [r for r in self.rules if r.role in (AS_LEADER, ANY_VOTER)]
        return not self.rules or any(matches(store, r.constraints) for r in leading)

    def is_up(self, store: int) -> bool:
        """Whether a store is neither leaving nor gone."""
        s = self.cluster.stores.get(store)
        return s is not None and s.state in (PREPARING, SERVING)

    def choose_leader(self) -> None:
        """Pick a leader where none is asked for: an up store, the present leader, an old voter, in this order.

        Of those that are alike the store with the lowest leader score leads (tikv/pd#10016).
        """
        if self.wanted_leader:
            return
        able = [s for s in sorted(self.wanted) if self.may_lead(self.wanted[s])]
        stores, policy = self.cluster.stores, self.cluster.config.leader_schedule_policy

        def preference(store: int) -> tuple[bool, bool, bool, int, float]:
            known = stores.get(store)
            score = leader_score(known, policy) if known is not None else 0.0
            old = store not in self.promote
            return self.is_up(store), store == self.leader, old, -self.added_at.get(store, 0), -score

        self.wanted_leader = max(able, key=preference, default=0)

    def do_transfer(self, store: int) -> None:
        self.steps.append(TransferLeader(self.leader, store))
        self.leader = store
        self.kind |= Kind.LEADER

    def do_add(self, peer: Peer) -> None:
        """Add a peer: as a learner, promoted at once where it is to vote."""
        self.steps.append(AddLearner(peer.store, peer.witness))
        if peer.role != LEARNER:
            self.steps.append(PromoteLearner(peer.store))
        self.now[peer.store] = peer
        self.added_at[peer.store] = len(self.steps)
        self.add.pop(peer.store, None)
        self.kind |= Kind.REGION

    def do_promote(self, peer: Peer) -> None:
        self.steps.append(PromoteLearner(peer.store))
        self.now[peer.store] = peer
        self.promote.pop(peer.store, None)

    def do_remove(self, peer: Peer) -> None:
        self.steps.append(RemovePeer(peer.store))
        self.now.pop(peer.store, None)
        self.remove.pop(peer.store, None)
        self.kind |= Kind.REGION

    def do_joint(self, *, enter: bool = True, lead: bool = False) -> None:
        """Promote and demote together, moving leadership in between where it must be."""
        up, down = tuple(sorted(self.promote)), tuple(sorted(self.demote))
        self.now.update(self.promote)
        self.now.update(self.demote)
        if (up or down) and enter:
            self.steps.append(EnterJoint(up, down))
        if lead and self.leader != self.wanted_leader:
            self.do_transfer(self.wanted_leader)
        if (up or down) and not (enter and len(up) + len(down) == 1):
            self.steps.append(LeaveJoint(up, down))
        self.promote, self.demote = {}, {}


def lay_out(plan: StepPlan) -> None:
    if plan.joint:
        # Learners first, then one change of all votes, then the removals, at last what witnesses become.
        for store in sorted(plan.add):
            peer = plan.add[store]
            plan.do_add(peer._replace(role=LEARNER))
            if peer.role != LEARNER:
                plan.promote[store] = peer
        plan.choose_leader()
        if not plan.wanted_leader:
            raise CannotBuild("no peer may lead")
        for store, peer in plan.remove.items():
            if peer.role != LEARNER:
                plan.demote[store] = peer._replace(role=LEARNER)
        before = plan.origin.get(plan.wanted_leader)
        after = plan.wanted.get(plan.region.leader)
        if before is not None and before.role != LEARNER and not before.witness:
            if plan.leader != plan.wanted_leader:
                plan.do_transfer(plan.wanted_leader)
            plan.do_joint()
        elif not plan.region.leader or (after is not None and after.role != LEARNER):
            plan.do_joint()
            if plan.leader != plan.wanted_leader:
                plan.do_transfer(plan.wanted_leader)
        else:
            plan.do_joint(lead=True)
        for store in sorted(plan.remove):
            plan.do_remove(plan.remove[store])
        plan.steps.extend(BecomeWitness(store) for store in sorted(plan.to_witness))
        plan.steps.extend(BecomeNonWitness(store) for store in sorted(plan.to_full))
        plan.promote = dict(plan.promote_full)
        if plan.promote:
            plan.kind |= Kind.REGION
        plan.do_joint()
    else:
        _without(plan)


class _Round(NamedTuple):
    """One change of peers, and who leads while it is made."""

    add: Peer | None = None
    promote: Peer | None = None
    remove: Peer | None = None
    leader_before_add: int = 0
    leader_before_remove: int = 0


def _without(plan: StepPlan) -> None:
    """One change after the other; replacing goes first, since it keeps the number of votes."""
    while plan.add or plan.remove or plan.promote:
        round_ = _next_round(plan)
        if round_.leader_before_add not in (0, plan.leader):
            plan.do_transfer(round_.leader_before_add)
        if round_.add is not None:
            plan.do_add(round_.add)
        if round_.promote is not None:
            plan.do_promote(round_.promote)
        if round_.leader_before_remove not in (0, plan.leader):
            plan.do_transfer(round_.leader_before_remove)
        if round_.remove is not None:
            plan.do_remove(round_.remove)
    for store in sorted(plan.to_full):
        plan.steps.append(BecomeNonWitness(store))
    for store in sorted(plan.promote_full):
        plan.do_promote(plan.promote_full[store])
    for store in sorted(plan.to_witness):
        plan.steps.append(BecomeWitness(store))
    if plan.to_full or plan.to_witness:
        plan.kind |= Kind.REGION
    plan.to_full, plan.to_witness, plan.promote_full = {}, {}, {}
    plan.choose_leader()
    if plan.wanted_leader and plan.leader != plan.wanted_leader and plan.wanted_leader in plan.now:
        plan.do_transfer(plan.wanted_leader)


def _next_round(plan: StepPlan) -> _Round:
    """Give the best change to make next: replace, promote, remove, add."""
    for rounds in (_replacements, _promotions, _removals, _additions):
        found = list(rounds(plan))
        if found:
            return max(found, key=lambda r: _preference(plan, r))
    raise CannotBuild("no peer may lead meanwhile")


def _replacements(plan: StepPlan) -> Iterator[_Round]:
    adds, removes = _sorted(plan.add), _sorted(plan.remove)
    for add in adds:
        for remove in removes:
            if (add.role == LEARNER) == (remove.role == LEARNER):
                yield from _led(plan, _Round(add=add, remove=remove))
    for promote in _sorted(plan.promote):
        for add in adds:
            for remove in removes:
                if add.role == LEARNER and remove.role != LEARNER and add.store != remove.store:
                    yield from _led(plan, _Round(add=add, promote=promote, remove=remove))


def _led(plan: StepPlan, round_: _Round) -> Iterator[_Round]:
    """Every way to lead a replacement: before the addition, and before the removal."""
    able = [s for s in sorted(plan.now) if plan.may_lead(plan.now[s])]
    gone = round_.remove.store if round_.remove else 0
    new = [p.store for p in (round_.promote, round_.add) if p and p.store != gone and plan.may_lead(p)]
    for before_add in able:
        for before_remove in (*(s for s in able if s != gone), *new):
            yield round_._replace(leader_before_add=before_add, leader_before_remove=before_remove)


def _promotions(plan: StepPlan) -> Iterator[_Round]:
    for peer in _sorted(plan.promote)[:1]:
        yield _Round(promote=peer)


def _removals(plan: StepPlan) -> Iterator[_Round]:
    for peer in _sorted(plan.remove):
        for store in sorted(plan.now):
            if plan.may_lead(plan.now[store]) and store != peer.store:
                yield _Round(remove=peer, leader_before_remove=store)


def _additions(plan: StepPlan) -> Iterator[_Round]:
    for peer in _sorted(plan.add):
        for store in sorted(plan.now):
            if plan.may_lead(plan.now[store]):
                yield _Round(add=peer, leader_before_add=store)


def _sorted(peers: dict[int, Peer]) -> list[Peer]:
    return [peers[s] for s in sorted(peers)]


def _preference(plan: StepPlan, r: _Round) -> tuple[int, bool, int, bool, bool, int]:
    """Give PD's order of changes; of equally good ones the first is taken."""
    return (
        _nearness(plan, r),
        r.add is None or plan.is_up(r.leader_before_add),
        _age_of_leaders(plan, r),
        _brings_leader(plan, r),
        _leads_to_wanted(plan, r),
        _few_transfers(plan, r),
    )


def _nearness(plan: StepPlan, r: _Round) -> int:
    """Replace a peer by one nearby, so that isolation never drops in between."""
    if r.add is None or r.remove is None:
        return 0
    near = _match(plan, r.add.store, r.remove.store)
    return min(near, _match(plan, r.promote.store, r.add.store)) if r.promote else near


def _match(plan: StepPlan, one: int, other: int) -> int:
    stores = plan.cluster.stores
    if one not in stores or other not in stores:
        return 0
    return matched_labels(stores[one], stores[other], plan.cluster.config.location_labels)


def _age_of_leaders(plan: StepPlan, r: _Round) -> int:
    """Peers made by this operator should not lead: they may refuse."""
    age = -plan.added_at.get(r.leader_before_add, 0)
    if r.add is not None and r.add.store == r.leader_before_remove:
        return age - len(plan.steps) - 1
    return age - plan.added_at.get(r.leader_before_remove, 0)


def _brings_leader(plan: StepPlan, r: _Round) -> bool:
    adds = r.add is not None and r.add.role != LEARNER and r.add.store == plan.wanted_leader
    promotes = r.promote is not None and r.promote.store == plan.wanted_leader
    return bool(plan.wanted_leader) and (adds or promotes)


def _leads_to_wanted(plan: StepPlan, r: _Round) -> bool:
    return not plan.wanted_leader or (r.leader_before_remove or r.leader_before_add) == plan.wanted_leader


def _few_transfers(plan: StepPlan, r: _Round) -> int:
    if r.leader_before_add in (0, plan.leader):
        return 2 + (r.leader_before_remove in (0, plan.leader))
    return int(r.leader_before_remove in (0, r.leader_before_add))
