"""Which spans make up the wanted tables, and how a large table is cut into spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Decided
from ticdc_lab.simulate.scheduler.roles import Key, Span, order
from ticdc_lab.simulate.scheduler.v3.settings import TableRegion, V3Settings

# How a large table is cut into spans: by the number of its regions, or by the keys written to them.

FIRST_KEY, LAST_KEY = "", "\U0010ffff"
"""Ends of a whole table."""

SPAN_REGION_LIMIT = 50_000
"""A span has not more regions than this by far."""

SPAN_NUMBER_COEFFICIENT = 3
"""At least so many spans for each capture."""

SPAN_NUMBER_MAX = 100
"""A table has not more spans, unless they would be too large."""


class WrittenSplit(NamedTuple):
    """Spans with the number of their regions and their weight: written keys and one for each region."""

    spans: tuple[Span, ...]
    region_counts: tuple[int, ...]
    weights: tuple[int, ...]


def whole(table: int) -> Span:
    """Give the span of a whole table."""
    return Span(table, FIRST_KEY, LAST_KEY)


def span_number(regions: int, captures: int) -> int:
    """Say into how many spans a table of so many regions should be cut."""
    if regions <= 1:
        return 1
    by_captures = captures * max(SPAN_NUMBER_COEFFICIENT, captures - 1)
    return min(max(by_captures, regions // SPAN_REGION_LIMIT), SPAN_NUMBER_MAX)


def split(settings: V3Settings, table: int, captures: int) -> tuple[Key, ...]:
    """Cut a table by written keys, or by the number of its regions where that gives one span only."""
    regions = settings.regions.get(table, ())
    spans: tuple[Span, ...] = ()
    if settings.write_key_threshold > 0:
        number = span_number(len(regions), captures)
        spans = split_by_written_keys(whole(table), regions, number, settings.write_key_threshold).spans
    if len(spans) <= 1:
        spans = split_by_region_count(whole(table), regions, captures, settings.region_threshold)
    return spans if len(spans) > 1 else (table,)


def split_by_region_count(
    span: Span, regions: Sequence[TableRegion], captures: int, region_threshold: int
) -> tuple[Span, ...]:
    """Cut a span so that every part has as many regions, give or take one.

    It stays whole where it has no more than ``region_threshold`` regions, where no capture is there, and where the
    regions overlap.
    """
    inside = [region for region in regions if region.end > span.start and region.start < span.end]
    if len(inside) <= region_threshold or captures == 0:
        return (span,)
    size, larger = divmod(len(inside), min(span_number(len(inside), captures), len(inside)))
    ends: list[int] = []
    while not ends or ends[-1] < len(inside):
        ends.append((ends[-1] if ends else 0) + size + (len(ends) < larger))
    cuts = [0, *ends]
    parts = [Span(span.table, inside[a].start, inside[b - 1].end) for a, b in pairwise(cuts)]
    if any(left.end > right.start for left, right in pairwise(parts)):
        return (span,)
    return _fitted(span, parts)


def split_by_written_keys(
    span: Span, regions: Sequence[TableRegion], number: int, write_key_threshold: int
) -> WrittenSplit:
    """Cut a span into about ``number`` parts of equal weight, so that a hot region is alone.

    The weight of a region is its written keys and one more. A part ends as soon as it is heavier than the mean, or too
    large, or as soon as there are only as many regions left as parts. It stays whole below the threshold.
    """
    weights = [region.written_keys + 1 for region in regions]
    if number <= 1 or not regions or sum(region.written_keys for region in regions) < write_key_threshold:
        return WrittenSplit((span,), (len(regions),), (sum(weights),))
    cuts = [0, *_ends(weights, number)]
    parts = [Span(span.table, regions[a].start, regions[b - 1].end) for a, b in pairwise(cuts)]
    return WrittenSplit(
        _fitted(span, parts),
        tuple(b - a for a, b in pairwise(cuts)),
        tuple(sum(weights[a:b]) for a, b in pairwise(cuts)),
    )


def _ends(weights: list[int], number: int) -> list[int]:
    mean, parts_left, weight_left = sum(weights) // number, number, sum(weights)
    ends: list[int] = []
    start = weight = 0
    for i, its in enumerate(weights):
        weight += its
        if parts_left == 1:
            if weight_left <= mean:
                break
            parts_left = weight_left // mean + 1
        if len(weights) - i <= parts_left or weight > mean or i + 1 - start >= SPAN_REGION_LIMIT:
            ends.append(i + 1)
            parts_left, weight_left = parts_left - 1, weight_left - weight
            start, weight = i + 1, 0
    return ends if start == len(weights) else [*ends, len(weights)]


def _fitted(span: Span, parts: list[Span]) -> tuple[Span, ...]:
    parts[0] = parts[0]._replace(start=span.start)
    parts[-1] = parts[-1]._replace(end=span.end)
    return tuple(parts)


# Which spans make up the wanted tables.
#
# A table is cut when it arrives and never again; after an owner switch its spans are what the captures have, and what
# they do not have is filled by one span a hole. A table that is not cut is its own span: the key is its id.

NAME = "reconciler"


class Pieces(NamedTuple):
    """The spans of one table; ``by_add_table`` while they are those it was cut into and not all have been scheduled."""

    spans: tuple[Key, ...]
    by_add_table: bool


Known: TypeAlias = Map[Key, Pieces]
Split: TypeAlias = Callable[[int], tuple[Key, ...]]


def departed(known: Known, tables: Iterable[Key]) -> Known:
    """Forget tables."""
    left = known.mutate()
    for table in list(tables):
        left.pop(table, None)
    return left.finish()


def arrived(known: Known, tables: Iterable[Key], held: Iterable[Key], split: Split) -> tuple[Known, list[Decided]]:
    """Find the pieces of tables."""
    held = set(held)
    parts: dict[int, list[Span]] = {}
    for span in held:
        if isinstance(span, Span):
            parts.setdefault(span.table, []).append(span)
    new, decided = known.mutate(), []
    for table in sorted(tables, key=order):
        pieces = _pieces(
            table, new.get(table), sorted(parts.get(table, ())) if isinstance(table, int) else [], held, split
        )
        if pieces != new.get(table):
            decided += _told(table, pieces)
            new[table] = pieces
    return new.finish(), decided


def _pieces(table: Key, old: Pieces | None, covered: list[Span], held: set[Key], split: Split) -> Pieces:
    if isinstance(table, Span) or table in held:
        return Pieces((table,), False)
    if not covered:
        return old or Pieces(split(table), True)
    holes = holes_in(table, covered)
    if holes and old and old.by_add_table:
        return old
    return Pieces(tuple(sorted([*covered, *holes])), False)


def holes_in(table: int, covered: list[Span]) -> list[Span]:
    """Give one span for each part of a table that sorted spans leave open."""
    holes, at = [], FIRST_KEY
    for span in covered:
        if at < span.start:
            holes.append(Span(table, at, span.start))
        at = max(at, span.end)
    if at < LAST_KEY:
        holes.append(Span(table, at, LAST_KEY))
    return holes


def _told(table: Key, pieces: Pieces) -> list[Decided]:
    if len(pieces.spans) == 1:
        return []
    why = "it is new" if pieces.by_add_table else "the captures have it so, and holes are filled by one span each"
    return [Decided(NAME, f"table {table} is {len(pieces.spans)} spans", why)]
