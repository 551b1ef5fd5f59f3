"""Workers of the DDL service: who owns which cluster, now and over time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from ticdc_lab.ddl_core.fleet import IS_DOWN, IS_UP, LEADS, Fleet
from ticdc_lab.ddl_core.records import CAMPAIGNING, IS_OWNER, SCHEDULING
from ticdc_lab.figures.figure import Bar, Figure, Heatmap, Scatter
from ticdc_lab.figures.look import BARE, GREY, HEAT, WRONG, hatch, legend_above, look
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.simulate.ledger import natural
from ticdc_lab.words import count

# Fleet map: the workers of a DDL service with the clusters that each has, and how far that is.


STATUS_LOOK: Mapping[str, tuple[str, str]] = MappingProxyType(
    {IS_OWNER: ("#009E73", "square"), CAMPAIGNING: ("#E69F00", "diamond"), SCHEDULING: (GREY, "x")}
)
"""Colour and symbol of each status."""

NOBODY = "nobody"
_NAMED, _FEW = 14, 9
"""Clusters of a worker, and workers, up to which names are beside the marks."""

_NOTE_OF_MAP = (
    "A box per worker, a mark per cluster: owned, campaigning, or only assigned. A star leads; a red box is down; "
    "marks in a red box have no owner. Look at the heights: no worker should have two more than another."
)


def fleet_map(fleet: Fleet, *, at_us: int | None = None) -> Figure:
    """Draw a fleet at a moment.

    Parameters
    ----------
    fleet
        Of a run (:func:`ticdc_lab.ddl_core.fleet.fleet_in`) or of a running service (``fleet_polled``).
    at_us
        The moment, µs; by default the end.
    """
    moment = fleet.end_us if at_us is None else at_us
    held, alive = (rows.to_pandas() for rows in fleet.at(moment))
    every, workers = fleet.held.to_pandas(), workers_of(fleet)
    if not workers:
        return sentence("No worker is registered", "No worker was there when the service was looked at.")
    high = max(3, int(every.groupby("worker")["cluster"].nunique().max() or 0) if len(every) else 3)
    moments = sorted(set(every["since_us"]))  # the most clusters that one worker has at a time
    step = max(1, len(moments) // 200)
    counts = [fleet.at(t)[0]["worker"].to_pandas().fillna(NOBODY).value_counts().max() for t in moments[::step]]
    high = min(high, int(max([3, *(int(c) for c in counts if c == c)])))
    places = [*workers, NOBODY]
    down, leaders = _in(alive, IS_DOWN), _in(alive, LEADS)
    absent = set(workers) - down - _in(alive, IS_UP)
    named = high <= _NAMED and len(places) <= _FEW
    fig = Figure(_marks(held, places, named=named, size=max(6, min(20, 420 // high, 640 // len(places)))))
    for i, name in enumerate(places):
        wrong = name in down or (name == NOBODY and bool(held["worker"].isna().any()))
        color = WRONG if wrong else GREY if name in absent or name == NOBODY else look(i)["color"]
        line = {"color": color, "width": 2, "dash": "dash" if wrong else "dot" if color == GREY else "solid"}
        box = {"x0": i - 0.46, "x1": i + 0.46, "y0": 0.3, "y1": high + 0.7}
        fig.add_shape(type="rect", **box, line=line, fillcolor="rgba(128,128,128,0.08)", layer="below")
    for i, name in enumerate(places):  # not ticks, which a frame of a player leaves as they are
        text = _name(name, leaders, down, absent, len(places))
        fig.add_annotation(x=i, y=0, yref="paper", yanchor="top", yshift=-4, text=text, showarrow=False)
    fig.update_xaxes(showticklabels=False, range=[-0.6, len(places) - 0.4], fixedrange=True, **BARE)
    fig.update_yaxes(
        title_text="clusters", dtick=max(1, high // 6), tick0=0, range=[0.1, high + 0.9], fixedrange=True,
        showgrid=False, zeroline=False,
    )  # fmt: skip
    fig.update_layout(legend=legend_above(), hovermode="closest")
    title = finding_of_map(held, [w for w in workers if w not in absent], down, moment)
    longest = int(held["cluster"].str.len().max()) if named and len(held) else 0
    least_px = 90 + len(places) * (36 + 8 * longest) if longest else 0  # a name ends inside its box
    return finish(
        fig, title=title, note=_NOTE_OF_MAP, height=270 + min(420, 30 * high), note_below_px=70, least_px=least_px,
        above_px=34,
    )  # fmt: skip


def fleet_map_stepped(fleet: Fleet, *, most: int = 40) -> Figure:
    """Draw a fleet moment by moment, on a slider that needs no kernel: after each change, or ``most`` of them."""
    times = (fleet.held["since_us"], fleet.alive["since_us"], fleet.moments["time_us"])
    changed = sorted({fleet.end_us, *(t for column in times for t in column.to_pylist())})
    if len(changed) < 2:
        return fleet_map(fleet)
    apart = [t for t, later in zip(changed, [*changed[1:], fleet.end_us + 1], strict=True) if later - t > 20_000]
    step = max(1, -(-len(apart) // most))
    chosen = sorted({*apart[::step], fleet.end_us})
    return stepped({f"{t / 1e6:,.3f} s": fleet_map(fleet, at_us=int(t)) for t in chosen}, prefix="at ")


def _in(alive: pd.DataFrame, state: str) -> set[str]:
    return set(alive[alive["state"] == state]["worker"])


def workers_of(fleet: Fleet) -> list[str]:
    """Give the workers in their order, the order of their colours in every figure of the fleet."""
    held = {w for name in fleet.held["worker"].unique().drop_null().to_pylist() for w in name.split(" and ")}
    return sorted({*fleet.alive["worker"].to_pylist(), *held}, key=natural)


def finding_of_map(held: pd.DataFrame, workers: list[str], down: set[str], at_us: int) -> str:
    """Name who owns how much, and what is unowned."""
    owned = held[held["status"] == IS_OWNER]
    up = [w for w in workers if w not in down]
    counts = owned["worker"].value_counts()
    each = [int(counts.get(w, 0)) for w in up]
    spread = f"{min(each)} to {max(each)}" if each and min(each) < max(each) else f"{max(each, default=0)}"
    idle = len(held) - len(owned)
    rest = f"; {count(idle, 'cluster')} without owner" if idle else ""
    lost = f"; {count(len(down), 'worker')} down" if down else ""
    owners, clusters = count(len(up), "worker"), count(len(owned), "cluster")
    verb = "owns" if len(up) == 1 else "own"
    return f"At {at_us / 1e6:,.3f} s, {owners} {verb} {clusters}, {spread} each{rest}{lost}"


def _marks(held: pd.DataFrame, places: list[str], *, named: bool, size: int) -> list[Scatter]:
    """The marks of each status; of two owners both have one."""
    at: dict[str, list[tuple[int, int, str, str]]] = {status: [] for status in STATUS_LOOK}
    used = dict.fromkeys(places, 1)
    rows = sorted(held.itertuples(), key=lambda r: (list(STATUS_LOOK).index(r.status), natural(r.cluster)))
    for r in rows:
        for worker in NOBODY.split() if r.worker is None or pd.isna(r.worker) else str(r.worker).split(" and "):
            at[r.status].append((places.index(worker), used[worker], r.cluster, worker))
            used[worker] += 1
    out = []
    for status, (color, symbol) in STATUS_LOOK.items():
        marks = at[status]
        out.append(
            Scatter(
                x=[i - 0.3 if named else i for i, _, _, _ in marks], y=[y for _, y, _, _ in marks],
                mode="markers+text" if named else "markers", name=status,
                text=[label(c, most=16) for _, _, c, _ in marks] if named else None, textposition="middle right",
                textfont={"size": 12}, marker={"color": color, "symbol": symbol, "size": size},
                hovertext=[f"{label(c)}: {status} on {label(w)}" for _, _, c, w in marks], hoverinfo="text",
            )
        )  # fmt: skip
    return out


def _name(name: str, leaders: set[str], down: set[str], absent: set[str], places: int) -> str:
    short = name if places <= _FEW else name.rsplit("-", 1)[-1]
    if name == NOBODY:
        return NOBODY
    more = (
        "<br>★ leader" if name in leaders else "<br>down" if name in down else "<br>not there" if name in absent else ""
    )
    return label(short, most=22).replace("ddl-service-", "") + more


# Assignment over time: which worker owns the DDL of which cluster, when none does, and what happened meanwhile.


MOMENT_LOOK = {
    "crash": (WRONG, "dash", "x"), "left": ("#CC79A7", "dot", "triangle-down"),
    "joined": ("#009E73", "dot", "triangle-up"), "new leader": ("#0072B2", "solid", "star"),
    "parted": ("#E69F00", "dot", "square"), "violated": (WRONG, "solid", "hourglass"),
}  # fmt: skip
"""Colour, dash and symbol of each kind of moment."""

_MOST = 40
_NOTE_OF_GANTT = (
    "A row per cluster, coloured by the worker that owns its DDL. Hatched: assigned, not owned yet. Grey: its worker "
    "is gone, or it has none. A cluster must never have two owners at once. Only rows of workers that came or went "
    "may change."
)
_NOTE_MANY = (
    "A row per worker: the more clusters it owns, the lighter it is. After a crash the others take its clusters; "
    "after a join each gives a few. Soon all rows should have one shade again, after as few moves as possible."
)
_LOOKS = 241
"""Moments at which clusters are counted where they are many."""


def assignment_gantt(fleet: Fleet, *, most: int = _MOST) -> Figure:
    """Draw who owns what over time.

    Parameters
    ----------
    fleet
        Of a run (:func:`ticdc_lab.ddl_core.fleet.fleet_in`) or of a running service (``fleet_polled``).
    most
        Rows drawn; of more clusters a row is drawn for each worker, with how many it owns.
    """
    if not len(fleet.held):
        return sentence("No cluster is registered", "There was no cluster to own when the service was looked at.")
    clusters = sorted(fleet.held["cluster"].unique().to_pylist(), key=natural)
    many = len(clusters) > most
    fig = Figure(_counts(fleet) if many else _bars(fleet, clusters))
    names = [w.removeprefix("ddl-service-") for w in workers_of(fleet)] if many else clusters
    low = len(names) - 0.4
    fig.update_yaxes(
        tickvals=list(range(len(names))), ticktext=[label(n, most=24) for n in names], range=[low, -1.0],
        showgrid=False, zeroline=False,
    )  # fmt: skip
    for trace in _moments(fleet, (low, -0.75)):
        fig.add_trace(trace)
    fig.update_xaxes(title_text="time, s", rangemode="tozero", zeroline=False)
    legend = legend_above()
    fig.update_layout(barmode="overlay", bargap=0.2, hovermode="closest", legend=legend)
    height = 280 + 26 * (min(_MOST, len(workers_of(fleet))) if many else len(clusters))
    title = finding_of_gantt(fleet)
    return finish(fig, title=title, note=_NOTE_MANY if many else _NOTE_OF_GANTT, height=height, above_px=52)


def finding_of_gantt(fleet: Fleet) -> str:
    """Count how often clusters changed hands, and how long one was unowned."""
    held = fleet.held.to_pandas()
    owned, idle = held[held["status"] == IS_OWNER], held[held["status"] != IS_OWNER]
    names = owned.sort_values("since_us").groupby("cluster")["worker"]
    moves = int(names.agg(lambda of: int((of != of.shift()).sum()) - 1).sum()) if len(owned) else 0
    begun = owned.groupby("cluster")["since_us"].min()
    idle = idle[idle["since_us"] >= idle["cluster"].map(begun).fillna(fleet.end_us)]
    lengths = (idle["until_us"] - idle["since_us"]).groupby(idle["cluster"]).sum()
    first = f"{count(len(begun), 'cluster has', 'clusters have')} an owner"
    changed = f"ownership changes {count(moves, 'time')}" if moves else "no ownership changes"
    two = owned[owned["worker"].str.contains(" and ", regex=False)]
    if len(two):
        return f"{label(two.iloc[0]['cluster'])} has two owners: {label(two.iloc[0]['worker'], most=80)}"
    if lengths.empty:
        return f"{first}, {changed}, and none is left alone"
    return f"{first}, {changed}; {label(lengths.idxmax())} is without one for {lengths.max() / 1e6:,.3f} s, the longest"


def _bars(fleet: Fleet, clusters: list[str]) -> list[Bar]:
    row = {name: i for i, name in enumerate(clusters)}
    held, alive = fleet.held.to_pandas(), fleet.alive.to_pandas()
    down = alive[alive["state"] == IS_DOWN]
    lost = []  # a stretch is unowned, or of a worker that was down and yet had the cluster assigned to it
    for r in held.itertuples():
        spans = down[(down["worker"] == r.worker) & (down["since_us"] <= r.since_us) & (r.since_us < down["until_us"])]
        lost.append(r.worker is None or pd.isna(r.worker) or (r.status != IS_OWNER and len(spans) > 0))
    held = held.assign(lost=lost)
    out = []
    for i, worker in enumerate(workers_of(fleet)):
        mine = held[(held["worker"] == worker) & ~held["lost"]]
        for owned in (True, False):
            lines = {"shape": "" if owned else "/", "fillmode": "overlay", "fgcolor": "white", "solidity": 0.4}
            marker = {"color": look(i)["color"], "pattern": lines, "line": {"width": 0.5, "color": "white"}}
            part = mine[(mine["status"] == IS_OWNER) == owned]
            name = worker if owned else f"{worker}, not yet"
            out.append(_bar(part, row, marker, name, show=owned and len(part) > 0))
    two = held[held["worker"].fillna("").str.contains(" and ", regex=False)]
    out.append(_bar(two, row, {"color": WRONG}, "two owners", show=len(two) > 0))
    alone = held[held["lost"]]
    lines = hatch("x", solidity=0.3, color=GREY)
    marker = {"color": "rgba(0,0,0,0)", "line": {"color": GREY, "width": 1}, "pattern": lines}
    out.append(_bar(alone, row, marker, "nobody's", show=len(alone) > 0))
    return out


def _bar(mine: pd.DataFrame, row: dict[str, int], marker: Mapping[str, object], name: str, *, show: bool) -> Bar:
    hover = [
        f"{label(r.cluster)}: {label(r.worker or 'nobody', most=60)}, {r.status}<br>"
        f"{r.since_us / 1e6:,.3f} to {r.until_us / 1e6:,.3f} s"
        for r in mine.itertuples()
    ]
    bars = Bar(
        orientation="h", base=(mine["since_us"] / 1e6).tolist(),
        x=((mine["until_us"] - mine["since_us"]) / 1e6).tolist(), y=[row[c] for c in mine["cluster"]], width=0.78,
        marker=marker, name=label(name).replace("ddl-service-", ""), hovertext=hover, hoverinfo="text", showlegend=show,
    )  # fmt: skip
    owners = [w if isinstance(w, str) and " and " not in w else None for w in mine["worker"]]
    return marked(bars, [Selection(capture=w) if w else None for w in owners])


def _counts(fleet: Fleet) -> list[Heatmap]:
    """How many clusters each worker owns, looked at at as many moments as are wide apart on a page."""
    owned = fleet.held.filter(pc.field("status") == IS_OWNER).to_pandas()
    workers = workers_of(fleet)
    times = np.linspace(0, fleet.end_us, _LOOKS)
    counts = np.zeros((len(workers), _LOOKS), dtype=int)
    for i, worker in enumerate(workers):
        mine = owned[owned["worker"] == worker]
        begun, ended = np.sort(mine["since_us"].to_numpy()), np.sort(mine["until_us"].to_numpy())
        late = ended[ended < fleet.end_us]
        counts[i] = np.searchsorted(begun, times, side="right") - np.searchsorted(late, times, side="right")
    return [
        Heatmap(
            x=times / 1e6, y=list(range(len(workers))), z=counts, colorscale=HEAT, zmin=0,
            colorbar={"title": {"text": "clusters"}, "thickness": 14},
            customdata=[[label(w)] * _LOOKS for w in workers],
            hovertemplate="%{customdata} owns %{z} clusters at %{x:.3f} s<extra></extra>",
        )
    ]  # fmt: skip


def _moments(fleet: Fleet, ends: tuple[float, float]) -> list[Scatter]:
    """A line for each incident, with a mark on its top."""
    out = []
    for what, (color, dash, symbol) in MOMENT_LOOK.items():
        mine = fleet.moments.filter(pc.field("what") == what).to_pandas()
        if mine.empty:
            continue
        x = [v for t in mine["time_us"] for v in (t / 1e6, t / 1e6, None)]
        hover = [
            v
            for r in mine.itertuples()
            for v in [f"{what}: {label(r.node)}{f'<br>{label(r.because, most=120)}' if r.because else ''}"] * 3
        ]
        out.append(
            Scatter(
                x=x, y=[v for _ in mine["time_us"] for v in (ends[1], ends[0], None)], mode="lines+markers",
                line={"color": color, "dash": dash, "width": 1.6}, hovertext=hover, hoverinfo="text", name=what,
                marker={"symbol": symbol, "color": color, "size": [v for _ in mine["time_us"] for v in (11, 0, 0)]},
            )
        )  # fmt: skip
    return out
