"""Commits to the log of a Delta table of files that another writer has made, by the session's own Delta."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ticdc_lab.engine.jvm import jvm_of
from ticdc_lab.errors.whole_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = "org.apache.spark.sql.delta"

_OF_PLAIN_FILES = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""Features of Delta's protocol that ask nothing of the files of a table which has no properties."""

_COMMITS = 100
"""How many commits are read one by one; the list of files that Delta makes in a job costs less than more of them."""


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

    def removed(self, *, changes: bool, now_ms: int) -> str:
        """The action that takes it out of the table."""
        remove = {"path": self.name, "deletionTimestamp": now_ms, "dataChange": changes, "size": self.size}
        return json.dumps({"remove": remove | {"extendedFileMetadata": True, "partitionValues": {}}})


@dataclass(frozen=True, slots=True)
class _Version:
    """What a version of a table has: its files by name, and the numbers of commits by theirs.

    These are all where every commit since the table's first was read, else those that were asked for.
    """

    number: int
    files: dict[str, DataFile]
    once: dict[str, int]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it is now: its version; how many files it has and their bytes, None if not in its log."""

    version: int
    files: int | None
    size: int | None


def table_state(spark: SparkSession, table: str) -> TableState:
    """A Delta table's facts in its log, without a job: the checksum of its version.

    Delta's own ``numOfFilesIfKnown`` runs a job to know it.
    """
    snapshot = _begun(spark, table, jvm_of(spark, f"Reading {table}")).snapshot()
    said = snapshot.checksumOpt()
    files, size = (said.get().numFiles(), said.get().tableSizeBytes()) if said.isDefined() else (None, None)
    return TableState(int(snapshot.version()), files, size)


class KnownFiles:
    """The files that Delta tables consist of, kept from one look to the next: a look reads the commits since.

    Delta itself builds the list on each request, in a job of the cluster's.
    """

    def __init__(self) -> None:
        self._of: dict[str, _Version] = {}

    def now(self, spark: SparkSession, table: str) -> list[DataFile]:
        """The same of a table as it is now."""
        transaction = _begun(spark, table, jvm_of(spark, f"Reading {table}"))
        return list(self._at(table, transaction).files.values())

    def plain(self, spark: SparkSession, table: str) -> list[DataFile] | None:
        """The same of a table that is nothing but Parquet files, so that any writer of Parquet may replace them.

        None where columns have other names in the files, rows are deleted beside them, or Delta has a rule for them.
        """
        transaction = _begun(spark, table, jvm_of(spark, f"Reading {table}"))
        return list(self._at(table, transaction).files.values()) if _is_plain(transaction.snapshot()) else None

    def number(self, spark: SparkSession, table: str, name: str) -> int:
        """The number that the last commit of a name bears; -1 where there is none."""
        return self._number(table, _begun(spark, table, jvm_of(spark, f"Reading {table}")), name)

    def commit(
        self,
        spark: SparkSession,
        table: str,
        added: Iterable[DataFile],
        *,
        note: str,
        once: tuple[str, int] | None = None,
        removed: Collection[str] = (),
        everything: bool = False,
        nothing_else: bool = False,
        changes: bool = True,
    ) -> bool:
        """Make files part of a table, and let others leave it, in one commit.

        ``spark``: classic Spark with Delta. ``table``: path of a Delta table without partition columns. ``added``:
        files in its folder, whose rows are in its columns. ``note``: Delta's ``userMetadata`` of the commit. ``once``:
        a name and a number: nothing is done where a commit of that name bears this number or a higher one, as with the
        options ``txnAppId`` and ``txnVersion`` of Delta's own writer. ``removed``: names of files that leave the table.
        Nothing is done where one is not there, as after another ``OPTIMIZE``: its rows lie in another file, and
        would be doubled. ``everything``: all files that are there leave the table, with any names.
        ``nothing_else``: nothing is done where the table has other files than ``removed``, as another writer's that it
        has added. ``changes``: False where the rows stay as they are and only lie in other files. Returns: False where
        nothing was done: the commit is there already, files that were to leave are not, or, with ``nothing_else``,
        another commit came first.
        """
        jvm = jvm_of(spark, f"Writing {table}")
        transaction = _begun(spark, table, jvm)
        if once is not None and self._number(table, transaction, once[0]) >= once[1]:
            return False
        actions = [file.added(changes=changes) for file in added]
        if nothing_else:
            transaction.readWholeTable()  # else what is added until the commit would not be noticed
            if self._at(table, transaction).files.keys() != set(removed):
                return False
        if once is not None:
            actions.append(json.dumps({"txn": {"appId": once[0], "version": once[1]}}))
        if removed or everything:
            there, now_ms = self._at(table, transaction).files, jvm.java.lang.System.currentTimeMillis()
            if not there.keys() >= set(removed):
                return False
            leaving = [file for name, file in there.items() if everything or name in removed]
            actions += [file.removed(changes=changes, now_ms=now_ms) for file in leaving]
        if actions:
            mode = "Overwrite" if removed or everything else "Append"
            return _committed(jvm, transaction, actions, mode, note, may_come_second=nothing_else)
        return True

    def take_back(self, spark: SparkSession, table: str, version: int, *, note: str) -> bool | None:
        """Let a table have the files of an earlier version again, and none else, in one commit.

        Delta's ``RESTORE`` runs jobs to know which these are: 2.7 CPU seconds a table, however small.

        Returns: False where nothing was done: not all files are plain ones (:meth:`plain`), columns or properties were
        others then, or a file or a commit is gone. None where another commit came first, so nothing was either.
        """
        jvm = jvm_of(spark, f"Writing {table}")
        transaction = _begun(spark, table, jvm)
        transaction.readWholeTable()  # else what is added until the commit would not be noticed
        snapshot = transaction.snapshot()
        since = _commits(table, version + 1, int(snapshot.version())) if _is_plain(snapshot) else None
        if since is None or any(
            {"metaData", "protocol"} & json.loads(line).keys() for commit in since for line in commit.splitlines()
        ):
            return False
        if (until := _commits(table, 0, version)) is None:
            return False
        then = _Version(version, {}, {})
        for commit in until:
            _apply(then, commit)
        folder = local_path(table)
        if folder is None or not all((folder / name).exists() for name in then.files):
            return False
        now, now_ms = self._at(table, transaction), jvm.java.lang.System.currentTimeMillis()
        actions = [file.added(changes=True) for name, file in then.files.items() if name not in now.files]
        leaving = [file for name, file in now.files.items() if name not in then.files]
        actions += [file.removed(changes=True, now_ms=now_ms) for file in leaving]
        return _committed(jvm, transaction, actions, "Overwrite", note, may_come_second=True) or None

    def _number(self, table: str, transaction: Any, name: str) -> int:
        at = self._at(table, transaction)
        if at.whole or name in at.once:
            transaction.readTxn().addOne(name)  # else a commit of this name that comes between would not be noticed
        else:  # a job
            at.once[name] = int(transaction.txnVersion(name))
        return at.once.get(name, -1)

    def _at(self, table: str, transaction: Any) -> _Version:
        """The version that a transaction has read."""
        snapshot = transaction.snapshot()
        version, known = int(snapshot.version()), self._of.get(table, _Version(-1, {}, {}))
        if known.number == version:
            return known
        few = known.number < version <= known.number + _COMMITS
        since = _commits(table, known.number + 1, version) if few else None
        if since is not None:
            found = _Version(version, known.files.copy(), known.once.copy(), known.whole)
            for commit in since:
                _apply(found, commit)
        else:  # ``filterFiles`` of Delta's transactions would leave out the statistics
            files = {str(add.path()): _read(add) for add in snapshot.allFiles().collectAsList()}
            found = _Version(version, files, {}, whole=False)
        self._of[table] = found
        return found


def _is_plain(snapshot: Any) -> bool:
    protocol, metadata = json.loads(snapshot.protocol().json())["protocol"], snapshot.metadata()
    needed = {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}
    versions = protocol["minReaderVersion"], protocol["minWriterVersion"]
    known = versions in ((1, 1), (1, 2)) or (versions in ((1, 7), (3, 7)) and needed <= _OF_PLAIN_FILES)
    return known and metadata.configuration().isEmpty() and metadata.partitionColumns().isEmpty()


def _commits(table: str, first: int, last: int) -> list[str] | None:
    """The texts of commits from the first to the last; None where one is gone, or Python does not see the folder."""
    if (folder := local_path(table)) is None:
        return None
    paths = [folder / "_delta_log" / f"{n:020}.json" for n in range(first, last + 1)]
    return [path.read_text(encoding="utf-8") for path in paths] if all(path.exists() for path in paths) else None


def _apply(to: _Version, commit: str) -> None:
    """What a commit adds, removes and is called."""
    for line in commit.splitlines():
        action = json.loads(line)
        if (add := action.get("add")) is not None:
            found = DataFile(add["path"], add["size"], add["modificationTime"], add.get("stats") or "{}")
            to.files[found.name] = found
        elif (remove := action.get("remove")) is not None:
            to.files.pop(remove["path"], None)
        elif (txn := action.get("txn")) is not None:
            to.once[txn["appId"]] = txn["version"]


def _begun(spark: SparkSession, table: str, jvm: Any) -> Any:
    """A transaction of Delta's on a table as it is now."""
    return getattr(jvm, _DELTA).DeltaLog.forTable(spark._jsparkSession, table).startTransaction()


def _committed(
    jvm: Any, transaction: Any, actions: Iterable[str], mode: str, note: str, *, may_come_second: bool
) -> bool:
    """Commit actions in Delta's JSON; False where another commit came first and that is foreseen."""
    kind = _write(jvm, jvm.org.apache.spark.sql.SaveMode.valueOf(mode), note)
    try:
        transaction.commit(_sequence(jvm, map(_action_of(jvm), actions)), kind)
    except Exception as error:  # Delta's classes of it differ by its version
        if may_come_second and ".Concurrent" in repr(error) + str(error):
            return False
        raise
    return True


def _read(add: Any) -> DataFile:
    return DataFile(str(add.path()), int(add.size()), int(add.modificationTime()), str(add.stats() or "{}"))


def _action_of(jvm: Any) -> Callable[[str], Any]:
    return cast("Callable[[str], Any]", getattr(jvm, _DELTA).actions.Action.fromJson)


def _sequence(jvm: Any, values: Iterable[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for value in values:
        found.add(value)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()


def _write(jvm: Any, mode: Any, note: str) -> Any:
    """Delta's name for what was done; versions differ in how many further options it has."""
    name, none = f"{_DELTA}.DeltaOperations$Write", jvm.scala.Option.empty()
    kind = jvm.py4j.reflection.ReflectionUtil.classForName(name)
    more = kind.getConstructors()[0].getParameterCount() - 4
    return getattr(getattr(jvm, _DELTA), "DeltaOperations$Write")(
        mode, none, none, jvm.scala.Option.apply(note), *[none] * more
    )
