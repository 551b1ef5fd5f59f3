"""Findings of an audit: how many of each guarantee, and the fewest messages that show one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ticdc_lab.events.tso import tso_words
from ticdc_lab.figures.figure import Bar, Figure, Scatter
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import GREY, WRONG, count, finish, hatched, label, look, sentence

# Violations: how many findings of each guarantee, by table.


_NOTE_OF_VIOLATIONS = (
    "Each bar is one guarantee of TiCDC, split by table. If a bar has one table, suspect its dispatch rule; if it "
    "has all tables, suspect the topic or the program that recorded it."
)
_TABLES = 7


def violations(findings: pd.DataFrame) -> Figure:
    """Draw the findings of :func:`ticdc_lab.audit.audit` by guarantee and table, without severity info."""
    counted = findings[findings["severity"] != "info"] if len(findings) else findings
    if counted.empty:
        return sentence("No guarantee is broken", "The audit found no violation in what could be checked on this log.")
    tables = counted["table"].fillna("(no table)")
    ranked = [str(t) for t in sorted(tables.unique(), key=lambda t: (-int((tables == t).sum()), str(t)))]
    named, rest = ranked[:_TABLES], ranked[_TABLES:]
    guarantees = sorted(counted["guarantee"].unique(), key=lambda g: (-int((counted["guarantee"] == g).sum()), g))
    fig = Figure()
    groups = [(label(t), [t]) for t in named] + ([(f"{len(rest)} other tables", rest)] if rest else [])
    for k, (name, members) in enumerate(groups):
        mine = counted[tables.isin(members)]
        n = [int((mine["guarantee"] == g).sum()) for g in guarantees]
        bars = Bar(
            x=n,
            y=[readable(g) for g in guarantees],
            orientation="h",
            name=name,
            marker=hatched(k),
            insidetextanchor="middle",
            textangle=0,
            text=[str(v or "") for v in n],
            hovertext=[f"{count(v, 'finding')}, {name}" for v in n],
            hoverinfo="text",
        )
        table = members[0] if len(members) == 1 and members[0] in set(counted["table"]) else None
        fig.add_trace(marked(bars, [Selection(guarantee=g, table=table) for g in guarantees]))
    fig.update_layout(barmode="stack", showlegend=True)
    fig.update_yaxes(autorange="reversed")
    fig.update_xaxes(title_text="findings", rangemode="tozero")
    return finish(
        fig,
        title=("At least " if is_capped(findings) else "") + _finding(counted, guarantees),
        note=_NOTE_OF_VIOLATIONS,
        height=240 + 46 * len(guarantees),
    )


def is_capped(findings: pd.DataFrame) -> bool:
    """Whether the audit left findings out, which it says in one of severity info."""
    said = findings[findings["severity"] == "info"]["message"] if len(findings) else pd.Series(dtype=str)
    return bool(said.astype(str).str.contains("are not listed", regex=False).any())


def readable(guarantee: str) -> str:
    """``rows_stay_in_one_partition`` as words."""
    return label(guarantee.replace("_", " "))


def _finding(counted: pd.DataFrame, guarantees: list[str]) -> str:
    errors = int((counted["severity"] == "error").sum())
    warnings = len(counted) - errors
    parts = [count(errors, "error")] if errors else []
    parts += [count(warnings, "warning")] if warnings else []
    most = int((counted["guarantee"] == guarantees[0]).sum())
    if len(guarantees) == 1:
        return f"{' and '.join(parts)}, all of them: {readable(guarantees[0])}"
    return f"{' and '.join(parts)} in {len(guarantees)} guarantees; most ({most:,}): {readable(guarantees[0])}"


# Counterexample lanes: the fewest messages that show why a guarantee is broken.


_NOTE_OF_COUNTEREXAMPLE = (
    "One lane per partition. The grey arrow is the order upstream (commit ts). The dashed one is an order in which a "
    "consumer may take the same messages, because Kafka orders nothing across partitions: then the ringed value stays."
)
_ONE_TRANSACTION = (
    "One lane per partition. Both messages belong to one transaction, and Kafka orders nothing across partitions. A "
    "consumer that has read only one of the two lanes shows half of the transaction."
)
_SAME_LANE = (
    "One lane per partition, messages in order of commit ts. The dashed arrow is the order in which the partition "
    "delivers them: the ringed message comes last, and its value stays."
)


def _when(commit_ts: int | None) -> str:
    return "no commit ts" if commit_ts is None else f"commit_ts {tso_words(int(commit_ts))}"


def counterexample(finding: Mapping[str, Any]) -> Figure:
    """Draw the evidence of one row of :data:`ticdc_lab.events.schema.FINDINGS`."""
    given = finding.get("evidence")
    evidence = [] if given is None else [dict(e) for e in given]
    if not evidence:
        return sentence(_title(finding), "The finding names no single message: it is about what is missing.")
    evidence.sort(key=lambda e: (_known(e["commit_ts"]), _known(e["partition"]), _known(e["offset"])))
    lanes = sorted({int(e["partition"]) for e in evidence if e["partition"] is not None})
    place = {p: len(lanes) - 1 - i for i, p in enumerate(lanes)}
    points = [
        (i, place.get(int(e["partition"]) if e["partition"] is not None else -1, 0), e) for i, e in enumerate(evidence)
    ]
    fig = Figure()
    for p in lanes:
        fig.add_hline(y=place[p], line={"width": 1, "color": GREY, "dash": "dot"})
    for p in lanes:
        mine = [(x, e) for x, _, e in points if e["partition"] == p]
        style = look(p)
        points_of_lane = Scatter(
            x=[x for x, _ in mine],
            y=[place[p]] * len(mine),
            mode="markers+text",
            marker={"size": 18, "color": style["color"], "symbol": style["symbol"]},
            text=[f"{label(e.get('text') or 'offset ' + str(e['offset']))}<br> " for _, e in mine],
            textposition="top center",
            hovertext=[f"partition {p}, offset {e['offset']}<br>{_when(e['commit_ts'])}" for _, e in mine],
            hoverinfo="text",
            name=f"partition {p}",
            showlegend=False,
        )
        fig.add_trace(marked(points_of_lane, [message_of(finding, e) for _, e in mine]))
    _arrows(fig, points)
    fig.update_xaxes(
        title_text="order upstream (commit ts)",
        tickvals=list(range(len(evidence))),
        ticktext=[str(e["commit_ts"]) if e["commit_ts"] is not None else "no commit ts" for e in evidence],
        range=[-0.5, len(evidence) - 0.5],
        showgrid=False,
    )
    ticks = [f"partition {p}" for p in lanes]
    fig.update_yaxes(tickvals=[place[p] for p in lanes], ticktext=ticks, range=[-1.1, len(lanes) - 0.2], showgrid=False)
    torn = len(lanes) > 1 and evidence[0]["commit_ts"] == evidence[-1]["commit_ts"] is not None
    note = _ONE_TRANSACTION if torn else _NOTE_OF_COUNTEREXAMPLE if len(lanes) > 1 else _SAME_LANE
    return finish(fig, title=_title(finding), note=note, height=276 + 64 * len(lanes))


def message_of(finding: Mapping[str, Any], evidence: Mapping[str, Any]) -> Selection:
    """The message that a piece of evidence names, as it was recorded, with the finding's table and row."""
    table, key = (finding[c] if isinstance(finding.get(c), str) else None for c in ("table", "key"))
    return Selection(
        partition=evidence.get("recorded_partition", evidence["partition"]), table=table, key=key,
        offset=evidence["offset"], commit_ts=evidence["commit_ts"],
    )  # fmt: skip


def _title(finding: Mapping[str, Any]) -> str:
    where = [label(finding[c]) for c in ("table", "key") if isinstance(finding.get(c), str)]
    told = label(finding.get("message") or finding.get("guarantee") or "", most=220)
    return f"{' '.join(where)}: {told}" if where else told


def _arrows(fig: Figure, points: list[tuple[int, int, dict[str, Any]]]) -> None:
    if len(points) < 2:
        return
    (x0, y0, first), (x1, y1, last) = points[0], points[-1]
    if first["commit_ts"] is not None and first["commit_ts"] == last["commit_ts"]:
        line = {"color": WRONG, "width": 2, "dash": "dash"}
        fig.add_trace(Scatter(x=[x0, x1], y=[y0, y1], mode="lines", line=line, hoverinfo="skip", showlegend=False))
        return
    _arrow(fig, (x0, y0), (x1, y1), color=GREY, shift=0.0, dash=False)
    _arrow(fig, (x1, y1), (x0, y0), color=WRONG, shift=-0.22, dash=True)
    ring = {"symbol": "circle-open", "size": 32, "color": WRONG, "line": {"width": 3}}
    fig.add_trace(
        Scatter(x=[x0], y=[y0], mode="markers", marker=ring, hoverinfo="skip", showlegend=False, name="stays, wrongly")
    )
    text = {"text": "applied last: the older value stays", "font": {"color": WRONG}, "showarrow": False}
    fig.add_annotation(x=x0, y=y0, yshift=-44, **text)


def _arrow(
    fig: Figure, tail: tuple[float, float], head: tuple[float, float], *, color: str, shift: float, dash: bool
) -> None:
    """A line with a head, kept clear of the markers at both ends."""
    (x0, y0), (x1, y1) = tail, head
    a, b = 0.12, 0.88
    xs, ys = [x0 + a * (x1 - x0), x0 + b * (x1 - x0)], [y0 + a * (y1 - y0) + shift, y0 + b * (y1 - y0) + shift]
    line = {"color": color, "width": 2, "dash": "dash" if dash else "solid"}
    fig.add_trace(Scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False))
    near = [v[0] + 0.97 * (v[1] - v[0]) for v in (xs, ys)]
    fig.add_annotation(
        x=xs[1], y=ys[1], ax=near[0], ay=near[1], xref="x", yref="y", axref="x", ayref="y",
        showarrow=True, arrowhead=2, arrowsize=1.4, arrowwidth=2, arrowcolor=color, text="", opacity=1,
    )  # fmt: skip


def _known(v: Any) -> int:
    return -1 if v is None else int(v)
