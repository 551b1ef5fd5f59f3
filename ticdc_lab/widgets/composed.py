"""Controls made of several widgets that have one value, as :class:`ticdc_lab.widgets.panel.Panel` wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import traitlets

SPEEDS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
"""Messages a second that a slider of :class:`Speeds` offers."""


class Speeds(widgets.VBox):  # type: ignore[misc]
    """One slider for each listener; the value is a tuple of messages a second.

    Parameters
    ----------
    names
        What the sliders are called.
    start
        Where all begin, one of :data:`SPEEDS`.
    """

    value = traitlets.Tuple()

    def __init__(self, names: Sequence[str], *, start: int) -> None:
        self.sliders = [
            widgets.SelectionSlider(options=SPEEDS, value=start, description=name, continuous_update=False)
            for name in names
        ]
        super().__init__(self.sliders, value=(start,) * len(names))
        for slider in self.sliders:
            slider.observe(self._read, names="value")
        self.observe(self._write, names="value")

    def _read(self, _: Any) -> None:
        self.value = tuple(s.value for s in self.sliders)

    def _write(self, change: Any) -> None:
        with self.hold_trait_notifications():
            for slider, speed in zip(self.sliders, change["new"], strict=True):
                slider.value = speed


class Player(widgets.HBox):  # type: ignore[misc]
    """Play, pause, one step back and forth, and a slider; the value is the number of the step.

    Parameters
    ----------
    most
        The last step.
    interval_ms
        Between two steps while it plays.
    """

    value = traitlets.Int(0)

    def __init__(self, most: int, *, interval_ms: int = 400) -> None:
        self.play = widgets.Play(value=0, min=0, max=most, step=1, interval=interval_ms)
        self.slider = widgets.IntSlider(value=0, min=0, max=most, description="step")
        self.back = widgets.Button(icon="step-backward", tooltip="one step back", layout={"width": "38px"})
        self.forth = widgets.Button(icon="step-forward", tooltip="one step on", layout={"width": "38px"})
        super().__init__([self.play, self.back, self.forth, self.slider])
        widgets.link((self.play, "value"), (self.slider, "value"))
        widgets.link((self.slider, "value"), (self, "value"))
        self.back.on_click(lambda _: self._move(-1))
        self.forth.on_click(lambda _: self._move(1))

    def _move(self, by: int) -> None:
        self.slider.value = min(self.slider.max, max(0, self.slider.value + by))
