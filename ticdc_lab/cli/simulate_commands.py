"""Commands that run models: one scenario, or many by seed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import wraps
from typing import Any, NamedTuple

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FAILED,
    FINDINGS,
    engine_options,
    guarded,
    json_flag,
    main,
    print_json,
    print_table,
    session_of,
    small,
)

# Many runs of a simulator at once: a sweep over seeds, and every order of events of a small world.


_SHOWN = 10
"""Runs that did not hold, of a sweep, that are printed."""


def swept(scenario: Any, seeds: range, out: str | None, *, as_json: bool) -> int:
    """Run every seed as a Spark job and print a summary; give the exit code."""
    from ticdc_lab.encode.export import write
    from ticdc_lab.engine import kept
    from ticdc_lab.engine.running import shown
    from ticdc_lab.simulate.sweep import failures, measured, sweep

    spark = session_of()
    with shown(spark, "simulating"), kept(sweep(spark, scenario, seeds)) as runs:
        if out:
            write(runs.orderBy("seed"), out)
        [counts] = small(failures(runs))
        costs = small(measured(runs))
        bad = small(
            runs.where("not held")
            .orderBy("seed")
            .limit(_SHOWN)
            .select("seed", "violation", "because", "failed", "again")
        )
    told = {"scenario": scenario.name, "variant": scenario.variant, "seeds": [seeds[0], seeds[-1]], **counts}
    if as_json:
        print_json({**told, "measures": costs, "not_held": bad})
    else:
        _print_sweep(told, costs, bad)
    return FINDINGS if bad else CLEAN


def drawn(model: str, seeds: range, changes: Mapping[str, str], *, as_json: bool) -> int:
    """Run what each seed draws, and print those that do not hold as they come; give the exit code."""
    from ticdc_lab.simulate.swarm import fallen

    found = []
    for one in fallen(model, seeds, changes):
        found.append(one._asdict())
        if not as_json:
            click.echo(f"seed {one.seed}: " + "; ".join(one.because) + f"\n  {one.again}")
    if as_json:
        print_json({"model": model, "seeds": [seeds[0], seeds[-1]], "runs": len(seeds), "not_held": found})
    else:
        click.echo(f"{model}, seeds {seeds[0]}..{seeds[-1]}: {len(seeds)} runs, {len(found)} did not hold")
    return FINDINGS if found else CLEAN


def _print_sweep(told: dict[str, Any], costs: list[dict[str, Any]], bad: list[dict[str, Any]]) -> None:
    first, last = told["seeds"]
    failed = f"in {told['failed']} more an assertion failed or the run did not end"
    click.echo(f"{told['scenario']} ({told['variant']}), seeds {first}..{last}: {told['runs']} runs")
    click.echo(f"{told['violated']} violated an invariant, {failed}\n")
    print_table(costs, "measure", "seeds", "mean", "p99", "highest")
    for run in bad:
        what = [f"{run['violation']}: {run['because']}"] if run["violation"] else run["failed"]
        click.echo(f"\nseed {run['seed']}: " + "; ".join(what))
        click.echo(f"  {run['again']}")
    if told["violated"] + told["failed"] > len(bad):
        click.echo(f"\n.. and {told['violated'] + told['failed'] - len(bad)} more: --out keeps them all")


def explored(text: str, most_states: int, *, as_json: bool) -> int:
    """Search a small world and print what was found; give the exit code: 2 where the search did not come to its end."""
    from ticdc_lab.simulate.explore import explore
    from ticdc_lab.simulate.scheduler.small_variants import small_world

    found = explore(small_world(*_bounds(text)), most_states=most_states)
    path = [_told(action) for action in found.path]
    told = {name: getattr(found, name) for name in ("states", "steps", "depth", "complete", "broken", "dead_ends")}
    if as_json:
        print_json({"world": text, **told, "path": path})
    else:
        whole = "all of them" if found.complete else "not all of them"
        click.echo(f"{found.states} states, {whole}; {found.steps} steps, depth {found.depth}")
        if found.broken:
            click.echo(f"\nVIOLATED: {found.broken[0]}\n  {found.broken[1]}\n\nThe shortest way there:")
            for i, line in enumerate(path, 1):
                click.echo(f"{i:>4}  {line}")
        elif not found.complete:
            click.echo(f"Stopped at {most_states} states; nothing is violated so far. Raise --most-states.")
    return FINDINGS if found.broken else CLEAN if found.complete else FAILED


def _bounds(text: str) -> tuple[Any, str]:
    from ticdc_lab.simulate.scheduler.variants import VARIANTS
    from ticdc_lab.simulate.scheduler.world import Bounds

    kinds = {f.name: f.type for f in fields(Bounds)}
    given: dict[str, Any] = {}
    variant = "v2"
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name == "variant" and value in VARIANTS:
            variant = value
            continue
        flag = kinds.get(name) == "bool"
        if name not in kinds or not (value in ("true", "false") if flag else value.isdecimal()):
            hint = ", ".join(f"{n}={'true|false' if kind == 'bool' else 'N'}" for n, kind in kinds.items())
            hint = f"{hint}, variant={'|'.join(VARIANTS)}"
            raise click.BadParameter(f"{part!r}; expected some of {hint}", param_hint="--explore")
        given[name] = value == "true" if flag else int(value)
    return Bounds(**given), variant


def _told(action: Any) -> str:
    from ticdc_lab.simulate.trace import detail_of, name_of

    message = f" {name_of(action.message)} {detail_of(action.message)}" if action.message is not None else ""
    return f"{action.what} {action.node}" + (f" from {action.peer}" if action.peer else "") + message


# Commands that run the simulators.


_SAMPLE_US = 100_000
"""How often states are kept for *why*."""


@main.group()
def simulate() -> None:
    """Run a scenario file on a simulated cluster.

    A run shows what happens when, and why, and checks the assertions of the file.
    """


class RunAsked(NamedTuple):
    """How a scenario is to be run, of any model."""

    scenario: str | None
    seed: int | None
    seeds: str | None
    swarm: bool
    settings: tuple[str, ...]
    out: str | None
    lines: int
    as_json: bool


def of_a_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add how a scenario is run, which the command takes as one :class:`RunAsked`."""

    @wraps(command)
    def called(**given: Any) -> Any:
        return command(RunAsked(*(given.pop(name) for name in RunAsked._fields)), **given)

    options = (
        click.argument("scenario", required=False),
        click.option("--seed", type=click.IntRange(0), help="Seed of delays, losses and random faults; default: the "
                                                            "file's seed."),
        click.option("--seeds", metavar="A..B", help="Run every seed from A to B as a Spark job and print a summary."),
        click.option(
            "--swarm", is_flag=True,
            help="Without a file: the seed draws a cluster, a network, and faults that end. With --seeds A..B the "
                 "seeds run one after the other, without Spark. Each failing run is printed, with the "
                 "command that repeats it.",
        ),
        click.option(
            "--set", "settings", multiple=True, metavar="PATH=VALUE",
            help="Change a value of the file: variant=v3, settings.tick=200ms, network.loss=5%; may be repeated.",
        ),
        click.option("--out", help="Write the trace: FILE.parquet, FILE (JSON Lines), DIR/ (Delta). With --seeds: one "
                                   "row per seed."),
        click.option("--lines", type=click.IntRange(0), default=60, show_default=True, help="Lines printed of what "
                                                                                            "happened; 0 for all."),
        click.option("--schema", is_flag=True, is_eager=True, expose_value=False, callback=_print_schema,
                     help="Print the JSON schema of a scenario file, for an editor, and exit."),
        click.option("--debug", is_flag=True, help="Show the whole trace of an error."),
    )  # fmt: skip
    run: Callable[..., Any] = called
    for option in reversed(options):
        run = option(run)
    return engine_options(run)


def _print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from ticdc_lab.simulate.scenario import schema

        print_json(schema(str(context.command.name)))
        context.exit()


_WHY = click.option(
    "--why", "why_at", metavar="TIME",
    help="Also show what held the checkpoint and resolved_ts, or each DDL job, at this moment of the run, "
         "such as 7.5s.",
)  # fmt: skip


@simulate.command()
@of_a_run
@_WHY
@click.option(
    "--explore", metavar="captures=2,tables=2,..",
    help="Without a file: try every order of events in a small world. Bounds are numbers: moments, owner_changes, "
         "crashes, restarts, lost, expiries, joins. stops_at_once=false and one_owner=false drop an assumption of "
         "the design.",
)  # fmt: skip
@click.option(
    "--most-states",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="With --explore: stop after this many states of the world.",
)
@json_flag
@guarded
def scheduler(asked: RunAsked, why_at: str | None, explore: str | None, most_states: int) -> None:
    """Run a scenario of the table scheduler and judge it.

    Exit 0: all assertions passed. 1: one failed, or an invariant was violated. 2: it did not run, or not to its end.
    The same file, seed and settings print the same.
    """
    if explore is not None:
        if asked.scenario is not None or asked.swarm:
            raise click.UsageError("Give either a scenario file, --swarm or --explore.")
        sys.exit(explored(explore, most_states, as_json=asked.as_json))
    sys.exit(ran("scheduler", asked, why_at))


@simulate.command()
@of_a_run
@_WHY
@click.option(
    "--log", metavar="FILE", help="Write what came downstream, as a recorded topic: .parquet, .jsonl, .jsonl.gz."
)
@click.option("--protocol", help="The protocol of --log: open-protocol (default), canal-json or mq-v1.")
@click.option(
    "--truth", metavar="FILE", help="Write what was committed upstream, as events; the same file types as --log."
)
@json_flag
@guarded
def pipeline(
    asked: RunAsked, why_at: str | None, log: str | None, protocol: str | None, truth: str | None
) -> None:  # fmt: skip
    """Run a scenario of the replication pipeline and judge it.

    The pipeline goes from TiKV to the downstream.

    Exit 0: all assertions passed. 1: one failed, or an invariant was violated. 2: it did not run, or not to its end.
    """
    if protocol is not None and log is None:
        raise click.UsageError("--protocol is the protocol of --log: give --log, too.")
    if asked.seeds is not None and (log or truth):
        raise click.UsageError("--log and --truth are of one run: give --seed, not --seeds.")
    files = _Files(log, protocol or "open-protocol", truth) if log or truth else None
    if files:
        files.check()
    sys.exit(ran("pipeline", asked, why_at, files))


@simulate.command()
@of_a_run
@_WHY
@json_flag
@guarded
def changefeeds(asked: RunAsked, why_at: str | None) -> None:
    """Run a scenario of several changefeeds and judge it.

    The changefeeds of one cluster are created, paused, resumed and removed.

    Exit 0: all assertions passed. 1: one failed, or an invariant was violated. 2: it did not run, or not to its end.
    """
    sys.exit(ran("changefeeds", asked, why_at))


@simulate.command("ddl-service")
@of_a_run
@_WHY
@json_flag
@guarded
def ddl_service(asked: RunAsked, why_at: str | None) -> None:
    """Run a scenario of the DDL service and judge it.

    Workers own the DDL of several clusters.

    Exit 0: all assertions passed. 1: one failed, or an invariant was violated. 2: it did not run, or not to its end.
    """
    sys.exit(ran("ddl-service", asked, why_at))


class _Files(NamedTuple):
    """What else a run of the pipeline writes."""

    log: str | None
    protocol: str
    truth: str | None

    def check(self) -> None:
        """Refuse what cannot be written before the run, which may take long."""
        from ticdc_lab.encode import encoder
        from ticdc_lab.simulate.pipeline.log import require_writable

        encoder(self.protocol)
        for out in (self.log, self.truth):
            if out:
                require_writable(out)

    def write(self, run: Any) -> None:
        from ticdc_lab.simulate.pipeline.log import messages, write_rows

        if self.log:
            write_rows(messages(run.log, self.protocol), self.log)
        if self.truth:
            write_rows(run.truth, self.truth)


def ran(
    model: str, asked: RunAsked, why_at: str | None = None, files: _Files | None = None, *,
    many: Callable[..., int] = swept,
) -> int:  # fmt: skip
    """Run a scenario, many seeds of one, or what seeds draw; print it and give the exit code."""
    from ticdc_lab.simulate.scenario import read_scenario

    file, seed, seeds, swarm, settings, out, _, as_json = asked
    if swarm and seeds is not None:
        if file is not None or seed is not None or out is not None:
            raise click.UsageError(
                "--swarm --seeds draws its own scenarios: give no file, no --seed and no --out with it."
            )
        return drawn(model, seeds_of(seeds), changes_of(settings), as_json=as_json)
    if (file is None) != swarm:
        raise click.UsageError("Give either a scenario file or --swarm.")
    changes = changes_of(settings)
    if file is None:
        from ticdc_lab.simulate.swarm import swarm as drawn_by

        read = drawn_by(model, seed or 0, changes)
    elif (read := read_scenario(file, changes)).model.name != model:
        own = f"ticdc-lab simulate {read.model.name} {shlex.quote(file)}"
        raise click.UsageError(f"{file} is of the model {read.model.name}: {own}")
    if seeds is None:
        return _play(read, asked, why_at, files)
    if seed is not None or why_at is not None:
        raise click.UsageError(f"Give either {'--seed' if seed is not None else '--why'} or --seeds.")
    return many(read, seeds_of(seeds), out, as_json=as_json)


def changes_of(settings: tuple[str, ...]) -> dict[str, str]:
    """Read what was given with ``--set``."""
    changes = {}
    for text in settings:
        path, equals, value = text.partition("=")
        if not path or not equals:
            raise click.BadParameter(f"{text!r}; expected PATH=VALUE", param_hint="--set")
        changes[path] = value
    return changes


def seeds_of(text: str) -> range:
    """Read ``A..B``."""
    first, dots, last = text.partition("..")
    if not dots or not first.isdecimal() or not last.isdecimal() or int(first) > int(last):
        raise click.BadParameter(f"{text!r}; expected A..B, rising numbers", param_hint="--seeds")
    return range(int(first), int(last) + 1)


def _play(scenario: Any, asked: RunAsked, why_at: str | None, files: _Files | None) -> int:
    from ticdc_lab.simulate.runs import counts_messages
    from ticdc_lab.simulate.trace import CHANGES, EVENTS, needs_spark, write_trace

    level = EVENTS if asked.out or counts_messages(scenario) else CHANGES
    samples = {"sample_us": _SAMPLE_US} if why_at and scenario.model.name in ("pipeline", "changefeeds") else {}
    at_us = None if why_at is None else _moment(why_at, scenario.until_us)
    played = scenario.model.play(scenario, seed=asked.seed, level=level, **samples)
    if asked.out:
        write_trace(played.trace, asked.out, session_of() if needs_spark(asked.out) else None)
    if files:
        files.write(played.run)
    facts = _facts(played) | ({} if at_us is None else {"why": _whys(played, at_us)})
    if asked.as_json:
        print_json(facts)
    else:
        _print(facts, asked.lines)
    if played.run.end.because == "steps":
        return FAILED
    return CLEAN if played.held else FINDINGS


def _facts(played: Any) -> dict[str, Any]:
    """The text of a run: the same for each run of one file, seed and settings."""
    end = played.run.end
    return {
        "scenario": played.scenario.name,
        "variant": played.scenario.variant,
        "seed": played.seed,
        "end": {"because": end.because, "time_us": end.time_us, "doing": end.doing},
        "steps": end.steps,
        **({} if played.numbers is None else {"numbers": played.numbers}),
        **({} if played.run.messages is None else {"messages": played.run.messages}),
        "violation": asdict(end.violation) if end.violation else None,
        "assertions": [o._asdict() for o in played.outcomes],
        "happened": [line._asdict() for line in played.happened],
        "last": played.last,
        "again": played.again,
    }


def _moment(text: str, until_us: int) -> int:
    from ticdc_lab.simulate.reading import duration_us, shown

    at_us = duration_us(text)
    if at_us is None:
        raise click.BadParameter(f"{text!r}; expected a moment such as 7.5s", param_hint="--why")
    if at_us > until_us:
        raise click.BadParameter(f"{text!r}; the run ends at {shown(until_us)}", param_hint="--why")
    return at_us


def _whys(played: Any, at_us: int) -> list[dict[str, Any]]:
    return [({"changefeed": w.of} if w.of else {}) | {
                "watermark": w.watermark, "at_us": w.at_us, "value_ts": w.value_ts, "text": w.text,
                "holders": w.table.to_pylist()} for w in played.whys(at_us)]  # fmt: skip


def _print(facts: dict[str, Any], lines: int) -> None:
    from ticdc_lab.simulate.reading import shown
    from ticdc_lab.simulate.scheduler.narrative import Line

    end = facts["end"]
    click.echo(f"{facts['scenario']} ({facts['variant']}, seed {facts['seed']}): {_size(facts)}")
    happened = [str(Line(**line)) for line in facts["happened"]]
    click.echo("\nWhat happened:")
    for line in happened[: lines or None]:
        click.echo(line)
    if lines and len(happened) > lines:
        click.echo(f"{'..':>11}  {len(happened) - lines} more lines: --lines 0 shows them all")
    click.echo(f"\nAt {shown(end['time_us'])}:")
    for line in facts["last"]:
        click.echo(f"  {line}")
    for one in facts.get("why", []):
        of = f" of {one['changefeed']}" if "changefeed" in one else ""
        click.echo(f"\nWhy {one['watermark']}{of} at {shown(one['at_us'])}: {one['text']}")
    _print_judgement(facts)


def _size(facts: dict[str, Any]) -> str:
    from ticdc_lab.simulate.reading import shown

    messages = f", {facts['messages']} messages" if "messages" in facts else ""
    return f"{shown(facts['end']['time_us'])}, {facts['steps']} steps{messages}"


def _print_judgement(facts: dict[str, Any]) -> None:
    from ticdc_lab.simulate.reading import shown

    end, violation = facts["end"], facts["violation"]
    if facts["assertions"]:
        click.echo("\nAssertions:")
    for o in facts["assertions"]:
        click.echo(f"  {'held  ' if o['held'] else 'FAILED'}  {o['assertion']}")
        click.echo(f"          {o['because']}" + ("" if o["held"] else f" (step {o['step']}, line {o['line']})"))
    if violation:
        click.echo(f"\nVIOLATED at {shown(violation['time_us'])}, step {violation['step']}: {violation['invariant']}")
        click.echo(f"  {violation['because']}")
    if end["because"] == "steps":
        click.echo(f"\nStopped at its limit of {facts['steps']} steps, at {shown(end['time_us'])}; {end['doing']}")
        click.echo("Raise `step_limit` in the file, or look for a loop in what happened.")
    if violation or end["because"] == "steps" or not all(o["held"] for o in facts["assertions"]):
        click.echo(f"\nAgain: {facts['again']}")
