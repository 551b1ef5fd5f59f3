"""Events that were decoded once, in files that the workers write and read themselves, where they see the folder.

A row on its way between Spark and Python passes through Spark's own rows and a socket. That costs as much as decoding
it, and for the nested images three times as much. Each task gets names of files and what of them to read instead, and
writes what it decodes into a file of its own: Parquet for an engine, and Arrow's form, which costs a third of it to
write and a fifth to read, where none runs (:func:`for_engines`).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.codecs import Known, decoder
from ticdc_lab.codecs.decode import EMPTY_MESSAGE, ROWS_A_PASS, is_empty
from ticdc_lab.codecs.handles import keyed
from ticdc_lab.codecs.kernel.arrow import arrow_schema, bits
from ticdc_lab.engine import is_several_machines, parallelism
from ticdc_lab.engine.sessions import computes_here, is_wanted
from ticdc_lab.engine.shuffle import PACKED, MadeByWorkers, bucket_of
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.arrays import Batches, Stretches, are, lie_in
from ticdc_lab.events.schema import BEFORE_UNNAMED, DECODED, IMAGE_HASHES, IMAGES, KEYS
from ticdc_lab.facts.gathering import ARROW as FACTS
from ticdc_lab.facts.gathering import LEFT_OUT, gathered, narrow_batches
from ticdc_lab.facts.limits import ENDS
from ticdc_lab.facts.stalls import ARRIVED
from ticdc_lab.sources.overlaps import Held, Skips
from ticdc_lab.sources.pieces import NO_SKIPS, Source

if TYPE_CHECKING:
    from ticdc_lab.codecs.kernel.noted import Noted

BYTES_A_GROUP = 48 << 20
"""Decoded events that a task holds before it writes them as a row group; a third in Arrow's form."""
_RANGES = ["partition", "offset", "commit_ts"]
"""Columns whose smallest and largest values a file notes; for all of them it would take a sixth of the writing."""
ARROW = ".arrow"
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

COUNTED = (
    "decoded", "quarantined", "events", "undated", "incomplete", "unnamed", "watermarks", "kept", "empty", "damaged",
    "parts",
)  # fmt: skip
"""What a task counts: the fields of :class:`ticdc_lab.facts.limits.Counts` but the sum, and what was not read."""

_SO_FAR = "_so_far-"
_SAID_EVERY_S = 0.2

WRITTEN = StructType(
    [StructField("file", StringType())]
    + [StructField(name, LongType()) for name in COUNTED]
    + [StructField("held", StringType())]
)
"""A task's report of its file; ``held`` is what :meth:`ticdc_lab.sources.overlaps.Held.said` gives."""

Decode = Callable[..., Batches]
"""Batches to batches; a second argument receives what each file has, or is None."""

_Block = tuple[pa.RecordBatch, pa.RecordBatch | None]
_DecodeBlock = Callable[[_Block], list[pa.RecordBatch]]
Messages = Iterator[_Block]

_BYTES_A_BATCH = 16 << 20

DECODERS = 3
"""Threads of one task that decode, at most: one that inflates and reads lines has no messages for more."""

PACKED_OF_A_KEY = 1 << 24
"""Row changes of one key that are shuffled in packs, at most: a task holds them, in 2 GiB or so."""

_COUNTERS = 1 << 12

HELD, HELD_TIMES = 1_000, 4
"""Offsets whose messages stay once they are decoded again, at most, in all partitions: some ten MB; and for how
many of the last questions.
"""


@contextmanager
def left_as_it_was(file: Path) -> Iterator[None]:
    """Read a file of a decoded log; SourceError: it was removed."""
    try:
        yield
    except FileNotFoundError as error:
        lost = Path(error.filename or file)
        raise SourceError(
            f"{lost.parent}, to which the log was decoded, is not as it was left: {lost.name} is gone.",
            hint="Open the log again (`ticdc_lab.open(SOURCE)`), and leave the folder that it is decoded to until "
            "it is closed.",
        ) from error


Narrow = Callable[[pa.Table], pa.Table]


_TEXT = pa.dictionary(pa.int32(), pa.string())
_UNSTATED = {"start_ts": pa.int64()}
"""What no protocol states whose kernels note images."""
_KEPT = pa.schema(
    [(c, _TEXT) for c in ("topic", "schema_name", "table_name", "op", "incomplete")]
    + [("partition", pa.int32()), ("seq", pa.int32())]
    + [(c, pa.int64()) for c in ("commit_ts", "offset", *KEYS.names, *IMAGE_HASHES.names)]
)
"""What is kept of row changes where a log is not decoded whole: all that most questions need."""


@dataclass(frozen=True, slots=True)
class Again:
    """How what was not kept of a log (:data:`_KEPT`) is decoded again."""

    noted: pa.Table  # of images, :data:`ticdc_lab.codecs.kernel.noted.FORM`
    shares: tuple[pa.Table, ...]  # what each task read
    near: Callable[[pa.Table, Stretches], Batches]  # of a share, the messages with offsets in some stretches
    whole: Callable[[bool], StoredEvents]  # all, with images or without
    frame: Callable[[], DataFrame]  # all, for an engine
    held: list[tuple[Stretches, pa.Table]] = field(default_factory=list)  # few messages, and between which offsets


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """Files of :data:`ticdc_lab.events.schema.DECODED` that the workers of Spark read themselves."""

    spark: SparkSession  # the session
    files: tuple[str, ...]  # paths that all workers see
    events: int = 0  # how many they hold
    tables: frozenset[tuple[str, str]] | None = None  # which are read; all by default
    again: Again | None = None

    @property
    def by_spark(self) -> bool:
        """Whether Spark's workers read and shuffle them, and not this process."""
        return not computes_here(self.spark)

    def may_be_packed(self, key: str) -> bool:
        """Whether their row changes may be shuffled in packs by a bigint column.

        If very many share a value, Spark sorts its own rows on disk. A job reads that column, unless there are too few.
        """
        return self.events <= PACKED_OF_A_KEY or self._most_alike(key) <= PACKED_OF_A_KEY

    def _most_alike(self, column: str) -> int:
        """About how many row changes share a value of a bigint column, at most."""
        form = pa.schema([(column, pa.int64())])

        def counted(batches: Batches) -> Batches:
            n = np.zeros(_COUNTERS, dtype=np.int64)
            for batch in batches:
                n += np.bincount(bucket_of(batch[column], _COUNTERS), minlength=_COUNTERS)
            yield pa.record_batch([pa.array([n.tobytes()], pa.binary())], names=["n"])

        own = self.rows((column,), lambda rows: rows.filter(pc.is_valid(rows[column])), form)
        each = own.mapped(counted, "n binary").toArrow()["n"].to_pylist()
        return int(sum((np.frombuffer(n, dtype=np.int64) for n in each), np.zeros(1, dtype=np.int64)).max())

    def rows(
        self, columns: Iterable[str], narrow: Narrow, schema: pa.Schema,
        *, leaves: Sequence[str] = (), near: Stretches | None = None, kinds: Sequence[str] = ("row",),
    ) -> MadeByWorkers:  # fmt: skip
        """What a function makes of their row changes, some at a time: these columns, texts with dictionaries.

        ``leaves`` are parts of nested columns, such as ``columns.list.element.name``. Row groups without any of the
        offsets ``near`` are passed over. Where there are fewer files than cores, several tasks share the row groups of
        each. Events of other ``kinds`` are read if they are named.
        """
        named = [*dict.fromkeys(("kind", "error_class", *columns)), *leaves]
        parts, tables, again = ceil(parallelism(self.spark) / max(1, len(self.files))), self.tables, self.again

        def made(rows: pa.Table) -> Batches:
            own = narrow(rows if tables is None else _of_tables(rows, tables))
            yield from own.select(schema.names).cast(schema).to_batches()

        def narrowed(batch: pa.RecordBatch) -> Batches:
            asked = pc.is_in(batch["kind"], pa.array(kinds)) if len(kinds) > 1 else (
                pc.equal(batch["kind"], kinds[0])
            )  # fmt: skip
            at = np.flatnonzero(pc.fill_null(pc.and_(asked, pc.is_null(batch["error_class"])), False))
            return made(pa.table([_some_of(column, at) for column in batch.columns], batch.schema.names))

        def read(piece: tuple[str, int]) -> Batches:
            path, part = piece
            with left_as_it_was(Path(path)):
                for batch in (_in_arrow if path.endswith(ARROW) else _in_parquet)(path, part, parts, named, near):
                    yield from narrowed(batch)

        def kept(piece: tuple[str, int]) -> Batches:
            path, part = piece
            for rows in _kept_in(kept_file(Path(path)), part, parts):
                yield from made(rows)

        def decoded_again(share: pa.Table) -> Batches:
            assert again is not None
            assert near is not None
            of = _leaves_of(named)
            return chain.from_iterable(narrowed(_leaves_in(batch, of)) for batch in again.near(share, near))

        pieces = tuple((f, i) for f in self.files for i in range(parts))
        if again is None:
            return MadeByWorkers(self.spark, pieces, read, schema, self.events)
        if near is not None and np.sum(near[1] - near[0] + 1) <= HELD:
            few = tuple(self._named(again, near).to_batches())
            return MadeByWorkers(self.spark, few, lambda b: narrowed(_leaves_in(b, _leaves_of(named))), schema)
        if near is not None:
            return MadeByWorkers(self.spark, again.shares, decoded_again, schema)
        if {*columns} <= {*_KEPT.names, *_UNSTATED} and not leaves and [*kinds] == ["row"]:
            return MadeByWorkers(self.spark, pieces, kept, schema, self.events)
        whole = again.whole(bool(leaves) or not {*IMAGES}.isdisjoint(columns))
        return replace(whole, tables=tables).rows(columns, narrow, schema, leaves=leaves, kinds=kinds)

    def _named(self, again: Again, near: Stretches) -> pa.Table:
        """Few messages, as findings name them: they are decoded again for the first question about them."""
        for known, events in [*again.held]:
            if _are_within(near, known):
                return events.filter(lie_in(events["offset"], near))
        read = MadeByWorkers(self.spark, again.shares, lambda share: again.near(share, near), arrow_schema(DECODED))
        events = read.found(lambda batches: batches, read.schema)
        again.held[:] = [*again.held, (near, events)][-HELD_TIMES:]
        return events

    def in_memory(self, columns: Sequence[str]) -> pa.Table:
        """Columns of all their events, of a log that is small."""
        if self.again is not None:
            return self.again.whole(not {*IMAGES}.isdisjoint(columns)).in_memory(columns)
        whole = [arrow_schema(DECODED).empty_table().select(columns)]
        for file in map(Path, self.files):
            with left_as_it_was(file):
                for group in groups_in(file, [*columns, "error_class"]):
                    whole.append(group.filter(pc.is_null(group["error_class"])).select(columns))
        return pa.concat_tables(whole)


def _are_within(some: Stretches, others: Stretches) -> bool:
    """Whether each of some stretches is a part of one of others."""
    at = np.searchsorted(others[0], some[0], side="right") - 1
    return bool(np.all((at >= 0) & (some[1] <= np.append(others[1], -1)[at])))


def _of_tables(rows: pa.Table, tables: frozenset[tuple[str, str]]) -> pa.Table:
    names = zip(rows["schema_name"].to_pylist(), rows["table_name"].to_pylist(), strict=True)
    return rows.filter(pa.array([name in tables for name in names], pa.bool_()))


def _some_of(column: pa.Array, at: np.ndarray) -> pa.Array:
    """The values at rising places; lists are not copied if the others are empty, as all but rows have no images."""
    if len(at) and pa.types.is_list(column.type):
        offsets = column.offsets.to_numpy()
        begins = np.append(offsets[at], offsets[-1])
        if not begins[0] and np.array_equal(begins[1:], offsets[at + 1]):
            there = bits(column.is_valid().to_numpy(zero_copy_only=False)[at])
            return pa.Array.from_buffers(column.type, len(at), [there, pa.py_buffer(begins)], children=[column.values])
    return column.take(pa.array(at))


def _kept_in(path: Path, part: int, parts: int) -> Iterator[pa.Table]:
    """A part of what :func:`_kept_into` wrote."""
    with left_as_it_was(path), pa.memory_map(str(path)) as opened, pa.ipc.open_stream(opened) as kept:
        batches = [*kept]
        for batch in batches[_share(len(batches), part, parts)]:
            rows = pa.table(batch)
            for name, of in _UNSTATED.items():
                rows = rows.append_column(name, pa.nulls(len(rows), of))
            yield rows


def _share(n: int, part: int, parts: int) -> slice:
    """Which of ``n`` batches or row groups a part reads: neighbours, so that changes of a row come in their order."""
    return slice(ceil(n * part / parts), ceil(n * (part + 1) / parts))


def _in_parquet(path: str, part: int, parts: int, named: Sequence[str], near: Stretches | None) -> Batches:
    """Columns and leaves of a part's row groups, as of :meth:`StoredEvents.rows`."""
    texts = [n for n in named if (DECODED[n].dataType == StringType() if n in DECODED.names else n.endswith(".name"))]

    def has_one(file: pq.ParquetFile, group: int, near: Stretches) -> bool:
        offsets = file.read_row_group(group, ["offset"])["offset"]
        return bool(pc.any(lie_in(offsets, near)).as_py())

    with pq.ParquetFile(path, read_dictionary=texts) as file:
        # a group for itself: pyarrow joins no dictionaries inside of lists
        own = range(file.num_row_groups)[_share(file.num_row_groups, part, parts)]
        groups = (g for g in own if near is None or has_one(file, g, near))
        yield from chain.from_iterable(file.iter_batches(PACKED, [group], [*named]) for group in groups)


def _in_arrow(path: str, part: int, parts: int, named: Sequence[str], near: Stretches | None) -> Batches:
    """The same of a file in Arrow's form."""
    leaves = _leaves_of(named)
    for batch in _batches_of(path, [*leaves], part, parts):
        if near is None or pc.any(lie_in(batch["offset"], near)).as_py():
            whole = _leaves_in(batch, leaves)
            yield from (whole.slice(at, PACKED) for at in range(0, len(whole), PACKED))


def _leaves_of(named: Sequence[str]) -> dict[str, list[str]]:
    """Columns, each with the leaves of it that are named."""
    leaves: dict[str, list[str]] = {}
    for name, *leaf in (name.split(".list.element.") for name in named):
        leaves.setdefault(name, []).extend(leaf)
    return leaves


def _leaves_in(batch: pa.RecordBatch, leaves: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_coded(batch[name], some) for name, some in leaves.items()], [*leaves])


def _batches_of(path: str | Path, columns: Sequence[str], part: int = 0, parts: int = 1) -> Batches:
    """Columns of a part's batches of a file in Arrow's form, each read when it is asked for."""
    at = [DECODED.names.index(name) for name in columns]
    with pa.OSFile(str(path)) as opened:
        file = pa.ipc.open_file(opened, options=pa.ipc.IpcReadOptions(included_fields=at, use_threads=False))
        n = file.num_record_batches
        yield from map(file.get_batch, range(n)[_share(n, part, parts)])


def _coded(column: pa.Array, leaves: Sequence[str]) -> pa.Array:
    """Texts with dictionaries, and so the names in an image; an image keeps these leaves alone."""
    if not leaves:
        return column.dictionary_encode() if pa.types.is_string(column.type) else column
    cells = [column.values.field(leaf) for leaf in leaves]
    cells = [c.dictionary_encode() if leaf == "name" else c for leaf, c in zip(leaves, cells, strict=True)]
    some = pa.StructArray.from_arrays(cells, [*leaves])
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(pa.list_(some.type), len(column), buffers, offset=column.offset, children=[some])


@contextmanager
def written_to(path: Path) -> Iterator[Callable[[pa.Table], None]]:
    """What writes groups of :data:`ticdc_lab.events.schema.DECODED` into a file in the form that its name shows."""
    if path.suffix == ARROW:
        with (
            pa.OSFile(str(path), "wb") as opened,
            pa.ipc.new_file(opened, arrow_schema(DECODED), options=_LZ4) as arrow,
        ):
            yield lambda group: arrow.write_table(group.combine_chunks())
        return
    with pq.ParquetWriter(path, arrow_schema(DECODED), store_schema=False, write_statistics=_RANGES) as file:
        yield lambda group: file.write_table(group, row_group_size=max(1, len(group)))


@contextmanager
def _arrivals_into(path: Path) -> Iterator[Callable[[pa.RecordBatch], None]]:
    with pa.OSFile(str(path), "wb") as opened, pa.ipc.new_stream(opened, ARRIVED, options=_LZ4) as times:
        yield times.write_batch


def groups_in(path: Path, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """What :func:`written_to` wrote, with these columns or all."""
    names = [*columns] or DECODED.names
    if path.suffix == ARROW:
        yield from (pa.table(batch).select(names) for batch in _batches_of(path, names))
        return
    with pq.ParquetFile(path) as file:
        for i in range(file.num_row_groups):
            yield file.read_row_group(i, names).select(names)


def for_engines(files: Sequence[Path], threads: int) -> list[Path]:
    """The same files in Parquet, which engines read: those in Arrow's form are copied to it, in the same folder."""

    def in_parquet(path: Path) -> Path:
        if path.suffix != ARROW:
            return path
        draft = path.with_name(f"_{uuid4().hex[:12]}-{path.stem}.parquet")
        with left_as_it_was(path), room_for(path.parent, keep=True), written_to(draft) as write:
            for group in groups_in(path):
                write(group)
        return draft.replace(path.with_suffix(".parquet"))

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(in_parquet, files))


def packed(found: Messages) -> Messages:
    """The same in larger batches: laying out events takes milliseconds for each, however small it is.

    One that fills a pass of the decoder is not copied.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for messages, rejected in found:
        waiting.append(messages)
        rows, size = rows + messages.num_rows, size + messages.nbytes
        if rows >= ROWS_A_PASS or size >= _BYTES_A_BATCH or (rejected is not None and rejected.num_rows):
            yield _joined(waiting), rejected
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting), None


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _at_least(n: int, found: Batches) -> Batches:
    """The first batches, until they have ``n`` rows: fewer are all there are."""
    for batch in found:
        yield batch
        n -= batch.num_rows
        if n <= 0:
            return


def decoding(
    source: Source,
    protocol: str,
    known: Known,
    *,
    images: bool,
    first: int | None = None,
    skips: Skips = NO_SKIPS,
    threads: int = 1,
    noted: Noted | None = None,
) -> Decode:
    """Raw records to :data:`ticdc_lab.events.schema.DECODED`; of each task's share the ``first`` messages, or all.

    Messages in several files are left out by ``skips``; ``held``, of the returned function, receives
    what each file has. Each task decodes in so many ``threads``. ``noted`` receives what kernels note of images in
    place of making them, and which messages no kernel decodes.
    """
    read = source.reader(skips)
    if source.decode is not None:
        whole = source.decode(images or bool(known.handles))  # keys are hashed by values

        def of_files(batches: Batches, held: Held | None = None, arrived: object = None) -> Batches:
            found = keyed(whole(batches), known.handles, images=images) if known.handles else whole(batches)
            return found if first is None else _at_least(first, found)

        return of_files

    events = decoder(protocol, images=images, known=known)

    def decoded(found: _Block) -> list[pa.RecordBatch]:
        messages, rejected = found
        before = 0 if noted is None else noted.own.messages
        made = [*events(iter((messages,))), *([rejected] if rejected is not None and rejected.num_rows else ())]
        if noted is not None:
            left = messages.num_rows + before - noted.own.messages
            if left > 0 and left > (pc.sum(is_empty(messages)).as_py() or 0):
                noted.own.leave(messages)
        return made

    def run(batches: Batches, held: Held | None = None, arrived: list[pa.RecordBatch] | None = None) -> Batches:
        found, left = read(batches) if held is None else partial(read, held=held)(batches), first
        if arrived is not None:
            found = _noted(found, arrived)
        if left is None:
            blocks = _side_by_side(decoded, packed(found), threads) if threads > 1 else map(decoded, packed(found))
            yield from chain.from_iterable(blocks)
            return
        for messages, rejected in found:
            yield from decoded((messages.slice(0, left), rejected))
            left -= messages.num_rows
            if left <= 0:
                next(batches, None)  # a worker that has seen the end of its input is used again
                return

    return run


def _noted(found: Messages, arrived: list[pa.RecordBatch]) -> Messages:
    """The same; when the messages arrived at the broker (:data:`ticdc_lab.facts.stalls.ARRIVED`) is noted."""
    for messages, rejected in found:
        if "timestamp" in messages.schema.names and pa.types.is_timestamp(messages["timestamp"].type):
            us = messages["timestamp"].cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())
            own = pa.RecordBatch.from_arrays([*(messages[c] for c in ARRIVED.names[:3]), us], schema=ARRIVED)
            arrived.append(own.filter(pc.is_valid(us)) if us.null_count else own)
        yield messages, rejected


def decoded_near(
    source: Source, protocol: str, known: Known, *, images: bool, stamps: Mapping[str, os.stat_result]
) -> Callable[[pa.Table, Stretches], Batches]:
    """What decodes, of a share of raw records, the messages alone whose offsets lie in some stretches.

    ``stamps`` as of :meth:`ticdc_lab.sources.pieces.Source.require_unchanged`.
    """
    overlaps = source.overlaps_known
    read = source.reader(NO_SKIPS if overlaps is None else overlaps.skips)

    def run(share: pa.Table, near: Stretches) -> Batches:
        with source.said_plainly(), source.files_are_there():
            source.require_unchanged(stamps)
            found = (messages for messages, _ in read(iter(share.combine_chunks().to_batches())))
            some = (m.filter(lie_in(m["offset"], near)) for m in found)
            yield from decoder(protocol, images=images, known=known)(m for m, _ in packed((m, None) for m in some))

    return run


def _side_by_side(decode: _DecodeBlock, found: Messages, threads: int) -> Iterator[list[pa.RecordBatch]]:
    """The events of messages in their order: kernels run beside each other, and beside what uses earlier ones."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque[Future[list[pa.RecordBatch]]]()
        for some in found:
            waiting.append(pool.submit(copy_context().run, decode, some))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        yield from (last.result() for last in waiting)


def decoded_into(
    folder: Path, source: Source, protocol: str, known: Known, *, images: bool, kept: Narrow | None,
    noted: Noted | None = None,
) -> pa.Table:  # fmt: skip
    """Let the tasks decode a source into a new folder, each message once; :data:`WRITTEN` of each.

    ``kept`` as of :func:`writing`. ``noted`` receives what kernels note of images, and little is kept then. Which files
    repeat others is seen when all are read; then they are read again without that. Raises SourceError: the folder is
    there already, or not all machines of the cluster see it.
    """
    if folder.exists():
        raise SourceError(f"{folder} is there already.", hint="Name a FOLDER that does not exist yet.")
    folder.mkdir(parents=True)
    spark, several = source.spark, is_several_machines(source.spark)

    def written() -> pa.Table:
        overlaps = source.overlaps_known
        hold = source.of_several_files and overlaps is None
        skips = NO_SKIPS if overlaps is None else overlaps.skips
        threads = min(DECODERS, parallelism(spark) // len(source.shares)) if source.shares else 1
        decode = decoding(source, protocol, known, images=images, skips=skips, threads=threads, noted=noted)
        form = ".parquet" if is_wanted(spark) else ARROW
        write = writing(decode, str(folder), kept=kept, hold=hold, form=form, noted=noted is not None)
        found = source.found(write, arrow_schema(WRITTEN))
        require_shared(found["file"].to_pylist())
        if not hold or not source.learn_overlaps(found["held"].to_pylist()).skips:
            return found
        for file in found["file"].to_pylist():
            removed(Path(file))
        if noted is not None:
            noted.clear()
        return written()

    try:
        if several:
            require_seen(spark, folder)
        found = written()
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if several and (path := unseen(error)):
            raise unshared(path, "a Spark worker") from error
        raise
    cleared(folder)
    return found


def writing(
    decode: Decode,
    folder: str,
    *,
    kept: Narrow | None = None,
    hold: bool = False,
    form: str = ".parquet",
    noted: bool = False,
) -> Callable[[Batches], Batches]:
    """Decode, and write :data:`ticdc_lab.events.schema.DECODED` into a file in ``folder`` for each task.

    Yields :data:`WRITTEN`; a file that no row names was left by an attempt that failed. With ``kept`` everything is
    counted and only what it gives is written. With ``hold`` each task reports what its files contain. What the
    events state is gathered on the way (:func:`facts_file`): to read them once more costs several times as much.
    ``form`` is how names of files end: Parquet, or :data:`ARROW`. ``noted``: of events only row changes are written
    (:data:`_KEPT`), beside the messages that could not be decoded (:func:`kept_file`).
    """

    def run(batches: Batches) -> Batches:
        first, batches = _peeked(batches)
        held = Held() if hold else None
        path = Path(folder) / f"part-{_number(first):012d}-{uuid4().hex[:12]}{form}"
        counts = dict.fromkeys(COUNTED, 0)
        with (
            written_to(path) as write,
            pq.ParquetWriter(facts_file(path), FACTS) as facts,
            _arrivals_into(arrivals_file(path)) as write_times,
            _kept_into(path, write) if noted else nullcontext(write) as write_some,
            ThreadPoolExecutor(1) as pool,
        ):
            written: Future[None] | None = None
            arrived, most = list[pa.RecordBatch](), BYTES_A_GROUP // 3 if form == ARROW else BYTES_A_GROUP
            counting = _tallied(decode(batches, held, arrived), path.with_name(f"{_SO_FAR}{path.stem}"))
            for group in _groups(counting, most):
                group = group.combine_chunks() if noted else group  # which all that follows would do
                for name, n in _counted(group).items():
                    counts[name] += n
                part = group if kept is None else kept(group)
                counts["kept"] += pc.sum(pc.equal(part["kind"], "row")).as_py() or 0
                if written is not None:
                    written.result()
                if len(part):  # while the next is decoded
                    written = pool.submit(write_some, part)
                facts.write_table(_facts_of(group, part))
                while arrived:
                    write_times(arrived.pop())
            if written is not None:
                written.result()
        said = {"file": str(path)} | counts | {"held": None if held is None else held.said()}
        yield pa.RecordBatch.from_pylist([said], arrow_schema(WRITTEN))

    return run


@contextmanager
def _kept_into(path: Path, write: Callable[[pa.Table], None]) -> Iterator[Callable[[pa.Table], None]]:
    """What writes of events the row changes (:data:`_KEPT`), and the messages that could not be decoded as they are."""
    with pa.OSFile(str(kept_file(path)), "wb") as opened, pa.ipc.new_stream(opened, _KEPT) as out:

        def write_some(part: pa.Table) -> None:
            refused = np.asarray(pc.is_valid(part["error_class"]))
            if refused.any():
                write(part.filter(pa.array(refused)).select(DECODED.names))
            rows = part.select(_KEPT.names).filter(pa.array(are(part["kind"], "row") & ~refused))
            kept = [_of_few(rows[f.name]) if f.type == _TEXT else rows[f.name] for f in _KEPT]
            out.write_table(pa.table(kept, schema=_KEPT).combine_chunks())

        yield write_some


def _of_few(texts: pa.ChunkedArray) -> pa.DictionaryArray:
    """Texts with a dictionary of their own: the dictionary of a batch has the names of all columns, too."""
    if not pa.types.is_dictionary(texts.type):
        return texts.combine_chunks().dictionary_encode()
    whole = texts.combine_chunks()
    there = np.zeros(len(whole.dictionary) + 1, np.bool_)
    there[whole.indices.fill_null(len(whole.dictionary)).to_numpy()] = True
    used = np.flatnonzero(there[:-1])
    place = np.cumsum(there, dtype=np.int32) - 1
    at = pa.array(place[whole.indices.fill_null(0).to_numpy()], mask=np.asarray(whole.indices.is_null()))
    return pa.DictionaryArray.from_arrays(at, whole.dictionary.take(pa.array(used)))


def kept_file(written: Path) -> Path:
    """Where a task keeps what a question needs of its events, beside the file of events."""
    return written.with_name(f"_kept-{written.stem}")


def _facts_of(group: pa.Table, part: pa.Table) -> pa.Table:
    """What a part of some events states; and which offsets all of them have, since what is left out is no gap."""
    stated = pa.Table.from_batches(gathered(_events_of(part)), FACTS)
    if part is group:
        return stated
    whole = pa.Table.from_batches(gathered(_events_of(group)), FACTS)
    offsets = whole.filter(pc.equal(whole["fact"], "offsets"))
    return pa.concat_tables([stated, offsets.set_column(0, "fact", pa.array([LEFT_OUT] * len(offsets), pa.string()))])


def _events_of(decoded: pa.Table) -> Batches:
    """What gathering facts reads of the events among what was decoded, in one batch; no image is copied for it."""
    narrow, error = pa.Table.from_batches(narrow_batches(decoded)), decoded["error_class"]
    events = narrow if error.null_count == len(error) else narrow.filter(pc.is_null(error))
    return iter(events.combine_chunks().to_batches())


def facts_file(written: Path) -> Path:
    """Where a task keeps what the events of its file state (:data:`ticdc_lab.facts.gathering.FACTS`).

    Its name begins so that readers of the folder pass it over, and ends so that ``*.parquet`` does.
    """
    return written.with_name(f"_facts-{written.stem}")


def arrivals_file(written: Path) -> Path:
    """Where a task keeps when its messages arrived at the broker (:data:`ticdc_lab.facts.stalls.ARRIVED`)."""
    return written.with_name(f"_arrivals-{written.stem}")


def removed(written: Path) -> None:
    """Remove what a task wrote."""
    for file in (written, facts_file(written), arrivals_file(written), kept_file(written)):
        file.unlink(missing_ok=True)


def _number(first: pa.RecordBatch | None) -> int:
    """Orders the files of all tasks: where what a task reads was numbered, by its first number."""
    if first is not None and first.num_rows and "number" in first.schema.names:
        return int(first["number"][0].as_py())
    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def _peeked(batches: Batches) -> tuple[pa.RecordBatch | None, Batches]:
    first = next(batches, None)
    return first, batches if first is None else chain([first], batches)


def so_far(folder: Path) -> int:
    """Messages that the tasks of :func:`writing` have decoded until now; 0 once :func:`cleared`."""
    said = [_said(p) for p in folder.glob(f"{_SO_FAR}*")]
    return sum(int(n) for n in said if n.isdigit())


def cleared(folder: Path) -> None:
    """Remove what :func:`so_far` reads."""
    for file in folder.glob(f"{_SO_FAR}*"):
        file.unlink(missing_ok=True)


def _said(file: Path) -> str:
    with suppress(OSError):
        return file.read_text()
    return ""


def _tallied(batches: Batches, place: Path) -> Batches:
    """The same, and periodically the number of messages so far in a small file: Spark knows whole tasks only.

    It is written over itself, as it never gets shorter: a file that takes another's place is flushed to the disk, which
    takes a tenth of the time of a task.
    """
    messages, due = 0, 0.0
    for batch in batches:
        messages += pc.sum(pc.equal(pc.fill_null(batch["seq"], 0), 0)).as_py() or 0
        if time.monotonic() >= due:
            due = time.monotonic() + _SAID_EVERY_S
            said = os.open(place, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.write(said, str(messages).encode())
            finally:
                os.close(said)
        yield batch


def unseen(error: BaseException) -> str | None:
    """The path that a worker could not find, if that is what it failed with."""
    found = re.search(r"FileNotFoundError: [^\n]*?'([^'\n]+)'", str(error))
    return found[1] if found else None


def require_shared(files: Iterable[str]) -> None:
    """Raise :class:`SourceError` unless this machine sees what the workers have written."""
    if lost := next((file for file in files if not Path(file).exists()), None):
        raise unshared(lost, "the driver")


def require_seen(spark: SparkSession, folder: Path) -> None:
    """Raise :class:`SourceError` unless the workers see a folder of this machine.

    One task a core asks. A worker that shows up later is found out when it writes (:func:`unseen`).
    """
    cores = parallelism(spark)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_SO_FAR) as mark:
        path = mark.name

        def lost(batches: Batches) -> Batches:
            for batch in batches:
                if not Path(path).exists():
                    yield batch.slice(0, 1)

        if spark.range(0, cores, 1, cores).mapInArrow(lost, "id bigint").toArrow().num_rows:
            raise unshared(str(folder), "a Spark worker")


def unshared(path: str, who: str) -> SourceError:
    """The error of a path that does not lead to the same place on all machines."""
    return SourceError(
        f"{path} is there on one machine of the cluster, but not on all: {who} does not see it.",
        hint="Take a folder that the driver and all workers share under one path, or a URL such as s3a://..",
    )


def _groups(batches: Batches, most: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and batch.schema is not held[0].schema and batch.schema.names != held[0].schema.names:
            yield pa.Table.from_batches(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
        if size >= most:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _counted(group: pa.Table) -> dict[str, int]:
    ok = np.asarray(pc.is_null(group["error_class"]))
    seq = np.asarray(pc.fill_null(group["seq"], -1))
    undated = are(group["kind"], "row") & np.asarray(pc.is_null(group["commit_ts"]))
    incomplete, faults = group["incomplete"].drop_null(), group["error_class"].drop_null()
    parts = int(np.count_nonzero(~ok & (seq > 0)))
    return {
        "decoded": int(np.count_nonzero(ok & (seq == 0))),
        "quarantined": len(faults) - parts,
        "events": len(group) - len(faults),
        "parts": parts,
        "empty": pc.sum(pc.equal(faults, EMPTY_MESSAGE)).as_py() or 0,
        "damaged": pc.sum(pc.is_in(faults, pa.array(ENDS))).as_py() or 0,
        "undated": int(np.count_nonzero(ok & undated)),
        "watermarks": int(np.count_nonzero(ok & are(group["kind"], "watermark"))),
        "incomplete": len(incomplete),
        "unnamed": pc.sum(pc.equal(incomplete, BEFORE_UNNAMED)).as_py() or 0,
    }
