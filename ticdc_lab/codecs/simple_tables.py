"""The table versions that a log in the simple protocol brings, found before its rows are decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.codecs import simple, simple_avro
from ticdc_lab.codecs.decode import at_once
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.fields import require_few_values
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import Bounds, Known
from ticdc_lab.codecs.simple_versions import CONTRADICTED, Version, columns_of, tables_in, version_of
from ticdc_lab.codecs.unpack import parts, unpacker
from ticdc_lab.events.arrays import Batches
from ticdc_lab.facts.definitions import ColumnDef, TableDef

TABLES = StructType(
    [
        StructField("schema_name", StringType()),
        StructField("table_name", StringType()),
        StructField("version", LongType()),
        StructField("definition", StringType()),
    ]
)
"""A table version, with its definition as JSON."""

COUNTED_TABLES = StructType([*TABLES.fields, StructField("n", LongType())])
"""The same with how many messages bring that definition: a version may have several, which contradict each other."""


def finder(known: Known) -> Callable[[Batches], Batches]:
    """The function over batches of messages that gives :data:`COUNTED_TABLES`, each definition once a task."""

    def run(batches: Batches) -> Batches:
        unpacked = unpacker("simple", known)
        seen: Counter[tuple[Version, str]] = Counter()
        for batch in batches:
            found = (
                pair
                for some in at_once(batch)
                for part, _ in parts(unpacked, some)
                if not isinstance(part, Malformed)
                for pair in _tables(part.column("value"), known.bounds)
            )
            seen.update(found)
        if seen:
            rows = [(*version, definition, n) for (version, definition), n in seen.items()]
            yield pa.record_batch(
                [list(column) for column in zip(*rows, strict=True)], schema=arrow_schema(COUNTED_TABLES)
            )

    return run


def _tables(values: pa.Array, bounds: Bounds) -> Iterator[tuple[Version, str]]:
    for value in values.to_pylist():
        in_avro = value is not None and value[:1] == simple_avro.FIRST
        if value is not None and (value[1:2] in simple_avro.BRINGING if in_avro else b"ableSchema" in value):
            try:
                require_few_values(None, value, bounds)
                yield from [(version_of(t), _definition(t)) for t in tables_in(simple.message_of(value))]
            except Exception:  # any fault: the decoder meets it again and puts it into quarantine
                continue


def _definition(table: Mapping[str, Any]) -> str:
    columns_of(table)
    return orjson.dumps(table, option=orjson.OPT_SORT_KEYS).decode()


def tables_of(rows: Iterable[Mapping[str, Any]]) -> dict[Version, Mapping[str, Any]]:
    """Rows of :data:`TABLES` or :data:`COUNTED_TABLES` as :attr:`ticdc_lab.codecs.known.Known.tables`.

    Where messages bring several definitions of one version, rows follow the one that most of them bring; where as many
    bring another, none: it is unknown which is damaged (:data:`ticdc_lab.codecs.simple_versions.CONTRADICTED`).
    """
    tables = dict[Version, Mapping[str, Any]]()
    for version, each in _by_version(rows).items():
        (first, n), *others = each
        tables[version] = CONTRADICTED if others and others[0][1] == n else first
    return tables


def defined_in(tables: Mapping[Version, Mapping[str, Any]]) -> tuple[tuple[int, TableDef], ...]:
    """The tables that these versions define, each with its TSO, in that order."""
    found = list[tuple[int, TableDef]]()
    for schema, table, version in sorted(tables, key=lambda v: v[2]):
        if fields := tables[schema, table, version]:
            columns = tuple(
                ColumnDef(own.name, own.mysql_type, nullable=bool(column.get("nullable", True)))
                for own, column in zip(columns_of(fields), fields["columns"], strict=True)
            )
            found.append((version, TableDef(schema, table, columns)))
    return tuple(found)


def contradictions(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Warnings on table versions that messages define differently, one sentence each."""
    said = list[str]()
    for (schema, table, version), each in sorted(_by_version(rows).items()):
        if len(each) < 2:
            continue
        (_, n), (_, other), *_ = each
        more = sum(m for _, m in each) - n
        so = (
            f"its rows follow the one that {n} bring, and {more} bring{'s' * (more == 1)} another"
            if n > other
            else f"{n} bring{'s' * (n == 1)} one and {more} another, so its rows are in quarantine"
        )
        said.append(
            f"Messages contradict each other about version {version} of the table {schema}.{table}: {so}. A damaged "
            "DDL or BOOTSTRAP message does this, no changefeed."
        )
    if len(said) > _SAID:
        said[_SAID:] = [f"So they do about {len(said) - _SAID} more table versions."]
    return tuple(said)


_SAID = 5


def _by_version(rows: Iterable[Mapping[str, Any]]) -> dict[Version, list[tuple[Mapping[str, Any], int]]]:
    """The definitions of each version that make other columns, with how many messages bring them, most first."""
    found: dict[Version, dict[str, tuple[Mapping[str, Any], int]]] = {}
    for r in rows:
        table = orjson.loads(r["definition"])
        columns = repr([(c.name, c.mysql_type, c.is_key) for c in columns_of(table)])
        own = found.setdefault((r["schema_name"], r["table_name"], r["version"]), {})
        own[columns] = own.get(columns, (table, 0))[0], own.get(columns, (table, 0))[1] + (r.get("n") or 1)
    return {v: [own[c] for c in sorted(own, key=lambda c: (-own[c][1], c))] for v, own in found.items()}
