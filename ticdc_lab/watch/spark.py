"""A watch on Apache Spark, for topics beyond one core: the same kernel, its rows in buckets behind one shuffle.

Each batch of the stream is two jobs. Tasks decode their part; what it states of the log comes to the driver, which
judges it as on the desk. Then each bucket takes its changes of rows. A commit of the state folder names the batch and
the version of each bucket's file, so a batch that Spark repeats after any end is taken once.
"""

from __future__ import annotations

import pickle
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.audit.contradicted import reads_images
from ticdc_lab.audit.marks import Promises
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.engine.failures import task_errors
from ticdc_lab.engine.sessions import has_jvm, is_several_machines, parallelism
from ticdc_lab.engine.shuffle import PACK, Batches, Kernel, buckets_in, dealt
from ticdc_lab.engine.workers import require_workers_once
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.events.arrays import NO_TS, Ints
from ticdc_lab.facts import LogFacts
from ticdc_lab.sources import datasource, kafka
from ticdc_lab.sources.kafka_reading import Place
from ticdc_lab.sources.places import is_kafka
from ticdc_lab.sources.stored import packed as in_larger_batches
from ticdc_lab.sources.stored import require_seen
from ticdc_lab.watch import buckets
from ticdc_lab.watch.recorded import RecordedTopic
from ticdc_lab.watch.running import LOOK_S, Watch, resolved_of, watermarks_written
from ticdc_lab.watch.sources import FORM, LiveTopic
from ticdc_lab.watch.state import (
    BatchPart,
    RowsJudged,
    Watched,
    kept_ts,
    with_judged,
    with_part,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BUCKETS = 16
"""Parts of the rows, each with a file of its own: so many tasks can judge at a time."""

MESSAGES_A_BATCH = 1_000_000
"""Messages of a batch at most, unless ``maxOffsetsPerTrigger`` is set."""

EVERY_S = 10.0
_LOG = -1
"""The bucket's number beside what a part states of the log."""

_IMAGES, _RAW = ("columns", "before"), ("reason", "key", "value")
_FOLDER, _CHECKPOINT = "rows", "checkpoint"


class SparkWatch(Watch):
    """A watch whose batches are jobs of Spark.

    ``source``: ``kafka://HOST:PORT/TOPIC``, or a recording or a folder of them, which is a stream of files as they
    come. ``state``: the folder. All machines of a cluster must see it. ``spark``: a session of Apache Spark, with its
    Kafka connector for a topic. ``every_s``: seconds from the beginning of a batch to the next, at least.
    ``once``, ``settle_s``, ``memory``, ``keep_s``, ``changefeed``, ``protocol``, ``schema_registry``, ``claim_check``,
    ``options``, ``opens``, ``now``: as of :class:`ticdc_lab.watch.running.Watch`; ``memory`` is for all buckets,
    and ``options`` has also Spark's connector's, such as ``maxOffsetsPerTrigger``. Raises SourceError: as of
    :class:`ticdc_lab.watch.running.Watch`; the folder is not one that all workers see.
    """

    def __init__(
        self, source: str, state: str, *, spark: SparkSession, every_s: float = EVERY_S, speed: float | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        if speed is not None:
            raise SourceError(
                "A watch on Spark reads a recording as fast as it can, with no speed.",
                hint=f"Replay it in one process: ticdc-lab watch {shlex.quote(source)} --state {shlex.quote(state)} "
                f"--speed {speed:g}",
            )
        super().__init__(source, state, **options)
        if isinstance(self._source, RecordedTopic) and (self._source.is_dump or self._source.grows):
            self._folder.close()
            is_dump = "reads no dump of another tool" if self._source.is_dump else "takes new files by itself"
            raise SourceError(
                f"{self.source}: a watch on Spark {is_dump}.",
                hint=f"Watch it in one process: ticdc-lab watch {shlex.quote(source)} --engine embedded --state OTHER",
            )
        self._spark, self._every_s, self._named = spark, every_s, source
        self._given: Mapping[str, str] = options.get("options") or {}
        self._of_reader = {"schemaRegistry": options.get("schema_registry"), "claimCheck": options.get("claim_check")}
        self._on_spark = {"batch": -1, "versions": []}
        self._lock = threading.Lock()
        self._broken: BaseException | None = None
        self._of_buckets: dict[int, buckets.Bucket] = {}
        self._versions: dict[int, int] = {}
        self._above: dict[str, Ints] = {}
        self._place = self._folder.folder.resolve()

    def _begun(self, stopped: Callable[[], bool]) -> bool:
        """As on the desk; and what lies beside it."""
        if not super()._begun(stopped):
            return False
        if not has_jvm(self._spark):
            raise SetupError(
                "A watch on Spark needs a session of Apache Spark in this process; this one is at Spark Connect.",
                hint=f"Run it where the driver is: ticdc-lab watch {shlex.quote(self.source)} "
                f"--state {shlex.quote(str(self._place))} --engine spark "
                "--master spark://HOST:7077",
            )
        require_workers_once(self._spark)
        (self._place / _FOLDER).mkdir(exist_ok=True)
        if is_several_machines(self._spark):
            require_seen(self._spark, self._place)
        if (saved := self._folder.progress) is not None and saved.spark is not None:
            self._on_spark = dict(saved.spark)
            self._versions = dict(saved.spark["versions"])
            self._above = {topic: np.array(ts) for topic, ts in saved.spark["above"].items()}
            self._of_buckets = buckets.read_all(str(self._place / _FOLDER), self._versions)
            if self._versions and not (self._place / _CHECKPOINT).exists():
                raise SourceError(
                    f"{self._folder.folder} no longer has the {_CHECKPOINT} that records up to where it was read.",
                    hint="Watch it into another folder: --state OTHER",
                )
        assert self._decoding is not None
        if is_kafka(self._named) and (self._decoding.told.protocol == "simple" or self._decoding.untyped):
            raise SourceError(
                f"{self.source}: messages of {self._decoding.told.protocol} need what earlier messages define, which "
                "a watch on Spark does not keep.",
                hint=f"Watch it in one process: ticdc-lab watch {shlex.quote(self.source)} --engine embedded "
                "--state OTHER",
            )
        return True

    def _follow(self, stopped: Callable[[], bool]) -> bool:
        """Let the stream run; judge beside it what settles."""
        looked, topics = -LOOK_S, kafka.topics_of(self._named, self._given) if is_kafka(self._named) else None
        with task_errors(), kafka.said_plainly(topics) if topics else nullcontext():
            query = self._started()
            try:
                while not query.awaitTermination(1) and not self._ended(stopped):
                    with self._lock:
                        if time.monotonic() - looked > LOOK_S:
                            looked = time.monotonic()
                            self._look()
                        self._judge()
                        if self._changed:
                            self._commit()
            except Exception as error:
                raise self._broken or error from None
            finally:
                query.stop()
        with self._lock:  # the batch under way has ended
            self._look()
            self._judge(final=self._once)
            self._commit()
        return True

    def _started(self) -> StreamingQuery:
        if is_kafka(self._named):
            bounds = {"maxOffsetsPerTrigger": str(MESSAGES_A_BATCH), "minPartitions": str(parallelism(self._spark))}
            stream = kafka.read_stream(self._spark, self._named, bounds | dict(self._given))
        else:
            datasource.register(self._spark)
            images = reads_images(self._watched.settings)
            reader = self._spark.readStream.format(datasource.NAME).option("images", "as-read" if images else "null")
            reader = reader.option("protocol", self._watched.protocol)
            named = {name: value for name, value in self._of_reader.items() if value is not None}
            stream = reader.options(**named).load(self._named).drop(*_RAW, *(() if images else _IMAGES))
        writer = stream.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", str(self._place / _CHECKPOINT)
        )
        every = {"availableNow": True} if self._once else {"processingTime": f"{self._every_s} seconds"}
        return writer.trigger(**every).start()

    def _take(self, frame: DataFrame, batch: int) -> None:
        """All of a batch, unless an earlier run has committed it."""
        with self._lock:
            try:
                if self._on_spark and batch > self._on_spark["batch"]:
                    begun = time.monotonic()
                    self._take_batch(frame, batch)
                    self._took(time.monotonic() - begun)
                    self._judge()
                    self._commit()
            except BaseException as error:
                self._broken = error
                raise

    def _take_batch(self, frame: DataFrame, batch: int) -> None:
        assert self._decoding is not None
        watched = self._watched
        packed, whole = self._read(frame)
        try:
            ddl = LogFacts.read(whole.part.facts).ddl if whole is not None and is_kafka(self._named) else None
            if ddl is not None and self._decoding.learn_keys(ddl):
                packed.unpersist()
                packed, whole = self._read(frame)
            if whole is None:
                return
            part = whole.part
            self._require_next(part.spans)
            state = with_part(self._state, part)
            known = state.known
            promises = Promises.read(known, protocol=watched.protocol, settings=watched.settings)
            step = stepping(
                str(self._place / _FOLDER), self._versions, batch, watched.on(known).of_bucket(BUCKETS), promises,
                kept_ts(known, watched),
            )  # fmt: skip
            tasks = min(BUCKETS, parallelism(frame.sparkSession))
            done = dealt(packed.where(f"_bucket <> {_LOG}"), tasks).mapInArrow(step, PACK).toArrow()
        finally:
            packed.unpersist()
        new: dict[int, buckets.Bucket] = {
            bucket: pickle.loads(own) for bucket, own in zip(*(c.to_pylist() for c in done.columns), strict=True)
        }
        judged = sum((new[bucket].judged for bucket in sorted(new)), RowsJudged())
        self._state, counts = with_judged(state, known, judged, part.counts, watched)
        self._counts += counts
        self._of_buckets |= new
        self._versions |= dict.fromkeys(new, batch)
        self._state = buckets.with_suspects(self._state, self._of_buckets, watched)
        self._positions |= {at: last + 1 for at, (_, last) in part.spans.items()}
        self._note_watermarks(whole.written)
        resolved = resolved_of(known)
        above = _joined(self._above, whole.above)
        self._above = {topic: ts[ts > resolved.get(topic, NO_TS)] for topic, ts in above.items()}
        self._on_spark = {
            "batch": batch, "versions": sorted(self._versions.items()),
            "above": {topic: ts[:_KEPT_ABOVE].tolist() for topic, ts in self._above.items()},
        }  # fmt: skip
        self._dirty = True

    def _read(self, frame: DataFrame) -> tuple[DataFrame, _Told | None]:
        """A batch in packs, which the workers keep, and what it states; None of an empty one."""
        assert self._decoding is not None
        protocol, state, known = self._watched.protocol, self._state, self._decoding.known
        images = reads_images(self._watched.settings)
        decode = decoder(protocol, images=images, known=known) if is_kafka(self._named) else None
        read = reading(decode, share=state.share, resolved_ts=resolved_of(state.known), watched=self._watched)
        packed = frame.mapInArrow(read, PACK).persist()
        told = packed.where(f"_bucket = {_LOG}").select("pack").toArrow()["pack"].to_pylist()
        return packed, reduce(add, map(pickle.loads, told)) if told else None

    def _require_next(self, spans: Mapping[Place, tuple[int, int]]) -> None:
        """A batch follows what was taken; what the broker deleted between both is lost."""
        behind = dict[Place, int]()
        for at, (first, _) in spans.items():
            expected = self._positions.get(at, first)
            if first < expected:
                raise SourceError(
                    f"{self.source}: offset {first} of partition {at[1]} of {at[0]} follows offset {expected - 1}; a "
                    "watch reads each partition in the order of its offsets.",
                    hint="Watch it into another folder: --state OTHER",
                )
            if first > expected:
                behind[at] = expected
        lows = self._source.spans() if behind and isinstance(self._source, LiveTopic) else {}
        for at, expected in behind.items():
            gone = min(spans[at][0], lows.get(at, (0, 0))[0]) - expected
            if gone > 0:
                self._lost[at] = self._lost.get(at, 0) + gone
                self._state = self._state.with_deleted(at, (expected, expected + gone))

    def _look(self) -> bool:
        """As on the desk; partitions that have no message yet are watched, too."""
        added = super()._look()
        self._positions = self._firsts | self._positions
        return added

    def _ends(self) -> Mapping[Place, int]:
        """As the last look saw them."""
        return self._looked_ends

    def _pending(self) -> dict[str, int]:
        """Of the transactions that were read and are above the resolved_ts the first, by topic."""
        return {topic: int(ts[0]) if len(ts) else NO_TS for topic, ts in self._above.items()}

    def _sizes(self) -> tuple[int, int]:
        """Of all buckets, and what the driver remembers."""
        of = self._of_buckets.values()
        return sum(b.rows for b in of), sum(b.nbytes for b in of) + self._state.nbytes


_KEPT_ABOVE = 1_000
"""Pending transactions of a topic that a commit names: the first ones."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a task reports to the driver of its part: as of :class:`BatchPart`, :func:`watermarks_written`, and
    :func:`ticdc_lab.watch.buckets.above`.
    """

    part: BatchPart
    written: Mapping[Place, tuple[int, int | None]]
    above: Mapping[str, Ints]

    def __add__(self, other: _Told) -> _Told:
        written = dict(self.written)
        for at, mark in other.written.items():
            written[at] = max(mark, written.get(at, mark), key=lambda m: m[0])
        return _Told(self.part + other.part, written, _joined(self.above, other.above))


def _joined(one: Mapping[str, Ints], other: Mapping[str, Ints]) -> dict[str, Ints]:
    return {**one, **{topic: np.union1d(one.get(topic, ts), ts) for topic, ts in other.items()}}


def reading(decode: Kernel | None, *, share: int, resolved_ts: Mapping[str, int], watched: Watched) -> Kernel:
    """From messages, or from events where nothing decodes, to packs for buckets, and a task's report of its part."""

    def run(batches: Batches) -> Batches:
        told: _Told | None = None
        for messages, _ in in_larger_batches((batch, None) for batch in batches):
            if decode is None:
                read = pa.table(messages)
                whole = [read[f.name] if f.name in read.column_names else pa.nulls(len(messages), f.type) for f in FORM]
                events = pa.table(whole, schema=FORM)
            else:
                events = pa.Table.from_batches(decode(iter([messages])), FORM)
            part = BatchPart.read(events, share=share, watched=watched)
            written = watermarks_written(events, None if decode is None else pa.table(messages))
            one = _Told(part, written, buckets.above(events, resolved_ts))
            told = one if told is None else told + one
            yield _packs(buckets.cut(events, BUCKETS))
        if told is not None:
            yield _packs([(_LOG, pickle.dumps(told, protocol=5))])

    return run


def _packs(packs: Iterable[tuple[int, bytes]]) -> pa.RecordBatch:
    numbered = list(packs)
    return pa.record_batch(
        [pa.array([b for b, _ in numbered], pa.int32()), pa.array([p for _, p in numbered], pa.binary())], _FORM
    )


_FORM = pa.schema([("_bucket", pa.int32()), ("pack", pa.binary())])


def stepping(
    folder: str, versions: Mapping[int, int], batch: int, watched: Watched, promises: Promises, kept_ts: int
) -> Kernel:
    """Each bucket takes its packs; gives :class:`ticdc_lab.watch.buckets.Bucket`, pickled."""
    before = dict(versions)

    def run(packed: Batches) -> Batches:
        for bucket, packs in buckets_in(packed):
            done = buckets.stepped(
                folder, bucket, packs, watched, promises, before=before.get(bucket), version=batch, kept_ts=kept_ts
            )  # fmt: skip
            yield _packs([(bucket, pickle.dumps(done, protocol=5))])

    return run
