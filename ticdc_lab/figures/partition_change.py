"""Another number of partitions: the timeline of one procedure, and what each procedure breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ticdc_lab.figures.figure import Bar, Figure, Scatter
from ticdc_lab.figures.look import GREY, OKABE_ITO, PATTERNS, WRONG, hatch, look
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.words import count, rounded

_NOTE = (
    "One lane for the owner, each processor and each partition; 0 is the decision. The grey wall is the time in "
    "which a processor writes nothing. Hatched rows are written twice: consumers drop the first and wait for the "
    "second. Rows of the old number that come after the Admin event are too late."
)
_NOTE_ADD = (
    "One lane for each processor and each partition; 0 is when partitions are added. There is no wall: each processor "
    "uses the new number from its own moment on, and nothing makes a consumer wait for the old partitions."
)
_LOOKS: Mapping[str, tuple[str, str, str]] = {
    "old": ("old number", OKABE_ITO[0], ""),
    "dropped": ("old number, dropped", OKABE_ITO[0], "/"),
    "stray": ("old number, too late", WRONG, "x"),
    "again": ("new number, again", OKABE_ITO[2], "/"),
    "new": ("new number", OKABE_ITO[2], ""),
}
_LANES = 24
_MARKS = {"decision": "star", "Admin event": "diamond", "restart": "triangle-right"}

FAULTS: Mapping[str, str] = {
    "changes_are_applied": "lost",
    "changes_are_applied_once": "applied twice",
    "changes_are_applied_in_order": "may be applied too early",
}


def partition_change(plan: Mapping[str, Any], *, writes: pd.DataFrame) -> Figure:
    """Draw the timeline of a change of the number of partitions.

    Parameters
    ----------
    plan
        :meth:`ticdc_lab.repartition.plan.PartitionPlan.as_dict`.
    writes
        :func:`ticdc_lab.repartition.compare.writes`.
    """
    if writes.empty:
        return sentence("There is no row to show", "The log has no row change with a commit_ts.")
    begin, end = float(writes["from_ms"].min()) / 1000, float(writes["to_ms"].max()) / 1000
    fig = Figure()
    lanes = ["owner"]
    last_ms = max([plan["start_ms"], *[p[c] for p in plan["processors"] for c in ("stop_ms", "start_ms")]])
    # the stretch to show: the decision in the middle of what happens around it
    span = max((last_ms - plan["at_ms"]) / 1000, 0.001)
    shown = [max(begin, -span), max(min(end, 2.5 * span), 1.2 * span)]
    lanes += _processors(fig, plan, begin, end)
    thin = 0.012 * (shown[1] - shown[0])
    lanes += _partitions(fig, writes, thin=thin)
    if plan["admin_ms"] is not None:
        moments = dict(zip(_MARKS, (plan["at_ms"], plan["admin_ms"], plan["start_ms"]), strict=True))
    else:
        moments = {"decision": plan["at_ms"]}
    for k, (name, at_ms) in enumerate(moments.items()):
        x = (at_ms - plan["at_ms"]) / 1000
        marker = {"symbol": _MARKS[name], "size": 15, "color": look(k + 3)["color"]}
        fig.add_trace(Scatter(x=[x], y=["owner"], mode="markers", marker=marker, name=name, hoverinfo="name+x"))
        fig.add_vline(x=x, line={"width": 1, "dash": "dot", "color": look(k + 3)["color"]})
    fig.update_layout(barmode="overlay", bargap=0.35, showlegend=True, legend={"traceorder": "normal"})
    fig.update_xaxes(title_text="s since the decision (clock of the TSO)", range=shown)
    fig.update_yaxes(categoryorder="array", categoryarray=lanes, autorange="reversed", type="category")
    note = (_NOTE if plan["admin_ms"] is not None else _NOTE_ADD) + _left_out(plan, writes, shown, thin)
    return finish(fig, title=_finding(plan, writes), note=note, height=300 + 24 * len(lanes))


def _left_out(plan: Mapping[str, Any], writes: pd.DataFrame, shown: list[float], thin: float) -> str:
    """What of the change is not drawn, or drawn longer than it was."""
    partitions, processors = int(writes["partition"].nunique()), len(plan["processors"])
    few = [f"{_LANES} of {count(n, what)}" for n, what in ((processors, "processor"), (partitions, "partition"))
           if n > _LANES]  # fmt: skip
    lasts_s = (writes["to_ms"] - writes["from_ms"]) / 1000
    ends = (writes["from_ms"].min() / 1000, writes["to_ms"].max() / 1000)
    said = f" {' and '.join(few)} are drawn." if few else ""
    if ends[0] < shown[0] or ends[1] > shown[1]:
        said += f" The log goes from {rounded(float(ends[0]))} s to {rounded(float(ends[1]))} s; zoom out to see it."
    return said + f" What is shorter than {rounded(thin)} s is drawn so long." * bool((lasts_s < thin).any())


_LEAST_PX = 560
"""The width in which no count lies over the bar beside it."""


def procedure_faults(faults: pd.DataFrame) -> Figure:
    """Draw what a consumer makes of each procedure, side by side.

    Parameters
    ----------
    faults
        :func:`ticdc_lab.repartition.compare.compared`.
    """
    fig = Figure()
    for k, (procedure, mine) in enumerate(faults.groupby("procedure", sort=False)):
        style = look(k)
        pattern = {"shape": PATTERNS[k], "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.75)", "size": 8}
        fig.add_trace(
            Bar(
                x=[FAULTS[g].replace("applied ", "applied<br>") for g in mine["guarantee"]], y=mine["changes"],
                name=label(procedure), marker={"color": style["color"], "pattern": pattern},
                text=[f"{n:,}" for n in mine["changes"]], textposition="outside", constraintext="none",
                cliponaxis=False, hovertext=[_example(r) for r in mine.to_dict("records")], hoverinfo="text",
            )
        )  # fmt: skip
    fig.update_layout(barmode="group", showlegend=True).update_xaxes(tickangle=0)
    fig.update_yaxes(title_text="changes", rangemode="tozero", type="linear")
    broken = faults[faults["changes"] > 0].drop_duplicates("procedure").to_dict("records")
    worst = [f"{label(first['procedure'])}: {_example(first)}" for first in broken]
    note = " ".join([*worst, "On screen: hover a bar for the messages that show it."])
    return finish(fig, title=_verdict(faults), note=note, height=460, least_px=_LEAST_PX)


def _processors(fig: Figure, plan: Mapping[str, Any], begin: float, end: float) -> list[str]:
    """Bars of the processors; their lanes."""
    shown = plan["processors"][:_LANES]
    names = [label(p["name"]) for p in shown]
    stops, starts = ([(p[c] - plan["at_ms"]) / 1000 for p in shown] for c in ("stop_ms", "start_ms"))
    parts = [("old", [begin] * len(shown), stops), ("new", starts, [max(end, s) for s in starts])]
    for what, left, right in parts:
        _bar(fig, names, left, right, _LOOKS[what][1], "", f"with the {_LOOKS[what][0]}", None, thin=0.0)
    if plan["admin_ms"] is not None:
        paused = [f"paused {1000 * (b - a):,.0f} ms" for a, b in zip(stops, starts, strict=True)]
        _bar(fig, names, stops, starts, GREY, ".", "the wall", paused, thin=0.0)
    return names


def _partitions(fig: Figure, writes: pd.DataFrame, *, thin: float) -> list[str]:
    """Bars of the partitions; their lanes."""
    numbers = sorted(writes["partition"].unique())[:_LANES]
    for what, (name, color, pattern) in _LOOKS.items():
        mine = writes[(writes["what"] == what) & writes["partition"].isin(numbers)]
        if len(mine):
            said = [count(int(n), "row") for n in mine["rows"]]
            lanes = [f"partition {p}" for p in mine["partition"]]
            left, right = (list(mine[c].astype(float) / 1000) for c in ("from_ms", "to_ms"))
            _bar(fig, lanes, left, right, color, pattern, name, said, thin=thin)
    return [f"partition {p}" for p in numbers]


def _bar(
    fig: Figure, lanes: list[str], left: list[float], right: list[float], color: str, pattern: str, name: str,
    said: list[str] | None, *, thin: float,
) -> None:  # fmt: skip
    """Bars from ``left`` to ``right``, at least ``thin`` wide so that a moment shows."""
    shape = hatch(pattern, solidity=0.35, color="rgba(255,255,255,0.9)")
    fig.add_trace(
        Bar(
            y=lanes, x=[max(b - a, thin) for a, b in zip(left, right, strict=True)], base=left, orientation="h",
            name=name, marker={"color": color, "pattern": shape, "line": {"width": 0}},
            hovertext=[f"{lane}: {name} {what}" for lane, what in zip(lanes, said or [""] * len(lanes), strict=True)],
            showlegend=said is not None, hoverinfo="text",
        )
    )  # fmt: skip


def _finding(plan: Mapping[str, Any], writes: pd.DataFrame) -> str:
    rows = {w: int(writes.loc[writes["what"] == w, "rows"].sum()) for w in _LOOKS}
    what = f"From {plan['before']} to {plan['after']} partitions, {label(plan['procedure'])}"
    if plan["admin_ms"] is None:
        return f"{what}: no pause and no barrier, {count(rows['new'], 'row')} with the new number"
    first = min((p["start_ms"] for p in plan["processors"]), default=plan["start_ms"]) - plan["at_ms"]
    stray = f", {rows['stray']:,} of the old number too late, after the Admin event" if rows["stray"] else ""
    return f"{what}: {first:,} ms of pause, {count(rows['again'], 'row')} sent twice{stray}"


def _verdict(faults: pd.DataFrame) -> str:
    total = {str(p): int(mine["changes"].sum()) for p, mine in faults.groupby("procedure", sort=False)}
    clean = [p for p, n in total.items() if n == 0]
    broken = [f"{label(p)} breaks {count(n, 'change')}" for p, n in total.items() if n]
    keep = "keeps" if len(clean) == 1 else "keep"
    said = [f"{' and '.join(map(label, clean))} {keep} every change"] if clean else []
    return "; ".join([*said, *broken])


def _example(r: Mapping[Any, Any]) -> str:
    if not r["changes"]:
        return f"no change is {FAULTS[r['guarantee']]}."
    places = [f"partition {e['partition']} offset {e['offset']}" for e in r["evidence"]]
    table = label(r["table"]).replace(" ", " ")
    return f"{count(int(r['changes']), 'change')} {FAULTS[r['guarantee']]}, first in {table}: {', then '.join(places)}."
