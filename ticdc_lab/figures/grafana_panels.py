"""The Grafana panels that people know, drawn from a run of the model, by the dashboard's names."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter, subplots
from ticdc_lab.figures.ownership_gantt import STATE_LOOK
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import count, finish, label, look, sentence
from ticdc_lab.figures.watermark_curves import incident_lines
from ticdc_lab.simulate.lags import GLOBAL, PANELS, end_us
from ticdc_lab.simulate.ownership import natural

_MOST = 8
_NOTE = (
    "Panels of TiCDC's dashboard by their names, over the virtual time of the run. Lines down are new owners (solid) "
    "and crashes (dashed): look for what moves with them."
)


def grafana_panel(trace: pa.Table, name: str, *, finding: str = "") -> Figure:
    """Draw one panel.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    name
        Of :data:`ticdc_lab.simulate.lags.PANELS`: ``changefeed checkpoint lag``, ...
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    values = PANELS[name].values(trace)
    if values.empty:
        return sentence(f"There is no {name} to show", "In this run nothing happened that this panel would show.")
    fig = Figure(_lines(values, name, _order(values)))
    fig.update_xaxes(title_text="virtual time, s", range=[0, end_us(trace) / 1e6])
    fig.update_yaxes(title_text=f"{name}<br>{PANELS[name].unit}", rangemode="tozero")
    incident_lines(fig, trace)
    fig.update_layout(showlegend=True, legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    fig = finish(
        fig, title=label(finding, most=300) or finding_of(values, name), note=_NOTE.replace("Panels", "A panel")
    )
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 46)


def grafana_panels(trace: pa.Table, *, finding: str = "") -> Figure:
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
    incident_lines(fig, trace)
    fig.update_layout(showlegend=True, legend={"orientation": "h", "x": 0, "y": 1.05, "yanchor": "bottom"})
    first = next(name for name, values in found.items() if len(values))
    title = label(finding, most=300) or finding_of(found[first], first)
    fig = finish(fig, title=title, note=_NOTE, height=280 + 190 * rows)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 84)


def finding_of(values: pd.DataFrame, name: str) -> str:
    """What a panel shows, in a sentence."""
    known = values[values["value"].notna()]
    top = known.loc[known["value"].idxmax()]
    at = f"at {top['time_us'] / 1e6:,.4g} s"
    if name == "ownership history":
        n = int(((known["value"] == 1) & (known.groupby("series")["value"].shift(1, fill_value=0) == 0)).sum())
        return f"Ownership history: {count(n, 'election')} among {count(known['series'].nunique(), 'capture')}"
    of = "" if top["series"] == GLOBAL else f" ({label(top['series'])})"
    unit = PANELS[name].unit.split(", ")[-1]
    return f"{name[0].upper()}{name[1:]}: at most {top['value']:,.4g} {unit}{of}, {at}"


def _order(values: pd.DataFrame) -> list[str]:
    """Series in their order: states as tables go through them, others by name; of many those that are largest."""
    names = set(values["series"])
    if names <= set(STATE_LOOK):
        return [s for s in STATE_LOOK if s in names]
    largest = values.groupby("series")["value"].max().sort_values(ascending=False, kind="stable").index[:_MOST]
    return sorted(largest, key=natural)


def _lines(values: pd.DataFrame, name: str, order: list[str]) -> list[Scatter]:
    panel, captures = PANELS[name], _numbers(order)
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
            hovertemplate="%{y:,.4g} at %{x:.3f} s<extra>" + label(series) + "</extra>",
        )  # fmt: skip
        out.append(_marked(drawn, series, name))
    return out


def _marked(drawn: Scatter, series: str, name: str) -> Scatter:
    if name == "slowest table":
        return marked(drawn, Selection(table=series.removeprefix("table ")))
    return marked(drawn, Selection(capture=series)) if series.startswith("capture-") else drawn


def _numbers(order: list[str]) -> Mapping[str, int]:
    """The look of each series: a capture's is that of its number, wherever it is drawn."""
    taken = {s: int(s.rsplit("-", 1)[1]) - 1 for s in order if s.startswith("capture-") and s[8:].isdigit()}
    rest = [s for s in order if s not in taken]
    return {**taken, **{s: i + len(taken) for i, s in enumerate(rest)}}
