"""Another number of partitions on golden logs and on small ones: the log, the consumer, the cost and the audits."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import computed, events_frame
from listeners import at_random
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.audit import audit
from ticdc_lab.audit.run import CHAIN
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.errors import ContractError, DispatchError, StreamingError
from ticdc_lab.events import tso
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.facts.limits import offset_gaps
from ticdc_lab.repartition import (
    Expansion,
    Timing,
    consumed,
    consumer_findings,
    cost_of,
    examined,
    expand,
    moves,
    rules_recorded,
)

BY_KEY = (Rule(("*.*",), "index-value"),)
QUICK = Timing(stop_delay_ms=(5, 60), report_ms=5, admin_ms=5, restart_ms=40)
T0 = 1_700_000_000_000


def ts(ms: int) -> int:
    """A TSO."""
    return tso.compose(T0 + ms)


def row(
    offset: int, at: int | None, op: str = "insert", *, key: str = "1", table: str = "a", v: str = "1", old: str = "1"
) -> Any:  # fmt: skip
    """A row event of schema s in partition 0."""
    image, before = (
        [
            {"name": n, "mysql_type": "int", "value": value, "is_key": n == "id", "flags": None}
            for n, value in (("id", key), ("v", now))
        ]
        for now in (v, old)
    )
    names = {"kind": "row", "op": op, "commit_ts": at, "schema_name": "s", "table_name": table}
    images = {"columns": image, "before": None if op == "insert" else before}
    return names | images | {"topic": "t", "partition": 0, "offset": offset, "seq": 0, "protocol": "mq-v1"}


def mark(offset: int, at: int) -> dict[str, Any]:
    """A watermark event in partition 0."""
    place = {"topic": "t", "partition": 0, "offset": offset, "seq": 0}
    return {"kind": "watermark", "commit_ts": at, "protocol": "mq-v1"} | place


@pytest.fixture(scope="module")
def recorded(spark: SparkSession) -> DataFrame:
    """A log of one second: 40 rows in two tables change every 5 ms in turn, with a watermark every 20 ms."""
    changes = [
        row(
            2 * i,
            ts(5 * i),
            "insert" if i < 40 else "update",
            key=str(i % 40),
            table="ab"[i % 2],
            v=str(i),
            old=str(i - 40),
        )
        for i in range(200)
    ]
    marks = [mark(2 * i + 1, ts(5 * i)) for i in range(3, 200, 4)]
    return events_frame(spark, [*changes, *marks, mark(400, ts(1000))])


def laid(log: DataFrame, procedure: str = "design", *, after: int = 5, before: int = 2, **more: Any) -> Expansion:
    """The log with another number of partitions, computed once."""
    done = expand(
        log, before=before, after=after, procedure=procedure, rules=more.pop("rules", BY_KEY),
        timing=more.pop("timing", QUICK), **more,
    )  # fmt: skip
    return replace(done, events=computed(done.events))


@pytest.fixture(scope="module")
def by_procedure(recorded: DataFrame) -> dict[str, Expansion]:
    """The log by every procedure, from 2 to 5 partitions."""
    return {p: laid(recorded, p) for p in ("design", "no-feedback", "just-add")}


def faults(log: DataFrame) -> dict[str, int]:
    """Changes that break each of the consumer's guarantees."""
    return {r["guarantee"]: r["count"] for r in consumer_findings(log).groupBy("guarantee").count().collect()}


def upstream(log: DataFrame) -> dict[int, list[tuple[int, int]]]:
    """Each row's changes in commit order, as (commit_ts, hash)."""
    out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for r in log.where("kind = 'row'").select("key_hash", "commit_ts", "change_hash").collect():
        out[r["key_hash"]].append((r["commit_ts"], r["change_hash"]))
    return {k: sorted(v) for k, v in out.items()}


def kept(log: DataFrame) -> list[Any]:
    """The rows that listeners apply."""
    return consumed(log).where("outcome = 'applied'").collect()


def applied(rows: list[Any], seed: int) -> dict[int, list[tuple[int, int]]]:
    """Each row's changes as listeners apply them that run in a random order between barriers."""
    queues: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for r in sorted(rows, key=lambda r: (r["applied_at"], r["commit_ts"], r["op_rank"])):
        queues[r["alignment"], r["partition"]].append(r)
    choose = at_random(seed)
    out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for era in sorted({a for a, _ in queues}):
        while ready := [p for p, left in ((p, q) for (a, p), q in queues.items() if a == era) if left]:
            r = queues[era, choose(ready)].pop(0)
            out[r["key_hash"]].append((r["commit_ts"], r["change_hash"]))
    return out


@pytest.mark.parametrize("after", [5, 1])
def test_with_the_procedure_every_row_is_applied_as_upstream(recorded: DataFrame, after: int) -> None:
    """Growing and shrinking: nothing is lost, doubled or swapped in any run, which fifty random ones confirm."""
    done = laid(recorded, after=after)
    assert faults(done.events) == {}
    want = upstream(recorded)
    rows = kept(done.events)
    assert all(applied(rows, seed) == want for seed in range(50))
    assert done.plan.resolved == done.plan.checkpoint > 0


def test_without_feedback_changes_are_lost_doubled_and_swapped(
    recorded: DataFrame, by_procedure: dict[str, Expansion]
) -> None:
    """Each fault happens, each with deliveries that show it, and some run applies other than upstream's changes."""
    log = by_procedure["no-feedback"].events
    assert set(faults(log)) == {"changes_are_applied", "changes_are_applied_once", "changes_are_applied_in_order"}
    assert all(f["evidence"] for f in consumer_findings(log).collect())
    assert applied(kept(log), 1) != upstream(recorded)


def test_just_adding_partitions_swaps_changes_only(by_procedure: dict[str, Expansion]) -> None:
    """Rows that move can be overtaken; each is still sent once."""
    assert set(faults(by_procedure["just-add"].events)) == {"changes_are_applied_in_order"}


def test_the_log_follows_the_contract(recorded: DataFrame, by_procedure: dict[str, Expansion]) -> None:
    """Columns as they were, offsets dense from 0, Admin events in all partitions, rows beyond the checkpoint twice."""
    done = by_procedure["design"]
    log, plan = done.events, done.plan
    assert log.columns[: len(recorded.columns)] == recorded.columns
    assert set(EVENTS.names) <= set(log.columns)
    assert offset_gaps(log).count() == 0
    first = log.groupBy("partition").agg(F.min("offset").alias("o"), F.countDistinct("offset", "seq") == F.count("*"))
    assert {tuple(r)[1:] for r in first.collect()} == {(0, True)}
    admin = log.where("kind = 'admin'").select("partition", "admin.partition_count", "offset").collect()
    assert sorted((r[0], r[1]) for r in admin) == [(p, 5) for p in range(5)]
    assert {r["offset"] for r in admin if r["partition"] >= 2} == {0}
    twice = [r["commit_ts"] for r in log.where("resent").collect()]
    stops = {t: p.stop for p in plan.processors for t in p.tables}
    rows = recorded.where("kind = 'row'").collect()
    want = [
        r["commit_ts"] for r in rows if plan.checkpoint < r["commit_ts"] <= stops[r["schema_name"], r["table_name"]]
    ]
    assert sorted(twice) == sorted(want) and want
    assert log.where("kind = 'row'").count() == len(rows) + len(want)


@pytest.mark.parametrize("procedure", ["design", "no-feedback"])
def test_what_the_log_calls_dropped_is_what_a_consumer_drops(
    by_procedure: dict[str, Expansion], procedure: str
) -> None:
    """The plan and the consumer, who sees nothing but messages, agree; barriers too."""
    log = by_procedure[procedure].events
    place = ["partition", "offset"]
    told = log.where("kind = 'row'").select(*place, "alignment", "dropped").collect()
    seen = consumed(log).select(*place, "alignment", (F.col("outcome") == "dropped").alias("dropped")).collect()
    assert sorted(map(tuple, told)) == sorted(map(tuple, seen))


def test_audits_are_clean_before_across_and_after(by_procedure: dict[str, Expansion]) -> None:
    """With the procedure the log keeps every guarantee on each side of the Admin events and as a whole."""
    found = examined(by_procedure["design"], protocol="mq-v1")
    assert {part: f.num_rows for part, f in found.items()} == {"before": 0, "after": 0, "whole": 0, "consumer": 0}


def test_audits_find_what_the_shortcuts_do(by_procedure: dict[str, Expansion]) -> None:
    """Rows in two partitions: behind one Admin event without feedback, without any barrier when partitions are
    just added.
    """
    for procedure in ("no-feedback", "just-add"):
        log = by_procedure[procedure].events
        whole = audit(log, protocol="mq-v1", checks=["rows_stay_in_one_partition"], with_keys=False)
        assert whole.where("severity = 'error'").count() > 0


def test_shrinking_without_feedback_leaves_rows_in_partitions_that_do_not_count(recorded: DataFrame) -> None:
    """The audit names them."""
    done = laid(recorded, "no-feedback", before=5, after=2)
    found = audit(done.events, protocol="mq-v1", checks=["rows_follow_the_partition_count"], with_keys=False)
    strays = done.events.where("kind = 'row' AND epoch = 0 AND alignment = 1 AND partition >= 2")
    assert found.count() == strays.count() > 0


def test_the_cost_adds_up(recorded: DataFrame, by_procedure: dict[str, Expansion]) -> None:
    """Counts are the ones of the log; every hash moves or stays as its residues describe."""
    done = by_procedure["design"]
    cost = cost_of(done)
    assert cost.resent_rows == done.events.where("resent").count() == cost.dropped_rows > 0
    assert cost.resent_bytes > 0 and cost.strays == cost.missed_rows == 0
    assert cost.pause_ms == cost.waiting_ms + cost.admin_ms + cost.restart_ms == done.plan.start_ms - done.plan.at_ms
    assert cost.checkpoint_lag_ms == done.plan.start_ms - tso.physical_ms(done.plan.checkpoint)
    assert cost.checkpoint_lag_ms >= done.plan.start_ms - min(p.stop_ms for p in done.plan.processors)
    assert (cost.rows, cost.keys) == (200, 40)
    assert cost.moved_rows == 5 * cost.moved_keys > 0
    assert cost.load_before >= 1 and cost.load_after >= 1
    added = cost_of(by_procedure["just-add"])
    assert added.pause_ms == added.resent_rows == added.dropped_rows == 0
    new = by_procedure["just-add"].events.where("kind = 'row' AND partition >= 2").count()
    assert added.missed_rows == new > 0


def test_one_pass_counts_the_moves_to_any_number_of_partitions(recorded: DataFrame) -> None:
    """What is counted for many numbers at once is what each number's own cost shows; to as many nothing moves."""
    found = moves(recorded, rules=BY_KEY, before=2, counts=[1, 2, 3, 5])
    assert (found[2].moved_rows, found[2].moved_keys) == (0, 0) and found[2].load_before == found[2].load_after
    assert found[1].load_after == 1 and {m.keys for m in found.values()} == {40}
    for n in (3, 5):
        cost = cost_of(laid(recorded, before=2, after=n))
        counted = (cost.rows, cost.moved_rows, cost.keys, cost.moved_keys, cost.load_before, cost.load_after)
        assert counted == dataclasses.astuple(found[n])


def test_numbers_whose_common_multiple_no_topic_has_are_counted_apart_or_refused(recorded: DataFrame) -> None:
    """Places are 32-bit numbers: several counts are then several passes, and two that do not fit are named."""
    found = moves(recorded, rules=BY_KEY, before=2, counts=[3, 40_009, 40_013])
    assert found[3] == moves(recorded, rules=BY_KEY, before=2, counts=[3])[3]
    assert {m.keys for m in found.values()} == {40} and found[40_013].moved_keys > 30
    with pytest.raises(DispatchError, match=r"65,537 and 65,539 partitions .* at most 2,147,483,647"):
        moves(recorded, rules=BY_KEY, before=65_537, counts=[65_539])


@pytest.mark.parametrize("change", ["order", "partitions", "again"])
def test_how_spark_holds_the_log_changes_nothing(
    recorded: DataFrame, by_procedure: dict[str, Expansion], change: str
) -> None:
    """Another order, more Spark partitions, or a second run: the same log, message by message."""
    other = {
        "order": lambda: recorded.orderBy(F.rand(3)),
        "partitions": lambda: recorded.repartition(7, "offset"),
        "again": lambda: recorded,
    }[change]()
    columns = ["partition", "offset", "kind", "commit_ts", "change_hash", "epoch", "alignment", "dropped", "written_ms"]
    want = by_procedure["design"].events.select(*columns)
    got = laid(other).events.select(*columns)
    assert sorted(map(tuple, got.collect()), key=str) == sorted(map(tuple, want.collect()), key=str)


def test_golden_logs_keep_their_own_rules(events_of: Any) -> None:
    """The small log, by the rules it was recorded with: only tables that a rule moves break order, as they did."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    assert {r.partition for r in rules_recorded(events)} == {"table", "index-value", "columns", "ts"}
    done = laid(events, before=None, after=9, rules=None)
    assert done.plan.before == 4
    found = {part: f.to_pylist() for part, f in examined(done, protocol="open-protocol").items()}
    moving = {"shop.parted", "shop.users", "Fin_Ops.Customers"}
    assert {f["table"] for part in found.values() for f in part} <= moving
    assert {f["guarantee"] for f in found["consumer"]} <= {"changes_are_applied_in_order"}


def test_what_was_not_recorded_excuses_the_same_in_the_new_log(events_of: Any) -> None:
    """Its offsets close up, so it reveals nothing of a hole; a chain that only the new log breaks stays an error."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    part = events.where("NOT (partition = 1 AND offset BETWEEN 90 AND 99)")
    recorded = audit(part, protocol="open-protocol", checks=[CHAIN]).toArrow().to_pylist()
    done = laid(part, before=None, after=9, rules=None)

    def told(*recorded: Any) -> list[tuple[str, str]]:
        whole = examined(done, protocol="open-protocol", recorded=lambda: recorded)["whole"].to_pylist()
        return [(f["severity"], f["message"]) for f in whole if f["guarantee"] == CHAIN]

    assert {severity for severity, _ in told()} == {"error"}
    assert set(told(*recorded)) <= {("warning", f["message"]) for f in recorded}
    assert [severity for severity, _ in told(recorded[0])].count("warning") == 1 < len(recorded)
    by_itself = examined(done, protocol="open-protocol")["whole"].to_pylist()
    assert {f["severity"] for f in by_itself if f["guarantee"] == CHAIN} == {"warning"}


@pytest.mark.soak
def test_the_bank_keeps_every_change(events_of: Any) -> None:
    """52,001 rows by their keys, from 8 to 9 partitions, in the middle of the load."""
    events = events_of("messages_open-protocol_bank.jsonl.gz")
    timing = Timing(stop_delay_ms=(50, 500))
    done = laid(events, before=8, after=9, timing=timing)
    assert faults(done.events) == {}
    cost = cost_of(done)
    assert cost.moved_keys / cost.keys == pytest.approx(cost.expected_share, abs=0.05)
    assert faults(laid(events, "no-feedback", before=8, after=9, timing=timing).events)


def test_what_cannot_be_laid_is_refused(spark: SparkSession, recorded: DataFrame, tmp_path: Path) -> None:
    """A stream, a log without commit_ts, a moment outside the log."""
    with pytest.raises(StreamingError):
        expand(spark.readStream.schema(recorded.schema).parquet(str(tmp_path)), after=2)
    with pytest.raises(ContractError, match="no row change with a commit_ts"):
        expand(events_frame(spark, [row(0, None)]), after=2)
    with pytest.raises(ContractError, match="lie from"):
        expand(recorded, after=2, at=5)
