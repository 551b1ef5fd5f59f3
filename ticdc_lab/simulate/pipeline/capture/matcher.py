"""The matcher of a region: prewrites and commits of the raft log become rows.

A commit that comes while the region is scanned may be of a lock that the scan has not told yet: it waits until
``initialized``. What is left then has been told as ``committed`` too (tiflow `cdc/kv/matcher.go`).
"""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.pipeline.capture.path_state import DELETE, INSERT, STREAMING, UPDATE, Row, Stream
from ticdc_lab.simulate.pipeline.cdc_messages import COMMIT, COMMITTED, INITIALIZED, PREWRITE, KvRow


class Matched(NamedTuple):
    """What a batch gave.

    Attributes
    ----------
    rows
        Whole ones, in the order in which they became whole.
    initialized
        Whether the scan ended in it.
    orphans
        Commits after the scan whose prewrite never came.
    told_twice
        Commits beside the scan whose prewrite never came: the scan told them as committed.
    """

    stream: Stream
    rows: list[Row]
    initialized: bool = False
    orphans: int = 0
    told_twice: int = 0


def matched(stream: Stream, rows: tuple[KvRow, ...]) -> Matched:
    """Take a batch of a region's rows."""
    if stream.state == STREAMING:
        return _streaming(stream, rows)
    end = next((i for i, row in enumerate(rows) if row.type == INITIALIZED), None)
    if end is None:
        return _scanning(stream, rows)
    scanned = _scanning(stream, rows[:end])
    streaming = scanned.stream._replace(state=STREAMING, early=Map())
    after = _streaming(streaming, rows[end + 1 :])
    return Matched(after.stream, scanned.rows + after.rows, True, after.orphans, len(scanned.stream.early))


def _streaming(stream: Stream, rows: tuple[KvRow, ...]) -> Matched:
    known, fresh, used = stream.prewrites, dict[int, KvRow](), list[int]()
    request_id, orphans = stream.request_id, 0
    out: list[Row] = []
    append, get = out.append, known.get
    for row in rows:
        if row[0] == PREWRITE:
            fresh[row[1]] = row
            continue
        kind, key, start_ts, commit_ts, op, value, old = row
        if kind == COMMITTED:
            append((commit_ts, start_ts, _rank(op, old), key, request_id, value, old))
        else:
            found = fresh.get(key)
            if found is not None and found[2] == start_ts:
                del fresh[key]
            else:
                found = get(key)
                if found is None or found[2] != start_ts:
                    orphans += kind == COMMIT
                    continue
                used.append(key)
            if kind == COMMIT:
                value, old = found[5], found[6]
                rank = DELETE if value is None else INSERT if old is None else UPDATE
                append((commit_ts, start_ts, rank, key, request_id, value, old))
    return Matched(_kept(stream, used, fresh), out, False, orphans)


def _scanning(stream: Stream, rows: tuple[KvRow, ...]) -> Matched:
    """Take rows of a scan and of the log beside it, in any order."""
    early = stream.early.mutate()
    locks: dict[int, KvRow] = {}
    used: list[int] = []
    out: list[Row] = []
    for row in rows:
        kind, key, start_ts, commit_ts, op, value, old = row
        found = locks.get(key) or stream.prewrites.get(key)
        if kind == COMMITTED:
            out.append((commit_ts, start_ts, _rank(op, old), key, stream.request_id, value, old))
        elif kind == PREWRITE:
            waiting = early.pop((key, start_ts), None)
            if waiting:
                out.append((waiting, start_ts, _rank(op, old), key, stream.request_id, value, old))
            elif waiting is None and (found is None or found.start_ts <= start_ts):
                locks[key] = row
        elif found is None or found.start_ts != start_ts:
            early[key, start_ts] = commit_ts
        else:
            if locks.pop(key, None) is None:
                used.append(key)
            if kind == COMMIT:
                rank = _rank(found.op, found.old_value)
                out.append((commit_ts, start_ts, rank, key, stream.request_id, found.value, found.old_value))
    return Matched(_kept(stream, used, locks)._replace(early=early.finish()), out)


def _rank(op: str, old: object) -> int:
    return DELETE if op == "delete" else INSERT if old is None else UPDATE


def _kept(stream: Stream, used: list[int], fresh: dict[int, KvRow]) -> Stream:
    """Forget prewrites that have come to their end, and keep those that have not."""
    if not used and not fresh:
        return stream
    known = stream.prewrites
    if used:
        mutation = known.mutate()
        for key in used:
            mutation.pop(key, None)
        if fresh:
            mutation.update(fresh)
        known = mutation.finish()
    elif fresh:
        known = known.update(fresh)
    return stream._replace(prewrites=known)
