"""Steps of operators as stores carry them out, tick by tick: snapshots share a store's disk, the rest takes a tick."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from ticdc_lab.pd_core.operators import (
    AddLearner,
    BecomeNonWitness,
    BecomeWitness,
    DemoteVoter,
    EnterJoint,
    LeaveJoint,
    MergeRegion,
    PromoteLearner,
    RemovePeer,
    SplitRegion,
    Step,
    TransferLeader,
)
from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.world.columns import AllRegions
from ticdc_lab.simulate.pd.world.start import SECOND_US
from ticdc_lab.simulate.pd.world.stores import Nodes


def with_pending_learner(region: Region, store: int, witness: bool = False) -> Region:
    peer = Peer(0, store, LEARNER, witness)
    return region._replace(peers=(*region.peers, peer), pending=region.pending | {store})


def after(region: Region, step: Step) -> Region | None:
    """Give a region after a step that needs no snapshot; None where its store refuses it."""
    match step:
        case TransferLeader(_, to):
            peer = region.peer_on(to)
            return None if peer is None or peer.role == LEARNER else region._replace(leader=to)
        case PromoteLearner(store):
            return _in_role(region, {store}, VOTER, (LEARNER,))
        case DemoteVoter(store):
            return _led_by_voter(_in_role(region, {store}, LEARNER, (VOTER,)))
        case RemovePeer(store):
            if region.leader == store:
                return None
            peers = tuple(p for p in region.peers if p.store != store)
            return region._replace(peers=peers, pending=region.pending - {store}, down=region.down - {store})
        case EnterJoint(up, down):
            single = len(up) + len(down) == 1
            entered = _in_role(region, up, VOTER if single else INCOMING, (LEARNER,))
            return _led_by_voter(entered and _in_role(entered, down, LEARNER if single else DEMOTING, (VOTER,)))
        case LeaveJoint():
            now = {INCOMING: VOTER, DEMOTING: LEARNER}
            left = region._replace(peers=tuple(p._replace(role=now.get(p.role, p.role)) for p in region.peers))
            return _led_by_voter(left)
        case BecomeWitness(store) | BecomeNonWitness(store):
            witness = isinstance(step, BecomeWitness)
            peers = tuple(p._replace(witness=witness) if p.store == store else p for p in region.peers)
            return region._replace(peers=peers)
        case _:
            return None


def _led_by_voter(region: Region | None) -> Region | None:
    """Give the region, None where its leader would be demoted: TiKV refuses that, as it refuses to remove it."""
    leader = region.peer_on(region.leader) if region is not None else None
    return None if leader is not None and leader.role == LEARNER else region


def _in_role(region: Region, stores: Collection[int], role: str, before: tuple[str, ...]) -> Region | None:
    if any((p := region.peer_on(s)) is None or p.role not in before for s in stores):
        return None
    peers = tuple(p._replace(role=role) if p.store in stores else p for p in region.peers)
    return region._replace(peers=peers)


def is_done(step: Step, region: Region) -> bool:
    """Whether a region's heartbeat shows that a step is carried out; merges and splits show differently."""
    match step:
        case AddLearner(store, _):
            return region.peer_on(store) is not None and store not in region.pending
        case PromoteLearner(store):
            return _has_role(region, (store,), (VOTER,))
        case DemoteVoter(store):
            return _has_role(region, (store,), (LEARNER,))
        case RemovePeer(store):
            return region.peer_on(store) is None
        case TransferLeader(_, to):
            return region.leader == to
        case EnterJoint(up, down):
            return _has_role(region, up, (INCOMING, VOTER)) and _has_role(region, down, (DEMOTING, LEARNER))
        case LeaveJoint(up, down):
            return _has_role(region, up, (VOTER,)) and _has_role(region, down, (LEARNER,))
        case BecomeWitness(store) | BecomeNonWitness(store):
            peer = region.peer_on(store)
            return peer is not None and peer.witness == isinstance(step, BecomeWitness)
        case _:
            return False


def _has_role(region: Region, stores: Collection[int], roles: tuple[str, ...]) -> bool:
    return all((p := region.peer_on(s)) is not None and p.role in roles for s in stores)


class Report(NamedTuple):
    """What a region's next heartbeat reports: the region as it is, merged into another or cut at keys.

    ``by`` is the store, by position, that carried it out.
    """

    row: int
    region: Region | None
    conf: int = 0
    merged_into: int = -1
    cut: bool = False
    keys: tuple[bytes, ...] = ()
    by: int = -1


@dataclass(slots=True)
class Task:
    """A step sent to a region's leader; sizes in MiB."""

    row: int
    step: Step
    at: int
    ready_tick: int
    conf: int
    version: int
    to_send: float = 0.0
    to_receive: float = 0.0
    sends: int = 0
    receives: int = 0
    started: bool = False
    sent_tick: int = 0


class Tasks:
    """What all stores are at; a store has one task a region."""

    def __init__(self, regions: AllRegions, nodes: Nodes) -> None:
        self.regions, self.nodes = regions, nodes
        self.of: dict[tuple[int, int], Task] = {}
        self.moved_mib = 0.0
        self.arrived: set[tuple[int, int]] = set()  # region and store of the snapshots that ended in this tick

    def tell(self, row: int, step: Step, tick: int) -> None:
        """Send a step to a region's leader; if it arrives, it acts from the next tick on."""
        leader = int(self.regions.leader[row])
        if leader < 0 or not self.nodes.hears(leader) or self._is_at(leader, row, step):
            return
        if isinstance(step, MergeRegion) and step.passive:
            return
        size = float(self.regions.size[row])
        conf, version = int(self.regions.conf[row]), int(self.regions.version[row])
        task = Task(row, step, leader, tick + 1, conf, version, size, size)
        task.to_receive = size / self.nodes.settings.compression
        self.of[leader, row] = task

    def _is_at(self, leader: int, row: int, step: Step) -> bool:
        """Whether the leader is at a step of the region; one that the region shows as done was resent in vain.

        A peer whose snapshot is under way may go, as in TiKV; PD's simulated stores have one task a region.
        """
        old, given_up = self.of.get((leader, row)), False
        if old is not None and isinstance(step, RemovePeer) and not self.nodes.settings.simulated_stores:
            given_up = isinstance(old.step, AddLearner) and old.step.store == step.store
        if old is None or not (given_up or is_done(old.step, self.regions.region(row))):
            return old is not None
        self._end(self.of.pop((leader, row)))
        return False

    def split(self, row: int, new: int, tick: int) -> None:
        """A region whose snapshot is under way was cut: its leader sends one of the new region, too.

        PD's simulated stores do not: the new one has the data.
        """
        old = self.of.get((int(self.regions.leader[row]), row))
        simulated = self.nodes.settings.simulated_stores
        if old is not None and isinstance(old.step, AddLearner) and old.started and not simulated:
            size, r = float(self.regions.size[new]), self.regions
            conf, version = int(r.conf[new]), int(r.version[new])
            task = Task(new, old.step, old.at, tick + 1, conf, version, size, size, started=True)
            task.to_receive = size / self.nodes.settings.compression
            self.of[old.at, new] = task

    def forget(self, store: int) -> None:
        for key in [k for k in self.of if k[0] == store]:
            self._end(self.of.pop(key))

    def tick(self, tick: int) -> list[Report]:
        """Advance every store; give what regions will report."""
        reports: list[Report] = []
        self.arrived.clear()
        for key, task in list(self.of.items()):
            if task.ready_tick > tick:
                continue
            before = len(reports)
            if self._step(task, tick, reports):
                self._end(task)
                self.of.pop(key, None)
            reports[before:] = [r._replace(by=task.at) for r in reports[before:]]
        return reports

    def _end(self, task: Task) -> None:
        for counter, i in (("sending", task.sends), ("receiving", task.receives)):
            if i:
                node = self.nodes.all[i - 1]
                setattr(node, counter, getattr(node, counter) - 1)
        task.sends = task.receives = 0

    def _step(self, task: Task, tick: int, reports: list[Report]) -> bool:
        r, simulated = self.regions, self.nodes.settings.simulated_stores
        cut = simulated and int(r.version[task.row]) > task.version
        if cut or not r.alive[task.row] or int(r.conf[task.row]) > task.conf:
            if simulated:
                task.sends = task.receives = 0  # the places of its snapshot stay taken
            return True
        match task.step:
            case AddLearner():
                return self._add(task, tick, reports)
            case RemovePeer(store):
                return self._remove(task, store, reports)
            case MergeRegion(_, target):
                if target not in r.row_of:
                    return True  # it was absorbed itself: TiKV merges siblings only (check_merge_proposal)
                reports.append(Report(task.row, None, merged_into=r.row_of[target]))
                return True
            case SplitRegion(_, keys):
                reports.append(Report(task.row, None, cut=True, keys=keys))
                return True
        if isinstance(task.step, EnterJoint) and self._demotes_leader(task.row, task.step):
            return True
        if isinstance(task.step, TransferLeader) and not self.nodes.all[self.regions.at[task.step.to_store]].runs:
            return True
        region = after(r.region(task.row), task.step)
        if region is not None and not (simulated and region == r.region(task.row)):
            reports.append(Report(task.row, region, conf=int(not isinstance(task.step, TransferLeader))))
        return True

    def _demotes_leader(self, row: int, step: EnterJoint) -> bool:
        """Whether a step demotes a leader that may not be demoted: its store does nothing, and PD resends."""
        leader = self.regions.known_leader(row)
        may = self.nodes.settings.demotes_leaders or leader < 0
        return not may and self.regions.store_ids[leader] in step.demote

    def _add(self, task: Task, tick: int, reports: list[Report]) -> bool:
        assert isinstance(task.step, AddLearner)
        region, to = self.regions.region(task.row), self.regions.at[task.step.store]
        if region.peer_on(task.step.store) is None:
            if task.started:
                return True
            task.started = True
            task.conf += 1
            self.nodes.forget_stale(to, region.id)
            reports.append(Report(task.row, with_pending_learner(region, task.step.store, task.step.witness), 1))
            return False
        if self.has_data(region, task.row, task.step.store):
            return True
        if not self.nodes.all[to].runs:
            return False
        sender = int(self.regions.leader[task.row])
        if sender < 0 or not self._send(task, sender, tick) or not self._receive(task, to, tick):
            return False
        self.moved_mib += region.size
        self.arrived.add((task.row, task.step.store))
        reports.append(Report(task.row, region._replace(pending=region.pending - {task.step.store})))
        return True

    def has_data(self, region: Region, row: int, store: int) -> bool:
        """Whether a peer has its snapshot, so that its step, resent, has nothing to send."""
        return store not in region.pending or (row, store) in self.arrived

    def _send(self, task: Task, at: int, tick: int) -> bool:
        if task.to_send <= 0:
            return True
        node = self.nodes.all[at]
        if not task.sends:
            if node.sending >= self.nodes.settings.sending:
                return False
            node.sending += 1
            task.sent_tick = tick
            task.sends = at + 1
        task.to_send -= self.nodes.take_io(task.sends - 1, tick, task.to_send)
        if task.to_send > 0:
            return False
        node = self.nodes.all[task.sends - 1]
        node.sending -= 1
        a_second = SECOND_US / self.nodes.settings.tick_us
        node.sent.append(((tick - task.sent_tick) / a_second, (tick - task.ready_tick) / a_second))
        task.sends = 0
        return True

    def _receive(self, task: Task, to: int, tick: int) -> bool:
        node = self.nodes.all[to]
        if not task.receives:
            if node.receiving >= self.nodes.settings.receiving:
                return False
            node.receiving += 1
            task.receives = to + 1
        task.to_receive -= self.nodes.take_io(to, tick, task.to_receive)
        return task.to_receive <= 0

    def _remove(self, task: Task, store: int, reports: list[Report]) -> bool:
        task.to_send -= self.nodes.settings.remove_mib_a_tick
        if task.to_send > 0:
            return False
        region = after(self.regions.region(task.row), task.step)
        if region is not None:
            reports.append(Report(task.row, region, 1))
        return True
