"""The Delta tables that :mod:`ticdc_lab.ingest` keeps under one folder."""

from __future__ import annotations

from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from ticdc_lab.codecs.simple_tables import TABLES
from ticdc_lab.facts.watermarks import partition_watermarks
from ticdc_lab.schema import CHECKSUMS, EVENTS, KEYS, MESSAGES, QUARANTINE, TRANSACTIONS

BATCH = StructField("batch_id", LongType(), True, {"comment": "micro-batch that wrote the row"})
COMPLETE = StructField("complete_ts", LongType(), True, {"comment": "TSO up to which transactions are complete"})
LATE = StructField("late", BooleanType(), True, {"comment": "the message came with an earlier batch, its schema later"})


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables under one folder."""

    spark: SparkSession
    folder: str

    def path(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.folder.rstrip('/')}/{name}"

    def read(self, name: str) -> DataFrame:
        """A table as it is now."""
        return self.spark.read.format("delta").load(self.path(name))

    def of_batch(self, name: str, batch_id: int) -> DataFrame:
        """The rows that a batch has appended."""
        return self.read(name).where(F.col("batch_id") == batch_id)


def create(tables: Tables, *, protocol: str) -> None:
    """Make the tables that are not there yet."""
    for name, schema in schemas(tables.spark).items():
        if name != "table_versions" or protocol == "simple":
            DeltaTable.createIfNotExists(tables.spark).location(tables.path(name)).addColumns(schema).execute()


def schemas(spark: SparkSession) -> dict[str, StructType]:
    """The tables' columns: the contracts, and the batch."""
    progress = spark.createDataFrame([], EVENTS).transform(partition_watermarks).schema
    return {
        "messages": StructType([*MESSAGES.fields, BATCH]),
        "table_versions": StructType([*TABLES.fields, BATCH]),
        "events": StructType([*EVENTS.fields, *KEYS.fields, *CHECKSUMS.fields, BATCH, LATE]),
        "quarantine": StructType([*QUARANTINE.fields, BATCH]),
        "transactions": TRANSACTIONS,
        "watermarks": StructType([*progress.fields, BATCH, COMPLETE]),
    }


def append(tables: Tables, name: str, rows: DataFrame, batch_id: int, *, step: str = "") -> None:
    """Append the rows of a batch; nothing happens if they are there already.

    Parameters
    ----------
    tables, name
        Where to.
    rows
        The table's columns but ``batch_id``.
    batch_id
        Delta refuses a number that is not above the last one of the same step.
    step
        Names a second append to the same table.
    """
    rows.withColumn("batch_id", F.lit(batch_id).cast("bigint")).write.format("delta").mode("append").options(
        txnAppId=f"ticdc_lab.ingest.{name}{step}", txnVersion=str(batch_id)
    ).save(tables.path(name))
