"""Events of tiny logs, and what the audit finds in them."""

from __future__ import annotations

from typing import Any

from conftest import events_frame

from ticdc_lab.audit import audit


def at(partition: int, offset: int, seq: int = 0) -> dict[str, Any]:
    """A place in topic t."""
    return {"topic": "t", "partition": partition, "offset": offset, "seq": seq}


def column(name: str, value: str, key: bool) -> dict[str, Any]:
    """One column of an image."""
    return {"name": name, "mysql_type": "int", "value": value, "is_key": key, "flags": None}


def row(
    partition: int, offset: int, ts: int | None, op: str = "insert", *, key: str | None = "1", table: str = "a",
    v: str = "1", old: str | None = None, seq: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A row event of schema s; key None is a table without key. An update changes nothing but the key."""
    after = [column("id", key or "0", key is not None), column("v", v, False)]
    before = [column("id", old or key or "0", key is not None), column("v", v, False)]
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


def found(spark, events, *checks, protocol="open-protocol", **facts):
    """Findings as (guarantee, severity, table, key, commit_ts, partition, offset) and evidence offsets."""
    frame = events_frame(spark, events).transform(audit, protocol=protocol, checks=checks or None, **facts)
    return [
        (
            (f.guarantee, f.severity, f.table, f.key, f.commit_ts, f.partition, f.offset),
            [(e.partition, e.offset, e.commit_ts) for e in f.evidence],
        )
        for f in frame.collect()
    ]
