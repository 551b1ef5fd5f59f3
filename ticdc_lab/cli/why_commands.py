"""Why a log's resolved_ts stood."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ticdc_lab.cli.common import asked, json_flag, main, print_answer, source_options
from ticdc_lab.engine.running import shown


@main.command()
@source_options
@click.option(
    "--stall", "stall_s", type=click.FloatRange(0), default=60.0, show_default=True,
    help="A stall is more than this many seconds between two watermarks, by event time or the broker's.",
)  # fmt: skip
@json_flag
def why(source: str, stall_s: float, as_json: bool, **where: Any) -> None:
    """Why did resolved_ts stand still?

    Lists each stall, what may have held it, and what the log cannot tell.
    """
    with asked(source, where, images=False) as (spark, log):
        with shown(spark, "why"):
            answer = log.why(stall_s=stall_s)
        whole = replace(answer, details=(*answer.details, *answer.limits))  # a terminal has no other place for them
        print_answer(log, whole, as_json=as_json, stall_s=stall_s)
