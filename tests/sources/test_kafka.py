"""A topic in a real broker is read as the recording of it is, and every failure is reported soon and in plain words."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from broker import SASL, SCRAM, SECRET, Broker, create_topic, expire, produce
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.cli import main
from ticdc_lab.encode.produce import produce as produced
from ticdc_lab.encode.produce import write_topic
from ticdc_lab.errors import SourceError
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources.dump_files import dumps_at
from ticdc_lab.sources.dumps import read_file
from ticdc_lab.sources.kafka import properties, read_stream, topics_of
from ticdc_lab.sources.load import load

pytestmark = pytest.mark.spark

FILES = ("messages_open-protocol_small.jsonl.gz", "messages_canal-json-tidb_small.jsonl.gz")
QUICK = {
    "kafka.request.timeout.ms": "2000",
    "kafka.default.api.timeout.ms": "3000",
    "kafkaConsumer.pollTimeoutMs": "2000",
}
WRONG, WRONG_SCRAM = (
    dict(given) | {"kafka.sasl.jaas.config": given["kafka.sasl.jaas.config"].replace("s3cr", "s3cX")}
    for given in (SASL, SCRAM)
)


@pytest.fixture(scope="module")
def topics(spark: SparkSession, broker: Broker) -> dict[str, str]:
    """Give the topics that hold the golden files, by file."""
    for name in FILES:
        create_topic(spark, broker, name, 4)
        produce(load(spark, str(golden(name))).messages, broker, name)
    return {name: name for name in FILES}


def same(one: DataFrame, other: DataFrame) -> bool:
    """Whether two frames hold the same rows, each as often."""
    return one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()


def materialised(spark: SparkSession, source: str, folder: Path, **options: str) -> Any:
    """A loaded log, decoded."""
    return load(spark, source, options=options).materialise(str(folder))


@pytest.mark.parametrize("name", FILES)
def test_a_topic_gives_what_its_recording_gives(
    spark: SparkSession, broker: Broker, topics: dict[str, str], tmp_path: Path, name: str
) -> None:
    """The same protocol, counts and events, and no offset is reported as missing."""
    ours = materialised(spark, broker.url(topics[name]), tmp_path / "ours")
    recorded = materialised(spark, str(golden(name)), tmp_path / "recorded")
    assert (ours.protocol, ours.counts, ours.limits) == (recorded.protocol, recorded.counts, ())
    assert same(ours.decoded.drop("topic"), recorded.decoded.drop("topic"))
    assert ours.messages.schema.names == MESSAGES.names


@pytest.mark.skipif(not shutil.which("kcat"), reason="needs kcat (.ci/run installs it)")
@pytest.mark.parametrize("name", FILES)
def test_what_kcat_dumps_of_a_topic_is_read_byte_for_byte(
    broker: Broker, topics: dict[str, str], tmp_path: Path, name: str
) -> None:
    """The real tool, a whole topic, a binary protocol and a text one: each key and value as it was recorded."""
    command = ["kcat", "-C", "-b", f"127.0.0.1:{broker.plain}", "-t", topics[name], "-e", "-q", "-J", "-o", "beginning"]
    dump = tmp_path / "dump"
    dump.write_bytes(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    found = dumps_at(str(dump), [dump], "auto", {})
    assert found is not None and found.kind == "kcat" and not found.lost
    [(file, form)] = [(file, found.form(file)) for file in found.of]
    assert form is not None
    with dump.open("rb") as opened:
        read = [m for batch, _ in read_file(opened, file, *form, 1 << 27) for m in batch.to_pylist()]
    with gzip.open(golden(name)) as lines:
        recorded = [json.loads(line) for line in lines]
    ours = {(m["partition"], m["offset"]): (m["key"], m["value"]) for m in read}
    assert len(read) == len(recorded)
    assert ours == {
        (m["partition"], m["offset"]): tuple(None if m[n] is None else b64decode(m[n]) for n in ("key", "value"))
        for m in recorded
    }


def test_a_load_is_pinned_to_what_was_there(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Messages that come after the load are in none of its frames, and offsets can be named."""
    recording = load(spark, str(golden(FILES[0]))).messages
    create_topic(spark, broker, "growing", 4)
    produce(recording.where("offset < 10"), broker, "growing")
    log = load(spark, broker.url("growing"))
    produce(recording.where("offset BETWEEN 10 AND 19"), broker, "growing")
    assert log.messages.count() == 40
    part = materialised(
        spark,
        broker.url("growing"),
        tmp_path / "part",
        startingOffsets='{"growing": {"0": 15, "1": 0, "2": 0, "3": 0}}',
        endingOffsets='{"growing": {"0": 20, "1": 1, "2": 0, "3": 0}}',
    )
    assert (part.counts.messages, part.gaps) == (6, ())


@pytest.mark.parametrize("given", [SASL, SCRAM], ids=["plain", "scram"])
def test_credentials_are_passed_through_and_shown_nowhere(
    spark: SparkSession, broker: Broker, topics: dict[str, str], capfd: pytest.CaptureFixture[str],
    given: dict[str, str],
) -> None:  # fmt: skip
    """The listener that wants SASL lets us in; neither the log, its source nor Spark's plans show the password."""
    log = load(spark, broker.url(topics[FILES[0]], sasl=True), options=given)
    assert log.messages.limit(1).count() == 1
    log.messages.explain(extended=True)
    read_stream(spark, broker.url(topics[FILES[0]], sasl=True), given).explain(extended=True)
    shown = repr((log, log._source, topics_of(broker.url("t"), given))) + "".join(capfd.readouterr())
    assert "Kafka" in shown and "s3cr" not in shown


@pytest.mark.parametrize(
    ("url", "options", "message", "hint"),
    [
        ("kafka://127.0.0.1:1/t", {}, "can be reached.*refused", "nc -vz 127.0.0.1 1"),
        ("kafka://no-such-host.invalid:9092/t", {}, "can be reached", "nc -vz no-such-host.invalid 9092"),
        ("PLAIN/nope", {}, "has no topic nope", "Check the name"),
        ("SASL/t", WRONG, "refused the credentials", "kafka-config"),
        ("SASL/t", WRONG_SCRAM, "refused the credentials", "kafka-config"),
        ("SASL/t", QUICK, "does not answer", "security protocol"),
        ("PLAIN/t", SASL, "refused the credentials", "kafka.security.protocol"),
    ],
)
def test_what_keeps_us_out_is_said_soon(
    spark: SparkSession, broker: Broker, url: str, options: dict[str, str], message: str, hint: str
) -> None:
    """No one there, no such topic, wrong credentials, or another security protocol: a sentence with a hint."""
    url = url.replace("PLAIN/", broker.url("")).replace("SASL/", broker.url("", sasl=True))
    with pytest.raises(SourceError, match=message) as caught:
        load(spark, url, options=options)
    assert hint in caught.value.hint
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "kafka://host/t", "kafka://host:9092", "kafka://h:1/a b", "kafka://:9/t", "kafka://[::1/t", "h:1/t",
        "kafka://me:s3cret@h:1/t", "kafka://me:s3cret/x@h:1/t", "kafka://h:1/t?password=s3cret", "kafka://h:1/t#s3cret",
    ],
)  # fmt: skip
def test_a_url_of_another_form_is_refused(source: str) -> None:
    """The form is reported, and a password in it is not."""
    with pytest.raises(SourceError) as caught:
        topics_of(source)
    assert "s3cret" not in str(caught.value)


def test_what_has_expired_is_said(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Offsets that are gone neither stop a load nor vanish: the load names the partition and the offsets."""
    create_topic(spark, broker, "expired", 4)
    produce(load(spark, str(golden(FILES[0]))).messages.where("offset < 30"), broker, "expired")
    expire(spark, broker, "expired", 2, 12)
    late = load(spark, broker.url("expired"), options={"startingOffsets": '{"expired": {"0":-2,"1":-2,"2":2,"3":-2}}'})
    expire(spark, broker, "expired", 3, 5)  # after the load, before it reads
    log = late.materialise(str(tmp_path / "log"))
    assert log.counts.messages == 120 - 12 - 5
    assert [g.partition(", so ")[0] for g in log.gaps] == [
        "Partition 2 of expired is missing 10 of the offsets that were to be read, in 1 place (2..11)",
        "Partition 3 of expired is missing 5 of the offsets that were to be read, in 1 place (0..4)",
    ]
    assert set(log.gaps) <= set(log.limits)
    part = late.sampled(Sample(tables=("no.such",))).materialise(str(tmp_path / "part"))
    assert part.gaps == log.gaps, "what a sample leaves out has not expired"


def test_what_a_transaction_did_not_commit_is_not_read(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Aborted messages never happened, and one that is still open is not waited for; headers may hold anything."""
    create_topic(spark, broker, "transactions", 1)
    jvm = spark._jvm
    assert jvm is not None
    text = "org.apache.kafka.common.serialization.StringSerializer"
    given = {"bootstrap.servers": f"127.0.0.1:{broker.plain}", "key.serializer": text, "value.serializer": text}
    rows = [r["value"].decode() for r in load(spark, str(golden(FILES[1]))).messages.limit(9).collect()]
    producers = []
    for i, end in enumerate(("commitTransaction", "abortTransaction", "commitTransaction", None)):
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(given | {"transactional.id": f"t{i}"})
        producers.append(producer)
        producer.initTransactions()
        producer.beginTransaction()
        for value in rows[2 * i : 2 * i + 2]:
            record = jvm.org.apache.kafka.clients.producer.ProducerRecord("transactions", value)
            record.headers().add("junk \ud7ff", bytearray(b"\xff\x00\xfe"))
            producer.send(record).get()
        if end:
            getattr(producer, end)()
    try:
        log = materialised(spark, broker.url("transactions"), tmp_path / "log")
        assert log.counts.messages == 4 and log.counts.quarantined == 0
        assert [r["value"].decode() for r in log.messages.orderBy("offset").collect()] == rows[:2] + rows[4:6]
        assert "an aborted Kafka transaction" in log.gaps[0]
        all_of_it = load(spark, broker.url("transactions"), options={"kafka.isolation.level": "read_uncommitted"})
        assert all_of_it.messages.count() == 8
        ended = "a transaction of a producer that begins there has not ended"
        assert [ended in one for one in log.limits].count(True) == 1 and not any(ended in x for x in all_of_it.limits)
    finally:
        for producer in producers:
            producer.close(jvm.java.time.Duration.ofSeconds(1))


@pytest.mark.soak
def test_a_broker_that_dies_is_an_error_and_no_hang(
    spark: SparkSession, broker: Broker, topics: dict[str, str], tmp_path: Path
) -> None:
    """Killed between planning and reading: a sentence within the bounds given; back again, the same log can be read."""
    log = load(spark, broker.url(topics[FILES[0]]), options=QUICK)
    broker.kill()
    start = time.monotonic()
    try:
        with pytest.raises(SourceError, match="stopped answering"):
            log.materialise(str(tmp_path / "log"))
        assert time.monotonic() - start < 300
        assert not (tmp_path / "log").exists()
    finally:
        broker.start()
    assert log.materialise(str(tmp_path / "log")).counts.messages == 1470


def test_the_command_line_reads_secrets_from_a_file(
    spark: SparkSession, broker: Broker, topics: dict[str, str], tmp_path: Path
) -> None:
    """``--kafka-config`` takes Kafka's own client settings; a wrong password shows in no error, nor with --debug."""
    url, out = broker.url(topics[FILES[1]], sasl=True), str(tmp_path / "e.jsonl")
    config = tmp_path / "client.properties"
    lines = [f"{k.removeprefix('kafka.')}={v}" for k, v in SASL.items()]
    config.write_text("# ours\n\n" + "\n".join(lines).replace(" username", " \\\n   username"))
    assert properties(str(config)) == SASL
    run = CliRunner().invoke(main, ["events", url, "--out", out, "--kafka-config", str(config)], obj=spark)
    assert run.exit_code == 0, run.output
    wrong = [x for k, v in WRONG.items() for x in ("--option", f"{k}={v}")]
    for more in ([], ["--debug"]):
        run = CliRunner().invoke(main, ["events", url, "--out", out, *wrong, *more], obj=spark)
        assert run.exit_code == 2 and "refused the credentials" in run.output
        assert "s3c" not in run.output and SECRET not in run.output


def test_a_secret_in_an_error_nobody_foresaw_is_hidden(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """No matter what an exception carries, the command line shows it without the values of secret options."""

    def broken(*_: object, options: dict[str, str], **__: object) -> None:
        raise ValueError(f"cannot parse {options}")

    monkeypatch.setattr(sys.modules["ticdc_lab.sources.load"], "load", broken)
    for more in ([], ["--debug"]):
        args = ["audit", "kafka://h:1/t", "--option", "kafka.ssl.key.password=hunter2", *more]
        run = CliRunner().invoke(main, args, obj=spark)
        assert run.exit_code == 2 and "cannot parse" in run.output and "hunter2" not in run.output


def test_settings_that_cannot_be_read_are_said_without_their_text(tmp_path: Path) -> None:
    """A file that is not there, and a line without ``=``."""
    path = tmp_path / "c.properties"
    path.write_text("a=b\nhunter2\n")
    for name, message in ((str(path), "entry 2"), (str(tmp_path / "none"), "No such file")):
        with pytest.raises(SourceError, match=message) as caught:
            properties(name)
        assert "hunter2" not in str(caught.value)


def test_a_stream_gives_messages(spark: SparkSession, broker: Broker, topics: dict[str, str]) -> None:
    """The contract's columns, from the earliest message."""
    stream = read_stream(spark, broker.url(topics[FILES[0]]))
    assert stream.isStreaming and stream.schema.names == MESSAGES.names
    query = stream.writeStream.format("memory").queryName("kafka_stream").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("kafka_stream").count() == 1470


def test_what_is_produced_into_a_topic_is_what_a_file_would_hold(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Each partition in order, key and value untouched, also through a listener that wants credentials."""
    made = load(spark, str(golden(FILES[0]))).events.transform(
        produced, protocol="open-protocol", strategy="table", partitions=3
    )
    made = made.persist()
    create_topic(spark, broker, "produced", 3)
    write_topic(made, broker.url("produced", sasl=True), options=SASL)
    there = load(spark, broker.url("produced")).messages
    columns = ("partition", "offset", "key", "value")
    assert same(there.select(*columns), made.select(*columns)) and not made.isEmpty()


def test_a_topic_that_cannot_be_written_is_said(spark: SparkSession, broker: Broker) -> None:
    """No such topic, several topics, wrong credentials: a sentence, and no password in it."""
    nothing = spark.createDataFrame([], MESSAGES)
    for url, options, said in (
        (broker.url("nowhere"), {}, "nowhere"),
        (broker.url("a,b"), {}, "names 2 topics"),
        (broker.url("produced", sasl=True), WRONG, "credentials"),
    ):
        with pytest.raises(SourceError, match=said) as error:
            write_topic(nothing, url, options=options)
        assert "s3cX" not in str(error.value)
