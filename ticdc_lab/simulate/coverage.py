"""How many captures write each table: where two do (the design's Double Write), and where nobody does."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow as pa

from ticdc_lab.simulate.ownership import natural, of_kinds
from ticdc_lab.simulate.scheduler.executor import WRITING

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
