"""The incremental scan of a region: ``(checkpoint_ts, MAX]`` of a snapshot, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_lab.machines.machine import Address, Changed, Ignored, Send, Wake, life_of, node_of
from ticdc_lab.simulate.pipeline.cdc_messages import (
    COMMITTED,
    INITIALIZED,
    PREWRITE,
    Deregister,
    Entries,
    KvRow,
    RegionFailed,
    Register,
    ResolvedTs,
)
from ticdc_lab.simulate.pipeline.kv_messages import ROLLBACK, EpochNotMatch, NotLeader, RegionNotFound
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, read, records, value_at
from ticdc_lab.simulate.pipeline.tikv.store_state import ServedStream, StoreTurn


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
    for commit_ts, start_ts, kind, older, stored in records(newest):
        if commit_ts <= checkpoint_ts:
            break
        if kind != ROLLBACK:
            value = read(data.default, key, start_ts, stored)
            rows.append(KvRow(COMMITTED, key, start_ts, commit_ts, kind, value, value_at(older, key, data.default)))
    return rows


def next_batch(data: Data, keys: tuple[int, ...], at: int, checkpoint_ts: int, most: int) -> tuple[list[KvRow], int]:
    """Read on from the key at a position: at least one key, and no further one after ``most`` rows.

    Returns: the rows, and the position of the key that is next.
    """
    rows: list[KvRow] = []
    while at < len(keys) and (not rows or len(rows) < most):
        rows += rows_of(data, keys[at], checkpoint_ts)
        at += 1
    return rows, at


# The CDC component of a store: registrations, incremental scans, and what an observer of the raft log sees.
#
# A registration takes a snapshot of what is applied, by reference; everything that is applied later is streamed at
# once. So each row comes from the scan or from the log, none from neither, and none from both: the scan sends
# versions as ``committed`` and locks as ``prewrite``, whose ``commit`` or ``rollback`` then comes from the log,
# perhaps before the scan has sent the lock. The receiver therefore joins them only after ``initialized``.

SCAN = "scan"


def register(turn: StoreTurn, sender: Address, message: Register) -> None:
    """Open a stream, and scan what was committed after its checkpoint_ts."""
    # The streams of a capture that came back under a new address go: they are not read.
    node, life = node_of(sender), life_of(sender)
    for known, served in sorted(turn.state.streams.items()):
        left = [s for s in served if node_of(s.address) != node or life_of(s.address) >= life]
        if len(left) < len(served):
            _set(turn, known, left)
    request_id, region, epoch, checkpoint_ts, start, end = message
    peer = turn.state.peers.get(region)
    data = turn.asked_of(region, epoch, peer.led.applied if peer and peer.led else None)
    if not isinstance(data, Data):
        turn.out.append(Send(sender, RegionFailed(request_id, region, data)))
        return
    streams = turn.state.streams.get(region, ())
    if any(s.address == sender and s.request_id == request_id for s in streams):
        turn.out.append(Ignored(message, "this request is served already"))
        return
    keys = keys_of(data, start, end, checkpoint_ts)
    whole = start <= data.start and data.end <= end
    stream = ServedStream(sender, request_id, start, end, checkpoint_ts, whole, data, keys)
    turn.state = turn.state._replace(streams=turn.state.streams.set(region, (*streams, stream)))
    what = f"{sender} registered: {len(keys)} keys to scan"
    turn.out.append(Changed(f"stream:{region}:{sender}", None, "scanning", what))
    _wait(turn, region, stream)


def deregister(turn: StoreTurn, sender: Address, message: Deregister) -> None:
    streams = turn.state.streams.get(message.region, ())
    _set(turn, message.region, [s for s in streams if s.address != sender or s.request_id != message.request_id])


def _set(turn: StoreTurn, region: int, streams: Sequence[ServedStream]) -> None:
    known = turn.state.streams
    changed = known.set(region, tuple(streams)) if streams else known.delete(region) if region in known else known
    turn.state = turn.state._replace(streams=changed)


def _wait(turn: StoreTurn, region: int, stream: ServedStream) -> None:
    """Send the next batch of a scan when it has been read."""
    n = min(len(stream.keys) - stream.at, turn.store.settings.scan_batch)
    after_us = n * 1_000_000 // turn.store.settings.scan_rows_per_s
    turn.out.append(Wake(after_us, (SCAN, region, stream.address, stream.request_id)))


def scan(turn: StoreTurn, region: int, address: Address, request_id: int) -> None:
    """Send a batch of a scan; after the last one the stream is initialised."""
    streams = turn.state.streams.get(region, ())
    found = [i for i, s in enumerate(streams) if s.address == address and s.request_id == request_id]
    if not found or streams[found[0]].snapshot is None:
        return
    at, stream = found[0], streams[found[0]]
    assert stream.snapshot is not None
    most = turn.store.settings.scan_batch
    rows, read = next_batch(stream.snapshot, stream.keys, stream.at, stream.checkpoint_ts, most)
    stream = stream._replace(at=read)
    if read == len(stream.keys):
        rows.append(KvRow(INITIALIZED, 0, 0))
        stream = stream._replace(snapshot=None, keys=(), at=0)
        turn.out.append(Changed(f"stream:{region}:{address}", "scanning", "streaming", "its scan is at its end"))
    else:
        _wait(turn, region, stream)
    _set(turn, region, (*streams[:at], stream, *streams[at + 1 :]))
    turn.out.append(Send(address, Entries(request_id, region, tuple(rows))))


def observe(turn: StoreTurn, region: int, rows: tuple[KvRow, ...]) -> None:
    """Stream what is applied."""
    for stream in turn.state.streams.get(region, ()):
        start, end = stream.start, stream.end
        told = rows if stream.whole else tuple([row for row in rows if start <= row[1] < end])
        if told:
            turn.out.append(Send(stream.address, Entries(stream.request_id, region, told)))


def tell_resolved(turn: StoreTurn, regions: Iterable[int]) -> None:
    """Send every initialised stream of these regions its resolved_ts, also one that has not moved: the stream lives."""
    told: dict[tuple[Address, int], list[tuple[int, int]]] = {}
    for region in regions:
        peer = turn.state.peers.get(region)
        if peer is None or peer.led is None or not peer.led.resolved_ts:
            continue
        for stream in turn.state.streams.get(region, ()):
            if stream.snapshot is None:
                told.setdefault((stream.address, peer.led.resolved_ts), []).append((stream.request_id, region))
    for (address, ts), of_regions in told.items():
        turn.out.append(Send(address, ResolvedTs(ts, tuple(of_regions))))


def end_streams(turn: StoreTurn, region: int, error: NotLeader | EpochNotMatch | RegionNotFound) -> None:
    """End all streams of a region: it is another one now, or led by another store."""
    for stream in turn.state.streams.get(region, ()):
        turn.out.append(Send(stream.address, RegionFailed(stream.request_id, region, error)))
        before = "streaming" if stream.snapshot is None else "scanning"
        turn.out.append(Changed(f"stream:{region}:{stream.address}", before, None, type(error).__name__))
    _set(turn, region, ())
