"""The server side of Percolator: locks, conflicts, repeated and late commands, rollback protection, old values, GC."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_lab.simulate.pipeline.cdc_messages import KvRow
from ticdc_lab.simulate.pipeline.kv_messages import (
    DELETE,
    PUT,
    ROLLBACK,
    Commit,
    Gone,
    KeyIsLocked,
    Mutation,
    Prewrite,
    Rollback,
    WriteConflict,
)
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, Raw
from ticdc_lab.simulate.pipeline.tikv.percolator import RegionDraft, commit, prewrite, rollback
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, inserted, part_of, records, united

DO = {Prewrite: prewrite, Commit: commit, Rollback: rollback}


class Region:
    """A region and what was observed of it."""

    def __init__(self):
        self.data, self.rows = Data(1, FIRST, LAST, 1, ("tikv-1",)), []

    def do(self, command):
        """Try a command; give the refusal."""
        draft = RegionDraft(self.data)
        refusal = DO[type(command)](draft, command)
        after = draft.finished()
        if refusal is not None:
            assert state(after) == state(self.data), "a refused command has no effect"
            assert draft.rows == []
        self.data = after
        self.rows += draft.rows
        return refusal

    def prewrite(self, start_ts, *keys, op=PUT):
        return self.do(Prewrite(1, 1, start_ts, keys[0], tuple(Mutation(k, op, value(start_ts, op)) for k in keys)))

    def commit(self, start_ts, commit_ts, *keys):
        return self.do(Commit(1, 1, start_ts, commit_ts, keys))

    def rollback(self, start_ts, *keys):
        return self.do(Rollback(1, 1, start_ts, keys))


def value(start_ts, op=PUT):
    """Each transaction writes its start_ts."""
    return Raw((1,), (start_ts,)) if op == PUT else None


def state(data):
    """All that a region holds, to compare."""
    chains = {k: tuple(r[:3] for r in records(w)) for k, w in data.write.items()}
    return {k: lock[:3] for k, lock in data.locks.items()}, values(data), chains


def values(data):
    """What the default column family holds: by key and start_ts."""
    found = {(k, start_ts): v for k, (start_ts, _, _, v) in data.locks.items()}
    found |= {(k, r[1]): r[4] for k, w in data.write.items() for r in records(w)}
    return {place: v for place, v in found.items() if v is not None}


def test_a_prewrite_locks_and_a_commit_writes():
    """The lock becomes a write record; its value goes along; the observer sees both, the first with values."""
    region = Region()
    assert region.prewrite(5, 1, 2) is None
    assert state(region.data) == ({1: (5, 1, PUT), 2: (5, 1, PUT)}, {(1, 5): value(5), (2, 5): value(5)}, {})
    assert region.commit(5, 8, 1) is None
    locks, default, chains = state(region.data)
    assert (locks, chains) == ({2: (5, 1, PUT)}, {1: ((8, 5, PUT),)})
    assert default == {(1, 5): value(5), (2, 5): value(5)}
    assert region.rows == [
        KvRow("prewrite", 1, 5, 0, PUT, value(5), None),
        KvRow("prewrite", 2, 5, 0, PUT, value(5), None),
        KvRow("commit", 1, 5, 8),
    ]


def test_a_locked_key_refuses_others():
    """The refusal names the holder; no key of the refused command is locked."""
    region = Region()
    region.prewrite(5, 1)
    assert region.prewrite(6, 2, 1) == KeyIsLocked(1, 5, 1)
    assert 2 not in region.data.locks


def test_what_was_committed_since_it_began_is_a_conflict():
    """A transaction that began before the commit is refused, one that began after it is not."""
    region = Region()
    region.prewrite(5, 1)
    region.commit(5, 8, 1)
    assert region.prewrite(7, 1) == WriteConflict(1, 8)
    assert region.prewrite(9, 1) is None


def test_repeated_commands_change_nothing():
    """A prewrite, a commit and a rollback may come twice; a prewrite also after its commit."""
    region = Region()
    for again in (region.prewrite, region.prewrite):
        assert again(5, 1, 2) is None
    assert len(region.rows) == 2
    for _ in range(2):
        assert region.commit(5, 8, 1, 2) is None
    assert region.prewrite(5, 1, 2) is None
    assert len(region.rows) == 4 and not region.data.locks
    region.prewrite(9, 1)
    for _ in range(2):
        assert region.rollback(9, 1) is None
    assert [r[:3] for r in records(region.data.write[1])] == [(9, 9, ROLLBACK), (8, 5, PUT)]


def test_a_repeated_prewrite_locks_what_is_missing():
    """Where one key of it is locked already, only the others are."""
    region = Region()
    region.prewrite(5, 1)
    assert region.prewrite(5, 1, 2, 3) is None
    assert sorted(region.data.locks) == [1, 2, 3]


def test_a_rollback_takes_the_value_away_and_protects_against_a_late_prewrite():
    """Also where the prewrite never came; the observer hears of it only where it had heard of a prewrite."""
    region = Region()
    region.prewrite(5, 1)
    assert region.rollback(5, 1, 2) is None
    assert not region.data.locks and not values(region.data)
    assert region.rows[1:] == [KvRow("rollback", 1, 5)]
    assert region.prewrite(5, 1) == Gone(5)
    assert region.prewrite(5, 2) == Gone(5)
    assert region.commit(5, 8, 1) == Gone(5)


def test_a_commit_without_a_lock_is_gone():
    """Nothing was prewritten, or another transaction holds the lock."""
    region = Region()
    assert region.commit(5, 8, 1) == Gone(5)
    region.prewrite(6, 1)
    assert region.commit(5, 8, 1) == Gone(5)


def test_what_is_committed_is_not_rolled_back():
    """The refusal names the commit_ts of the transaction itself."""
    region = Region()
    region.prewrite(5, 1)
    region.commit(5, 8, 1)
    assert region.rollback(5, 1) == WriteConflict(1, 8)


def test_a_rollback_record_is_no_conflict():
    """A later transaction that was rolled back is not in the way of an earlier one, and sorts above it."""
    region = Region()
    region.rollback(9, 1)
    assert region.prewrite(5, 1) is None
    assert region.commit(5, 8, 1) is None
    assert [r[:3] for r in records(region.data.write[1])] == [(9, 9, ROLLBACK), (8, 5, PUT)]


@pytest.mark.parametrize(("op", "expected"), [(PUT, value(5)), (DELETE, None)])
def test_old_value_is_that_of_the_newest_version(op, expected):
    """A rollback above it does not hide it; a deleted row has none."""
    region = Region()
    region.prewrite(5, 1, op=op)
    region.commit(5, 6, 1)
    region.rollback(7, 1)
    region.prewrite(8, 1)
    assert region.rows[-1].old_value == expected


@given(st.lists(st.integers(0, 50), unique=True))
def test_write_records_are_sorted(found):
    """In any order."""
    chain = None
    for ts in found:
        chain = inserted(chain, ts, ts, PUT)
    assert [r[0] for r in records(chain)] == sorted(found, reverse=True)


STEP = st.tuples(
    st.sampled_from(["prewrite", "commit", "rollback"]), st.integers(0, 5), st.sets(st.integers(0, 3), min_size=1)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_no_order_of_commands_breaks_a_transaction(steps):
    """A key never is both committed and rolled back; write records do not overlap."""
    region, clock, starts, commits = Region(), 100, {}, {}
    for kind, number, keys in steps:
        clock += 1
        start_ts = starts.setdefault(number, clock)
        if kind == "prewrite":
            region.prewrite(start_ts, *sorted(keys))
        elif kind == "rollback":
            region.rollback(start_ts, *sorted(keys))
        else:
            clock += 1
            region.commit(start_ts, commits.setdefault(number, clock), *sorted(keys))
    for key, newest in region.data.write.items():
        chain = list(records(newest))
        assert [r[0] for r in chain] == sorted((r[0] for r in chain), reverse=True)
        assert len({r[1] for r in chain}) == len(chain), "two records of one transaction"
        written = [r for r in chain if r[2] != ROLLBACK]
        assert all(older[0] < newer[1] for newer, older in itertools.pairwise(written)), "not serial"
        assert all((key, r[1]) in values(region.data) for r in written)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=15), st.integers(0, 4))
def test_parts_united_are_the_whole(steps, at):
    """A split and a merge move every lock, value and version, and lose none."""
    region = Region()
    for n, (kind, number, keys) in enumerate(steps):
        start_ts = 10 * number + 1
        {"prewrite": region.prewrite, "rollback": region.rollback}.get(
            kind, lambda s, *k, n=n: region.commit(s, s + 100 + n, *k)
        )(start_ts, *sorted(keys))
    left, right = part_of(region.data, FIRST, at), part_of(region.data, at, LAST)
    assert all(k < at for k in left.write) and all(k >= at for k in right.locks)
    whole = united(left, right)
    assert state(whole) == state(region.data)
    assert (whole.start, whole.end, whole.epoch) == (FIRST, LAST, 2)
