"""Watermark tree: global, processors, tables, regions and locks as an icicle, who holds the minimum lit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Icicle
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import WRONG, finish, label, sentence
from ticdc_lab.simulate.pipeline.chains import Chain, Of, bound, by_moment, chains, children
from ticdc_lab.simulate.pipeline.marks import ROOT, Mark
from ticdc_lab.simulate.scheduler.clock import us_of

_NAMES = {"checkpoint": "checkpoint_ts", "resolved": "resolved_ts"}
_MOST = 14
"""Children drawn of one parent; the others share one box."""

_WHOLE = 60
"""Of more levels only those below lit boxes are drawn."""

_UNLIT, _LIT_ABOVE = "#c4c7cc", "#E69F00"
_INK, _ON_RED = "#16181c", "#ffffff"
_ROW_PX = 37
_USUAL_US = 500_000
"""A region that streams and is less than this behind holds nothing."""

_NOTE = (
    "From left to right: changefeed, processors, tables, regions, and below a region the locks of open transactions, "
    "each with how far it is behind the clock. Follow the lit boxes to the right: the last one holds the {ts}."
)
_TWICE = " Two branches are lit: the table in the first waits for the global resolved_ts, which the second one holds."


def watermark_tree(watermarks: pa.Table, *, at_us: int | None = None, of: Of = "checkpoint") -> Figure:
    """Draw all levels at a moment.

    Parameters
    ----------
    watermarks
        :data:`ticdc_lab.simulate.pipeline.marks.WATERMARKS`.
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
    """Say what holds a watermark, since when and what it would be without it."""
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
    since = f"since {_s(c.since_us)} ({_s(c.time_us - c.since_us)})" if c.time_us > c.since_us else "since just now"
    without = (
        f"without it {_s(max(0, c.time_us - us_of(c.without_ts)))} behind" if c.without_ts else "without it unknown"
    )
    return f"At {_s(c.time_us)} {name}{where} holds the {of}, {since}: it {behind}, {without}"


def _leaf_us(c: Chain) -> int:
    ts = bound(c.leaf, c.of)
    return c.time_us - us_of(ts) if ts else 0


def _lag_us(c: Chain) -> int:
    return max(0, c.time_us - us_of(c.ts)) if c.ts else 0


def _drawn(found: Sequence[Mark], c: Chain) -> Figure:
    lit = {m.path for m in c.marks}
    boxes = _folded(found, lit)
    texts = [f"<b>{label(m.name.split(' (table')[0], most=30)}</b><br>{_behind(m, c)}" for m in boxes]
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
    marked(icicle, _picks(boxes))
    twice = len({m.path for m in c.marks if m.level == "table"}) > 1
    note = _NOTE.format(ts=_NAMES[c.of]) + _TWICE * twice
    height = 210 + _ROW_PX * max(4, leaves)
    fig = finish(Figure(icicle), title=finding_of(c), note=note, height=height, note_below_px=16, least_px=860)
    return fig.update_layout(uniformtext={"minsize": 12, "mode": "show"})


def _picks(boxes: Sequence[Mark]) -> list[Selection | None]:
    """What boxes stand for, by their paths: ``capture-1/table 7/region 3``."""
    tables = {m.path: m.name.split(" (table")[0] for m in boxes if m.level == "table"}
    return [_pick(m, tables) for m in boxes]


def _pick(m: Mark, tables: Mapping[str, str]) -> Selection | None:
    if m.level == "processor":
        return Selection(capture=m.name)
    capture, *below = m.path.split("/")
    table = tables.get(f"{capture}/{below[0]}") if below else None
    region = below[1].removeprefix("region ") if len(below) > 1 else ""
    return Selection(table=table, region=int(region) if region.isdigit() else None) if table else None


def _folded(found: Sequence[Mark], lit: set[str]) -> list[Mark]:
    """Boxes: of many levels only those below lit ones, of many children of one parent those that hold it most."""
    out: list[Mark] = []
    below, whole = children(found), len(found) <= _WHOLE

    def take(mark: Mark) -> None:
        out.append(mark)
        inner = below.get(mark.path, [])
        if not whole and mark.path not in lit:
            return
        if len(inner) > _MOST:
            kept = sorted(inner, key=lambda m: (m.path not in lit, m.resolved_ts or 0))[: _MOST - 1]
            name = f"{len(inner) - len(kept):,} more {inner[0].level}s"
            rest = [Mark(f"{mark.path}/others", mark.path, inner[0].level, name, None, None, "none is further behind")]
            inner = [m for m in inner if m in kept] + rest
        for child in inner:
            take(child)

    for root in below.get("", []):
        take(root)
    return out


def _behind(m: Mark, c: Chain) -> str:
    ts = bound(m, c.of)
    if ts is None:
        return m.state
    ahead_us = us_of(ts) - c.time_us
    far = f"{_s(-ahead_us)} behind" if ahead_us <= 0 else f"{_s(ahead_us)} to come"
    state = (
        "" if m.state in ("", "streaming", "replicating") or m.level in ("lock", "global", "sink") else f", {m.state}"
    )
    return f"open for {_s(-ahead_us)}" if m.level == "lock" else far + label(state)


def _hover(m: Mark, c: Chain) -> str:
    stated = {"checkpoint_ts": m.checkpoint_ts, "resolved_ts": m.resolved_ts}
    marks = [f"{name} {ts} ({_s(us_of(ts))})" for name, ts in stated.items() if ts]
    since = [f"since {_s(m.since_us)}"] if m.since_us is not None else []
    path = [] if m.path == ROOT else [label(m.path, most=120)]
    return "<br>".join([f"<b>{label(m.name)}</b>: {label(m.state, most=90)}", *marks, *since, *path])


def _s(us: float) -> str:
    return f"{us / 1e6:,.3f} s" if us >= 100_000 else f"{us / 1000:,.3g} ms"
