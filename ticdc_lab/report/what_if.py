"""What another dispatcher would do, as figures that answer without a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ticdc_lab import figures
from ticdc_lab.catalog import Catalog, catalog_of
from ticdc_lab.change_log import ChangeLog
from ticdc_lab.comparison import first_violation, guarantee_frame, over_time, placement, skew_frame
from ticdc_lab.dispatch.sweep_kernel import MOST
from ticdc_lab.dispatch.whatif import CONFLICT_AT, WhatIf
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.figures.figure import Figure
from ticdc_lab.report.page import plain

PARTITIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
"""The choices of the sliders."""


@dataclass(frozen=True, slots=True)
class Studies:
    """The answer in a sentence, what cannot be proved, and the figures."""

    answer: str
    limits: Sequence[str]
    figures: Sequence[Figure]


def study(log: ChangeLog) -> Studies:
    """Compare the strategies on a log, at all of :data:`PARTITIONS`; three Spark jobs, see :class:`WhatIf`."""
    if not log.has_commit_ts:
        return Studies("It cannot be measured on this log, because nothing orders its changes.", log.limits, ())
    catalog, limits = _catalog(log)
    recorded = log.events.agg({"partition": "max"}).first()
    partitions = 1 + (recorded[0] if recorded is not None and recorded[0] is not None else 0)
    chosen = min(partitions, MOST)
    if chosen < partitions:
        limits = [*limits, f"The log has {partitions:,} partitions; dispatchers are compared with up to {MOST}."]
    what_if = WhatIf.from_events(log.events, catalog, conflict_at=sorted({*CONFLICT_AT, chosen}))
    return compare(what_if, partitions=chosen, limits=limits)


def compare(what_if: WhatIf, *, partitions: int, limits: Sequence[str] = ()) -> Studies:
    """Draw the what-if of a log that was recorded with so many partitions; no Spark job."""
    said = [*limits, *([what_if.note] if what_if.note else [])]
    if not what_if.tables:
        return Studies("The log holds no row change, so nothing can be dispatched.", said, ())
    counts = sorted({*PARTITIONS, partitions})
    matrices = {str(n): figures.guarantee_matrix(guarantee_frame(what_if, partitions=n), partitions=n) for n in counts}
    rows = {str(n): figures.partition_rows(placement(what_if, partitions=n)) for n in counts}
    over = {s: _over_time(what_if, s, [n for n in counts if s in what_if.candidates_at(n)]) for s in what_if.candidates}
    over = {s: steps for s, steps in over.items() if steps}
    drawn = [
        figures.stepped(matrices, prefix="partitions: ", start=str(partitions)),
        *_example(what_if, partitions),
        figures.skew_curves(skew_frame(what_if), chosen=partitions),
        figures.stepped(rows, prefix="partitions: ", start=str(partitions)),
        figures.stepped_by(over, prefix="partitions: ", start=str(partitions)),
    ]
    for name in what_if.candidates:
        n, why = what_if.failed(strategy=name)
        said += [f"{name} cannot place {n:,} of the rows, which are in none of its figures: {why}"] if n else []
    for name, tables in what_if.together.items():
        said += [
            f"{name[1:-1]} are counted together, and their own unique indexes are not measured: {_some_of(tables)}"
        ]
    return Studies(f"{plain(matrices[str(partitions)])}.", said, drawn)


def _some_of(names: Sequence[str], *, most: int = 8) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _over_time(what_if: WhatIf, strategy: str, counts: Sequence[int]) -> dict[str, Figure]:
    """Load, breaks and alignments of a strategy for each number of partitions; nothing where it places no row."""
    each = {n: over_time(what_if, strategy=strategy, partitions=n) for n in counts}
    return {str(n): figures.dispatch_over_time(o, strategy=strategy) for n, o in each.items() if o.load.sum()}


def _example(what_if: WhatIf, partitions: int) -> list[Figure]:
    """One counterexample, of the first strategy that breaks the order of a row."""
    at = max(2, partitions)
    found = (first_violation(what_if, strategy=s, partitions=at) for s in ("index-value", "ts"))
    return [figures.counterexample(f) for f in found if f is not None][:1]


def _catalog(log: ChangeLog) -> tuple[Catalog | None, list[str]]:
    try:
        return catalog_of(log.events), []
    except TiCDCLabError as e:
        return None, [f"Table definitions could not be read from the log: {e.message}"]
