"""One batch of capture lines through the kernel, and the result as Arrow arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import Lines
from ticdc_lab.codecs.kernel import capture, faults
from ticdc_lab.codecs.kernel.arrow import numbers, spans, texts
from ticdc_lab.codecs.kernel.state import fresh_state

_PLACE = (1 << 40) - 1


def read_lines(lines: pa.Array) -> Lines:
    """As :func:`ticdc_lab.sources.capture.read_fields`.

    No field is longer than its text in the line, and an array of lines has less than 2 GiB, so there is room.
    """
    data, starts, ends = spans(lines)
    n = len(lines)
    st, found = fresh_state(n + 64, len(data) + 4096), np.zeros(n, np.int64)
    if capture.read_lines(data, starts, ends, st, found) != faults.OK:
        raise AssertionError(f"{n} lines became more than their {len(data)} bytes")
    wrong = found != 0
    places = np.maximum((found & _PLACE) - starts, 0)
    st.byte[:3, :n] &= ~wrong
    partition, offset, timestamp_ms = (numbers(st.number[k], st.byte[k], n) for k in range(3))
    return Lines(
        texts(st, capture.TOPIC, n, pa.string()),
        partition,
        offset,
        timestamp_ms,
        texts(st, capture.KEY, n, pa.binary()),
        texts(st, capture.VALUE, n, pa.binary()),
        texts(st, capture.HEADERS, n, pa.string()),
        np.where(wrong, found >> 40 << 40 | places, 0),
    )
