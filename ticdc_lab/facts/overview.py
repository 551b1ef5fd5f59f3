"""What a log contains, its DDL, its watermarks along the topic's own axis, and its rows over time, as small frames.

The rows over time are of the heaviest partitions and tables, counted in a second pass when the log's extent is
known. Rows that no watermark has resolved are counted by table, of the rows above those watermarks alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_lab.events.arrays import NO_TS, Batches, Ints, timestamps
from ticdc_lab.events.tso import LOGICAL_BITS, physical_ms
from ticdc_lab.facts.gathering import PLACE
from ticdc_lab.facts.known import LogFacts, numbers_of
from ticdc_lab.facts.laggards import by_topic, stands_at
from ticdc_lab.facts.places import index_of, place_col, with_places
from ticdc_lab.facts.schemas import STATEMENTS, STEPS, arrow_of
from ticdc_lab.facts.watermarks import IS_ROW, rhythm_of, tables_of, timeline_of, unresolved_s

LISTED = 200
"""Most entries of a list that a person reads."""

HELD = 20_000
"""Most groups that :func:`contents_of` counts."""


def contents_of(facts: LogFacts, *, most: int = HELD) -> pa.Table:
    """What the log contains: ``n`` events per ``topic, partition, schema_name, table_name, kind, op``, most first."""
    found = facts.places.select([*PLACE, "n"])
    order = pc.sort_indices(found, [("n", "descending", "at_start"), *[(c, "ascending", "at_start") for c in PLACE]])
    return found.take(order[:most])


def ddl_of(facts: LogFacts, *, most: int = LISTED) -> pa.Table:
    """DDL events, each once: ``commit_ts, schema_name, table_name, ddl_type, query, partitions`` (array<int>), in order
    of commit_ts and of the first event.
    """
    by = ("commit_ts", "schema_name", "table_name", "ddl_type", "query")
    partitions: dict[tuple[object, ...], set[int]] = {}
    for *said, partition in zip(*[facts.ddl[c].to_pylist() for c in (*by, "partition")], strict=True):
        partitions.setdefault(tuple(said), set()).add(partition)
    first = sorted(partitions, key=lambda said: (said[0] is not None, said[0] or 0))  # events are in order of place
    rows = [dict(zip(by, said, strict=True)) | {"partitions": sorted(partitions[said])} for said in first[:most]]
    return pa.Table.from_pylist(rows, arrow_of(STATEMENTS))


def steps_of(stated: pa.Table, *, most: int = 500) -> pa.Table:
    """Where partitions stand along the topic's own axis, its distinct values in order
    (:func:`ticdc_lab.facts.laggards.values_of`).

    Returns: ``topic, partition, step`` (from 1: the value's place), ``step_ts`` (the value), ``resolved_ts`` (the
    greatest that the partition states up to it; no row before its first), ``steps_total`` (distinct values of the
    topic). Where a topic has more steps than ``most``, some are chosen: the first and the last, both ends of the
    longest gap, of partitions that hold the topic back the steps at which they begin, lag most and end, the farthest
    behind first and as many as fit, and others evenly. So no lag or gap becomes another one.
    """
    found = [arrow_of(STEPS).empty_table()]
    for topic, values in by_topic(stated):
        steps = np.unique(np.concatenate(list(values.values())))
        stands = np.array([stands_at(own, steps) for own in values.values()])
        at = _told(steps, stands, most)
        partition = np.repeat(list(values), len(at))
        step, resolved = np.tile(at, len(values)), stands[:, at].ravel()
        order = np.lexsort((partition, step))
        order = order[resolved[order] != NO_TS]
        of = {"topic": pa.array([topic] * len(order), pa.string()), "partition": partition[order],
              "step": step[order] + 1, "step_ts": steps[step[order]], "resolved_ts": resolved[order],
              "steps_total": np.full(len(order), len(steps))}  # fmt: skip
        found.append(pa.table(of).cast(arrow_of(STEPS)))
    return pa.concat_tables(found)


def _told(steps: Ints, stands: Ints, most: int) -> Ints:
    """The places of the steps that :func:`steps_of` chooses; at most half of ``most`` are of partitions behind."""
    total = len(steps)
    if total <= most:
        return np.arange(total)
    lag = np.where(stands == NO_TS, np.iinfo(np.int64).max, steps - stands)
    behind = (lag > 0) & (lag == lag.max(axis=0))
    spans = set[tuple[int, int, int, int]]()  # partitions that are behind alike are one
    for own, late in zip(behind, lag, strict=True):
        edges = np.flatnonzero(np.diff(own.astype(np.int8), prepend=0, append=0))
        for low, high in edges.reshape(-1, 2).tolist():
            finite = np.where(late[low:high] == np.iinfo(np.int64).max, -1, late[low:high])
            spans.add((-int(late[low:high].max()), low, low + int(finite.argmax()), min(high, total - 1)))
    gap = int(np.diff(steps).argmax())
    kept = [gap, gap + 1, *(at for _, *span in sorted(spans)[: max(1, most // 6)] for at in span)]
    evenly = np.linspace(0, total - 1, max(2, most - len({*kept}))).round().astype(np.int64)
    return np.unique(np.concatenate([evenly, kept]))


def incidents_of(facts: LogFacts, *, most: int = LISTED) -> pa.Table:
    """Watermarks of :func:`ticdc_lab.facts.watermarks.watermark_timeline` that regressed or came after a stall, in
    order of partition and offset. A stall is what is long for this log (:class:`ticdc_lab.facts.watermarks.Rhythm`).
    """
    marks = timeline_of(facts, stall_s=rhythm_of(facts).stall_s)
    return marks.filter(pc.or_(marks["regressed"], marks["stalled"]))[:most]


BUCKETS = 48
"""Stretches of equal length."""

LANES = 40
"""Most partitions, or tables, whose load is drawn."""

HOME, TABLE = ("topic", "partition"), ("schema_name", "table_name")
_LANES = ("home", "table")
LOAD = arrow_of("what string, number bigint, n bigint")
"""What is counted of a log for :class:`Load`."""

Name = tuple[object, object]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Partitions or tables with a row: first the ``drawn`` heaviest in order of their names, then the others.

    ``total``: how many there are, with partitions that have no row.
    """

    by: tuple[str, str]
    names: tuple[Name, ...]
    drawn: int
    total: int

    @classmethod
    def heaviest(cls, rows: pa.Table, by: tuple[str, str], most: int, *, total: int = 0) -> Self:
        """With most rows first; ``total`` where there are more without rows."""
        n = rows.group_by(list(by), use_threads=False).aggregate([("n", "sum")])
        order = [("n_sum", "descending", "at_start"), *[(c, "ascending", "at_start") for c in by]]
        n = n.take(pc.sort_indices(n, order))
        drawn, others = n[:most], n[most:]
        every = pa.concat_tables([drawn.take(pc.sort_indices(drawn, order[1:])), others])
        names = tuple(zip(*[every[c].to_pylist() for c in by], strict=True))
        return cls(by, names, len(drawn), max(total, len(names)))

    @property
    def slots(self) -> int:
        """How many sums: of each lane that is drawn one a stretch, of each other one."""
        return self.drawn * BUCKETS + len(self.names) - self.drawn

    def slot(self, lane: Ints, bucket: Ints) -> Ints:
        """Which sum a row counts to."""
        return np.where(lane < self.drawn, lane * BUCKETS + bucket, self.drawn * (BUCKETS - 1) + lane)


@dataclass(frozen=True, slots=True)
class Measure:
    """What a second pass counts: rows of lanes by stretch.

    Stretches are of time (the TSO's physical part), or of offsets where no row has a commit_ts.
    """

    timed: bool
    low: int
    width: float
    lanes: tuple[Lanes, Lanes]
    places: Ints
    """Numbers of the places with a row (:mod:`ticdc_lab.facts.places`), rising."""
    of_place: Mapping[str, Ints]
    """Of each the lane of its partition (``home``) and of its ``table``, or -1."""

    @classmethod
    def of(cls, facts: LogFacts, *, most: int = LANES) -> Self:
        """The one that a log's facts ask for."""
        rows = facts.of_kind("row")
        lanes = Lanes.heaviest(rows, HOME, most, total=len(facts.homes)), Lanes.heaviest(rows, TABLE, most)
        places, each = _places_with_a_row(rows)
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
            lanes=lanes,
            places=places,
            of_place={of: numbers_of(each, own.by, own.names) for of, own in zip(_LANES, lanes, strict=True)},
        )

    @property
    def read(self) -> tuple[str, ...]:
        """What it reads of a row beside its place."""
        return ("commit_ts",) if self.timed else ("commit_ts", "offset")

    def counted(self, rows: Batches) -> Batches:
        """Sums over batches of rows (``place`` and :attr:`read`), and nothing else of them."""
        sums = self.nothing()
        for batch in rows:
            self._add(batch, sums)
        for what, n in sums.items():
            at = np.flatnonzero(n)
            of = {"what": pa.array([what] * len(at), pa.string()), "number": pa.array(at), "n": pa.array(n[at])}
            yield pa.RecordBatch.from_pydict(of)

    def nothing(self) -> dict[str, Ints]:
        """Sums over no rows."""
        return {of: np.zeros(own.slots, np.int64) for of, own in zip(_LANES, self.lanes, strict=True)}

    def _add(self, rows: pa.RecordBatch, sums: dict[str, Ints]) -> None:
        place, ts = index_of(rows["place"].to_numpy(), self.places), timestamps(rows["commit_ts"])
        at = ts >> LOGICAL_BITS if self.timed else rows["offset"].to_numpy()
        bucket = np.minimum(np.floor((at - self.low) / self.width), BUCKETS - 1).astype(np.int64)
        placed = (ts != NO_TS) if self.timed else np.ones(len(ts), dtype=bool)
        for what, lanes in zip(_LANES, self.lanes, strict=True):
            slot = lanes.slot(self.of_place[what][place], bucket)
            sums[what] += np.bincount(slot[placed], minlength=len(sums[what]))


def _places_with_a_row(rows: pa.Table) -> tuple[Ints, pa.Table]:
    """Their numbers, rising, and an entry of each."""
    places, first = np.unique(rows["place"].to_numpy(), return_index=True)
    return places, rows.take(pa.array(first))


@dataclass(frozen=True, slots=True)
class Load:
    """What :class:`Measure` found in a whole log."""

    measure: Measure
    sums: dict[str, Ints]

    @classmethod
    def of(cls, facts: LogFacts, events: pa.Table, *, most: int = LANES) -> Self:
        """The same of events in Arrow's form, without any session."""
        measure, rows = Measure.of(facts, most=most), events.filter(pc.equal(events["kind"], "row"))
        narrow = with_places(rows).select(["place", *measure.read])
        return cls.read(measure, pa.Table.from_batches(measure.counted(iter(narrow.to_batches())), LOAD))

    @classmethod
    def read(cls, measure: Measure, counted: pa.Table) -> Self:
        """Put together what the tasks counted."""
        sums = measure.nothing()
        for what, total in sums.items():
            own = counted.filter(pc.equal(counted["what"], what))
            np.add.at(total, own["number"].to_numpy(), own["n"].to_numpy())
        return cls(measure, sums)

    def rows_of_each(self, what: str) -> Ints:
        """The rows of every partition (``home``) or table, also of partitions without any."""
        lanes, sums = self.measure.lanes[what == "table"], self.sums[what]
        whole = lanes.drawn * BUCKETS
        of_drawn = sums[:whole].reshape(lanes.drawn, BUCKETS).sum(axis=1)
        return np.concatenate([of_drawn, sums[whole:], np.zeros(lanes.total - len(lanes.names), np.int64)])

    def over_time(self, what: str) -> pa.Table:
        """Rows of the heaviest partitions (``home``) or tables (``table``) over time.

        Returns: the lane's two names, ``bucket`` (from 0), ``from_ms`` and ``to_ms`` (physical time; null without
        commit_ts), ``n`` (rows), ``lanes_total`` (how many lanes there are, with partitions that have no row),
        ``rows_total`` (of them all).
        """
        lanes, m = self.measure.lanes[what == "table"], self.measure
        at = np.flatnonzero(self.sums[what][: lanes.drawn * BUCKETS])
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
            "rows_total": pa.array(np.full(len(at), self.sums[what].sum(), dtype=np.int64)),
        })  # fmt: skip


def counted_load(events: DataFrame, measure: Measure) -> DataFrame:
    """What the tasks count of a log for :meth:`Load.read`, some hundred rows each."""
    rows = events.where(IS_ROW).select(place_col().alias("place"), *measure.read)  # four names cost as much as all else
    return rows.mapInArrow(measure.counted, from_arrow_schema(LOAD))


@dataclass(frozen=True, slots=True)
class Unresolved:
    """What counts rows that no watermark has resolved, by table; facts show which tables have some."""

    tables: pa.Table
    """As :func:`ticdc_lab.facts.watermarks.tables_of`, in order of name."""
    places: Ints
    """Numbers of the places with a row, rising."""
    table: Ints
    """Of each which table it is."""

    @classmethod
    def of(cls, facts: LogFacts) -> Self:
        """The one that a log's facts ask for."""
        found, (places, each) = tables_of(facts.places), _places_with_a_row(facts.of_kind("row"))
        tables = found.take(pc.sort_indices(found, [(c, "ascending", "at_start") for c in TABLE]))
        names = list(zip(*[tables[c].to_pylist() for c in TABLE], strict=True))
        return cls(tables, places, numbers_of(each, TABLE, names))

    @property
    def above(self) -> int | None:
        """The commit_ts above which such rows are; None if all that are known are counted."""
        resolved, last = (timestamps(self.tables[c]) for c in ("resolved_ts", "last_commit_ts"))
        behind = resolved[(resolved != NO_TS) & (last > resolved)]
        return int(behind.min()) if len(behind) else None

    def counted(self, rows: Batches) -> Batches:
        """How many of batches of rows (``place, commit_ts``) are above their table's resolved_ts."""
        n, resolved = np.zeros(len(self.tables), dtype=np.int64), timestamps(self.tables["resolved_ts"])
        for batch in rows:
            of = self.table[index_of(batch["place"].to_numpy(), self.places)]
            n += np.bincount(of[timestamps(batch["commit_ts"]) > resolved[of]], minlength=len(n))
        yield pa.RecordBatch.from_pydict({"number": pa.array(np.arange(len(n))), "n": pa.array(n)})

    def read(self, counted: pa.Table | None) -> pa.Table:
        """As :func:`ticdc_lab.facts.watermarks.table_watermarks`, in order of name, from what the tasks counted."""
        n = np.zeros(len(self.tables), dtype=np.int64)
        if counted is not None:
            np.add.at(n, counted["number"].to_numpy(), counted["n"].to_numpy())
        of_all = pc.if_else(self.tables["resolved_ts"].is_null(), self.tables["n_rows"], pa.array(n))
        behind_s = unresolved_s(self.tables["last_commit_ts"], self.tables["resolved_ts"])
        return self.tables.append_column("unresolved_rows", of_all).append_column("unresolved_s", behind_s)


def counted_unresolved(events: DataFrame, unresolved: Unresolved) -> DataFrame | None:
    """What the tasks count of a log for :meth:`Unresolved.read`; None if facts show that there is nothing to do."""
    if (above := unresolved.above) is None:
        return None
    rows = events.where(IS_ROW).where(F.col("commit_ts") > above).select(place_col().alias("place"), "commit_ts")
    return rows.mapInArrow(unresolved.counted, "number bigint, n bigint")
