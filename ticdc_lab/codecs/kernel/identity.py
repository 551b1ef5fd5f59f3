"""The hashes of :mod:`ticdc_lab.codecs.keys`, over what a kernel has decoded."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import kernel, part, small_kernel
from ticdc_lab.codecs.kernel.state import State, same_text
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes, hash_flag, mix, mix_bytes

LOW = np.uint64(0xFFFFFFFF)

_OP_TEXT = np.frombuffer(b"insertupdatedelete", np.uint8).copy()


@small_kernel
def _text_hash(st: State, k: int, i: int, h: np.uint64) -> np.uint64:
    """Fold a text into a hash; null leaves it as it is, as in Spark."""
    return hash_bytes(st.data[k], st.end[k, i], st.end[k, i + 1], h) if st.valid[k, i] else h


@small_kernel
def _value_hash(st: State, image: int, c: int, h: np.uint64) -> np.uint64:
    """Fold the value of a column, and whether it is null, into a hash."""
    return hash_flag(st.valid[image + S.VALUES, c] == 0, _text_hash(st, image + S.VALUES, c, h))


@small_kernel
def _same_value(st: State, o: int, c: int) -> bool:
    """Whether the old image has in column ``o`` the value of the new one's column ``c``."""
    k, m = S.BEFORE + S.VALUES, S.AFTER + S.VALUES
    return st.valid[k, o] == st.valid[m, c] and same_text(st, k, o, m, c)


@part
def set_row(st: State, i: int, op: int) -> None:
    """Make event ``i``, whose images are in place, a row change with its hashes.

    An old value that is absent is as in the new image (:data:`ticdc_lab.events.schema.IMAGE_HASHES`).
    """
    st.byte[S.OP, i] = op
    st.byte[S.HAS_AFTER, i], st.byte[S.HAS_BEFORE, i] = op != S.DELETE, op != S.INSERT
    table = _text_hash(st, S.TABLE_NAME, i, _text_hash(st, S.SCHEMA_NAME, i, SEED))
    st.number[S.NOTED_TABLE, i] = np.int64(table)
    if not st.limit[S.ONLY_COMPARED] or not _mix_row(st, i, op, table):
        _hash_row(st, i, op, table)


@part
def _mix_row(st: State, i: int, op: int, table: np.uint64) -> bool:
    """Hashes of a row change that are compared with each other alone; False: it has no key, and is known by all of it.

    No column waits for the hash of the one before it, and a value that both images have is hashed once. Old columns
    that do not come in the order of the new ones are hashed behind them.
    """
    a0, a1 = st.number[S.AFTER_END, i], st.number[S.AFTER_END, i + 1]
    b0, b1 = st.number[S.BEFORE_END, i], st.number[S.BEFORE_END, i + 1]
    low, high, image = (b0, b1, S.BEFORE) if op == S.DELETE else (a0, a1, S.AFTER)
    is_key = st.byte[S.BEFORE_IS_KEY if op == S.DELETE else S.AFTER_IS_KEY]
    keyed, moved, nth = False, False, b0 if op == S.UPDATE else b1
    key = old_key = table
    change, old = table + np.uint64(op), SEED
    names, now, was = np.uint64(0), np.uint64(0), np.uint64(0)
    for c in range(b0, b1):
        st.byte[S.BEFORE_SAME, c] = 0
    for c in range(low, high):
        name = _mixed_text(st, image + S.NAMES, c, SEED)
        value = _mixed_value(st, image, c, name)
        change = mix(change, value)
        names ^= name
        now ^= value
        old_value, o = value, b1
        if op == S.UPDATE:
            o = _other(st, a0, c, b0, b1)
            if o < b1:
                if _same_value(st, o, c):
                    st.byte[S.BEFORE_SAME, o] = 1
                else:
                    old_value = _mixed_value(st, S.BEFORE, o, name)
                if o == nth:
                    old = mix(old, old_value)
                    nth += 1
        was ^= old_value
        if is_key[c]:
            keyed = True
            key = _text_hash(st, image + S.VALUES, c, key)
            if op == S.UPDATE:
                differs = o < b1 and not st.byte[S.BEFORE_SAME, o]
                moved |= differs
                k, j = (S.BEFORE, o) if differs else (S.AFTER, c)
                old_key = _text_hash(st, k + S.VALUES, j, old_key)
    if not keyed:
        return False
    for c in range(nth, b1):
        old = mix(old, _mixed_value(st, S.BEFORE, c, _mixed_text(st, S.BEFORE + S.NAMES, c, SEED)))
    _set_hashes(st, i, mix(change, old), names, now, was)
    _set_keys(st, i, key, old_key, keyed, moved)
    return True


@small_kernel
def _mixed_value(st: State, image: int, c: int, name: np.uint64) -> np.uint64:
    """Of the value of a column, by the hash of its name; a null is no text."""
    return _mixed_text(st, image + S.VALUES, c, name) if st.valid[image + S.VALUES, c] else ~name


@small_kernel
def _mixed_text(st: State, k: int, i: int, h: np.uint64) -> np.uint64:
    return mix_bytes(st.data[k], st.end[k, i], st.end[k, i + 1], h)


@part
def _hash_row(st: State, i: int, op: int, table: np.uint64) -> None:
    """All hashes of a column are taken in one pass, as the processor then works on several at a time."""
    a0, a1 = st.number[S.AFTER_END, i], st.number[S.AFTER_END, i + 1]
    b0, b1 = st.number[S.BEFORE_END, i], st.number[S.BEFORE_END, i + 1]
    key = old_key = table
    keyed, moved = False, False
    for c in range(b0, b1):
        st.byte[S.BEFORE_SAME, c] = 0
    change = hash_bytes(_OP_TEXT, op * 6, op * 6 + 6, key)
    names, after, before = np.uint64(0), np.uint64(0), np.uint64(0)
    if op != S.DELETE:
        for c in range(a0, a1):
            change = _value_hash(st, S.AFTER, c, _text_hash(st, S.AFTER + S.NAMES, c, change))
            name = _text_hash(st, S.AFTER + S.NAMES, c, SEED)
            value = _value_hash(st, S.AFTER, c, name)
            names ^= name
            after ^= value
            o = _other(st, a0, c, b0, b1) if op == S.UPDATE else b1
            same = o == b1 or _same_value(st, o, c)
            if o < b1:
                st.byte[S.BEFORE_SAME, o] = same
            before ^= value if same else _value_hash(st, S.BEFORE, o, name)
            if st.byte[S.AFTER_IS_KEY, c]:
                keyed, moved = True, moved or not same
                key = _text_hash(st, S.AFTER + S.VALUES, c, key)
                if op == S.UPDATE:
                    old_key = (
                        _text_hash(st, S.AFTER + S.VALUES, c, old_key)
                        if same
                        else _text_hash(st, S.BEFORE + S.VALUES, o, old_key)
                    )
    if op != S.INSERT:
        for c in range(b0, b1):
            change = _value_hash(st, S.BEFORE, c, _text_hash(st, S.BEFORE + S.NAMES, c, change))
            if op == S.DELETE:
                name = _text_hash(st, S.BEFORE + S.NAMES, c, SEED)
                names ^= name
                before ^= _value_hash(st, S.BEFORE, c, name)
                if st.byte[S.BEFORE_IS_KEY, c]:
                    keyed, key = True, _text_hash(st, S.BEFORE + S.VALUES, c, key)
    _set_hashes(st, i, change, names, after, before)
    _set_keys(st, i, key, old_key, keyed, moved)


@small_kernel
def _set_keys(st: State, i: int, key: np.uint64, old_key: np.uint64, keyed: bool, moved: bool) -> None:
    if keyed:
        st.number[S.KEY_HASH, i], st.byte[S.HAS_KEY, i] = np.int64(key), 1
    if moved and old_key != key:
        st.number[S.BEFORE_KEY_HASH, i], st.byte[S.HAS_BEFORE_KEY, i] = np.int64(old_key), 1


@small_kernel
def _set_hashes(st: State, i: int, change: np.uint64, names: np.uint64, after: np.uint64, before: np.uint64) -> None:
    st.number[S.CHANGE_HASH, i], st.byte[S.HAS_CHANGE, i] = np.int64(change), 1
    high = names << np.uint64(32)
    st.number[S.AFTER_HASH, i] = np.int64(high | after & LOW)
    st.number[S.BEFORE_HASH, i] = np.int64(high | before & LOW)


@part
def _other(st: State, a0: int, c: int, b0: int, b1: int) -> int:
    """Where the old image has the column ``c`` of the new one; ``b1`` where it is absent."""
    o = b0 + c - a0
    if o < b1 and same_text(st, S.BEFORE + S.NAMES, o, S.AFTER + S.NAMES, c):
        return o
    o = b0
    while o < b1 and not same_text(st, S.BEFORE + S.NAMES, o, S.AFTER + S.NAMES, c):
        o += 1
    return o


@kernel
def set_rows(st: State) -> None:
    """:func:`set_row` for every event of kind ROW."""
    for i in range(st.count[S.N_EVENTS]):
        if st.byte[S.KIND, i] == S.ROW:
            set_row(st, i, st.byte[S.OP, i])
