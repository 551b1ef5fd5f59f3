"""Every operator that PD may decide on where it draws regions by chance, with how likely each is."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, permutations

from ticdc_lab.pd_core import balance_leader, balance_region
from ticdc_lab.pd_core.balance import (
    DRAWN,
    FOLLOWER_HERE,
    LEADER_HERE,
    LEARNER_HERE,
    PENDING_HERE,
    RETRIES,
    score_after,
)
from ticdc_lab.pd_core.balance_leader import OUT
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.explained import Notes
from ticdc_lab.pd_core.hot_loads import MOVE_PEER, READ, TRANSFER_LEADER, WRITE, Flow, HotSettings
from ticdc_lab.pd_core.hot_region import PEERS_FIRST, solve
from ticdc_lab.pd_core.operators import Operator
from ticdc_lab.pd_core.regions import Region, is_learner
from ticdc_lab.pd_core.stores import Store

Chances = dict[tuple[Operator | None, int], float]
"""The first operator of a round (None: none) and how many the round has, to its probability."""

NEGLIGIBLE = 1e-7
"""Chances below this are left out."""

_MOST_ORDERS, _MOST_TIED = 24, 4


def is_here(region: Region, store: int, kind: str) -> bool:
    """Whether a region's peer on a store is of a kind that regions are drawn by."""
    peer = region.peer_on(store)
    if peer is None:
        return False
    if kind == PENDING_HERE:
        return store in region.pending
    if kind == LEARNER_HERE:
        return is_learner(peer)
    if kind == LEADER_HERE:
        return region.leader == store
    return kind == FOLLOWER_HERE and region.leader != store and not is_learner(peer)


def drawn(regions: Sequence[Region], may: Callable[[Region], bool]) -> tuple[dict[int, float], float]:
    """Give the chance that each region is the first fit one of ten draws, and that none is."""
    fit = [r.id for r in regions if may(r)]
    if not fit:
        return {}, 1.0
    none = (1 - len(fit) / len(regions)) ** DRAWN
    return dict.fromkeys(fit, (1 - none) / len(fit)), none


def retried(once: Mapping[Operator, float]) -> tuple[dict[Operator, float], float]:
    """Give the chances after PD's tries until the first success, and that all fail."""
    success = sum(once.values())
    if not success:
        return {}, 1.0
    failure = max(0.0, 1 - success) ** RETRIES
    return {op: p / success * (1 - failure) for op, p in once.items()}, failure


def of_balance_region(cluster: Cluster, regions: Sequence[Region], notes: Notes) -> Chances:
    """Give the chances of one round of balance-region; what was refused and compared is noted."""
    found = balance_region.field(cluster, notes)
    orders: list[tuple[Store, ...]] = [()]  # that PD may sort stores into: equal scores come in any order
    for _, group in groupby(found.sources, key=lambda s: score_after(found.scale, s)):
        tied = tuple(group)
        ways = list(permutations(tied)) if len(tied) <= _MOST_TIED and len(orders) <= _MOST_ORDERS else [tied]
        orders = [(*o, *w) for o in orders for w in ways]
    chances: Chances = defaultdict(float)
    for order in orders:
        left, one = 1.0, found._replace(sources=order)
        for i in range(len(order) - 1):
            ops, failure = retried(_moves(one, i, regions, notes))
            for op, p in ops.items():
                chances[op, 1] += left * p / len(orders)
            left *= failure
            if left < NEGLIGIBLE:
                break
        chances[None, 0] += left / len(orders)
    return {key: p for key, p in chances.items() if p >= NEGLIGIBLE}


def _moves(found: balance_region.Field, index: int, regions: Sequence[Region], notes: Notes) -> dict[Operator, float]:
    """Give the chances of one try for a source."""
    cluster, source = found.scale.cluster, found.sources[index]
    once: dict[Operator, float] = defaultdict(float)
    by_id, left = {r.id: r for r in regions}, 1.0
    for kind in balance_region.ORDER:
        here = [r for r in regions if is_here(r, source.id, kind)]

        def may(region: Region, kind: str = kind) -> bool:
            return not balance_region.may_move(cluster, region, source.id, kind)

        chosen, none = drawn(here, may)
        for region_id, p in chosen.items():
            region = by_id[region_id]
            ops = () if region.hot or not region.leader else balance_region.transfer(found, index, region, notes)
            spread(once, ops, left * p)
        left *= none
    return once


def spread(once: dict[Operator, float], operators: Iterable[Operator], p: float) -> None:
    ops = tuple(operators)
    for op in ops:
        once[op] += p / len(ops)


def scores_text(chances: Chances) -> str:
    """Give the scores that the most likely move pays by."""
    for op, _ in sorted(chances, key=lambda k: -chances[k]):
        if op is not None and op.source_score is not None and op.target_score is not None:
            return f"{op.brief}: {op.source_score:.2f} against {op.target_score:.2f}"
    return "no move pays, or none is possible"


_FEW = 16


def of_balance_leader(cluster: Cluster, regions: Sequence[Region], notes: Notes) -> Chances:
    """Give the chances of one round of balance-leader; what was refused and compared for its first operator is noted.

    Of more than 16 regions those that move between the same stores are taken to be followed by the same.
    """
    chances: Chances = defaultdict(float)
    followed: dict[str, dict[int, float]] = {}
    few = len(regions) <= _FEW
    for op, after, p in _next(balance_leader.Round(cluster, notes), regions, notes):
        if op is None:
            chances[None, 0] += p
            continue
        key = f"{op.region} {op.brief}" if few else op.brief
        if key not in followed:
            followed[key] = _lengths(after, regions, p)
        for length, chance in followed[key].items():
            chances[op, length] += p * chance
    return {key: p for key, p in chances.items() if p >= NEGLIGIBLE}


def _next(
    round_: balance_leader.Round, regions: Sequence[Region], notes: Notes
) -> Iterator[tuple[Operator | None, balance_leader.Round, float]]:
    """Give every operator that may come next, the round with it, and its chance; at last that none comes."""
    left = 1.0
    while (turn := round_.next_store()) is not None:
        ops, failure = retried(_transfers(round_, turn, regions, notes))
        for op, chance in ops.items():
            yield op, _taken(round_, op), left * chance
        left *= failure
        if left < NEGLIGIBLE:
            return
        round_.give_up()
    yield None, round_, left


def _lengths(round_: balance_leader.Round, regions: Sequence[Region], p: float) -> dict[int, float]:
    """Give how many operators a round may come to, with the chance of each; ``p`` is the chance of getting here."""
    if len(round_.operators) >= balance_leader.BATCH or p < NEGLIGIBLE:
        return {len(round_.operators): 1.0}
    ways: dict[str, tuple[balance_leader.Round, float]] = {}
    for op, after, chance in _next(round_, regions, Notes()):
        if op is None:
            ways[""] = (after, chance)
            continue
        key = op.brief if len(regions) > _FEW else f"{op.region} {op.brief}"
        ways[key] = (ways[key][0] if key in ways else after, chance + (ways[key][1] if key in ways else 0.0))
    lengths: dict[int, float] = defaultdict(float)
    for key, (after, chance) in ways.items():
        ends = _lengths(after, regions, p * chance) if key else {len(round_.operators): 1.0}
        for length, then in ends.items():
            lengths[length] += chance * then
    return lengths


def _taken(round_: balance_leader.Round, op: Operator) -> balance_leader.Round:
    other = copy.copy(round_)
    other.queues = (round_.queues[0].copy(), round_.queues[1].copy())
    other.take(op)
    return other


def _transfers(
    round_: balance_leader.Round, turn: tuple[int, Store], regions: Sequence[Region], notes: Notes
) -> dict[Operator, float]:
    direction, store = turn
    kind = LEADER_HERE if direction == OUT else FOLLOWER_HERE
    once: dict[Operator, float] = defaultdict(float)
    chosen, _ = drawn([r for r in regions if is_here(r, store.id, kind)], balance_leader.may_transfer)
    by_id = {r.id: r for r in regions}
    for region_id, p in chosen.items():
        region = by_id[region_id]
        if not region.hot and region.id not in round_.used:
            spread(once, balance_leader.transfer(round_.scale, direction, store, region, notes), p)
    return once


DEFAULT = HotSettings()


def of_hot_regions(cluster: Cluster, regions: Sequence[Region], flow: Flow, settings: HotSettings = DEFAULT) -> Chances:
    """Give the chances of one round of balance-hot-region: written peers are tried first in two of three rounds."""
    by_id = {r.id: r for r in regions}
    by_peer = solve(cluster, by_id, flow, MOVE_PEER, settings).operators
    by_leader = solve(cluster, by_id, flow, TRANSFER_LEADER, settings).operators
    peers_first = PEERS_FIRST if flow.kind == WRITE else 0.0
    chances: Chances = defaultdict(float)
    for first, second, share in ((by_peer, by_leader, peers_first), (by_leader, (), 1 - peers_first)):
        found = first or second or (by_peer if flow.kind == READ else ())
        for op in found:
            chances[op, 1] += share / len(found)
        if not found:
            chances[None, 0] += share
    return {key: p for key, p in chances.items() if p}
