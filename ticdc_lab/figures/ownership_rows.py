"""Where the bars of an ownership Gantt stand: a row for each table or capture, lanes for what lasts at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ticdc_lab.simulate.coverage import gaps, overlaps
from ticdc_lab.simulate.incidents import moments
from ticdc_lab.simulate.ownership import natural, stretches

By = Literal["table", "capture"]
Clock = Literal["us", "step"]

_BETWEEN = 0.6
"""Room between two captures."""


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Bars of a Gantt.

    Attributes
    ----------
    names
        Rows, from the top.
    bars
        :func:`ticdc_lab.simulate.ownership.stretches` with ``x0``, ``x1``, ``y`` and ``height``.
    doubled, unowned
        Overlaps and gaps with the same.
    lines
        :func:`ticdc_lab.simulate.incidents.moments` with ``x``.
    lanes
        How many units of ``y`` all of it takes.
    unit
        Of ``x``: ``virtual time, s``, ``virtual time, ms`` or ``step``.
    """

    names: tuple[str, ...]
    bars: pd.DataFrame
    doubled: pd.DataFrame
    unowned: pd.DataFrame
    lines: pd.DataFrame
    lanes: float
    unit: str


def rows_of(
    trace: pa.Table, *, by: By, clock: Clock, tables: tuple[str, ...] = (), captures: tuple[str, ...] = ()
) -> Rows:
    """Lay the stretches of a trace out; ``x`` is in seconds (milliseconds in a run of less than a second) or steps.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    by
        What has a row.
    clock
        ``us`` for virtual time, ``step`` for a counterexample, whose time is the number of a step.
    tables
        Those drawn; by default all.
    captures
        Only tables that these ever had, with all who had them too; by default all.
    """
    held = stretches(trace)
    held = held[held["table"].isin(tables)] if tables else held
    held = held[held["table"].isin(held[held["capture"].isin(captures)]["table"])] if captures else held
    two, nobody = overlaps(trace, held), gaps(trace, held)
    last = int(trace[_TIME[clock]][-1].as_py()) if len(trace) else 0
    scale, unit = _scale(clock, last)
    beyond = 0.03 * max(1, last) * scale
    held, two, nobody = (_placed(f, clock, scale, last, beyond) for f in (held, two, nobody))
    names = tuple(sorted(set(held[by]), key=natural))
    number = {name: i for i, name in enumerate(names)}
    held["row"], lanes = held[by].map(number), np.ones(len(names), dtype=int)
    held["lane"] = 0
    for name, mine in held.groupby(by, sort=False):
        lane = _lanes(mine, ["node"] if by == "table" else ["table"])
        held.loc[mine.index, "lane"] = lane
        lanes[number[name]] = lane.max() + 1
    if by == "capture":
        first = np.cumsum(lanes) - lanes + _BETWEEN * np.arange(len(lanes))
        held["y"], held["height"] = first[held["row"].to_numpy(dtype=int)] + held["lane"], 0.86
    else:
        n = lanes[held["row"].to_numpy(dtype=int)]
        held["y"], held["height"] = held["row"] - 0.4 + 0.8 * (held["lane"] + 0.5) / n, 0.8 / n
    for frame in (two, nobody):
        frame["y"], frame["height"] = frame["table"].map(number).astype(float), 0.92
    lines = moments(trace)
    lines["x"] = lines[_TIME[clock]] * scale
    high = len(names) if by == "table" else lanes.sum() + _BETWEEN * len(lanes)
    return Rows(names, held, two, nobody, lines, float(high), unit)


def capture_ticks(r: Rows) -> tuple[list[float], list[str]]:
    """Where the captures' names stand, when each has as many lanes as it needs."""
    middle = r.bars.groupby("capture")["y"].agg(lambda y: (y.min() + y.max()) / 2)
    return [float(middle[name]) for name in r.names], list(r.names)


def _scale(clock: Clock, last: int) -> tuple[float, str]:
    if clock == "step":
        return 1.0, "step"
    return (1e-6, "virtual time, s") if last >= 1_000_000 else (1e-3, "virtual time, ms")


_TIME = {"us": "time_us", "step": "step"}


def _placed(frame: pd.DataFrame, clock: Clock, scale: float, last: int, beyond: float) -> pd.DataFrame:
    """With ``x0`` and ``x1``; what begins at the very end is drawn a little beyond it, so that it can be seen."""
    x0, x1 = frame[f"since_{clock}"].astype(float), frame[f"until_{clock}"].astype(float)
    late = (frame[f"since_{clock}"] == last) & (frame[f"until_{clock}"] == last)
    return frame.assign(x0=x0 * scale, x1=x1 * scale + np.where(late, beyond, 0.0)).reset_index(drop=True)


def _lanes(mine: pd.DataFrame, same: list[str]) -> npt.NDArray[np.int64]:
    """The lane of each stretch: those of one holder and table on end share one, unless something is in the way."""
    free: list[float] = []
    lane_of: dict[object, tuple[int, float]] = {}
    out = []
    for bar in mine.to_dict("records"):
        who = tuple(bar[c] for c in same)
        lane, until = lane_of.get(who, (-1, -1.0))
        if lane < 0 or until != bar["x0"] or free[lane] > bar["x0"]:
            lane = next((i for i, end in enumerate(free) if end <= bar["x0"]), len(free))
        if lane == len(free):
            free.append(0.0)
        free[lane], lane_of[who] = bar["x1"], (lane, bar["x1"])
        out.append(lane)
    return np.array(out, dtype=np.int64)
