"""TiCDC's partition hash as native Spark expressions, bit for bit, without reading an image.

``h = crc32(schema || table)``, XORed with ``crc32(name || value bytes)`` for every chosen column: no separator, no
length, no seed, no column order (TiCDC ``pkg/hash``, PositionInertia). The crcs are in
:data:`ticdc_lab.events.schema.DISPATCH`; only a row's layout, a short text, is searched for the columns that are
chosen. A lambda is used only for a NULL in a key: Spark fuses no step that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import computed_once, parts_of

Flavour = Literal["new", "classic"]
"""``new``: pingcap/ticdc, which skips a NULL column. ``classic``: pingcap/tiflow, which hashes the text ``null``."""
FLAVOURS: tuple[Flavour, ...] = ("new", "classic")

HASH_BITS = 32
HASH, LOWER = "_dispatch_hash", "_dispatch_layout"
"""Scratch columns, dropped before a frame leaves the package: the hash, and the layout in lower case."""
UNNAMED_ROW = "_dispatch_unnamed"
"""Scratch column of :func:`ticdc_lab.dispatch.own_names.by_own_names`: why a row's names are not known, or null."""

UNKNOWN = -1
_COMMA, _INSIDE, _BETWEEN, _KEYS = ",", "\x1f", "\x01", ",,"


def table_hash() -> Column:
    """Hash (bigint, 32 bits) of the event's table: where every dispatch hash starts."""
    return F.crc32(F.concat("schema_name", "table_name").cast("binary"))


def dispatched_image() -> Column:
    """The image TiCDC hashes: the old row of a delete, else the new row, also of an update that was not split."""
    return F.when(F.col("op") == "delete", F.coalesce("before", "columns")).otherwise(F.col("columns"))


def hash_of(folded: Column) -> Column:
    """The 32-bit hash (bigint) in :data:`HASH`."""
    return folded.bitwiseAND(F.lit((1 << HASH_BITS) - 1))


def count_of(folded: Column) -> Column:
    """The number (bigint) of chosen columns in :data:`HASH`."""
    return F.shiftright(folded, HASH_BITS)


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Which columns enter the hash: ``hashed`` gives what :data:`HASH` holds.

    That is the hash in the low 32 bits (:func:`hash_of`) and the number of chosen columns above (:func:`count_of`);
    null if there is no image, or a chosen value cannot be hashed.

    It may use the scratch columns :func:`at` and :func:`crc`: where the image has the i-th of ``positions`` (int from
    1; 0 or null for none), and the crc there.
    """

    hashed: Callable[[Flavour], Column]
    positions: tuple[Column, ...] = ()


def at(i: int) -> str:
    """Scratch column with the i-th position of a :class:`ColumnChoice`."""
    return f"_dispatch_at{i}"


def crc(i: int) -> str:
    """Scratch column with the crc at :func:`at`."""
    return f"_dispatch_crc{i}"


def with_hash(events: DataFrame, *, choice: ColumnChoice, flavour: Flavour) -> DataFrame:
    """Add :data:`HASH` and the scratch columns it needs, in steps: each is computed once, however often it is used."""
    out, slots = events.withColumn(LOWER, F.lower("layout")), range(len(choice.positions))
    out = computed_once(out, {at(i): F.coalesce(choice.positions[i], F.lit(0)) for i in slots})
    out = computed_once(out, {crc(i): F.get("column_crcs", F.col(at(i)) - 1) for i in slots})
    return computed_once(out, {HASH: choice.hashed(flavour)})


def key_columns() -> ColumnChoice:
    """The handle key. Only the classic flavour of a row with a NULL needs more than ``key_crc``."""

    def hashed(flavour: Flavour) -> Column:
        from_key = table_hash().bitwiseXOR(F.col("key_crc"))
        if flavour == "new":
            return from_key
        some_null = F.size(F.array_except(F.array(F.lit(None).cast("bigint")), "column_crcs")) == 0
        keys = F.array_remove(parts_of(F.substring_index("layout", _KEYS, -1), _COMMA), "")
        of_each = F.aggregate(keys, table_hash(), lambda acc, name: _of_name(acc, name, flavour))
        return F.when(F.col("column_crcs").isNotNull(), F.when(some_null, of_each).otherwise(from_key))

    return ColumnChoice(hashed)


def columns_named(names: Sequence[str]) -> ColumnChoice:
    """The columns of these lower-case names, in any case in the image."""
    written = [name.replace(_COMMA, _INSIDE) for name in names]
    return _of_positions([F.find_in_set(F.lit(name), LOWER) if name else F.lit(0) for name in written])


def columns_of(names: Column, *, most: int) -> ColumnChoice:
    """The columns whose lower-case names are in ``names`` (array<string>), at most so many, in any case."""

    def place(i: int) -> Column:
        name = F.replace(F.get(names, i), F.lit(_COMMA), F.lit(_INSIDE))
        return F.when(name != "", F.find_in_set(name, LOWER))

    return _of_positions([place(i) for i in range(most)])


def columns_listed(names: Column, *, among: Collection[Sequence[str]]) -> ColumnChoice:
    """The columns whose exact names are in ``names`` (array<string>), which is one of the lists ``among``."""
    if len(among) == 1:  # found by what Spark can compile in
        return _of_positions([_position(F.lit(name)) for name in next(iter(among))])
    return _of_positions([_position(F.get(names, i)) for i in range(max(map(len, among), default=0))])


def _of_positions(positions: Sequence[Column]) -> ColumnChoice:
    def hashed(flavour: Flavour) -> Column:
        acc = _start()
        for i in range(len(positions)):
            acc = _step(acc, F.col(at(i)), F.col(crc(i)), flavour)
        return acc

    return ColumnChoice(hashed, tuple(positions))


def lower_names() -> Column:
    """Lower-case names of the image's columns (array<string>)."""
    return parts_of(_apart(F.substring_index(LOWER, _KEYS, 1)), _BETWEEN)


def _apart(names: Column) -> Column:
    """Names with their commas, and what no name holds between them."""
    return F.translate(names, _COMMA + _INSIDE, _BETWEEN + _COMMA)


def only_keys() -> Column:
    """Whether the image holds nothing but the handle key."""
    return F.substring_index("layout", _KEYS, 1) == F.substring_index("layout", _KEYS, -1)


def _position(name: Column) -> Column:
    """Place of a name in the layout, from 1; 0 for none, null for no name."""
    return F.find_in_set(F.replace(name, F.lit(_COMMA), F.lit(_INSIDE)), "layout")


def _start() -> Column:
    return F.when(F.col("column_crcs").isNotNull(), table_hash())


def _of_name(acc: Column, name: Column, flavour: Flavour) -> Column:
    position = F.find_in_set(name, "layout")
    return _step(acc, position, F.get("column_crcs", position - 1), flavour)


def _step(acc: Column, position: Column, crc: Column, flavour: Flavour) -> Column:
    """Let the column at ``position`` (from 1, 0 for none) into the hash, and count it above its bits."""
    known = F.when(crc != UNKNOWN, crc)
    hashed = F.when(crc.isNull(), _of_null(position, flavour)).otherwise(known)
    there, none = position > 0, F.lit(0).cast("bigint")
    # acc is used once, so that the expression grows no faster than the number of columns
    return acc.bitwiseXOR(F.when(there, hashed).otherwise(none)) + F.when(there, F.lit(1 << HASH_BITS)).otherwise(none)


def _of_null(position: Column, flavour: Flavour) -> Column:
    if flavour == "new":
        return F.lit(0).cast("bigint")
    name = F.get(parts_of(_apart(F.substring_index("layout", _KEYS, 1)), _BETWEEN), position - 1)
    return F.crc32(F.concat(name, F.lit("null")).cast("binary"))
