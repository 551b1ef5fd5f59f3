"""Events in columns, before they are hashed and become an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.event import Cell, Event
from ticdc_lab.codecs.kernel.arrow import bits, copied
from ticdc_lab.codecs.kernel.numbering import ROW


@dataclass(frozen=True, slots=True)
class Image:
    """The columns of the images of one kind, after or before; those of event ``i`` begin at ``ends[i]``."""

    there: np.ndarray
    ends: np.ndarray
    name_list: Sequence[str]
    type_list: Sequence[str | None]
    value_list: Sequence[str | None]
    names: pa.Array
    types: pa.Array
    values: pa.Array
    is_key: np.ndarray
    flags: np.ndarray

    def lists(self) -> pa.Array:
        """The image of each event as the contract has it."""
        columns = pa.StructArray.from_arrays(
            [
                self.names,
                self.types,
                self.values,
                pa.Array.from_buffers(pa.bool_(), len(self.is_key), [None, bits(self.is_key)]),
                integers(self.flags, self.flags >= 0),
            ],
            names=["name", "mysql_type", "value", "is_key", "flags"],
        )
        buffers = [bits(self.there), copied(self.ends.astype(np.int32))]
        return pa.Array.from_buffers(pa.list_(columns.type), len(self.there), buffers, children=[columns])


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Events in columns."""

    is_row: np.ndarray
    op: np.ndarray
    schema_name: pa.Array
    table_name: pa.Array
    after: Image
    before: Image

    def dispatched(self, i: int) -> Image:
        """The image of an event by which a dispatcher sends it: the one before a delete."""
        return self.after if self.after.there[i] else self.before


def lay_out(events: Sequence[Event]) -> LaidOut:
    """Put events into columns."""
    return LaidOut(
        np.array([e.kind == ROW for e in events], bool),
        np.array([e.op for e in events], np.int64),
        pa.array([e.schema_name for e in events], pa.string()),
        pa.array([e.table_name for e in events], pa.string()),
        _image([e.columns for e in events]),
        _image([e.before for e in events]),
    )


def _image(images: Sequence[Sequence[Cell] | None]) -> Image:
    cells = [cell for image in images for cell in image or ()]
    names, types, values, is_key, flags = zip(*cells, strict=True) if cells else ((),) * 5
    ends = np.cumsum([0, *(len(image or ()) for image in images)], dtype=np.int64)
    return Image(
        np.array([image is not None for image in images], bool),
        ends,
        names,
        types,
        values,
        pa.array(names, pa.string()),
        pa.array(types, pa.string()),
        pa.array(values, pa.string()),
        np.array(is_key, bool),
        np.array(flags, np.int64),
    )


def integers(values: np.ndarray, valid: np.ndarray) -> pa.Array:
    """Numbers of 64 bits as Arrow's signed ones, null where they are not valid."""
    return pa.Array.from_buffers(pa.int64(), len(values), [bits(valid), copied(np.ascontiguousarray(values))])
