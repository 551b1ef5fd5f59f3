"""What TiCDC's dispatchers hash of each row, in plain Python: :data:`ticdc_lab.events.schema.DISPATCH`.

Compiled, for large logs: :mod:`ticdc_lab.codecs.kernel.crcs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.laid_out import Image, LaidOut, integers

UNKNOWN = -1
"""In place of a crc: the log cannot tell it."""

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


def dispatch_columns(laid: LaidOut, sizes: np.ndarray) -> dict[str, pa.Array]:
    """The columns of the events; ``sizes`` are the bytes that each has of its message."""
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
        crcs = [None if value is None else column_crc(*_of_column(name, kind), value) for name, kind, value in columns]
        lists.append(crcs)
        keys.append(_key_crc([crc for crc, key in zip(crcs, is_key, strict=True) if key]))
        layouts.append(_layout(tuple(names), tuple(is_key)))
    return {
        "column_crcs": pa.array(lists, pa.list_(pa.int64())),
        "key_crc": pa.array(keys, pa.int64()),
        "layout": pa.array(layouts, pa.string()),
        "row_bytes": integers(sizes, laid.is_row),
    }


def _cells_of(image: Image) -> Iterator[list[Any]]:
    """Names, types, values and whether they are of the key, of the columns of each event."""
    told = [column.to_pylist() for column in (image.names, image.types, image.values)] + [image.is_key.tolist()]
    for low, high in pairwise(image.ends.tolist()):
        yield [column[low:high] for column in told]


def _key_crc(crcs: Sequence[int | None]) -> int | None:
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
