"""Regions that grow, and are cut in half once they are too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


def grow(world: World) -> None:
    """Let what grows grow by a tick, and cut what is too large."""
    r = world.regions
    for region, (mib, until_us) in list(world.growing.items()):
        if world.now_us >= until_us or not mib:
            del world.growing[region]
            continue
        row = r.row_of.get(region)
        if row is None:
            del world.growing[region]
            continue
        r.grow(row, mib)
        for i in r.store[row].tolist():
            if i >= 0:
                world.nodes.use(i, mib)
    cut(world)


def cut(world: World) -> None:
    """Cut regions in half that are as large as TiKV lets them be."""
    r, s = world.regions, world.settings
    if r.total_mib == world.checked_mib and r.count == world.checked_count:
        return
    large = (r.size[: r.n] >= s.split_mib) | (r.keys[: r.n] >= s.split_keys)
    for row in np.flatnonzero(large & r.alive[: r.n] & (r.leader[: r.n] >= 0)).tolist():
        world.split(row)
    world.checked_mib, world.checked_count = r.total_mib, r.count
