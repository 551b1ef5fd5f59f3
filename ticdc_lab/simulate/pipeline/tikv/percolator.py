"""The server side of Percolator: prewrite, commit and rollback on a draft of a region.

All commands of a batch that concern one region are tried on one draft, so that its maps are opened and closed once and
not for each row. A command is checked as a whole before it changes anything: a refused one has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ticdc_lab.machines.machine import Address, Send, made, replace
from ticdc_lab.simulate.pipeline.cdc_messages import COMMIT, PREWRITE, ROLLED_BACK, KvRow
from ticdc_lab.simulate.pipeline.kv_messages import (
    ROLLBACK,
    BatchCommands,
    BatchResponses,
    Commit,
    Gone,
    KeyIsLocked,
    Prewrite,
    Refusal,
    Rollback,
    WriteConflict,
)
from ticdc_lab.simulate.pipeline.tables import Value
from ticdc_lab.simulate.pipeline.tikv.raft import propose
from ticdc_lab.simulate.pipeline.tikv.region_data import (
    IN_DEFAULT,
    Data,
    Lock,
    Written,
    inserted,
    is_long,
    record_of,
    records,
    value_at,
)
from ticdc_lab.simulate.pipeline.tikv.store_state import LogEntry, OpenBatch, StoreTurn


class RegionDraft:
    """A region while a batch is applied to it.

    ``data``: the region before. ``rows``: what an observer of the raft log sees, in its order.
    """

    __slots__ = ("data", "default", "locks", "rows", "write")

    def __init__(self, data: Data) -> None:
        self.data = data
        self.locks, self.write, self.default = data.locks.mutate(), data.write.mutate(), data.default.mutate()
        self.rows: list[KvRow] = []

    def finished(self) -> Data:
        return replace(self.data, locks=self.locks.finish(), write=self.write.finish(), default=self.default.finish())


def prewrite(draft: RegionDraft, command: Prewrite) -> Refusal | None:
    """Lock the keys of a transaction and store their values; what is locked by it already stays as it is.

    Returns: ``KeyIsLocked``, ``WriteConflict``, or ``Gone`` where the transaction was rolled back before (a late
    prewrite).
    """
    _, _, start_ts, primary, mutations = command
    rows: list[KvRow] = []
    fresh: list[tuple[int, str, Value | None]] = []
    lock_of, newest_of = draft.locks.get, draft.write.get
    for key, op, value in mutations:
        lock = lock_of(key)
        if lock is not None:
            if lock[0] != start_ts:
                return KeyIsLocked(key, lock[0], lock[1])
            continue
        newest = newest_of(key)
        if newest is None:
            old_value = None
        else:
            if newest[0] >= start_ts:
                refusal, is_done = _judged(key, newest, start_ts)
                if refusal:
                    return refusal
                if is_done:
                    continue
            old_value = newest[4] if newest[2] != ROLLBACK else None
            if newest[2] == ROLLBACK or old_value is IN_DEFAULT:
                old_value = value_at(newest, key, draft.default)
        rows.append(made(KvRow, (PREWRITE, key, start_ts, 0, op, value, old_value)))
        fresh.append((key, op, value))
    locks = draft.locks
    for key, op, value in fresh:
        if value is not None and is_long(value):
            draft.default[key, start_ts] = value
            locks[key] = (start_ts, primary, op, IN_DEFAULT)
        else:
            locks[key] = (start_ts, primary, op, value)
    draft.rows += rows
    return None


def _judged(key: int, newest: Written, start_ts: int) -> tuple[Refusal | None, bool]:
    """Derive what the write records since a transaction began mean for its prewrite, and whether it is committed."""
    own = record_of(newest, start_ts)
    if own is not None:
        return (Gone(start_ts), False) if own[2] == ROLLBACK else (None, True)
    for record in records(newest):
        if record[0] < start_ts:
            break
        if record[2] != ROLLBACK:
            return WriteConflict(key, record[0]), False
    return None, False


def commit(draft: RegionDraft, command: Commit) -> Refusal | None:
    """Turn the locks of a transaction into write records; what is committed already stays as it is.

    Returns: ``Gone`` where a lock is not there and was not committed.
    """
    _, _, start_ts, commit_ts, keys = command
    locks, write, add = draft.locks, draft.write, draft.rows.append
    lock_of, newest_of = locks.get, write.get
    todo: list[tuple[int, Lock]] = []
    for key in keys:
        lock = lock_of(key)
        if lock is not None and lock[0] == start_ts:
            todo.append((key, lock))
            continue
        own = record_of(newest_of(key), start_ts)
        if own is None or own[2] == ROLLBACK:
            return Gone(start_ts)
    for key, (_, _, op, value) in todo:
        del locks[key]
        newest = newest_of(key)
        if newest is None:
            write[key] = (commit_ts, start_ts, op, None, value)
        elif newest[0] < commit_ts:
            write[key] = (commit_ts, start_ts, op, newest, value)
        else:
            write[key] = inserted(newest, commit_ts, start_ts, op, value)
        add(made(KvRow, (COMMIT, key, start_ts, commit_ts, "", None, None)))
    return None


def rollback(draft: RegionDraft, command: Rollback) -> Refusal | None:
    """Take the locks of a transaction away and note for each key that it will not be, so that a late prewrite fails.

    Returns: ``WriteConflict`` with its own commit_ts where the transaction is committed: that cannot be taken back.
    """
    _, _, start_ts, keys = command
    fresh: list[int] = []
    for key in keys:
        own = record_of(draft.write.get(key), start_ts)
        if own is None:
            fresh.append(key)
        elif own[2] != ROLLBACK:
            return WriteConflict(key, own[0])
    for key in fresh:
        lock = draft.locks.get(key)
        if lock is not None and lock[0] == start_ts:
            del draft.locks[key]
            if lock[3] is IN_DEFAULT:
                del draft.default[key, start_ts]
            draft.rows.append(KvRow(ROLLED_BACK, key, start_ts))
        draft.write[key] = inserted(draft.write.get(key), start_ts, start_ts, ROLLBACK)
    return None


# Batches of commands: who may answer them, what they do, and what waits for a majority.


def take_batch(turn: StoreTurn, sender: Address, message: BatchCommands) -> None:
    """Try the commands on what is proposed so far, and propose what comes of it, one entry a region.

    Also a refusal, and "this is done already", wait for a majority: a leader that is one no more may be wrong in both.
    """
    drafts: dict[int, tuple[int, RegionDraft, list[int]]] = {}
    results: list[Refusal | None] = []
    tried = _TRIED
    for i, command in enumerate(message.commands):
        region, epoch = command[0], command[1]
        found = drafts.get(region)
        if found is None or found[0] != epoch:
            peer = turn.state.peers.get(region)
            data = turn.asked_of(region, epoch, peer.data if peer and peer.led else None)
            if not isinstance(data, Data):
                results.append(data)
                continue
            found = drafts[region] = epoch, RegionDraft(data), []
        _, draft, of = found
        of.append(i)
        results.append(tried[type(command)](draft, command))
    if not drafts:
        turn.out.append(Send(sender, BatchResponses(message.id, tuple(results))))
        return
    number = turn.state.n_batches + 1
    batch = OpenBatch(sender, message.id, tuple(results), frozenset(drafts))
    turn.state = turn.state._replace(batches=turn.state.batches.set(number, batch), n_batches=number)
    entries = [(r, LogEntry(0, d.finished(), tuple(d.rows), number, tuple(of))) for r, (_, d, of) in drafts.items()]
    propose(turn, entries)


_TRIED: Mapping[type, Callable[[RegionDraft, Any], Refusal | None]] = {
    Prewrite: prewrite, Commit: commit, Rollback: rollback,
}  # fmt: skip
