"""The hashes of :mod:`ticdc_lab.codecs.keys`, over what a kernel has decoded."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import kernel, part, small_kernel
from ticdc_lab.codecs.kernel.state import State, same_text
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes, hash_flag

INSERT, UPDATE, DELETE = S.INSERT, S.UPDATE, S.DELETE
AFTER, BEFORE, NAMES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.VALUES
SCHEMA_NAME, TABLE_NAME = S.SCHEMA_NAME, S.TABLE_NAME
KEY_HASH, BEFORE_KEY_HASH, CHANGE_HASH = S.KEY_HASH, S.BEFORE_KEY_HASH, S.CHANGE_HASH
AFTER_HASH, BEFORE_HASH = S.AFTER_HASH, S.BEFORE_HASH
HAS_KEY, HAS_BEFORE_KEY, HAS_CHANGE = S.HAS_KEY, S.HAS_BEFORE_KEY, S.HAS_CHANGE
OP, HAS_AFTER, HAS_BEFORE, AFTER_IS_KEY, BEFORE_IS_KEY = (
    S.OP,
    S.HAS_AFTER,
    S.HAS_BEFORE,
    S.AFTER_IS_KEY,
    S.BEFORE_IS_KEY,
)
AFTER_END, BEFORE_END = S.AFTER_END, S.BEFORE_END
N_EVENTS, KIND, ROW = S.N_EVENTS, S.KIND, S.ROW

LOW = np.uint64(0xFFFFFFFF)

_OP_TEXT = np.frombuffer(b"insertupdatedelete", np.uint8).copy()


@small_kernel
def _text_hash(st: State, k: int, i: int, h: np.uint64) -> np.uint64:
    """Fold a text into a hash; null leaves it as it is, as in Spark."""
    return hash_bytes(st.data[k], st.end[k, i], st.end[k, i + 1], h) if st.valid[k, i] else h


@part
def _image_hash(st: State, image: int, low: int, high: int, h: np.uint64) -> np.uint64:
    for c in range(low, high):
        h = _text_hash(st, image + NAMES, c, h)
        h = hash_flag(st.valid[image + VALUES, c] == 0, _text_hash(st, image + VALUES, c, h))
    return h


@part
def set_row(st: State, i: int, op: int) -> None:
    """Make event ``i``, whose images are in place, a row change with its hashes."""
    st.byte[OP, i] = op
    st.byte[HAS_AFTER, i], st.byte[HAS_BEFORE, i] = op != DELETE, op != INSERT
    a0, a1 = st.number[AFTER_END, i], st.number[AFTER_END, i + 1]
    b0, b1 = st.number[BEFORE_END, i], st.number[BEFORE_END, i + 1]
    table = _text_hash(st, TABLE_NAME, i, _text_hash(st, SCHEMA_NAME, i, SEED))
    h = hash_bytes(_OP_TEXT, op * 6, op * 6 + 6, table)
    if op != DELETE:
        h = _image_hash(st, AFTER, a0, a1, h)
    if op != INSERT:
        h = _image_hash(st, BEFORE, b0, b1, h)
    st.number[CHANGE_HASH, i], st.byte[HAS_CHANGE, i] = np.int64(h), 1
    if op == DELETE:
        _set_key(st, i, BEFORE, b0, b1, table)
    else:
        _set_key(st, i, AFTER, a0, a1, table)
    if op == UPDATE:
        _set_before_key(st, i, a0, a1, b0, b1, table)
    _set_images(st, i, op, a0, a1, b0, b1)


@small_kernel
def _column(st: State, image: int, c: int) -> tuple[np.uint64, np.uint64]:
    """Hashes of the name of a column and of the name with the value."""
    name = _text_hash(st, image + NAMES, c, SEED)
    return name, hash_flag(st.valid[image + VALUES, c] == 0, _text_hash(st, image + VALUES, c, name))


@small_kernel
def _both(names: np.uint64, values: np.uint64) -> np.int64:
    return np.int64(names << np.uint64(32) | values & LOW)


@part
def _set_images(st: State, i: int, op: int, a0: int, a1: int, b0: int, b1: int) -> None:
    """The hashes of :data:`ticdc_lab.events.schema.IMAGE_HASHES`; absent old values are as in the new image."""
    names, after, before = np.uint64(0), np.uint64(0), np.uint64(0)
    for c in range(a0, a1):
        name, value = _column(st, AFTER, c)
        names ^= name
        after ^= value
        o = _other(st, a0, c, b0, b1) if op == UPDATE else b1
        before ^= value if o == b1 else _column(st, BEFORE, o)[1]
    if op == DELETE:
        for c in range(b0, b1):
            name, value = _column(st, BEFORE, c)
            names ^= name
            before ^= value
    st.number[AFTER_HASH, i], st.number[BEFORE_HASH, i] = _both(names, after), _both(names, before)


@part
def _other(st: State, a0: int, c: int, b0: int, b1: int) -> int:
    """Where the old image has the column ``c`` of the new one; ``b1`` where it is absent."""
    o = b0 + c - a0
    if o < b1 and same_text(st, BEFORE + NAMES, o, AFTER + NAMES, c):
        return o
    o = b0
    while o < b1 and not same_text(st, BEFORE + NAMES, o, AFTER + NAMES, c):
        o += 1
    return o


@kernel
def set_rows(st: State) -> None:
    """:func:`set_row` for every event of kind ROW."""
    for i in range(st.count[N_EVENTS]):
        if st.byte[KIND, i] == ROW:
            set_row(st, i, st.byte[OP, i])


@part
def _set_key(st: State, i: int, image: int, low: int, high: int, h: np.uint64) -> None:
    is_key = AFTER_IS_KEY if image == AFTER else BEFORE_IS_KEY
    keyed = False
    for c in range(low, high):
        if st.byte[is_key, c]:
            keyed = True
            h = _text_hash(st, image + VALUES, c, h)
    if keyed:
        st.number[KEY_HASH, i], st.byte[HAS_KEY, i] = np.int64(h), 1


@part
def _set_before_key(st: State, i: int, a0: int, a1: int, b0: int, b1: int, h: np.uint64) -> None:
    changed = False
    for c in range(a0, a1):
        if not st.byte[AFTER_IS_KEY, c]:
            continue
        o = _other(st, a0, c, b0, b1)
        if o == b1:  # only-output-updated-columns leaves equal columns out
            h = _text_hash(st, AFTER + VALUES, c, h)
            continue
        h = _text_hash(st, BEFORE + VALUES, o, h)
        same = st.valid[BEFORE + VALUES, o] == st.valid[AFTER + VALUES, c] and same_text(
            st, BEFORE + VALUES, o, AFTER + VALUES, c
        )
        changed = changed or not same
    if changed and np.int64(h) != st.number[KEY_HASH, i]:
        st.number[BEFORE_KEY_HASH, i], st.byte[HAS_BEFORE_KEY, i] = np.int64(h), 1
