"""The special cases of TiCDC's design ("几种特殊情况的处理"), as logs of a small cluster.

Each answers one question about what a consumer makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal
from zlib import crc32

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.consumer.downstream import downstream_at, small_frame
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import DESIGN_ROW, DESIGN_ROW_SHARED, DESIGN_TRANSACTION, Policy

TOPIC = "t"
SCHEMA = "shop"

EVENTS = pa.schema(
    [
        *[("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("seq", pa.int32())],
        *[("kind", pa.string()), ("commit_ts", pa.int64()), ("op_rank", pa.int32())],
        *[("schema_name", pa.string()), ("table_name", pa.string()), ("key_hash", pa.int64())],
        *[("before_key_hash", pa.int64()), ("change_hash", pa.int64()), ("query", pa.string())],
    ]
)
"""What the consumer model reads; see :class:`ticdc_lab.consumer.log.NarrowLog`."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row of a table of two columns, ``id`` and ``value``, as a transaction left it; None where it deleted it."""

    commit_ts: int
    table: str
    id: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Task:
    """A table at its processor: written to Kafka up to a commit_ts, and acknowledged up to one (the CheckpointTS)."""

    table: str
    processor: str
    written: int = 0
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a partition, whose offset is its place among them."""

    kind: Literal["row", "watermark"]
    commit_ts: int
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the upstream did, who writes which table, what the owner has persisted, and the partitions so far."""

    history: tuple[Change, ...]
    tasks: tuple[Task, ...]
    partitions: tuple[tuple[Message, ...], ...]
    checkpoint: int = 0


def cluster(history: Iterable[Change], *, homes: dict[str, str], partitions: int) -> Cluster:
    """A cluster that has written nothing yet; ``homes``: which processor has which table."""
    changes = tuple(sorted(history, key=lambda c: c.commit_ts))
    return Cluster(changes, tuple(Task(t, p) for t, p in homes.items()), ((),) * partitions)


def home(change: Change, partitions: int) -> int:
    """The partition of a row: TiCDC's index-value dispatcher on the column ``id``."""
    table = crc32(f"{SCHEMA}{change.table}".encode())
    return int((table ^ crc32(f"id{change.id}".encode())) % partitions)


def write(c: Cluster, processor: str, *, to_ts: int) -> Cluster:
    """The processor writes what its tables have up to ``to_ts`` and it has not written."""
    tasks = [t for t in c.tasks if t.processor == processor]
    position = {t.table: t.written for t in tasks}
    due = [h for h in c.history if position.get(h.table, to_ts) < h.commit_ts <= to_ts]
    parts = list(c.partitions)
    for change in due:
        p = home(change, len(parts))
        parts[p] = (*parts[p], Message("row", change.commit_ts, change))
    return _with_tasks(c, {t.table: replace(t, written=max(t.written, to_ts)) for t in tasks}, tuple(parts))


def acknowledge(c: Cluster, processor: str, *, to_ts: int) -> Cluster:
    """Kafka has confirmed what the processor wrote up to ``to_ts``: its CheckpointTS."""
    mine = {
        t.table: replace(t, checkpoint=max(t.checkpoint, min(t.written, to_ts)))
        for t in c.tasks
        if t.processor == processor
    }
    return _with_tasks(c, mine, c.partitions)


def broadcast(c: Cluster) -> Cluster:
    """The owner sends the Global CheckpointTS to all partitions, never one below what it has persisted."""
    least = max(c.checkpoint, min(t.checkpoint for t in c.tasks))
    return replace(c, checkpoint=least, partitions=_to_all(c.partitions, least))


def broadcast_forgetting(c: Cluster, *, ts: int) -> Cluster:
    """What TiCDC does not allow: an owner that read nothing of what was persisted broadcasts from ``ts``."""
    return replace(c, checkpoint=ts, partitions=_to_all(c.partitions, ts))


def hand_over(c: Cluster, table: str, *, to: str) -> Cluster:
    """A table moves, and its new processor resumes exactly where the old one stopped."""
    return _with_tasks(c, {t.table: replace(t, processor=to) for t in c.tasks if t.table == table}, c.partitions)


def restart(c: Cluster, table: str, *, at: str, recorded: int | None = None) -> Cluster:
    """A table is taken up by a processor that knows no more than its CheckpointTS: it begins behind that.

    So does the pipeline: ``(checkpoint_ts, MAX]``, architecture model 4.1; a checkpoint is reported when all up to it
    is written. ``recorded`` is what was recorded of it, where that lags behind what the owner has broadcast.
    """
    known = {t.table: t.checkpoint if recorded is None else recorded for t in c.tasks}
    moved = {
        t.table: replace(t, processor=at, written=known[t.table], checkpoint=known[t.table])
        for t in c.tasks
        if t.table == table
    }
    return _with_tasks(c, moved, c.partitions)


def events(c: Cluster) -> pa.Table:
    """The topic's messages as the consumer model reads them, by partition and offset."""
    return pa.Table.from_pylist(
        [_event(c, p, offset, m) for p, part in enumerate(c.partitions) for offset, m in enumerate(part)], schema=EVENTS
    )


def images(c: Cluster) -> pd.DataFrame:
    """The rows that the messages carry: ``id`` and ``value`` by ``topic, partition, offset, seq``."""
    rows = [
        (TOPIC, p, offset, 0, m.change.id, m.change.value)
        for p, part in enumerate(c.partitions)
        for offset, m in enumerate(part)
        if m.change is not None
    ]
    place = ["topic", "partition", "offset", "seq"]
    return pd.DataFrame(rows, columns=[*place, "id", "value"]).set_index(place)


def upstream_at(c: Cluster, ts: int) -> dict[tuple[str, int], str]:
    """The upstream's rows after all transactions up to ``ts``: table and id to value."""
    state: dict[tuple[str, int], str | None] = {
        (change.table, change.id): change.value for change in c.history if change.commit_ts <= ts
    }
    return {key: value for key, value in state.items() if value is not None}


def _to_all(parts: tuple[tuple[Message, ...], ...], ts: int) -> tuple[tuple[Message, ...], ...]:
    return tuple((*part, Message("watermark", ts)) for part in parts)


def _with_tasks(c: Cluster, new: dict[str, Task], parts: tuple[tuple[Message, ...], ...]) -> Cluster:
    return replace(c, tasks=tuple(new.get(t.table, t) for t in c.tasks), partitions=parts)


def _event(c: Cluster, partition: int, offset: int, m: Message) -> dict[str, object]:
    place = {"topic": TOPIC, "partition": partition, "offset": offset, "seq": 0, "kind": m.kind}
    if m.change is None:
        return place | {"commit_ts": m.commit_ts}
    change = m.change
    mine = [h for h in c.history if (h.table, h.id) == (change.table, change.id)]
    rank = 0 if change.value is None else 2 if mine[0] == change else 1
    return place | {
        "commit_ts": m.commit_ts,
        "op_rank": rank,
        "schema_name": SCHEMA,
        "table_name": change.table,
        "key_hash": crc32(f"{change.table}{change.id}".encode()),
        "change_hash": crc32(repr(change).encode()),
    }


NO_FILTER = replace(DESIGN_ROW, name="design-row, no filter", duplicates="none")
"""The design's consumer without the record of what each table has executed."""


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """One special case."""

    # What it is called, and what one wants to know
    name: str
    question: str
    cluster: Cluster  # the upstream and its topic, as the case ends
    log: pa.Table  # what the consumer reads of it: a table for :meth:`ticdc_lab.consumer.log.NarrowLog.of`
    expected_ts: int  # the downstream ends as the upstream was at this commit_ts
    answer: str  # one sentence
    # What the consumer's listeners do meanwhile
    listeners: Listeners = Listeners(per_second=1000)  # noqa: RUF009 (frozen)
    shown: Policy = DESIGN_ROW  # the policy under which a picture shows it best

    def expected(self) -> dict[tuple[str, int], str]:
        """The rows that the downstream must end with: table and id to value."""
        return upstream_at(self.cluster, self.expected_ts)


def owner_switch() -> Case:
    """The owner changes; its successor begins at the persisted checkpoint, so no watermark falls."""
    c = broadcast(_written(_two_tables(), to_ts=3))
    c = broadcast(c)  # the new owner has read 3 and repeats it
    return _case(
        "owner switch",
        "Does the Global CheckpointTS go back when the owner changes?",
        broadcast(_written(c, to_ts=6)),
        "It does not: the new owner begins with the persisted checkpoint, and a consumer sees nothing but a watermark "
        "that is repeated.",
    )


def owner_switch_forgetting() -> Case:
    """The same with a new owner that has not read what was persisted: a watermark falls."""
    c = broadcast_forgetting(broadcast(_written(_two_tables(), to_ts=3)), ts=1)
    return _case(
        "owner switch, checkpoint forgotten",
        "And if it did go back?",
        broadcast(_written(c, to_ts=6)),
        "A watermark that falls back is ignored: nothing applied is undone, and the next higher watermark continues "
        "from there.",
    )


def table_migration(*, repeats: bool) -> Case:
    """Table orders moves from processor A to B, which begins where A stopped, or behind A's recorded CheckpointTS."""
    c = _two_tables()
    c = broadcast(acknowledge(_written(c, to_ts=3, acknowledged=2), "B", to_ts=3))
    c = restart(c, "orders", at="B", recorded=1) if repeats else hand_over(c, "orders", to="B")
    c = broadcast(acknowledge(write(c, "B", to_ts=6), "B", to_ts=6))
    return _case(
        "table migration, with repeats" if repeats else "table migration",
        "Does a consumer notice that a table moves to another processor?",
        c,
        "Rows keep their partitions, because the key alone decides: only repeated rows show that something happened."
        if repeats
        else "It does not: rows keep their partitions, because the key alone decides.",
    )


def processor_exit() -> Case:
    """Processor A leaves in good order: everything acknowledged, then its tables go to B."""
    c = _written(_two_tables(), to_ts=3)
    c = hand_over(broadcast(c), "orders", to="B")
    return _case(
        "processor exit",
        "Does a consumer notice that a processor leaves in good order?",
        broadcast(acknowledge(write(c, "B", to_ts=6), "B", to_ts=6)),
        "It does not: nothing is written twice and nothing is missing.",
    )


def processor_crash() -> Case:
    """The design's example: A writes TS 1, 2, 3, 4 and dies with CheckpointTS 2; B writes 2, 3, 4 again.

    A processor begins behind what is recorded (``restart``); one that writes 2 again has a record of 1, a transaction
    behind A's CheckpointTS.
    """
    c = broadcast(acknowledge(write(_one_row(), "A", to_ts=4), "A", to_ts=2))
    c = write(restart(c, "orders", at="B", recorded=1), "B", to_ts=4)
    return _case(
        "processor crash",
        "What becomes of rows that are written again after a processor died?",
        broadcast(acknowledge(c, "B", to_ts=4)),
        "Nothing wrong: what is written again lies at or above the resolved ts, so first and second deliveries are "
        "buffered together and executed in order of commit_ts, twice but next to each other.",
    )


def processor_crash_behind() -> Case:
    """The same where 4 was broadcast already: what is written again lies below the resolved ts."""
    c = broadcast(acknowledge(write(_one_row(), "A", to_ts=4), "A", to_ts=4))
    c = write(restart(c, "orders", at="B", recorded=1), "B", to_ts=3)
    c = broadcast(c)  # never below 4; a listener executes what it holds up to there
    c = write(c, "B", to_ts=4)
    return _case(
        "processor crash, checkpoint recorded late",
        "What is the record of each table's greatest executed commit_ts for?",
        broadcast(acknowledge(c, "B", to_ts=4)),
        "Without it the row goes back to its value at 3 after readers have seen 4, until 4 is written again; with it 2 "
        "and 3 are filtered, and only the equal 4 is executed again, which changes nothing.",
    )


def one_record_for_a_table() -> Case:
    """Rows of one table in two partitions, one of them read slower: whose record filters?"""
    history = [Change(1, "orders", 1, "a"), Change(2, "orders", 4, "b"), Change(3, "orders", 1, "c")]
    c = write(cluster(history, homes={"orders": "A"}, partitions=2), "A", to_ts=3)
    case = _case(
        "one record for a table",
        "May the listeners share one record of what a table has executed?",
        broadcast(acknowledge(c, "A", to_ts=3)),
        "Not in row mode: the faster listener has executed 3, and the slower one's first delivery of 2 is taken for a "
        "duplicate and lost. Each listener needs its own record.",
    )
    slow = Listeners(per_second=1000, speeds=MappingProxyType({1: 100}))
    return replace(case, listeners=slow, shown=DESIGN_ROW_SHARED)


def recovery() -> Case:
    """The consumer stops at resolved_ts 4 of 6: everything up to it is there, and nothing above."""
    c = _resolved_in_steps()
    case = _case(
        "recovery to one ts",
        "Can the downstream be brought to a state that existed upstream?",
        c,
        "Yes: where every listener stops at the same watermark, the downstream is the upstream at that ts.",
    )
    return replace(case, log=until(case.log, ts=4), expected_ts=4, shown=DESIGN_TRANSACTION)


def stopped_anywhere() -> Case:
    """The consumer stops while partition 1 is one watermark behind partition 0."""
    c = _resolved_in_steps()
    case = _case(
        "stopped anywhere",
        "And if it just stops?",
        c,
        "In row mode one partition shows ts 6 and the other ts 4, a state that never existed; transactions wait for "
        "the slower partition, so their state is the upstream's at ts 4.",
    )
    behind = until(case.log, ts=4).filter(pc.field("partition") == 1)
    ahead = case.log.filter(pc.field("partition") == 0)
    return replace(case, log=pa.concat_tables([ahead, behind]), expected_ts=4)


CASES: Mapping[str, Callable[[], Case]] = MappingProxyType(
    {
        "owner-switch": owner_switch,
        "owner-switch-forgetting": owner_switch_forgetting,
        "table-migration": lambda: table_migration(repeats=False),
        "table-migration-repeats": lambda: table_migration(repeats=True),
        "processor-exit": processor_exit,
        "processor-crash": processor_crash,
        "processor-crash-behind": processor_crash_behind,
        "one-record": one_record_for_a_table,
        "recovery": recovery,
        "stopped-anywhere": stopped_anywhere,
    }
)
"""All cases by short names."""


def until(log: pa.Table, *, ts: int) -> pa.Table:
    """A log as a consumer has read it that stops, in each partition, behind the first watermark at or above ``ts``.

    Where ``ts`` is a watermark of every partition, rows above it that were read stay buffered and are not applied. A
    partition without such a watermark is read to its end.
    """
    stops = log.filter((pc.field("kind") == "watermark") & (pc.field("commit_ts") >= ts))
    last = stops.group_by(["topic", "partition"]).aggregate([("offset", "min")])
    joined = log.join(last, keys=["topic", "partition"], join_type="left outer")
    kept = joined.filter(pc.field("offset_min").is_null() | (pc.field("offset") <= pc.field("offset_min")))
    order = [(c, "ascending") for c in ("topic", "partition", "offset", "seq")]
    return kept.select(log.column_names).sort_by(order)


def _two_tables() -> Cluster:
    """Orders at processor A, users at B; rows 1 of orders and 4 of users are in partition 0, the others in 1."""
    changes = [
        *(Change(1, "orders", 1, "a"), Change(2, "users", 1, "a"), Change(3, "orders", 4, "a")),
        *(Change(4, "orders", 1, "b"), Change(5, "users", 1, None), Change(6, "orders", 4, "b")),
    ]
    changes += [Change(3, "users", 4, "a"), Change(6, "users", 4, "b")]
    return cluster(changes, homes={"orders": "A", "users": "B"}, partitions=2)


def _one_row() -> Cluster:
    """A row that four transactions write; table orders is at processor A."""
    history = [Change(ts, "orders", 1, f"v{ts}") for ts in (1, 2, 3, 4)]
    return cluster(history, homes={"orders": "A"}, partitions=2)


def _resolved_in_steps() -> Cluster:
    c = _two_tables()
    for ts in (2, 4, 6):
        c = broadcast(_written(c, to_ts=ts))
    return c


def _written(c: Cluster, *, to_ts: int, acknowledged: int | None = None) -> Cluster:
    """Both processors have written up to ``to_ts``, and Kafka has acknowledged it, or less."""
    for processor in ("A", "B"):
        c = acknowledge(write(c, processor, to_ts=to_ts), processor, to_ts=acknowledged or to_ts)
    return c


def _case(name: str, question: str, c: Cluster, answer: str) -> Case:
    return Case(name, question, c, events(c), c.history[-1].commit_ts, answer)


# What consumers make of the special cases in TiCDC's design: where they end, and what readers see on the way.

State = Mapping[tuple[str, int], str]
"""Table and id to value."""


def consumed(case: Case, policy: Policy) -> ConsumerRun:
    """The case's log as a consumer of this policy reads it."""
    return run(NarrowLog.of(case.log), policy, case.listeners)


def state_at(case: Case, found: ConsumerRun, at_us: int) -> State:
    """The downstream's rows at a moment of consumer time (µs)."""
    rows_of, deliveries = images(case.cluster), small_frame(found.deliveries)
    tables = sorted({change.table for change in case.cluster.history})
    there = {t: downstream_at(rows_of, deliveries, at_us, f"{SCHEMA}.{t}") for t in tables}
    return {(t, int(r["id"])): str(r["value"]) for t, rows in there.items() for r in rows.to_dict("records")}


def states(case: Case, found: ConsumerRun) -> list[State]:
    """The downstream after each of its transactions, as readers see it one after the other."""
    times = sorted({s["at"] for s in found.steps.to_pylist() if s["action"] == "write"})
    return [state_at(case, found, t) for t in times]


def never_existed(case: Case, found: ConsumerRun) -> list[State]:
    """States of the downstream that the upstream never had."""
    last = case.cluster.history[-1].commit_ts
    existed = [upstream_at(case.cluster, ts) for ts in range(last + 1)]
    return [s for s in states(case, found) if s not in existed]


def case_results(policies: Iterable[Policy]) -> pd.DataFrame:
    """Run every case of TiCDC's design under some policies.

    Returns
    -------
    pd.DataFrame
        A row for each case and policy: ``case``, ``question``, ``policy``, how many row changes were ``applied``,
        ``filtered``, ``dropped`` and ``pending``, ``ends_right`` (bool: the downstream ends as in the case),
        ``wrong_states`` (states on the way that the upstream never had), ``answer``.
    """
    return pd.DataFrame([_result(make(), policy) for make in CASES.values() for policy in policies])


def _result(case: Case, policy: Policy) -> dict[str, object]:
    found = consumed(case, policy)
    outcomes = found.deliveries["outcome"].to_pylist()
    return {
        "case": case.name, "question": case.question, "policy": policy.name,
        **{o: outcomes.count(o) for o in ("applied", "filtered", "dropped", "pending")},
        "ends_right": state_at(case, found, found.end_us) == case.expected(),
        "wrong_states": len(never_existed(case, found)), "answer": case.answer,
    }  # fmt: skip
