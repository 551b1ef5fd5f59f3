"""Operators over time: how many run, which ended how, and, where they are few, each life as a bar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from ticdc_lab.figures.figure import Bar, Figure, Scatter, Trace, subplots
from ticdc_lab.figures.look import GREY, WRONG, legend_above
from ticdc_lab.figures.pd_run import kind_look, kind_name, pattern
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.pd_core.lifecycle import SUCCESS
from ticdc_lab.simulate.pd.world.recording import Recording
from ticdc_lab.simulate.pd.world.running import Finished
from ticdc_lab.words import count, rounded

_BINS = 90
_MOST_LIVES = 300
_MOST_KINDS = 7
_NOTE = (
    "Above: operators that run, by what asked for them. {second}: operators that finish per second; below zero, those "
    "that were cancelled, most before they started. {below}Look for plateaus (a limit) and for pauses (back-off)."
)


def operator_timeline(recording: Recording, *, between_s: tuple[float, float] | None = None) -> Figure:
    """Draw the lives of operators.

    Parameters
    ----------
    recording
        The run.
    between_s
        The stretch drawn, virtual seconds; by default all of it. Of up to 300 operators each life is drawn.
    """
    end_s = recording.samples[-1].at_us / 1e6
    a, b = between_s or (0.0, end_s)
    lives = [f for f in recording.lives if f.created_us / 1e6 <= b and f.finished_us / 1e6 >= a]
    drops = [d for d in recording.drops if a <= d.at_us / 1e6 <= b]
    if not lives and not drops:
        return sentence("PD asked for nothing", f"No operator was made between {a:,.0f} and {b:,.0f} s.")
    edges = np.linspace(a, b, _BINS + 1)
    few = 0 < len(lives) <= _MOST_LIVES
    lanes = lanes_of(lives) if few else {}
    low_px = LIVES_PX * (1 + max(lanes.values(), default=0)) if few else 0
    heights = [170, 130, *([max(90, low_px)] if few else [])]
    fig = subplots(rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.05)
    top = [desc for desc, _ in Counter(f.desc for f in lives).most_common(_MOST_KINDS)]
    by_kind: dict[str, list[Finished]] = {desc: [] for desc in [*top, "others"]}  # the rarest share one
    for f in lives:
        by_kind[f.desc if f.desc in top else "others"].append(f)
    for desc, mine in [(desc, mine) for desc, mine in by_kind.items() if mine]:
        _running(fig, mine, desc, edges)
        n, _ = np.histogram([f.finished_us / 1e6 for f in mine if f.status == SUCCESS], edges)
        _bars(fig, n / (edges[1] - edges[0]), edges, label(kind_name(desc)), pattern(*kind_look(desc)), legend=False)
    _cancelled(fig, [d.at_us for d in drops] + [f.finished_us for f in lives if _failed(f)], edges)
    if few:
        for bar in lives_bars(lives, lanes):
            fig.add_trace(bar, 3, 1)
        fig.update_yaxes(showticklabels=False, title_text="lives", showgrid=False, zeroline=False, row=3, col=1)
    fig.update_yaxes(title_text="running", rangemode="tozero", row=1, col=1)
    fig.update_yaxes(title_text="per second", row=2, col=1)
    fig.update_xaxes(title_text="virtual time, s", row=len(heights), col=1)
    fig.update_xaxes(range=[a, b], zeroline=False)
    fig.update_layout(barmode="relative", bargap=0, hovermode="closest", legend=legend_above(1.005))
    below = "At the bottom each operator: grey while it waits, coloured while it runs. " if few else ""
    if few and len({*lanes.values()}) >= _MOST_LANES:
        below += f"In its {_MOST_LANES} lanes operators may lie on each other. "
    below += f"A step of the curve and a bar are {rounded((b - a) / _BINS)} s. "
    title = finding_of(lives, len(drops), a, b)
    note = _NOTE.format(second="Middle" if few else "Below", below=below)
    return finish(fig, title=title, note=note, height=200 + sum(heights), above_px=52)


def _failed(f: Finished) -> bool:
    return f.status in ("canceled", "timeout", "replaced", "expired")


def _running(fig: Figure, mine: Sequence[Finished], desc: str, edges: np.ndarray) -> None:
    starts = np.sort([f.started_us / 1e6 for f in mine if f.started_us is not None])
    ends = np.sort([f.finished_us / 1e6 for f in mine if f.started_us is not None and f.status != "started"])
    at = (edges[:-1] + edges[1:]) / 2
    n = np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")
    color, hatch = kind_look(desc)
    fig.add_trace(
        Scatter(
            x=at.round(3).tolist(), y=n.tolist(), stackgroup="running", mode="lines", name=label(kind_name(desc)),
            line={"width": 0.8, "color": color, "shape": "hvh"}, legendgroup=desc,
            fillpattern={"shape": hatch, "fgcolor": color, "bgcolor": _pale(color), "size": 7, "solidity": 0.4},
            hovertemplate="%{y} run at %{x:,.0f} s<extra>" + label(kind_name(desc)) + "</extra>",
        ), 1, 1,
    )  # fmt: skip


def _pale(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.55)"


def _cancelled(fig: Figure, times_us: Sequence[int], edges: np.ndarray) -> None:
    n, _ = np.histogram([t / 1e6 for t in times_us], edges)
    if n.any():
        _bars(fig, -n / (edges[1] - edges[0]), edges, "cancelled", pattern(WRONG, "x"), legend=True)


def _bars(
    fig: Figure, rate: np.ndarray, edges: np.ndarray, name: str, marker: dict[str, object], *, legend: bool,
) -> None:  # fmt: skip
    at = (edges[:-1] + edges[1:]) / 2
    fig.add_trace(
        Bar(
            x=at.round(3).tolist(), y=rate.round(3).tolist(), width=float(edges[1] - edges[0]), marker=marker,
            name=name, showlegend=legend, customdata=np.abs(rate).round(2).tolist(),
            hovertemplate="%{customdata} a second at %{x:,.0f} s<extra>" + name + "</extra>",
        ), 2, 1,
    )  # fmt: skip


def finding_of(lives: Sequence[Finished], drops: int, a: float, b: float) -> str:
    """Count them, their durations, and the outcomes of unfinished ones."""
    done = [f for f in lives if f.status == SUCCESS and a <= f.finished_us / 1e6 <= b]
    kinds = Counter(f.desc for f in done)
    top = ", ".join(f"{n:,} {label(kind_name(d))}" for d, n in kinds.most_common(2))
    top += f", {sum(kinds.values()) - sum(n for _, n in kinds.most_common(2)):,} others" * (len(kinds) > 2)
    times = sorted((f.finished_us - (f.started_us or f.created_us)) / 1e6 for f in done)
    took = f", half of them within {rounded(times[len(times) // 2], 2)} s" if times else ""
    failed = Counter(f.status for f in lives if _failed(f) and f.finished_us / 1e6 <= b)
    lost = ", ".join(f"{n:,} {word}" for word, n in sorted(failed.items()))
    never = f"{drops:,} never started" if drops else ""
    rest = "; ".join(t for t in (lost, never) if t)
    head = f"{count(len(done), 'operator')} finished from {a:,.0f} to {b:,.0f} s"
    return (
        f"{head} ({top}){took}{f'; {rest}' if rest else ''}" if done else f"No operator finished; {rest or 'some run'}"
    )


# Each operator's life as a bar: created, started, ended; packed into lanes.

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
        out.append(_lives_from(mine, [f.created_us for f in mine], begin, lanes, pattern(GREY, "")))
        out.append(_lives_from(mine, begin, [f.finished_us for f in mine], lanes, pattern(*kind_look(desc))))
    failed = [f for f in lives if f.status not in (SUCCESS, "started")]
    if failed:
        crosses = Scatter(
            x=[f.finished_us / 1e6 for f in failed], y=[lanes[f.number] for f in failed], mode="markers",
            marker={"symbol": "x", "color": WRONG, "size": 8}, hovertext=[hover(f) for f in failed],
            hoverinfo="text", showlegend=False,
        )  # fmt: skip
        out.append(marked(crosses, [Selection(region=f.region) for f in failed]))
    return out


def _lives_from(
    mine: Sequence[Finished], a: Sequence[int], b: Sequence[int], lanes: Mapping[int, int], marker: dict[str, object]
) -> Bar:
    bars = Bar(
        orientation="h", base=[t / 1e6 for t in a], x=[(v - u) / 1e6 for u, v in zip(a, b, strict=True)],
        y=[lanes[f.number] for f in mine], width=0.8, marker=marker, hovertext=[hover(f) for f in mine],
        hoverinfo="text", showlegend=False,
    )  # fmt: skip
    return marked(bars, [Selection(region=f.region) for f in mine])


def hover(f: Finished) -> str:
    """Describe an operator's life."""
    began = "never started" if f.started_us is None else f"started {f.started_us / 1e6:,.3f} s"
    end = "runs still" if f.status == "started" else f"{f.status} {f.finished_us / 1e6:,.3f} s"
    why = f"<br>{label(f.ended_because, most=90)}" if f.ended_because else ""
    head = f"<b>{label(f.desc)}</b> region {f.region}: {label(f.brief, most=60)}"
    return (
        f"{head}<br>created {f.created_us / 1e6:,.3f} s, {began}, {end}{why}<br>{label('; '.join(f.steps), most=140)}"
    )
