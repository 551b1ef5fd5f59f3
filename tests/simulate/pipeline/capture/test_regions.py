"""Regions move, split and merge, stores fall silent: nothing is lost, and what is pulled again is harmless."""

from __future__ import annotations

import pytest
from scripted import MS, Txn, World, history, regions, row, told, truth

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Crash, Pause
from ticdc_lab.simulate.pipeline.observed import capture_facts
from ticdc_lab.simulate.pipeline.settings import CaptureSettings
from ticdc_lab.simulate.pipeline.tables import key_of

BEFORE = regions((1,), ["tikv-1"], per_table=1)
LEADER_CHANGE = tuple(r._replace(leader="tikv-2") for r in BEFORE)
SPLIT = tuple(
    part
    for r in BEFORE
    for part in (
        (r._replace(end=key_of(1, 10), epoch=2), r._replace(id=99, start=key_of(1, 10), epoch=2, leader="tikv-2"))
        if r.start == key_of(1, 0)
        else (r,)
    )
)
CHANGES = {
    "leader change": [(0, BEFORE), (1000 * MS, LEADER_CHANGE)],
    "split": [(0, BEFORE), (1000 * MS, SPLIT)],
    "merge": [(0, SPLIT), (1000 * MS, tuple(r._replace(epoch=r.epoch + 2) for r in BEFORE))],
    "there and back": [(0, BEFORE), (800 * MS, SPLIT), (1200 * MS, LEADER_CHANGE), (1600 * MS, BEFORE)],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("pd_late_us", [0, 300 * MS])
def test_nothing_is_lost_when_regions_change(change, pd_late_us):
    """Each part of a span continues from its own resolved_ts, also while PD does not know the change yet."""
    txns = history((1,), 2900)
    world = World((1,), txns, CHANGES[change], stores=2, pd_late_us=pd_late_us, audited=False).run(3000)
    assert world.end.violation is None
    checkpoint_ts = world.state().checkpoint_ts
    assert checkpoint_ts > ts_of(2_500_000)
    assert truth(txns, checkpoint_ts) <= told(world.downstream.changes()) <= truth(txns, 1 << 62)
    (table,) = capture_facts(world.state()).tables
    spans = [(s.start, s.end) for s in table.streams]
    assert [a for a, _ in spans] == [key_of(1, 0), *(b for _, b in spans[:-1])] and spans[-1][1] == key_of(2, 0)


def test_rows_after_resolved_ts_are_pulled_again_after_a_leader_change():
    """Architecture model 6, case 1: they are in the puller already and come once more, which changes nothing."""
    lock = Txn(900 * MS, 1500 * MS, ((key_of(1, 19), row(19, 0), None),))
    txns = [*history((1,), 2900, keys=15), lock]
    world = World((1,), txns, CHANGES["leader change"], stores=2, audited=False).run(3000)
    changes = world.downstream.changes()
    assert truth(txns, world.state().checkpoint_ts) <= told(changes)
    again = len(changes) - len(told(changes))
    assert again >= 5
    assert len({(c.commit_ts, c.key, c.after) for c in changes}) == len(told(changes))


@pytest.mark.parametrize("fault", [Crash(1000 * MS, "tikv-1"), Pause(1000 * MS, "tikv-1", 3_500 * MS)])
def test_a_silent_store_is_left_for_the_new_leader(fault):
    """After retry_us without a word PD is asked again; the regions continue from their own resolved_ts."""
    txns = history((1,), 5500)
    layout = [(0, BEFORE), (1500 * MS, LEADER_CHANGE)]
    world = World((1,), txns, layout, stores=2, faults=[fault], audited=False).run(6000)
    assert world.end.violation is None
    assert truth(txns, world.state().checkpoint_ts) <= told(world.downstream.changes())
    assert world.state().checkpoint_ts > ts_of(5_000_000)
    because = [r.because for r in world.recorder.rows if r.subject == "table-path:1"]
    assert any("silent" in b for b in because)


def test_no_more_regions_are_scanned_at_once_than_allowed():
    """The others wait; the region of the DDL jobs does not."""
    tables = (1, 2, 3, 4)
    world = World(
        tables,
        history(tables, 400),
        settings=CaptureSettings(incremental_scan_concurrency=2),
        store={"scan_us": 40_000},
    ).run(700)
    scanning = most = 0
    for r in world.recorder.rows:
        if str(r.subject).startswith("table-path:"):
            scanning += (r.after == "scanning") - (r.before == "scanning")
            most = max(most, scanning)
    assert most == 2 and scanning == 0
    assert all(p.puller.initialized for p in world.state().paths.values())


def test_a_rolled_back_transaction_never_comes():
    """And neither does one that is still open, below which resolved_ts stays."""
    done = [Txn(500 * MS, 600 * MS, ((key_of(1, 1), row(1, 1), None),))]
    rolled_back = Txn(550 * MS, None, ((key_of(1, 2), row(2, 2), None),), 700 * MS)
    still_open = Txn(1000 * MS, None, ((key_of(1, 3), row(3, 3), None),))
    late = Txn(1100 * MS, 1200 * MS, ((key_of(1, 4), row(4, 4), None),))
    world = World((1,), [*done, rolled_back, still_open, late]).run(2000)
    assert told(world.downstream.changes()) == truth(done, 1 << 62)
    assert world.state().checkpoint_ts == ts_of(1000 * MS)
    assert capture_facts(world.state()).tables[0].unmatched == 1
