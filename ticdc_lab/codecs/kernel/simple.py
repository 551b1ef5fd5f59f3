"""Simple in JSON, as TiCDC writes it; what is written in another way is left to Python.

It leaves a value that its type cannot hold, a table version that is not known, JSON in another order, floats whose
digits may not be the fewest, and a DDL or bootstrap the first time that its definition of a table comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.event import INT64, Malformed
from ticdc_lab.codecs.fields import integer, members, object_of
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.avro import DECODE, SIMPLE, AvroPlans, plans_of
from ticdc_lab.codecs.kernel.faults import NEED_MORE, OK
from ticdc_lab.codecs.kernel.in_part import LEFT, decoded_in_part, over, put_named_row, put_watermark
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.members import (
    ENDS,
    NO_MORE,
    count_in,
    described,
    next_named,
    next_plain,
    nth_name,
    read_scalars,
)
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import (
    literal_end,
    skip_space,
    string_end,
)
from ticdc_lab.codecs.kernel.state import State, end_images, event_fits, new_event, put_plain, put_text, put_ts
from ticdc_lab.codecs.kernel.tables import BY_NAME, Versions, rank_of, table_called, versions_of
from ticdc_lab.codecs.kernel.text import held_scalar_end
from ticdc_lab.codecs.kernel.typed_values import INTEGER, IS_KEY, KIND, NAME, PLAIN, UNREAD, TextTable, put_column
from ticdc_lab.codecs.kernel.xxh64 import HASHED, nth_remembered
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.codecs.plain.hashes import hashes_of
from ticdc_lab.codecs.simple_avro import DDL_TYPES, FIRST, flats
from ticdc_lab.codecs.simple_versions import Tables, columns_of, tables_in, version_of

VERSION, DATABASE, TABLE, TABLE_NUMBER, TYPE, SQL, COMMIT_TS, BUILD_TS, SCHEMA_VERSION = range(9)
CHECKSUM, DATA, OLD, BROUGHT = range(9, 13)
CHECKSUM_VERSION, CORRUPTED, CURRENT, PREVIOUS, LOCATION, STAMPED = range(13, 19)
"""Fields of a message, of its checksum and of a timestamp."""

_MESSAGE = described(
    "version", "database", "table", "tableID", "type", "sql", "commitTs", "buildTs", "schemaVersion", "checksum",
    "data", "old", "tableSchema",
)  # fmt: skip
_CHECKSUM, _STAMP = described("version", "corrupted", "current", "previous"), described("location", "value")
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
        first = next((value for value in batch.column("value") if value.is_valid), None)
        if first is not None and first.as_buffer()[:1] == FIRST:
            self._plans = self._plans or plans_of(flats())
            given = SIMPLE, self._plans, self._versions
            return decoded_in_part(batch, "simple", DECODE, *given, images=images, bounds=bounds, nulls=True)
        asked = self._versions, self._definitions
        done = decoded_in_part(batch, "simple", _decode, *asked, images=images, bounds=bounds)
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


class BroughtTables(Arrays):
    """Definitions of tables by their bytes: ascending hashes of how they begin, and the table of each.

    ``of``: where in ``text`` the end of a message and the names of schema and table begin and end, and the table's id.
    """

    hash: np.ndarray
    of: np.ndarray
    text: np.ndarray


def definitions_of(brought: Mapping[bytes, tuple[str, str, int]]) -> BroughtTables:
    """The ends of messages with schema, table and table id, as the kernel reads them."""
    texts, rows = TextTable(), list[tuple[int, ...]]()
    for tail, (schema, table, number) in brought.items():
        rows.append((*texts.span(tail), texts.span(schema)[1], texts.span(table)[1], number))
    hashes = hashes_of([tail[:HASHED] for tail in brought])
    order = np.argsort(hashes, kind="stable")
    return BroughtTables(
        hash=hashes[order],
        of=np.array(rows, np.int64).reshape(-1, 5)[order],
        text=texts.array(),
    )


@part
def _message(
    m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, st: State, versions: Versions,
    definitions: BroughtTables,
) -> int:  # fmt: skip
    """Decode one message."""
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
            of, q = definitions, end - 1
            definition = nth_remembered(b, p - len(_BRINGS) + 2, end, of.hash, of.of, of.text)
            if definition < 0:
                return LEFT
        elif field == CHECKSUM:
            q = read_scalars(b, p, end, _CHECKSUM, at, CHECKSUM_VERSION, False)
        else:
            q = _rows_image(b, p, end, field, versions, st) if field >= DATA else held_scalar_end(b, p, end)
        if q < 0:
            return q
        at[field], at[ENDS + field] = p, q
        field, p = next_named(b, q, end, False, field, _MESSAGE)
    if field != NO_MORE or skip_space(b, p, end) != end or at[TYPE] < 0 or b[at[TYPE]] != 0x22:
        return LEFT
    ts, counted = count_in(b, at, COMMIT_TS)
    kind = nth_name(b, at[TYPE] + 1, at[ENDS + TYPE] - 1, S.INSERT, _TYPES)
    if not counted or (kind > S.DELETE and (at[DATA] >= 0 or at[OLD] >= 0)):
        return LEFT
    if kind > _WATERMARK:
        return _schema_change(m, b, kind, ts, definition, definitions, st)
    return put_watermark(m, ts, st) if kind == _WATERMARK else _row(m, b, ts, kind, st)


@part
def _schema_change(
    m: int, b: np.ndarray, kind: int, ts: int, definition: int, definitions: BroughtTables, st: State
) -> int:
    """Make a DDL or a bootstrap an event."""
    at, of = st.at, definitions.of
    need = ENDS if definition < 0 else of[definition, 3] - of[definition, 1]
    if kind > _BOOTSTRAP:
        if at[SQL] < 0 or b[at[SQL]] != 0x22:
            return LEFT
        need += at[ENDS + SQL] - at[SQL]
    if not event_fits(st, need):
        return NEED_MORE
    i = new_event(st, m, 0, S.BOOTSTRAP if kind == _BOOTSTRAP else S.DDL)
    end_images(st, i)
    if definition >= 0:
        for k, which in ((S.SCHEMA_NAME, 1), (S.TABLE_NAME, 2)):
            put_plain(st, k, i, definitions.text, of[definition, which], of[definition, which + 1])
        st.number[S.TABLE_ID, i], st.byte[S.HAS_TABLE_ID, i] = of[definition, 4], 1
    if kind > _BOOTSTRAP:
        put_text(st, S.QUERY, i, b, at[SQL], at[ENDS + SQL], True)
        put_text(st, S.DDL_TYPE, i, b, at[TYPE], at[ENDS + TYPE], False)
        put_ts(st, i, ts)
    return OK


@part
def _row(m: int, b: np.ndarray, ts: int, op: int, st: State) -> int:
    """Make the row whose images have been read an event."""
    at = st.at
    table_id, counted = count_in(b, at, TABLE_NUMBER)
    if op < 0 or not counted or (op == S.UPDATE and at[OLD] < 0):
        return LEFT
    status = put_named_row(m, 0, op, b, DATABASE, TABLE, st)
    if status != OK:
        return status
    i = st.count[S.N_EVENTS] - 1
    st.number[S.TABLE_ID, i], st.byte[S.HAS_TABLE_ID, i] = table_id, 1
    for field, image, number, there in (
        (CURRENT, DATA, S.CHECKSUM, S.HAS_CHECKSUM), (PREVIOUS, OLD, S.CHECKSUM_BEFORE, S.HAS_CHECKSUM_BEFORE),
    ):  # fmt: skip
        if at[field] >= 0 and at[image] >= 0 and b[at[field]] != 0x6E:
            value, counted = count_in(b, at, field)
            if not counted or value > _CHECKSUM_MAX:
                return LEFT
            st.number[number, i], st.byte[there, i] = value, 1
    if at[CORRUPTED] >= 0 and b[at[CORRUPTED]] == 0x74:
        st.byte[S.INCOMPLETE, i] = S.CORRUPTED
    put_ts(st, i, ts)
    return OK


@part
def _rows_image(b: np.ndarray, p: int, end: int, field: int, versions: Versions, st: State) -> int:
    """Read an image, if its table's definition came before; the position after it, or a status below zero."""
    at = st.at
    if at[DATABASE] < 0 or at[TABLE] < 0 or at[SCHEMA_VERSION] < 0:
        return LEFT
    version, counted = count_in(b, at, SCHEMA_VERSION)
    if not counted or b[at[DATABASE]] != 0x22 or b[at[TABLE]] != 0x22 or b[p] != 0x7B:
        return LEFT
    db, db_stop = at[DATABASE] + 1, at[ENDS + DATABASE] - 1
    table = table_called(b, db, db_stop, at[TABLE] + 1, at[ENDS + TABLE] - 1, version, versions)
    if table < 0:
        return LEFT
    p = _find_values(b, p, end, table, versions, at)
    return p if p < 0 else _put_image(b, p, S.AFTER if field == DATA else S.BEFORE, table, versions, st)


@part
def _find_values(b: np.ndarray, p: int, end: int, table: int, versions: Versions, at: np.ndarray) -> int:
    """Find where the value of each column lies in the object at ``p``; the position after it."""
    first = versions.first[table]
    n, rank, found = versions.first[table + 1] - first, -1, 0
    for j in range(n):
        versions.at[j, 0] = -1
    begin, stop, p = next_plain(b, p + 1, end, True)
    while begin >= 0:
        rank = rank_of(b, begin, stop, first, n, rank + 1, versions)
        if rank < 0:
            return LEFT
        j = versions.column[first + rank, BY_NAME]
        if versions.at[j, 0] >= 0:
            return LEFT
        versions.at[j, 0], versions.at[j, 1], versions.at[j, 2], q = _value(b, p, end, at)
        if q < 0 or (b[p] == 0x7B and versions.column[first + j, KIND] not in (PLAIN, INTEGER)):
            return LEFT
        found += 1
        begin, stop, p = next_plain(b, q, end, False)
    return p if begin == NO_MORE and found else LEFT


@part
def _value(b: np.ndarray, p: int, end: int, at: np.ndarray) -> tuple[int, int, bool, int]:
    """Where a value's string or null lies, whether it has escapes, and the position after the value.

    A timestamp is in an object beside its location: the string in ``value``.
    """
    if b[p] == 0x6E:
        q = literal_end(b, p, end)
        return p, q, False, q
    after = p
    if b[p] == 0x7B:
        after = read_scalars(b, p, end, _STAMP, at, LOCATION, False)
        p = at[STAMPED] if after >= 0 else -1
    if p < 0 or b[p] != 0x22:
        return 0, 0, False, LEFT
    q, escaped = string_end(b, p, end)
    return p, q, escaped, max(after, q) if q >= 0 else LEFT


@part
def _put_image(b: np.ndarray, p: int, image: int, table: int, versions: Versions, st: State) -> int:
    """Write the columns that were found, in the table's order; ``p``, or a status below zero."""
    column, text, at = versions.column, versions.text, versions.at
    for i in range(versions.first[table], versions.first[table + 1]):
        j = i - versions.first[table]
        if at[j, 0] < 0:
            continue
        if column[i, KIND] == UNREAD:  # also of a type that is none, whose null is a fault, too
            return LEFT
        status = put_column(
            text, column[i, NAME], column[i, NAME + 1], b, at[j, 0], at[j, 1], at[j, 2] != 0, column[i, IS_KEY], image,
            i, column, text, st,
        )  # fmt: skip
        if status != OK:
            return status
    return p


_decode = over(_message)
