"""The sorter: bounded memory, runs on disk, and one order out of any order in."""

from __future__ import annotations

import random

import pytest

from ticdc_lab.simulate.pipeline.capture.mounter import added, in_memory, on_disk, taken
from ticdc_lab.simulate.pipeline.capture.state import DELETE, INSERT, UPDATE, Sorter


def row(commit_ts, key, rank=INSERT, start_ts=None):
    """A matched row."""
    return (commit_ts, commit_ts - 1 if start_ts is None else start_ts, rank, key, 1, None, None)


@pytest.mark.parametrize("memory_rows", [7, 50, 10_000])
@pytest.mark.parametrize("room", [5, 33, 10_000])
def test_rows_come_out_sorted_once_each_and_never_beyond_what_is_resolved(memory_rows, room):
    """What fits into memory, and no matter how many are taken at once."""
    chance = random.Random(memory_rows * room)
    sorter, out, waiting = Sorter(0), [], []
    for step in range(60):
        batch = [row(step * 10 + chance.randrange(1, 60), chance.randrange(1000)) for _ in range(chance.randrange(30))]
        batch = [r for r in batch if r[0] > step * 10]
        waiting += batch
        sorter = added(sorter, batch, memory_rows)
        assert in_memory(sorter) <= memory_rows
        sorter, found = taken(sorter, step * 10, room)
        assert all(r[0] <= step * 10 for r in found)
        out += found
        assert in_memory(sorter) + on_disk(sorter) == len(waiting) - len(out)
    while in_memory(sorter) + on_disk(sorter):
        sorter, found = taken(sorter, 10_000, room)
        assert found
        out += found
    assert out == sorted(waiting)
    assert (sorter.spilled > 0) == (memory_rows < 1000)
    assert not sorter.runs


def test_a_transaction_leaves_whole_and_drained_ts_is_below_what_is_left():
    """Also one that is larger than the room."""
    sorter = added(Sorter(0), [row(5, k) for k in range(10)] + [row(6, 1)], 100)
    sorter, found = taken(sorter, 9, 4)
    assert len(found) == 10 and sorter.drained_ts == 5
    sorter, _ = taken(sorter, 9, 100)
    assert sorter.drained_ts == 9
    assert taken(sorter, 8, 100)[0].drained_ts == 9


def test_a_row_that_comes_again_goes_out_again_and_one_that_is_not_due_is_not_looked_at():
    """A region that is pulled again sends what lies below what has gone out, behind newer rows of others."""
    sorter, _ = taken(added(Sorter(0), [row(5, 1)], 100), 9, 100)
    newer = added(sorter, [row(12, 2)], 100)
    assert taken(newer, 9, 100) == (newer, [])
    again, found = taken(added(newer, [row(11, 3), row(5, 1)], 100), 9, 100)
    assert found == [row(5, 1)] and in_memory(again) == 2
    assert taken(again, 12, 100)[1] == [row(11, 3), row(12, 2)]


def test_deletes_of_a_transaction_come_before_updates_before_inserts():
    """And transactions of one commit_ts one after another."""
    rows = [
        row(5, 1, INSERT, 2),
        row(5, 2, UPDATE, 2),
        row(5, 3, DELETE, 2),
        row(5, 4, DELETE, 3),
        row(5, 5, INSERT, 1),
    ]
    _, found = taken(added(Sorter(0), rows, 100), 5, 100)
    assert [r[3] for r in found] == [5, 3, 2, 1, 4]
