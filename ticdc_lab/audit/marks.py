"""What a log states besides its rows, in one small frame: its watermarks, DDL and Admin events, and what it covers.

Every guarantee needs some of it, so it is read in two scans, gathered in one task and used from there
(:mod:`ticdc_lab.audit.promises` for rows, :mod:`ticdc_lab.audit.broadcasts` for the log). That task holds a few dozen
bytes a watermark; a partition has one a second.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.prefix import PARTITION, POSITION

NAMES = ("schema_name", "table_name")

_FACT = ("kind", *POSITION, "commit_ts", *NAMES, "place", "last_ts", "query", "blocked", "partition_count", "held")

IN_CHUNK = 64
"""Offsets of which one number says which are there."""


def place_col() -> Column:
    """Number (bigint) that names topic, partition, schema and table."""
    return F.xxhash64(*PARTITION, *NAMES)


def log_facts(events: DataFrame) -> DataFrame:
    """Watermarks, DDL, Admin events and places of a log, in one task.

    Parameters
    ----------
    events
        The whole log: ``kind, commit_ts, query``, position and names, and ``admin`` where there are Admin events.

    Returns
    -------
    DataFrame
        ``kind``: ``watermark`` and ``ddl`` as in the log (those with a commit_ts), and one ``rows`` or ``other`` (no
        rows) per place, with its first ``offset``, its least ``commit_ts`` and its greatest, ``last_ts``; ``blocked``:
        :func:`blocked_tables` of a DDL; ``partition_count`` of an ``admin``. ``offsets``: ``held`` (bigint) has a bit
        for each of the :data:`IN_CHUNK` offsets from ``offset`` on that is there. A frame used twice shares its
        exchange.
    """
    chunked = events.withColumn("_chunk", F.expr(f"offset div {IN_CHUNK}L"))
    sets = [[*PARTITION, *NAMES], [*PARTITION, "_chunk"]]
    placed = chunked.groupingSets(sets, *PARTITION, *NAMES, "_chunk").agg(
        F.max(F.col("kind") == "row").alias("_rows"),
        F.min("offset").alias("offset"),
        F.min("commit_ts").alias("commit_ts"),
        F.max("commit_ts").alias("last_ts"),
        F.bit_or(F.expr(f"shiftleft(1L, int(offset % {IN_CHUNK}))")).alias("held"),
    )
    kind = F.when(F.col("_chunk").isNotNull(), "offsets").when(F.col("_rows"), "rows").otherwise("other")
    places = placed.withColumns(
        {
            "kind": kind,
            "place": F.when(F.col("_chunk").isNull(), place_col()),
            "offset": F.coalesce(F.col("_chunk") * IN_CHUNK, "offset"),
        }
    )
    stated = "kind IN ('watermark', 'ddl') AND commit_ts IS NOT NULL OR kind = 'admin'"
    count = F.col("admin.partition_count") if "admin" in events.columns else F.lit(None).cast("int")
    marks = events.where(stated).withColumns(
        {"blocked": F.when(F.col("kind") == "ddl", blocked_tables()), "partition_count": count}
    )
    return _facts(places).unionByName(_facts(marks)).repartition(1)


def blocked_tables() -> Column:
    """Tables that a DDL event orders rows against: array of ``struct<schema, table>``; table null is the whole schema.

    The event's own table; a rename also blocks the old name, an exchange of partitions the other table (golden README
    section 6: a DDL is ordered only against the tables it blocks).
    """
    own = F.struct(
        F.col("schema_name").alias("schema"),
        F.when(F.col("table_name") != "", F.col("table_name")).alias("table"),
    )
    renamed = _named_after(r"^\s*RENAME\s+TABLE\s+")
    altered = _named_after(r"^\s*ALTER\s+TABLE\s+")
    exchanged = _named_after(r"\sWITH\s+TABLE\s+")
    others = F.array(renamed, altered, F.when(F.upper("query").contains("EXCHANGE PARTITION"), exchanged))
    return F.array_distinct(F.concat(F.array(own), F.array_compact(others)))


def _facts(frame: DataFrame) -> DataFrame:
    types = {"seq": "int", "place": "bigint", "last_ts": "bigint", "query": "string", "partition_count": "int"} | {
        "held": "bigint",
        "blocked": "array<struct<schema: string, table: string>>",
    }
    have = set(frame.columns)
    return frame.select(*[F.col(c) if c in have else F.lit(None).cast(types[c]).alias(c) for c in _FACT])


_NAME = r"(?:`((?:[^`]|``)+)`|([A-Za-z0-9_$]+))"


def _named_after(keywords: str) -> Column:
    """The table named after ``keywords`` in the query, qualified or in the event's own schema; null without one."""
    pattern = f"(?i){keywords}(?:{_NAME}\\s*\\.\\s*)?{_NAME}"

    def group(i: int) -> Column:
        quoted = F.replace(F.regexp_extract("query", pattern, i), F.lit("``"), F.lit("`"))
        return F.concat(quoted, F.regexp_extract("query", pattern, i + 1))

    schema = F.when(group(1) != "", group(1)).otherwise(F.col("schema_name"))
    return F.when(group(3) != "", F.struct(schema.alias("schema"), group(3).alias("table")))
