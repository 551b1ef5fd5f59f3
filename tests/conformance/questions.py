"""Every public transform, as a question to a frame of events that each engine must answer equally."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit import audit, events_at
from ticdc_lab.codecs.keys import with_hashes, with_keys
from ticdc_lab.consumer import POLICIES
from ticdc_lab.consumer.episodes import delivery_causes, delivery_episodes
from ticdc_lab.consumer.log import narrow
from ticdc_lab.consumer.study import consumer_anomalies, consumer_steps, consumption, study_frame
from ticdc_lab.dispatch.changefeed import changefeed_from_toml
from ticdc_lab.dispatch.conflict import alignments, conflict_placements, dispatch_by_conflict
from ticdc_lab.dispatch.dispatching import dispatch
from ticdc_lab.dispatch.guarantees import balance, guarantees, skew
from ticdc_lab.dispatch.infer import infer_rules, move_causes
from ticdc_lab.dispatch.settings import (
    dispatched,
    joined_updates,
    key_update_counts,
    split_updates,
    with_settings,
    without_old_value,
)
from ticdc_lab.dispatch.unique_keys import with_unique_keys
from ticdc_lab.encode.produce import produce
from ticdc_lab.events.schema import DISPATCH, EVENTS, IMAGE_HASHES, KEYS
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.limits import offset_gaps
from ticdc_lab.facts.stalls import stall_causes
from ticdc_lab.facts.watermarks import (
    partition_progress,
    partition_watermarks,
    table_watermarks,
    topic_watermarks,
    watermark_timeline,
)
from ticdc_lab.faults import plan_fault, read_log, with_faults
from ticdc_lab.repartition.compare import consumer_findings
from ticdc_lab.tables import table_as_of
from ticdc_lab.tables.checksum_findings import verify_checksums
from ticdc_lab.tables.history import table_history
from ticdc_lab.transactions import (
    OffsetGap,
    duplicates,
    log_places,
    split_key_updates,
    suspects,
    transaction_rows,
    transactions,
)

Question = Callable[[DataFrame], DataFrame]

_catalogs: dict[tuple[str, ...], Catalog] = {}


def _catalog(e: DataFrame) -> Catalog:
    """What an engine reads of a folder's DDL, once: seven questions take it."""
    key = (type(e).__module__, *sorted(e.inputFiles()))
    if key not in _catalogs:
        _catalogs[key] = catalog_of(e)
    return _catalogs[key]


FEED = changefeed_from_toml('[sink]\nprotocol = "open-protocol"\ndispatchers = [{matcher=["*.*"], partition="ts"}]\n')
STRATEGIES: dict[str, dict[str, Any]] = {
    "table": {},
    "ts": {},
    "index-value": {},
    "columns": {"columns": ["id"]},
}


def _dispatched(strategy: str) -> Question:
    return lambda e: dispatch(e, strategy=strategy, partitions=5, catalog=_catalog(e), **STRATEGIES[strategy]).drop(
        "columns", "before"
    )


def _caused(e: DataFrame) -> DataFrame:
    return audit(e, protocol="canal-json", causes=move_causes(e))


def _faulty(e: DataFrame) -> DataFrame:
    log = read_log(e, seed=3)
    return with_faults(e, [plan_fault(log, "row_dropped", 1)])


def _as_of(e: DataFrame, schema_name: str, table_name: str) -> DataFrame:
    """Of one golden topic: the others are not resolved where it is."""
    return table_as_of(e.where("topic = 'golden-0'"), schema_name=schema_name, table_name=table_name).rows


def _by_policy(ask: Callable[..., DataFrame], name: str) -> Question:
    return lambda e: ask(e, policy=POLICIES[name])


QUESTIONS: dict[str, Question] = {
    "audit": lambda e: audit(e, protocol="canal-json"),
    "audit with causes": _caused,
    "audit capped": lambda e: audit(e, protocol="open-protocol", max_per_guarantee=2),
    "audit without commit_ts": lambda e: audit(e, protocol="canal-json", has_commit_ts=False),
    "events_at": lambda e: events_at(e, [(0, 3), (1, 5)], around=2),
    "verify_checksums": lambda e: verify_checksums(e.withColumn("checksum", F.lit(7).cast("bigint"))),
    "consumption": _by_policy(consumption, "design-row"),
    "consumer_steps": _by_policy(consumer_steps, "strict"),
    "consumer_anomalies": _by_policy(consumer_anomalies, "design-row"),
    "delivery_causes": delivery_causes,
    "delivery_episodes": delivery_episodes,
    "narrow": narrow,
    "study_frame": study_frame,
    "conflict_placements": lambda e: conflict_placements(e, partitions=4, catalog=_catalog(e)),
    "dispatch_by_conflict": lambda e: dispatch_by_conflict(e, partitions=4, catalog=_catalog(e)),
    "alignments": lambda e: alignments(e, partitions=4, catalog=_catalog(e)),
    **{f"dispatch by {s}": _dispatched(s) for s in STRATEGIES},
    "guarantees": lambda e: guarantees(dispatch(e, strategy="ts", partitions=3)),
    "balance": lambda e: balance(dispatch(e, strategy="index-value", partitions=3), partitions=3),
    "skew": lambda e: skew(balance(dispatch(e, strategy="table", partitions=3), partitions=3)),
    "log_places": log_places,
    "infer_rules": infer_rules,
    "move_causes": move_causes,
    "split_updates": split_updates,
    "joined_updates": joined_updates,
    "without_old_value": without_old_value,
    "with_settings": lambda e: with_settings(e, changefeed=FEED),
    "dispatched": lambda e: dispatched(e, changefeed=FEED, partitions=3).drop("columns", "before"),
    "key_update_counts": key_update_counts,
    "with_unique_keys": lambda e: with_unique_keys(e, catalog=_catalog(e)),
    "with_faults": _faulty,
    "offset_gaps": lambda e: offset_gaps(e.where("offset % 20 <> 7")),
    "with_keys": lambda e: with_keys(e.select(*EVENTS.names)),
    "with_hashes": lambda e: with_hashes(e.select(*EVENTS.names), KEYS, IMAGE_HASHES, DISPATCH),
    "produce": lambda e: produce(e, protocol="open-protocol", strategy="table", partitions=2, topic="again"),
    "consumer_findings": consumer_findings,
    "stall_causes": lambda e: stall_causes(e, stall_s=2),
    "table_history": lambda e: table_history(e, schema_name="Fin_Ops", table_name="Ledger"),
    "table_as_of": lambda e: _as_of(e, "shop", "orders"),
    "table_as_of without a key": lambda e: _as_of(e, "Fin_Ops", "nopk"),
    "duplicates": duplicates,
    "suspects": lambda e: suspects(e.where("offset % 20 <> 7"), gaps=[OffsetGap("golden-0", 0, 27, 27)]),
    "split_key_updates": split_key_updates,
    "transaction_rows": lambda e: transaction_rows(e).drop("columns", "before"),
    "transactions": transactions,
    "partition_progress": partition_progress,
    "partition_watermarks": partition_watermarks,
    "table_watermarks": table_watermarks,
    "topic_watermarks": topic_watermarks,
    "watermark_timeline": watermark_timeline,
}
