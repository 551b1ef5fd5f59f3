"""Every strategy beside every other: small frames for the what-if figures, from a :class:`WhatIf`, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ticdc_lab.dispatch.names import CONFLICT, MODELS, RECORDED
from ticdc_lab.dispatch.whatif import Choice, WhatIf

MEASURED = ("row_order", "table_order", "transactions")
"""The guarantees of the MQ design's table, as :mod:`ticdc_lab.dispatch.guarantees` names them."""

_COUNTED = ("guarantee", "cases", "violations", "undecided")
_MEASURES = ("strategy", *_COUNTED, "max_over_mean")
_PLACED = ("strategy", "target_partition", "rows")
_WORDS = {"row_order": "row order", "table_order": "table order", "transactions": "transaction consistency"}

TsRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OverTime:
    """One choice of dispatcher over time."""

    load: npt.NDArray[np.int64]  # load (time buckets, partitions)
    seconds: npt.NDArray[np.float64]  # middle of each bucket, s since the first change
    broken: Mapping[str, npt.NDArray[np.int64]]  # guarantee to its violations in each bucket
    alignments: npt.NDArray[np.int64]  # alignment events of each bucket
    unplaced: int = 0  # row changes that the dispatcher cannot place, so that they are nowhere in this
    stretches_ms: tuple[tuple[int, int], ...] = ()  # first and last physical millisecond of each bucket


def guarantee_frame(
    what_if: WhatIf,
    *,
    partitions: int,
    more: Mapping[str, Choice] = MappingProxyType({}),
    tables: Sequence[str] | None = None,
    ts_range: TsRange | None = None,
) -> pd.DataFrame:
    """Measure every candidate with so many partitions.

    Parameters
    ----------
    what_if, partitions, tables, ts_range
        As for :meth:`ticdc_lab.dispatch.whatif.WhatIf.guarantees`.
    more
        Words to choices that are shown beside the candidates.

    Returns
    -------
    pandas.DataFrame
        For :func:`ticdc_lab.figures.matrices`: ``strategy``, ``guarantee``, ``cases``, ``violations``,
        ``undecided``, ``max_over_mean`` (only for ``balance``, whose ``undecided`` are rows that cannot be placed).
    """
    out: list[dict[str, Any]] = []
    chosen: Any = {"partitions": partitions, "tables": tables, "ts_range": ts_range}
    for words, strategy in _shown(what_if, partitions, more).items():
        counted = what_if.counted(strategy=strategy, **chosen)
        whole = [r for r in counted if r["table"] is None and r["guarantee"] in MEASURED]
        out += [{"strategy": words, **{c: r[c] for c in _COUNTED}} for r in whole]
        rows = what_if.load(strategy=strategy, **chosen).sum(axis=0)
        if rows.sum():
            even = float(rows.max() / rows.mean())
            lost = what_if.unplaced(strategy=strategy, tables=tables, ts_range=ts_range)
            none = {"cases": 0, "violations": 0, "undecided": lost}
            out.append({"strategy": words, "guarantee": "balance", **none, "max_over_mean": even})
    return pd.DataFrame(out, columns=list(_MEASURES))


def _shown(what_if: WhatIf, partitions: int, more: Mapping[str, Choice]) -> dict[str, Choice]:
    """Words to choices: the log's own rules, what was asked for, what a changefeed file can set, and models last."""
    names = sorted(what_if.candidates_at(partitions), key=lambda name: name in MODELS)
    own: dict[str, Choice] = {RECORDED: what_if.recorded} if what_if.recorded else {}
    return {**own, **more, **{name: name for name in names if name not in more}}


def placement(
    what_if: WhatIf,
    *,
    partitions: int,
    more: Mapping[str, Choice] = MappingProxyType({}),
    tables: Sequence[str] | None = None,
    ts_range: TsRange | None = None,
) -> pd.DataFrame:
    """Count rows per ``strategy`` and ``target_partition``, for :func:`ticdc_lab.figures.load`."""
    shown = _shown(what_if, partitions, more)
    if not shown:
        return pd.DataFrame(columns=list(_PLACED))
    chosen: Any = {"partitions": partitions, "tables": tables, "ts_range": ts_range}
    rows = [what_if.load(strategy=strategy, **chosen).sum(axis=0) for strategy in shown.values()]
    target, words = np.tile(np.arange(partitions), len(shown)), np.repeat(list(shown), partitions)
    return pd.DataFrame({"strategy": words, "target_partition": target, "rows": np.concatenate(rows)})


def skew_frame(
    what_if: WhatIf, *, tables: Sequence[str] | None = None, ts_range: TsRange | None = None
) -> pd.DataFrame:
    """Unevenness over 1 to 128 partitions, for :func:`ticdc_lab.figures.load`.

    Strategies that cannot place every row are left out: a curve of the rows they can place would flatter them.
    """
    able = [s for s in what_if.candidates if not what_if.failed(strategy=s)[0]]
    return what_if.skew_curve(able, tables=tables, ts_range=ts_range)


def over_time(
    what_if: WhatIf,
    *,
    strategy: Choice,
    partitions: int,
    weight: str = "rows",
    tables: Sequence[str] | None = None,
    ts_range: TsRange | None = None,
) -> OverTime:
    """Load, violations and alignments of one choice, for :func:`ticdc_lab.figures.load`."""
    chosen: Any = {"tables": tables, "ts_range": ts_range}
    load = what_if.load(strategy=strategy, partitions=partitions, weight=weight, **chosen)
    broken = what_if.broken(strategy=strategy, partitions=partitions, **chosen)
    by = dict.fromkeys(what_if.tables, strategy) if isinstance(strategy, str) else strategy
    aligned = [t for t in what_if.tables if by.get(t) == CONFLICT and (tables is None or t in tables)]
    alignments = np.zeros(len(load), dtype=np.int64)
    if aligned:
        alignments = what_if.alignments(partitions=partitions, tables=aligned, ts_range=ts_range)
    unplaced = what_if.unplaced(strategy=strategy, **chosen)
    seconds = what_if.seconds(ts_range)
    begin_ms = what_if.span_ms[0] + 1000 * seconds - what_if.width_ms / 2
    stretches = tuple((round(ms), round(ms + what_if.width_ms)) for ms in begin_ms)
    return OverTime(load, seconds, broken, alignments, unplaced, stretches)


def first_violation(
    what_if: WhatIf,
    *,
    strategy: Choice,
    partitions: int,
    tables: Sequence[str] | None = None,
    ts_range: TsRange | None = None,
) -> dict[str, Any] | None:
    """The first violation of a strategy, of row order before table order before transactions, or None.

    Returns
    -------
    dict or None
        For :func:`ticdc_lab.figures.findings`; its partitions are those the strategy would choose.
    """
    found = what_if.guarantees(strategy=strategy, partitions=partitions, tables=tables, ts_range=ts_range)
    for guarantee in MEASURED if len(found) else ():
        hit = found[(found["guarantee"] == guarantee) & found["table"].notna() & (found["violations"] > 0)]
        if len(hit):
            row = hit.iloc[0].to_dict()
            by = strategy if isinstance(strategy, str) else strategy.get(row["table"], "table")
            return _finding(row, strategy=by, partitions=partitions)
    return None


def _finding(row: dict[str, Any], *, strategy: str, partitions: int) -> dict[str, Any]:
    before, after = row["counterexample"]
    told = f"{strategy} with {partitions} partitions breaks {_WORDS[row['guarantee']]}"
    evidence = [
        {
            "partition": e["target_partition"],
            "offset": e["offset"],
            "commit_ts": e["commit_ts"],
            "text": f"recorded in {e['partition']} at {e['offset']}",
            "recorded_partition": e["partition"],
        }
        for e in (before, after)
    ]
    key = after["key"] if row["guarantee"] == "row_order" else None
    return {"guarantee": row["guarantee"], "table": row["table"], "key": key, "message": told, "evidence": evidence}
