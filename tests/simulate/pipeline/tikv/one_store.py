"""One store without followers, and the design's example on it (architecture model, 4.1)."""

from __future__ import annotations

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Fired, Now, Received
from ticdc_lab.simulate.pipeline.cdc_messages import KvRow, Register
from ticdc_lab.simulate.pipeline.kv_messages import PUT, BatchCommands, BatchResponses, Commit, Mutation, Prewrite
from ticdc_lab.simulate.pipeline.observed import cf_rows
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, Raw, key_of
from ticdc_lab.simulate.pipeline.tikv import TikvStore, initial_regions

SECOND = 1_000_000
TS = [ts_of(n * SECOND) for n in range(9)]
OLD_1, OLD_2, NEW_1, NEW_2 = (Raw((1, 2), (i, name)) for name in ("Jan", "Jan Su") for i in (1, 2))
KEY_1, KEY_2 = key_of(104, 1), key_of(104, 2)
BEFORE_TS = ts_of(SECOND // 2)
SETTINGS = TikvSettings(stores=1, replicas=1, apply_us=0, scan_rows_per_s=1_000_000_000)


class Alone:
    """One store, without followers: what it is given is applied at once."""

    def __init__(self):
        self.store = TikvStore(SETTINGS, ("tikv-1",), initial_regions(SETTINGS))
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


def at_ts1():
    """Both rows are there, inserted before @TS1."""
    alone = Alone()
    start_ts = BEFORE_TS - 1
    both = (Mutation(KEY_1, PUT, OLD_1), Mutation(KEY_2, PUT, OLD_2))
    alone.command(Prewrite(1, 1, start_ts, KEY_1, both), 0)
    alone.command(Commit(1, 1, start_ts, BEFORE_TS, (KEY_1, KEY_2)), 0)
    return alone


def at_ts5():
    """The example is through: the first transaction is committed at @TS4, the second holds a lock since @TS5."""
    alone = at_ts1()
    alone.command(prewrite(TS[1], KEY_1, NEW_1), 2)
    alone.command(Commit(1, 1, TS[1], TS[4], (KEY_1,)), 4)
    alone.command(prewrite(TS[3], KEY_2, NEW_2), 5)
    return alone


def scanned(alone, checkpoint_ts):
    """Register from a checkpoint_ts and let the scan run."""
    alone.take(Received("capture-1", Register(7, 1, 1, checkpoint_ts, FIRST, LAST)), 5)
    return alone.take(Fired(("scan", 1, "capture-1", 7)), 5)


COMMITTED_1 = KvRow("committed", KEY_1, TS[1], TS[4], PUT, NEW_1, OLD_1)
LOCKED_2 = KvRow("prewrite", KEY_2, TS[3], 0, PUT, NEW_2, OLD_2)
INITIALIZED = KvRow("initialized", 0, 0)
