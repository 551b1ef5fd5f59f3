"""Messages that could not be decoded, as rows of the quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.event import Malformed, Outgrown
from ticdc_lab.codecs.kernel.arrow import in_form
from ticdc_lab.codecs.plain.named import cut_or, named
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.events.schema import DECODED

Decode = Callable[[pa.RecordBatch, pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Messages with nothing packed in them, and as they were, to rows of DECODED."""


class TooMuchError(Exception):
    """What a batch becomes is too large; of fewer messages it may not be."""


def one_by_one(
    decode: Decode, batch: pa.RecordBatch, original: pa.RecordBatch, protocol: str
) -> Iterator[pa.RecordBatch]:
    """What ``decode`` gives of a batch; where it fails, of its halves, and a message that fails alone is in quarantine.

    One unforeseen message must not end the load of all others. An error of this package goes through: it is
    none of the messages'.
    """
    try:
        found = list(decode(batch, original))
    except (TiCDCLabError, Outgrown):
        raise
    except Exception as fault:
        if batch.num_rows <= 1:
            said = unforeseen(fault)
            yield refused(original, [said.error_class], [utf8(said.reason)], protocol=protocol)
            return
    else:
        yield from found
        return
    half = batch.num_rows // 2
    for start, stop in ((0, half), (half, batch.num_rows)):
        n = stop - start
        yield from one_by_one(decode, batch.slice(start, n), original.slice(start, n), protocol)


def unforeseen(fault: Exception) -> Malformed:
    """Why a message is in quarantine on which its decoder failed."""
    if isinstance(fault, MemoryError | TooMuchError):
        return Malformed("too-large", f"this one message does not fit into memory: {str(fault)[:200]}")
    return Malformed("codec-error", f"the decoder failed on this message: {type(fault).__name__}: {str(fault)[:200]}")


def utf8(text: str) -> str:
    """Text with what is no character of it, half a surrogate pair, as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def refused_at(
    batch: pa.RecordBatch, original: pa.RecordBatch, protocol: str, failed: Sequence[tuple[int, Malformed]]
) -> pa.RecordBatch:
    """Messages that failed as they were, each with its table, frame and field as far as they are in ``batch``."""
    where = pa.array([m for m, _ in failed], pa.int64())
    keys, values = (batch.column(name).take(where).to_pylist() for name in ("key", "value"))
    faults = [cut_or(protocol, value, fault) for value, (_, fault) in zip(values, failed, strict=True)]
    reasons = [utf8(named(protocol, *row)) for row in zip(keys, values, faults, strict=True)]
    classes, seqs = [fault.error_class for fault in faults], [fault.seq for fault in faults]
    return refused(original.take(where), classes, reasons, protocol=protocol, seqs=seqs)


def refused(
    batch: pa.RecordBatch, classes: list[str], reasons: list[str], *, protocol: str, seqs: list[int] | None = None
) -> pa.RecordBatch:
    """Messages as rows of the quarantine, each with its class and reason; ``seqs`` are above 0 for parts of one."""
    n = batch.num_rows
    columns = {name: batch.column(name) for name in ("topic", "partition", "offset", "key", "value")} | {
        "seq": pa.array(np.zeros(n, np.int32) if seqs is None else seqs, pa.int32()),
        "protocol": pa.array([protocol] * n, pa.string()),
        "error_class": pa.array(classes, pa.string()),
        "reason": pa.array(reasons, pa.string()),
    }
    return in_form(columns, n, DECODED)
