"""A source: raw records, cut into pieces, and the function over Arrow batches that turns them into messages.

A row on its way between the engine and Python passes through the engine's own rows and a socket, which costs as much as
decoding it. So tasks are given names of files, and what of them to read.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from io import SEEK_END
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ticdc_lab.codecs.decode import at_once, is_empty
from ticdc_lab.codecs.detection import Detected
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import AT_ONCE, BOUNDS
from ticdc_lab.engine import is_sail, parallelism
from ticdc_lab.engine.failures import task_errors
from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.engine.memory import require_memory_left
from ticdc_lab.engine.object_stores import Store
from ticdc_lab.engine.shuffle import Kernel, by_threads, dealt_out
from ticdc_lab.errors import SourceError
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.facts.known import LostFiles, LostSchema
from ticdc_lab.settings import Setting, Settings
from ticdc_lab.sources import capture, dumps, parquet
from ticdc_lab.sources.dump_files import DumpFiles
from ticdc_lab.sources.forms import CAPTURE
from ticdc_lab.sources.overlaps import (
    Held,
    Overlaps,
    SharedStretch,
    Skips,
    digests,
    numbered,
    overlaps_of,
    whole_runs,
    without,
)
from ticdc_lab.sources.places import Size
from ticdc_lab.sources.refused_forms import refused_hint
from ticdc_lab.words import count

Reader = Callable[[Batches], Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]]
Find = Callable[[Batches], Batches]


@dataclass(frozen=True, slots=True)
class Source:
    """Raw records, and how to read messages (and what is none) from them."""

    name: str
    spark: SparkSession
    frame: Callable[[], DataFrame]
    """Gives ``raw``, for which an engine runs."""
    read: Reader
    pieces: pa.Table | None = None
    """What ``raw`` contains, where the driver can read it too: messages are then inspected without a job."""
    shares: tuple[pa.Table, ...] = ()
    """What of ``raw`` each task reads, where this process can read it too."""
    of_engine: Callable[[], DataFrame] | None = None
    """Gives the messages, where the engine can read them by itself."""
    told: Detected | None = None
    """What the messages are, where the source itself defines it."""
    decode: Callable[[bool], Callable[[Batches], Batches]] | None = None
    """Raw records to events, with or without images, where messages alone do not suffice."""
    expected: Callable[[], DataFrame] | None = None
    """Gives which offsets should be there (:data:`ticdc_lab.sources.kafka.EXPECTED`), where the source knows."""
    said_plainly: Callable[[], AbstractContextManager[None]] = nullcontext
    """Wraps reading: an error of this kind of source leaves it as a SourceError."""
    kind: str = ""
    """One of :data:`KINDS`."""
    measure: Callable[[], Size] = Size
    """How large it is, without reading it."""
    shown: tuple[Setting, ...] = ()
    """Settings of the changefeed that opening it showed."""
    read_by: Callable[[Settings], Source] | None = None
    """A storage folder, read by other settings without another listing."""
    lost_files: tuple[LostFiles, ...] = ()
    unread_files: Callable[[Collection[tuple[int, int]]], tuple[LostFiles, ...]] | None = None
    """Of a storage folder, by partitions and offsets in the quarantine: those that are there and are not whole."""
    places_in_files: Callable[[Collection[tuple[int, int]]], Mapping[tuple[int, int], str]] = lambda _: {}
    """Of a storage folder: partitions and offsets as files and lines."""
    lost_schemas: tuple[LostSchema, ...] = ()
    left_out: tuple[str, ...] = ()
    """What lies in the folder and is not read, a sentence each."""
    guesses: tuple[str, ...] = ()
    """What was worked out from its files without proof, and the option that sets it, a sentence each."""
    line: int = BOUNDS.line
    """Bytes that a line of a capture file may have."""
    store: Store | None = None
    """Where its files lie; None for this machine, and where the engine finds them."""
    dumped: DumpFiles | None = None
    """Which of its files are dumps of other tools, and in which form."""
    _overlaps: list[Overlaps] = field(default_factory=list, repr=False, compare=False)

    @property
    def raw(self) -> DataFrame:
        """Raw records."""
        return self.frame()

    @property
    def table(self) -> DataFrame | None:
        """The messages, where the engine can read them by itself."""
        return None if self.of_engine is None else self.of_engine()

    def found(self, kernel: Kernel, form: pa.Schema) -> pa.Table:
        """What a kernel makes of the raw records of each task, at once: little.

        Beside the embedded engine threads of this process make it. The engine runs only for what it alone can read.
        Raises SourceError: a file that was there when the source was opened cannot be read.
        """
        if not is_sail(self.spark):
            return self.raw.mapInArrow(kernel, from_arrow_schema(form)).toArrow().cast(form)
        read_here = [partial(iter, share.combine_chunks().to_batches()) for share in self.shares]
        parts = read_here or dealt_out(self.raw, parallelism(self.spark))
        with self.files_are_there():
            return by_threads(self.spark, parts, kernel, form)

    @contextmanager
    def files_are_there(self) -> Iterator[None]:
        """A file that was there when the source was opened, and cannot be read, becomes a :class:`SourceError`."""
        try:
            yield
        except OSError as error:
            lost = next((file for file in self._files() if file in str(error)), None)
            if lost is None:
                raise
            raise SourceError(
                f"{lost} cannot be read any more: {error.strerror or 'it was there when the log was opened'}.",
                hint=f"Check that it is still there and may be read, then run it again: ls -l {shlex.quote(lost)}",
            ) from error

    def stamps(self) -> dict[str, os.stat_result]:
        """Size and time of its files, where they lie on this machine."""
        return {} if self.store is not None else {file: os.stat(file) for file in self._files()}

    def require_unchanged(self, stamps: Mapping[str, os.stat_result]) -> None:
        """Raise SourceError if a file is no more what it was, as :meth:`stamps` gave it; it may have grown."""
        for file, then in stamps.items():
            now = os.stat(file)
            same = now.st_ino == then.st_ino and (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns)
            if not same and (now.st_ino != then.st_ino or now.st_size <= then.st_size):
                raise self.has_changed(file)

    def has_changed(self, what: str) -> SourceError:
        """The error of a source that is read once more and is another one."""
        return SourceError(
            f"{what} was changed after the log was opened, and this question needs values that were not kept.",
            hint="Open it again: ticdc_lab.open(..).",
        )

    @property
    def messages(self) -> DataFrame:
        """:data:`ticdc_lab.events.schema.MESSAGES`; what is no message is left out here and shows in the quarantine.

        A message in several files occurs as often.
        """
        read = self.read

        def run(batches: Batches) -> Batches:
            return (messages for messages, _ in read(batches))

        found = self.table
        return self.raw.mapInArrow(run, MESSAGES) if found is None else found

    def gathered(self, find: Find, form: StructType) -> pa.Table:
        """What ``find`` gives for the messages of each task, in the columns of ``form``: a few rows."""
        read = self.read

        def run(batches: Batches) -> Batches:
            return find(messages for messages, _ in read(batches))

        with self.said_plainly(), task_errors():
            return self.found(run, arrow_schema(form))

    def reader(self, skips: Skips) -> Callable[..., Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]]:
        """Read without what ``skips`` names; of several files it takes ``held``, which receives what each has."""
        if not self.of_several_files:
            return self.read
        return partial(read, line=self.line, store=self.store, dumped=self.dumped, skips=skips)

    @property
    def lost(self) -> frozenset[str]:
        """What a dump of another tool does not have (:data:`ticdc_lab.sources.forms.LOSSES`)."""
        return frozenset() if self.dumped is None else self.dumped.lost

    @property
    def of_several_files(self) -> bool:
        """Whether recordings may overlap here."""
        return len(self._files()) > 1

    def _files(self) -> Sequence[str]:
        if self.pieces is None or "file" not in self.pieces.column_names:
            return ()
        return list(dict.fromkeys(self.pieces["file"].to_pylist()))

    @property
    def overlaps_known(self) -> Overlaps | None:
        """Repeats in its files, if they were looked for."""
        return self._overlaps[0] if self._overlaps else None

    @property
    def overlaps(self) -> Overlaps:
        """Repeats in its files: of several files all messages' places are read, once."""
        if not self.of_several_files:
            return Overlaps({})
        if not self._overlaps:
            told = partial(what_files_hold, line=self.line, store=self.store, dumped=self.dumped)
            with self.said_plainly(), task_errors():
                self.learn_overlaps(self.found(told, _HELD)["held"].to_pylist())
        return self._overlaps[0]

    def learn_overlaps(self, said: Iterable[str]) -> Overlaps:
        """Repeats in its files, from what :meth:`ticdc_lab.sources.overlaps.Held.said` of all tasks."""

        def compare(of: Sequence[SharedStretch], skips: Skips) -> Iterable[tuple[int, int, int]]:
            told = partial(compared, line=self.line, store=self.store, dumped=self.dumped, of=of, skips=skips)
            return (tuple(row.values()) for row in self.found(told, DIGESTS).to_pylist())

        self._overlaps[:] = [overlaps_of(whole_runs(said), self._files(), compare)]
        return self._overlaps[0]

    def sample(self, n: int) -> pa.Table:
        """Up to ``n`` of the first messages, read by the driver; those without a key and a value are passed over.

        Of large ones, fewer: about as many bytes as are decoded at once. Where nothing else is found, these are given.
        """
        with self.said_plainly():
            batches = iter(self.raw.limit(n).toArrow().to_batches()) if self.pieces is None else self._one_by_one()
            found = self._first(n, batches)
            if self.pieces is None and found.num_rows == n and pc.all(is_empty(found)).as_py():
                found = self._first(n, iter(self.raw.limit(_PASSED_OVER * n).toArrow().to_batches()))
        return found

    def heads_of_files(self, n: int) -> pa.Table:
        """All that :meth:`heads_by_file` finds."""
        return pa.concat_tables(self.heads_by_file(n).values())

    def heads_by_file(self, n: int) -> dict[str, pa.Table]:
        """Up to ``n`` of the first messages of each of up to :data:`FILES_LOOKED_AT` files, read by the driver."""
        if self.pieces is None or not self.of_several_files:
            return {}
        begins = dict(reversed([(file, i) for i, file in enumerate(self.pieces["file"].to_pylist())]))
        some = sorted(begins.items(), key=itemgetter(1))[:FILES_LOOKED_AT]
        return {file: self._first(n, iter(self.pieces.slice(i, 1).to_batches())) for file, i in some}

    def refusal(self) -> SourceError | None:
        """Why none of the first records is a message; None where there are none."""
        if self.pieces is None or not self.pieces.num_rows:
            return None
        for _, rejected in self.read(iter(self.pieces.slice(0, 1).to_batches())):
            if rejected is not None and rejected.num_rows:
                first = rejected.slice(0, 1).to_pylist()[0]
                said = first["reason"].removeprefix(f"{self.pieces['file'][0].as_py()}, ")
                said = said[0].upper() + said[1:] if said.startswith(("line ", "row ")) else f"Line 1: {said}"
                is_replaced = first["error_class"].endswith(":re-encoded")
                return SourceError(
                    f"{self.name}: none of its first records is a message. {said}",
                    hint="Record the topic as bytes: ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz"
                    if is_replaced
                    else refused_hint(self.name, first["value"] or b""),
                )
        return None

    def _first(self, n: int, batches: Batches) -> pa.Table:
        found, nothing = list[pa.RecordBatch](), list[pa.RecordBatch]()
        for messages in (some for read, _ in self.read(batches) for some in at_once(read)):
            without = is_empty(messages)
            found.append(messages.filter(pc.invert(without)).slice(0, n))
            nothing.append(messages.filter(without).slice(0, n))
            if sum(b.num_rows for b in found) >= n or sum(b.nbytes for b in found) >= AT_ONCE:
                break
        some = found if any(b.num_rows for b in found) else nothing
        whole = arrow_schema(MESSAGES)  # Parquet gives what decoding needs alone
        return (pa.Table.from_batches(some) if some else whole.empty_table()).slice(0, n)

    def _one_by_one(self) -> Batches:
        assert self.pieces is not None
        return (batch for batch in self.pieces.to_batches(max_chunksize=1))


_HELD = pa.schema([("held", pa.string())])
_PASSED_OVER = 64
"""So many times the messages of a sample are read where its first ones are empty."""

FILES_LOOKED_AT = 64
"""Files of a folder into which the driver looks before anything is read."""


def as_they_are(batches: Batches) -> Iterator[tuple[pa.RecordBatch, None]]:
    """Batches that are messages already."""
    for batch in batches:
        yield batch, None


PIECES = pa.schema([("number", pa.int64()), ("file", pa.string()), ("first", pa.int64()), ("last", pa.int64())])
"""A file, and of it a row group (``first``), a range of bytes (``first`` up to before ``last``), or all of a gzip."""

DIGESTS = pa.schema([("stretch", pa.int64()), ("counts", pa.int64()), ("digest", pa.int64())])

NO_SKIPS: Skips = {}

RANGE_BYTES = 32 << 20
"""How much of a plain file is a piece."""

FILES_LOOKED_INTO = 20_000
"""Up to so many Parquet files the driver reads the footers of; beyond, the engine plans the reading."""
_TASKS_A_CORE = 2
_PIECES_A_TASK = 32
_BYTES_A_TASK = 64 << 20

Piece = tuple[str, int, int]
_Found = tuple[pa.RecordBatch, pa.RecordBatch | None]


def of_lines(files: Sequence[Path], range_bytes: int | None = None) -> list[Piece]:
    """Pieces of capture files: ranges of plain ones, gzip files as a whole."""
    return of_sizes([(str(file.resolve()), file.stat().st_size) for file in files], range_bytes)


def of_sizes(files: Iterable[tuple[str, int]], range_bytes: int | None = None) -> list[Piece]:
    """As :func:`of_lines`, of names and sizes."""
    found = list[Piece]()
    for path, size in files:
        found += [(path, 0, 0)] if path.endswith(".gz") else _ranges(path, size, range_bytes)
    return found


def _ranges(path: str, size: int, range_bytes: int | None) -> list[Piece]:
    step = range_bytes or RANGE_BYTES
    return [(path, at, min(at + step, size)) for at in range(0, size, step)]


def of_dumps(
    sizes: Mapping[str, int], dumped: DumpFiles, *, are_here: bool, range_bytes: int | None = None
) -> tuple[list[Piece], DumpFiles]:
    """Pieces of files among which are dumps of other tools, and what is known of these.

    A dump is cut where records begin with lines. Lines are counted for their numbers in files that ``are_here``, on
    this machine; elsewhere a dump whose records have no other place than that number is read as a whole.
    """
    found, lines = list[Piece](), {}
    for file, size in sizes.items():
        if (known := dumped.form(file)) is None:
            found += of_sizes([(file, size)], range_bytes)
            continue
        form, assumed = known
        is_cut = assumed.is_cut and (are_here or not form.is_numbered)
        some = _ranges(file, size, range_bytes) if is_cut else [(file, 0, size)]
        found += some
        if are_here and len(some) > 1:
            with Path(file).open("rb") as opened:
                lines[file] = dumps.lines_begun(opened, [first for _, first, _ in some[1:]], form)
    return found, dumped.with_lines(lines)


def of_parquet(files: Sequence[Path]) -> list[Piece] | None:
    """Row groups; None where reading the files is the engine's: very many, or types that need a conversion."""
    if len(files) > FILES_LOOKED_INTO:
        return None
    groups = parquet.row_groups(files)
    return None if groups is None else [(path, group, 0) for path, group in groups]


def table_of(pieces: Sequence[Piece]) -> pa.Table:
    """:data:`PIECES`."""
    numbered = [range(len(pieces)), *zip(*pieces, strict=True)]
    return pa.Table.from_pydict(dict(zip(PIECES.names, numbered, strict=True)), PIECES)


def n_tasks(spark: SparkSession, pieces: pa.Table, n_bytes: int | None = None) -> int:
    """How many tasks read pieces: few if they are small; ``n_bytes`` is their size, where known."""
    n_large = len(pieces) // _PIECES_A_TASK
    large = n_large if n_bytes is None else min(n_large, n_bytes // _BYTES_A_TASK)
    return min(len(pieces), max(_TASKS_A_CORE * parallelism(spark), large))


def shares(pieces: pa.Table, n_tasks: int) -> tuple[pa.Table, ...]:
    """What each task reads of pieces: neighbours, so that changes of a row come in their order."""
    ends = [i * len(pieces) // max(1, n_tasks) for i in range(n_tasks + 1)]
    return tuple(pieces.slice(a, b - a) for a, b in pairwise(ends))


def read(
    batches: Batches,
    line: int = BOUNDS.line,
    *,
    store: Store | None = None,
    dumped: DumpFiles | None = None,
    skips: Skips = NO_SKIPS,
    held: Held | None = None,
) -> Iterator[_Found]:
    """Rows of :data:`PIECES` to messages, and to what is none; ``line`` is how many bytes a line may have.

    The files lie in ``store``, or on this machine; ``dumped`` are those in the forms of other tools. What ``skips``
    names is left out; ``held`` receives what each file has.
    """
    for batch in batches:
        for file, first, last in zip(*(batch[name].to_pylist() for name in PIECES.names[1:]), strict=True):
            for messages, rejected in read_piece(file, first, last, line, store, dumped):
                still_wanted()
                require_memory_left()
                if held is not None:
                    held.note(file, messages)
                yield without(messages, skips[file]) if file in skips else messages, rejected


def compared(
    batches: Batches,
    line: int,
    of: Sequence[SharedStretch],
    skips: Skips,
    *,
    store: Store | None = None,
    dumped: DumpFiles | None = None,
) -> Batches:
    """Rows of :data:`PIECES` to rows of :func:`ticdc_lab.sources.overlaps.digests`."""
    by_file = numbered(of)
    for batch in batches:
        for file, first, last in zip(*(batch[name].to_pylist() for name in PIECES.names[1:]), strict=True):
            for messages, _ in read_piece(file, first, last, line, store, dumped) if file in by_file else ():
                still_wanted()
                rows = list(digests(file, messages, by_file, skips))
                yield pa.RecordBatch.from_pylist([dict(zip(DIGESTS.names, row, strict=True)) for row in rows], DIGESTS)


def what_files_hold(
    batches: Batches, line: int, *, store: Store | None = None, dumped: DumpFiles | None = None
) -> Batches:
    """Rows of :data:`PIECES` to one row with what their files have."""
    held = Held()
    for _ in read(batches, line, store=store, dumped=dumped, held=held):
        pass
    yield pa.RecordBatch.from_pydict({"held": [held.said()]})


def read_piece(
    file: str,
    first: int,
    last: int,
    line: int = BOUNDS.line,
    store: Store | None = None,
    dumped: DumpFiles | None = None,
) -> Iterator[_Found]:
    """Messages of a piece, and what of it is none."""
    found = None if dumped is None else dumped.form(file)
    if file.endswith(".parquet") and found is None:
        yield from parquet.read_group(file, first)
        return
    open_one = dumps.opened_here if store is None else lambda name: store.open(store.below(name))
    with open_one(file) as opened:
        size, is_packed = opened.seek(0, SEEK_END), file.endswith(".gz")
        if size < (1 if is_packed else max(last, 1)):
            raise SourceError(
                f"{file} was cut after the log was opened: {count(size, 'byte is', 'bytes are')} left.",
                hint=f"Copy {file} again, or wait until its writer has finished it, and open the log again.",
            )
        opened.seek(0)
        if found is not None and found[0].name != CAPTURE:
            span = (first, last) if found[1].is_cut else None
            yield from dumps.read_file(opened, file, *found, line, span, opened=open_one)
        elif found is not None:  # its name means another packing than its bytes
            yield from _ahead(capture.read_whole(opened, file, line))
        elif is_packed:
            yield from _ahead(capture.read_gzip(opened, file, line))
        else:
            yield from capture.read_range(opened, file, first, last, line)


def _ahead(found: Iterator[_Found]) -> Iterator[_Found]:
    """The same, each read while the one before is decoded: one task has a packed file, and another core has time.

    The first is read alone, as a preview needs no more.
    """
    yield from islice(found, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, found, None)
        while (read := waiting.result()) is not None:
            waiting = pool.submit(next, found, None)
            yield read
