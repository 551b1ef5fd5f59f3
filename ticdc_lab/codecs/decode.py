"""Messages to events: a protocol's kernel or its codec in Python gives the events of each, and this module the rest.

It lays out the events of a codec as the compiled kernels do and hashes them (:mod:`ticdc_lab.codecs.keys`), in plain
Python or with the kernels, as :mod:`ticdc_lab.codecs.choice` decides. What cannot be decoded becomes a row of the
quarantine.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.decoded import NOTED, Decoded, PartKernel
from ticdc_lab.codecs.event import INT64, Cell, Codec, Event, Malformed, Outgrown
from ticdc_lab.codecs.fields import require_few_values
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import arrow_schema, bits, in_form
from ticdc_lab.codecs.known import AT_ONCE, BOUNDS, NOTHING, Bounds, Known, too_large
from ticdc_lab.codecs.laid_out import Image, LaidOut, lay_out, shares
from ticdc_lab.codecs.plain.hashes import SEED, Texts, hashed
from ticdc_lab.codecs.plain.json_text import PLAINLY_HELD, holds, is_count
from ticdc_lab.codecs.quarantine import TooMuchError, one_by_one, refused, refused_at, unforeseen
from ticdc_lab.codecs.registry import KERNELS, PART_KERNELS, codec_of, part_kernel, require_protocol
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.mysql_types import NO_MYSQL_TYPE, held_by
from ticdc_lab.events.schema import DECODED, require_columns
from ticdc_lab.settings.file import is_zone
from ticdc_lab.settings.keys import protocol_named

ROWS_A_PASS = 2_500
"""Messages decoded at once: what they fill stays in a core's cache (measured: a fifth faster than 10,000)."""

NOTED_A_PASS = 10_000
"""The same where images are noted, which are forgotten after each message."""


def decode(messages: DataFrame, *, protocol: str, images: bool = True, known: Known = NOTHING) -> DataFrame:
    """Decode messages to events; what cannot be decoded stays in the frame with its reason.

    Works on a stream as on a table: each message is decoded by itself, from what is in it and what is ``known``.

    Parameters
    ----------
    messages
        Columns of :data:`ticdc_lab.events.schema.MESSAGES`; timestamp and headers are not read.
    protocol
        One of :data:`PROTOCOLS`.
    images
        False leaves ``columns`` and ``before`` null; everything else, the hashes too, is the same.
    known
        Schemas and places that some protocols need; :func:`ticdc_lab.sources.load.load` finds them.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.DECODED`: events with ``error_class`` null, and one row for each message that
        could not be decoded. A message is decoded whole or not at all, except a row change ``{}`` in a batch of
        open-protocol, which is a row of its own with an error and a ``seq`` behind the events'. So messages in
        = rows with ``seq`` 0 and no error + rows with ``seq`` 0 and an error.

    Raises
    ------
    ProtocolError
        The protocol is unknown.

    References
    ----------
    docs/reading.md; TiCDC's source.
    """
    require_protocol(protocol)
    protocol = protocol_named(protocol)
    require_columns(messages, "topic", "partition", "offset", "key", "value", frame="messages")
    return messages.select("topic", "partition", "offset", "key", "value").mapInArrow(
        decoder(protocol, images=images, known=known), DECODED
    )


def decoder(protocol: str, *, images: bool = True, known: Known = NOTHING) -> Callable[[Batches], Batches]:
    """The function over Arrow batches behind :func:`decode`."""
    if known.handles:
        from ticdc_lab.codecs.handles import keyed

        whole = decoder(protocol, known=replace(known, handles={}))  # keys are hashed by the values of rows
        return lambda batches: keyed(whole(batches), known.handles, images=images)
    zone = known.settings.value("time-zone")
    if is_zone(str(zone)) and protocol in ("debezium", "debezium-avro"):
        from ticdc_lab.codecs.keys import in_zone

        others = tuple(s for s in known.settings.known if s.name != "time-zone")
        in_utc = decoder(
            protocol, known=replace(known, settings=replace(known.settings, known=others))
        )  # values in UTC make the texts in the zone
        return lambda batches: in_zone(in_utc(batches), str(zone), images=images)

    def run(batches: Batches) -> Batches:
        step = _step(protocol, images, known)
        for batch in batches:
            lengths = _lengths(batch)
            empty = pc.equal(lengths, 0)
            if protocol == "avro":  # where neither is there at all, a row without a primary key was deleted
                empty = pc.and_(empty, pc.is_valid(batch["value"]))
            start, has_empty = 0, pc.any(empty).as_py()
            for some in at_once(batch, lengths):
                nothing, start = empty.slice(start, some.num_rows), start + some.num_rows
                n = pc.sum(nothing).as_py() if has_empty else 0
                if n:
                    yield refused(some.filter(nothing), [EMPTY_MESSAGE] * n, [_EMPTY] * n, protocol=protocol)
                    some = some.filter(pc.invert(nothing))
                if some.num_rows:
                    yield from step(some)

    return run


EMPTY_MESSAGE = "empty-message"
"""The class of messages that hold nothing, so that nothing is lost with them."""
_EMPTY = "the message has neither a key nor a value: TiCDC writes none, and it contains nothing"


def is_empty(messages: pa.RecordBatch | pa.Table) -> pa.Array:
    """Which messages have neither a byte of a key nor one of a value."""
    return pc.equal(_lengths(messages), 0)


def _lengths(messages: pa.RecordBatch | pa.Table) -> pa.Array:
    """Bytes of key and value of each message."""
    key, value = (pc.fill_null(pc.binary_length(messages[c].cast(pa.binary())), 0) for c in ("key", "value"))
    return pc.add(key.cast(pa.int64()), value.cast(pa.int64()))


def at_once(batch: pa.RecordBatch, lengths: pa.Array | None = None) -> Batches:
    """A batch in pieces of at most ROWS_A_PASS messages and AT_ONCE bytes, which a single message may exceed.

    ``lengths`` are its messages', if they are known.
    """
    most = ROWS_A_PASS if NOTED.get() is None else NOTED_A_PASS
    ends = np.cumsum((_lengths(batch) if lengths is None else lengths).to_numpy())
    start, done = 0, 0
    while start < batch.num_rows:
        fits = int(np.searchsorted(ends, done + AT_ONCE, side="right")) - start
        n = min(max(fits, 1), most)
        yield batch.slice(start, n)
        start, done = start + n, int(ends[min(start + n, batch.num_rows) - 1])


def _step(protocol: str, images: bool, known: Known) -> Callable[[pa.RecordBatch], Batches]:
    from ticdc_lab.codecs.unpack import parts, unpacker

    unpacked, codec = unpacker(protocol, known), codec_of(protocol, known)

    def step(batch: pa.RecordBatch) -> Batches:
        for part, original in parts(unpacked, batch):
            if isinstance(part, Malformed):
                yield refused(original, [part.error_class], [part.reason], protocol=protocol)
            else:
                yield from decode_unpacked(protocol, codec, part, original, images=images, bounds=known.bounds)

    return step


def decode_unpacked(
    protocol: str,
    codec: Codec,
    part: pa.RecordBatch,
    original: pa.RecordBatch,
    *,
    images: bool,
    bounds: Bounds = BOUNDS,
) -> Batches:
    """Decode messages with nothing packed in them, ``original`` as they were, as :mod:`.choice` decides."""
    kernel = part_kernel(protocol, codec) if protocol in PART_KERNELS and choice.compiled(protocol, part) else None

    def plain(part: pa.RecordBatch, original: pa.RecordBatch) -> Batches:
        if kernel is not None:
            yield decode_mostly(kernel, codec, part, protocol, images=images, original=original, bounds=bounds)
            return
        compiled = None if protocol not in KERNELS else False
        yield decode_with(codec, part, protocol, images=images, original=original, compiled=compiled, bounds=bounds)

    if protocol not in KERNELS or not choice.compiled(protocol, part):
        try:
            yield from one_by_one(plain, part, original, protocol)
            return
        except Outgrown:
            pass

    yield from decode_batches(part, protocol, images=images, original=original, bounds=bounds)


def decode_batches(
    batch: pa.RecordBatch,
    protocol: str,
    *,
    images: bool = True,
    original: pa.RecordBatch | None = None,
    bounds: Bounds = BOUNDS,
) -> Batches:
    """What :func:`decode_batch` gives, in halves where that is too large or fails; a message alone is refused."""

    def by_kernel(part: pa.RecordBatch, raw: pa.RecordBatch) -> Batches:
        yield decode_batch(part, protocol, images=images, original=raw, bounds=bounds)

    return one_by_one(by_kernel, batch, batch if original is None else original, protocol)


def decode_batch(
    batch: pa.RecordBatch,
    protocol: str,
    *,
    images: bool = True,
    original: pa.RecordBatch | None = None,
    bounds: Bounds = BOUNDS,
) -> pa.RecordBatch:
    """What :func:`decode_with` gives, by the kernel of one of :data:`KERNELS`; the arguments are as there."""
    from ticdc_lab.codecs.kernel import batch as kernels  # here: small logs need none

    found = kernels.decoded(batch, protocol, images=images, bounds=bounds)
    if found is None:
        codec = codec_of(protocol, Known(bounds=bounds))
        return decode_with(codec, batch, protocol, images=images, original=original, bounds=bounds)
    return _with_quarantine(found, batch, original, protocol)


COUNTED = ("debezium", "debezium-avro")
"""Protocols whose dates are numbers of days or microseconds."""


def require_values(image: Sequence[Cell], *, counted: bool = False) -> None:
    """Raise :class:`Malformed` where a value of an image is none that its type can hold.

    ``counted`` dates may be numbers of days or microseconds.
    """
    for name, mysql_type, text, *_ in image:
        if mysql_type is not None and held_by(mysql_type) == NO_MYSQL_TYPE:
            raise Malformed(
                "unknown-column-type",
                f"column {name!r}: MySQL has no type {mysql_type[:60]!r}, so no value of it is known",
            )
        if mysql_type is not None and text is not None and not _fits(held_by(mysql_type), text, counted):
            raise Malformed("bad-value", f"column {name!r} ({mysql_type}): no such value: {text[:60]!r}")


def _fits(kind: int, text: str, counted: bool) -> bool:
    return not kind or holds(kind, text) or (counted and is_count(kind, text))


def all_fit(image: Image, *, counted: bool = False) -> bool:
    """Whether :func:`require_values` would let all images pass; a fifth of its time, as values are looked at together.

    One search finds what plainly fits a kind; the rest is checked once each, as a single value is.
    """
    types = image.types.dictionary_encode()
    kinds = np.array([0 if t is None else held_by(t) for t in types.dictionary.to_pylist()] + [0])
    if NO_MYSQL_TYPE in kinds:
        return False
    kind = kinds[types.indices.fill_null(len(kinds) - 1).to_numpy()]
    for each in np.unique(kind[kind > 0]).tolist():
        values = image.values.filter(pa.array(kind == each)).drop_null()
        if plain := PLAINLY_HELD.get(each):
            values = values.filter(pc.invert(pc.match_substring_regex(values, f"^(?:{plain})$")))
        if not all(_fits(each, text, counted) for text in values.unique().to_pylist()):
            return False
    return True


def decode_with(
    codec: Codec,
    batch: pa.RecordBatch,
    protocol: str,
    *,
    images: bool = True,
    original: pa.RecordBatch | None = None,
    compiled: bool | None = None,
    bounds: Bounds = BOUNDS,
) -> pa.RecordBatch:
    """Decode messages with a codec; what lies beyond one message's own faults is raised.

    :func:`ticdc_lab.codecs.quarantine.one_by_one` finds the message that such a failure comes from.

    ``codec``: what turns one message into events. ``batch``: columns topic, partition, offset, key (binary), value
    (binary). ``protocol``: the value of that column. ``images``: False leaves ``columns`` and ``before`` null.
    ``original``: the messages as they were, for the quarantine, if ``batch`` was unpacked from them. ``compiled``:
    whether the kernels hash the events, which changes no hash; None: as :mod:`ticdc_lab.codecs.choice` decides.
    ``bounds``: how many events a message may have, and how many columns a row. Returns:
    :data:`ticdc_lab.events.schema.DECODED`: the events in message order, then a row for each message that failed.
    """
    with _no_search_for_cycles():
        found = _decoded(codec, batch, protocol, images, compiled, bounds)
    return _with_quarantine(found, batch, original, protocol)


def decode_mostly(
    kernel: PartKernel,
    codec: Codec,
    batch: pa.RecordBatch,
    protocol: str,
    *,
    images: bool,
    original: pa.RecordBatch,
    bounds: Bounds,
) -> pa.RecordBatch:
    """What :func:`decode_with` gives, most of it by a kernel; the arguments are as there."""
    try:
        done = kernel(batch, images=images, bounds=bounds)
    except TooMuchError:
        if batch.num_rows > 1:
            raise
        done = None
    if done is None or not len(done.message):
        return decode_with(codec, batch, protocol, images=images, original=original, bounds=bounds)
    mine = np.ones(batch.num_rows, bool)
    mine[done.message] = False
    left = np.flatnonzero(mine)
    if not len(left):
        return done.events
    compiled = choice.compiled(choice.HASHES, batch)  # by the whole batch: beside a kernel few messages are left
    with _no_search_for_cycles():
        rest = _decoded(codec, batch.take(pa.array(left)), protocol, images, compiled, bounds)
    if not kernel.stands():
        return decode_with(codec, batch, protocol, images=images, original=original, bounds=bounds)
    message = np.concatenate([done.message, left[rest.message]])
    order = np.argsort(message, kind="stable")
    rows = [_woven(a, b, order) for a, b in zip(done.events.columns, rest.events.columns, strict=True)]
    events = pa.RecordBatch.from_arrays(rows, schema=done.events.schema)
    found = Decoded(events, message[order], [(int(left[m]), fault) for m, fault in rest.failed])
    return _with_quarantine(found, batch, original, protocol)


def _woven(some: pa.Array, rest: pa.Array, order: np.ndarray) -> pa.Array:
    """The values of both in an order that keeps ``some``'s; nothing is copied that no place needs.

    DDL, watermarks and bootstraps have no images: then the lists of the rows stay as they are, except their ends.
    """
    n = len(some) + len(rest)
    if some.null_count + rest.null_count == n:
        return pa.nulls(n, some.type)
    if not pa.types.is_list(some.type) or len(rest.flatten()):
        return pa.concat_arrays([some, rest]).take(pa.array(order))
    mine = order < len(some)
    there = np.zeros(n, bool)
    there[mine] = some.is_valid().to_numpy(zero_copy_only=False)
    there[~mine] = rest.is_valid().to_numpy(zero_copy_only=False)[order[~mine] - len(some)]
    ends = some.offsets.to_numpy()[np.concatenate([[0], np.cumsum(mine)])]
    return pa.Array.from_buffers(some.type, n, [bits(there), pa.py_buffer(ends)], children=[some.values])


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """A batch makes a hundred thousand tuples and no cycle; looking for some among them takes half of all the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _decoded(
    codec: Codec, batch: pa.RecordBatch, protocol: str, images: bool, compiled: bool | None, bounds: Bounds
) -> Decoded:
    if compiled is None:
        compiled = choice.compiled(choice.HASHES, batch)
    read = _events_of(codec, batch, protocol, bounds)
    laid = _laid_out(read, protocol)
    if laid is None:  # some value is none: which message has it
        read = _events_of(codec, batch, protocol, bounds, before=read)
        laid = lay_out(read.events)
    return Decoded(
        _batch_of(batch, protocol, read, laid, images, compiled), np.array(read.message, np.int64), read.failed
    )


def _with_quarantine(
    found: Decoded, batch: pa.RecordBatch, original: pa.RecordBatch | None, protocol: str
) -> pa.RecordBatch:
    if not found.failed:
        return found.events
    events = found.events
    if events.schema.names != DECODED.names:  # images were noted
        whole = {f.name: events[f.name].cast(f.type) for f in arrow_schema(DECODED) if f.name in events.schema.names}
        events = in_form(whole, len(events), DECODED)
    rest = refused_at(batch, batch if original is None else original, protocol, found.failed)
    return pa.Table.from_batches([events, rest]).combine_chunks().to_batches()[0]


@dataclass(frozen=True, slots=True)
class _Read:
    """The events of a batch, the message of each and its place therein, and the messages that failed."""

    events: list[Event] = field(default_factory=list)
    message: list[int] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    failed: list[tuple[int, Malformed]] = field(default_factory=list)


def _laid_out(read: _Read, protocol: str) -> LaidOut | None:
    """The events in columns; None if a value is none that its type can hold, or no text at all."""
    if protocol in KERNELS:  # which have looked
        return lay_out(read.events)
    try:
        laid = lay_out(read.events)
    except (ValueError, TypeError):
        return None
    counted = protocol in COUNTED
    return laid if all_fit(laid.after, counted=counted) and all_fit(laid.before, counted=counted) else None


def _events_of(
    codec: Codec, batch: pa.RecordBatch, protocol: str, bounds: Bounds, *, before: _Read | None = None
) -> _Read:
    """The events of each message; if they were read ``before`` it is looked whether values fit their types.

    What failed then is not tried again: a codec may have learned its schema from a later message meanwhile.
    """
    read, values = _Read(), before is not None
    known = {} if before is None else dict(before.failed)
    pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    for m, (key, value) in enumerate(pairs):
        if m in known:
            read.failed.append((m, known[m]))
            continue
        try:
            if protocol not in KERNELS:
                require_few_values(key, value, bounds)
            found = codec(key, value)
            if protocol == "open-protocol" and any(e.fault for e in found):
                _read_in_part(found, m, read, bounds, protocol)
                continue
            _check(found, bounds, protocol, values=values)
        except Malformed as fault:
            read.failed.append((m, fault.with_traceback(None)))  # whose frames hold all that was decoded
            continue
        except (Outgrown, TiCDCLabError):
            raise
        except Exception as fault:
            read.failed.append((m, unforeseen(fault)))
            continue
        read.events.extend(found)
        read.message.extend([m] * len(found))
        read.seq.extend(range(len(found)))
    return read


def _read_in_part(found: Sequence[Event], m: int, read: _Read, bounds: Bounds, protocol: str) -> None:
    """The events of a message that is decoded in part; the rest is in quarantine.

    A message counts by what has the place 0: an event, if there is any. Parts in quarantine have the places behind.
    """
    whole = [e for e in found if e.fault is None]
    if not whole:  # then the message is
        read.failed.extend((m, e.fault) for e in found[:1] if e.fault is not None)
        return
    _check(whole, bounds, protocol, values=False)
    for seq, fault in enumerate((e.fault for e in found if e.fault is not None), start=len(whole)):
        read.failed.append((m, Malformed(fault.error_class, fault.reason, seq, byte=fault.byte)))
    read.events.extend(whole)
    read.message.extend([m] * len(whole))
    read.seq.extend(range(len(whole)))


def _check(events: Sequence[Event], bounds: Bounds, protocol: str, *, values: bool) -> None:
    assert events, "a codec gives at least one event or raises Malformed"
    if len(events) > bounds.events:
        raise too_large("events of the message", len(events), "events", bounds.events)
    for e in events:
        for image in (e.columns, e.before):
            if image is not None and len(image) > bounds.columns:
                raise too_large("columns of a row", len(image), "columns", bounds.columns)
            if image is not None and values:
                require_values(image, counted=protocol in COUNTED)
        if e.kind == S.ROW and not _has_its_images(e):
            there = [name for name, image in (("after", e.columns), ("before", e.before)) if image is not None]
            has = f"images {' and '.join(there)}" if there else "no image"
            raise Malformed("missing-field", f"{_NEEDS[e.op]} is needed; the row has {has}")
        if not (_is_int64(e.commit_ts) and _is_int64(e.table_id) and _is_int64(e.start_ts)):
            raise Malformed("out-of-range", f"commit_ts {e.commit_ts} or table id {e.table_id} does not fit 64 bits")


def _is_int64(number: int | None) -> bool:
    """Whether it is one, or none; a range is asked by every number in it whether it equals what is no integer."""
    return number is None or (isinstance(number, int) and number in INT64)


_NEEDS = {
    S.INSERT: "insert: an image after alone", S.UPDATE: "update: an image after",
    S.DELETE: "delete: an image before alone",
}  # fmt: skip


def _has_its_images(e: Event) -> bool:
    """An image after unless it is a delete; one before if it is; an update may have one."""
    if e.op == S.UPDATE:
        return e.columns is not None
    return (e.columns is None) == (e.op == S.DELETE) == (e.before is not None)


def _batch_of(
    batch: pa.RecordBatch,
    protocol: str,
    read: _Read,
    laid: LaidOut,
    images: bool,
    compiled: bool,
) -> pa.RecordBatch:
    """The events in the form of DECODED."""
    events, n = read.events, len(read.events)
    message, seq = (np.array(place, np.int64) for place in (read.message, read.seq))
    where = pa.array(message)
    columns: dict[str, pa.Array] = {name: batch.column(name).take(where) for name in ("topic", "partition", "offset")}
    columns |= {
        "kind": pc.take(pa.array(S.KINDS), pa.array([e.kind for e in events], pa.int32())),
        "op": pa.array([S.OPS[e.op] if e.kind == S.ROW else None for e in events], pa.string()),
        "schema_name": laid.schema_name,
        "table_name": laid.table_name,
        "seq": pa.array(seq.astype(np.int32)),
        "protocol": pa.array([protocol] * n, pa.string()),
    }
    for name in ("commit_ts", "start_ts", "table_id", "checksum", "checksum_before"):
        columns[name] = pa.array([getattr(e, name) for e in events], pa.int64())
    for name in ("query", "ddl_type", "incomplete"):
        columns[name] = pa.array([getattr(e, name) for e in events], pa.string())
    if images:
        columns |= {"columns": laid.after.lists(), "before": laid.before.lists()}
    if any(e.partition_count is not None for e in events):
        admin = [None if e.partition_count is None else {"partition_count": e.partition_count} for e in events]
        columns["admin"] = pa.array(admin, pa.struct([("partition_count", pa.int32())]))
    sizes = shares(batch, message, seq)
    own = np.array([-1 if e.size is None else e.size for e in events], np.int64)
    if not laid.is_row.any():  # nothing else has a hash
        return in_form(columns, n, DECODED)
    columns |= hashed(laid, np.where(own < 0, sizes, own), protocol=protocol, compiled=compiled)
    keyless = np.asarray(columns["key_hash"].is_null())
    if len(which := np.flatnonzero(keyless & np.array([e.row_key is not None for e in events], bool))):
        there = columns["change_hash"]
        change = there.fill_null(0).to_numpy().copy()
        row_keys = Texts(pa.array([events[i].row_key for i in which], pa.binary()))
        change[which] ^= row_keys.fold(np.full(len(which), SEED), np.arange(len(which))).view(np.int64)
        columns["change_hash"] = pa.array(change, mask=np.asarray(there.is_null()))
    return in_form(columns, n, DECODED)
