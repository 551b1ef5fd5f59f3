"""v3 and v4 in small worlds: every order of events holds the design's safety, and planted bugs are found."""

from __future__ import annotations

import pytest
from planted_schedulers import IGNORE_EPOCH, PROMOTE_EARLY, planted

from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.explore import explore
from ticdc_lab.simulate.scheduler.executor import WRITING, state_of
from ticdc_lab.simulate.scheduler.monitor import DOUBLE
from ticdc_lab.simulate.scheduler.small_variants import SmallVariant, maintainer, two_phases
from ticdc_lab.simulate.scheduler.v4 import operators
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
    """All states that can be reached were, and as many as docs/scheduler.md says."""
    found = explore(SmallVariant(bounds, VARIANTS[variant]()))
    assert found.complete and found.broken is None
    assert found.states == WORLDS[variant, bounds]


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
    real = operators.Move.start

    def hasty(self, state, at_us):
        begun, state, outputs = real(self, state, at_us)
        return (begun, state, outputs) if begun.finished else begun._add_dest(state, at_us, "planted")

    monkeypatch.setattr(operators.Move, "start", hasty)
    found = explore(SmallVariant(MOVED, maintainer()), most_states=5_000)
    assert found.broken and found.broken[0] == DOUBLE and len(found.path) == 13
