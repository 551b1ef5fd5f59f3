"""Delta tables as a target: a folder for each table, and ``_state``, which names the versions that belong together.

Delta commits one table at a time. A batch first merges every table it touches, one commit each, then replaces
``_state`` in one commit: in that moment the batch is done. A reader of one consistent state takes the versions that
``_state`` names (:func:`ticdc_lab.consumer.sinks.delta_state.consistent`). A replay that is killed before that commit
leaves tables ahead of ``_state``; the next one restores each to the version that ``_state`` names before it goes on, so
that nothing is applied twice, in tables without a key too.

DDL that changes columns writes the table anew, and so does a batch that changes a table without a key. Folders are
called after the table's first name and the commit_ts of its creation, and stay after a rename or drop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.consumer.replay_ddl import Change, moves
from ticdc_lab.consumer.replay_plan import Batch, Progress
from ticdc_lab.consumer.replay_rows import partly_known
from ticdc_lab.consumer.sinks import Note
from ticdc_lab.consumer.sinks.delta_rows import (
    counted,
    moved_column,
    newest,
    rows_of,
    same_key,
    schema_of,
    survey,
)
from ticdc_lab.consumer.sinks.delta_state import Place, State, read_state, version_of, write_state
from ticdc_lab.engine.columns import named
from ticdc_lab.engine.delta_table import replace_table
from ticdc_lab.facts.catalog import DDL, TableDef, TableName
from ticdc_lab.tables.stretches import carried


class DeltaSink:
    """A folder of Delta tables.

    Parameters
    ----------
    folder
        A path or URL that Spark can write.
    events
        The events contract of the log that will be replayed.
    """

    rows_a_batch = 1_000_000

    def __init__(self, folder: str, events: DataFrame) -> None:
        self.name, self.folder = f"delta:{folder}", folder.rstrip("/")
        self.spark, self.events = events.sparkSession, events
        self.state: State | None = None

    def progress(self) -> Progress | None:
        """As ``_state`` says; tables that are ahead of it are restored to it."""
        self.state = read_state(self.spark, self.folder)
        if self.state is None:
            return None
        for at in self.state.tables.values():
            path = self._path(at.folder)
            if version_of(self.spark, path) != at.version:
                DeltaTable.forPath(self.spark, path).restoreToVersion(at.version)
        return self.state.progress

    def begin(self, progress: Progress, given: Sequence[TableDef]) -> None:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.begin`."""
        state = State(progress)
        for table in given:
            state = self._changed(state, Change("create", (table.schema_name, table.table_name), after=table), 0)
        self._done(state, set(state.tables))

    def tables(self) -> frozenset[TableName]:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.tables`."""
        return frozenset(self.state.tables) if self.state else frozenset()

    def apply(
        self, batch: Batch, tables: Mapping[TableName, TableDef], changes: Sequence[Change], ddl: Sequence[DDL]
    ) -> int:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.apply`; the commit of ``_state`` is the last of several."""
        assert self.state is not None
        state, n, touched = replace(self.state, progress=batch.after), 0, set[TableName]()
        rows = rows_of(self.events, batch)
        for name, (changed, partial) in sorted(survey(rows).items()) if batch.rows else ():
            n += changed
            if name not in tables:
                said = f"{changed} row changes are left out: it is no table that the log defines then"
                state = _noted(state, batch.until, name, said)
                continue
            if partial:
                raise partly_known(name, partial, batch)
            self._merge(rows, batch, tables[name], self._path(state.tables[name].folder))
            touched.add(name)
        for change in changes:
            state = self._changed(state, change, batch.until)
            touched |= {change.name} if change.kind in ("create", "rename", "reshape", "truncate") else set()
            touched -= {change.origin} if change.origin and change.kind == "rename" else set()
        self._done(state, touched & set(state.tables))
        return n

    def _merge(self, rows: DataFrame, batch: Batch, table: TableDef, path: str) -> None:
        target = DeltaTable.forPath(self.spark, path)
        if not table.handle_columns:
            counted(rows, target.toDF(), batch, table).write.format("delta").mode("overwrite").save(path)
            return
        values: dict[str, str | Column] = {named(c.name): F.col(f"s._row.{named(c.name)}") for c in carried(table)}
        there = F.expr("NOT s._gone")
        (
            target.alias("t")
            .merge(newest(rows, batch, table).alias("s"), same_key(table))
            .whenMatchedDelete("s._gone")
            .whenMatchedUpdate(there, values)
            .whenNotMatchedInsert(there, values)
            .execute()
        )

    def _changed(self, state: State, change: Change, ts: int) -> State:
        """What a DDL does to the folders, and to what ``_state`` will say of them."""
        tables, name, after = dict(state.tables), change.name, change.after
        if change.kind == "create" and after is not None:
            folder = _folder_of(name, ts, taken={at.folder for at in tables.values()})
            replace_table(self.spark.createDataFrame([], schema_of(after)), self._path(folder))
            tables[name] = Place(folder, 0)
        elif change.kind == "drop":
            tables.pop(name, None)
        elif change.kind == "drop database":
            tables = {n: at for n, at in tables.items() if n[0] != name[0]}
        elif change.kind == "rename" and change.origin is not None:
            tables[name] = tables.pop(change.origin)
        elif change.kind == "truncate":
            DeltaTable.forPath(self.spark, self._path(tables[name].folder)).delete()
        elif change.kind == "reshape" and change.before is not None and after is not None:
            path, columns = self._path(tables[name].folder), moves(change.before, after)
            shaped = self.spark.read.format("delta").load(path).select(*map(moved_column, columns))
            replace_table(shaped, path, columns_were=tuple(c.name for c in carried(change.before)))
            for m in columns:
                state = (
                    _noted(state, ts, name, f"values of {m.column.name} became NULL: {m.reason}") if m.reason else state
                )
        state = replace(state, tables=tables)
        return _noted(state, ts, name, change.reason) if change.reason else state

    def _done(self, state: State, touched: set[TableName]) -> None:
        """Write which versions belong together: the batch is done."""
        now = {name: replace(at, version=version_of(self.spark, self._path(at.folder))) if name in touched else at
               for name, at in state.tables.items()}  # fmt: skip
        self.state = replace(state, tables=now)
        write_state(self.spark, self.folder, self.state)

    def _path(self, folder: str) -> str:
        return f"{self.folder}/{folder}"

    def frame(self, spark: SparkSession, table: TableDef, folder: str) -> DataFrame:
        """The table in the version that ``_state`` names."""
        assert self.state is not None
        at = self.state.tables[table.schema_name, table.table_name]
        return spark.read.format("delta").option("versionAsOf", at.version).load(self._path(at.folder))

    def notes(self) -> list[Note]:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.notes`."""
        return list(self.state.notes) if self.state else []

    def close(self) -> None:
        """Nothing is held."""


def _folder_of(name: TableName, ts: int, taken: set[str]) -> str:
    """A folder that no file system refuses, and no other table has: characters of a name may be left out of it."""
    short = re.sub(r"[^\w.-]", "_", f"{name[0]}.{name[1]}")[:50]
    others = (f"{short}-{ts}{'-' * (n > 0)}{n or ''}" for n in count())
    return next(folder for folder in others if folder not in taken)


def _noted(state: State, ts: int, name: TableName, said: str) -> State:
    return replace(state, notes=(*state.notes, (ts, ".".join(filter(None, name)), said)))
