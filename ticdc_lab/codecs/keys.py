"""Row identity as 64-bit hashes, so that audits and restoration never shuffle whole images.

All are Spark's own ``xxhash64`` (seed 42), which folds its arguments from left to right and skips nulls. Decoders write
them; for other events a kernel computes the same, which a test compares with Spark's expressions.

- ``key_hash``: ``xxhash64(schema_name, table_name, values of the handle key columns in column order)``; of a delete
  the values before it. ``before_key_hash``: of the old key if an update changes it; a key column that the
  old image does not have is as in the new one (``only-output-updated-columns`` leaves equal columns out).
- ``change_hash``: ``xxhash64(schema_name, table_name, op, after, before)`` where an image is, column by column,
  ``name, value, value is null``. Of a row without a handle key whose message has TiKV's key of it (canal-json's
  ``_tidb.rowkey``) the XOR of that and ``xxhash64(rowkey)``: two equal rows are two.
- ``after_hash``, ``before_hash``: of an image the XOR of ``xxhash64(name)`` of its columns in the high 32 bits, and of
  ``xxhash64(name, value, value is null)`` in the low 32: the order of columns does not matter, and images of other
  columns differ from images of other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.kernel.numbering import DELETE
from ticdc_lab.codecs.laid_out import Image, LaidOut, laid_out_of
from ticdc_lab.codecs.plain import hashes
from ticdc_lab.events.arrays import Batches, Bools, Ints
from ticdc_lab.events.schema import DISPATCH, IMAGE_HASHES, KEYS, require_columns

NAME_A_PRIMARY_KEY = ("canal-json", "canal", "avro", "csv", "maxwell")
"""Protocols whose rows name no other handle key than a primary key."""

_BYTES_OF_NULL = 4


def with_columns(names: Iterable[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of events with the columns of these names behind their own."""
    for batch in batches:
        laid = laid_out_of(batch)
        sizes, found = _bytes_of(laid.after) + _bytes_of(laid.before), dict[str, pa.Array]()
        compiled = choice.compiled(choice.HASHES, batch)
        carried = batch.column("protocol") if "protocol" in batch.schema.names else pa.nulls(len(batch), pa.string())
        carried = pc.fill_null(carried, "")
        for protocol in pc.unique(carried).to_pylist() or [""]:
            own = hashes.hashed(laid, sizes, protocol=protocol, compiled=compiled)
            same = pc.equal(carried, protocol)
            found = {name: pc.if_else(same, column, found.get(name, column)) for name, column in own.items()}
        found |= _known_of_images(laid, found)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {name: found[name] for name in names}
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _known_of_images(laid: LaidOut, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns of DISPATCH without rows that have no image: a decoder gives no such row."""
    there = np.where(laid.op == DELETE, laid.before.there, laid.after.there)
    if (there | ~laid.is_row).all():
        return {}
    mask = pa.array(there)
    return {n: pc.if_else(mask, found[n], pa.scalar(None, found[n].type)) for n in DISPATCH.names if n != "row_bytes"}


def _bytes_of(image: Image) -> np.ndarray:
    """Bytes of the names and values of each event's image."""
    of_names = pc.binary_length(image.names).to_numpy(zero_copy_only=False)
    of_values = pc.binary_length(image.values).fill_null(_BYTES_OF_NULL).to_numpy(zero_copy_only=False)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(of_names + of_values, dtype=np.int64)])
    sizes: np.ndarray = np.diff(sums[image.ends])
    return sizes


def with_hashes(events: DataFrame, *forms: StructType) -> DataFrame:
    """Add what decoders know of images to events that do not have it yet.

    Parameters
    ----------
    events
        The events contract; at least ``kind``, ``schema_name``, ``table_name``, ``op``, ``columns`` and ``before``, and
        none of these if all is there. May be a stream.
    forms
        Of :data:`ticdc_lab.events.schema.KEYS`, :data:`~ticdc_lab.events.schema.IMAGE_HASHES` and
        :data:`~ticdc_lab.events.schema.DISPATCH`; ``row_bytes`` is then estimated by the names and values of both
        images.

    Returns
    -------
    DataFrame
        The same rows with the columns of the forms.

    Raises
    ------
    ContractError
        ``events`` misses a column.
    """
    present = set(events.columns)
    missing = [field for form in forms for field in form.fields if field.name not in present]
    if not missing:
        return events
    require_columns(events, "kind", "schema_name", "table_name", "op", "columns", "before")
    columns = partial(with_columns, [field.name for field in missing])
    return events.mapInArrow(columns, StructType([*events.schema.fields, *missing]))


def with_keys(events: DataFrame) -> DataFrame:
    """Add the columns of :data:`ticdc_lab.events.schema.KEYS` (bigint) to events that do not have them yet.

    Parameters
    ----------
    events
        As for :func:`with_hashes`.
    """
    return with_hashes(events, KEYS)


_OPTIONAL = ("protocol", "incomplete", "admin", *IMAGE_HASHES.names)


def rows_of(
    events: DataFrame, columns: Sequence[str], make: Callable[[pa.Table], pa.Table], form: pa.Schema,
    *hashes: StructType, kinds: Sequence[str] = ("row",),
) -> DataFrame:  # fmt: skip
    """What a function makes of row changes, some at a time; a frame may be without :data:`_OPTIONAL` columns.

    ``hashes``: as of :func:`with_hashes`. ``form``: of what it makes.
    """

    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield from make(pa.table(batch)).select(form.names).cast(form).combine_chunks().to_batches()

    rows = events.where(f"kind IN ({', '.join(map(repr, kinds))})").transform(with_hashes, *hashes)
    asked = [c for c in dict.fromkeys(("kind", *columns)) if c in rows.columns or c not in _OPTIONAL]
    return rows.selectExpr(*[f"`{c}`" for c in asked]).mapInArrow(run, from_arrow_schema(form))


def in_zone(batches: Batches, zone: str, *, images: bool) -> Batches:
    """Decoded events of debezium with the crcs of the TIMESTAMP that TiCDC hashes: their text in its server's zone.

    ``zone``: as the IANA database names it. Without ``images`` the values are left out of the result.
    """
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        stamps = Timestamps.of(rows)
        if len(stamps.at):
            crcs, keys = stamps.hashed_in(zone, rows)
            for name, values in (("column_crcs", crcs), ("key_crc", keys)):
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, rows.schema.field(at), values)
        yield from (rows if images else without_images(rows)).cast(batch.schema).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The TIMESTAMP values of decoded row changes, which debezium writes in UTC."""

    at: Ints  # where each is among the columns of all rows
    names: Ints  # the crc of its column's name
    moments: pa.Array
    fractions: pa.Array
    is_key: Bools  # of all columns of all rows

    @classmethod
    def of(cls, rows: pa.Table) -> Timestamps:
        """The values that are moments, but none that may be a zero date. ``rows`` have images and ``column_crcs``."""
        sizes = pc.fill_null(pc.list_value_length(rows["column_crcs"]), 0).to_numpy()
        parent = np.repeat(np.arange(len(sizes)), sizes)
        place = np.arange(len(parent)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        images = [rows[name] for name in ("columns", "before")]
        first, second = ([np.zeros(1, np.int64), np.asarray(pc.fill_null(pc.list_value_length(i), 0))] for i in images)
        starts = np.cumsum(np.concatenate(first))[:-1], np.cumsum(np.concatenate(second))[:-1] + first[1].sum()
        flat = [pc.list_flatten(image) for image in images]
        cells = pa.chunked_array([chunk for image in flat for chunk in image.chunks], flat[0].type)
        after = np.asarray(pc.is_valid(images[0]))
        own = pa.array(np.where(after, *starts)[parent] + place)
        name, kind, value, key = (
            pc.struct_field(cells, n).take(own) for n in ("name", "mysql_type", "value", "is_key")
        )
        seconds = pc.utf8_slice_codeunits(value, 0, 19)
        read = pc.strptime(seconds, format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True)
        real = pc.equal(read.cast(pa.string()), seconds)  # February 30 is read as March 1
        kept = pc.and_(pc.starts_with(kind, "timestamp"), real)
        at = np.flatnonzero(np.asarray(pc.fill_null(kept, False)))
        zero = [hashes.may_be_zero(v) for v in value.take(pa.array(at)).to_pylist()]
        at = at[~np.array(zero, dtype=bool)]
        here = pa.array(at)
        crcs = {n: crc32(n.encode()) for n in pc.unique(name.take(here)).to_pylist()}
        names = np.array([crcs[n] for n in name.take(here).to_pylist()], dtype=np.int64)
        rest = pc.utf8_slice_codeunits(value.take(here), 19)
        return cls(at, names, read.take(here), rest, np.asarray(pc.fill_null(key, False)))

    def crcs(self, zone: str) -> Ints:
        """What TiCDC hashes of each where its server is in this zone; UNKNOWN of one behind the zone's last year."""
        there = pc.local_timestamp(self.moments.cast(pa.timestamp("s", tz=zone))).cast(pa.string())
        texts = pc.binary_join_element_wise(there, self.fractions, "").to_pylist()
        found = [crc32(text.encode(), n) for text, n in zip(texts, self.names.tolist(), strict=True)]
        real = np.asarray(pc.equal(pc.utf8_length(there), 19), dtype=bool)
        return np.where(real, np.array(found, dtype=np.int64), hashes.UNKNOWN)

    def hashed_in(self, zone: str, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """``column_crcs`` and ``key_crc`` of the rows where TiCDC's server is in this zone."""
        lists = rows["column_crcs"].combine_chunks()
        flat, sizes = pc.list_flatten(lists), pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        null = np.asarray(pc.is_null(flat))
        cells = np.asarray(pc.fill_null(flat, 0)).copy()
        cells[self.at] = self.crcs(zone)
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        crcs = pa.ListArray.from_arrays(
            pa.array(ends), pa.array(cells, mask=null), type=lists.type, mask=pc.is_null(lists)
        )
        parent = np.repeat(np.arange(len(sizes)), sizes)
        touched = np.zeros(len(sizes), dtype=bool)
        touched[parent[self.at]] = True
        key, n, unknown = (np.zeros(len(sizes), dtype=np.int64) for _ in range(3))
        own, of_keys = parent[self.is_key], cells[self.is_key]
        np.bitwise_xor.at(key, own, of_keys)
        np.add.at(n, own, 1)
        np.add.at(unknown, own, of_keys == hashes.UNKNOWN)
        keys = pa.array(n << 32 | key, mask=unknown > 0)
        return crcs, pc.if_else(pa.array(touched), keys, rows["key_crc"].combine_chunks())


def without_images(rows: pa.Table) -> pa.Table:
    """Decoded events without the values of their rows."""
    for image in ("columns", "before"):
        nothing = pa.nulls(rows.num_rows, rows[image].type)
        rows = rows.set_column(rows.schema.get_field_index(image), rows.schema.field(image), nothing)
    return rows
