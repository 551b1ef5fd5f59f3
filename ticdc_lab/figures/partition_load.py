"""Load heat map: rows per partition or table over time, with the totals at the right."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.figures.figure import Bar, Figure, Heatmap, subplots
from ticdc_lab.figures.selecting import Selection, marked, marked_cells
from ticdc_lab.figures.theme import GREY, HEAT, count, finish, label, percent, sentence

_NOTE = (
    "A bright row is a busy {by}; a bright column is a moment at which all are busy. The bars at the right are the "
    "totals, the dashed line is their mean: bars of equal length mean balance."
)
_LEAST_PX = 620


def partition_load(load: pd.DataFrame, *, by: str = "partition", partition: int | None = None) -> Figure:
    """Draw the load heat map.

    Parameters
    ----------
    load
        :meth:`ticdc_lab.facts.overview.Load.over_time`.
    by
        ``partition`` or ``table``: which lanes ``load`` holds.
    partition
        The only one that is drawn, and that the title is about; by default all are.
    """
    if load.empty:
        return sentence("There is no load to show", "The log holds no row change.")
    lanes = _lanes(load, by)
    n_buckets = int(load["bucket"].max()) + 1
    z = np.zeros((len(lanes), n_buckets), dtype=np.int64)
    names = list(lanes)
    place = {keys: i for i, keys in enumerate(names)}
    columns = _columns(by)
    for keys, b, n in zip(load[columns].itertuples(index=False, name=None), load["bucket"], load["n"], strict=True):
        z[place[keys], int(b)] += int(n)
    totals = z.sum(axis=1)
    left_out = int(load["lanes_total"].max()) - len(names)
    title = _finding([lanes[k] for k in names], totals, by)
    mean = float(totals.mean())
    if partition is not None:
        mine = [i for i, keys in enumerate(names) if keys[1] == partition]
        title = f"Partition {partition} takes {percent(float(totals[mine].sum()), float(totals.sum()))} of the rows"
        names, z, totals, left_out = [names[i] for i in mine], z[mine], totals[mine], 0
    if not names:
        return sentence(title, "None of its rows lies among those drawn: choose another partition.")
    x, unit = _axis(load, n_buckets)
    fig = subplots(rows=1, cols=2, shared_yaxes=True, column_widths=[0.8, 0.2], horizontal_spacing=0.02)
    y = list(range(len(names)))
    hover = [[f"{lanes[k]}<br>{count(int(v), 'row')}<br>at {at:,.3f} {unit}" for at, v in zip(x, row, strict=True)]
             for k, row in zip(names, z, strict=True)]  # fmt: skip
    bar = {"title": {"text": "rows"}, "x": 1.01, "thickness": 12, "outlinewidth": 0}
    heat = Heatmap(
        z=z, x=x, y=y, colorscale=HEAT, zmin=0, zmax=max(1, int(z.max())), hovertext=hover, hoverinfo="text",
        colorbar=bar, ygap=1,
    )  # fmt: skip
    picks = [_pick(keys, by) for keys in names]
    fig.add_trace(marked_cells(heat, rows=picks, columns=_stretches(load, n_buckets)), 1, 1)
    bars = {"orientation": "h", "marker": {"color": GREY}, "showlegend": False, "textposition": "auto"}
    drawn = Bar(x=totals, y=y, text=[f"{t:,}" for t in totals], hoverinfo="text", **bars)
    fig.add_trace(marked(drawn, picks), 1, 2)
    fig.add_vline(x=mean, line={"width": 2, "dash": "dash", "color": "#D55E00"}, row=1, col=2)
    fig.update_yaxes(tickvals=y, ticktext=[lanes[k] for k in names], autorange="reversed", row=1, col=1)
    fig.update_yaxes(title_text=by, row=1, col=1)
    fig.update_yaxes(autorange="reversed", row=1, col=2)
    fig.update_xaxes(title_text=unit, row=1, col=1)
    fig.update_xaxes(title_text="rows in all", rangemode="tozero", showgrid=False, nticks=3, tickangle=0, row=1, col=2)
    more = f" {count(left_out, f'{by} with fewer rows is', f'{by}s with fewer rows are')} not drawn."
    note = _NOTE.format(by=by) + (more if left_out > 0 else "")
    return finish(fig, title=title, note=note, height=max(300, 190 + 26 * len(names)), least_px=_LEAST_PX)


def _finding(names: list[str], totals: np.ndarray, by: str) -> str:
    top = int(totals.argmax())
    share = percent(float(totals[top]), float(totals.sum()))
    even = f"{totals.max() / totals.mean():.2f} times the mean (Gini {gini(totals):.2f}; 0 is even)"
    who = names[top] if by == "table" else names[top][0].upper() + names[top][1:]
    return f"{who} takes {share} of the rows, {even}"


def _columns(by: str) -> list[str]:
    return ["topic", "partition"] if by == "partition" else ["schema_name", "table_name"]


def _pick(keys: tuple[object, ...], by: str) -> Selection:
    if by == "table":
        return Selection(table=f"{keys[0]}.{keys[1]}")
    return Selection(topic=str(keys[0]), partition=int(keys[1]))  # type: ignore[call-overload]


def _stretches(load: pd.DataFrame, n_buckets: int) -> list[Selection | None]:
    """The time of each bucket; None where it is not known."""
    timed = load[["bucket", "from_ms", "to_ms"]].dropna().drop_duplicates("bucket")
    known = {int(b): (int(lo), int(hi)) for b, lo, hi in timed.itertuples(index=False, name=None)}
    return [Selection(between_ms=known[b]) if b in known else None for b in range(n_buckets)]


def _lanes(load: pd.DataFrame, by: str) -> dict[tuple[object, ...], str]:
    """Lane keys, in order, with the names to print."""
    columns = _columns(by)
    keys = list(dict.fromkeys(load[columns].itertuples(index=False, name=None)))
    if by == "table":
        heavy = load.groupby(columns, sort=False)["n"].sum()
        keys.sort(key=lambda k: (-int(heavy[k]), k))
        return {k: label(f"{k[0]}.{k[1]}") for k in keys}
    keys.sort()
    one = load["topic"].nunique() == 1
    return {k: f"partition {k[1]}" if one else f"{label(k[0], most=24)} partition {k[1]}" for k in keys}


def _axis(load: pd.DataFrame, n_buckets: int) -> tuple[np.ndarray, str]:
    """The middle of each bucket, and the axis title."""
    if load["from_ms"].isna().any():
        return np.arange(n_buckets, dtype=float), f"stretch of offsets, of {n_buckets} (the log has no commit_ts)"
    lo, hi = int(load["from_ms"].min()), int(load["to_ms"].max())
    first, last = int(load["bucket"].min()), int(load["bucket"].max())
    width = (hi - lo) / max(1, last - first + 1)
    return (np.arange(n_buckets) - first + 0.5) * width / 1000, "commit ts, s since the first row (clock of the TSO)"
