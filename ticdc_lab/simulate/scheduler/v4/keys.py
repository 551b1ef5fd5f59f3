"""What spans have by themselves: their order, their table, the group that shares a limit."""

from __future__ import annotations

from ticdc_lab.simulate.scheduler.roles import Key, Span

DEFAULT_GROUP = 0
"""Of all whole tables; the parts of a split table have their table's id as the group."""


def position(key: Key) -> tuple[int, str, str]:
    """Sort spans by this; it tells spans of one start apart, as a merge has them for a while."""
    return (key.table, key.start, key.end) if isinstance(key, Span) else (key, "", "")


def group_of(key: Key) -> int:
    """Give the group whose spans share the limit of the basic scheduler."""
    return key.table if isinstance(key, Span) and (key.start or key.end) else DEFAULT_GROUP


def table_of(key: Key) -> int:
    """Give the table of a span."""
    return key.table if isinstance(key, Span) else key
