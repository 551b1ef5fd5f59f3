"""The frame of a workload: the events contract, and the same rows however the work is divided, on either engine."""

from __future__ import annotations

from pathlib import Path

import engines
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from workload_rows import rows_of, statements_of, watermarks_of

from ticdc_lab.audit import audit
from ticdc_lab.errors import ContractError
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.facts.watermarks import topic_watermarks
from ticdc_lab.transactions import transactions
from ticdc_lab.workload import Workload, generate, generate_into

SMALL = Workload(kind="hot-keys", rows=4_000, keys=500, ddl=8, big_share=0.1, big_rows=80, long_share=0.01, seed=3)


def said(frame: DataFrame) -> tuple[int, int]:
    """How many rows there are, and a hash of all of them that no order changes."""
    row = F.xxhash64(*[F.to_json(c) if c in ("columns", "before") else F.col(c) for c in EVENTS.names if c != "admin"])
    (found,) = frame.agg(F.count(F.lit(1)), F.bit_xor(row)).collect()
    return found[0], found[1]


def test_the_frame_is_the_events_contract_with_everything_that_the_lanes_say(spark: SparkSession) -> None:
    """Types as in the contract; each row change, DDL and watermark once."""
    frame = generate(spark, SMALL)
    assert [(f.name, f.dataType) for f in frame.schema] == [(f.name, f.dataType) for f in EVENTS]
    shown = ("commit_ts", "start_ts", "table_name", "table_id", "op", "offset", "seq", "columns", "before")
    found = frame.where("kind = 'row'").select(*shown).toArrow().to_pylist()
    expected = [{n: e[n] for n in shown} for e in rows_of(SMALL)]
    assert sorted(found, key=lambda e: (e["offset"], e["seq"])) == expected
    others = frame.where("kind <> 'row'").select("kind", "commit_ts", "query", "offset").collect()
    marks = [*statements_of(SMALL), *watermarks_of(SMALL)]
    assert sorted(map(tuple, others)) == sorted((m["kind"], m["commit_ts"], m["query"], m["offset"]) for m in marks)


@pytest.mark.parametrize("kind", ["bank", "tpcc", "hot-keys"])
def test_the_division_of_the_work_changes_nothing(spark: SparkSession, kind: str) -> None:
    """One task or many: the same rows."""
    workload = Workload(kind=kind, rows=4_000, keys=700, ddl=3, big_share=0.1, big_rows=80)
    one, three, usual = (said(generate(spark, workload, partitions=n)) for n in (1, 3, None))
    assert one == three == usual
    assert usual != said(generate(spark, Workload(kind=kind, rows=4_000, keys=700, ddl=3, seed=1)))


def test_both_engines_make_the_same_rows(classic: SparkSession) -> None:
    """In one task of Spark, in several, and in the embedded engine's."""
    with engines.using("embedded"):
        embedded = said(generate(engines.session_of("embedded"), SMALL))
    assert {said(generate(classic, SMALL, partitions=n)) for n in (1, 3, None)} == {embedded}


def test_the_workers_write_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """In the contract's types; what was there is replaced, and a request that cannot be met leaves it as it was."""
    generate_into(spark, Workload(kind="bank", rows=2_000, keys=100), tmp_path / "truth.parquet")
    generate_into(spark, SMALL, tmp_path / "truth.parquet")
    found = spark.read.parquet(str(tmp_path / "truth.parquet"))
    assert found.dtypes == generate(spark, SMALL).dtypes
    assert said(found) == said(generate(spark, SMALL))
    with pytest.raises(ContractError):
        generate_into(spark, Workload(kind="bank", rows=20, keys=100), tmp_path / "truth.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["truth.parquet"]
    (tmp_path / "file.parquet").write_text("in its place")
    for place in ("file.parquet", "a/b/truth.parquet"):  # a file is replaced, folders that do not have are made
        generate_into(spark, SMALL, tmp_path / place)
        assert spark.read.parquet(str(tmp_path / place)).count() == found.count()
    assert said(spark.read.parquet(str(tmp_path / "truth.parquet"))) == said(found)


def test_the_truth_is_a_log_without_faults(spark: SparkSession) -> None:
    """Audited as it is, and every transaction in it is whole."""
    events = generate(spark, SMALL).cache()
    assert events.transform(audit, protocol="open-protocol").collect() == []
    restored = events.transform(transactions).agg(
        F.count(F.lit(1)).alias("n"), F.sum("n_rows").alias("rows"), F.count_if("complete").alias("complete")
    )
    n = len({e["commit_ts"] for e in rows_of(SMALL)})
    assert restored.collect()[0].asDict() == {"n": n, "rows": len(rows_of(SMALL)), "complete": n}
    assert events.transform(topic_watermarks).collect()[0]["resolved_ts"] == watermarks_of(SMALL)[-1]["commit_ts"]
    events.unpersist()


def test_ddl_and_watermarks_are_read_without_making_rows(classic: SparkSession) -> None:
    """A filter on the kind leaves the lanes out of the plan."""
    plan = generate(classic, SMALL).where("kind = 'ddl'")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("MapInArrow") == 1


def test_a_number_of_partitions_below_one_is_refused(spark: SparkSession) -> None:
    """Before Spark does anything."""
    with pytest.raises(ContractError, match="partitions is 0"):
        generate(spark, SMALL, partitions=0)
