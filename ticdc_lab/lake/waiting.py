"""Messages of :mod:`ticdc_lab.lake.ingest` that came before the schema they need: they wait in the quarantine for it.

A later batch decodes them again and gives their events its own number; they have ``late`` then. What it takes from the
quarantine is read off the events, not off a second decoding, so a message is always in one of both: a registry may
answer one time and be silent the next.

Every waiting message is decoded again, so a batch is tried only where something can have changed:

- simple: it brought a table version that was not known.
- avro with a registry's URL: always. While the registry lacks a schema, each batch pays for all that wait.
- avro otherwise: the first two batches of a run, as the file of schemas may be another one than in the last run, and
  the first may be a repeated one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs import Known, decode
from ticdc_lab.codecs.simple import Version
from ticdc_lab.codecs.simple_tables import TABLES, finder, tables_of
from ticdc_lab.events.schema import CHECKSUMS, EVENTS, KEYS, QUARANTINE
from ticdc_lab.lake.tables import Tables, append, noted

WAITING = ("schema-unknown", "registry-unreachable")
"""Error classes of messages that a schema may still come for."""

PLACE = ("topic", "partition", "offset")
_SAME = " AND ".join(f"q.{name} = s.{name}" for name in PLACE)
_WAITS = f"error_class IN ({', '.join(repr(name) for name in WAITING)})"
_CAME = {"error_class": WAITING[0], "reason": "its schema was not known when its batch came, though it is now"}

Versions = Mapping[Version, Mapping[str, Any]]


def learned(tables: Tables, known: Known, batch_id: int) -> Versions:
    """Keep the table versions that a batch's messages bring and no earlier batch has brought; returns them."""
    version = TABLES.names[:3]
    messages = tables.of_batch("messages", batch_id).select(*PLACE, "key", "value")
    found = messages.mapInArrow(finder(known), TABLES).dropDuplicates(version)
    earlier = tables.read("table_versions").where(F.col("batch_id") < batch_id).select(*version)
    append(tables, "table_versions", found.join(earlier, on=version, how="left_anti").select(*TABLES.names), batch_id)
    return versions(tables.of_batch("table_versions", batch_id))


def versions(rows: DataFrame) -> Versions:
    """Table versions as decoding takes them; few, as there are DDL."""
    return tables_of([row.asDict() for row in rows.select(*TABLES.names).collect()])


def events_of(decoded: DataFrame, *, late: bool) -> DataFrame:
    """What goes to ``events``, but for the batch."""
    events = decoded.where("error_class IS NULL").select(*EVENTS.names, *KEYS.names, *CHECKSUMS.names)
    return events.withColumn("late", F.lit(late))


def undecoded(tables: Tables, batch_id: int, *, protocol: str, known: Known) -> DataFrame:
    """Messages of a batch that ``events`` has nothing of, as :data:`ticdc_lab.events.schema.QUARANTINE`.

    One that can be decoded now, as a registry was silent before the batch was interrupted, waits like the others.
    """
    there = tables.of_batch("events", batch_id).where("NOT late").select(*PLACE)
    messages = tables.of_batch("messages", batch_id).select(*PLACE, "key", "value")
    left = messages.join(there, on=list(PLACE), how="left_anti")
    decoded = left.transform(decode, protocol=protocol, known=known).where("error_class IS NOT NULL OR seq = 0")
    said = {name: F.coalesce(name, F.lit(default)) for name, default in _CAME.items()}
    return decoded.withColumns(said).drop("key", "value").join(left, on=list(PLACE)).select(*QUARANTINE.names)


def resolve(tables: Tables, batch_id: int, *, protocol: str, known: Known) -> None:
    """Decode again what waits since earlier batches: what can be decoded now leaves the quarantine for ``events``."""
    waiting = tables.read("quarantine").where(_WAITS).where(F.col("batch_id") < batch_id)
    if waiting.isEmpty():
        return
    decoded = waiting.transform(decode, protocol=protocol, known=known).persist()
    try:
        append(tables, "events", events_of(decoded, late=True), batch_id, step=".late")
        release(tables, batch_id)
        reclassify(tables, decoded)
    finally:
        decoded.unpersist()


def release(tables: Tables, batch_id: int) -> None:
    """Take from the quarantine what has become an event with this batch."""
    late = tables.of_batch("events", batch_id).where("late AND seq = 0").select(*PLACE)
    quarantine = DeltaTable.forPath(tables.spark, tables.path("quarantine")).alias("q")
    with noted(tables.spark):
        quarantine.merge(late.alias("s"), f"{_SAME} AND q.{_WAITS}").whenMatchedDelete().execute()


def reclassify(tables: Tables, decoded: DataFrame) -> None:
    """Say the right fault of messages whose schema came and that are damaged nevertheless."""
    damaged = decoded.where(f"error_class IS NOT NULL AND NOT {_WAITS}")
    if not damaged.isEmpty():
        found = damaged.select(*PLACE, "error_class", "reason").alias("s")
        quarantine = DeltaTable.forPath(tables.spark, tables.path("quarantine")).alias("q")
        said: dict[str, str | Column] = {name: f"s.{name}" for name in ("error_class", "reason")}
        with noted(tables.spark):
            quarantine.merge(found, f"{_SAME} AND q.{_WAITS}").whenMatchedUpdate(set=said).execute()
