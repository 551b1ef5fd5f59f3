"""Which range of commit_ts is applied when: a replay cut into batches, each one transaction of the target. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ticdc_lab.errors import ContractError
from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, words_of
from ticdc_lab.facts.catalog import DDL, Catalog, TableVersion
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.tables.mysql_types import moved, parsed
from ticdc_lab.tables.stretches import carried
from ticdc_lab.tables.versions import added_text

Home = tuple[str, int]
"""Topic and partition."""

TRANSACTION, ROW = "transaction", "row"
MODES = (TRANSACTION, ROW)


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """How far a target is, as the target itself says.

    Attributes
    ----------
    mode
        ``transaction`` or ``row``.
    origin
        Names the log (:func:`ticdc_lab.consumer.replay.origin_of`).
    positions
        commit_ts (TSO) up to which the row changes of each partition are applied; 0 for none.
    ddl_ts
        commit_ts (TSO) up to which DDL are executed; 0 for none.
    """

    mode: str
    origin: str
    positions: Mapping[Home, int]
    ddl_ts: int = 0

    @property
    def ts(self) -> int:
        """commit_ts (TSO) up to which every partition is applied."""
        return min(self.positions.values(), default=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Row changes with ``since < commit_ts <= until`` (TSO), then the DDL of ``until``: one transaction of the target.

    ``home`` is the only partition whose row changes it holds, None for all; ``rows`` and ``ddl`` say whether it has
    any; ``after`` is what the target says once it is committed.
    """

    since: int
    until: int
    after: TargetProgress
    home: Home | None = None
    rows: bool = True
    ddl: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """How far a replay goes.

    Attributes
    ----------
    resolved
        resolved_ts (TSO) of each partition.
    ddl
        commit_ts (TSO) of the log's DDL.
    cuts
        commit_ts (TSO) at which ranges are cut, so that no batch is too large.
    until
        Where to stop (TSO), None for as far as the log is resolved.
    """

    resolved: Mapping[Home, int]
    ddl: Sequence[int] = field(default=())
    cuts: Sequence[int] = field(default=())
    until: int | None = None

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

    Raises
    ------
    ContractError
        The mode is unknown.
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
    ``reshape`` (columns changed), ``doubt`` (``reason`` says what is no longer known of ``name``), ``create database``
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
    says, or ``added``: all rows get ``text``. ``reason`` says why the values cannot be told (they become NULL).
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
    doubts = [DdlStep("doubt", ("", ""), reason=f"{u.reason}: {u.query[:200]}")
              for u in catalog.unparsed if u.commit_ts == ts and not u.table_name]  # fmt: skip
    found = [*created, *tables, *dropped, *doubts]
    return found or [DdlStep("nothing", (d[1], d[2]), reason=f"it changes no column and no row: {d[3]}") for d in mine]


def _of_version(name: TableName, earlier: TableDef | None, version: TableVersion) -> Iterable[DdlStep]:
    after, event = version.definition, version.event
    if event == "created":
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
    if event in ("lost", "unknown"):
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
