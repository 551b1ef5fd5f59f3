"""Stretches of repeats in one partition: where they begin and end, and what they go back to. No Spark."""

from __future__ import annotations

import numpy as np
import pytest

from ticdc_lab.consumer.episodes import CHANGE, WATERMARK, Deliveries, PartitionBefore, cut, episodes
from ticdc_lab.events.arrays import NO_TS


def partition(*events: tuple[int, int] | int) -> Deliveries:
    """A number is a watermark, a pair the commit_ts and the identity of a change."""
    seen: dict[int, int] = {}
    rows = []
    for offset, e in enumerate(events):
        if isinstance(e, int):
            rows.append((WATERMARK, offset, e, 0, 0))
        else:
            seen[e[1]] = seen.get(e[1], 0) + 1
            rows.append((CHANGE, offset, e[0], e[1], seen[e[1]]))
    return Deliveries(*np.array(rows, dtype=np.int64).T)


def found(d: Deliveries, before: PartitionBefore | None = None):
    """Offsets, checkpoint, pending changes and whether the watermark was stated again, per stretch."""
    return [
        (d.offset[e.at].tolist(), e.checkpoint, e.pending, e.restated) for e in episodes(d, before or PartitionBefore())
    ]


A, B, C = (11, 1), (12, 2), (13, 3)


def test_a_log_without_repeats_has_no_stretch() -> None:
    """New changes and watermarks, also repeated ones, are no replay."""
    assert found(partition(10, A, B, 10, C, 20, 20)) == []


def test_a_replay_goes_back_to_the_checkpoint_below_all_it_repeats() -> None:
    """The design's example: 1, 2, 3, 4, then 2, 3, 4 again; the watermark that was stated before it counts."""
    assert found(partition(10, A, B, C, A, B, C, 20)) == [([4, 5, 6], 10, 3, False)]
    assert found(partition(10, A, B, 10, A, B)) == [([4, 5], 10, 2, True)]
    assert found(partition(A, B, B)) == [([2], NO_TS, 2, False)]


def test_a_replay_from_below_the_watermark_went_back_further() -> None:
    """What it repeats shows how far back it went, not the watermark that is before it."""
    assert found(partition(5, A, 11, B, 12, A, B)) == [([5, 6], 5, 0, False)]


def test_a_stretch_ends_with_a_new_change_a_rising_watermark_and_a_third_delivery() -> None:
    """Each begins a new one; a repeated watermark does not."""
    assert [e[0] for e in found(partition(10, A, B, A, C, B))] == [[3], [5]]
    assert [e[0] for e in found(partition(5, A, B, A, 6, B))] == [[3], [5]]
    assert [e[0] for e in found(partition(10, A, B, A, 10, B))] == [[3, 5]]
    assert [e[0] for e in found(partition(10, A, B, A, B, A, B))] == [[3, 4], [5, 6]]


@pytest.mark.parametrize("first", range(1, 14))
def test_parts_give_what_the_whole_gives(first: int) -> None:
    """Read in two parts, split where a stretch cannot continue, nothing changes."""
    d = partition(10, A, B, 10, A, B, C, 20, (21, 4), (22, 5), (21, 4), 20, (22, 5), 30)
    end = cut(d[:first], PartitionBefore())
    before = PartitionBefore().then(d[:end])
    assert found(d[:end]) + found(d[end:], before) == found(d)
