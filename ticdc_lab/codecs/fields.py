"""Fields of a JSON message, each with the fault that a codec reports where it is missing or of another kind."""

from __future__ import annotations

from collections.abc import Mapping
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


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}"
