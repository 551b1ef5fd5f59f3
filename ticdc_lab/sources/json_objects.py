"""JSON objects of a dump, read as bytes: one a line, pretty-printed or in an array, with bytes that are no UTF-8.

``kcat -J`` writes the bytes of a message into JSON strings and escapes only what JSON must (edenhill/kcat#111). A JSON
parser that expects UTF-8 destroys them. Read as Latin-1 each byte is one character, and goes back to the same byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecoder
from typing import NamedTuple

import orjson

_DECODER = JSONDecoder(strict=False)
_BLANK = re.compile(r"[ \t\r\n]*")
_WIDE = re.compile(rb"\\u(?!00[0-7])")
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|.)", re.DOTALL)
_RULE = rb"-{3,}|={3,}|\*{3,}|#{3,}|;|\||\x1e"
_AROUND = re.compile(rb"(?:[\s,\[\]]|" + _RULE + rb")*")
is_ruled = re.compile(_RULE).fullmatch
"""Whether a line is no more than what people let a tool write between objects, as with kcat's -D."""
_INSIDE = re.compile(rb'"(?:[^"\\]|\\.)*"|["{}]', re.DOTALL)
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"|null', re.DOTALL)
_BEGINNING = re.compile(rb'\{\s*"[^"\\\n]*"\s*:')

UNFINISHED = "unfinished"
NO_OBJECT = "no-object"
TOO_LARGE = "too-large"

Value = str | int | float | bool | bytes | None
"""A text is the bytes of its characters as Latin-1; an object or a list is its JSON, as bytes."""


_KEPT = 1 << 16
"""Bytes of what is no object that are kept, to be shown."""


class Piece(NamedTuple):
    """An object, or what lies where one should be: its bytes, its line (from 1), what is wrong with it, its size."""

    text: bytes
    line: int
    fault: str
    size: int


class BadJson(ValueError):
    """A text that is no JSON object."""


def _as_bytes(m: re.Match[bytes]) -> bytes:
    """An escaped character beyond ASCII as UTF-8, as the message had it before a tool escaped it."""
    if m[1] is None or (code := int(m[1], 16)) < 0x80:
        return m[0]
    if 0xD800 <= code < 0xDC00 and m[2]:
        code = 0x10000 + ((code - 0xD800) << 10) + (int(m[2], 16) - 0xDC00)
        return chr(code).encode()
    after = b"" if m[2] is None else b"\\u" + m[2]
    return chr(code).encode("utf-8", "surrogatepass") + after


def plain_of(text: bytes) -> bytes:
    """JSON with characters beyond ASCII as UTF-8 where they are escaped."""
    return _ESCAPE.sub(_as_bytes, text) if _WIDE.search(text) else text


def fields_of(text: bytes) -> dict[str, Value]:
    """The members of one JSON object. Raises BadJson: it is none."""
    s = plain_of(text).decode("latin-1")
    found: dict[str, Value] = {}
    try:
        at = _after_blank(s, 0)
        if s[at] != "{":
            raise BadJson("expected {")
        at = _after_blank(s, at + 1)
        while s[at] != "}":
            if s[at] != '"':
                raise BadJson("expected a name")
            name, at = _DECODER.raw_decode(s, at)
            at = _after_blank(s, at)
            if s[at] != ":":
                raise BadJson("expected :")
            begin = _after_blank(s, at + 1)
            value, at = _DECODER.raw_decode(s, begin)
            found[name] = s[begin:at].encode("latin-1") if isinstance(value, dict | list) else value
            at = _after_blank(s, at)
            if s[at] == ",":
                at = _after_blank(s, at + 1)
            elif s[at] != "}":
                raise BadJson("expected , or }")
        if _after_blank(s, at + 1) != len(s):
            raise BadJson("something follows the object")
    except BadJson:
        raise
    except (ValueError, IndexError, RecursionError) as error:
        raise BadJson(str(error)) from error
    return found


def is_json(text: bytes) -> bool:
    """Whether bytes are one whole JSON object or list."""
    if text[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def end_of_json(text: bytes) -> int:
    """Where the JSON ends with which bytes begin; 0 if they begin with none."""
    try:
        return int(_DECODER.raw_decode(text.decode("latin-1"))[1])
    except (ValueError, RecursionError):
        return 0


def _after_blank(s: str, at: int) -> int:
    found = _BLANK.match(s, at)
    return at if found is None else found.end()


def beginning_of(text: bytes) -> bytes:
    """What an object begins with, up to its first name's colon."""
    found = _BEGINNING.match(text)
    return found[0] if found else b""


def objects_in(
    chunks: Iterator[bytes],
    *,
    bound: int,
    one_a_line: bool,
    opening: bytes = b"",
    first_line: int = 1,
    depth: int = 0,
) -> Iterator[Piece]:
    """Cut a stream into objects, or into the texts of an array if ``opening`` is a quote.

    Behind what is damaged the next object that begins as others do is found again. What lies before it is given, too.

    ``chunks``: the bytes. ``bound``: bytes that an object may have. ``one_a_line``: a line feed ends an object.
    ``opening``: how objects begin (:func:`beginning_of`). ``first_line``: the number of the first line. ``depth``: in
    how many objects each of them lies, as in ``{"records": [..]}``; what is beside them there is passed over.
    """
    string = rb'"(?:[^"\\\n]|\\.)*"|["{}]'
    # a line feed where none can be, or an object that begins at the margin inside another, shows what is damaged
    token = re.compile(string + (rb"|\n" if one_a_line else rb"|\n(?=\{)"), re.DOTALL)
    begins = rb'(?<=[,\[\s])"' if opening == b'"' else re.escape(opening)
    again = re.compile(b"|".join([*([begins] if opening else []), rb"(?<=\n)[ \t]*\{"]))
    buffer, at, line, ended, level = b"", 0, first_line, False, 0
    while True:
        around = _AROUND.match(buffer, at)
        begin = around.end() if around else at
        if depth:
            begin, level = _begin_inside(buffer, at, level, depth)
            if opening and (damaged := buffer.find(opening, at, begin)) >= 0:
                begin, level = damaged, depth
        line, at = line + buffer.count(b"\n", at, begin), begin
        if at == len(buffer) or (depth and buffer[at : at + 1] != b"{"):
            if ended:
                return
            buffer, ended = _more(chunks, buffer[at:])
            at = 0
            continue
        if opening == b'"' and buffer[at : at + 1] in (b'"', b"n"):
            text = _TEXT.match(buffer, at)
            end, fault = text.end() if text else 0, ""
        else:
            end, fault = _end_of_object(buffer, at, token)
        if end == 0 and not ended and len(buffer) - at <= bound:
            buffer, ended = _more(chunks, buffer[at:])
            at = 0
            continue
        if 0 < end - at <= bound:
            yield Piece(buffer[at:end], line, fault, end - at)
            line, at = line + buffer.count(b"\n", at, end), end
            continue
        buffer, end, at = buffer[at:], end - at if end > 0 else end, 0
        begun, dropped, kept = line, 0, buffer[: min(end, _KEPT)]
        if end <= 0:
            # the next object that begins as others do is looked for; of what lies before it only a part is kept
            fault, after, kept = fault or (TOO_LARGE if len(buffer) > bound else UNFINISHED), 1, buffer[:_KEPT]
            while (found := again.search(buffer, after)) is None and not ended:
                gone = max(0, len(buffer) - _KEPT)
                line, dropped = line + buffer.count(b"\n", 0, gone), dropped + gone
                buffer, ended = _more(chunks, buffer[gone:])
                after, kept = (0, kept) if dropped else (1, buffer[:_KEPT])
            end = found.start() if found else len(buffer)
        else:
            fault = TOO_LARGE
        yield Piece(kept[: dropped + end], begun, fault, dropped + end)
        line, buffer = line + buffer.count(b"\n", 0, end), buffer[end:]


def _begin_inside(buffer: bytes, at: int, level: int, depth: int) -> tuple[int, int]:
    """Where the next object inside of ``depth`` others begins, and inside of how many that place is."""
    for found in _INSIDE.finditer(buffer, at):
        if found[0] == b'"' or (found[0] == b"{" and level == depth):  # the former begins a text that is cut
            return found.start(), level
        level += (found[0] == b"{") - (found[0] == b"}")
    return len(buffer), level


def _more(chunks: Iterator[bytes], buffer: bytes) -> tuple[bytes, bool]:
    """The buffer with at least as much again, so that a large object is not scanned for each chunk; whether it ends."""
    parts, size = [buffer], 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= len(buffer):
            return b"".join(parts), False
    return b"".join(parts), True


def _end_of_object(buffer: bytes, at: int, token: re.Pattern[bytes]) -> tuple[int, str]:
    """Where the object that begins at ``at`` ends; 0 where more is needed, and what is wrong with it."""
    if buffer[at : at + 1] != b"{":
        return -1, NO_OBJECT
    depth = 0
    for m in token.finditer(buffer, at):
        found = m[0]
        if found == b"{":
            depth += 1
        elif found == b"}":
            depth -= 1
            if not depth:
                return m.end(), ""
        elif found == b'"':
            return (-1, UNFINISHED) if buffer.find(b"\n", m.end()) >= 0 else (0, "")
        elif found == b"\n":
            return -1, UNFINISHED
    return 0, ""
