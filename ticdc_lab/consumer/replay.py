"""A log replayed into a database, to a consistent timestamp, exactly once however often it is interrupted.

In transaction mode the target is at every commit exactly what the upstream was at the end of the range that was
committed: all row changes up to it, each transaction whole, then the DDL of that moment. Ranges are merged: of each key
only its newest version in the range is written. In row mode each partition goes its own way up to its own resolved_ts
(MQ design, "Kafka Consumer 逻辑", 3.1), and only DDL wait until all partitions are there.

The target itself records how far it is, in the same transaction as the rows: a consumer killed at any moment resumes
from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from ticdc_lab.consumer.replay_plan import (
    TRANSACTION,
    Batch,
    Goal,
    TargetProgress,
    batches,
    changes_at,
    given_tables,
    tables_at,
)
from ticdc_lab.consumer.sinks import Note, Sink
from ticdc_lab.engine.shuffle import quantiles
from ticdc_lab.errors import IncompleteHistoryError, ProtocolError, SourceError, TiCDCLabError
from ticdc_lab.errors.redaction import without_secrets
from ticdc_lab.events.tso import tso_words
from ticdc_lab.facts.catalog import DDL, Catalog
from ticdc_lab.sources import local_path
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.tables.knowledge import Knowledge, RowsKnown, knowledge, require_dated, require_resolved
from ticdc_lab.words import shortened, some_of


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has done.

    Attributes
    ----------
    target, progress
        The target, and its own state now.
    commits
        Transactions of the target in this run.
    changes
        Row changes read in this run, deliveries counted one by one.
    notes
        What the target cannot store or show, from its beginning on.
    """

    target: str
    progress: TargetProgress
    commits: int
    changes: int
    notes: tuple[Note, ...]


def replay(
    log: ChangeLog,
    sink: Sink,
    *,
    mode: str = TRANSACTION,
    until: int | None = None,
    rows_a_batch: int | None = None,
    known: Knowledge | None = None,
    said: Callable[[Batch, int], None] | None = None,
) -> Replayed:
    """Replay a log into a target, from where the target is.

    Starts small jobs that bring the log's DDL and facts of each partition and table to the driver; no rows.

    Parameters
    ----------
    log
        A decoded log (:meth:`ticdc_lab.sources.change_log.ChangeLog.materialise`).
    sink
        The target (:func:`ticdc_lab.consumer.replay.open_sink`).
    mode
        ``transaction`` or ``row``.
    until
        commit_ts (TSO) to stop at, DDL of it included; where left out, as far as the log is resolved.
    rows_a_batch
        Row changes of one transaction of the target, about; more where one upstream transaction has more.
    known
        As for :func:`ticdc_lab.tables.table_as_of`.
    said
        Called after each commit with the batch and the row changes it read.

    Returns
    -------
    Replayed
        What was done.

    Raises
    ------
    IncompleteHistoryError
        ``until`` is above the log's resolved_ts, nothing is resolved, or rows are known only in part.
    ProtocolError
        Row changes have no commit_ts.
    SourceError
        The target holds another log or mode, is beyond ``until`` already, or other hands changed its tables.

    References
    ----------
    MQ design, "Kafka Consumer 逻辑"; docs/consumer.md.
    """
    known = knowledge(log.events) if known is None else known
    rows = rows_a_batch or sink.rows_a_batch
    try:
        return run(plan_of(log, known, mode=mode, until=until, rows_a_batch=rows), sink, said=said)
    except TiCDCLabError as error:
        error.about(log.source)
        raise


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """All that a replay needs to know of a log beside its rows; ``fresh`` is a target that has nothing yet."""

    catalog: Catalog
    ddl: tuple[DDL, ...]
    goal: Goal
    fresh: TargetProgress
    protocol: str = ""  # of the log


def plan_of(log: ChangeLog, known: Knowledge, *, mode: str, until: int | None, rows_a_batch: int) -> ReplayPlan:
    """What is to be replayed; arguments and errors as of :func:`replay`."""
    log.require_commit_ts("a replay")
    facts = known.facts
    for (schema, table), own in sorted(facts.tables.items(), key=lambda t: (t[0][0] or "", t[0][1] or "")):
        if table is None:  # avro's encoder writes neither key nor value
            raise IncompleteHistoryError(
                f"{own.rows:,} of the log's deletes name no table: their table has no primary key, so avro carries "
                "nothing of them. A replay would keep these rows.",
                hint="Record with another protocol, or set `avro-include-before-value=true`.",
            )
        require_dated(f"{schema}.{table}", own)
    require_resolved("a replay", until, facts)
    resolved = {home: ts for home, ts in facts.resolved.items() if ts is not None}
    ddl = tuple(d for d in known.ddl if d[0] is not None)
    moments = sorted({ts for ts, *_ in ddl if ts is not None})
    goal = Goal(resolved, moments, cuts_of(log, rows_a_batch), until)
    fresh = TargetProgress(mode, origin_of(log.protocol, facts), dict.fromkeys(resolved, 0))
    return ReplayPlan(known.catalog, ddl, goal, fresh, log.protocol)


def run(plan: ReplayPlan, sink: Sink, *, said: Callable[[Batch, int], None] | None = None) -> Replayed:
    """Carry out a plan on a target, from where the target is; arguments and errors as of :func:`replay`."""
    if sink.runs_ddl and (renamed := Catalog.from_ddl(plan.ddl).renamed_in(plan.protocol)):
        raise ProtocolError(
            f"{sink.name} runs the log's DDL as they are, but rows of {plan.protocol} have another name of the table, "
            f"or of a column, in {some_of(sorted(map('.'.join, renamed.values())))}.",
            hint="Replay into a target whose tables have the names of the rows: --sink duckdb:///replica.duckdb",
        )
    before = sink.progress()
    if before is None:
        sink.begin(plan.fresh, given_tables(plan.catalog))
    done = plan.fresh if before is None else _continued(before, plan, sink.name)
    _require_tables(sink, plan, done)
    commits = changes = 0
    for batch in batches(done, plan.goal):
        if batch.ddl:
            _require_free_names(plan.catalog, batch)
        statements = [d for d in plan.ddl if batch.ddl and d[0] == batch.until]
        steps = changes_at(plan.catalog, plan.ddl, batch.until) if batch.ddl else []
        n = sink.apply(batch, tables_at(plan.catalog, batch.since), steps, statements)
        done, commits, changes = batch.after, commits + 1, changes + n
        if said is not None:
            said(batch, n)
    return Replayed(sink.name, done, commits, changes, tuple(sink.notes()))


def _require_free_names(catalog: Catalog, batch: Batch) -> None:
    """Raise :class:`IncompleteHistoryError` if a DDL of the batch gives a table a name that another one has."""
    at_once = [refused for refused in catalog.refused if refused.commit_ts == batch.until]
    if any(refused.taken for refused in at_once):
        first = min(at_once, key=lambda r: r.taken)  # that the table it names is gone explains more than a name in use
        by = "as rows before it show" if first.since is None else f"by the DDL of commit_ts {first.since}"
        raise IncompleteHistoryError(
            f"The DDL of commit_ts {batch.until} cannot be applied: {first.reason}, {by}. TiDB refuses that, so "
            f"a DDL between them is missing in the log, or DDL came in another order: {shortened(first.query, 200)}",
            hint="See what else contradicts it: ticdc-lab audit SOURCE. To stop before that DDL: --until "
            f"{batch.until - 1}.",
        )


def cuts_of(log: ChangeLog, rows_a_batch: int) -> list[int]:
    """commit_ts (TSO) between which there are about ``rows_a_batch`` row changes; none for a small log."""
    n = 0 if log.counts is None else log.counts.events
    parts = -(-n // rows_a_batch)
    if parts <= 1:
        return []
    shares = [i / parts for i in range(1, parts)]
    rows = log.events.where("kind = 'row'")
    return sorted(set(quantiles(rows, "commit_ts", shares, accuracy=100 * parts)))


def origin_of(protocol: str, facts: RowsKnown) -> str:
    """Name the log by its protocol and the first event of each partition, which a longer recording of it has too."""
    firsts = sorted([*home, *map(str, first)] for home, first in facts.firsts.items())
    return hashlib.sha256(json.dumps([protocol, firsts]).encode()).hexdigest()[:16]


def _continued(before: TargetProgress, plan: ReplayPlan, name: str) -> TargetProgress:
    """The target's state, if it is of this log and mode and not beyond where the plan ends."""
    fresh, until = plan.fresh, plan.goal.until
    if before.origin != fresh.origin or set(before.positions) != set(fresh.positions):
        raise SourceError(
            f"{name} contains another log: its origin is {before.origin}, with {len(before.positions)} partitions; the "
            f"origin of this log is {fresh.origin}, with {len(fresh.positions)}.",
            hint="Name another target with --sink, or the recording that it was begun with, from the same first "
            "offsets on.",
        )
    if before.mode != fresh.mode:
        raise SourceError(
            f"{name} was begun in {before.mode} mode; expected the same, found {fresh.mode} mode.",
            hint=f"Continue with --mode {before.mode}, or name another target.",
        )
    beyond = max(before.positions.values(), default=0)
    if until is not None and until < beyond:
        raise SourceError(
            f"{name} is at {tso_words(beyond)}, which is after {tso_words(until)}; a target does not go back.",
            hint="Replay into another target with this --until.",
        )
    return before


def _require_tables(sink: Sink, plan: ReplayPlan, progress: TargetProgress) -> None:
    """The target has the tables that it should have where it is; DDL that may have run unrecorded count as run."""
    expected = set(tables_at(plan.catalog, progress.ddl_ts))
    running = [ts for ts in plan.goal.ddl if progress.ddl_ts < ts <= progress.ts]
    for ts in running[:1]:
        expected &= set(tables_at(plan.catalog, ts))
    missing = expected - sink.tables(expected)
    if missing:
        raise SourceError(
            f"{sink.name} is missing the tables {sorted('.'.join(m) for m in missing)}, which the log has at "
            f"{tso_words(progress.ddl_ts)}: they were removed there, or the log now contains tables that it did not "
            "contain before.",
            hint="Replay into a new target: ticdc-lab consume SOURCE --sink TARGET",
        )


def open_sink(target: str, log: ChangeLog) -> Sink:
    """Open what a log is to be replayed into.

    Parameters
    ----------
    target
        ``duckdb:///FILE``, ``delta:FOLDER`` or ``mysql://USER@HOST:PORT[/DATABASE]``.
    log
        The decoded log that will be replayed.

    Returns
    -------
    Sink
        The target, for :func:`ticdc_lab.consumer.replay.replay`; its ``close`` lets go of it.

    Raises
    ------
    SourceError
        The target is of no known kind, cannot be opened, or the log was not decoded to where it can read it.
    """
    if target.startswith("duckdb:///"):
        from ticdc_lab.consumer.sinks.duckdb import DuckDBSink

        return DuckDBSink(target.removeprefix("duckdb:///"), files_of(log), log.protocol)
    if target.startswith("delta:"):
        from ticdc_lab.consumer.sinks.delta import DeltaSink

        return DeltaSink(target.removeprefix("delta:"), log.events)
    if target.startswith("mysql://"):
        from ticdc_lab.consumer.sinks.mysql import MySQLSink

        return MySQLSink(target, files_of(log), log.protocol)
    raise SourceError(
        f"{without_secrets(target)} is no target that is known.",
        hint="Targets are duckdb:///FILE, delta:FOLDER and mysql://USER@HOST:PORT.",
    )


def files_of(log: ChangeLog) -> list[str]:
    """The Parquet files of a decoded log, which lie on this machine. Raises SourceError: they do not."""
    paths = [local_path(unquote(f)) for f in log.decoded.inputFiles()] if log.counts is not None else []
    if log.counts is None or any(p is None or p.suffix != ".parquet" for p in paths):
        raise SourceError(
            f"{log.source} is not decoded to a folder of this machine, where its rows are merged.",
            hint="Call log.materialise(folder) first, with a local folder.",
        )
    return sorted(str(p) for p in paths)
