"""After which downstream transactions was the downstream a state that upstream once had?

A row is at version v until its next version w. Upstream showed it so from the commit_ts of v to just before that of w.
The downstream as a whole is a state of upstream if and only if one timestamp lies in all these intervals, which is so
if the greatest v is below the least w. Both come with the row change that makes it so: two messages show the error.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.events.arrays import Bools, Ints, changes_in, lasts_in

NEVER = np.iinfo(np.int64).max
"""A version number above all: there is no next one."""

_RANKS, _DELETE = 4, 0


@dataclass(frozen=True, eq=False, slots=True)
class RecordTouches:
    """What each record of a run (see ``DELIVERIES``) says of rows: an update of a key says something of two.

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
        leaves = np.concatenate([deliveries["op_rank"].to_numpy()[has] != _DELETE, np.zeros(moves.sum(), np.bool_)])
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
    seen, batch = touches.after_each_batch(run.changes)
    ends = np.flatnonzero(lasts_in(batch))
    judged = list(_judged(touches, seen, ends))
    at = run.changes["applied_at"].take(touches.record[seen[ends]]).to_numpy()
    at = np.maximum.accumulate(at) if len(at) else at
    ahead, ahead_at, behind, behind_at = (np.array(c, np.int64) for c in zip(*judged, strict=True)) if judged else [
        np.empty(0, np.int64)
    ] * 4  # fmt: skip
    ahead_ts, behind_ts = commit_ts_of(ahead), commit_ts_of(behind)
    columns = [
        batch[ends], at, np.append(at[1:], run.end_us) if len(at) else at, ahead_ts,
        pa.array(behind_ts, mask=behind == NEVER), ahead_ts < behind_ts, ahead_at,
        pa.array(behind_at, mask=behind == NEVER),
    ]  # fmt: skip
    return pa.table([pa.array(c) for c in columns], schema=STATES)


def _judged(touches: RecordTouches, seen: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """After each batch: the greatest version seen and its record, the least one not seen and its record."""
    now = [-1] * touches.rows
    made = (touches.row[touches.makers], touches.version[touches.makers], touches.record[touches.makers])
    makers = {(row, version): record for row, version, record in zip(*(c.tolist() for c in made), strict=True)}
    newest: list[tuple[int, int, int]] = []
    missing = [(v, r, -1) for r, v in enumerate(touches.first_versions.tolist())]
    heapq.heapify(missing)
    rows, versions = touches.row[seen].tolist(), touches.version[seen].tolist()
    after, records = touches.next_version[seen].tolist(), touches.record[seen].tolist()
    at = 0
    for end in ends.tolist():
        for i in range(at, end + 1):
            row, version = rows[i], versions[i]
            now[row] = version
            heapq.heappush(newest, (-version, row, records[i]))
            heapq.heappush(missing, (after[i], row, version))
        at = end + 1
        while now[newest[0][1]] != -newest[0][0]:
            heapq.heappop(newest)
        while now[missing[0][1]] != missing[0][2]:
            heapq.heappop(missing)
        least, row, _ = missing[0]
        yield -newest[0][0], newest[0][2], least, makers.get((row, least), -1)


def wrong_time(found: pa.Table) -> tuple[int, int]:
    """Of :func:`states`: how many states upstream never had, and for how long they were seen together, µs."""
    wrong = found.filter(pc.invert(found["existed"]))
    lasted = pc.sum(pc.subtract(wrong["until_us"], wrong["at_us"])).as_py()
    return len(wrong), int(lasted or 0)
