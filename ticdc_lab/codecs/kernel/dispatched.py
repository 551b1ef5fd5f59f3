"""The columns of :data:`ticdc_lab.events.schema.DISPATCH` of the events in a filled state, as Arrow arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import bits
from ticdc_lab.codecs.kernel.crcs import Crcs, fill_crcs, fresh_crcs
from ticdc_lab.codecs.kernel.state import State
from ticdc_lab.codecs.laid_out import shares

FRAMED = "open-protocol"
"""The protocol whose rows have bytes of their own in a message; in all others the rows of a message share it evenly."""


def sizes_of(batch: pa.RecordBatch, protocol: str, st: State) -> np.ndarray:
    """Bytes that each event has of its message, whose ``key`` and ``value`` ``batch`` has."""
    n = int(st.count[S.N_EVENTS])
    if protocol == FRAMED:
        return st.number[S.ROW_BYTES, :n].copy()
    return shares(batch, st.number[S.MESSAGE, :n], st.number[S.SEQ, :n])


def dispatch_columns(st: State, sizes: np.ndarray, protocol: str) -> dict[str, pa.Array]:
    """Fill and name them; ``sizes`` are the bytes that each event has of its message."""
    n = int(st.count[S.N_EVENTS])
    crcs = fresh_crcs(st)
    fill_crcs(st, crcs, S.REWRITTEN.get(protocol, S.AS_WRITTEN))
    is_row = st.byte[S.KIND, :n] == S.ROW
    return {
        "column_crcs": _lists(crcs, n, is_row),
        "key_crc": pa.Array.from_buffers(pa.int64(), n, [bits(crcs.has_key), pa.py_buffer(crcs.key)]),
        "layout": _layouts(crcs, is_row),
        "row_bytes": pa.Array.from_buffers(pa.int64(), n, [bits(is_row), pa.py_buffer(sizes)]),
    }


def _lists(crcs: Crcs, n: int, is_row: np.ndarray) -> pa.Array:
    total = int(crcs.end[n])
    values = pa.Array.from_buffers(pa.int64(), total, [bits(crcs.has[:total]), pa.py_buffer(crcs.crc[:total])])
    buffers = [bits(is_row), pa.py_buffer(crcs.end)]
    return pa.Array.from_buffers(pa.list_(pa.int64()), n, buffers, children=[values])


def _layouts(crcs: Crcs, is_row: np.ndarray) -> pa.Array:
    distinct = int(crcs.count[0])
    buffers = [None, pa.py_buffer(crcs.text_end[: distinct + 1]), pa.py_buffer(crcs.text)]
    texts = pa.Array.from_buffers(pa.string(), distinct, buffers)
    places = pa.Array.from_buffers(pa.int32(), len(is_row), [bits(is_row), pa.py_buffer(crcs.layout)])
    return pc.take(texts, places)
