"""Files cut into pieces, of this machine or an object store: what a task, or the driver, reads by itself.

A row on its way between the engine and Python passes through the engine's own rows and a socket, which costs as much
as decoding it. So tasks are given names of files, and what of them to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import SEEK_END
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from ticdc_lab.codecs.known import BOUNDS
from ticdc_lab.engine import parallelism
from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.engine.object_stores import Store
from ticdc_lab.errors import SourceError
from ticdc_lab.events.arrays import Batches
from ticdc_lab.sources import capture, dumps, parquet
from ticdc_lab.sources.dump_files import DumpFiles
from ticdc_lab.sources.forms import CAPTURE
from ticdc_lab.sources.overlaps import Held, SharedStretch, Skips, digests, numbered, without
from ticdc_lab.words import count

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
                lines[file] = dumps.lines_begun(opened, [first for _, first, _ in some[1:]])
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
    """What each task reads of pieces."""
    return tuple(pieces.take(list(range(i, len(pieces), n_tasks))) for i in range(n_tasks))


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
