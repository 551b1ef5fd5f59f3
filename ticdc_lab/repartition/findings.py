"""The audits before, across and after a change of the number of partitions, and what a consumer makes of the log."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit import audit
from ticdc_lab.dispatch.infer import move_causes
from ticdc_lab.repartition.consumer import consumer_findings
from ticdc_lab.repartition.expand import Expansion

_CAUSE = ("topic", "schema_name", "table_name", "cause")


def examined(expansion: Expansion, *, protocol: str) -> dict[str, DataFrame]:
    """Findings by part of the log: :data:`ticdc_lab.schema.FINDINGS` each.

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
    causes = expansion.recorded.transform(move_causes).where(F.col("cause").isNotNull()).select(*_CAUSE)
    found = {name: part.transform(audit, protocol=protocol, causes=causes) for name, part in parts.items()}
    return found | {"consumer": consumer_findings(log)}
