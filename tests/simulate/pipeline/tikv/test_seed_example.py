"""The seed's example (architecture model, 4.1): what TiKV holds at @TS1 .. @TS5, what the scan sends, what follows."""

from __future__ import annotations

import pytest

from ticdc_lab.simulate.machine import Fired, Now, Received
from ticdc_lab.simulate.pipeline.cdc_messages import Entries, KvRow, Register, ResolvedTs
from ticdc_lab.simulate.pipeline.keys import FIRST, LAST, key_of
from ticdc_lab.simulate.pipeline.kv_messages import PUT, BatchCommands, BatchResponses, Commit, Mutation, Prewrite
from ticdc_lab.simulate.pipeline.observed import CfRow, HeldLock
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import Raw
from ticdc_lab.simulate.pipeline.tikv import Store, cf_rows, initial_regions, region_facts
from ticdc_lab.simulate.scheduler.clock import ts_of

SECOND = 1_000_000
TS = [ts_of(n * SECOND) for n in range(9)]
OLD_1, OLD_2, NEW_1, NEW_2 = (Raw((1, 2), (i, name)) for name in ("Jan", "Jan Su") for i in (1, 2))
KEY_1, KEY_2 = key_of(104, 1), key_of(104, 2)
BEFORE_TS = ts_of(SECOND // 2)
SETTINGS = TikvSettings(stores=1, replicas=1, apply_us=0, scan_rows_per_s=1_000_000_000)


class Alone:
    """One store, without followers: what it is given is applied at once."""

    def __init__(self):
        self.store = Store(SETTINGS, ("tikv-1",), initial_regions(SETTINGS))
        self.state, _ = self.store.start("tikv-1", Now(0))

    def take(self, event, second):
        """Take an event at a time; give the messages that come of it, answers of commands apart."""
        self.state, outputs = self.store.step(self.state, event, Now(second * SECOND))
        messages = [o.message for o in outputs if hasattr(o, "message")]
        answers = [m for m in messages if isinstance(m, BatchResponses)]
        assert all(result is None for m in answers for result in m.results)
        return [m for m in messages if not isinstance(m, BatchResponses)]

    def command(self, command, second):
        """Let a client send one command."""
        return self.take(Received("tidb", BatchCommands(second, (command,))), second)

    def resolved(self, second):
        """The periodic advance."""
        return self.take(Fired("resolve"), second)

    def cfs(self, key):
        """The three column families of a key."""
        return cf_rows(self.state, key)


def prewrite(start_ts, key, value):
    """One key of a transaction."""
    return Prewrite(1, 1, start_ts, key, (Mutation(key, PUT, value),))


@pytest.fixture
def at_ts1():
    """Both rows are there, inserted before @TS1."""
    alone = Alone()
    start_ts = BEFORE_TS - 1
    both = (Mutation(KEY_1, PUT, OLD_1), Mutation(KEY_2, PUT, OLD_2))
    alone.command(Prewrite(1, 1, start_ts, KEY_1, both), 0)
    alone.command(Commit(1, 1, start_ts, BEFORE_TS, (KEY_1, KEY_2)), 0)
    return alone


def old(key, value):
    """The rows of default and write that were there before @TS1."""
    start_ts = BEFORE_TS - 1
    return CfRow("default", key, start_ts, start_ts, PUT, value), CfRow("write", key, BEFORE_TS, start_ts, PUT, None)


def test_the_column_families_from_ts1_to_ts5(at_ts1):
    """A lock and a default at the update, the lock becomes a write at the commit; the other key is untouched by it."""
    (default_1, write_1), (default_2, write_2) = old(KEY_1, OLD_1), old(KEY_2, OLD_2)
    assert at_ts1.cfs(KEY_1) == (default_1, write_1)

    at_ts1.command(prewrite(TS[1], KEY_1, NEW_1), 2)
    stored_1 = CfRow("default", KEY_1, TS[1], TS[1], PUT, NEW_1)
    assert at_ts1.cfs(KEY_1) == (CfRow("lock", KEY_1, 0, TS[1], PUT, None), stored_1, default_1, write_1)
    assert at_ts1.cfs(KEY_2) == (default_2, write_2)

    at_ts1.command(Commit(1, 1, TS[1], TS[4], (KEY_1,)), 4)
    assert at_ts1.cfs(KEY_1) == (stored_1, default_1, CfRow("write", KEY_1, TS[4], TS[1], PUT, None), write_1)

    at_ts1.command(prewrite(TS[3], KEY_2, NEW_2), 5)
    stored_2 = CfRow("default", KEY_2, TS[3], TS[3], PUT, NEW_2)
    assert at_ts1.cfs(KEY_2) == (CfRow("lock", KEY_2, 0, TS[3], PUT, None), stored_2, default_2, write_2)
    assert region_facts(at_ts1.state)[0].locks == (HeldLock(TS[3], KEY_2, (KEY_2,)),)


@pytest.fixture
def at_ts5(at_ts1):
    """The example is through: the first transaction is committed at @TS4, the second holds a lock since @TS5."""
    at_ts1.command(prewrite(TS[1], KEY_1, NEW_1), 2)
    at_ts1.command(Commit(1, 1, TS[1], TS[4], (KEY_1,)), 4)
    at_ts1.command(prewrite(TS[3], KEY_2, NEW_2), 5)
    return at_ts1


def scanned(alone, checkpoint_ts):
    """Register from a checkpoint_ts and let the scan run."""
    alone.take(Received("capture-1", Register(7, 1, 1, checkpoint_ts, FIRST, LAST)), 5)
    return alone.take(Fired(("scan", 1, "capture-1", 7)), 5)


COMMITTED_1 = KvRow("committed", KEY_1, TS[1], TS[4], PUT, NEW_1, OLD_1)
LOCKED_2 = KvRow("prewrite", KEY_2, TS[3], 0, PUT, NEW_2, OLD_2)
INITIALIZED = KvRow("initialized", 0, 0)


def test_the_scan_from_ts1_sends_the_commit_of_ts4_and_the_lock(at_ts5):
    """LockCF and DefaultCF make the prewrite, WriteCF and DefaultCF the committed row; what is older is left out."""
    assert scanned(at_ts5, TS[1]) == [Entries(7, 1, (COMMITTED_1, LOCKED_2, INITIALIZED))]


def test_the_scan_is_open_below_at_its_checkpoint(at_ts5):
    """A version whose commit_ts is the checkpoint_ts is not sent; one above is."""
    assert scanned(at_ts5, TS[4]) == [Entries(7, 1, (LOCKED_2, INITIALIZED))]
    at_ts5.take(Received("capture-1", Register(8, 1, 1, TS[4] - 1, FIRST, LAST)), 5)
    again = at_ts5.take(Fired(("scan", 1, "capture-1", 8)), 5)
    assert again == [Entries(8, 1, (COMMITTED_1, LOCKED_2, INITIALIZED))]


def test_then_it_streams_and_resolved_ts_waits_for_the_lock(at_ts5):
    """resolved_ts stays below the start_ts of the lock; the commit streams alone; then resolved_ts goes on."""
    scanned(at_ts5, TS[1])
    assert ResolvedTs(TS[3] - 1, ((7, 1),)) in at_ts5.resolved(6)
    commit_ts = TS[6] + 1
    streamed = at_ts5.command(Commit(1, 1, TS[3], commit_ts, (KEY_2,)), 7)
    assert streamed == [Entries(7, 1, (KvRow("commit", KEY_2, TS[3], commit_ts),))]
    assert ResolvedTs(TS[8] - 1, ((7, 1),)) in at_ts5.resolved(8)
    assert region_facts(at_ts5.state)[0].resolved_ts == TS[8] - 1


def test_what_is_prewritten_after_the_scan_streams_with_its_old_value(at_ts5):
    """The raft log brings the prewrite with value and old value, and later its commit."""
    scanned(at_ts5, TS[1])
    newer = Raw((1, 2), (1, "Su"))
    streamed = at_ts5.command(prewrite(TS[6], KEY_1, newer), 6)
    assert streamed == [Entries(7, 1, (KvRow("prewrite", KEY_1, TS[6], 0, PUT, newer, NEW_1),))]
