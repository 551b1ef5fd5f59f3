"""Figures on a slider, and the controls of a player."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ticdc_lab.figures.figure import Figure, frame
from ticdc_lab.figures.nested import Nested

# Slider, play and pause below a figure that plays its frames without a kernel.


AT_ONCE = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
"""How plotly goes to a frame that was asked for."""


def player_controls(
    names: Sequence[str], start: int, *, below_px: int, frame_ms: int, prefix: str, **of_slider: Any
) -> dict[str, Any]:
    """Give the controls as settings of a layout.

    ``names``: of the frames, which the slider shows. ``start``: the frame that is drawn first. ``below_px``: how far
    below the plot they lie. ``frame_ms``: how long each frame stays when it plays. ``prefix``: before the name of the
    frame that is shown. ``of_slider``: more settings of the slider.
    """
    steps = [{"method": "animate", "label": name, "args": [[name], AT_ONCE]} for name in names]
    slider = {
        "active": start, "steps": steps, "pad": {"t": below_px}, "x": 0.16, "len": 0.84, "y": 0,
        "currentvalue": {"prefix": prefix, "xanchor": "left"},
    }  # fmt: skip
    return {"sliders": [slider | of_slider], "updatemenus": [_buttons(below_px, frame_ms)]}


def _buttons(below_px: int, frame_ms: int) -> dict[str, Any]:
    playing = AT_ONCE | {"fromcurrent": True, "frame": {"duration": frame_ms, "redraw": True}}
    play = {"method": "animate", "label": "play", "args": [None, playing]}
    pause = {"method": "animate", "label": "pause", "args": [[None], AT_ONCE]}
    return {
        "type": "buttons", "direction": "left", "buttons": [play, pause], "x": 0, "xanchor": "left", "y": 0,
        "yanchor": "top", "pad": {"t": below_px + 22}, "showactive": False,
    }  # fmt: skip


# The static form of a panel: one figure per choice, on a slider that needs no kernel.


_SLIDER_PX = 70


def stepped(figures: Mapping[str, Figure], *, prefix: str, start: str | None = None) -> Figure:
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
    fig = Figure(figures[first])
    fig.frames = moving_frames(figures)
    bottom, height = int(fig.layout.margin.b), int(fig.layout.height) + _SLIDER_PX
    slider = _slider(names, names, first, prefix, bottom)
    return fig.update_layout(sliders=[slider], height=height, margin_b=bottom + _SLIDER_PX)


def stepped_by(figures: Mapping[str, Mapping[str, Figure]], *, prefix: str, start: str) -> Figure:
    """Put figures of the same kind on a slider, with a menu of their names.

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
    fig = Figure(figures[entry][begin[entry]])
    fig.frames = moving_frames({f"{e}/{step}": f for e, fs in figures.items() for step, f in fs.items()})
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
_OF_TRACES = ("x", "y", "z", "zmax", "name", "showlegend", "hovertemplate")


def _slider(words: Sequence[str], frames: Sequence[str], first: str, prefix: str, below_px: int) -> dict[str, object]:
    steps = [
        {"method": "animate", "label": word, "args": [[frame], AT_ONCE]}
        for word, frame in zip(words, frames, strict=True)
    ]
    return {
        "active": list(words).index(first), "currentvalue": {"prefix": prefix, "xanchor": "left"}, "steps": steps,
        "pad": {"t": below_px}, "y": 0, "len": 0.9,
    }  # fmt: skip


def _button(entry: str, fig: Figure, slider: dict[str, object]) -> dict[str, object]:
    """Shows a figure and brings its slider: a button can either animate or change the layout, not both."""
    data = {key: [trace.get(key) for trace in fig.data] for key in _OF_TRACES}
    layout = _flat(_moving(fig)) | {"sliders": [slider]}
    return {"method": "update", "label": entry, "args": [data, layout]}


def _flat(layout: dict[str, object]) -> dict[str, object]:
    """Nested settings by their dotted names, as an update of the layout wants them."""
    out: dict[str, object] = {}
    for key, value in layout.items():
        inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        out |= inner
    return out


def moving_frames(figures: Mapping[str, Figure]) -> list[Nested]:
    """Frames that show figures of the same traces: of each only what is not the same in all of them.

    All frames set the same: a browser goes from any of them to any other.
    """
    each = list(figures.values())
    traces = zip(*(_different([fig.data[i] for fig in each]) for i in range(len(each[0].data))), strict=True)
    layouts = _different([_moving(fig) for fig in each])
    return [
        frame(name, [Nested(trace, type=t.type) for trace, t in zip(data, each[0].data, strict=True)], layout=layout)
        for name, data, layout in zip(figures, traces, layouts, strict=True)
    ]


def _different(parts: Sequence[Nested]) -> list[Nested]:
    """Each without the settings in which all are alike."""
    out = [Nested() for _ in parts]
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part.get(name) for part in parts]
        if all(_is_alike(values[0], value) for value in values[1:]):
            continue
        nested = [value for value in values if isinstance(value, Nested)]
        if name != "meta" and len(nested) == len(values):
            values = list(_different(nested))
        for part, value in zip(out, values, strict=True):
            if value is not None:
                part[name] = value
    return out


def _is_alike(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if hasattr(a, "shape") or hasattr(b, "shape"):
        return np.array_equal(a, b)
    return bool(a == b)


def _moving(fig: Figure) -> Nested:
    """What of the layout differs from choice to choice; the theme and the size stay with the figure."""
    said = fig.layout
    moving = Nested(title=Nested(text=said.title.text)) if said.title else Nested()
    moving |= {key: said[key] for key in ("annotations", "shapes") if said.get(key)}
    for axis in (name for name in said if name.startswith(("xaxis", "yaxis"))):
        if "range" in said[axis]:
            moving[axis] = Nested({k: v for k, v in said[axis].items() if k in ("range", "dtick", "tickvals")})
    return moving
