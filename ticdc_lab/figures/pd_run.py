"""A run of PD: two futures side by side, what is left to do, why nothing is done, and what PD answered."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ticdc_lab.figures.figure import Bar, Figure, Scatter, Table, subplots
from ticdc_lab.figures.look import GREY, OKABE_ITO, PATTERNS, TEXT_PX, WRONG, hatch, hatched, legend_above
from ticdc_lab.figures.theme import TITLE_CHARS, finish, label, sentence, wrapped
from ticdc_lab.pd_core.before_after import BeforeAfter
from ticdc_lab.simulate.pd.looking.recording import Curve, costs, curve
from ticdc_lab.simulate.pd.looking.time_left import Bound, TimeLeft, time_left_sentence
from ticdc_lab.simulate.pd.looking.tryout import RealRun
from ticdc_lab.simulate.pd.world.changes import AppliedChange
from ticdc_lab.simulate.pd.world.recording import Recording
from ticdc_lab.simulate.pd.world.running import Future
from ticdc_lab.words import count, rounded

# How stores, peers and operators look in the pictures of PD: the same colours in all of them.


BLUE, ORANGE, GREEN, PINK, SKY, RED, OLIVE = OKABE_ITO

PEER_LOOK: Mapping[str, tuple[str, str, str]] = MappingProxyType({
    "leader": (BLUE, "rgba(255,255,255,0.45)", ""),
    "follower": ("rgba(86,180,233,0.22)", BLUE, ""),
    "learner": ("rgba(0,158,115,0.22)", GREEN, "."),
    "pending": ("rgba(230,159,0,0.25)", ORANGE, "/"),
    "down": ("rgba(213,94,0,0.18)", WRONG, "x"),
})  # fmt: skip
"""Fill, outline and hatch of each kind of peer."""

_KINDS = (
    ("balance-leader", SKY, ""), ("balance-region", BLUE, ""), ("move-to-better", GREEN, "."),
    ("replace-rule-offline-leader", PINK, "/"),
    ("replace", RED, "/"), ("add-rule", PINK, "x"), ("make-up", PINK, "x"), ("remove", OLIVE, "-"),
    ("merge", ORANGE, "+"), ("move-hot", ORANGE, "/"), ("transfer-hot", ORANGE, "|"), ("admin", GREY, "|"),
    ("evict", PINK, "\\"), ("grant", GREEN, "\\"),
)  # fmt: skip


def kind_look(desc: str) -> tuple[str, str]:
    """Give colour and hatch of an operator by its description."""
    return next(((color, hatch) for start, color, hatch in _KINDS if desc.startswith(start)), (GREY, "+"))


def kind_name(desc: str) -> str:
    """Give an operator's description without what all of them have."""
    return desc.removesuffix("-scheduler")


def pattern(color: str, shape: str) -> dict[str, Any]:
    """Give the marker of bars of a colour with a hatch as second channel."""
    return {"color": color, "line": {"width": 0}, "pattern": hatch(shape)}


def rows_of_texts(
    heads: Sequence[str], columns: Sequence[Sequence[str]], fills: Sequence[str], *, head_px: int = 32,
    row_px: int = 27, **more: Any,
) -> Table:  # fmt: skip
    """Give a table of texts under bold heads, each row with its fill."""
    look = {"align": "left", "line": {"color": "rgba(128,128,128,0.3)"}}
    head = {"values": [f"<b>{h}</b>" for h in heads], "fill": {"color": BLUE}, "font": {"color": "#ffffff"}}
    cells = {"values": columns, "height": row_px, "fill": {"color": [fills] * len(columns)}}
    return Table(header=head | {"height": head_px} | look, cells=cells | look, **more)


# How long until done: what each limit alone would allow, the slowest first, and the pace so far.


_BAR_PX = 46
_MOST_OF_LEFT = 7
_NOTE_OF_LEFT = (
    "One bar per limit: how long the work would take if this limit alone counted. The hatched limit holds the work "
    "back: turn that one. The dotted line is the pace of the last half minute. If it is far right of all bars, no "
    "limit is the reason."
)


def time_left(left: TimeLeft) -> Figure:
    """Draw how long it takes, and what holds it back.

    Parameters
    ----------
    left
        What :func:`ticdc_lab.simulate.pd.looking.time_left.time_left` gives.
    """
    title = label(time_left_sentence(left), most=300)
    shown = [b for b in left.bounds if not math.isinf(b.seconds)][:_MOST_OF_LEFT]
    if not shown:
        held = left.held_by
        return sentence(title, f"What would help: {label(held.turn)}." if held else "No limit is in the way.")
    fig = Figure([_bar(b, *((WRONG, "/") if b is shown[0] else (BLUE, ""))) for b in shown])
    texts = [f"<b>{label(b.name, most=60)}</b>: {_s(b.seconds)}, {label(b.because, most=80)}" for b in shown]
    names = [label(b.name, most=80) for b in shown]
    fig.add_trace(
        Scatter(
            x=[0] * len(shown), y=names, mode="text", text=[f" {t}" for t in texts], textposition="middle right",
            hoverinfo="skip", cliponaxis=False,
        )
    )  # fmt: skip
    pace = left.at_pace_s
    longest = max([b.seconds for b in shown] + ([pace] if pace is not None and not math.isinf(pace) else []))
    if pace is not None and not math.isinf(pace):
        fig.add_vline(x=pace, line={"color": GREY, "width": 2.5, "dash": "dot"})
        fig.add_annotation(
            x=pace, y=1, yref="paper", text="at the pace so far", showarrow=False, yanchor="bottom",
            xanchor="right" if pace > 0.6 * longest else "left",
        )  # fmt: skip
    fig.update_xaxes(title_text="seconds until done", range=[0, 1.02 * longest or 1], zeroline=False)
    fig.update_yaxes(autorange="reversed", showticklabels=False, showgrid=False)
    fig.update_layout(showlegend=False, bargap=0.25)
    return finish(
        fig, title=title, note=_NOTE_OF_LEFT, height=210 + _BAR_PX * len(shown), least_px=860, above_px=24, left_px=30
    )


def _s(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{rounded(seconds, 2)} s"


def _bar(b: Bound, color: str, hatch: str) -> Bar:
    return Bar(
        y=[label(b.name, most=80)], x=[b.seconds], orientation="h", marker=pattern(color, hatch) | {"opacity": 0.55},
        hovertext=[f"turn it: {label(b.turn, most=80)}"], hoverinfo="text",
    )  # fmt: skip


# Two futures of one cluster on the same axes: the difference shaded, and what each costs in four numbers.


_LOOKS = ((BLUE, "solid"), (ORANGE, "dash"))
_NUMBERS = (("time to balance", "s"), ("data moved", "GiB"), ("peak load of a store", "MiB/s"), ("moves undone", ""))
_NOTE_OF_FUTURES = (
    "Above, how far the worst store is from its share of peers; middle, what was copied; shaded, the difference. "
    "Below, the four numbers: the stores are even once each has its share by weight within 5 % for good (one that "
    "leaves or is down has none), the peak is snapshots sent and received, undone moves are thrash."
)


def two_futures(futures: Mapping[str, Recording], *, from_s: float = 0.0, real: Sequence[RealRun] = ()) -> Figure:
    """Draw a run beside the one that it would have been.

    Parameters
    ----------
    futures
        Name to run; two of the same start.
    from_s
        When they part, virtual seconds; costs count from there.
    real
        Runs of the real PD from the same start, drawn thin and grey; not those in which a store went, since it is not
        known from when on it had no share.
    """
    if len(futures) != 2:
        return sentence("There are not two futures", f"Two runs are compared; {len(futures)} were given.")
    names, runs = list(futures), list(futures.values())
    curves = [curve(r) for r in runs]
    paid = [costs(r, from_us=round(from_s * 1e6)) for r in runs]
    fig = subplots(
        rows=4, cols=2, row_heights=[0.4, 0.26, 0.17, 0.17], vertical_spacing=0.09, horizontal_spacing=0.08,
        spans=[[2, 0], [2, 0], [1, 1], [1, 1]],
    )  # fmt: skip
    _pair(fig, 1, names, curves, [c.off_percent for c in curves], "farthest from its share, %")
    _real(fig, real)
    _pair(fig, 2, names, curves, [c.moved_gib for c in curves], "copied, GiB")
    if from_s:
        for row in (1, 2):
            fig.add_vline(x=from_s, line={"color": GREY, "width": 2, "dash": "dot"}, row=row, col=1)
    end = max(c.times_s[-1] for c in curves)
    fig.update_xaxes(range=[0, end], zeroline=False, row=1, col=1)
    fig.update_xaxes(range=[0, end], zeroline=False, title_text="virtual time, s", row=2, col=1)
    for k in range(len(_NUMBERS)):
        _numbers(fig, k, names, paid)
    fig.update_layout(
        hovermode="closest", legend=legend_above(1.005), bargap=0.35
    )  # fmt: skip
    title = finding_of_futures(names, paid)
    return finish(fig, title=title, note=_NOTE_OF_FUTURES, height=880, least_px=640, above_px=30)


def _pair(
    fig: Figure, row: int, names: Sequence[str], curves: Sequence[Curve], values: Sequence[Sequence[float]], axis: str,
) -> None:  # fmt: skip
    times = np.unique(np.concatenate([c.times_s for c in curves]))
    a, b = (np.interp(times, c.times_s, v) for c, v in zip(curves, values, strict=True))
    fig.add_trace(
        Scatter(
            x=[*times, *times[::-1]], y=[*np.maximum(a, b), *np.minimum(a, b)[::-1]], fill="toself", mode="none",
            fillcolor="rgba(128,128,128,0.25)", name="difference", hoverinfo="skip", showlegend=row == 1,
        ), row, 1,
    )  # fmt: skip
    for name, c, v, (color, dash) in zip(names, curves, values, _LOOKS, strict=True):
        fig.add_trace(
            Scatter(
                x=c.times_s, y=np.round(v, 3).tolist(), mode="lines", name=label(name), showlegend=row == 1,
                line={"color": color, "dash": dash, "width": 2.5},
                hovertemplate="%{y:,.1f} at %{x:,.0f} s<extra>" + label(name) + "</extra>",
            ), row, 1,
        )  # fmt: skip
    fig.update_yaxes(title={"text": axis, "font": {"size": TEXT_PX}}, rangemode="tozero", row=row, col=1)


def _real(fig: Figure, real: Sequence[RealRun]) -> None:
    for k, r in enumerate(r for r in real if not r.gone):
        stores = sorted({i for counts in r.peers for i in counts})
        off = []
        for counts in r.peers:
            mean = sum(counts.values()) / max(1, len(stores))
            off.append(100 * max(abs(counts.get(i, 0) - mean) for i in stores) / mean if mean else 0.0)
        fig.add_trace(
            Scatter(
                x=list(r.times_s), y=off, mode="lines", line={"color": GREY, "width": 1.3}, name="the real PD",
                legendgroup="real", showlegend=k == 0, hovertemplate="%{y:,.1f} % at %{x:,.0f} s<extra>real</extra>",
            ), 1, 1,
        )  # fmt: skip


def _numbers(fig: Figure, k: int, names: Sequence[str], paid: Sequence[Future]) -> None:
    words, unit = _NUMBERS[k]
    values = [(c.peers_even_s, c.moved_mib / 1024, c.peak[0], float(c.moved_back))[k] for c in paid]
    bars = [0.0 if v is None else v for v in values]
    texts = ["not even" if v is None else f"{number(v)} {unit}".strip() for v in values]
    hover = [f"{label(n)}: {t}{_more(c, k)}" for n, t, c in zip(names, texts, paid, strict=True)]
    fig.add_trace(
        Bar(
            y=[label(n, most=24) for n in names], x=bars, orientation="h", text=texts, textposition="outside",
            marker={"color": [c for c, _ in _LOOKS], "pattern": hatch(["", "/"])},
            hovertext=hover, hoverinfo="text", cliponaxis=False, showlegend=False,
        ), 3 + k // 2, 1 + k % 2,
    )  # fmt: skip
    top = max(bars) or 1
    place = {"row": 3 + k // 2, "col": 1 + k % 2}
    named = {"text": f"{words}{f', {unit}' if unit else ''}", "font": {"size": TEXT_PX}}
    fig.update_xaxes(range=[0, 1.6 * top], title=named, nticks=4, **place)
    fig.update_yaxes(showticklabels=False, autorange="reversed", **place)


def number(v: float) -> str:
    """Give a number with three digits that count, and never as a power of ten."""
    return f"{v:,.0f}" if v >= 100 else f"{rounded(v)}"


def _more(c: Future, k: int) -> str:
    if k == 2 and c.peak[1]:
        return f" on store {c.peak[1]}"
    return f" of {c.moves:,} moves" if k == 3 else ""


def finding_of_futures(names: Sequence[str], paid: Sequence[Future]) -> str:
    """Name the one that is even sooner, and its cost."""
    (a, b), (x, y) = paid, (label(n) for n in names)
    ends = [c.peers_even_s for c in paid]
    if ends[0] is None and ends[1] is None:
        when = f"Neither {x} nor {y} makes the stores even"
    elif ends[0] is None or ends[1] is None:
        first, other, at = (x, y, ends[0]) if ends[1] is None else (y, x, ends[1])
        when = f"{first} makes the stores even in {at:,.0f} s, {other} does not"
    elif ends[0] == ends[1]:
        when = f"Both make the stores even in {ends[0]:,.0f} s"
    else:
        when = f"{y} makes the stores even in {ends[1]:,.0f} s, {x} in {ends[0]:,.0f} s"
    moved = f"{number(b.moved_mib / 1024)} GiB moved{_not(b.moved_mib / 1024, a.moved_mib / 1024)}"
    return f"{when}; {moved}; peak {number(b.peak[0])} MiB/s{_not(b.peak[0], a.peak[0])}"


def _not(new: float, old: float) -> str:
    return f", not {number(old)}" if number(old) != number(new) else ""


# Why nothing happens, over time: of each scheduler and the checkers, when they made operators and why not.


_ROW_PX, _MOST_OF_NOTHING = 58, 5
_FIRST = "balance-region-scheduler"
_MADE = "operators were made"
_OTHER = "another reason"
_NOTE_OF_NOTHING = (
    "One row per scheduler or checker, one bar per second: green where it made operators, else coloured by the "
    "reason why it made none. Look at the moment when nothing moves; hover gives the reason in full."
)


def why_nothing(recording: Recording) -> Figure:
    """Draw who did nothing when, and why.

    Parameters
    ----------
    recording
        The run.
    """
    if not recording.decisions:
        return sentence("Nothing was decided", "No round was played and no region was looked at.")
    seconds: dict[tuple[str, int], str] = {}  # that operators were made, or else the last reason why none was
    for d in recording.decisions:
        key = d.by, d.at_us // 1_000_000
        if d.told.operators:
            seconds[key] = _MADE
        elif seconds.get(key) != _MADE:
            seconds[key] = d.told.because
    rows = sorted({by for by, _ in seconds})
    reasons = Counter(why for why in seconds.values() if why != _MADE)
    named = [why for why, _ in reasons.most_common(_MOST_OF_NOTHING)]
    fig = Figure()
    looks = dict(zip(named, _looks(), strict=False))
    for why in [_MADE, *named, *([_OTHER] if len(reasons) > _MOST_OF_NOTHING else [])]:
        look = (GREEN, "") if why == _MADE else looks.get(why, (GREY, "+"))
        said = {w for w in seconds.values() if w == why or (why == _OTHER and w not in (*named, _MADE))}
        mine = [(by, s, w) for (by, s), w in seconds.items() if w in said]
        fig.add_trace(_bars(mine, rows, why, look))
    fig.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=[label(kind_name(r)) for r in rows], range=[len(rows) - 0.5, -0.5],
        showgrid=False, zeroline=False,
    )  # fmt: skip
    end_s = recording.samples[-1].at_us / 1e6
    fig.update_xaxes(title_text="virtual time, s", range=[0, end_s], zeroline=False)
    fig.update_layout(
        barmode="overlay", bargap=0, hovermode="closest",
        legend={"orientation": "v", "x": 0, "y": -60 / (_ROW_PX * len(rows)), "yanchor": "top"},
    )  # fmt: skip
    below = 78 + 21 * len(fig.data)
    height = 120 + _ROW_PX * len(rows) + below + 30
    title = finding_of_nothing(seconds, rows)
    return finish(fig, title=title, note=_NOTE_OF_NOTHING, height=height, note_below_px=below)


def _looks() -> list[tuple[str, str]]:
    colors = [BLUE, *(c for c in OKABE_ITO if c not in (BLUE, GREEN))]
    return [(color, PATTERNS[1 + k % (len(PATTERNS) - 1)]) for k, color in enumerate(colors)]


def _bars(mine: Sequence[tuple[str, int, str]], rows: Sequence[str], name: str, look: tuple[str, str]) -> Bar:
    color, shape = look
    return Bar(
        orientation="h", base=[s for _, s, _ in mine], x=[1] * len(mine), y=[rows.index(by) for by, _, _ in mine],
        width=0.7, marker={"color": color, "line": {"width": 0}, "pattern": hatch(shape, size=6)},
        name=label(name, most=90), hovertext=[f"{label(by)} at {s:,} s: {label(why, most=140)}" for by, s, why in mine],
        hoverinfo="text", showlegend=True,
    )  # fmt: skip


def finding_of_nothing(seconds: Mapping[tuple[str, int], str], rows: Sequence[str]) -> str:
    """Count how often balance-region, or the idlest one, did something, and why mostly not."""
    idle = {by: Counter(why for (b, _), why in seconds.items() if b == by and why != _MADE) for by in rows}
    by = _FIRST if _FIRST in rows else max(rows, key=lambda r: (sum(idle[r].values()), r))
    made = sum(why == _MADE for (b, _), why in seconds.items() if b == by)
    if not idle[by]:
        return f"Whoever was asked made operators, {label(kind_name(by))} in {count(made, 'second')}"
    why, n = idle[by].most_common(1)[0]
    head = f"{label(kind_name(by))} made operators in {count(made, 'second')}"
    return f"{head}, and none in {sum(idle[by].values()):,}: in {n:,} of them {label(why, most=110)}"


# What was sent to PD in a run and what it answered, as a table.


_MOST_OF_ANSWERS, _CHARS = 20, 400
_NOTE_OF_ANSWERS = "One row per command or event, in order. The last column has PD's refusals in its own words."


def pd_answers(happened: Sequence[AppliedChange]) -> Figure:
    """List words to PD with its answers.

    Parameters
    ----------
    happened
        What happened in a recording.
    """
    if not happened:
        return sentence("Nothing was said to PD", "No command was given and nothing happened from outside.")
    shown = list(happened)[-_MOST_OF_ANSWERS:]
    answers = [_answer(h) for h in shown]
    columns = [
        [f"{h.at_us / 1e6:,.1f} s" for h in shown], [label(h.change.text, most=90) for h in shown],
        [wrapped(a, width=70) for a in answers],
    ]  # fmt: skip
    fills = ["rgba(213,94,0,0.16)" if h.error else "rgba(128,128,128,0.08)" for h in shown]
    fig = Figure(rows_of_texts(["at", "said", "answer"], columns, fills, columnwidth=[0.6, 2, 3.4]))
    lines = sum(2 + max(c.count("<br>") for c in (row[1], row[2])) for row in zip(*columns, strict=True))
    refused = [h for h in happened if h.error]
    said = count(len(happened), "command or event", "commands and events")
    title = f"{said}; PD {f'refuses {len(refused)}' if refused else 'refuses none'}"
    return finish(
        fig, title=title, note=_NOTE_OF_ANSWERS, height=150 + 19 * lines, note_below_px=10, least_px=760, left_px=20
    )


_NOTE_OF_MOVES = (
    "One row per store: its peers before and after, and how many came and went between the two. Look for a store that "
    "should give or take peers and does not; the title names what holds the rest."
)


def moved_between(found: BeforeAfter) -> Figure:
    """List what moved between two moments of a cluster.

    Parameters
    ----------
    found
        What :func:`ticdc_lab.simulate.pd.before_after` gives.
    """
    columns = [[f"{row[k]:,}" for row in found.stores] for k in _OF_MOVES]
    changed = ["rgba(230,159,0,0.20)" if r["came"] or r["went"] else "rgba(128,128,128,0.08)" for r in found.stores]
    fig = Figure(rows_of_texts([k.replace("_", " ") for k in _OF_MOVES], columns, changed))
    title = wrapped(label(found.sentence, most=400), width=TITLE_CHARS)
    height = 170 + 27 * len(found.stores) + 20 * title.count("<br>")
    return finish(fig, title=title, note=_NOTE_OF_MOVES, height=height, note_below_px=10, least_px=760, left_px=20)


_OF_MOVES = ("store", "peers_before", "peers_after", "came", "went", "leaders_before", "leaders_after")


def _answer(h: AppliedChange) -> str:
    if h.error:
        return f"refused: {label(h.error, most=_CHARS)}"
    text = h.answer if isinstance(h.answer, str) else json.dumps(h.answer, default=str)
    return "done" if h.answer is None else label(text, most=_CHARS)


# How many records of the real PD our answer agrees with, kind by kind.


_NOTE_OF_VERDICTS = (
    "One bar per kind of record. Look for records that do not agree: they are listed below with both answers. A "
    "record that is not judged is listed with the reason."
)
PARTS = ("agree", "disagree", "not judged", "malformed")


def verdict_bars(kinds: pd.DataFrame) -> Figure:
    """Draw a bar a kind of record.

    ``kinds``: ``kind``, ``records``, ``agree``, ``disagree``, ``not judged``, ``malformed``; from
    :meth:`ticdc_lab.simulate.pd.replay.Replayed.by_kind`.
    """
    if kinds.empty:
        return sentence("There is no record", "The file has none.")
    fig = Figure()
    names = [label(k) for k in kinds["kind"]]
    for k, part in enumerate(PARTS):
        if kinds[part].any():
            fig.add_trace(
                Bar(
                    x=kinds[part], y=names, orientation="h", name=part, marker=hatched(k),
                    hovertemplate=f"%{{y}}: %{{x:,}} {part}<extra></extra>",
                )
            )  # fmt: skip
    fig.update_layout(barmode="stack")
    fig.update_yaxes(autorange="reversed", automargin=True)
    fig.update_xaxes(title_text="records")
    agree, total = int(kinds["agree"].sum()), int(kinds["records"].sum())
    title = f"{agree:,} of {count(total, 'record')} {'get' if agree != 1 else 'gets'} the real PD's answer"
    return finish(fig, title=title, note=_NOTE_OF_VERDICTS, height=200 + 26 * len(kinds))
