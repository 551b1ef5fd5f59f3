"""Compile the kernels into the cache: ``python -m ticdc_lab.codecs.kernel.compiling``.

One process of a machine does it at a time; what is in the cache is not compiled again. An argument is added to the
process's niceness.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel import cache
from ticdc_lab.codecs.registry import KERNELS, PART_KERNELS
from ticdc_lab.engine.sail_process import FEW_SEARCHES

_TYPES = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()}


def _no_messages() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array([], kind) for name, kind in _TYPES.items()})


def _decoder(protocol: str) -> None:
    from ticdc_lab.codecs.decode import decode_batch

    decode_batch(_no_messages(), protocol)


def _hashes() -> None:
    from ticdc_lab.codecs.kernel.columns import hashed
    from ticdc_lab.codecs.laid_out import lay_out

    hashed(lay_out([]), np.zeros(0, np.int64))


def _capture() -> None:
    from ticdc_lab.codecs.kernel.capture import lines_of

    lines_of(pa.array([], pa.binary()))


def _beside(protocol: str) -> None:
    """The kernel beside a codec."""
    from ticdc_lab.codecs.known import BOUNDS, NOTHING
    from ticdc_lab.codecs.registry import codec_of, part_kernel

    if kernel := part_kernel(protocol, codec_of(protocol, NOTHING)):
        kernel(_no_messages(), images=True, bounds=BOUNDS)


def _chains() -> None:
    from ticdc_lab.codecs.kernel.chains import compile_all

    compile_all()


def _csv() -> None:
    from ticdc_lab.codecs import csv
    from ticdc_lab.codecs.kernel import csv as kernel
    from ticdc_lab.codecs.table_file import Cut

    data = np.frombuffer(b'"I","t","s"\r\n', np.uint8).copy()
    records = csv.find_records(data, quote=Cut().quote, terminator="\r\n")
    csv.records_among(data, records, Cut(), most=1)
    given = csv.layout(None, Cut(), csv.PLAIN_SHAPE, "\r\n", kernel.PLAIN)
    kernel.join_updates(data, records.starts, records.ends, 0, given)
    kernel.gather(data, records.starts, records.ends, data.copy())
    list(csv.decode_csv(_no_messages(), given))


PARTS: dict[str, Callable[[], None]] = {
    "capture": _capture,
    **{protocol: partial(_decoder, protocol) for protocol in KERNELS},
    "hashes": _hashes,
    "chains": _chains,
    "csv": _csv,
    **{protocol: partial(_beside, protocol) for protocol in PART_KERNELS},
}
"""Parts of :mod:`ticdc_lab.codecs.choice`, and what compiles each: running it over nothing."""


def main(niceness: int) -> None:
    """Compile what is not in the cache, unless another process does."""
    os.nice(niceness)
    gc.set_threshold(FEW_SEARCHES)
    with cache.filling() as mine:
        for part, compile_it in PARTS.items() if mine else ():
            if not cache.has(part):
                compile_it()
                cache.note(part)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 0)
