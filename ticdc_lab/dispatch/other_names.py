"""Rows whose hashes fit no rule by their table's name, but one by another name: a table that is routed under a new one.

A hash begins with the crc of schema and name, and all else is XORed to it. So rows of a known rule say what the crc of
the name upstream was, as far as the number of partitions tells: all of it where that has an odd factor, else its last
bits. Linear algebra finds it: (c XOR k) mod N is linear in the bits of c where k is known.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.events.arrays import Ints

EXPLAINED = 0.95
"""Share of the rows that another name must explain."""

BITS = 48
"""So many bits rows must tell together, of which a name that is found has 32."""

ROWS = 512
"""Rows of a table that are looked at."""

_WIDTH, _NAMED = 32, 3
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class OtherName:
    """What another name would explain."""

    rule: str  # the rule that it fits with: ``index-value`` or ``columns:NAME``
    names: tuple[str, ...]  # ``schema.table`` of those that were tried and fit
    # The crc32 of schema and name; None where the rows tell only its last bits, as with 4 partitions, so that other
    # names fit as well.
    crc: int | None

    @property
    def words(self) -> str:
        """What it is, as the end of a sentence."""
        some = " or ".join(self.names)
        if self.crc is not None and some:
            return f"by {self.rule} of the name {some}"
        if self.crc is not None:
            return f"by {self.rule} of a name whose crc32, schema and table together, is {self.crc:#010x}"
        return f"by {self.rule} of another name{f'; of those in the log {some} may be it' if some else ''}"


def other_name(
    rows: pa.Table, *, own: tuple[str, str], partitions: int, names: Collection[tuple[str, str]]
) -> OtherName | None:
    """Find a name by which a rule explains rows that no rule by their own name explains.

    ``rows``: ``partition, key_crc, column_crcs, layout`` of some hundred rows of one table. ``own``: schema and name of
    the table in its messages. ``partitions``: of the topic. ``names``: other schemas and names that may be the table's
    upstream.
    """
    if rows.num_rows * np.log2(max(partitions, 1)) < BITS:
        return None
    lies = np.asarray(rows["partition"]).astype(np.int64)
    for rule, value, known in _hashes(rows):
        k, p = value[known], lies[known]
        if len(np.unique(k)) * np.log2(partitions) < BITS:
            continue
        crcs = {name: zlib.crc32("".join(name).encode()) for name in sorted({*names} - {own})}
        fit = [n for n, crc in crcs.items() if np.mean(((k ^ crc) % partitions) == p) >= EXPLAINED]
        told = tuple(".".join(n) for n in fit[:_NAMED])
        if fit and partitions & (partitions - 1):
            return OtherName(rule, told, crcs[fit[0]])
        fits, crc_found = _solved(k, p, partitions)
        if fits or fit:
            return OtherName(rule, told, crc_found)
    return None


def _hashes(rows: pa.Table) -> Iterator[tuple[str, Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """What is XORed to the name by each rule, and of which rows it is known."""
    key = rows["key_crc"]
    value = np.asarray(key.fill_null(0))
    yield "index-value", value & ((1 << _WIDTH) - 1), np.asarray(key.is_valid()) & (value >> _WIDTH > 0)
    layout = pc.mode(rows["layout"].combine_chunks().dictionary_encode().indices)
    chosen = rows["layout"].combine_chunks().dictionary_encode().dictionary[layout[0]["mode"].as_py()].as_py() or ",,"
    same = np.asarray(pc.fill_null(pc.equal(rows["layout"], chosen), False))
    names = [n.replace("\x1f", ",") for n in chosen.rpartition(",,")[0].split(",")]
    for at, name in enumerate(names):
        crcs = [c[at] if c is not None and at < len(c) else None for c in rows["column_crcs"].to_pylist()]
        filled = np.array([0 if c is None else c for c in crcs], dtype=np.int64)
        yield f"columns:{name}", np.where(filled == _UNKNOWN, 0, filled), same & (filled != _UNKNOWN)


def _solved(k: Ints, p: Ints, n: int) -> tuple[bool, int | None]:
    """Whether one c gives (c XOR k) mod n = p for all rows, and c where they tell it."""
    if n & (n - 1) == 0:
        return bool(n > 1 and len(np.unique((k % n) ^ p)) == 1), None
    prime = next((f for f in _PRIMES if n % f == 0), None)
    if prime is None:
        return False, None
    bits = (k[:, None] >> np.arange(_WIDTH)) & 1
    weights = np.array([pow(2, j, prime) for j in range(_WIDTH)])
    solution = _modulo((1 - 2 * bits) * weights % prime, (p - k) % prime, prime)
    if solution is None or set(solution.tolist()) - {0, 1}:
        return False, None
    crc = sum(1 << j for j, bit in enumerate(solution.tolist()) if bit)
    return bool(np.all((k ^ crc) % n == p)), crc


def _modulo(a: Ints, b: Ints, prime: int) -> Ints | None:
    """The one solution of a x = b modulo a prime; None where there is none, or more."""
    rest = np.concatenate([a, b[:, None]], axis=1) % prime
    for column in range(a.shape[1]):
        pivots = np.flatnonzero(rest[column:, column])
        if not len(pivots):
            return None
        pivot = column + int(pivots[0])
        rest[[column, pivot]] = rest[[pivot, column]]
        rest[column] = rest[column] * pow(int(rest[column, column]), -1, prime) % prime
        others = np.arange(len(rest)) != column
        rest[others] = (rest[others] - rest[others, column : column + 1] * rest[column]) % prime
    return rest[: a.shape[1], -1] if not rest[a.shape[1] :, -1].any() else None
