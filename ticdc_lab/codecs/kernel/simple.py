"""Simple in JSON, as TiCDC writes it; what is written in another way is left to Python.

A message that this kernel decodes is one that :mod:`ticdc_lab.codecs.simple` decodes to the same event. It leaves
all else: a fault, a value that its type cannot hold, a table version that is not known, JSON in another order, floats
whose digits may not be the fewest, and a DDL or bootstrap the first time that its definition of a table comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.event import INT64, Malformed
from ticdc_lab.codecs.fields import integer, members, object_of
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.avro import SIMPLE, decoded_in_avro
from ticdc_lab.codecs.kernel.avro_plans import AvroPlans, plans_of
from ticdc_lab.codecs.kernel.columns import decoded_in_part
from ticdc_lab.codecs.kernel.floats import FLOAT_ROOM, put_shortest
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import kernel, part
from ticdc_lab.codecs.kernel.members import NO_MORE, described, next_named, nth_name, read_scalars
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    first_of,
    literal_end,
    next_member,
    same,
    same_bytes,
    skip_space,
    string_end,
)
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    column_fits,
    end_column,
    end_images,
    event_fits,
    mark,
    new_event,
    put_null,
    put_text,
    put_ts,
    restore,
)
from ticdc_lab.codecs.kernel.tables import (
    AS_BYTES,
    AS_DOUBLE,
    AS_FLOAT,
    BY_NAME,
    FORM,
    IN_PYTHON,
    IS_KEY,
    NAME,
    TYPE_OF,
    Versions,
    rank_of,
    table_called,
    versions_of,
)
from ticdc_lab.codecs.kernel.text import (
    held_scalar_end,
    int64_of,
    put_base64,
    put_bytes,
    put_string,
    room_for,
)
from ticdc_lab.codecs.kernel.wide import BLOCK
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.codecs.plain.hashes import hashes_of
from ticdc_lab.codecs.simple_avro import DDL_TYPES, FIRST, flats
from ticdc_lab.codecs.simple_versions import Tables, columns_of, tables_in, version_of
from ticdc_lab.events.mysql_types import ANYTHING

OK, NEED_MORE, LEFT = faults.OK, faults.NEED_MORE, -2
ROW, WATERMARK, INSERT, UPDATE, DELETE = S.ROW, S.WATERMARK, S.INSERT, S.UPDATE, S.DELETE
SCHEMA_NAME, TABLE_NAME, TABLE_ID, HAS_TABLE_ID = S.SCHEMA_NAME, S.TABLE_NAME, S.TABLE_ID, S.HAS_TABLE_ID
AFTER, BEFORE, NAMES, TYPES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.TYPES, S.VALUES
N_AFTER, N_BEFORE = S.N_AFTER, S.N_BEFORE

VERSION, DATABASE, TABLE, TABLE_NUMBER, TYPE, SQL, COMMIT_TS, BUILD_TS, SCHEMA_VERSION = range(9)
CHECKSUM, DATA, OLD, BROUGHT = range(9, 13)
CHECKSUM_VERSION, CORRUPTED, CURRENT, PREVIOUS = range(13, 17)
"""Fields of a message and of its checksum; ``state.at`` holds where the value of each begins and, 20 further, ends."""
_ENDS = 20

_MESSAGE = described(
    "version", "database", "table", "tableID", "type", "sql", "commitTs", "buildTs", "schemaVersion", "checksum",
    "data", "old", "tableSchema",
)  # fmt: skip
_CHECKSUM = described("version", "corrupted", "current", "previous")
_TYPES = described("INSERT", "UPDATE", "DELETE", "WATERMARK", "BOOTSTRAP", *DDL_TYPES)
_WATERMARK, _BOOTSTRAP = 3, 4
"""What a type is by its number, if it is no operation on a row."""

_CHECKSUM_MAX = (1 << 32) - 1


class SimpleKernel:
    """The kernel over the table versions that its codec knows when a batch comes (:class:`~.decoded.PartKernel`)."""

    def __init__(self, known: Tables) -> None:
        self._known = known
        self._tables: Tables = {}
        self._versions: Versions | None = None
        self._plans: AvroPlans | None = None
        self._brought: dict[bytes, tuple[str, str, int]] = {}
        self._definitions, self._bytes = definitions_of({}), 0

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events of rows and watermarks that the kernel decodes."""
        if self._versions is None or self._tables != self._known:
            self._tables = dict(self._known)
            self._versions = versions_of(self._tables, most_columns=bounds.columns)
        given = bounds.values, self._versions
        first = next((value for value in batch.column("value") if value.is_valid), None)
        if first is not None and first.as_buffer()[:1] == FIRST:
            self._plans = self._plans or plans_of(flats())
            return decoded_in_avro(batch, "simple", SIMPLE, self._plans, self._versions, images=images, bounds=bounds)
        asked = *given, self._definitions
        done = decoded_in_part(batch, "simple", decode, *asked, images=images, bounds=bounds)
        if done.events.num_rows < batch.num_rows:
            left = np.ones(batch.num_rows, bool)
            left[done.message] = False
            self._learn(batch.column("value").filter(pa.array(left)).to_pylist())
        return done

    def _learn(self, values: list[bytes | None]) -> None:
        """Remember definitions by their bytes where all their table versions are known, so that they add nothing."""
        before = len(self._brought)
        for value in values:
            at = -1 if value is None else value.find(_BRINGS)
            tail = b"" if value is None or at < 0 else value[at + 1 :]
            if not tail or tail in self._brought or self._bytes + len(tail) > _DEFINITION_BYTES_MAX:
                continue
            with suppress(Malformed):
                brought = object_of(b"{" + tail, "value")
                tables = [(version_of(of), columns_of(of)) for of in tables_in(brought)]
                fields = members(brought["tableSchema"], "tableSchema")
                known = all(self._known.get(version) == columns for version, columns in tables)
                if known and brought.keys() <= {"tableSchema", "preTableSchema"}:
                    number = integer(fields, "tableID")
                    if number in INT64:
                        self._brought[tail] = *tables[0][0][:2], number
                        self._bytes += len(tail)
        if len(self._brought) > before:
            self._definitions = definitions_of(self._brought)

    def stands(self) -> bool:
        """Whether no table version that rows were decoded by has come again in another form."""
        now = self._known
        if all(now[version] == columns for version, columns in self._tables.items()):
            return True
        now.clear()
        now.update(self._tables)
        return False


_BRINGS, _DEFINITION_BYTES_MAX = b',"tableSchema":{', 32 << 20
"""Before the definitions of a message, which are its last fields; and so many bytes of them are remembered."""

_HASHED = 192
"""Bytes of definitions by which they are found; table and version are among them."""


class BroughtTables(Arrays):
    """Definitions of tables by their bytes: ascending hashes of how they begin, and the table of each.

    ``of``: where in ``text`` the end of a message and the names of schema and table begin and end, and the table's id.
    """

    hash: np.ndarray
    of: np.ndarray
    text: np.ndarray


def definitions_of(brought: Mapping[bytes, tuple[str, str, int]]) -> BroughtTables:
    """The ends of messages with schema, table and table id, as the kernel reads them."""
    text, rows = bytearray(), list[tuple[int, ...]]()
    for tail, (schema, table, number) in brought.items():
        ends = np.cumsum([len(text), len(tail), len(schema.encode()), len(table.encode())]).tolist()
        text.extend(tail + schema.encode() + table.encode())
        rows.append((*ends, number))
    hashes = hashes_of([tail[:_HASHED] for tail in brought])
    order = np.argsort(hashes, kind="stable")
    return BroughtTables(
        hash=hashes[order],
        of=np.array(rows, np.int64).reshape(-1, 5)[order],
        text=np.frombuffer(bytes(text) + bytes(BLOCK), np.uint8).copy(),
    )


@kernel
def decode(
    b: np.ndarray, starts: np.ndarray, ends: np.ndarray, st: State, marks: np.ndarray, longest: int, versions: Versions,
    definitions: BroughtTables,
) -> int:  # fmt: skip
    """Decode values of up to ``longest`` bytes, except those left to Python. NEED_MORE or OK."""
    for m in range(len(starts)):
        mark(st, marks)
        status = LEFT
        if starts[m] >= 0 and ends[m] - starts[m] <= longest:
            status = _message(m, b, starts[m], ends[m], versions, definitions, st)
        if status == NEED_MORE:
            return NEED_MORE
        if status != OK:
            restore(st, marks)
    return OK


@part
def _message(m: int, b: np.ndarray, p: int, end: int, versions: Versions, definitions: BroughtTables, st: State) -> int:
    """Decode one message; OK, NEED_MORE, or any other number where it is left."""
    at, definition = st.at, -1
    for k in range(PREVIOUS + 1):
        at[k] = -1
    if p >= end or b[p] != 0x7B:
        return LEFT
    field, p = next_named(b, p + 1, end, True, -1, _MESSAGE)
    while field >= 0:
        if at[field] >= 0:
            return LEFT
        if field == BROUGHT:
            definition, q = _definition(b, p - len(_BRINGS) + 2, end, definitions), end - 1
            if definition < 0:
                return LEFT
        elif field == CHECKSUM:
            q = read_scalars(b, p, end, _CHECKSUM, at, CHECKSUM_VERSION, _ENDS)
        else:
            q = _rows_image(b, p, end, field, versions, st) if field >= DATA else held_scalar_end(b, p, end)
        if q < 0:
            return q
        at[field], at[_ENDS + field] = p, q
        field, p = next_named(b, q, end, False, field, _MESSAGE)
    if field != NO_MORE or skip_space(b, p, end) != end or at[TYPE] < 0 or b[at[TYPE]] != 0x22 or at[COMMIT_TS] < 0:
        return LEFT
    ts, counted = _count(b, at, COMMIT_TS)
    kind = nth_name(b, at[TYPE] + 1, at[_ENDS + TYPE] - 1, INSERT, _TYPES)
    if not counted or (kind > DELETE and (at[DATA] >= 0 or at[OLD] >= 0)):
        return LEFT
    if kind > _WATERMARK:
        return _schema_change(m, b, kind, ts, definition, definitions, st)
    if kind == _WATERMARK:
        if not event_fits(st, 0):
            return NEED_MORE
        i = new_event(st, m, 0, WATERMARK)
        end_images(st, i)
        put_ts(st, i, ts)
        return OK
    return _row(m, b, ts, kind, st)


@part
def _definition(b: np.ndarray, p: int, end: int, definitions: BroughtTables) -> int:
    """Which known definition a message ends with, or -1."""
    h = hash_bytes(b, p, min(p + _HASHED, end), SEED)
    i, of = first_of(definitions.hash, h), definitions.of
    while i < len(definitions.hash) and definitions.hash[i] == h:
        if same_bytes(b, p, end, definitions.text, of[i, 0], of[i, 1]):
            return i
        i += 1
    return -1


@part
def _schema_change(
    m: int, b: np.ndarray, kind: int, ts: int, definition: int, definitions: BroughtTables, st: State
) -> int:
    """Make a DDL or a bootstrap an event."""
    at, of = st.at, definitions.of
    need = _ENDS if definition < 0 else of[definition, 3] - of[definition, 1]
    if kind > _BOOTSTRAP:
        if at[SQL] < 0 or b[at[SQL]] != 0x22:
            return LEFT
        need += at[_ENDS + SQL] - at[SQL]
    if not event_fits(st, need):
        return NEED_MORE
    i = new_event(st, m, 0, S.BOOTSTRAP if kind == _BOOTSTRAP else S.DDL)
    end_images(st, i)
    if definition >= 0:
        for k, which in ((SCHEMA_NAME, 1), (TABLE_NAME, 2)):
            start, stop = of[definition, which], of[definition, which + 1]
            close(st, k, i, put_bytes(definitions.text, start, stop, st.data[k], st.size[k]))
        st.number[TABLE_ID, i], st.byte[HAS_TABLE_ID, i] = of[definition, 4], 1
    if kind > _BOOTSTRAP:
        put_text(st, S.QUERY, i, b, at[SQL], at[_ENDS + SQL], True)
        put_text(st, S.DDL_TYPE, i, b, at[TYPE], at[_ENDS + TYPE], False)
        put_ts(st, i, ts)
    return OK


@part
def _count(b: np.ndarray, at: np.ndarray, field: int) -> tuple[int, bool]:
    """The number that a field is, and whether it is one of 63 bits without a sign."""
    p = at[field]
    value, fits = int64_of(b, p, at[_ENDS + field])
    return value, fits and b[p] != 0x2D


@part
def _row(m: int, b: np.ndarray, ts: int, op: int, st: State) -> int:
    """Make the row whose images have been read an event."""
    at = st.at
    if op < 0 or at[TABLE_NUMBER] < 0 or (at[DATA] >= 0) != (op != DELETE) or (at[OLD] >= 0) != (op != INSERT):
        return LEFT
    table_id, counted = _count(b, at, TABLE_NUMBER)
    if not counted:
        return LEFT
    if not event_fits(st, at[_ENDS + DATABASE] - at[DATABASE] + at[_ENDS + TABLE] - at[TABLE]):
        return NEED_MORE
    i = new_event(st, m, 0, ROW)
    end_images(st, i)
    put_text(st, SCHEMA_NAME, i, b, at[DATABASE], at[_ENDS + DATABASE], False)
    put_text(st, TABLE_NAME, i, b, at[TABLE], at[_ENDS + TABLE], False)
    st.number[TABLE_ID, i], st.byte[HAS_TABLE_ID, i] = table_id, 1
    for field, image, number, there in (
        (CURRENT, DATA, S.CHECKSUM, S.HAS_CHECKSUM), (PREVIOUS, OLD, S.CHECKSUM_BEFORE, S.HAS_CHECKSUM_BEFORE),
    ):  # fmt: skip
        if at[field] >= 0 and at[image] >= 0 and b[at[field]] != 0x6E:
            value, counted = _count(b, at, field)
            if not counted or value > _CHECKSUM_MAX:
                return LEFT
            st.number[number, i], st.byte[there, i] = value, 1
    if at[CORRUPTED] >= 0 and b[at[CORRUPTED]] == 0x74:
        st.byte[S.INCOMPLETE, i] = S.CORRUPTED
    put_ts(st, i, ts)
    set_row(st, i, op)
    return OK


@part
def _rows_image(b: np.ndarray, p: int, end: int, field: int, versions: Versions, st: State) -> int:
    """Read an image, if its table's definition came before; the position after it, or a status below zero."""
    at = st.at
    if at[DATABASE] < 0 or at[TABLE] < 0 or at[SCHEMA_VERSION] < 0:
        return LEFT
    version, counted = _count(b, at, SCHEMA_VERSION)
    if not counted or b[at[DATABASE]] != 0x22 or b[at[TABLE]] != 0x22 or b[p] != 0x7B:
        return LEFT
    db, db_stop = at[DATABASE] + 1, at[_ENDS + DATABASE] - 1
    table = table_called(b, db, db_stop, at[TABLE] + 1, at[_ENDS + TABLE] - 1, version, versions)
    if table < 0:
        return LEFT
    p = _find_values(b, p, end, table, versions)
    return p if p < 0 else _put_image(b, p, AFTER if field == DATA else BEFORE, table, versions, st)


@part
def _find_values(b: np.ndarray, p: int, end: int, table: int, versions: Versions) -> int:
    """Find where the value of each column lies in the object at ``p``; the position after it."""
    first = versions.first[table]
    n, rank, found = versions.first[table + 1] - first, -1, 0
    for j in range(n):
        versions.at[j, 0] = -1
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0 or escaped:
            return LEFT
        rank = rank_of(b, p + 1, q - 1, first, n, rank + 1, versions)
        if rank < 0:
            return LEFT
        j = versions.column[first + rank, BY_NAME]
        if versions.at[j, 0] >= 0:
            return LEFT
        p = after_name(b, q, end)
        if p < 0 or p >= end:
            return LEFT
        start, stop, escaped, q = _value(b, p, end)
        if q < 0 or (b[p] == 0x7B and versions.column[first + j, FORM] >= IN_PYTHON):
            return LEFT
        versions.at[j, 0], versions.at[j, 1], versions.at[j, 2] = start, stop, escaped
        found += 1
        p, more = next_member(b, q, end, 0x7D, False)
    return p if p >= 0 and found else LEFT


@part
def _value(b: np.ndarray, p: int, end: int) -> tuple[int, int, bool, int]:
    """Where a value's string or null lies, whether it has escapes, and the position after the value.

    A timestamp is in an object behind its location: the string in ``value``.
    """
    if b[p] == 0x6E:
        q = literal_end(b, p, end)
        return p, q, False, q
    if b[p] == 0x22:
        q, escaped = string_end(b, p, end)
        return p, q, escaped, q
    if b[p] != 0x7B:
        return 0, 0, False, LEFT
    p = _named(b, skip_space(b, p + 1, end), end, b'"location"')
    if p < 0:
        return 0, 0, False, LEFT
    p, _ = string_end(b, p, end)
    p, more = next_member(b, p, end, 0x7D, False) if p >= 0 else (LEFT, False)
    p = _named(b, p, end, b'"value"') if more else LEFT
    if p < 0:
        return 0, 0, False, LEFT
    q, escaped = string_end(b, p, end)
    after, more = next_member(b, q, end, 0x7D, False) if q >= 0 else (LEFT, False)
    return p, q, escaped, LEFT if more else after


@part
def _named(b: np.ndarray, p: int, end: int, name: bytes) -> int:
    """The position of the value of the member at ``p``, if that is its name; the quotes belong to it."""
    q = p + len(name)
    return after_name(b, q, end) if q <= end and same(b, p, q, name) else LEFT


@part
def _put_image(b: np.ndarray, p: int, image: int, table: int, versions: Versions, st: State) -> int:
    """Write the columns that were found, in the table's order; ``p``, or a status below zero."""
    first = versions.first[table]
    which = N_AFTER if image == AFTER else N_BEFORE
    for j in range(versions.first[table + 1] - first):
        start, stop = versions.at[j, 0], versions.at[j, 1]
        if start < 0:
            continue
        c, i = st.count[which], first + j
        if versions.column[i, FORM] == IN_PYTHON:  # also of a type that is none, whose null is a fault, too
            return LEFT
        if not column_fits(
            st,
            image,
            versions.column[i, NAME + 1] - versions.column[i, NAME],
            versions.column[i, TYPE_OF + 1] - versions.column[i, TYPE_OF],
            room_for(stop - start) + FLOAT_ROOM,
        ):
            return NEED_MORE
        _put_span(st, image + NAMES, c, versions, i, NAME)
        _put_span(st, image + TYPES, c, versions, i, TYPE_OF)
        if b[start] == 0x6E:
            put_null(st, image + VALUES, c)
        else:
            end = _put_value(b, start + 1, stop - 1, versions.at[j, 2] != 0, versions.column[i, FORM], image, st)
            if end < 0:
                return LEFT
            close(st, image + VALUES, c, end)
        end_column(st, image, versions.column[i, IS_KEY], -1)
    return p


@part
def _put_span(st: State, k: int, c: int, versions: Versions, i: int, which: int) -> None:
    start, stop = versions.column[i, which], versions.column[i, which + 1]
    close(st, k, c, put_bytes(versions.text, start, stop, st.data[k], st.size[k]))


@part
def _put_value(b: np.ndarray, p: int, q: int, escaped: bool, form: int, image: int, st: State) -> int:
    """Append the value that the string between the positions writes; the new end, or below zero where it is left."""
    out, o = st.data[image + VALUES], st.size[image + VALUES]
    if form == ANYTHING:
        return put_string(b, p, q, escaped, out, o)
    if escaped:
        return LEFT
    if form == AS_BYTES:
        return put_base64(b, p, q, True, out, o, False)
    if form in (AS_DOUBLE, AS_FLOAT):
        return put_shortest(b, p, q, form == AS_FLOAT, out, o)
    stop = put_bytes(b, p, q, out, o)
    return stop if holds(form, out, o, stop) else LEFT
