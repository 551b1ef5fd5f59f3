"""Where stores are, as brackets above their columns: a line for each location label, the outermost on top."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import GREY, label
from ticdc_lab.simulate.ownership import natural
from ticdc_lab.simulate.pd.stores import Store
from ticdc_lab.simulate.pd.stores import label as label_of

_LINE_PX = 24


def in_order(stores: Sequence[Store], labels: Sequence[str]) -> list[Store]:
    """Give stores so that those of one place stand together."""
    return sorted(stores, key=lambda s: ([natural(label_of(s, key)) for key in labels], s.id))


def bracket_px(above: int) -> int:
    """Give the room that brackets need above the plot."""
    return above


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
    """Whether a label tells stores apart, and not each from every other one that is labelled like its store."""
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
