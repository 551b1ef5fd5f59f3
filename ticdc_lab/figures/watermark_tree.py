"""What holds a checkpoint: the tree from the changefeed to the lock, and its levels over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Icicle, Scatter, subplots
from ticdc_lab.figures.look import WRONG, legend_above, look
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import finish, label, sentence, wrapped
from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.ledger import natural
from ticdc_lab.simulate.pipeline.samples import ROOT, Chain, MarkRow, Of, bound, by_moment, chains, children
from ticdc_lab.words import count, rounded

# Watermark tree: global, processors, tables, regions and locks as an icicle, who holds the minimum lit.


_NAMES = {"checkpoint": "checkpoint_ts", "resolved": "resolved_ts"}
_MOST_OF_TREE = 14
"""Children drawn of one parent; the others share one box."""

_WHOLE = 60
"""Of more levels only those below lit boxes are drawn."""

_UNLIT, _LIT_ABOVE = "#c4c7cc", "#E69F00"
_INK, _ON_RED = "#16181c", "#ffffff"
_LINE_PX, _BOX_CHARS = 17, 23
"""Of a text in a box: its height, and how many letters of it fit into one of five levels."""

_USUAL_US = 500_000
"""A region that streams and is less than this behind holds nothing."""

_NOTE_OF_TREE = (
    "From left to right: changefeed, processors, tables, regions, and below a region the locks of open transactions, "
    "each with how far it is behind the clock. Follow the lit boxes to the right: the last one holds the {ts}."
)
_TWICE = " Two branches are lit: the table in the first waits for the global resolved_ts; the second holds it back."


def watermark_tree(watermarks: pa.Table, *, at_us: int | None = None, of: Of = "checkpoint") -> Figure:
    """Draw all levels at a moment.

    Parameters
    ----------
    watermarks
        :data:`ticdc_lab.simulate.pipeline.samples.WATERMARKS`.
    at_us
        The moment, µs, the last sample up to it; by default when the watermark is farthest behind.
    of
        Which watermark: the checkpoint's tree also has sinks and waits for the global resolved_ts.
    """
    held = chains(watermarks, of=of)
    if not held:
        return sentence(
            "There is no watermark", "No capture had anything to replicate when the pipeline was looked at."
        )
    chosen = worst(held) if at_us is None else next((c for c in reversed(held) if c.time_us <= at_us), held[0])
    return _drawn(by_moment(watermarks)[chosen.time_us], chosen)


def watermark_tree_stepped(watermarks: pa.Table, *, moments: int = 30, of: Of = "checkpoint") -> Figure:
    """Draw :func:`watermark_tree` at many moments, on a slider that needs no kernel.

    Parameters
    ----------
    watermarks, of
        As there.
    moments
        How many at most, evenly chosen, and the one at which the watermark is farthest behind, where the slider begins.
    """
    held = chains(watermarks, of=of)
    if not held:
        return watermark_tree(watermarks, of=of)
    found, last = by_moment(watermarks), len(held) - 1
    chosen = sorted({round(k * last / max(1, moments - 1)) for k in range(moments)} | {held.index(worst(held))})
    trees = {_s(held[k].time_us): _drawn(found[held[k].time_us], held[k]) for k in chosen if k <= last}
    height, top = (max(of) for of in zip(*((f.layout.height, f.layout.margin.t) for f in trees.values()), strict=True))
    for fig in trees.values():
        fig.update_layout(height=height, margin_t=top)
    return stepped(trees, prefix="at ", start=_s(worst(held).time_us))


def worst(held: Sequence[Chain]) -> Chain:
    """Give the moment at which one and the same has held the watermark for longest."""
    return max(held, key=lambda c: (min(_leaf_us(c), c.time_us - c.since_us), -c.time_us))


def holder(c: Chain) -> str | None:
    """Name what holds a watermark; None where it has the usual delay or only has to follow."""
    free = c.leaf.level == "region" and c.leaf.state == "streaming" and _leaf_us(c) < _USUAL_US
    return None if free else label(c.leaf.name)


def finding_of(c: Chain) -> str:
    """Name what holds a watermark, since when, and its value without it."""
    leaf, of, name = c.leaf, _NAMES[c.of], holder(c)
    if name is None:
        late = _lag_us(c) > 3 * _leaf_us(c) + 100_000
        any_more, follows = (" any more", " and follows") if late else ("", "")
        far = f"it is {_s(_lag_us(c))} behind{follows}, the slowest region is {_s(_leaf_us(c))} behind"
        return f"At {_s(c.time_us)} nothing holds the {of}{any_more}: {far}"
    where = f" in {label(c.marks[-2].name)}" if leaf.level in ("lock", "region") else ""
    if leaf.level == "lock":
        where += f", {label(c.marks[-3].name)},"
    behind = "is not published" if c.ts is None else f"is {_s(_lag_us(c))} behind"
    since = f"since {_s(c.since_us)}, for {_s(c.time_us - c.since_us)}" if c.time_us > c.since_us else "since just now"
    without = (
        f"without it {_s(max(0, c.time_us - us_of(c.without_ts)))} behind" if c.without_ts else "without it unknown"
    )
    return f"At {_s(c.time_us)} {name}{where} holds the {of}, {since}: it {behind}, {without}"


def _leaf_us(c: Chain) -> int:
    ts = bound(c.leaf, c.of)
    return c.time_us - us_of(ts) if ts else 0


def _lag_us(c: Chain) -> int:
    return max(0, c.time_us - us_of(c.ts)) if c.ts else 0


def _drawn(found: Sequence[MarkRow], c: Chain) -> Figure:
    lit = {m.path for m in c.marks}
    boxes = _folded(found, lit)
    names = [wrapped(label(m.name.split(" (table")[0], most=44), width=_BOX_CHARS) for m in boxes]
    texts = [f"<b>{n}</b><br>{wrapped(_behind(m, c), width=_BOX_CHARS)}" for m, n in zip(boxes, names, strict=True)]
    colors = [WRONG if m.path == c.leaf.path else _LIT_ABOVE if m.path in lit else _UNLIT for m in boxes]
    inks = [_ON_RED if color == WRONG else _INK for color in colors]
    leaves = len(boxes) - len({m.parent for m in boxes})
    icicle = Icicle(
        ids=[m.path for m in boxes], labels=[label(m.name) for m in boxes], parents=[m.parent for m in boxes],
        text=texts, textinfo="text", hovertext=[_hover(m, c) for m in boxes], hoverinfo="text", sort=False,
        marker={"colors": colors, "line": {"width": 1.5, "color": "rgba(128,128,128,0.9)"}},
        tiling={"orientation": "h"}, pathbar={"visible": False}, root={"color": "rgba(0,0,0,0)"},
        leaf={"opacity": 1}, textfont={"size": 13, "color": inks},
    )  # fmt: skip
    tables = {m.path: m.name.split(" (table")[0] for m in boxes if m.level == "table"}
    marked(icicle, [_pick(m, tables) for m in boxes])
    twice = len({m.path for m in c.marks if m.level == "table"}) > 1
    note = _NOTE_OF_TREE.format(ts=_NAMES[c.of]) + _TWICE * twice
    height = 210 + (16 + _LINE_PX * (1 + max(t.count("<br>") for t in texts))) * max(4, leaves)
    fig = finish(Figure(icicle), title=finding_of(c), note=note, height=height, note_below_px=16, least_px=860)
    return fig.update_layout(uniformtext={"minsize": 12, "mode": "show"})


def _pick(m: MarkRow, tables: Mapping[str, str]) -> Selection | None:
    if m.level == "processor":
        return Selection(capture=m.name)
    capture, *below = m.path.split("/")
    table = tables.get(f"{capture}/{below[0]}") if below else None
    region = below[1].removeprefix("region ") if len(below) > 1 else ""
    return Selection(table=table, region=int(region) if region.isdigit() else None) if table else None


def _folded(found: Sequence[MarkRow], lit: set[str]) -> list[MarkRow]:
    """Boxes: of many levels only those below lit ones, of many children of one parent those that hold it most."""
    out: list[MarkRow] = []
    below, whole = children(found), len(found) <= _WHOLE

    def take(mark: MarkRow) -> None:
        out.append(mark)
        inner = below.get(mark.path, [])
        if not whole and mark.path not in lit:
            return
        if len(inner) > _MOST_OF_TREE:
            kept = sorted(inner, key=lambda m: (m.path not in lit, m.resolved_ts or 0))[: _MOST_OF_TREE - 1]
            name = f"{len(inner) - len(kept):,} more {inner[0].level}s"
            rest = [
                MarkRow(f"{mark.path}/others", mark.path, inner[0].level, name, None, None, "none is further behind")
            ]
            inner = [m for m in inner if m in kept] + rest
        for child in inner:
            take(child)

    for root in below.get("", []):
        take(root)
    return out


def _behind(m: MarkRow, c: Chain) -> str:
    ts = bound(m, c.of)
    if ts is None:
        return m.state
    ahead_us = us_of(ts) - c.time_us
    far = f"{_s(-ahead_us)} behind" if ahead_us <= 0 else f"{_s(ahead_us)} to come"
    if m.level == "lock":
        return f"open for {_s(-ahead_us)}"
    usual = m.state in ("", "streaming", "replicating", "processor") or m.level in ("global", "sink")
    return far if usual else label(m.state) if ahead_us > 0 else f"{far}, {label(m.state)}"  # the hover has all


def _hover(m: MarkRow, c: Chain) -> str:
    stated = {"checkpoint_ts": m.checkpoint_ts, "resolved_ts": m.resolved_ts}
    marks = [f"{name} {ts} ({_s(us_of(ts))})" for name, ts in stated.items() if ts]
    since = [f"since {_s(m.since_us)}"] if m.since_us is not None else []
    path = [] if m.path == ROOT else [label(m.path, most=120)]
    return "<br>".join([f"<b>{label(m.name)}</b>: {label(m.state, most=90)}", *marks, *since, *path])


def _s(us: float) -> str:
    return f"{us / 1e6:,.3f} s" if us >= 100_000 else f"{rounded(us / 1000)} ms"


# Watermarks at every level over time: how far each is behind the clock, the lowest of each level highlighted.


_MOST_OF_LEVELS = 24
"""Lines drawn of one level, those that are behind farthest."""

_ROWS = (
    ("global", "changefeed"), ("processor", "processors"), ("table", "tables, DDL"), ("region", "regions"),
    ("lock", "open locks"), ("sink", "sinks"),
)  # fmt: skip
_NOTE_OF_LEVELS = (
    "Seconds between the clock and the watermark, level by level: thin lines are the single ones, the thick one is the "
    "lowest of its level; of a sink it is the oldest row under way. Go down: who climbs with the changefeed?"
)


class Line(NamedTuple):
    """One watermark of one level over time."""

    path: str
    name: str
    times_s: list[float]
    lags_s: list[float]


def watermark_levels(watermarks: pa.Table) -> Figure:
    """Draw resolved_ts level by level, and the checkpoint_ts where a level has one of its own.

    Parameters
    ----------
    watermarks
        :data:`ticdc_lab.simulate.pipeline.samples.WATERMARKS`.
    """
    found = by_moment(watermarks)
    held = chains(watermarks)
    if not held:
        return sentence(
            "There is no watermark", "No capture had anything to replicate when the pipeline was looked at."
        )
    levels = [(level, name) for level, name in _ROWS if any(m.level == level for ms in found.values() for m in ms)]
    fig = subplots(rows=len(levels), cols=1, shared_xaxes=True, vertical_spacing=0.045)
    for row, (level, name) in enumerate(levels, start=1):
        for trace in _level(found, level):
            fig.add_trace(trace, row, 1)
        of_first = {"matches": "y"} if row > 1 else {}  # one scale: a saw-tooth of a tenth of a second is thin
        fig.update_yaxes(title_text=f"{name}<br>lag, s", rangemode="tozero", row=row, col=1, **of_first)
    fig.update_xaxes(title_text="virtual time, s", row=len(levels), col=1)
    fig.update_layout(hovermode="closest", legend=legend_above(1.01))
    title = finding_of(worst(held))
    return finish(fig, title=title, note=_NOTE_OF_LEVELS + _cut(found), height=190 + 130 * len(levels), above_px=34)


def lines(found: dict[int, list[MarkRow]], level: str, of: Of) -> list[Line]:
    """Give the watermarks of a level; of tables with the DDL puller, of locks their age."""
    levels = (level, "ddl") if level == "table" and of == "resolved" else (level,)
    points: dict[str, list[tuple[str, float, float]]] = {}
    for time_us, marks in found.items():
        for m in marks:
            ts = m.resolved_ts if of == "resolved" else m.checkpoint_ts
            if m.level in levels and ts is not None:
                points.setdefault(m.path, []).append((m.name, time_us / 1e6, (time_us - us_of(ts)) / 1e6))
    return [
        Line(path, ps[-1][0], [t for _, t, _ in ps], [max(0.0, lag) for _, _, lag in ps])
        for path, ps in sorted(points.items(), key=lambda item: natural(item[0]))
    ]


def lowest(of: Sequence[Line]) -> tuple[list[float], list[float], list[str]]:
    """Give the largest lag of each moment, and whose it is."""
    points = sorted(((t, lag, line.name) for line in of for t, lag in zip(line.times_s, line.lags_s, strict=True)))
    ends = [list(same)[-1] for _, same in groupby(points, key=lambda p: p[0])]
    return [t for t, _, _ in ends], [lag for _, lag, _ in ends], [name for _, _, name in ends]


def _level(found: dict[int, list[MarkRow]], level: str) -> list[Scatter]:
    resolved, checkpoint = lines(found, level, "resolved"), lines(found, level, "checkpoint")
    if level == "global":
        grey = "rgba(128,128,128,0.9)"
        return [
            _line(line, {"color": color, "width": width, "dash": dash}, name)
            for of, name, color, width, dash in (
                (checkpoint, "changefeed checkpoint lag", grey, 5, "solid"),
                (resolved, "changefeed resolved ts lag", look(0)["color"], 2, "dash"),
            )
            for line in of
        ]
    own = checkpoint if level == "sink" else resolved
    times, lags, names = lowest(own)
    hover = [f"{lag:.3f} s behind at {t:.3f} s: {label(n)}" for t, lag, n in zip(times, lags, names, strict=True)]
    red = Scatter(
        x=times, y=lags, mode="lines", line={"color": WRONG, "width": 6}, name="the lowest of its level",
        hovertext=hover, hoverinfo="text", legendgroup="lowest", showlegend=level == "processor",
    )  # fmt: skip
    drawn = sorted(
        sorted(own, key=lambda line: -max(line.lags_s))[:_MOST_OF_LEVELS], key=lambda line: natural(line.path)
    )
    styles = [look(k) for k in range(len(drawn))]
    thin = [{"color": style["color"], "dash": style["dash"], "width": 1.5} for style in styles]
    return [red, *(_line(line, style, line.name, legend=False) for line, style in zip(drawn, thin, strict=True))]


def _line(line: Line, style: dict[str, object], name: str, *, legend: bool = True) -> Scatter:
    return Scatter(
        x=line.times_s, y=line.lags_s, mode="lines", line=style, name=label(name), showlegend=legend,
        hovertemplate="%{y:.3f} s behind at %{x:.3f} s<extra>" + label(line.name) + "</extra>",
    )  # fmt: skip


def _cut(found: dict[int, list[MarkRow]]) -> str:
    many = {level: len({m.path for ms in found.values() for m in ms if m.level == level}) for level, _ in _ROWS}
    cut = [f"{_MOST_OF_LEVELS} of {count(n, level)}" for level, n in many.items() if n > _MOST_OF_LEVELS]
    return f" Of many, {', '.join(cut)} are drawn." if cut else ""
