"""What a report shows of transactions: their totals and some to draw, in one pass over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.events.arrays import Batches
from ticdc_lab.facts.places import long_hashes
from ticdc_lab.facts.schemas import arrow_of

DRAWN = 300
"""Transactions that are drawn."""

TOTALS = """
n bigint, pending bigint, spread bigint, many_tables bigint, n_rows bigint, n_rows_max bigint, duplicates bigint,
first_commit_ts bigint, last_commit_ts bigint
"""
SAMPLE = """
commit_ts bigint, n_rows bigint, tables array<string>, partitions array<int>, complete boolean, missing array<int>,
duplicates bigint
"""
_TOTALS, _SAMPLE = arrow_of(TOTALS), arrow_of(SAMPLE)
_DIGEST = pa.schema([*_TOTALS, *[f for f in _SAMPLE if f.name not in _TOTALS.names]])
DIGEST = ", ".join(TOTALS.split(",") + [c for c in SAMPLE.split(",") if c.split()[0] not in _TOTALS.names])
"""A row with ``commit_ts`` is a transaction to draw, others are totals of a part."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Totals of some transactions, in one row, and those to draw."""

    totals: pa.Table
    sample: pa.Table

    @classmethod
    def of(cls, transactions: pa.Table, *, most: int = DRAWN) -> Self:
        """The same of transactions in Arrow's form, without any session."""
        return cls.read(pa.Table.from_batches(digested(iter(transactions.to_batches()), most=most), _DIGEST), most=most)

    @classmethod
    def read(cls, digests: pa.Table, *, most: int = DRAWN) -> Self:
        """Join several parts."""
        digests = digests.cast(_DIGEST)  # Spark names the elements of lists in its own way
        drawn = pc.is_valid(digests["commit_ts"])
        totals = _added(digests.filter(pc.invert(drawn)).select(_TOTALS.names))
        return cls(totals, _to_draw(digests.filter(drawn).select(_SAMPLE.names), most))


def digested(batches: Batches, *, most: int = DRAWN) -> Batches:
    """Totals of batches of transactions, and the first that are to be drawn."""
    totals, drawn = [_TOTALS.empty_table()], _SAMPLE.empty_table()
    for batch in batches:
        if batch.num_rows:
            own = pa.table(batch.select(_SAMPLE.names)).cast(_SAMPLE)
            totals.append(_totals(own))
            drawn = _to_draw(pa.concat_tables([drawn, own]), most)
    for part in (_added(pa.concat_tables(totals)), drawn):
        of = {c: part[c] for c in part.column_names}
        n = part.num_rows
        yield from pa.table([of.get(f.name, pa.nulls(n, f.type)) for f in _DIGEST], schema=_DIGEST).to_batches()


def _totals(own: pa.Table) -> pa.Table:
    n, ts = own["n_rows"], own["commit_ts"]
    more = {name: pc.sum(pc.greater(pc.list_value_length(own[c]), 1)).as_py()
            for name, c in (("spread", "partitions"), ("many_tables", "tables"))}  # fmt: skip
    pending = own.num_rows - (pc.sum(own["complete"]).as_py() or 0)
    row = {"n": own.num_rows, "pending": pending, **more, "n_rows": pc.sum(n).as_py(), "n_rows_max": pc.max(n).as_py(),
           "duplicates": pc.sum(own["duplicates"]).as_py(), "first_commit_ts": pc.min(ts).as_py(),
           "last_commit_ts": pc.max(ts).as_py()}  # fmt: skip
    return pa.Table.from_pylist([row], _TOTALS)


def _added(parts: pa.Table) -> pa.Table:
    """One row for several; zeros for none."""
    total = {n: pc.sum(parts[n]).as_py() or 0 for n in _TOTALS.names} | {
        "n_rows_max": pc.max(parts["n_rows_max"]).as_py() or 0,
        "first_commit_ts": pc.min(parts["first_commit_ts"]).as_py(),
        "last_commit_ts": pc.max(parts["last_commit_ts"]).as_py(),
    }
    return pa.Table.from_pylist([total], _TOTALS)


def _to_draw(own: pa.Table, most: int) -> pa.Table:
    ts, repeats = own["commit_ts"].to_numpy(), own["duplicates"].to_numpy() > 0
    complete = np.asarray(own["complete"].combine_chunks().to_numpy(zero_copy_only=False), dtype=bool)
    order = np.lexsort((ts, long_hashes(ts), ~repeats, complete))
    return own.take(pa.array(order[:most]))
