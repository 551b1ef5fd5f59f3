"""v3 and v4 in small worlds: every order of events holds the design's safety, and planted bugs are found."""

from __future__ import annotations

import inspect
import sys

import pytest
from planted_schedulers import IGNORE_EPOCH, PROMOTE_EARLY, planted

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.machine import Send
from ticdc_lab.simulate.explore import explore
from ticdc_lab.simulate.scheduler.executor import WRITING, state_of
from ticdc_lab.simulate.scheduler.monitor import DOUBLE, EMPTY, ONE
from ticdc_lab.simulate.scheduler.small_variants import UNCOUNTED, SmallVariant, maintainer, small_world, two_phases
from ticdc_lab.simulate.scheduler.v4 import coordinator, operators
from ticdc_lab.simulate.scheduler.v4.messages import AddMaintainerRequest
from ticdc_lab.simulate.scheduler.world import Bounds

VARIANTS = {"v3": two_phases, "v4": maintainer}
MOVED = Bounds(tables=1, moments=0, moves=1)
WORLDS = {
    ("v3", Bounds(tables=1, moments=0)): 1_323,
    ("v3", Bounds(tables=1, moments=0, crashes=1)): 6_394,
    ("v3", MOVED): 6_122,
    ("v4", Bounds(tables=2, moments=0)): 877,
    ("v4", Bounds(tables=1, moments=0, crashes=1)): 1_745,
    ("v4", Bounds(tables=1, moments=1, moves=1)): 6_521,
}


@pytest.mark.parametrize(("variant", "bounds"), WORLDS, ids=str)
def test_every_order_of_events_holds_the_designs_safety(variant, bounds):
    """All states that can be reached were, and as many as docs/scheduler.md describes."""
    found = explore(SmallVariant(bounds, VARIANTS[variant]()))
    assert found.complete and found.broken is None
    assert found.states == WORLDS[variant, bounds]


def test_what_does_not_count_is_a_field_of_a_class_of_v3_or_v4():
    """It is detected by names: one that was renamed would count, and a world of a thousand states have no end."""
    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith("ticdc_lab.simulate.scheduler.")]
    fields = {(kind.__name__, field) for m in modules for kind in vars(m).values() if isinstance(kind, type)
              for base in kind.__mro__ for field in inspect.get_annotations(base)}  # fmt: skip
    assert fields >= UNCOUNTED and len(UNCOUNTED) == 25


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_explored_is_a_table_that_is_written_on_either_capture(variant):
    """Or nothing would be asked: somewhere each capture writes the table, and somewhere the checkpoint has moved."""
    model = SmallVariant(Bounds(captures=2, tables=1), VARIANTS[variant]())
    frontier, known, writers, checkpoints = [model.start()], set(), set(), set()
    while frontier and (len(writers) < 2 or len(checkpoints) < 2):
        following = []
        for world in frontier:
            checkpoints.add(world.checkpoint_ts)
            writers |= {n for n, node in world.nodes if node.agent and state_of(node.agent.executor, 1) in WRITING}
            for _, after, broken in model.steps(world):
                assert broken is None
                if (code := model.code(after)) not in known:
                    known.add(code)
                    following.append(after)
        frontier = following
    assert writers == {"capture-1", "capture-2"} and len(checkpoints) > 1


@pytest.mark.parametrize("given", [{"at_once": True}, {"doubled": 1}, {"topics": True}])
def test_bounds_of_v2_alone_are_refused(given):
    """What would have no effect is not taken."""
    with pytest.raises(ContractError, match=next(iter(given))):
        SmallVariant(Bounds(**given), two_phases())


@pytest.mark.parametrize(
    ("bug", "bounds"), [(PROMOTE_EARLY, MOVED), (IGNORE_EPOCH, Bounds(tables=1, moments=0, restarts=1))]
)
def test_the_explorer_finds_what_a_bug_of_v3_breaks(bug, bounds):
    """The shortest way to two writers."""
    with planted(bug):
        found = explore(SmallVariant(bounds, two_phases()), most_states=20_000)
    assert found.broken and found.broken[0] == DOUBLE
    assert len(found.path) == found.depth == 27


def test_the_explorer_finds_a_move_that_creates_before_the_origin_has_stopped(monkeypatch):
    """Planted into v4's move operator."""
    kind, phase = operators.MOVE, operators.REMOVE_ORIGIN
    hasty = {(kind, phase, operators.BEGUN): operators.TURNS[kind, phase, operators.ORIGIN_STOPPED]}
    monkeypatch.setattr(operators, "TURNS", {**operators.TURNS, **hasty})
    found = explore(SmallVariant(MOVED, maintainer()), most_states=5_000)
    assert found.broken and found.broken[0] == DOUBLE and len(found.path) == 13


COORDINATED = {
    Bounds(tables=2, moments=0, coordinator=True): 2_816,
    Bounds(tables=1, moments=0, crashes=1, coordinator=True): 4_254,
}
WISHED = Bounds(tables=1, moments=0, moves=1, coordinator=True)
LARGER = {
    Bounds(tables=1, moments=0, restarts=1, coordinator=True): 14_648,
    Bounds(tables=1, moments=1, coordinator=True): 15_168,
    WISHED: 57_203,
}


@pytest.mark.parametrize("bounds", [*COORDINATED, *(pytest.param(b, marks=pytest.mark.soak) for b in LARGER)], ids=str)
def test_every_order_of_events_holds_with_a_coordinator(bounds):
    """The design's safety, one maintainer an epoch, and nodes that stop empty."""
    found = explore(small_world(bounds, "v4"))
    assert found.complete and found.broken is None
    assert found.states == {**COORDINATED, **LARGER}[bounds]


@pytest.mark.soak
def test_what_is_explored_with_a_coordinator_is_a_maintainer_that_moves_and_nodes_that_stop():
    """Or nothing would be asked: each node has the maintainer somewhere, and each is ordered to stop somewhere."""
    model = small_world(WISHED, "v4")
    frontier, known, homes, stopped = [model.start()], set(), set(), set()
    while frontier and (len(homes) < 2 or len(stopped) < 2):
        following = []
        for world in frontier:
            there = [(n, node.agent) for n, node in world.nodes]
            homes |= {n for n, agent in there if agent.maintainer and agent.maintainer.bootstrapped}
            stopped |= {n for n, agent in there if agent.liveness == "STOPPING"}
            for _, after, _ in model.steps(world):
                if (code := model.code(after)) not in known:
                    known.add(code)
                    following.append(after)
        frontier = following
    assert homes == stopped == {"capture-1", "capture-2"}


def _added_at_once(move, changefeed):
    again, changefeed, outputs = SCHEDULE(move, changefeed)
    return again, changefeed, [*outputs, Send(move.target, AddMaintainerRequest(changefeed.name, move.origin_epoch))]


SCHEDULE = coordinator.schedule


@pytest.mark.parametrize(
    ("room", "name", "instead", "breaks", "steps"),
    [
        (coordinator, "schedule", _added_at_once, ONE, 22),
        (coordinator, "_is_empty", lambda state, node: True, EMPTY, 15),
    ],
)
def test_the_explorer_finds_what_a_bug_of_the_coordinator_breaks(room, name, instead, breaks, steps, monkeypatch):
    """A maintainer that is added before it is removed; a node that is ordered to stop while something is on it."""
    monkeypatch.setattr(room, name, instead)
    found = explore(small_world(WISHED, "v4"), most_states=20_000)
    assert found.broken and found.broken[0] == breaks and len(found.path) == steps


@pytest.mark.parametrize("variant", ["v2", "v3"])
def test_a_coordinator_is_of_v4_alone(variant):
    """What would have no effect is not taken."""
    with pytest.raises(ContractError, match="no coordinator"):
        small_world(Bounds(coordinator=True), variant)
