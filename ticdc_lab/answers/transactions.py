"""Which transactions are whole, and which are torn."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.rows import transaction
from ticdc_lab.answers.summary import Summary, is_small, small
from ticdc_lab.answers.watermarks import without_the_last, without_watermark
from ticdc_lab.encode.export import write
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.tso import clock_words, tso_words
from ticdc_lab.facts.limits import if_alone, not_known
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.transaction_spans import transactions_finding
from ticdc_lab.tables.browse import MessagePage, commit_ts_span
from ticdc_lab.transactions import duplicates, first_repeated, gaps_in, suspects
from ticdc_lab.transactions import transactions as restored
from ticdc_lab.words import count, lane_of, some_of

if TYPE_CHECKING:
    from ticdc_lab.log import Log

_QUESTION = "Which transactions are whole, and which are torn?"
_PROMISED = (
    "A transaction is complete if every partition has a watermark at or above its commit_ts: TiCDC promises that all "
    "was sent. Partitions after the last recorded one, and changes that are lost without a missing offset, do not show "
    "here: the audit detects them by each table's dispatch rule and by broken chains of images."
)
_PROMISED_BY_FILES = (
    "A transaction is complete if the folder's checkpoint is at or above its commit_ts: TiCDC promises that all was "
    "written. A stream is the files of a table, or of a physical partition or a dispatcher of one."
)


def transactions(s: Summary, *, repeats: pd.DataFrame | None = None) -> Answer:
    """How many transactions it holds, which are pending and what they wait for, which came twice.

    ``s``: its ``transaction_totals``, ``transactions`` and ``suspects``, and ``findings`` of an audit. ``repeats``:
    changes that were delivered again, of :func:`ticdc_lab.transactions.duplicates`.
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
    torn, unmarked = s.suspects, _unmarked(s)
    n_torn = 0 if torn is None else torn["commit_ts"].nunique()
    lost, details = _lost(s.findings), []
    found = transactions_finding(
        total, qualified=_qualified(s), torn=n_torn, lane=s.lane, unmarked=unmarked, lost=bool(lost),
        placed="partition" not in s.lost,
    )  # fmt: skip
    words = f"{found}."
    if torn is None and int(total["pending"]) and not (unmarked or s.of_storage or lost):
        is_whole = s.counts is not None and not s.counts.lacking + s.counts.files and "offset" not in s.lost
        because = ", as no offset is missing" if is_whole and not s.sample else ""
        words = f"No transaction is known to be torn{because}. {words}"
    if torn is not None:
        frames["suspects"], beside = likeliest_first(torn, s), torn_words(torn, s)
        words = f"{beside} {words}" if n_torn and not unmarked else f"{words} {beside}"
    words = f"{lost}{words}"
    rows, most = count(int(total["n_rows"]), "row change"), count(int(total["n_rows_max"]), "row")
    details.append(f"The transactions have {rows}, the largest {most}.")
    if len(frames["pending"]) < int(total["pending"]):
        details.append(
            f"At most {len(frames['pending']):,} of {int(total['pending']):,} pending transactions are listed; all: "
            f"ticdc-lab transactions {shlex.quote(shown_source(s.source))} --out transactions.jsonl"
        )

    def draw() -> Mapping[str, Figure]:
        """Nothing where all is grey: that none is open is a sentence."""
        seen = int(total["pending"]) or int(total["duplicates"]) or n_torn
        return {"spans": spans(s, totals=s.transaction_totals)} if seen else {}

    promised = [_PROMISED_BY_FILES if s.of_storage else _PROMISED] if int(total["n"]) > int(total["pending"]) else []
    waits = [*s.early_ends, *without_the_last(s)] if int(total["pending"]) else []
    return Answer("transactions", _QUESTION, words, frames, [*promised, *waits], details, draw=draw)


def spans(s: Summary, *, totals: pd.DataFrame, scope: str = "") -> Figure:
    """The picture of its transactions; ``totals``: what the title counts, ``scope``: of what, where not of the log."""
    return figures.transaction_spans(
        s.transactions, totals=totals, scope=scope, qualified=_qualified(s), lane=s.lane, unmarked=_unmarked(s),
        placed="partition" not in s.lost,
        at_least=s.suspects is not None and _is_cut(s.suspects, s),
        gaps=s.suspects is None and s.counts is not None and s.counts.lacking > 0,
    )  # fmt: skip


def _qualified(s: Summary) -> str:
    """What a sentence about whole transactions must add."""
    return f"{not_known(s.counts)}{if_alone(s.lost)}"


_NAMED, _LIKELY = 3, 5
"""Suspects that are named in a sentence: if nothing shows which is torn, and of those that broken chains point to."""


def _lost(findings: pd.DataFrame) -> str:
    """Where changes may be lost though no offset is missing, as the begin of an answer."""
    chains = findings[(findings["guarantee"] == "row_images_chain") & (findings["severity"] == "error")]
    if chains.empty:
        return ""
    first = chains.iloc[0]
    at = [int(e["commit_ts"]) for e in first["evidence"] if e["commit_ts"] is not None]
    place = f"partition {first['partition']} offset {first['offset']}"  # of a log without images no key is known
    of_row = first["key"] if isinstance(first["key"], str) else place
    between = f" between commit_ts {tso_words(min(at))} and {tso_words(max(at))}" if at else ""
    return (
        f"The audit found {count(len(chains), 'broken chain')} of row images: either a change is lost, and its "
        f"transaction is torn, or an image is wrong: "
        f"{'' if len(chains) == 1 else 'the first is '}{first['table']} {of_row}{between}. "
    )


def likeliest_first(torn: pd.DataFrame, s: Summary) -> pd.DataFrame:
    """Suspects with ``by_chain``, the tables whose broken chains of row images place a lost change at that commit_ts
    and in that gap; those that have one come first.
    """
    chains = s.findings[s.findings["guarantee"] == "row_images_chain"].to_dict("records")
    known = [(f, f["evidence"]) for f in chains if f["evidence"] is not None]  # the count of others has none
    ends = [(f["table"], f["partition"], [(e["offset"], e["commit_ts"]) for e in events]) for f, events in known]
    spans = [(t, p, min(at), max(at)) for t, p, at in ends if len(at) > 1 and all(None not in one for one in at)]

    def explains(r: Mapping[Any, Any]) -> list[str]:
        return sorted({
            t for t, p, (low, low_ts), (high, high_ts) in spans
            if p == r["partition"] and low < r["first_missing"] and r["last_missing"] < high
            and low_ts <= r["commit_ts"] <= high_ts and t in list(r["between_rows_of"])
        })  # fmt: skip

    found = torn.assign(by_chain=[explains(r) for r in torn.to_dict("records")])
    return found.sort_values("by_chain", key=lambda of: of.map(len) == 0, kind="stable").reset_index(drop=True)


def torn_words(torn: pd.DataFrame, s: Summary) -> str:
    """Which transactions a gap in offsets may have torn."""
    if torn.empty:
        return "Offsets are missing, but no recorded transaction is beside a gap."
    torn = likeliest_first(torn, s)
    shown = torn[torn["by_chain"].map(len) > 0]
    each = [f"{ts} ({clock_words(int(ts))})" for ts in torn["commit_ts"].drop_duplicates()]
    likely = shown["commit_ts"].nunique()
    names, sure = some_of(each, most=_NAMED), ""
    if 0 < likely < len(each):
        tables = some_of(sorted({t for of in shown["by_chain"] for t in of}), most=_NAMED)
        names = some_of(each[:likely], most=_LIKELY)
        one = "this one" if likely == 1 else f"one of these {likely:,}"
        sure = f", most likely {one}, because a change of {tables} between them is lost (broken row images)"
    gaps = _gaps(torn)
    places = [
        f"{first} of partition {p}" if first == last else f"{first} to {last} of partition {p}"
        for first, last, p in gaps[["first_missing", "last_missing", "partition"]].itertuples(index=False)
    ]
    cut = f" and {count(len(places) - _NAMED, 'more gap')}" if len(places) > _NAMED else ""
    listed = f"ticdc-lab audit {shlex.quote(shown_source(s.source))} --json"
    unsure = "" if sure else " No evidence shows which; the nearest by commit_ts come first."
    every = f"{unsure} All: {listed}." if len(each) > _NAMED else ""
    rest = " Other gaps were not searched, or have no commit_ts beside them." if _is_cut(torn, s) else ""
    return (
        f"{_how_many(torn, s)} may be torn{sure}: commit_ts {names}. "
        f"Beside {'it' if len(each) == 1 else 'them'} offsets are missing: {', '.join(places[:_NAMED])}{cut}.{every} "
        f"A transaction completely inside a gap leaves no trace.{rest}"
    )


def torn_briefly(s: Summary) -> str:
    """The same in a few words; empty where none may be torn."""
    if s.suspects is None or s.suspects.empty:
        return ""
    torn = likeliest_first(s.suspects, s)
    each = [f"{ts} at {clock_words(int(ts))}" for ts in torn["commit_ts"].drop_duplicates()]
    return f"{_how_many(torn, s)} may be torn (commit_ts {some_of(each, most=1)})"


def _how_many(torn: pd.DataFrame, s: Summary) -> str:
    """As the begin of a sentence."""
    return f"{'At least ' if _is_cut(torn, s) else ''}{count(torn['commit_ts'].nunique(), 'transaction')}"


def _is_cut(torn: pd.DataFrame, s: Summary) -> bool:
    """Whether the log has other gaps than those that suspects are named of."""
    gaps = _gaps(torn)
    seen = int((gaps["last_missing"] - gaps["first_missing"] + 1).sum())
    return s.counts is not None and s.counts.lacking > seen


def _gaps(torn: pd.DataFrame) -> pd.DataFrame:
    return torn.drop_duplicates(["topic", "partition", "first_missing"])


def _unmarked(s: Summary) -> str:
    """Why no transaction can be judged whole; empty where some can."""
    silent = without_watermark(s.partitions)
    if not silent or (len(silent) < len(s.partitions) and s.partitions["topic"].nunique() > 1):
        return ""
    if len(silent) == len(s.partitions):
        return "the folder states no checkpoint" if s.of_storage else "no partition has a watermark"
    names = some_of(silent)
    return f"{s.lane} {names} has no watermark" if len(silent) == 1 else f"{s.lane}s {names} have no watermark"


def _pending(sample: pd.DataFrame) -> pd.DataFrame:
    """Those that are not whole, among the ones that are drawn, which they come first of."""
    names = ["commit_ts", "n_rows", "tables", "missing"]
    if sample.empty:
        return pd.DataFrame(columns=names)
    return sample[~sample["complete"].astype(bool)].sort_values("commit_ts")[names].reset_index(drop=True)


# Asked of a log.

_GAPS, _SUSPECTS = 20, 1_000
"""Most gaps in offsets whose neighbouring transactions are listed, and most transactions."""

REPEATS = 200
"""Changes that were delivered again that are shown."""


def ask_transactions(log: Log, *, out: str | None) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.transactions`."""
    if not log.has_commit_ts:
        return transactions(log.summary_of("facts"))
    if out:
        write(log.events.transform(restored).repartition(1).sortWithinPartitions("commit_ts", "start_ts"), out)
    s = log.summary_of("facts", "transactions", *(["findings"] if is_small(log.counts) else []))
    again = s.transaction_totals["duplicates"].sum() > 0
    return transactions(s, repeats=log.once("repeats", lambda: _repeats(log)) if again else None)


def _repeats(log: Log) -> pd.DataFrame:
    own = log.events.where(F.col("commit_ts").isin(first_repeated(log.events, REPEATS)))
    return small(own.transform(duplicates).orderBy("commit_ts", "partition", "offset").limit(REPEATS))


def suspects_of(log: Log) -> pd.DataFrame | None:
    """Transactions that gaps in offsets may have torn; None without a gap, or commit_ts."""
    sampled = log.change_log.sample is not None and not log.change_log.sample.is_whole
    gaps = [] if sampled or not log.has_commit_ts else gaps_in(log.change_log.facts.offsets, most=_GAPS)
    if not gaps:
        return None
    nearest = [
        F.desc("is_between"), F.col("apart_ms"), F.asc_nulls_last("apart_offsets"),
        *map(F.col, ("topic", "partition", "first_missing", "commit_ts")),
    ]  # fmt: skip
    found = log.events.transform(suspects, gaps=gaps).orderBy(*nearest)
    return log.once("beside gaps", lambda: small(found.limit(_SUSPECTS)))


def ask_transaction(log: Log, commit_ts: int | str | None) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.transaction`."""
    if isinstance(commit_ts, str):
        found = log.browser.page(MessagePage(kind="row", commit_ts=commit_ts))["commit_ts"]
        commit_ts = int(found.min()) if len(found) else commit_ts_span(commit_ts)[0]
    if commit_ts is None:
        whole = log.transactions()
        sample = whole.frames.get("sample", pd.DataFrame())
        if sample.empty:
            return whole
        widest = sample.assign(spread=sample["partitions"].map(len)).sort_values(["spread", "n_rows"])
        commit_ts = int(widest["commit_ts"].iloc[-1])
    return transaction(log.browser.transaction(commit_ts), commit_ts=commit_ts, lane=lane_of(log.change_log.of_storage))
