"""Events that a codec in Python makes, as Arrow arrays with the identity hashes of :mod:`ticdc_lab.keys`.

Open-protocol and canal-json are decoded by compiled kernels. For every other format a codec is a function of one
message, and this module does the rest: it lays the events out as the kernels do and runs their hashing over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel import state as S
from ticdc_lab.codecs.kernel.arrow import in_form, texts_of
from ticdc_lab.codecs.kernel.batch import event_columns
from ticdc_lab.codecs.kernel.identity import set_rows
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.schema import DECODED

INT64 = range(-(1 << 63), 1 << 63)


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
    columns: Sequence[Column] | None = None
    before: Sequence[Column] | None = None
    query: str | None = None
    ddl_type: str | None = None
    partition_count: int | None = None
    incomplete: str | None = None


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
            failed.append((m, fault))
            continue
        events += found
        message += [m] * len(found)
        seq += range(len(found))
    decoded = _laid_out(batch, protocol, events, message, seq, images)
    if not failed:
        return decoded
    return (
        pa.Table.from_batches([decoded, _quarantined(batch if original is None else original, protocol, failed)])
        .combine_chunks()
        .to_batches()[0]
    )


def _check(events: Sequence[Event]) -> None:
    assert events, "a codec gives at least one event or raises Malformed"
    for e in events:
        if (e.commit_ts is not None and e.commit_ts not in INT64) or (
            e.table_id is not None and e.table_id not in INT64
        ):
            raise Malformed("out-of-range", f"commit_ts {e.commit_ts} or table id {e.table_id} does not fit 64 bits")


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
    if any(e.partition_count is not None for e in events):
        admin = [None if e.partition_count is None else {"partition_count": e.partition_count} for e in events]
        columns["admin"] = pa.array(admin, pa.struct([("partition_count", pa.int32())]))
    return in_form(columns, n, DECODED)


def _state(events: list[Event]) -> State:
    """The events in the form the kernels leave them in, without hashes."""
    n = len(events)
    after = [c for e in events for c in e.columns or ()]
    before = [c for e in events for c in e.before or ()]
    columns: dict[int, list[str | None]] = {
        S.SCHEMA_NAME: [e.schema_name for e in events],
        S.TABLE_NAME: [e.table_name for e in events],
        S.QUERY: [e.query for e in events],
        S.DDL_TYPE: [e.ddl_type for e in events],
    }
    for image, cells in ((S.AFTER, after), (S.BEFORE, before)):
        columns[image + S.NAMES] = [c.name for c in cells]
        columns[image + S.TYPES] = [c.mysql_type for c in cells]
        columns[image + S.VALUES] = [c.value for c in cells]
    arrays = {k: pa.array(v, pa.string()) for k, v in columns.items()}
    st = fresh_state(max(n, len(after), len(before)) + 1, max(a.nbytes for a in arrays.values()) + 8)
    for k, array in arrays.items():
        texts_of(st, k, array)
    st.count[S.N_EVENTS], st.count[S.N_AFTER], st.count[S.N_BEFORE] = n, len(after), len(before)
    _put_numbers(st, events)
    for later, cells in enumerate((after, before)):
        flags = [c.flags for c in cells]
        st.number[S.AFTER_FLAGS + later, : len(cells)] = flags
        st.byte[S.AFTER_HAS_FLAGS + later, : len(cells)] = [f >= 0 for f in flags]
        st.byte[S.AFTER_IS_KEY + later, : len(cells)] = [c.is_key for c in cells]
    st.number[S.AFTER_END, 1 : n + 1] = np.cumsum([len(e.columns or ()) for e in events], dtype=np.int64)
    st.number[S.BEFORE_END, 1 : n + 1] = np.cumsum([len(e.before or ()) for e in events], dtype=np.int64)
    return st


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
    columns = {name: batch.column(name).take(where) for name in ("topic", "partition", "offset", "key", "value")} | {
        "seq": pa.array([0] * len(failed), pa.int32()),
        "protocol": pa.array([protocol] * len(failed), pa.string()),
        "error_class": pa.array([fault.error_class for _, fault in failed], pa.string()),
        "reason": pa.array([fault.reason for _, fault in failed], pa.string()),
    }
    return in_form(columns, len(failed), DECODED)
