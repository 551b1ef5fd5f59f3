"""Small frames of a report: what a log contains, its statements, steps and load, against plain Python."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession
from test_kernels import random_log, table

from ticdc_lab import figures
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.events.tso import compose, physical_ms
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
    """Each that is drawn has its place among all values, and every partition stands where it had got up to it."""
    found = steps_of(values_of(FACTS), most=most).to_pylist()
    for topic in {e["topic"] for e in LOG}:
        marks = [e for e in LOG if e["topic"] == topic and e["kind"] == "watermark"]
        values = sorted({e["commit_ts"] for e in marks})
        got = [s for s in found if s["topic"] == topic]
        steps = sorted({s["step"] for s in got})
        assert {s["steps_total"] for s in got} <= {len(values)}
        assert steps == [*range(1, len(values) + 1)] if len(values) <= most else {1, len(values)} <= {*steps}
        want = {}
        for step in steps:
            for e in marks:
                if e["commit_ts"] <= values[step - 1]:
                    at = (step, e["partition"])
                    want[at] = max(want.get(at, 0), e["commit_ts"])
        assert {(s["step"], s["partition"]): s["resolved_ts"] for s in got} == want
        assert all(s["step_ts"] == values[s["step"] - 1] for s in got)


def test_steps_that_are_chosen_hide_no_laggard_and_no_gap() -> None:
    """Of 6,000 steps some dozens are drawn, among them the only one at which a partition lags, and the longest gap."""

    def of(n: int) -> int:
        return compose(1_700_000_000_000 + 1000 * n + 7000 * (n > 4_321))

    marks = [{"kind": "watermark", "topic": "t", "partition": p, "offset": n, "seq": 0, "commit_ts": of(n)}
             for n in range(6_000) for p in range(3) if (n, p) != (3_333, 1)]  # fmt: skip
    found = steps_of(values_of(LogFacts.of(table(marks))), most=60).to_pandas()
    assert found["step"].nunique() <= 64 and {*found["steps_total"]} == {6_000}
    late = found[found["resolved_ts"] < found["step_ts"]]
    assert [*late[["partition", "step", "resolved_ts"]].itertuples(index=False, name=None)] == [(1, 3_334, of(3_332))]
    partitions = found[["topic", "partition"]].drop_duplicates()
    ladder, lag = figures.watermark_ladder(found, partitions=partitions), figures.lag(found, partitions=partitions)
    assert ladder.finding == "Partition 1 holds the minimum for under 1 % of the steps, at most 1 s behind"
    assert lag.finding.startswith("The largest lag is 1 s, of partition 1, at ")
    all_alike = found[found["partition"] != 1]
    none = figures.lag(all_alike, partitions=partitions[partitions["partition"] != 1])
    assert "all 6,000 watermarks of the topic; the longest gap between two is 8 s" in none.layout.meta["note"]


def test_partitions_behind_alike_take_the_room_of_one() -> None:
    """Ninety far behind at one step hide no other that is behind a little at another."""
    marks = [{"kind": "watermark", "topic": "t", "partition": p, "offset": n, "seq": 0, "commit_ts": compose(1000 * n)}
             for p in range(92) for n in range(1, 700)
             if not (1 <= p <= 90 and 100 <= n < 300) and (n, p) != (501, 91)]  # fmt: skip
    found = steps_of(values_of(LogFacts.of(table(marks))), most=60).to_pandas()
    late = found[(found["partition"] == 91) & (found["resolved_ts"] < found["step_ts"])]
    assert [*late["step"]] == [501]


def test_load_counts_rows_over_time() -> None:
    """Of lanes by stretches of equal time; a row without commit_ts has none."""
    load = Load.of(FACTS, table(LOG))
    times = [physical_ms(e["commit_ts"]) for e in DATED]
    low, width = min(times), (max(times) - min(times) + 1) / BUCKETS
    for what, by in (("home", ("topic", "partition")), ("table", ("schema_name", "table_name"))):
        got = load.over_time(what).to_pylist()
        want = Counter((*[e[b] for b in by], int((physical_ms(e["commit_ts"]) - low) / width)) for e in DATED)
        assert {(*[g[b] for b in by], g["bucket"]): g["n"] for g in got} == want
        among = LOG if what == "home" else ROWS
        assert {g["lanes_total"] for g in got} == {len({tuple(e[b] for b in by) for e in among})}
        assert {g["rows_total"] for g in got} == {len(DATED)}
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
