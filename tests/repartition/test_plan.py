"""Who acts when: pure arithmetic, without Spark."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_lab.cli.dispatch_commands import expand
from ticdc_lab.errors import ContractError
from ticdc_lab.events import tso
from ticdc_lab.repartition.cost import staying_share
from ticdc_lab.repartition.plan import Facts, OwnerMarks, PartitionPlan, Timing, decide, delays_of

T0 = 1_700_000_000_000


def ts(ms: int) -> int:
    """A TSO so many milliseconds after the start."""
    return tso.compose(T0 + ms)


FACTS = Facts((("s", "b"), ("s", "a"), ("s", "c")), ("t",), "mq-v1", 4, ts(0), ts(10_000))
TIMING = Timing(stop_delay_ms=(100, 900), report_ms=10, admin_ms=20, restart_ms=30, seed=7)


def decided(marks: OwnerMarks, **more: object) -> PartitionPlan:
    """A plan at 5 s, from 4 to 9 partitions."""
    given = {"procedure": "design", "before": 4, "after": 9, "at": ts(5000), "timing": TIMING} | more
    return decide(FACTS, marks, **given)  # type: ignore[arg-type]


def test_with_feedback_the_slowest_processor_sets_the_pace() -> None:
    """The Admin event comes after the last stop, its report and the broadcast; the parts of the pause add up."""
    plan = decided(OwnerMarks(ts(4900)))
    slowest = max(p.stop_ms for p in plan.processors)
    assert plan.admin_ms == slowest + 10 + 20
    assert {p.start_ms for p in plan.processors} == {plan.admin_ms + 30}
    assert plan.pause_ms == {"waiting": slowest + 10 - plan.at_ms, "admin": 20, "restart": 30}


def test_the_checkpoint_is_the_last_broadcast_that_every_processor_has_passed() -> None:
    """With feedback it equals what the old partitions have; values above the first stop are not reached."""
    stops = sorted(p.stop for p in decided(OwnerMarks(0)).processors)
    later = (ts(5010), stops[0] - 1, stops[0] + 1, stops[-1] + 1)
    plan = decided(OwnerMarks(ts(4900), later))
    assert plan.checkpoint == plan.resolved == stops[0] - 1


def test_without_feedback_the_checkpoint_moves_on_behind_the_admin_event() -> None:
    """Old partitions have what was broadcast at the decision; the restart reads a later value."""
    plan = decided(OwnerMarks(ts(4900), (ts(5040), ts(5060))), procedure="no-feedback")
    assert (plan.resolved, plan.checkpoint) == (ts(4900), ts(5040))
    assert plan.admin_ms == plan.at_ms + 20
    assert all(p.start_ms > p.stop_ms and p.start_ms >= plan.start_ms for p in plan.processors)


def test_nobody_passes_a_ddl_that_is_not_written() -> None:
    """Processors hold at it, and the checkpoint stays below it."""
    plan = decided(OwnerMarks(ts(4900), (ts(5005), ts(5020)), ddl=ts(5010)))
    assert {p.stop for p in plan.processors} == {ts(5010)}
    assert plan.checkpoint == ts(5005)


def test_without_any_watermark_all_is_sent_again() -> None:
    """Nothing is known to have arrived, so the checkpoint is 0."""
    assert decided(OwnerMarks(0)).checkpoint == 0


def test_the_same_seed_gives_the_same_plan_and_another_another() -> None:
    """Delays lie in their range, no matter what order the tables come in; captures share the tables."""
    assert decided(OwnerMarks(0)) == decided(OwnerMarks(0))
    assert delays_of(FACTS, TIMING) != delays_of(FACTS, Timing(stop_delay_ms=(100, 900), seed=8))
    assert all(100 <= d <= 900 for d in delays_of(FACTS, TIMING))
    shared = decided(OwnerMarks(0), timing=Timing(captures=2))
    assert [p.tables for p in shared.processors] == [(("s", "a"), ("s", "c")), (("s", "b"),)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"procedure": "none"}, "Unknown procedure"),
        ({"after": 4}, "two different numbers"),
        ({"after": 0}, "at least 1"),
        ({"procedure": "just-add", "after": 2}, "Kafka cannot remove partitions"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], said: str) -> None:
    """With the reason."""
    with pytest.raises(ContractError, match=said):
        decided(OwnerMarks(0), **wrong)


def test_the_hint_names_options_that_expand_has() -> None:
    """So that a reader who follows it is not refused once more."""
    with pytest.raises(ContractError) as refused:
        decided(OwnerMarks(0), after=4)
    named = set(re.findall(r"--[a-z]+", refused.value.hint))
    assert named and named <= {option for p in expand.params for option in p.opts}


@pytest.mark.parametrize("wrong", [{"stop_delay_ms": (5, 1)}, {"restart_ms": 0}, {"captures": 0}])
def test_a_timing_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    """Times are at least a millisecond, so that what follows comes after."""
    with pytest.raises(ContractError):
        Timing(**wrong)  # type: ignore[arg-type]


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_share_that_stays_is_that_of_all_residues(a: int, b: int) -> None:
    """Counted over every hash below a * b; 4 to 8 keeps a half, 8 to 9 a ninth."""
    assert staying_share(a, b) == pytest.approx(sum(h % a == h % b for h in range(a * b)) / (a * b))
    assert (staying_share(4, 8), staying_share(8, 9)) == (0.5, pytest.approx(1 / 9))
