"""Fleet map: the workers of a DDL service with the clusters that each has, and how far that is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import BARE, GREY, WRONG, count, finish, label, look, sentence
from ticdc_lab.simulate.ddl_service.fleet import IS_DOWN, IS_UP, LEADS, Fleet
from ticdc_lab.simulate.ddl_service.records import CAMPAIGNING, IS_OWNER, SCHEDULING
from ticdc_lab.simulate.ownership import natural

STATUS_LOOK: Mapping[str, tuple[str, str]] = MappingProxyType(
    {IS_OWNER: ("#009E73", "square"), CAMPAIGNING: ("#E69F00", "diamond"), SCHEDULING: (GREY, "x")}
)
"""Colour and symbol of each status."""

NOBODY = "nobody"
_NAMED, _FEW = 14, 9
"""Clusters of a worker, and workers, up to which names stand beside the marks."""

_NOTE = (
    "A box per worker, a mark per cluster: owned, campaigning, or only assigned. A star leads; a red box is down; "
    "marks in a red box have no owner. Look at the heights: no worker should have two more than another."
)


def fleet_map(fleet: Fleet, *, at_us: int | None = None, finding: str = "") -> Figure:
    """Draw a fleet at a moment.

    Parameters
    ----------
    fleet
        Of a run (:func:`ticdc_lab.simulate.ddl_service.fleet.fleet_in`) or of a running service (``fleet_polled``).
    at_us
        The moment, µs; by default the end.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    moment = fleet.end_us if at_us is None else at_us
    held, alive = fleet.at(moment)
    workers = workers_of(fleet)
    if not workers:
        return sentence("No worker is registered", "Nobody was there when the service was looked at.")
    high = max(3, int(fleet.held.groupby("worker")["cluster"].nunique().max() or 0) if len(fleet.held) else 3)
    high = min(high, _highest(fleet))
    places = [*workers, NOBODY]
    down, leaders = _in(alive, IS_DOWN), _in(alive, LEADS)
    absent = set(workers) - down - _in(alive, IS_UP)
    fig = Figure(_marks(held, places, named=high <= _NAMED and len(places) <= _FEW, size=_size(high, len(places))))
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
        title_text="clusters",
        dtick=max(1, high // 6),
        tick0=0,
        range=[0.1, high + 0.9],
        fixedrange=True,
        showgrid=False,
        zeroline=False,
    )
    fig.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}, hovermode="closest")
    title = label(finding, most=300) or finding_of(held, [w for w in workers if w not in absent], down, moment)
    fig = finish(fig, title=title, note=_NOTE, height=270 + min(420, 30 * high), note_below_px=70)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 34)


def fleet_map_stepped(fleet: Fleet, *, most: int = 40) -> Figure:
    """Draw a fleet moment by moment, on a slider that needs no kernel: after each change, or ``most`` of them."""
    changed = sorted({*fleet.held["since_us"], *fleet.alive["since_us"], *fleet.moments["time_us"], fleet.end_us})
    if len(changed) < 2:
        return fleet_map(fleet)
    apart = [t for t, later in zip(changed, [*changed[1:], fleet.end_us + 1], strict=True) if later - t > 20_000]
    step = max(1, -(-len(apart) // most))
    chosen = sorted({*apart[::step], fleet.end_us})
    return stepped({f"{t / 1e6:,.3f} s": fleet_map(fleet, at_us=int(t)) for t in chosen}, prefix="at ")


def _in(alive: pd.DataFrame, state: str) -> set[str]:
    return set(alive[alive["state"] == state]["worker"])


def workers_of(fleet: Fleet) -> list[str]:
    """Give the workers in their order, which is that of their colours in every figure of the fleet."""
    held = {w for name in fleet.held["worker"].dropna() for w in str(name).split(" and ")}
    return sorted({*fleet.alive["worker"], *held}, key=natural)


def finding_of(held: pd.DataFrame, workers: list[str], down: set[str], at_us: int) -> str:
    """Say who owns how much, and what nobody owns."""
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


def _highest(fleet: Fleet) -> int:
    """The most clusters that one worker has at a time."""
    moments = sorted(set(fleet.held["since_us"]))
    step = max(1, len(moments) // 200)
    counts = [fleet.at(int(t))[0]["worker"].fillna(NOBODY).value_counts().max() for t in moments[::step]]
    return int(max([3, *(int(c) for c in counts if c == c)]))


def _size(high: int, places: int) -> int:
    return max(6, min(20, 420 // high, 640 // places))


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
