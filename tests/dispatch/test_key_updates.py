"""Key updates split and joined again: TiCDC's own pairs of both forms, and small transactions where one is planted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conftest import computed, events_frame, json_lines
from pyspark.sql import DataFrame, SparkSession
from test_vectors import definition, image

from ticdc_lab.dispatch.settings import joined_updates, split_updates
from ticdc_lab.errors import StreamingError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef


def as_event(line: int, r: dict[str, Any]) -> dict[str, Any]:
    """A vector as an event of the contract."""
    names = ("name", "mysql_type", "value", "is_key", "flags")

    def cells(which: str) -> list[dict[str, Any]] | None:
        found = image(r, which)
        return None if found is None else [dict(zip(names, c, strict=True)) for c in found]

    return {
        "kind": "row", "schema_name": r["schema"], "table_name": r["table"], "op": r["op"], "partition": 0,
        "commit_ts": r["commit_ts"], "columns": cells("value"), "before": cells("old"), "offset": line, "seq": 0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def forms(spark: SparkSession) -> tuple[DataFrame, DataFrame, Catalog]:
    """The transactions that TiCDC was asked to send in both forms: raw and split."""
    rows = [as_event(n, r) | {"raw": r["raw_mode"]} for n, r in enumerate(json_lines("dispatch_vectors.jsonl.gz"))]
    both = {(e["schema_name"], e["table_name"], e["commit_ts"]) for e in rows if e["raw"]}
    mine = [e for e in rows if (e["schema_name"], e["table_name"], e["commit_ts"]) in both]
    catalog = Catalog.from_definitions(definition(r) for r in json_lines("dispatch_schemas.jsonl.gz"))
    raw, split = ([e for e in mine if e["raw"] == which] for which in (True, False))
    return events_frame(spark, raw), events_frame(spark, split), catalog


def changes(events: DataFrame) -> Counter[Any]:
    """What every row shows, by any position."""
    rows = events.select("schema_name", "table_name", "commit_ts", "op", "columns", "before").collect()
    return Counter(
        (*r[:4], *(None if i is None else tuple((c["name"], c["value"]) for c in i) for i in r[4:])) for r in rows
    )


def test_splitting_raw_updates_gives_what_ticdc_splits(forms: Any) -> None:
    """Every update that TiCDC split is split, into the same images, and no other: primary, unique and nullable keys."""
    raw, split, catalog = forms
    assert changes(raw.transform(split_updates, catalog=catalog)) == changes(split)
    assert changes(split.transform(split_updates, catalog=catalog)) == changes(split)


def test_without_definitions_only_the_handle_key_is_known(forms: Any) -> None:
    """The fault this module would have without a catalog: updates of other unique keys stay whole."""
    raw, split, _ = forms
    blind = changes(raw.transform(split_updates))
    assert blind != changes(split)
    assert sum(n for c, n in (blind - changes(split)).items() if c[3] == "update") > 0


def test_joining_split_updates_gives_ticdcs_raw_updates(forms: Any) -> None:
    """What is joined by key is what TiCDC sent raw, without exception; what cannot be determined is
    left and counted.
    """
    raw, split, catalog = forms
    joined = computed(split.transform(joined_updates, catalog=catalog))
    made = changes(joined.where("op = 'update' AND joined = 'same-key'"))
    assert sum(made.values()) > 100
    assert made <= changes(raw)
    inferred = changes(joined.where("op = 'update' AND joined IN ('only-pair', 'equal-rest')"))
    wrong = inferred - changes(raw)
    # a row deleted and another inserted in one transaction look like a split update: all that it may get wrong
    assert (sum(inferred.values()), sum(wrong.values())) == (49, 0), Counter(c[1] for c in wrong)
    assert changes(joined.where("joined = 'never-one'")) <= changes(raw)
    assert joined.where("joined IN ('maybe-one', 'ambiguous')").count() > 0


NC = TableDef(
    "s",
    "t",
    (ColumnDef("id", "int", False), ColumnDef("v", "int")),
    (IndexDef(1, "PRIMARY", ("id",), True, True),),
)


def row(op: str, ts: int, id_: int, v: int | None = 0, **more: Any) -> dict[str, Any]:
    """One change of ``s.t``."""
    cells = [
        {"name": n, "mysql_type": "int", "value": None if x is None else str(x), "is_key": n == "id", "flags": None}
        for n, x in (("id", id_), ("v", v))
    ]
    where = {"kind": "row", "schema_name": "s", "table_name": "t", "op": op, "commit_ts": ts, "topic": "x"}
    images = {"before": cells} if op == "delete" else {"columns": cells}
    return {**where, "partition": 0, "offset": ts * 10 + id_, "seq": 0, **images, **more}


def joined(spark: SparkSession, *events: dict[str, Any], definition: TableDef = NC) -> list[tuple[Any, ...]]:
    """Op, old key, new key and why, in log order."""
    frame = events_frame(spark, list(events)).transform(joined_updates, catalog=Catalog.from_definitions([definition]))
    rows = frame.orderBy("offset").collect()
    return [(r.op, *(i and i[0].value for i in (r.before, r["columns"])), r.joined) for r in rows]


def test_one_delete_and_one_insert_are_an_update(spark: SparkSession) -> None:
    """The only pair of a transaction joins; a delete and an insert of different transactions do not."""
    assert joined(spark, row("delete", 1, 1), row("insert", 1, 2, 9)) == [("update", "1", "2", "only-pair")]
    assert joined(spark, row("delete", 1, 1), row("insert", 2, 2)) == [
        ("delete", "1", None, None),
        ("insert", None, "2", None),
    ]


def test_several_pairs_join_by_their_other_columns_or_not_at_all(spark: SparkSession) -> None:
    """Pairs that agree in all other columns join; two deletes and inserts with the same value stay, named ambiguous."""
    clear = [row("delete", 1, 1, 5), row("delete", 1, 2, 6), row("insert", 1, 3, 6), row("insert", 1, 4, 5)]
    assert joined(spark, *clear) == [("update", "1", "4", "equal-rest"), ("update", "2", "3", "equal-rest")]
    doubtful = [row("delete", 1, 1, 5), row("delete", 1, 2, 5), row("insert", 1, 3, 5), row("insert", 1, 4, 5)]
    assert {why for *_, why in joined(spark, *doubtful)} == {"ambiguous"}
    assert len(joined(spark, *doubtful)) == 4


def test_a_clustered_primary_key_is_never_joined(spark: SparkSession) -> None:
    """Where rows are stored by their integer key TiCDC has no such update, raw or not; one key twice still is one."""
    clustered = TableDef(NC.schema_name, NC.table_name, NC.columns, NC.indexes, pk_is_handle=True)
    moved = joined(spark, row("delete", 1, 1), row("insert", 1, 2), definition=clustered)
    assert [why for *_, why in moved] == ["never-one"] * 2
    kept = joined(spark, row("delete", 1, 1, 1), row("insert", 1, 1, 2), definition=clustered)
    assert kept == [("update", "1", "1", "same-key")]


def test_a_repeated_delivery_joins_like_the_first(spark: SparkSession) -> None:
    """A pair that was sent twice is one pair: each delete becomes an update."""
    twice = [row("delete", 1, 1), row("insert", 1, 2, 9)]
    again = [e | {"offset": e["offset"] + 100} for e in twice]
    assert joined(spark, *twice, *again) == [("update", "1", "2", "only-pair")] * 2


def test_an_old_image_of_changed_columns_is_completed(spark: SparkSession) -> None:
    """With only-output-updated-columns the delete half still holds the whole old row."""
    old = [{"name": "id", "mysql_type": "int", "value": "1", "is_key": True, "flags": None}]
    events = events_frame(spark, [row("update", 1, 2, 7, before=old)])
    rows = events.transform(split_updates).orderBy("op").collect()
    assert [(r.op, [c.value for c in r.before or r["columns"]]) for r in rows] == [
        ("delete", ["1", "7"]),
        ("insert", ["2", "7"]),
    ]


def test_joining_needs_the_whole_log(spark: SparkSession, tmp_path: Any) -> None:
    """A stream is refused with the reason; splitting takes one."""
    events_frame(spark, [row("insert", 1, 1)]).write.parquet(str(tmp_path / "e"))
    stream = spark.readStream.schema(spark.read.parquet(str(tmp_path / "e")).schema).parquet(str(tmp_path / "e"))
    with pytest.raises(StreamingError, match="joined_updates"):
        stream.transform(joined_updates)
    assert stream.transform(split_updates).isStreaming
