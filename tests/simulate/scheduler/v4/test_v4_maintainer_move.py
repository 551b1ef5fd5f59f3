"""Moves of maintainers by the coordinator, as coordinator/operator/operator_move_test.go drives them."""

from __future__ import annotations

import pytest

from ticdc_lab.machines.machine import Output, Send
from ticdc_lab.simulate.scheduler.v4 import coordinator as move
from ticdc_lab.simulate.scheduler.v4.coordinator import MaintainerMove, MaintainerPlace, MaintainerStatus

N1, N2 = "n1", "n2"
STOPPED = MaintainerStatus("Stopped")


class World:
    """A changefeed on n1 that moves to n2."""

    def __init__(self) -> None:
        self.move, self.changefeed, _ = move.begun(MaintainerPlace("cf", move.WORKING, N1), N2, 2)

    def _take(self, stepped: tuple[MaintainerMove, MaintainerPlace, list[Output]]) -> list[Output]:
        self.move, self.changefeed, outputs = stepped
        return outputs

    def check(self, sender: str, state: str, **about: object) -> None:
        """Report a status."""
        status = MaintainerStatus(state, **about)  # type: ignore[arg-type]
        self.move = move.check(self.move, self.changefeed, sender, status)

    def lose(self, node: str) -> None:
        """Lose a node."""
        self._take(move.node_removed(self.move, self.changefeed, node))

    def order(self) -> tuple[str, str] | None:
        """Give (to, request) of the order of this moment."""
        found = [o for o in self._take(move.schedule(self.move, self.changefeed)) if isinstance(o, Send)]
        return (found[0].to, type(found[0].message).__name__) if found else None

    def finish(self) -> str:
        """Do the last step and give the state of the changefeed."""
        self._take(move.post_finish(self.move, self.changefeed))
        return f"{self.changefeed.state}@{self.changefeed.node}"


REMOVE, ADD = "RemoveMaintainerRequest", "AddMaintainerRequest"


def test_a_maintainer_stops_at_the_origin_before_it_is_added() -> None:
    """Remove, stopped, add, working with its bootstrap done."""
    world = World()
    assert world.changefeed.state == move.SCHEDULING and world.order() == (N1, REMOVE)
    world.check(N1, "Working")
    assert world.order() == (N1, REMOVE)
    world.check(N1, "Stopped")
    assert world.order() == (N2, ADD) and world.changefeed.node == N2
    world.check(N2, "Working", bootstrap_done=True)
    assert world.move.finished and world.order() is None and world.finish() == "working@n2"


def test_v4_25_a_target_lost_before_the_origin_stopped_is_replaced_by_the_origin() -> None:
    """(a) keeps removing n1 and falls back to n1 as target."""
    world = World()
    world.lose(N2)
    assert world.order() == (N1, REMOVE) and world.move.target == N1 and world.changefeed.node == N1
    world.check(N1, "Stopped")
    assert world.order() == (N1, ADD)
    world.check(N1, "Working", bootstrap_done=True)
    assert world.finish() == "working@n1"


def test_v4_25_a_target_lost_after_the_origin_stopped_is_replaced_by_the_origin() -> None:
    """(b) Add is sent back to n1."""
    world = World()
    world.check(N1, "Stopped")
    world.lose(N2)
    assert world.order() == (N1, ADD) and world.changefeed.node == N1


def test_v4_25_a_target_lost_after_the_add_leaves_the_changefeed_absent() -> None:
    """(c) the request may have arrived: the changefeed becomes absent, also after it worked."""
    for works in (False, True):
        world = World()
        world.check(N1, "Stopped")
        assert world.order() == (N2, ADD)
        if works:
            world.check(N2, "Working", bootstrap_done=True)
        world.lose(N2)
        assert world.move.finished and world.order() is None and world.finish() == "absent@None"


def test_v4_25_a_destination_counts_only_with_its_bootstrap_done() -> None:
    """Working alone is not enough, and neither is anything reported before the origin stopped."""
    world = World()
    world.check(N2, "Working", bootstrap_done=True)
    assert not world.move.finished
    world.check(N1, "Stopped")
    world.check(N2, "Working", bootstrap_done=True)
    assert not world.move.finished, "it was not asked yet"
    world.order()
    world.check(N2, "Working", bootstrap_done=False)
    assert not world.move.finished and world.order() == (N2, ADD)
    world.check(N2, "Working", bootstrap_done=True)
    assert world.move.finished


@pytest.mark.parametrize("first", [N1, N2])
def test_both_nodes_lost_leave_the_changefeed_absent(first: str) -> None:
    """In either order."""
    world = World()
    world.lose(first)
    world.lose(N1 if first == N2 else N2)
    assert world.move.finished and world.order() is None and world.finish() == "absent@None"


def test_an_origin_lost_is_as_good_as_stopped() -> None:
    """The destination is added."""
    world = World()
    world.lose(N1)
    assert world.order() == (N2, ADD) and world.changefeed.node == N2


def test_statuses_of_another_epoch_do_not_count() -> None:
    """Neither the origin's nor the destination's; 0 is an old version that does not show."""
    world = World()
    world.check(N1, "Stopped", maintainer_epoch=7)
    assert world.order() == (N1, REMOVE)
    world.check(N1, "Stopped", maintainer_epoch=1)
    world.order()
    world.check(N2, "Working", bootstrap_done=True, maintainer_epoch=1)
    assert not world.move.finished
    world.check(N2, "Working", bootstrap_done=True, maintainer_epoch=0)
    assert world.move.finished


def test_a_changefeed_on_no_node_cannot_move() -> None:
    """It is added instead."""
    with pytest.raises(ValueError, match="it is added, not moved"):
        move.begun(MaintainerPlace("cf", move.ABSENT, None), N2, 2)
