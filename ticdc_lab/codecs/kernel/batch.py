"""One batch of messages through a kernel, and the result as Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.builder import Decoded
from ticdc_lab.codecs.kernel import canal_json, open_protocol
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import bits, copied, in_form, numbers, spans, texts
from ticdc_lab.codecs.kernel.dispatched import dispatch_columns, sizes_of
from ticdc_lab.codecs.kernel.faults import EMPTY_ROW, FAULTS, NEED_MORE, OK
from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.codecs.kernel.state import State, fresh_state, mark, restore
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.quarantine import TooMuchError, one_by_one, refused
from ticdc_lab.events.schema import DECODED

_open_message = open_protocol.decode_message
_canal_message = canal_json.decode_message


@kernel
def _run_open(
    kb: np.ndarray, kp: np.ndarray, kend: np.ndarray, vb: np.ndarray, vp: np.ndarray, vend: np.ndarray,
    st: State, faults: np.ndarray, marks: np.ndarray,
) -> int:  # fmt: skip
    for m in range(len(kp)):
        mark(st, marks)
        status, part = _open_message(m, kb, kp[m], kend[m], vb, vp[m], vend[m], st)
        if status == NEED_MORE:
            return NEED_MORE
        faults[m, 0], faults[m, 1] = -status, part
        if status != OK:
            restore(st, marks)
    return OK


@kernel
def _run_canal(
    kb: np.ndarray, kp: np.ndarray, kend: np.ndarray, vb: np.ndarray, vp: np.ndarray, vend: np.ndarray,
    st: State, faults: np.ndarray, marks: np.ndarray,
) -> int:  # fmt: skip
    for m in range(len(kp)):
        mark(st, marks)
        status, part = _canal_message(m, kb, kp[m], kend[m], vb, vp[m], vend[m], st)
        if status == NEED_MORE:
            return NEED_MORE
        faults[m, 0], faults[m, 1] = -status, part
        if status != OK:
            restore(st, marks)
    return OK


KERNELS: dict[str, Callable[..., int]] = {"open-protocol": _run_open, "canal-json": _run_canal}
"""Protocol -> kernel over a batch."""

ROOM = 1 << 26
"""Bytes of one column of texts of a batch, unless the messages are half as large: beyond, in halves."""

MOST_ROOM = 1 << 31
"""A state says in 32 bits where a text ends, as Arrow does."""


def decode_batches(
    batch: pa.RecordBatch,
    protocol: str,
    *,
    images: bool = True,
    original: pa.RecordBatch | None = None,
    bounds: Bounds = BOUNDS,
) -> Iterator[pa.RecordBatch]:
    """What :func:`decode_batch` gives, in halves where that is too large or fails; a message alone is refused."""

    def decode(some: pa.RecordBatch, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield decode_batch(some, protocol, images=images, original=raw, bounds=bounds)

    return one_by_one(decode, batch, batch if original is None else original, protocol)


def decode_batch(
    batch: pa.RecordBatch,
    protocol: str,
    *,
    images: bool = True,
    original: pa.RecordBatch | None = None,
    bounds: Bounds = BOUNDS,
) -> pa.RecordBatch:
    """Decode messages to events and faults.

    Parameters
    ----------
    batch
        Columns topic, partition, offset, key (binary), value (binary).
    protocol
        A key of :data:`KERNELS`.
    images
        False leaves ``columns`` and ``before`` null.
    original
        The messages as they were, for the quarantine, if ``batch`` was unpacked from them.
    bounds
        How much a message may become.

    Returns
    -------
    pa.RecordBatch
        :data:`ticdc_lab.events.schema.DECODED`; first the events, in message order, then a row for each message that
        could not be decoded, with ``error_class``, ``reason`` and the untouched ``key`` and ``value``.

    Raises
    ------
    TooMuchError
        The events need more than ROOM; :func:`decode_batches` goes on with fewer messages.
    """
    keys, values = spans(batch.column("key")), spans(batch.column("value"))
    faults, marks = np.zeros((batch.num_rows, 2), np.int64), np.zeros(16, np.int64)

    def run(st: State) -> int:
        st.limit[:] = bounds.kernel
        return KERNELS[protocol](*keys, *values, st, faults, marks)

    st = filled(batch.num_rows, len(keys[0]) + len(values[0]), run)
    decoded = _decoded_of(batch, protocol, st, images).events
    _check_count(batch, st, faults)
    if not faults[:, 0].any():
        return decoded
    if protocol == "open-protocol" and (faults[:, 0] >> 40 == EMPTY_ROW).any():  # costs itself alone: Python says where
        from ticdc_lab.codecs.builder import decode_with
        from ticdc_lab.codecs.registry import codec_of

        codec = codec_of(protocol, Known(bounds=bounds))
        return decode_with(codec, batch, protocol, images=images, original=original, bounds=bounds)
    failed = _faults(batch if original is None else original, protocol, faults, keys[1], values[1])
    return pa.Table.from_batches([decoded, failed]).combine_chunks().to_batches()[0]


def decoded_in_part(
    batch: pa.RecordBatch, protocol: str, decode: Callable[..., int], *given: object, images: bool, bounds: Bounds
) -> Decoded:
    """The events of the messages that a kernel beside a codec in Python decodes (:class:`~.builder.PartKernel`).

    Parameters
    ----------
    batch, protocol, images, bounds
        As for :func:`decode_batch`.
    decode
        A kernel over the bytes of values, where each begins (below zero: it is left) and ends, a state and scratch.
    given
        What the kernel is given beside these.

    Raises
    ------
    TooMuchError
        The events need more than ROOM.
    """
    (_, key_starts, key_ends), (data, starts, ends) = spans(batch.column("key")), spans(batch.column("value"))
    long = (key_starts >= 0) & (key_ends - key_starts > bounds.values)
    starts[long] = -1  # in such a key Python counts values (`require_few_values`)

    def run(st: State) -> int:
        st.limit[:] = bounds.kernel
        return decode(data, starts, ends, st, np.zeros(16, np.int64), *given)

    return _decoded_of(batch, protocol, filled(batch.num_rows, len(data), run), images)


def filled(n: int, size: int, run: Callable[[State], int], *, columns: int = 0, beside: int = 0) -> State:
    """A state after a kernel's run over ``n`` messages, which starts again with more room as it needs it.

    Parameters
    ----------
    n, size
        How many messages, and their bytes.
    run
        The kernel; it begins anew each time.
    columns
        Columns of an image where that is known before.
    beside
        Bytes of texts that the events have and the messages do not.

    Raises
    ------
    TooMuchError
        The events need more than ROOM, or one message's more than MOST_ROOM.
    """
    items, room = (2 * n * columns or n + size // 24) + 64, 2 * size + beside + 4096
    while room < MOST_ROOM and (n <= 1 or room <= max(ROOM, 4 * size + 8192)):
        st = fresh_state(items, room)
        if run(st) == OK:
            return st
        items, room = 2 * items, 2 * room
    raise TooMuchError


def _decoded_of(batch: pa.RecordBatch, protocol: str, st: State, images: bool) -> Decoded:
    """The events in a filled state, and the message of each."""
    n = int(st.count[S.N_EVENTS])
    columns = event_columns(batch, protocol, st, images)
    return Decoded(in_form(columns, n, DECODED), st.number[S.MESSAGE, :n].copy())


def _named(codes: np.ndarray, names: tuple[str | None, ...], valid: np.ndarray | None = None) -> pa.Array:
    mask = None if valid is None else ~valid.astype(bool)
    return pc.take(pa.array(names, pa.string()), pa.array(codes.astype(np.int32), mask=mask))


def _images(st: State, image: int, n: int) -> pa.Array:
    """The images (AFTER or BEFORE) of the first ``n`` events."""
    later = 0 if image == S.AFTER else 1
    c = int(st.count[S.N_AFTER + later])
    columns = pa.StructArray.from_arrays(
        [
            texts(st, image + S.NAMES, c, pa.string()),
            texts(st, image + S.TYPES, c, pa.string()),
            texts(st, image + S.VALUES, c, pa.string()),
            pa.Array.from_buffers(pa.bool_(), c, [None, bits(st.byte[S.AFTER_IS_KEY + later, :c])]),
            numbers(st.number[S.AFTER_FLAGS + later], st.byte[S.AFTER_HAS_FLAGS + later], c),
        ],
        names=["name", "mysql_type", "value", "is_key", "flags"],
    )
    ends = st.number[S.AFTER_END + later, : n + 1].astype(np.int32)
    buffers = [bits(st.byte[S.HAS_AFTER + later, :n]), copied(ends)]
    return pa.Array.from_buffers(pa.list_(columns.type), n, buffers, children=[columns])


def event_columns(batch: pa.RecordBatch, protocol: str, st: State, images: bool) -> dict[str, pa.Array]:
    """Columns of :data:`ticdc_lab.events.schema.DECODED` by name, of the events in a filled state."""
    n = int(st.count[S.N_EVENTS])
    number, byte = st.number, st.byte
    where = pa.array(number[S.MESSAGE, :n])
    columns = {
        "kind": _named(byte[S.KIND, :n], S.KINDS),
        "commit_ts": numbers(number[S.COMMIT_TS], byte[S.HAS_COMMIT_TS], n),
        "schema_name": texts(st, S.SCHEMA_NAME, n, pa.string()),
        "table_name": texts(st, S.TABLE_NAME, n, pa.string()),
        "table_id": numbers(number[S.TABLE_ID], byte[S.HAS_TABLE_ID], n),
        "op": _named(byte[S.OP, :n], S.OPS, byte[S.KIND, :n] == S.ROW),
        "query": texts(st, S.QUERY, n, pa.string()),
        "ddl_type": texts(st, S.DDL_TYPE, n, pa.string()),
        "incomplete": _named(byte[S.INCOMPLETE, :n], S.INCOMPLETE_NAMES),
        "seq": pa.array(number[S.SEQ, :n].astype(np.int32)),
        "protocol": pa.array([protocol]).take(pa.array(np.zeros(n, np.int32))),
    } | {name: batch.column(name).take(where) for name in ("topic", "partition", "offset")}
    columns |= hash_columns(st) | dispatch_columns(st, sizes_of(batch, protocol, st))
    if images:
        columns |= {"columns": _images(st, S.AFTER, n), "before": _images(st, S.BEFORE, n)}
    return columns


def hash_columns(st: State) -> dict[str, pa.Array]:
    """Columns of :data:`ticdc_lab.events.schema.KEYS` and :data:`~ticdc_lab.events.schema.IMAGE_HASHES` of a state."""
    n, number, byte = int(st.count[S.N_EVENTS]), st.number, st.byte
    return {
        "key_hash": numbers(number[S.KEY_HASH], byte[S.HAS_KEY], n),
        "before_key_hash": numbers(number[S.BEFORE_KEY_HASH], byte[S.HAS_BEFORE_KEY], n),
        "change_hash": numbers(number[S.CHANGE_HASH], byte[S.HAS_CHANGE], n),
        "after_hash": numbers(number[S.AFTER_HASH], byte[S.HAS_AFTER], n),
        "before_hash": numbers(number[S.BEFORE_HASH], _has_before(st, n), n),
    }


def _has_before(st: State, n: int) -> np.ndarray:
    """Which events have an image before them; one that is empty, or has values without a name, says nothing."""
    ends = st.number[S.BEFORE_END, : n + 1]
    return st.byte[S.HAS_BEFORE, :n] & (ends[1:] > ends[:-1]) & (st.byte[S.INCOMPLETE, :n] != S.BEFORE_UNNAMED)


def _faults(
    batch: pa.RecordBatch, protocol: str, faults: np.ndarray, key_at: np.ndarray, value_at: np.ndarray
) -> pa.RecordBatch:
    failed = np.flatnonzero(faults[:, 0])
    codes, positions = faults[failed, 0] >> 40, faults[failed, 0] & (1 << 40) - 1
    reasons = []
    for m, code, position in zip(failed, codes, positions, strict=True):
        in_value = faults[m, 1] == 1
        start = max(int(value_at[m] if in_value else key_at[m]), 0)
        reasons.append(f"{'value' if in_value else 'key'}, byte {max(position - start, 0)}: {FAULTS[code][1]}")
    return refused(batch.take(pa.array(failed)), [FAULTS[c][0] for c in codes], reasons, protocol=protocol)


def _check_count(batch: pa.RecordBatch, st: State, faults: np.ndarray) -> None:
    """Messages in = messages decoded + messages that failed; anything else is a fault of this package."""
    n = int(st.count[S.N_EVENTS])
    decoded = int(np.count_nonzero(st.number[S.SEQ, :n] == 0))
    failed = int(np.count_nonzero(faults[:, 0]))
    if batch.num_rows != decoded + failed:
        raise AssertionError(f"{batch.num_rows} messages in, {decoded} decoded, {failed} quarantined")
