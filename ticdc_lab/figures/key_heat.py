"""Where in the key space reads and writes fall, over time: a row a stretch of keys, a column a moment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.figures.figure import Figure, Heatmap
from ticdc_lab.figures.look import HEAT
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.simulate.pd.world.recording import Placement, Recording
from ticdc_lab.words import rounded

Flow = Literal["read", "write"]
_ROWS = 96
_TICKS = 8
_NOTE = (
    "Each row is a stretch of the key space, all with as many regions; each column is a moment. Bright means much "
    "load. Look for bright bands: a few regions take the load, and where they are led decides which store takes it."
)


class Grid(NamedTuple):
    """MiB a second by stretch of keys (rows) and moment (columns)."""

    times_s: list[float]
    starts: list[str]
    mib_s: NDArray[np.float64]


def key_heat(recording: Recording, *, of: Flow = "write") -> Figure:
    """Draw the flow by key and time.

    Parameters
    ----------
    recording
        The run.
    of
        What flows: ``read`` or ``write``.
    """
    g = grid(recording, of)
    word = {"read": "read", "write": "written"}[of]
    if not g.mib_s.any():
        return sentence(f"Nothing is {word}", f"No region was {word} in this run, as far as it was looked at.")
    rows = list(range(len(g.starts)))
    hover = [[f"{label(a, most=20) or 'the first key'} …<br>{rounded(v)} MiB/s" for v in line] for a, line in
             zip(g.starts, g.mib_s, strict=True)]  # fmt: skip
    bar = {"title": {"text": f"MiB/s {word}"}, "thickness": 12, "outlinewidth": 0}
    fig = Figure(
        Heatmap(
            x=g.times_s, y=rows, z=g.mib_s.round(4), colorscale=HEAT, zmin=0, colorbar=bar, text=hover,
            hovertemplate="%{text} at %{x:,.0f} s<extra></extra>",
        )
    )  # fmt: skip
    ticks = sorted({round(k * (len(rows) - 1) / (_TICKS - 1)) for k in range(_TICKS)})
    texts = [label(g.starts[k], most=14) or "first key" for k in ticks]
    fig.update_yaxes(title_text="key", tickvals=ticks, ticktext=texts, showgrid=False, autorange="reversed")
    fig.update_xaxes(title_text="virtual time, s", showgrid=False)
    title = finding_of(recording, of)
    return finish(fig, title=title, note=_NOTE, height=470)


def grid(recording: Recording, of: Flow) -> Grid:
    """Give the flow by stretch of keys and moment; stretches are cut where regions began at some time."""
    keys = sorted({k for p in _distinct(recording) for k in p.start_key})
    rows = min(_ROWS, len(keys))
    cuts = [keys[k * len(keys) // rows] for k in range(rows)] if rows else []
    columns = [_column(s.placement, of, keys, rows) for s in recording.samples]
    values = np.column_stack(columns) if columns and rows else np.zeros((0, 0))
    return Grid([s.at_us / 1e6 for s in recording.samples], cuts, values)


def _distinct(recording: Recording) -> list[Placement]:
    return list({id(s.placement.start_key): s.placement for s in recording.samples}.values())


def _column(p: Placement, of: Flow, keys: Sequence[str], rows: int) -> NDArray[np.float64]:
    """Spread each region's flow over the stretches that it covers."""
    flow = (p.read if of == "read" else p.write) / (1 << 20)
    out = np.zeros(rows)
    hot = np.flatnonzero(flow)
    if not len(hot):
        return out
    begins = [bisect_left(keys, k) for k in p.start_key] + [len(keys)]
    for i in hot.tolist():
        a, b = begins[i] * rows / len(keys), begins[i + 1] * rows / len(keys)
        for row in range(int(a), min(rows, int(np.ceil(b)))):
            out[row] += flow[i] * (min(b, row + 1) - max(a, row)) / (b - a)
    return out


def finding_of(recording: Recording, of: Flow) -> str:
    """Count how few regions take how much, when most flows."""
    flows = [s.placement.read if of == "read" else s.placement.write for s in recording.samples]
    k = max(range(len(flows)), key=lambda k: (float(flows[k].sum()), -k))
    s, flow = recording.samples[k], flows[k]
    order = np.argsort(-flow, kind="stable")
    needed = int(np.searchsorted(np.cumsum(flow[order]), 0.8 * flow.sum())) + 1
    leading = s.placement.leader[order[:needed]]
    stores, counts = np.unique(leading, return_counts=True)
    led = f"store {stores[0]} leads them all" if len(stores) == 1 else (
        f"store {stores[int(counts.argmax())]} leads {counts.max():,} of them"
    )  # fmt: skip
    word = {"read": "read", "write": "written"}[of]
    some = f"{needed:,} of {len(flow):,} regions take 80 % of what is {word}"
    return f"{some} at {s.at_us / 1e6:,.0f} s ({rounded(flow.sum() / (1 << 20), 4)} MiB/s in all); {led}"
