"""Between Arrow arrays and what the kernels read and fill."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from ticdc_lab.codecs.kernel.state import State

Spans = tuple[np.ndarray, np.ndarray, np.ndarray]


def spans(column: pa.Array) -> Spans:
    """The bytes of a binary array, and where each value starts (-1 for null) and ends."""
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    n = len(column)
    offsets = _view(column.buffers()[1], np.int32)[column.offset : column.offset + n + 1].astype(np.int64)
    low, high = (int(offsets[0]), int(offsets[-1])) if n else (0, 0)
    data = _view(column.buffers()[2], np.uint8)[low:high]
    offsets -= low
    starts, ends = offsets[:-1].copy(), offsets[1:].copy()
    if column.null_count:
        starts[np.asarray(column.is_null().to_numpy(zero_copy_only=False))] = -1
    return data, starts, ends


def _view(buffer: pa.Buffer | None, dtype: Any) -> np.ndarray:
    """A buffer as an array that numba types as writable, so that input and scratch share one compiled form."""
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype)
    raw = (ctypes.c_uint8 * buffer.size).from_address(buffer.address)
    raw._keep = buffer
    whole = buffer.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
    return np.frombuffer(raw, np.uint8)[:whole].view(dtype)


def bits(valid: np.ndarray) -> pa.Buffer:
    """A byte for each value to Arrow's bitmap."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def copied(values: np.ndarray) -> pa.Buffer:
    """The values as a buffer of their own: the state they lie in is used again.

    From Arrow's pool, which keeps its pages; clearing fresh ones would be a tenth of all decoding.
    """
    buffer = pa.allocate_buffer(values.nbytes)
    np.frombuffer(buffer, values.dtype)[:] = values
    return buffer


def texts(st: State, k: int, n: int, kind: pa.DataType) -> pa.Array:
    """The first ``n`` texts of column ``k``."""
    if not st.size[k] and not st.valid[k, :n].any():
        return constant(None, n, kind)
    buffers = [bits(st.valid[k, :n]), copied(st.end[k, : n + 1]), copied(st.data[k, : st.size[k]])]
    return pa.Array.from_buffers(kind, n, buffers)


def texts_of(st: State, k: int, column: pa.Array) -> None:
    """Fill text column ``k`` from a string array that no slice was taken of; the inverse of :func:`texts`."""
    n = len(column)
    st.end[k, : n + 1] = _view(column.buffers()[1], np.int32)[: n + 1] if n else 0
    size = st.size[k] = int(st.end[k, n])
    st.data[k, :size] = _view(column.buffers()[2], np.uint8)[:size]
    st.valid[k, :n] = column.is_valid().to_numpy(zero_copy_only=False)


def numbers(values: np.ndarray, valid: np.ndarray, n: int) -> pa.Array:
    """The first ``n`` integers."""
    if not valid[:n].any():
        return constant(None, n, pa.int64())
    return pa.Array.from_buffers(pa.int64(), n, [bits(valid[:n]), copied(values[:n])])


def constant(value: str | None, n: int, kind: pa.DataType) -> pa.Array:
    """One value again and again."""
    return _repeated(value, kind).slice(0, n) if n <= _REPEATED else pa.repeat(pa.scalar(value, kind), n)


_REPEATED = 16_384


@cache
def _repeated(value: str | None, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), _REPEATED)


@cache
def arrow_schema(form: StructType) -> pa.Schema:
    """A contract of :mod:`ticdc_lab.events.schema` as an Arrow schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(form, timezone="UTC")


def in_form(columns: dict[str, pa.Array], n: int, form: StructType) -> pa.RecordBatch:
    """The columns in the order of a contract; what is left out is null."""
    if id(form) not in _FIELDS:  # by identity: Spark hashes a type by its whole text, a tenth of a small batch's time
        schema = arrow_schema(form)
        _FIELDS[id(form)] = form, schema, [(field.name, field.type) for field in schema]
    _, schema, fields = _FIELDS[id(form)]
    arrays = []
    for name, kind in fields:
        column = columns.get(name)
        if column is None:
            column = constant(None, n, kind)
        arrays.append(column if column.type == kind else column.cast(kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_FIELDS: dict[int, tuple[StructType, pa.Schema, list[tuple[str, pa.DataType]]]] = {}
