"""What a log holds and how far, with a time range and tables to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from ticdc_lab import figures
from ticdc_lab.summary import Summary
from ticdc_lab.tso import LOGICAL_BITS
from ticdc_lab.widgets.panel import Panel


@dataclass(frozen=True, slots=True)
class LogView:
    """What a log panel shows: seconds since the first event, tables (none means all), and which picture."""

    time_range: tuple[float, float]
    tables: tuple[str, ...]
    picture: str


def log_panel(summary: Summary) -> Panel[LogView]:
    """Build a panel over a summary; it answers from small frames, without Spark.

    Parameters
    ----------
    summary
        :func:`ticdc_lab.summary.summarise`.
    """
    lo, hi = _span_ms(summary)
    length = max(0.001, (hi - lo) / 1000)
    whole = (0.0, length)
    tables = sorted({f"{r.schema_name}.{r.table_name}" for r in summary.load_by_table.itertuples()})
    controls = {
        "time_range": widgets.FloatRangeSlider(
            value=whole, min=0.0, max=length, step=length / 200, description="seconds", readout_format=".2f",
            continuous_update=False, layout=widgets.Layout(width="420px"),
        ),
        "tables": widgets.SelectMultiple(options=tables, value=(), description="tables", rows=4),
        "picture": widgets.Dropdown(options=list(_PICTURES), value=next(iter(_PICTURES)), description="picture"),
    }  # fmt: skip

    def draw(view: LogView) -> go.Figure:
        return _PICTURES[view.picture](_within(summary, view, origin_ms=lo, whole=whole), view.time_range != whole)

    return Panel(LogView, controls=controls, draw=draw)


def _span_ms(s: Summary) -> tuple[int, int]:
    if not s.has_commit_ts or s.load.empty:
        return 0, 1
    ends = [int(s.load["from_ms"].min()), int(s.load["to_ms"].max())]
    stated = [int(ts) >> LOGICAL_BITS for ts in s.steps["step_ts"]] if len(s.steps) else []
    return min(ends + stated), max(ends + stated)


def _within(s: Summary, view: LogView, *, origin_ms: int, whole: tuple[float, float]) -> Summary:
    """The summary cut to a view; frames that do not tell tables apart are cut by time only."""
    first, last = (origin_ms + round(v * 1000) for v in view.time_range)
    cut_time = s.has_commit_ts and view.time_range != whole
    tables = set(view.tables)

    def of_time(frame: pd.DataFrame, ts: str) -> pd.DataFrame:
        if not cut_time or frame.empty:
            return frame
        ms = frame[ts].astype("int64") // (1 << LOGICAL_BITS) if ts.endswith("_ts") else frame[ts].astype("int64")
        return frame[(ms >= first) & (ms <= last)]

    chosen = s.transactions
    found = s.findings
    by_table = of_time(s.load_by_table, "from_ms")
    if tables:
        by_table = by_table[(by_table["schema_name"] + "." + by_table["table_name"]).isin(tables)]
        if len(chosen):
            chosen = chosen[[bool(tables & set(t)) for t in chosen["tables"]]]
        found = found[found["table"].isin(tables)] if len(found) else found
    timed = found["commit_ts"].notna() if len(found) else []
    return replace(
        s,
        steps=of_time(s.steps, "step_ts"),
        incidents=of_time(s.incidents, "resolved_ts"),
        transactions=of_time(chosen, "commit_ts"),
        load=of_time(s.load, "from_ms"),
        load_by_table=by_table,
        findings=of_time(found[timed], "commit_ts") if cut_time and len(found) else found,
    )


def _spans(s: Summary, cut: bool) -> go.Figure:
    drawn, n = s.transactions, int(s.transaction_totals["n"].sum()) if len(s.transaction_totals) else 0
    if len(drawn) == n:
        return figures.transaction_spans(drawn, totals=s.transaction_totals)
    totals = pd.DataFrame(
        [
            {
                "n": len(drawn),
                "pending": int((~drawn["complete"].astype(bool)).sum()),
                "spread": int(sum(len(p) > 1 for p in drawn["partitions"])),
                "duplicates": int(drawn["duplicates"].sum()),
            }
        ]
    )
    return figures.transaction_spans(drawn, totals=totals, scope=f" (of {len(drawn):,} chosen and drawn, of {n:,})")


_PICTURES: dict[str, Callable[[Summary, bool], go.Figure]] = {
    "watermark ladder": lambda s, cut: figures.watermark_ladder(
        s.steps, partitions=s.partitions, incidents=s.incidents
    ),
    "lag": lambda s, cut: figures.lag(s.steps, partitions=s.partitions),
    "transactions": _spans,
    "load by partition": lambda s, cut: figures.partition_load(s.load),
    "load by table": lambda s, cut: figures.partition_load(s.load_by_table, by="table"),
    "violations": lambda s, cut: figures.violations(s.findings),
}
