"""Chance that depends on nothing but the seed and what it is for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.events.arrays import Ints

Words = NDArray[np.uint64]

_STEP, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def rng_of(*what: int) -> np.random.Generator:
    """Give the random numbers for a purpose, told by numbers that are not negative."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(what)))


def mixed(*parts: Ints | int) -> Words:
    """Mix numbers to 64 bits that look random: splitmix64 of each part after the other."""
    out = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            out = out + np.asarray(part, np.int64).astype(np.uint64) + _STEP
            out = (out ^ (out >> np.uint64(30))) * _A
            out = (out ^ (out >> np.uint64(27))) * _B
            out = out ^ (out >> np.uint64(31))
    return out


def within(words: Words, n: int, *, bits: int = 0) -> Ints:
    """Numbers from 0 to ``n`` - 1 (below 2^16) of 32 of the bits, from bit ``bits`` on."""
    low = (words >> np.uint64(bits)) & np.uint64(0xFFFFFFFF)
    scaled: Ints = ((low * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
    return scaled


def chosen(words: Words, texts: Sequence[str | None], *, bits: int = 0) -> pa.Array:
    """One of some texts for each word."""
    return pa.array(texts, pa.string()).take(pa.array(within(words, len(texts), bits=bits)))


def weighted(rng: np.random.Generator, n: int, weights: NDArray[np.float64]) -> Ints:
    """Draw ``n`` numbers from 0 on, each with a chance in proportion to its weight."""
    up_to = np.cumsum(weights)
    found: Ints = np.searchsorted(up_to, rng.random(n) * up_to[-1], side="right").astype(np.int64)
    return np.minimum(found, len(weights) - 1)


def in_runs(lengths: Ints) -> Ints:
    """Count 0, 1, 2, ... anew in each run."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
