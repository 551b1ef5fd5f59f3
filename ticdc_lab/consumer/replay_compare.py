"""A target's content beside what it should be by the log."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.consumer.replay_plan import TargetProgress, tables_at
from ticdc_lab.consumer.sinks import Sink
from ticdc_lab.engine.columns import field_if, named
from ticdc_lab.engine.json_lines import json_texts
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.tables import TableAsOf, table_as_of
from ticdc_lab.tables.knowledge import Knowledge, knowledge
from ticdc_lab.tables.mysql_types import parsed

MOST = 20
"""Differing rows that are shown of a table."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs, as JSON texts; ``expected`` or ``found`` is None where it is missing.

    ``columns`` are the ones that differ; none where the whole row is missing, and in tables without a key, where
    ``expected`` and ``found`` count the copies.
    """

    row: str
    columns: tuple[str, ...]
    expected: str | None
    found: str | None


@dataclass(frozen=True, slots=True)
class Compared:
    """One table of the target beside :func:`ticdc_lab.tables.table_as_of`.

    ``rows`` are distinct keys (rows, in a table without a key) on either side, ``different`` how many of them differ,
    ``first`` the first :data:`MOST` of these; ``why_not``: why the table could not be compared, else it is empty;
    ``untold`` counts the values left aside because the log does not show them, or no Spark type holds them;
    ``recovered``: it could not be compared because RECOVER or FLASHBACK brought rows back.
    """

    table: str
    rows: int = 0
    different: int = 0
    first: tuple[Difference, ...] = ()
    why_not: str = ""
    untold: int = 0
    recovered: bool = False


def compare(
    log: ChangeLog, sink: Sink, progress: TargetProgress, *, known: Knowledge | None = None, most: int = MOST
) -> Iterator[Compared]:
    """Compare every table of a target with the log, one after the other.

    Parameters
    ----------
    log, sink
        As for :func:`ticdc_lab.consumer.replay.replay`.
    progress
        The target's own state. Where row mode has left partitions at different commit_ts, each partition
        counts as far as it was applied.
    known
        As for :func:`ticdc_lab.tables.table_as_of`.
    most
        Differing rows that are shown of a table.

    Yields
    ------
    Compared
        By the tables' names; missing and extra ones first.
    """
    events, known, ts = _applied(log, progress, knowledge(log.events) if known is None else known)
    expected = tables_at(known.catalog, progress.ddl_ts)
    found = sink.tables(expected)
    for name in sorted(set(expected) - found):
        yield Compared(".".join(name), 1, 1, (Difference("{}", (), "a table", None),))
    for name in sorted(found - set(expected)):
        unknown = name in known.catalog.versions and known.catalog.versions[name][-1].event == "unknown"
        said = "what its columns are is unknown: a DDL of it was not understood" if unknown else ""
        yield Compared(".".join(name), 0 if said else 1, 0 if said else 1,
                       () if said else (Difference("{}", (), None, "a table"),), said)  # fmt: skip
    for name in sorted(set(expected) & found):
        try:
            told = table_as_of(events, schema_name=name[0], table_name=name[1], ts=ts, known=known)
        except TiCDCLabError as e:
            lives = [v.event for v in known.catalog.versions.get(name, ())]
            yield Compared(".".join(name), why_not=e.message, recovered="recovered" in lives)
            continue
        yield _compared(told, expected[name], sink, most)


def _applied(log: ChangeLog, progress: TargetProgress, known: Knowledge) -> tuple[DataFrame, Knowledge, int]:
    """The events that the target has seen, and the timestamp (TSO) they reach."""
    positions = progress.positions
    if len(set(positions.values())) <= 1:
        return log.events, known, progress.ts
    done = [
        (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("commit_ts") <= ts)
        for (topic, partition), ts in positions.items()
    ]
    is_row, is_ddl = F.col("kind") == "row", F.col("kind") == "ddl"
    seen = (is_row & reduce(or_, done)) | (is_ddl & (F.col("commit_ts") <= progress.ddl_ts)) | ~(is_row | is_ddl)
    events, ts = log.events.where(seen), max(positions.values())
    own = knowledge(events)
    return events, replace(own, facts=replace(own.facts, resolved=dict.fromkeys(own.facts.resolved, ts))), ts


def _compared(told: TableAsOf, definition: TableDef, sink: Sink, most: int) -> Compared:
    table = f"{told.schema_name}.{told.table_name}"
    columns = told.rows.schema.fields[:-3]  # the last three are about the row
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
        frame = sink.frame(told.rows.sparkSession, definition, folder)
        lacking = [f.name for f in columns if f.name not in frame.columns]
        if lacking:
            return Compared(table, 1, 1, (Difference("{}", tuple(lacking), "columns", None),))
        found = frame.select(*[F.col(named(f.name)).cast(f.dataType).alias(f.name) for f in columns])
        names = [f.name for f in columns]
        odd = _is_odd(told.key, definition)
        parts = [(told, found)]
        if odd is not None:
            left, right = (replace(told, rows=told.rows.where(w), key=k) for w, k in ((~odd, told.key), (odd, ())))
            parts = [(left, found.where(~odd)), (right, found.where(odd))]
        n, different, untold, first = map(list, zip(*(_counted(*part, names, most) for part in parts), strict=True))
    return Compared(table, sum(n), sum(different), tuple(chain(*first))[:most], "", sum(untold))


def _is_odd(key: Sequence[str], definition: TableDef) -> Column | None:
    """Whether a row's key has no value here that is its own, as a zero date: such rows are compared as if without."""
    found = []
    for name in key:
        column = definition.column(name)
        family = parsed(column.mysql_type).family if column else "other"
        if family in ("date", "datetime", "float", "decimal", "enum"):
            found.append(F.col(named(name)).isNull())
        if family == "enum":
            found.append(F.coalesce(F.col(named(name)) == "", F.lit(False)))
    return reduce(or_, found) if found else None


def _counted(
    told: TableAsOf, found: DataFrame, names: list[str], most: int
) -> tuple[int, int, int, tuple[Difference, ...]]:
    """How many rows there are, how many of them differ, values left aside, and the first that differ."""
    each = _by_key(told, found, names) if told.key else _by_row(told, found, names)
    sides = {"row": told.key, "expected": names, "found": names} if told.key else {"row": names}
    n, different, untold = each.agg(
        F.count(F.lit(1)), F.count_if("different"), F.coalesce(F.sum("untold"), F.lit(0))
    ).collect()[0]
    return n, different, untold, tuple(_differences(each.where("different"), sides, most)) if different else ()


def _differences(wrong: DataFrame, sides: Mapping[str, Sequence[str]], most: int) -> Iterator[Difference]:
    """The first rows that differ, by their keys; ``sides`` are those that :func:`_flat` took apart."""
    found = wrong.orderBy(*[f"row_{i}" for i in range(len(sides["row"]))]).limit(most).toArrow()

    def texts(side: str) -> list[str | None]:
        if side not in sides:
            return list(found[side].to_pylist())
        cells = [found[f"{side}_{i}"].combine_chunks() for i in range(len(sides[side]))]
        is_null = pc.invert(found[f"has_{side}"].combine_chunks())
        return json_texts(pa.StructArray.from_arrays(cells, names=list(sides[side]), mask=is_null))

    told = (texts(side) for side in ("row", "expected", "found"))
    for row, expected, has, columns in zip(*told, found["columns"].to_pylist(), strict=True):
        yield Difference(str(row), tuple(columns), expected, has)


def _flat(side: str, struct: str, names: Sequence[str]) -> list[Column]:
    """A struct taken apart: one whose fields are never null cannot be null in Arrow."""
    fields = [field_if(struct, named(name)).alias(f"{side}_{i}") for i, name in enumerate(names)]
    return [F.col(struct).isNotNull().alias(f"has_{side}"), *fields]


def _by_key(told: TableAsOf, found: DataFrame, names: list[str]) -> DataFrame:
    """``different``, ``columns``, ``untold`` of each key; ``row``, ``expected``, ``found`` by :func:`_flat`."""
    unfit = F.transform(told.added[-1], lambda u: u["column"]).alias("unfit")
    left = told.rows.select(_struct(told.key).alias("key"), _struct(names).alias("expected"), unfit)
    right = found.select(_struct(told.key).alias("key"), _struct(names).alias("found"))
    both = left.alias("l").join(right.alias("r"), F.expr("l.key <=> r.key"), "full_outer")
    differing = F.array_compact(
        F.array(
            *[
                F.when(
                    ~F.col(f"expected.{named(c)}").eqNullSafe(F.col(f"found.{named(c)}"))
                    & ~F.coalesce(F.array_contains("unfit", c), F.lit(False)),
                    F.lit(c),
                )
                for c in names
            ]
        )
    )
    missing = F.col("expected").isNull() | F.col("found").isNull()
    return both.select(
        F.lit(True).alias("has_row"),
        *[
            F.coalesce(field_if("l.key", named(k)), field_if("r.key", named(k))).alias(f"row_{i}")
            for i, k in enumerate(told.key)
        ],
        (missing | (F.size(differing) > 0)).alias("different"),
        F.when(missing, F.array().cast("array<string>")).otherwise(differing).alias("columns"),
        *_flat("expected", "expected", names),
        *_flat("found", "found", names),
        F.coalesce(F.size("unfit"), F.lit(0)).alias("untold"),
    )


def _by_row(told: TableAsOf, found: DataFrame, names: list[str]) -> DataFrame:
    """The same for a multiset: how many copies of each row there are."""
    unfit = F.size(told.added[-1]).alias("unfit")
    sides = told.rows.select(_struct(names).alias("row"), F.lit(1).alias("side"), unfit).unionByName(
        found.select(_struct(names).alias("row"), F.lit(-1).alias("side"), F.lit(0).alias("unfit"))
    )
    counted = sides.groupBy("row").agg(
        F.count_if(F.col("side") == 1).alias("e"),
        F.count_if(F.col("side") == -1).alias("f"),
        F.sum("unfit").alias("untold"),
    )
    return counted.select(
        *_flat("row", "row", names),
        (F.col("e") != F.col("f")).alias("different"),
        F.array().cast("array<string>").alias("columns"),
        F.format_string("%d copies", "e").alias("expected"),
        F.format_string("%d copies", "f").alias("found"),
        "untold",
    )


def _struct(names: Any) -> Column:
    return F.struct(*[F.col(named(n)) for n in names])
