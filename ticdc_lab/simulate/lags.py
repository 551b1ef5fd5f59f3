"""How far checkpoint_ts and resolved_ts are behind the clock: per capture, per table and for the changefeed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.ownership import changes, of_kinds
from ticdc_lab.simulate.scheduler.clock import us_of
from ticdc_lab.simulate.scheduler.executor import MAX_TS

GLOBAL = "changefeed"
"""Who has the global watermarks."""

_REPORTS = ("Checkpoint", "HeartBeatRequest", "HeartbeatResponse")

_OF = {"checkpoint": "checkpoint", "resolved": "resolved", "global-checkpoint": "checkpoint",
       "global-resolved": "resolved"}  # fmt: skip


def watermarks(trace: pa.Table) -> pd.DataFrame:
    """Give every value that a watermark got.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.

    Returns
    -------
    pd.DataFrame
        ``time_us``, ``step``, ``who`` (a capture, a table, or :data:`GLOBAL`), ``watermark`` (``checkpoint`` or
        ``resolved``), ``ts`` (TSO) and ``at_us`` (the moment it stands for, µs). Where a capture has nothing
        to report any more (``MAX_TS``) or crashes both are 0.
    """
    told = [*(changes(trace, subject) for subject in _OF), _reported(trace), _crashed(trace)]
    rows = pd.concat(told, ignore_index=True).sort_values("order", kind="stable")
    rows = rows[rows["after"].notna()]
    rows["ts"] = rows["after"].astype("int64")
    rows["ts"] = rows["ts"].where(rows["ts"] < MAX_TS, 0)
    everyone = rows["subject"].str.startswith("global-")
    rows["who"] = rows["node"].map(node_of).where(~everyone, GLOBAL)
    rows["watermark"] = rows["subject"].map(_OF)
    rows["at_us"] = [us_of(ts) if ts else 0 for ts in rows["ts"]]
    said = rows.groupby(["who", "watermark"], sort=False)["ts"].shift(1, fill_value=0)
    rows = rows[said != rows["ts"]]
    return rows[["time_us", "step", "who", "watermark", "ts", "at_us"]].reset_index(drop=True)


def _reported(trace: pa.Table) -> pd.DataFrame:
    """What captures report to the owner, as changes of their watermarks."""
    keep = reports(trace)
    order = pa.array(range(len(trace))).filter(keep.combine_chunks())
    frame = trace.select(["step", "time_us", "node", "detail"]).filter(keep).add_column(0, "order", order).to_pandas()
    fields = [reported(orjson.loads(d)) for d in frame["detail"]]
    marks = ("checkpoint", "resolved")
    return pd.concat([frame.assign(subject=m, after=[str(f[m]) for f in fields]) for m in marks])


def reports(trace: pa.Table) -> pa.ChunkedArray:
    """Say which rows are messages in which captures report their watermarks to the owner, in whatever protocol."""
    named = pc.is_in(trace["message"], pa.array(_REPORTS))
    return pc.and_(pc.equal(trace["kind"], "sent"), named)


def reported(fields: Mapping[str, Any]) -> dict[str, int]:
    """Give the lowest ``checkpoint`` and ``resolved`` (TSO) of a report; ``MAX_TS`` where it has none."""
    found = [fields] if "checkpoint-ts" in fields else []
    told = [fields.get("steady") or {}, *fields.get("statuses", ())]
    found += [s["checkpoint"] for s in told if isinstance(s.get("checkpoint"), dict) and s.get("held", True)]
    stated = {m: [f[f"{m}-ts"] for f in found if f.get(f"{m}-ts")] for m in ("checkpoint", "resolved")}
    return {m: min(values, default=MAX_TS) for m, values in stated.items()}


def _crashed(trace: pa.Table) -> pd.DataFrame:
    """Who crashes has no watermark."""
    crashes = of_kinds(trace, "crashed")[["order", "step", "time_us", "node"]]
    return pd.concat([crashes.assign(subject=mark, after=str(MAX_TS)) for mark in ("checkpoint", "resolved")])


def lag_curve(of: pd.DataFrame, *, until_us: int) -> pd.DataFrame:
    """Give the lag of one watermark as a saw-tooth: it grows with the clock and falls where the watermark moves.

    Parameters
    ----------
    of
        Rows of :func:`watermarks` of one ``who`` and one ``watermark``.
    until_us
        Where the curve ends, µs.

    Returns
    -------
    pd.DataFrame
        ``time_us`` and ``lag_us``: two points for each move, one before it and one after it; NaN where there is none.
    """
    if of.empty:
        return pd.DataFrame({"time_us": [], "lag_us": []})
    times = [*of["time_us"].tolist(), until_us]
    points: list[tuple[int, float]] = []
    for time_us, following_us, ts, at_us in zip(times[:-1], times[1:], of["ts"], of["at_us"], strict=True):
        stands = [(time_us, float(time_us - at_us)), (following_us, float(following_us - at_us))]
        points += stands if ts else [(time_us, math.nan)]
    return pd.DataFrame(points, columns=["time_us", "lag_us"])


def end_us(trace: pa.Table) -> int:
    """Give when a run ends, µs."""
    return int(trace["time_us"][-1].as_py()) if len(trace) else 0
