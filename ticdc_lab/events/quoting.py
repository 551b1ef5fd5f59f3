"""Names and texts inside SQL, as DuckDB reads them; MySQL writes the labels of a type so too."""

from __future__ import annotations


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text between single quotes."""
    return "'" + text.replace("'", "''") + "'"
