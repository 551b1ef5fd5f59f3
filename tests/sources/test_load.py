"""A load: what it counts, what it reports it cannot prove, and what it leaves alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import golden
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ticdc_lab.codecs import decode
from ticdc_lab.errors import ContractError, ProtocolError, SourceError
from ticdc_lab.events.schema import CHECKSUMS, DECODED, DISPATCH, EVENTS, IMAGE_HASHES, KEYS, MESSAGES, QUARANTINE
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.load import load

pytestmark = pytest.mark.spark

NAMES = ("messages_open-protocol_small.jsonl.gz", "messages_canal-json-tidb_small.jsonl.gz")
WITHOUT_TS = "messages_canal-json_small.jsonl.gz"
IDENTITY = ("topic", "partition", "offset", "seq", "kind", "commit_ts", "key_hash", "change_hash", "query")


def bag(df: DataFrame) -> Counter[Any]:
    """Rows of a frame by what distinguishes events."""
    return Counter(map(tuple, df.select(*IDENTITY).collect()))


@pytest.mark.parametrize("name", NAMES)
def test_messages_in_are_messages_decoded_plus_quarantined(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The counts come from the decoding itself, and the stored log is the lazy one."""
    log = load(spark, str(golden(name)))
    assert log.counts is None and log.limits == ()
    stored = log.materialise(str(tmp_path / "log"))
    assert stored.counts is not None
    assert stored.counts.messages == log.messages.count() == stored.counts.decoded + stored.counts.quarantined
    assert stored.counts.events == stored.events.count() and stored.counts.quarantined == 0
    assert bag(stored.events) == bag(log.events)


def test_frames_keep_their_contracts(spark: SparkSession, tmp_path: Path) -> None:
    """Lazy or stored, each frame has the columns and types of its contract."""
    log = load(spark, str(golden(NAMES[0])))
    for some in (log, log.materialise(str(tmp_path / "log"))):
        events = StructType([*EVENTS.fields, *KEYS.fields, *CHECKSUMS.fields, *DISPATCH.fields, *IMAGE_HASHES.fields])
        assert some.events.schema.simpleString() == events.simpleString()
        assert some.quarantine.schema.simpleString() == QUARANTINE.simpleString()
        assert some.decoded.schema.simpleString() == DECODED.simpleString()
        assert some.messages.schema.simpleString() == MESSAGES.simpleString()


def test_without_the_extension_the_load_says_what_cannot_be_proved(spark: SparkSession) -> None:
    """canal-json without commit_ts loads, has none on any event, names its limits and refuses answers that need it."""
    log = load(spark, str(golden(WITHOUT_TS)))
    assert (log.protocol, log.has_commit_ts) == ("canal-json", False)
    assert log.events.where("commit_ts IS NOT NULL OR kind = 'watermark'").count() == 0
    assert log.events.where("kind = 'row'").count() == 2_101
    (limit,) = log.limits
    assert "commit_ts" in limit and "watermark" in limit
    with pytest.raises(ProtocolError, match="the watermarks cannot be computed") as e:
        log.require_commit_ts("the watermarks")
    assert "enable-tidb-extension=true" in str(e.value) and WITHOUT_TS in str(e.value)
    load(spark, str(golden(NAMES[1]))).require_commit_ts("the watermarks")


def test_compressed_messages_decode_and_damaged_ones_are_kept_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """lz4 is detected from the bytes; what cannot be inflated is in quarantine with the bytes that came."""
    log = load(spark, str(golden("messages_canal-json-lz4_small.jsonl.gz")))
    stored = log.materialise(str(tmp_path / "log"))
    assert stored.counts is not None and stored.protocol == "canal-json"
    assert (stored.counts.decoded, stored.counts.quarantined) == (log.messages.count(), 0) == (1_826, 0)
    bad = damaged(log.messages, tmp_path / "bad.parquet").materialise(str(tmp_path / "bad"))
    assert bad.counts is not None and (bad.counts.decoded, bad.counts.quarantined) == (0, 1_826)
    assert bad.quarantine.where("hex(substring(value, 1, 4)) != '04224D18' OR reason IS NULL").count() == 0


def damaged(messages: DataFrame, place: Path) -> ChangeLog:
    """The messages with their last bytes cut off, loaded as canal-json."""
    messages.withColumn("value", F.expr("substring(value, 1, length(value) - 9)")).write.parquet(str(place))
    return load(messages.sparkSession, str(place), protocol="canal-json")


def test_a_session_of_the_users_own_keeps_its_settings(spark: SparkSession, tmp_path: Path) -> None:
    """Loading changes no setting of the session."""

    def settings() -> dict[str, str]:
        return dict(r for r in map(tuple, spark.sql("SET").collect()))

    before = settings()
    log = load(spark, str(golden(NAMES[0])))
    log.materialise(str(tmp_path / "log")).quarantine.count()
    assert settings() == before


@pytest.mark.parametrize("name", NAMES)
def test_decoding_a_stream_gives_the_events_of_the_table(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """``decode`` works on a stream of messages, and on any number of partitions, as on the table."""
    log = load(spark, str(golden(name)))
    log.messages.repartition(4).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(MESSAGES).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "in"))
    query = (
        decode(stream, protocol=log.protocol)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120) and query.exception() is None
    expected = bag(log.events)
    assert bag(spark.read.parquet(str(tmp_path / "out"))) == expected
    assert bag(decode(log.messages.repartition(7), protocol=log.protocol)) == expected


def test_decode_refuses_a_frame_without_the_columns_and_an_unknown_protocol(spark: SparkSession) -> None:
    """Both are reported before any job starts."""
    with pytest.raises(ContractError, match="value"):
        decode(spark.range(1), protocol="canal-json")
    with pytest.raises(ProtocolError, match="sample"):
        decode(load(spark, str(golden(NAMES[0]))).messages, protocol="sample")


def test_rows_without_a_commit_ts_among_others_are_counted_and_said(spark: SparkSession, tmp_path: Path) -> None:
    """A changefeed that got the extension while it was recorded."""
    both = load(spark, str(golden(NAMES[1]))).messages.unionByName(load(spark, str(golden(WITHOUT_TS))).messages)
    both.write.parquet(str(tmp_path / "both.parquet"))
    log = load(spark, str(tmp_path / "both.parquet"), protocol="canal-json")
    stored = replace(log, has_commit_ts=True).materialise(str(tmp_path / "log"))
    assert stored.counts is not None
    undated = stored.events.where("kind = 'row' AND commit_ts IS NULL").count()
    assert stored.counts.undated == undated > 0
    [said] = [limit for limit in stored.limits if "carry no commit_ts" in limit]
    assert f"{undated} row changes" in said


@pytest.mark.parametrize("images", [True, False])
def test_what_the_workers_write_is_what_they_decode(spark: SparkSession, tmp_path: Path, images: bool) -> None:
    """Every column of every row and message in quarantine, no matter what characters the folder's name has."""
    whole = load(spark, str(golden(NAMES[1]))).messages
    cut = load(spark, str(golden("messages_canal-json-lz4_small.jsonl.gz"))).messages
    cut = damaged(cut, tmp_path / "cut.parquet").messages
    whole.unionByName(cut).repartition(3).write.parquet(str(tmp_path / "in"))
    log = load(spark, str(tmp_path / "in"), protocol="canal-json")
    stored = log.materialise(str(tmp_path / "a [b] {c}"), images=images)
    again = stored.materialise(str(tmp_path / "again"))  # from Parquet to Parquet: Spark's own writer
    decoded = log.decoded if images else log.narrow
    assert decoded is not None
    rows = sorted(map(repr, decoded.toArrow().to_pylist()))
    for kept in (stored, again):
        assert kept.decoded.schema == DECODED and decoded.columns == kept.decoded.columns
        assert sorted(map(repr, kept.decoded.toArrow().to_pylist())) == rows
    assert stored.counts == again.counts and stored.counts is not None and stored.counts.quarantined == 1_826


def test_a_folder_that_is_there_is_left_alone_and_a_failure_leaves_none(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is mixed into what another program wrote."""
    log = load(spark, str(golden(NAMES[0])))
    (tmp_path / "mine").mkdir()
    with pytest.raises(SourceError, match="is there already"):
        log.materialise(str(tmp_path / "mine"))
    pq.write_table(log.messages.toArrow(), tmp_path / "gone.parquet")
    lost = load(spark, str(tmp_path / "gone.parquet"))
    (tmp_path / "gone.parquet").unlink()
    with pytest.raises(Exception, match=r"gone\.parquet"):
        lost.materialise(str(tmp_path / "half"))
    assert not (tmp_path / "half").exists()
