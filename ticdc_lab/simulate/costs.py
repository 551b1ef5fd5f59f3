"""What a run of the scheduler cost, in a row: protocols and settings can be set beside each other."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from ticdc_lab.simulate.counts import bands
from ticdc_lab.simulate.lags import GLOBAL, end_us, lag_curve, watermarks
from ticdc_lab.simulate.ownership import stretches
from ticdc_lab.simulate.scheduler.run import Run


def costs(runs: Mapping[str, Run], *, rows_per_s: float = 100.0, since_us: int = 0) -> pd.DataFrame:
    """Measure runs.

    Parameters
    ----------
    runs
        Name of a variant to its run; their traces hold messages or changes.
    rows_per_s
        How many rows a table gets each second: turns time that is written twice into rows.
    since_us
        Time to balance counts from here, µs.

    Returns
    -------
    pd.DataFrame
        ``variant``, ``overlap_s`` and ``gap_s`` (summed over tables), ``duplicated_rows``, ``lag_s_max`` (of the
        changefeed's checkpoint), ``messages`` and ``balance_s``: from ``since_us`` until for good every table is
        written and no capture has two tables more than another; NaN where that is never so.
    """
    rows = []
    for name, run in runs.items():
        of = watermarks(run.trace)
        own = of[(of["who"] == GLOBAL) & (of["watermark"] == "checkpoint")]
        lag = lag_curve(own, until_us=end_us(run.trace))["lag_us"].max() / 1e6
        m = run.measures
        rows.append(
            (
                name, m.overlap_us / 1e6, m.gap_us / 1e6, round(m.doubled_us / 1e6 * rows_per_s), lag, run.messages,
                balance_s(run, since_us),
            )
        )  # fmt: skip
    columns = ["variant", "overlap_s", "gap_s", "duplicated_rows", "lag_s_max", "messages", "balance_s"]
    return pd.DataFrame(rows, columns=columns)


def balance_s(run: Run, since_us: int) -> float:
    """Give how long after a moment all tables are written, evenly by count, and stay so; NaN where they do not."""
    last_us, tables = end_us(run.trace), len(run.settings.keys())
    counts = bands(stretches(run.trace), last_us=last_us)
    writing = counts[counts["state"] == "replicating"]
    wide = writing.pivot_table(index="time_us", columns="capture", values="n", aggfunc="last").ffill().fillna(0)
    up = wide.reindex(columns=list(run.settings.nodes()), fill_value=0)
    even = (up.sum(axis=1) == tables) & (up.max(axis=1) - up[up > 0].min(axis=1) <= 1)
    uneven = even[~even]
    if not len(even) or (len(uneven) and uneven.index[-1] == even.index[-1]):
        return math.nan
    since = even.index[0] if uneven.empty else even.index[even.index > uneven.index[-1]][0]
    return max(0.0, (int(since) - since_us) / 1e6)
