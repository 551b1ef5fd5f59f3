"""One log under every strategy and consumer: the bank's money, the layouts, and the same answers from Spark's tasks."""

from __future__ import annotations

import pandas as pd
import pytest
from conftest import golden
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sql_curve import sql_curve

from ticdc_lab import load
from ticdc_lab.codecs import decode
from ticdc_lab.consumer.consistency import invariant_curve, measure_of
from ticdc_lab.consumer.ddl_timeline import ddl_timeline
from ticdc_lab.consumer.downstream import downstream_at, held_by_partition, why_waiting
from ticdc_lab.consumer.listener import Crash, Listeners, Pause
from ticdc_lab.consumer.log import IS_CONSUMED, NARROW, PARTITION_COUNT, READ, NarrowLog, excerpt, narrow, narrowed
from ticdc_lab.consumer.model import run
from ticdc_lab.consumer.policy import DESIGN_ROW, DESIGN_TRANSACTION, POLICIES, REFERENCE, STRICT
from ticdc_lab.consumer.study import (
    NEVER_WAS,
    Scenario,
    Study,
    consumer_anomalies,
    consumer_matrix,
    consumption,
    matrix,
)
from ticdc_lab.encode.produce import produce
from ticdc_lab.errors import ContractError, DispatchError
from ticdc_lab.sources.change_log import ChangeLog

TOTAL = 1_200_000
ONE_SLOW = Listeners(speeds={1: 3000})


@pytest.fixture(scope="module")
def bank(spark: SparkSession) -> Study:
    """The golden bank log: the sum of all balances is 1,200,000 at every transaction boundary, once it is loaded."""
    log = load(spark, str(golden("messages_canal-json-tidb_bank.jsonl.gz")))
    return Study.of(log.events, measure=measure_of("balance"))


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ChangeLog:
    """The golden log of many types and DDL, decoded once."""
    log = load(spark, str(golden("messages_open-protocol_small.jsonl.gz")))
    return log.materialise(str(tmp_path_factory.mktemp("log") / "log"))


def worst(curve: pd.DataFrame) -> float:
    """How far the sum was from what upstream had."""
    below, above = curve["expected_low"] - curve["value"], curve["value"] - curve["expected_high"]
    return float(max(below.max(), above.max()))


@pytest.mark.parametrize("layout", [("as recorded", 0), ("table", 8), ("index-value", 5), ("ts", 8)])
def test_the_banks_money_is_right_at_every_moment_where_transactions_are_restored(
    bank: Study, layout: tuple[str, int]
) -> None:
    """And in row mode it is not: the same log, the same listeners."""
    log = bank.recorded if layout[0] == "as recorded" else bank.laid(*layout)
    for how in (Listeners(), ONE_SLOW, Listeners(processes=3, write_us=50, faults=(Crash(1, 300_000, 400_000),))):
        curve = invariant_curve(run(log, STRICT, how), log)
        assert worst(curve) == 0
        assert curve["value"].iloc[-1] == TOTAL
        assert (curve["value"].iloc[len(curve) // 2 :] == TOTAL).all()
    assert worst(invariant_curve(run(log, DESIGN_ROW, ONE_SLOW), log)) > 1000
    assert worst(invariant_curve(run(log, REFERENCE, ONE_SLOW), log)) > 100


def test_the_designs_transaction_mode_is_right_where_the_designs_constraints_hold(bank: Study) -> None:
    """On the recorded log they do not: TiCDC lets rows of other tables come after a DDL that is newer than they are."""
    log = bank.laid("index-value", 8)
    assert worst(invariant_curve(run(log, DESIGN_TRANSACTION, ONE_SLOW), log)) == 0
    assert worst(invariant_curve(run(bank.recorded, DESIGN_TRANSACTION, ONE_SLOW), bank.recorded)) > 0


def test_one_partition_and_one_listener_show_no_wrong_sum_even_in_row_mode(bank: Study) -> None:
    """Every watermark ends between transactions."""
    log = bank.laid("index-value", 1)
    assert worst(invariant_curve(run(log, DESIGN_ROW), log)) == 0


@pytest.mark.parametrize(("strategy", "partitions"), [("table", 3), ("index-value", 4)])
def test_a_layout_is_what_produce_writes(small: ChangeLog, strategy: str, partitions: int) -> None:
    """Partition by partition, event by event; mq-v1 has one event in a message, in the same order."""
    laid = Study.of(small.events, strategies=[strategy]).laid(strategy, partitions)
    written = produce(small.events, protocol="mq-v1", strategy=strategy, partitions=partitions)
    decoded = decode(written, protocol="mq-v1")
    what = ["partition", "offset", "kind", "commit_ts", "table_name"]
    theirs = read(decoded, what)
    ours = laid.events.select(what).to_pylist()
    assert [tuple(e.values()) for e in ours] == theirs
    assert len(ours) > 2101


def read(decoded: DataFrame, what: list[str]) -> list[tuple[object, ...]]:
    """Events in order of partition and offset."""
    rows = (
        decoded.where("kind IN ('row', 'ddl', 'watermark')").select(*what, "seq").orderBy("partition", "offset", "seq")
    )
    return [tuple(r)[:-1] for r in rows.collect()]


def test_a_layout_that_was_not_measured_is_refused(bank: Study) -> None:
    """By its name, and by the number of partitions."""
    for strategy, partitions in (("columns", 8), ("table", 17)):
        with pytest.raises(DispatchError, match="was not measured"):
            bank.laid(strategy, partitions)


def test_the_model_in_a_task_gives_what_it_gives_on_the_driver(small: ChangeLog, spark: SparkSession) -> None:
    """Deliveries, anomalies, and a matrix of scenarios."""
    how = Listeners(speeds={2: 900}, pauses=(Pause(0, 10_000, 90_000),))
    log = excerpt(small.events)
    found = run(log, DESIGN_ROW, how)
    own = small.events.repartition(5).transform(consumption, policy=DESIGN_ROW, listeners=how)
    keys = ["partition", "offset", "seq", "outcome", "applied_at", "batch", "apply_order"]
    place = ["partition", "offset", "seq"]
    assert [tuple(r) for r in own.select(*keys).orderBy(*place).collect()] == [
        tuple(r.values()) for r in found.deliveries.select(keys).to_pylist()
    ]
    scenarios = [Scenario(POLICIES[p], s, n) for p in ("design-row", "strict") for s, n in (("table", 3), ("ts", 4))]
    scenarios.append(Scenario(REFERENCE, listeners=how, speeds="one slow"))
    on_driver = matrix(Study.of(small.events), scenarios)
    in_tasks = consumer_matrix(small.events, scenarios=scenarios).toPandas()
    by = ["policy", "strategy", "speeds", "kind"]
    pd.testing.assert_frame_equal(
        in_tasks.sort_values(by, ignore_index=True), on_driver.sort_values(by, ignore_index=True)
    )
    wrong = on_driver[on_driver["kind"] == NEVER_WAS].set_index(["policy", "strategy"])["n"]
    assert wrong["strict", "ts"] == 0 < wrong["design-row", "ts"]


def test_an_anomaly_names_messages_of_the_log(small: ChangeLog) -> None:
    """The evidence can be looked up."""
    found = small.events.transform(consumer_anomalies, policy=DESIGN_ROW, listeners=ONE_SLOW, max_per_kind=3)
    shown = found.select("guarantee", F.explode("evidence").alias("e")).select("guarantee", "e.*")
    rows = small.events.where("kind = 'row'").select("topic", "partition", "offset", "commit_ts").distinct()
    assert shown.count() == shown.join(rows, ["topic", "partition", "offset", "commit_ts"]).count() > 0


def test_too_large_a_log_is_refused_and_nothing_is_left_out(small: ChangeLog) -> None:
    """An excerpt is whole or not at all."""
    with pytest.raises(ContractError, match="more than 100 events"):
        excerpt(small.events, most=100)


def test_the_ddl_timeline_says_when_each_partition_saw_a_ddl_and_when_it_was_executed(small: ChangeLog) -> None:
    """16 DDL in 4 partitions; the last listener is waited for, the fast ones wait."""
    log = excerpt(small.events)
    found = run(log, DESIGN_TRANSACTION, Listeners(speeds={3: 1000}))
    told = ddl_timeline(found, log)
    assert len(told) == 16 * 4
    assert told["executed_at"].notna().all() and (told["waited_us"] >= 0).all()
    slow = told[told["partition"] == 3]
    assert (slow["waited_us"] == 0).all()
    assert (told[told["partition"] == 0]["waited_us"] > 0).all()
    assert told["early_rows"].sum() == 0
    by_watermark = ddl_timeline(run(log, STRICT, Listeners(speeds={3: 1000})), log)
    assert by_watermark["seen_at"].notna().all(), "also the copies that are not executed again"


def test_why_a_consumer_waits_names_the_partition_that_was_paused(small: ChangeLog) -> None:
    """The planted cause: partition 2 reads nothing from 20 ms on."""
    log = excerpt(small.events)
    how = Listeners(pauses=(Pause(2, 20_000, 900_000),))
    found = run(log, STRICT, how)
    wait = why_waiting(found, log, STRICT, at_us=400_000)
    assert wait is not None and (wait.partition, wait.event) == (2, "a watermark")
    assert 20_000 <= wait.since_us < 100_000
    held = held_by_partition(found, log, at_us=400_000).set_index("partition")["held"]
    assert wait.held == held.sum() > 500
    assert f"{wait.held} row changes are held: partition 2" in wait.answer
    assert why_waiting(found, log, STRICT, at_us=found.end_us) is None


def test_why_a_consumer_waits_at_a_ddl_names_it(small: ChangeLog) -> None:
    """The design's consumer stops there until partition 1 comes."""
    log = excerpt(small.events)
    found = run(log, DESIGN_TRANSACTION, Listeners(pauses=(Pause(1, 0, 500_000),)))
    wait = why_waiting(found, log, DESIGN_TRANSACTION, at_us=250_000)
    assert wait is not None and wait.partition == 1
    assert wait.event.startswith("CREATE DATABASE")


def test_the_narrow_log_has_only_what_is_needed(small: ChangeLog) -> None:
    """No images."""
    assert {*narrow(small.events).columns} == {*NARROW, PARTITION_COUNT}
    place = ["topic", "partition", "offset", "seq"]
    by = [(c, "ascending") for c in place]
    of_frame, of_table = narrow(small.events).toArrow().sort_by(by), narrowed(small.events.toArrow().select(READ))
    assert of_table.select(of_frame.column_names).sort_by(by).to_pylist() == of_frame.to_pylist()
    rank = "CASE WHEN kind = 'row' THEN CASE op WHEN 'delete' THEN 0 WHEN 'update' THEN 1 ELSE 2 END END AS op_rank"
    ranked = small.events.where(IS_CONSUMED).selectExpr(*place, rank).toArrow().sort_by(by)
    assert of_frame.select(ranked.column_names).to_pylist() == ranked.to_pylist()
    assert len(NarrowLog.of(narrow(small.events).limit(0).toArrow()).kind) == 0


def test_any_query_is_answered_over_the_downstream_and_over_upstreams_snapshots(small: ChangeLog) -> None:
    """The number of rows of a table, as the rows that are there; right where transactions are restored."""
    log = excerpt(small.events)
    sql = "SELECT count(*) FROM shop.orders"
    row, strict = (run(log, p, ONE_SLOW) for p in (DESIGN_ROW, STRICT))
    curve = sql_curve(small.events, row, sql=sql, points=40)
    deliveries = row.deliveries.to_pandas()
    images = pd.DataFrame(columns=["topic", "partition", "offset", "seq"])
    for at, value in zip(curve["at_us"], curve["value"], strict=True):
        assert value == len(downstream_at(images, deliveries, at, "shop.orders"))
    assert worst(curve) > 0 == worst(sql_curve(small.events, strict, sql=sql, points=40))
    with pytest.raises(ContractError, match="no_such_table"):
        sql_curve(small.events, strict, sql="SELECT 1 FROM no_such_table")
    total = sql_curve(small.events, strict, sql="SELECT sum(user_id * amount) FROM shop.orders", points=5)
    assert total["value"].iloc[-1] > 0
