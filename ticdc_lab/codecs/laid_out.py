"""Events in columns, as what hashes them reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ticdc_lab.codecs.event import Cell, Event
from ticdc_lab.codecs.kernel.arrow import arrow_schema, bits, copied
from ticdc_lab.codecs.kernel.numbering import DELETE, INSERT, KINDS, OPS, ROW
from ticdc_lab.events.schema import BEFORE_UNNAMED, EVENTS


@dataclass(frozen=True, slots=True)
class Image:
    """The columns of the images of one kind, after or before; event ``i``'s begin at ``ends[i]``."""

    there: np.ndarray
    ends: np.ndarray
    names: pa.Array
    types: pa.Array
    values: pa.Array
    is_key: np.ndarray
    flags: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """The event of each column."""
        return np.repeat(np.arange(len(self.there)), np.diff(self.ends))

    def at(self, name: str) -> np.ndarray:
        """Where each event's first column of this name stands among all; -1 where it has none."""
        found = np.full(len(self.there), -1, dtype=np.int64)
        own = np.flatnonzero(np.asarray(pc.equal(self.names, name)))[::-1]
        found[self.rows[own]] = own  # of several the last is kept: the first
        return found

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
    unnamed: np.ndarray
    """Whose image before is short of columns that changed (:data:`ticdc_lab.events.schema.BEFORE_UNNAMED`)."""

    @property
    def dispatched(self) -> Image:
        """The images that TiCDC hashes: the old row of a delete, else the new row, also of an update."""
        old = (self.op == DELETE) & self.before.there
        sides = [
            (image, np.flatnonzero(old[image.rows] == (image is self.before))) for image in (self.after, self.before)
        ]
        row = np.concatenate([image.rows[at] for image, at in sides])
        order = np.argsort(row, kind="stable")
        names, types, values = (
            pa.concat_arrays([getattr(image, part).take(pa.array(at)) for image, at in sides]).take(pa.array(order))
            for part in ("names", "types", "values")
        )
        is_key, flags = (
            np.concatenate([getattr(image, part)[at] for image, at in sides])[order] for part in ("is_key", "flags")
        )
        ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(old)))])
        return Image(np.where(old, True, self.after.there), ends, names, types, values, is_key, flags)


def lay_out(events: Sequence[Event]) -> LaidOut:
    """Put events into columns."""
    return LaidOut(
        np.array([e.kind == ROW for e in events], bool),
        np.array([e.op for e in events], np.int64),
        pa.array([e.schema_name for e in events], pa.string()),
        pa.array([e.table_name for e in events], pa.string()),
        _image([e.columns for e in events]),
        _image([e.before for e in events]),
        np.array([e.incomplete == BEFORE_UNNAMED for e in events], bool),
    )


def _image(images: Sequence[Sequence[Cell] | None]) -> Image:
    cells = [cell for image in images for cell in image or ()]
    names, types, values, is_key, flags = zip(*cells, strict=True) if cells else ((),) * 5
    ends = np.cumsum([0, *(len(image or ()) for image in images)], dtype=np.int64)
    return Image(
        np.array([image is not None for image in images], bool),
        ends,
        pa.array(names, pa.string()),
        pa.array(types, pa.string()),
        pa.array(values, pa.string()),
        np.array(is_key, bool),
        np.array(flags, np.int64),
    )


def laid_out_of(batch: pa.RecordBatch) -> LaidOut:
    """Events of the events contract in columns; one without ``op`` is taken for an insert."""
    op = pc.fill_null(pc.index_in(batch.column("op"), pa.array(OPS)), INSERT)
    is_row = pc.fill_null(pc.equal(batch.column("kind"), KINDS[ROW]), False)
    unnamed = pa.array(np.zeros(batch.num_rows, bool))
    if "incomplete" in batch.schema.names:
        unnamed = pc.fill_null(pc.equal(batch.column("incomplete"), BEFORE_UNNAMED), False)
    return LaidOut(
        is_row.to_numpy(zero_copy_only=False),
        op.to_numpy(zero_copy_only=False).astype(np.int64),
        _compact(batch.column("schema_name")),
        _compact(batch.column("table_name")),
        _image_of(batch.column("columns")),
        _image_of(batch.column("before")),
        unnamed.to_numpy(zero_copy_only=False),
    )


def _image_of(lists: pa.Array) -> Image:
    lists = lists.cast(arrow_schema(_IMAGE).field(0).type)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    names, types, values, is_key, flags = lists.flatten().flatten()
    return Image(
        lists.is_valid().to_numpy(zero_copy_only=False),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
        _compact(names),
        _compact(types),
        _compact(values),
        pc.fill_null(is_key, False).to_numpy(zero_copy_only=False),
        pc.fill_null(flags, -1).to_numpy(zero_copy_only=False),
    )


_IMAGE = StructType([EVENTS["columns"]])


def _compact(texts: pa.Array) -> pa.Array:
    """The same texts in buffers that begin with them."""
    texts = texts.cast(pa.string())
    return pa.concat_arrays([texts, pa.array([], pa.string())])


def integers(values: np.ndarray, valid: np.ndarray) -> pa.Array:
    """Numbers of 64 bits as Arrow's signed ones, null where they are not valid."""
    return pa.Array.from_buffers(pa.int64(), len(values), [bits(valid), copied(np.ascontiguousarray(values))])


def shares(batch: pa.RecordBatch, message: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """Bytes of each event's message divided among its events; the first take the remainder.

    ``message`` is the place of each event's message in the batch, ``seq`` its own in the message.
    """
    texts = [batch.column(c).cast(pa.binary()) for c in ("key", "value")]  # nulls alone have no type of their own
    lengths = [pc.fill_null(pc.binary_length(text), 0).to_numpy() for text in texts]
    total = (lengths[0].astype(np.int64) + lengths[1])[message]
    if not seq.any():  # one event a message
        return np.asarray(total, dtype=np.int64)
    events = np.bincount(message, minlength=batch.num_rows)[message]
    return np.asarray(total // events + (seq < total % events), dtype=np.int64)
