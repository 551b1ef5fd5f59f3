"""Decisions beyond the ones of golden/pd: scenarios in the same form, written from PD's rules (tests/data/pd)."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.operators import RemovePeer, TransferLeader
from ticdc_lab.pd_core.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.pd_core.rule_checker import check_rules
from ticdc_lab.pd_core.stores import Store
from ticdc_lab.simulate.pd.replay import replay

SCENARIOS = Path(__file__).parents[2] / "data" / "pd" / "decisions.jsonl"


def test_every_decision_is_the_expected_one() -> None:
    """194 decisions about repair, rules, witnesses, key ranges, labels, merges, limits; every field was read."""
    replayed = replay(SCENARIOS)
    assert [r for r in replayed.records if r["agrees"] is not True or "not understood" in r["because"]] == []
    assert replayed.total == 194


@pytest.mark.parametrize("total", [5, 6])
@pytest.mark.parametrize("joint", [False, True])
def test_fewer_replicas_never_keep_a_peer_on_a_silent_store(joint: bool, total: int) -> None:
    """Whichever peers fell silent, one a learner where there are six: once three are asked for, exactly those go."""
    config = Config(max_replicas=3, joint_consensus=joint, witness=True)
    for leader in range(1, total + 1):
        for silent in combinations(range(1, total + 1), total - 3):
            learner = next(s for s in silent if s != leader) if total == 6 else 0
            peers = tuple(Peer(i, i, LEARNER if i == learner else VOTER) for i in range(1, total + 1))
            stores = [Store(i, heartbeat_age_s=30.0 if i in silent else 0.0) for i in range(1, total + 1)]
            cluster, region = cluster_of(config, stores), Region(1, peers, leader)
            for _ in silent:
                region = without_an_orphan(cluster, region)
            assert region.stores.isdisjoint(silent) and len(region.peers) == 3
            assert check_rules(cluster, region).operator is None


def without_an_orphan(cluster: Cluster, region: Region) -> Region:
    """The region after the checker's next operator, which must remove one peer that is too many."""
    op = check_rules(cluster, region).operator
    assert op is not None and "orphan" in op.desc, region
    (gone,) = [s.store for s in op.steps if isinstance(s, RemovePeer)]
    leads = [s.to_store for s in op.steps if isinstance(s, TransferLeader)]
    left = tuple(p for p in region.peers if p.store != gone)
    return region._replace(peers=left, leader=leads[-1] if leads else region.leader)
