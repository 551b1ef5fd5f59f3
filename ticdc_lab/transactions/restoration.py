"""Transactions from sorted changes, batch by batch: the numbers behind :func:`ticdc_lab.transactions.transactions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from ticdc_lab.events.neighbours import changes_in
from ticdc_lab.events.schema import PARTITION_SPAN, TRANSACTIONS

RESTORED = StructType([f for f in TRANSACTIONS.fields if f.name not in ("complete", "missing")])
"""What :func:`restored` yields: transactions, of which nothing is said yet about completeness."""

_NO_START = np.iinfo(np.int64).min

Ints = npt.NDArray[np.int64]


class _Names:
    """Texts seen so far as numbers; :attr:`rank` says where each stands among them in order."""

    def __init__(self) -> None:
        self._number: dict[str | None, int] = {}
        self.rank = np.zeros(0, dtype=np.int64)

    def numbers(self, texts: pa.Array) -> Ints:
        coded = texts.dictionary_encode(null_encoding="encode")
        known = len(self._number)
        own = [self._number.setdefault(t, len(self._number)) for t in coded.dictionary.to_pylist()]
        if len(self._number) > known:
            seen = list(self._number)
            by_rank = np.array(sorted(range(len(seen)), key=lambda i: (seen[i] is not None, seen[i] or "")))
            self.rank = np.argsort(by_rank)
        numbers: Ints = np.array(own, dtype=np.int64)[coded.indices.to_numpy()]
        return numbers

    def texts(self, numbers: Ints) -> pa.Array:
        return pa.array(list(self._number), pa.string()).take(pa.array(numbers))


@dataclass(frozen=True, slots=True)
class _Transactions:
    """Some transactions in order of commit_ts; ``in_*`` says to which of them a table or a span belongs."""

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

    def merged(self, *, tables: Ints, topics: Ints) -> _Transactions:
        """Neighbours of one commit_ts as one, with tables in the order of their rank, spans by partition and topic."""
        new = changes_in(self.commit_ts)
        starts, of = np.flatnonzero(new), np.cumsum(new) - 1
        in_table, table = of[self.in_table], self.table
        by_table = np.argsort(in_table * len(tables) + tables[table], kind="stable")
        in_table, table = in_table[by_table], table[by_table]
        first_table = changes_in(in_table, table)
        home = of[self.in_span] * (int(self.partition.max(initial=0)) + 1) + self.partition
        home = home * len(topics) + topics[self.topic]
        by_home = np.argsort(home, kind="stable")
        first_span = np.flatnonzero(changes_in(home[by_home]))
        at = by_home[first_span]
        return _Transactions(
            self.commit_ts[starts],
            np.maximum.reduceat(self.start_ts, starts),
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

    def batch(self, *, tables: _Names, topics: _Names) -> pa.RecordBatch:
        """As RESTORED; the transactions are merged."""
        n = len(self.commit_ts)
        first_home = changes_in(self.in_span, self.partition)
        partition = pa.array(self.partition, pa.int32())
        spans = (partition, topics.texts(self.topic), pa.array(self.first_offset), pa.array(self.last_offset))
        of = {
            "commit_ts": pa.array(self.commit_ts),
            "start_ts": pa.array(self.start_ts, mask=self.start_ts == _NO_START),
            "n_rows": pa.array(self.firsts),
            "tables": _lists(self.in_table, tables.texts(self.table), n),
            "partitions": _lists(self.in_span[first_home], partition.filter(pa.array(first_home)), n),
            "offsets": _lists(self.in_span, pa.StructArray.from_arrays(spans, PARTITION_SPAN.names), n),
            "duplicates": pa.array(self.deliveries - self.firsts),
        }
        return pa.RecordBatch.from_pydict({name: of[name] for name in RESTORED.names})


def restored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Transactions from changes in order of commit_ts and change_id; the last one waits for the next batch."""
    tables, topics = _Names(), _Names()
    waiting: _Transactions | None = None
    last = (-1, 0)
    for batch in batches:
        if not batch.num_rows:
            continue
        rows, last = _rows(batch, tables=tables, topics=topics, last=last)
        known = (rows if waiting is None else rows.after(waiting)).merged(tables=tables.rank, topics=topics.rank)
        if len(known.commit_ts) > 1:
            yield known[:-1].batch(tables=tables, topics=topics)
        waiting = known[-1:]
    if waiting is not None:
        yield waiting.batch(tables=tables, topics=topics)


def _rows(
    batch: pa.RecordBatch, *, tables: _Names, topics: _Names, last: tuple[int, int]
) -> tuple[_Transactions, tuple[int, int]]:
    """Every change as a transaction of its own, and what tells the last one from the next."""
    commit_ts, change, offset, partition = (
        batch[name].to_numpy().astype(np.int64, copy=False)
        for name in ("commit_ts", "change_id", "offset", "partition")
    )
    is_first = changes_in(commit_ts, change)
    is_first[0] = last != (commit_ts[0], change[0])
    row = np.arange(len(commit_ts))
    start_ts = batch["start_ts"].fill_null(_NO_START).to_numpy()
    table, topic = tables.numbers(batch["table"]), topics.numbers(batch["topic"])
    ones = np.ones_like(row)
    spans = (row, topic, partition, offset, offset)
    rows = _Transactions(commit_ts, start_ts, is_first.astype(np.int64), ones, row, table, *spans)
    return rows, (int(commit_ts[-1]), int(change[-1]))


def _lists(of: Ints, values: pa.Array, n: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.searchsorted(of, np.arange(n + 1)).astype(np.int32)), values)


def _part_of(name: str, own: slice, tables: slice, spans: slice) -> slice:
    if name.endswith("table"):
        return tables
    return spans if name in ("in_span", "topic", "partition", "first_offset", "last_offset") else own
