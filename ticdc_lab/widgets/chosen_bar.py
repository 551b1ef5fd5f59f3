"""The line that says what is chosen in a group of panels, with controls to choose and to clear."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets

from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets.choosing import offered
from ticdc_lab.widgets.controls import choice

_NOTHING = "Nothing is chosen: click on a mark of a figure, or choose here."
_ANY = "any"


class ChosenBar(widgets.VBox):  # type: ignore[misc]
    """Says what is chosen and who follows it.

    Parameters
    ----------
    put
        Called with a field of the selection and its new value, when somebody chooses here.
    clear
        Called when somebody clears.
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
        super().__init__([self._row, widgets.HBox([self.line, self.button], layout={"align_items": "center"})])
        self.add_class("ticdc-chosen")

    def offer(self, controls: Mapping[str, widgets.Widget]) -> None:
        """Take over what the controls of a panel let one choose."""
        for field, values in offered(controls).items():
            self._options.setdefault(field, {}).update(dict.fromkeys(values))
            options = sorted(self._options[field], key=lambda v: (isinstance(v, str), v))
            chooser = self._choosers.get(field) or self._chooser(field)
            self._quiet = True
            chooser.options = [(_ANY, None), *[(str(v), v) for v in options]]
            self._quiet = False

    def say(self, selection: Selection, followed: Mapping[str, frozenset[str]]) -> None:
        """Show what is chosen, and by which controls each panel follows it."""
        words = selection.in_words()
        self.button.disabled = not words
        by = [f"{name} by {_listed(controls)}" for name, controls in followed.items() if controls]
        none = [name for name, controls in followed.items() if not controls]
        who = "; ".join([*by, *([f"not {', '.join(none)}"] if none and by else [])]) or "no panel can follow it"
        said = f"<b>Chosen: {html.escape(words)}</b> <small>({html.escape(who)})</small>" if words else _NOTHING
        self.line.value = f'<span role="status" aria-live="polite">{said}</span>'
        self._quiet = True
        for field, chooser in self._choosers.items():
            value = getattr(selection, field)
            chooser.value = value if any(value == v for _, v in chooser.options) else None
        self._quiet = False

    def _chooser(self, field: str) -> widgets.Dropdown:
        chooser = choice(field, [(_ANY, None)], tip=f"choose a {field} everywhere")
        chooser.observe(lambda change: self._quiet or self._put(field, change["new"]), names="value")
        self._choosers[field] = chooser
        self._row.children = (*self._row.children, chooser)
        return chooser


def _listed(controls: frozenset[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in sorted(controls))
