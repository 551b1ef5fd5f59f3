"""Rows as sequences of versions: which upstream had, and which the downstream shows after each of its transactions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
