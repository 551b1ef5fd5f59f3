"""How a guarantee states what breaks it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.schema import EVIDENCE, FINDINGS

SEVERITIES = ("error", "warning", "info")

PLACED = "STRUCT<severity: STRING, commit_ts: BIGINT, partition: INT, offset: BIGINT, seq: INT, message: STRING, \
evidence: ARRAY<STRUCT<partition: INT, offset: BIGINT, commit_ts: BIGINT>>, \
moved_from: STRUCT<partition: INT, offset: BIGINT, seq: INT>>"
"""What a guarantee says about one event, before its table and key are looked up."""


def evidence(*events: Column | None) -> Column:
    """The messages that show it: structs with ``partition``, ``offset`` and ``commit_ts``."""
    given = [e for e in events if e is not None]
    return F.array(*[F.struct(*[e[f].alias(f) for f in EVIDENCE.names]) for e in given])


def placed(
    event: Column, *, severity: Column | str, message: Column, evidence: Column, moved_from: Column | None = None
) -> Column:
    """One finding at ``event`` (struct with partition, offset, seq, commit_ts), as :data:`PLACED`.

    ``moved_from`` is the event that a row moved away from, where a dispatch rule may explain it.
    """
    return F.struct(
        (F.lit(severity) if isinstance(severity, str) else severity).alias("severity"),
        *[event[f].alias(f) for f in ("commit_ts", "partition", "offset", "seq")],
        message.alias("message"),
        evidence.alias("evidence"),
        (F.lit(None) if moved_from is None else moved_from).alias("moved_from"),
    ).cast(PLACED)


LOCATED = (*FINDINGS.names, "topic", "seq", "schema_name", "table_name", "moved_from")
"""Columns of a finding inside the audit: the contract's, where it lies, and for a row that moved, from where."""

_TYPES = {f.name: f.dataType.simpleString() for f in FINDINGS.fields} | {
    "topic": "string", "seq": "int", "schema_name": "string", "table_name": "string",
    "moved_from": "struct<partition: int, offset: bigint, seq: int>",
}  # fmt: skip


def as_findings(frame: DataFrame) -> DataFrame:
    """The columns :data:`LOCATED` from a frame that has some of them; the others are null."""
    have = {c: F.col(c) for c in frame.columns}
    return frame.select(*[have.get(c, F.lit(None)).cast(_TYPES[c]).alias(c) for c in LOCATED])


def text(*parts: Column | str) -> Column:
    """A sentence from literal text and columns; a null reads ``?``."""
    return F.concat(*[F.lit(p) if isinstance(p, str) else F.coalesce(p.cast("string"), F.lit("?")) for p in parts])
