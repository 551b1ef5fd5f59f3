"""Which decoders run, plain Python or the compiled kernels: the one place that decides. Both give the same.

Python decodes what a process sees first. The kernels take over where they are in the cache and the log is large enough
to pay for loading them; where they are not, a process of its own compiles them beside the work.
"""

from __future__ import annotations

import pyarrow as pa

from ticdc_lab.codecs.kernel import cache

HASHES, CAPTURE = "hashes", "capture"
"""Parts beside the protocols that have a kernel: hashing what a codec in Python decoded, and lines of capture files."""

LOAD_AFTER_BYTES = 256 << 10
"""Loading the kernels from the disk takes 0.04 CPU seconds, in which Python decodes a third of this.

Measured: Python 1.5 to 2.8 MB a second (2,500 to 5,500 messages), kernels 60 to 73 MB a second.
"""

COMPILE_AFTER_BYTES = 8 << 20
"""Four CPU seconds of plain Python: a log of that size is worth ten times as much in the background, once."""

COMPILE_HERE_BYTES = 128 << 20
"""A minute of plain Python, if no process fills the cache meanwhile: it cannot be written, or its process has died."""

_done_bytes: dict[str, int] = {}
_compiled: set[str] = set()


def expect(part: str, n_bytes: int, above: int = LOAD_AFTER_BYTES) -> bool:
    """So many bytes are to come for a part; whether they are many, ``above`` so many, and the kernels take all."""
    if n_bytes <= LOAD_AFTER_BYTES:
        return False
    _done_bytes[part] = max(_done_bytes.get(part, 0), min(n_bytes, COMPILE_AFTER_BYTES))
    return n_bytes > above and (part in _compiled or cache.has(part))


def compiled(part: str, batch: pa.RecordBatch | pa.Array) -> bool:
    """Whether the kernels of a part take the next batch; it counts as done."""
    if part in _compiled:
        return True
    done = _done_bytes[part] = _done_bytes.get(part, 0) + batch.nbytes
    if done < LOAD_AFTER_BYTES:
        return False
    if cache.has(part) or (done >= COMPILE_HERE_BYTES and not cache.being_filled()):
        _compiled.add(part)
        return True
    if done >= COMPILE_AFTER_BYTES:
        cache.start_filling()
    return False
