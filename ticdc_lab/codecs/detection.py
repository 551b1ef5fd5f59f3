"""The protocol of messages, detected by decoding some of them; and which other protocol those in quarantine are in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.decode import decoder, is_empty
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.known import NOTHING, Known
from ticdc_lab.codecs.registry import FRAMED, PROTOCOLS, require_protocol
from ticdc_lab.errors import ProtocolError
from ticdc_lab.settings.keys import protocol_named

_SCHEMA_MISSING = ("schema-unknown", "registry-unreachable")
_OPEN_PROTOCOL = (1).to_bytes(8, "big")
"""What each of its keys begins with: the version."""


@dataclass(frozen=True, slots=True)
class Detected:
    """What a sample shows: the protocol, and whether its events carry a commit_ts; the first event of each message."""

    protocol: str
    has_commit_ts: bool
    events: pa.Table | None = field(default=None, repr=False, compare=False)


def detect(sample: pa.Table, *, protocol: str = "auto", source: str = "the source", known: Known = NOTHING) -> Detected:
    """Detect the protocol of a sample of messages by decoding it.

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
    protocol = protocol_named(protocol)
    if protocol != "auto":
        require_protocol(protocol)
    batches = sample.combine_chunks().to_batches()
    offline = replace(known, registry_url="")  # no request for what is no Avro
    tried: dict[str, pa.Table] = {}
    for candidate in _candidates(sample, protocol, known):
        tried[candidate] = _recognised(batches, candidate, offline)
        if tried[candidate].num_rows == sample.num_rows:  # no other can have more, and of equals the first is taken
            break
    best = max(tried, key=lambda p: tried[p].num_rows, default=protocol)
    decoded = tried.get(best)
    if best in FRAMED and decoded is not None and known.registry_url:
        asked = {p: _recognised(batches, p, known) for p in (FRAMED if protocol == "auto" else (best,))}
        best = max(asked, key=lambda p: asked[p].num_rows)
        decoded = asked[best]
    if protocol == "auto" and not sample.num_rows:
        raise ProtocolError(
            f"{source}: it contains no message, so the protocol cannot be detected.",
            hint="A .jsonl capture has one JSON object a line, with topic, partition, offset, key and value (base64).",
        )
    if protocol == "auto" and pc.all(is_empty(sample)).as_py():
        raise ProtocolError(
            f"{source}: none of {sample.num_rows} messages looked at has a key or a value, so nothing can be decoded.",
            hint="Dump the topic with keys and values: ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz",
        )
    if protocol == "auto" and not any(events.num_rows for events in tried.values()):
        if not any(sample["key"].to_pylist()) and any(map(_is_framed, sample["value"].to_pylist())):
            raise ProtocolError(
                f"{source}: the values are open-protocol's, and none of {sample.num_rows} messages looked at has a "
                "key, which contains table and commit_ts.",
                hint="Dump the topic with its keys: ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz",
            )
        _require_values(sample, source, _keys_of_text(sample))
        raise ProtocolError(
            f"{source}: none of {sample.num_rows} messages looked at is {' or '.join(PROTOCOLS)}; "
            f"the first begins with {_beginning(sample)}.",
            hint="Name the protocol with --protocol if you know it; other producers may also write to a Kafka topic.",
        )
    if best in FRAMED:
        _require_values(sample, source, _keys_of_avro(sample, known)[0])
    read = None if decoded is None else decoded.filter(pc.is_null(decoded["error_class"]))
    return Detected(best, read is None or not read.num_rows or _has_commit_ts(read), read)


def _require_values(sample: pa.Table, source: str, evidence: str) -> None:
    if evidence:
        raise ProtocolError(
            f"{source}: none of {sample.num_rows} messages looked at has a key, and their values are keys: {evidence}.",
            hint="Dump the topic with keys and values: ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz",
        )


def _keys_of_text(sample: pa.Table) -> str:
    """What shows that the values of a sample are keys of open-protocol or debezium; empty where nothing does."""
    if pc.any(pc.greater(pc.binary_length(sample["key"]), 0)).as_py():
        return ""
    values = sample["value"].drop_null().to_pylist()
    if any(value.startswith(_OPEN_PROTOCOL) and _is_framed(value[8:]) for value in values):
        return "they begin with the version and the table of open-protocol's keys"
    named = (re.search(rb'"name":"([^"]+\.Key)"', value) for value in values if b'"payload"' in value[:4096])
    found = next((name[1].decode(errors="replace") for name in named if name), None)
    return "" if found is None else f"their schema is debezium's `{found}`"


def could_be_keys(sample: pa.Table, known: Known) -> tuple[str, ...]:
    """The warning for a sample of avro whose values may be keys."""
    return (NO_KEYS,) if _keys_of_avro(sample, known)[1] else ()


NO_KEYS = (
    "No message looked at has a key, and nothing shows that the values are no keys. If only keys were dumped, as by "
    "kcat -f %k, no row of this log is real. A file for --schema-registry shows it if it has all schemas of the topic, "
    "each with its `subject`."
)


def _keys_of_avro(sample: pa.Table, known: Known) -> tuple[str, bool]:
    """What shows that values of a sample without keys are keys; and whether they could be, where nothing does."""
    if pc.any(pc.greater(pc.binary_length(sample["key"]), 0)).as_py():
        return "", False
    from ticdc_lab.codecs.avro import unframed  # fastavro: a log with keys does not wait for it
    from ticdc_lab.codecs.schema_registry import Registry

    registry, ids = Registry(known), set[str]()
    for value in sample["value"].drop_null().to_pylist():
        with suppress(Malformed):
            ids.add(unframed(value, "value", known.bounds.inflated)[0])
    shown = {schema_id: registry.is_of_keys(schema_id) for schema_id in sorted(ids)}
    of_keys = [schema_id for schema_id, is_key in shown.items() if is_key]
    subjects = sorted(set().union(*(registry.subjects(schema_id) for schema_id in of_keys)))[:3]
    evidence = f"the schema registry has their schemas as {', '.join(subjects)}" if subjects else (
        f"their schemas ({', '.join(of_keys[:3])}) have the key's columns alone" if of_keys else ""
    )  # fmt: skip
    return evidence, bool(ids) and set(shown.values()) == {None}


def _is_framed(value: bytes | None) -> bool:
    """Whether a value begins with the length of a JSON object, as one of open-protocol does."""
    return value is not None and value[8:9] == b"{" and value[: 8 + int.from_bytes(value[:8], "big")].endswith(b"}")


def other_protocol(quarantined: pa.Table, *, protocol: str, known: Known = NOTHING) -> tuple[str, int] | None:
    """Which other protocol most of the messages are in that could not be decoded, and how many of them; else None.

    ``quarantined``: some messages: topic, partition, offset, key, value. ``protocol``: by which they were decoded in
    vain. ``known``: as for :func:`detect`.
    """
    whole = quarantined.filter(pc.is_valid(quarantined["value"])).combine_chunks()
    if not whole.num_rows:
        return None
    offline = replace(known, registry_url="")
    # if only the schema is missing, the protocol fits: one with the same framing is no better
    mine = _recognised(whole.to_batches(), protocol, offline) if protocol in PROTOCOLS else whole[:0]  # csv is none
    own = {(e["topic"], e["partition"], e["offset"]) for e in mine.to_pylist()}
    places = zip(*(whole[c].to_pylist() for c in ("topic", "partition", "offset")), strict=True)
    whole = whole.filter(pa.array([place not in own for place in places], pa.bool_()))
    names = [p for p in _candidates(whole, "auto", known) if p != protocol]
    found = {p: _recognised(whole.to_batches(), p, offline) for p in names}
    if protocol in ("avro", "debezium-avro"):  # schemas are known: without one it may be any bytes that begin with 0
        found = {p: events.filter(pc.is_null(events["error_class"])) for p, events in found.items()}
    told = {p: events.num_rows for p, events in found.items()}
    best = max(told, key=lambda p: told[p], default="")
    return (best, told[best]) if best and 2 * told[best] > quarantined.num_rows else None


def protocols_of_files(heads: Mapping[str, pa.Table], *, protocol: str, known: Known = NOTHING) -> dict[str, list[str]]:
    """The files whose first messages are in each protocol, if there are several protocols; else nothing.

    ``heads``: some messages of each file. ``protocol``: the one that was detected in the first of them. ``known``: as
    for :func:`detect`. The empty text names no protocol: no message there is recognised.
    """
    offline, found = replace(known, registry_url=""), dict[str, list[str]]()
    for file, head in heads.items():
        if not head.num_rows or pc.all(is_empty(head)).as_py():
            continue
        own = protocol if _recognised(head.combine_chunks().to_batches(), protocol, offline).num_rows else ""
        with suppress(ProtocolError):
            own = own or detect(head, source=file, known=offline).protocol
        found.setdefault(own, []).append(file)
    return found if len(found.keys() - {""}) > 1 else {}


def _candidates(sample: pa.Table, protocol: str, known: Known) -> tuple[str, ...]:
    """Protocols worth trying: open-protocol's compiled decoder need not be loaded for what has no such key, and
    without any schema every framed value could be debezium's.
    """
    if not sample.num_rows:
        return ()
    if protocol != "auto":
        return (protocol,)
    keyed = pc.any(pc.starts_with(sample["key"], pattern=_OPEN_PROTOCOL)).as_py()
    without = {"open-protocol"} if not keyed else set()
    without |= set() if known.schemas or known.registry_url else {"debezium-avro"}
    return tuple(p for p in PROTOCOLS if p not in without)


def _recognised(batches: list[pa.RecordBatch], protocol: str, known: Known) -> pa.Table:
    """Messages that are decoded, or could be with a schema that neither the sample nor the caller has."""
    events = pa.Table.from_batches(decoder(protocol, known=known)(iter(batches)))
    known_form = pc.or_(pc.is_null(events["error_class"]), pc.is_in(events["error_class"], pa.array(_SCHEMA_MISSING)))
    return events.filter(pc.and_(known_form, pc.equal(events["seq"], 0)))


def _has_commit_ts(events: pa.Table) -> bool:
    """By rows where there are any: in maxwell a DDL has one, a row has none."""
    rows = events.filter(pc.equal(events["kind"], "row"))
    told = (rows if rows.num_rows else events)["commit_ts"]
    return bool(told.null_count < len(told))


def _beginning(sample: pa.Table) -> str:
    if not sample.num_rows:
        return "nothing: there are none"
    first = sample.slice(0, 1).to_pylist()[0]
    return f"key {(first['key'] or b'')[:16]!r}, value {(first['value'] or b'')[:40]!r}"
