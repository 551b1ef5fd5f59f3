"""Lines of a capture file, read by plain Python or by the kernel (docs/contracts.md)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs import choice


class Lines(NamedTuple):
    """Fields of each line, null where they are absent or the line is wrong.

    Attributes
    ----------
    topic, headers
        Text; ``headers`` as JSON, null where there are none.
    partition, offset, timestamp_ms
        64-bit integers.
    key, value
        Binary.
    faults
        0, or what is wrong with the line: a number of :mod:`ticdc_lab.codecs.kernel.faults` above bit 40, and below it
        the byte of the line.
    """

    topic: pa.Array
    partition: pa.Array
    offset: pa.Array
    timestamp_ms: pa.Array
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    faults: np.ndarray


def read_lines(lines: pa.Array) -> Lines:
    """Read lines (binary), each a JSON object with key and value in base64."""
    if choice.compiled(choice.CAPTURE, lines):
        from ticdc_lab.codecs.kernel import capture_batch

        return capture_batch.read_lines(lines)
    from ticdc_lab.codecs.plain import capture

    return capture.read_lines(lines)
