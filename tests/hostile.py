"""Names that would run, break or flood whatever shows them, and a recording whose tables and columns have them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

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
