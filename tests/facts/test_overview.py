"""Small frames of a report: what a log contains, its statements, steps and load, against plain Python."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession
from test_kernels import random_log, table

from ticdc_lab.events.schema import EVENTS
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.laggards import values_of
from ticdc_lab.facts.overview import (
    BUCKETS,
    Load,
    Measure,
    Unresolved,
    contents_of,
    counted_load,
    counted_unresolved,
    ddl_of,
    steps_of,
)

LOG = random_log(11, topics=8)
FACTS = LogFacts.of(table(LOG))
ROWS = [e for e in LOG if e["kind"] == "row"]
DATED = [e for e in ROWS if e["commit_ts"] is not None]


def test_contents_count_each_group_the_largest_first() -> None:
    """Every event is counted in one group."""
    by = ("topic", "partition", "schema_name", "table_name", "kind", "op")
    found = contents_of(FACTS).to_pylist()
    assert Counter({tuple(c[b] for b in by): c["n"] for c in found}) == Counter(
        tuple(e.get(b) for b in by) for e in LOG
    )
    assert [c["n"] for c in found] == sorted((c["n"] for c in found), reverse=True)
    assert contents_of(FACTS, most=3).to_pylist() == found[:3]


def test_a_statement_is_listed_once_with_its_partitions() -> None:
    """In order of commit_ts; what several partitions state is one entry."""
    ddl = {"kind": "ddl", "topic": "t", "schema_name": "s", "table_name": "a", "ddl_type": "1", "seq": 0, "offset": 4}
    events = [
        ddl | {"commit_ts": ts, "query": q, "partition": p} for ts, q, p in ((9, "x", 1), (9, "x", 0), (5, "y", 1))
    ]
    found = ddl_of(LogFacts.of(table([*events, events[0] | {"offset": 8}]))).to_pylist()
    assert [(d["commit_ts"], d["query"], d["partitions"]) for d in found] == [(5, "y", [1]), (9, "x", [0, 1])]


@pytest.mark.parametrize("most", [4, 500])
def test_steps_are_the_places_of_values_in_the_topic(most: int) -> None:
    """Each value has its place, or shares it with its neighbours where there are too many."""
    found = steps_of(values_of(FACTS), most=most).to_pylist()
    for topic in {e["topic"] for e in LOG}:
        marks = [e for e in LOG if e["topic"] == topic and e["kind"] == "watermark"]
        values = sorted({e["commit_ts"] for e in marks})
        n = len(values)
        step = {v: -(-(i + 1) * min(n, most) // n) for i, v in enumerate(values)}
        top: dict[int, int] = {}
        for v in values:
            top[step[v]] = v
        own: dict[tuple[int, int], int] = {}
        for e in marks:
            at = (step[e["commit_ts"]], e["partition"])
            own[at] = max(own.get(at, 0), e["commit_ts"])
        got = [s for s in found if s["topic"] == topic]
        assert [((s["step"], s["partition"]), s["resolved_ts"], s["step_ts"]) for s in got] == [
            (at, ts, top[at[0]]) for at, ts in sorted(own.items())
        ]
        assert {s["steps_total"] for s in got} <= {n}


def test_load_counts_rows_over_time() -> None:
    """Of lanes by stretches of equal time; a row without commit_ts has none."""
    load = Load.of(FACTS, table(LOG))
    times = [physical_ms(e["commit_ts"]) for e in DATED]
    low, width = min(times), (max(times) - min(times) + 1) / BUCKETS
    for what, by in (("home", ("topic", "partition")), ("table", ("schema_name", "table_name"))):
        got = load.over_time(what).to_pylist()
        want = Counter((*[e[b] for b in by], int((physical_ms(e["commit_ts"]) - low) / width)) for e in DATED)
        assert {(*[g[b] for b in by], g["bucket"]): g["n"] for g in got} == want
        assert {g["lanes_total"] for g in got} == {len({tuple(e[b] for b in by) for e in ROWS})}
        assert all(g["from_ms"] == low + int(g["bucket"] * width) for g in got)


def test_of_a_table_its_rows_above_resolved_ts_are_counted(spark: SparkSession) -> None:
    """A row without commit_ts is unresolved only where none is resolved; nothing is read where facts report none."""
    unresolved = Unresolved.of(FACTS)
    counted = counted_unresolved(spark.createDataFrame(table(LOG), EVENTS).repartition(3), unresolved)
    assert counted is not None
    tables = unresolved.read(counted.toArrow()).to_pylist()
    assert any(0 < t["unresolved_rows"] < t["n_rows"] for t in tables)
    for t in tables:
        own = [e for e in ROWS if e["table_name"] == t["table_name"]]
        above = own if t["resolved_ts"] is None else [e for e in own if (e["commit_ts"] or 0) > t["resolved_ts"]]
        assert (t["n_rows"], t["unresolved_rows"]) == (len(own), len(above))
    homes = {(e["topic"], e["partition"]) for e in LOG}
    mark = {"kind": "watermark", "seq": 0, "commit_ts": max(e["commit_ts"] for e in LOG if e["commit_ts"] is not None)}
    ends = [mark | {"topic": t, "partition": p, "offset": 1 << 40} for t, p in sorted(homes)]
    closed = Unresolved.of(LogFacts.of(table([*LOG, *ends])))
    assert counted_unresolved(spark.createDataFrame([], EVENTS), closed) is None
    assert {t["unresolved_rows"] for t in closed.read(None).to_pylist()} == {0}


def test_a_log_without_commit_ts_has_its_load_along_offsets() -> None:
    """And no times; of many lanes the heaviest are kept."""
    rows = [{"kind": "row", "topic": "t", "partition": p, "offset": o, "seq": 0, "schema_name": "s", "table_name": "a"}
            for p in range(3) for o in range(10 * (p + 1))]  # fmt: skip
    events = table(rows)
    load = Load.of(LogFacts.of(events), events).over_time("home").to_pylist()
    assert {g["from_ms"] for g in load} == {None} and sum(g["n"] for g in load) == 60
    kept = Load.of(LogFacts.of(events), events, most=2).over_time("home").to_pylist()
    assert ({g["partition"] for g in kept}, {g["lanes_total"] for g in kept}) == ({1, 2}, {3})


def test_spark_answers_as_arrow_does(spark: SparkSession) -> None:
    """The transforms give what the kernels do, however the log lies in tasks."""
    events = spark.createDataFrame(table(LOG), EVENTS).repartition(3).cache()
    measure = Measure.of(FACTS)
    load = Load.read(measure, counted_load(events, measure).toArrow())
    assert load.over_time("table").equals(Load.of(FACTS, table(LOG)).over_time("table"))
