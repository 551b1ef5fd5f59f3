"""The dispatchers of a log by name, and the number of every row change by each, whose remainder is the partition.

Bit for bit as TiCDC has it: ``h = crc32(schema || table)``, XORed with ``crc32(name || value bytes)`` for every chosen
column, without separator, length, seed or column order (TiCDC ``pkg/hash``, PositionInertia). The crcs are in
:data:`ticdc_lab.events.schema.DISPATCH`; a row's layout, a short text, names the columns. The design's conflict
detection has no such number, because it needs the order of changes: :mod:`ticdc_lab.dispatch.conflict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY
from ticdc_lab.codecs.laid_out import Image, laid_out_of
from ticdc_lab.dispatch.definitions import (
    Answers,
    Question,
    columns_answer,
    handle_answer,
    index_answer,
    missing_text,
    rowid_answer,
    unique_columns,
)
from ticdc_lab.dispatch.fitting import names_in, xored
from ticdc_lab.dispatch.names import STRATEGIES, Flavour, candidate_name
from ticdc_lab.dispatch.unique_keys import beside_handle
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import Bools, Ints, runs
from ticdc_lab.facts.catalog import Catalog, TableVersion
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.facts.places import grouped

UNNAMED = (
    "the message names no primary key, and the log has no definition of the table, which names the unique index "
    "TiCDC hashes instead: record from its CREATE TABLE on"
)
NOT_SHOWN = (
    "the log does not show the text that TiCDC hashes: no image, a label of an ENUM or SET without the list of "
    "all labels, or in debezium a TIMESTAMP (--option time-zone=ZONE gives its text), a zero date, a DECIMAL of "
    "more than 15 digits, or a fraction whose digits no DDL of the log gives"
)
UNDATED = "the event has no commit_ts, by which the ts dispatcher chooses a partition"
UNIQUE_UNKNOWN = "the log does not show how many columns of this table are in a unique index"
NO_TABLE = "the message names no table, and TiCDC hashes its name"
_LACKS = "the log carries only part of this row, without all of the dispatch columns: "

_PRIMARY_FLAG = 8
UNIQUE_FLAGS = _PRIMARY_FLAG | 16  # open-protocol: primary, unique
_INTEGER_TYPE = "^(tiny|small|medium|big)?int"
_MASK, _MASK_64 = (1 << 32) - 1, (1 << 64) - 1

NUMBERED = (
    "kind", "schema_name", "table_name", "commit_ts", "op", "columns", "before", "protocol", "column_crcs", "key_crc",
    "layout",
)  # fmt: skip
"""What :meth:`Numbering.of` reads of row changes."""

Indexes = Sequence[str] | Mapping[str, Sequence[str]]
"""Names of indexes: for every table, or by table (``schema.table``)."""
ColumnLists = Iterable[Sequence[str]] | Mapping[str, Iterable[Sequence[str]]]
"""Lists of columns: for every table, or by table (``schema.table``)."""
FIXED = ("table", "ts", "index-value", "tidb-rowid")
"""Candidates that every table has."""


@dataclass(frozen=True)
class Candidates:
    """Candidates by slot: first for every table, then for some tables alone.

    ``common`` are names; ``own`` gives for a table the names of its further slots, which ``catalog`` explains.
    """

    common: tuple[str, ...]
    own: Mapping[TableName, tuple[str, ...]]
    catalog: Catalog = field(default_factory=Catalog)

    @classmethod
    def of(
        cls,
        catalog: Catalog | None,
        *,
        indexes: Indexes = (),
        columns: ColumnLists = (),
    ) -> Candidates:
        """The fixed ones, those asked for, and every unique index of each table that is not its handle."""
        own_indexes, indexes = (indexes, ()) if isinstance(indexes, Mapping) else ({}, indexes)
        own_columns, columns = (columns, ()) if isinstance(columns, Mapping) else ({}, columns)
        common = [*FIXED, *[candidate_name("index-value", index=i) for i in indexes]]
        common += [candidate_name("columns", columns=list(c)) for c in columns]
        own: dict[TableName, tuple[str, ...]] = {}
        for table, versions in _defined(catalog, own_columns).versions.items():
            definitions = [v.definition for v in versions if v.definition is not None]
            name = ".".join(table)
            listed = [*own_indexes.get(name, ()), *[i.name for d in definitions for i in beside_handle(d)]]
            names = [candidate_name("index-value", index=i) for i in listed]
            names += [candidate_name("columns", columns=list(c)) for c in own_columns.get(name, ())]
            own[table] = tuple(n for n in dict.fromkeys(names) if n not in common)
        return cls(tuple(dict.fromkeys(common)), own, _defined(catalog, own_columns))

    def names(self, table: TableName) -> tuple[str, ...]:
        """Candidates of a table by slot."""
        return (*self.common, *self.own.get(table, ()))

    @property
    def slots(self) -> int:
        """The most candidates that a table has."""
        return len(self.common) + max((len(names) for names in self.own.values()), default=0)


def _defined(catalog: Catalog | None, columns: Mapping[str, Iterable[Sequence[str]]]) -> Catalog:
    """The catalog, and for tables that it does not know the columns that are asked for, as if they were all."""
    versions = dict(catalog.versions) if catalog is not None else {}
    for table, lists in columns.items():
        schema_name, _, table_name = table.partition(".")
        if (schema_name, table_name) not in versions:
            names = dict.fromkeys(name for names in lists for name in names)
            definition = TableDef(schema_name, table_name, tuple(ColumnDef(name, "") for name in names))
            versions[schema_name, table_name] = (TableVersion(None, definition),)
    return Catalog(versions)


Texts = npt.NDArray[np.object_]
Numbered = tuple[Ints, Texts]


def no_rowid(table: str) -> str:
    """Why a row of a table has no place by its row id."""
    return (
        f"no protocol carries _tidb_rowid, and the rows of {table} are not stored by a single integer primary key that "
        "would equal it"
    )


@dataclass(frozen=True)
class Alike:
    """Rows of one table and layout, ``at`` some places of ``rows``: a column is taken when it is asked for."""

    rows: pa.Table
    at: Ints

    @classmethod
    def among(cls, rows: pa.Table) -> Iterator[Alike]:
        """All rows."""
        yield from (cls(rows, at) for at in places_of(rows, *(c for c in _SAME if c in rows.column_names)))

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        """A column; of those that are the same in all, one value."""
        if column in _SAME:
            return self.rows[column].slice(int(self.at[0]), 1)
        return self.rows[column].take(pa.array(self.at))

    def where(self, which: Bools) -> Alike:
        """Some of them, at least one."""
        return Alike(self.rows, self.at[which])

    @cached_property
    def table(self) -> tuple[Any, Any]:
        """Schema and name, each None where the message has none."""
        return self["schema_name"][0].as_py(), self["table_name"][0].as_py()

    @cached_property
    def layout(self) -> tuple[list[str], list[str]]:
        """Names of the columns and of the handle key."""
        return names_in(self["layout"][0].as_py())

    @cached_property
    def image(self) -> Image:
        """What TiCDC hashes."""
        own = self.rows.select([c for c in NUMBERED[:7] if c != "commit_ts"]).take(pa.array(self.at))
        return laid_out_of(own.combine_chunks().to_batches()[0]).dispatched


_SAME = ("kind", "schema_name", "table_name", "layout")


def places_of(rows: pa.Table, *columns: str) -> Iterator[Ints]:
    """Where the rows are that have the same in these columns."""
    of = grouped(rows, columns)[1]
    order = np.argsort(of, kind="stable")
    for part in runs(of[order]):
        yield order[part]


@dataclass(frozen=True)
class Numbering:
    """The number whose remainder is the partition, as 64 bits unsigned, by each dispatcher: a kernel's part.

    ``catalog``: of the log; None where its definitions are not known. ``flavour``: see
    :data:`ticdc_lab.dispatch.names.Flavour`. ``upstream``: of a table that the log names otherwise the name that
    TiCDC hashes.
    """

    catalog: Catalog | None
    candidates: Candidates = Candidates((), {})
    flavour: Flavour = "new"
    upstream: Mapping[TableName, TableName] = field(default_factory=dict)
    _answers: dict[Any, Answers] = field(default_factory=dict, init=False)

    def of(self, rows: pa.Table) -> dict[str, pa.Array]:
        """``h0``, ``h1``, .. of row changes, null where a candidate cannot place one, and then by slot why: ``errors``.

        ``errors`` is null where all can.
        """
        n, slots, why = rows.num_rows, self.candidates.slots, _nothing(rows.num_rows)
        numbers = np.zeros((slots, n), dtype=np.int64)
        errors = np.full((slots, n), None, dtype=object)
        for own in Alike.among(rows):
            names = self.candidates.names(own.table)
            for s in range(slots):
                if s >= len(names):
                    errors[s, own.at] = ""
                else:
                    numbers[s, own.at], errors[s, own.at] = self._of_candidate(own, s, names[s])
        known = errors == None  # noqa: E711
        found = {f"h{s}": pa.array(numbers[s], mask=~known[s]) for s in range(slots)}
        said = errors.copy()
        said[said == ""] = None
        is_rowid = [s for s, name in enumerate(self.candidates.common) if name == "tidb-rowid"]
        said[is_rowid] = None  # its reason is always the same
        for i in np.flatnonzero((said != None).any(axis=0)).tolist():  # noqa: E711
            why[i] = said[:, i].tolist()
        return found | {"errors": pa.array(why.tolist(), pa.list_(pa.string()))}

    def _of_candidate(self, rows: Alike, slot: int, name: str) -> Numbered:
        strategy, _, argument = name.partition(":")
        columns = tuple(argument.split(",")) if argument else ()
        if slot < len(self.candidates.common):
            return self.by(rows, strategy, index=argument, columns=columns)
        question = partial(index_answer, index=argument) if strategy == "index-value" else (
            partial(columns_answer, columns=columns)
        )  # fmt: skip
        return self._by_definition(rows, question, name, self.candidates.catalog)

    def by(self, rows: Alike, strategy: str, *, index: str = "", columns: Sequence[str] = ()) -> Numbered:
        """The numbers of rows of one table and layout by a rule of TiCDC, and why a row has none.

        A strategy that TiCDC does not know is ``table``, as there.
        """
        strategy = STRATEGIES.get(strategy.lower(), "table")
        if strategy == "ts":
            ts = rows["commit_ts"]
            return np.asarray(ts.fill_null(0)), _said(np.asarray(ts.is_null()), UNDATED)
        if strategy == "tidb-rowid":
            return self._by_rowid(rows)
        if None in self.hashed_name(rows):
            return np.zeros(len(rows), dtype=np.int64), _said(np.ones(len(rows), dtype=bool), NO_TABLE)
        if strategy == "columns":
            return self._by_columns(rows, tuple(columns))
        if strategy == "default-no-old-value":
            return self._by_default(rows, index)
        if strategy == "index-value":
            return self._by_named_index(rows, index) if index else self._by_key(rows)
        return np.full(len(rows), self._table_crc(rows)), _nothing(len(rows))

    def by_table(self, rows: Alike, strategy: str) -> Bools:
        """Which rows of one table and layout a strategy sends where their table goes, with its name as the key."""
        strategy = STRATEGIES.get(strategy.lower(), "table")
        if strategy == "default-no-old-value":
            return self._unique(rows) > 1
        return np.full(len(rows), strategy == "table")

    def hashed_name(self, rows: Alike) -> tuple[Any, Any]:
        """The name that TiCDC hashes of the table of rows."""
        return self.upstream.get(rows.table, rows.table)

    def _table_crc(self, rows: Alike) -> int:
        return crc32("".join(self.hashed_name(rows)).encode())

    def _asked(
        self, catalog: Catalog | None, name: Any, question: Question, rows: Alike
    ) -> Iterator[tuple[Bools, Any]]:
        if name not in self._answers:
            self._answers[name] = Answers(catalog, question)
        return self._answers[name].at(rows)

    def _by_named_index(self, rows: Alike, index: str) -> Numbered:
        if self.catalog is None:
            raise needs_catalog(index)
        return self._by_definition(rows, partial(index_answer, index=index), f"index-value:{index}", self.catalog)

    def _by_definition(self, rows: Alike, question: Question, key: str, catalog: Catalog) -> Numbered:
        """By the columns that the table's definition names."""
        value, error = np.zeros(len(rows), dtype=np.int64), _nothing(len(rows))
        names = rows.layout[0]
        for at, answer in self._asked(catalog, key, question, rows):
            if answer is None:
                name = ".".join(self.hashed_name(rows))
                error[at] = f"the catalog does not know the indexes of {name} at this commit_ts"
                continue
            value[at], error[at] = self._hashed(rows.where(at), names, answer.columns)
            if answer.error is not None:
                error[at] = answer.error
        return value, error

    def _by_columns(self, rows: Alike, columns: tuple[str, ...]) -> Numbered:
        names, keys = rows.layout
        lower, times = [name.lower() for name in names], Counter(c.lower() for c in columns)
        hashed = [name for name, n in times.items() if n % 2]  # a column that is listed twice cancels out
        lacks, missing = not {*hashed} <= {*lower}, next((c for c in times if c not in lower), None)
        of_image: Any = None
        if missing is not None:
            # a delete of only key columns may be whole or may come from delete-only-output-handle-key-columns
            cut = np.asarray(pc.equal(rows["op"], "delete").fill_null(False)) & (names == keys)
            of_image = np.where(cut, _LACKS + missing, missing_text(self.hashed_name(rows)[1], columns, names))
        value, error = self._hashed(rows, names, [names[lower.index(name)] for name in hashed if name in lower])
        told = error == None  # noqa: E711
        for at, answer in self._asked(self.catalog, columns, partial(columns_answer, columns=columns), rows):
            if answer is None and of_image is not None:
                error[at & told] = of_image[at & told]
            elif answer is not None and answer.error is not None:
                error[at] = answer.error
            elif answer is not None and lacks:
                error[at & told] = _LACKS + " ".join(answer.columns)
        return value, error

    def _by_key(self, rows: Alike) -> Numbered:
        """By the handle key; where the message names none, by the one that the table's definition gives.

        canal-json writes ``pkNames: []`` where a table has no primary key, canal and avro name a primary key alone, and
        maxwell names none. Such a row may still have a handle key: TiCDC takes the not-null unique index with the
        fewest columns.
        """
        crcs = rows["key_crc"]
        crc, known = np.asarray(crcs.fill_null(0)).copy(), np.asarray(crcs.is_valid()).copy()
        names, keys = rows.layout
        table = self._table_crc(rows)
        if keys and self.flavour == "classic" and pc.any(pc.is_null(pc.list_flatten(rows["column_crcs"]))).as_py():
            value, error = self._hashed(rows, names, keys)  # where a NULL counts
            crc, known = value ^ table, error == None  # noqa: E711
        is_bare = not keys and rows["layout"][0].is_valid
        why = _said(np.ones(len(rows), bool), UNNAMED if is_bare else NOT_SHOWN)
        if is_bare and "protocol" in rows.rows.column_names:
            unnamed = np.asarray(pc.is_in(rows["protocol"], pa.array(NAME_A_PRIMARY_KEY)))
            if not self._handles:
                known &= ~unnamed
            for at, answer in self._asked(self.catalog, "", handle_answer, rows) if self._handles else ():
                own = at & unnamed
                if answer is None or not own.any():
                    known[own] = False
                elif answer.columns:
                    value, error = self._hashed(rows.where(own), names, answer.columns)
                    crc[own], known[own], why[own] = value ^ table, error == None, error  # noqa: E711
        why[known] = None
        return (crc & _MASK) ^ table, why

    @cached_property
    def _handles(self) -> bool:
        """Whether a table is defined whose messages may name no handle key though it has one."""
        versions = () if self.catalog is None else self.catalog.versions.values()
        return any(v.definition is not None and v.definition.primary is None for of in versions for v in of)

    def _by_default(self, rows: Alike, index: str) -> Numbered:
        """By table where more columns are unique, as up to v5.4 with ``enable-old-value = false``.

        TiCDC counted the columns of the row that are flagged primary or unique, so a key of two columns means ``table``
        (pingcap/tiflow v5.4, ``cdc/sink/dispatcher/default.go``).
        """
        value, error = self.by(rows, "index-value", index=index)
        unique = self._unique(rows)
        return np.where(unique > 1, self._table_crc(rows), value), np.where(unique < 0, UNIQUE_UNKNOWN, error)

    def _unique(self, rows: Alike) -> Ints:
        """How many columns of each row are unique, -1 where the log does not show it.

        The catalog shows them, else open-protocol's flags; a delete has its handle key alone, so that TiCDC itself
        counted fewer there and could send it elsewhere.
        """
        image = rows.image
        unknown, flagged = (
            np.bincount(image.rows[of], minlength=len(rows))
            for of in (image.flags < 0, np.maximum(image.flags, 0) & UNIQUE_FLAGS > 0)
        )
        unique = np.where(image.there & (unknown == 0), flagged, -1)
        names = rows.layout[0]
        for at, answer in self._asked(self.catalog, "unique", unique_columns, rows) if self.catalog else ():
            if answer is not None:
                unique[at & image.there] = len({*answer.columns} & {*names})
        return unique

    def _by_rowid(self, rows: Alike) -> Numbered:
        """``uint64(_tidb_rowid)`` of TiCDC v4.0 (``cdc/sink/dispatcher/rowid.go``).

        No protocol carries it. It is known only where it is the primary key: a single integer column by which the table
        is stored. The catalog shows which tables are; without one, a single integer key column that the protocol does
        not deny to be the primary key is taken for it, as every such table was stored so in v4.0.
        """
        n, value = len(rows), np.zeros(len(rows), dtype=np.int64)
        image = rows.image
        keys = np.flatnonzero(image.is_key)
        keys = keys[np.bincount(image.rows[keys], minlength=n)[image.rows[keys]] == 1]
        at, text, flags = image.rows[keys], image.values.take(pa.array(keys)), image.flags[keys]
        kinds = pc.match_substring_regex(image.types.take(pa.array(keys)), _INTEGER_TYPE)
        computable, known = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        computable[at] = np.asarray(kinds.fill_null(False)) & ((flags < 0) | (flags & _PRIMARY_FLAG > 0))
        if self.catalog is not None:
            for of, answer in self._asked(self.catalog, "rowid", rowid_answer, rows):
                if answer is not None:
                    computable[of] = answer.integer_handle
        is_number = np.asarray(pc.match_substring_regex(text, "^-?[0-9]+$").fill_null(False)) & computable[at]
        known[at] = is_number
        numbers = [int(t) & _MASK_64 for t in text.filter(pa.array(is_number)).to_pylist()]
        value[at[is_number]] = np.array(numbers, dtype=np.uint64).view(np.int64)
        return value, _said(~known, no_rowid(".".join(part or "" for part in self.hashed_name(rows))))

    def _hashed(self, rows: Alike, names: Sequence[str], wanted: Sequence[str]) -> Numbered:
        """TiCDC's hash of the wanted columns, and why a row has none; ``names``: the columns of its layout."""
        value, told = xored(self._table_crc(rows), rows["column_crcs"], names, wanted, self.flavour)
        error = _said(~told, NOT_SHOWN)
        error[told] = None if {*wanted} <= {*names} else _LACKS + " ".join(wanted)
        return value, error


def needs_catalog(index: str) -> DispatchError:
    """Why rows cannot be dispatched by an index."""
    return DispatchError(
        f"Dispatch by the index {index!r} needs table definitions, which row events do not carry.",
        hint="Pass catalog=catalog_of(events), or Catalog.from_definitions([...]).",
    )


def _nothing(n: int) -> Texts:
    return np.full(n, None, dtype=object)


def _said(of: Bools, words: str) -> Texts:
    found = _nothing(len(of))
    found[of] = words
    return found
