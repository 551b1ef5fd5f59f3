"""Events of tiny logs, and what the audit finds in them."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
from audit_tables import audit_table
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ticdc_lab.events.schema import EVENTS, IMAGE_HASHES, KEYS


def at(partition: int, offset: int, seq: int = 0) -> dict[str, Any]:
    """A place in topic t."""
    return {"topic": "t", "partition": partition, "offset": offset, "seq": seq}


def column(name: str, value: str, key: bool) -> dict[str, Any]:
    """One column of an image."""
    return {"name": name, "mysql_type": "int", "value": value, "is_key": key, "flags": None}


def row(
    partition: int, offset: int, ts: int | None, op: str = "insert", *, key: str | None = "1", table: str = "a",
    v: str = "1", was: str | None = None, old: str | None = None, seq: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A row event of schema s; key None is a table without key. An update changes the value that ``was``, the key that
    was ``old``; nothing without them.
    """
    after = [column("id", key or "0", key is not None), column("v", v, False)]
    before = [column("id", old or key or "0", key is not None), column("v", was or v, False)]
    images = {"columns": None if op == "delete" else after, "before": None if op == "insert" else before}
    names = {"schema_name": "s", "table_name": table}
    return {"kind": "row", "op": op, "commit_ts": ts} | names | images | at(partition, offset, seq)


def mark(partition: int, offset: int, ts: int) -> dict[str, Any]:
    """A watermark event."""
    return {"kind": "watermark", "commit_ts": ts} | at(partition, offset)


def ddl(partition: int, offset: int, ts: int, query: str = "ALTER TABLE `s`.`a` ADD COLUMN `x` INT", table: str = "a"):
    """A DDL event of schema s."""
    names = {"schema_name": "s", "table_name": table}
    return {"kind": "ddl", "commit_ts": ts, "query": query} | names | at(partition, offset)


def closed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with the offsets that a broker gives: none is left out, from the first of each partition on."""
    held: dict[int, list[int]] = {}
    for p, o in sorted({(e["partition"], e["offset"]) for e in events}):
        held.setdefault(p, []).append(o)
    moved = {(p, o): own[0] + i for p, own in held.items() for i, o in enumerate(own)}
    return [e | {"offset": moved[e["partition"], e["offset"]]} for e in events]


def found(events, *checks, protocol="open-protocol", **facts):
    """Findings as (guarantee, severity, table, key, commit_ts, partition, offset) and evidence offsets."""
    told = audit_table(table_of(events), protocol=protocol, checks=checks or None, **facts).to_pylist()
    names = ("guarantee", "severity", "table", "key", "commit_ts", "partition", "offset")
    return [(tuple(f[n] for n in names), [tuple(e.values()) for e in f["evidence"] or ()]) for f in told]


def table_of(events: list[dict[str, Any]]) -> pa.Table:
    """Events in Arrow's form with hashes, which need only differ where the ones of ``ticdc_lab.codecs.keys`` do."""
    return pa.Table.from_pylist([e | _hashes(e) for e in events], schema=EVENTS_WITH_HASHES)


EVENTS_WITH_HASHES = to_arrow_schema(StructType([*EVENTS.fields, *KEYS.fields, *IMAGE_HASHES.fields]))


def _hashes(e: dict[str, Any]) -> dict[str, Any]:
    if e["kind"] != "row":
        return {"admin": {"partition_count": e["admin"][0]}} if e.get("admin") else {}
    after, before, op = e.get("columns"), e.get("before"), e["op"]
    table = (e["schema_name"], e["table_name"])
    key = _key(before if op == "delete" else after, table)
    had = _key(before, table) if op == "update" else None
    whole = before
    if op == "update" and after is not None:
        old = {c["name"]: c for c in before or ()}
        whole = [old.get(c["name"], c) for c in after]
    return {
        "key_hash": key,
        "before_key_hash": had if had != key else None,
        "change_hash": _number((table, op, _content(after), _content(before))),
        "after_hash": _image(after) if op != "delete" else None,
        "before_hash": _image(whole) if op != "insert" and before else None,
    }


def _key(image: Any, table: Any) -> int | None:
    values = [c["value"] for c in image or () if c["is_key"]]
    return _number((table, values)) if values else None


def _image(image: Any) -> int | None:
    if image is None:
        return None
    names, values = 0, 0
    for name, value in _content(image):
        names ^= _number(name) & 0x7FFFFFFF
        values ^= _number((name, value)) & 0xFFFFFFFF
    return names << 32 | values


def _content(image: Any) -> Any:
    return [(c["name"], c["value"]) for c in image] if image is not None else None


def _number(of: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(of).encode(), digest_size=8).digest(), "big", signed=True)
