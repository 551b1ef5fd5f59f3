"""The catalog's entry for each table, beside each event, as one broadcast join; and changes as dispatch compares
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ticdc_lab.codecs.keys import with_hashes, with_keys
from ticdc_lab.codecs.laid_out import Image
from ticdc_lab.engine.columns import in_order
from ticdc_lab.engine.shuffle import MadeByWorkers
from ticdc_lab.events.arrays import Batches, Bools
from ticdc_lab.events.changes import op_rank, row_id
from ticdc_lab.events.schema import DISPATCH, KEYS, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef

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


def unique_columns(table: TableDef) -> HashedColumns:
    """Columns of the primary key and of all unique indexes, sorted."""
    return HashedColumns(columns=tuple(sorted({c for i in table.unique_indexes for c in i.columns})))


Question = Callable[[TableDef], HashedColumns]

_SPAN = ("_schema", "_table", "_since", "_until")
_ROW = (
    "_schema string, _table string, _since bigint, _until bigint, "
    "_answer struct<columns: array<string>, error: string, integer_handle: boolean>"
)


def with_answers(events: DataFrame, *, catalog: Catalog, questions: Mapping[str, Question]) -> DataFrame:
    """Add one struct column per question with its answer for the event's table at the event's commit_ts.

    ``events``: needs ``schema_name``, ``table_name`` and ``commit_ts``. May be a stream. ``questions``: output column
    to question. The column is ``struct<columns, error, integer_handle>``, null where the catalog does not know the
    table at that time, or where the event has no commit_ts and the answer changed.
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
    # not by the names of all columns: to ask for these costs as much as the join, and each question deepens the plan
    return events.join(definitions, same, "left").drop(*_SPAN).withColumnRenamed("_answer", name)


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
    """The answers to a question about the tables of rows that are here: as of :func:`with_answers`."""

    def __init__(self, catalog: Catalog | None, question: Question) -> None:
        self._catalog, self._question = Catalog() if catalog is None else catalog, question
        self._of: dict[tuple[str, str], list[_Span]] = {}

    def at(self, rows: pa.Table) -> Iterator[tuple[Bools, HashedColumns | None]]:
        """Which of the rows, of one table, have which answer."""
        table = rows["schema_name"][0].as_py(), rows["table_name"][0].as_py()
        if table not in self._of:
            known = table in self._catalog.versions
            self._of[table] = _spans(self._catalog, table, self._question) if known else []
        ts, dated = (np.asarray(a) for a in (rows["commit_ts"].fill_null(0), rows["commit_ts"].is_valid()))
        left = np.ones(len(rows), dtype=bool)
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

    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield from make(pa.table(batch)).select(form.names).cast(form).combine_chunks().to_batches()

    hashes = StructType([field for form in (KEYS, DISPATCH) for field in form if field.name in columns])
    rows = events.where(F.col("kind").isin(*kinds)).transform(with_hashes, hashes)
    there = [c for c in dict.fromkeys(("kind", *columns)) if c != "protocol" or c in rows.columns]
    return rows.select(*there).mapInArrow(run, from_arrow_schema(form))


def _plain(rows: pa.Table) -> pa.Table:
    """The same without dictionaries."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.schema.names, types, strict=True))))


_SEPARATOR = "\x01"
_UNIQUE = "_unique_indexes"
_IDENTITY = ("table", "commit_ts", "op", "identity")

NEEDED = ("kind", "commit_ts", "schema_name", "table_name", "op", "columns", "before", "partition", "offset", "seq")


def first_changes(events: DataFrame, *, catalog: Catalog | None, carry: tuple[str, ...] = ()) -> DataFrame:
    """One row per row change, however often it was delivered.

    A change is known by table, commit_ts, op and key, or by its whole content where the table has no key. Of its
    deliveries the one with the smallest partition, offset, seq and topic is kept. Rows without commit_ts are left out:
    nothing orders them.

    ``events``: the events contract. ``catalog``: gives the unique indexes; without it ``uniques`` is empty. ``carry``:
    other columns of events to keep. Returns: ``table`` (``schema.table``), ``schema_name``, ``table_name``,
    ``commit_ts``, ``op``, ``op_rank`` (delete 0, update 1, insert 2: the order of rows in a transaction),
    ``partition``, ``offset``, ``seq``, ``topic``, ``keys`` (array<bigint>: hash of the handle key, and of the one
    before where it changed), ``key`` (string, ``col=value``), ``uniques`` (array<bigint>: hashes of every unique-index
    value without NULL, before and after), and ``carry``.
    """
    require_columns(events, *NEEDED, *carry)
    rows = events.where((F.col("kind") == "row") & F.col("commit_ts").isNotNull()).transform(with_keys)
    rows, uniques = _with_unique_indexes(rows, catalog)
    facts = {
        "table": F.concat("schema_name", F.lit("."), "table_name"),
        "op_rank": op_rank(),
        "identity": row_id(),
        "keys": F.array_compact(F.array("key_hash", "before_key_hash")),
        "key": key_text(),
        "uniques": uniques,
    }
    kept = ("op_rank", "keys", "key", "uniques", "schema_name", "table_name", *carry)
    place = [c for c in ("partition", "offset", "seq", "topic") if c in rows.columns and c not in kept]
    narrow = rows.withColumns(facts).select(*_IDENTITY, *place, *kept)
    first = F.min_by(F.struct(*place, *kept), in_order(*place))
    return narrow.groupBy(*_IDENTITY).agg(first.alias("first")).select("table", "commit_ts", "op", "first.*")


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


def key_text() -> Column:
    """The row's handle key as ``col=value`` (string)."""
    return _key_text(F.when(F.col("op") == "delete", F.col("before")).otherwise(F.col("columns")))


def _key_text(image: Column) -> Column:
    keys = F.filter(image, lambda c: c["is_key"])
    text = F.transform(keys, lambda c: F.concat(c["name"], F.lit("="), F.coalesce(c["value"], F.lit("NULL"))))
    return F.when(F.size(keys) > 0, F.array_join(text, ", "))


def _with_unique_indexes(rows: DataFrame, catalog: Catalog | None) -> tuple[DataFrame, Column]:
    """Rows with the definitions of their unique indexes, and the hashes of their values."""
    if catalog is None or not catalog.versions:
        return rows, F.array().cast("array<bigint>")
    known = with_answers(rows, catalog=catalog, questions={_UNIQUE: _unique_indexes})
    indexes = F.coalesce(F.col(_UNIQUE)["columns"], F.array().cast("array<string>"))
    return known, F.array_distinct(F.array_compact(_index_values(indexes)))


def _index_values(indexes: Column) -> Column:
    """Hashes of the values of each index, after the change and before it."""
    after, before = F.col("columns"), F.col("before")
    return F.concat(
        F.transform(indexes, lambda i: _index_value(i, after, after)),
        # a column absent in an old image with only the changed columns is as in the new one
        F.transform(indexes, lambda i: _index_value(i, before, F.coalesce(after, before))),
    )


def _unique_indexes(table: TableDef) -> HashedColumns:
    visible = {c.name for c in table.columns if c.generated != "virtual"}
    return HashedColumns(
        columns=tuple(_SEPARATOR.join(i.columns) for i in table.unique_indexes if set(i.columns) <= visible)
    )


def _index_value(index: Column, image: Column, fallback: Column) -> Column:
    """Hash of an index's values in an image; null where one is NULL or not carried, which conflicts with nothing."""

    def value(name: Column) -> Column:
        carried = F.filter(image, lambda c: c["name"] == name)
        other = F.filter(fallback, lambda c: c["name"] == name)
        return F.get(F.when(F.size(carried) > 0, carried).otherwise(other), 0)["value"]

    values = F.transform(F.split(index, _SEPARATOR), value)
    whole = image.isNotNull() & ~F.exists(values, lambda v: v.isNull())
    return F.when(whole, F.xxhash64("schema_name", "table_name", index, values))
