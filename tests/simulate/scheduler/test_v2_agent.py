"""What tiflow's v6.1 tests of the processor's side show (`agent_test.go`); see v2_cases.Processor."""

from __future__ import annotations

import pytest
from v2_cases import VERSION, A, B, Processor, added, announced, broken, ignored, removed

from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.scheduler.messages import Checkpoint, DispatchTable, DispatchTableResponse, Sync
from ticdc_lab.simulate.scheduler.roles import Restart


def only(kind, sent):
    """Give the messages of a kind."""
    return [m for _, m in sent if isinstance(m, kind)]


def test_nothing_is_told_to_nobody():
    """Without an owner a processor is silent."""
    assert Processor().poll(1000) == []


def test_a_sync_answers_an_announcement():
    """v2-20: a new owner gets an empty state first, under a new epoch."""
    processor = Processor()
    assert processor.receive("owner", announced(3)) == []
    ((to, sync),) = processor.poll()
    assert (to, sync[:4]) == ("owner", (VERSION, (), (), ()))
    assert processor.poll(1000) == [], "once"


def test_a_sync_is_retried_until_the_transport_takes_it():
    """And nothing goes before it (tiflow TestNoFinishOperationBeforeSyncIsReceived)."""
    processor = Processor()
    epoch = processor.under()
    processor.receive("owner", added(1, epoch))
    processor.poll(1000)
    processor.receive("next", announced(2))
    assert processor.poll(1000, refused=("next",)) == []
    first, *rest = processor.poll(1000)
    assert isinstance(first[1], Sync) and first[1].running == (1,)
    assert all(not isinstance(m, Sync) for _, m in rest)


def test_a_table_is_added_and_reported():
    """DispatchTable starts the pipeline at its start ts, the response comes when it replicates, then watermarks."""
    processor = Processor(prepare_us=500)
    epoch = processor.under()
    processor.receive("owner", added(1, epoch, start_ts=777))
    assert processor.tables() == {1: "preparing"} and processor.state.executor.pipelines[1].start_ts == 777
    assert only(DispatchTableResponse, processor.poll(100)) == []
    sent = processor.poll(400)
    assert only(DispatchTableResponse, sent) == [DispatchTableResponse(1, epoch)]
    assert processor.tables() == {1: "replicating"}
    assert len(only(Checkpoint, sent)) == 1 and only(Checkpoint, sent)[0].checkpoint_ts >= 777
    assert only(DispatchTableResponse, processor.poll(400)) == []


def test_a_table_is_removed_and_reported():
    """The answer comes when the pipeline has stopped, not before."""
    processor = Processor(stop_us=300)
    epoch = processor.under()
    processor.receive("owner", added(1, epoch))
    processor.poll(1000)
    processor.receive("owner", removed(1, epoch))
    assert processor.tables() == {1: "stopping"}
    assert only(DispatchTableResponse, processor.poll(299)) == []
    assert only(DispatchTableResponse, processor.poll(1)) == [DispatchTableResponse(1, epoch)]
    assert processor.tables() == {}


@pytest.mark.parametrize("message", [announced(1), added(7, 2, owner_rev=1), removed(1, 2, owner_rev=1)])
def test_a_stale_owner_is_rejected(message):
    """v2-21: after one message of a newer owner nothing of the older one has an effect."""
    processor = Processor()
    processor.under("old", 1)
    epoch = processor.under("new", 2)
    processor.receive("new", added(1, epoch, owner_rev=2))
    processor.poll(1000)
    before = processor.state
    outputs = processor.receive("old", message)
    assert "is below 2" in ignored(outputs)[0] and not broken(outputs)
    assert processor.state == before


def test_a_dispatch_of_a_new_owner_is_enough_to_learn_of_it():
    """It is not carried out, since its epoch cannot be known; a Sync shows the new owner the state."""
    processor = Processor()
    epoch = processor.under("old", 1)
    outputs = processor.receive("new", added(1, epoch, owner_rev=2))
    assert ignored(outputs) and processor.tables() == {}
    ((to, sync),) = processor.poll()
    assert to == "new" and isinstance(sync, Sync) and sync.epoch != epoch


def test_operations_go_on_under_a_new_owner():
    """v2-22: what the old owner ordered is ordered to the new one as adding and removing, and answered to it."""
    processor = Processor(prepare_us=500, stop_us=500)
    epoch = processor.under("old", 1)
    processor.receive("old", added(1, epoch))
    processor.receive("old", added(2, epoch))
    processor.poll(1000)
    processor.receive("old", removed(2, epoch))
    processor.receive("old", added(3, epoch))
    processor.receive("new", announced(2))
    ((to, sync), *more) = processor.poll()
    assert to == "new" and sync == Sync(VERSION, (1,), (3,), (2,), sync.epoch) and sync.epoch != epoch
    assert only(DispatchTableResponse, more) == []
    sent = processor.poll(500)
    assert [(to, m.id, m.epoch) for to, m in sent if isinstance(m, DispatchTableResponse)] == [
        ("new", 2, sync.epoch),
        ("new", 3, sync.epoch),
    ]


def test_an_order_of_an_old_epoch_is_ignored():
    """It was given to another life of this processor."""
    processor = Processor()
    epoch = processor.under()
    assert ignored(processor.receive("owner", added(1, epoch - 1)))
    assert processor.tables() == {} and processor.poll(1000) == []


def test_a_processor_restarts():
    """It keeps its owner, loses its tables, takes another epoch and reports it without being asked."""
    processor = Processor()
    epoch = processor.under()
    processor.receive("owner", added(1, epoch))
    processor.poll(1000)
    assert processor.tables() == {1: "replicating"}
    changes = [o.subject for o in processor.ask(Restart())]
    assert changes == ["table:1"] and processor.tables() == {}
    assert ignored(processor.receive("owner", added(1, epoch))), "given to its former life"
    ((to, sync),) = processor.poll()
    assert to == "owner" and sync == Sync(VERSION, (), (), (), sync.epoch) and sync.epoch > epoch
    assert ignored(processor.receive("owner", added(1, epoch)))


def test_an_order_in_flight_is_not_given_twice():
    """A second one for the same table is ignored until the first has ended."""
    processor = Processor(prepare_us=500)
    epoch = processor.under()
    processor.receive("owner", added(1, epoch))
    assert ignored(processor.receive("owner", removed(1, epoch)))
    assert processor.tables() == {1: "preparing"}


def test_an_order_that_is_fulfilled_already_is_answered():
    """Removing what is not there, adding what is there: the owner waits for an answer in any case."""
    processor = Processor()
    epoch = processor.under()
    processor.receive("owner", removed(9, epoch))
    assert only(DispatchTableResponse, processor.poll()) == [DispatchTableResponse(9, epoch)]
    processor.receive("owner", added(1, epoch))
    processor.poll(1000)
    processor.receive("owner", added(1, epoch, start_ts=5000))
    assert only(DispatchTableResponse, processor.poll()) == [DispatchTableResponse(1, epoch)]
    assert processor.state.executor.pipelines[1].start_ts == 1000


def test_responses_wait_while_the_owner_cannot_be_reached():
    """A refused transport loses nothing."""
    processor = Processor()
    epoch = processor.under()
    processor.receive("owner", added(1, epoch))
    assert processor.poll(1000, refused=("owner",)) == []
    assert only(DispatchTableResponse, processor.poll(1000)) == [DispatchTableResponse(1, epoch)]


def test_watermarks_are_the_lowest_of_all_tables_and_are_sent_when_they_move():
    """A processor without tables reports none; a table that prepares holds both at its start."""
    processor = Processor(prepare_us=500)
    epoch = processor.under()
    assert processor.poll(1000) == []
    processor.receive("owner", added(1, epoch))
    processor.poll(1000)
    processor.receive("owner", added(2, epoch, start_ts=1234))
    ((to, marks),) = processor.poll(100)
    assert (to, marks) == ("owner", Checkpoint(1234, 1234, 2))
    assert processor.poll(100) == []


def test_an_owner_of_another_major_version_hears_of_the_processors_by_its_sync():
    """The design has the version in Announce and Sync: only the owner can name who is not compatible."""
    processor = Processor()
    (decided,) = processor.receive("owner", announced(1, "v7.0.0"))
    assert "owner v7.0.0 and processor v6.1.0 are not compatible" in str(decided)
    ((to, sync),) = processor.poll()
    assert to == "owner" and sync.processor_version == "v6.1.0"
    assert processor.receive("owner", announced(1, "v6.5.2")) == []


@pytest.mark.parametrize(("version", "why"), [("v7.0.0", "incompatible version"), ("v6.5.2", None)])
def test_a_run_says_which_capture_has_another_major_version(version, why):
    """And the changefeed waits for it, until it is gone."""
    scenario = scenario_from_text(f"""
model: scheduler
until: 30s
cluster: {{captures: 3, tables: 6, versions: {{capture-3: {version}}}}}
events:
  - {{at: 15s, crash: capture-3}}
assert:
  - {{eventually: every table replicates}}
  - {{always: no violation}}
""")
    played = scenario.model.play(scenario, seed=1)
    assert played.held, played.outcomes
    stood = [r for r in played.run.trace.to_pylist() if "incompatible" in str(r["after"])]
    assert [r["after"] for r in stood] == ([f"capture-3 has an {why}"] if why else [])


def test_the_owner_of_its_own_capture_is_obeyed_as_any_other():
    """Nothing depends on where the owner lives."""
    processor = Processor()
    processor.receive(A, announced(1))
    assert [to for to, _ in processor.poll()] == [A]
    processor.receive(B, announced(2))
    assert [to for to, _ in processor.poll()] == [B]


def test_every_sync_opens_an_epoch_also_to_an_owner_that_is_known():
    """As tiflow's agent does: an order that a repeated Announce has overtaken is void."""
    processor = Processor()
    epoch = processor.under("owner", 1)
    again = processor.under("owner", 1)
    assert again != epoch
    assert ignored(processor.receive("owner", DispatchTable(1, 1, False, 1000, epoch))) and processor.tables() == {}
    assert not ignored(processor.receive("owner", DispatchTable(1, 1, False, 1000, again)))


def test_between_an_announce_and_its_sync_orders_are_void():
    """Their epoch ends with that Sync, which does not report them."""
    processor = Processor()
    epoch = processor.under("owner", 1)
    processor.receive("owner", announced(1))
    assert ignored(processor.receive("owner", added(1, epoch))) and processor.tables() == {}
    ((_, sync),) = processor.poll()
    assert sync == Sync(VERSION, (), (), (), sync.epoch) and sync.epoch != epoch
