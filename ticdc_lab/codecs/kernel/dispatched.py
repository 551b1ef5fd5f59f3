"""The columns of :data:`ticdc_lab.schema.DISPATCH` of the events in a filled state, as Arrow arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel import state as S
from ticdc_lab.codecs.kernel.arrow import bits
from ticdc_lab.codecs.kernel.crcs import Crcs, fill_crcs, fresh_crcs
from ticdc_lab.codecs.kernel.state import State

FRAMED = "open-protocol"
"""The protocol whose rows have bytes of their own in a message; in all others the rows of a message share it evenly."""


def dispatch_columns(batch: pa.RecordBatch, protocol: str, st: State) -> dict[str, pa.Array]:
    """Fill and name them; ``batch`` has the ``key`` and ``value`` of the messages that the events came from."""
    n = int(st.count[S.N_EVENTS])
    crcs = fresh_crcs(st)
    fill_crcs(st, crcs)
    is_row = st.byte[S.KIND, :n] == S.ROW
    sizes = st.number[S.ROW_BYTES, :n].copy() if protocol == FRAMED else _shares(batch, st, n)
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
    return pc.take(texts, pa.array(crcs.layout, mask=~is_row))


def _shares(batch: pa.RecordBatch, st: State, n: int) -> np.ndarray:
    """Bytes of each event's message divided among its events, the first of which take what is left over."""
    message, seq = st.number[S.MESSAGE, :n], st.number[S.SEQ, :n]
    texts = [batch.column(c).cast(pa.binary()) for c in ("key", "value")]  # nulls alone have no type of their own
    lengths = [pc.fill_null(pc.binary_length(text), 0).to_numpy() for text in texts]
    total = (lengths[0].astype(np.int64) + lengths[1])[message]
    events = np.bincount(message, minlength=batch.num_rows)[message]
    return np.asarray(total // events + (seq < total % events), dtype=np.int64)
