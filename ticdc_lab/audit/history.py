"""Every row's changes in commit order, with what the log had promised before each: one shuffle by the row's key.

All guarantees about rows read this view; the rows of a sound log never leave its first stage. Spark brings the changes
of a row together and sorts by row, which spills where memory is short; Python then holds some whole rows at a time
(:mod:`ticdc_lab.audit.judge`). A row is held whole, and its judging takes some 600 bytes a change: one row that
changed a million times, such as a counter, needs 600 MB in one task, and cannot be split.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.chain import ABSENT, SOME, UNKNOWN
from ticdc_lab.audit.judge import COLUMNS, NO_TS, Changes, suspects
from ticdc_lab.audit.marks import NAMES, log_facts, place_col
from ticdc_lab.audit.promises import Promises, numbers
from ticdc_lab.keys import with_image_hashes, with_keys
from ticdc_lab.prefix import POSITION
from ticdc_lab.schema import IMAGE_HASHES, KEYS, require_batch, require_columns
from ticdc_lab.transactions import op_rank

ROWS_AT_ONCE = 1 << 17
"""Changes that a task judges at once: some ten MB."""

_MARK = "struct<offset: bigint, seq: int, ts: bigint>"
_HISTORY = f"""
topic string, schema_name string, table_name string, partition int, place bigint, offset bigint, seq int,
commit_ts bigint, change_hash bigint, row_id bigint, keyed boolean, leaves boolean, resolved {_MARK}, ddl {_MARK},
is_first boolean,
home struct<
    place: bigint, topic: string, partition: int, offset: bigint, seq: int, commit_ts: bigint, change_hash: bigint
>,
former struct<place: bigint, topic: string, partition: int, offset: bigint, seq: int, commit_ts: bigint>,
is_first_here boolean, count bigint,
late struct<offset: bigint, seq: int, commit_ts: bigint, partition: int>,
broken struct<place: bigint, topic: string, partition: int, offset: bigint, seq: int, commit_ts: bigint>,
how int, covered boolean
"""

Batches = Iterator[pa.RecordBatch]


def row_history(events: DataFrame, *, has_commit_ts: bool = True, chunk: int = ROWS_AT_ONCE) -> DataFrame:
    """Changes of the rows that may break a guarantee, each with its surroundings.

    Parameters
    ----------
    events
        The events contract; images only where the hash columns are missing.
    has_commit_ts
        False for canal-json without the TiDB extension: nothing orders changes then, and each delivery is a change.
    chunk
        Changes that a task judges at once; changes nothing but its memory.

    Returns
    -------
    DataFrame
        ``topic``, ``partition``, ``schema_name``, ``table_name``, ``place`` (bigint, names those four), ``offset``,
        ``seq``, ``commit_ts``, ``change_hash``, ``row_id`` (bigint), ``keyed`` (false: a table without key, ``row_id``
        stands for the change's content), ``leaves`` (true: the old key of an update that changes it), ``resolved`` and
        ``ddl`` (struct: the mark before it that forbids it), ``is_first`` (the delivery that counts), ``home`` (struct
        of the same columns: the change before, or for a repeat its first delivery), ``former`` and ``is_first_here``
        (the same two between the Admin events that surround it), ``count`` (bigint: the partitions that count here,
        where this one is not among them), ``late`` (struct: an older change that first appears later in this
        partition), ``broken`` (struct: the row's former change, where that does not leave what this one found), ``how``
        (int, :data:`ticdc_lab.audit.chain.IS_GONE` and its neighbours), ``covered`` (false: another partition, which
        may hold what is between them, was not recorded then). Changes that give no guarantee a reason are left out.
    """
    require_columns(events, "kind", "commit_ts", "op", "query", *NAMES, *POSITION)
    require_batch(events, function="audit", why="a row may change again at any later offset")
    promises = log_facts(events).mapInArrow(_promises, "promises binary").scalar()
    # the first row of each task carries them: this is how a broadcast reaches Python
    is_first = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1)) == 0
    return (
        _changes(events)
        .repartition("row_id")
        .sortWithinPartitions("row_id")
        .withColumn("promises", F.when(is_first, promises))
        .mapInArrow(_judge(has_commit_ts=has_commit_ts, at_once=chunk), _HISTORY)
    )


def _changes(events: DataFrame) -> DataFrame:
    """One narrow row per row event, two for an update that changes its key: these numbers are all that is shuffled."""
    keyed = events if set(KEYS.names) <= set(events.columns) else with_keys(events)
    keyed = _with_images(keyed)
    own, old = F.coalesce("key_hash", "change_hash"), F.col("before_key_hash")
    rank = F.when(F.col("_old") == 1, 0).otherwise(op_rank() + 1)
    return (
        keyed.where("kind = 'row'")
        .select(
            *("offset", "change_hash", "op", "seq", "before_key_hash", *IMAGE_HASHES.names),
            *(("incomplete",) if "incomplete" in keyed.columns else ()),
            place_col().alias("place"),
            F.coalesce("commit_ts", F.lit(NO_TS)).alias("commit_ts"),
            F.posexplode(F.when(old.isNull(), F.array(own)).otherwise(F.array(own, old))).alias("_old", "row_id"),
        )
        .withColumn("role", F.col("seq").cast("bigint") * 4 + rank)
        .transform(lambda rows: rows.withColumns({"before": _state_before(rows), "after": _state_after()}))
        .select(*COLUMNS)
    )


def _with_images(events: DataFrame) -> DataFrame:
    """Events with the hashes of their images; null where these cannot be had."""
    if {"columns", "before"} <= set(events.columns):
        return with_image_hashes(events)
    missing = {n: F.lit(None).cast("bigint") for n in IMAGE_HASHES.names if n not in events.columns}
    return events.withColumns(missing)


def _state_before(events: DataFrame) -> Column:
    """What a change found of its row (:data:`ticdc_lab.audit.chain.ABSENT` or a hash).

    An update without an old image may be an insert (mq-v1 does not tell).
    """
    unsure = F.col("incomplete") == "op-unknown" if "incomplete" in events.columns else F.lit(False)
    found = F.coalesce("before_hash", F.when(F.col("op") == "update", UNKNOWN).otherwise(SOME))
    takes = F.col("before_key_hash").isNotNull() & (F.col("_old") == 0)
    inserted = F.when(F.coalesce(unsure, F.lit(False)), UNKNOWN).otherwise(ABSENT)
    return F.when(takes, ABSENT).when(F.col("op") == "insert", inserted).otherwise(found)


def _state_after() -> Column:
    leaves = (F.col("_old") == 1) | (F.col("op") == "delete")
    return F.when(leaves, ABSENT).otherwise(F.coalesce("after_hash", F.lit(SOME)))


def _promises(batches: Batches) -> Batches:
    held = list(batches)
    if held:
        whole = pickle.dumps(Promises.read(pa.Table.from_batches(held)), protocol=5)
        yield pa.RecordBatch.from_pydict({"promises": pa.array([whole], pa.binary())})


def _judge(*, has_commit_ts: bool, at_once: int) -> Callable[[Batches], Batches]:
    """Judge whole rows from batches that are sorted by row."""

    def run(batches: Batches) -> Batches:
        promises: Promises | None = None
        held: list[Changes] = []
        size, most = 0, at_once
        for batch in batches:
            if promises is None:
                promises = pickle.loads(batch["promises"][0].as_py())
            held.append(Changes(*numbers(batch, *COLUMNS)))
            size += len(batch)
            if size >= most:
                whole = _together(held)
                end = int(np.searchsorted(whole.row_id, whole.row_id[-1]))
                held, size = [whole[end:]], len(whole) - end
                most = max(at_once, 2 * size)
                yield from _found(whole[:end], promises)
        if promises is not None:
            yield from _found(_together(held), promises)

    def _found(changes: Changes, promises: Promises) -> Batches:
        found = suspects(changes, promises, has_commit_ts=has_commit_ts) if len(changes) else None
        if found is not None:
            yield found

    return run


def _together(held: list[Changes]) -> Changes:
    return Changes(*[np.concatenate([getattr(c, name) for c in held]) for name in COLUMNS])
