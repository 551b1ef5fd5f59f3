"""A topic, or a log of any other form, recorded into files: from where, up to where, and what is named on the way."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import BOUNDS
from ticdc_lab.engine.failures import task_errors
from ticdc_lab.engine.running import seconds
from ticdc_lab.errors import NoTopicError, SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.sample import moment
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.sources.kafka import Topics
from ticdc_lab.sources.kafka_reading import ROWS_AT_ONCE, Place, Span, TopicReader
from ticdc_lab.sources.load import open_source
from ticdc_lab.sources.pieces import Reader, Source
from ticdc_lab.sources.recording import Recording, RecordingState
from ticdc_lab.words import count

COMMIT_S = 5.0
"""What was read is durable after so many seconds at the latest."""

_SAY_S = 1.0
_OFFSET_DIGITS = 15


@dataclass(frozen=True, slots=True)
class RecordingProgress:
    """How far a recording is."""

    # ``messages``, ``bytes``: of keys and values.
    messages: int
    bytes: int
    messages_s: float | None = None  # a second, since this process began; None in the first second
    lag: int | None = None  # messages that the broker has and the recording not yet; None if unknown
    left_s: float | None = None  # seconds to the end at this rate; None where it has none
    notes: tuple[str, ...] = ()  # what is missing in the recording, and what its source cannot show, a sentence each
    is_lacking: bool = False  # whether messages are missing that were to be recorded

    @property
    def words(self) -> str:
        """One line."""
        rate = "" if self.messages_s is None else f", {self.messages_s:,.0f} a second"
        lag = "" if self.lag is None else f", {self.lag:,} behind the broker"
        left = "" if self.left_s is None else f", about {seconds(self.left_s)} left"
        return f"{self.messages:,} messages, {self.bytes / 1e6:,.1f} MB{rate}{lag}{left}"


Said = Callable[[RecordingProgress], None]


def record_topic(
    topics: Topics,
    recording: Recording,
    *,
    first: str = "earliest",
    last: str = "now",
    follow: bool = False,
    rotate_s: float | None = None,
    said: Said = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
    now: Callable[[], float] = time.monotonic,
) -> RecordingProgress:
    """Record topics of Kafka, or resume where an earlier run ended.

    ``topics``: from :func:`ticdc_lab.sources.kafka.topics_of`. ``recording``: where to. ``first``, ``last``: an offset,
    a time (UTC) or TSO, ``earliest`` or ``now``. Of a recording that has begun its own count. ``follow``: record until
    stopped; ``last`` does not count. ``rotate_s``: seconds after which a folder gets another file. ``said``:
    takes how far it is, about once a second. ``stopped``: asked after each batch whether to stop; what
    was read is kept. ``now``: a clock. Raises KeyboardInterrupt: it was stopped before its end. SourceError: the broker
    stops answering; a topic was deleted, truncated or created again; no space is left. What was recorded stays, and the
    same call resumes it.
    """
    with TopicReader(topics) as reader, _deleted(recording):
        spans, ids = reader.spans(), reader.ids()
        recording.go_on()
        ends: Mapping[Place, int] | None
        if not recording.begun:
            firsts = {at: _offset(first, reader, at, span) for at, span in spans.items()}
            ends = None if follow else {at: max(firsts[at], _offset(last, reader, at, s)) for at, s in spans.items()}
            recording.begin(RecordingState(recording.state.source, ids, firsts, ends))
        else:
            _require_same(recording.state.ids, ids)
            ends = None if follow else recording.state.ends
            if not follow and (ends is None or recording.state.done):
                ends = {at: max(span[1], recording.state.positions.get(at, 0)) for at, span in spans.items()}
            positions = {at: s[0] for at, s in spans.items()} | dict(recording.state.positions)  # new partitions too
            ends = None if ends is None else {at: span[1] for at, span in spans.items()} | dict(ends)
            recording.begin(replace(recording.state, ids=ids, positions=positions, ends=ends, done=False))
        whole = _copy(reader, recording, ends, rotate_s=rotate_s, said=said, stopped=stopped, now=now)
        if not whole and not follow:
            recording.commit()
            raise KeyboardInterrupt
        recording.finish()
        done = _so_far(recording.state, recording.state.messages, 0.0, 0 if ends else None)
        return replace(done, notes=(*done.notes, *(() if follow else reader.open_words)), is_lacking=bool(done.notes))


@contextmanager
def _deleted(recording: Recording) -> Iterator[None]:
    """A topic that is gone although its recording has begun is no wrong name."""
    try:
        yield
    except NoTopicError as error:
        if not recording.begun:
            raise
        raise NoTopicError(
            f"{error.message} It was there when the recording in {recording.out} began.",
            hint=f"What was recorded until then stays: ticdc-lab survey {shlex.quote(str(recording.out))}",
        ) from error


def _copy(
    reader: TopicReader, recording: Recording, ends: Mapping[Place, int] | None, *, rotate_s: float | None, said: Said,
    stopped: Callable[[], bool], now: Callable[[], float],
) -> bool:  # fmt: skip
    """Write what comes; whether all of it has come."""
    begun = committed = part_begun = now()
    told, already = begun - _SAY_S, recording.state.messages
    for batch in reader.batches(recording.state.positions, ends):
        recording.write(batch, reader.positions)
        recording.note(*(f"{lost.sentence} What was recorded before stays." for lost in reader.lost))
        at = now()
        if rotate_s is not None and recording.is_folder and at - part_begun >= rotate_s:
            _require_same(recording.state.ids, reader.ids())
            recording.rotate()
            part_begun = committed = at
        elif at - committed >= COMMIT_S:
            _require_same(recording.state.ids, reader.ids())
            recording.commit()
            committed = at
        if at - told >= _SAY_S:
            lag = sum(max(0, end - reader.positions[p]) for p, end in (ends or reader.ends_now()).items())
            said(_so_far(recording.so_far, recording.so_far.messages - already, at - begun, lag, ends is not None))
            told = at
        if stopped():
            return False
    recording.note(*(f"{lost.sentence} What was recorded before stays." for lost in reader.lost))
    for (topic, partition), high in reader.shrunk.items():
        recording.commit()
        raise SourceError(
            f"Partition {partition} of {topic} ends at offset {high}, before {(ends or {})[topic, partition]}, up to "
            "which it was to be recorded: the topic was truncated, or deleted and recreated.",
            hint=f"What was recorded until then stays in {recording.out}. Record the topic again into another place.",
        )
    _require_same(recording.state.ids, reader.ids())
    return True


def _so_far(
    state: RecordingState, new: int, elapsed_s: float, lag: int | None, ends: bool = False
) -> RecordingProgress:
    rate = new / elapsed_s if elapsed_s >= _SAY_S else None
    left = lag / rate if ends and lag is not None and rate else None
    return RecordingProgress(state.messages, state.bytes, rate, lag, left, state.notes)


def _require_same(before: Mapping[str, str], ids: Mapping[str, str]) -> None:
    for topic, known in before.items():
        if ids.get(topic, known) != known:
            raise SourceError(
                f"The topic {topic} was deleted and recreated since its recording began.",
                hint="What was recorded until then stays. Record the topic again into another place with --out.",
            )


def _offset(text: str, reader: TopicReader, at: Place, span: Span) -> int:
    """The offset that an offset, a time, ``earliest`` or ``now`` means in a partition."""
    if text in ("earliest", "now", "latest"):
        return span[text != "earliest"]
    if text.isdigit() and len(text) < _OFFSET_DIGITS:
        return min(max(int(text), span[0]), span[1])
    ts = moment(text)
    found = None if ts is None else reader.at(physical_ms(ts), [at])[at]
    return span[1] if found is None else found


def record_log(
    spark: SparkSession, source: str, recording: Recording, *, kind: str = "auto",
    options: Mapping[str, str] | None = None, line: int = BOUNDS.line, said: Said = lambda _: None,
) -> RecordingProgress:  # fmt: skip
    """Write a log of any other form as a recording: overlaps occur once.

    ``spark``: the session whose tasks read it. ``source``, ``kind``, ``options``, ``line``: as for
    :func:`ticdc_lab.sources.load.open_source`. ``recording``: where to; one that an earlier run left unfinished
    restarts. ``said``: takes how far it is. Raises SourceError: it cannot be read, or has no messages of a topic.
    """
    opened = open_source(spark, source, kind=kind, options=options, line=line)
    if opened.kind == "storage":
        raise SourceError(
            f"{source} is a folder of the storage sink, whose files contain no messages of a topic.",
            hint=f"Write it as a topic: ticdc-lab produce {shlex.quote(shown_source(source))} --to canal-json "
            "--strategy table --partitions 3 --out topic.jsonl.gz",
        )
    folder = Path(tempfile.mkdtemp(prefix="ticdc_lab-record-"))
    try:
        recording.begin_anew()
        with opened.said_plainly(), task_errors(), room_for(folder):
            written = _read_by_tasks(opened, folder)
            for batch in _in_order(sorted(written["file"].to_pylist()), folder):
                recording.write(batch.cast(arrow_schema(MESSAGES)), {})
                said(_so_far(recording.so_far, 0, 0.0, None))
        refused = _refused(written)
        recording.note(*opened.left_out, *refused)
        notes = recording.so_far.notes
        recording.finish()
        return replace(_so_far(recording.state, 0, 0.0, None), notes=notes, is_lacking=bool(refused))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_PLACED = """
    SELECT topic, "partition", "offset" IS NULL AS placeless, "offset", filename AS file, file_row_number AS line
    FROM read_parquet(?, filename = true, file_row_number = true)
"""
_GOES_BACK = f"""
    SELECT 1 FROM (
        SELECT "offset" < lag("offset") OVER (PARTITION BY topic, "partition", placeless ORDER BY file, line) AS back
        FROM ({_PLACED})
    ) WHERE back LIMIT 1
"""
_BY_OFFSETS = f"""
    WITH numbered AS (
        SELECT *, row_number() OVER (ORDER BY file, line) AS slot,
            row_number() OVER (PARTITION BY topic, "partition", placeless ORDER BY file, line) AS nth_there,
            row_number() OVER (PARTITION BY topic, "partition", placeless ORDER BY "offset", file, line) AS nth
        FROM ({_PLACED})
    ), moved AS (
        SELECT m.file, m.line, s.slot FROM numbered m JOIN numbered s
        ON m.topic IS NOT DISTINCT FROM s.topic AND m."partition" IS NOT DISTINCT FROM s."partition"
        AND m.placeless = s.placeless AND m.nth = s.nth_there
    )
    SELECT r.topic, r."partition", r."offset", r."timestamp", r."key", r."value", r.headers
    FROM read_parquet(?, filename = true, file_row_number = true) r
    JOIN moved ON r.filename = moved.file AND r.file_row_number = moved.line ORDER BY slot
"""


def _in_order(files: list[str], folder: Path) -> Batches:
    """Messages as they were read; if a partition goes back, its messages share out its slots by their offsets.

    A Parquet file promises no order: Spark writes row groups as its tasks end.
    """
    import duckdb  # here: a recording of a topic needs none

    with duckdb.connect() as db:
        db.execute("SET memory_limit = '2GiB'; SET TimeZone = 'UTC'")
        db.execute("SET temp_directory = $1", [str(folder)])
        if files and db.execute(_GOES_BACK, [files]).fetchall():
            yield from db.sql(_BY_OFFSETS, params=[files, files]).to_arrow_reader(ROWS_AT_ONCE)
            return
    for file in files:
        with pq.ParquetFile(file) as pieces:
            yield from pieces.iter_batches(ROWS_AT_ONCE)


_OF_A_TASK = pa.schema([("file", pa.string()), ("refused", pa.int64()), ("why", pa.string())])


def _read_by_tasks(source: Source, folder: Path) -> pa.Table:
    """What each task wrote, and how many lines it refused."""
    skips = source.overlaps.skips
    read = source.reader(skips)
    if (table := source.table) is not None and not skips:  # raw records are what decoding needs alone
        source, read = replace(source, frame=lambda: table, shares=()), _as_they_are
    return source.found(partial(_written, read=read, folder=str(folder)), _OF_A_TASK)


def _refused(written: pa.Table) -> list[str]:
    n = pc.sum(written["refused"]).as_py() or 0
    why = next((w for w in written["why"].to_pylist() if w), "")
    them = "it is" if n == 1 else "they are"
    lines = count(n, "line contains", "lines contain")
    return [f"{lines} no message, so {them} not in the recording. The first: {why}"] if n else []


def _as_they_are(batches: Batches) -> Iterator[tuple[pa.RecordBatch, None]]:
    for batch in batches:
        yield batch, None


def _written(batches: Batches, read: Reader, folder: str) -> Batches:
    """Write the messages of a task's share into a file that is named after its first piece."""
    first = next(batches, None)
    if first is None:
        return
    number = first["number"][0].as_py() if first.num_rows and "number" in first.schema.names else 0
    path, refused, why = Path(folder) / f"{number:012d}-{uuid4().hex}.parquet", 0, None
    schema = arrow_schema(MESSAGES)
    with pq.ParquetWriter(path, schema) as file:
        for messages, rejected in read(_chained(first, batches)):
            if messages.num_rows:
                columns = [messages[n] if n in messages.schema.names else pa.nulls(len(messages)) for n in schema.names]
                file.write_batch(
                    pa.RecordBatch.from_arrays(
                        [c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
                    )
                )
            if rejected is not None and rejected.num_rows:
                refused += rejected.num_rows
                why = why or rejected["reason"][0].as_py()
    yield pa.RecordBatch.from_pydict({"file": [str(path)], "refused": [refused], "why": [why]}, _OF_A_TASK)


def _chained(first: pa.RecordBatch, rest: Batches) -> Batches:
    yield first
    yield from rest
