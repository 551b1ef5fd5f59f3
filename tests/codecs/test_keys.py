"""Hashes of row identity: the compiled decoders and Spark's own expressions give the same numbers."""

from __future__ import annotations

import re
from random import Random

import making
import numpy as np
import pytest
from conftest import events_frame, golden
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_hashes import by_expressions

from ticdc_lab.codecs import decode
from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes
from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.errors import ContractError
from ticdc_lab.events.schema import IMAGE_HASHES, KEYS, MESSAGES
from ticdc_lab.sources.load import load

TOPICS = (
    "messages_open-protocol_small.jsonl.gz",
    "messages_canal-json-tidb_small.jsonl.gz",
    "messages_open-protocol-updatedonly-batch1_small.jsonl.gz",
    "messages_canal-json-tidb-updatedonly-deletehk_small.jsonl.gz",
    "messages_open-protocol-claimcheck_small.jsonl.gz",
)


HASHES = (*KEYS.names, *IMAGE_HASHES.names)


def differing(events: DataFrame) -> DataFrame:
    """Events for which the decoder's hashes are not the ones of Spark's expressions."""
    renamed = events.withColumnsRenamed({name: f"kernel_{name}" for name in HASHES})
    differs = [f"NOT ({name} <=> kernel_{name})" for name in HASHES]
    return renamed.transform(by_expressions).where(" OR ".join(differs))


@pytest.mark.parametrize("name", TOPICS)
def test_the_decoders_hashes_are_those_of_spark(spark: SparkSession, name: str) -> None:
    """All hashes of every event of a golden topic, null where Spark shows null."""
    events = load(spark, str(golden(name))).events
    assert differing(events).count() == 0
    assert events.where("change_hash IS NOT NULL").count() == events.where("kind = 'row'").count() > 1_000
    assert events.where("key_hash IS NOT NULL").count() > 1_000


@pytest.mark.parametrize("protocol", sorted(making.MAKERS))
def test_odd_messages_hash_alike(spark: SparkSession, protocol: str) -> None:
    """Null keys, keys in another order, empty names, images that do not have columns: the same hashes."""
    r = Random(5)
    made = [making.MAKERS[protocol](r) for _ in range(800)]
    plain = [re.sub(rb"\\u00([0-7][0-9a-fA-F])", lambda x: bytes([int(x[1], 16)]), m[1] or b"") for m in made]
    some = [m for m, text in zip(made, plain, strict=True) if b"rowkey" not in text]  # no image has it
    rows = [("t", 0, i, None, *map(as_binary, m), []) for i, m in enumerate(some)]
    events = decode(spark.createDataFrame(rows, MESSAGES), protocol=protocol).where("error_class IS NULL")
    assert events.where("kind = 'row'").count() > 100
    assert differing(events).drop("key", "value").collect() == []


def as_binary(part: bytes | None) -> bytearray | None:
    """As createDataFrame takes it."""
    return None if part is None else bytearray(part)


def test_a_changed_hash_would_be_seen(spark: SparkSession) -> None:
    """The comparison itself finds one event whose hash is off by one."""
    events = load(spark, str(golden(TOPICS[1]))).events.where("kind = 'row'").limit(50)
    first = F.col("offset") == events.agg(F.min("offset")).first()[0]  # type: ignore[index]
    wrong = events.withColumn("change_hash", F.col("change_hash") + F.when(first, 1).otherwise(0))
    assert differing(wrong).count() == events.where(first).count() > 0


def test_xxhash64_of_bytes_is_sparks(spark: SparkSession) -> None:
    """XXH64 with Spark's seed, for every length from 0 to 100 and one long."""
    r = Random(1)
    texts = [r.randbytes(n) for n in [*range(101), 5_000]]
    df = spark.createDataFrame([(i, bytearray(t)) for i, t in enumerate(texts)], "i int, b binary")
    spark_says = [row["h"] for row in df.orderBy("i").select(F.xxhash64("b").alias("h")).collect()]
    ours = [hashed(np.frombuffer(t + b"!", np.uint8).copy(), 0, len(t), SEED) for t in texts]
    assert [int(np.uint64(h).astype(np.int64)) for h in ours] == spark_says


@kernel
def hashed(b: np.ndarray, start: int, stop: int, seed: np.uint64) -> np.uint64:
    """Compiled."""
    return hash_bytes(b, start, stop, seed)


def column(name: str, value: str | None, *, is_key: bool = False) -> dict[str, object]:
    """A column of an image."""
    return {"name": name, "mysql_type": "int", "value": value, "is_key": is_key, "flags": None}


def test_what_identifies_a_row_and_a_change(spark: SparkSession) -> None:
    """A key hash distinguishes rows, a change hash changes; a key-changing update knows both its rows."""
    row = {"kind": "row", "schema_name": "s", "table_name": "t"}
    one, two = ([column("id", v, is_key=True), column("v", "x")] for v in "12")
    events = [
        row | {"op": "insert", "columns": one, "offset": 0},
        row | {"op": "delete", "before": one, "offset": 1},
        row | {"op": "update", "columns": two, "before": one, "offset": 2},
        row | {"op": "update", "columns": one, "before": [column("v", "w")], "offset": 3},
        row | {"op": "insert", "columns": one, "offset": 4},
        row | {"op": "insert", "columns": one, "table_name": "t2", "offset": 5},
        row | {"op": "insert", "columns": [column("v", "x")], "offset": 6},
        row | {"op": "insert", "columns": [column("id", "1", is_key=True), column("v", None)], "offset": 7},
        row | {"op": "insert", "columns": [column("id", "1", is_key=True), column("v", "")], "offset": 8},
        {"kind": "watermark", "commit_ts": 1, "offset": 9},
    ]
    rows = events_frame(spark, events).orderBy("offset").collect()
    key, before, change = ([r[name] for r in rows] for name in ("key_hash", "before_key_hash", "change_hash"))
    assert key[0] == key[1] == key[3] == key[4] and key[2] not in (key[0], None)
    assert key[5] not in (key[0], None) and key[6] is None and key[9] is None
    assert before == [None, None, key[0], None, None, None, None, None, None, None]
    assert change[0] == change[4] and len({change[i] for i in (0, 1, 2, 3, 5, 6, 7, 8)}) == 8
    assert change[9] is None


def test_a_null_in_the_old_key_is_not_the_new_value(spark: SparkSession) -> None:
    """Only a column that the old image does not have is taken from the new one."""
    after = [column("a", "1", is_key=True), column("b", "2", is_key=True)]
    row = {"kind": "row", "schema_name": "s", "table_name": "t", "op": "update", "columns": after}
    events = [row | {"before": [column("a", "1"), column("b", None)]}, row | {"before": [column("a", "1")]}]
    found = [r["before_key_hash"] is None for r in events_frame(spark, events).collect()]
    assert found == [False, True]


def test_keys_that_are_there_are_kept_and_missing_columns_are_named(spark: SparkSession) -> None:
    """with_keys adds nothing twice and refuses what is no events frame."""
    events = events_frame(spark, [{"kind": "watermark", "commit_ts": 1}])
    assert with_keys(events) is events
    with pytest.raises(ContractError, match="before"):
        with_keys(spark.range(1))
