"""Transactions from sorted changes, batch by batch, and what is missing of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from ticdc_lab.events.arrays import NO_TS, Ints, changes_in, timestamps
from ticdc_lab.events.schema import TRANSACTIONS
from ticdc_lab.facts.places import index_of, table_names

_FORM = to_arrow_schema(TRANSACTIONS)
_MISSING = 1 << 22
"""Partitions that a batch of transactions names as missing, at most."""

_SPAN = _FORM.field("offsets").type.value_type


@dataclass(frozen=True, slots=True)
class KnownPlaces:
    """Where rows of a log lie, and how far each partition is resolved."""

    number: Ints  # of each place (:mod:`ticdc_lab.facts.places`), rising
    # ``table``, ``topic``, ``partition``: of each; the first two are indexes of ``tables`` and ``topics``.
    table: Ints
    topic: Ints
    partition: Ints
    # ``tables``, ``topics``: names in order.
    tables: pa.Array
    topics: pa.Array
    # ``resolved``, ``behind``: the resolved_ts of each partition, rising, and which partition that is.
    resolved: Ints
    behind: list[int]
    complete_to: int | None  # up to which commit_ts transactions are complete

    @classmethod
    def read(cls, places: pa.Table, *, complete_to: int | Literal["resolved"] | None = "resolved") -> Self:
        """Places of a frame as :func:`ticdc_lab.transactions.log_places` gives it; a place may come in several rows."""
        number, first = np.unique(places["place"].to_numpy(), return_index=True)
        each = places.take(pa.array(first))
        table = table_names(each["schema_name"].combine_chunks(), each["table_name"].combine_chunks())
        homes = places.group_by(["topic", "partition"]).aggregate([("resolved_ts", "max")])
        resolved = timestamps(homes["resolved_ts_max"])
        order = np.argsort(resolved, kind="stable")
        if complete_to == "resolved":
            least = int(resolved.min(initial=np.iinfo(np.int64).max))
            complete_to = None if least == NO_TS or not len(resolved) else least
        (tables, of_table), (topics, of_topic) = _in_order(table), _in_order(each["topic"].combine_chunks())
        partition = each["partition"].to_numpy().astype(np.int64)
        behind = homes["partition"].take(pa.array(order)).to_pylist()
        return cls(number, of_table, of_topic, partition, tables, topics, resolved[order], behind, complete_to)

    def missing(self, commit_ts: Ints) -> tuple[pa.Array, pa.Array]:
        """Of each transaction whether it is complete, and the partitions that have not reached it."""
        complete = np.zeros(len(commit_ts), bool) if self.complete_to is None else commit_ts <= self.complete_to
        # a partition without a watermark is behind every transaction
        n_behind = np.where(complete, 0, np.searchsorted(self.resolved, commit_ts, side="left"))
        numbers, at = np.unique(n_behind, return_inverse=True)
        lists = pa.array([sorted(set(self.behind[:n])) for n in numbers.tolist()], pa.list_(pa.int32()))
        return pa.array(complete), lists.take(pa.array(at))


def _in_order(names: pa.StringArray) -> tuple[pa.Array, Ints]:
    """Each name once, nulls first, and the place of each value among them."""
    coded = names.dictionary_encode(null_encoding="encode")
    order = pc.array_sort_indices(coded.dictionary, null_placement="at_start")
    return coded.dictionary.take(order), np.argsort(order.to_numpy())[coded.indices.to_numpy()]


@dataclass(frozen=True, slots=True)
class _Transactions:
    """Some transactions in order of commit_ts and start_ts; ``in_*``: to which one a table or a span belongs."""

    commit_ts: Ints
    start_ts: Ints
    firsts: Ints
    deliveries: Ints
    in_table: Ints
    table: Ints
    in_span: Ints
    topic: Ints
    partition: Ints
    first_offset: Ints
    last_offset: Ints

    def __getitem__(self, part: slice) -> _Transactions:
        start, stop, _ = part.indices(len(self.commit_ts))
        tables = slice(*np.searchsorted(self.in_table, (start, stop)))
        spans = slice(*np.searchsorted(self.in_span, (start, stop)))
        cut = {f.name: getattr(self, f.name)[_part_of(f.name, part, tables, spans)] for f in fields(self)}
        return _Transactions(**cut | {"in_table": cut["in_table"] - start, "in_span": cut["in_span"] - start})

    def after(self, other: _Transactions) -> _Transactions:
        """Both, ``other`` first."""
        n = len(other.commit_ts)
        own = {"in_table": self.in_table + n, "in_span": self.in_span + n}
        both = {f.name: (getattr(other, f.name), own.get(f.name, getattr(self, f.name))) for f in fields(self)}
        return _Transactions(**{name: np.concatenate(pair) for name, pair in both.items()})

    def merged(self) -> _Transactions:
        """Neighbours of one commit_ts and start_ts as one, with tables in order, spans by partition and topic."""
        new = changes_in(self.commit_ts, self.start_ts)
        starts, of = np.flatnonzero(new), np.cumsum(new) - 1
        in_table, table = of[self.in_table], self.table
        by_table = np.argsort(in_table * (int(table.max(initial=0)) + 1) + table, kind="stable")
        in_table, table = in_table[by_table], table[by_table]
        first_table = changes_in(in_table, table)
        home = of[self.in_span] * (int(self.partition.max(initial=0)) + 1) + self.partition
        home = home * (int(self.topic.max(initial=0)) + 1) + self.topic
        by_home = np.argsort(home, kind="stable")
        first_span = np.flatnonzero(changes_in(home[by_home]))
        at = by_home[first_span]
        return _Transactions(
            self.commit_ts[starts],
            self.start_ts[starts],
            np.add.reduceat(self.firsts, starts),
            np.add.reduceat(self.deliveries, starts),
            in_table[first_table],
            table[first_table],
            of[self.in_span[at]],
            self.topic[at],
            self.partition[at],
            np.minimum.reduceat(self.first_offset[by_home], first_span),
            np.maximum.reduceat(self.last_offset[by_home], first_span),
        )

    def batches(self, places: KnownPlaces) -> Iterator[pa.RecordBatch]:
        """As many at once as name some million partitions at most."""
        step = max(1, _MISSING // max(1, len(places.behind)))
        for start in range(0, len(self.commit_ts), step):
            yield self[start : start + step].batch(places)

    def batch(self, places: KnownPlaces) -> pa.RecordBatch:
        """As :data:`ticdc_lab.events.schema.TRANSACTIONS`; the transactions are merged."""
        n = len(self.commit_ts)
        first_home = changes_in(self.in_span, self.partition)
        partition = pa.array(self.partition, pa.int32())
        span = {
            "partition": partition,
            "topic": places.topics.take(pa.array(self.topic)),
            "first_offset": pa.array(self.first_offset),
            "last_offset": pa.array(self.last_offset),
        }
        spans = pa.StructArray.from_arrays([span[f.name] for f in _SPAN], fields=list(_SPAN))
        complete, missing = places.missing(self.commit_ts)
        of = {
            "commit_ts": pa.array(self.commit_ts),
            "start_ts": pa.array(self.start_ts, mask=self.start_ts == NO_TS),
            "n_rows": pa.array(self.firsts),
            "tables": _lists(self.in_table, places.tables.take(pa.array(self.table)), n),
            "partitions": _lists(self.in_span[first_home], partition.filter(pa.array(first_home)), n),
            "complete": complete,
            "missing": missing,
            "offsets": _lists(self.in_span, spans, n),
            "duplicates": pa.array(self.deliveries - self.firsts),
        }
        return pa.RecordBatch.from_arrays([of[f.name].cast(f.type) for f in _FORM], schema=_FORM)


def restored(changes: Iterator[pa.RecordBatch], places: KnownPlaces) -> Iterator[pa.RecordBatch]:
    """Transactions (:data:`ticdc_lab.events.schema.TRANSACTIONS`) from changes in order.

    A change has ``commit_ts, start_ts, change_id, place, offset``, all numbers, and the first three order them; a
    start_ts that no message carries is :data:`~ticdc_lab.events.arrays.NO_TS`. The last transaction of a batch waits
    for the next.
    """
    waiting: _Transactions | None = None
    last: tuple[int, int, int] | None = None
    for batch in changes:
        if not batch.num_rows:
            continue
        rows, last = _rows(batch, places, last=last)
        known = (rows if waiting is None else rows.after(waiting)).merged()
        if len(known.commit_ts) > 1:
            yield from known[:-1].batches(places)
        waiting = known[-1:]
    if waiting is not None:
        yield waiting.batch(places)


def _rows(
    batch: pa.RecordBatch, places: KnownPlaces, *, last: tuple[int, int, int] | None
) -> tuple[_Transactions, tuple[int, int, int]]:
    """Every change as a transaction of its own, and what separates the last one from the next."""
    names = ("commit_ts", "start_ts", "change_id", "offset", "place")
    commit_ts, start_ts, change, offset, place = (batch[name].fill_null(NO_TS).to_numpy() for name in names)
    is_first = changes_in(commit_ts, start_ts, change)
    is_first[0] = last != (commit_ts[0], start_ts[0], change[0])
    row = np.arange(len(commit_ts))
    at = index_of(place, places.number)
    spans = (row, places.topic[at], places.partition[at], offset, offset)
    own = (is_first.astype(np.int64), np.ones_like(row), row, places.table[at])
    ended = (int(commit_ts[-1]), int(start_ts[-1]), int(change[-1]))
    return _Transactions(commit_ts, start_ts, *own, *spans), ended


def _lists(of: Ints, values: pa.Array, n: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.searchsorted(of, np.arange(n + 1)).astype(np.int32)), values)


def _part_of(name: str, own: slice, tables: slice, spans: slice) -> slice:
    if name.endswith("table"):
        return tables
    return spans if name in ("in_span", "topic", "partition", "first_offset", "last_offset") else own
