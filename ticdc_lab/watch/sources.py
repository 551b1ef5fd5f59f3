"""What can be watched: topics of Kafka, recordings and folders of the storage sink; and how messages become events."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs import log_types
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.detection import Detected, detect
from ticdc_lab.codecs.handles import Handles, handles_of
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY
from ticdc_lab.codecs.known import AT_ONCE, Known
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.engine.object_stores import Store
from ticdc_lab.errors import ProtocolError, SourceError
from ticdc_lab.events.schema import DECODED
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.file import options_of_source
from ticdc_lab.settings.keys import protocol_named
from ticdc_lab.sources.kafka import Topics, topics_of
from ticdc_lab.sources.kafka_reading import Lost, Place, Silence, Span, TopicReader
from ticdc_lab.sources.load import shown_by
from ticdc_lab.sources.places import is_kafka
from ticdc_lab.sources.storage_layout import METADATA
from ticdc_lab.watch.recorded import MESSAGES_FORM, Read, RecordedTopic, messages_among
from ticdc_lab.watch.storage import StorageFolder

FORM = arrow_schema(DECODED)


class WatchedSource(Protocol):
    """What a watch reads."""

    name: str
    grows: bool
    """Whether more may come: a recording ends."""
    positions: dict[Place, int]
    """The next offset of each partition, behind what :meth:`batches` gave."""
    lost: dict[Place, int]
    """How many messages were gone before they were read, since :meth:`batches` began."""

    def ids(self) -> dict[str, str]:
        """What distinguishes topics from later ones of their names."""

    def spans(self) -> dict[Place, Span]:
        """First and end offset of each partition, as far as known."""

    def batches(self, positions: Mapping[Place, int], *, once: bool) -> Iterator[Read]:
        """What follows some positions, each partition in the order of its offsets; with ``once`` up to the end of now.

        An empty batch comes while nothing else does.
        """

    def close(self) -> None:
        """Leave it."""


class Messages(WatchedSource, Protocol):
    """A source of messages that are not decoded."""

    def first(self, n: int) -> pa.Table:
        """Up to ``n`` of the first messages; of large ones fewer, as of a log that is opened."""

    def messages_at(self, places: Iterable[tuple[str, int, int]]) -> pa.Table:
        """The messages at some topics, partitions and offsets that are still there."""


class LiveTopic:
    """Topics of Kafka, through librdkafka."""

    grows = True

    def __init__(self, topics: Topics) -> None:
        self.name, self._topics = topics.source, topics
        self.positions: dict[Place, int] = {}
        self.lost: dict[Place, int] = {}
        self._reader = TopicReader(topics)
        self._unanswered: dict[Place, tuple[float, str]] = {}
        self._n_deleted = 0

    def ids(self) -> dict[str, str]:
        """As of :class:`WatchedSource`."""
        return self._reader.ids()

    def spans(self) -> dict[Place, Span]:
        """As of :class:`WatchedSource`; asks the brokers, and gives the partitions of those that answer."""
        return self._bounded(self._spans())

    def _spans(self, *, partly: bool = True) -> dict[Place, Span]:
        spans, now_s = self._reader.spans(partly=partly), time.monotonic()
        before, silent = self._unanswered, self._reader.unanswered
        self._unanswered = {at: before.get(at, (now_s, broker)) for at, broker in silent.items()}
        return spans

    def _bounded(self, spans: dict[Place, Span]) -> dict[Place, Span]:
        bounds = self._reader.bounds(spans)
        return {at: (bounds[at][0], high) for at, (_, high) in spans.items()}

    def first(self, n: int) -> pa.Table:
        """As of :class:`Messages`."""
        spans, found = self.spans(), [MESSAGES_FORM.empty_table()]
        with TopicReader(self._topics) as reader:
            ends = {at: min(high, low + n) for at, (low, high) in spans.items()}
            for batch in reader.batches({at: low for at, (low, _) in spans.items()}, ends):
                found.append(pa.Table.from_batches([batch]))
                if sum(map(len, found)) >= n or sum(t.nbytes for t in found) >= AT_ONCE:
                    break
        return pa.concat_tables(found).slice(0, n).combine_chunks()

    def batches(self, positions: Mapping[Place, int], *, once: bool) -> Iterator[Read]:
        """As of :class:`WatchedSource`; a partition without a position is left out until its broker answers."""
        spans = self._spans(partly=not once)
        self.positions = {at: low for at, (low, _) in self._bounded(spans).items()} | dict(positions)
        if gone := sorted(self.positions.keys() - spans.keys() - self._unanswered.keys()):
            raise SourceError(
                f"{self.name} has no partition {gone[0][1]} of {gone[0][0]} any more: the topic was recreated.",
                hint="Watch it into another folder: --state OTHER",
            )
        ends = {at: max(high, self.positions[at]) for at, (_, high) in spans.items()} if once else None
        self._n_deleted = 0
        for batch in self._reader.batches(self.positions, ends):
            self.positions = dict(self._reader.positions)
            lost = dict[Place, int]()
            for one in self._reader.lost:
                lost[one.place] = lost.get(one.place, 0) + one.end - one.first
            self.lost = lost
            yield batch, None

    def ends_now(self) -> dict[Place, int]:
        """Where partitions end, from the last fetch."""
        return self._reader.ends_now()

    def newly_deleted(self) -> list[Lost]:
        """What the broker deleted before it was read, since this was asked last."""
        n, self._n_deleted = self._n_deleted, len(self._reader.lost)
        return self._reader.lost[n:]

    def silences(self) -> Mapping[Place, Silence]:
        """For how long the broker of each partition owes an answer, as of librdkafka's last count; of one that is not
        read, since it was asked first.
        """
        now_s, counted = time.monotonic(), self._reader.silences()
        return {at: Silence(now_s - since, broker) for at, (since, broker) in self._unanswered.items()} | {**counted}

    def messages_at(self, places: Iterable[tuple[str, int, int]]) -> pa.Table:
        """As of :class:`WatchedSource`."""
        found, wanted = [MESSAGES_FORM.empty_table()], set(places)
        with TopicReader(self._topics) as reader:
            spans = reader.spans() if wanted else {}
            stretches: dict[Place, list[Span]] = {}
            for topic, partition, offset in sorted(wanted):
                at = (topic, partition)
                low, high = spans.get(at, (0, 0))
                own = stretches.setdefault(at, [])
                if own and offset - own[-1][1] < NEAR:
                    own[-1] = own[-1][0], offset + 1
                elif low <= offset < high:
                    own.append((offset, offset + 1))
            while todo := {at: own.pop() for at, own in stretches.items() if own}:
                starts, ends = ({at: span[i] for at, span in todo.items()} for i in (0, 1))
                for batch in reader.batches(starts, ends):
                    found.append(messages_among(batch, wanted))
        return pa.concat_tables(found)

    def close(self) -> None:
        """As of :class:`WatchedSource`."""
        self._reader.close()


NEAR = 1_000
"""Messages between two that are wanted which are rather read, too, than skipped by another request."""


def opened(
    source: str, options: Mapping[str, str], *, speed: float | None = None, follow: bool = False,
    changefeed: Settings = UNKNOWN,
) -> LiveTopic | RecordedTopic | StorageFolder:  # fmt: skip
    """What lies at a source. Raises SourceError: it cannot be watched."""
    if is_kafka(source):
        return LiveTopic(topics_of(source, options_of_source(options)))
    folder = Path(source)
    schemas = (path for pattern in ("**/meta/schema_*.json", "*/*/*/schema.json") for path in folder.glob(pattern))
    if Store.of(source) or (folder / METADATA).is_file() or any(schemas):
        return StorageFolder(source, changefeed)
    return RecordedTopic(source, follow=follow, speed=speed, options=options_of_source(options))


@dataclass
class Decoding:
    """How messages become events: what was detected, and what rows need that other messages bring."""

    told: Detected  # protocol, and whether it has commit_ts
    known: Known  # what decoding needs besides
    by_ddl: bool = False  # whether the DDL give types or their digits
    untyped: bool = False  # whether messages name no types
    # Of the simple protocol: definitions that messages brought, with how many did
    # (:data:`ticdc_lab.codecs.simple_tables.COUNTED_TABLES`).
    tables: dict[tuple[str, str, int, str], int] = field(default_factory=dict)
    # DDL (:data:`ticdc_lab.codecs.log_types.DDL_ROWS`) of debezium, and of protocols that name primary keys
    # alone: they define what the messages omit.
    ddl: list[dict[str, Any]] = field(default_factory=list)
    # Messages whose table no message has defined yet.
    waiting: pa.Table = field(default_factory=MESSAGES_FORM.empty_table)

    @classmethod
    def detected(cls, source: str, sample: pa.Table, known: Known, *, protocol: str = "auto") -> Decoding:
        """From the first messages of a source of some name."""
        told = detect(sample, protocol=protocol, source=source, known=known)
        untyped = told.protocol == "debezium" and not log_types.are_typed(sample, known)
        if told.protocol == "debezium":
            known, _ = log_types.with_binary(sample, known)
        seen = known.settings | shown_by(sample, told, known)
        by_ddl = told.protocol in ("debezium", "debezium-avro")
        return cls(told, replace(known, settings=seen), by_ddl, untyped)

    @classmethod
    def of_folder(cls, folder: StorageFolder, known: Known, *, protocol: str = "auto") -> Decoding | None:
        """From the files of a storage folder; None while it has no data file."""
        if (seen := folder.detected()) is None:
            return None
        if protocol_named(protocol) not in ("auto", seen[0].protocol):
            raise ProtocolError(f"{folder.name}: expected {protocol}, found {seen[0].protocol}.")
        return cls(seen[0], replace(known, settings=known.settings | seen[1]))

    def decoded(self, messages: pa.Table, *, images: bool = False, last: bool = False) -> pa.Table:
        """Events, and messages that could not be decoded (:data:`ticdc_lab.events.schema.DECODED`).

        Messages that wait come as soon as their table is known, or with the ``last``.
        """
        if (self.told.protocol == "simple" and self._learn_tables(messages)) or last:
            messages, self.waiting = pa.concat_tables([self.waiting, messages]), MESSAGES_FORM.empty_table()
        if self.by_ddl:
            self._learn_types(messages)
        found = self._events(messages, images)
        if self.learn_keys(found.filter(pc.fill_null(pc.equal(found["kind"], "ddl"), False))):
            found = self._events(messages, images)
        undefined = pc.fill_null(pc.equal(found["error_class"], "schema-unknown"), False)
        if self.told.protocol != "simple" or last or not pc.any(undefined).as_py() or len(self.waiting) > WAITING:
            return found
        self.waiting = pa.concat_tables([self.waiting, messages_of(messages, found.filter(undefined))])
        return found.filter(pc.invert(undefined))

    def saved(self) -> dict[str, Any]:
        """What other messages and the schema registry brought for decoding, as JSON; :attr:`waiting` beside it."""
        of = self.known
        return {
            "tables": self.tables_as_rows(), "ddl": self.ddl, "by_ddl": self.by_ddl, "untyped": self.untyped,
            "settings": [asdict(s) for s in of.settings.known if s.source == "bytes"],
            "schemas": dict(of.schemas) if of.registry_url else {}, "registry": _name_of(of.registry_url),
        }  # fmt: skip

    @classmethod
    def resumed(cls, told: Detected, known: Known, saved: Mapping[str, Any], waiting: pa.Table | None) -> Decoding:
        """As it was when :meth:`saved` was asked."""
        settings = known.settings | Settings(tuple(Setting(**s) for s in saved["settings"]))
        tables = {(r["schema_name"], r["table_name"], r["version"], r["definition"]): r["n"] for r in saved["tables"]}
        by_ddl = saved.get("by_ddl", saved["untyped"])  # an earlier version learned no digits
        known = replace(with_schemas(known, saved), settings=settings)
        self = cls(told, known, by_ddl, saved["untyped"], tables, saved["ddl"])
        self.waiting = self.waiting if waiting is None else waiting.cast(MESSAGES_FORM)
        if tables:
            self.known = replace(self.known, tables=tables_of(self.tables_as_rows()))
        if self.ddl and self.by_ddl:
            self.known = replace(self.known, types=log_types.types_of(pa.Table.from_pylist(self.ddl)))
        elif self.ddl:
            self.known = replace(self.known, handles=handles_of(self._own_ddl(), protocol=told.protocol))
        return self

    def learn_keys(self, ddl: pa.Table) -> bool:
        """Whether DDL (:data:`ticdc_lab.codecs.log_types.DDL_ROWS` among its columns) define other handle keys."""
        if self.told.protocol not in NAME_A_PRIMARY_KEY or not len(ddl):
            return False
        self.ddl += ddl.select(log_types.DDL_ROWS.names).to_pylist()
        before = self.known.handles
        self.known = replace(self.known, handles=handles_of(self._own_ddl(), protocol=self.told.protocol))
        return self.known.handles != before

    def handles_with(self, ddl: pa.Table) -> Handles:
        """The handle keys that are known with more DDL."""
        self.learn_keys(ddl)
        return self.known.handles

    def _own_ddl(self) -> pa.Table:
        return pa.Table.from_pylist(self.ddl, arrow_schema(log_types.DDL_ROWS))

    def _events(self, messages: pa.Table, images: bool) -> pa.Table:
        decode = decoder(self.told.protocol, images=images, known=self.known)
        few = messages.num_rows < _DECODED // 4 * messages.column(0).num_chunks  # in each of the batches that came
        whole = messages.combine_chunks() if few else messages
        return pa.Table.from_batches(decode(iter(whole.to_batches(max_chunksize=_DECODED))), FORM)

    def _learn_tables(self, messages: pa.Table) -> bool:
        before = len(self.tables)
        for batch in finder(self.known)(iter(messages.combine_chunks().to_batches())):
            for r in batch.to_pylist():
                key = (r["schema_name"], r["table_name"], r["version"], r["definition"])
                self.tables[key] = self.tables.get(key, 0) + r["n"]
        if len(self.tables) > before:
            self.known = replace(self.known, tables=tables_of(self.tables_as_rows()))
        return len(self.tables) > before

    def tables_as_rows(self) -> list[dict[str, Any]]:
        """``tables`` as rows."""
        names = ("schema_name", "table_name", "version", "definition")
        return [dict(zip(names, key, strict=True)) | {"n": n} for key, n in self.tables.items()]

    def _learn_types(self, messages: pa.Table) -> None:
        batches = log_types.finder(self.known, self.told.protocol)(iter(messages.combine_chunks().to_batches()))
        if new := [r for batch in batches for r in batch.to_pylist()]:
            self.ddl += new
            self.known = replace(self.known, types=log_types.types_of(pa.Table.from_pylist(self.ddl)))


def no_data_file(name: str) -> ProtocolError:
    """The error of a storage folder that shows no protocol yet."""
    return ProtocolError(f"{name} has no data file yet.", hint=f"ticdc-lab survey {shlex.quote(name)}")


def with_schemas(known: Known, saved: Mapping[str, Any]) -> Known:
    """With the schemas that the same registry gave before; an earlier version saved none."""
    if not known.registry_url or saved.get("registry") != _name_of(known.registry_url):
        return known
    return replace(known, schemas={**saved["schemas"], **known.schemas})


def _name_of(registry_url: str) -> str:
    """What identifies a registry in a file: its URL may have a password."""
    return sha256(registry_url.encode()).hexdigest()[:16] if registry_url else ""


_DECODED = 10_000
"""Messages that are decoded at once: a decoder keeps as much memory as it has ever needed."""

WAITING = 10_000
"""Messages that wait for the definition of their table, at most; more go to quarantine."""
_PLACE = ["topic", "partition", "offset"]


def messages_of(messages: pa.Table, events: pa.Table) -> pa.Table:
    """The messages that some events came from."""
    places = {tuple(p.values()) for p in events.select(_PLACE).to_pylist()}
    own = [tuple(p.values()) in places for p in messages.select(_PLACE).to_pylist()]
    return messages.filter(pa.array(own, pa.bool_()))
