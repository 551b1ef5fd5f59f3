"""Slider, play and pause below a figure that plays its frames without a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

AT_ONCE = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
"""How plotly goes to a frame that was asked for."""


def player_controls(
    names: Sequence[str], start: int, *, below_px: int, frame_ms: int, prefix: str, **of_slider: Any
) -> dict[str, Any]:
    """Give the controls as settings of a layout.

    Parameters
    ----------
    names
        Of the frames, which the slider shows.
    start
        The frame that is drawn first.
    below_px
        How far below the plot they lie.
    frame_ms
        How long each frame stays when it plays.
    prefix
        Before the name of the frame that is shown.
    of_slider
        More settings of the slider.
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
