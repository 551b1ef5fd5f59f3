"""Laying out the steps of an operator, with joint consensus and without it (pkg/schedule/operator/builder.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ticdc_lab.simulate.pd.builder import CannotBuild, Plan
from ticdc_lab.simulate.pd.location import matched_labels
from ticdc_lab.simulate.pd.regions import LEARNER, Peer


def lay_out(plan: Plan) -> None:
    """Fill in a plan's steps."""
    if plan.joint:
        _with_joint_consensus(plan)
    else:
        _without(plan)


def _with_joint_consensus(plan: Plan) -> None:
    """Learners first, then one change of all votes, then the removals, at last what witnesses become."""
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
    _change_votes(plan)
    for store in sorted(plan.remove):
        plan.do_remove(plan.remove[store])
    plan.do_witnesses_jointly()


def _change_votes(plan: Plan) -> None:
    """Move leadership before, after or within the joint change, wherever both leaders may vote."""
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


class _Round(NamedTuple):
    """One change of peers, and who leads while it is made."""

    add: Peer | None = None
    promote: Peer | None = None
    remove: Peer | None = None
    leader_before_add: int = 0
    leader_before_remove: int = 0


def _without(plan: Plan) -> None:
    """One change after the other; replacing goes first, since it keeps the number of votes."""
    while plan.add or plan.remove or plan.promote:
        _do_round(plan, _next_round(plan))
    plan.do_witnesses()
    plan.choose_leader()
    if plan.wanted_leader and plan.leader != plan.wanted_leader and plan.wanted_leader in plan.now:
        plan.do_transfer(plan.wanted_leader)


def _do_round(plan: Plan, round_: _Round) -> None:
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


def _next_round(plan: Plan) -> _Round:
    """Give the best change to make next: replace, promote, remove, add."""
    for rounds in (_replacements, _promotions, _removals, _additions):
        found = list(rounds(plan))
        if found:
            return max(found, key=lambda r: _preference(plan, r))
    raise CannotBuild("no peer may lead meanwhile")


def _replacements(plan: Plan) -> Iterator[_Round]:
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


def _led(plan: Plan, round_: _Round) -> Iterator[_Round]:
    """Every way to lead a replacement: before the addition, and before the removal."""
    able = [s for s in sorted(plan.now) if plan.may_lead(plan.now[s])]
    gone = round_.remove.store if round_.remove else 0
    new = [p.store for p in (round_.promote, round_.add) if p and p.store != gone and plan.may_lead(p)]
    for before_add in able:
        for before_remove in (*(s for s in able if s != gone), *new):
            yield round_._replace(leader_before_add=before_add, leader_before_remove=before_remove)


def _promotions(plan: Plan) -> Iterator[_Round]:
    for peer in _sorted(plan.promote)[:1]:
        yield _Round(promote=peer)


def _removals(plan: Plan) -> Iterator[_Round]:
    for peer in _sorted(plan.remove):
        for store in sorted(plan.now):
            if plan.may_lead(plan.now[store]) and store != peer.store:
                yield _Round(remove=peer, leader_before_remove=store)


def _additions(plan: Plan) -> Iterator[_Round]:
    for peer in _sorted(plan.add):
        for store in sorted(plan.now):
            if plan.may_lead(plan.now[store]):
                yield _Round(add=peer, leader_before_add=store)


def _sorted(peers: dict[int, Peer]) -> list[Peer]:
    return [peers[s] for s in sorted(peers)]


def _preference(plan: Plan, r: _Round) -> tuple[int, bool, int, bool, bool, int]:
    """Give PD's order of changes; of equally good ones the first is taken."""
    return (
        _nearness(plan, r),
        r.add is None or plan.is_up(r.leader_before_add),
        _age_of_leaders(plan, r),
        _brings_leader(plan, r),
        _leads_to_wanted(plan, r),
        _few_transfers(plan, r),
    )


def _nearness(plan: Plan, r: _Round) -> int:
    """Replace a peer by one nearby, so that isolation never drops in between."""
    if r.add is None or r.remove is None:
        return 0
    near = _match(plan, r.add.store, r.remove.store)
    return min(near, _match(plan, r.promote.store, r.add.store)) if r.promote else near


def _match(plan: Plan, one: int, other: int) -> int:
    stores = plan.cluster.stores
    if one not in stores or other not in stores:
        return 0
    return matched_labels(stores[one], stores[other], plan.cluster.config.location_labels)


def _age_of_leaders(plan: Plan, r: _Round) -> int:
    """Peers made by this operator should not lead: they may refuse."""
    age = -plan.added_at.get(r.leader_before_add, 0)
    if r.add is not None and r.add.store == r.leader_before_remove:
        return age - len(plan.steps) - 1
    return age - plan.added_at.get(r.leader_before_remove, 0)


def _brings_leader(plan: Plan, r: _Round) -> bool:
    adds = r.add is not None and r.add.role != LEARNER and r.add.store == plan.wanted_leader
    promotes = r.promote is not None and r.promote.store == plan.wanted_leader
    return bool(plan.wanted_leader) and (adds or promotes)


def _leads_to_wanted(plan: Plan, r: _Round) -> bool:
    return not plan.wanted_leader or (r.leader_before_remove or r.leader_before_add) == plan.wanted_leader


def _few_transfers(plan: Plan, r: _Round) -> int:
    if r.leader_before_add in (0, plan.leader):
        return 2 + (r.leader_before_remove in (0, plan.leader))
    return int(r.leader_before_remove in (0, r.leader_before_add))
