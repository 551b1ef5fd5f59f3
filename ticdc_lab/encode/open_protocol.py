"""Events as open-protocol: JSON keys and values, which :mod:`ticdc_lab.encode.encoders` frames and batches.

What events of another protocol miss is derived as TiCDC would know it from a table: the binary flag from the type, the
unsigned flag from its text (and for BIT and YEAR, as TiDB sets it). The handle key is taken for the primary key, and
other columns for nullable ones: no other protocol shows which are unique or not null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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
    go_json,
    go_json_number,
    go_quoted_json,
    has_handle_key_only,
    joined,
    number,
    quoted,
    raw,
)  # fmt: skip
from ticdc_lab.encode.ddl_types import action_number
from ticdc_lab.events import mysql_types as m

BINARY, HANDLE, PRIMARY, MULTIPLE, NULLABLE, UNSIGNED = 1, 2, 8, 32, 64, 128

LOST = {
    "start_ts": "no field for it",
    "table_id": "only of partitions: kept of a log in open-protocol, dropped of others",
    "admin": "no message for it",
    "op": "an update without the image before is written as an insert",
    "columns.mysql_type": "only the type: no length, no scale, no ENUM elements",
    "incomplete": "claim-check-missing becomes handle-key-only, because events do not keep the location. The other "
    "reasons have no mark, and columns without a name in the image before are left out of it",
}
"""What encoding loses of an event, by field."""

_HOW = {
    m.INTEGER: number("integer, BIT, YEAR, ENUM or SET", INTEGER_TEXT),
    m.FLOAT: lambda texts: go_json_number(number("FLOAT or DOUBLE", FLOAT_TEXT)(texts)),
    m.TEXT: quoted,
    m.STRING: quoted,
    m.LONG_TEXT: each(lambda t: base64_of(t.encode())),
    m.BYTES: each(go_quoted_json),
    m.LONG_BYTES: each(lambda t: base64_of(raw(t))),
}


def derived_flags(shape: ColumnShape) -> int:
    """The flags that TiCDC would set, as far as the type and the handle key show."""
    flags = (BINARY if shape.type.binary else 0) | (UNSIGNED if shape.unsigned else 0)
    key = HANDLE | PRIMARY | (MULTIPLE if shape.keys > 1 else 0)
    return flags | (key if shape.is_key else NULLABLE)


def _column(shape: ColumnShape) -> str:
    flags = derived_flags(shape) if shape.flags is None else shape.flags
    handle = ',"h":true' if shape.is_key else ""
    return f'{go_json(shape.name)}:{{"t":{shape.type.code}{handle},"f":{flags},"v":'


def image(cells: ImageCells) -> pa.Array:
    """The members of each row's image."""
    values = by_form(cells.with_numbers(), cells.numbers(lambda s: s.type.form), _HOW)
    return cells.joined(joined(cells.of_shape(_column), pc.fill_null(values, "null"), "}"))


def rows(batch: pa.RecordBatch, tables: Any) -> tuple[pa.Array, pa.Array]:
    """Keys and values of row changes."""
    after, before = (np.asarray(batch.column(c).is_valid()) for c in ("columns", "before"))
    which = pa.array(np.where(after, np.where(before, 1, 0), 2))
    opening = pa.array(['{"u":{', '{"u":{', ""]).take(which)
    between = pa.array(["", '},"p":{', '{"d":{']).take(which)
    u, p = (image(cells_of(batch.column(c), tables)) for c in ("columns", "before"))
    return _row_keys(batch), joined(opening, u, between, p, "}}")


def _row_keys(batch: pa.RecordBatch) -> pa.Array:
    place = joined(',"ptn":', batch.column("table_id").cast(pa.string()))
    return joined(
        '{"ts":', batch.column("commit_ts").cast(pa.string()), ',"scm":', quoted(batch.column("schema_name")),
        ',"tbl":', quoted(batch.column("table_name")), ',"t":1',
        pa.array(["", ',"ohk":true']).take(has_handle_key_only(batch)), pc.fill_null(place, ""), "}",
    )  # fmt: skip


def other(event: dict[str, Any]) -> tuple[bytes | None, bytes | None] | None:
    """Key and value of a DDL or a watermark; None for what the protocol does not have."""
    if event["kind"] == "watermark":
        return go_json({"ts": event["commit_ts"], "t": 3}).encode(), b""
    if event["kind"] != "ddl":
        return None
    table = {"scm": event["schema_name"] or "", "tbl": event["table_name"] or ""}
    key = {"ts": event["commit_ts"], **table, "t": 2}
    query = event["query"] or ""
    return go_json(key).encode(), go_json({"q": query, "t": action_number(event["ddl_type"], query)}).encode()
