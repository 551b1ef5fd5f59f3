"""Events as mq-v1, the protocol of TiCDC's first design ("TiCDC MQ (Kafka) Protocol", section 消息类型).

TiCDC's design shows the form by example and leaves three things open, which are settled here:

- Type names are in :data:`ticdc_lab.events.mysql_types.TYPES` (``mq_v1``).
- Values of BINARY, VARBINARY and BLOB columns are base64, for JSON holds no bytes; DECIMAL, dates, times and JSON are
  text; integers, BIT, YEAR, ENUM, SET and floats are numbers (a label of an ENUM or SET is text).
- ``unique`` is there, and true, for the columns of the handle key only, as in the design's examples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.encode.cells import (
    FLOAT_TEXT,
    INTEGER_TEXT,
    ColumnShape,
    ImageCells,
    base64_of,
    by_form,
    cells_of,
    each,
    joined,
    number,
    quoted,
    raw,
)
from ticdc_lab.events import mysql_types as m

LOST = {
    "start_ts": "no field for it",
    "table_id": "no field for it",
    "op": "insert and update are both `update`: an upsert",
    "before": "an update carries the image after alone",
    "columns.flags": "no field for them",
    "columns.mysql_type": "only the type: not whether it is unsigned, no length, no scale, no ENUM elements",
    "ddl_type": "no field for it",
    "incomplete": "a row of handle keys alone looks like a whole one",
}
"""What encoding loses of an event, by field."""

_LABEL = 7


def _label_or_number(texts: pa.Array) -> pa.Array:
    digits = pc.fill_null(pc.match_substring_regex(texts, INTEGER_TEXT), True)
    return pc.if_else(digits, texts, quoted(texts))


def _float(texts: pa.Array) -> pa.Array:
    """JSON readers take ``-0`` for the integer 0."""
    return pc.replace_substring_regex(number("FLOAT or DOUBLE", FLOAT_TEXT)(texts), "^-0$", "-0.0")


_HOW = {
    m.INTEGER: number("integer, BIT or YEAR", INTEGER_TEXT),
    m.FLOAT: _float,
    m.TEXT: quoted,
    m.STRING: quoted,
    m.LONG_TEXT: quoted,
    m.BYTES: each(lambda t: base64_of(raw(t))),
    m.LONG_BYTES: each(lambda t: base64_of(raw(t))),
    _LABEL: _label_or_number,
}


def _form(shape: ColumnShape) -> int:
    return _LABEL if shape.type.name in ("enum", "set") else shape.type.form


def image(cells: ImageCells) -> pa.Array:
    """The members of each row's image."""
    values = pc.fill_null(by_form(cells.value, cells.numbers(_form), _HOW), "null")
    before = cells.of_shape(lambda s: f'{orjson.dumps(s.name).decode()}:{{"type":"{s.type.mq_v1}","value":')
    return cells.joined(joined(before, values, cells.of_shape(lambda s: ',"unique":true}' if s.is_key else "}")))


def rows(batch: pa.RecordBatch, tables: Any) -> tuple[pa.Array, pa.Array]:
    """Keys and values of row changes."""
    columns, before = batch.column("columns"), batch.column("before")
    after = columns.is_valid()
    data = cells_of(columns if pc.all(after).as_py() else pc.if_else(after, columns, before), tables)
    opening = pa.array(['{"delete":{', '{"update":{']).take(pa.array(np.asarray(after).astype(np.int32)))
    keys = joined(
        '{"ts":', batch.column("commit_ts").cast(pa.string()), ',"type":"Row","schema":',
        quoted(batch.column("schema_name")), ',"table":', quoted(batch.column("table_name")), "}",
    )  # fmt: skip
    return keys, joined(opening, image(data), "}}")


def other(event: dict[str, Any]) -> tuple[bytes | None, bytes | None] | None:
    """Key and value of a DDL, a watermark or an admin event; None for what the protocol does not have."""
    if event["kind"] == "watermark":
        return orjson.dumps({"ts": event["commit_ts"], "type": "Resolved"}), None
    if event["kind"] == "admin":
        return orjson.dumps({"type": "Admin"}), orjson.dumps({"partition": event["admin"]["partition_count"]})
    if event["kind"] != "ddl":
        return None
    table = {"schema": event["schema_name"] or "", "table": event["table_name"] or ""}
    return orjson.dumps({"ts": event["commit_ts"], "type": "DDL", **table}), orjson.dumps(
        {"query": event["query"] or ""}
    )
