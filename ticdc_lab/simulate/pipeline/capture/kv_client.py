"""From streams of regions to the rows of a table: requests, pullers, and prewrites that wait for their commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address, Ignored, Send
from ticdc_lab.simulate.pipeline.capture.state import (
    ASKING,
    DELETE,
    INSERT,
    PD,
    SCANNING,
    STREAMING,
    UPDATE,
    WAITING,
    CaptureDesk,
    Gap,
    PulledStream,
    Puller,
    Row,
)
from ticdc_lab.simulate.pipeline.cdc_messages import (
    COMMIT,
    COMMITTED,
    INITIALIZED,
    PREWRITE,
    Deregister,
    KvRow,
    RegionFailed,
    Register,
)
from ticdc_lab.simulate.pipeline.kv_messages import EpochNotMatch, GetRegions, KvRegion, Regions
from ticdc_lab.simulate.pipeline.tables import LAST, META, WIDTH, shown, span_of
from ticdc_lab.simulate.scheduler.roles import Key, in_turn

# The span of a table as regions: which parts stream, which do not, and how far all of them are.


class GapPart(NamedTuple):
    """A part of a gap that a region holds."""

    region: KvRegion
    start: int
    end: int


def span_of_key(key: Key) -> tuple[int, int]:
    """Give the key range of what the scheduler dispatches; the ends of a span of a table are handles as text."""
    if isinstance(key, int):
        return span_of(key)
    first, last = span_of(key.table)
    start = first | int(key.start) if key.start.isdigit() else first
    return start, first | int(key.end) if key.end.isdigit() and int(key.end) < 1 << WIDTH else last


def begun(start: int, end: int, start_ts: int, at_us: int) -> Puller:
    """Give a puller that knows no region yet."""
    return Puller(start, min(end, LAST), start_ts, gaps=(Gap(start, min(end, LAST), start_ts, at_us, at_us),))


def frontier_ts(puller: Puller) -> int:
    """Give the lowest resolved_ts of all parts; it does not fall."""
    found = [*(s.resolved_ts for s in puller.streams.values()), *(g.resolved_ts for g in puller.gaps)]
    return max(puller.resolved_ts, min(found)) if found else puller.resolved_ts


def failed(puller: Puller, stream: PulledStream, at_us: int, ask_us: int) -> Puller:
    """Turn a stream into a gap, which is as far as the stream was."""
    gap = Gap(stream.start, stream.end, stream.resolved_ts, at_us, ask_us, stream.tries + 1)
    return puller._replace(streams=puller.streams.delete(stream.request_id), gaps=tuple(sorted((*puller.gaps, gap))))


def parts_of(gap: Gap, regions: tuple[KvRegion, ...]) -> tuple[list[GapPart], list[Gap]]:
    """Cut a gap by regions: what they hold, and what none of them holds or leads."""
    parts: list[GapPart] = []
    left: list[Gap] = []
    at = gap.start
    for region in sorted(regions, key=lambda r: (r.start, -r.epoch)):
        start, end = max(at, region.start), min(gap.end, region.end)
        if start >= end or not region.leader:
            continue
        if start > at:
            left.append(gap._replace(start=at, end=start))
        parts.append(GapPart(region, start, end))
        at = end
    if at < gap.end:
        left.append(gap._replace(start=at))
    return parts, left


# The matcher of a region: prewrites and commits of the raft log become rows.
#
# A commit that comes while the region is scanned may be of a lock that the scan has not sent yet: it waits until
# ``initialized``. What is left then was sent as ``committed`` too (tiflow `cdc/kv/matcher.go`).


class Matched(NamedTuple):
    """What a batch gave."""

    stream: PulledStream
    rows: list[Row]  # whole ones, in the order in which they became whole
    initialized: bool = False  # whether the scan ended in it
    orphans: int = 0  # commits after the scan whose prewrite never came
    told_twice: int = 0  # commits beside the scan whose prewrite never came: the scan sent them as committed


def matched(stream: PulledStream, rows: tuple[KvRow, ...]) -> Matched:
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


def _streaming(stream: PulledStream, rows: tuple[KvRow, ...]) -> Matched:
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


def _scanning(stream: PulledStream, rows: tuple[KvRow, ...]) -> Matched:
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


def _kept(stream: PulledStream, used: list[int], fresh: dict[int, KvRow]) -> PulledStream:
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


# The kv client: finds the regions of spans, registers them at their leaders, and begins again where a stream ends.
#
# What is registered again is pulled again from the part's own resolved_ts: rows after it come twice (architecture
# model, section 6, case 1). At most ``incremental_scan_concurrency`` regions of tables are scanned at the same time.

FIRST_RETRY_US = 10_000
SILENCES = 3
"""A region that its store has not mentioned for so many times ``retry_us`` is registered again."""


def ask(desk: CaptureDesk, key: Key) -> None:
    """Ask PD about gaps whose time has come."""
    puller = desk.puller(key)
    if not any(gap.ask_us <= desk.at_us for gap in puller.gaps):
        return
    gaps: list[Gap] = []
    for gap in puller.gaps:
        if gap.ask_us <= desk.at_us:
            desk.outputs.append(Send(PD, GetRegions(gap.start, gap.end)))
            gap = gap._replace(ask_us=desk.at_us + desk.settings.retry_us)
        gaps.append(gap)
    desk.set_puller(key, puller._replace(gaps=tuple(gaps)))


def regions_found(desk: CaptureDesk, answer: Regions) -> None:
    """Take PD's answer: register what it has for gaps."""
    keys = [key for key in (META, *in_turn(desk.paths)) if asks(desk.puller(key), answer)]
    if not keys:
        desk.outputs.append(Ignored(answer, "nothing waits for it"))
    for key in keys:
        found = [gap for gap in desk.puller(key).gaps if gap.start < answer.end and answer.start < gap.end]
        for gap in found:
            cover(desk, key, gap, answer.regions)
    begin_scans(desk)


def asks(puller: Puller, answer: Regions) -> bool:
    return any(gap.start < answer.end and answer.start < gap.end for gap in puller.gaps)


def cover(desk: CaptureDesk, key: Key, gap: Gap, regions: Iterable[KvRegion]) -> None:
    """Let regions stream what a gap misses; what they do not hold stays a gap."""
    puller, kv = desk.puller(key), desk.kv
    parts, left = parts_of(gap, tuple(regions))
    streams = puller.streams.mutate()
    for region, start, end in parts:
        streams[kv.next_id] = PulledStream(
            kv.next_id, region.id, region.leader, start, end, WAITING, gap.resolved_ts, desk.at_us, desk.at_us,
            gap.tries, region.epoch,
        )  # fmt: skip
        owners, waiting = kv.owners.set(kv.next_id, key), (*kv.waiting, kv.next_id)
        kv = kv._replace(next_id=kv.next_id + 1, owners=owners, waiting=waiting)
    gaps = [g for g in puller.gaps if g != gap] + left
    desk.kv = kv
    desk.set_puller(key, puller._replace(streams=streams.finish(), gaps=tuple(sorted(gaps))))


def begin_scans(desk: CaptureDesk) -> None:
    """Register as many waiting regions as may be scanned at once; the DDL jobs' does not wait."""
    left: list[int] = []
    for request_id in desk.kv.waiting:
        key = desk.kv.owners[request_id]
        if key != META and desk.kv.scanning >= desk.settings.incremental_scan_concurrency:
            left.append(request_id)
        else:
            _register(desk, key, request_id)
    desk.kv = desk.kv._replace(waiting=tuple(left))


def _register(desk: CaptureDesk, key: Key, request_id: int) -> None:
    puller = desk.puller(key)
    stream = puller.streams[request_id]._replace(state=SCANNING, since_us=desk.at_us, heard_us=desk.at_us)
    if key != META:
        desk.kv = desk.kv._replace(scanning=desk.kv.scanning + 1)
    desk.set_puller(key, puller._replace(streams=puller.streams.set(request_id, stream)))
    desk.outputs.append(
        Send(
            stream.store,
            Register(request_id, stream.region, stream.epoch, stream.resolved_ts, stream.start, stream.end),
        )
    )
    again = f", try {stream.tries + 1}" if stream.tries else ""
    because = f"{stream.store} scans {_named(stream)} from {stream.resolved_ts} on{again}"
    desk.tell(key, ASKING, SCANNING, because)


def scan_ended(desk: CaptureDesk, key: Key, stream: PulledStream) -> PulledStream:
    """Note that a region has been scanned, and let the next one begin."""
    if key != META:
        desk.kv = desk.kv._replace(scanning=desk.kv.scanning - 1)
    desk.tell(key, SCANNING, STREAMING, f"{_named(stream)} on {stream.store} is scanned")
    return stream._replace(since_us=desk.at_us, tries=0)


def refused(desk: CaptureDesk, failure: RegionFailed) -> None:
    """Take the end of a stream from a store, which may know the regions that now have its keys."""
    key = desk.kv.owners.get(failure.request_id)
    if key is None:
        desk.outputs.append(Ignored(failure, "the request is an old one"))
        return
    stream = desk.puller(key).streams[failure.request_id]
    gap = end_stream(desk, key, stream, f"{stream.store} says {type(failure.error).__name__}")
    if isinstance(failure.error, EpochNotMatch) and failure.error.regions and not stream.tries:
        cover(desk, key, gap, failure.error.regions)
    begin_scans(desk)
    ask(desk, key)


def end_stream(desk: CaptureDesk, key: Key, stream: PulledStream, because: str) -> Gap:
    """Turn a stream into a gap; PD is asked at once at first, later and later after that."""
    wait_us = min(desk.settings.retry_us, FIRST_RETRY_US << min(stream.tries, 20)) if stream.tries else 0
    _forget(desk, key, stream)
    puller = failed(desk.puller(key), stream, desk.at_us, desk.at_us + wait_us)
    desk.set_puller(key, puller)
    desk.tell(key, stream.state, ASKING, f"{_named(stream)}: {because}; again from {stream.resolved_ts}")
    return next(g for g in puller.gaps if g.start == stream.start)


def _forget(desk: CaptureDesk, key: Key, stream: PulledStream) -> None:
    kv = desk.kv
    waiting = tuple(r for r in kv.waiting if r != stream.request_id) if stream.state == WAITING else kv.waiting
    scanning = kv.scanning - (stream.state == SCANNING and key != META)
    desk.kv = kv._replace(owners=kv.owners.delete(stream.request_id), waiting=waiting, scanning=scanning)


def leave(desk: CaptureDesk, key: Key) -> None:
    """End all streams of a puller that is not needed any more."""
    puller = desk.puller(key)
    for request_id in sorted(puller.streams):
        _forget(desk, key, puller.streams[request_id])
        _deregister(desk, puller.streams[request_id])
    desk.set_puller(key, puller._replace(streams=Map()))


def _deregister(desk: CaptureDesk, stream: PulledStream) -> None:
    if stream.state != WAITING:
        desk.outputs.append(Send(stream.store, Deregister(stream.request_id, stream.region)))


def look(desk: CaptureDesk) -> None:
    """See which requests have been without an answer for too long."""
    heard: dict[Address, int] = {}
    keys = [META, *in_turn(desk.paths)]
    for key in keys:
        for stream in desk.puller(key).streams.values():
            heard[stream.store] = max(heard.get(stream.store, 0), stream.heard_us)
    for key in keys:
        streams = desk.puller(key).streams
        for request_id in sorted(streams):
            because = _silence(desk, streams[request_id], heard)
            if because:
                _deregister(desk, streams[request_id])
                end_stream(desk, key, streams[request_id], because)
        ask(desk, key)
    begin_scans(desk)


def _silence(desk: CaptureDesk, stream: PulledStream, heard: dict[Address, int]) -> str:
    if stream.state == WAITING:
        return ""
    retry_us = desk.settings.retry_us
    if desk.at_us - heard[stream.store] >= retry_us:
        return f"{stream.store} has been silent for {retry_us / 1e6:g} s"
    silent_us = desk.at_us - stream.heard_us
    limit_us = retry_us * (1 if stream.state == SCANNING else SILENCES)
    return f"{stream.store} has not mentioned it for {silent_us / 1e6:g} s" if silent_us >= limit_us else ""


def _named(stream: PulledStream) -> str:
    return f"region {stream.region} [{shown(stream.start)}, {shown(stream.end)})"
