"""The special cases of TiCDC's design ("几种特殊情况的处理"), as logs of a small cluster.

Each answers one question about what a consumer makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.consumer import producer
from ticdc_lab.consumer.downstream import downstream_at, small_frame
from ticdc_lab.consumer.listeners import Listeners
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import DESIGN_ROW, DESIGN_ROW_SHARED, DESIGN_TRANSACTION, Policy
from ticdc_lab.consumer.producer import Change, Cluster, acknowledge, broadcast, hand_over, restart, write

NO_FILTER = replace(DESIGN_ROW, name="design, row mode, no filter", duplicates="none")
"""The design's consumer without the record of what each table has executed."""


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """One special case.

    Attributes
    ----------
    name, question
        What it is called, and what one wants to know.
    cluster
        The upstream and its topic, as the case ends.
    log
        What the consumer reads of it: a table for :meth:`ticdc_lab.consumer.log.NarrowLog.of`.
    expected_ts
        The downstream ends as the upstream was at this commit_ts.
    answer
        One sentence.
    listeners
        What the consumer's listeners do meanwhile.
    shown
        The policy under which a picture shows it best.
    """

    name: str
    question: str
    cluster: Cluster
    log: pa.Table
    expected_ts: int
    answer: str
    listeners: Listeners = Listeners(per_second=1000)  # noqa: RUF009 (frozen)
    shown: Policy = DESIGN_ROW

    def expected(self) -> dict[tuple[str, int], str]:
        """The rows that the downstream must end with: table and id to value."""
        return producer.upstream_at(self.cluster, self.expected_ts)


def owner_switch() -> Case:
    """The owner changes; its successor begins at the persisted checkpoint, so no watermark falls."""
    c = broadcast(_written(_two_tables(), to_ts=3))
    c = broadcast(c)  # the new owner has read 3 and says it again
    return _case(
        "owner switch",
        "Does the Global CheckpointTS go back when the owner changes?",
        broadcast(_written(c, to_ts=6)),
        "It does not: the new owner begins with the persisted checkpoint, and a consumer sees nothing but a watermark "
        "that is said twice.",
    )


def owner_switch_forgetting() -> Case:
    """The same with a new owner that has not read what was persisted: a watermark falls."""
    c = producer.broadcast_forgetting(broadcast(_written(_two_tables(), to_ts=3)), ts=1)
    return _case(
        "owner switch, checkpoint forgotten",
        "And if it did go back?",
        broadcast(_written(c, to_ts=6)),
        "A watermark that falls is seen and ignored: nothing that was applied is taken back, and the next higher one "
        "goes on from there.",
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
        "Rows keep their partitions, because the key alone decides: only repeated rows tell that something happened."
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
    c = write(producer.cluster(history, homes={"orders": "A"}, partitions=2), "A", to_ts=3)
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
    return producer.cluster(changes, homes={"orders": "A", "users": "B"}, partitions=2)


def _one_row() -> Cluster:
    """A row that four transactions write; table orders is at processor A."""
    history = [Change(ts, "orders", 1, f"v{ts}") for ts in (1, 2, 3, 4)]
    return producer.cluster(history, homes={"orders": "A"}, partitions=2)


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
    return Case(name, question, c, producer.events(c), c.history[-1].commit_ts, answer)


# What consumers make of the special cases in TiCDC's design: where they end, and what readers see on the way.

State = Mapping[tuple[str, int], str]
"""Table and id to value."""


def consumed(case: Case, policy: Policy) -> ConsumerRun:
    """The case's log as a consumer of this policy reads it."""
    return run(NarrowLog.of(case.log), policy, case.listeners)


def state_at(case: Case, found: ConsumerRun, at_us: int) -> State:
    """The downstream's rows at a moment of consumer time (µs)."""
    images, deliveries = producer.images(case.cluster), small_frame(found.deliveries)
    tables = sorted({change.table for change in case.cluster.history})
    there = {t: downstream_at(images, deliveries, at_us, f"{producer.SCHEMA}.{t}") for t in tables}
    return {(t, int(r["id"])): str(r["value"]) for t, rows in there.items() for r in rows.to_dict("records")}


def states(case: Case, found: ConsumerRun) -> list[State]:
    """The downstream after each of its transactions, as readers see it one after the other."""
    times = sorted({s["at"] for s in found.steps.to_pylist() if s["action"] == "write"})
    return [state_at(case, found, t) for t in times]


def never_existed(case: Case, found: ConsumerRun) -> list[State]:
    """States of the downstream that the upstream never had."""
    last = case.cluster.history[-1].commit_ts
    existed = [producer.upstream_at(case.cluster, ts) for ts in range(last + 1)]
    return [s for s in states(case, found) if s not in existed]


def case_results(policies: Iterable[Policy]) -> pd.DataFrame:
    """Run every case of TiCDC's design under some policies.

    Returns
    -------
    pd.DataFrame
        A row for each case and policy: ``case``, ``question``, ``policy``, how many row changes were ``applied``,
        ``filtered``, ``dropped`` and ``pending``, ``ends_right`` (bool: the downstream ends as the case says),
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
