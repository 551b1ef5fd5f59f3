"""Load: who carries it, over time, under which dispatcher, at which number of partitions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from ticdc_lab.dispatch.evenness import gini, unevenness
from ticdc_lab.dispatch.names import MODELS
from ticdc_lab.figures.figure import Bar, Figure, Heatmap, Scatter, subplots
from ticdc_lab.figures.look import GREY, HEAT, look
from ticdc_lab.figures.selecting import Meant, Selection, marked, marked_cells, meant
from ticdc_lab.figures.theme import alike, clock, finish, label, on_clock, sentence
from ticdc_lab.words import are, count, percent, rounded

if TYPE_CHECKING:
    from ticdc_lab.dispatch.comparison import OverTime


# Load heat map: rows per partition or table over time, with the totals at the right.


_NOTE_OF_LOAD = (
    "A bright row is a busy {by}; a bright column is a moment at which all are busy. The bars at the right are the "
    "totals, the dashed line is their mean: bars of equal length mean balance."
)
_LEAST_PX_OF_LOAD = 620


def partition_load(
    load: pd.DataFrame, *, by: str = "partition", partition: int | None = None, lane: str = "partition"
) -> Figure:
    """Draw the load heat map.

    Parameters
    ----------
    load
        :meth:`ticdc_lab.facts.overview.Load.over_time`, with ``unevenness`` of all lanes; where ``rows_total`` or that
        is missing, the title is about the lanes that are drawn.
    by
        ``partition`` or ``table``: which lanes ``load`` holds.
    partition
        The only one that is drawn, and that the title is about; by default all are.
    lane
        What a partition is called: ``stream`` in a folder of a storage sink.
    """
    if load.empty:
        return sentence("There is no load to show", "The log has no row change.")
    lanes, what = _lanes(load, by, lane), by if by == "table" else lane
    n_buckets = int(load["bucket"].max()) + 1
    z = np.zeros((len(lanes), n_buckets), dtype=np.int64)
    names = list(lanes)
    place = {keys: i for i, keys in enumerate(names)}
    columns = _columns(by)
    for keys, b, n in zip(load[columns].itertuples(index=False, name=None), load["bucket"], load["n"], strict=True):
        z[place[keys], int(b)] += int(n)
    totals = z.sum(axis=1)
    left_out = int(load["lanes_total"].max()) - len(names)
    is_whole = "rows_total" in load or not left_out
    rows = int(load["rows_total"].max()) if "rows_total" in load else int(totals.sum())
    mean = rows / (len(names) + left_out if is_whole else len(names))
    of = "" if is_whole else f" of the {len(names):,} {what}s drawn"
    coefficient = float(load["unevenness"].max()) if "unevenness" in load else None
    if coefficient is None and is_whole:
        coefficient = gini([*totals, *[0] * left_out])
    title = _finding_of_load([lanes[k] for k in names], totals, by, rows, mean, of)
    title += "" if coefficient is None else f"; {unevenness(coefficient)}"
    none = rows == totals.sum() and is_whole
    if partition is not None:
        mine = [i for i, keys in enumerate(names) if keys[1] == partition]
        share = percent(float(totals[mine].sum()), rows)
        title = f"{lane.capitalize()} {partition} takes {share} of the rows{of}"
        names, z, totals, left_out = [names[i] for i in mine], z[mine], totals[mine], 0
    if not names:
        return sentence(title, f"None of its rows lies among those drawn: choose another {lane}.")
    x, axis = _axis(load, n_buckets)
    fig = subplots(rows=1, cols=2, shared_yaxes=True, column_widths=[0.8, 0.2], horizontal_spacing=0.02)
    y = list(range(len(names)))
    hover = [[f"{lanes[k]}<br>{count(int(v), 'row')}" for v in row] for k, row in zip(names, z, strict=True)]
    bar = {"title": {"text": "rows"}, "x": 1.01, "thickness": 12, "outlinewidth": 0}
    heat = Heatmap(
        z=z, x=x, y=y, colorscale=HEAT, zmin=0, zmax=max(1, int(z.max())), hovertext=hover,
        hovertemplate="%{hovertext}<br>at %{x}<extra></extra>", colorbar=bar, ygap=1,
    )  # fmt: skip
    if by == "table":
        picks = [Selection(table=f"{schema}.{table}") for schema, table in names]
    else:
        picks = [Selection(topic=str(topic), partition=int(str(partition))) for topic, partition in names]
    fig.add_trace(marked_cells(heat, rows=picks, columns=_stretches_of_load(load, n_buckets)), 1, 1)
    bars = {
        "orientation": "h",
        "marker": {"color": GREY},
        "showlegend": False,
        "textposition": "auto",
        "insidetextanchor": "start",
    }  # the line of the mean crosses no number
    words = [f"{lanes[k]}<br>{count(int(t), 'row')} in all" for k, t in zip(names, totals, strict=True)]
    drawn = Bar(x=totals, y=y, text=[f"{t:,}" for t in totals], hovertext=words, hoverinfo="text", **bars)
    fig.add_trace(marked(drawn, picks), 1, 2)
    fig.add_vline(x=mean, line={"width": 2, "dash": "dash", "color": "#D55E00"}, row=1, col=2)
    fig.update_yaxes(tickvals=y, ticktext=[lanes[k] for k in names], autorange="reversed", row=1, col=1)
    fig.update_yaxes(title_text=what, row=1, col=1)
    fig.update_yaxes(autorange="reversed", row=1, col=2)
    fig.update_xaxes(**axis, ticklabeloverflow="hide past domain", row=1, col=1)  # else it meets the bars' 0
    fig.update_xaxes(title_text="rows in all", rangemode="tozero", showgrid=False, nticks=3, tickangle=0, row=1, col=2)
    fewer = "without a row" if none else "with fewer rows" if is_whole else "with fewer rows or none"
    more = f" {count(left_out, f'{what} {fewer} is', f'{what}s {fewer} are')} not drawn; the mean counts {{}}."
    more = more.format("all" if is_whole else "those that are")
    note = _NOTE_OF_LOAD.format(by=what) + _column(load) + (more if left_out > 0 else "")
    return finish(fig, title=title, note=note, height=max(300, 190 + 26 * len(names)), least_px=_LEAST_PX_OF_LOAD)


def _finding_of_load(names: list[str], totals: np.ndarray, by: str, rows: int, mean: float, of: str) -> str:
    top = int(totals.argmax())
    share = percent(float(totals[top]), rows)
    who = names[top] if by == "table" else names[top][0].upper() + names[top][1:]
    others = int((totals == totals[top]).sum()) - 1
    known = f"{count(others, 'other does', 'others do')}" if totals.sum() == rows else "others do"
    too = f", as {known}" if others else ""
    return f"{who} takes {share} of the rows{of}{too}, {totals[top] / mean:.2f} times the mean"


def _column(load: pd.DataFrame) -> str:
    """How long a column of the picture is."""
    if load["from_ms"].isna().any():
        return ""
    first = load.iloc[0]
    return f" A column is {rounded(max(1, int(first['to_ms']) - int(first['from_ms'])) / 1000)} s."


def _columns(by: str) -> list[str]:
    return ["topic", "partition"] if by == "partition" else ["schema_name", "table_name"]


def _stretches_of_load(load: pd.DataFrame, n_buckets: int) -> list[Selection | None]:
    """The time of each bucket; None where it is not known."""
    timed = load[["bucket", "from_ms", "to_ms"]].dropna().drop_duplicates("bucket")
    known = {int(b): (int(lo), int(hi)) for b, lo, hi in timed.itertuples(index=False, name=None)}
    return [Selection(between_ms=known[b]) if b in known else None for b in range(n_buckets)]


def _lanes(load: pd.DataFrame, by: str, lane: str) -> dict[tuple[object, ...], str]:
    """Lane keys, in order, with the names to print."""
    columns = _columns(by)
    keys = list(dict.fromkeys(load[columns].itertuples(index=False, name=None)))
    if by == "table":
        heavy = load.groupby(columns, sort=False)["n"].sum()
        keys.sort(key=lambda k: (-int(heavy[k]), k))
        from ticdc_lab.facts.definitions import table_text  # its package brings Spark

        return {k: label(table_text(*k)) for k in keys}
    keys.sort()
    one = load["topic"].nunique() == 1
    return {k: f"{lane} {k[1]}" if one else f"{label(k[0], most=24)} {lane} {k[1]}" for k in keys}


def _axis(load: pd.DataFrame, n_buckets: int) -> tuple[np.ndarray, dict[str, object]]:
    """The middle of each bucket, and the settings of the axis."""
    if load["from_ms"].isna().any():
        title = f"stretch of offsets, of {n_buckets} (the log has no commit_ts)"
        return np.arange(n_buckets, dtype=float), {"title_text": title}
    lo, hi = int(load["from_ms"].min()), int(load["to_ms"].max())
    first, last = int(load["bucket"].min()), int(load["bucket"].max())
    width = (hi - lo) / max(1, last - first + 1)
    return clock(lo + (np.arange(n_buckets) - first + 0.5) * width), on_clock("commit time")


# Rows per partition: what each partition would get from each strategy.


_NOTE_OF_ROWS = (
    "One mark per partition and strategy; the ideal is all marks at the mean. Look for empty partitions and for one "
    "that stands out: it sets the pace of the whole topic."
)


def partition_rows(rows: pd.DataFrame, *, strategy: str | None = None) -> Figure:
    """Draw the rows of each partition.

    Parameters
    ----------
    rows
        ``strategy``, ``target_partition`` (every one from 0), ``rows``.
    strategy
        The one that the title is about; by default the most uneven.
    """
    if rows.empty or int(rows["rows"].sum()) == 0:
        return sentence("There is no load to compare", "The log has no row change that a strategy can place.")
    fig = Figure()
    for k, (name, group) in enumerate(rows.groupby("strategy", sort=False)):
        style = look(k)
        fig.add_trace(
            Scatter(
                x=group["target_partition"].astype(int), y=group["rows"].astype(int), mode="markers",
                marker={"color": style["color"], "symbol": style["symbol"], "size": 10}, name=label(name),
                hovertemplate="partition %{x}: %{y:,} rows<extra>%{fullData.name}</extra>",
            )
        )  # fmt: skip
    n, top = int(rows["target_partition"].max()) + 1, int(rows["rows"].max())
    fig.update_xaxes(title_text="partition", range=[-0.5, n - 0.5], dtick=max(1, round(n / 16)))
    fig.update_yaxes(title_text="rows", range=[0, top * 1.08])
    fig.update_layout(showlegend=True)
    return finish(fig, title=_finding_of_rows(rows, strategy), note=_NOTE_OF_ROWS, height=420)


def _finding_of_rows(rows: pd.DataFrame, strategy: str | None) -> str:
    even = rows.groupby("strategy", sort=False)["rows"].agg(lambda v: float(v.max()) / max(1e-9, float(v.mean())))
    name = strategy if strategy in even.index else even.idxmax()
    mine = rows[rows["strategy"] == name].sort_values("target_partition")["rows"].astype(int).to_list()
    idle = sum(n == 0 for n in mine)
    none = f", and {count(idle, 'partition gets', 'partitions get')} nothing" if idle else ""
    top = mine.index(max(mine))
    return f"{label(name)} puts {max(mine):,} of {count(sum(mine), 'row')} in partition {top} of {len(mine)}{none}"


# Skew curves: how uneven each strategy would be for every number of partitions.


_NOTE_OF_SKEW = (
    "1 is perfect balance; the grey line is the worst case, everything in one partition. Only strategies that can "
    "place every row are drawn. Look for curves that rise (too few tables or keys to spread) and for jumps at powers "
    "of two, which the commit ts is prone to."
)


def skew_curves(curves: pd.DataFrame, *, chosen: int | None = None) -> Figure:
    """Draw max/mean over the number of partitions, a line per strategy.

    Parameters
    ----------
    curves
        ``strategy``, ``partitions``, ``max_over_mean``.
    chosen
        Number of partitions to mark.
    """
    if curves.empty:
        return sentence("There is no skew to show", "The log has no row change.")
    fig = Figure()
    top = int(curves["partitions"].max())
    ends = {"x": [1, top], "y": [1, top], "mode": "lines", "hoverinfo": "skip", "name": "all in one partition"}
    fig.add_trace(Scatter(**ends, line={"color": GREY, "width": 1, "dash": "dot"}))
    for k, (name, curve) in enumerate(curves.groupby("strategy", sort=False)):
        style, line = look(k), curve.sort_values("partitions")
        powers = [int(n) & (int(n) - 1) == 0 for n in line["partitions"]]
        fig.add_trace(
            Scatter(
                x=line["partitions"].astype(int),
                y=line["max_over_mean"].astype(float),
                mode="lines+markers",
                line={"color": style["color"], "width": 1.2},  # dashes of a curve with a hundred peaks are grey
                marker={"color": style["color"], "symbol": style["symbol"], "size": [9 if p else 0 for p in powers]},
                name=label(name),
                hovertemplate="%{x} partitions: the fullest has %{y:.2f} times the mean<extra>%{fullData.name}</extra>",
            )
        )
    if chosen is not None:
        fig.add_vline(x=chosen, line={"color": GREY, "width": 1})
        at = {"x": math.log10(chosen), "y": 1, "yref": "paper", "xanchor": "left", "xshift": 4}
        fig.add_annotation(text=count(chosen, "partition"), showarrow=False, **at)
    fig.update_xaxes(title_text="partitions (markers at powers of two)", type="log", tickvals=_powers(top))
    fig.update_yaxes(title_text="rows of the fullest / mean", type="log", tickvals=_powers(top))
    return finish(fig, title=_finding_of_skew(curves, chosen), note=_NOTE_OF_SKEW, height=480)


def _powers(top: int) -> list[int]:
    return [2**i for i in range(top.bit_length())]


def _finding_of_skew(curves: pd.DataFrame, chosen: int | None) -> str:
    counts = sorted({int(n) for n in curves["partitions"]})
    n = chosen if chosen in counts else counts[-1]
    at = curves[curves["partitions"] == n].sort_values("max_over_mean", kind="stable")
    can_be_set = at[~at["strategy"].isin(list(MODELS))]
    at = can_be_set if len(can_be_set) else at
    shown = [f"{v:.2f}" for v in at["max_over_mean"]]
    most = f"fullest partition {shown[0]} times the mean"
    best, worst = ([label(s) for s, v in zip(at["strategy"], shown, strict=True) if v == shown[i]] for i in (0, -1))
    if len(at) > 1 and shown[0] == shown[-1]:
        return f"With {count(n, 'partition')} all are alike ({most})"
    told = f"With {count(n, 'partition')} {' and '.join(best)} {are(len(best))} the most even ({most})"
    return told if len(at) == 1 else f"{told} and {' and '.join(worst)} the least ({shown[-1]})"


# A dispatcher over time: load of each partition, what it breaks, and where partitions must align.


_NOTE_OF_OVER_TIME = (
    "Above: the load of each partition over time; a bright row is a busy partition. The bars at the right are the "
    "totals, the dashed line is their mean. Below, on the same time axis: cases that this dispatcher breaks, and "
    "alignments, at which all partitions wait. Look for bursts: totals hide them."
)
_WORDS = {"row_order": "row order", "table_order": "table order", "transactions": "transactions"}
_MOST_LABELS = 16
_LEAST_PX_OF_OVER_TIME = 860


def dispatch_over_time(over_time: OverTime, *, strategy: str, weight: str = "rows") -> Figure:
    """Draw a dispatcher over time.

    Parameters
    ----------
    over_time
        :func:`ticdc_lab.dispatch.comparison.over_time`.
    strategy
        Its words, for the title.
    weight
        ``rows`` or ``bytes``: what ``load`` counts.
    """
    load = over_time.load
    if not load.sum():
        return sentence("There is no load to show", f"{label(strategy)} places no row change of this choice.")
    partitions = load.shape[1]
    fig = subplots(
        rows=2, cols=2, shared_xaxes=True, column_widths=[0.82, 0.18], row_heights=[0.66, 0.34],
        horizontal_spacing=0.02, vertical_spacing=0.06, spans=[[1, 1], [1, 0]],
    )  # fmt: skip
    stretches = _stretches(over_time.stretches_ms)
    _heat(fig, over_time, weight, stretches)
    _totals(fig, load.sum(axis=0), weight)
    _below(fig, over_time, stretches)
    every = max(1, -(-partitions // _MOST_LABELS))
    for column in (1, 2):
        axis = {"range": [partitions - 0.5, -0.5], "tickvals": list(range(0, partitions, every))}
        fig.update_yaxes(**axis, showticklabels=column == 1, row=1, col=column)
    fig.update_yaxes(title_text="partition", row=1, col=1)
    top = max(1, int(over_time.alignments.max(initial=0)), *(int(n.max(initial=0)) for n in over_time.broken.values()))
    whole = {"range": [-0.05 * top, 1.08 * top], "dtick": max(1, round(top / 4))}  # no half a case
    fig.update_yaxes(title_text="cases per moment", **whole, row=2, col=1)
    fig.update_xaxes(type="date")
    fig.update_xaxes(**on_clock("commit time"), row=2, col=1)
    fig.update_xaxes(
        type="linear", title_text=f"{weight} in all", rangemode="tozero", showgrid=False, nticks=3, tickangle=0, row=1,
        col=2,
    )  # fmt: skip
    fig.update_layout(showlegend=True, legend={"orientation": "h"})
    return finish(
        fig, title=_finding_of_over_time(over_time, strategy, weight), note=_NOTE_OF_OVER_TIME + _moment(over_time),
        height=640,
        least_px=_LEAST_PX_OF_OVER_TIME,
    )  # fmt: skip


def _moment(o: OverTime) -> str:
    """How long a moment of the picture is."""
    first, last = o.stretches_ms[0]
    return f" A moment is {rounded(max(1, last - first) / 1000)} s."


@lru_cache(maxsize=2)
def _stretches(ends_ms: tuple[tuple[int, int], ...]) -> Meant:
    """A click on a stretch of time; all figures of a slider have the same."""
    return meant([Selection(between_ms=ends) for ends in ends_ms])


def _heat(fig: Figure, o: OverTime, weight: str, stretches: Meant) -> None:
    bar = {"title": {"text": weight}, "x": 1.01, "thickness": 12, "outlinewidth": 0, "len": 0.6, "y": 0.7}
    hover = "partition %{y}<br>%{z:,} " + weight + "<br>at %{x}<extra></extra>"
    heat = Heatmap(
        z=o.load.T, x=_clock_of(o), y=list(range(o.load.shape[1])), colorscale=HEAT, zmin=0, zmax=int(o.load.max()),
        hovertemplate=hover, colorbar=bar, name="load",
    )  # fmt: skip
    nothing = [None] * o.load.shape[1]  # where a row would go is no partition of the log
    fig.add_trace(marked_cells(heat, rows=nothing, columns=stretches), 1, 1)


def _clock_of(o: OverTime) -> np.ndarray:
    """The middle of each stretch."""
    return clock([(first + last) / 2 for first, last in o.stretches_ms])


def _totals(fig: Figure, totals: npt.NDArray[np.int64], weight: str) -> None:
    hover = "partition %{y}: %{x:,} " + weight + " in all<extra></extra>"
    bars = {"orientation": "h", "marker": {"color": GREY}, "showlegend": False, "hovertemplate": hover}
    fig.add_trace(Bar(x=totals, y=list(range(len(totals))), **bars), 1, 2)
    ends = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "line": {"color": "#D55E00", "dash": "dash"}}
    fig.add_trace(Scatter(x=[totals.mean()] * 2, y=[-0.5, len(totals) - 0.5], **ends), 1, 2)


def _below(fig: Figure, o: OverTime, stretches: Meant) -> None:
    """Always the same four traces, so that figures of many choices fit on one slider; equal ones are drawn once."""
    lines = {"alignments": o.alignments.astype(np.int64)}
    lines |= {f"breaks {words}": o.broken[guarantee] for guarantee, words in _WORDS.items()}
    drawn = {same[0]: f"{', '.join(same)}{' (equal)' if len(same) > 1 else ''}" for same in alike(lines)}
    for k, (name, y) in enumerate(lines.items()):
        style = look(k - 1) if k else {"color": GREY, "dash": "solid"}
        line = {"color": style["color"], "dash": style["dash"], "width": 1.5 if k else 2, "shape": "hvh"}
        trace = _line(o, y if name in drawn else np.full(len(y), np.nan), drawn.get(name, name), line)
        trace.showlegend = name in drawn
        fig.add_trace(marked(trace, stretches), 2, 1)


def _line(o: OverTime, y: npt.NDArray[np.int64 | np.float64], name: str, line: object) -> Scatter:
    hover = "%{y:,} at %{x}<extra>" + name + "</extra>"
    return Scatter(x=_clock_of(o), y=y, mode="lines", line=line, name=name, hovertemplate=hover)


def _finding_of_over_time(o: OverTime, strategy: str, weight: str) -> str:
    totals = o.load.sum(axis=0)
    top = int(totals.argmax())
    share = percent(float(totals[top]), float(totals.sum()))
    busy = o.load[o.load.sum(axis=1) > 0]
    peak = float((busy.max(axis=1) / busy.mean(axis=1)).max())
    of_mean = f"{totals.max() / totals.mean():.2f} times the mean ({peak:.2f} at the worst moment)"
    even = f"{of_mean}, {unevenness(gini(totals))}"
    broken = int(o.broken["row_order"].sum())
    waits = f", {count(int(o.alignments.sum()), 'alignment')}" if o.alignments.sum() else ""
    lost = f"; {count(o.unplaced, 'row')} it cannot place, not counted" if o.unplaced else ""
    of = "" if len(totals) == 1 else f" of {len(totals)}"
    return (
        f"{label(strategy)}: partition {top}{of} takes {share} of the {weight}, {even}; "
        f"{count(broken, 'break')} of row order{waits}{lost}"
    )
