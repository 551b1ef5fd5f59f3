"""The key values by which rows conflict, as hashes: the handle key, and every other unique index of the catalog.

Most tables have the handle key only, whose hashes events carry; where no table has more, no image is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.catalog import Catalog, IndexDef, TableDef
from ticdc_lab.dispatch.definitions import Answer, with_answers
from ticdc_lab.keys import with_keys

_ANSWER = "_unique_keys"
NOT_CARRIED = (
    "the log carries only part of this row, without all old and new values of the unique indexes, which conflict "
    "detection compares"
)


def with_unique_keys(events: DataFrame, *, catalog: Catalog | None, named: bool = False) -> DataFrame:
    """Add what rows conflict by.

    Parameters
    ----------
    events
        The events contract.
    catalog
        Gives the unique indexes beside the handle key; without it, there are none. An index over a virtual column is
        left out: no protocol carries its values.
    named
        Whether to add ``named_keys``, which reads all images.

    Returns
    -------
    DataFrame
        Events with :data:`ticdc_lab.schema.KEYS`, and ``table_id`` (bigint), ``own_key`` (bigint: ``key_hash``; where a
        row has none, and one of its images no unique value either, ``table_id``, because such rows are known by their
        content only and must all keep their order), ``uniques`` (array<bigint>, left out where no table has another
        unique index: hashes of the values without NULL, old and new), ``not_carried`` (string: why the log cannot tell)
        and ``named_keys`` (array<struct<hash: bigint, text: string>>).
    """
    rows = events.transform(with_keys).withColumn("table_id", F.xxhash64("schema_name", "table_name"))
    others = {} if catalog is None else _others(catalog)
    if not others:
        found = rows.withColumns({"own_key": _own_key(F.lit(False)), "not_carried": F.lit(None).cast("string")})
        return found.withColumn("named_keys", _named([])) if named else found
    assert catalog is not None
    width = max(len(i.columns) for indexes in others.values() for i in indexes)
    most = max(len(indexes) for indexes in others.values())
    known = Catalog({name: catalog.versions[name] for name in {(t.schema_name, t.table_name) for t in others}})
    told = with_answers(rows, catalog=known, questions={_ANSWER: lambda t: _padded(others.get(t, ()), width)})
    after = [_Value(i, width, F.col("columns"), F.col("columns")) for i in range(most)]
    # what an old image with only the changed columns lacks is as in the new one
    before = [_Value(i, width, F.col("before"), F.coalesce("columns", "before")) for i in range(most)]
    lacks = F.col("_has_others") & (
        _lacking(after, F.col("op") != "delete") | _lacking(before, F.col("op") != "insert")
    )
    found = told.withColumn("_has_others", F.coalesce(F.size(F.col(_ANSWER)["columns"]) > 0, F.lit(False))).withColumns(
        {
            "uniques": F.when(F.col("_has_others"), F.array_compact(F.array(*[v.hashed for v in (*after, *before)]))),
            "own_key": _own_key(F.col("_has_others") & ~(_without(after, "columns") | _without(before, "before"))),
            "not_carried": F.when(lacks, NOT_CARRIED),
        }
    )
    found = found.withColumn("named_keys", _named([*after, *before])) if named else found
    return found.drop(_ANSWER, "_has_others")


class _Value:
    """One unique index in one image: ``hashed`` (null for NULL, or where there is no such index), ``text``, ``absent``.

    Written out column by column, because Spark compiles that, and no function over arrays with a lambda.
    """

    def __init__(self, index: int, width: int, image: Column, fallback: Column) -> None:
        listed = F.col(_ANSWER)["columns"]
        names = [F.nullif(F.get(listed, F.lit(index * width + c)), F.lit("")) for c in range(width)]
        places = [(F.array_position(image["name"], n), F.array_position(fallback["name"], n)) for n in names]
        values = [
            F.when(own > 0, F.get(image["value"], (own - 1).cast("int"))).otherwise(
                F.get(fallback["value"], (other - 1).cast("int"))
            )
            for own, other in places
        ]
        whole = _all(n.isNull() | v.isNotNull() for n, v in zip(names, values, strict=True))
        is_there = names[0].isNotNull() & image.isNotNull() & whole
        self.hashed = F.when(is_there, F.xxhash64("schema_name", "table_name", *names, *values))
        self.text = F.concat_ws(", ", *[F.concat(n, F.lit("="), v) for n, v in zip(names, values, strict=True)])
        carried = _all(
            n.isNull() | F.coalesce(F.greatest(*place) > 0, F.lit(False))
            for n, place in zip(names, places, strict=True)
        )
        self.absent = image.isNull() | ~carried


def _others(catalog: Catalog) -> dict[TableDef, tuple[IndexDef, ...]]:
    """Table definitions with a unique index that is not the handle key."""
    definitions = {v.definition for versions in catalog.versions.values() for v in versions}
    found = {t: tuple(_beside_handle(t)) for t in definitions if t is not None}
    return {t: indexes for t, indexes in found.items() if indexes}


def _beside_handle(table: TableDef) -> Iterable[IndexDef]:
    carried = {c.name for c in table.columns if c.generated != "virtual"}
    handle = set(table.handle_columns)
    return (i for i in table.unique_indexes if set(i.columns) <= carried and set(i.columns) != handle)


def _padded(indexes: Iterable[IndexDef], width: int) -> Answer:
    return Answer(columns=tuple(name for i in indexes for name in (*i.columns, *[""] * (width - len(i.columns)))))


def _own_key(enough: Column) -> Column:
    """The handle key's hash; without one the table's, unless the unique values are ``enough``."""
    own = F.coalesce("key_hash", F.when(~enough, F.col("table_id")))
    return F.when(F.col("kind") == "row", own)


def _without(values: list[_Value], image: str) -> Column:
    """Whether there is an image and no unique value in it."""
    return F.col(image).isNotNull() & _all(v.hashed.isNull() for v in values)


def _lacking(values: list[_Value], needed: Column) -> Column:
    return needed & reduce(lambda a, b: a | b, [v.absent for v in values])


def _named(values: list[_Value]) -> Column:
    def handle(image: str) -> Column:
        keys = F.filter(image, lambda c: c["is_key"])
        texts = F.transform(keys, lambda c: F.concat(c["name"], F.lit("="), F.coalesce(c["value"], F.lit("NULL"))))
        return F.array_join(texts, ", ")

    keyless = F.concat("schema_name", F.lit("."), "table_name", F.lit(", whose rows have no key"))
    own = F.when(F.col("key_hash").isNull(), keyless).when(F.col("op") == "delete", handle("before"))
    pairs = [(F.col("own_key"), own.otherwise(handle("columns"))), (F.col("before_key_hash"), handle("before"))]
    pairs += [(v.hashed, v.text) for v in values]
    return F.array(*[F.struct(h.alias("hash"), t.alias("text")) for h, t in pairs])


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(lambda a, b: a & b, conditions)
