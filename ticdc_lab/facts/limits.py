"""What a log cannot prove, in sentences."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, filterfalse, islice
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.shuffle import by_key
from ticdc_lab.events import PARTITION, POSITION, is_first, is_in_file
from ticdc_lab.events.arrays import Batches, Ints, codes, partitions_in, runs
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import BEFORE_UNNAMED, require_batch, require_columns
from ticdc_lab.facts.gathering import IN_CHUNK
from ticdc_lab.facts.known import CountedOffsets, Home, LogFacts, LostFiles, LostSchema
from ticdc_lab.facts.schemas import GAPS
from ticdc_lab.words import are, some_of
from ticdc_lab.words import count as count_of

_LOST = "{messages} could not be read (see the quarantine), so {its} data is missing from every answer."
ENDS = "empty-file", "damaged-gzip", "zeroed-end", "bad-dump-record:damaged-gzip", "bad-dump-record:zeroed-end"
"""Classes of quarantined messages that replace the damaged end of a file, or all of it."""
_OF_END = "A file that is empty, damaged at its end or zero there counts as one message, however much is missing."
_HOLD_NOTHING = "{messages} of this log {are} empty, without key and value: they contain no data, so none is missing."
_PARTS = (
    "{changes} could not be read, because a value is `{{}}` (see the quarantine). The other row changes of these "
    "messages count."
)
_UNDATED = (
    "{changes} of this log {carry} no commit_ts, although others do: {they} {count} as {rows}, but not in "
    "transactions, watermarks and checks of order."
)
_LACKS = (
    "Partition {partition} of {topic} is missing {n_missing} of the offsets {of}, in {gaps} ({which}), so their data "
    "is missing from every answer. Compaction, retention, an aborted Kafka transaction or an incomplete recording "
    "explain such a gap."
)
_SPARSE = (
    "Partition {partition} of {topic} is missing {n_missing} of the offsets between its first and its last, and hardly "
    "any two messages have adjacent offsets: the topic is compacted, or its offsets do not count messages. They are "
    "not counted as missing."
)
_TWICE = (
    "Partition {partition} of {topic} contains {messages} twice, at {offsets}. A broker assigns an offset once, so "
    "the recording repeats messages, for example because two overlapping recordings were merged. {here}."
)
_DIFFER = (
    "Partition {partition} of {topic} contains different messages at {differ} of its offsets, the first {first_other}. "
    "A broker assigns an offset once, so this is not a recording of one topic. Each message counts."
)
_LATE = (
    "The recording does not begin at offset 0 in {places}. Earlier messages are missing from every answer, and no "
    "commit_ts marks where they end."
)
_EXPIRED = (
    "The first files of {places} are missing, so their data is missing from every answer, and no commit_ts marks where "
    "it ends."
)
_ABSENT = (
    "The recording contains no message of {places}, although watermarks go to every partition: {they} not recorded. "
    "Data sent there is missing from every answer."
)
_EMPTY = (
    "The recording contains no message of {places}: nothing was sent there, or {they} not recorded. The log cannot "
    "show which."
)
_WITHOUT_DDL = " {protocol} sends its DDL to partition 0 alone, so none of them is known."
_FILES = (
    "{files} {are} missing in {folders}, as the numbers of the others or its index file show, so {their} data is "
    "missing from every answer. Where: ticdc-lab fsck {source}"
)
_UNREAD = (
    "{files} {are} not read in full: {which}. What could not be read is in the quarantine, so {their} data may be "
    "missing from every answer. Where: ticdc-lab fsck {source}"
)
_SCHEMAS = (
    "{several} missing: {named}{more}. Data files of that table version are there, so nothing is judged by the "
    "table's definition from that version on, and CSV of it cannot be read."
)
_PLACES_SAID = 5

DDL_IN_PARTITION_0_ONLY = frozenset({"canal-json", "canal", "csv"})
"""Protocols that send a DDL to partition 0 by design (TiCDC's source); a storage folder's schema files too
(:mod:`ticdc_lab.sources.storage`)."""

_ASKED, _BETWEEN = "that were to be read", "between its first and its last"
_GAPS_SAID = 5

_INCOMPLETE = (
    "{changes} of this log {are} incomplete (the column `incomplete` has the reason): columns, the image before, the "
    "commit_ts or the kind of change may be missing from {them}, so values and duplicates among {them} prove less."
)
_UNNAMED = (
    "{changes} of this log {are} short of old values: with `only-output-updated-columns`, TiCDC's open-protocol "
    "encoder omits the name of a column that becomes NULL. The new image is complete, but the chain of row images is "
    "not judged for {them}."
)
_UNMARKED = (
    "This {protocol} log contains no watermark: TiCDC writes them in {protocol} only with `avro-enable-watermark`. So "
    "it cannot prove how far it is complete or which transactions are whole."
)

_EXTENDED = ("canal-json", "avro")
EXTEND = "with `enable-tidb-extension=true` in its sink-uri, or with a protocol that has commit_ts"
RECORD_AGAIN = {"csv": "with `include-commit-ts = true` in [sink.csv]"}
"""How a changefeed is created whose log has a commit_ts: by protocol, else :data:`EXTEND`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a load read: messages = decoded + quarantined, checked batch by batch while decoding."""

    messages: int
    decoded: int
    quarantined: int
    events: int
    undated: int = 0
    """Row changes without a commit_ts."""
    incomplete: int = 0
    """Row changes that are not whole."""
    unnamed: int = 0
    """Of these the ones that are only short of old values (:data:`ticdc_lab.events.schema.BEFORE_UNNAMED`)."""
    watermarks: int = 0
    """Watermark events."""
    kept: int = 0
    """Row changes that are in the sample: all, where there is none."""
    lacking: int = 0
    """Missing offsets."""
    files: int = 0
    """Missing data files of a storage sink (:func:`ticdc_lab.sources.storage.missing_files`)."""
    late: int = 0
    """Partitions that do not begin at their first message (:func:`begun_late`)."""
    absent: int = 0
    """Partitions without a message, though some was sent (:func:`absent`)."""
    empty: int = 0
    """Of ``quarantined`` those that hold nothing."""
    damaged: int = 0
    """Of ``quarantined`` those that are damaged ends of files (:data:`ENDS`)."""
    parts: int = 0
    """Row changes that could not be decoded of messages whose others could."""
    foreign: int = 0
    """Of ``quarantined`` those that hold something and are of a topic which is no part of the log."""

    @property
    def unread(self) -> int:
        """Messages of the log with content that was not read."""
        return self.quarantined - self.empty - self.foreign


def counts_of(decoded: DataFrame, sample: Sample | None = None) -> Counts:
    """Count what is in a frame (:data:`ticdc_lab.events.schema.DECODED`): one row comes here."""
    ok, kind = F.col("error_class").isNull(), F.col("kind")
    counted = {
        "decoded": ok & (F.col("seq") == 0),
        "quarantined": ~ok & (F.coalesce("seq", F.lit(0)) == 0),
        "empty": ~ok & (F.col("error_class") == "empty-message"),
        "damaged": ~ok & F.col("error_class").isin(*ENDS),
        "parts": ~ok & (F.col("seq") > 0),
        "events": ok,
        "undated": ok & (kind == "row") & F.col("commit_ts").isNull(),
        "incomplete": ok & F.col("incomplete").isNotNull(),
        "unnamed": ok & (F.col("incomplete") == BEFORE_UNNAMED),
        "watermarks": ok & (kind == "watermark"),
        "kept": ok & (kind == "row") & (sample or Sample()).keeps(),
    }
    [n] = decoded.agg(*[F.count_if(which).alias(name) for name, which in counted.items()]).toArrow().to_pylist()
    return Counts(messages=n["decoded"] + n["quarantined"], **n)


_NO_TYPES = (
    "maxwell names no column types: bytes are base64 text, ENUM, SET and BIT are numbers, and a FLOAT that TiCDC "
    "up to v6.5.1, or v6.6, wrote may have the digits of a DOUBLE (61.20000076293945 for 61.2)."
)


def limits_of(
    protocol: str, counts: Counts | None, *, has_commit_ts: bool, gaps: Sequence[str] = (), sample: Sequence[str] = ()
) -> tuple[str, ...]:
    """List what a log with these facts cannot prove, one sentence each."""
    n = counts
    unread = n.unread if n is not None else 0
    lost = [_LOST.format(messages=_messages(unread), its="its" if unread == 1 else "their")] if unread else []
    lost += [_OF_END] if n is not None and n.damaged else []
    if n is not None and n.empty:
        lost.append(_HOLD_NOTHING.format(messages=_messages(n.empty), are=are(n.empty)))
    if n is not None and n.parts:
        lost.append(_PARTS.format(changes=f"{n.parts} row change{'s' * (n.parts != 1)}"))
    undated = (_of_changes(_UNDATED, n.undated),) if n is not None and n.undated else ()
    partial: tuple[str, ...] = ()
    if n is not None and n.incomplete > n.unnamed:
        partial = (_of_changes(_INCOMPLETE, n.incomplete - n.unnamed),)
    if n is not None and n.unnamed:
        partial += (_of_changes(_UNNAMED, n.unnamed),)
    if has_commit_ts:
        mute = n is not None and protocol in ("avro", "debezium-avro") and not n.watermarks
        unmarked = (_UNMARKED.format(protocol=protocol),) if mute else ()
        return (*sample, *gaps, *lost, *undated, *partial, *unmarked)
    which = f"{protocol} without enable-tidb-extension" if protocol in _EXTENDED else protocol
    lacks = "no commit_ts" if protocol == "csv" else "no commit_ts and no watermark"
    return (
        *sample,
        *gaps,
        *lost,
        *partial,
        f"{which} carries {lacks}, so the log cannot prove how far it is complete, which transactions are whole, or "
        "that rows are in commit order.",
        *((_NO_TYPES,) if protocol == "maxwell" else ()),
    )


def _of_changes(sentence: str, n: int) -> str:
    words = {"carry": "carries", "are": "is", "they": "it", "count": "counts", "rows": "a row", "them": "it"}
    return sentence.format(changes=f"{n} row change{'s' * (n != 1)}", **(words if n == 1 else {w: w for w in words}))


def but_for(counts: Counts | None) -> str:
    """What a sentence must add that calls something complete where a part of the log is known not to be there."""
    return f" except for {missing}" if (missing := missing_data(counts)) else ""


def not_known(counts: Counts | None) -> str:
    """The same for a sentence that calls nothing broken."""
    return f" ({missing} is unknown)" if (missing := missing_data(counts)) else ""


def if_alone(lost: Collection[str]) -> str:
    """What a sentence must add that relies on watermarks where the source does not name partitions."""
    return ", if all its messages are of one partition" if "partition" in lost else ""


def missing_data(counts: Counts | None) -> str:
    """What is known to be missing; empty if nothing is."""
    if counts is None:
        return ""
    of = {
        "unread message": counts.unread,
        "unread row change": counts.parts,
        "missing offset": counts.lacking,
        "missing file": counts.files,
        "absent partition": counts.absent,
    }
    parts = [f"{n} {what}{'s' if n > 1 else ''}" for what, n in of.items() if n]
    said = [f"data in {' and '.join(parts)}"] if parts else []
    said += ["data before its first offsets"] if counts.late else []
    return " and ".join(said)


@dataclass(frozen=True, slots=True)
class Lacking:
    """How many offsets or partitions are missing in a log, and the sentences for them."""

    n: int = 0
    sentences: tuple[str, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)  # ``n`` of each topic


def begun_late(firsts: Mapping[Home, int]) -> Lacking:
    """Partitions whose first message is not there: rows are sent before the watermark that they wait for.

    Parameters
    ----------
    firsts
        The first offset of each.
    """
    homes = sorted(firsts, key=lambda home: (home[0] or "", home[1]))
    late = {home: firsts[home] for home in homes if not is_first(firsts[home])}
    of_files = [f"{topic} {partition}" for (topic, partition), offset in late.items() if is_in_file(offset)]
    begun = [f"{t} {p} (from {offset} on)" for (t, p), offset in late.items() if not is_in_file(offset)]
    said = [sentence.format(places=_partitions(p)) for sentence, p in ((_LATE, begun), (_EXPIRED, of_files)) if p]
    return Lacking(len(late), tuple(said), Counter(topic for topic, _ in late))


def without_files(
    missing: Collection[LostFiles], schemas: Sequence[LostSchema], source: str
) -> tuple[str, ...]:  # fmt: skip
    """The sentences for files that are missing in folders of a storage sink, and for data files with damage."""
    unread = [of.path for of in missing if of.is_there]
    missing = [of for of in missing if not of.is_there]
    n, within = sum(of.n for of in missing), sorted({of.path.rpartition("/")[0] for of in missing})
    said = []
    if unread:
        words = {"are": "was", "their": "its"} if len(unread) == 1 else {"are": "were", "their": "their"}
        files = count_of(len(unread), "data file")
        said.append(_UNREAD.format(files=files, which=some_of(unread, most=3), source=shlex.quote(source), **words))
    if n:
        folders = within[0] if len(within) == 1 else f"{len(within):,} folders, the first {within[0]}"
        files = count_of(n, "data file")
        words = {"are": "is", "their": "its"} if n == 1 else {"are": "are", "their": "their"}
        said.append(_FILES.format(files=files, folders=folders, source=shlex.quote(source), **words))
    if schemas:
        more = len(schemas) - 1
        several = f"{len(schemas):,} schema files are" if more else "A schema file is"
        said.append(_SCHEMAS.format(several=several, named=schemas[0].path, more=f" and {more:,} more" if more else ""))
    return tuple(said)


def absent(homes: Collection[Home], *, protocol: str, marked: bool) -> Lacking:
    """Partitions below the greatest of their topic without any event.

    Parameters
    ----------
    homes
        Topic and partition of each that is.
    protocol
        Of the log.
    marked
        Whether it has watermarks: they go to every partition, so one without any was not recorded; else it may just be
        empty, and counts as nothing.
    """
    found = absent_partitions(homes)
    n = sum(many for many, _ in found.values())
    if not n:
        return Lacking()
    places = _partitions([f"{topic} {partition}" for topic, (_, some) in found.items() for partition in some], of=n)
    said = (_ABSENT if marked else _EMPTY).format(places=places, they="it was" if n == 1 else "they were")
    silent = protocol in DDL_IN_PARTITION_0_ONLY and any(some[0] == 0 for _, some in found.values())
    topics = {topic: many * marked for topic, (many, _) in found.items()}
    return Lacking(n * marked, (said + (_WITHOUT_DDL.format(protocol=protocol) if silent else ""),), topics)


def absent_partitions(homes: Collection[Home]) -> dict[str, tuple[int, list[int]]]:
    """How many partitions below its greatest each topic misses, and the first of them; only topics that miss some."""
    topics: dict[str, set[int]] = {}
    for topic, partition in homes:
        if partition is not None and partition >= 0:
            topics.setdefault(topic, set()).add(partition)
    n = {topic: max(own) + 1 - len(own) for topic, own in sorted(topics.items(), key=lambda of: of[0] or "")}
    # a number may be any: only the first missing ones are made
    lacked = {topic: filterfalse(own.__contains__, count()) for topic, own in topics.items()}
    return {t: (many, [*islice(lacked[t], min(many, _PLACES_SAID))]) for t, many in n.items() if many}


def _partitions(places: Sequence[str], *, of: int | None = None) -> str:
    """The first of some partitions, and how many more there are."""
    said = list(places[:_PLACES_SAID])
    more = (len(places) if of is None else of) - len(said)
    said += [f"{more} more"] if more else []
    return f"the partitions {', '.join(said[:-1])} and {said[-1]}" if len(said) > 1 else f"partition {said[0]}"


def _messages(n: int) -> str:
    return f"{n} message{'s' * (n != 1)}"


def lacking(decoded: DataFrame, expected: DataFrame) -> Lacking:
    """What is missing of the offsets that were to be read; at most as many rows as it has partitions come here."""
    each = F.concat_ws("..", "first_missing", F.when(F.col("n_missing") > 1, F.col("last_missing")))
    first = F.sort_array(F.collect_list(F.struct("first_missing", each.alias("which"))))
    found = (
        offset_gaps(decoded, expected=expected)
        .groupBy("topic", "partition")
        .agg(F.sum("n_missing").alias("n_missing"), F.count(F.lit(1)).alias("gaps"), first.alias("first"))
        .withColumn("which", F.concat_ws(", ", F.transform(F.slice("first", 1, _GAPS_SAID), lambda gap: gap["which"])))
        .drop("first")
        .orderBy("topic", "partition")
    )
    rows = found.toArrow().to_pylist()
    topics = Counter[str]()
    for row in rows:
        topics[row["topic"]] += row["n_missing"]
    return Lacking(topics.total(), tuple(_lacks(of=_ASKED, **row) for row in rows), topics)


def _lacks(*, gaps: int, **said: object) -> str:
    return _LACKS.format(gaps=f"{gaps} place{'s' * (gaps > 1)}", **said)


def lacking_between(offsets: pa.Table, *, said: Container[Gap] = ()) -> Lacking:
    """What is missing between the offsets of a log.

    Parameters
    ----------
    offsets
        As of :class:`ticdc_lab.facts.LogFacts`.
    said
        Gaps with other words: they count, and are in no sentence.
    """
    topics, sentences = Counter[str](), []
    for (topic, partition), first, last, counts in gaps_between(offsets):
        lacked = int((last - first + 1).sum())
        if not counts:
            sparse = _SPARSE.format(topic=topic, partition=partition, n_missing=lacked)
            sentences += [] if is_in_file(int(last[-1])) else [sparse]
            continue
        topics[topic] += lacked
        own = [
            (a, z)
            for a, z in zip(first.tolist(), last.tolist(), strict=True)
            if ((topic, partition), (a, z)) not in said
        ]
        if own:
            which = ", ".join(f"{a}..{z}" if z > a else f"{a}" for a, z in own[:_GAPS_SAID])
            lost = sum(z - a + 1 for a, z in own)
            sentences.append(
                _lacks(topic=topic, partition=partition, n_missing=lost, gaps=len(own), which=which, of=_BETWEEN)
            )
    return Lacking(topics.total(), tuple(sentences), topics)


# Offsets missing in a log: compacted or expired in Kafka, or lost on the way into a recording.


def offset_gaps(events: DataFrame, *, expected: DataFrame | None = None) -> DataFrame:
    """List the stretches of offsets that are missing from each partition.

    Parameters
    ----------
    events
        ``topic``, ``partition``, ``offset`` of messages, or of events and quarantine together: a message without any
        row counts as missing.
    expected
        ``topic``, ``partition``, ``first_offset``, ``end_offset`` (exclusive), either null where it is not known: what
        each partition should hold. Without it only gaps between two offsets that are there can be seen.

    Returns
    -------
    DataFrame
        ``topic, partition, first_missing, last_missing`` (both inclusive), ``n_missing`` (bigint), one row a gap.
        Kafka's own transaction markers take an offset too and show here; TiCDC writes none.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, *PARTITION, "offset")
    require_batch(events, function="offset_gaps", why="an offset that is missing now may still come")
    marks = events
    if expected is not None:
        require_columns(expected, *PARTITION, "first_offset", "end_offset", frame="expected")
        bounds = F.explode(F.array(F.col("first_offset") - 1, F.col("end_offset"))).alias("offset")
        marks = events.select(*PARTITION, F.col("offset").cast("bigint")).unionByName(
            expected.select(*PARTITION, bounds)
        )
    return by_key(held_offsets(marks).withColumnRenamed("offset", "chunk"), PARTITION, missing, GAPS, order=("chunk",))


def held_offsets(marks: DataFrame) -> DataFrame:
    """Which offsets are there, as ``offsets`` of :class:`ticdc_lab.facts.LogFacts`; of messages that have one."""
    placed = marks.where("partition IS NOT NULL AND offset IS NOT NULL").select(
        *PARTITION, F.col("offset").cast("bigint")
    )
    bit = F.expr(f"shiftleft(1L, int(pmod(offset, {IN_CHUNK})))")
    chunk = F.col("offset") - F.expr(f"pmod(offset, {IN_CHUNK})")
    summed = F.bit_or(bit).alias("held"), F.count(F.lit(1)).alias("n")
    return placed.groupBy(*PARTITION, chunk.alias("offset")).agg(*summed)


def missing(chunks: Batches) -> Batches:
    """The stretches between offsets that are there, of batches in order of partition and chunk."""
    key, last = None, 0
    for batch in chunks:
        if not batch.num_rows:
            continue
        parts, continues, key = partitions_in(batch, key)
        for i, part in enumerate(parts):
            offset = offsets_in(batch["chunk"].to_numpy()[part], batch["held"].to_numpy()[part])
            offset = np.append(last, offset) if continues and i == 0 else offset
            last = int(offset[-1])
            first = np.flatnonzero(np.diff(offset) > 1)
            topic, partition = (pa.array([batch[c][part.start].as_py()] * len(first), batch[c].type) for c in PARTITION)
            low, high = offset[first] + 1, offset[first + 1] - 1
            of = {"topic": topic, "partition": partition, "first_missing": low, "last_missing": high}
            yield pa.RecordBatch.from_pydict(of | {"n_missing": high - low + 1})


def offsets_in(chunk: Ints, held: Ints) -> Ints:
    """The offsets that are there, of chunks in order; see :data:`ticdc_lab.facts.gathering.FACTS`."""
    bits = np.unpackbits(held.astype("<i8").view(np.uint8), bitorder="little").reshape(-1, IN_CHUNK)
    at, bit = np.nonzero(bits)
    found: Ints = chunk[at] + bit
    return found


def firsts_of(offsets: pa.Table) -> dict[Home, int]:
    """The first offset of each partition that has one, of ``offsets`` of :class:`ticdc_lab.facts.LogFacts`."""
    topic, partition = offsets["topic"], offsets["partition"].to_numpy()
    begins = [part.start for part in runs(codes(topic), partition)] if offsets.num_rows else []
    first = offsets.take(pa.array(begins, pa.int64()))
    chunks = (first[c].to_numpy().reshape(-1, 1) for c in ("offset", "held"))
    offset = [int(offsets_in(*one)[0]) for one in zip(*chunks, strict=True)]
    homes = zip(first["topic"].to_pylist(), first["partition"].to_pylist(), strict=True)
    return dict(zip(homes, offset, strict=True))


def first_offsets(facts: LogFacts) -> dict[Home, int]:
    """The first offset of each partition with an event, of all its messages as far as they are known; 0 without any."""
    each = facts.places.group_by(list(PARTITION)).aggregate([("offset", "min")])
    own = {(p["topic"], p["partition"]): p["offset_min"] or 0 for p in each.to_pylist()}
    known = firsts_of(facts.offsets) | dict(facts.firsts)
    return own | {home: offset for home, offset in known.items() if home in own}


Gap = tuple[Home, tuple[int, int]]
"""A topic and partition, and the first and the last missing offset."""


def gaps_between(
    offsets: pa.Table, counted: Mapping[Home, CountedOffsets] = MappingProxyType({})
) -> Iterator[tuple[Home, Ints, Ints, bool]]:
    """Partitions with gaps between their first and their last offset: where each begins and ends.

    And whether the offsets count messages, as far as they show. They may not where most are missing, and hardly any
    follows the one before it directly: so it is in a compacted topic, and in files of storage.

    Parameters
    ----------
    offsets, counted
        As of :class:`ticdc_lab.facts.LogFacts`.
    """
    if not offsets.num_rows:
        return
    partition, chunk, held = (offsets[c].to_numpy() for c in ("partition", "offset", "held"))
    for part in runs(codes(offsets["topic"]), partition):
        home = offsets["topic"][part.start].as_py(), int(partition[part.start])
        found = counted_offsets(chunk[part], held[part], counted.get(home))
        missing, n_missing = found.missing, found.last - found.first + 1 - found.n
        if n_missing:
            yield home, *missing, n_missing <= found.n or 2 * len(missing[0]) < found.n


def counted_offsets(chunk: Ints, held: Ints, before: CountedOffsets | None = None) -> CountedOffsets:
    """What offsets of a partition are there, of chunks in order, and of those before them."""
    n = int(np.bitwise_count(held.view(np.uint64)).sum())
    first, last = int(offsets_in(chunk[:1], held[:1])[0]), int(offsets_in(chunk[-1:], held[-1:])[-1])
    none = np.empty(0, dtype=np.int64)
    missing = none, none
    if last - first + 1 > n:
        offset = offsets_in(chunk, held)
        at = np.flatnonzero(np.diff(offset) > 1)
        missing = offset[at] + 1, offset[at + 1] - 1
    if before is None:
        return CountedOffsets(first, last, n, missing)
    between = [np.array([o], dtype=np.int64) if first > before.last + 1 else none for o in (before.last + 1, first - 1)]
    whole = [np.concatenate(parts) for parts in zip(before.missing, between, missing, strict=True)]
    return CountedOffsets(before.first, last, before.n + n, (whole[0], whole[1]))


# Offsets that a log contains twice: a broker gives each once.

_CONTENT = ("kind", "commit_ts", "op", "schema_name", "table_name", "query", "change_hash")
"""What decides whether two events at one place are the same."""


def are_twice(offsets: pa.Table) -> bool:
    """Whether more messages came than there are offsets, see :func:`held_twice`."""
    held = np.bitwise_count(offsets["held"].to_numpy().view(np.uint64))
    return bool((offsets["n"].to_numpy() > held).any())


@dataclass(frozen=True, slots=True)
class Twice:
    """A partition that holds several messages at one offset.

    Attributes
    ----------
    topic, partition
        Which.
    n
        How many messages more than offsets, where all at an offset are the same.
    first, last
        Offsets between which these lie; None without.
    differ
        At how many offsets the messages are not the same.
    first_other, last_other
        Offsets between which these lie; None without.
    """

    topic: str
    partition: int
    n: int
    first: int | None
    last: int | None
    differ: int
    first_other: int | None
    last_other: int | None
    unread: int = 0
    """Of ``n`` those that could not be decoded."""

    def sentences(self, *, said: Iterable[tuple[int, int]] = ()) -> tuple[str, ...]:
        """Its sentence; empty for different messages that all lie in a reported stretch."""
        first, last = self.first_other, self.last_other
        known = first is None or last is None or any(a <= first and last <= z for a, z in said)
        again = "Here they count as delivered again" if self.unread < self.n else ""
        unread = f"{self.unread} of them could not be read, and count in no answer" if self.unread else ""
        here = "; ".join(filter(None, (again, unread)))
        offsets = f"offset {self.first}" if self.first == self.last else f"offsets from {self.first} to {self.last}"
        same = _TWICE.format(**asdict(self), messages=_messages(self.n), offsets=offsets, here=here)
        return (*([same] if self.n else []), *([] if known else [_DIFFER.format(**asdict(self))]))


def held_twice(events: DataFrame, quarantine: DataFrame | None = None) -> list[Twice]:
    """The partitions in which several messages lie at one offset, in order; as many rows come here.

    Parameters
    ----------
    events
        The events contract with ``change_hash``.
    quarantine
        Messages that could not be decoded (:data:`ticdc_lab.events.schema.QUARANTINE`): they have offsets, too.
    """
    require_columns(events, *POSITION, *_CONTENT)
    messages = events.select(*POSITION, *_CONTENT)
    if quarantine is not None:
        bare = F.col("key").isNull().cast("int")  # a hash passes nulls over
        own = {"seq": F.lit(0), "kind": F.lit("unread"), "change_hash": F.xxhash64(bare, "key", "value")}
        nothing = {c: F.lit(None) for c in _CONTENT if c not in own}
        unread = [value.cast(messages.schema[c].dataType).alias(c) for c, value in (own | nothing).items()]
        messages = messages.unionByName(quarantine.select(*PARTITION, "offset", *unread))
    content = F.struct(*_CONTENT)
    each = messages.where("partition IS NOT NULL AND offset IS NOT NULL").groupBy(*POSITION)
    told = (~F.min(content).eqNullSafe(F.max(content))).alias("other"), F.max(F.col("kind") == "unread").alias("unread")
    alike = each.agg(F.count(F.lit(1)).alias("n"), *told)
    # of two messages one may have more events
    other = F.max("other") | (F.min("n") < F.max("n"))
    of_offset = F.max("n").alias("n"), other.alias("other"), F.max("unread").alias("unread")
    twice = alike.groupBy(*PARTITION, "offset").agg(*of_offset).where("n > 1")
    same, others = (F.when(which, F.col("offset")) for which in (~F.col("other"), F.col("other")))
    of_partition = twice.groupBy(*PARTITION).agg(
        F.sum(F.when(F.col("other"), 0).otherwise(F.col("n") - 1)).alias("n"),
        F.min(same).alias("first"),
        F.max(same).alias("last"),
        F.count_if("other").alias("differ"),
        F.min(others).alias("first_other"),
        F.max(others).alias("last_other"),
        F.coalesce(F.sum(F.when(F.col("unread") & ~F.col("other"), F.col("n") - 1)), F.lit(0)).alias("unread"),
    )
    return [Twice(**row) for row in of_partition.orderBy(*PARTITION).toArrow().to_pylist()]
