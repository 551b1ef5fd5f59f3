"""What old values and the split of key updates do to the rows that are sent, to dispatch and to the order of rows."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import events_frame
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.dispatch.changefeed import Changefeed
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.dispatch.settings import dispatched, key_update_counts, setting_effects, with_settings, without_old_value
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

COLUMNS = (ColumnDef("id", "int", False), ColumnDef("v", "int"))
ONE = TableDef("s", "one", COLUMNS, (IndexDef(1, "PRIMARY", ("id",), True, True),))
TWO = TableDef("s", "two", COLUMNS, (*ONE.indexes, IndexDef(2, "uk", ("v",), True)))
CATALOG = Catalog.from_definitions([ONE, TWO])
BY_KEY = Changefeed((Rule(("*.*",), "index-value"),), partitions=8)


def row(
    op: str, ts: int, after: tuple[int, int] | None, before: tuple[int, int] | None = None, table: str = "one"
) -> Any:
    """One change; images are (id, v)."""

    def cells(image: tuple[int, int] | None) -> Any:
        return image and [
            {"name": n, "mysql_type": "int", "value": str(x), "is_key": n == "id", "flags": None}
            for n, x in zip(("id", "v"), image, strict=True)
        ]

    return {
        "kind": "row", "schema_name": "s", "table_name": table, "op": op, "commit_ts": ts, "partition": 0,
        "offset": ts, "seq": 0, "topic": "x", "columns": cells(after), "before": cells(before),
    }  # fmt: skip


def violations(events: DataFrame, catalog: Catalog, *asked: tuple[str, str]) -> dict[tuple[str, str], Any]:
    """Rows of the whole log for settings and guarantees."""
    settings = sorted({setting for setting, _ in asked})
    effects = setting_effects(events, changefeed=BY_KEY, catalog=catalog, settings=settings)
    found = {(r.setting, r.guarantee): r for r in effects.where("`table` IS NULL").collect()}
    return {pair: found[pair] for pair in asked}


MOVED = [row("insert", 1, (1, 5)), row("update", 2, (2, 5), (1, 5)), row("delete", 3, None, (2, 5))]


def shape(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Op and ids before and after, in commit order."""
    rows = frame.orderBy("commit_ts", "op").collect()
    return [(r.op, r.before and r.before[0].value, r["columns"] and r["columns"][0].value) for r in rows]


def test_without_old_values_the_order_of_rows_can_still_be_measured(spark: SparkSession) -> None:
    """The key update is two rows: two pairs of one key each, in one partition each."""
    found = violations(events_frame(spark, MOVED), CATALOG, ("no-old-value", "row_order"))
    measured = found["no-old-value", "row_order"]
    assert (measured.cases, measured.violations) == (2, 0)


def test_raw_and_split_are_each_others_inverse(spark: SparkSession) -> None:
    """A key update becomes two halves and one update again; the order of rows breaks only in raw mode, at its pair."""
    events = events_frame(spark, MOVED)
    split = events.transform(with_settings, changefeed=BY_KEY, catalog=CATALOG)
    assert shape(split)[1:3] == [("delete", "1", None), ("insert", None, "2")]
    raw = Changefeed(BY_KEY.rules, partitions=8, raw=True)
    assert shape(split.transform(with_settings, changefeed=raw, catalog=CATALOG)) == shape(events)
    found = violations(events, CATALOG, ("split", "row_order"), ("raw", "row_order"))
    assert (found["split", "row_order"].violations, found["raw", "row_order"].violations) == (0, 1)
    earlier, later = found["raw", "row_order"].counterexample
    assert (earlier.key, later.key) == ("id=1", "id=2")
    assert earlier.target_partition != later.target_partition


def test_halves_can_still_meet_in_another_unique_value(spark: SparkSession) -> None:
    """Split, the delete and the insert of a row share its other unique value but not their partition."""
    events = events_frame(spark, [row("insert", 1, (1, 5), None, "two"), row("update", 2, (2, 5), (1, 5), "two")])
    found = violations(events, CATALOG, ("split", "row_order"), ("split", "row_order_any_unique"))
    assert [found["split", g].violations for g in ("row_order", "row_order_any_unique")] == [0, 1]


def test_without_old_values_updates_look_like_inserts(spark: SparkSession) -> None:
    """Puts have no image before and cannot be distinguished; a key update is two; a delete holds its key alone."""
    events = events_frame(spark, [*MOVED, row("update", 4, (7, 1), (7, 0))])
    rows = events.transform(without_old_value).orderBy("commit_ts", "op").collect()
    assert [(r.op, r.incomplete, r.before and [c.name for c in r.before]) for r in rows] == [
        ("insert", "op-unknown", None),
        ("delete", None, ["id"]),
        ("insert", "op-unknown", None),
        ("delete", None, ["id"]),
        ("insert", "op-unknown", None),
    ]


def test_a_table_without_key_loses_its_deletes(spark: SparkSession) -> None:
    """Deletes come from the entries of the handle's index; without one there are none."""
    keyless = row("delete", 1, None, (1, 5))
    for cell in keyless["before"]:
        cell["is_key"] = False
    assert shape(events_frame(spark, [keyless]).transform(without_old_value)) == []


def test_default_was_by_index_without_old_values(spark: SparkSession) -> None:
    """One unique column: by index value; two: by table, except for a delete, which holds only the handle's."""
    off = Changefeed(partitions=64, dispatch_old_value=False, old_value=False)
    changes = [row(op, ts, after, before, t) for t in ("one", "two")
               for op, ts, after, before in (("insert", 1, (1, 5), None), ("delete", 2, None, (1, 5)))]  # fmt: skip
    events = events_frame(spark, changes)
    keys = {
        (r.table_name, r.op): r.dispatch_key
        for r in events.transform(dispatched, changefeed=off, catalog=CATALOG).collect()
    }
    assert keys["two", "insert"] == "s.two"
    assert keys["one", "insert"] == keys["one", "delete"] != "s.one"
    assert keys["two", "delete"] != "s.two"
    unknown = events.transform(dispatched, changefeed=off).collect()
    assert {r.dispatch_error for r in unknown} == {
        "the log does not show how many columns of this table are in a unique index"
    }


def test_columns_dispatch_cannot_place_a_delete_without_old_value(spark: SparkSession) -> None:
    """A delete of its key alone does not have another dispatch column, and reports it."""
    off = Changefeed((Rule(("*.*",), "columns", columns=("v",)),), partitions=8, dispatch_old_value=False)
    rows = events_frame(spark, MOVED).transform(dispatched, changefeed=off, catalog=CATALOG).collect()
    assert {r.op: (r.dispatch_error or "")[:28] for r in rows} == {
        "insert": "",
        "delete": "the log carries only part of",
    }


def test_the_golden_log_shows_what_raw_mode_costs(events_of: Any) -> None:
    """Joined again, the small log's updates of unique values break their order twice as often as split ones."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    catalog = catalog_of(events)
    found = violations(events, catalog, ("split", "row_order_any_unique"), ("raw", "row_order_any_unique"))
    split, raw = (found[s, "row_order_any_unique"] for s in ("split", "raw"))
    assert (split.violations, raw.violations) == (10, 20)
    assert raw.counterexample[0].target_partition != raw.counterexample[1].target_partition
    totals = key_update_counts(events, catalog=catalog).groupBy().sum().first()
    assert totals is not None
    assert totals["sum(whole)"] == 0
    assert totals["sum(same_key)"] > 0


def test_a_missing_partition_count_is_said(spark: SparkSession) -> None:
    """No one shows how many partitions there are."""
    with pytest.raises(DispatchError, match="number of partitions"):
        dispatched(events_frame(spark, MOVED), changefeed=Changefeed())
