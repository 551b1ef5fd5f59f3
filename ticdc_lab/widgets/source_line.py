"""The one line above the tabs: which log was read, what it is, and the way to another."""

from __future__ import annotations

import html
from collections.abc import Callable

import ipywidgets as widgets


class SourceLine(widgets.HBox):  # type: ignore[misc]
    """Says what is shown below; hidden until something was read.

    Parameters
    ----------
    other
        Called when somebody wants to look into another source.
    beside
        What stands at its end.
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
        """Name the log that was read, and say how far it is complete; what it holds is the first tab's answer."""
        name = source.rstrip("/").rsplit("/", 1)[-1] or source
        self.line.value = (
            f'<span role="status" title="{html.escape(source)}"><b>{html.escape(name)}</b> {html.escape(state)}</span>'
        )
        self.layout.display = None
