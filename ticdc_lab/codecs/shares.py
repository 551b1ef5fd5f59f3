"""How many bytes of its message each event has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def shares(batch: pa.RecordBatch, message: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """Bytes of each event's message divided among its events, the first of which take what is left over.

    ``message`` is the place of each event's message in the batch, ``seq`` its own in the message.
    """
    texts = [batch.column(c).cast(pa.binary()) for c in ("key", "value")]  # nulls alone have no type of their own
    lengths = [pc.fill_null(pc.binary_length(text), 0).to_numpy() for text in texts]
    total = (lengths[0].astype(np.int64) + lengths[1])[message]
    events = np.bincount(message, minlength=batch.num_rows)[message]
    return np.asarray(total // events + (seq < total % events), dtype=np.int64)
