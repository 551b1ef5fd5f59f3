"""Who holds a watermark at a moment: the chain from global to the leaf, since when, and what it would be without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from ticdc_lab.simulate.pipeline.marks import ROOT, Mark
from ticdc_lab.simulate.scheduler.clock import ts_of

Of = Literal["checkpoint", "resolved"]


class Chain(NamedTuple):
    """What holds a watermark.

    Attributes
    ----------
    time_us
        When it was looked at.
    marks
        From global to the leaf; of a checkpoint that waits for the global resolved_ts its own part and then that one's.
    ts
        What the global watermark is; None where none is published.
    without_ts
        What it could be if the leaf were not there: the least of all others, at most now.
    since_us
        Since when the leaf holds it: what the leaf knows, else the first sample of the stretch in which it does.
    """

    time_us: int
    of: Of
    marks: tuple[Mark, ...]
    ts: int | None
    without_ts: int
    since_us: int

    @property
    def leaf(self) -> Mark:
        """Give the end of the chain."""
        return self.marks[-1]


def by_moment(watermarks: pa.Table) -> dict[int, list[Mark]]:
    """Give the marks of each moment (µs) of :data:`ticdc_lab.simulate.pipeline.marks.WATERMARKS`, in order of time."""
    out: dict[int, list[Mark]] = {}
    for row in watermarks.to_pylist():
        out.setdefault(row.pop("time_us"), []).append(Mark(**row))
    return dict(sorted(out.items()))


def chains(watermarks: pa.Table, *, of: Of = "checkpoint") -> list[Chain]:
    """Say what holds a global watermark at every moment.

    Parameters
    ----------
    watermarks
        :data:`ticdc_lab.simulate.pipeline.marks.WATERMARKS`.
    of
        Which watermark.

    Returns
    -------
    list[Chain]
        In order of time; moments with nothing below global are left out.
    """
    out: list[Chain] = []
    for time_us, found in by_moment(watermarks).items():
        held = holders(found, of)
        if len(held) < 2:
            continue
        leaf, root = held[-1], held[0]
        goes_on = bool(out) and out[-1].leaf.path == leaf.path
        since_us = out[-1].since_us if goes_on else time_us if leaf.since_us is None else leaf.since_us
        ts = root.resolved_ts if of == "resolved" else root.checkpoint_ts
        without_ts = max(_without(found, leaf, of, ts_of(time_us)), ts or 0)
        out.append(Chain(time_us, of, tuple(held), ts, without_ts, since_us))
    return out


def chain(watermarks: pa.Table, *, at_us: int, of: Of = "checkpoint") -> Chain | None:
    """Say what holds a global watermark at the last moment up to ``at_us``; see :func:`chains`."""
    return next((c for c in reversed(chains(watermarks, of=of)) if c.time_us <= at_us), None)


def holders(found: Sequence[Mark], of: Of) -> list[Mark]:
    """Give the chain that holds a watermark, from the root to the leaf; empty without marks."""
    below = children(found)
    node = next((m for m in found if m.path == ROOT), None)
    root, out = node, []
    while node is not None:
        out.append(node)
        node = _lowest(node, below.get(node.path, ()), of)
    limited = root is not None and root.resolved_ts is not None
    waits = of == "checkpoint" and limited and out[-1].level == "table"
    return out + holders(found, "resolved")[1:] if waits else out


def bound(mark: Mark, of: Of) -> int | None:
    """Give how far a level lets the watermark go; a region bounds a checkpoint by its resolved_ts."""
    if of == "resolved":
        return mark.resolved_ts
    return mark.resolved_ts if mark.checkpoint_ts is None else mark.checkpoint_ts


def children(found: Sequence[Mark]) -> Mapping[str, list[Mark]]:
    """Give the marks below each path."""
    out: dict[str, list[Mark]] = {}
    for mark in found:
        out.setdefault(mark.parent, []).append(mark)
    return out


def _lowest(parent: Mark, below: Sequence[Mark], of: Of) -> Mark | None:
    """Give the child that holds its parent; None where none of them does."""
    if of == "checkpoint" and parent.level == "table":
        sink = next((m for m in below if m.level == "sink"), None)
        if sink is not None:
            return sink
    bounds = []
    for mark in below:
        ts = bound(mark, of)
        if ts is None and mark.level in ("table", "region"):
            ts = 0  # it has told nothing yet
        if ts is not None:
            bounds.append((ts - (mark.level == "barrier"), mark.path, mark))  # checkpoints stop one before a DDL
    if not bounds:
        return None
    ts, _, lowest = min(bounds)
    own = bound(parent, of)
    may_wait = parent.level == "region" or (parent.level == "table" and of == "checkpoint")
    if may_wait and own is not None and ts > own + 1:
        return None  # a young lock does not hold its region, nor do regions far ahead hold a checkpoint
    return lowest


def _without(found: Sequence[Mark], leaf: Mark, of: Of, now_ts: int) -> int:
    """Give the least of what is left; what the leaf alone held back would be up to now."""
    below = children([m for m in found if m.path != leaf.path])

    def least(mark: Mark) -> int:
        inner, freed = below.get(mark.path, []), leaf.path.startswith(mark.path + "/")
        own = bound(mark, of)
        if mark.level == "region" and not freed:
            return own or 0
        if not inner:
            return now_ts if freed or own is None else own
        return min(least(child) for child in inner)

    return min(now_ts, least(next(m for m in found if m.path == ROOT)))
