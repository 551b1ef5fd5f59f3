"""What a log is replayed into, and what every target can do."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.consumer.replay_plan import Batch, DdlStep, TargetProgress
from ticdc_lab.errors import SourceError
from ticdc_lab.facts.catalog import DDL
from ticdc_lab.facts.definitions import TableDef, TableName

Note = tuple[int, str, str]
"""commit_ts (TSO), table and what the target cannot store or show, one sentence."""

REPLAY_FIRST = (
    "Name a target of ticdc-lab consume, or replay a log into it first: ticdc-lab consume SOURCE --sink TARGET"
)


class Sink(Protocol):
    """A target: tables, and beside them how far they are.

    ``name`` is for people and holds no password; ``rows_a_batch`` how many row changes one transaction should have.
    """

    name: str
    rows_a_batch: int
    runs_ddl: bool  # whether it runs the text of DDL, instead of what they do to its tables

    def progress(self) -> TargetProgress | None:
        """How far the target is; None where nothing was begun. Undoes what an interrupted run has left half done."""

    def begin(self, progress: TargetProgress, given: Sequence[TableDef]) -> None:
        """Record in the target what it is for, and create the tables that were there before the log's first DDL."""

    def tables(self, expected: Collection[TableName]) -> frozenset[TableName]:
        """The tables that are there; by the names that are expected where the target writes them in another case."""

    def apply(
        self, batch: Batch, tables: Mapping[TableName, TableDef], changes: Sequence[DdlStep], ddl: Sequence[DDL]
    ) -> int:
        """Apply a batch with its progress as one transaction; how many row changes were read.

        ``tables`` are the definitions that hold during the range; ``changes`` what the statements ``ddl`` do after it.
        """

    def frame(self, spark: SparkSession, table: TableDef, folder: str) -> DataFrame:
        """The rows of a table as they are now; ``folder`` is a place for them, on this machine."""

    def notes(self) -> list[Note]:
        """What the target cannot store or show."""

    def close(self) -> None:
        """Let go of it."""


KEY = "_ticdc_lab_key"
"""The column of DuckDB and Delta tables some of whose rows have a key that no value there can hold, such as a zero
date: the texts of that key, as JSON; NULL in all other rows. Tables have it from the first such key on."""

OTHER_KEY = "a DDL has changed the key; later changes miss the rows whose old key no value here can represent: {n}"
"""What is noted where the texts in :data:`KEY` differ from the table's key."""


def key_is_other(before: TableDef, after: TableDef) -> bool:
    """Whether a DDL has made other columns the handle key, so that the texts in :data:`KEY` are of another one."""
    old, new = ([c.id or name for name in t.handle_columns if (c := t.column(name))] for t in (before, after))
    return old != new


FORMAT = 2
"""Of all kinds of targets; 1 has no version, and is otherwise the same."""


def require_format(name: str, written: int) -> None:
    """Raise :class:`SourceError` where a later version has written a target."""
    if written > FORMAT:
        raise SourceError(
            f"{name} was written by a later version of ticdc_lab: it has format {written}, expected at most {FORMAT}.",
            hint="Continue with that version, or name another target with --sink.",
        )


def not_a_database(path: str, words: object) -> SourceError:
    """Give the error of a DuckDB file that DuckDB did not open, with what to do.

    ``path``: of the file. ``words``: DuckDB's own error; used only if its kind is unknown here.
    """
    file = Path(path)
    if not file.parent.is_dir():
        hint = f"Make the folder {file.parent} first, or name a file in one that exists."
        return SourceError(f"{path} cannot be opened as a DuckDB database: its folder does not exist.", hint=hint)
    if file.is_dir():
        return SourceError(
            f"{path} is a folder; expected a DuckDB database file.", hint="Name a file in it: duckdb:///FOLDER/FILE"
        )
    if "lock" in str(words):
        return SourceError(
            f"{path} is open in another process.", hint="Close it there, or name another file: duckdb:///FILE"
        )
    if file.is_file() and os.access(file, os.R_OK):
        found = f"found {file.stat().st_size:,} bytes that are none: cut short, damaged, or of another program"
        hint = "Name a file that does not exist yet, and the log is replayed from its begin."
        return SourceError(f"{path}: expected a DuckDB database; {found}.", hint=hint)
    hint = "Check who may read and write it."
    return SourceError(f"{path} cannot be opened as a DuckDB database: {words}", hint=hint)
