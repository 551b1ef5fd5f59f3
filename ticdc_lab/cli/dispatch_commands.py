"""Commands that say what another dispatcher, partition count or topic would be."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FINDINGS,
    decoded,
    facts_of,
    json_flag,
    main,
    print_json,
    print_table,
    small,
    source_options,
)
from ticdc_lab.engine.running import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@main.command()
@source_options
@click.option("--strategy", help="table, default, index-value, rowid, columns, ts, tidb-rowid or conflict.")
@click.option("--changefeed", "file", help="A changefeed file (TOML) instead: its dispatchers and settings.")
@click.option("--sink-uri", help="With --changefeed: partition-num, protocol and the default topic.")
@click.option("--partitions", type=int, help="Partition count; default: what the changefeed says.")
@click.option("--index", help="With index-value: the index, instead of the handle key.")
@click.option("--columns", help="With columns: a,b.")
@click.option("--flavour", type=click.Choice(["new", "classic"]), default="new", show_default=True)
@click.option("--topics", is_flag=True, help="With --changefeed: the topics, and how evenly each is filled.")
@click.option("--out", required=True, help="FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@click.option("--alignments-out", help="With conflict: where and why partitions align, in the same forms.")
@json_flag
def dispatch(
    source: str, strategy: str | None, file: str | None, sink_uri: str | None, partitions: int | None,
    index: str | None, columns: str | None, flavour: str, topics: bool, out: str, alignments_out: str | None,
    as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Events with the partition that another dispatcher, or a changefeed file, would have chosen."""
    from ticdc_lab.dispatch.names import CONFLICT

    by_conflict = strategy is not None and strategy.lower() == CONFLICT
    if alignments_out and not by_conflict:
        raise click.BadParameter("only the strategy conflict writes alignments", param_hint="--alignments-out")
    listed = _listed(columns)
    feed, n = _dispatch_request(strategy, file, sink_uri, partitions, flavour, topics, listed)
    from pyspark.sql import functions as F

    from ticdc_lab.catalog import catalog_of
    from ticdc_lab.dispatch import alignments
    from ticdc_lab.dispatch.dispatching import ADDED
    from ticdc_lab.export import write
    from ticdc_lab.schema import EVENTS

    names = ["target_topic"] if feed else ["alignment"] if by_conflict else []
    by = ["target_topic", "target_partition"] if topics else ["target_partition"]
    with decoded(source, where) as (spark, log):
        ordered = feed is not None and (feed.raw or any(r.partition == "ts" for r in feed.rules))
        if ordered or strategy in ("ts", CONFLICT):
            log.require_commit_ts("dispatch by ts or conflict, or updates of keys that are not split")
        catalog = catalog_of(log.events)
        more: dict[str, Any] = {}
        moved = log.events.transform(
            _dispatched, feed=feed, strategy=strategy, partitions=n, index=index, flavour=flavour,
            columns=listed, catalog=catalog,
        )  # fmt: skip
        with shown(spark, "dispatch"):
            write(moved.select(*EVENTS.names, *ADDED, *names), out)
            rows = moved.where("kind = 'row'")
            load = small(rows.groupBy(*by).count().orderBy(*by))
            errors = (
                rows.where("dispatch_error IS NOT NULL").groupBy("dispatch_error").agg(F.count(F.lit(1)).alias("rows"))
            )
            failed = small(errors.orderBy("dispatch_error").limit(100))
            if by_conflict:
                barriers = log.events.transform(alignments, partitions=n, catalog=catalog)
                if alignments_out:
                    write(barriers.repartition(1).sortWithinPartitions("table", "alignment"), alignments_out)
                more["alignments"] = small(barriers.groupBy("table", "reason").count().orderBy("table", "reason"))
            if topics:
                more |= _topics(moved, n, feed)
            if feed is not None and feed.raw:
                more["key_updates"] = _key_updates(log.events, catalog)
        for e in failed:
            click.echo(f"  {e['rows']} rows: {e['dispatch_error']}", err=True)
        for topic, tables in more.get("shared", {}).items():
            click.echo(f"  {' and '.join(tables)} meet in the topic {topic}", err=True)
        if as_json:
            print_json(facts_of(log) | {"out": out, "load": load, "errors": failed} | more)
            return
        print_table(load, *by, "count")
        if by_conflict:
            click.echo("Alignments, for which all partitions wait (those by ddl cost nothing of their own):")
            print_table(more["alignments"], "table", "reason", "count")
        if topics:
            click.echo(f"{len(more['topics'])} topics of {n} partitions")
            print_table(more["topics"], "target_topic", "tables", "rows", "share", "idle", "max_over_mean")


def _dispatch_request(
    strategy: str | None, file: str | None, sink_uri: str | None, partitions: int | None, flavour: str, topics: bool,
    columns: list[str] | None,
) -> tuple[Any, int]:  # fmt: skip
    """The changefeed, if one is given, and the partition count; every mistake is found before anything is read."""
    from ticdc_lab.cli.arguments import existing_file
    from ticdc_lab.dispatch.names import check_partitions, check_request, check_strategy

    if (strategy is None) == (file is None):
        raise click.UsageError("Give either --strategy or --changefeed.")
    feed = None
    if partitions is not None:
        check_partitions(partitions)
    if file is not None:
        existing_file(file, "The changefeed file")
        from ticdc_lab.dispatch import read_changefeed

        feed = read_changefeed(file, sink_uri=sink_uri, flavour="classic" if flavour == "classic" else "new")
        for note in feed.notes:
            click.echo(f"  {note}", err=True)
    elif topics or sink_uri:
        raise click.UsageError("--topics and --sink-uri need --changefeed.")
    else:
        check_strategy(strategy or "")
    n = partitions if partitions is not None or feed is None else feed.partitions
    if n is None:
        raise click.UsageError("Missing option '--partitions'.")
    if strategy is not None:
        check_request(strategy, n, columns)
    return feed, n


def _listed(columns: str | None) -> list[str] | None:
    return [c.strip() for c in columns.split(",")] if columns else None


def _dispatched(
    events: DataFrame, *, feed: Any, strategy: str, index: str | None, columns: list[str] | None, **given: Any
) -> DataFrame:
    from ticdc_lab.dispatch import dispatch
    from ticdc_lab.dispatch.settings import dispatched

    if feed is not None:
        return dispatched(events, changefeed=feed, **given)
    return dispatch(events, strategy=strategy, index=index, columns=columns, **given)


def _key_updates(events: DataFrame, catalog: Any) -> dict[str, int]:
    """How many deletes and inserts became updates again, and how many may be halves of one but were left."""
    from pyspark.sql import functions as F

    from ticdc_lab.dispatch import key_update_counts

    counts = key_update_counts(events, catalog=catalog)
    names = [c for c in counts.columns if c != "table"]
    total = small(counts.agg(*[F.coalesce(F.sum(c), F.lit(0)).alias(c) for c in names]))[0]
    joined = sum(total[c] for c in ("same_key", "only_pair", "equal_rest"))
    left = total["maybe_one"] + total["ambiguous"]
    click.echo(f"  {joined} pairs of delete and insert were joined to updates of keys;", err=True)
    click.echo(f"  {left} deletes and inserts may be halves of one, and were left as they are", err=True)
    return total


def _topics(moved: DataFrame, partitions: int, feed: Any) -> dict[str, Any]:
    """Balance per topic, and tables that meet in one topic by accident."""
    from ticdc_lab.dispatch import shared_topics, topic_balance
    from ticdc_lab.dispatch.rules import topic_of

    names = moved.where("kind = 'row'").select("schema_name", "table_name").distinct()
    tables = [(r["schema_name"], r["table_name"]) for r in small(names)]
    expressions = [topic_of(feed.rules, *t, case_sensitive=feed.case_sensitive) for t in tables]
    found = small(moved.transform(topic_balance, partitions=partitions).orderBy("target_topic"))
    return {"topics": found, "shared": shared_topics(tables, expressions)}


@main.command()
@source_options
@click.option("--partitions", default="1,3,8,16,32", show_default=True, help="Partition counts to compare.")
@click.option(
    "--keep", type=click.Choice(["row", "unique", "transaction", "table"]), default="unique", show_default=True,
    help="What must not break: order of a row, of rows that share a unique value, transactions in a table, a table.",
)  # fmt: skip
@click.option("--allow-risk", is_flag=True, help="Also recommend columns that are no key but kept it in this log.")
@click.option("--out", help="Write the dispatchers as a changefeed file (TOML).")
@json_flag
def advise(
    source: str, partitions: str, keep: str, allow_risk: bool, out: str | None, as_json: bool, **where: Any
) -> None:
    """Which dispatcher for which table, how many partitions, and why: measured on this log.

    --protocol names the changefeed's protocol; it reads the source too.
    """
    from ticdc_lab.dispatch.names import check_partitions

    try:
        counts = [int(n) for n in partitions.split(",")]
    except ValueError as e:
        raise click.BadParameter(f"{partitions!r} is no list of numbers", param_hint="--partitions") from e
    for n in counts:
        check_partitions(n)
    from ticdc_lab.answers import advice
    from ticdc_lab.dispatch.advise import advise as advised
    from ticdc_lab.dispatch.advise_report import values

    with decoded(source, where) as (spark, log):
        log.require_commit_ts("advice")
        with shown(spark, "advise"):
            found = advised(log.events, protocol=log.protocol, partitions=counts, keep=keep, allow_risk=allow_risk)
        if out:
            Path(out).write_text(found.changefeed.to_toml(), encoding="utf-8")
        answer = advice(found)
        if as_json:
            print_json(facts_of(log) | {"answer": answer.finding} | values(found) | ({"out": out} if out else {}))
            return
        for line in (answer.finding, *answer.details):
            click.echo(line)
        if not out:
            click.echo("\n" + found.changefeed.to_toml())


@main.command()
@source_options
@click.option("--to", "target", required=True, help="open-protocol, canal-json or mq-v1.")
@click.option("--strategy", required=True, help="table, default, index-value, rowid, columns, ts or tidb-rowid.")
@click.option("--partitions", required=True, type=int, help="Partition count of the new topic.")
@click.option("--index", help="With index-value: the index, instead of the handle key.")
@click.option("--columns", help="With columns: a,b.")
@click.option("--flavour", type=click.Choice(["new", "classic"]), default="new", show_default=True)
@click.option("--topic", default="produced", show_default=True, help="Its name in a file; kafka:// names it itself.")
@click.option("--max-batch-size", default=16, show_default=True, help="Rows in an open-protocol message at most.")
@click.option("--out", required=True, help="FILE.jsonl[.gz], DIR.parquet, a Delta folder, or kafka://HOST:PORT/TOPIC.")
@click.option("--out-kafka-config", help="Properties file with Kafka's settings for --out.")
@json_flag
def produce(
    source: str, target: str, strategy: str, partitions: int, index: str | None, columns: str | None, flavour: str,
    topic: str, max_batch_size: int, out: str, out_kafka_config: str | None, as_json: bool, **where: str,
) -> None:  # fmt: skip
    """The log as a new topic: another protocol, dispatcher or number of partitions."""
    from ticdc_lab.codecs.registry import require_written
    from ticdc_lab.dispatch.names import check_request
    from ticdc_lab.sources.kafka import properties

    require_written(target)
    listed = _listed(columns)
    check_request(strategy, partitions, listed)
    out_options = properties(out_kafka_config) if out_kafka_config else None
    from ticdc_lab.catalog import catalog_of
    from ticdc_lab.encode import encoder
    from ticdc_lab.engine import counted
    from ticdc_lab.produce import produce as produced
    from ticdc_lab.topic_writer import write_topic

    lost = dict(encoder(target).lost)
    with decoded(source, where) as (spark, log):
        log.require_commit_ts("a topic in commit order")
        messages = log.events.transform(
            produced, protocol=target, strategy=strategy, partitions=partitions, index=index, flavour=flavour,
            columns=listed, catalog=catalog_of(log.events),
            topic=topic, max_batch_size=max_batch_size,
        )  # fmt: skip
        messages, n_written = counted(messages)
        with shown(spark, f"writing {target}"):
            write_topic(messages, out, options=out_options)
        written = n_written()
        if as_json:
            print_json(facts_of(log) | {"out": out, "to": target, "written": written, "lost": lost})
            return
        click.echo(f"{written} messages of {target} in {partitions} partitions: {out}")
        for name, why in lost.items():
            click.echo(f"  {target} does not keep {name}: {why}", err=True)


@main.command()
@source_options
@click.option("--to", "after", required=True, type=int, help="Partitions after it.")
@click.option("--from", "before", type=int, help="Partitions before it; as recorded by default.")
@click.option("--strategy", help="table, index-value, index-value:INDEX, columns:a,b, ts; per table as recorded.")
@click.option("--at", type=int, help="TSO at which the owner decides; the middle of the log.")
@click.option("--procedure", type=click.Choice(["seed", "no-feedback", "just-add"]), default="seed", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the processors' delays.")
@click.option("--captures", type=int, help="Processors that share the tables; one for each table by default.")
@click.option("--stop-delay", default="50,2000", show_default=True, help="Least,greatest ms until a processor hears.")
@click.option("--restart-ms", type=int, default=1000, show_default=True, help="Until processors write again.")
@click.option("--out", help="The new log's events: FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@json_flag
def expand(
    source: str, after: int, before: int | None, strategy: str | None, at: int | None, procedure: str, seed: int,
    captures: int | None, stop_delay: str, restart_ms: int, out: str | None, as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Another number of partitions in the middle of the log: its cost, and what breaks.

    Exit 0 clean, 1 findings, 2 could not run.
    """
    from ticdc_lab.dispatch.names import check_partitions, check_strategy

    for n in (after, before):
        if n is not None:
            check_partitions(n)
    if strategy:
        check_strategy(strategy.partition(":")[0])
    delays = _delays(stop_delay)
    from ticdc_lab.answers import expansion
    from ticdc_lab.answers.answer import records_of
    from ticdc_lab.catalog import catalog_of
    from ticdc_lab.export import write
    from ticdc_lab.repartition import Timing, cost_of
    from ticdc_lab.repartition import expand as expanded
    from ticdc_lab.repartition.expand import rule_of
    from ticdc_lab.repartition.findings import examined
    from ticdc_lab.summary import small as small_frame

    rules = (rule_of(strategy),) if strategy else None
    timing = Timing(delays, restart_ms=restart_ms, captures=captures, seed=seed)
    with decoded(source, where) as (spark, log), tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
        log.require_commit_ts("what another number of partitions does")
        done = expanded(
            log.events, after=after, before=before, rules=rules, at=at, procedure=procedure, timing=timing,
            catalog=catalog_of(log.events),
        )  # fmt: skip
        with shown(spark, f"{procedure}: {done.plan.before} to {after} partitions"):
            done = done.kept(f"{folder}/expanded")
            if out:
                write(done.events.repartition(1).sortWithinPartitions("topic", "partition", "offset"), out)
            cost = cost_of(done)
            examined_parts = {part: small_frame(f) for part, f in examined(done, protocol=log.protocol).items()}
            answer = expansion(done, cost, examined_parts)
    found = {part: records_of(findings) for part, findings in examined_parts.items()}
    if as_json:
        told = {"plan": done.plan.as_dict(), "cost": cost.as_dict(), "findings": found, "out": out}
        print_json(facts_of(log) | {"answer": answer.finding} | told)
    else:
        for sentence in (answer.finding, *answer.details):
            click.echo(sentence)
        for part, findings in found.items():
            _print_part(part, findings)
    sys.exit(FINDINGS if any(found.values()) else CLEAN)


def _delays(given: str) -> tuple[int, int]:
    low, comma, high = given.partition(",")
    if not (low.strip().isdigit() and (high.strip().isdigit() or not comma)):
        raise click.BadParameter(f"{given!r} is no LEAST,GREATEST in ms", param_hint="--stop-delay")
    return int(low), int(high or low)


def _print_part(part: str, found: list[dict[str, Any]], *, most: int = 3) -> None:
    counts: dict[tuple[str, str], int] = {}
    for f in found:
        counts[f["guarantee"], f["severity"]] = counts.get((f["guarantee"], f["severity"]), 0) + 1
    click.echo(f"{'x' if found else '✓'} {part}: {len(found)} findings")
    for (guarantee, severity), n in counts.items():
        click.echo(f"    {severity}: {guarantee}: {n}")
        for f in [f for f in found if (f["guarantee"], f["severity"]) == (guarantee, severity)][:most]:
            click.echo(f"        {f['table'] or ''} partition {f['partition']} offset {f['offset']}: {f['message']}")
