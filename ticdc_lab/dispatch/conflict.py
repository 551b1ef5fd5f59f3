"""Conflict-detection dispatch, which TiCDC's MQ design describes (冲突检测分发, footnote 6) and TiCDC does not have.

Changes are brought to one task a table, in commit order, as hashes and positions; Spark sorts them, and spills where
memory is short. The kernel (:mod:`ticdc_lab.dispatch.conflict_kernel`) sees each once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ticdc_lab.dispatch.conflict_kernel import (
    AT,
    BEFORE,
    BY_CONFLICT,
    DDL_RANK,
    HOME,
    KEY,
    MAX_KEYS,
    NUMBER,
    OTHER_AT,
    OTHER_BEFORE,
    OTHER_HOME,
    OTHER_KEY,
    REASON,
    REASONS,
    ROW,
    Placer,
    Unit,
    placed_batches,
)
from ticdc_lab.dispatch.unique_keys import with_unique_keys
from ticdc_lab.engine.columns import least
from ticdc_lab.engine.shuffle import Kernel, by_key
from ticdc_lab.errors import DispatchError
from ticdc_lab.events import POSITION
from ticdc_lab.events.arrays import Batches, Ints
from ticdc_lab.events.changes import op_rank, row_id
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog

PLACEMENTS = (
    "topic string, schema_name string, table_name string, commit_ts bigint, partition int, offset bigint, seq int, "
    "target_partition int, alignment bigint"
)

_NEEDED = ("kind", "commit_ts", "schema_name", "table_name", "op", "columns", "before", *POSITION)
_WHY = "what conflicts with a change may be anywhere before it"
_PLACES = ("topic", "schema_name", "table_name", "partition", "offset", "seq")
_ARRIVAL = ("partition", "offset", "seq", "topic")
_UNDATED = "the event has no commit_ts, by which conflict detection orders changes"


def conflict_placements(
    events: DataFrame,
    *,
    partitions: int,
    catalog: Catalog | None = None,
    unit: Unit = "transaction",
    max_keys: int = MAX_KEYS,
) -> DataFrame:
    """Place every row change by conflict detection.

    Parameters
    ----------
    events
        The events contract.
    partitions
        Number of partitions, N, at most :data:`ticdc_lab.dispatch.conflict_kernel.MAX_PARTITIONS`.
    catalog
        Gives the unique indexes beside the handle key. Values are compared as bytes and whole: under a
        case-insensitive collation, or a unique index over a prefix, more rows are equal than is seen here.
    unit
        ``transaction``: what a transaction changes in one table goes to one partition, so that it is never torn.
        ``row``: each row on its own, which is more even and aligns less often, but tears transactions.
    max_keys
        Above so many keys known of a table, and before and after a unit of more rows, an alignment is forced, to bound
        memory (about 100 MB a task for the default).

    Returns
    -------
    DataFrame
        ``topic, schema_name, table_name, commit_ts, partition, offset, seq`` of every delivery of a row change,
        ``target_partition`` (int) and ``alignment`` (bigint): how many barriers of its table precede it. Rows with
        the same key and the same ``alignment`` have the same target. A repeated delivery goes where its first went.
        Left out is what :func:`dispatch_by_conflict` gives a ``dispatch_error``.

    Raises
    ------
    DispatchError
        ``partitions`` or ``max_keys`` is out of range.
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    Where a unit goes depends on commit_ts and keys only, so neither on where the log had its rows, nor on files, nor on
    Spark's partitions.
    """
    run = _placing(partitions, unit, max_keys)
    return with_changes(events, run, PLACEMENTS, catalog=catalog, unit=unit, carry=_PLACES)


def with_changes(
    events: DataFrame,
    kernel: Kernel,
    schema: StructType | str,
    *,
    catalog: Catalog | None,
    unit: Unit = "transaction",
    carry: tuple[str, ...] = (),
    whole_order: bool = False,
) -> DataFrame:
    """Run a kernel over row changes and DDL as :func:`ticdc_lab.dispatch.conflict_kernel.placed_batches` wants them.

    ``events``, ``catalog``, ``unit``: as for :func:`conflict_placements`. ``kernel``, ``schema``: a function over Arrow
    batches, and what it yields. ``carry``: other columns of events to keep. ``whole_order``: whether changes of one
    transaction have an order too: delete, update, insert, then their position. Where a transaction goes does not need
    it, which alignments are shown by does. Returns: what the kernel yields. It sees ``table_id`` (bigint),
    ``commit_ts``, ``op_rank`` (int: delete 0, update 1, insert 2, DDL 3), ``key_hash`` and ``before_key_hash`` (bigint;
    null where there is none), ``uniques`` (array<bigint>, only where a table has unique indexes beside the handle key),
    for ``unit="row"`` ``identity`` (bigint), and ``carry``. Each table is in one task, sorted; by rows, repeats follow
    the first delivery there.
    """
    require_columns(events, *_NEEDED, *carry)
    require_batch(events, function="conflict detection", why=_WHY)
    rank = F.when(F.col("kind") == "ddl", DDL_RANK).otherwise(op_rank()).cast("int")
    keyed = events.where("kind IN ('row', 'ddl') AND commit_ts IS NOT NULL").transform(
        with_unique_keys, catalog=catalog
    )
    has_uniques = ("uniques",) if "uniques" in keyed.columns else ()
    by_row = unit == "row"
    identity = [row_id().alias("identity")] if by_row else []
    place = tuple(c for c in POSITION if c not in carry) if by_row or whole_order else ()
    narrow = keyed.where("not_carried IS NULL").select(
        *("table_id", "commit_ts"), rank.alias("op_rank"), F.col("own_key").alias("key_hash"),
        *("before_key_hash", *has_uniques), *identity, *carry, *place,
    )  # fmt: skip
    if not by_row and not whole_order:
        is_ddl = (F.col("op_rank") == DDL_RANK).cast("int")
        return by_key(narrow.withColumn("_is_ddl", is_ddl), "table_id", kernel, schema, order=("commit_ts", "_is_ddl"))
    order = ["commit_ts", "op_rank"]
    if by_row:
        window = Window.partitionBy("table_id", *order, "identity")
        narrow = narrow.withColumn("_first", least(*_ARRIVAL).over(window))
        narrow = narrow.select("*", *[F.col(f"_first.{c}").alias(f"_first_{c}") for c in _ARRIVAL]).drop("_first")
        order += [*[f"_first_{c}" for c in _ARRIVAL], "identity"]
    return by_key(narrow, "table_id", kernel, schema, order=(*order, *_ARRIVAL))


def dispatch_by_conflict(
    events: DataFrame,
    *,
    partitions: int,
    catalog: Catalog | None = None,
    unit: Unit = "transaction",
    max_keys: int = MAX_KEYS,
) -> DataFrame:
    """Add the partition that conflict detection chooses for every row change.

    Parameters as of :func:`conflict_placements`.

    Returns: events with ``target_partition`` (int), ``dispatch_key`` (string: ``schema.table``, as for ``table``,
    because no single value of a row decides), ``dispatch_error`` (string: why unknown; the others are null
    then) and ``alignment`` (bigint). All four are null unless ``kind`` is ``row``. Raises DispatchError, ContractError,
    StreamingError: as :func:`conflict_placements`.
    """
    placed = conflict_placements(events, partitions=partitions, catalog=catalog, unit=unit, max_keys=max_keys)
    # recordings may overlap: one position is there twice then, and its repeats go to the same place
    placed = placed.select(
        *[F.col(c).alias(f"_p_{c}") for c in POSITION], "target_partition", "alignment"
    ).dropDuplicates([f"_p_{c}" for c in POSITION])
    is_row = F.col("kind") == "row"
    undated = F.when(F.col("commit_ts").isNull(), _UNDATED)
    said = events.transform(with_unique_keys, catalog=catalog).select(
        *events.columns, F.when(is_row, F.coalesce(undated, "not_carried")).alias("dispatch_error")
    )
    key = F.concat("schema_name", F.lit("."), "table_name")
    good = is_row & F.col("dispatch_error").isNull()
    return said.join(placed, on=[F.col(c).eqNullSafe(F.col(f"_p_{c}")) for c in POSITION], how="left").select(
        *events.columns,
        F.when(good, F.col("target_partition")).alias("target_partition"),
        F.when(good, key).alias("dispatch_key"),
        "dispatch_error",
        F.when(good, F.col("alignment")).alias("alignment"),
    )


def _placing(partitions: int, unit: Unit, max_keys: int) -> Callable[[Batches], Batches]:
    require_choice(partitions, unit, max_keys)
    taken = ("topic", "schema_name", "table_name", "commit_ts", "partition", "offset", "seq")

    def run(batches: Batches) -> Batches:
        for rows, placed in placed_batches(batches, ns=(partitions,), unit=unit, max_keys=max_keys):
            found = rows.select(list(taken))
            found = found.append_column("target_partition", pa.array(placed.target[:, 0]))
            found = found.append_column("alignment", pa.array(placed.alignment[:, 0]))
            is_row = placed.target[:, 0] >= 0
            yield found if is_row.all() else found.filter(pa.array(is_row))

    return run


def require_choice(partitions: int, unit: str, max_keys: int) -> None:
    """Raise :class:`DispatchError` for what no conflict dispatch can do."""
    Placer.of((partitions,), max_keys=max_keys)
    if unit not in ("transaction", "row"):
        raise DispatchError(f"Unknown unit {unit!r}; expected 'transaction' or 'row'.")


_PLACE = "struct<topic: string, partition: int, offset: bigint, seq: int>"
_BARRIERS = f"""
schema_name string, table_name string, alignment bigint, commit_ts bigint, reason string, target int,
other_target int, key_hash bigint, other_key_hash bigint, at {_PLACE}, other_at {_PLACE}, before {_PLACE},
other_before {_PLACE}
"""
_CARRIED = ("schema_name", "table_name", *POSITION)


def alignments(
    events: DataFrame,
    *,
    partitions: int,
    catalog: Catalog | None = None,
    unit: Unit = "transaction",
    max_keys: int = MAX_KEYS,
) -> DataFrame:
    """List the barriers of :func:`ticdc_lab.dispatch.conflict.conflict_placements`, with what collides at each.

    Parameters as of that function.

    Returns
    -------
    DataFrame
        ``table`` (``schema.table``), ``alignment`` (bigint: its number, which the rows after it have), ``commit_ts`` of
        the change before which it stands, ``reason``: ``conflict``, ``memory`` (forced by ``max_keys``) or ``ddl`` (no
        event of its own: consumers wait for the DDL between the rows anyway). Of a conflict: ``targets`` (array of two
        ints: the partitions that hold keys of the change), ``keys`` (array of two strings, ``column=value``: a key of
        each) and ``rows`` (array of ``struct<topic, partition, offset, seq>``: the last row with the one key, the last
        with the other, and the change itself, twice where two of its rows have the keys); null otherwise.

    Raises
    ------
    DispatchError, ContractError, StreamingError
        As ``conflict_placements``.
    """
    require_choice(partitions, unit, max_keys)
    run = _barriers(partitions, unit, max_keys)
    barriers = with_changes(events, run, _BARRIERS, catalog=catalog, unit=unit, carry=_CARRIED, whole_order=True)
    both = (("at", "key_hash"), ("other_at", "other_key_hash"))
    sides = F.array(*[F.struct(F.col(at).alias("at"), F.col(key).alias("hash")) for at, key in both])
    sides = F.when(F.col("reason") == REASONS[BY_CONFLICT], sides)
    asked = barriers.select("*", F.posexplode_outer(sides).alias("side", "asked"))
    named = (
        events.where("kind = 'row'").transform(with_unique_keys, catalog=catalog, named=True)
        .select(*[F.col(c).alias(f"_e_{c}") for c in POSITION], "named_keys")
    )  # fmt: skip
    same = [F.col(f"asked.at.{c}") == F.col(f"_e_{c}") for c in POSITION]
    text = F.get(F.filter("named_keys", lambda k: k["hash"] == F.col("asked.hash")), F.lit(0))["text"]
    whole = F.struct(*barriers.columns)
    grouped = (
        asked.join(named, on=same, how="left")
        .select(
            "schema_name", "table_name", "alignment", whole.alias("b"), F.struct("side", text.alias("text")).alias("t")
        )
        .groupBy("schema_name", "table_name", "alignment")
        .agg(F.any_value("b").alias("b"), F.sort_array(F.collect_set("t")).alias("texts"))
    )
    return grouped.select(
        F.concat("schema_name", F.lit("."), "table_name").alias("table"), "alignment",
        *("b.commit_ts", "b.reason"),
        *[F.when(F.col("b.at").isNotNull(), value).alias(name) for name, value in (
            ("targets", F.array("b.target", "b.other_target")),
            ("keys", F.col("texts.text")),
            ("rows", F.array_distinct(F.array("b.before", "b.other_before", "b.at", "b.other_at"))),
        )],
    )  # fmt: skip


def _barriers(partitions: int, unit: Unit, max_keys: int) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        topics: dict[str, int] = {}
        placed_with = placed_batches(
            batches, ns=(partitions,), unit=unit, max_keys=max_keys, evidence=True, topics=topics
        )
        for rows, placed in placed_with:
            if len(placed.barriers):
                yield _shown(rows, placed.barriers, list(topics))

    return run


def _shown(rows: pa.RecordBatch, b: Ints, topics: list[str]) -> pa.RecordBatch:
    clash = b[:, REASON] == BY_CONFLICT
    stands = rows.take(pa.array(b[:, ROW]))
    names = pa.array(topics, pa.string())

    def whole(column: int) -> pa.Array:
        return pa.array(b[:, column], mask=~clash)

    def place(parts: list[pa.Array]) -> pa.StructArray:
        kinds = (pa.string(), pa.int32(), pa.int64(), pa.int32())
        fields = [p.cast(k) for p, k in zip(parts, kinds, strict=True)]
        return pa.StructArray.from_arrays(fields, list(POSITION), mask=pa.array(~clash))

    def of_unit(column: int) -> pa.StructArray:
        which = pa.array(np.where(clash, b[:, column], 0))
        return place([rows[c].take(which) for c in POSITION])

    def earlier(column: int) -> pa.StructArray:
        where = b[:, column]
        parts = [names.take(pa.array(where >> 32)), pa.array(where & 0xFFFFFFFF)]
        return place([*parts, pa.array(b[:, column + 1]), pa.array(b[:, column + 2])])

    return pa.RecordBatch.from_pydict(
        {
            "schema_name": stands["schema_name"],
            "table_name": stands["table_name"],
            "alignment": pa.array(b[:, NUMBER]),
            "commit_ts": stands["commit_ts"],
            "reason": pa.array(REASONS).take(pa.array(b[:, REASON])),
            "target": whole(HOME).cast(pa.int32()),
            "other_target": whole(OTHER_HOME).cast(pa.int32()),
            "key_hash": whole(KEY),
            "other_key_hash": whole(OTHER_KEY),
            "at": of_unit(AT),
            "other_at": of_unit(OTHER_AT),
            "before": earlier(BEFORE),
            "other_before": earlier(OTHER_BEFORE),
        }
    )
