"""The in-memory what-if gives the numbers of the Spark measures, for every strategy, and says what it left out."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd
import pytest
from conftest import events_frame
from pyspark.sql import SparkSession

from ticdc_lab.catalog import Catalog, catalog_of
from ticdc_lab.dispatch import dispatch
from ticdc_lab.dispatch.guarantees import balance, guarantees, skew
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.errors import DispatchError

CASES = [
    ("table", {}, 4),
    pytest.param("index-value", {}, 3, marks=pytest.mark.soak),
    ("index-value", {"index": "uk_name"}, 4),
    pytest.param("columns", {"columns": ["name"]}, 16, marks=pytest.mark.soak),
    pytest.param("ts", {}, 7, marks=pytest.mark.soak),
    ("tidb-rowid", {}, 128),
]
COUNTS = ["cases", "violations", "undecided"]


@pytest.fixture(scope="module")
def small(events_of: Any) -> tuple[Any, Catalog, WhatIf]:
    """The golden topic with every delivery twice or more, its catalog and its what-if."""
    events = events_of("messages_open-protocol_small-dup-restart.jsonl.gz")
    catalog = catalog_of(events)
    return events, catalog, WhatIf.from_events(events, catalog, indexes=["uk_name"], columns=[["name"]])


def counted(frame: pd.DataFrame) -> dict[tuple[str, str], tuple[int, ...]]:
    """Counts by guarantee and table."""
    return {(r["guarantee"], r["table"] or "*"): tuple(int(r[c]) for c in COUNTS) for r in frame.to_dict("records")}


@pytest.mark.parametrize(("strategy", "arguments", "partitions"), CASES)
def test_the_numbers_are_those_of_spark(small: Any, strategy: str, arguments: dict[str, Any], partitions: int) -> None:
    """Cases, violations, undecided and balance agree with the Spark measures, per table and in total."""
    events, catalog, what_if = small
    dispatched = events.transform(dispatch, strategy=strategy, partitions=partitions, catalog=catalog, **arguments)
    wanted = dispatched.transform(guarantees, catalog=catalog).drop("counterexample").toPandas()
    wanted["table"] = wanted["table"].where(wanted["table"].notna(), None)
    got = what_if.guarantees(strategy=strategy, partitions=partitions, **arguments)
    assert counted(got) == counted(wanted)
    load = dispatched.transform(balance, partitions=partitions).orderBy("target_partition").toPandas()
    mine = what_if.balance(strategy=strategy, partitions=partitions, **arguments)
    assert list(mine["rows"]) == list(load["rows"])


def test_counterexamples_are_real(small: Any) -> None:
    """Where something is broken the two changes shown go to different partitions, the earlier one first."""
    what_if = small[2]
    frame = what_if.guarantees(strategy="ts", partitions=4)
    broken = frame[frame["violations"] > 0]
    assert len(broken)
    for pair in broken["counterexample"]:
        assert pair[0]["target_partition"] != pair[1]["target_partition"]
        assert pair[0]["commit_ts"] <= pair[1]["commit_ts"]
        assert [p["commit_ts"] % 4 for p in pair] == [p["target_partition"] for p in pair]
    assert frame[frame["violations"] == 0]["counterexample"].isna().all()


def test_a_selection_is_a_smaller_log(small: Any) -> None:
    """Choosing tables or a time range gives what the log of only those changes would."""
    events, catalog, what_if = small
    ts = sorted(what_if.facts.commit_ts)
    low, high = int(ts[len(ts) // 4]), int(ts[len(ts) // 2])
    part = events.where(f"commit_ts BETWEEN {low} AND {high} AND table_name = 'orders'")
    wanted = (
        part.transform(dispatch, strategy="index-value", partitions=4)
        .transform(guarantees, catalog=catalog)
        .drop("counterexample")
        .toPandas()
    )
    got = what_if.guarantees(strategy="index-value", partitions=4, tables=["shop.orders"], ts_range=(low, high))
    wanted["table"] = wanted["table"].where(wanted["table"].notna(), None)
    assert counted(got) == counted(wanted)


def test_skew_curves_agree_with_the_balance(small: Any) -> None:
    """A point of the curve is the max over mean that Spark counts."""
    events, _, what_if = small
    curve = what_if.skew_curve(["ts", "index-value"], [1, 5])
    point = curve[(curve["strategy"] == "index-value") & (curve["partitions"] == 5)]["max_over_mean"].item()
    summed = (
        events.transform(dispatch, strategy="index-value", partitions=5)
        .transform(balance, partitions=5)
        .transform(skew)
    )
    assert point == pytest.approx(summed.first()["max_over_mean"])
    assert set(curve[curve["partitions"] == 1]["max_over_mean"]) == {1.0}


def test_answers_come_without_waiting(small: Any) -> None:
    """After loading, an answer with all guarantees takes well under a second on the sample."""
    what_if = small[2]
    what_if.guarantees(strategy="ts", partitions=8)
    start = time.process_time()
    what_if.guarantees(strategy="index-value", partitions=8)
    what_if.balance(strategy="index-value", partitions=8)
    assert time.process_time() - start < 0.5


def test_a_large_log_is_cut_at_a_whole_transaction(small: Any) -> None:
    """Above max_rows the first transactions are taken, whole, and the note says so."""
    events, _, whole = small
    cut = WhatIf.from_events(events, max_rows=500)
    last = int(cut.facts.commit_ts.max())
    assert cut.note == f"Covers the log up to commit_ts {last}, about the first 21% of its 2,434 row events."
    assert whole.note == ""
    assert len(cut.facts.table) == int((whole.facts.commit_ts <= last).sum())


def test_events_without_commit_ts_are_counted_out(spark: SparkSession) -> None:
    """Canal-json without the extension has no commit_ts: nothing is measured, and the note says why."""
    row = {"kind": "row", "op": "insert", "schema_name": "s", "table_name": "t", "columns": [], "partition": 0}
    what_if = WhatIf.from_events(events_frame(spark, [row | {"offset": n, "seq": 0} for n in range(3)]))
    assert "3 of 3 row events have no commit_ts" in what_if.note
    assert what_if.guarantees(strategy="table", partitions=4).empty
    assert what_if.skew_curve().empty


def test_what_was_not_prepared_is_an_error(small: Any) -> None:
    """Unknown candidates, tables and partition counts are refused with what there is."""
    what_if = small[2]
    assert what_if.candidates == ["table", "ts", "index-value", "tidb-rowid", "index-value:uk_name", "columns:name"]
    with pytest.raises(DispatchError, match="not prepared for 'columns:x'"):
        what_if.balance(strategy="columns", columns=["x"], partitions=4)
    with pytest.raises(DispatchError, match="no change of"):
        what_if.balance(strategy="ts", partitions=4, tables=["no.such"])
    with pytest.raises(DispatchError, match="partitions"):
        what_if.balance(strategy="ts", partitions=0)
    rows, reason = what_if.failed(strategy="columns", columns=["name"])
    assert rows > 0
    assert reason.startswith("[CDC:ErrDispatcherFailed]columns not found")
