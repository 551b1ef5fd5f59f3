"""What another dispatcher would do, answered in milliseconds from counters.

:class:`WhatIf` measures every candidate at every partition count from 1 to 128 in one Spark job
(:mod:`ticdc_lab.dispatch.sweep`), for any size of the log. Its numbers equal
:mod:`ticdc_lab.dispatch.guarantees`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.codecs.laid_out import laid_out_of
from ticdc_lab.dispatch.conflict_kernel import DDL_RANK
from ticdc_lab.dispatch.definitions import Answers, HashedColumns, changes_in, key_texts
from ticdc_lab.dispatch.lanes import Lane, Ordered, folded
from ticdc_lab.dispatch.names import CONFLICT, candidate_name
from ticdc_lab.dispatch.numbering import (
    NUMBERED,
    Alike,
    Candidates,
    ColumnLists,
    Indexes,
    Numbering,
)
from ticdc_lab.dispatch.sweep import NARROW, SWEPT, SweepPlan, compile_kernels, compiling_s, lane_of, swept
from ticdc_lab.dispatch.sweep_kernel import CELLS, MEASURES, MOST
from ticdc_lab.dispatch.unique_keys import UniqueKeys
from ticdc_lab.engine.shuffle import MadeByWorkers, at_once, grouped_by, mapped
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.changes import OP_RANK, row_ids
from ticdc_lab.events.schema import KEYS, require_batch
from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableName

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

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
        events: DataFrame | StoredEvents,
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
            The events contract, or events in files.
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
        if isinstance(events, DataFrame):
            why = "the previous change of a row may be anywhere before it"
            require_batch(events, function="WhatIf.from_events", why=why)
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


class Measured(NamedTuple):
    """What :class:`ticdc_lab.dispatch.whatif.WhatIf` holds, in its order."""

    lanes: Mapping[str, Lane]
    lo_ms: int
    width_ms: float
    note: str
    together: Mapping[str, Sequence[str]]


def measured(
    events: DataFrame | StoredEvents, catalog: Catalog | None, candidates: Candidates, *, conflict_at: Sequence[int],
    buckets: int, max_tables: int,
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
    found = at_once(grouped_by(rows, ["lane"], swept(plan), SWEPT, order=_ORDER), SWEPT)
    by_lane = {n: lane_of(f) for n, f in zip(*(found[c].to_pylist() for c in ("lane", "facts")), strict=True)}
    lanes = _with_keys(events, {names[n]: by_lane[n] for n in sorted(by_lane)})
    if catalog is None:
        lanes = {name: replace(lane, has_catalog=False) for name, lane in lanes.items()}
    others = [".".join(t) for t in list(numbers)[max_tables:]]
    return Measured(lanes, lo_ms, width, note if undated else "", {names[-1]: sorted(others)} if others else {})


def _inventory(events: DataFrame | StoredEvents) -> tuple[dict[TableName, int], int, tuple[int, int]]:
    """Dated row events per table, the number of those without commit_ts or table, and the first and last commit_ts."""
    tables: dict[TableName, int] = {}
    n, span = 0, list[int]()
    rows = changes_in(events, _SPAN.names[:3], _counted, _SPAN)
    for r in at_once(mapped(rows, lambda batches: batches, _SPAN), _SPAN).to_pylist():
        n += r["n"] + r["undated"]
        if r["n"] and r["schema_name"] is not None and r["table_name"] is not None:  # avro has deletes that name none
            table = r["schema_name"], r["table_name"]
            tables[table] = tables.get(table, 0) + r["n"]
            span += [r["commit_ts"], r["last_ts"]]
    return tables, n - sum(tables.values()), (min(span, default=0), max(span, default=0))


_SPAN = pa.schema([
    ("schema_name", pa.string()), ("table_name", pa.string()),
    *[(name, pa.int64()) for name in ("commit_ts", "last_ts", "n", "undated")],
])  # fmt: skip


def _counted(rows: pa.Table) -> pa.Table:
    counts = [("commit_ts", "count", pc.CountOptions(mode=mode)) for mode in ("only_valid", "only_null")]
    of = [("commit_ts", "min", None), ("commit_ts", "max", None), *counts]
    found = rows.group_by(["schema_name", "table_name"], use_threads=False).aggregate(of)
    return found.rename_columns(_SPAN.names)


def _lane_names(tables: Sequence[TableName], most: int) -> list[str]:
    own = [".".join(t) for t in tables[:most]]
    others = len(tables) - len(own)
    return own if not others else [*own, f"({others:,} smaller tables)"]


def _narrow(
    events: DataFrame | StoredEvents, candidates: Candidates, *, catalog: Catalog | None,
    numbers: Mapping[TableName, int], lanes: int,
) -> DataFrame | MadeByWorkers:  # fmt: skip
    """Row changes as numbers: all that is shuffled."""
    form = pa.schema([*NARROW, *[(f"h{s}", pa.int64()) for s in range(candidates.slots)]])
    numbering, keys = Numbering(catalog, candidates), UniqueKeys(catalog)
    known = Answers(catalog, lambda table: HashedColumns())

    def narrowed(rows: pa.Table) -> pa.Table:
        names = zip(rows["schema_name"].to_pylist(), rows["table_name"].to_pylist(), strict=True)
        table = np.array([numbers.get(name, -1) for name in names], dtype=np.int32)
        counted = (table >= 0) & np.asarray(rows["commit_ts"].is_valid())
        rows, table = rows.filter(pa.array(counted)).combine_chunks(), table[counted]
        if not len(rows):
            return form.empty_table()
        own, in_catalog = keys.of(rows.to_batches()[0]), np.zeros(len(rows), dtype=bool)
        for alike in Alike.among(rows):
            for which, answer in known.at(alike):
                in_catalog[alike.at[which]] = answer is not None
        ranks = pc.index_in(rows["op"], pa.array([*OP_RANK])).fill_null(OP_RANK["insert"])
        found = {
            "lane": np.minimum(table, lanes - 1), "table_id": table,
            "op_rank": pc.if_else(pc.equal(rows["kind"], "ddl"), DDL_RANK, ranks), "identity": row_ids(rows),
            "has_key": rows["key_hash"].is_valid(), "key_hash": own["own_key"], "uniques": own["uniques"],
            "carried": own["not_carried"].is_null(), "in_catalog": in_catalog,
            "row_bytes": rows["row_bytes"].fill_null(0),
        } | numbering.of(rows)  # fmt: skip
        return pa.table([found[f.name] if f.name in found else rows[f.name] for f in form], names=form.names)

    read = ("partition", "offset", "seq", *NUMBERED, *KEYS.names, "row_bytes")
    return changes_in(events, read, narrowed, form, kinds=("row", "ddl"))


def _with_keys(events: DataFrame | StoredEvents, lanes: Mapping[str, Lane]) -> dict[str, Lane]:
    """Lanes with the keys of the changes that they show."""
    shown = [lane.evidence[:, at : at + 3] for lane in lanes.values() for at in (0, 4)]
    places = np.unique(np.concatenate(shown), axis=0) if shown else np.zeros((0, 3), dtype=np.int64)
    if not len(places):
        return dict(lanes)

    def keyed(rows: pa.Table) -> pa.Table:
        own = np.column_stack([np.asarray(rows[c].fill_null(-1)).astype(np.int64) for c in _PLACE.names[:3]])
        near = np.isin(own[:, 1], places[:, 1])  # few have such an offset
        at = np.flatnonzero(near)[[tuple(place) in wanted for place in own[near].tolist()]]
        rows = rows.take(pa.array(at)).combine_chunks()
        laid = laid_out_of(rows.to_batches()[0]) if len(rows) else None
        texts = pa.array([], pa.string()) if laid is None else pc.if_else(
            pc.equal(rows["op"], "delete"), key_texts(laid.before), key_texts(laid.after)
        )  # fmt: skip
        names = pc.binary_join_element_wise(*(rows[c].cast(pa.string()) for c in ("schema_name", "table_name")), ".")
        return rows.select(_PLACE.names[:3]).append_column("table", names).append_column("key", texts)

    wanted = set(map(tuple, places.tolist()))
    read = (*_PLACE.names[:3], "schema_name", "table_name", "op", "columns", "before")
    found = at_once(mapped(changes_in(events, read, keyed, _PLACE), lambda batches: batches, _PLACE), _PLACE)
    keys: dict[str, dict[tuple[int, int, int], str | None]] = {name: {} for name in lanes}
    others = [*lanes][-1]  # of tables that have no lane of their own
    for r in found.to_pylist():
        of, place = keys[r["table"] if r["table"] in lanes else others], (r["partition"], r["offset"], r["seq"])
        of[place] = r["key"] or None if of.get(place, r["key"]) == r["key"] else None  # two topics have the place
    return {name: replace(lane, keys=keys[name]) for name, lane in lanes.items()}


_PLACE = pa.schema([
    ("partition", pa.int32()), ("offset", pa.int64()), ("seq", pa.int32()),
    ("table", pa.string()), ("key", pa.string()),
])  # fmt: skip
