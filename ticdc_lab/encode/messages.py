"""Ordered events to messages: open-protocol's frames and batches, and offsets without gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.encode import encode, encoder
from ticdc_lab.events.arrays import Ints, changes_in, codes

EVENTS_A_PASS = 2_500
"""Events encoded at once, as many as are decoded at once."""

PARTITION, KEY = "target_partition", "dispatch_key"
_VERSION = (1).to_bytes(8, "big")

Batches = Iterator[pa.RecordBatch]


def writer(protocol: str, *, max_batch_size: int) -> Callable[[Batches], Batches]:
    """The function over Arrow batches of events, in the order in which they shall stand in their partitions.

    In: the events contract and ``target_partition``, ``dispatch_key``; a partition's events all come in one task. Out:
    ``partition, offset, key, value``. Rows that follow each other and share the partition key become one message of up
    to ``max_batch_size`` where the protocol is framed, whatever batches they come in.
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


def _starts(events: pa.RecordBatch, most: int) -> Ints:
    """Where each message begins; the first event always begins one."""
    n = events.num_rows
    if most == 1:
        return np.arange(n)
    key = codes(events.column(KEY))
    row = np.asarray(events.column("kind").to_numpy(zero_copy_only=False) == "row")
    place = np.asarray(events.column(PARTITION))
    new = changes_in(key, place)
    new[1:] |= ~row[1:] | ~row[:-1]
    first = np.flatnonzero(new)
    into = np.arange(n) - np.repeat(first, np.diff(np.append(first, n)))
    return np.flatnonzero(into % most == 0)


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
    """The offset of each message: one more than that of the last in its partition."""
    out = np.empty(len(place), np.int64)
    for p in np.unique(place).tolist():
        at = np.flatnonzero(place == p)
        out[at] = offsets.get(p, 0) + np.arange(len(at))
        offsets[p] = offsets.get(p, 0) + len(at)
    return out
