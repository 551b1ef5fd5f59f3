"""Row images of many changes as one Arrow array of the events contract."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ticdc_lab.simulate.pipeline.tables import Cell, TableInfo

COLUMN = pa.struct(
    [
        ("name", pa.string()),
        ("mysql_type", pa.string()),
        ("value", pa.string()),
        ("is_key", pa.bool_()),
        ("flags", pa.int64()),
    ]
)
"""One column of an image (:data:`ticdc_lab.events.schema.COLUMN`)."""

Image = tuple[TableInfo, tuple[Cell, ...] | None]


def images(rows: Sequence[Image]) -> pa.Array:
    """Write cells as images; None is no image."""
    names: list[str] = []
    types: list[str] = []
    keys: list[bool] = []
    values: list[str | None] = []
    lengths = np.zeros(len(rows), np.int32)
    for at, (info, cells) in enumerate(rows):
        if cells is None:
            continue
        own_names, own_types, own_keys = _shape(info)
        names += own_names
        types += own_types
        keys += own_keys
        values += [text_of(c) for c in cells]
        lengths[at] = len(cells)
    flat = pa.StructArray.from_arrays(
        [
            pa.array(names, pa.string()),
            pa.array(types, pa.string()),
            pa.array(values, pa.string()),
            pa.array(keys, pa.bool_()),
            pa.nulls(len(names), pa.int64()),
        ],
        fields=list(COLUMN),
    )
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    absent = np.array([cells is None for _, cells in rows], np.bool_)
    return pa.ListArray.from_arrays(pa.array(ends), flat, mask=pa.array(absent)) if len(rows) else pa.array([], _LIST)


def text_of(cell: Cell) -> str | None:
    """Write a cell as the text that MySQL prints."""
    return cell if cell is None or isinstance(cell, str) else str(cell)


_LIST = pa.list_(COLUMN)
_SHAPES: dict[TableInfo, tuple[list[str], list[str], list[bool]]] = {}


def _shape(info: TableInfo) -> tuple[list[str], list[str], list[bool]]:
    found = _SHAPES.get(info)
    if found is None:
        columns = info.columns
        found = [c.name for c in columns], [c.mysql_type for c in columns], [c.is_key for c in columns]
        _SHAPES[info] = found
    return found
