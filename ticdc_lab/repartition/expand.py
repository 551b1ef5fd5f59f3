"""The decision taken on a recorded log: its facts, the plan, and the log as it would then lie in Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_lab.dispatch.dispatching import dispatch_by_rules
from ticdc_lab.dispatch.infer import infer_rules
from ticdc_lab.dispatch.names import CONFLICT, common_multiple
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.encode.produce import resolved_values, table_of_row
from ticdc_lab.engine.columns import least
from ticdc_lab.engine.paths import stored_parquet
from ticdc_lab.errors import ContractError, DispatchError
from ticdc_lab.events import POSITION, tso
from ticdc_lab.events.changes import OP_RANK, op_rank
from ticdc_lab.events.schema import EVENTS, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.watermarks import IS_ROW
from ticdc_lab.repartition.plan import Facts, OwnerMarks, PartitionPlan, Timing, decide, delays_of
from ticdc_lab.transactions import duplicates

IS_DATED_ROW = "kind = 'row' AND commit_ts IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Expansion:
    """A log whose number of partitions changed.

    Attributes
    ----------
    plan
        Who did what when.
    rules
        By which rows were dispatched, before and after.
    recorded
        The log as it was recorded.
    events
        The log as it would lie in Kafka, see :func:`ticdc_lab.repartition.expand.repartitioned`.
    catalog
        Table definitions, for rules with an index.
    """

    plan: PartitionPlan
    rules: tuple[Rule, ...]
    recorded: DataFrame
    events: DataFrame
    catalog: Catalog | None = None

    def kept(self, folder: str) -> Expansion:
        """The same with its events read from ``folder``, a path or URL that does not exist yet: laid once."""
        self.events.write.parquet(folder)
        return replace(self, events=stored_parquet(self.events.sparkSession, folder, schema=self.events.schema))


def expand(
    events: DataFrame,
    *,
    after: int,
    before: int | None = None,
    rules: Sequence[Rule] | None = None,
    catalog: Catalog | None = None,
    at: int | None = None,
    procedure: str = "design",
    timing: Timing | None = None,
) -> Expansion:
    """Change the number of partitions in the middle of a recorded log.

    Needs a few aggregates (tables, watermarks around ``at``) at once; the log itself stays lazy.

    Parameters
    ----------
    events
        The events contract, with commit_ts.
    after, before
        Numbers of partitions; ``before`` as recorded by default.
    rules
        Dispatch rules; by default from :func:`rules_recorded`.
    catalog
        For rules with an index.
    at
        TSO at which the owner decides; the middle of the log by default.
    procedure
        ``design``; ``no-feedback``, in which the owner sends the Admin event at once; ``just-add``. See
        :mod:`ticdc_lab.repartition.plan`.
    timing
        What the log cannot show.

    Returns
    -------
    Expansion
        Who did what when, and the log as it would lie in Kafka.

    Raises
    ------
    DispatchError
        A rule asks for conflict detection.
    ContractError
        A column is missing, the log has no row with a commit_ts, ``at`` lies outside the log, or the counts or the
        procedure make no sense.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, *EVENTS.names)
    require_batch(events, function="expand", why="the whole log is dispatched again")
    if any(rule.partition.lower() == CONFLICT for rule in rules or ()):
        raise DispatchError(
            "Conflict detection cannot go over to another number of partitions: no protocol carries its alignments.",
            hint="Name one of TiCDC's dispatchers with --strategy.",
        )
    known, timing = facts_of(events), timing or Timing()
    moment = known.middle if at is None else at
    if not known.first_ts <= moment <= known.last_ts:
        raise ContractError(
            f"at is {tso.tso_words(moment)}; the rows of the log lie from {tso.tso_words(known.first_ts)} to "
            f"{tso.tso_words(known.last_ts)}.",
            hint="Name a TSO between them with --at, or leave it out for the middle.",
        )
    longest = max(delays_of(known, timing)) + timing.report_ms + timing.admin_ms + timing.restart_ms
    marks_at = marks_of(events, at=moment, until=tso.compose(tso.physical_ms(moment) + longest))
    plan = decide(
        known, marks_at, procedure=procedure, before=known.partitions if before is None else before, after=after,
        at=moment, timing=timing,
    )  # fmt: skip
    by = rules_recorded(events) if rules is None else tuple(rules)
    return Expansion(plan, by, events, repartitioned(events, plan=plan, rules=by, catalog=catalog), catalog)


def facts_of(events: DataFrame) -> Facts:
    """Tables, topics and extent of a log. Raises ContractError: it has no row with a commit_ts."""
    by, is_dated = ("topic", "schema_name", "table_name"), F.expr(IS_DATED_ROW)
    each = events.groupBy(*by).agg(
        F.count_if(is_dated).alias("rows"),
        F.min(F.when(is_dated, F.col("commit_ts"))).alias("first_ts"),
        F.max(F.when(is_dated, F.col("commit_ts"))).alias("last_ts"),
        F.max("partition").alias("partition"),
        F.max("protocol").alias("protocol"),
    )
    found = each.collect()
    dated = [r for r in found if r["rows"]]
    if not dated:
        raise ContractError(
            "The log has no row change with a commit_ts, so nothing can be dispatched again in commit order.",
            hint="Record with a protocol that carries commit_ts (`enable-tidb-extension=true` for canal-json).",
        )
    return Facts(
        tables=tuple(sorted({(r["schema_name"], r["table_name"]) for r in dated if r["table_name"] is not None})),
        topics=tuple(sorted({r["topic"] for r in found})),
        protocol=max(r["protocol"] or "" for r in found),
        partitions=1 + max(r["partition"] for r in found),
        first_ts=min(r["first_ts"] for r in dated),
        last_ts=max(r["last_ts"] for r in dated),
    )


def marks_of(events: DataFrame, *, at: int, until: int) -> OwnerMarks:
    """The global resolved_ts at ``at`` and its values from then to ``until`` (TSO), and the first DDL not written."""
    value = F.col("commit_ts")
    around = resolved_values(events).agg(
        F.max(F.when(value <= at, value)).alias("resolved"),
        F.sort_array(F.collect_set(F.when((value > at) & (value <= until), value))).alias("later"),
    )
    found = around.collect()[0]
    resolved = found["resolved"] or 0
    ddl = events.where((F.col("kind") == "ddl") & (value > resolved)).agg(F.min(value)).collect()[0][0]
    return OwnerMarks(resolved, tuple(found["later"]), ddl)


def rules_recorded(events: DataFrame) -> tuple[Rule, ...]:
    """The rules that :func:`ticdc_lab.dispatch.infer.infer_rules` finds, see :func:`rules_found`."""
    columns = infer_rules(events).select("schema_name", "table_name", "rule").distinct()
    return rules_found(r.asDict() for r in columns.collect())


def rules_found(found: Iterable[Mapping[Any, Any]]) -> tuple[Rule, ...]:
    """Rules from rows with ``schema_name, table_name, rule``; the most frequent one for all other tables."""
    by_rule: dict[str, list[str]] = {}
    of_tables = {(r["schema_name"], r["table_name"], r["rule"]) for r in found if r["table_name"] is not None}
    for schema, table, rule in sorted(of_tables):
        by_rule.setdefault(rule, []).append(f"{_quoted(schema)}.{_quoted(table)}")
    common = Counter({rule: len(tables) for rule, tables in by_rule.items()}).most_common(1)
    named = [rule_of(rule, tables) for rule, tables in by_rule.items() if rule != common[0][0]]
    return (*named, *[rule_of(rule, ["*.*"]) for rule, _ in common])


def rule_of(name: str, matcher: Sequence[str] = ("*.*",)) -> Rule:
    """A rule from a name such as ``table``, ``index-value``, ``ts``, ``index-value:uk`` or ``columns:a,b``."""
    strategy, _, what = name.partition(":")
    columns = tuple(c.strip() for c in what.split(",")) if strategy == "columns" and what else ()
    return Rule(tuple(matcher), strategy, what if strategy == "index-value" else "", columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# The log as it would lie in Kafka: each change sent with the count that its processor knew, in order of writing.

ADDED = ("epoch", "alignment", "dropped", "resent", "written_ms")
"""What :func:`repartitioned` adds to events."""

_DDL, _WATERMARK, _ADMIN = range(len(OP_RANK), len(OP_RANK) + 3)
_ACTS = StructType(
    [StructField(n, StringType()) for n in ("schema_name", "table_name")]
    + [StructField(n, LongType()) for n in ("_stop", "_start")]
)
_COPY = "struct<epoch: int, partition: int, written: bigint, resent: boolean>"


def repartitioned(
    events: DataFrame, *, plan: PartitionPlan, rules: Sequence[Rule], catalog: Catalog | None = None
) -> DataFrame:
    """Lay out a recorded log as it would be in Kafka if the number of partitions changed as planned.

    A processor writes a change at its commit time, or as soon as it works again: one processor's delay is all that
    happens between TiKV and Kafka here. In a partition messages are in the order of writing; what is sent again
    after a restart is in commit order, a DDL after the rows it was committed with, a watermark W after everything
    up to W, as :func:`ticdc_lab.encode.produce.produce` has it. Each event is a message of its own.

    ``events``: the events contract. Every delivery of a row is written, of a DDL one; bootstrap events and recorded
    Admin events are left out. A row without commit_ts comes first and is never sent again. ``plan``: see
    :func:`ticdc_lab.repartition.plan.decide`. ``rules``, ``catalog``: as for
    :func:`ticdc_lab.dispatch.rules.dispatch_by_rules`; matchers are case-sensitive here. Returns: the columns
    of ``events``, ``partition``, ``offset`` (dense from 0) and ``seq`` (0) new, and ``epoch`` (int: 0 by the count
    before, 1 by the count after), ``alignment`` (bigint: Admin events before it in its partition), ``dropped``
    (boolean: a row that consumers hold when the Admin event comes, and drop), ``resent`` (boolean: a row with the count
    after that was sent with the one before too) and ``written_ms`` (bigint: when it was written, on the log's clock).
    Equal events and plans give equal frames. Raises ContractError: a column is missing. StreamingError: ``events`` is a
    stream. DispatchError: a rule is malformed. When the frame is read, Spark fails with the reason if a row cannot be
    dispatched.

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


def _rows(events: DataFrame, plan: PartitionPlan, rules: Sequence[Rule], catalog: Catalog | None) -> DataFrame:
    """Every change once for each time that it is sent, by ``_to``; what the recording repeated is left out."""
    repeats = duplicates(events).select(*[F.col(c).alias(f"_r_{c}") for c in POSITION])
    same = [F.col(c).eqNullSafe(F.col(f"_r_{c}")) for c in POSITION]
    spark, ts = events.sparkSession, F.col("commit_ts")
    acts = [(*t, p.stop, tso.compose(p.start_ms)) for p in plan.processors for t in p.tables]
    of = F.broadcast(spark.createDataFrame(acts, _ACTS))
    # every strategy takes a number mod N, and (h mod lcm(a, b)) mod a is h mod a
    common = dispatch_by_rules(
        events.where(IS_ROW).join(repeats, on=same, how="left_anti"), rules=rules,
        partitions=common_multiple(plan.before, plan.after), catalog=catalog, case_sensitive=True,
    )  # fmt: skip
    failed = F.concat(
        F.lit("A row cannot be dispatched, so the topic cannot be written: "),
        *(table_of_row(), F.lit(" at commit_ts ")),
        *(F.coalesce(ts.cast("string"), F.lit("null")), F.lit(": ")),
        F.coalesce("dispatch_error", F.lit("no partition")),
    )
    target = F.coalesce("target_partition", F.raise_error(failed).cast("int"))
    copies = common.join(of, on=["schema_name", "table_name"], how="left").withColumn("_h", target)
    again = F.greatest(ts, F.col("_start"))
    if plan.ddl is not None:  # none passes it before all can
        again = F.when(ts > plan.ddl, F.greatest(again, F.lit(tso.compose(plan.running_ms)))).otherwise(again)
    by_old = F.coalesce(ts <= F.col("_stop"), F.lit(True))
    if plan.procedure == "just-add":
        sends = [F.when(by_old, _copy(0, plan, ts)).otherwise(_copy(1, plan, ts))]
    else:
        sends = [F.when(by_old, _copy(0, plan, ts)), F.when(ts > plan.checkpoint, _copy(1, plan, again, by_old))]
    rank = op_rank().cast("int")
    return copies.select(*events.columns, F.explode(F.array_compact(F.array(*sends))).alias("_to"), rank.alias("_rank"))


def _copy(epoch: int, plan: PartitionPlan, written: Column, resent: Column | None = None) -> Column:
    count = plan.after if epoch else plan.before
    return F.struct(
        F.lit(epoch).alias("epoch"),
        (F.col("_h") % count).cast("int").alias("partition"),
        written.alias("written"),
        (F.lit(False) if resent is None else resent).alias("resent"),
    ).cast(_COPY)


def _marks(events: DataFrame, plan: PartitionPlan) -> DataFrame:
    """Watermarks up to the last one before the Admin event to the old partitions, those after it to the new."""
    ts = F.col("commit_ts")
    kind = F.lit("watermark").alias("kind")
    if plan.procedure == "just-add":
        return _to_all(resolved_values(events).select("commit_ts", kind), plan, F.col("commit_ts"), _WATERMARK)
    running, start = tso.compose(plan.running_ms), tso.compose(plan.start_ms)
    before = resolved_values(events).where(ts <= plan.resolved).select("commit_ts", kind)
    values = resolved_values(events).where(ts > plan.checkpoint).select("commit_ts", kind)
    # the first that the owner repeats: it has not moved, and the new partitions have none yet
    again = events.sparkSession.range(1 if plan.checkpoint else 0).select(
        F.lit(plan.checkpoint).cast("bigint").alias("commit_ts"), kind
    )
    sent = _broadcast(before, plan, 0, ts, _WATERMARK)
    sent = sent.unionByName(_broadcast(values, plan, 1, F.greatest(ts, F.lit(running)), _WATERMARK))
    return sent.unionByName(_broadcast(again, plan, 1, F.lit(start), _WATERMARK))


def _ddl(events: DataFrame, plan: PartitionPlan) -> DataFrame:
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


def _admin(events: DataFrame, plan: PartitionPlan) -> DataFrame:
    """The Admin event in all partitions, those before and those after."""
    count = F.struct(F.lit(plan.after).alias("partition_count")).alias("admin")
    one = events.sparkSession.range(0 if plan.admin_ms is None else 1).select(F.lit("admin").alias("kind"), count)
    to = F.sequence(F.lit(0), F.lit(plan.partitions - 1))
    return _placed(one, plan, 0, to, F.lit(tso.compose(plan.admin_ms or 0)), _ADMIN)


def _to_all(marks: DataFrame, plan: PartitionPlan, written: Column, rank: int) -> DataFrame:
    """What the owner broadcasts to the partitions that it knows of, with ``just-add``."""
    early = F.col("commit_ts") <= plan.owner
    return _broadcast(marks.where(early), plan, 0, written, rank).unionByName(
        _broadcast(marks.where(~early), plan, 1, written, rank)
    )


def _broadcast(marks: DataFrame, plan: PartitionPlan, epoch: int, written: Column, rank: int) -> DataFrame:
    count = plan.after if epoch else plan.before
    return _placed(marks, plan, epoch, F.sequence(F.lit(0), F.lit(count - 1)), written, rank)


def _placed(marks: DataFrame, plan: PartitionPlan, epoch: int, to: Column, written: Column, rank: int) -> DataFrame:
    """A mark in each of the partitions ``to`` of its topic, or of every topic where it names none."""
    named = marks if "topic" in marks.columns else marks.select(
        "*", F.explode(F.array(*[F.lit(t) for t in plan.facts.topics])).alias("topic")
    )  # fmt: skip
    spread = named.select("*", F.explode(to).alias("_partition"))
    here = (F.lit(epoch).alias("epoch"), F.col("_partition").alias("partition"), written.alias("written"))
    where = F.struct(*here, F.lit(False).alias("resent")).cast(_COPY)
    out = spread.withColumns({"_to": where, "_rank": F.lit(rank)}).drop("_partition")
    return out if "protocol" in out.columns else out.withColumn("protocol", F.lit(plan.facts.protocol))


def _laid(sent: DataFrame, columns: Sequence[str], plan: PartitionPlan) -> DataFrame:
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
