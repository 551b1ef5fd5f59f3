"""The last mark before an event, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from ticdc_lab.audit.marks import Marks
from ticdc_lab.events.arrays import NO_TS


@pytest.mark.parametrize("far", [10**12, 2**62 + 1])
@pytest.mark.parametrize("seed", range(20))
def test_the_last_rising_mark_before_an_event_is_found(seed: int, far: int) -> None:
    """Groups, equal offsets with several seq, far offsets and falling marks are distinguished."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 40))
    group, seq, ts = (rng.integers(0, 3, n) for _ in range(3))
    offset = rng.choice([0, 1, 2, 3, far], n)
    where, at, place = (
        rng.integers(0, 4, 200),
        rng.choice([0, 1, 2, 3, 4, far - 1, far, 2**63 - 1], 200),
        rng.integers(0, 4, 200),
    )
    marks = Marks.rising(group, offset, seq, ts)
    found = marks.last_before(where, at, place)
    for g, o, s, i in zip(where, at, place, found, strict=True):
        before = [t for a, b, c, t in zip(group, offset, seq, ts, strict=True) if a == g and (b, c) < (o, s)]
        assert (marks.ts[i] if i >= 0 else None) == max(before, default=None)
    known = np.where(found >= 0, marks.ts[found] if n else 0, NO_TS)
    bound = marks.bound(where, at) if n else known
    assert (bound >= known).all()
    least = {g: min(b for a, b in zip(group, offset, strict=True) if a == g) for g in group}
    early = [g not in least or o < least[g] for g, o in zip(where, at, strict=True)]
    assert (bound[early] == NO_TS).all()


def test_most_events_need_no_search() -> None:
    """With a mark every hundred offsets few events are in a block that a newer mark begins."""
    at = np.arange(0, 100_000, 100)
    marks = Marks.rising(np.zeros_like(at), at, np.zeros_like(at), at)
    events = np.arange(100_000)
    home = np.zeros_like(events)
    exact = marks.ts[marks.last_before(home, events, home + 1)]
    assert (marks.bound(home, events) == exact).mean() > 0.8
