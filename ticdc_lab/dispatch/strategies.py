"""Partition dispatchers as pure Spark expressions (MQ design: Kafka 分区策略; TiCDC's source).

A strategy is one function from a :class:`Request` to a :class:`Verdict`, registered in :data:`STRATEGIES`. The design's
conflict detection is none, because it needs the order of changes: :mod:`ticdc_lab.dispatch.conflict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab.dispatch import hashing
from ticdc_lab.dispatch.defined_keys import UNNAMED
from ticdc_lab.dispatch.definitions import HashedColumns, Question, unique_columns
from ticdc_lab.dispatch.hashing import HASH, ColumnChoice, Flavour
from ticdc_lab.dispatch.names import check_columns
from ticdc_lab.engine.columns import texts
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef

_FAILED = "[CDC:ErrDispatcherFailed]"
NO_ROWID = (
    "no protocol carries _tidb_rowid, and the rows of the table are not stored by a single integer primary key that "
    "would equal it"
)
UNDATED = "the event has no commit_ts, by which the ts dispatcher chooses a partition"
NOT_SHOWN = (
    "the log does not show the text that TiCDC hashes: no image, a label of an ENUM or SET without the list of "
    "all labels, or in debezium a TIMESTAMP (--option time-zone=ZONE gives its text), a zero date, a DECIMAL of "
    "more than 15 digits, or a fraction whose digits no DDL of the log gives"
)
UNIQUE_UNKNOWN = "the log does not show how many columns of this table are in a unique index"
_PRIMARY_FLAG = 8
UNIQUE_FLAGS = _PRIMARY_FLAG | 16  # open-protocol: primary, unique
INTEGER_TYPE = "^(tiny|small|medium|big)?int"
_IMAGES = ("op", "columns", "before")
_HASHED, _LISTED, _LISTED_TEXT = "_dispatch_hashed", "_dispatch_listed", "_dispatch_listed_text"
"""Scratch columns of :func:`by_lists_of_columns`: the row's rule's columns, those that are hashed, and as written."""
_IMAGE, _KEY = "_dispatch_image", "_dispatch_key"
"""Scratch columns: the image that TiCDC would hash, and the columns of it that are of the handle key."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a strategy is asked.

    ``answer`` names the scratch column that will hold the catalog's answer.
    """

    partitions: int
    index: str | None = None
    columns: tuple[str, ...] | None = None
    catalog: Catalog | None = None
    flavour: Flavour = "new"
    answer: str = "_dispatch_answer"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a row is dispatched.

    ``partition`` (int), ``key`` and ``error`` (string) may use the scratch columns that ``choice`` fills
    (:func:`ticdc_lab.dispatch.hashing.with_hash`), also ``from_images`` and the answer column of ``question``.
    ``needs`` are the columns of events they read.
    """

    partition: Column
    key: Column
    error: Column
    needs: tuple[str, ...] = ()
    choice: ColumnChoice | None = None
    question: Question | None = None
    from_images: Mapping[str, Column] = field(default_factory=dict)
    by_key: bool = False
    """Whether the handle key is hashed."""


Strategy = Callable[[Request], Verdict]


def _no_error() -> Column:
    return F.lit(None).cast("string")


def by_table(request: Request) -> Verdict:
    """``crc32(schema || table) mod N``; the key is ``schema.table``."""
    return Verdict(
        partition=hashing.table_hash() % request.partitions,
        key=F.concat("schema_name", F.lit("."), "table_name"),
        error=_no_error(),
    )


def by_ts(request: Request) -> Verdict:
    """``commit_ts mod N`` as unsigned 64 bits; the key is the decimal commit_ts."""
    ts = F.col("commit_ts")
    return Verdict(
        partition=unsigned_mod(ts, request.partitions),
        key=_unsigned_text(ts),
        error=F.when(ts.isNull(), UNDATED),
        needs=("commit_ts",),
    )


def by_index_value(request: Request) -> Verdict:
    """Hash of the table and the handle key, or the named index; the key is the decimal hash."""
    if request.index:
        return _by_named_index(request, request.index)
    unnamed = F.when(F.col("key_crc").isNull() & F.col("layout").endswith(",,"), UNNAMED)
    return replace(_hashed(request, choice=hashing.key_columns(), error=unnamed), by_key=True)


def by_columns(request: Request) -> Verdict:
    """Hash of the table and the listed columns; the key is the decimal hash.

    Listing a column twice cancels it out, and an empty list leaves the table's hash, as in TiCDC.
    """
    columns = check_columns(request.columns)
    times = Counter(c.lower() for c in columns)
    hashed = [name for name, n in times.items() if n % 2]
    choice = hashing.columns_named(hashed)
    complete = hashing.count_of(F.col(HASH)) >= len(hashed)
    doubtful = ~complete if len(hashed) == len(times) else F.lit(True)
    missing = _missing_from_image(texts(c.lower() for c in columns), F.lit(" ".join(columns)))
    from_image = F.when(doubtful, missing) if times else _no_error()
    question = None if request.catalog is None else partial(columns_answer, columns=columns)
    if question is None:
        return _hashed(request, choice=choice, error=from_image)
    answer = F.col(request.answer)
    from_catalog = F.coalesce(answer["error"], F.when(~complete, _not_carried(F.array_join(answer["columns"], " "))))
    error = F.when(answer.isNull(), from_image).otherwise(from_catalog)
    return _hashed(request, choice=choice, error=error, question=question)


def by_lists_of_columns(
    request: Request, lists: Mapping[int, Sequence[str]], of_table: Callable[[str, str], int], *, chosen: Column
) -> tuple[Verdict, Mapping[str, Column]]:
    """As :func:`by_columns`, where each of several rules lists columns of its own.

    ``request``: its ``columns`` are not looked at. ``lists``: columns of each rule by its number. ``of_table``: the
    number of the rule that serves a table, from schema and name. ``chosen``: the number of the row's rule. Returns: how
    such a row is dispatched, and scratch columns that the verdict reads: they are of the row's rule.
    """
    each = {i: check_columns(columns) for i, columns in lists.items()}
    times = {i: Counter(c.lower() for c in columns) for i, columns in each.items()}
    hashed = {i: [name for name, n in of.items() if n % 2] for i, of in times.items()}

    def of_rule(values: Mapping[int, Column]) -> Column:
        (first, value), *others = values.items()
        found = F.when(chosen == first, value)
        for i, value in others:
            found = found.when(chosen == i, value)
        return found

    scratch = {
        _HASHED: of_rule({i: texts(names) for i, names in hashed.items()}),
        _LISTED: of_rule({i: texts(of) for i, of in times.items()}),
        _LISTED_TEXT: of_rule({i: F.lit(" ".join(columns)) for i, columns in each.items()}),
    }
    listed, text = F.col(_LISTED), F.col(_LISTED_TEXT)
    choice = hashing.columns_of(F.col(_HASHED), most=max(map(len, hashed.values())))
    complete = hashing.count_of(F.col(HASH)) >= F.size(_HASHED)
    doubtful = ~complete | (F.size(_HASHED) < F.size(_LISTED))
    from_image = F.when(doubtful, _missing_from_image(listed, text))
    if request.catalog is None:
        return _hashed(request, choice=choice, error=from_image), scratch

    def question(table: TableDef) -> HashedColumns:
        columns = each.get(of_table(table.schema_name, table.table_name))
        return HashedColumns() if columns is None else columns_answer(table, columns)

    answer = F.col(request.answer)
    from_catalog = F.coalesce(answer["error"], F.when(~complete, _not_carried(F.array_join(answer["columns"], " "))))
    error = F.when(answer.isNull(), from_image).otherwise(from_catalog)
    return _hashed(request, choice=choice, error=error, question=question), scratch


def by_named_indexes(request: Request, indexes: Mapping[int, str], of_table: Callable[[str, str], int]) -> Verdict:
    """As :func:`by_index_value` by a named index, where each of several rules names one of its own."""
    first = next(iter(indexes.values()))
    if request.catalog is None:
        return _by_named_index(request, first)

    def question(table: TableDef) -> HashedColumns:
        index = indexes.get(of_table(table.schema_name, table.table_name))
        return HashedColumns() if index is None else index_answer(table, index)

    return by_table_columns(request, question)


def by_tidb_rowid(request: Request) -> Verdict:
    """``uint64(_tidb_rowid) mod N`` of TiCDC v4.0 (``cdc/sink/dispatcher/rowid.go``); the key is the decimal row id.

    No protocol carries ``_tidb_rowid``. It is known only where it is the primary key: a single integer column by
    which the table is stored. The catalog shows which tables are; without one, a single integer key column that the
    protocol does not deny to be the primary key is taken for it, as every such table was stored so in v4.0.
    """
    only, second = F.get(_KEY, 0), F.get(_KEY, 1)
    primary = only["flags"].isNull() | (only["flags"].bitwiseAND(F.lit(_PRIMARY_FLAG)) > 0)
    computable = only.isNotNull() & second.isNull() & only["mysql_type"].rlike(INTEGER_TYPE) & primary
    if request.catalog is not None:
        computable = F.coalesce(F.col(request.answer)["integer_handle"], computable)
    signed = only["value"].cast("decimal(20,0)")
    row_id = F.when(F.coalesce(computable, F.lit(False)), F.when(signed < 0, signed + _TWO_TO_64()).otherwise(signed))
    return Verdict(
        partition=row_id % request.partitions,
        key=row_id.cast("string"),
        error=F.when(
            row_id.isNull(),
            F.concat(
                F.lit("no protocol carries _tidb_rowid, and the rows of "),
                *(F.col("schema_name"), F.lit("."), F.col("table_name")),
                F.lit(" are not stored by a single integer primary key that would equal it"),
            ),
        ),
        needs=_IMAGES,
        question=None if request.catalog is None else rowid_answer,
        from_images={_KEY: F.filter(hashing.dispatched_image(), lambda c: c["is_key"])},
    )


def rowid_answer(table: TableDef) -> HashedColumns:
    """Whether rows of a table are stored by their integer primary key."""
    return HashedColumns(integer_handle=table.pk_is_handle)


def by_default_without_old_value(request: Request) -> Verdict:
    """``default`` up to v5.4 with ``enable-old-value = false``: by table where more columns are unique.

    TiCDC counted the columns of the row that are flagged primary or unique, so a key of two columns means ``table``
    (pingcap/tiflow v5.4, ``cdc/sink/dispatcher/default.go``). The catalog shows them, else open-protocol's flags; a
    delete holds its handle key alone, so that TiCDC itself counted fewer there and could send it elsewhere.
    """
    by_index = by_index_value(request)
    image = F.col(_IMAGE)
    flagged = F.filter(image, lambda c: c["flags"].bitwiseAND(F.lit(UNIQUE_FLAGS)) > 0)
    unique = F.when(~F.exists(image, lambda c: c["flags"].isNull()), F.size(flagged))
    if request.catalog is not None:
        # what TiCDC had before it when it dispatched a delete: the columns of the handle alone
        answer = F.col(request.answer)["columns"]
        held = F.size(F.array_intersect(answer, F.col(f"{_IMAGE}.name")))
        unique = F.coalesce(F.when(answer.isNotNull(), held), unique)
    whole = unique > 1
    by_hash, table = hashing.hash_of(F.col(HASH)), hashing.table_hash()
    unknown = F.when(unique.isNull(), UNIQUE_UNKNOWN)
    return Verdict(
        partition=F.when(whole, table).otherwise(by_hash) % request.partitions,
        key=F.when(whole, F.concat("schema_name", F.lit("."), "table_name")).otherwise(by_hash.cast("string")),
        error=F.coalesce(unknown, by_index.error),
        needs=_IMAGES,
        choice=by_index.choice,
        by_key=True,
        question=None if request.catalog is None else unique_columns,
        from_images={_IMAGE: hashing.dispatched_image()},
    )


STRATEGIES: Mapping[str, Strategy] = {
    "table": by_table,
    "default": by_table,
    "ts": by_ts,
    "index-value": by_index_value,
    "rowid": by_index_value,
    "columns": by_columns,
    "tidb-rowid": by_tidb_rowid,
    "default-no-old-value": by_default_without_old_value,
}
"""Rule name to strategy. ``rowid`` is TiCDC's deprecated alias of ``index-value``; ``tidb-rowid`` is ours for v4.0 and
``default-no-old-value`` for v5.4."""


def strategy_of(name: str) -> Strategy:
    """The strategy TiCDC uses for a rule name, in any case; ``table`` for a name it does not know."""
    return STRATEGIES.get(name.lower(), by_table)


def unsigned_mod(value: Column, n: int) -> Column:
    """``value mod n`` (bigint) of a bigint read as unsigned 64 bits."""
    return (F.shiftrightunsigned(value, 1) % n * 2 + value.bitwiseAND(F.lit(1))) % n


def _unsigned_text(value: Column) -> Column:
    return F.when(value >= 0, value.cast("string")).otherwise(
        (value.cast("decimal(20,0)") + _TWO_TO_64()).cast("string")
    )


def _TWO_TO_64() -> Column:
    return F.lit("18446744073709551616").cast("decimal(20,0)")


def _hashed(request: Request, *, choice: ColumnChoice, error: Column, question: Question | None = None) -> Verdict:
    h = hashing.hash_of(F.col(HASH))
    unknown = F.when(F.col(HASH).isNull(), NOT_SHOWN)
    return Verdict(
        partition=h % request.partitions,
        key=h.cast("string"),
        error=F.coalesce(error, unknown),
        needs=("op",),
        choice=choice,
        question=question,
    )


def _by_named_index(request: Request, index: str) -> Verdict:
    if request.catalog is None:
        raise DispatchError(
            f"Dispatch by the index {index!r} needs table definitions, which row events do not carry.",
            hint="Pass catalog=catalog_of(events), or Catalog.from_definitions([...]).",
        )
    return by_table_columns(request, lambda table: index_answer(table, index))


def by_table_columns(request: Request, question: Question) -> Verdict:
    """Hash of the table and the columns that the catalog's answer to ``question`` names for it."""
    answer = F.col(request.answer)
    wanted = answer["columns"]
    error = F.coalesce(
        answer["error"],
        F.when(
            answer.isNull(),
            F.concat(
                F.lit("the catalog does not know the indexes of "),
                *(F.col("schema_name"), F.lit("."), F.col("table_name")),
                F.lit(" at this commit_ts"),
            ),
        ),
        F.when(hashing.count_of(F.col(HASH)) < F.size(wanted), _not_carried(F.array_join(wanted, " "))),
    )
    versions = () if request.catalog is None else request.catalog.versions.values()
    defined = [v.definition for of_table in versions for v in of_table]
    asked = {question(table).columns for table in defined if table is not None}
    choice = hashing.columns_listed(wanted, among=asked - {()})
    return _hashed(request, choice=choice, error=error, question=question)


def index_answer(table: TableDef, index: str) -> HashedColumns:
    """The columns of an index that a row carries, or TiCDC's error."""
    found = table.index(index)
    if found is None:
        return HashedColumns(
            error=f"{_FAILED}index not found when dispatch event, table: {table.table_name}, index: {index}"
        )
    return HashedColumns(columns=tuple(c for c in found.columns if _is_carried(table, c)))


def _is_carried(table: TableDef, name: str) -> bool:
    column = table.column(name)
    return column is not None and column.generated != "virtual"


def columns_answer(table: TableDef, columns: Sequence[str]) -> HashedColumns:
    """The listed columns under the names the table gives them, or TiCDC's error."""
    names = []
    for name in columns:
        column = table.column(name)
        if column is None:
            return HashedColumns(error=missing_text(table.table_name, columns, name.lower()))
        if column.generated == "virtual":
            return HashedColumns(
                error=f"{_FAILED}found virtual generated columns when dispatch event, table: {table.table_name}, "
                f"columns: [{' '.join(columns)}] column: {name.lower()}"
            )
        names.append(column.name)
    return HashedColumns(columns=tuple(names))


def missing_text(table: str, columns: Sequence[str], name: str) -> str:
    """TiCDC's error for a listed column that a row does not have."""
    listed = " ".join(columns)
    return f"{_FAILED}columns not found when dispatch event, table: {table}, columns: [{listed}], column: {name}"


def columns_missing(table: str, columns: Sequence[str], names: Collection[str]) -> str:
    """TiCDC's error for the first listed column that a table with such columns does not have."""
    there = {name.lower() for name in names}
    return missing_text(table, columns, next(c.lower() for c in columns if c.lower() not in there))


def _missing_from_image(listed: Column, written: Column) -> Column:
    """The first listed column missing in the image, as TiCDC's error, or as ours where the image may be cut short."""
    missing = F.get(F.array_except(listed, hashing.lower_names()), 0)
    # a delete of only key columns may be whole or may come from delete-only-output-handle-key-columns
    cut = F.coalesce(F.col("op") == "delete", F.lit(False)) & hashing.only_keys()
    prefix = F.lit(f"{_FAILED}columns not found when dispatch event, table: ")
    text = F.concat(prefix, F.col("table_name"), F.lit(", columns: ["), written, F.lit("], column: "), missing)
    return F.when(missing.isNotNull(), F.when(cut, _not_carried(missing)).otherwise(text))


def _not_carried(columns: Column) -> Column:
    return F.concat(F.lit("the log carries only part of this row, without all of the dispatch columns: "), columns)
