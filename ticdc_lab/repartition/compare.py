"""What consumers make of another number of partitions, as small frames for pictures: the procedures side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.audit import audit
from ticdc_lab.audit.run import CHAIN
from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.dispatch.infer import move_causes
from ticdc_lab.dispatch.rules import Rule, rule_of
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.changes import op_rank
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import EVIDENCE, FINDINGS, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.repartition.expand import IS_DATED_ROW, Expansion, expand, rules_recorded
from ticdc_lab.repartition.plan import PROCEDURES, Timing

CONSUMER_GUARANTEES = ("changes_are_applied", "changes_are_applied_once", "changes_are_applied_in_order")
"""What :func:`consumer_findings` looks for: changes that are lost, doubled, or may be applied before an older one."""

MAX_PER_GUARANTEE = 10_000

_EARLIER = (Window.unboundedPreceding, -1)
_NAMES = ("schema_name", "table_name")
_CHANGE = (*_NAMES, "commit_ts", "op_rank", "identity")


def consumed(events: DataFrame) -> DataFrame:
    """Find for every row whether its listener applies it, at which message, or drops it.

    Parameters
    ----------
    events
        The events contract; Admin events are the barriers. Watermarks must not fall back.

    Returns
    -------
    DataFrame
        Rows that have a commit_ts, without images: position, ``schema_name``, ``table_name``, ``commit_ts``,
        ``op_rank``, ``key_hash``, ``before_key_hash``, ``change_hash``, ``alignment`` (bigint: Admin events before it
        in its partition), ``outcome`` (``applied``, ``dropped``, or ``pending``: the log ends before a watermark
        reaches it) and ``applied_at`` (bigint: offset of the message in its partition at which it is applied). A
        listener applies in the order of ``alignment, applied_at, commit_ts, op_rank``. The narrow facts of a partition
        are sorted in one task.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, "kind", "commit_ts", "op", *_NAMES, *POSITION)
    require_batch(events, function="consumed", why="a row is applied by a watermark after it")
    facts = events.where("kind IN ('row', 'watermark', 'admin')").transform(with_keys)
    hashes = ("key_hash", "before_key_hash", "change_hash")
    facts = facts.select("kind", *POSITION, *_NAMES, "commit_ts", op_rank().alias("op_rank"), *hashes)
    by_place = Window.partitionBy(*PARTITION).orderBy("offset", "seq")
    facts = facts.withColumn("alignment", F.count_if(F.col("kind") == "admin").over(by_place))
    in_era, is_mark = Window.partitionBy(*PARTITION, "alignment"), F.col("kind") == "watermark"
    eras = Window.partitionBy(*PARTITION)
    # what follows is found backwards: Spark recomputes a frame that ends at the end for every row
    mark = F.last(F.when(is_mark, F.col("offset")), ignorenulls=True)
    by_offset = in_era.orderBy(F.desc("offset"), F.desc("seq")).rowsBetween(*_EARLIER)
    by_ts = in_era.orderBy(F.desc("commit_ts"), is_mark.desc(), F.desc("offset")).rowsBetween(*_EARLIER)
    told = facts.withColumns(
        {
            "_next": mark.over(by_offset),
            "_reaching": mark.over(by_ts),
            "_resolved": F.max(F.when(is_mark, F.col("commit_ts"))).over(
                eras.orderBy("alignment").rangeBetween(Window.unboundedPreceding, 0)
            ),
            "_barrier": F.min(F.when(F.col("kind") == "admin", F.col("offset"))).over(
                eras.orderBy(F.desc("alignment")).rangeBetween(*_EARLIER)
            ),
        }
    )
    reached = F.when(F.col("_reaching").isNotNull(), F.greatest("_next", "_reaching"))
    # at or below the resolved_ts, but behind its watermark: what the Admin event does not throw away
    kept = F.when(F.col("commit_ts") <= F.col("_resolved"), F.col("_barrier"))
    at = F.when(F.col("_next").isNotNull() & reached.isNotNull(), reached).otherwise(kept)
    outcome = F.when(F.col("applied_at").isNotNull(), "applied").when(F.col("_barrier").isNotNull(), "dropped")
    return (
        told.where("kind = 'row' AND commit_ts IS NOT NULL")
        .withColumn("applied_at", at)
        .withColumn("outcome", outcome.otherwise("pending"))
        .select(*POSITION, *_NAMES, "commit_ts", "op_rank", *hashes, "alignment",
                "outcome", "applied_at")
    )  # fmt: skip


def consumer_findings(events: DataFrame, *, max_per_guarantee: int | None = MAX_PER_GUARANTEE) -> DataFrame:
    """Changes that such a consumer loses, applies twice, or may apply before an older change of the same row.

    "May": all that two listeners do between two barriers, each in its own order, can happen in any order. So without a
    finding, every run of the consumer applies each row's changes exactly as upstream made them; with one, there is a
    run that does not.

    Parameters
    ----------
    events
        As for :func:`consumed`.
    max_per_guarantee
        Most findings of each; None: all.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.FINDINGS`, one a change: ``evidence`` are the deliveries that show it. ``key`` is
        null. Rows of tables without a key have no identity and are left out.

    Raises
    ------
    ContractError, StreamingError
        As for :func:`consumed`.
    """
    rows = consumed(events).where("key_hash IS NOT NULL").withColumn("identity", F.col("key_hash"))
    found = reduce(DataFrame.unionByName, (_lost(rows), _doubled(rows), _out_of_order(rows)))
    if max_per_guarantee is not None:
        each = Window.partitionBy("guarantee").orderBy("commit_ts", "partition", "offset", "table")
        found = found.withColumn("_n", F.row_number().over(each)).where(F.col("_n") <= max_per_guarantee)
    none = F.lit(None).cast("string")
    named = found.withColumns({"severity": F.lit("error"), "key": none, "topic": none, "cause": F.col("message")})
    return (
        named.repartition(1)
        .sortWithinPartitions("guarantee", "commit_ts", "partition", "offset", "table")
        .select(*FINDINGS.names)
    )


def _lost(rows: DataFrame) -> DataFrame:
    """Dropped, and neither applied nor to be applied from another delivery."""
    fate = rows.groupBy(*_CHANGE).agg(
        F.max(F.col("outcome") != "dropped").alias("survives"), F.min(_delivery()).alias("at")
    )
    message = F.lit("consumers drop the change at the Admin event, and it is not sent again: lost")
    return _finding(fate.where("NOT survives"), CONSUMER_GUARANTEES[0], F.col("at"), message, "at")


def _doubled(rows: DataFrame) -> DataFrame:
    fate = rows.where("outcome = 'applied'").groupBy(*_CHANGE).agg(
        F.count(F.lit(1)).alias("n"), F.min(_delivery()).alias("first"), F.max(_delivery()).alias("last")
    )  # fmt: skip
    message = F.concat(F.lit("the change is applied "), F.col("n").cast("string"), F.lit(" times"))
    return _finding(fate.where("n > 1"), CONSUMER_GUARANTEES[1], F.col("last"), message, "first", "last")


def _out_of_order(rows: DataFrame) -> DataFrame:
    """A change that some run applies before an older one of its row: nothing between them makes it wait."""
    applied = rows.where("outcome = 'applied'").withColumn(
        "row", F.explode(F.array_compact(F.array("key_hash", "before_key_hash")))
    )
    of = (*_NAMES, "row")
    ranked = applied.withColumn("_k", F.dense_rank().over(Window.partitionBy(*of).orderBy("commit_ts", "op_rank")))
    everywhere = Window.partitionBy(*of).orderBy("_k").rangeBetween(*_EARLIER)
    same_era = Window.partitionBy(*of, "alignment").orderBy("_k").rangeBetween(*_EARLIER)
    same_place = Window.partitionBy(*of, "alignment", *PARTITION).orderBy("_k").rangeBetween(*_EARLIER)
    latest = F.struct(F.col("alignment").alias("era"), *PARTITION, _delivery().alias("at"))
    place = F.struct(*PARTITION, _delivery().alias("at"))
    done = F.struct(F.col("applied_at").alias("done"), _delivery().alias("at"))
    judged = ranked.withColumns(
        {"_latest": F.max(latest).over(everywhere), "_low": F.min(place).over(same_era),
         "_high": F.max(place).over(same_era), "_done": F.max(done).over(same_place)}
    )  # fmt: skip

    def elsewhere(other: str) -> Column:
        return reduce(or_, [F.col(other)[c] != F.col(c) for c in PARTITION])

    witness = (
        F.when(F.col("_latest.era") > F.col("alignment"), F.col("_latest.at"))
        .when(elsewhere("_low"), F.col("_low.at"))
        .when(elsewhere("_high"), F.col("_high.at"))
        .when(F.col("_done.done") > F.col("applied_at"), F.col("_done.at"))
    )
    broken = judged.withColumn("_older", witness).where("_older IS NOT NULL")
    each = broken.groupBy(*_CHANGE).agg(F.min(F.struct(_delivery().alias("at"), "_older")).alias("_f"))
    message = F.lit("a listener may apply the change before an older change of the row, which another delivers")
    return _finding(
        each.select(*_CHANGE, F.col("_f.at").alias("at"), F.col("_f._older").alias("older")),
        CONSUMER_GUARANTEES[2], F.col("at"), message, "older", "at",
    )  # fmt: skip


def _delivery() -> Column:
    return F.struct("partition", "offset", "commit_ts")


def _finding(cases: DataFrame, guarantee: str, at: Column, message: Column, *evidence: str) -> DataFrame:
    shown = F.array(*[F.struct(*[F.col(e)[f].alias(f) for f in EVIDENCE.names]) for e in evidence])
    return cases.select(
        F.lit(guarantee).alias("guarantee"), F.concat_ws(".", *_NAMES).alias("table"), "commit_ts",
        at["partition"].alias("partition"), at["offset"].alias("offset"), message.alias("message"),
        shown.alias("evidence"),
    )  # fmt: skip


WRITES = ("old", "dropped", "stray", "again", "new")
"""What a row is: written with the old count and applied, dropped by consumers, or behind the Admin event; with the new
count again, or for the first time."""


def writes(expansion: Expansion) -> pd.DataFrame:
    """When which partition was written.

    Returns
    -------
    DataFrame
        ``partition``, ``what`` (one of :data:`WRITES`), ``from_ms``, ``to_ms`` (milliseconds since the decision),
        ``rows``; at most five lines a partition.
    """
    old, since_ms = F.col("epoch") == 0, F.col("written_ms") - expansion.plan.at_ms
    what = (
        F.when(F.col("dropped"), "dropped")
        .when(old & (F.col("alignment") > 0), "stray")
        .when(old, "old")
        .when(F.col("resent"), "again")
        .otherwise("new")
    )
    of = expansion.events.where(IS_DATED_ROW).groupBy("partition", what.alias("what"))
    each = of.agg(F.min(since_ms).alias("from_ms"), F.max(since_ms).alias("to_ms"), F.count(F.lit(1)).alias("rows"))
    return each.orderBy("partition", "what").toPandas()


def compared(
    events: DataFrame,
    *,
    after: int,
    before: int | None = None,
    rules: Sequence[Rule] | None = None,
    catalog: Catalog | None = None,
    at: int | None = None,
    timing: Timing | None = None,
    folder: str | None = None,
) -> pd.DataFrame:
    """Run every procedure and count what a consumer loses, applies twice, or may apply in the wrong order.

    Parameters
    ----------
    events, after, before, rules, catalog, at, timing
        As for :func:`ticdc_lab.repartition.expand.expand`.
    folder
        Where each new log is kept while it is looked at, in a folder of the procedure's name; without it each is laid
        several times.

    Returns
    -------
    DataFrame
        ``procedure``, ``guarantee`` (of :data:`ticdc_lab.repartition.compare.CONSUMER_GUARANTEES`), ``changes`` (how
        many break it), and of the first of them ``table``, ``message`` and ``evidence`` (None where none does).
        ``just-add`` is left out where the number falls.
    """
    by = rules_recorded(events) if rules is None else tuple(rules)
    told: list[dict[str, Any]] = []
    for procedure in PROCEDURES:
        if procedure == "just-add" and before is not None and after < before:
            continue
        done = expand(
            events, after=after, before=before, rules=by, catalog=catalog, at=at, procedure=procedure, timing=timing
        )
        done = done if folder is None else done.kept(f"{folder}/{procedure}")
        counted = {r["guarantee"]: r.asDict(recursive=True) for r in _first_of_each(done.events).collect()}
        told += [{"procedure": procedure, "guarantee": g} | counted.get(g, _NOTHING) for g in CONSUMER_GUARANTEES]
    return pd.DataFrame(told, columns=["procedure", "guarantee", "changes", "table", "message", "evidence"])


_NOTHING = {"changes": 0, "table": None, "message": None, "evidence": None}


def _first_of_each(log: DataFrame) -> DataFrame:
    found = consumer_findings(log, max_per_guarantee=None)
    each = Window.partitionBy("guarantee")
    ordered = each.orderBy("commit_ts", "partition", "offset", "table")
    ranked = found.withColumns({"changes": F.count(F.lit(1)).over(each), "_n": F.row_number().over(ordered)})
    return ranked.where("_n = 1").select("guarantee", "changes", "table", "message", "evidence")


_CAUSES = "schema_name string, table_name string, cause string"

Findings = Iterable[Mapping[str, Any]]


def examined(
    expansion: Expansion, *, protocol: str, sample: Sample | None = None, recorded: Callable[[], Findings] | None = None
) -> dict[str, pa.Table]:
    """Findings by part of the log: :data:`ticdc_lab.events.schema.FINDINGS` each.

    The new log shows no gaps, as its offsets close up: a broken chain that the recorded one
    has, too, is as severe as there, in its words.

    Parameters
    ----------
    expansion
        What :func:`ticdc_lab.repartition.expand.expand` gave; read several times, so keep it first
        (:meth:`ticdc_lab.repartition.expand.Expansion.kept`).
    protocol, sample
        As for :func:`ticdc_lab.audit.audit`.
    recorded
        Gives the findings of the recorded log, as far as they are about chains; asked where a chain is broken. By
        default it is audited.

    Returns
    -------
    dict
        ``before`` and ``after`` the Admin events, the ``whole`` log, and ``consumer``
        (:func:`ticdc_lab.repartition.compare.consumer_findings`). Moves that a table's own rule makes are warnings.
        Without Admin events there is only the whole.
    """
    log = expansion.events
    parts = {"whole": log}
    if expansion.plan.admin_ms is not None:
        parts = {"before": log.where("alignment = 0"), "after": log.where("alignment = 1")} | parts
    causes = causes_of(expansion)
    audited = {n: part.transform(audit, protocol=protocol, causes=causes, sample=sample) for n, part in parts.items()}
    found = {name: f.toArrow() for name, f in (audited | {"consumer": consumer_findings(log)}).items()}
    if not any(CHAIN in f["guarantee"].unique().to_pylist() for f in found.values()):
        return found

    def of_chains() -> Findings:
        old = expansion.recorded
        how = {"causes": old.transform(move_causes), "checks": [CHAIN], "sample": sample}
        told: Findings = old.transform(audit, protocol=protocol, **how).toArrow().to_pylist()
        return told

    known = {_chain(f): f for f in (recorded or of_chains)() if f["guarantee"] == CHAIN}
    return {name: _as_recorded(f, known) for name, f in found.items()}


def _as_recorded(found: pa.Table, known: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> pa.Table:
    """Findings of a new log; broken chains are worded as known from the recorded one."""
    said = ("severity", "message", "cause")
    told = [known.get(_chain(f), f) if f["guarantee"] == CHAIN else f for f in found.to_pylist()]
    columns = {c: pa.array([f[c] for f in told], pa.string()) if c in said else found[c] for c in found.column_names}
    return pa.table(columns)


def _chain(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which row's change does not follow from which."""
    shown = () if finding["evidence"] is None else tuple(e["commit_ts"] for e in finding["evidence"])
    return finding["table"], finding["key"], finding["commit_ts"], shown


def causes_of(expansion: Expansion) -> DataFrame:
    """Tables whose own rule moves rows, at any number of partitions; see :func:`ticdc_lab.audit.audit`."""
    chosen = {t: rule_of(expansion.rules, *t, case_sensitive=True) for t in expansion.plan.facts.tables}
    said = [(*t, cause) for t, rule in chosen.items() if (cause := _cause(rule))]
    return expansion.events.sparkSession.createDataFrame(said, _CAUSES)


def _cause(rule: Rule) -> str:
    """Why a rule moves rows; empty for one that leaves each where its key puts it."""
    strategy = rule.partition.lower()
    if strategy == "ts":
        return "the table is dispatched by ts"
    if strategy == "columns" and rule.columns:
        return f"the table is dispatched by columns {', '.join(rule.columns)}, whose values change"
    return f"the table is dispatched by index {rule.index}, whose values change" if rule.index else ""
