"""What each protocol keeps of the same transactions, as a table in Markdown; the one in docs/reading.md is made so.

    python benchmarks/fidelity.py

All but two logs are what TiCDC's own encoders wrote of one set of transactions (`data/README.md`): mq-v1 is written by
ticdc_lab.produce, as TiCDC never had it, and canal by canal's own library. Maxwell was not recorded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.codecs import decode
from ticdc_lab.encode.fidelity import ASPECTS, fidelity
from ticdc_lab.encode.produce import produce
from ticdc_lab.engine.sessions import session
from ticdc_lab.sources.load import load

ROOT = Path(__file__).resolve().parent.parent
DATA, GOLDEN = ROOT / "data", ROOT / "tests/data/golden"
REFERENCE = DATA / "messages_simple_small.jsonl.gz"
SCHEMAS = str(DATA / "avro_schemas_small.jsonl.gz")
RECORDED = {
    "open-protocol": DATA / "messages_open-protocol_small.jsonl.gz",
    "canal-json, TiDB extension": DATA / "messages_canal-json-tidb_small.jsonl.gz",
    "canal-json": GOLDEN / "messages_canal-json_small.jsonl.gz",
    "simple, Avro": GOLDEN / "messages_simple-avro_small.jsonl.gz",
    "debezium": DATA / "messages_debezium_small.jsonl.gz",
    "avro": DATA / "messages_avro-prod_small.jsonl.gz",
    "canal": ROOT / "tests/data/canal/messages_canal_small.jsonl.gz",
}
STORED = {"csv": "small_csv", "csv, commit_ts and old values": "small_csv_committs_oldvalue"}


def logs(spark: SparkSession, reference: DataFrame, folder: Path) -> Iterator[tuple[str, DataFrame]]:
    """Events of each log by its name."""
    for name, path in RECORDED.items():
        yield name, load(spark, str(path), schema_registry=SCHEMAS).events
    shutil.unpack_archive(GOLDEN / "storage_small.tar.gz", folder)
    for name, tree in STORED.items():
        yield name, load(spark, str(next(folder.rglob(tree)))).events
    made = reference.transform(produce, protocol="mq-v1", strategy="table", partitions=4)
    yield "mq-v1", made.transform(decode, protocol="mq-v1").where("error_class IS NULL")


def shown(kept: int, of: int) -> str:
    """A cell: all, nothing, or the share."""
    return "✔" if kept == of else "✖" if kept == 0 else f"{min(99.9, max(0.1, 100 * kept / of)):.1f} %"


def main() -> None:
    """Measure and print."""
    spark = session("spark")
    reference = load(spark, str(REFERENCE)).events.cache()
    found: dict[str, dict[str, str]] = {aspect: {} for aspect in ASPECTS}
    names = []
    with tempfile.TemporaryDirectory() as folder:
        for name, events in logs(spark, reference, Path(folder)):
            names.append(name)
            for row in fidelity(events, reference=reference).collect():
                found[row["aspect"]][name] = shown(row["kept"], row["of"])
    print("| | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for aspect, cells in found.items():
        if cells:
            print(f"| {aspect} | " + " | ".join(cells.get(name, "–") for name in names) + " |")


if __name__ == "__main__":
    main()
