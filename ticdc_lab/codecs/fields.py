"""Fields of a JSON message, each with the fault that a codec reports where it is missing or of another kind.

A name that stands twice in an object counts as the last says, as most JSON readers have it; the compiled kernels, which
read open-protocol and canal-json, put such a message into quarantine. TiCDC's other encoders write no name twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from ticdc_lab.codecs.builder import Malformed


def object_of(raw: bytes | None, part: str) -> Mapping[str, Any]:
    """The JSON object that ``part`` of a message is."""
    if raw is None:
        raise Malformed("null-value", f"{part}: expected a JSON object, found none (a tombstone)")
    try:
        return members(orjson.loads(raw), part)
    except orjson.JSONDecodeError as fault:
        raise Malformed("not-json", f"{part}, byte {fault.pos}: {fault.msg}") from fault


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
    """A column's value as the contract says it."""
    try:
        return None if value is None else convert(value)
    except UNSHOWN as fault:
        raise Malformed(
            "bad-type", f"column {name!r} ({mysql_type}): {str(value)[:60]!r} is no such value: {fault}"
        ) from fault


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
