"""Events that a codec in Python makes, as Arrow arrays with the identity hashes of :mod:`ticdc_lab.keys`.

Open-protocol and canal-json are decoded by compiled kernels. For every other format a codec is a function of one
message, and this module does the rest: it lays the events out as the kernels do and runs their hashing over them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel import state as S
from ticdc_lab.codecs.kernel.arrow import in_form, texts_of
from ticdc_lab.codecs.kernel.batch import event_columns, refused
from ticdc_lab.codecs.kernel.identity import set_rows
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.schema import DECODED

INT64 = range(-(1 << 63), 1 << 63)

CORRUPTED = "corrupted"
"""``incomplete`` of a row of which TiCDC itself says that its checksum is not that of the row TiDB wrote."""


Cell = tuple[str, str | None, str | None, bool, int]
"""A :class:`Column` as a plain tuple, which costs a fifth to make."""


class Column(NamedTuple):
    """One column of an image; ``value`` as the events contract says it, None for NULL."""

    name: str
    mysql_type: str | None
    value: str | None
    is_key: bool = False
    flags: int = -1
    """Open-protocol flags; below zero: the protocol has none."""


@dataclass(slots=True)
class Event:
    """One event of a message; the names are those of :data:`ticdc_lab.schema.EVENTS`."""

    kind: int
    commit_ts: int | None = None
    schema_name: str | None = None
    table_name: str | None = None
    table_id: int | None = None
    op: int = S.INSERT
    columns: Sequence[Cell] | None = None
    before: Sequence[Cell] | None = None
    query: str | None = None
    ddl_type: str | None = None
    partition_count: int | None = None
    incomplete: str | None = None
    checksum: int | None = None
    checksum_before: int | None = None


class Malformed(Exception):
    """A message that cannot be decoded; it goes to the quarantine under ``error_class`` with ``reason``."""

    def __init__(self, error_class: str, reason: str) -> None:
        super().__init__(reason)
        self.error_class = error_class
        self.reason = reason


Codec = Callable[[bytes | None, bytes | None], Sequence[Event]]
"""Key and value of a message to its events, at least one; raises :class:`Malformed`."""


def decode_with(
    codec: Codec,
    batch: pa.RecordBatch,
    protocol: str,
    *,
    images: bool = True,
    original: pa.RecordBatch | None = None,
) -> pa.RecordBatch:
    """Decode messages with a codec.

    Parameters
    ----------
    codec
        What turns one message into events.
    batch
        Columns topic, partition, offset, key (binary), value (binary).
    protocol
        What the column of that name says.
    images
        False leaves ``columns`` and ``before`` null.
    original
        The messages as they were, for the quarantine, if ``batch`` was unpacked from them.

    Returns
    -------
    pa.RecordBatch
        :data:`ticdc_lab.schema.DECODED`: the events in message order, then a row for each message that failed.
    """
    with _no_search_for_cycles():
        return _decoded_with(codec, batch, protocol, images, batch if original is None else original)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """A batch makes a hundred thousand tuples and no cycle; looking for some among them takes half of all the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _decoded_with(
    codec: Codec, batch: pa.RecordBatch, protocol: str, images: bool, original: pa.RecordBatch
) -> pa.RecordBatch:
    events: list[Event] = []
    message: list[int] = []
    seq: list[int] = []
    failed: list[tuple[int, Malformed]] = []
    pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    for m, (key, value) in enumerate(pairs):
        try:
            found = codec(key, value)
            _check(found)
        except Malformed as fault:
            failed.append((m, fault.with_traceback(None)))  # whose frames hold all that was decoded
            continue
        except Exception as fault:  # one message that nobody foresaw must not end the load of all others
            failed.append((m, _unforeseen(fault)))
            continue
        events += found
        message += [m] * len(found)
        seq += range(len(found))
    decoded = _laid_out(batch, protocol, events, message, seq, images)
    if not failed:
        return decoded
    both = [decoded, _quarantined(original, protocol, failed)]
    return pa.Table.from_batches(both).combine_chunks().to_batches()[0]


def _unforeseen(fault: Exception) -> Malformed:
    return Malformed("codec-error", f"the decoder failed on this message: {type(fault).__name__}: {str(fault)[:200]}")


def _check(events: Sequence[Event]) -> None:
    assert events, "a codec gives at least one event or raises Malformed"
    for e in events:
        if e.kind == S.ROW and not _has_its_images(e):
            raise Malformed("missing-field", f"the images that are there do not go with an {S.OPS[e.op]}")
        if (e.commit_ts is not None and e.commit_ts not in INT64) or (
            e.table_id is not None and e.table_id not in INT64
        ):
            raise Malformed("out-of-range", f"commit_ts {e.commit_ts} or table id {e.table_id} does not fit 64 bits")


def _has_its_images(e: Event) -> bool:
    """An image after unless it is a delete; one before if it is; an update may have one."""
    if e.op == S.UPDATE:
        return e.columns is not None
    return (e.columns is None) == (e.op == S.DELETE) == (e.before is not None)


def _laid_out(
    batch: pa.RecordBatch, protocol: str, events: list[Event], message: list[int], seq: list[int], images: bool
) -> pa.RecordBatch:
    n = len(events)
    st = _state(events)
    st.number[S.MESSAGE, :n], st.number[S.SEQ, :n] = message, seq
    set_rows(st)
    st.byte[S.HAS_AFTER, :n] = [e.columns is not None for e in events]
    st.byte[S.HAS_BEFORE, :n] = [e.before is not None for e in events]
    columns = event_columns(batch, protocol, st, images)
    columns["incomplete"] = pa.array([e.incomplete for e in events], pa.string())
    columns["checksum"] = pa.array([e.checksum for e in events], pa.int64())
    columns["checksum_before"] = pa.array([e.checksum_before for e in events], pa.int64())
    if any(e.partition_count is not None for e in events):
        admin = [None if e.partition_count is None else {"partition_count": e.partition_count} for e in events]
        columns["admin"] = pa.array(admin, pa.struct([("partition_count", pa.int32())]))
    return in_form(columns, n, DECODED)


def _state(events: list[Event]) -> State:
    """The events in the form the kernels leave them in, without hashes."""
    n = len(events)
    after = _parts([c for e in events for c in e.columns or ()])
    before = _parts([c for e in events for c in e.before or ()])
    columns: dict[int, Sequence[str | None]] = {
        S.SCHEMA_NAME: [e.schema_name for e in events],
        S.TABLE_NAME: [e.table_name for e in events],
        S.QUERY: [e.query for e in events],
        S.DDL_TYPE: [e.ddl_type for e in events],
    }
    for image, (names, types, texts, _, _) in ((S.AFTER, after), (S.BEFORE, before)):
        columns |= {image + S.NAMES: names, image + S.TYPES: types, image + S.VALUES: texts}
    arrays = {k: pa.array(v, pa.string()) for k, v in columns.items()}
    n_after, n_before = len(after[0]), len(before[0])
    st = fresh_state(max(n, n_after, n_before) + 1, max(a.nbytes for a in arrays.values()) + 8)
    for k, array in arrays.items():
        texts_of(st, k, array)
    st.count[S.N_EVENTS], st.count[S.N_AFTER], st.count[S.N_BEFORE] = n, n_after, n_before
    _put_numbers(st, events)
    for later, (_, _, _, is_key, flags) in enumerate((after, before)):
        st.number[S.AFTER_FLAGS + later, : len(flags)] = flags
        st.byte[S.AFTER_HAS_FLAGS + later, : len(flags)] = st.number[S.AFTER_FLAGS + later, : len(flags)] >= 0
        st.byte[S.AFTER_IS_KEY + later, : len(flags)] = is_key
    st.number[S.AFTER_END, 1 : n + 1] = np.cumsum([len(e.columns or ()) for e in events], dtype=np.int64)
    st.number[S.BEFORE_END, 1 : n + 1] = np.cumsum([len(e.before or ()) for e in events], dtype=np.int64)
    return st


def _parts(cells: list[Cell]) -> tuple[Sequence[Any], ...]:
    """Names, types, values, whether key, flags."""
    return tuple(zip(*cells, strict=True)) if cells else ((),) * 5


def _put_numbers(st: State, events: list[Event]) -> None:
    n = len(events)
    st.byte[: S.AFTER_IS_KEY, :n] = 0
    st.byte[S.KIND, :n] = [e.kind for e in events]
    st.byte[S.OP, :n] = [e.op for e in events]
    for k, has, values in (
        (S.COMMIT_TS, S.HAS_COMMIT_TS, [e.commit_ts for e in events]),
        (S.TABLE_ID, S.HAS_TABLE_ID, [e.table_id for e in events]),
    ):
        st.number[k, :n] = [v or 0 for v in values]
        st.byte[has, :n] = [v is not None for v in values]


def _quarantined(batch: pa.RecordBatch, protocol: str, failed: list[tuple[int, Malformed]]) -> pa.RecordBatch:
    where = pa.array([m for m, _ in failed], pa.int64())
    classes, reasons = [fault.error_class for _, fault in failed], [_utf8(fault.reason) for _, fault in failed]
    return refused(batch.take(where), classes, reasons, protocol=protocol)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
