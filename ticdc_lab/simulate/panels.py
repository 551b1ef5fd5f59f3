"""The figures of TiCDC's Grafana dashboard that the model has, by the dashboard's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.simulate.counts import bands
from ticdc_lab.simulate.incidents import owners
from ticdc_lab.simulate.lags import GLOBAL, end_us, lag_curve, reported, reports, watermarks
from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.ownership import natural, stretches
from ticdc_lab.simulate.scheduler.clock import us_of
from ticdc_lab.simulate.scheduler.executor import MAX_TS

_COLUMNS = ["series", "time_us", "value"]
_TASKS = {"preparing": "add table", "prepared": "add table", "stopping": "remove table"}


class Panel(NamedTuple):
    """A panel: its unit, whether its values hold until the next (else lines join them), and where they come from.

    ``values`` gives ``series``, ``time_us`` and ``value``; NaN where there is none.
    """

    unit: str
    holds: bool
    values: Callable[[pa.Table], pd.DataFrame]


def checkpoint_lag(trace: pa.Table) -> pd.DataFrame:
    """Give how far the changefeed's checkpoint is behind the clock, s."""
    return _lag(trace, "checkpoint")


def resolved_lag(trace: pa.Table) -> pd.DataFrame:
    """Give how far the changefeed's resolved ts is behind the clock, s."""
    return _lag(trace, "resolved")


def resolved_minus_checkpoint(trace: pa.Table) -> pd.DataFrame:
    """Give how far the changefeed's checkpoint is behind its resolved ts, s."""
    own = watermarks(trace).query("who == @GLOBAL")
    each = own.pivot_table(index="time_us", columns="watermark", values="at_us", aggfunc="last").ffill()
    each = each.reindex(columns=["resolved", "checkpoint"])
    value = (each["resolved"] - each["checkpoint"]) / 1e6
    return pd.DataFrame({"series": GLOBAL, "time_us": each.index, "value": value.to_numpy()}, columns=_COLUMNS)


def capture_table_count(trace: pa.Table) -> pd.DataFrame:
    """Give how many tables each capture has, in whatever state."""
    counts = bands(stretches(trace), last_us=end_us(trace))
    summed = counts.groupby(["capture", "time_us"], as_index=False, sort=False)["n"].sum()
    return summed.set_axis(_COLUMNS, axis=1)


def table_replication_state(trace: pa.Table) -> pd.DataFrame:
    """Give how many tables are in each state, over all captures."""
    return _by(trace, "state")


def schedule_tasks(trace: pa.Table) -> pd.DataFrame:
    """Give how many tables are being added or removed."""
    held = stretches(trace)
    held["task"] = held["state"].map(_TASKS)
    return _by(trace, "task", held[held["task"].notna()])


def slowest_table(trace: pa.Table) -> pd.DataFrame:
    """Give the lag of the table that holds the lowest checkpoint of all captures, s; ``series`` is the table.

    As captures tell it in their reports to the owner; ``none alone`` where all tables of the slowest are equally far.
    """
    rows = trace.select(["kind", "time_us", "node", "detail"])
    rows = rows.filter(pc.or_(reports(trace), pc.equal(trace["kind"], "crashed")))
    newest: dict[str, tuple[int, str]] = {}
    out = []
    for kind, time_us, node, detail in zip(*(c.to_pylist() for c in rows.columns), strict=True):
        if kind == "crashed":
            newest.pop(node_of(node), None)
            continue
        fields = orjson.loads(detail)
        ts, table = reported(fields)["checkpoint"], fields.get("slowest")
        newest[node_of(node)] = (ts, "none alone" if table is None else f"table {_name(table)}")
        least_ts, name = min(newest.values())
        if least_ts < MAX_TS:
            out.append((name, time_us, (time_us - us_of(least_ts)) / 1e6))
    return pd.DataFrame(out, columns=_COLUMNS)


def ownership_history(trace: pa.Table) -> pd.DataFrame:
    """Give 1 where a capture is the owner and 0 where it is not."""
    periods, last_us = owners(trace), end_us(trace)
    out = []
    for capture in sorted(set(periods["capture"]), key=natural):
        out.append((capture, 0, 0.0))
        for p in periods[periods["capture"] == capture].to_dict("records"):
            out += [(capture, p["since_us"], 1.0), (capture, p["until_us"], 0.0 if p["until_us"] < last_us else 1.0)]
    return pd.DataFrame(out, columns=_COLUMNS)


PANELS: Mapping[str, Panel] = MappingProxyType(
    {
        "changefeed checkpoint lag": Panel("s", False, checkpoint_lag),
        "changefeed resolved ts lag": Panel("s", False, resolved_lag),
        "difference of resolvedTs and checkpointTs": Panel("s", True, resolved_minus_checkpoint),
        "slowest table": Panel("lag, s", True, slowest_table),
        "capture table count": Panel("tables", True, capture_table_count),
        "table replication state": Panel("tables", True, table_replication_state),
        "schedule tasks": Panel("tables", True, schedule_tasks),
        "ownership history": Panel("is owner", True, ownership_history),
    }
)
"""Name of the panel on the dashboard to what it shows."""


def _lag(trace: pa.Table, mark: str) -> pd.DataFrame:
    of = watermarks(trace).query("who == @GLOBAL and watermark == @mark")
    curve = lag_curve(of, until_us=end_us(trace))
    value = (curve["lag_us"] / 1e6).to_numpy()
    return pd.DataFrame({"series": GLOBAL, "time_us": curve["time_us"], "value": value}, columns=_COLUMNS)


def _by(trace: pa.Table, column: str, held: pd.DataFrame | None = None) -> pd.DataFrame:
    held = stretches(trace) if held is None else held
    last_us, out = end_us(trace), []
    for name, mine in held.groupby(column, sort=False):
        edges = pd.concat([pd.Series(1, mine["since_us"]), pd.Series(-1, mine.loc[~mine["open"], "until_us"])])
        n = edges.groupby(level=0).sum().cumsum()
        n = pd.concat([pd.Series([0], [0]) if 0 not in n.index else n.iloc[:0], n])
        times = np.append(n.index, last_us)
        out.append(pd.DataFrame({"series": name, "time_us": times, "value": np.append(n, n.iloc[-1])}))
    return pd.concat(out, ignore_index=True) if out else pd.DataFrame(columns=_COLUMNS)


def _name(table: object) -> object:
    """A table, or a span as it is written elsewhere."""
    return f"{table['table']}[{table['start']},{table['end']})" if isinstance(table, dict) else table
