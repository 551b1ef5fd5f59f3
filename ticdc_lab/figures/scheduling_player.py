"""A run of the scheduler that can be stepped: the messages so far, who owns what, and what was decided and why."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter, Table, frame
from ticdc_lab.figures.look import WRONG
from ticdc_lab.figures.sequence_diagram import drawn
from ticdc_lab.figures.sequence_layout import Axis, SequenceLayout, lay_out
from ticdc_lab.figures.stepped import player_controls
from ticdc_lab.figures.theme import TITLE_CHARS, finish, label, sentence, wrapped
from ticdc_lab.simulate.ledger import Present
from ticdc_lab.words import count, rounded

SPLIT = 0.52
"""How much of the width the messages have; the tables have the rest."""

_LISTED = 12


def owned(now: pd.DataFrame) -> Table:
    """Draw :meth:`ticdc_lab.simulate.ledger.Present.at`."""
    columns = [
        [f"<b>{label(c)}</b><br>{label(r)}" for c, r in zip(now["capture"], now["role"], strict=True)],
        *([_tables(t) for t in now[c]] for c in ("writes", "prepares", "stops")),
    ]  # fmt: skip
    return _table(["capture", "writes", "prepares", "stops"], columns, [1.5, 2, 1.2, 1])


def _tables(tables: list[str]) -> str:
    if not tables:
        return ""
    more = f", … {len(tables):,} in all" if len(tables) > _LISTED else ""
    return label(", ".join(tables[:_LISTED]), most=200) + more


def why(decisions: pd.DataFrame) -> Table:
    """Draw :meth:`ticdc_lab.simulate.ledger.Present.decided`; of the newest also what was rejected."""
    marks: list[str] = []
    what: list[str] = []
    why: list[str] = []
    for i, d in enumerate(decisions.to_dict("records")):
        marks.append("✔" if d["after"] else "–")
        what.append(f"<b>{label(d['subject'])}</b> → {label(d['after'] or 'nothing is done')}")
        why.append(label(d["because"] or "", most=120))
        rejected = list(d["rejected"] if d["rejected"] is not None else ()) if i == 0 else []
        for r in rejected[:4]:
            marks, what, why = (
                [*marks, "✖"],
                [*what, f"not {label(r['candidate'])}"],
                [*why, label(r["because"], most=120)],
            )
    if not marks:
        marks, what, why = [""], ["nothing was decided yet"], [""]
    return _table(["", "decided", "because"], [marks, what, why], [0.3, 2, 2.4])


def domains(high_px: int, captures: int) -> tuple[list[float], list[float]]:
    """Give where the tables stand: the owners as high as they need, the decisions below them."""
    own, why = 60 + 46 * (captures + 1), 460
    ends = [max(0.0, 1 - px / high_px) for px in (own, own + 24, own + 24 + why)]
    half = ends[1] < 0.25
    return ([0.52, 1.0], [0.0, 0.48]) if half else ([ends[0], 1.0], [ends[2], ends[1]])


def _table(header: list[str], columns: list[list[str]], widths: list[float]) -> Table:
    fill, line = {"color": "rgba(128,128,128,0.10)"}, {"color": "rgba(128,128,128,0.3)"}
    look = {"align": "left", "height": 24, "fill": fill, "line": line}
    return Table(
        columnwidth=widths, domain={"x": [SPLIT + 0.04, 1]},
        header={"values": [f"<b>{h}</b>" for h in header], **look}, cells={"values": columns, **look},
    )  # fmt: skip


_LEAST_PX = 640
_CONTROLS_PX, _FRAME_MS = 84, 500
_DECISIONS = 4
_NOTE = (
    "Left, the messages up to this step; later ones are shaded. Right, which capture writes, prepares or stops which "
    "table, and below it the last decisions: ✔ what was chosen and why, ✖ what was not and why not."
)
_NAME = re.compile(r"^(\d+) \S+ ?(.*)$")


def scheduling_at(
    trace: pa.Table, *, step: int | None = None, axis: Axis = "step", between_us: tuple[int, int] | None = None,
    messages: tuple[str, ...] = (), reports: bool = False, most: int = 150, moment: float = 1.0,
    captures: tuple[str, ...] = (), tables: tuple[str, ...] = (),
) -> Figure:  # fmt: skip
    """Draw a run as it is at a step.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    step
        A step of the trace; by default ``moment``'s.
    axis, between_us, messages, reports, most, captures, tables
        As for :func:`ticdc_lab.figures.sequence_diagram`.
    moment
        Which of the steps drawn, as a share: 0 is the first, 1 the last.
    """
    s = lay_out(
        trace, axis=axis, between_us=between_us, messages=messages, reports=reports, most=most, captures=captures,
        tables=tables,
    )  # fmt: skip
    if s is None:
        return sentence("Nothing happens", "In this stretch of the run nothing was sent and nothing happened.")
    return _at(s, Present.of(trace), int(s.steps[round(moment * (len(s.steps) - 1))]) if step is None else step)


def scheduling_stepped(
    trace: pa.Table, *, moments: int = 60, axis: Axis = "step", between_us: tuple[int, int] | None = None,
    messages: tuple[str, ...] = (), reports: bool = False, most: int = 150,
) -> Figure:  # fmt: skip
    """Draw :func:`scheduling_at` at many steps, on a slider with play and pause that needs no kernel.

    Parameters
    ----------
    trace, axis, between_us, messages, reports, most
        As there.
    moments
        Frames at most; of more steps they are thinned evenly, noted below.
    """
    s = lay_out(trace, axis=axis, between_us=between_us, messages=messages, reports=reports, most=most)
    if s is None:
        return sentence("Nothing happens", "In this stretch of the run nothing was sent and nothing happened.")
    present, steps = Present.of(trace), steps_of(s, moments)
    start = len(steps) // 3  # the beginning has nothing to show
    fig = _at(s, present, steps[start])
    n = len(fig.data)
    fig.frames = [
        frame(
            name=_named(s, k), traces=[n - 3, n - 2, n - 1],
            data=[{k: v for k, v in t.items() if k != "domain"} for t in _moving(s, present, k)],  # tables stay there
            layout={"title": {"text": wrapped(_title(s, present, k), width=TITLE_CHARS)}},
        )
        for k in steps
    ]  # fmt: skip
    thinned = f" Of {len(s.steps):,} steps {len(steps):,} are shown." if len(steps) < len(s.steps) else ""
    fig.layout.annotations[-1].text += f"<br>On screen: play, or move the slider.{thinned}"
    bottom = int(fig.layout.margin.b) + 20
    return fig.update_layout(
        **player_controls(
            [f.name for f in fig.frames], start, below_px=bottom, frame_ms=_FRAME_MS, prefix="", ticklen=0,
            font={"color": "rgba(0,0,0,0)", "size": 1},
        ),
        height=int(fig.layout.height) + _CONTROLS_PX + 20, margin_b=bottom + _CONTROLS_PX,
    )  # fmt: skip


def steps_of(s: SequenceLayout, most: int) -> list[int]:
    """Steps at which something is drawn, evenly thinned."""
    chosen = np.unique(np.linspace(0, len(s.steps) - 1, min(most, len(s.steps))).round().astype(int))
    return [int(k) for k in s.steps[chosen]]


def _at(s: SequenceLayout, present: Present, step: int) -> Figure:
    fig = drawn(s)
    (names,) = (t for t in fig.data if t.name == "names")
    names.text = [
        _NAME.sub(lambda m: f"{m[1]} · {m[2]}" if m[2] else m[1], t) for t in names.text
    ]  # half a page is too narrow for more
    below_px = int(fig.layout.margin.b) - 34 - 17 * str(fig.layout.annotations[-1].text).count("<br>")
    height = max(_LEAST_PX, int(fig.layout.height))
    fig.layout.annotations = ()
    high_px = height - int(fig.layout.margin.t) - int(fig.layout.margin.b)
    fig.add_traces(_moving(s, present, step))
    for table, y in zip(fig.data[-2:], domains(high_px, len(present.captures)), strict=True):
        table.domain.y = y
    fig.update_xaxes(domain=[0, SPLIT])
    fig.update_layout(legend={"entrywidth": 170, "xanchor": "left"})
    top = int(fig.layout.margin.t)
    fig = finish(
        fig, title=_title(s, present, step), note=_NOTE, height=height, note_below_px=max(58, below_px),
        least_px=860,
    )  # fmt: skip
    return fig.update_layout(margin_t=max(top, int(fig.layout.margin.t) + 30))


def _title(s: SequenceLayout, present: Present, step: int) -> str:
    broken = s.marks[(s.marks["kind"] == "violated") & (s.marks["step"] <= step)]
    if len(broken):
        return f"At {_named(s, step)} {label(str(broken.iloc[0]['text']).removeprefix('violated '), most=200)}"
    now = present.at(step)
    writing = sum(len(t) for t in now.iloc[:-1]["writes"])
    owner = [label(c) for c, role in zip(now["capture"], now["role"], strict=True) if "owner" in role]
    alone = len(now.iloc[-1]["writes"])
    written = f"{count(writing, 'table is', 'tables are')} written"
    told = f"At {_named(s, step)} {' and '.join(owner) or 'nobody'} is the owner, {written}"
    return told + (f", {alone:,} that were are not" if alone else "")


def _named(s: SequenceLayout, step: int) -> str:
    k = int(np.searchsorted(s.steps, step, side="right")) - 1
    us = int(s.times_us[max(0, k)])
    return f"step {step}" if us == step else f"step {step} ({rounded(us / 1000, 6)} ms)"


def _moving(s: SequenceLayout, present: Present, step: int) -> list[Any]:
    """What a step changes: the shade over what is to come, and both tables."""
    k = max(0, int(np.searchsorted(s.steps, step, side="right")) - 1)
    now = float(s.y([s.steps[k]], [s.times_us[k]])[0])
    left, right = -0.5, max(len(s.lifelines), 2) - 0.5
    low = s.lowest + 0.04 * (s.lowest - s.first) + 0.5
    last = k == len(s.steps) - 1
    x, y = ([], []) if last else ([left, right, right, left, left], [now, now, low, low, now])
    shade = Scatter(
        x=x, y=y, fill="toself", mode="lines",
        fillcolor="rgba(128,128,128,0.42)", line={"color": WRONG, "width": 1.5}, hoverinfo="skip", showlegend=False,
        name="still to come",
    )  # fmt: skip
    return [shade, owned(present.at(step)), why(present.decided(step, most=_DECISIONS))]
