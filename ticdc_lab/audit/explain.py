"""Why a row moved: the dispatch rule of its table, where one explains what was recorded."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.findings import LOCATED, text
from ticdc_lab.schema import require_columns


def with_causes(findings: DataFrame, *, causes: DataFrame | None) -> DataFrame:
    """Say the cause of findings that a table's dispatch rule implies, and lower them to warnings.

    Parameters
    ----------
    findings
        Findings inside the audit, with ``schema_name``, ``table_name`` and ``moved``.
    causes
        ``schema_name, table_name, cause`` (string): one row per table whose rule moves rows between partitions.

    Returns
    -------
    DataFrame
        The same columns. A move that no cause explains stays an error and says so.
    """
    if causes is None:
        return findings
    require_columns(causes, "schema_name", "table_name", "cause", frame="causes")
    of = F.broadcast(causes.select(*[F.col(c).alias(f"_c_{c}") for c in ("schema_name", "table_name", "cause")]))
    same = [F.col(c).eqNullSafe(F.col(f"_c_{c}")) for c in ("schema_name", "table_name")]
    explained = F.col("moved") & F.col("_c_cause").isNotNull()
    message = (
        F.when(explained, text(F.col("message"), " because ", F.col("_c_cause")))
        .when(F.col("moved"), text(F.col("message"), ", which no dispatch rule of its table explains"))
        .otherwise(F.col("message"))
    )
    severity = F.when(explained, "warning").otherwise(F.col("severity"))
    new = {"message": message, "severity": severity}
    return findings.join(of, on=same, how="left").select(*[new.get(c, F.col(c)).alias(c) for c in LOCATED])
