"""The static form of a panel: one figure per choice, on a slider that needs no kernel."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

_SLIDER_PX = 70


def stepped(figures: Mapping[str, go.Figure], *, prefix: str, start: str | None = None) -> go.Figure:
    """Put figures of the same kind on a slider, with plotly's frames.

    Parameters
    ----------
    figures
        Words of the choice to figure; all have the same number of traces.
    prefix
        What is chosen, before the words: ``partitions: ``.
    start
        The choice to begin with; by default the first.
    """
    names = list(figures)
    first = names[0] if start is None else start
    fig = go.Figure(figures[first])
    fig.frames = [go.Frame(name=name, data=f.data, layout=_moving(f)) for name, f in figures.items()]
    at_once = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    steps = [{"method": "animate", "label": name, "args": [[name], at_once]} for name in names]
    bottom = int(fig.layout.margin.b)
    height = int(fig.layout.height) + _SLIDER_PX
    slider = {
        "active": names.index(first),
        "currentvalue": {"prefix": prefix, "xanchor": "left"},
        "steps": steps,
        "pad": {"t": bottom},
        "y": 0,
        "len": 0.9,
    }
    return fig.update_layout(sliders=[slider], height=height, margin_b=bottom + _SLIDER_PX)


def _moving(fig: go.Figure) -> go.Layout:
    """What of the layout differs from choice to choice; the theme and the size stay with the figure."""
    said = fig.layout
    moving: dict[str, object] = {
        "title": {"text": said.title.text},
        "annotations": said.annotations,
        "shapes": said.shapes,
    }
    for axis in ("xaxis", "yaxis"):
        if said[axis].range is not None:
            moving[axis] = {"range": said[axis].range, "dtick": said[axis].dtick}
    return go.Layout(**moving)
