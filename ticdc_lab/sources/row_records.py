"""Records of a dump that are rows: of CSV, of Parquet and Avro."""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO, RawIOBase
from itertools import islice, takewhile
from typing import Any, BinaryIO

import orjson

from ticdc_lab.sources.dump_messages import Bad, Record, Unread, message_of, plain
from ticdc_lab.sources.forms import Form, cells_in, role_of, roles_in, texts_of
from ticdc_lab.sources.json_objects import Value, is_json


def of_csv(lines: Iterator[tuple[bytes, int]], form: Form, bound: int) -> Iterator[Record]:
    """Records of the rows of some lines."""
    text = (line.decode("latin-1") + "\n" for line, _ in lines)
    rows = cells_in(text, between=form.between.decode(), most=bound, is_escaped=form.is_escaped)
    begun, header = 1, None
    if form.is_headed:
        header, begun = next(rows, None), 2
    try:
        for row in rows:
            if row and row != header:  # a second dump behind the first
                yield _of_row(row, form, begun)
            begun = rows.line_num + 1
    except csv.Error as error:
        yield Bad("bad-csv", f"line {begun}: {error}; nothing behind it was read", b"")


def _of_row(row: list[str], form: Form, line: int) -> Record:
    if len(row) != len(form.parts):
        raw = form.between.decode().join(row).encode("latin-1")
        return Bad("bad-csv", f"line {line}: {len(row)} columns; expected {len(form.parts)}", raw)
    fields: dict[str, Value] = {
        str(p): (_unguarded(v) or None) if v != "null" else None
        for p, v in zip(form.parts, row, strict=True)
        if role_of(str(p))
    }
    headers = fields.get("headers")
    fields["headers"] = headers.encode("latin-1") if isinstance(headers, str) and is_json(headers.encode()) else None
    try:
        return message_of(fields, form)
    except Unread as error:
        return Bad(error.code, f"line {line}: {error}", form.between.decode().join(row).encode("latin-1"))


def _unguarded(text: str) -> str:
    """Kafka UI puts ' before what a spreadsheet takes for a formula."""
    return text[1:] if re.match(r"'[=+\-@\t\r]", text) else text


# Rows of Parquet and Avro.


class _Damaged(ValueError):
    """Why the rows of a block of an Avro file are lost."""


def _rows(file: BinaryIO) -> Iterator[Any]:
    """Rows as dictionaries, or values alone; in the place of a damaged block of Avro why it is none."""
    if file.read(4) == b"PAR1":
        import pyarrow.parquet as pq

        from ticdc_lab.sources.parquet import whole_parquet

        # nothing is read ahead: most ask for the first rows alone
        with whole_parquet(getattr(file, "name", "A file")), pq.ParquetFile(file, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                yield from batch.to_pylist()
        return
    import fastavro

    for codec, unpack in (("snappy", _of_snappy), ("zstandard", _of_zstd), ("lz4", _of_lz4)):
        fastavro.read.BLOCK_READERS[codec] = partial(_block, unpack)
    file.seek(0)
    blocks = fastavro.block_reader(file)
    at = file.tell()
    file.seek(0)
    head = file.read(at)
    n, is_inside = 0, False
    while True:
        try:
            for block in blocks:
                n, at, is_inside = n + 1, file.tell(), True
                yield from block
                is_inside = False
            return
        except (ValueError, EOFError, zlib.error, LookupError, ArithmeticError) as error:
            n += not is_inside
            yield _Damaged(f"block {n:,} is damaged ({error})")
        file.seek(at)
        if not is_inside and not _passed(file, head[-_MARK:]):
            return
        blocks, at, is_inside = fastavro.block_reader(_Behind(head, file)), file.tell(), False  # type: ignore[arg-type]


_MARK = 16
"""Bytes that end the head and each block of an Avro file, the same ones in one file."""


class _Behind(RawIOBase):
    """A file from a place on, with the head that names its schema before it."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = BytesIO(head), file

    def read(self, size: int = -1) -> bytes:
        return self._head.read(size) or self._file.read(size)

    def tell(self) -> int:
        return self._file.tell()


def _passed(file: BinaryIO, mark: bytes) -> bool:
    """Go behind the next mark; whether there is one."""
    held = b""
    while chunk := file.read(1 << 20):
        held += chunk
        if (found := held.find(mark)) >= 0:
            file.seek(found + len(mark) - len(held), 1)
            return True
        held = held[-len(mark) :]
    return False


def _block(unpack: Callable[[bytes], bytes], of: Any) -> BytesIO:
    """A block of an Avro file whose codec fastavro reads only with a library more: it is what pyarrow brings."""
    take = getattr(of, "read_fixed", None) or of.read  # fastavro's decoder without its C, and the file with it
    zigzag = shift = 0
    while (byte := take(1)) and byte[0] > 0x7F:
        zigzag, shift = zigzag | (byte[0] & 0x7F) << shift, shift + 7
    zigzag |= (byte[0] if byte else 0) << shift
    return BytesIO(unpack(take((zigzag >> 1) ^ -(zigzag & 1))))


def _of_snappy(data: bytes) -> bytes:
    digits = [*takewhile(lambda byte: byte > 0x7F, data[:5])]
    size = sum((byte & 0x7F) << 7 * i for i, byte in enumerate((*digits, data[len(digits)])))
    text = _inflated("snappy", data[:-4], size)
    if int.from_bytes(data[-4:], "big") != zlib.crc32(text):
        raise ValueError("a block's checksum does not fit what is in it")
    return text


def _of_lz4(data: bytes) -> bytes:
    return _inflated("lz4_raw", data[4:], int.from_bytes(data[:4], "little"))


def _inflated(codec: str, data: bytes, size: int) -> bytes:
    import pyarrow as pa

    if size > _MOST_OF_BLOCK:
        raise ValueError(f"a block of {size:,} bytes; expected at most {_MOST_OF_BLOCK:,}")
    try:
        return bytes(pa.Codec(codec).decompress(data, size, asbytes=True))
    except OSError as error:
        raise ValueError(str(error)) from None


def _of_zstd(data: bytes) -> bytes:
    import zstandard

    try:
        found = zstandard.ZstdDecompressor().stream_reader(data).read(_MOST_OF_BLOCK + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(found) > _MOST_OF_BLOCK:
        raise ValueError(f"a block of more than {_MOST_OF_BLOCK:,} bytes")
    return bytes(found)


_MOST_OF_BLOCK = 1 << 28
"""Bytes of a block of an Avro file when it is unpacked; writers begin a new one at 16 KB to some MB."""


_ROWS_AT_ONCE = 1_000


def columns_of(file: BinaryIO) -> tuple[list[str], tuple[list[str], list[str]], bool]:
    """Names of the columns of an open file, none for values alone; texts among its first values and among its keys.

    And whether none of its columns are categories.
    """
    rows = list[Any]()
    try:
        rows.extend(islice(_rows(file), _ROWS_AT_ONCE))
    except (ValueError, EOFError):  # the reader of the whole file names it
        if not rows:
            raise
    if rows and isinstance(rows[0], _Damaged):
        raise rows[0]
    rows = [row for row in rows if not isinstance(row, _Damaged)]
    if rows and isinstance(rows[0], dict):
        names = list(rows[0])
        roles = roles_in(names)
        if len(names) > 1 or "value" in roles or not isinstance(rows[0][names[0]], str | bytes | None):
            return names, texts_of(rows, roles), not _has_categories(file)
        rows = [row[names[0]] for row in rows]
    return [], ([row for row in rows if isinstance(row, str) and row], []), True


def _has_categories(file: BinaryIO) -> bool:
    """Whether columns are dictionaries, as pandas writes categories; not every engine reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file.seek(0)
    if file.read(4) != b"PAR1":
        return False
    return any(pa.types.is_dictionary(field.type) for field in pq.read_schema(file))


def of_rows(file: BinaryIO, form: Form) -> Iterator[Record]:
    """Records of an open file of Parquet or Avro."""
    try:
        for n, row in enumerate(_rows(file), start=1):
            if isinstance(row, _Damaged):
                yield Bad("damaged-file", f"{row}; its rows are lost, all other blocks are read", b"")
                continue
            fields = row if isinstance(row, dict) and form.parts else {"value": row}
            if not form.parts and isinstance(row, dict) and len(row) == 1:
                [fields["value"]] = row.values()
            try:
                yield message_of({name: plain(value) for name, value in fields.items()}, form)
            except Unread as error:
                yield Bad(error.code, f"row {n}: {error}", orjson.dumps(fields, default=str))
    except (ValueError, EOFError, OSError) as error:
        yield Bad("damaged-file", f"{error}; all rows before were read", b"")
