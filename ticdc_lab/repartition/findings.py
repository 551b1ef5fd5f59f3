"""The audits before, across and after a change of the number of partitions, and what a consumer makes of the log."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ticdc_lab.audit import audit
from ticdc_lab.dispatch.rules import EVERYTHING, Rule
from ticdc_lab.dispatch.topics import TableFilter
from ticdc_lab.repartition.consumer import consumer_findings
from ticdc_lab.repartition.expand import Expansion

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
