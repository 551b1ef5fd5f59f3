"""The same on either engine, and on Spark Connect: progress, cancelling, rows brought together by key."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from threading import Timer

import pytest
from ports import free_ports

from ticdc_lab.engine.choosing import spark_missing

LONG_S = 90
"""How long the planted job takes; a stop takes less than half of it, also on a busy machine."""

COMMON = """
import random, sys, threading, time
import pyarrow as pa
from pyspark.sql import functions as F
from ticdc_lab import engine_of, session
from ticdc_lab.engine import is_sail, is_several_machines, parallelism
from ticdc_lab.engine.running import Cancelled, Running
from ticdc_lab.engine.shuffle import by_key, in_one

def planted(batches):
    for batch in batches:
        for _ in range({long_s} * 10):
            time.sleep(0.1)
        yield batch

def a_long_job():
    return spark.range(0, 4, 1, 2).mapInArrow(planted, "id bigint").count()
"""

CANCELLED = """
seen = []
running = Running(spark, "sleeping", a_long_job, said=seen.append)
while not any((is_sail(spark) or (p.whole or 0) >= 2) and p.elapsed_s > 1 for p in seen):
    time.sleep(0.1)
running.cancel()
try:
    running.wait({long_s} / 2)
except Cancelled as error:
    print("cancelled", "sleeping was stopped after" in error.message)
print(spark.range(10).count(), len(seen) > 1, seen[-1].elapsed_s > 1, (seen[-1].whole or 0) >= 2)
"""

BY_KEY = """
def seen_by(column):
    def kernel(batches):
        rows = [row for batch in batches for row in batch.to_pylist()]
        keys = [rows[i]["k"] for i in range(len(rows)) if i == 0 or rows[i]["k"] != rows[i - 1]["k"]]
        whole = len(keys) == len(set(keys))
        rising = all(a["n"] <= b["n"] for a, b in zip(rows, rows[1:]) if a["k"] == b["k"])
        nulls_first = None not in keys[1:]
        good = whole and rising and nulls_first
        counts = [sum(row["k"] == k for row in rows) for k in keys]
        yield pa.RecordBatch.from_pydict(
            {"k": pa.array(keys, pa.int64()), "n": pa.array(counts, pa.int64()), "good": [good] * len(keys)}
        )
    return kernel

for seed in range(6):
    chance = random.Random(seed)
    n, n_keys = chance.choice([1, 7, 300, 3000]), chance.choice([1, 3, 40, 400])
    data = [(chance.choice([None, *range(n_keys)]), i) for i in range(n)]
    chance.shuffle(data)
    rows = spark.createDataFrame(data, "k bigint, n bigint").repartition(chance.choice([1, 2, 5]))
    got = sorted(map(tuple, by_key(rows, "k", seen_by("k"), "k bigint, n bigint, good boolean", order=["n"]).collect()),
                 key=lambda row: (row[0] is not None, row[0]))
    counts = {k: 0 for k, _ in data}
    for k, _ in data:
        counts[k] += 1
    assert got == sorted(((k, n, True) for k, n in counts.items()), key=lambda row: (row[0] is not None, row[0])), seed

    def numbered(batches):
        ns = [n for batch in batches for n in batch["n"].to_pylist()]
        yield pa.RecordBatch.from_pydict({"sorted": [ns == sorted(ns)], "n": [len(ns)]})

    assert [tuple(r) for r in in_one(rows, numbered, "sorted boolean, n bigint", order=["n"]).collect()] == [(True, n)]
print("whole and in order")
"""

FAILED = """
def raising(batches):
    for batch in batches:
        raise ValueError("planted 17")
        yield batch
try:
    by_key(spark.range(3), "id", raising, "id bigint").collect()
except Exception as error:
    print(type(error).__name__, "ValueError: planted 17" in str(error), "java." in str(error), "grpc" in str(error))
"""

needs_spark = pytest.mark.skipif(spark_missing() is not None, reason="Apache Spark is not installed")


def script(start: str, *code: str) -> str:
    """A Python program that runs this in a session."""
    return "".join([COMMON, start, *code]).replace("{long_s}", str(LONG_S))


def said_on(engine: str, *code: str, environ: dict[str, str] | None = None) -> list[str]:
    """What a fresh Python prints that runs this in a session of the engine."""
    done = subprocess.run(
        [sys.executable, "-c", script(f"spark = session({engine!r}, cores=2)\n", *code)], capture_output=True,
        text=True, check=False, timeout=400, env=os.environ | (environ or {}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_on_the_embedded_engine() -> None:
    """A planted long job is stopped, keys come whole and in order, an error has its text and no trace of gRPC."""
    said = said_on("embedded", CANCELLED, BY_KEY, FAILED)
    assert said == [
        "cancelled True",
        "10 True True False",
        "whole and in order",
        "PythonException True False False",
    ]


SERVER = """
spark = session("spark", driver_memory="1g", cores=2, extra={
    "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "{port}",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
})
"""

SERVES = """
print(spark.conf.get("spark.connect.grpc.binding.port"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def served() -> Iterator[list[str]]:
    """What a fresh Python prints that runs all on classic Spark: last the port at which it serves Spark Connect."""
    code = script(SERVER.replace("{port}", str(*free_ports(1))), CANCELLED, BY_KEY, FAILED, SERVES)
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdin and server.stdout
    patience = Timer(400, server.kill)
    patience.start()
    try:
        said: list[str] = []
        while not (said and said[-1].isdigit()):
            line = server.stdout.readline()
            assert line, f"it ended after {said}"
            said.append(line.strip())
        patience.cancel()
        yield said
        server.stdin.close()
        server.wait(30)
    finally:
        patience.cancel()
        server.kill()


@needs_spark
@pytest.mark.spark
def test_on_classic_spark(served: list[str]) -> None:
    """The same, with the number of tasks."""
    assert served[:3] == ["cancelled True", "10 True True True", "whole and in order"]
    assert served[3].startswith("PythonException True")


CONNECTED = """
print(engine_of(spark), is_sail(spark), is_several_machines(spark), parallelism(spark), session() is spark)
print(spark.range(1).select(F.timestamp_seconds(F.lit(0)).cast("string")).head()[0])
"""


@needs_spark
@pytest.mark.spark
def test_on_spark_connect(served: list[str]) -> None:
    """A server that the test starts, reached by ``SPARK_REMOTE``: the same again."""
    port = served[-1]
    remote = {"SPARK_REMOTE": f"sc://127.0.0.1:{port}"}
    said = said_on("auto", CONNECTED, CANCELLED, BY_KEY, FAILED, environ=remote)
    assert re.fullmatch(rf"Spark Connect at 127\.0\.0\.1(:{port})? False True 2 True", said[0])
    assert said[1:5] == ["1970-01-01 00:00:00", "cancelled True", "10 True True True", "whole and in order"]
    assert said[5].startswith("PythonException True")
