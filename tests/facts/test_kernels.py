"""The kernels behind the transforms: without a session, on random logs, and however batches are cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.events.schema import EVENTS
from ticdc_lab.events.tso import compose, physical_ms
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.limits import missing, offset_gaps
from ticdc_lab.facts.watermarks import (
    Rhythm,
    partition_progress,
    partition_watermarks,
    partitions_of,
    progress_of,
    rhythm_of,
    table_watermarks,
    tables_of,
    timeline,
    timeline_of,
    topic_watermarks,
    topics_of,
    watermark_timeline,
)

Rows = list[dict[str, Any]]
OF = {
    watermark_timeline: lambda f: timeline_of(f),
    partition_progress: lambda f: progress_of(f),
    partition_watermarks: lambda f: partitions_of(f),
    topic_watermarks: lambda f: topics_of(progress_of(f)),
    table_watermarks: lambda f: tables_of(f.places),
    offset_gaps: lambda f: pa.Table.from_batches(missing(_chunks(f))),
}
"""Each transform with the kernel that answers the same of LogFacts."""


def _chunks(facts: LogFacts) -> Iterator[pa.RecordBatch]:
    return iter(
        facts.offsets.drop_columns("n")
        .rename_columns(["topic", "partition", "chunk", "held"])
        .combine_chunks()
        .to_batches()
    )


def random_log(seed: int, *, topics: int = 1) -> Rows:
    """Events of some partitions: watermarks that fall back, repeat and stall, rows, DDL, holes in the offsets."""
    r, found = random.Random(seed), []
    for topic in range(topics):
        for partition in range(r.randint(1, 4)):
            offset, clock = r.choice([0, 60, 10**12]), r.uniform(0, 20)
            for _ in range(r.choice([0, 1, 4, 20])):
                offset, clock = offset + r.choice([1, 1, 1, 2, 70]), clock + r.uniform(0, r.choice([1, 90]))
                second = max(clock - r.choice([0, 0, 0, 30]), 0)
                kind = r.choice(["row", "row", "row", "watermark", "watermark", "ddl"])
                names = {"schema_name": "s", "table_name": r.choice("ab")} if kind != "watermark" else {}
                ts = (
                    None
                    if kind == "row" and r.random() < 0.05
                    else compose(int(r.choice([second, round(second)]) * 1000))
                )
                where = {"topic": f"t{topic}", "partition": partition, "offset": offset, "seq": 0}
                op = "insert" if kind == "row" else None
                found.append({"kind": kind, "commit_ts": ts, "op": op, **where, **names})
    r.shuffle(found)
    return found


def table(events: Rows) -> pa.Table:
    """Events as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.Table.from_pylist(events, to_arrow_schema(EVENTS))


def rows(found: pa.Table, names: list[str] | None = None) -> list[str]:
    """Rows in some order, columns by name."""
    return sorted(map(repr, found.select(sorted(names or found.column_names)).to_pylist()))


@pytest.fixture(scope="module")
def logs(spark: SparkSession) -> tuple[DataFrame, LogFacts]:
    """Sixty random logs, a topic each: as a frame, and what is known of them."""
    events = table(random_log(7, topics=60))
    return spark.createDataFrame(events, EVENTS).repartition(3).cache(), LogFacts.of(events)


@pytest.mark.parametrize("transform", OF, ids=lambda f: f.__name__)
def test_a_kernel_answers_what_the_transform_does(
    logs: tuple[DataFrame, LogFacts], transform: Callable[[DataFrame], DataFrame]
) -> None:
    """The same rows, with a session and without one, on random logs."""
    events, facts = logs
    bare = OF[transform](facts)
    assert bare.num_rows
    assert rows(events.transform(transform).toArrow(), bare.column_names) == rows(bare)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_progress_and_timeline_are_what_plain_python_counts(seed: int) -> None:
    """Against loops over dicts: nothing of numpy or Arrow in them."""
    events = random_log(seed)
    facts = LogFacts.of(table(events))
    highest: dict[int, int] = {}
    timeline_: Rows = []
    for e in sorted(events, key=lambda e: (e["partition"], e["offset"])):
        if e["kind"] == "watermark":
            top = highest.get(e["partition"])
            step = None if top is None else (physical_ms(e["commit_ts"]) - physical_ms(top)) / 1000
            told = {"regressed": top is not None and e["commit_ts"] < top, "duplicate": e["commit_ts"] == top}
            stalled = step is not None and step > 60
            timeline_.append({"offset": e["offset"], "step_s": step, "stalled": stalled, **told})
            highest[e["partition"]] = max(e["commit_ts"], top or 0)
    found = timeline_of(facts)
    names = ["offset", "step_s", "regressed", "duplicate", "stalled"]
    assert rows(found, names) == sorted(repr(dict(sorted(t.items()))) for t in timeline_)
    for p in partitions_of(facts).to_pylist():
        own = [e for e in events if e["partition"] == p["partition"]]
        dated = [e["commit_ts"] for e in own if e["kind"] == "row" and e["commit_ts"] is not None]
        assert p["resolved_ts"] == highest.get(p["partition"])
        assert p["n_rows"] == sum(e["kind"] == "row" for e in own)
        assert (p["first_commit_ts"], p["last_commit_ts"]) == (min(dated, default=None), max(dated, default=None))
        assert (p["first_offset"], p["last_offset"]) == (min(e["offset"] for e in own), max(e["offset"] for e in own))
    assert sum(p["n_regressions"] for p in partitions_of(facts).to_pylist()) == sum(t["regressed"] for t in timeline_)
    onward = [t["step_s"] for t in timeline_ if (t["step_s"] or 0) > 0]
    assert rhythm_of(facts) == Rhythm(median(onward) if onward else 0.0, max([0.0, *onward]))


@pytest.mark.parametrize("size", [1, 2, 7])
def test_where_sorted_batches_are_cut_changes_nothing(size: int) -> None:
    """A partition may lie across any number of batches: watermarks and offsets continue in the next."""
    facts = LogFacts.of(table(random_log(3, topics=12)))
    topics, partitions = facts.names(facts.watermarks.home)
    marks = pa.table({"topic": topics, "partition": partitions, "offset": pa.array(facts.watermarks.offset),
                      "resolved_ts": pa.array(facts.watermarks.ts)})  # fmt: skip
    n = marks.num_rows
    for kernel, sorted_rows in ((timeline, marks), (missing, pa.Table.from_batches(_chunks(facts)))):
        whole = pa.Table.from_batches(kernel(iter(sorted_rows.combine_chunks().to_batches())))
        cut = pa.Table.from_batches(kernel(iter(sorted_rows.combine_chunks().to_batches(max_chunksize=size))))
        assert n > 20 and whole.num_rows and whole.equals(cut)
