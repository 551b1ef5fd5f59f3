"""The dispatchers that can be compared on a log, by name, and the hash of each for every row change."""

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
from ticdc_lab.codecs.laid_out import laid_out_of
from ticdc_lab.dispatch.defined_keys import UNNAMED, handle_answer
from ticdc_lab.dispatch.definitions import Answers, HashedColumns, Question, unique_columns
from ticdc_lab.dispatch.fitting import columns_of
from ticdc_lab.dispatch.hashing import UNKNOWN
from ticdc_lab.dispatch.names import candidate_name, check_columns
from ticdc_lab.dispatch.strategies import (
    INTEGER_TYPE,
    NO_ROWID,
    NOT_SHOWN,
    UNDATED,
    UNIQUE_FLAGS,
    UNIQUE_UNKNOWN,
    columns_answer,
    index_answer,
    missing_text,
    rowid_answer,
)
from ticdc_lab.dispatch.unique_keys import beside_handle
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import Bools, Ints, runs
from ticdc_lab.facts.catalog import Catalog, TableVersion
from ticdc_lab.facts.definitions import ColumnDef, TableDef
from ticdc_lab.facts.places import grouped

TableName = tuple[str, str]
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


NUMBERED = (
    "kind", "schema_name", "table_name", "commit_ts", "op", "columns", "before", "protocol", "column_crcs", "key_crc",
    "layout",
)  # fmt: skip
"""What :meth:`Numbering.of` reads of row changes."""


@dataclass(frozen=True)
class Numbering:
    """The number whose remainder is the partition, as 64 bits unsigned, by each candidate: a kernel's part.

    ``catalog``: of the log; None where its definitions are not known. As :mod:`ticdc_lab.dispatch.strategies` computes
    it on an engine.
    """

    candidates: Candidates
    catalog: Catalog | None
    _answers: dict[str, Answers] = field(default_factory=dict, init=False)

    def of(self, rows: pa.Table) -> dict[str, pa.Array]:
        """``h0``, ``h1``, .. of row changes, null where a candidate cannot place one, and then by slot why: ``errors``.

        ``errors`` is null where all can.
        """
        n, slots, why = rows.num_rows, self.candidates.slots, _nothing(rows.num_rows)
        numbers = np.zeros((slots, n), dtype=np.int64)
        errors = np.full((slots, n), None, dtype=object)
        for at in alike(rows):
            own = rows.take(pa.array(at))
            names = self.candidates.names((own["schema_name"][0].as_py(), own["table_name"][0].as_py()))
            for s in range(slots):
                if s >= len(names):
                    errors[s, at] = ""
                else:
                    numbers[s, at], errors[s, at] = self.number(own, names[s], common=s < len(self.candidates.common))
        known = errors == None  # noqa: E711
        found = {f"h{s}": pa.array(numbers[s], mask=~known[s]) for s in range(slots)}
        said = errors.copy()
        said[said == ""] = None
        is_rowid = [s for s, name in enumerate(self.candidates.common) if name == "tidb-rowid"]
        said[is_rowid] = None  # its reason is always the same
        for i in np.flatnonzero((said != None).any(axis=0)).tolist():  # noqa: E711
            why[i] = said[:, i].tolist()
        return found | {"errors": pa.array(why.tolist(), pa.list_(pa.string()))}

    def number(self, rows: pa.Table, candidate: str, *, common: bool = True) -> tuple[Ints, Texts]:
        """The numbers of rows of one table and layout, and why a row has none."""
        strategy, _, argument = candidate.partition(":")
        ts = rows["commit_ts"]
        if strategy == "ts":
            return np.asarray(ts.fill_null(0)), _said(np.asarray(ts.is_null()), UNDATED)
        if strategy == "tidb-rowid":
            return self._by_rowid(rows)
        if strategy == "index-value" and not argument:
            return self._by_key(rows)
        if strategy == "default-no-old-value":
            return self._by_default(rows, argument)
        if strategy == "columns" and common:
            return self._by_columns(rows, tuple(argument.split(",")) if argument else ())
        if strategy in ("columns", "index-value"):
            return self._by_definition(rows, strategy, argument, self.catalog if common else self.candidates.catalog)
        return np.full(rows.num_rows, _table_crc(rows)), _nothing(rows.num_rows)

    def _asked(self, catalog: Catalog | None, name: str, question: Question, rows: pa.Table) -> Answered:
        if name not in self._answers:
            self._answers[name] = Answers(catalog, question)
        return self._answers[name].at(rows)

    def _by_definition(self, rows: pa.Table, strategy: str, argument: str, catalog: Catalog | None) -> Numbered:
        """By the columns that the table's definition names."""

        def question(table: TableDef) -> HashedColumns:
            return index_answer(table, argument) if strategy == "index-value" else (
                columns_answer(table, argument.split(","))
            )  # fmt: skip

        if catalog is None:
            raise DispatchError(
                f"Dispatch by the index {argument!r} needs table definitions, which row events do not carry.",
                hint="Pass catalog=catalog_of(events), or Catalog.from_definitions([...]).",
            )
        value, error = np.zeros(rows.num_rows, dtype=np.int64), _nothing(rows.num_rows)
        names = columns_of(rows)[0]
        for at, answer in self._asked(catalog, f"{strategy}:{argument}", question, rows):
            if answer is None:
                name = ".".join(rows[c][0].as_py() for c in ("schema_name", "table_name"))
                error[at] = f"the catalog does not know the indexes of {name} at this commit_ts"
                continue
            places = [names.index(c) for c in answer.columns if c in names]
            lacks = len(places) < len(answer.columns)
            value[at], error[at] = _hashed(rows.filter(pa.array(at)), places, _LACKS + " ".join(answer.columns), lacks)
            if answer.error is not None:
                error[at] = answer.error
        return value, error

    def _by_columns(self, rows: pa.Table, columns: tuple[str, ...]) -> Numbered:
        columns = tuple(check_columns(columns))
        names, keys, _ = columns_of(rows)
        lower, times = [name.lower() for name in names], Counter(c.lower() for c in columns)
        hashed = [name for name, n in times.items() if n % 2]
        places = [lower.index(name) for name in hashed if name in lower]
        lacks, missing = len(places) < len(hashed), next((c for c in times if c not in lower), None)
        of_image: Any = None
        if missing is not None:
            # a delete of only key columns may be whole or may come from delete-only-output-handle-key-columns
            cut = np.asarray(pc.equal(rows["op"], "delete").fill_null(False)) & (names == keys)
            of_image = np.where(cut, _LACKS + missing, missing_text(rows["table_name"][0].as_py(), columns, missing))
        value, error = _hashed(rows, places, "", False)
        told = error == None  # noqa: E711
        question = partial(columns_answer, columns=columns)
        for at, answer in self._asked(self.catalog, ":".join(columns), question, rows):
            if answer is None and of_image is not None:
                error[at & told] = of_image[at & told]
            elif answer is not None and answer.error is not None:
                error[at] = answer.error
            elif answer is not None and lacks:
                error[at & told] = _LACKS + " ".join(answer.columns)
        return value, error

    def _by_key(self, rows: pa.Table) -> Numbered:
        """By the handle key; where the message names none, by the one that the table's definition gives."""
        crc, known = np.asarray(rows["key_crc"].fill_null(0)).copy(), np.asarray(rows["key_crc"].is_valid()).copy()
        names, keys, _ = columns_of(rows)
        is_bare = not keys and rows["layout"][0].is_valid
        if is_bare and "protocol" in rows.column_names:
            unnamed = np.asarray(pc.is_in(rows["protocol"], pa.array(NAME_A_PRIMARY_KEY)))
            if not self._handles:
                known &= ~unnamed
            for at, answer in self._asked(self.catalog, "", handle_answer, rows) if self._handles else ():
                own = at & unnamed
                if answer is None:
                    known[own] = False
                elif answer.columns:
                    places = [names.index(c) for c in answer.columns if c in names]
                    value, error = _hashed(
                        rows.filter(pa.array(own)), places, "lacks", len(places) < len(answer.columns)
                    )
                    crc[own], known[own] = value ^ _table_crc(rows), error == None  # noqa: E711
        error = _said(~known, UNNAMED if is_bare else NOT_SHOWN)
        return (crc & _MASK) ^ _table_crc(rows), error

    @cached_property
    def _handles(self) -> bool:
        """Whether a table is defined whose messages may name no handle key though it has one."""
        versions = () if self.catalog is None else self.catalog.versions.values()
        return any(v.definition is not None and v.definition.primary is None for of in versions for v in of)

    def _by_default(self, rows: pa.Table, index: str) -> Numbered:
        """By table where more columns are unique, as up to v5.4 without old values."""
        value, error = self.number(rows, candidate_name("index-value", index=index))
        image = laid_out_of(rows.combine_chunks().to_batches()[0]).dispatched
        unknown, flagged = (
            np.bincount(image.rows[of], minlength=len(rows))
            for of in (image.flags < 0, np.maximum(image.flags, 0) & UNIQUE_FLAGS > 0)
        )
        unique = np.where(image.there & (unknown == 0), flagged, -1)
        names = columns_of(rows)[0]
        for at, answer in self._asked(self.catalog, "unique", unique_columns, rows) if self.catalog else ():
            if answer is not None:
                unique[at] = len({*answer.columns} & {*names})
        value, error = np.where(unique > 1, _table_crc(rows), value), error.copy()
        error[unique < 0] = UNIQUE_UNKNOWN
        return value, error

    def _by_rowid(self, rows: pa.Table) -> Numbered:
        """By the number by which rows are stored, where it is their integer primary key."""
        n, value = rows.num_rows, np.zeros(rows.num_rows, dtype=np.int64)
        image = laid_out_of(rows.combine_chunks().to_batches()[0]).dispatched
        keys = np.flatnonzero(image.is_key)
        keys = keys[np.bincount(image.rows[keys], minlength=n)[image.rows[keys]] == 1]
        at, text, flags = image.rows[keys], image.values.take(pa.array(keys)), image.flags[keys]
        kinds = pc.match_substring_regex(image.types.take(pa.array(keys)), INTEGER_TYPE)
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
        return value, _said(~known, NO_ROWID)


Texts = npt.NDArray[np.object_]
Numbered = tuple[Ints, Texts]
Answered = Iterator[tuple[Bools, HashedColumns | None]]
_MASK, _MASK_64, _PRIMARY_FLAG = (1 << 32) - 1, (1 << 64) - 1, 8
_LACKS = "the log carries only part of this row, without all of the dispatch columns: "


def tables_in(rows: pa.Table) -> Iterator[Ints]:
    """Where the rows of each table are."""
    return alike(rows, by=("schema_name", "table_name"))


def alike(rows: pa.Table, *, by: Sequence[str] = ("schema_name", "table_name", "layout")) -> Iterator[Ints]:
    """Where the rows of each table and layout are."""
    of = grouped(rows, by)[1]
    order = np.argsort(of, kind="stable")
    for part in runs(of[order]):
        yield order[part]


def _nothing(n: int) -> Texts:
    return np.full(n, None, dtype=object)


def _said(of: Bools, words: str) -> Texts:
    found = _nothing(len(of))
    found[of] = words
    return found


def _table_crc(rows: pa.Table) -> int:
    return crc32("".join(rows[c][0].as_py() for c in ("schema_name", "table_name")).encode())


def _hashed(rows: pa.Table, places: Sequence[int], lacking: str, lacks: bool) -> Numbered:
    """TiCDC's hash of the columns at some places of the layout, and why a row has none."""
    crcs, value = rows["column_crcs"], np.full(rows.num_rows, _table_crc(rows) if len(rows) else 0)
    told = np.asarray(crcs.is_valid())
    for place in places:
        crc = np.asarray(pc.list_element(crcs, place).fill_null(0)) if told.all() else np.full(len(rows), UNKNOWN)
        value, told = value ^ crc, told & (crc != UNKNOWN)
    error = _said(~told, NOT_SHOWN)
    error[told] = lacking if lacks else None
    return value, error
