"""Row identity as 64-bit hashes, so that audits and restoration never shuffle whole images.

All are Spark's own ``xxhash64`` (seed 42), which folds its arguments from left to right and skips nulls. Decoders write
them; for other events a kernel computes the same, which a test compares with Spark's expressions.

- ``key_hash``: ``xxhash64(schema_name, table_name, values of the handle key columns in column order)``; of a delete
  those before it. ``before_key_hash``: of an update that changes the key, that of the old one; a key column that the
  old image lacks is as in the new one (``only-output-updated-columns`` leaves equal columns out).
- ``change_hash``: ``xxhash64(schema_name, table_name, op, after, before)`` where an image is, column by column,
  ``name, value, value is null``.
- ``after_hash``, ``before_hash``: of an image the XOR of ``xxhash64(name)`` of its columns in the high 32 bits, and of
  ``xxhash64(name, value, value is null)`` in the low 32: the order of columns does not matter, and images of other
  columns are told apart from those of other values.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ticdc_lab.codecs.hashed import with_columns
from ticdc_lab.events.schema import KEYS, require_columns


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
        ``events`` lacks a column.
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
