"""The swept what-if gives the numbers of the Spark measures, for every strategy, and shows what it left out."""

from __future__ import annotations

import math
import random
from typing import Any

import pandas as pd
import pytest
from conftest import computed, events_frame
from counted_work import lines_run
from pyspark.sql import SparkSession
from whatifs import swept_from

from ticdc_lab.dispatch import alignments, dispatch, rules_from_config, sweep
from ticdc_lab.dispatch.guarantees import balance, guarantees, skew
from ticdc_lab.dispatch.lanes import Dense, Sparse
from ticdc_lab.dispatch.rules import choice_of_rules
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.tso import compose
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

CASES = [
    ("table", {}, 4),
    ("index-value", {}, 3),
    ("index-value", {"index": "uk_name"}, 4),
    ("columns", {"columns": ["name"]}, 16),
    ("ts", {}, 7),
    ("tidb-rowid", {}, 128),
    ("conflict", {}, 4),
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
    how = {"strategy": strategy, "partitions": partitions, **arguments}
    dispatched = computed(events.transform(dispatch, catalog=catalog, **how))
    wanted = dispatched.transform(guarantees, catalog=catalog).drop("counterexample").toPandas()
    wanted["table"] = wanted["table"].where(wanted["table"].notna(), None)
    got = what_if.guarantees(**how)
    assert counted(got) == counted(wanted)
    load = dispatched.transform(balance, partitions=partitions).orderBy("target_partition").toPandas()
    mine = what_if.balance(**how)
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


def test_a_change_has_the_key_of_its_own_table_where_two_topics_have_its_place(spark: SparkSession) -> None:
    """Each topic counts its offsets from 0, and a changefeed can give each table a topic."""
    changes = [
        {"kind": "row", "op": "insert", "schema_name": "s", "table_name": t, "topic": topic, "partition": 0,
         "offset": n + 9 * (t == "c"), "seq": 0, "commit_ts": compose(n),
         "columns": [{"name": topic, "value": "7", "mysql_type": "int", "is_key": True, "flags": None}]}
        for t, topic in ("aa", "bb", "ca", "cb") for n in range(9)
    ]  # fmt: skip
    frame = WhatIf.from_events(events_frame(spark, changes)).guarantees(strategy="ts", partitions=3)
    shown = {(r["table"], p["key"]) for r in frame.to_dict("records") if r["table"] for p in r["counterexample"] or ()}
    assert shown == {("s.a", "a=7"), ("s.b", "b=7"), ("s.c", None)}  # of the same table none is known
    assert frame[frame["violations"] == 0]["counterexample"].isna().all()


def test_a_selection_of_tables_is_a_smaller_log(small: Any) -> None:
    """Choosing a table gives what the log of only its changes would."""
    events, catalog, what_if = small
    part = events.where("table_name = 'orders'")
    wanted = (
        part.transform(dispatch, strategy="index-value", partitions=4)
        .transform(guarantees, catalog=catalog)
        .drop("counterexample")
        .toPandas()
    )
    got = what_if.guarantees(strategy="index-value", partitions=4, tables=["shop.orders"])
    wanted["table"] = wanted["table"].where(wanted["table"].notna(), None)
    assert counted(got) == counted(wanted)


def test_time_buckets_add_up_to_the_whole(small: Any) -> None:
    """Every case and every row of the log lies in exactly one time bucket."""
    what_if = small[2]
    asked = {"strategy": "ts", "partitions": 5}
    lo, width = what_if.lo_ms, what_if.width_ms
    parts = [(math.ceil(lo + width * b), math.ceil(lo + width * (b + 1)) - 1) for b in range(what_if.buckets)]
    spans = [(compose(a), compose(b)) for a, b in parts if a <= b]
    whole = what_if.guarantees(**asked).groupby("guarantee")["violations"].sum()
    each = [what_if.guarantees(**asked, ts_range=span) for span in spans]
    summed = pd.concat(each).groupby("guarantee")["violations"].sum()
    assert dict(summed) == dict(whole)
    assert what_if.load(**asked).sum() == sum(what_if.load(**asked, ts_range=span).sum() for span in spans)


def test_a_strategy_for_each_table(small: Any) -> None:
    """A mapping gives each table its own; those not named go by table; load and violations are the sums."""
    what_if = small[2]
    mixed = {"shop.orders": "index-value", "shop.users": "ts"}
    load = what_if.load(strategy=mixed, partitions=4)
    others = [t for t in what_if.tables if t not in mixed]
    alone = what_if.load(strategy="table", partitions=4, tables=others)
    for table, name in mixed.items():
        alone = alone + what_if.load(strategy=name, partitions=4, tables=[table])
    assert (load == alone).all()
    total = what_if.guarantees(strategy=mixed, partitions=4)
    found = total[total["table"].notna() & (total["violations"] > 0)]
    assert set(found["table"]) == {"shop.orders", "shop.users"}


def test_columns_of_a_table_that_no_ddl_defines(small: Any) -> None:
    """Lists of columns by table need no definition: the rows have the columns, or the reason is reported."""
    events, _, _ = small
    rows = events.where("kind = 'row'")
    what_if = WhatIf.from_events(rows, Catalog(), columns={"shop.orders": [["seq"], ["none"]]}, conflict_at=())
    assert what_if.candidates_of("shop.orders")[-2:] == ["columns:seq", "columns:none"]
    assert "columns:seq" not in what_if.candidates_of("shop.users")
    asked = {"partitions": 8, "tables": ["shop.orders"]}
    wanted = rows.where("table_name = 'orders'").transform(dispatch, strategy="columns", columns=["seq"], partitions=8)
    load = wanted.transform(balance, partitions=8).orderBy("target_partition").toPandas()
    assert list(what_if.balance(strategy="columns:seq", **asked)["rows"]) == list(load["rows"])
    assert what_if.balance(strategy="columns:none", **asked)["rows"].sum() == 0
    assert what_if.lanes["shop.orders"].lost("columns:none")[1] != ""


def test_alignments_are_those_that_conflict_detection_writes(small: Any) -> None:
    """As many as :func:`ticdc_lab.dispatch.alignments` lists; for a DDL consumers wait anyway."""
    events, catalog, what_if = small
    written = events.transform(alignments, partitions=4, catalog=catalog).where("reason != 'ddl'")
    assert what_if.alignments(partitions=4).sum() == written.count() > 0
    with pytest.raises(DispatchError, match="was run with"):
        what_if.alignments(partitions=5)


def test_rows_that_are_not_whole_may_come_in_some_batches_only(spark: SparkSession) -> None:
    """Unique values that are not known keep a row out of conflict detection, no matter what batch it
    and others are in.
    """
    cells = [{"name": "id", "is_key": True}, {"name": "u", "is_key": False}]

    def row(n: int, *, whole: bool) -> dict[str, Any]:
        image = [{**c, "mysql_type": "int", "value": str(n % 40), "flags": None} for c in cells]
        change = {"columns": image} if n % 2 or not whole else {"before": image}
        change = change if whole else {"before": image[:1]}
        op = "insert" if "columns" in change else "delete"
        at = {"partition": 0, "offset": n, "seq": 0, "commit_ts": compose(1_000_000 + n // 3)}
        return {"kind": "row", "schema_name": "s", "table_name": "t", "op": op, **change, **at}

    table = TableDef(
        *("s", "t", (ColumnDef("id", "int"), ColumnDef("u", "int"))),
        (IndexDef(1, "PRIMARY", ("id",), True, True), IndexDef(2, "u", ("u",), True)),
        pk_is_handle=True,
    )
    events = events_frame(spark, [row(n, whole=n != 250) for n in range(600)])
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        what_if = WhatIf.from_events(events, Catalog.from_definitions([table]), conflict_at=(3,))
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    assert what_if.unplaced(strategy="conflict") == 1
    assert what_if.failed(strategy="conflict")[1].startswith("the log carries only part of this row")
    assert what_if.load(strategy="conflict", partitions=3).sum() == what_if.load(strategy="ts", partitions=3).sum() - 1


def test_rules_reach_tables_that_are_counted_together(small: Any) -> None:
    """Where the rules agree on them they are dispatched so, in any case of the names; where not, that is an error."""
    events, catalog, _ = small
    few = WhatIf.from_events(events, catalog, max_tables=2)
    every = choice_of_rules(few, rules_from_config([{"matcher": ["*.*"], "partition": "TS"}]))
    assert set(every.values()) == {"ts"}
    assert (few.load(strategy=every, partitions=5) == few.load(strategy="ts", partitions=5)).all()
    one = few.together[few.tables[0]][0]
    with pytest.raises(DispatchError, match="are counted together"):
        choice_of_rules(few, rules_from_config([{"matcher": [one], "partition": "ts"}]))
    named = rules_from_config([{"matcher": ["Fin_Ops.Ledger"], "partition": "index-value", "index": "U_REF"}])
    assert choice_of_rules(few, named)["Fin_Ops.Ledger"] == "index-value:u_ref"


def test_small_tables_are_counted_together(small: Any) -> None:
    """Beyond max_tables the smaller ones share one entry, and the sums stay the same."""
    events, catalog, whole = small
    few = WhatIf.from_events(events, catalog, max_tables=2)
    assert [t for t in few.tables if t.startswith("(")] == ["(5 smaller tables)"]
    for strategy in ("ts", "index-value"):
        a, b = (counted(w.guarantees(strategy=strategy, partitions=6)) for w in (whole, few))
        assert {k: v for k, v in a.items() if k[1] == "*"} == {k: v for k, v in b.items() if k[1] == "*"}
        assert (few.load(strategy=strategy, partitions=6) == whole.load(strategy=strategy, partitions=6)).all()


def test_dense_and_sparse_loads_agree(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters at 65 to 128 partitions give every load that the changes themselves give, by rows and by bytes."""
    rng = random.Random(5)
    rows = [("s", "t", compose(1_000_000 + i // 3, i % 7), rng.randrange(1 << 32), i) for i in range(500)]
    sparse = swept_from(rows)
    monkeypatch.setattr(sweep, "SPARSE", 100)
    dense = swept_from(rows)
    assert isinstance(dense.lanes["s.t"].loads["ts"], Dense)
    assert isinstance(sparse.lanes["s.t"].loads["ts"], Sparse)
    for n in (1, 2, 3, 31, 64, 65, 97, 128):
        for weight in ("rows", "bytes"):
            for name in ("ts", "index-value"):
                asked = {"strategy": name, "partitions": n, "weight": weight}
                assert (dense.load(**asked) == sparse.load(**asked)).all()
    assert sparse.skew_curve().equals(dense.skew_curve())


def test_many_keys_and_much_evidence_grow(spark: SparkSession) -> None:
    """Tables with more keys and more counterexamples than the maps begin with lose none."""
    n = 9_000
    rows = [("s", "t", compose(1_000_000 + i, i), i % (n // 2) + 1, i) for i in range(n)]
    found = swept_from(rows).guarantees(strategy="ts", partitions=128, tables=["s.t"])
    pairs = found[found["guarantee"] == "row_order"].iloc[0]
    moved = sum(rows[i][2] % 128 != rows[i + n // 2][2] % 128 for i in range(n // 2))
    assert (pairs["cases"], pairs["violations"]) == (n // 2, moved)


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
    """After loading, an answer with all guarantees goes through no row of the log: it sums what was counted."""
    what_if = small[2]

    def ask() -> None:
        what_if.guarantees(strategy="index-value", partitions=8)
        what_if.balance(strategy="index-value", partitions=8)

    assert lines_run(ask) < 20_000


def test_events_without_commit_ts_are_counted_out(spark: SparkSession) -> None:
    """Canal-json without the extension has no commit_ts: nothing is measured, and the note shows why."""
    row = {"kind": "row", "op": "insert", "schema_name": "s", "table_name": "t", "columns": [], "partition": 0}
    what_if = WhatIf.from_events(events_frame(spark, [row | {"offset": n, "seq": 0} for n in range(3)]))
    assert "3 of 3 row events have no commit_ts" in what_if.note
    assert what_if.guarantees(strategy="table", partitions=4).empty
    assert what_if.skew_curve().empty


def test_what_was_not_prepared_is_an_error(small: Any) -> None:
    """Unknown candidates, tables and partition counts are refused with what there is."""
    what_if = small[2]
    assert what_if.candidates == [
        *("table", "ts", "index-value", "tidb-rowid", "index-value:uk_name", "columns:name", "conflict"),
        "index-value:u_ref",
    ]
    assert what_if.candidates_of("shop.audit") == what_if.candidates[:7]
    with pytest.raises(DispatchError, match="not prepared for 'columns:x'"):
        what_if.balance(strategy="columns", columns=["x"], partitions=4)
    with pytest.raises(DispatchError, match="no change of"):
        what_if.balance(strategy="ts", partitions=4, tables=["no.such"])
    with pytest.raises(DispatchError, match="partitions"):
        what_if.balance(strategy="ts", partitions=0)
    with pytest.raises(DispatchError, match="from 1 to 128"):
        what_if.balance(strategy="ts", partitions=129)
    rows, reason = what_if.failed(strategy="columns", columns=["name"])
    assert rows > 0
    assert reason.startswith("[CDC:ErrDispatcherFailed]columns not found")
