"""The policy of advice: keep the asked guarantee, then be even, then be simple.

1. A candidate is out if TiCDC refuses it, if the log has rows it cannot place, or if it breaks the asked guarantee.
2. A candidate whose columns are no part of the handle key is out too, unless risks are allowed: that it kept the
   guarantee in this log does not bind tomorrow's updates.
3. A table so small that it adds less than :data:`SMALL` of a partition's mean load goes by ``table`` if that is left.
4. Of the rest, those within :data:`TOLERANCE` of the most even one are as good; the simplest of them is chosen.
5. The partition count is the smallest that gives :data:`ENOUGH` of the best parallelism (all rows over the fullest
   partition).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticdc_lab.dispatch.advise_measures import MeasuredCandidate

SMALL, TOLERANCE, ENOUGH = 0.1, 1.1, 0.9

KEPT: Mapping[str, tuple[str, ...]] = {
    "row": ("row_order",),
    "unique": ("row_order", "row_order_any_unique"),
    "transaction": ("row_order", "row_order_any_unique", "transactions"),
    "table": ("table_order",),
}
"""What each ``keep`` asks of the what-if's guarantees; without a catalog the unique keys are not known."""

SAID = {
    "row_order": "the order of a row's changes",
    "row_order_any_unique": "the order of rows that share a unique value",
    "transactions": "the transactions of the table",
    "table_order": "the order of the table's changes",
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The measured candidate that is recommended, why, and why not each other (name to sentence)."""

    measured: MeasuredCandidate
    reasons: tuple[str, ...]
    why_not: Mapping[str, str]


def choose(found: Sequence[MeasuredCandidate], *, keep: str, share: float, allow_risk: bool = False) -> Recommendation:
    """Recommend one of the candidates of a table.

    Parameters
    ----------
    found
        All candidates of the table with one partition count; ``table`` is among them.
    keep
        A key of :data:`KEPT`.
    share
        The table's share of all rows of the log.
    allow_risk
        Whether columns may be recommended that are no key.
    """
    partitions = found[0].partitions
    why_not = {m.candidate.name: why for m in found if (why := _out(m, keep))}
    good = [m for m in found if m.candidate.name not in why_not]
    safe = [m for m in good if allow_risk or not m.candidate.risk]
    table = next(m for m in found if m.candidate.name == "table")
    small = share * partitions <= SMALL
    if small and table in safe:
        best = table
    else:
        least = min((m.uneven for m in safe), default=table.uneven)
        near = [m for m in safe if m.uneven <= least * TOLERANCE] or [table]
        best = min(near, key=lambda m: m.candidate.simplicity)
    others = {m.candidate.name: _not_chosen(m, best, allow_risk=allow_risk, small=small) for m in good if m is not best}
    return Recommendation(best, tuple(_reasons(best, keep, share, small, alone=safe == [table])), why_not | others)


def _out(m: MeasuredCandidate, keep: str) -> str:
    """Why a candidate is out whatever its evenness; empty where it is not."""
    if m.candidate.refused:
        return m.candidate.refused
    if m.unplaced:
        return f"{m.unplaced:,} rows cannot be placed by it"
    for guarantee in KEPT[keep]:
        broken, cases = m.broken.get(guarantee, (0, 0))
        if broken:
            return f"breaks {SAID[guarantee]} in {broken:,} of {cases:,} cases{_pair(m.pairs.get(guarantee))}"
    return ""


def _pair(pair: list[dict[str, Any]] | None) -> str:
    if not pair:
        return ""

    def at(p: dict[str, Any]) -> str:
        return f"{p['key']} (commit_ts {p['commit_ts']}, offset {p['offset']}) in partition {p['target_partition']}"

    return f", first {at(pair[0])} before {at(pair[1])}"


def _not_chosen(m: MeasuredCandidate, best: MeasuredCandidate, *, allow_risk: bool, small: bool) -> str:
    if m.candidate.risk and not allow_risk:
        return f"a risk: {m.candidate.risk}; the fullest would take {m.uneven:.2f} times the mean"
    if small or m.uneven <= best.uneven * TOLERANCE:
        return f"not so simple; the fullest would take {m.uneven:.2f} times the mean"
    return f"less even: the fullest would take {m.uneven:.2f} times the mean, not {best.uneven:.2f} times"


def _reasons(best: MeasuredCandidate, keep: str, share: float, small: bool, *, alone: bool) -> list[str]:
    n = best.partitions
    kept = [f"{SAID[g]} ({best.broken[g][1]:,} cases)" for g in KEPT[keep] if g in best.broken]
    out = [f"Keeps {' and '.join(kept)}."] if kept else []
    if best.candidate.risk:
        out.append(f"A risk that was allowed: {best.candidate.risk}.")
    if best.candidate.name != "table":
        return [*out, f"Fullest of {n} partitions: {best.uneven:.2f} times the mean of this table's rows or bytes."]
    if small:
        return [
            *out,
            f"The table has {share:.1%} of all rows: spreading them over {n} partitions would change nothing.",
        ]
    cost = f"one partition takes all its rows, {share:.1%} of the log, and one consumer at a time applies them"
    return [
        *out,
        f"Nothing else keeps it without a risk; the cost: {cost}." if alone else f"As even as any other; {cost}.",
    ]


def enough_partitions(parallelism: Mapping[int, float]) -> int:
    """The smallest partition count with nearly the best parallelism (count to all rows over the fullest)."""
    best = max(parallelism.values())
    return min(n for n, p in parallelism.items() if p >= best * ENOUGH)
