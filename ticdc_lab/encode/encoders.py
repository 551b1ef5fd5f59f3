"""Events to wire formats, as TiCDC's own encoders write them, and to messages; each format lists what it loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.codecs.registry import require_written
from ticdc_lab.encode import canal_json, mq_v1, open_protocol
from ticdc_lab.errors import ProtocolError
from ticdc_lab.events.arrays import Batches, Ints, changes_in, codes

Pair = tuple[pa.Array, pa.Array]


@dataclass(frozen=True, slots=True)
class Encoder:
    """A wire format.

    Attributes
    ----------
    rows
        Row changes to keys and values, whole batches at a time.
    other
        One DDL, watermark or admin event; these are few. None where the format has no such event.
    lost
        What decoding cannot give back: field of the events contract and why. ``columns.x`` is a field of each column
        of both images.
    ddl_to_all
        Whether TiCDC sends a DDL to every partition, or to partition 0 alone.
    framed
        Whether a message has several events, every one behind its length.
    """

    rows: Callable[[pa.RecordBatch, Callable[[int], str]], Pair]
    other: Callable[[dict[str, Any]], tuple[bytes | None, bytes | None] | None]
    lost: Mapping[str, str]
    ddl_to_all: bool = True
    framed: bool = False


ENCODERS: Mapping[str, Encoder] = {
    "open-protocol": Encoder(open_protocol.rows, open_protocol.other, open_protocol.LOST, framed=True),
    "canal-json": Encoder(canal_json.rows, canal_json.other, canal_json.LOST, ddl_to_all=False),
    "mq-v1": Encoder(mq_v1.rows, mq_v1.other, mq_v1.LOST),
}
"""Protocol to encoder."""


def encoder(protocol: str) -> Encoder:
    """The encoder of a protocol.

    Raises
    ------
    ProtocolError
        There is none.

    Examples
    --------
    >>> encoder("canal-json").lost["start_ts"]
    'no field for it'
    """
    require_written(protocol)
    return ENCODERS[protocol]


def encode(batch: pa.RecordBatch, protocol: str) -> Pair:
    """Keys and values (binary) of events, one each; a value that belongs to a framed format is not framed yet.

    Parameters
    ----------
    batch
        Columns of the events contract; its place in the source log is not read.
    protocol
        A name of :data:`ENCODERS`.

    Raises
    ------
    ProtocolError
        The protocol has no form for an event: a type it does not know, a label where it writes numbers, no image.
    """
    how = encoder(protocol)
    is_row = np.asarray(batch.column("kind").to_numpy(zero_copy_only=False) == "row")
    rows = batch.filter(pa.array(is_row))
    _require_written(rows, protocol)
    pairs = [_of_rows(rows, how)] if rows.num_rows else []
    if rows.num_rows < batch.num_rows:
        pairs.append(_of_others(batch.filter(pa.array(~is_row)).to_pylist(), how, protocol))
    if len(pairs) == 1:
        return pairs[0]
    at = np.empty(batch.num_rows, np.int64)
    at[np.append(np.flatnonzero(is_row), np.flatnonzero(~is_row))] = np.arange(batch.num_rows)
    keys, values = (pa.concat_arrays(list(part)).take(pa.array(at)) for part in zip(*pairs, strict=True))
    return keys, values


def _of_rows(rows: pa.RecordBatch, how: Encoder) -> Pair:
    def table(i: int) -> str:
        one = rows.slice(i, 1).to_pylist()[0]
        return f"{one['schema_name']}.{one['table_name']} at commit_ts {one['commit_ts']}"

    keys, values = how.rows(rows, table)
    return keys.cast(pa.binary()), values.cast(pa.binary())


def _of_others(events: list[dict[str, Any]], how: Encoder, protocol: str) -> Pair:
    pairs = []
    for e in events:
        if e["commit_ts"] is None and e["kind"] in ("ddl", "watermark"):
            raise ProtocolError(f"A {e['kind']} event has no commit_ts, without which {protocol} cannot be written.")
        pair = how.other(e)
        if pair is None:
            able = [n for n, other in ENCODERS.items() if e["kind"] in how.lost and e["kind"] not in other.lost]
            hint = f"Write it with --protocol {able[0]}." if able else ""
            raise ProtocolError(f"{protocol} has no message for an event of kind {e['kind']!r}.", hint=hint)
        pairs.append(pair)
    return pa.array([k for k, _ in pairs], pa.binary()), pa.array([v for _, v in pairs], pa.binary())


def _require_written(rows: pa.RecordBatch, protocol: str) -> None:
    for name in ("commit_ts", "schema_name", "table_name"):
        if rows.column(name).null_count:
            raise ProtocolError(f"A row change has no {name}, without which {protocol} cannot be written.")
    empty = np.asarray(rows.column("columns").is_null()) & np.asarray(rows.column("before").is_null())
    if empty.any():
        one = rows.slice(int(np.flatnonzero(empty)[0]), 1).to_pylist()[0]
        raise ProtocolError(
            f"{one['schema_name']}.{one['table_name']} at commit_ts {one['commit_ts']}: the row has no image to write.",
            hint="Materialise the log with its images (images=True).",
        )


# Ordered events to messages: open-protocol's frames and batches, and offsets without gaps.

EVENTS_A_PASS = 2_500
"""Events encoded at once, as many as are decoded at once."""

MAX_BATCH_SIZE = 16
"""Rows in an open-protocol message at most; TiCDC's default."""

PARTITION, KEY, BATCHED = "target_partition", "dispatch_key", "batched"
_VERSION = (1).to_bytes(8, "big")


def writer(protocol: str, *, max_batch_size: int | None) -> Callable[[Batches], Batches]:
    """The function over Arrow batches of events, in the order of their partitions.

    In: the events contract and ``target_partition``, ``dispatch_key``; a partition's events all come in one task. Out:
    ``partition, offset, key, value``. Rows that follow each other and share the partition key become one message of up
    to ``max_batch_size`` where the protocol is framed, in any batches. None: rows that ``batched`` marks
    share a message only if they did so in the log, other rows share messages of up to :data:`MAX_BATCH_SIZE`.
    """
    framed = encoder(protocol).framed

    def run(batches: Batches) -> Batches:
        offsets: dict[int, int] = {}
        held: pa.RecordBatch | None = None
        for batch in _pieces(batches):
            events = batch if held is None else pa.concat_batches([held, batch])
            starts = _starts(events, max_batch_size if framed else 1)
            complete = int(starts[-1]) if framed else events.num_rows
            held = events.slice(complete)
            if complete:
                yield _messages(events.slice(0, complete), starts[starts < complete], protocol, offsets)
        if held is not None and held.num_rows:
            yield _messages(held, np.zeros(1, np.int64), protocol, offsets)

    return run


def _pieces(batches: Batches) -> Batches:
    for batch in batches:
        for start in range(0, batch.num_rows, EVENTS_A_PASS):
            yield batch.slice(start, EVENTS_A_PASS)


def _starts(events: pa.RecordBatch, most: int | None) -> Ints:
    """Where each message begins; the first event always begins one."""
    n = events.num_rows
    if most == 1:
        return np.arange(n)
    key = codes(events.column(KEY))
    row = np.asarray(events.column("kind").to_numpy(zero_copy_only=False) == "row")
    place = np.asarray(events.column(PARTITION))
    new = changes_in(key, place)
    new[1:] |= ~row[1:] | ~row[:-1]
    keeps = np.zeros(n, np.bool_)
    if most is None:
        keeps = np.asarray(events.column(BATCHED).to_numpy(zero_copy_only=False), np.bool_)
        new |= keeps & changes_in(*(codes(events.column(c)) for c in ("topic", "partition", "offset")))
    first = np.flatnonzero(new)
    into = np.arange(n) - np.repeat(first, np.diff(np.append(first, n)))
    return np.flatnonzero(new | (~keeps & (into % (most or MAX_BATCH_SIZE) == 0)))


def _messages(events: pa.RecordBatch, starts: Ints, protocol: str, offsets: dict[int, int]) -> pa.RecordBatch:
    keys, values = encode(events, protocol)
    if encoder(protocol).framed:
        keys = pc.binary_join_element_wise(pa.scalar(_VERSION), _framed(keys, starts), pa.scalar(b""))
        values = _framed(values, starts)
    place = np.asarray(events.column(PARTITION))[starts]
    return pa.RecordBatch.from_arrays(
        [pa.array(place, pa.int32()), pa.array(_numbered(place, offsets), pa.int64()), keys, values],
        names=["partition", "offset", "key", "value"],
    )


def _framed(parts: pa.Array, starts: Ints) -> pa.Array:
    """Each message's parts one after the other, each behind its length in eight bytes."""
    lengths = np.asarray(pc.binary_length(parts), np.int64)
    places = np.arange(0, 8 * len(parts) + 8, 8, dtype=np.int32)
    header = pa.Array.from_buffers(
        pa.binary(), len(parts), [None, pa.py_buffer(places), pa.py_buffer(lengths.astype(">u8").tobytes())]
    )
    frames = pc.binary_join_element_wise(header, parts, pa.scalar(b""))
    ends = np.append(0, np.cumsum(lengths + 8))
    begin = np.append(ends[starts], ends[-1]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(begin), frames.buffers()[2]])


def _numbered(place: NDArray[np.int32], offsets: dict[int, int]) -> Ints:
    """The offset of each message: one more than the last in its partition."""
    out = np.empty(len(place), np.int64)
    for p in np.unique(place).tolist():
        at = np.flatnonzero(place == p)
        out[at] = offsets.get(p, 0) + np.arange(len(at))
        offsets[p] = offsets.get(p, 0) + len(at)
    return out
