"""Row images of a batch as one flat list of cells, their texts, and the few distinct shapes of their columns."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.errors import ProtocolError
from ticdc_lab.events import arrays
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.mysql_types import MySQLType, labels_of, type_of

INTEGER_TEXT, FLOAT_TEXT = r"^-?(0|[1-9]\d*)$", r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_ESCAPES, _HTML_ESCAPES = r'[\x00-\x1f"\\]', r'[\x00-\x1f"\\<>&\x{2028}\x{2029}]'
_GO_ESCAPES = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 34: '\\"'}

Written = Callable[[pa.Array], pa.Array]


def joined(*parts: pa.Array | str) -> pa.Array:
    """Parts of each row one after the other; a null part makes a null."""
    return pc.binary_join_element_wise(*[pa.scalar(p) if isinstance(p, str) else p for p in parts], "")


def quoted(texts: pa.Array, *, html: bool = False) -> pa.Array:
    """Each text as a JSON string: :func:`go_json`, or :func:`go_html_json`."""
    whole = joined('"', texts, '"')
    special = pc.fill_null(pc.match_substring_regex(texts, _HTML_ESCAPES if html else _ESCAPES), False)
    if not pc.any(special).as_py():
        return whole
    return pc.replace_with_mask(whole, special, each(go_html_json if html else go_json)(texts.filter(special)))


_ESCAPE = re.compile(r"\\.")
_AS_GO = {"\\b": "\\u0008", "\\f": "\\u000c"}
"""What Go writes for two of JSON's short escapes."""
_IN_HTML = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def go_json(value: Any) -> str:
    """JSON as jsoniter writes it (open-protocol)."""
    return _ESCAPE.sub(lambda found: _AS_GO.get(found[0], found[0]), orjson.dumps(value).decode())


def go_html_json(value: Any) -> str:
    """JSON for HTML too, as easyjson and go-json write it (canal-json)."""
    return go_json(value).translate(_IN_HTML)


def quoted_ascii(texts: pa.Array) -> pa.Array:
    """Each text, which needs no escape, as a JSON string."""
    return joined('"', texts, '"')


def each(write: Callable[[str], str]) -> Written:
    """A function of one text, for those few that Arrow has no function for; null stays null."""

    def written(texts: pa.Array) -> pa.Array:
        return pa.array([None if t is None else write(t) for t in texts.to_pylist()], pa.string())

    return written


def by_form(values: pa.Array, forms: Ints, how: dict[int, Written]) -> pa.Array:
    """Write each value in its form; null stays null."""
    for form, write in how.items():
        here = forms == form
        if here.all():
            return write(values)
        if here.any():
            mask = pa.array(here)
            values = pc.replace_with_mask(values, mask, write(values.filter(mask)))
    return values


def number(what: str, pattern: str) -> Written:
    """Numbers as they are, after a check that they are such."""

    def written(texts: pa.Array) -> pa.Array:
        good = pc.fill_null(pc.match_substring_regex(texts, pattern), True)
        if good.false_count:
            found = texts.filter(pc.invert(good))[0].as_py()
            raise ProtocolError(
                f"A value of an {what} column is {found!r}; expected a number.",
                hint="Write it with a protocol that carries labels of ENUM and SET, by --to.",
            )
        return texts

    return written


def raw(text: str) -> bytes:
    """The bytes of a binary value of the events contract.

    Raises ProtocolError: the value is not ``0x`` and hexadecimal digits.
    """
    try:
        if not text.startswith("0x"):
            raise ValueError
        return binascii.unhexlify(text[2:])
    except ValueError:
        raise ProtocolError(
            f"A value of a binary column is {text[:40]!r}; expected 0x and hexadecimal digits."
        ) from None


def base64_of(value: bytes) -> str:
    """A JSON string of base64."""
    return f'"{binascii.b2a_base64(value, newline=False).decode()}"'


def latin1(text: str) -> str:
    """A binary value as canal-json writes it: each byte a character of ISO-8859-1."""
    return go_html_json(raw(text).decode("latin-1"))


def go_quoted(value: bytes) -> str:
    """Bytes as Go's ``strconv.Quote`` prints them, without its quotes (open-protocol's binary columns)."""
    out = []
    for c in value.decode("utf-8", "surrogateescape"):
        code = ord(c)
        if code in _GO_ESCAPES:
            out.append(_GO_ESCAPES[code])
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif c.isprintable():
            out.append(c)
        elif code < 0x20 or code == 0x7F:
            out.append(f"\\x{code:02x}")
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return "".join(out)


def go_quoted_json(text: str) -> str:
    """:func:`go_quoted` of a binary value, as a JSON string."""
    return orjson.dumps(go_quoted(raw(text))).decode()


def expanded(texts: pa.Array) -> pa.Array:
    """Floats without exponent, as Go's ``FormatFloat(v, 'f', -1)`` prints them."""
    exponent = pc.fill_null(pc.match_substring_regex(texts, r"^-?\d+(\.\d+)?[eE][+-]?\d+$"), False)
    if not pc.any(exponent).as_py():
        return texts
    return pc.replace_with_mask(texts, exponent, each(lambda t: f"{Decimal(t):f}")(texts.filter(exponent)))


def go_json_number(texts: pa.Array) -> pa.Array:
    """Floats as TiCDC writes JSON numbers: an exponent of two digits or more below 1e-6 and from 1e21 on."""
    other = pc.fill_null(pc.match_substring_regex(texts, r"e|^-?0\.000000"), False)
    if not pc.any(other).as_py():
        return texts
    return pc.replace_with_mask(texts, other, each(_go_json_number)(texts.filter(other)))


def _go_json_number(text: str) -> str:
    number = Decimal(text)
    if not number or _PLAIN_FROM <= abs(number) < _PLAIN_BELOW:
        return f"{number:f}"
    sign, digits, _ = number.normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{number.adjusted():+03d}"


_PLAIN_FROM, _PLAIN_BELOW = Decimal("1e-6"), Decimal("1e21")


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """What all cells of one column have in common."""

    name: str
    type: MySQLType
    unsigned: bool
    is_key: bool
    flags: int | None
    keys: int
    """Columns of the handle key in the image."""
    labels: tuple[str, ...] = ()
    """Of an ENUM or SET, where the type's text lists them."""
    zerofill: bool = False


@dataclass(frozen=True, slots=True)
class ImageCells:
    """The cells of one image of each row, row by row."""

    ends: NDArray[np.int32]
    shape: Ints
    """Per cell, which of ``shapes``."""
    shapes: list[ColumnShape]
    value: pa.Array

    def of_shape(self, f: Callable[[ColumnShape], str]) -> pa.Array:
        """A text that depends on the column alone."""
        return pa.array([f(s) for s in self.shapes], pa.string()).take(pa.array(self.shape))

    def numbers(self, f: Callable[[ColumnShape], int]) -> Ints:
        """A number that depends on the column alone."""
        return np.array([f(s) for s in self.shapes], np.int64)[self.shape]

    def with_numbers(self) -> pa.Array:
        """The values, with the numbers of ENUM and SET labels, which TiCDC writes; digits are a number already."""
        values = self.value
        for i, s in enumerate(self.shapes):
            if not s.labels:
                continue
            digits = pc.fill_null(pc.match_substring_regex(values, r"^\d+$"), True)
            mask = pc.and_(pa.array(self.shape == i), pc.invert(digits))
            if pc.any(mask).as_py():
                values = pc.replace_with_mask(values, mask, pa.array(_numbered(values.filter(mask).to_pylist(), s)))
        return values

    def row_of_cell(self) -> Ints:
        """The row that each cell belongs to."""
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))

    def joined(self, members: pa.Array, *, keep: NDArray[np.bool_] | None = None) -> pa.Array:
        """The members of each row's image with commas between; of a row without image the empty text."""
        ends = self.ends
        if keep is not None:
            ends = np.append(0, np.cumsum(keep))[ends].astype(np.int32)
            members = members.filter(pa.array(keep))
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), members), ",")


def cells_of(images: pa.Array, tables: Callable[[int], str]) -> ImageCells:
    """Flatten the images (``columns`` or ``before`` of the events contract) of a batch.

    Raises ProtocolError: a column's type is none that TiCDC writes; ``tables`` names the table of a row for the
    message.
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(images), 0), np.int64)
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    flat = images.flatten()
    name, mysql_type, value, is_key, flags = (flat.field(i) for i in range(5))
    keyed = np.asarray(pc.fill_null(is_key, False).to_numpy(zero_copy_only=False), np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    keys = np.bincount(row, keyed, len(lengths)).astype(np.int64)[row] * np.asarray(flags.is_null())
    codes = _combined(arrays.codes(name), arrays.codes(mysql_type), keyed, arrays.codes(flags), keys)
    _, first, shape = np.unique(codes, return_index=True, return_inverse=True)
    taken = flat.take(pa.array(first)).to_pylist()
    shapes = [_shape(c, int(keys[at]), int(row[at]), tables) for c, at in zip(taken, first, strict=True)]
    return ImageCells(ends, shape.reshape(-1).astype(np.int64), shapes, value)


def _shape(cell: dict[str, Any], keys: int, row: int, tables: Callable[[int], str]) -> ColumnShape:
    try:
        kind, unsigned = type_of(cell["mysql_type"])
    except ProtocolError as e:
        raise ProtocolError(f"{tables(row)}, column {cell['name']}: {e.message}") from None
    labels = labels_of(cell["mysql_type"]) if kind.name in ("enum", "set") else ()
    zerofill = cell["mysql_type"].lower().endswith(" zerofill")
    return ColumnShape(cell["name"], kind, unsigned, bool(cell["is_key"]), cell["flags"], keys, labels, zerofill)


def _numbered(found: list[str], shape: ColumnShape) -> list[str]:
    """The number of each label, or of each list of labels for a SET; what is no label stays as it is."""
    place = {label: i for i, label in enumerate(shape.labels)}
    if shape.type.name == "enum":
        return [str(place[v] + 1) if v in place else "0" if v == "" else v for v in found]
    parts = [(v, v.split(",") if v else []) for v in found]
    return [str(sum(1 << place[p] for p in ps)) if place.keys() >= set(ps) else v for v, ps in parts]


def has_handle_key_only(rows: pa.RecordBatch) -> pa.Array:
    """1 for rows that TiCDC marks as having their handle key alone, else 0; other incomplete rows have no mark."""
    marked = pa.array(["handle-key-only", "claim-check-missing"])
    return pc.is_in(rows.column("incomplete"), marked).cast(pa.int32())


def _combined(*codes: Ints) -> Ints:
    """One number for each distinct combination."""
    out = np.zeros(len(codes[0]), np.int64)
    for c in codes:
        out = out * (int(c.max(initial=0)) + 1) + c
    return out
