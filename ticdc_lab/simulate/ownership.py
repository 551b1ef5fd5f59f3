"""Who owned which table when: stretches of each table on each capture."""

from __future__ import annotations

import re

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.simulate.machine import node_of

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
        ``order`` (the row's place in the trace), ``step``, ``time_us``, ``node``, ``subject``, ``before``, ``after``
        and ``because``.
    """
    own = pc.starts_with(trace["subject"], subject) if subject.endswith(":") else pc.equal(trace["subject"], subject)
    keep = pc.and_(pc.equal(trace["kind"], "changed"), pc.fill_null(own, False))
    columns = ["step", "time_us", "node", "subject", "before", "after", "because"]
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
        elif trouble["kind"] == "resumed" or "with its state" in (trouble["because"] or ""):
            had = had[had["order"].isin(troubles["order"])]
            when["step"] += 1
            back = had.assign(**when, before=had["after"], after=had["before"])
            found = pd.concat([found, back], ignore_index=True)
    return found
