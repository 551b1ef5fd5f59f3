"""Canal-json: one JSON object a message, every value a string (docs/reading.md).

``mysqlType`` and ``pkNames`` define the values in ``data`` and ``old``. What describes rows is read where it
stands if all it builds on came before it, as TiCDC writes it, and after all else if not: so the first fault in the text
is the one reported.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from ticdc_lab.codecs.event import Cell, Codec, Event, Outgrown
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.plain.json_text import (
    FALSE,
    LIST,
    LIST_END,
    NULL,
    OBJECT,
    OBJECT_END,
    QUOTE,
    TRUE,
    JsonFault,
    after_name,
    after_space,
    at_place,
    first,
    first_member,
    float_text,
    holds,
    int64_of,
    latin1_hex,
    literal_end,
    next_member,
    read_name,
    read_text,
    value_end,
)
from ticdc_lab.codecs.values import single_text
from ticdc_lab.events.mysql_types import BINARIES, BY_NAME, FINITE, NO_MYSQL_TYPE, OTHER_NAMES, SINGLE, held_by

_UNREAD = ("id", "es", "ts", "sqlType")
"""Fields of the format that are not read: they occur once, too."""
_ENVELOPE = ("database", "table", "pkNames", "isDdl", "type", "sql", "mysqlType", "old", "data", "_tidb")
_EXTENSION = ("commitTs", "watermarkTs", "onlyHandleKey", "claimCheckLocation", "rowkey")
_OPERATIONS = {"INSERT": S.INSERT, "UPDATE": S.UPDATE, "DELETE": S.DELETE}
_BYTES = -1
_CLASSES = {name: held_by(name) for name in (*BY_NAME, *OTHER_NAMES)} | dict.fromkeys(BINARIES, _BYTES)
"""By a type's name what fits it, or that its values are bytes."""
_BASE = re.compile(r"[^( ]*")
_MEMBER = re.compile(
    rb'"([^"\\\x00-\x1f\x80-\xff]*+)"[ \n\r\t]*+:[ \n\r\t]*+(?:"([^"\\\x00-\x1f\x80-\xff]*+)"|null)'
).match

_UTF8_BYTES = 4
"""Bytes that a character may take."""

Type = tuple[str, int]
"""A column's type, and what fits it."""
Place = tuple[int, int]


def codec(known: Known) -> Codec:
    """Messages to events; nothing beside them is needed but the bounds."""
    return partial(decode, bounds=known.bounds)


def decode(key: bytes | None, value: bytes | None, bounds: Bounds = BOUNDS) -> Sequence[Event]:
    """The events of a message: one, or as many as it has rows."""
    try:
        if value is None:
            raise JsonFault(faults.NULL_VALUE, 0)
        message = _Message(value, bounds)
        try:
            return message.events()
        except JsonFault:
            message.leave_what_outgrows()  # whose fault comes first
            raise
    except JsonFault as fault:
        raise at_place("value", fault) from None


@dataclass(slots=True)
class _Message:
    b: bytes
    bounds: Bounds
    places: dict[str, Place] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    types: dict[str, Type] | None = None
    keys: frozenset[str] | None = None
    data: list[list[Cell]] | None = None
    old: list[list[Cell]] | None = None

    def events(self) -> Sequence[Event]:
        b, places = self.b, self.places
        p = after_space(b, 0)
        if p >= len(b):
            raise JsonFault(faults.NOT_JSON, 0)
        if b[p] != OBJECT:
            raise JsonFault(faults.BAD_TYPE, p)
        p = self._locate(p, _ENVELOPE)
        if after_space(b, p) != len(b):
            raise JsonFault(faults.TRAILING_BYTES, p)
        if "_tidb" in places:
            self._locate(self._begins("_tidb", OBJECT), _EXTENSION)
        kind = self._text("type")
        if kind == "TIDB_WATERMARK":
            return [Event(S.WATERMARK, self._ts("watermarkTs"))]
        schema, table = self._text("database"), self._text("table")
        self._required("isDdl")
        if self._is("isDdl", TRUE):
            if "sql" not in self.places:
                raise JsonFault(faults.MISSING_FIELD, self.places["type"][0])
            query = self._text("sql")
            return [Event(S.DDL, self._optional_ts(), schema, table, query=query, ddl_type=kind)]
        self._begins("isDdl", FALSE)
        if kind not in _OPERATIONS:
            raise JsonFault(faults.UNKNOWN_TYPE, places["type"][0])
        return self._rows(_OPERATIONS[kind], schema, table)

    def _locate(self, p: int, known: tuple[str, ...]) -> int:
        """Find where the known fields of the object at ``p`` lie; null counts as absent. The position after it."""
        b = self.b
        p, more = first_member(b, p, OBJECT_END)
        while more:
            name, p = read_name(b, p)
            if name not in known:
                if name in _UNREAD and known is _ENVELOPE:
                    if name in self.seen:
                        raise JsonFault(faults.DUPLICATE_KEY, p)
                    self.seen.add(name)
                q = value_end(b, p)
            else:
                if name in self.seen:
                    raise JsonFault(faults.DUPLICATE_KEY, p)
                self.seen.add(name)
                q = self._read(name, p)
                if b[p] != NULL:
                    self.places[name] = p, q
            p, more = next_member(b, q, OBJECT_END)
        return p

    def _read(self, name: str, p: int) -> int:
        """Read what describes rows if all it builds on was read; else step over it."""
        rows = name in ("mysqlType", "data", "old") and first(self.b, p) not in (NULL, -1)
        if rows and self._is("isDdl", FALSE):
            op = _OPERATIONS.get(read_text(self.b, self.places["type"][0])[0]) if self._is("type", QUOTE) else None
            if op is not None and name == "mysqlType":
                return self._read_types(p)
            if op is not None and self.types is not None and "pkNames" in self.seen:
                self._read_keys()
                if name == "data":
                    return self._read_data(p)
                if op == S.UPDATE:
                    return self._read_old(p)
        return value_end(self.b, p)

    def _rows(self, op: int, schema: str, table: str) -> Sequence[Event]:
        for name in ("mysqlType", "data", "old") if op == S.UPDATE else ("mysqlType", "data"):
            self._required(name)
        # Read what was stepped over, in the order in which one builds on the other.
        if self.types is None:
            self._read_types(self.places["mysqlType"][0])
        self._read_keys()
        if self.data is None:
            self._read_data(self.places["data"][0])
        if op == S.UPDATE and self.old is None:
            self._read_old(self.places["old"][0])
        data, old = self.data or [], self.old or []
        if not data or (op == S.UPDATE and len(old) != len(data)):
            raise JsonFault(faults.MISSING_FIELD, self.places["data"][0])
        incomplete, ts = self._incomplete(), self._optional_ts()
        row_key, table_id = self._row_key() if "rowkey" in self.places and len(data) == 1 else (None, None)
        self.leave_what_outgrows(schema, table)
        events = []
        for i, image in enumerate(data):
            after, before = (None, image) if op == S.DELETE else (image, old[i] if op == S.UPDATE else None)
            row = Event(S.ROW, ts, schema, table, op=op, columns=after, before=before, incomplete=incomplete)
            row.row_key, row.table_id = row_key, table_id
            events.append(row)
        return events

    def _read_types(self, p: int) -> int:
        """Read ``mysqlType``."""
        b, start, types, twice = self.b, p, dict[str, Type](), False
        if b[p] != OBJECT:
            raise JsonFault(faults.BAD_TYPE, p)
        p, more = first_member(b, p, OBJECT_END)
        read = 0
        while more:
            if read >= self.bounds.columns:
                raise JsonFault(faults.TOO_LARGE, p)
            read += 1
            name, p = read_name(b, p)
            if first(b, p) != QUOTE:
                raise JsonFault(faults.BAD_TYPE, p)
            text, q = read_text(b, p)
            twice |= name in types
            types[name] = text, _CLASSES.get(_BASE.match(text)[0].lower(), NO_MYSQL_TYPE)  # type: ignore[index]
            p, more = next_member(b, q, OBJECT_END)
        if twice:
            raise JsonFault(faults.DUPLICATE_KEY, start)
        self.types = types
        return p

    def _read_keys(self) -> None:
        """Read ``pkNames``, unless that is done or there are none."""
        if self.keys is not None or "pkNames" not in self.places:
            return
        b, names = self.b, list[str]()
        p, more = first_member(b, self._begins("pkNames", LIST), LIST_END)
        while more:
            if first(b, p) != QUOTE:
                raise JsonFault(faults.BAD_TYPE, p)
            name, q = read_text(b, p)
            names.append(name)
            p, more = next_member(b, q, LIST_END)
        self.keys = frozenset(names)

    def _read_data(self, p: int) -> int:
        self.data = []
        return self._read_images(p, self.data)

    def _read_old(self, p: int) -> int:
        self.old = []
        return self._read_images(p, self.old)

    def _read_images(self, p: int, images: list[list[Cell]]) -> int:
        """Read ``data`` or ``old``: a list of objects, column to value."""
        b = self.b
        if b[p] != LIST:
            raise JsonFault(faults.BAD_TYPE, p)
        p, more = first_member(b, p, LIST_END)
        while more:
            if len(images) >= self.bounds.events:
                raise JsonFault(faults.TOO_LARGE, p)
            image: dict[str, Cell] = {}
            p = self._read_image(p, image)
            images.append(list(image.values()))
            p, more = next_member(b, p, LIST_END)
        return p

    def _read_image(self, p: int, image: dict[str, Cell]) -> int:
        b, types, keys = self.b, self.types or {}, self.keys or frozenset()
        if first(b, p) != OBJECT:
            raise JsonFault(faults.BAD_TYPE, p)
        p, more = first_member(b, p, OBJECT_END)
        while more:
            plain = _MEMBER(b, p)
            name, q = (plain[1].decode("ascii"), 0) if plain else read_text(b, p)
            if name not in types:
                raise JsonFault(faults.NO_COLUMN_TYPE, p)
            if name in image:
                raise JsonFault(faults.DUPLICATE_KEY, p)
            text, kind = types[name]
            if kind == NO_MYSQL_TYPE:
                raise JsonFault(faults.NO_SUCH_TYPE, read_name(b, p)[1] if plain else after_name(b, q))
            if plain and not kind:
                value, q = None if plain[2] is None else plain[2].decode("ascii"), plain.end()
            else:
                value, q = self._value(after_name(b, q) if not plain else read_name(b, p)[1], kind)
            image[name] = name, text, value, name in keys, -1
            p, more = next_member(b, q, OBJECT_END)
        return p

    def _value(self, p: int, kind: int) -> tuple[str | None, int]:
        """The value at ``p``, and the position after it."""
        if first(self.b, p) == NULL:
            return None, literal_end(self.b, p)
        if first(self.b, p) != QUOTE:
            raise JsonFault(faults.BAD_TYPE, p)
        text, q = read_text(self.b, p)
        if kind == _BYTES:
            return latin1_hex(text, p), q
        if kind == FINITE:
            return float_text(text, p), q
        if kind == SINGLE:
            return single_text(float_text(text, p)), q
        if not holds(kind, text):
            raise JsonFault(faults.NOT_OF_TYPE, p)
        return text, q

    def _required(self, name: str) -> Place:
        if name not in self.places:
            raise JsonFault(faults.MISSING_FIELD, 0)
        return self.places[name]

    def _begins(self, name: str, byte: int) -> int:
        """Where a field lies, whose value must begin with a byte."""
        p = self.places[name][0]
        if self.b[p] != byte:
            raise JsonFault(faults.BAD_TYPE, p)
        return p

    def _is(self, name: str, byte: int) -> bool:
        return name in self.places and self.b[self.places[name][0]] == byte

    def _text(self, name: str) -> str:
        self._required(name)
        return read_text(self.b, self._begins(name, QUOTE))[0]

    def _optional_ts(self) -> int | None:
        return self._ts("commitTs") if "commitTs" in self.places else None

    def _ts(self, name: str) -> int:
        if name not in self.places:
            raise JsonFault(faults.MISSING_FIELD, max(self.places.get("_tidb", (-1, 0))[0], self.places["type"][0]))
        p, q = self.places[name]
        ts = int64_of(self.b, p, q)
        if ts is None or self._is(name, ord("-")):
            raise JsonFault(faults.OUT_OF_RANGE, p)
        return ts

    def _incomplete(self) -> str | None:
        """Why the rows of the message are not whole."""
        if "onlyHandleKey" in self.places and not self._is("onlyHandleKey", TRUE):
            self._begins("onlyHandleKey", FALSE)
        if "claimCheckLocation" in self.places:
            p, q = self._begins("claimCheckLocation", QUOTE), self.places["claimCheckLocation"][1]
            if q > p + 2:
                return S.INCOMPLETE_NAMES[S.CLAIM_CHECK_MISSING]
        return S.INCOMPLETE_NAMES[S.HANDLE_KEY_ONLY] if self._is("onlyHandleKey", TRUE) else None

    def _row_key(self) -> tuple[bytes, int | None]:
        """The row's key in TiKV, as base64, and the table's id that it begins with."""
        text = self._text("rowkey").encode()
        try:
            start = b64decode(text[:16], validate=True)
        except ValueError:
            return text, None
        is_key = len(start) == 12 and start[:1] == b"t" and start[9:11] == b"_r"
        return text, int.from_bytes(start[1:9]) - (1 << 63) if is_key else None

    def leave_what_outgrows(self, schema: str = "", table: str = "") -> None:
        """Leave to the kernels what may be too large: their own count of bytes decides."""
        images, most = [*(self.data or ()), *(self.old or ())], self.bounds.growth_free // _UTF8_BYTES
        names, types = len(images) * len(schema + table), (self.types or {}).values()
        longest = max((len(text) for text, _ in types), default=0)
        if names + sum(map(len, images)) * longest <= most:
            return
        if names + sum(len(mysql_type or "") for image in images for _, mysql_type, *_ in image) > most:
            raise Outgrown
