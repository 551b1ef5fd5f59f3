"""One step of the clients: a draft of their state, and the commands that come of it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import (
    Address,
    Broken,
    Changed,
    Event,
    Fired,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    Wake,
    made,
)
from ticdc_lab.simulate.pipeline.kv_messages import (
    BatchCommands,
    BatchResponses,
    Command,
    Commit,
    EpochNotMatch,
    GetRegions,
    Gone,
    KeyIsLocked,
    KvRegion,
    Mutation,
    NotLeader,
    Prewrite,
    Refusal,
    RegionNotFound,
    Regions,
    Rollback,
    WriteConflict,
)
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST
from ticdc_lab.simulate.pipeline.tidb_state import (
    COMMITTING,
    FINISHING,
    HELD,
    PREWRITING,
    ROLLING_BACK,
    Decided,
    Item,
    Load,
    Open,
    SentBatch,
    TidbState,
    items_of,
)

PD = "pd"
T = TypeVar("T")


class Clients:
    """What the clients do in one step."""

    def __init__(self, items: Sequence[Item], state: TidbState, now: Now, backoff_us: int) -> None:
        self.items = items
        self.state = state
        self._now = now
        self._backoff_us = backoff_us
        self._open = state.open.mutate()
        self._batches = state.batches.mutate()
        self._commands: defaultdict[Address, list[Command]] = defaultdict(list)
        self._outputs: list[Output] = []
        self._again = list(state.again)
        self._ended: list[int] = []
        self._decided: list[Decided] = []
        self._next = list(state.outbox)
        self._last_ts, self._now_ts = state.last_ts, ts_of(now.at_us)
        self._committed = 0

    def done(self, *, flush: bool) -> tuple[TidbState, list[Output]]:
        numbered = self.state.numbered
        if flush:
            for start_ts in self._next:
                self._send(start_ts, self._open[start_ts])
            self._next = []
            for store in sorted(self._commands):
                commands = tuple(self._commands[store])
                numbered += 1
                self._batches[numbered] = SentBatch(store, commands, self._now.at_us)
                self._outputs.append(Send(store, BatchCommands(numbered, commands)))
        state = self._unlatched() if self._ended else self.state
        state = state._replace(
            open=self._open.finish(),
            batches=self._batches.finish(),
            again=tuple(self._again),
            outbox=tuple(self._next),
            decided=tuple(self._decided),
            last_ts=self._last_ts,
            committed=state.committed + self._committed,
            numbered=numbered,
        )
        return state, self._outputs

    def _unlatched(self) -> TidbState:
        latches, altering = self.state.latches.mutate(), self.state.altering
        for number in self._ended:
            item = self.items[number]
            for key in item.keys:
                latches.pop(key, None)
            if item.job:
                altering -= item.tables
        return self.state._replace(latches=latches.finish(), altering=altering)

    # Transactions begin

    def begin(self) -> None:
        """Start what is due and waits for nothing."""
        state, at_us, items = self.state, self._now.at_us, self.items
        until = state.next
        while until < len(items) and items[until].at_us <= at_us:
            until += 1
        due = [*state.waiting, *range(state.next, until)]
        if not due or not state.routes.regions:
            return
        latches, altering = state.latches.mutate(), state.altering
        waiting: list[int] = []
        begun: list[int] = []
        blocked: set[int] = set()
        closed = altering
        for number in due:
            item = items[number]
            keys = item.keys
            free = blocked.isdisjoint(keys) and not any(map(latches.__contains__, keys))
            free = free and (not closed or closed.isdisjoint(item.tables))
            if item.job:
                free = free and item.tables.isdisjoint(self._written(waiting, begun))
                closed |= item.tables
            if not free:
                waiting.append(number)
                blocked.update(keys)
                continue
            begun.append(number)
            if item.job:
                altering |= item.tables
            for key in keys:
                latches[key] = number
            start_ts = self._begun(number, 0)
            self._send_prewrites(start_ts, keys[0], item.mutations, keys)
        self.state = state._replace(next=until, waiting=tuple(waiting), latches=latches.finish(), altering=altering)

    def _written(self, *others: Sequence[int]) -> set[int]:
        """Give the tables of transactions that were open before this step, and of others."""
        numbers = chain((txn[0] for txn in self.state.open.values()), *others)
        return {table for number in numbers for table in self.items[number].tables}

    def _ts(self) -> int:
        ts = self._last_ts + 1
        self._last_ts = ts = ts if ts > self._now_ts else self._now_ts
        return ts

    def _begun(self, number: int, tries: int) -> int:
        start_ts = self._ts()
        self._open[start_ts] = (number, PREWRITING, len(self.items[number].keys), 0, tries)
        return start_ts

    # Commands

    def _send(self, start_ts: int, txn: Open) -> None:
        """Send the commands of a phase."""
        number, phase, _, commit_ts, _ = txn
        item = self.items[number]
        if phase == PREWRITING:
            self._send_prewrites(start_ts, item.keys[0], item.mutations, item.keys)
        elif phase == ROLLING_BACK:
            self._send_keys(Rollback, start_ts, 0, item.keys)
        else:
            self._send_keys(Commit, start_ts, commit_ts, item.keys[:1] if phase == COMMITTING else item.keys[1:])

    def _send_prewrites(self, start_ts: int, primary: int, mutations: Sequence[Mutation], keys: Sequence[int]) -> None:
        for region, part in self._by_region(keys, mutations):
            if region is None:
                self._retry(Prewrite(0, 0, start_ts, primary, part))
            else:
                command = made(Prewrite, (region[0], region[3], start_ts, primary, part))
                self._commands[region[4]].append(command)

    def _send_keys(
        self, kind: type[Commit] | type[Rollback], start_ts: int, commit_ts: int, keys: Sequence[int]
    ) -> None:
        for region, part in self._by_region(keys, keys):
            number, epoch = (0, 0) if region is None else (region[0], region[3])
            if kind is Commit:
                command: Command = made(Commit, (number, epoch, start_ts, commit_ts, part))
            else:
                command = made(Rollback, (number, epoch, start_ts, part))
            if region is None:
                self._retry(command)
            else:
                self._commands[region[4]].append(command)

    def _by_region(self, keys: Sequence[int], what: Sequence[T]) -> list[tuple[KvRegion | None, tuple[T, ...]]]:
        """Divide what belongs to keys by the regions that hold them; None where that is not known."""
        bounds, holders = self.state.routes
        if len(keys) == 1:
            return [(holders[bisect_right(bounds, keys[0])], tuple(what))]
        found: dict[int, list[T]] = {}
        for key, one in zip(keys, what, strict=True):
            at = bisect_right(bounds, key)
            if at in found:
                found[at].append(one)
            else:
                found[at] = [one]
        return [(holders[at], tuple(part)) for at, part in found.items()]

    # Answers

    def answered(self, answer: BatchResponses) -> None:
        """Continue the transactions whose commands were carried out; retry the others."""
        batch = self._batches.pop(answer.id, None)
        if batch is None:
            return
        opened = self._open
        for command, refusal in zip(batch.commands, answer.results, strict=True):
            start_ts = command[2]
            txn = opened.get(start_ts)
            if txn is None or (type(command) is Rollback) != (txn[1] == ROLLING_BACK):
                continue  # an answer to what was given up
            if refusal is not None:
                self._refused(command, txn, refusal)
                continue
            number, phase, left, commit_ts, tries = txn
            left -= len(command[-1])
            if left:
                opened[start_ts] = (number, phase, left, commit_ts, tries)
            else:
                self._proceed(start_ts, txn)

    def _proceed(self, start_ts: int, txn: Open) -> None:
        """Every command of a phase is carried out."""
        number, phase, left, commit_ts, tries = txn
        item = self.items[number]
        if phase == PREWRITING:
            if item.hold_us:
                self._open[start_ts] = (number, HELD, left, commit_ts, tries)
                self._outputs.append(Wake(item.hold_us, start_ts))
            else:
                self._decide(start_ts, txn, item)
        elif phase == COMMITTING:
            self._committed += 1
            if item.job:
                because = f"{item.job.type}: {item.job.query}"
                self._outputs.append(Changed(f"ddl:{item.job.id}", None, commit_ts, because))
            if len(item.keys) > 1:
                self._goes_on(start_ts, (number, FINISHING, len(item.keys) - 1, commit_ts, tries))
            else:
                self._end(start_ts, txn)
        else:
            self._end(start_ts, txn)

    def _goes_on(self, start_ts: int, txn: Open) -> None:
        """Let a transaction enter a phase; its commands travel with the next batch."""
        self._open[start_ts] = txn
        self._next.append(start_ts)

    def let_go(self, start_ts: int) -> None:
        """The time for which a transaction was to be held is over."""
        txn = self._open.get(start_ts)
        if txn is not None and txn[1] == HELD:
            self._decide(start_ts, txn, self.items[txn[0]])

    def _decide(self, start_ts: int, txn: Open, item: Item) -> None:
        if item.rolls_back:
            self.state = self.state._replace(rolled_back=self.state.rolled_back + 1)
            self._roll_back(start_ts, txn)
            return
        number, _, _, _, tries = txn
        commit_ts = self._ts()
        self._decided.append((commit_ts, start_ts, number))
        self._goes_on(start_ts, (number, COMMITTING, 1, commit_ts, tries))

    def _roll_back(self, start_ts: int, txn: Open) -> None:
        number, _, _, _, tries = txn
        self._goes_on(start_ts, (number, ROLLING_BACK, len(self.items[number].keys), 0, tries))

    def _end(self, start_ts: int, txn: Open) -> None:
        number, phase, _, _, tries = txn
        del self._open[start_ts]
        if phase == ROLLING_BACK and not self.items[number].rolls_back:
            # it met a conflict: once more, its latches are still its own
            self._next.append(self._begun(number, tries + 1))
        else:
            self._ended.append(number)

    def _refused(self, command: Command, txn: Open, refusal: Refusal) -> None:
        if isinstance(refusal, (NotLeader, EpochNotMatch, RegionNotFound)):
            self._ask(refusal.region)
            self._retry(command)
        elif isinstance(refusal, KeyIsLocked):
            self._retry(command)
        elif isinstance(refusal, (WriteConflict, Gone)) and isinstance(command, Prewrite):
            if txn[1] == PREWRITING:
                self.state = self.state._replace(conflicts=self.state.conflicts + 1)
                self._roll_back(command.start_ts, txn)
        else:
            because = f"the transaction of start_ts {command.start_ts} is committing, and TiKV answers {refusal}"
            self._outputs.append(Broken("Committed Transactions Stay", because))

    # Again

    def _retry(self, command: Command) -> None:
        self._again.append((self._now.at_us + self._backoff_us, command))

    def again(self) -> None:
        """Send again what is due, to where its keys are now."""
        at_us = self._now.at_us
        due = [c for when, c in self._again if when <= at_us]
        self._again = [(when, c) for when, c in self._again if when > at_us]
        for command in due:
            txn = self._open.get(command.start_ts)
            if txn is None or (txn[1] == ROLLING_BACK) != isinstance(command, Rollback):
                continue
            if isinstance(command, Prewrite):
                keys = [m.key for m in command.mutations]
                self._send_prewrites(command.start_ts, command.primary, command.mutations, keys)
            else:
                commit_ts = command.commit_ts if isinstance(command, Commit) else 0
                self._send_keys(type(command), command.start_ts, commit_ts, command.keys)

    def late(self, timeout_us: int) -> None:
        """Give up waiting for stores that do not answer; ask PD who leads now."""
        if self.state.asked_us is not None and self._now.at_us - self.state.asked_us >= timeout_us:
            self.state = self.state._replace(asked_us=None)
            self._ask(None)
        before_us = self._now.at_us - timeout_us
        silent = [n for n, b in self.state.batches.items() if b.sent_us <= before_us]
        for number in sorted(silent):
            batch = self._batches.pop(number)
            self._ask(None)
            for command in batch.commands:
                self._retry(command)

    def _ask(self, region: int | None) -> None:
        if region is not None:
            self.state = self.state._replace(routes=self.state.routes.without(region))
        if self.state.asked_us is None:
            self._outputs.append(Send(PD, GetRegions(FIRST, LAST)))
            self.state = self.state._replace(asked_us=self._now.at_us)

    def routed(self, answer: Regions) -> None:
        """Learn where regions are."""
        routes = self.state.routes.learned(answer.start, answer.end, answer.regions)
        self.state = self.state._replace(routes=routes, asked_us=None)


# The clients of TiKV: they carry out a load by Percolator's two phases, each client one transaction at a time.
#
# A transaction gets its start_ts when it begins and its commit_ts when all its locks are there; it is committed when
# its primary key is. Commands to one store travel together. A DDL waits for the transactions on its table, and they
# for it.

TIDB = "tidb"


class Tidb:
    """The machine of all clients.

    ``load``: what they do. ``batch_us``: commands of so long a time travel together. ``backoff_us``: after how long a
    refused command is tried again. ``timeout_us``: after how long without an answer commands are sent again.
    """

    def __init__(
        self, load: Load, *, batch_us: int = 5_000, backoff_us: int = 20_000, timeout_us: int = 1_000_000
    ) -> None:
        self.items: tuple[Item, ...] = items_of(load)
        self.batch_us = batch_us
        self.backoff_us = backoff_us
        self.timeout_us = timeout_us

    def start(self, address: Address, now: Now) -> tuple[TidbState, list[Output]]:
        state = TidbState(address, asked_us=now.at_us)
        return state, [Send(PD, GetRegions(FIRST, LAST)), Wake(self.batch_us, "tick")]

    def step(self, state: TidbState, event: Event, now: Now) -> tuple[TidbState, list[Output]]:
        clients = Clients(self.items, state, now, self.backoff_us)
        if isinstance(event, (Received, ReceivedMany)):
            for message in event.messages if isinstance(event, ReceivedMany) else (event.message,):
                if isinstance(message, BatchResponses):
                    clients.answered(message)
                elif isinstance(message, Regions):
                    clients.routed(message)
            return clients.done(flush=False)
        if isinstance(event, Fired) and event.name == "tick":
            clients.late(self.timeout_us)
            clients.begin()
            clients.again()
            state, outputs = clients.done(flush=True)
            return state, [*outputs, *self._wake(state, now)]
        if isinstance(event, Fired):
            held: int = event.name  # type: ignore[assignment]
            clients.let_go(held)
        return clients.done(flush=False)

    def _wake(self, state: TidbState, now: Now) -> list[Output]:
        """Come back soon while something is open, else when the next item is due; not at all when all is done."""
        if state.open or state.waiting or state.again or state.asked_us is not None:
            return [Wake(self.batch_us, "tick")]
        if state.next < len(self.items):
            return [Wake(max(self.batch_us, self.items[state.next].at_us - now.at_us), "tick")]
        done = f"{state.committed} transactions committed, {state.rolled_back} rolled back"
        return [Changed("load", None, "done", done)]
