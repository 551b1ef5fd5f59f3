"""What a codec in Python makes of messages, by the one way that loads take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from comparing import Event, batch_of, by_message
from making import Message

from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.event import Codec, Malformed
from ticdc_lab.codecs.known import NOTHING, Known


def by_codec(messages: Sequence[Message], protocol: str, known: Known = NOTHING) -> list[list[Event] | str]:
    """What :func:`comparing.by_message` gives of a codec."""
    decoded = pa.Table.from_batches(decoder(protocol, known=known)(iter([batch_of(messages)])))
    return by_message(decoded.to_pylist(), messages, protocol)


def decodes(codec: Codec, value: bytes) -> bool:
    """Whether a codec decodes a value; if not, it must show why, and raise nothing else."""
    try:
        return bool(codec(None, value))
    except Malformed as fault:
        if not (fault.error_class and fault.reason):
            raise AssertionError("a fault without a class or a reason") from fault
        return False


def cells(image: Any) -> Any:
    """An image as name -> value."""
    return None if image is None else {c["name"]: c["value"] for c in image}
