"""Every round of balance-leader that PD may play, with how likely each is."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ticdc_lab.simulate.pd import balance_leader
from ticdc_lab.simulate.pd.balance import FOLLOWER_HERE, LEADER_HERE
from ticdc_lab.simulate.pd.chances import NEGLIGIBLE, Chances, drawn, is_here, retried, spread
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.explained import Notes
from ticdc_lab.simulate.pd.operators import Operator
from ticdc_lab.simulate.pd.queue_of_stores import OUT
from ticdc_lab.simulate.pd.regions import Region
from ticdc_lab.simulate.pd.stores import Store

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
