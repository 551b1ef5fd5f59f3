"""Tables move between captures: by users, crashes and lost sessions, under every protocol; no row is lost."""

from __future__ import annotations

import pytest
from scripted import MS, START_TS, Downstream, World, history, regions, told, truth

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Ask, Crash, Part, Restart
from ticdc_lab.simulate.pipeline.settings import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    BY_SNAPSHOT,
    BY_TABLE,
    MQ,
    CaptureSettings,
)
from ticdc_lab.simulate.pipeline.sink_messages import Begin, Publish, Write
from ticdc_lab.simulate.scheduler.capture import Stick
from ticdc_lab.simulate.scheduler.roles import MoveTable
from ticdc_lab.simulate.scheduler.roles import Restart as RestartProcessor

TABLES = (1, 2, 3, 4)
LAYOUT = [(0, regions(TABLES, ["tikv-1", "tikv-2"]))]
FAULTS = {
    "move": [
        Ask(2000 * MS, "capture-1", MoveTable(1, "capture-2")),
        Ask(3000 * MS, "capture-1", MoveTable(3, "capture-2")),
    ],
    "crash of the owner": [Crash(2000 * MS, "capture-1"), Restart(4000 * MS, "capture-1")],
    "crash of another": [Crash(2000 * MS, "capture-2"), Restart(4000 * MS, "capture-2")],
    "session lost": [Part(2000 * MS, "capture-2", "etcd", for_us=8_000_000)],
    "processor restarts": [Ask(2000 * MS, "capture-2", RestartProcessor())],
}


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_row_is_lost_when_tables_move(variant, fault):
    """At least once: what is at or below the persisted checkpoint is downstream, no matter which capture wrote it."""
    txns = history(TABLES, 9900, every_ms=23)
    world = World(TABLES, txns, LAYOUT, captures=2, stores=2, variant=variant, faults=FAULTS[fault]).run(10_000)
    assert world.end.violation is None, world.end.violation
    assert world.checkpoints() == sorted(world.checkpoints())
    checkpoint_ts = max(world.checkpoints())
    assert checkpoint_ts > ts_of(9_000_000)
    assert truth(txns, checkpoint_ts) <= told(world.downstream.changes())
    writers = {sender for _, sender, m in world.downstream.got if isinstance(m, Write)}
    assert len(writers) >= 2


def first_seen_in_order(world):
    """Whether each key's changes come for the first time in commit order."""
    newest, seen = {}, set()
    for c in world.downstream.changes():
        if (c.commit_ts, c.key) not in seen and c.commit_ts < newest.get(c.key, 0):
            return False
        seen.add((c.commit_ts, c.key))
        newest[c.key] = max(c.commit_ts, newest.get(c.key, 0))
    return True


@pytest.mark.parametrize("fault", FAULTS)
def test_each_keys_changes_come_for_the_first_time_in_commit_order(fault):
    """MQ design, constraint 1.3, by its optimised rule."""
    txns = history(TABLES, 6900, every_ms=17)
    settings = CaptureSettings(rule=MQ)
    world = World(TABLES, txns, LAYOUT, captures=2, stores=2, settings=settings, faults=FAULTS[fault]).run(7000)
    assert first_seen_in_order(world)
    assert truth(txns, max(world.checkpoints())) <= told(world.downstream.changes())


def test_at_most_once_repeats_nothing_and_loses_what_was_published_and_not_sent():
    """The checkpoint is persisted first: a crash between loses rows, and no row ever comes twice."""
    txns = history(TABLES, 7900, every_ms=17)
    settings = CaptureSettings(semantics=AT_MOST_ONCE)
    for at_ms in range(1990, 2050, 10):
        faults = [Crash(at_ms * MS, "capture-2"), Part(1900 * MS, "etcd", "capture-2", for_us=100_000)]
        world = World(TABLES, txns, LAYOUT, captures=2, stores=2, settings=settings, faults=faults, audited=False).run(
            8000
        )
        changes = world.downstream.changes()
        assert len(changes) == len(told(changes))
        lost = truth(txns, max(world.checkpoints()) - (100 << 18)) - told(changes)
        if lost:
            break
    assert 0 < len(lost) < 200


def test_without_faults_at_most_once_loses_nothing():
    """What is published is sent as soon as the capture hears of it."""
    txns = history(TABLES, 3900, every_ms=11)
    world = World(TABLES, txns, LAYOUT, stores=2, settings=CaptureSettings(semantics=AT_MOST_ONCE)).run(4000)
    changes = world.downstream.changes()
    assert truth(txns, ts_of(3_500_000)) <= told(changes) and len(changes) == len(told(changes))
    for at_us, _, message in world.downstream.got:
        if isinstance(message, Write):
            published = [
                int(r.after) for r in world.recorder.rows if r.subject == "global-checkpoint" and r.time_us < at_us
            ]
            assert max(c.commit_ts for c in message.changes) <= published[-1]
            break


@pytest.mark.parametrize("fault", FAULTS)
def test_snapshots_show_every_row_exactly_once(fault):
    """Staged rows become visible with the checkpoint; what a former writer staged above the start is void."""
    txns = history(TABLES, 7900, every_ms=17)
    settings = CaptureSettings(semantics=BY_SNAPSHOT)
    world = World(TABLES, txns, LAYOUT, captures=2, stores=2, settings=settings, faults=FAULTS[fault]).run(8000)
    staged: dict[int, list] = {t: [] for t in TABLES}
    writer: dict[int, str] = {}
    visible = []
    for _, sender, m in world.downstream.got:
        if isinstance(m, Begin):
            writer[m.table] = sender
            staged[m.table] = [c for c in staged[m.table] if c.commit_ts <= m.start_ts]
        elif isinstance(m, Write) and writer[m.table] == sender:
            staged[m.table] += m.changes
        elif isinstance(m, Publish) and writer[m.table] == sender:
            visible += [c for c in staged[m.table] if c.commit_ts <= m.checkpoint_ts]
            staged[m.table] = [c for c in staged[m.table] if c.commit_ts > m.checkpoint_ts]
    assert len(visible) == len(told(visible))
    assert truth(txns, max(world.checkpoints()) - (100 << 18)) <= told(visible)


def test_a_stuck_sink_takes_nothing_until_it_is_free():
    """The scheduler's fault stops the table and with it the checkpoint; the others continue (MQ, each
    table by itself).
    """
    txns = history(TABLES, 3900, every_ms=11)
    faults = [Ask(1000 * MS, "capture-1", Stick(2)), Ask(2500 * MS, "capture-1", Stick(2, free=True))]
    settings = CaptureSettings(rule=MQ, semantics=AT_LEAST_ONCE, order=BY_TABLE)
    world = World(TABLES, txns, LAYOUT, stores=2, settings=settings, faults=faults).run(4000)
    times = [at for at, _, m in world.downstream.got if isinstance(m, Write) and m.table == 2]
    assert not [at for at in times if 1_010_000 < at < 2_490_000] and max(times) > 3_800_000
    assert [at for at, _, m in world.downstream.got if isinstance(m, Write) and m.table == 1 and 2e6 < at < 2.4e6]
    assert truth(txns, max(world.checkpoints())) <= told(world.downstream.changes())
    assert max(world.checkpoints()) > ts_of(3_700_000) > START_TS


def test_writes_without_an_answer_are_sent_again_in_order():
    """A downstream that was deaf has everything in the end; the checkpoint waited for it."""
    txns = history((1,), 5900)
    world = World((1,), txns, downstream=Downstream(deaf_us=(1_000_000, 1_500_000))).run(6000)
    assert truth(txns, max(world.checkpoints())) <= told(world.downstream.changes())
    assert max(world.checkpoints()) > ts_of(5_500_000)
    assert any(r.kind == "decided" and r.after == "write again" for r in world.recorder.rows)
