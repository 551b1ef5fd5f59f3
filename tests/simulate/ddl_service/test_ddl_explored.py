"""Small worlds explored to their end: every order of messages, timers, joins and lost sessions."""

from __future__ import annotations

import pytest
from ddl_small import Small
from ddl_small_worlds import (
    COLUMN,
    FAILS,
    INDEX,
    TABLE,
    cluster_world,
    service_world,
)
from planted_ddl import planted

from ticdc_lab.ddl_core.checks import BALANCED, IN_ORDER, NEIGHBOURS, ONE_OWNER
from ticdc_lab.simulate.explore import explore

SOUND = {
    "an index, backfilled": (cluster_world(INDEX, owners=1), 1_027),
    "an index that fails goes back": (cluster_world(FAILS, owners=1), None),
    "an owner's session ends": (cluster_world(TABLE, expiries=1), 32_677),
    "two workers, one joins": (service_world(joins=1), 368),
    "three workers, two sessions end": (service_world(workers=3, clusters=3, expiries=2), None),
}


@pytest.mark.parametrize("name", SOUND)
def test_every_order_of_events_is_sound(name: str) -> None:
    """All reachable states hold every invariant, and each quiet one has no job left and an even assignment."""
    world, states = SOUND[name]
    found = explore(world)
    assert (found.complete, found.broken) == (True, None)
    assert states is None or found.states == states


BROKEN = {
    "waits for nobody": (cluster_world(INDEX, owners=1, servers=2), NEIGHBOURS),
    "publishes first": (cluster_world(COLUMN, owners=1, servers=2), NEIGHBOURS),
    "serves unverified": (
        cluster_world(COLUMN, owners=1, servers=2, joins=1),
        NEIGHBOURS,
    ),
    "writes without its campaign": (
        cluster_world(TABLE, expiries=1),
        IN_ORDER,
    ),
    "never rebalances": (service_world(joins=1), BALANCED),
    "keeps the lost": (service_world(expiries=1), BALANCED),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_explorer_finds_the_shortest_way_to_a_planted_bug(name: str) -> None:
    """The path can be walked again, step by step, to the same violation."""
    world, invariant = BROKEN[name]
    with planted(name):
        found = explore(world)
        assert found.broken and found.broken[0] == invariant
        assert replayed(world, found.path)


def test_without_the_margin_of_a_lease_there_are_two_owners() -> None:
    """What a worker's own clock is for: one that stops only when it hears of its end owns beside the next."""
    found = explore(cluster_world(TABLE, expiries=1, stops_at_once=False))
    assert found.broken and found.broken[0] == ONE_OWNER
    assert len(found.path) == 2


def replayed(world: Small, path: tuple[object, ...]) -> bool:
    """Whether the path leads there once more, from the beginning."""
    now = world.start()
    for action in path:
        step = next(s for s in world.steps(now) if s.action == action)
        now = step.world
    return step.broken is not None
