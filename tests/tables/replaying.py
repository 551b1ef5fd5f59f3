"""The truth applied transaction by transaction in plain Python: what every table held at a commit_ts."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import re
from collections import Counter
from typing import Any

import numpy as np
from conftest import json_lines

ORDER = {"delete": 0, "update": 1, "insert": 2}
Row = dict[str, Any]


class Replay:
    """Tables by (schema, table): rows by key, or a count of rows where there is no key."""

    def __init__(self, truth: str) -> None:
        self.records = list(json_lines(truth))
        # a version of a table is known when its DDL is done
        self.schemas = [r for r in self.records if r["kind"] == "schema"]

    def schema(self, name: tuple[str, str], ts: int) -> Row | None:
        """The definition TiDB's schema store had at ``ts``."""
        of = [s for s in self.schemas if (s["schema"], s["table"]) == name and s["version"] <= ts]
        return of[-1] if of else None

    def at(self, ts: int) -> dict[tuple[str, str], Counter[tuple[Any, ...]]]:
        """Rows of all tables at ``ts``, as tuples of texts in column order."""
        tables: dict[tuple[str, str], dict[Any, Row]] = {}
        bags: dict[tuple[str, str], Counter[tuple[Any, ...]]] = {}
        for r in self.records:
            if r["kind"] == "schema" or r["commit_ts"] > ts:
                continue
            if r["kind"] == "ddl":
                self._ddl(r, tables, bags)
                continue
            for x in sorted(r["rows"], key=lambda x: ORDER[x["op"]]):
                name = (x["schema"], x["table"])
                handle = self.schema(name, r["commit_ts"])["handle_columns"]
                if not handle:
                    bag = bags[name]
                    for image, by in ((x.get("cols"), 1), (x.get("old"), -1)):
                        if image is not None:
                            bag[tuple(str(v) if v is not None else None for v in image.values())] += by
                    assert min(bag.values(), default=0) >= 0
                    bags[name] = +bag
                    continue
                if x.get("old"):
                    del tables[name][tuple(x["old"][c] for c in handle)]
                if x.get("cols"):
                    tables[name][tuple(x["cols"][c] for c in handle)] = dict(x["cols"])
        found = {name: Counter(self._tuples(name, rows, ts)) for name, rows in tables.items()}
        return found | bags

    def _tuples(self, name: tuple[str, str], rows: dict[Any, Row], ts: int) -> list[tuple[Any, ...]]:
        columns = self.schema(name, ts)["columns"]
        return [tuple(hashable(row[c["name"]]) for c in columns) for row in rows.values()]

    def _ddl(self, r: Row, tables: dict[Any, dict[Any, Row]], bags: dict[Any, Counter[Any]]) -> None:
        name, kind = (r["schema"], r["table"]), r["type_name"]
        if kind in ("create table", "truncate table"):
            keyed = self.schema(name, r["commit_ts"])["handle_columns"]
            (tables if keyed else bags)[name] = {} if keyed else Counter()
        elif kind == "drop table":
            del tables[name]
        elif kind == "rename table":
            tables[name] = tables.pop((r["extra_schema"], r["extra_table"]))
        elif kind == "add column":
            added = re.search(r"ADD COLUMN `(\w+)`", r["query"])[1]
            default = next(c["default"] for c in self.schema(name, r["commit_ts"])["columns"] if c["name"] == added)
            for row in tables[name].values():
                row[added] = default
        elif renamed := re.search(r"CHANGE COLUMN `(\w+)` `(\w+)`", r["query"]):
            for row in tables[name].values():
                row[renamed[2]] = row.pop(renamed[1])


def hashable(value: Any) -> Any:
    """A truth value that can be counted."""
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def expected(column: Row, text: Any) -> tuple[Any, bool]:
    """What a typed column must hold for a truth value, and whether the value has no place in the type."""
    kind, options = column["mysql_type"].split("(")[0].split(" ")[0], column["elems"] or []
    if text is None or isinstance(text, bytes):
        return text, False
    if kind in ("int", "year"):
        return int(text), False
    if kind == "bigint":
        return (decimal.Decimal(text) if "unsigned" in column["mysql_type"].lower() else int(text)), False
    if kind == "bit":
        return int(text), False
    if kind == "double":
        return float(text), False
    if kind == "float":
        return float(np.float32(text)), False
    if kind == "decimal":
        with decimal.localcontext(prec=2000, rounding=decimal.ROUND_HALF_UP):
            value = decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-column["decimal"]))
            fits = abs(value) < decimal.Decimal(10) ** (column["flen"] - column["decimal"])
            return (value, False) if fits else (None, True)
    if kind in ("date", "datetime", "timestamp") and text.startswith("0000-00-00"):
        return None, True
    if kind == "date":
        return dt.date.fromisoformat(text), False
    if kind in ("datetime", "timestamp"):
        return dt.datetime.fromisoformat(text), False
    if kind == "enum":
        return options[int(text) - 1], False
    if kind == "set":
        return ",".join(o for i, o in enumerate(options) if int(text) >> i & 1), False
    return text, False
