"""The hashes of :mod:`ticdc_lab.codecs.keys` in numpy: many texts at once, each step of a chain over all rows.

Compiled, for large logs: :mod:`ticdc_lab.codecs.kernel.identity` and :mod:`ticdc_lab.codecs.kernel.xxh64`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel.numbering import AS_WRITTEN, DELETE, IN_AVRO, IN_JSON, INSERT, OPS, REWRITTEN, UPDATE
from ticdc_lab.codecs.laid_out import Image, LaidOut, integers
from ticdc_lab.events.mysql_types import labels_of

Hashes = np.ndarray
"""Unsigned 64-bit numbers."""

SEED = np.uint64(42)
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P3, _P4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LOW = np.uint64(0xFFFFFFFF)
_BLOCK, _WORD, _HALF = 32, 8, 4


def _rotated(x: Hashes, n: int) -> Hashes:
    rotated: Hashes = (x << np.uint64(n)) | (x >> np.uint64(64 - n))
    return rotated


def _round(acc: Hashes, lane: Hashes) -> Hashes:
    mixed: Hashes = _rotated(acc + lane * _P2, 31) * _P1
    return mixed


def _avalanche(h: Hashes) -> Hashes:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    mixed: Hashes = h ^ (h >> np.uint64(32))
    return mixed


class Texts:
    """A string array whose texts can be folded into hashes."""

    def __init__(self, column: pa.Array) -> None:
        n = len(column)
        offsets = np.frombuffer(column.buffers()[1], np.int32)[: n + 1].astype(np.int64) if n else np.zeros(1, np.int64)
        data = column.buffers()[2]
        raw = b"" if data is None else data.to_pybytes()[: offsets[-1]]
        self.start, self.length = offsets[:-1], offsets[1:] - offsets[:-1]
        self.valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        self._bytes = np.frombuffer(raw + bytes(_WORD), np.uint8)
        self._words = np.ndarray((len(raw) + 1,), "<u8", self._bytes, strides=(1,))
        """The eight bytes from each position on."""

    def fold(self, h: Hashes, which: np.ndarray) -> Hashes:
        """Spark's ``xxhash64`` of some of the texts, each with a running hash as its seed; null leaves it as it is."""
        some = self.valid[which]
        return np.where(some, self._hashed(h, self.start[which], np.where(some, self.length[which], 0)), h)

    def _hashed(self, seed: Hashes, start: np.ndarray, length: np.ndarray) -> Hashes:
        p, left = start.copy(), length.copy()
        h = self._blocks(seed, p, left) + length.astype(np.uint64)
        while len(at := np.flatnonzero(left >= _WORD)):
            word = self._words[p[at]]
            h[at] = _rotated(h[at] ^ _round(np.zeros_like(word), word), 27) * _P1 + _P4
            p[at] += _WORD
            left[at] -= _WORD
        if len(at := np.flatnonzero(left >= _HALF)):
            h[at] = _rotated(h[at] ^ (self._words[p[at]] & _LOW) * _P1, 23) * _P2 + _P3
            p[at] += _HALF
            left[at] -= _HALF
        while len(at := np.flatnonzero(left)):
            h[at] = _rotated(h[at] ^ self._bytes[p[at]].astype(np.uint64) * _P5, 11) * _P1
            p[at] += 1
            left[at] -= 1
        return _avalanche(h)

    def _blocks(self, seed: Hashes, p: np.ndarray, left: np.ndarray) -> Hashes:
        """What the blocks of 32 bytes of the longer texts give; ``p`` and ``left`` continue behind them."""
        h = seed + _P5
        if not len(long := np.flatnonzero(left >= _BLOCK)):
            return h
        s = seed[long]
        lanes = [s + _P1 + _P2, s + _P2, s.copy(), s - _P1]
        while len(at := np.flatnonzero(left[long] >= _BLOCK)):
            here = long[at]
            for k, lane in enumerate(lanes):
                lane[at] = _round(lane[at], self._words[p[here] + k * _WORD])
            p[here] += _BLOCK
            left[here] -= _BLOCK
        mixed = reduce(np.add, (_rotated(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)))
        for lane in lanes:
            mixed = (mixed ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
        h[long] = mixed
        return h


def hashes_of(texts: list[bytes], seeds: Hashes | None = None) -> Hashes:
    """The hash of each text, by itself or continued from the texts of ``seeds``."""
    n = len(texts)
    folded = Texts(pa.array(texts, pa.binary())).fold(np.full(n, SEED) if seeds is None else seeds, np.arange(n))
    return np.ascontiguousarray(folded, np.uint64)


def _fold_flag(h: Hashes, flag: np.ndarray) -> Hashes:
    """Continue with a boolean, as Spark hashes it: the int 1 or 0."""
    return _avalanche(_rotated(h + _P5 + np.uint64(4) ^ flag.astype(np.uint64) * _P1, 23) * _P2 + _P3)


_OP_TEXTS = Texts(pa.array(OPS, pa.string()))


class _Folded:
    """An image's columns, with their hashes by themselves."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.names, self.values = Texts(image.names), Texts(image.values)
        every = np.arange(len(image.names))
        self.name_hash = self.names.fold(np.full(len(every), SEED), every)
        self.value_hash = self._value(self.name_hash, every)

    def _value(self, h: Hashes, which: np.ndarray) -> Hashes:
        return _fold_flag(self.values.fold(h, which), ~self.values.valid[which])

    def chain(self, h: Hashes, rows: np.ndarray) -> None:
        """Fold names and values of the images of some events into ``h``, which has a place for every event."""
        low, high = self.image.ends[rows], self.image.ends[rows + 1]
        k = 0
        while len(rows):
            more = high - low > k
            rows, low, high = rows[more], low[more], high[more]
            h[rows] = self._value(self.names.fold(h[rows], low + k), low + k)
            k += 1

    def sums(self, of: Hashes) -> Hashes:
        """The XOR of a number of each column over the columns of each event."""
        sums = np.bitwise_xor.accumulate(np.concatenate([np.zeros(1, np.uint64), of]))
        ends = self.image.ends
        found: Hashes = sums[ends[1:]] ^ sums[ends[:-1]]
        return found


def hashed(laid: LaidOut, sizes: np.ndarray, *, protocol: str, compiled: bool) -> dict[str, pa.Array]:
    """The columns of KEYS, IMAGE_HASHES and DISPATCH (:mod:`ticdc_lab.events.schema`) of some events.

    Parameters
    ----------
    laid
        The events.
    sizes
        Bytes that each has of its message.
    protocol
        That carried them; of some texts it is known that TiCDC hashes others.
    compiled
        Whether the kernels compute them, which changes no hash.
    """
    if compiled:
        from ticdc_lab.codecs.kernel import columns  # here: small logs need none

        return columns.hashed(laid, sizes, protocol)
    return hash_columns(laid) | dispatch_columns(laid, sizes, protocol)


def hash_columns(laid: LaidOut) -> dict[str, pa.Array]:
    """Columns of :data:`ticdc_lab.events.schema.KEYS` and :data:`~ticdc_lab.events.schema.IMAGE_HASHES` of events."""
    n, op = len(laid.is_row), laid.op
    after, before = _Folded(laid.after), _Folded(laid.before)
    every = np.arange(n)
    table = Texts(laid.schema_name).fold(np.full(n, SEED), every)
    table = Texts(laid.table_name).fold(table, every)
    change = _OP_TEXTS.fold(table, op)
    after.chain(change, np.flatnonzero(laid.is_row & (op != DELETE)))
    before.chain(change, np.flatnonzero(laid.is_row & (op != INSERT)))
    other = _others(laid)
    key, has_key, before_key, has_before_key = _keys(laid, after, before, table, other)
    old, there = after.value_hash.copy(), other >= 0
    old[there] = before.value_hash[other[there]]
    deleted = op == DELETE
    names = np.where(deleted, before.sums(before.name_hash), after.sums(after.name_hash))
    old_values = np.where(deleted, before.sums(before.value_hash), after.sums(old))
    has_before = laid.before.there & (np.diff(laid.before.ends) > 0) & ~laid.unnamed
    return {
        "key_hash": integers(key, has_key),
        "before_key_hash": integers(before_key, has_before_key),
        "change_hash": integers(change, laid.is_row),
        "after_hash": integers(_both(names, after.sums(after.value_hash)), laid.after.there),
        "before_hash": integers(_both(names, old_values), has_before),
    }


def _both(names: Hashes, values: Hashes) -> Hashes:
    return names << np.uint64(32) | values & _LOW


def _others(laid: LaidOut) -> np.ndarray:
    """For each column of a new image the place of its name in the old one; below zero where it is absent."""
    other = np.full(len(laid.after.names), -1)
    new, old = laid.after.names.to_pylist(), laid.before.names.to_pylist()
    a, b = laid.after.ends, laid.before.ends
    for i in np.flatnonzero(laid.is_row & (laid.op == UPDATE)).tolist():
        a0, a1, b0, b1 = int(a[i]), int(a[i + 1]), int(b[i]), int(b[i + 1])
        if old[b0:b1] == new[a0:a1]:
            other[a0:a1] = np.arange(b0, b1)
        else:
            other[a0:a1] = _places(new[a0:a1], old[b0:b1], b0)
    return other


def _places(new: Sequence[str], old: Sequence[str], b0: int) -> list[int]:
    """The same place if the name is there, else the first place that has it."""
    where = {name: b0 + k for k, name in reversed(list(enumerate(old)))}
    return [b0 + k if k < len(old) and old[k] == name else where.get(name, -1) for k, name in enumerate(new)]


def _keys(
    laid: LaidOut, after: _Folded, before: _Folded, table: Hashes, other: np.ndarray
) -> tuple[Hashes, np.ndarray, Hashes, np.ndarray]:
    """The hash of each row's handle key and whether it has one; the same before an update that changed the key."""
    key, has_key = table.copy(), np.zeros(len(table), bool)
    for image, rows in ((before, laid.op == DELETE), (after, laid.op != DELETE)):
        for which, columns in _key_columns(image.image, np.flatnonzero(laid.is_row & rows)):
            has_key[which] = True
            key[which] = image.values.fold(key[which], columns)
    old_key, changed = table.copy(), np.zeros(len(table), bool)
    was, now = laid.before.values.to_pylist(), laid.after.values.to_pylist()
    for which, columns in _key_columns(after.image, np.flatnonzero(laid.is_row & (laid.op == UPDATE))):
        places = other[columns]
        here = places >= 0
        h = old_key[which]
        h[here] = before.values.fold(h[here], places[here])
        h[~here] = after.values.fold(h[~here], columns[~here])
        old_key[which] = h
        pairs = zip(places.tolist(), columns.tolist(), strict=True)
        changed[which] |= np.array([o >= 0 and was[o] != now[c] for o, c in pairs], bool)
    return key, has_key, old_key, changed & (old_key != key)


def _key_columns(image: Image, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows that have a first column in their handle key and that column, then those that have a second, and so on."""
    keys = np.flatnonzero(image.is_key)
    low, high = np.searchsorted(keys, image.ends[rows]), np.searchsorted(keys, image.ends[rows + 1])
    steps = []
    for k in range(int((high - low).max(initial=0))):
        more = high - low > k
        steps.append((rows[more], keys[low[more] + k]))
    return steps


UNKNOWN = -1
"""In place of a crc that the log does not show."""

COMMA_IN_A_NAME = "\x1f"

_PLAIN, _BINARY, _FLOAT, _LABEL = range(4)
_FORMS = (
    (_BINARY, ("blob", "binary", "varbinary", "tinyblob", "mediumblob", "longblob")),
    (_FLOAT, ("float", "double")),
    (_LABEL, ("enum", "set")),
)
_EXPONENT_FORM = re.compile(r"(-?)([^e]*)e([+-]?)([0-9]{1,3})")
_EXPONENT_MAX = 400
_DIGITS = re.compile(r"[0-9]+")
_HEX = re.compile(r"(?:[0-9a-f]{2})*")


def dispatch_columns(laid: LaidOut, sizes: np.ndarray, protocol: str = "") -> dict[str, pa.Array]:
    """The columns of the events; ``sizes`` are the bytes that each has of its message."""
    rewritten = REWRITTEN.get(protocol, AS_WRITTEN)
    may_be = rewritten in (IN_JSON, IN_AVRO)
    lists: list[list[int | None] | None] = []
    keys, layouts = list[int | None](), list[str | None]()
    after, before = _cells_of(laid.after), _cells_of(laid.before)
    for is_row, has_after, cells, old_cells in zip(laid.is_row, laid.after.there, after, before, strict=True):
        if not is_row:
            lists.append(None)
            keys.append(None)
            layouts.append(None)
            continue
        names, types, values, is_key = cells if has_after else old_cells
        columns = zip(names, types, values, strict=True)
        crcs = [
            UNKNOWN if may_be and kind and is_rewritten(kind, value, exact=rewritten == IN_AVRO)
            else None if value is None
            else column_crc(*_of_column(name, kind), value if kind is None else hashed_text(kind, value, rewritten))
            for name, kind, value in columns
        ]  # fmt: skip
        lists.append(crcs)
        keys.append(key_crc([crc for crc, key in zip(crcs, is_key, strict=True) if key]))
        layouts.append(_layout(tuple(names), tuple(is_key)))
    return {
        "column_crcs": pa.array(lists, pa.list_(pa.int64())),
        "key_crc": pa.array(keys, pa.int64()),
        "layout": pa.array(layouts, pa.string()),
        "row_bytes": integers(sizes, laid.is_row),
    }


def is_rewritten(mysql_type: str, value: str | None, *, exact: bool) -> bool:
    """Whether debezium may carry another text than TiCDC hashes.

    A TIMESTAMP is in UTC. DECIMAL, TIME and DATETIME have all digits of a fraction only if their type defines how many,
    and a DECIMAL is a number in JSON, which is ``exact`` in avro. A zero date is NULL or the first moment of 1970.
    """
    if value is None:
        return mysql_type.startswith(("date", "timestamp"))
    if mysql_type.startswith("decimal"):
        return "(" not in mysql_type or (not exact and len(value.lstrip("-0.").replace(".", "")) > _DOUBLE_DIGITS)
    if mysql_type.startswith("time"):
        return mysql_type.startswith("timestamp") or "(" not in mysql_type
    if not mysql_type.startswith("date"):
        return False
    return may_be_zero(value) or (mysql_type.startswith("datetime") and "(" not in mysql_type)


def may_be_zero(value: str) -> bool:
    """Whether debezium writes a zero date as this text."""
    return value.rstrip(" 0:.") == _EPOCH


_DOUBLE_DIGITS, _EPOCH = 15, "1970-01-01"


def hashed_text(mysql_type: str, value: str, rewritten: int) -> str:
    """What TiCDC hashes: for a label of ENUM or SET its number, if the type names the labels; else the value.

    A label of digits alone is one only where the protocol has no numbers.
    """
    if not mysql_type.startswith(("enum", "set")) or (rewritten == AS_WRITTEN and _DIGITS.fullmatch(value)):
        return value
    number = None if "\\'" in mysql_type else _label_number(mysql_type, value)
    return _NO_NUMBER if number is None else str(number)


_NO_NUMBER = ""


@lru_cache(maxsize=1 << 12)
def _label_number(mysql_type: str, value: str) -> int | None:
    numbers = {label: i for i, label in reversed([*enumerate(labels_of(mysql_type), 1)])}
    if mysql_type.startswith("enum") or not numbers:
        return numbers.get(value, 0 if numbers and not value else None)
    bits = [numbers.get(label) for label in value.split(",")] if value else []
    return None if None in bits else sum({1 << (bit - 1) for bit in bits if bit})


def _cells_of(image: Image) -> Iterator[list[Any]]:
    """Names, types, values and whether they are of the key, of the columns of each event."""
    told = [column.to_pylist() for column in (image.names, image.types, image.values)] + [image.is_key.tolist()]
    for low, high in pairwise(image.ends.tolist()):
        yield [column[low:high] for column in told]


def key_crc(crcs: Sequence[int | None]) -> int | None:
    """How many columns the handle key has, and in the low half the XOR of their crcs."""
    key = 0
    for crc in crcs:
        if crc == UNKNOWN:
            return None
        key ^= crc or 0
    return len(crcs) << 32 | key


@lru_cache(maxsize=1 << 12)
def _layout(names: tuple[str, ...], is_key: tuple[bool, ...]) -> str:
    shown = [name.replace(",", COMMA_IN_A_NAME) for name in names]
    return ",".join(shown) + ",," + ",".join(name for name, key in zip(shown, is_key, strict=True) if key)


@lru_cache(maxsize=1 << 14)
def _of_column(name: str, mysql_type: str | None) -> tuple[int, int]:
    """The crc of a column's name, and the form of its values."""
    forms = (form for form, kinds in _FORMS if mysql_type and mysql_type.startswith(kinds))
    return crc32(name.encode()), next(forms, _PLAIN)


def column_crc(name: int, form: int, value: str) -> int:
    """The crc of a name, whose own is given, with the bytes of a value, or UNKNOWN."""
    if form == _PLAIN:
        return crc32(value.encode(), name)
    if form == _BINARY:
        digits = value.removeprefix("0x")
        if digits == value:
            return crc32(value.encode(), name)
        return crc32(bytes.fromhex(digits), name) if _HEX.fullmatch(digits) else UNKNOWN
    if form == _LABEL:
        return crc32(value.encode(), name) if _DIGITS.fullmatch(value) else UNKNOWN
    text = _go_float(value)
    return UNKNOWN if text is None else crc32(text.encode(), name)


def _go_float(value: str) -> str | None:
    """What Go's ``FormatFloat(v, 'f', -1)`` prints, from the form that MySQL prints."""
    if "e" not in value:
        return value.rstrip("0").rstrip(".") if "." in value else value
    found = _EXPONENT_FORM.fullmatch(value)
    if found is None or int(found[4]) > _EXPONENT_MAX:
        return None
    sign, exponent = found[1], int(found[4])
    digits = re.sub(r"[-+.]", "", found[2])
    if digits and not _DIGITS.fullmatch(digits):
        return None
    if found[3] == "-" and exponent > 0:
        return f"{sign}0.{'0' * (exponent - 1)}{digits}"
    whole, part = digits[: exponent + 1], digits[exponent + 1 :]
    return sign + whole.ljust(exponent + 1, "0") + (f".{part}" if part else "")
