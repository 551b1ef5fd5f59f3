"""The matcher: prewrites and commits become rows, no matter what comes first while the region is scanned."""

from __future__ import annotations

from itertools import permutations

import pytest
from planted_pipeline import DROPS_EARLY_COMMIT, planted

from ticdc_lab.simulate.pipeline.capture.kv_client import matched
from ticdc_lab.simulate.pipeline.capture.state import DELETE, INSERT, SCANNING, STREAMING, UPDATE, PulledStream
from ticdc_lab.simulate.pipeline.cdc_messages import COMMIT, COMMITTED, INITIALIZED, PREWRITE, ROLLED_BACK, KvRow
from ticdc_lab.simulate.pipeline.tables import Raw

NEW, OLD = Raw((1,), ("new",)), Raw((1,), ("old",))
END = KvRow(INITIALIZED, 0, 0)


def stream(state=STREAMING):
    """A stream that has request id 9."""
    return PulledStream(9, 1, "tikv-1", 0, 100, state, 0, 0, 0)


def put(key, start_ts, value=NEW, old=None):
    """A lock."""
    return KvRow(PREWRITE, key, start_ts, 0, "delete" if value is None else "put", value, old)


def commit(key, start_ts, commit_ts):
    """A commit of the log."""
    return KvRow(COMMIT, key, start_ts, commit_ts)


def test_a_prewrite_and_its_commit_are_a_row_within_a_batch_and_across_batches():
    """The row has the prewrite's values and the commit's ts; nothing stays behind."""
    both = matched(stream(), (put(5, 10), commit(5, 10, 12)))
    assert both.rows == [(12, 10, INSERT, 5, 9, NEW, None)] and not both.stream.prewrites
    first = matched(stream(), (put(5, 10, NEW, OLD), put(6, 10, None, OLD)))
    assert first.rows == [] and len(first.stream.prewrites) == 2
    second = matched(first.stream, (commit(6, 10, 12), commit(5, 10, 12)))
    assert second.rows == [(12, 10, DELETE, 6, 9, None, OLD), (12, 10, UPDATE, 5, 9, NEW, OLD)]
    assert not second.stream.prewrites and not second.orphans


def test_a_rollback_takes_its_own_prewrite_only():
    """One of another transaction on the key stays."""
    found = matched(stream(), (put(5, 10), KvRow(ROLLED_BACK, 5, 8), KvRow(ROLLED_BACK, 5, 10), put(5, 20)))
    assert [r.start_ts for r in found.stream.prewrites.values()] == [20]
    after = matched(found.stream, (KvRow(ROLLED_BACK, 5, 10), commit(5, 20, 21)))
    assert [row[:2] for row in after.rows] == [(21, 20)] and not after.orphans


def test_two_transactions_on_a_key_in_one_batch_are_two_rows():
    """The second lock comes after the first one's end."""
    start = matched(stream(), (put(5, 10),)).stream
    found = matched(start, (commit(5, 10, 12), put(5, 13), commit(5, 13, 14), put(5, 15)))
    assert [row[:2] for row in found.rows] == [(12, 10), (14, 13)]
    assert found.stream.prewrites[5].start_ts == 15


@pytest.mark.parametrize("cut", range(5))
def test_every_order_of_scan_and_log_gives_the_same_rows(cut):
    """The log: lock of 1 ends, then 2 is locked and committed; the scan: lock of 1, a committed row."""
    log = [commit(5, 10, 12), put(5, 13), commit(5, 13, 14)]
    scan = [put(5, 10), KvRow(COMMITTED, 7, 3, 4, "put", NEW)]
    for order in set(permutations("lllss")):
        left = {"l": list(log), "s": list(scan)}
        rows = tuple(left[one].pop(0) for one in order)
        first = matched(stream(SCANNING), rows[:cut])
        second = matched(first.stream, (*rows[cut:], END))
        assert sorted(first.rows + second.rows) == [
            (4, 3, INSERT, 7, 9, NEW, None),
            (12, 10, INSERT, 5, 9, NEW, None),
            (14, 13, INSERT, 5, 9, NEW, None),
        ]
        assert second.initialized and second.stream.state == STREAMING
        assert not second.stream.prewrites and not second.stream.early


def test_a_rollback_before_the_scan_tells_the_lock_is_remembered():
    """The lock that the scan shows then is of no one."""
    found = matched(stream(SCANNING), (KvRow(ROLLED_BACK, 5, 10), put(5, 10), END))
    assert found.rows == [] and not found.stream.prewrites


def test_a_commit_that_the_scan_told_as_committed_is_no_second_row():
    """Its prewrite is older than the registration; at ``initialized`` it is put aside."""
    found = matched(stream(SCANNING), (commit(5, 10, 12), KvRow(COMMITTED, 5, 10, 12, "put", NEW), END))
    assert len(found.rows) == 1 and found.told_twice == 1


def test_a_commit_without_prewrite_after_the_scan_is_told():
    """The region is registered again then: nothing is dropped silently."""
    assert matched(stream(), (commit(5, 10, 12),)).orphans == 1


def test_the_planted_bug_loses_the_early_commit():
    """And this test sees it."""
    rows = (commit(5, 10, 12), put(5, 10), END)
    assert len(matched(stream(SCANNING), rows).rows) == 1
    with planted(DROPS_EARLY_COMMIT):
        assert matched(stream(SCANNING), rows).rows == []
