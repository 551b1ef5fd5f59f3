"""Faults on buttons: each press adds one, at a moment and a node that are chosen beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets
import traitlets

from ticdc_lab.widgets import controls


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
        self.node = controls.choice("worker", nodes, tip="Whom the next fault befalls")
        self.at_s = controls.seconds("when, s", round(until_s / 4, 1), until_s, tip="When the next fault happens")
        self.buttons = {
            name: widgets.Button(description=name, tooltip=f"add: {name}", layout={"width": "auto"}) for name in faults
        }
        self.undo = widgets.Button(icon="undo", tooltip="take the last one back", layout={"width": "38px"})
        self.clear = widgets.Button(icon="trash", tooltip="take all back", layout={"width": "38px"})
        self.told = widgets.Label()
        self.expects = f"triples of fault ({', '.join(faults)}), worker and second up to {until_s:g}"
        self._nodes, self._until_s = tuple(nodes), until_s
        bar = widgets.HBox([self.node, self.at_s], layout={"flex_flow": "row wrap"})
        presses = widgets.HBox([*self.buttons.values(), self.undo, self.clear], layout={"flex_flow": "row wrap"})
        super().__init__([bar, presses, self.told])
        for name, button in self.buttons.items():
            button.on_click(partial(self._add, name))
        self.undo.on_click(lambda _: self.set_trait("value", self.value[:-1]))
        self.clear.on_click(lambda _: self.set_trait("value", ()))
        self.observe(self._tell, names="value")

    @traitlets.validate("value")
    def _known(self, proposal: Any) -> tuple[tuple[str, str, float], ...]:
        incidents: tuple[tuple[str, str, float], ...] = proposal["value"]
        for fault, node, at_s in incidents:
            if fault not in self.buttons or node not in self._nodes or not 0 <= at_s <= self._until_s:
                raise traitlets.TraitError(self.expects)
        return incidents

    def _add(self, name: str, _: Any) -> None:
        self.value = (*self.value, (name, self.node.value, round(self.at_s.value, 3)))

    def _tell(self, change: Any) -> None:
        self.told.value = "; ".join(f"{at_s:g} s: {name} ({node})" for name, node, at_s in change["new"])
