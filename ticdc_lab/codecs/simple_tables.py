"""The table versions that a log in the simple protocol brings, found before its rows are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.codecs import simple
from ticdc_lab.codecs.decode import at_once
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.fields import require_few_values
from ticdc_lab.codecs.known import Bounds, Known
from ticdc_lab.codecs.simple import Version, columns_of, tables_in, version_of
from ticdc_lab.codecs.unpack import parts, unpacker
from ticdc_lab.events.arrays import Batches

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
            found = (
                pair
                for some in at_once(batch)
                for part, _ in parts(unpacked, some)
                if not isinstance(part, Malformed)
                for pair in _tables(part.column("value"), known.bounds)
            )
            new = {version: table for version, table in found if version not in seen}
            seen |= new
            if new:
                rows = [(*version, definition) for version, definition in new.items()]
                yield pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=_FORM)

    return run


def _tables(values: pa.Array, bounds: Bounds) -> Iterator[tuple[Version, str]]:
    for value in values.to_pylist():
        if value is not None and _may_bring(value):
            try:
                require_few_values(None, value, bounds)
                yield from [(version_of(t), _definition(t)) for t in tables_in(simple.message_of(value))]
            except Exception:  # whatever it is: the decoder meets it again and says so in the quarantine
                continue


def _definition(table: Mapping[str, Any]) -> str:
    columns_of(table)
    return orjson.dumps(table).decode()


def _may_bring(value: bytes) -> bool:
    return value[1:2] in simple.BRINGING if value[:1] == simple.FIRST else b"ableSchema" in value


def tables_of(rows: Iterable[Mapping[str, Any]]) -> dict[Version, Mapping[str, Any]]:
    """Rows of :data:`TABLES` as :attr:`ticdc_lab.codecs.known.Known.tables`."""
    return {(r["schema_name"], r["table_name"], r["version"]): orjson.loads(r["definition"]) for r in rows}
