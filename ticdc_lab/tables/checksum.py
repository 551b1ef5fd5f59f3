"""TiDB's row checksums, computed from row images: does what arrived equal what TiDB wrote?

With ``tidb_enable_row_level_checksum`` TiDB stores a CRC32 (IEEE) over the columns of a row in the order of their ids,
and TiCDC passes it on (``integrity-check-level=correctness``). The bytes of a column are, by its type:

| type | bytes |
|---|---|
| NULL, geometry | none |
| integers, year, enum, set, bit | 8, little-endian (two's complement; enum, set and bit as their number) |
| float, double | 8, little-endian, of the value as a double; infinities and NaN as 0 |
| char, text, binary, blob | length in 4 bytes, little-endian, then the bytes |
| decimal, date, datetime, time, json | the same, of the text TiDB prints |
| timestamp | the same, of the text in UTC |

References
----------
TiDB's ``util/rowcodec`` (``appendDatumForChecksum``) and the TiCDC documentation, "TiCDC Data Integrity Validation for
Single-Row Data"; the facts in our own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.tables.mysql_types import MySQLType, parsed

_INTEGER = r"^[0-9]{1,19}$|^-[0-9]{1,18}$"
_LARGEST, _SMALLEST = "18446744073709551615", "-9223372036854775808"
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Images:
    """Row images side by side: types and texts of all their columns, and where each row begins and the last ends.

    Texts are those of the events contract (null is NULL, binary is ``0x`` and lower-case hex), the columns of a row in
    the order of their ids.
    """

    types: pa.Array
    values: pa.Array
    offsets: Ints

    @classmethod
    def of(cls, rows: Iterable[Iterable[tuple[str, str | None]]]) -> Images:
        """Images from plain ``(mysql_type, text)`` pairs."""
        each = [list(row) for row in rows]
        flat = [c for row in each for c in row]
        offsets = np.cumsum([0, *map(len, each)]).astype(np.int64)
        return cls(pa.array([t for t, _ in flat], pa.string()), pa.array([v for _, v in flat], pa.string()), offsets)


def row_checksums(images: Images, *, time_zone: str = "UTC") -> pa.Array:
    """Compute the checksum of each row.

    Parameters
    ----------
    images
        Row images.
    time_zone
        Of the TiCDC server, in which the texts of timestamps are.

    Returns
    -------
    pa.Array
        int64, the CRC32 of each row; null where a value has no bytes: its type is unknown here (vector), or its text is
        none of the type (also an ENUM or SET that is carried as a label).
    """
    pieces, known = _bytes_of(images, time_zone)
    starts = np.frombuffer(pieces.buffers()[1], np.int32, len(pieces) + 1, pieces.offset * 4).astype(np.int64)
    data = np.frombuffer(pieces.buffers()[2] or b"", np.uint8)
    unknown = np.concatenate([[0], np.cumsum(~known)])[images.offsets]
    found = np.empty(len(images.offsets) - 1, dtype=np.int64)
    _crc32(data, starts[images.offsets], _TABLE, found)
    return pa.array(found, mask=np.diff(unknown) > 0)


def _bytes_of(images: Images, time_zone: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The bytes of each column (binary, empty for NULL), and whether they are known."""
    known = np.ones(len(images.values), dtype=np.bool_)
    there = images.values.is_valid().to_numpy(zero_copy_only=False)
    coded = images.types.dictionary_encode()
    code = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    empty = ~there | (code < 0)
    known[there & (code < 0)] = False  # of no known type
    found, places = [pa.array([b""] * int(empty.sum()), pa.binary())], [np.flatnonzero(empty)]
    for number, name in enumerate(coded.dictionary.to_pylist()):
        at = np.flatnonzero(there & (code == number))
        if len(at):
            encode = _encoder(parsed(name), time_zone)
            part = encode(images.values.take(pa.array(at)))
            known[at] = part.is_valid().to_numpy(zero_copy_only=False)
            found.append(part.fill_null(b""))
            places.append(at)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(found).take(pa.array(order)), known


def _encoder(mysql_type: MySQLType, time_zone: str) -> Callable[[pa.Array], pa.Array]:
    """From texts to binary, null where a text is none of the type."""
    if mysql_type.family in ("integer", "bit", "enum", "set"):
        return _integers
    if mysql_type.family == "float":
        return lambda texts: _floats(texts, single=mysql_type.spark == "float")
    if mysql_type.family == "binary":
        return lambda texts: _with_length(_unhexed(texts))
    if mysql_type.name == "timestamp":
        return lambda texts: _with_length(_in_utc(texts, time_zone).cast(pa.binary()))
    if mysql_type.family in ("text", "decimal", "date", "datetime", "time") or mysql_type.name == "json":
        return lambda texts: _with_length(texts.cast(pa.binary()))
    return lambda texts: pa.nulls(len(texts), pa.binary())


def _integers(texts: pa.Array) -> pa.Array:
    small = pc.match_substring_regex(texts, _INTEGER)
    lengths, negative = pc.utf8_length(texts), pc.starts_with(texts, "-")
    digits = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    unsigned = pc.and_(pc.equal(lengths, 20), pc.and_(pc.invert(negative), pc.less_equal(texts, _LARGEST)))
    signed = pc.and_(pc.equal(lengths, 20), pc.and_(negative, pc.less_equal(texts, _SMALLEST)))
    good = pc.and_(digits, pc.or_(small, pc.or_(unsigned, signed)))
    below = pc.if_else(pc.and_(good, negative), texts, "0").cast(pa.int64()).to_numpy().view(np.uint64)
    above = pc.if_else(pc.and_(good, pc.invert(negative)), texts, "0").cast(pa.uint64()).to_numpy()
    return _eight_bytes(below + above, good)


def _floats(texts: pa.Array, *, single: bool) -> pa.Array:
    good = pc.match_substring_regex(texts, _NUMBER)
    numbers = pc.if_else(good, texts, "0").cast(pa.float64()).to_numpy()
    if single:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    return _eight_bytes(np.where(np.isfinite(numbers), numbers, 0.0).view(np.uint64), good)


def _eight_bytes(numbers: npt.NDArray[np.uint64], good: pa.Array) -> pa.Array:
    raw = pa.py_buffer(numbers.astype("<u8").tobytes())
    whole = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(numbers), [None, raw]).cast(pa.binary())
    return pc.if_else(good, whole, pa.scalar(None, pa.binary()))


def _with_length(values: pa.Array) -> pa.Array:
    raw = pa.py_buffer(pc.binary_length(values).fill_null(0).to_numpy().astype("<u4").tobytes())
    lengths = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(values), [None, raw]).cast(pa.binary())
    return pc.binary_join_element_wise(lengths, values, pa.scalar(b"", pa.binary()))


_NIBBLES = np.zeros(256, dtype=np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def _unhexed(texts: pa.Array) -> pa.Array:
    good = pc.match_substring_regex(texts, "^0x([0-9a-f]{2})*$")
    digits = pc.utf8_slice_codeunits(pc.if_else(good, texts, "0x"), 2)
    ends = np.concatenate([[0], np.cumsum(pc.binary_length(digits).to_numpy())])
    nibbles = _NIBBLES[np.frombuffer(digits.buffers()[2] or b"", np.uint8)[: ends[-1]]]
    raw = (nibbles[0::2] << 4) | nibbles[1::2]
    buffers = [None, pa.py_buffer((ends // 2).astype(np.int32)), pa.py_buffer(raw.tobytes())]
    whole = pa.Array.from_buffers(pa.binary(), len(digits), buffers)
    return pc.if_else(good, whole, pa.scalar(None, pa.binary()))


def _in_utc(texts: pa.Array, time_zone: str) -> pa.Array:
    """Texts of timestamps in UTC with the fraction they have; a zero timestamp stays as it is."""
    seconds, fraction = pc.utf8_slice_codeunits(texts, 0, 19), pc.utf8_slice_codeunits(texts, 19)
    real = pc.match_substring_regex(texts, r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]) [0-2][0-9]:")
    local = pc.if_else(real, seconds, "1970-01-02 00:00:00").cast(pa.timestamp("s"))
    zoned = pc.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="latest")
    there = pc.strftime(zoned.cast(pa.timestamp("s", "UTC")), format="%Y-%m-%d %H:%M:%S")
    return pc.if_else(real, pc.binary_join_element_wise(there, fraction, ""), texts)


def _table() -> npt.NDArray[np.uint32]:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(0xEDB88320), crc >> 1)
    return crc.astype(np.uint32)


_TABLE = _table()


@kernel
def _crc32(data: npt.NDArray[np.uint8], offsets: Ints, table: npt.NDArray[np.uint32], out: Ints) -> None:
    """CRC32 (IEEE) of each stretch of ``data``."""
    for row in range(len(out)):
        crc = np.uint32(0xFFFFFFFF)
        for at in range(offsets[row], offsets[row + 1]):
            crc = table[(crc ^ data[at]) & 0xFF] ^ (crc >> np.uint32(8))
        out[row] = np.int64(crc ^ np.uint32(0xFFFFFFFF))
