"""Sequence diagram: a lifeline for each node, an arrow for each message, and where a promise breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.look import GREY, WRONG, look
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.sequence_layout import OWNERS_SIDE, PROTOCOL, Axis, SequenceLayout, lay_out
from ticdc_lab.figures.theme import finish, label, legend_px, sentence
from ticdc_lab.simulate.arrows import table_of
from ticdc_lab.words import count, rounded

_STEP_PX, _LEAST_PX, _MOST_PX, _TIME_PX = 26, 240, 1500, 560
_NOTE = (
    "A line down for each node, thick while it is owner, dotted while it is down; an arrow for each message, in colour "
    "and dash by kind. Look for arrows that end in a cross (lost) or in a crossed circle (no effect): the reason is on "
    "hover."
)


def sequence_diagram(
    trace: pa.Table, *, axis: Axis = "step", between_us: tuple[int, int] | None = None,
    steps: tuple[int, int] | None = None, messages: tuple[str, ...] = (), reports: bool = True, apart: bool = False,
    most: int = 400, captures: tuple[str, ...] = (), tables: tuple[str, ...] = (),
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
        Names of the messages drawn, as ``("Announce", "Sync")``; by default all between captures, not etcd's.
    reports
        Whether periodic heartbeats and watermarks are among those that are drawn by default.
    apart
        Whether the owner has a lifeline beside the processor of its capture, as in the design's figure.
    most
        Messages drawn, noted below; the last ones before a violation, else the first ones.
    captures, tables
        Whose messages are drawn, and about which tables (ids as text); by default all.
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
        return sentence("No message is visible", told)
    return drawn(s)


def drawn(s: SequenceLayout) -> Figure:
    """Draw what was laid out."""
    data = [*lifelines(s), *ways(s), *fates(s), *happenings(s), *broken(s), *names(s)]
    fig = Figure(data)
    room = 0.04 * (s.lowest - s.first) + 0.5
    below = room + (1.2 if s.axis == "step" else 0)  # for the words at messages that are still under way
    axis: dict[str, Any] = {"range": [s.lowest + below, s.first - room], "zeroline": False, "showgrid": False}
    if s.axis == "step":
        at, texts = when(s)
        name = "step · virtual time" if "·" in texts[0] else "step"
        fig.update_yaxes(**axis, tickvals=at, ticktext=texts, title_text=name)
    else:
        fig.update_yaxes(**axis, title_text="virtual time, ms")
    fig.update_xaxes(
        tickvals=list(range(len(s.lifelines))), ticktext=[f"<b>{label(n)}</b>" for n in s.lifelines], side="top",
        range=[-0.5, max(len(s.lifelines), 2) - 0.5], zeroline=False, showgrid=False, showline=False,
    )  # fmt: skip
    below_px = legend_px(fig, 22, 850)
    fig.update_layout(
        hovermode="closest", showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 0, "yanchor": "top", "yref": "paper", "itemsizing": "constant"},
    )  # fmt: skip
    height = _TIME_PX if s.axis == "time" else min(_MOST_PX, max(_LEAST_PX, _STEP_PX * len(s.steps)))
    height += 200 + below_px
    n = int(s.arrows["n"].sum())
    cut = f" {n:,} of {s.total:,} messages are drawn: choose a time window to see others." if n < s.total else ""
    return finish(
        fig, title=_finding(s), note=_NOTE + cut, height=height, note_below_px=16 + below_px,
        least_px=_WHEN_PX + _LIFELINE_PX * len(s.lifelines), above_px=30,
    )  # fmt: skip


_WHEN_PX, _LIFELINE_PX = 150, 170
"""The width of the times at the left, and of a lifeline with the words of its messages."""


def _finding(s: SequenceLayout) -> str:
    broken = s.marks[s.marks["kind"] == "violated"]
    if len(broken):
        first = broken.iloc[0]
        return f"At step {first['step']} {label(str(first['text']).removeprefix('violated '), most=200)}"
    n = int(s.arrows["n"].sum())
    fates = s.arrows.groupby("fate")["n"].sum()
    told = [f"{fates[f]:,} {w}" for f, w in _FATES.items() if f in fates]
    ends = f"{rounded(s.times_us[0] / 1000, 5)} to {rounded(s.times_us[-1] / 1000, 5)} ms"
    of = f" (the first of {s.total:,})" if n < s.total else ""
    arrived = "; all arrive" if not told else f": {', '.join(told)}"
    crashes = int((s.marks["kind"] == "crashed").sum())
    return f"{count(n, 'message')}{of} from {ends}{arrived}" + (
        f"; {count(crashes, 'crash', 'crashes')}" if crashes else ""
    )


_FATES = {"ignored": "without effect", "lost": "lost", "refused": "not taken", "on its way": "still on the way"}


# The traces of a sequence diagram: lifelines, arrows, what became of messages, what happened at nodes.

LABELLED = 45
"""Up to so many arrows each has its number and name."""

_LIFE = {
    "alive": ("alive", {"color": GREY, "width": 1.5}),
    "owner": ("is owner", {"color": "rgba(0,114,178,0.45)", "width": 9}),
    "down": ("is down", {"color": WRONG, "width": 3, "dash": "dot"}),
    "paused": ("is paused", {"color": "#E69F00", "width": 7, "dash": "2px,3px"}),
}
_MARKS = {
    "changed": ("circle-open", GREY, 7, "a state changes"),
    "decided": ("diamond-open", "#0072B2", 10, "a decision"),
    "asked": ("star-triangle-down", "#CC79A7", 12, "asked for"),
    "crashed": ("x", WRONG, 14, "crash"),
    "restarted": ("triangle-up", "#009E73", 13, "restart"),
    "paused": ("square", "#E69F00", 11, "pause"),
    "resumed": ("square-open", "#E69F00", 11, "goes on"),
    "parted": ("hourglass", "#CC79A7", 13, "link is cut"),
    "healed": ("hourglass-open", "#CC79A7", 13, "link is whole"),
    "violated": ("star", WRONG, 20, "invariant broken"),
}
_CUT = 0.55
"""How much of a lost message's way is drawn."""


def lifelines(s: SequenceLayout) -> Sequence[Scatter]:
    """A line for each node; thick where it is owner, dotted where it is down."""
    out = []
    for what, (name, line) in _LIFE.items():
        mine = s.spans[s.spans["what"] == what]
        x = [v for a in mine["x"] for v in (a, a, None)]
        y = [v for a, b in zip(mine["y0"], mine["y1"], strict=True) for v in (a, b, None)]
        shown = what != "alive" and len(mine) > 0
        out.append(Scatter(x=x, y=y, mode="lines", line=line, name=name, hoverinfo="skip", showlegend=shown))
    heads = Scatter(
        x=list(range(len(s.lifelines))), y=[s.first] * len(s.lifelines), mode="markers", name="nodes",
        marker={"size": 11, "color": GREY, "opacity": 1}, showlegend=False, hoverinfo="text",
        hovertext=[f"{label(name)}<br>click to choose it" for name in s.lifelines],
    )  # fmt: skip
    return [*out, marked(heads, [_node(s, x) for x in range(len(s.lifelines))])]


def _node(s: SequenceLayout, x: float | str) -> Selection:
    return Selection(capture=s.lifelines[int(x)].removeprefix("owner on "))


def ways(s: SequenceLayout) -> Sequence[Scatter]:
    """The arrows, a trace for each kind of message."""
    kinds = sorted(set(s.arrows["message"]), key=lambda k: (PROTOCOL.index(k) if k in PROTOCOL else len(PROTOCOL), k))
    return [_way(s, kind) for kind in kinds]


def _look(s: SequenceLayout, kind: str) -> dict[str, str]:
    rest = sorted(set(s.arrows["message"]) - set(PROTOCOL))
    return look(PROTOCOL.index(kind) if kind in PROTOCOL else len(PROTOCOL) + rest.index(kind))


def _way(s: SequenceLayout, kind: str) -> Scatter:
    style, mine = _look(s, kind), s.arrows[s.arrows["message"] == kind]
    x: list[float | None] = []
    y: list[float | None] = []
    sizes: list[int] = []
    hover: list[str] = []
    picks: list[Selection | None] = []
    for arrow in mine.to_dict("records"):
        points, head = _points(arrow, s)
        x += [*(a for a, _ in points), None]
        y += [*(b for _, b in points), None]
        sizes += [*(0 for _ in points[1:]), head, 0]
        hover += [_hover(arrow, s)] * (len(points) + 1)
        table = table_of(str(arrow["detail"] or "")) if arrow["n"] == 1 else ""
        picks += [Selection(table=table) if table else _node(s, arrow["x0"])] * (len(points) + 1)
    drawn = Scatter(
        x=x, y=y, mode="lines+markers", name=label(kind),
        line={"color": style["color"], "dash": style["dash"], "width": 1.8},
        marker={"symbol": "arrow", "angleref": "previous", "size": sizes, "color": style["color"], "opacity": 1},
        hovertext=hover, hoverinfo="text",
    )  # fmt: skip
    return marked(drawn, picks)


def names(s: SequenceLayout) -> Sequence[Scatter]:
    """The number and the name beside each arrow, where there are few."""
    mine = s.arrows.to_dict("records") if len(s.arrows) <= LABELLED else []
    places = [_middle(a, s) for a in mine]
    line = 0.05 * (s.lowest - s.first)  # of text: a name that is closer below another goes below its arrow
    close = [any(abs(x - u) < 0.5 and 0 <= y - v < line and (x, y) != (u, v) for u, v in places) for x, y in places]
    return [
        Scatter(
            x=[x for x, _ in places], y=[y for _, y in places], mode="text", name="names", showlegend=False,
            text=[f"{a['number']} {label(a['text'], most=40)}" for a in mine], hoverinfo="skip",
            textposition=[
                "middle right" if a["x0"] == a["x1"] else "bottom center" if below else "top center"
                for a, below in zip(mine, close, strict=True)
            ],
            textfont={"size": 12},
        )
    ]  # fmt: skip


def _middle(arrow: dict[str, float | str], s: SequenceLayout) -> tuple[float, float]:
    """Where an arrow has its name: beyond its bow, or where no other lifeline passes."""
    points, _ = _points(arrow, s)
    if arrow["x0"] == arrow["x1"]:
        return points[3]
    (a, b), (c, d) = points[0], points[-1]
    share = (abs(c - a) - 0.36) / abs(c - a) if abs(c - a) >= 1 else 0.55
    if arrow["message"] not in OWNERS_SIDE:  # away from the owner, where all of them meet
        share = 1 - share
    return a + share * (c - a), b + share * (d - b)


def _points(arrow: dict[str, float | str], s: SequenceLayout) -> tuple[list[tuple[float, float]], int]:
    """Where an arrow goes, with its middle, and how large its head is; one to itself is a bow."""
    x0, y0, x1, y1 = (float(arrow[c]) for c in ("x0", "y0", "x1", "y1"))
    part = {"lost": _CUT, "on its way": _CUT, "refused": 0.16}.get(str(arrow["fate"]), 1.0)
    head = 11 if part == 1 else 0
    if x0 == x1:
        low = y1 if y1 > y0 else y0 + 0.012 * (s.lowest - s.first)
        bow = 0.13 * max(1.0, len(s.lifelines) / 4)
        return [(x0, y0), (x0 + bow, y0), (x0 + bow, (y0 + low) / 2), (x0 + bow, low), (x0, low)][
            : 5 if head else 4
        ], head
    ends = (x0 + part * (x1 - x0), y0 + part * (y1 - y0) if y1 > y0 else y0)
    return [(x0, y0), ((x0 + ends[0]) / 2, (y0 + ends[1]) / 2), ends], head


def _hover(arrow: dict[str, float | str], s: SequenceLayout) -> str:
    ends = " → ".join(label(s.lifelines[int(arrow[c])]) for c in ("x0", "x1"))
    several = f" ×{arrow['n']}" if int(arrow["n"]) > 1 else ""
    told = [str(arrow[c]) for c in ("fate", "because") if arrow[c] and arrow[c] != "received"]
    because = f"<br><b>{label(': '.join(told), most=160)}</b>" if told else ""
    detail = f"<br>{label(arrow['detail'], most=120)}" if arrow["detail"] else ""
    return f"{arrow['number']} {label(arrow['message'])}{several}<br>{ends}{detail}{because}"


def fates(s: SequenceLayout) -> Sequence[Scatter]:
    """A cross where a message was lost, a crossed circle where one had no effect, a bar where none was taken."""
    out = []
    for fate, symbol, size, name in (
        ("lost", "x-thin", 12, "lost"), ("ignored", "circle-x-open", 14, "no effect (stale)"),
        ("refused", "line-ns", 14, "not taken, tried again"),
    ):  # fmt: skip
        mine = s.arrows[s.arrows["fate"] == fate].to_dict("records")
        ends = [_mark_of(a, s) for a in mine]
        out.append(
            Scatter(
                x=[e[0] for e in ends], y=[e[1] for e in ends], mode="markers", name=name, showlegend=bool(mine),
                marker={"symbol": symbol, "size": size, "color": WRONG, "line": {"width": 2.5, "color": WRONG}},
                hovertext=[_hover(a, s) for a in mine], hoverinfo="text",
            )
        )  # fmt: skip
    return out


def _mark_of(arrow: dict[str, float | str], s: SequenceLayout) -> tuple[float, float]:
    """The end of an arrow; where it was ignored a little before it, so that the lifeline does not cover the mark."""
    points, _ = _points(arrow, s)
    (a, b), (c, d) = points[-2], points[-1]
    share = 0.8 if arrow["fate"] == "ignored" else 1.0
    return a + share * (c - a), b + share * (d - b)


def happenings(s: SequenceLayout) -> Sequence[Scatter]:
    """What happens at nodes."""
    out = []
    for kind, (symbol, color, size, name) in _MARKS.items():
        mine = s.marks[s.marks["kind"] == kind]
        marker = {"symbol": symbol, "size": size, "color": color, "line": {"width": 1.5, "color": color}}
        points = Scatter(
            x=mine["x"].tolist(), y=mine["y"].tolist(), mode="markers", marker=marker, name=name,
            hovertext=[label(t, most=600).replace("\\n", "<br>") for t in mine["text"]], hoverinfo="text",
            showlegend=len(mine) > 0,
        )  # fmt: skip
        out.append(marked(points, [_node(s, x) for x in mine["x"]]))
    return out


def broken(s: SequenceLayout) -> Sequence[Scatter]:
    """A line across where an invariant breaks, with its name at the end where no message is; how is in the title."""
    mine = s.marks[s.marks["kind"] == "violated"]
    right = len(s.lifelines) - 0.5
    x = [v for _ in mine["y"] for v in (-0.5, right, None)]
    y = [v for at in mine["y"] for v in (at, at, None)]
    words = [f"<b>{label(str(t).removeprefix('violated ').partition(':')[0])}</b>" for t in mine["text"]]
    line = {"color": WRONG, "width": 2.5, "dash": "dash"}
    return [
        Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, name="broken"),
        Scatter(
            x=[right] * len(mine), y=mine["y"].tolist(), mode="text", text=words, textposition="top left",
            textfont={"color": WRONG, "size": 14}, hoverinfo="skip", showlegend=False, name="broken: words",
        ),
    ]  # fmt: skip


def when(s: SequenceLayout) -> tuple[list[float], list[str]]:
    """Ticks of the axis downwards by steps: the step's number and its time, at most some thirty."""
    every = max(1, -(-len(s.steps) // 30))
    at = pd.DataFrame({"step": s.steps, "us": s.times_us}).iloc[::every]
    plain = bool((at["step"] == at["us"]).all())
    texts = [
        str(n) if plain else f"{n} · {rounded(us / 1000, 5)} ms" for n, us in zip(at["step"], at["us"], strict=True)
    ]
    return s.y(at["step"], at["us"]).tolist(), texts
