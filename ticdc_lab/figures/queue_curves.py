"""Queue curves: rows in each stage of the data path over time, with the sorters' memory and what they spill."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter, subplots
from ticdc_lab.figures.look import GREY, WRONG, legend_above, look
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.simulate.pipeline.samples import STAGES
from ticdc_lab.words import count, rounded

STAGE_LOOK = {
    "puller": ("#56B4E9", "."), "sorter": ("#0072B2", ""), "disk": (WRONG, "x"), "mounter": ("#E69F00", "/"),
    "sink": ("#009E73", "-"),
}  # fmt: skip
"""Colour and pattern of each stage, the same in every figure."""

_MEANS = {
    "puller": "puller: prewrite or commit missing", "sorter": "sorter: in memory", "disk": "sorter: on disk",
    "mounter": "mounter: due, not written", "sink": "sink: written, not acknowledged",
}  # fmt: skip
_MOST = 8
_NOTE = (
    "Above, rows that wait in each stage, all tables together. Below, rows in each sorter's memory; crosses mark "
    "where one spills to disk. Rows were counted every so often: {every}. Look for a stage that grows: the next stage "
    "does not take its rows."
)


def queue_curves(queues: pa.Table, *, memory_rows: int | None = None) -> Figure:
    """Draw how many rows wait where.

    Parameters
    ----------
    queues
        :data:`ticdc_lab.simulate.pipeline.samples.QUEUES`.
    memory_rows
        Rows that a table's sorter holds in memory; None where there is no limit.
    """
    rows = queues.to_pandas()
    if rows.empty or not rows["rows"].any():
        return sentence("No row waits anywhere", "No row waited in any stage at the moments that were sampled.")
    fig = subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.58, 0.42], vertical_spacing=0.08)
    for trace in _areas(rows):
        fig.add_trace(trace, 1, 1)
    for trace in _sorters(rows):
        fig.add_trace(trace, 2, 1)
    if memory_rows is not None:
        said = f"memory: {memory_rows:,} rows a table"
        fig.add_hline(y=memory_rows, line={"color": GREY, "dash": "dash"}, annotation_text=said, row=2, col=1)
    fig.update_yaxes(title_text="rows waiting", rangemode="tozero", row=1, col=1)
    fig.update_yaxes(title_text="rows in a sorter", rangemode="tozero", row=2, col=1)
    fig.update_xaxes(title_text="virtual time, s", row=2, col=1)
    fig.update_layout(hovermode="closest", legend={**legend_above(1.01), "traceorder": "normal"})
    n = rows["table"].nunique()
    cut = f" Of {count(n, 'table')} the {_MOST} fullest have a line." if n > _MOST else ""
    return finish(fig, title=finding_of(rows), note=_NOTE.format(every=_sampled(rows)) + cut, height=560, above_px=56)


def finding_of(rows: pd.DataFrame) -> str:
    """Name where most rows wait, and what was spilled."""
    sums = rows.groupby(["time_us", "stage"])["rows"].sum()
    time_us, stage = sums.idxmax()
    where = label(_MEANS[stage].split(":")[0] + (" (on disk)" if stage == "disk" else ""))
    most = f"Most rows wait in the {where}: {count(int(sums.max()), 'row')} at {rounded(time_us / 1e6, 4)} s"
    spilled = rows[(rows["stage"] == "disk") & (rows["rows"] > 0)]
    if spilled.empty:
        return f"{most}; nothing is spilled to disk"
    first = spilled.loc[spilled["time_us"].idxmin()]
    fullest = int(spilled.groupby("time_us")["rows"].sum().max())
    n = spilled["table"].nunique()
    tables = f"{count(n, 'table')} {'spills' if n == 1 else 'spill'}"
    return f"{most}; {tables} up to {count(fullest, 'row')}, from {rounded(first['time_us'] / 1e6, 4)} s on"


def _sampled(rows: pd.DataFrame) -> str:
    """How often rows were counted."""
    times = rows["time_us"].drop_duplicates().sort_values()
    if len(times) < 2:
        return "once"
    return f"{len(times):,} times, up to {rounded(float(times.diff().max()) / 1e6)} s apart"


def _areas(rows: pd.DataFrame) -> list[Scatter]:
    wide = rows.pivot_table(index="time_us", columns="stage", values="rows", aggfunc="sum", fill_value=0)
    out = []
    for stage in (s for s in STAGES if s in wide and wide[s].any()):
        color, shape = STAGE_LOOK[stage]
        out.append(
            Scatter(
                x=(wide.index / 1e6).tolist(), y=wide[stage].tolist(), mode="lines", stackgroup="rows",
                line={"color": color, "width": 1.5}, name=_MEANS[stage],
                fillpattern={"shape": shape, "fgcolor": "rgba(255,255,255,0.6)", "bgcolor": color, "size": 7},
                hovertemplate="%{y:,} rows at %{x:.3f} s<extra>" + stage + "</extra>",
            )
        )  # fmt: skip
    return out


def _sorters(rows: pd.DataFrame) -> list[Scatter]:
    """A line for each table's memory, and a cross at each moment at which its disk has more than before."""
    memory = rows[rows["stage"] == "sorter"]
    fullest = memory.groupby("name")["rows"].max().sort_values(ascending=False, kind="stable").index[:_MOST]
    out, crosses = [], list[Scatter]()
    for k, name in enumerate(sorted(fullest)):
        mine = memory[memory["name"] == name].groupby("time_us")["rows"].sum()
        disk = rows[(rows["name"] == name) & (rows["stage"] == "disk")].groupby("time_us")["rows"].sum()
        grown = disk.index[disk.diff().fillna(disk) > 0]
        style = look(k)
        line = {"color": style["color"], "dash": style["dash"], "width": 2}
        out.append(
            Scatter(
                x=(mine.index / 1e6).tolist(), y=mine.tolist(), mode="lines", line=line, name=label(name),
                hovertemplate="%{y:,} rows at %{x:.3f} s<extra>" + label(name) + "</extra>",
            )
        )  # fmt: skip
        if len(grown):
            hover = [f"{label(name)} has {disk[t]:,} rows on disk at {t / 1e6:.3f} s" for t in grown]
            crosses.append(
                Scatter(
                    x=(grown / 1e6).tolist(), y=mine[grown].tolist(), mode="markers", hovertext=hover,
                    hoverinfo="text", marker={"symbol": "x", "size": 8, "color": WRONG}, name="spills to disk",
                    legendgroup="spills", showlegend=not crosses,
                )
            )  # fmt: skip
    return [*out, *crosses]
