"""Scenarios of the forms of the file with other contents: what is asked differently is answered, or not understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ticdc_lab.simulate.pd.replay import replay

THREE = [{"id": i, "region_count": 4 - i} for i in (1, 2, 3)]


def verdict(folder: Path, **scenario: Any) -> dict[str, Any]:
    """Judge one scenario."""
    path = folder / "scenario.jsonl"
    path.write_text(json.dumps({"id": "test", **scenario}))
    return replay(path).records[0]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "too few stores stay": (
        {"area": "offline", "stores": THREE, "config": {"max_replicas": 3, "command": "store delete 3"}},
        {"error": "ErrStoresNotEnough"},
    ),
    "no store would take leaders": (
        {"area": "offline", "stores": [{"id": i, "evict_leader": i > 1} for i in range(1, 5)],
         "config": {"max_replicas": 3, "command": "store delete 1"}},
        {"error": "ErrNoStoreForRegionLeader"},
    ),
    "a down store": (
        {"area": "store state", "stores": [{"id": 1, "state": "down"}], "config": {}},
        {"leader_source": False, "region_source": True, "region_target_allow_temporary": False},
    ),
    "an up store": (
        {"area": "store state", "stores": [{"id": 1}], "config": {}},
        {"leader_source": True, "leader_target": True, "region_source": True, "region_target": True},
    ),
    "a store low on space": (
        {"area": "storage", "stores": [{"id": 1, "region_count": 200, "capacity_gib": 100, "available_gib": 10}]},
        {"low_space": True},
    ),
    "two large regions a second": (
        {"area": "store-limit", "stores": [{"id": 2, "store_limit": {"add-peer": 120}}],
         "regions": [{"size_mib": 96, "leader": 1, "peers": [1]}], "config": {"instantaneous": True}},
        {"accepted": 2, "then": "refused"},
    ),
    "nobody leads, so a voter may follow": (
        {"area": "placement", "regions": [{"peers_text": "1111,1112_learner,1132"}],
         "config": {"rules_text": ["3/follower//"]}},
        {"peers_per_rule": ["1111,1112,1132"]},
    ),
    "learners come last": (
        {"area": "placement", "regions": [{"peers_text": "1111_learner,1112,1113"}],
         "config": {"rules_text": ["2/voter//"]}},
        {"peers_per_rule": ["1112,1113"]},
    ),
    "TiFlash is for rules that ask for it": (
        {"area": "placement", "regions": [{"peers_text": "1111,1115_learner"}],
         "config": {"rules_text": ["2/voter//", "1/learner/engine=tiflash/"]}},
        {"peers_per_rule": ["1111", "1115"]},
    ),
    "a peer may not move beside another": (
        {"area": "placement", "stores": [{"id": i, "labels": {"zone": z}} for i, z in ((1, "a"), (2, "b"), (3, "b"))],
         "regions": [{"leader": 1, "peers": [1, 2]}],
         "config": {"max_replicas": 2, "location_labels": ["zone"], "replace": [1, 3]}},
        {"allowed": False},
    ),
    "a limit of none": (
        {"area": "balance-region", "stores": [{"id": 1, "region_count": 50}, {"id": 2}],
         "regions": [{"leader": 1, "peers": [1]}], "config": {"max_replicas": 1, "region_schedule_limit": 0}},
        {"operator": "none"},
    ),
    "merging with a region on an unknown store": (
        {"area": "merge", "stores": [{"id": i} for i in (1, 2, 3)],
         "regions": [{"id": 1, "keys": ["", "a"], "size_mib": 1, "leader": 1, "peers": [1, 2, 3]},
                     {"id": 2, "keys": ["a", ""], "size_mib": 1, "leader": 1, "peers": [1, 2, 4]}],
         "config": {"split_merge_interval_s": 0}, "id": "merge-1-1"},
        {"operator": "none"},
    ),
    "one way: a region merges into the next one only": (
        {"area": "merge", "stores": [{"id": i} for i in (1, 2, 3)],
         "regions": [{"id": 1, "keys": ["", "a"], "size_mib": 1, "leader": 1, "peers": [1, 2, 3]},
                     {"id": 2, "keys": ["a", "b"], "size_mib": 1, "leader": 1, "peers": [1, 2, 3]},
                     {"id": 3, "keys": ["b", ""], "size_mib": 9, "leader": 1, "peers": [1, 2, 3]}],
         "config": {"split_merge_interval_s": 0, "enable_one_way_merge": True}, "id": "merge-2-1"},
        {"operator": "merge", "source": 2, "target": 3, "steps": ["merge 2->3"]},
    ),
    "a down peer is replaced by a witness at once": (
        {"area": "rule-checker", "stores": [{"id": 1}, {"id": 2}, {"id": 3, "state": "down"}, {"id": 4}],
         "regions": [{"leader": 1, "peers": [1, 2, 3], "down_peers": [3]}],
         "config": {"placement_rules": True, "witness": True}},
        {"operator": "move-peer", "to_store": 4, "desc": "fast-replace-rule-down-peer", "priority": "urgent"},
    ),
    "an operator that still has time": (
        {"area": "operator", "stores": [{"id": 1}], "regions": [{"leader": 1, "peers": [1], "size_mib": 96}],
         "config": {"operator": "add-peer", "running_s": 599}},
        {"status": "started", "limit_s": 600},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_scenario_of_a_known_form_is_answered(name: str, tmp_path: Path) -> None:
    """The decision is what PD would decide, and every field was read."""
    told, expect = CASES[name]
    given = {k: told[k] for k in ("stores", "regions", "config") if k in told}
    r = verdict(tmp_path, area=told["area"], given=given, expect=expect, **({"id": told["id"]} if "id" in told else {}))
    assert r["agrees"] is True, r
    assert "not understood" not in r["because"]


def test_what_nobody_reads_is_named(tmp_path: Path) -> None:
    """A field of an unknown name is not passed over in silence."""
    given = {"stores": [{"id": 1, "mood": "bad"}], "config": {"weather": "fair"}}
    r = verdict(tmp_path, area="store state", given=given, expect={"leader_source": True})
    assert r["because"].endswith("not understood: config.weather, stores.mood")
    r = verdict(tmp_path, area="tides", given=given, expect={"level": 3})
    assert r["agrees"] is None and r["because"] == "not judged: area tides with the expectation of level"


@pytest.mark.parametrize(
    ("config", "expect", "why"),
    [
        ({"mood": "bad"}, {"operator": "remove-peer"}, "config.mood"),
        ({}, {"operator": "none", "tide": 3}, "expect.tide"),
        ({"running_operators": "3 x dance 1"}, {"operator": "none"}, "3 x dance 1"),
    ],
)
def test_what_is_not_modelled_is_not_judged(
    config: dict[str, Any], expect: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """A disagreement that an unread option may explain is no disagreement, and no agreement either."""
    given = {"stores": THREE, "regions": [{"leader": 1, "peers": [1, 2, 3]}], "config": config}
    r = verdict(tmp_path, area="balance-region", given=given, expect=expect)
    assert r["agrees"] is None and why in r["because"], r


def test_a_disagreement_in_what_is_understood_stays_one(tmp_path: Path) -> None:
    """Nothing that was left unread can explain a wrong answer where all was read."""
    given = {"stores": THREE, "regions": [{"leader": 1, "peers": [1, 2, 3]}], "config": {}}
    r = verdict(tmp_path, area="balance-region", given=given, expect={"operator": "move-peer"})
    assert r["agrees"] is False
