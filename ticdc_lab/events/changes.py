"""A row change among others: what identifies it in each of its deliveries, and its place in a transaction."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

OP_RANK = {"delete": 0, "update": 1, "insert": 2}
"""Place of an operation in a transaction.

TiCDC's event store orders the rows of a transaction so (TiCDC's source). It frees keys before they are taken.
"""

RANK_SQL = "CASE op WHEN 'delete' THEN {delete} WHEN 'update' THEN {update} ELSE {insert} END".format_map(OP_RANK)
"""The same in SQL."""

ROW_SQL = "coalesce(key_hash, change_hash)"
"""What identifies a row: its handle key, or what the change is where it has none."""


def op_rank(op: Column | str = "op") -> Column:
    """:data:`OP_RANK` (tinyint) of an operation."""
    op = F.col(op) if isinstance(op, str) else op
    return (
        F.when(op == "delete", OP_RANK["delete"])
        .when(op == "update", OP_RANK["update"])
        .otherwise(OP_RANK["insert"])
        .cast("tinyint")
    )


def row_id() -> Column:
    """What identifies a row (bigint), as :data:`ROW_SQL`."""
    return F.expr(ROW_SQL)


def row_ids(rows: pa.Table) -> pa.ChunkedArray:
    """The same of a table of rows with their hashes."""
    return pc.coalesce(rows["key_hash"], rows["change_hash"])


def change_id() -> Column:
    """Number (bigint) that names a change within its commit_ts, equal for every delivery of it."""
    return F.xxhash64(F.col("op"), row_id())
