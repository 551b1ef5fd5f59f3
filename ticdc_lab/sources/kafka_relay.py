"""Topics for the embedded engine, which has a network of its own: this process reads them and hands batches over.

A task names ranges of offsets over a Unix socket in a folder that only this user can open, and gets Arrow batches as
they come from the broker. Nothing is kept on disk, and a task that is slow holds the reading back, so memory does not
depend on the size of the topic. Settings with secrets stay in this process.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from io import BufferedRWPair
from math import ceil
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.engine import parallelism
from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.errors import NoAnswerError, NoTopicError, SourceError, TiCDCLabError
from ticdc_lab.errors.whole_files import temporary_folder
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources.kafka import EXPECTED, Topics
from ticdc_lab.sources.kafka_reading import Lost, Place, Span, TopicReader
from ticdc_lab.sources.places import Size

RANGES = pa.schema(
    [
        ("number", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("end", pa.int64()),
    ]
)
"""Offsets of a partition, from ``first`` to before ``end``."""

SMALL = 5_000
"""Messages that are not worth a task of their own."""

_RANGES_A_TASK = 2
_SOCKET = "kafka.sock"
_HEAD = struct.Struct("<cQ")
BATCH, END, _ERROR = b"B", b"Z", b"E"
_RETRIED = {kind.__name__: kind for kind in (NoAnswerError, NoTopicError)}


def listening(answer: Callable[[BufferedRWPair], None], source: str) -> str:
    """Answer tasks of the embedded engine, whose network is their own, until this process ends.

    ``answer``: reads the request of a task and writes the answer; an exception becomes the task's error. ``source``:
    what the errors are about. Returns: the path of the socket.
    """
    path = str(temporary_folder("kafka-") / _SOCKET)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen()

    def serve(client: socket.socket) -> None:
        with suppress(OSError), closing(client), client.makefile("rwb") as stream:  # a task that has gone away is left
            try:
                answer(stream)
            except TiCDCLabError as error:
                told = [error.message, error.hint, type(error).__name__]
                stream.writelines(part(_ERROR, json.dumps(told).encode()))
            except Exception as error:  # the task would wait without end
                told = [f"{source}: {type(error).__name__}: {error}", "", ""]
                stream.writelines(part(_ERROR, json.dumps(told).encode()))
            stream.flush()

    def accept() -> None:
        while True:
            client, _ = server.accept()
            threading.Thread(target=serve, args=(client,), name="kafka-relay-task", daemon=True).start()

    threading.Thread(target=accept, name="kafka-relay", daemon=True).start()
    return path


def part(kind: bytes, content: bytes | pa.Buffer) -> tuple[bytes, bytes | pa.Buffer]:
    """A part of a request or an answer, as bytes to write."""
    return _HEAD.pack(kind, len(content)), content


def next_part(stream: BinaryIO | BufferedRWPair) -> tuple[bytes, bytes]:
    """Read a part, BATCH or END, and its content; raise an error that the other side wrote."""
    kind, size = _HEAD.unpack(stream.read(_HEAD.size) or _HEAD.pack(_ERROR, 0))
    content = stream.read(size)
    if kind == _ERROR:
        message, hint, name = json.loads(content or b'["The process that speaks to Kafka has ended.", "", ""]')
        raise _RETRIED.get(name, SourceError)(message, hint=hint)
    return kind, content


def _answer_ranges(stream: BufferedRWPair, topics: Topics) -> None:
    ranges = json.loads(stream.readline())
    with TopicReader(topics) as reader:
        for some in _rounds(ranges):
            starts = {at: first for at, (first, _) in some.items()}
            for batch in reader.batches(starts, {at: end for at, (_, end) in some.items()}):
                if batch.num_rows:
                    stream.writelines(part(BATCH, batch.serialize()))
            if reader.fails_on_loss and reader.lost:
                raise SourceError(reader.lost[0].sentence, hint="Continue without them: --option failOnDataLoss=false")
    stream.writelines(part(END, b""))


def _gone(lost: Lost) -> SourceError:
    return SourceError(lost.sentence, hint="Continue without them: --option failOnDataLoss=false")


def _rounds(ranges: Sequence[tuple[str, int, int, int]]) -> Iterator[dict[Place, Span]]:
    """Ranges that are read at the same time: one of each partition."""
    left = list(ranges)
    while left:
        some: dict[Place, Span] = {}
        for one in list(left):
            if (at := (one[0], one[1])) not in some:
                some[at] = (one[2], one[3])
                left.remove(one)
        yield some


def read_ranges(batches: Batches, path: str) -> Iterator[tuple[pa.RecordBatch, None]]:
    """Rows of :data:`RANGES` to messages, asked of the relay at ``path``."""
    schema = arrow_schema(MESSAGES)
    for batch in batches:
        ranges = list(zip(*(batch[name].to_pylist() for name in RANGES.names[1:]), strict=True))
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
            client.connect(path)
            with client.makefile("rwb") as stream:
                stream.write(json.dumps(ranges).encode() + b"\n")
                stream.flush()
                while (read := next_part(stream))[0] == BATCH:
                    still_wanted()
                    yield pa.ipc.read_record_batch(pa.py_buffer(read[1]), schema), None


class RelayedTopic:
    """A topic as it is now, for the embedded engine.

    ``spans``: first and end offset of each partition that the broker has. ``left_out``: what the broker keeps back of
    it, a sentence each. ``bounds``: what of it is read, by the options.
    """

    def __init__(self, spark: SparkSession, topics: Topics) -> None:
        self._spark, self._topics = spark, topics
        with TopicReader(topics) as reader:
            self.spans = reader.spans()
            self.left_out = reader.open_words
            self.bounds = reader.bounds(self.spans)
            for at, (first, end) in self.bounds.items() if reader.fails_on_loss else ():
                if first < (low := self.spans[at][0]):
                    raise _gone(Lost(at, first, min(low, end)))
        self.read = partial(read_ranges, path=listening(partial(_answer_ranges, topics=topics), topics.source))

    @property
    def n_messages(self) -> int:
        """Offsets that are to be read; compaction may have left fewer messages."""
        return sum(max(0, end - first) for first, end in self.bounds.values())

    def ranges(self) -> pa.Table:
        """:data:`RANGES`: all of it."""
        step = max(SMALL, ceil(self.n_messages / (_RANGES_A_TASK * parallelism(self._spark))))
        rows = []
        for (topic, partition), (first, end) in sorted(self.bounds.items()):
            first = max(first, self.spans[topic, partition][0])
            rows += [(topic, partition, at, min(at + step, end)) for at in range(first, end, step)]
        columns = [list(c) for c in zip(*rows, strict=True)] or [[]] * (len(RANGES) - 1)
        return pa.table([range(len(rows)), *columns], schema=RANGES)

    def frame(self, ranges: pa.Table) -> DataFrame:
        """The ranges dealt to tasks."""
        return self._spark.createDataFrame(ranges).repartition(max(1, self.n_tasks(ranges)))

    def n_tasks(self, ranges: pa.Table) -> int:
        """How many tasks read ranges."""
        n_messages = pc.sum(pc.subtract(ranges["end"], ranges["first"])).as_py() or 0
        return min(len(ranges), _RANGES_A_TASK * parallelism(self._spark), 1 + n_messages // SMALL)

    def expected(self) -> DataFrame:
        """:data:`ticdc_lab.sources.kafka.EXPECTED`."""
        return self._spark.createDataFrame([(*at, *span) for at, span in self.bounds.items()], EXPECTED)

    def measure(self) -> Size:
        """How many messages it has."""
        return Size(None, self.n_messages, "by the broker's offsets", True)
