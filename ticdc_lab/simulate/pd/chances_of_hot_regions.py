"""Every round of balance-hot-region that PD may play, with how likely each is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ticdc_lab.simulate.pd.chances import Chances
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.hot_loads import MOVE_PEER, READ, TRANSFER_LEADER, WRITE, Flow, HotSettings
from ticdc_lab.simulate.pd.hot_region import PEERS_FIRST, solve
from ticdc_lab.simulate.pd.regions import Region

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
