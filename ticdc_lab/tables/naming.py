"""A table by the text ``schema.table``, where either name may have dots in it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError
from ticdc_lab.facts.definitions import TableName


def table_named(events: DataFrame, name: str) -> TableName:
    """Schema and table of a text; of one with several dots the events say which of them divides it.

    Only a text with several dots takes a job.

    Parameters
    ----------
    events
        ``schema_name`` and ``table_name`` of :data:`ticdc_lab.events.schema.EVENTS`.
    name
        ``schema.table``.

    Raises
    ------
    ContractError
        There is no dot in it, or two tables of the log are called so.
    """
    schema, dot, table = name.partition(".")
    if not dot:
        raise ContractError(f"{name!r} is no SCHEMA.TABLE.")
    if "." not in table:
        return schema, table
    same = events.where(F.concat_ws(".", "schema_name", "table_name") == name)
    found = same.select("schema_name", "table_name").distinct().limit(2).toArrow().to_pylist()
    if len(found) > 1:
        both = " and ".join(repr((r["schema_name"], r["table_name"])) for r in found)
        raise ContractError(
            f"Two tables of the log are called {name}: {both}, as schema and table.",
            hint="In Python, table_as_of takes schema and table apart.",
        )
    return (str(found[0]["schema_name"]), str(found[0]["table_name"])) if found else (schema, table)
