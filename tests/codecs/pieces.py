"""What a codec in Python makes of messages, by the one way that loads take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from comparing import PLACE, batch_of
from making import Message

from ticdc_lab.codecs.builder import Codec, Malformed
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.known import NOTHING, Known
from ticdc_lab.schema import EVENTS

Event = dict[str, Any]


def by_codec(messages: Sequence[Message], protocol: str, known: Known = NOTHING) -> list[list[Event] | str]:
    """For each message its events, or the error class; none may be lost, and quarantine is whole."""
    found: list[list[Event] | str] = [[] for _ in messages]
    for row in pa.Table.from_batches(decoder(protocol, known=known)(iter([batch_of(messages)]))).to_pylist():
        i = row["offset"]
        events = found[i]
        assert isinstance(events, list), f"message {i} failed twice or was decoded as well"
        if row["error_class"] is not None:
            assert not events and row["reason"]
            assert (row["key"], row["value"], row["protocol"]) == (*messages[i], protocol)
            found[i] = row["error_class"]
        else:
            assert row["seq"] == len(events) and row["protocol"] == protocol
            events.append({f: row[f] for f in EVENTS.names if f not in PLACE})
    assert all(found), "a message is neither decoded nor in quarantine"
    return found


def decodes(codec: Codec, value: bytes) -> bool:
    """Whether a codec decodes a value; if not, it must say why, and raise nothing else."""
    try:
        return bool(codec(None, value))
    except Malformed as fault:
        if not (fault.error_class and fault.reason):
            raise AssertionError("a fault without a class or a reason") from fault
        return False


def cells(image: Any) -> Any:
    """An image as name -> value."""
    return None if image is None else {c["name"]: c["value"] for c in image}
