"""The texts of every figure: its finding, what stands under it, clock times, and names made safe."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ticdc_lab.events.tso import zone
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.look import TOOLS_LESS, Theme, template
from ticdc_lab.figures.nested import Nested, plain
from ticdc_lab.words import quoted, shortened, some_of, visible

TITLE_CHARS, NOTE_CHARS = 72, 96
"""Per line of a title, which stays clear of the toolbar on a page of 800 pixels, and of a note.

Where the page runs code of ours (reports, panels) ``fit.js`` breaks both again for the actual width.
"""
NOTE = "note"
"""Name of the annotation with the note, by which ``fit.js`` finds it."""


def label(name: object, *, most: int = 48) -> str:
    """A name from the data as text for plotly, which reads some HTML in labels and hovers.

    Control characters become visible escapes, a long name is cut, and markup is escaped.

    Examples
    --------
    >>> label("a<b")
    'a&lt;b'
    """
    # plotly shows &quot; as it is, and no name is in an attribute
    return html.escape(shortened(visible(str(name)), most), quote=False)


def wrapped(text: str, *, width: int = NOTE_CHARS) -> str:
    """Text broken into lines for plotly, which does not wrap; entities may not be cut, so names come through
    :func:`label` without spaces inside entities.
    """
    return "<br>".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


def finish(
    fig: Figure, *, title: str, note: str, height: int = 420, note_below_px: int = 58, least_px: int = 0,
    above_px: int = 0, left_px: int = 70,
) -> Figure:  # fmt: skip
    """Give a figure its finding as title, the sentence under it, and the theme.

    ``title``, ``note``: Plotly text: names in it went through :func:`label`. The note names what to look for.
    ``height``: pixels. ``note_below_px``: distance of the note from the lowest axis, in pixels. ``least_px``: the width
    below which the figure cannot be read: ``fit.js`` lets it scroll in a narrower place, from its end on where
    ``layout.meta`` has ``from_end``. ``above_px``: room above the plot. ``left_px``: room at its left.
    """
    for axis in _few_counts(fig):
        fig.layout.setdefault(axis, Nested()).setdefault("dtick", 1)
    title, note = quoted(title), quoted(note)
    shown = wrapped(title, width=TITLE_CHARS)
    top_px = 62 + _more_lines_px(shown) + above_px
    more = {"least_px": least_px, "zone": "" if zone() == "UTC" else zone()}
    fig.update_layout(
        template=template(),
        title=_title(shown),
        height=height,
        margin={"l": left_px, "r": 30, "t": top_px, "b": note_below_px + 34 + 17 * wrapped(note).count("<br>")},
        meta={"finding": title, "note": note} | {k: v for k, v in more.items() if v},
    )
    below = {"xref": "paper", "yref": "paper", "x": 0, "y": 0, "xanchor": "left", "yanchor": "top"}
    return fig.add_annotation(
        name=NOTE, text=wrapped(note), showarrow=False, align="left", yshift=-note_below_px, opacity=0.75, **below
    )


_FEW = 4
"""Up to which count plotly would put ticks between whole numbers."""


def _few_counts(fig: Figure) -> Iterator[str]:
    """Axes that count up to a few, on which half a count is no tick."""
    values: dict[str, list[Any]] = {}
    for trace in fig.data:
        for letter in "xy":
            if letter in trace:
                values.setdefault(f"{letter}axis{trace.get(f'{letter}axis', letter)[1:]}", []).append(trace[letter])
    for axis, parts in values.items():
        layout = fig.layout.get(axis, {})
        if {"tickvals", "ticktext"} & {*layout} or layout.get("type", "linear") != "linear":
            continue
        with suppress(TypeError, ValueError):  # names, or times
            numbers = [np.asarray(list(p), dtype=np.float64) for p in parts]
            whole = np.concatenate(numbers)
            whole = whole[~np.isnan(whole)]
            tops = [float(np.nanmax(n, initial=0)) for n in numbers]  # bars may stand on each other
            top = sum(tops) if any(t.get("type") == "bar" for t in fig.data) else max(tops)
            if whole.size and whole.min() >= 0 and top <= _FEW and not (whole % 1).any():
                yield axis


def clock(ms: Any) -> np.ndarray:
    """Milliseconds since 1970 (UTC) as an axis of :func:`on_clock` shows them; nan where they are not known."""
    at = np.asarray(ms, dtype=np.float64)
    if (name := zone()) == "UTC":
        return at
    local = pd.to_datetime(at, unit="ms", utc=True).tz_convert(name).tz_localize(None)
    return np.where(np.isnan(at), np.nan, local.to_numpy("datetime64[ms]").astype(np.float64))


def on_clock(what: str) -> dict[str, Any]:
    """Settings of an axis whose values are of :func:`clock`."""
    return {
        "type": "date", "title_text": f"{what} ({zone()})", "hoverformat": "%Y-%m-%d %H:%M:%S.%L",
        "tickangle": 0, "nticks": 7,
    }  # fmt: skip


Line = TypeVar("Line", bound=Hashable)


def alike(lines: Mapping[Line, np.ndarray]) -> list[list[Line]]:
    """Lines that are equal at every point, together: they are drawn once."""
    found: dict[bytes, list[Line]] = {}
    for name, y in lines.items():
        found.setdefault(np.ascontiguousarray(y).tobytes(), []).append(name)
    return list(found.values())


def legend_px(fig: Figure, row_px: int, wide_px: int) -> int:
    """How high a legend above or below the plot will be: its columns are as wide as its longest name."""
    names = [t.name for t in fig.data if t.name and t.showlegend is not False]
    columns = max(1, wide_px // (55 + 7 * max(map(len, names), default=1)))
    return row_px * -(-len(names) // columns)


def of_partitions(numbers: Iterable[int]) -> str:
    """``partition 3``, ``partitions 0, 1, 2``; of many how many they are."""
    ordered = sorted(numbers)
    shown = some_of([str(p) for p in ordered], most=6)
    return f"partition{'s' if len(ordered) > 1 else ''} {shown}"


_UNTITLED_PX = 26
"""Above a figure without a title: plotly's buttons, and names of columns below them."""


def untitled(fig: Figure) -> Figure:
    """The same figure without its title, for a place that has its finding already.

    On a slider the other positions have other titles, so the one with that title has its place on the slider there.
    """
    made = Figure(fig)
    if made.frames:
        said = fig.layout.title.text
        layouts = [made.layout, *(f.layout for f in made.frames if f.layout)]
        for layout in layouts:
            if layout.title and layout.title.text == said:
                layout.title = {**layout.title, "text": _position(made.layout.sliders)}
        return made
    named_above = any(axis.get("side") == "top" for name, axis in made.layout.items() if name.startswith("xaxis"))
    room = _UNTITLED_PX * (2 if named_above else 1)
    made.layout.pop("title", None)
    return made.update_layout(margin_t=room, height=fig.layout.height - fig.layout.margin.t + room)


def _position(sliders: Sequence[Mapping[str, Any]]) -> str:
    """The first slider's text at its beginning."""
    if not sliders:
        return ""
    first = sliders[0]
    return f"{first['currentvalue']['prefix']}{first['steps'][first.get('active') or 0]['label']}"


def _title(shown: str) -> dict[str, Any]:
    above = 26 if "<br>" in shown else 16  # plotly lets several lines begin 10 pixels higher than one
    return {"text": shown, "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": above, "l": 18}}


def _more_lines_px(shown: str) -> int:
    return 20 * shown.count("<br>") + (10 if "<br>" in shown else 0)


def titled(fig: Figure, finding: str) -> Figure:
    """The same figure with a finding of the caller's as its title, also at every position of a slider.

    ``finding``: names in it are escaped. Where nothing is drawn the title keeps the reason.
    """
    if not fig.data:
        return fig
    made, said = Figure(fig), quoted(label(finding, most=300))
    old, shown = str(fig.layout.title.text), wrapped(said, width=TITLE_CHARS)
    made.frames = [plain(f) for f in fig.frames]
    for layout in (made.layout, *(f.layout for f in made.frames if f.layout and f.layout.title)):
        layout.title.text = shown
    more_px = _more_lines_px(shown) - _more_lines_px(old)
    return made.update_layout(
        title=_title(shown), meta={**fig.layout.meta, "finding": said}, margin_t=fig.layout.margin.t + more_px
    )


def sentence(title: str, why: str) -> Figure:
    """Where there is nothing to draw: a sentence instead of an empty axis."""
    fig = Figure()
    fig.update_xaxes(visible=False).update_yaxes(visible=False)
    title, why = quoted(title), quoted(why)
    shown, said = wrapped(title, width=TITLE_CHARS), wrapped(why)
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 1, "xanchor": "left", "yanchor": "top"}
    fig.add_annotation(name=NOTE, text=said, showarrow=False, align="left", font={"size": 15}, **place)
    more = _more_lines_px(shown)
    fig.update_layout(
        template=template(), title=_title(shown), height=150 + more + 20 * said.count("<br>"),
        margin={"l": 18, "r": 30, "t": 62 + more, "b": 30}, meta={"finding": title, "note": why},
        modebar={"remove": [*TOOLS_LESS, "zoom2d", "pan2d", "resetScale2d", "toImage"]},
    )  # fmt: skip
    return fig


def themed(fig: Figure, theme: Theme) -> Figure:
    """The same figure in another theme."""
    return Figure(fig).update_layout(template=template(theme))
