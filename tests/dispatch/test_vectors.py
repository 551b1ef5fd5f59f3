"""TiCDC's own generators, bit for bit: every row, rule, partition count and error of ``dispatch_vectors``."""

from __future__ import annotations

import base64
from collections import defaultdict
from typing import Any

import pytest
from conftest import computed, json_lines
from pyspark.sql import DataFrame, SparkSession
from reference_decoder import mysql_float

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch import dispatch
from ticdc_lab.events.schema import DISPATCH, EVENTS
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

PARTITIONS = (1, 3, 4, 8, 16, 128)
COLUMNS = ("kind", "schema_name", "table_name", "op", "commit_ts", "columns", "before")


def canonical(mysql_type: str, v: dict[str, Any] | None) -> str | None:
    """A vector's value as the text of the events contract."""
    if v is None:
        return None
    if v["go"] == "[]uint8":
        return "0x" + base64.b64decode(v["hash_b64"]).hex()
    return mysql_float(v["s"]) if v["go"] in ("float32", "float64") else v["s"]


def image(row: dict[str, Any], which: str) -> list[tuple[Any, ...]] | None:
    """The image, without virtual generated columns, which no protocol carries."""
    visible = [c for c in row["columns"] if "generated_virtual" not in c["flags"]]
    if row["op"] == ("delete" if which == "value" else "insert"):
        return None
    return [
        (c["name"], c["mysql_type"].lower(), canonical(c["mysql_type"], c.get(which)), "handle" in c["flags"], None)
        for c in visible
    ]


def definition(r: dict[str, Any]) -> TableDef:
    """A schema record as the caller's own definition."""
    generated = {"generated_stored": "stored", "generated_virtual": "virtual"}
    columns = tuple(
        ColumnDef(
            c["name"],
            c["mysql_type"],
            "nullable" in c["flags"],
            next((generated[f] for f in c["flags"] if f in generated), ""),
            "hidden" in c["flags"],
        )
        for c in r["columns"]
    )
    indexes = tuple(
        IndexDef(n, i["name"], tuple(i["columns"]), i["unique"], i["primary"]) for n, i in enumerate(r["indexes"])
    )
    return TableDef(r["schema"], r["table"], columns, indexes, pk_is_handle=r["pk_is_handle"])


@pytest.fixture(scope="module")
def vectors() -> list[dict[str, Any]]:
    """Rows of the vectors."""
    return list(json_lines("dispatch_vectors.jsonl.gz"))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The vectors' tables."""
    return Catalog.from_definitions(definition(r) for r in json_lines("dispatch_schemas.jsonl.gz"))


@pytest.fixture(scope="module")
def events(spark: SparkSession, vectors: list[dict[str, Any]]) -> DataFrame:
    """Vectors as events with what dispatch reads of their images; ``offset`` is the line."""
    rows = [
        ("row", r["schema"], r["table"], r["op"], r["commit_ts"], image(r, "value"), image(r, "old"), line)
        for line, r in enumerate(vectors)
    ]
    types = [EVENTS[c].dataType.simpleString() for c in COLUMNS]
    schema = ", ".join(f"`{c}` {t}" for c, t in zip(COLUMNS, types, strict=True)) + ", `offset` bigint"
    made = spark.createDataFrame(rows, schema).repartition(2, "offset")
    return computed(made.transform(with_hashes, DISPATCH).drop("columns", "before"))


def call(events: DataFrame, rule: str, n: int, **kwargs: Any) -> DataFrame:
    """A vector's rule name, like ``index-value:uk`` or ``columns:a,b``, as a call."""
    strategy, _, argument = rule.partition(":")
    if strategy == "columns":
        kwargs["columns"] = argument.split(",") if argument else []
    elif argument:
        kwargs["index"] = argument
    return events.transform(dispatch, strategy=strategy, partitions=n, **kwargs)


@pytest.mark.parametrize(("flavour", "field"), [("new", "dispatch"), ("classic", "dispatch_classic")])
def test_every_vector_has_its_key_and_error(
    events: DataFrame, vectors: list[dict[str, Any]], catalog: Catalog, flavour: str, field: str
) -> None:
    """Every row has the key, the error and the partition of TiCDC itself, for every rule.

    384 partitions represent every N of the vectors, which all divide it. Of an index whose name is spelled in two ways
    one is tried, but by hand both.
    """
    lines: dict[str, list[int]] = defaultdict(list)
    for line, r in enumerate(vectors):
        for rule in r.get(field, {}):
            lines[rule].append(line)
    if "columns" not in events.columns:
        spelt = {rule.casefold() if rule.startswith("index") else rule: rule for rule in lines}
        lines = {rule: lines[rule] for rule in spelt.values()}
    for rule, expected_lines in lines.items():
        got = collected(call(events, rule, 384, catalog=catalog, flavour=flavour))
        for line in expected_lines:
            partition, key, error = got[line]
            want = vectors[line][field][rule]
            if "error" in want:
                assert (error, partition, key) == (want["error"], None, None), (rule, line)
            else:
                assert (error, key, [partition % n for n in PARTITIONS]) == (None, want["key"], want["p"]), (rule, line)


@pytest.mark.parametrize("rule", ["table", "ts", "index-value", "columns:id"])
@pytest.mark.parametrize("n", PARTITIONS)
def test_every_number_of_partitions_gives_its_partition(
    events: DataFrame, vectors: list[dict[str, Any]], rule: str, n: int
) -> None:
    """The partition is the one TiCDC chose with that many partitions."""
    got = collected(call(events, rule, n))
    wanted = {line: r["dispatch"][rule] for line, r in enumerate(vectors) if rule in r["dispatch"]}
    assert {line: got[line][0] for line in wanted} == {line: w["p"][PARTITIONS.index(n)] for line, w in wanted.items()}


def collected(dispatched: DataFrame) -> dict[int, tuple[Any, ...]]:
    """Partition, key and error by line."""
    found = dispatched.select("offset", "target_partition", "dispatch_key", "dispatch_error").toArrow()
    line, *answer = (column.to_pylist() for column in found.columns)
    return dict(zip(line, zip(*answer, strict=True), strict=True))
