"""The log as it would lie in Kafka: each change sent with the count that its processor knew, in order of writing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.dispatch.rules import Rule, dispatch_by_rules
from ticdc_lab.encode.produce import resolved_values
from ticdc_lab.engine.columns import least
from ticdc_lab.events import tso
from ticdc_lab.events.prefix import POSITION
from ticdc_lab.events.schema import EVENTS, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.watermarks import IS_ROW
from ticdc_lab.repartition.plan import Plan
from ticdc_lab.transactions import duplicates

ADDED = ("epoch", "alignment", "dropped", "resent", "written_ms")
"""What :func:`repartitioned` adds to events."""

_DELETE, _UPDATE, _INSERT, _DDL, _WATERMARK, _ADMIN = range(6)
_ACTS = StructType(
    [StructField(n, StringType()) for n in ("schema_name", "table_name")]
    + [StructField(n, LongType()) for n in ("_stop", "_start")]
)
_COPY = "struct<epoch: int, partition: int, written: bigint, resent: boolean>"


def repartitioned(events: DataFrame, *, plan: Plan, rules: Sequence[Rule], catalog: Catalog | None = None) -> DataFrame:
    """Lay a recorded log anew, as it would lie in Kafka if the number of partitions changed as planned.

    A processor writes a change at its commit time, or as soon as it works again: one processor's delay is all that
    happens between TiKV and Kafka here. In a partition messages stand in the order of writing; what is sent again
    after a restart stands in commit order, a DDL after the rows it was committed with, a watermark W after everything
    up to W, as :func:`ticdc_lab.encode.produce.produce` has it. Each event is a message of its own.

    Parameters
    ----------
    events
        The events contract. Every delivery of a row is written, of a DDL one; bootstrap events and recorded Admin
        events are left out. A row without commit_ts comes first and is never sent again.
    plan
        See :func:`ticdc_lab.repartition.plan.decide`.
    rules, catalog
        As for :func:`ticdc_lab.dispatch.rules.dispatch_by_rules`; matchers tell upper from lower case here.

    Returns
    -------
    DataFrame
        The columns of ``events``, ``partition``, ``offset`` (dense from 0) and ``seq`` (0) anew, and ``epoch`` (int: 0
        by the count before, 1 by the count after), ``alignment`` (bigint: Admin events before it in its partition),
        ``dropped`` (boolean: a row that consumers hold when the Admin event comes, and drop), ``resent`` (boolean: a
        row with the count after that was sent with the one before too) and ``written_ms`` (bigint: when it was written,
        on the log's clock). Equal events and plans give equal frames.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    DispatchError
        A rule is malformed. When the frame is read, Spark fails with the reason if a row cannot be dispatched.

    References
    ----------
    MQ design, "Partition 扩容与缩容" and "Kafka Consumer 逻辑".
    """
    require_columns(events, *EVENTS.names)
    require_batch(events, function="repartitioned", why="a topic is laid in the order of writing")
    sent = _rows(events, plan, rules, catalog)
    for marks in (_marks(events, plan), _ddl(events, plan), _admin(events, plan)):
        sent = sent.unionByName(marks, allowMissingColumns=True)
    return _laid(sent, [c for c in events.columns if c not in ADDED], plan)


def _rows(events: DataFrame, plan: Plan, rules: Sequence[Rule], catalog: Catalog | None) -> DataFrame:
    """Every change once for each time that it is sent, as ``_to`` says; what the recording repeated is left out."""
    repeats = duplicates(events).select(*[F.col(c).alias(f"_r_{c}") for c in POSITION])
    same = [F.col(c).eqNullSafe(F.col(f"_r_{c}")) for c in POSITION]
    spark, ts = events.sparkSession, F.col("commit_ts")
    acts = [(*t, p.stop, tso.compose(p.start_ms)) for p in plan.processors for t in p.tables]
    of = F.broadcast(spark.createDataFrame(acts, _ACTS))
    # every strategy takes a number mod N, and (h mod lcm(a, b)) mod a is h mod a
    common = dispatch_by_rules(
        events.where(IS_ROW).join(repeats, on=same, how="left_anti"), rules=rules,
        partitions=math.lcm(plan.before, plan.after), catalog=catalog,
        case_sensitive=True,
    )  # fmt: skip
    failed = F.concat(
        F.lit("A row cannot be dispatched, so the topic cannot be written: "),
        *(F.col("schema_name"), F.lit("."), F.col("table_name"), F.lit(" at commit_ts ")),
        *(F.coalesce(ts.cast("string"), F.lit("null")), F.lit(": ")),
        F.coalesce("dispatch_error", F.lit("no partition")),
    )
    target = F.coalesce("target_partition", F.raise_error(failed).cast("int"))
    copies = common.join(of, on=["schema_name", "table_name"], how="left").withColumn("_h", target)
    again = F.greatest(ts, F.col("_start"))
    if plan.ddl is not None:  # nobody passes it before all can
        again = F.when(ts > plan.ddl, F.greatest(again, F.lit(tso.compose(plan.running_ms)))).otherwise(again)
    by_old = F.coalesce(ts <= F.col("_stop"), F.lit(True))
    if plan.procedure == "just-add":
        sends = [F.when(by_old, _copy(0, plan, ts)).otherwise(_copy(1, plan, ts))]
    else:
        sends = [F.when(by_old, _copy(0, plan, ts)), F.when(ts > plan.checkpoint, _copy(1, plan, again, by_old))]
    rank = F.when(F.col("op") == "delete", _DELETE).when(F.col("op") == "update", _UPDATE).otherwise(_INSERT)
    return copies.select(*events.columns, F.explode(F.array_compact(F.array(*sends))).alias("_to"), rank.alias("_rank"))


def _copy(epoch: int, plan: Plan, written: Column, resent: Column | None = None) -> Column:
    count = plan.after if epoch else plan.before
    return F.struct(
        F.lit(epoch).alias("epoch"),
        (F.col("_h") % count).cast("int").alias("partition"),
        written.alias("written"),
        (F.lit(False) if resent is None else resent).alias("resent"),
    ).cast(_COPY)


def _marks(events: DataFrame, plan: Plan) -> DataFrame:
    """Watermarks up to the last one before the Admin event to the old partitions, those after it to the new."""
    ts = F.col("commit_ts")
    kind = F.lit("watermark").alias("kind")
    if plan.procedure == "just-add":
        return _to_all(resolved_values(events).select("commit_ts", kind), plan, F.col("commit_ts"), _WATERMARK)
    running, start = tso.compose(plan.running_ms), tso.compose(plan.start_ms)
    before = resolved_values(events).where(ts <= plan.resolved).select("commit_ts", kind)
    values = resolved_values(events).where(ts > plan.checkpoint).select("commit_ts", kind)
    # the first that the owner says again: it has not moved, and the new partitions have none yet
    again = events.sparkSession.range(1 if plan.checkpoint else 0).select(
        F.lit(plan.checkpoint).cast("bigint").alias("commit_ts"), kind
    )
    sent = _broadcast(before, plan, 0, ts, _WATERMARK)
    sent = sent.unionByName(_broadcast(values, plan, 1, F.greatest(ts, F.lit(running)), _WATERMARK))
    return sent.unionByName(_broadcast(again, plan, 1, F.lit(start), _WATERMARK))


def _ddl(events: DataFrame, plan: Plan) -> DataFrame:
    """Each DDL once to every partition of its time."""
    by = ["topic", "commit_ts", "schema_name", "table_name", "query", "ddl_type"]
    first = least("table_id", "protocol").alias("_first")
    ddl = events.where("kind = 'ddl' AND commit_ts IS NOT NULL").groupBy(*by).agg(first)
    ddl = ddl.select(*by, "_first.*", F.lit("ddl").alias("kind"))
    ts = F.col("commit_ts")
    if plan.procedure == "just-add":
        return _to_all(ddl, plan, ts, _DDL)
    late = F.greatest(ts, F.lit(tso.compose(plan.running_ms)))
    early = _broadcast(ddl.where(ts <= plan.checkpoint), plan, 0, ts, _DDL)
    return early.unionByName(_broadcast(ddl.where(ts > plan.checkpoint), plan, 1, late, _DDL))


def _admin(events: DataFrame, plan: Plan) -> DataFrame:
    """The Admin event in all partitions, those before and those after."""
    count = F.struct(F.lit(plan.after).alias("partition_count")).alias("admin")
    one = events.sparkSession.range(0 if plan.admin_ms is None else 1).select(F.lit("admin").alias("kind"), count)
    to = F.sequence(F.lit(0), F.lit(plan.partitions - 1))
    return _placed(one, plan, 0, to, F.lit(tso.compose(plan.admin_ms or 0)), _ADMIN)


def _to_all(marks: DataFrame, plan: Plan, written: Column, rank: int) -> DataFrame:
    """What the owner broadcasts to the partitions that it knows of, with ``just-add``."""
    early = F.col("commit_ts") <= plan.owner
    return _broadcast(marks.where(early), plan, 0, written, rank).unionByName(
        _broadcast(marks.where(~early), plan, 1, written, rank)
    )


def _broadcast(marks: DataFrame, plan: Plan, epoch: int, written: Column, rank: int) -> DataFrame:
    count = plan.after if epoch else plan.before
    return _placed(marks, plan, epoch, F.sequence(F.lit(0), F.lit(count - 1)), written, rank)


def _placed(marks: DataFrame, plan: Plan, epoch: int, to: Column, written: Column, rank: int) -> DataFrame:
    """A mark in each of the partitions ``to`` of its topic, or of every topic where it names none."""
    named = marks if "topic" in marks.columns else marks.select(
        "*", F.explode(F.array(*[F.lit(t) for t in plan.facts.topics])).alias("topic")
    )  # fmt: skip
    spread = named.select("*", F.explode(to).alias("_partition"))
    here = (F.lit(epoch).alias("epoch"), F.col("_partition").alias("partition"), written.alias("written"))
    where = F.struct(*here, F.lit(False).alias("resent")).cast(_COPY)
    out = spread.withColumns({"_to": where, "_rank": F.lit(rank)}).drop("_partition")
    return out if "protocol" in out.columns else out.withColumn("protocol", F.lit(plan.facts.protocol))


def _laid(sent: DataFrame, columns: Sequence[str], plan: Plan) -> DataFrame:
    """Partitions and offsets by the order of writing."""
    to = F.col("_to")
    origin = [f"_from_{c}" for c in POSITION]
    order: list[Column | str] = ["_written", F.col("_rank") == _ADMIN, "_commit_ts", "_rank", *origin, "query"]
    admin = F.lit(None).cast("bigint") if plan.admin_ms is None else F.lit(tso.compose(plan.admin_ms))
    placed = sent.withColumns(
        {f"_from_{c}": F.col(c) for c in POSITION}
        | {"_commit_ts": F.col("commit_ts"), "_written": F.coalesce(to["written"], F.lit(0)), "epoch": to["epoch"]}
    ).withColumn("partition", to["partition"])
    each = Window.partitionBy("topic", "partition").orderBy(*order)
    behind = F.coalesce((F.col("_written") > admin) | (F.col("epoch") == 1), F.lit(False))
    held = F.coalesce(F.expr(IS_ROW) & (F.col("commit_ts") > plan.resolved), F.lit(False))
    alignment = F.lit(0) if plan.admin_ms is None else behind.cast("int")
    return placed.withColumns(
        {
            "offset": (F.row_number().over(each) - 1).cast("bigint"),
            "seq": F.lit(0),
            "alignment": alignment.cast("bigint"),
            "dropped": F.lit(False) if plan.admin_ms is None else held & ~behind,
            "resent": to["resent"],
            "written_ms": tso.physical_ms_col("_written"),
        }
    ).select(*columns, *ADDED)
