"""Planted faults: each is caught, and the same world without it is clean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import test_v4_barrier
import test_v4_cluster
import test_v4_drain
import test_v4_maintainer
import test_v4_operators

from ticdc_lab.simulate.scheduler.v4 import barrier, drain, maintainer, node, operators
from ticdc_lab.simulate.scheduler.v4.drain import DrainController

Plant = Callable[[pytest.MonkeyPatch], None]
in_captures = test_v4_cluster._with_v4


def creates_before_the_origin_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move asks the destination at once."""
    asks = operators.TURNS[operators.MOVE, operators.REMOVE_ORIGIN, operators.ORIGIN_STOPPED]
    begun = (operators.MOVE, operators.REMOVE_ORIGIN, operators.BEGUN)
    monkeypatch.setattr(operators, "TURNS", {**operators.TURNS, begun: asks})


def bootstraps_before_all_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new maintainer schedules with the first answer."""
    real = maintainer._members

    def members(state: Any, tick: Any, resend_us: int, at_us: int) -> Any:
        state, outputs = real(state, tick, resend_us, at_us)
        if not state.bootstrapped and state.responses:
            state = replace(state, nodes=type(state.nodes)({n: state.nodes[n] for n in state.responses}))
        return state, outputs

    monkeypatch.setattr(maintainer, "_members", members)


@pytest.mark.parametrize(
    "plant",
    [creates_before_the_origin_stopped, bootstraps_before_all_have_answered],
)
@pytest.mark.usefixtures("in_captures")
def test_the_auditor_catches_a_planted_fault(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a few seeds an invariant breaks, or the end is not in order."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        hold(range(8))


def hold(seeds: range) -> None:
    """Check the runs of some seeds."""
    for seed in seeds:
        test_v4_cluster.holds(seed)


def test_an_order_taken_out_of_turn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that takes orders of the past, or of a past maintainer, writes what another one writes."""
    monkeypatch.setattr(node, "_stale", lambda *_: "")
    with pytest.raises((AssertionError, IndexError)):
        test_v4_maintainer.test_a_late_create_does_not_bring_back_what_has_moved_away()
    with pytest.raises((AssertionError, IndexError)):
        test_v4_maintainer.test_an_order_of_the_old_maintainer_is_void_once_a_new_one_was_heard("Create")


def test_a_heartbeat_taken_out_of_turn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The span would be created a second time."""
    real = maintainer.heard

    def heard(state: Any, sender: str, message: Any, at_us: int) -> Any:
        node = state.nodes[sender]
        late = node.epoch == message.node_epoch and message.seq <= node.seq
        known = state.nodes.set(sender, node._replace(seq=message.seq - 1)) if late else state.nodes
        return real(replace(state, nodes=known), sender, message, at_us)

    monkeypatch.setattr(maintainer, "heard", heard)
    with pytest.raises(AssertionError):
        test_v4_maintainer.test_a_late_heartbeat_does_not_make_a_running_span_absent()


def test_a_second_post_finish_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take back what happened since."""
    real = operators.ended
    monkeypatch.setattr(operators, "ended", lambda operator, *rest: (operator, *real(operator, *rest)[1:]))
    with pytest.raises(AssertionError):
        test_v4_operators.test_a_finished_add_does_its_last_step_once()


def test_a_pass_before_the_write_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would continue with rows that the DDL has not met yet."""
    real = barrier.action

    def passes(event: Any, nodes: Any, home: str) -> Any:
        return real(replace(event, writer_advanced=True), nodes, home)

    monkeypatch.setattr(barrier, "action", passes)
    with pytest.raises(AssertionError):
        test_v4_barrier.test_one_writes_and_then_the_others_pass()


def test_a_stale_acknowledgement_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old process's heartbeat would let a maintainer onto the new one."""
    real = drain.heartbeat_observed

    def observed(state: DrainController, node: str, message: Any, at_us: int) -> Any:
        after, outputs = real(state, node, message, at_us)
        known, gate = after.nodes[node], after.gate
        if gate is not None and message.dispatcher_drain_target_node_id == gate.target:
            after = replace(after, gate=gate._replace(acked=gate.acked.set(node, known.node_epoch)))
        return after, outputs

    monkeypatch.setattr(drain, "heartbeat_observed", observed)
    with pytest.raises(AssertionError):
        test_v4_drain.test_v4_22_a_restarted_destination_has_to_acknowledge_the_target_again()
