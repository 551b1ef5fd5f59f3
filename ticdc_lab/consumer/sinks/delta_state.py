"""What a Delta target says of itself: how far it is, and which version of which table that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.consumer.replay_plan import Progress
from ticdc_lab.consumer.sinks import Note
from ticdc_lab.consumer.sinks.target_format import FORMAT, require_format
from ticdc_lab.facts.catalog import TableName

_COLUMNS = (
    "mode string, origin string, ddl_ts bigint, kind string, topic string, partition int, applied_ts bigint, "
    "schema_name string, table_name string, folder string, version bigint, said string"
)


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a table inside the target, and its Delta version."""

    folder: str
    version: int


@dataclass(frozen=True, slots=True)
class State:
    """All that the table ``_state`` holds: replaced as a whole by one Delta commit, after the tables were written."""

    progress: Progress
    tables: Mapping[TableName, Place] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


def read_state(spark: SparkSession, folder: str) -> State | None:
    """The state of a target; None where it has none. A few rows: one a partition, a table and a note.

    Raises
    ------
    SourceError
        A later version has written it.
    """
    if not DeltaTable.isDeltaTable(spark, f"{folder}/_state"):
        return None
    rows = spark.read.format("delta").load(f"{folder}/_state").collect()
    if not rows:
        return None
    require_format(f"delta:{folder}", max((r["version"] for r in rows if r["kind"] == "format"), default=1))
    head = rows[0]
    at = {(r["topic"], r["partition"]): r["applied_ts"] for r in rows if r["kind"] == "partition"}
    tables = {
        (r["schema_name"], r["table_name"]): Place(r["folder"], r["version"]) for r in rows if r["kind"] == "table"
    }
    notes = sorted((r["applied_ts"], r["table_name"], r["said"]) for r in rows if r["kind"] == "note")
    return State(Progress(head["mode"], head["origin"], at, head["ddl_ts"]), tables, tuple(notes))


def write_state(spark: SparkSession, folder: str, state: State) -> None:
    """Replace the state in one Delta commit: from then on the batch is done."""
    p = state.progress
    head = (p.mode, p.origin, p.ddl_ts)
    rows = [
        (*head, "format", *[None] * 6, FORMAT, None),
        *[(*head, "partition", *home, ts, *[None] * 5) for home, ts in p.positions.items()],
        *[(*head, "table", None, None, None, *name, at.folder, at.version, None) for name, at in state.tables.items()],
        *[(*head, "note", None, None, ts, None, table, None, None, said) for ts, table, said in state.notes],
    ]
    frame = spark.createDataFrame(rows, _COLUMNS).coalesce(1)
    frame.write.format("delta").mode("overwrite").save(f"{folder}/_state")


def version_of(spark: SparkSession, path: str) -> int:
    """The newest version of a Delta table."""
    return int(DeltaTable.forPath(spark, path).history(1).select("version").collect()[0][0])


def consistent(spark: SparkSession, folder: str) -> dict[TableName, DataFrame]:
    """Every table of a target as it was at one commit_ts, by name.

    Delta commits table by table. Who reads the folders while a replay writes may therefore see some tables after a
    batch and some before it; the versions in ``_state``, which is written last, belong together.

    Parameters
    ----------
    spark
        A session with Delta.
    folder
        The target's folder.
    """
    state = read_state(spark, folder)
    places = {} if state is None else state.tables
    return {
        name: spark.read.format("delta").option("versionAsOf", at.version).load(f"{folder}/{at.folder}")
        for name, at in sorted(places.items())
    }
