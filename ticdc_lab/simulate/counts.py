"""How many tables are where, over time: by capture and state, and those that two or nobody writes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ticdc_lab.simulate.ownership import PAUSED, STATES

_POINTS = 1000
"""Most moments of one series."""


def bands(held: pd.DataFrame, *, last_us: int) -> pd.DataFrame:
    """Count how many tables each capture has in each state over time.

    Parameters
    ----------
    held
        :func:`ticdc_lab.simulate.ownership.stretches`.
    last_us
        The end, µs.

    Returns
    -------
    pd.DataFrame
        ``capture``, ``state``, ``time_us``, ``n``: from then on. Of each capture at most 1,000 moments, evenly chosen.
    """
    out = []
    for capture, mine in held.groupby("capture", sort=False):
        times = np.unique(np.concatenate([[0], mine["since_us"], mine["until_us"], [last_us]]).astype(np.int64))
        times = times[np.unique(np.linspace(0, len(times) - 1, min(_POINTS, len(times))).round().astype(int))]
        for state in (*STATES, PAUSED):
            own = mine[mine["state"] == state]
            n = _open_at(own["since_us"], times) - _open_at(own["until_us"][~own["open"]], times)
            out.append(pd.DataFrame({"capture": capture, "state": state, "time_us": times, "n": n}))
    return pd.concat(out, ignore_index=True) if out else pd.DataFrame(columns=["capture", "state", "time_us", "n"])


def writers_over_time(covered: pd.DataFrame) -> pd.DataFrame:
    """Count the tables that two write and those that nobody writes: ``what``, ``time_us``, ``n``."""
    out = []
    n = covered["writers"]
    for what, mine in (("two write", covered[n > 1]), ("nobody writes", covered[n == 0])):
        times = np.unique(np.concatenate([[0], mine["since_us"], mine["until_us"]]).astype(np.int64))
        times = times[np.unique(np.linspace(0, len(times) - 1, min(_POINTS, len(times))).round().astype(int))]
        open_now = _open_at(mine["since_us"], times) - _open_at(mine["until_us"], times)
        out.append(pd.DataFrame({"what": what, "time_us": times, "n": open_now}))
    return pd.concat(out, ignore_index=True)


def _open_at(edges: pd.Series, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.searchsorted(np.sort(edges.to_numpy(dtype=np.int64)), times, side="right")
