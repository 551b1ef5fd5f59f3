"""Rows of avro by the names that TiDB has for tables and columns: TiCDC hashes these, and its rules match them.

Avro allows letters, digits and ``_``, so TiCDC writes ``_`` for every other character. The log's DDL, and the schemas
of debezium-avro, have the names as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ticdc_lab.codecs.avro import record_in
from ticdc_lab.codecs.handles import hashed_anew, with_field_of_columns
from ticdc_lab.codecs.keys import in_zone, with_hashes
from ticdc_lab.dispatch.fitting import columns_of
from ticdc_lab.dispatch.names import UNNAMED_ROW
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import DISPATCH, KEYS
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableName, row_names
from ticdc_lab.facts.places import grouped
from ticdc_lab.settings.file import is_zone
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.words import some_of

_TABLE = ("schema_name", "table_name")


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names of tables that rows of ``protocol`` name otherwise, or whose columns they do.

    ``defined``: by a table's name in Avro the names of it (None: as the row has it) and of its columns.
    """

    protocol: str
    defined: Mapping[str, Sequence[tuple[TableName | None, tuple[str, ...]]]]
    others: frozenset[str] = frozenset()  # in Avro, tables that are defined and have the same names there

    @classmethod
    def of(cls, catalog: Catalog, protocol: str | None, schemas: Iterable[str]) -> OwnNames:
        """The names that the log's DDL have, ``catalog``, and of debezium-avro those in ``schemas`` of its registry."""
        table, column = row_names(protocol or "")
        defined: dict[str, list[tuple[TableName | None, tuple[str, ...]]]] = {}
        for name, versions in catalog.versions.items() if column is not str else ():
            for definition in (v.definition for v in versions if v.definition is not None):
                defined.setdefault(_in_avro(name), []).append((name, tuple(c.name for c in definition.columns)))
        for schema in schemas if protocol == "debezium-avro" else ():
            fields = orjson.loads(schema).get("fields", ()) if '"connect.field"' in schema else ()
            for image in [record_in(f["type"]) for f in fields if f["name"] in ("before", "after")]:
                if image is not None:
                    columns = tuple(f.get("connect.field") or f["name"] for f in image["fields"])
                    name = tuple(image.get("connect.name", "").partition(".")[2:])
                    defined.setdefault(_in_avro(name), []).append((None, columns))
        renamed = {
            of: known
            for of, known in defined.items()
            if any((n and (table(n[0]), table(n[1])) != n) or any(column(c) != c for c in cs) for n, cs in known)
        }
        return cls(protocol or "", renamed, frozenset({*defined} - {*renamed}))

    @classmethod
    def in_log(cls, log: ChangeLog, catalog: Catalog) -> OwnNames:
        """The names in a log, whose DDL ``catalog`` has."""
        return cls.of(catalog, log.protocol, log.known.schemas.values())

    def given_to(self, log: ChangeLog) -> DataFrame:
        """:func:`by_own_names` of the log's events, in the zone of TiCDC's server as far as it is known."""
        zone = str(log.settings.value("time-zone") or "")
        return log.events.transform(by_own_names, names=self, zone=zone)

    def as_written(self, told: pa.Table | DataFrame) -> pa.Table | DataFrame:
        """Rows about tables, by TiDB's names (``schema_name``, ``table_name``), with the names that the log has."""
        written = partial(_written, protocol=self.protocol)
        if isinstance(told, pa.Table):
            return pa.Table.from_batches(written(iter(told.to_batches())), told.schema)
        return told.mapInArrow(written, told.schema)

    def unknown(self, tables: Iterable[TableName]) -> list[str]:
        """Tables of a log that nothing defines, a sentence: each ``_`` in a name may be another character in TiDB."""
        known = {*self.defined, *self.others}
        some = [".".join(name) for name in tables if _in_avro(name) not in known]
        return [
            f"TiCDC hashes the names that TiDB has, and {self.protocol} writes other characters of them than letters "
            f"and digits as `_`: no DDL of the log and no schema has the names of {some_of(some)}; they are taken as "
            "written."
        ][: len(some)]

    def of_row(self, name: TableName, columns: Sequence[str]) -> tuple[TableName, Mapping[str, str]] | str:
        """The name of a row's table, and by names in Avro its columns'; or why they are not known."""
        known = self.defined.get(_in_avro(name))
        if known is None:
            return name, {}
        table, column = row_names(self.protocol)
        fitting: dict[tuple[TableName, tuple[str, ...]], Mapping[str, str]] = {}
        for own, theirs in known:
            written = {column(c): c for c in theirs}
            of = own or name
            if (table(of[0]), table(of[1])) == name and {*columns} <= {*written}:
                fitting[of, tuple(written[c] for c in columns)] = written
        if len(fitting) == 1:
            return next((of, written) for (of, _), written in fitting.items())
        said = f"TiCDC hashes TiDB's names, and {self.protocol} writes other characters of them as `_`: "
        if not fitting:
            return f"{said}no definition of {'.'.join(name)} in the log has the columns {some_of(columns)}"
        each = sorted(f"{'.'.join(of)} ({', '.join(c)})" for of, c in fitting)
        return f"{said}{'.'.join(name)} may be {some_of(each)}"


def _in_avro(name: Iterable[str]) -> str:
    """What is left of a table's name wherever Avro has it."""
    return re.sub("[^A-Za-z0-9]+", "_", ".".join(name)).strip("_")


def by_own_names(events: DataFrame, *, names: OwnNames, zone: str = "") -> DataFrame:
    """Events with the names that TiDB has, hashed by them, and :data:`UNNAMED_ROW`.

    ``zone``: of TiCDC's server, as far as it is known.
    """
    keyed = events.transform(with_hashes, KEYS, DISPATCH)
    fields = [*keyed.schema.fields, T.StructField(UNNAMED_ROW, T.StringType())]
    return keyed.mapInArrow(partial(_named, names=names, zone=zone), T.StructType(fields))


def _named(batches: Batches, *, names: OwnNames, zone: str) -> Batches:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        first, of = grouped(rows, ("kind", "schema_name", "table_name", "layout"))
        parts, places = [], []
        for i, at in enumerate(first.tolist()):
            own = np.flatnonzero(of == i)
            places.append(own)
            parts.append(_named_alike(rows.take(pa.array(own)), rows.slice(at, 1), names, zone))
        if parts:
            whole = pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))
            yield from whole.combine_chunks().to_batches()


def _named_alike(rows: pa.Table, first: pa.Table, names: OwnNames, zone: str) -> pa.Table:
    """Events of one table and layout."""
    about = first.select(["kind", "schema_name", "table_name"]).to_pylist()[0]
    name, why = (about["schema_name"], about["table_name"]), None
    if about["kind"] == "row" and name[1]:
        columns = columns_of(first)[0]
        told = names.of_row(name, columns)
        if isinstance(told, str):
            why = told
        elif (
            any(told[1].get(c, c) != c for c in columns)
            and not pc.any(pc.or_(pc.is_valid(rows["columns"]), pc.is_valid(rows["before"]))).as_py()
        ):
            why = "the log was opened without the values of its rows, and TiCDC hashes them behind TiDB's names"
        elif told != (name, {}):
            for column, text in zip(_TABLE, told[0], strict=True):
                at, field = rows.schema.get_field_index(column), rows.schema.field(column)
                rows = rows.set_column(at, field, pa.repeat(pa.scalar(text, field.type), rows.num_rows))
            if any(told[1].get(c, c) != c for c in columns):
                rows = hashed_anew(with_field_of_columns(rows, "name", partial(_renamed, names=told[1])))
                if is_zone(zone) and names.protocol == "debezium-avro":
                    rows = pa.Table.from_batches(in_zone(rows.to_batches(), zone, images=True), rows.schema)
    return rows.append_column(UNNAMED_ROW, pa.repeat(pa.scalar(why, pa.string()), rows.num_rows))


def _written(batches: Batches, *, protocol: str) -> Batches:
    table, _ = row_names(protocol)
    for batch in batches:
        names = [pa.array([n and table(n) for n in batch[c].to_pylist()], pa.string()) for c in _TABLE]
        kept = {c: batch[c] for c in batch.schema.names} | dict(zip(_TABLE, names, strict=True))
        yield pa.RecordBatch.from_pydict(kept, schema=batch.schema)


def _renamed(columns: pa.StructArray, names: Mapping[str, str]) -> pa.Array:
    written = columns.field("name")
    found = pc.index_in(written, pa.array([*names], pa.string()))
    return pc.coalesce(pc.take(pa.array([*names.values()], pa.string()), found), written)
