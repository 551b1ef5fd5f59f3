"""One plotly figure in a live notebook: drawn in place, offline, in the page's theme."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.look import CONFIG, template
from ticdc_lab.figures.nested import as_json
from ticdc_lab.figures.page_scripts import COPY_JS, FIT_JS
from ticdc_lab.figures.plotly_js import packed_library

_HERE = Path(__file__).parent
_PAGE_LOOKS = "JPY_SESSION_NAME"
"""Jupyter's server sets it for kernels of pages: what runs a notebook without one keeps no plotly.js in its state."""


class FigureView(anywidget.AnyWidget):
    """Shows a figure, what is under way, and what is wrong.

    The page gets plotly.js from the kernel once, without network: the first view of a kernel brings it along, and
    another one asks for it where that came too early. Every later view finds it there.

    ``figure_json``: the figure without its template, as plotly's JSON. ``templates``, ``config``: the templates of both
    themes, and plotly's settings. ``height``: least height of the figure's box, pixels; it keeps it while something is
    under way. ``description``: the finding, which screen readers read. ``busy``: what is under way; empty when nothing
    is. ``status``: what was done for the figure, or why nothing was. ``problem``: what is wrong: ``message``, ``hint``,
    and of a defect ``trace``; empty when nothing is. ``stale``: whether the figure is not of the controls' values; it
    is greyed then. ``keeps_state``: whether there are buttons to save and to open the controls' values. ``clicked``:
    the point that was clicked: ``curve``, ``point`` (of a heat map counted row by row), of a table ``column``, and
    ``n``, which counts, so that the same point can be clicked twice. ``library``: plotly.js, packed, until the page has
    taken it.
    """

    _esm = FIT_JS + COPY_JS + (_HERE / "figure_view.js").read_text(encoding="utf-8")
    _css = _HERE / "figure_view.css"

    figure_json = traitlets.Unicode().tag(sync=True)
    templates = traitlets.Dict().tag(sync=True)
    config = traitlets.Dict().tag(sync=True)
    height = traitlets.Int(420).tag(sync=True)
    description = traitlets.Unicode().tag(sync=True)
    busy = traitlets.Unicode().tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)
    problem = traitlets.Dict().tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    keeps_state = traitlets.Bool(False).tag(sync=True)
    clicked = traitlets.Dict().tag(sync=True)
    library = traitlets.Bytes(None, allow_none=True).tag(sync=True)

    _is_first = True

    def __init__(self, fig: Figure | None = None, **traits: Any) -> None:
        brings = FigureView._is_first and _PAGE_LOOKS in os.environ
        FigureView._is_first = FigureView._is_first and not brings
        super().__init__(
            templates=_templates(),
            config={**CONFIG, "responsive": False},
            library=packed_library() if brings else None,
            **traits,
        )
        self._heard: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "plotly.js": lambda _: self.send({"kind": "plotly.js"}, buffers=[packed_library()])
        }
        self.on_msg(self._hear)
        if fig is not None:
            self.show(fig)

    def show(self, fig: Figure) -> None:
        """Draw a figure in the place of the last one.

        ``fig``: a figure of :mod:`ticdc_lab.figures`; the finding in its ``meta`` becomes the description.
        """
        layout = {k: v for k, v in fig.layout.items() if k != "template"}
        meta = fig.layout.meta
        with self.hold_sync():
            self.figure_json = as_json({**fig.to_dict(), "layout": layout})
            self.description = str(meta.get("finding", "")) if isinstance(meta, dict) else ""

    def on(self, kind: str, callback: Callable[[Mapping[str, Any]], None]) -> None:
        """Call something when the page sends a message: ``cancel``, ``save``, or ``open`` with ``text``."""
        self._heard[kind] = callback

    def _hear(self, _: Any, message: Mapping[str, Any], buffers: Any) -> None:
        self._heard.get(message["kind"], _nothing)(message)


def _nothing(_: Mapping[str, Any]) -> None:
    """A message without a waiter."""


@cache
def _templates() -> dict[str, Any]:
    return {theme: template(theme) for theme in ("light", "dark")}
