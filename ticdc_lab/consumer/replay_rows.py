"""Row changes of a range merged to one change a key, in DuckDB, from the Parquet files that Spark has decoded.

The rules are those of :mod:`ticdc_lab.tables`: of the changes of a key the newest counts, a delete frees a key before
an insert of the same transaction takes it, an update that changes the key deletes the old one, a change delivered
again is the same change. A table without a handle key is a multiset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from ticdc_lab.catalog import TableDef, TableName
from ticdc_lab.consumer.replay_plan import Batch
from ticdc_lab.consumer.replay_shapes import Shape, in_order, keys_in, listed, old_keys, old_texts, shape_of
from ticdc_lab.errors import IncompleteHistoryError
from ticdc_lab.quoting import literal

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
        Parquet files of :data:`ticdc_lab.schema.DECODED`.
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
    ) -> tuple[list[TableName], list[Shape], int, dict[TableName, int]]:
        """Which tables and layouts occur; as many rows as there are of these."""
        found = self.db.execute(
            "SELECT schema_name, table_name, layout, count(*), count_if(incomplete IS NOT NULL AND op <> 'delete') "
            f"FROM {self._rows(batch)} GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        names: list[TableName] = []
        shapes: list[Shape] = []
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

    def _newest(self, batch: Batch, shapes: Sequence[Shape]) -> str:
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

    def _net(self, batch: Batch, shapes: Sequence[Shape]) -> str:
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
