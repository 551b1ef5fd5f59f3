"""A changefeed's settings as transforms of recorded events, and what each does to the order of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.dispatch.changefeed import Changefeed
from ticdc_lab.dispatch.guarantees import guarantees
from ticdc_lab.dispatch.hashing import Flavour
from ticdc_lab.dispatch.key_updates import joined_updates, split_updates
from ticdc_lab.dispatch.rules import Rule, dispatch_by_rules
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import OF_IMAGES, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.transactions import split_key_updates

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
        - an insert and an update look the same: ``op`` is ``insert``, ``incomplete`` is ``op-unknown`` where it says
          nothing yet, and there is no image before;
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
    """The row changes as this changefeed would send them, from those of a log that any changefeed recorded.

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
) -> DataFrame:
    """Events as the changefeed sends them (:func:`with_settings`), with their topic and partition.

    Parameters
    ----------
    events, changefeed, catalog
        As for :func:`with_settings`.
    partitions
        Number of partitions of every topic; default: what the changefeed says.
    flavour
        As for :func:`ticdc_lab.dispatch.rules.dispatch_by_rules`, whose columns are added.

    Raises
    ------
    DispatchError
        Nobody says how many partitions there are, or as ``dispatch_by_rules`` does.
    """
    n = partitions if partitions is not None else changefeed.partitions
    if n is None:
        raise DispatchError(
            "The number of partitions is not known.", hint="Pass partitions, or partition-num in the sink-uri."
        )
    return with_settings(events, changefeed=changefeed, catalog=catalog).transform(
        dispatch_by_rules,
        rules=rules_in_force(changefeed),
        partitions=n,
        catalog=catalog,
        flavour=flavour,
        case_sensitive=changefeed.case_sensitive,
        default_topic=changefeed.default_topic or "default",
        protocol=changefeed.protocol,
    )


def setting_effects(
    events: DataFrame, *, changefeed: Changefeed, partitions: int | None = None, catalog: Catalog | None = None
) -> DataFrame:
    """What each of :data:`SETTINGS` does to the guarantees, with a concrete pair of rows where one breaks.

    Parameters
    ----------
    events, changefeed, partitions, catalog
        As for :func:`dispatched`.

    Returns
    -------
    DataFrame
        ``setting`` and the columns of :func:`ticdc_lab.dispatch.guarantees.guarantees`.

    Notes
    -----
    With ``raw`` an update of a key goes to the partition of the new key, and nothing tells the old key's partition:
    ``row_order`` is broken between the old key's last change and the update. Split, each half goes to its own key's
    partition; what can still break is ``row_order_any_unique``, where another unique value passes between the two.
    """

    def measured(name: str) -> DataFrame:
        setting = SETTINGS[name]
        feed = replace(changefeed, raw=setting["raw"], dispatch_old_value=setting["dispatch_old_value"])
        sent = dispatched(events, changefeed=feed, partitions=partitions, catalog=catalog)
        return guarantees(sent, catalog=catalog).withColumn("setting", F.lit(name))

    every = reduce(DataFrame.unionByName, [measured(name) for name in SETTINGS])
    return every.select("setting", *[c for c in every.columns if c != "setting"])


def key_update_counts(events: DataFrame, *, catalog: Catalog | None = None) -> DataFrame:
    """How the log's updates of keys are written, per table.

    Parameters
    ----------
    events, catalog
        As for :func:`ticdc_lab.dispatch.key_updates.joined_updates`.

    Returns
    -------
    DataFrame
        ``table`` (``schema.table``), ``updates`` (bigint), ``whole`` (updates that change a key and were not split) and
        one count per answer of :func:`~ticdc_lab.dispatch.key_updates.joined_updates`: ``same_key``, ``only_pair``,
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
