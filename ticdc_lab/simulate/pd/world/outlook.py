"""Why nothing is happening, and how long it will take: a cluster's schedulers, checkers, limits and leaving stores."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.filters import REGION_TARGET, state_forbids
from ticdc_lab.simulate.pd.limits import LARGE_COST, is_unlimited, step_cost
from ticdc_lab.simulate.pd.stores import REMOVING, Store
from ticdc_lab.simulate.pd.world.patrol import SOON
from ticdc_lab.simulate.pd.world.policy import LIMITS
from ticdc_lab.simulate.pd.world.start import SECOND_US
from ticdc_lab.simulate.pd.world.stores import ADD, REMOVE

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


class Holds(NamedTuple):
    """Something that keeps a cluster from doing more: who or what, and why."""

    what: str
    because: str


class Outlook(NamedTuple):
    """How long a store that leaves will take.

    Parameters
    ----------
    store
        The store.
    peers_left
        Peers that are still there.
    at_least_s
        Seconds that the limits ask for at least.
    held_by
        The limit that takes longest, in words.
    """

    store: int
    peers_left: int
    at_least_s: float
    held_by: str


def why_nothing(world: World) -> list[Holds]:
    """Say, for each scheduler and the checkers, why the latest round made no operator, and which limits are used up."""
    found = [
        Holds(name, s.last.because) for name, s in sorted(world.schedulers.items()) if not s.last.operators
    ]  # fmt: skip
    waiting = len(world.patrol.todo) + len(world.patrol.to_merge)
    soon = [r for r in world.patrol.reasons if SOON in r]
    if waiting:
        found.append(Holds("checkers", f"{waiting} regions wait" + (f": {soon[0]}" if soon else "")))
    for kind, name in LIMITS.items():
        limit = getattr(world.config, name)
        if world.controller.counts[kind] >= limit:
            found.append(Holds(name.replace("_", "-"), f"{world.controller.counts[kind]} run, {limit} may"))
    closed = Counter(which for _, which in world.nodes.closed)
    for which, name in ((ADD, "add-peer"), (REMOVE, "remove-peer")):
        if closed[which]:
            found.append(Holds(f"store limit {name}", f"used up on {closed[which]} stores"))
    return found


def how_long(world: World) -> list[Outlook]:
    """Say how long each store that leaves will take at least, from what is left and the limits.

    What its peers cost the stores that may take them, over what those gain of tokens a second; the disks' speed; and
    replica-schedule-limit operators at a time. The greatest of these is what holds it back.
    """
    return [_outlook(world, i) for i, n in enumerate(world.nodes.all) if n.known and n.told.state == REMOVING]


def _outlook(world: World, i: int) -> Outlook:
    regions, nodes, settings = world.regions, world.nodes.all, world.settings
    rows = [row for kind in regions.members.lists[i] for row in kind]
    sizes = regions.size[rows].tolist()
    targets = [n for n in nodes if n.known and n.runs and _takes(n.told, world.config)]
    bounds: dict[str, float] = {}
    rate = sum(n.limits[ADD].rate_per_s for n in targets)
    if targets and not any(is_unlimited(n.limits[ADD]) for n in targets):
        bounds[f"add-peer limits of {len(targets)} stores"] = sum(map(step_cost, sizes)) / LARGE_COST / rate
    a_second = SECOND_US / settings.tick_us
    io, running = settings.io_mib_a_tick * a_second, sum(n.known and n.runs for n in nodes)
    received = sum(sizes) / settings.compression
    bounds["disks"] = max(received / max(len(targets), 1), (sum(sizes) + received) / max(running, 1)) / io
    ticks = _TICKS_A_MOVE * len(rows) / max(world.config.replica_schedule_limit, 1)
    bounds["replica-schedule-limit"] = ticks / a_second
    if not targets and rows:
        return Outlook(nodes[i].told.id, len(rows), float("inf"), "no store may take a peer")
    what = max(bounds, key=lambda k: bounds[k])
    return Outlook(nodes[i].told.id, len(rows), bounds[what], what)


def _takes(store: Store, config: Config) -> bool:
    return state_forbids(store, REGION_TARGET, config, temporary_too=False) is None


_TICKS_A_MOVE = 9
"""A peer is moved in four steps of two ticks each, and the snapshot takes one at least."""
