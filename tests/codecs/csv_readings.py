"""Rows of tables with left-out columns as TiCDC's csv encoder writes them, in every setting; for property tests."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from stored import VERSION, put, put_data, put_schema

BARE = ("BIGINT", "INT", "BIGINT UNSIGNED", "DOUBLE", "BIT", "YEAR")
ODD = ("",) * 6 + ("'", '"', "\\", "\\n", ",", ";", "|", "|@|", "\t", "\n", "/", "%2F", " x", "é", ",c1")
"""What names may end with."""
LABELS = {"ENUM": ("a", "b\\\n", "c,;|'\""), "SET": ("a", "b\\", "c;|'\"")}
TEXTS = ("VARCHAR", "DECIMAL", "DATETIME", "DATE", "ENUM", "SET", "JSON", "VARBINARY", "TEXT")


@dataclass(frozen=True)
class Made:
    """A folder: what its tables' rows hold, (commit_ts, op, values by name) of each, and the settings."""

    rows: dict[str, list[tuple[int | None, str, dict[str, str | None]]]]
    with_ts: bool
    settings: dict[str, str]


def made_folder(root: Path, seed: int) -> Made:
    """Write a folder of one to three tables, drawn by the seed."""
    r = Random(seed)
    quote = r.choice(('"', '"', '"', "'", ""))
    s = {
        "delimiter": r.choice((",", ",", ";", "|", "|@|", "\t")), "quote": quote,
        "null": r.choice((r"\N", r"\N", "NULL", "")) if quote else r"\N", "terminator": r.choice(("\r\n", "\n")),
    }  # fmt: skip
    with_ts, with_update, with_header = r.random() < 0.6, r.random() < 0.3, r.random() < 0.25
    put(root, "metadata", json.dumps({"checkpoint-ts": VERSION + (1 << 40)}))
    rows: dict[str, Any] = {}
    for t in [f"t{i}{r.choice(ODD)}" for i in range(r.randrange(1, 4))]:
        columns = [_column(r, i) for i in range(r.randrange(2, 7))]
        columns[0] |= {"ColumnType": "BIGINT", "ColumnIsPk": "true", "ColumnNullable": "false", "key": True}
        names = [c["ColumnName"] for c in columns]
        out = set(r.sample(names[1:], r.randrange(0, min(3, len(names))))) if r.random() < 0.7 else set()
        virtual = {n for n in out if r.random() < 0.5}
        query = _query(r, t, columns, virtual) if r.random() < 0.6 else ""
        kept = [c for c in columns if c["ColumnName"] not in out]
        text, ts = "", VERSION
        if with_header:
            meta = ["operation", "table", "schema", *["commit-ts"] * with_ts, *["is-update"] * with_update]
            shuffled = r.sample(kept, len(kept)) if r.random() < 0.3 else kept
            kept = shuffled
            text = s["delimiter"].join([f"ticdc-meta${m}" for m in meta] + [c["ColumnName"] for c in kept])
            text += s["terminator"]
        rows[t] = []
        for _ in range(r.randrange(1, 12)):
            ts += r.randrange(1, 1 << 30)
            image = {c["ColumnName"]: _value(r, c) for c in kept}
            op = r.choice("IUD" if not with_update else "ID")
            fields = [_text(x, s) for x in (op, t, "s")] + [str(ts)] * with_ts + ["false"] * with_update
            for c in kept:
                written, _ = image[c["ColumnName"]]
                fields.append(
                    s["null"] if written is None else _text(written, s) if c["ColumnType"] in TEXTS else written
                )
            text += s["delimiter"].join(fields) + s["terminator"]
            rows[t].append((ts if with_ts else None, op, {n: meant for n, (_, meant) in image.items()}))
        bare = [{k: v for k, v in c.items() if k != "key"} for c in columns]
        put_schema(root, *bare, where=f"s/{t}", Table=t, Query=query)
        put_data(root, text, where=f"s/{t}/{VERSION}")
    return Made(rows, with_ts, s)


def _column(r: Random, i: int) -> dict[str, Any]:
    kind = r.choice(BARE + TEXTS + ("VARCHAR", "VARCHAR", "INT"))
    elements = {"ColumnElems": list(LABELS[kind])} if kind in LABELS else {}
    return {"ColumnName": f"c{i}{r.choice(ODD)}", "ColumnType": kind, "ColumnPrecision": "40"} | elements


def _query(r: Random, table: str, columns: list[dict[str, Any]], virtual: set[str]) -> str:
    def words(c: dict[str, Any]) -> str:
        kind = {"ENUM": "ENUM('a','b','c')", "SET": "SET('a','b','c')"}.get(c["ColumnType"], c["ColumnType"])
        kind += "(40)" if kind in ("VARCHAR", "VARBINARY") else ""
        generated = r.choice((" GENERATED ALWAYS AS (UPPER('x')) VIRTUAL", " AS ('x')"))
        stored = r.choice(("", "", " GENERATED ALWAYS AS ('y') STORED"))
        own = " PRIMARY KEY" if c.get("key") else generated if c["ColumnName"] in virtual else stored
        return f"`{c['ColumnName']}` {kind}{own}"

    return f"CREATE TABLE `{table}` ({', '.join(map(words, columns))})"


def _value(r: Random, c: dict[str, Any]) -> tuple[str | None, str | None]:
    """A value as TiCDC hands it to its encoder, and as the events contract reports it."""
    kind = c["ColumnType"]
    if not c.get("key") and r.random() < 0.2:
        return None, None
    number = str(r.choice((r.randrange(5), r.randrange(1 << 20))))
    if c.get("key") and r.random() < 0.1:
        number = str(VERSION + r.randrange(1 << 35))  # a key that looks like a commit_ts
    text = "".join(r.choice("ab1,;|'\" \n\\") for _ in range(r.randrange(4)))
    raw = r.randbytes(r.randrange(6))
    which = r.randrange(3)
    enum, of_set = (LABELS[k][which] for k in ("ENUM", "SET"))
    both: dict[str, tuple[str, str]] = {
        "DOUBLE": ("1.5", "1.5"), "YEAR": ("2020", "2020"), "VARCHAR": (text, text), "TEXT": (text, text),
        "DECIMAL": ("12.30", "12.30"), "DATETIME": ("2020-01-02 03:04:05",) * 2, "DATE": ("2020-01-02",) * 2,
        "ENUM": (enum, str(which + 1)), "SET": (of_set, str(1 << which)),
        "JSON": ('{"a": 1}',) * 2, "VARBINARY": (base64.b64encode(raw).decode(), "0x" + raw.hex()),
    }  # fmt: skip
    return both.get(kind, (number, number))


def _text(value: str, s: dict[str, str]) -> str:
    if s["quote"]:
        return s["quote"] + value.replace(s["quote"], 2 * s["quote"]) + s["quote"]
    value = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return value.replace(s["delimiter"], "".join("\\" + c for c in s["delimiter"]))
