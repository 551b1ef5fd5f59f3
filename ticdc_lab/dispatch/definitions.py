"""What the catalog answers about the table of each change at its commit_ts; and changes as dispatch compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ticdc_lab.codecs.keys import rows_of
from ticdc_lab.codecs.laid_out import Image
from ticdc_lab.engine.columns import made_by
from ticdc_lab.engine.shuffle import MadeByWorkers
from ticdc_lab.events.arrays import Bools
from ticdc_lab.events.schema import DISPATCH, KEYS
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.facts.places import grouped

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents


@dataclass(frozen=True, slots=True)
class HashedColumns:
    """What a strategy wants to know of one table version: the columns to hash, or TiCDC's own error.

    ``columns`` are the names TiCDC would hash and a row carries; ``integer_handle`` is set where rows are stored by
    their integer primary key.
    """

    columns: tuple[str, ...] = ()
    error: str | None = None
    integer_handle: bool = False


Question = Callable[[TableDef], HashedColumns]
_FAILED = "[CDC:ErrDispatcherFailed]"


def unique_columns(table: TableDef) -> HashedColumns:
    """Columns of the primary key and of all unique indexes, sorted."""
    return HashedColumns(columns=tuple(sorted({c for i in table.unique_indexes for c in i.columns})))


def handle_answer(table: TableDef) -> HashedColumns:
    """The columns of a table's handle key."""
    return HashedColumns(columns=table.handle_columns)


def rowid_answer(table: TableDef) -> HashedColumns:
    """Whether rows of a table are stored by their integer primary key."""
    return HashedColumns(integer_handle=table.pk_is_handle)


def index_answer(table: TableDef, index: str) -> HashedColumns:
    """The columns of an index that a row carries, or TiCDC's error."""
    found = table.index(index)
    if found is None:
        return HashedColumns(
            error=f"{_FAILED}index not found when dispatch event, table: {table.table_name}, index: {index}"
        )
    columns = {name: table.column(name) for name in found.columns}
    return HashedColumns(columns=tuple(n for n, c in columns.items() if c is not None and c.generated != "virtual"))


def columns_answer(table: TableDef, columns: Sequence[str]) -> HashedColumns:
    """The listed columns under the names the table gives them, or TiCDC's error."""
    names = []
    for name in columns:
        column = table.column(name)
        if column is None:
            return HashedColumns(error=missing_text(table.table_name, columns, [c.name for c in table.columns]))
        if column.generated == "virtual":
            return HashedColumns(
                error=f"{_FAILED}found virtual generated columns when dispatch event, table: {table.table_name}, "
                f"columns: [{' '.join(columns)}] column: {name.lower()}"
            )
        names.append(column.name)
    return HashedColumns(columns=tuple(names))


def missing_text(table: str, columns: Sequence[str], names: Iterable[str]) -> str:
    """TiCDC's error for the first listed column that a row with columns of these names does not have."""
    there, listed = {name.lower() for name in names}, " ".join(columns)
    name = next(c.lower() for c in columns if c.lower() not in there)
    return f"{_FAILED}columns not found when dispatch event, table: {table}, columns: [{listed}], column: {name}"


_TABLE = ("schema_name", "table_name")


def with_columns_named(events: DataFrame, *, catalog: Catalog, question: Question, name: str) -> DataFrame:
    """Add the columns that a question names of each event's table at its commit_ts.

    ``events``: needs ``schema_name``, ``table_name`` and ``commit_ts``. May be a stream. ``name``: of the output
    column, array<string>, null where the catalog does not know the table at that time, or where the event has no
    commit_ts and the answer changed.
    """
    known = Answers(catalog, question)

    def named(batch: pa.RecordBatch) -> pa.Array:
        rows, found = pa.table(batch), np.full(batch.num_rows, None, dtype=object)
        of = grouped(rows, _TABLE)[1]
        for i in range(int(of.max(initial=-1)) + 1):
            at = np.flatnonzero(of == i)
            for which, answer in known.at(rows.take(pa.array(at))):
                found[at[which]] = None if answer is None else [[*answer.columns]] * int(which.sum())
        return pa.array(found.tolist(), pa.list_(pa.string()))

    return events.withColumn(name, made_by(named, "array<string>", *_TABLE, "commit_ts"))


_Span = tuple[int | None, int | None, tuple[Any, ...]]


def _spans(catalog: Catalog, table: tuple[str, str], question: Question) -> list[_Span]:
    """Since, until (TSO) and answer where the table is known; an answer that never changed holds from ever to ever."""
    answers: list[tuple[int | None, tuple[Any, ...] | None]] = []
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


class Answers:
    """The answers to a question about the tables of rows that are here, at the commit_ts of each."""

    def __init__(self, catalog: Catalog | None, question: Question) -> None:
        self._catalog, self._question = Catalog() if catalog is None else catalog, question
        self._of: dict[tuple[str, str], list[_Span]] = {}

    def at(self, rows: pa.Table) -> Iterator[tuple[Bools, HashedColumns | None]]:
        """Which of the rows, of one table, have which answer."""
        table = rows["schema_name"][0].as_py(), rows["table_name"][0].as_py()
        if table not in self._of:
            known = table in self._catalog.versions
            self._of[table] = _spans(self._catalog, table, self._question) if known else []
        left = np.ones(len(rows), dtype=bool)
        if not self._of[table]:
            yield left, None
            return
        ts, dated = (np.asarray(a) for a in (rows["commit_ts"].fill_null(0), rows["commit_ts"].is_valid()))
        for since, until, (columns, error, integer_handle) in self._of[table]:
            own = left.copy() if since is None else left & dated & (ts >= since)
            own &= True if until is None else dated & (ts < until)
            left &= ~own
            if own.any():
                yield own, HashedColumns(tuple(columns), error, integer_handle)
        if left.any():
            yield left, None


def changes_in(
    events: DataFrame | StoredEvents, columns: Sequence[str], make: Callable[[pa.Table], pa.Table], form: pa.Schema, *,
    kinds: Sequence[str] = ("row",),
) -> DataFrame | MadeByWorkers:  # fmt: skip
    """What a function makes of row changes, some at a time: of these columns of a frame, or of events in files."""
    if not isinstance(events, DataFrame):
        return events.rows(columns, lambda own: make(_plain(own)), form, kinds=kinds)
    hashes = StructType([field for form in (KEYS, DISPATCH) for field in form if field.name in columns])
    return rows_of(events, columns, make, form, hashes, kinds=kinds)


def _plain(rows: pa.Table) -> pa.Table:
    """The same without dictionaries."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.schema.names, types, strict=True))))


def key_texts(image: Image) -> pa.Array:
    """The handle key in each image as ``col=value`` (string), empty without one; null where there is no image."""
    own = np.flatnonzero(image.is_key)
    at = pa.array(own)
    values = pc.fill_null(image.values.take(at), "NULL")
    texts = pc.binary_join_element_wise(image.names.take(at), values, "=")
    n = np.bincount(image.rows[own], minlength=len(image.there))
    ends = np.concatenate([[0], np.cumsum(n)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), texts, mask=pa.array(~image.there))
    return pc.binary_join(lists, ", ")
