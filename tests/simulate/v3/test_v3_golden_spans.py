"""The golden cases of spans: how tables are cut, and how holes are filled."""

from __future__ import annotations

import itertools
import random

import pytest
from immutables import Map
from v3_cases import Driven, ids

from ticdc_lab.simulate.scheduler.roles import Span
from ticdc_lab.simulate.scheduler.v3 import TableRegion, V3Settings
from ticdc_lab.simulate.scheduler.v3.messages import REPLICATING, TableStatus
from ticdc_lab.simulate.scheduler.v3.reconciler import (
    FIRST_KEY,
    LAST_KEY,
    SPAN_REGION_LIMIT,
    arrived,
    departed,
    span_number,
    split_by_region_count,
    split_by_written_keys,
    whole,
)

ONE = [Span(1, FIRST_KEY, "1"), Span(1, "1", "2"), Span(1, "2", "3"), Span(1, "3", LAST_KEY)]
TWO = [Span(2, FIRST_KEY, "2"), Span(2, "2", LAST_KEY)]
CUT = {1: tuple(ONE), 2: tuple(TWO)}
SEVEN = "abcdefgh"


def regions(weights):
    """Give seven regions a..b, b..c, ... with these written keys."""
    return [TableRegion(SEVEN[i], SEVEN[i + 1], weight) for i, weight in enumerate(weights)]


def cut(weights, number, threshold=0):
    """Give (region counts, weights) of a split, and check that the spans cover the table."""
    split = split_by_written_keys(whole(1), regions(weights), number, threshold)
    assert split.spans[0].start == FIRST_KEY and split.spans[-1].end == LAST_KEY
    assert all(a.end == b.start for a, b in zip(split.spans, split.spans[1:], strict=False))
    return split.region_counts, split.weights


def spans_of(known):
    """Give the spans of each table."""
    return {table: list(pieces.spans) for table, pieces in known.items()}


def reconcile(known, tables, held, split):
    """Bring pieces up to date with the wanted tables and the spans of which the owner has a record, as it does."""
    gone = [table for table in known if table not in tables]
    return arrived(departed(known, gone), tables, held, split)


def test_v3_35_holes_are_filled_and_tables_are_cut_once():
    """Initialization, owner switch without and with lost spans, a new table, a dropped one."""
    known, decided = reconcile(Map(), {1}, (), CUT.__getitem__)
    assert spans_of(known) == {1: ONE} and decided[0].chosen == "table 1 is 4 spans"
    known, _ = reconcile(Map(), {1}, ONE, CUT.__getitem__)
    assert spans_of(known) == {1: ONE}
    known, _ = reconcile(known, {1, 2}, ONE, CUT.__getitem__)
    assert spans_of(known) == {1: ONE, 2: TWO}
    known, _ = reconcile(known, {1}, ONE + TWO, CUT.__getitem__)
    assert spans_of(known) == {1: ONE}
    for lost in (ONE[:1], ONE[3:]):
        found, _ = reconcile(Map(), {1}, [span for span in ONE if span not in lost], CUT.__getitem__)
        assert spans_of(found) == {1: ONE}
    known, _ = reconcile(known, {1}, [ONE[0], ONE[3]], CUT.__getitem__)
    assert spans_of(known) == {1: [ONE[0], Span(1, "1", "3"), ONE[3]]}


def test_spans_that_are_added_batch_by_batch_are_not_holes():
    """Until all spans of a new table have been scheduled, what is missing is not filled by one span."""
    known, _ = reconcile(Map(), {1}, (), CUT.__getitem__)
    for held in ((), ONE[:1], ONE[:2]):
        known, _ = reconcile(known, {1}, held, CUT.__getitem__)
        assert spans_of(known) == {1: ONE}


def test_v3_38_a_table_stays_whole_while_an_old_node_is_there_and_after_it_left():
    """Only a table that comes later is cut."""
    parts = tuple(TableRegion(a, b) for a, b in zip("abcdefg", "bcdefgh", strict=True))
    settings = V3Settings(
        heartbeat_ticks=1 << 30, table_across_nodes=True, region_threshold=1, regions=Map({1: parts, 2: parts})
    )
    driven = Driven(settings=settings)
    driven.tick("ab", {1})
    driven.answer("a")
    driven.answer("b", version="v4.0.0")
    driven.tick("ab", {1})
    assert [request.span for _, request in driven.requests()] == [1]
    driven.answer("a", TableStatus(1, REPLICATING))
    driven.tick("a", {1})
    driven.tick("a", {1, 2})
    spans = [request.span for _, request in driven.requests()]
    assert len(spans) == 3 and all(isinstance(span, Span) and span.table == 2 for span in spans)
    assert driven.watermarks().checkpoint_ts == 0
    assert set(driven.state.replications.sets) == {1, *spans}


@pytest.mark.parametrize(
    ("weights", "number", "counts", "sums"),
    [
        ([100] * 7, 1, (7,), (707,)),
        ([100] * 7, 2, (4, 3), (404, 303)),
        ([100] * 7, 3, (3, 3, 1), (303, 303, 101)),
        ([100] * 7, 7, (1,) * 7, (101,) * 7),
        ([100] * 7, 10, (1,) * 7, (101,) * 7),
        ([100, 1, 100, 1, 1, 1, 100], 4, (1, 2, 3, 1), (101, 103, 6, 101)),
        ([1000, 1, 1, 1, 100, 1, 99], 4, (1, 4, 1, 1), (1001, 107, 2, 100)),
        ([0] * 7, 3, (3, 3, 1), (3, 3, 1)),
    ],
)
def test_v3_37_hot_regions_are_alone(weights, number, counts, sums):
    """A hot region is a span of its own, cold neighbours share one; without writes the number of regions counts."""
    assert cut(weights, number) == (counts, sums)


def test_v3_37_few_writes_split_nothing():
    """Below the threshold the table is one span."""
    assert cut([1] * 7, 3, threshold=1 << 40) == ((7,), (14,))


def test_many_regions_are_split_evenly_and_no_span_is_too_large():
    """15,980 equal regions into five; 251,000 into six, since a span has 50,000 regions at most."""
    split = split_by_written_keys(whole(1), [TableRegion(str(i), str(i), 2) for i in range(15_980)], 5, 4)
    assert split.weights == (9591, 9591, 9591, 9591, 9576) and sum(split.region_counts) == 15_980
    many = [TableRegion("f", "f", 2)] * (SPAN_REGION_LIMIT * 5 + 1_000)
    assert split_by_written_keys(whole(1), many, 5, 4).region_counts == (SPAN_REGION_LIMIT,) * 5 + (1_000,)


def test_splits_cover_any_table():
    """Random weights: all regions are in one span each, in order, and there are no more spans than regions."""
    dice = random.Random(1)
    for _ in range(300):
        weights = [dice.choice((0, 1, 50, 10_000)) for _ in range(dice.randrange(1, 40))]
        parts = [TableRegion(f"{i:03}", f"{i + 1:03}", weight) for i, weight in enumerate(weights)]
        split = split_by_written_keys(whole(1), parts, dice.randrange(1, 12), 0)
        assert sum(split.region_counts) == len(weights) and min(split.region_counts) > 0
        assert all(a.end == b.start for a, b in zip(split.spans, split.spans[1:], strict=False))


def test_a_table_is_cut_by_the_number_of_its_regions():
    """Five regions: one span each as soon as there are enough captures, three spans for one capture."""
    parts = [TableRegion(f"t1_{i}", f"t1_{i + 1}") for i in range(4)] + [
        TableRegion("t1_4", "t2_2"),
        TableRegion("t2_2", "t2_3"),
    ]
    span = Span(1, "t1", "t2")
    ends = ["t1", "t1_1", "t1_2", "t1_3", "t1_4", "t2"]
    each = tuple(Span(1, a, b) for a, b in itertools.pairwise(ends))
    for captures in (2, 3, 7):
        assert split_by_region_count(span, parts, captures, 1) == each
    assert split_by_region_count(span, parts, 1, 1) == (
        Span(1, "t1", "t1_2"),
        Span(1, "t1_2", "t1_4"),
        Span(1, "t1_4", "t2"),
    )
    for captures, threshold in ((0, 1), (3, 5)):
        assert split_by_region_count(span, parts, captures, threshold) == (span,)


def test_regions_out_of_order_split_nothing():
    """The cache was stale: one span."""
    parts = [TableRegion("t1_0", "t1_1"), TableRegion("t1_1", "t1_4"), TableRegion("t1_2", "t1_3")]
    assert split_by_region_count(Span(1, "t1", "t2"), parts, 1, 1) == (Span(1, "t1", "t2"),)


@pytest.mark.parametrize(
    ("captures", "spans", "low", "high"),
    [(0, 1, 1000, 1000), (1, 3, 333, 334), (3, 9, 111, 112), (7, 42, 23, 24), (999, 100, 10, 10)],
)
def test_a_thousand_regions_are_cut_evenly(captures, spans, low, high):
    """As many spans as captures ask for, each with as many regions, give or take one."""
    parts = [TableRegion(f"{i:04}", f"{i + 1:04}") for i in range(1_000)]
    found = split_by_region_count(whole(1), parts, captures, 1)
    starts = [0, *(int(span.start) for span in found[1:]), 1_000]
    sizes = [b - a for a, b in itertools.pairwise(starts)]
    assert len(found) == spans and low <= min(sizes) and max(sizes) <= high


@pytest.mark.parametrize(
    ("count", "captures", "number"), [(1, 10, 1), (100, 2, 6), (100, 3, 9), (100, 5, 20), (10_000, 11, 100)]
)
def test_the_number_of_spans_follows_the_captures(count, captures, number):
    """Three or more for each capture, a hundred at most, one for a table of one region."""
    assert span_number(count, captures) == number


def test_every_golden_case_of_this_protocol_has_a_test():
    """No case is left out: each id names at least one test function of this folder."""
    from pathlib import Path

    text = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_v3_golden_*.py"))
    missing = [one for one in ids() if f"def test_{one.replace('-', '_')}_" not in text]
    assert not missing and len(ids()) == 24
