"""Seeds of chaos on all three protocols: nothing is violated, and after it all works again."""

from __future__ import annotations

from collections import Counter

import pytest
from exploring import seeds

from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.faults import Ask, Chaos, Crash
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl
from ticdc_lab.simulate.scheduler.roles import Drain, MoveTable
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

CAPTURES, TABLES = 3, 6
EACH = 10


def judge(variant, seed, *, over_us, until_us, ttl_us):
    """Run one seed; shows what is wrong at the end, None if nothing is."""
    settings = SchedulerSettings(variant=variant, captures=CAPTURES, tables=TABLES, ttl_us=ttl_us)
    run = simulate(settings, seed=seed, until_us=until_us, chaos=Chaos(over_us), level="nothing")
    if run.violation:
        return run.violation
    kernel = run.kernel
    live = [s for a, s in kernel.states.items() if a != "etcd" and a not in kernel.down]
    states = Counter(p.state for s in live for p in s.processor.executor.pipelines.values())
    if states != {"replicating": TABLES}:
        return states
    loads = [len(s.processor.executor.pipelines) for s in live]
    lag_us = until_us - us_of(kernel.states["etcd"].checkpoint_ts)
    if len(loads) != CAPTURES or max(loads) - min(loads) > 1:
        return loads
    return f"the checkpoint lags {lag_us / 1e6} s" if lag_us > 1_000_000 else None


@pytest.mark.parametrize("first", seeds([0, EACH], of=range(0, 50, EACH)))
@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_short_chaos(variant, first):
    """8 s of faults, 27 s in all."""
    found = {
        seed: judge(variant, seed, over_us=8_000_000, until_us=27_000_000, ttl_us=3_000_000)
        for seed in range(first, first + EACH)
    }
    assert {seed: bad for seed, bad in found.items() if bad} == {}


@pytest.mark.soak
@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_long_chaos(variant):
    """20 s of faults, 45 s in all, 150 seeds."""
    found = {s: judge(variant, s, over_us=20_000_000, until_us=45_000_000, ttl_us=5_000_000) for s in range(150)}
    assert {seed: bad for seed, bad in found.items() if bad} == {}


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_many_captures(variant):
    """20 of them: every step has so many messages that they travel as stretches, also those to and from etcd."""
    run = simulate(SchedulerSettings(variant=variant, captures=20, tables=60), until_us=6_000_000, level="nothing")
    assert run.violation is None and us_of(run.kernel.states["etcd"].checkpoint_ts) > 5_000_000


@pytest.mark.parametrize("end", ["all are drained", "the others are gone"])
def test_a_drain_strands_no_table(end):
    """Where every capture that is left is to be without tables, they take them again rather than none."""
    drained, gone = ((1, 2, 3), ()) if end == "all are drained" else ((1, 2), (3,))
    asked = [Ask(3_000_000 + 60_000 * n, f"capture-{at}", Drain(f"capture-{n}")) for n in drained for at in (1, 2, 3)]
    faults = [*asked, *(Crash(8_000_000, f"capture-{n}") for n in gone)]
    run = simulate(SchedulerSettings(captures=3, tables=6), faults=faults, until_us=30_000_000, level="nothing")
    assert run.violation is None
    alive = [s for a, s in run.kernel.states.items() if a != ETCD and a not in run.kernel.down]
    tables = [k for s in alive for k in s.processor.executor.pipelines]
    assert sorted(tables) == [1, 2, 3, 4, 5, 6]
    assert us_of(run.kernel.states[ETCD].checkpoint_ts) > 29_000_000


def test_a_move_of_a_table_that_is_dropped_on_its_way_is_forgotten():
    """It would be refused ever after, as moving already; and one that comes again would go where the former went."""
    drop = Ask(2_600_000, ETCD, Ddl(drop=(1,), takes_us=300_000))
    asked = [Ask(3_000_000, f"capture-{at}", MoveTable(1, "capture-3")) for at in (1, 2, 3)]
    run = simulate(SchedulerSettings(captures=3, tables=6), faults=[drop, *asked], until_us=8_000_000)
    owners = [s.owner for a, s in run.kernel.states.items() if a != ETCD and s.owner is not None]
    assert [dict(owner.moves) for owner in owners] == [{}]
    because = [r.because for r in run.kernel.recorder.rows if r.kind == "decided" and r.subject == "move:1"]
    assert because == ["a user wants it there", "first it is removed from capture-1", "it is no longer wanted"]
