"""The data path as a picture: regions, puller, sorter, mounter, sink and downstream, rows in each and on their way."""

from __future__ import annotations

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.pipeline_scene import PipelineScene, scene
from ticdc_lab.figures.pipeline_traces import AT, HALF, HIGH, LOW, WAY, moving, stores
from ticdc_lab.figures.queue_curves import STAGE_LOOK
from ticdc_lab.figures.theme import BARE, GREY, count, finish, sentence
from ticdc_lab.figures.watermark_tree import holder
from ticdc_lab.simulate.pipeline.samples import Seen
from ticdc_lab.simulate.pipeline.stages import STAGES
from ticdc_lab.simulate.scheduler.clock import us_of

_LANE_PX = 92
_NOTE = (
    "A lane a table. Squares are its regions, coloured by their leader (s: scanned, ?: asked or waited for, "
    "framed: locked). Dots are rows on their way, more for more rows. Bars: full is {full}, else the most seen."
)


def pipeline_picture(seen: Seen, *, at_us: int | None = None, memory_rows: int | None = None, most: int = 6) -> Figure:
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
        _boxes(fig, k)
    low, high = -0.5, len(s.lanes) - 0.5
    end = AT["downstream"]
    fig.add_shape(
        type="rect", x0=end - HALF, x1=end + HALF, y0=low + 0.16, y1=high - 0.16, line={"color": GREY, "width": 1.5},
        fillcolor="rgba(128,128,128,0.14)", layer="below",
    )  # fmt: skip
    names = ["<b>TiKV regions</b>", *(f"<b>{name}</b>" for name in WAY[1:])]
    fig.update_xaxes(tickvals=list(AT.values()), ticktext=names, side="top", range=[-2.1, 9.1], fixedrange=True, **BARE)
    fig.update_yaxes(showticklabels=False, range=[high + 0.02, low - 0.02], fixedrange=True, **BARE)
    fig.update_layout(
        legend={"orientation": "h", "x": 0, "y": -0.01, "yanchor": "top"}, hovermode="closest",
    )  # fmt: skip
    full = "the sorter's memory" if s.full["sorter"] else "the most seen"
    more = f" {count(s.more, 'more table')} not drawn." if s.more else ""
    height = 238 + _LANE_PX * len(s.lanes)
    note = _NOTE.format(full=full) + more
    return finish(fig, title=finding_of(s, at_us), note=note, height=height, note_below_px=38, least_px=1000)


def finding_of(s: PipelineScene, at_us: int) -> str:
    """Say where rows wait and what holds the checkpoint."""
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


def _boxes(fig: Figure, k: int) -> None:
    for stage in ("puller", "sorter", "mounter", "sink"):
        color = STAGE_LOOK[stage][0]
        ends = {"x0": AT[stage] - HALF, "x1": AT[stage] + HALF, "y0": k + LOW, "y1": k + HIGH}
        fig.add_shape(type="rect", **ends, line={"color": color, "width": 1.8}, layer="below")
