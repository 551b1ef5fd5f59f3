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

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zlib import crc32
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.kernel.numbering import DELETE
from ticdc_lab.codecs.laid_out import Image, LaidOut, laid_out_of
from ticdc_lab.codecs.plain import hashes
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import DISPATCH, KEYS, require_columns

NAME_A_PRIMARY_KEY = ("canal-json", "canal", "avro", "csv", "maxwell")
"""Protocols whose rows name no other handle key than a primary key."""

_BYTES_OF_NULL = 4


def hashed(laid: LaidOut, sizes: np.ndarray, *, protocol: str, compiled: bool) -> dict[str, pa.Array]:
    """The columns of KEYS, IMAGE_HASHES and DISPATCH (:mod:`ticdc_lab.events.schema`) of some events.

    Parameters
    ----------
    laid
        The events.
    sizes
        Bytes that each has of its message.
    protocol
        That carried them; of some texts it is known that TiCDC hashes others.
    compiled
        Whether the kernels compute them, which changes no hash.
    """
    if compiled:
        from ticdc_lab.codecs.kernel import hashing

        return hashing.hash_columns(laid, sizes, protocol)
    return hashes.hash_columns(laid) | hashes.dispatch_columns(laid, sizes, protocol)


def with_columns(names: Iterable[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of events with the columns of these names behind their own."""
    for batch in batches:
        laid = laid_out_of(batch)
        sizes, compiled, found = _estimated_sizes(laid), choice.compiled(choice.HASHES, batch), dict[str, pa.Array]()
        carried = batch.column("protocol") if "protocol" in batch.schema.names else pa.nulls(len(batch), pa.string())
        carried = pc.fill_null(carried, "")
        for protocol in pc.unique(carried).to_pylist() or [""]:
            own = hashed(laid, sizes, protocol=protocol, compiled=compiled)
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


def _estimated_sizes(laid: LaidOut) -> np.ndarray:
    """Bytes of the names and values of both images."""
    sizes: np.ndarray = _bytes_of(laid.after) + _bytes_of(laid.before)
    return sizes


def _bytes_of(image: Image) -> np.ndarray:
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


def in_zone(batches: Batches, zone: str, *, images: bool) -> Batches:
    """Decoded events of debezium with the crcs of the TIMESTAMP that TiCDC hashes: their text in its server's zone.

    ``zone``: as the IANA database names it. Without ``images`` the values are left out of the result.
    """
    of = ZoneInfo(zone)
    for batch in batches:
        rows, unknown = pa.Table.from_batches([batch]), pc.list_flatten(batch["column_crcs"])
        parents = pc.list_parent_indices(batch["column_crcs"]).filter(pc.equal(unknown, hashes.UNKNOWN))
        places = parents.unique().to_pylist()
        some = rows.select(["columns", "before", "column_crcs", "key_crc"]).take(pa.array(places, pa.int64()))
        crcs, keys = rows["column_crcs"].to_pylist() if places else [], rows["key_crc"].to_pylist() if places else []
        for at, row in zip(places, some.to_pylist(), strict=True):
            image = row["columns"] if row["columns"] is not None else row["before"]
            crcs[at] = [_in_zone(c, crc, of) for c, crc in zip(image, row["column_crcs"], strict=True)]
            keys[at] = hashes.key_crc([crc for c, crc in zip(image, crcs[at], strict=True) if c["is_key"]])
        if places:
            for name, values in (("column_crcs", crcs), ("key_crc", keys)):
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))
        yield from (rows if images else without_images(rows)).cast(batch.schema).combine_chunks().to_batches()


def _in_zone(column: Mapping[str, Any], crc: int | None, zone: ZoneInfo) -> int | None:
    value = column["value"]
    if crc != hashes.UNKNOWN or value is None or not column["mysql_type"].startswith("timestamp"):
        return crc
    if hashes.may_be_zero(value):
        return crc
    second, point, fraction = value.partition(".")
    try:
        there = datetime.fromisoformat(second).replace(tzinfo=UTC).astimezone(zone)
    except (ValueError, OverflowError):  # no moment: February 30, or one that the zone puts behind the last year
        return crc
    return crc32(f"{there:%Y-%m-%d %H:%M:%S}{point}{fraction}".encode(), crc32(column["name"].encode()))


def without_images(rows: pa.Table) -> pa.Table:
    """Decoded events without the values of their rows."""
    for image in ("columns", "before"):
        nothing = pa.nulls(rows.num_rows, rows[image].type)
        rows = rows.set_column(rows.schema.get_field_index(image), rows.schema.field(image), nothing)
    return rows
