"""TiCDC's partition hash from the columns of :data:`ticdc_lab.schema.DISPATCH`, without reading an image.

What comes out is what :mod:`ticdc_lab.dispatch.hashing` computes from the images; only a row's layout, a short text, is
searched for the columns that are chosen. No lambda is used but for a NULL in a key: Spark fuses no step that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.hashing import HASH, HASH_BITS, Flavour, table_hash
from ticdc_lab.schema import DISPATCH

LOWER = "_dispatch_layout"
"""Scratch column: the layout in lower case."""

UNKNOWN = -1
_COMMA, _INSIDE, _BETWEEN, _KEYS = ",", "\x1f", "\x01", ",,"


@dataclass(frozen=True, slots=True)
class CrcChoice:
    """Which columns enter the hash: ``hashed`` gives what :data:`ticdc_lab.dispatch.hashing.HASH` holds."""

    hashed: Callable[[Flavour], Column]


def available(events: DataFrame) -> bool:
    """Whether the frame has what this module reads."""
    return set(DISPATCH.names) - {"row_bytes"} <= set(events.columns)


def with_hash(events: DataFrame, *, choice: CrcChoice, flavour: Flavour) -> DataFrame:
    """Add :data:`HASH` and the scratch columns it needs."""
    lower = events.withColumn(LOWER, F.lower("layout"))
    return lower.withColumn(HASH, choice.hashed(flavour))


def key_columns() -> CrcChoice:
    """The handle key. Only the classic flavour of a row with a NULL needs more than ``key_crc``."""

    def hashed(flavour: Flavour) -> Column:
        from_key = table_hash().bitwiseXOR(F.col("key_crc"))
        if flavour == "new":
            return from_key
        # null exactly if an element is, as none is -2
        some_null = F.array_contains("column_crcs", F.lit(-2).cast("bigint")).isNull()
        keys = F.array_remove(F.split(F.substring_index("layout", _KEYS, -1), _COMMA), "")
        of_each = F.aggregate(keys, table_hash(), lambda acc, name: _step(acc, F.find_in_set(name, "layout"), flavour))
        return F.when(F.col("column_crcs").isNotNull(), F.when(some_null, of_each).otherwise(from_key))

    return CrcChoice(hashed)


def columns_named(names: Sequence[str]) -> CrcChoice:
    """The columns of these lower-case names, whatever their case in the image."""

    def hashed(flavour: Flavour) -> Column:
        acc = _start()
        for name in names:
            acc = _step(acc, F.find_in_set(F.lit(name.replace(_COMMA, _INSIDE)), LOWER) if name else F.lit(0), flavour)
        return acc

    return CrcChoice(hashed)


def columns_listed(names: Column, *, most: int) -> CrcChoice:
    """The columns whose exact names are in ``names`` (array<string>), which are ``most`` or fewer."""

    def hashed(flavour: Flavour) -> Column:
        acc = _start()
        for i in range(most):
            acc = _step(acc, _position(F.get(names, i)), flavour)
        return acc

    return CrcChoice(hashed)


def lower_names() -> Column:
    """Lower-case names of the image's columns (array<string>)."""
    return F.split(_apart(F.substring_index(LOWER, _KEYS, 1)), _BETWEEN)


def _apart(names: Column) -> Column:
    """Names with their commas, and what no name holds between them."""
    return F.translate(names, _COMMA + _INSIDE, _BETWEEN + _COMMA)


def only_keys() -> Column:
    """Whether the image holds nothing but the handle key."""
    return F.substring_index("layout", _KEYS, 1) == F.substring_index("layout", _KEYS, -1)


def _position(name: Column) -> Column:
    """Place of a name in the layout, from 1; 0 for none, also for no name."""
    at = F.find_in_set(F.replace(name, F.lit(_COMMA), F.lit(_INSIDE)), "layout")
    return F.coalesce(at, F.lit(0))


def _start() -> Column:
    return F.when(F.col("column_crcs").isNotNull(), table_hash())


def _step(acc: Column, position: Column, flavour: Flavour) -> Column:
    """Let the column at ``position`` (from 1, 0 for none) into the hash, and count it above its bits."""
    crc = F.get("column_crcs", position - 1)
    known = F.when(crc != UNKNOWN, crc)
    hashed = F.when(crc.isNull(), _of_null(position, flavour)).otherwise(known)
    there, none = position > 0, F.lit(0).cast("bigint")
    # acc is used once, so that the expression grows no faster than the number of columns
    return acc.bitwiseXOR(F.when(there, hashed).otherwise(none)) + F.when(there, F.lit(1 << HASH_BITS)).otherwise(none)


def _of_null(position: Column, flavour: Flavour) -> Column:
    if flavour == "new":
        return F.lit(0).cast("bigint")
    name = F.get(F.split(_apart(F.substring_index("layout", _KEYS, 1)), _BETWEEN), position - 1)
    return F.crc32(F.concat(name, F.lit("null")).cast("binary"))
