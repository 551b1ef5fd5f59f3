"""Topics of Kafka as Arrow batches through librdkafka: no Java, no consumer group, nothing committed, nothing created.

A :class:`TopicReader` answers what a broker has (partitions, offsets, times), and reads partitions from offsets to
offsets, or on and on.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.engine.choosing import FITS_MESSAGES
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.errors.bounded import parse_json
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.settings.file import options_of_source
from ticdc_lab.sources.kafka import ISOLATION, Topics, open_words, require_reachable, topics_of
from ticdc_lab.sources.kafka_settings import client_settings
from ticdc_lab.words import some_of

Place = tuple[str, int]
"""A topic and a partition."""

Span = tuple[int, int]
"""Offsets from the first to before the second."""

ROWS_AT_ONCE = 10_000
ANSWER_S = 6.0
"""A broker that takes connections must answer within so many seconds."""

AGAIN_S = 1.0
"""A broker that did not answer before, while others did, is waited for so long."""

_GROUP = "ticdc-lab"
_WAIT_S = 0.1
_STALLED_S = 20.0
_LEAVE_S = 3.0
_TOKEN_S = 300.0
_QUEUE_KB = 32 << 10
_STATISTICS_MS = 5_000
_TROUBLE = 64
_AT_LEAST_KB = 64
_FINAL = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "_FATAL")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_LOG = logging.getLogger("ticdc_lab.librdkafka")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # what matters of it comes as an error

_OF_SPARK = {
    "startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp", "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp", "failondataloss", "kafkaconsumer.polltimeoutms",
}  # fmt: skip
_OF_SPARKS_TASKS = {
    "minpartitions", "maxrecordsperpartition", "fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix",
    "includeheaders", "startingoffsetsbytimestampstrategy",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets of a partition that the broker no longer had when they were to be read."""

    place: Place
    first: int
    end: int

    @property
    def sentence(self) -> str:
        """In words."""
        topic, partition = self.place
        n = self.end - self.first
        offsets = f"{n:,} offset{'' if n == 1 else 's'} ({self.first}..{self.end - 1})"
        return f"Partition {partition} of {topic}: the broker deleted {offsets} before they were read."


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long the broker of a partition owes an answer, and its HOST:PORT; empty without a leader."""

    lasts_s: float
    broker: str


class TopicReader:
    """Reads topics of one cluster.

    ``topics``: from :func:`ticdc_lab.sources.kafka.topics_of`. Options named ``kafka.*`` belong to Kafka's Java
    clients, all others to Spark's connector. ``positions``: the next offset of each partition that
    :meth:`batches` reads; offsets without a message (of transactions, of a compacted topic) are passed over.
    ``settings``: librdkafka's, with secrets in them. ``lost``: what the broker deleted before it was read.
    ``shrunk``: partitions that end before where they were to be read to, and where they end: they were truncated.
    ``open``: of the last :meth:`spans`: offsets that transactions which have not ended keep from who reads committed
    ones. ``unanswered``: of the last :meth:`spans`: partitions whose broker did not answer, with its HOST:PORT, empty
    without a leader. Raises SourceError: a setting has no counterpart in librdkafka, or cannot be used. SetupError:
    confluent-kafka is not installed.
    """

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.positions: dict[Place, int] = {}
        self.lost: list[Lost] = []
        self.shrunk: dict[Place, int] = {}
        self.open: dict[Place, Span] = {}
        self.unanswered: dict[Place, str] = {}
        self._silent_before = frozenset[Place]()
        self._leaders: dict[Place, str] = {}
        self.settings = _all_settings(topics)
        self._options = {name.lower(): value for name, value in topics.options.items() if not name.startswith("kafka.")}
        if unknown := sorted(self._options.keys() - _OF_SPARK - _OF_SPARKS_TASKS):
            raise SourceError(
                f"{topics.source} takes none of the options {', '.join(unknown)}.",
                hint="Take `startingOffsets`, `endingOffsets`, `startingTimestamp`, `endingTimestamp`, or a "
                "setting `kafka.*`",
            )
        self._trouble = deque[str](maxlen=_TROUBLE)
        self._answered: dict[Place, float] = {}
        self._silences: dict[Place, Silence] = {}
        self._says_ids, self._said_ids = True, False
        self._admin: Any = None
        self._consumer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave the broker; one that is gone is not waited for."""
        consumer, self._consumer, self._admin = self._consumer, None, None
        if consumer is not None:
            leaving = threading.Thread(target=consumer.close, name="kafka-close", daemon=True)
            leaving.start()
            leaving.join(_LEAVE_S)

    def spans(self, *, partly: bool = False) -> dict[Place, Span]:
        """First and end offset of every partition, as the broker has them now; what is not committed ends it.

        ``partly``: if some brokers do not answer, give the partitions of those that do; :attr:`unanswered` has the
        others. Raises SourceError: no broker answers, one refuses, or there is no such topic; within ten seconds.
        """
        self._silent_before = frozenset(self.unanswered)
        places, self.unanswered = self.places(), {}
        kafka = library()
        spec = kafka.admin.OffsetSpec
        first, last = (dict.fromkeys(places, which) for which in (spec.earliest(), spec.latest()))
        # asked before: what comes meanwhile is no reason to end below it
        newest = self._offsets(last, committed=False, partly=partly) if self._reads_committed else {}
        low, high = (self._offsets(edge, partly=partly) for edge in (first, last))
        whole = [at for at in places if at not in self.unanswered]
        self.open = {at: (high[at][0], newest[at][0]) for at in whole if at in newest and newest[at][0] > high[at][0]}
        return {at: (low[at][0], high[at][0]) for at in whole}

    @property
    def open_words(self) -> tuple[str, ...]:
        """:attr:`open` in words, a sentence for each partition."""
        return open_words(self.open)

    def at(self, ts_ms: int, places: Sequence[Place]) -> dict[Place, int | None]:
        """The first offset of each partition whose message is not older; None where all are."""
        spec = library().admin.OffsetSpec.for_timestamp(ts_ms)
        return {at: None if o < 0 else o for at, (o, _) in self._offsets(dict.fromkeys(places, spec)).items()}

    def newest_ms(self, places: Sequence[Place]) -> dict[Place, int | None]:
        """The greatest timestamp of each partition; None where the broker has none."""
        spec = library().admin.OffsetSpec.max_timestamp()
        try:
            return {at: None if t < 0 else t for at, (_, t) in self._offsets(dict.fromkeys(places, spec)).items()}
        except SourceError:  # brokers before 3.0
            return dict.fromkeys(places)

    def ids(self) -> dict[str, str]:
        """What distinguishes a topic from an earlier one of its name; none if the broker does not report it."""
        admin, kafka, found = self._connected(), library(), dict[str, str]()
        if self._says_ids:
            try:
                asked = admin.describe_topics(kafka.TopicCollection(list(self.topics.names)), request_timeout=2.0)
                for name, answer in asked.items():
                    found[name] = str(answer.result(ANSWER_S).topic_id)
                self._said_ids = True
                return found
            except TimeoutError:
                self._says_ids = self._said_ids  # a broker that has reported them is asked again
            except kafka.KafkaException as error:
                if error.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self.explained(str(error.args[0]), *[n for n in asked if n not in found][:1]) from None
                self._says_ids = self._said_ids
        return {}

    def bounds(self, spans: Mapping[Place, Span]) -> dict[Place, Span]:
        """What the options ask for, of what is there.

        Raises SourceError: an option cannot be read, or leaves a partition out.
        """
        firsts, ends = (self._bound(which, spans) for which in ("starting", "ending"))
        return {at: (firsts[at], ends[at]) for at in spans}

    def _bound(self, which: str, spans: Mapping[Place, Span]) -> dict[Place, int]:
        edge = 0 if which == "starting" else 1
        asked = self._options.get(f"{which}offsetsbytimestamp") or self._options.get(f"{which}timestamp")
        if asked is not None:
            times = _by_place(f"{which}Timestamp", asked, spans)
            each = {t: self.at(t, [at for at in spans if times[at] == t]) for t in set(times.values())}
            found = {at: each[times[at]][at] for at in spans}
            return {at: spans[at][1] if (offset := found[at]) is None else offset for at in spans}
        asked = self._options.get(f"{which}offsets", ("earliest", "latest")[edge])
        if asked in ("earliest", "latest"):
            return {at: span[asked == "latest"] for at, span in spans.items()}
        said = _by_place(f"{which}Offsets", asked, spans)
        edges = {-1: 1, -2: 0}  # Kafka's numbers for latest and earliest
        return {at: spans[at][edges[o]] if (o := said[at]) in edges else o for at in spans}

    @property
    def fails_on_loss(self) -> bool:
        """Whether offsets that are gone are an error (option ``failOnDataLoss``) and no limit."""
        return self._options.get("failondataloss", "false").lower() == "true"

    def batches(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int] | None = None, *, rows: int = ROWS_AT_ONCE
    ) -> Generator[pa.RecordBatch]:
        """Messages of some partitions, each partition in the order of its offsets.

        ``starts``: the first offset to read of each. ``ends``: before which offset each ends; None to read without end.
        ``rows``: messages of a batch, at most. Yields: :data:`ticdc_lab.events.schema.MESSAGES`. While nothing comes,
        an empty one comes ten times a second, so that a caller can do something else. ``positions`` are those behind
        what was yielded. Raises SourceError: the broker stops answering, a topic is deleted, or may not be read any
        more.
        """
        kafka = library()
        self.positions, self.lost, self.shrunk = dict(starts), [], {}
        self._answered, self._silences = {}, {}
        todo = {at for at, first in starts.items() if ends is None or first < ends[at]}
        if not todo:
            return
        consumer = self._reading(len(todo))
        try:
            consumer.assign([kafka.TopicPartition(*at, starts[at]) for at in sorted(todo)])
            heard = time.monotonic()
            while todo:
                got = consumer.consume(rows, _WAIT_S)
                if got:
                    heard = time.monotonic()
                elif (ends is not None or self._trouble) and time.monotonic() - heard > self._patience_s():
                    self._require_answer(consumer, heard)
                    heard = heard if ends is not None else time.monotonic()
                self.raise_final()
                messages = [m for m in got if m.error() is None]
                for other in got if len(messages) < len(got) else ():
                    if (error := other.error()) is not None:
                        self._heard(consumer, error, (other.topic(), other.partition()), other.offset(), ends)
                batch = self._batch(messages, ends)
                if ends is not None:  # what lies behind an end was fetched and is not read
                    self.positions |= {at: min(self.positions[at], ends[at]) for at in todo}
                if batch.num_rows or not got:
                    yield batch
                if ends is not None:
                    done = {at for at in todo if self.positions[at] >= ends[at] or at in self.shrunk}
                    if done:
                        todo -= done
                        consumer.incremental_unassign([kafka.TopicPartition(*at) for at in done])
        finally:
            consumer.unassign()

    def ends_now(self) -> dict[Place, int]:
        """Where each partition ends, from the last fetch of :meth:`batches`; without asking the broker."""
        kafka, found = library(), dict[Place, int]()
        for at in self.positions if self._consumer is not None else ():
            with suppress(kafka.KafkaException):
                low, high = self._consumer.get_watermark_offsets(kafka.TopicPartition(*at), cached=True)
                found[at] = max(low, high, self.positions[at])
        return found

    def silences(self) -> Mapping[Place, Silence]:
        """How long each partition that :meth:`batches` reads without end is without an answer, as librdkafka counted
        last; empty before it counts first.

        Other partitions may be read meanwhile, so an error does not show it.
        """
        return self._silences

    def _count(self, text: str) -> None:
        """Take librdkafka's statistics; times are by its clock, as statistics may wait to be read.

        A broker without a request owes no answer: a slow reader sends none.
        """
        told = json.loads(text)
        now_s, found = told["ts"] / 1e6, dict[Place, Silence]()
        brokers = {b["nodeid"]: b for b in told["brokers"].values() if b["nodeid"] >= 0}  # -1: who was asked first
        for name, topic in told["topics"].items():
            for number, partition in topic["partitions"].items():
                if (at := (name, int(number))) not in self.positions:
                    continue  # librdkafka's own, for messages without a partition
                broker = brokers.get(partition["leader"], {})
                is_up = broker.get("state") == "UP" and partition["fetch_state"] == "active"
                idle = broker.get("rxidle", -1)  # since this connection's last answer; -1 before its first
                owed_s = idle / 1e6 if broker.get("waitresp_cnt") else 0.0
                last_s = now_s - owed_s if is_up and idle >= 0 else self._answered.get(at, now_s)
                self._answered[at] = max(last_s, self._answered.get(at, last_s))
                found[at] = Silence(now_s - self._answered[at], broker.get("name", "").partition("/")[0])
        self._silences = found

    def _patience_s(self) -> float:
        said = self._options.get("kafkaconsumer.polltimeoutms", "")
        return int(said) / 1000 if said.isdigit() else _STALLED_S

    def _require_answer(self, consumer: Any, heard: float) -> None:
        """Raise where nothing came for too long and no broker answers either."""
        with suppress(library().KafkaException):
            consumer.list_topics(self.topics.names[0], timeout=2.0)
            self._trouble.clear()
            if time.monotonic() - heard < 3 * self._patience_s():
                return
        silent = [f"partition {at[1]} of {at[0]}" for at, of in self._silences.items() if of.lasts_s > _STALLED_S]
        which = f"no answer for {some_of(silent)}" if silent else (self._trouble or ["no message came"])[-1]
        raise self.explained(f"code=_TRANSPORT: {which}")

    def _heard(self, consumer: Any, error: Any, at: Place, offset: int, ends: Mapping[Place, int] | None) -> None:
        """An end of a partition moves its position; offsets that are gone are passed over; the rest is raised."""
        kafka = library()
        if error.code() == kafka.KafkaError._PARTITION_EOF:
            self.positions[at] = max(self.positions.get(at, 0), offset)
            if ends is not None and offset < ends[at]:
                _, high = self._watermarks(consumer, at)
                if high < ends[at]:
                    self.shrunk[at] = high
        elif error.code() == kafka.KafkaError._AUTO_OFFSET_RESET or error.name() == "OFFSET_OUT_OF_RANGE":
            low, high = self._watermarks(consumer, at)
            if self.positions[at] > high:
                self.shrunk[at] = high
                if ends is None:
                    raise _truncated(at, self.positions[at], high)
            elif self.positions[at] < low:
                self.lost.append(Lost(at, self.positions[at], low if ends is None else min(low, ends[at])))
                self.positions[at] = low
                consumer.incremental_unassign([kafka.TopicPartition(*at)])  # no seek is allowed after this error
                consumer.incremental_assign([kafka.TopicPartition(*at, low)])
        elif "GROUP" not in error.name() and not error.retriable():
            raise self.explained(str(error))

    def _watermarks(self, consumer: Any, at: Place) -> Span:
        """First and end offset of a partition that is being read; who does not answer now was there a moment ago."""
        kafka = library()
        try:
            return consumer.get_watermark_offsets(kafka.TopicPartition(*at), timeout=ANSWER_S)  # type: ignore[no-any-return]
        except kafka.KafkaException as error:
            raise self.explained(f"code=_TRANSPORT: {error.args[0].str()}") from None

    def _batch(self, messages: Sequence[Any], ends: Mapping[Place, int] | None) -> pa.RecordBatch:
        topics, partitions = [m.topic() for m in messages], [m.partition() for m in messages]
        offsets = [m.offset() for m in messages]
        places = list(zip(topics, partitions, strict=True))
        self.positions.update({at: o + 1 for at, o in zip(places, offsets, strict=True)})
        stamps = [m.timestamp() for m in messages]
        headers = [m.headers() for m in messages]
        columns = {
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pc.multiply(pa.array([ms if kind else None for kind, ms in stamps], pa.int64()), 1000).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "key": pa.array([m.key() for m in messages], pa.binary()),
            "value": pa.array([m.value() for m in messages], pa.binary()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in h] if h else [] for h in headers], _HEADERS),
        }
        schema = arrow_schema(MESSAGES)
        batch = pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)
        if ends is None:
            return batch
        until = np.array([ends[at] for at in places], np.int64)
        return batch.filter(pa.array(np.asarray(offsets, np.int64) < until)) if (until <= offsets).any() else batch

    def _connected(self) -> Any:
        if self._admin is None:
            require_reachable(self.topics)
            self._admin = self.made(library().admin.AdminClient, self.settings)
        return self._admin

    def _reading(self, n_partitions: int) -> Any:
        if self._consumer is None:
            share = max(_AT_LEAST_KB, _QUEUE_KB // n_partitions)
            ours: dict[str, Any] = {
                "group.id": _GROUP, "enable.auto.commit": "false", "enable.auto.offset.store": "false",
                "auto.offset.reset": "error", "allow.auto.create.topics": "false", "enable.partition.eof": "true",
                "queued.max.messages.kbytes": str(share), "fetch.error.backoff.ms": "100",
                "fetch.queue.backoff.ms": "10",  # its own second would be most of the time: the queue is small
                "topic.metadata.propagation.max.ms": "3000", "statistics.interval.ms": str(_STATISTICS_MS),
                "stats_cb": self._count,
            }  # fmt: skip
            quick = {"fetch.wait.max.ms": "100", "fetch.max.bytes": str(16 << 20)}
            self._consumer = self.made(library().Consumer, quick | self.settings | ours)
        return self._consumer

    def made(self, kind: Any, settings: Mapping[str, str]) -> Any:
        """A client of librdkafka whose errors this reader hears."""
        kafka = library()
        try:
            return kind({**settings, "error_cb": self._note, "log_level": 0}, logger=_LOG)
        except (kafka.KafkaException, ValueError) as error:
            raise self.explained(f"Failed to create: {error}") from None

    def _note(self, error: Any) -> None:
        self._trouble.append(str(error))

    def raise_final(self) -> None:
        """Raise where a client has heard what no waiting changes, such as wrong credentials."""
        for said in tuple(self._trouble):  # another thread may ask meanwhile
            if any(f"code={name}" in said for name in _FINAL):
                unverified = "certificate verify failed" in said
                raise self.explained(self._why_unverified() or said if unverified else said)

    def _why_unverified(self) -> str | None:
        """What is wrong with a broker's certificate: librdkafka has one message for all that it refuses."""
        context = ssl.create_default_context(cafile=self.settings.get("ssl.ca.location"))
        for broker in self.topics.brokers.split(","):
            host, _, port = broker.rpartition(":")
            try:
                with socket.create_connection((host.strip("[]"), int(port)), 3.0) as plain:
                    context.wrap_socket(plain, server_hostname=host.strip("[]")).close()
            except ssl.SSLCertVerificationError as error:
                return f"certificate verify failed: {error.verify_message}"
            except OSError:
                continue
        return None

    def explained(self, said: str, *names: str) -> Exception:
        """An error of librdkafka as one of this package, without secrets: of some topics, or of all."""
        topics = replace(self.topics, names=names or self.topics.names)
        return topics.explained(RuntimeError(said)) or SourceError(f"{self.topics.source}: {said}")

    def places(self) -> list[Place]:
        """Every partition of the topics; raises as :meth:`spans` does."""
        admin, kafka, until = self._connected(), library(), time.monotonic() + ANSWER_S
        found = list[Place]()
        for name in self.topics.names:
            while True:
                try:
                    told = admin.list_topics(name, timeout=1.0)
                    topic = told.topics[name]
                    break
                except kafka.KafkaException as error:
                    admin.poll(0)
                    self.raise_final()
                    if time.monotonic() > until:
                        raise self.explained(f"code=_TIMED_OUT {(self._trouble or [str(error)])[-1]}") from None
            if topic.error is not None:
                raise self.explained(str(topic.error), name)
            for number, partition in topic.partitions.items():
                found.append((name, number))
                leader = told.brokers.get(partition.leader)
                self._leaders[name, number] = "" if leader is None else f"{leader.host}:{leader.port}"
        return sorted(found)

    @property
    def _reads_committed(self) -> bool:
        return self.settings.get("isolation.level") != "read_uncommitted"

    def _offsets(
        self, asked: Mapping[Place, Any], *, committed: bool | None = None, partly: bool = False
    ) -> dict[Place, tuple[int, int]]:  # fmt: skip
        """Offset and timestamp of each; with ``partly`` without those whose broker does not answer, which
        :attr:`unanswered` gets.
        """
        todo = {at: of for at, of in asked.items() if at not in self.unanswered} if partly else dict(asked)
        found, why, until = dict[Place, tuple[int, int]](), "", time.monotonic() + ANSWER_S
        if not todo:
            return found
        admin, kafka = self._connected(), library()
        level = kafka.IsolationLevel
        committed = self._reads_committed if committed is None else committed
        which = level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        silent_before = {kafka.TopicPartition(*at) for at in self._silent_before}
        while True:
            by_broker = dict[str, dict[Any, Any]]()  # a request for each, so that a silent one delays its own alone
            for at, spec in todo.items():
                by_broker.setdefault(self._leaders.get(at, ""), {})[kafka.TopicPartition(*at)] = spec
            requests = [
                admin.list_offsets(
                    own, isolation_level=which,
                    request_timeout=AGAIN_S if partly and own.keys() <= silent_before else ANSWER_S,
                )
                for own in by_broker.values()
            ]  # fmt: skip
            for p, answer in (one for request in requests for one in request.items()):
                where = f"partition {p.partition} of {p.topic}"
                try:
                    told = answer.result(2 * ANSWER_S)
                except TimeoutError:
                    why = f"no answer to a request for offsets of {where}"
                except kafka.KafkaException as error:
                    if error.args[0].name() not in _MAY_PASS:
                        raise self.explained(str(error.args[0])) from None
                    why = f"{where}: {error.args[0].str()}"
                else:
                    if told.offset <= kafka.OFFSET_INVALID:  # librdkafka's for a request that timed out
                        why = f"no answer to a request for offsets of {where}"
                    else:
                        found[p.topic, p.partition] = told.offset, told.timestamp
                        del todo[p.topic, p.partition]
            if not todo:
                return found
            if time.monotonic() > until or (partly and found and todo.keys() <= self._silent_before):
                if not partly or not found:
                    raise self.explained(f"code=_TIMED_OUT: {why}")
                self.unanswered |= {at: self._leaders.get(at, "") for at in todo}
                return found
            self.places()  # asks for the leaders of now
            time.sleep(_WAIT_S)


_MAY_PASS = frozenset({
    "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "_NOENT", "_TIMED_OUT", "_TRANSPORT",
})  # fmt: skip
"""What is answered while leaders change, after a broker's restart, and while a partition has no leader (``_NOENT``) or
its broker does not answer.
"""


def too_large(source: str, options: Mapping[str, str]) -> str | None:
    """Why topics are not for the embedded engine, as a clause; None where they fit. The broker is asked."""
    with TopicReader(topics_of(source, options_of_source(options))) as reader:
        bounds = reader.bounds(reader.spans(partly=True))  # who reads it refuses a silent broker, or waits for it
    n = sum(max(0, end - first) for first, end in bounds.values())
    return f"the topic is large ({n:,} messages, more than {FITS_MESSAGES:,})" if n > FITS_MESSAGES else None


def _truncated(at: Place, position: int, high: int) -> SourceError:
    return SourceError(
        f"Partition {at[1]} of {at[0]} ends at offset {high}, before offset {position}, where reading had come to: the "
        "topic was truncated, or deleted and recreated.",
        hint="What was read so far stays. Read the topic as a new one, into another folder (--state or --out).",
    )


def _by_place(name: str, asked: str, spans: Mapping[Place, Span]) -> dict[Place, int]:
    """A number for all partitions, or one for each as JSON."""
    try:
        told = parse_json(asked)
        if isinstance(told, int):
            return dict.fromkeys(spans, told)
        return {(topic, partition): int(told[topic][str(partition)]) for topic, partition in spans}
    except (KeyError, TypeError, ValueError) as error:
        form = json.dumps({topic: {str(partition): 0} for topic, partition in list(spans)[:1]})
        raise SourceError(
            f"The option {name} cannot be read ({type(error).__name__}: {error}); expected a number a partition.",
            hint=f"Write JSON that names every partition, such as --option '{name}={form}'",
        ) from None


def _all_settings(topics: Topics) -> dict[str, Any]:
    own: dict[str, Any] = dict(client_settings(topics.options))
    if (url := own.get("sasl.oauthbearer.token.endpoint.url", "")).startswith("file:"):
        own = {name: value for name, value in own.items() if not name.startswith("sasl.oauthbearer.")}
        own["oauth_cb"] = partial(_token_in, unquote(urlsplit(url).path))
        _token_in(unquote(urlsplit(url).path))
    ours = {"isolation.level": topics.options.get(ISOLATION, "read_committed")}
    return own | ours | {"bootstrap.servers": topics.brokers}


def _token_in(path: str, _: str = "") -> tuple[str, float]:
    """The token of OAUTHBEARER in a file, which another program may renew, and until when it is valid."""
    hint = "Renew it, or name another one: kafka.sasl.oauthbearer.token.endpoint.url=file:///PATH"
    try:
        token = Path(path).read_text(encoding="ascii").strip()
        payload = token.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        until = float(claims.get("exp", time.time() + _TOKEN_S))
    except (OSError, ValueError, IndexError, AttributeError) as error:
        said = f"{path} contains no token for OAUTHBEARER ({type(error).__name__}); expected a JWT."
        raise SourceError(said, hint=hint) from None
    if until < time.time():
        raise SourceError(f"The token for OAUTHBEARER in {path} expired at {at_ms(round(until * 1000))}.", hint=hint)
    return token, until


def library() -> Any:
    """confluent-kafka, which only those need who read a topic without Java."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise SetupError(
            f"Reading Kafka without Java needs confluent-kafka, which cannot be imported: {error}.",
            hint="Run: ./lab setup   (without a checkout: python -m pip install confluent-kafka)",
        ) from None
    return confluent_kafka


def at_ms(ms: int | None) -> str:
    """A time of Kafka's in words."""
    return "" if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
