"""Ranges are applied in the design's order. No Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ticdc_lab.consumer.replay import ReplayPlan, run
from ticdc_lab.consumer.replay_plan import Batch, Goal, TargetProgress, batches
from ticdc_lab.errors import ContractError, ProtocolError
from ticdc_lab.facts.catalog import Catalog

A, B = ("t", 0), ("t", 1)
NEW = TargetProgress("transaction", "x", {A: 0, B: 0})
ROWS = replace(NEW, mode="row")


def spans(found: list[Batch]) -> list[tuple[int, int, bool, bool]]:
    """What batches hold."""
    return [(b.since, b.until, b.rows, b.ddl) for b in found]


def test_a_transaction_batch_ends_at_each_ddl_and_cut_and_at_the_least_watermark() -> None:
    """Rows up to a DDL, then the DDL; nothing above what every partition is resolved to."""
    found = list(batches(NEW, Goal({A: 90, B: 70}, ddl=[20, 80], cuts=[40, 75])))
    assert spans(found) == [(0, 20, True, True), (20, 40, True, False), (40, 70, True, False)]
    assert found[-1].after == TargetProgress("transaction", "x", {A: 70, B: 70}, ddl_ts=20)


def test_until_stops_there_and_a_later_run_goes_on() -> None:
    """Both together do what one run does."""
    goal = Goal({A: 90, B: 70}, ddl=[20, 50])
    first = list(batches(NEW, replace(goal, until=50)))
    assert spans(first) == [(0, 20, True, True), (20, 50, True, True)]
    assert spans(list(batches(first[-1].after, goal))) == [(50, 70, True, False)]


def test_nothing_is_left_at_the_end() -> None:
    """A replay that has reached its goal commits nothing more."""
    goal = Goal({A: 90, B: 70}, ddl=[20])
    *_, last = batches(NEW, goal)
    assert list(batches(last.after, goal)) == []


def test_a_ddl_whose_rows_were_committed_alone_still_comes() -> None:
    """A target that commits DDL by themselves may be killed between rows and DDL."""
    between = replace(NEW, positions={A: 20, B: 20})
    assert spans(list(batches(between, Goal({A: 20, B: 20}, ddl=[20])))) == [(20, 20, False, True)]


def test_in_row_mode_each_partition_goes_its_own_way_but_for_ddl() -> None:
    """MQ design: a listener writes at its own resolved_ts; a DDL waits for all listeners, and none passes it before."""
    found = list(batches(ROWS, Goal({A: 90, B: 70}, ddl=[20, 80])))
    assert [(b.home, b.since, b.until, b.ddl) for b in found] == [
        (A, 0, 20, False), (B, 0, 20, False), (None, 20, 20, True),
        (A, 20, 70, False), (B, 20, 70, False), (A, 70, 80, False),
    ]  # fmt: skip
    assert found[-1].after.positions == {A: 80, B: 70}


def test_in_row_mode_no_partition_passes_until() -> None:
    """``until`` is one timestamp for all."""
    *_, last = batches(ROWS, Goal({A: 90, B: 70}, until=60))
    assert last.after.positions == {A: 60, B: 60}


def test_a_row_mode_run_may_be_cut_anywhere() -> None:
    """Going on from any batch gives the rest of the batches."""
    goal = Goal({A: 90, B: 70}, ddl=[20, 80], cuts=[40])
    whole = list(batches(ROWS, goal))
    for i, b in enumerate(whole):
        assert list(batches(b.after, goal)) == whole[i + 1 :]


def test_an_unknown_mode_is_refused() -> None:
    """There are two."""
    with pytest.raises(ContractError, match="expected one of transaction, row"):
        list(batches(replace(NEW, mode="fast"), Goal({A: 1})))


def test_a_target_that_runs_the_text_of_ddl_takes_no_log_whose_rows_have_other_names() -> None:
    """It would make tables that no row names; nothing is begun."""
    ddl = ((1, "s", "a.b", "CREATE TABLE s.`a.b` (`i d` INT PRIMARY KEY)"),)
    plan = ReplayPlan(Catalog.from_ddl(ddl).in_rows("avro"), ddl, Goal({A: 90}, ddl=[1]), NEW, "avro")
    target: Any = SimpleNamespace(name="mysql://host", runs_ddl=True)
    with pytest.raises(ProtocolError, match=r"rows of avro have another name .* in s.a.b"):
        run(plan, target)
