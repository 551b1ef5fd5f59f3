"""Row changes to Arrow: both images of each, whatever tables and definitions they are of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.events.arrays import Bools, Ints
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.workload.chains import DELETE, INSERT, LaneChanges
from ticdc_lab.workload.definitions import Definition
from ticdc_lab.workload.lanes import states_of
from ticdc_lab.workload.shape import Shape

IMAGES = ("columns", "before")
_OPS = pa.array(["insert", "update", "delete"], pa.string())
_CELL = arrow_schema(EVENTS).field("columns").type.value_type


class TableValues:
    """Values of some rows, collected table by table, and put row by row in the end."""

    def __init__(self) -> None:
        self.values: list[pa.Array] = []
        self.names: list[str] = []
        self.types: list[str] = []
        self.keys: list[bool] = []
        self.parts: list[tuple[Ints, Ints, int]] = []
        """Rows, where the values of each begin, and which column is the first."""
        self.filled = 0

    def add(self, rows: Ints, columns: list[pa.Array], of: Definition) -> None:
        """Add the columns of some rows of one definition."""
        self.parts.append((rows, self.filled + np.arange(len(rows)), len(self.names)))
        self.values += columns
        self.filled += len(rows) * len(columns)
        self.names += [f.name for f in of.fields]
        self.types += [f.mysql_type for f in of.fields]
        self.keys += [f.is_key for f in of.fields]

    def images(self, width: Ints, there: Bools) -> pa.Array:
        """Give the image of each row, null where it is not ``there``; ``width`` columns each."""
        ends = np.append(0, np.cumsum(np.where(there, width, 0)))
        value, column = np.empty((2, int(ends[-1])), np.int32)
        for rows, first, name in self.parts:
            n = int(width[rows[0]]) if len(rows) else 0
            step = np.arange(n)
            cells = ends[rows][:, None] + step
            value[cells] = first[:, None] + len(rows) * step
            column[cells] = name + step
        kind = pa.array(column)
        flat = pa.StructArray.from_arrays(
            [
                pa.array(self.names, pa.string()).take(kind),
                pa.array(self.types, pa.string()).take(kind),
                pa.concat_arrays(self.values).take(pa.array(value)) if self.values else pa.nulls(0, pa.string()),
                pa.array(self.keys, pa.bool_()).take(kind),
                pa.nulls(len(kind), pa.int64()),
            ],
            fields=list(_CELL),
        )
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, type=pa.list_(_CELL), mask=pa.array(~there))


def events_of(changes: LaneChanges, shape: Shape, rows: int) -> Iterator[pa.RecordBatch]:
    """Give the changes as events without ``kind``, ``rows`` at once."""
    for first in range(0, len(changes.slot), rows):
        yield _events(changes, np.arange(first, min(first + rows, len(changes.slot))), shape)


def _events(c: LaneChanges, at: Ints, shape: Shape) -> pa.RecordBatch:
    """Give the events of the changes ``at``."""
    op, former = c.op[at], c.former[at]
    after, before = TableValues(), TableValues()
    width, which = np.zeros(len(at), np.int64), np.empty(len(at), np.int32)
    defined: list[Definition] = []
    for definition, rows in groups(c, at, shape):
        width[rows], which[rows] = len(definition.fields), len(defined)
        defined.append(definition)
        new, old = rows[op[rows] != DELETE], rows[op[rows] != INSERT]
        states = states_of(c, np.append(at[new], former[old]), shape)
        values = [f.values(states) for f in definition.fields]
        after.add(new, [v.slice(0, len(new)) for v in values], definition)
        before.add(old, [v.slice(len(new)) for v in values], definition)
    images = (after.images(width, op != DELETE), before.images(width, op != INSERT))
    slot, of = c.slot[at], pa.array(which)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(shape.commit_ts_of(slot)),
            pa.array(shape.start_ts_of(slot)),
            pa.array([d.name for d in defined], pa.string()).take(of),
            pa.array([d.id for d in defined], pa.int64()).take(of),
            _OPS.take(pa.array(op)),
            *images,
            pa.array(slot),
            pa.array(c.seq[at], pa.int32()),
        ],
        names=["commit_ts", "start_ts", "table_name", "table_id", "op", *IMAGES, "offset", "seq"],
    )


def groups(c: LaneChanges, at: Ints, shape: Shape) -> Iterator[tuple[Definition, Ints]]:
    """Give the places in ``at`` of each definition."""
    most = 1 + max(len(d) for d in shape.plan.definitions)
    code = c.table[at] * most + c.definition[at]
    order = np.argsort(code, kind="stable")
    found, starts = np.unique(code[order], return_index=True)
    for of, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        yield shape.plan.definitions[of // most][of % most], rows
