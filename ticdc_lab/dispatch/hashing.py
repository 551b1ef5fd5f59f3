"""TiCDC's partition hash as native Spark expressions, bit for bit.

``h = crc32(schema || table)``, XORed with ``crc32(name || value bytes)`` for every chosen column: no separator, no
length, no seed, no column order (TiCDC ``pkg/hash``, PositionInertia; golden README section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import computed_once, expanded_float, parts_of
from ticdc_lab.schema import DISPATCH

Flavour = Literal["new", "classic"]
"""``new``: pingcap/ticdc, which skips a NULL column. ``classic``: pingcap/tiflow, which hashes the text ``null``."""

HASH_BITS = 32
IMAGE, WIDE, HASH = "_dispatch_image", "_dispatch_wide", "_dispatch_hash"
"""Scratch columns, dropped before a frame leaves the package."""

_SEPARATOR = "\x01"
_BINARY_TYPE = "^(binary|varbinary|(tiny|medium|long)?blob)"
_ENCODED_TYPE = "^(binary|varbinary|(tiny|medium|long)?blob|float|double|enum|set)"


def table_hash() -> Column:
    """Hash (bigint, 32 bits) of the event's table: where every dispatch hash starts."""
    return F.crc32(F.concat("schema_name", "table_name").cast("binary"))


def dispatched_image() -> Column:
    """The image TiCDC hashes: the old row of a delete, else the new row, also of an update that was not split."""
    return F.when(F.col("op") == "delete", F.coalesce("before", "columns")).otherwise(F.col("columns"))


def column_hash(c: Column, *, flavour: Flavour) -> Column:
    """Hash (bigint, 32 bits) of one column of an image; 0 where TiCDC skips it, null where it cannot be known.

    Parameters
    ----------
    c
        ``struct<name, mysql_type, value, ...>`` of the events contract.
    flavour
        What a NULL does, see :data:`Flavour`.

    Notes
    -----
    TiCDC hashes the number of an ENUM or SET; a protocol that carries only the label leaves the hash unknown.
    """
    name, mysql_type, value = c["name"], c["mysql_type"], c["value"]
    label = mysql_type.startswith("enum") | mysql_type.startswith("set")
    floating = mysql_type.startswith("float") | mysql_type.startswith("double")
    return (
        F.when(
            value.startswith("0x") & mysql_type.rlike(_BINARY_TYPE),
            F.crc32(F.concat(name.cast("binary"), F.unhex(F.substring(value, F.lit(3), F.length(value))))),
        )
        .when(value.isNotNull() & floating, F.crc32(F.concat(name, expanded_float(value)).cast("binary")))
        .when(label & ~value.rlike("^[0-9]+$"), F.lit(None).cast("bigint"))
        .otherwise(_text_hash(c, flavour=flavour))
    )


def _text_hash(c: Column, *, flavour: Flavour) -> Column:
    """:func:`column_hash` of a column whose text is what TiCDC hashes."""
    if flavour == "classic":
        return F.crc32(F.concat(c["name"], F.coalesce(c["value"], F.lit("null"))).cast("binary"))
    return F.when(c["value"].isNull(), F.lit(0).cast("bigint")).otherwise(
        F.crc32(F.concat(c["name"], c["value"]).cast("binary"))
    )


def with_crcs(events: DataFrame) -> DataFrame:
    """Add the columns of :data:`ticdc_lab.schema.DISPATCH` to events that do not have them yet.

    ``row_bytes`` of such events is estimated by the names and values of both images.
    """
    missing = [name for name in DISPATCH.names if name not in events.columns]
    if not missing:
        return events
    known = {
        "column_crcs": _column_crcs(),
        "key_crc": fold(dispatched_image(), lambda c: c["is_key"], flavour="new").bitwiseXOR(table_hash()),
        "layout": _layout(),
        "row_bytes": _image_bytes("columns") + _image_bytes("before"),
    }
    is_row = F.col("kind") == "row"
    return events.withColumns({name: F.when(is_row, known[name]) for name in missing}) if missing else events


def _column_crcs() -> Column:
    def crc(c: Column) -> Column:
        known = F.coalesce(column_hash(c, flavour="new"), F.lit(-1).cast("bigint"))
        return F.when(c["value"].isNotNull(), known)

    return F.transform(dispatched_image(), crc)


def _layout() -> Column:
    def joined(image: Column) -> Column:
        return F.array_join(F.transform(image, lambda c: F.replace(c["name"], F.lit(","), F.lit("\x1f"))), ",")

    image = dispatched_image()
    return F.concat(joined(image), F.lit(",,"), joined(F.filter(image, lambda c: c["is_key"])))


def _image_bytes(image: str) -> Column:
    def size(c: Column) -> Column:
        return F.octet_length(c["name"]) + F.coalesce(F.octet_length(c["value"]), F.lit(4))

    total = F.aggregate(image, F.lit(0).cast("bigint"), lambda acc, c: acc + size(c))
    return F.coalesce(total, F.lit(0).cast("bigint"))


@dataclass(frozen=True, slots=True)
class Choice:
    """Which columns of the image :data:`IMAGE` enter the hash.

    Nearly every key has one or two columns whose text is hashed as it is. Their ``positions`` (int from 1; 0 or null
    for none; each may use the :func:`position` before it) are found and hashed by expressions that Spark compiles. A
    lambda over the array is interpreted and needs the image copied, so the columns for which ``chosen`` holds are
    hashed by one only where ``more`` holds or a type needs its bytes recovered.
    """

    positions: tuple[Column, ...]
    more: Column
    chosen: Callable[[Column], Column]


def position(i: int) -> str:
    """Scratch column with the i-th position of a :class:`Choice`."""
    return f"_dispatch_position{i}"


def element(i: int) -> str:
    """Scratch column with the column of the image at :func:`position`."""
    return f"_dispatch_element{i}"


# what fits into one method that the JVM compiles (8,000 bytes of code); a key's positions cost more to find
_KEY_POSITIONS, _LISTED_POSITIONS, _NAMED_POSITIONS = 2, 3, 4


def key_columns() -> Choice:
    """The handle key, by the ``is_key`` of the events contract."""
    is_key = F.col(f"{IMAGE}.is_key")
    found = [F.array_position(is_key, F.lit(True)).cast("int")]
    found += [_position_after(is_key, F.col(position(i))) for i in range(_KEY_POSITIONS)]
    return Choice(tuple(found[:-1]), F.coalesce(found[-1] > 0, F.lit(False)), lambda c: c["is_key"])


def columns_named(names: Sequence[str]) -> Choice:
    """The columns of these lower-case names, whatever their case in the image."""
    found = [F.array_position(lower_names(), F.lit(n)).cast("int") for n in names[:_NAMED_POSITIONS]]
    more = F.lit(len(names) > _NAMED_POSITIONS)
    return Choice(tuple(found), more, lambda c: F.lower(c["name"]).isin(list(names)))


def columns_listed(names: Column, *, among: Collection[Sequence[str]]) -> Choice:
    """The columns whose exact names are in ``names`` (array<string>), which is one of the lists ``among``."""
    most = max(map(len, among), default=0)
    have = F.col(f"{IMAGE}.name")
    found = [F.array_position(have, F.get(names, i)).cast("int") for i in range(_LISTED_POSITIONS)]
    more = F.lit(most > _LISTED_POSITIONS) & (F.size(names) > _LISTED_POSITIONS)
    return Choice(tuple(found), more, lambda c: F.array_contains(names, c["name"]))


def lower_names() -> Column:
    """Lower-case column names of :data:`IMAGE` (array<string>), without a lambda."""
    return parts_of(F.lower(F.array_join(F.col(f"{IMAGE}.name"), _SEPARATOR)), _SEPARATOR)


def only_keys() -> Column:
    """Whether the image holds nothing but the handle key."""
    return ~F.array_contains(F.col(f"{IMAGE}.is_key"), F.lit(False))


def with_hash(events: DataFrame, *, choice: Choice, flavour: Flavour) -> DataFrame:
    """Add the scratch columns, up to :data:`HASH`, in small steps: one large expression is beyond the JVM's compiler.

    :data:`HASH` (bigint) holds the hash in the low 32 bits (:func:`hash_of`) and the number of chosen columns above
    (:func:`count_of`). It is null if there is no image or a chosen value cannot be hashed.
    """
    out = events if IMAGE in events.columns else events.withColumn(IMAGE, dispatched_image())
    for i, found in enumerate(choice.positions):
        out = computed_once(out, {position(i): found})
    slots = range(len(choice.positions))
    out = computed_once(out, {element(i): F.get(IMAGE, F.col(position(i)) - 1) for i in slots})
    out = computed_once(out, {HASH: F.when(F.col(IMAGE).isNotNull(), table_hash())})
    wide = choice.more
    for i in slots:
        column, h = F.col(element(i)), F.col(HASH)
        hashed = h.bitwiseXOR(_text_hash(column, flavour=flavour)) + F.lit(1 << HASH_BITS)
        out = computed_once(out, {HASH: F.when(column.isNull(), h).otherwise(hashed)})
        wide = wide | F.coalesce(column["mysql_type"].rlike(_ENCODED_TYPE), F.lit(False))
    # null for nearly all rows, so that the interpreted step does not carry the images
    out = computed_once(out, {WIDE: F.when(wide, F.col(IMAGE))})
    rest = F.col(WIDE)
    folded = fold(rest, choice.chosen, flavour=flavour)
    return computed_once(out, {HASH: F.when(rest.isNull(), F.col(HASH)).otherwise(folded)})


def fold(image: Column, chosen: Callable[[Column], Column], *, flavour: Flavour) -> Column:
    """What :data:`HASH` holds, for any number of columns, in one pass over the image."""

    def step(acc: Column, c: Column) -> Column:
        hashed = acc.bitwiseXOR(column_hash(c, flavour=flavour)) + F.lit(1 << HASH_BITS)
        return F.when(chosen(c), hashed).otherwise(acc)

    return F.aggregate(image, table_hash(), step)


def hash_of(folded: Column) -> Column:
    """The 32-bit hash (bigint) in :data:`HASH`."""
    return folded.bitwiseAND(F.lit((1 << HASH_BITS) - 1))


def count_of(folded: Column) -> Column:
    """The number (bigint) of chosen columns in :data:`HASH`."""
    return F.shiftright(folded, HASH_BITS)


def _position_after(array: Column, previous: Column) -> Column:
    """Position of the next true value, null for none."""
    rest = F.when((previous > 0) & (previous < F.size(array)), F.slice(array, previous + 1, F.size(array)))
    at = F.array_position(rest, F.lit(True)).cast("int")
    return F.when(at > 0, previous + at)
