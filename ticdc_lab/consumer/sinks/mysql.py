"""A MySQL-compatible database as a target.

Rows and progress of a batch are one transaction. A DDL commits by itself in MySQL, so the target's own table ``state``
records before each statement that it is running, and afterwards that it is done: a consumer that is killed in between
runs it again, and takes "it is there already" for done. Between the rows of a range and the DDL at its end there is
thus one more commit, which shows the upstream just before that DDL.

DuckDB merges the rows in this process and writes them as literals; they are sent in statements of many rows. The
database ``_ticdc_lab``, or the one that the URL names, holds ``state``, ``progress``, ``notes`` and ``format``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
from pymysql.connections import Connection
from pymysql.cursors import SSCursor
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.consumer.replay_plan import MERGED, NET, Batch, DdlStep, LogRows, Merged, TargetProgress, left_out
from ticdc_lab.consumer.sinks import FORMAT, REPLAY_FIRST, Note, require_format
from ticdc_lab.consumer.sinks.mysql_connection import LENIENT, STRICT, address_of, connected, connection_said
from ticdc_lab.engine.paths import stored_parquet
from ticdc_lab.errors import SourceError
from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, literal, words_of
from ticdc_lab.facts.catalog import DDL
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.tables.mysql_types import NUMBERED, parsed, typed
from ticdc_lab.tables.versions import carried
from ticdc_lab.words import count, shortened, some_of

STATEMENT_BYTES = 4 << 20
"""A statement of rows is at most so long, about; the server's max_allowed_packet must be larger (16 MiB by default)."""

BY_BYTES = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations of MariaDB and MySQL to which no two texts are the same, not even with blanks at the end."""

_ROWS = 5_000


def of(table: TableDef) -> str:
    """A table, in SQL."""
    return f"{named(table.schema_name)}.{named(table.table_name)}"


EQUAL = "@ticdc_lab_equal"
"""A variable of the session: 1 as soon as a row was taken for another one, whose key has other bytes."""


def upserts(
    db: duckdb.DuckDBPyConnection, number: int, table: TableDef, *, numbered: bool
) -> Iterator[tuple[str, int]]:
    """Statements that delete and write the keys of a batch; replacing ones count the rows they write, else 0.

    Where a second unique key may move from one row to another, all keys of the batch are deleted before any is written.
    In row mode another partition may hold the row that has such a value still: it gives way. Texts of a key are the
    same here only if their bytes are: no log shows whether upstream's collation was in force.
    """
    key = [c for name in table.handle_columns if (c := table.column(name)) is not None]
    own = f"{MERGED} WHERE tbl = {number}"
    literals = [key_literal(f"key[{i + 1}]", c, numbered=numbered) for i, c in enumerate(key)]
    texts = [is_text(c) for c in key]
    exact = [f"concat('CAST(', {text}, ' AS BINARY)')" if t else text for t, text in zip(texts, literals, strict=True)]
    others = len(table.unique_indexes) > 1
    listed = ", ".join(named(c.name) for c in key)
    binary = ", ".join(bytes_of(c) if t else named(c.name) for t, c in zip(texts, key, strict=True))
    keys = [tuple_of(literals), *[tuple_of(exact)] * any(texts)]
    for _, *rows in _joined(db, keys, own + ("" if others else " AND texts IS NULL")):
        found = (f"({names}) IN ({each})" for names, each in zip((listed, binary), rows, strict=False))
        yield f"DELETE FROM {of(table)} WHERE {' AND '.join(found)}", 0
    columns = written(table)
    names = [named(c.name) for _, c in columns]
    values = tuple_of([literal_of(f"texts[{i + 1}]", c, numbered=numbered) for i, c in columns])
    order = [
        f"TRY_CAST(key[{i + 1}] AS HUGEINT)" for i, c in enumerate(key) if parsed(c.mysql_type).family == "integer"
    ]
    in_order = f" ORDER BY {', '.join(order)}" if order else ""  # as the server stores them
    verb = "REPLACE" if others else "INSERT"
    sets = {n: f"VALUES({n})" for n in names}
    for c in (c for c, is_one in zip(key, texts, strict=True) if is_one):
        n = named(c.name)  # for any found value, the value is the new one: the condition is there to see that
        same = f"{bytes_of(c)} = {bytes_of(c, f'VALUES({n})')}"
        sets[n] = f"IF({same}, VALUES({n}), IF(({EQUAL} := 1), VALUES({n}), VALUES({n})))"
    update = "" if others else " ON DUPLICATE KEY UPDATE " + ", ".join(f"{n} = {value}" for n, value in sets.items())
    for odd, mode in each_mode(columns, numbered=numbered):
        alive = f"{own} AND texts IS NOT NULL AND {odd}{in_order}"
        for copies, rows in _joined(db, [values], alive):
            yield from ((sql, 0) for sql in mode[:1])
            yield f"{verb} INTO {of(table)} ({', '.join(names)}) VALUES {rows}{update}", copies if others else 0
            yield from ((sql, 0) for sql in mode[1:])


def each_mode(columns: Sequence[tuple[int, ColumnDef]], *, numbered: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Which rows a sql_mode is for: a condition of DuckDB, and the statements before and after those that write them.

    An ENUM that is no element (0, which prints as an empty text) is refused in strict mode, though upstream has it.
    """
    none = []
    for i, c in columns:
        of_column, text = parsed(c.mysql_type), f"texts[{i + 1}]"
        if of_column.family == "enum" and (numbered or "" not in of_column.elements):
            none.append(f"coalesce({text} = {literal('0' if numbered else '')}, false)")
    if not none:
        yield "true", ()
        return
    yield f"NOT ({' OR '.join(none)})", ()
    yield f"({' OR '.join(none)})", [f"SET SESSION sql_mode = {literal(mode)}" for mode in (LENIENT, STRICT)]


def taken(db: duckdb.DuckDBPyConnection, number: int, table: TableDef, *, numbered: bool) -> Iterator[tuple[str, int]]:
    """Statements that delete copies of one row each from a table without a key, and how many they should delete."""
    same = [same_value(c, literal_of(f"texts[{i + 1}]", c, numbered=numbered)) for i, c in written(table)]
    query = f"SELECT concat_ws(' AND ', {', '.join(same)}), -copies FROM {NET} WHERE tbl = {number} AND copies < 0"
    for batch in db.sql(query).to_arrow_reader(_ROWS):
        for where, copies in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            yield f"DELETE FROM {of(table)} WHERE {where} LIMIT {copies}", copies


def added(db: duckdb.DuckDBPyConnection, number: int, table: TableDef, *, numbered: bool) -> Iterator[str]:
    """Statements that write copies of rows into a table without a key."""
    columns = written(table)
    values = tuple_of([literal_of(f"texts[{i + 1}]", c, numbered=numbered) for i, c in columns])
    names = ", ".join(named(c.name) for _, c in columns)
    for odd, mode in each_mode(columns, numbered=numbered):
        for _, rows in _joined(db, [values], f"{NET}, range(copies) WHERE tbl = {number} AND copies > 0 AND {odd}"):
            yield from (*mode[:1], f"INSERT INTO {of(table)} ({names}) VALUES {rows}", *mode[1:])


def _joined(db: duckdb.DuckDBPyConnection, rows: Sequence[str], source: str) -> Iterator[tuple[Any, ...]]:
    """Literals of rows, joined to pieces of a bounded size: how many rows, and for each of ``rows`` the piece."""
    pieces: list[tuple[str, ...]] = []
    size = 0

    def whole() -> tuple[Any, ...]:
        return (len(pieces), *map(",".join, zip(*pieces, strict=True)))

    for batch in db.sql(f"SELECT {', '.join(rows)} FROM {source}").to_arrow_reader(_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            pieces.append(row)
            size += sum(map(len, row))
            if size > STATEMENT_BYTES:
                yield whole()
                pieces, size = [], 0
    if pieces:
        yield whole()


MEMORY = "1GiB"
FETCHED = 5_000
_PATIENCE_S = 5  # that long a server may take to notice that a consumer was killed
_TABLES_OF = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
_COLUMNS_OF = (
    "SELECT table_schema, table_name, column_name, column_type FROM information_schema.columns JOIN "
    "information_schema.tables USING (table_schema, table_name) WHERE table_schema NOT IN %s AND table_schema <> %s "
    "AND table_type = 'BASE TABLE' AND extra NOT LIKE '%%VIRTUAL GENERATED%%' "  # no log carries these
    "ORDER BY table_schema, table_name, ordinal_position"
)
_NAMES_OF = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
_PLAIN = "the table has only its columns and unique keys, no defaults, other indexes, checks or partitions"
_OR_ELSE = (
    "Or replay into `--sink duckdb:///FILE` or `delta:FOLDER`, which run no statements of MySQL, or record a "
    "changefeed whose filter leaves the table out: rules = ['*.*', '!{}.{}']."
)
_HIDDEN_SCHEMAS = ("information_schema", "mysql", "performance_schema", "sys")


_RESUMES = "Committed batches stay, and the same `ticdc-lab consume` resumes behind them."
_RIGHTS = "The user needs all rights on `_ticdc_lab`, or the database of the URL, and on the databases of the log."
_READ_ONLY, _FULL, _LOCKED = (
    frozenset(codes) for codes in ((1290, 1792, 1836), (3, 28, 1021, 1026, 1030, 1114), (1205, 1213))
)
_OF_SERVER = {
    _READ_ONLY: "It is read-only: name the primary, or let it write (SET GLOBAL read_only = 0).",
    _FULL: "Its disk or tablespace may be full: make room there.",
    frozenset((1044, 1045, 1142, 1143, 1227, 1370)): f"{_RIGHTS} To grant them: GRANT ALL ON *.* TO USER.",
    _LOCKED: "Another session holds a lock on the table: end its transaction (SHOW PROCESSLIST).",
    frozenset((1153,)): "Let it take larger statements: SET GLOBAL max_allowed_packet = 1073741824.",
}
"""What to do about a server that would refuse any value, by the codes of its errors."""


def of_server(error: pymysql.MySQLError) -> str:
    """What to do where the server itself is the cause; empty where the statement is."""
    code = error.args[0] if error.args else 0
    return next((f"{do} {_RESUMES}" for codes, do in _OF_SERVER.items() if code in codes), "")


class MySQLSink:
    """A server.

    ``url``: ``mysql://USER@HOST:PORT[/DATABASE]``. ``files``, ``protocol``: the decoded log: Parquet files of
    :data:`ticdc_lab.events.schema.DECODED`. Raises SourceError: the server cannot be connected to.
    """

    rows_a_batch = 200_000
    runs_ddl = True

    def __init__(self, url: str, files: Sequence[str], protocol: str) -> None:
        address = address_of(url)
        self.name, self.own = address.name, address.database
        self.db = connected(address)
        if not self._ask("SELECT GET_LOCK(%s, %s)", address.lock, _PATIENCE_S)[0][0]:
            self.db.close()
            raise SourceError(
                f"Another consumer is replaying into {self.name}.",
                hint="Wait for it, or end it (SHOW PROCESSLIST; KILL) and run `ticdc-lab consume` again.",
            )
        self.spill = tempfile.TemporaryDirectory(prefix="ticdc_lab_")
        self.merging = duckdb.connect()
        self.merging.execute(f"SET memory_limit = '{MEMORY}'; SET temp_directory = {literal(self.spill.name)}")
        self.rows = LogRows(self.merging, files)
        self.numbered = protocol in NUMBERED
        self.interrupted = (0, -1)
        """commit_ts of the DDL, and the number of its part that was running when a run ended."""

    def progress(self) -> TargetProgress | None:
        """As in the tables ``state`` and ``progress``; a :class:`SourceError` where a later version has written it."""
        with self._needed():
            return self._progress()

    def _progress(self) -> TargetProgress | None:
        own = {name for (name,) in self._ask(_TABLES_OF, self.own)}
        written = self._ask(f"SELECT format FROM {self._at('format')}") if "format" in own else ()
        require_format(self.name, max((n for (n,) in written), default=1))
        if "state" not in own:
            return None
        state = self._ask(f"SELECT mode, origin, ddl_ts, running_ts, running FROM {self._at('state')}")
        if not state:
            return None
        mode, origin, ddl_ts, *interrupted = state[0]
        self.interrupted = interrupted[0], interrupted[1]
        rows = self._ask(f"SELECT topic, partition_number, applied_ts FROM {self._at('progress')}")
        return TargetProgress(mode, origin, {(topic, partition): ts for topic, partition, ts in rows}, ddl_ts)

    def begin(self, progress: TargetProgress, given: Sequence[TableDef]) -> None:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.begin`; tables first, and last the record that it was done."""
        with self._needed():
            self._begin(progress, given)

    def _begin(self, progress: TargetProgress, given: Sequence[TableDef]) -> None:
        self._do(f"CREATE DATABASE IF NOT EXISTS {named(self.own)}")
        columns = {
            "progress": "topic VARCHAR(255) NOT NULL, partition_number INT NOT NULL, applied_ts BIGINT NOT NULL, "
            "PRIMARY KEY (topic, partition_number)",
            "notes": "commit_ts BIGINT, table_name VARCHAR(200), said TEXT",
            "state": "id INT PRIMARY KEY, mode VARCHAR(20), origin VARCHAR(64), ddl_ts BIGINT, running_ts BIGINT, "
            "running INT",
            "format": "format INT PRIMARY KEY",
        }
        for name, body in columns.items():
            self._do(f"CREATE TABLE IF NOT EXISTS {self._at(name)} ({body}) ENGINE = InnoDB CHARACTER SET utf8mb4")
        for definition in given:
            self._create(0, definition)
        self._say(progress)
        self._do(f"REPLACE INTO {self._at('format')} VALUES (%s)", FORMAT)
        self._do(f"INSERT INTO {self._at('state')} VALUES (1, %s, %s, 0, 0, -1)", progress.mode, progress.origin)
        self._commit()

    def tables(self, expected: Collection[TableName]) -> frozenset[TableName]:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.tables`: some servers write all names in lower case."""
        found = self._ask(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN %s "
            "AND table_type = 'BASE TABLE'", (*_HIDDEN_SCHEMAS, self.own),
        )  # fmt: skip
        is_folded = self._ask("SELECT @@lower_case_table_names")[0][0]
        named_as = {(s.lower(), t.lower()): (s, t) for s, t in expected} if is_folded else {}
        return frozenset(named_as.get((schema.lower(), table.lower()), (schema, table)) for schema, table in found)

    def apply(
        self, batch: Batch, tables: Mapping[TableName, TableDef], changes: Sequence[DdlStep], ddl: Sequence[DDL]
    ) -> int:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.apply`, but that each DDL is committed by itself."""
        merged = self.rows.merge(batch, tables) if batch.rows else None
        with self._needed():
            while merged is not None and (equal := self._written(batch, merged, tables)) is not None:
                self._compare_bytes(equal, batch)
            if batch.ddl:
                self._run(batch, changes, ddl)
        return merged.changes if merged else 0

    @contextmanager
    def _needed(self) -> Iterator[None]:
        """What the server refuses of all that is no row and no DDL of the log is reported with what to do."""
        try:
            yield
        except pymysql.MySQLError as e:
            raise SourceError(
                f"{self.name} refuses what a replay needs: {refusal(e)}",
                hint=of_server(e) or f"{_RESUMES} {_RIGHTS}",
            ) from e

    def _written(self, batch: Batch, merged: Merged, tables: Mapping[TableName, TableDef]) -> TableDef | None:
        """Write the rows of a batch and commit; or take all back: the table that takes two of its keys for one."""
        self._do("BEGIN")
        for number, name in enumerate(merged.tables):
            table = self._as_there(tables[name])
            with self._said(name, batch):
                if not table.handle_columns:
                    self._count(number, table, batch.until)
                elif self._upsert(number, table, in_order=batch.home is None):
                    self.db.rollback()
                    return table
        for name, n in merged.left_out.items():
            self._note(batch.until, name, left_out(n))
        self._say(batch.after)
        self._commit()
        return None

    def _as_there(self, table: TableDef) -> TableDef:
        """The table, with plain columns for generated ones that the server does not compute: their values come too."""
        if not any(c.generated for c in carried(table)):
            return table
        computed = {
            name
            for (name,) in self._ask(f"{_NAMES_OF} AND extra LIKE '%%GENERATED%%'", table.schema_name, table.table_name)
        }
        plain = (c if c.name in computed else replace(c, generated="") for c in table.columns)
        return replace(table, columns=tuple(plain))

    def _upsert(self, number: int, table: TableDef, *, in_order: bool) -> bool:
        """Write the keys of a table; whether one gave way to another, though no two partitions can be at odds."""
        self._do(f"SET {EQUAL} = 0")
        more = 0
        for sql, n in upserts(self.merging, number, table, numbered=self.numbered):
            done = self._do(sql)
            more += done - n if n else 0
        return bool(self._ask(f"SELECT {EQUAL}")[0][0]) or (in_order and more > 0)

    def _compare_bytes(self, table: TableDef, batch: Batch) -> None:
        """Let a table compare its texts by their bytes, as an upstream does whose new collations are off.

        Raises SourceError: it does so, and yet two of its keys are one.
        """
        name = (table.schema_name, table.table_name)
        known = self._ask("SELECT collation_name FROM information_schema.collations WHERE collation_name IN %s "
                          "ORDER BY 1 DESC", BY_BYTES)  # fmt: skip
        collation = known[0][0] if known else ""
        others = "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND "
        if not collation or not self._ask(f"{others} collation_name <> %s", *name, collation):
            raise SourceError(
                f"{self.name} takes two rows of {'.'.join(name)} for one, with commit_ts in ({batch.since}, "
                f"{batch.until}]: they are the same in a unique index, although upstream has both.",
                hint=f"See what contradicts itself in the log: ticdc-lab audit SOURCE. To stop before: --until "
                f"{batch.since}.",
            )
        self._do(f"ALTER TABLE {of(table)} CONVERT TO CHARACTER SET utf8mb4 COLLATE {collation}")
        said = f"has keys that are the same in its collation, so upstream compares bytes; here {collation} now does"
        self._note(batch.until, name, said)
        self._commit()

    @contextmanager
    def _said(self, name: TableName, batch: Batch) -> Iterator[None]:
        """The server's refusal of a row is reported with the table and the range."""
        try:
            yield
        except pymysql.MySQLError as e:
            self.db.rollback()
            raise SourceError(
                f"{self.name} refuses rows of {'.'.join(name)} with commit_ts in ({batch.since}, {batch.until}]: "
                f"{refusal(e)}",
                hint=of_server(e)
                or "A value that does not fit would become another one, so nothing of the range is written. "
                f"To stop before: --until {batch.since}; DuckDB and Delta targets store every value of a log.",
            ) from e

    def _count(self, number: int, table: TableDef, ts: int) -> None:
        """Take away and add as many copies of each row as the batch defines; return those that were missing."""
        lacking = 0
        for sql, copies in taken(self.merging, number, table, numbered=self.numbered):
            lacking += copies - self._do(sql)
        if lacking:
            said = f"Deletes of {count(lacking, 'row')} found nothing: the log begins after the insert"
            self._note(ts, (table.schema_name, table.table_name), said)
        for sql in added(self.merging, number, table, numbered=self.numbered):
            self._do(sql)

    def _run(self, batch: Batch, changes: Sequence[DdlStep], ddl: Sequence[DDL]) -> None:
        """Run the DDL of one commit_ts, each committed by itself, with a record before and after."""
        running_ts, running = self.interrupted
        anew = set[TableName]()
        begun = running if running_ts == batch.until else -1
        structural = [c for c in changes if c.kind != "nothing"]
        made, left = {c.name[0] for c in changes if c.kind == "create database"}, list[DDL]()
        if self.own in {c.name[0] for c in changes}:
            raise SourceError(
                f"{self.name} keeps the state of the replay in {self.own}, which the log has tables in.",
                hint="Name another database in mysql://HOST:PORT/DATABASE, or none: it is then _ticdc_lab.",
            )
        for schema in sorted({c.name[0] for c in changes if c.kind in ("create", "rename")} - made):
            self._make_database(schema)  # the log may begin after it was made
        for number, (ts, schema, table, query) in enumerate(ddl):
            if number < begun or ts is None:
                continue
            self._do(f"UPDATE {self._at('state')} SET running_ts = %s, running = %s", ts, number)
            self._commit()
            back = brings_back(query)
            must = bool(structural) and not back
            own = structural if len(ddl) == 1 else [c for c in structural if c.name == (schema, table)]
            why = why_not_run(query) or self._ran((ts, schema, table, query), own, must=must, again=number == begun)
            for change in changes if why and back else ():
                if change.kind == "create" and change.after is not None:
                    self._create(ts, change.after)
                    anew.add(change.name)
            if why:
                self._note(ts, (schema, table), f"{why}: {shortened(query, 200)}")
                left.append((ts, schema, table, query))
        for change in changes:
            if change.kind == "doubt":
                schema, table = change.name
                mine = len(ddl) == 1 or any((s == schema and t in ("", table)) or table in query
                                            for _, s, t, query in left)  # fmt: skip
                done = f"the server has {'not done so' if left and mine else 'done so by itself'}"
                end = "the table was recreated, without rows" if change.name in anew else done
                self._note(batch.until, change.name, f"{change.reason}; {end}")
        self._do(f"UPDATE {self._at('state')} SET ddl_ts = %s, running_ts = 0, running = -1", batch.until)
        self._say(batch.after)
        self._commit()
        self.interrupted = (0, -1)

    def _ran(self, ddl: DDL, steps: Sequence[DdlStep], *, must: bool, again: bool) -> str:
        """Run one statement, which does ``steps``; why it was not run, empty if it was.

        Raises SourceError: the server refuses it, it must be run, and no plain statement makes its table.
        """
        ts, schema, table, query = ddl
        try:
            if schema and self._ask("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", schema):
                self._do(f"USE {named(schema)}")
            # autocommit: else MariaDB's EXCHANGE PARTITION waits for a lock of its own session's
            self._do("SET SESSION sql_mode = %s, autocommit = 1", LENIENT)
            self._do_or_nearest(ts or 0, (schema, table), statement(query))
        except pymysql.MySQLError as e:
            why, done_before = refusal(e), bool(e.args) and e.args[0] in DONE_BEFORE
            if again and done_before:
                return ""
            if e.args and e.args[0] in _READ_ONLY | _FULL | _LOCKED:
                raise  # which is not about this statement
            if e.args[:1] == (_EXISTS,) and steps and all(c.kind == "create database" for c in steps):
                return self._is_free(schema, ts or 0)
            if not must:
                return f"not run, as {why}"
            if again and steps and all(map(self._is_there, steps)):
                return f"not run, as {why}; the table is there as the log defines it"
            made = [c.after for c in steps if c.kind == "create" and c.after is not None and not done_before]
            if made and len(made) == len(steps):
                for definition in made:
                    self._create(ts or 0, definition)
                return f"{_PLAIN}, as {why}"
            raise SourceError(
                f"{self.name} cannot be what upstream is after the DDL {query[:500]!r} (commit_ts {ts}): {why}.",
                hint="The target is what upstream was just before that DDL. Give the table the columns that the log "
                "gives it, under the same names, and run the same `ticdc-lab consume` again: it resumes if they are "
                f"there. {_OR_ELSE.format(schema, table)}",
            ) from e
        finally:
            self._do("SET SESSION sql_mode = %s, autocommit = 0", STRICT)
        return ""

    def _is_free(self, schema: str, ts: int) -> str:
        """What is noted of a database that is there before the log makes it. Raises SourceError: it has tables."""
        there = sorted(table for (table,) in self._ask(_TABLES_OF, schema))
        if there:
            raise SourceError(
                f"{self.name} has the database {schema} before the log creates it (commit_ts {ts}), with "
                f"{count(len(there), 'table')}: {some_of(there)}.",
                hint=f"If its data is not needed, drop it (DROP DATABASE {named(schema)}), or name another server. "
                f"{_RESUMES}",
            )
        self._make_database(schema)
        return "not run, as the database is there already, without a table"

    def _make_database(self, schema: str) -> None:
        """A database as TiDB makes one, unless it has tables already: new ones take its character set."""
        self._do(f"CREATE DATABASE IF NOT EXISTS {named(schema)}")
        if not self._ask(_TABLES_OF, schema):
            self._do(f"ALTER DATABASE {named(schema)} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

    def _do_or_nearest(self, ts: int, name: TableName, sql: str) -> None:
        """Run a DDL; if the server does not have what it names, run it with the server's nearest, which is noted."""
        try:
            self._do(sql)
        except pymysql.MySQLError as e:
            other, lacked = nearest(sql)
            if (e.args or (0,))[0] not in _LACKED or not lacked:
                raise
            self._do(other)
            for said in lacked:
                self._note(ts, name, said)

    def _create(self, ts: int, table: TableDef) -> None:
        """Make a table by what is known of it. Raises SourceError: the server cannot have it."""
        name = (table.schema_name, table.table_name)
        try:
            self._make_database(name[0])
            self._do_or_nearest(ts, name, _created(table))
        except pymysql.MySQLError as e:
            raise SourceError(
                f"{self.name} cannot have the table {'.'.join(name)}: {refusal(e)}.",
                hint=f"The target is what upstream was just before it. {_OR_ELSE.format(*name)}",
            ) from e

    def _is_there(self, step: DdlStep) -> bool:
        """Whether a step was already done by hand, as far as names show."""
        after = step.after
        virtual = {c.name.lower() for c in after.columns if c.generated == "virtual"} if after else set()
        there = [name.lower() for (name,) in self._ask(f"{_NAMES_OF} ORDER BY ordinal_position", *step.name)]
        return [n for n in there if n not in virtual] == [c.name.lower() for c in (carried(after) if after else ())]

    def _note(self, ts: int, name: TableName, said: str) -> None:
        self._do(f"INSERT INTO {self._at('notes')} VALUES (%s, %s, %s)", ts, ".".join(filter(None, name)), said)

    def _say(self, progress: TargetProgress) -> None:
        rows = ", ".join(["(%s, %s, %s)"] * len(progress.positions))
        values = [v for (topic, partition), ts in progress.positions.items() for v in (topic, partition, ts)]
        self._do(f"REPLACE INTO {self._at('progress')} VALUES {rows}", *values)

    def frame(self, spark: SparkSession, table: TableDef, folder: str) -> DataFrame:
        """The table's texts, typed as in events; they pass through here in batches of bounded size."""
        columns, path = carried(table), Path(folder) / "rows.parquet"
        with connection_said(self.name):
            _print_rows(self.db, f"SELECT {', '.join(map(printed, columns))} FROM {of(table)}", len(columns), path)
        self.db.rollback()
        texts = stored_parquet(spark, str(path)).withColumn("protocol", F.lit("mysql"))
        values = [typed(F.col(f"c{i}"), parsed(c.mysql_type))[0].alias(c.name) for i, c in enumerate(columns)]
        return texts.select(*values)

    def notes(self) -> list[Note]:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.notes`."""
        rows = self._ask(f"SELECT commit_ts, table_name, said FROM {self._at('notes')} ORDER BY 1, 2, 3")
        return [(ts, table, said) for ts, table, said in rows]

    def close(self) -> None:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.close`."""
        self.merging.close()
        self.db.close()
        self.spill.cleanup()

    def _at(self, name: str) -> str:
        return f"{named(self.own)}.{named(name)}"

    def _commit(self) -> None:
        with connection_said(self.name):
            self.db.commit()

    def _do(self, sql: str, *values: object) -> int:
        with connection_said(self.name), self.db.cursor() as cursor:
            return int(cursor.execute(sql, values or None))

    def _ask(self, sql: str, *values: object) -> Sequence[tuple[Any, ...]]:
        with connection_said(self.name), self.db.cursor() as cursor:
            cursor.execute(sql, values or None)
            return cursor.fetchall()


def _print_rows(db: Connection, query: str, width: int, path: Path) -> None:
    """The texts that a query gives as a Parquet file; ``c0``, .., not as a column of ours is called."""
    schema = pa.schema([(f"c{i}", pa.string()) for i in range(width)])
    with db.cursor(SSCursor) as cursor, pq.ParquetWriter(path, schema) as writer:
        cursor.execute(query)
        while rows := cursor.fetchmany(FETCHED):
            arrays = [pa.array([_text(r[i]) for r in rows], pa.string()) for i in range(width)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """All rows of a table in a Parquet file: the texts of :func:`printed`, column after column as ``c0``, .."""

    path: Path
    columns: tuple[ColumnDef, ...]


def printed_tables(url: str, folder: Path) -> tuple[dict[TableName, PrintedTable], int]:
    """All tables of a server that a log was replayed into, at one moment, and up to which commit_ts they are.

    ``url``: as of :class:`MySQLSink`. ``folder``: where the rows go. Raises SourceError: the server cannot be connected
    to, or no log was replayed into it.
    """
    address = address_of(url)
    db, own = connected(address), named(address.database)
    with closing(db), connection_said(address.name), db.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        cursor.execute(f"{_TABLES_OF} AND table_name = 'progress'", (address.database,))
        if not cursor.fetchall():
            raise SourceError(f"{address.name} contains no replay.", hint=REPLAY_FIRST)
        cursor.execute(f"SELECT coalesce(min(applied_ts), 0) FROM {own}.progress")
        ((applied,),) = cursor.fetchall()
        cursor.execute(_COLUMNS_OF, (_HIDDEN_SCHEMAS, address.database))
        columns: dict[TableName, list[ColumnDef]] = {}
        for schema, table, name, mysql_type in cursor.fetchall():
            columns.setdefault((schema, table), []).append(ColumnDef(name, mysql_type))
        found = {}
        for n, ((schema, table), of_table) in enumerate(columns.items()):
            found[schema, table] = PrintedTable(folder / f"{n}.parquet", tuple(of_table))
            query = f"SELECT {', '.join(map(printed, of_table))} FROM {named(schema)}.{named(table)}"
            _print_rows(db, query, len(of_table), found[schema, table].path)
    return found, int(applied)


def _created(table: TableDef) -> str:
    """CREATE TABLE for a table by what is known of it: the columns of rows and their keys, no defaults.

    An index over an expression or over the beginning of a text, as one over a TEXT is, is none of the rows' columns.
    """
    columns = [f"{named(c.name)} {c.mysql_type}{'' if c.nullable else ' NOT NULL'}" for c in carried(table)]
    whole = {c.name for c in carried(table) if not re.match("(tiny|medium|long)?(text|blob)", c.mysql_type)}
    keys = [
        f"{'PRIMARY' if i.primary else 'UNIQUE'} KEY ({', '.join(map(named, i.columns))})"
        for i in table.unique_indexes
        if i.primary or whole.issuperset(i.columns)
    ]
    return f"CREATE TABLE IF NOT EXISTS {of(table)} ({', '.join([*columns, *keys])})"


# TiDB's DDL for a MySQL-compatible server: what only TiDB understands is taken out, the rest runs as it is.

_TIDB_ONLY = re.compile(
    r"""
    (?P<kept> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` )
  | /\*T!.*?\*/
  | \b(?:NON)?CLUSTERED\b
  | \bAUTO_RANDOM(?:_BASE)?\b(?:\s*\([^)]*\)|\s*=?\s*\d+)?
  | \b(?:SHARD_ROW_ID_BITS|PRE_SPLIT_REGIONS|AUTO_ID_CACHE)\b\s*=?\s*\d+
  | \bPLACEMENT\s+POLICY\b\s*=?\s*(?:`[^`]*`|\w+)
  | \bTTL(?:_ENABLE|_JOB_INTERVAL)?\b\s*=\s*(?:'[^']*'|`[^`]*`\s*\+\s*INTERVAL\s+\S+\s+\w+|\S+)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_FOREIGN = ("PLACEMENT", "RESOURCE", "BINDING", "STATS_EXTENDED")

DONE_BEFORE = frozenset({1007, 1008, 1050, 1051, 1054, 1060, 1061, 1091, 1146, 1176, 1507, 1517})
"""Errors of a statement that has nothing left to do: it is there already, or gone already.

They count as success only for the statement that was running when a consumer was killed.
"""


def statement(query: str) -> str:
    """A DDL without clauses that only TiDB has; quoted text is left alone."""
    return _TIDB_ONLY.sub(lambda m: m["kept"] or " ", query).strip().rstrip(";")


_SYNTAX = re.compile("near '(.*)' at line", re.DOTALL)


def refusal(error: pymysql.MySQLError) -> str:
    """Why a server refuses a statement; of one that it cannot read, where it ends to."""
    said = str(error.args[-1] if error.args else error)
    at = _SYNTAX.search(said)
    return f"the server does not understand it from {at[1][:60]!r} on" if at else f"the server says {said}"


_EXISTS = 1007
_LACKED = frozenset({1064, 1273, 4161})
"""Errors of a server that does not know a word of a statement: its syntax, a collation, a type."""
_0900, _UCA = "utf8mb4_0900_", "utf8mb4_uca1400_nopad_"
_MYSQL_ONLY = re.compile(
    rf"""
    (?P<kept> '(?:[^'\\]|\\.|'')*' | `[^`]*` | "(?:[^"\\]|\\.)*" )
  | \b{_0900}(?P<collation>\w+)
  | \b(?P<vector>VECTOR)\b(?:\s*\(\s*\d+\s*\))?(?!\s*(?:INDEX|KEY)\b)
  | \b(?P<invisible>INVISIBLE)\b
  | (?<!\bNOT\ )\b(?P<enforced>ENFORCED)\b
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def nearest(sql: str) -> tuple[str, list[str]]:
    """A DDL with what MariaDB and MySQL have for what only others have, and what that is; quotes are left alone.

    As TiCDC does, a VECTOR becomes a LONGTEXT.
    """
    said = dict[str, None]()

    def its_own(found: re.Match[str]) -> str:
        match found.lastgroup:
            case "collation":
                rest = found["collation"].lower()
                said[f"the server has no collation {_0900}.., so {_UCA}.. replaces it"] = None
                return "utf8mb4_nopad_bin" if rest == "bin" else _UCA + rest
            case "vector":
                said["the server has no type VECTOR as TiDB has it, so LONGTEXT replaces it"] = None
                return "LONGTEXT"
            case "invisible":
                said["the server has no INVISIBLE index, so IGNORED replaces it"] = None
                return "IGNORED"
            case "enforced":
                said["the server knows no word ENFORCED; it enforces each check"] = None
                return ""
        return found["kept"]

    return _MYSQL_ONLY.sub(its_own, sql), list(said)


def brings_back(query: str) -> bool:
    """Whether a DDL brings dropped tables back, which only TiDB can: elsewhere they are created, without their rows."""
    try:
        return bool(Cursor(words_of(query)).take_any("RECOVER", "FLASHBACK"))
    except DDLSyntaxError:
        return False


def why_not_run(query: str) -> str:
    """Why a DDL has no meaning outside TiDB; empty if it has one."""
    try:
        words = Cursor(words_of(query))
    except DDLSyntaxError:
        return ""
    words.take_any("CREATE", "ALTER", "DROP")
    return f"only TiDB has a {words.peek().lower()}" if words.peek() in _FOREIGN else ""


# Values as MySQL literals, written by DuckDB from the texts of events, and read back as such texts.


def named(name: str) -> str:
    """An identifier of MySQL."""
    return "`" + name.replace("`", "``") + "`"


def written(table: TableDef) -> list[tuple[int, ColumnDef]]:
    """The columns that are written, with their place among those that events carry: not those the server computes."""
    return [(i, c) for i, c in enumerate(carried(table)) if not c.generated]


def literal_of(text: str, column: ColumnDef, *, numbered: bool) -> str:
    """SQL for DuckDB that writes a text as a literal of MySQL.

    ``text``: SQL for the text that MySQL prints, binary as ``0x`` and hex. ``column``: what it is a value of.
    ``numbered``: whether ENUM and SET may be numbers.
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


def key_literal(text: str, column: ColumnDef, *, numbered: bool) -> str:
    """As :func:`literal_of`, to compare with: a FLOAT equals a number only if that is one too."""
    own = literal_of(text, column, numbered=numbered)
    return f"concat('CAST(', {own}, ' AS FLOAT)')" if parsed(column.mysql_type).spark == "float" else own


def is_text(column: ColumnDef) -> bool:
    """Whether a collation compares the column's values."""
    return parsed(column.mysql_type).family == "text"


def bytes_of(column: ColumnDef, value: str = "") -> str:
    """SQL for MySQL that gives the bytes of a text in UTF-8, for any charset of its column."""
    own = value or named(column.name)
    return f"CAST(CONVERT({own} USING utf8mb4) AS BINARY)" if is_text(column) else f"CAST({own} AS BINARY)"


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
    left = own if kind == "FLOAT" else bytes_of(column)
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
