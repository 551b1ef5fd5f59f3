"""Vectorised JSON text: whole Arrow arrays of values to arrays of their JSON forms.

Most values need no escape and are written by Arrow alone; those that do are few and go through orjson one by one.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from decimal import Decimal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.errors import ProtocolError
from ticdc_lab.events.arrays import Ints

INTEGER_TEXT, FLOAT_TEXT = r"^-?(0|[1-9]\d*)$", r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_ESCAPES = r'[\x00-\x1f"\\]'
_GO_ESCAPES = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 34: '\\"'}

Written = Callable[[pa.Array], pa.Array]


def joined(*parts: pa.Array | str) -> pa.Array:
    """Parts of each row one after the other; a null part makes a null."""
    return pc.binary_join_element_wise(*[pa.scalar(p) if isinstance(p, str) else p for p in parts], "")


def quoted(texts: pa.Array) -> pa.Array:
    """Each text as a JSON string."""
    whole = joined('"', texts, '"')
    special = pc.fill_null(pc.match_substring_regex(texts, _ESCAPES), False)
    if not pc.any(special).as_py():
        return whole
    return pc.replace_with_mask(whole, special, each(lambda t: orjson.dumps(t).decode())(texts.filter(special)))


def quoted_ascii(texts: pa.Array) -> pa.Array:
    """Each text, which needs no escape, as a JSON string."""
    return joined('"', texts, '"')


def each(write: Callable[[str], str]) -> Written:
    """A function of one text, for those few that Arrow has no function for; null stays null."""

    def written(texts: pa.Array) -> pa.Array:
        return pa.array([None if t is None else write(t) for t in texts.to_pylist()], pa.string())

    return written


def by_form(values: pa.Array, forms: Ints, how: dict[int, Written]) -> pa.Array:
    """Write each value as its form says; null stays null."""
    for form, write in how.items():
        here = forms == form
        if here.all():
            return write(values)
        if here.any():
            mask = pa.array(here)
            values = pc.replace_with_mask(values, mask, write(values.filter(mask)))
    return values


def number(what: str, pattern: str) -> Written:
    """Numbers as they are, after a check that they are such."""

    def written(texts: pa.Array) -> pa.Array:
        good = pc.fill_null(pc.match_substring_regex(texts, pattern), True)
        if good.false_count:
            found = texts.filter(pc.invert(good))[0].as_py()
            raise ProtocolError(
                f"A value of an {what} column is {found!r}; expected a number.",
                hint="A protocol that carries labels of ENUM and SET cannot be written in one that carries numbers.",
            )
        return texts

    return written


def raw(text: str) -> bytes:
    """The bytes that a binary value of the events contract stands for.

    Raises
    ------
    ProtocolError
        The value is not ``0x`` and hexadecimal digits.
    """
    try:
        if not text.startswith("0x"):
            raise ValueError
        return binascii.unhexlify(text[2:])
    except ValueError:
        raise ProtocolError(
            f"A value of a binary column is {text[:40]!r}; expected 0x and hexadecimal digits."
        ) from None


def base64_of(value: bytes) -> str:
    """A JSON string of base64."""
    return f'"{binascii.b2a_base64(value, newline=False).decode()}"'


def latin1(text: str) -> str:
    """A binary value as canal-json writes it: each byte a character of ISO-8859-1."""
    return orjson.dumps(raw(text).decode("latin-1")).decode()


def go_quoted(value: bytes) -> str:
    """Bytes as Go's ``strconv.Quote`` prints them, without its quotes (open-protocol's binary columns)."""
    out = []
    for c in value.decode("utf-8", "surrogateescape"):
        code = ord(c)
        if code in _GO_ESCAPES:
            out.append(_GO_ESCAPES[code])
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif c.isprintable():
            out.append(c)
        elif code < 0x20 or code == 0x7F:
            out.append(f"\\x{code:02x}")
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return "".join(out)


def go_quoted_json(text: str) -> str:
    """:func:`go_quoted` of a binary value, as a JSON string."""
    return orjson.dumps(go_quoted(raw(text))).decode()


def expanded(texts: pa.Array) -> pa.Array:
    """Floats without exponent, as Go's ``FormatFloat(v, 'f', -1)`` prints them."""
    exponent = pc.fill_null(pc.match_substring_regex(texts, r"^-?\d+(\.\d+)?[eE][+-]?\d+$"), False)
    if not pc.any(exponent).as_py():
        return texts
    return pc.replace_with_mask(texts, exponent, each(lambda t: f"{Decimal(t):f}")(texts.filter(exponent)))
