"""Events through an encoder and back through the decoder, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.encode.encoders import writer
from ticdc_lab.events.schema import DECODED, EVENTS

Event = dict[str, Any]
PLACE = ("topic", "partition", "offset", "seq", "protocol")
SCHEMA = pa.schema(
    [*arrow_schema(EVENTS), pa.field("target_partition", pa.int32()), pa.field("dispatch_key", pa.string())]
)


def batch_of(events: Sequence[Event], *, partition: int = 0) -> pa.RecordBatch:
    """Events as the writer takes them; the key is the table unless the event has one."""
    rows = []
    for e in events:
        key = e.get("dispatch_key", e.get("table_name")) if e["kind"] == "row" else None
        rows.append({f.name: e.get(f.name) for f in SCHEMA} | {"target_partition": partition, "dispatch_key": key})
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def messages_of(events: Sequence[Event], protocol: str, *, batch: int = 10_000, most: int = 16) -> list[dict[str, Any]]:
    """The messages, from batches of ``batch`` events each."""
    pieces = (batch_of(events[i : i + batch]) for i in range(0, len(events), batch))
    return [m for part in writer(protocol, max_batch_size=most)(pieces) for m in part.to_pylist()]


def decoded(messages: Sequence[dict[str, Any]], protocol: str) -> list[Event]:
    """Events of messages, which must all be decoded."""
    n = len(messages)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * n, pa.string()),
            pa.array([m["partition"] for m in messages], pa.int32()),
            pa.array([m["offset"] for m in messages], pa.int64()),
            pa.array([m["key"] for m in messages], pa.binary()),
            pa.array([m["value"] for m in messages], pa.binary()),
        ],
        names=["topic", "partition", "offset", "key", "value"],
    )
    found = [e for part in decoder(protocol)(iter([batch])) for e in part.to_pylist()]
    assert [e["reason"] for e in found if e["error_class"]] == []
    return [{name: e[name] for name in DECODED.names} for e in found]


def there_and_back(events: Sequence[Event], protocol: str) -> list[Event]:
    """What is left of events that were written and read again, without their places and hashes."""
    return [content(e) for e in decoded(messages_of(events, protocol), protocol)]


def content(event: Event) -> Event:
    """What an event shows, no matter what message it is in."""
    return {name: event.get(name) for name in EVENTS.names if name not in PLACE}


def without(event: Event, *lost: str) -> Event:
    """An event as it is after these fields are lost; ``columns.x`` is a field of each column of both images."""
    out = content(event)
    for name in lost:
        if name.startswith("columns."):
            inner = name.removeprefix("columns.")
            for image in ("columns", "before"):
                if out[image] is not None:
                    out[image] = [c | {inner: None} for c in out[image]]
        else:
            out[name] = None
    return out


def column(name: str, mysql_type: str, value: str | None, *, key: bool = False, flags: int | None = None) -> Event:
    """One column of an image."""
    return {"name": name, "mysql_type": mysql_type, "value": value, "is_key": key, "flags": flags}


def row(op: str, after: Any = None, before: Any = None, *, ts: int = 470_603_993_587_122_176, **more: Any) -> Event:
    """A row change of s.t."""
    names = {"kind": "row", "commit_ts": ts, "schema_name": "s", "table_name": "t", "op": op}
    return names | {"columns": after, "before": before} | more
