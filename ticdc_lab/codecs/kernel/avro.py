"""Rows and watermarks in Avro, as TiCDC writes them: avro, debezium-avro, and simple in Avro; the rest is Python's.

It follows the operations of a schema (:mod:`ticdc_lab.codecs.avro_fields`), in arrays, over the bytes. Glue's framing,
schemas that have no operations and values whose text is not sure are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs import avro_fields as F
from ticdc_lab.codecs.avro_fields import Flat, ImageColumn, UnplannedError
from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel import typed_values as T
from ticdc_lab.codecs.kernel.arrow import spans
from ticdc_lab.codecs.kernel.avro_values import put_value, read_value, varint
from ticdc_lab.codecs.kernel.faults import NEED_MORE, OK
from ticdc_lab.codecs.kernel.floats import FLOAT_ROOM
from ticdc_lab.codecs.kernel.in_part import LEFT, decoded_in_part, over, put_row, put_watermark
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.members import ENDS, count_in, described, read_scalars
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import first_of
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    end_column,
    end_images,
    event_fits,
    new_event,
    put_null,
    put_plain,
    put_text,
    put_ts,
    put_typed_name,
    restore,
)
from ticdc_lab.codecs.kernel.tables import BY_NAME, Versions, rank_of, table_called, versions_of
from ticdc_lab.codecs.kernel.text import int64_of, room_for
from ticdc_lab.codecs.known import Bounds

AVRO, DEBEZIUM, SIMPLE = 0, 1, 2
"""How messages are framed, and what their fields are."""

_FRAME, _INTERNAL = 5, 9
_STAMP = F.N_ROLES
"""In ``plans.at``: how many messages with a key there were."""

_SCHEMAS_MAX = 4_096
NO_TABLES = versions_of({}, most_columns=0)


WIRE, NULL_AT, ROLE, IS_OLD, NEXT, PRECISION, NAME_ID, IS_TOP = range(9, 17)
"""Columns of :attr:`AvroPlans.op`, behind what :func:`~.typed_values.column_of` gives of a column."""

FIRST, STOP, SCHEMA, NAMED, IS_ROW = 0, 1, 2, 4, 6
"""Columns of :attr:`AvroPlans.plan`; SCHEMA and NAMED, the names of schema and table, have two."""


class AvroPlans(Arrays):
    """Operations of schemas; texts are spans of ``text``.

    ``id`` has, ascending, the numbers of schemas, and ``plan`` where the operations ``op`` of each begin and end, the
    names of its schema and table, and whether it is one of rows. A record that is null is passed by going on at its
    NEXT. ``stamp`` has for each name of a column the last message in whose key it is; ``at`` is scratch.
    """

    id: np.ndarray
    plan: np.ndarray
    op: np.ndarray
    text: np.ndarray
    stamp: np.ndarray
    at: np.ndarray


BRANCHES = np.array([F.NOTHING, F.LONG, F.REAL4, F.REAL8, F.TEXT, F.BYTES, F.STAMP, F.LONG], np.int64)
"""How values of simple are written, by their place in its union; an unsigned number is a record of one."""


def plans_of(flats: Mapping[int, Flat]) -> AvroPlans:
    """Schemas by their number as the kernel reads them."""
    texts, op, plan, ids = T.TextTable(), list[tuple[int, ...]](), list[tuple[int, ...]](), dict[str, int]()
    order = sorted(flats)
    for number in order:
        flat, first = flats[number], len(op)
        for wire, null_at, field, name, is_top, after, digits, precision in flat.operations:
            column = field.column or ImageColumn(name, None, T.UNREAD)
            named = ids.setdefault(name if is_top else column.name, len(ids))
            known = T.column_of(texts, column.name, column.mysql_type, column.form, digits)
            op.append((*known, wire, null_at, field.role, column.is_old, first + after, precision, named, is_top))
        plan.append((first, len(op), *texts.span(flat.schema_name), *texts.span(flat.table_name), flat.is_row))
    return AvroPlans(
        id=np.array(order, np.int64),
        plan=np.array(plan, np.int64).reshape(-1, 7),
        op=np.array(op, np.int64).reshape(-1, 17),
        text=texts.array(),
        stamp=np.zeros(len(ids) + 1, np.int64),
        at=np.zeros((F.N_ROLES + 1, 2), np.int64),
    )


class AvroKernel:
    """The kernel over the schemas that messages name (:class:`~.decoded.PartKernel`).

    ``protocol``: avro or debezium-avro. ``flat_of``: the operations of the schema with an id.
    """

    def __init__(self, protocol: str, flat_of: Callable[[str], Flat]) -> None:
        self._protocol, self._flat_of = protocol, flat_of
        self._seen = set[int]()
        self._flats: dict[int, Flat] = {}
        self._plans = plans_of({})

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events of rows and watermarks that the kernel decodes."""
        known = len(self._flats)
        for number in sorted({*_ids(batch.column("key")), *_ids(batch.column("value"))} - self._seen):
            if len(self._seen) < _SCHEMAS_MAX:
                with suppress(Malformed, UnplannedError):  # such messages are left
                    self._flats[number] = self._flat_of(str(number))
                self._seen.add(number)
        if len(self._flats) > known:
            self._plans = plans_of(self._flats)
        given = AVRO if self._protocol == "avro" else DEBEZIUM, self._plans, NO_TABLES
        return decoded_in_part(batch, self._protocol, DECODE, *given, images=images, bounds=bounds, nulls=True)

    def stands(self) -> bool:
        """A schema means the same wherever it is."""
        return True


def _ids(column: pa.Array) -> list[int]:
    """Numbers of the schemas that the framing names."""
    data, starts, ends = spans(column)
    framed = starts[(starts >= 0) & (ends - starts >= _FRAME)]
    framed = framed[data[framed] == 0]
    number = np.zeros(len(framed), np.int64)
    for i in range(1, _FRAME):
        number = number << 8 | data[framed + i]
    return [i for i in np.unique(number).tolist() if i]


@part
def _message(
    m: int, kb: np.ndarray, kp: int, key_end: int, b: np.ndarray, p: int, end: int, st: State, mode: int,
    plans: AvroPlans, tables: Versions,
) -> int:  # fmt: skip
    """Decode one message."""
    for role in range(F.N_ROLES):
        plans.at[role, 1] = -1
    if mode == SIMPLE:
        return _simple(m, b, p, end, plans, tables, st)
    if mode == AVRO and p >= 0 and end - p > _INTERNAL and b[p] == 1:
        return _ddl(m, b, p + 1, end, st)
    key = _plan_of(kb, kp, key_end, plans) if kp >= 0 else -1
    return _framed(m, mode, key, kb, kp, key_end, b, p, end, plans, tables, st) if kp < 0 or key >= 0 else LEFT


@part
def _plan_of(b: np.ndarray, p: int, end: int, plans: AvroPlans) -> int:
    """The operations of a framed record, or -1."""
    if end - p < _FRAME or b[p] != 0:
        return -1
    number = 0
    for i in range(1, _FRAME):
        number = number << 8 | b[p + i]
    return _plan_called(number, plans)


@part
def _plan_called(number: int, plans: AvroPlans) -> int:
    low = first_of(plans.id, number)
    return low if low < len(plans.id) and plans.id[low] == number else -1


@part
def _framed(
    m: int, mode: int, key: int, kb: np.ndarray, kp: int, key_end: int, b: np.ndarray, p: int, end: int,
    plans: AvroPlans, tables: Versions, st: State,
) -> int:  # fmt: skip
    """Decode one message of avro or debezium-avro; OK, NEED_MORE, or LEFT."""
    plans.at[_STAMP, 0] += 1
    if key >= 0:
        for i in range(plans.plan[key, FIRST], plans.plan[key, STOP]):
            if plans.op[i, IS_TOP]:
                plans.stamp[plans.op[i, NAME_ID]] = plans.at[_STAMP, 0]
        q = _walk(kb, kp + _FRAME, key_end, key, S.BEFORE, plans, tables, st)
        if q != key_end:
            return NEED_MORE if q == NEED_MORE else LEFT
        for role in range(F.N_ROLES):
            plans.at[role, 1] = -1
    if mode == AVRO and (p < 0 or (end - p == _INTERNAL and (b[p] == 2 or b[p] == 3))):
        return _without_row(m, key, b, p, plans, st)
    restore(st)
    plan = _plan_of(b, p, end, plans) if p >= 0 else -1
    if plan < 0 or not plans.plan[plan, IS_ROW]:
        return LEFT
    q = _walk(b, p + _FRAME, end, plan, S.AFTER, plans, tables, st)
    if q != end:
        return NEED_MORE if q == NEED_MORE else LEFT
    at = plans.at
    letter, has_op = b[at[F.OP, 0]] if at[F.OP, 1] == at[F.OP, 0] + 1 else 0, at[F.OP, 1] >= 0
    op = S.INSERT if letter == 0x63 else S.UPDATE if letter == 0x75 else S.DELETE if letter == 0x64 else -1
    old = at[F.OLD, 1] >= 0
    if mode == DEBEZIUM:
        new = at[F.NEW, 1] >= 0
        if at[F.COMMIT_TS, 1] < 0:
            return LEFT
        if letter == 0x6D:
            return LEFT if old or new else put_watermark(m, at[F.COMMIT_TS, 0], st)
        if letter == 0x72:
            op = S.INSERT
        return _row(m, b, at[F.DB, 0], at[F.DB, 1], at[F.TABLE, 0], at[F.TABLE, 1], op, S.WHOLE, plans, st)
    if not has_op:
        op = S.INSERT
    if op == S.DELETE and old:  # the image after repeats that before
        for k in range(3):
            st.size[S.AFTER + k] = st.marks[S.AFTER + k]
        st.count[S.N_AFTER] = st.marks[S.N_TEXTS + S.N_AFTER]
    elif op == S.DELETE:
        restore(st)
        q = _walk(b, p + _FRAME, end, plan, S.BEFORE, plans, tables, st)
        if q < 0:
            return q
    if not _read_checksum(b, at):
        return LEFT
    corrupted = at[F.CORRUPTED, 1] >= 0 and at[F.CORRUPTED, 0]
    incomplete = S.CORRUPTED if corrupted else S.WHOLE if has_op else S.OP_UNKNOWN
    of = plans.plan
    return _row(
        m, plans.text, of[plan, SCHEMA], of[plan, SCHEMA + 1], of[plan, NAMED], of[plan, NAMED + 1], op,
        incomplete, plans, st,
    )  # fmt: skip


@part
def _read_checksum(b: np.ndarray, at: np.ndarray) -> bool:
    """Read the digits of a checksum, if it has some; whether they are a number of 32 bits."""
    p, q = at[F.CHECKSUM, 0], at[F.CHECKSUM, 1]
    if q < 0 or p == q:
        at[F.CHECKSUM, 1] = -1
        return True
    at[F.CHECKSUM, 0], fits = int64_of(b, p, q)
    return fits and b[p] != 0x2D and at[F.CHECKSUM, 0] <= _CHECKSUM_MAX


_CHECKSUM_MAX = (1 << 32) - 1


@part
def _without_row(m: int, key: int, b: np.ndarray, p: int, plans: AvroPlans, st: State) -> int:
    """A watermark, or a delete with its key alone; without its commit_ts where there is no value."""
    ts = 0
    if p >= 0:
        if b[p + 1] >= 0x80:
            return LEFT
        for i in range(1, _INTERNAL):
            ts = ts << 8 | b[p + i]
    if p >= 0 and b[p] == 2:
        restore(st)
        return put_watermark(m, ts, st)
    if key < 0:
        return LEFT
    if p >= 0:
        plans.at[F.COMMIT_TS, 0], plans.at[F.COMMIT_TS, 1] = ts, 0
    of = plans.plan
    return _row(
        m, plans.text, of[key, SCHEMA], of[key, SCHEMA + 1], of[key, NAMED], of[key, NAMED + 1], S.DELETE,
        S.HANDLE_KEY_ONLY if p >= 0 else S.TOMBSTONE, plans, st,
    )  # fmt: skip


@part
def _simple(m: int, b: np.ndarray, p: int, end: int, plans: AvroPlans, tables: Versions, st: State) -> int:
    """Decode one message of simple: its number in the union, its kind, which payload, and that; as in Python."""
    if p < 0 or end - p < 3 or b[p] != 0x16 or b[p + 1] != b[p + 2]:
        return LEFT
    at, plan = plans.at, _plan_called(b[p + 1], plans)
    if plan < 0:
        return LEFT
    q = _walk(b, p + 3, end, plan, S.AFTER, plans, tables, st)
    if q != end:
        return NEED_MORE if q == NEED_MORE else LEFT
    if b[p + 1] == 0:
        return put_watermark(m, at[F.COMMIT_TS, 0], st)
    op, new, old = at[F.OP, 0], at[F.NEW, 1] >= 0, at[F.OLD, 1] >= 0
    if op > S.DELETE or (op == S.UPDATE and not old):
        return LEFT
    for role, there in ((F.CHECKSUM, new), (F.CHECKSUM_BEFORE, old)):
        if at[role, 1] >= 0 and there and (at[role, 0] < 0 or at[role, 0] > _CHECKSUM_MAX):
            return LEFT
        if not there:
            at[role, 1] = -1
    incomplete = S.WHOLE
    if at[F.CLAIM_CHECK, 1] > at[F.CLAIM_CHECK, 0]:
        incomplete = S.CLAIM_CHECK_MISSING
    elif at[F.HANDLE_KEY, 1] >= 0 and at[F.HANDLE_KEY, 0]:
        incomplete = S.HANDLE_KEY_ONLY
    elif at[F.CORRUPTED, 1] >= 0 and at[F.CORRUPTED, 0]:
        incomplete = S.CORRUPTED
    return _row(m, b, at[F.DB, 0], at[F.DB, 1], at[F.TABLE, 0], at[F.TABLE, 1], op, incomplete, plans, st)


_DDL = described("query", "type", "schema", "table", "commitTs", "buildTs")
_QUERY, _TYPE, _SCHEMA, _TABLE, _COMMIT_TS = range(5)


@part
def _ddl(m: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    """Decode a DDL of avro, which is JSON behind a byte."""
    at = st.at
    q = read_scalars(b, p, end, _DDL, at, _QUERY, False)
    ts, counted = count_in(b, at, _COMMIT_TS)
    if q != end or at[_QUERY] < 0 or b[at[_QUERY]] != 0x22 or not counted:
        return LEFT
    if not event_fits(st, end - p):
        return NEED_MORE
    i = new_event(st, m, 0, S.DDL)
    end_images(st, i)
    for field, k in ((_QUERY, S.QUERY), (_TYPE, S.DDL_TYPE), (_SCHEMA, S.SCHEMA_NAME), (_TABLE, S.TABLE_NAME)):
        start = at[field]
        if start < 0 or b[start] == 0x6E:
            continue
        if b[start] == 0x22:
            put_text(st, k, i, b, start, at[ENDS + field], True)
        elif field == _TYPE and (b[start] != 0x2D and b[start] < 0x3A):
            put_plain(st, k, i, b, start, at[ENDS + field])
        else:
            return LEFT
    put_ts(st, i, ts)
    return OK


@part
def _row(
    m: int, text: np.ndarray, db: int, db_stop: int, table: int, table_stop: int, op: int, incomplete: int,
    plans: AvroPlans, st: State,
) -> int:  # fmt: skip
    """Make the row whose images have been read an event."""
    at = plans.at
    if min(op, db_stop, table_stop) < 0:
        return LEFT
    status = put_row(m, 0, op, text, db, db_stop, table, table_stop, False, st)
    if status != OK:
        return status
    i = st.count[S.N_EVENTS] - 1
    for role, number, there in (
        (F.COMMIT_TS, S.COMMIT_TS, S.HAS_COMMIT_TS), (F.START_TS, S.START_TS, S.HAS_START_TS),
        (F.TABLE_ID, S.TABLE_ID, S.HAS_TABLE_ID), (F.CHECKSUM, S.CHECKSUM, S.HAS_CHECKSUM),
        (F.CHECKSUM_BEFORE, S.CHECKSUM_BEFORE, S.HAS_CHECKSUM_BEFORE),
    ):  # fmt: skip
        st.number[number, i], st.byte[there, i] = at[role, 0], at[role, 1] >= 0
    st.byte[S.INCOMPLETE, i] = incomplete
    return LEFT if at[F.OLD, 1] >= 0 and not st.byte[S.HAS_BEFORE, i] else OK


@part
def _walk(b: np.ndarray, p: int, end: int, plan: int, after: int, plans: AvroPlans, tables: Versions, st: State) -> int:
    """Read a record by its operations, columns of the image after into ``after``; the position after it, or a status.

    ``plans.at`` has the number that a field is or where its text begins, and where it ends; -1 if it is not there.
    """
    op, i = plans.op, plans.plan[plan, FIRST]
    while i < plans.plan[plan, STOP]:
        wire, role, null_at, is_null = op[i, WIRE], op[i, ROLE], op[i, NULL_AT], False
        if null_at >= 0:
            branch, p = varint(b, p, end)
            if p < 0 or branch < 0 or branch > 1:
                return LEFT
            is_null = branch == null_at
        v, stop = 0, 0
        if wire >= F.RECORD or is_null:
            if not is_null and wire == F.MAP:
                p = _read_map(b, p, end, after if role == F.NEW else S.BEFORE, plans, tables, st)
                if p < 0:
                    return p
        else:
            v, stop, p = read_value(b, p, end, wire)
            if p < 0:
                return LEFT
        if role == F.COLUMN:
            is_key = plans.stamp[op[i, NAME_ID]] == plans.at[_STAMP, 0]
            image, precision = S.BEFORE if op[i, IS_OLD] else after, op[i, PRECISION]
            status = _put_column(
                plans.text, op, i, op[i, T.KIND], precision, is_null, b, v, stop, wire, is_key, image, st
            )
            if status != OK:
                return status
        elif role != F.SKIPPED and not is_null:
            plans.at[role, 0], plans.at[role, 1] = v, stop
        i = op[i, NEXT] if is_null and wire == F.RECORD else i + 1
    return p


@small_kernel
def _put_column(
    text: np.ndarray, column: np.ndarray, i: int, kind: int, precision: int, is_null: bool, b: np.ndarray, v: int,
    stop: int, wire: int, is_key: int, image: int, st: State,
) -> int:  # fmt: skip
    """Write the column that ``column[i]`` describes, with a value of that kind."""
    c = st.count[S.N_AFTER if image == S.AFTER else S.N_BEFORE]
    room, k = room_for(max(stop - v, 0) if stop else 0) + 2 * FLOAT_ROOM, image + S.VALUES
    name, name_stop, of, of_stop = column[i, T.NAME], column[i, T.NAME + 1], column[i, T.TYPE], column[i, T.TYPE + 1]
    if not put_typed_name(text, name, name_stop, text, of, of_stop, room, image, st):
        return NEED_MORE
    if is_null:
        put_null(st, k, c)
    else:
        digits, held, sign, out = column[i, T.DIGITS], column[i, T.HELD], column[i, T.SIGN], st.data[k]
        q = put_value(b, v, stop, wire, kind, digits, precision, held, sign, st.text, out, st.size[k])
        if q < 0:
            return LEFT
        close(st, k, c, q)
    end_column(st, image, is_key, -1)
    return OK


@part
def _read_map(b: np.ndarray, p: int, end: int, image: int, plans: AvroPlans, tables: Versions, st: State) -> int:
    """Read an image of simple, whose columns are written in any order, in the order of its table version."""
    at = plans.at
    table = table_called(b, at[F.DB, 0], at[F.DB, 1], at[F.TABLE, 0], at[F.TABLE, 1], at[F.VERSION, 0], tables)
    if table < 0:
        return LEFT
    first = tables.first[table]
    n, rank, found = tables.first[table + 1] - first, -1, 0
    for j in range(n):
        tables.at[j, 2] = -1
    count, p = varint(b, p, end)
    while p >= 0 and count != 0:
        if count < 0:
            count = -count
            _, p = varint(b, p, end)
        if count < 0 or count > n - found:
            return LEFT
        for _ in range(count):
            start, stop, p = read_value(b, p, end, F.TEXT)
            rank = rank_of(b, start, stop, first, n, rank + 1, tables) if p >= 0 else -1
            if rank < 0:
                return LEFT
            j = tables.column[first + rank, BY_NAME]
            branch, p = varint(b, p, end)
            if p < 0 or branch < 0 or branch >= len(BRANCHES) or tables.at[j, 2] >= 0:
                return LEFT
            wire = BRANCHES[branch]
            if wire == F.STAMP:
                _, _, p = read_value(b, p, end, F.TEXT)
                wire = F.TEXT
            v, stop = 0, 0
            if wire != F.NOTHING and p >= 0:
                v, stop, p = read_value(b, p, end, wire)
            if p < 0:
                return LEFT
            tables.at[j, 0], tables.at[j, 1], tables.at[j, 2] = v, stop, wire
            found += 1
        count, p = varint(b, p, end)
    if p < 0 or found == 0:
        return LEFT
    for j in range(n):
        wire, i = tables.at[j, 2], first + j
        if wire < 0:
            continue
        kind = tables.column[i, T.KIND]
        if kind == T.UNREAD:
            return LEFT
        if kind in (T.TEXT_FLOAT, T.TEXT_DOUBLE):
            kind = T.FLOAT if kind == T.TEXT_FLOAT else T.DOUBLE
        elif kind == T.PLAIN:  # of a text, which no float is
            kind = T.INTEGER
        null, is_key = wire == F.NOTHING, tables.column[i, T.IS_KEY]
        v, stop = tables.at[j, 0], tables.at[j, 1]
        status = _put_column(tables.text, tables.column, i, kind, 0, null, b, v, stop, wire, is_key, image, st)
        if status != OK:
            return status
    return p


DECODE = over(_message)
"""The kernel, which is given how messages are framed, what is known of schemas, and simple's tables."""
