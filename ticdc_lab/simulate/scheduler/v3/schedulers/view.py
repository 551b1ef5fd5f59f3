"""What schedulers look at, and how they choose among equals."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Now
from ticdc_lab.simulate.scheduler.roles import Key, Span, order
from ticdc_lab.simulate.scheduler.v3.captures import STOPPING, CaptureStatus
from ticdc_lab.simulate.scheduler.v3.plan import Plan
from ticdc_lab.simulate.scheduler.v3.replications import EMPTY, Keys, Replications


class View(NamedTuple):
    """The owner's knowledge at one tick; ``checkpoint_ts`` is the global one."""

    captures: Map[Address, CaptureStatus]
    replications: Replications
    plan: Plan
    checkpoint_ts: int
    now: Now


def loads(view: View) -> dict[Address, int]:
    """Count the tables that each registered capture replicates, by name."""
    primaries = view.replications.primaries
    return {address: len(primaries.get(address, EMPTY)) for address in sorted(view.captures)}


def stopping(view: View) -> list[Address]:
    """List the captures that are stopping."""
    return sorted(a for a, status in view.captures.items() if status.state == STOPPING)


def rank(prefer: tuple[Hashable, ...], name: Hashable) -> int:
    """Give the place of a name among those to prefer, behind all of them where it is not named."""
    return prefer.index(name) if name in prefer else len(prefer)


def least_loaded(load: dict[Address, int], prefer: tuple[Hashable, ...]) -> Address:
    """Choose the capture with the fewest tables: of equals the preferred one, then the smaller name."""
    return min(load, key=lambda address: (load[address], rank(prefer, address), address))


def first(keys: Keys, n: int, prefer: tuple[Hashable, ...]) -> list[Key]:
    """Choose ``n`` spans: the preferred ones, then the smallest."""
    chosen = [key for key in prefer if isinstance(key, int | Span) and key in keys][:n]
    if len(chosen) < n:
        chosen += _smallest((key for key in keys if key not in chosen), n - len(chosen), keys)
    return chosen


def _smallest(among: Iterable[Key], n: int, keys: Keys) -> list[Key]:
    if n >= len(keys):
        return sorted(among, key=order)
    return heapq.nsmallest(n, among, key=order)


def disturbed(view: View) -> Key | None:
    """Give the smallest span with a record that is not Replicating, None where all are."""
    settled = sum(len(spans) for spans in view.replications.primaries.values())
    sets = view.replications.sets
    if settled == len(sets):
        return None
    return min((span for span in view.replications.exact if sets[span].state != "Replicating"), key=order)
