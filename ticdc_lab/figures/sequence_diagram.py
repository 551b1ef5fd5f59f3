"""Sequence diagram: a lifeline for each node, an arrow for each message, and where a promise breaks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ticdc_lab.figures import sequence_traces as traces
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.sequence_layout import Axis, Layout, lay_out
from ticdc_lab.figures.theme import count, finish, label, sentence

_STEP_PX, _LEAST_PX, _MOST_PX, _TIME_PX = 26, 240, 1500, 560
_LEGEND_ROW_PX, _LEGEND_WIDE_PX = 22, 850
_NOTE = (
    "A line down for each node, thick while it is owner, dotted while it is down; an arrow for each message, in colour "
    "and dash by kind. Look for arrows that end in a cross (lost) or in a crossed circle (no effect): the reason is on "
    "hover."
)


def sequence_diagram(
    trace: pa.Table, *, axis: Axis = "step", between_us: tuple[int, int] | None = None,
    steps: tuple[int, int] | None = None, messages: tuple[str, ...] = (), reports: bool = True, apart: bool = False,
    most: int = 400, captures: tuple[str, ...] = (), tables: tuple[str, ...] = (), finding: str = "",
) -> Figure:  # fmt: skip
    """Draw the messages of a run, or of a counterexample of the explorer, whose times are the numbers of its steps.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    axis
        What goes down: each ``step`` in which something is drawn has a line; or ``time`` in proportion.
    between_us, steps
        The first and last moment (µs), or step, that is drawn; by default all.
    messages
        Names of the messages drawn, as ``("Announce", "Sync")``; by default all between captures, not those of etcd.
    reports
        Whether periodic heartbeats and watermarks are among those that are drawn by default.
    apart
        Whether the owner has a lifeline beside the processor of its capture, as in the design's figure.
    most
        Messages drawn, which the note says; the last ones before a violation, else the first ones.
    captures, tables
        Whose messages are drawn, and about which tables (ids as text); by default all.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    s = lay_out(
        trace, axis=axis, between_us=between_us, steps=steps, messages=messages, reports=reports, apart=apart,
        most=most, captures=captures, tables=tables,
    )  # fmt: skip
    if s is None:
        of = " and ".join(map(label, (*captures, *(f"table {t}" for t in tables))))
        told = (
            f"In this stretch of the run nothing was sent and nothing happened{f' that is about {of}' if of else ''}."
        )
        return sentence("No message is to be seen", told)
    return drawn(s, finding=finding)


def drawn(s: Layout, *, finding: str = "") -> Figure:
    """Draw what was laid out."""
    data = [
        *traces.lifelines(s),
        *traces.ways(s),
        *traces.fates(s),
        *traces.happenings(s),
        *traces.broken(s),
        *traces.names(s),
    ]
    fig = Figure(data)
    room = 0.04 * (s.lowest - s.first) + 0.5
    below = room + (1.2 if s.axis == "step" else 0)  # for the words at messages that are still under way
    axis: dict[str, Any] = {"range": [s.lowest + below, s.first - room], "zeroline": False, "showgrid": False}
    if s.axis == "step":
        at, texts = traces.when(s)
        name = "step · virtual time" if "·" in texts[0] else "step"
        fig.update_yaxes(**axis, tickvals=at, ticktext=texts, title_text=name)
    else:
        fig.update_yaxes(**axis, title_text="virtual time, ms")
    fig.update_xaxes(
        tickvals=list(range(len(s.lifelines))), ticktext=[f"<b>{label(n)}</b>" for n in s.lifelines], side="top",
        range=[-0.5, max(len(s.lifelines), 2) - 0.5], zeroline=False, showgrid=False, showline=False,
    )  # fmt: skip
    legend_px = _legend_px(fig)
    fig.update_layout(
        hovermode="closest", showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 0, "yanchor": "top", "yref": "paper", "itemsizing": "constant"},
    )  # fmt: skip
    height = _TIME_PX if s.axis == "time" else min(_MOST_PX, max(_LEAST_PX, _STEP_PX * len(s.steps)))
    height += 200 + legend_px
    fig = finish(
        fig, title=label(finding, most=300) or _finding(s), note=_note(s), height=height, note_below_px=16 + legend_px
    )
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 30)


def _legend_px(fig: Figure) -> int:
    """How high the legend will be: its columns are as wide as its longest name."""
    names = [t.name for t in fig.data if t.showlegend is not False]
    columns = max(1, _LEGEND_WIDE_PX // (55 + 7 * max(map(len, names), default=1)))
    return _LEGEND_ROW_PX * -(-len(names) // columns)


def _finding(s: Layout) -> str:
    broken = s.marks[s.marks["kind"] == "violated"]
    if len(broken):
        first = broken.iloc[0]
        return f"At step {first['step']} {label(str(first['text']).removeprefix('violated '), most=200)}"
    n = int(s.arrows["n"].sum())
    fates = s.arrows.groupby("fate")["n"].sum()
    told = [f"{fates[f]:,} {w}" for f, w in _FATES.items() if f in fates]
    ends = f"{s.times_us[0] / 1000:,.5g} to {s.times_us[-1] / 1000:,.5g} ms"
    of = f" (the first of {s.total:,})" if n < s.total else ""
    arrived = "; all arrive" if not told else f": {', '.join(told)}"
    crashes = int((s.marks["kind"] == "crashed").sum())
    return f"{count(n, 'message')}{of} from {ends}{arrived}" + (
        f"; {count(crashes, 'crash', 'crashes')}" if crashes else ""
    )


_FATES = {
    "ignored": "without effect", "lost": "lost", "refused": "not taken", "on its way": "still on the way",
}  # fmt: skip


def _note(s: Layout) -> str:
    n = int(s.arrows["n"].sum())
    cut = f" {n:,} of {s.total:,} messages are drawn: choose a time window to see others." if n < s.total else ""
    return _NOTE + cut
