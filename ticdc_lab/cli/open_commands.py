"""The command that opens what was saved in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ticdc_lab.cli.common import engine_options, guarded, json_flag, main, print_json, session_of, settings_option
from ticdc_lab.errors.whole_files import write_whole

_PAGE, _NOTEBOOK = ".html", ".ipynb"


@main.command("open")
@click.argument("state", type=click.Path(dir_okay=False))
@click.option("--out", type=click.Path(dir_okay=False), help="Write it to PAGE.html, or to a notebook BOOK.ipynb.")
@click.option("--source", help="Another log to look at in the same way, or the place of the same log on this machine.")
@settings_option
@click.option("--kafka-config", help="Properties file with Kafka's settings; a saved panel contains no secrets.")
@engine_options
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def open_command(state: str, out: str | None, source: str | None, options: Mapping[str, str], as_json: bool) -> None:
    """Open a panel that was saved in a notebook.

    STATE is the file that the panel's button `save` wrote. The panel is drawn again, and what it shows is printed.

    A notebook written with --out opens the panel when it is run.
    """
    from ticdc_lab.widgets.opening import needs_spark, open_state
    from ticdc_lab.widgets.state import read_state

    if out is not None and Path(out).suffix not in (_PAGE, _NOTEBOOK):
        raise click.BadParameter(f"expected a name that ends in {_PAGE} or {_NOTEBOOK}", param_hint="--out")
    if out is not None and out.endswith(_NOTEBOOK):
        read_state(state)
        if options:
            raise click.BadParameter(
                f"a notebook keeps no {', '.join(options)}: write options={{...}} into its cell",
                param_hint="--option, --kafka-config",
            )
        _write(out, _notebook(Path(state).resolve(), source))
        return
    spark = session_of(*([source] if source else [])) if needs_spark(state) else None
    opened = open_state(state, spark, source=source, options=options)
    panels = _panels(opened)
    if out is not None:
        _write(out, _page(state, panels))
    if as_json:
        print_json({name: _told(panel) for name, panel in panels.items()})
        return
    for panel in panels.values():
        _say(panel)


def _panels(opened: Any) -> Mapping[str, Any]:
    """The panel; of a workbench all saved ones, and the open tab's, which is waited for."""
    from ticdc_lab.widgets.panel import Panel

    if isinstance(opened, Panel):
        return {opened.name: opened}
    there = dict(opened.panels)
    tab = opened.pages.current
    return there if tab in there else {**there, tab: opened.panels[tab]}


def _told(panel: Any) -> dict[str, Any]:
    meta = panel.figure.layout.meta
    problem = None if panel.problem is None else panel.problem.message
    return {"finding": meta["finding"], "note": meta["note"], "problem": problem, **panel.state()}


def _say(panel: Any) -> None:
    told = _told(panel)
    click.echo(told["finding"].replace("<br>", " "))
    click.echo(f"  {told['problem'] or panel.view.status}")
    for limit in _unproved(told):
        click.echo(f"  {limit}")
    for name, value in told["value"].items():
        click.echo(f"  {name}: {value}")


def _unproved(told: Mapping[str, Any]) -> tuple[str, ...]:
    """What the sample that the panel was made from cannot prove."""
    from ticdc_lab.events.sample import Sample

    sample = (told["made_from"] or {}).get("sample")
    return Sample.from_dict(sample).limits if sample else ()


def _page(state: str, panels: Mapping[str, Any]) -> str:
    from ticdc_lab.report.page import PageTable, Section, page

    sections = []
    for name, panel in panels.items():
        told = _told(panel)
        made_from = [(k, v) for k, v in (told["made_from"] or {}).items() if v not in (None, {}, [])]
        rows = [*told["value"].items(), *made_from]
        shown = PageTable(("what was chosen, and from what", ""), [(k, str(v)) for k, v in rows], code=("",))
        limits = [*([told["problem"]] if told["problem"] else []), *_unproved(told)]
        sections.append(Section(name, name, told["note"], limits, [panel.figure, shown]))
    return page(Path(state).name, lead=f"Opened from {Path(state).name}.", sections=sections)


def _notebook(state: Path, source: str | None) -> str:
    import nbformat

    if source is not None and Path(source).exists():  # the notebook may be run in another folder
        source = str(Path(source).resolve())
    other = "" if source is None else f", source={source!r}"
    code = f"from ticdc_lab.widgets import open_state\n\nopen_state({str(state)!r}{other})"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code, id="open")])  # type: ignore[no-untyped-call]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return str(nbformat.writes(book)) + "\n"  # type: ignore[no-untyped-call]


def _write(out: str, text: str) -> None:
    write_whole(Path(out), text)
    click.echo(f"{out} written", err=True)
