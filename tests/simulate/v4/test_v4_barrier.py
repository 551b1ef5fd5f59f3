"""The barrier: who reports, who writes, who passes, and what is sent again."""

from __future__ import annotations

from typing import Any

import pytest
from v4_operating import A, B, controlled, replicating, sent

from ticdc_lab.machines.machine import Ignored, Output, Reason, Send
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import controller, operators, spans
from ticdc_lab.simulate.scheduler.v4.barrier import (
    RESEND_US,
    Barrier,
    EventKey,
    handle_status,
    limit_ts,
    rebuilt,
    resent,
    waiting,
)
from ticdc_lab.simulate.scheduler.v4.controller import Control
from ticdc_lab.simulate.scheduler.v4.messages import (
    DDL_DISPATCHER,
    BlockStatusRequest,
    HeartBeatResponse,
    InfluencedTables,
    SchemaIDChange,
    State,
    Table,
    TableSpanBlockStatus,
)
from ticdc_lab.simulate.scheduler.v4.operators import MoveOperator

SOME = InfluencedTables("Normal", (1, 2))


class World:
    """A barrier over tables 1 and 3 on A and 2 on B; the maintainer is on A."""

    def __init__(self) -> None:
        state = replicating(1, 3, checkpoint_ts=1)
        state, _ = spans.restored(state, 2, B, 1, 0, "given")
        self.barrier, self.control = Barrier(A), controlled(state)
        self.at_us = 0

    def report(self, sender: str, *keys: Key, **state: Any) -> list[Output]:
        """Let dispatchers report one block state."""
        told = State(**{"is_blocked": True, "block_ts": 10, "block_tables": SOME, **state})
        request = BlockStatusRequest(tuple(TableSpanBlockStatus(key, told) for key in keys))
        self.barrier, self.control, outputs = handle_status(self.barrier, self.control, sender, request, self.at_us)
        return outputs

    def resend(self, at_us: int) -> list[Output]:
        """Let time pass and send again."""
        self.at_us = at_us
        self.barrier, self.control, outputs = resent(self.barrier, self.control, at_us)
        return outputs


def said(outputs: list[Output]) -> list[tuple[str, str, tuple[Key, ...]]]:
    """Give (to, ack or action, dispatchers) of the barrier's messages."""
    found = []
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.message, HeartBeatResponse):
            for one in output.message.dispatcher_statuses:
                what = one.action.action if one.action else "ACK"
                found.append((output.to, what, one.influenced_dispatchers.dispatcher_ids))
    return found


def test_one_writes_and_then_the_others_pass() -> None:
    """Nobody passes before the write; the event is forgotten when all have passed."""
    world = World()
    assert said(world.report(A, 1)) == [(A, "ACK", (1,))]
    assert said(world.report(B, 2)) == [(B, "ACK", (2,)), (B, "Write", (2,))]
    assert said(world.report(A, 1)) == [(A, "ACK", (1,))], "reported again, it is only acknowledged again"
    assert said(world.report(B, 2, stage="DONE")) == [(B, "ACK", (2,))]
    assert said(world.resend(1)) == [(A, "Pass", (1,))]
    assert said(world.report(A, 1, stage="DONE")) == [(A, "ACK", (1,))]
    assert not world.barrier.events


def test_nobody_passes_what_is_not_written() -> None:
    """A stray DONE of another dispatcher is nothing, and no pass is sent before the writer's."""
    world = World()
    world.report(A, 1)
    world.report(B, 2)
    outputs = world.report(A, 1, stage="DONE")
    assert any(isinstance(output, Ignored) for output in outputs)
    for at_us in range(RESEND_US, 5 * RESEND_US, RESEND_US):
        assert said(world.resend(at_us)) == [(B, "Write", (2,))]
    assert world.barrier.events


def test_actions_are_sent_again_each_second() -> None:
    """The write until it is done, then the pass."""
    world = World()
    world.report(A, 1)
    world.report(B, 2)
    assert not said(world.resend(RESEND_US - 1))
    assert said(world.resend(RESEND_US)) == [(B, "Write", (2,))]
    world.report(B, 2, stage="DONE")
    assert said(world.resend(RESEND_US + 1)) == [(A, "Pass", (1,))]
    assert not said(world.resend(RESEND_US + 2))
    assert said(world.resend(2 * RESEND_US + 1)) == [(A, "Pass", (1,))]


def test_the_table_trigger_dispatcher_writes_where_it_takes_part() -> None:
    """Otherwise the last to report does."""
    world = World()
    with_ddl = InfluencedTables("Normal", (0, 1, 2))
    world.report(A, DDL_DISPATCHER, 1, block_tables=with_ddl)
    assert said(world.report(B, 2, block_tables=with_ddl)) == [(B, "ACK", (2,)), (A, "Write", (DDL_DISPATCHER,))]


@pytest.mark.parametrize("kind", ["DB", "All"])
def test_a_ddl_on_a_schema_or_everything_is_written_by_the_table_trigger_dispatcher(kind: Any) -> None:
    """Which has to report too; the pass goes to nodes, without the writer."""
    world = World()
    schemas = world.control.spans.schemas.update({1: 5, 2: 5, 3: 6 if kind == "DB" else 5})
    world.control = world.control._replace(spans=world.control.spans._replace(schemas=schemas))
    tables = InfluencedTables(kind, (), 5)
    world.report(A, 1, *(() if kind == "DB" else (3,)), block_tables=tables)
    assert said(world.report(B, 2, block_tables=tables)) == [(B, "ACK", (2,))]
    ended = world.report(A, DDL_DISPATCHER, block_tables=tables)
    assert said(ended) == [(A, "ACK", (DDL_DISPATCHER,)), (A, "Write", (DDL_DISPATCHER,))]
    world.report(A, DDL_DISPATCHER, stage="DONE", block_tables=tables)
    passed = [output for output in world.resend(1) if isinstance(output, Send)]
    assert [output.to for output in passed] == [A, B]
    assert passed[0].message.dispatcher_statuses[0].influenced_dispatchers.exclude_dispatcher_id == DDL_DISPATCHER


def test_v4_17_what_blocks_nobody_is_only_acknowledged() -> None:
    """Drops 1, 2, 3, adds 1, 2: no event is kept; the new tables are absent, for the basic scheduler."""
    world = World()
    outputs = world.report(
        A, DDL_DISPATCHER, is_blocked=False, block_tables=None,
        need_dropped_tables=InfluencedTables("Normal", (1, 2, 3)), need_added_tables=(Table(1, 1), Table(2, 1)),
    )  # fmt: skip
    assert said(outputs) == [(A, "ACK", (DDL_DISPATCHER,))] and not world.barrier.events
    assert {key: str(replica) for key, replica in world.control.spans.replicas.items()} == {1: "absent", 2: "absent"}
    assert set(sent(outputs)) == {(A, "Remove", 1), (B, "Remove", 2), (A, "Remove", 3)}
    assert world.control.spans.replicas[1].checkpoint_ts == 10


def test_v4_18_a_dispatcher_created_again_starts_one_below_the_event() -> None:
    """StartTs is 9: the DDL is neither skipped nor is a row lost."""
    world = World()
    world.report(A, 1)
    order = operators.create(world.control.spans, 1, B, "Add")
    assert order.message.start_ts == 9  # type: ignore[union-attr]


def test_v4_19_a_ddl_and_a_syncpoint_of_one_ts_are_two_events() -> None:
    """Key is (blockTs, isSyncPoint)."""
    world = World()
    world.report(A, 1)
    world.report(A, 1, is_sync_point=True)
    assert sorted(world.barrier.events) == [EventKey(10, False), EventKey(10, True)]
    world.report(B, 2, is_sync_point=True)
    assert not world.barrier.events[EventKey(10, False)].selected
    assert world.barrier.events[EventKey(10, True)].selected
    assert not said(world.report(B, 2, stage="DONE", is_sync_point=False))[1:]


def test_a_table_dropped_by_the_event_need_not_pass() -> None:
    """Its dispatchers are removed when the writer has written, and the event ends without them."""
    world = World()
    drop = {"need_dropped_tables": InfluencedTables("Normal", (1,)), "block_tables": InfluencedTables("Normal", (0, 1))}
    world.report(A, 1, **drop)
    outputs = world.report(A, DDL_DISPATCHER, **drop)
    assert said(outputs)[-1] == (A, "Write", (DDL_DISPATCHER,)) and 1 in world.control.spans.replicas
    outputs = world.report(A, DDL_DISPATCHER, stage="DONE", **drop)
    assert sent(outputs) == [(A, "Remove", 1)] and 1 not in world.control.spans.replicas
    assert not world.barrier.events


def test_new_tables_hold_the_checkpoint_until_they_are_taken_up() -> None:
    """An event with new tables limits the checkpoint while it is open; a change of schema is taken up."""
    world = World()
    new = {"need_added_tables": (Table(7, 1),), "updated_schemas": (SchemaIDChange(2, 1, 4),)}
    world.report(A, 1, **new)
    assert limit_ts(world.barrier) == 10
    world.report(B, 2, **new)
    world.report(B, 2, stage="DONE", **new)
    world.report(A, 1, stage="DONE", **new)
    assert limit_ts(world.barrier) is None and str(world.control.spans.replicas[7]) == "absent"
    assert world.control.spans.schemas[2] == 4


def test_events_change_tables_in_the_order_of_their_ts() -> None:
    """A later one that is ready first is not acknowledged, so it is reported again."""
    world = World()
    new = {"need_added_tables": (Table(7, 1),)}
    world.report(A, 1, **new)
    world.report(B, 2, **new)
    later = {"block_ts": 20, "is_blocked": False, "block_tables": None, "need_added_tables": (Table(8, 1),)}
    assert not said(world.report(A, DDL_DISPATCHER, **later)) and 8 not in world.control.spans.replicas
    world.report(B, 2, stage="DONE", **new)
    assert said(world.report(A, DDL_DISPATCHER, **later)) == [(A, "ACK", (DDL_DISPATCHER,))]
    assert {7, 8} <= set(world.control.spans.replicas)


@pytest.mark.parametrize("unknown", [False, True])
def test_only_replicating_dispatchers_are_heard(unknown: bool) -> None:
    """One that is gone or moves does not count, also if it reported before it began to move."""
    world = World()
    outputs = world.report(A, 9) if unknown else []
    world.report(A, 1)
    world.control, _, _ = controller.added(world.control, MoveOperator(1, A, B), 1)
    assert not said(outputs) and said(world.report(A, 1)) == []
    assert said(world.report(B, 2)) == [(B, "ACK", (2,))], "table 1 has to report from its new place"


def test_a_done_of_an_event_nobody_knows_is_not_acknowledged() -> None:
    """It is late."""
    world = World()
    assert not said(world.report(A, 1, stage="DONE")) and not world.barrier.events


def test_a_writer_that_moved_is_told_where_it_is() -> None:
    """And while it is on no node, why nothing is sent."""
    world = World()
    world.report(A, 1)
    world.report(B, 2)
    world.control, _ = controller.node_removed(world.control, B, 1)
    assert not said(world.resend(RESEND_US))
    restored, _ = spans.restored(world.control.spans, 2, A, 9, 2, "given")
    world.control = world.control._replace(spans=restored)
    assert said(world.resend(2 * RESEND_US)) == [(A, "Write", (2,))]


def test_an_event_says_what_it_waits_for() -> None:
    """A table to reach it, the writer to write it, a table to pass it; and since when."""
    world = World()
    world.at_us = 7
    world.report(A, 1)
    assert waiting(world.barrier, world.control) == [
        Reason("barrier", "10", "the DDL at 10 waits for table 2 to reach it")
    ]
    assert waiting(world.barrier, world.control)[0].since_us == 7
    world.report(B, 2)
    assert waiting(world.barrier, world.control)[0].words == "the DDL at 10 waits for table 2 to write it"
    world.report(B, 2, stage="DONE")
    assert waiting(world.barrier, world.control)[0].words == "the DDL at 10 waits for table 1 to pass it"


def test_what_another_has_left_behind_is_passed_without_a_write() -> None:
    """After a lost node a dispatcher meets an old event again: the others are beyond it, so it is downstream."""
    world = World()
    state = world.control.spans
    state = spans.checkpointed(state, 2, 30)._replace(reached=state.reached.set(B, 30))
    world.control = Control(state, nodes=world.control.nodes)
    assert said(world.report(A, 1)) == [(A, "ACK", (1,))]
    assert said(world.resend(1)) == [(A, "Pass", (1,))]
    world.report(A, 1, stage="DONE")
    assert not world.barrier.events


def test_a_ddl_at_which_all_wait_is_looked_at_again() -> None:
    """Those that wait were acknowledged and say nothing: a heartbeat shows that another has left it behind."""
    world = World()
    world.report(A, 1)
    assert said(world.resend(1)) == []
    state = spans.checkpointed(world.control.spans, 2, 30)._replace(reached=world.control.spans.reached.set(B, 30))
    world.control = world.control._replace(spans=state)
    assert said(world.resend(2)) == [(A, "Pass", (1,))]
    world.report(A, 1, stage="DONE")
    assert not world.barrier.events


@pytest.mark.parametrize(
    ("stages", "selected", "advanced"),
    [(("WAITING", "WAITING"), False, False), (("WAITING", "WRITING"), True, False), (("DONE", "WAITING"), True, True)],
)
def test_a_new_maintainer_finds_the_open_events(stages: tuple[Any, Any], selected: bool, advanced: bool) -> None:
    """TestHandleBlockBootstrapResponse: it goes on with the write or the pass, or waits for a report."""
    world = World()
    states = [State(True, 10, SOME, stage=stage) for stage in stages]
    told = [TableSpanBlockStatus(key, state) for key, state in zip((1, 2), states, strict=True)]
    world.barrier, _ = rebuilt(Barrier(A), world.control.spans, told, 0)
    event = world.barrier.events[EventKey(10, False)]
    assert (event.selected, event.writer_advanced) == (selected, advanced)
    if not selected:
        assert said(world.report(B, 2)) == [(B, "ACK", (2,)), (B, "Write", (2,))]
    elif not advanced:
        assert said(world.resend(1)) == [(B, "Write", (2,))]
    else:
        assert said(world.resend(1)) == [(B, "Pass", (2,))]
        world.report(B, 2, stage="DONE")
        assert not world.barrier.events


def test_an_event_that_was_written_before_the_maintainer_was_lost_is_only_passed() -> None:
    """The writer went on and stands at nothing; the other one still waits."""
    world = World()
    known = spans.checkpointed(world.control.spans, 2, 50)
    world.control = world.control._replace(spans=known)
    told = [TableSpanBlockStatus(1, State(True, 10, SOME)), TableSpanBlockStatus(3, State(False, 10, stage="NONE"))]
    world.barrier, outputs = rebuilt(Barrier(A), known, told, 0)
    assert len(outputs) == 1 and said(world.resend(1)) == [(A, "Pass", (1,))]
    world.report(A, 1, stage="DONE")
    assert not world.barrier.events
