"""The coordinator's drain controller, as coordinator/drain/controller_test.go drives it."""

from __future__ import annotations

import pytest

from ticdc_lab.machines.machine import Ignored, Output, Send
from ticdc_lab.simulate.scheduler.v4 import drain
from ticdc_lab.simulate.scheduler.v4.drain import (
    ALIVE,
    DRAINING,
    RESEND_US,
    STOPPING,
    TTL_US,
    UNKNOWN,
    DrainController,
    NodeHeartbeat,
    Own,
    SetNodeLivenessRequest,
    SetNodeLivenessResponse,
    applied,
)

N1, TARGET, DEST = "n1", "target", "dest"


def yes(_: str) -> bool:
    """Manage it, let it stop."""
    return True


def heard(
    state: DrainController, node: str, liveness: str, epoch: int, *known: object, at_us: int = 0
) -> DrainController:
    """Let a heartbeat come in."""
    return drain.heartbeat_observed(state, node, NodeHeartbeat(liveness, epoch, *known), at_us)[0]  # type: ignore[arg-type]


def commands(outputs: list[Output]) -> list[tuple[str, str, int]]:
    """Give (node, liveness, epoch) of the commands."""
    return [(o.to, o.message.target, o.message.node_epoch) for o in outputs if isinstance(o, Send)]


def test_draining_is_asked_again_and_then_stopping() -> None:
    """DRAINING each second until it is seen, STOPPING once it may."""
    state = heard(DrainController(), N1, ALIVE, 42)
    state, outputs = drain.drain_requested(state, N1, 0)
    assert commands(outputs) == [(N1, DRAINING, 42)]
    state, outputs = drain.liveness_advanced(state, yes, yes, RESEND_US - 1)
    assert not outputs
    state, outputs = drain.liveness_advanced(state, yes, yes, RESEND_US)
    assert commands(outputs) == [(N1, DRAINING, 42)]
    state, _ = drain.response_observed(state, N1, SetNodeLivenessResponse(DRAINING, 42), RESEND_US)
    state, outputs = drain.liveness_advanced(state, yes, lambda _: False, RESEND_US)
    assert not outputs, "it still has something to do"
    assert not drain.liveness_advanced(state, lambda _: False, yes, RESEND_US)[1]
    state, outputs = drain.liveness_advanced(state, yes, yes, RESEND_US)
    assert commands(outputs) == [(N1, STOPPING, 42)]
    state = heard(state, N1, STOPPING, 42)
    assert not drain.liveness_advanced(state, yes, yes, 9 * RESEND_US)[1]


def test_v4_21_a_restarted_node_begins_anew_but_is_still_to_drain() -> None:
    """Observed state resets, epoch is 43, drainRequested stays; what was sent to the old process does not count."""
    state = heard(DrainController(), N1, DRAINING, 42)
    state, outputs = drain.liveness_advanced(state, yes, yes, 0)
    assert commands(outputs) == [(N1, STOPPING, 42)]
    state = heard(state, N1, ALIVE, 43)
    known = state.nodes[N1]
    assert (known.drain_requested, known.liveness) == (True, ALIVE)
    assert known.node_epoch == 43 and known.drain_sent_us is None and known.stop_sent_us is None
    state, outputs = drain.liveness_advanced(state, yes, yes, 1)
    assert commands(outputs) == [(N1, DRAINING, 43)]


def test_v4_21_stopping_is_not_sent_to_a_process_that_came_up_in_the_middle() -> None:
    """Planned for epoch 42, the node is in 43 when it would be sent."""
    state = heard(DrainController(), N1, DRAINING, 42)
    plans = drain.planned(state, yes, yes)
    assert [tuple(plan) for plan in plans] == [(N1, STOPPING, 42)]
    state = heard(state, N1, ALIVE, 43)
    after, outputs = drain.commanded(state, plans, 1)
    assert after == state and not outputs
    state = heard(state, N1, DRAINING, 43)
    assert not drain.commanded(state, plans, 1)[1], "also if the new process drains by now"


def test_v4_22_a_restarted_destination_has_to_acknowledge_the_target_again() -> None:
    """Not schedulable after the restart; a stale heartbeat does not bring it back; its own does."""
    state = drain.gate_started(DrainController(), TARGET, 99)
    state = heard(state, DEST, ALIVE, 1, TARGET, 99)
    assert drain.schedulable(state, DEST, 0)
    state = heard(state, DEST, ALIVE, 2)
    assert not drain.schedulable(state, DEST, 0)
    state, outputs = drain.heartbeat_observed(state, DEST, NodeHeartbeat(ALIVE, 1, TARGET, 99), 0)
    assert not drain.schedulable(state, DEST, 0) and isinstance(outputs[0], Ignored)
    state = heard(state, DEST, ALIVE, 2, TARGET, 99)
    assert drain.schedulable(state, DEST, 0)


def test_a_gate_lets_only_those_through_that_know_the_target() -> None:
    """Never the target itself, nor one that reported of another target or epoch."""
    state = drain.gate_started(DrainController(), TARGET, 99)
    state = heard(heard(state, "acked", ALIVE, 1, TARGET, 99), "pending", ALIVE, 1)
    state = heard(heard(state, "other", ALIVE, 1, TARGET, 98), TARGET, ALIVE, 1, TARGET, 99)
    assert [drain.schedulable(state, n, 0) for n in ("acked", "pending", "other", TARGET, "silent")] == [True] + [
        False
    ] * 4
    assert "target drains" in drain.why_not_dest(state, "pending", 0)
    state = drain.gate_cleared(state, TARGET, 99)
    assert drain.schedulable(state, "pending", 0)


def test_a_stale_clear_does_not_open_a_newer_gate() -> None:
    """Target and epoch have to be the ones of the gate."""
    state = drain.gate_started(drain.gate_started(DrainController(), "old", 10), "new", 11)
    assert drain.gate_cleared(state, "old", 10) == state


@pytest.mark.parametrize(("epoch", "liveness"), [(41, DRAINING), (42, ALIVE)])
def test_late_observations_change_nothing(epoch: int, liveness: str) -> None:
    """Of an earlier life, or a step back in this one."""
    state = heard(DrainController(), N1, STOPPING, 42)
    assert heard(state, N1, liveness, epoch) == state


def test_a_silent_node_is_unknown_and_no_destination() -> None:
    """After the time to live; one never heard of counts as alive."""
    state = heard(DrainController(), N1, ALIVE, 1, at_us=5)
    assert drain.state_of(state, N1, 5 + TTL_US) == ALIVE and drain.state_of(state, N1, 6 + TTL_US) == UNKNOWN
    assert not drain.schedulable(state, N1, 6 + TTL_US) and drain.state_of(state, "never", 0) == ALIVE


def test_a_removed_node_is_forgotten() -> None:
    """With its wish to drain."""
    state = drain.gate_started(heard(DrainController(), N1, DRAINING, 42), TARGET, 1)
    state = drain.node_removed(heard(state, N1, DRAINING, 42, TARGET, 1), N1)
    assert N1 not in state.nodes and not state.gate.acked  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("now", "request_", "after"),
    [
        (ALIVE, (DRAINING, 7), DRAINING),
        (DRAINING, (STOPPING, 7), STOPPING),
        (ALIVE, (DRAINING, 6), ALIVE),
        (ALIVE, (DRAINING, 0), DRAINING),
        (ALIVE, (STOPPING, 0), ALIVE),
        (STOPPING, (DRAINING, 7), STOPPING),
    ],
)
def test_a_node_goes_on_only_forward_and_only_where_it_is_meant(
    now: str, request_: tuple[str, int], after: str
) -> None:
    """And answers what it is, with its own epoch."""
    own, response = applied(Own(now, 7), SetNodeLivenessRequest(*request_))
    assert own == Own(after, 7) and response == SetNodeLivenessResponse(after, 7)
