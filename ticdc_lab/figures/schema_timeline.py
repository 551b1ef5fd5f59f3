"""Schema-state timeline: the state that a DDL has on every tidb-server, and for whom it waits."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.progress import JobProgress
from ticdc_lab.figures.figure import Bar, Figure, Scatter
from ticdc_lab.figures.look import GREY, WRONG, hatch, legend_above
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.simulate.ddl_service.progress import job_progress
from ticdc_lab.simulate.ledger import natural

STATE_LOOK = {
    jobs.NONE: (GREY, ""), jobs.DELETE_ONLY: ("#56B4E9", "/"), jobs.WRITE_ONLY: ("#E69F00", "x"),
    jobs.WRITE_REORG: ("#CC79A7", "."), jobs.PUBLIC: ("#009E73", ""),
}  # fmt: skip
"""Colour and pattern of each schema state."""

_AROUND = 0.06
"""Drawn before the job begins and after it has ended, as a share of its length."""

_NOTE = (
    "A row per tidb-server, coloured by the state of {element} in the schema that it works with; on top the job. "
    "Framed: the job waits for this server. At most two states may be live at a moment, and they must be neighbours."
)


def schema_timeline(trace: pa.Table, *, cluster: str = "cluster1", job: int = 1) -> Figure:
    """Draw a job over time.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE` of a run of the DDL service.
    cluster, job
        Which job.
    """
    p = job_progress(trace, cluster=cluster, job=job)
    if p is None:
        return sentence(f"There is no job {job} of {label(cluster)}", "No such statement was sent in this run.")
    return job_timeline(p, time="virtual time, s")


def job_timeline(p: JobProgress, *, time: str = "since the first look, s") -> Figure:
    """Draw the progress of a job.

    Parameters
    ----------
    p
        Of a run, or of a service that really runs (:class:`ticdc_lab.ddl_service.watch.job_watch`).
    time
        What the axis is.
    """
    element = p.job.element if p.job.name else p.job.table
    names = ["the job", *sorted({*p.served["server"], *p.waits["server"]}, key=natural)]
    row = {name: i for i, name in enumerate(names)}
    fig = Figure([*_states(p, row), *_waits(p, row), _rows(p)])
    for at_us, text in ((p.since_us, "sent"), (p.until_us, p.job.state)):
        fig.add_vline(x=at_us / 1e6, line={"color": GREY, "width": 1, "dash": "dot"})
        fig.add_annotation(
            x=at_us / 1e6, y=-0.62, text=label(text), showarrow=False, xanchor="left" if text == "sent" else "right"
        )
    for since_us, until_us in _thirds(p):
        fig.add_vrect(x0=since_us / 1e6, x1=until_us / 1e6, fillcolor=WRONG, opacity=0.45, line_width=0)
    around = _AROUND * max(1, p.until_us - p.since_us)
    fig.update_xaxes(title_text=time, range=[(p.since_us - around) / 1e6, (p.until_us + around) / 1e6], zeroline=False)
    texts = [label(_short(n), most=28) for n in names]
    fig.update_yaxes(
        tickvals=list(range(len(names))), ticktext=texts, range=[len(names) - 0.4, -0.8], showgrid=False, zeroline=False
    )
    legend = legend_above()
    fig.update_layout(barmode="overlay", bargap=0.2, hovermode="closest", legend=legend)
    title = finding_of(p)
    return finish(
        fig, title=title, note=_NOTE.format(element=label(element)), height=260 + 38 * len(names), above_px=34
    )


def finding_of(p: JobProgress) -> str:
    """Describe how it ended, how long it took, and for whom it waited."""
    name = f"{p.job.kind} {label(p.job.element.rstrip('/'))} of {label(p.cluster)}"
    if third := _thirds(p):
        return f"{name} has states in use that are no neighbours at {third[0][0] / 1e6:,.3f} s"
    length = f"{(p.until_us - p.since_us) / 1e6:,.3f} s"
    ended = {records.DONE: "takes", records.ROLLED_BACK: "is rolled back after"}.get(p.job.state, "")
    if p.job.state == records.CANCELLED:
        return f"{name} is rejected: {label(p.job.error, most=120)}"
    begun = f"{name} {ended or 'is not done after'} {length}"
    if not p.waited_us:
        return begun
    server, us = next(iter(p.waited_us.items()))
    why = f" ({label(p.job.error, most=80)})" if p.job.error else ""
    return f"{begun}{why}; for {us / 1e6:,.3f} s of that it waits for {label(_short(server))}"


def _thirds(p: JobProgress) -> list[tuple[int, int]]:
    """Stretches in which more than two states were in use, or two that are no neighbours."""
    moments = sorted(set(p.served["since_us"]))
    served = p.served
    live = [
        (int(t), set(served[(served["since_us"] <= t) & (t < served["until_us"])]["state"]))
        for t in moments
        if p.since_us <= t <= p.until_us
    ]
    ends = [*(t for t, _ in live[1:]), p.until_us][: len(live)]
    return [
        (t, max(end, t + 1 + (p.until_us - p.since_us) // 50))
        for (t, states), end in zip(live, ends, strict=True)
        if any(not jobs.neighbours(p.job.element, a, b) for a in states for b in states)
    ]


def _short(server: str) -> str:
    return "the owner's own schema" if keys.cluster_of(server) else server


def _states(p: JobProgress, row: dict[str, int]) -> list[Bar]:
    own = p.steps.assign(server="the job", version="").rename(columns={"schema_state": "state", "state": "job"})
    own["state"] = own["state"].where(own["state"] != "", jobs.NONE)
    own["until_us"] = own["until_us"].clip(upper=p.until_us)
    bars = pd.concat([p.served.assign(job="", row_count=0, owner=""), own], ignore_index=True)
    out = []
    for state, (color, pattern) in STATE_LOOK.items():
        mine = bars[bars["state"] == state]
        marker = {"color": color, "pattern": hatch(pattern), "line": {"width": 0.5, "color": "white"}}
        out.append(
            Bar(
                orientation="h", base=(mine["since_us"] / 1e6).tolist(),
                x=((mine["until_us"] - mine["since_us"]) / 1e6).tolist(), y=[row[s] for s in mine["server"]],
                width=[0.86 if s == "the job" else 0.7 for s in mine["server"]], marker=marker, name=state,
                hovertext=[_hover(r) for r in mine.itertuples()], hoverinfo="text", showlegend=len(mine) > 0,
            )
        )  # fmt: skip
    return out


def _hover(r: Any) -> str:
    time = f"{r.since_us / 1e6:,.3f} to {r.until_us / 1e6:,.3f} s"
    if r.job:
        rows = f", {r.row_count:,} rows" if r.row_count else ""
        return f"the job is {r.job}, {r.state}{rows}<br>{label(r.owner or 'no worker has it yet')}<br>{time}"
    return f"{label(r.server)}: {r.state}, schema version {r.version}<br>{time}"


def _waits(p: JobProgress, row: dict[str, int]) -> list[Bar]:
    w = p.waits
    return [
        Bar(
            orientation="h", base=(w["since_us"] / 1e6).tolist(), x=((w["until_us"] - w["since_us"]) / 1e6).tolist(),
            y=[row[s] for s in w["server"]], width=0.92, name="the job waits for it", showlegend=len(w) > 0,
            marker={"color": "rgba(213,94,0,0.12)", "line": {"color": WRONG, "width": 2}},
            hovertext=[f"the job waits: {label(b, most=120)}" for b in w["because"]], hoverinfo="text",
        )
    ]  # fmt: skip


def _rows(p: JobProgress) -> Scatter:
    """Progress of the backfill, written on the job's bar."""
    filled = p.steps[p.steps["row_count"] > 0].drop_duplicates("row_count")
    return Scatter(
        x=(filled["since_us"] / 1e6).tolist(), y=[0.0] * len(filled), mode="markers", name="rows backfilled",
        marker={"symbol": "line-ns", "size": 12, "line": {"width": 1, "color": "white"}},
        hovertext=[f"{n:,} of {p.job.rows:,} rows" for n in filled["row_count"]], hoverinfo="text", showlegend=False,
    )  # fmt: skip
