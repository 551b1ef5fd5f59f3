"""PD's hot-region scheduler as a policy: what to move is the core's decision, when is told by the history of stores."""

from __future__ import annotations

from ticdc_lab.simulate.pd.explained import Explained
from ticdc_lab.simulate.pd.hot_loads import BYTE, KEY, MOVE_PEER, QUERY, READ, TRANSFER_LEADER, WRITE, Flow, HotSettings
from ticdc_lab.simulate.pd.hot_region import PEERS_FIRST, solve
from ticdc_lab.simulate.pd.operators import Kind
from ticdc_lab.simulate.pd.world.policy import Answer, Policy, Seen

NAME = "balance-hot-region-scheduler"
SETTINGS = {
    (READ, TRANSFER_LEADER): HotSettings(priorities=(QUERY, BYTE)),
    (READ, MOVE_PEER): HotSettings(priorities=(QUERY, BYTE)),
    (WRITE, TRANSFER_LEADER): HotSettings(priorities=(QUERY, BYTE)),
    (WRITE, MOVE_PEER): HotSettings(priorities=(BYTE, KEY)),
}
"""Priorities by flow and action, as PD has them by default."""


def nothing_is_hot(seen: Seen) -> str:
    """Say why no hot region can be moved."""
    hot = seen.hot()
    if not hot.regions:
        return "no region is hot, or all that are move already"
    if not any(hot.ready.values()):
        return "no store has been above the mean for the whole history"
    return ""


def balance_hot_regions(seen: Seen) -> Answer:
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


HOT_REGION_POLICY = Policy(NAME, balance_hot_regions, Kind.HOT_REGION, nothing_is_hot, hot=True)
