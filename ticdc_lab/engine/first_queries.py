"""Run Spark's first queries, so that Java writes the classes that they need: a process of its own.

:func:`ticdc_lab.engine.class_archive.make` starts ``python -m ticdc_lab.engine.first_queries FILE``.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab.engine.class_archive import QUIET
from ticdc_lab.engine.classic import local_spark
from ticdc_lab.errors import SetupError


def _record(archive: Path) -> None:
    """Let a JVM do what first queries do, and end so that it writes what it has loaded."""
    writing = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive} {QUIET}"}
    spark = local_spark(app_name="ticdc_lab", driver_memory="1g", cores=2, brief=True, extra=writing)
    with tempfile.TemporaryDirectory() as folder:
        _first_queries(spark, folder)
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    assert gateway is not None and jvm is not None
    with contextlib.suppress(Exception):  # it answers no more
        jvm.java.lang.System.exit(0)
    gateway.proc.wait(timeout=120)


def _first_queries(spark: SparkSession, folder: str) -> None:
    """Files, a shuffle with a function in Python, a join, and a Delta table."""
    columns = ("id", "CAST(id AS STRING) AS s", "id % 7 AS g", "array(named_struct('n', 'a', 'v', id)) AS images")
    spark.range(1000).selectExpr(*columns).write.parquet(f"{folder}/rows")
    rows = spark.read.parquet(f"{folder}/rows")
    rows.groupBy("g").agg(F.max("id"), F.collect_set("s"), F.count("*")).orderBy("g").toArrow()
    rows.repartition("g").sortWithinPartitions("g", "id").mapInArrow(lambda batches: batches, rows.schema).toArrow()
    rows.join(F.broadcast(rows.groupBy("g").count()), "g").selectExpr("filter(images, i -> i.n = 'a')").collect()
    rows.select("*", F.posexplode("images")).where("pos = 0").unionAll(rows.selectExpr("*", "0", "null")).count()
    rows.write.format("delta").save(f"{folder}/table")
    spark.read.format("delta").load(f"{folder}/table").groupBy("g").count().toArrow()


if __name__ == "__main__":
    try:
        _record(Path(sys.argv[1]))
    except SetupError as error:
        sys.exit(f"{error}")
