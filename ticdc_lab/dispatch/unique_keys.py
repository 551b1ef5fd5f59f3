"""The key values by which rows conflict, as hashes: the handle key, and every other unique index of the catalog.

Most tables have the handle key only, whose hashes events carry; where no table has more, no image is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.dispatch.definitions import HashedColumns, with_answers
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import IndexDef, TableDef

_ANSWER = "_unique_keys"
_IMAGES = ("columns", "before")
NOT_CARRIED = (
    "the log carries only part of this row, without all old and new values of the unique indexes, which conflict "
    "detection compares"
)


def with_unique_keys(events: DataFrame, *, catalog: Catalog | None, named: bool = False) -> DataFrame:
    """Add what rows conflict by.

    ``events``: the events contract. ``catalog``: gives the unique indexes beside the handle key; without it, there are
    none. An index over a virtual column is left out: no protocol carries its values. ``named``: whether to add
    ``named_keys``, which reads all images. Returns: events with :data:`ticdc_lab.events.schema.KEYS`, and ``table_id``
    (bigint), ``own_key`` (bigint: ``key_hash``; where a row has none, and one of its images no unique value either,
    ``table_id``, because such rows are known by their content only and must all keep their order), ``uniques``
    (array<bigint>, left out where no table has another unique index: hashes of the values without NULL, old and new),
    ``not_carried`` (string: why the log cannot show it) and ``named_keys`` (array<struct<hash: bigint, text: string>>).
    """
    rows = events.transform(with_keys).withColumn("table_id", F.xxhash64("schema_name", "table_name"))
    others = {} if catalog is None else _others(catalog)
    if not others:
        found = rows.withColumns({"own_key": _own_key(F.lit(False)), "not_carried": F.lit(None).cast("string")})
        return found.withColumn("named_keys", _named([])) if named else found
    assert catalog is not None
    width = max(len(i.columns) for indexes in others.values() for i in indexes)
    values = [_Value(i, width) for i in range(max(len(indexes) for indexes in others.values()))]
    known = Catalog({name: catalog.versions[name] for name in {(t.schema_name, t.table_name) for t in others}})
    told = with_answers(rows, catalog=known, questions={_ANSWER: lambda t: _padded(others.get(t, ()), width)})
    for step in (_Value.names, _Value.places, _Value.values, _Value.hashes):
        told = told.withColumns({name: column for v in values for name, column in step(v).items()})
    hashes = [F.col(v.hashed(image)) for image in _IMAGES for v in values]
    lacks = reduce(lambda a, b: a | b, [v.lacks() for v in values])
    found = told.withColumns(
        {
            "uniques": F.when(_has_others(), F.array_compact(F.array(*hashes))),
            "own_key": _own_key(_has_others() & ~reduce(lambda a, b: a | b, [_without(values, i) for i in _IMAGES])),
            "not_carried": F.when(_has_others() & lacks, NOT_CARRIED),
        }
    )
    if named:
        found = found.withColumn(
            "named_keys", _named([(F.col(v.hashed(i)), v.text(i)) for i in _IMAGES for v in values])
        )
    return found.select(*rows.columns, "own_key", "uniques", "not_carried", *(["named_keys"] if named else []))


def _has_others() -> Column:
    return F.coalesce(F.size(F.col(_ANSWER)["columns"]) > 0, F.lit(False))


class _Value:
    """The values of one unique index in both images, written out column by column and step by step.

    Spark compiles that, which no function over arrays with a lambda is, and computes each step once.
    """

    def __init__(self, index: int, width: int) -> None:
        self.index, self.cells = index, range(index * width, (index + 1) * width)

    def names(self) -> dict[str, Column]:
        """The index's columns, null past its last one; and all of it is null where the table has no such index."""
        return {f"_name_{c}": F.nullif(F.get(F.col(_ANSWER)["columns"], F.lit(c)), F.lit("")) for c in self.cells}

    def places(self) -> dict[str, Column]:
        """Where an image has the column, from 1; 0 or null where it has not."""
        return {
            f"_at_{i}_{c}": F.array_position(F.col(f"{i}.name"), F.col(f"_name_{c}"))
            for i in _IMAGES
            for c in self.cells
        }

    def values(self) -> dict[str, Column]:
        """Its content; a column absent in an old image with only the changed columns is as in the new one."""

        def own(image: str, c: int) -> Column:
            return F.get(F.col(f"{image}.value"), (F.col(f"_at_{image}_{c}") - 1).cast("int"))

        new = {f"_value_columns_{c}": own("columns", c) for c in self.cells}
        old = {
            f"_value_before_{c}": F.when(F.col(f"_at_before_{c}") > 0, own("before", c)).otherwise(own("columns", c))
            for c in self.cells
        }
        return new | old

    def hashes(self) -> dict[str, Column]:
        """The hash of each image's values; null for NULL, and where there is no image or no index."""

        def one(image: str) -> Column:
            names, values = self._names(), self._values(image)
            whole = _all(n.isNull() | v.isNotNull() for n, v in zip(names, values, strict=True))
            is_there = names[0].isNotNull() & F.col(image).isNotNull() & whole
            return F.when(is_there, F.xxhash64("schema_name", "table_name", *names, *values))

        return {self.hashed(image): one(image) for image in _IMAGES}

    def hashed(self, image: str) -> str:
        """Name of the column with the image's hash."""
        return f"_hash_{image}_{self.index}"

    def text(self, image: str) -> Column:
        """The values as ``column=value``."""
        pairs = zip(self._names(), self._values(image), strict=True)
        return F.concat_ws(", ", *[F.concat(n, F.lit("="), v) for n, v in pairs])

    def lacks(self) -> Column:
        """Whether an image that the change must have is absent, or misses a column."""

        def carried(image: str) -> Column:
            found = [F.col(f"_at_{image}_{c}") > 0 for c in self.cells]
            if image == "before":
                found = [
                    F.coalesce(f, F.lit(False)) | (F.col(f"_at_columns_{c}") > 0)
                    for f, c in zip(found, self.cells, strict=True)
                ]
            return F.col(image).isNotNull() & _all(
                n.isNull() | F.coalesce(f, F.lit(False)) for n, f in zip(self._names(), found, strict=True)
            )

        op = F.col("op")
        return ((op != "delete") & ~carried("columns")) | ((op != "insert") & ~carried("before"))

    def _names(self) -> list[Column]:
        return [F.col(f"_name_{c}") for c in self.cells]

    def _values(self, image: str) -> list[Column]:
        return [F.col(f"_value_{image}_{c}") for c in self.cells]


def _others(catalog: Catalog) -> dict[TableDef, tuple[IndexDef, ...]]:
    """Table definitions with a unique index that is not the handle key."""
    definitions = {v.definition for versions in catalog.versions.values() for v in versions}
    found = {t: tuple(beside_handle(t)) for t in definitions if t is not None}
    return {t: indexes for t, indexes in found.items() if indexes}


def beside_handle(table: TableDef) -> Iterable[IndexDef]:
    """Unique indexes that are not the handle key and whose values a row carries."""
    carried = {c.name for c in table.columns if c.generated != "virtual"}
    handle = set(table.handle_columns)
    return (i for i in table.unique_indexes if set(i.columns) <= carried and set(i.columns) != handle)


def _padded(indexes: Iterable[IndexDef], width: int) -> HashedColumns:
    return HashedColumns(
        columns=tuple(name for i in indexes for name in (*i.columns, *[""] * (width - len(i.columns))))
    )


def _own_key(enough: Column) -> Column:
    """The handle key's hash; without one the table's, unless the unique values are ``enough``."""
    own = F.coalesce("key_hash", F.when(~enough, F.col("table_id")))
    return F.when(F.col("kind") == "row", own)


def _without(values: list[_Value], image: str) -> Column:
    """Whether there is an image and no unique value in it."""
    return F.col(image).isNotNull() & _all(F.col(v.hashed(image)).isNull() for v in values)


def _named(values: list[tuple[Column, Column]]) -> Column:
    def handle(image: str) -> Column:
        keys = F.filter(image, lambda c: c["is_key"])
        texts = F.transform(keys, lambda c: F.concat(c["name"], F.lit("="), F.coalesce(c["value"], F.lit("NULL"))))
        return F.array_join(texts, ", ")

    keyless = F.concat("schema_name", F.lit("."), "table_name", F.lit(", whose rows have no key"))
    own = F.when(F.col("key_hash").isNull(), keyless).when(F.col("op") == "delete", handle("before"))
    pairs = [(F.col("own_key"), own.otherwise(handle("columns"))), (F.col("before_key_hash"), handle("before"))]
    return F.array(*[F.struct(h.alias("hash"), t.alias("text")) for h, t in (*pairs, *values)])


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(lambda a, b: a & b, conditions)
