"""Why a log's resolved_ts stood."""

from __future__ import annotations

from typing import Any

import click

from ticdc_lab.cli.common import but_for, decoded, facts_of, json_flag, main, print_json, small, source_options
from ticdc_lab.engine.running import shown

_STALLS = 1_000


@main.command()
@source_options
@click.option(
    "--stall", "stall_s", type=click.FloatRange(0), default=60.0, show_default=True,
    help="Seconds between two watermarks, by event time or the broker's, above which they are explained.",
)  # fmt: skip
@json_flag
def why(source: str, stall_s: float, as_json: bool, **where: Any) -> None:
    """Why did resolved_ts stand: each stall, what may have held it, and what the log cannot tell."""
    from ticdc_lab.facts.stall_causes import stall_causes

    with decoded(source, where, images=False) as (spark, log):
        log.require_commit_ts("resolved_ts")
        with shown(spark, "why"):
            found = stall_causes(log.events, stall_s=stall_s, arrivals=log.messages)
            rows = small(found.orderBy("topic", "held_ts", "everywhere").limit(_STALLS))
        if as_json:
            print_json(facts_of(log) | {"stall_s": stall_s, "stalls": rows})
            return
        if not rows:
            click.echo(f"No watermark of this log{but_for(log)} stood for more than {stall_s:g} s.")
        for row in rows:
            _print_stall(row)


def _print_stall(row: dict[str, Any]) -> None:
    from ticdc_lab.tso import to_datetime

    at = to_datetime(row["held_ts"]).isoformat(sep=" ", timespec="milliseconds")
    where = "all partitions" if row["everywhere"] else f"partitions {row['partitions']}"
    until = "to the end of the log" if row["next_ts"] is None else f"to {row['next_ts']}"
    stood = "" if row["stood_s"] is None else f", {row['stood_s']:.3f} s by the broker's time since {row['since']}"
    click.echo(
        f"Topic {row['topic']}, {where}: stood at {row['held_ts']} ({at}), {until}: {row['step_s']:.3f} s{stood}"
    )
    for cause in row["causes"]:
        click.echo(f"  {cause['cause']}: {cause['says']}")
        click.echo(f"    not told by the log: {cause['cannot_tell']}")
