"""PD's own schedulers as policies: the core decides, this only carries what it needs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core import balance_leader, balance_region, evict_leader
from ticdc_lab.pd_core.balance import (
    AMPLIFICATION,
    FOLLOWER_HERE,
    LEADER_HERE,
    LEADERS,
    LEAST_RETRIES,
    REGIONS,
    Draw,
    scale,
)
from ticdc_lab.pd_core.cluster import Cluster, Influence
from ticdc_lab.pd_core.config import (
    BALANCE_HOT,
    BALANCE_LEADER,
    BALANCE_REGION,
    EVICT_LEADER,
    EVICT_SLOW_STORE,
    GRANT_LEADER,
    Config,
)
from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.filters import LEADER_SOURCE, LEADER_TARGET, REGION_SOURCE, REGION_TARGET, state_forbids
from ticdc_lab.pd_core.hot_loads import BYTE, KEY, MOVE_PEER, QUERY, READ, TRANSFER_LEADER, WRITE, Flow, HotSettings
from ticdc_lab.pd_core.hot_region import PEERS_FIRST, solve
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.regions import KeyRanges, Region
from ticdc_lab.pd_core.scores import Numbers, StoreColumns, columns, leader_scores, region_scores
from ticdc_lab.pd_core.stores import PREPARING, REMOVED, SERVING, Store
from ticdc_lab.simulate.pd.world.policy import BUSY, Answer, Policy, SeenCluster
from ticdc_lab.simulate.pd.world.start import SECOND_US
from ticdc_lab.simulate.pd.world.stores import SLOW, SLOWEST, SOUND

ROLES = (REGION_SOURCE, REGION_TARGET, LEADER_SOURCE, LEADER_TARGET)


class StoreTable:
    """Columns of all stores in the order of their ids; ``may[role]``: which of them the role is open to."""

    def __init__(self) -> None:
        self.config: Config | None = None
        self.stores: list[Store] = []
        self.place: dict[int, int] = {}
        self.columns: StoreColumns = columns(())
        self.may: dict[str, NDArray[np.bool_]] = {}

    def refresh(self, cluster: Cluster) -> None:
        stores = list(cluster.stores.values())
        if cluster.config is not self.config or len(stores) != len(self.stores):
            self._fill(cluster, stores)
            return
        for i, (new, old) in enumerate(zip(stores, self.stores, strict=True)):
            if new is not old:
                self._write(i, new, cluster.config)

    def _fill(self, cluster: Cluster, stores: list[Store]) -> None:
        self.config, self.stores = cluster.config, stores
        self.place = {s.id: i for i, s in enumerate(stores)}
        self.columns = columns(stores)
        self.may = {
            role: np.array([state_forbids(s, role, cluster.config) is None for s in stores], np.bool_) for role in ROLES
        }

    def _write(self, i: int, store: Store, config: Config) -> None:
        old = self.stores[i]
        self.stores[i] = store
        if old.id != store.id:
            self.place[store.id] = i
        for name, column in zip(StoreColumns._fields, self.columns, strict=True):
            column[i] = getattr(store, name)
        for role in ROLES:
            self.may[role][i] = state_forbids(store, role, config) is None

    def influence(self, cluster: Cluster, field: str) -> Numbers:
        """Give one field of the influence on each store."""
        found = np.zeros(len(self.stores))
        index = Influence._fields.index(field)
        for store, influence in cluster.influence.items():
            place = self.place.get(store)
            if place is not None:
                found[place] = influence[index]
        return found


SETTINGS = {
    (READ, TRANSFER_LEADER): HotSettings(priorities=(QUERY, BYTE)),
    (READ, MOVE_PEER): HotSettings(priorities=(QUERY, BYTE)),
    (WRITE, TRANSFER_LEADER): HotSettings(priorities=(QUERY, BYTE)),
    (WRITE, MOVE_PEER): HotSettings(priorities=(BYTE, KEY)),
}
"""Priorities by flow and action, as PD has them by default."""


def nothing_is_hot(seen: SeenCluster) -> str:
    """Give why no hot region can be moved."""
    hot = seen.hot()
    if not hot.regions:
        return "no region is hot, or all that are move already"
    if not any(hot.ready.values()):
        return "no store has been above the mean for the whole history"
    return ""


def balance_hot_regions(seen: SeenCluster) -> Answer:
    """One attempt: reads or writes by chance, leaders or peers first as PD has it."""
    kind = READ if seen.chance.random() < 0.5 else WRITE
    hot = seen.hot()
    flow, ready = hot.flows[kind], hot.ready[kind]
    if not ready:
        return Answer((), Explained((), f"no store has been above the mean of {kind}s for the whole history"))
    peers_first = kind == WRITE and seen.chance.random() < PEERS_FIRST
    actions = (MOVE_PEER, TRANSFER_LEADER) if peers_first else (TRANSFER_LEADER,)
    if kind == READ:
        actions = (TRANSFER_LEADER, MOVE_PEER)
    told = Explained((), "no move would even out the load")
    for action in actions:
        told = solve(seen.cluster, hot.regions, _long_hot(flow, ready, action), action, SETTINGS[kind, action])
        if told.operators:
            return Answer((seen.chance.choice(told.operators),), told)
    return Answer((), told)


def _long_hot(flow: Flow, ready: frozenset[int], action: str) -> Flow:
    """Leave only peers of stores that have been hot for long; written leaders are summed by their peers and stay."""
    if flow.kind == WRITE and action == TRANSFER_LEADER:
        return flow
    return flow._replace(peers=[p for p in flow.peers if p.store in ready])


HOT_REGION_POLICY = Policy(BALANCE_HOT, balance_hot_regions, Kind.HOT_REGION, nothing_is_hot, hot=True)


_RECOVERY_US = 600 * SECOND_US
_MOST_FOLLOWERS = 6


def balance_regions(seen: SeenCluster) -> Answer:
    """One attempt of balance-region; of equally good targets one is taken by chance."""
    retries = seen.memory.get("retries", {})
    running = seen.running.get(Kind.REGION, 0)
    told, seen.memory["retries"] = balance_region.schedule(seen.cluster, seen.draw, retries, running=running)
    return Answer((seen.chance.choice(told.operators),) if told.operators else (), told)


def balance_leaders(seen: SeenCluster, batch: int = balance_leader.BATCH) -> Answer:
    """One attempt of balance-leader: up to ``batch`` transfers."""
    retries = seen.memory.get("retries", {})
    running = seen.running.get(Kind.LEADER, 0)
    draw = _hopeful(seen)
    told, seen.memory["retries"] = balance_leader.schedule(seen.cluster, draw, retries, running=running, batch=batch)
    return Answer(told.operators, told)


def _hopeful(seen: SeenCluster) -> Draw:
    """Draw only from stores that have a region whose leader could move; of others every one would be refused."""
    hopes: dict[str, frozenset[int]] = seen.memory.get("hopes", {})

    def draw(store: int, kind: str) -> Iterable[Region]:
        return seen.draw(store, kind) if store in hopes.get(kind, (store,)) else ()

    return draw


def no_region_pays(seen: SeenCluster) -> str:
    """Give why no region can be moved to balance, whichever is drawn: no two scores are far enough apart."""
    if unchanged := _unchanged(seen):
        return unchanged
    cluster, table = seen.cluster, _table(seen)
    by = scale(cluster, REGIONS)
    moved = table.influence(cluster, "region_size")
    widened = np.abs(moved) * AMPLIFICATION + by.tolerance
    after = region_scores(table.columns, cluster.config, moved)
    gives = table.may[REGION_SOURCE]
    takes = table.may[REGION_TARGET] & gives  # PD looks for targets among the sources that come after one
    out = np.where(gives, region_scores(table.columns, cluster.config, -widened), -np.inf)
    into = np.where(takes, region_scores(table.columns, cluster.config, widened), np.inf)
    order = np.argsort(-after, kind="stable")
    lowest_below = np.minimum.accumulate(into[order][::-1])[::-1]
    if (out[order][:-1] > lowest_below[1:]).any():
        return ""
    if not takes.any():
        return _stuck(seen, "no store takes peers now")
    return _stuck(seen, "no two region scores are further apart than the tolerance and what runs already")


def no_leader_pays(seen: SeenCluster) -> str:
    """Give why no leader can be moved to balance, whichever region is drawn: no pair of stores with one to move."""
    if unchanged := _unchanged(seen):
        return unchanged
    cluster, table = seen.cluster, _table(seen)
    by = scale(cluster, LEADERS)
    widened = np.abs(table.influence(cluster, "leader_count" if by.policy == "count" else "leader_size")) + by.tolerance
    takes = table.may[LEADER_TARGET]
    out = np.where(table.may[LEADER_SOURCE], leader_scores(table.columns, by.policy, -widened), -np.inf)
    into = np.where(takes, leader_scores(table.columns, by.policy, widened), np.inf)
    pays = out[:, None] > into[None, :]
    there = np.where(pays, seen.followers_of(tuple(table.place)), 0)
    if there.any():
        ids = table.columns.id
        seen.memory["hopes"] = {
            LEADER_HERE: frozenset(ids[there.any(axis=1)].tolist()),
            FOLLOWER_HERE: frozenset(ids[there.any(axis=0)].tolist()),
        }
        return BUSY if _all_busy(seen, table, there) else ""
    if not takes.any():
        return _stuck(seen, "no store takes leaders now")
    if pays.any():
        return _stuck(seen, "no region of a store with more leaders has a follower where there are fewer")
    return _stuck(seen, "no two leader scores are further apart than the tolerance and what runs already")


def _all_busy(seen: SeenCluster, table: StoreTable, there: NDArray[np.int32]) -> bool:
    """Whether every one of some regions, counted by leader and follower, has an operator already."""
    running = sum(seen.running.values())
    if there.sum() > running * _MOST_FOLLOWERS:
        return False
    return not (there > seen.busy_followers_of(tuple(table.place))).any()


def _unchanged(seen: SeenCluster) -> str:
    """Give the reason of the latest round, where nothing that it depends on is another since."""
    cluster, before = seen.cluster, seen.memory.get("stuck")
    if before is None:
        return ""
    same = before[0] is cluster.stores and before[1] is cluster.influence and before[2] is cluster.config
    return str(before[3]) if same else ""


def _stuck(seen: SeenCluster, why: str) -> str:
    seen.memory["retries"] = dict.fromkeys(seen.cluster.stores, LEAST_RETRIES)
    seen.memory["stuck"] = seen.cluster.stores, seen.cluster.influence, seen.cluster.config, why
    return why


def _table(seen: SeenCluster) -> StoreTable:
    table: StoreTable = seen.memory.setdefault("table", StoreTable())
    table.refresh(seen.cluster)
    return table


def evict_leaders(store: int, ranges: KeyRanges = (), batch: int = 0) -> Policy:
    """Give the scheduler that moves all leaders of some key ranges away from a store, urgently.

    PD names all followers that may lead and TiKV takes its pick; as in PD's simulated stores it is the first here.
    """

    def schedule(seen: SeenCluster) -> Answer:
        return _leaders_off(seen, store, EVICT_LEADER, batch)

    return Policy(EVICT_LEADER, schedule, Kind.LEADER, store=store, ranges=ranges)


def _leaders_off(seen: SeenCluster, store: int, desc: str, batch: int = 0) -> Answer:
    told = evict_leader.evict_leaders(seen.cluster, seen.draw, store, desc, batch)
    return Answer(told.operators, told)


def evict_slow_store(seen: SeenCluster) -> Answer:
    """Let the leaders leave the one store whose slow score is at its worst, until it has been sound for ten minutes.

    With two slow stores nothing is done: leaders would go from one to the other.
    """
    stores, memory = seen.cluster.stores, seen.memory
    if "store" not in memory:
        slow = [s for s in stores.values() if s.state in (PREPARING, SERVING) and s.slow_score >= SLOW]
        if len(slow) != 1 or slow[0].slow_score < SLOWEST:
            why = f"{len(slow)} stores are slow" if len(slow) != 1 else f"store {slow[0].id} is not at its worst yet"
            return Answer((), Explained((), why))
        memory["store"] = slow[0].id
        return _leaders_off(seen, slow[0].id, EVICT_SLOW_STORE)._replace(evicted=((slow[0].id, True),))
    store = stores[memory["store"]]
    if store.slow_score > SOUND:
        memory.pop("sound_us", None)
    elif seen.now_us - memory.setdefault("sound_us", seen.now_us) >= _RECOVERY_US or store.state == REMOVED:
        memory.clear()
        return Answer((), Explained((), f"store {store.id} is not slow any more"), ((store.id, False),))
    return _leaders_off(seen, store.id, EVICT_SLOW_STORE)


def grant_leaders(store: int, ranges: KeyRanges = ()) -> Policy:
    """Give the scheduler that brings leaders to a store, one a round."""

    def schedule(seen: SeenCluster) -> Answer:
        told = evict_leader.grant_leader(seen.cluster, seen.draw, store, GRANT_LEADER)
        return Answer(told.operators, told)

    return Policy(GRANT_LEADER, schedule, Kind.LEADER, store=store, ranges=ranges)


BALANCE_REGION_POLICY = Policy(BALANCE_REGION, balance_regions, Kind.REGION, no_region_pays)
BALANCE_LEADER_POLICY = Policy(BALANCE_LEADER, balance_leaders, Kind.LEADER, no_leader_pays)
EVICT_SLOW_POLICY = Policy(EVICT_SLOW_STORE, evict_slow_store, Kind.LEADER, tries=1, sleeps=True)
DEFAULT_POLICIES = (BALANCE_REGION_POLICY, BALANCE_LEADER_POLICY, HOT_REGION_POLICY, EVICT_SLOW_POLICY)
