"""Fields of a JSON message, each with the fault that a codec reports where it is missing or of another kind.

A repeated name in an object puts its message into quarantine, as in open-protocol and canal-json: which value
counts is not known. TiCDC's encoders write no name twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.known import Bounds, too_large


def object_of(raw: bytes | None, part: str, *, once: bool = True) -> Mapping[str, Any]:
    """The JSON object that ``part`` of a message is, in which each name stands ``once``."""
    if raw is None:
        raise Malformed("null-value", f"{part}: expected a JSON object, found none (a tombstone)")
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError as fault:
        raise Malformed("not-json", f"{part}, byte {fault.pos}: {fault.msg}") from fault
    try:
        as_written = orjson.dumps(found) == raw  # nearly always; a repeated name would be missing
    except TypeError as fault:
        raise Malformed("too-deep", f"{part}: JSON nested deeper than 254 levels") from fault
    if once and not as_written:
        _require_names_once(raw, part)
    return members(found, part)


def _require_names_once(raw: bytes, part: str) -> None:
    def once(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise Malformed("duplicate-key", f"{part}: expected each JSON key once, found {twice[:60]!r} twice")

    json.loads(raw, object_pairs_hook=once, parse_int=len, parse_float=len)


_STRING = re.compile(rb'"(?>(?:[^"\\]++|\\.)*)"', re.DOTALL)
_IS_JSON = re.compile(rb"[ \n\r\t]*[{\[]").match


def require_few_values(key: bytes | None, value: bytes | None, bounds: Bounds) -> None:
    """Refuse JSON of more values than the bounds allow, before they become Python's objects."""
    for part, raw in (("key", key), ("value", value)):
        if raw is None or len(raw) <= bounds.values or not _IS_JSON(raw) or _values(raw) <= bounds.values:
            continue
        if (found := _values(_STRING.sub(b"", raw))) > bounds.values:
            raise too_large(f"JSON values of the {part}", found, "values", bounds.values)


def _values(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"{") + raw.count(b"[")


def members(value: Any, name: str) -> Mapping[str, Any]:
    """``value``, which must be a JSON object."""
    if not isinstance(value, dict):
        raise Malformed("bad-type", f"{name}: expected an object, found {_shown(value)}")
    return value


def objects(value: Any, name: str) -> Sequence[Mapping[str, Any]]:
    """``value``, which must be a list of JSON objects or null."""
    if not isinstance(value, list | None):
        raise Malformed("bad-type", f"{name}: expected a list, found {_shown(value)}")
    return [members(member, name) for member in value or ()]


UNSHOWN = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What a conversion raises for a value of another form."""


def shown(name: str, mysql_type: str | None, convert: Callable[[Any], str], value: Any) -> str | None:
    """A column's value as in the contract."""
    try:
        return None if value is None else convert(value)
    except UNSHOWN as fault:
        raise Malformed(
            "bad-type", f"column {name!r} ({mysql_type}): {str(value)[:60]!r} is no such value: {fault}"
        ) from fault


def whole(value: Any) -> int:
    """A column's value that must be an integer of 64 bits; a TypeError or ValueError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected an integer, found {_shown(value)}")
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError("it does not fit 64 bits")
    return value


def number(value: Any) -> int | float:
    """A column's value that must be a number; a TypeError otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"expected a number, found {_shown(value)}")
    return value


def string(value: Any) -> str:
    """A column's value that must be a string; a TypeError otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, found {_shown(value)}")
    return value


def require(fields: Mapping[str, Any], name: str) -> Any:
    """A field that must be there."""
    if fields.get(name) is None:
        raise Malformed("missing-field", f"expected the field {name!r}, found {', '.join(sorted(fields)) or 'none'}")
    return fields[name]


def integer(fields: Mapping[str, Any], name: str) -> int:
    """An integer that must be there."""
    value = require(fields, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed("bad-type", f"{name}: expected an integer, found {_shown(value)}")
    return value


def text(fields: Mapping[str, Any], name: str) -> str:
    """A string that must be there."""
    value = require(fields, name)
    if not isinstance(value, str):
        raise Malformed("bad-type", f"{name}: expected a string, found {_shown(value)}")
    return value


def optional(fields: Mapping[str, Any], name: str) -> str | None:
    """A string, or None where it is absent or null."""
    return None if fields.get(name) is None else text(fields, name)


def checksum_of(value: Any) -> int | None:
    """A 32-bit checksum, a number or its digits."""
    if value is None:
        return None
    digits = str(value)
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit() and int(digits[:20]) < 1 << 32):
        raise Malformed("bad-type", f"checksum: expected a number of 32 bits, found {_shown(value)}")
    return int(digits)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}"
