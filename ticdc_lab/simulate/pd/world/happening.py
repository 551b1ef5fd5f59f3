"""Carrying out changes from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.simulate.pd.world import outages
from ticdc_lab.simulate.pd.world.changes import (
    Change,
    Grow,
    Happened,
    Pdctl,
    ResumeStore,
    SetFlow,
    SetRules,
    SlowDisk,
    StartStore,
    StopStore,
    UsePolicy,
)
from ticdc_lab.simulate.pd.world.pdctl import Refused, pdctl
from ticdc_lab.simulate.pd.world.rounds import scheduler_of
from ticdc_lab.simulate.pd.world.settings import SECOND_US

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


def happen(world: World, change: Change) -> Happened:
    """Carry out a change; PD's refusal of a command is its result, not an error."""
    at_us = world.now_us
    try:
        answer = _carry_out(world, change)
    except Refused as e:
        return Happened(at_us, change, None, str(e))
    return Happened(at_us, change, answer)


def _carry_out(world: World, change: Change) -> object:
    match change:
        case Pdctl(words):
            return pdctl(world, words)
        case StopStore(store, down_s):
            outages.stop(world, store, down_s)
        case ResumeStore(store):
            outages.resume(world, store)
        case StartStore(store):
            outages.join(world, store)
        case SetRules(rules):
            world.rules = rules or None
        case SetFlow(kind, regions, bytes_s):
            flow = world.regions.read if kind == "read" else world.regions.write
            world.demand_us = world.now_us
            flow[[world.regions.row_of[r] for r in regions if r in world.regions.row_of]] = bytes_s
        case SlowDisk(store, mib_s):
            _slow_disk(world, store, mib_s)
        case Grow(region, mib, until_us):
            world.growing[region] = (mib, until_us)
        case UsePolicy(policy):
            world.schedulers[policy.name] = scheduler_of(policy, world.now_us, world.settings)
    return None


def _slow_disk(world: World, store: int, mib_s: float | None) -> None:
    s = world.settings
    rate = s.disk_mib_a_tick if mib_s is None else mib_s * s.tick_us / SECOND_US
    world.nodes.all[world.regions.at[store]].disk.change_rate(rate, world.tick, s)
