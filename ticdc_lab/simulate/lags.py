"""How far checkpoint_ts and resolved_ts are behind the clock, the panels of TiCDC dashboards, and what a run cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.machines.clock import us_of
from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.ledger import bands, changes, natural, of_kinds, owners, stretches
from ticdc_lab.simulate.scheduler.executor import MAX_TS

if TYPE_CHECKING:
    from ticdc_lab.simulate.scheduler.run import SchedulerRun

GLOBAL = "changefeed"
"""Who has the global watermarks."""

_REPORTS = ("Checkpoint", "HeartBeatRequest", "HeartbeatResponse")

_OF = {"checkpoint": "checkpoint", "resolved": "resolved", "global-checkpoint": "checkpoint",
       "global-resolved": "resolved"}  # fmt: skip


def watermarks(trace: pa.Table) -> pd.DataFrame:
    """Give every value that a watermark got.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`. Returns: ``time_us``, ``step``, ``who`` (a capture, a table, or
    :data:`GLOBAL`), ``watermark`` (``checkpoint`` or ``resolved``), ``ts`` (TSO) and ``at_us`` (its moment,
    µs). Where a capture has nothing to report any more (``MAX_TS``) or crashes both are 0.
    """
    crashes = of_kinds(trace, "crashed")[["order", "step", "time_us", "node"]]  # who crashes has no watermark
    gone = [crashes.assign(subject=mark, after=str(MAX_TS)) for mark in ("checkpoint", "resolved")]
    told = [*(changes(trace, subject) for subject in _OF), _reported(trace), *gone]
    rows = pd.concat(told, ignore_index=True).sort_values("order", kind="stable")
    rows = rows[rows["after"].notna()]
    ts = rows["after"].astype("uint64")
    rows["ts"] = ts.where(ts < MAX_TS, 0).astype("int64")
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
    """Mark the rows with messages in which captures report their watermarks to the owner, in any protocol."""
    named = pc.is_in(trace["message"], pa.array(_REPORTS))
    return pc.and_(pc.equal(trace["kind"], "sent"), named)


def reported(fields: Mapping[str, Any]) -> dict[str, int]:
    """Give the lowest ``checkpoint`` and ``resolved`` (TSO) of a report; ``MAX_TS`` where it has none."""
    found = [fields] if "checkpoint-ts" in fields else []
    told = [fields.get("steady") or {}, *fields.get("statuses", ())]
    found += [s["checkpoint"] for s in told if isinstance(s.get("checkpoint"), dict) and s.get("held", True)]
    stated = {m: [f[f"{m}-ts"] for f in found if f.get(f"{m}-ts")] for m in ("checkpoint", "resolved")}
    return {m: min(values, default=MAX_TS) for m, values in stated.items()}


def lag_curve(of: pd.DataFrame, *, until_us: int) -> pd.DataFrame:
    """Give the lag of one watermark as a saw-tooth: it grows with the clock and falls where the watermark moves.

    ``of``: rows of :func:`watermarks` of one ``who`` and one ``watermark``. ``until_us``: where the curve ends, µs.
    Returns: ``time_us`` and ``lag_us``: two points for each move, one before it and one after it; NaN where there is
    none.
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


_COLUMNS = ["series", "time_us", "value"]
_TASKS = {"preparing": "add table", "prepared": "add table", "stopping": "remove table"}


class Panel(NamedTuple):
    """A panel: its unit, whether its values hold until the next (else lines join them), and where they come from.

    ``values`` gives ``series``, ``time_us`` and ``value``; NaN where there is none.
    """

    unit: str
    holds: bool
    values: Callable[[pa.Table], pd.DataFrame]


def resolved_minus_checkpoint(trace: pa.Table) -> pd.DataFrame:
    """Give how far the changefeed's checkpoint is behind its resolved ts, s."""
    own = watermarks(trace).query("who == @GLOBAL")
    each = own.pivot_table(index="time_us", columns="watermark", values="at_us", aggfunc="last").ffill()
    each = each.reindex(columns=["resolved", "checkpoint"])
    value = (each["resolved"] - each["checkpoint"]) / 1e6
    return pd.DataFrame({"series": GLOBAL, "time_us": each.index, "value": value.to_numpy()}, columns=_COLUMNS)


def capture_table_count(trace: pa.Table) -> pd.DataFrame:
    """Give how many tables each capture has, in any state."""
    counts = bands(stretches(trace), last_us=end_us(trace))
    summed = counts.groupby(["capture", "time_us"], as_index=False, sort=False)["n"].sum()
    return summed.set_axis(_COLUMNS, axis=1)


def schedule_tasks(trace: pa.Table) -> pd.DataFrame:
    """Give how many tables are being added or removed."""
    held = stretches(trace)
    held["task"] = held["state"].map(_TASKS)
    return _by(trace, "task", held[held["task"].notna()])


def slowest_table(trace: pa.Table) -> pd.DataFrame:
    """Give the lag of the table that holds the lowest checkpoint of all captures, s; ``series`` is the table.

    From the captures' reports to the owner; ``none alone`` where all tables of the slowest are equally far.
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
        "changefeed checkpoint lag": Panel("s", False, lambda trace: _lag(trace, "checkpoint")),
        "changefeed resolved ts lag": Panel("s", False, lambda trace: _lag(trace, "resolved")),
        "difference of resolvedTs and checkpointTs": Panel("s", True, resolved_minus_checkpoint),
        "slowest table": Panel("lag, s", True, slowest_table),
        "capture table count": Panel("tables", True, capture_table_count),
        "table replication state": Panel("tables", True, lambda trace: _by(trace, "state")),
        "schedule tasks": Panel("tables", True, schedule_tasks),
        "ownership history": Panel("is owner", True, ownership_history),
    }
)
"""Name of the panel on the dashboard to what it shows."""


def _lag(trace: pa.Table, mark: str) -> pd.DataFrame:
    """How far a watermark of the changefeed is behind the clock, s."""
    of = watermarks(trace).query("who == @GLOBAL and watermark == @mark")
    curve = lag_curve(of, until_us=end_us(trace))
    value = (curve["lag_us"] / 1e6).to_numpy()
    return pd.DataFrame({"series": GLOBAL, "time_us": curve["time_us"], "value": value}, columns=_COLUMNS)


def _by(trace: pa.Table, column: str, held: pd.DataFrame | None = None) -> pd.DataFrame:
    """How many tables have each value of a column, over all captures."""
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


def costs(runs: Mapping[str, SchedulerRun], *, rows_per_s: float = 100.0, since_us: int = 0) -> pd.DataFrame:
    """Measure runs.

    ``runs``: name of a variant to its run; their traces hold messages or changes. ``rows_per_s``: how many rows a table
    gets each second: turns time that is written twice into rows. ``since_us``: time to balance counts from here, µs.
    Returns: ``variant``, ``overlap_s`` and ``gap_s`` (summed over tables), ``duplicated_rows``, ``lag_s_max`` (of the
    changefeed's checkpoint), ``messages`` and ``balance_s``: from ``since_us`` until for good every table is written
    and no capture has two tables more than another; NaN where that is never so.
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


def balance_s(run: SchedulerRun, since_us: int) -> float:
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
