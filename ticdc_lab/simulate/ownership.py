"""Who owned which table when: stretches of each table on each capture, and where two or nobody wrote it."""

from __future__ import annotations

import re

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.simulate.scheduler.executor import WRITING

STATES = ("preparing", "prepared", "replicating", "stopping")
"""Of a table's pipeline, in the order in which it goes through them."""

_ENDS = ["since", "until"]
_CLOCKS = ("us", "step")


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort names by this: ``capture-2`` stands before ``capture-10``."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def capture_of(node: str) -> str:
    """Give the name of a node whose address has the number of its life behind a dot."""
    return node.split(".", 1)[0]


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
        ``table`` (its id or span as text), ``capture``, ``node`` (its address), ``state`` (of :data:`STATES`),
        ``since_us``, ``until_us``, ``since_step``, ``until_step``, ``since``, ``until`` (places in the trace) and
        ``open`` (it lasts until the trace ends). A crash ends all stretches of its node.
    """
    found = changes(trace, "table:")
    found["table"] = found["subject"].str.removeprefix("table:")
    found = _with_crashes(found, of_kinds(trace, "crashed")).sort_values(["table", "node", "order"], kind="stable")
    following = found.groupby(["table", "node"], sort=False)[["order", "time_us", "step"]].shift(-1)
    last = _last(trace)
    following = following.fillna(last).astype("int64")
    out = pd.DataFrame(
        {
            "table": found["table"], "capture": found["node"].map(capture_of), "node": found["node"],
            "state": found["after"], "since_us": found["time_us"], "until_us": following["time_us"],
            "since_step": found["step"], "until_step": following["step"], "since": found["order"],
            "until": following["order"], "open": following["order"] == last["order"],
        }
    )  # fmt: skip
    return out[out["state"].notna()].sort_values("since", kind="stable").reset_index(drop=True)


def coverage(held: pd.DataFrame) -> pd.DataFrame:
    """Give for each table the stretches between two changes of who writes it.

    Parameters
    ----------
    held
        :func:`stretches`.

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
    end = {"order": int(held["until"].max()), "us": int(held["until_us"].max()), "step": int(held["until_step"].max())}
    following = following.fillna(end).astype("int64")
    out = pd.DataFrame(
        {
            "table": edges["table"], "writers": edges["writers"], "since_us": edges["us"], "until_us": following["us"],
            "since_step": edges["step"], "until_step": following["step"], "since": edges["order"],
            "until": following["order"],
        }
    )  # fmt: skip
    return out[out["since"] < out["until"]].reset_index(drop=True)


def overlaps(held: pd.DataFrame) -> pd.DataFrame:
    """Give the stretches in which more than one capture writes a table (the seed's Double Write).

    Returns
    -------
    pd.DataFrame
        As :func:`coverage`, and ``captures``: who writes, joined by "and". Also those of no length in time, if another
        step follows before one stops.
    """
    c = coverage(held)
    at_end = c["until"] == (held["until"].max() if len(held) else 0)
    found = c[(c["writers"] > 1) & ((c["until_step"] > c["since_step"]) | at_end)].reset_index(drop=True)
    writing = held[held["state"].isin(WRITING)]
    names = []
    for table, since in zip(found["table"], found["since"], strict=True):
        now = writing[(writing["table"] == table) & (writing["since"] <= since) & (since < writing["until"])]
        names.append(" and ".join(sorted(set(now["node"]), key=natural)))
    return found.assign(captures=pd.Series(names, dtype=object))


def gaps(held: pd.DataFrame) -> pd.DataFrame:
    """Give the stretches in which nobody writes a table that was written before, as :func:`coverage`."""
    c = coverage(held)
    return c[(c["writers"] == 0) & (c["until_us"] > c["since_us"])].reset_index(drop=True)


def owned_at(held: pd.DataFrame, *, step: int) -> pd.DataFrame:
    """Give the stretches that last at the end of a step."""
    return held[(held["since_step"] <= step) & ((step < held["until_step"]) | held["open"])]


def _bounds() -> list[str]:
    return [f"{end}_{clock}" for clock in _CLOCKS for end in _ENDS] + _ENDS


def _last(trace: pa.Table) -> dict[str, int]:
    """The place, time and step behind the last row."""
    if not len(trace):
        return {"order": 0, "time_us": 0, "step": 0}
    return {"order": len(trace), "time_us": trace["time_us"][-1].as_py(), "step": trace["step"][-1].as_py()}


def _with_crashes(found: pd.DataFrame, crashes: pd.DataFrame) -> pd.DataFrame:
    """Add a change to nothing for each table that a crashing node still had."""
    out = [found]
    for crash in crashes.itertuples():
        before = found[(found["order"] < crash.order) & (found["node"].map(capture_of) == capture_of(crash.node))]
        had = before.groupby(["table", "node"], sort=False).tail(1)
        had = had[had["after"].notna()]
        out.append(
            had.assign(order=crash.order, step=crash.step, time_us=crash.time_us, before=had["after"], after=None)
        )
    return pd.concat(out, ignore_index=True) if len(out) > 1 else found
