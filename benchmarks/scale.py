"""What an audit costs with many tables, partitions or rules of dispatch, and with large rows.

    python benchmarks/scale.py

Each question is asked at several sizes, of a log in canal-json that is made for it. The table gives user CPU seconds of
all processes of ``ticdc-lab audit``, which other work on the machine disturbs little.
"""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

SIZES = {
    "tables, each made by a DDL": (10_000, 40_000, 100_000),
    "partitions": (500, 2_000, 10_000),
    "rules of dispatch": (100, 400, 1_600),
    "rows of 1 MB": (30, 120, 480),
}
TS = 446_266_400_000_000_000
MS = 1 << 18


def message(kind: str, table: str = "", ts: int = TS, **fields: Any) -> bytes:
    """One message of canal-json."""
    extension = {"watermarkTs": ts} if kind == "TIDB_WATERMARK" else {"commitTs": ts}
    of = {"id": 0, "database": "db" if table else "", "table": table, "pkNames": ["id"], "isDdl": "sql" in fields,
          "type": kind, "es": 1, "ts": 1, "sql": "", "mysqlType": {"id": "bigint", "v": "longtext"},
          "sqlType": {"id": -5, "v": 12}, "data": None, "old": None, "_tidb": extension}  # fmt: skip
    return json.dumps(of | fields, separators=(",", ":")).encode()


class Topic:
    """A capture file that is written."""

    def __init__(self, file: TextIO, partitions: int) -> None:
        self._file, self._next, self.partitions = file, Counter[int](), partitions

    def put(self, partition: int, value: bytes) -> None:
        """Append a message to a partition."""
        record = {"topic": "t", "partition": partition, "offset": self._next[partition], "timestamp": None,
                  "key": None, "value": b64encode(value).decode(), "headers": []}  # fmt: skip
        self._next[partition] += 1
        self._file.write(json.dumps(record) + "\n")

    def everywhere(self, value: bytes) -> None:
        """Append a message to each partition."""
        for partition in range(self.partitions):
            self.put(partition, value)


def write(file: TextIO, what: str, size: int) -> None:
    """Write the log of a question."""
    topic, ts = Topic(file, size if what == "partitions" else 3), TS
    tables = {"tables, each made by a DDL": size, "rules of dispatch": 5_000}.get(what, 1)
    rows = {"partitions": 5 * size, "rows of 1 MB": size}.get(what, tables)
    text = "x" * (1 << 20 if what == "rows of 1 MB" else 10)
    for i in range(rows):
        table, ts = f"t{i % tables}", ts + 2 * MS
        if what.startswith("tables"):
            sql = f"CREATE TABLE `{table}` (id BIGINT PRIMARY KEY, v LONGTEXT)"
            topic.everywhere(message("CREATE", table, ts - MS, sql=sql))
        topic.put(i % topic.partitions, message("INSERT", table, ts, data=[{"id": str(i), "v": text}]))
        if i % (rows // 5) == rows // 5 - 1:
            topic.everywhere(message("TIDB_WATERMARK", ts=ts))


def user_s(command: list[str]) -> float:
    """User CPU seconds of a command with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> None:
    """Print a row for each question."""
    with tempfile.TemporaryDirectory() as folder:
        for what, sizes in SIZES.items():
            found = []
            for size in sizes:
                log, rules = Path(folder, "log.jsonl.gz"), Path(folder, "changefeed.toml")
                with gzip.open(log, "wt", compresslevel=1) as file:
                    write(file, what, size)
                each = ",\n".join(f'{{matcher = ["db.t{i}"], partition = "index-value"}}' for i in range(size))
                rules.write_text(f"[sink]\ndispatchers = [\n{each}\n]\n")
                given = ["--changefeed", str(rules)] if what == "rules of dispatch" else []
                command = [str(Path(sys.executable).with_name("ticdc-lab")), "audit", str(log), *given]
                found.append(f"{size:,}: {user_s(command):.1f}")
            print(f"| {what} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
