"""The static form of a panel: one figure per choice, on a slider that needs no kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from ticdc_lab.figures.player_controls import AT_ONCE

_SLIDER_PX = 70


def stepped(figures: Mapping[str, go.Figure], *, prefix: str, start: str | None = None) -> go.Figure:
    """Put figures of the same kind on a slider, with plotly's frames.

    Parameters
    ----------
    figures
        Words of the choice to figure; all have the same number of traces.
    prefix
        What is chosen, before the words, with the space between: ``"partitions: "``.
    start
        The choice to begin with; by default the first.
    """
    names = list(figures)
    first = names[0] if start is None else start
    fig = go.Figure(figures[first])
    fig.frames = [go.Frame(name=name, data=f.data, layout=_moving(f)) for name, f in figures.items()]
    bottom, height = int(fig.layout.margin.b), int(fig.layout.height) + _SLIDER_PX
    slider = _slider(names, names, first, prefix, bottom)
    return fig.update_layout(sliders=[slider], height=height, margin_b=bottom + _SLIDER_PX)


def stepped_by(figures: Mapping[str, Mapping[str, go.Figure]], *, prefix: str, start: str) -> go.Figure:
    """Put figures of the same kind on a slider, with a menu that says of what.

    Parameters
    ----------
    figures
        Entry of the menu to words of the slider to figure; all have the same traces.
    prefix
        As for :func:`stepped`.
    start
        Where the slider begins, for each entry of the menu that has it; else at its first.
    """
    begin = {entry: start if start in steps else next(iter(steps)) for entry, steps in figures.items()}
    entry = next(iter(figures))
    fig = go.Figure(figures[entry][begin[entry]])
    fig.frames = [
        go.Frame(name=f"{e}/{step}", data=f.data, layout=_moving(f))
        for e, fs in figures.items()
        for step, f in fs.items()
    ]
    bottom, height = int(fig.layout.margin.b), int(fig.layout.height) + _SLIDER_PX + _MENU_PX
    sliders = {
        e: _slider(list(fs), [f"{e}/{step}" for step in fs], begin[e], prefix, bottom) for e, fs in figures.items()
    }
    buttons = [_button(e, fs[begin[e]], sliders[e]) for e, fs in figures.items()]
    top = int(fig.layout.margin.t)
    menu = {
        "buttons": buttons, "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "pad": {"b": 34},
        "direction": "down", "showactive": True,
    }  # fmt: skip
    return fig.update_layout(
        sliders=[sliders[entry]], updatemenus=[menu], height=height, margin_b=bottom + _SLIDER_PX,
        margin_t=top + _MENU_PX,
    )  # fmt: skip


_MENU_PX = 48


def _slider(words: Sequence[str], frames: Sequence[str], first: str, prefix: str, below_px: int) -> dict[str, object]:
    steps = [
        {"method": "animate", "label": word, "args": [[frame], AT_ONCE]}
        for word, frame in zip(words, frames, strict=True)
    ]
    return {
        "active": list(words).index(first),
        "currentvalue": {"prefix": prefix, "xanchor": "left"},
        "steps": steps,
        "pad": {"t": below_px},
        "y": 0,
        "len": 0.9,
    }


def _button(entry: str, fig: go.Figure, slider: dict[str, object]) -> dict[str, object]:
    """Shows a figure and brings its slider: a button can either animate or change the layout, not both."""
    data = {key: [_plain(trace, key) for trace in fig.data] for key in ("x", "y", "z", "zmax")}
    layout = _flat(_moving(fig).to_plotly_json()) | {"sliders": [slider]}
    return {"method": "update", "label": entry, "args": [data, layout]}


def _plain(trace: go.Figure, key: str) -> object:
    value: Any = trace[key] if key in trace else None  # noqa: SIM401 (a trace has no get)
    return value.tolist() if hasattr(value, "tolist") else value


def _flat(layout: dict[str, object]) -> dict[str, object]:
    """Nested settings by their dotted names, as an update of the layout wants them."""
    out: dict[str, object] = {}
    for key, value in layout.items():
        inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        out |= inner
    return out


def _moving(fig: go.Figure) -> go.Layout:
    """What of the layout differs from choice to choice; the theme and the size stay with the figure."""
    said = fig.layout
    moving: dict[str, object] = {
        "title": {"text": said.title.text},
        "annotations": said.annotations,
        "shapes": said.shapes,
    }
    for axis in (name for name in said if name.startswith(("xaxis", "yaxis"))):
        if said[axis].range is not None:
            given = {key: said[axis][key] for key in ("range", "dtick", "tickvals") if said[axis][key] is not None}
            moving[axis] = given
    return go.Layout(**moving)
