"""Kafka topics: their names, settings and errors on either engine, and reading through Spark's own connector.

The embedded engine reads them without Java (:mod:`ticdc_lab.sources.kafka_reading`).

A batch is pinned: which offsets are there is asked once, and every action on the frame reads those. What has expired by
then is missing from the answer, and the load reports which offsets (:func:`ticdc_lab.facts.limits.offset_gaps`).
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from ticdc_lab.errors import NoAnswerError, NoTopicError, SourceError, TiCDCLabError
from ticdc_lab.errors.bounded import parse_json
from ticdc_lab.errors.redaction import redacted, without_secrets
from ticdc_lab.sources.places import KAFKA, Size, is_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXPECTED = "topic string, partition int, first_offset bigint, end_offset bigint"
"""What a pinned batch should hold: offsets from ``first_offset`` up to before ``end_offset``; null is not known."""

_FORM = "kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]"
REACHED_S = 6.0
"""How long its name, a connection and the first answer may take; ``kafka.request.timeout.ms`` gives more."""
SAID_S = 0.5
"""How much longer a thread may take to report that; only one that still waits for a name takes more."""
_WHO = b"ticdc-lab"
_FIRST_REQUEST = struct.pack(f">ihhih{len(_WHO)}s", 10 + len(_WHO), 18, 0, 1, len(_WHO), _WHO)
"""Asks which requests it takes (ApiVersions), as number 1: every listener answers that, before SASL too."""
_ANSWER, _ALERT = struct.pack(">i", 1), b"\x15\x03"
_NO_TLS = {None, "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"}
_BOUNDS = (
    {"kafka.request.timeout.ms": "10000", "kafka.default.api.timeout.ms": "15000"},
    {"kafkaConsumer.pollTimeoutMs": "20000"},
    {"fetchOffset.numRetries": "1"},
)
"""Waits that are set together unless the caller sets one of them: Spark's own add up to ten minutes and more."""

_CREDENTIALS_HINT = (
    "Check kafka.security.protocol and kafka.sasl.* or kafka.ssl.* (--option KEY=VALUE, secrets in --kafka-config FILE)"
)
_NO_TOPIC = "{brokers} has no topic {names}"
_SILENT = "{brokers} does not answer, or stopped answering while {names} was read"
_ERRORS = {_NO_TOPIC: NoTopicError, _SILENT: NoAnswerError}
_CAUSES = (
    (
        r"Certificate(?:Expired|NotYetValid)Exception|certificate has expired|certificate is not yet valid",
        "The TLS certificate of {brokers} is not valid now",
        "Whoever runs the broker must renew it; see also whether the clock of this machine is right.",
    ),
    (
        r"PKIX path \w+ failed|unable to get (?:local )?issuer certificate|self[- ]signed certificate",
        "The TLS certificate of {brokers} is signed by no CA that is trusted here",
        "Name the CA that signed it: kafka.ssl.truststore.type=PEM and kafka.ssl.truststore.location=ca.pem, or a "
        "keystore with kafka.ssl.truststore.password (--option KEY=VALUE, secrets in --kafka-config FILE).",
    ),
    (
        r"No (?:name matching|subject alternative)|(?:[Hh]ostname|IP address) mismatch",
        "The TLS certificate of {brokers} is one of another host",
        "Name the brokers as their certificates do, or have one made for this name.",
    ),
    (
        r"(?:Sasl|Ssl)AuthenticationException|SSLHandshakeException|LoginException|IllegalSaslStateException"
        r"|UnsupportedSaslMechanismException|code=_AUTHENTICATION|code=SASL_AUTHENTICATION_FAILED|code=_SSL\b",
        "{brokers} refused the credentials",
        _CREDENTIALS_HINT + ".",
    ),
    (
        r"\w*AuthorizationException|code=\w+_AUTHORIZATION_FAILED",
        "{brokers} does not let this user read {names}",
        "The user needs the rights Describe and Read on the topics; on Spark also Read on groups named spark-kafka-*.",
    ),
    (
        r"UnknownTopicOrPartitionException|UnknownTopicIdException|does not host this topic"
        r"|code=_?UNKNOWN_(?:TOPIC|PARTITION)\w*",
        _NO_TOPIC,
        "Check the name; topic names are case-sensitive.",
    ),
    (
        r"OffsetOutOfRange|data may have been lost|may have been lost",
        "{brokers}: offsets of {names} that were to be read are gone",
        "Use --option failOnDataLoss=false: the load then reports missing offsets.",
    ),
    (
        r"Failed to (?:create|construct|load)|\w*ConfigException|JAAS config|code=_INVALID_ARG",
        "The settings for {brokers} cannot be used",
        _CREDENTIALS_HINT + "; a file that they name must exist and have the stated type.",
    ),
    (
        r"TimeoutException|[Tt]imed out|DisconnectException|Connection refused|BrokerNotAvailable|NetworkException"
        r"|RetriableException|code=_(?:TRANSPORT|ALL_BROKERS_DOWN|TIMED_OUT|RESOLVE|TIMED_OUT_QUEUE)",
        _SILENT,
        "Is the broker alive, and does its listener speak this security protocol? " + _CREDENTIALS_HINT + ". A slow "
        "broker gets more time by kafkaConsumer.pollTimeoutMs and kafka.default.api.timeout.ms.",
    ),
)


@dataclass(frozen=True, slots=True)
class Topics:
    """Where the messages are and how to get at them; the options may hold secrets, so they show in no text."""

    source: str
    brokers: str
    names: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)

    def explained(self, error: BaseException) -> Exception | None:
        """A :class:`SourceError` for what Kafka's clients throw; None for another error that holds no secret."""
        said = str(error)
        for pattern, message, hint in _CAUSES:
            if found := re.search(pattern, said):
                what = message.format(brokers=self.brokers, names=", ".join(self.names))
                line = redacted(_sentence(said, found.start()), self.options)
                return _ERRORS.get(message, SourceError)(f"{what} ({line[:300].rstrip('.')}).", hint=hint)
        clean = redacted(said, self.options)
        return SourceError(f"{self.source}: {clean}") if clean != said else None


def _sentence(trace: str, at: int) -> str:
    """The line of a trace that begins at a place; a failed construction has its innermost cause."""
    line = trace[at:].splitlines()[0].strip()
    if own := re.search(r'code=\w+,val=-?\d+,str="(.*)"', line):  # as librdkafka's errors are shown
        return own[1]
    causes = re.findall(r"^Caused by: (?:[\w.$]*\.)?(\w+: .+)$", trace, re.MULTILINE)
    return f"{line}: {causes[-1]}" if line.startswith("Failed") and causes else line


def topics_of(source: str, options: Mapping[str, str] | None = None) -> Topics:
    """Read ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``.

    Raises SourceError: it is not of this form, or holds a password.
    """
    shown = without_secrets(source)
    if "@" in source:
        raise SourceError(
            f"The URL of {shown} contains a user or a password, which Kafka does not take so.",
            hint=_CREDENTIALS_HINT + ".",
        )
    brokers, _, path = source.removeprefix(KAFKA).partition("/")
    names = tuple(n for n in path.strip("/").split(",") if n)
    good = all(re.fullmatch(r"(\[[\da-fA-F:.]+\]|[\w.-]+):\d{1,5}", b) for b in brokers.split(","))
    if not is_kafka(source) or not good or not names or not all(re.fullmatch(r"[\w.-]{1,249}", n) for n in names):
        raise SourceError(
            f"{shown} is no Kafka source; expected {_FORM}.",
            hint="Name the port and the topic, for example kafka://127.0.0.1:9092/orders; settings go to --option.",
        )
    return Topics(source, brokers, names, dict(options or {}))


def properties(path: str) -> dict[str, str]:
    """Options from a properties file as Kafka's own tools take (``--command-config``): no command line shows them.

    Keys without ``kafka.`` get it; lines end with a backslash to continue; ``#`` and ``!`` begin a comment.

    Raises SourceError: the file cannot be read, or a line has no ``=``. The text of the line is not shown.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SourceError(
            f"The settings {path} cannot be read: {why}. Expected a file of lines NAME=VALUE.",
            hint="Give a single setting as an option: --option kafka.NAME=VALUE",
        ) from None
    found: dict[str, str] = {}
    for n, line in enumerate(re.sub(r"\\\r?\n[ \t]*", "", text).splitlines(), 1):
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise SourceError(f"{path}: entry {n} has no KEY=VALUE.", hint="Write one setting a line, as KEY=VALUE.")
        key = key.strip()
        found[key if key.startswith("kafka.") else f"kafka.{key}"] = value.strip()
    return found


def open_words(ends: Mapping[tuple[str, int], tuple[int, int]]) -> tuple[str, ...]:
    """A sentence for each partition whose committed messages end before its last one: where, and where it ends."""
    return tuple(
        f"Partition {partition} of {topic}: offsets {first}..{end - 1} are not read, because a transaction of a "
        "producer that begins there has not ended."
        for (topic, partition), (first, end) in sorted(ends.items())
        if first < end
    )


def read_batch(spark: SparkSession, topics: Topics) -> tuple[DataFrame, DataFrame, tuple[str, ...]]:
    """Messages of the topics, earliest to latest by default; pinned to what is there now.

    ``spark``: a session with Spark's Kafka connector. ``topics``: from :func:`topics_of`. Options named ``kafka.*`` go
    to Kafka's clients, all others to the connector (``startingOffsets``, ``endingOffsets``, ``startingTimestamp``,
    ``minPartitions``, ...). Returns: the connector's columns, with headers; what should be in it (:data:`EXPECTED`);
    and what the broker keeps back of it, a sentence each. Raises SourceError: the broker cannot be reached, refuses the
    credentials, or does not have a topic; within seconds. SetupError: the session has no Kafka connector.
    """
    spans, left_out = _spans(spark, topics)
    settings = _settings(topics)
    own = {name.lower() for name in topics.options}
    given = {
        which: any(name.startswith((f"{which}offset", f"{which}timestamp")) for name in own)
        for which in ("starting", "ending")
    }
    read = spans
    if not any(given.values()) and (some := {at: span for at, span in spans.items() if span[0] < span[1]}):
        read = some  # the connector runs a task for each partition that is named, where nothing is too
        settings["assign"] = _assigned(some)
        del settings["subscribe"]
    for place, which in enumerate(given):
        if not given[which]:
            settings[f"{which}Offsets"] = _as_json({at: span[place] for at, span in read.items()})
    with said_plainly(topics):
        frame = spark.read.format("kafka").options(**settings).load()
    firsts, ends = _bound(settings, "startingOffsets", spans), _bound(settings, "endingOffsets", spans)
    rows = [(*at, first, end) for at, first, end in zip(spans, firsts, ends, strict=True)]
    return frame, spark.createDataFrame(rows, EXPECTED), left_out


def size_of(expected: DataFrame) -> Size:
    """How many messages a pinned batch should hold, from :data:`EXPECTED`; compaction may leave fewer."""
    from pyspark.sql import functions as F

    found = expected.agg(F.sum(F.col("end_offset") - F.col("first_offset")), F.count("first_offset"), F.count("*"))
    messages, known, all_of = found.first() or (None, 0, 1)
    return Size(None, messages, "by the broker's offsets", True) if known == all_of else Size()


def read_stream(spark: SparkSession, source: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """Messages of Kafka topics as a stream, from the earliest unless ``startingOffsets`` is set.

    ``spark``: a session with Spark's Kafka connector. ``source``: ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``.
    ``options``: as for :func:`read_batch`. Returns: :data:`ticdc_lab.events.schema.MESSAGES`. Offsets that have expired
    do not stop it; see :func:`ticdc_lab.facts.limits.offset_gaps`. Raises SourceError, SetupError: as
    :func:`read_batch`.
    """
    from ticdc_lab.events.schema import as_messages  # with pyspark, which wrong arguments need not wait for

    topics = topics_of(source, options)
    _spans(spark, topics)
    with said_plainly(topics):
        return as_messages(
            spark.readStream.format("kafka").options(**{"startingOffsets": "earliest"} | _settings(topics)).load()
        )


@contextmanager
def said_plainly(topics: Topics) -> Iterator[None]:
    """Errors of Kafka's clients in the body become a :class:`SourceError` without secrets.

    They run in the JVM: a connection that Python has lost is the one to the engine, which brokers do not see.
    """
    try:
        yield
    except (TiCDCLabError, ConnectionError):
        raise
    except Exception as error:
        explained = topics.explained(error)
        if explained is None:
            raise
        raise explained from None


ISOLATION = "kafka.isolation.level"
"""What a transaction wrote that was aborted never happened; Kafka's clients would read it."""


def _settings(topics: Topics) -> dict[str, str]:
    ours = {"includeHeaders": "true", "failOnDataLoss": "false", ISOLATION: "read_committed"}
    for together in _BOUNDS:
        if not together.keys() & topics.options.keys():
            ours |= together
    return (
        ours | dict(topics.options) | {"kafka.bootstrap.servers": topics.brokers, "subscribe": ",".join(topics.names)}
    )


def require_reachable(topics: Topics) -> None:
    """One of the brokers answers: what does not is reported at once, before anything starts or waits for it.

    Raises SourceError: None takes a connection, or answers as a broker does.
    """
    protocol = topics.options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"):
        return  # Kafka's client refuses it
    asked = topics.options.get("kafka.request.timeout.ms", "")
    within_s = max(REACHED_S, int(asked) / 1000 if asked.isdigit() else 0.0)
    until, brokers = time.monotonic() + within_s, topics.brokers.split(",")
    said = SimpleQueue[tuple[str, tuple[bool, str] | None]]()
    for broker in brokers:  # in threads without a waiter: the system may take a minute for a name
        Thread(
            target=lambda b: said.put((b, _refusal(b, until, tls=protocol.endswith("SSL")))),
            args=(broker,),
            daemon=True,
        ).start()
    refusals = dict.fromkeys(brokers, (False, f"no answer within {within_s:g} s"))
    with suppress(Empty):
        for _ in brokers:
            broker, refusal = said.get(timeout=max(0.0, until + SAID_S - time.monotonic()))
            if refusal is None:
                return
            refusals[broker] = refusal
    why = "; ".join(f"{broker}: {words}" for broker, (_, words) in refusals.items())
    if any(connected for connected, _ in refusals.values()):
        raise NoAnswerError(
            f"No broker of {topics.source} answers ({why}).",
            hint="Check that it is a Kafka broker, and which security protocol its listener speaks. "
            f"{_CREDENTIALS_HINT}. A slow broker gets more time by kafka.request.timeout.ms.",
        )
    host, _, port = brokers[0].rpartition(":")
    raise SourceError(
        f"No broker of {topics.source} can be reached ({why}).",
        hint=f"Check that this machine can connect: nc -vz {shlex.join((host.strip('[]'), port))}",
    )


def _refusal(broker: str, until: float, *, tls: bool) -> tuple[bool, str] | None:
    """Whether a broker takes a connection, and why it is of no use; None where it answers."""
    host, _, port = broker.rpartition(":")
    host, connected, shaken = host.strip("[]"), False, False
    try:
        with socket.create_connection((host, int(port)), timeout=max(0.01, until - time.monotonic()) / 2) as plain:
            connected = True
            plain.settimeout(max(0.01, until - time.monotonic()))
            listener = _any_tls().wrap_socket(plain, server_hostname=host) if tls else plain
            shaken = tls
            listener.sendall(_FIRST_REQUEST)
            answer = listener.recv(8)
            while 0 < len(answer) < 8 and answer[:2] != _ALERT and (more := listener.recv(8 - len(answer))):
                answer += more  # brokers before 2.7 send the length by itself, in a record of its own over TLS
    except TimeoutError:
        return connected, "it takes connections and does not answer" if connected else "timed out"
    except (ssl.SSLError, ConnectionError) as error:
        if not connected or not tls:
            return connected, error.strerror or str(error)
        other = isinstance(error, ssl.SSLError) and error.reason not in _NO_TLS
        # after a handshake, or by an alert, it speaks TLS: what it minds Kafka's client reports in better words
        return None if shaken or other else (True, "it does not speak TLS")
    except (OSError, OverflowError, ValueError) as error:  # the last where a name has an empty part
        return connected, getattr(error, "strerror", None) or str(error)
    if answer[:2] == _ALERT:
        return True, "it speaks TLS, which kafka.security.protocol names as SSL or SASL_SSL"
    if not answer:
        return True, "it closed the connection at the first request; a listener for TLS does so too"
    return None if answer[4:] == _ANSWER else (True, f"it answered {answer!r}, which no Kafka broker does")


def _any_tls() -> ssl.SSLContext:
    """TLS with any certificate: no secret is sent here, and Kafka's client verifies it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _spans(spark: SparkSession, topics: Topics) -> tuple[dict[tuple[str, int], tuple[int, int]], tuple[str, ...]]:
    """First and end offset of every partition, as the broker has them now, and :func:`open_words` of it."""
    require_reachable(topics)
    from ticdc_lab.engine import kafka_offsets

    settings = {name.removeprefix("kafka."): v for name, v in _settings(topics).items() if name.startswith("kafka.")}
    with said_plainly(topics):
        found = kafka_offsets(spark, settings, topics.names)
    return {at: span[:2] for at, span in found.items()}, open_words({at: span[1:] for at, span in found.items()})


def _as_json(offsets: Mapping[tuple[str, int], int]) -> str:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(nested)


def _assigned(partitions: Iterable[tuple[str, int]]) -> str:
    nested: dict[str, list[int]] = {}
    for topic, partition in partitions:
        nested.setdefault(topic, []).append(partition)
    return json.dumps(nested)


def _bound(
    settings: Mapping[str, str], name: str, spans: Mapping[tuple[str, int], tuple[int, int]]
) -> list[int | None]:
    """Per partition where the batch begins or ends; None where only Spark knows, as from a timestamp."""
    given = {k.lower(): v for k, v in settings.items()}.get(name.lower(), "")
    if given in ("earliest", "latest"):
        return [span[0 if given == "earliest" else 1] for span in spans.values()]
    try:
        asked = parse_json(given)
        offsets = [asked.get(topic, {}).get(str(partition)) for topic, partition in spans]
    except (AttributeError, ValueError):
        return [None] * len(spans)
    edges = {-1: 1, -2: 0}  # Kafka's numbers for latest and earliest
    return [span[edges[o]] if o in edges else o for o, span in zip(offsets, spans.values(), strict=True)]
