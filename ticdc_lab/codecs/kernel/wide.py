"""Eight or 32 bytes at a time: unaligned words and blocks of an array of bytes.

No bounds are checked here: the caller has seen that the word :func:`fits`, or the block :func:`block_fits`.
"""

from __future__ import annotations

import struct
import sys

import numpy as np

from ticdc_lab.codecs.kernel.jit import in_llvm, small_kernel
from ticdc_lab.codecs.kernel.numbering import BLOCK

assert sys.byteorder == "little", "the kernels read words as little-endian machines write them"

WORD = 8


@in_llvm
def load(b: np.ndarray, p: int) -> np.uint64:
    """The word at a position."""
    return np.uint64(sum(int(b[p + i]) << 8 * i for i in range(WORD)))


@in_llvm
def load_half(b: np.ndarray, p: int) -> np.uint64:
    """Half of a word."""
    return np.uint64(sum(int(b[p + i]) << 8 * i for i in range(WORD // 2)))


@in_llvm
def load_single(b: np.ndarray, p: int) -> float:
    """The FLOAT at a position, as a DOUBLE."""
    return float(struct.unpack("<f", bytes(int(b[p + i]) for i in range(4)))[0])


@in_llvm
def load_double(b: np.ndarray, p: int) -> float:
    """The DOUBLE at a position."""
    return float(struct.unpack("<d", bytes(int(b[p + i]) for i in range(8)))[0])


@in_llvm
def store(out: np.ndarray, o: int, w: np.uint64) -> None:
    """Put a word at a position."""
    for i in range(WORD):
        out[o + i] = int(w) >> 8 * i & 0xFF


@in_llvm
def plain_run(b: np.ndarray, p: int) -> int:
    """How many bytes of a block are plain in a JSON string, from its first: ASCII, no quote, backslash, control."""
    special = (i for i in range(BLOCK) if not 0x20 <= b[p + i] < 0x80 or b[p + i] in b'"\\')
    return min(special, default=BLOCK)


@in_llvm
def same_block(b: np.ndarray, p: int, other: np.ndarray, q: int, n: int) -> bool:
    """Whether the first so many bytes of two blocks, at most all, are the same."""
    return all(b[p + i] == other[q + i] for i in range(n))


@in_llvm
def same_text_of(b: np.ndarray, p: int, other: np.ndarray, q: int, n: int) -> bool:
    """Whether so many bytes are the same, also more than a block."""
    return all(b[p + i] == other[q + i] for i in range(n))


@in_llvm
def copy_block(b: np.ndarray, p: int, out: np.ndarray, o: int) -> None:
    """Copy a block."""
    for i in range(BLOCK):
        out[o + i] = b[p + i]


@small_kernel
def fits(b: np.ndarray, p: int) -> bool:
    """Whether a word at ``p`` lies inside the array."""
    return p + WORD <= len(b)


@small_kernel
def block_fits(b: np.ndarray, p: int) -> bool:
    """Whether a block at ``p`` lies inside the array."""
    return p + BLOCK <= len(b)
