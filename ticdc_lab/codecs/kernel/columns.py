"""The events that a kernel leaves in a state, as Arrow columns, with their hashes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import bits, constant, copied, in_form, numbers, texts, texts_of
from ticdc_lab.codecs.kernel.crcs import Crcs, fill_crcs, fresh_crcs
from ticdc_lab.codecs.kernel.faults import OK
from ticdc_lab.codecs.kernel.identity import set_rows
from ticdc_lab.codecs.kernel.noted import FULL, TABLE_TEXT, Own, names_of
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.codecs.laid_out import LaidOut, shares
from ticdc_lab.codecs.quarantine import TooMuchError
from ticdc_lab.events.schema import DECODED, IMAGE_HASHES, KEYS

ROOM = 1 << 26
"""Bytes of one column of texts of a batch, unless the messages are half as large: beyond, in halves."""

MOST_ROOM = 1 << 31
"""A state has in 32 bits where a text ends, as Arrow does."""


def filled(n: int, size: int, run: Callable[[State], int], *, columns: int = 0, beside: int = 0) -> State:
    """A state after a kernel's run over ``n`` messages, which starts again with more room as it needs it.

    ``n``, ``size``: how many messages, and their bytes. ``run``: the kernel; it starts afresh each time. ``columns``:
    columns of an image where that is known before. ``beside``: bytes of texts that the events have and the messages do
    not. Raises TooMuchError: the events need more than ROOM, or one message's more than MOST_ROOM.
    """
    items, room = (2 * n * columns or n + size // 24) + 64, 2 * size + beside + 4096
    while room < MOST_ROOM and (n <= 1 or room <= max(ROOM, 4 * size + 8192)):
        st = fresh_state(items, room)
        if run(st) == OK:
            return st
        items, room = 2 * items, 2 * room
    raise TooMuchError


def noted_of(batch: pa.RecordBatch, protocol: str, st: State, topics: np.ndarray, own: Own) -> Decoded:
    """The events in a filled state whose images were noted: :data:`BARE`, and the message of each."""
    n, number, byte = int(st.count[S.N_EVENTS]), st.number, st.byte
    message = number[S.MESSAGE, :n].copy()
    each = n == batch.num_rows and bool((message == np.arange(n)).all())  # an event a message: nothing is copied
    partition, offset = (batch[c] if each else batch[c].take(pa.array(message)) for c in ("partition", "offset"))
    is_row = byte[S.KIND, :n] == S.ROW
    if own.notes.count[FULL]:
        schema, table = (texts(st, k, n, pa.string()).dictionary_encode() for k in (S.SCHEMA_NAME, S.TABLE_NAME))
    else:
        names, of, t = names_of(own.notes), own.notes.table[:, TABLE_TEXT], number[S.NOTED_TABLE, :n]
        schema, table = (
            pa.DictionaryArray.from_arrays(pa.array((of[t] + k).astype(np.int32), mask=t < 0), names) for k in (0, 1)
        )
    topic = pa.array(topics[message].astype(np.int32))
    columns = hash_columns(st, byte[S.HAS_BEFORE]) | {
        "schema_name": schema, "table_name": table,
        "kind": _coded(byte[S.KIND, :n], S.KINDS), "op": _coded(byte[S.OP, :n], S.OPS, ~is_row),
        "topic": pa.DictionaryArray.from_arrays(topic, pa.array(own.topics, pa.string())),
        "partition": partition, "offset": offset,
        "seq": pa.array(number[S.SEQ, :n].astype(np.int32)),
        "commit_ts": numbers(number[S.COMMIT_TS], byte[S.HAS_COMMIT_TS], n),
        "query": texts(st, S.QUERY, n, pa.string()), "ddl_type": texts(st, S.DDL_TYPE, n, pa.string()),
        "incomplete": _named(byte[S.INCOMPLETE, :n], S.INCOMPLETE_NAMES),
        "error_class": constant(None, n, pa.string()),
    }  # fmt: skip
    return Decoded(pa.RecordBatch.from_arrays([columns[f.name] for f in BARE], schema=BARE), message)


_TEXT = pa.dictionary(pa.int32(), pa.string())
BARE = pa.schema(
    [(c, _TEXT) for c in ("kind", "op", "topic", "schema_name", "table_name")]
    + [("partition", pa.int32()), ("offset", pa.int64()), ("seq", pa.int32()), ("commit_ts", pa.int64())]
    + [(c, pa.string()) for c in ("query", "ddl_type", "incomplete", "error_class")]
    + [(c, pa.int64()) for c in (*KEYS.names, *IMAGE_HASHES.names)]
)
"""What is made of events whose images are noted: of :data:`ticdc_lab.events.schema.DECODED` what facts, and a judge of
row changes, read."""


def _coded(codes: np.ndarray, names: tuple[str, ...], null: np.ndarray | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=null), pa.array(names))


def decoded_of(batch: pa.RecordBatch, protocol: str, st: State, images: bool) -> Decoded:
    """The events in a filled state, and the message of each."""
    n = int(st.count[S.N_EVENTS])
    columns = event_columns(batch, protocol, st, images)
    return Decoded(in_form(columns, n, DECODED), st.number[S.MESSAGE, :n].copy())


def _named(codes: np.ndarray, names: tuple[str | None, ...], valid: np.ndarray | None = None) -> pa.Array:
    n = len(codes)
    if n and (valid is None or valid.all()) and (codes == codes[0]).all():
        return constant(names[codes[0]], n, pa.string())
    places = pa.Array.from_buffers(pa.uint8(), n, [None if valid is None else bits(valid), copied(codes)])
    return pc.take(pa.array(names, pa.string()), places)


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
        "start_ts": numbers(number[S.START_TS], byte[S.HAS_START_TS], n),
        "checksum": numbers(number[S.CHECKSUM], byte[S.HAS_CHECKSUM], n),
        "checksum_before": numbers(number[S.CHECKSUM_BEFORE], byte[S.HAS_CHECKSUM_BEFORE], n),
        "schema_name": texts(st, S.SCHEMA_NAME, n, pa.string()),
        "table_name": texts(st, S.TABLE_NAME, n, pa.string()),
        "table_id": numbers(number[S.TABLE_ID], byte[S.HAS_TABLE_ID], n),
        "op": _named(byte[S.OP, :n], S.OPS, byte[S.KIND, :n] == S.ROW),
        "query": texts(st, S.QUERY, n, pa.string()),
        "ddl_type": texts(st, S.DDL_TYPE, n, pa.string()),
        "incomplete": _named(byte[S.INCOMPLETE, :n], S.INCOMPLETE_NAMES),
        "seq": pa.array(number[S.SEQ, :n].astype(np.int32)),
        "protocol": constant(protocol, n, pa.string()),
    } | {name: batch.column(name).take(where) for name in ("topic", "partition", "offset")}
    columns |= hash_columns(st) | dispatch_columns(st, sizes_of(batch, protocol, st), protocol)
    if images:
        columns |= {"columns": _images(st, S.AFTER, n), "before": _images(st, S.BEFORE, n)}
    return columns


def hash_columns(st: State, has_before: np.ndarray | None = None) -> dict[str, pa.Array]:
    """Columns of :data:`ticdc_lab.events.schema.KEYS` and :data:`~ticdc_lab.events.schema.IMAGE_HASHES` of a state."""
    n, number, byte = int(st.count[S.N_EVENTS]), st.number, st.byte
    return {
        "key_hash": numbers(number[S.KEY_HASH], byte[S.HAS_KEY], n),
        "before_key_hash": numbers(number[S.BEFORE_KEY_HASH], byte[S.HAS_BEFORE_KEY], n),
        "change_hash": numbers(number[S.CHANGE_HASH], byte[S.HAS_CHANGE], n),
        "after_hash": numbers(number[S.AFTER_HASH], byte[S.HAS_AFTER], n),
        "before_hash": numbers(number[S.BEFORE_HASH], _has_before(st, n) if has_before is None else has_before, n),
    }


def _has_before(st: State, n: int) -> np.ndarray:
    """Which events have an image before them; one that is empty, or has values without a name, counts as none."""
    ends = st.number[S.BEFORE_END, : n + 1]
    return st.byte[S.HAS_BEFORE, :n] & (ends[1:] > ends[:-1]) & (st.byte[S.INCOMPLETE, :n] != S.BEFORE_UNNAMED)


FRAMED = "open-protocol"
"""The protocol whose rows have bytes of their own in a message; in all others the rows of a message share it evenly."""


def sizes_of(batch: pa.RecordBatch, protocol: str, st: State) -> np.ndarray:
    """Bytes that each event has of its message, whose ``key`` and ``value`` ``batch`` has."""
    n = int(st.count[S.N_EVENTS])
    if protocol == FRAMED:
        return st.number[S.ROW_BYTES, :n].copy()
    return shares(batch, st.number[S.MESSAGE, :n], st.number[S.SEQ, :n])


def dispatch_columns(st: State, sizes: np.ndarray, protocol: str) -> dict[str, pa.Array]:
    """Fill and name them; ``sizes`` are the bytes that each event has of its message."""
    n = int(st.count[S.N_EVENTS])
    crcs = fresh_crcs(st)
    fill_crcs(st, crcs, S.REWRITTEN.get(protocol, S.AS_WRITTEN))
    is_row = st.byte[S.KIND, :n] == S.ROW
    return {
        "column_crcs": _lists(crcs, n, is_row),
        "key_crc": pa.Array.from_buffers(pa.int64(), n, [bits(crcs.has_key), pa.py_buffer(crcs.key)]),
        "layout": _layouts(crcs, is_row),
        "row_bytes": pa.Array.from_buffers(pa.int64(), n, [bits(is_row), pa.py_buffer(sizes)]),
    }


def _lists(crcs: Crcs, n: int, is_row: np.ndarray) -> pa.Array:
    total = int(crcs.end[n])
    values = pa.Array.from_buffers(pa.int64(), total, [bits(crcs.has[:total]), pa.py_buffer(crcs.crc[:total])])
    buffers = [bits(is_row), pa.py_buffer(crcs.end)]
    return pa.Array.from_buffers(pa.list_(pa.int64()), n, buffers, children=[values])


def _layouts(crcs: Crcs, is_row: np.ndarray) -> pa.Array:
    distinct = int(crcs.count[0])
    buffers = [None, pa.py_buffer(crcs.text_end[: distinct + 1]), pa.py_buffer(crcs.text)]
    texts = pa.Array.from_buffers(pa.string(), distinct, buffers)
    places = pa.Array.from_buffers(pa.int32(), len(is_row), [bits(is_row), pa.py_buffer(crcs.layout)])
    return pc.take(texts, places)


def hashed(laid: LaidOut, sizes: np.ndarray, protocol: str = "") -> dict[str, pa.Array]:
    """The columns that :mod:`ticdc_lab.codecs.plain.hashes` gives, of events that a codec in Python made."""
    st, n = _filled(laid), len(laid.is_row)
    set_rows(st)
    st.byte[S.HAS_AFTER, :n], st.byte[S.HAS_BEFORE, :n] = laid.after.there, laid.before.there
    return hash_columns(st) | dispatch_columns(st, sizes, protocol)


def _filled(laid: LaidOut) -> State:
    """The events in the form the decoders leave them in, without hashes."""
    n, images = len(laid.is_row), ((S.AFTER, laid.after), (S.BEFORE, laid.before))
    texts = {S.SCHEMA_NAME: laid.schema_name, S.TABLE_NAME: laid.table_name}
    for place, image in images:
        texts |= {place + S.NAMES: image.names, place + S.TYPES: image.types, place + S.VALUES: image.values}
    st = fresh_state(max(len(t) for t in texts.values()) + 1, max(t.nbytes for t in texts.values()) + 8)
    for k, column in texts.items():
        texts_of(st, k, column)
    st.count[:] = n, len(laid.after.names), len(laid.before.names)
    st.byte[: S.AFTER_IS_KEY, :n] = 0
    st.byte[S.KIND, :n] = np.where(laid.is_row, S.ROW, S.DDL)
    st.byte[S.OP, :n] = laid.op
    st.byte[S.INCOMPLETE, :n] = np.where(laid.unnamed, S.BEFORE_UNNAMED, S.WHOLE)
    for later, (_, image) in enumerate(images):
        st.byte[S.AFTER_IS_KEY + later, : len(image.is_key)] = image.is_key
        st.number[S.AFTER_END + later, : n + 1] = image.ends
    return st
