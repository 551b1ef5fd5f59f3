"""Delta tables as a target: a folder for each table, and ``_state``, which names the versions that belong together.

Delta commits one table at a time. A batch first writes every table it touches, one commit each, then replaces
``_state`` in one commit: in that moment the batch is done. A reader of one consistent state takes the versions that
``_state`` names (:func:`ticdc_lab.consumer.sinks.delta.consistent`). A replay that is killed before that commit
leaves tables ahead of ``_state``; the next one restores each to the version that ``_state`` names before it resumes, so
that nothing is applied twice, in tables without a key too.

DDL that changes columns rewrites the table, and so does a batch that changes a table without a key. Folders are
called after the table's first name and the commit_ts of its creation, and stay after a rename or drop.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count
from operator import and_, or_
from pathlib import Path

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.consumer.replay_plan import Batch, DdlStep, Move, TargetProgress, left_out, moves, partly_known
from ticdc_lab.consumer.sinks import FORMAT, KEY, OTHER_KEY, Note, key_is_other, require_format
from ticdc_lab.consumer.sinks.delta_files import NEW_FILES, SmallTable, files_by_table, rewriting
from ticdc_lab.engine import is_several_machines
from ticdc_lab.engine.columns import named, no_texts, nullable
from ticdc_lab.engine.delta_log import KnownFiles, table_state
from ticdc_lab.engine.delta_table import create_table, replace_table
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.changes import op_rank
from ticdc_lab.events.schema import BEFORE_UNNAMED
from ticdc_lab.facts.catalog import DDL
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.lake.one_pass import LakeFile
from ticdc_lab.tables.as_of import signed
from ticdc_lab.tables.mysql_types import NUMBERED, parsed, typed
from ticdc_lab.tables.versions import (
    AFTER,
    BEFORE,
    ImageParts,
    Stretch,
    carried,
    changes_of,
    delivery_place,
    key_or_stop,
    not_carried,
    text_of,
    traces,
    valued,
    with_images,
)

OURS = "ticdc_lab.consume"
"""Delta's note on commits of files that our tasks have written."""

REWRITTEN_BYTES = 16 << 20
"""A table whose files have at most so many bytes is rewritten by a batch, others are merged: MERGE reads twice."""

CHANGES_A_TASK = 100_000
"""So many row changes of a table that is rewritten are put into it by one task; more are parted among all."""


class DeltaSink:
    """A folder of Delta tables.

    ``folder``: a path or URL that Spark can write. ``events``: the events contract of the log that will be replayed.
    """

    rows_a_batch = 1_000_000
    runs_ddl = False

    def __init__(self, folder: str, events: DataFrame) -> None:
        self.name, self.known = f"delta:{folder}", KnownFiles()
        self.spark, self.events = events.sparkSession, events
        # on a cluster the workers may not see a folder of this machine: there Spark writes, as to a URL
        self.place = None if is_several_machines(self.spark) else local_path(folder)
        self.folder = folder.rstrip("/") if self.place is None or "://" in folder else str(self.place)
        self.state: TargetState | None = None

    def progress(self) -> TargetProgress | None:
        """As in ``_state``; tables that are ahead of it are restored to it."""
        self.state = read_state(self.spark, self.folder)
        if self.state is None:
            return None
        restored = dict(self.state.tables)
        for name, at in restored.items():
            if self._version(at) != at.version:
                path = self._path(at.folder)
                taken = self.known.take_back(self.spark, path, at.version, note=OURS)
                if taken is None:
                    raise _changed_by_others(path)
                if not taken:
                    DeltaTable.forPath(self.spark, path).restoreToVersion(at.version)
                restored[name] = replace(at, version=self._version(at))
        self.state = replace(self.state, tables=restored)
        return self.state.progress

    def begin(self, progress: TargetProgress, given: Sequence[TableDef]) -> None:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.begin`."""
        state = TargetState(progress)
        for table in given:
            state = self._changed(state, DdlStep("create", (table.schema_name, table.table_name), after=table), 0)
        self._done(state, set(state.tables))

    def tables(self, _: Collection[TableName] = ()) -> frozenset[TableName]:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.tables`."""
        return frozenset(self.state.tables) if self.state else frozenset()

    def apply(
        self, batch: Batch, tables: Mapping[TableName, TableDef], changes: Sequence[DdlStep], ddl: Sequence[DDL]
    ) -> int:
        """As :meth:`ticdc_lab.consumer.sinks.Sink.apply`; the commit of ``_state`` is the last of several."""
        assert self.state is not None
        state, n, touched = replace(self.state, progress=batch.after), 0, dict[TableName, int]()
        rows = rows_of(self.events, batch)
        for name, (changed, partial) in sorted(survey(rows).items()) if batch.rows else ():
            n += changed
            if name not in tables:
                state = _noted(state, batch.until, name, left_out(changed))
                continue
            if partial:
                raise partly_known(name, partial, batch)
            if self._version(state.tables[name]) != state.tables[name].version:
                raise _changed_by_others(self._path(state.tables[name].folder))
            touched[name] = changed
        state = self._write(rows, batch, {name: tables[name] for name in touched}, touched, state)
        written = set(touched)
        for change in changes:
            state = self._changed(state, change, batch.until)
            written |= {change.name} if change.kind in ("create", "rename", "reshape", "truncate") else set()
            written -= {change.origin} if change.origin and change.kind == "rename" else set()
        self._done(state, written & set(state.tables))
        return n

    def _write(
        self,
        rows: DataFrame,
        batch: Batch,
        touched: Mapping[TableName, TableDef],
        changed: Mapping[TableName, int],
        state: TargetState,
    ) -> TargetState:
        """Apply the changes of a batch to the tables that it touches, each one commit; they are sorted out once."""
        for name, table in touched.items():
            if not table.handle_columns:
                path = self._path(state.tables[name].folder)
                there = self.spark.read.format("delta").load(path)
                counted(rows, there, batch, table).write.format("delta").mode("overwrite").save(path)
        keyed = {name: table for name, table in touched.items() if table.handle_columns}
        if not keyed:
            return state
        merged = newest(rows, list(keyed.values())).persist()
        try:
            state = self._with_keys(merged, keyed, state, batch.until)
            targets = [_Target(table, state.tables[name].folder, state.tables[name].keys)
                       for name, table in keyed.items()]  # fmt: skip
            small = {
                number: (target, SmallTable(target.folder, files, target.key))
                for number, (name, target) in enumerate(zip(keyed, targets, strict=True))
                if changed[name] <= CHANGES_A_TASK and (files := self._small(target.folder)) is not None
            }
            if small:
                self._rewrite(merged, small)
            for number, target in enumerate(targets):
                if number not in small:
                    self._merge(changes_to(merged, {number: target.table}, target.keys), target)
        finally:
            merged.unpersist()
        return state

    def _with_keys(
        self, merged: DataFrame, keyed: Mapping[TableName, TableDef], state: TargetState, ts: int
    ) -> TargetState:
        """Give the column :data:`KEY` to tables that need it from now on; return these keys."""
        suspects = {n: t for n, t in enumerate(keyed.values()) if any(map(_may_be_odd, _handle(t)))}
        if not suspects:
            return state
        odd = F.coalesce(*(F.when(F.col("_table") == str(n), _is_odd(t)) for n, t in suspects.items()))
        found = merged.where(odd).groupBy("_table").agg(F.count(F.lit(1)), F.min(F.to_json("_key"))).collect()
        for number, n, example in sorted(found, key=lambda row: int(row[0])):
            name, table = list(keyed.items())[int(number)]
            said = f"keys that no value here can represent, such as {example}: {n}; {KEY} keeps their texts"
            state = _noted(state, ts, name, said)
            at = state.tables[name]
            if not at.keys:
                path = self._path(at.folder)
                there = self.spark.read.format("delta").load(path)
                columns = tuple(c.name for c in carried(table))
                replace_table(there.withColumn(KEY, F.lit(None).cast("string")), path, columns_were=columns)
                state = replace(state, tables={**state.tables, name: replace(at, keys=True)})
        return state

    def _small(self, folder: str) -> tuple[str, ...] | None:
        """The files of a table that one task may rewrite; None of another, which Spark writes.

        A task reads and writes plain files of a folder that it sees; what is greater is parted among all tasks.
        """
        files = self.known.plain(self.spark, self._path(folder)) if self.place is not None else None
        few = files is not None and sum(f.size for f in files) <= REWRITTEN_BYTES
        return tuple(f.name for f in files) if files is not None and few else None

    def _rewrite(self, merged: DataFrame, small: Mapping[int, tuple[_Target, SmallTable]]) -> None:
        """Rewrite small tables, all of them in one job, a file each; then each is one commit without a job.

        Tables of the same columns are one part of the job: Spark compiles each part.

        Raises SourceError: another writer has changed a table since its files were read.
        """
        alike: dict[tuple[object, bool], dict[int, TableDef]] = {}
        for number, (target, _) in small.items():
            columns = (tuple(carried(target.table)), target.key)
            alike.setdefault((columns, target.keys), {})[number] = target.table
        task = rewriting(str(self.place), {number: own for number, (_, own) in small.items()})
        parts = [
            changes_to(merged, tables, keys)
            .repartition("_table")
            .sortWithinPartitions("_table")
            .mapInArrow(task, NEW_FILES)
            for (_, keys), tables in alike.items()
        ]
        for number, files in files_by_table(reduce(DataFrame.unionAll, parts).toArrow()).items():
            own = small[number][1]
            path = self._path(own.folder)
            if not self.known.commit(self.spark, path, files, note=OURS, removed=own.files, nothing_else=True):
                raise _changed_by_others(path)

    def _merge(self, changes: DataFrame, target: _Target) -> None:
        path = self._path(target.folder)
        names = [c.name for c in carried(target.table)] + [KEY] * target.keys
        now, values = table_state(self.spark, path), [f"_row.{named(name)}" for name in names]
        if now.files == 0:
            changes.where("NOT _gone").select(*values).write.format("delta").mode("append").save(path)
        elif now.size is not None and now.size <= REWRITTEN_BYTES:
            there = self.spark.read.format("delta").load(path).alias("t")
            left = there.join(changes.alias("s"), same_key(target.key), "left_anti")
            written = left.unionByName(changes.where("NOT _gone").select(*values))
            written.coalesce(1).write.format("delta").mode("overwrite").save(path)
        else:
            own: dict[str, str | Column] = {named(name): F.col(f"s._row.{named(name)}") for name in names}
            stays = F.expr("NOT s._gone")
            (
                DeltaTable.forPath(self.spark, path).alias("t")
                .merge(changes.alias("s"), same_key(target.key))
                .whenMatchedDelete("s._gone")
                .whenMatchedUpdate(stays, own)
                .whenNotMatchedInsert(stays, own)
                .execute()
            )  # fmt: skip

    def _changed(self, state: TargetState, change: DdlStep, ts: int) -> TargetState:
        """What a DDL does to the folders, and to their entries in ``_state``."""
        tables, name, after = dict(state.tables), change.name, change.after
        if change.kind == "create" and after is not None:
            folder = _folder_of(name, ts, taken={at.folder for at in tables.values()})
            create_table(self.spark, schema_of(after), self._path(folder))
            tables[name] = TableFolder(folder, 0)
        elif change.kind == "drop":
            tables.pop(name, None)
        elif change.kind == "drop database":
            tables = {n: at for n, at in tables.items() if n[0] != name[0]}
        elif change.kind == "rename" and change.origin is not None:
            tables[name] = tables.pop(change.origin)
        elif change.kind == "truncate":
            DeltaTable.forPath(self.spark, self._path(tables[name].folder)).delete()
        elif change.kind == "reshape" and change.before is not None and after is not None:
            at, columns = tables[name], moves(change.before, after)
            path, there = self._path(at.folder), self.spark.read.format("delta").load(self._path(at.folder))
            keys = at.keys and bool(after.handle_columns)
            if at.keys and key_is_other(change.before, after) and (n := there.where(F.col(KEY).isNotNull()).count()):
                state = _noted(state, ts, name, OTHER_KEY.format(n=n))
            shaped = there.select(*map(moved_column, columns), *[F.col(KEY)] * keys)
            replace_table(shaped, path, columns_were=tuple(c.name for c in carried(change.before)))
            tables[name] = replace(at, keys=keys)
            for m in columns:
                state = (
                    _noted(state, ts, name, f"values of {m.column.name} became NULL: {m.reason}") if m.reason else state
                )
        state = replace(state, tables=tables)
        return _noted(state, ts, name, change.reason) if change.reason else state

    def _done(self, state: TargetState, touched: set[TableName]) -> None:
        """Write which versions belong together: the batch is done."""
        now = {name: replace(at, version=self._version(at)) if name in touched else at
               for name, at in state.tables.items()}  # fmt: skip
        self.state = replace(state, tables=now)
        write_state(self.spark, self.folder, self.state, self.known, self.place)

    def _version(self, at: TableFolder) -> int:
        """The newest version of a table."""
        return table_state(self.spark, self._path(at.folder)).version

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


@dataclass(frozen=True, slots=True)
class _Target:
    """A table with its folder in the target, and whether it has the column :data:`KEY`."""

    table: TableDef
    folder: str
    keys: bool

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that together are another value in each row."""
        return (*(c.name for c in _handle(self.table)), *[KEY] * self.keys)


def _changed_by_others(path: str) -> SourceError:
    return SourceError(
        f"Another process changed {path} while a log was replayed into it.",
        hint="Run the same `ticdc-lab consume` again: it resumes from the batch before, and undoes what came after it.",
    )


def _folder_of(name: TableName, ts: int, taken: set[str]) -> str:
    """A folder that no file system refuses, and no other table has: characters of a name may be left out of it."""
    short = re.sub(r"[^\w.-]", "_", f"{name[0]}.{name[1]}")[:50]
    others = (f"{short}-{ts}{'-' * (n > 0)}{n or ''}" for n in count())
    return next(folder for folder in others if folder not in taken)


def _noted(state: TargetState, ts: int, name: TableName, said: str) -> TargetState:
    return replace(state, notes=(*state.notes, (ts, ".".join(filter(None, name)), said)))


# Row changes of a range as Spark frames that Delta merges, by the expressions of :mod:`ticdc_lab.tables`.

Survey = dict[TableName, tuple[int, int]]


def rows_of(events: DataFrame, batch: Batch) -> DataFrame:
    """Row changes of a batch."""
    ts = F.col("commit_ts")
    found = events.where((F.col("kind") == "row") & (ts > batch.since) & (ts <= batch.until))
    if batch.home is None:
        return found
    return found.where((F.col("topic") == batch.home[0]) & (F.col("partition") == batch.home[1]))


def survey(rows: DataFrame) -> Survey:
    """How many row changes each table has, and how many are known only in part; one row a table."""
    partial = F.count_if((F.col("incomplete") != BEFORE_UNNAMED) & (F.col("op") != "delete"))
    found = rows.groupBy("schema_name", "table_name").agg(F.count(F.lit(1)).alias("n"), partial.alias("partial"))
    return {(r["schema_name"], r["table_name"]): (r["n"], r["partial"]) for r in found.collect()}


ROW = ImageParts("row")
"""The image that a change leaves, or that a delete ended."""


def newest(rows: DataFrame, tables: Sequence[TableDef]) -> DataFrame:
    """The newest change of each key of many tables, in one pass over their rows.

    Returns: ``_table`` (string: its number in ``tables``; Spark writes numbers into the classes that it compiles, so
    that one table's would not do for the next), ``_key`` (array<string>), ``_op``, the parts of :data:`ROW`, and
    ``protocol``; tables lie one after the other in each partition.
    """
    handles = [
        (t.schema_name, t.table_name, str(i), [(c.name, parsed(c.mysql_type).spark) for c in _handle(t)])
        for i, t in enumerate(tables)
    ]
    known = rows.sparkSession.createDataFrame(
        handles,
        "schema_name string, table_name string, _table string, _handle array<struct<name: string, type: string>>",
    )
    changes = with_images(rows.join(F.broadcast(known), ["schema_name", "table_name"])).withColumns(
        {"_old_key": _key_in(BEFORE, AFTER), "_new_key": _key_in(AFTER)}
    )
    op, old_key = F.col("op"), F.col("_old_key")

    def effect(key: str, op: Column, image: ImageParts) -> Column:
        done = nullable(op, because=F.col("commit_ts")).alias("op")
        parts = (image.names.alias("names"), image.texts.alias("texts"))
        rank = nullable(op_rank(op), because=F.col("commit_ts")).alias("_rank")
        return F.struct(F.col(key).alias("_key"), rank, F.struct(done, *parts, "protocol").alias("_row"))

    left = (op == "update") & F.col("before").isNotNull() & (old_key != F.col("_new_key"))
    gone = F.when(left, effect("_old_key", F.lit("delete"), BEFORE))
    own = F.when(op == "delete", effect("_old_key", op, BEFORE)).otherwise(effect("_new_key", op, AFTER))
    effects = F.explode(F.array_compact(F.array(gone, own))).alias("_e")
    each = changes.select("_table", "commit_ts", delivery_place().alias("_at"), effects)
    each = each.select("_table", key_or_stop("_e._key").alias("_key"), "commit_ts", "_e._rank", "_at", "_e._row")
    last = F.max_by("_row", F.struct("commit_ts", "_rank", "_at")).alias("_row")
    found = each.groupBy("_table", "_key").agg(last).sortWithinPartitions("_table")
    parts = {"_op": "op", "_row_names": "names", "_row_texts": "texts", "protocol": "protocol"}
    return found.select("_table", "_key", *[F.col(f"_row.{part}").alias(name) for name, part in parts.items()])


def _handle(table: TableDef) -> list[ColumnDef]:
    """The columns of the handle key in a fixed order."""
    key = [c for name in table.handle_columns if (c := table.column(name)) is not None]
    return sorted(key, key=lambda c: (c.id, c.name))


def _key_in(*images: ImageParts) -> Column:
    """Texts of the handle key; of each column that in the first of ``images`` that carries it."""

    def text(column: Column) -> Column:
        name, kind, found = column["name"], column["type"], F.lit(None).cast("string")
        for image in reversed(images):
            place = F.array_position(image.names, name).cast("int")
            found = F.when(place > 0, F.get(image.texts, place - 1)).otherwise(found)
        # TiCDC prints a FLOAT with its own digits or with a DOUBLE's: here one value has one text
        zero = {of: (found.try_cast(of) + F.lit(0).cast(of)).cast("string") for of in ("float", "double")}
        number = F.when(kind == "float", zero["float"]).when(kind == "double", zero["double"])
        return F.coalesce(number, found)

    return F.transform("_handle", text)


def _may_be_odd(column: ColumnDef) -> bool:
    return parsed(column.mysql_type).family not in ("text", "other")


def _is_odd(table: TableDef) -> Column:
    """Whether a text of ``_key`` becomes NULL, or equal to another one, as a value of its column."""
    found = [F.lit(False)]
    for i, c in enumerate(_handle(table)):
        if _may_be_odd(c):
            of, text = parsed(c.mysql_type), F.col("_key")[i]
            found.append(typed(text, of)[0].isNull())
            if of.family == "enum" and "" in of.elements:  # 0, MySQL's mark for no element, reads '' too
                found.append((text == "0") & F.col("protocol").isin(*NUMBERED))
    return reduce(or_, found)


def _kept_text(text: Column, column: ColumnDef) -> Column:
    """A text of a key in :data:`KEY`; the same when a DDL has made a DATE a DATETIME, or that more precise."""
    if parsed(column.mysql_type).family != "datetime":
        return text
    shorter = F.regexp_replace(text, r"(\.[0-9]*[1-9])0+$|\.0*$", "$1")
    return F.regexp_replace(shorter, " 00:00:00$", "")


def changes_to(merged: DataFrame, tables: Mapping[int, TableDef], with_keys: bool = False) -> DataFrame:
    """What :func:`newest` gives for tables, by number, of the same columns and key.

    ``_table`` (string), ``_row`` (its columns), ``_gone`` (boolean) and ``_k0``, .. (the key); ``with_keys`` adds
    :data:`KEY` to both.
    """
    table = next(iter(tables.values()))
    found = [Stretch(0, (table.schema_name, table.table_name), None, None, table)]
    columns = traces(found, all_columns=False)
    these = F.array(*[F.lit(str(number)) for number in tables])
    own = merged.where(F.array_contains(these, F.col("_table"))).withColumn("_stretch", F.lit(0))
    texts = F.array(*[text_of(c, ROW) for c in columns])
    own = own.withColumns({"_texts": texts, "_missing": F.coalesce(not_carried(found, ROW), no_texts())})
    keys = [typed(F.col("_key")[i], parsed(c.mysql_type))[0].alias(f"_k{i}") for i, c in enumerate(_handle(table))]
    values = valued(columns, found, as_of=True)[:-2]
    if with_keys:
        texts = F.array(*[_kept_text(F.col("_key")[i], c) for i, c in enumerate(_handle(table))])
        kept = F.when(_is_odd(table), F.to_json(texts))
        keys, values = [*keys, kept.alias(f"_k{len(keys)}")], [*values, kept.alias(KEY)]
    return own.select("_table", F.struct(*values).alias("_row"), (F.col("_op") == "delete").alias("_gone"), *keys)


def counted(rows: DataFrame, there: DataFrame, batch: Batch, table: TableDef) -> DataFrame:
    """All rows of a table without a key after a batch: those that are there, and what the changes add and take."""
    found = [Stretch(0, (table.schema_name, table.table_name), batch.since, batch.until, table)]
    columns = traces(found, all_columns=False)
    values = valued(columns, found, as_of=True)[:-2]
    changes = signed(changes_of(rows, found), found, columns).select(F.struct(*values).alias("_row"), "_by")
    own = F.struct(*[named(c.name) for c in columns]).alias("_row")
    every = there.select(own, F.lit(1).alias("_by")).unionAll(changes)
    net = every.groupBy("_row").agg(F.sum("_by").alias("_n")).where("_n > 0")
    copies = F.explode(F.array_repeat(F.lit(1), F.col("_n").cast("int"))).alias("_copy")
    return net.select("_row", copies).select("_row.*")


def moved_column(move: Move) -> Column:
    """The values of a column when its table is reshaped."""
    target = parsed(move.column.mysql_type)
    if move.source is None:
        text = F.lit(move.text).cast("string")
        value = text if target.family in ("enum", "set") else typed(text, target)[0]
    elif move.how == "unknown":
        value = F.lit(None)
    else:
        value = F.col(named(move.source.name)).try_cast(target.spark)
    return value.cast(target.spark).alias(move.column.name)


def schema_of(table: TableDef) -> str:
    """The columns of a table as Spark's DDL."""
    return ", ".join(f"{named(c.name)} {parsed(c.mysql_type).spark}" for c in carried(table))


def same_key(key: Sequence[str]) -> Column:
    """Whether a row ``t`` of the table has the key of a change ``s``; ``key`` names its columns."""
    pairs = ((F.col(f"t.{named(name)}"), F.col(f"s._k{i}")) for i, name in enumerate(key))
    return reduce(and_, (own.eqNullSafe(changed) for own, changed in pairs))


# A Delta target's own state: how far it is, and which version of which table that is.

_COLUMNS = (
    "mode string, origin string, ddl_ts bigint, kind string, topic string, partition int, applied_ts bigint, "
    "schema_name string, table_name string, folder string, version bigint, said string"
)


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of a table inside the target, its Delta version, and whether it has the column :data:`KEY`."""

    folder: str
    version: int
    keys: bool = False


@dataclass(frozen=True, slots=True)
class TargetState:
    """All that the table ``_state`` holds: replaced as a whole by one Delta commit, after the tables were written."""

    progress: TargetProgress
    tables: Mapping[TableName, TableFolder] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


def read_state(spark: SparkSession, folder: str) -> TargetState | None:
    """The state of a target; None where it has none. A few rows: one a partition, a table and a note.

    Raises SourceError: a later version has written it.
    """
    if not DeltaTable.isDeltaTable(spark, f"{folder}/_state"):
        return None
    rows = spark.read.format("delta").load(f"{folder}/_state").collect()
    if not rows:
        return None
    require_format(f"delta:{folder}", max((r["version"] for r in rows if r["kind"] == "format"), default=1))
    head = rows[0]
    at = {(r["topic"], r["partition"]): r["applied_ts"] for r in rows if r["kind"] == "partition"}
    tables = {
        (r["schema_name"], r["table_name"]): TableFolder(r["folder"], r["version"], r["said"] == KEY)
        for r in rows
        if r["kind"] == "table"
    }
    notes = sorted((r["applied_ts"], r["table_name"], r["said"]) for r in rows if r["kind"] == "note")
    return TargetState(TargetProgress(head["mode"], head["origin"], at, head["ddl_ts"]), tables, tuple(notes))


def write_state(spark: SparkSession, folder: str, state: TargetState, known: KnownFiles, place: Path | None) -> None:
    """Replace the state in one Delta commit: from then on the batch is done.

    ``spark``, ``folder``, ``state``: what to write, and the target. ``known``: what is known of its tables' files.
    ``place``: the target as a folder that we may write to ourselves; without one Spark writes.
    """
    p, path = state.progress, f"{folder}/_state"
    head = (p.mode, p.origin, p.ddl_ts)
    rows = [
        (*head, "format", *[None] * 6, FORMAT, None),
        *[(*head, "partition", *home, ts, *[None] * 5) for home, ts in p.positions.items()],
        *[
            (*head, "table", *[None] * 3, *name, at.folder, at.version, KEY if at.keys else None)
            for name, at in state.tables.items()
        ],
        *[(*head, "note", None, None, ts, None, table, None, None, said) for ts, table, said in state.notes],
    ]
    if place is None or not DeltaTable.isDeltaTable(spark, path) or known.plain(spark, path) is None:
        spark.createDataFrame(rows, _COLUMNS).coalesce(1).write.format("delta").mode("overwrite").save(path)
        return
    form = arrow_of(_COLUMNS)
    file = LakeFile(str(place), "_state", form)
    file.add(pa.Table.from_pylist([dict(zip(form.names, row, strict=True)) for row in rows], form))
    written = file.closed()
    assert written is not None  # it has rows
    known.commit(spark, path, [written], note=OURS, everything=True)


def consistent(spark: SparkSession, folder: str) -> dict[TableName, DataFrame]:
    """Every table of a target as it was at one commit_ts, by name.

    Delta commits table by table. Who reads the folders while a replay writes may therefore see some tables after a
    batch and some before it; the versions in ``_state``, which is written last, belong together.

    ``spark``: a session with Delta. ``folder``: the target's folder.
    """
    state = read_state(spark, folder)
    places = {} if state is None else state.tables
    return {
        name: spark.read.format("delta").option("versionAsOf", at.version).load(f"{folder}/{at.folder}")
        for name, at in sorted(places.items())
    }
