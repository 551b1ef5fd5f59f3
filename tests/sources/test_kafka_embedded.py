"""The embedded engine reads a topic of a real broker without Java, as its recording, and as Apache Spark reads it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import MagicMock

import confluent_kafka
import engines
import pytest
from broker import SASL, SCRAM, Broker, over_tls
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from conftest import golden
from pyspark.sql import SparkSession
from topics import QUIET, create, delete, expire, recorded, send

import ticdc_lab
from ticdc_lab.cli import main
from ticdc_lab.errors import NoAnswerError, NoTopicError, SourceError
from ticdc_lab.sources import kafka
from ticdc_lab.sources.kafka import REACHED_S, SAID_S, topics_of
from ticdc_lab.sources.kafka_reading import ANSWER_S, TopicReader
from ticdc_lab.sources.load import load
from ticdc_lab.sources.record import record_topic
from ticdc_lab.sources.recording import Recording
from ticdc_lab.sources.survey import survey

FILES = (
    "messages_open-protocol_small.jsonl.gz",
    "messages_canal-json-tidb_small.jsonl.gz",
    "messages_simple_small.jsonl.gz",
)
WRONG = dict(SASL) | {"kafka.sasl.jaas.config": SASL["kafka.sasl.jaas.config"].replace("s3cr", "s3cX")}


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    """Give the address of a broker whose topics contain golden files, under their names."""
    at = f"127.0.0.1:{broker.plain}"
    for name in FILES:
        create(at, f"embedded-{name}", 4)
        send(at, f"embedded-{name}", recorded(golden(name)))
    return at


def decoded(spark: SparkSession, source: str, folder: Path, **options: str) -> tuple[Any, list[dict[str, Any]]]:
    """A log, and its events and quarantine in order, except for the name of the topic."""
    log = load(spark, source, options=options).materialise(str(folder))
    rows = log.decoded.orderBy("topic", "partition", "offset", "seq").drop("topic").toArrow().to_pylist()
    return log, rows


@pytest.mark.parametrize("name", FILES)
def test_a_topic_gives_what_its_recording_gives(spark: SparkSession, servers: str, tmp_path: Path, name: str) -> None:
    """The same protocol, counts and events, and no offset is missing."""
    ours, events = decoded(spark, f"kafka://{servers}/embedded-{name}", tmp_path / "ours")
    kept, expected = decoded(spark, str(golden(name)), tmp_path / "kept")
    assert (ours.protocol, ours.counts, ours.limits) == (kept.protocol, kept.counts, ())
    assert events == expected


def test_spark_gives_the_same_events(classic: SparkSession, servers: str, tmp_path: Path) -> None:
    """Of all topics at once, with offsets at which to begin and to end."""
    names = [f"embedded-{name}" for name in FILES[:2]]
    given = {
        f"{which}Offsets": str({n: {str(p): at + p for p in range(4)} for n in names}).replace("'", '"')
        for which, at in (("starting", 3), ("ending", 90))
    }
    source = f"kafka://{servers}/{','.join(names)}"
    _, expected = decoded(classic, source, tmp_path / "spark", **given)
    with engines.using("embedded"):
        _, events = decoded(engines.session_of("embedded"), source, tmp_path / "embedded", **given)
    assert events == expected and len(events) > 500


@pytest.mark.parametrize("given", [SASL, SCRAM], ids=["plain", "scram"])
def test_credentials_let_us_in_and_show_nowhere(
    spark: SparkSession, broker: Broker, servers: str, capfd: pytest.CaptureFixture[str], given: dict[str, str]
) -> None:
    """Java's line of a login module is translated; neither a log, its source nor a plan shows the password."""
    log = load(spark, broker.url(f"embedded-{FILES[0]}", sasl=True), options=given)
    assert log.messages.count() == 1470
    log.messages.explain(extended=True)
    assert "s3cr" not in repr((log, log._source)) + "".join(capfd.readouterr())


def test_a_topic_is_read_over_tls(spark: SparkSession, broker: Broker, servers: str) -> None:
    """With the CA that signed the broker's certificate."""
    source = f"kafka://127.0.0.1:{broker.tls}/embedded-{FILES[0]}"
    assert load(spark, source, options=over_tls(broker.certificates.ca)).messages.count() == 1470


@pytest.mark.parametrize(
    ("listener", "options", "message", "hint"),
    [
        ("plain/nope", {}, "has no topic nope", "Check the name"),
        ("sasl/t", WRONG, "refused the credentials", "kafka-config"),
        ("sasl/t", {}, "does not answer", "security protocol"),
        ("plain/t", SASL, "refused the credentials", "kafka.security.protocol"),
        ("plain/t", {"kafka.security.protocol": "SSL"}, "does not speak TLS", "security protocol"),
        ("sasl/t", SASL | {"kafka.security.protocol": "SASL_SSL"}, "does not speak TLS", "security protocol"),
        ("tls/t", {}, "it speaks TLS, which kafka.security.protocol names", "security protocol"),
        ("tls/t", "other_ca", "signed by no CA that is trusted here", "truststore"),
        ("expired/t", "ca", "is not valid now", "renew"),
    ],
)
def test_what_keeps_us_out_is_named_soon(
    spark: SparkSession, broker: Broker, listener: str, options: Any, message: str, hint: str
) -> None:
    """With a hint and without a secret."""
    name, _, topic = listener.partition("/")
    if isinstance(options, str):
        trust = over_tls(getattr(broker.certificates, options))
        options = trust | ({"kafka.security.protocol": "SSL"} if name == "expired" else {})
    with pytest.raises(SourceError, match=message) as caught:
        load(spark, f"kafka://127.0.0.1:{getattr(broker, name)}/{topic}", options=options)
    assert hint in caught.value.hint and "s3c" not in str(caught.value)


def test_answers_are_awaited_for_less_than_ten_seconds() -> None:
    """By the waits themselves: a stopwatch would measure the load of the machine, too.

    Who answers the first request in time may be slow at the next.
    """
    assert REACHED_S + SAID_S < 8 and ANSWER_S < 10


def test_a_command_names_a_broker_before_an_engine_begins() -> None:
    """Nothing is installed and nothing started for a broker that is not there."""
    run = CliRunner().invoke(main, ["audit", "kafka://127.0.0.1:1/t"])
    assert run.exit_code == 2 and "can be reached" in run.output and "engine:" not in run.output


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the address of what takes connections and never answers; its silence counts after a moment."""
    monkeypatch.setattr(kafka, "REACHED_S", 0.05)
    monkeypatch.setattr(kafka, "SAID_S", 600.0)  # no matter what the load, its thread reports
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("engine", [(), ("--engine", "spark")], ids=["chosen", "spark"])
@pytest.mark.parametrize("command", ["survey", "record", "audit", "watch", "events", "ingest"])
def test_a_broker_that_is_silent_is_named_before_an_engine_begins(
    silent: str, tmp_path: Path, command: str, engine: tuple[str, ...]
) -> None:
    """On either engine, with one sentence; nothing is written."""
    folder = tmp_path / "new"
    more = {"watch": ("--state", str(folder)), "survey": (), "audit": ()}.get(command, ("--out", str(folder)))
    if command in ("record", "ingest"):
        engine = ()  # they have one
    run = CliRunner().invoke(main, [command, f"kafka://{silent}/t", *more, *engine])
    assert run.exit_code == 2 and "engine:" not in run.output and not folder.exists()
    assert (
        f"No broker of kafka://{silent}/t answers ({silent}: it takes connections and does not answer)." in run.output
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", "it answered b'HTTP/1.1', which no Kafka broker does"),
        (b"", "it closed the connection at the first request"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "it speaks TLS"),
    ],
)
def test_what_answers_as_no_broker_is_named(answer: bytes, words: str) -> None:
    """Another server, one that wants TLS; beside one that answers it does not matter."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(100)
                client.sendall(answer)

        Thread(target=serve, daemon=True).start()
        with pytest.raises(NoAnswerError) as caught:
            kafka.require_reachable(topics_of(f"kafka://127.0.0.1:{listening.getsockname()[1]}/t"))
    assert words in caught.value.message


def test_an_answer_may_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TLS brokers before 2.7 sent its length in a record of its own."""
    parts = iter([b"\0\0\1\0", b"\0\0", b"\0\1"])
    broker = MagicMock()
    broker.__enter__.return_value.recv = lambda size: next(parts)[:size]
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: broker)
    kafka.require_reachable(topics_of("kafka://h:1/t"))
    assert next(parts, None) is None


def test_a_name_with_an_empty_part_is_refused_at_once() -> None:
    """It ended a thread with a trace, and the user waited for an answer."""
    with pytest.raises(SourceError, match=r"can be reached \(a\.\.b:1: .*label") as caught:
        kafka.require_reachable(topics_of("kafka://a..b:1/t"))
    assert "no answer" not in caught.value.message and caught.value.hint.endswith("nc -vz a..b 1")


def test_the_hint_for_a_broker_of_ipv6_has_no_brackets() -> None:
    """``nc`` takes them for a part of a name."""
    with pytest.raises(SourceError, match=r"can be reached \(\[::1\]:1: ") as caught:
        kafka.require_reachable(topics_of("kafka://[::1]:1/t"))
    assert caught.value.hint.endswith("nc -vz ::1 1")


def test_one_broker_that_answers_is_enough(servers: str, silent: str) -> None:
    """Of a list no one waits for the others, no matter what keeps them from answering."""
    kafka.REACHED_S = 1_000.0  # put back by the fixture
    kafka.require_reachable(topics_of(f"kafka://{silent},127.0.0.1:1,{servers}/t"))


def test_a_name_that_the_system_looks_for_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver may take a minute."""
    monkeypatch.setattr(kafka, "REACHED_S", 0.0)
    monkeypatch.setattr(kafka, "SAID_S", 0.0)
    found = Event()
    monkeypatch.setattr(kafka, "_refusal", lambda *_, **__: found.wait() and None)
    with pytest.raises(SourceError, match=r"can be reached \(far:1: no answer within 0 s\)"):
        kafka.require_reachable(topics_of("kafka://far:1/t"))
    found.set()


def test_reading_leaves_nothing_at_the_broker(servers: str) -> None:
    """No group, no offset that was committed, no topic that was not there: what is asked for does not come to be."""
    with TopicReader(topics_of(f"kafka://{servers}/embedded-{FILES[0]}")) as reader:
        ends = {at: end for at, (_, end) in reader.spans().items()}
        assert sum(batch.num_rows for batch in reader.batches(dict.fromkeys(ends, 0), ends)) == 1470
    said = r"has no topic not-there \(Broker: Unknown topic or partition\)"
    with pytest.raises(SourceError, match=said), TopicReader(topics_of(f"kafka://{servers}/not-there")) as no:
        no.spans()
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    assert "not-there" not in admin.list_topics(timeout=10).topics
    assert "ticdc-lab" not in {group.group_id for group in admin.list_consumer_groups().result(10).valid}


def test_what_has_expired_is_named(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """Offsets that are gone do not vanish: those before the load, and those that go between load and reading."""
    create(servers, "embedded-expired", 4)
    send(servers, "embedded-expired", [m for m in recorded(golden(FILES[0])) if m["offset"] < 30])
    expire(servers, "embedded-expired", 2, 12)
    given = {"startingOffsets": '{"embedded-expired": {"0":-2,"1":-2,"2":2,"3":-2}}'}
    late = load(spark, f"kafka://{servers}/embedded-expired", options=given)
    expire(servers, "embedded-expired", 3, 5)
    log = late.materialise(str(tmp_path / "log"))
    assert log.counts is not None and log.counts.messages == 120 - 12 - 5
    assert [g.partition(", so ")[0] for g in log.gaps] == [
        "Partition 2 of embedded-expired is missing 10 of the offsets that were to be read, in 1 place (2..11)",
        "Partition 3 of embedded-expired is missing 5 of the offsets that were to be read, in 1 place (0..4)",
    ]
    with pytest.raises(SourceError, match=r"the broker deleted 10 offsets \(2..11\)"):
        load(spark, late.source, options=given | {"failOnDataLoss": "true"})


def test_what_a_transaction_did_not_commit_is_not_read(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """Aborted messages never happened, and one that is still open is not waited for."""
    create(servers, "embedded-transactions")
    values = [m["value"] for m in recorded(golden(FILES[1]))[:8]]
    open_one = None
    for i, end in enumerate(("commit_transaction", "abort_transaction", "commit_transaction", "")):
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": f"e{i}", **QUIET})
        producer.init_transactions(20)
        producer.begin_transaction()
        for value in values[2 * i : 2 * i + 2]:
            producer.produce("embedded-transactions", value, partition=0, headers={"junk": b"\xff\x00\xfe"})
        assert producer.flush(20) == 0
        if end:
            getattr(producer, end)(20)
        open_one = producer
    log = load(spark, f"kafka://{servers}/embedded-transactions").materialise(str(tmp_path / "log"))
    assert log.counts is not None and (log.counts.messages, log.counts.quarantined) == (4, 0)
    there = log.messages.orderBy("offset").toArrow()["value"].to_pylist()
    assert there == values[:2] + values[4:6] and "an aborted Kafka transaction" in log.gaps[0]
    every = load(spark, log.source, options={"kafka.isolation.level": "read_uncommitted"})
    assert every.messages.count() == 8
    whole = survey(None, log.source)
    assert whole.size.messages == 4 and whole.is_whole
    done = record_topic(topics_of(log.source), Recording(str(tmp_path / "topic.jsonl"), source=log.source))
    assert (done.messages, done.is_lacking) == (4, False)
    for said in (log.limits, whole.unknown, done.notes):
        assert sum("a transaction of a producer that begins there has not ended" in one for one in said) == 1
    assert not any("has not ended" in one for one in every.limits)
    assert open_one is not None
    open_one.abort_transaction(20)


def test_a_survey_says_what_the_broker_has(spark: SparkSession, servers: str) -> None:
    """Topics, partitions, offsets, size, times, protocol, tables and the first messages; of all partitions."""
    found = survey(spark, f"kafka://{servers}/embedded-{FILES[1]}")
    assert (found.protocol, found.size.messages, found.partitions) == ("canal-json", 2241, (0, 1, 2, 3))
    assert found.overview is not None and len(found.tables) == 7
    told = found.overview.facts()
    assert told["offsets"][0] == {  # type: ignore[index]
        "topic": f"embedded-{FILES[1]}", "partition": 0, "first_offset": 0, "end_offset": 708,
    }  # fmt: skip
    size = sum(len(m["value"]) + len(m["key"] or b"") for m in recorded(golden(FILES[1])))
    assert 0.5 * size < told["bytes_about"] < 2 * size  # type: ignore[operator]
    assert told["first_ms"] is not None and told["last_ms"] >= told["first_ms"]  # type: ignore[operator]
    firsts = told["first_messages"]
    assert [(m["partition"], m["offset"]) for m in firsts] == [(0, 0), (1, 0), (2, 0)]  # type: ignore[attr-defined]
    assert "about 1.1 MB" in found.words and "offsets 0: 0..707, 1: 0..479" in found.overview.sentences[0]
    assert found.log is not None and found.log.protocol == "canal-json"


@pytest.mark.parametrize("name", FILES)
def test_a_survey_of_a_topic_needs_no_engine(servers: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its first messages show what it is, table versions of simple among them: it begins no engine and
    reads no more.
    """

    def refused(*args: object, **given: object) -> None:
        raise AssertionError("a survey of a topic asked for an engine")

    for place in ("sources.survey.load", "cli.log_commands.session_of", "log.session"):
        monkeypatch.setattr(f"ticdc_lab.{place}", refused)
    source, of_file = f"kafka://{servers}/embedded-{name}", name.split("_")[1].replace("-tidb", "")
    run = CliRunner().invoke(main, ["survey", source, "--json"])
    assert run.exit_code == 0, run.stderr
    told = json.loads(run.stdout)
    n = len(recorded(golden(name)))
    assert (told["protocol"], told["seen"], told["messages"], len(told["tables"])) == (of_file, n, n, 7)
    assert told["unknown"] == [] and told["partitions"] == [0, 1, 2, 3] and told["first_ts"] < told["last_ts"]
    assert ticdc_lab.survey(source).finding == told["answer"]


def test_a_survey_of_a_large_topic_reads_some_of_each_partition(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few messages of each; what it has not read is reported."""
    looking = import_module("ticdc_lab.sources.survey")
    monkeypatch.setattr(looking, "_MOST", 8)
    monkeypatch.setattr(looking, "_AT_LEAST", 2)
    found = survey(None, f"kafka://{servers}/embedded-{FILES[1]}")
    assert (found.seen, found.size.messages, found.partitions, found.log) == (8, 2241, (0, 1, 2, 3), None)
    assert found.unknown[0].startswith("Only the first 8 messages were read")


def test_a_topic_that_is_deleted_while_it_is_recorded_ends_the_recording(servers: str, tmp_path: Path) -> None:
    """Also one that is there again at once, with other messages; what was recorded until then stays, and is no file."""
    for again in (False, True):
        name = f"embedded-deleted-{again}"
        create(servers, name)
        send(servers, name, recorded(golden(FILES[0]))[:3])
        out, asked = tmp_path / f"{again}.jsonl", 0

        def stopped(name: str = name, again: bool = again) -> bool:
            nonlocal asked
            asked += 1
            if asked == 2:
                delete(servers, name)
            if asked == 2 and again:
                create(servers, name)
                send(servers, name, recorded(golden(FILES[0]))[:9])
            return False

        source = f"kafka://{servers}/{name}"
        own, clock = Recording(str(out), source=source), partial(next, count())  # a second for each look at it
        with pytest.raises(SourceError, match=r"recreated|has no topic|truncated"):
            record_topic(topics_of(source), own, follow=True, stopped=stopped, now=clock)
        assert not out.exists()
        if not again:
            with pytest.raises(NoTopicError, match=r"It was there when the recording in .* began"):
                record_topic(topics_of(source), Recording(str(out), source=source))
        assert all(b"," in line for line in (tmp_path / f".{again}.jsonl.part").read_bytes().splitlines())
