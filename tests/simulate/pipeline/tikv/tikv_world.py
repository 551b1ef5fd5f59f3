"""A small world around the stores: a client with random transactions, and a subscriber with a reference matcher."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Fired, Received, ReceivedMany, Send, Wake
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.pipeline.cdc_messages import (
    COMMIT,
    COMMITTED,
    INITIALIZED,
    PREWRITE,
    ROLLED_BACK,
    Entries,
    RegionFailed,
    Register,
    ResolvedTs,
)
from ticdc_lab.simulate.pipeline.kv_messages import (
    DELETE,
    PUT,
    BatchCommands,
    BatchResponses,
    Commit,
    GetRegions,
    Gone,
    KeyIsLocked,
    Mutation,
    Prewrite,
    Regions,
    Rollback,
    WriteConflict,
)
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, Raw, key_of
from ticdc_lab.simulate.pipeline.tikv import Pd, TikvStore, committed_in, initial_regions
from ticdc_lab.simulate.trace import CHANGES, Recorder

TABLE = 104


def stores_of(settings):
    """Names of the stores."""
    return tuple(f"tikv-{i + 1}" for i in range(settings.stores))


@dataclass
class Txn:
    """A transaction under way: what is still to be answered in its phase."""

    start_ts: int
    mutations: dict
    primary: int
    phase: str = "prewrite"
    left: set = field(default_factory=set)
    commit_ts: int = 0
    tries: int = 0


class Client:
    """Node ``tidb``: a few transactions at a time; it keeps what was reported to it as committed."""

    def __init__(self, seed, keys, until_us, concurrency=4, pause_us=2_000, most_keys=5):
        self.chance = random.Random(f"client {seed}")
        self.keys, self.until_us, self.concurrency = keys, until_us, concurrency
        self.pause_us, self.most_keys = pause_us, most_keys
        self.regions, self.txns, self.asked, self.n_batches = (), {}, {}, 0
        self.committed = {}
        self.last_ts = 0
        self.n_done = self.n_rolled_back = 0

    def start(self, address, now):
        """Ask where regions are."""
        return self, [Send("pd", GetRegions(FIRST, LAST)), Wake(10_000, "go")]

    def step(self, state, event, now):
        """Take answers; at timers begin transactions and ask again what was not answered."""
        out = []
        if isinstance(event, ReceivedMany):
            for message in event.messages:
                out += self.received(message, now)
        elif isinstance(event, Received):
            out += self.received(event.message, now)
        elif isinstance(event, Fired) and event.name == "go":
            out += self.go(now)
        elif isinstance(event, Fired) and event.name[0] == "retry":
            txn = self.txns.get(event.name[1])
            if txn is not None:
                out += [Send("pd", GetRegions(FIRST, LAST)), *self.ask(txn)]
        return self, out

    def tso(self, now):
        """A timestamp that no other has."""
        self.last_ts = max(self.last_ts + 1, ts_of(now.at_us))
        return self.last_ts

    def go(self, now):
        """Begin what there is room for."""
        out = []
        if now.at_us < self.until_us:
            out.append(Wake(self.pause_us, "go"))
            if len(self.txns) < self.concurrency and self.regions:
                out += self.begin(now)
        return out

    def begin(self, now):
        """Draw a transaction."""
        keys = self.chance.sample(self.keys, self.chance.randint(1, min(self.most_keys, len(self.keys))))
        start_ts = self.tso(now)
        mutations = {}
        for key in keys:
            op = DELETE if self.chance.random() < 0.15 else PUT
            mutations[key] = Mutation(key, op, Raw((1,), (start_ts,)) if op == PUT else None)
        txn = self.txns[start_ts] = Txn(start_ts, mutations, keys[0], left=set(keys))
        return self.ask(txn)

    def region_of(self, key):
        """The region of a key as far as is known."""
        return next((r for r in self.regions if r.start <= key < r.end), None)

    def ask(self, txn):
        """Send what is left of a phase, a batch for each store."""
        txn.tries += 1
        by_region = {}
        for key in sorted(txn.left):
            region = self.region_of(key)
            if region is not None:
                by_region.setdefault(region, []).append(key)
        by_store = {}
        for region, keys in by_region.items():
            by_store.setdefault(region.leader, []).append((self.command(txn, region, keys), keys))
        out = [Wake(200_000, ("retry", txn.start_ts))]
        for store, commands in by_store.items():
            self.n_batches += 1
            self.asked[self.n_batches] = (txn.start_ts, txn.phase, [keys for _, keys in commands])
            out.append(Send(store, BatchCommands(self.n_batches, tuple(c for c, _ in commands))))
        return out

    def command(self, txn, region, keys):
        """One command of a phase."""
        if txn.phase == "prewrite":
            mutations = tuple(txn.mutations[k] for k in keys)
            return Prewrite(region.id, region.epoch, txn.start_ts, txn.primary, mutations)
        if txn.phase == "rollback":
            return Rollback(region.id, region.epoch, txn.start_ts, tuple(keys))
        return Commit(region.id, region.epoch, txn.start_ts, txn.commit_ts, tuple(keys))

    def received(self, message, now):
        """Take an answer."""
        if isinstance(message, Regions):
            self.regions = message.regions
            return []
        assert isinstance(message, BatchResponses)
        start_ts, phase, keys = self.asked.pop(message.id, (0, "", []))
        txn = self.txns.get(start_ts)
        if txn is None or txn.phase != phase:
            return []
        for result, of in zip(message.results, keys, strict=True):
            if result is None:
                txn.left -= set(of)
            elif phase == "prewrite" and (
                isinstance(result, (WriteConflict, Gone)) or (isinstance(result, KeyIsLocked) and txn.tries > 3)
            ):
                txn.phase, txn.left, txn.tries = "rollback", set(txn.mutations), 0
                return self.ask(txn)
            elif phase != "prewrite":
                assert not isinstance(result, (Gone, WriteConflict)), (phase, result, txn)
        if txn.left:
            return (
                [Send("pd", GetRegions(FIRST, LAST)), Wake(5_000, ("retry", txn.start_ts))]
                if any(message.results)
                else []
            )
        return self.next_phase(txn, now)

    def next_phase(self, txn, now):
        """Continue when a phase is through."""
        if txn.phase == "prewrite":
            txn.phase, txn.left, txn.tries = "primary", {txn.primary}, 0
            txn.commit_ts = self.tso(now)
            return self.ask(txn)
        if txn.phase == "primary":
            for key, mutation in txn.mutations.items():
                self.committed[key, txn.commit_ts] = (txn.start_ts, mutation.op, mutation.value)
            txn.phase, txn.left, txn.tries = "secondaries", set(txn.mutations) - {txn.primary}, 0
            if txn.left:
                return self.ask(txn)
        self.n_done += 1
        self.n_rolled_back += txn.phase == "rollback"
        del self.txns[txn.start_ts]
        return []


class Matcher:
    """Joins the rows of one stream, as TiCDC's matcher does: what comes before ``initialized`` waits for it."""

    def __init__(self):
        self.prewrites, self.waiting, self.initialized = {}, [], False

    def take(self, rows):
        """Give the changes that are whole: (key, commit_ts, start_ts, op, value, old_value)."""
        found = []
        for row in rows:
            if row.type == PREWRITE:
                self.prewrites[row.key, row.start_ts] = row
            elif row.type == COMMITTED:
                found.append((row.key, row.commit_ts, row.start_ts, row.op, row.value, row.old_value))
            elif row.type == INITIALIZED:
                self.initialized = True
                for waited in self.waiting:
                    found += self.join(waited)
            elif self.initialized:
                found += self.join(row)
            else:
                self.waiting.append(row)
        return found

    def join(self, row):
        """Join a commit or rollback with its prewrite."""
        prewrite = self.prewrites.pop((row.key, row.start_ts), None)
        if row.type == ROLLED_BACK:
            return []
        assert row.type == COMMIT
        assert prewrite is not None, f"a commit without its prewrite: {row}"
        return [(row.key, row.commit_ts, row.start_ts, prewrite.op, prewrite.value, prewrite.old_value)]


@dataclass
class Open:
    """A stream that is open."""

    store: str
    start: int
    end: int
    heard_us: int
    matcher: Matcher = field(default_factory=Matcher)


class Subscriber:
    """Node ``capture-1``: reads the whole key space, registers again what fails, and checks each resolved_ts."""

    def __init__(self, checkpoint_ts=0, start_us=0, retry_us=50_000):
        self.start_us, self.retry_us = start_us, retry_us
        self.frontier = [(FIRST, LAST, checkpoint_ts)]
        self.wanted = [(FIRST, LAST)]
        self.open, self.n_requests = {}, 0
        self.seen, self.violations, self.problems = {}, [], []
        self.told = set()
        self.n_failed = self.n_rows = 0

    def start(self, address, now):
        """Ask PD for regions, later."""
        return self, [Wake(self.start_us, "ask")]

    def step(self, state, event, now):
        """Take rows, watermarks and ends of streams."""
        messages = (
            event.messages
            if isinstance(event, ReceivedMany)
            else (event.message,)
            if isinstance(event, Received)
            else ()
        )
        out = []
        for message in messages:
            out += self.received(message, now)
        if isinstance(event, Fired) and event.name == "ask":
            for number, stream in list(self.open.items()):
                if now.at_us - stream.heard_us > 2_000_000:
                    self.failed(number)
            wanted, self.wanted = self.wanted, []
            for start, end in wanted:
                out.append(Send("pd", GetRegions(start, end)))
            out.append(Wake(self.retry_us, "ask"))
        return self, out

    def failed(self, number):
        """A stream ended."""
        stream = self.open.pop(number, None)
        if stream is not None:
            self.n_failed += 1
            self.wanted.append((stream.start, stream.end))

    def received(self, message, now):
        """Take one message."""
        if isinstance(message, Regions):
            return self.register(message, now)
        if isinstance(message, RegionFailed):
            self.failed(message.request_id)
        elif isinstance(message, Entries):
            stream = self.open.get(message.request_id)
            if stream is not None:
                stream.heard_us = now.at_us
                self.n_rows += len(message.rows)
                try:
                    for change in stream.matcher.take(message.rows):
                        self.emit(change)
                except AssertionError as e:
                    self.problems.append(str(e))
        elif isinstance(message, ResolvedTs):
            for number, _ in message.regions:
                stream = self.open.get(number)
                if stream is not None:
                    stream.heard_us = now.at_us
                    if not stream.matcher.initialized:
                        self.problems.append("a resolved_ts before initialized")
                    self.forward(stream.start, stream.end, message.ts)
        return []

    def register(self, message, now):
        """Register the parts of a span; what no region covers is asked again."""
        out, at = [], message.start
        for region in message.regions:
            start, end = max(region.start, message.start), min(region.end, message.end)
            if start > at:
                self.wanted.append((at, start))
            self.n_requests += 1
            self.open[self.n_requests] = Open(region.leader, start, end, now.at_us)
            request = Register(self.n_requests, region.id, region.epoch, self.resolved(start, end), start, end)
            out.append(Send(region.leader, request))
            at = end
        if at < message.end:
            self.wanted.append((at, message.end))
        return out

    def emit(self, change):
        """Keep a change; one at or below a resolved_ts must be known."""
        key, commit_ts, start_ts, op, value, old_value = change
        row = (start_ts, op, value, old_value)
        if self.seen.setdefault((key, commit_ts), row) != row:
            self.problems.append(f"two versions of {key} at {commit_ts}: {row} {self.seen[key, commit_ts]}")
        if commit_ts <= self.resolved(key, key + 1) and (key, commit_ts) not in self.told:
            self.violations.append((key, commit_ts, self.resolved(key, key + 1)))
        self.told.add((key, commit_ts))

    def forward(self, start, end, ts):
        """Advance a span."""
        made = []
        for s, e, known in self.frontier:
            if e <= start or end <= s or known >= ts:
                made.append((s, e, known))
                continue
            made += [(s, start, known)] if s < start else []
            made.append((max(s, start), min(e, end), ts))
            made += [(end, e, known)] if end < e else []
        self.frontier = made

    def resolved(self, start, end):
        """The lowest of a span."""
        return min(ts for s, e, ts in self.frontier if s < end and start < e)


@dataclass
class World:
    """A run and what is left of it."""

    kernel: Kernel
    client: Client
    subscriber: Subscriber
    settings: TikvSettings

    def committed(self):
        """All that is committed: {(key, commit_ts): (start_ts, op, value, old_value)}."""
        found = list(committed_in(self.kernel.states[self.kernel.address[name]] for name in stores_of(self.settings)))
        versions = {(key, ts): (start_ts, op, value, old) for ts, start_ts, key, op, value, old in found}
        assert len(versions) == len(found), "a version twice"
        return versions


def world(
    seed=0,
    faults=(),
    until_us=4_000_000,
    settle_us=6_000_000,
    settings=None,
    keys=None,
    network=None,
    start_us=0,
    client=None,
):
    """Run transactions until a moment, let it settle, and give the world."""
    settings = settings or TikvSettings(resolved_us=50_000, store_down_us=600_000, scan_batch=4, scan_rows_per_s=2_000)
    keys = keys or [key_of(TABLE, h) for h in range(0, 1000, 20)]
    stores = stores_of(settings)
    regions = initial_regions(settings, (TABLE,))
    client = client or Client(seed, keys, until_us)
    subscriber = Subscriber(start_us=start_us)
    machines = {"pd": Pd(settings, stores, regions)}
    machines |= {name: TikvStore(settings, stores, regions) for name in stores}
    machines |= {"tidb": client, "capture-1": subscriber}
    kernel = Kernel(machines, network=network or Network(), faults=faults, seed=seed, recorder=Recorder("t", CHANGES))
    end = kernel.run(until_us + settle_us)
    assert end.violation is None, end
    return World(kernel, client, subscriber, settings)
