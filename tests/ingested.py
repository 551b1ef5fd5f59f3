"""What the tables of ingest hold beside what the batch functions answer, and a log that is hard to ingest."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from conftest import json_lines
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ticdc_lab.events.schema import OF_IMAGES
from ticdc_lab.facts.watermarks import partition_watermarks
from ticdc_lab.lake.tables import Tables
from ticdc_lab.transactions import transactions

SIMPLE = "messages_simple_small.jsonl.gz"


def assert_batch_answers(tables: Tables, messages: DataFrame, events: DataFrame, quarantine: DataFrame) -> None:
    """Every table contains what the batch functions give of the same log."""
    for name, want in {
        "messages": messages.drop("headers", "timestamp"),
        "events": events.drop(*OF_IMAGES),  # the lake leaves out what its images show
        "quarantine": quarantine,
        "transactions": events.transform(transactions),
        "watermarks": events.transform(partition_watermarks),
    }.items():
        assert summed(tables.read(name).select(*want.columns)) == summed(want), name
    assert not events.isEmpty()


def summed(rows: DataFrame) -> Row:
    """How many rows there are, and a sum and a mix of their hashes: tables that differ in any field differ here."""
    h = F.xxhash64(*[F.to_json(F.struct(c)) for c in rows.columns])
    found = rows.select(h.alias("h")).agg(F.count("h"), F.sum(F.col("h").cast("decimal(38,0)")), F.bit_xor("h")).first()
    assert found is not None
    return found


def turned(folder: Path) -> tuple[Path, list[dict[int, int]]]:
    """A log whose rows come before their schemas, and the offsets that each of three batches ends before.

    In every partition half of the rows, half of the schemas, a quarter of the rows, the other schemas, the other rows.
    """
    homes: dict[int, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for m in json_lines(SIMPLE):
        homes[m["partition"]][m["kind"] in ("ddl", "bootstrap")].append(m)
    lines, ends = [], [{}, {}, {}]
    for home, (rows, schemas) in homes.items():
        half, late, some = len(rows) // 2, len(rows) * 3 // 4, len(schemas) // 2
        parts = rows[:half], schemas[:some] + rows[half:late], schemas[some:] + rows[late:]
        order = [m for part in parts for m in part]
        lines += [m | {"offset": i} for i, m in enumerate(order)]
        for i in range(3):
            ends[i][home] = sum(map(len, parts[: i + 1]))
    path = folder / "turned.jsonl"
    path.write_text("".join(json.dumps(m) + "\n" for m in lines))
    return path, ends
