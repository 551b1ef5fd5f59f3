"""What another dispatcher would do, answered in milliseconds from counters.

:class:`WhatIf` measures every candidate at every partition count from 1 to 128 in one Spark job
(:mod:`ticdc_lab.dispatch.sweep`), for any size of the log. Its numbers equal
:mod:`ticdc_lab.dispatch.guarantees`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.candidates import Candidates, ColumnLists, Indexes, TableName, candidate_name, with_numbers
from ticdc_lab.dispatch.conflict_kernel import DDL_RANK
from ticdc_lab.dispatch.definitions import HashedColumns, key_text, with_answers
from ticdc_lab.dispatch.lanes import Lane, Ordered, folded
from ticdc_lab.dispatch.names import CONFLICT
from ticdc_lab.dispatch.sweep import SWEPT, SweepPlan, compile_kernels, compiling_s, lane_of, swept
from ticdc_lab.dispatch.sweep_kernel import CELLS, MEASURES, MOST
from ticdc_lab.dispatch.unique_keys import with_unique_keys
from ticdc_lab.engine.sessions import prepare
from ticdc_lab.engine.shuffle import by_key
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.changes import op_rank, row_id
from ticdc_lab.events.schema import DISPATCH, require_batch
from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.facts.catalog import Catalog

BUCKETS = 48
"""Intervals of equal length that the time of a log is cut into."""
LANES = 24
"""Tables that are counted one by one, those with most changes; all others are counted together."""
CONFLICT_AT = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Partition counts at which conflict detection is run: where it puts a row is no function of one hash."""

Choice = str | Mapping[str, str]
"""A candidate for all tables, or one for each (``schema.table``); tables that are not named go by ``table``."""

_NO_CELLS = np.zeros(CELLS, dtype=np.int64)


@dataclass(frozen=True)
class WhatIf:
    """Measures of a log in memory; build it with :meth:`from_events`.

    Attributes
    ----------
    lanes
        Per table (``schema.table``) its counters; small tables may be counted together under one name.
    lo_ms, width_ms
        Where the first time bucket begins and how long each is (ms, clock of the TSO).
    note
        What part of the log is not covered; empty where it is all of it.
    together
        The tables of an entry of ``lanes`` that counts several.
    recorded
        By table the rule by which it was dispatched; empty where one of them was not measured.
    """

    lanes: Mapping[str, Lane]
    lo_ms: int = 0
    width_ms: float = 1.0
    note: str = ""
    together: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_events(
        cls,
        events: DataFrame,
        catalog: Catalog | None = None,
        *,
        indexes: Indexes = (),
        columns: ColumnLists = (),
        conflict_at: Sequence[int] = CONFLICT_AT,
        buckets: int = BUCKETS,
        max_tables: int = LANES,
    ) -> WhatIf:
        """Measure a log: one job counts its tables, one measures all, one fetches the keys of the counterexamples.

        Parameters
        ----------
        events
            The events contract.
        catalog
            Table definitions; gives the unique indexes, each a candidate of its table.
        indexes
            Names of indexes to offer for ``index-value`` beside the unique ones: on every table, or by table.
        columns
            Lists of columns to offer for ``columns``: on every table, or by table (``schema.table``).
        conflict_at
            Partition counts at which conflict detection is run, in the same pass; empty leaves it out.
        buckets
            Intervals of equal length that the time of the log is cut into.
        max_tables
            How many tables, those with most changes, are counted one by one; the others are counted together.
        """
        require_batch(
            events, function="WhatIf.from_events", why="the previous change of a row may be anywhere before it"
        )
        candidates = Candidates.of(catalog, indexes=indexes, columns=columns)
        return cls(
            *measured(events, catalog, candidates, conflict_at=conflict_at, buckets=buckets, max_tables=max_tables)
        )

    def only(self, candidates: Candidates) -> WhatIf:
        """The same with some of its candidates, and conflict detection if it was run."""
        own = {".".join(table): names for table, names in candidates.own.items()}
        lanes = {}
        for table, lane in self.lanes.items():
            names = (*candidates.common, *own.get(table, ()), CONFLICT)
            lanes[table] = replace(lane, loads={name: lane.loads[name] for name in names if name in lane.loads})
        return replace(self, lanes=lanes)

    @cached_property  # each question is checked against it
    def candidates(self) -> list[str]:
        """Candidates of any table, by the names of :func:`candidate_name`."""
        return list(dict.fromkeys(name for lane in self.lanes.values() for name in lane.loads))

    def candidates_at(self, partitions: int) -> list[str]:
        """Candidates that were measured with so many partitions: all but conflict detection at most counts."""
        orders = [o for lane in self.lanes.values() if isinstance(o := lane.loads.get(CONFLICT), Ordered)]
        skipped = any(partitions not in o.rows for o in orders)
        return [name for name in self.candidates if not (skipped and name == CONFLICT)]

    def candidates_of(self, table: str) -> list[str]:
        """Candidates of a table."""
        return list(self._lanes([table])[0][1].loads)

    @property
    def tables(self) -> list[str]:
        """Tables of the log, ``schema.table``, sorted; one entry for those counted together."""
        return sorted(self.lanes)

    @property
    def buckets(self) -> int:
        """Number of time buckets."""
        return max((len(lane.changes) for lane in self.lanes.values()), default=0)

    @property
    def span_ms(self) -> tuple[int, int]:
        """First and last ms of the log (clock of the TSO), both included."""
        return self.lo_ms, max(self.lo_ms, round(self.lo_ms + self.buckets * self.width_ms) - 1)

    def counted_s(self, ts_range: tuple[int, int]) -> tuple[float, float]:
        """Begin and end of the whole buckets of a choice, s since the first change."""
        time = self._time(ts_range)
        return time.start * self.width_ms / 1000, time.stop * self.width_ms / 1000

    def seconds(self, ts_range: tuple[int, int] | None = None) -> npt.NDArray[np.float64]:
        """Middle of each time bucket of a choice, s since the first change."""
        return (np.arange(self.buckets)[self._time(ts_range)] + 0.5) * self.width_ms / 1000

    def guarantees(
        self,
        *,
        strategy: Choice,
        partitions: int,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> pd.DataFrame:
        """Measure a strategy, as :func:`ticdc_lab.dispatch.guarantees.guarantees` does.

        Parameters
        ----------
        strategy, index, columns
            One of :attr:`candidates`, by its name or by its parts, or a candidate for each table.
        partitions
            Number of partitions, N, from 1 to 128.
        tables
            Only these (``schema.table``); default all.
        ts_range
            Only the time buckets that meet the commit_ts (TSO) from the first to the second. A case belongs to the
            bucket of its later change.

        Returns
        -------
        pandas.DataFrame
            ``guarantee``, ``table`` (None for all), ``cases``, ``violations``, ``undecided``, ``counterexample`` (list
            of two dicts ``target_partition, partition, offset, seq, commit_ts, key``, or None).
        """
        asked = {"strategy": strategy, "index": index, "columns": columns}
        return pd.DataFrame(self.counted(**asked, partitions=partitions, tables=tables, ts_range=ts_range))  # type: ignore[arg-type]

    def counted(
        self,
        *,
        strategy: Choice,
        partitions: int,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> list[dict[str, Any]]:
        """Give the rows of :meth:`guarantees` without a frame around them."""
        time = self._time(ts_range)
        out: list[dict[str, Any]] = []
        for name, lane in self._lanes(tables):
            candidate = self._of(name, strategy, index, columns)
            self._check(candidate, partitions)
            if lane.changes[time].sum():
                out += [{"table": name, **row} for row in lane.rows(candidate, partitions, time)]
        return [row for m in MEASURES for row in _with_total([r for r in out if r["guarantee"] == m])]

    def load(
        self,
        *,
        strategy: Choice,
        partitions: int,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        weight: str = "rows",
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> Ints:
        """Load over time: array (time buckets, partitions) of row changes, or of their bytes.

        Parameters
        ----------
        weight
            ``rows`` or ``bytes``.

        Other parameters as of :meth:`guarantees`.
        """
        if weight not in ("rows", "bytes"):
            raise DispatchError(f"weight must be 'rows' or 'bytes'; found {weight!r}.")
        time = self._time(ts_range)
        total = np.zeros((max(0, time.stop - time.start), partitions), dtype=np.int64)
        for name, lane in self._lanes(tables):
            candidate = self._of(name, strategy, index, columns)
            self._check(candidate, partitions)
            if candidate in lane.loads:
                held = lane.loads[candidate].at(partitions, "rows" if weight == "rows" else "volume", self.buckets)
                total += held[time]
        return total

    def balance(
        self,
        *,
        strategy: Choice,
        partitions: int,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> pd.DataFrame:
        """Count row changes per partition: ``target_partition``, ``rows``, ``share``.

        Parameters as of :meth:`guarantees`.
        """
        asked = {"strategy": strategy, "index": index, "columns": columns}
        counts = self.load(**asked, partitions=partitions, tables=tables, ts_range=ts_range).sum(axis=0)  # type: ignore[arg-type]
        share = counts / counts.sum() if counts.sum() else np.full(partitions, np.nan)
        return pd.DataFrame({"target_partition": np.arange(partitions), "rows": counts, "share": share})

    def broken(
        self,
        *,
        strategy: Choice,
        partitions: int,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> dict[str, Ints]:
        """Violations of each guarantee in each time bucket of the chosen time."""
        time = self._time(ts_range)
        sums = {m: np.zeros(self.buckets, dtype=np.int64) for m in MEASURES}
        for name, lane in self._lanes(tables):
            candidate = self._of(name, strategy, None, None)
            self._check(candidate, partitions)
            for measure, counts in lane.broken(candidate, partitions).items():
                sums[measure] += counts
        return {measure: counts[time] for measure, counts in sums.items()}

    def failed(
        self, *, strategy: Choice, index: str | None = None, columns: Sequence[str] | None = None
    ) -> tuple[int, str]:
        """How many changes the strategy cannot dispatch, and the reason for one of them."""
        n, why = 0, ""
        for name, lane in self._lanes(None):
            candidate = self._of(name, strategy, index, columns)
            self._check(candidate, None)
            lost, reason = lane.lost(candidate)
            n, why = n + lost, why or reason
        return n, why

    def unplaced(
        self,
        *,
        strategy: Choice,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> int:
        """How many changes a strategy cannot dispatch, of the chosen tables and time."""
        time = self._time(ts_range)
        return sum(lane.unplaced_in(self._of(name, strategy, None, None), time) for name, lane in self._lanes(tables))

    def alignments(
        self,
        *,
        partitions: int,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> Ints:
        """Alignment events that conflict detection writes, per time bucket."""
        self._check(CONFLICT, partitions)
        time = self._time(ts_range)
        none = np.zeros(self.buckets, dtype=np.int64)
        return sum((lane.alignments.get(partitions, none)[time] for _, lane in self._lanes(tables)), none[time])

    def skew_curve(
        self,
        strategies: Sequence[str] | None = None,
        partitions: Iterable[int] = range(1, MOST + 1),
        *,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> pd.DataFrame:
        """Unevenness over the number of partitions: ``strategy``, ``partitions``, ``max_over_mean`` (1 is even)."""
        time, out, asked = self._time(ts_range), [], list(partitions)
        if not all(1 <= n <= MOST for n in asked):
            raise DispatchError(f"partitions must be from 1 to {MOST} in a what-if; found {asked}.")
        for name in self.candidates if strategies is None else strategies:
            self._check(name, None)
            loads = [lane.loads[name] for _, lane in self._lanes(tables) if name in lane.loads]
            ordered = [load for load in loads if isinstance(load, Ordered)]
            cells = sum((load.cells(time) for load in loads if not isinstance(load, Ordered)), _NO_CELLS)
            for n in asked if not ordered else [n for n in asked if n in ordered[0].rows]:
                total = folded(cells, n) + sum(o.at(n, "rows", self.buckets)[time].sum(axis=0) for o in ordered)
                if total.sum():
                    out.append({"strategy": name, "partitions": n, "max_over_mean": total.max() * n / total.sum()})
        return pd.DataFrame(out, columns=["strategy", "partitions", "max_over_mean"])

    def _of(self, table: str, strategy: Choice, index: str | None, columns: Sequence[str] | None) -> str:
        if isinstance(strategy, str):
            return strategy if ":" in strategy else candidate_name(strategy, index=index, columns=columns)
        return strategy.get(table, "table")

    def _check(self, candidate: str, partitions: int | None) -> None:
        if candidate not in self.candidates and self.lanes:
            raise DispatchError(
                f"The what-if was not prepared for {candidate!r}; it was for {self.candidates}.",
                hint="Build it with WhatIf.from_events(..., indexes=[...], columns=[[...]]).",
            )
        if partitions is None:
            return
        if not 1 <= partitions <= MOST:
            raise DispatchError(
                f"partitions must be from 1 to {MOST} in a what-if; found {partitions}.",
                hint="Call `dispatch()` or `guarantees()`, which take any number.",
            )
        swept_at = {
            n for lane in self.lanes.values() if isinstance(o := lane.loads.get(candidate), Ordered) for n in o.rows
        }
        if swept_at and partitions not in swept_at:
            raise DispatchError(f"{candidate} was run with {sorted(swept_at)} partitions; found {partitions}.")

    def _lanes(self, tables: Sequence[str] | None) -> list[tuple[str, Lane]]:
        unknown = set(tables or ()) - set(self.lanes)
        if unknown:
            raise DispatchError(f"The log has no change of {sorted(unknown)}, or counts them with others.")
        return [(name, lane) for name, lane in sorted(self.lanes.items()) if tables is None or name in set(tables)]

    def _time(self, ts_range: tuple[int, int] | None) -> slice:
        if ts_range is None:
            return slice(0, self.buckets)
        first, last = (((ts >> LOGICAL_BITS) - self.lo_ms) / self.width_ms for ts in ts_range)
        return slice(max(0, int(np.floor(first))), min(self.buckets, max(0, int(np.floor(last)) + 1)))


def _with_total(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one measure, per table, and their sum; its counterexample is the earliest."""
    if not rows:
        return []
    shown = [r["counterexample"] for r in rows if r["counterexample"]]
    first = min(shown, key=lambda pair: pair[1]["commit_ts"], default=None)
    sums = {c: sum(r[c] for r in rows) for c in ("cases", "violations", "undecided")}
    return [*rows, {"table": None, "guarantee": rows[0]["guarantee"], **sums, "counterexample": first}]


# Measuring a log for a what-if: one Spark job counts its tables, one sweeps all candidates, one fetches shown keys.

_ORDER = ("table_id", "commit_ts", "op_rank", "partition", "offset", "seq")


def load_beside(spark: SparkSession) -> None:
    """Let the embedded engine load the kernels, a second's work, before it is asked about dispatchers."""
    if not compiling_s():
        prepare(spark, f"{compile_kernels.__module__}:{compile_kernels.__name__}")


class Measured(NamedTuple):
    """What :class:`ticdc_lab.dispatch.whatif.WhatIf` holds, in its order."""

    lanes: Mapping[str, Lane]
    lo_ms: int
    width_ms: float
    note: str
    together: Mapping[str, Sequence[str]]


def measured(
    events: DataFrame, catalog: Catalog | None, candidates: Candidates, *, conflict_at: Sequence[int], buckets: int,
    max_tables: int,
) -> Measured:  # fmt: skip
    """Count every candidate at every partition count; parameters as of ``WhatIf.from_events``."""
    tables, undated, span = _inventory(events)
    n = undated + sum(tables.values())
    note = f"{undated:,} of {n:,} row events have no commit_ts, or name no table, and are left out."
    if not tables:
        return Measured({}, 0, 1.0, note if undated else "", {})
    numbers = {t: n for n, t in enumerate(sorted(tables, key=lambda t: (-tables[t], t)))}
    names = _lane_names(list(numbers), max_tables)
    lo_ms, hi_ms = span[0] >> LOGICAL_BITS, span[1] >> LOGICAL_BITS
    width = (hi_ms - lo_ms + 1) / buckets
    slots = dict.fromkeys(range(len(names)), candidates.common)
    slots |= {n: candidates.names(t) for t, n in numbers.items() if n < max_tables}
    plan = SweepPlan(slots, lo_ms, width, buckets, tuple(conflict_at))
    rows = _narrow(events, candidates, catalog=catalog, numbers=numbers, lanes=len(names))
    if compiling_s():  # workers take them from the cache, and nothing here runs them
        compile_kernels()
    found = by_key(rows, "lane", swept(plan), SWEPT, order=_ORDER).toArrow()
    by_lane = {n: lane_of(f) for n, f in zip(*(found[c].to_pylist() for c in ("lane", "facts")), strict=True)}
    lanes = _with_keys(events, {names[n]: by_lane[n] for n in sorted(by_lane)})
    if catalog is None:
        lanes = {name: replace(lane, has_catalog=False) for name, lane in lanes.items()}
    others = [".".join(t) for t in list(numbers)[max_tables:]]
    return Measured(lanes, lo_ms, width, note if undated else "", {names[-1]: sorted(others)} if others else {})


def _inventory(events: DataFrame) -> tuple[dict[TableName, int], int, tuple[int, int]]:
    """Dated row events per table, the number of those without commit_ts or table, and the first and last commit_ts."""
    ts = F.col("commit_ts")
    counts = (
        events.where("kind = 'row'")
        .groupBy("schema_name", "table_name")
        .agg(F.count(ts), F.count_if(ts.isNull()), F.min(ts), F.max(ts))
        .toArrow()
    )
    rows = list(zip(*(c.to_pylist() for c in counts.columns), strict=True))
    dated = [r for r in rows if r[2] and r[1] is not None]  # avro has deletes that name no table
    span = (min((r[4] for r in dated), default=0), max((r[5] for r in dated), default=0))
    tables = {(r[0], r[1]): r[2] for r in dated}
    return tables, sum(r[2] + r[3] for r in rows) - sum(tables.values()), span


def _lane_names(tables: Sequence[TableName], most: int) -> list[str]:
    own = [".".join(t) for t in tables[:most]]
    others = len(tables) - len(own)
    return own if not others else [*own, f"({others:,} smaller tables)"]


def _narrow(
    events: DataFrame, candidates: Candidates, *, catalog: Catalog | None, numbers: Mapping[TableName, int], lanes: int
) -> DataFrame:
    """Row changes as numbers: all that is shuffled."""
    rank = F.when(F.col("kind") == "ddl", DDL_RANK).otherwise(op_rank()).cast("int")
    rows = events.where("kind = 'ddl' OR kind = 'row' AND table_name IS NOT NULL").where("commit_ts IS NOT NULL")
    rows = rows.transform(with_unique_keys, catalog=catalog).transform(with_hashes, DISPATCH).drop("table_id")
    rows = with_numbers(rows, candidates, catalog=catalog)
    if catalog is not None:
        rows = with_answers(rows, catalog=catalog, questions={"_known": lambda table: HashedColumns()})
    named = [(schema, table, min(n, lanes - 1), n) for (schema, table), n in numbers.items()]
    of = events.sparkSession.createDataFrame(named, "_schema string, _table string, lane int, table_id int")
    same = (F.col("schema_name") == F.col("_schema")) & (F.col("table_name") == F.col("_table"))
    uniques = F.col("uniques") if "uniques" in rows.columns else F.lit(None).cast("array<bigint>")
    return rows.join(F.broadcast(of), same).select(
        "lane", "table_id", "commit_ts", rank.alias("op_rank"),
        "partition", "offset", "seq", row_id().alias("identity"),
        F.col("key_hash").isNotNull().alias("has_key"), F.col("own_key").alias("key_hash"), "before_key_hash",
        uniques.alias("uniques"), F.col("not_carried").isNull().alias("carried"),
        (F.col("_known").isNotNull() if catalog is not None else F.lit(False)).alias("in_catalog"),
        F.coalesce("row_bytes", F.lit(0)).alias("row_bytes"), *[f"h{s}" for s in range(candidates.slots)], "errors",
    )  # fmt: skip


def _with_keys(events: DataFrame, lanes: Mapping[str, Lane]) -> dict[str, Lane]:
    """Lanes with the keys of the changes that they show."""
    shown = [lane.evidence[:, at : at + 3] for lane in lanes.values() for at in (0, 4)]
    places = np.unique(np.concatenate(shown), axis=0) if shown else np.zeros((0, 3), dtype=np.int64)
    if not len(places):
        return dict(lanes)
    wanted = events.sparkSession.createDataFrame(places.tolist(), "_partition int, _offset bigint, _seq int")
    same = [F.col(c) == F.col(f"_{c}") for c in ("partition", "offset", "seq")]
    rows = events.where("kind = 'row'").join(F.broadcast(wanted), on=same, how="left_semi")
    found = rows.select("schema_name", "table_name", "partition", "offset", "seq", key_text().alias("key")).toArrow()
    keys = {(r["partition"], r["offset"], r["seq"]): r["key"] for r in found.to_pylist()}
    return {name: replace(lane, keys=keys) for name, lane in lanes.items()}
