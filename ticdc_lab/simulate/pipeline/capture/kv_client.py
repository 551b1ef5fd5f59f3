"""The kv client: finds the regions of spans, registers them at their leaders, and begins again where a stream ends.

What is registered again is pulled again from the part's own resolved_ts: rows after it come twice (architecture model,
section 6, case 1). At most ``incremental_scan_concurrency`` regions of tables are scanned at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map

from ticdc_lab.simulate.machine import Address, Ignored, Send
from ticdc_lab.simulate.pipeline.capture.desk import Desk
from ticdc_lab.simulate.pipeline.capture.path_state import ASKING, PD, SCANNING, STREAMING, WAITING, Gap, Puller, Stream
from ticdc_lab.simulate.pipeline.capture.puller import failed, parts_of
from ticdc_lab.simulate.pipeline.cdc_messages import Deregister, RegionFailed, Register
from ticdc_lab.simulate.pipeline.keys import META, shown
from ticdc_lab.simulate.pipeline.kv_messages import EpochNotMatch, GetRegions, Region, Regions
from ticdc_lab.simulate.scheduler.roles import Key, in_turn

FIRST_RETRY_US = 10_000
SILENCES = 3
"""A region that its store has not mentioned for so many times ``retry_us`` is registered again."""


def ask(desk: Desk, key: Key) -> None:
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


def regions_found(desk: Desk, answer: Regions) -> None:
    """Take PD's answer: register what it tells of gaps."""
    keys = [key for key in (META, *in_turn(desk.paths)) if asks(desk.puller(key), answer)]
    if not keys:
        desk.outputs.append(Ignored(answer, "nothing waits for it"))
    for key in keys:
        found = [gap for gap in desk.puller(key).gaps if gap.start < answer.end and answer.start < gap.end]
        for gap in found:
            cover(desk, key, gap, answer.regions)
    begin_scans(desk)


def asks(puller: Puller, answer: Regions) -> bool:
    """Whether a puller waits for an answer of PD."""
    return any(gap.start < answer.end and answer.start < gap.end for gap in puller.gaps)


def cover(desk: Desk, key: Key, gap: Gap, regions: Iterable[Region]) -> None:
    """Let regions stream what a gap misses; what they do not hold stays a gap."""
    puller, kv = desk.puller(key), desk.kv
    parts, left = parts_of(gap, tuple(regions))
    streams = puller.streams.mutate()
    for region, start, end in parts:
        streams[kv.next_id] = Stream(
            kv.next_id, region.id, region.leader, start, end, WAITING, gap.resolved_ts, desk.at_us, desk.at_us,
            gap.tries, region.epoch,
        )  # fmt: skip
        owners, waiting = kv.owners.set(kv.next_id, key), (*kv.waiting, kv.next_id)
        kv = kv._replace(next_id=kv.next_id + 1, owners=owners, waiting=waiting)
    gaps = [g for g in puller.gaps if g != gap] + left
    desk.kv = kv
    desk.set_puller(key, puller._replace(streams=streams.finish(), gaps=tuple(sorted(gaps))))


def begin_scans(desk: Desk) -> None:
    """Register as many waiting regions as may be scanned at once; that of the DDL jobs does not wait."""
    left: list[int] = []
    for request_id in desk.kv.waiting:
        key = desk.kv.owners[request_id]
        if key != META and desk.kv.scanning >= desk.settings.incremental_scan_concurrency:
            left.append(request_id)
        else:
            _register(desk, key, request_id)
    desk.kv = desk.kv._replace(waiting=tuple(left))


def _register(desk: Desk, key: Key, request_id: int) -> None:
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


def scan_ended(desk: Desk, key: Key, stream: Stream) -> Stream:
    """Note that a region has been scanned, and let the next one begin."""
    if key != META:
        desk.kv = desk.kv._replace(scanning=desk.kv.scanning - 1)
    desk.tell(key, SCANNING, STREAMING, f"{_named(stream)} on {stream.store} is scanned")
    return stream._replace(since_us=desk.at_us, tries=0)


def refused(desk: Desk, failure: RegionFailed) -> None:
    """Take the end of a stream that a store tells: the store may know the regions that hold its keys now."""
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


def end_stream(desk: Desk, key: Key, stream: Stream, because: str) -> Gap:
    """Turn a stream into a gap; PD is asked at once at first, later and later after that."""
    wait_us = min(desk.settings.retry_us, FIRST_RETRY_US << min(stream.tries, 20)) if stream.tries else 0
    _forget(desk, key, stream)
    puller = failed(desk.puller(key), stream, desk.at_us, desk.at_us + wait_us)
    desk.set_puller(key, puller)
    desk.tell(key, stream.state, ASKING, f"{_named(stream)}: {because}; again from {stream.resolved_ts}")
    return next(g for g in puller.gaps if g.start == stream.start)


def _forget(desk: Desk, key: Key, stream: Stream) -> None:
    kv = desk.kv
    waiting = tuple(r for r in kv.waiting if r != stream.request_id) if stream.state == WAITING else kv.waiting
    scanning = kv.scanning - (stream.state == SCANNING and key != META)
    desk.kv = kv._replace(owners=kv.owners.delete(stream.request_id), waiting=waiting, scanning=scanning)


def leave(desk: Desk, key: Key) -> None:
    """End all streams of a puller that is not needed any more."""
    puller = desk.puller(key)
    for request_id in sorted(puller.streams):
        _forget(desk, key, puller.streams[request_id])
        _deregister(desk, puller.streams[request_id])
    desk.set_puller(key, puller._replace(streams=Map()))


def _deregister(desk: Desk, stream: Stream) -> None:
    if stream.state != WAITING:
        desk.outputs.append(Send(stream.store, Deregister(stream.request_id, stream.region)))


def look(desk: Desk) -> None:
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


def _silence(desk: Desk, stream: Stream, heard: dict[Address, int]) -> str:
    if stream.state == WAITING:
        return ""
    retry_us = desk.settings.retry_us
    if desk.at_us - heard[stream.store] >= retry_us:
        return f"{stream.store} has been silent for {retry_us / 1e6:g} s"
    silent_us = desk.at_us - stream.heard_us
    limit_us = retry_us * (1 if stream.state == SCANNING else SILENCES)
    return f"{stream.store} has not mentioned it for {silent_us / 1e6:g} s" if silent_us >= limit_us else ""


def _named(stream: Stream) -> str:
    return f"region {stream.region} [{shown(stream.start)}, {shown(stream.end)})"
