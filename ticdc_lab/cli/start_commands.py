"""Commands for the first minutes: a report on a sample, notebooks, and what moment a timestamp is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FAILED,
    FINDINGS,
    engine_options,
    guarded,
    is_folder,
    json_flag,
    main,
    named_values,
    require_folder,
    sample_options,
    source_options,
)
from ticdc_lab.cli.layout import Command
from ticdc_lab.cli.report_commands import report

# Commands for the first minutes: a report on a sample, the notebooks, and what moment a timestamp is.


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
    from ticdc_lab.events.tso import clock_words, logical

    if (ts := sample.moment(moment)) is None:
        raise click.BadParameter("it is empty", param_hint="MOMENT")
    click.echo(f"{ts} {clock_words(ts)}" + (f" + {logical(ts)}" if logical(ts) else ""))


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


# The options that many commands share, and the workbench in a browser.


class _Explained(Command):
    explains_all = True


@main.command(cls=_Explained)
@source_options
@sample_options
@json_flag
def shared(**_: Any) -> None:
    """Explain the options that most commands take."""


@main.command()
@_DEBUG
@guarded
def options() -> None:
    """Explain the options that most commands take."""
    context = click.Context(shared, info_name="COMMAND")
    formatter = context.make_formatter()
    shared.format_options(context, formatter)
    click.echo(formatter.getvalue().strip("\n"))


del main.commands["shared"]  # its help is what `options` prints


@main.command()
@click.argument("source", required=False)
@click.option("--out", default="workbench.ipynb", show_default=True, help="The notebook; one that is there is opened.")
@click.option("--no-browser", is_flag=True, help="Start JupyterLab and print its address.")
@_DEBUG
@guarded
def workbench(source: str | None, out: str, no_browser: bool) -> None:
    """Open the workbench in the browser.

    SOURCE is a log; without it there is a field to type it into.

    Writes a notebook of one cell and opens it in JupyterLab: run the cell with Shift+Enter. Ctrl-C ends JupyterLab.
    """
    from ticdc_lab.cli.arguments import check_source
    from ticdc_lab.errors import SetupError
    from ticdc_lab.report.supplied import workbench_notebook

    if source is not None:
        check_source(source, {})
    if find_spec("jupyterlab") is None:
        raise SetupError("JupyterLab is not installed.", hint="Run: python -m pip install jupyterlab")
    book = workbench_notebook(source, Path(out))
    click.echo(f"{book}: run its cell with Shift+Enter", err=True)
    flags = [f"--LabApp.default_url=/lab/tree/{quote(book.name)}"]  # the address that JupyterLab prints
    flags += ["--no-browser"] if no_browser else []
    flags += ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []  # as in containers
    sys.exit(subprocess.call([sys.executable, "-m", "jupyterlab", str(book), *flags]))


# Notebooks as pages, run with other parameters.


_SET = "A parameter of the notebook: a number, a list, or a path, relative to this folder."


@main.command()
@click.argument("name")
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=_SET)
@click.option("--out", help="FILE.html [NAME.html]; for several logs a folder [NAME].")
@click.option("--pdf", is_flag=True, help="A PDF beside each page, printed by Chromium or Chrome.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@guarded
def notebook(name: str, sources: tuple[str, ...], settings: tuple[str, ...], out: str | None, pdf: bool) -> None:
    """Run a notebook with parameters and keep it as a page.

    The page needs no network.

    NAME is a file, or a notebook of the package: 05_consumer_consistency, or 05. SOURCE is the log that it reads;
    default: its own sample. Several sources give a page each. One that fails does not stop the others.

    Exit 1: a check of the notebook failed. 2: a run failed.
    """
    from ticdc_lab.report.notebook_run import find
    from ticdc_lab.report.paper import browser

    if pdf:
        browser()
    file, given = find(name), named_values(settings, "NAME=VALUE", option="--set")
    runs = [given | {"source": s} for s in sources] or [given]
    pages = _pages(file.stem, sources, out)
    sys.exit(max(_page(file, page, run, pdf=pdf, alone=len(runs) == 1) for page, run in zip(pages, runs, strict=True)))


def _page(file: Path, page: Path, given: dict[str, Any], *, pdf: bool, alone: bool) -> int:
    """Write one page; the exit code."""
    from ticdc_lab.errors import TiCDCLabError
    from ticdc_lab.report.notebook_run import notebook_page
    from ticdc_lab.report.paper import print_pdf

    try:
        made = notebook_page(file, page, given, begins=_begins)
        printed = print_pdf(made.page) if pdf else None
    except TiCDCLabError as error:
        if alone:
            raise
        click.echo(f"{given['source']} has no {'page or no PDF' if pdf else 'page'}: {error}", err=True)
        return FAILED
    click.echo(str(made.page))
    if printed is not None:
        click.echo(str(printed))
    for cell in made.failed_checks:
        claim = next((line for line in cell.splitlines() if line.startswith("assert")), cell.splitlines()[0])
        click.echo(f"  does not hold here: {claim}", err=True)
    return FINDINGS if made.failed_checks else CLEAN


def _begins(cell: int, of: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[Kcell {cell} of {of}" if cell < of else "\r\x1b[K", err=True, nl=False)


def _pages(stem: str, sources: Sequence[str], out: str | None) -> list[Path]:
    from ticdc_lab.report.runs import ListedLog, page_names

    if len(sources) < 2 and not is_folder(out):
        return [Path(out or f"{stem}.html")]
    require_folder(out, len(sources))
    folder = Path(out or stem)
    return [folder / n for n in page_names([ListedLog(s) for s in sources])] if sources else [folder / f"{stem}.html"]
