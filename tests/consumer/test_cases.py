"""The special cases of TiCDC's design: what happens to each row change, and where the downstream ends."""

from __future__ import annotations

import pytest

from ticdc_lab.consumer import cases
from ticdc_lab.consumer.cases import (
    CASES,
    NO_FILTER,
    Case,
    State,
    case_results,
    consumed,
    never_existed,
    state_at,
    states,
    until,
)
from ticdc_lab.consumer.downstream import small_frame
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import (
    CLASSIC,
    DESIGN_ROW,
    DESIGN_ROW_SHARED,
    DESIGN_TRANSACTION,
    REFERENCE,
    REFERENCE_FIXED,
    STRICT,
    Policy,
)

SAFE = (DESIGN_ROW, DESIGN_TRANSACTION, STRICT, CLASSIC, REFERENCE, REFERENCE_FIXED)


def rows(found: ConsumerRun) -> list[str]:
    """What became of each row change, by partition and offset: ``0/1 orders 2 applied``."""
    said = found.deliveries.to_pylist()
    return [f"{r['partition']}/{r['offset']} {r['table'][5:]} {r['commit_ts']} {r['outcome']}" for r in said]


def state(case: Case, found: ConsumerRun, at_us: int | None = None) -> State:
    """The downstream's rows at a moment, at the end by default."""
    return state_at(case, found, found.end_us if at_us is None else at_us)


@pytest.mark.parametrize("policy", SAFE, ids=lambda p: p.name)
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("stopped-anywhere", "processor-crash-behind")])
def test_every_case_ends_as_the_upstream_under_every_safe_policy(name: str, policy: Policy) -> None:
    """No special case needs anything of the consumer beyond its rules."""
    case = CASES[name]()
    assert state(case, consumed(case, policy)) == case.expected()


@pytest.mark.parametrize("name", [n for n in CASES if n != "processor-crash-behind"])
def test_transactions_show_no_state_that_never_existed(name: str) -> None:
    """Not even where the consumer stops anywhere; row mode does in most of these cases."""
    case = CASES[name]()
    assert never_existed(case, consumed(case, DESIGN_TRANSACTION)) == []


def test_row_mode_shows_states_that_never_existed() -> None:
    """The check above can fail: a transaction over two partitions is seen in part."""
    case = CASES["recovery"]()
    found = consumed(case, DESIGN_ROW)
    assert {("orders", 4): "a", ("orders", 1): "a", ("users", 1): "a"} in never_existed(case, found)


@pytest.mark.parametrize("policy", [DESIGN_ROW, DESIGN_TRANSACTION], ids=lambda p: p.name)
def test_owner_switch_says_a_watermark_twice(policy: Policy) -> None:
    """Watermarks never fall; the repeated one applies nothing."""
    found = consumed(CASES["owner-switch"](), policy)
    stated = [(s["partition"], s["commit_ts"]) for s in found.steps.to_pylist() if s["action"] == "resolved"]
    assert [ts for p, ts in stated if p == 0] == [ts for p, ts in stated if p == 1] == [3, 3, 6]
    assert rows(found) == [
        *("0/0 orders 1 applied", "0/1 users 3 applied", "0/4 orders 4 applied", "0/5 users 6 applied"),
        *("1/0 orders 3 applied", "1/1 users 2 applied", "1/4 orders 6 applied", "1/5 users 5 applied"),
    ]


@pytest.mark.parametrize("policy", [DESIGN_ROW, DESIGN_TRANSACTION, REFERENCE], ids=lambda p: p.name)
def test_a_watermark_that_falls_is_seen_and_ignored(policy: Policy) -> None:
    """After 3 comes 1: no row is taken back or applied by it, and 6 continues."""
    case = CASES["owner-switch-forgetting"]()
    found = consumed(case, policy)
    falls = [s for s in found.steps.to_pylist() if s["action"] == "resolved" and s["commit_ts"] == 1]
    assert [(s["partition"], s["detail"]) for s in falls] == [(0, "falls back, ignored"), (1, "falls back, ignored")]
    assert rows(found) == rows(consumed(CASES["owner-switch"](), policy))
    before, after = falls[0]["at"] - 1, falls[-1]["at"]
    assert state(case, found, before) == state(case, found, after) == cases.upstream_at(case.cluster, 3)


def test_a_migration_is_not_noticed() -> None:
    """The key alone decides the partition; the log is the one of a processor's normal exit, except for
    one watermark.
    """
    moved, left = CASES["table-migration"](), CASES["processor-exit"]()
    assert rows(consumed(moved, DESIGN_ROW)) == rows(consumed(left, DESIGN_ROW))
    assert all(r.endswith("applied") for r in rows(consumed(moved, DESIGN_TRANSACTION)))


def test_a_migration_with_repeats_delivers_a_row_twice() -> None:
    """In one partition, buffered together, and executed next to each other; the classic consumer keeps both, too."""
    case = CASES["table-migration-repeats"]()
    expected = [
        *("0/0 orders 1 applied", "0/1 users 3 applied", "0/3 orders 4 applied", "0/4 users 6 applied"),
        *("1/0 orders 3 applied", "1/1 users 2 applied", "1/3 orders 3 applied", "1/4 users 5 applied"),
        "1/5 orders 6 applied",
    ]
    assert all(rows(consumed(case, p)) == expected for p in (DESIGN_ROW, DESIGN_TRANSACTION, CLASSIC))


def test_the_designs_example_of_a_crash() -> None:
    """TS 1, 2, 3, 4 and again 2, 3, 4, with the checkpoint at 2: executed as 1 2 | 2 3 3 4 4, and the row ends at 4."""
    case = CASES["processor-crash"]()
    for policy in (DESIGN_ROW, DESIGN_TRANSACTION, NO_FILTER):
        found = consumed(case, policy)
        applied = sorted((r for r in found.deliveries.to_pylist()), key=lambda r: r["apply_order"])
        assert [r["commit_ts"] for r in applied] == [1, 2, 2, 3, 3, 4, 4]
        assert state(case, found) == {("orders", 1): "v4"}
        assert never_existed(case, found) == []


def test_reference_consumers_drop_what_they_know_in_the_designs_example() -> None:
    """The classic one by the partition's history, its successor by what was applied."""
    case = CASES["processor-crash"]()
    dropped = {p: [r for r in rows(consumed(case, p)) if r.endswith("dropped")] for p in (CLASSIC, REFERENCE)}
    assert dropped[CLASSIC] == ["0/5 orders 2 dropped", "0/6 orders 3 dropped"]
    assert dropped[REFERENCE] == ["0/5 orders 2 dropped"]


def test_the_record_filters_what_is_written_again_below_the_resolved_ts() -> None:
    """2 and 3 are below the table's record 4 and filtered; the equal 4 is executed again, without effect."""
    case = CASES["processor-crash-behind"]()
    for policy in (DESIGN_ROW, DESIGN_TRANSACTION):
        found = consumed(case, policy)
        assert rows(found)[-3:] == ["0/5 orders 2 filtered", "0/6 orders 3 filtered", "0/8 orders 4 applied"]
        assert [s[("orders", 1)] for s in states(case, found)] == ["v4", "v4"]


def test_without_the_record_the_row_goes_back() -> None:
    """Readers see 4, then 3, then 4 again: the upstream never went back."""
    case = CASES["processor-crash-behind"]()
    found = consumed(case, NO_FILTER)
    assert [s[("orders", 1)] for s in states(case, found)] == ["v4", "v3", "v4"]


def test_one_record_for_all_listeners_loses_rows_in_row_mode() -> None:
    """The slower partition's first delivery of 2 is taken for a duplicate, because 3 was executed in the other."""
    case = CASES["one-record"]()
    shared, own = consumed(case, DESIGN_ROW_SHARED), consumed(case, DESIGN_ROW)
    assert rows(shared) == ["0/0 orders 1 applied", "0/1 orders 3 applied", "1/0 orders 2 filtered"]
    assert state(case, shared) == {("orders", 1): "c"} != case.expected()
    assert state(case, own) == state(case, consumed(case, DESIGN_TRANSACTION)) == case.expected()


@pytest.mark.parametrize("ts", [2, 4, 6])
@pytest.mark.parametrize("policy", SAFE, ids=lambda p: p.name)
def test_recovery_to_any_resolved_ts(ts: int, policy: Policy) -> None:
    """Everything up to the resolved ts is there, and nothing above, no matter what was read beyond it."""
    case = CASES["stopped-anywhere"]()
    log = until(cases.events(case.cluster), ts=ts)
    found = run(NarrowLog.of(log), policy, case.listeners)
    assert state(case, found) == cases.upstream_at(case.cluster, ts)
    assert {r["commit_ts"] for r in found.deliveries.to_pylist() if r["outcome"] == "applied"} <= set(range(ts + 1))


def test_rows_above_the_ts_of_recovery_stay_buffered() -> None:
    """A partition that holds a later row before the watermark does not apply it."""
    log = until(cases.events(CASES["table-migration"]().cluster), ts=2)
    assert rows(run(NarrowLog.of(log), DESIGN_ROW)) == [
        *("0/0 orders 1 applied", "0/1 users 3 pending", "1/0 orders 3 pending", "1/1 users 2 applied"),
    ]


def test_stopping_anywhere_leaves_row_mode_between_two_states() -> None:
    """Partition 0 is at 6 and partition 1 at 4; transaction mode is at 4 in both."""
    case = CASES["stopped-anywhere"]()
    row = state(case, consumed(case, DESIGN_ROW))
    assert row == case.expected() | {("users", 4): "b"}
    assert row not in [cases.upstream_at(case.cluster, ts) for ts in range(7)]
    whole = consumed(case, DESIGN_TRANSACTION)
    assert state(case, whole) == case.expected()
    assert "0/5 users 6 pending" in rows(whole)


def test_rows_keep_their_partition_whoever_writes_them() -> None:
    """The dispatcher is TiCDC's index-value: no key of a case is in two partitions."""
    for make in CASES.values():
        events = small_frame(make().log)
        homes = events[events["kind"] == "row"].groupby("key_hash")["partition"].nunique()
        assert (homes == 1).all()


def test_the_results_of_all_cases_in_one_frame() -> None:
    """Row mode and transaction mode end right in all but two; without the filter a row goes back, but ends right."""
    found = case_results([DESIGN_ROW, DESIGN_TRANSACTION, NO_FILTER]).set_index(["policy", "case"])
    assert len(found) == 3 * len(CASES)
    assert list(found.index[~found["ends_right"]]) == [
        (DESIGN_ROW.name, "stopped anywhere"), (NO_FILTER.name, "stopped anywhere")
    ]  # fmt: skip
    late = found.xs("processor crash, checkpoint recorded late", level="case")
    assert list(late["filtered"]) == [2, 2, 0] and list(late["applied"]) == [5, 5, 7]
    assert (found.xs(DESIGN_TRANSACTION.name, level="policy")["wrong_states"] == 0).all()
    assert found.xs(DESIGN_ROW.name, level="policy")["wrong_states"].sum() == 5
