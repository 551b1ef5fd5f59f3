"""What codecs and :func:`ticdc_lab.codecs.keys.with_hashes` add to events, in expressions of Spark: a definition."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.names import Flavour
from ticdc_lab.engine.columns import expanded_float

HASH_BITS = 32
_BINARY_TYPE = "^(binary|varbinary|(tiny|medium|long)?blob)"


def table_hash() -> Column:
    """Hash (bigint, 32 bits) of the event's table: where every dispatch hash starts."""
    return F.crc32(F.concat("schema_name", "table_name").cast("binary"))


def dispatched_image() -> Column:
    """The image TiCDC hashes: the old row of a delete, else the new row, also of an update that was not split."""
    return F.when(F.col("op") == "delete", F.coalesce("before", "columns")).otherwise(F.col("columns"))


def hash_of(folded: Column) -> Column:
    """The 32-bit hash (bigint) in what :func:`fold` gives."""
    return folded.bitwiseAND(F.lit((1 << HASH_BITS) - 1))


def count_of(folded: Column) -> Column:
    """The number (bigint) of chosen columns in what :func:`fold` gives."""
    return F.shiftright(folded, HASH_BITS)


def by_expressions(events: DataFrame) -> DataFrame:
    """Add the columns of KEYS, IMAGE_HASHES and DISPATCH but ``row_bytes``, in place of those that are there."""
    if "protocol" not in events.columns:
        return by_expressions(events.withColumn("protocol", F.lit(""))).drop("protocol")
    after = key_hash(F.col("columns"))
    before = key_hash(F.col("before"), fallback=F.col("columns"))
    is_row = F.col("kind") == "row"

    def old(c: Column) -> Column:
        return F.coalesce(F.get(F.filter("before", lambda b: b["name"] == c["name"]), 0), c)

    whole = F.when(F.col("op") == "update", F.transform("columns", old)).otherwise(F.col("before"))
    key_crc = fold(dispatched_image(), lambda c: c["is_key"], flavour="new").bitwiseXOR(table_hash())
    return events.withColumns(
        {
            "key_hash": F.when(F.col("op") == "delete", key_hash(F.col("before"))).otherwise(after),
            "before_key_hash": F.when((F.col("op") == "update") & (before != after), before),
            "change_hash": change_hash(),
            "after_hash": F.when(is_row & (F.col("op") != "delete"), image_hash(F.col("columns"))),
            "before_hash": F.when(is_row & (F.col("op") != "insert") & (F.size("before") > 0), image_hash(whole)),
            "column_crcs": F.when(is_row, _column_crcs()),
            "key_crc": F.when(is_row, key_crc),
            "layout": F.when(is_row, _layout()),
        }
    )


def key_hash(image: Column, *, fallback: Column | None = None) -> Column:
    """Hash (bigint) of the handle key of ``image``; null when it has no handle key or the image is null.

    With ``fallback``, the key columns are the ones of ``fallback`` and a value that ``image`` does not have is taken
    from it (``only-output-updated-columns`` leaves equal columns out of the old image).
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


def image_hash(image: Column) -> Column:
    """Hash (bigint) of an image; null where it is null."""
    names = _xor(F.transform(image, lambda c: F.xxhash64(c["name"])))
    values = _xor(F.transform(image, lambda c: F.xxhash64(c["name"], c["value"], c["value"].isNull())))
    return F.shiftleft(names, 32).bitwiseOR(values.bitwiseAND(F.lit((1 << 32) - 1)))


def _xor(hashes: Column) -> Column:
    return F.aggregate(hashes, F.lit(0).cast("bigint"), lambda a, h: a.bitwiseXOR(h))


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
    TiCDC hashes the number of an ENUM or SET; of a protocol that carries the label the type's list gives the number.
    """
    name, mysql_type, value = c["name"], c["mysql_type"], c["value"]
    label = mysql_type.startswith("enum") | mysql_type.startswith("set")
    carried = F.col("protocol").isin("debezium", "debezium-avro", "avro", "csv")
    floating = mysql_type.startswith("float") | mysql_type.startswith("double")
    return (
        F.when(_is_rewritten(mysql_type, value), F.lit(None).cast("bigint"))
        .when(
            value.startswith("0x") & mysql_type.rlike(_BINARY_TYPE),
            F.crc32(F.concat(name.cast("binary"), F.unhex(F.substring(value, F.lit(3), F.length(value))))),
        )
        .when(value.isNotNull() & floating, F.crc32(F.concat(name, expanded_float(value)).cast("binary")))
        .when(value.isNotNull() & label & (carried | ~value.rlike("^[0-9]+$")), _label_hash(name, mysql_type, value))
        .otherwise(_text_hash(c, flavour=flavour))
    )


def _label_hash(name: Column, mysql_type: Column, value: Column) -> Column:
    """The hash of an ENUM's or SET's number, null where the type does not list the labels."""
    listed = F.regexp_extract_all(mysql_type, F.lit("'((?:[^']|'')*)'"), F.lit(1))
    labels = F.transform(listed, lambda label: F.replace(label, F.lit("''"), F.lit("'")))
    nth = F.array_position(labels, value)
    places = F.transform(F.split(value, ","), lambda label: F.array_position(labels, label))
    bits = F.aggregate(places, F.lit(0).cast("bigint"), lambda a, p: a + F.pow(F.lit(2), p - 1).cast("bigint"))
    known = F.when(mysql_type.startswith("enum"), F.when((nth > 0) | (value == ""), nth))
    known = known.when(value == "", F.lit(0)).when(~F.array_contains(places, F.lit(0).cast("bigint")), bits)
    return F.when(F.size(labels) > 0, F.crc32(F.concat(name, known.cast("string")).cast("binary")))


def _is_rewritten(mysql_type: Column, value: Column) -> Column:
    """Whether debezium may carry another text than TiCDC hashes."""
    bare, exact = ~mysql_type.contains("("), F.col("protocol") == "debezium-avro"
    of_type = (
        F.when(value.isNull(), mysql_type.rlike("^(date|timestamp)"))
        .when(
            mysql_type.startswith("decimal"),
            bare | (~exact & (F.length(F.regexp_replace(value, r"^[-0.]+|[.]", "")) > 15)),
        )
        .when(mysql_type.startswith("time"), bare | mysql_type.startswith("timestamp"))
        .when(mysql_type.startswith("datetime"), bare | value.rlike("^1970-01-01[ 0:.]*$"))
        .when(mysql_type.startswith("date"), value.rlike("^1970-01-01[ 0:.]*$"))
    )
    return F.col("protocol").isin("debezium", "debezium-avro") & of_type


def _text_hash(c: Column, *, flavour: Flavour) -> Column:
    """:func:`column_hash` of a column whose text is what TiCDC hashes."""
    if flavour == "classic":
        return F.crc32(F.concat(c["name"], F.coalesce(c["value"], F.lit("null"))).cast("binary"))
    return F.when(c["value"].isNull(), F.lit(0).cast("bigint")).otherwise(
        F.crc32(F.concat(c["name"], c["value"]).cast("binary"))
    )


def _column_crcs() -> Column:
    def crc(c: Column) -> Column:
        of_value = column_hash(c, flavour="new")
        return F.when(c["value"].isNotNull() | of_value.isNull(), F.coalesce(of_value, F.lit(-1).cast("bigint")))

    return F.transform(dispatched_image(), crc)


def _layout() -> Column:
    def joined(image: Column) -> Column:
        return F.array_join(F.transform(image, lambda c: F.replace(c["name"], F.lit(","), F.lit("\x1f"))), ",")

    image = dispatched_image()
    return F.concat(joined(image), F.lit(",,"), joined(F.filter(image, lambda c: c["is_key"])))


def fold(image: Column, chosen: Callable[[Column], Column], *, flavour: Flavour) -> Column:
    """The hash of the chosen columns in the low 32 bits, and their number above, in one pass over the image."""

    def step(acc: Column, c: Column) -> Column:
        hashed = acc.bitwiseXOR(column_hash(c, flavour=flavour)) + F.lit(1 << HASH_BITS)
        return F.when(chosen(c), hashed).otherwise(acc)

    return F.aggregate(image, table_hash(), step)
