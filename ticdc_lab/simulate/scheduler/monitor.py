"""The auditor of the table scheduler: who really writes what, and how far what is downstream really is.

It believes no message: it reads the pipelines of every processor. A capture that is paused or down writes nothing.

Invariants: ``No Double Write`` and ``No Lost Table`` (design), ``Checkpoint Is Monotone``, ``Owner Revisions Rise``,
``Tables Come To A DDL`` (before it is executed); under v4's coordinator ``One Maintainer An Epoch`` and ``Nodes Stop
Empty`` (one that is drained has nothing when it gets the order to stop).
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ticdc_lab.machines.clock import us_of
from ticdc_lab.machines.machine import Address, Changed, replace
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.executor import WRITING, Executor, checkpoint_of, limited
from ticdc_lab.simulate.scheduler.roles import Key, Span, in_turn, order

DOUBLE, LOST, MONOTONE, REVISIONS, BARRIER, ONE, EMPTY = INVARIANTS = (
    "No Double Write", "No Lost Table", "Checkpoint Is Monotone", "Owner Revisions Rise", "Tables Come To A DDL",
    "One Maintainer An Epoch", "Nodes Stop Empty",
)  # fmt: skip
Found = tuple[str, str] | None


@dataclass(slots=True)
class WriterMeasures:
    """What a run cost."""

    overlap_us: int = 0  # time in which two captures wrote one table, summed over tables (0 while the protocol holds)
    # Time in which none wrote a wanted table that had been written since it was wanted, summed over tables
    gap_us: int = 0
    # Changes written a second time by the next writer, as the span of upstream time, summed over tables.
    doubled_us: int = 0
    starts: int = 0  # how often a capture began to write a table


@dataclass(slots=True)
class SchedulerMonitor:
    """Watches one run."""

    start_ts: int
    wanted: frozenset[Key]
    stops_at_violation: bool = True  # whether a run ends at a violation; the measures continue otherwise
    # Whether dispatchers stay below a DDL until it is written, so that the checkpoint does (v4's coordinator); else it
    # comes to the DDL first.
    stands_below: bool = False
    writers: dict[Key, list[Address]] = field(default_factory=dict)  # captures that write, by table or span
    # Of tables that were split: the table and all its spans so far. A span takes over what it covers of those before.
    split: dict[int, dict[Key, None]] = field(default_factory=dict)
    # Of wanted tables that have no writer: up to where all is downstream, and since when, None for one never written.
    durable: dict[Key, tuple[int, int | None]] = field(default_factory=dict)
    # Of tables with a writer: up to where those before had come, where the writer began below. All up to there
    # is downstream, so that a checkpoint that was sent while they wrote, and comes late, is right.
    reached: dict[Key, int] = field(default_factory=dict)
    written: dict[Address, dict[Key, None]] = field(default_factory=dict)
    # The highest that were published.
    checkpoint_ts: int = 0
    owner_rev: int = 0
    measures: WriterMeasures = field(default_factory=WriterMeasures)  # without what lasts: :meth:`until`
    n_violations: int = 0
    since_us: dict[Key, int] = field(default_factory=dict)  # of tables that two write: since when
    maintainers: dict[int, Address] = field(default_factory=dict)  # where the maintainer of each epoch was
    sees_changes_alone: ClassVar[bool] = True

    def saw(self, kernel: Kernel, at: Address, before: Any, after: Any, outputs: Sequence[Any]) -> Found:
        if at == ETCD:
            return self._counted(self._etcd(kernel, after, outputs))
        if not outputs:
            return None
        found: Found = None
        for output in outputs:
            if type(output) is Changed:
                subject: str = output.subject
                if subject.startswith("table:"):
                    found = found or self._table(kernel, at, before, after, output)
                elif subject == "owner" and isinstance(output.after, int):
                    found = found or self._elected(at, output.after)
                elif subject == "maintainer" and output.after is not None:
                    found = found or self._placed(at, after)
                elif subject == "liveness" and output.after == "STOPPING":
                    found = found or self._stops(at, after.processor)
        return self._counted(found)

    def until(self, at_us: int) -> WriterMeasures:
        """Give what the run cost up to a moment, what still lasts too."""
        done, gaps = self.measures, [us for _, us in self.durable.values() if us is not None]
        overlap_us = done.overlap_us + sum(at_us - us for us in self.since_us.values())
        return replace(done, overlap_us=overlap_us, gap_us=done.gap_us + sum(at_us - us for us in gaps))

    def went_down(self, kernel: Kernel, at: Address, state: Any) -> Found:
        for key in list(self.written.get(at, ())):
            self._ends(at, key, state.processor.executor, kernel.now_us)
        return None

    def came_up(self, kernel: Kernel, at: Address, state: Any) -> Found:
        if at == ETCD:
            return None
        found: Found = None
        for key, pipeline in sorted(state.processor.executor.pipelines.items(), key=lambda e: order(e[0])):
            if pipeline.state in WRITING and key not in self.written.get(at, ()):
                found = self._begins(at, key, None, kernel.now_us) or found
        return self._counted(found)

    def _counted(self, found: Found) -> Found:
        self.n_violations += found is not None
        return found if self.stops_at_violation else None

    def _table(self, kernel: Kernel, at: Address, before: Any, after: Any, change: Changed) -> Found:
        was, now = change.before in WRITING, change.after in WRITING
        if was == now:
            return None
        executor: Executor = (after if now else before).processor.executor
        if not now:
            executor = limited(executor, after.processor.executor.limit_ts)  # it may have heard of it in this very step
        key = key_of(change.subject, executor)
        if now:
            return self._begins(at, key, executor.pipelines[key].start_ts, kernel.now_us)
        self._ends(at, key, executor, kernel.now_us)
        return None

    def _begins(self, at: Address, key: Key, start_ts: int | None, at_us: int) -> Found:
        sharing = self._sharing(key)
        is_first = self._is_wanted(key) and not any(k in self.writers or k in self.durable for k in sharing)
        others = [writer for k in sharing for writer in self.writers.get(k, ())]
        self.writers.setdefault(key, []).append(at)
        self.written.setdefault(at, {})[key] = None
        self.measures.starts += 1
        ended_ts, since_us = self._taken_over(key, sharing) or (self.start_ts, at_us)
        self.measures.gap_us += 0 if since_us is None else at_us - since_us
        if others:
            self.since_us.setdefault(key, at_us)
            return DOUBLE, f"{others[0]} and {at} both write table {key}"
        if start_ts is None:
            return None
        if start_ts > ended_ts and (since_us != at_us or is_first):
            return LOST, f"table {key} was written up to {ended_ts}, and {at} resumes from {start_ts} only"
        self.measures.doubled_us += max(0, us_of(ended_ts) - us_of(start_ts))
        if start_ts < ended_ts:
            self.reached[key] = ended_ts
        return None

    def _ends(self, at: Address, key: Key, executor: Executor, at_us: int) -> None:
        if key not in self.written.get(at, ()):
            return
        del self.written[at][key]
        self.writers[key].remove(at)
        sharing = self._sharing(key)
        n_others = sum(len(self.writers.get(k, ())) for k in sharing)
        if n_others == 1:
            since_us = [self.since_us.pop(k) for k in sharing if k in self.since_us]
            self.measures.overlap_us += at_us - min(since_us, default=at_us)
        elif not n_others and self._is_wanted(key):
            self.durable[key] = (max(checkpoint_of(executor, key, at_us), self.reached.pop(key, 0)), at_us)

    def _is_wanted(self, key: Key) -> bool:
        return key in self.wanted or (isinstance(key, Span) and key.table in self.wanted)

    def _sharing(self, key: Key) -> list[Key]:
        """Give what covers keys of a table or span: itself, and of a split table its other spans and the whole."""
        table = key
        if isinstance(key, Span):
            table = key.table
            self.split.setdefault(table, {table: None})[key] = None
        if table not in self.split:
            return [key]
        start, end = _range(key)
        ranges = ((other, *_range(other)) for other in self.split[table])
        return [other for other, left, right in ranges if left < end and start < right]

    def _taken_over(self, key: Key, sharing: list[Key]) -> tuple[int, int | None] | None:
        """A table or span begins: up to where it was written, and since when unwritten; what it leaves stays so."""
        start, end = _range(key)
        found = []
        for one in [k for k in sharing if k in self.durable]:
            ended = self.durable.pop(one)
            found.append(ended)
            left, right = _range(one)
            for low, high in ((left, start), (end, right)):
                if max(left, low) < min(right, high):
                    rest = Span(one if isinstance(one, int) else one.table, low, "" if high == _LAST else high)
                    self.durable[rest] = ended
                    self._sharing(rest)
        since_us = min((us for _, us in found if us is not None), default=None)
        return (min(ts for ts, _ in found), since_us) if found else None

    def _elected(self, at: Address, owner_rev: int) -> Found:
        if owner_rev <= self.owner_rev:
            return REVISIONS, f"{at} is owner at revision {owner_rev}, after an owner at {self.owner_rev}"
        self.owner_rev = owner_rev
        return None

    # Under a coordinator

    def _placed(self, at: Address, after: Any) -> Found:
        epoch = getattr(getattr(after.processor, "maintainer", None), "owner_rev", None)
        if epoch is None:
            return None
        other = self.maintainers.setdefault(epoch, at)
        return None if other == at else (ONE, f"{other} and {at} both have the maintainer of epoch {epoch}")

    def _stops(self, at: Address, processor: Any) -> Found:
        tables = in_turn(processor.executor.pipelines)
        if not tables and processor.maintainer is None:
            return None
        what = f"table {tables[0]}" if tables else "the maintainer"
        return EMPTY, f"{at} is ordered to stop, and has {what}"

    # The global checkpoint

    def _etcd(self, kernel: Kernel, after: Any, outputs: Sequence[Any]) -> Found:
        found: Found = None
        ddl_ts, is_published = 0, False
        for output in outputs:
            if type(output) is Changed:
                if output.subject == "global-checkpoint":
                    is_published = True
                elif output.subject == "barrier" and isinstance(ts := output.after, int) and ts <= after.executed_ts:
                    found = BARRIER, f"the DDL of {ts} counts as executed with the one of {after.executed_ts}"
                elif output.subject == "barrier" and output.after is None and isinstance(output.before, int):
                    ddl_ts = output.before
                    found = self._executed(kernel, ddl_ts)
        if after.tables is not self.wanted:
            checkpoint_ts = max(after.checkpoint_ts, ddl_ts)
            for key in after.tables - self.wanted:
                if not self.writers.get(key):  # one that was dropped and comes again may still be written
                    self.durable[key] = (checkpoint_ts, None)
            for key in self.wanted - after.tables:
                for one in self.split.pop(key, (key,)) if isinstance(key, int) else (key,):
                    self.durable.pop(one, None)
                    self.reached.pop(one, None)
            self.wanted = after.tables
        if is_published and self.stands_below and after.executed_ts < (after.barrier_ts or 0) <= after.checkpoint_ts:
            found = found or (LOST, f"the checkpoint is {after.checkpoint_ts}: the DDL of {after.barrier_ts} and its"
                              " tables are not there, and who begins there never meets it")  # fmt: skip
        return found or (self._published(kernel, after.checkpoint_ts) if is_published else None)

    def _executed(self, kernel: Kernel, barrier_ts: int) -> Found:
        """A DDL is executed: every table has come to it.

        Some may be beyond: who hears of a DDL late has no DDL puller here that would hold it (the pipeline has).
        """
        for key, (ended_ts, _) in self.durable.items():
            if ended_ts < barrier_ts - 1:
                return BARRIER, f"the DDL of {barrier_ts} is executed, and table {key} is written up to {ended_ts} only"
        behind = self._behind(kernel, barrier_ts - 1)
        return behind and (BARRIER, f"the DDL of {barrier_ts} is executed: {behind[1]}")

    def _published(self, kernel: Kernel, checkpoint_ts: int) -> Found:
        if checkpoint_ts < self.checkpoint_ts:
            return MONOTONE, f"the global checkpoint fell from {self.checkpoint_ts} to {checkpoint_ts}"
        self.checkpoint_ts = checkpoint_ts
        if checkpoint_ts <= self.start_ts:
            return None
        for key, (ended_ts, _) in self.durable.items():
            if ended_ts < checkpoint_ts:
                return LOST, f"the checkpoint is {checkpoint_ts}, and table {key} is written up to {ended_ts} only"
        if len(self.writers) < len(self.wanted):
            never = [k for k in self.wanted if k not in self.writers and k not in self.durable]
            if never:
                return (
                    LOST,
                    f"the checkpoint is {checkpoint_ts}, and no capture ever wrote table {min(never, key=order)}",
                )
        return self._behind(kernel, checkpoint_ts)

    def _behind(self, kernel: Kernel, checkpoint_ts: int) -> Found:
        for capture, keys in self.written.items():
            if not keys:
                continue
            executor: Executor = kernel.states[capture].processor.executor
            measured = executor.pace.measured
            slow: AbstractSet[Key]
            if measured:
                slow = {*keys}
            elif executor.behind or executor.stalled:
                slow = {*executor.behind, *executor.stalled} & keys.keys()
            else:
                slow = _NONE
            alike: dict[Any, int] = {}
            # a table that a DDL has dropped may be stopping still
            for key in in_turn(k for k in slow if (k if isinstance(k, int) else k.table) in self.wanted):
                like = key if measured or key in executor.stalled else executor.pipelines[key]
                own_ts = alike.get(like) or alike.setdefault(like, checkpoint_of(executor, key, kernel.now_us))
                if max(own_ts, self.reached.get(key, 0)) < checkpoint_ts:
                    return (
                        LOST,
                        f"the checkpoint is {checkpoint_ts}, and {capture} has written table {key} up to {own_ts}",
                    )
            if len(slow) < len(keys) and not measured:
                caught_up = next(k for k in keys if k not in slow)  # all of those are equally far
                own_ts = checkpoint_of(executor, caught_up, kernel.now_us)
                if own_ts < checkpoint_ts and any(
                    self.reached.get(k, 0) < checkpoint_ts for k in keys if k not in slow
                ):
                    return LOST, f"the checkpoint is {checkpoint_ts}, and {capture} is at {own_ts}"
        return None


_NONE = frozenset[Key]()
_LAST = chr(0x10FFFF)
"""After every key of a table."""


def _range(key: Key) -> tuple[str, str]:
    return ("", _LAST) if isinstance(key, int) else (key.start, key.end or _LAST)


def key_of(subject: str, executor: Executor) -> Key:
    """Give the table of a subject ``table:...``."""
    text = subject[6:]
    if text.isdigit():
        return int(text)
    return next(k for k in executor.pipelines if str(k) == text)
