"""Commands for the first minutes: a report on a sample, the notebooks, and what moment a timestamp is."""

from __future__ import annotations

from pathlib import Path

import click

from ticdc_lab.cli.common import engine_options, guarded, main
from ticdc_lab.cli.report_commands import report

_DEBUG = click.option("--debug", is_flag=True, help="Show the whole trace of an error.")


@main.command()
@click.option("--out", default="report.html", show_default=True, help="One self-contained HTML file.")
@engine_options
@_DEBUG
@guarded
@click.pass_context
def demo(context: click.Context, out: str) -> None:
    """Report on a sample of real TiCDC messages.

    The sample comes with the package.
    """
    from ticdc_lab.report.supplied import SAMPLE, samples

    context.invoke(report, sources=(str(samples() / SAMPLE),), out=out)


@main.command()
@click.argument("moment")
@_DEBUG
@guarded
def tso(moment: str) -> None:
    """Turn a TSO into its time, or a time into its TSO.

    MOMENT is a TSO, or a time in UTC such as "2026-06-01 12:30:00".
    """
    from ticdc_lab.events import sample
    from ticdc_lab.events.tso import logical, utc_words

    if (ts := sample.moment(moment)) is None:
        raise click.BadParameter("it is empty", param_hint="MOMENT")
    click.echo(f"{ts} {utc_words(ts)}" + (f" + {logical(ts)}" if logical(ts) else ""))


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@_DEBUG
@guarded
def notebooks(folder: Path) -> None:
    """Copy the notebooks and their samples to FOLDER.

    They can be run and changed there.
    """
    from ticdc_lab.report.supplied import copy_out

    copied = copy_out(folder)
    click.echo(str(copied))
    click.echo(f"Run: jupyter lab {copied}", err=True)
