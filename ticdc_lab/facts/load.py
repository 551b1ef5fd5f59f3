"""Rows over time for the heaviest partitions and tables, counted in a second pass when the log's extent is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.events.tso import LOGICAL_BITS, physical_ms
from ticdc_lab.facts.known import LogFacts, numbers_of
from ticdc_lab.facts.ladder import NO_TS, Ints, timestamps
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.facts.watermarks import IS_ROW, tables_of, unresolved_s

BUCKETS = 48
"""Stretches of equal length."""

LANES = 40
"""Most partitions, or tables, whose load is drawn."""

HOME, TABLE = ("topic", "partition"), ("schema_name", "table_name")
_COUNTED = "what string, number bigint, n bigint"
_READ = ("kind", "commit_ts", "offset", *HOME, *TABLE)

Batches = Iterator[pa.RecordBatch]
Name = tuple[object, object]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The heaviest partitions or tables: their names in order, and how many there are of all."""

    by: tuple[str, str]
    names: tuple[Name, ...]
    total: int

    @classmethod
    def heaviest(cls, rows: pa.Table, by: tuple[str, str], most: int) -> Self:
        """Those with most rows."""
        n = rows.group_by(list(by), use_threads=False).aggregate([("n", "sum")])
        order = [("n_sum", "descending", "at_start"), *[(c, "ascending", "at_start") for c in by]]
        kept = n.take(pc.sort_indices(n, order)[:most])
        kept = kept.take(pc.sort_indices(kept, order[1:]))
        return cls(by, tuple(zip(*[kept[c].to_pylist() for c in by], strict=True)), n.num_rows)


@dataclass(frozen=True, slots=True)
class Measure:
    """What the second pass counts: rows of lanes by stretch, and rows that no watermark has resolved by table.

    Stretches are of time (the TSO's physical part), or of offsets where no row has a commit_ts.
    """

    timed: bool
    low: int
    width: float
    lanes: tuple[Lanes, Lanes]
    tables: pa.Table
    """As :func:`ticdc_lab.facts.watermarks.tables_of`, in order of name."""
    names: tuple[Name, ...]
    resolved: Ints

    @classmethod
    def of(cls, facts: LogFacts, *, most: int = LANES) -> Self:
        """The one that a log's facts ask for."""
        rows, tables = facts.of_kind("row"), _in_order(tables_of(facts.places))
        low, high = (pc.min(rows["commit_ts"]).as_py(), pc.max(rows["last_ts"]).as_py())
        timed = low is not None
        if timed:
            low, high = physical_ms(low), physical_ms(high)
        elif rows.num_rows:
            low, high = pc.min(rows["offset"]).as_py(), pc.max(rows["last_offset"]).as_py()
        return cls(
            timed=timed,
            low=low or 0,
            width=((high or 0) - (low or 0) + 1) / BUCKETS,
            lanes=(Lanes.heaviest(rows, HOME, most), Lanes.heaviest(rows, TABLE, most)),
            tables=tables,
            names=tuple(zip(*[tables[c].to_pylist() for c in TABLE], strict=True)),
            resolved=timestamps(tables["resolved_ts"]),
        )

    def counted(self, rows: Batches) -> Batches:
        """Sums over batches of events, of which it keeps nothing else."""
        sums = {
            "home": np.zeros(len(self.lanes[0].names) * BUCKETS, dtype=np.int64),
            "table": np.zeros(len(self.lanes[1].names) * BUCKETS, dtype=np.int64),
            "unresolved": np.zeros(len(self.tables), dtype=np.int64),
        }
        for batch in rows:
            table = pa.table(batch)
            self._add(table.filter(pc.equal(table["kind"], "row")), sums)
        for what, n in sums.items():
            at = np.flatnonzero(n)
            of = {"what": pa.array([what] * len(at), pa.string()), "number": pa.array(at), "n": pa.array(n[at])}
            yield pa.RecordBatch.from_pydict(of)

    def _add(self, rows: pa.Table, sums: dict[str, Ints]) -> None:
        ts = timestamps(rows["commit_ts"])
        at = ts >> LOGICAL_BITS if self.timed else rows["offset"].to_numpy()
        bucket = np.minimum(np.floor((at - self.low) / self.width), BUCKETS - 1).astype(np.int64)
        placed = (ts != NO_TS) if self.timed else np.ones(len(ts), dtype=bool)
        for what, lanes in zip(("home", "table"), self.lanes, strict=True):
            lane = numbers_of(rows, lanes.by, lanes.names)
            own = placed & (lane >= 0)
            sums[what] += np.bincount((lane * BUCKETS + bucket)[own], minlength=len(sums[what]))
        number = numbers_of(rows, TABLE, self.names)
        resolved = np.append(self.resolved, NO_TS)[number]
        above = (number >= 0) & ((resolved == NO_TS) | ((ts != NO_TS) & (ts > resolved)))
        sums["unresolved"] += np.bincount(number[above], minlength=len(self.tables))


@dataclass(frozen=True, slots=True)
class Load:
    """What :class:`Measure` found in a whole log."""

    measure: Measure
    sums: dict[str, Ints]

    @classmethod
    def of(cls, facts: LogFacts, events: pa.Table) -> Self:
        """That of events in Arrow's form, without any session."""
        measure = Measure.of(facts)
        return cls.read(measure, pa.Table.from_batches(measure.counted(iter(events.to_batches())), arrow_of(_COUNTED)))

    @classmethod
    def read(cls, measure: Measure, counted: pa.Table) -> Self:
        """Put together what the tasks counted."""
        sizes = [len(lanes.names) * BUCKETS for lanes in measure.lanes] + [len(measure.tables)]
        sums = {
            what: np.zeros(n, dtype=np.int64) for what, n in zip(("home", "table", "unresolved"), sizes, strict=True)
        }
        for what, total in sums.items():
            own = counted.filter(pc.equal(counted["what"], what))
            np.add.at(total, own["number"].to_numpy(), own["n"].to_numpy())
        return cls(measure, sums)

    def over_time(self, what: str) -> pa.Table:
        """Rows of the heaviest partitions (``home``) or tables (``table``) over time.

        Returns
        -------
        pa.Table
            The lane's two names, ``bucket`` (from 0), ``from_ms`` and ``to_ms`` (physical time; null without
            commit_ts), ``n`` (rows), ``lanes_total``.
        """
        lanes, m = self.measure.lanes[what == "table"], self.measure
        at = np.flatnonzero(self.sums[what])
        lane, bucket = at // BUCKETS, at % BUCKETS
        types = (pa.string(), pa.int32()) if lanes.by == HOME else (pa.string(), pa.string())
        names = [pa.array([n[i] for n in lanes.names], types[i]).take(pa.array(lane)) for i in (0, 1)]
        edges = [m.low + np.floor((bucket + ahead) * m.width).astype(np.int64) for ahead in (0, 1)]
        untimed = np.full(len(at), not m.timed)
        return pa.table({
            lanes.by[0]: names[0],
            lanes.by[1]: names[1],
            "bucket": pa.array(bucket.astype(np.int32)),
            "from_ms": pa.array(edges[0], mask=untimed),
            "to_ms": pa.array(edges[1], mask=untimed),
            "n": pa.array(self.sums[what][at]),
            "lanes_total": pa.array(np.full(len(at), lanes.total, dtype=np.int32)),
        })  # fmt: skip

    def tables(self) -> pa.Table:
        """As :func:`ticdc_lab.facts.watermarks.table_watermarks`, in order of name."""
        found = self.measure.tables.append_column("unresolved_rows", pa.array(self.sums["unresolved"]))
        return found.append_column("unresolved_s", unresolved_s(found["last_commit_ts"], found["resolved_ts"]))


def _in_order(tables: pa.Table) -> pa.Table:
    return tables.take(pc.sort_indices(tables, [(c, "ascending", "at_start") for c in TABLE]))


def counted_load(events: DataFrame, measure: Measure) -> DataFrame:
    """What the tasks count of a log for :meth:`Load.read`: some hundred rows each."""
    return events.where(IS_ROW).select(*_READ).mapInArrow(measure.counted, _COUNTED)
