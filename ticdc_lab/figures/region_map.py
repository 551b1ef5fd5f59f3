"""Region map: stores as columns, their peers as cells, leaders filled; the places of the stores as brackets above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ticdc_lab.figures.figure import Bar, Figure, Scatter
from ticdc_lab.figures.label_brackets import bracket_px, brackets, in_order
from ticdc_lab.figures.pd_looks import PEER_LOOK
from ticdc_lab.figures.region_cells import COLUMN, Cells, cells, fit
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import GREY, count, finish, label, sentence
from ticdc_lab.simulate.pd.looking.recording import Recording, Sample
from ticdc_lab.simulate.pd.looking.shares import leaders, region_targets
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


def _drawn(sample: Sample, size: Cells, finding: str) -> Figure:
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


def _shares(targets: Sequence[float], size: Cells) -> Scatter:
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
