"""What lies at a path, a topic or a table, and what reading it takes, before anything is read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ticdc_lab.codecs import decoder, detect
from ticdc_lab.codecs.decode import is_empty
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.engine import choose, embedded, engine_of, is_sail, parallelism, speeds
from ticdc_lab.engine.environment import cpus
from ticdc_lab.engine.running import seconds
from ticdc_lab.errors import ContractError, SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.events.tso import clock_words, zone
from ticdc_lab.facts.definitions import NAMELESS, table_text
from ticdc_lab.facts.limits import limits_of
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.settings.file import given_settings, options_of_source, read_file
from ticdc_lab.sources import kafka
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.forms import CONNECT, FORMS
from ticdc_lab.sources.kafka import Topics
from ticdc_lab.sources.kafka_reading import Place, Span, TopicReader, at_ms
from ticdc_lab.sources.learned import known_of, learned
from ticdc_lab.sources.load import SAMPLE, load, shown_by
from ticdc_lab.sources.places import Size, is_kafka
from ticdc_lab.words import count, lane_of

LARGE_S = 60.0
"""What takes longer to read than so many seconds is offered as a sample first."""

LARGE = 3_000_000
"""So many messages are offered as a sample first where no log of that size was read on this machine before."""

HEAD = 1_000
"""Messages of each partition, or each task's share, that are looked at; of many partitions fewer."""

_BYTES = ("bytes", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Found:
    """What a source is."""

    # As of a log (:class:`ticdc_lab.sources.change_log.ChangeLog`)
    source: str
    protocol: str
    has_commit_ts: bool
    settings: Settings
    # What it cannot prove, one sentence each; ``left_out`` are those that hold although all of it was looked at
    limits: tuple[str, ...]
    left_out: tuple[str, ...]
    source_kind: str  # one of :data:`ticdc_lab.sources.KINDS`
    size: Size  # bytes and messages, and how that is known
    seen: int  # messages that were looked at
    # Of the events seen, the tables with most row changes first: there may be others
    partitions: tuple[int, ...]
    tables: tuple[str, ...]
    # Least and greatest commit_ts (TSO) seen; None where the log has none. The log may continue after it.
    first_ts: int | None
    last_ts: int | None
    # Seconds that logs of about this size, protocol and engine took on this machine before; None where none was read
    # (:mod:`ticdc_lab.engine.speeds`)
    load_s: float | None
    # Row changes of each of ``tables`` among the messages that were looked at; its schema and name
    rows_seen: tuple[int, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    undecoded: int = 0  # messages that were looked at and could not be decoded; they are not in ``seen``
    parts: int = 0  # row changes that could not be decoded of messages whose others could; these are in ``seen``
    strangers: tuple[str, ...] = ()  # that files here begin with messages of another protocol, one sentence
    most_of_task: int = HEAD  # messages that a task looked at; fewer than :data:`HEAD` are all that it has
    several: int = 0  # protocols that its files begin with messages of, where they are of more than one
    overview: Overview | None = None  # what a broker has of a topic; None of other sources, and on Spark
    log: ChangeLog | None = None  # the log, not read yet; None where no engine was given

    @property
    def is_whole(self) -> bool:
        """Whether all of it was looked at: as many as there are, or no part had more than is read of each."""
        looked_at, n = self.seen + self.undecoded, self.size.messages
        all_counted = n is not None and self.size.is_exact and looked_at >= n
        return all_counted or (self.source_kind != "kafka" and looked_at > 0 and self.most_of_task < HEAD)

    @property
    def is_large(self) -> bool:
        """Whether a sample should be looked at first: it takes more than :data:`LARGE_S`, or has :data:`LARGE`."""
        if self.load_s is not None:
            return self.load_s > LARGE_S
        return self.size.messages is None or self.size.messages > LARGE

    @property
    def words(self) -> str:
        """What was found, in two sentences."""
        n, b, how = self.size.messages, self.size.bytes, self.size.how
        about = "" if self.size.is_exact or self.is_whole else "about "
        if self.is_whole and not self.size.is_exact:
            n, how = self.seen + self.undecoded, "all read"
        elif n is not None and not self.size.is_exact and n < self.seen + self.undecoded:
            about, n, how = "at least ", self.seen + self.undecoded, "read"  # more than a guess by the size
        size = [f"{about}{_messages(n)} ({how})" if n is not None else f"messages: {how}"]
        size += [_bytes(b)] if b is not None else []
        if self.overview is not None and self.overview.bytes is not None:
            size += [f"about {_bytes(self.overview.bytes)}"]
        lane = lane_of(self.source_kind == "storage")
        tables = f"{_some('table', self.tables)} and {_some(lane, tuple(map(str, self.partitions)))}"
        span = "" if self.first_ts is None else f", from {_at(self.first_ts)}"
        protocol = self.protocol if not self.several else f"{count(self.several, 'protocol')}, read as {self.protocol}"
        return f"{_KINDS[self.source_kind]} in {protocol}: {', '.join(size)}. Seen so far: {tables}{span}."

    @property
    def unknown(self) -> tuple[str, ...]:
        """What a preview cannot determine, one sentence each."""
        said = []
        if not self.is_whole:
            n = self.seen + self.undecoded
            said += [f"Only the first {n:,} messages were read: later ones may have other tables and a later time."]
        if self.undecoded or self.parts:
            parts = [_messages(self.undecoded)] * bool(self.undecoded)
            parts += [f"{self.parts:,} row change{'s' * (self.parts != 1)}"] * bool(self.parts)
            said += [
                f"{' and '.join(parts)} could not be decoded, of {_messages(self.seen + self.undecoded)} looked at; "
                "the reasons: ticdc-lab events "
                f"{shlex.quote(shown_source(self.source))} --out events.jsonl --quarantine bad.jsonl"
            ]
        return (*self.strangers, *said, *dict.fromkeys((*self.left_out, *self.limits)))

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do next, one sentence each."""
        if self.strangers or self.several:
            return ("Put the files of each kind into a folder of their own, and look at each folder again.",)
        how_long = (
            "Nothing like it was read on this machine yet, so how long reading it takes is not known"
            if self.load_s is None
            else f"Reading it takes about {seconds(self.load_s)}, as such logs did here before"
        )
        if not self.is_large:
            return (f"Read all of it. {how_long}.",)
        by_time = " or a window of time" if self.first_ts is not None else ""
        first = f"{how_long}. Look at a sample first: some tables{by_time}."
        kept = "A sample is decoded as a whole but kept in part: every answer after that is quicker."
        topic = (
            "Of a topic the broker can leave out what came before (option startingTimestamp, milliseconds); what was "
            "left out so is not known to the answers."
        )
        return (first, kept, *((topic,) if self.source_kind == "kafka" else ()))

    @property
    def flags(self) -> str:
        """How the command line takes such a sample."""
        by_time = f" --from '{_at(self.first_ts)}' --to .." if self.first_ts is not None else ""
        return f"--tables {next((t for t in self.tables if t != NAMELESS), 'SCHEMA.TABLE')}{by_time}"

    def part(self, sample: Sample | None) -> ChangeLog:
        """The log, or a sample of it; not of a look without an engine."""
        if self.log is None:
            raise ContractError("This topic was looked at without an engine; expected a session to read it with.")
        return self.log.sampled(sample or Sample())

    def facts(self) -> dict[str, object]:
        """The same for a program."""
        return {
            "source": self.source, "source_kind": self.source_kind, "protocol": self.protocol,
            "has_commit_ts": self.has_commit_ts, "bytes": self.size.bytes, "messages": self.size.messages,
            "messages_exact": self.size.is_exact, "seen": self.seen, "undecoded": self.undecoded, "parts": self.parts,
            "tables": self.tables, "partitions": self.partitions, "first_ts": self.first_ts, "last_ts": self.last_ts,
            "load_ms": None if self.load_s is None else round(1000 * self.load_s), "unknown": self.unknown,
        } | ({} if self.overview is None else {"topic": self.overview.facts()})  # fmt: skip


def needs_no_engine(source: str, source_kind: str, engine: str) -> bool:
    """Whether :func:`survey` answers without a session: of topics, unless Spark is to read them."""
    return is_topic(source, source_kind) and choose(source, engine=engine).engine == "embedded"


def is_topic(source: str, source_kind: str) -> bool:
    """Whether a source is topics of Kafka."""
    return source_kind == "kafka" or (source_kind == "auto" and is_kafka(source))


def survey(
    spark: SparkSession | None,
    source: str,
    *,
    protocol: str = "auto",
    source_kind: str = "auto",
    schema_registry: str | None = None,
    claim_check: str | None = None,
    options: Mapping[str, str] | None = None,
    changefeed: Settings | str | Path = UNKNOWN,
) -> Found:
    """Find out what a source is and what reading it takes; it reads the first messages of each part.

    Parameters
    ----------
    spark
        The caller's session; a topic is looked at without one, too (:func:`needs_no_engine`).
    source, protocol, source_kind, schema_registry, claim_check, options, changefeed
        As for :func:`ticdc_lab.sources.load.load`.

    Returns
    -------
    Found
        What it is, what a preview cannot determine, and what to do next.

    Raises
    ------
    SourceError, ProtocolError, SetupError
        As :func:`ticdc_lab.sources.load.load`.
    """
    if not source.strip():
        raise SourceError("No source is named.", hint="Give a path, kafka://HOST:PORT/TOPIC, or the name of a table.")
    how: dict[str, Any] = {
        "protocol": protocol, "schema_registry": schema_registry, "claim_check": claim_check, "options": options,
        "changefeed": changefeed,
    }  # fmt: skip
    if is_topic(source, source_kind) and (spark is None or is_sail(spark)):
        found = _of_topic(source, **how)
        return found if spark is None else replace(found, log=load(spark, source, source_kind=source_kind, **how))
    assert spark is not None
    log = load(spark, source, source_kind=source_kind, **how)
    with log.reading():
        counting = partial(_counted, by_events=log.of_storage)
        size, held = log.size(), log.heads(HEAD, counting, arrow_schema(_COUNTED))
    step = speeds.decoding_step(engine_of(spark), parallelism(spark), log.protocol, log.source_kind)
    return Found(
        log.source, log.protocol, log.has_commit_ts, log.settings, log.limits, log.left_out, log.source_kind, size,
        **_of_counts(held), load_s=_load_s(step, size), most_of_task=pc.max(held["of_task"]).as_py() or 0,
        strangers=log.strangers_at_heads(),
        several=len(log.protocols), log=log,
    )  # fmt: skip


def _of_topic(
    source: str,
    *,
    protocol: str,
    schema_registry: str | None,
    claim_check: str | None,
    options: Mapping[str, str] | None,
    changefeed: Settings | str | Path,
) -> Found:
    """As :func:`survey`, from the first messages alone: reading all of a topic takes an unknown time."""
    given = changefeed if isinstance(changefeed, Settings) else read_file(changefeed).settings
    given |= given_settings(options or {})
    known = replace(known_of(schema_registry, claim_check), settings=given)
    overview, heads = heads_of(kafka.topics_of(source, options_of_source(options or {})))
    batches = heads.combine_chunks().to_batches()
    full = [batch.filter(pc.invert(is_empty(batch))) for batch in batches]
    sample = (pa.Table.from_batches(full, heads.schema) if any(b.num_rows for b in full) else heads).slice(0, SAMPLE)
    told = detect(sample, protocol=protocol, source=source, known=known)

    def gathered(find: Callable[[Batches], Batches], form: StructType) -> pa.Table:
        rows = [row for found in find(iter(batches)) for row in found.to_pylist()]
        return pa.Table.from_pylist(rows, arrow_schema(form))

    known, guesses = learned(gathered, sample, told.protocol, known)
    seen = given | shown_by(sample.combine_chunks(), told, known)
    limits = (
        *(c.words for c in seen.contradictions), *seen.not_evaluated, *guesses,
        *limits_of(told.protocol, None, has_commit_ts=told.has_commit_ts),
    )  # fmt: skip
    n = sum(max(0, end - first) for first, end in overview.spans.values())
    size = Size(None, n, "by the broker's offsets", True)
    if overview.is_whole:  # offsets of a transaction's end have no message
        size = Size(None, heads.num_rows, "all read", True)
    events = decoder(told.protocol, images=False, known=known)(iter(batches))
    held = pa.Table.from_batches(_counted(events), arrow_schema(_COUNTED))
    step = speeds.decoding_step(embedded.name(), cpus(), told.protocol, "kafka")
    return Found(
        source, told.protocol, told.has_commit_ts, seen, limits, overview.left_out, "kafka", size,
        **_of_counts(held), load_s=_load_s(step, size), overview=overview,
    )  # fmt: skip


_BY = ("schema_name", "table_name", "partition")
_COUNTED = StructType(
    [StructField("schema_name", StringType()), StructField("table_name", StringType())]
    + [StructField("partition", IntegerType())]
    + [
        StructField(name, LongType())
        for name in ("rows", "messages", "undecoded", "parts", "first_ts", "last_ts", "of_task")
    ]
)
"""What there is of each table and partition among some events; ``of_task`` are all messages that the task looked at."""


def _counted(events: Batches, *, by_events: bool = False) -> Batches:
    """Events to one batch of :data:`_COUNTED`; a task looks at so many messages, or ``by_events`` at so many events."""
    summed = [(name, "sum") for name in ("rows", "messages", "undecoded", "parts")]
    merged = [*summed, ("first_ts", "min"), ("last_ts", "max"), ("of_task", "max")]
    parts, n_events = [], 0
    for batch in events:
        n_events += batch.num_rows
        is_row, is_ddl = (pc.fill_null(pc.equal(batch["kind"], kind), False) for kind in ("row", "ddl"))
        bad, part = pc.is_valid(batch["error_class"]), pc.fill_null(pc.greater(batch["seq"], 0), False)
        ts = pc.if_else(pc.or_(is_row, is_ddl), batch["commit_ts"], None)
        flags = (is_row, pc.invert(pc.or_(bad, part)), pc.and_not(bad, part), pc.and_(bad, part))
        n = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
        columns = [*(batch[name] for name in _BY), *(flag.cast(pa.int64()) for flag in flags), ts, ts, n]
        parts.append(pa.table(columns, schema=arrow_schema(_COUNTED)).group_by(list(_BY)).aggregate(merged))
    if parts:
        held = pa.concat_tables(parts).rename_columns(_COUNTED.names).group_by(list(_BY)).aggregate(merged)
        held = held.rename_columns(_COUNTED.names).cast(arrow_schema(_COUNTED))
        n = pc.add(pc.sum(held["messages"]), pc.sum(held["undecoded"]))
        n = pa.scalar(n_events) if by_events else n
        held = held.drop_columns("of_task").append_column("of_task", pa.repeat(n, held.num_rows))
        yield from held.combine_chunks().to_batches()


def _of_counts(held: pa.Table) -> dict[str, Any]:
    """What :class:`Found` has of events, from :data:`_COUNTED` of all tasks."""
    rows = _rows_by_table(held)
    return {
        "seen": pc.sum(held["messages"]).as_py() or 0, "undecoded": pc.sum(held["undecoded"]).as_py() or 0,
        "parts": pc.sum(held["parts"]).as_py() or 0,
        "partitions": tuple(pc.unique(held["partition"].drop_null()).sort().to_pylist()),
        "tables": tuple(starmap(table_text, rows)), "rows_seen": tuple(rows.values()), "names": tuple(rows),
        "first_ts": pc.min(held["first_ts"]).as_py(), "last_ts": pc.max(held["last_ts"]).as_py(),
    }  # fmt: skip


def _load_s(step: str, size: Size) -> float | None:
    return None if size.messages is None else speeds.expected_s(step, size.messages)


def _rows_by_table(held: pa.Table) -> dict[tuple[str, str], int]:
    rows = held.filter(pc.greater(held["rows"], 0)).group_by(["schema_name", "table_name"]).aggregate([("rows", "sum")])
    named = [((r["schema_name"] or "", r["table_name"] or ""), r["rows_sum"]) for r in rows.to_pylist()]
    return dict(sorted(named, key=lambda n: (-n[1], n[0])))


_KINDS = {
    "capture": "Capture files", "parquet": "Parquet files", "delta": "A Delta table", "table": "A table",
    "storage": "A storage sink's folder", "kafka": "A Kafka topic", CONNECT: "A folder of Kafka Connect", **FORMS,
}  # fmt: skip


def _messages(n: int) -> str:
    return f"{n:,} message{'' if n == 1 else 's'}"


def _some(what: str, names: tuple[str, ...], most: int = 6) -> str:
    if not names:
        return f"no {what}"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'} ({', '.join(names[:most])}{more})"


def _bytes(n: float) -> str:
    i = 0
    while n >= 1000 and i < len(_BYTES) - 1:
        n, i = n / 1000, i + 1
    return f"{n:.0f} {_BYTES[i]}" if i == 0 or n >= 100 else f"{n:.1f} {_BYTES[i]}"


def _at(ts: int | None) -> str:
    return "" if ts is None else f"{clock_words(ts)[:19]} {zone()}"


SHOWN = 3
"""First messages that are shown, each of another partition where there are some."""

_MOST, _AT_LEAST, _MOST_BYTES = 8_000, 20, 64 << 20
_TIMED, _TEXT, _NAMED = 64, 160, 8


@dataclass(frozen=True, slots=True)
class Overview:
    """What there is of some topics."""

    spans: Mapping[Place, Span]  # first and end offset of each partition that is to be read
    bytes: int | None  # of all keys and values, about: as the first messages have them; None of no message
    # ``first_ms``, ``last_ms``: least timestamp of the first messages, and the greatest of all; None where the broker
    # does not report.
    first_ms: int | None
    last_ms: int | None
    # The first of some partitions: topic, partition, offset, time, key and value as text, cut to 160 characters.
    messages: tuple[dict[str, Any], ...]
    is_whole: bool = False  # whether all that is to be read was looked at
    left_out: tuple[str, ...] = ()  # what the broker keeps back, a sentence each

    @property
    def sentences(self) -> tuple[str, ...]:
        """In words, a sentence for each topic and one for the times."""
        said = []
        for name in sorted({topic for topic, _ in self.spans}):
            own = {partition: span for (topic, partition), span in sorted(self.spans.items()) if topic == name}
            filled = [f"{p}: {low:,}..{high - 1:,}" for p, (low, high) in own.items() if low < high]
            more = f" and {len(filled) - _NAMED} more" if len(filled) > _NAMED else ""
            empty = f"; {len(own) - len(filled)} empty" if len(filled) < len(own) else ""
            n = f"{len(own)} partition{'' if len(own) == 1 else 's'}"
            said.append(f"Topic {name}: {n}, offsets {', '.join(filled[:_NAMED]) or 'none'}{more}{empty}.")
        if self.first_ms is not None:
            until = "" if self.last_ms is None else f" to {at_ms(self.last_ms)}"
            said.append(f"Kafka's timestamps go from {at_ms(self.first_ms)}{until}.")
        return tuple(said)

    def facts(self) -> dict[str, object]:
        """The same for a program."""
        names = ("topic", "partition", "first_offset", "end_offset")
        return {
            "offsets": [dict(zip(names, (*at, *span), strict=True)) for at, span in sorted(self.spans.items())],
            "bytes_about": self.bytes, "first_ms": self.first_ms, "last_ms": self.last_ms,
            "first_messages": list(self.messages),
        }  # fmt: skip


def heads_of(topics: Topics) -> tuple[Overview, pa.Table]:
    """What a broker has of topics, and their first messages, 64 MB of them at most, in the order of offsets.

    Raises SourceError: the broker does not answer, refuses, or has no such topic; within ten seconds.
    """
    with TopicReader(topics) as reader:
        there, left_out = reader.spans(), reader.open_words
        spans = reader.bounds(there)
        starts = {at: max(first, there[at][0]) for at, (first, end) in sorted(spans.items())}
        filled = [at for at, first in starts.items() if first < spans[at][1]]
        each = min(HEAD, max(_AT_LEAST, _MOST // max(1, len(filled))))
        newest = [ms for ms in reader.newest_ms(filled[:_TIMED]).values() if ms is not None]
        read, size = list[pa.RecordBatch](), 0
        ends = {at: min(end, starts[at] + each) for at, (_, end) in spans.items()}
        for batch in reader.batches(starts, ends):
            read.append(batch)
            if (size := size + batch.nbytes) >= _MOST_BYTES:
                break
    is_whole = size < _MOST_BYTES and all(ends[at] >= end for at, (_, end) in spans.items())
    order = [(name, "ascending") for name in ("offset", "topic", "partition")]
    found = pa.Table.from_batches(read, arrow_schema(MESSAGES)).sort_by(order)
    return replace(_overview(spans, found, newest), is_whole=is_whole, left_out=left_out), found


def _overview(spans: Mapping[Place, Span], found: pa.Table, newest: Sequence[int]) -> Overview:
    if not found.num_rows:
        return Overview(spans, None, None, None, ())
    sizes = [pc.sum(pc.fill_null(pc.binary_length(found[name]), 0)).as_py() for name in ("key", "value")]
    n_messages = sum(max(0, end - first) for first, end in spans.values())
    oldest = pc.min(found["timestamp"]).as_py()
    return Overview(
        spans,
        round(sum(sizes) / found.num_rows * n_messages),
        None if oldest is None else round(oldest.timestamp() * 1000),
        max(newest, default=None),
        tuple(_shown(row) for row in _firsts(found)),
    )


def _firsts(found: pa.Table) -> list[dict[str, Any]]:
    rows = found.to_pylist()
    first_of_each = {(row["topic"], row["partition"]): row for row in reversed(rows)}
    chosen = [first_of_each[at] for at in sorted(first_of_each)][:SHOWN]
    chosen += [row for row in rows if row not in chosen][: SHOWN - len(chosen)]
    return chosen


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    stamp = row["timestamp"]
    time = "" if stamp is None else at_ms(round(stamp.timestamp() * 1000))
    texts = {name: _text(row[name]) for name in ("key", "value")}
    return {"topic": row["topic"], "partition": row["partition"], "offset": row["offset"], "time": time} | texts


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[: 4 * _TEXT].decode("utf-8", errors="backslashreplace")
    plain = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return plain if len(plain) <= _TEXT else plain[:_TEXT] + ".."
