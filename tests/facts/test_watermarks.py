from __future__ import annotations

import pytest
from conftest import events_frame, json_lines
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError, StreamingError
from ticdc_lab.events.tso import compose
from ticdc_lab.facts.laggards import spans_of, stated_values
from ticdc_lab.facts.watermarks import (
    partition_progress,
    partition_watermarks,
    table_watermarks,
    topic_watermarks,
    watermark_timeline,
)


def at(partition: int, offset: int, kind: str, second: float, table: str | None = None, topic: str = "t"):
    """One event at a second of event time."""
    row = {"schema_name": "s", "table_name": table or "a", "op": "insert"} if kind == "row" else {}
    where = {"topic": topic, "partition": partition, "offset": offset, "seq": 0}
    return {"kind": kind, "commit_ts": compose(int(second * 1000)), **where, **row}


def log(spark, *events):
    """Events as a frame."""
    return events_frame(spark, list(events))


def rows(frame, *columns):
    """Sorted rows as tuples."""
    return sorted(tuple(r) for r in frame.select(*columns).collect())


def test_timeline_says_what_each_watermark_changed(spark):
    """A watermark advances, repeats, falls back or stalls, measured against the greatest before it."""
    events = log(
        spark,
        at(0, 0, "watermark", 10),
        at(0, 1, "watermark", 12),
        at(0, 2, "watermark", 11),
        at(0, 3, "watermark", 12),
        at(0, 4, "watermark", 99),
    )
    columns = ("offset", "step_s", "regressed", "regression_s", "duplicate", "stalled")
    assert rows(events.transform(watermark_timeline, stall_s=60), *columns) == [
        (0, None, False, None, False, False),
        (1, 2.0, False, None, False, False),
        (2, -1.0, True, 1.0, False, False),
        (3, 0.0, False, None, True, False),
        (4, 87.0, False, None, False, True),
    ]
    highest = events.transform(watermark_timeline).orderBy("offset").select("partition_resolved_ts").collect()
    assert [r[0] for r in highest] == [compose(s * 1000) for s in (10, 12, 12, 12, 99)]


def test_timeline_of_a_golden_topic_does_not_depend_on_order(events_of):
    """The order of the input changes nothing."""
    events = events_of("messages_open-protocol_small-dup-restart.jsonl.gz")
    plain = rows(events.transform(watermark_timeline), "*")
    assert rows(events.orderBy(F.rand(1)).repartition(3).transform(watermark_timeline), "*") == plain
    assert len(plain) == 4 * 35


def test_restart_repeats_watermarks_and_never_falls_back(events_of):
    """The four crashes of dup-restart each repeat the last checkpoint in every partition."""
    found = events_of("messages_open-protocol_small-dup-restart.jsonl.gz").transform(partition_watermarks)
    assert rows(found, "partition", "n_watermarks", "n_duplicates", "n_regressions") == [
        (p, 35, 4, 0) for p in range(4)
    ]


def test_partition_watermarks_count_what_the_file_holds(events_of):
    """Per partition the counts and the last watermark are the ones of the recorded messages."""
    name = "messages_canal-json-tidb_small.jsonl.gz"
    want: dict[int, dict[str, int]] = {}
    for m in json_lines(name):
        w = want.setdefault(m["partition"], {"row": 0, "ddl": 0, "checkpoint": 0, "last": 0})
        w[m["kind"]] += 1
        w["last"] = max(w["last"], m["offset"])
    got = rows(
        events_of(name).transform(partition_watermarks), "partition", "n_rows", "n_ddl", "n_watermarks", "last_offset"
    )
    assert got == sorted((p, w["row"], w["ddl"], w["checkpoint"], w["last"]) for p, w in want.items())


def test_a_partition_without_watermark_stays_visible_and_holds_the_topic(spark):
    """Rows and no watermark: resolved_ts is null there and for the topic, and the partition is named."""
    events = log(spark, at(0, 0, "row", 1), at(0, 1, "watermark", 2), at(1, 0, "row", 1))
    assert rows(events.transform(partition_watermarks), "partition", "resolved_ts", "unresolved_s") == [
        (0, compose(2000), 0.0),
        (1, None, None),
    ]
    topic = events.transform(topic_watermarks).collect()[0]
    assert topic.resolved_ts is None
    assert topic.checkpoint_ts == compose(2000)
    assert (topic.holders, topic.unmarked, topic.partitions) == ([1], [1], [0, 1])


def test_topic_resolved_is_the_least_and_checkpoint_the_greatest(spark):
    """resolved_ts is the minimum over partitions; checkpoint_ts is the greatest watermark stated anywhere."""
    events = log(
        spark,
        at(0, 0, "watermark", 10),
        at(0, 1, "watermark", 20),
        at(1, 0, "watermark", 10),
        at(1, 1, "row", 25),
        at(0, 0, "watermark", 7, topic="u"),
    )
    got = events.transform(topic_watermarks).orderBy("topic").collect()
    assert [(r.topic, r.resolved_ts, r.checkpoint_ts, r.holders) for r in got] == [
        ("t", compose(10_000), compose(20_000), [1]),
        ("u", compose(7000), compose(7000), [0]),
    ]
    assert (got[0].lag_s, got[0].unresolved_s, got[1].lag_s, got[1].unresolved_s) == (10.0, 15.0, 0.0, 0.0)


def test_table_is_resolved_as_far_as_all_its_partitions(spark):
    """A table's resolved_ts is the least of the partitions that hold its rows; rows above it are counted."""
    events = log(
        spark,
        at(0, 0, "row", 1, "a"),
        at(1, 0, "row", 9, "a"),
        at(0, 1, "row", 2, "b"),
        at(2, 0, "row", 3, "c"),
        at(0, 2, "watermark", 10),
        at(1, 1, "watermark", 5),
    )
    columns = ("table_name", "n_rows", "partitions", "resolved_ts", "unresolved_rows", "unresolved_s")
    assert rows(events.transform(table_watermarks), *columns) == [
        ("a", 2, [0, 1], compose(5000), 1, 4.0),
        ("b", 1, [0], compose(10_000), 0, 0.0),
        ("c", 1, [2], None, 1, None),
    ]


def laggards(events, *columns):
    """Spans of partitions that held their topic back."""
    values = events.where("kind IS NOT NULL").transform(stated_values).toArrow()
    return [tuple(span[c] for c in columns) for span in spans_of(values).to_pylist()]


def test_nobody_holds_a_topic_back_whose_partitions_advance_together(events_of):
    """In a clean log every watermark is broadcast, so there is no laggard."""
    assert laggards(events_of("messages_open-protocol_small.jsonl.gz")) == []


def test_laggards_are_named_with_the_steps_they_missed(spark):
    """A partition that has no broadcast value holds the topic back until it states a later one, or to the end."""
    events = log(
        spark,
        *[at(0, i, "watermark", 10 + i) for i in range(5)],
        *[at(1, i, "watermark", 10 + i) for i in (0, 3, 4)],
        *[at(2, i, "watermark", 10 + i) for i in range(4)],
        at(3, 0, "row", 1),
    )
    columns = ("partition", "first_step", "last_step", "steps", "steps_total", "held_ts", "lag_s_max", "at_end")
    assert laggards(events, *columns) == [(3, 1, 5, 5, 5, None, None, True)]
    assert laggards(events.where("partition < 3"), *columns) == [
        (1, 2, 3, 2, 5, compose(10_000), 2.0, False),
        (2, 5, 5, 1, 5, compose(13_000), 1.0, True),
    ]


def test_streams_are_refused_with_the_reason_but_progress_runs(spark):
    """A running maximum along offsets cannot run on a stream; the plain aggregation can."""
    stream = spark.readStream.format("rate").load().selectExpr(
        "'watermark' AS kind", "value AS commit_ts", "'t' AS topic", "0 AS partition", "value AS offset", "0 AS seq",
        "'s' AS schema_name", "'a' AS table_name",
    )  # fmt: skip
    for function in (watermark_timeline, topic_watermarks, table_watermarks):
        with pytest.raises(StreamingError, match=function.__name__):
            stream.transform(function)
    assert stream.transform(partition_progress).isStreaming


def test_missing_columns_are_named(spark):
    """A frame that is no events frame is refused before any job."""
    with pytest.raises(ContractError, match="commit_ts"):
        spark.range(1).transform(watermark_timeline)
