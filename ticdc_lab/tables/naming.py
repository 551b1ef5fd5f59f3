"""Names: a table by the text ``schema.table``, where either may have dots in it; and columns of ours beside its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError
from ticdc_lab.facts.definitions import TableName


def table_named(events: DataFrame, name: str) -> TableName:
    """Schema and table of a text; of one with several dots the events show which of them divides it.

    Only a text with several dots takes a job.

    ``events``: ``schema_name`` and ``table_name`` of :data:`ticdc_lab.events.schema.EVENTS`. ``name``:
    ``schema.table``. Raises ContractError: there is no dot in it, or two tables of the log are called so.
    """
    schema, dot, table = name.partition(".")
    if not dot:
        raise ContractError(
            f"{name!r} is not a table; expected SCHEMA.TABLE.", hint="Write it as shop.orders; .tables names them."
        )
    if "." not in table:
        return schema, table
    same = events.where(F.concat_ws(".", "schema_name", "table_name") == name)
    found = same.select("schema_name", "table_name").distinct().limit(2).toArrow().to_pylist()
    if len(found) > 1:
        both = " and ".join(repr((r["schema_name"], r["table_name"])) for r in found)
        raise ContractError(
            f"Two tables of the log are called {name}: {both}, as schema and table.",
            hint="In Python, `table_as_of()` takes schema and table apart.",
        )
    return (str(found[0]["schema_name"]), str(found[0]["table_name"])) if found else (schema, table)


def free_names(wanted: Sequence[str], columns: Iterable[str]) -> tuple[str, ...]:
    """Names that no column of a table has, in any case of its letters: ``wanted``, or with underscores before it.

    Examples
    --------
    >>> free_names(("_commit_ts", "_op"), ["id", "_COMMIT_TS"])
    ('__commit_ts', '_op')
    """
    taken, found = {c.lower() for c in columns}, []
    for name in wanted:
        free = name
        while free.lower() in taken:
            free = f"_{free}"
        found.append(free)
        taken.add(free.lower())
    return tuple(found)


def found_names(wanted: Iterable[str], columns: Sequence[str]) -> dict[str, str]:
    """What :func:`free_names` called each of ``wanted`` in a frame, where our columns come behind the table's own.

    Examples
    --------
    >>> found_names(("_commit_ts",), ["id", "_commit_ts", "__commit_ts"])
    {'_commit_ts': '__commit_ts'}
    """
    bare = {name: name.lstrip("_") for name in wanted}
    called = {c.lower().lstrip("_"): c for c in columns if c.startswith("_")}
    return {name: called[short] for name, short in bare.items() if short in called}


def said_of(table: str, wanted: Sequence[str], free: Sequence[str]) -> tuple[str, ...]:
    """A sentence where a table has columns that are called like ours."""
    renamed = [(name, other) for name, other in zip(wanted, free, strict=True) if name != other]
    told = ", ".join(f"{other} for {name}" for name, other in renamed)
    return (f"{table} has columns of its own that are called like ours, which say {told} here.",) if renamed else ()
