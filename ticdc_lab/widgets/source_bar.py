"""Controls for what to read: a path, a topic or a table, what lies beside it, and what of it to read."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from pathlib import Path

import ipywidgets as widgets

from ticdc_lab.answers import surveyed
from ticdc_lab.engine.running import seconds
from ticdc_lab.errors import SourceError, TiCDCLabError
from ticdc_lab.errors.whole_files import bare_path, scheme_of
from ticdc_lab.events.sample import Sample, sample_of
from ticdc_lab.facts.definitions import NAMELESS
from ticdc_lab.sources.dump_files import name_of_form
from ticdc_lab.sources.places import kind_of_name
from ticdc_lab.sources.survey import Found
from ticdc_lab.widgets.controls import WHOLE, several
from ticdc_lab.widgets.problem import Problem
from ticdc_lab.widgets.under_way import UnderWay
from ticdc_lab.words import in_html

_LISTED = 200
_LOOKED_INTO = 500
_LABEL = {"description_width": "96px"}
_EXAMPLE = "data/topic.jsonl.gz, a folder, kafka://127.0.0.1:9092/orders, or the name of a table"


class SourceBar(widgets.VBox):  # type: ignore[misc]
    """The text field, the list of files, what was found, and the choice of a sample.

    ``look``: called with what was typed. ``read``: called with the sample to read. ``under_way``: progress and errors,
    below the text field.
    """

    def __init__(self, look: Callable[[str], None], read: Callable[[Sample], None]) -> None:
        self._look, self._read, self._quiet = look, read, False
        self.found: Found | None = None
        self.place = widgets.Text(
            description="source", placeholder=_EXAMPLE, tooltip="A path, kafka://HOST:PORT/TOPIC, or a table's name",
            continuous_update=False, layout={"width": "640px", "max_width": WHOLE}, style=_LABEL,
        )  # fmt: skip
        self.button = widgets.Button(description="preview", tooltip="kind and size; reads the first messages only")
        self.files = widgets.Select(
            options=[], rows=5, description="files here", style=_LABEL, layout={"width": "640px", "max_width": WHOLE},
            tooltip="What lies in that folder; choosing one writes it above",
        )  # fmt: skip
        self.under_way, self.told = UnderWay(), widgets.HTML()
        self.tables = several("tables", [], tip="Only row changes of these; none chosen means all", rows=4)
        self.first, self.last = (self._moment(name) for name in ("from", "to"))
        self.read_button = widgets.Button(description="read all", button_style="primary", layout={"width": "180px"})
        self.choice = widgets.HBox(
            [self.tables, widgets.VBox([self.first, self.last]), self.read_button], layout={"flex_flow": "row wrap"}
        )
        self.choice.layout.display = "none"
        asked = widgets.HBox([self.place, self.button], layout={"flex_flow": "row wrap"})
        super().__init__([asked, self.files, self.under_way, self.told, self.choice])
        self.add_class("ticdc-bar")
        self._listen()
        self.list_folder(str(_first_folder()))

    def _moment(self, name: str) -> widgets.Text:
        tip = f"Only row changes {name} then: 2026-06-01 12:30:00 in UTC, or a TSO; empty for no bound"
        return widgets.Text(description=name, placeholder="any time", tooltip=tip, style=_LABEL)

    def _listen(self) -> None:
        self.button.on_click(lambda _: self._look_once())
        self.place.observe(lambda _: self._look_once(), names="value")
        self.files.observe(self._chosen, names="value")
        self.read_button.on_click(lambda _: self._ask())
        for control in (self.tables, self.first, self.last):
            control.observe(lambda _: self._label(), names="value")

    @property
    def sample(self) -> Sample:
        """What the controls ask for."""
        return sample_of(",".join(self.tables.value), self.first.value, self.last.value)

    def show(self, found: Found | None) -> None:
        """Show what was found, and offer what of it can be read."""
        self.found = found
        self.choice.layout.display = "none" if found is None else None
        self.told.value = "" if found is None else _told(found)
        if found is not None:
            self.tables.options = [t for t in found.tables if t != NAMELESS]
            self.tables.value = ()
            self._label()

    def list_folder(self, source: str) -> None:
        """List the folder that is or holds ``source``; nothing for what is no path of this machine."""
        if scheme_of(source) is not None:
            return
        try:
            place = Path(bare_path(source)).expanduser()
        except SourceError:  # the preview shows what is wrong
            return
        folder = next((p for p in (place, *place.parents) if p.is_dir()), Path())
        options = [(f"{folder}/", ""), *_entries(folder)]
        if options != list(self.files.options):
            self.files.options = options

    def allow(self, on: bool) -> None:
        """Let one look and read, or not while something runs."""
        self.button.disabled = self.read_button.disabled = not on

    def put(self, source: str) -> None:
        """Write into the text field, without looking."""
        self._quiet = True
        try:
            self.place.value = source
        finally:
            self._quiet = False

    def _look_once(self) -> None:
        """Enter, and leaving the field by a click on the button, both look; the second finds it under way."""
        if not self._quiet and not self.under_way.is_busy and self.place.value.strip():
            typed = self.place.value.strip()
            self._look(str(Path(typed).expanduser()) if typed.startswith("~") else typed)

    def _chosen(self, change: dict[str, str]) -> None:
        if change["new"]:
            self.put(change["new"])

    def _ask(self) -> None:
        try:
            self._read(self.sample)
        except TiCDCLabError as error:
            self.under_way.say(Problem.of(error))

    def _label(self) -> None:
        whole = not (self.tables.value or self.first.value.strip() or self.last.value.strip())
        load_s = self.found.load_s if self.found is not None else None
        long = "" if load_s is None else f", {seconds(load_s)}"
        self.read_button.description = f"read all{long}" if whole else "read this sample"


_NEAR = (".", "data", "../data")
"""Where data may lie, seen from where a notebook runs."""


def _first_folder() -> Path:
    """The first folder near this one in which a log may be; this one where there is none."""
    some = (f for f in map(Path, _NEAR) if f.is_dir() and any(_what_is(p) for p in _visible(f)[:_LISTED]))
    return next(some, Path())


def _what_is(path: Path) -> str | None:
    """Which kind of a log may be there; None for none. The first bytes of a file are looked at."""
    # os.path: false, where pathlib raises, of a folder that we may not enter
    if os.path.isdir(path / "_delta_log"):
        return "delta"
    if path.suffix == ".ipynb" or not os.path.isfile(path):  # a notebook is JSON, too
        return None
    return name_of_form(path) or kind_of_name(path.name)


def _visible(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if not p.name.startswith((".", "_"))]
    except OSError:
        return []


def _entries(folder: Path) -> list[tuple[str, str]]:
    """What lies in a folder, with sizes and kinds: what may be a log first, then other files, then folders."""
    kinds = {path: _what_is(path) for path in sorted(_visible(folder), key=lambda p: p.name.lower())[:_LOOKED_INTO]}
    try:
        below = sorted(_visible(folder), key=lambda p: (kinds.get(p) is None, p.name.lower()))
        files = [
            (f"{p.name}   ({', '.join([f'{p.stat().st_size / 1000:,.0f} KB', *filter(None, [kinds.get(p)])])})", str(p))
            for p in below
            if p.is_file()
        ]
        folders = [(f"{p.name}/{'   (delta)' if kinds.get(p) else ''}", str(p)) for p in below if p.is_dir()]
    except OSError:
        return []
    more = len(files) + len(folders) - _LISTED
    rest = [(f"… and {more:,} more", "")] if more > 0 else []
    return [("..", str(folder.resolve().parent)), *[*files, *folders][:_LISTED], *rest]


def _told(found: Found) -> str:
    answer = surveyed(found)
    parts = [f"<b>{in_html(answer.finding)}</b>", *map(in_html, (*answer.limits, *answer.details))]
    return f'<div style="line-height:1.5;max-width:900px">{"<br>".join(parts)}</div>'


# The one line above the tabs: which log was read, what it is, and the way to another.


class SourceLine(widgets.HBox):  # type: ignore[misc]
    """Names what is shown below; hidden until something was read.

    ``other``: called to read another source. ``beside``: what is at its end.
    """

    def __init__(self, other: Callable[[], None], beside: widgets.Widget) -> None:
        self.line = widgets.HTML()
        self.line.add_class("ticdc-source-words")
        self.button = widgets.Button(
            description="another source", tooltip="show or hide the field for a path, a topic or a table"
        )
        self.button.on_click(lambda _: other())
        super().__init__([self.line, self.button, beside])
        self.layout.display = "none"
        self.add_class("ticdc-source-line")

    def say(self, source: str, state: str) -> None:
        """Name the log that was read, and how far it is complete; its content is the first tab's answer."""
        name = source.rstrip("/").rsplit("/", 1)[-1] or source
        self.line.value = (
            f'<span role="status" title="{html.escape(source)}"><b>{html.escape(name)}</b> {html.escape(state)}</span>'
        )
        self.layout.display = None
