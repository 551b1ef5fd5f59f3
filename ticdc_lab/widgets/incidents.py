"""Faults on buttons: each press adds one, at a moment and a node that are chosen beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets
import traitlets


class Incidents(widgets.VBox):  # type: ignore[misc]
    """A button for each fault; the value is a tuple of (fault, node, moment in s), in the order of the presses.

    Parameters
    ----------
    faults
        Their names, which stand on the buttons.
    nodes
        Which one it befalls.
    until_s
        The end of the run.
    """

    value = traitlets.Tuple()

    def __init__(self, faults: Sequence[str], nodes: Sequence[str], *, until_s: float) -> None:
        self.node = widgets.Dropdown(options=list(nodes), description="worker")
        self.at_s = widgets.FloatSlider(
            value=round(until_s / 4, 1), min=0.0, max=until_s, step=0.1, description="when, s", continuous_update=False
        )
        self.buttons = {name: widgets.Button(description=name, layout={"width": "auto"}) for name in faults}
        self.undo = widgets.Button(icon="undo", tooltip="take the last one back", layout={"width": "38px"})
        self.clear = widgets.Button(icon="trash", tooltip="take all back", layout={"width": "38px"})
        self.told = widgets.Label()
        bar = widgets.HBox([self.node, self.at_s], layout={"flex_flow": "row wrap"})
        presses = widgets.HBox([*self.buttons.values(), self.undo, self.clear], layout={"flex_flow": "row wrap"})
        super().__init__([bar, presses, self.told])
        for name, button in self.buttons.items():
            button.on_click(partial(self._add, name))
        self.undo.on_click(lambda _: self.set_trait("value", self.value[:-1]))
        self.clear.on_click(lambda _: self.set_trait("value", ()))
        self.observe(self._tell, names="value")

    def _add(self, name: str, _: Any) -> None:
        self.value = (*self.value, (name, self.node.value, round(self.at_s.value, 3)))

    def _tell(self, change: Any) -> None:
        self.told.value = "; ".join(f"{at_s:g} s: {name} ({node})" for name, node, at_s in change["new"])
