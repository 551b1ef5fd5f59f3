"""Row changes of a range merged to one change a key, in DuckDB, from the Parquet files that Spark has decoded.

The rules are those of :mod:`ticdc_lab.tables`: of the changes of a key the newest counts, a delete frees a key before
an insert of the same transaction takes it, an update that changes the key deletes the old one, a change delivered
again is the same change. A table without a handle key is a multiset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from ticdc_lab.consumer.replay_plan import Batch
from ticdc_lab.errors import IncompleteHistoryError
from ticdc_lab.events.ddl import literal
from ticdc_lab.facts.definitions import TableDef, TableName
from ticdc_lab.tables.stretches import carried


@dataclass(frozen=True, slots=True)
class RowShape:
    """Row changes of one table that have the same columns in the same order."""

    number: int
    table: int
    name: TableName
    layout: str
    places: tuple[int, ...]
    """Where (from 1; 0: nowhere) an image has each column of the definition."""
    key: tuple[int, ...]
    key_names: tuple[str, ...]


def shape_of(number: int, table: int, name: TableName, layout: str, definition: TableDef) -> RowShape:
    """Where an image of this layout has what the definition needs."""
    there = [n.replace("\x1f", ",") for n in layout.split(",,")[0].split(",")]
    places = tuple(there.index(c.name) + 1 if c.name in there else 0 for c in carried(definition))
    key = definition.handle_columns
    return RowShape(
        number, table, name, layout, places, tuple(there.index(k) + 1 if k in there else 0 for k in key), key
    )


def listed(shapes: Sequence[RowShape]) -> str:
    """Shapes as rows of VALUES: number, table, schema and table name, layout."""
    return ", ".join(
        f"({s.number}, {s.table}, {literal(s.name[0])}, {literal(s.name[1])}, {literal(s.layout)})" for s in shapes
    )


def _grouped(shapes: Sequence[RowShape], of: str) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for s in shapes:
        groups.setdefault(getattr(s, of), []).append(s.number)
    return groups


def choice(number: str, choices: Mapping[str, Sequence[int]]) -> str:
    """Choose by a shape's number; the same for all is no choice."""
    if len(choices) == 1:
        return next(iter(choices))
    whens = (f"WHEN {number} IN ({', '.join(map(str, numbers))}) THEN {sql}" for sql, numbers in choices.items())
    return f"CASE {' '.join(whens)} END"


def keys_in(shapes: Sequence[RowShape], image: str) -> str:
    """The texts of the key in an image of the shape ``n``."""
    keys = _grouped(shapes, "key").items()
    return choice("n", {f"[{', '.join(f'{image}[{i}].value' for i in key)}]": numbers for key, numbers in keys})


def old_keys(shapes: Sequence[RowShape]) -> str:
    """The key before an update; columns that the image before leaves out are as after."""
    keys = _grouped(shapes, "key_names").items()
    return choice("n", {f"[{', '.join(map(_old_text, names))}]": numbers for names, numbers in keys})


def _old_text(name: str) -> str:
    own, other = (f"list_filter({image}, lambda c: c.name = {literal(name)})" for image in ("before", "columns"))
    return f"CASE WHEN len({own}) > 0 THEN {own}[1].value ELSE {other}[1].value END"


def old_texts(shape: RowShape) -> str:
    """The texts of the image before; columns that it leaves out are as after."""
    there = [n.replace("\x1f", ",") for n in shape.layout.split(",,")[0].split(",")]
    return ", ".join(_old_text(there[i - 1]) if i else "NULL" for i in shape.places)


def in_order(shapes: Sequence[RowShape], number: str, texts: str) -> str:
    """Texts in the order of the definition's columns."""
    choices: dict[str, list[int]] = {}
    for places, numbers in _grouped(shapes, "places").items():
        listed = ", ".join(f"{texts}[{i}]" if i else "NULL" for i in places)
        straight = places == tuple(range(1, len(places) + 1))
        sql = texts if straight else f"CASE WHEN {texts} IS NOT NULL THEN [{listed}] END"
        choices.setdefault(sql, []).extend(numbers)
    return choice(number, choices)


MERGED, NET = "_ticdc_merged", "_ticdc_net"
"""Temporary tables: the newest change of each key (``tbl``, ``key``, ``texts``: null for a delete), and for tables
without a key how many of which row came (``tbl``, ``copies``, ``texts``)."""

_RANK = "CASE op WHEN 'delete' THEN 0 WHEN 'update' THEN 1 ELSE 2 END"
# of several deliveries the first counts, so that the same log always gives the same
_AT = f'(commit_ts * 4 + {_RANK})::HUGEINT * 9223372036854775808::HUGEINT - "offset"'


@dataclass(frozen=True, slots=True)
class Merged:
    """What :meth:`LogRows.merge` has put into the temporary tables.

    ``tables`` are the names by their number ``tbl``; ``changes`` counts deliveries; ``left_out`` how many row changes
    there are of names that are no known table then.
    """

    tables: tuple[TableName, ...]
    changes: int
    left_out: Mapping[TableName, int]


@dataclass(frozen=True, slots=True)
class LogRows:
    """Row changes of a decoded log.

    Attributes
    ----------
    db
        The connection that reads; its temporary tables hold what was merged.
    files
        Parquet files of :data:`ticdc_lab.events.schema.DECODED`.
    """

    db: duckdb.DuckDBPyConnection
    files: Sequence[str]

    def merge(self, batch: Batch, tables: Mapping[TableName, TableDef]) -> Merged:
        """Merge the row changes of a batch into the temporary tables :data:`MERGED` and :data:`NET`.

        Parameters
        ----------
        batch
            The range.
        tables
            The definitions that hold during the range.

        Raises
        ------
        IncompleteHistoryError
            A row change is known only in part, or lacks a value of its key.
        """
        names, shapes, changes, left_out = self._survey(batch, tables)
        keyed, others = [s for s in shapes if s.key_names], [s for s in shapes if not s.key_names]
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE {MERGED} AS {self._newest(batch, keyed)}")
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE {NET} AS {self._net(batch, others)}")
        no_key = "len(list_filter(key, lambda k: k IS NULL)) > 0"
        lost = f"SELECT tbl, count(*) FROM {MERGED} WHERE {no_key} GROUP BY tbl ORDER BY tbl"
        for number, n in self.db.execute(lost).fetchall():
            raise IncompleteHistoryError(
                f"{'.'.join(names[number])}: {n} row changes with commit_ts in ({batch.since}, {batch.until}] lack a "
                "value of the handle key."
            )
        return Merged(tuple(names), changes, left_out)

    def _survey(
        self, batch: Batch, tables: Mapping[TableName, TableDef]
    ) -> tuple[list[TableName], list[RowShape], int, dict[TableName, int]]:
        """Which tables and layouts occur; as many rows as there are of these."""
        found = self.db.execute(
            "SELECT schema_name, table_name, layout, count(*), count_if(incomplete IS NOT NULL AND op <> 'delete') "
            f"FROM {self._rows(batch)} GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        names: list[TableName] = []
        shapes: list[RowShape] = []
        left_out: dict[TableName, int] = {}
        for schema, table, layout, n, partial in found:
            name = (schema, table)
            if name not in tables:
                left_out[name] = left_out.get(name, 0) + n
                continue
            if partial or layout is None:
                raise partly_known(name, partial or n, batch)
            if name not in names:
                names.append(name)
            shapes.append(shape_of(len(shapes), names.index(name), name, layout, tables[name]))
        return names, shapes, sum(n for *_, n, _ in found), left_out

    def _rows(self, batch: Batch) -> str:
        files = ", ".join(map(literal, self.files))
        home = ""
        if batch.home is not None:
            home = f' AND topic = {literal(batch.home[0])} AND "partition" = {batch.home[1]}'
        return (
            f"(SELECT * FROM read_parquet([{files}]) WHERE kind = 'row' AND error_class IS NULL "
            f"AND commit_ts > {batch.since} AND commit_ts <= {batch.until}{home})"
        )

    def _newest(self, batch: Batch, shapes: Sequence[RowShape]) -> str:
        if not shapes:
            return "SELECT 0 AS tbl, []::VARCHAR[] AS key, []::VARCHAR[] AS texts WHERE false"
        rows, is_key = f"{self._rows(batch)} JOIN shape USING (schema_name, table_name, layout)", "lambda c: c.value"
        after, before = keys_in(shapes, "columns"), keys_in(shapes, "before")
        old = old_keys(shapes)
        gone = "NULL::VARCHAR[] AS texts"
        return f"""
            WITH shape(n, tbl, schema_name, table_name, layout) AS (VALUES {listed(shapes)}),
            change AS (
                SELECT n, tbl, {after} AS key, {_AT} AS place, list_transform(columns, {is_key}) AS texts
                FROM {rows} WHERE op <> 'delete'
                UNION ALL SELECT n, tbl, {before}, {_AT}, {gone} FROM {rows} WHERE op = 'delete'
                UNION ALL SELECT n, tbl, {old}, {_AT.replace(_RANK, "0")}, {gone}
                FROM {rows} WHERE op = 'update' AND before_key_hash IS NOT NULL),
            newest AS (SELECT tbl, key, arg_max({{n: n, texts: texts}}, place) AS last FROM change GROUP BY tbl, key)
            SELECT tbl, key, {in_order(shapes, "last.n", "last.texts")} AS texts FROM newest"""

    def _net(self, batch: Batch, shapes: Sequence[RowShape]) -> str:
        if not shapes:
            return "SELECT 0 AS tbl, 1 AS copies, []::VARCHAR[] AS texts WHERE false"
        after = in_order(shapes, "n", "list_transform(columns, lambda c: c.value)")
        old = "CASE n " + " ".join(f"WHEN {s.number} THEN [{old_texts(s)}]" for s in shapes) + " END"
        return f"""
            WITH shape(n, tbl, schema_name, table_name, layout) AS (VALUES {listed(shapes)}),
            change AS (
                SELECT DISTINCT ON (commit_ts, op, change_hash, tbl) n, tbl, columns, before
                FROM {self._rows(batch)} JOIN shape USING (schema_name, table_name, layout))
            SELECT tbl, sum(copies)::BIGINT AS copies, texts FROM (
                SELECT tbl, 1 AS copies, {after} AS texts FROM change WHERE columns IS NOT NULL
                UNION ALL SELECT tbl, -1, {old} FROM change WHERE before IS NOT NULL)
            GROUP BY tbl, texts HAVING sum(copies) <> 0"""


def partly_known(name: TableName, n: int, batch: Batch) -> IncompleteHistoryError:
    """Rows of a table that the log does not hold whole would be written."""
    return IncompleteHistoryError(
        f"{'.'.join(name)}: {n} row changes with commit_ts in ({batch.since}, {batch.until}] are known only in part, "
        "so the target would hold rows that never were.",
        hint="Give the claim-check folder, let the changefeed send large messages whole, or stop before: --until "
        f"{batch.since}.",
    )
