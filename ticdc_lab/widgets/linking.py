"""Panels that follow one choice: what is chosen in one figure filters the others."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import ipywidgets as widgets
import traitlets

from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets.choosing import code_of, offered
from ticdc_lab.widgets.controls import choice
from ticdc_lab.words import in_lanes

_NOTHING = "Nothing is chosen: click on a mark of a figure, or choose here."
_ANY = "any"
_TITLES = {
    "log": "overview, watermarks, transactions", "what-if": "dispatch what-if", "browse": "messages",
    "row": "a row's life", "table-at": "a table as of", "findings": "audit",
}  # fmt: skip
"""What the tabs call a panel, where its own name is another."""


class ChosenBar(widgets.HBox):  # type: ignore[misc]
    """Shows what is chosen and who follows it.

    Parameters
    ----------
    put
        Called with a field of the selection and its new value, on a choice here.
    clear
        Called on clearing.
    """

    def __init__(self, put: Callable[[str, Any], None], clear: Callable[[], None]) -> None:
        self._put, self._quiet = put, False
        self._options: dict[str, dict[Any, None]] = {}
        self._choosers: dict[str, widgets.Dropdown] = {}
        self._row = widgets.HBox(layout={"flex_flow": "row wrap"})
        self._row.add_class("ticdc-bar")
        self.line = widgets.HTML()
        self.button = widgets.Button(description="clear", tooltip="choose nothing", disabled=True)
        self.button.on_click(lambda _: clear())
        said = widgets.HBox([self.line, self.button], layout={"align_items": "center"})
        super().__init__([self._row, said], layout={"flex_flow": "row wrap", "align_items": "center"})
        self.add_class("ticdc-chosen")

    def offer(self, controls: Mapping[str, widgets.Widget]) -> None:
        """Take over what the controls of a panel let one choose."""
        for field, values in offered(controls).items():
            self._options.setdefault(field, {}).update(dict.fromkeys(values))
            options = sorted(self._options[field], key=lambda v: (isinstance(v, str), v))
            chooser = self._choosers.get(field) or self._chooser(field, _label(controls, field))
            self._quiet = True
            chooser.options = [(_ANY, None), *[(str(v), v) for v in options]]
            self._quiet = False

    def say(self, selection: Selection, followed: Mapping[str, frozenset[str]]) -> None:
        """Show what is chosen, and by which controls each panel follows it."""
        words = in_lanes(selection.in_words(), _label(self._choosers, "partition"))
        self.button.disabled = not words
        listed = {
            name: ", ".join(sorted(controls)).replace("_", " ") for name, controls in followed.items() if controls
        }
        by = [f"{_TITLES.get(name, name)} (by {controls})" for name, controls in listed.items()]
        none = [_TITLES.get(name, name) for name, controls in followed.items() if not controls]
        unmoved = f"; not filtered: {', '.join(none)}" if none else ""
        who = f"filtered: {', '.join(by)}{unmoved}" if by else "no panel can follow it"
        said = f"<b>Chosen: {html.escape(words)}</b> <small>({html.escape(who)})</small>" if words else _NOTHING
        code = html.escape(code_of(selection))
        shown = f'<br><code title="the same by code">{code}</code>' if code else ""
        self.line.value = f'<span role="status" aria-live="polite">{said}</span>{shown}'
        self._quiet = True
        for field, chooser in self._choosers.items():
            value = getattr(selection, field)
            chooser.value = value if any(value == v for _, v in chooser.options) else None
        self._quiet = False

    def _chooser(self, field: str, label: str) -> widgets.Dropdown:
        chooser = choice(label, [(_ANY, None)], tip=f"choose a {label} everywhere")
        chooser.style.description_width, chooser.layout.width = "initial", "auto"
        chooser.observe(lambda change: self._quiet or self._put(field, change["new"]), names="value")
        self._choosers[field] = chooser
        self._row.children = (*self._row.children, chooser)
        return chooser


def _label(controls: Mapping[str, widgets.Widget], field: str) -> str:
    """What a control is called: ``stream`` is the partition of a folder's panels."""
    return getattr(controls.get(field), "description", field) if field == "partition" else field


class Selecting(Protocol):
    """What can be linked: a :class:`ticdc_lab.widgets.panel.Panel`, or what behaves as one."""

    name: str
    controls: dict[str, Any]

    @property
    def followed(self) -> frozenset[str]:
        """The controls by which it follows what was chosen elsewhere."""
        ...

    def select(self, selection: Selection) -> None:
        """Filter by what was chosen elsewhere."""
        ...

    def on_select(self, callback: Callable[[Selection], None]) -> None:
        """Call something with what a click means."""
        ...

    def meant(self) -> Selection | None:
        """What its controls choose; None if they choose nothing of the kind."""
        ...


class Linked(traitlets.HasTraits):
    """A group of panels and what is chosen in it.

    A panel is filtered by what was chosen in the others, not by what was chosen in itself, so that its figure still
    offers the other choices.

    Attributes
    ----------
    selection
        What is chosen; setting it filters all panels.
    bar
        A line with what is chosen, controls to choose without a mouse, and a button that clears it.
    """

    selection = traitlets.Instance(Selection)

    def __init__(self, *panels: Selecting, selection: Selection | None = None) -> None:
        super().__init__(selection=selection or Selection())
        self.panels: list[Selecting] = []
        self._from: dict[str, Selecting] = {}
        self._telling = False
        self.bar = ChosenBar(self._put, self.clear)
        self.observe(lambda _: self._tell(), names="selection")
        for panel in panels:
            self.add(panel)

    def add(self, panel: Selecting) -> None:
        """Link one more panel; it follows what is chosen already."""
        self.panels.append(panel)
        panel.on_select(lambda choice: self.choose(choice, by=panel))
        for control in panel.controls.values():  # another picture may follow more, or less
            control.observe(lambda _: self._say(), names="value")
        self.bar.offer(panel.controls)
        self._tell()

    def choose(self, choice: Selection, *, by: Selecting | None = None) -> None:
        """Choose something more, see :meth:`ticdc_lab.figures.selecting.Selection.then`.

        Parameters
        ----------
        choice
            What a click means.
        by
            The panel it was clicked in, which is not filtered by it. Its controls' choice stays when it is
            again.
        """
        again = by is not None and choice == by.meant() and choice.chosen().items() <= self.selection.chosen().items()
        after = self.selection if again else self.selection.then(choice)
        for name in choice.chosen():
            self._from.pop(name, None)
            if by is not None:
                self._from[name] = by
        self.selection = after

    def clear(self) -> None:
        """Choose nothing."""
        self.selection = Selection()

    def _put(self, field: str, value: Any) -> None:
        """A value of a control of the bar."""
        self._from.pop(field, None)
        self.selection = replace(self.selection.wide(), **{field: value})

    def _tell(self) -> None:
        chosen = self.selection.chosen()
        self._from = {name: panel for name, panel in self._from.items() if name in chosen}
        self._telling, defects = True, list[Exception]()
        for panel in self.panels:
            own = [name for name, source in self._from.items() if source is panel]
            try:
                panel.select(replace(self.selection, **dict.fromkeys(own)))
            except Exception as error:  # the panel shows it; the others follow all the same
                defects.append(error)
        self._telling = False
        self._say()
        if defects:
            raise defects[0]

    def _say(self) -> None:
        if self._telling:  # once, when all have followed
            return
        followed: dict[str, frozenset[str]] = {}
        for panel in self.panels:
            followed[panel.name] = followed.get(panel.name, frozenset()) | panel.followed
        self.bar.say(self.selection, followed)


def linked(*panels: Selecting, selection: Selection | None = None) -> Linked:
    """Link panels, so that what is chosen in one figure filters the others.

    Parameters
    ----------
    panels
        Of logs or of simulators; each takes of a choice what it has controls for.
    selection
        What is chosen at the beginning.

    Returns
    -------
    Linked
        Display its ``bar`` above the panels.
    """
    return Linked(*panels, selection=selection)
