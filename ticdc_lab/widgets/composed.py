"""Controls made of several widgets that have one value, as :class:`ticdc_lab.widgets.panel.Panel` wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import traitlets

from ticdc_lab.widgets import controls

SPEEDS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
"""Messages a second that a slider of :class:`Speeds` offers."""

_TIP = "How many messages a second this listener reads"


class Speeds(widgets.VBox):  # type: ignore[misc]
    """One slider for each listener; the value is a tuple of messages a second.

    ``names``: what the sliders are called. ``start``: where all begin, one of :data:`SPEEDS`.
    """

    value = traitlets.Tuple()
    expects = f"a number for each listener, each one of {', '.join(map(str, SPEEDS))}"

    def __init__(self, names: Sequence[str], *, start: int) -> None:
        options = [(f"{s:,}/s", s) for s in SPEEDS]
        self.sliders = [controls.moments(name, options, tip=_TIP, width=controls.NARROW) for name in names]
        for slider in self.sliders:
            slider.value = start
        super().__init__(self.sliders, value=(start,) * len(names))
        for slider in self.sliders:
            slider.observe(self._read, names="value")
        self.observe(self._write, names="value")

    @traitlets.validate("value")
    def _one_each(self, proposal: Any) -> tuple[int, ...]:
        speeds: tuple[int, ...] = proposal["value"]
        if len(speeds) != len(self.sliders) or not set(speeds) <= set(SPEEDS):
            raise traitlets.TraitError(self.expects)
        return speeds

    def _read(self, _: Any) -> None:
        self.value = tuple(s.value for s in self.sliders)

    def _write(self, change: Any) -> None:
        with self.hold_trait_notifications():
            for slider, speed in zip(self.sliders, change["new"], strict=True):
                slider.value = speed


class Places(widgets.HBox):  # type: ignore[misc]
    """Messages that were chosen elsewhere and can be let go; the value has the partition and offset of each."""

    value = traitlets.Tuple()
    expects = "a pair of partition and offset for each message"

    @traitlets.validate("value")
    def _pairs(self, proposal: Any) -> tuple[tuple[int, int], ...]:
        places: tuple[tuple[int, int], ...] = proposal["value"]
        if not all(isinstance(p, tuple) and len(p) == 2 and all(isinstance(n, int) for n in p) for p in places):
            raise traitlets.TraitError(self.expects)
        return places

    def __init__(self) -> None:
        self._said = widgets.Label()
        self._all = widgets.Button(description="show all", tooltip="let the chosen messages go")
        self._all.on_click(lambda _: self.set_trait("value", ()))
        super().__init__([self._said, self._all])
        self.observe(lambda _: self._tell(), names="value")
        self._tell()

    def _tell(self) -> None:
        n = len(self.value)
        self._said.value = f"around {n} chosen message{'' if n == 1 else 's'}"
        self.layout.display = None if n else "none"


class Numbered(widgets.HBox):  # type: ignore[misc]
    """A list of lines with one chosen; the value is its number.

    ``lines``: text and number of each; at least one. ``rows``: how many are seen at once. ``go``: what stands on a
    button for the chosen line.
    """

    value = traitlets.Int()
    expects = "the number of a line in the list"

    def __init__(self, lines: Sequence[tuple[str, int]], *, rows: int, description: str, go: str) -> None:
        layout = {"flex": "1 1 520px", "width": "auto", "min_width": "0"}
        self._quiet = False
        self.list = widgets.Select(options=lines, rows=rows, description=description, layout=layout)
        self.button = widgets.Button(description=go, tooltip=f"go to {go}")
        wraps = {"width": "100%", "flex_flow": "row wrap"}
        super().__init__([self.list, self.button], value=lines[0][1], layout=wraps)
        self.add_class("ticdc-whole-row")
        self.list.observe(self._chosen, names="value")
        self.observe(lambda change: self._show(change["new"]), names="value")

    @property
    def numbers(self) -> list[int]:
        """Of the lines."""
        return [number for _, number in self.list.options]

    def narrow(self, lines: Sequence[tuple[str, int]]) -> None:
        """List others; the chosen one stays chosen where it is among them, else the first is."""
        self._quiet = True
        self.list.options = lines
        self._quiet = False
        chosen = self.value if self.value in self.numbers else lines[0][1]
        self._show(chosen)
        self.value = chosen

    def _chosen(self, change: Any) -> None:
        if not self._quiet:
            self.value = change["new"]

    def _show(self, number: int) -> None:
        if number in self.numbers:
            self._quiet = True
            self.list.value = number
            self._quiet = False

    @traitlets.validate("value")
    def _listed(self, proposal: Any) -> int:
        if proposal["value"] not in self.numbers:
            raise traitlets.TraitError("there is no such line")
        return int(proposal["value"])


class Player(widgets.HBox):  # type: ignore[misc]
    """Play, pause, one step back and forth, and a slider; the value is the number of the step.

    ``most``: the last step. ``interval_ms``: between two steps while it plays.
    """

    value = traitlets.Int(0)

    def __init__(self, most: int, *, interval_ms: int = 400) -> None:
        self.min, self.max = 0, most
        self.play = widgets.Play(value=0, min=0, max=most, step=1, interval=interval_ms)
        self.slider = controls.slider("step", 0, 0, most, tip="A moment of the run; 0 is its beginning")
        self.slider.style.description_width = "40px"
        self.slider.layout.width = "330px"
        self.back = widgets.Button(icon="step-backward", tooltip="one step back", layout={"width": "38px"})
        self.forth = widgets.Button(icon="step-forward", tooltip="one step on", layout={"width": "38px"})
        layout = {"width": controls.WIDE, "max_width": controls.WHOLE}
        super().__init__([self.play, self.back, self.forth, self.slider], layout=layout)
        widgets.link((self.play, "value"), (self.slider, "value"))
        widgets.link((self.slider, "value"), (self, "value"))
        self.back.on_click(lambda _: self._move(-1))
        self.forth.on_click(lambda _: self._move(1))

    def _move(self, by: int) -> None:
        self.slider.value = min(self.slider.max, max(0, self.slider.value + by))
