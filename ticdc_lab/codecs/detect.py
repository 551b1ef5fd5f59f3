"""Which protocol a topic is in, told from a few of its messages."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.decode import decoder, require_protocol
from ticdc_lab.codecs.known import NOTHING, Known
from ticdc_lab.codecs.registry import PROTOCOLS
from ticdc_lab.errors import ProtocolError

_SCHEMA_MISSING = ("schema-unknown", "registry-unreachable")


@dataclass(frozen=True, slots=True)
class Detected:
    """What a sample says: the protocol, and whether its events carry a commit_ts."""

    protocol: str
    has_commit_ts: bool


def detect(sample: pa.Table, *, protocol: str = "auto", source: str = "the source", known: Known = NOTHING) -> Detected:
    """Tell the protocol from a sample of messages by decoding it.

    Parameters
    ----------
    sample
        Messages with columns topic, partition, offset, key, value; some dozens are enough.
    protocol
        ``auto``, or a protocol that is taken as given.
    source
        What the error message calls the source.
    known
        What some protocols need beside the messages.

    Raises
    ------
    ProtocolError
        No protocol decodes any message of the sample, or the protocol given is unknown.
    """
    if protocol != "auto":
        require_protocol(protocol)
    batch = sample.combine_chunks().to_batches()
    best, decoded = "", None
    for candidate in PROTOCOLS if protocol == "auto" else (protocol,):
        events = pa.Table.from_batches(decoder(candidate, known=known)(iter(batch))) if batch else None
        events = events.filter(_recognised(events)) if events is not None else None
        if events is not None and (decoded is None or events.num_rows > decoded.num_rows):
            best, decoded = candidate, events
    if protocol == "auto" and not sample.num_rows:
        raise ProtocolError(
            f"{source}: no message was found in it, by which the protocol could be told.",
            hint="A capture file has one JSON object a line, with topic, partition, offset, key and value (base64).",
        )
    if protocol == "auto" and (decoded is None or decoded.num_rows == 0):
        raise ProtocolError(
            f"{source}: none of {sample.num_rows} messages looked at is {' or '.join(PROTOCOLS)}; "
            f"the first begins with {_beginning(sample)}.",
            hint="Name the protocol with --protocol if you know it; a Kafka topic may also hold what others wrote.",
        )
    known_ts = decoded is None or decoded["commit_ts"].null_count < pc.sum(pc.is_null(decoded["error_class"])).as_py()
    return Detected(best or protocol, decoded is None or decoded.num_rows == 0 or known_ts)


def _recognised(events: pa.Table) -> pa.Array:
    """Messages that were decoded, or could be with a schema that this sample or the caller does not bring."""
    return pc.or_(pc.is_null(events["error_class"]), pc.is_in(events["error_class"], pa.array(_SCHEMA_MISSING)))


def _beginning(sample: pa.Table) -> str:
    if not sample.num_rows:
        return "nothing: there are none"
    first = sample.slice(0, 1).to_pylist()[0]
    return f"key {(first['key'] or b'')[:16]!r}, value {(first['value'] or b'')[:40]!r}"
