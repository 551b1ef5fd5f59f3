"""What of a selection the controls of a panel can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from ticdc_lab.events.ddl import literal
from ticdc_lab.events.tso import compose
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
"""Fields of a selection to their controls."""


def taken(controls: Mapping[str, widgets.Widget], selection: Selection, origin_ms: int | None) -> dict[str, Any]:
    """Give the values that a selection means for controls, those that they can have.

    ``controls``: field name to widget. ``selection``: what was chosen. ``origin_ms``: physical millisecond at which
    ``time_range``, in seconds, begins; None where there is no such control. Returns: field name to value.
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
    if "messages" in found:  # they are found by their places, not by anything else
        return {name: found[name] for name in ("messages", "topic") if name in found}
    if "key" in found and "table" in chosen and "table" not in found and "table" in controls:
        del found["key"]  # the row of a table that the panel does not have
    return found


def _asked(field: str, name: str, wanted: Any) -> Any:
    """A control ``about`` takes words: ``region 17``."""
    return f"{field} {wanted}" if name == "about" else wanted


def offered(controls: Mapping[str, widgets.Widget]) -> dict[str, list[Any]]:
    """Give the fields of a selection that controls offer values for, with these, without the ones that mean all."""
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


def code_of(chosen: Selection) -> str:
    """The Python that shows what was chosen; empty for what is none of a log.

    Examples
    --------
    >>> print(code_of(Selection(partition=3, offset=7)))
    log.sql('SELECT * FROM events WHERE partition = 3 AND "offset" = 7')
    >>> print(code_of(Selection(commit_ts=470603993791332352)))
    log.transaction(470603993791332352)
    """
    if chosen.capture is not None or chosen.store is not None or chosen.region is not None:
        return ""
    if chosen.guarantee is not None and chosen.messages is None:
        return f"log.sql({f'SELECT * FROM findings WHERE guarantee = {literal(chosen.guarantee)}'!r})"
    if chosen.key is not None and chosen.table is not None and chosen.messages is None:
        return f"log.row({chosen.table!r}, {chosen.key!r})"
    if chosen.commit_ts is not None and chosen.offset is None:
        return f"log.transaction({chosen.commit_ts})"
    conditions = _conditions(chosen)
    query = f"SELECT * FROM events WHERE {' AND '.join(conditions)}"
    return f"log.sql({query!r})" if conditions else ""


def _conditions(chosen: Selection) -> Sequence[str]:
    found = [] if chosen.topic is None else [f"topic = {literal(chosen.topic)}"]
    if chosen.messages is not None:
        places = ", ".join(f"({p}, {o})" for p, o in chosen.messages)
        return [*found, f'(partition, "offset") IN ({places})']
    if chosen.partition is not None:
        found.append(f"partition = {chosen.partition}")
    if chosen.offset is not None:
        found.append(f'"offset" = {chosen.offset}')
    elif chosen.table is not None:
        found.append(f"concat(schema_name, '.', table_name) = {literal(chosen.table)}")
    if chosen.between_ms is not None:
        first, last = chosen.between_ms
        found.append(f"commit_ts BETWEEN {compose(first)} AND {compose(last + 1) - 1}")
    return found
