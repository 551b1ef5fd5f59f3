"""Row changes of one table as versions of rows, each change once; and the stretches in which its definition is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import computed_once, field_of, no_texts, nullable
from ticdc_lab.errors import IncompleteHistoryError
from ticdc_lab.events.changes import op_rank
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.tables.lives import Life
from ticdc_lab.tables.mysql_types import common, converted, moved, parsed, typed


@dataclass(frozen=True, slots=True)
class Stretch:
    """Row changes of ``name`` with ``since < commit_ts <= until`` (TSO; None: no bound), under one definition."""

    life: int
    name: TableName
    since: int | None
    until: int | None
    definition: TableDef


@dataclass(frozen=True, slots=True)
class ColumnTrace:
    """One column through the stretches: what it was in each, by the stretch's number."""

    name: str
    at: Mapping[int, ColumnDef]

    @property
    def newest(self) -> ColumnDef:
        """What it is in the last stretch that has it."""
        return self.at[max(self.at)]

    @property
    def birth(self) -> int:
        """The first stretch that has it."""
        return min(self.at)


def stretches(lives: Sequence[Life]) -> list[Stretch]:
    """The pieces of all lives cut at their changes of definition, oldest first."""
    found = []
    for n, life in enumerate(lives):
        for piece in life.pieces:
            for epoch in life.epochs:
                since, until = _later(piece.since, epoch.since), _earlier(piece.until, epoch.until)
                at_end = piece is life.pieces[-1] and epoch is life.epochs[-1]  # also without a row, it shows what is
                if since is None or until is None or since < until or at_end:
                    found.append(Stretch(n, piece.name, since, until, epoch.definition))
    return found


def _later(a: int | None, b: int | None) -> int | None:
    return max(a, b) if a is not None and b is not None else a if b is None else b


def _earlier(a: int | None, b: int | None) -> int | None:
    return min(a, b) if a is not None and b is not None else a if b is None else b


def stretch_number(found: Sequence[Stretch]) -> Column:
    """The number (int) of the stretch that a row change lies in; null for changes of other tables."""
    chosen = F.lit(None).cast("int")
    for n, s in reversed(list(enumerate(found))):
        here = (F.col("schema_name") == s.name[0]) & (F.col("table_name") == s.name[1])
        if s.since is not None:
            here &= F.col("commit_ts") > s.since
        if s.until is not None:
            here &= F.col("commit_ts") <= s.until
        chosen = F.when(here, F.lit(n)).otherwise(chosen)
    return chosen


def carried(definition: TableDef) -> list[ColumnDef]:
    """The columns that row events carry: no hidden ones, no virtual generated ones."""
    return [c for c in definition.columns if not c.hidden and c.generated != "virtual"]


def traces(found: Sequence[Stretch], *, all_columns: bool) -> list[ColumnTrace]:
    """Follow the columns through the stretches.

    ``found``: stretches, oldest first. ``all_columns``: also those that are not there at the end. A column that another
    of the same name replaced is then called ``name@commit_ts``, the TSO from which on it is gone.
    """
    by_identity: dict[tuple[int, object], dict[int, ColumnDef]] = {}
    for n, s in enumerate(found):
        for c in carried(s.definition):
            by_identity.setdefault((s.life, c.id or c.name.lower()), {})[n] = c
    last = len(found) - 1
    newest_first = sorted(by_identity.values(), key=lambda at: -max(at))
    named: dict[str, ColumnTrace] = {}
    for at in newest_first if all_columns else [a for a in newest_first if last in a]:
        name, end = at[max(at)].name, max(at)
        twin = named.get(name.lower())
        if twin is not None and {found[n].life for n in twin.at} & {found[n].life for n in at}:
            name, twin = f"{name}@{found[end].until}", None
        both = at if twin is None else {**at, **twin.at}
        named[name.lower()] = ColumnTrace(name if twin is None else twin.name, both)
    order = {c.name.lower(): i for i, c in enumerate(carried(found[-1].definition))} if found else {}
    return sorted(named.values(), key=lambda t: (order.get(t.name.lower(), len(order)), t.birth, t.name))


def key_traces(found: Sequence[Stretch], *, table: str) -> list[ColumnTrace]:
    """The columns of the handle key, for each life the same from its beginning to its end; empty without one.

    Raises IncompleteHistoryError: the handle key changed inside a life, or the texts of its values did: rows before and
    after cannot be matched.
    """
    columns: dict[tuple[int, int], dict[int, ColumnDef]] = {}
    seen: dict[int, tuple[object, ...]] = {}
    for n, s in enumerate(found):
        handle = [c for name in s.definition.handle_columns if (c := s.definition.column(name)) is not None]
        handle.sort(key=lambda c: (c.id, c.name))
        identity = tuple(c.id or c.name.lower() for c in handle)
        before = seen.setdefault(s.life, identity)
        if before != identity:
            raise _key_changed(table, s)
        for place, c in enumerate(handle):
            earlier = columns.setdefault((s.life, place), {})
            if earlier and moved(parsed(earlier[max(earlier)].mysql_type), parsed(c.mysql_type)) != "same":
                raise _key_changed(table, s)
            earlier[n] = c
    places = sorted({place for _, place in columns})
    return [_merged(place, columns) for place in places]


def _merged(place: int, columns: Mapping[tuple[int, int], Mapping[int, ColumnDef]]) -> ColumnTrace:
    at = {n: c for (_, p), of in columns.items() if p == place for n, c in of.items()}
    return ColumnTrace(at[max(at)].name, at)


def _key_changed(table: str, s: Stretch) -> IncompleteHistoryError:
    return IncompleteHistoryError(
        f"{table}: the DDL of commit_ts {s.since} changes its handle key; rows before and after it cannot be matched.",
        hint="Give a timestamp before that DDL with --as-of, or load a log that begins after it.",
    )


def by_stretch(choices: Iterable[tuple[Sequence[int], Column]], *, other: Column) -> Column:
    """Choose by the number of the stretch in ``_stretch``."""
    chosen = other
    for numbers, column in choices:
        chosen = F.when(F.col("_stretch").isin(*numbers), column).otherwise(chosen)
    return chosen


def grouped(trace: ColumnTrace, of: Callable[[ColumnDef], str]) -> dict[str, list[int]]:
    """Numbers of the stretches in which the column has the same ``of``."""
    groups: dict[str, list[int]] = {}
    for n, c in trace.at.items():
        groups.setdefault(of(c), []).append(n)
    return groups


@dataclass(frozen=True, slots=True)
class ImageParts:
    """What :func:`with_images` keeps of an image: its columns' names and their texts, null where there is no image."""

    name: str

    @property
    def names(self) -> Column:
        """Names of the columns that it carries."""
        return F.col(f"_{self.name}_names")

    @property
    def texts(self) -> Column:
        """Their texts."""
        return F.col(f"_{self.name}_texts")


AFTER, BEFORE = ImageParts("columns"), ImageParts("before")


def with_images(changes: DataFrame) -> DataFrame:
    """Add what :data:`AFTER` and :data:`BEFORE` read, taken apart once for all columns of a table."""
    fields = {"names": "name", "texts": "value"}
    parts = {f"_{i.name}_{part}": field_of(F.col(i.name), of) for i in (AFTER, BEFORE) for part, of in fields.items()}
    return computed_once(changes, parts)


def text_of(trace: ColumnTrace, *images: ImageParts) -> Column:
    """The column's text in the first of ``images`` that carries it (null is NULL or not carried)."""
    found = F.lit(None).cast("string")
    for name, numbers in grouped(trace, lambda c: c.name).items():
        here = F.lit(None).cast("string")
        for image in reversed(images):
            place = F.array_position(image.names, name).cast("int")
            here = F.when(place > 0, F.get(image.texts, place - 1)).otherwise(here)
        found = F.when(F.col("_stretch").isin(*numbers), here).otherwise(found)
    return found


def not_carried(found: Sequence[Stretch], image: ImageParts) -> Column:
    """Names (array<string>) of columns of the definition that are missing in ``image``; null without an image."""
    names: dict[tuple[str, ...], list[int]] = {}
    for n, s in enumerate(found):
        names.setdefault(tuple(c.name for c in carried(s.definition)), []).append(n)
    own = image.names
    choices = [
        (
            numbers,
            F.when(own.isNotNull(), F.filter(F.array(*map(F.lit, of)), lambda name: ~F.array_contains(own, name))),
        )
        for of, numbers in names.items()
    ]
    return by_stretch(choices, other=F.lit(None).cast("array<string>"))


UNCONVERTIBLE = "array<struct<column: string, value: string, reason: string>>"


def changes_of(events: DataFrame, found: Sequence[Stretch]) -> DataFrame:
    """Row changes of the table with ``_stretch`` (int); rows without commit_ts are left out."""
    names = sorted({s.name for s in found})  # repeated as plain comparisons, which a file can skip rows by
    named = reduce(or_, [(F.col("schema_name") == s) & (F.col("table_name") == t) for s, t in names])
    rows = events.where((F.col("kind") == "row") & F.col("commit_ts").isNotNull() & named)
    return rows.withColumn("_stretch", stretch_number(found)).where("_stretch IS NOT NULL")


def delivery_place() -> Column:
    """Of several deliveries the first in offset counts: Kafka orders one partition only, any fixed rule will do."""
    first = {name: (-F.col(name)).alias(name) for name in ("offset", "partition")}
    return F.struct(first["offset"], first["partition"], "topic", (-F.coalesce("seq", F.lit(0))).alias("seq"))


def keyed_changes(
    changes: DataFrame, found: Sequence[Stretch], key: Sequence[ColumnTrace], columns: Sequence[ColumnTrace]
) -> DataFrame:
    """What each change does to each key it touches; an update that changes the key also deletes the old one.

    Returns: ``_life`` (int), ``_key`` (array<string>), ``commit_ts``, ``_rank`` (the last of a transaction counts: a
    delete frees the key before an update or insert takes it), ``_at`` (struct: place in the log), and ``_row``: struct
    of ``op``, ``texts`` (array<string>, by ``columns``), ``missing`` (array<string>), ``incomplete``, ``_stretch``,
    ``protocol``.
    """
    is_delete = F.col("op") == "delete"
    changes = computed_once(
        with_images(changes),
        {"_old_key": _key(found, key, BEFORE, AFTER), "_new_key": _key(found, key, AFTER)}
        | {f"_{i.name}_row": F.array(*[text_of(c, i) for c in columns]) for i in (AFTER, BEFORE)}
        | {f"_{i.name}_missing": F.coalesce(not_carried(found, i), no_texts()) for i in (AFTER, BEFORE)},
    )
    old_key, new_key = F.col("_old_key"), F.col("_new_key")
    left = (F.col("op") == "update") & F.col("before").isNotNull() & (old_key != new_key)

    def effect(at: Column, op: Column, image: ImageParts) -> Column:
        row = F.struct(
            nullable(op, because=F.col("commit_ts")).alias("op"),
            F.col(f"_{image.name}_row").alias("texts"),
            F.col(f"_{image.name}_missing").alias("missing"),
            *("incomplete", "_stretch", "protocol"),
        )
        return F.struct(
            at.alias("_key"), nullable(op_rank(op), because=F.col("commit_ts")).alias("_rank"), row.alias("_row")
        )

    gone = F.when(left, effect(old_key, F.lit("delete"), BEFORE))
    own = F.when(is_delete, effect(old_key, F.col("op"), BEFORE)).otherwise(effect(new_key, F.col("op"), AFTER))
    life = by_stretch([([n], F.lit(s.life)) for n, s in enumerate(found)], other=F.lit(None).cast("int"))
    each = changes.select(
        life.alias("_life"),
        "commit_ts",
        delivery_place().alias("_at"),
        F.explode(F.array_compact(F.array(gone, own))).alias("_e"),
    )
    return each.select("_life", key_or_stop("_e._key").alias("_key"), "commit_ts", "_e._rank", "_at", "_e._row")


def _key(found: Sequence[Stretch], key: Sequence[ColumnTrace], *images: ImageParts) -> Column:
    """Texts of the handle key in one of ``images``; each life has as many as its key has columns."""
    texts = [text_of(k, *images) for k in key]
    sizes: dict[int, list[int]] = {}
    for n in range(len(found)):
        sizes.setdefault(sum(n in k.at for k in key), []).append(n)
    choices = [(numbers, F.array(*texts[:size])) for size, numbers in sizes.items()]
    return by_stretch(choices, other=F.lit(None).cast("array<string>"))


def key_or_stop(key: str) -> Column:
    """The texts of a key; a change of no known row, which would leave another row in its place, stops the job."""
    place = F.concat_ws(" ", F.col("_at.topic"), -F.col("_at.partition"), F.lit("offset"), -F.col("_at.offset"))
    stop = F.raise_error(F.concat(F.lit("A row change has no value of its handle key: "), place))
    return F.when(F.exists(key, F.isnull), stop.cast("array<string>")).otherwise(F.col(key))


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
    if source.family in ("enum", "set"):  # a label in any protocol
        same = moved(source, target) == "same" and target.family == source.family
        return (value, none) if same else converted(none, source, target)
    return converted(value, source, target)


def added_text(born: ColumnDef) -> tuple[str | None, str]:
    """The text (of ENUM and SET the label) that rows hold which were there when a column was added.

    Returns: the text, None for NULL; and why it is unknown, else empty.
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
