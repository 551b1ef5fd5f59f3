"""One step of the clients: a draft of their state, and the commands that come of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ticdc_lab.simulate.machine import Address, Broken, Changed, Now, Output, Send, Wake
from ticdc_lab.simulate.pipeline.keys import FIRST, LAST, shown
from ticdc_lab.simulate.pipeline.kv_messages import (
    BatchCommands,
    BatchResponses,
    Command,
    Commit,
    EpochNotMatch,
    GetRegions,
    Gone,
    KeyIsLocked,
    Mutation,
    NotLeader,
    Prewrite,
    Refusal,
    Region,
    RegionNotFound,
    Regions,
    Rollback,
    WriteConflict,
)
from ticdc_lab.simulate.pipeline.tidb_state import (
    COMMITTING,
    FINISHING,
    HELD,
    PREWRITING,
    ROLLING_BACK,
    Batch,
    Item,
    Open,
    TidbState,
)
from ticdc_lab.simulate.scheduler.clock import ts_of

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
        self._commands: dict[Address, list[Command]] = {}
        self._outputs: list[Output] = []
        self._again = list(state.again)
        self._ended: list[int] = []
        self._decided: list[int] = []
        self._last_ts = state.last_ts
        self._committed = 0

    def done(self, *, flush: bool) -> tuple[TidbState, list[Output]]:
        """Give the state after the step; ``flush`` sends what was collected since the last time."""
        state = self.state
        numbered, outbox = state.numbered, state.outbox
        if flush:
            for command in outbox:
                region = self.state.routes.of(_first_key(command))
                if region is None or (region.id, region.epoch) != (command.region, command.epoch):
                    self._retry(command)
                else:
                    self._give(region, command)
            for store in sorted(self._commands):
                commands = tuple(self._commands[store])
                numbered += 1
                self._batches[numbered] = Batch(store, commands, self._now.at_us)
                self._outputs.append(Send(store, BatchCommands(numbered, commands)))
            outbox = ()
        elif self._commands:
            outbox = (*outbox, *(c for store in sorted(self._commands) for c in self._commands[store]))
        if self._ended:
            state = self._unlatched(state)
        state = state._replace(
            open=self._open.finish(),
            batches=self._batches.finish(),
            again=tuple(self._again),
            outbox=outbox,
            decided=tuple(self._decided),
            last_ts=self._last_ts,
            committed=state.committed + self._committed,
            numbered=numbered,
        )
        return state, self._outputs

    def _unlatched(self, state: TidbState) -> TidbState:
        latches, writers, altering = state.latches.mutate(), state.writers.mutate(), state.altering.mutate()
        for number in self._ended:
            item = self.items[number]
            for m in item.mutations:
                latches.pop(m[0], None)
            counts = altering if item.job else writers
            for table in item.tables:
                if counts.get(table, 0) > 1:
                    counts[table] -= 1
                else:
                    counts.pop(table, None)
        return state._replace(latches=latches.finish(), writers=writers.finish(), altering=altering.finish())

    # Transactions begin

    def begin(self) -> None:
        """Start what is due and waits for nobody."""
        state, at_us, items = self.state, self._now.at_us, self.items
        until = state.next
        while until < len(items) and items[until].at_us <= at_us:
            until += 1
        due = [*state.waiting, *range(state.next, until)]
        if not due or not state.routes.regions:
            return
        latches, writers, altering = state.latches.mutate(), state.writers.mutate(), state.altering.mutate()
        waiting: list[int] = []
        blocked: set[int] = set()
        blocked_tables: set[int] = set()
        for number in due:
            item = items[number]
            keys = [m[0] for m in item.mutations]
            tables = item.tables
            if item.job:
                free = not any(t in writers or t in altering or t in blocked_tables for t in tables)
            else:
                free = blocked.isdisjoint(keys) and tables.isdisjoint(blocked_tables)
                for key in keys:
                    free = free and key not in latches
                for table in tables if altering else ():
                    free = free and table not in altering
            if not free:
                waiting.append(number)
                blocked.update(keys)
                if item.job:
                    blocked_tables |= tables
                continue
            for key in keys:
                latches[key] = number
            counts = altering if item.job else writers
            for table in tables:
                counts[table] = counts.get(table, 0) + 1
            self._prewrite(number, tries=0)
        self.state = self.state._replace(
            next=until, waiting=tuple(waiting), latches=latches.finish(), writers=writers.finish(),
            altering=altering.finish(),
        )  # fmt: skip

    def _ts(self) -> int:
        self._last_ts = ts = max(self._last_ts + 1, ts_of(self._now.at_us))
        return ts

    def _prewrite(self, number: int, *, tries: int) -> None:
        mutations, start_ts = self.items[number].mutations, self._ts()
        sent = self._send_prewrites(start_ts, mutations, mutations[0].key)
        self._open[start_ts] = Open(number, PREWRITING, sent, 0, tries)

    def _send_prewrites(self, start_ts: int, mutations: Sequence[Mutation], primary: int) -> int:
        parts = self._by_region([m[0] for m in mutations], mutations)
        for region, part in parts:
            if region is None:
                self._retry(Prewrite(0, 0, start_ts, primary, part))
            else:
                self._give(region, Prewrite(region.id, region.epoch, start_ts, primary, part))
        return len(parts)

    def _send_keys(
        self, kind: type[Commit] | type[Rollback], start_ts: int, commit_ts: int, keys: Sequence[int]
    ) -> int:
        parts = self._by_region(keys, keys)
        for region, part in parts:
            at = (region.id, region.epoch) if region else (0, 0)
            command = Commit(*at, start_ts, commit_ts, part) if kind is Commit else Rollback(*at, start_ts, part)
            if region is None:
                self._retry(command)
            else:
                self._give(region, command)
        return len(parts)

    def _by_region(self, keys: Sequence[int], what: Sequence[T]) -> list[tuple[Region | None, tuple[T, ...]]]:
        """Divide what belongs to keys by the regions that hold them; None where that is not known."""
        starts, regions = self.state.routes
        found: dict[int, list[T]] = {}
        for key, one in zip(keys, what, strict=True):
            at = bisect_right(starts, key) - 1
            if at < 0 or key >= regions[at][2]:
                at = -1
            if at in found:
                found[at].append(one)
            else:
                found[at] = [one]
        return [(regions[at] if at >= 0 else None, tuple(part)) for at, part in found.items()]

    def _give(self, region: Region, command: Command) -> None:
        commands = self._commands.get(region.leader)
        if commands is None:
            self._commands[region.leader] = [command]
        else:
            commands.append(command)

    # Answers

    def answered(self, answer: BatchResponses) -> None:
        """Go on with the transactions whose commands were carried out; try the others again."""
        batch = self._batches.pop(answer.id, None)
        if batch is None:
            return
        opened = self._open
        for command, refusal in zip(batch.commands, answer.results, strict=True):
            start_ts = command[2]
            txn = opened.get(start_ts)
            if txn is None or (type(command) is Rollback) != (txn.phase == ROLLING_BACK):
                continue  # an answer to what was given up
            if refusal is not None:
                self._refused(command, txn, refusal)
                continue
            number, phase, left, commit_ts, tries = txn
            if left > 1:
                opened[start_ts] = Open(number, phase, left - 1, commit_ts, tries)
            else:
                self._proceed(start_ts, txn)

    def _proceed(self, start_ts: int, txn: Open) -> None:
        """Every command of a phase is carried out."""
        item = self.items[txn.item]
        if txn.phase == PREWRITING:
            if item.hold_us:
                self._open[start_ts] = txn._replace(phase=HELD)
                self._outputs.append(Wake(item.hold_us, start_ts))
            else:
                self._decide(start_ts, txn, item)
        elif txn.phase == COMMITTING:
            self._committed += 1
            if item.job:
                because = f"{item.job.type}: {item.job.query}"
                self._outputs.append(Changed(f"ddl:{item.job.id}", None, txn.commit_ts, because))
            if len(item.mutations) > 1:
                sent = self._send_keys(Commit, start_ts, txn.commit_ts, [m.key for m in item.mutations[1:]])
                self._open[start_ts] = Open(txn.item, FINISHING, sent, txn.commit_ts, txn.tries)
            else:
                self._end(start_ts, txn)
        else:
            self._end(start_ts, txn)

    def let_go(self, start_ts: int) -> None:
        """The time for which a transaction was to be held is over."""
        txn = self._open.get(start_ts)
        if txn is not None and txn.phase == HELD:
            self._decide(start_ts, txn, self.items[txn.item])

    def _decide(self, start_ts: int, txn: Open, item: Item) -> None:
        if item.rolls_back:
            self.state = self.state._replace(rolled_back=self.state.rolled_back + 1)
            self._roll_back(start_ts, txn)
            return
        commit_ts = self._ts()
        self._decided.append(start_ts)
        sent = self._send_keys(Commit, start_ts, commit_ts, (item.mutations[0].key,))
        self._open[start_ts] = Open(txn.item, COMMITTING, sent, commit_ts, txn.tries)

    def _roll_back(self, start_ts: int, txn: Open) -> None:
        sent = self._send_keys(Rollback, start_ts, 0, [m.key for m in self.items[txn.item].mutations])
        self._open[start_ts] = Open(txn.item, ROLLING_BACK, sent, 0, txn.tries)

    def _end(self, start_ts: int, txn: Open) -> None:
        del self._open[start_ts]
        if txn.phase == ROLLING_BACK and not self.items[txn.item].rolls_back:
            self._prewrite(txn.item, tries=txn.tries + 1)  # it met a conflict: once more, its latches are still its own
        else:
            self._ended.append(txn.item)

    def _refused(self, command: Command, txn: Open, refusal: Refusal) -> None:
        if isinstance(refusal, (NotLeader, EpochNotMatch, RegionNotFound)):
            self._ask(refusal.region)
            self._retry(command)
        elif isinstance(refusal, KeyIsLocked):
            self._retry(command)
        elif isinstance(refusal, (WriteConflict, Gone)) and isinstance(command, Prewrite):
            if txn.phase == PREWRITING:
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
            if txn is None or (txn.phase == ROLLING_BACK) != isinstance(command, Rollback):
                continue
            if isinstance(command, Prewrite):
                sent = self._send_prewrites(command.start_ts, command.mutations, command.primary)
            else:
                commit_ts = command.commit_ts if isinstance(command, Commit) else 0
                sent = self._send_keys(type(command), command.start_ts, commit_ts, command.keys)
            self._open[command.start_ts] = txn._replace(left=txn.left - 1 + sent)

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


def _first_key(command: Command) -> int:
    return command.mutations[0].key if isinstance(command, Prewrite) else command.keys[0]


def long_transactions(state: TidbState, items: Sequence[Item], ts: int) -> Iterable[tuple[int, str]]:
    """Give the open transactions that began at or before ``ts``: start_ts and what is known of them."""
    for start_ts in sorted(s for s in state.open if s <= ts):
        item = items[state.open[start_ts].item]
        yield (
            start_ts,
            f"{state.open[start_ts].phase}, {len(item.mutations)} keys, primary {shown(item.mutations[0].key)}",
        )
