"""How a guarantee states what breaks it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.schema import EVIDENCE, FINDINGS

SEVERITIES = ("error", "warning", "info")

PLACED = "STRUCT<severity: STRING, commit_ts: BIGINT, partition: INT, offset: BIGINT, seq: INT, message: STRING, \
evidence: ARRAY<STRUCT<partition: INT, offset: BIGINT, commit_ts: BIGINT>>, moved: BOOLEAN>"
"""What a guarantee says about one event, before its table and key are looked up."""


def evidence(*events: Column | None) -> Column:
    """The messages that show it: structs with ``partition``, ``offset`` and ``commit_ts``."""
    given = [e for e in events if e is not None]
    return F.array(*[F.struct(*[e[f].alias(f) for f in EVIDENCE.names]) for e in given])


def placed(
    event: Column, *, severity: Column | str, message: Column, evidence: Column, moved: Column | None = None
) -> Column:
    """One finding at ``event`` (struct with partition, offset, seq, commit_ts), as :data:`PLACED`.

    ``moved`` marks what a dispatch rule may explain.
    """
    return F.struct(
        (F.lit(severity) if isinstance(severity, str) else severity).alias("severity"),
        *[event[f].alias(f) for f in ("commit_ts", "partition", "offset", "seq")],
        message.alias("message"),
        evidence.alias("evidence"),
        (F.lit(False) if moved is None else moved).alias("moved"),
    ).cast(PLACED)


LOCATED = (*FINDINGS.names, "topic", "seq", "schema_name", "table_name", "moved")
"""Columns of a finding inside the audit: the contract's, where it lies, and whether a dispatch rule may explain it."""

_TYPES = {f.name: f.dataType.simpleString() for f in FINDINGS.fields} | {
    "topic": "string", "seq": "int", "schema_name": "string", "table_name": "string", "moved": "boolean",
}  # fmt: skip


def as_findings(frame: DataFrame, *, guarantee: str | None = None) -> DataFrame:
    """The columns :data:`LOCATED` from a frame that has some of them; the others are null."""
    have = {c: F.col(c) for c in frame.columns}
    if guarantee is not None:
        have["guarantee"] = F.lit(guarantee)
    return frame.select(*[have.get(c, F.lit(None)).cast(_TYPES[c]).alias(c) for c in LOCATED])


def text(*parts: Column | str) -> Column:
    """A sentence from literal text and columns; a null reads ``?``."""
    return F.concat(*[F.lit(p) if isinstance(p, str) else F.coalesce(p.cast("string"), F.lit("?")) for p in parts])
