"""The bar of controls above a figure: the same order, widths and marks everywhere."""

from __future__ import annotations

import html
from collections.abc import Mapping

import ipywidgets as widgets

from ticdc_lab.widgets.problem import Problem


class Bar(widgets.HBox):  # type: ignore[misc]
    """Controls in a row that wraps; what is wrong with one is said below it.

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
            self._words[name].add_class("ticdc-wrong-words")

    def mark(self, problem: Problem | None) -> None:
        """Say at its control what is wrong, and nothing at all others."""
        for name, words in self._words.items():
            wrong = problem is not None and problem.control == name
            words.value = _said(problem) if problem is not None and wrong else ""
            words.layout.display = None if wrong else "none"
            (self._boxes[name].add_class if wrong else self._boxes[name].remove_class)("ticdc-wrong")


def _said(problem: Problem) -> str:
    hint = f"<br><span>{html.escape(problem.hint)}</span>" if problem.hint else ""
    return f"<b>{html.escape(problem.message)}</b>{hint}"
