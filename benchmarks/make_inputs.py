"""Make the inputs of the benchmarks: a correct change log of any size, in two protocols.

    python benchmarks/make_inputs.py --events 1000000

writes ``benchmarks/out/<protocol>_<events>.parquet`` (messages) and, for the peers that read JSON text only,
``benchmarks/out/canal-json_<events>.ndjson`` (the values alone). Eight partitions, twenty tables dispatched by
index-value, about ten changes a row, mostly updates with the old image, a watermark on every partition after about 400
row changes. The same arguments give the same bytes. With ``--dispatch changed`` the second half of the rows lies one
partition further on, which no rule explains, and with ``columns`` each where its version puts it; their files end in
that word.
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
DISPATCH = ("index-value", "changed", "columns")
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

Row = tuple[int, int, int, dict[str, object] | None, dict[str, object] | None]


def input_of(protocol: str, n: int, dispatch: str = DISPATCH[0], folder: Path = OUT) -> Path:
    """Where the messages of an input lie."""
    return folder / f"{protocol}_{n}{'' if dispatch == DISPATCH[0] else f'_{dispatch}'}.parquet"


def changes(n: int, dispatch: str = DISPATCH[0]) -> Iterator[Row | int]:
    """(commit_ts, table, partition, image after, image before) in commit order; a number is a watermark.

    Like the bank log of `tests/data/golden`: most transactions change two or three rows, a few many; most changes are
    updates.
    """
    r = random.Random(7)
    rows: dict[tuple[int, int], dict[str, object]] = {}
    ids = max(50, n // (10 * TABLES))
    ts, left, unmarked = START_TS, 0, 0
    for at in range(n):
        if not left:
            if unmarked >= ROWS_A_WATERMARK:
                yield ts
                unmarked = 0
            ts += r.randrange(1, 4) << 18
            left = r.choices((2, 3, 4, 50), (7200, 2600, 190, 10))[0]
            touched: set[tuple[int, int]] = set()
        left, unmarked = left - 1, unmarked + 1
        table, row_id = r.randrange(TABLES), r.randrange(ids)
        while (table, row_id) in touched:  # a transaction changes a row once
            row_id = (row_id + 1) % ids
        touched.add((table, row_id))
        before, after = rows.pop((table, row_id), None), None
        if before is None or r.random() > 0.02:
            after = {
                "id": row_id,
                "owner": f"own_{table}_{row_id % 997}",
                "balance": r.randrange(-(10**4), 10**4),
                "ver": (int(str(before["ver"])) + 1) if before else 0,
                "at": None if r.random() < 0.5 else f"2026-11-{r.randrange(1, 29):02d} 12:{r.randrange(60):02d}:00",
            }
            rows[table, row_id] = after
        name = f"accounts_{table}".encode()
        h = zlib.crc32(b"bank" + name) ^ zlib.crc32(b"id" + str(row_id).encode())
        if dispatch == "columns":
            h = zlib.crc32(b"bank" + name) ^ zlib.crc32(b"ver%d" % (after or before or {})["ver"])
        moved = dispatch == "changed" and 2 * at >= n
        yield ts, table, (h + moved) % PARTITIONS, after, before
    yield ts


COLUMNS = ("id", "owner", "balance", "ver", "at")
MYSQL = {"id": "bigint", "owner": "varchar", "balance": "bigint", "ver": "int", "at": "datetime"}
JAVA = {"id": -5, "owner": 12, "balance": -5, "ver": 4, "at": 93}
CODES = {"id": (8, 11), "owner": (15, 0), "balance": (8, 1), "ver": (3, 1), "at": (12, 65)}
DDL = (
    "CREATE TABLE `bank`.`{t}` (`id` BIGINT NOT NULL PRIMARY KEY,`owner` VARCHAR(32) NOT NULL,`balance` BIGINT NOT "
    "NULL,`ver` INT NOT NULL,`at` DATETIME)"
)
_JAVA = json.dumps(JAVA, separators=(",", ":"))
# Go writes this object's members in an order that changes from message to message.
_TYPES = [
    json.dumps(dict(list(MYSQL.items())[i:] + list(MYSQL.items())[:i]), separators=(",", ":"))
    for i in range(len(MYSQL))
]


def dumps(value: object) -> str:
    """JSON as Go writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def canal_row(ts: int, table: int, after: dict[str, object] | None, before: dict[str, object] | None) -> bytes:
    """A canal-json row message."""

    def images(image: dict[str, object] | None) -> str:
        return "null" if image is None else "[" + dumps({k: v if v is None else str(v) for k, v in image.items()}) + "]"

    kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    old, data = ("null", images(before)) if after is None else (images(before), images(after))
    return (
        f'{{"id":0,"database":"bank","table":"accounts_{table}","pkNames":["id"],"isDdl":false,"type":"{kind}",'
        f'"es":{ts >> 18},"ts":{(ts >> 18) + 900},"sql":"","sqlType":{_JAVA},"mysqlType":{_TYPES[ts % 5]},"old":{old},'
        f'"data":{data},"_tidb":{{"commitTs":{ts}}}}}'
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
        text = dumps(value)
        handle = '"h":true,' if name == "id" else ""
        parts.append(f'"{name}":{{"t":{code},{handle}"f":{flags},"v":{text}}}')
    return "{" + ",".join(parts) + "}"


def open_row(
    ts: int, table: int, after: dict[str, object] | None, before: dict[str, object] | None
) -> tuple[bytes, bytes]:
    """An open-protocol row: key frame and value frame."""
    key = f'{{"ts":{ts},"scm":"bank","tbl":"accounts_{table}","t":1}}'.encode()
    images = {"u": after, "p": before} if after else {"d": before}
    value = ",".join(f'"{name}":{open_image(image)}' for name, image in images.items() if image)
    return frame(key), frame(f"{{{value}}}".encode())


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


def make_canal(n: int, folder: Path, dispatch: str = DISPATCH[0]) -> None:
    """The canal-json input, as messages and as text."""
    path = input_of("canal-json", n, dispatch, folder)
    sink, text = Sink(path), path.with_suffix(".ndjson").open("wb")
    for t in range(TABLES):
        sink.put(0, None, canal_other("CREATE", START_TS, f"accounts_{t}", DDL.format(t=f"accounts_{t}")))
    for change in changes(n, dispatch):
        if isinstance(change, int):
            for p in range(PARTITIONS):
                sink.put(p, None, canal_other("TIDB_WATERMARK", change, "", ""))
            continue
        ts, table, partition, after, before = change
        raw = canal_row(ts, table, after, before)
        sink.put(partition, None, raw)
        text.write(raw + b"\n")
    sink.flush()
    sink.writer.close()
    text.close()


def make_open(n: int, folder: Path, dispatch: str = DISPATCH[0]) -> None:
    """The open-protocol input: up to ``BATCH`` rows a message."""
    sink = Sink(input_of("open-protocol", n, dispatch, folder))
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
    for change in changes(n, dispatch):
        if isinstance(change, int):
            for p in range(PARTITIONS):
                send(p)
                sink.put(p, VERSION + frame(f'{{"ts":{change},"t":3}}'.encode()), frame(b""))
            continue
        ts, table, partition, after, before = change
        waiting[partition].append(open_row(ts, table, after, before))
        if len(waiting[partition]) == BATCH:
            send(partition)
    sink.flush()
    sink.writer.close()


def main() -> None:
    """Make the inputs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=OUT)
    parser.add_argument("--dispatch", choices=DISPATCH, default=DISPATCH[0])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for protocol, make in (("canal-json", make_canal), ("open-protocol", make_open)):
        path = input_of(protocol, args.events, args.dispatch, args.folder)
        if not path.exists():
            make(args.events, args.folder, args.dispatch)
        print(path, f"{path.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
