"""What decoders add to events so that nobody has to read an image again, over events from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.kernel.numbering import DELETE
from ticdc_lab.codecs.laid_out import Image, LaidOut, laid_out_of
from ticdc_lab.events.schema import DISPATCH

_BYTES_OF_NULL = 4


def hashed(laid: LaidOut, sizes: np.ndarray, *, compiled: bool) -> dict[str, pa.Array]:
    """The columns of KEYS, IMAGE_HASHES and DISPATCH (:mod:`ticdc_lab.events.schema`) of some events.

    Parameters
    ----------
    laid
        The events.
    sizes
        Bytes that each has of its message.
    compiled
        Whether the kernels compute them, which changes no hash.
    """
    if compiled:
        from ticdc_lab.codecs.kernel import hashing

        return hashing.hash_columns(laid, sizes)
    from ticdc_lab.codecs.plain import crcs, hashes

    return hashes.hash_columns(laid) | crcs.dispatch_columns(laid, sizes)


def with_columns(names: Iterable[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of events with the columns of these names behind their own."""
    for batch in batches:
        laid = laid_out_of(batch)
        found = hashed(laid, _estimated_sizes(laid), compiled=choice.compiled(choice.HASHES, batch))
        found |= _known_of_images(laid, found)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {name: found[name] for name in names}
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _known_of_images(laid: LaidOut, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns of DISPATCH without those of rows that have no image: a decoder gives no such row."""
    there = np.where(laid.op == DELETE, laid.before.there, laid.after.there)
    if (there | ~laid.is_row).all():
        return {}
    mask = pa.array(there)
    return {n: pc.if_else(mask, found[n], pa.scalar(None, found[n].type)) for n in DISPATCH.names if n != "row_bytes"}


def _estimated_sizes(laid: LaidOut) -> np.ndarray:
    """Bytes of the names and values of both images."""
    sizes: np.ndarray = _bytes_of(laid.after) + _bytes_of(laid.before)
    return sizes


def _bytes_of(image: Image) -> np.ndarray:
    of_names = pc.binary_length(image.names).to_numpy(zero_copy_only=False)
    of_values = pc.binary_length(image.values).fill_null(_BYTES_OF_NULL).to_numpy(zero_copy_only=False)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(of_names + of_values, dtype=np.int64)])
    sizes: np.ndarray = np.diff(sums[image.ends])
    return sizes
