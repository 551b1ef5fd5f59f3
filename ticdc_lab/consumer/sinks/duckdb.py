"""DuckDB as a target: it reads what Spark has decoded, merges it and writes it, all in this process.

Rows, DDL and progress of a batch are one transaction. Tables have their columns and no keys or indexes: a batch holds
one change a key, so it deletes the keys it touches and inserts what is there afterwards. The schema ``_ticdc_lab``
holds ``progress`` (a row a partition) and ``notes``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.consumer.replay_plan import MERGED, NET, Batch, DdlStep, LogRows, Move, TargetProgress, left_out, moves
from ticdc_lab.consumer.sinks import FORMAT, KEY, OTHER_KEY, Note, key_is_other, not_a_database, require_format
from ticdc_lab.engine.paths import stored_parquet
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import SAID_OF_A_FULL_DISK
from ticdc_lab.events.ddl import literal, quoted
from ticdc_lab.facts.catalog import DDL
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.tables.mysql_types import NUMBERED, ColumnType, parsed
from ticdc_lab.tables.versions import carried
from ticdc_lab.words import first_line

DATABASE = "ticdc_lab_target"
"""What the file is called while it is attached: by its own name it might be taken for a schema in it."""

OWN = f"{DATABASE}._ticdc_lab"
"""The schema of what a replay keeps for itself."""

_DRAFT = f"{OWN}.draft"


def named(name: TableName) -> str:
    """A table of the file, in SQL."""
    return f"{DATABASE}.{quoted(name[0])}.{quoted(name[1])}"


def has_column(db: duckdb.DuckDBPyConnection, name: TableName, column: str) -> bool:
    """Whether a table of the file has a column."""
    found = db.execute(
        f"SELECT 1 FROM duckdb_columns() WHERE database_name = '{DATABASE}' AND schema_name = ? AND table_name = ? "
        "AND column_name = ?",
        [*name, column],
    )
    return bool(found.fetchall())


def changed(db: duckdb.DuckDBPyConnection, change: DdlStep) -> list[str]:
    """Do what a DDL does to tables without keys; what it could not do, one sentence each."""
    name, after, said = change.name, change.after, [change.reason] if change.reason else []
    if change.kind in ("create database", "create", "rename"):
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {DATABASE}.{quoted(name[0])}")
    if change.kind == "drop database":
        db.execute(f"DROP SCHEMA IF EXISTS {DATABASE}.{quoted(name[0])} CASCADE")
    elif change.kind == "drop":
        db.execute(f"DROP TABLE IF EXISTS {named(name)}")
    elif change.kind == "truncate":
        db.execute(f"DELETE FROM {named(name)}")
    elif change.kind == "create" and after is not None:
        columns = ", ".join(f"{quoted(c.name)} {column_type(c.mysql_type)}" for c in carried(after))
        db.execute(f"CREATE OR REPLACE TABLE {named(name)} ({columns})")
    elif change.kind == "rename" and change.origin is not None:
        _rewritten(db, change.origin, name, "*")
    elif change.kind == "reshape" and change.before is not None and after is not None:
        said = [*_reshaped(db, change.before, after), *said]
    return said


def _reshaped(db: duckdb.DuckDBPyConnection, before: TableDef, after: TableDef) -> list[str]:
    """Rewrite a table with other columns: DuckDB adds columns at the end only."""
    name, columns, keys = (after.schema_name, after.table_name), moves(before, after), False
    said = [s for m in columns if (s := _lost(db, name, m))]
    if has_column(db, name, KEY):
        keys = bool(after.handle_columns)
        n = db.execute(f"SELECT count({KEY}) FROM {named(name)}").fetchall()[0][0]
        said += [OTHER_KEY.format(n=n)] * (n > 0 and key_is_other(before, after))
    values = [f"{_moved(m)} AS {quoted(m.column.name)}" for m in columns]
    _rewritten(db, name, name, ", ".join(values + [KEY] * keys))
    return said


def _rewritten(db: duckdb.DuckDBPyConnection, old: TableName, new: TableName, values: str) -> None:
    """By a draft, because names that differ in case only are the same to DuckDB."""
    db.execute(f"CREATE OR REPLACE TABLE {_DRAFT} AS SELECT {values} FROM {named(old)}")
    db.execute(f"DROP TABLE {named(old)}")
    db.execute(f"CREATE TABLE {named(new)} AS SELECT * FROM {_DRAFT}")
    db.execute(f"DROP TABLE {_DRAFT}")


def _moved(move: Move) -> str:
    kind = column_type(move.column.mysql_type)
    if move.source is None:
        text = "NULL" if move.text is None else literal(move.text)
        labelled = parsed(move.column.mysql_type).family in ("enum", "set")
        added = text if labelled else value(text, move.column.mysql_type, numbered=False)
        return f"CAST({added} AS {kind})"
    old = quoted(move.source.name)
    if parsed(move.source.mysql_type).family == "float" != parsed(move.column.mysql_type).family:
        old = f"CAST({old} AS VARCHAR)"  # the shortest digits, as MySQL prints them, not the exact binary number
    return f"CAST(NULL AS {kind})" if move.how == "unknown" else f"TRY_CAST({old} AS {kind})"


def _lost(db: duckdb.DuckDBPyConnection, name: TableName, move: Move) -> str:
    """Which values become NULL because TiDB's result is unknown, or fits no more; empty if none."""
    if move.source is None and not move.reason:
        return ""
    there = "true" if move.source is None else f"{quoted(move.source.name)} IS NOT NULL"
    n = db.execute(f"SELECT count(*) FROM {named(name)} WHERE {there} AND {_moved(move)} IS NULL").fetchall()[0][0]
    why = move.reason or f"they do not fit {move.column.mysql_type}"
    return f"{n} {'value' if n == 1 else 'values'} of {move.column.name} became NULL: {why}" if n else ""


MEMORY = "2GiB"
"""What DuckDB may use; beyond it, it writes to a temporary folder."""

_TABLES_THERE = f"duckdb_tables() WHERE database_name = '{DATABASE}'"
_OWN_TABLES = f"{_TABLES_THERE} AND schema_name = '_ticdc_lab'"
_TABLES = f"""
CREATE SCHEMA {OWN};
CREATE TABLE {OWN}.progress (mode VARCHAR, origin VARCHAR, topic VARCHAR, "partition" INTEGER, applied_ts BIGINT,
    ddl_ts BIGINT);
CREATE TABLE {OWN}.notes (commit_ts BIGINT, "table" VARCHAR, said VARCHAR);
CREATE TABLE {OWN}.format AS SELECT {{format}} AS format;
"""


class DuckDBSink:
    """A database file.

    ``path``: the file; made if it is not there. ``files``, ``protocol``: the decoded log: Parquet files of
    :data:`ticdc_lab.events.schema.DECODED`. Raises SourceError: the file cannot be opened: another process has it open,
    or it is none of DuckDB's.
    """

    rows_a_batch = 1_000_000
    runs_ddl = False

    def __init__(self, path: str, files: Sequence[str], protocol: str) -> None:
        self.name = f"duckdb:///{path}"
        try:
            self.db = duckdb.connect()
            self.db.execute(f"ATTACH {literal(path)} AS {DATABASE}; USE {DATABASE}")
        except duckdb.Error as e:
            raise not_a_database(path, e) from e
        self.spill = tempfile.TemporaryDirectory(prefix="ticdc_lab_")
        self.db.execute(f"SET memory_limit = '{MEMORY}'; SET temp_directory = {literal(self.spill.name)}")
        self.db.execute("SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
        self.rows = LogRows(self.db, files)
        self.numbered = protocol in NUMBERED

    def progress(self) -> TargetProgress | None:
        """As in the table ``progress``; a :class:`SourceError` where a later version has written it."""
        own = {name for (name,) in self.db.execute(f"SELECT table_name FROM {_OWN_TABLES}").fetchall()}
        (written,) = self.db.execute(f"SELECT format FROM {OWN}.format").fetchall()[0] if "format" in own else (1,)
        require_format(self.name, written)
        rows = self.db.execute(f"SELECT * FROM {OWN}.progress").fetchall() if "progress" in own else []
        if not rows:
            return None
        mode, origin, *_, ddl_ts = rows[0]
        return TargetProgress(mode, origin, {(topic, partition): ts for _, _, topic, partition, ts, _ in rows}, ddl_ts)

    def begin(self, progress: TargetProgress, given: Sequence[TableDef]) -> None:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.begin`."""
        with _Transaction(self.db):
            self.db.execute(_TABLES.format(format=FORMAT))
            for definition in given:
                changed(self.db, DdlStep("create", (definition.schema_name, definition.table_name), after=definition))
            self._say(progress)

    def tables(self, _: Collection[TableName] = ()) -> frozenset[TableName]:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.tables`."""
        found = self.db.execute(f"SELECT schema_name, table_name FROM {_TABLES_THERE} AND schema_name <> '_ticdc_lab'")
        return frozenset((schema, table) for schema, table in found.fetchall())

    def apply(
        self, batch: Batch, tables: Mapping[TableName, TableDef], changes: Sequence[DdlStep], ddl: Sequence[DDL]
    ) -> int:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.apply`."""
        merged = self.rows.merge(batch, tables) if batch.rows else None
        with _said(self.name, batch), _Transaction(self.db):
            for number, name in enumerate(merged.tables if merged else ()):
                (self._upsert if tables[name].handle_columns else self._count)(number, tables[name])
                self._note_unfit(number, tables[name], batch.until)
            for name, n in (merged.left_out if merged else {}).items():
                self._note(batch.until, name, left_out(n))
            for change in changes:
                for said in changed(self.db, change):
                    self._note(batch.until, change.name, said)
            self._say(batch.after)
        return merged.changes if merged else 0

    def _upsert(self, number: int, table: TableDef) -> None:
        """Delete every key that the batch touches, insert what is there afterwards."""
        own = f"{MERGED} m WHERE m.tbl = {number}"
        key = [c for name in table.handle_columns if (c := table.column(name)) is not None]
        typed = [f"{self._value(f'm.key[{i + 1}]', c)} AS k{i}" for i, c in enumerate(key)]
        same = " AND ".join(f"t.{quoted(c.name)} = k.k{i}" for i, c in enumerate(key))
        text = f"to_json([{', '.join(kept_text(f'm.key[{i + 1}]', c) for i, c in enumerate(key))}])::VARCHAR"
        odd = " OR ".join(self._unfit(f"m.key[{i + 1}]", c) for i, c in enumerate(key))
        there = self._has_keys(table, odd=f"SELECT count(*) FROM {own} AND ({odd})")
        plain = f" AND NOT ({odd})" if there else ""
        mine = f" AND t.{KEY} IS NULL" if there else ""
        self.db.execute(
            f"DELETE FROM {_of(table)} t USING (SELECT {', '.join(typed)} FROM {own}{plain}) k WHERE {same}{mine}"
        )
        if there:
            self.db.execute(f"DELETE FROM {_of(table)} WHERE {KEY} IN (SELECT {text} FROM {own})")
        names = [quoted(c.name) for c in carried(table)] + [KEY] * there
        values = self._values(table, "m.texts") + (f", CASE WHEN {odd} THEN {text} END" if there else "")
        self.db.execute(
            f"INSERT INTO {_of(table)} ({', '.join(names)}) SELECT {values} FROM {own} AND m.texts IS NOT NULL"
        )

    def _unfit(self, text: str, column: ColumnDef) -> str:
        """Whether a text of the key becomes NULL here, or equal to another one: SQL."""
        of, value = parsed(column.mysql_type), self._value(text, column)
        if of.family == "enum" and self.numbered and "" in of.elements:  # 0, MySQL's mark for no element, reads '' too
            return f"coalesce({value} IS NULL OR {text} = '0', true)"
        return f"({value} IS NULL)"

    def _has_keys(self, table: TableDef, *, odd: str) -> bool:
        """Whether the table keeps the texts of keys that it cannot hold; it does from the first such key on."""
        if has_column(self.db, (table.schema_name, table.table_name), KEY):
            return True
        if not self.db.execute(odd).fetchall()[0][0]:
            return False
        self.db.execute(f"ALTER TABLE {_of(table)} ADD COLUMN {KEY} VARCHAR")
        return True

    def _count(self, number: int, table: TableDef) -> None:
        """Take away and add as many copies of each row as the batch defines.

        A table's columns may be called anything, so inside they go by numbers: ``id`` would be taken for a row's place.
        """
        columns, at = carried(table), _of(table)
        own, listed = [quoted(c.name) for c in columns], ", ".join(f"c{i}" for i in range(len(columns)))
        there = ", ".join(f"t.{name} AS c{i}" for i, name in enumerate(own))
        texts = ", ".join(f"{self._value(f'texts[{i + 1}]', c)} AS c{i}" for i, c in enumerate(columns))
        net = f"SELECT {texts}, copies FROM {NET} WHERE tbl = {number}"
        net = f"SELECT {listed}, sum(copies)::BIGINT AS copies FROM ({net}) GROUP BY {listed}"
        same = " AND ".join(f"n.c{i} IS NOT DISTINCT FROM g.c{i}" for i in range(len(columns)))
        copies = f"SELECT *, row_number() OVER (PARTITION BY {listed}) AS copy"
        if "rowid" in {c.name.lower() for c in columns}:  # which hides where a row lies: all are rewritten
            left = f"{copies} FROM (SELECT {there} FROM {at} t)"
            left = f"SELECT n.* FROM ({left}) n LEFT JOIN ({net}) g ON {same} WHERE coalesce(n.copy > -g.copies, true)"
            self.db.execute(f"CREATE OR REPLACE TABLE {_DRAFT} AS {left}; DELETE FROM {at}")
            self.db.execute(f"INSERT INTO {at} SELECT {listed} FROM {_DRAFT}; DROP TABLE {_DRAFT}")
        else:
            gone = f"{copies} FROM (SELECT t.rowid AS place, {there} FROM {at} t)"
            gone = f"SELECT n.place FROM ({gone}) n JOIN ({net}) g ON {same} AND n.copy <= -g.copies"
            self.db.execute(f"DELETE FROM {at} WHERE rowid IN ({gone})")
        self.db.execute(f"INSERT INTO {at} SELECT {listed} FROM ({net}), range(greatest(copies, 0))")

    def _values(self, table: TableDef, texts: str) -> str:
        return ", ".join(
            f"{self._value(f'{texts}[{i + 1}]', c)} AS {quoted(c.name)}" for i, c in enumerate(carried(table))
        )

    def _value(self, text: str, column: ColumnDef) -> str:
        return value(text, column.mysql_type, numbered=self.numbered)

    def _note_unfit(self, number: int, table: TableDef, ts: int) -> None:
        """Name the values that became NULL because their DuckDB type, or their own, cannot represent them."""
        columns = [(f"texts[{i + 1}]", c) for i, c in enumerate(carried(table))]
        asked = [(text, c, value) for text, c in columns if (value := self._value(text, c)) != text]
        if not asked:
            return
        unfit = [f"{text} IS NOT NULL AND {value} IS NULL" for text, _, value in asked]
        counts = [f"count_if({u}), min({text}) FILTER ({u})" for u, (text, *_) in zip(unfit, asked, strict=True)]
        (found,) = self.db.execute(
            f"SELECT {', '.join(counts)} FROM (SELECT tbl, texts FROM {MERGED} UNION ALL SELECT tbl, texts "
            f"FROM {NET} WHERE copies > 0) WHERE tbl = {number}"
        ).fetchall()
        for (_, c, _), n, example in zip(asked, found[::2], found[1::2], strict=True):
            if n:
                no_form = parsed(c.mysql_type).family in ("date", "datetime")
                why = f"{c.mysql_type} has no other form here" if no_form else f"it is no value of {c.mysql_type}"
                said = f"{n} {'value' if n == 1 else 'values'} of {c.name} became NULL, such as {example}: {why}"
                self._note(ts, (table.schema_name, table.table_name), said)

    def _note(self, ts: int, name: TableName, said: str) -> None:
        self.db.execute(f"INSERT INTO {OWN}.notes VALUES (?, ?, ?)", [ts, ".".join(filter(None, name)), said])

    def _say(self, progress: TargetProgress) -> None:
        self.db.execute(f"DELETE FROM {OWN}.progress")
        rows = [[progress.mode, progress.origin, *home, ts, progress.ddl_ts] for home, ts in progress.positions.items()]
        if rows:
            self.db.executemany(f"INSERT INTO {OWN}.progress VALUES (?, ?, ?, ?, ?, ?)", rows)

    def frame(self, spark: SparkSession, table: TableDef, folder: str) -> DataFrame:
        """The table as DuckDB writes it to Parquet."""
        path = Path(folder) / "rows.parquet"
        self.db.execute(f"COPY {_of(table)} TO {literal(str(path))} (FORMAT parquet)")
        return stored_parquet(spark, str(path))

    def notes(self) -> list[Note]:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.notes`."""
        return self.db.execute(f'SELECT * FROM {OWN}.notes ORDER BY commit_ts, "table", said').fetchall()

    def close(self) -> None:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.close`."""
        self.db.close()
        self.spill.cleanup()


@contextmanager
def _said(name: str, batch: Batch) -> Iterator[None]:
    """DuckDB's error is reported with its range."""
    try:
        yield
    except duckdb.Error as e:
        what = "a DDL or row changes" if batch.ddl else "row changes"
        full = "Make room on its disk. Committed batches stay, and the same `ticdc-lab consume` resumes behind them."
        raise SourceError(
            f"{name}: {what} with commit_ts in ({batch.since}, {batch.until}] cannot be written. DuckDB says: "
            f"{first_line(e)}",
            hint=full
            if any(words in str(e) for words in SAID_OF_A_FULL_DISK)
            else "See what contradicts itself in the log: ticdc-lab audit SOURCE. To stop before: --until "
            f"{batch.since}.",
        ) from e


class _Transaction:
    """All or nothing."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self.db = db

    def __enter__(self) -> None:
        self.db.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.db.execute("COMMIT" if kind is None else "ROLLBACK")


def _of(table: TableDef) -> str:
    return named((table.schema_name, table.table_name))


# MySQL types as DuckDB types, and the texts that MySQL prints as their values. | MySQL | DuckDB | | |---|---|---| |
# tinyint .. bigint, signed and unsigned | TINYINT .. BIGINT, UTINYINT .. UBIGINT | | | decimal(p,s) | DECIMAL(p,s);
# VARCHAR where p > 38 | | | float, double | FLOAT, DOUBLE | | | bit(n) | UBIGINT | the unsigned number | | year |
# INTEGER | | | date | DATE | 0000-00-00 and dates with a part of 0 become NULL, which the target's table `notes`
# counts | | datetime, timestamp | TIMESTAMP | likewise; a timestamp in the time zone of TiCDC's server | | time |
# VARCHAR | -838:59:59 to 838:59:59 fits no TIME | | enum, set | VARCHAR: the label, the labels joined by commas | | |
# binary, varbinary, blob | BLOB | | | json | JSON | | | char, varchar, text, anything else | VARCHAR | |

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

    ``text``: SQL for the text that MySQL prints; binary is ``0x`` and lower-case hex. ``mysql_type``: the column's
    type. ``numbered``: whether ENUM and SET may be numbers.
    """
    of, kind = parsed(mysql_type), column_type(mysql_type)
    if of.family in ("enum", "set") and of.elements and numbered:
        return _labels(text, of)
    if kind == "BLOB":
        return f"from_hex(substr({text}, 3))"
    return text if kind in _FITS_ALWAYS else f"TRY_CAST({text} AS {kind})"


def _labels(text: str, of: ColumnType) -> str:
    listed, number = ", ".join(map(literal, of.elements)), f"TRY_CAST({text} AS UBIGINT)"
    if of.family == "enum":
        labels = f"['', {listed}][{number}::INTEGER + 1]"  # 0 is MySQL's mark for what was no element
    else:
        chosen = f"list_filter([{listed}], lambda label, i: ({number} >> (i - 1)::UBIGINT) & 1 = 1)"
        labels = f"array_to_string({chosen}, ',')"
    return f"CASE WHEN {number} IS NULL THEN {text} ELSE {labels} END"


def kept_text(text: str, column: ColumnDef) -> str:
    """SQL for a text of a key in :data:`KEY`; the same when a DDL has made a DATE a DATETIME, or that more precise."""
    if parsed(column.mysql_type).family != "datetime":
        return text
    shorter = f"CASE WHEN contains({text}, '.') THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END"
    return f"regexp_replace({shorter}, ' 00:00:00$', '')"
