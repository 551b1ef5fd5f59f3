"""A cluster from the JSON that pd-ctl prints."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from worlds import of_regions

from ticdc_lab.errors import SourceError
from ticdc_lab.pd_core import pd_ctl_files
from ticdc_lab.pd_core.cluster import rules_of
from ticdc_lab.pd_core.pd_ctl_json import Loaded, from_folder, from_pd_ctl
from ticdc_lab.pd_core.regions import LEARNER, Peer, Region, place_of, region_at
from ticdc_lab.pd_core.rules import Constraint
from ticdc_lab.pd_core.stores import GIB, NEVER_S, shown_state

HEARD_NS = 1_700_000_000_000_000_000


def store(i: int, **more: Any) -> dict[str, Any]:
    """A store as pd-ctl prints it."""
    meta = {"id": i, "address": f"10.0.0.{i}:20160", "labels": [{"key": "Zone", "value": f"z{i}"}],
            "last_heartbeat": HEARD_NS, "state_name": "Up", "node_state": 1}  # fmt: skip
    status = {"capacity": "1.5TiB", "available": "512GiB", "used_size": "1000.5GiB", "region_count": 7,
              "region_size": 672, "leader_count": 3, "leader_weight": 1, "region_weight": 2}  # fmt: skip
    return {"store": meta | more.pop("meta", {}), "status": status | more}


def region(i: int, *stores: int, **more: Any) -> dict[str, Any]:
    """A region as pd-ctl prints it; the first store leads."""
    peers = [{"id": 10 * i + s, "store_id": s, "role_name": "Voter"} for s in stores]
    start, end = f"{i:04X}" if i > 1 else "", f"{i + 1:04X}"
    return {"id": i, "start_key": start, "end_key": end, "peers": peers, "leader": peers[0],
            "approximate_size": 96, "approximate_keys": 1000} | more  # fmt: skip


def load(
    folder: Path, stores: list[dict[str, Any]], regions: Any, config: object = None, rules: object = None
) -> Loaded:
    """Write what pd-ctl printed, and load it."""
    paths = []
    for name, told in (("stores", {"count": len(stores), "stores": stores}), ("regions", regions),
                       ("config", config), ("rules", rules)):  # fmt: skip
        path = folder / f"{name}.json"
        path.write_text(told if isinstance(told, str) else json.dumps(told, indent=1))
        paths.append(None if told is None else path)
    assert paths[0] is not None and paths[1] is not None
    return from_pd_ctl(paths[0], paths[1], paths[2], paths[3])


def test_a_store_has_its_sizes_labels_and_state(tmp_path: Path) -> None:
    """Sizes such as 1.5TiB are bytes, labels are found no matter what their case, weights and counts are taken over."""
    (found,) = load(tmp_path, [store(1)], [region(1, 1)]).cluster.stores.values()
    assert (found.capacity, found.available, found.used) == (1536 * GIB, 512 * GIB, 1000.5 * GIB)
    assert found.labels == {"zone": "z1"} and (found.region_weight, found.leader_weight) == (2, 1)
    assert (found.region_count, found.region_size, found.leader_count) == (7, 672, 3)
    assert shown_state(found, 1800) == "Up"


@pytest.mark.parametrize(
    ("meta", "state", "age_s"),
    [
        ({"last_heartbeat": HEARD_NS - 60 * 10**9}, "Disconnected", 60.0),
        ({"state_name": "Disconnected"}, "Disconnected", 21.0),
        ({"state_name": "Down"}, "Down", 1801.0),
        ({"last_heartbeat": 0}, "Up", 0.0),
        ({"state_name": "Disconnected", "last_heartbeat": 0}, "Disconnected", 21.0),
        ({"state_name": "Down", "last_heartbeat": 0}, "Down", NEVER_S),
        ({"state_name": "Offline", "node_state": 2}, "Offline", 0.0),
        ({"state_name": "Offline", "node_state": None}, "Offline", 0.0),
        ({"state_name": "Tombstone", "node_state": 3, "last_heartbeat": 0}, "Tombstone", NEVER_S),
    ],
)
def test_ages_count_from_the_latest_heartbeat_of_any_store(
    meta: dict[str, Any], state: str, age_s: float, tmp_path: Path
) -> None:
    """The document does not show when it was printed; what it shows of a state holds."""
    found = load(tmp_path, [store(1, meta=meta), store(2)], [region(1, 2)]).cluster.stores[1]
    assert (shown_state(found, 1800), found.heartbeat_age_s) == (state, age_s)


def test_heartbeats_are_also_told_as_times(tmp_path: Path) -> None:
    """Older versions print only last_heartbeat_ts."""
    old = {"last_heartbeat": None}
    stores = [store(1, meta=old, last_heartbeat_ts="2024-01-01T00:00:00.25Z"),
              store(2, meta=old, last_heartbeat_ts="2024-01-01T01:01:00+01:00")]  # fmt: skip
    ages = [s.heartbeat_age_s for s in load(tmp_path, stores, [region(1, 1)]).cluster.stores.values()]
    assert ages == [60.0, 0.0]


def test_a_region_keeps_its_peers_roles_and_troubles(tmp_path: Path) -> None:
    """Learners, witnesses, down and pending peers are the ones of the document; regions come in key order."""
    peers = [{"id": 5, "store_id": 1, "role_name": "Voter"}, {"id": 6, "store_id": 2, "role": 1, "is_witness": True}]
    sick = region(2, 1, peers=peers, leader=peers[0], end_key="", pending_peers=[peers[1]],
                  down_peers=[{"down_seconds": 70, "peer": peers[1]}])  # fmt: skip
    loaded = load(tmp_path, [store(1), store(2)], {"count": 2, "regions": [sick, region(1, 2, 1)]})
    first, second = region_at(loaded.regions, 0), region_at(loaded.regions, 1)
    assert (first.id, first.leader, first.start_key, second.start_key) == (1, 2, "", "0002")
    assert second.peers == (Peer(5, 1), Peer(6, 2, LEARNER, True))
    assert (second.down, second.pending, second.down_seconds) == ({2}, {2}, 70)
    assert loaded.cluster.stores[2].pending_peers == 1
    assert loaded.cluster.regions_on == {1: 2, 2: 2} and loaded.cluster.average_region_size == 96
    assert place_of(loaded.regions, 2) == 1 and place_of(loaded.regions, 9) is None


def test_regions_become_columns_and_regions_again(tmp_path: Path) -> None:
    """Nothing is lost on the way there and back."""
    told = {"regions": [region(1, 1, 2, 3), region(2, 3), region(3, 2, 1)]}
    loaded = load(tmp_path, [store(i) for i in (1, 2, 3)], told)
    regions = [region_at(loaded.regions, i) for i in range(3)]
    again = of_regions(regions)
    assert [region_at(again, i) for i in range(3)] == regions


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("form", ["object", "list", "lines", "gzip"])
def test_every_form_of_a_list_is_read_whatever_the_chunks(
    form: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are found across the borders of what is read at once; braces and quotes in text do not count."""
    regions = [region(i, 1, note='{"}\\[') for i in range(1, 40)]
    text = {
        "list": json.dumps(regions, indent=2),
        "lines": "\n".join(map(json.dumps, regions)),
    }.get(form, json.dumps({"count": 39, "regions": regions, "more": {"regions": [1]}}))
    path = tmp_path / "regions.json"
    path.write_bytes(gzip.compress(text.encode()) if form == "gzip" else text.encode())
    monkeypatch.setattr(pd_ctl_files, "CHUNK", chunk)
    monkeypatch.setattr(pd_ctl_files, "_HEAD", 64)
    found = [r for batch in pd_ctl_files.batches(path, "regions") for r in batch]
    assert found == regions


def test_settings_are_read_in_pd_ctls_forms(tmp_path: Path) -> None:
    """Booleans and lists as text, durations, groups; what is not reported has PD's default."""
    told = {"schedule": {"max-store-down-time": "1h30m0s", "leader-schedule-limit": 8, "low-space-ratio": 0.9,
                         "enable-joint-consensus": "false", "split-merge-interval": "90s",
                         "region-score-formula-version": "v1",
                         "store-limit": {"1": {"add-peer": 30, "remove-peer": 40.5}}},
            "replication": {"max-replicas": 5, "location-labels": "zone,host", "enable-placement-rules": "true"},
            "label-property": {"reject-leader": [{"key": "dc", "value": "far"}]}}  # fmt: skip
    loaded = load(tmp_path, [store(1)], [region(1, 1)], told)
    assert loaded.limits == {1: (30, 40.5)}
    c = loaded.cluster.config
    assert (c.max_store_down_time_s, c.split_merge_interval_s, c.leader_schedule_limit) == (5400, 90, 8)
    assert (c.max_replicas, c.location_labels, c.joint_consensus, c.placement_rules) == (
        5,
        ("zone", "host"),
        False,
        True,
    )
    assert (c.region_score_formula_version, c.low_space_ratio, c.reject_leader) == ("v1", 0.9, (("dc", "far"),))
    assert c.region_schedule_limit == 2048


def test_rules_come_in_the_order_in_which_they_hold(tmp_path: Path) -> None:
    """By group, index and id; one that overrides takes the place of its group's before it."""
    default = {"group_id": "pd", "id": "default", "role": "voter", "count": 3}
    learner = {"group_id": "tiflash", "id": "t", "role": "learner", "count": 1, "start_key": "AA",
               "label_constraints": [{"key": "engine", "op": "in", "values": ["tiflash"]}]}  # fmt: skip
    loaded = load(tmp_path, [store(1)], [region(1, 1)], None, [learner, default])
    assert [r.id for r in loaded.cluster.rules] == ["default", "t"]
    assert loaded.cluster.rules[1].constraints == (Constraint("engine", "in", ("tiflash",)),)
    over = default | {"id": "mine", "index": 5, "override": True, "count": 5}
    loaded = load(tmp_path, [store(1)], [region(1, 1)], None, [default, over])
    in_force = rules_of(loaded.cluster, Region(1, (Peer(1, 1),), 1))
    assert [(r.id, r.replicas) for r in in_force] == [("mine", 5)]


@pytest.mark.parametrize(
    ("stores", "regions", "says"),
    [
        ("[{}]", "[]", "a store without an id: expected stores as pd-ctl prints them"),
        ("{", "[]", "expected JSON"),
        ('{"stores": 3}', "[]", 'expected a list of objects under "stores"'),
        (None, "[]", "expected one region or more"),
        (None, '{"regions": null}', "expected one region or more"),
        (None, '{"regions": [{"id": 1}]}', "region 1: expected regions with id, start_key"),
        (None, '{"regions": [{"id": 1', "expected complete objects"),
        (None, '{"regions": [{"id" 1}]}', "expected JSON objects"),
    ],
)
def test_another_form_is_told_with_where_expected_and_found(
    stores: str | None, regions: str, says: str, tmp_path: Path
) -> None:
    """Never a trace: the message names the file."""
    (tmp_path / "s.json").write_text(stores or json.dumps({"stores": [store(1)]}))
    (tmp_path / "r.json").write_text(regions)
    with pytest.raises(SourceError, match=r"\.json: ") as e:
        from_pd_ctl(tmp_path / "s.json", tmp_path / "r.json")
    assert says in str(e.value)
    with pytest.raises(SourceError, match="cannot be read"):
        from_pd_ctl(tmp_path / "nowhere.json", tmp_path / "r.json")


INFINITE = float("inf")


@pytest.mark.parametrize(("kind", "document"), [
    ("store", {"count": 2, "stores": [store(1), 5]}),
    ("store", {"count": 2, "stores": [store(1), {"store": "x"}]}),
    ("store", {"count": 1, "stores": [store(1, meta={"labels": [{"key": "zone", "value": True}]})]}),
    ("store", {"count": 1, "stores": [store(1, meta={"last_heartbeat": INFINITE})]}),
    ("region", {"count": 1, "regions": [region(1, 1, approximate_size=INFINITE)]}),
    ("config", {"schedule": {"max-replicas": INFINITE}, "replication": {}}),
    ("rules", [{"group_id": "pd", "id": "a", "role": "voter", "count": INFINITE}]),
])  # fmt: skip
def test_a_value_that_nobody_can_read_is_an_error_of_its_file(tmp_path: Path, kind: str, document: Any) -> None:
    """No traceback: numbers beyond all others, texts in place of objects, labels that are no text."""
    whole = {"store": {"count": 1, "stores": [store(1)]}, "region": {"count": 1, "regions": [region(1, 1)]}}
    for name, told in (whole | {kind: document}).items():
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    with pytest.raises(SourceError, match=rf"{kind}\.json: .*expected "):
        from_folder(tmp_path)
