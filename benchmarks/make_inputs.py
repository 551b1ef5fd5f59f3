"""Make the inputs of the benchmarks: a correct change log of any size, in two protocols.

    python benchmarks/make_inputs.py --events 1000000

writes ``benchmarks/out/<protocol>_<events>.parquet`` (messages) and, for the peers that read JSON text only,
``benchmarks/out/canal-json_<events>.ndjson`` (the values alone). Eight partitions, twenty tables dispatched by
index-value, about ten changes a row, mostly updates with the old image, a watermark on every partition after each 400
row changes. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).parent / "out"
PARTITIONS, TABLES, ROWS_A_WATERMARK, BATCH = 8, 20, 400, 8
START_TS = 470_603_000_000_000_000
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)

Row = tuple[int, int, int, dict[str, object], dict[str, object] | None]


def changes(n: int) -> Iterator[Row]:
    """(commit_ts, table, partition, image after, image before) in commit order."""
    r = random.Random(7)
    versions: dict[tuple[int, int], dict[str, object]] = {}
    ids = max(1, n // (10 * TABLES))
    ts = START_TS
    for i in range(n):
        ts += r.randrange(1, 4) << 18
        table, row_id = r.randrange(TABLES), r.randrange(ids)
        before = versions.get((table, row_id))
        after: dict[str, object] = {
            "id": row_id,
            "owner": f"own_{table}_{row_id % 997}",
            "balance": r.randrange(-(10**9), 10**9),
            "rate": f"{r.randrange(10**6)}.{r.randrange(10**4):04d}",
            "note": f"取引 {i} – transfer",
            "ver": (int(str(before["ver"])) + 1) if before else 0,
            "at": f"2026-11-{r.randrange(1, 29):02d} 12:{r.randrange(60):02d}:00.{r.randrange(10**6):06d}",
        }
        versions[table, row_id] = after
        name = f"accounts_{table}".encode()
        h = zlib.crc32(b"bank" + name) ^ zlib.crc32(b"id" + str(row_id).encode())
        yield ts, table, h % PARTITIONS, after, before


COLUMNS = ("id", "owner", "balance", "rate", "note", "ver", "at")
MYSQL = {
    "id": "bigint",
    "owner": "varchar",
    "balance": "bigint",
    "rate": "decimal",
    "note": "varchar",
    "ver": "int",
    "at": "datetime",
}
JAVA = {"id": -5, "owner": 12, "balance": -5, "rate": 3, "note": 12, "ver": 4, "at": 93}
CODES = {
    "id": (8, 11),
    "owner": (15, 64),
    "balance": (8, 65),
    "rate": (246, 65),
    "note": (15, 64),
    "ver": (3, 65),
    "at": (12, 65),
}
DDL = (
    "CREATE TABLE `bank`.`{t}` (`id` BIGINT NOT NULL PRIMARY KEY,`owner` VARCHAR(32),`balance` BIGINT,"
    "`rate` DECIMAL(12,4),`note` VARCHAR(64),`ver` INT,`at` DATETIME(6))"
)
_TYPES = json.dumps(MYSQL, separators=(",", ":"))
_JAVA = json.dumps(JAVA, separators=(",", ":"))


def dumps(value: object) -> str:
    """JSON as Go writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def canal_row(ts: int, table: int, after: dict[str, object], before: dict[str, object] | None) -> bytes:
    """A canal-json row message."""
    image = dumps({k: str(v) for k, v in after.items()})
    old = "null" if before is None else "[" + dumps({k: str(v) for k, v in before.items()}) + "]"
    kind = "INSERT" if before is None else "UPDATE"
    return (
        f'{{"id":0,"database":"bank","table":"accounts_{table}","pkNames":["id"],"isDdl":false,"type":"{kind}",'
        f'"es":{ts >> 18},"ts":{(ts >> 18) + 900},"sql":"","sqlType":{_JAVA},"mysqlType":{_TYPES},"old":{old},'
        f'"data":[{image}],"_tidb":{{"commitTs":{ts}}}}}'
    ).encode()


def canal_other(kind: str, ts: int, table: str, sql: str) -> bytes:
    """A canal-json DDL or watermark message."""
    mark = kind == "TIDB_WATERMARK"
    tidb = f'{{"watermarkTs":{ts}}}' if mark else f'{{"commitTs":{ts}}}'
    return (
        f'{{"id":0,"database":"{"" if mark else "bank"}","table":"{table}","pkNames":null,'
        f'"isDdl":{str(not mark).lower()},'
        f'"type":"{kind}","es":{ts >> 18},"ts":{(ts >> 18) + 900},"sql":{dumps(sql)},"sqlType":null,"mysqlType":null,'
        f'"data":null,"old":null,"_tidb":{tidb}}}'
    ).encode()


def frame(raw: bytes) -> bytes:
    """An open-protocol frame."""
    return struct.pack(">Q", len(raw)) + raw


VERSION = struct.pack(">Q", 1)


def open_image(image: dict[str, object]) -> str:
    """An open-protocol row image."""
    parts = []
    for name in COLUMNS:
        code, flags = CODES[name]
        value = image[name]
        text = dumps(value) if code in (12, 15, 246) else str(value)
        handle = '"h":true,' if name == "id" else ""
        parts.append(f'"{name}":{{"t":{code},{handle}"f":{flags},"v":{text}}}')
    return "{" + ",".join(parts) + "}"


def open_row(ts: int, table: int, after: dict[str, object], before: dict[str, object] | None) -> tuple[bytes, bytes]:
    """An open-protocol row: key frame and value frame."""
    key = f'{{"ts":{ts},"scm":"bank","tbl":"accounts_{table}","t":1}}'.encode()
    old = "" if before is None else ',"p":' + open_image(before)
    return frame(key), frame(f'{{"u":{open_image(after)}{old}}}'.encode())


class Sink:
    """Messages of one protocol on their way to a file, with offsets."""

    def __init__(self, path: Path) -> None:
        self.writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self.offsets = [0] * PARTITIONS
        self.rows: dict[str, list[object]] = {f.name: [] for f in SCHEMA}

    def put(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Append one message to a partition."""
        fields = ("bench", partition, self.offsets[partition], None, key, value)
        for name, field in zip(self.rows, fields, strict=True):
            self.rows[name].append(field)
        self.offsets[partition] += 1
        if len(self.rows["topic"]) >= 50_000:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting as a row group."""
        if self.rows["topic"]:
            self.writer.write_table(pa.table(self.rows, schema=SCHEMA))
            self.rows = {f.name: [] for f in SCHEMA}


def make_canal(n: int, folder: Path) -> None:
    """The canal-json input, as messages and as text."""
    sink, text = Sink(folder / f"canal-json_{n}.parquet"), (folder / f"canal-json_{n}.ndjson").open("wb")
    for t in range(TABLES):
        sink.put(0, None, canal_other("CREATE", START_TS, f"accounts_{t}", DDL.format(t=f"accounts_{t}")))
    for i, (ts, table, partition, after, before) in enumerate(changes(n), 1):
        raw = canal_row(ts, table, after, before)
        sink.put(partition, None, raw)
        text.write(raw + b"\n")
        if i % ROWS_A_WATERMARK == 0 or i == n:
            for p in range(PARTITIONS):
                sink.put(p, None, canal_other("TIDB_WATERMARK", ts, "", ""))
    sink.flush()
    sink.writer.close()
    text.close()


def make_open(n: int, folder: Path) -> None:
    """The open-protocol input: up to ``BATCH`` rows a message."""
    sink = Sink(folder / f"open-protocol_{n}.parquet")
    waiting: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]

    def send(p: int) -> None:
        if waiting[p]:
            sink.put(p, VERSION + b"".join(k for k, _ in waiting[p]), b"".join(v for _, v in waiting[p]))
            waiting[p] = []

    for t in range(TABLES):
        key = f'{{"ts":{START_TS},"scm":"bank","tbl":"accounts_{t}","t":2}}'.encode()
        value = dumps({"q": DDL.format(t=f"accounts_{t}"), "t": 3}).encode()
        for p in range(PARTITIONS):
            sink.put(p, VERSION + frame(key), frame(value))
    for i, (ts, table, partition, after, before) in enumerate(changes(n), 1):
        waiting[partition].append(open_row(ts, table, after, before))
        if len(waiting[partition]) == BATCH:
            send(partition)
        if i % ROWS_A_WATERMARK == 0 or i == n:
            for p in range(PARTITIONS):
                send(p)
                sink.put(p, VERSION + frame(f'{{"ts":{ts},"t":3}}'.encode()), frame(b""))
    sink.flush()
    sink.writer.close()


def main() -> None:
    """Make the inputs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=OUT)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for protocol, make in (("canal-json", make_canal), ("open-protocol", make_open)):
        path = args.folder / f"{protocol}_{args.events}.parquet"
        if not path.exists():
            make(args.events, args.folder)
        print(path, f"{path.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
