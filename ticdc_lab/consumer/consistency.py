"""After which downstream transactions was the downstream a state that upstream once had, and by how much was a sum off?

A row is at version v until its next version w. Upstream showed it so from the commit_ts of v to just before w's.
The downstream as a whole is a state of upstream if and only if one timestamp lies in all these intervals, which is so
if the greatest v is below the least w. Both come with the row change that makes it so: two messages show the error.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import Bools, Ints, changes_in, lasts_in
from ticdc_lab.events.changes import OP_RANK

NEVER = np.iinfo(np.int64).max
"""A version number above all: there is no next one."""

_RANKS = 4


@dataclass(frozen=True, eq=False, slots=True)
class RecordTouches:
    """What each record of a run (see ``DELIVERIES``) means for rows: an update of a key concerns two.

    A version is ``commit_ts * 4 + op_rank``: TiCDC's order of the changes of a row. Rows without a key are not in it.

    Attributes
    ----------
    record
        Place of the record in the run's deliveries.
    row
        Number of the row, from 0.
    version
        Which version of the row it makes.
    leaves
        Whether the row is there then: not after a delete, nor, under its old key, after an update of the key.
    next_version
        The version after it, of any record of the run; :data:`NEVER` if it is the last.
    makers
        For each version of each row, in their order, the first touch that makes it.
    first_versions
        For each row its first version.
    rows
        Number of rows.
    """

    record: Ints
    row: Ints
    version: Ints
    leaves: Bools
    next_version: Ints
    makers: Ints
    first_versions: Ints
    rows: int

    @classmethod
    def of(cls, deliveries: pa.Table) -> RecordTouches:
        """Read the records of a run."""
        key, before = (deliveries[c].combine_chunks() for c in ("key_hash", "before_key_hash"))
        number = pc.add(pc.multiply(deliveries["commit_ts"], _RANKS), deliveries["op_rank"]).to_numpy()
        has, moves = key.is_valid().to_numpy(False), before.is_valid().to_numpy(False)
        places = np.arange(len(deliveries))
        record = np.concatenate([places[has], places[moves]])
        hashes = np.concatenate([pc.fill_null(k, 0).to_numpy()[w] for k, w in ((key, has), (before, moves))])
        names, row = np.unique(hashes, return_inverse=True)
        version = number[record]
        leaves = np.concatenate(
            [deliveries["op_rank"].to_numpy()[has] != OP_RANK["delete"], np.zeros(moves.sum(), np.bool_)]
        )
        following, makers, first = _following(row, version, len(names))
        return cls(record, row, version, leaves, following, makers, first, len(names))

    def after_each_batch(self, deliveries: pa.Table) -> tuple[Ints, Ints]:
        """The touches that are seen: of those that one downstream transaction writes of a row, the last.

        Returns
        -------
        touches, batch
            Places in the attributes above, by batch and row, and their batch.
        """
        batch = pc.fill_null(deliveries["batch"], -1).to_numpy()[self.record]
        order = pc.fill_null(deliveries["apply_order"], -1).to_numpy()[self.record]
        applied = np.flatnonzero(batch >= 0)
        # of two changes of a row in one downstream transaction, the one written last stays
        ranked = applied[np.lexsort((order[applied], self.row[applied], batch[applied]))]
        last = lasts_in(batch[ranked], self.row[ranked])
        return ranked[last], batch[ranked[last]]


def _following(row: Ints, version: Ints, rows: int) -> tuple[Ints, Ints, Ints]:
    """The next version of each touch, the first touch of each version, and each row's first version."""
    order = np.lexsort((version, row))
    own, of = version[order], row[order]
    new = changes_in(own, of)
    each, each_row = own[new], of[new]
    after = np.full(len(each), NEVER)
    same = each_row[1:] == each_row[:-1]
    after[:-1][same] = each[1:][same]
    following = np.empty(len(order), np.int64)
    following[order] = after[np.cumsum(new) - 1]
    first = np.full(rows, NEVER)
    np.minimum.at(first, each_row, each)
    return following, order[new], first


def commit_ts_of(version: Ints) -> Ints:
    """The commit_ts of versions; :data:`NEVER` stays above all."""
    return np.where(version == NEVER, NEVER, version // _RANKS)


STATES = pa.schema(
    [
        pa.field("batch", pa.int64(), metadata={"comment": "number of the downstream transaction"}),
        pa.field("at_us", pa.int64(), metadata={"comment": "from when the state is seen, µs of consumer time"}),
        pa.field("until_us", pa.int64(), metadata={"comment": "until when; the run's end for the last"}),
        pa.field("ahead_ts", pa.int64(), metadata={"comment": "TSO: the newest change that is seen"}),
        pa.field("behind_ts", pa.int64(), metadata={"comment": "TSO: the oldest change that is not; null if none"}),
        pa.field("existed", pa.bool_(), metadata={"comment": "upstream once was so: ahead_ts < behind_ts"}),
        pa.field("ahead", pa.int64(), metadata={"comment": "place among the run's changes of the newest one"}),
        pa.field("behind", pa.int64(), metadata={"comment": "the same of the oldest that is not seen; null if none"}),
    ]
)


def states(run: ConsumerRun) -> pa.Table:
    """Judge the downstream after each of its transactions.

    Parameters
    ----------
    run
        Of :func:`ticdc_lab.consumer.model.run`. What upstream had is taken from the log itself: all its row changes,
        those that the consumer dropped or never came to included. Rows without a key do not count, and what DDL does to
        rows (TRUNCATE, DROP, RENAME) is not followed.

    Returns
    -------
    pa.Table
        :data:`STATES`, one row for each downstream transaction that wrote rows with a key.
    """
    touches = RecordTouches.of(run.changes)
    return _states(run, touches, *touches.after_each_batch(run.changes))


def _states(run: ConsumerRun, touches: RecordTouches, seen: Ints, batch: Ints) -> pa.Table:
    ends = np.flatnonzero(lasts_in(batch))
    ahead, ahead_at, behind, behind_at = _judged(touches, seen, ends)
    at = run.changes["applied_at"].take(touches.record[seen[ends]]).to_numpy()
    at = np.maximum.accumulate(at) if len(at) else at
    ahead_ts, behind_ts = commit_ts_of(ahead), commit_ts_of(behind)
    columns = [
        batch[ends], at, np.append(at[1:], run.end_us) if len(at) else at, ahead_ts,
        pa.array(behind_ts, mask=behind == NEVER), ahead_ts < behind_ts, ahead_at,
        pa.array(behind_at, mask=behind == NEVER),
    ]  # fmt: skip
    return pa.table([pa.array(c) for c in columns], schema=STATES)


def _judged(touches: RecordTouches, seen: Ints, ends: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """After each batch: the greatest version seen and its record, the least one not seen and its record.

    Both stand first in a heap of what was seen or missing, from which what no longer holds is taken as it comes up.
    """
    row, version, record = touches.row[seen], touches.version[seen], touches.record[seen]
    rows = np.arange(touches.rows)
    # a row without anything seen misses its first version
    lacks = (np.concatenate([touches.next_version[seen], touches.first_versions]), np.concatenate([row, rows]))
    since = np.concatenate([version, np.full(touches.rows, -1)])
    by_newest, by_missing = np.lexsort((record, row, -version)), np.lexsort((since, lacks[1], lacks[0]))
    newest: list[int] = []
    # heaps of places in these orders: small numbers are compared sooner than tuples
    to_newest, to_missing = _inverse(by_newest).tolist(), _inverse(by_missing).tolist()
    missing = sorted(to_missing[len(seen) :])
    now, lacking = [-1] * touches.rows, lacks[0][len(seen) :].tolist()
    of_newest = [c[by_newest].tolist() for c in (row, version)]
    of_missing = [c[by_missing].tolist() for c in (lacks[1], lacks[0])]
    changed, to, then = row.tolist(), version.tolist(), lacks[0].tolist()
    tops, at = [], 0
    for end in ends.tolist():
        for i in range(at, end + 1):
            now[changed[i]], lacking[changed[i]] = to[i], then[i]
            heapq.heappush(newest, to_newest[i])
            heapq.heappush(missing, to_missing[i])
        at = end + 1
        while now[of_newest[0][newest[0]]] != of_newest[1][newest[0]]:
            heapq.heappop(newest)
        while lacking[of_missing[0][missing[0]]] != of_missing[1][missing[0]]:
            heapq.heappop(missing)
        tops.append((newest[0], missing[0]))
    first = np.array(tops, np.int64).reshape(-1, 2)
    top, low = by_newest[first[:, 0]], by_missing[first[:, 1]]
    least, its_row = lacks[0][low], lacks[1][low]
    return version[top], record[top], least, _maker(touches, its_row, least)


def _inverse(order: Ints) -> Ints:
    """The place of each element in an order."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _maker(touches: RecordTouches, row: Ints, version: Ints) -> Ints:
    """The record of the first touch that makes a version of a row; -1 where none does."""
    names, number = np.unique(np.concatenate([touches.version[touches.makers], version]), return_inverse=True)
    of, wanted = number[: len(touches.makers)], number[len(touches.makers) :]
    known = touches.row[touches.makers] * len(names) + of
    asked = row * len(names) + wanted
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[at] == asked, touches.record[touches.makers][at], -1)


def wrong_time(found: pa.Table) -> tuple[int, int]:
    """Of :func:`states`: how many states upstream never had, and for how long they were seen together, µs."""
    wrong = found.filter(pc.invert(found["existed"]))
    lasted = pc.sum(pc.subtract(wrong["until_us"], wrong["at_us"])).as_py()
    return len(wrong), int(lasted or 0)


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
    found = _states(run, touches, seen, batch)
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
    level = np.log2(high - low + 1).astype(int)
    out = np.empty((2, len(low)), np.int64)
    for k in np.unique(level):
        own = level == k
        first, second = low[own], high[own] - (1 << k) + 1
        out[0, own] = np.minimum(least[k][first], least[k][second])
        out[1, own] = np.maximum(most[k][first], most[k][second])
    return out[0], out[1]
