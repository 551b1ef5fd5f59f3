"""Which region holds a key, as a client of TiKV remembers it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from ticdc_lab.simulate.pipeline.kv_messages import Region


class Routes(NamedTuple):
    """Regions in key order without overlap; keys may be missing between them."""

    starts: tuple[int, ...] = ()
    regions: tuple[Region, ...] = ()

    def of(self, key: int) -> Region | None:
        """Give the region that holds a key, None where it is not known."""
        at = bisect_right(self.starts, key) - 1
        found = self.regions[at] if at >= 0 else None
        return found if found is not None and key < found.end else None

    def learned(self, start: int, end: int, regions: Iterable[Region]) -> Routes:
        """Take PD's word for a key range; what reached into it is forgotten."""
        new = [r for r in regions if r.end > start and r.start < end]
        low = min([start, *(r.start for r in new)])
        high = max([end, *(r.end for r in new)])
        kept = [r for r in self.regions if r.end <= low or r.start >= high]
        found = sorted([*kept, *new], key=lambda r: r.start)
        return Routes(tuple(r.start for r in found), tuple(found))

    def without(self, region: int) -> Routes:
        """Forget a region."""
        kept = [r for r in self.regions if r.id != region]
        return Routes(tuple(r.start for r in kept), tuple(kept))
