"""Controls as all panels have them: the same labels, widths and tooltips, and each usable with the keyboard alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import traitlets

NARROW, WIDE = "320px", "654px"
"""One and two columns of the bar."""

WHOLE = "calc(100% - 4px)"
"""As wide as its place: a widget has 2 pixels of margin on both sides, and what is wider loses its right edge."""

_LABEL = {"description_width": "96px"}
_MOST_SEED = 1 << 31
_STEPS = 200


class OneOf(widgets.Dropdown):  # type: ignore[misc]
    """A list whose options may have the value None, as *all* does; ipywidgets would show nothing then."""

    @traitlets.observe("value")
    def _propagate_value(self, change: Any) -> None:
        if change["new"] is None and None in self._options_values:
            self.index = self._options_values.index(None)
        else:
            super()._propagate_value(change)


def choice(
    label: str, options: Sequence[Any], *, value: Any = None, tip: str = "", width: str = NARROW
) -> widgets.Dropdown:
    """One of some options; each may be a pair of text and value. It begins with the first unless ``value`` is given."""
    more = {} if value is None else {"value": value}
    return OneOf(options=list(options), **more, **_looks(label, tip, width))


def picture(pictures: Mapping[str, Any]) -> widgets.Dropdown:
    """Which figure is drawn; the last control of every bar."""
    return choice("picture", list(pictures), tip="Which figure is drawn of all this")


def several(
    label: str, options: Sequence[str], *, value: Sequence[str] = (), tip: str = "", rows: int = 4, width: str = NARROW
) -> widgets.SelectMultiple:
    """Any number of options; with the keyboard, space takes one and control+space one more."""
    return widgets.SelectMultiple(options=list(options), value=tuple(value), rows=rows, **_looks(label, tip, width))


def tables(names: Sequence[str]) -> widgets.SelectMultiple:
    """Tables to look at; none chosen means all."""
    return several("tables", names, tip="Only these tables; none chosen means all (control and a click take one more)")


def slider(label: str, value: int, least: int, most: int, *, tip: str = "") -> widgets.IntSlider:
    """A whole number."""
    return widgets.IntSlider(value=value, min=least, max=most, continuous_update=False, **_looks(label, tip, NARROW))


def seconds(label: str, value: float, most: float, *, step: float = 0.1, tip: str = "") -> widgets.FloatSlider:
    """A moment or a length, s."""
    return widgets.FloatSlider(
        value=value, min=0.0, max=most, step=step, readout_format=".1f", continuous_update=False,
        **_looks(label, tip, NARROW),
    )  # fmt: skip


class Span(widgets.FloatRangeSlider):  # type: ignore[misc]
    """From where to where; what was chosen elsewhere is kept to the millisecond, where a hand moves by 200 steps."""

    @traitlets.observe("value")
    def _exactly(self, change: Any) -> None:
        coarse = (self.max - self.min) / _STEPS
        ends = (v for v in change["new"] if v not in (self.min, self.max))
        on_step = all(abs((v - self.min) / coarse - round((v - self.min) / coarse)) < _ON_STEP for v in ends)
        self.step = coarse if on_step else min(coarse, _MS)


_ON_STEP, _MS = 1e-6, 0.001


def span(
    label: str,
    most: float,
    *,
    value: tuple[float, float] | None = None,
    form: str = ".3f",
    tip: str = "",
    width: str = WIDE,
) -> Span:
    """From where to where, from 0 on; the whole unless ``value`` is given."""
    return Span(
        value=value or (0.0, most), min=0.0, max=most, step=most / _STEPS, readout_format=form,
        continuous_update=False, **_looks(label, tip, width),
    )  # fmt: skip


def time_range(length_s: float) -> Span:
    """Seconds since the first event."""
    return span("time, s", length_s, tip="Seconds since the first event; only what lies between is drawn")


def number(label: str, value: int, least: int, most: int, *, step: int = 1, tip: str = "") -> widgets.BoundedIntText:
    """A whole number to type."""
    return widgets.BoundedIntText(value=value, min=least, max=most, step=step, **_looks(label, tip, NARROW))


def seed(value: int = 0) -> widgets.BoundedIntText:
    """The only source of chance."""
    return number("seed", value, 0, _MOST_SEED, tip="The only source of chance: the same seed gives the same run")


def line(label: str, *, placeholder: str = "", tip: str = "", width: str = NARROW) -> widgets.Text:
    """A line of text, taken when Enter is pressed or the field is left."""
    return widgets.Text(value="", placeholder=placeholder, continuous_update=False, **_looks(label, tip, width))


def lines(label: str, *, placeholder: str, tip: str = "", rows: int = 3) -> widgets.Textarea:
    """Some lines of text, taken when the field is left."""
    return widgets.Textarea(
        value="", placeholder=placeholder, rows=rows, continuous_update=False, **_looks(label, tip, WIDE)
    )


def suggested(label: str, options: Sequence[str], *, tip: str = "", width: str = WIDE) -> widgets.Combobox:
    """A line of text with suggestions."""
    first = next(iter(options), "")
    return widgets.Combobox(
        options=list(options), value=first, continuous_update=False, **_looks(label, tip, width)
    )  # fmt: skip


def moments(
    label: str, options: Sequence[tuple[str, Any]], *, tip: str = "", width: str = WIDE
) -> widgets.SelectionSlider:
    """One of many moments in their order; it begins at the last."""
    made = widgets.SelectionSlider(
        options=list(options), value=options[-1][1], continuous_update=False, **_looks(label, tip, width)
    )  # fmt: skip
    made.add_class("ticdc-listed")  # what is beside it cannot be typed into
    return made


def _looks(label: str, tip: str, width: str) -> dict[str, Any]:
    return {
        "description": label,
        "tooltip": tip or label,
        "style": dict(_LABEL),
        "layout": {"width": width, "max_width": WHOLE},
    }
