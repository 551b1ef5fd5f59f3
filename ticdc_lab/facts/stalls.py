"""Where a topic's resolved_ts stalled, in all partitions or in one, and what was written meanwhile.

A partition's watermarks are a ladder of rising values. Between two rungs lies a stall where they are far apart: in
event time, which every log has, or in the broker's time, where the recording kept it. A value that other partitions
state in between shows that they continued.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_lab.engine.shuffle import Kernel, at_once, by_key, by_key_beside, grouped_by, in_one
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.arrays import (
    NO_TS,
    Batches,
    Bools,
    Ints,
    changes_in,
    nullable,
    seconds,
    timestamps,
    whole_keys,
)
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.events.tso import physical_ms, tso_words
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.places import table_names
from ticdc_lab.facts.schemas import GROUPS, RUNGS, arrow_of, together
from ticdc_lab.facts.watermarks import IS_ROW, STALL_S, by_watermark
from ticdc_lab.words import count

if TYPE_CHECKING:
    import pandas as pd

    from ticdc_lab.sources.stored import StoredEvents

STALL = ("topic", "held_ts", "next_ts", "everywhere", "is_stall")
"""What names a step between watermarks: it may be a stall in one partition and none in another."""


BIG_ROWS = 1_000
"""A transaction of as many rows between two watermarks is a big one."""

ARRIVED = arrow_of("topic string, partition int, offset bigint, arrived_us bigint")
"""When a message arrived at the broker."""


def stall_causes(
    events: DataFrame, *, stall_s: float = STALL_S, big_rows: int = BIG_ROWS, arrivals: DataFrame | None = None,
    shorter: bool = False,
) -> DataFrame:  # fmt: skip
    """Give every stretch in which a log's resolved_ts stalled, and what may have held it.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``start_ts``, ``schema_name``, ``table_name``, ``query`` and the position columns of
        the events contract.
    stall_s
        Seconds between two rungs, by event time or by the broker's, above which the step is a stall.
    big_rows
        As :data:`BIG_ROWS`.
    arrivals
        ``topic``, ``partition``, ``offset``, ``timestamp`` (the broker's time; null where it is not known), such as
        :data:`ticdc_lab.events.schema.MESSAGES`. Without it a watermark that stalled and then caught up in small steps
        cannot be seen: event time has no gap there.
    shorter
        Whether each shorter step is a row, too, whose ``is_stall`` is false.

    Returns
    -------
    DataFrame
        A row a stall. ``topic``; ``held_ts``, ``next_ts`` (TSO; null where the log ends); ``everywhere`` (no partition
        stated a value in between); ``partitions`` (array<int>: where it stalled); ``steps_of_others``; ``step_s``
        (double, event time); ``since``, ``until`` (timestamp, broker) and ``stood_s`` (double), null without arrivals;
        ``n_repeats`` (how often ``held_ts`` was stated again, in the partition that did so most), ``n_regressed``
        (lower values stated meanwhile); and of rows between both rungs, of these partitions: ``n_rows``,
        ``n_replayed`` (at or below held_ts), ``n_above`` (above it), ``n_beyond`` (above next_ts too),
        ``tables`` (array<string>), ``first`` (struct<commit_ts, table>: the lowest above held_ts),
        ``newest_commit_ts``, ``biggest`` (struct<rows, commit_ts>: the transaction with most rows), ``longest``
        (struct<start_ts, commit_ts>: the one above held_ts that lasted longest; null where the protocol keeps no
        start_ts); ``ddl`` (the statement at whose commit_ts the watermark stalled; null without a DDL); ``causes``
        (``array<struct<cause, says, cannot_tell>>``, at least one, the strongest first); ``is_stall``. Of the causes:

        - ``ddl-barrier``: a DDL has exactly this commit_ts; no watermark passes it until it is executed.
        - ``long-transaction``: one began at the standing watermark and was committed after it, for longer than a stall.
        - ``restart``: lower watermarks or older rows came meanwhile: something began again from its checkpoint.
        - ``partition-silent``: others stated watermarks in between.
        - ``big-transaction``: rows of one commit_ts lie between both watermarks.
        - ``rows-went-on``: rows above the standing watermark came, so pullers and some sinks worked.
        - ``silence``: nothing came.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream: whether a watermark still stands is known only when the next one came.

    References
    ----------
    MQ design, "CDC Owner 逻辑" (DDL when the resolved ts equals its FinishedTS); architecture model, section 5.
    """
    require_columns(events, "kind", "commit_ts", "start_ts", "schema_name", "table_name", "query", *POSITION)
    require_batch(events, function="stall_causes", why="a watermark counts until the next one comes")
    timed = by_watermark(events).withColumn("arrived_us", F.lit(None).cast("bigint"))
    if arrivals is not None:
        require_columns(arrivals, *PARTITION, "offset", "timestamp", frame="arrivals")
        at = F.expr("unix_micros(timestamp)").alias("arrived_us")
        times = arrivals.select(*PARTITION, F.col("offset").alias("_offset"), at)
        timed = timed.drop("arrived_us").join(times, [*PARTITION, "_offset"], "left")

    def far_rungs(groups: Batches) -> Batches:
        whole = together(groups, GROUPS + ", arrived_us bigint")
        known = whole.filter(pc.and_(pc.is_valid(whole["_offset"]), pc.is_valid(whole["arrived_us"])))
        came = known.select([*PARTITION, "_offset", "arrived_us"]).rename_columns(ARRIVED.names)
        yield from rungs_of(LogFacts.of_groups(whole), came, stall_s=stall_s, shorter=shorter).to_batches()

    def kernel(beside: pa.Table) -> Kernel:
        is_ddl = pc.is_null(beside["n_rows"])
        ddl = beside.filter(is_ddl).select(["topic", "held_ts", "query"])
        written = beside.filter(pc.invert(is_ddl)).select(_WRITTEN.names)
        return _stalls_in(written, ddl.rename_columns(_DDL), stall_s=stall_s, big_rows=big_rows)

    rungs = in_one(timed, far_rungs, RUNGS)
    written = by_key(_between(events, rungs), [*STALL, "commit_ts"], sums_in, from_arrow_schema(_WRITTEN))
    as_written = [f"CAST(NULL AS {t}) AS {n}" for n, t in written.dtypes if n not in STALL[:2]]
    ddl = events.where("kind = 'ddl' AND commit_ts IS NOT NULL")
    stated = ddl.selectExpr("topic", "commit_ts AS held_ts", *as_written, "query")
    beside = written.withColumn("query", F.lit(None).cast("string")).unionAll(stated)
    return by_key_beside(rungs, STALL, kernel, from_arrow_schema(_STALLS), beside=beside)


def _between(events: DataFrame, rungs: DataFrame) -> DataFrame:
    """Row changes between both rungs (:data:`_IN_STALL`)."""
    places = rungs.select(*STALL, F.col("partition").alias("_partition"), "held_offset", "next_offset")
    places = F.broadcast(places.withColumnRenamed("topic", "_topic"))
    table = F.concat_ws(".", "schema_name", "table_name")
    rows = events.where(IS_ROW).select(*PARTITION, "offset", "commit_ts", "start_ts", table.alias("table"))
    here = (F.col("topic") == F.col("_topic")) & (F.col("partition") == F.col("_partition"))
    here &= F.col("offset") > F.col("held_offset")
    here &= F.col("next_offset").isNull() | (F.col("offset") < F.col("next_offset"))
    return rows.join(places, on=here).select(*_IN_STALL.names)


def stalls_of(files: StoredEvents, facts: LogFacts, *, stall_s: float, shorter: bool, arrivals: pa.Table) -> pa.Table:
    """:func:`stall_causes` of events in files, at once.

    ``facts`` were gathered of them. ``arrivals``: when watermarks arrived at the broker, :data:`ARRIVED`.
    """
    gaps = rungs_of(facts, arrivals, stall_s=stall_s, shorter=shorter)
    if not len(gaps):
        return _STALLS.empty_table()
    by_home = gaps.sort_by([("topic", "ascending"), ("partition", "ascending"), ("held_offset", "ascending")])
    home_at, begin = facts.home_of(by_home), by_home["held_offset"].to_numpy()
    end, begins = timestamps(by_home["next_offset"]), _places(home_at, begin, every := np.unique(begin))

    def between(rows: pa.Table) -> pa.Table:
        home, offset = facts.home_of(rows), np.asarray(rows["offset"].fill_null(-1))
        nth = np.searchsorted(begins, _places(home, offset, every)) - 1  # the last rung that lies before it
        inside = (nth >= 0) & (home_at[nth] == home) & ((end[nth] == NO_TS) | (offset < end[nth]))
        rows, gap = rows.filter(pa.array(inside)), by_home.take(pa.array(nth[inside]))
        names = table_names(*(rows[c].cast(pa.string()).combine_chunks() for c in ("schema_name", "table_name")))
        columns = {c: gap[c] for c in STALL} | {c: rows[c] for c in ("commit_ts", "start_ts")} | {"table": names}
        return pa.table(columns).select(_IN_STALL.names).cast(_IN_STALL)

    read = (*PARTITION, "offset", "commit_ts", "start_ts", "schema_name", "table_name")
    written = grouped_by(files.rows(read, between, _IN_STALL), [*STALL, "commit_ts"], sums_in, _WRITTEN)
    dated = facts.ddl.filter(pc.is_valid(facts.ddl["commit_ts"])).select(_DDL)
    kernel = _stalls_in(at_once(written, _WRITTEN), dated, stall_s=stall_s, big_rows=BIG_ROWS)
    return at_once(grouped_by(gaps, STALL, kernel, _STALLS), _STALLS)


@dataclass(frozen=True, slots=True)
class SentAgain:
    """Row changes that came again between a watermark and ``next_ts``: how many, and where the first lies."""

    next_ts: int | None
    n: int
    partition: int
    offset: int

    @property
    def words(self) -> str:
        """As the begin of a sentence."""
        return f"{count(self.n, 'row')} (the first: partition {self.partition} offset {self.offset})"


SENT = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("seq", pa.int32()),
                   *[(c, pa.int64()) for c in ("commit_ts", "key_hash", "change_hash")]])  # fmt: skip


def sent_again(rows: pd.DataFrame, facts: LogFacts) -> dict[tuple[str, int], SentAgain]:
    """Row changes that their topic had before, by topic and the watermark after which they came; rows without a key are
    not compared, as two of one transaction may be equal. ``rows``: :data:`SENT`.
    """
    each = rows.dropna().drop_duplicates([*POSITION]).sort_values([*POSITION])
    twice = each[each.duplicated(["topic", "commit_ts", "change_hash"])]
    rungs = rungs_of(facts, ARRIVED.empty_table(), stall_s=STALL_S, shorter=True)
    by_stall: dict[tuple[str, int], SentAgain] = {}
    if twice.empty or not len(rungs):
        return by_stall
    begins: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for rung in rungs.select([*PARTITION, "held_offset", "held_ts", "next_ts"]).sort_by("held_offset").to_pylist():
        begins.setdefault((rung["topic"], rung["partition"]), []).append(rung)
    for topic, partition, offset in twice[[*PARTITION, "offset"]].itertuples(index=False):
        rungs_before = begins.get((topic, partition), [])
        if nth := bisect_left(rungs_before, offset, key=lambda rung: rung["held_offset"]):
            stall, next_ts = (topic, rungs_before[nth - 1]["held_ts"]), rungs_before[nth - 1]["next_ts"]
            one = by_stall.setdefault(stall, SentAgain(next_ts, 0, int(partition), int(offset)))
            by_stall[stall] = replace(one, n=one.n + 1)
    return by_stall


def _places(home: Ints, offset: Ints, among: Ints) -> Ints:
    """Partition and offset as one number, rising with both: offsets by their rank, as a folder's are above 2**40."""
    return home * (len(among) + 1) + np.searchsorted(among, offset)


def rungs_of(facts: LogFacts, arrivals: pa.Table, *, stall_s: float, shorter: bool) -> pa.Table:
    """Rungs of each partition that are far from the next one, in event time or in the broker's.

    ``arrivals``: :data:`ARRIVED`, of some messages. ``shorter``: all other rungs, too. Returns:
    :data:`ticdc_lab.facts.schemas.RUNGS`: what :func:`stall_causes` gives for each partition, and both offsets.
    """
    marks = facts.watermarks.each_place()
    arrived = np.full(len(marks), NO_TS)
    if len(arrivals):
        home, offset, us = facts.home_of(arrivals), arrivals["offset"].to_numpy(), timestamps(arrivals["arrived_us"])
        order, every = np.lexsort((offset, home)), np.unique(np.concatenate([marks.offset, offset]))
        known = pa.array(_places(home[order], offset[order], every))
        at = pc.index_in(pa.array(_places(marks.home, marks.offset, every)), known)
        arrived = np.where(at.is_valid(), us[order][np.asarray(at.fill_null(0))], NO_TS)
    ends = facts.of_kind("row", "watermark").group_by(["topic"]).aggregate([("last_ts", "max")])
    end_of = dict(zip(ends["topic"].to_pylist(), ends["last_ts_max"].to_pylist(), strict=True))
    ladder, whole = _ladder(facts, arrived), []
    topic_of = np.array([t for t, _ in facts.homes], dtype=object)
    for topic in dict.fromkeys(t for t, _ in facts.homes):
        own = ladder.filter(pa.array(topic_of[ladder["home"].to_numpy()] == topic))
        if own.num_rows:
            named = _far(own.append_column("topic", pa.array([topic] * own.num_rows)), end_of[topic], stall_s)
            whole.append(named if shorter else named.filter(named["is_stall"]))
    names = arrow_of(RUNGS).names
    return pa.concat_tables([t.select(names).cast(arrow_of(RUNGS)) for t in whole]) if whole else (
        arrow_of(RUNGS).empty_table()
    )  # fmt: skip


def _ladder(facts: LogFacts, at: Ints) -> pa.Table:
    """The rungs of all partitions, each with the next one: where it was first stated, and what came before the next."""
    marks = facts.watermarks.each_place()
    before = marks.highest_before()
    held = np.maximum(marks.ts, before)
    first = np.flatnonzero(changes_in(marks.home, held)) if len(held) else np.empty(0, dtype=np.int64)
    home = marks.home[first]
    last = ~np.append(home[1:] == home[:-1], False)[: len(home)]

    def following(values: Ints) -> pa.Array:
        return nullable(np.where(last, NO_TS, np.append(values[1:], NO_TS)[: len(values)]))

    def counted(which: Bools) -> pa.Array:
        return pa.array(np.add.reduceat(which.astype(np.int64), first) if len(first) else first)

    return pa.table({
        "home": pa.array(home),
        "partition": facts.names(home)[1],
        "held_ts": pa.array(held[first]),
        "next_ts": following(held[first]),
        "held_offset": pa.array(marks.offset[first]),
        "next_offset": following(marks.offset[first]),
        "since_us": nullable(at[first]),
        "until_us": following(at[first]),
        "n_repeats": counted(marks.ts == before),
        "n_regressed": counted(marks.ts < before),
    })  # fmt: skip


def _far(ladder: pa.Table, end_ts: int, stall_s: float) -> pa.Table:
    """The rungs of a topic: which are far from the next, and how many steps other partitions took meanwhile."""
    held, following = ladder["held_ts"].to_numpy(), timestamps(ladder["next_ts"])
    steps = np.unique(held)
    step = np.searchsorted(steps, held)
    others = np.where(following == NO_TS, len(steps), np.searchsorted(steps, following)) - step - 1
    since, until = timestamps(ladder["since_us"]), timestamps(ladder["until_us"])
    timed = (since != NO_TS) & (until != NO_TS)
    step_s, stood_s = seconds(held, np.where(following == NO_TS, end_ts, following)), (until - since) / 1e6
    far = (step_s > stall_s) | (timed & (stood_s > stall_s))
    rungs = ladder.append_column("steps_of_others", pa.array(others.astype(np.int32)))
    rungs = rungs.append_column("everywhere", pa.array(others == 0)).append_column("step_s", pa.array(step_s))
    rungs = rungs.append_column("stood_s", pa.array(stood_s, mask=~timed))
    return rungs.append_column("is_stall", pa.array(far))


_NAMED = [("topic", pa.string()), ("held_ts", pa.int64()), ("next_ts", pa.int64()), ("everywhere", pa.bool_()),
          ("is_stall", pa.bool_())]  # fmt: skip
_IN_STALL = pa.schema([*_NAMED, ("commit_ts", pa.int64()), ("start_ts", pa.int64()), ("table", pa.string())])
_COUNTS = ("n_rows", "n_replayed", "n_above", "n_beyond")
_FIRST = pa.struct([("commit_ts", pa.int64()), ("table", pa.string())])
_BIGGEST = pa.struct([("rows", pa.int64()), ("commit_ts", pa.int64())])
_LONGEST = pa.struct([("start_ts", pa.int64()), ("commit_ts", pa.int64())])
_OF_ROWS: list[tuple[str, pa.DataType]] = [
    *[(name, pa.int64()) for name in _COUNTS], ("tables", pa.list_(pa.string())), ("first", _FIRST),
    ("newest_commit_ts", pa.int64()), ("biggest", _BIGGEST), ("longest", _LONGEST),
]  # fmt: skip
_WRITTEN = pa.schema([*_NAMED, *_OF_ROWS])
_OF_RUNGS: list[tuple[str, pa.DataType]] = [
    ("partitions", pa.list_(pa.int32())), ("steps_of_others", pa.int32()), ("step_s", pa.float64()),
    ("since", pa.timestamp("us", tz="UTC")), ("until", pa.timestamp("us", tz="UTC")), ("stood_s", pa.float64()),
    ("n_repeats", pa.int64()), ("n_regressed", pa.int64()),
]  # fmt: skip
_CAUSES = pa.list_(pa.struct([(name, pa.string()) for name in ("cause", "says", "cannot_tell")]))
_STALLS = pa.schema([*_NAMED, *_OF_RUNGS, *_OF_ROWS, ("ddl", pa.string()), ("causes", _CAUSES)])
_DDL = ["topic", "commit_ts", "query"]
_AT_ONCE = 1 << 16


def sums_in(batches: Batches) -> Batches:
    """What was written in each stall (:data:`_WRITTEN`), of rows of whole transactions (:data:`_IN_STALL`)."""
    by_stall: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rows in whole_keys(batches, [*STALL, "commit_ts"], at_once=_AT_ONCE):
        each = rows.group_by([*STALL, "commit_ts"], use_threads=False).aggregate(
            [([], "count_all"), ("start_ts", "min"), ("table", "min"), ("table", "distinct")]
        )
        for stall, ts, n, start, table, tables in zip(*_columns(each), strict=True):
            above, beyond = (bound is not None and ts is not None and ts > bound for bound in (stall[1], stall[2]))
            long = above and start is not None
            one = {
                "n_rows": n, "n_replayed": 0 if above or ts is None else n, "n_above": n * above,
                "n_beyond": n * beyond, "tables": [t for t in tables if t is not None],
                "first": {"commit_ts": ts, "table": table} if above else None, "newest_commit_ts": ts,
                "biggest": {"rows": n, "commit_ts": ts},
                "longest": {"start_ts": start, "commit_ts": ts} if long else None,
            }  # fmt: skip
            by_stall[stall] = one if stall not in by_stall else _joined(by_stall[stall], one)
    sums = [dict(zip(STALL, stall, strict=True)) | one for stall, one in by_stall.items()]
    yield from pa.Table.from_pylist(sums, _WRITTEN).to_batches()


def _columns(each: pa.Table) -> list[list[Any]]:
    stalls = list(zip(*[each[c].to_pylist() for c in STALL], strict=True))
    names = ("commit_ts", "count_all", "start_ts_min", "table_min", "table_distinct")
    return [stalls, *[each[c].to_pylist() for c in names]]


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What two parts of the rows of a stall are together."""
    both = [one, other]

    def best(name: str, rank: Callable[[dict[str, Any]], Any]) -> Any:
        return max((of[name] for of in both if of[name] is not None), key=rank, default=None)

    return {name: one[name] + other[name] for name in _COUNTS} | {
        "tables": sorted({*one["tables"], *other["tables"]}),
        "first": best("first", lambda f: -f["commit_ts"]),
        "newest_commit_ts": max((t for of in both if (t := of["newest_commit_ts"]) is not None), default=None),
        "biggest": best("biggest", lambda t: (t["rows"], t["commit_ts"] is not None, t["commit_ts"] or 0)),
        "longest": best("longest", lambda t: (t["commit_ts"] - t["start_ts"], t["commit_ts"])),
    }


def _stalls_in(written: pa.Table, ddl: pa.Table, *, stall_s: float, big_rows: int) -> Kernel:
    """Rungs of all partitions to stalls, with what was written meanwhile, the DDL (:data:`_DDL`) and the causes."""
    by_stall: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in written.to_pylist():
        stall = tuple(part.pop(c) for c in STALL)
        by_stall[stall] = part if stall not in by_stall else _joined(by_stall[stall], part)
    stopped_at: dict[tuple[Any, int], str] = {}
    for topic, ts, query in zip(*[ddl[c].to_pylist() for c in _DDL], strict=True):
        for ts_at in (ts, ts - 1):  # the checkpoint is at it, or just below
            stated = [q for q in (query, stopped_at.get((topic, ts_at))) if q]
            stopped_at[topic, ts_at] = min(stated, default="")

    def run(rungs: Batches) -> Batches:
        for some in whole_keys(rungs, STALL, at_once=_AT_ONCE):
            by_name: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
            for r in some.to_pylist():
                by_name.setdefault(tuple(r[c] for c in STALL), []).append(r)
            stalls = [_stall(n, each, by_stall.get(n)) | {"ddl": stopped_at.get(n[:2])} for n, each in by_name.items()]
            each = [s | {"causes": causes_of(s, stall_s=stall_s, big_rows=big_rows)} for s in stalls]
            yield from pa.Table.from_pylist(each, _STALLS).to_batches()

    return run


def _stall(stall: tuple[Any, ...], rungs: list[dict[str, Any]], rows: dict[str, Any] | None) -> dict[str, Any]:
    stretch: dict[str, Any] = {"partitions": sorted({r["partition"] for r in rungs})}
    for name, _ in _OF_RUNGS[1:]:
        of = f"{name}_us" if name in ("since", "until") else name
        known = [r[of] for r in rungs if r[of] is not None]
        stretch[name] = (min if name in ("since", "until") else max)(known, default=None)
    meanwhile = dict.fromkeys(_COUNTS, 0) if rows is None else rows | {"tables": sorted(rows["tables"])}
    return dict(zip(STALL, stall, strict=True)) | stretch | meanwhile


# Why a recorded log's resolved_ts stalled, as far as shown, and what is unknown. TiCDC's owner broadcasts its
# checkpoint_ts to every partition, where it is the resolved_ts. A log shows rows, DDL and watermarks, and no locks,
# regions or processors: each cause is a candidate with what supports it, the strongest first. In a simulated run
# nothing is hidden (:mod:`ticdc_lab.simulate.pipeline.why`).

_NEAR_S = 1.0
"""So near to the standing watermark a transaction has begun that may have held it."""

CAUSES = (
    "ddl-barrier", "long-transaction", "restart", "partition-silent", "big-transaction", "rows-went-on", "silence",
)  # fmt: skip
"""Names of causes, the strongest evidence first."""


def causes_of(stall: dict[str, Any], *, stall_s: float = STALL_S, big_rows: int = BIG_ROWS) -> list[dict[str, str]]:
    """What may have held one stall, the strongest first: a row of :func:`stall_causes`.

    Examples
    --------
    >>> nothing = {"n_rows": 0, "n_replayed": 0, "n_above": 0, "n_regressed": 0, "n_repeats": 0, "everywhere": True}
    >>> [c["cause"] for c in causes_of(nothing)]
    ['silence']
    """
    return [
        {"cause": name, "says": says, "cannot_tell": CANNOT_TELL[name]}
        for name, says in (
            ("ddl-barrier", _barrier(stall)),
            ("long-transaction", _long(stall, stall_s)),
            ("restart", _restart(stall)),
            ("partition-silent", _others(stall)),
            ("big-transaction", _big(stall, big_rows)),
            ("rows-went-on", _went_on(stall)),
            ("silence", _silence(stall)),
        )
        if says
    ]


RESTART = "restart"
CANNOT_TELL = {
    "ddl-barrier": "whether it waited for tables to reach the DDL or for the DDL to be executed",
    "long-transaction": "for how much of this time the transaction held locks",
    "restart": "whether the owner, a capture or the whole changefeed restarted, and why",
    "partition-silent": (
        "whether the producer, the broker or the recording lost these watermarks; the owner sends them to all"
    ),
    "big-transaction": "how long its prewrites took upstream, and how long the sink",
    "rows-went-on": (
        "which table held it: one with late rows, one with a stuck sink, or one without rows whose region was "
        "locked, scanned or without a leader"
    ),
    "silence": "whether upstream was idle, or the owner, the sink or the recording stopped",
}


def _barrier(stall: dict[str, Any]) -> str:
    ddl = stall.get("ddl")
    return "" if ddl is None else f"it stopped at the commit_ts of a DDL: {ddl or 'its statement is not in the log'}"


def _long(stall: dict[str, Any], stall_s: float) -> str:
    longest = stall.get("longest")
    if longest is None or longest["start_ts"] is None:
        return ""
    began, ended = longest["start_ts"], longest["commit_ts"]
    long_s = _lag_s(began, ended)
    if abs(_lag_s(began, stall["held_ts"])) > _NEAR_S or long_s <= stall_s:
        return ""
    return f"a transaction began at {began}, where it stopped, and was committed {long_s:.3f} s later, at {ended}"


def _restart(stall: dict[str, Any]) -> str:
    of = {"lower watermark": stall["n_regressed"], "row": stall["n_replayed"]}
    came = [count(n, noun) for noun, n in of.items() if n]
    return f"{' and '.join(came)} at or below it came meanwhile" if came else ""


def _others(stall: dict[str, Any]) -> str:
    if stall["everywhere"]:
        return ""
    return f"the other partitions received {count(stall['steps_of_others'], 'watermark')} meanwhile"


def _big(stall: dict[str, Any], big_rows: int) -> str:
    big = stall.get("biggest")
    if big is None or big["rows"] < big_rows:
        return ""
    n = stall["n_rows"]
    return f"{big['rows']} of {n} rows between both watermarks are of one transaction, {tso_words(big['commit_ts'])}"


def _went_on(stall: dict[str, Any]) -> str:
    if not stall["n_above"]:
        return ""
    ahead_s, first = _lag_s(stall["held_ts"], stall["newest_commit_ts"]), stall["first"]
    above = f"a commit_ts up to {ahead_s:.3f} s above this watermark"
    rows = f"{count(stall['n_above'], 'row')} with {above} came meanwhile"
    works = "so pullers and some sinks worked, and the changefeed ran"
    return f"{rows}, {works}; the lowest is of {first['table']} at {tso_words(first['commit_ts'])}{_repeats(stall)}"


def _silence(stall: dict[str, Any]) -> str:
    quiet = not stall["n_rows"] and stall["everywhere"]
    if not quiet or stall.get("next_ts", 0) is not None:
        return f"no row and no other watermark came{_repeats(stall)}" if quiet else ""
    return f"the log ends with it; the newest row, to which the time is measured, came before it{_repeats(stall)}"


def _repeats(stall: dict[str, Any]) -> str:
    """The owner lives where it states its checkpoint again."""
    n = stall["n_repeats"]
    return f"; it was stated {count(n, 'time')} more, so the owner ran" if n else ""


def _lag_s(since: int, until: int) -> float:
    return (physical_ms(until) - physical_ms(since)) / 1000
