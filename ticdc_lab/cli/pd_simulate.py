"""The command that runs scenarios of PD."""

from __future__ import annotations

import sys
from typing import Any

import click

from ticdc_lab.cli.common import CLEAN, FINDINGS, guarded, json_flag, print_json, print_table, session_of, small
from ticdc_lab.cli.simulate_commands import changes_of, of_a_run, require_swarm, scenario_of, seeds_of, simulate
from ticdc_lab.cli.simulate_many import drawn


@simulate.command("pd")
@click.argument("scenario", required=False)
@of_a_run
@json_flag
@guarded
def simulate_pd(
    scenario: str | None, seed: int | None, seeds: str | None, swarm: bool, settings: tuple[str, ...], out: str | None,
    lines: int, as_json: bool,
) -> None:  # fmt: skip
    """Run a scenario of a cluster under PD and judge it.

    Exit codes as for `simulate scheduler`. With --seeds a Spark job runs them all, and --out keeps a row of numbers
    for each (Delta, Parquet or JSON Lines).
    """
    if swarm and seeds is not None:
        require_swarm(scenario, seed, out)
        sys.exit(drawn("pd", seeds_of(seeds), changes_of(settings), as_json=as_json))
    read = scenario_of("pd", scenario, seed, settings, swarm=swarm)
    if seeds is not None:
        sys.exit(_many(read, seeds_of(seeds), out, as_json=as_json))
    sys.exit(_one(read, seed, out, lines, as_json=as_json))


def _one(scenario: Any, seed: int | None, out: str | None, lines: int, *, as_json: bool) -> int:
    from ticdc_lab.simulate.pd.world.what_if import future
    from ticdc_lab.simulate.trace_files import needs_spark, write_trace

    played = scenario.model.play(scenario, seed=seed)
    if out:
        write_trace(played.trace, out, session_of() if needs_spark(out) else None)
    facts = {
        "scenario": scenario.name, "seed": played.seed, "violated": played.run.violated,
        "assertions": [o._asdict() for o in played.outcomes], "last": played.last,
        "numbers": future(played.run)._asdict(),
        "happened": [
            {"at_s": h.at_us / 1e6, "what": str(h.change), "error": h.error} for h in played.run.happened
        ],
        "again": played.again,
    }  # fmt: skip
    if as_json:
        print_json(facts)
    else:
        _print(played, lines)
    return CLEAN if played.held else FINDINGS


def _print(played: Any, lines: int) -> None:
    from ticdc_lab.simulate.durations import shown

    click.echo(f"{played.scenario.name} (seed {played.seed}): {shown(played.run.world.now_us)}\n\nWhat happened:")
    told = [r for r in played.run.recording.recorder.rows if r.kind in ("asked", "decided", "violated")]
    for r in told[: lines or None]:
        what = r.subject if r.after is None else f"{r.subject}: {r.after}"
        because = f" ({r.because})" if r.because and r.because != r.after else ""
        click.echo(f"{shown(r.time_us):>11}  {what}{because}")
    if lines and len(told) > lines:
        click.echo(f"{'..':>11}  {len(told) - lines} more lines: --lines 0 shows them all")
    click.echo("\nAt the end:")
    for line in played.last:
        click.echo(f"  {line}")
    click.echo("\nAssertions:" if played.outcomes else "")
    for o in played.outcomes:
        click.echo(f"  {'held  ' if o.held else 'FAILED'}  {o.assertion}\n          {o.because}")
    if played.run.violated:
        click.echo(f"\nVIOLATED: {played.run.violated[0]}: {played.run.violated[1]}")
    click.echo(f"\nAgain: {played.again}")


def _many(scenario: Any, seeds: range, out: str | None, *, as_json: bool) -> int:
    from ticdc_lab.encode.export import write
    from ticdc_lab.simulate.pd_sweep import summary, sweep

    rows = sweep(session_of(), scenario, seeds).persist()
    if out:
        write(rows.orderBy("seed"), out)
    [told] = small(summary(rows))
    rows.unpersist()
    if as_json:
        print_json({"scenario": scenario.name, "seeds": [seeds[0], seeds[-1]], **told})
    else:
        click.echo(f"{scenario.name}, seeds {seeds[0]}..{seeds[-1]}")
        print_table([{"what": k, "value": v} for k, v in told.items()], "what", "value")
    return CLEAN if told["held"] == told["runs"] else FINDINGS
