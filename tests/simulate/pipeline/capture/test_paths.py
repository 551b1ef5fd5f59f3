"""Data paths follow the scheduler's pipelines: begun, prepared beside a writer, promoted, stopped, gone."""

from __future__ import annotations

import pytest
from scripted import MS, START_TS, World, history, row

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Decided, Now, Send
from ticdc_lab.simulate.pipeline.capture import paths, sink
from ticdc_lab.simulate.pipeline.capture.mounter import added
from ticdc_lab.simulate.pipeline.capture.state import INSERT, CaptureDesk, Sink, Sorter
from ticdc_lab.simulate.pipeline.cdc_messages import Deregister
from ticdc_lab.simulate.pipeline.kv_messages import GetRegions
from ticdc_lab.simulate.pipeline.settings import AT_LEAST_ONCE, AT_MOST_ONCE, CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import Write
from ticdc_lab.simulate.pipeline.tables import key_of
from ticdc_lab.simulate.scheduler.executor import PREPARED, REPLICATING, STOPPING, Pipeline, gone

AT_US = 1000 * MS


def desk_of(of, **pipeline):
    """A capture at 1 s whose pipeline of table 1 has become another one."""
    desk = CaptureDesk(of, CaptureSettings(), Now(AT_US), START_TS)
    executor = desk.executor
    old = executor.pipelines[1]
    changed = executor._replace(pipelines=executor.pipelines.set(1, old._replace(**pipeline)))
    desk.inner = desk.inner._replace(processor=desk.inner.processor.with_executor(changed))
    return desk, executor.pipelines


@pytest.fixture
def prepared():
    """A capture that has pulled rows of 100 to 280 ms of a table and may not write it."""
    state = World((1,), history((1,), 900)).run(300).state()
    desk, _ = desk_of(state, state=PREPARED, primary=False)
    rows = [(ts_of(ms * MS), START_TS, INSERT, key_of(1, ms), 1, row(ms, ms), None) for ms in range(100, 280, 10)]
    path = desk.paths[1]._replace(
        state=PREPARED, checkpoint_ts=START_TS, sink=Sink(), sorter=added(Sorter(START_TS), rows, 100)
    )
    desk.put(path._replace(puller=path.puller._replace(resolved_ts=ts_of(280 * MS))))
    desk.ddl = desk.ddl._replace(puller=desk.ddl.puller._replace(resolved_ts=ts_of(280 * MS)))
    desk.inner = desk.inner._replace(resolved_ts=ts_of(250 * MS))
    return desk.done()


def sent(desk, kind):
    """Give the messages of a kind."""
    return [o.message for o in desk.outputs if isinstance(o, Send) and isinstance(o.message, kind)]


def test_a_prepared_table_writes_nothing_until_it_is_promoted_and_then_from_where_the_other_stopped(prepared):
    """What is at or below the start was written by the other capture."""
    desk, before = desk_of(prepared, state=REPLICATING, primary=True, start_ts=ts_of(150 * MS))
    paths.followed(desk, before)
    sink.pump_due(desk)
    assert desk.paths[1].start_ts == desk.paths[1].checkpoint_ts == ts_of(150 * MS)
    written = [c.commit_ts for w in sent(desk, Write) for c in w.changes]
    assert written == [ts_of(ms * MS) for ms in range(160, 260, 10)]
    assert not sent(desk, Deregister)


def test_a_table_that_shall_write_from_before_what_it_pulled_pulls_again(prepared):
    """Rows between the two would be lost."""
    late = prepared._replace(paths=prepared.paths.set(1, prepared.paths[1]._replace(start_ts=ts_of(200 * MS))))
    desk, before = desk_of(late, state=REPLICATING, primary=True, start_ts=ts_of(150 * MS))
    paths.followed(desk, before)
    assert [o.chosen for o in desk.outputs if isinstance(o, Decided)] == ["pull again"]
    assert sent(desk, Deregister) and sent(desk, GetRegions)
    assert desk.paths[1].puller.resolved_ts == ts_of(150 * MS) and not desk.paths[1].puller.initialized


def test_a_table_that_is_gone_and_added_again_in_one_step_begins_anew(prepared):
    """What was pulled before belongs to another life."""
    desk, before = desk_of(prepared, state="preparing", start_ts=ts_of(250 * MS))
    desk.outputs += gone(desk.executor, 1, "it has stopped")[1]
    paths.followed(desk, before)
    assert desk.paths[1].start_ts == ts_of(250 * MS) and sent(desk, Deregister)
    assert desk.kv.scanning == 0 and not set(desk.kv.owners.keys()) & set(prepared.paths[1].puller.streams.keys())


@pytest.mark.parametrize("semantics", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_a_table_that_stops_begins_nothing_new_and_ends_at_what_it_told_last(semantics):
    """At most once sends what was published: no other will."""
    state = World((1,), history((1,), 900)).run(600).state()
    desk, before = desk_of(state, state=STOPPING, due_us=AT_US)
    desk.settings = CaptureSettings(semantics=semantics)
    marks = desk.executor.marks
    paths.followed(desk, before)
    desk.inner = desk.inner._replace(checkpoint_ts=ts_of(590 * MS), resolved_ts=ts_of(590 * MS))
    sink.pump_all(desk)
    paths.measured(desk)
    assert bool(sent(desk, Write)) == (semantics == AT_MOST_ONCE)
    assert desk.executor.marks is marks
    assert isinstance(desk.executor.pipelines[1], Pipeline)
