"""Where PD has regions and stores: a map of regions, and the labels that stores have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ticdc_lab.figures.figure import Bar, Figure, Icicle, Scatter
from ticdc_lab.figures.look import GREY, HEAT, hatch
from ticdc_lab.figures.pd_run import PEER_LOOK
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.pd_core.measures import LEADERS, counts, shares, uneven
from ticdc_lab.pd_core.stores import REMOVED, Store, shown_state
from ticdc_lab.pd_core.stores import label as label_of
from ticdc_lab.simulate.ledger import natural
from ticdc_lab.simulate.pd.world.recording import ClusterSample, Recording
from ticdc_lab.words import count

# Where stores are, as brackets above their columns: a line for each location label, the outermost on top.


_LINE_PX = 24


def in_order(stores: Sequence[Store], labels: Sequence[str]) -> list[Store]:
    """Give stores grouped by place."""
    return sorted(stores, key=lambda s: ([natural(label_of(s, key)) for key in labels], s.id))


def brackets(fig: Figure, order: Sequence[Store], labels: Sequence[str], *, column: float, plot_px: int) -> int:
    """Draw them; give their height in pixels."""
    shown = [key for depth, key in enumerate(labels) if _says_more(order, labels[: depth + 1])]
    for level, key in enumerate(shown):
        depth = list(labels).index(key) + 1
        y = 1 + (len(shown) - level - 0.45) * _LINE_PX / plot_px
        at = 0
        for place, group in groupby(order, key=lambda s, d=depth: tuple(label_of(s, k) for k in labels[:d])):  # type: ignore[misc]
            n = len(list(group))
            _bracket(fig, at * column, (at + n) * column, y, _text(key, place[-1], n / len(order)), plot_px)
            at += n
    return len(shown) * _LINE_PX


def _says_more(order: Sequence[Store], labels: Sequence[str]) -> bool:
    """Whether a label distinguishes stores, and not each from every other one that is labelled like its store."""
    values = {tuple(label_of(s, k) for k in labels) for s in order}
    return any(label_of(s, labels[-1]) for s in order) and (len(values) < len(order) or len(labels) == 1)


def _text(key: str, value: str, share: float) -> str:
    if not value:
        return f"no {label(key)}"
    return label(value, most=14) if share < 0.2 else f"{label(key)} {label(value, most=20)}"


def _bracket(fig: Figure, x0: float, x1: float, y: float, text: str, plot_px: int) -> None:
    low = y - 0.2 * _LINE_PX / plot_px
    line = {"color": GREY, "width": 1.5}
    ends = (x0 + 0.05, x1 - 0.05)
    for a, b, c, d in ((ends[0], y, ends[1], y), (ends[0], y, ends[0], low), (ends[1], y, ends[1], low)):
        fig.add_shape(type="line", xref="x", yref="paper", x0=a, y0=b, x1=c, y1=d, line=line)
    fig.add_annotation(
        x=(x0 + x1) / 2, y=y, xref="x", yref="paper", text=text, showarrow=False, yanchor="bottom", font={"size": 12},
        yshift=-1,
    )  # fmt: skip


# Region map: stores as columns, their peers as cells, leaders filled; the places of the stores as brackets above.


_PLOT_PX = 330
_MOST_NAMES = 25
_NOTE_OF_REGIONS = (
    "One column per store, one cell per {cell}. Leaders are at the bottom; pending peers wait for a snapshot. "
    "Dotted: the share by weight. Look for columns above or below their line, for hatched cells, and for leaders "
    "gathered in one column."
)


def region_map(sample: ClusterSample) -> Figure:
    """Draw where all peers are at a moment.

    Parameters
    ----------
    sample
        The moment.
    """
    return _drawn(sample, fit([sample]))


def region_map_stepped(recording: Recording, *, moments: int = 24, start_s: float | None = None) -> Figure:
    """Draw :func:`region_map` at many moments, on a slider that needs no kernel.

    Parameters
    ----------
    recording
        The run.
    moments
        Moments drawn at most, evenly over the run.
    start_s
        Where the slider begins, virtual seconds; by default at the first moment.
    """
    n = len(recording.samples)
    at = sorted({round(k * (n - 1) / max(1, moments - 1)) for k in range(min(n, moments))})
    chosen = list({s.at_us // 1_000_000: s for s in (recording.samples[k] for k in at)}.values())
    size = fit(chosen)
    drawn = {f"{s.at_us / 1e6:,.0f} s": _drawn(s, size) for s in chosen}
    begin = min(chosen, key=lambda s: abs(s.at_us / 1e6 - (start_s or 0.0)))
    return stepped(drawn, prefix="at ", start=f"{begin.at_us / 1e6:,.0f} s")


def _drawn(sample: ClusterSample, size: PeerCells) -> Figure:
    stores = sample.cluster.stores
    if not stores or not len(sample.placement.id):
        return sentence("There is nothing to show", "The cluster has no store, or no region, at this moment.")
    order = in_order([stores[i] for i in sorted(stores)], sample.cluster.config.location_labels)
    fig = Figure([_bars(kind, part) for kind, part in cells(sample, [s.id for s in order], size).items()])
    share = shares(sample.cluster)
    fig.add_trace(_shares([share[s.id] for s in order], size))
    down_s, every = sample.cluster.config.max_store_down_time_s, -(-len(order) // _MOST_NAMES)
    texts = [_name(s.id, shown_state(s, down_s), len(order)) if k % every == 0 else "" for k, s in enumerate(order)]
    fig.update_xaxes(
        tickvals=[(k + 0.5) * COLUMN for k in range(len(order))], ticktext=texts, range=[0, len(order) * COLUMN],
        showgrid=False, zeroline=False, title_text="store", tickangle=0,
    )  # fmt: skip
    fig.update_yaxes(title_text="peers on the store", range=[0, size.top], zeroline=False)
    fig.update_layout(
        barmode="overlay", bargap=0, hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top"},
    )  # fmt: skip
    above = brackets(fig, order, sample.cluster.config.location_labels, column=COLUMN, plot_px=_PLOT_PX)
    cell = "peer" if size.each == 1 else f"group of up to {size.each:,} peers"
    title = finding_of_regions(sample)
    return finish(
        fig, title=title, note=_NOTE_OF_REGIONS.format(cell=cell), height=_PLOT_PX + 226 + above, note_below_px=108,
        above_px=above,
    )  # fmt: skip


def _bars(kind: str, part: dict[str, list[Any]]) -> Bar:
    fill, line, shape = PEER_LOOK[kind]
    marker = {
        "color": fill, "line": {"color": line, "width": 0.7},
        "pattern": hatch(shape, size=5, solidity=0.3, color=line),
    }  # fmt: skip
    bars = Bar(
        x=part["x"], y=part["y"], base=part["base"], width=part["width"], offset=0, marker=marker, name=kind,
        customdata=part["of"], hovertemplate="%{customdata}<extra>" + kind + "</extra>", showlegend=bool(part["x"]),
    )  # fmt: skip
    return marked(bars, [Selection(store=s, region=r) for s, r in zip(part["store"], part["region"], strict=True)])


def _shares(share: Sequence[float], size: PeerCells) -> Scatter:
    x = [v for k in range(len(share)) for v in (k * COLUMN + 0.03, (k + 1) * COLUMN - 0.03, None)]
    y = [v for t in share for v in (t, t, None)]
    return Scatter(
        x=x, y=y, mode="lines", line={"color": GREY, "width": 2.5, "dash": "dot"}, name="share",
        hovertemplate="share: %{y:,.0f} peers<extra></extra>",
    )  # fmt: skip


def _name(store: int, state: str, many: int) -> str:
    return str(store) if state == "Up" or many > 12 else f"{store}<br>{state}"


def finding_of_regions(sample: ClusterSample) -> str:
    """Name who has most and least, and what is wrong."""
    now, at = sample.cluster, f"At {sample.at_us / 1e6:,.0f} s"
    of, share = counts(now), shares(now)
    most = max(of, key=lambda i: of[i] - share[i])
    least = min(of, key=lambda i: of[i] - share[i])
    pending = int(sample.placement.pending.sum())
    down = sum(of.get(i, 0) for i in sorted(sample.placement.down))
    sick = [f"{count(n, 'peer')} {word}" for n, word in ((down, "down"), (pending, "pending")) if n]
    at += f": {', '.join(sick)};" if sick else ""
    if not uneven(now):
        lead = counts(now, LEADERS)
        first = max(lead, key=lambda i: lead[i])
        return (
            f"{at} every store has its share of peers, within 5 %; store {first} leads most regions ({lead[first]:,})"
        )
    high = f"store {most} has {of[most]:,} peers, its share is {share[most]:,.0f}"
    return f"{at} {high}; store {least} has {of[least]:,} of {share[least]:,.0f}"


# Where each cell of the region map stands: peers of a store packed into rows, kind by kind, leaders at the bottom.

COLUMN = 1.0
"""Width of a store's column."""

_INSET = 0.06
_MOST_CELLS = 2400
_LENGTHEN = 1.06
_PLOT_ASPECT = 2.7
"""Width by height of the plot, so that cells come out as squares."""

KINDS = ("leader", "follower", "learner", "pending", "down")


class PeerCells(NamedTuple):
    """``each`` peers are a cell, ``across`` cells a row, the axis reaches up to ``top`` peers."""

    each: int
    across: int
    top: float


def fit(samples: Sequence[ClusterSample]) -> PeerCells:
    """Choose cells that are neither too many nor too flat, the same for all moments."""
    counts = [s.region_count for sample in samples for s in sample.cluster.stores.values()]
    peers = max((sum(s.region_count for s in sample.cluster.stores.values()) for sample in samples), default=1)
    stores = max((len(sample.cluster.stores) for sample in samples), default=1)
    highest = max(1, *counts) if counts else 1
    each = max(1, -(-peers // _MOST_CELLS))
    cells = max(1, -(-highest // each))
    across = int(np.clip(round(np.sqrt(cells * _PLOT_ASPECT / stores)), 1, 24))
    return PeerCells(each, across, _LENGTHEN * highest)


def cells(sample: ClusterSample, order: Sequence[int], size: PeerCells) -> dict[str, dict[str, list[Any]]]:
    """Give the cells of each kind.

    Returns: ``x``, ``y`` (height), ``base``, ``width``, what they are ``of`` in words, their ``store``, and the
    ``region`` of a cell that is one.
    """
    kinds = kinds_of(sample)
    out: dict[str, dict[str, list[Any]]] = {
        kind: {name: [] for name in ("x", "y", "base", "width", "of", "store", "region")} for kind in KINDS
    }
    p = sample.placement
    each_px = size.across * size.each
    width = (COLUMN - 2 * _INSET) / size.across
    for k, store in enumerate(order):
        rows, slots = np.nonzero(p.store == store)
        of = kinds[rows, slots]
        place = 0
        for code, kind in enumerate(KINDS):
            mine = p.id[rows[of == code]].tolist()
            groups = [mine[i : i + size.each] for i in range(0, len(mine), size.each)]
            part = out[kind]
            for group in groups:
                row, column = divmod(place, size.across)
                part["x"].append(round(k * COLUMN + _INSET + column * width, 4))
                part["width"].append(round(width, 4))
                part["base"].append(row * each_px)
                part["y"].append(each_px)
                part["of"].append(_said(group))
                part["store"].append(store)
                part["region"].append(group[0] if len(group) == 1 else None)
                place += 1
    return out


def _said(group: Sequence[int]) -> str:
    return f"region {group[0]}" if len(group) == 1 else f"{len(group)} regions: {group[0]} … {group[-1]}"


def kinds_of(sample: ClusterSample) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Give the kind of each peer, as a position in :data:`KINDS`."""
    p = sample.placement
    kinds = np.where(p.store == p.leader[:, None], 0, 1).astype(np.int8)
    kinds[p.learner] = 2
    kinds[p.pending] = 3
    kinds[np.isin(p.store, sorted(p.down)) & (p.store > 0)] = 4
    return kinds


# Label topology: zones, racks, hosts and stores as a tree, wide as their peers, coloured by how full they are.


_LEVEL_PX = 72
_LEAST_RANGE = 0.4
"""Colours span at least so much around the mean, so that small differences look small."""

_NOTE_OF_TOPOLOGY = (
    "Each level is a location label; the lowest level is the stores. A box is as wide as its number of peers, and "
    "coloured by peers per store. Look for a place with fewer stores than its neighbours: with isolation its stores "
    "have more."
)


class Box(NamedTuple):
    """A place or a store."""

    id: str
    parent: str
    name: str
    stores: int
    peers: int
    leaders: int
    state: str


def label_topology(sample: ClusterSample) -> Figure:
    """Draw where stores are and what they hold.

    Parameters
    ----------
    sample
        The moment.
    """
    boxes = boxes_of(sample)
    if len(boxes) < 2:
        return sentence("There is no store", "The cluster has no store at this moment.")
    each = [b.peers / b.stores for b in boxes]
    texts = ["<br>".join([f"{b.peers:,} peers", f"{b.leaders:,} leaders", *[b.state] * bool(b.state)]) for b in boxes]
    leaves = {b.id for b in boxes} - {b.parent for b in boxes}
    share = min(max(b.peers, 0.2) for b in boxes if b.id in leaves) / max(1, boxes[0].peers)
    mean = each[0]
    low, high = min([*each, mean * (1 - _LEAST_RANGE)]), max([*each, mean * (1 + _LEAST_RANGE)])
    bar = {"title": {"text": "peers a store<br> "}, "thickness": 12, "len": 0.9, "outlinewidth": 0}
    fig = Figure(
        Icicle(
            ids=[b.id for b in boxes], parents=[b.parent for b in boxes], labels=[label(b.name) for b in boxes],
            values=[max(b.peers, 0.2) if b.id in leaves else 0 for b in boxes], branchvalues="remainder",
            text=texts, sort=False,
            textinfo="label+text", tiling={"orientation": "v", "pad": 2}, root={"color": "rgba(128,128,128,0.15)"},
            marker={"colors": each, "colorscale": HEAT, "cmin": low, "cmax": high if high > low else low + 1,
                    "showscale": True, "colorbar": bar},
            hovertemplate="<b>%{label}</b><br>%{text}<br>%{color:,.0f} peers a store<extra></extra>",
        )
    )  # fmt: skip
    fig.update_layout(uniformtext={"minsize": 12, "mode": "hide"})
    marked(fig.data[0], [Selection(store=int(b.id[6:])) if b.id.startswith("store ") else None for b in boxes])
    depth = 2 + len(sample.cluster.config.location_labels)
    title = finding_of_topology(sample, boxes)
    wide = round(min(1400, max(460, 180 + 80 / share)))  # so that a store's name and numbers fit into its box
    return finish(
        fig, title=title, note=_NOTE_OF_TOPOLOGY, height=170 + _LEVEL_PX * depth, note_below_px=16, least_px=wide
    )


def boxes_of(sample: ClusterSample) -> list[Box]:
    """Give the tree, parents before their children."""
    config, found = sample.cluster.config, sample.cluster.stores
    labels = config.location_labels
    stores = in_order([s for s in (found[i] for i in sorted(found)) if s.state != REMOVED], labels)
    out = [_place("cluster", "", "the cluster", stores)]
    for depth in range(1, len(labels) + 1):
        for path in dict.fromkeys(_path(s, labels[:depth]) for s in stores):
            inside = [s for s in stores if _path(s, labels[:depth]) == path]
            value = path[-1] or f"no {labels[depth - 1]}"
            name = value if depth > 1 or not path[-1] else f"{labels[0]} {value}"
            out.append(_place(_id(path), _id(path[:-1]), name, inside))
    for s in stores:
        state = shown_state(s, config.max_store_down_time_s)
        box = Box(f"store {s.id}", _id(_path(s, labels)), f"store {s.id}", 1, s.region_count, s.leader_count, "")
        out.append(box._replace(state="" if state == "Up" else state))
    return out


def _path(s: Store, labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(label_of(s, key) for key in labels)


def _id(path: Sequence[str]) -> str:
    return "/".join(["cluster", *path])


def _place(place_id: str, parent: str, name: str, stores: Sequence[Store]) -> Box:
    peers, leaders = sum(s.region_count for s in stores), sum(s.leader_count for s in stores)
    return Box(place_id, parent, name, max(1, len(stores)), peers, leaders, "")


def finding_of_topology(sample: ClusterSample, boxes: Sequence[Box]) -> str:
    """Describe how the stores are spread over places."""
    labels = sample.cluster.config.location_labels
    stores = [b for b in boxes if b.id.startswith("store ")]
    if not labels:
        return f"{count(len(stores), 'store')} without location labels: PD takes each for a place of its own"
    levels = [[b for b in boxes if b.id.count("/") == depth and b not in stores] for depth in range(1, len(labels) + 1)]
    depth, places = next(((d, p) for d, p in enumerate(levels) if len(p) > 1), (len(levels) - 1, levels[-1]))
    sizes = sorted(Counter(b.stores for b in places))
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    spread = f"{count(len(places), label(labels[depth]))} of {each} {'store' if each == '1' else 'stores'}"
    most, least = max(stores, key=lambda b: b.peers), min(stores, key=lambda b: b.peers)
    need = sample.cluster.config.max_replicas
    apart = f"room for {need} replicas apart" if len(places) >= need else f"fewer places than the {need} replicas"
    return f"{spread}, {apart}; {most.name} holds {most.peers:,} peers, {least.name} {least.peers:,}"
