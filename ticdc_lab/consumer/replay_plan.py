"""What a replay applies and when: ranges of commit_ts, each one transaction of the target, with their DDL and their
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ticdc_lab.errors import ContractError, IncompleteHistoryError
from ticdc_lab.events.changes import RANK_SQL
from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, literal, words_of
from ticdc_lab.events.schema import BEFORE_UNNAMED
from ticdc_lab.facts.catalog import DDL, Catalog, TableVersion
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.tables.mysql_types import moved, parsed
from ticdc_lab.tables.versions import added_text, carried
from ticdc_lab.words import are, count, shortened

if TYPE_CHECKING:
    import duckdb

Home = tuple[str, int]
"""Topic and partition."""

TRANSACTION, ROW = "transaction", "row"
MODES = (TRANSACTION, ROW)


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """How far a target is, by its own state."""

    mode: str  # ``transaction`` or ``row``
    origin: str  # names the log (:func:`ticdc_lab.consumer.replay.origin_of`)
    # commit_ts (TSO) up to which the row changes of each partition are applied; 0 for none.
    positions: Mapping[Home, int]
    ddl_ts: int = 0  # commit_ts (TSO) up to which DDL are executed; 0 for none

    @property
    def ts(self) -> int:
        """commit_ts (TSO) up to which every partition is applied."""
        return min(self.positions.values(), default=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Row changes with ``since < commit_ts <= until`` (TSO), then the DDL of ``until``: one transaction of the target.

    ``home`` is the only partition whose row changes it holds, None for all; ``rows`` and ``ddl``: whether it has
    any; ``after`` is the target's state once it is committed.
    """

    since: int
    until: int
    after: TargetProgress
    home: Home | None = None
    rows: bool = True
    ddl: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """How far a replay goes."""

    resolved: Mapping[Home, int]  # resolved_ts (TSO) of each partition
    ddl: Sequence[int] = field(default=())  # commit_ts (TSO) of the log's DDL
    cuts: Sequence[int] = field(default=())  # commit_ts (TSO) at which ranges are cut, so that no batch is too large
    until: int | None = None  # where to stop (TSO), None for as far as the log is resolved

    @property
    def ts(self) -> int:
        """commit_ts (TSO) that all partitions reach."""
        resolved_ts = min(self.resolved.values(), default=0)
        return resolved_ts if self.until is None else min(self.until, resolved_ts)

    def limits(self, mode: str) -> Mapping[Home, int]:
        """How far (TSO) each partition goes; in row mode on to its own resolved_ts, but past no DDL that must wait."""
        if mode == TRANSACTION or self.until is not None:
            return dict.fromkeys(self.resolved, self.ts)
        barrier = min((ts for ts in self.ddl if ts > self.ts), default=None)
        return {home: ts if barrier is None else min(ts, barrier) for home, ts in self.resolved.items()}


def batches(before: TargetProgress, goal: Goal) -> Iterator[Batch]:
    """Cut what is left between a target's progress and the goal into batches, in the order they must be applied.

    In transaction mode a batch holds a range of every partition, so that the target is at each commit what the upstream
    was at the end of the range. In row mode it holds a range of one partition (MQ design: one listener a partition,
    which writes as soon as its own resolved_ts allows); only DDL wait until every partition is there.

    Raises ContractError: the mode is unknown.
    """
    if before.mode not in MODES:
        raise ContractError(f"The mode is {before.mode!r}; expected one of {', '.join(MODES)}.")
    limits = goal.limits(before.mode)
    waiting = {ts for ts in goal.ddl if before.ddl_ts < ts <= goal.ts}
    ends = {ts for ts in (*goal.cuts, *limits.values()) if before.ts < ts <= max(limits.values(), default=0)}
    done = before
    for stop in sorted(waiting | ends):
        for home in [None] if before.mode == TRANSACTION else sorted(limits):
            since = done.ts if home is None else done.positions[home]
            until = stop if home is None else min(stop, limits[home])
            together = home is None and stop in waiting
            if until > since or together:
                reached = dict.fromkeys(limits, until) if home is None else {**done.positions, home: until}
                done = replace(done, positions=reached, ddl_ts=stop if together else done.ddl_ts)
                yield Batch(since, until, done, home, rows=until > since, ddl=together)
        if before.mode == ROW and stop in waiting:
            done = replace(done, ddl_ts=stop)
            yield Batch(stop, stop, done, rows=False, ddl=True)


@dataclass(frozen=True, slots=True)
class DdlStep:
    """One step.

    ``kind`` is ``create``, ``drop``, ``truncate``, ``rename`` (``name`` is the new one, ``origin`` the old),
    ``reshape`` (columns changed), ``doubt`` (``reason``: what is no longer known of ``name``), ``create database``
    or ``drop database`` (``name[0]``), or ``nothing`` (``reason`` is the DDL).
    """

    kind: str
    name: TableName
    before: TableDef | None = None
    after: TableDef | None = None
    origin: TableName | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Where a column's values come from when its table is reshaped.

    ``source`` is the column before, None where it is added; ``how`` is as :func:`ticdc_lab.tables.mysql_types.moved`
    gives, or ``added``: all rows get ``text``. ``reason``: why the values are unknown (they become NULL).
    """

    column: ColumnDef
    source: ColumnDef | None
    how: str
    text: str | None = None
    reason: str = ""


def given_tables(catalog: Catalog) -> list[TableDef]:
    """Tables that were there before the log's first DDL, by name."""
    first = {name: versions[0] for name, versions in catalog.versions.items() if versions}
    return [v.definition for _, v in sorted(first.items()) if v.commit_ts is None and v.definition is not None]


def tables_at(catalog: Catalog, ts: int) -> dict[TableName, TableDef]:
    """Every table that exists and is known at ``ts`` (TSO), DDL of ``ts`` included."""
    found = {name: catalog.table(*name, commit_ts=ts) for name in catalog.versions}
    return {name: definition for name, definition in found.items() if definition is not None}


def changes_at(catalog: Catalog, ddl: Sequence[DDL], ts: int) -> list[DdlStep]:
    """What the DDL of commit_ts ``ts`` (TSO) do, in order."""
    numbered: list[tuple[int, DdlStep]] = []
    for name, versions in catalog.versions.items():
        for i, version in enumerate(versions):
            if version.commit_ts == ts:
                earlier = next((v.definition for v in reversed(versions[:i]) if v.definition is not None), None)
                numbered += [(version.serial, c) for c in _of_version(name, earlier, version)]
    mine = [d for d in ddl if d[0] == ts]
    created, dropped = _databases(mine)
    tables = [c for _, c in sorted(numbered, key=lambda n: n[0])]
    doubts = [DdlStep("doubt", ("", ""), reason=f"{u.reason}: {shortened(u.query, 200)}")
              for u in catalog.unparsed if u.commit_ts == ts and not u.table_name]  # fmt: skip
    found = [*created, *tables, *dropped, *doubts]
    return found or [DdlStep("nothing", (d[1], d[2]), reason=f"it changes no column and no row: {d[3]}") for d in mine]


def _of_version(name: TableName, earlier: TableDef | None, version: TableVersion) -> Iterable[DdlStep]:
    after, event = version.definition, version.event
    if event in ("created", "recovered"):
        yield DdlStep("create", name, after=after)
    elif event == "truncated":
        yield DdlStep("truncate", name, after=after)
    elif event == "renamed":
        yield DdlStep("rename", name, after=after, origin=version.origin)
    elif event == "dropped":
        yield DdlStep("drop", name, before=earlier)
    elif event in ("kept", "lost") and earlier is not None and after is not None and _shape(earlier) != _shape(after):
        yield DdlStep("reshape", name, earlier, after)
    elif event == "lost" and earlier is None:
        yield DdlStep("create", name, after=after)
    if event in ("lost", "recovered", "unknown"):
        yield DdlStep("doubt", name, earlier, after, reason=version.reason)


def _shape(definition: TableDef) -> list[tuple[int, str, str]]:
    return [(c.id, c.name, c.mysql_type) for c in carried(definition)]


def _databases(ddl: Iterable[DDL]) -> tuple[list[DdlStep], list[DdlStep]]:
    """Databases that are created and dropped."""
    created: list[DdlStep] = []
    dropped: list[DdlStep] = []
    for *_, query in ddl:
        try:
            words = Cursor(words_of(query))
        except DDLSyntaxError:
            continue
        verb = words.take_any("CREATE", "DROP")
        if verb and words.take_any("DATABASE", "SCHEMA"):
            words.take("IF", "NOT", "EXISTS")
            words.take("IF", "EXISTS")
            (created if verb == "CREATE" else dropped).append(DdlStep(f"{verb.lower()} database", (words.name(), "")))
    return created, dropped


def moves(before: TableDef, after: TableDef) -> list[Move]:
    """Where each column of ``after`` gets its values from, in the order of its columns."""
    old = {c.id or c.name.lower(): c for c in carried(before)}
    return [_move(old.get(c.id or c.name.lower()), c) for c in carried(after)]


def _move(source: ColumnDef | None, column: ColumnDef) -> Move:
    if source is None:
        text, reason = added_text(column)
        return Move(column, None, "added", text, reason)
    how = moved(parsed(source.mysql_type), parsed(column.mysql_type))
    made = f"was written as {source.mysql_type}; what TiDB made of it as {column.mysql_type} is not in the log"
    return Move(column, source, how, reason=made if how == "unknown" else "")


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
    key_types: tuple[str, ...]


def shape_of(number: int, table: int, name: TableName, layout: str, definition: TableDef) -> RowShape:
    """Where an image of this layout has what the definition needs."""
    there = [n.replace("\x1f", ",") for n in layout.split(",,")[0].split(",")]
    places = tuple(there.index(c.name) + 1 if c.name in there else 0 for c in carried(definition))
    key = definition.handle_columns
    types = tuple(c.mysql_type if (c := definition.column(k)) else "" for k in key)
    return RowShape(
        number, table, name, layout, places, tuple(there.index(k) + 1 if k in there else 0 for k in key), key, types
    )


def key_text(text: str, mysql_type: str) -> str:
    """SQL for the one text of a key's value: TiCDC prints a FLOAT with its own digits or a DOUBLE's."""
    of = parsed(mysql_type)
    if of.family != "float":
        return text
    return f"coalesce((TRY_CAST({text} AS {of.spark}) + CAST(0 AS {of.spark}))::VARCHAR, {text})"


def listed(shapes: Sequence[RowShape]) -> str:
    """Shapes as rows of VALUES: number, table, schema and table name, layout."""
    return ", ".join(
        f"({s.number}, {s.table}, {literal(s.name[0])}, {literal(s.name[1])}, {literal(s.layout)})" for s in shapes
    )


def _grouped(shapes: Sequence[RowShape], of: Callable[[RowShape], Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for s in shapes:
        groups.setdefault(of(s), []).append(s.number)
    return groups


def choice(number: str, choices: Mapping[str, Sequence[int]]) -> str:
    """Choose by a shape's number; the same for all is no choice."""
    if len(choices) == 1:
        return next(iter(choices))
    whens = (f"WHEN {number} IN ({', '.join(map(str, numbers))}) THEN {sql}" for sql, numbers in choices.items())
    return f"CASE {' '.join(whens)} END"


def keys_in(shapes: Sequence[RowShape], image: str) -> str:
    """The texts of the key in an image of the shape ``n``."""

    def texts(s: RowShape) -> str:
        return ", ".join(key_text(f"{image}[{i}].value", of) for i, of in zip(s.key, s.key_types, strict=True))

    return choice("n", {f"[{sql}]": numbers for sql, numbers in _grouped(shapes, texts).items()})


def old_keys(shapes: Sequence[RowShape]) -> str:
    """The key before an update; columns that the image before leaves out are as after."""

    def texts(s: RowShape) -> str:
        return ", ".join(key_text(_old_text(name), of) for name, of in zip(s.key_names, s.key_types, strict=True))

    return choice("n", {f"[{sql}]": numbers for sql, numbers in _grouped(shapes, texts).items()})


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
    for places, numbers in _grouped(shapes, attrgetter("places")).items():
        listed = ", ".join(f"{texts}[{i}]" if i else "NULL" for i in places)
        straight = places == tuple(range(1, len(places) + 1))
        sql = texts if straight else f"CASE WHEN {texts} IS NOT NULL THEN [{listed}] END"
        choices.setdefault(sql, []).extend(numbers)
    return choice(number, choices)


MERGED, NET = "_ticdc_merged", "_ticdc_net"
"""Temporary tables: the newest change of each key (``tbl``, ``key``, ``texts``: null for a delete), and for tables
without a key the copies of each row (``tbl``, ``copies``, ``texts``)."""

# of several deliveries the first counts, so that the same log always gives the same
_AT = f'(commit_ts * 4 + {RANK_SQL})::HUGEINT * 9223372036854775808::HUGEINT - "offset"'


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
    """Row changes of a decoded log."""

    db: duckdb.DuckDBPyConnection  # the connection that reads; its temporary tables contain what was merged
    files: Sequence[str]  # Parquet files of :data:`ticdc_lab.events.schema.DECODED`

    def merge(self, batch: Batch, tables: Mapping[TableName, TableDef]) -> Merged:
        """Merge the row changes of a batch into the temporary tables :data:`MERGED` and :data:`NET`.

        ``batch``: the range. ``tables``: the definitions that hold during the range. Raises IncompleteHistoryError: a
        row change is known only in part, or misses a value of its key.
        """
        names, shapes, changes, left_out = self._survey(batch, tables)
        keyed, others = [s for s in shapes if s.key_names], [s for s in shapes if not s.key_names]
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE {MERGED} AS {self._newest(batch, keyed)}")
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE {NET} AS {self._net(batch, others)}")
        no_key = "len(list_filter(key, lambda k: k IS NULL)) > 0"
        lost = f"SELECT tbl, count(*) FROM {MERGED} WHERE {no_key} GROUP BY tbl ORDER BY tbl"
        for number, n in self.db.execute(lost).fetchall():
            raise IncompleteHistoryError(
                f"{'.'.join(names[number])}: {count(n, 'row change')} without a value of the handle key, with "
                f"commit_ts in ({batch.since}, {batch.until}]."
            )
        return Merged(tuple(names), changes, left_out)

    def _survey(
        self, batch: Batch, tables: Mapping[TableName, TableDef]
    ) -> tuple[list[TableName], list[RowShape], int, dict[TableName, int]]:
        """Which tables and layouts occur; as many rows as there are of these."""
        found = self.db.execute(
            "SELECT schema_name, table_name, layout, count(*), "
            f"count_if(incomplete <> '{BEFORE_UNNAMED}' AND op <> 'delete') "
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
                UNION ALL SELECT n, tbl, {old}, {_AT.replace(RANK_SQL, "0")}, {gone}
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
                SELECT DISTINCT ON (commit_ts, start_ts, op, change_hash, tbl) n, tbl, columns, before
                FROM {self._rows(batch)} JOIN shape USING (schema_name, table_name, layout))
            SELECT tbl, sum(copies)::BIGINT AS copies, texts FROM (
                SELECT tbl, 1 AS copies, {after} AS texts FROM change WHERE columns IS NOT NULL
                UNION ALL SELECT tbl, -1, {old} FROM change WHERE before IS NOT NULL)
            GROUP BY tbl, texts HAVING sum(copies) <> 0"""


def left_out(n: int) -> str:
    """Row changes of a table that is not written.

    Examples
    --------
    >>> left_out(1)
    '1 row change is left out: the log does not define the table then'
    """
    return f"{count(n, 'row change is', 'row changes are')} left out: the log does not define the table then"


def partly_known(name: TableName, n: int, batch: Batch) -> IncompleteHistoryError:
    """Rows of a table that the log does not contain in full would be written."""
    return IncompleteHistoryError(
        f"{'.'.join(name)}: {count(n, 'row change')} with commit_ts in ({batch.since}, {batch.until}] "
        f"{are(n)} known only in part, so the target would have rows that never existed.",
        hint="Give the claim-check folder, let the changefeed send large messages whole, or stop before: --until "
        f"{batch.since}.",
    )
