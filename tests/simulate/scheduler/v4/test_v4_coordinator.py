"""A coordinator in whole captures: the maintainer moves, nodes are drained, dispatchers are at DDLs together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from exploring import seeds
from test_v4_cluster import CAPTURES, DATAGRAMS, END_US, LOCAL, QUIET_US, STREAMS, runs_where

from ticdc_lab.errors import ScenarioError
from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.machines.machine import Asked, Fired, Ignored, Now, Received, Send
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Fault, Restart
from ticdc_lab.simulate.runs import QUIET
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text
from ticdc_lab.simulate.scheduler import run
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl, View
from ticdc_lab.simulate.scheduler.monitor import BARRIER, EMPTY, LOST, ONE
from ticdc_lab.simulate.scheduler.roles import Drain, MoveMaintainer, MoveTable, Poll, Rebalance, Tick
from ticdc_lab.simulate.scheduler.roles import Restart as Begin
from ticdc_lab.simulate.scheduler.v4 import barrier, coordinator, operators, spans
from ticdc_lab.simulate.scheduler.v4.maintainer import Maintainer
from ticdc_lab.simulate.scheduler.v4.messages import (
    DDL_DISPATCHER,
    AddMaintainerRequest,
    BlockStatusRequest,
    CoordinatorBootstrapRequest,
    MaintainerBootstrapRequest,
    MaintainerStatus,
    NodeHeartbeat,
    RemoveMaintainerRequest,
    SetDispatcherDrainTarget,
)
from ticdc_lab.simulate.scheduler.v4.node import Dispatchers, NodeManager
from ticdc_lab.simulate.scheduler.variants import capture_machine

SECOND = 1_000_000
EXAMPLE = "data/scenarios/scheduler/coordinator.yaml"


def asked(at_us: int, command: Any) -> list[Fault]:
    """Ask every capture: the coordinator does it."""
    return [Ask(at_us, capture, command) for capture in CAPTURES]


def cluster(*faults: Fault, seed: int = 1, until_us: int = 12 * SECOND, **more: Any) -> run.SchedulerRun:
    """Run three captures with a coordinator."""
    return run.simulate(
        run.SchedulerSettings(variant="v4", coordinator=True), faults=faults, seed=seed, until_us=until_us, **more
    )


def told(found: run.SchedulerRun, subject: str) -> list[tuple[str, Any, Any]]:
    """Give (node, before, after) of what changed."""
    return [
        (r.node, r.before, r.after) for r in found.kernel.recorder.rows if r.kind == "changed" and r.subject == subject
    ]


def maintainers(found: run.SchedulerRun) -> list[str]:
    """Give who has a maintainer in the end."""
    states = found.kernel.states
    return [a for a in sorted(states) if a != ETCD and a not in found.kernel.down and states[a].processor.maintainer]


def assert_well(found: run.SchedulerRun, tables: int = 8) -> None:
    """Nothing is broken, each table is replicated once, one maintainer is there, and the checkpoint follows."""
    assert found.violation is None, found.violation
    where: dict[Any, list[str]] = {}
    states = found.kernel.states
    for address in sorted(set(states) - {ETCD} - found.kernel.down):
        for key, pipeline in states[address].processor.executor.pipelines.items():
            assert pipeline.state == "replicating"
            where.setdefault(key, []).append(address)
    assert len(where) == tables and all(len(on) == 1 for on in where.values()), where
    assert len(maintainers(found)) == 1
    assert found.kernel.now_us - us_of(states[ETCD].checkpoint_ts) < 2 * SECOND


def test_a_maintainer_moves_and_is_never_at_two_places() -> None:
    """It ends on the old node before it begins on the new one, with a higher epoch; tables stay where they are."""
    found = cluster(*asked(4 * SECOND, MoveMaintainer("capture-2")))
    assert_well(found)
    assert told(found, "maintainer") == [
        ("capture-1", None, "capture-1"), ("capture-1", "capture-1", None), ("capture-2", None, "capture-2"),
    ]  # fmt: skip
    before = cluster()
    assert runs_where(found) == runs_where(before) and found.measures.starts == before.measures.starts == 8


def test_a_node_is_drained_in_the_order_of_its_states() -> None:
    """The maintainer leaves, then the dispatchers; when nothing is there the node is ordered to stop."""
    found = cluster(*asked(4 * SECOND, MoveMaintainer("capture-2")), *asked(6 * SECOND, Drain("capture-2")))
    assert_well(found)
    state = found.kernel.states["capture-2"].processor
    assert (state.liveness, state.maintainer, dict(state.executor.pipelines)) == ("STOPPING", None, {})
    assert told(found, "liveness") == [("capture-2", "ALIVE", "DRAINING"), ("capture-2", "DRAINING", "STOPPING")]
    steps = [(r.subject, r.after) for r in found.kernel.recorder.rows if r.kind == "changed" and r.time_us > 6 * SECOND
             and r.node == "capture-2" and r.subject in ("liveness", "maintainer")]  # fmt: skip
    assert steps == [("liveness", "DRAINING"), ("maintainer", None), ("liveness", "STOPPING")]


@pytest.mark.parametrize("drained_us", [4_001_000, 4_010_000, 4_050_000, 4_100_000, 4_200_000])
def test_a_node_is_drained_to_which_the_maintainer_is_on_its_way(drained_us: int) -> None:
    """A maintainer moves only when it works: the node that drains takes it, and then the drain moves it off again."""
    faults = [*asked(4 * SECOND, MoveMaintainer("capture-2")), *asked(drained_us, Drain("capture-2"))]
    found = cluster(*faults, until_us=20 * SECOND)
    assert_well(found)
    state = found.kernel.states["capture-2"].processor
    assert (state.liveness, state.maintainer, dict(state.executor.pipelines)) == ("STOPPING", None, {})


def test_a_node_that_comes_back_takes_tables_again() -> None:
    """Another process, another life: it is ALIVE, and the target of the old one is cleared."""
    back = [Crash(8 * SECOND, "capture-2"), Restart(9 * SECOND, "capture-2")]
    found = cluster(*asked(4 * SECOND, Drain("capture-2")), *back, until_us=40 * SECOND)
    assert_well(found)
    state = found.kernel.states["capture-2.2"].processor
    assert state.liveness == "ALIVE" and not state.target


def test_dispatchers_stand_at_a_ddl_until_one_has_written_it() -> None:
    """Waiting, writing, passing; the tables that come and go do so behind it."""
    found = cluster(Ask(3 * SECOND, ETCD, Ddl(add=(9,), drop=(2,), takes_us=600_000)))
    assert_well(found)
    ((_, _, barrier_ts), _) = told(found, "barrier")
    stages = [after for _, _, after in told(found, f"ddl:{barrier_ts}")]
    assert stages == ["waiting", "writing", "passing", None]
    assert sorted(n for n, _, _ in told(found, "block-event")) == list(CAPTURES)
    written_us = next(r.time_us for r in found.kernel.recorder.rows if r.subject == "barrier" and r.after is None)
    passed_us = min(r.time_us for r in found.kernel.recorder.rows if r.subject == "block-event")
    assert 3 * SECOND < written_us < passed_us < 5 * SECOND


@pytest.mark.parametrize("at_us", [3_101_000, 3_250_000, 3_500_000])
@pytest.mark.parametrize("takes_us", [100_000, 900_000])
def test_a_ddl_is_written_though_the_maintainer_moves_or_dies_at_it(at_us: int, takes_us: int) -> None:
    """The next maintainer hears from the nodes that they are there."""
    ddl = Ask(3 * SECOND, ETCD, Ddl(add=(9,), takes_us=takes_us))
    assert_well(cluster(ddl, *asked(at_us, MoveMaintainer("capture-3"))), 9)
    crash = [Crash(at_us, "capture-1"), Restart(at_us + 2 * SECOND, "capture-1")]
    assert_well(cluster(ddl, *crash, until_us=30 * SECOND), 9)


def wishes(seed: int) -> list[Fault]:
    """Draw what users want of a cluster."""
    chance = Random(seed)
    found: list[Fault] = []
    for _ in range(chance.randint(0, 4)):
        wish = chance.choice((
            MoveMaintainer(chance.choice(CAPTURES)), MoveTable(chance.randint(1, 8), chance.choice(CAPTURES)),
            Rebalance(), Drain(chance.choice(CAPTURES)),
        ))  # fmt: skip
        found += asked(chance.randint(1, 19) * SECOND, wish)
    ddls = [Ddl(takes_us=chance.choice((10_000, 900_000))) for _ in range(chance.randint(0, 3))]
    return found + [Ask(chance.randint(1, 19) * SECOND, ETCD, ddl) for ddl in ddls]


def holds(seed: int) -> None:
    """Faults of all kinds, over datagrams with even seeds; then all is well."""
    network, kinds = (STREAMS, Chaos(0).kinds) if seed % 2 else (DATAGRAMS, LOCAL)
    chaos = Chaos(QUIET_US, kinds=kinds)
    assert_well(cluster(*wishes(seed), chaos=chaos, seed=seed, until_us=END_US, network=network))


@pytest.mark.parametrize("seed", seeds(range(4), of=range(12)))
def test_faults_break_nothing_and_end_in_order(seed: int) -> None:
    """Coordinators and maintainers that die, moves and drains on the way, DDLs, lost and doubled messages."""
    holds(seed)


@pytest.mark.soak
def test_many_seeds_break_nothing() -> None:
    """The same over hundreds of seeds."""
    for seed in range(12, 400):
        holds(seed)


# Planted


def at_once(move: Any, changefeed: Any) -> Any:
    """A move asks the target before the origin has stopped, with the epoch that runs there."""
    again, changefeed, outputs = SCHEDULE(move, changefeed)
    return again, changefeed, [*outputs, Send(move.target, AddMaintainerRequest(changefeed.name, move.origin_epoch))]


SCHEDULE = coordinator.schedule


def never_waits(block: Any, executor: Any, is_home: bool, at_us: int) -> Any:
    """Dispatchers show that they are at a DDL before they have come to it."""
    return STANDING(block and block._replace(block_ts=0), executor, is_home, at_us) if block.block_ts else []


STANDING = barrier.standing
BUGS: dict[str, tuple[Any, str, Callable[..., Any] | Any, str]] = {
    "a maintainer is added before it is removed": (coordinator, "schedule", at_once, ONE),
    "a node is told to stop before it is empty": (coordinator, "_is_empty", lambda state, node: True, EMPTY),
    "dispatchers do not wait at a DDL": (barrier.Block, "limit_ts", lambda self, limit_ts: limit_ts, LOST),
    "a DDL is written before all have come to it": (barrier, "standing", never_waits, BARRIER),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the invariant that it breaks; a DDL takes its time, in which the checkpoint must not come to it."""
    room, name, instead, breaks = BUGS[bug]
    ddl = Ask(3 * SECOND, ETCD, Ddl(add=(9,), takes_us=600_000))
    stuck = [Ask(2 * SECOND, "capture-3", run_stick()), Ask(5 * SECOND, "capture-3", run_stick(free=True))]
    faults = [ddl, *stuck, *asked(6 * SECOND, MoveMaintainer("capture-2")), *asked(8 * SECOND, Drain("capture-2"))]
    assert_well(cluster(*faults, until_us=14 * SECOND), 9)
    monkeypatch.setattr(room, name, instead)
    violation = cluster(*faults, until_us=14 * SECOND).violation
    assert violation is not None and violation.invariant == breaks


def run_stick(*, free: bool = False) -> Any:
    """Let the sink of a table of capture-3 stick."""
    from ticdc_lab.simulate.scheduler.capture import Stick

    quiet = cluster(until_us=2 * SECOND)
    return Stick(min(quiet.kernel.states["capture-3"].processor.executor.pipelines), free)


def test_a_scenario_has_a_coordinator() -> None:
    """And it is refused where there is none."""
    played = read_scenario(EXAMPLE).model.play(read_scenario(EXAMPLE), seed=1)
    assert played.held, [o.because for o in played.outcomes if not o.held]
    text = "model: scheduler\nvariant: {0}\nuntil: 3s\ncluster: {{captures: 2, tables: 2}}\n{1}"
    for variant, more in (
        ("v2", "settings: {coordinator: true}"),
        ("v3", "events: [{at: 1s, move_maintainer: capture-1}]"),
    ):
        with pytest.raises(ScenarioError, match="of v4"):
            scenario_from_text(text.format(variant, more))


def test_the_network_is_quiet_by_default() -> None:
    """So that the runs above show the protocol alone."""
    assert cluster(until_us=SECOND).network == QUIET


# What the swarm found, each without its seed


def node_with(*events: Any) -> tuple[Any, list[Any]]:
    """Give a node, and the outputs of the last of what came to it."""
    manager = NodeManager(Maintainer(), Dispatchers())
    state, outputs = manager.start("capture-1", Now(0))
    for event in events:
        state, outputs = manager.step(state, event, Now(0))
    return state, outputs


FROM_COORDINATOR = partial(Received, "capture-2")
FOLLOWED, PLACED = FROM_COORDINATOR(CoordinatorBootstrapRequest(1)), (1 << coordinator.PLACES) + 1
ADDED = FROM_COORDINATOR(AddMaintainerRequest(coordinator.NAME, PLACED))
REMOVED = FROM_COORDINATOR(RemoveMaintainerRequest(coordinator.NAME, PLACED))


def test_a_node_whose_processor_has_begun_again_takes_its_maintainer_once_more() -> None:
    """It knows nothing of the epoch that ran there; a node that was ordered to end it does, and refuses (seed 74)."""
    assert node_with(FOLLOWED, ADDED)[0].maintainer.owner_rev == PLACED
    again = [FOLLOWED, ADDED, Asked(Begin())]
    assert node_with(*again)[0].maintainer is None
    state, outputs = node_with(*again, ADDED)
    assert state.maintainer.owner_rev == PLACED
    assert any(isinstance(o, Send) and o.message.maintainer.maintainer_epoch == PLACED for o in outputs)
    state, outputs = node_with(FOLLOWED, ADDED, REMOVED, ADDED)
    assert state.maintainer is None and isinstance(outputs[0], Ignored)


@pytest.mark.parametrize(("origin", "to"), [("capture-3", "capture-2"), ("capture-2", "capture-3")])
def test_a_node_is_not_empty_while_a_move_takes_a_table_to_it_or_from_it(origin: str, to: str) -> None:
    """The table is bound to neither end for a while: what a maintainer shows is left counts operators, too."""
    target = FROM_COORDINATOR(SetDispatcherDrainTarget("capture-2", 7))
    state, _ = node_with(FOLLOWED, ADDED, target)
    known, _ = spans.restored(spans.Spans(), 5, origin, 1000, 0, "given")
    control = operators.Control(known, nodes=frozenset(CAPTURES))
    maintainer = replace(state.maintainer, bootstrapped=True, control=control)
    left = []
    for running in (control, operators.added(control, operators.move(5, origin, to), 0)[0]):
        run_on = replace(state, maintainer=replace(maintainer, control=running))
        _, (heartbeat,) = NodeManager(Maintainer(), Dispatchers()).step(run_on, FOLLOWED, Now(0))
        left.append(heartbeat.message.maintainer.draining)
    assert left == [int(origin == "capture-2"), int(origin == "capture-2") + 1]


def test_dispatchers_stand_below_a_ddl_that_their_node_has_yet_to_be_ticked_with() -> None:
    """A capture polls between the view that reports a DDL and its tick: one that came back went up to it (seed 1075).

    So the checkpoint was at a DDL that no one had written.
    """
    machine = capture_machine(run.SchedulerSettings(variant="v4", coordinator=True), "capture-1")
    state, _ = machine.start("capture-1", Now(0))
    barrier_ts = ts_of(SECOND)
    view = View(2, frozenset(CAPTURES), "capture-2", 1, frozenset({1}), barrier_ts, barrier_ts - 9, barrier_ts)
    for event in (Received(ETCD, view), Fired("poll")):
        state, _ = machine.step(state, event, Now(2 * SECOND))
    assert state.processor.executor.limit_ts == barrier_ts - 1
    passed = replace(state.processor, block=barrier.Block(passed_ts=barrier_ts))
    state, _ = machine.step(state._replace(processor=passed), Fired("poll"), Now(2 * SECOND))
    assert state.processor.executor.limit_ts > barrier_ts


def test_a_ddl_dispatcher_that_begins_below_an_executed_ddl_meets_it_again() -> None:
    """It begins at the checkpoint, as in TiCDC; tables of other nodes waited for it without end (seed 8515)."""
    barrier_ts = ts_of(SECOND)
    bootstrap = FROM_COORDINATOR(MaintainerBootstrapRequest(PLACED))
    for home, checkpoint_ts, stands in ((True, -1, True), (True, 0, False), (False, -1, False)):
        tick = Asked(Tick(frozenset({"capture-1"}), frozenset(), barrier_ts + checkpoint_ts, None, barrier_ts))
        poll = Asked(Poll(barrier_ts))
        state, outputs = node_with(FOLLOWED, *[ADDED] * home, bootstrap, tick, poll)
        reported = [o.message for o in outputs if isinstance(o, Send) and isinstance(o.message, BlockStatusRequest)]
        assert [one.id for message in reported for one in message.block_statuses] == [DDL_DISPATCHER] * stands
        assert state.block.executed is stands


def test_a_maintainer_of_an_older_coordinator_is_moved() -> None:
    """Nodes take only one with an epoch of the coordinator that they follow: it was on no node without
    end (seed 1312).
    """
    gone = [*asked(3 * SECOND, MoveMaintainer("capture-2")), Crash(5 * SECOND, "capture-1")]
    found = cluster(*gone, *asked(14 * SECOND, MoveMaintainer("capture-3")), until_us=20 * SECOND)
    assert_well(found)
    assert maintainers(found) == ["capture-3"]
    (first, second, third) = [epoch for epoch, _ in sorted(found.kernel.auditor.maintainers.items())]
    assert first >> coordinator.PLACES == second >> coordinator.PLACES < third >> coordinator.PLACES


def test_a_maintainer_of_an_older_coordinator_that_ends_before_it_works_is_placed_anew() -> None:
    """Its node, whose processor begins again, takes none with that epoch any more."""
    machine, sent = coordinator.V4Coordinator(), list[Any]()
    state, _ = machine.elected("capture-1", 3, Now(0))
    old = MaintainerStatus("Working", bootstrap_done=False, maintainer_epoch=(2 << coordinator.PLACES) + 1)
    for at_us, status in ((0, old), (2 * SECOND, None)):
        tick = Asked(Tick(frozenset({"capture-2"}), frozenset({1}), 0))
        beat = Received("capture-2", NodeHeartbeat("ALIVE", 1, coordinator_epoch=3, maintainer=status))
        for event in (tick, beat, tick):
            state, sent = machine.step(state, event, Now(at_us))
    (added,) = [o.message for o in sent if isinstance(o, Send) and isinstance(o.message, AddMaintainerRequest)]
    assert added.maintainer_epoch >> coordinator.PLACES == 3
