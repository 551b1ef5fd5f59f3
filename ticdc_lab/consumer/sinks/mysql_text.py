"""Values as MySQL literals, written by DuckDB from the texts of events, and read back as such texts."""

from __future__ import annotations

from ticdc_lab.events.quoting import literal
from ticdc_lab.facts.catalog import ColumnDef, TableDef
from ticdc_lab.tables.mysql_types import parsed
from ticdc_lab.tables.stretches import carried


def named(name: str) -> str:
    """An identifier of MySQL."""
    return "`" + name.replace("`", "``") + "`"


def written(table: TableDef) -> list[tuple[int, ColumnDef]]:
    """The columns that are written, with their place among those that events carry: not those the server computes."""
    return [(i, c) for i, c in enumerate(carried(table)) if not c.generated]


def literal_of(text: str, column: ColumnDef, *, numbered: bool) -> str:
    """SQL for DuckDB that writes a text as a literal of MySQL.

    Parameters
    ----------
    text
        SQL for the text that MySQL prints, binary as ``0x`` and hex.
    column
        What it is a value of.
    numbered
        Whether ENUM and SET may be numbers.
    """
    family = parsed(column.mysql_type).family
    quoted = f"('''' || replace(replace({text}, '\\', '\\\\'), '''', '''''') || '''')"
    if family == "binary":
        sql = f"CASE WHEN {text} = '0x' THEN '''''' ELSE {text} END"
    elif family == "bit" or (family in ("enum", "set") and numbered):
        sql = f"CASE WHEN TRY_CAST({text} AS UBIGINT) IS NULL THEN {quoted} ELSE {text} END"
    elif family in ("integer", "decimal"):  # MySQL would compare a number with a text as floats
        sql = f"CASE WHEN regexp_full_match({text}, '-?[0-9]+([.][0-9]+)?') THEN {text} ELSE {quoted} END"
    else:
        sql = quoted
    return f"coalesce({sql}, 'NULL')"


def tuple_of(literals: list[str]) -> str:
    """SQL for DuckDB that writes a row of literals."""
    listed = ", ',', ".join(literals)
    return f"concat('(', {listed}, ')')"


def same_value(column: ColumnDef, text: str) -> str:
    """SQL for DuckDB that writes a condition of MySQL: the column holds exactly the literal, NULL included."""
    of, own = parsed(column.mysql_type), named(column.name)
    kind = "FLOAT" if of.spark == "float" else "BINARY" if of.family in ("text", "other") else ""
    if not kind:
        return f"concat({literal(f'{own} <=> ')}, {text})"
    left = own if kind == "FLOAT" else f"CAST({own} AS BINARY)"
    return f"concat({literal(f'{left} <=> CAST(')}, {text}, ' AS {kind})')"


def printed(column: ColumnDef) -> str:
    """SQL for MySQL that gives the text which events carry; of ENUM and SET the labels."""
    of, own = parsed(column.mysql_type), named(column.name)
    if of.family == "binary":
        return f"CONCAT('0x', LOWER(HEX({own})))"
    if of.family == "bit":
        return f"CAST({own} + 0 AS CHAR)"
    # a FLOAT is printed with six digits, which are not all
    return f"CAST(CAST({own} AS DOUBLE) AS CHAR)" if of.family == "float" else f"CAST({own} AS CHAR)"
