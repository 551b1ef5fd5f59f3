"""Both decoders over the same messages, in one form that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import reference_decoder as oracle
from making import Message

from ticdc_lab.codecs.decode import decode_batch
from ticdc_lab.events.schema import EVENTS

Event = dict[str, Any]
PLACE = ("topic", "partition", "offset")


def batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """The messages as a batch; offsets count from 0."""
    n = len(messages)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * n, pa.string()),
            pa.array([0] * n, pa.int32()),
            pa.array(range(n), pa.int64()),
            pa.array([k for k, _ in messages], pa.binary()),
            pa.array([v for _, v in messages], pa.binary()),
        ],
        names=["topic", "partition", "offset", "key", "value"],
    )


def by_kernel(messages: Sequence[Message], protocol: str) -> list[list[Event] | str]:
    """What :func:`by_message` gives of the kernels."""
    return by_message(decode_batch(batch_of(messages), protocol).to_pylist(), messages, protocol)


def by_message(rows: Sequence[Event], messages: Sequence[Message], protocol: str) -> list[list[Event] | str]:
    """For each message its events, or the error class; none may be lost, and quarantine is whole."""
    found: list[list[Event] | str] = [[] for _ in messages]
    for row in rows:
        i = row["offset"]
        events = found[i]
        assert isinstance(events, list), f"message {i} failed twice or was decoded as well"
        if row["error_class"] == "empty-row" and events:  # one of several, which costs itself alone
            assert row["reason"] and row["protocol"] == protocol
        elif row["error_class"] is not None:
            assert not events and row["reason"]
            assert (row["key"], row["value"], row["protocol"]) == (*messages[i], protocol)
            found[i] = row["error_class"]
        else:
            assert row["seq"] == len(events) and row["protocol"] == protocol
            events.append({f: row[f] for f in EVENTS.names if f not in PLACE})
    assert all(found), "a message is neither decoded nor in quarantine"
    return found


def by_oracle(message: Message, protocol: str) -> list[Event] | None:
    """Events by the reference decoder, or None if the message cannot be decoded."""
    try:
        events = oracle.decode_open(*message) if protocol == "open-protocol" else oracle.decode_canal(message[1])
    except oracle.Undecodable:
        return None
    return [{f: e.get(f) for f in EVENTS.names if f not in PLACE} for e in events]


def difference(message: Message, protocol: str, kernel: list[Event] | str) -> str:
    """What the decoders disagree on, or nothing."""
    expected = by_oracle(message, protocol)
    if isinstance(kernel, str):
        nested = sum(part.count(b"[") + part.count(b"{") for part in message if part)
        too_deep = kernel == "too-deep" and nested > 128  # the kernels' own limit; the oracle has none
        return "" if expected is None or too_deep else f"the kernel says {kernel}, the oracle decodes {expected}"
    if kernel == expected:
        return ""
    if expected is None:
        return f"the oracle rejects what the kernel decodes to {kernel}"
    fields = [(f, a[f], b[f]) for a, b in zip(kernel, expected, strict=False) for f in a if a[f] != b[f]]
    return f"{len(kernel)} and {len(expected)} events; kernel and oracle differ in {fields}"
