"""What the kernels fill, in Arrow's own layout: texts, numbers and flags of events and of their column images."""

from __future__ import annotations

import threading

import numpy as np

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import same_bytes
from ticdc_lab.codecs.kernel.text import put_bytes, put_string

SMALL = 16
"""Up to so many names a plain comparison is faster than a hash table."""


class State(Arrays):
    """Text ``i`` of column ``k`` is ``data[k, end[k, i]:end[k, i + 1]]``.

    ``at`` is scratch of a message; ``last`` what a kernel remembers from one message to the next of its run; ``marks``
    how far everything was filled before the message.
    """

    end: np.ndarray
    data: np.ndarray
    valid: np.ndarray
    size: np.ndarray
    number: np.ndarray
    byte: np.ndarray
    count: np.ndarray
    text: np.ndarray
    stack: np.ndarray
    table: np.ndarray
    at: np.ndarray
    last: np.ndarray
    marks: np.ndarray
    limit: np.ndarray


def fresh_state(items: int, room: int) -> State:
    """An empty state with at least that much room; the thread's own, used again and again, as fresh pages are dear."""
    st: State | None = getattr(_OWN, "state", None)
    if st is None or st.valid.shape[1] < items or st.data.shape[1] < room:
        # more than is asked, as the next batch may need a bit more
        st = _OWN.state = _new_state(items + items // 4, max(room, min(room + room // 4, _MORE)))
    st.size[:] = st.count[:] = st.limit[:] = 0
    st.last[:] = -1
    return st


_OWN = threading.local()
_MORE = 1 << 30


def _new_state(items: int, room: int) -> State:
    """Room for ``items`` events and as many columns in each kind of image, and ``room`` bytes a text column."""
    end = np.empty((S.N_TEXTS, items + 1), np.int32)
    end[:, 0] = 0
    number = np.empty((S.N_NUMBERS, items + 1), np.int64)
    number[:, 0] = 0
    return State(
        end=end,
        data=np.empty((S.N_TEXTS, room), np.uint8),
        valid=np.empty((S.N_TEXTS, items), np.uint8),
        size=np.zeros(S.N_TEXTS, np.int64),
        number=number,
        byte=np.empty((S.N_BYTES, items), np.uint8),
        count=np.zeros(3, np.int64),
        text=np.empty(room, np.uint8),
        stack=np.empty(256, np.uint8),
        table=np.empty(4 * items + 64, np.int32),
        at=np.empty(44, np.int64),
        last=np.full(9, -1, np.int64),
        marks=np.zeros(S.N_TEXTS + 3, np.int64),
        limit=np.zeros(S.N_LIMITS, np.int64),
    )


@small_kernel
def has_room(st: State, k: int, i: int, need: int) -> bool:
    """Whether text ``i`` of column ``k`` with up to ``need`` bytes fits."""
    return i < st.valid.shape[1] and st.size[k] + need <= st.data.shape[1]


@small_kernel
def close(st: State, k: int, i: int, stop: int) -> None:
    """Text ``i`` of column ``k`` ends at ``stop``."""
    st.size[k] = stop
    st.end[k, i + 1] = stop
    st.valid[k, i] = 1


@small_kernel
def put_plain(st: State, k: int, i: int, b: np.ndarray, start: int, stop: int) -> None:
    """Text ``i`` of column ``k`` is the bytes between the positions."""
    close(st, k, i, put_bytes(b, start, stop, st.data[k], st.size[k]))


@small_kernel
def put_text(st: State, k: int, i: int, b: np.ndarray, p: int, q: int, escaped: bool) -> None:
    """Text ``i`` of column ``k`` is what the JSON string from ``p`` to before ``q``, quotes included, writes."""
    close(st, k, i, put_string(b, p + 1, q - 1, escaped, st.data[k], st.size[k]))


@small_kernel
def put_null(st: State, k: int, i: int) -> None:
    """Text ``i`` of column ``k`` is null."""
    st.end[k, i + 1] = st.size[k]
    st.valid[k, i] = 0


@small_kernel
def same_text(st: State, k: int, i: int, m: int, j: int) -> bool:
    """Whether text ``i`` of column ``k`` equals text ``j`` of column ``m``."""
    return same_bytes(st.data[k], st.end[k, i], st.end[k, i + 1], st.data[m], st.end[m, j], st.end[m, j + 1])


@part
def _slot(st: State, k: int, i: int, mask: int) -> int:
    h = np.uint64(14695981039346656037)
    for p in range(st.end[k, i], st.end[k, i + 1]):
        h = (h ^ np.uint64(st.data[k, p])) * np.uint64(1099511628211)
    return np.int64((h ^ (h >> np.uint64(29))) & np.uint64(mask))


@part
def index_names(st: State, k: int, low: int, high: int) -> int:
    """Prepare :func:`find_name` over column ``k``: the table's size, 0 for few names, -1 if one is there twice."""
    if high - low <= SMALL:
        for i in range(low + 1, high):
            for j in range(low, i):
                if same_text(st, k, i, k, j):
                    return -1
        return 0
    size = 64
    while size < 2 * (high - low):
        size *= 2
    st.table[:size] = -1
    for i in range(low, high):
        slot = _slot(st, k, i, size - 1)
        while st.table[slot] >= 0:
            if same_text(st, k, i, k, st.table[slot]):
                return -1
            slot = (slot + 1) & (size - 1)
        st.table[slot] = i
    return size


@part
def find_name(st: State, k: int, high: int, size: int, m: int, j: int, guess: int) -> int:
    """Index below ``high`` of the text in column ``k`` equal to text ``j`` of ``m``, or -1; ``guess`` goes first."""
    if guess < high and same_text(st, k, guess, m, j):
        return guess
    if size == 0:
        for i in range(high):
            if same_text(st, k, i, m, j):
                return i
        return -1
    slot = _slot(st, m, j, size - 1)
    while st.table[slot] >= 0:
        if same_text(st, k, st.table[slot], m, j):
            return st.table[slot]
        slot = (slot + 1) & (size - 1)
    return -1


@part
def text_bytes(st: State) -> int:
    """Bytes of all texts of events so far."""
    n = 0
    for k in range(S.BEFORE + S.VALUES + 1):
        n += st.size[k]
    return n


@part
def mark(st: State) -> None:
    """Remember how far everything is filled."""
    for k in range(S.N_TEXTS):
        st.marks[k] = st.size[k]
    for k in range(3):
        st.marks[S.N_TEXTS + k] = st.count[k]


@part
def restore(st: State) -> None:
    """Forget what was filled since :func:`mark`."""
    for k in range(S.N_TEXTS):
        st.size[k] = st.marks[k]
    for k in range(3):
        st.count[k] = st.marks[S.N_TEXTS + k]


@small_kernel
def event_fits(st: State, need: int) -> bool:
    """Whether one more event with texts of up to ``need`` bytes fits."""
    i = st.count[S.N_EVENTS]
    for k in range(4):
        if not has_room(st, k, i, need):
            return False
    return True


@small_kernel
def column_fits(st: State, image: int, name: int, type_: int, value: int) -> bool:
    """Whether one more column of the image (AFTER or BEFORE) fits, with texts of up to so many bytes."""
    c = st.count[S.N_AFTER if image == S.AFTER else S.N_BEFORE]
    return (
        has_room(st, image + S.NAMES, c, name)
        and has_room(st, image + S.TYPES, c, type_)
        and has_room(st, image + S.VALUES, c, value)
    )


@small_kernel
def put_typed_name(
    b: np.ndarray, start: int, stop: int, text: np.ndarray, type_start: int, type_stop: int, value: int, image: int,
    st: State,
) -> bool:  # fmt: skip
    """Write name and type of the image's next column, if they and a value of up to so many bytes fit.

    The name lies in ``b``, the type in ``text``; without a type, ``type_start`` is below zero.
    """
    if not column_fits(st, image, stop - start, type_stop - type_start, value):
        return False
    c = st.count[S.N_AFTER if image == S.AFTER else S.N_BEFORE]
    put_plain(st, image + S.NAMES, c, b, start, stop)
    if type_start < 0:
        put_null(st, image + S.TYPES, c)
    else:
        put_plain(st, image + S.TYPES, c, text, type_start, type_stop)
    return True


@small_kernel
def end_column(st: State, image: int, is_key: int, flags: int) -> None:
    """Count the column whose three texts were written; ``flags`` below zero: the protocol has none."""
    which = S.N_AFTER if image == S.AFTER else S.N_BEFORE
    later = which - S.N_AFTER
    c = st.count[which]
    st.byte[S.AFTER_IS_KEY + later, c] = is_key
    st.number[S.AFTER_FLAGS + later, c] = flags
    st.byte[S.AFTER_HAS_FLAGS + later, c] = flags >= 0
    st.count[which] = c + 1


@small_kernel
def new_event(st: State, message: int, seq: int, kind: int) -> int:
    """Start an event with nothing in it; where its images end is still open."""
    i = st.count[S.N_EVENTS]
    st.count[S.N_EVENTS] = i + 1
    st.number[S.MESSAGE, i], st.number[S.SEQ, i] = message, seq
    for k in range(S.AFTER_IS_KEY):
        st.byte[k, i] = 0
    st.byte[S.KIND, i] = kind
    for k in range(4):
        put_null(st, k, i)
    return i


@small_kernel
def end_images(st: State, i: int) -> None:
    """The images of event ``i`` end where the images are filled to now."""
    st.number[S.AFTER_END, i + 1], st.number[S.BEFORE_END, i + 1] = st.count[S.N_AFTER], st.count[S.N_BEFORE]


@small_kernel
def put_ts(st: State, i: int, ts: int) -> None:
    """Event ``i`` has this commit_ts."""
    st.number[S.COMMIT_TS, i], st.byte[S.HAS_COMMIT_TS, i] = ts, 1
