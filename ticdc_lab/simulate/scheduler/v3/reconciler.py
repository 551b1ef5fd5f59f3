"""Which spans make up the wanted tables.

A table is cut when it arrives and never again; after an owner switch its spans are what the captures have, and what
they do not have is filled by one span a hole. A table that is not cut is its own span: the key is its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.simulate.machine import Decided
from ticdc_lab.simulate.scheduler.roles import Key, Span, order
from ticdc_lab.simulate.scheduler.v3.splitters import FIRST_KEY, LAST_KEY

NAME = "reconciler"


class Pieces(NamedTuple):
    """The spans of one table; ``by_add_table`` while they are those it was cut into and not all have been scheduled."""

    spans: tuple[Key, ...]
    by_add_table: bool


Known: TypeAlias = Map[Key, Pieces]
Split: TypeAlias = Callable[[int], tuple[Key, ...]]


def reconcile(known: Known, tables: Iterable[Key], held: Iterable[Key], split: Split) -> tuple[Known, list[Decided]]:
    """Bring the pieces up to date with the wanted tables and the spans of which the owner has a record.

    Parameters
    ----------
    known
        The pieces so far; empty for a new owner.
    tables
        All that are wanted; pieces of others are forgotten. A span that is wanted as such is its own piece.
    held
        Spans with a record.
    split
        Cuts a table that arrives; gives the table itself where it is to stay whole.
    """
    wanted = set(tables)
    known = departed(known, (table for table in known if table not in wanted))
    return arrived(known, wanted, held, split)


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
