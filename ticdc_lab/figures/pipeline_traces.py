"""What moves in the picture of the data path: regions, bars, texts, and dots for rows on their way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ticdc_lab.figures.figure import Scatter
from ticdc_lab.figures.pipeline_scene import PipelineScene, Spot
from ticdc_lab.figures.queue_curves import STAGE_LOOK
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import GREY, WRONG, count, label, look
from ticdc_lab.simulate.pipeline.stages import STAGES

AT = {"tikv": 0.0, "puller": 1.55, "sorter": 2.95, "mounter": 4.35, "sink": 5.75, "downstream": 7.15}
"""Where each stage stands; the sorter's disk is in its box."""

WAY = list(AT)
HALF, LOW, HIGH = 0.43, -0.34, 0.34
_REGIONS = 6
"""Regions drawn of one table."""

_DOTS = 6
_MARKS = {"streaming": "", "scanning": "s", "asking": "?", "waiting": "?"}


def moving(s: PipelineScene, at_us: int) -> list[Scatter]:
    """Give what differs from moment to moment: bars, texts, regions, dots."""
    spots = [(k, name, s.spots[at_us].get(table)) for k, (table, name) in enumerate(s.lanes.items())]
    there = [(k, spot) for k, _, spot in spots if spot is not None]
    return [*_bars(s, there), _texts(spots), _regions(s, there), dots(s, at_us, 0.0)]


def dots(s: PipelineScene, at_us: int, phase: float) -> Scatter:
    """Give the rows that went from stage to stage, ``phase`` (0 to 1) of the way to the next dot."""
    x, y, colors = [], [], []
    for k, table in enumerate(s.lanes):
        spot = s.spots[at_us].get(table)
        for start, end in pairwise(WAY):
            n = 0 if spot is None else _number(spot.left.get(start, 0))
            first, last = AT[start] + HALF + 0.06, AT[end] - HALF - 0.06
            x += [first + (last - first) * (i + phase) / n for i in range(n)]
            y += [k - 0.1] * n
            colors += [STAGE_LOOK.get(end, ("#009E73", ""))[0]] * n
    marker = {"size": 6.5, "color": colors, "line": {"width": 0}}
    return Scatter(x=x, y=y, mode="markers", marker=marker, hoverinfo="skip", showlegend=False, name="rows")


def _number(rows: int) -> int:
    """Give how many dots stand for some rows: one for one, two for four, three for sixteen, …"""
    return min(_DOTS, (rows.bit_length() + 1) // 2)


def _bars(s: PipelineScene, there: list[tuple[int, Spot]]) -> list[Scatter]:
    """A bar on the ground of each box; the sorter has a second one for its disk."""
    out = []
    for stage in STAGES:
        x: list[float | None] = []
        y: list[float | None] = []
        for k, spot in there:
            rows = spot.waiting.get(stage, 0)
            middle = AT["sorter" if stage == "disk" else stage]
            share = min(1.0, rows / s.full[stage])
            if rows:
                x += [middle - HALF + 0.05, middle - HALF + 0.05 + share * (2 * HALF - 0.1), None]
                y += [k + (0.26 if stage == "disk" else 0.15 if stage == "sorter" else 0.24)] * 2 + [None]
        line = {"color": STAGE_LOOK[stage][0], "width": 7}
        out.append(Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, name=stage))
    return out


def _texts(spots: list[tuple[int, str, Spot | None]]) -> Scatter:
    """Who has the table on the left, rows in the boxes, watermarks on the right."""
    x, y, texts, sides = [], [], [], []
    for k, name, spot in spots:
        on = "nobody has it" if spot is None else f"on {label(' and '.join(spot.nodes))}"
        parts = [(-2.05, 0.0, f"<b>{label(name, most=22)}</b><br>{on}", "middle right")]
        if spot is not None:
            parts += [(AT[st], LOW + 0.2, _rows(spot, st), "middle center") for st in ("puller", "mounter", "sink")]
            parts.append((AT["sorter"], LOW + 0.2, _rows(spot, "sorter"), "middle center"))
            parts.append((AT["downstream"], 0.0, f"+ {spot.left.get('sink', 0):,}", "middle center"))
            lags = [("resolved", spot.resolved_us), ("checkpoint", spot.checkpoint_us)]
            said = "<br>".join(f"{n} {'none' if us is None else f'{max(0, us) / 1e6:,.2f} s'}" for n, us in lags)
            parts.append((AT["downstream"] + HALF + 0.1, 0.0, said, "middle right"))
        for at, dy, text, side in parts:
            x.append(at)
            y.append(k + dy)
            texts.append(text)
            sides.append(side)
    return Scatter(
        x=x, y=y, mode="text", text=texts, textposition=sides, hoverinfo="skip", showlegend=False, name="texts",
        cliponaxis=False,
    )  # fmt: skip


def _rows(spot: Spot, stage: str) -> str:
    disk = spot.waiting.get("disk", 0) if stage == "sorter" else 0
    return f"{spot.waiting.get(stage, 0):,}" + (f"<br>+ {disk:,} disk" if disk else "")


def _regions(s: PipelineScene, there: list[tuple[int, Spot]]) -> Scatter:
    x, y, colors, frames, texts, hover, picks = [], [], [], [], [], [], []
    tables = list(s.lanes.values())
    for k, spot in there:
        for i, (region, store, state, locks) in enumerate(spot.regions[:_REGIONS]):
            x.append(AT["tikv"] - 0.3 + 0.3 * (i % 3))
            y.append(k - 0.18 + 0.34 * (i // 3) if len(spot.regions) > 3 else float(k))
            colors.append(look(s.stores.index(store))["color"] if store in s.stores else GREY)
            frames.append(3.5 if locks else 0)
            texts.append(_MARKS.get(state, "?"))
            held = f", {count(locks, 'transaction')} hold{'s' if locks == 1 else ''} locks in it" if locks else ""
            what = f"region {region}, led by {label(store)}" if region else "keys whose region PD is asked for"
            hover.append(f"{what}: {state}{held}")
            picks.append(Selection(table=tables[k], region=region or None))
        if len(spot.regions) > _REGIONS:
            hover[-1] += f"; {len(spot.regions) - _REGIONS:,} more of this table are not drawn"
    marker = {"size": 22, "symbol": "square", "color": colors, "line": {"width": frames, "color": WRONG}, "opacity": 1}
    squares = Scatter(
        x=x, y=y, mode="markers+text", text=texts, textfont={"color": "#ffffff", "size": 13}, marker=marker,
        hovertext=hover, hoverinfo="text", showlegend=False, name="regions",
    )  # fmt: skip
    return marked(squares, picks)


def stores(s: PipelineScene) -> list[Scatter]:
    """The legend: which colour is which store's."""
    marker: dict[str, Any] = {"size": 14, "symbol": "square"}
    return [
        Scatter(
            x=[None], y=[None], mode="markers", marker=marker | {"color": look(k)["color"]},
            name=f"led by {label(store)}",
        )
        for k, store in enumerate(s.stores)
    ]  # fmt: skip
