"""Commands that say what a log holds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from ticdc_lab.cli.common import (
    but_for,
    decoded,
    facts_of,
    given_bounds,
    json_flag,
    main,
    print_json,
    print_table,
    sample_options,
    session_of,
    small,
    source_options,
)
from ticdc_lab.engine.running import shown

_LAGGARDS, _LAGGARDS_SAID = 1_000, 5


@main.command()
@source_options
@click.option("--out", required=True, help="FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@click.option("--quarantine", help="Where the messages that could not be decoded go: DIR.parquet or a Delta folder.")
@json_flag
def events(source: str, out: str, quarantine: str | None, as_json: bool, **where: Any) -> None:
    """Canonical events, one row each."""
    from ticdc_lab.export import write
    from ticdc_lab.schema import EVENTS

    with decoded(source, where, needed=False) as (spark, log):
        with shown(spark, "writing events"):
            write(log.events.select(*EVENTS.names), out)
        if quarantine:
            write(log.quarantine, quarantine)
        elif log.counts.quarantined:
            click.echo("  keep them with --quarantine DIR.parquet", err=True)
        if as_json:
            print_json(facts_of(log) | {"out": out})


@main.command()
@source_options
@json_flag
def survey(source: str, as_json: bool, **where: Any) -> None:
    """What lies there, how large it is, and what to do with it; reads the first messages only."""
    from ticdc_lab.codecs.csv_settings import settings_among
    from ticdc_lab.survey import survey as look

    settings, options = settings_among(where["options"])
    given = {name: where[name] for name in ("protocol", "source_kind", "schema_registry", "claim_check")}
    found = look(session_of(source), source, settings=settings, options=options, **given)
    if as_json:
        print_json(found.facts())
        return
    for sentence in (f"{source}: {found.words}", *found.unknown, *found.advice):
        click.echo(sentence)
    if found.is_large:
        click.echo(f"  ticdc-lab report {source} {found.flags}")


@main.command()
@source_options
@sample_options
@json_flag
def watermarks(source: str, as_json: bool, **where: Any) -> None:
    """How far the log is complete: per topic, partition and table."""
    from pyspark.sql import functions as F

    from ticdc_lab.facts import watermarks as w
    from ticdc_lab.facts.laggards import laggard_spans

    with decoded(source, where, images=False) as (spark, log):
        log.require_commit_ts("resolved_ts")
        with shown(spark, "watermarks"):
            found = {
                "topics": small(log.events.transform(w.topic_watermarks).orderBy("topic")),
                "partitions": small(log.events.transform(w.partition_watermarks).orderBy("topic", "partition")),
                "tables": small(log.events.transform(w.table_watermarks).orderBy("schema_name", "table_name")),
                "laggards": small(
                    log.events.transform(laggard_spans)
                    .orderBy(F.desc("steps"), "topic", "partition", "first_step")
                    .limit(_LAGGARDS)
                ),
            }
        if as_json:
            print_json(facts_of(log) | found)
            return
        for t in found["topics"]:
            click.echo(_topic_sentence(t, but_for(log)))
        for span in found["laggards"][:_LAGGARDS_SAID]:
            click.echo(_laggard_sentence(span))
        print_table(
            found["partitions"],
            *("topic", "partition", "resolved_ts", "n_watermarks", "n_regressions", "n_stalls", "last_commit_ts"),
        )
        print_table(found["tables"], "schema_name", "table_name", "n_rows", "resolved_ts", "last_commit_ts")


def _topic_sentence(t: dict[str, Any], but_for: str) -> str:
    from ticdc_lab.tso import to_datetime

    if t["resolved_ts"] is None:
        return f"Topic {t['topic']}: nothing is proved complete; partitions {t['unmarked']} have had no watermark."
    at = to_datetime(t["resolved_ts"]).isoformat(sep=" ", timespec="milliseconds")
    held = f"held back {t['lag_s']:.3f} s by partitions {t['holders']}" if t["lag_s"] else "no partition lags"
    return f"Topic {t['topic']}: complete{but_for} up to resolved_ts {t['resolved_ts']} ({at}), {held}."


def _laggard_sentence(span: dict[str, Any]) -> str:
    lag = "before its first watermark" if span["lag_s_max"] is None else f"up to {span['lag_s_max']:.3f} s behind"
    until = "and still does at the end" if span["at_end"] else f"until {span['to_ts']}"
    steps = f"{span['steps']} of {span['steps_total']} steps of the topic's watermark"
    return f"  partition {span['partition']} of {span['topic']} held it back for {steps}, {lag}, {until}"


@main.command()
@source_options
@sample_options
@click.option("--out", help="One line a transaction: FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@json_flag
def transactions(source: str, out: str | None, as_json: bool, **where: Any) -> None:
    """Whole transactions, restored across tables and partitions."""
    from pyspark.sql import functions as F

    from ticdc_lab.export import write
    from ticdc_lab.transactions import transactions as restore

    with decoded(source, where, images=False) as (spark, log):
        log.require_commit_ts("transactions")
        restored = log.events.transform(restore)
        with shown(spark, "transactions"):
            if out:
                write(restored.repartition(1).sortWithinPartitions("commit_ts"), out)
            totals = restored.agg(
                F.count(F.lit(1)).alias("transactions"),
                F.count_if("complete").alias("complete"),
                F.count_if(~F.col("complete")).alias("pending"),
                F.coalesce(F.sum("n_rows"), F.lit(0)).alias("rows"),
                F.coalesce(F.sum("duplicates"), F.lit(0)).alias("duplicates"),
                F.count_if(F.size("partitions") > 1).alias("across_partitions"),
            )
            summary = small(totals)[0]
        if as_json:
            print_json(facts_of(log) | summary)
        else:
            click.echo(
                f"{summary['transactions']} transactions ({summary['rows']} row changes): {summary['complete']}"
                f" complete{but_for(log)}, {summary['pending']} pending; {summary['across_partitions']} lie in several"
                f" partitions; {summary['duplicates']} deliveries were repeats."
            )


@main.command()
@source_options
@click.option("--table", "name", required=True, help="SCHEMA.TABLE, exactly as it was called at that time.")
@click.option("--as-of", "ts", type=int, help="commit_ts (TSO) up to which changes count; the log's resolved_ts.")
@click.option("--out", required=True, help="FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@json_flag
def table(source: str, name: str, ts: int | None, out: str, as_json: bool, **where: str) -> None:
    """One table's rows at a consistent timestamp."""
    schema_name, dot, table_name = name.partition(".")
    if not dot:
        raise click.BadParameter(f"{name!r} is no SCHEMA.TABLE", param_hint="--table")
    from ticdc_lab.export import write
    from ticdc_lab.tables import table_as_of
    from ticdc_lab.tso import to_datetime

    with decoded(source, where) as (spark, log):
        log.require_commit_ts(f"the table {name}")
        found = table_as_of(log.events, schema_name=schema_name, table_name=table_name, ts=ts)
        with shown(spark, f"table {name}"):
            # by its columns, so that the same input gives the same bytes
            write(found.rows.orderBy(*[f"`{c}`" for c in found.key or found.rows.columns]), out)
        for sentence in found.limits:
            click.echo(f"  {sentence}", err=True)
        at = to_datetime(found.ts).isoformat(sep=" ", timespec="milliseconds")
        if as_json:
            facts = facts_of(log)
            print_json(facts | {"table": name, "ts": found.ts, "key": found.key, "out": out,
                                 "limits": [*facts["limits"], *found.limits]})  # fmt: skip
        else:
            click.echo(f"{name} at {found.ts} ({at}){but_for(log)}: {out}")


@main.command()
@source_options
@click.option("--out", required=True, help="Folder of the Delta tables; goes on where it was.")
@click.option("--once", is_flag=True, help="Stop when all that is there now has been read.")
@click.option("--every", "every_s", default=10.0, show_default=True, help="Seconds between two batches.")
def ingest(source: str, out: str, once: bool, every_s: float, **where: Any) -> None:
    """A Kafka topic into Delta tables, continuously, each message exactly once; stop it with Ctrl-C."""
    from ticdc_lab.ingest import ingest as run

    given = ("protocol", "schema_registry", "claim_check", "options")
    settings: dict[str, Any] = {"once": once, "every_s": every_s, "bounds": given_bounds()}
    settings |= {name: where[name] for name in given}
    with suppress(KeyboardInterrupt):
        run(session_of(source, needs_spark="a stream into Delta needs it"), source, out, said=_say_state, **settings)


def _say_state(state: Any) -> None:
    messages = f"batch {state.batch_id}: {sum(f['n_rows'] for f in state.facts)} rows so far"
    click.echo(f"{messages}, transactions complete up to {state.complete_ts or 'nothing yet'}", err=True)
    for sentence in state.gaps:
        click.echo(f"  {sentence}", err=True)
