"""One capture, nothing goes wrong: every row once, whole, in order, and the checkpoint behind it."""

from __future__ import annotations

from scripted import START_TS, World, history, told, truth

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.pipeline.sink_messages import Resolved, Write


def test_every_committed_row_comes_downstream_once_and_in_commit_order():
    """And the persisted checkpoint follows, with nothing at or below it missing."""
    txns = history((1, 2), 2900)
    world = World((1, 2), txns).run(3000)
    assert world.end.violation is None
    changes = world.downstream.changes()
    checkpoint_ts = world.state().checkpoint_ts
    assert checkpoint_ts > ts_of(2_500_000)
    assert truth(txns, checkpoint_ts) <= told(changes) <= truth(txns, 1 << 62)
    assert len(changes) == len(told(changes)) > 700
    for table in (1, 2):
        own = [c.commit_ts for w in world.downstream.of(Write) if w.table == table for c in w.changes]
        assert own == sorted(own)
    resolved = [m.ts for m in world.downstream.of(Resolved)]
    assert resolved == sorted(set(resolved)) and resolved[-1] == checkpoint_ts > START_TS
