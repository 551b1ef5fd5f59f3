"""Sorted changes in Arrow batches through the kernel of conflict dispatch, whole units at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_lab.dispatch.conflict_kernel import DDL, GIANT, MAX_KEYS, TABLE, UNIT, Placed, Placer
from ticdc_lab.events.arrays import Ints

Unit = Literal["transaction", "row"]
Flags = npt.NDArray[np.uint8]
Piece = tuple[pa.RecordBatch, Flags]

DDL_RANK = 3
"""``op_rank`` of a DDL; those of rows are 0, 1 and 2."""

_OF_UNIT = {"transaction": ("commit_ts",), "row": ("commit_ts", "op_rank", "identity")}


def placed_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    ns: Sequence[int],
    unit: Unit = "transaction",
    max_keys: int = MAX_KEYS,
    evidence: bool = False,
    topics: dict[str, int] | None = None,
) -> Iterator[tuple[pa.RecordBatch, Placed]]:
    """Place changes that :func:`ticdc_lab.dispatch.conflict.with_changes` passes, for several N in one pass.

    Parameters
    ----------
    batches
        Changes and DDL, sorted by ``table_id``, ``commit_ts`` and whether they are DDL; for ``unit="row"`` and for
        ``evidence`` in the whole order of that function. Each table stands in one piece.
    ns
        Partition counts.
    unit
        What is placed as a whole.
    max_keys
        Keys that are known at most, and changes of one unit that are held at most: a larger one stands alone between
        two alignments.
    evidence
        Whether barriers say which rows had their keys before, see :data:`ticdc_lab.dispatch.conflict_kernel.BEFORE`;
        needs ``topic``, ``partition``, ``offset`` and ``seq``. The first of the three numbers is
        ``number of the topic << 32 | partition``.
    topics
        Filled with the number of each topic, for ``evidence``.

    Yields
    ------
    tuple
        The same rows, cut anew at units, and where they go. Memory holds the map of the keys, and one unit.
    """
    placer = Placer.of(ns, max_keys=max_keys, evidence=evidence)
    topics = {} if topics is None else topics
    for rows, flags in whole_units(batches, unit=unit, at_most=max_keys):
        starts, keys = keys_of(rows)
        here = _here(rows, topics) if evidence else None
        yield rows, placer.place(flags=flags, commit_ts=_ints(rows, "commit_ts"), starts=starts, keys=keys, here=here)


def whole_units(batches: Iterable[pa.RecordBatch], *, unit: Unit, at_most: int) -> Iterator[Piece]:
    """Cut sorted batches into whole units, with the kernel's flags; a unit above ``at_most`` rows is a giant."""
    held: list[Piece] = []
    last: tuple[int, ...] = ()
    giant = False
    for batch in batches:
        if not batch.num_rows:
            continue
        flags, last = _flags(batch, last, unit)
        if giant and not flags[0] & UNIT:
            flags[0] |= GIANT
        starts = np.flatnonzero(flags & UNIT)
        if len(starts):
            end = int(starts[-1])
            if held or end:
                yield _together([*held, (batch[:end], flags[:end])], at_most)
            held, giant, batch, flags = [], False, batch[end:], flags[end:]
        elif giant:
            yield batch, flags
            continue
        held.append((batch, flags))
        if sum(len(f) for _, f in held) > at_most:
            yield _together(held, at_most)
            held, giant = [], True
    if held:
        yield _together(held, at_most)


def keys_of(rows: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Where the key hashes of each row begin (one more than rows), and the hashes."""
    columns = [rows[name] for name in ("key_hash", "before_key_hash")]
    valid = [np.asarray(c.is_valid()) for c in columns]
    counts = valid[0].astype(np.int64) + valid[1]
    values, n_values = np.zeros(0, np.int64), np.zeros(len(rows), np.int64)
    if "uniques" in rows.schema.names:
        lists = rows["uniques"]
        values, n_values = np.asarray(lists.flatten()), np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts + n_values)])
    keys = np.empty(starts[-1], np.int64)
    at = starts[:-1]
    keys[at[valid[0]]] = np.asarray(columns[0].drop_null())
    keys[(at + valid[0])[valid[1]]] = np.asarray(columns[1].drop_null())
    within = np.arange(len(values)) - np.repeat(np.cumsum(n_values) - n_values, n_values)
    keys[np.repeat(at + counts, n_values) + within] = values
    return starts, keys


def _flags(batch: pa.RecordBatch, last: tuple[int, ...], unit: Unit) -> tuple[Flags, tuple[int, ...]]:
    """Flags of each row, given the numbers of the row before the batch; and those of its last row."""
    columns = [_ints(batch, name) for name in ("table_id", *_OF_UNIT[unit])]
    is_ddl = _ints(batch, "op_rank") == DDL_RANK
    columns.append(is_ddl.astype(np.int64))
    before = last or tuple(int(c[0]) for c in columns)
    changed = [np.diff(c, prepend=b) != 0 for c, b in zip(columns, before, strict=True)]
    changed[0][0] |= not last
    begins = np.logical_or.reduce(changed) | is_ddl
    flags = begins * np.uint8(UNIT) | changed[0] * np.uint8(TABLE) | is_ddl * np.uint8(DDL)
    return flags.astype(np.uint8), tuple(int(c[-1]) for c in columns)


def _together(pieces: list[Piece], at_most: int) -> Piece:
    """One batch of whole units, or of the first rows of a giant."""
    rows = pieces[0][0]
    if len(pieces) > 1:
        rows = pa.concat_batches([rows for rows, _ in pieces])
    flags = np.concatenate([flags for _, flags in pieces])
    starts = np.flatnonzero(flags & UNIT)
    flags[starts[np.diff(starts, append=len(flags)) > at_most]] |= GIANT
    return rows, flags


def _here(rows: pa.RecordBatch, topics: dict[str, int]) -> Ints:
    place = _topic_numbers(rows, topics) << 32 | _ints(rows, "partition")
    return np.stack([place, _ints(rows, "offset"), _ints(rows, "seq")], axis=1)


def _topic_numbers(rows: pa.RecordBatch, topics: dict[str, int]) -> Ints:
    """Number of each row's topic in ``topics``, to which new ones are added."""
    names = rows["topic"].dictionary_encode()
    numbers = [topics.setdefault(t, len(topics)) for t in names.dictionary.to_pylist()]
    each: Ints = np.array(numbers, np.int64)[np.asarray(names.indices)]
    return each


def _ints(rows: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(rows[name].fill_null(0)).astype(np.int64, copy=False)
