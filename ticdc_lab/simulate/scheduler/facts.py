"""What is so at a moment of a run: who replicates what, who owns, how far the checkpoint is; kept row by row.

It reads the trace alone, as a user would: ``changed`` rows of ``table:..`` come from the processors' pipelines
(:mod:`.executor`), ``owner`` and ``global-checkpoint`` from the world.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ticdc_lab.machines.clock import us_of
from ticdc_lab.machines.ledger import At, Ledger
from ticdc_lab.machines.machine import KEPT_STATE, Reason, node_of
from ticdc_lab.simulate.scheduler.executor import PREPARED, PREPARING, REPLICATING, STOPPING, WRITING

if TYPE_CHECKING:
    from ticdc_lab.simulate.assertions import Judge
    from ticdc_lab.simulate.kernel import Kernel
    from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor

STATES = (PREPARING, PREPARED, REPLICATING, STOPPING)
"""Of a table's pipeline, in the order in which it goes through them."""

PAUSED = "paused"
"""Of a pipeline while its node is paused: it writes nothing."""

KINDS = frozenset({"changed", "started", "restarted", "crashed", "paused", "resumed", "parted", "healed"})
"""Rows of a trace that the ledger is made of."""

TABLE, OWNER, CAPTURE = "table", "owner", "capture"
"""What the keys of the ledger are about: tables and spans; who owns; which node is down, paused or parted."""

THRASH_US = 60_000_000
"""A table that comes back to a capture which it left less than this ago was moved for nothing."""


def table_of(key: str) -> int:
    """Give the table of a table or of one of its spans (``7[a,b)``)."""
    return int(key.partition("[")[0])


def meets(key: str, other: str) -> bool:
    """Whether two of a table and its spans have keys in common."""
    (start, end), (left, right) = (k.partition("[")[2].removesuffix(")").partition(",")[::2] for k in (key, other))
    return (not right or start < right) and (not end or left < end)


@dataclass(slots=True)
class Writing:
    """One table or span: its pipelines by address, who wrote it last, and when captures let go of it.

    ``status`` is ``up`` while some capture replicates it, ``down`` while it is under way or went down with its capture,
    and empty where it is nowhere: a whole table that was split, a span that was merged.
    """

    states: dict[str, str] = field(default_factory=dict)
    status: str = ""
    home: str = ""
    left_us: dict[str, int] | None = None


@dataclass(slots=True)
class SchedulerFacts:
    """The present of a run. ``captures``: those that are up, by name; ``lives`` are their addresses."""

    # Tables that should be replicated; ``ddls`` are those that etcd has been asked for and has not executed.
    wanted: set[int]
    names: frozenset[str] = frozenset()
    # Which capture had which table, who owned, who was down: all of it, with beginning and end.
    ledger: Ledger[At] = field(default_factory=Ledger)
    changes: int = 0
    order: int = 0
    at_us: int = 0
    lives: set[str] = field(default_factory=set)
    keys: dict[str, Writing] = field(default_factory=dict)
    spans: dict[int, set[str]] = field(default_factory=dict)
    keys_up: Counter[int] = field(default_factory=Counter)
    keys_down: Counter[int] = field(default_factory=Counter)
    up: int = 0  # how many of the wanted tables replicate: each of their spans does
    # ``load``, ``held``: tables and spans that a capture replicates, and that it has in any state.
    load: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    ddls: deque[Any] = field(default_factory=deque)
    asleep: dict[str, dict[str, str]] = field(default_factory=dict)
    waking: dict[str, tuple[int, int]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    n_owners: int = 0
    checkpoint_us: int | None = None
    risen_us: int = 0
    sent: Counter[str] = field(default_factory=Counter)  # messages by their name
    n_sent: int = 0
    other: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    # ``moves``, ``returns``: how often a table went to another capture, and came back to one that it had left within
    # :data:`THRASH_US`.
    moves: int = 0
    returns: int = 0
    auditor: SchedulerMonitor = field(init=False)  # of the run: it counts the time with two writers, and with none

    def begin(self, kernel: Kernel, judge: Judge) -> None:
        """Take the world before anything happens in it."""
        self.auditor = cast("SchedulerMonitor", kernel.auditor)

    @property
    def captures(self) -> list[str]:
        return sorted({node_of(a) for a in self.lives})

    def states(self, table: int) -> list[tuple[str, str]]:
        """Give (address, state) of the pipelines of a table and its spans."""
        keys = [str(table), *sorted(self.spans.get(table, ()))]
        return [one for key in keys if key in self.keys for one in sorted(self.keys[key].states.items())]

    def replicates(self, table: int) -> bool:
        """Whether a table, with all its spans, is replicated."""
        return self.keys_up[table] > 0 and self.keys_down[table] == 0

    @property
    def owner(self) -> str | None:
        return max(self.owners, key=lambda address: (self.owners[address], address), default=None)

    def see(self, row: Any) -> None:
        self.order, self.at_us = self.order + 1, row.time_us
        if self.waking:
            # A node that was down has its tables again once it has looked at its clock and found its session alive.
            now_us = self.at_us
            for address in sorted(a for a, (since, _) in self.waking.items() if row.step > since + 1):
                self.at_us = self.waking.pop(address)[1]
                self.lives.add(address)
                self.changes += 1
                self._all(self.asleep.pop(address, {}), address)
            self.at_us = now_us
        kind = row.kind
        if kind == "sent":
            self.n_sent += 1
            self.sent[row.message if isinstance(row.message, str) else type(row.message).__name__] += 1
        elif kind == "changed":
            self._changed(row)
        elif kind == "violated":
            self.broken[row.subject] += 1
            self.changes += 1
        elif kind in KINDS:
            self._lives(row)
        elif kind == "asked" and hasattr(row.message, "drop"):
            self.ddls.append(row.message)
        else:
            self.other[kind] += 1

    def _changed(self, row: Any) -> None:
        subject: str = row.subject
        self.changes += 1
        if subject.startswith("table:"):
            before, after = row.before, row.after
            if (before in STATES or before is None) and (after in STATES or after is None):
                self._ledger((TABLE, subject[6:]), row.node, after, row)
                self._table(subject[6:], row.node, after)
        elif subject == "owner" and str(row.before if row.after is None else row.after).isdigit():
            # v3's processors name by the same word whom they take for the owner
            self._ledger((OWNER, ""), node_of(row.node), row.after, row)
            if row.after is None:
                self.owners.pop(row.node, None)
            else:
                self.owners[row.node] = int(row.after)
                self.n_owners += 1
        elif subject == "global-checkpoint":
            self.checkpoint_us = us_of(int(row.after))
            self.risen_us = self.at_us
        elif subject == "barrier" and row.after is None and self.ddls:
            # Tables are wanted, or no longer, from when their DDL is executed.
            ddl = self.ddls.popleft()
            for table, wanted in [*((t, True) for t in ddl.add), *((t, False) for t in ddl.drop)]:
                if wanted == (table in self.wanted):
                    continue
                (self.wanted.add if wanted else self.wanted.discard)(table)
                self.up += (1 if wanted else -1) * self.replicates(table)

    def _lives(self, row: Any) -> None:
        """A node comes or goes; while it is down or paused it replicates nothing."""
        address, capture, kind = row.node, node_of(row.node), row.kind
        if kind in ("parted", "healed"):
            self.other[kind] += 1
            self._ledger((CAPTURE, row.peer), capture, "parted" if kind == "parted" else None, row)
            return
        trouble = {"crashed": "down", "paused": "paused"}.get(kind)
        if kind != "resumed" or self.ledger.state((CAPTURE, ""), capture) == "paused":
            self._ledger((CAPTURE, ""), capture, trouble, row)
        if self.names and capture not in self.names:
            return
        self.changes += 1
        if trouble:
            self.lives.discard(address)
            self.waking.pop(address, None)
            had = {key: w.states[address] for key, w in self.keys.items() if address in w.states}
            self.asleep[address] = self.asleep.get(address, {}) | had
            for key in self.asleep[address]:
                self._ledger((TABLE, key), address, PAUSED if trouble == "paused" else None, row)
            self._all(dict.fromkeys(had), address)
            if trouble == "down":
                self.owners.pop(address, None)
                self._ledger((OWNER, ""), capture, None, row)
        elif kind == "started":
            self.lives.add(address)
        elif kind == "resumed" or (isinstance(row.because, Reason) and row.because.kind == KEPT_STATE):
            self.waking[address] = (row.step, row.time_us)
            for key, state in self.asleep.get(address, {}).items():
                self._ledger((TABLE, key), address, state, row, steps=1)  # in the node's next step it may let go of it
        else:
            self.asleep.pop(address, None)

    def _ledger(self, key: tuple[str, str], holder: str, state: Any, row: Any, steps: int = 0) -> None:
        text = None if state is None else str(state)
        at = At(self.order - 1, row.time_us, row.step + steps)
        self.ledger.set(key, text, at, holder=holder, because=str(row.because) if row.because else None)

    def _all(self, states: dict[str, Any], address: str) -> None:
        for key, state in states.items():
            self._table(key, address, state)

    def _table(self, key: str, address: str, state: str | None) -> None:
        table = table_of(key)
        if address in self.waking:
            self.asleep.get(address, {}).pop(key, None)
        if key not in self.keys:
            self.keys[key] = Writing()
            if "[" in key:
                self.spans.setdefault(table, set()).add(key)
        entry = self.keys[key]
        old, whole = entry.states.get(address), self.replicates(table)
        if state is None:
            entry.states.pop(address, None)
        else:
            entry.states[address] = state
        self._status(table, entry, crashed=address not in self.lives)
        if old is None and table in self.spans:  # what went down with its capture may be there as other spans now
            for other in (str(table), *self.spans[table]):
                if (gone := self.keys.get(other)) and gone.status == "down" and not gone.states and meets(key, other):
                    self._status(table, gone, crashed=False)
        if table in self.wanted:
            self.up += self.replicates(table) - whole
        capture = node_of(address)
        self.held[capture] += (state is not None) - (old is not None)
        self.load[capture] += (state == REPLICATING) - (old == REPLICATING)
        if state in WRITING and old not in WRITING and capture != entry.home:
            self._moved(entry, capture)

    def _status(self, table: int, entry: Writing, *, crashed: bool) -> None:
        counted = {"up": self.keys_up, "down": self.keys_down}
        if entry.status:
            counted[entry.status][table] -= 1
        entry.status = "up" if REPLICATING in entry.states.values() else "down" if entry.states or crashed else ""
        if entry.status:
            counted[entry.status][table] += 1

    def _moved(self, entry: Writing, capture: str) -> None:
        """A capture writes a table that another one wrote before, or none."""
        left = entry.left_us or {}
        self.moves += bool(entry.home)
        self.returns += capture in left and self.at_us - left[capture] < THRASH_US
        if entry.home:
            entry.left_us = {**left, entry.home: self.at_us}
        entry.home = capture
