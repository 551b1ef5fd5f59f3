"""Scan and stream: transactions on a time axis, what the incremental scan gives of them, and what streams after it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.look import GREY, WRONG, legend_above
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.pipeline.tables import shown
from ticdc_lab.words import count, rounded

_LOOK = {
    "prewrite": ("#E69F00", "triangle-right"), "committed": ("#0072B2", "diamond"), "commit": ("#009E73", "circle"),
    "rollback": (WRONG, "x"), "initialized": (GREY, "line-ns-open"),
}  # fmt: skip
_SHIFT = {"prewrite": 0.14, "committed": -0.14}
"""What a scan gives comes at once, so that its marks need a place each."""

_SHORT = 0.3
"""Of the axis: so short transactions have one label."""

_ABOVE = {kind: "top center" if kind == "committed" else "bottom center" for kind in _LOOK}
_BY = ("scan", "stream")
_ROW_PX = 52
_NO_NAMES: Mapping[int, str] = MappingProxyType({})
_NOTE = (
    "Above, transactions from begin to commit; the shade is what the scan reads: all after the checkpoint_ts in its "
    "snapshot. Below, what it and the stream give: a lock comes as a prewrite, and its commit later, in the stream."
)


def scan_and_stream(
    transactions: pa.Table | pd.DataFrame, events: pa.Table | pd.DataFrame, *, checkpoint_ts: int, scanned_us: int,
    names: Mapping[int, str] = _NO_NAMES,
) -> Figure:  # fmt: skip
    """Draw how a changefeed begins.

    Parameters
    ----------
    transactions
        ``name``, ``start_ts`` and ``commit_ts`` (null where it has not ended).
    events
        ``at_us``, ``by`` (``scan`` or ``stream``), ``type`` (as in
        :class:`ticdc_lab.simulate.pipeline.cdc_messages.KvRow`), ``key``, ``start_ts`` and ``commit_ts`` (0 for none).
    checkpoint_ts
        Where the changefeed begins, exclusive.
    scanned_us
        When the snapshot was taken, µs.
    names
        How timestamps are called, TSO to ``@TS1``; others are written as moments.
    """
    own, given = _frame(transactions), _frame(events)
    if own.empty:
        return sentence("No transaction", "There was nothing to scan and nothing to stream.")
    end_us = max([scanned_us, *given["at_us"], *map(us_of, map(int, (*own["start_ts"], *own["commit_ts"].dropna())))])
    first_us = min(us_of(checkpoint_ts), *(us_of(int(t)) for t in own["start_ts"]), scanned_us)
    span = max(1, end_us - first_us)
    last_s = (end_us + 0.08 * span) / 1e6
    fig = Figure([*_bars(own, first_us / 1e6, last_s, names), *_marks(given, len(own), names)])
    fig.add_vrect(x0=us_of(checkpoint_ts) / 1e6, x1=scanned_us / 1e6, fillcolor="#0072B2", opacity=0.10, line_width=0)
    for at_us, text in (
        (us_of(checkpoint_ts), f"checkpoint_ts {_moment(checkpoint_ts, names)}"),
        (scanned_us, "snapshot"),
    ):
        line = {"color": GREY, "width": 2, "dash": "dot"}
        fig.add_vline(x=at_us / 1e6, line=line, annotation_text=text)
    rows = [*(label(n) for n in own["name"]), "the scan gives", "the stream gives"]
    fig.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=rows, range=[len(rows) - 0.3, -1.3], showgrid=False, zeroline=False
    )  # fmt: skip
    low_s = (first_us - 0.05 * span) / 1e6
    fig.update_xaxes(title_text="virtual time, s", zeroline=False, range=[low_s, last_s])
    fig.update_layout(barmode="overlay", legend=legend_above(1.04))
    title = finding_of(own, given)
    return finish(fig, title=title, note=_NOTE, height=270 + _ROW_PX * len(rows), above_px=52)


def finding_of(own: pd.DataFrame, given: pd.DataFrame) -> str:
    """Describe what came how, and whether something came twice or not at all."""
    said = []
    for by in _BY:
        types = given[(given["by"] == by) & (given["type"] != "initialized")]["type"].value_counts(sort=False)
        said.append(f"the {by} gives {' and '.join(f'{n:,} {t}' for t, n in types.items()) or 'nothing'}")
    ends = given[given["type"].isin(["commit", "committed"])]
    twice = int((ends.groupby(["key", "start_ts"]).size() > 1).sum())
    committed = set(own[own["commit_ts"].notna()]["start_ts"].astype("int64"))
    missing = len(committed - set(ends["start_ts"]))
    end = "no change comes twice, none is missing"
    if twice or missing:
        lost = count(missing, "transaction is", "transactions are")
        end = f"{count(twice, 'change comes', 'changes come')} twice, {lost} missing"
    return f"{said[0][0].upper()}{said[0][1:]}, {said[1]}: {end}"


def _frame(table: pa.Table | pd.DataFrame) -> pd.DataFrame:
    """Timestamps stay integers: a null would make them floats."""
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get) if isinstance(table, pa.Table) else table


def _bars(own: pd.DataFrame, first_s: float, last_s: float, names: Mapping[int, str]) -> list[Scatter]:
    """A line from begin to commit; an open one runs to the end, dashed."""
    out = []
    for y, r in enumerate(own.to_dict("records")):
        goes_on = pd.isna(r["commit_ts"])
        start_s = us_of(int(r["start_ts"])) / 1e6
        end_s = last_s if goes_on else us_of(int(r["commit_ts"])) / 1e6
        begin = f"begin {_moment(int(r['start_ts']), names)}"
        end = "open" if goes_on else f"commit {_moment(int(r['commit_ts']), names)}"
        short = end_s - start_s < _SHORT * (last_s - first_s)
        texts = [f"{begin}, {end}", ""] if short else [begin, "" if goes_on else end]
        out.append(
            Scatter(
                x=[start_s, end_s], y=[y, y], mode="lines+markers+text", text=texts,
                textposition=["top right", "top left"], hovertext=[f"{label(r['name'])}: {begin}, {end}"] * 2,
                line={"color": GREY, "width": 6, "dash": "dot" if goes_on else "solid"}, hoverinfo="text",
                marker={"size": [12, 0 if goes_on else 12], "color": GREY}, showlegend=False,
            )
        )  # fmt: skip
    return out


def _marks(given: pd.DataFrame, first: int, names: Mapping[int, str]) -> list[Scatter]:
    out = []
    for kind, (color, symbol) in _LOOK.items():
        mine = given[given["type"] == kind]
        if mine.empty:
            continue
        texts = ["" if kind == "initialized" else label(shown(int(k))) for k in mine["key"]]
        low = first + _SHIFT.get(kind, 0.0)
        marker = {"symbol": symbol, "size": 14, "color": color, "line": {"width": 2, "color": color}}
        out.append(
            Scatter(
                x=[float(at) / 1e6 for at in mine["at_us"]], y=[low + _BY.index(by) for by in mine["by"]],
                mode="markers+text", text=texts, textposition=_ABOVE[kind], name=kind, marker=marker,
                hovertext=[_hover(r, names) for r in mine.to_dict("records")], hoverinfo="text",
            )
        )  # fmt: skip
    return out


def _hover(r: Mapping[Any, Any], names: Mapping[int, str]) -> str:
    if r["type"] == "initialized":
        return f"the scan is done at {rounded(r['at_us'] / 1e6, 6)} s"
    commit = f", commit_ts {_moment(int(r['commit_ts']), names)}" if r["commit_ts"] else ""
    stamps = f"start_ts {_moment(int(r['start_ts']), names)}{commit}"
    at = f"at {rounded(r['at_us'] / 1e6, 6)} s"
    return f"{r['type']} of {label(shown(int(r['key'])))} by the {r['by']}: {stamps}<br>{at}"


def _moment(ts: int, names: Mapping[int, str]) -> str:
    return label(names[ts]) if ts in names else f"{us_of(ts) / 1e6:,.3f} s"
