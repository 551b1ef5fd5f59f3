"""The fewest messages that show one finding: a drawing for each kind of finding, and none where none fits.

Kinds come from the audit (``picture`` of :data:`ticdc_lab.audit.guarantees.GUARANTEES`), of the what-if of dispatchers
(:data:`ticdc_lab.dispatch.comparison.MEASURED`) and of consumers (:data:`ticdc_lab.consumer.anomalies.KINDS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ticdc_lab.audit.guarantees import GUARANTEES
from ticdc_lab.audit.guarantees.guarantee import Picture
from ticdc_lab.events.tso import clock_words, tso_words, with_clock
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.look import GREY, WRONG, look
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.words import some_of

Message = Mapping[str, Any]
"""A piece of evidence: ``partition``, ``offset``, ``commit_ts``, and ``text`` where it is the message's content."""

Drawing = Callable[[Mapping[str, Any], list[Message]], Figure]


def counterexample(finding: Mapping[str, Any], *, lane: str = "partition") -> Figure:
    """Draw the evidence of one finding.

    Parameters
    ----------
    finding
        A row of :data:`ticdc_lab.events.schema.FINDINGS`, or of a frame with its columns.
    lane
        What messages lie in: ``partition``, or ``stream`` of a storage sink.

    Returns
    -------
    Figure
        Where no drawing fits its kind, or it names too few messages, a sentence (:func:`is_drawn` checks).
    """
    drawing, evidence = _drawing(finding), _evidence(finding)
    if drawing is not None:
        return drawing({"lane": lane, "drawn": _DRAWN[finding["guarantee"]], **finding}, evidence)
    named = some_of([f"{lane} {e['partition']} offset {e['offset']}" for e in evidence], most=4)
    why = f"It names {named}." if evidence else "It names no message: it is about what is missing."
    return sentence(_title(finding), why)


def is_drawn(finding: Mapping[str, Any]) -> bool:
    """Whether a drawing fits a finding."""
    return _drawing(finding) is not None


def message_of(finding: Mapping[str, Any], evidence: Message) -> Selection:
    """The message that a piece of evidence names, as it was recorded, with the finding's table and row."""
    table, key = (finding[c] if isinstance(finding.get(c), str) else None for c in ("table", "key"))
    return Selection(
        partition=evidence.get("recorded_partition", evidence["partition"]), table=table, key=key,
        offset=evidence["offset"], commit_ts=evidence["commit_ts"],
    )  # fmt: skip


def _evidence(finding: Mapping[str, Any]) -> list[Message]:
    given = finding.get("evidence")
    return [] if given is None else [dict(e) for e in given]


def _drawing(finding: Mapping[str, Any]) -> Drawing | None:
    drawn, evidence = _DRAWN.get(str(finding.get("guarantee"))), _evidence(finding)
    lanes, dated = {e["partition"] for e in evidence}, all(e["commit_ts"] is not None for e in evidence)
    if drawn is None:
        return None
    if drawn.form == "absent":
        missing = _lane(finding)
        if missing in lanes and drawn.note:
            return _contents
        return _absent if missing is not None and lanes - {missing, None} else None
    if len(evidence) < 2 or None in lanes:
        return None
    if drawn.form == "below" or (drawn.form == "moved" and len(lanes) == 1):
        return _fall if dated and len(lanes) == 1 else None
    if drawn.form == "moved":
        times = {e["commit_ts"] for e in evidence}
        return _moved if dated and len(times) > 1 else _apart
    if drawn.form == "sides":
        return _wrong_side if dated else None
    return {"gap": _gap, "contents": _contents, "torn": _torn}[drawn.form]


# ``row goes back`` and the next are of consumers; the last while the number of partitions changes.
_MOVES = ("row_order", "table_order", "row goes back", "lost update", "changes_are_applied_in_order")
_DRAWN = {
    **dict.fromkeys(_MOVES, GUARANTEES["rows_stay_in_one_partition"].picture),
    **dict.fromkeys(("transactions", "torn transaction"), Picture("torn")),
    **dict.fromkeys(("row before its DDL", "row after its DDL"), Picture("sides")),
    **{name: g.picture for name, g in GUARANTEES.items()},
}


def _moved(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """Two changes of a row, or of a table, in two partitions: Kafka orders nothing across them."""
    fig, points = _lanes(finding, sorted(evidence, key=_upstream), axis="order upstream (commit ts)")
    first, last = points[0], points[-1]
    _arrow(fig, first, last, color=GREY, shift=0.0, dash=False)
    _arrow(fig, last, first, color=WRONG, shift=-0.22, dash=True)
    if finding["guarantee"] == "table_order":
        then = "the table shows the later change of another row first"
    else:
        then = "the ringed value stays"
        _ring(fig, first, "applied last: the older value stays", name="stays, wrongly", above=first[1] > last[1])
    return _finished(
        fig, finding, "One lane per {lane}. The grey arrow is the order upstream (commit ts). The dashed one is an "
        "order in which a consumer may take the same messages, because {across}: then {then}.", then=then,
    )  # fmt: skip


def _apart(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """A row, or a table, in two partitions, and nothing shows the order: one commit_ts, or none."""
    fig, points = _lanes(finding, sorted(evidence, key=_upstream), axis="messages")
    _line(fig, points[0], points[-1], color=WRONG)
    dated = evidence[0]["commit_ts"] is not None
    what = "One change of the row lies in both" if dated else "Changes of the row lie in both"
    then = "one of them after later changes of the row in the other"
    if finding["guarantee"] == "table_order":
        what, then = "Changes of the table lie in both", "either of them first"
    return _finished(
        fig, finding, "One lane per {lane}. {what}, and {across}: a consumer may apply {then}.", what=what, then=then,
    )  # fmt: skip


def _torn(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """One transaction in several partitions."""
    fig, points = _lanes(finding, sorted(evidence, key=_upstream), axis="messages of one transaction")
    _line(fig, points[0], points[-1], color=WRONG)
    return _finished(
        fig, finding, "One lane per {lane}. Both messages belong to one transaction, and {across}. "
        "A consumer that has read only one of the two lanes shows half of the transaction.",
    )  # fmt: skip


def _wrong_side(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """A row change and a DDL that a consumer applied the other way round."""
    fig, points = _lanes(finding, sorted(evidence, key=_upstream), axis="order upstream (commit ts)")
    _arrow(fig, points[0], points[-1], color=GREY, shift=0.0, dash=False)
    _arrow(fig, points[-1], points[0], color=WRONG, shift=-0.22, dash=True)
    return _finished(
        fig, finding, "The grey arrow is the order upstream (commit ts) of the row change and the DDL, the dashed one "
        "the order in which this consumer applied them.",
    )  # fmt: skip


def _fall(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """What a partition delivers later lies below what it had stated: a step down."""
    delivered = sorted(evidence, key=lambda e: (_known(e["offset"]), -_known(e["commit_ts"])))
    levels = sorted({int(e["commit_ts"]) for e in delivered})
    points = [(float(i), float(levels.index(int(e["commit_ts"]))), e) for i, e in enumerate(delivered)]
    (_, high, _), (x, low, _) = points[0], points[-1]
    fig = Figure()
    fig.add_hline(y=high, line={"width": 1, "color": GREY, "dash": "dot"})
    dots = _dots(finding, points, look(int(delivered[0]["partition"])))
    fig.add_trace(dots)
    if high > low:
        _arrow(fig, points[0], points[-1], color=WRONG, shift=0.0, dash=True)
    _ring(fig, points[-1], "", name="too low")
    fig.update_xaxes(
        title_text=f"order of delivery in {finding['lane']} {delivered[0]['partition']}",
        tickvals=[p[0] for p in points], showticklabels=False, range=[-0.5, x + 0.5], showgrid=False, zeroline=False,
    )  # fmt: skip
    fig.update_yaxes(
        tickvals=list(range(len(levels))), automargin=True,
        ticktext=[_when(ts) for ts in levels], range=[-0.8, len(levels) + 0.1], showgrid=False, zeroline=False,
    )  # fmt: skip
    after, what = finding["drawn"].words
    rule = f"After {after} at the dotted line, no {what} may follow below the line; the ringed one does."
    if high == low:
        rule = "A watermark promises that every change up to the line was sent; the ringed one first comes later."
    return _finished(
        fig, finding, f"Messages of one {{lane}} in the order of their offsets, higher is later upstream. {rule}",
        height=390,
    )  # fmt: skip


def _contents(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """Two messages that must show the same content of a row, and do not."""
    kind, message = finding["guarantee"], str(finding.get("message"))
    (left, found), note = finding["drawn"].words, finding["drawn"].note
    left = "deletes the row" if "a row that does not exist" in message else left
    found = "inserts the row again" if "a row that exists" in message else found
    axes = {"row_images_chain": "order upstream (commit ts)", "redeliveries_are_identical": "order of delivery"}
    fig, points = _lanes(
        finding, sorted(evidence, key=_upstream) if kind == "row_images_chain" else evidence,
        axis=axes.get(kind, "messages"), under=(left, found),
    )  # fmt: skip
    (x0, y0, _), (x1, y1, _) = points[0], points[-1]
    _line(fig, points[0], points[-1], color=GREY)
    broken = {"text": "<b>≠</b>", "font": {"color": WRONG, "size": 26}, "showarrow": False, "bgcolor": "rgba(0,0,0,0)"}
    fig.add_annotation(x=(x0 + x1) / 2, y=(y0 + y1) / 2, yshift=16, **broken)
    return _finished(fig, finding, note)


def _gap(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """Offsets that a partition misses, between two messages that are there."""
    low, high = sorted(evidence, key=lambda e: _known(e["offset"]))[:: len(evidence) - 1]
    fig, points = _lanes(finding, [low, high], axis=f"offsets of the {finding['lane']}")
    (x0, y, _), (x1, _, _) = points
    n = int(high["offset"]) - int(low["offset"]) - 1
    place = {"x0": x0 + 0.2, "x1": x1 - 0.2, "y0": y - 0.16, "y1": y + 0.16, "xref": "x", "yref": "y"}
    fig.add_shape(
        type="rect", line={"color": WRONG, "width": 2, "dash": "dash"}, fillcolor="rgba(213,94,0,0.10)", **place
    )
    said = (
        f"offset {low['offset'] + 1} is missing" if n == 1 else f"{n:,} offsets from {low['offset'] + 1:,} are missing"
    )
    fig.add_annotation(x=(x0 + x1) / 2, y=y, yshift=-30, text=said, font={"color": WRONG}, showarrow=False)
    return _finished(
        fig, finding, "A broker gives each message of a partition the next offset. What lay in the dashed box was "
        "compacted, is in quarantine, or was not recorded. The answer about transactions names those that may be torn.",
    )  # fmt: skip


def _absent(finding: Mapping[str, Any], evidence: list[Message]) -> Figure:
    """What every partition must hold: a message of one that has it, and the empty place in the one that does not."""
    missing = _lane(finding)
    has = [e for e in evidence if e["partition"] != missing][:1]
    behind = [e for e in evidence if e["partition"] == missing][:1]
    hole: Message = {"partition": missing, "offset": None, "commit_ts": has[0]["commit_ts"], "text": "missing"}
    fig, points = _lanes(finding, [*has, *behind], axis="order upstream (commit ts)", lanes=[missing])
    place = next(y for y, p in _levels([*has, hole]).items() if p == missing)
    x = points[0][0]
    ring = {"symbol": "circle-open", "size": 24, "color": WRONG, "line": {"width": 3}}
    fig.add_trace(
        Scatter(x=[x], y=[place], mode="markers", marker=ring, hoverinfo="skip", showlegend=False, name="missing")
    )
    fig.add_annotation(
        x=x, y=place, xshift=18, yshift=14, xanchor="left", text=f"not in {finding['lane']} {missing}",
        font={"color": WRONG}, showarrow=False,
    )  # fmt: skip
    _line(fig, points[0], (x, float(place), hole), color=GREY)
    return _finished(
        fig, finding, "One lane per {lane}. The owner sends this event to every partition; the ring is the place "
        "where this one should have it.",
    )  # fmt: skip


# Lanes, marks and arrows.

Point = tuple[float, float, Message]


def _lanes(
    finding: Mapping[str, Any], messages: Sequence[Message], *, axis: str, under: Sequence[str] = (),
    lanes: Sequence[int | None] = (),
) -> tuple[Figure, list[Point]]:  # fmt: skip
    """A lane for each partition, the messages beside each other in their order."""
    place = {int(p): y for y, p in _levels([*messages, *({"partition": p} for p in lanes)]).items()}
    points = [(float(i), float(place[int(e["partition"])]), e) for i, e in enumerate(messages)]
    lowest = min(place.values()) if len(place) > 1 else None  # lines between lanes come to it from above
    fig = Figure()
    for y in place.values():
        fig.add_hline(y=y, line={"width": 1, "color": GREY, "dash": "dot"})
    for p in place:
        mine = [point for point in points if point[2]["partition"] == p]
        if mine:
            fig.add_trace(_dots(finding, mine, look(p), below=place[p] == lowest))
    for (x, height, _), text in zip(points, under, strict=False):
        fig.add_annotation(x=x, y=height, yshift=-44 if height == lowest else -26, text=text, showarrow=False)
    timed = any(m["commit_ts"] for m in messages)
    fig.update_xaxes(
        title_text=axis if timed else axis.replace("order upstream (commit ts)", "messages"),
        tickvals=[x for x, _, _ in points], range=[-0.42, len(points) - 0.58], showgrid=False,
        tickangle=0, tickfont_size=12, zeroline=False,
        ticktext=[_when(e["commit_ts"]) if timed else "" for e in messages],
    )  # fmt: skip
    ticks = [f"{finding['lane']} {p}" for p in place]
    fig.update_yaxes(
        tickvals=list(place.values()), ticktext=ticks, range=[-1.1, len(place) - 0.2], showgrid=False, zeroline=False
    )
    return fig, points


def _levels(messages: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Place of a lane from below to its partition, the lowest partition on top."""
    partitions = sorted({int(e["partition"]) for e in messages})
    return {len(partitions) - 1 - i: p for i, p in enumerate(partitions)}


def _dots(
    finding: Mapping[str, Any], points: Sequence[Point], style: Mapping[str, str], *, below: bool = False
) -> Scatter:
    """Messages of one partition, each with its offset, or what it holds, above or below it."""
    where = f"{finding['lane']} {points[0][2]['partition']}"
    names = [label(e.get("text") or f"offset {e['offset']}") for _, _, e in points]
    dots = Scatter(
        x=[x for x, _, _ in points], y=[y for _, y, _ in points], mode="markers+text",
        marker={"size": 18, "color": style["color"], "symbol": style["symbol"]},
        text=[f"<br>{name}" if below else f"{name}<br> " for name in names],
        textposition="bottom center" if below else "top center", hoverinfo="text", cliponaxis=False,
        hovertext=[f"{where}, offset {e['offset']}<br>{_stated(e['commit_ts'])}" for _, _, e in points],
        name=where, showlegend=False,
    )  # fmt: skip
    marked(dots, [message_of(finding, e) for _, _, e in points])
    return dots


def _finished(fig: Figure, finding: Mapping[str, Any], note: str, *, height: int | None = None, **words: str) -> Figure:
    """Finish it; a note has ``lane`` and ``across`` in braces, and what the caller gives."""
    lanes = len(fig.layout.yaxis.tickvals or [])
    across = len(fig.layout.xaxis.tickvals or [])
    least_px = 90 + _MESSAGE_PX * across
    note = note.format(lane=finding["lane"], across=_ACROSS[finding["lane"]], **words)
    return finish(fig, title=_title(finding), note=note, height=height or 290 + 64 * lanes, least_px=least_px)


_ACROSS = {"partition": "Kafka orders nothing across partitions", "stream": "nothing orders the files of two streams"}
_MESSAGE_PX = 138
"""The width that a message and its time need."""


def _line(fig: Figure, tail: Point, head: Point, *, color: str) -> None:
    line = {"color": color, "width": 2, "dash": "dash"}
    xs, ys = [tail[0], head[0]], [tail[1], head[1]]
    fig.add_trace(Scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False))


def _ring(fig: Figure, at: Point, words: str, *, name: str, above: bool = False) -> None:
    """Ring a message; the words stand on the side of it from which no arrow comes."""
    ring = {"symbol": "circle-open", "size": 32, "color": WRONG, "line": {"width": 3}}
    x, y, _ = at
    fig.add_trace(Scatter(x=[x], y=[y], mode="markers", marker=ring, hoverinfo="skip", showlegend=False, name=name))
    if words:
        fig.add_annotation(x=x, y=y, yshift=56 if above else -52, text=words, font={"color": WRONG}, showarrow=False)
    if words and above:
        fig.update_yaxes(range=[-1.1, y + 1.2])


def _arrow(fig: Figure, tail: Point, head: Point, *, color: str, shift: float, dash: bool) -> None:
    """A line with a head, kept clear of the markers at both ends."""
    (x0, y0, _), (x1, y1, _) = tail, head
    a, b = 0.12, 0.88
    xs, ys = [x0 + a * (x1 - x0), x0 + b * (x1 - x0)], [y0 + a * (y1 - y0) + shift, y0 + b * (y1 - y0) + shift]
    line = {"color": color, "width": 2, "dash": "dash" if dash else "solid"}
    fig.add_trace(Scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False))
    near = [v[0] + 0.9 * (v[1] - v[0]) for v in (xs, ys)]
    fig.add_annotation(
        x=xs[1], y=ys[1], ax=near[0], ay=near[1], xref="x", yref="y", axref="x", ayref="y",
        showarrow=True, arrowhead=2, arrowsize=1.4, arrowwidth=2, arrowcolor=color, text="", opacity=1,
    )  # fmt: skip


def _title(finding: Mapping[str, Any]) -> str:
    where = [label(finding[c]) for c in ("table", "key") if isinstance(finding.get(c), str)]
    told = str(finding.get("message") or finding.get("guarantee") or "")
    told = label(with_clock(told if len(told) <= _TITLE else told.partition("; ")[0]), most=_TITLE + _CLOCKS)
    return f"{' '.join(where)}: {told}" if where else told


_TITLE, _CLOCKS = 200, 60


def _when(commit_ts: int | None) -> str:
    """Below a message: its time and its TSO."""
    if commit_ts is None:
        return "no commit ts"
    day, _, time = clock_words(int(commit_ts)).partition(" ")
    return f"{day}<br>{time}<br>{commit_ts}"


def _stated(commit_ts: int | None) -> str:
    return "no commit ts" if commit_ts is None else f"commit_ts {tso_words(int(commit_ts))}"


def _lane(finding: Mapping[str, Any]) -> int | None:
    """The partition in which a finding lies; None for none."""
    partition = finding.get("partition")
    return None if partition is None or partition != partition or str(partition) == "<NA>" else int(partition)


def _upstream(e: Message) -> tuple[int, int, int]:
    return _known(e["commit_ts"]), _known(e["partition"]), _known(e["offset"])


def _known(v: Any) -> int:
    return -1 if v is None else int(v)
