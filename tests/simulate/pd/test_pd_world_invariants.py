"""Invariants of the whole simulator, each with a planted bug that it catches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import pytest
from worlds import S, small

from ticdc_lab.pd_core import rule_checker
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.create import remove_peer, transfer_leader
from ticdc_lab.pd_core.operators import Kind, MergeRegion, RemovePeer, TransferLeader
from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, Peer
from ticdc_lab.simulate.pd.world import tasks
from ticdc_lab.simulate.pd.world.changes import ClusterChange, CutOff, Pdctl, StopStore, Timed
from ticdc_lab.simulate.pd.world.columns import LEARNS, Members
from ticdc_lab.simulate.pd.world.controller import Controller
from ticdc_lab.simulate.pd.world.monitor import (
    FEWER,
    INVARIANTS,
    LEADER,
    LIMIT,
    MOVED,
    ONE_PEER,
    QUORUM,
    RULES,
    SPACE,
    STORE_LIMIT,
    SUMS,
    TRANSITION,
    VANISHED,
    PdMonitor,
    Violated,
    wanted,
)
from ticdc_lab.simulate.pd.world.run import PdRun, simulate
from ticdc_lab.simulate.pd.world.running import OperatorLife
from ticdc_lab.simulate.pd.world.stores import Nodes
from ticdc_lab.simulate.pd.world.tasks import Tasks
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.scenario import scenario_from_text


class Bug(NamedTuple):
    """A fault in the simulator, the invariant that it breaks, and what must happen for it to show."""

    invariant: str
    owner: Any
    attribute: str
    fault: Callable[[Any], Any]
    changes: tuple[ClusterChange, ...] = ()
    on: tuple[int, ...] = (1, 2, 3)
    config: Config = Config()
    io_mib_a_tick: float = 100.0
    for_s: int = 20


def _twice(real: Any) -> Any:
    return lambda region, store, witness=False: real(region, region.peers[0].store, witness)


def _leads_learner(real: Any) -> Any:
    def after(region: Any, step: Any) -> Any:
        found = real(region, step)
        gone = [p for p in region.peers if p.store != region.leader]
        return found and found._replace(leader=found.leader if found.peers != region.peers else gone[0].store + 90)

    return after


def _jumps(real: Any) -> Any:
    def end(self: Controller, r: OperatorLife, status: str, now_us: int, because: str = "") -> None:
        real(self, r, status, now_us, because)
        self.on_change(r, "success")

    return end


def _removes_early(real: Any) -> Any:
    """A move that removes the old peer without having added the new one."""

    def add(self: World, operators: Any, because: str, source: str) -> int:
        cut = [
            op if any(isinstance(s, TransferLeader) for s in op.steps)
            else op._replace(steps=tuple(s for s in op.steps if isinstance(s, RemovePeer)))
            for op in operators
        ]  # fmt: skip
        return int(real(self, cut, because, source))

    return add


def _drops_wanted_learners(real: Any) -> Any:
    """A checker that takes learners for orphans, no matter what the rules ask."""

    def fix(cluster: Any, region: Any, fit: Any) -> Any:
        found = [p for p in region.peers if p.role == "learner" and p.store not in region.pending]
        if not found:
            return real(cluster, region, fit)
        return (remove_peer(cluster, region, found[0].store, "remove-orphan-peer"),)

    return fix


_LEARNERS = json.dumps({
    "group_id": "tiflash", "id": "t", "role": "learner", "count": 1,
    "label_constraints": [{"key": "zone", "op": "in", "values": ["z4"]}],
})  # fmt: skip

BUGS = (
    Bug(ONE_PEER, tasks, "with_pending_learner", _twice),
    Bug(LEADER, tasks, "after", lambda real: lambda region, step: (f := real(region, step))
        and f._replace(peers=tuple(p._replace(role="learner") for p in f.peers))),
    Bug(QUORUM, tasks, "after", lambda real: lambda region, step: (f := real(region, step))
        and f._replace(pending=frozenset(p.store for p in f.peers if p.store != f.leader))),
    Bug(LIMIT, World, "seen", lambda real: lambda self, s: real(self, s)._replace(running={}),
        config=Config(region_schedule_limit=1)),
    Bug(STORE_LIMIT, Nodes, "take_tokens", lambda real: lambda self, i, w, cost, t: real(self, i, w, 2 * cost, t),
        (Pdctl("store limit all 60"),)),
    Bug(TRANSITION, Controller, "end", _jumps),
    Bug(VANISHED, Controller, "_refusal", lambda real: lambda *_: ""),
    Bug(FEWER, World, "add", _removes_early),
    Bug(RULES, rule_checker, "fix_orphans", _drops_wanted_learners,
        (Pdctl("store label 4 zone=z4"), Pdctl(f"config placement-rules save '{_LEARNERS}'"))),
    Bug(SUMS, Members, "_add", lambda real: lambda self, s, kind, one, size: real(self, s, LEARNS, one, size)),
    Bug(SPACE, Nodes, "use", lambda real: lambda self, i, mib: real(self, i, 2 * mib)),
    Bug(MOVED, Tasks, "has_data", lambda real: lambda *_: False, (Pdctl("store label 4 zone=z4"),
        Pdctl(f"config placement-rules save '{_LEARNERS}'")), io_mib_a_tick=5.0, for_s=90),
)  # fmt: skip


def run(bug: Bug | None = None) -> PdRun:
    """Regions on three of four stores; a fourth one takes its share."""
    changes = tuple(Timed(2 * S, c) for c in (bug.changes if bug else ()))
    given = bug or Bug(SUMS, None, "", lambda real: real)
    start = small(60, 4, given.on, 6000, given.config, io_mib_a_tick=given.io_mib_a_tick)
    return simulate(start, given.for_s * S, changes=changes)


def test_nothing_is_violated_without_a_bug() -> None:
    """The same run, with no fault planted; also where a rule asks for learners, and less than before is asked for."""
    assert run().violation is None
    for asked in (b for b in BUGS if b.invariant in (RULES, MOVED)):
        assert run(asked._replace(owner=None)).violation is None
    fewer = Bug(RULES, None, "", lambda real: real, (Pdctl("config set max-replicas 1"),))
    assert run(fewer).violation is None


@pytest.mark.parametrize("bug", [b for b in BUGS if b.invariant != VANISHED], ids=lambda b: b.invariant)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each invariant notices the fault that breaks it, and the run ends there."""
    monkeypatch.setattr(bug.owner, bug.attribute, bug.fault(getattr(bug.owner, bug.attribute)))
    found = run(bug)
    assert found.violation is not None and found.violation.invariant == bug.invariant, found.violation
    assert found.trace.to_pylist()[-1]["kind"] == "violated"


def test_an_operator_for_a_region_that_is_gone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region merges into its neighbour while an operator is made for it, and that is admitted all the same."""
    there = World(small(6, 4), seed=1)
    there.monitor = PdMonitor(there)
    op = transfer_leader(there.cluster(), there.regions.region(0), 2, "late", kind=Kind.LEADER)
    made = there.controller.made(op, 0)
    there.regions.merge(0, 1)
    assert there.controller.add([made], 0, 0) == 0
    monkeypatch.setattr(Controller, "_refusal", lambda *_: "")
    with pytest.raises(Violated, match=VANISHED):
        there.controller.add([replace(made, status="created")], 0, 0)


def ids_in_order(there: World) -> list[int]:
    """Give the regions in the order of keys; bounded, as a chain that is broken may have no end."""
    return [int(there.regions.id[row]) for row in islice(there.regions.in_key_order(), 20)]


@pytest.mark.parametrize(
    "happens", ["nothing", "the target is absorbed", "the source is absorbed", "the target is cut"]
)
def test_only_siblings_merge(happens: str) -> None:
    """What was reported long ago may come to a region whose neighbour is another one by now (seed 422 of the swarm)."""
    there = World(small(6, 3, size=60), seed=1)
    there.monitor = PdMonitor(there)
    there.tasks.tell(1, MergeRegion(2, 3), 0)
    if happens == "the target is absorbed":
        there.regions.merge(2, 3)
    elif happens == "the source is absorbed":
        there.regions.merge(1, 0)
    elif happens == "the target is cut":
        there.split(2)
    before = ids_in_order(there)
    there.run(2 * S)
    after = ids_in_order(there)
    assert after == (before if happens != "nothing" else [1, 3, 4, 5, 6])


def test_every_invariant_has_its_bug() -> None:
    """No check without a fault that it catches."""
    assert {b.invariant for b in BUGS} == set(INVARIANTS)


def test_a_store_that_dies_costs_no_quorum_by_operators() -> None:
    """Repairs of what a dead store held keep all invariants."""
    start = small(60, 5, limit=6000, config=Config(max_store_down_time_s=30.0), peer_down_after_s=10.0)
    found = simulate(start, 120 * S, changes=[Timed(5 * S, StopStore(1))])
    assert found.violation is None
    repairs = {desc: n for desc, n in found.world.controller.created.items() if desc.startswith("replace-rule-down")}
    assert sum(repairs.values()) == 36, repairs


@pytest.mark.parametrize(("store", "seed"), [(1, 3), (2, 1)])
def test_a_store_that_dies_while_operators_run_is_not_their_doing(store: int, seed: int) -> None:
    """Neither one that gives nor one that stays: operators may end with fewer healthy replicas, and more lead than may.

    Where the new leader is the peer to go, PD gives the move up and takes the region out of its joint state.
    """
    start = small(300, 5, (1, 2, 3), 200)
    found = simulate(start, 90 * S, seed=seed, changes=[Timed(20 * S, StopStore(store))])
    assert found.violation is None
    ended = found.operators.to_pylist()
    refused = {o["region"] for o in ended if "would be demoted" in (o["ended_because"] or "")}
    left = {o["region"] for o in ended if o["desc"] == "leave-joint-state" and o["status"] == "success"}
    assert left and left <= refused  # both draws come across such a region


def test_a_peer_added_by_hand_takes_no_tokens_that_are_not_there() -> None:
    """An administrator's operators pass a store limit that is used up, as in PD, and do not lengthen its wait."""
    words = [Pdctl("store limit all 1"), *(Pdctl(f"operator add add-peer {i} 4") for i in range(1, 20))]
    found = simulate(small(60, 4, (1, 2, 3), 15), 60 * S, changes=[Timed(5 * S, w) for w in words])
    assert found.violation is None
    assert found.world.controller.created["admin-add-peer"] > 15
    assert min(b.tokens for n in found.world.nodes.all for b in n.limits) >= 0


def test_leaders_transferred_by_hand_pass_the_limit_of_schedulers() -> None:
    """An administrator's operators are asked for no limit, so that many of them violate none."""
    words = [Pdctl(f"operator add transfer-leader {i} {i % 4 + 1}") for i in range(1, 60, 2)]
    config = Config(leader_schedule_limit=1)
    found = simulate(small(60, 4, config=config), 20 * S, changes=[Timed(5 * S, w) for w in words])
    assert found.violation is None


JOINT = """
model: pd
seed: 4
until: 45s
cluster: {stores: 5, regions: 95, on: [1, 3, 4], store_limit: 60, config: {leader-schedule-limit: 4,
  replica-schedule-limit: 8, store-limit-version: v1, max-store-down-time: 60s, region-score-formula-version: v1}}
events:
  - {at: 12s, stop_store: store-4, down: 1s}
  - {at: 1s, write: all, mib_s: 1}
  - {at: 3s, slow_disk: store-5, mib_s: 20, for: 60s}
"""


def test_to_leave_a_joint_state_lowers_nothing_that_entering_it_had_not() -> None:
    """A voter that is to be demoted is none of those that rules ask for (a seed of the swarm took it for one)."""
    played = scenario_from_text(JOINT).model.play(scenario_from_text(JOINT), keep=False)
    assert played.run.violation is None
    assert "leave-joint-state" in played.run.operators["desc"].to_pylist()


# What the auditor lets pass, and what it does not


def audited(*changes: Timed, until_s: int = 0, stores: int = 4) -> tuple[World, PdMonitor]:
    """Give a cluster of regions on stores 1 to 3, as it is after a while, with its auditor."""
    there = World(small(6, stores, (1, 2, 3), limit=0.001), seed=1, changes=changes)
    monitor = PdMonitor(there)
    there.monitor = monitor
    there.run(until_s * S)
    return there, monitor


def test_a_quorum_is_there_as_far_as_pd_knows_until_it_hears_otherwise() -> None:
    """Of two stores that fell silent it hears half a minute later (seed 120 of the swarm)."""
    silent = [Timed(1 * S, StopStore(2)), Timed(1 * S, StopStore(3))]
    for until_s, is_kept in ((5, True), (40, False)):
        there, monitor = audited(*silent, until_s=until_s)
        assert monitor.running() == {1, 4}
        assert monitor.has_quorum(there.regions.region(0)) is is_kept


@pytest.mark.parametrize(("kind", "is_kept"), [(Kind.REGION, False), (Kind.ADMIN, True)])
def test_a_user_may_remove_a_voter_while_another_is_silent(kind: Kind, is_kept: bool) -> None:
    """The two that are left cannot decide, as the user would have it; PD itself must not (seed 2350 of the swarm)."""
    there, monitor = audited(Timed(1 * S, StopStore(3)), until_s=40)
    row = next(i for i in there.regions.rows().tolist() if there.regions.region(i).stores == {1, 2, 3})
    region = there.regions.region(row)._replace(leader=2)
    there.controller.running[row] = there.controller.made(remove_peer(there.cluster(), region, 1, "rm", kind=kind), 0)
    there.regions.put(row, region._replace(peers=tuple(p for p in region.peers if p.store != 1)))
    if is_kept:
        monitor.region_changed(row, region)
    else:
        with pytest.raises(Violated, match=f"{QUORUM}: region {region.id} lost its quorum"):
            monitor.region_changed(row, region)


@pytest.mark.parametrize(("unheard", "is_harm"), [(True, False), (False, True)])
def test_an_operator_does_harm_only_if_it_did_as_pd_knew_it_too(unheard: bool, is_harm: bool) -> None:
    """A peer on a store without recent heartbeats may go (seeds 1038, 1044 and 2019 of the swarm)."""
    there, monitor = audited(*([Timed(1 * S, CutOff(3))] if unheard else []), until_s=30)
    assert monitor.running() == {1, 2, 3, 4}
    region = there.regions.region(0)
    op = remove_peer(there.cluster(), region._replace(leader=1), 3, "replace", kind=Kind.REGION)
    running = replace(there.controller.made(op, 0), status="started", conf_done=1)
    monitor.operator_changed(running, "created")
    there.regions.put(0, region._replace(peers=tuple(p for p in region.peers if p.store != 3), leader=1))
    ended = replace(running, status="success")
    if is_harm:
        with pytest.raises(Violated, match=f"{FEWER}: region 1 has 2 healthy voters after replace, had 3"):
            monitor.operator_changed(ended, "started")
    else:
        monitor.operator_changed(ended, "started")


def test_an_orphan_stands_in_for_a_lost_peer_of_a_rule() -> None:
    """PD fits the lost one and removes neither: what rules ask for is there (seed 203 of the swarm)."""
    cluster, region = audited()[0].cluster(), audited()[0].regions.region(0)
    more = region._replace(peers=(*region.peers, Peer(9, 4)))
    assert wanted(cluster, more, frozenset({1, 2, 3, 4})) == 3, "one is too many"
    assert wanted(cluster, more, frozenset({1, 2, 4})) == 3 > wanted(cluster, region, frozenset({1, 2, 4})) == 2
    leaving = more._replace(peers=(*region.peers[:2], Peer(3, 3, DEMOTING), Peer(9, 4, INCOMING)))
    assert wanted(cluster, leaving, frozenset({1, 2, 3})) == 2, "nor one that is to be demoted"
