"""Every version of every row of one table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.errors import IncompleteHistoryError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.tables.knowledge import Knowledge, knowledge, no_such_table, require_defined
from ticdc_lab.tables.lives import Life, lives
from ticdc_lab.tables.naming import free_names
from ticdc_lab.tables.versions import (
    ColumnTrace,
    Stretch,
    by_stretch,
    changes_of,
    key_traces,
    keyed_changes,
    stretches,
    traces,
    valued,
)

ADDED = (
    "_commit_ts", "_op", "_valid_from", "_valid_to", "_ended_by", "_life", "_definition_ts", "_doubt", "_incomplete",
    "_unconvertible",
)  # fmt: skip
"""What the columns beside a table's own are called, unless one of those is called so."""


def table_history(
    events: DataFrame, *, schema_name: str, table_name: str, catalog: Catalog | None = None,
    known: Knowledge | None = None,
) -> DataFrame:  # fmt: skip
    """Give every version of every row of a table, typed, with the time it was valid.

    A table is followed through renames, truncations, and being dropped and created again; each of its *lives* counts
    from 0. A change counts once, however often it was delivered. Starts small jobs that bring the log's DDL, and a few
    facts of each table, to the driver; no rows.

    Parameters
    ----------
    events
        The events contract.
    schema_name, table_name
        The table, exactly as written. What a life was called before it bore this name is part of it; what it was
        called afterwards is not.
    catalog
        The table's definitions and what DDL did to its rows; the log's own where left out, and what the events
        themselves show where the log has no DDL of a table.
    known
        As for :func:`ticdc_lab.tables.as_of.table_as_of`.

    Returns
    -------
    DataFrame
        The table's columns under their newest names, with the Spark types of :mod:`ticdc_lab.tables.mysql_types`;
        where a column was of several types, one that holds all values as they were written. Then:
        ``_commit_ts`` (bigint, TSO), ``_op`` (``insert``, ``update`` or ``delete``; a version that an update of its key
        ended has ``delete``), ``_valid_from`` and ``_valid_to`` (bigint, TSO; the version was there from the first
        until just before the second, which is null while it is valid. Both are equal for a delete, its values the ones
        that were deleted), ``_ended_by`` (``update``, ``delete``, or what ended the table's life; null while valid),
        ``_life`` (int), ``_definition_ts`` (bigint: commit_ts of the definition in force, null from before the log),
        ``_doubt`` (string: a DDL during its time that moved rows without saying which; else null), ``_incomplete``
        (string, of the event), ``_unconvertible`` (array<struct<column, value, reason>>: values that do not fit their
        type, or miss in the event; null in their column). A name of these that the table has itself gets one more
        underscore, as ``__commit_ts``. Row changes without commit_ts are not in it.

    Raises
    ------
    IncompleteHistoryError
        The table has no handle key, so that no version is known to follow another; or its handle key changes; or a
        DDL of it was not understood.
    ProtocolError
        The log does not name the table.
    ContractError, StreamingError
        ``events`` misses a column or is a stream.

    Notes
    -----
    One shuffle by the row's key for the changes, which also orders the versions.
    """
    table = f"{schema_name}.{table_name}"
    known = knowledge(events, catalog=catalog) if known is None else known
    own = lives(known.catalog, (schema_name, table_name))
    if not own:
        raise no_such_table(table, known.catalog, known.facts)
    for life in own:
        require_defined(table, life)
    found = stretches(own)
    key, columns = key_traces(found, table=table), traces(found, all_columns=True)
    if any(not any(n in k.at for k in key) for n in range(len(found))):
        raise IncompleteHistoryError(
            f"{table} has no handle key, so a change may belong to either of two equal rows.",
            hint="Call `table_as_of()` for its rows at a timestamp.",
        )
    return _versions(changes_of(events, found), own, found, key, columns)


def _versions(
    changes: DataFrame,
    own: Sequence[Life],
    found: Sequence[Stretch],
    key: Sequence[ColumnTrace],
    columns: Sequence[ColumnTrace],
) -> DataFrame:
    each = keyed_changes(changes, found, key, columns)
    once = each.groupBy("_life", "_key", "commit_ts").agg(F.max_by("_row", F.struct("_rank", "_at")).alias("_row"))
    following = Window.partitionBy("_life", "_key").orderBy("commit_ts")
    gone = F.col("_row.op") == "delete"
    ends = _by_life([(n, F.lit(life.ended_at).cast("bigint")) for n, life in enumerate(own)])
    why = _by_life([(n, F.lit(life.ended_by or None)) for n, life in enumerate(own)])
    next_ts, next_op = F.lead("commit_ts").over(following), F.lead("_row.op").over(following)
    ended = once.withColumns({"_next_ts": next_ts, "_next_op": next_op}).withColumns(
        {
            "_to": F.when(gone, F.col("commit_ts")).otherwise(F.coalesce("_next_ts", ends)),
            "_by": F.when(gone, F.lit("delete"))
            .when(F.col("_next_op") == "insert", F.lit("update"))
            .otherwise(F.coalesce("_next_op", why)),
        }
    )
    facts = ended.select(
        "_life", "_to", "_by", F.col("commit_ts").alias("_ts"), F.col("_row.op").alias("_done"),
        F.col("_row.texts").alias("_texts"), F.col("_row.missing").alias("_missing"),
        F.col("_row._stretch").alias("_stretch"), F.col("_row.protocol").alias("protocol"),
        F.col("_row.incomplete").alias("_partial"),
    )  # fmt: skip
    since = [([n], F.lit(s.since).cast("bigint")) for n, s in enumerate(found)]
    *values, _, wrong = valued(columns, found, as_of=False)
    defined = by_stretch(since, other=F.lit(None).cast("bigint"))
    said = (*map(F.col, ("_ts", "_done", "_ts", "_to", "_by", "_life")), defined, _doubt(own), F.col("_partial"), wrong)
    names = free_names(ADDED, (c.name for c in columns))
    return facts.select(*values, *[column.alias(name) for column, name in zip(said, names, strict=True)])


def _by_life(choices: Sequence[tuple[int, Column]]) -> Column:
    out = choices[-1][1]
    for n, column in choices[:-1]:
        out = F.when(F.col("_life") == n, column).otherwise(out)
    return out


def _doubt(own: Sequence[Life]) -> Column:
    """Why a version may have been gone earlier, or be another row's, than the row events show."""
    out = F.lit(None).cast("string")
    for n, life in enumerate(own):
        for ts, reason in reversed(life.lost):
            during = (F.col("_ts") <= ts) & (F.col("_to").isNull() | (F.col("_to") > ts))
            out = F.when((F.col("_life") == n) & during, F.lit(f"{reason} (DDL of commit_ts {ts})")).otherwise(out)
    return out
