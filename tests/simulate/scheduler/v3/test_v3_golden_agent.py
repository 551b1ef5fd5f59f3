"""The golden cases of the processor's side, and what else its Go tests show."""

from __future__ import annotations

import itertools

import pytest
from immutables import Map

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Asked, Broken, Ignored, Now, Received, Send
from ticdc_lab.simulate.scheduler import executor as ex
from ticdc_lab.simulate.scheduler.executor import TablePace
from ticdc_lab.simulate.scheduler.roles import Poll, Restart
from ticdc_lab.simulate.scheduler.v3 import Failing, Leave, V3Agent, V3Settings
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    ALIVE,
    LEAVING,
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPED,
    STOPPING,
    TABLE_STATES,
    AddTable,
    Checkpoint,
    DispatchTableRequest,
    DispatchTableResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    RemoveTable,
)

FROM = Checkpoint(ts_of(0), ts_of(0))
ADD, COMMIT, REMOVE = AddTable(1, True, FROM), AddTable(1, False, FROM), RemoveTable(1)


class Processor:
    """A processor that is driven through its public interface; preparing takes 200 µs, stopping 50."""

    def __init__(self):
        self.machine = V3Agent(V3Settings(pace=TablePace(prepare_us=200, stop_us=50, lag_us=10)))
        self.at_us = 1_000
        self.state, _ = self.machine.start("agent-1", Now(self.at_us))
        self.seq = 0
        self.outputs = []
        self.heartbeat()

    def step(self, event):
        self.state, self.outputs = self.machine.step(self.state, event, Now(self.at_us))
        return self.outputs

    def header(self, **fields):
        self.seq += 1
        said = {"version": "v8.5.0", "owner_revision": 1, "processor_epoch": self.state.epoch, "changefeed_epoch": 1}
        return Header(**(said | {"seq": self.seq} | fields))

    def heartbeat(self, *spans, sender="owner-1", is_stopping=False, **fields):
        asked = Map(dict.fromkeys(spans))
        message = Heartbeat(self.header(**fields), "agent-1", asked, is_stopping)
        self.step(Received(sender, message))
        return self.sent(HeartbeatResponse)

    def request(self, request, sender="owner-1", **fields):
        self.step(Received(sender, DispatchTableRequest(self.header(**fields), "agent-1", request)))
        return self.said()

    def poll(self, after_us=0):
        self.at_us += after_us
        self.step(Asked(Poll(1 << 62)))
        return self.said()

    def sent(self, kind):
        return [o.message for o in self.outputs if isinstance(o, Send) and isinstance(o.message, kind)]

    def said(self):
        """Give the states of the responses of the last step."""
        return [message.status.state for message in self.sent(DispatchTableResponse)]

    def reported(self, *asked):
        """Give the states of a heartbeat response, one by one."""
        (response,) = self.heartbeat(*asked)
        found = {status.span: status.state for status in response.statuses}
        found |= {span: REPLICATING for span in response.steady.held if span not in found}
        return found | {span: ABSENT for span in response.steady.asked if span not in found}

    def ignored(self):
        return [o.because for o in self.outputs if isinstance(o, Ignored)]


def in_state(state):
    """Bring a processor's table 1 into a state."""
    it = Processor()
    if state in (PREPARING, PREPARED, REPLICATING, STOPPING, STOPPED):
        it.request(ADD)
    if state != PREPARING:
        it.poll(200)
    if state in (REPLICATING, STOPPING, STOPPED):
        it.request(COMMIT)
    if state in (STOPPING, STOPPED):
        it.request(REMOVE)
    if state == STOPPED:
        it.poll(50)
    return it


def test_a_table_is_added_committed_and_removed():
    """No word while it prepares; Prepared; Replicating; Stopping until it has stopped; Stopped, once."""
    it = Processor()
    assert it.request(REMOVE) == [] and it.ignored() == ["table 1 is not here"]
    assert it.request(ADD) == [] and it.poll(100) == [] and it.poll(100) == [PREPARED]
    assert it.request(ADD) == [PREPARED]
    assert it.request(COMMIT) == [REPLICATING] and it.poll() == []
    assert it.request(COMMIT) == [REPLICATING]
    assert it.request(REMOVE) == [STOPPING] and it.poll(20) == [STOPPING]
    at_end = ex.checkpoint_of(it.state.executor, 1, it.at_us + 30)
    assert it.poll(30) == [STOPPED] and it.poll(30) == []
    assert 1 not in it.state.held and 1 not in it.state.executor.pipelines
    it.at_us -= 30
    assert at_end > FROM.checkpoint_ts


def test_stopped_carries_the_final_checkpoint():
    """What the source has written up to its end is where the destination continues."""
    it = in_state(REPLICATING)
    it.poll(5_000)
    it.request(REMOVE)
    it.at_us += 50
    at_end = ex.checkpoint_of(it.state.executor, 1, it.at_us)
    it.poll()
    (response,) = it.sent(DispatchTableResponse)
    assert response.status.state == STOPPED and response.status.checkpoint.checkpoint_ts == at_end


def test_v3_33_a_stopping_capture_still_commits_what_it_prepared():
    """Otherwise the move would hang; TiCDC takes new tables too, its owner does not choose such a capture any more."""
    it = in_state(PREPARED)
    it.step(Asked(Leave()))
    assert it.state.liveness == LEAVING
    assert it.request(COMMIT) == [REPLICATING]
    other = Processor()
    other.step(Asked(Leave()))
    other.request(ADD)
    assert other.poll(200) == [PREPARED]


@pytest.mark.parametrize("failing", [(), ("add",), ("remove",), ("add", "remove")])
@pytest.mark.parametrize("state", TABLE_STATES)
def test_v3_34_messages_in_any_order_are_answered(state, failing):
    """Every permutation of remove, add, commit and heartbeat, executor calls failing or not: exactly one response a
    heartbeat, at most one a request and poll; Remove answers Stopping until it is over, then Stopped.
    """
    for sequence in itertools.permutations((REMOVE, ADD, COMMIT, None)):
        it = in_state(state)
        it.step(Asked(Failing(frozenset(failing))))
        for request in sequence:
            had = 1 in it.state.held and 1 not in it.state.tasks
            if request is None:
                assert len(it.heartbeat(1)) == 1 and it.sent(DispatchTableResponse) == []
                continue
            said = it.request(request)
            assert len(said) <= 1 and not any(isinstance(o, Broken) for o in it.outputs)
            if request == REMOVE and had:
                assert said[0] in (STOPPING, STOPPED)
            for later in (it.poll(30), it.poll(30)):
                assert len(later) <= 1
                said += later
            if request == REMOVE and STOPPED in said:
                assert said == [STOPPING] * (len(said) - 1) + [STOPPED] and "remove" not in failing
            if request == REMOVE and "remove" in failing:
                assert STOPPED not in said
        it.step(Asked(Failing()))
        for _ in range(20):
            it.poll(50)
        assert not it.state.tasks


def test_a_heartbeat_is_answered_with_all_there_is_and_all_that_was_asked_for():
    """A table whose removal is pending is Stopping, no matter what its pipeline does; what is not there is Absent."""
    for state in (PREPARING, PREPARED, REPLICATING, STOPPING):
        assert in_state(state).reported(1, 5) == {1: state, 5: ABSENT}
        assert in_state(state).reported() == {1: state}
    assert in_state(STOPPED).reported(1) == {1: ABSENT} and in_state(STOPPED).reported() == {}
    it = in_state(PREPARED)
    it.step(Asked(Failing(frozenset({"remove"}))))
    it.request(REMOVE)
    assert it.reported(1) == {1: STOPPING}


def test_a_table_that_has_gone_is_reported_absent_while_the_owner_asks_for_it():
    """Also if the Stopped was lost; a heartbeat that no longer asks ends it."""
    it = in_state(STOPPED)
    (response,) = it.heartbeat(1)
    assert [(s.span, s.state) for s in response.statuses] == [(1, ABSENT)]
    it.heartbeat()
    assert it.heartbeat(1)[0].statuses == ()


def test_liveness_never_goes_back():
    """A heartbeat of an owner that drains it makes it Stopping; one that does not, changes nothing."""
    it = Processor()
    assert it.heartbeat()[0].liveness == ALIVE
    assert it.heartbeat(is_stopping=True)[0].liveness == LEAVING
    assert it.heartbeat()[0].liveness == LEAVING
    it.step(Asked(Restart()))
    assert it.heartbeat()[0].liveness == LEAVING


def test_a_stale_owner_is_not_obeyed():
    """Lower revision: ignored; higher: the owner from now on, in a new epoch; the same from another: a violation."""
    it = Processor()
    epoch = it.state.epoch
    assert it.heartbeat(sender="owner-2", owner_revision=2) != [] and it.state.epoch == epoch + 1
    assert it.heartbeat() == [] and "revision 1" in it.ignored()[0]
    assert it.request(ADD) == [] and it.state.held == Map()
    assert it.request(ADD, "owner-2", owner_revision=2, processor_epoch=epoch) == [] and "epoch" in it.ignored()[0]
    it.request(ADD, "owner-2", owner_revision=2)
    assert 1 in it.state.held
    it.heartbeat(sender="owner-3", owner_revision=2)
    assert isinstance(it.outputs[0], Broken)


def test_messages_of_another_changefeed_epoch_are_dropped():
    """Unless the owner is too old to know epochs."""
    it = Processor()
    assert it.heartbeat(changefeed_epoch=2) == [] and "changefeed epoch 2" in it.ignored()[0]
    assert len(it.heartbeat(changefeed_epoch=2, version="v6.5.0")) == 1
    assert len(it.heartbeat(changefeed_epoch=None)) == 1


def test_what_comes_late_or_twice_is_not_carried_out():
    """A request older than the last one of its table is void: a doubled AddTable starts nothing after the removal."""
    it = in_state(REPLICATING)
    it.request(REMOVE)
    assert it.poll(50) == [STOPPED]
    assert it.request(COMMIT, seq=it.seq - 1) == [] and "something newer" in it.ignored()[0]
    assert 1 not in it.state.held


def test_a_task_that_is_not_finished_keeps_others_off():
    """A second request of a table that prepares is ignored: the owner asks again."""
    it = in_state(PREPARING)
    assert it.request(COMMIT) == [] and "a task that is not finished" in it.ignored()[0]
    assert it.poll(200) == [PREPARED]


def test_a_restart_loses_all_tables_and_begins_an_epoch():
    """It keeps obeying the owner it knew; requests for its former life are void."""
    it = in_state(REPLICATING)
    epoch = it.state.epoch
    it.step(Asked(Restart()))
    assert it.state.epoch == epoch + 1 and it.state.owner.address == "owner-1" and it.reported(1) == {1: ABSENT}
    assert it.request(ADD, processor_epoch=epoch) == [] and 1 not in it.state.held
    assert it.heartbeat(owner_revision=0) == []


def test_a_thousand_undisturbed_tables_are_one_line_of_a_heartbeat_response():
    """Only what prepares, waits, stops, lags or is stuck is named."""
    it = Processor()
    for span in range(1_000):
        it.request(AddTable(span, True, FROM))
    it.poll(200)
    for span in range(999):
        it.request(AddTable(span, False, FROM))
    it.poll(5_000)
    (response,) = it.heartbeat()
    assert [s.span for s in response.statuses] == [999] and len(response.steady.held) == 1_000
    own = ex.checkpoint_of(it.state.executor, 5, it.at_us)
    assert response.steady.checkpoint.checkpoint_ts == own
