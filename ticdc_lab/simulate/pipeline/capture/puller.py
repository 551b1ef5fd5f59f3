"""The span of a table as regions: which parts stream, which do not, and how far all of them are."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.pipeline.capture.path_state import Gap, Puller, Stream
from ticdc_lab.simulate.pipeline.keys import LAST, WIDTH, span_of
from ticdc_lab.simulate.pipeline.kv_messages import Region
from ticdc_lab.simulate.scheduler.roles import Key


class Part(NamedTuple):
    """A part of a gap that a region holds."""

    region: Region
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


def failed(puller: Puller, stream: Stream, at_us: int, ask_us: int) -> Puller:
    """Turn a stream into a gap, which is as far as the stream was."""
    gap = Gap(stream.start, stream.end, stream.resolved_ts, at_us, ask_us, stream.tries + 1)
    return puller._replace(
        streams=puller.streams.delete(stream.request_id),
        gaps=tuple(sorted((*puller.gaps, gap))),
    )


def parts_of(gap: Gap, regions: tuple[Region, ...]) -> tuple[list[Part], list[Gap]]:
    """Cut a gap by regions: what they hold, and what none of them holds or leads."""
    parts: list[Part] = []
    left: list[Gap] = []
    at = gap.start
    for region in sorted(regions, key=lambda r: (r.start, -r.epoch)):
        start, end = max(at, region.start), min(gap.end, region.end)
        if start >= end or not region.leader:
            continue
        if start > at:
            left.append(gap._replace(start=at, end=start))
        parts.append(Part(region, start, end))
        at = end
    if at < gap.end:
        left.append(gap._replace(start=at))
    return parts, left
