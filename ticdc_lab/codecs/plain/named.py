"""Which table, frame and field of a message a fault is about: read once more from its bytes, for its reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from ticdc_lab.codecs.event import Malformed

MISSING = "missing-field"
_FRAME = 8
VERSION_BYTES = 8
_NAMED, _CUT = 12, 64
_BEFORE = re.compile(rb'"([^"\\]{1,64})"[ \t\r\n]*:[ \t\r\n]*$')


def named(protocol: str, key: bytes | None, value: bytes | None, fault: Malformed) -> str:
    """The reason of a fault with the table, the frame and the field that it is about, as far as bytes name them."""
    if fault.byte is None or protocol not in _NAMERS:
        about = _object(value or b"") if protocol in _OF_JSON else {}
        if isinstance(payload := about.get("payload", about), dict) and isinstance(
            source := payload.get("source"), dict
        ):
            about = {"database": source.get("db"), "table": source.get("table")}  # debezium
        table = _table(about.get("database"), about.get("table"))
        return fault.reason if not table or table[7:-1] in fault.reason else f"{fault.reason}; {table}"
    part, at = fault.byte
    return "; ".join((fault.reason, *filter(None, _NAMERS[protocol](key or b"", value or b"", part, at, fault))))


def cut_or(protocol: str, value: bytes | None, fault: Malformed) -> Malformed:
    """The fault. If the JSON ends inside a value, the reason is that it is cut, not what a decoder met at its end."""
    if protocol not in _OF_JSON or fault.error_class not in _AT_THE_END or fault.reason.startswith("key") or not value:
        return fault
    try:
        orjson.loads(value.decode("utf-8", "strict"))
    except UnicodeDecodeError as bad:
        is_cut = bad.reason == _ENDS
    except orjson.JSONDecodeError as bad:
        is_cut = bad.msg == _ENDS
    else:
        return fault
    said = f"value, byte {len(value)}: the JSON is cut, it ends inside a value"
    return Malformed("not-json", said, fault.seq, byte=fault.byte) if is_cut else fault


_ENDS = "unexpected end of data"
_AT_THE_END = ("not-json", "bad-type", "bad-utf8", "bad-escape")


def _canal_json(key: bytes, value: bytes, part: str, at: int, fault: Malformed) -> Iterator[str]:
    fields = _object(value)
    yield _table(fields.get("database"), fields.get("table"))
    yield (
        _missing_and_found(fields, _canal_json_missing(fields))
        if fault.error_class == MISSING
        else _field_at(value, at)
    )


def _canal_json_missing(fields: Mapping[str, Any]) -> list[str]:
    """The fields that the decoder requires first, as it goes from the kind of the message to its rows."""
    kind = fields.get("type")
    if kind == "TIDB_WATERMARK":
        return ["_tidb.watermarkTs"]
    expected = ["type", "database", "table", "isDdl", *(["sql"] if fields.get("isDdl") is True else [])]
    if not fields.get("isDdl"):
        expected += ["mysqlType", "data", *(["old"] if kind == "UPDATE" else [])]
    missing = [name for name in expected if fields.get(name) is None]
    images = {name: len(fields[name]) for name in ("data", "old") if isinstance(fields.get(name), list)}
    return missing or [f"row in `{name}` ({n} of {max(images.values())})" for name, n in images.items() if not n] or [
        f"image before for each row ({images.get('old', 0)} in `old`, {images.get('data', 0)} in `data`)"
    ]  # fmt: skip


def _open_protocol(key: bytes, value: bytes, part: str, at: int, fault: Malformed) -> Iterator[str]:
    keys = list(frames(key, VERSION_BYTES))
    spans = keys if part == "key" else list(frames(value, 0))
    number = next((i for i, (begin, end) in enumerate(spans) if begin - _FRAME <= at <= end), len(spans))
    if number < len(keys):
        about = _object(key[slice(*keys[number])])
        yield _table(about.get("scm"), about.get("tbl"))
        yield f"frame {number + 1} of {len(keys)}"
    if number < len(spans) and fault.error_class == MISSING:
        begin, end = spans[number]
        whole = (key if part == "key" else value)[begin:end]
        column = _name_before(whole, at - begin)
        fields = _object(whole) if column is None else _object(whole[at - begin : _end_of(whole, at - begin)])
        if column is not None:
            yield f"column `{column}`"
            yield _missing_and_found(fields, [name for name in ("t", "v") if name not in fields])
        elif part == "key":
            yield _missing_and_found(fields, [name for name in ("ts", "t", "scm", "tbl") if fields.get(name) is None])
        elif about.get("t") == _DDL:
            yield _missing_and_found(fields, [name for name in ("q", "t") if fields.get(name) is None])
        else:
            yield _missing_and_found(fields, ["u" if fields.get("p") is not None else "`u` or `d` alone"])
    elif fault.error_class != MISSING:
        yield _field_at(key if part == "key" else value, at)


_DDL = 2
_OF_JSON = ("canal-json", "simple", "debezium", "maxwell")
_NAMERS = {"canal-json": _canal_json, "open-protocol": _open_protocol}


def frames(b: bytes, p: int) -> Iterator[tuple[int, int]]:
    """Where the content of each whole frame of open-protocol begins and ends, from ``p`` on."""
    while p + _FRAME <= len(b) and (end := p + _FRAME + int.from_bytes(b[p : p + _FRAME], "big")) <= len(b):
        yield p + _FRAME, end
        p = end


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _end_of(text: bytes, at: int) -> int:
    """Where the JSON object that begins at a place, a column without objects in it, ends."""
    quoted = re.compile(rb'"(?:[^"\\]|\\.)*"|\}', re.DOTALL)
    return next((m.end() for m in quoted.finditer(text, at) if m[0] == b"}"), len(text))


def _name_before(text: bytes, at: int) -> str | None:
    """The name of the member whose value begins at a place."""
    found = _BEFORE.search(text[max(0, at - 2 * _CUT) : at])
    return None if found is None else found[1].decode("utf-8", "replace")


def _field_at(text: bytes, at: int) -> str:
    name = _name_before(text, at)
    return "" if name is None else f"field `{name}`"


def _table(schema: object, table: object) -> str:
    names = [str(name)[:_CUT] for name in (schema, table) if isinstance(name, str) and name]
    return f"table `{'.'.join(names)}`" if names else ""


def _missing_and_found(fields: Iterable[str], missing: Iterable[str]) -> str:
    """Which fields are missing, and which are there."""
    there = [f"`{name[:_CUT]}`" for name in fields]
    more = f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
    wanted = [name if "`" in name else f"`{name}`" for name in missing]
    return f"no {' and no '.join(wanted) or 'field that it needs'}; found {', '.join(there[:_NAMED]) or 'none'}{more}"
