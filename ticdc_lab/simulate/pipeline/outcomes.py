"""What became of the rows of a run: lost, repeated, overwritten by older ones, and whether the end is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from ticdc_lab.simulate.pipeline.downstream import Entry, Rows
from ticdc_lab.simulate.pipeline.tables import Change


class Outcome(NamedTuple):
    """Row changes, by comparison of what was committed and what came downstream.

    Attributes
    ----------
    lost
        Committed and never delivered.
    repeated
        Deliveries beyond the first.
    overwritten
        Of these, those that put an older image of a row over a newer one, until that came again.
    final_right
        Whether the rows downstream, each delivery applied as an upsert or a delete of its key, end as they do upstream.
    """

    lost: int
    repeated: int
    overwritten: int
    final_right: bool


def outcome(changes: Iterable[Change], entries: Iterable[Entry]) -> Outcome:
    """Compare what was committed upstream (``Run.changes``) and what came (``Run.entries``)."""
    upstream: dict[int, Any] = {}
    owed: set[tuple[int, int]] = set()
    for change in changes:
        owed.add((change.commit_ts, change.key))
        upstream[change.key] = change.after
    downstream: dict[int, Any] = {}
    newest: dict[int, int] = {}
    came: set[tuple[int, int]] = set()
    n = overwritten = 0
    for change in (c for entry in entries if isinstance(entry, Rows) for c in entry.changes):
        n += 1
        came.add((change.commit_ts, change.key))
        overwritten += change.commit_ts < newest.get(change.key, 0)
        newest[change.key] = change.commit_ts
        downstream[change.key] = change.after
    return Outcome(len(owed - came), n - len(came), overwritten, _rows(downstream) == _rows(upstream))


def cases(runs: Mapping[tuple[str, str], Any]) -> pd.DataFrame:
    """Compare runs.

    Parameters
    ----------
    runs
        (semantics, fault) to :class:`ticdc_lab.simulate.pipeline.run.Run`.

    Returns
    -------
    pd.DataFrame
        ``semantics``, ``fault`` and the fields of :class:`Outcome`, as
        :func:`ticdc_lab.figures.semantics_matrix` draws them.
    """
    rows: Sequence[tuple[Any, ...]] = [(*pair, *outcome(run.changes, run.entries)) for pair, run in runs.items()]
    return pd.DataFrame(rows, columns=["semantics", "fault", *Outcome._fields])


def _rows(state: Mapping[int, Any]) -> dict[int, Any]:
    return {key: after for key, after in state.items() if after is not None}
