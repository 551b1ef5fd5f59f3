"""The DDL of a log in debezium, in JSON or Avro, and how it writes bytes: types that rows do not have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.codecs import debezium, debezium_avro, debezium_types
from ticdc_lab.codecs.avro import unframed
from ticdc_lab.codecs.decode import at_once, decode_with
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.event import Codec, Malformed
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.unpack import parts, unpacker
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.mysql_types import BINARIES, base_of

DDL_ROWS = StructType(
    [
        StructField("commit_ts", LongType()),
        StructField("schema_name", StringType()),
        StructField("table_name", StringType()),
        StructField("query", StringType()),
        StructField("offset", LongType()),
    ]
)
"""A DDL statement of a log, and where it was."""

_NAMES = tuple(DDL_ROWS.names)


def finder(known: Known, protocol: str = "debezium") -> Callable[[Batches], Batches]:
    """The function over batches of messages of ``debezium`` or ``debezium-avro`` that gives :data:`DDL_ROWS`."""

    def run(batches: Batches) -> Batches:
        codec = debezium.codec(known) if protocol == "debezium" else debezium_avro.codec(known)
        are_ddl: dict[bytes, bool] = {}
        for part in _unpacked(batches, known, protocol):
            at = _named(part.column("value")) if protocol == "debezium" else _framed(part, codec, are_ddl)
            if (found := part.take(at)).num_rows:
                events = decode_with(codec, found, protocol, compiled=False, bounds=known.bounds)
                yield events.filter(pc.fill_null(pc.equal(events["kind"], "ddl"), False)).select(_NAMES)

    return run


def _unpacked(batches: Batches, known: Known, protocol: str) -> Iterator[pa.RecordBatch]:
    unpacked = unpacker(protocol, known)
    for batch in batches:
        for some in at_once(batch):
            yield from (part for part, _ in parts(unpacked, some) if not isinstance(part, Malformed))


def _named(values: pa.Array) -> pa.Array:
    """Places of the messages that name a DDL: one search through all of them, far quicker than one in each."""
    raw = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    data = raw.buffers()[2]
    if not len(raw) or data is None:
        return pa.array([], pa.int64())
    ends = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + len(raw) + 1]
    found = [at.start() for at in re.finditer(b'"ddl"', memoryview(data)[: ends[-1]])]
    rows = np.searchsorted(ends, found, side="right") - 1
    return pa.array(np.unique(rows[rows >= 0]))


_CONFLUENT_BYTES, _GLUE_BYTES = 5, 18


def _framed(part: pa.RecordBatch, codec: Codec, are_ddl: dict[bytes, bool]) -> pa.Array:
    """Places of the messages whose schema is a DDL's, as the first one of that schema shows; ``are_ddl`` keeps that."""
    frames, first = _heads(part.column("value"))
    for head, at in first.items():
        if head not in are_ddl:
            key, value = (part.column(c)[at].as_py() for c in ("key", "value"))
            try:
                are_ddl[head] = any(e.kind == S.DDL for e in codec(key, value))
            except Malformed:
                are_ddl[head] = False
    ddl = pa.array([head for head, is_ddl in are_ddl.items() if is_ddl], pa.binary())
    return pa.array(np.flatnonzero(pc.is_in(frames, ddl)))


def _heads(column: pa.Array) -> tuple[pa.Array, dict[bytes, int]]:
    """How each key or value begins, as far as that names its schema, and the place of the first that begins so."""
    values = column.cast(pa.binary())
    confluent = pc.equal(pc.binary_slice(values, 0, 1), b"\x00")
    short, long = (pc.binary_slice(values, 0, n) for n in (_CONFLUENT_BYTES, _GLUE_BYTES))
    frames = pc.if_else(confluent, short, long).dictionary_encode()
    found, places = np.unique(frames.indices.drop_null(), return_index=True)
    at = np.flatnonzero(pc.is_valid(values))[places]
    heads = frames.dictionary.take(pa.array(found, pa.int32())).to_pylist()
    return frames.cast(pa.binary()), dict(zip(heads, at.tolist(), strict=True))


SCHEMA_IDS = StructType([StructField("id", StringType())])


def schema_ids(known: Known, protocol: str) -> Callable[[Batches], Batches]:
    """The function over batches of framed messages that gives the ids of their schemas in a registry."""

    def run(batches: Batches) -> Batches:
        ids = set[str]()
        for part in _unpacked(batches, known, protocol):
            for name in ("key", "value"):
                for at in _heads(part.column(name))[1].values():
                    with suppress(Malformed):
                        ids.add(unframed(part.column(name)[at].as_py(), name, known.bounds.inflated)[0])
        yield pa.RecordBatch.from_pydict({"id": pa.array(sorted(ids), pa.string())})

    return run


def types_of(ddl: pa.Table) -> LogTypes:
    """:data:`DDL_ROWS` as what decoding asks; those without commit_ts are in the order of offsets."""
    rows = sorted(ddl.to_pylist(), key=lambda r: (r["commit_ts"] or 0, r["offset"] or 0))
    return LogTypes(
        dict.fromkeys((r["commit_ts"], r["schema_name"] or "", r["table_name"] or "", r["query"]) for r in rows)
    )


def are_typed(sample: pa.Table, known: Known) -> bool:
    """Whether the sample has row changes, and the messages themselves have the type of each of their columns."""
    rows = [columns for part in _decoded(sample, debezium.codec(known), known) for columns in _images(part)]
    return bool(rows) and all(column["mysql_type"] is not None for columns in rows for column in columns)


def with_binary(sample: pa.Table, known: Known) -> tuple[Known, tuple[str, ...]]:
    """The same with how bytes are written, and a sentence where that is a guess, or types are not known."""
    seen: list[str] = []

    def noted(value: object) -> bytes:
        seen.append(str(value))
        return b""

    codec = debezium.DebeziumCodec(known, debezium_types.Forms(noted, lambda value: b""))
    rows = [columns for part in _decoded(sample, codec, known) for columns in _images(part)]
    untyped = sum(any(column["mysql_type"] is None for column in columns) for columns in rows)
    has_bytes = any(base_of(column["mysql_type"]) in BINARIES for columns in rows for column in columns)
    mode = known.settings.value("debezium-binary-handling-mode")
    told, sure = debezium_types.binary_mode(seen) if mode is None else (str(mode), True)
    said: tuple[str, ...] = (_UNTYPED.format(n=untyped, of=len(rows)),) if untyped else ()
    if has_bytes and not sure:
        said += (_GUESSED.format(chosen=told, other="hex" if told == "base64" else "base64"),)
    return replace(known, binary=told), said


_UNTYPED = (
    "{n} of the first {of} row images of this debezium log name no types, and the log has no DDL of their tables: "
    "there an unsigned BIGINT above 2^63 is negative, bytes are text, dates and times may be numbers. Record with "
    "`enable-tidb-extension=true` and the schema part, or from the CREATE TABLE on."
)
_GUESSED = (
    "Bytes of this debezium log are read as {chosen}: its first messages fit base64 and hex. If values look wrong, "
    "read with `--option debezium-binary-handling-mode={other}`."
)


def _decoded(sample: pa.Table, codec: Codec, known: Known) -> Iterator[pa.RecordBatch]:
    for part in _unpacked(iter(sample.combine_chunks().to_batches()), known, "debezium"):
        yield decode_with(codec, part, "debezium", compiled=False, bounds=known.bounds)


def _images(part: pa.RecordBatch) -> Iterator[list[dict[str, str | None]]]:
    for name in ("columns", "before"):
        yield from (columns for columns in part.column(name).to_pylist() if columns)
