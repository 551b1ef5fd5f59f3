"""Why a row moved: the dispatch rule of its table, where one explains what was recorded."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.findings import LOCATED, text
from ticdc_lab.prefix import POSITION
from ticdc_lab.schema import require_columns


def with_causes(findings: DataFrame, *, causes: DataFrame | None) -> DataFrame:
    """Say the cause of moves that a table's dispatch rule implies, and lower them to warnings.

    Parameters
    ----------
    findings
        Findings inside the audit, with ``topic``, ``schema_name``, ``table_name`` and ``moved_from``.
    causes
        ``schema_name, table_name, cause`` (string): one row per table whose rule moves rows between partitions. With
        ``topic`` too, a cause holds in that topic only. With ``partition, offset, seq`` besides, rows that have them
        name events that do not lie where the rule puts them; see :func:`ticdc_lab.dispatch.infer.move_causes`.

    Returns
    -------
    DataFrame
        The same columns. A move from or to an event that does not lie where the rule puts it stays an error and says
        so, as does one without any cause.
    """
    if causes is None:
        return findings
    require_columns(causes, "schema_name", "table_name", "cause", frame="causes")
    names = [c for c in ("topic", "schema_name", "table_name") if c in causes.columns]
    known = set(POSITION) <= set(causes.columns)
    of = F.broadcast(causes.where("cause IS NOT NULL").select(*[F.col(c).alias(f"_c_{c}") for c in (*names, "cause")]))
    out = findings.join(of, on=[F.col(c).eqNullSafe(F.col(f"_c_{c}")) for c in names], how="left")
    out, misplaced = _with_misplaced(out, causes) if known else (out, F.lit(False))
    moved, cause, message = F.col("moved_from").isNotNull(), F.col("_c_cause"), F.col("message")
    explained = moved & cause.isNotNull() & ~misplaced
    new = {
        "message": F.when(explained, text(message, " because ", cause))
        .when(moved & misplaced, text(message, ", which does not follow the rule of its table: ", cause))
        .when(moved, text(message, ", which no dispatch rule of its table explains"))
        .otherwise(message),
        "severity": F.when(explained, "warning").otherwise(F.col("severity")),
    }
    return out.select(*[new.get(c, F.col(c)).alias(c) for c in LOCATED])


def _with_misplaced(findings: DataFrame, causes: DataFrame) -> tuple[DataFrame, Column]:
    """Look both events of each move up among those that do not lie where their rule puts them."""
    events = causes.where("offset IS NOT NULL").select(*POSITION).distinct()
    out, found = findings, []
    for side in ("to", "from"):
        own = {c: F.col(c) for c in POSITION}
        if side == "from":  # else its own place, so that findings without one do not meet in one task
            own |= {c: F.coalesce(F.col("moved_from")[c], F.col(c)) for c in ("partition", "offset", "seq")}
        other = events.select(*[F.col(c).alias(f"_{side}_{c}") for c in POSITION])
        out = out.join(other, on=[own[c] == F.col(f"_{side}_{c}") for c in POSITION], how="left")
        found.append(F.col(f"_{side}_offset").isNotNull())
    return out, found[0] | found[1]
