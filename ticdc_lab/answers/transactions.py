"""Which transactions are whole."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import Summary
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.tso import utc_words
from ticdc_lab.facts.limits import but_for
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import count, some_of
from ticdc_lab.figures.transaction_spans import transactions_finding

_QUESTION = "Which transactions are whole?"
_PROMISED = (
    "A transaction is whole if every partition has a watermark at or above its commit_ts: TiCDC promises that all "
    "was sent. Lost changes without a missing offset, and partitions after the last recorded one, do not show here; "
    "the audit detects them by broken chains of images and by each table's dispatch rule."
)
_PROMISED_BY_FILES = (
    "A transaction is whole if the folder's checkpoint is at or above its commit_ts: TiCDC promises that all was "
    "written. A stream is the files of a table, or of a physical partition or a dispatcher of one."
)


def transactions(s: Summary, *, repeats: pd.DataFrame | None = None, torn: pd.DataFrame | None = None) -> Answer:
    """How many transactions it holds, which are pending and what they wait for, which came twice.

    ``s``: its ``transaction_totals`` and ``transactions``. ``repeats``: changes that were delivered again, of
    :func:`ticdc_lab.transactions.duplicates`. ``torn``: those beside a gap in offsets, of
    :func:`ticdc_lab.transactions.suspects`.
    """
    if not s.has_commit_ts:
        return Answer("transactions", _QUESTION, "Transactions cannot be restored from it.", {}, s.limits)
    n = 0 if s.transaction_totals.empty else int(s.transaction_totals["n"].iloc[0])
    frames = {"totals": s.transaction_totals, "pending": _pending(s.transactions), "sample": s.transactions}
    if repeats is not None:
        frames["repeats"] = repeats
    if not n:
        return Answer("transactions", _QUESTION, "The log contains no transaction.", frames)
    total = s.transaction_totals.iloc[0]
    qualified = but_for(s.counts)
    n_torn = 0
    if torn is not None:
        frames["suspects"], n_torn = torn, torn["commit_ts"].nunique()
    words = f"{transactions_finding(total, qualified=qualified, lane=s.lane)}."
    if torn is not None and torn.empty:
        words = f"{words} {torn_words(torn)}"
    elif torn is not None:
        others = transactions_finding(total, qualified=qualified, torn=n_torn, lane=s.lane)
        words = f"{torn_words(torn)} {others}."
    rows, most = count(int(total["n_rows"]), "row change"), count(int(total["n_rows_max"]), "row")
    details = [f"They are {rows}, the largest {most}."]
    if len(frames["pending"]) < int(total["pending"]):
        details.append(
            f"{len(frames['pending']):,} of {int(total['pending']):,} pending transactions are listed; all: "
            f"ticdc-lab transactions {shlex.quote(shown_source(s.source))} --out transactions.jsonl"
        )

    def draw() -> Mapping[str, Figure]:
        """Nothing where all is grey: that none is open is a sentence."""
        seen = int(total["pending"]) or int(total["duplicates"])
        if not seen:
            return {}
        spans = figures.transaction_spans(
            s.transactions, totals=s.transaction_totals, qualified=qualified, lane=s.lane, beside=n_torn
        )
        return {"spans": spans}

    promised = [_PROMISED_BY_FILES if s.of_storage else _PROMISED] if int(total["n"]) > int(total["pending"]) else []
    return Answer("transactions", _QUESTION, words, frames, promised, details, draw=draw)


_NAMED = 5
"""Suspects that are named in a sentence."""


def torn_words(torn: pd.DataFrame) -> str:
    """Which transactions a gap in offsets may have torn."""
    if torn.empty:
        return "Offsets are missing, but no recorded transaction is beside a gap."
    each = [f"{ts} ({utc_words(int(ts))})" for ts in torn["commit_ts"].drop_duplicates()]
    gaps = torn.drop_duplicates(["topic", "partition", "first_missing"])
    places = [
        f"{first} of partition {p}" if first == last else f"{first} to {last} of partition {p}"
        for first, last, p in gaps[["first_missing", "last_missing", "partition"]].itertuples(index=False)
    ]
    cut = f" and {len(places) - _NAMED} more gaps" if len(places) > _NAMED else ""
    return (
        f"{count(len(each), 'transaction')} may be torn, beside missing offsets ({', '.join(places[:_NAMED])}{cut}): "
        f"commit_ts {some_of(each, most=_NAMED)}. A transaction that is completely inside a gap leaves no trace."
    )


def torn_briefly(torn: pd.DataFrame) -> str:
    """The same for the end of another sentence."""
    each = [str(ts) for ts in torn["commit_ts"].drop_duplicates()]
    return f"{count(len(each), 'transaction')} may be torn (commit_ts {some_of(each, most=2)})"


def _pending(sample: pd.DataFrame) -> pd.DataFrame:
    """Those that are not whole, among the ones that are drawn, which they come first of."""
    names = ["commit_ts", "n_rows", "tables", "missing"]
    if sample.empty:
        return pd.DataFrame(columns=names)
    return sample[~sample["complete"].astype(bool)].sort_values("commit_ts")[names].reset_index(drop=True)
