"""Registrations of a store: who is refused, what a narrow one gets, when streams end, how a scan comes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from one_store import KEY_1, KEY_2, NEW_1, TS, Alone, at_ts1, at_ts5, prewrite
from tikv_world import Matcher

from ticdc_lab.machines.clock import before
from ticdc_lab.machines.machine import Fired, Ignored, Now, Received, Send, Wake
from ticdc_lab.simulate.pipeline.cdc_messages import Deregister, Entries, RegionFailed, Register, ResolvedTs
from ticdc_lab.simulate.pipeline.kv_messages import (
    PUT,
    BatchCommands,
    Commit,
    EpochNotMatch,
    KvRegion,
    Mutation,
    NotLeader,
    Prewrite,
    RegionNotFound,
    Rollback,
)
from ticdc_lab.simulate.pipeline.observed import region_facts
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, Raw, key_of
from ticdc_lab.simulate.pipeline.tikv import TikvStore, committed, initial_regions


def register(alone, sender="capture-1", request_id=7, region=1, epoch=1, checkpoint_ts=0, span=(FIRST, LAST)):
    """Register; give the messages."""
    return alone.take(Received(sender, Register(request_id, region, epoch, checkpoint_ts, *span)), 5)


def scan(alone, sender="capture-1", request_id=7):
    """Let the next batch of a scan come."""
    return alone.take(Fired(("scan", 1, sender, request_id)), 5)


def subscribers(alone):
    """Who gets streams of region 1."""
    return tuple(sorted({stream.address for stream in alone.state.streams.get(1, ())}))


def test_registrations_that_cannot_be_served_are_refused_at_once():
    """A region that is not there, another epoch, another leader."""
    alone = at_ts1()
    assert register(alone, region=9) == [RegionFailed(7, 9, RegionNotFound(9))]
    now = KvRegion(1, FIRST, LAST, 1, "tikv-1")
    assert register(alone, epoch=3) == [RegionFailed(7, 1, EpochNotMatch(1, (now,)))]
    three = TikvSettings()
    names = ("tikv-1", "tikv-2", "tikv-3")
    follower = TikvStore(three, names, initial_regions(three))
    state, _ = follower.start("tikv-2", Now(0))
    _, outputs = follower.step(state, Received("capture-1", Register(7, 1, 1, 0, FIRST, LAST)), Now(1))
    assert outputs == [Send("capture-1", RegionFailed(7, 1, NotLeader(1, "tikv-1")))]


def test_a_narrow_registration_gets_its_span_only():
    """From the scan as from the raft log."""
    alone = at_ts5()
    register(alone, checkpoint_ts=TS[1], span=(KEY_1, KEY_1 + 1))
    (entries,) = scan(alone)
    assert [(r.type, r.key) for r in entries.rows] == [("committed", KEY_1), ("initialized", 0)]
    assert alone.command(Commit(1, 1, TS[3], TS[6], (KEY_2,)), 6) == []
    (entries,) = alone.command(prewrite(TS[7], KEY_1, NEW_1), 7)
    assert [r.key for r in entries.rows] == [KEY_1]


def test_a_stream_is_served_once_and_ends_when_it_is_deregistered():
    """The same request again changes nothing; after Deregister nothing comes any more."""
    alone = at_ts5()
    register(alone)
    _, outputs = alone.store.step(alone.state, Received("capture-1", Register(7, 1, 1, 0, FIRST, LAST)), Now(9))
    assert [type(o) for o in outputs] == [Ignored]
    alone.take(Received("capture-1", Deregister(7, 1)), 5)
    assert subscribers(alone) == ()
    assert scan(alone) == []
    assert alone.command(Commit(1, 1, TS[3], TS[6], (KEY_2,)), 6) == []
    alone.take(Received("capture-1", Deregister(7, 1)), 6)


def test_a_capture_that_comes_back_has_no_streams_of_its_former_life():
    """No one reads them; streams of other captures stay."""
    alone = at_ts5()
    for sender in ("capture-1", "capture-1.2", "capture-2", "capture-10"):
        register(alone, sender)
    assert subscribers(alone) == ("capture-1.2", "capture-10", "capture-2")
    register(alone, "capture-1.10", request_id=8)
    assert subscribers(alone) == ("capture-1.10", "capture-10", "capture-2")


def test_resolved_ts_is_told_to_initialised_streams_only_and_never_falls():
    """In one message a subscriber; a lock with an older start_ts does not take it back."""
    alone = at_ts1()
    register(alone, request_id=7)
    register(alone, request_id=8)
    scan(alone, request_id=7)
    assert alone.resolved(6)[-1:] == [ResolvedTs(before(TS[6]), ((7, 1),))]
    scan(alone, request_id=8)
    alone.command(prewrite(TS[3], KEY_2, NEW_1), 6)
    assert alone.resolved(7) == [ResolvedTs(before(TS[6]), ((7, 1), (8, 1)))]
    assert region_facts(alone.state)[0].resolved_ts == before(TS[6])


def test_resolved_ts_is_below_the_oldest_lock():
    """Of several transactions the one that began first counts."""
    alone = at_ts1()
    alone.command(prewrite(TS[4], KEY_1, NEW_1), 4)
    alone.command(prewrite(TS[2], KEY_2, NEW_1), 4)
    alone.resolved(6)
    assert region_facts(alone.state)[0].resolved_ts == before(TS[2])
    alone.command(Rollback(1, 1, TS[2], (KEY_2,)), 6)
    alone.resolved(7)
    assert region_facts(alone.state)[0].resolved_ts == before(TS[4])


def test_a_scan_comes_in_batches_and_takes_its_time():
    """``scan_batch`` rows each, at ``scan_rows_per_s``; the last one ends with ``initialized``."""
    slow = TikvSettings(stores=1, replicas=1, apply_us=0, scan_rows_per_s=1000, scan_batch=4)
    alone = Alone()
    alone.store = replace(alone.store, settings=slow)
    keys = tuple(key_of(104, h) for h in range(10))
    alone.command(Prewrite(1, 1, TS[1], keys[0], tuple(Mutation(k, PUT, NEW_1) for k in keys)), 1)
    alone.command(Commit(1, 1, TS[1], TS[2], keys), 2)
    event = Received("capture-1", Register(7, 1, 1, 0, FIRST, LAST))
    sizes, waits = [], []
    for _ in range(4):
        alone.state, outputs = alone.store.step(alone.state, event, Now(5_000_000))
        sizes += [len(o.message.rows) for o in outputs if isinstance(o, Send) and isinstance(o.message, Entries)]
        waits += [o.after_us for o in outputs if isinstance(o, Wake)]
        event = Fired(("scan", 1, "capture-1", 7))
    assert sizes == [4, 4, 3] and waits == [4000, 4000, 2000]


STEP = st.tuples(
    st.sampled_from(["prewrite", "commit", "rollback", "register", "scan"]),
    st.integers(0, 4),
    st.sets(st.integers(0, 5), min_size=1),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_a_scan_and_the_log_together_are_everything(steps):
    """Wherever a registration falls between the commands, its stream brings each version after its checkpoint once."""
    alone = Alone()
    alone.store = replace(alone.store, settings=replace(alone.store.settings, scan_batch=1))
    clock, starts, streams, seen = 1000, {}, {}, {}
    for kind, number, found in [*steps, *[("scan", n, {0}) for n in range(5) for _ in range(10)]]:
        clock, messages = clock + 1, []
        keys = tuple(key_of(104, h) for h in sorted(found))
        start_ts = starts.setdefault(number, clock)
        if kind == "register":
            if number not in streams:
                streams[number], seen[number] = Matcher(), []
                messages = alone.take(Received("capture-1", Register(number, 1, 1, 1010, FIRST, LAST)), 5)
        elif kind == "scan":
            messages = alone.take(Fired(("scan", 1, "capture-1", number)), 5)
        else:
            command = {
                "prewrite": Prewrite(
                    1, 1, start_ts, keys[0], tuple(Mutation(k, PUT, Raw((1,), (start_ts,))) for k in keys)
                ),
                "commit": Commit(1, 1, start_ts, clock, keys),
                "rollback": Rollback(1, 1, start_ts, keys),
            }[kind]
            alone.state, outputs = alone.store.step(
                alone.state, Received("tidb", BatchCommands(clock, (command,))), Now(clock)
            )
            messages = [o.message for o in outputs if isinstance(o, Send)]
        for message in messages:
            if isinstance(message, Entries):
                seen[message.request_id] += streams[message.request_id].take(message.rows)
    there = {(key, ts, start, op, value, old) for ts, start, key, op, value, old in committed(alone.state) if ts > 1010}
    for number, changes in seen.items():
        after = [c for c in changes if c[1] > 1010]
        assert len(set(after)) == len(after), "a version came twice"
        assert set(after) == there
        assert len(after) == len(changes) or streams[number].initialized
