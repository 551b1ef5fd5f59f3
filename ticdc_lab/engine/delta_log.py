"""Commits to the log of a Delta table of files that somebody else has written, by the session's own Delta."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_lab.engine.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = "org.apache.spark.sql.delta"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file in a table's folder: its name there, bytes, time in milliseconds, and Delta's statistics."""

    name: str
    size: int
    modified_ms: int
    stats: str

    def added(self, *, changes: bool) -> str:
        """The action of the Delta protocol that makes it part of the table."""
        add = {"path": self.name, "partitionValues": {}, "size": self.size, "modificationTime": self.modified_ms}
        return json.dumps({"add": add | {"dataChange": changes, "stats": self.stats}})


def commit_files(
    spark: SparkSession,
    table: str,
    added: Iterable[DataFile],
    *,
    note: str,
    once: tuple[str, int] | None = None,
    replaced: Callable[[DataFile], bool] | None = None,
    expected: int | None = None,
    changes: bool = True,
) -> bool:
    """Make files part of a table, in one commit.

    Parameters
    ----------
    spark
        Classic Spark with Delta.
    table
        Path of a Delta table without partition columns.
    added
        Files in its folder, whose rows are in its columns.
    note
        Delta's ``userMetadata`` of the commit.
    once
        A name and a number: nothing is done where a commit of that name bears this number or a higher one, as with the
        options ``txnAppId`` and ``txnVersion`` of Delta's own writer.
    replaced
        Which files leave the table with the same commit; none without it.
    expected
        How many these are. Nothing is done where there are fewer, as after somebody's ``OPTIMIZE``: the rows of those
        that are gone lie in another file, and would be there twice.
    changes
        False where the rows stay as they are and only lie in other files.

    Returns
    -------
    bool
        False where nothing was done: the commit is there already, or files that were to leave are not.
    """
    jvm = jvm_of(spark, f"Writing {table}")
    transaction = _begun(spark, table, jvm)
    if once is not None and transaction.txnVersion(once[0]) >= once[1]:
        return False
    said = [file.added(changes=changes) for file in added]
    if once is not None:
        said.append(json.dumps({"txn": {"appId": once[0], "version": once[1]}}))
    actions = jvm.java.util.ArrayList()
    if replaced is not None:
        for file in _each(transaction.filterFiles()):
            if replaced(_read(file)):
                actions.add(file.removeWithTimestamp(jvm.java.lang.System.currentTimeMillis(), changes))
    if expected is not None and len(actions) < expected:
        return False
    for action in said:
        actions.add(getattr(jvm, _DELTA).actions.Action.fromJson(action))
    if not actions:
        return True
    mode = jvm.org.apache.spark.sql.SaveMode.valueOf("Append" if replaced is None else "Overwrite")
    transaction.commit(_sequence(jvm, actions), _write(jvm, mode, note))
    return True


def committed_number(spark: SparkSession, table: str, name: str) -> int:
    """The number that the last commit of a name bears; -1 where there is none."""
    return int(_begun(spark, table, jvm_of(spark, f"Reading {table}")).txnVersion(name))


def table_files(spark: SparkSession, table: str) -> list[DataFile]:
    """The files that a table consists of now, with their statistics (which ``filterFiles`` of Delta's leaves out)."""
    files = _begun(spark, table, jvm_of(spark, f"Reading {table}")).snapshot().allFiles().collectAsList()
    return [_read(file) for file in files]


def _begun(spark: SparkSession, table: str, jvm: Any) -> Any:
    """A transaction of Delta's on a table as it is now."""
    return getattr(jvm, _DELTA).DeltaLog.forTable(spark._jsparkSession, table).startTransaction()


def _read(add: Any) -> DataFile:
    return DataFile(str(add.path()), int(add.size()), int(add.modificationTime()), str(add.stats() or "{}"))


def _each(files: Any) -> list[Any]:
    return [files.apply(i) for i in range(files.size())]


def _sequence(jvm: Any, actions: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()


def _write(jvm: Any, mode: Any, note: str) -> Any:
    """Delta's name for what was done; versions differ in how many further options it has."""
    name, none = f"{_DELTA}.DeltaOperations$Write", jvm.scala.Option.empty()
    kind = jvm.py4j.reflection.ReflectionUtil.classForName(name)
    more = kind.getConstructors()[0].getParameterCount() - 4
    return getattr(getattr(jvm, _DELTA), "DeltaOperations$Write")(
        mode, none, none, jvm.scala.Option.apply(note), *[none] * more
    )
