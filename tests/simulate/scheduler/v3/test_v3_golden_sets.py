"""The golden cases of one replication set and of the manager of all (`tests/data/golden/scheduler/v3.jsonl`)."""

from __future__ import annotations

import itertools

import pytest
from v3_cases import at, replicating, statuses

from ticdc_lab.machines.machine import Broken, Ignored
from ticdc_lab.simulate.scheduler.v3 import replication_set as one
from ticdc_lab.simulate.scheduler.v3.coordinator import advance
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPED,
    STOPPING,
    TABLE_STATES,
    AddTable,
    Checkpoint,
    RemoveTable,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.replication_set import (
    ABSENT_SET,
    COMMIT,
    PREPARE,
    PRIMARY,
    REMOVING,
    REPLICATING_SET,
    SECONDARY,
    UNDETERMINED,
    absent,
    has_removed,
    rebuilt,
)
from ticdc_lab.simulate.scheduler.v3.replications import (
    AddTask,
    Burst,
    Replications,
    ReplicationsDraft,
    handle_tasks,
    planned,
)


def test_v3_01_add_goes_through_prepare_and_commit():
    """Absent, Prepare (secondary), Commit (the same capture, primary), Replicating; nothing is sent for Preparing."""
    polled = one.add(absent(1, 5), "1")
    assert polled.replication.state == PREPARE
    assert polled.requests == (("1", AddTable(1, True, Checkpoint(5, 5))),)
    assert polled.notes[0].before == ABSENT_SET and polled.notes[0].after == PREPARE and polled.notes[0].because

    polled = one.poll(polled.replication, "1", at(PREPARING))
    assert (polled.replication.state, polled.requests) == (PREPARE, ())

    polled = one.poll(polled.replication, "1", at(PREPARED))
    assert (polled.replication.state, polled.replication.primary) == (COMMIT, "1")
    assert polled.requests == (("1", AddTable(1, False, Checkpoint(5, 5))),)

    polled = one.poll(polled.replication, "1", at(REPLICATING))
    assert (polled.replication.state, polled.requests) == (REPLICATING_SET, ())
    assert polled.replication.captures == (("1", PRIMARY),)
    polled = one.poll(polled.replication, "1", at(REPLICATING, 8, 9))
    assert polled.replication.checkpoint == Checkpoint(8, 9)


def test_v3_02_a_lost_request_is_sent_again_with_the_next_report():
    """Absent in Prepare and Prepared in Commit lead to the same request once more, and to no other state."""
    preparing = one.add(absent(1, 5), "1")
    again = one.poll(preparing.replication, "1", at(ABSENT))
    assert again.requests == preparing.requests and again.replication == preparing.replication
    committed = one.poll(preparing.replication, "1", at(PREPARED))
    again = one.poll(committed.replication, "1", at(PREPARED))
    assert again.requests == committed.requests and again.replication == committed.replication
    assert one.add(preparing.replication, "1").requests == ()


def test_v3_04_the_destination_goes_on_from_the_last_checkpoint_of_the_source():
    """Stopping (3,3) and Stopped (3,4): the destination gets (3,4), neither a gap nor a step back."""
    rep = moving_in_commit()
    rep = one.poll(rep, "source", at(STOPPING, 3, 3)).replication
    assert (rep.state, rep.primary) == (COMMIT, "source")
    polled = one.poll(rep, "source", at(STOPPED, 3, 4))
    assert polled.requests == (("dest", AddTable(1, False, Checkpoint(3, 4))),)
    assert (polled.replication.state, polled.replication.captures) == (COMMIT, (("dest", PRIMARY),))
    assert one.poll(polled.replication, "dest", at(REPLICATING)).replication.state == REPLICATING_SET


def test_v3_05_absent_counts_as_stopped_where_that_was_lost():
    """The destination begins at the last checkpoint that was seen: rows may come twice, none is lost."""
    rep = one.poll(moving_in_commit(), "source", at(STOPPING, 3, 3)).replication
    polled = one.poll(rep, "source", at(ABSENT))
    assert polled.requests == (("dest", AddTable(1, False, Checkpoint(3, 3))),)
    assert polled.replication.primary == "dest"


def test_v3_06_a_former_primary_is_not_listened_to():
    """Its late Absent changes nothing and sends nothing."""
    rep = one.poll(moving_in_commit(), "source", at(STOPPED, 3, 4)).replication
    assert one.poll(rep, "source", at(ABSENT)) == (rep, (), ())


@pytest.mark.parametrize(
    ("found", "state", "primary", "roles"),
    [
        ({}, ABSENT_SET, None, {}),
        ({"1": PREPARED, "2": REPLICATING}, COMMIT, "2", {"1": SECONDARY, "2": PRIMARY}),
        ({"1": PREPARING, "2": REPLICATING}, PREPARE, "2", {"1": SECONDARY, "2": PRIMARY}),
        ({"1": PREPARING}, PREPARE, None, {"1": SECONDARY}),
        ({"1": REPLICATING}, REPLICATING_SET, "1", {"1": PRIMARY}),
        ({"1": STOPPING, "2": STOPPING}, REMOVING, None, {"1": UNDETERMINED, "2": UNDETERMINED}),
        ({"1": PREPARED, "2": STOPPING}, COMMIT, None, {"1": SECONDARY, "2": UNDETERMINED}),
        ({"1": PREPARED, "2": STOPPED}, COMMIT, None, {"1": SECONDARY}),
        ({"1": ABSENT, "2": STOPPED}, ABSENT_SET, None, {}),
    ],
)
def test_v3_07_a_new_owner_makes_the_record_from_the_statuses(found, state, primary, roles):
    """The state follows from what the captures have; the checkpoint is not below the global one."""
    rep = rebuilt(1, 2, {name: at(its, 1, 1) for name, its in found.items()})
    assert (rep.state, rep.primary, dict(rep.captures)) == (state, primary, roles)
    assert rep.checkpoint == Checkpoint(2, 2)


def test_two_primaries_are_a_violation():
    """Two captures that replicate one span: the new owner breaks, and so does one that hears of a second later."""
    assert isinstance(rebuilt(1, 0, statuses({"1": REPLICATING, "2": REPLICATING})), Broken)
    for found in ({"1": REPLICATING, "2": STOPPING}, {"1": PREPARED, "2": STOPPING}):
        rep = rebuilt(1, 0, statuses(found))
        polled = one.poll(rep, "2", at(REPLICATING))
        assert isinstance(polled.notes[-1], Broken) and polled.replication == rep


@pytest.mark.parametrize("end", [STOPPED, ABSENT])
def test_v3_09_nobody_is_promoted_while_another_may_still_write(end):
    """Rebuilt with 1 Prepared and 2 Stopping: 1 is promoted only after 2 has reported that it stopped."""
    rep = rebuilt(1, 0, statuses({"1": PREPARED, "2": STOPPING}))
    for sender, state in (("1", PREPARED), ("2", STOPPING)):
        assert one.poll(rep, sender, at(state)) == (rep, (), ())
    polled = one.poll(rep, "2", at(end))
    assert polled.requests == () and polled.replication.captures == (("1", SECONDARY),)
    polled = one.poll(polled.replication, "1", at(PREPARED))
    assert polled.requests == (("1", AddTable(1, False, Checkpoint())),) and polled.replication.primary == "1"


def test_v3_11_a_capture_dies_while_a_table_is_prepared_elsewhere():
    """The source: the destination continues alone; then it too: Absent. The destination first: back to the source."""
    rep = moving_in_prepare()
    alone = one.shut_down(rep, "source")
    assert alone.requests == () and alone.replication.captures == (("dest", SECONDARY),)
    assert alone.replication.state == PREPARE
    none = one.shut_down(alone.replication, "dest")
    assert (none.replication.state, none.replication.captures, none.requests) == (ABSENT_SET, (), ())
    back = one.shut_down(rep, "dest")
    assert (back.replication.state, back.replication.captures) == (REPLICATING_SET, (("source", PRIMARY),))


def test_a_capture_dies_while_a_move_is_committed():
    """The source: the destination is promoted. The destination: the source continues, or is prepared again if gone."""
    rep = moving_in_commit()
    promoted = one.shut_down(rep, "source")
    assert promoted.requests == (("dest", AddTable(1, False, rep.checkpoint)),)
    assert one.shut_down(promoted.replication, "dest").replication.state == ABSENT_SET
    alone = one.shut_down(rep, "dest").replication
    assert (alone.state, alone.captures) == (COMMIT, (("source", PRIMARY),))
    assert one.poll(alone, "source", at(REPLICATING)).replication.state == REPLICATING_SET
    assert one.poll(alone, "source", at(STOPPED)).replication.state == ABSENT_SET
    again = one.poll(alone, "source", at(ABSENT))
    assert again.replication.state == PREPARE and again.replication.captures == (("source", SECONDARY),)
    assert again.requests == (("source", AddTable(1, True, rep.checkpoint)),)


def test_a_capture_dies_while_it_is_added():
    """In Prepare, in Commit, Replicating and after a rebuilt Commit: no one has the span any more."""
    prepare = one.add(absent(1, 0), "1").replication
    commit = one.poll(prepare, "1", at(PREPARED)).replication
    done = one.poll(commit, "1", at(REPLICATING)).replication
    for rep in (prepare, commit, done, rebuilt(1, 0, statuses({"1": PREPARED}))):
        polled = one.shut_down(rep, "1")
        assert (polled.replication.state, polled.replication.captures, polled.requests) == (ABSENT_SET, (), ())
        assert one.shut_down(rep, "unknown") == (rep, (), ())


def test_v3_15_only_what_replicates_is_removed_or_moved():
    """Otherwise the request is ignored; a remove is sent once and is over when every capture has stopped."""
    for rep in (absent(1, 0), one.add(absent(1, 0), "1").replication, moving_in_commit()):
        for polled in (one.remove(rep), one.move(rep, "2")):
            assert polled.replication == rep and polled.requests == ()
            assert isinstance(polled.notes[0], Ignored)
    polled = one.remove(replicating(1, "1"))
    assert (polled.replication.state, polled.requests) == (REMOVING, (("1", RemoveTable(1)),))
    assert one.remove(polled.replication).requests == ()
    still = one.poll(polled.replication, "1", at(STOPPING))
    assert still.requests == () and not has_removed(still.replication)
    assert one.poll(polled.replication, "1", at(REPLICATING)).requests == (("1", RemoveTable(1)),)
    for end in (STOPPED, ABSENT):
        assert has_removed(one.poll(polled.replication, "1", at(end)).replication)


def test_a_rebuilt_removal_ends_when_the_last_capture_has_stopped():
    """Two captures were stopping: Removing until both have."""
    rep = rebuilt(1, 0, statuses({"1": STOPPING, "2": STOPPING}))
    rep = one.poll(rep, "2", at(STOPPED)).replication
    assert rep.state == REMOVING and not has_removed(rep)
    assert has_removed(one.poll(rep, "1", at(ABSENT)).replication)


def test_a_table_is_not_moved_to_where_it_is():
    """The destination is the primary: ignored."""
    rep = replicating(1, "1")
    assert one.move(rep, "1").replication == rep and one.move(rep, "1").requests == ()


def test_a_capture_without_a_role_is_not_listened_to():
    """No matter what it shows, nothing happens."""
    rep = replicating(1, "1")
    for state in TABLE_STATES:
        assert one.poll(rep, "unknown", at(state)) == (rep, (), ())


def test_v3_16_a_report_leads_to_one_message_at_most():
    """Any pair of states on two captures, any permutation of the six states reported from one, any duplicate."""
    for pair in itertools.product(TABLE_STATES, repeat=2):
        rep = rebuilt(1, 0, statuses(dict(zip("12", pair, strict=True))))
        if isinstance(rep, Broken):
            assert pair == (REPLICATING, REPLICATING)
            continue
        for sequence in itertools.permutations(TABLE_STATES):
            now = rep
            for state in sequence:
                polled = one.poll(now, "1", at(state))
                assert len(polled.requests) <= 1 and None not in polled.requests
                now = polled.replication


def test_v3_17_bursts_are_exempt_from_the_limit_of_tasks():
    """One task may run: the second is refused; a burst of three is taken, except for the span that has a task."""
    draft = ReplicationsDraft(Replications())
    tasks = [AddTask(1, "0", 1), AddTask(9, "0", 1)]
    assert handle_tasks(draft, tasks, 1) == tasks[:1]
    assert [note.because for note in draft.notes if isinstance(note, Ignored)] == [
        "the limit of 1 running tasks is reached"
    ]
    draft = ReplicationsDraft(draft.finished())
    burst = Burst((AddTask(1, "1", 1), AddTask(2, "2", 1), AddTask(3, "3", 1)))
    assert handle_tasks(draft, [AddTask(9, "0", 1), burst], 1) == [burst]
    assert [(to, r.span) for to, r in draft.requests] == [("2", 2), ("3", 3)]
    assert sorted(draft.finished().running) == [1, 2, 3]


def test_v3_18_the_checkpoint_is_that_of_the_slowest_table_if_all_are_scheduled():
    """t1 (10,20), t2 (15,30), barrier 30: (10,20); the last sync is the highest, the puller's the lowest."""
    draft = ReplicationsDraft(Replications())
    draft.put(rebuilt(1, 10, {"1": TableStatus(1, REPLICATING, Checkpoint(10, 20, 15), 30)}))
    draft.put(rebuilt(2, 15, {"2": TableStatus(2, REPLICATING, Checkpoint(15, 30, 20), 40)}))
    replications = draft.finished()
    found = advance(replications, planned({1, 2}, replications.sets), barrier_ts=30)
    assert (found.checkpoint_ts, found.resolved_ts, found.last_synced_ts, found.puller_resolved_ts) == (10, 20, 20, 30)
    assert found.because.words == "table 1 (Replicating on 1) is the slowest"
    found = advance(replications, planned({1, 2, 3}, replications.sets), barrier_ts=30)
    assert found.checkpoint_ts is None and found.resolved_ts is None
    assert found.because.words == "table 3 is not scheduled to any capture yet"


def moving_in_prepare():
    """Give a set whose move has begun."""
    rep = one.move(replicating(1, "source"), "dest").replication
    assert (rep.state, rep.primary, dict(rep.captures)) == (PREPARE, "source", {"source": PRIMARY, "dest": SECONDARY})
    return rep


def moving_in_commit():
    """Give a set whose destination is prepared and whose source was ordered to stop."""
    polled = one.poll(moving_in_prepare(), "dest", at(PREPARED))
    assert polled.requests == (("source", RemoveTable(1)),) and polled.replication.state == COMMIT
    polled = one.poll(polled.replication, "source", at(REPLICATING, 2, 3))
    assert polled.requests == (("source", RemoveTable(1)),)
    return polled.replication
