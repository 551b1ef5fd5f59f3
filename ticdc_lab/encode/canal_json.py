"""Events as canal-json with TiDB's extension.

``ts``, the wall clock of TiCDC's encoder, is written as ``es``, the physical time of the commit, so that the same
events give the same bytes. ``mysqlType`` states types as TiCDC does by default, without length.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.encode.cells import (
    ColumnShape,
    ImageCells,
    Written,
    by_form,
    cells_of,
    each,
    expanded,
    go_html_json,
    has_handle_key_only,
    joined,
    latin1,
    quoted,
    quoted_ascii,
)
from ticdc_lab.encode.ddl_types import canal_word
from ticdc_lab.encode.open_protocol import PRIMARY
from ticdc_lab.errors import ProtocolError
from ticdc_lab.events import mysql_types as m
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.tso import physical_ms

LOST = {
    "start_ts": "no field for it",
    "admin": "no message for it",
    "table_id": "no field for it",
    "op": "an update without the image before is written as INSERT",
    "columns.flags": "no field for them",
    "columns.is_key": "a primary key alone: the log's DDL define other handle keys",
    "columns.mysql_type": "only the type, its sign and zerofill: no length, no scale, no ENUM elements",
    "ddl_type": "TiDB's action number becomes one of canal's eight words",
    "incomplete": "claim-check-missing becomes handle-key-only, because events do not keep the location. The other "
    "reasons have no mark",
}
"""What encoding loses of an event, by field."""

KEYLESS = "keyless"
"""A boolean column beside the event's: whether DDL define the row's table without a primary key."""

_quoted = partial(quoted, html=True)

_HOW: dict[int, Written] = {
    m.INTEGER: _quoted,
    m.FLOAT: lambda texts: quoted_ascii(expanded(texts)),
    m.TEXT: _quoted,
    m.STRING: _quoted,
    m.LONG_TEXT: _quoted,
    m.BYTES: each(latin1),
    m.LONG_BYTES: each(latin1),
}

# unsigned types whose java type is the next larger one's where the value exceeds the signed range
_PROMOTED = {"tinyint": (127, 5), "smallint": (32_767, 4), "int": (2**31 - 1, -5), "bigint": (2**63 - 1, 3)}


def _name(shape: ColumnShape) -> str:
    return go_html_json(shape.name)


def _mysql_type(shape: ColumnShape) -> str:
    sign = " unsigned" if shape.unsigned and shape.type.name not in ("bit", "year") else ""
    return f'{_name(shape)}:"{shape.type.name}{sign}{" zerofill" * shape.zerofill}"'


def image(cells: ImageCells) -> pa.Array:
    """The members of each row's image."""
    values = by_form(cells.with_numbers(), cells.numbers(lambda s: s.type.form), _HOW)
    return cells.joined(joined(cells.of_shape(_name), ":", pc.fill_null(values, "null")))


def sql_types(cells: ImageCells) -> Ints:
    """``java.sql.Types`` of each cell, as TiCDC's ``getJavaSQLType`` chooses them."""
    found = cells.numbers(lambda s: s.type.java)
    for name, (most, java) in _PROMOTED.items():
        of_type = np.array([s.unsigned and s.type.name == name for s in cells.shapes], bool)
        at = np.flatnonzero(of_type[cells.shape])
        if len(at):
            values = pc.fill_null(cells.value.take(pa.array(at)).cast(pa.uint64()), 0).to_numpy()
            found[at[values > np.uint64(most)]] = java
    return found


def rows(batch: pa.RecordBatch, tables: Any) -> tuple[pa.Array, pa.Array]:
    """Keys (null) and values of row changes."""
    columns, before = batch.column("columns"), batch.column("before")
    after, had = np.asarray(columns.is_valid()), np.asarray(before.is_valid())
    data = cells_of(columns if after.all() else pc.if_else(columns.is_valid(), columns, before), tables)
    old = cells_of(before if after.all() else pc.if_else(columns.is_valid(), before, None), tables)
    _require_typed(old, data, tables)
    primary = data.numbers(lambda s: s.is_key and (s.flags is None or s.flags & PRIMARY)) > 0
    if KEYLESS in batch.schema.names:
        primary &= ~batch.column(KEYLESS).to_numpy(zero_copy_only=False)[data.row_of_cell()]
    which = pa.array(np.where(after, np.where(had, 1, 0), 2))
    ts = batch.column("commit_ts")
    es = pc.shift_right(ts, 18).cast(pa.string())
    values = joined(
        '{"id":0,"database":', _quoted(batch.column("schema_name")), ',"table":', _quoted(batch.column("table_name")),
        ',"pkNames":[', data.joined(data.of_shape(_name), keep=primary),
        '],"isDdl":false,"type":', pa.array(['"INSERT"', '"UPDATE"', '"DELETE"']).take(which),
        ',"es":', es, ',"ts":', es, ',"sql":"","sqlType":{',
        data.joined(joined(data.of_shape(_name), ":", pa.array(sql_types(data)).cast(pa.string()))),
        '},"mysqlType":{', data.joined(data.of_shape(_mysql_type)), '},"old":',
        pa.array(["null", "[{", "null"]).take(which), image(old), pa.array(["", "}]", ""]).take(which),
        ',"data":[{', image(data), '}],"_tidb":{"commitTs":', ts.cast(pa.string()),
        pa.array(["}}", ',"onlyHandleKey":true}}']).take(has_handle_key_only(batch)),
    )  # fmt: skip
    return pa.nulls(batch.num_rows, pa.string()), values


def _require_typed(old: ImageCells, data: ImageCells, tables: Any) -> None:
    """Types are stated once, for ``data``: a column that only ``old`` has would have none."""
    names = {n: i for i, n in enumerate({s.name for s in old.shapes} | {s.name for s in data.shapes})}
    have, need = (c.row_of_cell() * len(names) + c.numbers(lambda s: names[s.name]) for c in (data, old))
    missing = np.flatnonzero(~np.isin(need, have))
    if len(missing):
        at = int(missing[0])
        raise ProtocolError(
            f"{tables(int(old.row_of_cell()[at]))}: column {old.shapes[old.shape[at]].name} is in the image before the "
            "change and not in the one after; canal-json cannot state its type."
        )


def other(event: dict[str, Any]) -> tuple[bytes | None, bytes | None] | None:
    """Key and value of a DDL or a watermark; None for what the protocol does not have."""
    if event["kind"] not in ("ddl", "watermark"):
        return None
    ts, ddl, query = event["commit_ts"], event["kind"] == "ddl", event["query"] or ""
    value = {
        "id": 0, "database": event["schema_name"] or "", "table": event["table_name"] or "", "pkNames": None,
        "isDdl": ddl, "type": canal_word(event["ddl_type"], query) if ddl else "TIDB_WATERMARK",
        "es": physical_ms(ts), "ts": physical_ms(ts), "sql": query,
        "sqlType": None, "mysqlType": None, "data": None, "old": None,
        "_tidb": {"commitTs" if ddl else "watermarkTs": ts},
    }  # fmt: skip
    return None, go_html_json(value).encode()
