"""The design's example (architecture model 4.1): what TiKV holds at @TS1 .. @TS5, what the scan sends, what follows."""

from __future__ import annotations

from one_store import (
    BEFORE_TS,
    COMMITTED_1,
    INITIALIZED,
    KEY_1,
    KEY_2,
    LOCKED_2,
    NEW_1,
    NEW_2,
    OLD_1,
    OLD_2,
    TS,
    at_ts1,
    at_ts5,
    prewrite,
    scanned,
)

from ticdc_lab.machines.clock import before
from ticdc_lab.machines.machine import Fired, Received
from ticdc_lab.simulate.pipeline.cdc_messages import Entries, KvRow, Register, ResolvedTs
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Commit
from ticdc_lab.simulate.pipeline.observed import CfRow, HeldLock, region_facts
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, Raw


def old(key, value):
    """The rows of default and write that were there before @TS1."""
    start_ts = BEFORE_TS - 1
    return CfRow("default", key, start_ts, start_ts, PUT, value), CfRow("write", key, BEFORE_TS, start_ts, PUT, None)


def test_the_column_families_from_ts1_to_ts5():
    """A lock and a default at the update, the lock becomes a write at the commit; the other key is untouched by it."""
    alone = at_ts1()
    (default_1, write_1), (default_2, write_2) = old(KEY_1, OLD_1), old(KEY_2, OLD_2)
    assert alone.cfs(KEY_1) == (default_1, write_1)

    alone.command(prewrite(TS[1], KEY_1, NEW_1), 2)
    stored_1 = CfRow("default", KEY_1, TS[1], TS[1], PUT, NEW_1)
    assert alone.cfs(KEY_1) == (CfRow("lock", KEY_1, 0, TS[1], PUT, None), stored_1, default_1, write_1)
    assert alone.cfs(KEY_2) == (default_2, write_2)

    alone.command(Commit(1, 1, TS[1], TS[4], (KEY_1,)), 4)
    assert alone.cfs(KEY_1) == (stored_1, default_1, CfRow("write", KEY_1, TS[4], TS[1], PUT, None), write_1)

    alone.command(prewrite(TS[3], KEY_2, NEW_2), 5)
    stored_2 = CfRow("default", KEY_2, TS[3], TS[3], PUT, NEW_2)
    assert alone.cfs(KEY_2) == (CfRow("lock", KEY_2, 0, TS[3], PUT, None), stored_2, default_2, write_2)
    assert region_facts(alone.state)[0].locks == (HeldLock(TS[3], KEY_2, (KEY_2,)),)


def test_the_scan_from_ts1_sends_the_commit_of_ts4_and_the_lock():
    """LockCF and DefaultCF make the prewrite, WriteCF and DefaultCF the committed row; what is older is left out."""
    assert scanned(at_ts5(), TS[1]) == [Entries(7, 1, (COMMITTED_1, LOCKED_2, INITIALIZED))]


def test_the_scan_is_open_below_at_its_checkpoint():
    """A version whose commit_ts is the checkpoint_ts is not sent; one above is."""
    assert scanned(at_ts5(), TS[4]) == [Entries(7, 1, (LOCKED_2, INITIALIZED))]
    alone = at_ts5()
    alone.take(Received("capture-1", Register(8, 1, 1, TS[4] - 1, FIRST, LAST)), 5)
    again = alone.take(Fired(("scan", 1, "capture-1", 8)), 5)
    assert again == [Entries(8, 1, (COMMITTED_1, LOCKED_2, INITIALIZED))]


def test_then_it_streams_and_resolved_ts_waits_for_the_lock():
    """resolved_ts stays below the start_ts of the lock; the commit streams alone; then resolved_ts continues."""
    alone = at_ts5()
    scanned(alone, TS[1])
    assert ResolvedTs(before(TS[3]), ((7, 1),)) in alone.resolved(6)
    commit_ts = TS[6] + 1
    streamed = alone.command(Commit(1, 1, TS[3], commit_ts, (KEY_2,)), 7)
    assert streamed == [Entries(7, 1, (KvRow("commit", KEY_2, TS[3], commit_ts),))]
    assert ResolvedTs(before(TS[8]), ((7, 1),)) in alone.resolved(8)
    assert region_facts(alone.state)[0].resolved_ts == before(TS[8])


def test_what_is_prewritten_after_the_scan_streams_with_its_old_value():
    """The raft log brings the prewrite with value and old value, and later its commit."""
    alone = at_ts5()
    scanned(alone, TS[1])
    newer = Raw((1, 2), (1, "Su"))
    streamed = alone.command(prewrite(TS[6], KEY_1, newer), 6)
    assert streamed == [Entries(7, 1, (KvRow("prewrite", KEY_1, TS[6], 0, PUT, newer, NEW_1),))]
