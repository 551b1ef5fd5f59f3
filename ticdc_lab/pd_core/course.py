"""What becomes of one region: the checkers are asked, what they answer is done to it, and they are asked again."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ticdc_lab.pd_core.checkers import check_joint_state, check_repairs
from ticdc_lab.pd_core.cluster import Cluster, fit_of, is_replicated
from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.operators import (
    AddLearner,
    BecomeNonWitness,
    BecomeWitness,
    DemoteVoter,
    EnterJoint,
    LeaveJoint,
    Operator,
    PromoteLearner,
    RemovePeer,
    TransferLeader,
)
from ticdc_lab.pd_core.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.pd_core.rules import matches
from ticdc_lab.pd_core.stores import NEVER_S, PREPARING, REMOVED, SERVING, is_disconnected
from ticdc_lab.pd_core.strategy import NO_STORE


class Move(NamedTuple):
    """A peer that PD would make: what for, the store it replaces (0 for none), and the stores it may go to.

    ``costs`` is whether a store limit counts the new one, ``frees`` whether one counts the old one: a witness without
    data is free. Without targets the old one goes, or becomes a witness.
    """

    what: str
    old: int
    targets: frozenset[int]
    costs: bool = True
    frees: bool = True


class Course(NamedTuple):
    """What PD would make of a region, why it stays unfit after that, "" where it does not, and the region then."""

    moves: tuple[Move, ...]
    stuck: str
    region: Region


_MOST_MOVES = 8


def course_of(cluster: Cluster, region: Region) -> Course:
    """Play the repairs of a region out."""
    moves: list[Move] = []
    if not region.leader:
        return Course((), "the region has no leader", region)
    region = out_of_joint_state(cluster, region)
    seen: set[Region] = set()
    while len(moves) < _MOST_MOVES:
        seen.add(region)
        told = check_repairs(cluster, region)
        if told.limit:
            return Course(tuple(moves), "replica-schedule-limit is 0", region)
        if (op := told.operator) is None:
            break
        moves += _moves(cluster, region, told, op, moves)
        region = _done(region, op)
        if region in seen:
            return Course(tuple(moves), f"{op.desc} is not played out here", region)
    stuck = "" if is_well(cluster, region) else _why_stuck(told)
    return Course(tuple(moves), stuck, region)


def _moves(cluster: Cluster, region: Region, told: Explained, op: Operator, before: list[Move]) -> list[Move]:
    """Give the peers that an operator makes or removes, and those whose data it brings or drops as witnesses change."""
    removed = next((s.store for s in op.steps if isinstance(s, RemovePeer)), 0)
    empty = {p.store for p in region.peers if p.witness}
    found: list[Move] = []
    for step in op.steps:
        match step:
            case AddLearner(store, witness) if not found and store != removed:
                what = _what_for(cluster, region, op, store)
                found.append(Move(what, removed, _able(told, region, store), not witness, removed not in empty))
            case BecomeNonWitness(store):
                made = next((m for m in reversed(before) if store in m.targets and not m.costs), None)
                found.append(Move(TO_FULL, 0, made.targets if made else frozenset({store})))
            case BecomeWitness(store):
                found.append(Move(TO_WITNESS, store, frozenset()))
            case _:
                pass
    again = any(isinstance(s, AddLearner) and s.store == removed for s in op.steps)
    if removed and not again and not any(m.old == removed for m in found):
        found.append(Move(why_it_leaves(cluster, removed) or EXTRA, removed, frozenset(), frees=removed not in empty))
    return found


def out_of_joint_state(cluster: Cluster, region: Region) -> Region:
    """Give a region as PD's first checker, which no limit holds back, makes it: no joint change is half done."""
    left = check_joint_state(cluster, region).operator
    return region if left is None else _done(region, left)


def _what_for(cluster: Cluster, region: Region, op: Operator, target: int) -> str:
    """Name what a peer is made for: a lost one, a better place, or one that a rule misses."""
    if any(isinstance(s, RemovePeer) for s in op.steps):
        return BETTER if op.desc == "move-to-better-location" else ""
    if len(cluster.rules) < 2 or not cluster.config.placement_rules:
        return MISSING
    store = cluster.stores[target]
    lacking = (f.rule for f in fit_of(cluster, region).rules if len(f.peers) < f.rule.replicas)
    rule = next((r for r in lacking if matches(store, r.constraints)), None)
    return f"{MISSING} of rule {rule.group}/{rule.id}" if rule is not None else MISSING


MISSING, BETTER, EXTRA = "missing peers", "better places", "peers too many"
TO_FULL, TO_WITNESS = "witnesses that become full peers", "peers that become witnesses"


def _able(told: Explained, region: Region, target: int) -> frozenset[int]:
    """Give the stores among which the target was chosen by its score: the best isolated that may take the peer."""
    best = {s.store for s in told.scored if s.what == "region score" and s.store not in region.stores}
    return frozenset(best | {target})


def is_well(cluster: Cluster, region: Region) -> bool:
    """Whether a region has the peers that it should have, none of them on a store that they leave."""
    gone = (why_it_leaves(cluster, p.store) for p in region.peers)
    return is_replicated(cluster, region) and not any(gone)


def _why_stuck(told: Explained) -> str:
    """Give why nothing more is done: the reason, and what refused the stores."""
    if (because := told.because).endswith("is false"):
        return because
    by_why: dict[str, list[int]] = defaultdict(list)
    for r in told.rejected:
        if r.role == "target" and r.filter != "excluded" and not any(r.store in ids for ids in by_why.values()):
            by_why[r.why.split(": another")[0]].append(r.store)
    refused = []
    for why, ids in sorted(by_why.items(), key=lambda w: -len(w[1])):
        named = ", ".join(map(str, sorted(ids)[:6])) + (" .." if len(ids) > 6 else "")
        refused.append(f"store{'s' if len(ids) > 1 else ''} {named}: {why}")
    if not refused and because == NO_STORE:
        return f"{because} (every store has a peer of the region)"
    return f"{because} ({'; '.join(refused)})" if refused else because


def _done(region: Region, op: Operator) -> Region:
    """Give a region after all steps of an operator."""
    peers = {p.store: p for p in region.peers}
    leader, fresh = region.leader, max((p.id for p in region.peers), default=0) + 1
    for step in op.steps:
        match step:
            case AddLearner(store, witness):
                peers[store] = Peer(fresh, store, LEARNER, witness)
                fresh += 1
            case PromoteLearner(store):
                peers[store] = peers[store]._replace(role=VOTER)
            case DemoteVoter(store):
                peers[store] = peers[store]._replace(role=LEARNER)
            case EnterJoint(up, down) | LeaveJoint(up, down):
                peers |= {s: peers[s]._replace(role=VOTER) for s in up if s in peers}
                peers |= {s: peers[s]._replace(role=LEARNER) for s in down if s in peers}
            case RemovePeer(store):
                peers.pop(store, None)
            case BecomeWitness(store) | BecomeNonWitness(store):
                peers[store] = peers[store]._replace(witness=isinstance(step, BecomeWitness))
            case TransferLeader(_, to):
                leader = to
            case _:
                pass
    kept = frozenset(peers)
    return region._replace(
        peers=tuple(peers.values()), leader=leader if leader in kept else min(kept, default=0),
        down=region.down & kept, pending=region.pending & kept,
    )  # fmt: skip


def why_it_leaves(cluster: Cluster, store_id: int) -> str:
    """Give why peers leave a store, "" if they do not."""
    store = cluster.stores.get(store_id)
    if store is None or store.state == REMOVED:
        return f"store {store_id} is gone"
    if store.state not in (PREPARING, SERVING):
        return f"store {store.id} leaves"
    if store.heartbeat_age_s >= min(cluster.config.max_store_down_time_s, NEVER_S):
        return f"store {store.id} is down"
    return f"store {store.id} is silent" if is_disconnected(store) else ""
