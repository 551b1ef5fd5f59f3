"""Every codec beside a library that only parses the same messages, in one process.

    python benchmarks/codecs.py [--golden FOLDER] [--rounds 5] [--rows 50000] [--plain]

Ours takes Arrow batches to events with all images and hashes, as a Spark worker does it. The peer takes the messages as
``bytes`` that are there already and drops what its library gives: orjson for the formats in JSON, fastavro for those
in Avro, protobuf's own classes for canal. So a ratio of 1 would mean that making events costs nothing. Each round runs
both in turn; the table gives medians, by seconds of CPU time, as the machine may be shared.

Topics are from the repository or ``--golden``: bank where there is one, else small, again and again until there
are enough rows. maxwell and mq-v1 were not recorded: their rows come from canal-json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import struct
import sys
import time
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import fastavro
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs import choice, simple_avro
from ticdc_lab.codecs.canal import Entry, Messages, Packet, RowChange
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.kernel import compiling
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.registry import PROTOCOLS
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.encode.encoders import encode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/codecs"))
import maxwell_writer  # noqa: E402

FOLDERS = [
    ROOT / part
    for part in ("data", "tests/data/golden", "tests/data/golden/extra", "tests/data/canal", "tests/data/torture")
]
TOPICS = {
    "open-protocol": "open-protocol",
    "canal-json": "canal-json-tidb",
    "simple": "simple",
    "simple in Avro": "simple-avro",
    "debezium": "debezium",
    "debezium, no schema": "debezium-noschema",
    "avro": "avro",
    "debezium in Avro": "debezium-avro",
    "canal": "canal",
    "maxwell": "",
    "mq-v1": "",
}
"""What is measured: the beginning of the topic's file."""

FRAMED = ("avro", "debezium in Avro")
"""Formats whose schemas are in a registry."""

AIMS = {"simple": 300_000, "simple in Avro": 150_000, "maxwell": 150_000, "mq-v1": 150_000} | dict.fromkeys(
    ("debezium", "debezium, no schema", "debezium in Avro", "avro"), 250_000
)
"""Rows a CPU second that the project asks for."""

Message = tuple[bytes | None, bytes | None]
Parse = Callable[[list[Message]], Iterator[object]]


def find(name: str, folders: list[Path]) -> Path | None:
    """The file of that name."""
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def topic(form: str, folders: list[Path]) -> tuple[str, list[Message], Known] | None:
    """The data set of a form, its messages, and what decoding needs beside them."""
    for of in ("bank", "small"):
        path = find(f"messages_{TOPICS[form] or 'canal-json-tidb'}_{of}.jsonl.gz", folders)
        schemas = find(f"avro_schemas_{of}.jsonl.gz", folders)
        if form == "debezium in Avro":
            of, path = "torture", find("messages_debezium-avro.jsonl.gz", folders)
            schemas = find("schemas_debezium-avro.jsonl.gz", folders)
        if path is None or (form in FRAMED and schemas is None):
            continue
        messages = list(read(path))
        if form == "maxwell":
            values = (orjson.loads(value or b"") for _, value in messages)
            messages = list(maxwell_writer.messages(v for v in values if v["type"] != "TIDB_WATERMARK"))
        if form == "mq-v1":
            messages = [pair for b in decoder("canal-json")(iter(batches(messages))) for pair in encoded(b, form)]
        return of, messages, known_of(form, messages, schemas)
    return None


def encoded(events: pa.RecordBatch, protocol: str) -> Iterator[Message]:
    """The events in another protocol, one a message."""
    key, value = encode(events, protocol)
    return zip(key.to_pylist(), value.to_pylist(), strict=True)


def read(path: Path) -> Iterator[Message]:
    """Messages of a capture file."""
    with gzip.open(path, "rb") as lines:
        for line in map(json.loads, lines):
            key, value = (None if line[part] is None else b64decode(line[part]) for part in ("key", "value"))
            yield key, value


def known_of(form: str, messages: list[Message], schemas: Path | None) -> Known:
    """Schemas of a registry, table versions of simple."""
    if form in FRAMED:
        return Known(schemas=read_schemas(str(schemas)))
    if form.startswith("simple"):
        found = [row for table in finder(Known())(iter(batches(messages))) for row in table.to_pylist()]
        return Known(tables=tables_of(found))
    return Known()


def batches(messages: list[Message]) -> list[pa.RecordBatch]:
    """The messages as a source of Spark hands them to a worker."""
    n = len(messages)
    whole = pa.table({
        "topic": pa.array(["t"] * n, pa.string()),
        "partition": pa.array([0] * n, pa.int32()),
        "offset": pa.array(range(n), pa.int64()),
        "key": pa.array([k for k, _ in messages], pa.binary()),
        "value": pa.array([v for _, v in messages], pa.binary()),
    })  # fmt: skip
    return whole.to_batches(max_chunksize=10_000)


def framed(raw: bytes, p: int) -> Iterator[bytes]:
    """Frames of open-protocol."""
    while p < len(raw):
        (n,) = struct.unpack_from(">Q", raw, p)
        yield raw[p + 8 : p + 8 + n]
        p += 8 + n


def parse_open(messages: list[Message]) -> Iterator[object]:
    for key, value in messages:
        yield [orjson.loads(part) for part in (*framed(key or b"", 8), *framed(value or b"", 0)) if part]


def parse_json(messages: list[Message]) -> Iterator[object]:
    return (orjson.loads(value) for _, value in messages if value)


def parse_both_json(messages: list[Message]) -> Iterator[object]:
    return ((key and orjson.loads(key), value and orjson.loads(value)) for key, value in messages)


def parse_maxwell(messages: list[Message]) -> Iterator[object]:
    for _, value in messages:
        objects = (value or b"").replace(b'}{"database":', b'}\0{"database":').split(b"\0")
        yield [orjson.loads(part) for part in objects]


def parse_simple_avro(messages: list[Message]) -> Iterator[object]:
    return (simple_avro.fields_of(value) for _, value in messages if value)


def parse_canal(messages: list[Message]) -> Iterator[object]:
    for _, value in messages:
        entries = map(Entry.FromString, Messages.FromString(Packet.FromString(value).body).messages)
        yield [(entry, RowChange.FromString(entry.storeValue)) for entry in entries]


def avro_parser(known: Known) -> Parse:
    schemas = {int(i): fastavro.parse_schema(orjson.loads(text)) for i, text in known.schemas.items()}

    def one(raw: bytes | None) -> object:
        if not raw or raw[0]:
            return raw
        return fastavro.schemaless_reader(BytesIO(raw[5:]), schemas[int.from_bytes(raw[1:5], "big")], None)

    return lambda messages: ((one(key), one(value)) for key, value in messages)


PEERS: dict[str, tuple[str, Parse]] = {
    "open-protocol": ("orjson", parse_open),
    "canal-json": ("orjson", parse_json),
    "simple": ("orjson", parse_json),
    "simple in Avro": ("fastavro", parse_simple_avro),
    "debezium": ("orjson", parse_both_json),
    "debezium, no schema": ("orjson", parse_both_json),
    "canal": ("protobuf", parse_canal),
    "maxwell": ("orjson", parse_maxwell),
    "mq-v1": ("orjson", parse_both_json),
}


def measure(form: str, folders: list[Path], rounds: int, rows: int) -> str:
    """One line of the table."""
    found = topic(form, folders)
    if found is None:
        return f"| {form} | no topic in {len(folders)} folders | | | | | | |"
    of, messages, known = found
    protocol = max((p for p in PROTOCOLS if (TOPICS[form] or form).startswith(p)), key=len)
    decode = decoder(protocol, known=known)
    once = sum(b.filter(pc.equal(b["kind"], "row")).num_rows for b in decode(iter(batches(messages))))
    bad = sum(len(b) - b["error_class"].null_count for b in decode(iter(batches(messages))))
    assert once and not bad, f"{form}: {bad} messages in quarantine"
    times = max(1, round(rows / once))
    messages, once = messages * times, once * times
    given = batches(messages)
    library, parse = PEERS[form] if form not in FRAMED else ("fastavro", avro_parser(known))
    contestants: dict[str, Callable[[], Iterator[object]]] = {
        "ours": lambda: decode(iter(given)),
        library: lambda: parse(messages),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.process_time()
            deque(run(), maxlen=0)
            seconds[name].append(time.process_time() - start)
    ours, theirs = (statistics.median(seconds[name]) for name in contestants)
    mb = sum(len(k or b"") + len(v or b"") for k, v in messages) / 1e6
    return (
        f"| {form} | {of} x{times} | {once / ours:,.0f} | {AIMS.get(form, '')} "
        f"| {len(messages) / ours:,.0f} | {mb / ours:.1f} "
        f"| {library} | {len(messages) / theirs:,.0f} | {ours / theirs:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", type=Path, action="append", default=[], help="a folder with recorded topics")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--only", choices=TOPICS, action="append", default=[], help="this format; may be repeated")
    parser.add_argument("--plain", action="store_true", help="the decoders in Python, not the kernels")
    options = parser.parse_args()
    if options.plain:
        choice.LOAD_AFTER_BYTES = sys.maxsize
    compiling.main(0)
    print(f"load average before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, rounds: {options.rounds}")
    print("| protocol | topic | rows/s | asked | messages/s | MB/s | peer | its | our time / its |")
    print("|---|---|---|---|---|---|---|---|---|")
    for form in options.only or TOPICS:
        print(measure(form, [*options.golden, *FOLDERS], options.rounds, options.rows), flush=True)
    print(f"load average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
