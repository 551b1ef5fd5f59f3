"""``pd-ctl scheduler ...``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticdc_lab.simulate.pd.world.pd_policies import (
    DEFAULT_POLICIES,
    EVICT_LEADER,
    GRANT_LEADER,
    evict_leaders,
    grant_leaders,
)
from ticdc_lab.simulate.pd.world.pdctl import Refused, number, position_of
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.rounds import Scheduler, scheduler_of
from ticdc_lab.simulate.pd.world.settings import SECOND_US

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

DONE = "Success!"
_ABOUT_A_STORE = (EVICT_LEADER, GRANT_LEADER)


def scheduler(world: World, words: list[str]) -> Any:
    """``scheduler show | add NAME [store] | remove NAME | pause NAME s | resume NAME | describe NAME``."""
    match words:
        case ["show"]:
            return sorted(world.schedulers)
        case ["show", status] if status.startswith("--status"):
            paused = status.endswith("paused")
            return sorted(n for n, s in world.schedulers.items() if (s.paused_until_us > world.now_us) == paused)
        case ["add", name, *stores]:
            return _add(world, name, stores)
        case ["remove", name]:
            return _remove(world, name)
        case ["pause", name, seconds]:
            until_us = world.now_us + number(seconds, "seconds") * SECOND_US
            for s in _named(world, name):
                s.paused_until_us = until_us
            return DONE
        case ["resume", name]:
            for s in _named(world, name):
                s.paused_until_us = 0
            return DONE
        case ["describe", name]:
            return described(_named(world, name)[0])
        case _:
            raise Refused(f"scheduler {' '.join(words)}: no such command")


def _named(world: World, name: str) -> list[Scheduler]:
    if name == "all":
        return list(world.schedulers.values())
    if name not in world.schedulers:
        raise Refused(f"ErrSchedulerNotFound: {name}")
    return [world.schedulers[name]]


def _add(world: World, name: str, stores: list[str]) -> str:
    known: dict[str, Policy] = {p.name: p for p in DEFAULT_POLICIES}
    if name in _ABOUT_A_STORE:
        i = position_of(world, stores[0])
        store = world.nodes.all[i].told.id
        policy = evict_leaders(store) if name == EVICT_LEADER else grant_leaders(store)
        key = f"{name}-{store}"
        world.nodes.change(i, **{_pauses(name): True})
    elif name in known:
        policy, key = known[name], name
    else:
        raise Refused(f"scheduler {name} is not known", hint=f"Known: {', '.join((*known, *_ABOUT_A_STORE))}.")
    if key in world.schedulers:
        raise Refused(f"ErrSchedulerExisted: {key}")
    world.schedulers[key] = scheduler_of(policy, world.now_us, world.settings)
    return DONE


def _pauses(name: str) -> str:
    return "leader_in_paused" if name == EVICT_LEADER else "leader_out_paused"


def _remove(world: World, name: str) -> str:
    found = [k for k, s in world.schedulers.items() if k == name or (s.policy.store and s.policy.name == name)]
    if not found:
        raise Refused(f"ErrSchedulerNotFound: {name}")
    for key in found:
        policy = world.schedulers.pop(key).policy
        if policy.store:
            world.nodes.change(world.regions.at[policy.store], **{_pauses(policy.name): False})
    return DONE


def described(s: Scheduler) -> dict[str, Any]:
    """Tell how a scheduler is doing, and why its latest round led to nothing."""
    told = s.last
    return {
        "name": s.policy.name,
        "status": "scheduling" if told.operators else "pending" if told.limit else "normal",
        "summary": told.because,
        "rounds": s.rounds,
        "rounds_with_operators": s.fruitful,
        "reasons": dict(s.reasons.most_common()),
        "rejected": [r._asdict() for r in told.rejected],
        "compared": [c._asdict() for c in told.compared],
        "interval_s": s.interval_us / SECOND_US,
    }
