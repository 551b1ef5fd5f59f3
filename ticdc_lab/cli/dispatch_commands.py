"""Commands for another dispatcher, partition count or topic."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from ticdc_lab.cli import completion
from ticdc_lab.cli.common import (
    CLEAN,
    FINDINGS,
    asked,
    json_flag,
    main,
    note,
    print_answer,
    say,
    source_of_any_changefeed,
    source_options,
)
from ticdc_lab.cli.layout import Moment
from ticdc_lab.engine.running import shown
from ticdc_lab.errors.whole_files import write_whole

_flavour_option = click.option(
    "--flavour",
    type=click.Choice(["new", "classic"]),
    default="new",
    show_default=True,
    help="TiCDC's architecture: new skips a NULL in the hash, classic (tiflow) hashes it as the text null.",
)


@main.command()
@source_of_any_changefeed
@click.option(
    "--strategy",
    shell_complete=completion.strategies,
    help="The dispatcher: table, default, index-value, index-value:INDEX, rowid, columns:a,b, ts, tidb-rowid or "
    "conflict.",
)
@click.option("--changefeed", help="A changefeed file (TOML) instead of --strategy: its dispatchers and settings.")
@click.option("--sink-uri", help="With --changefeed: its sink-uri, for partition-num, protocol and the default topic.")
@click.option("--partitions", type=int, help="Number of partitions; default: the changefeed's.")
@click.option("--index", help="With index-value: hash this index instead of the handle key.")
@click.option("--columns", help="With columns: the columns that are hashed, as a,b.")
@_flavour_option
@click.option("--topics", is_flag=True, help="With --changefeed: print the topics, and how evenly each is filled.")
@click.option("--out", help="The events: FILE (JSON Lines, .gz), DIR.parquet or DIR/ (Delta).")
@click.option(
    "--alignments-out",
    help="With conflict: write where and why partitions must wait for each other; the same file types as --out.",
)
@json_flag
def dispatch(
    source: str, strategy: str | None, changefeed: str | None, sink_uri: str | None, partitions: int | None,
    index: str | None, columns: str | None, flavour: str, topics: bool, out: str | None, alignments_out: str | None,
    as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Which partition would another dispatcher have chosen?

    Give the dispatcher with --strategy or a changefeed file. --out writes the events, each with
    that partition.
    """
    from ticdc_lab.dispatch.names import CONFLICT

    named, index, listed = _parts(strategy or "", index, columns)
    strategy = None if strategy is None else named
    by_conflict = strategy is not None and strategy.lower() == CONFLICT
    if alignments_out and not by_conflict:
        raise click.BadParameter("only the strategy conflict writes alignments", param_hint="--alignments-out")
    feed, n = _dispatch_request(strategy, changefeed, sink_uri, partitions, flavour, topics, listed)
    given: dict[str, Any] = {
        "index": index,
        "columns": listed,
        "flavour": flavour,
        "topics": topics,
        "alignments_out": alignments_out,
    }
    with asked(source, where) as (spark, log):
        with shown(spark, "dispatch"):
            answer = log.dispatch(out, strategy=strategy, partitions=n, changefeed=feed, **given)
        for sentence in answer.details:
            note(f"  {sentence}")
        shown_whole = {name: [*frame.columns] for name, frame in answer.frames.items() if name != "errors"}
        if topics:
            shown_whole["topics"] = ["target_topic", "tables", "rows", "share", "idle", "max_over_mean"]
        print_answer(log, replace(answer, details=()), as_json=as_json, shown=shown_whole)
        if out:
            note(f"  All events, each with its target_partition: {out}")


def _dispatch_request(
    strategy: str | None, file: str | None, sink_uri: str | None, partitions: int | None, flavour: str, topics: bool,
    columns: list[str] | None,
) -> tuple[Any, int]:  # fmt: skip
    """The changefeed, if one is given, and the partition count; every mistake is found before anything is read."""
    from ticdc_lab.cli.arguments import existing_file
    from ticdc_lab.dispatch.names import check_partitions, check_request, check_strategy

    if (strategy is None) == (file is None):
        raise click.UsageError(
            "Give either --strategy (table, ts, index-value, columns:a,b, ..) or --changefeed FILE; "
            "ticdc-lab advise SOURCE recommends one for each table."
        )
    feed = None
    if partitions is not None:
        check_partitions(partitions)
    if file is not None:
        existing_file(file, "The changefeed file")
        from ticdc_lab.dispatch import read_changefeed

        feed = read_changefeed(file, sink_uri=sink_uri, flavour="classic" if flavour == "classic" else "new")
        feed.require_partitions()
    elif topics or sink_uri:
        raise click.UsageError("--topics and --sink-uri need --changefeed.")
    else:
        check_strategy(strategy or "")
    n = partitions if partitions is not None or feed is None else feed.partitions
    if n is None:
        without = "." if feed is None else f": neither {file} nor a --sink-uri has a partition-num."
        raise click.UsageError(f"Missing option '--partitions'{without}")
    if strategy is not None:
        check_request(strategy, n, columns)
    return feed, n


def _parts(strategy: str, index: str | None, columns: str | None) -> tuple[str, str | None, list[str] | None]:
    """Strategy, index and columns; answers name them in one word, such as ``index-value:uk`` or ``columns:a,b``."""
    name, _, given = strategy.partition(":")
    if given and name.lower() == "index-value" and index is None:
        strategy, index = name, given
    elif given and name.lower() == "columns" and columns is None:
        strategy, columns = name, given
    return strategy, index, [c.strip() for c in columns.split(",")] if columns else None


@main.command()
@source_options
@click.option(
    "--partitions", help="Numbers of partitions to compare, as 1,4,12; by default the log's own and 1,3,8,16,32."
)
@click.option(
    "--keep", type=click.Choice(["row", "unique", "transaction", "table"]), default="unique", show_default=True,
    help="What must stay in order: a row, rows that share a unique value, transactions in a table, a whole table.",
)  # fmt: skip
@click.option(
    "--allow-risk", is_flag=True, help="Also recommend columns that are no key, if they kept the order in this log."
)
@click.option(
    "--tables", shell_complete=completion.tables,
    default="", metavar="SCHEMA.TABLE,..", callback=lambda _, __, n: tuple(filter(None, n.split(","))),
    help="Advise on these tables only: text, figures and TOML.",
)  # fmt: skip
@click.option("--reasons", is_flag=True, help="Also print why each other dispatcher of each table was not chosen.")
@click.option("--out", help="Write the dispatchers as a changefeed file (TOML).")
@json_flag
def advise(
    source: str, partitions: str | None, keep: str, allow_risk: bool, tables: tuple[str, ...], reasons: bool,
    out: str | None, as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Which dispatcher should each table have, and why?

    All candidates are measured on this log.

    --protocol sets how the source is read, and the protocol of the changefeed.
    """
    from ticdc_lab.dispatch.names import check_partitions

    try:
        counts = None if partitions is None else [int(n) for n in partitions.split(",")]
    except ValueError as e:
        raise click.BadParameter(f"{partitions!r} is no list of numbers", param_hint="--partitions") from e
    for n in counts or ():
        check_partitions(n)
    with asked(source, where, frames=False) as (spark, log):
        with shown(spark, "advise"):
            answer = log.advise(partitions=counts, keep=keep, allow_risk=allow_risk, tables=tables)
        if out:
            write_whole(Path(out), answer.values["dispatchers"])
        print_answer(log, answer, as_json=as_json, shown={"plan": [*answer.frame.columns]}, out=out)
        if as_json:
            return
        if reasons:
            from ticdc_lab.answers.advice import advised

            say("\n".join(advised(answer.values)))
        if not out:
            click.echo("\n" + answer.values["dispatchers"])
        if not reasons:
            click.echo("Why not another dispatcher: --reasons.")


@main.command()
@source_options
@click.option(
    "--to",
    shell_complete=completion.written_protocols,
    metavar="PROTOCOL",
    required=True,
    help="open-protocol, canal-json or mq-v1.",
)
@click.option(
    "--strategy",
    shell_complete=completion.strategies,
    required=True,
    help="table, default, index-value, index-value:INDEX, rowid, columns:a,b, ts or tidb-rowid.",
)
@click.option("--partitions", required=True, type=int, help="Partition count of the new topic.")
@click.option("--index", help="With index-value: hash this index instead of the handle key.")
@click.option("--columns", help="With columns: the columns that are hashed, as a,b.")
@_flavour_option
@click.option(
    "--topic",
    default="produced",
    show_default=True,
    help="The new topic's name in a file; a kafka:// URL has it already.",
)
@click.option(
    "--max-batch-size",
    type=int,
    help="The most rows in one open-protocol message; default: the messages of an open-protocol log, else 16.",
)
@click.option("--out", required=True, help="FILE (.gz), DIR.parquet, DIR/ (Delta), kafka://HOST:PORT/TOPIC.")
@click.option("--out-kafka-config", help="Properties file with Kafka's settings for --out.")
@json_flag
def produce(
    source: str, to: str, strategy: str, partitions: int, index: str | None, columns: str | None,
    flavour: Literal["new", "classic"],
    topic: str, max_batch_size: int | None, out: str, out_kafka_config: str | None, as_json: bool, **where: str,
) -> None:  # fmt: skip
    """Write the log as a new topic.

    With another protocol, dispatcher or number of partitions.
    """
    from ticdc_lab.codecs.registry import require_written
    from ticdc_lab.dispatch.names import check_request
    from ticdc_lab.engine.choosing import size_bytes, too_large_to_sort
    from ticdc_lab.sources.kafka import properties

    require_written(to)
    strategy, index, listed = _parts(strategy, index, columns)
    check_request(strategy, partitions, listed)
    options = properties(out_kafka_config) if out_kafka_config else None
    larger = too_large_to_sort(size_bytes(source))
    with asked(source, where | ({"needs_spark": larger} if larger else {})) as (spark, log):
        with shown(spark, f"writing {to}"):
            answer = log.produce(
                out, to=to, strategy=strategy, partitions=partitions, index=index, columns=listed, flavour=flavour,
                topic=topic, max_batch_size=max_batch_size, options=options,
            )  # fmt: skip
        for sentence in () if as_json else answer.details:
            note(f"  {sentence}")
        print_answer(log, replace(answer, details=()), as_json=as_json)


@main.command()
@source_options
@click.option(
    "--after", type=int, help="Number of partitions after the change; default: compare some numbers, from counters."
)
@click.option("--before", type=int, help="Number of partitions before the change; default: as recorded.")
@click.option(
    "--strategy",
    shell_complete=completion.strategies,
    help="The dispatcher: table, index-value, index-value:INDEX, columns:a,b or ts; default: each table's as recorded.",
)
@click.option(
    "--at", type=Moment(), help="When the owner decides: a time in UTC or a TSO; default: the middle of the log."
)
@click.option(
    "--procedure",
    type=click.Choice(["design", "no-feedback", "just-add"]),
    default="design",
    show_default=True,
    help="design: processors stop, report it, and start again. no-feedback: the owner does not wait for them to stop. "
    "just-add: partitions are added and nothing stops, as TiCDC does it.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of each processor's delay until it stops.")
@click.option("--captures", type=int, help="Number of captures that share the tables; default: one for each table.")
@click.option(
    "--stop-delay-ms",
    "--stop-delay",
    default="50,2000",
    show_default=True,
    callback=lambda context, option, value: _delays(value),
    help="Delay until a processor gets the order to stop: LEAST,GREATEST in ms.",
)
@click.option(
    "--restart-ms", type=int, default=1000, show_default=True, help="How long until processors write again, in ms."
)
@click.option("--reasons", is_flag=True, help="Also print the findings of each part: before, after, across the change.")
@click.option("--out", help="The new log's events: FILE (JSON Lines, .gz), DIR.parquet or DIR/ (Delta).")
@json_flag
def expand(
    source: str, after: int | None, before: int | None, strategy: str | None, at: int | None, procedure: str, seed: int,
    captures: int | None, stop_delay_ms: tuple[int, int], restart_ms: int, reasons: bool, out: str | None,
    as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """What would another number of partitions cost and break?

    The number changes once, in the middle of the log or at --at, as if the changefeed ran. Without --after some
    numbers are compared: keys that move, the pause, the fullest partition, what newly breaks. TiCDC never built the
    procedure `design`: the first sentence also reports what breaks if partitions are just added.

    Exit 0 clean, 1 findings (of --procedure), 2 could not run.
    """
    from ticdc_lab.dispatch.names import check_partitions, check_strategy

    for n in (after, before):
        if n is not None:
            check_partitions(n)
    if strategy:
        check_strategy(strategy.partition(":")[0])
    times: dict[str, Any] = {"stop_delay_ms": stop_delay_ms, "restart_ms": restart_ms}
    if after is None:
        of_change = ("before", "strategy", "at", "procedure", "seed", "captures", "stop_delay_ms", "restart_ms",
                     "reasons", "out")  # fmt: skip
        context, default = click.get_current_context(), click.core.ParameterSource.DEFAULT
        if given := [f"--{n.replace('_', '-')}" for n in of_change if context.get_parameter_source(n) is not default]:
            needs = f"{', '.join(given)} need{'s' if len(given) == 1 else ''}"
            raise click.UsageError(f"{needs} --after, the number of partitions after the change.")
        with asked(source, where, frames=False) as (spark, log):
            with shown(spark, "expand"):
                answer = log.partitions()
            print_answer(log, answer, as_json=as_json, shown={name: [*f] for name, f in answer.frames.items()})
        return
    with asked(source, where) as (spark, log):
        with shown(spark, f"{procedure}: to {after} partitions"):
            answer = log.expand(
                after=after, before=before, strategy=strategy, at=at, procedure=procedure, seed=seed,
                captures=captures, out=out, **times,
            )  # fmt: skip
        print_answer(log, answer, as_json=as_json, out=out)
    found = answer.values["findings"]
    if not as_json:
        from ticdc_lab.answers.advice import PARTS

        if not reasons:
            click.echo("What each part of the log breaks: --reasons.")
        for part, findings in found.items() if reasons else ():
            _print_part(PARTS[part], findings)
    sys.exit(FINDINGS if any(found.values()) else CLEAN)


def _delays(given: str) -> tuple[int, int]:
    low, comma, high = given.partition(",")
    if not (low.strip().isdigit() and (high.strip().isdigit() or not comma)):
        raise click.BadParameter(f"{given!r} is no LEAST,GREATEST in ms", param_hint="--stop-delay-ms")
    return int(low), int(high or low)


def _print_part(part: str, found: list[dict[str, Any]], *, most: int = 3) -> None:
    counts: dict[tuple[str, str], int] = {}
    for f in found:
        counts[f["guarantee"], f["severity"]] = counts.get((f["guarantee"], f["severity"]), 0) + 1
    from ticdc_lab.words import count

    click.echo(f"{'x' if found else '✓'} {part}: {count(len(found), 'finding')}")
    for (guarantee, severity), n in counts.items():
        click.echo(f"    {severity}: {guarantee}: {n}")
        for f in [f for f in found if (f["guarantee"], f["severity"]) == (guarantee, severity)][:most]:
            say(f"        {f['table'] or ''} partition {f['partition']} offset {f['offset']}: {f['message']}")
