"""What a protocol keeps of the changes it carries: a log beside another of the same transactions, by aspects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.shuffle import PACKED, by_key
from ticdc_lab.events.arrays import Batches, Bools, Ints, beginnings, codes, encoded, key_begins, numbers, whole_keys
from ticdc_lab.events.schema import EVENTS, require_batch, require_columns

_Cases = dict[str, tuple[Bools, Bools, pa.Array]]
"""Aspect -> which rows are cases of it, which of them are kept, and the words for one that is not."""

ROW_ASPECTS = {
    "row changes": "every row change is there",
    "insert or update": "inserts and updates are distinguishable",
    "commit_ts of inserts and updates": "they carry their transaction's commit_ts",
    "commit_ts of deletes": "deletes carry it too",
    "start_ts": "the transaction's start_ts",
    "table id": "the id of the table or physical partition",
    "old value of updates": "the whole row before an update",
    "old value of deletes": "the whole deleted row",
    "row order": "rows of one transaction in one partition come in the order of the reference",
}
VALUE_ASPECTS = {
    "column types": "the MySQL type of every column",
    "NULL": "NULL stays NULL",
    "unsigned": "unsigned 64-bit numbers above 2^63",
    "integers": "all other integers, years and bits",
    "decimal": "every digit of a DECIMAL",
    "float": "FLOAT and DOUBLE",
    "text": "character strings",
    "binary": "binary bytes",
    "date and time": "with all digits of the fraction",
    "enum and set": "as the number that the reference carries",
    "json": "JSON text",
}
LOG_ASPECTS = {"DDL": "every DDL statement with its commit_ts", "watermarks": "every resolved_ts"}
ASPECTS: Mapping[str, str] = ROW_ASPECTS | VALUE_ASPECTS | LOG_ASPECTS
"""Aspect -> its words when all of it is kept."""

_PLACE = {name: i for i, name in enumerate(ASPECTS)}
_TABLE = ("schema_name", "table_name")
_ROW = (*_TABLE, "key", "is_delete")
_LOG_ORDER = ("partition", "offset", "seq")
_IMAGES = ("columns", "before", "key_hash", "change_hash")
_NEEDED = ("kind", "commit_ts", "start_ts", *_TABLE, "table_id", "op", "query", *_IMAGES, *_LOG_ORDER)
_TWO_63 = "9223372036854775807"
_TRANSACTION = ("is_reference", "commit_ts", "lone", *_TABLE, "partition")
_KEPT = ("commit_ts", "start_ts", *_TABLE, "table_id", "op", "columns", "before", *_LOG_ORDER)
_OF = {f.name: f.dataType.simpleString() for f in EVENTS.fields}
_ONCE = ", ".join(
    (
        "is_reference boolean, key bigint, is_delete boolean, image bigint",
        *(f"{n} {_OF[n]}" for n in _KEPT),
        "rank bigint",
    )
)
_COUNTS = "place int, kept bigint, of bigint, example string"


def fidelity(events: DataFrame, *, reference: DataFrame) -> DataFrame:
    """Compare a log with a reference log of the same transactions.

    Rows are paired by table, commit_ts, row key and whether they are deletes, and by their place among equal ones;
    a re-delivered row is one row. Rows without commit_ts are paired by table, key and image, deletes by table and key
    alone where they hold no more, in order.

    Parameters
    ----------
    events, reference
        Events with key hashes (:data:`ticdc_lab.events.schema.EVENTS`, :data:`ticdc_lab.events.schema.KEYS`).
        Open-protocol and canal-json carry most, so that one of them makes the reference.

    Returns
    -------
    DataFrame
        One row for each of :data:`ASPECTS` that the reference has, in their order: ``place`` int,
        ``aspect`` string, ``kept`` and ``of`` bigint (cases kept and cases in the reference), ``example`` string (a
        case that is not kept, ``reference -> this log``; null if all are).

    Raises
    ------
    StreamingError
        A frame is a stream: what is missing is known at the end only.

    References
    ----------
    docs/reading.md defines what each protocol should lose; this measures it.
    """
    for frame in (events, reference):
        require_columns(frame, *_NEEDED)
        require_batch(frame, function="fidelity", why="what is missing can be known at the end only")
    rows = _rows(reference, is_reference=True).unionByName(_rows(events, is_reference=False))
    once = by_key(rows, _TRANSACTION, _once, _ONCE, order=("offset", "seq"))
    found = by_key(once, _ROW, _compared, _COUNTS, order=("is_reference", *_LOG_ORDER))
    total = (F.sum("kept").alias("kept"), F.sum("of").alias("of"), F.min("example").alias("example"))
    totals = found.unionByName(_of_log(events, reference)).groupBy("place").agg(*total)
    aspect = F.get(F.array(*map(F.lit, ASPECTS)), F.col("place")).alias("aspect")
    return totals.where("of > 0").select("place", aspect, "kept", "of", "example").orderBy("place")


def _rows(events: DataFrame, *, is_reference: bool) -> DataFrame:
    """Row changes with what they are paired by."""
    is_delete = F.col("op") == "delete"
    keys_only = F.forall("before", lambda c: c["is_key"])
    image = F.transform(F.coalesce("columns", "before"), lambda c: F.struct(c["name"], c["value"]))
    return events.where("kind = 'row'").select(
        F.lit(is_reference).alias("is_reference"),
        F.when(F.col("commit_ts").isNull(), F.col("offset")).alias("lone"),  # without it equal rows are not one row
        F.coalesce("key_hash", F.lit(0)).cast("bigint").alias("key"),
        is_delete.alias("is_delete"),
        F.when(is_delete & keys_only, F.lit(0)).otherwise(F.xxhash64("op", image)).cast("bigint").alias("image"),
        "change_hash",
        *_KEPT,
    )


def _once(batches: Batches) -> Batches:
    """Each row once however often it was delivered, and its place in the transaction; by :data:`_TRANSACTION`."""
    for rows in whole_keys(batches, _TRANSACTION, at_once=PACKED):
        group = np.cumsum(key_begins(rows, _TRANSACTION))
        told = pd.DataFrame({"group": group, "op": codes(rows["op"]), "change": numbers(rows, "change_hash")[0]})
        first = ~told.duplicated().to_numpy()
        rank = told[first].groupby("group").cumcount().to_numpy() + 1
        kept = rows.filter(pa.array(first)).drop_columns(["lone", "change_hash"])
        yield from kept.append_column("rank", pa.array(rank, pa.int64())).to_batches()


def _compared(batches: Batches) -> Batches:
    """What is kept of the rows of the reference, counted by aspect; sorted by :data:`_ROW`, in the order of the log."""
    for rows in whole_keys(batches, _ROW, at_once=PACKED):
        want, got = _paired(rows, np.cumsum(key_begins(rows, _ROW)))
        there = _is_there(got["op"])
        both = pa.array(there)
        yield _counted(_of_rows(want, got, there) | _of_values(want.filter(both), got.filter(both)))


def _paired(rows: pa.Table, group: Ints) -> tuple[pa.Table, pa.Table]:
    """The rows of the reference, and beside each the log's, or nulls."""
    [at], [image] = numbers(rows, "commit_ts", null=-1), numbers(rows, "image")
    told, is_reference = pd.DataFrame({"group": group, "at": at, "image": image}), _bools(rows["is_reference"])
    wanted, found = told[is_reference], told[~is_reference]
    dated, is_whole = found["at"] >= 0, found["image"] != 0
    wanted = wanted.sort_values(["group", "at"], kind="stable")
    partner = pd.Series(-1, index=wanted.index)
    for same, of in (
        (["group", "at"], found[dated]),
        (["group", "image"], found[~dated & is_whole]),
        (["group"], found[~dated & ~is_whole]),
    ):
        partner.update(_in_order(wanted[partner < 0], of, same))
    there = pa.array(partner, pa.int64(), mask=(partner < 0).to_numpy())
    return rows.take(pa.array(partner.index)), rows.take(there)


def _in_order(wanted: pd.DataFrame, found: pd.DataFrame, same: list[str]) -> pd.Series:
    """The first of equal rows with the first that was found of them, and so on."""
    sides = [side.assign(nth=side.groupby(same).cumcount(), row=side.index) for side in (wanted, found)]
    both = sides[0].merge(sides[1], on=[*same, "nth"])
    return pd.Series(both["row_y"].to_numpy(), index=both["row_x"])


def _of_rows(want: pa.Table, got: pa.Table, there: Bools) -> _Cases:
    is_delete, op = _bools(want["is_delete"]), want["op"]
    told, whole = _is_there(got["commit_ts"]), _whole(want, got)
    ranks = [t["rank"].cast(pa.string()) for t in (want, got)]
    absent = pa.scalar("absent, or changed so that it cannot be found")
    return {
        "row changes": (np.ones_like(there), there, absent),
        "insert or update": (~is_delete & there, _equal(got["op"], op), _beside(op, got["op"])),
        "commit_ts of inserts and updates": (~is_delete & there, told, pa.scalar("no commit_ts")),
        "commit_ts of deletes": (is_delete & there, told, pa.scalar("no commit_ts")),
        "start_ts": (there, _is_there(got["start_ts"]), pa.scalar("no start_ts")),
        "table id": (there, _is_there(got["table_id"]), pa.scalar("no id")),
        "old value of updates": (_equal(op, "update") & there, *whole),
        "old value of deletes": (is_delete & there, *whole),
        "row order": (told, _equal(*ranks), _shown(*ranks)),
    }


def _whole(want: pa.Table, got: pa.Table) -> tuple[Bools, pa.Array]:
    """Whether the image before a change has as many columns, and how many they are."""
    sizes = [pc.list_value_length(t["before"]) for t in (want, got)]
    words = [s.cast(pa.string()) for s in (sizes[0], pc.fill_null(sizes[1], 0))]
    return _bools(pc.greater_equal(sizes[1], sizes[0])), _beside(words[0], words[1], " columns -> ")


def _of_values(want: pa.Table, got: pa.Table) -> _Cases:
    """Values of images that are there: after the change, for a delete before it."""
    is_delete = _bools(want["is_delete"])
    wanted, found = (_cells(t, is_delete) for t in (want, got))
    found = found.drop_duplicates(["row", "name"])
    both = wanted.merge(found, on=["row", "name"], suffixes=("", "_found"))
    value, other = (pa.array(both[name], pa.string()) for name in ("value", "value_found"))
    types = [pa.array(both[name], pa.string()) for name in ("mysql_type", "mysql_type_found")]
    there, aspect = _is_there(value), _aspects(types[0], value)
    same, shown = _equal(value, other), _shown(value, other)
    cases = {name: (there & (aspect == name), same, shown) for name in VALUE_ASPECTS}
    bases = [pa.array(_mapped(kind, _base), pa.string()) for kind in types]
    cases["column types"] = (np.ones_like(there), _equal(*bases), _shown(*types))
    cases["NULL"] = (~there, ~_is_there(other), shown)
    return cases


def _cells(rows: pa.Table, is_delete: Bools) -> pd.DataFrame:
    """One row a column of an image: the row's number, and the column's name, type and value."""
    images = pc.if_else(pa.array(is_delete), rows["before"], rows["columns"]).combine_chunks()
    flat = images.flatten()
    names = ("name", "mysql_type", "value")
    return pd.DataFrame({"row": np.asarray(pc.list_parent_indices(images)), **{n: flat.field(n) for n in names}})


def _base(mysql_type: str | None) -> str | None:
    return mysql_type and mysql_type.replace("(", " ").split(" ")[0]


def _aspects(mysql_type: pa.Array, value: pa.Array) -> NDArray[np.object_]:
    """The aspect that each value of a type belongs to."""
    found = _mapped(mysql_type, _aspect)
    digits, most = pc.utf8_length(value), len(_TWO_63)
    large = pc.or_(pc.greater(digits, most), pc.and_(pc.equal(digits, most), pc.greater(value, _TWO_63)))
    found[(found == "unsigned") & ~_bools(large)] = "integers"
    found[(found == "binary") & ~_bools(pc.starts_with(value, "0x"))] = "text"
    return found


def _aspect(mysql_type: str | None) -> str:
    """The aspect of a type; of two where the value decides: ``unsigned`` or integers, ``binary`` or text."""
    base = _base(mysql_type) or ""
    if base == "bigint" and "unsigned" in (mysql_type or ""):
        return "unsigned"
    return _OF_TYPE.get(base, "binary" if "binary" in base or "blob" in base else "text")


_OF_TYPE = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), "integers"),
    "decimal": "decimal",
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("enum", "set"), "enum and set"),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), "date and time"),
    "json": "json",
}


def _counted(cases: _Cases) -> pa.RecordBatch:
    """How many cases of an aspect are kept, of how many, and the least example of one that is not."""
    rows = []
    for name, (case, kept, example) in cases.items():
        lost = pa.array(case & ~kept)
        of_lost = example if isinstance(example, pa.Scalar) else pc.min(example.filter(lost))
        told = of_lost.as_py() if pc.any(lost).as_py() else None
        rows.append((_PLACE[name], int((case & kept).sum()), int(case.sum()), told))
    names = ("place", "kept", "of", "example")
    types = (pa.int32(), pa.int64(), pa.int64(), pa.string())
    columns = [pa.array(column, t) for column, t in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.record_batch(columns, names=names)


def _of_log(events: DataFrame, reference: DataFrame) -> DataFrame:
    """Distinct DDL statements and resolved_ts, counted as rows are."""
    said = [
        f.where("kind IN ('ddl', 'watermark')").select(
            "kind", "commit_ts", F.when(F.col("kind") == "ddl", F.col("query")).alias("query"), F.lit(w).alias("wanted")
        )
        for f, w in ((reference, True), (events, False))
    ]
    by = ("kind", "commit_ts", "query")
    there = F.bool_or(~F.col("wanted")) & F.col("commit_ts").isNotNull()
    there &= (F.col("kind") == "watermark") | F.col("query").isNotNull()
    once = said[0].unionByName(said[1]).groupBy(*by).agg(F.bool_or("wanted").alias("wanted"), there.alias("there"))
    place = F.when(F.col("kind") == "ddl", _PLACE["DDL"]).otherwise(_PLACE["watermarks"]).alias("place")
    example = F.substring(F.concat_ws(" ", F.col("commit_ts").cast("string"), "query"), 1, 80)
    lost = F.min(F.when(~F.col("there"), example)).alias("example")
    counts = (F.count_if("there").alias("kept"), F.count(F.lit(1)).alias("of"), lost)
    return once.where("wanted").groupBy(place).agg(*counts)


def _shown(want: pa.Array, got: pa.Array) -> pa.Array:
    """Both values, long ones from where they differ on; what is empty is quoted, so that it is seen."""
    shown = [pc.fill_null(beginnings(value, _SHOWN), "NULL") for value in (want, got)]
    pairs = _beside(*(pc.if_else(pc.equal(value, ""), "''", value) for value in shown))
    alike = _equal(*shown) & ~_equal(want, got) & _is_there(want) & _is_there(got)
    if not alike.any():
        return pairs
    differ = [
        _where_they_differ(w, g)
        for w, g in zip(want.filter(alike).to_pylist(), got.filter(alike).to_pylist(), strict=True)
    ]
    return pc.replace_with_mask(pairs, pa.array(alike), pa.array(differ, pa.string()))


def _where_they_differ(want: str, got: str) -> str:
    same = next((i for i, (w, g) in enumerate(zip(want, got, strict=False)) if w != g), min(len(want), len(got)))
    shown = (value[same - 10 : same + _SHOWN - 10] + "…" * (len(value) > same + _SHOWN - 10) for value in (want, got))
    return f"from character {same + 1}: …" + " -> …".join(shown)


_SHOWN = 60
"""Characters of a value that an example shows."""


def _beside(want: pa.Array, got: pa.Array, between: str = " -> ") -> pa.Array:
    return pc.binary_join_element_wise(want, got, between)


def _mapped(values: pa.Array, name: Any) -> NDArray[np.object_]:
    """What a function makes of each value, asked once for equal ones."""
    code, known = encoded(values)
    found: NDArray[np.object_] = np.array([name(v) for v in known], dtype=object)[code]
    return found


def _bools(values: pa.Array | pa.ChunkedArray) -> Bools:
    return np.asarray(pc.fill_null(values, False))


def _is_there(values: pa.Array | pa.ChunkedArray) -> Bools:
    return np.asarray(values.is_valid())


def _equal(one: pa.Array | pa.ChunkedArray, other: Any) -> Bools:
    """Whether two values are equal; null is equal to nothing."""
    return _bools(pc.equal(one, other))
