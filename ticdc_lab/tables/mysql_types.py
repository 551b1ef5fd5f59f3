"""MySQL types as Spark types, and the texts that MySQL prints as typed values.

| MySQL | Spark | |
|---|---|---|
| tinyint, smallint, mediumint, int, bigint | tinyint, smallint, int, int, bigint | also bool |
| the same, unsigned | smallint, int, int, bigint, decimal(20,0) | |
| decimal(p,s), numeric | decimal(p,s); string where p > 38 | as MySQL prints it |
| float, double, real | float, double | |
| bit(n) | bigint; decimal(20,0) for bit(64) and an unknown n | the unsigned number |
| year | int | 0 for 0000 |
| date | date | 0000-00-00 and dates with a part of 0 do not fit |
| datetime, timestamp | timestamp_ntz | timestamp: in the time zone of TiCDC's server, which no log names |
| time | string | -838:59:59 to 838:59:59 fits no time of day |
| enum | string: the label where the elements are known, else what the protocol carries (a number) | |
| set | string: the labels joined by commas where the elements are known, else what the protocol carries | |
| char, varchar, text | string | |
| binary, varbinary, blob | binary | |
| json, vector, anything else | string | the text MySQL prints |

A text that does not fit its type becomes null *and a reason*: :func:`typed` returns both.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import expanded_float, shortest_decimal
from ticdc_lab.events.ddl import Cursor, words_of

_INTEGERS = {
    "tinyint": ("tinyint", "smallint"), "bool": ("tinyint", "smallint"), "boolean": ("tinyint", "smallint"),
    "smallint": ("smallint", "int"), "mediumint": ("int", "int"), "int": ("int", "bigint"),
    "integer": ("int", "bigint"), "bigint": ("bigint", "decimal(20,0)"), "serial": ("bigint", "decimal(20,0)"),
}  # fmt: skip
_TWO_TO_63 = Decimal(2**63)
_DECIMALS = {"decimal", "numeric", "dec", "fixed"}
_FLOATS = {"float": "float", "double": "double", "real": "double"}
_BINARIES = {"binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob"}
_TEXTS = {"char", "varchar", "text", "tinytext", "mediumtext", "longtext", "nchar", "nvarchar", "string"}
_LABELLED = ("enum", "set")

_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
_DAY, _TIME_OF_DAY = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_SHAPES = {
    "float": _NUMBER,
    "date": f"^{_DAY}$",
    "datetime": f"^{_DAY} {_TIME_OF_DAY}$",
    "time": r"^-?[0-9]{2,3}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$",
    "binary": "^0x([0-9a-f]{2})*$",
    "integer": "^-?[0-9]+$",
}
NUMBERED = ("open-protocol", "canal-json", "simple", "canal", "csv")
"""Protocols whose events have ENUM and SET as numbers."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A MySQL type taken apart.

    ``family`` is ``integer``, ``decimal``, ``float``, ``bit``, ``date``, ``datetime``, ``time``, ``enum``, ``set``,
    ``text``, ``binary`` or ``other``; ``spark`` the Spark type; ``elements`` of ENUM and SET.
    """

    text: str
    name: str
    family: str
    spark: str
    precision: int | None = None
    scale: int = 0
    elements: tuple[str, ...] = ()


@cache
def parsed(text: str) -> ColumnType:
    """Take a type apart: ``bigint(20) unsigned``, ``decimal(12,2)``, ``enum('a','b')``."""
    cursor = Cursor(words_of(text))
    name = cursor.peek().lower() or text.lower()
    cursor.skip()
    arguments = tuple(p.words for p in cursor.inside().parts()) if cursor.peek() == "(" else ()
    labels = tuple(_label("".join(w.text for w in words)) for words in arguments)
    numbers = [int(n) for n in labels if n.isdecimal()]
    unsigned = "unsigned" in text.lower() or "zerofill" in text.lower() or name == "serial"
    precision, scale = (numbers[0] if numbers else None), (numbers[1] if len(numbers) > 1 else 0)
    family, spark = _spark(name, unsigned=unsigned, precision=precision, scale=scale)
    return ColumnType(text, name, family, spark, precision, scale, labels if name in _LABELLED else ())


def _label(raw: str) -> str:
    """A label as TiCDC writes it, which rewrites statements and escapes quotes alone: a backslash is one."""
    return raw.replace("''", "'").replace("\\'", "'")


def _spark(name: str, *, unsigned: bool, precision: int | None, scale: int) -> tuple[str, str]:
    if name in _INTEGERS:
        return "integer", _INTEGERS[name][unsigned]
    if name in _DECIMALS:
        digits = 10 if precision is None else precision
        return "decimal", f"decimal({digits},{scale})" if digits <= 38 else "string"
    if name in _FLOATS:
        return "float", _FLOATS[name]
    if name == "bit":
        return "bit", "bigint" if precision is not None and precision < 64 else "decimal(20,0)"
    if name == "year":
        return "integer", "int"
    if name in ("datetime", "timestamp"):
        return "datetime", "timestamp_ntz"
    if name == "date":
        return "date", "date"
    if name in _BINARIES:
        return "binary", "binary"
    return (name if name in ("time", *_LABELLED) else "text" if name in _TEXTS else "other"), "string"


def typed(text: Column, target: ColumnType, *, rounded: bool = False) -> tuple[Column, Column]:
    """Turn the text MySQL prints into a value.

    ``text``: text or null; binary is ``0x`` and lower-case hex. ``target``: the column's type. ``rounded``: whether a
    decimal may have more fraction digits than the type and is rounded half up, as TiDB does when a column is modified.
    Returns: the value of Spark type ``target.spark``, and why there is none although ``text`` is not null (string, else
    null).
    """
    value = _value(text, target, rounded=rounded)
    wrong = value.isNull()
    if shape := _shape(target, rounded=rounded):
        wrong = ~text.rlike(shape) | wrong
        value = F.when(text.rlike(shape), value)
    reason = F.lit(f"does not fit {target.text}" + ("" if target.family == "decimal" else f" as {target.spark}"))
    return value, F.when(text.isNotNull() & wrong, reason)


def _shape(target: ColumnType, *, rounded: bool) -> str:
    if target.family == "decimal" and target.spark != "string":
        return _NUMBER if rounded else rf"^-?[0-9]+(\.[0-9]{{0,{target.scale}}}0*)?$"
    return _SHAPES.get("integer" if target.family == "bit" else target.family, "")


def _value(text: Column, target: ColumnType, *, rounded: bool) -> Column:
    if target.family == "binary":
        return F.unhex(F.substring(text, 3, 2**31 - 1))
    if target.family == "enum" and target.elements:
        return _enum_label(text, target)
    if target.family == "set" and target.elements:
        return _set_labels(text, target)
    if target.family == "float":
        value = text.try_cast(target.spark)
        return F.when(F.abs(value) < F.lit(float("inf")), value)
    if target.family == "decimal" and target.spark != "string":
        plain = expanded_float(text) if rounded else shortest_decimal(text)  # no other shape has an exponent
        return _to_the_digit(plain, target.scale or 0).try_cast(target.spark)
    return text if target.spark == "string" else text.try_cast(target.spark)


def _to_the_digit(text: Column, scale: int) -> Column:
    """A number with one digit more than it keeps, which decides the rounding; Sail refuses to read hundreds."""
    fraction = F.substring(F.substring_index(text, ".", -1), 1, scale + 1)
    return F.when(text.contains("."), F.concat(F.substring_index(text, ".", 1), F.lit("."), fraction)).otherwise(text)


def _number(text: Column) -> Column:
    """Whether the protocol carries ENUM and SET as numbers and this is one."""
    return F.col("protocol").isin(*NUMBERED) & text.rlike(_SHAPES["integer"])


def _enum_label(text: Column, target: ColumnType) -> Column:
    labels = F.array(F.lit(""), *map(F.lit, target.elements))  # 0 is MySQL's mark for what was no element
    return F.when(_number(text), F.get(labels, text.try_cast("int"))).when(F.array_contains(labels, text), text)


def _set_labels(text: Column, target: ColumnType) -> Column:
    number = text.try_cast("decimal(20,0)")
    low, last = (number % _TWO_TO_63).cast("bigint"), number >= _TWO_TO_63
    bits = [F.shiftright(low, i).bitwiseAND(F.lit(1)) == 1 for i in range(63)] + [last]
    n = len(target.elements)
    chosen = F.concat_ws(",", *(F.when(bit, e) for bit, e in zip(bits, target.elements, strict=False)))
    fits = F.lit(n > 63) | (~last & (F.shiftright(low, min(n, 62)) <= F.lit(int(n == 63))))
    known = F.size(F.filter(F.split(text, ","), lambda word: ~word.isin("", *target.elements))) == 0
    return F.when(_number(text), F.when(fits, chosen)).when(known, text)


def moved(source: ColumnType, target: ColumnType) -> str:
    """What becomes of a text of type ``source`` when its column is modified to ``target``.

    ``same`` text, a ``rounded`` number, ``padded`` to a datetime, or ``unknown``: only what follows from the types is
    given, nothing that depends on sql_mode, collation or time zone.
    """
    families = (source.family, target.family)
    if source.text == target.text or families in {("integer", "integer"), ("bit", "bit"), ("text", "text")}:
        return "same"
    if families in {("binary", "binary"), ("integer", "text"), ("decimal", "text"), ("date", "text")}:
        return "same"
    numeric = source.family in ("integer", "decimal") or source.spark == "double"
    if target.family == "decimal" and numeric and target.spark != "string":
        return "rounded"
    if families == ("date", "datetime") and target.name == "datetime":
        return "padded"
    if families in {("float", "float")} and target.spark == "double" == source.spark:
        return "same"
    if source.family == target.family and target.family in _LABELLED:
        return "same" if target.elements[: len(source.elements)] == source.elements else "unknown"
    if families in {("datetime", "datetime"), ("time", "time")} and source.name == target.name:
        return "same" if (source.precision or 0) <= (target.precision or 0) else "unknown"
    if families == ("other", "other") and source.name == target.name:
        return "same"
    return "unknown"


def converted(text: Column, source: ColumnType, target: ColumnType) -> tuple[Column, Column]:
    """As :func:`typed`, for a text written when the column still was of type ``source``."""
    move = moved(source, target)
    if move == "unknown":
        reason = F.lit(f"was written as {source.text}; what TiDB made of it as {target.text} is not in the log")
        return F.lit(None).cast(target.spark), F.when(text.isNotNull(), reason)
    if move == "padded":
        text = F.concat(text, F.lit(" 00:00:00"))
    return typed(text, target, rounded=move == "rounded")


def common(types: list[ColumnType]) -> str:
    """The Spark type that holds the values of all ``types`` without loss; string where there is no other."""
    sparks = {t.spark for t in types}
    if len(sparks) == 1:
        return sparks.pop()
    widths = ["tinyint", "smallint", "int", "bigint", "decimal(20,0)"]
    if all(t.family == "integer" for t in types):
        return max(sparks, key=widths.index)
    if all(t.family in ("integer", "decimal") and t.spark != "string" for t in types):
        digits = [_digits(t.spark) for t in types]
        whole, scale = max(p - s for p, s in digits), max(s for _, s in digits)
        return f"decimal({whole + scale},{scale})" if whole + scale <= 38 else "string"
    return "string"


def _digits(spark: str) -> tuple[int, int]:
    sizes = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
    if spark in sizes:
        return sizes[spark], 0
    p, s = spark[len("decimal(") : -1].split(",")
    return int(p), int(s)
