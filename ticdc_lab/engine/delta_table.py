"""Frames as Delta tables whose columns may be called anything."""

from __future__ import annotations

import shutil

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ticdc_lab.engine.columns import named
from ticdc_lab.errors.whole_files import local_path

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""What a column's name must not hold, unless the table maps names to others in its files."""

_MAPPED = "delta.columnMapping.mode"


def create_table(spark: SparkSession, columns: str, path: str) -> None:
    """Make an empty Delta table with columns in Spark's DDL, in place of what is there; one commit and no job."""
    from delta.tables import DeltaTable  # which Connect's client does not have

    forget_unborn(path)

    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    builder = DeltaTable.createOrReplace(spark).location(path).addColumns(schema)
    (builder.property(_MAPPED, "name") if _needs_mapping(schema.names) else builder).execute()


def replace_table(frame: DataFrame, path: str, *, columns_were: tuple[str, ...] = ()) -> None:
    """Write a frame as a Delta table in place of what is there.

    ``frame``, ``path``: any frame, and the table's folder. ``columns_were``: names of the columns of a table that is
    there and continues; it must begin to map names before it is written.
    """
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    if _needs_mapping(frame.columns):
        if columns_were and not _needs_mapping(columns_were):
            frame.sparkSession.sql(f"ALTER TABLE delta.{named(path)} SET TBLPROPERTIES ('{_MAPPED}' = 'name')")
        writer = writer.option(_MAPPED, "name")
    writer.save(path)


def forget_unborn(path: str) -> None:
    """Remove the log of a table that has no commit, if its folder contains nothing else: Delta cannot continue from it.

    A process has left it that was killed, or found no room, before its first commit had a name.
    """
    folder = local_path(path)
    if folder is None:
        return
    log = folder / "_delta_log"
    alone = log.is_dir() and all(there == log for there in folder.iterdir())
    if alone and not any(log.glob("[0-9]*.json")) and not any(log.glob("*.checkpoint*")):
        shutil.rmtree(log)


def _needs_mapping(names: list[str] | tuple[str, ...]) -> bool:
    return any(_NOT_IN_NAMES & set(name) for name in names)
