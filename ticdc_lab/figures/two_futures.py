"""Two futures of one cluster on the same axes: the difference shaded, and what each costs in four numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ticdc_lab.figures.figure import Bar, Figure, Scatter, subplots
from ticdc_lab.figures.pd_looks import BLUE, ORANGE
from ticdc_lab.figures.theme import GREY, TEXT_PX, finish, label, sentence
from ticdc_lab.simulate.pd.looking.futures import Costs, Curve, costs, curve
from ticdc_lab.simulate.pd.looking.recording import Recording
from ticdc_lab.simulate.pd.looking.tryout import RealRun

_LOOKS = ((BLUE, "solid"), (ORANGE, "dash"))
_NUMBERS = (
    ("time to balance", "s"), ("data moved", "GiB"), ("peak load of a store", "MiB/s"), ("moves undone", ""),
)  # fmt: skip
_NOTE = (
    "Above, how far the worst store is from its share of peers; middle, what was copied; shaded, the difference. "
    "Below, the four numbers: even means within 5 % for good, the peak is snapshots sent and received, undone moves "
    "are thrash."
)


def two_futures(
    futures: Mapping[str, Recording], *, from_s: float = 0.0, real: Sequence[RealRun] = (), finding: str = ""
) -> Figure:
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
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
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
        hovermode="closest", legend={"orientation": "h", "x": 0, "y": 1.005, "yanchor": "bottom"}, bargap=0.35
    )  # fmt: skip
    title = label(finding, most=300) or finding_of(names, paid)
    fig = finish(fig, title=title, note=_NOTE, height=880)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 30)


def _pair(
    fig: Figure,
    row: int,
    names: Sequence[str],
    curves: Sequence[Curve],
    values: Sequence[Sequence[float]],
    axis: str,
) -> None:
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


def _numbers(fig: Figure, k: int, names: Sequence[str], paid: Sequence[Costs]) -> None:
    words, unit = _NUMBERS[k]
    values = [_of(c)[k] for c in paid]
    bars = [0.0 if v is None else v for v in values]
    texts = [_said(v, unit) for v in values]
    hover = [f"{label(n)}: {t}{_more(c, k)}" for n, t, c in zip(names, texts, paid, strict=True)]
    fig.add_trace(
        Bar(
            y=[label(n, most=24) for n in names], x=bars, orientation="h", text=texts, textposition="outside",
            marker={"color": [c for c, _ in _LOOKS], "pattern": {"shape": ["", "/"], "fillmode": "overlay",
                    "fgcolor": "rgba(255,255,255,0.7)", "size": 7, "solidity": 0.2}},
            hovertext=hover, hoverinfo="text", cliponaxis=False, showlegend=False,
        ), 3 + k // 2, 1 + k % 2,
    )  # fmt: skip
    top = max(bars) or 1
    place = {"row": 3 + k // 2, "col": 1 + k % 2}
    named = {"text": f"{words}{f', {unit}' if unit else ''}", "font": {"size": TEXT_PX}}
    fig.update_xaxes(range=[0, 1.6 * top], title=named, nticks=4, **place)
    fig.update_yaxes(showticklabels=False, autorange="reversed", **place)


def _of(c: Costs) -> tuple[float | None, float, float, float]:
    return c.even_s, c.moved_gib, c.peak_mib_s, float(c.thrash)


def _said(v: float | None, unit: str) -> str:
    return "not even" if v is None else f"{number(v)} {unit}".strip()


def number(v: float) -> str:
    """Give a number with three digits that count, and never as a power of ten."""
    return f"{v:,.0f}" if v >= 100 else f"{v:,.3g}"


def _more(c: Costs, k: int) -> str:
    if k == 2 and c.peak_store:
        return f" on store {c.peak_store}"
    return f" of {c.moves:,} moves" if k == 3 else ""


def finding_of(names: Sequence[str], paid: Sequence[Costs]) -> str:
    """Say which is even sooner, and what it costs."""
    (a, b), (x, y) = paid, (label(n) for n in names)
    ends = [c.even_s for c in paid]
    if ends[0] is None and ends[1] is None:
        when = f"Neither {x} nor {y} makes the stores even"
    elif ends[0] is None or ends[1] is None:
        first, other, at = (x, y, ends[0]) if ends[1] is None else (y, x, ends[1])
        when = f"{first} makes the stores even in {at:,.0f} s, {other} does not"
    elif ends[0] == ends[1]:
        when = f"Both make the stores even in {ends[0]:,.0f} s"
    else:
        when = f"{y} makes the stores even in {ends[1]:,.0f} s, {x} in {ends[0]:,.0f} s"
    moved = f"{number(b.moved_gib)} GiB moved{_not(b.moved_gib, a.moved_gib)}"
    return f"{when}; {moved}; peak {number(b.peak_mib_s)} MiB/s{_not(b.peak_mib_s, a.peak_mib_s)}"


def _not(new: float, old: float) -> str:
    return f", not {number(old)}" if number(old) != number(new) else ""
