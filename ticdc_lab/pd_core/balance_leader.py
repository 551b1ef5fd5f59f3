"""Balance leaders: up to four transfers a round, out of the highest score and into the lowest by turns
(balance_leader.go).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import cmp_to_key
from types import MappingProxyType

from ticdc_lab.pd_core.balance import (
    FOLLOWER_HERE,
    LEADER_HERE,
    LEADERS,
    RETRIES,
    Draw,
    Scale,
    compare,
    fewer_retries,
    from_lowest,
    scale,
    score_after,
)
from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster, Influence, fit_of, influence_on
from ticdc_lab.pd_core.config import BALANCE_LEADER
from ticdc_lab.pd_core.create import transfer_leader
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.filters import (
    LEADER_SOURCE,
    LEADER_TARGET,
    SOURCE,
    by_state,
    fits_leader,
    keep,
    no_special_use,
)
from ticdc_lab.pd_core.operators import Kind, Operator, TransferLeader
from ticdc_lab.pd_core.regions import SCHEDULE, Region, voters
from ticdc_lab.pd_core.stores import Store

OUT, IN = 0, 1
"""Take leaders out of the highest store, bring them into the lowest."""

_EQUAL = 1e-9

Score = Callable[[Store], float]


class StoreQueue:
    """Stores by score; of equal ones the higher id, which is the newer store, comes first."""

    def __init__(self, stores: list[Store], *, high: bool, at: int = 0) -> None:
        self.stores, self.high, self.at = stores, high, at

    @classmethod
    def of(cls, stores: Iterable[Store], score: Score, *, high: bool) -> StoreQueue:
        """Sort stores, the highest first or the lowest."""
        queue = cls([], high=high)
        scores = {s.id: score(s) for s in stores}

        def compare(a: Store, b: Store) -> int:
            return -1 if queue.before(a, scores[a.id], b, scores[b.id]) else 1

        queue.stores = sorted(stores, key=cmp_to_key(compare))
        return queue

    def copy(self) -> StoreQueue:
        """Give a queue that may go its own way."""
        return StoreQueue(list(self.stores), high=self.high, at=self.at)

    @property
    def left(self) -> bool:
        return self.at < len(self.stores)

    @property
    def head(self) -> Store:
        return self.stores[self.at]

    def skip(self) -> None:
        self.at += 1

    def before(self, a: Store, score_a: float, b: Store, score_b: float) -> bool:
        if abs(score_a - score_b) <= _EQUAL:
            return a.id > b.id
        return score_a > score_b if self.high else score_a < score_b

    def place(self, store: Store, score: Score) -> int:
        """Find where a store stands, by its score; the last place where it is not in the queue."""
        own = score(store)
        passed = [not self.before(s, score(s), store, own) for s in self.stores[:-1]]
        return bisect_left(passed, True)

    def resort(self, place: int, score: Score) -> None:
        """Bring a store whose score changed to its new place; PD never moves one to the very front."""
        stores, moved = self.stores, self.stores[place]
        own = score(moved)
        while place + 1 < len(stores) and not self.before(moved, own, stores[place + 1], score(stores[place + 1])):
            stores[place], stores[place + 1] = stores[place + 1], stores[place]
            place += 1
        while place > 1 and self.before(moved, own, stores[place - 1], score(stores[place - 1])):
            stores[place], stores[place - 1] = stores[place - 1], stores[place]
            place -= 1


BATCH = 4


class Round:
    """A round under way: the two queues of stores, and the influence of what it decided so far."""

    def __init__(self, cluster: Cluster, notes: Notes) -> None:
        config, stores = cluster.config, list(cluster.stores.values())
        notes.look_at([s.id for s in stores])
        sources = keep(stores, [by_state(LEADER_SOURCE, config), no_special_use(config, SOURCE)], notes, SOURCE)
        targets = keep(stores, [by_state(LEADER_TARGET, config), no_special_use(config)], notes)
        self.scale = scale(cluster, LEADERS)
        self.queues = (StoreQueue.of(sources, self.score, high=True), StoreQueue.of(targets, self.score, high=False))
        self.turn = 0
        self.used: frozenset[int] = frozenset()
        self.operators: tuple[Operator, ...] = ()

    def score(self, store: Store) -> float:
        return score_after(self.scale, store)

    def next_store(self) -> tuple[int, Store] | None:
        """Give whose turn it is: the queue's number and its store; None when both are used up."""
        for _ in range(2):
            queue = self.queues[self.turn]
            if queue.left:
                return self.turn, queue.head
            self.turn = 1 - self.turn
        return None

    def give_up(self) -> None:
        """Nothing can be done for the store whose turn it is: the next one of its queue follows."""
        self.queues[self.turn].skip()
        self.turn = 1 - self.turn

    def take(self, op: Operator) -> None:
        """Count an operator's influence and put its stores in their new places."""
        step = op.steps[0]
        assert isinstance(step, TransferLeader)
        ends = [self.scale.cluster.stores[s] for s in (step.from_store, step.to_store)]
        places = [[queue.place(e, self.score) for e in ends] if queue.left else [] for queue in self.queues]
        self.scale = self.scale._replace(cluster=with_transfer(self.scale.cluster, op, step))
        for queue, found in zip(self.queues, places, strict=True):
            for place in found:
                queue.resort(place, self.score)
        self.used |= {op.region}
        self.operators += (op,)
        self.turn = 1 - self.turn


def with_transfer(cluster: Cluster, op: Operator, step: TransferLeader) -> Cluster:
    """Give the cluster with a leader transfer's influence."""
    changed = dict(cluster.influence)
    for store, sign in ((step.from_store, -1), (step.to_store, 1)):
        changed[store] = influence_on(cluster, store).plus(Influence(0, 0, op.size, 1), sign)
    return cluster._replace(influence=MappingProxyType(changed))


def schedule(
    cluster: Cluster, draw: Draw, retries: Mapping[int, int] = MappingProxyType({}), *, running: int = 0,
    batch: int = BATCH,
) -> tuple[Explained, Mapping[int, int]]:  # fmt: skip
    """Play one round: give its operators, or why there is none, and ``retries`` for the next round.

    ``draw`` and ``retries`` are as for :func:`ticdc_lab.pd_core.balance_region.schedule`; ``running`` leader
    operators run now, a round has at most ``batch`` transfers.
    """
    notes = Notes()
    if running >= cluster.config.leader_schedule_limit:
        notes.limit = f"leader-schedule-limit {cluster.config.leader_schedule_limit}"
        return notes.explained((), "as many leader operators run as the limit allows"), retries
    round_ = Round(cluster, notes)
    while len(round_.operators) < batch and (turn := round_.next_store()) is not None:
        direction, store = turn
        op = _tried(round_, direction, store, draw, retries.get(store.id, RETRIES), notes)
        if op is None:
            retries = fewer_retries(retries, store.id)
            round_.give_up()
        else:
            retries = {**retries, store.id: RETRIES}
            round_.take(op)
    found = round_.operators
    return notes.explained(found, found[0].brief if found else "no transfer pays: every store was tried"), retries


def _tried(round_: Round, direction: int, store: Store, draw: Draw, limit: int, notes: Notes) -> Operator | None:
    kind = LEADER_HERE if direction == OUT else FOLLOWER_HERE
    for _ in range(limit):
        region = next((r for r in draw(store.id, kind) if may_transfer(r)), None)
        if region is None or region.hot or region.id in round_.used:
            continue
        found = transfer(round_.scale, direction, store, region, notes)
        if found:
            return found[0]
    return None


def may_transfer(region: Region) -> bool:
    """Whether a region's leader may move to balance: no peer down or pending, and no label that forbids it."""
    return not region.down and not region.pending and SCHEDULE not in region.denied


def transfer(by: Scale, direction: int, store: Store, region: Region, notes: Notes) -> tuple[Operator, ...]:
    """Move a region's leader out of a store, to its follower with the lowest score, or into the store.

    Equally low followers are equally likely: one operator each.
    """
    cluster, config = by.cluster, by.cluster.config
    source = cluster.stores.get(region.leader)
    if source is None or not keep([source], [by_state(LEADER_SOURCE, config)], notes, SOURCE):
        return ()
    filters = [by_state(LEADER_TARGET, config), no_special_use(config)]
    if config.placement_rules:
        filters.append(fits_leader(fit_of(cluster, region), region, source.id))
    followers = (p.store for p in voters(region) if p.store != region.leader)
    wanted = [cluster.stores[i] for i in followers if i in cluster.stores] if direction == OUT else [store]
    targets = keep(wanted, filters, notes)
    for tied in from_lowest(by, targets):
        found = tuple(op for t in tied for op in _operator(by, region, source, t, notes))
        if found:
            return found
    return ()


def _operator(by: Scale, region: Region, source: Store, target: Store, notes: Notes) -> tuple[Operator, ...]:
    compared = compare(by, source, target, notes)
    if not compared.held:
        return ()
    try:
        op = transfer_leader(by.cluster, region, target.id, BALANCE_LEADER, kind=Kind.LEADER)
    except CannotBuild as e:
        notes.said.append(str(e))
        return ()
    return (op._replace(source_score=compared.source_score, target_score=compared.target_score),)
