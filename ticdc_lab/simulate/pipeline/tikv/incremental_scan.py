"""The incremental scan of a region: ``(checkpoint_ts, MAX]`` of a snapshot, as rows."""

from __future__ import annotations

from ticdc_lab.simulate.pipeline.cdc_messages import COMMITTED, PREWRITE, KvRow
from ticdc_lab.simulate.pipeline.kv_messages import ROLLBACK
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, read, records, value_at


def keys_of(data: Data, start: int, end: int, checkpoint_ts: int) -> tuple[int, ...]:
    """Give the keys of a range that are locked or were written after a checkpoint_ts, in their order."""
    found = {k for k, newest in data.write.items() if newest[0] > checkpoint_ts and start <= k < end}
    found.update(k for k in data.locks if start <= k < end)
    return tuple(sorted(found))


def rows_of(data: Data, key: int, checkpoint_ts: int) -> list[KvRow]:
    """Give what a scan sends of a key: its lock as ``prewrite``, then its versions as ``committed``, newest first.

    Lock and default column family give the one, write and default the others.
    """
    rows: list[KvRow] = []
    lock, newest = data.locks.get(key), data.write.get(key)
    if lock is not None:
        start_ts, _, op, stored = lock
        value = read(data.default, key, start_ts, stored)
        rows.append(KvRow(PREWRITE, key, start_ts, 0, op, value, value_at(newest, key, data.default)))
    for commit_ts, start_ts, kind, older, _, stored in records(newest):
        if commit_ts <= checkpoint_ts:
            break
        if kind != ROLLBACK:
            value = read(data.default, key, start_ts, stored)
            rows.append(KvRow(COMMITTED, key, start_ts, commit_ts, kind, value, value_at(older, key, data.default)))
    return rows


def next_batch(data: Data, keys: tuple[int, ...], at: int, checkpoint_ts: int, most: int) -> tuple[list[KvRow], int]:
    """Read on from the key at a position: at least one key, and no further one after ``most`` rows.

    Returns
    -------
    tuple[list[KvRow], int]
        The rows, and the position of the key that is next.
    """
    rows: list[KvRow] = []
    while at < len(keys) and (not rows or len(rows) < most):
        rows += rows_of(data, keys[at], checkpoint_ts)
        at += 1
    return rows, at
