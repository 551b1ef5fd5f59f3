"""The columns of what this room answers, for Spark and for Arrow."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

TIMELINE = """
topic string, partition int, offset bigint, resolved_ts bigint, partition_resolved_ts bigint,
previous_resolved_ts bigint, step_s double, regressed boolean, regression_s double, duplicate boolean, stalled boolean
"""
PROGRESS = """
topic string, partition int, resolved_ts bigint, first_resolved_ts bigint, n_watermarks bigint, n_rows bigint,
n_ddl bigint, first_commit_ts bigint, last_commit_ts bigint, first_offset bigint, last_offset bigint
"""
PARTITIONS = (
    PROGRESS
    + """,
n_regressions bigint, n_duplicates bigint, n_stalls bigint, step_s_max double, unresolved_s double
"""
)
TOPICS = """
topic string, resolved_ts bigint, checkpoint_ts bigint, holders array<int>, partitions array<int>, unmarked array<int>,
last_commit_ts bigint, n_rows bigint, lag_s double, unresolved_s double
"""
TABLES = """
schema_name string, table_name string, n_rows bigint, first_commit_ts bigint, last_commit_ts bigint,
topics array<string>, partitions array<int>, resolved_ts bigint
"""
SPANS = """
topic string, partition int, first_step bigint, last_step bigint, steps bigint, steps_total bigint, held_ts bigint,
from_ts bigint, to_ts bigint, lag_s_max double, at_end boolean
"""
RUNGS = """
topic string, held_ts bigint, next_ts bigint, everywhere boolean, partition int, held_offset bigint, next_offset bigint,
steps_of_others int, step_s double, since_us bigint, until_us bigint, stood_s double, n_repeats bigint,
n_regressed bigint, is_stall boolean
"""
CONTENTS = """
topic string, partition int, schema_name string, table_name string, kind string, op string, n bigint
"""
STATEMENTS = """
commit_ts bigint, schema_name string, table_name string, ddl_type string, query string, partitions array<int>
"""
STEPS = "topic string, partition int, step int, step_ts bigint, resolved_ts bigint, steps_total int"
GAPS = "topic string, partition int, first_missing bigint, last_missing bigint, n_missing bigint"
STATED = "topic string, partition int, resolved_ts bigint"
"""Values that a partition's watermarks state; null for a partition as such."""
PLACED = """
schema_name string, table_name string, topic string, partition int, kind string, n bigint, commit_ts bigint,
last_ts bigint
"""
"""Events of a table in a partition: how many of a kind, with the least commit_ts and the greatest."""
GROUPS = """
topic string, partition int, kind string, _offset bigint, _seq int, n bigint, commit_ts bigint, last_ts bigint,
offset bigint, last_offset bigint
"""
"""Events of a partition: how many of a kind; watermarks by their place."""

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
} | {"binary": pa.binary()}


def arrow_of(form: str) -> pa.Schema:
    """Columns of plain types, or lists of them, without asking Spark to read their names.

    Examples
    --------
    >>> arrow_of("topic string, partitions array<int>").field("partitions").type
    ListType(list<item: int32>)
    """
    return pa.schema([(name, _type(kind)) for name, kind in (column.split() for column in form.split(","))])


def together(batches: Iterator[pa.RecordBatch], form: str) -> pa.Table:
    """All batches of a form; Spark names the elements of lists in its own way, and there may be none."""
    held, schema = list(batches), arrow_of(form)
    return pa.Table.from_batches(held).select(schema.names).cast(schema) if held else schema.empty_table()


def _type(kind: str) -> pa.DataType:
    return pa.list_(_type(kind[6:-1])) if kind.startswith("array<") else _TYPES[kind]
