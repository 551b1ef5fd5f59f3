"""Open-protocol: length-framed JSON keys and values, many events a message (docs/reading.md).

The key is the 8-byte version 1 and then frames, the value is frames, as many: a frame is an 8-byte length and a JSON
object. A key defines its value: ``t`` 1 a row, 2 a DDL statement, 3 a watermark, which has an empty value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import NoReturn

from ticdc_lab.codecs.event import Cell, Codec, Event, Malformed
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.open_types import (
    AS_BASE64,
    AS_FLOAT,
    AS_INTEGER,
    AS_QUOTED,
    AS_TEXT,
    FLOAT_CODE,
    form_of,
    held_by_code,
    type_text,
)
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.plain.json_text import (
    FALSE,
    LIST,
    MINUS,
    NULL,
    OBJECT,
    OBJECT_END,
    QUOTE,
    TRUE,
    JsonFault,
    after_space,
    at_place,
    base64_text,
    first,
    first_member,
    float_text,
    go_quoted_hex,
    holds,
    int64_of,
    integer_text,
    literal_end,
    next_member,
    number_end,
    read_name,
    read_text,
    value_end,
)
from ticdc_lab.codecs.values import single_text

VERSION = (1).to_bytes(8, "big")
ROW_KEY, DDL_KEY, WATERMARK_KEY = 1, 2, 3
BINARY_FLAG, UNSIGNED_FLAG = 1, 128
_FIELDS = (b'"t"', b'"h"', b'"f"', b'"v"')
_BYTE_MAX = 255
_FRAME = 8
"""Bytes of a frame's length."""


def codec(known: Known) -> Codec:
    """Messages to events; nothing beside them is needed but the bounds."""
    return partial(decode, bounds=known.bounds)


def decode(key: bytes | None, value: bytes | None, bounds: Bounds = BOUNDS) -> Sequence[Event]:
    """The events of a message, one for each frame of its key."""
    if key is None:
        _refuse("key", faults.MISSING_KEY, 0)
    if value is None:
        _refuse("value", faults.NULL_VALUE, 0)
    if not key.startswith(VERSION):
        _refuse("key", faults.BAD_VERSION, 0)
    k, v, events = len(VERSION), 0, list[Event]()
    if k == len(key):
        _refuse("key", faults.KEYS_AND_VALUES, k)
    while k < len(key):
        k_stop = _frame_end("key", key, k)
        if v >= len(value):
            _refuse("key", faults.KEYS_AND_VALUES, k)
        v_stop = _frame_end("value", value, v)
        events.append(_event(key[k + _FRAME : k_stop], k + _FRAME, value[v + _FRAME : v_stop], v + _FRAME, bounds))
        k, v = k_stop, v_stop
    if v != len(value):
        _refuse("value", faults.KEYS_AND_VALUES, v)
    return events


def _refuse(part: str, code: int, at: int) -> NoReturn:
    raise at_place(part, JsonFault(code, at))


def _frame_end(part: str, b: bytes, p: int) -> int:
    n = int.from_bytes(b[p : p + _FRAME], "big")
    if p + _FRAME > len(b) or n > len(b) - p - _FRAME:
        _refuse(part, faults.TRUNCATED_FRAME, p)
    return p + _FRAME + n


def _event(key: bytes, k: int, value: bytes, v: int, bounds: Bounds) -> Event:
    """One event of its two frames, which begin at ``k`` and ``v``."""
    part, begin = "key", k
    try:
        kind, event = _read_key(key)
        part, begin = "value", v
        if kind == DDL_KEY:
            _read_ddl(value, event)
        elif kind == ROW_KEY:
            _read_row(value, event, bounds.columns)
            event.size = 2 * _FRAME + len(key) + len(value)
        elif value:
            raise JsonFault(faults.TRAILING_BYTES, 0)
    except JsonFault as fault:
        found = _within(part, begin, fault)
        if fault.code != faults.EMPTY_ROW:
            raise found from None
        event.fault = found
    return event


def _within(part: str, begin: int, fault: JsonFault) -> Malformed:
    return at_place(part, JsonFault(fault.code, begin + fault.at))


def _read_key(b: bytes) -> tuple[int, Event]:
    """What kind of message it is, and the event without its content."""
    p = after_space(b, 0)
    if first(b, p) != OBJECT:
        raise JsonFault(faults.BAD_TYPE, 0)
    event, kind, seen, only, claim = Event(S.ROW), -1, set[str](), False, False
    p, more = first_member(b, p, OBJECT_END)
    while more:
        name, p = read_name(b, p)
        q = value_end(b, p)
        if name in ("ts", "scm", "tbl", "t", "ptn", "ccl"):  # TiCDC writes ohk twice: with a claim check true and false
            if name in seen:
                raise JsonFault(faults.DUPLICATE_KEY, p)
            seen.add(name)
        if name == "ts":
            event.commit_ts = _natural(b, p, q)
        elif name == "scm":
            event.schema_name = _text(b, p)
        elif name == "tbl":
            event.table_name = _text(b, p)
        elif name == "t":
            kind = _natural(b, p, q, _BYTE_MAX)
        elif name == "ptn":
            event.table_id = None if b[p] == NULL else _integer(b, p, q)
        elif name == "ohk":
            only |= _truth(b, p)
        elif name == "ccl" and b[p] != NULL:
            claim = bool(_text(b, p))
        p, more = next_member(b, q, OBJECT_END)
    _require_end(b, p)
    if "ts" not in seen or kind < 0:
        raise JsonFault(faults.MISSING_FIELD, 0)
    if kind not in (ROW_KEY, DDL_KEY, WATERMARK_KEY):
        raise JsonFault(faults.UNKNOWN_TYPE, 0)
    event.incomplete = S.INCOMPLETE_NAMES[S.CLAIM_CHECK_MISSING if claim else S.HANDLE_KEY_ONLY if only else 0]
    if kind == WATERMARK_KEY:
        event.kind, event.schema_name, event.table_name = S.WATERMARK, None, None
    elif event.schema_name is None or event.table_name is None:
        raise JsonFault(faults.MISSING_FIELD, 0)
    return kind, event


def _read_ddl(b: bytes, event: Event) -> None:
    """Read ``{"q": statement, "t": type}``."""
    event.kind = S.DDL
    p, more = first_member(b, _object(b), OBJECT_END)
    while more:
        name, p = read_name(b, p)
        q = value_end(b, p)
        if name == "q":
            text = _text(b, p)
            _require_first(event.query, p)
            event.query = text
        elif name == "t":
            _natural(b, p, q)
            _require_first(event.ddl_type, p)
            event.ddl_type = b[p:q].decode()
        p, more = next_member(b, q, OBJECT_END)
    _require_end(b, p)
    if event.query is None or event.ddl_type is None:
        raise JsonFault(faults.MISSING_FIELD, 0)


def _require_first(found: str | None, p: int) -> None:
    if found is not None:
        raise JsonFault(faults.DUPLICATE_KEY, p)


def _read_row(b: bytes, event: Event, most: int) -> None:
    """Read ``{"u": image}`` of an insert, ``{"u": image, "p": image before}`` of an update, ``{"d": image}``."""
    images: dict[str, list[Cell]] = {}
    seen = set[str]()
    p, more = first_member(b, _object(b), OBJECT_END)
    any_member = more
    while more:
        name, p = read_name(b, p)
        q = -1
        if name in ("u", "p", "d"):
            if name in seen:
                raise JsonFault(faults.DUPLICATE_KEY, p)
            seen.add(name)
            if first(b, p) == OBJECT:
                images[name], q, unnamed = _read_image(b, p, most, unnamed=name == "p")
                if unnamed and event.incomplete is None:
                    event.incomplete = S.INCOMPLETE_NAMES[S.BEFORE_UNNAMED]
            elif p < len(b) and b[p] != NULL:
                raise JsonFault(faults.BAD_TYPE, p)
        p, more = next_member(b, value_end(b, p) if q < 0 else q, OBJECT_END)
    _require_end(b, p)
    op = {("u",): S.INSERT, ("p", "u"): S.UPDATE, ("d",): S.DELETE}.get(tuple(sorted(images)))
    if op is None:
        raise JsonFault(faults.MISSING_FIELD if any_member else faults.EMPTY_ROW, 0)
    event.op, event.columns, event.before = op, images.get("u"), images.get("p", images.get("d"))


def _read_image(b: bytes, p: int, most: int, *, unnamed: bool) -> tuple[list[Cell], int, bool]:
    """Read ``{"column": {"t": type, "h": in the handle key, "f": flags, "v": value}, ..}``.

    Where ``unnamed``, the fields of a column may come without the column's name, as TiCDC writes with
    `only-output-updated-columns` what was before a NULL: they are stepped over, and reported.
    """
    start, cells, names, found = p, list[Cell](), set[str](), False
    p, more = first_member(b, p, OBJECT_END)
    while more:
        if len(cells) >= most:
            raise JsonFault(faults.TOO_LARGE, p)
        raw = b[p : p + 3]
        name, p = read_name(b, p)
        if unnamed and raw in _FIELDS and first(b, p) not in (OBJECT, LIST, -1):
            found = True
            p, more = next_member(b, value_end(b, p), OBJECT_END)
            continue
        cell, q = _read_column(b, p, name)
        cells.append(cell)
        names.add(name)
        p, more = next_member(b, q, OBJECT_END)
    if len(names) < len(cells):
        raise JsonFault(faults.DUPLICATE_KEY, start)
    return cells, p, found


def _read_column(b: bytes, p: int, column: str) -> tuple[Cell, int]:
    start, code, flags, handle = p, -1, -1, False
    v = v_stop = -1
    if first(b, p) != OBJECT:
        raise JsonFault(faults.BAD_TYPE, p)
    seen = set[str]()
    p, more = first_member(b, p, OBJECT_END)
    while more:
        name, p = read_name(b, p)
        if name not in ("t", "h", "f", "v"):
            p, more = next_member(b, value_end(b, p), OBJECT_END)
            continue
        if name in seen:
            raise JsonFault(faults.DUPLICATE_KEY, p)
        seen.add(name)
        q = _field_end(b, p, name)
        if name == "t":
            code = _natural(b, p, q, _BYTE_MAX)
        elif name == "f":
            flags = _natural(b, p, q)
        elif name == "h":
            handle = _truth(b, p)
        else:
            v, v_stop = p, q
        p, more = next_member(b, q, OBJECT_END)
    if code >= 0 and v >= 0 and flags < 0:
        raise JsonFault(faults.NO_FLAGS, start)
    if code < 0 or v < 0:
        raise JsonFault(faults.MISSING_FIELD, start)
    binary = bool(flags & BINARY_FLAG)
    mysql_type = _type_text(code, binary, bool(flags & UNSIGNED_FLAG))
    if not mysql_type:
        raise JsonFault(faults.UNKNOWN_TYPE, v)
    return (column, mysql_type, _value(b, v, v_stop, code, binary), handle, flags), p


@cache
def _type_text(code: int, binary: bool, unsigned: bool) -> str:
    return type_text(code, binary=binary, unsigned=unsigned)


def _field_end(b: bytes, p: int, name: str) -> int:
    """Position after a field of a column, which is no list and no object."""
    c = first(b, p)
    if c == QUOTE:
        return read_text(b, p)[1]
    if c == MINUS or 0x30 <= c <= 0x39:
        return number_end(b, p)
    if c < 0 or (name == "v" and c in (OBJECT, LIST)):
        raise JsonFault(faults.BAD_TYPE, p)
    return literal_end(b, p)


def _value(b: bytes, p: int, q: int, code: int, binary: bool) -> str | None:
    """The value of a column as text."""
    if b[p] == NULL:
        return None
    form = form_of(code)
    if b[p] == QUOTE:
        text, _ = read_text(b, p)
        if form == AS_TEXT or (form == AS_QUOTED and not binary):
            return _fitting(text, text, code, p)
        if form == AS_QUOTED:
            return go_quoted_hex(text, p)
        if form == AS_BASE64:
            return base64_text(text, binary, p)
    elif b[p] not in (TRUE, FALSE):
        if form == AS_INTEGER:
            text = b[p:q].decode()
            return _fitting(integer_text(text, p), text, code, p)
        if form == AS_FLOAT:
            text = float_text(b[p:q].decode(), p)
            return single_text(text) if code == FLOAT_CODE else text
    raise JsonFault(faults.BAD_TYPE, p)


def _fitting(shown: str, written: str, code: int, p: int) -> str:
    """What is shown of a text, which must fit the type."""
    if not holds(held_by_code(code), written):
        raise JsonFault(faults.NOT_OF_TYPE, p)
    return shown


def _object(b: bytes) -> int:
    """Where the object begins that a value is."""
    p = after_space(b, 0)
    if p >= len(b):
        raise JsonFault(faults.NOT_JSON, 0)
    if b[p] != OBJECT:
        raise JsonFault(faults.BAD_TYPE, 0)
    return p


def _require_end(b: bytes, p: int) -> None:
    if after_space(b, p) != len(b):
        raise JsonFault(faults.TRAILING_BYTES, p)


def _text(b: bytes, p: int) -> str:
    if b[p] != QUOTE:
        raise JsonFault(faults.BAD_TYPE, p)
    return read_text(b, p)[0]


def _truth(b: bytes, p: int) -> bool:
    if b[p] not in (TRUE, FALSE):
        raise JsonFault(faults.BAD_TYPE, p)
    return b[p] == TRUE


def _integer(b: bytes, p: int, q: int) -> int:
    number = int64_of(b, p, q)
    if number is None:
        raise JsonFault(faults.OUT_OF_RANGE, p)
    return number


def _natural(b: bytes, p: int, q: int, largest: int = (1 << 63) - 1) -> int:
    number = _integer(b, p, q)
    if b[p] == MINUS or number > largest:
        raise JsonFault(faults.OUT_OF_RANGE, p)
    return number
