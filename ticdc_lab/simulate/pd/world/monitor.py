"""What must never be: checked with every heartbeat of a region and every state of an operator (simulators.md, 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ticdc_lab.pd_core.balance_leader import BATCH
from ticdc_lab.pd_core.cluster import Cluster, fit_of, rules_of
from ticdc_lab.pd_core.lifecycle import STARTED, SUCCESS, may_follow
from ticdc_lab.pd_core.limits import LEAST_WINDOW_MIB, window_capacity
from ticdc_lab.pd_core.operators import Kind, Priority, RemovePeer, limited_as
from ticdc_lab.pd_core.regions import DEMOTING, LEARNER, Peer, Region, has_quorum, learners
from ticdc_lab.pd_core.replica_checker import REMOVE_EXTRA, REMOVE_EXTRA_OFFLINE
from ticdc_lab.pd_core.rules import AS_LEARNER
from ticdc_lab.pd_core.stores import is_disconnected
from ticdc_lab.simulate.pd.world.policy import LIMITS
from ticdc_lab.simulate.pd.world.running import CHECKER, OperatorLife, merges

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

ONE_PEER, QUORUM, LEADER, LIMIT, STORE_LIMIT, TRANSITION, VANISHED, FEWER, RULES, SUMS, SPACE, MOVED = INVARIANTS = (
    "One Peer a Store", "Quorum Kept", "The Leader Votes", "Schedule Limits Kept", "Store Limits Kept",
    "Legal Transitions", "No Operator on a Vanished Region", "No Fewer Healthy Replicas", "Rules Kept", "Sums Agree",
    "Used Space is That of Peers", "Each Snapshot is Moved Once",
)  # fmt: skip
_EXTRA = {Kind.LEADER: BATCH - 1, Kind.MERGE: 1}
"""By how many operators a limit may be passed: it is asked once for all of a round."""

_ROUNDED_MIB = 1e-6
"""By how much a sum of snapshots, less one of them, may differ from what it was before: floats are rounded."""


class Violated(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, because: str) -> None:
        super().__init__(f"{invariant}: {because}")
        self.invariant, self.because = invariant, because


class _Start(NamedTuple):
    """The state when an operator started: as it was, and as far as PD knew.

    ``ran`` are the stores that ran, ``known`` those that PD had heard of lately; ``before`` is the region.
    """

    cluster: Cluster
    before: Region
    ran: frozenset[int]
    known: frozenset[int]


class PdMonitor:
    """Looks at regions and operators as they change."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.at_start: dict[int, _Start] = {}
        self.caught_up_mib = 0.0
        self.other_mib = [n.used - m for n, m in zip(world.nodes.all, world.regions.members.mib, strict=True)]

    def region_changed(self, row: int, before: Region, told: Region | None = None) -> None:
        """Check a region after a heartbeat with news; ``told`` as its leader saw it, before it grew."""
        region = self.world.regions.region(row)
        if told is not None:
            caught_up = (before.pending - region.pending) & region.stores
            self.caught_up_mib += len(caught_up) * told.size
        stores = [p.store for p in region.peers]
        if len(set(stores)) < len(stores):
            raise Violated(ONE_PEER, f"region {region.id} has two peers on one store: {sorted(stores)}")
        leader = region.peer_on(region.leader)
        if region.leader and (leader is None or leader.role == LEARNER):
            raise Violated(LEADER, f"region {region.id} is led from store {region.leader}, which has no voter of it")
        r = self.world.controller.running.get(row)
        # A user may have a voter removed while another is silent: neither PD (AddRemovePeerOperator) nor TiKV minds.
        asked = r is None or (r.op.kind & Kind.ADMIN and isinstance(r.step, RemovePeer))
        if not asked and self.has_quorum(before) and not self.has_quorum(region, promoted(before, region)):
            raise Violated(QUORUM, f"region {region.id} lost its quorum by an operator: voters on {sorted(stores)}")

    def has_quorum(self, region: Region, besides: frozenset[int] = frozenset()) -> bool:
        """Whether a region's voters that have their data can decide: those that run, or that run as far as PD knows.

        Those ``besides`` count as if they ran.
        """
        known = frozenset(s.id for s in self.world.cluster().stores.values() if not is_disconnected(s))
        return any(has_quorum(region, (able | besides) - region.pending) for able in (self.running(), known))

    def running(self) -> frozenset[int]:
        return frozenset(n.told.id for n in self.world.nodes.all if n.runs)

    def operator_changed(self, r: OperatorLife, before: str) -> None:
        if not may_follow(before, r.status):
            raise Violated(TRANSITION, f"operator {r.number} ({r.op.desc}) went from {before} to {r.status}")
        if r.status == STARTED:
            self._started(r)
        elif before == STARTED:
            self._ended(r)
        if r.status != STARTED:
            self.at_start.pop(r.number, None)

    def _started(self, r: OperatorLife) -> None:
        world = self.world
        if not world.regions.alive[r.row]:
            raise Violated(VANISHED, f"operator {r.number} started for region {r.op.region}, which is gone")
        region, cluster = world.regions.region(r.row), world.cluster()
        known = frozenset(s.id for s in cluster.stores.values() if not is_disconnected(s))
        self.at_start[r.number] = _Start(cluster, region, self.running(), known)
        kind = limited_as(r.op.kind)
        asked = kind in LIMITS and (r.source != CHECKER or kind == Kind.REPLICA)  # checkers are asked for no other
        limit = getattr(world.config, LIMITS[kind]) if asked else None
        count = world.controller.counts[kind]
        if limit is not None and count > limit + _EXTRA.get(kind, 0):
            raise Violated(LIMIT, f"{count} operators run as {kind.name}, the limit is {limit}")
        if r.op.kind & Kind.ADMIN:
            return
        if r.sends is not None:
            sender, mib = r.sends
            windows = world.nodes.all[sender].windows
            fits = (
                used >= mib and used - mib + LEAST_WINDOW_MIB <= window_capacity(windows, Priority(p)) + _ROUNDED_MIB
                for p, used in enumerate(windows.used[: r.op.priority + 1])
            )
            if not any(fits):
                raise Violated(
                    STORE_LIMIT, f"store {world.regions.store_ids[sender]} sends more than its window allows"
                )
        for node in world.nodes.all:
            for name, bucket in zip(("add-peer", "remove-peer"), node.limits, strict=True):
                if bucket.tokens < 0:
                    raise Violated(STORE_LIMIT, f"store {node.told.id} is over its {name} limit")

    def _ended(self, r: OperatorLife) -> None:
        start = self.at_start.get(r.number)
        regions = self.world.regions
        if start is None or merges(r.op) is not None or r.op.kind & Kind.ADMIN or not regions.alive[r.row]:
            return
        if int(regions.conf[r.row]) - r.conf > r.conf_done:
            return  # a step of an operator before it was still carried out
        # A store that fell silent meanwhile counts as healthy: that was not the operator's doing.
        region, new = regions.region(r.row), self.running() - start.ran
        # As it was and as PD knew it: of a store that fell silent or came back it learns later. Without placement rules
        # it removes a peer too many without asking whether those that stay are on silent stores: the one on a leaving
        # store too, where voters are more than max-replicas (fixPeer in pkg/schedule/checker/replica_checker.go).
        extra = r.op.desc in (REMOVE_EXTRA, REMOVE_EXTRA_OFFLINE)
        views = {start.ran, start.known} | ({frozenset(start.cluster.stores)} if extra else set())
        found = [_harm(r, start, region, then, then | new) for then in sorted(views, key=sorted)]
        if all(found):
            raise Violated(*found[0])

    def space(self) -> None:
        """Check that stores use what their peers with data take, and that no snapshot was moved that no peer needed."""
        nodes, regions = self.world.nodes.all, self.world.regions
        waiting = [0.0] * len(nodes)
        for row in regions.members.pending_rows:
            for store in regions.region(row).pending:
                waiting[regions.at[store]] += float(regions.size[row])
        for i, (node, mib) in enumerate(zip(nodes, regions.members.mib, strict=True)):
            if i == len(self.other_mib):
                self.other_mib.append(node.used - mib + waiting[i])
            asked = self.other_mib[i] + mib - waiting[i] + sum(node.stale.values()) + node.to_compact
            if abs(node.used - asked) > 1:
                raise Violated(SPACE, f"store {node.told.id} uses {node.used:.0f} MiB, its peers take {asked:.0f}")
        moved = self.world.tasks.moved_mib
        if abs(moved - self.caught_up_mib) > 1:
            raise Violated(MOVED, f"{moved:.0f} MiB of snapshots were moved for {self.caught_up_mib:.0f} MiB of peers")

    def sums(self) -> None:
        """Check that what is counted along the way is what there is."""
        m, regions = self.world.regions.members, self.world.regions
        for i, (leads, follows, learns) in enumerate(m.lists):
            if (m.count[i], m.leaders[i]) != (len(leads) + len(follows) + len(learns), len(leads)):
                raise Violated(SUMS, f"store {regions.store_ids[i]}: {m.count[i]} peers counted")
            total = float(regions.size[[*leads, *follows, *learns]].sum())
            if abs(total - m.mib[i]) > 1:
                raise Violated(SUMS, f"store {regions.store_ids[i]}: {m.mib[i]} MiB counted, {total} there")


def promoted(before: Region, region: Region) -> frozenset[int]:
    """Give the stores whose learners became voters, but those that the leader reports as down or pending.

    More does PD not ask of a learner: not whether its store is silent by now (PromoteLearner in
    pkg/schedule/operator/builder.go, its CheckInProgress in step.go), nor does TiKV, while the log that the new voters
    have reaches to where it is cut (check_conf_change in raftstore).
    """
    learnt = frozenset(p.store for p in learners(before)) - frozenset(p.store for p in learners(region))
    return (learnt & region.stores) - region.down - region.pending


def _harm(
    r: OperatorLife, start: _Start, region: Region, then: frozenset[int], now: frozenset[int]
) -> tuple[str, str] | tuple[()]:
    """Give the invariant that an operator broke, and how, if some stores were able then and others are now.

    One that ended on its way may leave a joint state, in which rules may be fitted by a voter that is to be demoted.
    """
    had, has = _lasting(start.before, then), _lasting(region, now)
    if has < had and has < _voters_asked(start.cluster, region):
        return FEWER, f"region {region.id} has {has} healthy voters after {r.op.desc}, had {had}"
    had, has = wanted(start.cluster, start.before, then), wanted(start.cluster, region, now)
    if has < had and r.status == SUCCESS:
        return RULES, f"region {region.id} has {has} peers that its rules ask for after {r.op.desc}, had {had}"
    return ()


def _serves(region: Region, p: Peer, able: frozenset[int]) -> bool:
    return p.store not in region.pending and p.store in able


def _lasting(region: Region, able: frozenset[int]) -> int:
    """Count the voters of a region, with their data and on stores that run, which stay voters."""
    return sum(p.role not in (LEARNER, DEMOTING) and _serves(region, p, able) for p in region.peers)


def wanted(cluster: Cluster, region: Region, able: frozenset[int]) -> int:
    """Count the healthy peers of a region that placement rules ask for.

    Neither those that are too many nor a voter that is to be demoted count. Healthy ones are fitted alone: among all
    PD stops at the first set that satisfies the rules, even if a peer of it is lost and an orphan could replace
    it (fitRule in pkg/schedule/placement/fit.go), as fixOrphanPeers then lets it.
    """
    if not cluster.config.placement_rules:
        return min(_lasting(region, able), cluster.config.max_replicas)
    healthy = tuple(p for p in region.peers if p.role != DEMOTING and _serves(region, p, able))
    return sum(len(f.peers) for f in fit_of(cluster, region._replace(peers=healthy)).rules)


def _voters_asked(cluster: Cluster, region: Region) -> int:
    if not cluster.config.placement_rules:
        return cluster.config.max_replicas
    return sum(r.replicas for r in rules_of(cluster, region) if r.role != AS_LEARNER)
