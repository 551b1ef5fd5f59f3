"""Row changes of one table as versions of rows: each change once, with its key and its texts, before they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import no_texts, nullable
from ticdc_lab.facts.definitions import ColumnDef
from ticdc_lab.tables.mysql_types import common, converted, moved, parsed, typed
from ticdc_lab.tables.stretches import (
    ColumnTrace,
    Stretch,
    by_stretch,
    carried,
    grouped,
    not_carried,
    stretch_number,
    text_of,
)
from ticdc_lab.transactions import op_rank

UNCONVERTIBLE = "array<struct<column: string, value: string, reason: string>>"


def changes_of(events: DataFrame, found: Sequence[Stretch]) -> DataFrame:
    """Row changes of the table with ``_stretch`` (int); rows without commit_ts are left out."""
    names = sorted({s.name for s in found})  # said once more as plain comparisons, which a file can skip rows by
    named = reduce(or_, [(F.col("schema_name") == s) & (F.col("table_name") == t) for s, t in names])
    rows = events.where((F.col("kind") == "row") & F.col("commit_ts").isNotNull() & named)
    return rows.withColumn("_stretch", stretch_number(found)).where("_stretch IS NOT NULL")


def _place() -> Column:
    """Of several deliveries the first in offset counts: Kafka orders one partition only, any fixed rule will do."""
    first = {name: (-F.col(name)).alias(name) for name in ("offset", "partition")}
    return F.struct(first["offset"], first["partition"], "topic", (-F.coalesce("seq", F.lit(0))).alias("seq"))


def keyed_changes(
    changes: DataFrame, found: Sequence[Stretch], key: Sequence[ColumnTrace], columns: Sequence[ColumnTrace]
) -> DataFrame:
    """What each change does to each key it touches; an update that changes the key also deletes the old one.

    Returns
    -------
    DataFrame
        ``_life`` (int), ``_key`` (array<string>), ``commit_ts``, ``_rank`` (the last of a transaction counts: a delete
        frees the key before an update or insert takes it), ``_at`` (struct: place in the log), and ``_row``: struct of
        ``op``, ``texts`` (array<string>, by ``columns``), ``missing`` (array<string>), ``incomplete``, ``_stretch``,
        ``protocol``.
    """
    after, before = F.col("columns"), F.col("before")
    is_delete = F.col("op") == "delete"
    old_key, new_key = _key(found, key, before, after), _key(found, key, after)
    left = (F.col("op") == "update") & before.isNotNull() & (old_key != new_key)
    facts = ("incomplete", "_stretch", "protocol")

    def effect(at: Column, op: Column, image: Column) -> Column:
        row = F.struct(
            nullable(op, because=F.col("commit_ts")).alias("op"),
            F.array(*[text_of(c, image) for c in columns]).alias("texts"),
            F.coalesce(not_carried(found, image), no_texts()).alias("missing"),
            *facts,
        )
        return F.struct(
            at.alias("_key"), nullable(op_rank(op), because=F.col("commit_ts")).alias("_rank"), row.alias("_row")
        )

    gone = F.when(left, effect(old_key, F.lit("delete"), before))
    own = F.when(is_delete, effect(old_key, F.col("op"), before)).otherwise(effect(new_key, F.col("op"), after))
    life = by_stretch([([n], F.lit(s.life)) for n, s in enumerate(found)], other=F.lit(None).cast("int"))
    each = changes.select(
        life.alias("_life"),
        "commit_ts",
        _place().alias("_at"),
        F.explode(F.array_compact(F.array(gone, own))).alias("_e"),
    )
    key_or_stop = F.when(F.exists("_e._key", F.isnull), _no_key().cast("array<string>")).otherwise(F.col("_e._key"))
    return each.select("_life", key_or_stop.alias("_key"), "commit_ts", "_e._rank", "_at", "_e._row")


def _key(found: Sequence[Stretch], key: Sequence[ColumnTrace], *images: Column) -> Column:
    """Texts of the handle key in one of ``images``; each life has as many as its key has columns."""
    texts = [text_of(k, *images) for k in key]
    sizes: dict[int, list[int]] = {}
    for n in range(len(found)):
        sizes.setdefault(sum(n in k.at for k in key), []).append(n)
    choices = [(numbers, F.array(*texts[:size])) for size, numbers in sizes.items()]
    return by_stretch(choices, other=F.lit(None).cast("array<string>"))


def _no_key() -> Column:
    """Stop: a change of no known row would leave another row in its place."""
    place = F.concat_ws(" ", F.col("_at.topic"), -F.col("_at.partition"), F.lit("offset"), -F.col("_at.offset"))
    return F.raise_error(F.concat(F.lit("A row change lacks a value of its handle key: "), place))


def valued(columns: Sequence[ColumnTrace], found: Sequence[Stretch], *, as_of: bool) -> list[Column]:
    """The table's columns with their Spark types, then ``_inferred`` and ``_unconvertible``.

    Needs ``_texts``, ``_missing``, ``_stretch`` and ``protocol``. With ``as_of`` a value is what it became by the
    last stretch: modified with its column, or the default of a column added later. Without, it is what was written.
    """
    values: list[Column] = []
    inferred: list[Column] = []
    wrong: list[Column] = []
    for i, trace in enumerate(columns):
        text = F.get(F.col("_texts"), i)
        parts = _as_of(trace, text, len(found)) if as_of else _as_written(trace, text)
        spark = (
            parsed(trace.newest.mysql_type).spark
            if as_of
            else common([parsed(c.mysql_type) for c in trace.at.values()])
        )
        none = F.lit(None).cast("string")
        values.append(by_stretch([(n, v) for n, v, _, _ in parts], other=F.lit(None).cast(spark)).alias(trace.name))
        reason = by_stretch([(n, r) for n, _, r, _ in parts], other=none)
        lacking = by_stretch(
            [(ns, F.array_contains("_missing", name)) for name, ns in grouped(trace, lambda c: c.name).items()],
            other=F.lit(False),
        )
        reason = F.when(lacking, F.lit("the event does not carry the column")).otherwise(reason)
        entry = F.struct(F.lit(trace.name).alias("column"), text.alias("value"), reason.alias("reason"))
        wrong.append(F.when(reason.isNotNull(), entry))
        own = [F.array_contains(F.array(*map(F.lit, n)), F.col("_stretch")) for n, _, _, yes in parts if yes]
        inferred.append(F.when(reduce(or_, own, F.lit(False)) & ~lacking & reason.isNull(), F.lit(trace.name)))
    return [*values, *_said(inferred, wrong)]


def _said(inferred: Sequence[Column], wrong: Sequence[Column]) -> list[Column]:
    return [
        F.array_compact(F.array(*inferred)).cast("array<string>").alias("_inferred"),
        F.array_compact(F.array(*wrong)).cast(UNCONVERTIBLE).alias("_unconvertible"),
    ]


_Part = tuple[list[int], Column, Column, bool]


def _as_written(trace: ColumnTrace, text: Column) -> list[_Part]:
    types = grouped(trace, lambda c: c.mysql_type)
    spark = common([parsed(t) for t in types])
    parts: list[_Part] = []
    for mysql_type, numbers in types.items():
        target = parsed(mysql_type)
        value, reason = typed(text, target)
        kept = text if spark == "string" != target.spark else value.cast(spark)
        parts.append((numbers, kept, reason, False))
    return parts


def _as_of(trace: ColumnTrace, text: Column, n: int) -> list[_Part]:
    last = trace.newest
    target = parsed(last.mysql_type)
    parts: list[_Part] = []
    for mysql_type, numbers in grouped(trace, lambda c: c.mysql_type).items():
        value, reason = converted(text, parsed(mysql_type), target)
        parts.append((numbers, value, reason, mysql_type != last.mysql_type))
    unborn = [i for i in range(n) if i < trace.birth]
    if unborn:
        parts.append((unborn, *_default(trace), True))
    return parts


def _default(trace: ColumnTrace) -> tuple[Column, Column]:
    """What rows hold that were written before the column was added."""
    born, target = trace.at[trace.birth], parsed(trace.newest.mysql_type)
    source, none = parsed(born.mysql_type), F.lit(None).cast("string")
    text, why = added_text(born)
    if why:
        return F.lit(None).cast(target.spark), F.lit(why)
    value = F.lit(text).cast("string")
    if source.family in ("enum", "set"):  # a label, whatever the protocol carries
        same = moved(source, target) == "same" and target.family == source.family
        return (value, none) if same else converted(none, source, target)
    return converted(value, source, target)


def added_text(born: ColumnDef) -> tuple[str | None, str]:
    """The text (of ENUM and SET the label) that rows hold which were there when a column was added.

    Returns
    -------
    tuple[str | None, str]
        The text, None for NULL; and why it cannot be told, empty if it can.
    """
    source = parsed(born.mysql_type)
    if born.computed_default or (born.default is not None and source.name == "timestamp"):
        why = "the default is computed when the column is added" if born.computed_default else (
            "the default is in the time zone of a session that the log does not name"
        )  # fmt: skip
        return None, f"the column was added later, and {why}"
    text = born.default
    if text is None:
        text = None if born.nullable else _zero(source.family, source.elements, source.scale)
    elif source.family == "binary":
        text = "0x" + text.encode().hex()
    elif source.family == "decimal" and "." not in text and source.scale:
        text = f"{text}.{'0' * source.scale}"
    return text, ""


def _zero(family: str, elements: Sequence[str], scale: int) -> str:
    zeros = {
        "decimal": f"0.{'0' * scale}" if scale else "0",
        "enum": elements[0] if elements else "",
        "set": "",
        "binary": "0x",
    }
    zeros |= {"text": "", "date": "0000-00-00", "datetime": "0000-00-00 00:00:00", "time": "00:00:00", "other": "null"}
    return zeros.get(family, "0")


def unseen_columns(found: Sequence[Stretch]) -> list[str]:
    """Virtual generated columns at the end, which no event carries."""
    seen = {c.name for c in carried(found[-1].definition)}
    return [c.name for c in found[-1].definition.columns if c.name not in seen and not c.hidden]
