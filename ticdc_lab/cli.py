"""The command line: thin; every command is one public function (`design/architecture.md` section 5)."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab import progress
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.redaction import redacted

CLEAN, FINDINGS, FAILED = 0, 1, 2

_HIDE_TRACE = "Run with --debug for the whole trace."
_LAGGARDS, _LAGGARDS_SAID = 1_000, 5
_FSCK_SAID = 10_000


_option = click.option(
    "--option",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the source. Kafka: as Spark's connector has them, kafka.security.protocol, startingOffsets, .. "
    "Storage: as in the changefeed's [sink], csv.delimiter, csv.quote, date-separator, ..",
)


def _source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.argument("source"),
        click.option("--protocol", default="auto", show_default=True, help="The sink-uri's protocol, or auto."),
        click.option(
            "--source-kind", default="auto", show_default=True, help="capture, parquet, delta, storage or kafka."
        ),
        click.option("--schema-registry", help="For avro: the registry's URL, or a file of schemas."),
        click.option("--claim-check", help="The folder that large messages were put in."),
        _option,
        click.option("--kafka-config", help="Properties file with Kafka's settings: secrets, off the command line."),
        click.option("--driver-memory", default="4g", show_default=True, help="Heap of the local Spark."),
        click.option("--debug", is_flag=True, help="Show the whole trace of an error."),
    )
    for option in reversed(options):
        command = option(command)
    return _guarded(command)


_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else there.")


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Every error ends in a message and exit code 2: 1 says that there are findings."""

    @wraps(command)
    def run(*args: Any, debug: bool, **kwargs: Any) -> None:
        options: dict[str, str] = {}
        try:
            if "option" in kwargs:
                options |= _options(kwargs.pop("option"), kwargs.pop("kafka_config", None))
                kwargs["options"] = options
            command(*args, **kwargs)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as e:  # Spark gives what Java threw, a full disk or a damaged file, in many shapes
            click.echo(redacted(traceback.format_exc() if debug else _said(e), options), err=True)
            sys.exit(FAILED)

    return run


def _options(given: tuple[str, ...], kafka_config: str | None) -> dict[str, str]:
    """Settings of the source; those on the command line win."""
    from ticdc_lab.sources.kafka import properties

    options = properties(kafka_config) if kafka_config else {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.BadParameter("expected KEY=VALUE", param_hint="--option")
        options[key] = value
    return options


def _said(error: Exception) -> str:
    if isinstance(error, TiCDCLabError):
        return f"ticdc-lab: {error}"
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"ticdc-lab: {first}\n\nHint: {_HIDE_TRACE}"


def _session(driver_memory: str) -> SparkSession:
    """The session of a caller from Python, brought as ``obj``, or a local one."""
    from ticdc_lab.session import local_session

    own = click.get_current_context().find_object(SparkSession)
    return own or local_session(app_name="ticdc-lab", driver_memory=driver_memory)


@contextmanager
def _opened(source: str, where: Mapping[str, Any]) -> Iterator[tuple[SparkSession, Any]]:
    from ticdc_lab.codecs.csv_settings import settings_among
    from ticdc_lab.load import load

    settings, options = settings_among(where["options"])
    spark = _session(where["driver_memory"])
    given = {name: where[name] for name in ("protocol", "source_kind", "schema_registry", "claim_check")}
    log = load(spark, source, settings=settings, options=options, **given)
    with log.reading():
        yield spark, log


@contextmanager
def _decoded(source: str, where: Mapping[str, Any], *, images: bool = True) -> Iterator[tuple[SparkSession, Any]]:
    """The log, decoded once into a temporary folder."""
    with (
        _opened(source, where) as (spark, log),
        tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder,
    ):
        with progress.shown(spark, f"decoding {log.protocol}"):
            log = log.materialise(f"{folder}/decoded", images=images)
        _say_counts(log)
        log.require_events()
        yield spark, log


def _say_counts(log: Any) -> None:
    n = log.counts
    click.echo(
        f"{log.source} ({log.protocol}): {n.messages} messages in = {n.decoded} decoded ({n.events} events)"
        f" + {n.quarantined} quarantined",
        err=True,
    )
    if n.quarantined:
        for r in _small(log.quarantine.groupBy("error_class").count().orderBy("error_class")):
            click.echo(f"  quarantined {r['count']} x {r['error_class']}", err=True)
    for sentence in log.limits:
        click.echo(f"  {sentence}", err=True)


def _small(aggregate: DataFrame) -> list[dict[str, Any]]:
    """Rows of an aggregate: as many as there are partitions, tables or guarantees, whatever the log's size."""
    return list(aggregate.toArrow().to_pylist())


def _facts(log: Any) -> dict[str, Any]:
    n = log.counts
    return {
        "source": log.source,
        "protocol": log.protocol,
        "messages": n.messages,
        "decoded": n.decoded,
        "quarantined": n.quarantined,
        "events": n.events,
        "limits": list(log.limits),
    }


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, default=str))


@click.group()
@click.version_option(package_name="ticdc-lab")
def main() -> None:
    """From a TiCDC change log to a proved answer.

    SOURCE is a capture file (.jsonl, .jsonl.gz, .parquet), a folder of them, a Delta table of messages, a folder of
    TiCDC's storage sink, or kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC].
    """


@main.command()
@_source_options
@click.option("--out", required=True, help="FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@click.option("--quarantine", help="Where the messages that could not be decoded go: DIR.parquet or a Delta folder.")
@_json
def events(source: str, out: str, quarantine: str | None, as_json: bool, **where: Any) -> None:
    """Canonical events, one row each."""
    from ticdc_lab.export import require_apart, write
    from ticdc_lab.schema import EVENTS

    require_apart(source, out, quarantine)
    with _opened(source, where) as (spark, log):
        counted = log.counted()
        with progress.shown(spark, f"decoding {log.protocol}"):
            write(counted.events.select(*EVENTS.names), out)
        done = counted.finished()
        _say_counts(done)
        if quarantine:
            write(done.quarantine, quarantine)
        elif done.counts.quarantined:
            click.echo("  keep them with --quarantine DIR.parquet", err=True)
        if as_json:
            _print_json(_facts(done) | {"out": out})


@main.command()
@_source_options
@_json
def watermarks(source: str, as_json: bool, **where: Any) -> None:
    """How far the log is complete: per topic, partition and table."""
    from pyspark.sql import functions as F

    from ticdc_lab import watermarks as w
    from ticdc_lab.laggards import laggard_spans

    with _decoded(source, where, images=False) as (spark, log):
        log.require_commit_ts("resolved_ts")
        with progress.shown(spark, "watermarks"):
            found = {
                "topics": _small(log.events.transform(w.topic_watermarks).orderBy("topic")),
                "partitions": _small(log.events.transform(w.partition_watermarks).orderBy("topic", "partition")),
                "tables": _small(log.events.transform(w.table_watermarks).orderBy("schema_name", "table_name")),
                "laggards": _small(
                    log.events.transform(laggard_spans)
                    .orderBy(F.desc("steps"), "topic", "partition", "first_step")
                    .limit(_LAGGARDS)
                ),
            }
        if as_json:
            _print_json(_facts(log) | found)
            return
        for t in found["topics"]:
            click.echo(_topic_sentence(t, _but_for(log)))
        for span in found["laggards"][:_LAGGARDS_SAID]:
            click.echo(_laggard_sentence(span))
        _table(
            found["partitions"],
            *("topic", "partition", "resolved_ts", "n_watermarks", "n_regressions", "n_stalls", "last_commit_ts"),
        )
        _table(found["tables"], "schema_name", "table_name", "n_rows", "resolved_ts", "last_commit_ts")


def _but_for(log: Any) -> str:
    n = log.counts.quarantined
    return f" but for what {n} quarantined messages held" if n else ""


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


def _table(rows: list[dict[str, Any]], *names: str) -> None:
    cells = [names, *[tuple("" if r[n] is None else str(r[n]) for n in names) for r in rows]]
    widths = [max(len(c[i]) for c in cells) for i in range(len(names))]
    for c in cells:
        click.echo("  ".join(v.ljust(w) for v, w in zip(c, widths, strict=True)).rstrip())


@main.command()
@_source_options
@click.option("--out", help="One line a transaction: FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@_json
def transactions(source: str, out: str | None, as_json: bool, **where: Any) -> None:
    """Whole transactions, restored across tables and partitions."""
    from pyspark.sql import functions as F

    from ticdc_lab.export import require_apart, write
    from ticdc_lab.transactions import transactions as restore

    require_apart(source, out)
    with _decoded(source, where, images=False) as (spark, log):
        log.require_commit_ts("transactions")
        restored = log.events.transform(restore)
        with progress.shown(spark, "transactions"):
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
            summary = _small(totals)[0]
        if as_json:
            _print_json(_facts(log) | summary)
        else:
            click.echo(
                f"{summary['transactions']} transactions ({summary['rows']} row changes): {summary['complete']}"
                f" complete{_but_for(log)}, {summary['pending']} pending; {summary['across_partitions']} lie in several"
                f" partitions; {summary['duplicates']} deliveries were repeats."
            )


@main.command()
@_source_options
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
@_json
def dispatch(
    source: str, strategy: str | None, file: str | None, sink_uri: str | None, partitions: int | None,
    index: str | None, columns: str | None, flavour: str, topics: bool, out: str, alignments_out: str | None,
    as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Events with the partition that another dispatcher, or a changefeed file, would have chosen."""
    from pyspark.sql import functions as F

    from ticdc_lab.catalog import catalog_of
    from ticdc_lab.dispatch import alignments
    from ticdc_lab.dispatch.conflict import CONFLICT
    from ticdc_lab.dispatch.strategies import ADDED
    from ticdc_lab.export import require_apart, write
    from ticdc_lab.schema import EVENTS

    by_conflict = strategy is not None and strategy.lower() == CONFLICT
    if alignments_out and not by_conflict:
        raise click.BadParameter("only the strategy conflict writes alignments", param_hint="--alignments-out")
    require_apart(source, out, alignments_out)
    feed, n = _dispatch_request(strategy, file, sink_uri, partitions, flavour, topics)
    names = ["target_topic"] if feed else ["alignment"] if by_conflict else []
    by = ["target_topic", "target_partition"] if topics else ["target_partition"]
    with _decoded(source, where) as (spark, log):
        ordered = feed is not None and (feed.raw or any(r.partition == "ts" for r in feed.rules))
        if ordered or strategy in ("ts", CONFLICT):
            log.require_commit_ts("dispatch by ts or conflict, or updates of keys that are not split")
        catalog = catalog_of(log.events)
        more: dict[str, Any] = {}
        moved = log.events.transform(
            _dispatched, feed=feed, strategy=strategy, partitions=n, index=index, flavour=flavour,
            columns=[c.strip() for c in columns.split(",")] if columns else None, catalog=catalog,
        )  # fmt: skip
        with progress.shown(spark, "dispatch"):
            write(moved.select(*EVENTS.names, *ADDED, *names), out)
            rows = moved.where("kind = 'row'")
            load = _small(rows.groupBy(*by).count().orderBy(*by))
            errors = (
                rows.where("dispatch_error IS NOT NULL").groupBy("dispatch_error").agg(F.count(F.lit(1)).alias("rows"))
            )
            failed = _small(errors.orderBy("dispatch_error").limit(100))
            if by_conflict:
                barriers = log.events.transform(alignments, partitions=n, catalog=catalog)
                if alignments_out:
                    write(barriers.repartition(1).sortWithinPartitions("table", "alignment"), alignments_out)
                more["alignments"] = _small(barriers.groupBy("table", "reason").count().orderBy("table", "reason"))
            if topics:
                more |= _topics(moved, n, feed)
            if feed is not None and feed.raw:
                more["key_updates"] = _key_updates(log.events, catalog)
        for e in failed:
            click.echo(f"  {e['rows']} rows: {e['dispatch_error']}", err=True)
        for topic, tables in more.get("shared", {}).items():
            click.echo(f"  {' and '.join(tables)} meet in the topic {topic}", err=True)
        if as_json:
            _print_json(_facts(log) | {"out": out, "load": load, "errors": failed} | more)
            return
        _table(load, *by, "count")
        if by_conflict:
            click.echo("Alignments, for which all partitions wait (those by ddl cost nothing of their own):")
            _table(more["alignments"], "table", "reason", "count")
        if topics:
            click.echo(f"{len(more['topics'])} topics of {n} partitions")
            _table(more["topics"], "target_topic", "tables", "rows", "share", "idle", "max_over_mean")


def _dispatch_request(
    strategy: str | None, file: str | None, sink_uri: str | None, partitions: int | None, flavour: str, topics: bool
) -> tuple[Any, int]:
    """The changefeed, if one is given, and the partition count; every mistake is found before anything is read."""
    from ticdc_lab.dispatch import check_strategy, read_changefeed

    if (strategy is None) == (file is None):
        raise click.UsageError("Give either --strategy or --changefeed.")
    feed = None
    if file is not None:
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
    return feed, n


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
    total = _small(counts.agg(*[F.coalesce(F.sum(c), F.lit(0)).alias(c) for c in names]))[0]
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
    tables = [(r["schema_name"], r["table_name"]) for r in _small(names)]
    expressions = [topic_of(feed.rules, *t, case_sensitive=feed.case_sensitive) for t in tables]
    found = _small(moved.transform(topic_balance, partitions=partitions).orderBy("target_topic"))
    return {"topics": found, "shared": shared_topics(tables, expressions)}


@main.command()
@_source_options
@click.option("--partitions", default="1,3,8,16,32", show_default=True, help="Partition counts to compare.")
@click.option(
    "--keep", type=click.Choice(["row", "unique", "transaction", "table"]), default="unique", show_default=True,
    help="What must not break: order of a row, of rows that share a unique value, transactions in a table, a table.",
)  # fmt: skip
@click.option("--allow-risk", is_flag=True, help="Also recommend columns that are no key but kept it in this log.")
@click.option("--out", help="Write the dispatchers as a changefeed file (TOML).")
@_json
def advise(
    source: str, partitions: str, keep: str, allow_risk: bool, out: str | None, as_json: bool, **where: Any
) -> None:
    """Which dispatcher for which table, how many partitions, and why: measured on this log.

    --protocol names the changefeed's protocol; it reads the source too.
    """
    from pathlib import Path

    from ticdc_lab.dispatch.advise import advise as advised
    from ticdc_lab.dispatch.advise_report import sentences, values
    from ticdc_lab.export import require_apart

    require_apart(source, out)
    try:
        counts = [int(n) for n in partitions.split(",")]
    except ValueError as e:
        raise click.BadParameter(f"{partitions!r} is no list of numbers", param_hint="--partitions") from e
    with _decoded(source, where) as (spark, log):
        log.require_commit_ts("advice")
        with progress.shown(spark, "advise"):
            found = advised(log.events, protocol=log.protocol, partitions=counts, keep=keep, allow_risk=allow_risk)
        if out:
            Path(out).write_text(found.changefeed.to_toml(), encoding="utf-8")
        if as_json:
            _print_json(_facts(log) | values(found) | ({"out": out} if out else {}))
            return
        for line in sentences(found):
            click.echo(line)
        if not out:
            click.echo("\n" + found.changefeed.to_toml())


@main.command()
@_source_options
@click.option("--table", "name", required=True, help="SCHEMA.TABLE, exactly as it was called at that time.")
@click.option("--as-of", "ts", type=int, help="commit_ts (TSO) up to which changes count; the log's resolved_ts.")
@click.option("--out", required=True, help="FILE.jsonl, FILE.jsonl.gz, DIR.parquet, or a Delta folder.")
@_json
def table(source: str, name: str, ts: int | None, out: str, as_json: bool, **where: str) -> None:
    """One table's rows at a consistent timestamp."""
    from ticdc_lab.export import require_apart, write
    from ticdc_lab.tables import table_as_of
    from ticdc_lab.tso import to_datetime

    require_apart(source, out)
    schema_name, dot, table_name = name.partition(".")
    if not dot:
        raise click.BadParameter(f"{name!r} is no SCHEMA.TABLE", param_hint="--table")
    with _decoded(source, where) as (spark, log):
        log.require_commit_ts(f"the table {name}")
        found = table_as_of(log.events, schema_name=schema_name, table_name=table_name, ts=ts)
        with progress.shown(spark, f"table {name}"):
            # by its columns, so that the same input gives the same bytes
            write(found.rows.orderBy(*[f"`{c}`" for c in found.key or found.rows.columns]), out)
        for sentence in found.limits:
            click.echo(f"  {sentence}", err=True)
        at = to_datetime(found.ts).isoformat(sep=" ", timespec="milliseconds")
        if as_json:
            facts = _facts(log)
            _print_json(facts | {"table": name, "ts": found.ts, "key": found.key, "out": out,
                                 "limits": [*facts["limits"], *found.limits]})  # fmt: skip
        else:
            click.echo(f"{name} at {found.ts} ({at}){_but_for(log)}: {out}")


@main.command()
@_source_options
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
@_json
def produce(
    source: str, target: str, strategy: str, partitions: int, index: str | None, columns: str | None, flavour: str,
    topic: str, max_batch_size: int, out: str, out_kafka_config: str | None, as_json: bool, **where: str,
) -> None:  # fmt: skip
    """The log as a new topic: another protocol, dispatcher or number of partitions."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from ticdc_lab.catalog import catalog_of
    from ticdc_lab.dispatch import check_strategy
    from ticdc_lab.encode import encoder
    from ticdc_lab.export import require_apart
    from ticdc_lab.produce import produce as produced
    from ticdc_lab.sources.kafka import properties
    from ticdc_lab.topic_writer import write_topic

    check_strategy(strategy)
    out_options = properties(out_kafka_config) if out_kafka_config else None
    lost = dict(encoder(target).lost)
    require_apart(source, out)
    with _decoded(source, where) as (spark, log):
        log.require_commit_ts("a topic in commit order")
        messages = log.events.transform(
            produced, protocol=target, strategy=strategy, partitions=partitions, index=index, flavour=flavour,
            columns=[c.strip() for c in columns.split(",")] if columns else None, catalog=catalog_of(log.events),
            topic=topic, max_batch_size=max_batch_size,
        )  # fmt: skip
        seen = Observation()
        with progress.shown(spark, f"writing {target}"):
            write_topic(messages.observe(seen, F.count(F.lit(1)).alias("messages")), out, options=out_options)
        written = seen.get["messages"]
        if as_json:
            _print_json(_facts(log) | {"out": out, "to": target, "written": written, "lost": lost})
            return
        click.echo(f"{written} messages of {target} in {partitions} partitions: {out}")
        for name, why in lost.items():
            click.echo(f"  {target} does not keep {name}: {why}", err=True)


@main.command()
@_source_options
@_json
def audit(source: str, as_json: bool, **where: Any) -> None:
    """Did the log keep TiCDC's promises? Exit 0 clean, 1 findings, 2 could not run."""
    from ticdc_lab.audit import checks_possible

    with _decoded(source, where) as (spark, log):
        with progress.shown(spark, "audit"):
            found = _findings(log)
        counts: dict[str, int] = {}
        for f in found:
            counts[f["guarantee"]] = counts.get(f["guarantee"], 0) + 1
        possible = checks_possible(log.protocol, has_commit_ts=log.has_commit_ts)
        if as_json:
            _print_json(_facts(log) | {"findings": found, "counts": counts, "not_checked": _why_not(possible)})
        else:
            _print_findings(found, possible)
    sys.exit(FINDINGS if found else CLEAN)


@main.command()
@_source_options
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
@_json
def expand(
    source: str, after: int, before: int | None, strategy: str | None, at: int | None, procedure: str, seed: int,
    captures: int | None, stop_delay: str, restart_ms: int, out: str | None, as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Another number of partitions in the middle of the log: its cost, and what breaks.

    Exit 0 clean, 1 findings, 2 could not run.
    """
    from ticdc_lab.catalog import catalog_of
    from ticdc_lab.dispatch import check_strategy
    from ticdc_lab.export import require_apart, write
    from ticdc_lab.repartition import Timing, cost_of
    from ticdc_lab.repartition import expand as expanded
    from ticdc_lab.repartition.expand import rule_of
    from ticdc_lab.repartition.findings import examined

    require_apart(source, out)
    rules = None
    if strategy:
        check_strategy(strategy.partition(":")[0])
        rules = (rule_of(strategy),)
    timing = Timing(_delays(stop_delay), restart_ms=restart_ms, captures=captures, seed=seed)
    with _decoded(source, where) as (spark, log), tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
        log.require_commit_ts("what another number of partitions does")
        done = expanded(
            log.events, after=after, before=before, rules=rules, at=at, procedure=procedure, timing=timing,
            catalog=catalog_of(log.events),
        )  # fmt: skip
        with progress.shown(spark, f"{procedure}: {done.plan.before} to {after} partitions"):
            done = done.kept(f"{folder}/expanded")
            if out:
                write(done.events.repartition(1).sortWithinPartitions("topic", "partition", "offset"), out)
            cost = cost_of(done)
            found = {part: _small(findings) for part, findings in examined(done, protocol=log.protocol).items()}
    if as_json:
        _print_json(_facts(log) | {"plan": done.plan.as_dict(), "cost": cost.as_dict(), "findings": found, "out": out})
    else:
        for sentence in (*done.plan.sentences(), *cost.sentences()):
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


def _findings(log: Any) -> list[dict[str, Any]]:
    """Findings, at most MAX_PER_GUARANTEE each; where a rule moves rows, it is said."""
    from ticdc_lab.audit import MAX_PER_GUARANTEE
    from ticdc_lab.audit import audit as check
    from ticdc_lab.checksum_findings import verify_checksums
    from ticdc_lab.dispatch import move_causes
    from ticdc_lab.schema import FINDINGS

    events = log.events
    causes = events.transform(move_causes)
    found = _small(events.transform(check, protocol=log.protocol, has_commit_ts=log.has_commit_ts, causes=causes))
    if log.protocol in ("simple", "avro"):  # no other carries row checksums
        differ = events.transform(verify_checksums).select(*FINDINGS.names)
        found += _small(differ.orderBy("severity", "partition", "offset").limit(MAX_PER_GUARANTEE))
    return found


def _why_not(possible: dict[str, str]) -> dict[str, str]:
    return {name: why for name, why in possible.items() if why}


def _print_findings(found: list[dict[str, Any]], possible: dict[str, str], *, most: int = 20) -> None:
    for name, why in possible.items():
        mine = [f for f in found if f["guarantee"] == name]
        click.echo(f"{'-' if why else 'x' if mine else '✓'} {name}: {why or f'{len(mine)} findings'}")
        for f in mine[:most]:
            where = f"{f['table'] or ''} {f['key'] or ''} partition {f['partition']} offset {f['offset']}"
            click.echo(f"    {f['severity']}: {where}: {f['message']}")
        if len(mine) > most:
            click.echo(f"    and {len(mine) - most} more; --json shows all")


@main.command()
@click.argument("folder")
@_option
@click.option("--driver-memory", default="4g", show_default=True, help="Heap of the local Spark.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@_json
@_guarded
def fsck(folder: str, options: dict[str, str], driver_memory: str, as_json: bool) -> None:
    """Is a folder of TiCDC's storage sink whole? Exit 0 clean, 1 findings, 2 could not run.

    Rows above the checkpoint alone, which the sink writes in passing, are no finding.
    """
    from ticdc_lab.codecs.csv_settings import settings_among
    from ticdc_lab.fsck import fsck as check

    wanted, others = settings_among(options)
    if others:
        raise click.BadParameter(f"{', '.join(sorted(others))}: no setting of a storage folder", param_hint="--option")
    spark = _session(driver_memory)
    with progress.shown(spark, "fsck"):
        findings = check(spark, folder, settings=wanted).persist()  # or every file would be read for each answer
        found = _small(findings.orderBy("kind", "path", "found").limit(_FSCK_SAID))
        by_kind = _small(findings.groupBy("kind", "severity").count().orderBy("kind", "severity"))
        findings.unpersist()
    counts: dict[str, int] = {}
    for r in by_kind:
        counts[r["kind"]] = counts.get(r["kind"], 0) + r["count"]
    faults = any(r["severity"] != "info" for r in by_kind)
    if as_json:
        _print_json({"source": folder, "findings": found, "counts": counts})
    else:
        for f in found:
            click.echo(f"{f['severity']} {f['kind']} {f['path']}: expected {f['expected']}; found {f['found']}")
        said = ", ".join(f"{n} x {kind}" for kind, n in counts.items())
        click.echo(f"{folder}: {said}" if counts else f"{folder}: clean")
    sys.exit(FINDINGS if faults else CLEAN)


@main.command()
@_source_options
@click.option("--out", default="report.html", show_default=True, help="One self-contained HTML file.")
def report(source: str, out: str, **where: Any) -> None:
    """Everything about a log in one HTML file that needs no network."""
    from ticdc_lab.export import require_apart
    from ticdc_lab.report import report as write_report

    require_apart(source, out)
    with _decoded(source, where) as (spark, log), progress.shown(spark, "report"):
        click.echo(str(write_report(log, out)))


@main.command()
@_source_options
@click.option("--out", required=True, help="Folder of the Delta tables; goes on where it was.")
@click.option("--once", is_flag=True, help="Stop when all that is there now has been read.")
@click.option("--every", "every_s", default=10.0, show_default=True, help="Seconds between two batches.")
def ingest(source: str, out: str, once: bool, every_s: float, **where: Any) -> None:
    """A Kafka topic into Delta tables, continuously, each message exactly once; stop it with Ctrl-C."""
    from ticdc_lab.ingest import ingest as run

    given = ("protocol", "schema_registry", "claim_check", "options")
    settings = {"once": once, "every_s": every_s} | {name: where[name] for name in given}
    with suppress(KeyboardInterrupt):
        run(_session(where["driver_memory"]), source, out, said=_say_state, **settings)


def _say_state(state: Any) -> None:
    messages = f"batch {state.batch_id}: {sum(f['n_rows'] for f in state.facts)} rows so far"
    click.echo(f"{messages}, transactions complete up to {state.complete_ts or 'nothing yet'}", err=True)
    for sentence in state.gaps:
        click.echo(f"  {sentence}", err=True)


if __name__ == "__main__":
    main()
