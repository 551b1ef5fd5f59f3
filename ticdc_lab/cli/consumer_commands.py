"""Commands of consumers: what one would have shown, and a log replayed into a database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli import completion
from ticdc_lab.cli.common import (
    CLEAN,
    FAILED,
    FINDINGS,
    asked,
    json_flag,
    main,
    print_answer,
    print_table,
    say,
    source_options,
)
from ticdc_lab.cli.layout import Moment
from ticdc_lab.engine.running import shown

if TYPE_CHECKING:
    from ticdc_lab.answers import Answer
    from ticdc_lab.consumer.listener import Listeners


# The command that asks what a consumer would have shown.


class _PolicyName(click.ParamType[str]):
    """A name of POLICIES; they come with the whole model of a consumer, so they are imported on demand."""

    name = "policy"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """As of a choice."""
        return self._choice().get_metavar(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As a choice does."""
        return self._choice().convert(value, param, ctx)

    def _choice(self) -> click.Choice[str]:
        from ticdc_lab.consumer.policy import POLICIES

        return click.Choice(tuple(POLICIES))


@main.command()
@source_options
@click.option(
    "--policy", "policies", type=_PolicyName(), multiple=True,
    help="The rules of a consumer; may be repeated. Default: design-row, reference-fixed, design-transaction and "
    "strict, compared.",
)  # fmt: skip
@click.option(
    "--strategy",
    shell_complete=completion.strategies,
    help="First dispatch the log by this dispatcher; default: as recorded.",
)
@click.option("--partitions", type=int, help="With --strategy: the number of partitions.")
@click.option(
    "--slow", multiple=True, metavar="PARTITION=TIMES", help="The listener of this partition reads so many times "
                                                             "slower. Default: two runs, one with all alike, one "
                                                             "with the fullest partition's listener four times "
                                                             "slower.",
)  # fmt: skip
@click.option(
    "--per-second", type=click.IntRange(1), help="Messages that a partition's listener reads in a second; default 5000."
)
@click.option(
    "--speed",
    multiple=True,
    metavar="PARTITION=N",
    help="Messages that the listener of this partition reads in a second.",
)
@click.option(
    "--pause",
    multiple=True,
    metavar="PARTITION=FROM_MS:UNTIL_MS",
    help="The listener of this partition reads nothing for that time.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Number of processes N of the consumer; process p modulo N reads partition p. Default 1.",
)
@click.option(
    "--crash", multiple=True, metavar="PROCESS=AT_MS:BACK_MS", help="A process of the consumer crashes and restarts."
)
@click.option("--write-ms", type=click.IntRange(0), help="How long the target takes for one transaction; default 0.02.")
@click.option(
    "--examples", type=click.IntRange(0), default=0, show_default=True,
    help="How many anomalies of each kind to show, each with the fewest messages that cause it.",
)  # fmt: skip
@click.option(
    "--watch", default="", metavar="COLUMN", help="Also follow the sum of this column over all rows, such as a balance."
)
@click.option(
    "--most-events", type=click.IntRange(1), default=20_000, show_default=True,
    help="Read about this many events: those with the smallest commit_ts.",
)  # fmt: skip
@json_flag
def consumer(source: str, as_json: bool, **where: Any) -> None:
    """What does a consumer show that upstream never had?

    Times are virtual: the consumer starts at 0, and the whole log is available.

    Exit 0: no anomaly. 1: anomalies. 2: could not run.
    """
    if bool(where["strategy"]) != bool(where["partitions"]):
        raise click.UsageError("Give --strategy and --partitions together: both place the rows of the log.")
    listeners, slow = _listeners(where), _slow(where.pop("slow"))
    if listeners is not None and slow is not None:
        raise click.UsageError("Give either --slow, or the other speeds, pauses and crashes.")
    asked_for = {n: where.pop(n) for n in ("policies", "strategy", "partitions", "examples", "watch", "most_events")}
    frames = bool(asked_for["strategy"] or asked_for["watch"])
    with asked(source, where, frames=frames) as (spark, log):
        log.change_log.require_commit_ts("a consumer's run")
        with shown(spark, "consumers"):
            answer = log.consumers(listeners=listeners, slow=slow, **asked_for)
        found = answer.frames.get("matrix")
        print_answer(log, answer, as_json=as_json)
        if not as_json:
            _print_anomalies(answer)
    sys.exit(FINDINGS if found is not None and found["n"].any() else CLEAN)


def _listeners(where: dict[str, Any]) -> Listeners | None:
    """The listeners of the options; None where none of them is given."""
    names = ("per_second", "speed", "pause", "processes", "crash", "write_ms")
    given = {n: v for n in names if (v := where.pop(n)) not in (None, ())}
    if not given:
        return None
    from ticdc_lab.answers.consumers import PER_SECOND, WRITE_US
    from ticdc_lab.consumer.listener import Crash, Listeners, Pause

    return Listeners(
        per_second=given.get("per_second", PER_SECOND),
        speeds={p: n for p, (n,) in _numbers("--speed", given.get("speed", ()), 1)},
        processes=given.get("processes", 1),
        pauses=tuple(Pause(p, a * 1000, b * 1000) for p, (a, b) in _numbers("--pause", given.get("pause", ()), 2)),
        faults=tuple(Crash(p, a * 1000, b * 1000) for p, (a, b) in _numbers("--crash", given.get("crash", ()), 2)),
        write_us=given["write_ms"] * 1000 if "write_ms" in given else WRITE_US,
    )


def _slow(given: Sequence[str]) -> dict[int, float] | None:
    found = {}
    for text in given:
        who, _, times = text.partition("=")
        if not who.isdigit() or not times.replace(".", "", 1).isdigit() or not float(times):
            raise click.BadParameter(f"{text!r}; expected PARTITION=TIMES, as 1=3", param_hint="--slow")
        found[int(who)] = float(times)
    return found or None


def _numbers(option: str, given: Sequence[str], n: int) -> list[tuple[int, list[int]]]:
    """``1=20:30`` as (1, [20, 30])."""
    out = []
    for text in given:
        who, _, rest = text.partition("=")
        values = rest.split(":")
        if not who.isdigit() or len(values) != n or not all(map(str.isdigit, values)):
            raise click.BadParameter(f"{text!r}; expected NUMBER={':'.join(['NUMBER'] * n)}", param_hint=option)
        numbers = [int(v) for v in values]
        if numbers != sorted(numbers) or (n == 1 and numbers[0] < 1):
            raise click.BadParameter(f"{text!r}; expected rising numbers, and a speed above 0", param_hint=option)
        out.append((int(who), numbers))
    return out


def _print_anomalies(answer: Answer) -> None:
    from ticdc_lab.events.tso import tso_words
    from ticdc_lab.words import percent

    parts = answer.facts()
    told = [
        {**r, "share of time": percent(r["wrong_us"], r["total_us"]) if r["total_us"] else "-"}
        for r in parts.get("matrix", [])
        if r["n"]
    ]
    if told:
        print_table(told, "policy", "strategy", "partitions", "speeds", "kind", "n", "share of time")
    for a in parts.get("examples", []):
        until = "for good" if a["ends_us"] is None else f"until {a['ends_us'] / 1000:.1f} ms"
        begins = f"from {a['begins_us'] / 1000:.1f} ms {until}"
        say(f"\n{a['policy']}, {a['speeds']}: {a['guarantee']}, {a['table']}, {begins}")
        say(f"  {a['message']}")
        for m in a["messages"]:
            click.echo(
                f"    {m['topic']}/{m['partition']} offset {m['offset']}: {m['kind']} {tso_words(m['commit_ts'])}"
            )


# The command that replays a log into a database.


@main.command()
@source_options
@click.option("--sink", required=True, help="duckdb:///FILE, delta:FOLDER or mysql://USER@HOST:PORT.")
@click.option(
    "--mode",
    type=click.Choice(["transaction", "row"]),
    default="transaction",
    show_default=True,
    help="transaction: restore transactions across partitions. row: each partition is applied up to its own watermark.",
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
    source: str, sink: str, mode: str, until: int | None, rows_a_batch: int | None, check: bool, as_json: bool,
    **where: Any,
) -> None:  # fmt: skip
    """Replay a log into a database.

    The target stores the position. So the same command resumes after an interruption. The password of a
    MySQL user is taken from the environment variable MYSQL_PWD, or from the file that MYSQL_OPTION_FILE names.

    Exit 0 all equal, 1 differences, 2 could not run, or no table can be compared.
    """
    from ticdc_lab.answers.compared import none_compared

    if sink.startswith("delta:"):
        where["needs_spark"] = "it writes Delta tables"
    with asked(source, where) as (spark, log):
        with shown(spark, "replaying") as say:
            answer = log.consume(
                sink, mode=mode, until=until, rows_a_batch=rows_a_batch, check=check, said=_counting(say)
            )
        if not as_json:
            _print_notes(answer)
        print_answer(log, answer, as_json=as_json)
        if not as_json:
            _print_compared(answer)
    if none_compared(answer):
        sys.exit(FAILED)
    sys.exit(FINDINGS if answer.frame["different"].any() else CLEAN)


def _counting(say: Callable[[str], None]) -> Callable[[Any, int], None]:
    """Prints after each commit how far the replay is."""
    commits = changes = 0

    def done(batch: Any, n: int) -> None:
        nonlocal commits, changes
        commits, changes = commits + 1, changes + n
        say(f"{changes} row changes, {commits} commits, at {batch.until}")

    return done


def _print_notes(answer: Answer) -> None:
    from ticdc_lab.events.tso import tso_words

    for note in answer.facts()["notes"]:
        click.echo(f"  {note['table'] or 'DDL'} at {tso_words(note['commit_ts'])}: {note['said']}", err=True)


def _print_compared(answer: Answer) -> None:
    from ticdc_lab.words import count

    for c in answer.facts()["tables"]:
        if c["why_not"]:
            say(f"- {c['table']}: not compared: {c['why_not']}")
            continue
        untold = f", except {count(c['untold'], 'value')} that the log does not contain" if c["untold"] else ""
        say(f"{'x' if c['different'] else '✓'} {c['table']}: {c['different']} of {c['rows']} rows differ{untold}")
        for d in c["first"]:
            which = f" in {', '.join(d['columns'])}" if d["columns"] else ""
            say(f"    {d['row']}{which}: expected {d['expected'] or 'nothing'}; found {d['found'] or 'nothing'}")
