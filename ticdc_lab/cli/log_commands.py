"""Commands that show what a log contains."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli import completion
from ticdc_lab.cli.common import (
    FINDINGS,
    answer_first,
    asked,
    decoded,
    facts_of,
    given_bounds,
    given_changefeed,
    json_flag,
    main,
    note,
    print_answer,
    print_json,
    print_settings,
    sample_options,
    say,
    say_limits,
    session_of,
    source_options,
)
from ticdc_lab.cli.layout import Moment
from ticdc_lab.engine.running import shown

if TYPE_CHECKING:
    from ticdc_lab.answers import Answer

_WATERMARKS = {
    "partitions": (
        "topic", "partition", "resolved_ts", "n_watermarks", "n_regressions", "step_s_max", "last_commit_ts",
    ),
    "tables": ("schema_name", "table_name", "n_rows", "resolved_ts", "last_commit_ts"),
}  # fmt: skip
_TOTALS = ("n", "pending", "n_rows", "duplicates", "spread")


@main.command()
@source_options
@click.option("--out", required=True, help="FILE (JSON Lines, .gz), DIR.parquet or DIR/ (Delta).")
@click.option(
    "--quarantine",
    help="Where messages that could not be decoded go: FILE (JSON Lines, .gz), DIR.parquet or DIR/ (Delta).",
)
@json_flag
def events(source: str, out: str, quarantine: str | None, as_json: bool, **where: Any) -> None:
    """Decode a log and write its events, one row each.

    All protocols give the same columns: a row change, a DDL or a watermark is one event.
    """
    from ticdc_lab.encode.export import write
    from ticdc_lab.events.schema import EVENTS

    with decoded(source, where, needed=False) as (spark, log):
        with shown(spark, "writing events"):
            write(log.events.select(*EVENTS.names), out)
        if quarantine:
            write(log.quarantine, quarantine)
        elif log.counts.quarantined:
            click.echo("  keep them with --quarantine DIR.parquet", err=True)
        if as_json:
            print_json(facts_of(log) | {"out": out})
        log.require_decoded(quarantine)


@main.command()
@source_options
@json_flag
def survey(source: str, as_json: bool, **where: Any) -> None:
    """What does SOURCE contain, and how large is it?

    Reads the first messages only, and shows what to run next.
    """
    from ticdc_lab.answers import surveyed
    from ticdc_lab.errors.redaction import shown_source
    from ticdc_lab.sources.survey import needs_no_engine
    from ticdc_lab.sources.survey import survey as look

    given = {name: where[name] for name in ("protocol", "source_kind", "schema_registry", "claim_check", "options")}
    context = click.get_current_context()
    engine = context.meta.get("ticdc_lab.engine") or "auto"
    spark = None
    answer_first()
    if context.obj is not None or not needs_no_engine(source, where["source_kind"], engine):
        spark = session_of(source)
    with shown(spark, "looking at the first messages"):
        found = look(spark, source, changefeed=given_changefeed(where["options"]), **given)
    answer = surveyed(found)
    if as_json:
        print_json({"answer": answer.finding} | answer.facts())
        return
    for sentence in (f"{shown_source(source)}: {answer.finding}", *answer.limits, *answer.details):
        say(sentence)
    print_settings(answer.frames["settings"].to_dict("records"))
    if found.is_large:
        click.echo(f"  ticdc-lab report {shlex.quote(shown_source(source))} {found.flags}")


@main.command()
@source_options
@json_flag
def settings(source: str, as_json: bool, **where: Any) -> None:
    """How was the changefeed configured?

    From options, from its file (--changefeed), and from the bytes: each setting with the evidence, with what depends on
    it, and with what to give if it is wrong. Exit code 1: what was given contradicts the log.
    """
    with asked(source, where, frames=False) as (spark, log):
        with shown(spark, "settings"):
            answer = log.settings()
        if as_json:
            print_answer(log, answer, as_json=True)
        else:
            for sentence in (answer.finding, *answer.details, *answer.limits):
                say(sentence)
            print_settings(answer.frame.to_dict("records"))
        if answer.values["contradictions"]:
            sys.exit(FINDINGS)


@main.command()
@source_options
@sample_options
@json_flag
def watermarks(source: str, as_json: bool, **where: Any) -> None:
    """How far is the log complete?

    Per topic, partition and table.
    """
    with asked(source, where, images=False, frames=False, in_full=False) as (spark, log):
        log.change_log.require_commit_ts("resolved_ts")
        with shown(spark, "watermarks"):
            answer = log.watermarks()
        print_answer(log, answer, as_json=as_json, shown=_WATERMARKS)


@main.command()
@source_options
@sample_options
@click.option("--out", help="One line a transaction: FILE (JSON Lines, .gz), DIR.parquet or DIR/ (Delta).")
@json_flag
def transactions(source: str, out: str | None, as_json: bool, **where: Any) -> None:
    """Which transactions are whole, and which are torn?

    They are restored across tables and partitions; commit_ts identifies one.
    """
    with asked(source, where, images=False, frames=False, in_full=False) as (spark, log):
        log.change_log.require_commit_ts("transactions")
        with shown(spark, "transactions"):
            answer = log.transactions(out=out)
        if as_json:
            total = answer.facts()["totals"][0] if len(answer.frame) else dict.fromkeys(_TOTALS, 0)
            listed = {"suspects": "suspects", "pending": "pending_transactions"}  # "pending" is their number
            own = {listed[name]: f for name, f in answer.frames.items() if name in listed}
            print_answer(log, replace(answer, frames=own, values=_totals(total)), as_json=True)
        else:
            columns = {
                "suspects": ("commit_ts", "n_rows", "tables", "partition", "first_missing", "last_missing"),
                "pending": ("commit_ts", "n_rows", "tables", "missing"),
            }
            print_answer(log, answer, as_json=False, shown={k: v for k, v in columns.items() if k in answer.frames})


def _totals(total: Mapping[str, Any]) -> dict[str, int]:
    """What ``--json`` contains of all transactions."""
    n, pending, rows, repeats, spread = (int(total[name] or 0) for name in _TOTALS)
    of_state = {"transactions": n, "complete": n - pending, "pending": pending}
    return of_state | {"rows": rows, "duplicates": repeats, "across_partitions": spread}


@main.command()
@source_options
@click.option(
    "--table",
    "name",
    shell_complete=completion.tables,
    required=True,
    help="SCHEMA.TABLE, exactly as it was called at that time.",
)
@click.option("--as-of", type=Moment(), help="The moment: a time in UTC or a TSO; default: the log's resolved_ts.")
@click.option("--out", help="All its rows: FILE (JSON Lines, .gz), DIR.parquet or DIR/ (Delta).")
@json_flag
def table(source: str, name: str, as_of: int | None, out: str | None, as_json: bool, **where: str) -> None:
    """Which rows did a table have at a moment?

    Without --out the first rows are shown.
    """
    if "." not in name:
        raise click.BadParameter(f"{name!r} is not a table; expected SCHEMA.TABLE", param_hint="--table")
    with asked(source, where) as (spark, log):
        with shown(spark, f"table {name}"):
            answer = log.table(name, as_of=as_of, out=out)
        if as_json:
            print_answer(log, replace(answer, frames={}) if out else answer, as_json=True)
            return
        say_limits(log, answer, say=note)  # stdout is the table, or where it is
        if out:
            click.echo(f"{answer.finding.rstrip('.')}: {out}")
        else:
            _print_rows(answer)


def _print_rows(answer: Answer) -> None:
    from ticdc_lab.answers.answer import SHOWN, as_text

    say(answer.finding)
    if len(answer.frame):
        click.echo(as_text(answer.frame.head(SHOWN)))
    if len(answer.frame) > SHOWN:
        click.echo(f"These are the first {SHOWN}; --out writes them all.")


@main.command()
@source_options
@click.option("--out", required=True, help="Folder of the Delta tables; a run into the same folder continues.")
@click.option("--once", is_flag=True, help="Stop when all that is there now has been read.")
@click.option("--every", "every_s", default=10.0, show_default=True, help="Seconds between two batches.")
def ingest(source: str, out: str, once: bool, every_s: float, **where: Any) -> None:
    """Follow a Kafka topic into Delta tables.

    Runs until Ctrl-C; each message is written exactly once. Of the changefeed's file it uses the protocol alone.
    """
    from ticdc_lab.lake.ingest import ingest as run
    from ticdc_lab.settings.file import options_of_source

    given = ("protocol", "schema_registry", "claim_check", "options")
    settings: dict[str, Any] = {"once": once, "every_s": every_s, "bounds": given_bounds()}
    settings |= {name: where[name] for name in given}
    settings["options"] = options_of_source(where["options"])
    if unused := sorted({*where["options"]} - {*settings["options"]}):
        raise click.BadParameter(f"{', '.join(unused)}: ingest uses no setting of a changefeed", param_hint="--option")
    named = given_changefeed(where["options"]).value("sink.protocol")
    if named is not None and settings["protocol"] not in ("auto", named):
        raise click.BadParameter(f"the changefeed's file has {named}", param_hint="--protocol")
    settings["protocol"] = named or settings["protocol"]
    with suppress(KeyboardInterrupt):
        run(session_of(source, needs_spark="a stream into Delta needs it"), source, out, said=_say_state, **settings)


def _say_state(state: Any) -> None:
    from ticdc_lab.events.tso import tso_words
    from ticdc_lab.words import count

    batch = f"batch {state.batch_id}: " if state.batch_id >= 0 else ""
    rows = count(sum(f["n_rows"] for f in state.facts), "row change")
    complete = "no transaction is complete yet"
    if state.complete_ts is not None:
        complete = f"transactions complete up to {tso_words(state.complete_ts)}"
    click.echo(f"{batch}{rows} so far, {complete}", err=True)
    for sentence in (*state.notes, *state.gaps):
        click.echo(f"  {sentence}", err=True)


# Why a log's resolved_ts stalled.


@main.command()
@source_options
@click.option(
    "--stall", "stall_s", type=click.FloatRange(0), default=None,
    help="Seconds between two watermarks that make a stall, by event time or the broker's. By default 2.5 times the "
    "log's usual step, at least 1 s.",
)  # fmt: skip
@click.option(
    "--cdc-log", "cdc_log", multiple=True, metavar="FILE", type=click.Path(exists=True, dir_okay=False),
    help="TiCDC's own log, also rotated or .gz; give it once for each file. Names the module of each stall.",
)  # fmt: skip
@json_flag
def why(source: str, stall_s: float | None, cdc_log: tuple[str, ...], as_json: bool, **where: Any) -> None:
    """Why is the checkpoint stuck?

    Lists each stall of resolved_ts, the longest first, with possible causes and what the log cannot show.

    With --cdc-log, lines of TiCDC's log (slow regions, stuck tables, owner changes, sink errors, DDL) are joined with
    stalls and findings, by the commit_ts they name or by time. They name the sink, the owner, the puller or the
    downstream.
    """
    with asked(source, where, images=False, frames=False, in_full=False) as (spark, log):
        with shown(spark, "why"):
            answer = log.why(stall_s=stall_s, cdc_log=cdc_log)
        print_answer(log, answer, as_json=as_json)
