"""The sorter of a table: rows come in any order and go out by commit_ts, once everything before them is known.

Memory is bounded: what is more goes to disk as a sorted run, and comes back merged.
"""

from __future__ import annotations

from bisect import bisect_left

from ticdc_lab.simulate.pipeline.capture.path_state import Row, Run, Sorter


def added(sorter: Sorter, rows: list[Row], memory_rows: int) -> Sorter:
    """Take rows; if memory is full, what it holds becomes a run on disk."""
    if not rows:
        return sorter
    fresh, new = sorter.fresh, tuple(rows)
    while fresh and len(fresh[-1]) <= 2 * len(new):
        fresh, new = fresh[:-1], fresh[-1] + new
    sorter = sorter._replace(fresh=(*fresh, new), n_fresh=sorter.n_fresh + len(rows))
    return _spilled(sorter) if in_memory(sorter) > memory_rows else sorter


def in_memory(sorter: Sorter) -> int:
    """Count the rows in memory."""
    return len(sorter.memory.rows) - sorter.memory.at + sorter.n_fresh


def on_disk(sorter: Sorter) -> int:
    """Count the rows on disk."""
    return sum(len(run.rows) - run.at for run in sorter.runs)


def _spilled(sorter: Sorter) -> Sorter:
    sorter = _sorted(sorter)
    rows = sorter.memory.rows
    return sorter._replace(memory=Run(), runs=(*sorter.runs, Run(rows)), spilled=sorter.spilled + len(rows))


def _sorted(sorter: Sorter) -> Sorter:
    memory = sorter.memory
    rows = list(memory.rows[memory.at :])
    for batch in sorter.fresh:
        rows += batch
    rows.sort()
    return sorter._replace(memory=Run(tuple(rows)), fresh=(), n_fresh=0)


def taken(sorter: Sorter, upto_ts: int, room: int) -> tuple[Sorter, list[Row]]:
    """Take out the first rows up to ``upto_ts``, about ``room`` of them.

    Of each run no more than ``room`` rows can be among the first; those of the last one's commit_ts go with it, so that
    no transaction is torn.
    """
    if sorter.fresh:
        sorter = _sorted(sorter)
    if upto_ts <= sorter.drained_ts and not sorter.runs and not _is_due(sorter.memory, upto_ts):
        return sorter, []
    runs, bound = [sorter.memory, *sorter.runs], (upto_ts + 1,)
    ends = [bisect_left(run.rows, bound, run.at) for run in runs]
    found = _between(runs, [min(end, run.at + room) for run, end in zip(runs, ends, strict=True)])
    drained_ts = upto_ts
    if sum(end - run.at for run, end in zip(runs, ends, strict=True)) > room:
        last = found[room - 1]
        after = (last[0] + 1,)
        ends = [bisect_left(run.rows, after, run.at, end) for run, end in zip(runs, ends, strict=True)]
        found, drained_ts = _between(runs, ends), last[0]
    left = [Run(run.rows, end) if end < len(run.rows) else Run() for run, end in zip(runs, ends, strict=True)]
    return sorter._replace(
        memory=left[0],
        runs=tuple(run for run in left[1:] if run.rows),
        drained_ts=max(sorter.drained_ts, drained_ts),
    ), found


def _is_due(run: Run, upto_ts: int) -> bool:
    return run.at < len(run.rows) and run.rows[run.at][0] <= upto_ts


def _between(runs: list[Run], ends: list[int]) -> list[Row]:
    parts = [run.rows[run.at : end] for run, end in zip(runs, ends, strict=True) if end > run.at]
    found = list(parts[0]) if parts else []
    for part in parts[1:]:
        found += part
    if len(parts) > 1:
        found.sort()
    return found
