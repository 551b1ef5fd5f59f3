"""Random runs: messages lost, late and doubled, captures dying, processors restarting, owners switching."""

from __future__ import annotations

import pytest
from exploring import seeds
from planted_schedulers import IGNORE_EPOCH, IGNORE_REVISION, PROMOTE_EARLY, SKIP_UNDETERMINED, V3, planted
from v3_world import Violation, run


@pytest.mark.parametrize("seed", seeds(range(3), of=range(8)))
def test_nobody_writes_what_another_writes_and_all_is_replicated_in_the_end(seed):
    """Safety at every step, also of the checkpoint; every wanted table Replicating once faults have ended."""
    world = run(seed)
    assert world.is_settled() and world.events > 2_000


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(8))
def test_many_seeds(batch):
    """The same for 400 seeds."""
    for seed in range(batch * 50, batch * 50 + 50):
        run(seed)


@pytest.mark.parametrize("mutant", V3)
def test_every_planted_bug_is_caught(mutant):
    """Each of the bugs is found within some seeds, as two writers of one table or as a run that does not settle."""
    caught = []
    for seed in range(40):
        try:
            with planted(mutant):
                run(seed)
        except Violation as violation:
            caught.append(str(violation))
            break
    assert caught
    if mutant in (PROMOTE_EARLY, IGNORE_REVISION, SKIP_UNDETERMINED, IGNORE_EPOCH):
        assert "written by" in caught[0] or "replicates it, and so does" in caught[0]


def test_the_same_seed_gives_the_same_run():
    """Nothing depends on the order of a set or on a clock."""
    first, second = run(3), run(3)
    assert first.said == second.said and first.events == second.events
