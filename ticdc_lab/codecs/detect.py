"""Which protocol a topic is in, told from a few of its messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.known import NOTHING, Known
from ticdc_lab.codecs.registry import PROTOCOLS, require_protocol
from ticdc_lab.errors import ProtocolError

_SCHEMA_MISSING = ("schema-unknown", "registry-unreachable")
_OPEN_PROTOCOL = (1).to_bytes(8, "big")
"""What each of its keys begins with: the version."""


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
    batches = sample.combine_chunks().to_batches()
    offline = replace(known, registry_url="")  # no request for what is no Avro
    tried = {p: _recognised(batches, p, offline) for p in _candidates(sample, protocol)}
    best = max(tried, key=lambda p: tried[p].num_rows, default=protocol)
    decoded = tried.get(best)
    if best == "avro" and decoded is not None and known.registry_url:
        decoded = _recognised(batches, best, known)
    if protocol == "auto" and not sample.num_rows:
        raise ProtocolError(
            f"{source}: no message was found in it, by which the protocol could be told.",
            hint="A capture file has one JSON object a line, with topic, partition, offset, key and value (base64).",
        )
    if protocol == "auto" and not any(events.num_rows for events in tried.values()):
        raise ProtocolError(
            f"{source}: none of {sample.num_rows} messages looked at is {' or '.join(PROTOCOLS)}; "
            f"the first begins with {_beginning(sample)}.",
            hint="Name the protocol with --protocol if you know it; a Kafka topic may also hold what others wrote.",
        )
    read = None if decoded is None else decoded.filter(pc.is_null(decoded["error_class"]))
    return Detected(best, read is None or not read.num_rows or _has_commit_ts(read))


def _candidates(sample: pa.Table, protocol: str) -> tuple[str, ...]:
    """Protocols worth trying: open-protocol's compiled decoder need not be loaded for what has no such key."""
    if not sample.num_rows:
        return ()
    if protocol != "auto":
        return (protocol,)
    keyed = pc.any(pc.starts_with(sample["key"], pattern=_OPEN_PROTOCOL)).as_py()
    return tuple(p for p in PROTOCOLS if keyed or p != "open-protocol")


def _recognised(batches: list[pa.RecordBatch], protocol: str, known: Known) -> pa.Table:
    """Messages that are decoded, or could be with a schema that neither the sample nor the caller has."""
    events = pa.Table.from_batches(decoder(protocol, known=known)(iter(batches)))
    known_form = pc.or_(pc.is_null(events["error_class"]), pc.is_in(events["error_class"], pa.array(_SCHEMA_MISSING)))
    return events.filter(pc.and_(known_form, pc.equal(events["seq"], 0)))


def _has_commit_ts(events: pa.Table) -> bool:
    """Told by rows where there are any: in maxwell a DDL has one, a row has none."""
    rows = events.filter(pc.equal(events["kind"], "row"))
    told = (rows if rows.num_rows else events)["commit_ts"]
    return bool(told.null_count < len(told))


def _beginning(sample: pa.Table) -> str:
    if not sample.num_rows:
        return "nothing: there are none"
    first = sample.slice(0, 1).to_pylist()[0]
    return f"key {(first['key'] or b'')[:16]!r}, value {(first['value'] or b'')[:40]!r}"
