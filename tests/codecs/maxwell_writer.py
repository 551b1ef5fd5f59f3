"""Maxwell messages with the rows of a canal-json topic, written as classic TiCDC's encoder would write them.

The rules are read from pingcap/tiflow, ``pkg/sink/codec/maxwell`` (``rowChangeToMaxwellMsg``, ``ddlEventToMaxwellMsg``,
``AppendRowChangedEvent``) and from Go's ``encoding/json``: names sorted, ``<>&`` escaped, floats in digits from 1e-6 to
below 1e21. No such topic was recorded; these messages test our decoder against our reading of that encoder.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

KEY = (1).to_bytes(8, "big")
NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "enum", "set", "bit")
BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
DDL_TYPES = {"CREATE": "table-create", "ERASE": "table-drop", "ALTER": "table-alter", "CINDEX": "table-alter",
             "RENAME": "rename table", "TRUNCATE": "truncate table", "QUERY": "database-create"}  # fmt: skip

Json = dict[str, Any]


def messages(canal_json: Iterable[Json], *, at_once: int = 5) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each message: up to ``at_once`` rows that follow each other share one."""
    batch: list[bytes] = []
    for event in canal_json:
        if not event["isDdl"]:
            batch += rows(event)
        if batch and (event["isDdl"] or len(batch) >= at_once):
            yield KEY, b"".join(batch)
            batch = []
        if event["isDdl"]:
            yield ddl(event)
    if batch:
        yield KEY, b"".join(batch)


def rows(event: Json) -> Iterator[bytes]:
    """One object for each row of a canal-json message."""
    kind = event["type"].lower()
    for i, data in enumerate(event["data"]):
        value: Json = {"database": event["database"], "table": event["table"], "type": kind, "ts": event["es"] // 1000}
        new = image(data, event["mysqlType"])
        if kind == "delete":
            value["old"] = new
        else:
            value["data"] = new
        if kind == "update":
            old = image(event["old"][i], event["mysqlType"])
            changed = {name: v for name, v in old.items() if name not in new or new[name] != v}
            value |= {"old": changed} if changed else {}
        yield go_json(value)


def ddl(event: Json) -> tuple[bytes, bytes]:
    """The message of a statement, whose ts is its commit_ts."""
    ts = event["es"] << 18
    no_table = {"database": "", "table": "", "columns": None, "primary-key": None}
    table = no_table | {"database": event["database"], "table": event["table"]}
    value = {"type": DDL_TYPES[event["type"]], "database": event["database"], "table": event["table"],
             "old": no_table, "def": table, "ts": ts, "sql": event["sql"]}  # fmt: skip
    return go_json({"ts": ts, "scm": event["database"], "tbl": event["table"], "t": 2}), go_json(value)


def image(columns: Json, types: Json) -> Json:
    """Column values as JSON holds them, names sorted as Go sorts them."""
    return {name: written(columns[name], types[name]) for name in sorted(columns)}


def written(value: str | None, mysql_type: str) -> Any:
    """The form of one value by its type."""
    base = mysql_type.split("(")[0].split(" ")[0]
    if value is None:
        return None
    if base in NUMBERS:
        return int(value)
    if base in ("float", "double"):
        return Digits(float_digits(value))
    return base64.b64encode(value.encode("latin-1")).decode() if base in BINARY else value


class Digits(str):
    """A number that is already written."""


def float_digits(value: str) -> str:
    """A float as Go's JSON writes it."""
    number = Decimal(value)
    if not number or Decimal("1e-6") <= abs(number) < Decimal("1e21"):
        return f"{number.normalize():f}"
    digits = "".join(map(str, number.normalize().as_tuple().digits))
    exponent = number.adjusted()
    shown = digits[0] + ("." + digits[1:] if digits[1:] else "")
    return f"{'-' if number < 0 else ''}{shown}e{'+' if exponent > 0 else ''}{exponent}"


def go_json(value: Any) -> bytes:
    """JSON text as Go writes it."""
    if isinstance(value, Digits):
        return value.encode()
    if isinstance(value, dict):
        return b"{" + b",".join(go_json(k) + b":" + go_json(v) for k, v in value.items()) + b"}"
    text = json.dumps(value, ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode()
