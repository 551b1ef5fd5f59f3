"""Logs of the real encoders beside the truth that TiDB itself gave (tests/data/torture)."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from ticdc_lab.codecs.decode import decode_with
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.registry import codec_of

FOLDER = Path(__file__).parents[1] / "data/torture"
CHANGED_BY_DEBEZIUM = ("decimal", "datetime", "timestamp", "time", "date", "bit")
COLUMNS = ("topic", "partition", "offset", "key", "value")
Message = dict[str, Any]
Event = dict[str, Any]


def read(name: str, folder: Path = FOLDER) -> Iterator[dict[str, Any]]:
    """The lines of a file."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@cache
def _stored(name: str, folder: Path) -> tuple[Message, ...]:
    return tuple(
        {c: base64.b64decode(m[c]) if c in ("key", "value") and m[c] is not None else m[c] for c in COLUMNS}
        for m in read(f"messages_{name}", folder)
    )


def messages(name: str, changed: Callable[[bytes], bytes] = lambda b: b, folder: Path = FOLDER) -> pa.RecordBatch:
    """Messages of a log, with key and value ``changed``."""
    rows = [m | {c: None if m[c] is None else changed(m[c]) for c in ("key", "value")} for m in _stored(name, folder)]
    types = (pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary())
    return pa.record_batch([pa.array([m[c] for m in rows], t) for c, t in zip(COLUMNS, types, strict=True)], COLUMNS)


def known(name: str, folder: Path = FOLDER) -> Known:
    """The registry's schemas, of a log that has some."""
    if not (folder / f"schemas_{name}.jsonl.gz").exists():
        return Known()
    return Known(schemas={str(line["id"]): line["schema"] for line in read(f"schemas_{name}", folder)})


def decoded(protocol: str, batch: pa.RecordBatch, beside: Known) -> list[Event]:
    """Events and refused messages, by the decoders in plain Python."""
    rows: list[Event] = decode_with(
        codec_of(protocol, beside), batch, protocol, compiled=False, bounds=beside.bounds
    ).to_pylist()
    return rows


@cache
def _truth(name: str, folder: Path = FOLDER) -> tuple[dict[Any, Any], dict[Any, list[Any]]]:
    types, rows = {}, defaultdict(list)
    for t in read(f"truth_{name}", folder):
        if t["kind"] == "schema":
            types[t["schema"], t["table"]] = {c["name"]: c for c in t["columns"]}
        elif t["kind"] == "txn":
            for r in t["rows"]:
                rows[t["commit_ts"], r["schema"], r["table"]].append(r)
    return types, rows


def wrong(
    events: list[Event], truth: str = "torture", *, lossy: bool = False, in_avro: bool = False, folder: Path = FOLDER
) -> list[str]:
    """Row changes whose cells are not the ones of any row that TiDB wrote at that commit_ts into that table."""
    types, rows = _truth(truth, folder)
    found = []
    for e in events:
        if e["kind"] != "row" or (in_avro and (e["commit_ts"], e["schema_name"], e["table_name"]) not in rows):
            continue
        kinds = types.get((e["schema_name"], e["table_name"]), {})
        of_row = [_cells(e, r, kinds, lossy, in_avro) for r in rows[e["commit_ts"], e["schema_name"], e["table_name"]]]
        bad = min(of_row, key=len, default=["no such row"])
        if bad:
            found.append(f"{e['table_name']} {e['op']}: {bad[0]}")
    return found


def _cells(e: Event, row: Any, kinds: Any, lossy: bool, in_avro: bool) -> list[str]:
    bad = []
    for side, image in (("columns", row["cols"] if row["cols"] is not None else row["old"]), ("before", row["old"])):
        for c in e[side] or ():
            kind, value = kinds.get(c["name"], {}), c["value"]
            if lossy and re.split("[( ]", kind.get("mysql_type", "").lower())[0] in CHANGED_BY_DEBEZIUM:
                continue
            if in_avro and image is not None:
                image = {re.sub("[^A-Za-z0-9_]", "_", name): v for name, v in image.items()}
            if image is None or c["name"] not in image:
                bad.append(f"{side} {c['name']}={value!r}: not there")
            elif not _equal(value, image[c["name"]], kind.get("type_byte")):
                bad.append(f"{side} {c['name']}={value!r} expected {image[c['name']]!r}")
    return bad


def _equal(value: str | None, want: Any, type_byte: int | None) -> bool:
    if isinstance(want, dict):
        texts = (
            {"0x" + base64.b64decode(want["b64"]).hex()} if "b64" in want else {want.get(k) for k in ("n", "s", "bit")}
        )
        return value in texts
    if type_byte in (4, 5) and value is not None and want is not None:
        form = "f" if type_byte == 4 else "d"
        return struct.pack(form, float(value)) == struct.pack(form, float(want))
    return value == want


def partitions(strategy: str, count: int) -> dict[tuple[Any, ...], set[int]]:
    """The real dispatcher's partitions of the row changes of a table with one commit_ts and operation."""
    at, found = (1, 3, 4, 7, 16, 128).index(count), defaultdict(set)
    for d in read("dispatch_torture"):
        told = d["dispatch"].get(strategy, {})
        if "p" in told:
            found[d["commit_ts"], d["schema"], d["table"], d["op"]].add(told["p"][at])
    return found
