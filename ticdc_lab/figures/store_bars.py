"""Stores beside each other: peers, leaders and data, what each should have, and what it had before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ticdc_lab.figures.figure import Bar, Figure, Scatter, subplots
from ticdc_lab.figures.look import GREY, TEXT_PX, WRONG, legend_above
from ticdc_lab.figures.pd_run import BLUE, GREEN, SKY, pattern
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, sentence
from ticdc_lab.pd_core.measures import LEADERS, PEERS, counts, shares, uneven
from ticdc_lab.pd_core.stores import shown_state
from ticdc_lab.simulate.pd.world.recording import ClusterSample
from ticdc_lab.words import rounded

_ROW_PX = 150
_MANY = 24
_NOTE = (
    "Filled bars: now. Outlined bars: {before}. The line across is the store's share by weight. PD balances scores, "
    "not counts: weights, disks of unequal size, labels and hot regions make counts uneven for good."
)


def store_bars(sample: ClusterSample, before: ClusterSample | None = None) -> Figure:
    """Draw what each store has, beside its share and beside an earlier moment.

    Parameters
    ----------
    sample, before
        The moment, and an earlier one.
    """
    ids = sorted({*sample.cluster.stores, *(before.cluster.stores if before else ())})
    if not ids:
        return sentence("There is no store", "The cluster has no store at this moment.")
    fig = subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    config = sample.cluster.config
    states = {i: shown_state(s, config.max_store_down_time_s) for i, s in sample.cluster.stores.items()}
    names = [_name(i, states.get(i, "not known"), len(ids)) for i in ids]
    now = sample.cluster
    each_gib = sum(size_gib(sample).values()) / max(1.0, sum(shares(now).values()))
    sizes = {i: n * each_gib for i, n in shares(now).items()}
    had = [counts(before.cluster, of) for of in (PEERS, LEADERS)] if before else [{}, {}]
    _panel(fig, 1, ids, counts(now), had[0], shares(now), pattern(BLUE, ""), PEERS)
    _panel(fig, 2, ids, counts(now, LEADERS), had[1], shares(now, LEADERS), pattern(SKY, "/"), LEADERS)
    _panel(fig, 3, ids, size_gib(sample), size_gib(before) if before else {}, sizes, pattern(GREEN, "."), "data, GiB")
    for row in (1, 2, 3):
        fig.update_xaxes(tickvals=list(range(len(ids))), ticktext=names, range=[-0.6, len(ids) - 0.4], row=row, col=1)
    fig.update_xaxes(tickangle=0)
    fig.update_xaxes(title_text="store", row=3, col=1)
    fig.update_layout(
        barmode="overlay", bargap=0.3, legend=legend_above(1.005)
    )  # fmt: skip
    when = f"at {before.at_us / 1e6:,.0f} s" if before else "nothing, no earlier moment was given"
    title = finding_of(sample, before)
    return finish(fig, title=title, note=_NOTE.format(before=when), height=190 + 3 * _ROW_PX, above_px=32)


def size_gib(sample: ClusterSample) -> dict[int, float]:
    """Give the GiB of regions on each store."""
    return {i: s.region_size / 1024 for i, s in sorted(sample.cluster.stores.items())}


def _panel(
    fig: Figure, row: int, ids: Sequence[int], now: Mapping[int, float], before: Mapping[int, float],
    targets: Mapping[int, float], marker: Mapping[str, object], name: str,
) -> None:  # fmt: skip
    at = list(range(len(ids)))
    values = [now.get(i, 0) for i in ids]
    wide = len(ids) <= _MANY
    hover = [
        f"store {i}: {rounded(v, 4)} {name}, its share {rounded(targets.get(i, 0), 4)}"
        for i, v in zip(ids, values, strict=True)
    ]
    bars = Bar(
        x=at, y=values, marker=marker, name=name, width=0.62, hovertext=hover, hoverinfo="text",
        text=[f"{rounded(v, 4)}" for v in values] if wide else None, textposition="inside", textangle=0,
        insidetextanchor="start", textfont={"size": 12}, showlegend=False,
    )  # fmt: skip
    picks = [Selection(store=i) for i in ids]
    fig.add_trace(marked(bars, picks), row, 1)
    if before:
        old = [before.get(i, 0) for i in ids]
        outlined = Bar(
            x=at, y=old, width=0.8, name="before", hovertext=[f"before: {rounded(v, 4)} {name}" for v in old],
            marker={"color": "rgba(0,0,0,0)", "line": {"color": GREY, "width": 2}}, hoverinfo="text",
            showlegend=row == 1,
        )  # fmt: skip
        fig.add_trace(marked(outlined, picks), row, 1)
    x = [v for k in at for v in (k - 0.42, k + 0.42, None)]
    y = [v for i in ids for v in (targets.get(i, 0), targets.get(i, 0), None)]
    line = {"color": WRONG, "width": 3}
    fig.add_trace(
        Scatter(x=x, y=y, mode="lines", line=line, name="share by weight", hoverinfo="skip", showlegend=row == 1),
        row, 1,
    )  # fmt: skip
    fig.update_yaxes(title={"text": name, "font": {"size": TEXT_PX}}, rangemode="tozero", row=row, col=1)


def _name(store: int, state: str, many: int) -> str:
    if many > _MANY:
        return str(store) if store % 5 == 0 or many <= 60 else ""
    return str(store) if state == "Up" or many > 12 else f"{store}<br>{state}"


def finding_of(sample: ClusterSample, before: ClusterSample | None) -> str:
    """Describe whether the stores are even, and which is farthest off."""
    at, now = f"At {sample.at_us / 1e6:,.0f} s", sample.cluster
    odd = [of for of in (PEERS, LEADERS) if uneven(now, of)]
    then = f"at {before.at_us / 1e6:,.0f} s" if before else ""
    if not odd:
        was = any(uneven(before.cluster, of) for of in (PEERS, LEADERS)) if before else False
        told = f"; {then} they were{' not' if was else ''}" if before else ""
        return f"{at} peers and leaders are even, within 5 % of each store's share{told}"
    of, good = odd[0], "" if len(odd) == 2 else f"{LEADERS if odd[0] == PEERS else PEERS} are even, "
    have, share = counts(now, of), shares(now, of)
    worst = max(have, key=lambda i: abs(have[i] - share[i]))
    told = f", {then} it had {counts(before.cluster, of).get(worst, 0):,}" if before else ""
    return f"{at} {good}store {worst} has {have[worst]:,} {of} where its share is {share[worst]:,.0f}{told}"
