"""The course of a watch: the lag of each partition, and what is read a second."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ticdc_lab.figures.figure import Figure, Scatter, subplots
from ticdc_lab.figures.look import look
from ticdc_lab.figures.theme import clock, finish, label, on_clock, sentence

MOST = 8
"""Partitions that have a line of their own: those with the greatest lag now."""

_NOTE = (
    "A lag that rises by a second each second is a resolved_ts that is stuck. Rates are of the messages that the watch "
    "read: above zero while the lag rises, the changefeed or one partition is late, not the watch."
)


def watch_curves(lags: pd.DataFrame, rates: pd.DataFrame, *, title: str) -> Figure:
    """Draw the course of a watch.

    Parameters
    ----------
    lags
        ``at_ms``, ``topic``, ``partition`` and ``lag_s``: the age of the resolved_ts.
    rates
        ``at_ms``, ``rows_per_s`` and ``messages_per_s`` since the sample before.
    title
        The finding in words.
    """
    if rates.empty:
        return sentence(title, "The first rate comes with the second look, in about a second.")
    fig = subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.12)
    last = lags.groupby(["topic", "partition"], sort=True)["lag_s"].last().sort_values(ascending=False, kind="stable")
    for k, (topic, partition) in enumerate(sorted(last.index[:MOST])):
        own = lags[(lags["topic"] == topic) & (lags["partition"] == partition)]
        style = look(k)
        name = label(f"{topic} {partition}") if lags["topic"].nunique() > 1 else f"partition {partition}"
        fig.add_trace(
            Scatter(
                x=clock(own["at_ms"]).tolist(), y=own["lag_s"].tolist(), mode="lines", name=name,
                line={"color": style["color"], "dash": style["dash"], "width": 2},
                hovertemplate="%{y:,.1f} s behind at %{x}<extra>" + name + "</extra>",
            ), 1, 1,
        )  # fmt: skip
    for column, name, k in (("rows_per_s", "row changes read", MOST), ("messages_per_s", "messages read", MOST + 1)):
        style = look(k)
        fig.add_trace(
            Scatter(
                x=clock(rates["at_ms"]).tolist(), y=np.round(rates[column], 1).tolist(), mode="lines", name=name,
                line={"color": style["color"], "dash": style["dash"], "width": 2},
                hovertemplate="%{y:,.0f} " + name + " a second at %{x}<extra></extra>",
            ), 2, 1,
        )  # fmt: skip
    fig.update_yaxes(title_text="lag, s", rangemode="tozero", row=1, col=1)
    fig.update_yaxes(title_text="per second", rangemode="tozero", row=2, col=1)
    fig.update_xaxes(**on_clock("time"), row=2, col=1)
    fig.update_xaxes(type="date", row=1, col=1)
    more = f" Of {len(last)} partitions the {MOST} with the greatest lag are drawn." if len(last) > MOST else ""
    return finish(fig, title=title, note=_NOTE + more, height=520)
