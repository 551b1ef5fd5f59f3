"""Spark's ``xxhash64``: XXH64 with the running hash as seed (compared with Spark in the tests)."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.scan import first_of, same_bytes
from ticdc_lab.codecs.kernel.wide import WORD, fits, load, load_half

SEED = np.uint64(42)
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P3, _P4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@small_kernel
def _rotate(x: np.uint64, n: int) -> np.uint64:
    return (x << np.uint64(n)) | (x >> np.uint64(64 - n))


@small_kernel
def _round(acc: np.uint64, lane: np.uint64) -> np.uint64:
    return _rotate(acc + lane * _P2, 31) * _P1


@small_kernel
def _avalanche(h: np.uint64) -> np.uint64:
    h ^= h >> np.uint64(33)
    h *= _P2
    h ^= h >> np.uint64(29)
    h *= _P3
    return h ^ (h >> np.uint64(32))


@small_kernel
def hash_bytes(b: np.ndarray, start: int, stop: int, seed: np.uint64) -> np.uint64:
    """Hash of the bytes between the positions."""
    p, h = start, seed + _P5
    if stop - start >= 32:
        p, h = stop - (stop - start) % 32, _blocks(b, start, stop, seed)
    h += np.uint64(stop - start)
    while p <= stop - 8:
        h = _rotate(h ^ _round(np.uint64(0), load(b, p)), 27) * _P1 + _P4
        p += 8
    if p <= stop - 4:
        h = _rotate(h ^ load_half(b, p) * _P1, 23) * _P2 + _P3
        p += 4
    while p < stop:
        h = _rotate(h ^ np.uint64(b[p]) * _P5, 11) * _P1
        p += 1
    return _avalanche(h)


@small_kernel
def mix_bytes(b: np.ndarray, start: int, stop: int, seed: np.uint64) -> np.uint64:
    """Another hash of the bytes between the positions, which takes what is left behind whole words in one step.

    It is not Spark's: what is compared with it has to be hashed so, too.
    """
    p, h = start, seed + np.uint64(stop - start) * _P5
    while p <= stop - WORD:
        h = (h ^ load(b, p)) * _P1
        h ^= h >> np.uint64(32)
        p += WORD
    if p < stop:
        rest = np.uint64(0)
        if fits(b, p):
            rest = load(b, p) & (~np.uint64(0) >> np.uint64(8 * (WORD - (stop - p))))
        else:
            for k in range(stop - p):
                rest |= np.uint64(b[p + k]) << np.uint64(8 * k)
        h = (h ^ rest) * _P1
    return _avalanche(h)


@small_kernel
def mix(h: np.uint64, other: np.uint64) -> np.uint64:
    """A hash of two, whose order matters."""
    return _rotate((h ^ other) * _P1, 29)


@part
def _blocks(b: np.ndarray, start: int, stop: int, seed: np.uint64) -> np.uint64:
    """What the whole blocks of 32 bytes of a long text give."""
    v1, v2, v3, v4 = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
    for p in range(start, stop - 31, 32):
        v1, v2 = _round(v1, load(b, p)), _round(v2, load(b, p + 8))
        v3, v4 = _round(v3, load(b, p + 16)), _round(v4, load(b, p + 24))
    h = _rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18)
    for v in (v1, v2, v3, v4):
        h = (h ^ _round(np.uint64(0), v)) * _P1 + _P4
    return h


@small_kernel
def hash_flag(flag: bool, seed: np.uint64) -> np.uint64:
    """Hash of a boolean, as Spark hashes it: the int 1 or 0."""
    h = seed + _P5 + np.uint64(4)
    h ^= np.uint64(1 if flag else 0) * _P1
    return _avalanche(_rotate(h, 23) * _P2 + _P3)


HASHED = 192
"""Bytes of a schema or definition by which it is found; the names of schema and table are among them."""


@part
def nth_remembered(b: np.ndarray, p: int, stop: int, hashes: np.ndarray, spans: np.ndarray, text: np.ndarray) -> int:
    """Which text is what lies between the positions, or -1: by ascending hashes of how texts begin, and their spans."""
    h = hash_bytes(b, p, min(p + HASHED, stop), SEED)
    i = first_of(hashes, h)
    while i < len(hashes) and hashes[i] == h:
        if same_bytes(b, p, stop, text, spans[i, 0], spans[i, 1]):
            return i
        i += 1
    return -1
