"""The design's guarantee table on golden logs, and on small logs where each violation is planted."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import events_frame
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.dispatch import dispatch
from ticdc_lab.dispatch.guarantees import balance, guarantees, skew
from ticdc_lab.errors import ContractError, StreamingError
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

USERS = TableDef(
    "s",
    "t",
    (ColumnDef("id", "int", False), ColumnDef("name", "varchar")),
    (IndexDef(1, "PRIMARY", ("id",), True, True), IndexDef(2, "uk", ("name",), True)),
    pk_is_handle=True,
)
CATALOG = Catalog.from_definitions([USERS])


def change(op: str, ts: int, target: int | None, id_: int, name: str | None = None, **more: Any) -> dict[str, Any]:
    """One row change of ``s.t`` with the partition it is to go to; the offset is the commit_ts."""
    image = [
        {"name": n, "mysql_type": t, "value": None if v is None else str(v), "is_key": n == "id", "flags": None}
        for n, t, v in (("id", "int", id_), ("name", "varchar", name))
    ]
    where = {"topic": "x", "partition": 0, "offset": ts, "seq": 0, "schema_name": "s", "table_name": "t", "kind": "row"}
    images = {"before": image} if op == "delete" else {"columns": image, "before": more.pop("before", None)}
    return {**where, "op": op, "commit_ts": ts, "target": target, **images, **more}


def sent(spark: SparkSession, *changes: dict[str, Any]) -> DataFrame:
    """Events whose target partitions are as planted (carried in start_ts)."""
    events = events_frame(spark, [c | {"start_ts": c["target"]} for c in changes])
    return events.withColumn("target_partition", F.col("start_ts").cast("int"))


def measured(frame: DataFrame, *, catalog: Catalog | None = CATALOG) -> dict[str, tuple[int, int]]:
    """Violations and cases of the whole log by guarantee."""
    rows = frame.transform(guarantees, catalog=catalog).where("`table` IS NULL").collect()
    return {r["guarantee"]: (r["violations"], r["cases"]) for r in rows}


def test_everything_in_one_partition_keeps_everything(spark: SparkSession) -> None:
    """With one partition no guarantee is broken, and every case is counted."""
    found = measured(
        sent(spark, change("insert", 1, 0, 1, "a"), change("update", 2, 0, 1, "b"), change("insert", 2, 0, 2, "c"))
    )
    assert found == {
        "row_order": (0, 1),
        "row_order_any_unique": (0, 1),
        "table_order": (0, 2),
        "transactions": (0, 2),
        "transactions_torn": (0, 2),
        "transactions_overtakable": (0, 2),
    }


def test_a_row_that_moves_breaks_row_order_and_lets_its_transaction_be_overtaken(spark: SparkSession) -> None:
    """A planted move is one violation of row order, of table order and of the later transaction, but tears nothing."""
    found = measured(sent(spark, change("insert", 1, 0, 1, "a"), change("delete", 5, 1, 1, "a")))
    assert (found["row_order"], found["table_order"]) == ((1, 1), (1, 1))
    assert (found["transactions_torn"], found["transactions_overtakable"], found["transactions"]) == (
        (0, 2),
        (1, 2),
        (1, 2),
    )


def test_rows_of_one_transaction_apart_tear_it(spark: SparkSession) -> None:
    """Two rows of one transaction in two partitions tear it, although each row keeps its order."""
    found = measured(sent(spark, change("insert", 1, 0, 1, "a"), change("insert", 1, 1, 2, "b")))
    assert (found["row_order"], found["transactions_torn"], found["transactions_overtakable"]) == (
        (0, 0),
        (1, 1),
        (0, 1),
    )


def test_a_unique_value_that_passes_to_another_row_shows_footnote_5(spark: SparkSession) -> None:
    """Rows that stay in their partitions can still conflict over a second unique index; NULL never conflicts."""
    passed = [change("insert", 1, 0, 1, "a"), change("delete", 2, 0, 1, "a"), change("insert", 3, 1, 2, "a")]
    nulls = [change("insert", 4, 0, 3, None), change("insert", 5, 1, 4, None)]
    found = measured(sent(spark, *passed, *nulls))
    assert found["row_order"] == (0, 1)
    # id 1 twice, name a three times
    assert found["row_order_any_unique"] == (1, 3)
    assert "row_order_any_unique" not in measured(sent(spark, *passed), catalog=None)


def test_an_update_gives_up_the_value_of_its_old_image(spark: SparkSession) -> None:
    """A value that an update leaves and another row takes is a conflict too, if only the old image held it."""
    before = [{"name": "name", "mysql_type": "varchar", "value": "a", "is_key": False, "flags": None}]
    left = [change("update", 1, 0, 1, "b", before=before), change("insert", 2, 1, 2, "a")]
    assert measured(sent(spark, *left))["row_order_any_unique"] == (1, 1)


def test_a_changed_key_belongs_to_both_rows(spark: SparkSession) -> None:
    """An update of the key that was not split follows the old key's changes and precedes the new key's."""
    old = [{"name": "id", "mysql_type": "int", "value": "1", "is_key": True, "flags": None}]
    found = measured(
        sent(
            spark,
            change("insert", 1, 0, 1, "a"),
            change("update", 2, 1, 2, "a", before=old),
            change("delete", 3, 1, 2, "a"),
        )
    )
    assert found["row_order"] == (1, 2)


def test_deliveries_of_one_change_count_once(spark: SparkSession) -> None:
    """A repeat is no second change; without a key the whole content distinguishes changes."""
    first = change("insert", 1, 0, 1, "a")
    assert measured(sent(spark, first, first | {"offset": 9}))["table_order"] == (0, 0)
    keyless = [change("insert", 1, p, 1, name) for p, name in ((0, "a"), (1, "b"), (1, "b"))]
    for c in keyless:
        c["columns"] = [{**column, "is_key": False} for column in c["columns"]]
    found = measured(sent(spark, *keyless))
    assert (found["table_order"], found["row_order"]) == ((1, 1), (0, 0))


def test_a_barrier_between_two_changes_keeps_their_order(spark: SparkSession) -> None:
    """Changes apart with a greater alignment are in order, with an equal or smaller one not; barriers tear too."""
    alignment = {1: 0, 2: 1, 3: 1, 4: 0}
    changes = [change("update", ts, ts % 2, 1, "a") for ts in alignment]
    frame = sent(spark, *changes, change("insert", 4, 0, 2, "b"))
    of_ts = F.element_at(
        F.create_map(*[F.lit(x) for pair in alignment.items() for x in pair]), F.col("commit_ts").cast("int")
    )
    found = measured(frame.withColumn("alignment", of_ts + F.when(F.col("op") == "insert", 5).otherwise(0)))
    # the third has the alignment of the second, the fourth a smaller one; a barrier tears the insert from the fourth
    assert (found["row_order"], found["transactions_torn"]) == ((2, 3), (1, 4))


def test_an_unknown_partition_decides_nothing(spark: SparkSession) -> None:
    """Pairs with a change that could not be dispatched are undecided, neither kept nor broken."""
    frame = sent(
        spark, change("insert", 1, 0, 1, "a"), change("update", 2, None, 1, "a"), change("delete", 3, 1, 1, "a")
    )
    rows = {r["guarantee"]: r for r in frame.transform(guarantees).where("`table` IS NULL").collect()}
    assert (rows["row_order"]["cases"], rows["row_order"]["undecided"]) == (0, 2)
    assert (rows["transactions"]["cases"], rows["transactions"]["undecided"]) == (2, 1)


def test_the_counterexample_is_the_first_violation(spark: SparkSession) -> None:
    """The evidence is the earlier and the later change of the first broken pair, with their positions and key."""
    frame = sent(
        spark,
        change("insert", 1, 0, 7, "a"),
        change("update", 2, 1, 7, "a"),
        change("update", 3, 0, 7, "a"),
    )
    row = frame.transform(guarantees).where("table = 's.t' AND guarantee = 'row_order'").first()
    assert [(e["target_partition"], e["offset"], e["commit_ts"], e["key"]) for e in row["counterexample"]] == [
        (0, 1, 1, "id=7"),
        (1, 2, 2, "id=7"),
    ]


def test_the_seed_on_the_golden_log(events_of: Any) -> None:
    """By table nothing breaks; by handle only rows keep their order; ts breaks row order but tears nothing."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    catalog = catalog_of(events)
    by = {
        name: measured(events.transform(dispatch, strategy=name, partitions=4), catalog=catalog)
        for name in ("table", "index-value", "ts")
    }
    assert {v for v, _ in by["table"].values()} == {0}
    assert all(cases > 0 for _, cases in by["table"].values())
    assert by["index-value"]["row_order"][0] == by["index-value"]["transactions_overtakable"][0] == 0
    assert min(by["index-value"][g][0] for g in ("table_order", "transactions", "transactions_torn")) > 0
    assert min(by["ts"][g][0] for g in ("row_order", "table_order", "transactions_overtakable")) > 0
    assert by["ts"]["transactions_torn"][0] == 0
    assert set(by["ts"]) == {
        *("row_order", "row_order_any_unique", "table_order"),
        *("transactions", "transactions_torn", "transactions_overtakable"),
    }


def test_footnote_5_needs_a_second_unique_index(events_of: Any) -> None:
    """By handle, conflicts over unique values appear only in tables with more than one unique index."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    catalog = catalog_of(events)
    rows = (
        events.transform(dispatch, strategy="index-value", partitions=16)
        .transform(guarantees, catalog=catalog)
        .where("guarantee = 'row_order_any_unique' AND `table` IS NOT NULL")
        .collect()
    )
    broken = {r["table"] for r in rows if r["violations"]}
    several = {f"{d.schema_name}.{d.table_name}" for d in catalog.tables() if len(d.unique_indexes) > 1} | {
        "shop.users"
    }
    assert broken
    assert broken <= several


def test_balance_names_idle_partitions(spark: SparkSession) -> None:
    """Each partition is listed, each change counts once; max over mean and Gini are the ones of the counts."""
    repeat = change("insert", 1, 0, 1, "a")
    frame = sent(spark, repeat, repeat | {"offset": 9}, *(change("insert", n, 2, n, "b") for n in range(2, 5)))
    rows = frame.transform(balance, partitions=4)
    assert [tuple(r) for r in rows.orderBy("target_partition").collect()] == [
        (0, 1, 0.25),
        (1, 0, 0.0),
        (2, 3, 0.75),
        (3, 0, 0.0),
    ]
    summed = rows.transform(skew).first()
    assert (summed["partitions"], summed["rows"], summed["idle"], summed["max_over_mean"]) == (4, 4, 2, 3.0)
    assert summed["gini"] == pytest.approx(0.625)


def test_what_cannot_be_measured_is_refused(spark: SparkSession) -> None:
    """Events that were not dispatched, and streams, are refused before a job starts."""
    with pytest.raises(ContractError, match="target_partition"):
        guarantees(events_frame(spark, []))
    stream = spark.readStream.format("rate").load().withColumn("target_partition", F.lit(0))
    with pytest.raises(StreamingError, match="previous change"):
        guarantees(stream)
