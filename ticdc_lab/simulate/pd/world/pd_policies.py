"""PD's own schedulers as policies: the decisions are those of the core, this only carries what they need."""

from __future__ import annotations

import numpy as np

from ticdc_lab.simulate.pd import balance_leader, balance_region
from ticdc_lab.simulate.pd.arrays import columns, region_scores
from ticdc_lab.simulate.pd.balance import (
    LEADER_HERE,
    LEADERS,
    LEAST_RETRIES,
    REGIONS,
    influence,
    scale,
    source_score,
    target_score,
)
from ticdc_lab.simulate.pd.builder import CannotBuild
from ticdc_lab.simulate.pd.create import transfer_leader
from ticdc_lab.simulate.pd.explained import Notes
from ticdc_lab.simulate.pd.filters import (
    LEADER_SOURCE,
    LEADER_TARGET,
    REGION_SOURCE,
    REGION_TARGET,
    by_state,
    keep,
    state_forbids,
)
from ticdc_lab.simulate.pd.operators import Kind, Operator, Priority
from ticdc_lab.simulate.pd.regions import Region, voters
from ticdc_lab.simulate.pd.world.hot_policy import HOT_REGION_POLICY
from ticdc_lab.simulate.pd.world.policy import Answer, Policy, Seen

BALANCE_REGION, BALANCE_LEADER = balance_region.NAME, balance_leader.NAME
EVICT_LEADER, GRANT_LEADER = "evict-leader-scheduler", "grant-leader-scheduler"
EVICT_BATCH = 3
_AMPLIFICATION = 5


def balance_regions(seen: Seen) -> Answer:
    """One attempt of balance-region; of equally good targets one is taken by chance."""
    retries = seen.memory.get("retries", {})
    running = seen.running.get(Kind.REGION, 0)
    told, seen.memory["retries"] = balance_region.schedule(seen.cluster, seen.draw, retries, running=running)
    return Answer((seen.chance.choice(told.operators),) if told.operators else (), told)


def balance_leaders(seen: Seen) -> Answer:
    """One attempt of balance-leader: up to four transfers."""
    retries = seen.memory.get("retries", {})
    running = seen.running.get(Kind.LEADER, 0)
    told, seen.memory["retries"] = balance_leader.schedule(seen.cluster, seen.draw, retries, running=running)
    return Answer(told.operators, told)


def no_region_pays(seen: Seen) -> str:
    """Say why no region can be moved to balance, whichever is drawn: no two scores are far enough apart."""
    cluster, config = seen.cluster, seen.cluster.config
    stores = list(cluster.stores.values())
    by = scale(cluster, REGIONS)
    c = columns(stores)
    moved = np.array([influence(by, s.id) for s in stores])
    widened = np.abs(moved) * _AMPLIFICATION + by.tolerance
    after = region_scores(c, config, moved)
    gives = np.array([state_forbids(s, REGION_SOURCE, config) is None for s in stores])
    takes = np.array([state_forbids(s, REGION_TARGET, config) is None for s in stores])
    out = np.where(gives, region_scores(c, config, -widened), -np.inf)
    into = np.where(takes, region_scores(c, config, widened), np.inf)
    order = np.argsort(-after, kind="stable")
    lowest_below = np.minimum.accumulate(into[order][::-1])[::-1]
    if (out[order][:-1] > lowest_below[1:]).any():
        return ""
    seen.memory["retries"] = dict.fromkeys((s.id for s in stores), LEAST_RETRIES)
    if not takes.any():
        return "no store takes peers now"
    return "no two region scores are further apart than the tolerance and what runs already"


def no_leader_pays(seen: Seen) -> str:
    """Say why no leader can be moved to balance, whichever region is drawn."""
    cluster, config = seen.cluster, seen.cluster.config
    by = scale(cluster, LEADERS)
    out = [source_score(by, s) for s in cluster.stores.values() if state_forbids(s, LEADER_SOURCE, config) is None]
    into = [target_score(by, s) for s in cluster.stores.values() if state_forbids(s, LEADER_TARGET, config) is None]
    if out and into and max(out) > min(into):
        return ""
    seen.memory["retries"] = dict.fromkeys(cluster.stores, LEAST_RETRIES)
    if not into:
        return "no store takes leaders now"
    return "no two leader scores are further apart than the tolerance and what runs already"


def evict_leaders(store: int) -> Policy:
    """Give the scheduler that moves all leaders away from a store, three a round, urgently.

    PD names all followers that may lead and TiKV takes its pick; as in PD's simulated stores it is the first here.
    """

    def schedule(seen: Seen) -> Answer:
        notes = Notes()
        found: dict[int, Operator] = {}
        for _ in range(EVICT_BATCH):
            region = next((r for r in seen.draw(store, LEADER_HERE) if balance_leader.may_transfer(r)), None)
            if region is None or region.id in found:
                continue
            targets = _followers(seen, region, notes)
            if targets:
                _transfer(seen, region, targets[0], EVICT_LEADER, found, notes)
        because = f"leaders leave store {store}" if found else f"store {store} has no leader that could leave"
        return Answer(tuple(found.values()), notes.explained(tuple(found.values()), because))

    return Policy(EVICT_LEADER, schedule, Kind.LEADER, store=store)


def grant_leaders(store: int) -> Policy:
    """Give the scheduler that brings leaders to a store, one a round."""

    def schedule(seen: Seen) -> Answer:
        notes = Notes()
        found: dict[int, Operator] = {}
        region = next((r for r in seen.draw(store, "follower") if balance_leader.may_transfer(r)), None)
        if region is not None:
            _transfer(seen, region, store, GRANT_LEADER, found, notes, Priority.HIGH)
        because = f"leaders come to store {store}" if found else f"store {store} has no follower that could lead"
        return Answer(tuple(found.values()), notes.explained(tuple(found.values()), because))

    return Policy(GRANT_LEADER, schedule, Kind.LEADER, store=store)


def _followers(seen: Seen, region: Region, notes: Notes) -> list[int]:
    stores = seen.cluster.stores
    followers = [stores[p.store] for p in voters(region) if p.store != region.leader and p.store in stores]
    return [s.id for s in keep(followers, [by_state(LEADER_TARGET, seen.cluster.config)], notes)]


def _transfer(
    seen: Seen, region: Region, to: int, desc: str, found: dict[int, Operator], notes: Notes,
    priority: Priority = Priority.URGENT,
) -> None:  # fmt: skip
    try:
        found[region.id] = transfer_leader(seen.cluster, region, to, desc, kind=Kind.LEADER, priority=priority)
    except CannotBuild as e:
        notes.said.append(str(e))


BALANCE_REGION_POLICY = Policy(BALANCE_REGION, balance_regions, Kind.REGION, no_region_pays)
BALANCE_LEADER_POLICY = Policy(BALANCE_LEADER, balance_leaders, Kind.LEADER, no_leader_pays)
DEFAULT_POLICIES = (BALANCE_REGION_POLICY, BALANCE_LEADER_POLICY, HOT_REGION_POLICY)
