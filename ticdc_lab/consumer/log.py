"""A log as the consumer model reads it: narrow, a partition after the other, in order of offset; and an excerpt of
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from ticdc_lab.codecs.keys import rows_of
from ticdc_lab.errors import ContractError
from ticdc_lab.events import POSITION, tso
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.changes import OP_RANK
from ticdc_lab.events.schema import EVENTS, KEYS, require_columns

ROW, WATERMARK, DDL, ADMIN, OTHER = range(5)
_KINDS = {"row": ROW, "watermark": WATERMARK, "ddl": DDL, "admin": ADMIN}

NARROW = (
    "topic", "partition", "offset", "seq", "kind", "commit_ts", "op_rank", "schema_name", "table_name", "key_hash",
    "before_key_hash", "change_hash", "query",
)  # fmt: skip
"""Columns that :meth:`NarrowLog.of` needs, named as in :data:`ticdc_lab.events.schema.EVENTS` and ``KEYS``."""

PARTITION_COUNT = "partition_count"
"""The column with the new number of partitions that an Admin event announces; optional."""

READ = (*[name for name in NARROW if name != "op_rank"], "op", "admin")
_FORM = pa.schema([
    *[field for of in (EVENTS, KEYS) for field in to_arrow_schema(of) if field.name in NARROW],
    ("op_rank", pa.int32()), (PARTITION_COUNT, pa.int64()),
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ddl:
    """One DDL in any number of partitions: equal ones are the same DDL sent again."""

    commit_ts: int
    schema_name: str
    table_name: str
    query: str


@dataclass(frozen=True, slots=True)
class LogPart:
    """One partition: its events are ``first`` to just before ``end`` in the log's arrays."""

    topic: str
    partition: int
    first: int
    end: int

    def is_named(self, topic: str | None, partition: int) -> bool:
        """Whether it is this partition of the topic, or of any topic if that is None."""
        return self.partition == partition and topic in (None, self.topic)


@dataclass(frozen=True, eq=False, slots=True)
class NarrowLog:
    """Arrays of all events, sorted by topic, partition, offset and seq; bootstrap events have no effect here."""

    events: pa.Table  # the narrow table, sorted; for each event:
    # ``kind``, ``commit_ts``, ``table``, ``op_rank``: numbers; ``table`` -1 where the event names none.
    kind: npt.NDArray[np.int8]
    commit_ts: Ints
    table: Ints
    op_rank: Ints
    arrival: Ints  # when it can be read, µs; all 0 unless the table has it
    ddl: Ints  # index in :attr:`ddls`; -1 for other events
    partition_count: Ints  # of an Admin event: how many partitions there are from here on; -1 for other events
    ddls: tuple[Ddl, ...]
    tables: tuple[str, ...]  # ``schema.table`` by number
    parts: tuple[LogPart, ...]  # the partitions in order
    # Of each topic: how many partitions it has before the first Admin event. A partition that begins with one was added
    # by it.
    counts: Mapping[str, int]
    # Whether DDL is sent to every partition (canal-json sends it to partition 0 alone); so too where a topic with DDL
    # has no other partition, as nothing shows it.
    everywhere: bool

    @classmethod
    def of(cls, events: pa.Table) -> NarrowLog:
        """Read a narrow table of events.

        ``events``: :data:`NARROW` in any order; ``arrival`` (µs) and :data:`PARTITION_COUNT` where known. Rows without
        commit_ts are refused. Raises ContractError: a column is missing, or a row change, DDL or watermark has no
        commit_ts.
        """
        if lacking := set(NARROW) - set(events.column_names):
            raise ContractError.from_missing_and_available(lacking, events.column_names, frame="consumer log")
        place = [(c, "ascending") for c in ("topic", "partition", "offset", "seq")]
        events = events.sort_by(place).combine_chunks()
        kind = np.array([_KINDS.get(k, OTHER) for k in events["kind"].to_pylist()], dtype=np.int8)
        _require_dated(events, kind)
        ddl, ddls = _ddl(events, kind)
        count = _partition_count(events, kind)
        schema, name = (pc.coalesce(events[c], "") for c in ("schema_name", "table_name"))
        rows = kind == ROW
        named = pc.binary_join_element_wise(schema, name, ".").filter(pa.array(rows))
        tables = named.combine_chunks().dictionary_encode()
        table = np.full(len(kind), -1, np.int64)
        table[rows] = tables.indices.to_numpy(zero_copy_only=False)
        parts = tuple(_parts(events))
        return cls(
            events,
            kind,
            pc.fill_null(events["commit_ts"], 0).to_numpy(),
            table,
            pc.fill_null(events["op_rank"], -1).to_numpy().astype(np.int64),
            events["arrival"].to_numpy() if "arrival" in events.column_names else np.zeros(len(kind), np.int64),
            ddl,
            count,
            ddls,
            tuple(tables.dictionary.to_pylist()),
            parts,
            _counts(parts, kind),
            _everywhere(parts, kind),
        )

    def marks_while_it_counts(self, part: LogPart) -> Ints:
        """Places of a partition's watermarks, and of partition 0's while by Admin events it does not count."""
        own, admins = self._places(part, WATERMARK), self._places(part, ADMIN)
        first = next(p for p in self.parts if p.topic == part.topic)
        others = self._places(first, WATERMARK)
        added = self.counts[part.topic] <= part.partition
        gaps = [*(admins[:1] if added else ()), *admins[self.partition_count[admins] <= part.partition]]
        stood, ts = self.commit_ts[own], self.commit_ts[others]
        filled = np.zeros(len(ts), np.bool_)
        for at in gaps:
            before, after = stood[own < at].max(initial=-1), stood[own > at].min(initial=np.iinfo(np.int64).max)
            filled |= (ts > before) & (ts < after)
        return np.concatenate([own, others[filled]])

    def _places(self, part: LogPart, kind: int) -> Ints:
        return part.first + np.flatnonzero(self.kind[part.first : part.end] == kind)

    def committed_arrival(self) -> Ints:
        """When each event can be read if partitions fill as transactions commit, µs after the least commit_ts."""
        dated = self.commit_ts > 0
        if not dated.any():
            return np.zeros(len(self.kind), np.int64)
        at = (self.commit_ts >> tso.LOGICAL_BITS) * 1000
        at = np.where(dated, at - at[dated].min(), 0)
        return np.concatenate([np.maximum.accumulate(at[p.first : p.end]) for p in self.parts])


def _require_dated(events: pa.Table, kind: npt.NDArray[np.int8]) -> None:
    undated = events["commit_ts"].is_null().to_numpy() & (kind < ADMIN)
    if undated.any():
        first = events.slice(int(undated.argmax()), 1).to_pylist()[0]
        raise ContractError(
            f"{first['topic']}/{first['partition']}, offset {first['offset']}: a {first['kind']} without commit_ts; a "
            "consumer that works by watermarks cannot place it.",
            hint="Record with a protocol that carries commit_ts (`enable-tidb-extension=true` for canal-json), "
            "or leave these events out.",
        )


def _ddl(events: pa.Table, kind: npt.NDArray[np.int8]) -> tuple[Ints, tuple[Ddl, ...]]:
    which = np.full(len(kind), -1, np.int64)
    known: dict[Ddl, int] = {}
    at = np.flatnonzero(kind == DDL)
    texts = events.select(["commit_ts", "schema_name", "table_name", "query"]).take(at).to_pylist()
    for i, t in zip(at.tolist(), texts, strict=True):
        one = Ddl(t["commit_ts"], t["schema_name"] or "", t["table_name"] or "", t["query"] or "")
        which[i] = known.setdefault(one, len(known))
    return which, tuple(known)


def _partition_count(events: pa.Table, kind: npt.NDArray[np.int8]) -> Ints:
    """The count that each Admin event announces; one without a count changes nothing, so it is no Admin event."""
    count = np.full(len(kind), -1, np.int64)
    if PARTITION_COUNT in events.column_names:
        count = np.where(kind == ADMIN, pc.fill_null(events[PARTITION_COUNT], -1).to_numpy(), -1)
    kind[(kind == ADMIN) & (count < 1)] = OTHER
    return count


def _counts(parts: Sequence[LogPart], kind: npt.NDArray[np.int8]) -> dict[str, int]:
    """Of each topic the partitions up to the last one that does not begin with an Admin event."""
    counts = dict.fromkeys((p.topic for p in parts), 1)
    for p in parts:
        if kind[p.first] != ADMIN:
            counts[p.topic] = max(counts[p.topic], p.partition + 1)
    return counts


def _everywhere(parts: Sequence[LogPart], kind: npt.NDArray[np.int8]) -> bool:
    with_ddl = [p for p in parts if (kind[p.first : p.end] == DDL).any()]
    others = {p.topic for p in parts if p.partition} & {p.topic for p in with_ddl}
    return not others or any(p.partition for p in with_ddl)


def _parts(events: pa.Table) -> list[LogPart]:
    if not len(events):
        return []
    topics, numbers = events["topic"].to_pylist(), events["partition"].to_pylist()
    starts = [i for i in range(len(topics)) if i == 0 or (topics[i], numbers[i]) != (topics[i - 1], numbers[i - 1])]
    return [LogPart(topics[a], numbers[a], a, b) for a, b in zip(starts, [*starts[1:], len(topics)], strict=True)]


MOST_EVENTS = 1_000_000
"""Events of an excerpt at most; each takes about 100 bytes of the driver's memory."""


IS_CONSUMED = "kind = 'admin' OR (kind IN ('row', 'watermark', 'ddl') AND commit_ts IS NOT NULL)"
"""Events by which a consumer decides."""


def narrow(events: DataFrame, **more: Column) -> DataFrame:
    """Keep of events what a consumer decides by.

    ``events``: the events contract. ``more``: further columns by name, such as the ``measure`` of
    :func:`ticdc_lab.consumer.consistency.measure_of`. Returns: :data:`NARROW`, :data:`PARTITION_COUNT` and ``more``; of
    Admin events, and of row changes, watermarks and DDL that have a commit_ts. Raises ContractError: a column is
    missing.
    """
    require_columns(events, "kind", "commit_ts", "op", "query", "schema_name", "table_name", *POSITION)
    wide = events.withColumns(more) if more else events
    form = pa.schema([*_FORM, *to_arrow_schema(wide.select(*more).schema)])
    return rows_of(wide, (*READ, *more), narrowed, form, KEYS, kinds=tuple(_KINDS))


def narrowed(events: pa.Table) -> pa.Table:
    """:func:`narrow` of events that have the keys: what it makes of :data:`READ`, and other columns as they are."""
    own = events.filter(pc.or_(pc.equal(events["kind"], "admin"), pc.is_valid(events["commit_ts"])))
    own = own.filter(pc.is_in(own["kind"], pa.array([*_KINDS])))
    rank = pc.index_in(own["op"], pa.array([*OP_RANK])).fill_null(OP_RANK["insert"])
    counts = pc.struct_field(own["admin"], "partition_count") if "admin" in own.column_names else pa.nulls(len(own))
    made = {"op_rank": pc.if_else(pc.equal(own["kind"], "row"), rank, None), PARTITION_COUNT: counts.cast(pa.int64())}
    return pa.table({n: own[n] for n in own.column_names if n not in ("op", "admin")} | made)


def excerpt(events: DataFrame, *, most: int = MOST_EVENTS, **more: Column) -> NarrowLog:
    """Bring a log, or the part of it that the caller filtered, to the driver for the model.

    ``events``, ``more``: as for :func:`narrow`. Filter by commit_ts for a part of a longer log. ``most``: events that
    are accepted. Raises ContractError: there are more events; nothing is left out silently.
    """
    return NarrowLog.of(
        few(
            narrow(events, **more), most=most, what="events", taker="the model of a consumer on the driver",
            hint="Filter by commit_ts, let consumption() run it in a worker, or pass most=...",
        )
    )  # fmt: skip


# The one way by which a consumer's log comes to the driver: as a whole, or not at all.


def few(frame: DataFrame, *, most: int, what: str, taker: str, hint: str) -> pa.Table:
    """Bring a frame to the driver.

    ``frame``: what to bring. ``most``: rows that are accepted. ``what``, ``taker``: what the rows are, and who takes no
    more of them, in an error's words. ``hint``: what to do then. Raises ContractError: there are more rows; nothing is
    left out silently.
    """
    table = frame.limit(most + 1).toArrow()
    if len(table) > most:
        raise ContractError(f"The log has more than {most:,} {what}; {taker} takes no more.", hint=hint)
    return table
