"""Walking JSON text: strict, with the place of each fault.

Every function takes the bytes ``b`` and a position ``p`` and returns the position after what it read; it raises
:class:`JsonFault` where the text is wrong. The rules and the places are those of :mod:`ticdc_lab.codecs.kernel.scan`.
"""

from __future__ import annotations

import re
from typing import NoReturn

import orjson

from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.kernel.faults import BAD_ESCAPE, BAD_UTF8, FAULTS, NOT_JSON, TOO_DEEP

DEPTH_MAX = 128
OBJECT_END, LIST_END = 0x7D, 0x5D
QUOTE, OBJECT, LIST, NULL, TRUE, FALSE, MINUS = b'"{[ntf-'

_SPACE = rb"[ \n\r\t]*+"
_PLAIN = rb'[^"\\\x00-\x1f\x80-\xff]*+'
_UTF8 = (
    rb"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_ESCAPE = (
    rb'\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++|(?!\.))(?:[eE][+-]?[0-9]++|(?![eE]))"
_SCALAR = rb'(?:"' + _PLAIN + rb'"|' + _NUMBER + rb"|true|false|null)"
_MEMBER = rb'"' + _PLAIN + rb'"' + _SPACE + rb":" + _SPACE + _SCALAR + _SPACE


def _container(begin: bytes, item: bytes, end: bytes) -> bytes:
    return begin + _SPACE + rb"(?:" + item + rb"(?:," + _SPACE + item + rb")*+)?" + end


_after_space = re.compile(_SPACE).match
_inside = re.compile(rb"(?:[^\"\\\x00-\x1f\x80-\xff]++|" + _UTF8 + rb"|" + _ESCAPE + rb")*+").match
_plain_text = re.compile(rb'"(' + _PLAIN + rb')"').match
_plain_name = re.compile(rb'"(' + _PLAIN + rb')"' + _SPACE + rb":" + _SPACE).match
_number = re.compile(_NUMBER).match
_literal = re.compile(rb"true|false|null").match
_easy = re.compile(
    rb"|".join((_SCALAR, _container(rb"\{", _MEMBER, rb"\}"), _container(rb"\[", _SCALAR + _SPACE, rb"\]")))
).match
_next_member = re.compile(_SPACE + rb"(?:(,)" + _SPACE + rb"|\})").match
_next_element = re.compile(_SPACE + rb"(?:(,)" + _SPACE + rb"|\])").match
_INTEGER = re.compile(rb"-?[0-9]{1,19}")


class JsonFault(Exception):
    """What is wrong (a number of :mod:`ticdc_lab.codecs.kernel.faults`), and at which byte."""

    def __init__(self, code: int, at: int) -> None:
        super().__init__(code, at)
        self.code = code
        self.at = at


def after_space(b: bytes, p: int) -> int:
    """Position of the next byte that is no JSON white space."""
    return _after_space(b, p).end()  # type: ignore[union-attr]  # it matches nothing, too


def first(b: bytes, p: int) -> int:
    """The byte at a position, or -1 at the end."""
    return b[p] if p < len(b) else -1


def read_text(b: bytes, p: int) -> tuple[str, int]:
    """The string at ``p``, and the position after it."""
    if found := _plain_text(b, p):
        return found[1].decode("ascii"), found.end()
    if first(b, p) != QUOTE:
        raise JsonFault(NOT_JSON, p)
    q = _inside(b, p + 1).end()  # type: ignore[union-attr]
    if first(b, q) != QUOTE:
        _wrong_inside(b, q)
    raw = b[p + 1 : q]
    return (orjson.loads(b[p : q + 1]) if b"\\" in raw else raw.decode()), q + 1


def _wrong_inside(b: bytes, q: int) -> NoReturn:
    """Say why a string does not go on at ``q``."""
    if q < len(b) and b[q] >= 0x80:
        raise JsonFault(BAD_UTF8, q)
    raise JsonFault(BAD_ESCAPE if first(b, q) == 0x5C and q + 1 < len(b) else NOT_JSON, q)


def after_name(b: bytes, p: int) -> int:
    """Position of a member's value, ``p`` being just after its name."""
    p = after_space(b, p)
    if first(b, p) != 0x3A:
        raise JsonFault(NOT_JSON, p)
    return after_space(b, p + 1)


def read_name(b: bytes, p: int) -> tuple[str, int]:
    """The name of the member at ``p``, and the position of its value."""
    if found := _plain_name(b, p):
        return found[1].decode("ascii"), found.end()
    name, p = read_text(b, p)
    return name, after_name(b, p)


def first_member(b: bytes, p: int, closer: int) -> tuple[int, bool]:
    """Step into the object or list whose opening byte is at ``p``: the position, and whether anything is in it."""
    p = after_space(b, p + 1)
    if p >= len(b):
        raise JsonFault(NOT_JSON, p)
    return (p + 1, False) if b[p] == closer else (p, True)


def next_member(b: bytes, p: int, closer: int) -> tuple[int, bool]:
    """Step to what follows a value: the position of the next one, or that after the closing byte and False."""
    found = (_next_member if closer == OBJECT_END else _next_element)(b, p)
    if found is None:
        raise JsonFault(NOT_JSON, after_space(b, p))
    return found.end(), found[1] is not None


def number_end(b: bytes, p: int) -> int:
    """Position after the number at ``p``."""
    if found := _number(b, p):
        return found.end()
    raise JsonFault(NOT_JSON, p)


def literal_end(b: bytes, p: int) -> int:
    """Position after ``true``, ``false`` or ``null`` at ``p``."""
    if found := _literal(b, p):
        return found.end()
    raise JsonFault(NOT_JSON, p)


def _scalar_end(b: bytes, p: int) -> int:
    c = first(b, p)
    if c == QUOTE:
        return read_text(b, p)[1]
    return number_end(b, p) if c == MINUS or 0x30 <= c <= 0x39 else literal_end(b, p)


def value_end(b: bytes, p: int) -> int:
    """Position after the value at ``p``, whatever it is, checked all the way."""
    found = _easy(b, p)
    return found.end() if found else _nested_end(b, p)


def _nested_end(b: bytes, p: int) -> int:
    closers: list[int] = []
    while True:
        p = after_space(b, p)
        opener = first(b, p)
        if opener in (OBJECT, LIST):
            if len(closers) == DEPTH_MAX:
                raise JsonFault(TOO_DEEP, p)
            p = after_space(b, p + 1)
            if first(b, p) != opener + 2:
                closers.append(opener + 2)
                p = _name_end(b, p) if opener == OBJECT else p
                continue
            p += 1
        else:
            p = _scalar_end(b, p)
        p, more = _out_of(b, p, closers)
        if not more:
            return p


def _out_of(b: bytes, p: int, closers: list[int]) -> tuple[int, bool]:
    """Leave all that ends at ``p``: the position of the next value, or of the end and False."""
    while closers:
        p, more = next_member(b, p, closers[-1])
        if more:
            return (_name_end(b, p) if closers[-1] == OBJECT_END else p), True
        closers.pop()
    return p, False


def _name_end(b: bytes, p: int) -> int:
    return read_name(b, p)[1]


def int64_of(b: bytes, p: int, q: int) -> int | None:
    """The integer between the positions, if it is one of 64 bits with a sign."""
    if not _INTEGER.fullmatch(b, p, q):
        return None
    number = int(b[p:q])
    return number if -(1 << 63) <= number < 1 << 63 else None


def at_place(part: str, fault: JsonFault) -> Malformed:
    """The fault in ``part`` (key or value) of a message, in words."""
    error_class, sentence = FAULTS[fault.code]
    return Malformed(error_class, f"{part}, byte {fault.at}: {sentence}")
