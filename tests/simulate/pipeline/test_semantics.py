"""What delivery semantics lose and repeat, what the MQ rule gains, and stream against batch: from runs."""

from __future__ import annotations

from typing import Any

import pytest

from ticdc_lab.simulate.pipeline.facts import compared
from ticdc_lab.simulate.pipeline.scenario import table_info
from ticdc_lab.simulate.pipeline.semantics import (
    DELIVERY,
    GAINS,
    WINDOWS,
    at_us,
    compare_rules,
    compare_semantics,
    late_event,
    small_load,
    time_of,
    windows,
)
from ticdc_lab.simulate.pipeline.settings import AT_LEAST_ONCE, AT_MOST_ONCE, BY_DEDUPLICATION, BY_SNAPSHOT
from ticdc_lab.simulate.pipeline.tables import Change

INFO = table_info(1)


@pytest.fixture(scope="module")
def delivered() -> dict[tuple[str, str], dict[str, Any]]:
    """A capture crash and leader changes under each of the semantics."""
    table = compare_semantics(small_load(rows_per_s=100), faults=("capture crash", "leader change"))
    assert table.schema == DELIVERY
    return {(r["semantics"], r["fault"]): r for r in table.to_pylist()}


def test_at_most_once_loses_what_was_under_way(delivered: dict[tuple[str, str], dict[str, Any]]) -> None:
    """And repeats nothing; no consumer can make that right."""
    crash = delivered[AT_MOST_ONCE, "capture crash"]
    assert crash["lost"] > 0 and crash["repeated"] == 0 and not crash["final_right_idempotent"]


@pytest.mark.parametrize("fault", ["capture crash", "leader change"])
def test_at_least_once_repeats_and_loses_nothing(delivered: dict[tuple[str, str], dict[str, Any]], fault: str) -> None:
    """Harmless where rows are replaced, and wrong where differences are added up."""
    found = delivered[AT_LEAST_ONCE, fault]
    assert found["lost"] == 0 and found["repeated"] > 0
    assert found["final_right_idempotent"] and not found["final_right_blind"]


@pytest.mark.parametrize("semantics", [BY_DEDUPLICATION, BY_SNAPSHOT])
@pytest.mark.parametrize("fault", ["capture crash", "leader change"])
def test_exactly_once_repeats_and_loses_nothing(
    delivered: dict[tuple[str, str], dict[str, Any]], semantics: str, fault: str
) -> None:
    """By either way."""
    found = delivered[semantics, fault]
    assert (found["lost"], found["repeated"], found["regressed"]) == (0, 0, 0)
    assert found["final_right_idempotent"] and found["final_right_blind"] and found["violation"] is None


def test_the_mq_rule_holds_fewer_rows_for_less_time() -> None:
    """Behind a transaction that is open for two seconds; the proof obligation is checked in both runs."""
    table = compare_rules()
    assert table.schema == GAINS
    base, mq = table.to_pylist()
    assert base["rows"] == mq["rows"] and base["violation"] is mq["violation"] is None
    assert mq["rows_in_memory_max"] * 2 < base["rows_in_memory_max"]
    assert mq["latency_ms_median"] * 2 < base["latency_ms_median"]


def test_the_designs_late_event() -> None:
    """Committed at 3:58, arrived after 4:00: the batch counts it in the wrong window, the stream waits and is right."""
    found = windows(late_event())
    assert found.schema == WINDOWS
    batch, stream, next_batch, next_stream = found.to_pylist()
    assert (batch["start"], batch["end"], batch["truth"]) == ("3:00", "4:00", 5)
    assert (batch["counted"], batch["right"], batch["answered"]) == (4, False, "4:00")
    assert (stream["counted"], stream["right"]) == (5, True) and at_us(4, 4) < stream["answered_us"] < at_us(4, 9)
    assert (next_batch["counted"], next_batch["truth"], next_batch["right"]) == (3, 2, False)
    assert (next_stream["counted"], next_stream["right"]) == (2, True)
    assert time_of(at_us(4, 5)) == "4:05"


def change(commit_ts: int, before: int | None, after: int | None, key: int = 7) -> Change:
    """A change of a row's amount."""
    images = [None if n is None else (key, "", n) for n in (after, before)]
    op = "delete" if after is None else "insert" if before is None else "update"
    return Change(commit_ts, commit_ts - 1, key, op, INFO, *images)


def test_an_outcome_tells_each_harm_apart() -> None:
    """Planted: a lost row, a repeated one, an older version after a newer one, a lost delete."""
    one, two, three = change(10, None, 5), change(20, 5, 8), change(30, 8, None)
    right = compared([one, two, three], [one, two, three], 30)
    assert (right.lost, right.repeated, right.regressed) == (0, 0, 0) and right.final_right_blind
    repeated = compared([one, two], [one, two, one, two], 20)
    assert (repeated.repeated, repeated.regressed, repeated.final_right_idempotent) == (2, 1, True)
    assert not repeated.final_right_blind
    overwritten = compared([one, two], [one, two, one], 20)
    assert (overwritten.regressed, overwritten.final_right_idempotent) == (1, False)
    lost = compared([one, two, three], [one, two], 30)
    assert (lost.lost, lost.final_right_idempotent) == (1, False)
    pending = compared([one, two, three], [one, two], 20)
    assert (pending.lost, pending.committed, pending.final_right_idempotent) == (0, 2, True)
