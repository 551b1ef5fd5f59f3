"""Single messages, rows and tables of a log."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.events.tso import tso_words
from ticdc_lab.words import count


def messages(page: pd.DataFrame) -> Answer:
    """Events as the log contains them: :meth:`ticdc_lab.tables.browse.Browser.page`."""
    words = f"{count(len(page), 'event is', 'events are')} shown, as the log contains them."
    note = "Look for offsets that are left out, and for a commit_ts smaller than one above it."
    return Answer(
        "messages", "What lies there?", words, {"messages": page},
        draw=lambda: {"messages": figures.listing(page, title=words.rstrip("."), note=note)} if len(page) else {},
    )  # fmt: skip


def row(life: pd.DataFrame, *, table: str, key: str, lane: str = "partition") -> Answer:
    """All deliveries that touched a row: :meth:`ticdc_lab.tables.browse.Browser.row_life`."""
    question = "What happened to one row?"
    if not key:
        return Answer("row", question, f"No row of {table} has a key to follow it by.", {"life": life.iloc[:0]})
    if life.empty:
        return Answer("row", question, f"No message of this log touches {table} {key}.", {"life": life})
    places = life[["topic", "partition"]].drop_duplicates()
    words = f"{count(len(life), 'delivery', 'deliveries')} touched {table} {key}"
    return Answer(
        "row", question, f"{words}, in {count(len(places), lane)}.", {"life": life},
        draw=lambda: {"life": figures.row_life(life, table=table, key=key)},
    )  # fmt: skip


def table(
    rows: pd.DataFrame, *, name: str, ts: int, n: int, limits: Sequence[str], added: Sequence[str],
    key: Sequence[str] = (), out: str | None = None, qualified: str = "",
) -> Answer:  # fmt: skip
    """A table at a moment: its first rows, and how many there are; ``added`` are those columns that are not its own."""
    words = f"{name} has {count(n, 'row')} at {tso_words(ts)}{qualified}."
    note = "Rows as they were at that commit_ts. Look for NULL where none should be."
    unused = [c for c in added if not rows[c].map(lambda v: bool(np.size(v))).any()]
    shown = rows.drop(columns=unused)
    return Answer(
        "table", "Which rows did this table have at that moment?", words, {"rows": rows}, limits, (),
        {"table": name, "ts": ts, "key": [*key], "out": out},
        draw=lambda: {"rows": figures.listing(shown, title=words.rstrip("."), note=note, commit_ts=added[0])}
        if len(rows) else {},
    )  # fmt: skip


def against_definition(broken: Mapping[Hashable, Any]) -> str:
    """How many row changes of a table break what its DDL defines: ``table, guarantee, n, first``."""
    n = int(broken["n"])
    return (
        f"{count(n, 'row change')} of {broken['table']} {'breaks' if n == 1 else 'break'} {broken['guarantee']}, and "
        f"upstream cannot have such a row. The first: {broken['first']}."
    )


def transaction(rows: pd.DataFrame, *, commit_ts: int, lane: str = "partition") -> Answer:
    """All deliveries of a transaction: :meth:`ticdc_lab.tables.browse.Browser.transaction`."""
    question = "What did one transaction change?"
    if rows.empty:
        return Answer(
            "transaction", question, f"No row change of this log has the commit_ts {tso_words(commit_ts)}.", {}, ()
        )
    n, places = int((~rows["again"]).sum()), rows[["topic", "partition"]].drop_duplicates()
    again = f" and {count(len(rows) - n, 'repeat')}" if len(rows) > n else ""
    started = rows["start_ts"].drop_duplicates()
    several = f"The {len(started)} transactions with commit_ts {tso_words(commit_ts)} have"
    words = several if len(started) > 1 else f"Transaction {tso_words(commit_ts)} has"
    words = f"{words} {count(n, 'change')}{again}"
    note = "Before and after each change, as far as the protocol carries them. again: delivered before."
    unknown = [] if started.notna().any() else ["start_ts"]
    return Answer(
        "transaction", question, f"{words} in {count(len(places), lane)}.", {"rows": rows},
        draw=lambda: {"rows": figures.listing(rows.drop(columns=["topic", "seq", *unknown]), title=words, note=note)},
    )  # fmt: skip
