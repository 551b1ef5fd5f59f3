"""A summary cut to some seconds, tables and a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pandas as pd

from ticdc_lab.answers.summary import Summary
from ticdc_lab.events.tso import LOGICAL_BITS


def cut_to(
    s: Summary, *, between_ms: tuple[int, int] | None = None, tables: Collection[str] = (), partition: int | None = None
) -> Summary:
    """Cut the frames of a summary that pictures are drawn of; what does not tell tables or partitions apart stays.

    Watermarks and load of all partitions stay, too: who holds a topic back, and what share of the rows a partition
    takes, is told only beside the others.

    Parameters
    ----------
    s
        The whole.
    between_ms
        First and last physical millisecond; None for all, as of a log without commit_ts.
    tables
        ``schema.table`` of each; none means all. A transaction stays whole where it changes one of them.
    partition
        None for all. A transaction stays where it has a row there, or waits for it.
    """
    return _of_time(_of_partition(_of_tables(s, frozenset(tables)), partition), between_ms)


def _of_tables(s: Summary, tables: frozenset[str]) -> Summary:
    if not tables:
        return s
    by = s.load_by_table
    return replace(
        s,
        load_by_table=by[(by["schema_name"] + "." + by["table_name"]).isin(tables)],
        transactions=_where(s.transactions, lambda of: [bool(tables & set(t)) for t in of["tables"]]),
        findings=_where(s.findings, lambda of: of["table"].isin(tables)),
    )


def _of_partition(s: Summary, partition: int | None) -> Summary:
    if partition is None:
        return s

    def mine(of: pd.DataFrame) -> pd.Series:
        return (of["partition"] == partition).fillna(False).astype(bool)

    def touched(of: pd.DataFrame) -> list[bool]:
        homes = zip(of["partitions"], of["missing"], strict=True)
        return [partition in {*([] if p is None else p), *([] if m is None else m)} for p, m in homes]

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

    return replace(
        s,
        steps=within("step_ts", s.steps),
        incidents=within("resolved_ts", s.incidents),
        transactions=within("commit_ts", s.transactions),
        load=within("from_ms", s.load),
        load_by_table=within("from_ms", s.load_by_table),
        findings=within("commit_ts", s.findings),
    )


def _where(frame: pd.DataFrame, keep: Callable[[pd.DataFrame], Any]) -> pd.DataFrame:
    return frame if frame.empty else frame[keep(frame)]
