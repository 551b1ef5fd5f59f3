"""``python cluster_job.py PART MASTER SOURCE FOLDER [NAME=VALUE ..]``: the main job on a cluster, as a user runs it.

Prints the answers as JSON. FOLDER is one that all machines see.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ticdc_lab
from ticdc_lab.errors import TiCDCLabError


def answers(spark: SparkSession, source: str, folder: Path, *, delta: bool = False) -> dict[str, Any]:
    """Everything that is compared: counts, and a fingerprint of every frame; transactions by way of a Delta table."""
    log = ticdc_lab.load(spark, source).materialise(str(folder / "decoded"))
    events = log.events
    restored = events.transform(ticdc_lab.transactions)
    if delta:
        ticdc_lab.write(restored, str(folder / "transactions"))
        restored = spark.read.format("delta").load(str(folder / "transactions"))
    frames = {
        "events": events,
        "partition_watermarks": events.transform(ticdc_lab.partition_watermarks),
        "topic_watermarks": events.transform(ticdc_lab.topic_watermarks),
        "transactions": restored,
        "dispatch": events.transform(ticdc_lab.dispatch, strategy="index-value", partitions=16),
        "audit": events.transform(ticdc_lab.audit, protocol=log.protocol),
    }
    assert log.counts is not None
    return {"counts": asdict(log.counts)} | {name: fingerprint(frame) for name, frame in frames.items()}


def fingerprint(frame: DataFrame) -> list[int]:
    """Number of rows, and a sum over their values that no order changes."""
    text = F.to_json(F.struct(*frame.columns), {"ignoreNullFields": "false"})
    hashed = frame.select((F.xxhash64(text) % F.lit(1 << 32)).alias("h"))
    return list(hashed.agg(F.count("h"), F.coalesce(F.sum("h"), F.lit(0))).first() or ())


def where_the_workers_found_it(spark: SparkSession) -> list[str]:
    """The files of the package in the workers."""

    def found(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"file": [ticdc_lab.__file__] * len(batch)})

    files = spark.range(8, numPartitions=8).mapInArrow(found, "file string").distinct().collect()
    return sorted(row.file for row in files)


def collected(spark: SparkSession, folder: Path) -> str:
    """What Spark shows where a caller takes the rows of a log to the driver: the planted fault."""
    try:
        spark.read.parquet(str(folder / "decoded")).toArrow()
    except Exception as error:
        return str(error)
    return ""


def reported(spark: SparkSession, source: str, folder: Path) -> dict[str, Any]:
    """The report's own bytes, as a digest."""
    page = ticdc_lab.report(ticdc_lab.load(spark, source), folder / "report.html")
    return {"report": hashlib.sha256(page.read_bytes()).hexdigest()}


def main(part: str, master: str, source: str, folder: str, *settings: str) -> None:
    """Run it and print."""
    builder = SparkSession.builder.master(master).appName("a job of a user's own")
    for name, _, value in (setting.partition("=") for setting in settings):
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        if part == "report":
            told = reported(spark, source, Path(folder))
        else:
            told = answers(spark, source, Path(folder), delta=part == "delta")
            told["workers"] = where_the_workers_found_it(spark)
            told["collected"] = collected(spark, Path(folder))
    except TiCDCLabError as error:
        told = {"error": str(error)}
    finally:
        spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
