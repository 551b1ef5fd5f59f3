"""Ranges of keys: what lies in what, and what is missing."""

from __future__ import annotations

from ticdc_lab.simulate.scheduler.roles import Key, Span


def root_of(key: Key, tables: frozenset[Key]) -> Key | None:
    """Give the wanted table or span that a span is (a part of), None where it is of none."""
    if key in tables:
        return key
    if not isinstance(key, Span):
        return None
    if key.table in tables:
        return key.table
    around = (root for root in tables if isinstance(root, Span) and contains(root, key))
    return next(around, None)


def contains(outer: Key, inner: Key) -> bool:
    """Whether a span lies in another one; an empty ``end`` is the end of the table."""
    if not isinstance(outer, Span):
        return (inner.table if isinstance(inner, Span) else inner) == outer
    if not isinstance(inner, Span) or inner.table != outer.table:
        return False
    return outer.start <= inner.start and (not outer.end or (bool(inner.end) and inner.end <= outer.end))


def holes(root: Key, parts: list[Span]) -> list[Span]:
    """Give the ranges of ``root`` that no part covers; the parts are sorted and do not overlap."""
    whole = root if isinstance(root, Span) else Span(root, "", "")
    missing, start, open_end = list[Span](), whole.start, False
    for part in parts:
        if start < part.start:
            missing.append(Span(whole.table, start, part.start))
        start, open_end = part.end, not part.end
    if not open_end and start != whole.end and not (parts and not start):
        missing.append(Span(whole.table, start, whole.end))
    return missing
