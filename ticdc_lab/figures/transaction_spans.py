"""Transaction spans: which partitions each transaction touches, and which are not whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ticdc_lab.events.tso import LOGICAL_BITS, tso_words, zone
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.look import GREY, WRONG, look
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import clock, finish, label, sentence
from ticdc_lab.words import are, count, percent, some_of

_NOTE = "Each row of marks is one transaction, with a mark in each partition that it touches."
_WAITS = " A coloured row waits for a watermark of each partition that the legend names: rows may still come."
_AGAIN = " A row of crosses is a transaction with a change that was delivered more than once."
_BESIDE = " A diamond is a partition where offsets are missing beside the transaction: a row of it may be lost there."
MOST = 40
"""Transactions drawn; more would be a pattern of stripes that is not in the log."""


def transaction_spans(
    sample: pd.DataFrame, *, totals: pd.DataFrame, scope: str = "", torn: Collection[int] = (), qualified: str = "",
    lane: str = "partition", at_least: bool = False, unmarked: str = "", gaps: bool = False, placed: bool = True,
) -> Figure:  # fmt: skip
    """Draw transactions as bars over partitions.

    Parameters
    ----------
    sample
        :class:`ticdc_lab.transactions.digest.Digest`. Where offsets are missing also ``gap_partitions``: in
        which partitions a gap may have torn the transaction, which is marked there and counted apart in the title.
    totals
        :func:`ticdc_lab.answers.summary.transaction_totals`: what the title counts.
    scope
        Words after the finding where the totals are not of the whole log.
    torn
        commit_ts (TSO) of transactions that a consumer showed in part: drawn in red, and what the title counts.
    qualified, lane, unmarked, placed
        As of :func:`transactions_finding`.
    at_least
        Whether the log has more gaps than ``gap_partitions`` names.
    gaps
        Whether offsets are missing and not known beside which transactions: then none is called whole.
    """
    if sample.empty:
        return sentence("There is no transaction to show", "The log has no row change with a commit_ts.")
    at_gaps = sample.get("gap_partitions", pd.Series([[]] * len(sample), sample.index))
    beside = sample["commit_ts"][at_gaps.map(len) > 0].nunique()
    sample = _chosen(sample.assign(gap_partitions=at_gaps), torn)
    y = np.arange(len(sample))
    fig = Figure()
    missing = [_ints(m) for m in sample["missing"]]
    whole = np.array([bool(c) for c in sample["complete"]])
    cut = sample["commit_ts"].isin(set(torn)).to_numpy(dtype=bool)
    _marks(fig, sample[whole & ~cut], y[whole & ~cut], name="complete", color=GREY, symbol="circle", size=8)
    _marks(fig, sample[cut], y[cut], name="shown in part", color=WRONG, symbol="x", size=8)
    whole |= cut
    blockers = sorted({m[0] for m in missing if m})
    for k in blockers:
        mine = ~whole & np.array([bool(m) and m[0] == k for m in missing])
        style = look(k)
        _marks(
            fig, sample[mine], y[mine], name=f"waits for {_waits(sample[mine]['missing'], lane)}", color=style["color"],
            symbol=style["symbol"], size=8,
        )  # fmt: skip
    unknown = ~whole & np.array([not m for m in missing])
    _marks(fig, sample[unknown], y[unknown], name="pending", color=WRONG, symbol="square", size=8)
    again = (sample["duplicates"] > 0).to_numpy(dtype=bool)
    line = {"width": 2, "color": WRONG}
    _marks(fig, sample[again], y[again], name="delivered again", symbol="x-thin", size=10, line=line)
    _marks(
        fig, sample, y, name="may be torn: an offset is missing here", column="gap_partitions", symbol="diamond-open",
        size=14, color=WRONG, line=line,
    )  # fmt: skip
    n = 1 + max(max(_ints(p), default=0) for c in ("partitions", "gap_partitions") for p in sample[c])
    fig.update_xaxes(title_text=lane, tickmode="linear" if n <= 32 else "auto", dtick=1, range=[-0.6, n - 0.4])
    ticks = np.unique(np.linspace(0, len(y) - 1, min(len(y), _TICKS)).round().astype(int))
    at = clock(sample["commit_ts"].to_numpy(dtype=np.int64)[ticks] >> LOGICAL_BITS)
    times = [pd.Timestamp(ms, unit="ms") for ms in at]
    days = [f"{t:%Y-%m-%d}" for t in times]
    shown = [f"{day} " if len({*days}) > 1 and day not in days[:i] else "" for i, day in enumerate(days)]
    words = [f"{day}{t:%H:%M:%S.%f}"[:-3] for day, t in zip(shown, times, strict=True)]
    fig.update_yaxes(title_text=f"transactions by commit time ({zone()})", tickvals=ticks, ticktext=words)
    total = totals.iloc[0]
    told = transactions_finding(
        total, qualified=qualified, torn=beside, lane=lane, unmarked=unmarked, gaps=gaps, placed=placed
    )
    if beside:
        told = f"{'At least ' if at_least else ''}{count(beside, 'transaction')} may be torn. {told}"
    if torn:
        told = _torn(len(set(torn)), int(total["n"]))
    return finish(
        fig,
        title=told + scope,
        note=_note(sample, int(total["n"]), waits=bool(blockers)),
        height=310 + 9 * max(22, len(sample)),
    )


def _waits(missing: pd.Series, lane: str) -> str:
    """What transactions with one first blocker wait for."""
    each = sorted({k for m in missing for k in _ints(m)})
    both = all(len(m) == len(each) for m in missing)
    named = [str(k) for k in (each if both else _ints(missing.iloc[0])[:1])]
    return f"{lane}{'s' * (len(named) > 1)} {some_of(named, most=8)}{'' if both else ' and others'}"


_TICKS = 9


def _chosen(sample: pd.DataFrame, torn: Collection[int]) -> pd.DataFrame:
    """Those that are drawn, in their order: evenly chosen among those beside a gap, not whole or repeated, and others.

    Those beside a gap leave half of the room to pending ones, if there are as many.
    """
    told = ~sample["complete"].astype(bool) | (sample["duplicates"] > 0) | sample["commit_ts"].isin(set(torn))
    beside = sample["gap_partitions"].map(len) > 0
    chosen = _evenly(np.flatnonzero(beside), max(MOST // 2, MOST - int((told & ~beside).sum())))
    for group in (told & ~beside, ~told & ~beside):
        chosen = np.concatenate([chosen, _evenly(np.flatnonzero(group), MOST - len(chosen))])
    return sample.iloc[chosen].sort_values("commit_ts", kind="stable").reset_index(drop=True)


def _evenly(places: np.ndarray, most: int) -> np.ndarray:
    return places if len(places) <= most else places[np.linspace(0, len(places) - 1, most).round().astype(int)]


def _torn(n: int, of: int) -> str:
    return f"{n:,} of {count(of, 'transaction')} {are(n)} shown in part, for a while at least"


def transactions_finding(
    total: pd.Series, *, qualified: str = "", torn: int = 0, lane: str = "partition", unmarked: str = "",
    gaps: bool = False, lost: bool = False, placed: bool = True,
) -> str:  # fmt: skip
    """How many transactions are pending, spread and repeated, from a row of totals.

    None is called whole: a change that is lost without a missing offset shows in images alone.

    ``total``: that row. ``qualified``: what the sentence must add (:func:`ticdc_lab.facts.limits.not_known`). ``torn``:
    how many may be torn, which another sentence reports: the others are counted. ``lane``: what its messages lie
    in: partitions, or streams of files. ``unmarked``: why none can be judged whole, as the begin of a sentence.
    ``gaps``: offsets are missing, and ``torn`` is not known. ``lost``: whether another sentence reports lost changes.
    ``placed``: whether the source names partitions; how many of them a transaction touches is unknown otherwise.
    """
    n, pending, repeats = int(total["n"]), int(total["pending"]), int(total["duplicates"])
    spread = f"; {percent(int(total['spread']), n)} touch more than one {lane}" if placed else ""
    rest, other = n - torn, "other" if torn else "one"
    whole = f"the other {rest:,} transactions are not pending" if torn else f"none of {n:,} transactions is pending"
    if rest < 2:
        whole = f"the {other} transaction is not pending" if rest else "no other transaction is recorded"
    if not torn and not lost:
        whole += ", and none is known to be torn" if rest > 1 else ", and is not known to be torn"
    if gaps and not torn and not pending:
        whole, qualified = "no transaction is pending, but those beside missing offsets may be torn", ""
    state = f"{pending:,} of {count(n, 'transaction')} {are(pending)} pending" if pending else whole
    if unmarked:
        all_of = "the one transaction" if n == 1 else f"any of {n:,} transactions"
        qualified, state = "", f"{unmarked}, so it is not known whether {all_of} is whole"
    again = f", {count(repeats, 'change was', 'changes were')} delivered again" if repeats else ""
    return f"{state[0].upper()}{state[1:]}{qualified}{spread}{again}"


def _note(sample: pd.DataFrame, n: int, *, waits: bool) -> str:
    """It speaks of what is drawn only."""
    again, beside = bool((sample["duplicates"] > 0).any()), bool(sample["gap_partitions"].map(len).any())
    said = _NOTE + _WAITS * waits + _BESIDE * beside + _AGAIN * again
    first = "those beside missing offsets, then pending and repeated ones" if beside else "pending and repeated ones"
    return said if len(sample) >= n else f"{said} {len(sample):,} of {n:,} are drawn, {first} first."


def _marks(
    fig: Figure, rows: pd.DataFrame, y: np.ndarray, *, name: str, column: str = "partitions", **marker: Any
) -> None:
    """A mark in each partition that a column lists; no line between them, as it would cross others."""
    points = [(home, float(at), row) for row, at in zip(rows.to_dict("records"), y, strict=True)
              for home in _ints(row[column])]  # fmt: skip
    if not points:
        return
    marks = Scatter(
        x=[home for home, _, _ in points], y=[at for _, at, _ in points], mode="markers", marker=marker, name=name,
        hovertext=[_hover(row) for _, _, row in points], hoverinfo="text",
    )  # fmt: skip
    fig.add_trace(marked(marks, [Selection(commit_ts=row["commit_ts"]) for _, _, row in points]))


def _hover(row: dict[Any, Any]) -> str:
    tables = ", ".join(label(t) for t in list(row["tables"])[:5]) + (" …" if len(row["tables"]) > 5 else "")
    said = [f"commit_ts {tso_words(int(row['commit_ts']))}", f"{count(int(row['n_rows']), 'row')} of {tables}"]
    if not row["complete"]:
        said.append(f"waits for partitions {', '.join(map(str, _ints(row['missing'])))}")
    if row["gap_partitions"]:
        said.append(f"beside missing offsets of partition {', '.join(map(str, row['gap_partitions']))}")
    if row["duplicates"]:
        said.append(count(int(row["duplicates"]), "repeated delivery", "repeated deliveries"))
    return "<br>".join(said)


def _ints(values: Sequence[int] | None) -> list[int]:
    return [] if values is None else [int(v) for v in values]
