"""Why a delivery is odd: episodes of repeats, what is written out of order, and what was lost."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.audit.findings import FOUND, FOUND_DDL, WARNING, RowFindings, Sentences, as_table, sentence
from ticdc_lab.audit.guarantees.marks import holes
from ticdc_lab.audit.history import Shown, Suspects
from ticdc_lab.audit.history import judged as rows_judged
from ticdc_lab.audit.marks import log_marks
from ticdc_lab.audit.stated import Stated
from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.engine.shuffle import by_key
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.arrays import NO_TS, Batches, Bools, Ints, changes_in, numbers, partitions_in, runs
from ticdc_lab.events.changes import row_id
from ticdc_lab.events.ddl import blocked_tables
from ticdc_lab.events.schema import KEYS, require_batch, require_columns

KINDS = RESTART, TABLE, DDL = "replay of a restart", "replay of a table", "replay around a DDL"

AT_ONCE = 1 << 17
"""Deliveries that a task judges at once, and whole stretches of repeats."""

NEEDED = ("kind", "commit_ts", "op", "query", "schema_name", "table_name", *POSITION)
_DELIVERY = """
topic string, partition int, kind int, offset bigint, seq int, commit_ts bigint, identity bigint, nth bigint,
first_offset bigint, table string, key_hash bigint, query string, schema_name string, table_name string
"""
_REPEAT = _DELIVERY + ", from_offset bigint, checkpoint bigint, pending bigint, restated boolean, blocked array<string>"
_NAMED = ("query", "schema_name", "table_name")
_EPISODE = (*PARTITION, "from_offset", "checkpoint", "pending", "restated")


def delivery_episodes(events: DataFrame) -> DataFrame:
    """Stretches of repeats: where each lies, how far back it went, and why.

    Parameters
    ----------
    events
        The events contract.

    Returns
    -------
    DataFrame
        One row per stretch in a partition: ``topic``, ``partition``, ``from_offset``, ``to_offset``, ``checkpoint``
        (bigint: the highest watermark of the partition below all that was repeated; null without one),
        ``from_commit_ts``, ``to_commit_ts``, ``n_changes`` (bigint: rows and DDL), ``tables`` (array<string>, sorted;
        of a DDL its own), ``cause``, ``sentence``.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, *NEEDED)
    require_batch(events, function="delivery_episodes", why="a change may be delivered again at any later offset")
    one = ("tables", "cause", "sentence")
    return (
        judged(repeats_of(events))
        .drop("from_offset")
        .withColumnRenamed("episode", "from_offset")
        .groupBy(*PARTITION, "from_offset", "checkpoint", *one)
        .agg(
            F.max("to_offset").alias("to_offset"),
            F.min("from_commit_ts").alias("from_commit_ts"),
            F.max("to_commit_ts").alias("to_commit_ts"),
            F.sum("n_changes").alias("n_changes"),
        )
        .select(
            *(*PARTITION, "from_offset", "to_offset", "checkpoint", "from_commit_ts", "to_commit_ts", "n_changes"), *one
        )
    )


def repeats_of(events: DataFrame) -> DataFrame:
    """Repeats of rows and DDL in their partitions, each with its stretch: one shuffle by change, one by partition."""
    keyed = events.where("commit_ts IS NOT NULL")
    keyed = keyed if set(KEYS.names) <= set(events.columns) else with_keys(keyed)
    named = F.concat_ws(".", "schema_name", F.when(F.col("table_name") != "", F.col("table_name")))
    identity = F.xxhash64("kind", "schema_name", "table_name", "commit_ts", "op", "query", row_id())
    same = Window.partitionBy(*PARTITION, "identity").orderBy("offset", "seq")
    changes = keyed.where("kind IN ('row', 'ddl')").select(
        *PARTITION, F.lit(CHANGE).alias("kind"), "offset", "seq", "commit_ts", identity.alias("identity"),
        named.alias("table"), F.when(F.col("kind") == "row", row_id()).alias("key_hash"),
        *[F.when(F.col("kind") == "ddl", F.col(c)).alias(c) for c in _NAMED],
    )  # fmt: skip
    counted = changes.withColumns(
        {"nth": F.row_number().over(same).cast("bigint"), "first_offset": F.first("offset").over(same)}
    )
    marks = keyed.where("kind = 'watermark'").select(
        *PARTITION, "offset", "seq", "commit_ts", F.lit(WATERMARK).alias("kind"), F.lit(0).cast("bigint").alias("nth"),
        F.lit(0).cast("bigint").alias("identity"),
    )  # fmt: skip
    names = [c.split()[0] for c in _DELIVERY.split(",")]
    ordered = counted.unionByName(marks, allowMissingColumns=True).select(*names)
    return by_key(ordered, PARTITION, _judge, _REPEAT, order=("offset", "seq"))


def _judge(batches: Batches) -> Batches:
    """Repeats with their stretches, from batches that are sorted by partition and place."""
    held: list[pa.RecordBatch] = []
    before, size = PartitionBefore(), 0
    for batch in batches:
        for part in (batch[p] for p in (partitions_in(batch, None)[0] if len(batch) else ())):
            if held and any(held[-1][c][-1].as_py() != part[c][0].as_py() for c in PARTITION):
                yield from _found(pa.Table.from_batches(held), before)
                held, before, size = [], PartitionBefore(), 0
            held.append(part)
            size += len(part)
            if size >= AT_ONCE:
                whole = pa.Table.from_batches(held).combine_chunks()
                d = _numbers(whole)
                end = cut(d, before)
                yield from _found(whole[:end], before)
                before, held, size = before.then(d[:end]), whole[end:].to_batches(), whole.num_rows - end
    if held:
        yield from _found(pa.Table.from_batches(held), before)


def _found(whole: pa.Table, before: PartitionBefore) -> Batches:
    for e in episodes(_numbers(whole), before):
        own = whole.take(pa.array(e.at)).combine_chunks()
        n = own.num_rows
        checkpoint = pa.array(np.full(n, e.checkpoint), mask=np.full(n, e.checkpoint == NO_TS))
        more = {
            "from_offset": pa.array(np.full(n, own["offset"][0].as_py())),
            "checkpoint": checkpoint,
            "pending": pa.array(np.full(n, e.pending)),
            "restated": pa.array(np.full(n, e.restated)),
            "blocked": _blocked(own),
        }
        for name, column in more.items():
            own = own.append_column(name, column)
        yield from own.to_batches()


def _blocked(own: pa.Table) -> pa.Array:
    """Tables that each DDL blocks; null for rows."""
    each = zip(*[own[c].to_pylist() for c in ("key_hash", "schema_name", "table_name", "query")], strict=True)
    found = [
        [".".join(n for n in table if n is not None) for table in blocked_tables(*ddl)] if key_hash is None else None
        for key_hash, *ddl in each
    ]
    return pa.array(found, pa.list_(pa.string()))


def _numbers(whole: pa.Table) -> Deliveries:
    return Deliveries.read(whole.select(["kind", "offset", "commit_ts", "identity", "nth"]))


def judged(repeats: DataFrame) -> DataFrame:
    """One row a stretch, with its cause: what partitions repeat after one checkpoint belongs together.

    ``episode`` is the first offset of the stretches that are one: other changes come between a table's own.
    """
    is_row = F.col("blocked").isNull()
    each = repeats.groupBy(*_EPISODE).agg(
        F.max("offset").alias("to_offset"),
        F.min("commit_ts").alias("from_commit_ts"),
        F.max("commit_ts").alias("to_commit_ts"),
        F.count(F.lit(1)).alias("n_changes"),
        F.min("nth").alias("times"),
        F.count_distinct("identity").alias("own"),
        F.sort_array(F.collect_set("table")).alias("tables"),
        F.collect_set(F.when(is_row, F.col("table"))).alias("of_rows"),
        F.flatten(F.collect_set("blocked")).alias("of_ddl"),
    )
    beside = Window.partitionBy("topic", "checkpoint")
    seen = {
        "all_tables": F.array_distinct(F.flatten(F.collect_set("of_rows").over(beside))),
        "all_ddl": F.array_distinct(F.flatten(F.collect_set("of_ddl").over(beside))),
        "left_out": F.max(F.col("own") < F.col("pending")).over(beside),
    }
    only_ddl = F.size("of_rows") == 0
    around = only_ddl | ((F.size("of_rows") == 1) & F.exists("all_ddl", lambda table: table == F.get("of_rows", 0)))
    cause = (
        F.when((F.size("all_tables") > 1) & ~F.col("left_out"), RESTART)
        .when(around, DDL)
        .when((F.size("of_rows") > 1) | (F.col("restated") & ~F.col("left_out")), RESTART)
        .otherwise(TABLE)
    )
    alone = Window.partitionBy(*PARTITION, "checkpoint", "tables", "times", "cause")
    start = F.when(F.col("cause") == TABLE, F.min("from_offset").over(alone)).otherwise(F.col("from_offset"))
    judged = each.withColumns(seen).withColumn("cause", cause)
    return judged.withColumns({"sentence": _sentence(), "episode": start})


def _sentence() -> Column:
    back = F.when(F.col("checkpoint").isNull(), "to the beginning").otherwise(
        text("to the checkpoint ", F.col("checkpoint"))
    )
    what = (
        F.when(F.col("cause") == RESTART, "the changefeed restarted: what the partitions had got since was sent again")
        .when(F.col("cause") == DDL, "a DDL of the table was sent again with what preceded it")
        .otherwise("the table was sent again alone, as when it moves or its processor dies")
    )
    return text(what, ", back ", back)


def text(*parts: Column | str) -> Column:
    """A sentence from literal text and columns; a null reads ``?``."""
    return F.concat(*[F.lit(p) if isinstance(p, str) else F.coalesce(p.cast("string"), F.lit("?")) for p in parts])


# Stretches of repeats in the order of a partition, in numbers: where each begins, and what it was sent again for. A
# producer that lost its place goes back to a checkpoint and sends on from there. In the partition that is a stretch of
# nothing but repeats. It ends with the first new change, when the watermark rises, or when a change comes once more.

WATERMARK, CHANGE = 0, 1
COLUMNS = ("kind", "offset", "commit_ts", "identity", "nth")
"""``nth`` is 1 for the first delivery of an ``identity`` in its partition; of a watermark only ``commit_ts`` counts."""


@dataclass(frozen=True)
class Deliveries:
    """Changes and watermarks of one partition in order."""

    kind: Ints
    offset: Ints
    commit_ts: Ints
    identity: Ints
    nth: Ints

    def __getitem__(self, which: Any) -> Deliveries:
        return Deliveries(*[getattr(self, c)[which] for c in COLUMNS])

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def read(cls, batch: pa.RecordBatch) -> Self:
        """The same of a batch."""
        return cls(*numbers(batch, *COLUMNS))


@dataclass(frozen=True)
class Episode:
    """One stretch of repeats."""

    at: Ints  # which deliveries it is
    checkpoint: int  # the highest watermark below all that it repeats; NO_TS where there was none
    # Changes above the highest watermark, sent before it: what a producer without its place must send again.
    pending: int
    restated: bool  # a watermark that had been stated was stated again just before it


@dataclass(frozen=True)
class PartitionBefore:
    """The partition's past: its rising watermarks, and commit_ts of changes above the highest."""

    watermarks: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    open: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def highest(self) -> int:
        """The highest watermark."""
        return int(self.watermarks[-1]) if len(self.watermarks) else NO_TS

    def then(self, d: Deliveries) -> PartitionBefore:
        """The same after more deliveries."""
        stated = d.commit_ts[d.kind == WATERMARK]
        risen = np.unique(np.maximum.accumulate(np.append(self.highest, stated)))
        marks = np.append(self.watermarks, risen[risen > self.highest])
        sent = np.append(self.open, d.commit_ts[_is_first(d)])
        after = replace(self, watermarks=marks)
        return replace(after, open=sent[sent > after.highest])


def episodes(d: Deliveries, before: PartitionBefore) -> Iterator[Episode]:
    """All stretches of repeats of one partition, or of a part that ends at :func:`cut`."""
    again = np.flatnonzero((d.kind == CHANGE) & (d.nth > 1))
    if not len(again):
        return
    stated, fresh = np.flatnonzero(d.kind == WATERMARK), np.flatnonzero(_is_first(d))
    highest = np.maximum.accumulate(np.where(d.kind == WATERMARK, d.commit_ts, before.highest))
    ends = _ends(d, highest, before)
    rising = np.flatnonzero(ends & (d.kind == WATERMARK))
    stretch: Ints = np.cumsum(ends, dtype=np.int64)
    number = _times(stretch[again], d.identity[again])
    for part in runs(stretch[again], number):
        at = again[part]
        start, top = int(at[0]), int(highest[at[0]])
        known = np.append(before.watermarks, d.commit_ts[rising[: np.searchsorted(rising, start)]])
        below = int(np.searchsorted(known, d.commit_ts[at].min()))
        sent = fresh[: np.searchsorted(fresh, start)]
        pending = np.count_nonzero(d.commit_ts[sent] > top) + np.count_nonzero(before.open > top)
        last = stated[np.searchsorted(stated, start) - 1] if len(stated) and stated[0] < start else -1
        earlier = highest[last - 1] if last > 0 else before.highest
        restated = last > (sent[-1] if len(sent) else -1) and earlier == top != NO_TS
        yield Episode(at, int(known[below - 1]) if below else NO_TS, int(pending), bool(restated))


def cut(d: Deliveries, before: PartitionBefore) -> int:
    """Up to where deliveries can be judged without later ones: no stretch of repeats extends beyond it."""
    highest = np.maximum.accumulate(np.where(d.kind == WATERMARK, d.commit_ts, before.highest))
    ends = np.flatnonzero(_ends(d, highest, before))
    return int(ends[-1]) if len(ends) else 0


def _is_first(d: Deliveries) -> Bools:
    first: Bools = (d.kind == CHANGE) & (d.nth == 1)
    return first


def _ends(d: Deliveries, highest: Ints, before: PartitionBefore) -> Bools:
    """What ends a stretch of repeats: a new change, or a watermark above all before it."""
    return _is_first(d) | (highest > np.append(before.highest, highest[:-1]))


def _times(stretch: Ints, identity: Ints) -> Ints:
    """How often a change of the stretch had come once more, up to each repeat in it."""
    order = np.lexsort((np.arange(len(identity)), identity, stretch))
    own, of = identity[order], stretch[order]
    new = changes_in(own, of)
    at = np.arange(len(own))
    times = np.empty(len(own), dtype=np.int64)
    times[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    span = len(own) + 1
    highest: Ints = np.maximum.accumulate(stretch * span + times) - stretch * span
    return highest


# Why a delivery is odd: sent again, by which kind of restart; written out of order; or what preceded it was lost.

REORDERED, LOST = "reordered by the producer", "lost"
CAUSES = (*KINDS, REORDERED, LOST)


def delivery_causes(events: DataFrame) -> DataFrame:
    """Explain every delivery that is a repeat, comes late or does not follow from what came before.

    Parameters
    ----------
    events
        The events contract; images only where the hash columns are missing. Rows without commit_ts are left out:
        nothing orders them.

    Returns
    -------
    DataFrame
        ``topic``, ``table`` (string: ``schema.table``), ``key_hash``, ``commit_ts``, ``partition``, ``offset``,
        ``seq``, ``cause`` (string, of :data:`CAUSES`), ``from_offset`` (bigint: first message of the episode, see
        :func:`ticdc_lab.consumer.episodes.delivery_episodes`; null unless it is a repeat), ``message`` (string) and
        ``evidence`` (:data:`ticdc_lab.events.schema.EVIDENCE`, the messages that show it):

        - ``replay of a restart``: sent again with all that its partitions had got since a checkpoint.
        - ``replay of a table``: sent again alone, as when a table moves or its processor dies.
        - ``replay around a DDL``: sent again with a DDL of its table.
        - ``reordered by the producer``: a first delivery behind a newer change of its row, or behind a watermark above
          it; both arrive.
        - ``lost``: the row's former change does not lead to it, so that one between them is missing (or wrong); or the
          offsets before it are missing, without table and key.

        What is delivered again in another partition is no replay; the audit names it.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    Two equal rows of one transaction in a table without key look like one row delivered twice.

    References
    ----------
    MQ design, "CDC Processor 异常下线" and "Table 迁移"; TiCDC's source (what is sent again).
    """
    require_columns(events, *NEEDED)
    require_batch(events, function="delivery_causes", why="a change may be delivered again at any later offset")
    repeats = repeats_of(events)
    known = judged(repeats).select(*PARTITION, "from_offset", "episode", "cause", "sentence")
    replayed = repeats.join(F.broadcast(known), on=[*PARTITION, "from_offset"]).drop("from_offset")
    replayed = replayed.withColumnRenamed("episode", "from_offset")
    own = F.struct("partition", "offset", "commit_ts")
    first = F.struct("partition", F.col("first_offset").alias("offset"), "commit_ts")
    said = replayed.select(
        *_named(),
        "cause",
        "from_offset",
        text("first delivered at offset ", F.col("first_offset"), "; ", F.col("sentence")).alias("message"),
        F.array(first, own).alias("evidence"),
    )
    marks = log_marks(events, protocol="")
    return said.unionByName(_by_row(events, marks)).unionByName(_holes(marks))


def _by_row(events: DataFrame, marks: DataFrame) -> DataFrame:
    """First deliveries that come late, and changes that the row's former change does not lead to."""
    beside = marks.select("promises")
    found = rows_judged(events, lambda *_: _odd_deliveries, FOUND_DDL, beside=beside, has_commit_ts=True)
    named = found.drop("cause").selectExpr("*", "guarantee AS cause", "row_id AS key_hash")
    # a change that is behind a newer one and a watermark is late once
    best = named.groupBy(*POSITION, "table", "key_hash", "commit_ts", "cause").agg(
        F.max_by(F.struct("message", "evidence"), F.col("message")).alias("m")
    )
    return best.selectExpr(*_named(), "cause", "CAST(NULL AS BIGINT) AS from_offset", "m.message", "m.evidence")


def _odd_deliveries(s: Suspects) -> pa.RecordBatch:
    resolved = s.promises.resolved
    late = np.flatnonzero(s.keyed & (s.late >= 0))
    newer = sentence("first delivered behind the row's newer change of commit_ts ", s.c.commit_ts[late])
    marked = np.flatnonzero(s.keyed & s.first & (s.resolved >= 0))
    behind = marked[s.c.commit_ts[marked] < resolved.ts[s.resolved[marked]]]
    mark = s.resolved[behind]
    below = sentence("first delivered behind the watermark ", resolved.ts[mark])
    torn = np.flatnonzero(s.keyed & (s.broken >= 0))
    lost = sentence(
        "it does not follow from the row's former change in the log, of commit_ts ", s.c.commit_ts[s.broken[torn]],
        ": a change between them was never delivered, or one of them is wrong",
    )  # fmt: skip
    each = [
        _said(REORDERED, s, late, s.late[late], newer, [s.change(late), s.change(s.late[late])]),
        _said(REORDERED, s, behind, behind, below, [
            s.mark(behind, resolved, mark), s.change(behind)]),
        _said(LOST, s, torn, torn, lost, [s.change(s.broken[torn]), s.change(torn)]),
    ]  # fmt: skip
    return pa.concat_batches([b for t in each for b in t.to_batches()] or [pa.RecordBatch.from_pylist([], FOUND)])


def _said(cause: str, s: Suspects, by: Ints, at: Ints, message: Sentences, shown: Sequence[Shown]) -> pa.Table:
    return as_table(cause, RowFindings(by, at, np.full(len(at), WARNING), message, shown), s)


def _holes(marks: DataFrame) -> DataFrame:
    """What offsets prove to be missing, at the first message behind each partition's first hole."""
    found = marks.select("facts").mapInArrow(_missing, FOUND_DDL)
    none = {"key_hash": "bigint", "from_offset": "bigint"}
    missing = found.withColumns({c: F.lit(None).cast(t) for c, t in none.items()})
    return missing.select(*_named(), F.lit(LOST).alias("cause"), "from_offset", "message", "evidence")


def _missing(batches: Batches) -> Batches:
    for batch in batches:
        for facts in batch["facts"]:
            found = [
                {
                    "topic": hole.home.topic,
                    **hole.high,
                    "message": f"{hole.n} message{'s' * (hole.n != 1)} before it missing from the log, in "
                    f"{hole.stretches} range{'s' * (hole.stretches != 1)} of offsets",
                    "evidence": [hole.low, hole.high],
                }
                for hole in holes(Stated.read(pickle.loads(facts.as_py()), protocol=""))
            ]
            yield pa.RecordBatch.from_pylist(found, schema=FOUND)


def _named() -> tuple[str, ...]:
    return ("topic", "table", "key_hash", "commit_ts", "partition", "offset", "seq")
