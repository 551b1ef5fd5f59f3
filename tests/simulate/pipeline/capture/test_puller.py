"""A span as parts: they cover it, and the slowest shows how far it is."""

from __future__ import annotations

import random
from itertools import pairwise

from ticdc_lab.simulate.pipeline.capture.kv_client import begun, failed, frontier_ts, parts_of, span_of_key
from ticdc_lab.simulate.pipeline.capture.state import STREAMING, Gap, PulledStream, Puller
from ticdc_lab.simulate.pipeline.kv_messages import KvRegion
from ticdc_lab.simulate.pipeline.tables import LAST, key_of
from ticdc_lab.simulate.scheduler.roles import Span


def stream(request_id, start, end, resolved_ts):
    """A stream of a part."""
    return PulledStream(request_id, 1, "tikv-1", start, end, STREAMING, resolved_ts, 0, 0)


def test_regions_cut_a_gap_into_parts_that_cover_it():
    """No matter what regions are known: those that overlap, that are missing, that have no leader, in any order."""
    chance = random.Random(3)
    for _ in range(200):
        cuts = sorted(chance.sample(range(100), 5))
        regions = [
            KvRegion(i, a, b, 1, chance.choice(["s", "s", ""]))
            for i, (a, b) in enumerate(zip(cuts, cuts[2:], strict=False))
        ]
        chance.shuffle(regions)
        gap = Gap(10, 90, 7, 0, 0, 2)
        parts, left = parts_of(gap, tuple(regions))
        spans = sorted([(p.start, p.end) for p in parts] + [(g.start, g.end) for g in left])
        assert spans[0][0] == 10 and spans[-1][1] == 90
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        assert all(p.region.start <= p.start < p.end <= p.region.end and p.region.leader for p in parts)
        assert all(g.resolved_ts == 7 and g.tries == 2 for g in left)


def test_the_frontier_is_the_slowest_part_and_never_falls():
    """A part without a stream counts with what it had."""
    puller = Puller(0, 90, 5)._replace(
        streams=Puller(0, 0, 0).streams.update({1: stream(1, 0, 30, 40), 2: stream(2, 30, 60, 20)}),
        gaps=(Gap(60, 90, 30, 0, 0),),
    )
    assert frontier_ts(puller) == 20
    assert frontier_ts(puller._replace(resolved_ts=25)) == 25
    ended = failed(puller, puller.streams[2], 8, 9)
    assert frontier_ts(ended) == 20 and not ended.initialized
    assert [(g.start, g.end, g.resolved_ts, g.ask_us, g.tries) for g in ended.gaps] == [
        (30, 60, 20, 9, 1),
        (60, 90, 30, 0, 0),
    ]


def test_a_table_is_a_span_and_so_is_a_part_of_it():
    """The last one ends with the key space."""
    assert span_of_key(7) == (key_of(7, 0), key_of(8, 0))
    assert span_of_key(Span(7, "", "50")) == (key_of(7, 0), key_of(7, 50))
    assert span_of_key(Span(7, "50", "")) == (key_of(7, 50), key_of(8, 0))
    puller = begun(LAST - 5, LAST + 5, 3, 1)
    assert (puller.end, puller.resolved_ts, puller.gaps[0].end) == (LAST, 3, LAST)
