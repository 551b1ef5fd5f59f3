"""The hashes of :mod:`ticdc_lab.codecs.keys`, over what a kernel has decoded."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import kernel, part, small_kernel
from ticdc_lab.codecs.kernel.state import State, same_text
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes, hash_flag

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

    All hashes of a column are taken in one pass, as the processor then works on several at a time. An old value that
    is absent is as in the new image (:data:`ticdc_lab.events.schema.IMAGE_HASHES`).
    """
    st.byte[S.OP, i] = op
    st.byte[S.HAS_AFTER, i], st.byte[S.HAS_BEFORE, i] = op != S.DELETE, op != S.INSERT
    a0, a1 = st.number[S.AFTER_END, i], st.number[S.AFTER_END, i + 1]
    b0, b1 = st.number[S.BEFORE_END, i], st.number[S.BEFORE_END, i + 1]
    key = _text_hash(st, S.TABLE_NAME, i, _text_hash(st, S.SCHEMA_NAME, i, SEED))
    old_key, keyed, moved = key, False, False
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
    st.number[S.CHANGE_HASH, i], st.byte[S.HAS_CHANGE, i] = np.int64(change), 1
    if keyed:
        st.number[S.KEY_HASH, i], st.byte[S.HAS_KEY, i] = np.int64(key), 1
    if moved and old_key != key:
        st.number[S.BEFORE_KEY_HASH, i], st.byte[S.HAS_BEFORE_KEY, i] = np.int64(old_key), 1
    st.number[S.AFTER_HASH, i], st.number[S.BEFORE_HASH, i] = _both(names, after), _both(names, before)


@small_kernel
def _both(names: np.uint64, values: np.uint64) -> np.int64:
    return np.int64(names << np.uint64(32) | values & LOW)


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
