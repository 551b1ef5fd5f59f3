"""The rows of one table at a consistent timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.engine.columns import named, no_texts
from ticdc_lab.errors import IncompleteHistoryError
from ticdc_lab.events.schema import BEFORE_UNNAMED
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.tables.knowledge import (
    Knowledge,
    RowsKnown,
    TableFacts,
    knowledge,
    limits_of,
    no_such_table,
    not_there,
    require_dated,
    require_defined,
    require_kept,
    require_resolved,
)
from ticdc_lab.tables.lives import Life, life_at
from ticdc_lab.tables.naming import free_names, said_of
from ticdc_lab.tables.versions import (
    AFTER,
    BEFORE,
    ColumnTrace,
    ImageParts,
    Stretch,
    changes_of,
    key_traces,
    keyed_changes,
    not_carried,
    stretches,
    text_of,
    traces,
    unseen_columns,
    valued,
    with_images,
)
from ticdc_lab.words import count

ADDED = ("_commit_ts", "_inferred", "_unconvertible")
"""What the columns beside a table's own are called, unless one of those is called so."""

_EQUAL_ROWS = (
    "{table} has no handle key: equal rows of one transaction count once, as a row that is delivered again, "
    "unless messages carry TiKV's keys of rows (`output-row-key`)."
)
_UNMATCHED = "Of {table} the log deletes {rows} more often than it inserts: they were there before it began."


@dataclass(frozen=True, slots=True)
class TableAsOf:
    """A table at a timestamp.

    Attributes
    ----------
    rows
        The table's columns as they were defined at ``ts``, with the Spark types of
        :mod:`ticdc_lab.tables.mysql_types`, then ``_commit_ts`` (bigint, TSO of the row's last change; null where the
        table has no handle key), ``_inferred`` (array<string>: columns whose value is in no event but follows from
        the DDL: defaults of columns added after the row's last change, values converted when a column was modified) and
        ``_unconvertible`` (array<struct<column, value, reason>>: values that do not fit their type or are unknown;
        null in their column). A name of these three that the table has itself gets one more underscore, as
        ``__commit_ts``.
    schema_name, table_name, ts
        What it is, and when (TSO).
    key
        Names of the handle key's columns.
    limits
        What the rows cannot show, one sentence each; empty if there is nothing.
    added
        What the last three columns of ``rows`` are called.
    """

    rows: DataFrame
    schema_name: str
    table_name: str
    ts: int
    key: tuple[str, ...]
    limits: tuple[str, ...]
    added: tuple[str, ...] = ADDED

    @property
    def ordered(self) -> DataFrame:
        """The rows by their key, or by all columns, so that the same input gives the same bytes."""
        return self.rows.orderBy(*map(named, self.key or self.rows.columns))


def table_as_of(
    events: DataFrame, *, schema_name: str, table_name: str, ts: int | None = None, catalog: Catalog | None = None,
    known: Knowledge | None = None,
) -> TableAsOf:  # fmt: skip
    """Give the rows of a table at a consistent timestamp, or refuse with the reason.

    Starts small jobs that bring the log's DDL, and a few facts of each partition and table, to the driver; no rows.

    Parameters
    ----------
    events
        The events contract.
    schema_name, table_name
        The table, exactly as it was called at ``ts``.
    ts
        TSO; all changes of this commit_ts and below count, DDL included. The log's resolved_ts where left out.
    catalog
        As for :func:`ticdc_lab.tables.history.table_history`.
    known
        What :func:`ticdc_lab.tables.knowledge.knowledge` found out about ``events``, where several tables or timestamps
        are asked for; found out again where left out.

    Returns
    -------
    TableAsOf
        The rows (lazy), and their limits.

    Raises
    ------
    IncompleteHistoryError
        ``ts`` is above the log's resolved_ts; a row of the table is known only in part; a DDL of the table was not
        understood, changed its handle key, or moved rows that no event names (partitions dropped or exchanged).
    ProtocolError
        The log does not name the table, the table does not exist at ``ts``, or its row changes have no commit_ts.
    ContractError, StreamingError
        ``events`` misses a column or is a stream.

    Notes
    -----
    One aggregation by the row's key, which keeps the newest version of each row on the map side already. A table
    without a handle key is a multiset: each change adds its row after and takes away its row before.
    """
    table = f"{schema_name}.{table_name}"
    known = knowledge(events, catalog=catalog) if known is None else known
    facts, definitions = known.facts, known.catalog
    # without commit_ts there are no watermarks either, and the first is the reason
    if (schema_name, table_name) in facts.tables:
        require_dated(table, facts.tables[schema_name, table_name])
    if (schema_name, table_name) not in definitions.versions:
        raise no_such_table(table, definitions, facts)
    moment = require_resolved(table, ts, facts)
    life = _life(definitions, (schema_name, table_name), moment)
    mine = _facts_of_life(facts, life)
    require_dated(table, mine)
    found = stretches([life])
    columns, key = traces(found, all_columns=False), key_traces(found, table=table)
    said = limits_of(table, life, facts, unseen_columns(found))
    changes = changes_of(events, found)
    if key:
        rows = _newest(changes, found, key, columns, partial=mine.incomplete > 0, table=table)
    else:
        rows, more = _multiset(changes, found, columns, life, mine, table=table)
        said = (*said, *more)
    added = free_names(ADDED, (c.name for c in columns))
    own = (*said, *said_of(table, ADDED, added))
    return TableAsOf(rows, schema_name, table_name, moment, tuple(k.name for k in key), own, added)


def _life(catalog: Catalog, name: tuple[str, str], ts: int) -> Life:
    table = ".".join(name)
    life, why = life_at(catalog, name, ts)
    if life is None:
        raise not_there(table, ts, why)
    require_defined(table, life)
    require_kept(table, life, ts)
    return life


def _facts_of_life(facts: RowsKnown, life: Life) -> TableFacts:
    """Facts of all names that the life bore, its whole time and other lives of these names included."""
    own = [facts.tables[name] for name in {p.name for p in life.pieces} if name in facts.tables]
    return TableFacts(sum(f.rows for f in own), sum(f.undated for f in own), sum(f.incomplete for f in own))


def _newest(
    changes: DataFrame, found: Sequence[Stretch], key: Sequence[ColumnTrace], columns: Sequence[ColumnTrace], *,
    partial: bool, table: str,
) -> DataFrame:  # fmt: skip
    """The newest version of each row that no delete ended."""
    each = keyed_changes(changes, found, key, columns)
    newest = F.max_by(F.struct("commit_ts", "_row"), F.struct("commit_ts", "_rank", "_at"))
    last = each.groupBy("_key").agg(newest.alias("_last")).select("_last.commit_ts", "_last._row.*")
    there = last.where("op IN ('insert', 'update')")
    if partial:
        _require_whole(there, table)
    return _shaped(there.withColumnRenamed("texts", "_texts").withColumnRenamed("missing", "_missing"), found, columns)


def _require_whole(rows: DataFrame, table: str) -> None:
    """No row's newest version is known only in part."""
    found = rows.where(F.col("incomplete") != BEFORE_UNNAMED).groupBy("incomplete").count().collect()
    if found:
        said = ", ".join(f"{r['count']} {r['incomplete']}" for r in sorted(found, key=lambda r: r["incomplete"]))
        raise IncompleteHistoryError(
            f"{table}: the newest versions of some rows are known only in part ({said}).",
            hint="Fetch the claim-check objects, or let the changefeed send large messages whole "
            "(`large-message-handle`).",
        )


def _shaped(rows: DataFrame, found: Sequence[Stretch], columns: Sequence[ColumnTrace]) -> DataFrame:
    *values, inferred, wrong = valued(columns, found, as_of=True)
    return rows.select(*values, *_added(columns, F.col("commit_ts"), inferred, wrong))


def _added(columns: Sequence[ColumnTrace], *said: Column) -> list[Column]:
    """Notes on each row, under names that the table has not taken."""
    names = free_names(ADDED, (c.name for c in columns))
    return [column.alias(name) for column, name in zip(said, names, strict=True)]


def _multiset(
    changes: DataFrame, found: Sequence[Stretch], columns: Sequence[ColumnTrace], life: Life, facts: TableFacts, *,
    table: str,
) -> tuple[DataFrame, tuple[str, ...]]:  # fmt: skip
    """Rows of a table without a handle key: what was added more often than taken away, so many times."""
    partial = facts.incomplete or changes.where(F.col("incomplete") == BEFORE_UNNAMED).count()
    if partial:
        raise IncompleteHistoryError(f"{table}: {partial} of its row changes are known only in part.")
    names = [f"_c{i}" for i in range(len(columns))]
    shaped = signed(changes, found, columns)
    *values, inferred, wrong = valued(columns, found, as_of=True)
    typed = shaped.select(
        "_by", *[v.alias(n) for v, n in zip(values, names, strict=True)], inferred, wrong
    )  # fmt: skip
    # a row written before a column was added is equal to its old image after: compare values, not texts
    whole = F.struct(*names, F.transform("_unconvertible", lambda u: u["value"]).alias("unfit"))
    counted = typed.groupBy(whole.alias("_row")).agg(
        F.sum("_by").alias("_n"),
        F.min_by(F.struct("_inferred", "_unconvertible"), F.struct("_inferred", _unconvertible_in_order())).alias(
            "_said"
        ),
    )
    taken = counted.agg(F.coalesce(F.sum(F.when(F.col("_n") < 0, -F.col("_n"))), F.lit(0)).alias("n")).collect()[0]["n"]
    if taken and life.from_log:
        raise IncompleteHistoryError(
            f"{table}: the log deletes {count(taken, 'row')} more often than it inserts, although it has the table "
            "from its creation: changes are missing, or equal rows of one transaction counted once.",
            hint="Run `ticdc-lab audit` on the log; give the table a primary key.",
        )
    copies = F.explode(F.array_repeat(F.lit(1), F.col("_n").cast("int")))
    rows = counted.where("_n > 0").select("_row", "_said", copies.alias("_copy"))
    own = [F.col(f"_row.{n}").alias(t.name) for n, t in zip(names, columns, strict=True)]
    none = F.lit(None).cast("bigint")
    added = _added(columns, none, F.col("_said._inferred"), F.col("_said._unconvertible"))
    unmatched = [_UNMATCHED.format(rows=count(taken, "row"), table=table)] if taken else []
    return rows.select(*own, *added), (_EQUAL_ROWS.format(table=table), *unmatched)


def _unconvertible_in_order() -> Column:
    """``_unconvertible`` as texts that come in the order of its structs."""
    value = F.col("_unconvertible")
    each = F.transform(
        value,
        lambda u: F.array(
            u["column"], u["value"].isNotNull().cast("string"), F.coalesce(u["value"], F.lit("")), u["reason"]
        ),
    )
    return F.flatten(each)


def signed(changes: DataFrame, found: Sequence[Stretch], columns: Sequence[ColumnTrace]) -> DataFrame:
    """Each change once: its row after with 1, its row before with -1."""
    keyed = with_keys(changes)
    identity = ("commit_ts", *(["start_ts"] if "start_ts" in keyed.columns else []), "op", "change_hash")
    whole = F.struct("columns", "before", "_stretch", "protocol")
    once = keyed.groupBy(*identity).agg(F.first(whole).alias("_c")).select("op", "_c.*").transform(with_images)

    def side(image: ImageParts, by: int, *fallback: ImageParts) -> Column:
        texts = F.array(*[text_of(c, image, *fallback) for c in columns]).alias("_texts")
        lacking = F.coalesce(not_carried(found, image), no_texts())
        if fallback:
            lacking = F.array_except(lacking, F.coalesce(fallback[0].names, no_texts()))
        there = F.col(image.name).isNotNull()
        return F.when(there, F.struct(texts, lacking.alias("_missing"), F.lit(by).alias("_by")))

    sides = F.array_compact(F.array(side(AFTER, 1), side(BEFORE, -1, AFTER)))
    return once.select("_stretch", "protocol", F.explode(sides).alias("_s")).select("_stretch", "protocol", "_s.*")
