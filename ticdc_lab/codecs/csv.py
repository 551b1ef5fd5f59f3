"""The storage sink's csv: how a file's records look, and records to events.

No library's reader takes its place: without one quote in 300,000 records pyarrow's refuses the file, DuckDB's,
set to skip errors, gives 252,867 or none, by which quote it is; here that record alone is in quarantine. pyarrow
takes no delimiter of several characters, as TiCDC does. They are no faster either: to split that file into records
takes 0.02 CPU seconds here, to read it 0.11 and 0.17 there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.csv_fields import CsvField, Record, RecordShape, is_quoted, written
from ticdc_lab.codecs.kernel import csv as K
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import in_form, spans
from ticdc_lab.codecs.kernel.columns import event_columns, filled
from ticdc_lab.codecs.kernel.faults import FAULTS
from ticdc_lab.codecs.quarantine import one_by_one, refused
from ticdc_lab.codecs.table_file import Cut, TableColumn, TableFile
from ticdc_lab.events.mysql_types import ANYTHING, BINARIES, base_of, held_by
from ticdc_lab.events.schema import DECODED
from ticdc_lab.settings import Settings


class Records(NamedTuple):
    """Where a file's records start and end, and where what is no whole record begins."""

    starts: np.ndarray
    ends: np.ndarray
    rest: int


def find_records(data: np.ndarray, *, quote: str, terminator: str, start: int = 0) -> Records:
    """Every whole record of a file, from a byte on."""
    end = _bytes(terminator)
    room = K.count_bytes(data, end[0]) + 1
    starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
    n, rest = K.find_records(data[start:], quote.encode()[0] if quote else -1, end, starts, ends)
    return Records(starts[:n] + start, ends[:n] + start, rest + start)


def beginning_of(file: TableFile, cut: Cut) -> re.Pattern[bytes]:
    """How every record of a table's file begins: operation, table, schema.

    Inside a text each quote is doubled or each line end escaped, so nothing else in a file looks like a line end and
    this.
    """
    quote, delimiter = (re.escape(text.encode()) for text in (cut.quote, cut.delimiter))
    names = [re.escape(written(name or "", cut)) for name in (file.table, file.schema)]
    return re.compile(delimiter.join([quote + b"[IDU]" + quote, *names, b""]))


def resynced(
    data: np.ndarray, records: Records, begins: re.Pattern[bytes], *, quote: str, terminator: str, first: int = 0
) -> Records:
    """The records of a file from a byte on, each found although one before it is damaged.

    A quote too many or too few turns inside and outside about for all that follows. Where a line begins as a record
    does, one begins.
    """
    raw = data.tobytes()
    places = [m.start() + len(terminator) for m in re.finditer(re.escape(terminator.encode()) + begins.pattern, raw)]
    if set(places) <= {*records.starts.tolist(), records.rest}:
        return records
    starts, ends, rest = list[int](), list[int](), len(data)
    cuts = [first, *(p for p in places if p > first), len(data) + len(terminator)]
    for start, following in pairwise(cuts):
        stop = min(following, len(data))
        part = find_records(data[start:stop], quote=quote, terminator=terminator)
        starts += (part.starts + start).tolist()
        ends += (part.ends + start).tolist()
        if part.rest < stop - start and following <= len(data):
            starts.append(part.rest + start)
            ends.append(following - len(terminator))
        elif part.rest < stop - start:
            rest = part.rest + start
    return Records(np.array(starts, np.int64), np.array(ends, np.int64), rest)


def terminator_of(data: np.ndarray, settings: Settings, begins: re.Pattern[bytes] | None = None) -> str:
    """What ends records: as set, or a line feed if no carriage return precedes the one that ends the first.

    A line feed inside quotes ends none; one in a text that the end of the file cuts is not seen here. Where it is known
    how records begin, those before most of them count: the first one may be damaged.
    """
    if (known := settings.value("sink.terminator")) is not None:
        return str(known)
    if begins is not None:
        ends = re.findall(rb"(\r?)\n(?=" + begins.pattern + rb")", data[:_HEAD].tobytes())
        if ends:
            return "\r\n" if 2 * sum(map(bool, ends)) >= len(ends) else "\n"
    for some in (data[:_HEAD], data):
        lines = find_records(some, quote=Cut.of(settings).quote, terminator="\n")
        if len(lines.ends):
            last = int(lines.ends[0]) - 1
            return "\n" if last >= 0 and data[last] != 0x0D else "\r\n"
    return "\r\n"


_HEAD = 1 << 16
_MOST_FIELDS = 1 << 15
FIRST_LOOKED_AT = 9
"""The first records of a file, whose majority decides: one may be damaged."""


def records_among(data: np.ndarray, records: Records, cut: Cut, *, most: int) -> list[Record]:
    """The fields of up to ``most`` records, the first ones and others spread over the file."""
    plain = layout(None, cut, PLAIN_SHAPE, "\r\n", K.PLAIN)
    n = len(records.starts)
    head = min(n, FIRST_LOOKED_AT, most)
    spread = np.linspace(head, n - 1, max(min(most, n) - head, 0)).astype(int).tolist()
    quote = int(plain.given[K.Q_QUOTE])
    found = list[Record]()
    for i in dict.fromkeys((*range(head), *spread)):
        p, end = int(records.starts[i]), int(records.ends[i])
        starts, stops = np.empty((2, min(end - p + 2, _MOST_FIELDS)), np.int64)
        k = K.fields(data, p, end, plain, starts, stops)
        quoted = ((starts[:k] > p) & (data[starts[:k] - 1] == quote)).tolist()
        texts = [data[a:z].tobytes() for a, z in zip(starts[:k].tolist(), stops[:k].tolist(), strict=True)]
        found.append([CsvField(*f) for f in zip(texts, quoted, strict=True)])
    return [r or [CsvField(b"", False)] for r in found]


PLAIN_SHAPE = RecordShape(False, False, False, False)


@lru_cache(maxsize=256)
def layout(
    file: TableFile | None, cut: Cut, shape: RecordShape, terminator: str, binary: int
) -> K.CsvLayout:  # fmt: skip
    """What the kernel needs to know of a file; ``binary`` is how it has binary values: BASE64, HEX, or as they are."""
    columns = file.columns if file else ()
    names, types = _texts([c.name for c in columns]), _texts([c.mysql_type for c in columns])
    labels = _texts([e for c in columns for e in c.elements])
    return K.CsvLayout(
        given=np.array([cut.quote.encode()[0] if cut.quote else -1, *map(int, shape[:3])], np.int64),
        delimiter=_bytes(cut.delimiter),
        terminator=_bytes(terminator),
        null=_bytes(cut.null),
        names=names[0],
        names_end=names[1],
        types=types[0],
        types_end=types[1],
        kinds=np.array([_form(c, binary) for c in columns], np.int64),
        held=np.array([held_by(c.mysql_type) for c in columns], np.int64),
        quoted=np.array([is_quoted(c) and held_by(c.mysql_type) == ANYTHING for c in columns], np.int64),
        is_key=np.array([c.is_key for c in columns], np.int64),
        nullable=np.array([bool(cut.quote) or (c.nullable and not c.is_key) for c in columns], np.int64),
        labels=labels[0],
        labels_end=labels[1],
        first_label=np.cumsum([0, *(len(c.elements) for c in columns)], dtype=np.int64),
    )


def _form(column: TableColumn, binary: int) -> int:
    kind = base_of(column.mysql_type)
    if kind in ("enum", "set"):
        return (K.ENUM if kind == "enum" else K.SET) if column.elements else K.PLAIN
    if kind in ("float", "double"):
        return K.SINGLE if kind == "float" else K.FLOAT
    return binary if kind in BINARIES else K.PLAIN


def _texts(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    raw = [t.encode("utf-8", "replace") for t in texts]
    return _bytes(b"".join(raw)), np.cumsum([0, *map(len, raw)], dtype=np.int64)


def _bytes(text: str | bytes) -> np.ndarray:
    return np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8).copy()


def decode_csv(batch: pa.RecordBatch, given: K.CsvLayout, *, images: bool = True) -> Iterator[pa.RecordBatch]:
    """Decode messages (columns topic, partition, offset, key, value) of files with one layout.

    Yields: :data:`ticdc_lab.events.schema.DECODED`: events, then a row for each message that could not be decoded.
    """
    return one_by_one(partial(_decode, given=given, images=images), batch, batch, "csv")


def _decode(
    batch: pa.RecordBatch, original: pa.RecordBatch, *, given: K.CsvLayout, images: bool
) -> Iterator[pa.RecordBatch]:
    values = spans(batch.column("value"))
    n, found = batch.num_rows, np.zeros(batch.num_rows, np.int64)
    st = filled(
        n, len(values[0]), lambda st: K.run_csv(*values, given, st, found),
        columns=max(len(given.kinds), 1), beside=2 * n * (len(given.names) + len(given.types)),
    )  # fmt: skip
    yield in_form(event_columns(batch, "csv", st, images), int(st.count[S.N_EVENTS]), DECODED)
    if found.any():
        yield _failed(original, found, values[1])


def _failed(batch: pa.RecordBatch, found: np.ndarray, starts: np.ndarray) -> pa.RecordBatch:
    bad = np.flatnonzero(found)
    said = [(FAULTS | K.CSV_FAULTS)[int(f) >> 40] for f in found[bad]]
    places = [max(int(found[i] & (1 << 40) - 1) - int(starts[i]), 0) for i in bad]
    reasons = [f"record, byte {p}: {sentence}" for p, (_, sentence) in zip(places, said, strict=True)]
    return refused(batch.take(pa.array(bad)), [name for name, _ in said], reasons, protocol="csv")
