"""The command that replays a log into a database."""

from __future__ import annotations

import sys
from typing import Any

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FINDINGS,
    decoded,
    facts_of,
    json_flag,
    main,
    print_json,
    source_options,
)
from ticdc_lab.cli.layout import Moment
from ticdc_lab.engine.running import shown


@main.command()
@source_options
@click.option("--sink", "target", required=True, help="duckdb:///FILE, delta:FOLDER or mysql://USER@HOST:PORT.")
@click.option(
    "--mode",
    type=click.Choice(["transaction", "row"]),
    default="transaction",
    show_default=True,
    help="transaction: restore them across partitions. row: each partition goes on to its own watermark.",
)
@click.option("--until", type=Moment(), help="Stop at this commit_ts or time (UTC); default: the log's resolved_ts.")
@click.option(
    "--rows-a-batch", type=click.IntRange(1), help="About how many row changes make one transaction of the target."
)
@click.option(
    "--check/--no-check", default=True, show_default=True, help="Compare every table with the log at the end."
)
@json_flag
def consume(
    source: str, target: str, mode: str, until: int | None, rows_a_batch: int | None, check: bool, as_json: bool,
    **where: Any,
) -> None:  # fmt: skip
    """Replay a log into a database.

    The target records how far it is, so the same command goes on after an interruption. The password of a
    MySQL user is taken from the environment variable MYSQL_PWD, or from the file that MYSQL_OPTION_FILE names.

    Exit 0 all equal, 1 differences, 2 could not run.
    """
    from ticdc_lab.consumer import compare, open_sink, replay
    from ticdc_lab.facts.limits import but_for
    from ticdc_lab.tables import knowledge

    if target.startswith("delta:"):
        where["needs_spark"] = "it writes Delta tables"
    with decoded(source, where) as (spark, log):
        log.require_commit_ts("a replay")
        sink = open_sink(target, log)
        try:
            with shown(spark, "reading definitions"):
                known = knowledge(log.events)
            told = _Told()
            done = replay(log, sink, mode=mode, until=until, rows_a_batch=rows_a_batch, known=known, said=told)
            told.end()
            with shown(spark, "comparing"):
                compared = list(compare(log, sink, done.progress, known=known)) if check else []
        finally:
            sink.close()
        wrong = [c for c in compared if c.different]
        if as_json:
            print_json(facts_of(log) | _facts(done, compared, check))
        else:
            _print(done, compared, check, but_for(log.counts))
    sys.exit(FINDINGS if wrong else CLEAN)


class _Told:
    """Says on a terminal how far the replay is."""

    def __init__(self) -> None:
        self.commits = self.changes = 0

    def __call__(self, batch: Any, changes: int) -> None:
        self.commits, self.changes = self.commits + 1, self.changes + changes
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[Kreplaying: {self.changes} row changes, {self.commits} commits, at {batch.until}")
            sys.stderr.flush()

    def end(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def _facts(done: Any, compared: list[Any], check: bool) -> dict[str, Any]:
    at = [{"topic": t, "partition": p, "applied_ts": ts} for (t, p), ts in sorted(done.progress.positions.items())]
    return {
        "target": done.target,
        "mode": done.progress.mode,
        "applied_ts": done.progress.ts,
        "ddl_ts": done.progress.ddl_ts,
        "partitions": at,
        "commits": done.commits,
        "changes": done.changes,
        "notes": [{"commit_ts": ts, "table": table, "said": said} for ts, table, said in done.notes],
        "checked": check,
        "tables": [
            {
                "table": c.table,
                "rows": c.rows,
                "different": c.different,
                "why_not": c.why_not,
                "untold": c.untold,
                "first": [{"row": d.row, "columns": d.columns, "expected": d.expected, "found": d.found}
                          for d in c.first],
            }
            for c in compared
        ],
    }  # fmt: skip


def _print(done: Any, compared: list[Any], check: bool, but_for: str) -> None:
    from ticdc_lab.tables.knowledge import at

    for ts, table, said in done.notes:
        click.echo(f"  {table or 'DDL'} at {ts}: {said}", err=True)
    click.echo(
        f"{done.target} is at {at(done.progress.ts)}{but_for}, in {done.progress.mode} mode: {done.changes} row "
        f"changes in {done.commits} commits."
    )
    for c in compared:
        if c.why_not:
            click.echo(f"- {c.table}: not compared: {c.why_not}")
            continue
        untold = f", but for {c.untold} values that the log does not tell" if c.untold else ""
        click.echo(f"{'x' if c.different else '✓'} {c.table}: {c.different} of {c.rows} rows differ{untold}")
        for d in c.first:
            which = f" in {', '.join(d.columns)}" if d.columns else ""
            click.echo(f"    {d.row}{which}: expected {d.expected or 'nothing'}; found {d.found or 'nothing'}")
    if not check:
        click.echo("Not compared with the log (--no-check).")
