"""What a log states, gathered in one pass: each task sums up its own part, in a few dozen bytes a watermark and place.

A part's facts have the form of the whole's, so that they can be put together anywhere (:class:`LogFacts` does).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.engine.ordering import order_of
from ticdc_lab.events.arrays import Batches, Ints, changes_in, encoded
from ticdc_lab.facts.places import NAMED_BY, distinct_first, grouped, place_number
from ticdc_lab.facts.schemas import arrow_of

FACTS = """
fact string, topic string, partition int, offset bigint, seq int, commit_ts bigint, schema_name string,
table_name string, kind string, op string, n bigint, last_ts bigint, last_offset bigint, query string, ddl_type string,
partition_count int, held bigint, place bigint, n_before bigint
"""
"""What :func:`log_facts` yields.

``fact``: what a row is: a ``watermark`` (with commit_ts), ``ddl`` or ``admin`` event as in the log, a ``bootstrap``
whose ``query`` defines a table (a storage folder's); a ``place``,
one for each topic, partition, schema, table, kind and op, with the least and greatest commit_ts and offset, the number
``n`` of its events, ``n_before`` with an image before the change (null where images are not hashed), and
:func:`ticdc_lab.facts.places.place_col`; ``offsets``, which of the :data:`IN_CHUNK` offsets from ``offset`` on are
there (``held``, a bit each) and how many messages lie at them (``n``). A place or chunk may come in several rows.
"""

LEFT_OUT = "offsets of all"
"""Beside a sample, the ``offsets`` of the log that it is of: what was left out is no gap."""

IN_CHUNK = 64
"""Offsets whose presence one number records."""

AT_ONCE = 1 << 16
"""Places, and chunks of offsets, whose sums a task keeps."""

_SQL_TYPES = dict(c.split() for c in FACTS.split(","))
ARROW = arrow_of(FACTS)

PLACE = (*NAMED_BY, "kind", "op")
_READ = ("kind", "commit_ts", "op", "topic", "partition", "offset", "seq", "schema_name", "table_name")
_SAID = ("query", "ddl_type", "partition_count")
_NARROW = pa.schema([ARROW.field(n) for n in (*_READ, *_SAID, "n_before")])


def log_facts(events: DataFrame) -> DataFrame:
    """Gather what a log states and covers, in one pass over its events.

    Parameters
    ----------
    events
        The whole log: ``kind, commit_ts``, position and names; of ``op, query, ddl_type, admin`` what is there.

    Returns
    -------
    DataFrame
        :data:`FACTS`, some rows a task; :meth:`ticdc_lab.facts.LogFacts.read` makes them one.
    """
    of = {n: n if n in events.columns else "NULL" for n in (*_READ, *_SAID)}
    of["partition_count"] = "admin.partition_count" if "admin" in events.columns else "NULL"
    of["n_before"] = "before_hash IS NOT NULL" if "before_hash" in events.columns else "NULL"
    narrow = events.selectExpr(*[f"CAST({c} AS {_SQL_TYPES[n]}) AS {n}" for n, c in of.items()])
    return narrow.mapInArrow(gathered, FACTS)


def narrow_batches(events: pa.Table) -> Batches:
    """What :func:`gathered` reads, of events in Arrow's form; texts with dictionaries keep these."""
    n = events.num_rows
    of = {c: events[c] if c in events.column_names else pa.nulls(n) for c in (*_READ, *_SAID)}
    if "admin" in events.column_names:
        of["partition_count"] = pc.struct_field(events["admin"], "partition_count")
    hashed = "before_hash" in events.column_names
    of["n_before"] = pc.is_valid(events["before_hash"]) if hashed else pa.nulls(n)
    coded = {f.name for f in events.schema if pa.types.is_dictionary(f.type)}
    own = [of[f.name] if f.name in coded else of[f.name].cast(f.type) for f in _NARROW]
    return iter(pa.table(own, _NARROW.names).combine_chunks().to_batches())


def gathered(batches: Batches) -> Batches:
    """Facts of events: what a task holds meanwhile does not grow with their number."""
    places, offsets = _Sums(sum_places), _Sums(sum_offsets)
    for batch in batches:
        if batch.num_rows:
            coded = any(map(pa.types.is_dictionary, batch.schema.types))
            events = pa.table(batch if coded or batch.schema == _NARROW else batch.cast(_NARROW))
            yield from as_facts(_marks(events))
            yield from places.add(_places(events))
            yield from offsets.add(_offsets(events))
    yield from places.rest()
    yield from offsets.rest()


def offsets_alone(messages: pa.Table) -> pa.Table:
    """The offsets of messages as facts, where nothing else is known of them."""
    return pa.Table.from_batches(as_facts(_offsets(messages)), schema=ARROW)


class _Sums:
    """Rows that are summed up whenever there are many, and passed on if still many are left."""

    def __init__(self, total: Callable[[pa.Table], pa.Table]) -> None:
        self._total = total
        self._parts: list[pa.Table] = []
        self._rows = 0

    def add(self, part: pa.Table) -> Batches:
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows >= AT_ONCE:
            whole = self._total(pa.concat_tables(self._parts))
            self._parts, self._rows = [whole], whole.num_rows
            if self._rows >= AT_ONCE // 2:
                yield from self.rest()

    def rest(self) -> Batches:
        if self._parts:
            yield from as_facts(self._total(pa.concat_tables(self._parts)))
        self._parts, self._rows = [], 0


def as_facts(rows: pa.Table) -> Batches:
    """Some columns of :data:`FACTS` as all of them."""
    if rows.num_rows:
        of = {c: rows[c] for c in rows.column_names}
        yield from pa.table([of.get(f.name, pa.nulls(rows.num_rows, f.type)) for f in ARROW], schema=ARROW).to_batches()


_MARKS = ("watermark", "bootstrap", "ddl", "admin")


def _marks(events: pa.Table) -> pa.Table:
    """Watermarks that have a commit_ts, DDL, Admin events, and definitions of tables, as they are."""
    code, kinds = encoded(events["kind"])
    some = events.take(pa.array(np.flatnonzero(np.array([k in _MARKS for k in kinds])[code])))
    kind = some["kind"].cast(pa.string())
    undated = pc.and_(pc.equal(kind, "watermark"), pc.is_null(some["commit_ts"]))
    empty = pc.and_(pc.equal(kind, "bootstrap"), pc.is_null(some["query"]))
    marks = some.filter(pc.invert(pc.or_(undated, empty)))
    marks = pa.table([marks[f.name].cast(f.type) for f in _NARROW], schema=_NARROW)
    return marks.append_column("fact", marks["kind"])


def _places(events: pa.Table) -> pa.Table:
    return sum_places(
        pa.table({
            **{c: events[c] for c in (*PLACE, "commit_ts", "offset")},
            "n": pa.array(np.ones(events.num_rows, dtype=np.int64)),
            "last_ts": events["commit_ts"],
            "last_offset": events["offset"],
            "n_before": events["n_before"],
        })
    )  # fmt: skip


def sum_places(rows: pa.Table) -> pa.Table:
    """One row a place."""
    first, of = grouped(rows, PLACE)

    def of_each(name: str, best: np.ufunc, start: int) -> pa.Array:
        there = np.asarray(pc.is_valid(rows[name]))
        found, known = np.full(len(first), start), np.zeros(len(first), dtype=bool)
        values = rows[name].fill_null(0).to_numpy().astype(np.int64, copy=False)
        at = of if there.all() else of[there]
        best.at(found, at, values if there.all() else values[there])
        known[at] = True
        return pa.array(found, pa.int64(), mask=~known)

    whole = rows.select(PLACE).take(pa.array(first))
    names = zip(*[whole[c].to_pylist() for c in NAMED_BY], strict=True)
    each = {
        **{c: whole[c].cast(ARROW.field(c).type) for c in PLACE},
        "n": of_each("n", np.add, 0), "commit_ts": of_each("commit_ts", np.minimum, _MAX),
        "last_ts": of_each("last_ts", np.maximum, _MIN), "offset": of_each("offset", np.minimum, _MAX),
        "last_offset": of_each("last_offset", np.maximum, _MIN), "n_before": of_each("n_before", np.add, 0),
        "place": pa.array([place_number(*name) for name in names], pa.int64()),
        "fact": pa.array(["place"] * len(first), pa.string()),
    }  # fmt: skip
    return pa.table(each)


_MAX, _MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def _offsets(events: pa.Table) -> pa.Table:
    placed = events.select(["topic", "partition", "offset", "seq"])
    known = placed
    if placed["partition"].null_count or placed["offset"].null_count:
        known = placed.filter(pc.and_(pc.is_valid(placed["partition"]), pc.is_valid(placed["offset"])))
    offset = known["offset"].to_numpy()
    at = offset & IN_CHUNK - 1
    held, start = np.left_shift(1, at), offset - at
    n = np.asarray(pc.equal(known["seq"], 0).fill_null(False)).astype(np.int64)
    return sum_offsets(pa.table([known["topic"], known["partition"], start, held, n], OFFSETS))


OFFSETS = ("topic", "partition", "offset", "held", "n")


def sum_offsets(rows: pa.Table) -> pa.Table:
    """One row a chunk of offsets."""
    topic, topics = encoded(rows["topic"])
    partition, offset, held, n = (rows[c].to_numpy() for c in OFFSETS[1:])
    first, of = _chunks(topic, partition.astype(np.int64), offset)
    bits, messages = np.zeros((2, len(first)), np.int64)
    np.bitwise_or.at(bits, of, held)
    np.add.at(messages, of, n)
    return pa.table({
        "fact": pa.array(["offsets"] * len(first), pa.string()),
        "topic": pa.array(topics, pa.string()).take(pa.array(topic[first])),
        "partition": pa.array(partition[first].astype(np.int32)),
        "offset": pa.array(offset[first]), "held": pa.array(bits), "n": pa.array(messages),
    })  # fmt: skip


def _chunks(topic: Ints, partition: Ints, offset: Ints) -> tuple[Ints, Ints]:
    """Where each chunk of a partition stands, in order, and which of those each row is of."""
    low, first = (int(a.min(initial=_MAX)) for a in (partition, offset))
    lanes, span = (int(a.max(initial=_MIN)) - least for a, least in ((partition, low), (offset, first)))
    lanes, span = lanes + 1, span // IN_CHUNK + 1
    if len(offset) and (int(topic.max()) + 1) * lanes * span < 1 << 62:
        return distinct_first((topic * lanes + partition - low) * span + (offset - first) // IN_CHUNK)
    order = order_of(topic, partition, offset, stable=False) if len(offset) else np.arange(0)
    new = changes_in(topic[order], partition[order], offset[order]) if len(offset) else np.zeros(0, np.bool_)
    of = np.empty(len(order), np.int64)
    of[order] = np.cumsum(new) - 1
    return order[new], of
