"""The mounters of a capture are a pool with a capacity, which all its tables share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import SECOND, assert_whole, run

from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.pipeline.capture.state import CaptureDesk
from ticdc_lab.simulate.pipeline.downstream import Rows
from ticdc_lab.simulate.pipeline.settings import BY_TABLE, CONFLICT, MQ, MYSQL, CaptureSettings, DownstreamSettings
from ticdc_lab.simulate.scenario import scenario_from_text


@pytest.mark.parametrize(("workers", "order"), [(1, "processor"), (4, BY_TABLE)])
def test_no_more_rows_leave_a_capture_than_its_pool_mounts(workers, order):
    """In any second a batch more at most; and all is there in the end."""
    found = run(mounter_workers=workers, mounter_rows_per_s=100, rule=MQ, order=order, sink_batch_rows=8, captures=1,
                until_us=16 * SECOND)  # fmt: skip
    assert_whole(found)
    left = sorted((e.at_us, len(e.changes)) for e in found.entries if isinstance(e, Rows))
    for at_us, _ in left:
        in_a_second = sum(n for other_us, n in left if at_us <= other_us < at_us + SECOND)
        assert in_a_second <= 100 * workers + 2 * 8
    assert max(at_us for at_us, _ in left) >= 1_200 / (100 * workers) * SECOND or workers > 1


def test_more_workers_mount_more():
    """The capacity is theirs together."""
    ends = []
    for workers in (1, 2):
        found = run(mounter_workers=workers, mounter_rows_per_s=100, captures=1, until_us=16 * SECOND)
        ends.append(max(e.at_us for e in found.entries if isinstance(e, Rows)))
    assert ends[0] > ends[1] + SECOND


def test_a_pool_that_nobody_asks_is_seen(monkeypatch):
    """Planted: the bound above is passed."""
    monkeypatch.setattr(CaptureDesk, "mounts", lambda self, rows: True)
    with pytest.raises(AssertionError):
        test_no_more_rows_leave_a_capture_than_its_pool_mounts(1, "processor")


def test_why_names_the_mounters():
    """What holds the checkpoint when a pool is too small, in a scenario."""
    scenario = scenario_from_text("""
model: pipeline
until: 12s
cluster: {captures: 1, tables: 2}
load: {rows_per_s: 200, until: 10s}
settings: {capture: {mounter_workers: 1, mounter_rows_per_s: 60, sink_batch_rows: 16, rule: mq}}
assert:
  - {within: 9s, from: 2s, holds: checkpoint_ts is held by mounter}
  - {always: no violation}
""")
    played = scenario.model.play(scenario, seed=1)
    assert played.held, [o.because for o in played.outcomes if not o.held]


def test_a_database_and_conflict_detection_are_given_transactions_whole():
    """One rule, for a capture and for its downstream, no matter what makes the settings."""
    assert CaptureSettings(sink=MYSQL).whole and DownstreamSettings(kind=MYSQL).whole
    assert CaptureSettings(by_conflict=True).whole and DownstreamSettings(dispatcher=CONFLICT).whole
    assert not CaptureSettings().whole and not DownstreamSettings().whole


def test_a_pool_that_mounts_nothing_is_refused():
    """With what to do."""
    for given in ({"mounter_workers": 0}, {"mounter_rows_per_s": 0}):
        with pytest.raises(ContractError, match="mounts nothing"):
            CaptureSettings(**given)
