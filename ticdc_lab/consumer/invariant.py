"""A sum over all rows while a consumer works: what the downstream shows, beside what upstream ever was.

A bank's transfers keep the total balance. Downstream, too, it must never be another number; a consumer that shows
half a transaction shows it wrong.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab.consumer.consistency import RecordTouches, commit_ts_of, states
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import Ints

MEASURE = "measure"
_DIGITS = 6
_SCALE = 10**_DIGITS


def measure_of(column: str, *, tables: Collection[str] = ()) -> Column:
    """The value that a row change gives its row, for :func:`ticdc_lab.consumer.log.narrow`.

    Parameters
    ----------
    column
        Name of a numeric column; rows without it, and NULL, count 0.
    tables
        ``schema.table`` of the tables that count; all where empty.

    Returns
    -------
    Column
        bigint: millionths, so that sums are exact; what is finer is rounded.
    """
    value = F.get(F.filter("columns", lambda c: c["name"] == column), 0)["value"]
    number = (value.cast(f"decimal(32,{_DIGITS})") * _SCALE).cast("bigint")
    if tables:
        number = F.when(F.concat_ws(".", "schema_name", "table_name").isin(*sorted(tables)), number)
    return F.coalesce(number, F.lit(0).cast("bigint"))


def invariant_curve(run: ConsumerRun, log: NarrowLog, *, label: str = "") -> pd.DataFrame:
    """Follow the sum of a measure over all rows, through the downstream's transactions.

    Parameters
    ----------
    run, log
        A run over a log whose events have the column ``measure`` (:func:`measure_of`). Rows without a key do not count,
        and what DDL does to rows is not followed.
    label
        Written into every row, for figures of several runs.

    Returns
    -------
    pd.DataFrame
        ``at_us``, ``until_us`` (µs of consumer time that the value is seen), ``value``, ``expected_low``,
        ``expected_high`` (what upstream's sum was between the newest change that is seen and the oldest that is not;
        both equal ``value`` where the state once existed), ``batch``, ``label``.

    Raises
    ------
    ContractError
        The log's events have no ``measure``.
    """
    if MEASURE not in log.events.column_names:
        raise ContractError(
            f"The log's events have no column `{MEASURE}`, so there is nothing to sum.",
            hint=f"Make it with excerpt(events, {MEASURE}=measure_of(column)), or Study.of with the same.",
        )
    touches = RecordTouches.of(run.changes)
    seen, batch = touches.after_each_batch(run.changes)
    value = np.where(touches.leaves, log.events[MEASURE].to_numpy()[run.places][touches.record], 0)
    found = states(run)
    shown = np.searchsorted(found["batch"].to_numpy(), batch)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, shown, _gains(touches.row[seen], value[seen], np.arange(len(seen))))
    when, total = _upstream(touches, value)
    behind = pc.fill_null(found["behind_ts"], np.iinfo(np.int64).max).to_numpy() - 1
    ahead = found["ahead_ts"].to_numpy()
    low = np.searchsorted(when, np.minimum(ahead, behind), side="right")
    high = np.searchsorted(when, np.maximum(ahead, np.minimum(behind, ahead)), side="right")
    least, most = _extremes(np.concatenate([[0], total]), low, high)
    times = {c: found[c].to_numpy() for c in ("at_us", "until_us")}
    return pd.DataFrame(
        {
            **times,
            "value": np.cumsum(sums) / _SCALE,
            "expected_low": least / _SCALE,
            "expected_high": most / _SCALE,
            "batch": found["batch"].to_numpy(),
            "label": label,
        }
    )


def _gains(row: Ints, value: Ints, order: Ints) -> Ints:
    """How much each change of a row adds to the sum, in the given order of a row's changes."""
    by_row = np.lexsort((order, row))
    own, of = value[by_row], row[by_row]
    before = np.concatenate([[0], np.where(of[1:] == of[:-1], own[:-1], 0)]) if len(own) else own
    gain = np.empty(len(own), np.int64)
    gain[by_row] = own - before
    return gain


def _upstream(touches: RecordTouches, value: Ints) -> tuple[Ints, Ints]:
    """Upstream's sum from each commit_ts on."""
    first = touches.makers
    ts = commit_ts_of(touches.version[first])
    when, number = np.unique(ts, return_inverse=True)
    total = np.zeros(len(when), np.int64)
    np.add.at(total, number, _gains(touches.row[first], value[first], touches.version[first]))
    return when, np.cumsum(total)


def _extremes(values: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Least and greatest of ``values[low..high]``, both ends included, by doubled windows."""
    least, most = [values], [values]
    while 2 << (len(least) - 1) <= len(values):
        step = 1 << (len(least) - 1)
        least.append(np.minimum(least[-1][:-step], least[-1][step:]))
        most.append(np.maximum(most[-1][:-step], most[-1][step:]))
    level = np.log2(high - low + 1).astype(int) if len(low) else np.empty(0, int)
    second = high - (1 << level) + 1
    out = [
        [pick(windows[k][a], windows[k][b]) for k, a, b in zip(level, low, second, strict=True)]
        for windows, pick in ((least, min), (most, max))
    ]
    return np.array(out[0], np.int64), np.array(out[1], np.int64)
