"""Faults that contradict the tables which the log's own DDL define, each with its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef
from ticdc_lab.faults.plan import Event, ExpectedFinding, FaultLog, FaultPlan, Put, place_of
from ticdc_lab.tables.mysql_types import parsed

TABLE, COLUMNS, NULLS = "rows_have_a_table", "columns_are_defined", "nulls_are_allowed"
FIT, NAMES = "values_fit_their_columns", "ddl_names_are_free"


def null_where_none_is_allowed(log: FaultLog) -> Iterator[FaultPlan]:
    """A decoder takes the text ``NULL``, or an empty one, for no value at all."""

    def none(c: ColumnDef, own: Event) -> str | None:
        return own["value"] if c.nullable or own["is_key"] else None

    yield from _changed(log, NULLS, "NULL", none)


def value_of_another_column(log: FaultLog) -> Iterator[FaultPlan]:
    """Rows written by position miss a virtual column: each value behind it is in the wrong column, some too long."""

    def longer(c: ColumnDef, own: Event) -> str | None:
        of = parsed(c.mysql_type)
        is_text = of.name in ("char", "varchar") and of.precision is not None and own["value"] is not None
        return "x" * ((of.precision or 0) + 1) if is_text and not own["is_key"] else own["value"]

    yield from _changed(log, FIT, "a text that is too long", longer)


def number_out_of_range(log: FaultLog) -> Iterator[FaultPlan]:
    """An unsigned number is read as a signed one, or the other way round."""

    def larger(c: ColumnDef, own: Event) -> str | None:
        known = parsed(c.mysql_type).family == "integer" and own["value"] is not None and not own["is_key"]
        return str(1 << 64) if known and parsed(c.mysql_type).name != "year" else own["value"]

    yield from _changed(log, FIT, "a number that is too large", larger)


def label_that_is_none(log: FaultLog) -> Iterator[FaultPlan]:
    """The labels of an ENUM or SET are taken from a definition that is older than the row."""

    def other(c: ColumnDef, own: Event) -> str | None:
        known = bool(parsed(c.mysql_type).elements) and own["value"] is not None and not own["is_key"]
        return "no such label" if known else own["value"]

    yield from _changed(log, FIT, "a label that its column does not have", other)


def column_of_another_table(log: FaultLog) -> Iterator[FaultPlan]:
    """A cached definition is used for a table that was dropped and created again with other columns."""
    for r in log.rows:
        if r["columns"] and _columns(log, r):
            more = {"name": "no_such_column", "mysql_type": "int", "value": "1", "is_key": False, "flags": None}
            changed = r | {"columns": [*r["columns"], more]}
            what = f"{_a(r)} has a column that its table does not have"
            yield FaultPlan(what, r, (ExpectedFinding(COLUMNS, (place_of(r),)),), changed=(changed,))


def row_of_a_dropped_table(log: FaultLog) -> Iterator[FaultPlan]:
    """A processor that was cut off sends a change of a table under the name that another one had before."""
    for d in log.ddl:
        if not d["query"].upper().startswith("DROP TABLE"):
            continue
        for r in log.rows:
            if (r["schema_name"], r["table_name"]) == (d["schema_name"], d["table_name"]):
                late = r | {"commit_ts": d["commit_ts"] + 1}
                put = Put(late, r["partition"], log.ahead(r["partition"], late["commit_ts"]))
                what = f"{_a(r)} comes again as if committed after the table was dropped"
                yield FaultPlan(what, r, (ExpectedFinding(TABLE, (0,)),), put=(put,))


def table_created_twice(log: FaultLog) -> Iterator[FaultPlan]:
    """The DDL that dropped a table is lost in the owner's switch; the one that creates it again is sent."""
    for d in log.ddl:
        if d["query"].upper().startswith("CREATE TABLE"):
            again = d | {"commit_ts": d["commit_ts"] + 1}
            seen, put = (ExpectedFinding(NAMES, (0,)),), (Put(again, d["partition"], d["offset"] + 1),)
            yield FaultPlan(f"the table {d['table_name']} is created twice", d, seen, put=put)


def _changed(
    log: FaultLog, guarantee: str, what: str, value: Callable[[ColumnDef, Event], str | None]
) -> Iterator[FaultPlan]:
    """A row change in which one column has another value."""
    for r in log.rows:
        columns = _columns(log, r)
        for i, own in enumerate(r["columns"] or ()):
            column = columns.get(own["name"].lower())
            other = own["value"] if column is None else value(column, own)
            if column is not None and other != own["value"]:
                image = [*r["columns"][:i], own | {"value": other}, *r["columns"][i + 1 :]]
                seen = ExpectedFinding(guarantee, (place_of(r),))
                yield FaultPlan(f"{_a(r)} has {what} in {own['name']}", r, (seen,), changed=(r | {"columns": image},))
                break


def _columns(log: FaultLog, row: Event) -> dict[str, ColumnDef]:
    """The columns of a row's table at its commit_ts; none if no DDL of the log shows them."""
    ddl = tuple((d["commit_ts"], d["schema_name"] or "", d["table_name"] or "", d["query"]) for d in log.ddl)
    table = _catalog(ddl).table(row["schema_name"], row["table_name"], commit_ts=row["commit_ts"] - 1)
    return {} if table is None else {c.name.lower(): c for c in table.columns}


@lru_cache(maxsize=8)
def _catalog(ddl: tuple[tuple[int | None, str, str, str], ...]) -> Catalog:
    return Catalog.from_ddl(sorted(ddl, key=lambda d: d[0] or 0))


def _a(e: Event) -> str:
    return f"the {e['op']} of {e['schema_name']}.{e['table_name']} at partition {e['partition']}, offset {e['offset']}"
