"""What a protocol keeps of the changes it carries: a log beside another of the same transactions, by aspects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ticdc_lab.events.schema import require_batch, require_columns

ROW_ASPECTS = {
    "row changes": "every row change is there",
    "insert or update": "an insert can be told from an update",
    "commit_ts of inserts and updates": "they carry their transaction's commit_ts",
    "commit_ts of deletes": "deletes carry it too",
    "start_ts": "the transaction's start_ts",
    "table id": "the id of the table or physical partition",
    "old value of updates": "the whole row before an update",
    "old value of deletes": "the whole deleted row",
    "row order": "rows of one transaction in one partition come in the order of the reference",
}
VALUE_ASPECTS = {
    "column types": "the MySQL type of every column",
    "NULL": "NULL stays NULL",
    "unsigned": "unsigned 64-bit numbers above 2^63",
    "integers": "all other integers, years and bits",
    "decimal": "every digit of a DECIMAL",
    "float": "FLOAT and DOUBLE",
    "text": "character strings",
    "binary": "binary bytes",
    "date and time": "with all digits of the fraction",
    "enum and set": "as the number that the reference carries",
    "json": "JSON text",
}
LOG_ASPECTS = {"DDL": "every DDL statement with its commit_ts", "watermarks": "every resolved_ts"}
ASPECTS: Mapping[str, str] = ROW_ASPECTS | VALUE_ASPECTS | LOG_ASPECTS
"""Aspect -> what it says when all of it is kept."""

_TABLE = ("schema_name", "table_name")
_ROW = (*_TABLE, "key", "is_delete")
_LOG_ORDER = ("partition", "offset", "seq")
_IMAGES = ("columns", "before", "key_hash", "change_hash")
_NEEDED = ("kind", "commit_ts", *_TABLE, "op", *_IMAGES, *_LOG_ORDER)
_TWO_63 = "9223372036854775807"


def fidelity(events: DataFrame, *, reference: DataFrame) -> DataFrame:
    """Compare a log with a reference log of the same transactions.

    Rows are paired by table, commit_ts, row key and whether they are deletes, and by their place among equal ones;
    a re-delivered row is one row. Rows without commit_ts are paired by table, key and image, deletes by table and key
    alone where they hold no more, in order.

    Parameters
    ----------
    events, reference
        Events with key hashes (:data:`ticdc_lab.events.schema.EVENTS`, :data:`ticdc_lab.events.schema.KEYS`).
        Open-protocol and canal-json carry most, so that one of them makes the reference.

    Returns
    -------
    DataFrame
        One row for each of :data:`ASPECTS` of which the reference has anything, in their order: ``place`` int,
        ``aspect`` string, ``kept`` and ``of`` bigint (cases kept and cases in the reference), ``example`` string (a
        case that is not kept, ``reference -> this log``; null if all are).

    Raises
    ------
    StreamingError
        A frame is a stream: what is missing is known at the end only.

    References
    ----------
    docs/reading.md says what each protocol should lose; this measures it.
    """
    for frame in (events, reference):
        require_columns(frame, *_NEEDED)
        require_batch(frame, function="fidelity", why="what is missing can be known at the end only")
    paired = _paired(events, reference)
    found = [_of_rows(paired), _of_values(paired), _of_log(events, reference)]
    return reduce(DataFrame.unionByName, found).where("of > 0").orderBy("place")


def _rows(events: DataFrame, prefix: str) -> DataFrame:
    """Row changes once each, numbered among those that look alike, with their place in the transaction."""
    lone = F.when(F.col("commit_ts").isNull(), F.col("offset"))  # without commit_ts equal rows are not one row
    once = events.where("kind = 'row'").withColumn("lone", lone)
    once = once.dropDuplicates(["commit_ts", *_TABLE, "op", "partition", "change_hash", "lone"])
    is_delete = F.col("op") == "delete"
    keys_only = F.forall("before", lambda c: c["is_key"])
    image = F.transform(F.coalesce("columns", "before"), lambda c: F.struct(c["name"], c["value"]))
    told = {
        "at": F.coalesce("commit_ts", F.lit(-1)),
        "key": F.coalesce("key_hash", F.lit(0)),
        "is_delete": is_delete,
        "image": F.when(is_delete & keys_only, F.lit(0)).otherwise(F.xxhash64("op", image)),
    }
    together = Window.partitionBy("commit_ts", *_TABLE, "partition").orderBy(*_LOG_ORDER)
    alike = Window.partitionBy("at", *_ROW).orderBy(*_LOG_ORDER)
    kept = ("commit_ts", "start_ts", "table_id", "op", "columns", "before", "rank", *_LOG_ORDER)
    return (
        once.withColumns(told)
        .withColumns({"alike": F.row_number().over(alike), "rank": F.row_number().over(together)})
        .select("at", *_ROW, "image", "alike", F.struct(*kept).alias(prefix))
    )


def _paired(events: DataFrame, reference: DataFrame) -> DataFrame:
    """Each row of the reference (``want``) with that of the log (``got``), or null."""
    want, got = _rows(reference, "want"), _rows(events, "got")
    dated = want.join(got.where("at >= 0").drop("image"), ["at", *_ROW, "alike"], "left")
    undated, lone = got.where("at < 0").select(*_ROW, "image", "got"), dated.where("got IS NULL").drop("got")
    whole = _in_order(lone, undated.where("image <> 0"), [*_ROW, "image"])
    by_key = _in_order(whole.where("got IS NULL").drop("got"), undated.where("image = 0").drop("image"), list(_ROW))
    found = [dated.where("got IS NOT NULL"), whole.where("got IS NOT NULL"), by_key]
    return reduce(DataFrame.unionByName, found)


def _in_order(lone: DataFrame, undated: DataFrame, same: list[str]) -> DataFrame:
    """The first of equal rows with the first that lacks a commit_ts, and so on."""
    equal = Window.partitionBy(*same)
    wanted = lone.withColumn("nth", F.row_number().over(equal.orderBy("at", "alike")))
    order = F.row_number().over(equal.orderBy(*(f"got.{name}" for name in _LOG_ORDER)))
    return wanted.join(undated.withColumn("nth", order), [*same, "nth"], "left").drop("nth")


def _of_rows(paired: DataFrame) -> DataFrame:
    want, got = F.col("want"), F.col("got")
    op, there = want["op"], got.isNotNull()
    not_delete, told = op != "delete", got["commit_ts"].isNotNull()
    cases: dict[str, tuple[Column, Column, Column]] = {
        "row changes": (F.lit(True), there, F.lit("absent, or changed so that it cannot be found")),
        "insert or update": (not_delete & there, got["op"] == op, F.concat(op, F.lit(" -> "), got["op"])),
        "commit_ts of inserts and updates": (not_delete & there, told, F.lit("no commit_ts")),
        "commit_ts of deletes": (~not_delete & there, told, F.lit("no commit_ts")),
        "start_ts": (there, got["start_ts"].isNotNull(), F.lit("no start_ts")),
        "table id": (there, got["table_id"].isNotNull(), F.lit("no id")),
        "old value of updates": ((op == "update") & there, _whole("before"), _sizes("before")),
        "old value of deletes": ((op == "delete") & there, _whole("before"), _sizes("before")),
        "row order": (told, got["rank"] == want["rank"], _shown(want["rank"], got["rank"])),
    }
    named = {name: F.struct(*_counted(*case)) for name, case in cases.items()}
    totals = paired.agg(*(column.alias(name) for name, column in named.items()))
    return _laid_out(totals, ROW_ASPECTS)


def _whole(image: str) -> Column:
    want, got = F.col("want")[image], F.col("got")[image]
    return F.coalesce(F.size(got) >= F.size(want), F.lit(False)) & got.isNotNull()


def _sizes(image: str) -> Column:
    size = F.coalesce(F.size(F.col("got")[image]), F.lit(0))
    return F.concat(F.size(F.col("want")[image]), F.lit(" columns -> "), F.greatest(size, F.lit(0)))


def _shown(want: Column, got: Column) -> Column:
    def text(value: Column) -> Column:
        return F.coalesce(F.substring(value.cast("string"), 1, 60), F.lit("NULL"))

    return F.concat(text(want), F.lit(" -> "), text(got))


def _counted(case: Column, kept: Column, example: Column) -> list[Column]:
    """How many cases are kept, of how many, and one that is not; ``kept`` null is not kept."""
    case, kept = F.coalesce(case, F.lit(False)), F.coalesce(kept, F.lit(False))
    return [
        F.count_if(case & kept).alias("kept"),
        F.count_if(case).alias("of"),
        F.min(F.when(case & ~kept, example)).alias("example"),
    ]


def _laid_out(totals: DataFrame, aspects: Mapping[str, str]) -> DataFrame:
    """One row an aspect, from one row of structs."""
    order = {name: i for i, name in enumerate(ASPECTS)}
    cells = (F.struct(F.lit(order[n]).alias("place"), F.lit(n).alias("aspect"), f"`{n}`.*") for n in aspects)
    return totals.select(F.explode(F.array(*cells)).alias("cell")).select("cell.*")


def _of_values(paired: DataFrame) -> DataFrame:
    """Values of images that are there: after the change, for a delete before it."""
    image = F.when(F.col("is_delete"), F.col("want.before")).otherwise(F.col("want.columns"))
    theirs = F.when(F.col("is_delete"), F.col("got.before")).otherwise(F.col("got.columns"))
    cells = paired.where("got IS NOT NULL").select(F.explode(image).alias("want"), theirs.alias("image"))
    got = F.get(F.filter("image", lambda c: c["name"] == F.col("want.name")), 0)
    cells = cells.select("want", got.alias("got")).where("got IS NOT NULL")
    want, value = F.col("want.value"), F.col("got.value")
    kind, is_null = _class(F.col("want.mysql_type"), want), want.isNull()
    named = {
        name: F.struct(*_counted(~is_null & (kind == name), value == want, _shown(want, value)))
        for name in VALUE_ASPECTS
    }
    typed = F.split("got.mysql_type", r"[( ]")[0] == F.split("want.mysql_type", r"[( ]")[0]
    named["column types"] = F.struct(
        *_counted(F.lit(True), typed, _shown(F.col("want.mysql_type"), F.col("got.mysql_type")))
    )
    named["NULL"] = F.struct(*_counted(is_null, value.isNull(), _shown(want, value)))
    return _laid_out(cells.agg(*(column.alias(name) for name, column in named.items())), VALUE_ASPECTS)


def _class(mysql_type: Column, value: Column) -> Column:
    """The aspect that a value of this type belongs to."""
    base = F.split(mysql_type, r"[( ]")[0]
    digits = F.length(value)
    large = (digits > len(_TWO_63)) | ((digits == len(_TWO_63)) & (value > _TWO_63))
    return (
        F.when((base == "bigint") & mysql_type.contains("unsigned") & large, "unsigned")
        .when(base.isin("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), "integers")
        .when(base == "decimal", "decimal")
        .when(base.isin("float", "double"), "float")
        .when(base.isin("enum", "set"), "enum and set")
        .when(base.isin("date", "datetime", "timestamp", "time"), "date and time")
        .when(base == "json", "json")
        .when(value.startswith("0x") & base.rlike("binary|blob"), "binary")
        .otherwise("text")
    )


def _of_log(events: DataFrame, reference: DataFrame) -> DataFrame:
    """Distinct DDL statements and resolved_ts."""
    cells = []
    for aspect, kind, by in (("DDL", "ddl", ("commit_ts", "query")), ("watermarks", "watermark", ("commit_ts",))):
        want, got = (f.where(F.col("kind") == kind).select(*by).distinct() for f in (reference, events))
        joined = want.join(got.withColumn("there", F.lit(True)), list(by), "left")
        example = F.substring(F.concat_ws(" ", *(F.col(name).cast("string") for name in by)), 1, 80)
        totals = joined.agg(F.struct(*_counted(F.lit(True), F.col("there"), example)).alias(aspect))
        cells.append(_laid_out(totals, {aspect: ""}))
    return cells[0].unionByName(cells[1])
