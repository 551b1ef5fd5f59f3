"""What Sail does differently from Spark is written so that both do the same: nulls decide as Spark describes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from engines import session_of, using
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import field_if, in_order, least
from ticdc_lab.engine.shuffle import quantiles

FIELDS = ("a", "b", "s")
DDL = "g int, a int, b int, s string, i int"


def drawn(seed: int) -> list[tuple[Any, ...]]:
    """Rows in which a null often decides."""
    r = random.Random(seed)

    def one(values: Any) -> Any:
        return None if r.random() < 0.4 else r.choice(values)

    return [(r.randrange(5), one((1, 2)), one((1, 2)), one("xy"), i) for i in range(60)]


def by_spark(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key by which Python orders as Spark does: null first."""
    return tuple((v is not None, v if v is not None else "") for v in row[1:])


def asked(frame: DataFrame) -> list[list[Any]]:
    """First and last row of each group, as an aggregate and over a window."""
    of = (*FIELDS, "i")
    each = {
        "first": least(*of),
        "least": F.min_by(F.struct(*of), in_order(*of)),
        "last": F.max_by(F.struct(*of), in_order(*of)),
        "some": F.min_by(F.struct(*of), F.when(F.col("b").isNull(), in_order(*of))),
    }
    window = Window.partitionBy("g")
    grouped = frame.groupBy("g").agg(*[c.alias(name) for name, c in each.items()]).toArrow().to_pylist()
    over = frame.select("g", *[c.over(window).alias(n) for n, c in each.items() if n != "some"]).distinct()
    windowed = {r["g"]: r for r in over.toArrow().to_pylist()}
    assert all(windowed[r["g"]][n] == r[n] for r in grouped for n in ("first", "least", "last"))
    return sorted([r["g"], *(r[n] and tuple(r[n].values()) for n in each)] for r in grouped)


@pytest.mark.parametrize("engine", ["spark", "embedded"])
@pytest.mark.parametrize("seed", [1, 2])
def test_nulls_come_first(engine: str, seed: int) -> None:
    """Planted: rows that only a null distinguishes, where Sail's own ``min`` takes another."""
    rows = drawn(seed)
    expected = []
    for g in sorted({r[0] for r in rows}):
        own = [r for r in rows if r[0] == g]
        first, last = (of(own, key=by_spark)[1:] for of in (min, max))
        some = min((r for r in own if r[2] is None), key=by_spark, default=None)
        expected.append([g, first, first, last, some and some[1:]])
    with using(engine):
        assert asked(session_of(engine).createDataFrame(rows, DDL)) == expected


def test_the_planted_rows_show_the_difference() -> None:
    """Without :func:`in_order` Sail answers otherwise; when it no longer does, this can go."""
    with using("embedded"):
        frame = session_of("embedded").createDataFrame(drawn(1), DDL)
        plain = frame.groupBy("g").agg(F.min(F.struct(*FIELDS, "i")).alias("x")).toArrow().to_pylist()
        ours = frame.groupBy("g").agg(least(*FIELDS, "i").alias("x")).toArrow().to_pylist()
    assert sorted(plain, key=str) != sorted(ours, key=str)


@pytest.mark.parametrize("engine", ["spark", "embedded"])
def test_fields_and_quantiles(engine: str) -> None:
    """A field of a null struct is null, and quantiles are values that are there."""
    with using(engine):
        frame = session_of(engine).createDataFrame([(1, 2), (3, None)], "a int, b bigint")
        told = frame.select(
            "a",
            F.when(F.col("a") > 1, F.struct("a", "b")).alias("x"),
        ).select("a", field_if("x", "a").alias("of"))
        assert sorted(told.toArrow().to_pylist(), key=str) == [
            {"a": 1, "of": None},
            {"a": 3, "of": 3},
        ]
        numbers = session_of(engine).range(1, 11)
        assert quantiles(numbers, "id", [0.25, 0.5, 0.9], accuracy=1000) == [3, 5, 9]
        assert quantiles(numbers.where("id > 99"), "id", [0.5], accuracy=1000) == []
