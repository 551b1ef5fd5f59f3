"""mq-v1, the protocol of TiCDC's first design ("TiCDC MQ (Kafka) Protocol", section 消息类型).

What the design leaves open is settled as in :mod:`ticdc_lab.encode.mq_v1`. A row is an upsert or a delete: ``update``
is decoded as an update without the image before, for the message does not show whether the row was there.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from ticdc_lab.codecs import values
from ticdc_lab.codecs.event import Cell, Codec, Event, Malformed
from ticdc_lab.codecs.fields import integer, members, object_of, text
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known
from ticdc_lab.events.mysql_types import BY_MQ_V1, BYTES, FLOAT, INTEGER, LONG_BYTES, MySQLType

_NUMBERS = range(-(1 << 63), 1 << 64)
_PARTITIONS = range(1, 1 << 31)


def codec(known: Known) -> Codec:
    """Messages to events; nothing beside them is needed."""
    return decode


def decode(key: bytes | None, value: bytes | None) -> Sequence[Event]:
    """One event of a message."""
    if key is None:
        raise Malformed("missing-key", "expected a message key, found none")
    head = object_of(key, "key")
    kind = text(head, "type")
    if kind == "Admin":
        return [_admin(members(object_of(value, "value"), "value"))]
    if kind not in ("Row", "DDL", "Resolved"):
        raise Malformed("unknown-type", f"key: type is {kind!r}; expected Row, DDL, Resolved or Admin")
    ts = integer(head, "ts")
    if ts < 0:
        raise Malformed("out-of-range", f"key: ts is {ts}; expected a TSO")
    if kind == "Resolved":
        if value:
            raise Malformed("trailing-bytes", f"value: expected none in a Resolved message, found {len(value)} bytes")
        return [Event(S.WATERMARK, ts)]
    schema, table, body = text(head, "schema"), text(head, "table"), object_of(value, "value")
    if kind == "DDL":
        return [Event(S.DDL, ts, schema, table, query=text(body, "query"))]
    return [_row(Event(S.ROW, ts, schema, table), body)]


def _admin(body: Mapping[str, Any]) -> Event:
    count = integer(body, "partition")
    if count not in _PARTITIONS:
        raise Malformed("out-of-range", f"value: partition is {count}; expected a number of partitions")
    return Event(S.ADMIN, partition_count=count)


def _row(event: Event, body: Mapping[str, Any]) -> Event:
    update, delete = body.get("update"), body.get("delete")
    if (update is None) == (delete is None):
        raise Malformed("missing-field", f"value: expected update or delete, found {', '.join(sorted(body)) or 'none'}")
    if delete is not None:
        event.op, event.before = S.DELETE, _image(delete)
    else:
        event.op, event.columns = S.UPDATE, _image(update)
    return event


def _image(image: Any) -> list[Cell]:
    return [_column(name, members(cell, f"column {name!r}")) for name, cell in members(image, "image").items()]


def _column(name: str, cell: Mapping[str, Any]) -> Cell:
    written = cell.get("type")
    kind = BY_MQ_V1.get(written) if isinstance(written, str) else None
    if kind is None:
        written = text(cell, "type")
        raise Malformed(
            "unknown-type", f"column {name!r}: {written!r} is no type; expected one of {', '.join(BY_MQ_V1)}"
        )
    if "value" not in cell:
        raise Malformed("missing-field", f"column {name!r}: expected a value, which may be null; found none")
    unique, value = cell.get("unique", False), cell["value"]
    if not isinstance(unique, bool):
        raise Malformed("bad-type", f"column {name!r}: unique is {unique!r}; expected true or false")
    try:
        shown = None if value is None else _text(kind, value)
    except (TypeError, ValueError) as fault:
        raise Malformed("bad-type", f"column {name!r} ({written}): {str(value)[:60]!r} is no such value") from fault
    return name, kind.name, shown, unique, -1


def _text(kind: MySQLType, value: Any) -> str:
    """The text of a value that is not NULL; TypeError or ValueError where it is of another kind."""
    if kind.form == INTEGER and isinstance(value, int) and not isinstance(value, bool) and value in _NUMBERS:
        return str(value)
    if kind.form == FLOAT and isinstance(value, int | float) and not isinstance(value, bool):
        return values.float_text(value) if kind.name == "float" else values.double_text(value)
    if not isinstance(value, str) or kind.name == "null":
        raise TypeError
    if kind.form in (BYTES, LONG_BYTES):
        return values.binary_text(b64decode(value, validate=True))
    if kind.form == FLOAT or (kind.form == INTEGER and kind.name not in ("enum", "set")):
        raise TypeError
    return value
