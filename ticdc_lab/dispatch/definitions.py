"""What the catalog says about each table, beside each event, as one broadcast join."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef


@dataclass(frozen=True, slots=True)
class HashedColumns:
    """What a strategy wants to know of one table version: the columns to hash, or TiCDC's own error.

    ``columns`` are the names TiCDC would hash and a row carries; ``integer_handle`` is set where rows are stored by
    their integer primary key.
    """

    columns: tuple[str, ...] = ()
    error: str | None = None
    integer_handle: bool = False


def unique_columns(table: TableDef) -> HashedColumns:
    """Columns of the primary key and of all unique indexes, sorted."""
    return HashedColumns(columns=tuple(sorted({c for i in table.unique_indexes for c in i.columns})))


Question = Callable[[TableDef], HashedColumns]

_ROW = (
    "_schema string, _table string, _since bigint, _until bigint, "
    "_answer struct<columns: array<string>, error: string, integer_handle: boolean>"
)


def with_answers(events: DataFrame, *, catalog: Catalog, questions: Mapping[str, Question]) -> DataFrame:
    """Add one struct column per question with its answer for the event's table at the event's commit_ts.

    Parameters
    ----------
    events
        Needs ``schema_name``, ``table_name`` and ``commit_ts``. May be a stream.
    questions
        Output column to question. The column is ``struct<columns, error, integer_handle>``, null where the
        catalog does not know the table at that time, or where the event has no commit_ts and the answer changed.
    """
    out = events
    for name, question in questions.items():
        out = _join(out, catalog=catalog, question=question, name=name)
    return out


def _join(events: DataFrame, *, catalog: Catalog, question: Question, name: str) -> DataFrame:
    rows = [(*table, *span) for table in sorted(catalog.versions) for span in _spans(catalog, table, question)]
    definitions = F.broadcast(events.sparkSession.createDataFrame(rows, _ROW))
    at = F.col("commit_ts")
    same = (
        (F.col("schema_name") == F.col("_schema"))
        & (F.col("table_name") == F.col("_table"))
        & (F.col("_since").isNull() | (at >= F.col("_since")))
        & (F.col("_until").isNull() | (at < F.col("_until")))
    )
    return events.join(definitions, same, "left").select(*events.columns, F.col("_answer").alias(name))


_Span = tuple[int | None, int | None, tuple[object, ...]]


def _spans(catalog: Catalog, table: tuple[str, str], question: Question) -> list[_Span]:
    """Since, until (TSO) and answer where the table is known; an answer that never changed holds from ever to ever."""
    answers: list[tuple[int | None, tuple[object, ...] | None]] = []
    for version in catalog.versions[table]:
        answer = None if version.definition is None else question(version.definition)
        row = None if answer is None else (list(answer.columns), answer.error, answer.integer_handle)
        if not answers or answers[-1][1] != row:
            answers.append((version.commit_ts, row))
    if len(answers) == 1:
        answers = [(None, answers[0][1])]
    elif any(since is None for since, _ in answers[1:]):  # DDL without commit_ts: no telling when the answer changed
        return []
    ends = [since for since, _ in answers[1:]] + [None]
    return [(since, end, row) for (since, row), end in zip(answers, ends, strict=True) if row is not None]
