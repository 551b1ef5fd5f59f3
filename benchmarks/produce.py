"""Encoding beside plain orjson that builds the same JSON, row by row, from the same events; one core, no Spark.

    python benchmarks/produce.py [--rows 52000] [--rounds 5]

The events are from the bank log in `data/`, repeated or cut to ``--rows`` row changes. Each round runs every
contestant once, in turn; the table gives medians. The peer is given its events as Python objects for nothing: making
them of Arrow, which a worker would have to do, is measured on its own.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import statistics
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from ticdc_lab.codecs.decode import decoder
from ticdc_lab.encode import ENCODERS
from ticdc_lab.encode.cells import ColumnShape
from ticdc_lab.encode.encoders import writer
from ticdc_lab.encode.open_protocol import derived_flags
from ticdc_lab.events.mysql_types import FLOAT, INTEGER, type_of

BANK = Path(__file__).parent.parent / "data" / "messages_canal-json-tidb_bank.jsonl.gz"
FIELDS = ("topic", "partition", "offset", "key", "value")


def bank(rows: int) -> pa.RecordBatch:
    """Row changes of the bank log, with a partition key."""
    with gzip.open(BANK) as f:
        lines = [json.loads(line) for line in f]
    for m in lines:
        m["key"], m["value"] = None, base64.b64decode(m["value"])
    table = pa.table({n: [m[n] for m in lines] for n in FIELDS}).cast(
        pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(),
                   "value": pa.binary()})
    )  # fmt: skip
    events = pa.Table.from_batches(decoder("canal-json")(iter(table.to_batches())))
    events = events.filter(pa.array([k == "row" for k in events["kind"].to_pylist()]))
    events = pa.concat_tables([events] * (1 + rows // events.num_rows)).slice(0, rows).combine_chunks()
    events = events.append_column("target_partition", pa.array([0] * rows, pa.int32()))
    return events.append_column("dispatch_key", events["table_name"]).to_batches()[0]


def by_hand(events: list[dict[str, Any]], protocol: str) -> int:
    """The same JSON of the same events with orjson; the bytes written."""
    return sum(map(len, map(orjson.dumps, (_OBJECTS[protocol](e) for e in events))))


def _canal(e: dict[str, Any]) -> dict[str, Any]:
    data = e["columns"] or e["before"]
    es = e["commit_ts"] >> 18
    return {
        "id": 0, "database": e["schema_name"], "table": e["table_name"],
        "pkNames": [c["name"] for c in data if c["is_key"]], "isDdl": False, "type": e["op"].upper(), "es": es,
        "ts": es, "sql": "", "sqlType": {c["name"]: type_of(c["mysql_type"])[0].java for c in data},
        "mysqlType": {c["name"]: c["mysql_type"] for c in data},
        "old": [{c["name"]: c["value"] for c in e["before"]}] if e["columns"] and e["before"] else None,
        "data": [{c["name"]: c["value"] for c in data}], "_tidb": {"commitTs": e["commit_ts"]},
    }  # fmt: skip


def _number(kind: int, value: str | None) -> Any:
    if value is None:
        return None
    return int(value) if kind == INTEGER else float(value) if kind == FLOAT else value


@cache
def _code_and_flags(mysql_type: str, is_key: bool) -> tuple[int, int, int]:
    kind, unsigned = type_of(mysql_type)
    return kind.code, derived_flags(ColumnShape("", kind, unsigned, is_key, None, 1)), kind.form


def _open_image(image: list[dict[str, Any]]) -> dict[str, Any]:
    out = {}
    for c in image:
        code, flags, form = _code_and_flags(c["mysql_type"], c["is_key"])
        handle = {"h": True} if c["is_key"] else {}
        out[c["name"]] = {"t": code, **handle, "f": flags, "v": _number(form, c["value"])}
    return out


def _open(e: dict[str, Any]) -> list[Any]:
    names = ("u", "p") if e["columns"] else ("", "d")
    images = {n: _open_image(i) for n, i in zip(names, (e["columns"], e["before"]), strict=True) if i}
    return [{"ts": e["commit_ts"], "scm": e["schema_name"], "tbl": e["table_name"], "t": 1}, images]


def _mq(e: dict[str, Any]) -> list[Any]:
    out = {}
    for c in e["columns"] or e["before"]:
        kind = type_of(c["mysql_type"])[0]
        unique = {"unique": True} if c["is_key"] else {}
        out[c["name"]] = {"type": kind.seed, "value": _number(kind.form, c["value"]), **unique}
    key = {"ts": e["commit_ts"], "type": "Row", "schema": e["schema_name"], "table": e["table_name"]}
    return [key, {"update" if e["columns"] else "delete": out}]


_OBJECTS: dict[str, Callable[[dict[str, Any]], Any]] = {"canal-json": _canal, "open-protocol": _open, "mq-v1": _mq}


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=52_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    batch = bank(args.rows)
    objects = batch.to_pylist()
    runs: dict[str, Callable[[], object]] = {"Arrow to Python objects, which orjson needs": batch.to_pylist}
    for protocol in ENCODERS:
        runs[f"{protocol}, ticdc_lab"] = lambda p=protocol: list(writer(p, max_batch_size=16)(iter([batch])))
        runs[f"{protocol}, orjson row by row"] = lambda p=protocol: by_hand(objects, p)
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(args.rounds + 1):
        for name, run in runs.items():
            seconds = timed(run)
            if i:
                seen[name].append(seconds)
    print("| | s | rows/s |\n|---|---|---|")
    for name, times in seen.items():
        median = statistics.median(times)
        print(f"| {name} | {median:.2f} | {args.rows / median:,.0f} |")


if __name__ == "__main__":
    main()
