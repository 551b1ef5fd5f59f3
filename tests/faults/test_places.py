"""Where messages lie in a log with a fault, without Spark."""

from __future__ import annotations

import random

from ticdc_lab.faults.plan import PartitionLayout


def test_a_place_that_is_told_is_the_place_to_which_the_message_is_moved() -> None:
    """The findings that are expected, and the join that moves messages, count alike; no two share an offset."""
    assert PartitionLayout((), ((10, 5), (20, 1))).moved(10) == 11
    for seed in range(200):
        r = random.Random(seed)
        closed = tuple(sorted(r.sample(range(20), r.randrange(4))))
        puts = tuple(sorted((r.randrange(21), i) for i in r.sample(range(9), r.randrange(5))))
        layout = PartitionLayout(closed, puts)
        kept = [o for o in range(20) if o not in closed]
        for o in kept:
            assert layout.moved(o) == o + sum(s["by"] for s in layout.steps() if s["at"] <= o), f"seed {seed}"
        places = [layout.moved(o) for o in kept] + [layout.put(i) for _, i in puts]
        assert sorted(places) == list(range(len(places))), f"seed {seed}"
