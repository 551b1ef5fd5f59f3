"""Topics are read without Java as they are: every message once, up to where it was to be read, and losses are named."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from topics import mock_cluster, numbered, send

from ticdc_lab import log
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import NoAnswerError, NoTopicError, SetupError, SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources import kafka, kafka_reading
from ticdc_lab.sources.kafka import topics_of
from ticdc_lab.sources.kafka_reading import Lost, TopicReader
from ticdc_lab.sources.kafka_relay import listening, next_part

QUICK = {"kafkaConsumer.pollTimeoutMs": "1000"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Give a mock cluster with a topic ``t``: 1,000 messages over four partitions."""
    with mock_cluster() as found:
        send(found, "t", numbered(1_000, 4))
        yield found


def reader(servers: str, topic: str = "t", **options: str) -> TopicReader:
    """A reader of a topic."""
    return TopicReader(topics_of(f"kafka://{servers}/{topic}", QUICK | options))


def read(of: TopicReader, starts: dict[tuple[str, int], int], ends: dict[tuple[str, int], int]) -> pa.Table:
    """All that is there of some partitions."""
    return pa.Table.from_batches(of.batches(starts, ends), arrow_schema(MESSAGES))


def test_every_message_comes_once(servers: str) -> None:
    """With key, value and time as sent, each partition in the order of its offsets."""
    with reader(servers) as of:
        spans = of.spans()
        assert spans == {("t", p): (0, 250) for p in range(4)}
        found = read(of, dict.fromkeys(spans, 0), {at: end for at, (_, end) in spans.items()})
        assert of.positions == dict.fromkeys(spans, 250) and not of.lost
    rows = sorted(found.to_pylist(), key=lambda r: (r["partition"], r["offset"]))
    assert [(r["partition"], r["offset"]) for r in rows] == [(p, o) for p in range(4) for o in range(250)]
    by_value = {r["value"]: r["key"] for r in rows}
    assert by_value == {m["value"]: m["key"] for m in numbered(1_000, 4)}
    assert None not in found["timestamp"].to_pylist() and found["headers"].to_pylist() == [[]] * 1_000


def test_a_part_is_what_was_asked_for(servers: str) -> None:
    """Also where more messages lie behind it, and a second time by the same reader; an empty part is nothing."""
    with reader(servers) as of:
        for _ in range(2):
            found = read(of, {("t", 0): 7, ("t", 1): 9}, {("t", 0): 17, ("t", 1): 9})
            assert found["offset"].to_pylist() == list(range(7, 17))
            assert of.positions == {("t", 0): 17, ("t", 1): 9}, "not behind the end, where more was fetched"
        assert read(of, {("t", 0): 5}, {("t", 0): 5}).num_rows == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, 250)),
        ({"startingOffsets": "latest"}, (250, 250)),
        ({"startingOffsets": '{"t": {"0": 3, "1": -1, "2": -2, "3": 3}}'}, (3, 250)),
        ({"endingOffsets": '{"t": {"0": 9, "1": 9, "2": 9, "3": 9}}', "minPartitions": "3"}, (0, 9)),
    ],
)
def test_options_of_sparks_connector_mean_the_same(
    servers: str, options: dict[str, str], expected: tuple[int, int]
) -> None:
    """Offsets by name, and Kafka's numbers for the ends."""
    with reader(servers, **options) as of:
        assert of.bounds(of.spans())["t", 0] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribePattern": "x"}, "takes none of the options subscribepattern"),
        ({"startingOffsets": '{"t": {"0": 3}}'}, "startingOffsets cannot be read"),
        ({"endingOffsets": "soon"}, "endingOffsets cannot be read"),
        ({"endingOffsets": "[" * 100_000}, "endingOffsets cannot be read .*lists within lists without end"),
        ({"kafka.fetch.min.bytes": "many"}, "cannot be used"),
    ],
)
def test_options_that_cannot_be_are_named(servers: str, options: dict[str, str], said: str) -> None:
    """None is passed over."""
    with pytest.raises(SourceError, match=said), reader(servers, **options) as of:
        of.bounds(of.spans())


def test_what_the_broker_deleted_is_named_and_passed_over() -> None:
    """Offsets before its first one are lost; a partition that ends before where it was to be read to has shrunk."""
    with mock_cluster() as servers:
        send(servers, "big", numbered(12_000, 1, size=1_000))  # the mock cluster keeps 5 MB
        with reader(servers, "big") as of:
            low, high = of.spans()["big", 0]
            assert 0 < low < high == 12_000
            found = read(of, {("big", 0): 5}, {("big", 0): low + 10})
            assert found["offset"].to_pylist() == list(range(low, low + 10))
            assert of.lost == [Lost(("big", 0), 5, low)]
            assert of.lost[0].sentence == (
                f"Partition 0 of big: the broker deleted {low - 5:,} offsets (5..{low - 1}) before they were read."
            )
            assert read(of, {("big", 0): 5}, {("big", 0): 9}).num_rows == 0 and of.lost[0].end == 9
            assert read(of, {("big", 0): 99_000}, {("big", 0): 99_001}).num_rows == 0
            assert of.shrunk == {("big", 0): high}
            with pytest.raises(SourceError, match="ends at offset 12000, before offset 99000"):
                list(of.batches({("big", 0): 99_000}))


def test_what_comes_is_followed(servers: str) -> None:
    """Without an end, nothing new is an empty batch, and new messages come."""
    with mock_cluster() as own:
        send(own, "t", numbered(3))
        with reader(own) as of:
            batches, seen, more = of.batches({("t", 0): 0}), list[int](), [2]
            for batch in batches:
                seen += batch["offset"].to_pylist()
                if not batch.num_rows and len(seen) == 3 and more:
                    send(own, "t", numbered(more.pop()))
                if len(seen) >= 5:
                    break
            batches.close()
    assert seen == [0, 1, 2, 3, 4]


def test_a_broker_that_takes_connections_and_says_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a listener of another protocol does; and one that takes none at once."""
    monkeypatch.setattr(kafka, "REACHED_S", 0.05)
    monkeypatch.setattr(kafka, "SAID_S", 600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SourceError, match=f"{at}: it takes connections and does not answer") as caught:
            reader(at).spans()
    assert "security protocol" in caught.value.hint
    with pytest.raises(SourceError, match=r"can be reached.*refused"):
        reader(at).spans()


def test_a_broker_that_is_gone_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sentence, and no wait without end; it may not have reported before that the log ends early."""
    with ExitStack() as broker:
        own = broker.enter_context(mock_cluster())
        send(own, "t", numbered(3))
        with reader(own) as of:
            heard, ends_here = of._heard, kafka_reading.library().KafkaError._PARTITION_EOF
            monkeypatch.setattr(of, "_heard", lambda c, e, *at: None if e.code() == ends_here else heard(c, e, *at))
            batches = of.batches({("t", 0): 0}, {("t", 0): 9})
            assert next(batches).num_rows == 3
            broker.close()
            with pytest.raises(SourceError, match="stopped answering"):
                list(batches)


def test_python_takes_spark_for_a_large_topic_as_commands_do(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`open` asks the broker first, unless an engine is named."""
    send(servers, "large", numbered(20))
    asked: list[dict[str, Any]] = []

    def begin(engine: str, **given: Any) -> None:
        asked.append({"engine": engine, **given})
        raise SetupError("no session is begun here")

    monkeypatch.setattr(log, "session", begin)
    monkeypatch.setattr(kafka_reading, "FITS_MESSAGES", 10)
    source = f"kafka://{servers}/large"
    for engine in ("auto", "embedded"):
        with pytest.raises(SetupError):
            log.open(source, engine=engine)
    assert asked[0]["needs_spark"] == "the topic is large (20 messages, more than 10)"
    assert asked[1]["needs_spark"] is None


def test_a_broker_that_never_answers_a_request_ends_the_wait(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client should time it out; where it does not, this package does."""

    class Mute:
        def list_offsets(self, at: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
            return {place: Future() for place in at}

    monkeypatch.setattr(kafka_reading, "ANSWER_S", 0.01)
    with reader(servers) as of:
        of._admin = Mute()
        with pytest.raises(SourceError, match="no answer to a request for offsets of partition 0 of t"):
            of.at(0, [("t", 0)])


def test_offsets_of_a_partition_whose_broker_does_not_answer_are_none(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that timed out gives -1001 in librdkafka, and a partition without a leader an error: neither is an
    offset. With ``partly`` the offsets of the others come, and the names of those that are left out.
    """

    class Partly:
        def __init__(self, admin: Any) -> None:
            self.list_topics, self.poll = admin.list_topics, admin.poll

        def list_offsets(self, at: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
            found = {place: Future[Any]() for place in at}
            for place, answer in found.items():
                if place.partition == 3:
                    answer.set_exception(KafkaException(KafkaError(KafkaError._NOENT)))
                else:
                    answer.set_result(SimpleNamespace(offset=-1001 if place.partition == 1 else 7, timestamp=-1))
            return found

    monkeypatch.setattr(kafka_reading, "ANSWER_S", 0.2)
    with reader(servers) as of:
        of.places()
        of._admin = Partly(of._admin)
        with pytest.raises(NoAnswerError, match="does not answer"):
            of.spans()
        assert of.spans(partly=True) == {("t", 0): (7, 7), ("t", 2): (7, 7)}
        assert of.unanswered.keys() == {("t", 1), ("t", 3)} and of.unanswered["t", 1] in servers


def test_a_broker_that_owes_an_answer_is_silent_for_its_partitions_alone(servers: str) -> None:
    """By librdkafka's statistics: not one that was asked nothing, nor who reads slowly; a partition without a leader
    is, and one that is led again is not any more.
    """

    def counted(s: int, leader: int, state: str = "UP", waits: int = 1, idle_s: int = 0) -> str:
        well = {"state": "UP", "waitresp_cnt": 1, "rxidle": 100_000}
        idle = -1 if idle_s < 0 else idle_s * 1_000_000
        brokers = {  # the first is the one that the URL names
            "b1:9092/bootstrap": well | {"nodeid": -1, "name": "b1:9092/bootstrap"},
            "b1:9092/1": well | {"nodeid": 1, "name": "b1:9092/1"},
            "b2:9092/2": {"state": state, "waitresp_cnt": waits, "rxidle": idle, "nodeid": 2, "name": "b2:9092/2"},
        }
        led = {str(n): {"leader": of, "fetch_state": "active"} for n, of in ((0, 1), (1, leader), (-1, -1))}
        return json.dumps({"ts": s * 1_000_000, "brokers": brokers, "topics": {"t": {"partitions": led}}})

    with reader(servers) as of:
        of.positions = {("t", 0): 0, ("t", 1): 0}
        for at_s, text, lasts_s, broker in (
            (100, counted(100, 2), 0.0, "b2:9092"),
            (150, counted(150, 2, waits=0, idle_s=50), 0.0, "b2:9092"),  # nothing was asked
            (180, counted(180, 2, idle_s=30), 30.0, "b2:9092"),
            (190, counted(190, 2, state="DOWN"), 40.0, "b2:9092"),
            (195, counted(195, 2, idle_s=-1), 45.0, "b2:9092"),  # it took another connection
            (200, counted(200, -1), 50.0, ""),
            (210, counted(210, 2), 0.0, "b2:9092"),
        ):
            of._count(text)
            found = of.silences()
            assert found.keys() == of.positions.keys() and found["t", 0].lasts_s < 1, at_s
            assert (found["t", 1].lasts_s, found["t", 1].broker) == (lasts_s, broker), at_s


def test_of_several_topics_the_one_that_is_not_there_is_named() -> None:
    """As after one of them was deleted."""
    unknown = 'KafkaError{code=UNKNOWN_TOPIC_OR_PART,val=3,str="Broker: Unknown topic or partition"}'

    class Forgetful:
        def list_topics(self, name: str, **_: Any) -> Any:
            led = {0: SimpleNamespace(leader=1)}
            told = SimpleNamespace(error=unknown if name == "gone" else None, partitions=led)
            return SimpleNamespace(topics={name: told}, brokers={})

    with TopicReader(topics_of("kafka://h:1/first,gone,last")) as of:
        of._admin = Forgetful()
        with pytest.raises(NoTopicError, match=r"h:1 has no topic gone \("):
            of.places()


@pytest.mark.parametrize("says_them", [True, False])
def test_ids_of_topics_are_asked_for_again_after_one_failure(says_them: bool) -> None:
    """Of a broker that has reported them; one that never did is asked once."""
    answers = [TimeoutError(), "b"]

    class Once:
        def describe_topics(self, *_: Any, **__: Any) -> Any:
            answer, said = Future[Any](), answers.pop(0)
            if isinstance(said, str):
                answer.set_result(SimpleNamespace(topic_id=said))
            else:
                answer.set_exception(said)
            return {"t": answer}

    with TopicReader(topics_of("kafka://h:1/t")) as of:
        of._admin = Once()
        if says_them:
            answers.insert(0, "a")
            assert of.ids() == {"t": "a"}
        assert of.ids() == {}
        assert of.ids() == ({"t": "b"} if says_them else {})


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("KafkaError{code=_TRANSPORT}", NoAnswerError),
        ("KafkaError{code=UNKNOWN_TOPIC_OR_PART}", NoTopicError),
        ("TopicAuthorizationException: does not answer, has no topic", SourceError),
    ],
)
def test_what_may_pass_is_a_class_of_error_also_behind_the_relay(said: str, kind: type[SourceError]) -> None:
    """A watch asks again by it, no matter what the words are."""
    error = topics_of("kafka://127.0.0.1:1/t").explained(RuntimeError(said))
    assert isinstance(error, SourceError) and type(error) is kind

    def answer(stream: Any) -> None:
        raise error

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(listening(answer, "t"))
        with client.makefile("rb") as stream, pytest.raises(SourceError) as caught:
            next_part(stream)
    assert type(caught.value) is kind and caught.value.message == error.message
