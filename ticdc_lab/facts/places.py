"""Places of a log: topic, partition, schema and table, and the number that names one.

The number is Spark's ``xxhash64(topic, partition, schema_name, table_name)``, so that rows that Spark narrowed to it
and facts that Python gathered agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column

from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import Ints, encoded, in_dictionary

NAMED_BY = ("topic", "partition", "schema_name", "table_name")
"""What identifies a place."""

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_SEED = 42
_FIRST_SEED = np.uint64(_SEED)
_MANY, _STEPS = 1 << 12, 16
"""How many numbers are found by their highest bits, which hashes seldom share; and how many places may share them."""


def place_col() -> Column:
    """Number (bigint) that names topic, partition, schema and table."""
    from pyspark.sql import functions as F

    return F.xxhash64("topic", F.col("partition").cast("int"), "schema_name", "table_name")


@lru_cache(maxsize=1 << 16)
def place_number(topic: str | None, partition: int | None, schema_name: str | None, table_name: str | None) -> int:
    """Number of a place, as :func:`place_col` gives it.

    Examples
    --------
    >>> place_number("t", 3, "Fin_Ops", "nopk") == place_number("t", 3, "Fin_Ops", "Ledger")
    False
    """
    h = _SEED if topic is None else _of_bytes(topic.encode(), _SEED)
    h = h if partition is None else _of_bytes((partition & 0xFFFFFFFF).to_bytes(4, "little"), h)
    for name in (schema_name, table_name):
        h = h if name is None else _of_bytes(name.encode(), h)
    return h - (1 << 64) if h >> 63 else h


def index_of(numbers: Ints, known: Ints) -> Ints:
    """Where each number of a place stands among those that are known, rising.

    Raises ContractError: one is not known.
    """
    at = _by_highest_bits(numbers, known) if len(numbers) >= max(_MANY, 4 * len(known)) else None
    at = np.searchsorted(known, numbers) if at is None else at
    if len(at) and not (len(known) and (known[np.minimum(at, len(known) - 1)] == numbers).all()):
        raise ContractError(
            "The log has rows of a table in a partition that its facts do not list.",
            hint="Open it again (`ticdc_lab.open(SOURCE)`): it was probably written to while it was read.",
        )
    return at


def _by_highest_bits(numbers: Ints, known: Ints) -> Ints | None:
    """Where each number that is known stands, for a tenth of what a search costs; None if too many share their bits."""
    bits = max((4 * len(known)).bit_length(), 12)
    half = 1 << bits - 1
    n = np.bincount((known >> 64 - bits) + half, minlength=2 * half)
    if not len(known) or n.max() > _STEPS:
        return None
    last = len(known) - 1
    at: Ints = np.minimum(np.cumsum(n) - n, last)[(numbers >> 64 - bits) + half]
    for _ in range(n.max() - 1):
        at = np.minimum(at + (known[at] < numbers), last)
    return at


def table_names(schema_name: pa.StringArray, table_name: pa.StringArray) -> pa.StringArray:
    """``schema.table`` of each place; what is not known is left out."""
    # to skip nulls while joining would also leave out rows that have neither
    joined = pc.binary_join_element_wise(schema_name, table_name, ".")
    return pc.coalesce(joined, schema_name, table_name, pa.scalar(""))


def placed(events: pa.Table) -> tuple[pa.Table, pa.Array]:
    """The places of events, each once and with its number ``place``, and that number of each event."""
    first, of = grouped(events, NAMED_BY)
    each = events.select(NAMED_BY).take(pa.array(first))
    numbers = pa.array([place_number(*place.values()) for place in each.to_pylist()], pa.int64())
    return each.append_column("place", numbers), numbers.take(pa.array(of))


def grouped(rows: pa.Table, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Where each different combination of these columns first stands, and which of those each row has."""
    of: NDArray[Any] = np.zeros(rows.num_rows, dtype=np.int32)  # half as many pages as of 64 bits
    size = 1
    for name in names:
        own = _few(rows[name])
        n = int(own.max(initial=0)) + 1
        if size * n > _TOGETHER:
            first, of = distinct_first(of)
            size = len(first) + 1
        of, size = of * n + own, size * n
    return distinct_first(of)


_TOGETHER = 1 << 13


def _few(column: pa.ChunkedArray) -> NDArray[np.int32]:
    """:func:`~ticdc_lab.events.arrays.codes`, or numbers that lie near to each other as they are, from 0 on."""
    if column.type in (pa.int32(), pa.int64()) and not column.null_count and len(column):
        values = column.to_numpy()
        low = int(values.min())
        if int(values.max()) - low < 1 << 12:
            near: NDArray[np.int32] = (values - low).astype(np.int32, copy=False)
            return near
    whole = in_dictionary(column)
    return np.asarray(whole.indices.cast(pa.int32()).fill_null(len(whole.dictionary)))


def with_places(events: pa.Table) -> pa.Table:
    """Events with the number of each one's ``place``."""
    return events.append_column("place", placed(events)[1])


def distinct_first(code: NDArray[Any]) -> tuple[Ints, Ints]:
    """Where each different number first stands, in order of the numbers, and which of those each is."""
    size = int(code.max(initial=-1)) + 1
    if size > 1 << 20 and size > 4 * len(code):
        _, first, of = np.unique(code, return_index=True, return_inverse=True)
        return first, of
    first = np.full(size, -1, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)  # of several the last holds
    return first[first >= 0], (np.cumsum(first >= 0) - 1)[code]


def _of_bytes(data: bytes, seed: int) -> int:
    n, p = len(data), 0
    if n >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while p <= n - 32:
            lanes = [_round(v, data[p + 8 * i : p + 8 * i + 8]) for i, v in enumerate(lanes)]
            p += 32
        h = sum(_rotate(v, by) for v, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for v in lanes:
            h = ((h ^ _round(0, v.to_bytes(8, "little"))) * _P1 + _P4) & _MASK
    else:
        h = (seed + _P5) & _MASK
    h = (h + n) & _MASK
    while p <= n - 8:
        h = (_rotate(h ^ _round(0, data[p : p + 8]), 27) * _P1 + _P4) & _MASK
        p += 8
    if p <= n - 4:
        half = int.from_bytes(data[p : p + 4], "little")
        h = (_rotate(h ^ (half * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        p += 4
    for byte in data[p:]:
        h = (_rotate(h ^ (byte * _P5 & _MASK), 11) * _P1) & _MASK
    return _avalanche(h)


def _round(acc: int, lane: bytes) -> int:
    return (_rotate((acc + int.from_bytes(lane, "little") * _P2) & _MASK, 31) * _P1) & _MASK


def _rotate(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & _MASK


def _avalanche(h: int) -> int:
    h = ((h ^ (h >> 33)) * _P2) & _MASK
    h = ((h ^ (h >> 29)) * _P3) & _MASK
    return h ^ (h >> 32)


def hashes_of_both(texts: pa.Array | pa.ChunkedArray, values: Ints) -> Ints:
    """Spark's ``xxhash64`` of a text and a bigint each, few different texts."""
    of, different = encoded(texts)
    seeds = [_SEED if t is None else _of_bytes(t.encode(), _SEED) for t in different]
    return long_hashes(values, np.array(seeds, dtype=np.uint64)[of])


def long_hashes(values: Ints, seed: np.uint64 | NDArray[np.uint64] = _FIRST_SEED) -> Ints:
    """Spark's ``xxhash64`` of each bigint."""
    p1, p2, p4 = np.uint64(_P1), np.uint64(_P2), np.uint64(_P4)
    h = (seed + np.uint64((_P5 + 8) & _MASK)) ^ (_rotated(values.view(np.uint64) * p2, 31) * p1)
    h = _rotated(h, 27) * p1 + p4
    h = (h ^ (h >> np.uint64(33))) * p2
    h = (h ^ (h >> np.uint64(29))) * np.uint64(_P3)
    return (h ^ (h >> np.uint64(32))).view(np.int64)


def _rotated(x: NDArray[np.uint64], by: int) -> NDArray[np.uint64]:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))
