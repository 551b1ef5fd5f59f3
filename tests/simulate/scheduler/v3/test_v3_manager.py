"""All sets of the owner: tasks from beginning to end, captures that come and go, the watermarks of all."""

from __future__ import annotations

from immutables import Map
from v3_cases import at, replicating, replications

from ticdc_lab.machines.machine import Broken, Ignored
from ticdc_lab.simulate.scheduler.roles import Span
from ticdc_lab.simulate.scheduler.v3.coordinator import advance
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPED,
    STOPPING,
    AddTable,
    Checkpoint,
    Header,
    HeartbeatResponse,
    RemoveTable,
    Steady,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.replication_set import ABSENT_SET, PREPARE, REMOVING, REPLICATING_SET, rebuilt
from ticdc_lab.simulate.scheduler.v3.replications import (
    AddTask,
    Burst,
    MoveTask,
    RemoveTask,
    Replications,
    ReplicationsDraft,
    changed,
    current,
    handle_tasks,
    noted,
    planned,
    rebuild,
    shut_down,
    spans_of,
    take_response,
    take_status,
    unscheduled,
)


class Manager:
    """The owner's records, one step after the other."""

    def __init__(self, records=None):
        self.records = records or Replications()

    def step(self, change):
        draft = ReplicationsDraft(self.records)
        self.result = change(draft)
        self.records, self.notes = draft.finished(), draft.notes
        return draft.requests

    def tasks(self, *tasks, limit=10):
        return self.step(lambda draft: handle_tasks(draft, tasks, limit))

    def hears(self, sender, state, checkpoint_ts=0, span=1):
        return self.step(lambda draft: take_status(draft, sender, at(state, checkpoint_ts, checkpoint_ts, span)))

    def loses(self, address):
        return self.step(lambda draft: shut_down(draft, address))


def test_an_add_task_runs_until_its_table_replicates():
    """Begun once; a second one of the same table is refused; the next call finds it ended."""
    it = Manager()
    assert it.tasks(AddTask(1, "1", 1)) == [("1", AddTable(1, True, Checkpoint(1, 1)))] and len(it.result) == 1
    assert it.tasks(AddTask(1, "1", 1)) == [] and it.result == []
    assert it.hears("1", PREPARED) == [("1", AddTable(1, False, Checkpoint(1, 1)))]
    assert it.hears("1", REPLICATING) == [] and 1 in it.records.running
    assert it.tasks() == [] and 1 not in it.records.running


def test_a_remove_task_ends_with_the_record():
    """Of an unknown table it is refused; the record goes when the capture has stopped, through whichever message."""
    it = Manager()
    assert it.tasks(RemoveTask(1, "1")) == [] and it.result == []
    it = Manager(replications({1: "1"}))
    assert it.tasks(RemoveTask(1, "1")) == [("1", RemoveTable(1))]
    assert it.tasks(RemoveTask(1, "1")) == [] and it.result == []
    assert it.hears("1", STOPPING) == [] and it.records.sets[1].state == REMOVING
    assert it.hears("1", STOPPED) == [] and 1 not in it.records.sets
    assert it.tasks() == [] and not it.records.running
    it.hears("1", ABSENT)
    assert isinstance(it.notes[0], Ignored)


def test_a_move_task_hands_over_without_a_gap():
    """Prepare at the destination, remove at the source, add at the destination from the source's last checkpoint."""
    it = Manager()
    assert it.tasks(MoveTask(1, "2")) == [] and it.result == []
    it = Manager(replications({1: "1"}))
    assert it.tasks(MoveTask(1, "2")) == [("2", AddTable(1, True, Checkpoint()))]
    assert it.tasks(MoveTask(1, "2")) == [] and it.result == []
    assert it.hears("2", PREPARED) == [("1", RemoveTable(1))]
    assert it.hears("1", STOPPED, 7) == [("2", AddTable(1, False, Checkpoint(7, 7)))]
    assert it.hears("2", REPLICATING) == [] and it.records.sets[1].primary == "2"


def test_a_burst_of_moves_and_removes_skips_what_has_a_task():
    """As a burst of adds does."""
    it = Manager(replications({1: "1", 2: "1", 5: "5"}))
    assert it.tasks(Burst((MoveTask(2, "2"),)), limit=1) == [("2", AddTable(2, True, Checkpoint()))]
    burst = Burst((AddTask(4, "4", 2), AddTask(2, "0", 2), RemoveTask(5, "5"), RemoveTask(2, "0")))
    assert it.tasks(burst, limit=1) == [("4", AddTable(4, True, Checkpoint(2, 2))), ("5", RemoveTable(5))]


def test_records_are_made_from_all_captures_once_and_captures_leave():
    """Each table by what all captures reported of it; a second initialization is a violation."""
    found = {
        "1": [at(REPLICATING, span=1)],
        "2": [at(REPLICATING, span=2)],
        "3": [at(REPLICATING, span=3), at(PREPARING, span=2)],
        "4": [at(STOPPING, span=4)],
        "5": [at(STOPPED, span=5)],
    }
    draft = rebuild(Replications(), found, 0)
    it = Manager(draft.finished())
    states = {1: REPLICATING_SET, 2: PREPARE, 3: REPLICATING_SET, 4: REMOVING, 5: ABSENT_SET}
    assert {span: it.records.sets[span].state for span in sorted(it.records.sets)} == states
    assert isinstance(rebuild(it.records, found, 0).notes[0], Broken)
    assert isinstance(rebuild(Replications(), {"1": found["1"], "2": found["1"]}, 0).notes[-1], Broken)
    assert it.loses("1") == []
    assert {span: found.state for span, found in it.records.sets.items()} == states | {1: ABSENT_SET}


def test_the_task_of_a_capture_that_leaves_ends():
    """The table can be added at once to another capture."""
    it = Manager()
    it.tasks(AddTask(1, "1", 0), limit=1)
    assert it.loses("1") == [] and it.records.sets[1].state == ABSENT_SET and not it.records.running
    assert it.tasks(AddTask(1, "2", 0), limit=1) == [("2", AddTable(1, True, Checkpoint()))]


def test_undisturbed_tables_share_the_watermark_of_their_capture():
    """A response with one watermark for all settles them; a later disturbance begins from it."""
    it = Manager(replications({1: "a", 2: "a"}))
    held = Map({1: None, 2: None})
    steady = Steady(held, held, Checkpoint(8, 9), 9)
    response = HeartbeatResponse(Header("", 1), "o", (), steady=steady)
    it.step(lambda draft: take_response(draft, "a", response))
    assert not it.records.exact and current(it.records.sets[2], False, it.records.steady).checkpoint == Checkpoint(8, 9)
    found = advance(it.records, planned({1, 2}, it.records.sets))
    assert found[:2] == (8, 9) and found.because.words == "a, with all its undisturbed tables, is the slowest"
    lagging = response._replace(
        statuses=(at(REPLICATING, 8, 9, 1),), steady=steady._replace(checkpoint=Checkpoint(11, 12))
    )
    it.step(lambda draft: take_response(draft, "a", lagging))
    found = advance(it.records, planned({1, 2}, it.records.sets))
    assert found[:2] == (8, 9) and found.because.words == "table 1 (Replicating on a) is the slowest"
    it.loses("a")
    assert it.records.sets[1].checkpoint == Checkpoint(8, 9) and it.records.sets[2].checkpoint == Checkpoint(11, 12)
    assert [status.span for status in spans_of(lagging)] == [1, 2]


def test_a_table_the_owner_believes_somewhere_and_that_is_not_there_is_found():
    """It was asked for and is not held: Absent, so that it is prepared again."""
    it = Manager()
    it.tasks(AddTask(1, "a", 3))
    steady = Steady(Map(), Map({1: None}), Checkpoint(8, 9), 9)
    sent = it.step(lambda draft: take_response(draft, "a", HeartbeatResponse(Header("", 1), "o", (), steady=steady)))
    assert sent == [("a", AddTable(1, True, Checkpoint(3, 3)))]
    steady = steady._replace(asked=Map())
    assert it.step(lambda d: take_response(d, "a", HeartbeatResponse(Header("", 1), "o", (), steady=steady))) == []
    newer = Map({1: 5})
    again = HeartbeatResponse(Header("", 1), "o", (TableStatus(1, STOPPED),), steady=steady)
    assert it.step(lambda d: take_response(d, "a", again, newer)) == [] and it.records.sets[1].state == PREPARE


def test_the_checkpoint_is_held_by_barriers_and_holes():
    """No table: the barrier. A prepared table counts with where it starts. A missing span holds everything."""
    draft = ReplicationsDraft(Replications())
    draft.put(rebuilt(4, 3, {"1": TableStatus(4, PREPARED, Checkpoint(10, 15))}))
    parts = [Span(5, "", "m"), Span(5, "m", "~")]
    for part in parts:
        draft.put(rebuilt(part, 3, {"1": TableStatus(part, PREPARED, Checkpoint(3, 10))}))
    records = draft.finished()
    assert advance(records, planned((), {}), barrier_ts=5)[:2] == (5, 5)
    assert advance(records, planned((), {}), floor_ts=4)[:2] == (4, 4)
    assert advance(records, planned([4, *parts], records.sets), barrier_ts=30)[:2] == (3, 10)
    assert advance(records, planned([4], records.sets), barrier_ts=9)[:2] == (9, 9)
    assert advance(records, planned([4, 6], records.sets), barrier_ts=25).checkpoint_ts is None
    draft = ReplicationsDraft(records)
    draft.delete(parts[1])
    lost = noted(planned([4, *parts], records.sets), draft.gone, draft.finished().sets)
    found = advance(draft.finished(), lost, barrier_ts=30)
    assert found.checkpoint_ts is None and found.because.words.startswith("table 5[m,~) is not scheduled")


def test_a_plan_knows_what_is_missing_and_what_is_too_much():
    """Tables come, are scheduled, get lost and are dropped."""
    sets = {1: replicating(1, "a"), 9: replicating(9, "a")}
    plan = planned({1, 2, 3}, sets)
    assert list(unscheduled(plan, sets)) == [2, 3] and list(plan.surplus) == [9]
    sets |= {2: replicating(2, "a")}
    plan = noted(plan, (), sets)
    assert plan.at == 1 and list(unscheduled(plan, sets)) == [3]
    plan = changed(plan, {0, 9}, {3, 1}, sets)
    assert list(unscheduled(plan, sets)) == [0] and list(plan.surplus) == [1]
    del sets[2], sets[1]
    plan = noted(plan, (2, 1), sets)
    assert list(unscheduled(plan, sets)) == [2, 0] and not plan.surplus
