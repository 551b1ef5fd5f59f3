"""Rows of avro are dispatched by TiDB's own names where one fits; where several do, they are counted."""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
from test_bad_formats import serving

from ticdc_lab.dispatch.own_names import OwnNames
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.log import open as open_log

TORTURE = Path(__file__).parents[1] / "data/torture"
ODD = {"keynames", "we.ird", "back`tick", "a-b", "1digit", "sl/ash", "com,ma", "中文表", "Sp ace"}


def rows_of(spark: SparkSession, protocol: str, out: Path, **how: Any) -> list[dict[str, Any]]:
    """Dispatched row changes of a torture log."""
    schemas = TORTURE / f"schemas_{protocol}.jsonl.gz"
    registry: dict[str, Any] = {"schema_registry": str(schemas)} if schemas.exists() else {}
    log = open_log(str(TORTURE / f"messages_{protocol}.jsonl.gz"), spark=spark, **registry)
    log.dispatch(str(out), partitions=128, **how)
    return [e for e in map(json.loads, gzip.open(out, "rt")) if e["kind"] == "row" and e["commit_ts"]]


@pytest.fixture(scope="module")
def of_canal(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[Any, ...], set[int]]:
    """Partitions of canal-json's rows, whose names are TiDB's."""
    lies = defaultdict(set)
    out = tmp_path_factory.mktemp("canal") / "rows.jsonl.gz"
    for e in rows_of(spark, "canal-json-tidb", out, strategy="index-value"):
        lies[e["commit_ts"], e["schema_name"], e["table_name"], e["op"]].add(e["target_partition"])
    return lies


@pytest.mark.parametrize("by_file", [False, True])
@pytest.mark.parametrize("protocol", ["avro", "debezium-avro"])
def test_rows_of_avro_lie_where_those_of_canal_json_do(
    spark: SparkSession, protocol: str, by_file: bool, of_canal: Mapping[tuple[Any, ...], set[int]], tmp_path: Path
) -> None:
    """Real messages of the same rows; by a changefeed's file too, which reads the images again."""
    file = tmp_path / "changefeed.toml"
    file.write_text("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value'}]\n")
    how = {"changefeed": str(file)} if by_file else {"strategy": "index-value"}
    compared = set()
    for e in rows_of(spark, protocol, tmp_path / "avro.jsonl.gz", **how):
        at = of_canal.get((e["commit_ts"], e["schema_name"], e["table_name"], e["op"]))
        if at is not None and e["target_partition"] is not None:
            assert e["target_partition"] in at, e
            compared.add(e["table_name"])
    assert compared >= ODD


def test_a_name_that_two_tables_have_in_avro_is_counted_with_the_reason(spark: SparkSession) -> None:
    """In the log `multi.line` is renamed to `multi_line`."""
    schemas = str(TORTURE / "schemas_avro.jsonl.gz")
    log = open_log(str(TORTURE / "messages_avro.jsonl.gz"), spark=spark, schema_registry=schemas)
    answer = log.dispatch(strategy="table", partitions=3)
    (said,) = [d for d in answer.details if "may be" in d]
    assert said.startswith("1 row: TiCDC hashes TiDB's names") and "torture.multi.line (id, a;b, t)" in said
    found = log.rules()
    left_out, nameless = [d for d in found.limits if "left out" in d]
    assert left_out.startswith("1 row change left out: TiCDC hashes")
    assert nameless.startswith("6 row changes left out: their messages name no table")
    assert {"a-b", "keynames"} <= {*found.frame["table_name"]}


def test_the_columns_of_a_row_decide_between_tables() -> None:
    """Where they fit several, none is guessed."""
    ddl = [(1, "s", "a-b", "create table `a-b` (`x y` int)"), (2, "s", "a.b", "create table `a.b` (`x y` int, z int)")]
    names = OwnNames.of(Catalog.from_ddl(ddl), "avro", [])
    assert names.of_row(("s", "a_b"), ["x_y", "z"]) == (("s", "a.b"), {"x_y": "x y", "z": "z"})
    assert "may be s.a-b (x y), s.a.b (x y)" in str(names.of_row(("s", "a_b"), ["x_y"]))
    assert "no definition of s.a_b in the log has the columns q" in str(names.of_row(("s", "a_b"), ["q"]))
    assert names.of_row(("s", "other"), ["q"]) == (("s", "other"), {})


def test_tables_that_nothing_defines_are_named() -> None:
    """Their names may be others in TiDB."""
    names = OwnNames.of(Catalog.from_ddl([(1, "s", "t", "create table t (id int)")]), "avro", [])
    (said,) = names.unknown([("s", "t"), ("s", "user_log")])
    assert "no DDL of the log and no schema has the names of s.user_log;" in said
    assert names.unknown([("s", "t")]) == []


@pytest.mark.parametrize("protocol", ["avro", "debezium-avro"])
def test_a_registry_answers_as_a_file_of_its_schemas_does(spark: SparkSession, protocol: str) -> None:
    """It is asked by the ids in the messages: workers of the embedded engine have no network. debezium-avro has names.

    That log has no DDL.
    """
    file = TORTURE / f"schemas_{protocol}.jsonl.gz"
    with gzip.open(file, "rt") as lines:
        schemas = {str(entry["id"]): entry["schema"] for entry in map(json.loads, lines)}

    def answer(path: str) -> tuple[int, bytes]:
        schema = schemas.get(path.rpartition("/")[2])
        return (404, b"{}") if schema is None else (200, json.dumps({"schema": schema}).encode())

    found = []
    with serving(answer) as (at, asked):
        for registry in (f"http://{at}", str(file)):
            log = open_log(str(TORTURE / f"messages_{protocol}.jsonl.gz"), spark=spark, schema_registry=registry)
            told = log.dispatch(strategy="index-value", partitions=128)
            found.append((told.frames["load"].to_dict("records"), told.limits, told.details))
    assert found[0] == found[1] and not found[0][1]
    assert {path.rpartition("/")[2] for path in asked} <= schemas.keys() and len({*asked}) > 100


@pytest.fixture(scope="module")
def moved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real messages of `T.x`, in the partitions that TiCDC's dispatcher `columns` has for them by `V`."""
    folder = tmp_path_factory.mktemp("moved")
    schemas = str(TORTURE / "schemas_avro.jsonl.gz")
    log = open_log(str(TORTURE / "messages_avro.jsonl.gz"), spark=spark, schema_registry=schemas)
    log.dispatch(str(folder / "placed.jsonl.gz"), strategy="columns", columns=["V"], partitions=3)
    with gzip.open(folder / "placed.jsonl.gz", "rt") as lies:
        rows = [e for e in map(json.loads, lies) if e["table_name"] == "T.x"]
    placed = {(e["partition"], e["offset"]): e["target_partition"] for e in rows}
    offsets, lines = [0, 0, 0], []
    with gzip.open(TORTURE / "messages_avro.jsonl.gz", "rt", encoding="utf-8") as messages:
        for m in map(json.loads, messages):
            at = placed.get((m["partition"], m["offset"])) if m["kind"] == "row" else m["partition"]
            if at is not None:
                lines.append(json.dumps(m | {"partition": at, "offset": offsets[at]}) + "\n")
                offsets[at] += 1
    (folder / "moved.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "moved.jsonl"


def test_an_audit_finds_the_dispatcher_that_moves_rows_of_a_table_with_another_name_in_avro(
    spark: SparkSession, moved: Path
) -> None:
    """It hashes TiDB's `T.x` where rows show `T_x`, and names the table as the rows do."""
    log = open_log(str(moved), spark=spark, schema_registry=str(TORTURE / "schemas_avro.jsonl.gz"))
    found = log.audit().frame
    assert {*found["guarantee"]} == {"rows_stay_in_one_partition"} and {*found["severity"]} == {"warning"}
    assert all("the table is dispatched by column V, whose value changes (all 4 rows" in m for m in found["message"])
    assert {"db_dot.T_x", "db_q.T_x", "db_slash.T_x"} <= {*found["table"]}
