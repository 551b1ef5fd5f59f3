"""Many runs of a simulator at once: a sweep over seeds, and every order of events of a small world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click

from ticdc_lab.cli.common import CLEAN, FAILED, FINDINGS, print_json, print_table, session_of, small

_SHOWN = 10
"""Runs that did not hold, of a sweep, that are printed."""


def swept(scenario: Any, seeds: range, out: str | None, *, as_json: bool) -> int:
    """Run every seed as a Spark job and print a summary; give the exit code."""
    from ticdc_lab.encode.export import write
    from ticdc_lab.engine.running import shown
    from ticdc_lab.simulate.sweep import failures, measured, sweep

    spark = session_of()
    runs = sweep(spark, scenario, seeds).persist()
    with shown(spark, "simulating"):
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
    runs.unpersist()
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
