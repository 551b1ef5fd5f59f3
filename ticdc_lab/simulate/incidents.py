"""What befell the nodes of a run: who was owner when, crashes, pauses, partitions, lost sessions."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.ownership import changes, of_kinds

_BEGINS = {"crashed": "down", "paused": "paused", "parted": "parted"}
_ENDS = {"down": ("restarted", "started"), "paused": ("resumed", "crashed"), "parted": ("healed",)}


def elections(trace: pa.Table) -> pd.DataFrame:
    """Give the rows in which a capture became owner or stopped being it; not those in which one heard of an owner."""
    rows = changes(trace, "owner")
    heard = rows["after"].fillna(rows["before"]).fillna("").str.contains("@", regex=False)
    return rows[~heard].reset_index(drop=True)


def owners(trace: pa.Table) -> pd.DataFrame:
    """Give the periods of owners.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.

    Returns
    -------
    pd.DataFrame
        ``capture``, ``rev`` (its owner-rev as text), ``since_us``, ``until_us``, ``since_step``, ``until_step`` and
        ``because``. A period ends where the node says so or crashes: a node that does not know yet that it is no longer
        the owner still is one here, so that periods can overlap.
    """
    rows = elections(trace)
    rows["capture"] = rows["node"].map(node_of)
    crashes = of_kinds(trace, "crashed")
    end = _end(trace)
    out = []
    for won in rows[rows["after"].notna()].itertuples():
        later = rows[(rows["capture"] == won.capture) & (rows["order"] > won.order)]
        died = crashes[(crashes["node"].map(node_of) == won.capture) & (crashes["order"] > won.order)]
        ends = [end, *(tuple(r) for f in (later, died) for r in f[["order", "time_us", "step"]].head(1).to_numpy())]
        _, until_us, until_step = min(ends)
        out.append((won.capture, won.after, won.time_us, until_us, won.step, until_step, won.because))
    columns = ["capture", "rev", "since_us", "until_us", "since_step", "until_step", "because"]
    return pd.DataFrame(out, columns=columns)


def troubles(trace: pa.Table) -> pd.DataFrame:
    """Give the stretches in which a node was down or paused, or a link was parted.

    Returns
    -------
    pd.DataFrame
        ``capture``, ``peer`` (of a partition), ``trouble`` (``down``, ``paused``, ``parted``), ``since_us``,
        ``until_us``, ``since_step``, ``until_step`` and ``because``.
    """
    rows = of_kinds(trace, *_BEGINS, *(kind for kinds in _ENDS.values() for kind in kinds))
    rows["capture"] = rows["node"].map(node_of)
    end, out = _end(trace), []
    for begun in rows[rows["kind"].isin(_BEGINS)].itertuples():
        trouble = _BEGINS[begun.kind]
        later = rows[(rows["order"] > begun.order) & rows["kind"].isin(_ENDS[trouble])]
        own = later[(later["capture"] == begun.capture) & ((later["peer"] == begun.peer) | (trouble != "parted"))]
        ended = min([end, *(tuple(r) for r in own[["order", "time_us", "step"]].head(1).to_numpy())])
        out.append((begun.capture, begun.peer, trouble, begun.time_us, ended[1], begun.step, ended[2], begun.because))
    columns = ["capture", "peer", "trouble", "since_us", "until_us", "since_step", "until_step", "because"]
    return pd.DataFrame(out, columns=columns)


def moments(trace: pa.Table) -> pd.DataFrame:
    """Give what stands as a vertical line in figures over time: new owners, crashes, restarts, lost sessions.

    Returns
    -------
    pd.DataFrame
        ``time_us``, ``step``, ``capture``, ``what`` (``owner``, ``crash``, ``restart``, ``session lost``, ``pause``,
        ``violated``) and ``because``, in the order of the trace.
    """
    found = of_kinds(trace, *_WHAT).assign(what=lambda f: f["kind"].map(_WHAT))
    owner = elections(trace).query("after.notna()").assign(what="owner")
    session = changes(trace, "session").query("after.isna()").assign(what="session lost")
    out = pd.concat([found, owner, session], ignore_index=True).sort_values("order", kind="stable")
    out["capture"] = out["node"].map(node_of)
    return out[["time_us", "step", "capture", "what", "because"]].reset_index(drop=True)


_WHAT = {"crashed": "crash", "restarted": "restart", "paused": "pause", "violated": "violated"}


def _end(trace: pa.Table) -> tuple[int, int, int]:
    n = len(trace)
    return (n, trace["time_us"][-1].as_py(), trace["step"][-1].as_py()) if n else (0, 0, 0)
