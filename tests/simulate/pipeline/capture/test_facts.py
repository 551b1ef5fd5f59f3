"""What can be seen of a capture is what it does; a run is the same every time; the session ends the writing."""

from __future__ import annotations

import hashlib

from scripted import MS, World, ddl, history, regions
from test_capture_ddl import ADD, LAYOUT

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Now, Received, Send
from ticdc_lab.simulate.faults import Ask, Part
from ticdc_lab.simulate.pipeline.cdc_messages import ResolvedTs
from ticdc_lab.simulate.pipeline.observed import capture_facts
from ticdc_lab.simulate.pipeline.settings import MQ, CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import Write
from ticdc_lab.simulate.scheduler.capture import Stick
from ticdc_lab.simulate.scheduler.executor import MAX_TS


def test_the_facts_of_an_owner_that_waits_for_a_ddl():
    """Barrier, jobs, watermarks, rows held back and under way."""
    world = World((1, 2), [*history((1, 2), 1900), ddl(1000, ADD)], LAYOUT, audited=False)
    world.downstream.ddl_us = 10_000_000
    facts = capture_facts(world.run(2000).state())
    assert facts.is_owner and facts.executing_ts == ts_of(1_000_000)
    assert facts.jobs == ((ts_of(1_000_000), ADD.query),)
    assert facts.checkpoint_ts == facts.resolved_ts == facts.limit_ts == ts_of(1_000_000) < facts.ddl_resolved_ts
    assert [s.state for s in facts.ddl_streams] == ["streaming"]
    for table in facts.tables:
        assert table.state == "replicating" and table.name == f"test.t{table.table}"
        assert table.checkpoint_ts == ts_of(1_000_000) < table.resolved_ts <= facts.ddl_resolved_ts
        assert table.sorting > 100 and table.spilled == 0 and table.received > table.written > 0
        assert [s.state for s in table.streams] == ["streaming", "streaming"]


def test_the_facts_of_a_sink_that_does_not_take_what_is_due():
    """Rows under way and rows that wait for the window, and since when; MQ has no limit."""
    settings = CaptureSettings(rule=MQ, sink_window_rows=64, sink_batch_rows=32, sorter_memory_rows=100)
    world = World((1,), history((1,), 1900, every_ms=2, lasts_ms=2), settings=settings)
    world.downstream.takes_us = 60_000_000
    facts = capture_facts(world.run(2000).state())
    (table,) = facts.tables
    assert facts.limit_ts == MAX_TS
    assert 0 < table.under_way <= 64 and 0 < table.mounting <= 64 and table.sorting <= 100 and table.spilled > 100
    assert table.received == table.under_way + table.mounting + table.sorting + table.spilled
    assert table.checkpoint_ts == table.oldest_under_way_ts - 1 and table.oldest_since_us < 500_000


def test_a_stuck_table_stands_where_it_was():
    """Its resolved_ts continues."""
    world = World((1,), history((1,), 1900), faults=[Ask(1000 * MS, "capture-1", Stick(1))])
    (table,) = capture_facts(world.run(2000).state()).tables
    assert table.checkpoint_ts < ts_of(1_000_000) < ts_of(1_800_000) < table.resolved_ts


def digest(seed):
    """A hash of everything that a run wrote down."""
    layout = [(0, regions((1, 2), ["tikv-1", "tikv-2"])), (900 * MS, regions((1, 2), ["tikv-2"], epoch=2))]
    world = World((1, 2), history((1, 2), 1900), layout, stores=2, captures=2, seed=seed, audited=False).run(2000)
    text = "\n".join(map(str, [*world.recorder.rows, *world.downstream.got]))
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_same_world_gives_the_same_run():
    """Byte for byte; another seed another one."""
    assert digest(1) == digest(1) != digest(2)


def test_nothing_is_written_once_the_session_may_be_gone():
    """Not even when rows or answers come in before the capture has exited: the first thing it looks at is its clock."""
    txns = history((1, 2), 7900)
    faults = [Part(1000 * MS, "capture-2", "etcd", for_us=20_000_000)]
    world = World((1, 2), txns, LAYOUT, captures=2, faults=faults).run(3000)
    state, machine = world.state("capture-2"), world.kernel.machines["capture-2"]
    stream = next(s for p in state.paths.values() for s in p.puller.streams.values())

    message = ResolvedTs(ts_of(2_990_000), ((stream.request_id, stream.region),))
    late = Now(state.ends_us)
    after, outputs = machine.step(state, Received(stream.store, message), late)
    assert not after.paths and not after.processor.executor.pipelines
    assert not [o for o in outputs if isinstance(o, Send) and isinstance(o.message, Write)]
