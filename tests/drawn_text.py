"""What a figure draws, as text, and after a frame of its slider."""

from __future__ import annotations

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.nested import Nested, put


def drawn_text(fig: Figure) -> str:
    """All text of a figure as plotly receives it, except for what a click means, which is not drawn."""
    return str(fig.go().update_traces(meta=None).to_plotly_json())


def after(fig: Figure, frame: Nested) -> Figure:
    """The figure as a browser shows it when it has gone to a frame."""
    shown = Figure(fig)
    for trace, change in zip(shown.data, frame.data, strict=True):
        put(trace, change)
    put(shown.layout, frame.layout or {})
    return shown
