"""Maxwell as classic TiCDC writes it: JSON objects in a row, without anything between them.

What its encoder does (pingcap/tiflow, ``pkg/sink/codec/maxwell``):

- The key of a row message is a version of 8 bytes and no more; it is not read. So a row has no commit_ts: its ``ts``
  is in whole seconds, and nothing else shows the time. A DDL has the commit_ts itself as its ``ts``.
- A value holds as many rows as the encoder had at hand. There is no watermark.
- A delete has its row in ``old``. An update's ``old`` has the columns that changed, and is absent where none did.
  Maxwell itself (zendesk/maxwell, ``docs/docs/dataformat.md``) has the row of a delete in ``data``, without ``old``,
  and writes the ``ts`` of a DDL in milliseconds, which is no commit_ts.
- No type and no key is given. Numbers are numbers (ENUM, SET and BIT too), bytes are base64, which looks like
  text and which stays as it is. A DOUBLE of 1e15 or more without a fraction is written like an integer, and stays so.
  A FLOAT had a double's digits up to v6.5.1, and in v6.6; no DDL corrects it, as no row has a commit_ts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ticdc_lab.codecs import values
from ticdc_lab.codecs.event import Codec, Column, Event, Malformed
from ticdc_lab.codecs.fields import integer, members, object_of, require, text
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known

_OPS = {"insert": S.INSERT, "update": S.UPDATE, "delete": S.DELETE}

_LEAST_TSO = 1 << 48
"""A lesser number is a time in milliseconds up to the year 10,889; as a TSO it is one of 1970."""

# Where one object ends and the next begins. A JSON string cannot have the second quote.
_NEXT = re.compile(rb'(?<=\})(?=\{"database":)')


def codec(known: Known) -> Codec:
    """Messages to events; nothing beside them is needed."""
    return decode


def decode(key: bytes | None, value: bytes | None) -> Sequence[Event]:
    """The events of a message: one DDL, or rows."""
    if value is None:
        raise Malformed("null-value", "value: expected JSON objects, found none")
    return [_event(object_of(part, "value")) for part in _NEXT.split(value)]


def _event(message: Mapping[str, Any]) -> Event:
    kind, schema, table, ts = (
        text(message, "type"), text(message, "database"), text(message, "table"), integer(message, "ts"),
    )  # fmt: skip
    if kind in _OPS:
        op = _OPS[kind]
        columns = None if op == S.DELETE else _image(require(message, "data"), "data")
        before = None
        if op == S.DELETE:
            name = "data" if "old" not in message and message.get("data") else "old"
            before = _image(require(message, name), name)
        elif op == S.UPDATE:
            before = _image(message.get("old", {}), "old")
        return Event(S.ROW, None, schema, table, op=op, columns=columns, before=before)
    if "def" not in message:
        raise Malformed("unknown-type", f"type is {kind!r}, and no table is defined; expected insert, update or delete")
    members(message["def"], "def")
    return Event(S.DDL, ts if ts >= _LEAST_TSO else None, schema, table, query=text(message, "sql"), ddl_type=kind)


def _image(image: Any, name: str) -> list[Column]:
    return [
        Column(column, None, None if value is None else _shown(column, value))
        for column, value in members(image, name).items()
    ]


def _shown(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return values.double_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Malformed("bad-type", f"column {column!r}: a {type(value).__name__} is none of the forms of this format")
