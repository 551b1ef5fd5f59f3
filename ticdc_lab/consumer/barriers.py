"""DDL and Admin events in the consumer model: who waits for whom, what is written before, and when all resume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ticdc_lab.consumer.listener import Listener
from ticdc_lab.consumer.log import Ddl, NarrowLog
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.consumer.record import DISCARDED
from ticdc_lab.events.arrays import Bools
from ticdc_lab.events.ddl import blocked_tables

if TYPE_CHECKING:
    from ticdc_lab.consumer.model import _Consumer


_DATABASE = ("DATABASE", "SCHEMA")


def is_new_database(ddl: Ddl) -> bool:
    """Whether the DDL creates a database, which no row change can precede."""
    words = ddl.query.split(None, 2)[:2]
    return len(words) == 2 and words[0].upper() == "CREATE" and words[1].upper() in _DATABASE


def blocked(ddl: Ddl, tables: Sequence[str]) -> Bools:
    """Decide for each of the log's tables (``schema.table``) whether the DDL is ordered against its row changes.

    References
    ----------
    Golden README section 6.
    """
    if not ddl.table_name:  # simple names no database where it creates one: then no table matches
        return np.array([t.startswith(f"{ddl.schema_name}.") for t in tables], np.bool_)
    names = {f"{schema}.{table}" for schema, table in blocked_tables(ddl.schema_name, ddl.table_name, ddl.query)}
    return np.array([t in names for t in tables], np.bool_)


class Barriers:
    """The DDL that were read, and what became of them.

    ``log``, ``policy``: as the consumer's. ``consumer``: whose listeners stop, and who writes.
    """

    def __init__(self, log: NarrowLog, policy: Policy, consumer: _Consumer) -> None:
        self.log, self.policy, self._consumer = log, policy, consumer
        self._blocked = [blocked(d, log.tables) for d in log.ddls]
        self._done: set[int] = set()
        self._pending: list[tuple[int, int]] = []
        self._topics = self._topics_of_each()
        self._several = len({p.topic for p in log.parts}) > 1
        self.forget_memory()

    def _topics_of_each(self) -> list[set[str]]:
        topics: list[set[str]] = [set() for _ in self.log.ddls]
        for part in self.log.parts:
            for d in set(self.log.ddl[part.first : part.end].tolist()) - {-1}:
                topics[d].add(part.topic)
        return topics

    def forget_memory(self) -> None:
        """A consumer that dies as a whole no longer knows which DDL it read, if its policy keeps that in memory."""
        self._newest: dict[str, int] = {}
        self._seen: set[int] = set()

    def forget(self, hit: list[Listener]) -> None:
        """Listeners that begin again read their waiting DDL again."""
        gone = [p for _, p in self._pending if any(m.part.first <= p < m.part.end for m in hit)]
        self._pending = [(d, p) for d, p in self._pending if p not in gone]
        self._seen -= {int(self.log.ddl[p]) for p in gone}

    def pending_places(self) -> list[int]:
        """Places of the DDL that were read and wait."""
        return [p for _, p in self._pending]

    def read(self, m: Listener, place: int, time: int) -> None:
        """A listener has read a DDL."""
        d = int(self.log.ddl[place])
        why = self._skipped(m, d)
        if why is None:
            return
        ts, text = self.log.ddls[d].commit_ts, self.log.ddls[d].query
        action = "ddl skipped" if why else "ddl seen"
        self._consumer.trace.step(time, action, listener=m.number, place=place, ts=ts, detail=why or text)
        if why:
            return
        self._pending.append((d, place))
        if self.policy.ddl_waits_for == "watermark":
            self._note(d)
            self.watermark(time)
        else:
            if self.policy.waits_for == "partition":
                time = self._consumer.release([m], ts, time)
            m.stands_at, m.since = d, time
            if lacking := self._lacking(d):
                said = f"for {_names(lacking)} to get to: {text}"
                self._consumer.trace.step(time, "wait", listener=m.number, place=place, ts=ts, detail=said)
            self._try_all(time)

    def _skipped(self, m: Listener, d: int) -> str | None:
        """Why a DDL is not to be executed again; empty if it is, None if this partition's copy does not count."""
        ddl, rule = self.log.ddls[d], self.policy.ddl_repeats
        if rule == "once":
            waits = self.policy.ddl_waits_for == "watermark" and d in {x for x, _ in self._pending}
            return "executed before" if d in self._done else "read before" if waits else ""
        if rule == "again":
            if m.part.partition:
                return None
            newest = max((self._newest.get(t, 0) for t in self._names_of(d)), default=0)
            return f"older than a DDL of its table, {newest}" if ddl.commit_ts < newest else ""
        newest = max(self._newest.values(), default=0)
        return (
            f"older than the newest, {newest}" if ddl.commit_ts < newest else "read before" if d in self._seen else ""
        )

    def _names_of(self, d: int) -> list[str]:
        ddl = self.log.ddls[d]
        named = [t for t, is_in in zip(self.log.tables, self._blocked[d], strict=True) if is_in]
        own = f"{ddl.schema_name}.{ddl.table_name}"
        return [*named, own if own != "." else ddl.query]  # simple names no database where it creates one

    def _note(self, d: int) -> None:
        self._seen.add(d)
        for name in self._names_of(d):
            self._newest[name] = max(self._newest.get(name, 0), self.log.ddls[d].commit_ts)

    def watermark(self, time: int) -> None:
        """Some listener's watermark has risen, or a DDL was read: no DDL passes an earlier one that waits."""
        if self.policy.ddl_waits_for == "watermark":
            for d, _ in sorted(self._pending, key=lambda p: (self.log.ddls[p[0]].commit_ts, p[1])):
                at_once = self.policy.ddl_flushes == "blocked" and is_new_database(self.log.ddls[d])
                if not at_once and self.log.ddls[d].commit_ts > self._consumer.least:
                    break
                self._execute(d, time)
        elif not self.log.everywhere or self._several:
            self._try_all(time)

    def _lacking(self, d: int) -> list[Listener]:
        """Listeners that are not there yet."""
        counted = filter(self._consumer.admins.counts, self._consumer.listeners)
        return [m for m in counted if not self._is_there(m, d)]

    def _is_there(self, m: Listener, d: int) -> bool:
        """At the DDL; or, where the partition does not get it, at a watermark or another DDL that implies it."""
        if m.stands_at == d or (self.log.everywhere and m.part.topic in self._topics[d]):
            return m.stands_at == d
        other = self.log.ddls[m.stands_at].commit_ts if m.stands_at >= 0 else 0
        return max(m.resolved, other) >= self.log.ddls[d].commit_ts

    def _try_all(self, time: int) -> None:
        standing = {m.stands_at for m in self._consumer.listeners if m.stands_at >= 0}
        for d in sorted(standing, key=lambda d: (self.log.ddls[d].commit_ts, d)):
            self._try(d, time)

    def _try(self, d: int, time: int) -> None:
        """Execute a DDL at which all wait, and let them resume."""
        if self._lacking(d):
            return
        end = self._execute(d, self._consumer.idle_at(time))
        for m in self._consumer.listeners:
            if m.stands_at == d:
                m.stands_at = -1
                m.begin(end)
                self._consumer.trace.step(end, "resume", listener=m.number, ts=self.log.ddls[d].commit_ts)

    def _execute(self, d: int, time: int) -> int:
        ddl, consumer = self.log.ddls[d], self._consumer
        if self.policy.waits_for == "all" and not (self.policy.ddl_flushes == "blocked" and is_new_database(ddl)):
            tables = self._blocked[d] if self.policy.ddl_flushes == "blocked" else None
            time = consumer.release(consumer.listeners, ddl.commit_ts, time, tables)
        self._done.add(d)
        at = next(i for i, (x, _) in enumerate(self._pending) if x == d)
        if self.policy.ddl_repeats == "again":
            del self._pending[at]
        else:
            self._pending = [(x, p) for x, p in self._pending if x != d]
        return consumer.ddl_written(ddl.commit_ts, ddl.query, time)


class Admins:
    """The number of partitions, and the Admin events that change it (MQ design, "Partition 扩容与缩容").

    A listener that reads an Admin event discards the rows that it holds above its own watermark, since the changefeed
    sends them again, and stops until every listener of the old and the new partitions has read it. Then the new number
    counts. An Admin event that was executed, or that announces the current number, stops no listener.

    ``log``: as the consumer's. ``consumer``: whose listeners stop.
    """

    def __init__(self, log: NarrowLog, consumer: _Consumer) -> None:
        self._log, self._consumer = log, consumer
        # both lie in the target: no crash takes them
        self._number = dict(log.counts)
        self._executed = [-1] * len(log.parts)

    def counts(self, m: Listener) -> bool:
        """Whether the listener's partition is one of those that count now."""
        return m.part.partition < self._number[m.part.topic]

    def read(self, m: Listener, place: int, time: int) -> None:
        """A listener has read an Admin event."""
        consumer, number = self._consumer, int(self._log.partition_count[place])
        gone = m.take(self._log.commit_ts[m.waiting()] > m.resolved)
        consumer.trace.settle(gone, DISCARDED)
        consumer.late.discarded(m)
        consumer.trace.step(
            time, "admin seen", listener=m.number, place=place, ts=m.resolved, rows=len(gone),
            detail=f"{number} partitions",
        )  # fmt: skip
        if place <= self._executed[m.number] or number == self._number[m.part.topic]:
            consumer.trace.step(time, "resume", listener=m.number)
            return
        m.admin_at, m.since = place, time
        concerned = self._concerned(m.part.topic, number)
        lacking = [o for o in concerned if o.admin_at < 0 or self._log.partition_count[o.admin_at] != number]
        if lacking:
            said = f"for {_names(lacking)} to get to: Admin event, {number} partitions"
            consumer.trace.step(time, "wait", listener=m.number, place=place, ts=m.resolved, detail=said)
        else:
            self._execute(m, concerned, number, consumer.idle_at(time))

    def _concerned(self, topic: str, number: int) -> list[Listener]:
        """Listeners of the partitions before and after."""
        most = max(self._number[topic], number)
        return [m for m in self._consumer.listeners if m.part.topic == topic and m.part.partition < most]

    def _execute(self, last: Listener, concerned: list[Listener], number: int, time: int) -> None:
        """Let another number of partitions count: those that are new are resolved as far as the old ones were."""
        trace, before = self._consumer.trace, self._number[last.part.topic]
        resolved = min((m.resolved for m in concerned if self.counts(m)), default=0)
        self._number[last.part.topic] = number
        trace.step(time, "partitions", listener=last.number, ts=resolved, detail=f"{number} instead of {before}")
        for m in concerned:
            if m.resolved < resolved:
                m.resolved = resolved
                trace.step(time, "resolved", listener=m.number, place=m.admin_at, ts=resolved, detail="as the others")
            self._executed[m.number], m.admin_at = m.admin_at, -1
            m.begin(time)
            trace.step(time, "resume", listener=m.number)
        self._consumer.resolve(time)


def _names(listeners: list[Listener]) -> str:
    which = ", ".join(str(m.part.partition) for m in listeners)
    return f"partition{'s' if len(listeners) > 1 else ''} {which}"
