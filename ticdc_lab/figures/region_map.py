"""Region map: stores as columns, their peers as cells, leaders filled; the places of the stores as brackets above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ticdc_lab.figures.figure import Bar, Figure, Scatter
from ticdc_lab.figures.label_brackets import bracket_px, brackets, in_order
from ticdc_lab.figures.pd_looks import PEER_LOOK
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import GREY, count, finish, label, sentence
from ticdc_lab.simulate.pd.looking.recording import Recording, Sample, leaders, region_targets
from ticdc_lab.simulate.pd.stores import shown_state

_PLOT_PX = 330
_MOST_NAMES = 25
_NOTE = (
    "A column a store, a cell a {cell}, leaders at the bottom, pending ones wait for a snapshot; dotted, the share by "
    "weight. Look for columns above or below their line, for hatched cells, and for leaders gathered in one column."
)


def region_map(sample: Sample, *, finding: str = "") -> Figure:
    """Draw where all peers are at a moment.

    Parameters
    ----------
    sample
        The moment.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    return _drawn(sample, fit([sample]), finding)


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
    chosen = _thinned(recording.samples, moments)
    size = fit(chosen)
    drawn = {f"{s.at_us / 1e6:,.0f} s": _drawn(s, size, "") for s in chosen}
    begin = min(chosen, key=lambda s: abs(s.at_us / 1e6 - (start_s or 0.0)))
    return stepped(drawn, prefix="at ", start=f"{begin.at_us / 1e6:,.0f} s")


def _thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    n = len(samples)
    at = sorted({round(k * (n - 1) / max(1, most - 1)) for k in range(min(n, most))})
    return list({s.at_us // 1_000_000: s for s in (samples[k] for k in at)}.values())


def _drawn(sample: Sample, size: PeerCells, finding: str) -> Figure:
    stores = sample.cluster.stores
    if not stores or not len(sample.placement.id):
        return sentence("There is nothing to show", "The cluster has no store, or no region, at this moment.")
    order = in_order([stores[i] for i in sorted(stores)], sample.cluster.config.location_labels)
    fig = Figure([_bars(kind, part) for kind, part in cells(sample, [s.id for s in order], size).items()])
    targets = region_targets(sample)
    fig.add_trace(_shares([targets[s.id] for s in order], size))
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
    title = label(finding, most=300) or finding_of(sample)
    fig = finish(fig, title=title, note=_NOTE.format(cell=cell), height=_PLOT_PX + 226 + above, note_below_px=108)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + bracket_px(above))


def _bars(kind: str, part: dict[str, list[Any]]) -> Bar:
    fill, line, hatch = PEER_LOOK[kind]
    marker = {
        "color": fill, "line": {"color": line, "width": 0.7},
        "pattern": {"shape": hatch, "fillmode": "overlay", "fgcolor": line, "size": 5, "solidity": 0.3},
    }  # fmt: skip
    bars = Bar(
        x=part["x"], y=part["y"], base=part["base"], width=part["width"], offset=0, marker=marker, name=kind,
        customdata=part["of"], hovertemplate="%{customdata}<extra>" + kind + "</extra>", showlegend=bool(part["x"]),
    )  # fmt: skip
    return marked(bars, [Selection(store=s, region=r) for s, r in zip(part["store"], part["region"], strict=True)])


def _shares(targets: Sequence[float], size: PeerCells) -> Scatter:
    x = [v for k in range(len(targets)) for v in (k * COLUMN + 0.03, (k + 1) * COLUMN - 0.03, None)]
    y = [v for t in targets for v in (t, t, None)]
    return Scatter(
        x=x, y=y, mode="lines", line={"color": GREY, "width": 2.5, "dash": "dot"}, name="share",
        hovertemplate="share: %{y:,.0f} peers<extra></extra>",
    )  # fmt: skip


def _name(store: int, state: str, many: int) -> str:
    return str(store) if state == "Up" or many > 12 else f"{store}<br>{state}"


def finding_of(sample: Sample) -> str:
    """Say who has most and least, and what is not well."""
    stores = sample.cluster.stores
    at = f"At {sample.at_us / 1e6:,.0f} s"
    of, targets = {i: s.region_count for i, s in stores.items()}, region_targets(sample)
    ids = sorted(stores)
    most = max(ids, key=lambda i: (of[i] - targets[i], -i))
    least = min(ids, key=lambda i: (of[i] - targets[i], i))
    pending = int(sample.placement.pending.sum())
    down = sum(of.get(i, 0) for i in sorted(sample.placement.down))
    sick = [f"{count(n, 'peer')} {word}" for n, word in ((down, "down"), (pending, "pending")) if n]
    at += f": {', '.join(sick)};" if sick else ""
    if abs(of[most] - targets[most]) <= 0.05 * targets[most] + 1 >= abs(of[least] - targets[least]) - 1:
        lead = leaders(sample)
        first = max(ids, key=lambda i: (lead[i], -i))
        return (
            f"{at} every store has its share of peers, within 5 %; store {first} leads most regions ({lead[first]:,})"
        )
    high = f"store {most} has {of[most]:,} peers, its share is {targets[most]:,.0f}"
    return f"{at} {high}; store {least} has {of[least]:,} of {targets[least]:,.0f}"


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


def fit(samples: Sequence[Sample]) -> PeerCells:
    """Choose cells that are neither too many nor too flat, the same for all moments."""
    counts = [s.region_count for sample in samples for s in sample.cluster.stores.values()]
    peers = max((sum(s.region_count for s in sample.cluster.stores.values()) for sample in samples), default=1)
    stores = max((len(sample.cluster.stores) for sample in samples), default=1)
    highest = max(1, *counts) if counts else 1
    each = max(1, -(-peers // _MOST_CELLS))
    cells = max(1, -(-highest // each))
    across = int(np.clip(round(np.sqrt(cells * _PLOT_ASPECT / stores)), 1, 24))
    return PeerCells(each, across, _LENGTHEN * highest)


def cells(sample: Sample, order: Sequence[int], size: PeerCells) -> dict[str, dict[str, list[Any]]]:
    """Give the cells of each kind.

    Returns
    -------
    dict
        ``x``, ``y`` (height), ``base``, ``width``, what they are ``of`` in words, their ``store``, and the ``region``
        of a cell that stands for one.
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


def kinds_of(sample: Sample) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Give the kind of each peer, as a position in :data:`KINDS`."""
    p = sample.placement
    kinds = np.where(p.store == p.leader[:, None], 0, 1).astype(np.int8)
    kinds[p.learner] = 2
    kinds[p.pending] = 3
    kinds[np.isin(p.store, sorted(p.down)) & (p.store > 0)] = 4
    return kinds
