"""Small frames for pictures: what lies where and when, and the procedures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.audit import audit
from ticdc_lab.dispatch.rules import EVERYTHING, Rule
from ticdc_lab.dispatch.topics import TableFilter
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.repartition.consumer import CONSUMER_GUARANTEES, consumer_findings
from ticdc_lab.repartition.expand import IS_DATED_ROW, Expansion, expand, rules_recorded
from ticdc_lab.repartition.plan import PROCEDURES, Timing

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
        ``procedure``, ``guarantee`` (of :data:`ticdc_lab.repartition.consumer.CONSUMER_GUARANTEES`), ``changes`` (how
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


def examined(expansion: Expansion, *, protocol: str) -> dict[str, DataFrame]:
    """Findings by part of the log: :data:`ticdc_lab.events.schema.FINDINGS` each.

    Parameters
    ----------
    expansion
        What :func:`ticdc_lab.repartition.expand.expand` gave; read several times, so keep it first
        (:meth:`ticdc_lab.repartition.expand.Expansion.kept`).
    protocol
        As for :func:`ticdc_lab.audit.audit`.

    Returns
    -------
    dict
        ``before`` and ``after`` the Admin events, the ``whole`` log, and ``consumer``
        (:func:`ticdc_lab.repartition.consumer.consumer_findings`). Moves that a table's own rule makes are warnings.
        Without Admin events there is only the whole.
    """
    log = expansion.events
    parts = {"whole": log}
    if expansion.plan.admin_ms is not None:
        parts = {"before": log.where("alignment = 0"), "after": log.where("alignment = 1")} | parts
    causes = causes_of(expansion)
    found = {name: part.transform(audit, protocol=protocol, causes=causes) for name, part in parts.items()}
    return found | {"consumer": consumer_findings(log)}


def causes_of(expansion: Expansion) -> DataFrame:
    """Tables whose own rule moves rows, whatever the number of partitions; see :func:`ticdc_lab.audit.audit`."""
    rules = [(r, TableFilter.parse(r.matcher, case_sensitive=True)) for r in (*expansion.rules, EVERYTHING)]
    chosen = [(*t, next(r for r, f in rules if f.matches(*t))) for t in expansion.plan.facts.tables]
    said = [(schema, table, cause) for schema, table, rule in chosen if (cause := _cause(rule))]
    return expansion.events.sparkSession.createDataFrame(said, _CAUSES)


def _cause(rule: Rule) -> str:
    """Why a rule moves rows; empty for one that leaves each where its key puts it."""
    strategy = rule.partition.lower()
    if strategy == "ts":
        return "the table is dispatched by ts"
    if strategy == "columns" and rule.columns:
        return f"the table is dispatched by columns {', '.join(rule.columns)}, whose values change"
    return f"the table is dispatched by index {rule.index}, whose values change" if rule.index else ""
