"""Which region holds a key, as a client of TiKV remembers it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from ticdc_lab.simulate.pipeline.kv_messages import Region


class Routes(NamedTuple):
    """The key space in order: ``holders[i]`` has what is below ``bounds[i]`` and not below the one before it.

    A holder is None where the region is not known, and so is the last one.
    """

    bounds: tuple[int, ...] = ()
    holders: tuple[Region | None, ...] = (None,)

    @property
    def regions(self) -> tuple[Region, ...]:
        """Give the regions that are known, in key order, without overlap."""
        return tuple(region for region in self.holders if region is not None)

    def of(self, key: int) -> Region | None:
        """Give the region that holds a key, None where it is not known."""
        return self.holders[bisect_right(self.bounds, key)]

    def learned(self, start: int, end: int, regions: Iterable[Region]) -> Routes:
        """Take PD's word for a key range; what reached into it is forgotten."""
        new = [r for r in regions if r.end > start and r.start < end]
        low = min([start, *(r.start for r in new)])
        high = max([end, *(r.end for r in new)])
        kept = [r for r in self.regions if r.end <= low or r.start >= high]
        return _routes([*kept, *new])

    def without(self, region: int) -> Routes:
        """Forget a region."""
        return _routes(r for r in self.regions if r.id != region)


def _routes(regions: Iterable[Region]) -> Routes:
    bounds: list[int] = []
    holders: list[Region | None] = []
    for region in sorted(regions, key=lambda r: r.start):
        if not bounds or bounds[-1] < region.start:
            bounds.append(region.start)
            holders.append(None)
        bounds.append(region.end)
        holders.append(region)
    return Routes(tuple(bounds), (*holders, None))
