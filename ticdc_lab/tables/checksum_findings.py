"""Rows whose checksum does not match their values, and the column, where it can be found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.dispatch.zones import SEASONAL, ZONES
from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.schema import FINDINGS, require_columns
from ticdc_lab.tables.mysql_types import ColumnType, parsed

GUARANTEE = "row_checksums_match"

DIAGNOSED = 1_000
"""Rows of a batch that are looked into; a wrong setting makes all of them differ for one reason."""

CHECKSUM_FINDINGS = StructType(
    [
        *FINDINGS.fields,
        StructField("column", StringType(), True, {"comment": "columns that differ, where known"}),
        StructField("image", StringType(), True, {"comment": "columns or before"}),
        StructField("expected", LongType(), True, {"comment": "checksum the event states"}),
        StructField("computed", LongType(), True, {"comment": "checksum of its values; null where there is none"}),
    ]
)

_NEEDED = ("kind", "schema_name", "table_name", "commit_ts", "partition", "offset", "columns", "before", "incomplete")
_CHECKSUMS = ("checksum", "checksum_before")
_SIDES = (("columns", "checksum", "before"), ("before", "checksum_before", "columns"))
_FACTS = ("table", "key", "commit_ts", "topic", "partition", "offset")
Ambiguous = Literal["earliest", "latest"]
Change = Callable[[pa.Array, pa.Array, pa.Array], tuple[pa.Array, pa.Array]]
"""From texts, types and the other image's texts to the texts and types that may have been meant; equal: no other."""


def verify_checksums(events: DataFrame, *, time_zone: str = "UTC") -> DataFrame:
    """Find rows whose values do not have the checksum that TiDB computed.

    Parameters
    ----------
    events
        The events contract with ``checksum`` (bigint: of ``columns``) or ``checksum_before`` (bigint: of ``before``),
        or both; null where the event has none. The columns of an image are in the order of TiDB's column ids. May be
        a stream.
    time_zone
        Of the TiCDC server, in which the texts of timestamps are.

    Returns
    -------
    DataFrame
        :data:`CHECKSUM_FINDINGS`: an ``error`` for each image whose checksum differs, a ``warning`` for each that
        cannot be computed: the row is known in part, the old image has only the changed columns, or a value has no
        bytes known here. Where one change of one column (or one time zone for all timestamps) gives the stated
        checksum, ``column`` names it and ``message`` has the change; of each Arrow batch 1,000 rows are looked into.

    Raises
    ------
    ContractError
        A column is missing, or both checksums are.
    """
    require_columns(events, *_NEEDED)
    if not {*_CHECKSUMS} & set(events.columns):
        raise ContractError(
            "events has neither checksum nor checksum_before.",
            hint="The simple and avro protocols carry row checksums, with `[integrity]` switched on in the changefeed.",
        )
    known = {c: F.col(c) if c in events.columns else F.lit(None).alias(c) for c in ("topic", *_CHECKSUMS)}
    rows = events.where("kind = 'row'").select(
        F.concat_ws(".", "schema_name", "table_name").alias("table"), _key().alias("key"), "commit_ts", "partition",
        "offset", "columns", "before", "incomplete", known["topic"].cast("string"),
        *[known[c].cast("bigint") for c in _CHECKSUMS],
    )  # fmt: skip
    stated = rows.where("checksum IS NOT NULL OR checksum_before IS NOT NULL")
    return stated.mapInArrow(lambda batches: _judged(batches, time_zone), CHECKSUM_FINDINGS)


def zones_of_all(messages: Iterable[str]) -> list[str]:
    """The zones of the server that may explain the errors that name one; none if no error does.

    Those that errors name come first, then zones with summer time that have had all their offsets.

    Examples
    --------
    >>> said = "the checksum does not match the values: it matches timestamps in the zone Etc/GMT"
    >>> zones_of_all([f"{said}-8"])
    ['Etc/GMT-8', 'Asia/Shanghai']
    >>> zones_of_all([f"{said}-1", f"{said}-2"])
    ['Europe/Berlin']
    """
    named = {message.partition(IN_ZONE)[2] for message in messages} - {""}
    asked = frozenset[timedelta]().union(*[_offsets(zone) for zone in named if zone.startswith("Etc/")])
    alone = [zone for zone in sorted(named) if len(named) == 1 or not zone.startswith("Etc/")]
    return list(dict.fromkeys([*alone, *[zone for zone in SEASONAL if asked and asked <= _offsets(zone)]]))


@cache
def _offsets(zone: str) -> frozenset[timedelta]:
    """What a zone was ahead of UTC in summer and winter since 1970."""
    of = ZoneInfo(zone)
    days = (datetime(year, month, 1, tzinfo=of) for year in range(1970, 2038) for month in (1, 7))
    return frozenset(offset for day in days if (offset := day.utcoffset()) is not None)


def _key() -> Column:
    keys = F.filter(F.coalesce("columns", "before"), lambda c: c["is_key"])
    text = F.transform(keys, lambda c: F.concat(c["name"], F.lit("="), F.coalesce(c["value"], F.lit("NULL"))))
    return F.when(F.size(keys) > 0, F.array_join(text, ", "))


def _judged(batches: Iterator[pa.RecordBatch], time_zone: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for image, checksum, other in _SIDES:
            side = _Side.of(batch, image, checksum, other)
            if side is not None:
                yield side.findings(image, time_zone)


@dataclass(frozen=True, slots=True)
class _Side:
    """The images of one kind that state a checksum, with their column names and the other image's texts."""

    rows: pa.RecordBatch
    names: pa.Array
    images: Images
    twins: pa.Array
    expected: pa.Array
    partial: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, batch: pa.RecordBatch, image: str, checksum: str, other: str) -> _Side | None:
        rows = batch.filter(pc.and_(batch[checksum].is_valid(), batch[image].is_valid()))
        if not rows.num_rows:
            return None
        own, theirs = rows[image], rows[other]
        sizes, their_sizes = (pc.list_value_length(a).fill_null(0).to_numpy() for a in (own, theirs))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        flat, them = own.flatten(), theirs.flatten()
        starts = np.concatenate([[0], np.cumsum(their_sizes)])[:-1]
        row, place = np.repeat(np.arange(len(sizes)), sizes), np.arange(len(flat)) - np.repeat(offsets[:-1], sizes)
        at = pa.array(np.where(their_sizes[row] == sizes[row], starts[row] + place, -1))
        at = pc.if_else(pc.less(at, 0), pa.scalar(None, pa.int64()), at)
        images = Images(flat.field("mysql_type"), flat.field("value"), offsets)
        same = pc.equal(them.field("name").take(at), flat.field("name")).fill_null(False)
        twins = pc.if_else(same, them.field("value").take(at), images.values) if len(them) else images.values
        short = (their_sizes > sizes) if image == "before" else np.zeros(len(sizes), dtype=np.bool_)
        partial = rows["incomplete"].is_valid().to_numpy(zero_copy_only=False) | short
        return cls(rows, flat.field("name"), images, twins, rows[checksum], partial)

    def findings(self, image: str, time_zone: str) -> pa.RecordBatch:
        computed = row_checksums(self.images, time_zone=time_zone)
        unknown = computed.is_null().to_numpy(zero_copy_only=False) | self.partial
        differs = pc.not_equal(computed, self.expected).fill_null(True).to_numpy(zero_copy_only=False) & ~unknown
        asked = np.flatnonzero(differs)
        differs[self._matching(asked, self._taken(asked), time_zone, ambiguous="latest")] = False
        at = np.flatnonzero(unknown | differs).tolist()
        why = self._reasons(np.flatnonzero(differs)[:DIAGNOSED], time_zone)
        said = [_UNKNOWN if unknown[r] else why.get(r, (None, _DIFFERS))[1] for r in at]
        found = self.rows.take(pa.array(at, pa.int64()))
        place = pa.StructArray.from_arrays([found[c] for c in ("partition", "offset", "commit_ts")],
                                           ["partition", "offset", "commit_ts"])  # fmt: skip
        columns = {name: found[name] for name in _FACTS} | {
            "guarantee": pa.array([GUARANTEE] * len(at), pa.string()),
            "severity": pa.array(np.where(unknown[at], "warning", "error").tolist(), pa.string()),
            "message": pa.array(said, pa.string()),
            "cause": pa.array(said, pa.string()),
            "evidence": pa.ListArray.from_arrays(pa.array(np.arange(len(at) + 1, dtype=np.int32)), place),
            "column": pa.array([why.get(r, (None, ""))[0] for r in at], pa.string()),
            "image": pa.array([image] * len(at), pa.string()),
            "expected": self.expected.take(pa.array(at, pa.int64())),
            "computed": computed.take(pa.array(at, pa.int64())),
        }
        return pa.RecordBatch.from_pydict({name: columns[name] for name in CHECKSUM_FINDINGS.names})

    def _reasons(self, rows: Ints, time_zone: str) -> dict[int, tuple[str, str]]:
        """By row: the column that differs, and how."""
        found: dict[int, tuple[str, str]] = {}
        for message, change in _CHANGES:
            for row, column in self._one_changed(rows, change, time_zone):
                found.setdefault(row, (column, f"{_DIFFERS}: {message}"))
        is_timestamp = pc.starts_with(self.images.types, "timestamp").to_numpy(zero_copy_only=False)
        timestamps = np.diff(np.concatenate([[0], np.cumsum(is_timestamp)])[self.images.offsets])
        timed = rows[timestamps[rows] > 0]
        for zone in ZONES if len(timed) else ():
            for row in self._matching(timed, self._taken(timed), zone):
                own = slice(*self.images.offsets[row : row + 2])
                names = self.names[own].filter(pa.array(is_timestamp[own])).to_pylist()
                found.setdefault(row, (", ".join(names), f"{_DIFFERS}: {IN_ZONE}{zone}"))
        return found

    def _one_changed(self, rows: Ints, change: Change, time_zone: str) -> list[tuple[int, str]]:
        """Rows and columns where changing that column alone gives the stated checksum."""
        values, types = change(self.images.values, self.images.types, self.twins)
        other = ~pc.and_(_same(values, self.images.values), pc.equal(types, self.images.types)).to_numpy(
            zero_copy_only=False
        )
        sizes = np.diff(self.images.offsets)
        of_row = np.repeat(np.arange(len(sizes)), sizes)
        entries = np.flatnonzero(other & np.isin(of_row, rows))
        if not len(entries):
            return []
        owners = of_row[entries]
        taken = self._taken(owners)
        at = taken.offsets[:-1] + entries - self.images.offsets[owners]
        mask = np.zeros(len(taken.values), dtype=np.bool_)
        mask[at] = True
        here = pa.array(entries)
        tried = Images(
            pc.replace_with_mask(taken.types, pa.array(mask), types.take(here)),
            pc.replace_with_mask(taken.values, pa.array(mask), values.take(here)),
            taken.offsets,
        )
        equal = pc.equal(row_checksums(tried, time_zone=time_zone), self.expected.take(pa.array(owners)))
        hits = entries[equal.fill_null(False).to_numpy(zero_copy_only=False)]
        return list(zip(of_row[hits].tolist(), self.names.take(pa.array(hits)).to_pylist(), strict=True))

    def _taken(self, rows: Ints) -> Images:
        """The images of ``rows``, which may name a row more than once."""
        sizes = np.diff(self.images.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        at = pa.array(np.arange(offsets[-1]) + np.repeat(self.images.offsets[rows] - offsets[:-1], sizes))
        return Images(self.images.types.take(at), self.images.values.take(at), offsets)

    def _matching(
        self, rows: Ints, images: Images, zone: str, *, ambiguous: Ambiguous = "earliest"
    ) -> list[int]:  # fmt: skip
        computed = row_checksums(images, time_zone=zone, ambiguous=ambiguous)
        equal = pc.equal(computed, self.expected.take(pa.array(rows)))
        hits: list[int] = rows[equal.fill_null(False).to_numpy(zero_copy_only=False)].tolist()
        return hits


def _same(a: pa.Array, b: pa.Array) -> pa.Array:
    both_null = pc.and_(a.is_null(), b.is_null())
    return pc.or_(both_null, pc.equal(a, b).fill_null(False))


def _starts(types: pa.Array, *names: str) -> pa.Array:
    out = pc.starts_with(types, names[0])
    for name in names[1:]:
        out = pc.or_(out, pc.starts_with(types, name))
    return out


def _trimmed(values: pa.Array, types: pa.Array, _: pa.Array) -> tuple[pa.Array, pa.Array]:
    return pc.if_else(_starts(types, "char", "varchar"), pc.utf8_rtrim(values, " "), values), types


def _unpadded(values: pa.Array, types: pa.Array, _: pa.Array) -> tuple[pa.Array, pa.Array]:
    shorter = pc.replace_substring_regex(values, "^(0x(?:[0-9a-f]{2})*?)(?:00)+$", r"\1")
    return pc.if_else(_starts(types, "binary", "varbinary"), shorter, values), types


def _as_double(values: pa.Array, types: pa.Array, _: pa.Array) -> tuple[pa.Array, pa.Array]:
    return values, pc.if_else(_starts(types, "float"), "double", types)


def _plain_decimal(values: pa.Array, types: pa.Array, _: pa.Array) -> tuple[pa.Array, pa.Array]:
    shorter = pc.replace_substring_regex(pc.replace_substring_regex(values, r"(\.[0-9]*?)0+$", r"\1"), r"\.$", "")
    return pc.if_else(_starts(types, "decimal"), shorter, values), types


def _other_image(_: pa.Array, types: pa.Array, twins: pa.Array) -> tuple[pa.Array, pa.Array]:
    return twins, types


def _null(values: pa.Array, types: pa.Array, _: pa.Array) -> tuple[pa.Array, pa.Array]:
    return pa.nulls(len(values), pa.string()), types


def _empty(values: pa.Array, types: pa.Array, _: pa.Array) -> tuple[pa.Array, pa.Array]:
    return pc.if_else(_starts(types, "char", "varchar", "text"), values.fill_null(""), values), types


_DIFFERS = "the checksum does not match the values"
IN_ZONE = "it matches timestamps in the zone "
_UNKNOWN = "the checksum cannot be computed: the row is known in part, or a value has no bytes known here"
_CHANGES: tuple[tuple[str, Change], ...] = (
    ("it matches the column's value in the other image", _other_image),
    ("it matches the text without trailing spaces", _trimmed),
    ("it matches the bytes without trailing zeros", _unpadded),
    ("it matches the number as a double", _as_double),
    ("it matches the decimal without trailing zeros", _plain_decimal),
    ("it matches NULL in the column", _null),
    ("it matches an empty text instead of NULL", _empty),
)


# TiDB's row checksums, computed from row images: does what arrived equal what TiDB wrote? With
# ``tidb_enable_row_level_checksum`` TiDB stores a CRC32 (IEEE) over the columns of a row in the order of their ids,
# and TiCDC passes it on (``integrity-check-level=correctness``). The bytes of a column are, by its type: | type |
# bytes | |---|---| | NULL, geometry | none | | integers, year, enum, set, bit | 8, little-endian (two's complement;
# enum, set and bit as their number) | | float, double | 8, little-endian, of the value as a double; infinities and NaN
# as 0 | | char, text, binary, blob | length in 4 bytes, little-endian, then the bytes | | decimal, date, datetime,
# time, json | the same, of the text TiDB prints | | timestamp | the same, of the text in UTC | References ----------
# TiDB's ``util/rowcodec`` (``appendDatumForChecksum``) and the TiCDC documentation, "TiCDC Data Integrity Validation
# for Single-Row Data"; the facts in our own words.

_INTEGER = r"^[0-9]{1,19}$|^-[0-9]{1,18}$"
_LARGEST, _SMALLEST = "18446744073709551615", "-9223372036854775808"
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"


@dataclass(frozen=True, slots=True)
class Images:
    """Row images side by side: types and texts of all their columns, and where each row begins and the last ends.

    Texts are as in the events contract (null is NULL, binary is ``0x`` and lower-case hex), the columns of a row in
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


def row_checksums(images: Images, *, time_zone: str = "UTC", ambiguous: Ambiguous = "earliest") -> pa.Array:
    """Compute the checksum of each row.

    Parameters
    ----------
    images
        Row images.
    time_zone
        Of the TiCDC server, in which the texts of timestamps are.
    ambiguous
        Which of two moments a text means in the hour that comes twice when summer time ends.

    Returns
    -------
    pa.Array
        int64, the CRC32 of each row; null where a value has no bytes: its type is unknown here (vector), or its text is
        none of the type (also an ENUM or SET that is carried as a label).
    """
    pieces, known = _bytes_of(images, time_zone, ambiguous)
    starts = np.frombuffer(pieces.buffers()[1], np.int32, len(pieces) + 1, pieces.offset * 4).astype(np.int64)
    data = np.frombuffer(pieces.buffers()[2] or b"", np.uint8)
    unknown = np.concatenate([[0], np.cumsum(~known)])[images.offsets]
    found = np.empty(len(images.offsets) - 1, dtype=np.int64)
    _crc32(data, starts[images.offsets], _TABLE, found)
    return pa.array(found, mask=np.diff(unknown) > 0)


def _bytes_of(images: Images, time_zone: str, ambiguous: Ambiguous) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
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
            encode = _encoder(parsed(name), time_zone, ambiguous)
            part = encode(images.values.take(pa.array(at)))
            known[at] = part.is_valid().to_numpy(zero_copy_only=False)
            found.append(part.fill_null(b""))
            places.append(at)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(found).take(pa.array(order)), known


def _encoder(mysql_type: ColumnType, time_zone: str, ambiguous: Ambiguous) -> Callable[[pa.Array], pa.Array]:
    """From texts to binary, null where a text is none of the type."""
    if mysql_type.family in ("integer", "bit", "enum", "set"):
        return _integers
    if mysql_type.family == "float":
        return lambda texts: _floats(texts, single=mysql_type.spark == "float")
    if mysql_type.family == "binary":
        return lambda texts: _with_length(_unhexed(texts))
    if mysql_type.name == "timestamp":
        return lambda texts: _with_length(_in_utc(texts, time_zone, ambiguous).cast(pa.binary()))
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


def _in_utc(texts: pa.Array, time_zone: str, ambiguous: Ambiguous) -> pa.Array:
    """Texts of timestamps in UTC with the fraction they have; a zero timestamp, or what is none, stays as it is."""
    seconds, fraction = pc.utf8_slice_codeunits(texts, 0, 19), pc.utf8_slice_codeunits(texts, 19)
    read = pc.strptime(seconds, format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True)
    real = pc.equal(read.cast(pa.string()), seconds).fill_null(False)  # February 30 is read as March 1
    zoned = pc.assume_timezone(
        pc.if_else(real, read, pa.scalar(0, read.type)), time_zone, ambiguous=ambiguous, nonexistent="latest"
    )
    there = zoned.cast(pa.timestamp("s")).cast(pa.string())
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
