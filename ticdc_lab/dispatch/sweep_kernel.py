"""One pass over the changes of a table that measures every candidate at every partition count from 1 to 128.

A change goes to ``h mod N``. Two changes part exactly where N does not divide the difference of their hashes, and the
rows of a transaction part where N does not divide the greatest common divisor of their differences. So each case needs
one number for any N, and every N is a multiplication (Granlund and Montgomery's test of divisibility). Loads are
counted at N from 65 to 128 alone: each smaller N divides one of those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ticdc_lab.codecs.kernel.jit import kernel, part, small_kernel

MOST = 128
"""The largest partition count that is swept."""

FIRST = MOST // 2 + 1
CELLS = sum(range(FIRST, MOST + 1))
START = np.concatenate(([0], np.cumsum(np.arange(FIRST, MOST + 1)))).astype(np.int64)
"""Where the cells of each N from 65 on begin."""

MEASURES = (
    "row_order",
    "row_order_any_unique",
    "table_order",
    "transactions",
    "transactions_torn",
    "transactions_overtakable",
)
ROW, UNIQUE, TABLE, EITHER, TORN, OVERTAKABLE = range(6)

DONE, NO_KEYS, NO_EVIDENCE = 0, 1, 2
"""Why :func:`sweep` stopped: all changes are measured, or a map or the list of evidence is full."""

AT, RANK, EPOCH, CHANGES, KEYS, EVIDENCE, IN_GROUP, BUCKET, LAST, STAMP = range(10)
NOW = 10
"""What ``now`` holds between calls."""

PLACE = 4
"""Where a change was recorded, as numbers: partition, offset, seq, commit_ts."""

Array = npt.NDArray[Any]


class TableChanges(NamedTuple):
    """Changes of one table, sorted. ``counted`` is filled: 0 for a repeated delivery, which changes nothing else.

    ``aligned``: a candidate's numbers are packed (:func:`packed`), and belong to one partition count.
    ``own`` and ``old`` hold the hash of the row's key and of the one before where it changed, each with 1 where there
    is one; ``extra`` from ``extra_from`` on the hashes of its other unique values; ``hashes`` and ``known`` the
    number of every candidate.
    """

    commit_ts: Array
    bucket: Array
    rank: Array
    place: Array
    identity: Array
    own: Array
    old: Array
    extra_from: Array
    extra: Array
    in_catalog: Array
    hashes: Array
    known: Array
    aligned: Array
    counted: Array


class LastOfKeys(NamedTuple):
    """The last change of every key value (an open hash map; an entry counts if its epoch is the present one)."""

    keys: Array
    epochs: Array
    places: Array
    hashes: Array
    known: Array


class Ids(NamedTuple):
    """Changes of the transaction so far, by identity."""

    keys: Array
    epochs: Array


class LastChange(NamedTuple):
    """The last change of the table, and of its transaction under way: by slot the last that could be placed.

    ``torn`` and ``overtaken`` are greatest common divisors of differences, ``decided``: a row could be placed.
    """

    hashes: Array
    known: Array
    place: Array
    group_hashes: Array
    group_places: Array
    torn: Array
    overtaken: Array
    decided: Array
    here: Array


class Counters(NamedTuple):
    """Counts by measure (and slot), time bucket (and partition count): see :class:`ticdc_lab.dispatch.lanes.Lane`.

    ``left`` are the partition counts without evidence.
    """

    totals: Array
    cases: Array
    violations: Array
    first: Array
    left: Array
    evidence: Array


_INVERSE = np.zeros(MOST, dtype=np.uint64)
_SHIFT = np.zeros(MOST, dtype=np.uint64)
_LIMIT = np.zeros(MOST, dtype=np.uint64)
for _n in range(1, MOST + 1):
    _odd, _twos = _n, 0
    while _odd % 2 == 0:
        _odd, _twos = _odd // 2, _twos + 1
    _INVERSE[_n - 1] = pow(_odd, -1, 1 << 64)
    _SHIFT[_n - 1] = _twos
    _LIMIT[_n - 1] = ((1 << 64) - 1) // _n
_RECIPROCAL = 1.0 / np.arange(FIRST, MOST + 1)
_MIX = np.uint64(0x9E3779B97F4A7C15)
PACKED_BITS = 16
_BITS = np.uint64(PACKED_BITS)
_0, _1, _20, _63, _64 = np.uint64(0), np.uint64(1), np.uint64(20), np.uint64(63), np.uint64(64)


def packed(target: Array, alignment: Array) -> Array:
    """Number of a change whose partition is no function of one hash: its partition, and the barriers before it."""
    return (alignment.astype(np.uint64) << _BITS) | target.astype(np.uint64)


@small_kernel
def _parts(d: np.uint64, i: int) -> bool:
    """Whether N = i + 1 does not divide d."""
    x = d * _INVERSE[i]
    k = _SHIFT[i]
    return ((x >> k) | (x << ((_64 - k) & _63))) > _LIMIT[i]


@small_kernel
def _gcd(a: np.uint64, b: np.uint64) -> np.uint64:
    while b != _0:
        a, b = b, a % b
    return a


@small_kernel
def _apart(a: np.uint64, b: np.uint64) -> np.uint64:
    return a - b if a >= b else b - a


@small_kernel
def _distance(aligned: bool, a: np.uint64, b: np.uint64) -> np.uint64:
    """What N must divide for two changes not to part; after a barrier of theirs nothing parts them."""
    if aligned:
        return _1 if a != b and a >> _BITS == b >> _BITS else _0
    return _apart(a, b)


@part
def _violated(c: Counters, measure: int, slot: int, bucket: int, d: np.uint64, aligned: bool) -> None:
    if aligned:
        c.violations[measure, slot, bucket, 1] += 1
        return
    for i in range(MOST):
        c.violations[measure, slot, bucket, i] += _parts(d, i)


@part
def _witness(
    c: Counters, now: Array, measure: int, slot: int, bucket: int, made: int, d: np.uint64,
    before: Array, before_hash: np.uint64, after: Array, after_hash: np.uint64,
) -> int:  # fmt: skip
    """Keep the pair as evidence for every N that has none yet; ``made`` is its number if it has one, else -1."""
    if c.left[measure, slot, bucket] <= 0:
        return made
    for i in range(1, MOST):
        if c.first[measure, slot, bucket, i] < 0 and _parts(d, i):
            if made < 0:
                made = now[EVIDENCE]
                now[EVIDENCE] += 1
                for j in range(PLACE):
                    c.evidence[made, j] = before[j]
                    c.evidence[made, PLACE + j] = after[j]
                c.evidence[made, 2 * PLACE] = np.int64(before_hash)
                c.evidence[made, 2 * PLACE + 1] = np.int64(after_hash)
            c.first[measure, slot, bucket, i] = made
            c.left[measure, slot, bucket] -= 1
    return made


@small_kernel
def _find(keys: Array, epochs: Array, key: int, epoch: int) -> int:
    """Place of a key, or of the free place for it."""
    mask = np.uint64(len(keys) - 1)
    at = (np.uint64(key) * _MIX) >> _20
    while True:
        i = np.int64(at & mask)
        if epochs[i] != epoch or keys[i] == key:
            return i
        at += _1


@kernel
def moved(old: LastOfKeys, new: LastOfKeys, epoch: int) -> None:
    """Put what a full map holds into a larger one."""
    for i in range(len(old.keys)):
        if old.epochs[i] == epoch:
            j = _find(new.keys, new.epochs, old.keys[i], epoch)
            new.keys[j] = old.keys[i]
            new.epochs[j] = epoch
            for p in range(PLACE):
                new.places[j, p] = old.places[i, p]
            for s in range(old.hashes.shape[1]):
                new.hashes[j, s] = old.hashes[i, s]
                new.known[j, s] = old.known[i, s]


@kernel
def put(ids: Ids, values: Array, stamp: int) -> None:
    """Add values to a set."""
    for k in range(len(values)):
        i = _find(ids.keys, ids.epochs, values[k], stamp)
        ids.keys[i] = values[k]
        ids.epochs[i] = stamp


@kernel
def load(bucket: Array, size: Array, hashes: Array, known: Array, wide: Array, rows: Array, volume: Array) -> None:
    """Count changes and bytes of each slot at every N from 65 to 128, a run of equal hashes at once.

    ``rows`` and ``volume`` are (slots, buckets, cells); ``wide``: a slot's hashes have 64 bits.
    """
    for s in range(hashes.shape[1]):
        r = 0
        while r < len(bucket):
            if not known[r, s]:
                r += 1
                continue
            h, b, n_rows, n_bytes = hashes[r, s], bucket[r], 0, 0
            while r < len(bucket) and bucket[r] == b and hashes[r, s] == h and known[r, s]:
                n_rows += 1
                n_bytes += size[r]
                r += 1
            _spread(h, wide[s], n_rows, n_bytes, rows, volume, s, b)


@part
def _spread(h: np.uint64, wide: bool, n_rows: int, n_bytes: int, rows: Array, volume: Array, s: int, b: int) -> None:
    cell, whole = 0, np.int64(h)
    for n in range(FIRST, MOST + 1):
        if wide:
            m = np.int64(h % np.uint64(n))
        else:  # exact for 32 bits except one step
            m = whole - np.int64(np.float64(whole) * _RECIPROCAL[n - FIRST]) * n
            if m < 0:
                m += n
            elif m >= n:
                m -= n
        rows[s, b, cell + m] += n_rows
        volume[s, b, cell + m] += n_bytes
        cell += n


@kernel
def finish(now: Array, b4: LastChange, aligned: Array, c: Counters) -> None:
    """Count the transaction that is under way; to be called after the last change of a table too."""
    if now[IN_GROUP] == 0:
        return
    b = now[BUCKET]
    for m in (EITHER, TORN, OVERTAKABLE):
        c.totals[m, b] += 1
    for s in range(len(b4.torn)):
        torn, overtaken = b4.torn[s], b4.overtaken[s]
        if b4.decided[s]:
            for m in (EITHER, TORN, OVERTAKABLE):
                c.cases[m, s, b] += 1
            if torn != _0:
                _violated(c, TORN, s, b, torn, aligned[s])
            if overtaken != _0:
                _violated(c, OVERTAKABLE, s, b, overtaken, aligned[s])
            if torn != _0 or overtaken != _0:
                _violated(c, EITHER, s, b, _gcd(torn, overtaken), aligned[s])
        b4.decided[s] = 0
        b4.torn[s] = _0
        b4.overtaken[s] = _0
        b4.group_places[s, PLACE - 1] = -1
    now[IN_GROUP] = 0


@small_kernel
def _begin(now: Array, commit_ts: int, bucket: int) -> None:
    now[AT] = commit_ts
    now[BUCKET] = bucket
    now[IN_GROUP] = 1
    now[RANK] = -1


@small_kernel
def _is_repeat(ch: TableChanges, r: int, now: Array, ids: Ids) -> bool:
    """Whether the change was delivered before; rows of a transaction come by kind, so one kind is remembered."""
    if now[RANK] != ch.rank[r]:
        now[RANK] = ch.rank[r]
        now[STAMP] += 1
        now[CHANGES] = 0
    i = _find(ids.keys, ids.epochs, ch.identity[r], now[STAMP])
    if ids.epochs[i] == now[STAMP]:
        return True
    ids.keys[i] = ch.identity[r]
    ids.epochs[i] = now[STAMP]
    now[CHANGES] += 1
    return False


@part
def _after_table(ch: TableChanges, r: int, now: Array, b4: LastChange, c: Counters) -> None:
    """The pair with the change before it in the table."""
    b = ch.bucket[r]
    if now[LAST]:
        c.totals[TABLE, b] += 1
    for s in range(ch.hashes.shape[1]):
        if now[LAST] and ch.known[r, s] and b4.known[s]:
            c.cases[TABLE, s, b] += 1
            d = _distance(ch.aligned[s], ch.hashes[r, s], b4.hashes[s])
            if d != _0:
                _violated(c, TABLE, s, b, d, ch.aligned[s])
                _witness(c, now, TABLE, s, b, -1, d, b4.place, b4.hashes[s], b4.here, ch.hashes[r, s])
        b4.hashes[s] = ch.hashes[r, s]
        b4.known[s] = ch.known[r, s]
    now[LAST] = 1
    for j in range(PLACE):
        b4.place[j] = b4.here[j]


@part
def _in_group(ch: TableChanges, r: int, now: Array, b4: LastChange, c: Counters) -> None:
    """The pair with the change before it in the transaction."""
    b = ch.bucket[r]
    for s in range(ch.hashes.shape[1]):
        if not ch.known[r, s]:
            continue
        b4.decided[s] = 1
        if b4.group_places[s, PLACE - 1] >= 0:
            d = _apart(ch.hashes[r, s], b4.group_hashes[s])
            if d != _0:
                d = _1 if ch.aligned[s] else d  # rows on both sides of a barrier are torn too
                b4.torn[s] = _gcd(d, b4.torn[s])
                made = -1
                for m in (TORN, EITHER):
                    made = _witness(
                        c, now, m, s, b, made, d, b4.group_places[s], b4.group_hashes[s], b4.here, ch.hashes[r, s]
                    )
        b4.group_hashes[s] = ch.hashes[r, s]
        for j in range(PLACE):
            b4.group_places[s, j] = b4.here[j]


@small_kernel
def _is_here(seen: LastOfKeys, i: int, b4: LastChange) -> bool:
    same = True
    for j in range(PLACE):
        same &= seen.places[i, j] == b4.here[j]
    return same


@part
def _of_key(
    ch: TableChanges,
    r: int,
    i: int,
    is_row: bool,
    is_unique: bool,
    now: Array,
    seen: LastOfKeys,
    b4: LastChange,
    c: Counters,
) -> None:
    """The pair with the last change of the same key value, at place ``i`` of the map."""
    b = ch.bucket[r]
    c.totals[ROW, b] += is_row
    c.totals[UNIQUE, b] += is_unique
    for s in range(ch.hashes.shape[1]):
        if not (ch.known[r, s] and seen.known[i, s]):
            continue
        c.cases[ROW, s, b] += is_row
        c.cases[UNIQUE, s, b] += is_unique
        h, g = ch.hashes[r, s], seen.hashes[i, s]
        d = _distance(ch.aligned[s], h, g)
        if d == _0:
            continue
        made = -1
        if is_row:
            _violated(c, ROW, s, b, d, ch.aligned[s])
            made = _witness(c, now, ROW, s, b, made, d, seen.places[i], g, b4.here, h)
        if is_unique:
            _violated(c, UNIQUE, s, b, d, ch.aligned[s])
            made = _witness(c, now, UNIQUE, s, b, made, d, seen.places[i], g, b4.here, h)
        if is_row and seen.places[i, PLACE - 1] < ch.commit_ts[r]:
            b4.overtaken[s] = _gcd(d, b4.overtaken[s])
            for m in (OVERTAKABLE, EITHER):
                made = _witness(c, now, m, s, b, made, d, seen.places[i], g, b4.here, h)


@kernel
def sweep(
    start: int, ch: TableChanges, now: Array, b4: LastChange, seen: LastOfKeys, ids: Ids, c: Counters
) -> tuple[int, int]:
    """Measure changes from ``start`` on; how many are done, and why no more (:data:`DONE`)."""
    n_slots = ch.hashes.shape[1]
    for r in range(start, len(ch.commit_ts)):
        n_extra = ch.extra_from[r + 1] - ch.extra_from[r]
        if 2 * (now[KEYS] + n_extra + 2) > len(seen.keys) or 2 * (now[CHANGES] + 1) > len(ids.keys):
            return r, NO_KEYS
        if now[EVIDENCE] + (n_extra + 4) * n_slots > len(c.evidence):
            return r, NO_EVIDENCE
        if now[IN_GROUP] == 0 or now[AT] != ch.commit_ts[r]:
            finish(now, b4, ch.aligned, c)
            _begin(now, ch.commit_ts[r], ch.bucket[r])
        if _is_repeat(ch, r, now, ids):
            ch.counted[r] = 0
            continue
        ch.counted[r] = 1
        for j in range(PLACE):
            b4.here[j] = ch.place[r, j]
        _after_table(ch, r, now, b4, c)
        _in_group(ch, r, now, b4, c)
        for k in range(2 + n_extra):
            is_row, key = k < 2, ch.own[r, 0]
            if k == 1:
                key = ch.old[r, 0]
            elif k > 1:
                key = ~ch.extra[ch.extra_from[r] + k - 2]
            if (k == 0 and not ch.own[r, 1]) or (k == 1 and not ch.old[r, 1]):
                continue
            i = _find(seen.keys, seen.epochs, key, now[EPOCH])
            if seen.epochs[i] == now[EPOCH] and _is_here(seen, i, b4):
                continue  # one value before and after
            if seen.epochs[i] == now[EPOCH]:
                _of_key(ch, r, i, is_row, ch.in_catalog[r] != 0, now, seen, b4, c)
            else:
                seen.keys[i] = key
                seen.epochs[i] = now[EPOCH]
                now[KEYS] += 1
            for j in range(PLACE):
                seen.places[i, j] = b4.here[j]
            for s in range(n_slots):
                seen.hashes[i, s] = ch.hashes[r, s]
                seen.known[i, s] = ch.known[r, s]
    return len(ch.commit_ts), DONE
