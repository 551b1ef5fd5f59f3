"""What of a selection the controls of a panel can take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets.composed import Places

_CONTROLS = {
    "topic": ("topic",),
    "partition": ("partition",),
    "table": ("table", "tables"),
    "offset": ("first_offset",),
    "messages": ("messages",),
    "key": ("key",),
    "commit_ts": ("commit_ts", "ts"),
    "capture": ("capture",),
    "store": ("about",),
    "region": ("about",),
    "guarantee": ("guarantee",),
    "between_ms": ("time_range",),
}
"""Fields of a selection to the controls that stand for them."""


def taken(controls: Mapping[str, widgets.Widget], selection: Selection, origin_ms: int | None) -> dict[str, Any]:
    """Give the values that a selection means for controls, those that they can have.

    Parameters
    ----------
    controls
        Field name to widget.
    selection
        What was chosen.
    origin_ms
        Physical millisecond at which ``time_range``, in seconds, begins; None where there is no such control.

    Returns
    -------
    dict
        Field name to value.
    """
    chosen = selection.chosen()
    if selection.partition is not None and selection.offset is not None:
        chosen.setdefault("messages", ((selection.partition, selection.offset),))
    if "between_ms" in chosen:
        del_ms = chosen.pop("between_ms")
        if origin_ms is not None:
            chosen["between_ms"] = tuple((ms - origin_ms) / 1000 for ms in del_ms)
    found = {
        name: value
        for field, wanted in chosen.items()
        for name in _CONTROLS.get(field, ())
        if name in controls and (value := _fitting(controls[name], _asked(field, name, wanted))) is not None
    }
    if "messages" in found:  # they are found by their places, whatever else is known of them
        return {"messages": found["messages"]}
    if "key" in found and "table" in chosen and "table" not in found and "table" in controls:
        del found["key"]  # the row of a table that the panel does not have
    return found


def _asked(field: str, name: str, wanted: Any) -> Any:
    """A control ``about`` takes words: ``region 17``."""
    return f"{field} {wanted}" if name == "about" else wanted


def offered(controls: Mapping[str, widgets.Widget]) -> dict[str, list[Any]]:
    """Give the fields of a selection that controls offer values for, with these, but for those that mean all."""
    lists = widgets.Dropdown | widgets.SelectMultiple
    found: dict[str, list[Any]] = {}
    for field in _SHARED:
        for name in _CONTROLS[field]:
            if isinstance(controls.get(name), lists):
                found[field] = [v for v in _values(controls[name]) if v not in (None, "")]
    return found


def filters(controls: Mapping[str, widgets.Widget]) -> list[str]:
    """Controls that choose one value of a shared field or all, and nothing else: what a bar for all panels does too."""
    lists = {name: controls.get(name) for name in _SHARED}
    return [name for name, c in lists.items() if isinstance(c, widgets.Dropdown) and {None, ""} & {*_values(c)}]


_SHARED = ("partition", "table", "capture", "guarantee")
"""Fields that one chooses from a list."""


def _fitting(control: widgets.Widget, wanted: Any) -> Any:
    """The value as the control has it, None where it cannot have it."""
    if isinstance(control, widgets.SelectMultiple):
        return (wanted,) if wanted in _values(control) else None
    if isinstance(control, widgets.SelectionSlider):
        return max((v for v in _values(control) if v <= wanted), default=None)
    if isinstance(control, widgets.Dropdown):
        return wanted if wanted in _values(control) else None
    if isinstance(control, widgets.FloatRangeSlider):
        first, last = max(control.min, wanted[0]), min(control.max, wanted[1])
        return (first, last) if first <= last else None
    if isinstance(control, widgets.BoundedIntText | widgets.IntSlider):
        return wanted if isinstance(wanted, int) and control.min <= wanted <= control.max else None
    if isinstance(control, widgets.Text | widgets.Combobox):
        return str(wanted)
    return wanted if isinstance(control, Places) else None


def _values(control: widgets.Widget) -> list[Any]:
    return [o[1] if isinstance(o, tuple) else o for o in control.options]
