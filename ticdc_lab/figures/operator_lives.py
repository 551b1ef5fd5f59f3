"""Each operator's life as a bar: created, started, ended; packed into lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ticdc_lab.figures.figure import Bar, Scatter, Trace
from ticdc_lab.figures.pd_looks import kind_look, pattern
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import GREY, WRONG, label
from ticdc_lab.simulate.pd.lifecycle import SUCCESS
from ticdc_lab.simulate.pd.world.running import Finished

LIVES_PX = 7
_MOST_LANES = 60


def lanes_of(lives: Sequence[Finished]) -> dict[int, int]:
    """Give each operator (by number) a lane in which no other one runs meanwhile."""
    free: list[int] = []
    out: dict[int, int] = {}
    for f in sorted(lives, key=lambda f: (f.created_us, f.number)):
        lane = next((k for k, until in enumerate(free) if until <= f.created_us), len(free))
        if lane == len(free):
            free.append(0)
        free[lane] = f.finished_us
        out[f.number] = lane % _MOST_LANES
    return out


def lives_bars(lives: Sequence[Finished], lanes: Mapping[int, int]) -> list[Trace]:
    """Draw them: grey while they wait, coloured while they run, a red cross at the end of those that failed."""
    out: list[Trace] = []
    for desc in sorted({f.desc for f in lives}):
        mine = [f for f in lives if f.desc == desc]
        begin = [f.started_us if f.started_us is not None else f.finished_us for f in mine]
        out.append(_bars(mine, [f.created_us for f in mine], begin, lanes, pattern(GREY, "")))
        out.append(_bars(mine, begin, [f.finished_us for f in mine], lanes, pattern(*kind_look(desc))))
    failed = [f for f in lives if f.status not in (SUCCESS, "started")]
    if failed:
        crosses = Scatter(
            x=[f.finished_us / 1e6 for f in failed], y=[lanes[f.number] for f in failed], mode="markers",
            marker={"symbol": "x", "color": WRONG, "size": 8}, hovertext=[hover(f) for f in failed],
            hoverinfo="text", showlegend=False,
        )  # fmt: skip
        out.append(marked(crosses, [Selection(region=f.region) for f in failed]))
    return out


def _bars(
    mine: Sequence[Finished], a: Sequence[int], b: Sequence[int], lanes: Mapping[int, int], marker: dict[str, object]
) -> Bar:
    bars = Bar(
        orientation="h", base=[t / 1e6 for t in a], x=[(v - u) / 1e6 for u, v in zip(a, b, strict=True)],
        y=[lanes[f.number] for f in mine], width=0.8, marker=marker, hovertext=[hover(f) for f in mine],
        hoverinfo="text", showlegend=False,
    )  # fmt: skip
    return marked(bars, [Selection(region=f.region) for f in mine])


def hover(f: Finished) -> str:
    """Tell an operator's life."""
    began = "never started" if f.started_us is None else f"started {f.started_us / 1e6:,.3f} s"
    end = "runs still" if f.status == "started" else f"{f.status} {f.finished_us / 1e6:,.3f} s"
    why = f"<br>{label(f.ended_because, most=90)}" if f.ended_because else ""
    head = f"<b>{label(f.desc)}</b> region {f.region}: {label(f.brief, most=60)}"
    return (
        f"{head}<br>created {f.created_us / 1e6:,.3f} s, {began}, {end}{why}<br>{label('; '.join(f.steps), most=140)}"
    )
