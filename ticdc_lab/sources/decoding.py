"""From the raw records of a source to decoded events, in the tasks that read them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ticdc_lab.codecs import Known, decoder, log_types
from ticdc_lab.codecs.decode import FRAMED, ROWS_A_PASS, could_be_keys
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.handles import keyed
from ticdc_lab.codecs.known import BOUNDS, Bounds
from ticdc_lab.codecs.schema_registry import Registry, read_registered, require_url
from ticdc_lab.codecs.simple_tables import COUNTED_TABLES, TABLES, contradictions, finder, tables_of
from ticdc_lab.errors import SourceError
from ticdc_lab.events.arrays import Batches
from ticdc_lab.sources import Source, local_path, parquet
from ticdc_lab.sources.overlaps import Held, Skips
from ticdc_lab.sources.pieces import NO_SKIPS

_Block = tuple[pa.RecordBatch, pa.RecordBatch | None]
_DecodeBlock = Callable[[_Block], list[pa.RecordBatch]]
Messages = Iterator[_Block]
Gathered = Callable[[Callable[[Batches], Batches], StructType], pa.Table]
"""What a function gives for the messages of a log, as :meth:`ticdc_lab.sources.opening.Source.gathered`."""

_BYTES_A_BATCH = 16 << 20

DECODERS = 3
"""Threads of one task that decode, at most: one that inflates and reads lines has no messages for more."""


def known_of(schema_registry: str | None, claim_check: str | None, bounds: Bounds = BOUNDS) -> Known:
    """The caller's arguments for decoding; they and errors are as of :func:`ticdc_lab.sources.load.load`."""
    if claim_check is not None and (folder := local_path(claim_check)) is not None and not folder.is_dir():
        raise SourceError(
            f"The claim-check folder {claim_check} does not exist.",
            hint="Name the folder of the changefeed's claim-check storage: --claim-check FOLDER",
        )
    if schema_registry is None:
        return Known(claim_check=claim_check, bounds=bounds)
    if (file := local_path(schema_registry)) is not None:
        schemas, subjects = read_registered(str(file))
        return Known(schemas=schemas, subjects=subjects, claim_check=claim_check, bounds=bounds)
    return Known(registry_url=require_url(schema_registry), claim_check=claim_check, bounds=bounds)


def with_table_versions(gathered: Gathered, known: Known) -> tuple[Known, tuple[str, ...]]:
    """The table versions of a log in the simple protocol: few, as there are DDL, however long the log is."""
    found = gathered(finder(known), COUNTED_TABLES).group_by(TABLES.names).aggregate([("n", "sum")])
    rows = found.rename_columns({"n_sum": "n"}).to_pylist()
    return replace(known, tables=tables_of(rows)), contradictions(rows)


def with_log_types(gathered: Gathered, sample: pa.Table, known: Known) -> tuple[Known, tuple[str, ...]]:
    """What decoding debezium needs of its log, and what is assumed of it: one pass.

    How bytes are written shows in the values of the sample, where no setting gives it. Messages that name their types
    do not show the digits of a fraction.
    """
    known = replace(known, types=log_types.types_of(gathered(log_types.finder(known), log_types.DDL_ROWS)))
    return log_types.with_binary(sample, known)


def with_schemas(gathered: Gathered, protocol: str, known: Known) -> Known:
    """The schemas of a registry that a log names, asked for here: workers of the embedded engine have no network."""
    schemas = dict(known.schemas)
    registry = Registry(replace(known, schemas=schemas))
    for schema_id in pc.unique(gathered(log_types.schema_ids(known, protocol), log_types.SCHEMA_IDS)["id"]).to_pylist():
        with suppress(Malformed):  # its messages are refused for that
            registry.schema(schema_id)
    return replace(known, schemas=schemas)


def learned(gathered: Gathered, sample: pa.Table, protocol: str, known: Known) -> tuple[Known, tuple[str, ...]]:
    """What decoding a protocol needs of its log beside each message, and what of it is a guess, a sentence each."""
    if protocol == "simple":
        return with_table_versions(gathered, known)
    if protocol in FRAMED:
        known = with_schemas(gathered, protocol, known) if known.registry_url else known
        if protocol == "debezium-avro":
            found = gathered(log_types.finder(known, protocol), log_types.DDL_ROWS)
            known = replace(known, types=log_types.types_of(found))
        return replace(known, registry_url=""), could_be_keys(sample, known)
    return with_log_types(gathered, sample, known) if protocol == "debezium" else (known, ())


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


def decoding(
    source: Source,
    protocol: str,
    known: Known,
    *,
    images: bool,
    first: int | None = None,
    skips: Skips = NO_SKIPS,
    threads: int = 1,
) -> parquet.Decode:
    """Raw records to :data:`ticdc_lab.events.schema.DECODED`; of each task's share the ``first`` messages, or all.

    Messages in several files are left out by ``skips``; ``held``, of the returned function, receives
    what each file has. Each task decodes in so many ``threads``.
    """
    read = source.reader(skips)
    if source.decode is not None:
        whole = source.decode(images or bool(known.handles))  # keys are hashed by values

        def of_files(batches: Batches, held: Held | None = None) -> Batches:
            found = keyed(whole(batches), known.handles, images=images) if known.handles else whole(batches)
            return found if first is None else islice(found, 1)

        return of_files

    events = decoder(protocol, images=images, known=known)

    def decoded(found: _Block) -> list[pa.RecordBatch]:
        messages, rejected = found
        return [*events(iter((messages,))), *([rejected] if rejected is not None and rejected.num_rows else ())]

    def run(batches: Batches, held: Held | None = None) -> Batches:
        found, left = read(batches) if held is None else partial(read, held=held)(batches), first
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


def _side_by_side(decode: _DecodeBlock, found: Messages, threads: int) -> Iterator[list[pa.RecordBatch]]:
    """The events of messages in their order: kernels run beside each other, and beside what uses earlier ones."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque[Future[list[pa.RecordBatch]]]()
        for some in found:
            waiting.append(pool.submit(copy_context().run, decode, some))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        yield from (last.result() for last in waiting)
