"""A changefeed of the table scheduler: what holds its checkpoint, panels as in Grafana, protocols compared."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Bar, Figure, Scatter, subplots
from ticdc_lab.figures.look import GREY, WRONG, hatched, legend_above, look
from ticdc_lab.figures.ownership_gantt import STATE_LOOK
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.machines.machine import Reason, node_of
from ticdc_lab.simulate.lags import GLOBAL, PANELS, end_us, lag_curve, watermarks
from ticdc_lab.simulate.ledger import moments, natural
from ticdc_lab.simulate.what_holds import holders, what_holds
from ticdc_lab.words import are, count, percent, rounded

# Watermark curves: how far checkpoint_ts and resolved_ts are behind the clock, per capture and for the changefeed.


_MOST_OF_CURVES = 12
_NAMES = {"checkpoint": "changefeed checkpoint lag", "resolved": "changefeed resolved ts lag"}
_NOTE_OF_CURVES = (
    "Seconds between the clock and the watermark: it climbs while the watermark stalls. The thick grey line is "
    "the changefeed; look for the capture that it follows. Lines down are new owners (solid) and crashes (dashed)"
)


def watermark_curves(trace: pa.Table, *, captures: tuple[str, ...] = ()) -> Figure:
    """Draw the lag of checkpoint_ts above resolved_ts's, over virtual time.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    captures
        Those drawn beside the changefeed; by default all.
    """
    of = watermarks(trace)
    if of.empty:
        return sentence("No watermark is visible", "In this run no capture reported one, and none was published.")
    until_us = end_us(trace)
    fig = subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.09)
    every = sorted(set(of["who"]) - {GLOBAL}, key=natural)
    shown = [who for who in every if who in captures] if captures else every
    for row, mark in enumerate(_NAMES, start=1):
        for who in (GLOBAL, *shown[:_MOST_OF_CURVES]):
            curve = lag_curve(of[(of["who"] == who) & (of["watermark"] == mark)], until_us=until_us)
            fig.add_trace(line_of(curve, who, every, first=row == 1), row, 1)
        fig.update_yaxes(title_text=f"{mark} lag, s", rangemode="tozero", row=row, col=1)
    fig.update_xaxes(title_text="virtual time, s", row=2, col=1)
    lines = incident_lines(fig, trace)
    fig.update_layout(hovermode="closest", legend=legend_above(1.01))
    drawn = len(shown[:_MOST_OF_CURVES])
    cut = f" {drawn} of {len(every)} captures {are(drawn)} drawn." if drawn < len(every) else ""
    title = _finding_of_curves(of, until_us)
    return finish(fig, title=title, note=f"{_NOTE_OF_CURVES}{lines}.{cut}", height=560, above_px=30)


def line_of(curve: pd.DataFrame, who: str, captures: list[str], *, first: bool) -> Scatter:
    """One lag as a line; the changefeed's is thick and grey."""
    style = look(captures.index(who)) if who in captures else {"color": "rgba(128,128,128,0.55)", "dash": "solid"}
    line = {"color": style["color"], "dash": style["dash"], "width": 1.8 if who in captures else 7}
    drawn = Scatter(
        x=(curve["time_us"] / 1e6).tolist(), y=(curve["lag_us"] / 1e6).tolist(), mode="lines", line=line,
        name=label(who), legendgroup=label(who), showlegend=first,
        hovertemplate="%{y:.3f} s behind at %{x:.3f} s<extra>" + label(who) + "</extra>",
    )  # fmt: skip
    return marked(drawn, Selection(capture=who)) if who in captures else drawn


_MOST_INCIDENTS = 40


def incident_lines(fig: Figure, trace: pa.Table) -> str:
    """Draw new owners and crashes down through all panels; gives how many of them, where there are too many."""
    found = moments(trace)
    found = found[found["what"].isin(["owner", "crash"])]
    for line in found.head(_MOST_INCIDENTS).to_dict("records"):
        owner = line["what"] == "owner"
        style = {"color": "#0072B2" if owner else WRONG, "width": 1.2, "dash": "solid" if owner else "dash"}
        fig.add_vline(x=line["time_us"] / 1e6, line=style, opacity=0.7)
    return f", the first {_MOST_INCIDENTS} of {len(found):,}" if len(found) > _MOST_INCIDENTS else ""


def _finding_of_curves(of: pd.DataFrame, until_us: int) -> str:
    curve = lag_curve(of[(of["who"] == GLOBAL) & (of["watermark"] == "checkpoint")], until_us=until_us)
    if curve.empty:
        return "The changefeed's checkpoint is never published"
    worst = curve.loc[curve["lag_us"].idxmax()]
    stood = of[(of["who"] == GLOBAL) & (of["watermark"] == "checkpoint")]
    moves = [*stood["time_us"], until_us]
    longest = max((b - a, a) for a, b in pairwise(moves))
    most, at = rounded(worst["lag_us"] / 1e6), rounded(worst["time_us"] / 1e6, 4)
    stalls = f"for up to {rounded(longest[0] / 1e6)} s, from {rounded(longest[1] / 1e6, 4)} s on"
    return f"The checkpoint lag is at most {most} s, at {at} s; the checkpoint stalls {stalls}"


# Why the checkpoint is stuck: at a chosen moment in words, and over time as a band of causes.


_NOTE_OF_STUCK = (
    "Above, how far the checkpoint is behind the clock: it climbs while the checkpoint stands. Below, what holds it, "
    "by the owner's own word: a table, a capture, a barrier. On screen: hover shows since when."
)
_MOST_OF_STUCK = 7


def why_stuck(trace: pa.Table, *, at_us: int | None = None, of: str = "") -> Figure:
    """Draw what holds the checkpoint over time, and name it for one moment.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    at_us
        The moment, µs; by default the end of the longest stretch in which it is held.
    of
        A capture or ``table 7``: only what it holds is drawn, and the title is about it.
    """
    found = holders(trace)
    if of and len(found):
        found = found[(found["name"] == of) | (found["name"].map(node_of) == of)]
        if found.empty:
            return sentence(f"{label(of)} never holds the checkpoint", "The owner never gave it as the cause.")
    if found.empty:
        n = count(len(watermarks(trace).query("who == @GLOBAL")), "time")
        return sentence("The checkpoint is never stuck", f"The owner never reported a reason to wait; it moved {n}.")
    longest = found.iloc[int((found["until_us"] - found["since_us"]).argmax())]
    moment = int(longest["until_us"]) - 1 if at_us is None else at_us
    fig = subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.08)
    marks, until_us = watermarks(trace), end_us(trace)
    curve = lag_curve(marks[(marks["who"] == GLOBAL) & (marks["watermark"] == "checkpoint")], until_us=until_us)
    fig.add_trace(line_of(curve, GLOBAL, [], first=False), 1, 1)
    for bar in _bars(found):
        fig.add_trace(bar, 2, 1)
    incident_lines(fig, trace)
    fig.add_vline(x=moment / 1e6, line={"color": GREY, "width": 2.5, "dash": "dot"})
    fig.update_yaxes(title_text="checkpoint lag, s", rangemode="tozero", row=1, col=1)
    fig.update_yaxes(title_text="held by", showticklabels=False, range=[0, 1], showgrid=False, row=2, col=1)
    fig.update_xaxes(range=[0, until_us / 1e6], zeroline=False)
    fig.update_xaxes(title_text="virtual time, s", row=2, col=1)
    fig.update_layout(barmode="overlay", bargap=0, hovermode="closest", legend=legend_above(1.01))
    held = int((found["until_us"] - found["since_us"]).sum())
    mine = f"{label(of)} holds the checkpoint for {percent(held, until_us)} of the run"
    title = mine if of else finding_of_stuck(what_holds(trace, at_us=moment), moment)
    share = (
        "" if of else f" It is held for {percent(held, until_us)} of the run; the dotted line is the title's moment."
    )
    return finish(fig, title=title, note=_NOTE_OF_STUCK + share, height=470, above_px=46)


def finding_of_stuck(stuck: Reason | None, at_us: int) -> str:
    """Name what holds the checkpoint at a moment."""
    if stuck is None:
        return f"At {rounded(at_us / 1e6, 4)} s nothing holds the checkpoint"
    since_us = stuck.since_us or 0
    since = f"since {rounded(since_us / 1e6, 4)} s, for {rounded((at_us - since_us) / 1e6)} s"
    holder = label(stuck.name) if stuck.name else "something"
    return f"At {rounded(at_us / 1e6, 4)} s {holder} holds the checkpoint, {since}: {label(stuck.words, most=140)}"


def _bars(found: pd.DataFrame) -> list[Bar]:
    """A bar for each stretch, a colour for each holder; those that hold shortest share one."""
    length = (found["until_us"] - found["since_us"]).groupby(found["name"]).sum().sort_values(ascending=False)
    named = list(length.index[:_MOST_OF_STUCK])
    holder = found["name"].where(found["name"].isin(named), "others")
    out = []
    for k, name in enumerate([*named, "others"]):
        mine = found[holder == name]
        if mine.empty:
            continue
        width = (mine["until_us"] - mine["since_us"]) / 1e6
        bars = Bar(
            x=(mine["since_us"] / 1e6 + width / 2).tolist(), width=width.tolist(), y=[1] * len(mine),
            marker=hatched(k), name=label(name or "without a name"), legendgroup=label(name),
            hovertext=[_hover(r) for r in mine.to_dict("records")], hoverinfo="text",
        )  # fmt: skip
        out.append(marked(bars, [_pick(kind, name) for kind, name in zip(mine["kind"], mine["name"], strict=True)]))
    return out


def _pick(kind: str, name: str) -> Selection | None:
    if kind == "capture":
        return Selection(capture=node_of(name))
    return Selection(table=name.removeprefix("table ")) if kind == "table" else None


def _hover(r: dict[str, object]) -> str:
    ends = f"{rounded(int(str(r['since_us'])) / 1e6, 6)} to {rounded(int(str(r['until_us'])) / 1e6, 6)} s"
    return f"{label(r['answer'], most=140)}<br>{ends}, since {rounded(int(str(r['holds_since_us'])) / 1e6, 6)} s"


# The Grafana panels that people know, drawn from a run of the model, by the dashboard's names.


_MOST_OF_GRAFANA = 8
_NOTE_OF_GRAFANA = (
    "Panels of TiCDC's dashboard by their names, over the virtual time of the run. Look for what moves with the lines "
    "down: new owners (solid) and crashes (dashed)"
)


def grafana_panel(trace: pa.Table, name: str) -> Figure:
    """Draw one panel.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    name
        Of :data:`ticdc_lab.simulate.lags.PANELS`: ``changefeed checkpoint lag``, ...
    """
    values = PANELS[name].values(trace)
    if values.empty:
        return sentence(f"There is no {name} to show", "In this run nothing happened that this panel would show.")
    fig = Figure(_lines(values, name, _order(values)))
    fig.update_xaxes(title_text="virtual time, s", range=[0, end_us(trace) / 1e6])
    fig.update_yaxes(title_text=f"{name}<br>{PANELS[name].unit}", rangemode="tozero")
    note = _NOTE_OF_GRAFANA.replace("Panels", "A panel") + incident_lines(fig, trace)
    fig.update_layout(showlegend=True, legend=legend_above())
    return finish(fig, title=finding_of_grafana(values, name), note=f"{note}.{_left_out(values)}", above_px=46)


def grafana_panels(trace: pa.Table) -> Figure:
    """Draw all panels as small multiples; parameters as :func:`grafana_panel`'s."""
    found = {name: panel.values(trace) for name, panel in PANELS.items()}
    if all(values.empty for values in found.values()):
        return sentence("There is nothing for a dashboard", "In this run nothing happened that a panel would show.")
    rows = -(-len(found) // 2)
    fig = subplots(
        rows=rows, cols=2, titles=list(found), shared_xaxes=True, vertical_spacing=0.085, horizontal_spacing=0.1
    )  # fmt: skip
    shown: set[str] = set()
    for i, (name, values) in enumerate(found.items()):
        row, column = 1 + i // 2, 1 + i % 2
        for line in _lines(values, name, _order(values)):
            line.showlegend = line.name not in shown
            shown.add(line.name)
            fig.add_trace(line, row, column)
        fig.update_yaxes(title_text=PANELS[name].unit, rangemode="tozero", row=row, col=column)
    fig.update_xaxes(range=[0, end_us(trace) / 1e6])
    fig.update_xaxes(title_text="virtual time, s", row=rows)
    fig.update_annotations(font_size=14)
    note = _NOTE_OF_GRAFANA + incident_lines(fig, trace)
    note += f".{_left_out(*(values for values in found.values() if len(values)))}"
    fig.update_layout(showlegend=True, legend=legend_above(1.05))
    first = next(name for name, values in found.items() if len(values))
    title = finding_of_grafana(found[first], first)
    return finish(fig, title=title, note=note, height=280 + 190 * rows, least_px=640, above_px=84)


def finding_of_grafana(values: pd.DataFrame, name: str) -> str:
    """What a panel shows, in a sentence."""
    known = values[values["value"].notna()]
    top = known.loc[known["value"].idxmax()]
    at = f"at {rounded(top['time_us'] / 1e6, 4)} s"
    if name == "ownership history":
        n = int(((known["value"] == 1) & (known.groupby("series")["value"].shift(1, fill_value=0) == 0)).sum())
        return f"Ownership history: {count(n, 'election')} among {count(known['series'].nunique(), 'capture')}"
    of = "" if top["series"] == GLOBAL else f" ({label(top['series'])})"
    unit = PANELS[name].unit.split(", ")[-1]
    return f"{name[0].upper()}{name[1:]}: at most {rounded(top['value'], 4)} {unit}{of}, {at}"


def _left_out(*panels: pd.DataFrame) -> str:
    """How many lines of a panel are drawn, where they are not all."""
    n = max((p["series"].nunique() for p in panels if len(_order(p)) < p["series"].nunique()), default=0)
    return f" Of up to {n:,} lines of a panel the {_MOST_OF_GRAFANA} with the largest values are drawn." if n else ""


def _order(values: pd.DataFrame) -> list[str]:
    """Series in their order: states as tables go through them, others by name; of many those that are largest."""
    names = set(values["series"])
    if names <= set(STATE_LOOK):
        return [s for s in STATE_LOOK if s in names]
    largest = (
        values.groupby("series")["value"].max().sort_values(ascending=False, kind="stable").index[:_MOST_OF_GRAFANA]
    )
    return sorted(largest, key=natural)


def _lines(values: pd.DataFrame, name: str, order: list[str]) -> list[Scatter]:
    # a capture's look follows its number, wherever it is drawn
    taken = {s: int(s.rsplit("-", 1)[1]) - 1 for s in order if s.startswith("capture-") and s[8:].isdigit()}
    rest = [s for s in order if s not in taken]
    panel, captures = PANELS[name], {**taken, **{s: i + len(taken) for i, s in enumerate(rest)}}
    out = []
    for series in order:
        mine = values[values["series"] == series]
        if name == "slowest table":  # a table is there only while it is the slowest
            mine = values.assign(value=values["value"].where(values["series"] == series))
        style = look(captures[series])
        color = STATE_LOOK[series][0] if series in STATE_LOOK else style["color"]
        line = {"color": color, "dash": style["dash"], "width": 1.8, "shape": "hv" if panel.holds else "linear"}
        drawn = Scatter(
            x=(mine["time_us"] / 1e6).tolist(), y=mine["value"].tolist(), mode="lines", line=line,
            name=label(series), legendgroup=label(series),
            hovertemplate="%{y:,.4~r} at %{x:.3f} s<extra>" + label(series) + "</extra>",
        )  # fmt: skip
        out.append(_marked(drawn, series, name))
    return out


def _marked(drawn: Scatter, series: str, name: str) -> Scatter:
    if name == "slowest table":
        return marked(drawn, Selection(table=series.removeprefix("table ")))
    return marked(drawn, Selection(capture=series)) if series.startswith("capture-") else drawn


# Protocols beside each other, on the same load and faults: what each costs, in small bars.


MEASURES = {
    "overlap_s": ("overlap:<br>two write a table", "s"),
    "gap_s": ("gap: no capture writes,<br>summed over tables", "s"),
    "duplicated_rows": ("rows written twice", "rows"),
    "lag_s_max": ("largest checkpoint lag", "s"),
    "messages": ("messages", ""),
    "balance_s": ("time to balance", "s"),
}
"""Columns of :func:`ticdc_lab.simulate.lags.costs`, in words, and their units."""

_COLUMNS = 3
_NOTE_OF_VARIANTS = (
    "Each box is one cost on the same cluster, load and faults; shorter is better everywhere. Look for what a protocol "
    "pays for a shorter gap: more messages, rows written twice, or a longer time until the tables are even."
)


def variant_comparison(costs: pd.DataFrame) -> Figure:
    """Draw what each variant costs.

    Parameters
    ----------
    costs
        A row a variant: ``variant`` and the columns of :data:`MEASURES`; NaN where it was never reached.
    """
    if costs.empty:
        return sentence("No protocol was compared", "There is no run to compare.")
    rows = -(-len(MEASURES) // _COLUMNS)
    titles = [words for words, _ in MEASURES.values()]
    fig = subplots(rows=rows, cols=_COLUMNS, titles=titles, vertical_spacing=0.24, horizontal_spacing=0.08)
    for i, (column, (_, unit)) in enumerate(MEASURES.items()):
        for k, r in enumerate(costs.to_dict("records")):
            fig.add_trace(_bar(r, column, unit, k, first=i == 0), 1 + i // _COLUMNS, 1 + i % _COLUMNS)
        top = costs[column].max()
        fig.update_yaxes(
            title_text=unit, range=[0, 1.2 * top if top > 0 else 1], row=1 + i // _COLUMNS, col=1 + i % _COLUMNS
        )
    fig.update_xaxes(showticklabels=True)
    fig.update_annotations(font_size=13)
    fig.update_layout(showlegend=False, bargap=0.35)
    return finish(
        fig, title=_finding_of_variants(costs), note=_NOTE_OF_VARIANTS, height=190 + 240 * rows, least_px=720,
        above_px=44,
    )  # fmt: skip


def _bar(r: dict[str, object], column: str, unit: str, k: int, *, first: bool) -> Bar:
    value, name = float(str(r[column])), label(r["variant"])
    said = "never" if pd.isna(value) else f"{rounded(value, 4)} {unit}".strip()
    return Bar(
        x=[name], y=[0 if pd.isna(value) else value], name=name, legendgroup=name, showlegend=first, marker=hatched(k),
        text=[said], textposition="outside", constraintext="none", cliponaxis=False,
        hovertemplate=f"{name}: {said}<extra></extra>",
    )  # fmt: skip


def _finding_of_variants(costs: pd.DataFrame) -> str:
    best = costs.loc[costs["gap_s"].idxmin()]
    worst = costs.loc[costs["gap_s"].idxmax()]
    two = costs[costs["overlap_s"] > 0]["variant"]
    lets = f"{', '.join(map(label, two))} {'lets' if len(two) == 1 else 'let'} two captures write a table"
    overlap = lets if len(two) else "no table has two writers"
    if best["gap_s"] == worst["gap_s"]:
        return f"All leave tables alone for {rounded(best['gap_s'])} s; {overlap}"
    return (
        f"{label(best['variant'])} leaves tables alone for {rounded(best['gap_s'])} s, {label(worst['variant'])} for "
        f"{rounded(worst['gap_s'])} s, summed over tables; {overlap}"
    )
