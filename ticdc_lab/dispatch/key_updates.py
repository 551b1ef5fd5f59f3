"""Updates of a key, split into delete and insert as TiCDC does by default, and joined again.

TiCDC splits an update that changes a column of the primary key or of any unique index, unless
``output-raw-change-event`` is set (TiCDC's source). A log holds one form; these transforms give the other.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.dispatch.definitions import HashedColumns, unique_columns, with_answers
from ticdc_lab.engine.columns import in_order
from ticdc_lab.events.schema import OF_IMAGES, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.transactions import split_key_updates

_NEEDED = ("kind", "commit_ts", "schema_name", "table_name", "table_id", "op", "columns", "before")
_PART = ("schema_name", "table_name", "table_id", "commit_ts")
_UNIQUE_FLAGS = 8 | 16  # open-protocol: primary, unique
_BY_KEY, _BY_ROWID, _UNKNOWN = "by-key", "by-rowid", "unknown"
_UNIQUE, _TABLE = "_unique_columns", "_key_updates_table"


def key_change(*, unique_columns: Column | None = None) -> Column:
    """Whether an update changes its handle key or a unique value (boolean); false for other events.

    Parameters
    ----------
    unique_columns
        Names (array<string>) of all columns in a unique index; null where unknown. Open-protocol's flags tell too,
        of columns that are unique alone.
    """

    def is_unique(c: Column) -> Column:
        flagged = F.coalesce(c["flags"].bitwiseAND(F.lit(_UNIQUE_FLAGS)) > 0, F.lit(False))
        if unique_columns is None:
            return c["is_key"] | flagged
        return c["is_key"] | flagged | F.coalesce(F.array_contains(unique_columns, c["name"]), F.lit(False))

    def differs(b: Column) -> Column:
        same = F.exists("columns", lambda c: (c["name"] == b["name"]) & c["value"].eqNullSafe(b["value"]))
        return is_unique(b) & ~same

    # an old image with only the changed columns says of the others that they are the same
    return F.coalesce((F.col("op") == "update") & F.exists("before", differs), F.lit(False))


def split_updates(events: DataFrame, *, catalog: Catalog | None = None) -> DataFrame:
    """Split every update that changes a key, as TiCDC does with ``output-raw-change-event = false``.

    Parameters
    ----------
    events
        The events contract. May be a stream.
    catalog
        Gives the unique indexes; without it only handle keys and flagged columns are known.

    Returns
    -------
    DataFrame
        The same columns with the hashes of :data:`ticdc_lab.events.schema.KEYS`, without
        :data:`ticdc_lab.events.schema.OF_IMAGES`. Such an update becomes a delete with its whole old image and an
        insert at the same position; a log that is split already stays as it is.
    """
    require_columns(events, *_NEEDED)
    keyed = _with_unique(events.drop(*OF_IMAGES), catalog).transform(with_keys)
    changed = key_change(unique_columns=None if catalog is None else F.col(_UNIQUE))
    keyed = keyed.withColumn("_changed", changed).withColumn(
        "before", F.when(F.col("_changed"), _whole_before()).otherwise(F.col("before"))
    )
    return keyed.transform(split_key_updates, changed=F.col("_changed")).drop("_changed", _UNIQUE)


def joined_updates(events: DataFrame, *, catalog: Catalog | None = None) -> DataFrame:
    """Join deletes and inserts of one transaction to the updates that TiCDC split, where the log tells which they were.

    Parameters
    ----------
    events
        The events contract, one row per delivery.
    catalog
        Tells how the rows of a table are stored; without it only ``same-key`` joins.

    Returns
    -------
    DataFrame
        The columns of events with the hashes of :data:`ticdc_lab.events.schema.KEYS`, without
        :data:`ticdc_lab.events.schema.OF_IMAGES`, and ``joined`` (string, null for what is no delete or insert beside
        one of the other kind in its table's part of a transaction):

        - ``same-key``: an update now. TiKV holds one entry for the key, so the halves were one update.
        - ``only-pair``: an update now. The transaction deleted one row of the table and inserted one.
        - ``equal-rest``: an update now. Of all deletes and inserts these two alone agree in all other columns.
        - ``never-one``: left. The integer primary key is where the row is stored; TiCDC never sees that change as one
          update, split or not.
        - ``maybe-one``: left. The same holds if the primary key, which is no single integer, is clustered as it is by
          default since TiDB 5.0; the log does not tell.
        - ``ambiguous``: left. Nothing tells which delete belongs to which insert.

        The update stands at the delete's position, as TiCDC sends it.

    Raises
    ------
    StreamingError
        A half may be anywhere in the log.

    Notes
    -----
    ``only-pair`` and ``equal-rest`` are what a split would have left; that the user deleted one row and inserted
    another looks the same.
    """
    require_columns(events, *_NEEDED)
    require_batch(events, function="joined_updates", why="the other half of an update may be anywhere in it")
    keyed = events.drop(*OF_IMAGES).transform(with_keys)
    half = (F.col("kind") == "row") & F.col("op").isin("delete", "insert")
    half = F.coalesce(half & F.col("commit_ts").isNotNull() & F.col("key_hash").isNotNull(), F.lit(False))
    paired = _paired(keyed.where(half), catalog)
    updates = paired.where("is_pair AND op = 'delete'").select(*[_joined(n) for n in keyed.columns], "joined")
    left = paired.where("NOT is_pair").select(*keyed.columns, "joined")
    others = keyed.where(~half).withColumn("joined", F.lit(None).cast("string"))
    return others.unionByName(left).unionByName(updates)


def _paired(halves: DataFrame, catalog: Catalog | None) -> DataFrame:
    """Halves with ``joined``, ``is_pair`` and, for a delete in a pair, its ``insert``."""
    rest = F.filter(
        F.when(F.col("op") == "delete", F.col("before")).otherwise(F.col("columns")), lambda c: ~c["is_key"]
    )
    rest_hash = F.when(F.size(rest) > 0, F.xxhash64(F.transform(rest, lambda c: F.struct(c["name"], c["value"]))))
    known = _with_table(halves, catalog).withColumn("_rest", rest_hash)
    known = known.withColumns({"_same": _one_of_each("key_hash"), "_both": _both()})
    # halves of one key are each other's; they do not count when the others are paired
    known = known.withColumn("_other", F.when(~F.col("_same"), F.lit(1)))
    known = known.withColumns({"_only": _one_of_each("_other"), "_equal": _one_of_each("_other", "_rest")})
    stored = F.coalesce(F.get(F.col(_TABLE)["columns"], 0), F.lit(_UNKNOWN))
    joined = (
        F.when(F.col("_same"), "same-key")
        .when(~F.col("_both"), None)
        .when(stored == _BY_KEY, "never-one")
        .when(stored == _UNKNOWN, "maybe-one")
        .when(F.col("_only"), "only-pair")
        .when(F.col("_equal"), "equal-rest")
        .otherwise("ambiguous")
    )
    known = known.withColumn("joined", joined)
    known = known.withColumn(
        "is_pair", F.coalesce(F.col("joined").isin("same-key", "only-pair", "equal-rest"), F.lit(False))
    )
    mate = F.when(F.col("joined") == "same-key", F.col("key_hash")).when(
        F.col("joined") == "equal-rest", F.col("_rest")
    )
    group = Window.partitionBy(*_PART, "joined", mate)
    other = F.struct("columns", "key_hash", "change_hash")
    place = F.when(F.col("op") == "insert", in_order("offset", "partition", "topic", "seq"))
    insert = F.min_by(other, place).over(group)  # of several deliveries always the same one
    return known.withColumn("insert", F.when(F.col("is_pair"), insert))


def _one_of_each(*names: str) -> Column:
    """Whether the table's part of the transaction holds one delete and one insert of the same ``names``."""
    window = Window.partitionBy(*_PART, *names)
    one = F.lit(True)
    for op in ("delete", "insert"):
        key = F.when(F.col("op") == op, F.col("key_hash"))
        one = one & F.coalesce(F.min(key).over(window) == F.max(key).over(window), F.lit(False))
    for name in names:
        one = one & F.col(name).isNotNull()
    return one


def _both() -> Column:
    window = Window.partitionBy(*_PART)
    return F.max((F.col("op") == "delete").cast("int")).over(window).cast("boolean") & F.max(
        (F.col("op") == "insert").cast("int")
    ).over(window).cast("boolean")


def _joined(name: str) -> Column:
    """A column of the update, from its delete and the ``insert`` beside it."""
    insert, key = F.col("insert"), F.col("key_hash")
    of = {
        "op": F.lit("update"),
        "columns": insert["columns"],
        "key_hash": insert["key_hash"],
        "before_key_hash": F.when(insert["key_hash"] != key, key),
        "change_hash": F.xxhash64("change_hash", insert["change_hash"]),
    }
    return of.get(name, F.col(name)).alias(name)


def _whole_before() -> Column:
    """The old image with every column; what it leaves out is as in the new one."""

    def old(c: Column) -> Column:
        return F.coalesce(F.get(F.filter("before", lambda b: b["name"] == c["name"]), 0), c)

    return F.transform("columns", old)


def _with_unique(events: DataFrame, catalog: Catalog | None) -> DataFrame:
    if catalog is None:
        return events
    known = with_answers(events, catalog=catalog, questions={_UNIQUE: unique_columns})
    return known.withColumn(_UNIQUE, F.col(_UNIQUE)["columns"])


def _with_table(events: DataFrame, catalog: Catalog | None) -> DataFrame:
    if catalog is None:
        none = F.lit(None).cast("struct<columns: array<string>, error: string, integer_handle: boolean>")
        return events.withColumn(_TABLE, none)
    return with_answers(events, catalog=catalog, questions={_TABLE: lambda t: HashedColumns(columns=(_stored(t),))})


def _stored(table: TableDef) -> str:
    """Where TiDB keeps a row: at its primary key, or at a number of its own that no update changes."""
    if table.pk_is_handle:
        return _BY_KEY
    return _BY_ROWID if table.primary is None or _is_integer(table, table.primary.columns) else _UNKNOWN


def _is_integer(table: TableDef, columns: tuple[str, ...]) -> bool:
    column = table.column(columns[0])
    return len(columns) == 1 and column is not None and column.is_integer
