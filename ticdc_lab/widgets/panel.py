"""Controls, a value, a figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

import ipywidgets as widgets
import plotly.graph_objects as go

View = TypeVar("View")
"""A frozen dataclass whose fields are the controls' names."""

_MIME = "application/vnd.plotly.v1+json"


class Panel(Generic[View]):
    """Redraws a figure whenever a control changes.

    Parameters
    ----------
    view
        The dataclass of the value; one field for each control.
    controls
        Field name to widget, in the order of the control bar: source, time range, tables, then what is special.
    draw
        From a value to a figure; runs no Spark job.

    Notes
    -----
    Display :attr:`widget`. :attr:`value` can be set and read, and :attr:`figure` read, without a browser.
    """

    def __init__(
        self, view: type[View], *, controls: Mapping[str, widgets.Widget], draw: Callable[[View], go.Figure]
    ) -> None:
        assert [f.name for f in fields(view)] == list(controls)  # type: ignore[arg-type]
        self._view, self.controls, self._draw, self._quiet = view, dict(controls), draw, False
        self.output = widgets.Output()
        bar = widgets.HBox(list(controls.values()), layout=widgets.Layout(flex_flow="row wrap", align_items="flex-end"))
        self.widget = widgets.VBox([bar, self.output])
        for control in controls.values():
            control.observe(self._changed, names="value")
        self._redraw()

    @property
    def value(self) -> View:
        """What the controls say."""
        return self._view(**{name: control.value for name, control in self.controls.items()})

    @value.setter
    def value(self, new: View) -> None:
        self._quiet = True
        try:
            for name, control in self.controls.items():
                control.value = getattr(new, name)
        finally:
            self._quiet = False
        self._redraw()

    def _changed(self, _: Any) -> None:
        if not self._quiet:
            self._redraw()

    def _redraw(self) -> None:
        self.figure = self._draw(self.value)
        data = {_MIME: json.loads(self.figure.to_json()), "text/plain": self.figure.layout.meta["finding"]}
        self.output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.widget._repr_mimebundle_(**kwargs)
