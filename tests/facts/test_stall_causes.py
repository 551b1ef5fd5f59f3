"""Why a recorded log's resolved_ts stalled: each cause planted in a topic of its own, and a golden log."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import events_frame
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError, StreamingError
from ticdc_lab.events.tso import compose
from ticdc_lab.facts.stalls import CAUSES, stall_causes
from ticdc_lab.simulate.pipeline.model import play
from ticdc_lab.simulate.scenario import Scenario, read_scenario

Event = dict[str, Any]


def ts(second: float) -> int:
    """A TSO of a second."""
    return compose(int(second * 1000))


def said(partition: int, kind: str, *seconds: float, start: float | None = None, table: str = "a") -> list[Event]:
    """Events of a partition at these seconds, in this order."""
    row = {"schema_name": "s", "table_name": table, "op": "insert"} if kind == "row" else {}
    query = None if table == "unknown" else "ALTER TABLE a ADD c INT"
    more: Event = {"query": query} if kind == "ddl" else {}
    more |= {"start_ts": ts(start)} if start is not None else {}
    return [{"kind": kind, "commit_ts": ts(s), "partition": partition, "seq": 0, **row, **more} for s in seconds]


def both(kind: str, *seconds: float, **more: Any) -> list[Event]:
    """The same in partitions 0 and 1."""
    return [e for s in seconds for p in (0, 1) for e in said(p, kind, s, **more)]


def stalled(*meanwhile: list[Event], until: float = 40) -> list[Event]:
    """Both partitions are at second 5, and something comes meanwhile."""
    return [*both("watermark", 1, 5), *(e for some in meanwhile for e in some), *both("watermark", until)]


TOPICS = {
    "steady": [e for s in range(1, 9) for e in (*both("watermark", s), *said(0, "row", s + 0.5, start=s))],
    "ddl": stalled(both("ddl", 5)),
    "ddl elsewhere": stalled(both("ddl", 9)),
    "ddl without statement": stalled(both("ddl", 5, 5, table="unknown")),
    "long transaction": stalled(said(0, "row", 30, start=5.2)),
    "begun later": stalled(said(0, "row", 30, start=28)),
    "without start_ts": stalled(said(0, "row", 30)),
    "partition": [*said(0, "watermark", *range(1, 31)), *said(1, "watermark", 1, 2, 30)],
    "end": [*both("watermark", 1, 2), *said(1, "row", 3, 9, 22, table="b"), *said(0, "row", 8)],
    "restart": stalled(both("watermark", 3), said(0, "row", 4, 4.5, 9)),
    "big": stalled(said(0, "row", 18), said(0, "row", *[20] * 6), said(1, "row", *[20] * 5)),
    "owner lives": stalled(both("watermark", 5, 5)),
    "silence": stalled(),
}
"""What each topic contains."""


@pytest.fixture(scope="module")
def log(spark: SparkSession) -> DataFrame:
    """All topics."""
    flat: list[Event] = []
    for topic, events in TOPICS.items():
        n = {0: 0, 1: 0}
        for event in events:
            flat.append({**event, "topic": topic, "offset": n[event["partition"]]})
            n[event["partition"]] += 1
    frame: DataFrame = events_frame(spark, flat)
    return frame


@pytest.fixture(scope="module")
def found(log: DataFrame) -> dict[str, list[Any]]:
    """The stalls of each topic."""
    rows = stall_causes(log, stall_s=10, big_rows=10).collect()
    return {topic: [r for r in rows if r["topic"] == topic] for topic in TOPICS}


def causes(row: Any) -> list[str]:
    """Names of a stall's causes."""
    return [c["cause"] for c in row["causes"]]


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("ddl", ["ddl-barrier"]),  # silent too, except for what the barrier explains
        ("ddl elsewhere", ["silence"]),
        ("ddl without statement", ["ddl-barrier", "silence"]),
        ("long transaction", ["long-transaction", "rows-went-on"]),
        ("begun later", ["rows-went-on"]),
        ("without start_ts", ["rows-went-on"]),
        ("partition", ["partition-silent"]),
        ("end", ["rows-went-on"]),
        ("restart", ["restart", "rows-went-on"]),
        ("big", ["big-transaction", "rows-went-on"]),
        ("owner lives", ["silence"]),
        ("silence", ["silence"]),
    ],
)
def test_a_planted_cause_is_found_and_no_other(found: dict[str, list[Any]], topic: str, expected: list[str]) -> None:
    """One stall a topic; a DDL that lies elsewhere and a transaction that began later explain nothing."""
    [stall] = found[topic]
    assert [c for c in causes(stall) if (topic, c) != ("ddl", "silence")] == expected


def test_a_log_whose_watermarks_go_on_has_no_stall(found: dict[str, list[Any]]) -> None:
    """A step a second, in both partitions."""
    assert found["steady"] == []


def test_where_a_watermark_stood_is_told(found: dict[str, list[Any]]) -> None:
    """Both rungs, the seconds between them, the statement, and the partitions."""
    [ddl], [one], [end] = found["ddl"], found["partition"], found["end"]
    assert (ddl["held_ts"], ddl["next_ts"], ddl["step_s"]) == (ts(5), ts(40), 35.0)
    assert ddl["ddl"] == "ALTER TABLE a ADD c INT" and ddl["partitions"] == [0, 1] and ddl["everywhere"]
    assert (one["partitions"], one["everywhere"], one["steps_of_others"]) == ([1], False, 27)
    assert "received 27 watermarks" in one["causes"][0]["says"]
    assert (end["held_ts"], end["next_ts"], end["step_s"]) == (ts(2), None, 20.0)


def test_stalls_are_the_same_beside_shorter_steps(log: DataFrame, found: dict[str, list[Any]]) -> None:
    """What is a long transaction does not depend on which steps are asked for."""
    every = stall_causes(log, stall_s=10, big_rows=10, shorter=True).collect()
    stalls = sorted(([r for r in every if r["is_stall"]]), key=str)
    assert stalls == sorted((r for rows in found.values() for r in rows), key=str)
    assert "long-transaction" not in {c["cause"] for r in every if not r["is_stall"] for c in r["causes"]}


def test_rows_that_came_meanwhile_are_counted(found: dict[str, list[Any]]) -> None:
    """Above the standing watermark, at or below it, their tables, the lowest, and the biggest transaction."""
    [end], [again], [big] = found["end"], found["restart"], found["big"]
    assert (end["n_above"], end["tables"], end["first"]["table"]) == (4, ["s.a", "s.b"], "s.b")
    assert (
        "4 rows with a commit_ts up to 20.000 s above this watermark came meanwhile, so pullers"
        in end["causes"][0]["says"]
    )
    assert (again["n_regressed"], again["n_replayed"], again["n_above"]) == (1, 2, 1)
    assert again["causes"][0]["says"] == "1 lower watermark and 2 rows at or below it came meanwhile"
    assert f"11 of 12 rows between both watermarks are of one transaction, {ts(20)}" in big["causes"][0]["says"]


def test_a_living_owner_is_told_from_silence(found: dict[str, list[Any]]) -> None:
    """An owner that states its checkpoint again runs; without that it is unknown."""
    [lives], [silent] = found["owner lives"], found["silence"]
    assert "stated 2 times more, so the owner ran" in lives["causes"][0]["says"]
    assert "owner ran" not in silent["causes"][0]["says"] and "the sink" in silent["causes"][0]["cannot_tell"]
    assert silent["stood_s"] is None


def test_the_brokers_time_shows_what_event_time_hides(spark: SparkSession) -> None:
    """A watermark stalled for a minute and then caught up second by second: no step of event time is long."""
    marks = [{**e, "topic": "t", "offset": s - 1} for s in range(1, 9) for e in both("watermark", s)]
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    times = [("t", p, o, begin + dt.timedelta(seconds=o if o < 4 else 60 + o / 10)) for p in (0, 1) for o in range(8)]
    arrivals = spark.createDataFrame(times, "topic string, partition int, offset bigint, timestamp timestamp")
    [stall] = stall_causes(events_frame(spark, marks), stall_s=10, arrivals=arrivals).collect()
    assert (stall["held_ts"], stall["step_s"], stall["stood_s"]) == (ts(4), 1.0, 57.4)
    since = (stall["since"] - dt.datetime.fromtimestamp(begin.timestamp())).total_seconds()
    assert since == 3.0


def test_watermarks_removed_from_a_golden_log_are_found(events_of: Any) -> None:
    """Planted: the middle third of one partition's. Every other stall has causes too, in their order."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    marks = [r[0] for r in events.where("kind = 'watermark' AND partition = 2").select("commit_ts").distinct()
             .orderBy("commit_ts").collect()]  # fmt: skip
    low, high = marks[len(marks) // 3], marks[2 * len(marks) // 3]
    gone = (F.col("kind") == "watermark") & (F.col("partition") == 2) & F.col("commit_ts").between(low + 1, high - 1)
    rows = stall_causes(events.where(~gone), stall_s=0.05).collect()
    [planted] = [r for r in rows if not r["everywhere"] and (r["held_ts"], r["next_ts"]) == (low, high)]
    assert planted["partitions"] == [2] and "partition-silent" in causes(planted)
    assert [r for r in rows if not r["everywhere"]] == [planted]
    order = {name: i for i, name in enumerate(CAUSES)}
    assert len(rows) > 3 and all(causes(r) for r in rows)
    assert all([order[c] for c in causes(r)] == sorted(order[c] for c in causes(r)) for r in rows)
    assert sum(r["n_rows"] for r in rows if r["everywhere"]) <= events.where("kind = 'row'").count()


def test_the_log_of_a_run_tells_of_its_cause_what_it_can(spark: SparkSession) -> None:
    """A simulated changefeed whose cause is known: a lock, a DDL, a slow sink, which alone no log can name.

    Each table has its own sink, as in released TiCDC; where a processor puts out all in order, what waits behind a DDL
    waits again.
    """
    folder = Path(__file__).parents[2] / "data/scenarios/pipeline"
    names = ("long-transaction", "ddl-barrier", "slow-sink")
    logs = [play(_by_table(read_scenario(folder / f"{name}.yaml")), keep=False).run.log for name in names]
    topics = [log.set_column(log.schema.get_field_index("topic"), "topic", pa.array([name] * log.num_rows))
              for name, log in zip(names, logs, strict=True)]  # fmt: skip
    events = spark.createDataFrame(pa.concat_tables(topics))
    arrivals = events.withColumn("timestamp", F.expr("timestamp_micros(arrived_us)")).where("seq = 0")
    rows = stall_causes(events, stall_s=1.5, arrivals=arrivals).collect()
    found = {r["topic"]: (causes(r), r["stood_s"]) for r in rows}
    assert [found[name][0][0] for name in names] == ["long-transaction", "ddl-barrier", "rows-went-on"]
    stood_s = [found[name][1] for name in names]
    assert len(rows) == 3 and 3.9 < stood_s[0] < 4.1 and 2 < stood_s[1] < 2.3
    assert stood_s[2] < 1  # the sink let it creep on, and then jump


def _by_table(scenario: Scenario) -> Scenario:
    """The scenario with rows put out table by table."""
    capture = replace(scenario.settings.capture, order="table")
    return replace(scenario, settings=replace(scenario.settings, capture=capture))


def test_what_cannot_be_answered_is_refused(spark: SparkSession) -> None:
    """Columns that are missing, and streams."""
    events = events_frame(spark, [])
    with pytest.raises(ContractError, match="query"):
        stall_causes(events.drop("query"))
    with pytest.raises(ContractError, match="timestamp"):
        stall_causes(events, arrivals=events)
    stream = spark.readStream.format("rate").load().selectExpr(
        "'row' kind", "value commit_ts", "value start_ts", "'s' schema_name", "'t' table_name", "'' query",
        "'t' topic", "0 partition", "value offset", "0 seq",
    )  # fmt: skip
    with pytest.raises(StreamingError, match="until the next one comes"):
        stall_causes(stream)
