"""Commands for the first minutes: a report on a sample, and the notebooks."""

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
    """Report on a sample of real TiCDC messages that comes with the package."""
    from ticdc_lab.supplied import SAMPLE, samples

    context.invoke(report, sources=(str(samples() / SAMPLE),), out=out)


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@_DEBUG
@guarded
def notebooks(folder: Path) -> None:
    """Copy the notebooks and the samples they read to FOLDER, to run and change them there."""
    from ticdc_lab.supplied import copy_out

    copied = copy_out(folder)
    click.echo(str(copied))
    click.echo(f"Run: jupyter lab {copied}", err=True)
