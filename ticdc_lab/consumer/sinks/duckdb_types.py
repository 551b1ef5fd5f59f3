"""MySQL types as DuckDB types, and the texts that MySQL prints as their values.

| MySQL | DuckDB | |
|---|---|---|
| tinyint .. bigint, signed and unsigned | TINYINT .. BIGINT, UTINYINT .. UBIGINT | |
| decimal(p,s) | DECIMAL(p,s); VARCHAR where p > 38 | |
| float, double | FLOAT, DOUBLE | |
| bit(n) | UBIGINT | the unsigned number |
| year | INTEGER | |
| date | DATE | 0000-00-00 and dates with a part of 0 become NULL, which the target's table `notes` counts |
| datetime, timestamp | TIMESTAMP | likewise; a timestamp in the time zone of TiCDC's server |
| time | VARCHAR | -838:59:59 to 838:59:59 fits no TIME |
| enum, set | VARCHAR: the label, the labels joined by commas | |
| binary, varbinary, blob | BLOB | |
| json | JSON | |
| char, varchar, text, anything else | VARCHAR | |
"""

from __future__ import annotations

from ticdc_lab.events.quoting import literal
from ticdc_lab.tables.mysql_types import MySQLType, parsed

_UNSIGNED = {"TINYINT": "UTINYINT", "SMALLINT": "USMALLINT", "INTEGER": "UINTEGER", "BIGINT": "UBIGINT"}
_INTEGERS = {
    "tinyint": "TINYINT", "bool": "TINYINT", "boolean": "TINYINT", "smallint": "SMALLINT", "mediumint": "INTEGER",
    "int": "INTEGER", "integer": "INTEGER", "bigint": "BIGINT", "serial": "BIGINT", "year": "INTEGER",
}  # fmt: skip
_PLAIN = {"date": "DATE", "datetime": "TIMESTAMP", "binary": "BLOB", "bit": "UBIGINT"}
_FITS_ALWAYS = ("VARCHAR", "BLOB")


def column_type(mysql_type: str) -> str:
    """The DuckDB type of a column."""
    of = parsed(mysql_type)
    if of.family == "integer":
        signed = _INTEGERS[of.name]
        unsigned = "unsigned" in mysql_type.lower() or "zerofill" in mysql_type.lower() or of.name == "serial"
        return _UNSIGNED[signed] if unsigned else signed
    if of.family in ("decimal", "float"):
        return "VARCHAR" if of.spark == "string" else of.spark.upper()
    return "JSON" if of.name == "json" else _PLAIN.get(of.family, "VARCHAR")


def value(text: str, mysql_type: str, *, numbered: bool) -> str:
    """SQL for the value of a text.

    Parameters
    ----------
    text
        SQL for the text that MySQL prints; binary is ``0x`` and lower-case hex.
    mysql_type
        The column's type.
    numbered
        Whether ENUM and SET may be numbers.
    """
    of, kind = parsed(mysql_type), column_type(mysql_type)
    if of.family in ("enum", "set") and of.elements and numbered:
        return _labels(text, of)
    if kind == "BLOB":
        return f"from_hex(substr({text}, 3))"
    return text if kind in _FITS_ALWAYS else f"TRY_CAST({text} AS {kind})"


def _labels(text: str, of: MySQLType) -> str:
    listed, number = ", ".join(map(literal, of.elements)), f"TRY_CAST({text} AS UBIGINT)"
    if of.family == "enum":
        labels = f"['', {listed}][{number}::INTEGER + 1]"  # 0 is MySQL's mark for what was no element
    else:
        chosen = f"list_filter([{listed}], lambda label, i: ({number} >> (i - 1)::UBIGINT) & 1 = 1)"
        labels = f"array_to_string({chosen}, ',')"
    return f"CASE WHEN {number} IS NULL THEN {text} ELSE {labels} END"


def may_not_fit(mysql_type: str) -> bool:
    """Whether MySQL has values of the type that its DuckDB type cannot hold."""
    return parsed(mysql_type).family in ("date", "datetime")
