"""MySQL's column types, and how each wire format names and numbers them.

``code`` is TiDB's type byte (``mysql.Type*``), ``java`` the number of ``java.sql.Types`` that canal-json states
(TiCDC ``MySQLType2JavaType``), ``mq_v1`` the type name of mq-v1: TiDB's constant, but SQL's name if one
constant means two types (a ``Blob`` is a TEXT or a BLOB), as TiCDC's design itself writes "Text".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from ticdc_lab.errors import ProtocolError

INTEGER, FLOAT, TEXT, STRING, LONG_TEXT, BYTES, LONG_BYTES = range(7)
"""How a value is written: a number, a number with exponent, plain text (decimal, dates, JSON), and what holds the
characters or the bytes of CHAR and VARCHAR, or of TEXT and BLOB."""

ANYTHING = 0
"""Any text or bytes fit the type, or what fits it is none of a codec's to judge (JSON, and labels of ENUM and SET)."""

INTEGER_BYTES_MAX = 8
"""From 1 to here: integers of so many bytes, signed or not, as not every protocol shows it."""

DECIMAL, FINITE, BITS, DATE, TIME, DATETIME, SINGLE = range(9, 16)
"""Digits; a finite number; 64 bits; a date, a time, or both, zeros and months of 31 days allowed; a finite FLOAT."""

NO_MYSQL_TYPE = 16
"""Nothing fits a type that MySQL does not have."""

INFINITE = str((1 << 1024) - (1 << 970))
"""Digits of the least number that is infinite as a DOUBLE. A FLOAT needs as many: its digits show no width."""

HOURS_MAX = 838
"""Of a TIME."""


@dataclass(frozen=True, slots=True)
class MySQLType:
    """One type."""

    name: str
    code: int
    java: int
    mq_v1: str
    form: int
    holds: int = ANYTHING
    """What fits it: ``codecs.plain.holding`` finds it for a text and, compiled, ``codecs.kernel.holding``."""

    @property
    def binary(self) -> bool:
        """TiCDC's binary flag: all types but those with a collation of characters have it."""
        return self.form not in (STRING, LONG_TEXT) and self.name not in ("enum", "set")


TYPES = (
    MySQLType("tinyint", 1, -6, "Tiny", INTEGER, 1),
    MySQLType("smallint", 2, 5, "Short", INTEGER, 2),
    MySQLType("mediumint", 9, 4, "Int24", INTEGER, 3),
    MySQLType("int", 3, 4, "Long", INTEGER, 4),
    MySQLType("bigint", 8, -5, "Longlong", INTEGER, 8),
    MySQLType("float", 4, 7, "Float", FLOAT, SINGLE),
    MySQLType("double", 5, 8, "Double", FLOAT, FINITE),
    MySQLType("decimal", 246, 3, "NewDecimal", TEXT, DECIMAL),
    MySQLType("year", 13, 12, "Year", INTEGER, 2),
    MySQLType("bit", 16, -7, "Bit", INTEGER, BITS),
    MySQLType("date", 10, 91, "Date", TEXT, DATE),
    MySQLType("time", 11, 92, "Duration", TEXT, TIME),
    MySQLType("datetime", 12, 93, "Datetime", TEXT, DATETIME),
    MySQLType("timestamp", 7, 93, "Timestamp", TEXT, DATETIME),
    MySQLType("char", 254, 1, "String", STRING),
    MySQLType("varchar", 15, 12, "Varchar", STRING),
    MySQLType("binary", 254, 2004, "Binary", BYTES),
    MySQLType("varbinary", 15, 2004, "Varbinary", BYTES),
    MySQLType("tinytext", 249, 2005, "TinyText", LONG_TEXT),
    MySQLType("text", 252, 2005, "Text", LONG_TEXT),
    MySQLType("mediumtext", 250, 2005, "MediumText", LONG_TEXT),
    MySQLType("longtext", 251, 2005, "LongText", LONG_TEXT),
    MySQLType("tinyblob", 249, 2004, "TinyBlob", LONG_BYTES),
    MySQLType("blob", 252, 2004, "Blob", LONG_BYTES),
    MySQLType("mediumblob", 250, 2004, "MediumBlob", LONG_BYTES),
    MySQLType("longblob", 251, 2004, "LongBlob", LONG_BYTES),
    MySQLType("enum", 247, 4, "Enum", INTEGER),
    MySQLType("set", 248, -7, "Set", INTEGER),
    MySQLType("json", 245, 12, "JSON", TEXT),
    MySQLType("vector", 225, 12, "Vector", TEXT),
    MySQLType("geometry", 255, -2, "Geometry", TEXT),
    MySQLType("null", 6, 0, "Null", TEXT),
)

BY_NAME = {t.name: t for t in TYPES} | {
    "integer": next(t for t in TYPES if t.name == "int"),
    "numeric": next(t for t in TYPES if t.name == "decimal"),
    "bool": next(t for t in TYPES if t.name == "tinyint"),
    "boolean": next(t for t in TYPES if t.name == "tinyint"),
}
OTHER_NAMES = frozenset(
    ("dec", "fixed", "real", "nchar", "nvarchar", "character", "varcharacter", "long", "serial", "varstring",
     "newdate", "newdecimal")
)  # fmt: skip
"""Other names that MySQL and TiDB have for types: what fits them is not judged. They are of small letters alone."""

VECTOR_IN_AVRO = "tidbvectorfloat32"
"""What TiCDC's avro calls a VECTOR."""

BY_MQ_V1 = {t.mq_v1: t for t in TYPES}
BINARIES = frozenset(t.name for t in TYPES if t.form in (BYTES, LONG_BYTES))
"""Types that hold bytes."""

INTEGERS = frozenset(t.name for t in TYPES if 1 <= t.holds <= INTEGER_BYTES_MAX)
"""Types that hold integers."""

_ALWAYS_UNSIGNED = frozenset({"year", "bit"})  # TiDB flags them so
_UNSIGNED = re.compile(r"\bunsigned\b", re.IGNORECASE)
_LABEL = re.compile(r"'((?:[^']|'')*)'")


def base_of(mysql_type: str | None) -> str:
    """The name of a type, without length, labels and sign: ``bigint`` of ``bigint(20) unsigned``.

    A text with a parenthesis that nothing closes is no type, and its own name.
    """
    text = (mysql_type or "").strip().lower()
    name, opened, rest = text.partition("(")
    return text if opened and ")" not in rest else name.partition(" ")[0]


_DIGITS = re.compile(r"\(([0-9]+(?:\s*,\s*[0-9]+)*)\)")


@cache
def digits_of(mysql_type: str) -> tuple[int, ...]:
    """The numbers in a type's parentheses: ``(10, 4)`` of ``decimal(10,4)``; none of labels."""
    found = _DIGITS.search(mysql_type)
    return () if found is None else tuple(map(int, found[1].split(",")))


@cache
def type_of(mysql_type: str | None) -> tuple[MySQLType, bool]:
    """The type that a text such as ``bigint(20) unsigned`` names, and whether TiCDC flags it as unsigned.

    Raises ProtocolError: no such type.
    """
    base = base_of(mysql_type)
    if base not in BY_NAME:
        raise ProtocolError(
            f"{mysql_type!r} is no MySQL type that TiCDC writes; expected one of {', '.join(sorted(BY_NAME))}."
        )
    found = BY_NAME[base]
    after = re.sub(r"\(.*\)", "", mysql_type or "", flags=re.DOTALL)
    return found, found.name in _ALWAYS_UNSIGNED or _UNSIGNED.search(after) is not None


@lru_cache(4_096)
def held_by(mysql_type: str) -> int:
    """What fits the type that a text names: nothing, where MySQL has none of that name."""
    base = base_of(mysql_type)
    found = BY_NAME.get(base)
    if found is not None:
        return found.holds
    return ANYTHING if base in OTHER_NAMES or base == VECTOR_IN_AVRO else NO_MYSQL_TYPE


def labels_of(mysql_type: str) -> tuple[str, ...]:
    """Labels that the text of an ENUM or SET type lists; none if it lists none."""
    return tuple(label.replace("''", "'") for label in _LABEL.findall(mysql_type))
