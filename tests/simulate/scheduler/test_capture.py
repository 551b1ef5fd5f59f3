"""What a whole capture adds to the machines of a protocol: its session, and the status that it persists."""

from __future__ import annotations

import pytest

from ticdc_lab.simulate.faults import Ask, Part, Relink
from ticdc_lab.simulate.network import Link
from ticdc_lab.simulate.scheduler.roles import Restart
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings
from ticdc_lab.simulate.trace import CHANGES

SLOW_US = 900_000


@pytest.mark.parametrize("at_us", [3_000_000, 3_100_000])
def test_the_checkpoint_does_not_fall_while_etcds_answers_are_slow(at_us):
    """The owner compares with what it has asked for, not only with what it has heard of (a restart lowers a table)."""
    slow = [Relink(2_500_000, "etcd", name, Link((SLOW_US, SLOW_US))) for name in ("capture-1", "capture-2")]
    restart = Ask(at_us, "capture-2", Restart())
    run = simulate(SchedulerSettings(captures=2, tables=2), faults=[*slow, restart], until_us=8_000_000, level=CHANGES)
    assert run.violation is None
    published = [int(r.after) for r in run.kernel.recorder.rows if r.subject == "global-checkpoint" and r.after]
    assert published == sorted(published) and len(published) > 50


def test_a_capture_that_etcd_cannot_hear_stops_before_its_lease_ends():
    """And comes back under a new address; no capture writes twice (it stops when it loses its session)."""
    settings = SchedulerSettings(captures=2, tables=2)
    run = simulate(settings, faults=[Part(3_000_000, "capture-2", "etcd", for_us=10_000_000)], until_us=20_000_000)
    rows = run.kernel.recorder.rows
    (stops,) = [r.time_us for r in rows if r.subject == "session" and r.after is None and r.node == "capture-2"]
    (expires,) = [r.time_us for r in rows if r.subject == "session:capture-2" and r.after is None]
    assert stops + settings.margin_us <= expires
    assert run.violation is None and run.measures.overlap_us == 0
    assert run.kernel.address["capture-2"] != "capture-2"
