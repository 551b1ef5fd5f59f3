"""The table versions that a log in the simple protocol brings, found before its rows are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.codecs import simple_avro
from ticdc_lab.codecs.builder import Malformed
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.simple import Version, columns_of, message_of, tables_in, version_of
from ticdc_lab.codecs.unpack import unpacker

Batches = Iterator[pa.RecordBatch]

TABLES = StructType(
    [
        StructField("schema_name", StringType()),
        StructField("table_name", StringType()),
        StructField("version", LongType()),
        StructField("definition", StringType()),
    ]
)
"""A table version, with its definition as JSON."""

_FORM = pa.schema(
    [("schema_name", pa.string()), ("table_name", pa.string()), ("version", pa.int64()), ("definition", pa.string())]
)


def finder(known: Known) -> Callable[[Batches], Batches]:
    """The function over batches of messages that gives :data:`TABLES`, each version once a task."""

    def run(batches: Batches) -> Batches:
        unpacked = unpacker("simple", known)
        seen: dict[Version, str] = {}
        for batch in batches:
            new = {v: t for v, t in _tables(unpacked(batch).column("value")) if v not in seen}
            seen |= new
            if new:
                rows = [(*version, definition) for version, definition in new.items()]
                yield pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=_FORM)

    return run


def _tables(values: pa.Array) -> Iterator[tuple[Version, str]]:
    for value in values.to_pylist():
        if value is not None and _may_bring(value):
            try:
                for table in tables_in(message_of(value)):
                    columns_of(table)
                    yield version_of(table), orjson.dumps(table).decode()
            except Malformed:  # the decoder will say so
                continue


def _may_bring(value: bytes) -> bool:
    return value[1:2] in simple_avro.BRINGING if value[:1] == simple_avro.FIRST else b"ableSchema" in value


def tables_of(rows: Iterable[Mapping[str, Any]]) -> dict[Version, Mapping[str, Any]]:
    """Rows of :data:`TABLES` as :attr:`ticdc_lab.codecs.known.Known.tables`."""
    return {(r["schema_name"], r["table_name"], r["version"]): orjson.loads(r["definition"]) for r in rows}
