"""The barrier: who reports, who writes, who passes, and what is sent again."""

from __future__ import annotations

from typing import Any

import pytest
from v4_operating import A, B, controlled, replicating

from ticdc_lab.machines.machine import Ignored, Output, Send
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.barrier import RESEND_US, Barrier, handle_status, rebuilt, resent
from ticdc_lab.simulate.scheduler.v4.messages import (
    DDL_DISPATCHER,
    BlockStatusRequest,
    HeartBeatResponse,
    State,
    TableSpanBlockStatus,
)
from ticdc_lab.simulate.scheduler.v4.operators import Control


class World:
    """A barrier over table 1 on A and 2 on B; the maintainer, and so the DDL dispatcher, is on A."""

    def __init__(self) -> None:
        state = replicating(1, checkpoint_ts=1)
        state, _ = spans.restored(state, 2, B, 1, 0, "given")
        self.barrier, self.control = Barrier(A), controlled(state)
        self.at_us = 0

    def report(self, sender: str, *keys: Key, stage: Any = "WAITING") -> list[Output]:
        """Let dispatchers report the DDL of ts 10."""
        told = State(10, stage)
        request = BlockStatusRequest(tuple(TableSpanBlockStatus(key, told) for key in keys))
        self.barrier, self.control, outputs = handle_status(self.barrier, self.control, sender, request, self.at_us)
        return outputs

    def all_stand(self) -> list[Output]:
        """Let all come to the DDL; give what the last report brings."""
        self.report(A, 1, DDL_DISPATCHER)
        return self.report(B, 2)

    def resend(self, at_us: int) -> list[Output]:
        """Let time pass and send again."""
        self.at_us = at_us
        self.barrier, self.control, outputs = resent(self.barrier, self.control, at_us)
        return outputs


def said(outputs: list[Output]) -> list[tuple[str, str, tuple[Key, ...]]]:
    """Give (to, ack or action, dispatchers) of the barrier's messages; a pass is for all but the writer."""
    found = []
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.message, HeartBeatResponse):
            for one in output.message.dispatcher_statuses:
                what = one.action.action if one.action else "ACK"
                named = one.influenced_dispatchers
                assert named.influence_type == ("All" if what == "Pass" else "Normal")
                found.append((output.to, what, named.dispatcher_ids))
    return found


PASSES = [(A, "Pass", ()), (B, "Pass", ())]


def test_one_writes_and_then_the_others_pass() -> None:
    """No one passes before the write; the event is forgotten when all have passed."""
    world = World()
    assert said(world.report(A, 1, DDL_DISPATCHER)) == [(A, "ACK", (1, DDL_DISPATCHER))]
    assert said(world.report(B, 2)) == [(B, "ACK", (2,)), (A, "Write", (DDL_DISPATCHER,))]
    assert said(world.report(A, 1)) == [(A, "ACK", (1,))], "reported again, it is only acknowledged again"
    assert said(world.report(A, DDL_DISPATCHER, stage="DONE")) == [(A, "ACK", (DDL_DISPATCHER,))]
    passes = world.resend(1)
    assert said(passes) == PASSES
    assert passes[0].message.dispatcher_statuses[0].influenced_dispatchers.exclude_dispatcher_id == DDL_DISPATCHER  # type: ignore[union-attr]
    assert said(world.report(A, 1, stage="DONE")) == [(A, "ACK", (1,))] and world.barrier.events
    assert said(world.report(B, 2, stage="DONE")) == [(B, "ACK", (2,))] and not world.barrier.events


def test_nobody_passes_what_is_not_written() -> None:
    """A stray DONE of another dispatcher is nothing, and no pass is sent before the writer's."""
    world = World()
    world.all_stand()
    outputs = world.report(A, 1, stage="DONE")
    assert any(isinstance(output, Ignored) for output in outputs)
    for at_us in range(RESEND_US, 5 * RESEND_US, RESEND_US):
        assert said(world.resend(at_us)) == [(A, "Write", (DDL_DISPATCHER,))]
    assert world.barrier.events


def test_actions_are_sent_again_each_second() -> None:
    """The write until it is done, then the pass."""
    world = World()
    world.all_stand()
    assert not said(world.resend(RESEND_US - 1))
    assert said(world.resend(RESEND_US)) == [(A, "Write", (DDL_DISPATCHER,))]
    world.report(A, DDL_DISPATCHER, stage="DONE")
    assert said(world.resend(RESEND_US + 1)) == PASSES
    assert not said(world.resend(RESEND_US + 2))
    assert said(world.resend(2 * RESEND_US + 1)) == PASSES


def test_v4_18_a_dispatcher_created_again_starts_one_below_the_event() -> None:
    """StartTs is 9: the DDL is neither skipped nor is a row lost."""
    world = World()
    world.report(A, 1)
    order = operators.order(operators.add(1, B), world.control.spans)
    assert order is not None and order.message.start_ts == 9  # type: ignore[union-attr]


@pytest.mark.parametrize("unknown", [False, True])
def test_only_replicating_dispatchers_are_heard(unknown: bool) -> None:
    """One that is gone or moves does not count, also if it reported before it began to move."""
    world = World()
    outputs = world.report(A, 9) if unknown else []
    world.report(A, 1, DDL_DISPATCHER)
    world.control, _, _ = operators.added(world.control, operators.move(1, A, B), 1)
    assert not said(outputs) and said(world.report(A, 1)) == []
    assert said(world.report(B, 2)) == [(B, "ACK", (2,))], "table 1 has to report from its new place"


def test_a_done_of_an_event_nobody_knows_is_not_acknowledged() -> None:
    """It is late."""
    world = World()
    assert not said(world.report(A, 1, stage="DONE")) and not world.barrier.events


def test_what_another_has_left_behind_is_passed_without_a_write() -> None:
    """After a lost node a dispatcher meets an old event again: the others are beyond it, so it is downstream."""
    world = World()
    state = world.control.spans
    state = spans.checkpointed(state, 2, 30)._replace(reached=state.reached.set(B, 30))
    world.control = Control(state, nodes=world.control.nodes)
    assert said(world.report(A, 1)) == [(A, "ACK", (1,))]
    assert said(world.resend(1)) == PASSES
    world.report(A, 1, DDL_DISPATCHER, stage="DONE")
    assert not world.barrier.events


def test_a_ddl_at_which_some_wait_is_looked_at_again() -> None:
    """Those that wait were acknowledged and report nothing: a heartbeat shows that another has left it behind."""
    world = World()
    world.report(A, 1, DDL_DISPATCHER)
    assert said(world.resend(1)) == []
    state = spans.checkpointed(world.control.spans, 2, 30)._replace(reached=world.control.spans.reached.set(B, 30))
    world.control = world.control._replace(spans=state)
    assert said(world.resend(2)) == PASSES
    world.report(A, 1, DDL_DISPATCHER, stage="DONE")
    assert not world.barrier.events


@pytest.mark.parametrize("beyond", [False, True])
def test_a_new_maintainer_finds_the_open_events(beyond: bool) -> None:
    """It waits for a report, or for the pass of what was written before the other maintainer was lost."""
    world = World()
    known = spans.checkpointed(world.control.spans, 2, 50) if beyond else world.control.spans
    world.control = world.control._replace(spans=known)
    told = [TableSpanBlockStatus(1, State(10))]
    world.barrier, outputs = rebuilt(Barrier(A), known, told)
    assert len(outputs) == 1 and world.barrier.events[10].writer_advanced == beyond
    if beyond:
        assert said(world.resend(1)) == PASSES
        world.report(A, 1, DDL_DISPATCHER, stage="DONE")
        assert not world.barrier.events
    else:
        assert said(world.report(A, DDL_DISPATCHER)) == [(A, "ACK", (DDL_DISPATCHER,))]
        assert said(world.report(B, 2)) == [(B, "ACK", (2,)), (A, "Write", (DDL_DISPATCHER,))]
