"""What can be watched: topics of Kafka, and recordings, replayed; and how their messages become events."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from ticdc_lab.events.schema import DECODED, MESSAGES
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.file import options_of_source
from ticdc_lab.settings.keys import protocol_named
from ticdc_lab.sources.capture import read_whole
from ticdc_lab.sources.dump_files import dumps_at
from ticdc_lab.sources.kafka import Topics, topics_of
from ticdc_lab.sources.kafka_reading import Place, Span, TopicReader
from ticdc_lab.sources.load import shown_by
from ticdc_lab.sources.parquet import whole_parquet
from ticdc_lab.sources.places import data_files, is_kafka
from ticdc_lab.sources.storage_layout import METADATA
from ticdc_lab.watch.storage import StorageFolder

FORM, _MESSAGES = arrow_schema(DECODED), arrow_schema(MESSAGES)

Read = tuple[pa.RecordBatch, pa.RecordBatch | None]
"""Messages (:data:`ticdc_lab.events.schema.MESSAGES`), and what is no message in the form of DECODED."""


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

    def ids(self) -> dict[str, str]:
        """As of :class:`WatchedSource`."""
        return self._reader.ids()

    def spans(self) -> dict[Place, Span]:
        """As of :class:`WatchedSource`; asks the broker."""
        spans = self._reader.spans()
        bounds = self._reader.bounds(spans)
        return {at: (bounds[at][0], high) for at, (_, high) in spans.items()}

    def first(self, n: int) -> pa.Table:
        """As of :class:`Messages`."""
        spans, found = self.spans(), [_MESSAGES.empty_table()]
        with TopicReader(self._topics) as reader:
            ends = {at: min(high, low + n) for at, (low, high) in spans.items()}
            for batch in reader.batches({at: low for at, (low, _) in spans.items()}, ends):
                found.append(pa.Table.from_batches([batch]))
                if sum(map(len, found)) >= n or sum(t.nbytes for t in found) >= AT_ONCE:
                    break
        return pa.concat_tables(found).slice(0, n).combine_chunks()

    def batches(self, positions: Mapping[Place, int], *, once: bool) -> Iterator[Read]:
        """As of :class:`WatchedSource`."""
        spans = self._reader.spans()
        self.positions = {at: low for at, (low, _) in self.spans().items()} | dict(positions)
        if gone := sorted(self.positions.keys() - spans.keys()):
            raise SourceError(
                f"{self.name} has no partition {gone[0][1]} of {gone[0][0]} any more: the topic was recreated.",
                hint="Watch it into another folder: --state OTHER",
            )
        ends = {at: max(high, self.positions[at]) for at, (_, high) in spans.items()} if once else None
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

    def messages_at(self, places: Iterable[tuple[str, int, int]]) -> pa.Table:
        """As of :class:`WatchedSource`."""
        found, wanted = [_MESSAGES.empty_table()], set(places)
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
                    found.append(_at(batch, wanted))
        return pa.concat_tables(found)

    def close(self) -> None:
        """As of :class:`WatchedSource`."""
        self._reader.close()


PACE_S = 0.2
"""A replay gives the messages of so long at once."""

_READ_AT_ONCE = 1_000
"""Messages that are read from Parquet at once: each may have many rows."""

NEAR = 1_000
"""Messages between two that are wanted which are rather read, too, than skipped by another request."""


def _at(messages: pa.RecordBatch, wanted: Set[tuple[str, int, int]]) -> pa.Table:
    at = zip(*[messages[c].to_pylist() for c in ("topic", "partition", "offset")], strict=True)
    return pa.Table.from_batches([messages.filter(pa.array([place in wanted for place in at], pa.bool_()))])


def _by_number(file: Path) -> list[tuple[int, str]]:
    return [(int(part), part) if i % 2 else (0, part) for i, part in enumerate(re.split(r"(\d+)", str(file)))]


class RecordedTopic:
    """A recording: capture files or Parquet, whose lines lie in the order of the offsets of each partition.

    ``source``: a file, or a folder of them, read in the order of their names, ``t-2`` before ``t-10``. ``speed``: how
    many times as fast as it was recorded, by the messages' timestamps; None as fast as it can be read. ``now``,
    ``sleep``: a clock, and what waits.
    """

    grows = False

    def __init__(
        self, source: str, *, speed: float | None = None, now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        files = data_files(source)
        named = (".jsonl", ".jsonl.gz", ".json", ".parquet")
        if not files or not all(f.name.endswith(named) for f in files) or dumps_at(source, files, "auto", {}):
            raise SourceError(
                f"{source} is no recording of a topic; expected .jsonl, .jsonl.gz or .parquet that `record` wrote.",
                hint=f"Make one of it: ticdc-lab record {shlex.quote(source)} --out topic.jsonl.gz",
            )
        self._files = sorted(files, key=_by_number)
        self.name, self._speed, self._now, self._sleep = source, speed, now, sleep
        self.positions: dict[Place, int] = {}
        self.lost: dict[Place, int] = {}
        self._refused = Counter[str]()

    def cursor(self) -> dict[str, Any]:
        """As JSON the bytes of its files, and what is no message and was given, by digest: it has no offset."""
        return {"bytes": sum(f.stat().st_size for f in self._files), "refused": dict(self._refused)}

    def resume(self, cursor: Mapping[str, Any]) -> None:
        """Do not give again what :meth:`cursor` names; an earlier version saved none."""
        self._refused = Counter(cursor.get("refused", {}))

    def ids(self) -> dict[str, str]:
        """As of :class:`WatchedSource`: none."""
        return {}

    def spans(self) -> dict[Place, Span]:
        """As of :class:`WatchedSource`: none, until it was read."""
        return {}

    def first(self, n: int) -> pa.Table:
        """As of :class:`WatchedSource`."""
        found = [_MESSAGES.empty_table()]
        for messages, _ in self._read():
            found.append(pa.Table.from_batches([messages.cast(_MESSAGES)]))
            if sum(map(len, found)) >= n or sum(t.nbytes for t in found) >= AT_ONCE:
                break
        return pa.concat_tables(found).slice(0, n).combine_chunks()

    def batches(self, positions: Mapping[Place, int], *, once: bool) -> Iterator[Read]:
        """As of :class:`WatchedSource`; it always ends."""
        self.positions = dict(positions)
        begun: tuple[float, int] | None = None
        before = Counter(self._refused)
        for messages, bad in self._read():
            refused = self._not_before(bad, before)
            parts = [messages] if self._speed is None else self._by_time(messages, self._speed)
            for part in parts:
                new = self._behind(part, positions)
                if self._speed is not None and (stamp := pc.min(new["timestamp"].cast(pa.int64())).as_py()) is not None:
                    begun = begun or (self._now(), stamp)
                    ahead_s = (stamp - begun[1]) / 1e6 / self._speed - (self._now() - begun[0])
                    if ahead_s > 0:
                        self._sleep(ahead_s)
                yield new, refused if part is parts[-1] else None

    @staticmethod
    def _by_time(messages: pa.RecordBatch, speed: float) -> list[pa.RecordBatch]:
        """The messages of each part of a second of the replay, in their order."""
        stamps = np.maximum.accumulate(messages["timestamp"].cast(pa.int64()).fill_null(0).to_numpy())
        ends = np.flatnonzero(np.diff(stamps // max(1, int(PACE_S * 1e6 * speed)))) + 1
        cuts = [0, *ends.tolist(), len(messages)]
        return [messages.slice(low, high - low) for low, high in pairwise(cuts)]

    def _behind(self, messages: pa.RecordBatch, begun: Mapping[Place, int]) -> pa.RecordBatch:
        """What was not read before; moves the positions."""
        topics, partitions, offsets = (messages[c].to_pylist() for c in ("topic", "partition", "offset"))
        new = []
        for at, offset in zip(zip(topics, partitions, strict=True), offsets, strict=True):
            is_new = offset >= begun.get(at, 0)
            if is_new and offset < self.positions.get(at, 0):
                raise SourceError(
                    f"{self.name}: offset {offset} of partition {at[1]} of {at[0]} follows offset "
                    f"{self.positions[at] - 1}; a watch reads each partition in the order of its offsets.",
                    hint=f"An audit takes any order: ticdc-lab audit {shlex.quote(self.name)}",
                )
            if is_new:
                self.positions[at] = offset + 1
            new.append(is_new)
        return messages.filter(pa.array(new, pa.bool_()))

    def _not_before(self, refused: pa.RecordBatch | None, before: Counter[str]) -> pa.RecordBatch | None:
        """What was not refused before; takes what was from ``before``."""
        if refused is None or not refused.num_rows:
            return None
        new = []
        for reason, line in zip(refused["reason"].to_pylist(), refused["value"].to_pylist(), strict=True):
            own = sha256(reason.encode() if line is None else line).hexdigest()[:16]
            new.append(not before[own])
            if before[own]:
                before[own] -= 1
            else:
                self._refused[own] += 1
        return refused.filter(pa.array(new, pa.bool_()))

    def _read(self) -> Iterator[Read]:
        for file in self._files:
            if file.name.endswith(".parquet"):
                # without a buffer, as what was read would stay until the end
                with whole_parquet(file), pq.ParquetFile(file, pre_buffer=False) as pieces:
                    for batch in pieces.iter_batches(_READ_AT_ONCE, use_threads=False):
                        columns = {
                            n: batch[n] if n in batch.schema.names else pa.nulls(len(batch)) for n in _MESSAGES.names
                        }
                        yield pa.record_batch([columns[f.name].cast(f.type) for f in _MESSAGES], schema=_MESSAGES), None
                continue
            with file.open("rb") as lines:
                for messages, refused in read_whole(lines, str(file)):
                    yield messages.cast(_MESSAGES), refused

    def messages_at(self, places: Iterable[tuple[str, int, int]]) -> pa.Table:
        """As of :class:`WatchedSource`: one pass over the files."""
        wanted = set(places)
        found = [_MESSAGES.empty_table()]
        for messages, _ in self._read() if wanted else ():
            found.append(_at(messages, wanted))
        return pa.concat_tables(found)

    def close(self) -> None:
        """As of :class:`WatchedSource`."""


def opened(
    source: str, options: Mapping[str, str], *, speed: float | None = None, changefeed: Settings = UNKNOWN
) -> LiveTopic | RecordedTopic | StorageFolder:  # fmt: skip
    """What lies at a source. Raises SourceError: it cannot be watched."""
    if is_kafka(source):
        return LiveTopic(topics_of(source, options_of_source(options)))
    folder = Path(source)
    schemas = (path for pattern in ("**/meta/schema_*.json", "*/*/*/schema.json") for path in folder.glob(pattern))
    if Store.of(source) or (folder / METADATA).is_file() or any(schemas):
        return StorageFolder(source, changefeed)
    return RecordedTopic(source, speed=speed)


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
    waiting: pa.Table = field(default_factory=_MESSAGES.empty_table)  # messages whose table no message has defined yet

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
            messages, self.waiting = pa.concat_tables([self.waiting, messages]), _MESSAGES.empty_table()
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
        self.waiting = self.waiting if waiting is None else waiting.cast(_MESSAGES)
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
