"""Which rows have a change that does not plainly follow the one before it: one pass over changes as they come."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel.jit import kernel, small_kernel
from ticdc_lab.codecs.kernel.pointer import Arrays

ROW, PLACE, TS, OFFSET, AFTER, SEQ_RANK = range(6)
_LAST = 6
"""What is kept of each row's last change, and how many numbers these are."""
ABSENT, UNKNOWN = 0, 2
"""In place of the hash of an image (:mod:`ticdc_lab.audit.history`)."""
_MIX, _HIGH, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(20), np.uint64(1)


class ChangesInTurn(Arrays):
    """Columns of changes; ``has_*`` is Arrow's bitmap, empty where all are there; ``odd``: what else speaks against it.

    ``before`` and ``after`` are hashes.
    """

    row_id: np.ndarray
    place: np.ndarray
    commit_ts: np.ndarray
    offset: np.ndarray
    seq_flags: np.ndarray
    before: np.ndarray
    has_before: np.ndarray
    after: np.ndarray
    has_after: np.ndarray
    odd: np.ndarray


class RowsSoFar(Arrays):
    """A hash table of rows: ``slot`` leads to the ``last`` change of each, and whether the row is ``odd``.

    By flags of a change: its ``rank``, and of either image whether its hash ``holds`` and what it is ``otherwise``.
    """

    slot: np.ndarray
    last: np.ndarray
    odd: np.ndarray
    rank: np.ndarray
    holds: np.ndarray
    otherwise: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, n: int, rank: np.ndarray, holds: np.ndarray, otherwise: np.ndarray) -> RowsSoFar:
        """An empty table with room for so many rows."""
        return cls(
            slot=np.full(1 << (2 * n + 1).bit_length(), -1, np.int32), last=np.empty((n, _LAST), np.int64),
            odd=np.empty(n, np.uint8), rank=rank, holds=holds, otherwise=otherwise, count=np.zeros(2, np.int64),
        )  # fmt: skip


@small_kernel
def _slot_of(row: int, x: RowsSoFar) -> int:
    mask = np.uint64(len(x.slot) - 1)
    at = np.uint64(row) * _MIX >> _HIGH
    while True:
        slot = np.int64(at & mask)
        if x.slot[slot] < 0 or x.last[x.slot[slot], ROW] == row:
            return slot
        at += _ONE


@small_kernel
def _is_there(bits: np.ndarray, i: int) -> bool:
    return len(bits) == 0 or bits[i >> 3] >> (i & 7) & 1 != 0


@kernel
def follow(c: ChangesInTurn, x: RowsSoFar, part: int, parts: int) -> int:
    """Take changes of every so-many-th row into account; how many rows are odd so far, -1: there are too many rows."""
    for i in range(len(c.row_id)):
        row = c.row_id[i]
        if parts > 1 and np.int64(np.uint64(row) % np.uint64(parts)) != part:
            continue
        flags, seq = c.seq_flags[i] & 255, c.seq_flags[i] >> 8
        rank, place, ts, offset = x.rank[flags], c.place[i], c.commit_ts[i], c.offset[i]
        found = c.before[i] if x.holds[0, flags] and _is_there(c.has_before, i) else x.otherwise[0, flags]
        slot = _slot_of(row, x)
        at = np.int64(x.slot[slot])
        odd = c.odd[i] != 0
        if at < 0:
            at = x.count[0]
            if at >= len(x.last):
                return -1
            x.slot[slot], x.count[0], x.odd[at] = at, at + 1, 0
            x.last[at, ROW], x.last[at, PLACE] = row, place
        else:
            was_ts, was_offset, left = x.last[at, TS], x.last[at, OFFSET], x.last[at, AFTER]
            was_seq, was_rank = x.last[at, SEQ_RANK] >> 8, x.last[at, SEQ_RANK] & 255
            odd |= x.last[at, PLACE] != place
            odd |= was_ts > ts or (was_ts == ts and was_rank >= rank)
            odd |= was_offset > offset or (was_offset == offset and was_seq >= seq)
            odd |= left == ABSENT and found != ABSENT and found != UNKNOWN
            odd |= left != ABSENT and found == ABSENT
            odd |= left != found and left >> 32 != 0 and left >> 32 == found >> 32
        x.last[at, TS], x.last[at, OFFSET], x.last[at, SEQ_RANK] = ts, offset, seq << 8 | rank
        x.last[at, AFTER] = c.after[i] if x.holds[1, flags] and _is_there(c.has_after, i) else x.otherwise[1, flags]
        if odd and not x.odd[at]:
            x.odd[at] = 1
            x.count[1] += 1
    return x.count[1]


@kernel
def mark_odd(row_id: np.ndarray, x: RowsSoFar, part: int, parts: int, odd: np.ndarray) -> int:
    """Mark the changes of odd rows among every so-many-th."""
    n = 0
    for i in range(len(row_id)):
        if parts == 1 or np.int64(np.uint64(row_id[i]) % np.uint64(parts)) == part:
            odd[i] = x.odd[x.slot[_slot_of(row_id[i], x)]]
            n += odd[i]
    return n


def compile_all() -> None:
    """Run the kernels over nothing."""
    none, no = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    c = ChangesInTurn(
        row_id=none, place=none, commit_ts=none, offset=none, seq_flags=none, before=none, has_before=no, after=none,
        has_after=no, odd=no,
    )  # fmt: skip
    x = RowsSoFar.of(0, none, np.zeros((2, 0), np.uint8), np.zeros((2, 0), np.int64))
    follow(c, x, 0, 1)
    mark_odd(none, x, 0, 1, no)
