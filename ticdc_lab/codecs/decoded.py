"""What is read of a batch before it is a batch of events with its quarantine: events, and fields of a file's lines."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.known import Bounds

if TYPE_CHECKING:
    from ticdc_lab.codecs.kernel.noted import Noted

NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)
"""Where kernels note what images show, in place of making them (:mod:`ticdc_lab.codecs.kernel.noted`)."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Events of a batch, the message of each, and the messages that failed."""

    events: pa.RecordBatch
    message: np.ndarray
    failed: list[tuple[int, Malformed]] = field(default_factory=list)


class PartKernel(Protocol):
    """A kernel that decodes messages as a format's encoder writes them, and leaves all others to a codec in Python."""

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events of the messages that it decodes, in message order."""

    def stands(self) -> bool:
        """Whether what it decoded is still right after the codec has read the others; if not, all are the codec's."""


class Lines(NamedTuple):
    """Fields of each line, null where they are absent or the line is wrong."""

    # ``topic``, ``headers``: text; ``headers`` as JSON, null where there are none.
    topic: pa.Array
    # ``partition``, ``offset``, ``timestamp_ms``: 64-bit integers.
    partition: pa.Array
    offset: pa.Array
    timestamp_ms: pa.Array
    # ``key``, ``value``: binary.
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    # 0, or what is wrong with the line: a number of :mod:`ticdc_lab.codecs.kernel.faults` above bit 40, and below it
    # the byte of the line.
    faults: np.ndarray
