"""Messages of both protocols made from a seed: right ones, odd ones, and broken ones."""

from __future__ import annotations

import base64
import json
import re
from base64 import b64encode
from collections.abc import Callable
from random import Random
from typing import Any

Message = tuple[bytes | None, bytes | None]

NAMES = (
    "id",
    "a",
    "名前",
    "Q\"uote'`",
    "a/b\\c",
    "<script>alert(1)</script>",
    "new\nline",
    "",
    "é\U0001f642",
    "t",
    "ts",
)
TEXTS = ("", "x", "trail ", "tab\t", "数据", "\U0001f642", '\\"', "0x41", "NULL", "\x7f", "\x00", "a" * 70, "-1")
INTEGERS = ("0", "-0", "1", "-1", "255", "9223372036854775807", "-9223372036854775808", "-9223372036854775809",
            "9223372036854775808", "18446744073709551615", "18446744073709551616", "1e3", "1.0", "9" * 40)  # fmt: skip
FLOATS = ("0", "-0", "0.0", "1.5", "-2.50", "5e-324", "1.7976931348623157e308", "1e-15", "1e-16", "1e14", "1e15",
          "123456789012345.6", "100000000000000000000", "0.00000000000000000001", "1e400", "1e401", "-1e-400",
          "1e99999999999999999999", "0e99999", "1E+5", "12300e-2", "0.00120e3")  # fmt: skip
ODD = ("NaN", "Infinity", "-", "01", "1.", ".5", "+1", "1e", "tru", "nulL", "'a'", "{", "]", '"', "")
CODES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 15, 16, 225, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254)
BASE64 = ("A", "AA=", "A===", "AA==AA==", "AAA", "AA=A", "A-_=", "AAAA=", "é===")
TOKENS = (b'"', b"\\", b"\\u", b"\\ud800", b"\\udc00", b"\xff", b"\x00", b"\xed\xa0\x80", b"{", b"}", b"[", b"]",
          b",", b":", b"null", b"true", b"-", b"1e999", b" ", b"\n", b'"t":1,', b'"a":"b",', b"\\x", b"=",
          (1 << 62).to_bytes(8, "big"), b"\xff" * 8, b"\x00" * 8)  # fmt: skip


class Raw(str):
    """Text that goes into JSON as it is."""


class Pairs(list[tuple[str, Any]]):
    """An object as pairs, so that names may come twice and in any order."""


def emit(v: Any, r: Random) -> str:
    """JSON text of a value: white space, escapes and their letter case by chance."""
    space = r.choice(("", "", "", " ", "\r\n\t")) if r.random() < 0.2 else ""
    if isinstance(v, Raw):
        return space + v
    if isinstance(v, Pairs):
        return space + "{" + ",".join(f"{_string(k, r)}{space}:{emit(w, r)}" for k, w in v) + "}" + space
    if isinstance(v, list):
        return space + "[" + ",".join(emit(w, r) for w in v) + space + "]"
    return space + (_string(v, r) if isinstance(v, str) else json.dumps(v))


def _string(s: str, r: Random) -> str:
    escape = r.random() < 0.3
    out = []
    for c in s:
        if c in '"\\' or c < " " or (escape and r.random() < 0.3):
            units = c.encode("utf-16-be")
            code = "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2))
            out.append(json.dumps(c)[1:-1] if r.random() < 0.5 else code)
        else:
            out.append("\\/" if c == "/" and r.random() < 0.5 else c)
    return '"' + "".join(out) + '"'


def _extra(r: Random, depth: int = 0) -> Any:
    kind = r.randrange(9 if depth < 4 else 5)
    if kind >= 7:
        return Pairs((r.choice(NAMES), _extra(r, depth + 1)) for _ in range(r.randrange(4)))
    if kind >= 5:
        return [_extra(r, depth + 1) for _ in range(r.randrange(4))]
    deep = r.randrange(20) == 0
    nested = Raw("[" * (n := r.choice((100, 127, 128, 129, 200))) + "]" * n)
    odd = Raw(r.choice(ODD)) if r.random() < 0.05 else None
    return nested if deep else (odd, r.choice(TEXTS), Raw(r.choice(INTEGERS + FLOATS)), True, None)[kind]


def _object(pairs: list[tuple[str, Any]], r: Random) -> Pairs:
    """The object with, now and then, another order, a field left out, one twice, one of another type, one unknown."""
    out = Pairs(pairs)
    if r.random() < 0.15:
        r.shuffle(out)
    if out and r.random() < 0.04:
        out.pop(r.randrange(len(out)))
    if out and r.random() < 0.03:
        out.insert(r.randrange(len(out) + 1), r.choice(out))
    if out and r.random() < 0.04:
        i = r.randrange(len(out))
        out[i] = (out[i][0], _extra(r))
    if r.random() < 0.1:
        out.insert(r.randrange(len(out) + 1), (r.choice(("x", "rid", "h2", "tt", "tts", "commitTS")), _extra(r)))
    return out


def _ts(r: Random) -> Raw:
    return Raw(r.choice(INTEGERS)) if r.random() < 0.05 else Raw(str(r.randrange(1 << 60)))


def _open_value(code: int, binary: bool, r: Random) -> Any:
    if r.random() < 0.1:
        return None
    raw = r.randbytes(r.randrange(9)) if r.random() < 0.8 else r.choice(TEXTS).encode()
    if 249 <= code <= 252:
        good = base64.b64encode(raw if binary else r.choice(TEXTS).encode()).decode()
        return good if r.random() < 0.9 else r.choice(BASE64)
    if code in (15, 253, 254) and binary:
        good = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in raw)
        odd = r.choice(("\\u00e4", "\\U0001F642", "\\ud800", "\\U00110000", "\\q", "\\", "\\x4", "\\n\\t\\'", "é"))
        return good + odd if r.random() < 0.2 else good
    if code in (4, 5):
        return Raw(r.choice(FLOATS) if r.random() < 0.7 else repr(r.uniform(-1e20, 1e20)))
    if code in (1, 2, 3, 8, 9, 13, 16, 247, 248):
        bits = {1: 8, 2: 16, 13: 16, 9: 24, 3: 32}.get(code, 62)
        low, high = 0 if code == 16 else -(1 << bits - 1), 1 << bits
        odd = r.choice((*INTEGERS, str(low - 1), str(high), str(low), str(high - 1)))
        return Raw(odd if r.random() < 0.04 else str(r.randrange(max(low, -(1 << 40)), high)))
    return typed_text(OPEN_NAMES.get(code, ""), r)


OPEN_NAMES = {0: "decimal", 246: "decimal", 7: "timestamp", 10: "date", 14: "date", 11: "time", 12: "datetime"}
ODD_TIMES = (
    "0000-00-00", "2020-01-01", "2020-13-01", "2020-01-01T00:00:00Z", "2020-01-01 24:00:00", "12:00", "839:00:00",
    "-838:59:59.999999", "2020-01-01 00:00:00+08:00", "2020-01-01 00:00:00.1234567", "+1.5", "1.", ".5", "-",
)  # fmt: skip


def typed_text(base: str, r: Random) -> str:
    """A value of a type, now and then one that it cannot hold; of other types any text."""
    if base and r.random() < 0.04:
        return r.choice((*ODD_TIMES, *TEXTS))
    day = f"{r.randrange(10_000):04}-{r.randrange(13):02}-{r.randrange(32):02}"
    minutes = f"{r.randrange(60):02}:{r.randrange(60):02}" + r.choice(("", ".5", ".000000"))
    if base in ("decimal", "numeric"):
        return f"{r.randrange(-(10**40), 10**40)}.{r.randrange(10**9)}"
    if base == "date":
        return day
    if base == "time":
        return f"{r.choice(('', '-'))}{r.randrange(839):02}:{minutes}"
    return f"{day} {r.randrange(24):02}:{minutes}" if base in ("datetime", "timestamp") else r.choice(TEXTS)


def _open_image(r: Random, names: list[str]) -> Pairs:
    out = []
    for name in names:
        code = r.choice(CODES)
        code = r.choice((6, 17, 255, 256, 14)) if r.random() < 0.01 else code
        binary = r.random() < 0.4
        flags = int(binary) | r.choice((0, 2, 2, 10, 64, 128, 43, 1 << 40))
        column = [("t", code), ("h", bool(flags & 2)), ("f", flags), ("v", _open_value(code, bool(flags & 1), r))]
        out.append((name, _object(column if flags & 2 else [c for c in column if c[0] != "h"], r)))
    return _object(out, r)


def _names(r: Random, most: int = 6) -> list[str]:
    n = 40 if r.random() < 0.02 else r.randrange(1, most)
    return list(dict.fromkeys(r.choice(NAMES) + (str(i) if r.random() < 0.7 else "") for i in range(n)))


def _open_event(r: Random) -> tuple[bytes, bytes]:
    kind = r.choice((1, 1, 1, 1, 2, 3)) if r.random() < 0.97 else r.choice((0, 4, 255, 256))
    key: list[tuple[str, Any]] = [("ts", _ts(r)), ("scm", r.choice(NAMES)), ("tbl", r.choice(NAMES)), ("t", kind)]
    if r.random() < 0.15:
        key.append(("ptn", Raw(r.choice(INTEGERS)) if r.random() < 0.5 else 129))
    if r.random() < 0.1:
        key += [("ohk", True), ("ohk", r.random() < 0.8)]
    if r.random() < 0.1:
        key.append(("ccl", r.choice(("", "file:///x/y", None))))
    if kind == 3:
        return emit(_object(key[:1] + key[3:4], r), r).encode(), b""
    if kind == 2:
        ddl = [("q", r.choice(TEXTS)), ("t", r.randrange(99))]
        return emit(_object(key, r), r).encode(), emit(_object(ddl, r), r).encode()
    names = _names(r)
    some = names if r.random() < 0.5 else r.sample(names, r.randrange(len(names) + 1))
    images = r.choice((("u",), ("u", "p"), ("d",))) if r.random() < 0.97 else r.choice((("p",), ("u", "d"), ("p", "d")))
    value = [(k, _open_image(r, some if k == "p" else names)) for k in images]
    return emit(_object(key, r), r).encode(), emit(_object(list(value), r), r).encode()


def open_message(r: Random) -> Message:
    """A message of open-protocol, right or odd."""
    events = [_open_event(r) for _ in range(r.choice((1, 1, 2, 3, 16)))]
    key = (1).to_bytes(8, "big") + b"".join(len(k).to_bytes(8, "big") + k for k, _ in events)
    return key, b"".join(len(v).to_bytes(8, "big") + v for _, v in events)


CANAL_TYPES = ("int", "bigint unsigned", "tinyint", "smallint(5)", "mediumint unsigned", "year", "integer",
               "varchar", "varchar(20)", "text", "blob", "varbinary(16)", "binary",
               "mediumblob", "tinyblob", "longblob", "float", "double unsigned", "double(10,2)", "decimal(65,30)",
               "bit", "set", "json", "date", "time(6)", "datetime(3)", "timestamp", "numeric", "decimals", "timestampx",
               "datetim", "boolean", "blobs", "BLOB", "floats", "", "mediumblobs")  # fmt: skip


def _canal_value(mysql_type: str, r: Random) -> Any:
    if r.random() < 0.1:
        return None
    if "blob" in mysql_type or "binary" in mysql_type:
        raw = "".join(map(chr, r.randbytes(r.randrange(9))))
        return raw + r.choice("Āÿé\U0001f642") if r.random() < 0.1 else raw
    if mysql_type.startswith(("float", "double")):
        return r.choice((*ODD, "007", "1 ", "1٠")) if r.random() < 0.1 else r.choice(FLOATS[:16])
    if (bits := {"t": 8, "s": 16, "y": 16, "m": 24, "i": 32, "b": 64}.get(mysql_type[:1], 0)) and (
        "int" in mysql_type or mysql_type == "year"
    ):
        low, high = -(1 << bits - 1), 1 << bits
        odd = (
            *ODD,
            *INTEGERS,
            str(low - 1),
            str(high),
            str(low),
            str(high - 1),
            "007",
            "0" * 18,
            "0" * 19,
            "0" * 21,
            "1٠",
        )
        return r.choice(odd) if r.random() < 0.1 else str(r.randrange(low, high))
    if mysql_type in ("bit", "boolean"):
        return r.choice(INTEGERS) if r.random() < 0.04 else str(r.randrange(256))
    return typed_text(mysql_type.partition("(")[0], r)


def _canal_image(r: Random, names: list[str], types: dict[str, str]) -> Pairs:
    return _object([(n, _canal_value(types[n], r)) for n in names], r)


def canal_message(r: Random) -> Message:
    """A message of canal-json, right or odd."""
    kind = r.choice(("INSERT", "UPDATE", "DELETE", "INSERT", "UPDATE", "DELETE", "CREATE", "TIDB_WATERMARK"))
    kind = r.choice(("insert", "INSERT ", "")) if r.random() < 0.02 else kind
    names = _names(r)
    types = {n: r.choice(CANAL_TYPES) for n in names}
    listed = names[:]
    r.shuffle(listed)
    n = r.choice((1, 1, 1, 2, 5))
    ddl = kind == "CREATE" if r.random() < 0.98 else r.random() < 0.5
    rows = not ddl and kind != "TIDB_WATERMARK"
    old_names = names if r.random() < 0.5 else r.sample(names, r.randrange(len(names) + 1))
    tidb: list[tuple[str, Any]] = [("watermarkTs" if kind == "TIDB_WATERMARK" else "commitTs", _ts(r))]
    if r.random() < 0.1:
        tidb.append(("onlyHandleKey", r.choice((True, False, None))))
    if r.random() < 0.1:
        tidb.append(("claimCheckLocation", r.choice(("", "file:///x", None))))
    if r.random() < 0.3:
        row_key = b64encode(b"t" + r.randbytes(8) + b"_r" + r.randbytes(8)).decode()
        tidb.append(("rowkey", r.choice((row_key, row_key, row_key[:9], "t" + row_key, "", None, 7))))
    old = [_canal_image(r, old_names, types) for _ in range(n if r.random() < 0.97 else n + 1)]
    data = [_canal_image(r, names, types) for _ in range(n if r.random() < 0.98 else 0)]
    fields: list[tuple[str, Any]] = [
        ("id", 0), ("database", r.choice(NAMES)), ("table", r.choice(NAMES)),
        ("pkNames", r.choice((None, [], r.sample(names, r.randrange(len(names) + 1)), ["not there"]))),
        ("isDdl", ddl), ("type", kind), ("es", 1795211767471), ("ts", 1795211768352), ("sql", r.choice(TEXTS)),
        ("sqlType", Pairs((m, 12) for m in listed) if rows else None),
        ("mysqlType", _object([(m, types[m]) for m in listed], r) if rows or r.random() < 0.2 else None),
        ("old", old if kind == "UPDATE" else None), ("data", data if rows else None),
    ]  # fmt: skip
    if r.random() < 0.8:
        fields.append(("_tidb", _object(tidb, r)))
    return (None if r.random() < 0.9 else b"key"), emit(_object(fields, r), r).encode()


def broken(message: Message, r: Random) -> Message:
    """The message with one or a few of its bytes changed, cut off, put in, repeated or moved."""
    key, value = message
    if r.random() < 0.03:
        return r.choice(((None, value), (key, None), (None, None), (b"", b""), (key, b""), (value, key)))
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        if key and r.random() < 0.3:
            key = _damage(key, r)
        elif value:
            value = _damage(value, r)
    return key, value


_TYPES = rb'"(?:mysqlType|tidb_type)":"([^"]*)"|"\w+":"((?:big|tiny)?int|varchar|datetime)[^"]*"'


def lied(message: Message, r: Random) -> Message:
    """The message with a column's type that MySQL does not have, or a field that is twice, where it has one."""
    key, value = message
    types = [*re.finditer(_TYPES, value or b"")]
    if not (value and types):
        return message
    found = r.choice(types)
    if r.random() < 0.5:
        return key, value[: found.start()] + found[0] + b"," + found[0] + value[found.end() :]
    first, last = found.span(1 if found[1] is not None else 2)
    odd = r.choice([b"inu", b"datetyme", b"blox", b"", b"int(", b"enum()", b"decimal(999)"])
    return key, value[:first] + odd + value[last:]


def _damage(b: bytes, r: Random) -> bytes:
    if not b:
        return b
    i, j = r.randrange(len(b)), r.randrange(len(b))
    low, high = min(i, j), min(max(i, j), min(i, j) + r.choice((1, 2, 8, 40, 4000)))
    edits: tuple[Callable[[], bytes], ...] = (
        lambda: b[:i] + bytes([b[i] ^ 1 << r.randrange(8)]) + b[i + 1 :],
        lambda: b[:i],
        lambda: b[i:],
        lambda: b[:low] + b[high:],
        lambda: b[:i] + b[low:high] + b[i:],
        lambda: b[:i] + r.choice(TOKENS) + b[i:],
        lambda: b[:i] + r.choice(TOKENS) + b[i + 1 :],
        lambda: b[:i] + bytes([r.randrange(256)]) + b[i + 1 :],
        lambda: b[: i // 8 * 8] + r.choice(TOKENS[-3:]) + b[i // 8 * 8 + 8 :],
    )
    return r.choice(edits)()


MAKERS: dict[str, Callable[[Random], Message]] = {"open-protocol": open_message, "canal-json": canal_message}


def messages(protocol: str, r: Random, most: int = 50) -> list[Message]:
    """1 to ``most`` messages, half of them broken."""
    out = [MAKERS[protocol](r) for _ in range(r.randrange(1, most + 1))]
    return [broken(m, r) if r.random() < 0.5 else m for m in out]
