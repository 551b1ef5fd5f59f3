"""The data path at a moment, from regions to the sink, and a player over all moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ticdc_lab.figures.figure import Figure, Scatter, frame
from ticdc_lab.figures.look import BARE, GREY, WRONG, look
from ticdc_lab.figures.nested import Nested
from ticdc_lab.figures.queue_curves import STAGE_LOOK
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import player_controls
from ticdc_lab.figures.theme import TITLE_CHARS, finish, label, sentence, wrapped
from ticdc_lab.figures.watermark_tree import holder
from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.ledger import natural
from ticdc_lab.simulate.pipeline.samples import STAGES, Chain, SeenRun, chains
from ticdc_lab.words import count

# What a picture of the data path shows at each moment: lanes of tables, rows in each stage, regions, lags.


class Spot(NamedTuple):
    """A table at a moment."""

    nodes: tuple[str, ...]  # the captures that have it
    # ``waiting``, ``left``: rows in each stage, and rows that left each since the moment before.
    waiting: Mapping[str, int]
    left: Mapping[str, int]
    regions: tuple[tuple[int, str, str, int], ...]  # (region, store, state, locks) of each, in order
    # ``resolved_us``, ``checkpoint_us``: how far its watermarks are behind; None where it has none.
    resolved_us: int | None
    checkpoint_us: int | None


@dataclass(frozen=True, slots=True)
class PipelineScene:
    """A run as lanes."""

    lanes: Mapping[int, str]  # table to name: those with most rows, in order of their ids; ``more`` are not drawn
    more: int
    spots: Mapping[int, Mapping[int, Spot]]  # moment (µs) to table to what is there
    full: Mapping[str, int]  # rows at which a stage's bar is full
    stores: tuple[str, ...]  # names of all stores that lead a region, sorted
    held: Mapping[int, Chain]  # moment to who holds the checkpoint

    @property
    def times(self) -> list[int]:
        """Moments, µs."""
        return list(self.spots)


def scene(seen: SeenRun, *, memory_rows: int | None, most: int) -> PipelineScene | None:
    """Lay a run out; None where no capture ever has a table."""
    rows = seen.queues.to_pylist()
    if not rows:
        return None
    lanes = _lanes(rows, most)
    found = _tables(rows, "stage", "rows")
    left = _tables(seen.flow.to_pylist(), "stage", "rows")
    drawn = {table for table, _ in lanes}
    most_rows = dict.fromkeys(STAGES, 1)
    for (_, table), stages in found.items():
        for stage, n in stages.items():
            most_rows[stage] = max(most_rows[stage], n if table in drawn else 0)
    nodes: dict[tuple[int, int], set[str]] = {}
    for r in rows:
        nodes.setdefault((r["time_us"], r["table"]), set()).add(r["node"])
    regions, lags = _regions_of_scene(seen), _lags(seen)
    spots: dict[int, dict[int, Spot]] = {t: {} for t in sorted({r["time_us"] for r in rows})}
    for time_us, table in found:
        if table in drawn:
            at = (time_us, table)
            lag = lags.get(at, (None, None))
            spots[time_us][table] = Spot(
                tuple(sorted(nodes[at])), found[at], left.get(at, {}), regions.get(at, ()), *lag
            )
    full = most_rows | ({} if memory_rows is None else {"sorter": memory_rows})
    stores = tuple(sorted({r["store"] for r in seen.regions.to_pylist() if r["region"]}, key=natural))
    held = {c.time_us: c for c in chains(seen.watermarks)}
    return PipelineScene(dict(lanes), len({r["table"] for r in rows}) - len(lanes), spots, full, stores, held)


def _lanes(rows: list[dict[str, Any]], most: int) -> list[tuple[int, str]]:
    fullest: dict[tuple[int, str], int] = {}
    for r in rows:
        key = (r["table"], r["name"])
        fullest[key] = max(fullest.get(key, 0), r["rows"])
    newest = dict(fullest.keys())  # a table that was renamed keeps its lane
    top = sorted(newest, key=lambda t: (-max(n for (table, _), n in fullest.items() if table == t), t))[:most]
    return [(table, newest[table]) for table in sorted(top)]


def _tables(rows: list[dict[str, Any]], key: str, value: str) -> dict[tuple[int, int], dict[str, int]]:
    """Sums over the captures that have a table."""
    out: dict[tuple[int, int], dict[str, int]] = {}
    for r in rows:
        at = out.setdefault((r["time_us"], r["table"]), {})
        at[r[key]] = at.get(r[key], 0) + r[value]
    return out


def _regions_of_scene(seen: SeenRun) -> dict[tuple[int, int], tuple[tuple[int, str, str, int], ...]]:
    out: dict[tuple[int, int], dict[int, tuple[int, str, str, int]]] = {}
    for r in seen.regions.to_pylist():
        at = out.setdefault((r["time_us"], r["table"]), {})
        at[r["region"]] = (r["region"], r["store"], r["state"], r["locks"])
    return {at: tuple(of.values()) for at, of in out.items()}


def _lags(seen: SeenRun) -> dict[tuple[int, int], tuple[int | None, int | None]]:
    """Lags of each table; of several captures that have it, of the one that is farthest behind."""
    out: dict[tuple[int, int], tuple[int | None, int | None]] = {}
    for r in seen.watermarks.to_pylist():
        if r["level"] == "table":
            at = (r["time_us"], int(r["path"].rsplit(" ", 1)[1]))
            now = [None if ts is None else r["time_us"] - us_of(ts) for ts in (r["resolved_ts"], r["checkpoint_ts"])]
            old = out.get(at, (None, None))
            resolved, checkpoint = (
                max((v for v in pair if v is not None), default=None) for pair in zip(old, now, strict=True)
            )
            out[at] = (resolved, checkpoint)
    return out


# What moves in the picture of the data path: regions, bars, texts, and dots for rows on their way.


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
    return [*_bars(s, there), _texts(spots), _regions_of_traces(s, there), dots(s, at_us, 0.0)]


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
    """Give how many dots represent some rows: one for one, two for four, three for sixteen, …"""
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
        on = "no node has it" if spot is None else f"on {label(' and '.join(spot.nodes))}"
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
    return f"{spot.waiting.get(stage, 0):,}" + (f"<br>disk {disk:,}" if disk else "")


def _regions_of_traces(s: PipelineScene, there: list[tuple[int, Spot]]) -> Scatter:
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


# The data path as a picture: regions, puller, sorter, mounter, sink and downstream, rows in each and on their way.


_LANE_PX = 92
_NOTE = (
    "One lane per table. Squares are its regions, coloured by their leader (s: scanned, ?: asked or waited for, "
    "framed: locked). Dots are rows on their way: one for 1, two for 4, three for 16, .. A full bar is {full}."
)


def pipeline_picture(
    seen: SeenRun, *, at_us: int | None = None, memory_rows: int | None = None, most: int = 6
) -> Figure:
    """Draw it at a moment.

    Parameters
    ----------
    seen
        What :func:`ticdc_lab.simulate.pipeline.samples.seen` gives.
    at_us
        The moment, µs, the last sample up to it; by default when most rows wait while something holds the checkpoint.
    memory_rows
        Rows that a table's sorter holds in memory; None where there is no limit.
    most
        Tables drawn: those with most rows waiting at some time.
    """
    s = scene(seen, memory_rows=memory_rows, most=most)
    if s is None:
        return nothing()
    moment = fullest(s) if at_us is None else max((t for t in s.times if t <= at_us), default=s.times[0])
    return drawn(s, moment)


def nothing() -> Figure:
    """Where no capture has a table."""
    return sentence("Nothing is on its way", "No capture had a table when the pipeline was looked at.")


def fullest(s: PipelineScene) -> int:
    """Give the moment at which most rows wait, of those at which something holds the checkpoint if there are such."""
    held = [t for t in s.times if t in s.held and holder(s.held[t])]
    return max(held or s.times, key=lambda t: (sum(sum(spot.waiting.values()) for spot in s.spots[t].values()), -t))


def drawn(s: PipelineScene, at_us: int) -> Figure:
    """Draw a moment; the traces that :func:`moving` gives come last."""
    fig = Figure([*stores(s), *moving(s, at_us)])
    for k in range(len(s.lanes)):
        for stage in ("puller", "sorter", "mounter", "sink"):
            color = STAGE_LOOK[stage][0]
            ends = {"x0": AT[stage] - HALF, "x1": AT[stage] + HALF, "y0": k + LOW, "y1": k + HIGH}
            fig.add_shape(type="rect", **ends, line={"color": color, "width": 1.8}, layer="below")
    low, high = -0.5, len(s.lanes) - 0.5
    end = AT["downstream"]
    fig.add_shape(
        type="rect", x0=end - HALF, x1=end + HALF, y0=low + 0.16, y1=high - 0.16, line={"color": GREY, "width": 1.5},
        fillcolor="rgba(128,128,128,0.14)", layer="below",
    )  # fmt: skip
    names = ["<b>TiKV regions</b>", *(f"<b>{name}</b>" for name in WAY[1:])]
    fig.update_xaxes(tickvals=list(AT.values()), ticktext=names, side="top", range=[-2.1, 9.1], fixedrange=True, **BARE)
    fig.update_yaxes(showticklabels=False, range=[high + 0.02, low - 0.02], fixedrange=True, **BARE)
    fig.update_layout(legend={"orientation": "h", "x": 0, "y": -0.01, "yanchor": "top"}, hovermode="closest")
    full = "the sorter's memory, elsewhere the most seen" if s.full["sorter"] else "the most seen"
    more = f" {count(s.more, 'more table')} not drawn." if s.more else ""
    height = 238 + _LANE_PX * len(s.lanes)
    note = _NOTE.format(full=full) + more
    return finish(fig, title=finding_of(s, at_us), note=note, height=height, note_below_px=38, least_px=1000)


def finding_of(s: PipelineScene, at_us: int) -> str:
    """Name where rows wait and what holds the checkpoint."""
    sums = {stage: sum(spot.waiting.get(stage, 0) for spot in s.spots[at_us].values()) for stage in STAGES}
    total, top = sum(sums.values()), max(STAGES, key=lambda stage: sums[stage])
    where = "the sorters' disks" if top == "disk" else f"the {top}"
    rows = f"{count(total, 'row waits', 'rows wait')}, most in {where} ({sums[top]:,})" if total else "no row waits"
    held = s.held.get(at_us)
    if held is None or held.ts is None:
        return f"At {at_us / 1e6:,.3f} s, {rows}"
    lag_s, name = max(0, at_us - us_of(held.ts)) / 1e6, holder(held)
    by = f", held by {name}" if name else ""
    return f"At {at_us / 1e6:,.3f} s, {rows}; the checkpoint is {lag_s:,.3f} s behind{by}"


# The data path that plays without a kernel: a frame a sample, dots that move between them, slider, play and pause.


_PHASES = 3
"""Frames between two samples, in which only dots move."""

_CONTROLS_PX, _FRAME_MS = 88, 110


def pipeline_picture_stepped(
    seen: SeenRun, *, moments: int = 60, memory_rows: int | None = None, most: int = 6
) -> Figure:
    """Draw :func:`ticdc_lab.figures.pipeline_picture.pipeline_picture` at many moments.

    Parameters
    ----------
    seen, memory_rows, most
        As there.
    moments
        Samples drawn at most; of more they are thinned evenly, noted below. The slider begins where most rows
        wait.
    """
    s = scene(seen, memory_rows=memory_rows, most=most)
    if s is None:
        return nothing()
    chosen = np.unique(np.linspace(0, len(s.times) - 1, min(moments, len(s.times))).round().astype(int))
    times = sorted({s.times[int(k)] for k in chosen} | {fullest(s)})
    start = fullest(s)
    fig = drawn(s, start)
    n, changing = len(fig.data), len(moving(s, start))
    fig.frames = [f for t in times for f in _frames(s, t, list(range(n - changing, n)))]
    fig.layout.title.text = wrapped(finding_of(s, start), width=TITLE_CHARS)
    thinned = f" Of {len(s.times):,} samples {len(times):,} are shown." if len(times) < len(s.times) else ""
    fig.layout.annotations[-1].text += f"<br>On screen: play, or move the slider; only dots move between.{thinned}"
    bottom = int(fig.layout.margin.b) + 22
    return fig.update_layout(
        **player_controls(
            list(map(_name, times)), times.index(start), below_px=bottom, frame_ms=_FRAME_MS, prefix="at "
        ),
        height=int(fig.layout.height) + _CONTROLS_PX + 22, margin_b=bottom + _CONTROLS_PX,
    )  # fmt: skip


def _frames(s: PipelineScene, at_us: int, places: list[int]) -> list[Nested]:
    title = {"title": {"text": wrapped(finding_of(s, at_us), width=TITLE_CHARS)}}
    whole = frame(name=_name(at_us), data=moving(s, at_us), traces=places, layout=title)
    between = [
        frame(name=f"{_name(at_us)} +{k}", data=[dots(s, at_us, k / _PHASES)], traces=places[-1:])
        for k in range(1, _PHASES)
    ]
    return [whole, *between]


def _name(at_us: int) -> str:
    return f"{at_us / 1e6:,.3f} s"
