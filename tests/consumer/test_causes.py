"""Replays, reordering and loss are distinguished: on topics whose faults are on record, and on planted ones."""

from __future__ import annotations

from collections import defaultdict

import copies
import pytest
from conftest import computed, golden, json_lines
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab.consumer.episodes import DDL, LOST, REORDERED, RESTART, TABLE, delivery_causes, delivery_episodes
from ticdc_lab.errors import ContractError
from ticdc_lab.faults import plan_fault, read_log
from ticdc_lab.sources.load import load

SMALL = "messages_open-protocol_small.jsonl.gz"
CAUSE = {"restart": RESTART, "table": TABLE, "ddl": DDL}
TOPICS = [
    ("open-protocol", "restart"),
    ("canal-json-tidb", "table"),
    ("canal-json-tidb", "ddl"),
    ("simple", "restart"),
    ("simple", "table"),
    ("simple", "ddl"),
    ("open-protocol", "table"),
    ("open-protocol", "ddl"),
    ("canal-json-tidb", "restart"),
]


def resent(fault: str) -> list[tuple[set[str], int, set[int]]]:
    """What each fault sent again: tables of its rows, how many rows, commit_ts of its DDL."""
    found: list[tuple[set[str], int, set[int]]] = []
    inside = False
    for e in json_lines(f"faults_dup-{fault}_small.jsonl.gz"):
        again = e.get("note") == "resend"
        if again:
            if not inside:
                found.append((set(), 0, set()))
            tables, rows, ddl = found.pop()
            if e["op"] == "dml":
                tables, rows = tables | {f"{e['schema']}.{e['table']}"}, rows + e["rows"]
            else:
                ddl = ddl | {e["commit_ts"]}
            found.append((tables, rows, ddl))
        inside = again
    return found


@pytest.mark.parametrize(("protocol", "fault"), TOPICS)
def test_each_recorded_fault_is_an_episode_of_its_kind(spark: SparkSession, protocol: str, fault: str) -> None:
    """All that was sent again, and nothing else, is in an episode; the partitions together name the fault's tables."""
    events = computed(load(spark, str(golden(f"messages_{protocol}_small-dup-{fault}.jsonl.gz"))).events)
    episodes = events.transform(delivery_episodes).collect()
    causes = events.transform(delivery_causes).collect()
    assert {e.cause for e in episodes} == {c.cause for c in causes} == {CAUSE[fault]}
    partitions = 1 if "canal" in protocol else 4
    wanted = resent(fault)
    rows = [c for c in causes if c.key_hash is not None]
    assert len(rows) == sum(n for _, n, _ in wanted)
    assert len(causes) - len(rows) == sum(len(ddl) for *_, ddl in wanted) * partitions
    assert sum(e.n_changes for e in episodes) == len(causes)
    if fault != "ddl":  # several DDL lie above one watermark
        checkpoint = {(e.partition, e.from_offset): e.checkpoint for e in episodes}
        tables = defaultdict(set)
        for c in rows:
            tables[checkpoint[c.partition, c.from_offset]].add(c.table)
        assert [tables[ts] for ts in sorted(tables)] == [named for named, _, _ in wanted]


def misjudged(spark: SparkSession, seeds: range) -> list[str]:
    """Planted faults whose cause is not reported, or not at their place."""
    wanted = {"row_dropped": LOST, "changes_swapped": REORDERED, "row_late": REORDERED, "offsets_lost": LOST,
              "stale_replay": TABLE, "delete_dropped": LOST, "transaction_torn": LOST}  # fmt: skip
    events = computed(load(spark, str(golden(SMALL))).events)
    log = read_log(events, rows=2_000)
    faults = [plan_fault(log, kind, seed) for kind in wanted for seed in seeds]
    whole = copies.copies(events, faults)
    said = whole.transform(delivery_causes).select(
        copies.copy_col().alias("copy"), "cause", "partition", "offset", F.size("evidence").alias("n")
    )
    found = defaultdict(list)
    for r in said.collect():
        found[r.copy].append(r)
    wrong = [f"without fault: {found[0]}"] if found[0] else []
    for i, f in enumerate(faults, 1):
        there = {(r.cause, r.partition, r.offset) for r in found[i] if r.n}
        if not any((wanted[f.kind], *place) in there for e in f.expected for place in e.places):
            wrong.append(f"{f.kind} {f.seed}: {f.what}; {f.expected}; {there}")
        if f.kind in ("changes_swapped", "row_late") and any(c == LOST for c, *_ in there):
            wrong.append(f"{f.kind} {f.seed} looks like a loss")
        if f.kind in ("row_dropped", "delete_dropped") and {c for c, *_ in there} != {LOST}:
            wrong.append(f"{f.kind} {f.seed} looks like {there}")
    return wrong


def test_planted_loss_and_reordering_are_told_apart(spark: SparkSession) -> None:
    """Each at its place; what is reordered is not lost, what is lost is not reordered; a clean log has neither."""
    assert misjudged(spark, range(2)) == []


@pytest.mark.soak
@pytest.mark.parametrize("first", range(2, 102, 20))
def test_planted_loss_and_reordering_are_told_apart_anywhere(spark: SparkSession, first: int) -> None:
    """The same over hundreds of seeds."""
    assert misjudged(spark, range(first, first + 20)) == []


def test_a_frame_without_the_contract_is_refused(spark: SparkSession) -> None:
    """Both name what is missing."""
    for transform in (delivery_causes, delivery_episodes):
        with pytest.raises(ContractError, match="commit_ts"):
            transform(spark.range(1))
