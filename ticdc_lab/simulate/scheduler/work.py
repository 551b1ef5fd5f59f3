"""One tick of the owner: the orders it gives, one after another, until the transport takes no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.simulate.machine import Decided, Now, Send
from ticdc_lab.simulate.scheduler.balance import TRAFFIC, Balance, Places, in_order, plan
from ticdc_lab.simulate.scheduler.messages import DispatchTable
from ticdc_lab.simulate.scheduler.roles import Key, OwnerOutput, Tick
from ticdc_lab.simulate.scheduler.tables import ADDING, REMOVING, RUNNING, Move, Record

if TYPE_CHECKING:
    from ticdc_lab.simulate.scheduler.dispatcher_state import DispatcherState

EXPLAINED = 1000
"""Up to so many tables that are added in one tick get a decision each; above there is one for all of them."""


class Work:
    """The owner's state while a tick goes on; each step gives why the checkpoint cannot proceed after it, or None."""

    def __init__(
        self, state: DispatcherState, tick: Tick, now: Now, balance: Balance, outputs: list[OwnerOutput]
    ) -> None:
        self._state = state
        self._tick = tick
        self._now = now
        self._balance = balance
        self._outputs = outputs
        self._said = state.said
        self._draft = state.tables.draft()
        self._draft.want(tick.tables)
        self._moves = state.moves
        self._needs_rebalance = state.needs_rebalance

    def run(self) -> str | None:
        """Do all that can be done now: moves and rebalances wait until nothing is in flight."""
        because = self.add_missing() or self.remove_unwanted() or self.in_flight()
        if because:
            self.postpone(because)
            return because
        return self.move() or self.in_flight() or self.rebalance() or self.in_flight()

    def done(self) -> DispatcherState:
        """Give the state after the tick."""
        return self._state._replace(
            tables=self._draft.done(),
            moves=self._moves,
            needs_rebalance=self._needs_rebalance,
            said=self._said,
        )

    def in_flight(self) -> str | None:
        """Say which table keeps the checkpoint from proceeding."""
        key = self._draft.any_in_flight()
        if key is None:
            return None
        record = self._draft.get(key)
        assert record
        more = self._draft.n_in_flight() - 1
        return f"table {key} is {record.status} on {record.capture}" + (f", and {more} more" if more else "")

    def add_missing(self) -> str | None:
        """Dispatch every wanted table that is nowhere."""
        missing = self._draft.missing()
        if not missing:
            return None
        loads = {
            c: sum(map(self._balance.weight, self._draft.of(c)))
            if self._balance.policy == TRAFFIC
            else self._draft.count_on(c)
            for c in sorted(self._tick.captures - self._state.draining or self._tick.captures)  # rather there than lost
        }
        if not loads:
            return "no capture may take tables"
        places = Places(loads, self._now.prefer)
        before = dict(loads)
        for key in in_order(missing, self._now.prefer):
            move = self._moves.get(key)
            to = move.to if move and move.to in loads else places.least()
            refused = self._dispatch(key, to, is_delete=False)
            if refused:
                return refused
            if move:
                self._moves = self._moves.delete(key)
            if len(missing) <= EXPLAINED:
                self._explain(key, to, places, "a user chose it" if move else None)
            places.take(to, self._balance.weight(key))
            self._draft.put(key, Record(to, ADDING, self._tick.checkpoint_ts))
        if len(missing) > EXPLAINED:
            given = ", ".join(f"{c} {places.loads[c] - before[c]}" for c in sorted(loads))
            self._outputs.append(Decided("tables", f"{len(missing)} dispatched", f"to the least loaded: {given}"))
        return None

    def remove_unwanted(self) -> str | None:
        """Stop every table that is no longer wanted and not in flight; forget the moves of those that have left."""
        dropped = (k for k, m in self._moves.items() if m.removed and k not in self._draft.wanted)
        for key in in_order((k for k in dropped if self._draft.get(k) is None), ()):
            self._moves = self._moves.delete(key)
            self._outputs.append(Decided(f"move:{key}", None, "it is no longer wanted"))
        for key in in_order(self._draft.unwanted(), self._now.prefer):
            record = self._draft.get(key)
            if record is None or record.status != RUNNING:
                continue
            refused = self._remove(key, record)
            if refused:
                return refused
            self._outputs.append(Decided(f"table:{key}", None, "it is no longer wanted"))
        return None

    def move(self) -> str | None:
        """Begin the moves that users asked for."""
        for key in in_order((k for k, m in self._moves.items() if not m.removed), self._now.prefer):
            move, record = self._moves[key], self._draft.get(key)
            if record is None or move.to not in self._tick.captures or record.capture == move.to:
                why = "it is not replicated" if record is None else f"{move.to} is gone, or has it"
                self._outputs.append(Decided(f"move:{key}", None, why))
                self._moves = self._moves.delete(key)
                continue
            refused = self._remove(key, record)
            if refused:
                return refused
            self._moves = self._moves.set(key, move._replace(removed=True))
            self._outputs.append(Decided(f"move:{key}", move.to, f"first it is removed from {record.capture}"))
        return None

    def rebalance(self) -> str | None:
        """Take tables from captures that have too many; they are added to others once they have stopped."""
        if not self._needs_rebalance:
            return None
        tables = {c: in_order(self._draft.of(c), self._now.prefer) for c in sorted(self._tick.captures)}
        found = plan(tables, self._state.draining, self._balance, self._now.prefer)
        for moving in found.moves:
            record = self._draft.get(moving.key)
            assert record
            refused = self._remove(moving.key, record)
            if refused:
                self.say("rebalance", f"not begun or not ended: {refused}")
                return refused
            if moving.to is not None:
                self._moves = self._moves.set(moving.key, Move(moving.to, removed=True))
            self._outputs.append(Decided(f"move:{moving.key}", moving.to or "the least loaded", moving.because))
        if found.moves:
            self._outputs.append(Decided("rebalance", f"move {len(found.moves)} tables", found.because, found.rejected))
        else:
            self.say("rebalance", f"nothing to move: {found.because}", found.rejected)
        self._needs_rebalance = False
        return None

    def postpone(self, because: str) -> None:
        """Say, once, why moves and rebalance wait."""
        if self._needs_rebalance:
            self.say("rebalance", f"postponed: {because}")
        for key in in_order((k for k, m in self._moves.items() if not m.removed), ()):
            self.say(f"move:{key}", f"postponed: {because}")

    def say(self, subject: str, because: str, rejected: tuple[tuple[str, str], ...] = ()) -> None:
        """Explain why nothing is done, unless that was the last thing said."""
        told = f"{subject} {because}"
        if told != self._said:
            self._outputs.append(Decided(subject, None, because, rejected))
            self._said = told

    def _remove(self, key: Key, record: Record) -> str | None:
        refused = self._dispatch(key, record.capture, is_delete=True)
        if refused is None:
            self._draft.put(key, record._replace(status=REMOVING))
        return refused

    def _dispatch(self, key: Key, to: str, *, is_delete: bool) -> str | None:
        if to in self._now.refused:
            return f"{to} takes no message, table {key} waits"
        status = self._state.captures.get(to)
        start_ts, epoch = self._tick.checkpoint_ts, status.epoch if status else 0
        self._outputs.append(Send(to, DispatchTable(self._state.owner_rev, key, is_delete, start_ts, epoch)))
        return None

    def _explain(self, key: Key, to: str, places: Places, because: str | None) -> None:
        unit = "rows/s" if self._balance.policy == TRAFFIC else "tables"
        others = tuple((c, f"has {n} {unit}") for c, n in sorted(places.loads.items()) if c != to)
        self._outputs.append(
            Decided(f"table:{key}", to, because or f"the least loaded: {places.loads[to]} {unit}", others)
        )
