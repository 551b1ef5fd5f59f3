"""Controls, a value, a figure."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic

import ipywidgets as widgets
import pandas as pd

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.in_notebook import mime_bundle
from ticdc_lab.figures.selecting import Selection, of_cell, selected
from ticdc_lab.widgets.choosing import taken
from ticdc_lab.widgets.controls import WIDE
from ticdc_lab.widgets.drawing import Drawing, Drawn, View
from ticdc_lab.widgets.figure_view import FigureView
from ticdc_lab.widgets.problem import Problem
from ticdc_lab.widgets.state import as_text, checked, parsed, put, read_state, state_of, unlike, values_of


class ControlBar(widgets.HBox):  # type: ignore[misc]
    """Controls in a row that wraps; what is wrong with one is shown below it.

    Parameters
    ----------
    controls
        Field name to widget, in their order.
    """

    def __init__(self, controls: Mapping[str, widgets.Widget]) -> None:
        self._words = {name: widgets.HTML(layout={"display": "none"}) for name in controls}
        self._boxes = {name: widgets.VBox([c, self._words[name]]) for name, c in controls.items()}
        super().__init__(list(self._boxes.values()))
        self.add_class("ticdc-bar")
        for name, box in self._boxes.items():
            box.add_class("ticdc-control")
            if controls[name].layout.width == WIDE:
                box.add_class("ticdc-wide")
            if isinstance(controls[name], widgets.SelectMultiple | widgets.Textarea | widgets.VBox):
                box.add_class("ticdc-tall")
            self._words[name].add_class("ticdc-wrong-words")

    def mark(self, problem: Problem | None) -> None:
        """Show at its control what is wrong, and nothing at all others."""
        for name, words in self._words.items():
            wrong = problem is not None and problem.control == name
            words.value = _said(problem) if problem is not None and wrong else ""
            words.layout.display = None if wrong else "none"
            (self._boxes[name].add_class if wrong else self._boxes[name].remove_class)("ticdc-wrong")


def _said(problem: Problem) -> str:
    hint = f"<br><span>{html.escape(problem.hint)}</span>" if problem.hint else ""
    return f"<b>{html.escape(problem.message)}</b>{hint}"


class Panel(Generic[View]):
    """Redraws a figure whenever a control changes.

    Parameters
    ----------
    view
        The dataclass of the value; one field for each control.
    controls
        Field name to widget, in the order of the bar: source, time range, tables, partitions, what is special, picture.
    draw
        From a value to a figure, or to :class:`ticdc_lab.widgets.drawing.Drawn`; runs no Spark job. An error of this
        package that it raises is shown in words, a :class:`ticdc_lab.widgets.problem.ControlError` beside its control;
        the last figure stays.
    name
        The panel's kind, as a saved state has it.
    slow
        Whether drawing may take long: in a notebook it is done in a thread then, and can be cancelled.
    doing
        What is shown while a slow panel draws.
    made_from
        How the panel can be made again, as JSON; None where only code can.
    origin_ms
        Physical millisecond at which a control ``time_range``, in seconds, begins.
    means
        What a changed control chooses, such as an entry of a list; None where it is nothing to select by.
    unfollowed
        The controls that the figure of a value does not distinguish.

    Attributes
    ----------
    controls
        As given.
    widget
        What is shown.

    Notes
    -----
    Display the panel. :attr:`value` can be set and read, and :attr:`figure` read, without a browser.
    """

    def __init__(
        self, view: type[View], *, controls: Mapping[str, widgets.Widget],
        draw: Callable[[View], Figure | Drawn], name: str = "panel", slow: bool = False,
        doing: str = "the model runs", made_from: Mapping[str, Any] | None = None, origin_ms: int | None = None,
        means: Callable[[View], Selection | None] = lambda view: None,
        unfollowed: Callable[[View], Iterable[str]] = lambda view: (),
    ) -> None:  # fmt: skip
        assert {f.name for f in fields(view)} == set(controls)  # type: ignore[arg-type]
        self._shape, self.controls, self.name = view, dict(controls), name
        self.made_from, self.origin_ms, self._means, self._unfollowed = made_from, origin_ms, means, unfollowed
        self._unselected: dict[str, Any] = {}
        self._above: frozenset[str] = frozenset()
        self._followed: frozenset[str] = frozenset()
        self._heard: list[Callable[[Selection], None]] = []
        self._quiet = False
        bar = ControlBar(self.controls)
        self._drawing: Drawing[View] = Drawing(draw, slow=slow, doing=doing, marked=bar.mark)
        inner = widgets.VBox([bar, self.view])
        inner.add_class("ticdc-panel")
        self.widget = widgets.VBox([inner])  # as wide as the page; its content is side by side where it fits
        self.widget.add_class("ticdc-place")
        self._listen()
        self._at_first = self._values()
        self.redraw()

    def _listen(self) -> None:
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self.view.observe(self._clicked, names="clicked")
        self.view.on("cancel", lambda _: self.cancel())
        self.view.on("save", lambda _: self.offer(self.name, self.state()))
        self.view.on("open", self._upload)

    @property
    def view(self) -> FigureView:
        """Where the figure is shown."""
        return self._drawing.view

    @property
    def figure(self) -> Figure:
        """The figure as last drawn."""
        return self._drawing.figure

    @property
    def frames(self) -> Mapping[str, pd.DataFrame]:
        """What the figure was drawn of, by name; empty where a panel does not give it."""
        return self._drawing.frames

    @property
    def problem(self) -> Problem | None:
        """Why the figure is not of the controls' values; None where it is."""
        return self._drawing.problem

    @property
    def value(self) -> View:
        """The controls' values; setting them draws, and waits for the figure."""
        return self._shape(**self._values())

    @value.setter
    def value(self, new: View) -> None:
        self._put({name: getattr(new, name) for name in self.controls})
        self.redraw()

    @property
    def is_as_made(self) -> bool:
        """Whether no control was changed, except by a choice elsewhere."""
        return self._values() | self._unselected == self._at_first

    def redraw(self) -> None:
        """Draw again by the controls, and wait for it."""
        self._drawing.now(self.value)

    def cancel(self) -> None:
        """Give up what a slow panel runs; the last figure stays."""
        self._drawing.cancel()

    def select(self, selection: Selection) -> None:
        """Filter by what was chosen elsewhere, as far as there are controls for it.

        What an earlier selection changed is put back first, so that an empty one lets all go.
        """
        now, named = self._values(), taken(self.controls, selection, self.origin_ms)
        wanted = now | self._unselected | named
        self._unselected = {name: self._unselected.get(name, now[name]) for name in named}
        changed = {name: value for name, value in wanted.items() if value != now[name]}
        if changed:  # and nothing else: a control may follow another, as the keys of a row do its table
            self._put(changed)
            self._drawing.follow(self.value)
        self._followed = frozenset(named)
        self._leave_out()

    @property
    def followed(self) -> frozenset[str]:
        """The controls by which the figure follows what was chosen elsewhere."""
        return self._followed.difference(self._unfollowed(self.value))

    def leave_out(self, names: Iterable[str]) -> None:
        """Hide controls that a bar above replaces, while they choose no more than it does."""
        self._above = frozenset(names)
        self._leave_out()

    def _leave_out(self) -> None:
        for name in self._above:
            control = self.controls[name]
            says_more = control.value not in (None, "") and name not in self._followed
            (control.remove_class if says_more else control.add_class)("ticdc-stands-above")

    def on_select(self, callback: Callable[[Selection], None]) -> None:
        """Call something with what a click on the figure means."""
        self._heard.append(callback)

    def choose(self, selection: Selection | None) -> None:
        """Announce that something was chosen here, as a click on the figure does; None is nothing."""
        if selection is not None:
            for callback in self._heard:
                callback(selection)

    def meant(self) -> Selection | None:
        """What the controls choose now; None where it is nothing to select by."""
        return self._means(self.value)

    def state(self) -> dict[str, Any]:
        """Give the controls' values, and what the panel is made from, as JSON."""
        return state_of(self.name, self.made_from, self.value)

    def save(self, path: str | Path) -> None:
        """Write :meth:`state` into a file."""
        Path(path).write_text(as_text(self.state()), encoding="utf-8")

    def open(self, state: Mapping[str, Any] | str | Path) -> None:
        """Set the controls as they were saved, and draw.

        Parameters
        ----------
        state
            What :meth:`state` gave, or the file of :meth:`save`.

        Raises
        ------
        StateError
            It is no state, of another panel, or has what a control cannot; the panel is as before then.
        """
        self._open(read_state(state), self._drawing.now)

    def _open(self, told: Mapping[str, Any], draw: Callable[[View, str], None]) -> None:
        values, before = values_of(told, panel=self.name, view=self._shape), self._values()
        try:
            self._put(values)
        except TiCDCLabError:
            self._put(before)
            raise
        draw(self.value, unlike(told["made_from"], self.made_from))

    def _values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    def _put(self, values: Mapping[str, Any]) -> None:
        self._quiet = True
        try:
            put({name: control for name, control in self.controls.items() if name in values}, values)
        finally:
            self._quiet = False
        self._leave_out()

    def _changed(self, change: Any) -> None:
        if not self._quiet:
            self._unselected = {  # who sets a control by hand wants it kept when what was chosen is let go
                name: value for name, value in self._unselected.items() if self.controls[name] is not change["owner"]
            }
            self._drawing.follow(self.value)
            self.choose(self.meant())

    def _clicked(self, change: Mapping[str, Any]) -> None:
        curve, point = (change["new"].get(name) for name in ("curve", "point"))
        if isinstance(curve, int) and isinstance(point, int):  # some marks of plotly have no number
            self.choose(of_cell(selected(self.figure, curve, point), str(change["new"].get("column") or "")))

    def offer(self, name: str, state: Mapping[str, Any]) -> None:
        """Have the page that shows it download a state."""
        self.view.send({"kind": "download", "name": f"{name}.state.json", "text": as_text(state)})

    def _upload(self, message: Mapping[str, Any]) -> None:
        try:
            told = checked(parsed(message["text"], name=message["name"]), message["name"])
            self._open(told, self._drawing.follow)
        except TiCDCLabError as error:
            self._drawing.tell(Problem.of(error))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The widget, and where it cannot be shown the figure as it is now."""
        live = self.widget._repr_mimebundle_(**kwargs)
        return {**live, **mime_bundle(self.figure, fallback=True), "text/plain": self.view.description}
