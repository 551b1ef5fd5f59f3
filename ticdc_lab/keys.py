"""Row identity as 64-bit hashes, so that audits and restoration never shuffle whole images.

Both are Spark's own ``xxhash64`` (seed 42), which folds its arguments from left to right and skips nulls; the
vectorised decoders compute the same numbers (:mod:`ticdc_lab.codecs`), which a test compares.

- ``key_hash``: ``xxhash64(schema_name, table_name, values of the handle key columns in column order)``.
- ``change_hash``: ``xxhash64(schema_name, table_name, op, after, before)`` where an image is, column by column,
  ``name, value, value is null``.
- ``image_hash``: of an image the XOR of ``xxhash64(name)`` of its columns in the high 32 bits, and of ``xxhash64(name,
  value, value is null)`` in the low 32: the order of columns does not matter, and images of other columns are told
  apart from those of other values.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.schema import IMAGE_HASHES, require_columns


def key_hash(image: Column, *, fallback: Column | None = None) -> Column:
    """Hash (bigint) of the handle key of ``image``; null when it has no handle key or the image is null.

    With ``fallback``, the key columns are those of ``fallback`` and a value that ``image`` lacks is taken from it
    (``only-output-updated-columns`` leaves equal columns out of the old image).
    """
    keys = F.filter(image if fallback is None else fallback, lambda c: c["is_key"])

    def value(c: Column) -> Column:
        if fallback is None:
            return c["value"]
        own = F.get(F.filter(image, lambda b: b["name"] == c["name"]), 0)
        return F.when(own.isNull(), c["value"]).otherwise(own["value"])

    return F.when(F.size(keys) > 0, F.xxhash64("schema_name", "table_name", F.transform(keys, value)))


def change_hash() -> Column:
    """Hash (bigint) of a whole row change; null unless ``kind`` is ``row``."""

    def flat(image: str) -> Column:
        return F.transform(image, lambda c: F.struct(c["name"], c["value"], c["value"].isNull()))

    return F.when(
        F.col("kind") == "row",
        F.xxhash64("schema_name", "table_name", "op", flat("columns"), flat("before")),
    )


def with_keys(events: DataFrame) -> DataFrame:
    """Add the columns of :data:`ticdc_lab.schema.KEYS` to events that do not have them yet.

    Parameters
    ----------
    events
        The events contract.

    Returns
    -------
    DataFrame
        The same rows with ``key_hash``, ``before_key_hash`` and ``change_hash`` (bigint).
    """
    require_columns(events, "kind", "schema_name", "table_name", "op", "columns", "before")
    if {"key_hash", "before_key_hash", "change_hash"} <= set(events.columns):
        return events
    after = key_hash(F.col("columns"))
    before = key_hash(F.col("before"), fallback=F.col("columns"))
    return events.withColumns(
        {
            "key_hash": F.when(F.col("op") == "delete", key_hash(F.col("before"))).otherwise(after),
            "before_key_hash": F.when((F.col("op") == "update") & (before != after), before),
            "change_hash": change_hash(),
        }
    )


def image_hash(image: Column) -> Column:
    """Hash (bigint) of an image; null where it is null."""
    names = _xor(F.transform(image, lambda c: F.xxhash64(c["name"])))
    values = _xor(F.transform(image, lambda c: F.xxhash64(c["name"], c["value"], c["value"].isNull())))
    return F.shiftleft(names, 32).bitwiseOR(values.bitwiseAND(F.lit((1 << 32) - 1)))


def _xor(hashes: Column) -> Column:
    return F.aggregate(hashes, F.lit(0).cast("bigint"), lambda a, h: a.bitwiseXOR(h))


def with_image_hashes(events: DataFrame) -> DataFrame:
    """Add the columns of :data:`ticdc_lab.schema.IMAGE_HASHES` to events that do not have them yet.

    Parameters
    ----------
    events
        The events contract.

    Returns
    -------
    DataFrame
        The same rows with ``after_hash`` and ``before_hash`` (bigint).
    """
    require_columns(events, "kind", "op", "columns", "before")
    if set(IMAGE_HASHES.names) <= set(events.columns):
        return events

    def old(c: Column) -> Column:
        return F.coalesce(F.get(F.filter("before", lambda b: b["name"] == c["name"]), 0), c)

    whole = F.when(F.col("op") == "update", F.transform("columns", old)).otherwise(F.col("before"))
    is_row = F.col("kind") == "row"
    return events.withColumns(
        {
            "after_hash": F.when(is_row & (F.col("op") != "delete"), image_hash(F.col("columns"))),
            "before_hash": F.when(is_row & (F.col("op") != "insert") & (F.size("before") > 0), image_hash(whole)),
        }
    )
