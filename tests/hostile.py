"""Names that would run, break or flood what shows them, and a recording whose tables and
columns have them.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from conftest import golden

EVIL = "<img src=x onerror='window.ran=1'>"
SCRIPT = "</script></title><script>window.ran=1</script>\"'`"
LINK = '<a href="javascript:window.ran=1">b</a>&lt;b>%{x}'
TURNED = 'two\nlines\t\u202e\u2066of "it"\x07'
LONG = "<b>" + "long " * 13_106
"""64 KiB."""

NAMES: Mapping[str, str] = {
    "orders": EVIL,
    "shop": EVIL,
    "nopk": SCRIPT,
    "users": LINK,
    "parted": TURNED,
    "audit": LONG,
}


def hostile(folder: Path) -> Path:
    """A recording in which tables, a schema, columns and values are called otherwise."""
    lines = []
    for line in gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines():
        message = json.loads(line)
        value = json.loads(base64.b64decode(message["value"]))
        was = value.get("table")
        for field in ("table", "database"):
            value[field] = NAMES.get(value.get(field), value.get(field))
        if value.get("sql") and was in NAMES:
            quoted = f"`{NAMES[was].replace('`', '``')}`"
            value["sql"] = re.sub(rf"`?\b{was}\b`?", lambda _, to=quoted: to, value["sql"])
        if was in ("users", "orders"):
            for images in ("data", "old"):
                for row in value.get(images) or ():
                    for column in [c for c in row if c not in (value.get("pkNames") or ()) and row[c] is not None][:1]:
                        row[column] = SCRIPT
        message["value"] = base64.b64encode(json.dumps(value).encode()).decode()
        lines.append(json.dumps(message))
    path = folder / "hostile.jsonl"
    path.write_text("\n".join(lines))
    return path


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        handlers = [name for name, _ in attrs if name.startswith("on")]
        links = [
            v for name, v in attrs if name in ("href", "src") and (v or "").strip().lower().startswith("javascript")
        ]
        if tag in ("script", "img", "iframe", "object", "embed", "link") or handlers or links:
            self.found.append(self.get_starttag_text() or tag)


def elements(html: str) -> list[str]:
    """Elements of a piece of HTML that run something or ask for something."""
    parser = _Elements()
    parser.feed(html)
    parser.close()
    return parser.found


COLUMNS = ("a`b", "``", 'c"d', "e'f", "g.h", "i j", "k\\l", "`m`.n", "o,{p}=q;%s", "_gone", "_r", "_partition", "_by")
COLUMNS += (
    "_COMMIT_TS",
    "_inferred",
    "_unconvertible",
    "_op",
    "_valid_from",
    "commit_ts",
    "topic",
    "partition",
    "offset",
)
COLUMNS += (
    "named",
    "side",
    "since",
    "id",
    "rowid",
    "copies",
    "texts",
    "t",
    "_row",
    "_metadata",
    "filename",
    "protocol",
)
"""Names of columns that break out of quotes, look like a path, or are called as what is added to rows."""

TABLES = {name: ("s\"c.h`e'm;", f"t`a\"b'l.e\\ %s {name}") for name in ("keyed", "keyless", "grown")}


def hostile_columns(folder: Path, columns: Sequence[str] = COLUMNS) -> Path:
    """A recording of three such tables, the columns of the last added later; each has a row that was changed.

    Of the one without a key another row, the same in its first column, came and went.
    """
    lines: list[dict[str, Any]] = []

    def add(kind: str, name: tuple[str, str] = ("", ""), sql: str = "", **given: Any) -> None:
        ts = len(lines) + 1 << 18
        at = {"watermarkTs": ts} if kind == "TIDB_WATERMARK" else {"commitTs": ts}
        head = {"id": 0, "database": name[0], "table": name[1], "pkNames": None, "isDdl": bool(sql), "type": kind}
        lines.append(head | {"es": 1, "ts": 1, "sql": sql, "data": None, "old": None, "_tidb": at} | given)

    def quoted(*names: str) -> str:
        return ".".join("`" + name.replace("`", "``") + "`" for name in names)

    def row(kind: str, name: tuple[str, str], *versions: str) -> None:
        first, *others = columns
        now, *old = ({first: "7"} | {c: f"{c} {version}" for c in others} for version in versions)
        types: dict[str, Any] = {"mysqlType": {first: "int"} | dict.fromkeys(others, "varchar")}
        types["sqlType"] = {first: 4} | dict.fromkeys(others, 12)
        add(kind, name, data=[now], old=old or None, pkNames=None if name == TABLES["keyless"] else [first], **types)

    first, *others = (f"{quoted(c)} {'VARCHAR(99)' if i else 'INT'}" for i, c in enumerate(columns))
    schema = TABLES["keyed"][0]
    add("QUERY", (schema, ""), f"CREATE DATABASE {quoted(schema)}")
    for what, name in TABLES.items():
        body = [first] if what == "grown" else [first, *others]
        body += [] if what == "keyless" else [f"PRIMARY KEY ({quoted(columns[0])})"]
        add("CREATE", name, f"CREATE TABLE {quoted(*name)} ({', '.join(body)})")
        if what == "grown":
            add("ALTER", name, f"ALTER TABLE {quoted(*name)} ADD COLUMN ({', '.join(others)})")
        row("INSERT", name, "one")
        row("UPDATE", name, "two", "one")
        if what == "keyless":
            row("INSERT", name, "three")
            row("DELETE", name, "three")
    add("TIDB_WATERMARK")
    path = folder / "hostile_columns.jsonl"
    place = {"topic": "t", "partition": 0, "timestamp": None, "key": None, "headers": []}
    values = (base64.b64encode(json.dumps(line).encode()).decode() for line in lines)
    path.write_text("".join(json.dumps(place | {"offset": n, "value": v}) + "\n" for n, v in enumerate(values)))
    return path
