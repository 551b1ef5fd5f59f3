"""Who owned which table when: stretches of each table on each capture, their numbers, and where two write or nobody."""

from __future__ import annotations

import json
import re

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.machines.machine import KEPT_STATE, node_of
from ticdc_lab.simulate.scheduler.executor import WRITING

STATES = ("preparing", "prepared", "replicating", "stopping")
"""Of a table's pipeline, in the order in which it goes through them."""

PAUSED = "paused"
"""Of a pipeline while its node is paused: it writes nothing."""


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort names by this: ``capture-2`` stands before ``capture-10``."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def changes(trace: pa.Table, subject: str) -> pd.DataFrame:
    """Give the rows of a trace in which a subject changed.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    subject
        ``owner``; or with a colon at the end all whose names begin so: ``table:``.

    Returns
    -------
    pd.DataFrame
        ``order`` (the row's place in the trace), ``step``, ``time_us``, ``node``, ``subject``, ``before``, ``after``,
        ``because`` and ``reason``.
    """
    own = pc.starts_with(trace["subject"], subject) if subject.endswith(":") else pc.equal(trace["subject"], subject)
    keep = pc.and_(pc.equal(trace["kind"], "changed"), pc.fill_null(own, False))
    columns = ["step", "time_us", "node", "subject", "before", "after", "because", "reason"]
    rows = pa.array(range(len(trace))).filter(keep.combine_chunks())
    return trace.select(columns).filter(keep).add_column(0, "order", rows).to_pandas()


def of_kinds(trace: pa.Table, *kinds: str) -> pd.DataFrame:
    """Give the rows of some kinds, with ``order``, their place in the trace."""
    keep = pc.is_in(trace["kind"], pa.array(kinds))
    rows = pa.array(range(len(trace))).filter(keep.combine_chunks())
    return trace.filter(keep).add_column(0, "order", rows).to_pandas()


def stretches(trace: pa.Table) -> pd.DataFrame:
    """Give every stretch of time in which a capture had a table in one state.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.

    Returns
    -------
    pd.DataFrame
        ``table`` (its id or span as text), ``capture``, ``node`` (its address), ``state`` (of :data:`STATES`, or
        :data:`PAUSED`), ``since_us``, ``until_us``, ``since_step``, ``until_step``, ``since``, ``until`` (places in the
        trace) and ``open`` (it lasts until the trace ends). A crash ends all stretches of its node.
    """
    found = changes(trace, "table:")
    found["table"] = found["subject"].str.removeprefix("table:")
    found = _with_troubles(found, of_kinds(trace, "crashed", "restarted", "paused", "resumed"))
    found = found.sort_values(["table", "node", "order"], kind="stable")
    following = found.groupby(["table", "node"], sort=False)[["order", "time_us", "step"]].shift(-1)
    last = _last(trace)
    following = following.fillna(last).astype("int64")
    out = pd.DataFrame(
        {
            "table": found["table"], "capture": found["node"].map(node_of), "node": found["node"],
            "state": found["after"], "since_us": found["time_us"], "until_us": following["time_us"],
            "since_step": found["step"], "until_step": following["step"], "since": found["order"],
            "until": following["order"], "open": following["order"] == last["order"],
        }
    )  # fmt: skip
    return out[out["state"].notna()].sort_values("since", kind="stable").reset_index(drop=True)


def owned_at(held: pd.DataFrame, *, step: int) -> pd.DataFrame:
    """Give the stretches that last at the end of a step."""
    return held[(held["since_step"] <= step) & ((step < held["until_step"]) | held["open"])]


def _last(trace: pa.Table) -> dict[str, int]:
    """The place, time and step behind the last row."""
    if not len(trace):
        return {"order": 0, "time_us": 0, "step": 0}
    return {"order": len(trace), "time_us": trace["time_us"][-1].as_py(), "step": trace["step"][-1].as_py()}


def _with_troubles(found: pd.DataFrame, troubles: pd.DataFrame) -> pd.DataFrame:
    """Add what befalls the tables of a node: they are gone while it is down and written by nobody while it is paused.

    What is put back belongs to the node's next step, in which it looks at its clock and may let go of everything.
    """
    for trouble in troubles.to_dict("records"):
        before = found[(found["order"] < trouble["order"]) & (found["node"] == trouble["node"])]
        had = before.groupby(["table", "node"], sort=False).tail(1)
        when = {"order": trouble["order"], "step": trouble["step"], "time_us": trouble["time_us"]}
        if trouble["kind"] in ("crashed", "paused"):
            had = had[had["after"].notna()]
            after = PAUSED if trouble["kind"] == "paused" else None
            found = pd.concat([found, had.assign(**when, before=had["after"], after=after)], ignore_index=True)
        elif trouble["kind"] == "resumed" or (trouble["reason"] or {}).get("kind") == KEPT_STATE:
            had = had[had["order"].isin(troubles["order"])]
            when["step"] += 1
            back = had.assign(**when, before=had["after"], after=had["before"])
            found = pd.concat([found, back], ignore_index=True)
    return found


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


_ENDS = ["since", "until"]
_CLOCKS = ("us", "step")


def coverage(trace: pa.Table, held: pd.DataFrame) -> pd.DataFrame:
    """Give for each table the stretches between two changes of who writes it.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    held
        Its :func:`ticdc_lab.simulate.ownership.stretches`, all or those of some tables.

    Returns
    -------
    pd.DataFrame
        ``table``, ``writers`` (how many captures write it), and ``since`` and ``until`` in all units of
        :func:`stretches`; from the table's first write to the end of the trace.
    """
    writing = held[held["state"].isin(WRITING)]
    if writing.empty:
        return pd.DataFrame(columns=["table", "writers", *_bounds()]).astype({"writers": "int64"})
    names = {"": "order", "_us": "us", "_step": "step"}
    edges = pd.concat(
        [
            writing[["table", *(end + s for s in names)]].set_axis(["table", *names.values()], axis=1).assign(delta=d)
            for end, d in zip(_ENDS, (1, -1), strict=True)
        ]
    )
    edges = edges.groupby(["table", "order"], as_index=False).agg(us=("us", "first"), step=("step", "first"),
                                                                   delta=("delta", "sum"))  # fmt: skip
    edges["writers"] = edges.groupby("table", sort=False)["delta"].cumsum()
    edges = edges[(edges["delta"] != 0) | ~edges["table"].duplicated()]
    following = edges.groupby("table", sort=False)[["order", "us", "step"]].shift(-1)
    end = {"order": len(trace), "us": trace["time_us"][-1].as_py(), "step": trace["step"][-1].as_py()}
    following = following.fillna(end).astype("int64")
    out = pd.DataFrame(
        {
            "table": edges["table"], "writers": edges["writers"], "since_us": edges["us"], "until_us": following["us"],
            "since_step": edges["step"], "until_step": following["step"], "since": edges["order"],
            "until": following["order"],
        }
    )  # fmt: skip
    return out[out["since"] < out["until"]].reset_index(drop=True)


def overlaps(trace: pa.Table, held: pd.DataFrame) -> pd.DataFrame:
    """Give the stretches in which more than one capture writes a table (the design's Double Write).

    Returns
    -------
    pd.DataFrame
        As :func:`coverage`, and ``captures``: who writes, joined by "and". Also those of no length in time, if another
        step follows before one stops.
    """
    c = coverage(trace, held)
    at_end = c["until"] == len(trace)
    found = c[(c["writers"] > 1) & ((c["until_step"] > c["since_step"]) | at_end)].reset_index(drop=True)
    writing = held[held["state"].isin(WRITING)]
    names = []
    for table, since in zip(found["table"], found["since"], strict=True):
        now = writing[(writing["table"] == table) & (writing["since"] <= since) & (since < writing["until"])]
        names.append(" and ".join(sorted(set(now["node"]), key=natural)))
    return found.assign(captures=pd.Series(names, dtype=object))


def gaps(trace: pa.Table, held: pd.DataFrame) -> pd.DataFrame:
    """Give the stretches in which nobody writes a table that was written and not dropped, as :func:`coverage`."""
    c = coverage(trace, held)
    wanted = c["since"] <= c["table"].map(dropped(trace)).fillna(len(trace))
    return c[(c["writers"] == 0) & (c["until_us"] > c["since_us"]) & wanted].reset_index(drop=True)


def dropped(trace: pa.Table) -> dict[str, int]:
    """Give the tables that a DDL drops, with the place in the trace at which it was asked for."""
    ddl = of_kinds(trace, "asked").query("message == 'Ddl'")
    found: dict[str, int] = {}
    for order, detail in zip(ddl["order"], ddl["detail"], strict=True):
        fields = json.loads(detail or "{}")
        found |= {str(table): order for table in fields.get("drop", ())}
        found = {table: at for table, at in found.items() if table not in map(str, fields.get("add", ()))}
    return found


def _bounds() -> list[str]:
    return [f"{end}_{clock}" for clock in _CLOCKS for end in _ENDS] + _ENDS
