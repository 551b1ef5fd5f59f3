"""Rows as lines of JSON in files, as Spark's ``to_json`` writes them; Sail's leaves nulls out and rounds otherwise."""

from __future__ import annotations

import base64
import gzip as zipped
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from io import BufferedIOBase
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import functions as F

from ticdc_lab.engine.sessions import is_sail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_lines(rows: DataFrame, folder: Path, *, gzip: bool) -> list[Path]:
    """Write a line a row, nulls as ``null``, binary in base64, and give the files in the order of the partitions.

    ``rows``: any frame. ``folder``: of this machine; must not exist. ``gzip``: whether the files are packed; one behind
    the other they can be unpacked too.
    """
    if is_sail(rows.sparkSession):
        folder.mkdir()
        _write_stream(rows.select("*", F.spark_partition_id()), folder, ".json.gz" if gzip else ".json")
    else:
        lines = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"))
        lines.write.option("compression", "gzip" if gzip else "none").text(folder.as_uri())
    return sorted(folder.glob("part-*"))


def _write_stream(numbered: DataFrame, folder: Path, ending: str) -> None:
    """Write rows as they come, each to the file of its partition (their last column); Sail's own files mix those."""
    with ExitStack() as opened:
        files: dict[int, BufferedIOBase] = {}
        for batch in batches_of(numbered):
            last = batch.num_columns - 1  # by place: a table's column may be called anything
            partitions, rows = batch.column(last).to_pylist(), json_objects(batch.select(range(last)))
            for number, group in groupby(zip(partitions, rows, strict=True), key=itemgetter(0)):
                if number not in files:
                    opening = zipped.GzipFile if ending.endswith(".gz") else open
                    made: BufferedIOBase = opening(folder / f"part-{number:05}{ending}", "xb")
                    files[number] = opened.enter_context(made)
                files[number].write("".join(f"{row}\n" for _, row in group).encode())


def batches_of(frame: Any) -> Iterator[pa.RecordBatch]:
    """Rows of a Connect session as they come; within a partition, and if sorted, in their order."""
    client, plan = frame.sparkSession.client, frame._plan  # toLocalIterator makes each row an object
    for found in client.to_table_as_iterator(plan.to_proto(client), plan.observations):
        if isinstance(found, pa.Table):
            yield from found.to_batches()


_ESCAPED = re.compile(r"\\(?:u00[0-9a-f]{2}|.)")
"""Escapes are read from the left: behind an escaped backslash, ``u001f`` is text."""
_SMALL, _LARGE = 1e-3, 1e7
"""Between these Java writes a float without an exponent."""


def json_objects(batch: pa.RecordBatch) -> list[str]:
    """Each row as a JSON object, null fields kept."""
    return _objects(batch.schema.names, batch.columns, len(batch), keep_null=True)


def json_texts(rows: pa.Array) -> list[str | None]:
    """Each struct of an array as a JSON object, fields with null left out; None for null."""
    return _texts(rows)


def _objects(names: Sequence[str], columns: Sequence[pa.Array], n: int, *, keep_null: bool) -> list[str]:
    cells = [_texts(c, keep_null=keep_null) for c in columns]
    heads = [f"{_quoted(name)}:" for name in names]
    return [
        "{" + ",".join(h + (c[i] or "null") for h, c in zip(heads, cells, strict=True) if keep_null or c[i]) + "}"
        for i in range(n)
    ]


def _texts(column: pa.Array, *, keep_null: bool = False) -> list[str | None]:
    of = column.type
    if pa.types.is_struct(of):
        found = _objects([f.name for f in of], column.flatten(), len(column), keep_null=keep_null)
        return [t if there else None for t, there in zip(found, column.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(of):
        inner = _texts(column.values, keep_null=keep_null)
        return [
            "[" + ",".join(t or "null" for t in inner[a:b]) + "]" if there else None
            for a, b, there in _spans(column, column.offsets)
        ]
    if pa.types.is_map(of):
        keys, inner, ends = map(str, column.keys.to_pylist()), _texts(column.items, keep_null=keep_null), column.offsets
        pairs = [f"{_quoted(k)}:{v or 'null'}" for k, v in zip(keys, inner, strict=True)]
        return ["{" + ",".join(pairs[a:b]) + "}" if there else None for a, b, there in _spans(column, ends)]
    if pa.types.is_timestamp(of):
        moments = np.datetime_as_string(column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False), "ms").tolist()
        zone = "Z" if of.tz else ""
        return [
            f'"{m}{zone}"' if there else None for m, there in zip(moments, column.is_valid().to_pylist(), strict=True)
        ]
    write = _writer(of)
    if pa.types.is_float32(of):
        return [None if v is None else write(np.float32(v)) for v in column.to_pylist()]
    return [None if v is None else write(v) for v in column.to_pylist()]


def _spans(column: pa.Array, offsets: pa.Array) -> Iterator[tuple[int, int, bool]]:
    """Begin and end of each list among all elements, and whether it is there."""
    ends = offsets.to_pylist()
    return zip(ends, ends[1:], column.is_valid().to_pylist(), strict=False)


def _writer(of: pa.DataType) -> Callable[[object], str]:
    if pa.types.is_boolean(of):
        return lambda v: "true" if v else "false"
    if pa.types.is_floating(of):
        return _float
    if pa.types.is_binary(of) or pa.types.is_large_binary(of):
        return lambda v: f'"{base64.b64encode(v).decode()}"'  # type: ignore[arg-type]
    if pa.types.is_decimal(of):
        return str  # as Java, with an exponent where it has many zeros
    return str if pa.types.is_integer(of) else lambda v: _quoted(str(v))


def _quoted(text: str) -> str:
    told = orjson.dumps(text).decode()
    if "\\u00" not in told:
        return told
    return _ESCAPED.sub(lambda m: "\\u" + m[0][2:].upper() if m[0][1] == "u" else m[0], told)


def _float(value: object) -> str:
    """As Java writes it."""
    number = float(value)  # type: ignore[arg-type]
    if not np.isfinite(number):
        return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0 or _SMALL <= abs(number) < _LARGE:
        return np.format_float_positional(value, unique=True, trim="0")  # type: ignore[arg-type]
    digits, exponent = np.format_float_scientific(value, unique=True, trim="0").split("e")  # type: ignore[arg-type]
    return f"{digits}E{int(exponent)}"
