"""Each planted bug is seen by the checks, in a world in which the code without it passes."""

from __future__ import annotations

import planted_pipeline as mutants
import pytest
from checks import broken
from scripted import MS, Downstream, Txn, World, ddl, history, regions, row
from test_capture_ddl import ADD
from test_regions import BEFORE, LEADER_CHANGE, SPLIT

from ticdc_lab.simulate.faults import Ask, Crash, Part, Relink, Restart
from ticdc_lab.simulate.network import Link
from ticdc_lab.simulate.pipeline.settings import AT_MOST_ONCE, MQ, CaptureSettings
from ticdc_lab.simulate.pipeline.tables import key_of
from ticdc_lab.simulate.scheduler.roles import MoveTable

TWO = [(0, regions((1, 2), ["tikv-1", "tikv-2"]))]
OPEN = [Txn((900 + 40 * i) * MS, (990 + 40 * i) * MS, ((key_of(1, 15), row(15, i), None),)) for i in range(20)]


def plain(**more):
    """One table on two stores; one is slow to report."""
    slow = [Relink(500 * MS, "tikv-2", "capture-1", Link((300 * MS, 300 * MS)))]
    layout = [(0, regions((1,), ["tikv-1", "tikv-2"]))]
    return World((1,), history((1,), 2900, keys=15), layout, stores=2, audited=False, faults=slow, **more)


def of_regions(after, **more):
    """One table whose region changes at 1 s."""
    txns = [*history((1,), 2900, keys=15), *OPEN]
    return World((1,), txns, [(0, BEFORE), (1000 * MS, after)], stores=2, audited=False, **more)


def with_ddl(**more):
    """A column is added at 1.5 s."""
    return World((1, 2), [*history((1, 2), 2900), ddl(1500, ADD)], TWO, stores=2, audited=False, **more)


def cut(until_us, *faults):
    """Nothing of capture-2 comes downstream from 1.2 s on; it is gone before the connection is back."""
    return [
        Part(1200 * MS, "capture-2", "downstream", for_us=until_us - 1200 * MS),
        Crash(until_us - 100 * MS, "capture-2"),
        Restart(until_us - 50 * MS, "capture-2"),
        *faults,
    ]


def cut_crash(**more):
    """What it has sent is lost with it."""
    txns = history((1, 2), 8900, every_ms=17)
    return World((1, 2), txns, TWO, stores=2, captures=2, audited=False, faults=cut(1700 * MS), **more)


def cut_move(**more):
    """Its table moves before that (v3: from where it shows that it has come to)."""
    faults = cut(2200 * MS, Ask(1450 * MS, "capture-1", MoveTable(2, "capture-1")))
    txns = history((1, 2), 8900, every_ms=17)
    return World((1, 2), txns, TWO, stores=2, captures=2, variant="v3", audited=False, faults=faults, **more)


def late_jobs(**more):
    """The owner hears nothing of the DDL jobs for a while; the table is on the other capture."""
    meta = tuple(r._replace(leader="tikv-2" if not r.start else "tikv-1") for r in regions((1,), ["tikv-1"]))
    faults = [
        Ask(800 * MS, "capture-1", MoveTable(1, "capture-2")),
        Part(1300 * MS, "tikv-2", "capture-1", for_us=900 * MS),
    ]
    txns = [*history((1,), 2900), ddl(1500, ADD)]
    return World((1,), txns, [(0, meta)], stores=2, captures=2, audited=False, faults=faults, **more)


def at_most_once(**more):
    """Two tables, each capture at its own pace (MQ), the checkpoint first."""
    settings = CaptureSettings(semantics=AT_MOST_ONCE, rule=MQ)
    return World((1, 2), history((1, 2), 2900), TWO, stores=2, audited=False, settings=settings, **more)


def slow_sink(**more):
    """One row at a time, each acknowledged late."""
    settings = CaptureSettings(sink_batch_rows=1, sink_window_rows=1)
    slow = Downstream(takes_us=30 * MS)
    return World((1,), history((1,), 1900), audited=False, settings=settings, downstream=slow, **more)


WORLDS = {
    mutants.FRONTIER_MAX: plain,
    mutants.FORGETS_PART: lambda **more: of_regions(SPLIT, **more),
    mutants.DROPS_EARLY_COMMIT: lambda **more: of_regions(LEADER_CHANGE, store={"scan_us": 60 * MS}, **more),
    mutants.FROM_NOW: lambda **more: of_regions(LEADER_CHANGE, pd_late_us=100 * MS, **more),
    mutants.EMITS_UNRESOLVED: plain,
    mutants.NEWEST_SCHEMA: with_ddl,
    mutants.SENT_IS_WRITTEN: cut_crash,
    mutants.DDL_BEFORE_BARRIER: with_ddl,
    mutants.SKIPS_DDL_PULLER: late_jobs,
    mutants.STOP_LOSES_ROWS: cut_move,
    mutants.PASSES_RESOLVED: at_most_once,
    mutants.MARKS_RESOLVED: slow_sink,
}


def test_each_mutant_has_a_world():
    """None is planted for nothing."""
    assert set(WORLDS) == set(mutants.CAPTURE)


@pytest.mark.parametrize("mutant", mutants.CAPTURE)
def test_the_checks_catch_each_mutant(mutant):
    """The same world is clean without it."""
    until_ms = 9500 if WORLDS[mutant] in (cut_crash, cut_move) else 4000
    assert broken(WORLDS[mutant]().run(until_ms)) == []
    with mutants.planted(mutant):
        assert broken(WORLDS[mutant]().run(until_ms))
