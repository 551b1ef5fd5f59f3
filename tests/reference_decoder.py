"""The slow, plain decoder: one message at a time with Python's own json module.

It is the oracle for the vectorised decoders in ``ticdc_lab.codecs`` and shares no code with them.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OPEN_TYPES = {
    0: "decimal", 1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 6: "null", 7: "timestamp",
    8: "bigint", 9: "mediumint", 10: "date", 11: "time", 12: "datetime", 13: "year", 14: "date", 15: "varchar",
    16: "bit", 225: "vector", 245: "json", 246: "decimal", 247: "enum", 248: "set", 249: "tinytext", 250: "mediumtext",
    251: "longtext", 252: "text", 253: "varchar", 254: "char", 255: "geometry",
}  # fmt: skip
BINARY_TWIN = {"varchar": "varbinary", "char": "binary", "tinytext": "tinyblob", "mediumtext": "mediumblob",
               "longtext": "longblob", "text": "blob"}  # fmt: skip
INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}


class Undecodable(Exception):
    """The message does not follow its protocol."""


class Number(str):
    """A JSON number, digits untouched."""


class Object(dict[str, Any]):
    """A JSON object that remembers which names it holds twice."""

    twice: frozenset[str] = frozenset()

    def once(self, *names: str) -> Object:
        """Raise if one of the names, or without names any at all, is there twice."""
        if bad := self.twice & set(names) if names else self.twice:
            raise Undecodable(f"duplicate key {bad}")
        return self


def loads(raw: bytes) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> Object:
        if len(whole := Object(items)) == len(items):
            return whole
        out, twice = Object(), set()
        for k, v in items:
            if k == "ohk" and isinstance(v, bool) and k in out:  # the real encoder writes it twice: one true counts
                v = (out[k] or v) if isinstance(out[k], bool) else out[k]
            elif k in out:
                twice.add(k)
            out[k] = v
        out.twice = frozenset(twice)
        return out

    def constant(text: str) -> Any:
        raise Undecodable(text)

    try:
        found = json.loads(
            raw.decode("utf-8"), object_pairs_hook=pairs, parse_int=Number, parse_float=Number, parse_constant=constant
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as e:
        raise Undecodable(str(e)) from e
    todo = [found] if b"\\u" in raw else []  # only so can UTF-8 name a surrogate
    while todo:
        v = todo.pop()
        if isinstance(v, dict):
            todo += [*v, *v.values()]
        elif isinstance(v, list):
            todo += v
        elif isinstance(v, str) and LONE_SURROGATE.search(v):
            raise Undecodable("a lone surrogate stands for no character")
    return found


LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def obj(v: Any, *names: str) -> Object:
    if not isinstance(v, Object):
        raise Undecodable(f"no object: {v!r}")
    return v.once(*names)


def integer(v: Any, low: int = -(2**63), high: int = 2**63 - 1) -> int:
    if not isinstance(v, Number) or not re.fullmatch(r"-?\d+", v) or not low <= int(v) <= high:
        raise Undecodable(f"not an integer in range: {v!r}")
    return int(v)


def natural(v: Any, high: int = 2**63 - 1) -> int:
    if isinstance(v, Number) and v.startswith("-"):
        raise Undecodable(f"not a natural number: {v!r}")
    return integer(v, 0, high)


def text(v: Any) -> str:
    if not isinstance(v, str) or isinstance(v, Number):
        raise Undecodable(f"not a string: {v!r}")
    return v


FLOAT = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", re.ASCII)


def mysql_float(number: str) -> str:
    """Print as MySQL does: exponent form below 1e-15 and from 1e15 on."""
    sign, whole, part, exponent = FLOAT.fullmatch(number).groups(default="")  # type: ignore[union-attr]
    digits = (whole + part).lstrip("0")
    if not digits:
        return sign + "0"
    shift = exponent.lstrip("+-").lstrip("0") or "0"
    if len(shift) > 15:
        raise Undecodable("exponent")
    exp10 = len(digits) - 1 - len(part) + (-int(shift) if exponent.startswith("-") else int(shift))
    if exp10 < -400 or math.isinf(float(number)):
        raise Undecodable("exponent")
    s = digits.rstrip("0")
    if not -15 <= exp10 < 15:
        return sign + s[0] + ("." + s[1:] if s[1:] else "") + f"e{exp10}"
    if exp10 < 0:
        return sign + "0." + "0" * (-exp10 - 1) + s
    s = s.ljust(exp10 + 1, "0")
    return sign + s[: exp10 + 1] + ("." + s[exp10 + 1 :] if s[exp10 + 1 :] else "")


def held_float(base: str, number: str) -> str:
    """A FLOAT has the fewest digits that give its 32 bits again; what these cannot hold stays as it was written."""
    text = mysql_float(number)
    if base != "float":
        return text
    try:
        bits = struct.pack("<f", float(text))
    except OverflowError:
        return text
    if not (x := struct.unpack("<f", bits)[0]):
        return text
    fewest = (f"{x:.{n}e}" for n in range(9))
    return mysql_float(next(t for t in fewest if struct.pack("<f", float(t)) == bits))


def go_unquote(s: str) -> bytes:
    simple = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39}
    out, i = bytearray(), 0
    while i < len(s):
        c = s[i]
        if c != "\\":
            out += c.encode()
            i += 1
            continue
        k = s[i + 1 : i + 2]
        if k in simple and k:
            out.append(simple[k])
            i += 2
        elif k in ("x", "u", "U"):
            n = {"x": 2, "u": 4, "U": 8}[k]
            h = s[i + 2 : i + 2 + n]
            if not re.fullmatch(f"[0-9a-fA-F]{{{n}}}", h):
                raise Undecodable("bad escape")
            code = int(h, 16)
            if k == "x":
                out.append(code)
            elif code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise Undecodable("bad escape")
            else:
                out += chr(code).encode()
            i += 2 + n
        else:
            raise Undecodable("bad escape")
    return bytes(out)


def frames(raw: bytes) -> list[bytes]:
    out, p = [], 0
    while p < len(raw):
        if p + 8 > len(raw):
            raise Undecodable("truncated length")
        n = int.from_bytes(raw[p : p + 8], "big")
        p += 8
        if n > len(raw) - p:
            raise Undecodable("truncated frame")
        out.append(raw[p : p + n])
        p += n
    return out


def open_column(name: str, c: Any) -> dict[str, Any]:
    c = obj(c, "t", "h", "f", "v")
    if not {"t", "f", "v"} <= set(c):
        raise Undecodable("column lacks a field")
    t, f, v = natural(c["t"], 255), natural(c["f"]), c["v"]
    h = c.get("h", False)
    if not isinstance(h, bool):
        raise Undecodable("h")
    if t not in OPEN_TYPES:
        raise Undecodable(f"unknown type {t}")
    mysql_type = OPEN_TYPES[t]
    binary = bool(f & 1) and mysql_type in BINARY_TWIN
    if binary:
        mysql_type = BINARY_TWIN[mysql_type]
    if f & 128 and mysql_type in INTEGERS | {"float", "double", "decimal"}:
        mysql_type += " unsigned"
    if v is not None:
        if isinstance(v, Number):
            if mysql_type.split()[0] in ("float", "double"):
                v = held_float(mysql_type.split()[0], v)
            elif mysql_type.split()[0] in INTEGERS | {"year", "bit", "enum", "set"}:
                v = held(mysql_type.split()[0], str(integer(v, -(2**63), 2**64 - 1)))
            else:
                raise Undecodable(f"number for {mysql_type}")
        else:
            v = text(v)
            base = mysql_type.split()[0]
            if base in INTEGERS | {"year", "bit", "enum", "set", "float", "double", "null"}:
                raise Undecodable(f"string for {mysql_type}")
            held(base, v)
            if 249 <= t <= 252:
                if len(v) % 4:
                    raise Undecodable("base64 of a length that is none")
                try:
                    b = base64.b64decode(v, validate=True)
                    v = "0x" + b.hex() if binary else b.decode("utf-8")
                except ValueError as e:
                    raise Undecodable(str(e)) from e
            elif binary:
                v = "0x" + go_unquote(v).hex()
    return {"name": name, "mysql_type": mysql_type, "value": v, "is_key": h, "flags": f}


def open_image(o: Any) -> list[dict[str, Any]]:
    return [open_column(n, c) for n, c in obj(o).once().items()]


def open_key(raw: bytes) -> tuple[int, dict[str, Any]]:
    k = obj(loads(raw), "ts", "scm", "tbl", "t", "ptn", "ccl")
    e: dict[str, Any] = {"commit_ts": natural(k.get("ts"))}
    for name, field in (("scm", "schema_name"), ("tbl", "table_name")):
        if name in k:
            e[field] = text(k[name])
    if k.get("ptn") is not None:
        e["table_id"] = integer(k["ptn"])
    if not isinstance(k.get("ohk", False), bool) or "ohk" in k.twice:
        raise Undecodable("ohk")
    claim = k.get("ccl") is not None and text(k["ccl"]) != ""
    e["incomplete"] = "claim-check-missing" if claim else "handle-key-only" if k.get("ohk") else None
    return natural(k.get("t"), 255), e


def decode_open(key: bytes | None, value: bytes | None) -> list[dict[str, Any]]:
    if key is None or value is None or len(key) < 8 or int.from_bytes(key[:8], "big") != 1:
        raise Undecodable("version")
    keys, values = frames(key[8:]), frames(value)
    if not keys or len(keys) != len(values):
        raise Undecodable("as many keys as values")
    events, empty = [], 0
    for kraw, vraw in zip(keys, values, strict=True):
        t, e = open_key(kraw)
        e |= {"seq": len(events), "protocol": "open-protocol"}
        if t == 3:
            if vraw:
                raise Undecodable("resolved with a value")
            events.append(e | {"kind": "watermark", "schema_name": None, "table_name": None})
            continue
        if t not in (1, 2) or not {"schema_name", "table_name"} <= set(e):
            raise Undecodable("unknown type, or no table")
        v = obj(loads(vraw), *("qt" if t == 2 else "upd"))
        if t == 2:
            e |= {"kind": "ddl", "query": text(v.get("q")), "ddl_type": str(natural(v.get("t")))}
        elif not v:  # costs itself alone
            empty += 1
            continue
        else:
            e |= {"kind": "row"} | open_row(v.get("u"), v.get("p"), v.get("d"))
        events.append(e)
    if not events:
        raise Undecodable(f"{empty} rows without an image")
    return events


def open_row(u: Any, p: Any, d: Any) -> dict[str, Any]:
    if (u is None) == (d is None) or (p is not None and u is None):
        raise Undecodable("u, u and p, or d")
    if d is not None:
        return {"op": "delete", "before": open_image(d)}
    after = {"columns": open_image(u)}
    return {"op": "insert"} | after if p is None else {"op": "update", "before": open_image(p)} | after


BINARY_TYPES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


TYPES = {
    "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bool", "boolean", "float", "double", "decimal",
    "numeric", "year", "bit", "date", "time", "datetime", "timestamp", "char", "varchar", "binary", "varbinary",
    "tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "enum", "set", "json",
    "vector", "geometry", "null", "dec", "fixed", "real", "nchar", "nvarchar", "character", "varcharacter", "long",
    "serial", "varstring", "newdate", "newdecimal",
}  # fmt: skip


def canal_value(mysql_type: str, v: Any) -> str | None:
    base = re.split(r"[( ]", mysql_type, maxsplit=1)[0].lower()
    if base not in TYPES:
        raise Undecodable(f"no type {base!r}")
    if v is None:
        return None
    v = text(v)
    if base in BINARY_TYPES:
        try:
            return "0x" + v.encode("latin-1").hex()
        except UnicodeEncodeError as e:
            raise Undecodable(str(e)) from e
    if base in ("float", "double"):
        if not FLOAT.fullmatch(v):
            raise Undecodable(f"no number: {v!r}")
        return held_float(base, v)
    return held(base, v)


def parts(v: str, separator: str, low: int, high: int) -> list[int]:
    """Return the two-digit numbers, between low and high of them, that the text writes."""
    found = v.split(separator)
    if not low <= len(found) <= high or not all(len(n) == 2 and n.isascii() and n.isdigit() for n in found):
        raise Undecodable(f"no numbers of two digits: {v[:60]!r}")
    return [int(n) for n in found]


def require(fits: bool, base: str, v: str) -> None:
    if not fits:
        raise Undecodable(f"{v[:60]!r} is no {base}")


def day(v: str, base: str) -> None:
    year, _, rest = v.partition("-")
    require(len(year) in (4, 5) and year.isascii() and year.isdigit(), base, v)
    month, of_month = parts(rest, "-", 2, 2)
    require(month <= 12 and of_month <= 31, base, v)


def clock(v: str, base: str) -> None:
    whole, point, part = v.partition(".")
    numbers = parts(whole, ":", 2, 3)
    require(numbers[0] <= 23 and max(numbers[1:]) <= 59, base, v)
    if point:
        require(len(numbers) == 3 and 1 <= len(part) <= 6 and part.isascii() and part.isdigit(), base, v)


def moment(v: str, base: str) -> None:
    at = 10 if v[4:5] == "-" else 11
    day(v[:at], base)
    if len(v) == at:
        return
    require(v[at] in " T", base, v)
    time = v[at + 1 :]
    for i, c in enumerate(time):
        if c in "+-":
            require(len(time) > i + 1 and not time[i + 1 :].strip("0123456789:"), base, v)
            time = time[:i]
            break
    clock(time.removesuffix("Z"), base)


def duration(v: str, base: str) -> None:
    hours, colon, rest = v.removeprefix("-").partition(":")
    require(len(hours) in (2, 3) and hours.isascii() and hours.isdigit() and int(hours) <= 838, base, v)
    clock("00" + colon + rest, base)


def decimal(v: str, base: str) -> None:
    digits = v[1:] if v[:1] in ("+", "-") else v
    require(bool(digits.strip(".")) and digits.count(".") <= 1 and not digits.strip("0123456789."), base, v)


FORMS = {"decimal": decimal, "numeric": decimal, "date": day, "time": duration, "datetime": moment,
         "timestamp": moment}  # fmt: skip
WIDTHS = {
    "bool": 8,
    "boolean": 8,
    "bit": 64,
    "tinyint": 8,
    "smallint": 16,
    "year": 16,
    "mediumint": 24,
    "int": 32,
    "integer": 32,
    "bigint": 64,
}


def held(base: str, v: str) -> str:
    """Return a text if its type can hold it, an integer signed or not."""
    if base in FORMS:
        FORMS[base](v, base)
    if base not in WIDTHS:
        return v
    bits = WIDTHS[base]
    require(base != "bit" or not v.startswith("-"), base, v)
    if not re.fullmatch(r"-?[0-9]{1,20}", v) or (bits < 64 and len(v.lstrip("-")) > 18):
        raise Undecodable(f"no integer: {v[:60]!r}")
    if not -(2 ** (bits - 1)) <= int(v) < 2**bits:
        raise Undecodable(f"{v} is no {base}")
    return v


def decode_canal(value: bytes | None) -> list[dict[str, Any]]:
    if value is None:
        raise Undecodable("null value")
    envelope = ("database", "table", "pkNames", "isDdl", "type", "sql", "mysqlType", "old", "data", "_tidb")
    m = obj(loads(value), *envelope, "id", "es", "ts", "sqlType")
    tidb = Object() if m.get("_tidb") is None else obj(m["_tidb"])
    tidb.once("commitTs", "watermarkTs", "onlyHandleKey", "claimCheckLocation", "rowkey")
    kind = text(m.get("type"))
    e: dict[str, Any] = {"protocol": "canal-json", "seq": 0}
    if kind == "TIDB_WATERMARK":
        return [e | {"kind": "watermark", "commit_ts": natural(tidb.get("watermarkTs"))}]
    e |= {"schema_name": text(m.get("database")), "table_name": text(m.get("table"))}
    if not isinstance(m.get("isDdl"), bool):
        raise Undecodable("isDdl")
    e["commit_ts"] = None if tidb.get("commitTs") is None else natural(tidb["commitTs"])
    if m["isDdl"]:
        return [e | {"kind": "ddl", "query": text(m.get("sql")), "ddl_type": kind}]
    rows = list(canal_rows(m, kind))
    if len(rows) == 1 and tidb.get("rowkey") is not None:
        e["table_id"] = canal_table_id(text(tidb["rowkey"]))
    return [e | {"kind": "row", "incomplete": canal_incomplete(tidb), "seq": i} | row for i, row in rows]


def canal_table_id(row_key: str) -> int | None:
    try:
        raw = base64.b64decode(row_key[:16], validate=True)
    except ValueError:
        return None
    return int.from_bytes(raw[1:9]) - 2**63 if len(raw) == 12 and raw[:1] + raw[9:11] == b"t_r" else None


def canal_incomplete(tidb: Object) -> str | None:
    only, claim = tidb.get("onlyHandleKey"), tidb.get("claimCheckLocation")
    if only is not None and not isinstance(only, bool):
        raise Undecodable("onlyHandleKey")
    if claim is not None and text(claim) != "":
        return "claim-check-missing"
    return "handle-key-only" if only else None


def canal_rows(m: Object, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    ops = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
    if kind not in ops:
        raise Undecodable(f"unknown type {kind}")
    types, data, old, op = obj(m.get("mysqlType")).once(), m.get("data"), m.get("old"), ops[kind]
    keys = [] if m.get("pkNames") is None else m["pkNames"]
    if not isinstance(keys, list) or not isinstance(data, list) or not data:
        raise Undecodable("pkNames or data")
    if op == "update" and (not isinstance(old, list) or len(old) != len(data)):
        raise Undecodable("old")
    keys, types = [text(k) for k in keys], {n: text(t) for n, t in types.items()}

    def image(o: Any) -> list[dict[str, Any]]:
        out = []
        for n, v in obj(o).once().items():
            if n not in types:
                raise Undecodable(f"no type for {n}")
            t = types[n]
            out.append({"name": n, "mysql_type": t, "value": canal_value(t, v), "is_key": n in keys, "flags": None})
        return out

    for i, d in enumerate(data):
        columns, before = image(d), image(old[i]) if op == "update" else None
        if op == "delete":
            columns, before = None, columns
        yield i, {"op": op, "columns": columns, "before": before}


def messages(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as f:
        for line in f:
            m = json.loads(line)
            for part in ("key", "value"):
                m[part] = None if m[part] is None else base64.b64decode(m[part])
            yield m


def decode_file(path: Path, protocol: str) -> list[dict[str, Any]]:
    out = []
    for m in messages(path):
        where = {k: m[k] for k in ("topic", "partition", "offset")}
        for e in decode_open(m["key"], m["value"]) if protocol == "open-protocol" else decode_canal(m["value"]):
            out.append(where | e)
    return out
