"""Short ways to show what the cases of v2 are about; all through the machines' public functions."""

from __future__ import annotations

import json
from pathlib import Path

from ticdc_lab.machines.machine import Asked, Broken, Decided, Ignored, Now, Received, Send
from ticdc_lab.simulate.scheduler.agent import Agent
from ticdc_lab.simulate.scheduler.balance import Balance
from ticdc_lab.simulate.scheduler.dispatcher import Dispatcher
from ticdc_lab.simulate.scheduler.executor import MAX_TS, TablePace
from ticdc_lab.simulate.scheduler.messages import Announce, Checkpoint, DispatchTable, DispatchTableResponse, Sync
from ticdc_lab.simulate.scheduler.roles import Poll, Tick, Watermarks

GOLDEN = Path(__file__).parents[2] / "data/golden/scheduler/v2.jsonl"
VERSION = "v6.1.0"
A, B, C = "capture-1", "capture-2", "capture-3"


def ids():
    """Give the ids of all golden cases of this protocol."""
    return [json.loads(line)["id"] for line in GOLDEN.read_text().splitlines()]


class Owner:
    """An owner that is driven through its public interface; remembers the outputs of the last tick."""

    def __init__(self, *captures, tables=(), checkpoint_ts=1000, owner_rev=1, balance=None, machine=None):
        self.machine = machine or Dispatcher(balance=balance or Balance())
        self.at_us = 0
        self.state, self.outputs = self.machine.elected("owner", owner_rev, Now(0))
        self.captures = frozenset(captures)
        self.tables = frozenset(tables)
        self.checkpoint_ts = checkpoint_ts

    @classmethod
    def synced(cls, running, *, marks=None, tables=None, **settings):
        """Give an owner that every capture has reported what it runs: ``{capture: tables}``,
        ``{capture: watermarks}``.
        """
        wanted = [t for keys in running.values() for t in keys] if tables is None else tables
        owner = cls(*running, tables=wanted, **settings)
        owner.tick()
        for name, keys in running.items():
            owner.sync(name, running=keys)
        for name, (checkpoint_ts, resolved_ts) in (marks or {}).items():
            owner.receive(name, Checkpoint(checkpoint_ts, resolved_ts))
        return owner

    def tick(self, checkpoint_ts=None, *, refused=(), barrier_ts=None, prefer=()):
        """Let the periodic call come; gives the messages as (to, message)."""
        self.checkpoint_ts = checkpoint_ts or self.checkpoint_ts
        self.at_us += 1000
        command = Tick(self.captures, self.tables, self.checkpoint_ts, barrier_ts)
        now = Now(self.at_us, frozenset(refused), tuple(prefer))
        self.state, self.outputs = self.machine.step(self.state, Asked(command), now)
        return self.sent()

    def receive(self, sender, message):
        """Let a message come in; gives the outputs."""
        self.state, outputs = self.machine.step(self.state, Received(sender, message), Now(self.at_us))
        return outputs

    def sync(self, sender, running=(), adding=(), removing=(), epoch=1, version=VERSION):
        """Let a capture show its state."""
        return self.receive(sender, Sync(version, tuple(running), tuple(adding), tuple(removing), epoch))

    def done(self, sender, table, epoch=1):
        """Let a capture finish an order."""
        return self.receive(sender, DispatchTableResponse(table, epoch))

    def ask(self, command):
        """Let a user ask for something."""
        self.state, outputs = self.machine.step(self.state, Asked(command), Now(self.at_us))
        return outputs

    def sent(self):
        """Give the messages of the last tick."""
        return [(o.to, o.message) for o in self.outputs if isinstance(o, Send)]

    @property
    def marks(self):
        """The watermarks that the last tick gave; None where the checkpoint cannot proceed."""
        (found,) = [o for o in self.outputs if isinstance(o, Watermarks)]
        return None if found.checkpoint_ts is None else (found.checkpoint_ts, found.resolved_ts)

    @property
    def because(self):
        """What the last tick reported of the watermarks."""
        return next(o.because.words for o in self.outputs if isinstance(o, Watermarks))

    def where(self):
        """Give what the owner believes: ``{table: (capture, status)}``."""
        return {key: (r.capture, r.status) for key, r in sorted(self.state.tables.records.items())}

    def until_quiet(self, ticks=10):
        """Answer every order at once until nothing is sent any more; gives (to, table, is_delete) of all orders."""
        orders = []
        for _ in range(ticks):
            sent = self.tick()
            if not sent:
                return orders
            for to, message in sent:
                if isinstance(message, DispatchTable):
                    orders.append((to, message.id, message.is_delete))
                    self.done(to, message.id, message.epoch)
        raise AssertionError(f"still sends after {ticks} ticks: {sent}")


def added(table, epoch=1, start_ts=1000, owner_rev=1):
    """Give the order to replicate a table."""
    return DispatchTable(owner_rev, table, False, start_ts, epoch)


def removed(table, epoch=1, start_ts=1000, owner_rev=1):
    """Give the order to stop a table."""
    return DispatchTable(owner_rev, table, True, start_ts, epoch)


def announced(owner_rev=1, version=VERSION):
    """Give the message of a new owner."""
    return Announce(owner_rev, version)


def ignored(outputs):
    """Give why a message had no effect."""
    return [o.because for o in outputs if isinstance(o, Ignored)]


def broken(outputs):
    """Give the invariants that a machine found broken."""
    return [o.invariant for o in outputs if isinstance(o, Broken)]


def decided(outputs, subject):
    """Give what was chosen for a subject."""
    return [o for o in outputs if isinstance(o, Decided) and o.subject == subject]


class Processor:
    """A processor that is driven through its public interface."""

    def __init__(self, *, prepare_us=100, stop_us=100, version=VERSION):
        self.machine = Agent(TablePace(prepare_us, stop_us, lag_us=0), version)
        self.at_us = 0
        self.limit_ts = MAX_TS
        self.state, _ = self.machine.start(A, Now(0))

    def receive(self, sender, message):
        """Let a message come in; gives the outputs."""
        self.state, outputs = self.machine.step(self.state, Received(sender, message), Now(self.at_us))
        return outputs

    def poll(self, after_us=0, *, refused=()):
        """Let the periodic call come; gives the messages as (to, message)."""
        self.at_us += after_us
        now = Now(self.at_us, frozenset(refused))
        self.state, outputs = self.machine.step(self.state, Asked(Poll(self.limit_ts)), now)
        return [(o.to, o.message) for o in outputs if isinstance(o, Send)]

    def ask(self, command):
        """Let something be asked of it."""
        self.state, outputs = self.machine.step(self.state, Asked(command), Now(self.at_us))
        return outputs

    def tables(self):
        """Give what it does: ``{table: state of its pipeline}``."""
        return {key: p.state for key, p in sorted(self.state.executor.pipelines.items())}

    def under(self, owner="owner", owner_rev=1):
        """Let an owner announce itself and hear the state; gives the epoch under it."""
        self.receive(owner, announced(owner_rev))
        (sync,) = [m for _, m in self.poll() if isinstance(m, Sync)]
        return sync.epoch
