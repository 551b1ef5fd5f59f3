"""Invariant curve: what must not change, over consumer time, under each policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ticdc_lab.figures.figure import Figure, Scatter, subplots
from ticdc_lab.figures.look import OKABE_ITO, WRONG
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.words import count, percent, rounded

_NOTE = (
    "The value over consumer time; a curve inside the grey band is correct. In shaded stretches readers of the "
    "downstream saw a value that the upstream never had. Values seen only briefly may lie outside the picture."
)
_MOST = 12
_SHADES = 60
_POINTS = 3000
_SELDOM = 0.02
"""Values that are shown for less of the time at either end may lie outside a panel."""
_PANEL_PX = 118


@dataclass(frozen=True, slots=True)
class Wrong:
    """How a curve is wrong: each stretch as first and last µs, and how far off it was at most, with its sign."""

    stretches: tuple[tuple[int, int, float], ...]
    length_us: int

    @property
    def total_us(self) -> int:
        """Sum of the stretches."""
        return sum(b - a for a, b, _ in self.stretches)

    @property
    def deepest(self) -> float:
        """How far off at most, with its sign."""
        return max((off for *_, off in self.stretches), key=abs, default=0.0)


def wrong_stretches(curve: pd.DataFrame) -> Wrong:
    """Find the stretches in which ``value`` lies outside ``expected_low`` to ``expected_high``.

    ``curve``: ``at_us, value, expected_low, expected_high`` of one label: the value from ``at_us`` on, in order of
    time. A value that is missing is not judged. ``until_us``, if present, is how long the last one stays.
    """
    at, value = curve["at_us"].to_numpy(dtype=np.int64), curve["value"].to_numpy(dtype=float)
    low, high = (curve[c].to_numpy(dtype=float) for c in ("expected_low", "expected_high"))
    off = np.where(value < low, value - low, np.where(value > high, value - high, 0.0))
    last = curve["until_us"].iloc[-1:] if "until_us" in curve else at[-1:]
    ends = np.append(at[1:], last)
    bad = off != 0
    starts = np.flatnonzero(bad & ~np.append([False], bad[:-1]))
    stops = np.flatnonzero(bad & ~np.append(bad[1:], [False]))
    found = [
        (int(at[a]), int(ends[b]), float(max(off[a : b + 1], key=abs))) for a, b in zip(starts, stops, strict=True)
    ]
    return Wrong(tuple(found), int(ends[-1] - at[0]) if len(at) else 0)


def invariant_curve(curve: pd.DataFrame, *, of: str = "the invariant", unit: str = "") -> Figure:
    """Draw small multiples of a value that transactions keep.

    Parameters
    ----------
    curve
        ``at_us`` (consumer time), ``value``, ``expected_low``, ``expected_high``, and ``label``: the policy, strategy
        or speeds of a panel; at most twelve are drawn, those most wrong first if there are more.
    of, unit
        What the value is: ``the total balance``, ``units of money``.
    """
    if curve.empty:
        return sentence("No invariant can be followed", "The consumer applied nothing that the invariant depends on.")
    panels = {str(k): c.sort_values("at_us", kind="stable") for k, c in curve.groupby("label", sort=False)}
    wrong = {k: wrong_stretches(c) for k, c in panels.items()}
    drawn = list(panels)
    if len(drawn) > _MOST:
        drawn = sorted(drawn, key=lambda k: -wrong[k].total_us)[:_MOST]
    titles = [f"<b>{label(k)}</b>: {_told(wrong[k])}" for k in drawn]
    gap = min(0.3, 44 / (_PANEL_PX * len(drawn)))
    fig = subplots(rows=len(drawn), cols=1, shared_xaxes=True, titles=titles, vertical_spacing=gap)
    for i, k in enumerate(drawn, start=1):
        _panel(fig, i, panels[k], wrong[k], of)
    fig.update_annotations(xanchor="left", x=0, font={"size": 13})
    fig.update_xaxes(title_text="consumer time, ms", row=len(drawn), col=1)
    fig.update_layout(showlegend=False, hovermode="closest")
    shaded = max((len(wrong[k].stretches) for k in drawn), default=0)
    left = f" Of {shaded:,} stretches the {_SHADES} longest are shaded." if shaded > _SHADES else ""
    left += f" The {_MOST} most wrong of {len(panels)} are drawn." if len(panels) > _MOST else ""
    axis = f" Heights are in {label(unit)}." if unit else ""
    height = 175 + (_PANEL_PX + 26) * len(drawn)
    return finish(fig, title=_finding(wrong, of), note=_NOTE + axis + left, height=height, least_px=800, above_px=18)


def _thinned(c: pd.DataFrame) -> pd.DataFrame:
    """The points at which something changes; of too many the least and the greatest of each of equal stretches."""
    cells = c[["value", "expected_low", "expected_high"]]
    moving = (cells != cells.shift()).any(axis=1)
    moving.iloc[-1] = True
    c = c[moving].reset_index(drop=True)
    if len(c) <= _POINTS:
        return c
    bins = np.arange(len(c)) * (_POINTS // 2) // len(c)
    by = c.groupby(bins, sort=True)["value"]
    kept = np.unique(np.concatenate([by.idxmin().dropna(), by.idxmax().dropna(), [0, len(c) - 1]]).astype(int))
    return c.iloc[kept]


def _panel(fig: Figure, row: int, c: pd.DataFrame, wrong: Wrong, of: str) -> None:
    c = _thinned(c)
    x = (c["at_us"] / 1000).tolist()
    edge = {"mode": "lines", "line": {"width": 0, "shape": "hv"}, "hoverinfo": "skip"}
    fig.add_trace(Scatter(x=x, y=c["expected_low"].tolist(), **edge), row, 1)
    fig.add_trace(
        Scatter(x=x, y=c["expected_high"].tolist(), fill="tonexty", fillcolor="rgba(128,128,128,0.35)", **edge),
        row, 1,
    )  # fmt: skip
    line = {"color": WRONG if wrong.stretches else OKABE_ITO[0], "width": 2, "shape": "hv"}
    said = {"name": label(of), "hovertemplate": "%{y:,} at %{x} ms"}
    fig.add_trace(Scatter(x=x, y=c["value"].tolist(), mode="lines", line=line, **said), row, 1)
    longest = sorted(wrong.stretches, key=lambda s: s[0] - s[1])[:_SHADES]
    for a, b, _ in longest:
        fig.add_vrect(
            x0=a / 1000, x1=b / 1000, fillcolor=WRONG, opacity=0.18, line_width=0, layer="below", row=row, col=1
        )
    low, high = _range(c)
    room = 0.15 * (high - low) or max(1.0, 0.001 * abs(high))
    fig.update_yaxes(range=[low - room, high + room], tickformat=",", nticks=4, row=row, col=1)


def _range(c: pd.DataFrame) -> tuple[float, float]:
    """What a panel shows: where the value is most of the time, where it should be then, and the farthest it is off.

    A table that fills from nothing would else press all later dips flat.
    """
    at, value = c["at_us"].to_numpy(dtype=float), c["value"].to_numpy(dtype=float)
    lasts = np.diff(at, append=at[-1])
    by_value = np.argsort(value, kind="stable")
    share = np.cumsum(lasts[by_value]) / (lasts.sum() or 1.0)
    below = np.concatenate([[0.0], share[:-1]])
    usual = by_value[(share >= _SELDOM) & (below <= 1 - _SELDOM)]
    low, high = (c[name].to_numpy(dtype=float) for name in ("expected_low", "expected_high"))
    off = np.maximum(low - value, value - high)
    shown = usual if len(usual) else by_value
    shown = np.append(shown, np.nanargmax(off)) if np.nanmax(off) > 0 else shown
    nearest = np.clip(value[shown], low[shown], high[shown])
    both = np.concatenate([value[shown], nearest])
    return float(np.nanmin(both)), float(np.nanmax(both))


def _told(w: Wrong) -> str:
    if not w.stretches:
        return "never wrong"
    first = w.stretches[0]
    longest = max(w.stretches, key=lambda s: s[1] - s[0])
    by, for_ms = f"{'+' * (w.deepest > 0)}{rounded(w.deepest, 6)}", rounded((longest[1] - longest[0]) / 1000, 4)
    return (
        f"wrong {count(len(w.stretches), 'time')}, {percent(w.total_us, w.length_us)} of the time; first "
        f"at {rounded(first[0] / 1000, 4)} ms, by {by} at most, for {for_ms} ms at most"
    )


def _finding(wrong: dict[str, Wrong], of: str) -> str:
    clean = [label(k) for k, w in wrong.items() if not w.stretches]
    broken = {k: w for k, w in wrong.items() if w.stretches}
    if not broken:
        return f"{clean[0] if len(clean) == 1 else 'None of them'} ever shows {label(of)} wrong".replace(
            f"{clean[0]} ever", f"{clean[0]} never"
        )
    worst = max(broken, key=lambda k: broken[k].total_us / max(1, broken[k].length_us))
    w = broken[worst]
    some = " and ".join(clean) if len(clean) < 3 else f"{len(clean)} of the policies"
    kept = f"{some} never {'shows' if len(clean) == 1 else 'show'} {label(of)} wrong; " if clean else ""
    longest = max(b - a for a, b, _ in w.stretches)
    what = "it" if clean else label(of)
    by, for_ms = rounded(abs(w.deepest), 6), rounded(longest / 1000, 4)
    return (
        f"{kept}{label(worst)} shows {what} wrong {count(len(w.stretches), 'time')}, by up to {by} "
        f"and for up to {for_ms} ms"
    )
