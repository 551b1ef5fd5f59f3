"""A log whose keys a target takes for each other, or for NULL, and what every target must have of it.

Each table has a key of a text and a number; of the texts the first two are odd: dates with parts of zero, an ENUM that
is no element, a FLOAT printed in two ways, texts that a collation takes for each other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ticdc_lab import load
from ticdc_lab.consumer import compare, replay
from ticdc_lab.consumer.sinks import Sink
from ticdc_lab.sources.change_log import ChangeLog

TS = 463_994_880_000_000_000
ZERO, PARTLY = "0000-00-00 00:00:00", "2026-00-01 00:00:00"
KEYS = {
    "moments": ("DATETIME", (ZERO, PARTLY, "2026-01-01 00:00:00")),
    "days": ("DATE", ("0000-00-00", "2026-02-00", "2026-01-01")),
    "stamps": ("TIMESTAMP", (ZERO, "2026-01-01 00:00:00", "2026-01-01 00:00:01")),
    "floats": ("FLOAT", ("61.2", "0.1", "16777216")),
    "marks": ("ENUM('','b','c')", ("0", "1", "2")),
    "named": ("ENUM('x','b','c')", ("0", "1", "2")),
    "cased": ("VARCHAR(20) COLLATE utf8mb4_general_ci", ("a", "A", "b")),
    "padded": ("VARCHAR(20) COLLATE utf8mb4_bin", ("a", "a ", "b")),
    "accented": ("VARCHAR(20) COLLATE utf8mb4_general_ci", ("e", "é", "E")),
}
_SQL = {"datetime": 93, "date": 91, "timestamp": 93, "float": 7, "enum": 4, "varchar": 12}


def message(offset: int, ts: int, **more: Any) -> dict[str, Any]:
    """A message of canal-json in a capture file."""
    plain = {"id": 0, "database": "s", "table": "k", "pkNames": None, "isDdl": False, "type": "QUERY", "es": 1, "ts": 1,
             "sql": "", "sqlType": None, "mysqlType": None, "data": None, "old": None}  # fmt: skip
    stated = {"watermarkTs" if more.get("type") == "TIDB_WATERMARK" else "commitTs": TS + ts}
    value = base64.b64encode(json.dumps(plain | more | {"_tidb": stated}).encode()).decode()
    return {"topic": "t", "partition": 0, "offset": offset, "key": "", "value": value, "headers": []}


def written(names: Iterable[str]) -> tuple[list[dict[str, Any]], dict[str, list[tuple[int, str]]]]:
    """The messages, and of each table the rows (``n``, ``v``) that it has at the end; its DDL are the first."""
    out: list[dict[str, Any]] = []
    left: dict[str, list[tuple[int, str]]] = {}

    def put(**more: Any) -> None:
        out.append(message(len(out), len(out) + 1, **more))

    def change(table: str, *what: Any) -> None:
        out.append(changed(len(out), table, *what))

    for name in names:
        columns = f"d {KEYS[name][0]} NOT NULL, n INT NOT NULL, v VARCHAR(9), PRIMARY KEY(d, n)"
        put(table=name, isDdl=True, type="CREATE", sql=f"CREATE TABLE {name} ({columns})")
    for name in names:
        first, second, plain = KEYS[name][1]
        for n, key in enumerate((first, second, plain)):
            change(name, "INSERT", key, 1, f"v{n}")
        change(name, "UPDATE", first, 1, "new")
        change(name, "INSERT", second, 2, "y")
        change(name, "INSERT", first, 2, "x")
        change(name, "DELETE", first, 2, "x")
        change(name, "INSERT", first, 3, "z")
        change(name, "INSERT", second, 3, "w")
        change(name, "DELETE", second if name != "floats" else "0.10000000149011612", 3, "w")
        change(name, "DELETE", plain, 1, "v2")
        left[name] = [(1, "new"), (1, "v1"), (2, "y"), (3, "z")]
    put(type="TIDB_WATERMARK")
    return out, left


def changed(offset: int, table: str, op: str, d: str, n: int, v: str) -> dict[str, Any]:
    """The message of a change of a row."""
    kind = KEYS[table][0].split("(")[0].split()[0].lower()
    data, types = {"d": d, "n": str(n), "v": v}, {"d": kind, "n": "int", "v": "varchar"}
    return message(
        offset, offset + 1, table=table, type=op, pkNames=["d", "n"], data=[data],
        old=[data] if op == "UPDATE" else None, mysqlType=types, sqlType={"d": _SQL[kind], "n": 4, "v": 12},
    )  # fmt: skip


def decoded(spark: SparkSession, folder: Path, messages: Iterable[dict[str, Any]]) -> ChangeLog:
    """The log of messages."""
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(m) + "\n" for m in messages))
    return load(spark, str(path)).materialise(str(folder / "decoded"))


def that_comes_back(spark: SparkSession, folder: Path, query: str) -> tuple[ChangeLog, str]:
    """The log of a table ``s.k`` that is dropped and comes back by a DDL, and its name then: ``k`` or ``m``."""
    row = {"type": "INSERT", "pkNames": ["id"], "mysqlType": {"id": "int"}, "sqlType": {"id": 4}}
    table = "m" if query.endswith("m") else "k"
    log = decoded(spark, folder, [
        message(0, 1, isDdl=True, sql="CREATE TABLE k (id INT PRIMARY KEY)"),
        message(1, 2, data=[{"id": "1"}], **row),
        message(2, 3, isDdl=True, sql="DROP DATABASE s" if "DATABASE" in query else "DROP TABLE k"),
        message(3, 4, isDdl=True, table=table, sql=query),
        message(4, 5, data=[{"id": "2"}], table=table, **row), message(5, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    return log, table


def check(
    log: ChangeLog, sink: Sink, cuts: Sequence[int], rows: Callable[[str], Any], left: dict[str, list[tuple[int, str]]]
) -> None:
    """Replay the log in so many batches: each table has its rows, and so shows the comparison; then
    close the target.
    """
    for ts in [*cuts, None]:
        replay(log, sink, until=None if ts is None else TS + ts)
    assert {name: sorted((n, v) for n, v in rows(name)) for name in left} == left
    progress = sink.progress()
    assert progress is not None
    found = {c.table: (c.different, c.why_not) for c in compare(log, sink, progress)}
    assert found == {f"s.{name}": (0, "") for name in left}
    sink.close()
