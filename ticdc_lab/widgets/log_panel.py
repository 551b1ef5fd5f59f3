"""What a log contains and how far, with a time range and tables to choose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers import complete_to
from ticdc_lab.answers.summary import Summary
from ticdc_lab.answers.transactions import spans
from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.facts.overview import LISTED
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import sentence
from ticdc_lab.widgets.controls import choice, picture, tables, time_range
from ticdc_lab.widgets.drawing import MEASURED, Drawn, wider_words
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.words import count


@dataclass(frozen=True, slots=True)
class LogView:
    """What a log panel shows: seconds since the first event, tables (none: all), partition (None: all), picture."""

    time_range: tuple[float, float]
    tables: tuple[str, ...]
    partition: int | None
    picture: str


def log_panel(summary: Summary, *, pictures: Sequence[str] = ()) -> Panel[LogView]:
    """Build a panel over a summary; it answers from small frames, without Spark.

    Parameters
    ----------
    summary
        :func:`ticdc_lab.log.summarise`.
    pictures
        Which of :data:`PICTURES` to offer; all where left out.
    """
    offered = {p: PICTURES[p] for p in pictures or PICTURES}
    lo, hi = span_ms(summary)
    length = max(0.001, (hi - lo) / 1000)
    whole = (0.0, length)
    names = sorted({f"{r.schema_name}.{r.table_name}" for r in summary.load_by_table.itertuples()})
    homes = sorted({int(p) for p in summary.contents["partition"]})
    controls = {
        "time_range": time_range(length),
        "tables": tables(names),
        "partition": choice(
            summary.lane, [("all", None), *((str(p), p) for p in homes)], tip=f"Only this {summary.lane}"
        ),
        "picture": picture(offered),
    }

    def draw(view: LogView) -> Drawn:
        timed = summary.has_commit_ts and view.time_range != whole
        first, last = (lo + round(v * 1000) for v in view.time_range)
        cut = cut_to(summary, between_ms=(first, last) if timed else None, tables=view.tables, partition=view.partition)
        drawn_of = _FRAMES[view.picture]
        if getattr(cut, drawn_of).empty and not getattr(summary, drawn_of).empty:
            return Drawn(_nothing(summary, drawn_of))
        if view.picture == "transactions" and cut.transactions is summary.transactions:
            return Drawn(spans(summary, totals=summary.transaction_totals))
        drawn = PICTURES[view.picture](cut, view.partition, summary)
        more = _stretches(cut, drawn_of, lo, view.time_range) + _of_a_sample(summary, drawn_of) if timed else ""
        return Drawn(drawn, f"{MEASURED}{more}{_undistinguished(view, summary.lane)}")

    return Panel(
        LogView, controls=controls, draw=draw, name="log", made_from=summary.made_from, origin_ms=lo,
        unfollowed=lambda view: _UNDISTINGUISHED.get(view.picture, ()),
    )  # fmt: skip


def span_ms(s: Summary) -> tuple[int, int]:
    """First and last physical millisecond of a log; 0 and 1 where nothing dates it."""
    if not s.has_commit_ts or s.load.empty:
        return 0, 1
    ends = [int(s.load["from_ms"].min()), int(s.load["to_ms"].max())]
    stated = [int(ts) >> LOGICAL_BITS for ts in s.steps["step_ts"]] if len(s.steps) else []
    return min(ends + stated), max(ends + stated)


def _transactions(s: Summary) -> int:
    """How many the log has; the summary draws a sample of them."""
    return int(s.transaction_totals["n"].sum()) if len(s.transaction_totals) else 0


def _nothing(s: Summary, drawn_of: str) -> Figure:
    """Nothing of what is drawn lies in what was chosen; of a sample that proves nothing for the others."""
    widen = f"Widen the time, or choose all tables and {s.lane}s."
    n, of = len(s.transactions), _transactions(s)
    if drawn_of == "transactions" and n < of:
        said = f"None of a sample of {count(n, 'transaction')} lies in what was chosen"
        return sentence(said, f"The log has {of:,}; the tab messages shows all of them. {widen}")
    return sentence("Nothing of this lies in what was chosen", widen)


def _stretches(cut: Summary, drawn_of: str, lo: int, chosen: tuple[float, float]) -> str:
    """What of the time is shown beside what was chosen: rows are counted by whole stretches."""
    frame = getattr(cut, drawn_of)
    if drawn_of not in ("load", "load_by_table") or frame.empty:
        return ""
    return wider_words(chosen, ((int(frame["from_ms"].min()) - lo) / 1000, (int(frame["to_ms"].max()) - lo) / 1000))


def _undistinguished(view: LogView, lane: str) -> str:
    """Which of the choices the picture does not follow, as what it is drawn of does not distinguish them."""
    without = _UNDISTINGUISHED.get(view.picture, ())
    names = [f"{lane}s"] * (view.partition is not None and "partition" in without)
    names += ["tables"] * (bool(view.tables) and "tables" in without)
    return f"; of all {' and '.join(names)}, which this picture does not distinguish" if names else ""


_UNDISTINGUISHED = {
    "watermark ladder": ("tables",),
    "lag": ("tables",),
    "load by partition": ("tables",),
    "load by table": ("partition",),
}


def _of_a_sample(s: Summary, drawn_of: str) -> str:
    """How many watermarks a long log has, if the summary has only some; how many were chosen is unknown."""
    if drawn_of != "steps" or s.steps.empty:
        return ""
    n, of = (int(v) for v in s.steps.groupby("topic").agg({"step": "nunique", "steps_total": "max"}).sum())
    return f"; a sample: {n:,} of the log's {count(of, 'watermark')}" if n < of else ""


def _spans(s: Summary, of: Summary) -> Figure:
    """Of a cut: the sentence is about the transactions of the sample that are left."""
    drawn, n = s.transactions, _transactions(s)
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
    scope = f", in a sample of {len(of.transactions):,} of {n:,}" if len(of.transactions) < n else f", of {n:,}"
    return spans(s, totals=totals, scope=scope)


_ONE_CHECKPOINT = "A storage sink has one checkpoint for its folder: none of its streams holds another back."

PICTURES: dict[str, Callable[[Summary, int | None, Summary], Figure]] = {
    "watermark ladder": lambda s, partition, of: (
        sentence(complete_to(s).rstrip("."), _ONE_CHECKPOINT)
        if s.of_storage
        else figures.watermark_ladder(
            s.steps,
            partitions=s.partitions,
            incidents=s.incidents,
            partition=partition,
            at_least=len(of.incidents) >= LISTED,
        )
    ),
    "lag": lambda s, partition, of: (
        sentence("There is no lag to show", _ONE_CHECKPOINT)
        if s.of_storage
        else figures.lag(s.steps, partitions=s.partitions, partition=partition)
    ),
    "transactions": lambda s, partition, of: _spans(s, of),
    "load by partition": lambda s, partition, of: figures.partition_load(s.load, partition=partition, lane=s.lane),
    "load by table": lambda s, partition, of: figures.partition_load(s.load_by_table, by="table"),
    "violations": lambda s, partition, of: figures.violations(s.findings),
}

_FRAMES = {
    "watermark ladder": "steps",
    "lag": "steps",
    "transactions": "transactions",
    "load by partition": "load",
    "load by table": "load_by_table",
    "violations": "findings",
}
"""What of a summary each picture is drawn of."""


# A summary cut to some seconds, tables and a partition.


def cut_to(
    s: Summary, *, between_ms: tuple[int, int] | None = None, tables: Collection[str] = (), partition: int | None = None
) -> Summary:
    """Cut the frames of a summary that pictures are drawn of; what does not distinguish tables or partitions stays.

    Watermarks and load of all partitions stay, too: who holds a topic back, and what share of the rows a partition
    takes, is meaningful only beside the others.

    ``s``: the whole. ``between_ms``: first and last physical millisecond; None for all, as of a log without commit_ts.
    ``tables``: ``schema.table`` of each; none means all. A transaction stays whole where it changes one of them.
    ``partition``: None for all. A transaction stays where it has a row there, waits for it, or may
    have lost a row there.
    """
    return _of_time(_of_partition(_of_tables(s, frozenset(tables)), partition), between_ms)


def _of_tables(s: Summary, tables: frozenset[str]) -> Summary:
    if not tables:
        return s
    by = s.load_by_table
    return replace(
        s,
        load_by_table=_of_drawn(by[(by["schema_name"] + "." + by["table_name"]).isin(tables)], lanes=len(tables)),
        transactions=_where(s.transactions, lambda of: [bool(tables & set(t)) for t in of["tables"]]),
        findings=_where(s.findings, lambda of: of["table"].isin(tables)),
    )


def _of_drawn(load: pd.DataFrame, *, lanes: int = 0) -> pd.DataFrame:
    """Without what is known only of all lanes over the whole time; ``lanes``: how many there are now."""
    kept = load.drop(columns=["rows_total", "unevenness"], errors="ignore")
    return kept.assign(lanes_total=lanes) if lanes else kept


def _of_partition(s: Summary, partition: int | None) -> Summary:
    if partition is None:
        return s

    def mine(of: pd.DataFrame) -> pd.Series:
        return (of["partition"] == partition).fillna(False).astype(bool)

    def touched(of: pd.DataFrame) -> list[bool]:
        homes = zip(*(of[c] for c in ("partitions", "missing", "gap_partitions") if c in of), strict=True)
        return [any(partition in home for home in each if home is not None) for each in homes]

    return replace(
        s,
        incidents=_where(s.incidents, mine),
        transactions=_where(s.transactions, touched),
        findings=_where(s.findings, mine),
    )


def _of_time(s: Summary, between_ms: tuple[int, int] | None) -> Summary:
    if between_ms is None:
        return s
    first, last = between_ms

    def within(column: str, frame: pd.DataFrame) -> pd.DataFrame:
        if frame.empty:
            return frame
        known = frame[frame[column].notna()]
        at = known[column].astype("int64")
        ms = at // (1 << LOGICAL_BITS) if column.endswith("_ts") else at
        return known[(ms >= first) & (ms <= last)]

    def overlapping(load: pd.DataFrame) -> pd.DataFrame:
        """Stretches begin with their first millisecond and end before their last one."""
        known = load[load["from_ms"].notna()] if len(load) else load
        within_it = (known["from_ms"] < max(last, first + 1)) & (known["to_ms"] > first) if len(known) else []
        return _of_drawn(known[within_it])

    steps = within("step_ts", s.steps)
    if len(steps):  # the total of the log would count those beside the choice
        of_topic = steps.groupby("topic")["step"]
        steps = steps.assign(steps_total=of_topic.transform("max") - of_topic.transform("min") + 1)
    return replace(
        s,
        steps=steps,
        incidents=within("resolved_ts", s.incidents),
        transactions=within("commit_ts", s.transactions),
        load=overlapping(s.load),
        load_by_table=overlapping(s.load_by_table),
        findings=within("commit_ts", s.findings),
    )


def _where(frame: pd.DataFrame, keep: Callable[[pd.DataFrame], Any]) -> pd.DataFrame:
    return frame if frame.empty else frame[keep(frame)]
