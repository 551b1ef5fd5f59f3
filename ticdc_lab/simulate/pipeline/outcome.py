"""What came downstream against what was committed upstream: lost, repeated, overwritten by older versions; the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ticdc_lab.simulate.pipeline.downstream import Rows
from ticdc_lab.simulate.pipeline.run import PipelineRun
from ticdc_lab.simulate.pipeline.tables import Cell, Change

State = dict[int, tuple[Cell, ...]]


class RunOutcome(NamedTuple):
    """How a run ended downstream."""

    # Row changes up to the global checkpoint, and deliveries of any.
    committed: int
    delivered: int
    lost: int  # of those committed, never delivered
    repeated: int  # deliveries beyond the first
    regressed: int  # deliveries of a version that is older than what the row already had
    # Each delivery replaces the row (upsert, delete): the rows at the checkpoint are those of the upstream.
    final_right_idempotent: bool
    # Each delivery adds what it changed to a sum (a balance, a counter): the sums are those of the upstream.
    final_right_blind: bool

    def __str__(self) -> str:
        right = "right" if self.final_right_idempotent else "wrong"
        sums = "right" if self.final_right_blind else "wrong"
        return f"up to the checkpoint: {self.lost} rows lost; rows replaced are {right}, sums are {sums}"


def outcome(run: PipelineRun) -> RunOutcome:
    """Compare a run's downstream with its upstream, up to the global checkpoint."""
    delivered = [c for e in run.entries if isinstance(e, Rows) for c in e.changes]
    return compared(run.changes, delivered, run.checkpoint_ts)


def compared(truth: Iterable[Change], delivered: Iterable[Change], checkpoint_ts: int) -> RunOutcome:
    """Compare what was committed (in commit order) with what came (in its order of arrival)."""
    owed = [c for c in truth if c.commit_ts <= checkpoint_ts]
    came = list(delivered)
    counts = Counter((c.commit_ts, c.key) for c in came)
    settled = [c for c in came if c.commit_ts <= checkpoint_ts]
    return RunOutcome(
        len(owed),
        len(came),
        sum((c.commit_ts, c.key) not in counts for c in owed),
        sum(n - 1 for n in counts.values()),
        _regressed(came),
        _replaced(owed) == _replaced(settled),
        _summed(owed) == _summed(settled),
    )


def _regressed(changes: Iterable[Change]) -> int:
    newest: dict[int, int] = {}
    n = 0
    for change in changes:
        known = newest.get(change.key, 0)
        n += change.commit_ts < known
        newest[change.key] = max(known, change.commit_ts)
    return n


def _replaced(changes: Iterable[Change]) -> State:
    rows: State = {}
    for change in changes:
        if change.after is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.after
    return rows


def _summed(changes: Iterable[Change]) -> Counter[int]:
    """Per table: rows, and what numbers that are no key changed by, all added up."""
    sums: Counter[int] = Counter()
    for change in changes:
        sums[change.info.id] += _weight(change, change.after) - _weight(change, change.before)
    return sums


def _weight(change: Change, image: tuple[Cell, ...] | None) -> int:
    if image is None:
        return 0
    numbers = [c for c, column in zip(image, change.info.columns, strict=False) if not column.is_key]
    return 1_000_003 + sum(n for n in numbers if isinstance(n, int))
