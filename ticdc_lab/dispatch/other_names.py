"""Rows whose hashes fit no rule by their table's name, but one by another name: a table that is routed under a new one.

A hash begins with the crc of schema and name, and all else is XORed to it. So rows of a known rule show the crc of
the name upstream, as far as the number of partitions allows: all of it where that has an odd factor, else its last
bits. Linear algebra finds it: (c XOR k) mod N is linear in the bits of c where k is known.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from functools import cache
from math import isqrt

import numpy as np

from ticdc_lab.events.arrays import Ints

EXPLAINED = 0.95
"""Share of the rows that another name must explain."""

BITS = 16
"""So many bits rows must show besides the name's."""

ROWS = 512
"""Rows of a table that are looked at."""

SOME_BITS = 1 << 32
_WIDTH, _NAMED, _FREE, _ALIKE, _ALL = 32, 3, 12, 8, SOME_BITS - 1
_WINDOWS, _FEW, _MANY = (ROWS, ROWS // 4), 40, 16 * ROWS
"""A name is solved from all rows, then from parts of them, as a fault may be among them. Where a few of them have no
solution, all have none, which is quick to see; and of many rows the first mostly have enough values."""


def name_bits(partitions: int) -> int:
    """How many bits of a name's crc rows show: all where the number of partitions has an odd factor."""
    return _WIDTH if partitions & (partitions - 1) else partitions.bit_length() - 1


def name_hashed(values: Ints, lies: Ints, partitions: int, *, tried: int = 1) -> int | None:
    """The crc of the name by which rows lie where they do: of what TiCDC hashes besides it, ``values``.

    Parameters
    ----------
    values, lies
        Of each row what is XORed to the name's crc, and its partition.
    partitions
        Of the topic. Where it is a power of two, only the last bits are known, and the others are 0.
    tried
        How many rules are tried: so much less likely is chance.

    Returns
    -------
    int or None
        None where no name explains :data:`EXPLAINED` of the rows, or these are too few to be sure. With
        :data:`SOME_BITS` it is one of several that explain the rows.
    """
    _, first = np.unique(values[:_MANY], return_index=True)
    if len(first) < ROWS:
        _, first = np.unique(values, return_index=True)
    first.sort()
    if len(first) * np.log2(max(partitions, 1)) < BITS + name_bits(partitions) + np.log2(tried):
        return None
    k, p = values[first[:ROWS]], lies[first[:ROWS]]
    for crc in _solutions(k, p, partitions):
        if np.mean((values ^ (crc & _ALL)) % partitions == lies) >= EXPLAINED:
            return crc
    return None


def _solutions(k: Ints, p: Ints, n: int) -> Iterator[int]:
    """Each c that gives (c XOR k) mod n = p for some of the rows, as far as they show it."""
    power = n & -n
    low = (k ^ p) % power
    if n == power:
        yield int(np.bincount(low).argmax())
        return
    if np.bincount(low).max() < EXPLAINED * len(low):
        return
    prime = _odd_prime(n)
    for size in _WINDOWS:
        for start in range(0, len(k), size):
            some, lie = k[start : start + size], p[start : start + size]
            few, pivots = _eliminated(_sums(some[:_FEW], lie[:_FEW], prime), prime)
            if few[len(pivots) :, -1].any():
                continue
            found = _bits_modulo(_sums(some, lie, prime), prime)
            for solution in found[:_ALIKE]:
                crc = sum(1 << j for j, bit in enumerate(solution.tolist()) if bit)
                yield crc | (SOME_BITS if len(found) > 1 else 0)


@cache
def _odd_prime(n: int) -> int:
    """The least odd prime that divides a number that is no power of two."""
    odd = n // (n & -n)
    return next((f for f in range(3, isqrt(odd) + 1, 2) if odd % f == 0), odd)


def _sums(k: Ints, p: Ints, prime: int) -> Ints:
    """What each bit of c adds to (c XOR k) modulo a prime, a row for each k, and last what all add."""
    bits = (k[:, None] >> np.arange(_WIDTH)) & 1
    weights = np.array([pow(2, j, prime) for j in range(_WIDTH)])
    return np.concatenate([(1 - 2 * bits) * weights, (p - k)[:, None]], axis=1)


def _eliminated(sums: Ints, prime: int) -> tuple[Ints, list[int]]:
    """Sums, their results in the last column, with one unknown less in each; and these unknowns."""
    rest, pivots = sums % prime, list[int]()
    for column in range(sums.shape[1] - 1):
        top = len(pivots)
        below = np.flatnonzero(rest[top:, column])
        if len(below):
            rest[[top, top + below[0]]] = rest[[top + below[0], top]]
            rest[top] = rest[top] * pow(int(rest[top, column]), -1, prime) % prime
            times = rest[:, column].copy()
            times[top] = 0
            rest -= times[:, None] * rest[top]
            rest %= prime
            pivots.append(column)
    return rest, pivots


def _bits_modulo(sums: Ints, prime: int) -> Ints:
    """The solutions modulo a prime that are bits, a row each; none where too many are free."""
    (rest, pivots), n = _eliminated(sums, prime), sums.shape[1] - 1
    free = [column for column in range(n) if column not in pivots]
    if rest[len(pivots) :, -1].any() or len(free) > _FREE:
        return np.zeros((0, n), np.int64)
    chosen = (np.arange(1 << len(free))[:, None] >> np.arange(len(free))) & 1
    solutions = np.zeros((len(chosen), n), np.int64)
    solutions[:, free] = chosen
    solutions[:, pivots] = (rest[: len(pivots), -1] - chosen @ rest[: len(pivots), free].T) % prime
    are_bits: Ints = solutions[(solutions <= 1).all(axis=1)]
    return are_bits


def other_name_words(crc: int, partitions: int, *, own: tuple[str, str], names: Collection[tuple[str, str]]) -> str:
    """Which name that is, as the end of a sentence: ``names`` are schemas and tables that the log has."""
    mask, odd = (1 << name_bits(partitions)) - 1, bool(partitions & (partitions - 1))
    fit = [n for n in sorted({*names} - {own}) if zlib.crc32("".join(n).encode()) & mask == crc & mask]
    some = " or ".join(".".join(name) for name in fit[:_NAMED])
    if odd and not crc & SOME_BITS:
        whole = f"whose crc32, schema and table together, is {crc:#010x}"
        return f"the name {some}" if some else f"a name {whole}"
    return f"another name{f'; of those in the log {some} may be it' if some else ''}"
