"""Columns as numbers: neighbours in columns that are sorted, and timestamps that may be unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.events.tso import LOGICAL_BITS

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Column = NDArray[Any]
Batches = Iterator[pa.RecordBatch]

NO_TS = np.iinfo(np.int64).min
"""Replaces a timestamp that is null, or not there yet: below all others."""


def changes_in(*columns: Column) -> Bools:
    """Where any of ``columns``, of equal length, differs from the entry before; true for the first."""
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for c in columns:
        new[1:] |= c[1:] != c[:-1]
    return new


def whole_keys(rows: Iterable[pa.RecordBatch], key: Sequence[str], *, at_once: int) -> Iterator[pa.Table]:
    """What :func:`ticdc_lab.engine.shuffle.by_key` gives a kernel, about so many at once, and no key cut in two."""
    held: list[pa.RecordBatch] = []
    most = at_once
    for batch in rows:
        held.append(batch)
        if sum(map(len, held)) >= most:
            whole = pa.Table.from_batches(held).combine_chunks()
            end = len(whole) - _as_the_last(whole, key)
            held = whole.slice(end).to_batches()
            most = max(at_once, 2 * (len(whole) - end))
            if end:
                yield whole.slice(0, end)
    if any(map(len, held)):
        yield pa.Table.from_batches(held).combine_chunks()


def _as_the_last(rows: pa.Table, key: Sequence[str]) -> int:
    """How many rows at the end have the key of the last one."""
    same = np.ones(len(rows), np.bool_)
    for column in map(rows.column, key):
        last = column[-1]
        same &= np.asarray(pc.equal(column, last).fill_null(False) if last.is_valid else column.is_null())
    others = np.flatnonzero(~same)
    return len(rows) - (int(others[-1]) + 1 if len(others) else 0)


def key_begins(rows: pa.Table, key: Sequence[str]) -> Bools:
    """Which rows are the first of their key, where rows of a key lie together."""
    return changes_in(*(codes(rows[name]) for name in key))


def lasts_in(*columns: Column) -> Bools:
    """Where any of ``columns``, of equal length, differs from the entry behind; true for the last."""
    return changes_in(*[c[::-1] for c in columns])[::-1]


def runs(*columns: Column) -> list[slice]:
    """Where each group of equal neighbours lies.

    Examples
    --------
    >>> runs(np.array([1, 1, 2, 1]))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    starts = np.flatnonzero(changes_in(*columns)).tolist()
    return [slice(a, b) for a, b in pairwise([*starts, len(columns[0])])]


def beginnings(texts: pa.Array | pa.ChunkedArray, most: int) -> pa.Array | pa.ChunkedArray:
    """Each text, cut after so many characters; a text that is cut ends in `…`."""
    head = pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, most), "…", "")
    return pc.if_else(pc.greater(pc.utf8_length(texts), most), head, texts)


Stretches = tuple[Ints, Ints]
"""The first and the last of some stretches of numbers, rising and apart."""


def lie_in(numbers: pa.Array | pa.ChunkedArray, stretches: Stretches) -> pa.Array:
    """Which numbers, none below zero, lie in some stretches; null lies in none."""
    first, last = stretches
    own = pc.fill_null(numbers, -1).to_numpy()
    at = np.searchsorted(first, own, side="right") - 1
    return pa.array((at >= 0) & (own <= np.append(last, -1)[at]))


def codes(column: pa.Array | pa.ChunkedArray) -> Ints:
    """A number for each value of a column of any type, the same for equal ones; null is a value too."""
    return _numbered(in_dictionary(column))


def encoded(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    """:func:`codes` of a column, which may have a dictionary of its own, and the values that they number."""
    whole = in_dictionary(column)
    return _numbered(whole), [*whole.dictionary.to_pylist(), None]


def are(texts: pa.Array | pa.ChunkedArray, text: str) -> Bools:
    """Which texts are this one; of texts with a dictionary none is made."""
    if not pa.types.is_dictionary(texts.type):
        return np.asarray(pc.fill_null(pc.equal(texts, text), False))
    code, different = encoded(texts)
    found: Bools = np.array([one == text for one in different])[code]
    return found


def in_dictionary(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """A column with a dictionary, which it may have already; null is a value of the dictionary, or none of it is."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.DictionaryArray):
        if not whole.dictionary.null_count:
            return whole
        whole = whole.dictionary_decode()  # null is one value, not one of the dictionary and one beside it
    return whole.dictionary_encode(null_encoding="encode")


def _numbered(whole: pa.DictionaryArray) -> Ints:
    found: Ints = np.asarray(whole.indices.cast(pa.int64()).fill_null(len(whole.dictionary)))
    return found


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """Different values, from 0 on, in order, and of each value its place among them; counted where they are small.

    Examples
    --------
    >>> [found.tolist() for found in distinct(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    if values.max(initial=0) > 4 * len(values) + 1024:
        each, at = np.unique(values, return_inverse=True)
        return each, at.ravel()
    is_there = np.zeros(int(values.max(initial=0)) + 1, dtype=bool)
    is_there[values] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[values]


def numbers(table: pa.Table | pa.RecordBatch, *names: str, null: int = 0) -> tuple[Ints, ...]:
    """Columns as int64, with ``null`` where nothing is known."""
    return tuple(np.asarray(table[n].fill_null(null)).astype(np.int64, copy=False) for n in names)


def partitions_in(
    batch: pa.RecordBatch, before: tuple[object, object] | None
) -> tuple[list[slice], bool, tuple[object, object]]:
    """Where each topic and partition lies in a sorted batch, whether the first is ``before`` going on, and the last."""
    parts = runs(codes(batch["topic"]), pc.fill_null(batch["partition"], -1).to_numpy())
    first, last = ((batch["topic"][i].as_py(), batch["partition"][i].as_py()) for i in (0, len(batch) - 1))
    return parts, first == before, last


def timestamps(column: pa.Array | pa.ChunkedArray) -> Ints:
    """A bigint column as numbers; NO_TS where it is null."""
    found: Ints = np.asarray(pc.fill_null(column.cast(pa.int64()), NO_TS))
    return found


def nullable(values: Ints) -> pa.Array:
    """Numbers as a bigint column; null where they are NO_TS."""
    return pa.array(values, pa.int64(), mask=values == NO_TS)


def seconds(since: Ints, until: Ints) -> NDArray[np.float64]:
    """Seconds between the physical parts; without meaning where one is NO_TS."""
    found: NDArray[np.float64] = ((until >> LOGICAL_BITS) - (since >> LOGICAL_BITS)) / 1000.0
    return found


def seconds_between(since: pa.ChunkedArray, until: pa.ChunkedArray) -> pa.Array:
    """Seconds between two columns of TSO; null where one is."""
    a, b = timestamps(since), timestamps(until)
    return pa.array(seconds(a, b), mask=(a == NO_TS) | (b == NO_TS))
