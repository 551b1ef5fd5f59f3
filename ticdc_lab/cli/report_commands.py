"""Pages that can be handed on: reports on logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ticdc_lab.cli.common import FAILED, decoded, is_folder, main, require_folder, sample_options, sources_options
from ticdc_lab.engine.running import shown

_OUT, _OUT_FOLDER = "report.html", "report"
_COMMAND = {"command": "ticdc-lab report"}
_WHERE = ("protocol", "source_kind", "schema_registry", "claim_check")


@main.command()
@sources_options
@sample_options
@click.option("--out", help=f"FILE.html for one log [{_OUT}], a folder for several [{_OUT_FOLDER}].")
@click.option("--runs", "runs_file", help="YAML or TOML: a list `runs` of source, title, protocol, options, ...")
@click.option("--pdf", is_flag=True, help="A PDF beside each page, printed by Chromium or Chrome.")
def report(sources: tuple[str, ...], out: str | None, runs_file: str | None, pdf: bool, **where: Any) -> None:
    """Write everything about a log into one HTML file.

    The file needs no network.

    Several logs give a folder: a page each, and index.html, which compares them. A log that cannot be read does not
    stop the others; the exit code is 2 then.
    """
    from ticdc_lab.report.paper import browser, print_pdf

    runs = _runs(sources, runs_file, where)
    where["all_sources"] = [run.source for run in runs]
    if pdf:
        browser()
    if len(runs) == 1 and not runs_file and not is_folder(out):
        pages, expected = [_one(runs[0], out or _OUT, where)], 1
        click.echo(str(pages[0]))
    else:
        pages, expected = _many(runs, out or _OUT_FOLDER, where), len(runs) + 1
    for page in pages if pdf else []:
        click.echo(str(print_pdf(page)))
    if len(pages) < expected:
        sys.exit(FAILED)


def _runs(sources: Sequence[str], runs_file: str | None, where: Mapping[str, Any]) -> list[Any]:
    """What the command line names, then what the file does; the command line's options hold where a run has none."""
    from ticdc_lab.report.runs import ListedLog, read_runs

    ours = {name: where[name] for name in _WHERE} | {"options": where["options"]}
    runs = [ListedLog(source, **ours) for source in sources]
    for run in read_runs(runs_file) if runs_file else ():
        theirs = {n: getattr(run, n) for n in _WHERE if getattr(run, n) not in ("auto", None)}
        runs.append(replace(run, **ours | theirs | {"options": {**where["options"], **run.options}}))
    if not runs:
        raise click.UsageError("Name a SOURCE, or a file of them with --runs.")
    return runs


def _one(run: Any, out: str, where: Mapping[str, Any]) -> Path:
    from ticdc_lab.encode.export import require_apart

    require_apart(run.source, out)
    with _opened(run, where) as (spark, log), shown(spark, "report"):
        from ticdc_lab.report import report as write_report

        return write_report(log, out, settings=_COMMAND | run.settings())


def _many(runs: Sequence[Any], out: str, where: Mapping[str, Any]) -> list[Path]:
    """A page for each log that could be read, and the index."""
    from ticdc_lab.report import reports

    require_folder(out, len(runs))
    for run in runs:
        _require_outside(run.source, out)

    @contextmanager
    def opened(run: Any) -> Iterator[Any]:
        with _opened(run, where) as (spark, log), shown(spark, f"report on {run.name}"):
            yield log

    entries = reports(runs, out, opened, settings=_COMMAND, done=lambda e: click.echo(_said(e, out), err=True))
    index = Path(out) / "index.html"
    click.echo(str(index))
    return [index, *(Path(out) / e.page for e in entries if e.page)]


def _said(entry: Any, out: str) -> str:
    return f"{entry.name}: {Path(out) / entry.page}" if entry.page else f"{entry.name} has no page: {entry.failed}"


def _require_outside(source: str, out: str) -> None:
    from ticdc_lab.errors import SourceError
    from ticdc_lab.errors.whole_files import bare_path

    recording, place = Path(bare_path(source)).resolve(), Path(out).resolve()
    if recording in (place, *place.parents):
        raise SourceError(f"The pages would lie among the recording {source}.", hint="Name another folder for --out.")


def _opened(run: Any, where: Mapping[str, Any]) -> Any:
    given = {name: getattr(run, name) for name in (*_WHERE, "options")}
    return decoded(run.source, {**where, **given}, frames=False, beside="ticdc_lab.report.write")
