"""The key values by which rows conflict, as hashes: the handle key, and every other unique index of the catalog.

Most tables have the handle key only, whose hashes events carry; where no table has more, no image is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from ticdc_lab.codecs.kernel.numbering import DELETE, INSERT
from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.codecs.laid_out import Image, LaidOut, laid_out_of
from ticdc_lab.codecs.plain.hashes import SEED, Hashes, Texts
from ticdc_lab.dispatch.definitions import Answers, HashedColumns, key_texts
from ticdc_lab.events.arrays import Batches, Bools, Ints
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import IndexDef, TableDef
from ticdc_lab.facts.places import grouped

NOT_CARRIED = (
    "the log carries only part of this row, without all old and new values of the unique indexes, which conflict "
    "detection compares"
)
_OWN = ("own_key", "uniques", "not_carried", "named_keys")
_FORM = pa.schema([
    ("own_key", pa.int64()), ("uniques", pa.list_(pa.int64())), ("not_carried", pa.string()),
    ("named_keys", pa.list_(pa.struct([("hash", pa.int64()), ("text", pa.string())]))),
])  # fmt: skip


def with_unique_keys(events: DataFrame, *, catalog: Catalog | None, named: bool = False) -> DataFrame:
    """Add what rows conflict by.

    ``events``: the events contract. ``catalog``: gives the unique indexes beside the handle key; without it, there are
    none. An index over a virtual column is left out: no protocol carries its values. ``named``: whether to add
    ``named_keys``, which reads all images. Returns: events with :data:`ticdc_lab.events.schema.KEYS`, ``table_id``
    (bigint) and what :meth:`UniqueKeys.of` gives, ``uniques`` only where a table has another unique index.
    """
    rows = events.transform(with_keys).withColumn("table_id", F.xxhash64("schema_name", "table_name"))
    keys = UniqueKeys(catalog)
    if not keys.others and not named:
        own = F.when(F.col("kind") == "row", F.coalesce("key_hash", "table_id"))
        return rows.withColumns({"own_key": own, "not_carried": F.lit(None).cast("string")})
    names = [n for n in _OWN if (n != "uniques" or keys.others) and (n != "named_keys" or named)]

    def run(batches: Batches) -> Batches:
        for batch in batches:
            found = keys.of(batch, named=named)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *[found[n] for n in names]], [*batch.schema.names, *names]
            )

    fields = [T.StructField(n, from_arrow_type(_FORM.field(n).type)) for n in names]
    return rows.mapInArrow(run, T.StructType([*rows.schema.fields, *fields]))


@dataclass
class UniqueKeys:
    """The values of unique indexes in rows that are here; ``handle``: also of the one that is the handle key."""

    catalog: Catalog | None
    handle: bool = False

    @cached_property
    def others(self) -> dict[TableDef, tuple[IndexDef, ...]]:
        """Table definitions with such an index."""
        versions = () if self.catalog is None else self.catalog.versions.values()
        found = {v.definition for of in versions for v in of}
        each = {t: tuple(beside_handle(t, handle=self.handle)) for t in found if t is not None}
        return {t: indexes for t, indexes in each.items() if indexes}

    def of(self, rows: pa.RecordBatch, *, named: bool = False) -> dict[str, pa.Array]:
        """What rows conflict by.

        ``own_key`` (bigint: ``key_hash``; where a row has none, and one of its images no unique value either, the hash
        of the table, because such rows are known by their content only and must all keep their order), ``uniques``
        (array<bigint>: hashes of the values without NULL, new and old; null where the table has no other unique
        index), ``not_carried`` (string: why the log cannot show it) and ``named_keys`` (array<struct<hash: bigint,
        text: string>>).
        """
        n, laid = rows.num_rows, laid_out_of(rows)
        every, images = np.arange(n), (laid.after, laid.before)
        table = Texts(laid.table_name).fold(Texts(laid.schema_name).fold(np.full(n, SEED), every), every)
        most = max((len(i) for i in self.others.values()), default=0)
        values, valid = np.zeros((2 * most, n), dtype=np.uint64), np.zeros((2 * most, n), dtype=bool)
        texts = np.full((2 * most, n), None, dtype=object)
        enough, lacks, has = (np.zeros(n, dtype=bool) for _ in range(3))
        for at, indexes in self._by_indexes(pa.table(rows)):
            has[at] = enough[at] = True
            for k, names in enumerate(i.columns for i in indexes):
                new, old = ([image.at(c)[at] for c in names] for image in images)
                for image, own, slot in ((laid.after, new, k), (laid.before, old, most + k)):
                    h, said = _fold_names(table[at], names), []
                    valid[slot, at] = image.there[at]
                    for c, place, other in zip(names, own, new, strict=True):
                        # a column absent in an old image with only the changed columns is as in the new one
                        cells = _Cells(image, place) if image is laid.after else _Cells(image, place, laid.after, other)
                        h = cells.fold(h)
                        valid[slot, at] &= cells.valid
                        said.append((c, cells.texts() if named else []))
                    values[slot, at] = h
                    if named:
                        each = zip(*[[f"{c}={t}" for t in told] for c, told in said], strict=True)
                        texts[slot, at] = [", ".join(of) for of in each]
                whole = _is_whole(laid.after, at, new), _is_whole(laid.before, at, list(map(np.maximum, old, new)))
                lacks[at] |= ((laid.op[at] != DELETE) & ~whole[0]) | ((laid.op[at] != INSERT) & ~whole[1])
            for image, slots in zip(images, (slice(0, len(indexes)), slice(most, most + len(indexes))), strict=True):
                enough[at] &= ~image.there[at] | valid[slots, :][:, at].any(axis=0)
        of_table = pa.array(table.view(np.int64), mask=enough)
        own = pc.if_else(pa.array(laid.is_row), pc.coalesce(rows["key_hash"], of_table), pa.scalar(None, pa.int64()))
        said_so = pa.array([NOT_CARRIED if lack else None for lack in laid.is_row & lacks], pa.string())
        found = {"own_key": own, "not_carried": said_so, "uniques": _uniques(values, valid, has)}
        if named:
            hashes = values.view(np.int64).astype(object)
            hashes[~valid] = texts[~valid] = None
            found["named_keys"] = _named(rows, laid, own, hashes, texts)
        return found

    def _by_indexes(self, rows: pa.Table) -> Iterable[tuple[np.ndarray, tuple[IndexDef, ...]]]:
        """The rows of each definition that has other unique indexes."""
        if not self.others:
            return
        own = np.flatnonzero(np.asarray(pc.is_valid(rows["table_name"])))
        rows = rows.select(["schema_name", "table_name", "commit_ts"]).take(pa.array(own))
        of = grouped(rows, ("schema_name", "table_name"))[1]
        for i in range(int(of.max(initial=-1)) + 1):
            at = np.flatnonzero(of == i)
            for which, indexes in self._told(rows.take(pa.array(at))):
                yield own[at[which]], indexes

    @cached_property
    def _answers(self) -> Answers:
        return Answers(self.catalog, self._columns)

    def _told(self, alike: pa.Table) -> Iterable[tuple[Bools, tuple[IndexDef, ...]]]:
        every = {i.columns: i for indexes in self.others.values() for i in indexes}
        for which, answer in self._answers.at(alike):
            if answer is not None and answer.columns:
                yield which, tuple(every[tuple(text.split(_APART))] for text in answer.columns)

    def _columns(self, table: TableDef) -> HashedColumns:
        return HashedColumns(columns=tuple(_APART.join(i.columns) for i in self.others.get(table, ())))


_APART = "\x01"


class _Cells:
    """The values of one column in the images of some rows; where it is missing, in another image."""

    def __init__(self, image: Image, at: Ints, other: Image | None = None, there: Ints | None = None) -> None:
        self._parts = [(image, at)] + ([] if other is None or there is None else [(other, np.where(at < 0, there, -1))])
        self.valid = np.zeros(len(at), dtype=bool)
        for of, places in self._parts:
            own = places >= 0
            self.valid[own] = np.asarray(of.values.is_valid())[places[own]]

    def fold(self, h: Hashes) -> Hashes:
        """Hashes continued with the values; NULL leaves one as it is."""
        out = h.copy()
        for of, places in self._parts:
            own = np.flatnonzero(places >= 0)
            out[own] = Texts(of.values).fold(out[own], places[own])
        return out

    def texts(self) -> list[str | None]:
        """The values."""
        out: list[str | None] = [None] * len(self.valid)
        for of, places in self._parts:
            own = np.flatnonzero(places >= 0)
            for i, text in zip(own.tolist(), of.values.take(pa.array(places[own])).to_pylist(), strict=True):
                out[i] = text
        return out


def _fold_names(h: Hashes, names: Sequence[str]) -> Hashes:
    for name in names:
        h = Texts(pa.array([name])).fold(h, np.zeros(len(h), dtype=np.int64))
    return h


def _is_whole(image: Image, at: Ints, places: Sequence[Ints]) -> Bools:
    """Whether there is an image, and in it, or beside it, each of some columns."""
    found: Bools = image.there[at] & np.all([place >= 0 for place in places], axis=0)
    return found


def _uniques(values: Hashes, valid: Bools, has: Bools) -> pa.Array:
    """The hashes of each row's values but NULL; null where its table has no other index."""
    ends = np.concatenate([[0], np.cumsum(valid.sum(axis=0))]).astype(np.int32)
    flat = pa.array(values.T[valid.T].view(np.int64))
    return pa.ListArray.from_arrays(pa.array(ends), flat, mask=pa.array(~has))


def _named(rows: pa.RecordBatch, laid: LaidOut, own: pa.Array, hashes: np.ndarray, texts: np.ndarray) -> pa.Array:
    """Each hash with its text."""
    names = pc.binary_join_element_wise(rows["schema_name"], rows["table_name"], ".").to_pylist()
    after, before = (key_texts(image).to_pylist() for image in (laid.after, laid.before))
    keyed, old, found = rows["key_hash"].to_pylist(), rows["before_key_hash"].to_pylist(), []
    for i, (own_hash, name) in enumerate(zip(own.to_pylist(), names, strict=True)):
        image = before[i] if laid.op[i] == DELETE else after[i]
        text = f"{name}, whose rows have no key" if keyed[i] is None else image
        pairs = [(own_hash, text), (old[i], before[i]), *zip(hashes[:, i].tolist(), texts[:, i].tolist(), strict=True)]
        found.append([{"hash": h, "text": t} for h, t in pairs])
    return pa.array(found, _FORM.field("named_keys").type)


def beside_handle(table: TableDef, *, handle: bool = False) -> Iterable[IndexDef]:
    """Unique indexes that are not the handle key, unless asked for, and whose values a row carries."""
    carried, key = {c.name for c in table.columns if c.generated != "virtual"}, set(table.handle_columns)
    return (i for i in table.unique_indexes if set(i.columns) <= carried and (handle or set(i.columns) != key))
