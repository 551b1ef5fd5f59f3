"""The golden cases of the coordinator, of captures and of the schedulers, and what else their Go tests show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from immutables import Map
from v3_cases import Driven, at, captures, ids, view

from ticdc_lab.machines.machine import Asked, Now
from ticdc_lab.simulate.scheduler.roles import Drain, MoveTable, Rebalance
from ticdc_lab.simulate.scheduler.v3 import V3Settings
from ticdc_lab.simulate.scheduler.v3.captures import (
    INITIALIZED,
    STOPPING,
    UNINITIALIZED,
    Captures,
    V3CaptureStatus,
    all_initialized,
    heard,
    registered,
)
from ticdc_lab.simulate.scheduler.v3.messages import (
    LEAVING,
    PREPARED,
    PREPARING,
    REPLICATING,
    AddTable,
    Checkpoint,
    DispatchTableRequest,
    Header,
    Heartbeat,
    HeartbeatResponse,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.replication_set import REPLICATING_SET, move
from ticdc_lab.simulate.scheduler.v3.replications import AddTask, Burst, MoveTask, RemoveTask
from ticdc_lab.simulate.scheduler.v3.schedulers import (
    Schedulers,
    accepted,
    balance,
    basic,
    drain_capture,
    move_table,
    rebalance,
    schedule,
)

REPL = {span: TableStatus(span, REPLICATING) for span in range(1, 10)}


def owner(where, *, tables=None, settings=None, address="a"):
    """Give an owner that knows who replicates what: ``{capture: spans}``."""
    driven = Driven(address, settings=settings)
    driven.tick(where, ())
    for name in sorted(where):
        driven.answer(name, *(REPL[span] for span in where[name]))
    wanted = tables or [span for spans in where.values() for span in spans]
    driven.tables = frozenset(wanted)
    driven.tick(where, driven.tables)
    return driven


def test_v3_23_messages_of_another_revision_destination_or_epoch_are_dropped():
    """One of a node that is too old to know epochs is taken."""
    driven = owner({"a": (), "b": ()}, tables=[1])
    assert [to for to, _ in driven.requests()] == ["a"]
    prepared = TableStatus(1, PREPARED)
    for void in ({"owner_revision": 2}, {"owner_revision": 0}, {"to": "lost"}, {"changefeed_epoch": 2}):
        driven.respond("a", prepared, **void)
        assert driven.requests() == [] and len(driven.because()) == 1, void
    driven.respond("a", prepared, version="v6.5.3", changefeed_epoch=2)
    assert driven.requests() == [("a", AddTable(1, False, Checkpoint()))]
    driven.respond("a", prepared, version="v6.1.0", changefeed_epoch=None)
    assert driven.requests() == [("a", AddTable(1, False, Checkpoint()))]
    driven.respond("unknown", prepared)
    assert driven.requests() == [] and driven.because() == ["it comes from no registered capture"]


def test_v3_24_the_tables_of_a_capture_that_left_are_added_elsewhere_at_once():
    """Table 3 was on c: in the tick that finds c gone, a or b is asked to prepare it."""
    driven = owner({"a": (1,), "b": (2,), "c": (3,)})
    assert driven.requests() == []
    driven.tick({"a", "b"}, {1, 2, 3}, 7)
    ((to, request),) = driven.requests()
    assert to in ("a", "b") and request == AddTable(3, True, Checkpoint())


def test_nothing_is_scheduled_before_every_capture_has_answered():
    """Heartbeats first; then what no capture has is added, and what one has is left where it is."""
    driven = Driven()
    driven.tick("ab", {1, 2, 3})
    assert driven.heartbeats() == ["a", "b"] and driven.requests() == []
    assert driven.watermarks().checkpoint_ts is None and driven.watermarks().because.words.startswith(
        "a has not answered"
    )
    driven.answer("b")
    driven.tick("ab", {1, 2, 3})
    assert driven.heartbeats() == [] and driven.requests() == []
    driven.answer("a", REPL[1], REPL[2])
    driven.tick("ab", {1, 2, 3})
    assert driven.requests() == [("b", AddTable(3, True, Checkpoint()))]


def test_a_capture_that_joins_gets_a_table_once_it_has_answered():
    """Three tables on a, b joins: a heartbeat, and after its answer one move."""
    driven = owner({"a": (1, 2, 3)}, settings=V3Settings(heartbeat_ticks=1 << 30, check_balance_us=0))
    driven.tick("ab", driven.tables)
    assert driven.heartbeats() == ["b"] and driven.requests() == []
    driven.answer("b")
    driven.tick("ab", driven.tables)
    assert driven.requests() == [("b", AddTable(1, True, Checkpoint()))]


def test_the_checkpoint_proceeds_while_a_new_capture_has_not_answered():
    """Lowest checkpoint and resolved ts of all tables, under a barrier; a joining capture holds nothing."""
    driven = Driven()
    driven.tick("ab", {1, 2})
    driven.answer("b")
    driven.answer("a", at(REPLICATING, 2, 4, 1), at(REPLICATING, 2, 4, 2))
    driven.tick("ab", {1, 2}, 0, 5)
    assert driven.watermarks()[:2] == (2, 4)
    driven.answer("a", at(REPLICATING, 3, 5, 1), at(REPLICATING, 4, 5, 2))
    driven.tick("abc", {1, 2}, 0, 5)
    assert driven.heartbeats() == ["c"] and driven.watermarks()[:2] == (3, 5)
    assert driven.watermarks().because.words == "table 1 (Prepare on a) is the slowest"
    driven.tick("abc", {1, 2}, 0, 2)
    assert driven.watermarks()[:2] == (2, 2) and driven.watermarks().because.words == "a barrier is set at 2"
    driven.tick("abc", {1, 2, 3}, 0, 5)
    assert driven.watermarks()[:2] == (None, None) and "table 3" in driven.watermarks().because.words


def test_v3_26_balance_moves_as_many_tables_as_tasks_may_run():
    """Four tables on a, b joins: two moves, or one; none while a capture is stopping."""
    seen = view({1: "a", 2: "a", 3: "a", 4: "a"}, captures("a", "b"))
    for limit, moves in ((2, [MoveTask(1, "b"), MoveTask(2, "b")]), (1, [MoveTask(1, "b")])):
        tasks, (decided,) = balance(V3Settings(max_task_concurrency=limit), seen)
        assert tasks == moves and decided.chosen == f"move {limit} table{'s' * (limit > 1)}"
    assert decided.rejected[0] == ("a", "1 table not moved because 1 at a time is the limit")
    tasks, (decided,) = balance(V3Settings(), view({1: "a", 2: "a"}, captures("b", a=STOPPING)))
    assert tasks == [] and decided.because == "not balanced because a is stopping"
    tasks, (decided,) = balance(V3Settings(), view({1: "a", 2: "b"}, captures("a", "b")))
    assert tasks == [] and decided.chosen is None and len(decided.rejected) == 2


def test_the_balance_is_looked_at_again_after_an_interval_or_at_once_after_a_move():
    """A look that moved something is followed by another; one that found nothing waits."""
    settings = V3Settings(check_balance_us=1_000)
    even, odd = view({1: "a", 2: "b"}, captures("a", "b")), view({1: "a", 2: "a"}, captures("a", "b"))
    state, tasks, _ = schedule(settings, even, Schedulers())
    assert tasks == [] and state.balanced_us == 0
    state, tasks, _ = schedule(settings, odd, state)
    assert tasks == []
    later = odd._replace(now=odd.now._replace(at_us=1_000))
    state, tasks, _ = schedule(settings, later, state)
    assert tasks == [MoveTask(1, "b")] and state.force_balance
    assert schedule(settings, later, state)[1] == tasks


def test_a_stopping_capture_does_not_end_the_force_of_a_balance_that_goes_on():
    """As in TiCDC: such a look returns before it forgets that the last one moved something."""
    settings = V3Settings(check_balance_us=1_000_000)
    odd = view({1: "a", 2: "a"}, captures("a", "b"))
    state, tasks, _ = schedule(settings, odd, Schedulers())
    assert tasks and state.force_balance
    leaving = view({1: "a", 2: "a"}, captures("a", "b", c=STOPPING), now=Now(10))
    state, tasks, decided = schedule(settings, leaving, state)
    assert tasks == [] and "not balanced because c is stopping" in [d.because for d in decided]
    assert state.force_balance and state.balanced_us == 0
    assert schedule(settings, odd._replace(now=Now(20)), state)[1] == [MoveTask(1, "b")]
    calm, tasks, _ = schedule(settings, leaving, Schedulers())
    assert tasks == [] and not calm.force_balance and calm.balanced_us == 10


def test_v3_28_a_drained_capture_gives_its_tables_evenly():
    """Not before all are Replicating; then b, which has one already, gets one and c two; a limit of one gives one."""
    settings, members = V3Settings(), captures("a", "c", "b", owner="b")
    where = {1: "a", 2: "a", 3: "a", 6: "b"}
    moving = view(where, members)
    sets = moving.replications.sets
    target, tasks, (decided,) = drain_capture(
        settings, view({**where, 2: move(sets[2], "c").replication}, members), "a"
    )
    assert (target, tasks) == ("a", []) and decided.because == "a waits because table 2 is Prepare, not Replicating"
    target, tasks, _ = drain_capture(settings, moving, "a")
    assert target == "a" and [task.span for task in tasks] == [1, 2, 3]
    assert sorted(task.to for task in tasks) == ["b", "c", "c"]
    assert len(drain_capture(V3Settings(max_task_concurrency=1), moving, "a")[1]) == 1


def test_v3_29_the_owner_is_not_drained_and_an_empty_target_is_forgotten():
    """A stopping owner is skipped; a target without tables, or unknown, or with none beside it is no target."""
    settings = V3Settings()
    where = {1: "a", 2: "b"}
    target, tasks, decided = drain_capture(settings, view(where, captures("a", owner="b", b=STOPPING)), None)
    assert (target, tasks) == (None, []) and decided[0].because == "not drained because the owner goes last"
    for members, drained in ((captures("a", "b", "c"), "c"), (captures("a", "b"), "x"), (Map(), "a")):
        target, tasks, decided = drain_capture(settings, view(where, members), drained)
        assert (target, tasks) == (None, []) and decided[0].because
    assert drain_capture(settings, view({1: "a"}, captures("a")), "a")[0] is None
    target, tasks, _ = drain_capture(settings, view(where, captures("a", b=STOPPING)), None)
    assert (target, tasks) == ("b", [MoveTask(2, "a")])


def test_users_drain_only_what_can_be_drained():
    """Ignored while a capture has not answered, without tables, alone, for the owner, and while another is drained."""
    driven = owner({"a": (1,), "b": (2,), "c": ()})
    for target, because in (("c", "replicates no table"), ("a", "is the owner")):
        driven.step(Asked(Drain(target)))
        assert because in driven.because()[0] and driven.state.schedulers.drain_target is None
    driven.step(Asked(Drain("b")))
    assert driven.state.schedulers.drain_target == "b" and driven.because() == []
    driven.step(Asked(Drain("b")))
    assert "b is being drained" in driven.because()[0]
    driven.tick("abcd", driven.tables)
    driven.step(Asked(Drain("b")))
    assert "not all captures have answered" in driven.because()[0]


def test_v3_31_a_rebalance_stays_asked_for_until_its_burst_is_accepted():
    """Four tables on a, two on b: one burst with one move a->b, twice, until accepted; given up if one is stopping."""
    where = {1: "a", 2: "a", 5: "a", 6: "a", 3: "b", 4: "b"}
    seen = view(where, captures("a", "b"))
    state, settings = Schedulers(rebalance=True), V3Settings()
    assert rebalance(settings, seen, False) == (False, [], [])
    for _ in range(2):
        asked, tasks, _ = rebalance(settings, seen, state.rebalance)
        assert asked and tasks == [Burst((MoveTask(1, "b"),), asked=True)]
    assert accepted(state, tasks).rebalance is False
    asked, tasks, (decided,) = rebalance(settings, view(where, captures("b", a=STOPPING)), True)
    assert (asked, tasks) == (False, []) and decided.because == "given up because a is stopping"
    assert rebalance(settings, view(where, Map()), True) == (True, [], [])
    asked, tasks, (decided,) = rebalance(settings, view(where, captures("a", "b"), {0, *where}), True)
    assert (asked, tasks) == (True, []) and decided.because == "waits because no capture has table 0"
    asked, tasks, (decided,) = rebalance(settings, view({1: "a", 2: "b"}, captures("a", "b")), True)
    assert (asked, tasks, decided.chosen) == (True, [], None)


def test_v3_32_a_capture_is_initialized_by_its_first_answer_and_never_alive_again():
    """Another processor epoch is ignored; Stopping is kept, no matter what comes later."""
    status = V3CaptureStatus("a")
    response = HeartbeatResponse(Header("v8.5.0", 1, 4), "owner")
    assert status.state == UNINITIALIZED
    status = heard(status, response, response.header)
    assert (status.state, status.epoch) == (INITIALIZED, 4)
    leaving = response._replace(liveness=LEAVING)
    other = heard(status, leaving, leaving.header._replace(processor_epoch=9))
    assert other == status
    status = heard(status, leaving, leaving.header)
    assert (status.state, status.epoch) == (STOPPING, 4)
    assert heard(status, response, response.header).state == STOPPING


def test_captures_come_and_go():
    """New ones are not initialized; one that goes before the first record is forgotten, later it is to be taken out."""
    known, came, went = registered(Captures(), frozenset("123"), "1")
    assert (came, went) == (["1", "2", "3"], []) and known.members["1"].is_owner and not known.members["2"].is_owner
    known, came, went = registered(known, frozenset("23"), "1")
    assert (came, went, known.removed) == ([], ["1"], ()) and not all_initialized(known)
    done = Captures(captures("2", "3"), initialized=True)
    assert all_initialized(done)
    known, came, went = registered(done, frozenset("34"), "1")
    assert (came, went, known.removed) == (["4"], ["2"], ("2",)) and not all_initialized(known)


def test_heartbeats_come_every_second_tick_and_name_what_each_capture_should_have():
    """Also to captures that have not answered; a table in a move is asked of both."""
    driven = owner({"a": (1, 2), "b": (3,)}, settings=V3Settings(heartbeat_ticks=2))
    driven.step(Asked(MoveTable(3, "a")))
    driven.tick("ab", driven.tables)
    assert driven.requests() == [("a", AddTable(3, True, Checkpoint()))] and driven.heartbeats() == []
    driven.tick("ab", driven.tables)
    asked = {o.to: sorted(o.message.spans) for o in driven.sent(Heartbeat)}
    assert asked == {"a": [1, 2, 3], "b": [3]}


def test_statistics_are_asked_for_with_the_next_heartbeat():
    """Heartbeats at ticks 2, 4, 6, 8, statistics due at 3 and 6: asked for at 4 and 6."""
    driven = Driven(settings=V3Settings(heartbeat_ticks=2, collect_stats_ticks=3))
    asked = []
    for tick in range(1, 9):
        driven.tick("ab", ())
        beats = [o.message.collect_stats for o in driven.sent(Heartbeat)]
        if tick > 1:
            asked += [(tick, *beats)] if beats else []
    assert asked == [(2, False, False), (4, True, True), (6, True, True), (8, False, False)]


def test_messages_carry_revision_and_the_epoch_of_the_processor():
    """Epoch 0 before the capture has answered, its own afterwards."""
    driven = Driven("a", 3)
    driven.tick("a", {1})
    (beat,) = driven.sent(Heartbeat)
    assert beat.message.header[:4] == ("v8.5.0", 3, 0, 1)
    driven.answer("a", processor_epoch=7)
    driven.tick("a", {1})
    (request,) = driven.sent(DispatchTableRequest)
    assert request.message.header[:4] == ("v8.5.0", 3, 7, 1)


def test_basic_adds_in_batches_round_robin_and_removes_what_nobody_wants():
    """Stopping captures get nothing; all stopping: nothing is added; Absent spans are added like new ones."""
    settings = V3Settings(add_table_batch_size=2)
    tasks, _ = basic(settings, view({}, captures("b", a=STOPPING), {1, 2, 3, 4}, checkpoint_ts=9))
    assert tasks == [Burst((AddTask(1, "b", 9), AddTask(2, "b", 9)))]
    tasks, (decided,) = basic(settings, view({}, captures(a=STOPPING, b=STOPPING), {1, 2}))
    assert tasks == [] and "every capture is stopping" in decided.because
    tasks, _ = basic(settings, view({}, captures("a", "b"), {1, 2, 3, 4}))
    assert tasks == [Burst((AddTask(1, "a", 0), AddTask(2, "b", 0)))]
    tasks, _ = basic(settings, view({1: "a", 5: "a"}, captures("a", "b"), {1, 4}, checkpoint_ts=2))
    assert tasks == [Burst((AddTask(4, "b", 2),)), Burst((RemoveTask(5, "a"),))]
    assert basic(settings, view({1: "a"}, captures("a", "b"))) == ([], [])


def test_moves_that_cannot_be_made_are_given_up_with_a_reason():
    """Unknown table, unknown or stopping capture, no record, not Replicating; what can be moved stays asked for."""
    settings, where, members = V3Settings(), {1: "a"}, captures("a", "b", c=STOPPING)
    moving = {1: move(view(where, members).replications.sets[1], "b").replication}
    for seen, span, to, because in (
        (view(where, members), 0, "a", "it is not to be replicated"),
        (view(where, members), 1, "x", "x is not registered"),
        (view(where, members), 1, "c", "c is Stopping"),
        (view(where, members, {1, 2}), 2, "b", "no capture has it"),
        (view(moving, members), 1, "b", "it is Prepare, not Replicating"),
    ):
        asked, tasks, (decided,) = move_table(settings, seen, Map({span: to}))
        assert not asked and tasks == [] and decided.because.endswith(because)
    asked, tasks, _ = move_table(settings, view(where, members), Map({1: "b"}))
    assert asked and tasks == [MoveTask(1, "b", asked=True)]
    assert not accepted(Schedulers(moves=asked), tasks).moves


def test_only_basic_is_asked_while_as_many_tasks_run_as_may():
    """Adding continues; a move waits until a task has ended."""
    settings = V3Settings(max_task_concurrency=1)
    state = Schedulers(moves=Map({1: "b"}))
    seen = view({1: "a"}, captures("a", "b"))
    busy = seen._replace(replications=replace(seen.replications, running=Map({1: None})))
    assert schedule(settings, busy, state)[1] == []
    assert schedule(settings, busy._replace(plan=view({1: "a"}, Map(), {1, 2}).plan), state)[1] != []
    assert schedule(settings, seen, state)[1] == [MoveTask(1, "b", asked=True)]


def test_users_are_told_when_they_come_too_early():
    """Moves and rebalances are ignored until all captures have answered."""
    driven = Driven()
    driven.tick("ab", {1})
    for command in (MoveTable(1, "b"), Rebalance()):
        driven.step(Asked(command))
        assert "not all captures have answered the owner" in driven.because()[0]
    assert driven.state.schedulers == Schedulers()


@pytest.mark.parametrize("state", [PREPARING, PREPARED, REPLICATING])
def test_a_restarted_processor_is_found_and_its_tables_are_added_again(state):
    """A heartbeat response of a later epoch: all it had is gone, so that it is prepared again somewhere."""
    driven = owner({"a": (1,), "b": (2,)})
    driven.answer("b", processor_epoch=1)
    assert driven.state.replications.sets[2].state != REPLICATING_SET
    driven.tick("ab", driven.tables)
    assert [request.span for _, request in driven.requests()] == [2]
    driven.respond("b", TableStatus(2, state), processor_epoch=0)
    assert driven.requests() == [] and "epoch 0 has ended" in driven.because()[0]


def test_every_golden_case_of_this_protocol_has_a_test():
    """No case is left out: each id names at least one test function of this folder."""
    text = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_v3_golden_*.py"))
    missing = [one for one in ids() if f"def test_{one.replace('-', '_')}_" not in text]
    assert not missing and len(ids()) == 21
