"""How far checkpoint_ts and resolved_ts are behind the clock: per capture, per table and for the changefeed."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ticdc_lab.simulate.ownership import capture_of, changes
from ticdc_lab.simulate.scheduler.clock import us_of
from ticdc_lab.simulate.scheduler.executor import MAX_TS

GLOBAL = "changefeed"
"""Who has the global watermarks."""

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
        ``resolved``), ``ts`` (TSO) and ``at_us`` (the moment it stands for, µs). What has nothing to report
        (``MAX_TS``) is left out; so is what etcd and the owner both say.
    """
    rows = pd.concat([changes(trace, s) for s in _OF], ignore_index=True).sort_values("order", kind="stable")
    rows = rows[rows["after"].notna()]
    rows["ts"] = rows["after"].astype("int64")
    rows = rows[rows["ts"] < MAX_TS]
    everyone = rows["subject"].str.startswith("global-")
    rows["who"] = rows["node"].map(capture_of).where(~everyone, GLOBAL)
    rows["watermark"] = rows["subject"].map(_OF)
    rows["at_us"] = [us_of(ts) for ts in rows["ts"]]
    same = rows.groupby(["who", "watermark"], sort=False)["ts"].shift(1)
    rows = rows[~(everyone & (same == rows["ts"]))]
    return rows[["time_us", "step", "who", "watermark", "ts", "at_us"]].reset_index(drop=True)


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
        ``time_us`` and ``lag_us``: two points for each move, one before it and one after it.
    """
    if of.empty:
        return pd.DataFrame({"time_us": [], "lag_us": []}, dtype="int64")
    times, stands = of["time_us"].tolist(), of["at_us"].tolist()
    points = [(times[0], times[0] - stands[0])]
    for time_us, old, new in zip(times[1:], stands[:-1], stands[1:], strict=True):
        points += [(time_us, time_us - old), (time_us, time_us - new)]
    points.append((until_us, until_us - stands[-1]))
    return pd.DataFrame(points, columns=["time_us", "lag_us"])


def end_us(trace: pa.Table) -> int:
    """Give when a run ends, µs."""
    return int(trace["time_us"][-1].as_py()) if len(trace) else 0
