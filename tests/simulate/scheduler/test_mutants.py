"""Every planted bug is caught, and the unbroken protocol is clean in the very same search."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import pytest
from planted_schedulers import V2, planted
from v2_mutants import ANSWERS, HASTY, MUTANTS, REPEATED, STOPS_LATE, TWO_OWNERS

from ticdc_lab.machines.machine import Asked, Now, Received
from ticdc_lab.simulate.explore import explore
from ticdc_lab.simulate.scheduler.messages import Announce, DispatchTable
from ticdc_lab.simulate.scheduler.monitor import DOUBLE
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.small import Remembered, Small
from ticdc_lab.simulate.scheduler.world import Bounds

SEEDS = range(24)
EXPLORED = [m for m in MUTANTS if m.bounds]
RUN = [m for m in MUTANTS if not m.bounds]
SHORTEST = {
    "obeys_stale_owner": 23,
    "obeys_old_epoch": 16,
    "keeps_epoch": 16,
    "answers_at_once": 24,
    "reports_the_newest": 14,
    "tells_all_running": 17,
    "dispatches_before_sync": 17,
    "ignores_running_of_sync": 21,
    "skips_minimum": 20,
    "keeps_old_watermark": 17,
    "keeps_the_lost": 23,
    "starts_at_the_newest": 20,
    "advances_in_flight": 15,
    "forgets_removals": 21,
    "forgets_monotony": 25,
}


@pytest.mark.parametrize("mutant", EXPLORED, ids=lambda m: m.bug)
def test_the_explorer_finds_the_shortest_way_to_what_a_bug_breaks(mutant):
    """Breadth first, so that no shorter one exists; the path ends in the violation."""
    with planted(mutant.bug):
        found = explore(Small(mutant.bounds), most_states=60_000)
    assert found.broken and found.broken[0] == mutant.invariant
    assert len(found.path) == found.depth == SHORTEST[mutant.bug]


@pytest.mark.parametrize("bounds", sorted({m.bounds for m in EXPLORED}, key=str), ids=str)
def test_the_unbroken_protocol_is_clean_in_the_same_worlds(bounds):
    """All states that can be reached were."""
    found = explore(Small(bounds), most_states=60_000)
    assert found.complete and found.broken is None and found.states > 100


def violations(mutant, settings):
    """Give the invariants that some seeds violate."""
    found = set()
    for seed in SEEDS if mutant.chaos else range(3):
        run = simulate(
            settings, seed=seed, chaos=mutant.chaos, faults=mutant.faults, until_us=20_000_000, level="nothing"
        )  # fmt: skip
        found |= {run.violation.invariant} if run.violation else set()
    return found


@pytest.mark.parametrize("mutant", RUN, ids=lambda m: m.bug)
def test_runs_find_what_a_bug_of_whole_captures_breaks(mutant):
    """Sessions, leases and late messages are in runs only."""
    with planted(mutant.bug) if mutant.bug in V2 else nullcontext():
        assert mutant.invariant in violations(mutant, mutant.settings)


@pytest.mark.parametrize("mutant", RUN, ids=lambda m: m.bug)
def test_the_same_runs_of_the_unbroken_protocol_are_clean(mutant):
    """The same seeds and faults, with a margin that is worth something."""
    assert violations(mutant, HASTY) == set()


def test_every_bug_is_a_mutant():
    """But the one that ordered links never show (v2_mutants.MUTANTS shows why)."""
    assert V2.keys() - {"takes_any_response"} == {m.bug for m in MUTANTS} & V2.keys()


def test_a_capture_that_writes_on_after_its_session_writes_twice():
    """The design's assumption that processors stop at once cannot be left out."""
    found = explore(Small(STOPS_LATE))
    assert found.broken and found.broken[0] == DOUBLE and len(found.path) == 16
    assert "expire" in {a.what for a in found.path}
    kept = explore(Small(Bounds(tables=1, moments=0, expiries=1)))
    assert kept.complete and kept.broken is None


def test_an_announce_that_is_repeated_does_no_harm():
    """Every Sync opens an epoch; where it keeps the one it had, an old order is carried out after it."""
    kept = explore(Small(REPEATED))
    assert kept.complete and kept.broken is None and kept.states > 500
    with planted("keeps_epoch"):
        found = explore(Small(REPEATED))
    assert found.broken and found.broken[0] == ANSWERS
    assert [a.what for a in found.path].count("double") == 1


def test_topics_let_kinds_of_messages_overtake_each_other():
    """Or the world above would ask nothing: some step takes an order from behind an Announce."""
    model, overtaken = Small(REPEATED), 0
    frontier, known = [model.start()], set()
    while frontier:
        following = []
        for world in frontier:
            waiting = {(s, t): m[0] for s, t, m in world.links}
            for action, after, _ in model.steps(world):
                front = waiting.get((action.peer, action.node))
                overtaken += type(action.message) is DispatchTable and type(front) is Announce
                if (code := model.code(after)) not in known:
                    known.add(code)
                    following.append(after)
        frontier = following
    assert overtaken


def test_two_owners_dispatch_a_table_twice():
    """As TiCDC's design argues: the old one must hear of a capture that came after the election, which obeys it."""
    found = explore(Small(TWO_OWNERS))
    assert found.broken and found.broken[0] == DOUBLE and len(found.path) == 16
    assert {a.what for a in found.path} >= {"elect", "join"}
    orders = [a for a in found.path if type(a.message).__name__ == "DispatchTable"]
    assert len({a.message.owner_rev for a in orders}) == len({a.node for a in orders}) == 2
    assert orders[-1] == found.path[-1] and orders[-1].node == "capture-3"
    kept = explore(Small(replace(TWO_OWNERS, one_owner=True)))
    assert kept.complete and kept.broken is None


def test_a_world_of_nothing_has_one_end():
    """One capture, one table, no time: the search ends where nothing can change any more."""
    found = explore(Small(Bounds(captures=1, tables=1, moments=0)))
    assert found.complete and found.dead_ends >= 1 and found.states < 50


def test_a_search_that_is_cut_short_says_so():
    """Not complete, and not called clean."""
    found = explore(Small(Bounds(tables=1, owner_changes=1)), most_states=100)
    assert not found.complete and found.broken is None and found.states >= 100


def test_the_tables_of_a_capture_that_left_may_go_to_any_that_is_left():
    """Which of two equals takes them is left open, also in the tick that finds the capture gone."""
    model = Small(Bounds(captures=3, tables=1, moments=0, crashes=1, at_once=True))
    frontier, known, taken = [model.start()], set(), set()
    while frontier:
        following = []
        for world in frontier:
            for action, after, broken in model.steps(world):
                assert broken is None
                if action.what == "looks" and len(world.campaign) == 2:
                    orders = [m for _, _, ms in after.links if ms not in [m for _, _, m in world.links] for m in ms]
                    on = {
                        t for _, t, ms in after.links for m in ms if type(m).__name__ == "DispatchTable" and m in orders
                    }
                    taken |= {(world.campaign[0][0], to) for to in on}
                if (code := model.code(after)) not in known:
                    known.add(code)
                    following.append(after)
        frontier = following
    assert {(owner, to == owner) for owner, to in taken} >= {("capture-1", True), ("capture-1", False)}


class Stops(NamedTuple):
    """A command."""

    at: int


class Goes(NamedTuple):
    """Another one, equal to it as a tuple."""

    at: int


class Says:
    """A machine whose states are what it learned and when, and how often it was asked."""

    def __init__(self):
        self.steps = 0

    def step(self, state, event, now):
        """Take one event."""
        self.steps += 1
        return (type(event).__name__, type(event[-1]).__name__, *event[:-1], now.at_us), []


@pytest.mark.parametrize(
    "events",
    [(Asked(Stops(1)), Asked(Goes(1))), (Received("a", Stops(1)), Received("a", Goes(1)), Received("b", Stops(1)))],
)
def test_what_is_remembered_of_a_step_is_of_that_event_alone(events):
    """Named tuples of two kinds are equal where their fields are; what comes again is not asked again."""
    machine = Says()
    remembered, state = Remembered(machine), ("begun",)
    asked = [(state, event, now) for event in events for now in (Now(0), Now(1))]
    told = [remembered.step(*one) for one in asked]
    assert told == [Says().step(*one) for one in asked] and len({s for s, _ in told}) == len(asked)
    assert [remembered.step(*one) for one in asked] == told and machine.steps == len(asked)
    assert remembered.step(("another",), events[0], Now(0)) == told[0] and machine.steps == len(asked) + 1
