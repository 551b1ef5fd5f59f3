"""Conflict dispatch of whole logs: what a consumer gets of them, what is reported, and what changes nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import computed, events_frame, golden
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from upstream import Change, Inconsistent, consume, history, upstream

from ticdc_lab.audit import audit
from ticdc_lab.cli import main
from ticdc_lab.dispatch import alignments, conflict_placements, dispatch
from ticdc_lab.dispatch.conflict import dispatch_by_conflict
from ticdc_lab.dispatch.guarantees import guarantees
from ticdc_lab.encode.produce import produce
from ticdc_lab.errors import ContractError, DispatchError, StreamingError
from ticdc_lab.events import POSITION
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

NAMES = ("id", "a", "b", "c")
COLUMNS = (ColumnDef("id", "int", False), *[ColumnDef(n, "int") for n in "abc"])
KEYS = (
    IndexDef(1, "PRIMARY", ("id",), True, True),
    IndexDef(2, "ua", ("a",), True),
    IndexDef(3, "ubc", ("b", "c"), True),
)
TABLES = {
    "keyed": TableDef("s", "keyed", COLUMNS, KEYS, pk_is_handle=True),
    "nullable": TableDef("s", "nullable", COLUMNS, KEYS[1:]),
    "keyless": TableDef("s", "keyless", COLUMNS),
}
CATALOG = Catalog.from_definitions(TABLES.values())
KEPT = ("row_order", "row_order_any_unique", "transactions", "transactions_torn", "transactions_overtakable")
PLACE = ("schema_name", "table_name", "commit_ts", "change_hash", "target_partition", "alignment")


def event(change: Change, table: str, partition: int, offset: int) -> dict[str, Any]:
    """A row event of a table of schema s."""

    def image(row: Any) -> Any:
        if row is None:
            return None
        cells = zip(NAMES, row, strict=True)
        value = {n: None if v is None else str(v) for n, v in cells}
        has_key = table == "keyed"
        return [
            {"name": n, "mysql_type": "int", "value": v, "is_key": has_key and n == "id", "flags": None}
            for n, v in value.items()
        ]

    where = {"topic": "x", "partition": partition, "offset": offset, "seq": 0, "schema_name": "s", "table_name": table}
    images = {"columns": image(change.after), "before": image(change.before)}
    return {"kind": "row", "op": change.op, "commit_ts": change.commit_ts} | where | images


def ddl(table: str, ts: int, partition: int, offset: int) -> dict[str, Any]:
    """A DDL event of a table of schema s."""
    where = {"topic": "x", "partition": partition, "offset": offset, "seq": 0, "schema_name": "s", "table_name": table}
    return {"kind": "ddl", "commit_ts": ts, "query": f"ALTER TABLE `s`.`{table}` COMMENT='x'"} | where


@pytest.fixture(scope="module")
def log(spark: SparkSession) -> tuple[DataFrame, dict[int, tuple[str, Change]]]:
    """Three tables with random histories, a DDL each, one in six changes delivered twice; the changes by offset."""
    r = random.Random(11)
    changes = [(table, c) for table in TABLES for c in history(r, transactions=110)]
    by_offset = dict(enumerate(changes))
    first = [event(c, table, r.randrange(3), i) for i, (table, c) in by_offset.items()]
    again = [e | {"partition": r.randrange(3), "offset": 10_000 + e["offset"]} for e in first if r.random() < 0.17]
    ddls = [ddl(table, 60, p, 20_000 + p) for table in TABLES for p in range(3)]
    events = first + again + ddls
    r.shuffle(events)
    return events_frame(spark, events), by_offset


@pytest.fixture(scope="module")
def dispatched(log: Any) -> DataFrame:
    """The log by conflict detection over four partitions."""
    found = log[0].transform(dispatch, strategy="conflict", partitions=4, catalog=CATALOG)
    return computed(found)


def rows_of(frame: DataFrame) -> list[tuple[int, int, int]]:
    """Offset, target and alignment of row events."""
    return [tuple(x) for x in frame.where("kind = 'row'").select("offset", "target_partition", "alignment").collect()]


def test_a_consumer_gets_every_table_as_it_is_upstream(log: Any, dispatched: DataFrame) -> None:
    """Through unique values that pass between rows, NULLs, changed keys and no key at all, and not without waiting."""
    found = rows_of(dispatched)
    assert len(found) > 300
    deaf = 0
    for table in TABLES:
        placed = [(log[1][o][1], p, a) for o, p, a in found if o < 10_000 and log[1][o][0] == table]
        want = upstream(c for c, _, _ in placed)
        assert want
        unique = tuple(tuple(NAMES.index(c) for c in i.columns) for i in TABLES[table].unique_indexes)
        for seed in range(20):
            assert consume(random.Random(seed), placed, unique=unique) == want
            try:
                deaf += consume(random.Random(seed), placed, waits=False, unique=unique) != want
            except Inconsistent:
                deaf += 1
        assert (len({p for _, p, _ in placed}) > 1) == (table != "keyless")
    assert deaf


def test_a_repeat_goes_where_its_first_delivery_went(dispatched: DataFrame) -> None:
    """By transactions and by rows: the same target and alignment, and no unit of its own."""
    found = {o: place for o, *place in rows_of(dispatched)}
    again = [o for o in found if o >= 10_000]
    assert len(again) > 30
    assert all(found[o] == found[o - 10_000] for o in again)


def test_rows_alone_keep_their_order_and_repeats_still_follow(log: Any) -> None:
    """`unit="row"` keeps each key in one partition between alignments, and gives up transactions."""
    frame = dispatch_by_conflict(log[0], partitions=4, catalog=CATALOG, unit="row")
    rows = frame.where("kind = 'row'").select("table_name", "commit_ts", *rows_columns()).collect()
    found = {r["offset"]: (r["target_partition"], r["alignment"]) for r in rows}
    assert all(found[o] == found[o - 10_000] for o in found if o >= 10_000)
    units: dict[Any, set[Any]] = {}
    for r in rows:
        units.setdefault((r["table_name"], r["commit_ts"]), set()).add(found[r["offset"]])
    assert any(len(places) > 1 for places in units.values())
    homes: dict[Any, int] = {}
    for offset, (table, change) in log[1].items():
        for v in (change.before, change.after) if table == "keyed" else ():
            if v is not None:
                assert homes.setdefault((v[0], found[offset][1]), found[offset][0]) == found[offset][0]


def rows_columns() -> tuple[str, ...]:
    """What shows where a row went."""
    return ("offset", "target_partition", "alignment")


def test_the_guarantees_of_the_seed_hold_with_alignments_only(dispatched: DataFrame) -> None:
    """Row order, over any unique value too, and transactions are kept; without the alignments row order breaks."""

    def broken(frame: DataFrame) -> dict[str, int]:
        rows = frame.transform(guarantees, catalog=CATALOG).where("`table` IS NULL").collect()
        assert all(r["cases"] for r in rows)
        return {r["guarantee"]: r["violations"] for r in rows}

    with_them, without = broken(dispatched), broken(dispatched.drop("alignment"))
    assert [with_them[g] for g in KEPT] == [0] * 5
    assert with_them["table_order"] > 0
    assert without["row_order"] > 0
    assert without["row_order_any_unique"] > 0


def test_the_audit_proves_it_stretch_by_stretch(dispatched: DataFrame) -> None:
    """As a topic would hold it, every row stays in one partition between barriers and in order; over them it moves."""
    op = F.when(F.col("op") == "delete", 0).when(F.col("op") == "update", 1).otherwise(2)
    order = Window.partitionBy("target_partition").orderBy("commit_ts", op, "offset", "partition")
    written = dispatched.where("kind = 'row'").withColumn("offset", F.row_number().over(order).cast("bigint"))
    written = written.withColumn("partition", F.col("target_partition"))
    checks = ("rows_stay_in_one_partition", "first_appearances_are_ordered", "redeliveries_are_identical")

    def found(frame: DataFrame) -> set[str]:
        wrong = frame.transform(audit, protocol="simple", checks=checks)
        return {r[0] for r in wrong.where("severity = 'error'").select("guarantee").collect()}

    # the row of one stretch is another row than the one of the next: consumers wait between them
    stretches = {c: F.when(F.col(c).isNotNull(), F.xxhash64(c, "alignment")) for c in ("key_hash", "before_key_hash")}
    assert found(written.withColumns(stretches)) == set()
    assert found(written) == {"rows_stay_in_one_partition"}


def test_max_keys_forces_alignments_and_keeps_the_guarantees(log: Any) -> None:
    """A bound on memory costs alignments, named so, and no order."""
    found = rows_of(dispatch_by_conflict(log[0], partitions=4, catalog=CATALOG, max_keys=12))
    placed = [(log[1][o][1], p, a) for o, p, a in found if o < 10_000 and log[1][o][0] == "keyed"]
    assert all(consume(random.Random(seed), placed) == upstream(c for c, _, _ in placed) for seed in range(10))
    reasons = {r[0] for r in alignments(log[0], partitions=4, catalog=CATALOG, max_keys=12).select("reason").collect()}
    assert reasons == {"conflict", "memory", "ddl"}


def placements(events: DataFrame) -> list[Any]:
    """Where each change goes, in a fixed order."""
    changes = events.where("kind = 'row'").select(*POSITION, "change_hash")
    placed = conflict_placements(events, partitions=4, catalog=CATALOG).join(changes, [*POSITION])
    return sorted(tuple(r) for r in placed.select(*PLACE).collect())


def test_nothing_but_commits_and_keys_decides(log: Any, spark: SparkSession) -> None:
    """Spark's partitions, the order of events, a rerun, and another place of every row in the log change nothing."""
    events, changes = log
    want = placements(events)
    assert placements(events.repartition(7, F.rand(3))) == want
    elsewhere = F.pmod(F.xxhash64("offset"), F.lit(5)).cast("int")
    moved = events.withColumns({"partition": elsewhere, "offset": F.lit(50_000) - F.col("offset")})
    assert placements(moved) == want
    halves = events.where("offset % 2 = 0").unionByName(events.where("offset % 2 = 1"))
    assert placements(halves) == want
    assert len(want) > len(changes)


def test_an_alignment_shows_what_collides(spark: SparkSession) -> None:
    """Two rows in two partitions, and the change that takes the value of one for the other."""
    one, two = (1, 10, None, None), (3, 20, 5, 6)
    changes = [
        Change(1, None, one),
        Change(2, None, two),
        Change(3, one, None),
        Change(4, two, (3, 10, 5, 6)),
        Change(6, None, (4, 9, 5, None)),
    ]
    rows = [event(c, "keyed", 0, i) for i, c in enumerate(changes)]
    events = events_frame(spark, [*rows, ddl("keyed", 5, 0, 90), ddl("keyed", 5, 1, 90)])
    # 7: with that many partitions the two rows lie apart
    found = alignments(events, partitions=7, catalog=CATALOG).orderBy("alignment").collect()
    targets = {o: p for o, p, _ in rows_of(dispatch_by_conflict(events, partitions=7, catalog=CATALOG))}
    assert targets[0] != targets[1]
    conflict, of_ddl = [r.asDict(recursive=True) for r in found]
    at = [{"topic": "x", "partition": 0, "offset": o, "seq": 0} for o in range(4)]
    rows_shown = conflict.pop("rows")
    sides = dict(zip(conflict.pop("keys"), conflict.pop("targets"), strict=True))
    assert conflict == {"table": "s.keyed", "alignment": 1, "commit_ts": 4, "reason": "conflict"}
    assert sides in ({"id=3": targets[1], "a=10": targets[0]}, {"b=5, c=6": targets[1], "a=10": targets[0]})
    assert sorted(r["offset"] for r in rows_shown) == [1, 2, 3]
    assert all(r in at for r in rows_shown)
    assert (of_ddl["commit_ts"], of_ddl["reason"], of_ddl["keys"], of_ddl["rows"]) == (6, "ddl", None, None)


@pytest.mark.parametrize("name", ["messages_open-protocol_small.jsonl.gz"])
def test_the_golden_log_keeps_the_designs_promise(events_of: Any, name: str) -> None:
    """On TiCDC's own messages nothing breaks but table order, and every barrier of a table is listed."""
    events = events_of(name)
    catalog = catalog_of(events)
    found = computed(events.transform(dispatch, strategy="conflict", partitions=4, catalog=catalog))
    rows = found.transform(guarantees, catalog=catalog).where("`table` IS NULL").collect()
    assert {r["guarantee"]: r["violations"] for r in rows if r["guarantee"] != "table_order"} == dict.fromkeys(KEPT, 0)
    listed = (
        events.transform(alignments, partitions=4, catalog=catalog)
        .groupBy("table")
        .agg(F.count("*").alias("n"), F.max("alignment").alias("last"))
    )
    name_of = F.concat("schema_name", F.lit("."), "table_name")
    reached = found.where("kind = 'row'").groupBy(name_of.alias("table")).agg(F.max("alignment").alias("last"))
    wanted = {r["table"]: r["last"] for r in reached.collect() if r["last"]}
    assert {r["table"]: r["last"] for r in listed.collect()} == wanted
    assert all(r["n"] == r["last"] for r in listed.collect())
    assert len(wanted) > 4


def test_a_restart_changes_no_place(events_of: Any) -> None:
    """The same log with what a restart sends again has every change in the same place."""

    def places(name: str) -> set[Any]:
        events = events_of(name)
        found = conflict_placements(events, partitions=4, catalog=catalog_of(events))
        changes = events.where("kind = 'row'").select(*POSITION, "change_hash")
        return {tuple(r) for r in found.join(changes, [*POSITION]).select(*PLACE).collect()}

    once = places("messages_open-protocol_small.jsonl.gz")
    assert places("messages_open-protocol_small-dup-restart.jsonl.gz") == once
    assert len(once) > 2_000


def test_what_the_log_cannot_tell_is_an_error_of_the_row(spark: SparkSession) -> None:
    """No commit_ts, or no old values of a second unique index: the row has no target, all others have."""
    row = (1, 10, None, None)
    whole = event(Change(3, row, (1, 11, None, None)), "keyed", 0, 0)
    rows = [
        whole,
        whole | {"offset": 1, "commit_ts": None},
        whole | {"offset": 2, "before": None},
        whole | {"offset": 3, "columns": whole["columns"][:1]},
        whole | {"offset": 4, "before": whole["before"][1:2]},
        event(Change(3, row, None), "keyed", 0, 5) | {"before": whole["before"][:1]},
        whole | {"offset": 6, "before": None, "table_name": "unknown"},
    ]
    frame = events_frame(spark, rows).transform(dispatch, strategy="Conflict", partitions=4, catalog=CATALOG)
    found = {r["offset"]: r for r in frame.collect()}
    assert len(found) == 7
    assert sorted(o for o, r in found.items() if r["dispatch_error"] is None) == [0, 4, 6]
    assert "no commit_ts" in found[1]["dispatch_error"]
    assert all("all old and new values" in found[o]["dispatch_error"] for o in (2, 3, 5))
    assert all((r["target_partition"] is None) == (r["dispatch_error"] is not None) for r in found.values())
    assert (found[0]["dispatch_key"], found[0]["alignment"]) == ("s.keyed", 0)


def test_what_it_cannot_do_is_refused(spark: SparkSession, log: Any) -> None:
    """Streams, partitions out of range, missing columns, an unknown unit, and writing a topic without alignments."""
    stream = spark.readStream.format("rate").load()
    lacking = {f.name: F.lit(None).cast(f.dataType) for f in log[0].schema.fields}
    with pytest.raises(StreamingError, match="before it"):
        dispatch(stream.withColumns(lacking), strategy="conflict", partitions=4)
    with pytest.raises(ContractError, match="commit_ts"):
        conflict_placements(log[0].drop("commit_ts"), partitions=4)
    with pytest.raises(DispatchError, match="65536"):
        dispatch(log[0], strategy="conflict", partitions=0)
    with pytest.raises(DispatchError, match="unit"):
        conflict_placements(log[0], partitions=4, unit="table")  # type: ignore[arg-type]
    with pytest.raises(DispatchError, match="alignments"):
        produce(log[0], protocol="mq-v1", strategy="conflict", partitions=4)


def test_the_command_reports_alignments_and_balance(spark: SparkSession, tmp_path: Path) -> None:
    """`dispatch --strategy conflict` writes the places, the alignments, and counts both."""
    source = str(golden("messages_open-protocol_small.jsonl.gz"))
    out, barriers = str(tmp_path / "moved.jsonl"), str(tmp_path / "alignments.jsonl")
    arguments = ["dispatch", source, "--strategy", "conflict", "--partitions", "4", "--out", out, "--json"]
    said = CliRunner().invoke(main, [*arguments, "--alignments-out", barriers], obj=spark)
    assert said.exit_code == 0, said.output
    facts = json.loads(said.stdout)
    assert sum(p["count"] for p in facts["load"]) == 2101
    listed = [json.loads(line) for line in Path(barriers).read_text().splitlines()]
    assert sum(a["count"] for a in facts["alignments"]) == len(listed) > 20
    assert {a["reason"] for a in facts["alignments"]} == {"conflict", "ddl"}
    moved = [json.loads(line) for line in Path(out).read_text().splitlines()]
    assert all((e["alignment"] is None) == (e["kind"] != "row") for e in moved)
    refused = CliRunner().invoke(main, [*arguments[:3], "ts", *arguments[4:], "--alignments-out", barriers], obj=spark)
    assert refused.exit_code == 2
