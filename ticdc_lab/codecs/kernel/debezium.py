"""Rows, watermarks and DDL of debezium in JSON, as TiCDC writes them; what is written in another way is left to Python.

It leaves JSON with spaces or in another order, escaped names, nested values, and unknown schemas. Schemas are learned
from messages that were left, and the batch is decoded again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.debezium_types import SCHEMA, Forms, Types, require_json, types_of_schema
from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.fields import members, object_of, text
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.debezium_plans import (
    GUESSES,
    IN_PYTHON,
    KEYS_MAX,
    NO_SOURCE,
    UNTYPED_PLAN,
    Plans,
    plans_of,
)
from ticdc_lab.codecs.kernel.faults import NEED_MORE, OK
from ticdc_lab.codecs.kernel.in_part import LEFT, decoded_in_part, over, put_named_row, put_watermark
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.members import ENDS, NO_MORE, OTHER, described, next_named, next_plain, nth_name
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    first_of,
    next_member,
    same,
    same_bytes,
    scalar_end,
    string_end,
    value_end,
)
from ticdc_lab.codecs.kernel.state import (
    State,
    end_images,
    event_fits,
    index_names,
    new_event,
    put_text,
    put_ts,
    restore,
)
from ticdc_lab.codecs.kernel.text import held_scalar_end, int64_of
from ticdc_lab.codecs.kernel.typed_values import NAME, put_column
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes, nth_remembered
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.facts.definitions import TableName

_SCHEMAS_MAX, _SCHEMA_BYTES_MAX = 4_096, 32 << 20
"""So much is remembered; messages with other schemas are Python's."""


class DebeziumKernel:
    """The kernel over the schemas that it has seen (:class:`~.decoded.PartKernel`)."""

    def __init__(self, log_types: LogTypes, forms: Forms) -> None:
        self._log_types, self._forms = log_types, forms
        self._schemas: dict[bytes, Types | None] = {}
        self._tables: dict[bytes, TableName] = {}
        self._bytes = 0
        self._plans: Plans | None = None

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events that the kernel decodes; again where there was a schema to be learned."""
        done = self._decoded(batch, images, bounds)
        assert self._plans is not None
        if self._plans.at[_UNKNOWN] and self._learn(batch, done.message):
            self._plans = None
            return self._decoded(batch, images, bounds)
        return done

    def stands(self) -> bool:
        """A schema means the same wherever it is."""
        return True

    def _decoded(self, batch: pa.RecordBatch, images: bool, bounds: Bounds) -> Decoded:
        if self._plans is None:
            given = self._schemas, self._tables, self._log_types, self._forms
            self._plans = plans_of(*given, most_columns=bounds.columns)
        self._plans.at[_UNKNOWN] = 0
        self._plans.source[0] = NO_SOURCE  # it lay in the batch before
        asked = bool(self._log_types), self._plans
        return decoded_in_part(batch, "debezium", _decode, *asked, images=images, bounds=bounds)

    def _learn(self, batch: pa.RecordBatch, done: np.ndarray) -> bool:
        """Remember the schemas of the messages that were left; whether there was a new one."""
        left = np.ones(batch.num_rows, bool)
        left[done] = False
        rest, before = batch.filter(pa.array(left)), len(self._schemas)
        for raw in (*rest.column("value").to_pylist(), *rest.column("key").to_pylist()):
            at = -1 if raw is None else raw.find(SCHEMA)
            if at < 0 or len(self._schemas) == _SCHEMAS_MAX or self._bytes > _SCHEMA_BYTES_MAX:
                continue
            schema = raw[at + len(SCHEMA) - 1 : -1]
            if schema in self._schemas:
                continue
            if self._log_types and (table := _table_of(raw[: at + 1] + b"}")) is not None:
                self._tables[schema] = table
            self._bytes += len(schema)
            try:
                require_json(schema)
                self._schemas[schema] = types_of_schema(schema, self._forms)
            except Malformed:
                continue
            except Exception:  # Python names the fault
                self._schemas[schema] = None
        return len(self._schemas) > before


def _table_of(message: bytes) -> TableName | None:
    """Schema and table that a message without its schema names, if it does."""
    try:
        source = members(members(object_of(message, "value")["payload"], "payload")["source"], "source")
        return text(source, "db"), text(source, "table")
    except (KeyError, Malformed):
        return None


_AGAIN, _BY_GUESS = -3, -4
"""The columns were read by another schema than the message has, and the guess is right now; and an image that cannot be
read by the schema that was guessed."""

SOURCE, TS_MS, TRANSACTION, OP, OLD, NEW, SQL, DATABASE, NO_SCHEMA, CHANGES = range(10)
"""Fields of a payload."""
_DB, _TABLE, _COMMIT_TS, _START_TS, _CHANGE = range(10, 15)
"""Fields of the source, and the type of a DDL's first change."""
_N_KEYS, _SLOT, _PLAN = range(15, 18)
"""Names in the message key; where the guess is; the plan of the images, or IN_PYTHON."""
_STAMP, _UNKNOWN, _COLUMNS = 0, 1, 2
"""In ``plans.at``: the image that is read, how many unknown schemas came, and where each column's last image begins."""

_PAYLOAD = described(
    "source", "ts_ms", "transaction", "op", "before", "after", "ddl", "databaseName", "schemaName", "tableChanges"
)
_IN_SOURCE = described(
    "version", "connector", "name", "ts_ms", "snapshot", "db", "table", "server_id", "gtid", "file", "pos", "row",
    "thread", "query", "commit_ts", "start_ts", "cluster_id", "sequence",
)  # fmt: skip
_FIELD_OF = np.full(18, -1, np.int64)
"""What a name in a source means."""
for _nth, _field in ((3, TS_MS), (5, _DB), (6, _TABLE), (14, _COMMIT_TS), (15, _START_TS)):
    _FIELD_OF[_nth] = _field
_CHANGE_NAMES = described(
    "type", "id", "table", "defaultCharsetName", "primaryKeyColumnNames", "columns", "name", "jdbcType", "nativeType",
    "comment", "defaultValueExpression", "enumValues", "typeName", "typeExpression", "charsetName", "length", "scale",
    "position", "optional", "autoIncremented", "generated",
)  # fmt: skip
"""Names in what a DDL changes, in an order that each object of TiCDC keeps."""

_IN_LIST, _DEPTH_MAX = 255, 16


@part
def _message(
    m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, st: State, with_log: bool, plans: Plans
) -> int:
    """Decode one message, by another schema again where the one that was guessed was not its own."""
    status = _by_guess(m, kb, kp, kend, b, p, end, st, with_log, plans)
    if status == _BY_GUESS:
        status = _guessed_again(b, p, end, plans, st)
    if status == _AGAIN:
        restore(st)
        status = _by_guess(m, kb, kp, kend, b, p, end, st, with_log, plans)
    return status


@part
def _by_guess(
    m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, st: State, with_log: bool, plans: Plans
) -> int:
    """Decode one message, or _AGAIN, or _BY_GUESS."""
    at = st.at
    for k in range(_PLAN + 1):
        at[k] = -1
    if not same(b, p, min(p + 12, end), b'{"payload":{'):
        return LEFT
    field, p = next_named(b, p + 12, end, True, -1, _PAYLOAD)
    while field >= 0:
        if at[field] >= 0:
            return LEFT
        if field == SOURCE:
            q = _read_source(b, p, end, plans, at)
            if q >= 0:
                q = _begin(kb, kp, kend, b, q, with_log, plans, at)
        elif b[p] != 0x6E and field in (OLD, NEW):
            q = _read_image(kb, b, p, end, S.BEFORE if field == OLD else S.AFTER, plans, st)
        elif b[p] != 0x6E and field == CHANGES:
            q = _read_changes(b, p, end, st)
        else:
            q = held_scalar_end(b, p, end)
        if q < 0:
            return q
        at[field], at[ENDS + field] = p, q
        field, p = next_named(b, q, end, False, field, _PAYLOAD)
    if field != NO_MORE or p >= end or at[SOURCE] < 0:
        return LEFT
    if at[SQL] >= 0:  # its schema has no columns, and is guessed beside the table's rows' schemas
        status = _check_schema(b, p, end, plans, plans.guess, GUESSES)
        return status if status == LEFT else _ddl(m, b, end - at[SOURCE], st)
    if at[OP] < 0:
        return LEFT
    status = _check_schema(b, p, end, plans, plans.guess, at[_SLOT])
    return _event(m, b, plans, st) if status == OK else status


@part
def _guessed_again(b: np.ndarray, p: int, end: int, plans: Plans, st: State) -> int:
    """_AGAIN where the message has another schema than was guessed, else LEFT."""
    p = value_end(b, p + 11, end, st.stack)
    status = _check_schema(b, p, end, plans, plans.guess, st.at[_SLOT]) if 0 <= p < end else LEFT
    return status if status == _AGAIN else LEFT


@part
def _read_source(b: np.ndarray, p: int, end: int, plans: Plans, at: np.ndarray) -> int:
    """Find the event's content in the object at ``p``; the position after it, or LEFT."""
    q = _source_as_last(b, p, end, plans, at)
    if q >= 0 or b[p] != 0x7B:
        return q
    last, begin, seen, n = plans.source, p, 0, 0
    last[0] = NO_SOURCE
    for k in range(_DB, _START_TS + 1):
        at[k] = -1
    nth, p = next_named(b, p + 1, end, True, -1, _IN_SOURCE)
    while nth >= 0:
        if seen >> nth & 1:
            return LEFT
        seen |= 1 << nth
        q, escaped = string_end(b, p, end) if b[p] == 0x22 else (held_scalar_end(b, p, end), False)
        field = _FIELD_OF[nth]
        if q < 0 or (escaped and field in (_DB, _TABLE)):
            return LEFT
        if field >= 0 and b[p] != 0x6E:
            n += 1
            last[n, 0], last[n, 1], last[n, 2] = p, q, field
            if field != TS_MS:
                at[field], at[ENDS + field] = p, q
        nth, p = next_named(b, q, end, False, nth, _IN_SOURCE)
    if nth != NO_MORE:
        return LEFT
    last[n + 1, 0], last[0, 1], last[0, 0] = p, n, begin
    return p


@part
def _source_as_last(b: np.ndarray, p: int, end: int, plans: Plans, at: np.ndarray) -> int:
    """:func:`_read_source` where all but the values of ``plans.source`` is as it was in the last one, or LEFT."""
    last = plans.source
    done = last[0, 0]
    if done < 0:
        return LEFT
    for k in range(1, last[0, 1] + 2):
        n = last[k, 0] - done
        if p + n > end or not same_bytes(b, p, p + n, b, done, last[k, 0]):
            return LEFT
        p += n
        if k <= last[0, 1]:
            if p >= end or b[p] == 0x6E:
                return LEFT
            q, escaped = string_end(b, p, end) if b[p] == 0x22 else (held_scalar_end(b, p, end), False)
            if q < 0 or escaped:
                return LEFT
            if last[k, 2] != TS_MS:
                at[last[k, 2]], at[ENDS + last[k, 2]] = p, q
            p, done = q, last[k, 1]
    return p


@part
def _read_changes(b: np.ndarray, p: int, end: int, st: State) -> int:
    """Find the type of the first of the changes in the list at ``p``; the position after it, or LEFT.

    In each object the names are in TiCDC's order, so none is repeated.
    """
    at, stack, depth, seen = st.at, st.stack, 0, 0
    while True:
        if p < 0 or p >= end or depth == _DEPTH_MAX or (depth < 2 and b[p] != (0x5B if depth == 0 else 0x7B)):
            return LEFT
        is_type = depth == 2 and seen == 1 and stack[1] == 1  # behind the first name
        if (b[p] == 0x5B or b[p] == 0x7B) and not is_type:
            stack[depth] = _IN_LIST if b[p] == 0x5B else 0
            seen, depth = seen + (depth == 1), depth + 1
            p, more = next_member(b, p + 1, end, b[p] + 2, True)
        else:
            q = held_scalar_end(b, p, end)
            if q < 0:
                return LEFT
            if is_type and b[p] != 0x6E:
                if b[p] != 0x22:
                    return LEFT
                at[_CHANGE], at[ENDS + _CHANGE] = p, q
            p, more = next_member(b, q, end, 0x5D if stack[depth - 1] == _IN_LIST else 0x7D, False)
        while not more:
            depth -= 1
            if p < 0 or depth == 0:
                return max(p, LEFT)
            p, more = next_member(b, p, end, 0x5D if stack[depth - 1] == _IN_LIST else 0x7D, False)
        if stack[depth - 1] != _IN_LIST:
            q, escaped = string_end(b, p, end)
            nth = OTHER if q < 0 or escaped else nth_name(b, p + 1, q - 1, stack[depth - 1], _CHANGE_NAMES)
            if nth < stack[depth - 1]:
                return LEFT
            stack[depth - 1] = nth + 1
            p = after_name(b, q, end)


@part
def _ddl(m: int, b: np.ndarray, need: int, st: State) -> int:
    """Make a DDL that has been read an event, whose texts need that many bytes at most."""
    at = st.at
    if b[at[SQL]] != 0x22 or at[OP] >= 0 or at[OLD] >= 0 or at[NEW] >= 0:
        return LEFT
    schema = _DB
    if at[DATABASE] >= 0 and b[at[DATABASE]] != 0x6E:
        if b[at[DATABASE]] != 0x22:
            return LEFT
        schema = DATABASE if at[ENDS + DATABASE] - at[DATABASE] > 2 else _DB
    if not event_fits(st, need):
        return NEED_MORE
    i = new_event(st, m, 0, S.DDL)
    end_images(st, i)
    put_text(st, S.SCHEMA_NAME, i, b, at[schema], at[ENDS + schema], True)
    put_text(st, S.TABLE_NAME, i, b, at[_TABLE], at[ENDS + _TABLE], True)
    put_text(st, S.QUERY, i, b, at[SQL], at[ENDS + SQL], True)
    if at[_CHANGE] >= 0:
        put_text(st, S.DDL_TYPE, i, b, at[_CHANGE], at[ENDS + _CHANGE], True)
    put_ts(st, i, int64_of(b, at[_COMMIT_TS], at[ENDS + _COMMIT_TS])[0])
    return OK


@part
def _begin(
    kb: np.ndarray, kp: int, kend: int, b: np.ndarray, after: int, with_log: bool, plans: Plans, at: np.ndarray
) -> int:
    """Choose the plan of the images, and read the key; ``after``, or LEFT. The source has been read."""
    for field in (_DB, _TABLE):
        if at[field] < 0 or b[at[field]] != 0x22:
            return LEFT
    ts, fits = int64_of(b, at[_COMMIT_TS], at[ENDS + _COMMIT_TS]) if at[_COMMIT_TS] >= 0 else (0, False)
    if not fits:
        return LEFT
    h = hash_bytes(b, at[_DB] + 1, at[ENDS + _DB] - 1, SEED)
    h = hash_bytes(b, at[_TABLE] + 1, at[ENDS + _TABLE] - 1, h)
    at[_SLOT] = np.int64(h & np.uint64(GUESSES - 1))
    schema, version = plans.guess[at[_SLOT]], _version(b, at, h, ts, plans) if with_log else -1
    if schema >= 0:
        at[_PLAN] = plans.schema[schema, 2] if version < 0 else _with_digits(schema, version, plans)
    else:
        at[_PLAN] = UNTYPED_PLAN if version < 0 else plans.table[version, 5]
    at[_N_KEYS] = 0
    return after if kp < 0 or _read_key(kb, kp, kend, plans, at) else LEFT


@part
def _version(b: np.ndarray, at: np.ndarray, h: np.uint64, ts: int, plans: Plans) -> int:
    """Which definition of a table the log's DDL give at a commit_ts, or -1."""
    i, found = first_of(plans.table_hash, h), -1
    while i < len(plans.table_hash) and plans.table_hash[i] == h:
        if (
            same_bytes(b, at[_DB] + 1, at[ENDS + _DB] - 1, plans.text, plans.table[i, 1], plans.table[i, 2])
            and same_bytes(b, at[_TABLE] + 1, at[ENDS + _TABLE] - 1, plans.text, plans.table[i, 3], plans.table[i, 4])
            and plans.table[i, 0] <= ts
        ):
            found = i
        i += 1
    return found


@part
def _with_digits(schema: int, version: int, plans: Plans) -> int:
    """The plan of a schema with what a definition adds to it; Python's for a schema that several tables have."""
    for k in range(plans.pair_first[version], plans.pair_first[version + 1]):
        if plans.pair[k, 0] == schema:
            return plans.pair[k, 1]
    return IN_PYTHON


@part
def _read_key(b: np.ndarray, p: int, end: int, plans: Plans, at: np.ndarray) -> bool:
    """Find the names in a message key; whether it is one as TiCDC writes it."""
    if not same(b, p, min(p + 12, end), b'{"payload":{'):
        return False
    n = 0
    start, stop, p = next_plain(b, p + 12, end, True)
    while start >= 0:
        if n == KEYS_MAX or _is_key(b, b, start, stop, plans, n):
            return False
        plans.key[n, 0], plans.key[n, 1] = start, stop
        n += 1
        q = scalar_end(b, p, end)
        if q < 0 or (b[p] != 0x22 and b[p] <= 0x39 and not _is_held(b, p, q)):
            return False
        start, stop, p = next_plain(b, q, end, False)
    at[_N_KEYS] = n
    return start == NO_MORE and p < end and _check_schema(b, p, end, plans, plans.key_guess, at[_SLOT]) != LEFT


@part
def _is_held(b: np.ndarray, p: int, q: int) -> bool:
    """Whether a number is surely one that Python holds: few digits without an exponent."""
    for i in range(p, q):
        if b[i] | 0x20 == 0x65:
            return False
    return q - p <= _SHORT


_SHORT = 40


@part
def _check_schema(b: np.ndarray, p: int, end: int, plans: Plans, guesses: np.ndarray, slot: int) -> int:
    """Whether the guessed schema follows the payload: OK; _AGAIN if another one is, or LEFT."""
    guess, found = guesses[slot], -1
    if p + 1 == end and b[p] == 0x7D:
        found = -1
    elif not same(b, p, min(p + 11, end), b',"schema":{') or b[end - 1] != 0x7D:
        return LEFT
    else:
        p, stop = p + 10, end - 1
        if guess >= 0 and same_bytes(b, p, stop, plans.text, plans.schema[guess, 0], plans.schema[guess, 1]):
            return OK
        found = nth_remembered(b, p, stop, plans.hash, plans.schema, plans.text)
        if found < 0:
            plans.at[_UNKNOWN] += 1
            return LEFT
    guesses[slot] = found
    return OK if found == guess else _AGAIN


@part
def _read_image(kb: np.ndarray, b: np.ndarray, p: int, end: int, image: int, plans: Plans, st: State) -> int:
    """Read the image at ``p`` in the order in which it is; the position after it, or a status below zero."""
    plan = st.at[_PLAN]
    if b[p] != 0x7B or st.at[_SLOT] < 0:  # the source comes first
        return LEFT
    if plan == IN_PYTHON:
        return _BY_GUESS
    which = S.N_AFTER if image == S.AFTER else S.N_BEFORE
    low, first = st.count[which], plans.first[plan]
    n, j = plans.first[plan + 1] - first, -1
    plans.at[_STAMP] += 1
    start, stop, p = next_plain(b, p + 1, end, True)
    while start >= 0:
        q, escaped = string_end(b, p, end) if b[p] == 0x22 else (scalar_end(b, p, end), False)
        if q < 0:
            return LEFT
        if n > 0:
            j = _column(b, start, stop, first, n, j + 1, plans)
            if j < 0 or plans.at[_COLUMNS + j] == plans.at[_STAMP]:
                return _BY_GUESS
            plans.at[_COLUMNS + j] = plans.at[_STAMP]
        nth = first + j if n > 0 else -1
        is_key = _is_key(kb, b, start, stop, plans, st.at[_N_KEYS])
        status = put_column(b, start, stop, b, p, q, escaped, is_key, image, nth, plans.column, plans.text, st)
        if status < 0:
            return _BY_GUESS if status == LEFT else status
        start, stop, p = next_plain(b, q, end, False)
    high = st.count[which]
    if start != NO_MORE or high == low or (n == 0 and index_names(st, image + S.NAMES, low, high) < 0):
        return LEFT
    return p


@part
def _column(b: np.ndarray, p: int, q: int, first: int, n: int, guess: int, plans: Plans) -> int:
    """Which column of a plan is named so, or -1; ``guess`` goes first, then what comes after it."""
    for k in range(n):
        j = guess + k if guess + k < n else guess + k - n
        i = first + j
        if same_bytes(b, p, q, plans.text, plans.column[i, NAME], plans.column[i, NAME + 1]):
            return j
    return -1


@part
def _is_key(kb: np.ndarray, b: np.ndarray, p: int, q: int, plans: Plans, n: int) -> bool:
    for i in range(n):
        if same_bytes(b, p, q, kb, plans.key[i, 0], plans.key[i, 1]):
            return True
    return False


@part
def _event(m: int, b: np.ndarray, plans: Plans, st: State) -> int:
    """Make a row whose images have been read, or a watermark, an event."""
    at = st.at
    if at[ENDS + OP] - at[OP] != 3 or b[at[OP]] != 0x22:
        return LEFT
    letter = b[at[OP] + 1]
    op = (
        S.INSERT
        if letter == 0x63 or letter == 0x72
        else S.UPDATE
        if letter == 0x75
        else S.DELETE
        if letter == 0x64
        else -1
    )
    old, new = at[OLD] >= 0 and b[at[OLD]] != 0x6E, at[NEW] >= 0 and b[at[NEW]] != 0x6E
    ts, _ = int64_of(b, at[_COMMIT_TS], at[ENDS + _COMMIT_TS])
    if letter == 0x6D and not (old or new):
        return put_watermark(m, ts, st)
    status = put_named_row(m, 0, op, b, _DB, _TABLE, st) if op >= 0 else LEFT
    if status != OK:
        return status
    i = st.count[S.N_EVENTS] - 1
    put_ts(st, i, ts)
    if at[_START_TS] >= 0:
        start_ts, fits = int64_of(b, at[_START_TS], at[ENDS + _START_TS])
        st.number[S.START_TS, i], st.byte[S.HAS_START_TS, i] = start_ts, 1
        return OK if fits else LEFT
    return OK


_decode = over(_message)
