"""A changefeed's settings as transforms of recorded events, how it splits updates of keys, and what each does to the
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.dispatch.changefeed import Changefeed
from ticdc_lab.dispatch.checks import TableKeys
from ticdc_lab.dispatch.definitions import HashedColumns, unique_columns, with_columns_named
from ticdc_lab.dispatch.dispatching import dispatch_by_rules
from ticdc_lab.dispatch.guarantees import MEASURES, guarantees
from ticdc_lab.dispatch.names import Flavour
from ticdc_lab.dispatch.numbering import UNIQUE_FLAGS
from ticdc_lab.dispatch.routing import Upstream, routes, sources_of
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.engine.columns import in_order
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import OF_IMAGES, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.transactions import split_key_updates

_NEEDED = ("kind", "commit_ts", "schema_name", "table_name", "table_id", "op", "columns", "before")
_PART = ("schema_name", "table_name", "table_id", "commit_ts")
_BY_KEY, _BY_ROWID, _UNKNOWN = "by-key", "by-rowid", "unknown"
_UNIQUE, _TABLE = "_unique_columns", "_key_updates_table"


def key_change(*, unique_columns: Column | None = None) -> Column:
    """Whether an update changes its handle key or a unique value (boolean); false for other events.

    ``unique_columns``: names (array<string>) of all columns in a unique index; null where unknown. Open-protocol's
    flags show columns that are unique alone, too.
    """

    def is_unique(c: Column) -> Column:
        flagged = F.coalesce(c["flags"].bitwiseAND(F.lit(UNIQUE_FLAGS)) > 0, F.lit(False))
        if unique_columns is None:
            return c["is_key"] | flagged
        return c["is_key"] | flagged | F.coalesce(F.array_contains(unique_columns, c["name"]), F.lit(False))

    def differs(b: Column) -> Column:
        same = F.exists("columns", lambda c: (c["name"] == b["name"]) & c["value"].eqNullSafe(b["value"]))
        return is_unique(b) & ~same

    # an old image with only the changed columns means that the others are the same
    return F.coalesce((F.col("op") == "update") & F.exists("before", differs), F.lit(False))


def split_updates(events: DataFrame, *, catalog: Catalog | None = None) -> DataFrame:
    """Split every update that changes a key, as TiCDC does with ``output-raw-change-event = false``.

    ``events``: the events contract. May be a stream. ``catalog``: gives the unique indexes; without it only handle keys
    and flagged columns are known. Returns: the same columns with the hashes of :data:`ticdc_lab.events.schema.KEYS`,
    without :data:`ticdc_lab.events.schema.OF_IMAGES`. Such an update becomes a delete with its whole old image and an
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
    """Join deletes and inserts of one transaction to the updates that TiCDC split, where the log shows them.

    Parameters
    ----------
    events
        The events contract, one row per delivery.
    catalog
        Shows how the rows of a table are stored; without it only ``same-key`` joins.

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
          default since TiDB 5.0; the log does not show it.
        - ``ambiguous``: left. Nothing shows which delete belongs to which insert.

        The update is at the delete's position, as TiCDC sends it.

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
    stored = F.coalesce(F.get(F.col(_TABLE), 0), F.lit(_UNKNOWN))
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
    return with_columns_named(events, catalog=catalog, question=unique_columns, name=_UNIQUE)


def _with_table(events: DataFrame, catalog: Catalog | None) -> DataFrame:
    if catalog is None:
        return events.withColumn(_TABLE, F.lit(None).cast("array<string>"))

    def stored(table: TableDef) -> HashedColumns:
        return HashedColumns(columns=(_stored(table),))

    return with_columns_named(events, catalog=catalog, question=stored, name=_TABLE)


def _stored(table: TableDef) -> str:
    """Where TiDB keeps a row: at its primary key, or at a number of its own that no update changes."""
    if table.pk_is_handle:
        return _BY_KEY
    return _BY_ROWID if table.primary is None or _is_integer(table, table.primary.columns) else _UNKNOWN


def _is_integer(table: TableDef, columns: tuple[str, ...]) -> bool:
    column = table.column(columns[0])
    return len(columns) == 1 and column is not None and column.is_integer


SETTINGS: Mapping[str, Mapping[str, bool]] = {
    "split": {"raw": False, "dispatch_old_value": True},
    "raw": {"raw": True, "dispatch_old_value": True},
    "no-old-value": {"raw": False, "dispatch_old_value": False},
}
"""Settings that change which rows are sent: key updates split (the default), sent whole, and without old values."""


def without_old_value(events: DataFrame) -> DataFrame:
    """What a classic changefeed with ``enable-old-value = false`` sends for the same changes.

    Parameters
    ----------
    events
        The events contract. May be a stream.

    Returns
    -------
    DataFrame
        The columns of events with the hashes of :data:`ticdc_lab.events.schema.KEYS`, without
        :data:`ticdc_lab.events.schema.OF_IMAGES`:

        - an update that changes its handle key becomes a delete and an insert, because TiKV deletes the old key's entry
          and puts the new one;
        - an insert and an update look the same: ``op`` is ``insert``, ``incomplete`` is ``op-unknown`` where it is
          empty so far, and there is no image before;
        - a delete holds only its handle key, so that a dispatcher by another column cannot place it;
        - a table without handle key has no deletes.

    References
    ----------
    pingcap/tiflow v5.4, ``cdc/entry/mounter.go`` (deletes come from entries of the handle's index alone).
    """
    require_columns(events, "kind", "op", "columns", "before", "incomplete")
    rows = events.drop(*OF_IMAGES).transform(with_keys).transform(split_key_updates)
    is_put = (F.col("kind") == "row") & F.col("op").isin("insert", "update")
    keys = F.filter("before", lambda c: c["is_key"])
    none = F.lit(None)
    without_key = (F.col("kind") == "row") & (F.col("op") == "delete") & F.col("key_hash").isNull()
    return rows.where(~F.coalesce(without_key, F.lit(False))).withColumns(
        {
            "incomplete": F.when(is_put, F.coalesce("incomplete", F.lit("op-unknown"))).otherwise(F.col("incomplete")),
            "op": F.when(is_put, "insert").otherwise(F.col("op")),
            "before": F.when(is_put, none).otherwise(keys),
        }
    )


def with_settings(events: DataFrame, *, changefeed: Changefeed, catalog: Catalog | None = None) -> DataFrame:
    """The row changes as this changefeed would send them, from a log that any changefeed recorded.

    Parameters
    ----------
    events
        The events contract.
    changefeed
        ``raw`` and ``dispatch_old_value`` are looked at. What a protocol leaves out of a message changes no dispatch,
        because TiCDC dispatches the whole row.
    catalog
        Table definitions over time.

    Returns
    -------
    DataFrame
        The columns of events with the hashes of :data:`ticdc_lab.events.schema.KEYS`, without
        :data:`ticdc_lab.events.schema.OF_IMAGES`.
    """
    if not changefeed.dispatch_old_value:
        return without_old_value(events)
    if changefeed.raw:
        return joined_updates(events, catalog=catalog).drop("joined")
    return split_updates(events, catalog=catalog)


def rules_in_force(changefeed: Changefeed) -> tuple[Rule, ...]:
    """The rules with ``default`` as it was: without old values it looks at the table's unique columns."""
    if changefeed.dispatch_old_value:
        return changefeed.rules
    rules = (*changefeed.rules, Rule(("*.*",)))
    return tuple(replace(r, partition="default-no-old-value") if r.partition == "default" else r for r in rules)


def dispatched(
    events: DataFrame,
    *,
    changefeed: Changefeed,
    partitions: int | None = None,
    catalog: Catalog | None = None,
    flavour: Flavour = "new",
    sources: Mapping[tuple[str, str], Upstream] | None = None,
) -> DataFrame:
    """Events as the changefeed sends them (:func:`with_settings`), with their topic and partition.

    ``events``, ``changefeed``, ``catalog``: as for :func:`with_settings`. ``partitions``: number of partitions of every
    topic; default: the changefeed's. ``flavour``: as for :func:`ticdc_lab.dispatch.rules.dispatch_by_rules`,
    whose columns are added. ``sources``: as there; where rules route tables they are worked out from the names in the
    events. Raises DispatchError: the number of partitions is unknown, or as ``dispatch_by_rules`` does.
    """
    changefeed.require_partitions()
    n = partitions if partitions is not None else changefeed.partitions
    if n is None:
        raise DispatchError(
            "The number of partitions is not known.", hint="Pass `partitions`, or set `partition-num` in the sink-uri."
        )
    if sources is None and routes(changefeed.rules):
        sources = sources_of(changefeed.rules, tables_in(events), case_sensitive=changefeed.case_sensitive)
    return with_settings(events, changefeed=changefeed, catalog=catalog).transform(
        dispatch_by_rules,
        rules=rules_in_force(changefeed),
        partitions=n,
        catalog=catalog,
        flavour=flavour,
        case_sensitive=changefeed.case_sensitive,
        default_topic=changefeed.default_topic or "default",
        protocol=changefeed.protocol,
        sources=sources,
    )


def keys_in(
    events: DataFrame, tables: Sequence[tuple[str, str]], catalog: Catalog | None
) -> dict[tuple[str, str], TableKeys]:
    """Columns and unique indexes of tables as they are last: of their definitions, else of their rows."""
    found = {}
    for table in tables:
        versions = () if catalog is None else catalog.versions.get(table, ())
        defined = [v.definition for v in versions if v.definition is not None]
        if defined:
            last = defined[-1]
            of_indexes = [i.columns for i in (last.primary, *last.unique_indexes) if i is not None]
            found[table] = TableKeys(tuple(c.name for c in last.columns), tuple(of_indexes))
    if len(found) < len(tables):
        names = F.transform(F.coalesce("columns", "before"), lambda c: F.struct(c["name"], c["is_key"]))
        rows = events.where("kind = 'row'").select("schema_name", "table_name", names.alias("names")).distinct()
        for row in rows.toArrow().to_pylist():
            table = (row["schema_name"], row["table_name"])
            if table not in found and row["names"]:
                key = tuple(c["name"] for c in row["names"] if c["is_key"])
                found[table] = TableKeys(tuple(c["name"] for c in row["names"]), (key,) if key else ())
    return found


def tables_in(events: DataFrame) -> list[tuple[str, str]]:
    """Schema and name of each table that has a row."""
    named = events.where("kind = 'row' AND table_name IS NOT NULL").select("schema_name", "table_name").distinct()
    return sorted((str(r["schema_name"]), str(r["table_name"])) for r in named.toArrow().to_pylist())


def setting_effects(
    events: DataFrame, *, changefeed: Changefeed, partitions: int | None = None, catalog: Catalog | None = None,
    settings: Iterable[str] = tuple(SETTINGS),
) -> DataFrame:  # fmt: skip
    """What each of some :data:`SETTINGS` does to the guarantees, with a concrete pair of rows where one breaks.

    Parameters
    ----------
    events, changefeed, partitions, catalog
        As for :func:`dispatched`.
    settings
        Names of those that are asked for; default: all.

    Returns
    -------
    DataFrame
        ``setting`` and the columns of :func:`ticdc_lab.dispatch.guarantees.guarantees`.

    Notes
    -----
    With ``raw`` an update of a key goes to the partition of the new key, and the old key's partition is not informed:
    ``row_order`` is broken between the old key's last change and the update. Split, each half goes to its own key's
    partition; what can still break is ``row_order_any_unique``, where another unique value passes between the two.
    """

    def measured(name: str) -> DataFrame:
        setting = SETTINGS[name]
        feed = replace(changefeed, raw=setting["raw"], dispatch_old_value=setting["dispatch_old_value"])
        sent = dispatched(events, changefeed=feed, partitions=partitions, catalog=catalog)
        return guarantees(sent, catalog=catalog).withColumn("setting", F.lit(name))

    every = reduce(DataFrame.unionByName, [measured(name) for name in settings])
    return every.select("setting", *MEASURES)


def key_update_counts(events: DataFrame, *, catalog: Catalog | None = None) -> DataFrame:
    """How the log's updates of keys are written, per table.

    Parameters
    ----------
    events, catalog
        As for :func:`ticdc_lab.dispatch.settings.joined_updates`.

    Returns
    -------
    DataFrame
        ``table`` (``schema.table``), ``updates`` (bigint), ``whole`` (updates that change a key and were not split) and
        one count per answer of :func:`~ticdc_lab.dispatch.settings.joined_updates`: ``same_key``, ``only_pair``,
        ``equal_rest``: pairs that are updates; ``never_one``, ``maybe_one``, ``ambiguous``: deletes and inserts left.
    """
    joined = joined_updates(events, catalog=catalog).where("kind = 'row'")

    def n(condition: Column, name: str) -> Column:
        return F.count_if(condition).alias(name)

    is_update, none = F.col("op") == "update", F.col("joined").isNull()
    kinds = ("same-key", "only-pair", "equal-rest", "never-one", "maybe-one", "ambiguous")
    return joined.groupBy(F.concat_ws(".", "schema_name", "table_name").alias("table")).agg(
        n(is_update & none, "updates"),
        n(is_update & none & F.col("before_key_hash").isNotNull(), "whole"),
        *[n(F.col("joined") == k, k.replace("-", "_")) for k in kinds],
    )
