"""Columns, and the values they have: draws by seed, and the text that MySQL prints of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.events.arrays import Ints

Words = NDArray[np.uint64]

_STEP, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def rng_of(*what: int) -> np.random.Generator:
    """Give the random numbers for a purpose, given by numbers that are not negative."""
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
    """Count 0, 1, 2, ... afresh in each run."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


class States(NamedTuple):
    """Rows as they are after some change; one number each."""

    handle: Ints  # which row of its table
    version: Ints  # changes since its insert
    # ``sum_0``, ``sum_1``: what its changes have added up to since its insert.
    sum_0: Ints
    sum_1: Ints
    # ``fixed_0``, ``fixed_1``: what its insert has fixed.
    fixed_0: Ints
    fixed_1: Ints
    # ``at_ms``, ``born_ms``: when it was changed last and inserted, ms since 1970.
    at_ms: Ints
    born_ms: Ints
    round: Ints  # of its last change
    # ``life``, ``change``: random bits, the first the same from insert to delete.
    life: Words
    change: Words


Make = Callable[[States], pa.Array]


class Field(NamedTuple):
    """A column of a table."""

    id: int  # unique in its table, also among dropped columns
    name: str
    mysql_type: str  # as in the events contract
    declared: str  # what CREATE TABLE has besides the type
    is_key: bool
    make: Make  # values (text) for states
    # ``since``, ``default``: the round of its ADD COLUMN (-1: always there), and what rows written before it have.
    since: int = -1
    default: str | None = None

    def values(self, states: States) -> pa.Array:
        """Give the text of each row."""
        found = self.make(states)
        if self.since < 0:
            return found
        return pc.if_else(pa.array(states.round < self.since), pa.scalar(self.default, pa.string()), found)


class TableLayout(NamedTuple):
    """A table as it is created; ``is_journal``: no row in it is ever changed, so that it may be truncated and dropped.

    Numbers of its rows stay below 2^40.
    """

    name: str
    fields: tuple[Field, ...]
    is_journal: bool = False


def fields(*those: tuple[str, str, Make] | tuple[str, str, Make, str]) -> tuple[Field, ...]:
    """Columns by name, type, values and (``key``, ``null``, or nothing for NOT NULL) what they are."""
    out = []
    for i, (name, mysql_type, make, *what) in enumerate(those, 1):
        declared = "" if what == ["null"] else "NOT NULL"
        out.append(Field(i, name, mysql_type, declared, what == ["key"], make))
    return tuple(out)


def numbers(of: Callable[[States], Ints]) -> Make:
    """Whole numbers."""
    return lambda s: pa.array(of(s)).cast(pa.string())


def decimals(of: Callable[[States], Ints], *, scale: int = 2) -> Make:
    """Decimals, from whole numbers of their last digit."""
    unit, digits = 10**scale, _digits(scale)

    def make(s: States) -> pa.Array:
        value = of(s)
        whole = np.abs(value)
        sign = pa.array(["", "-"], pa.string()).take(pa.array((value < 0).astype(np.int8)))
        texts = pa.array(whole // unit).cast(pa.string())
        return pc.binary_join_element_wise(sign, texts, digits.take(pa.array(whole % unit)), "")

    return make


@cache
def _digits(scale: int) -> pa.Array:
    return pa.array([f".{i:0{scale}d}" for i in range(10**scale)], pa.string())


def moments(of: Callable[[States], Ints]) -> Make:
    """Ms since 1970 as DATETIME."""
    return lambda s: pa.array(of(s) // 1000, pa.timestamp("s")).cast(pa.string())


def texts(those: Sequence[str | None], *, bits: int = 0, of_life: bool = False) -> Make:
    """One of some texts, the same for a whole life or a new one with each change."""
    return lambda s: chosen(s.life if of_life else s.change, those, bits=bits)


def once_changed(make: Make) -> Make:
    """NULL until the first update."""
    return lambda s: pc.if_else(pa.array(s.version > 0), make(s), pa.scalar(None, pa.string()))


def drawn(n: int, *, bits: int = 0) -> Make:
    """A number below ``n``, another with each change."""
    return numbers(lambda s: within(s.change, n, bits=bits))


def hexed(count: int, length: int) -> tuple[str, ...]:
    """Some binary values of up to ``length`` bytes, any byte among them; one is empty."""
    words = [mixed(i, np.arange(length)).astype(np.uint8).tobytes()[: i % (length + 1)] for i in range(count)]
    return tuple("0x" + w.hex() for w in words)


# Texts, documents and bytes that values are chosen from: what encoders must escape, and NULL, are among them.

NAMES = (
    "Ada Lovelace",
    "李明",
    "Søren Åkerlund",
    "José Muñoz",
    "Ольга",
    "O'Brien",
    "नेहा",
    'Max "M" Power',
    "ﷺ 😀",
    "X",
)
NOTES = (None, "", "ok", "bitte prüfen", "价格\t上调", "line\nbreak", "back\\slash", "日本語のメモ", "a" * 60, "€ 5,00")
DOCUMENTS = (None, "{}", '{"a": [1, 2.5, null]}', '{"名": "值", "ok": true}', '"text"', '[{"x": "\\"y\\""}]', "-17")
BLOBS = (None, *hexed(64, 24))
