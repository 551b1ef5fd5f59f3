"""Every invariant of the auditor is violated by a planted bug, in a run that keeps all of them without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import CRASHES, SLOW, ddl_load, run

from ticdc_lab.simulate.pipeline.capture.mutants import (
    DDL_BEFORE_BARRIER,
    EMITS_UNRESOLVED,
    MARKS_RESOLVED,
    PASSES_RESOLVED,
    SENT_IS_WRITTEN,
)
from ticdc_lab.simulate.pipeline.monitor import (
    BARRIER,
    BELOW,
    INVARIANTS,
    LOST,
    MONOTONE,
    ORDERED,
    PARTITION,
    RESOLVED,
    TWICE,
)
from ticdc_lab.simulate.pipeline.settings import AT_MOST_ONCE, BY_DEDUPLICATION, MQ, TikvSettings

LATE_LOCKS = TikvSettings(apply_us=150_000, resolved_us=50_000)
RUNS = {
    RESOLVED: ("ignores_locks", {}),
    MONOTONE: ("follows_locks_down", {"tikv": LATE_LOCKS}),
    BELOW: (PASSES_RESOLVED, {"semantics": AT_MOST_ONCE, "rule": MQ}),
    ORDERED: (EMITS_UNRESOLVED, {"rule": MQ}),
    LOST: (SENT_IS_WRITTEN, {"faults": CRASHES, "downstream": SLOW}),
    BARRIER: (DDL_BEFORE_BARRIER, {"load": ddl_load()}),
    TWICE: ("forgets_places", {"faults": CRASHES, "downstream": SLOW, "semantics": BY_DEDUPLICATION}),
    PARTITION: (MARKS_RESOLVED, {"downstream": SLOW}),
}
"""By invariant a bug that violates it, and the run in which it does."""


def test_each_invariant_has_a_bug():
    """None is checked that nothing can violate."""
    assert tuple(RUNS) == INVARIANTS


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_a_planted_bug_violates_the_invariant_and_nothing_does_without_it(invariant):
    """The run ends there, and names it."""
    bug, given = RUNS[invariant]
    found = run(bugs={bug: True}, **given)
    assert found.violation is not None
    assert found.violation.invariant == invariant
    assert run(**given).violation is None
