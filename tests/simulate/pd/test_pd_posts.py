"""What people posted of pd-ctl's output, made again: nothing is unread in silence, no forecast is against the answer.

Each row has what is odd in a post, in the form of its version, and all that `pd explain` shows about it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_pd_printed import rule

from ticdc_lab.errors import SourceError
from ticdc_lab.pd_core.forecast import forecast, in_words
from ticdc_lab.pd_core.pd_ctl_json import from_folder
from ticdc_lab.pd_core.survey import survey

ROLES = ("Voter", "Learner", "IncomingVoter", "DemotingVoter")
VOTER, LEARNER, INCOMING, DEMOTING = range(4)
HEARD = 1_700_000_000 * 10**9
SAID = json.loads((Path(__file__).parents[2] / "data/pd/posts.json").read_text())
"""By post: what is missing besides :data:`USUAL`, what PD does, forecasts, and notes."""


def key(i: int) -> str:
    """Where the ``i``-th region begins."""
    return f"7480000000000000FF2D5F728000000000FF{i:06X}0000000000FA"


def store(i: int, version: str = "7.5.1", peers: int = 12, state: str = "Up", silent_s: int = 0, **more: Any) -> Any:
    """A store as pd-ctl of a version prints it; sizes and counts are changed by name, ``labels`` as engine=tiflash."""
    labels = [{"key": k, "value": v} for k, v in more.pop("labels", {}).items()]
    meta: dict[str, Any] = {"id": i, "address": f"10.9.0.{i}:20160", "version": version, "state_name": state}
    meta |= {"labels": labels} if labels else {}
    status = {
        "capacity": "1.2TiB", "available": "931.4GiB", "leader_count": peers // 3, "leader_weight": 1,
        "leader_score": peers // 3, "leader_size": peers * 32, "region_count": peers, "region_weight": 1,
        "region_score": peers * 96, "region_size": peers * 96,
    }  # fmt: skip
    if version < "4":
        meta |= {"state": 1} if state == "Offline" else {}
        status |= {"capacity": "1.2 TiB", "available": "931.4 GiB", "last_heartbeat_ts": "2023-11-14T22:13:20.1+08:00"}
    else:
        meta |= {"last_heartbeat": HEARD - silent_s * 10**9 + i * 1000}
        status |= {"used_size": "200.5GiB"}
    if version >= "6":
        meta |= {"node_state": {"Offline": 2, "Tombstone": 3}.get(state, 1)}
    return {"store": meta, "status": status | more}


def region(i: int, n: int, stores: tuple[int, ...], roles: Any = (), version: str = "7.5.1", **more: Any) -> Any:
    """Region ``i`` of ``n``, led by its first store; ``roles`` by store."""
    of = dict(roles)
    peers = [
        {"id": 100 * i + s, "store_id": s}
        | ({"role": of[s]} if s in of else {})
        | ({"role_name": ROLES[of.get(s, 0)]} if version >= "5.2" else {})
        | ({"is_learner": True} if of.get(s) == LEARNER else {})
        for s in stores
    ]
    return {
        "id": i, "start_key": "" if i == 1 else key(i), "end_key": "" if i == n else key(i + 1),
        "epoch": {"conf_ver": 5, "version": 30}, "peers": peers, "leader": peers[0], "written_bytes": 0,
        "read_bytes": 0, "approximate_size": 96, "approximate_keys": 900_000,
    } | more  # fmt: skip


def ring(n: int = 12, stores: tuple[int, ...] = (1, 2, 3), **more: Any) -> list[Any]:
    """Regions that cover all keys."""
    return [region(i, n, stores[i % 3 :] + stores[: i % 3], **more) for i in range(1, n + 1)]


def stores(*ids: int, **more: Any) -> list[Any]:
    """Stores with peers, and the last one without."""
    return [store(i, peers=0 if len(ids) > 3 and i == ids[-1] else 12, **more) for i in ids]


def config(version: str = "7.5.1", replication: Any = (), schedule: Any = ()) -> Any:
    """What `config show all` prints of a PD with limits for all stores."""
    limits = {str(i): {"add-peer": 15, "remove-peer": 15} for i in range(1, 10)}
    balance = [{"type": t, "args": None, "disable": False} for t in ("balance-region", "balance-leader")]
    told = {"max-snapshot-count": 64, "schedulers-v2": balance, "store-limit": limits} | dict(schedule)
    return {
        "cluster-version": version, "schedule": told,
        "replication": {"max-replicas": 3, "location-labels": "", "enable-placement-rules": "true"} | dict(replication),
    }  # fmt: skip


def changed(given: list[Any], at: int, **more: Any) -> list[Any]:
    """Regions; one is different."""
    return [r | more if r["id"] == at else r for r in given]


JOINT = (
    "balance-region {mv peer: store [3] to [4]} (kind:region, region:2(30, 5), createAt:2023-09-15 10:46:32.0 +0000 "
    "UTC m=+7263.3, startAt:2023-09-15 10:46:32.0 +0000 UTC m=+7263.3, currentStep:2, size:96, steps:[0:{add learner "
    "peer 204 on store 4}, 1:{use joint consensus, promote learner peer 204 on store 4 to voter, demote voter peer 203 "
    "on store 3 to learner}, 2:{leave joint state, promote learner peer 204 on store 4 to voter, demote voter peer 203 "
    "on store 3 to learner}, 3:{remove peer on store 3}], timeout:[11m36s])"
)
EVERY = {"add-peer": 15, "remove-peer": 15}
UNLIMITED = {"add-peer": 100000000, "remove-peer": 100000000}
DEFAULT = rule("pd", "default")
ENGINE = {"engine": "tiflash"}
TABLE = {"start_key": key(4).lower(), "end_key": key(8).lower()}
COLUMNAR = rule("tiflash", "t", role="learner", count=1, override=True, **TABLE,
                label_constraints=[{"key": "engine", "op": "in", "values": ["tiflash"]}])  # fmt: skip
TO_WEST = rule("TiDB_DDL_45", "r", **TABLE,
               label_constraints=[{"key": "region", "op": "in", "values": ["west"]}])  # fmt: skip
EAST_WEST = [store(i, labels={"region": "east" if i < 4 else "west"}, peers=12 if i < 4 else 0) for i in range(1, 7)]
ZONES = [store(i, labels={"zone": "abbc"[i - 1]}, state="Offline" if i == 4 else "Up") for i in range(1, 5)]
USUAL = ("settings", "running operators", "schedulers")


class Post(NamedTuple):
    """Files of a folder."""

    name: str
    files: dict[str, Any]


def printed(name: str, stores: Any, regions: Any, **files: Any) -> Post:
    """A post with stores and regions; a file is called ``hot__json``."""
    more = {n.replace("__", "."): c for n, c in files.items()}
    return Post(name, {"store.json": {"stores": stores}, "region.json": {"regions": regions}} | more)


POSTS = [
    printed(
        "v3, a store leaves with sizes that have a space and settings that begin with disable (pd#1580)",
        [store(i, "3.0.5", state="Offline" if i == 4 else "Up") for i in range(1, 6)],
        ring(stores=(1, 2, 4), version="3.0.5"),
        config__json={
            "schedule": {
                "max-snapshot-count": 3,
                "store-balance-rate": 30,
                "disable-make-up-replica": "true",
                "disable-raft-learner": "false",
                "schedulers-v2": [],
            },
            "replication": {"max-replicas": 3},
        },
    ),
    printed(
        "v4.0.0, one limit of a store is off",
        stores(1, 2, 3, 4, version="4.0.0"),
        ring(version="4.0.0"),
        limit__json={str(i): {"rate": 556780641449999900 if i == 4 else 15, "mode": "auto"} for i in range(1, 5)},
        config__json={
            "schedule": {"max-snapshot-count": 3, "leader-schedule-strategy": "count"},
            "replication": {"max-replicas": 3, "enable-placement-rules": "false"},
        },
    ),
    printed(
        "v4.0.13, a hot region and a store whose leaders are evicted",
        stores(1, 2, 3, 4, version="4.0.13"),
        ring(version="4.0.13", written_bytes=9_000_000),
        hot__json={
            "as_peer": {
                "1": {
                    "total_flow_bytes": 1.5e6,
                    "regions_count": 2,
                    "statistics": [
                        {
                            "store_id": 1,
                            "region_id": 3,
                            "hot_degree": 40,
                            "anti_count": 2,
                            "flow_bytes": 2.1e5,
                            "need_delete": False,
                            "version": 3,
                        }
                    ],
                }
            },
            "as_leader": None,
        },
        scheduler__json=["balance-region-scheduler", "evict-leader-scheduler-1"],
    ),
    printed(
        "v4, repairs are switched off",
        stores(1, 2, 3, 4, version="4.0.9"),
        ring(stores=(1, 2), version="4.0.9"),
        operator__json=[],
        config__json=config("4.0.9", {"enable-placement-rules": "false"}, schedule={"enable-make-up-replica": "false"}),
    ),
    printed(
        "v5.0, settings without a score formula",
        stores(1, 2, 3, 4, version="5.0.1"),
        ring(version="5.0.1"),
        config__json={
            "schedule": {"max-snapshot-count": 3, "region-score-formula-version": ""},
            "replication": {"max-replicas": 3, "location-labels": ""},
        },
    ),
    printed(
        "v5.1, TiFlash is down and its rules are missing (docs#12269)",
        [
            *stores(1, 2, 3, version="5.1.0"),
            store(82, "v5.1.0-6-g04e5e8cc8-dirty", state="Down", silent_s=9000, labels=ENGINE),
        ],
        ring(4, (1, 2, 3, 82), roles={82: LEARNER}, version="5.1.0"),
    ),
    printed(
        "v5.3, three stores, one leaves (pd#4226)",
        [*stores(1, 2), store(3, "5.3.0", state="Offline")],
        ring(version="5.3.0"),
        config__json=config("5.3.0", schedule={"store-limit": {str(i): UNLIMITED for i in (1, 2, 3)}}),
    ),
    printed(
        "v5.4, nulls instead of labels, leaders and lists",
        [
            *(s | {"store": s["store"] | {"labels": None}} for s in stores(1, 2, 3, version="5.4.0")),
            store(4, "5.4.0", 0, "Down", 9000, capacity="0B", available="0B"),
        ],
        changed(changed(ring(down_peers=None, pending_peers=None), 3, leader={"role_name": "Voter"}), 4, leader=None),
        operator__json="null",
        scheduler__json=["balance-region-scheduler", "label-scheduler"],
    ),
    printed(
        "v6.1, joint states, of one region an operator",
        stores(1, 2, 3, 4, version="6.1.0"),
        [region(i, 4, (1, 2, 3, 4), {4: INCOMING, 3: DEMOTING}) for i in range(1, 5)],
        operator__json=[JOINT],
    ),
    printed(
        "v6.5, a tombstone is listed",
        [*stores(1, 2, 3, 4, version="6.5.3"), store(9, "6.5.3", 0, "Tombstone", 10**7, capacity="0B", available="0B")],
        ring(),
    ),
    printed(
        "v6.5, two voters, a peer that is down and a learner (pd#6559)",
        [store(1), store(2, state="Offline", silent_s=9000, peers=3), store(3), store(4)],
        [
            region(
                i,
                12,
                (1, 2, 3, 4),
                {4: LEARNER},
                down_peers=[{"down_seconds": 40307, "peer": {"id": 100 * i + 2, "store_id": 2}}],
                pending_peers=[{"id": 100 * i + 2, "store_id": 2}],
            )
            if i < 4
            else region(i, 12, (1, 3, 4))
            for i in range(1, 13)
        ],
        rules__json=[DEFAULT],
        config__json=config("6.5.3"),
    ),
    printed(
        "v7.1, witnesses of a PD that has them off",
        stores(1, 2, 3, 4, version="7.1.0"),
        [
            r | {"peers": [*r["peers"][:2], r["peers"][2] | {"is_witness": True}]}
            for r in (region(i, 6, (1, 2, 3)) for i in range(1, 7))
        ],
        rules__json=[rule("pd", "default", count=2), rule("pd", "witness", count=1, is_witness=True)],
    ),
    printed(
        "v7.2, region check pending-peer beside all regions",
        stores(1, 2, 3, 4, version="7.2.0"),
        ring(),
        check__json={
            "count": 1,
            "regions": changed(ring(), 3, pending_peers=[{"id": 303, "store_id": 3, "role_name": "Voter"}])[2:3],
        },
        describe__json={"name": "balance-region-scheduler", "status": "normal", "summary": ""},
        health__json=[{"name": "pd-1", "health": True}],
    ),
    printed(
        "v7.5, stores one by one, regions of four scans",
        [store(1)],
        ring()[:3],
        s2__json=store(2),
        s3__json=store(3),
        s4__json=store(4, peers=0),
        scan__json="\n".join(json.dumps({"count": 3, "regions": ring()[a : a + 3]}) for a in (3, 6, 9)),
    ),
    printed(
        "v7.5, scans in one list, as jq -s writes them",
        stores(1, 2, 3, 4),
        ring()[:3],
        scan__json=[{"count": 3, "regions": ring()[a : a + 3]} for a in (3, 6, 9)],
    ),
    printed(
        "v7.6, sizes of all kinds, empty regions",
        [
            store(1, capacity="16EiB", available="0B"),
            store(2, capacity="1e+03GiB", available="999.9GiB"),
            store(3),
            store(4, peers=0),
        ],
        [region(i, 12, (1, 2, 3), approximate_size=96 * (i % 2)) for i in range(1, 13)],
    ),
    printed(
        "v8.1, a policy begins within a region",
        EAST_WEST,
        ring(stores=(1, 2, 3)),
        bundle__json=[
            {"group_id": "pd", "group_index": 0, "group_override": False, "rules": [DEFAULT]},
            {
                "group_id": "TiDB_DDL_45",
                "group_index": 40,
                "group_override": True,
                "rules": [TO_WEST | {"start_key": key(4)[:-4] + "01fa"}],
            },
        ],
        config__json=config("8.1.0"),
    ),
    printed(
        "a policy without the bundle of its group (pd#4467)",
        EAST_WEST,
        ring(stores=(1, 2, 3)),
        rules__json=[DEFAULT, TO_WEST],
        config__json=config("8.1.0"),
        operator__json=[],
    ),
    printed(
        "v8.5, settings and fields of that version",
        stores(1, 2, 3, 4, version="8.5.1", sending_snap_count=1, slow_score=1),
        ring(cpu_usage=12, approximate_kv_size=90, buckets=["a", "b"]),
        operator__json=[],
        config__json=config(
            "8.5.1",
            schedule={
                "patrol-region-worker-count": 1,
                "store-limit-version": "v2",
                "affinity-schedule-limit": 0,
                "enable-heartbeat-concurrent-runner": "true",
                "switch-witness-interval": "1h0m0s",
                "halt-scheduling": "false",
            },
        ),
    ),
    printed(
        "a store that has peers is not listed",
        stores(2, 3, 4),
        ring(),
        operator__json=[],
        config__json=config(),
        rules__json=[DEFAULT],
    ),
    printed(
        "stores of another moment than the regions",
        [store(i, peers=400 if i == 4 else 12) for i in range(1, 5)],
        ring(),
        operator__json=[],
        config__json=config(),
        rules__json=[DEFAULT],
    ),
    printed(
        "a file of settings and one of operators are cut",
        stores(1, 2, 3, 4),
        ring(),
        config__json=json.dumps(config())[:60],
        operator__json=json.dumps([JOINT])[:200],
    ),
    printed(
        "groups of settings by themselves: label-property, cluster-version, server",
        [store(1, labels={"zone": "z"}), *stores(2, 3), store(4, peers=0)],
        ring(),
        property__json={"reject-leader": [{"key": "zone", "value": "z"}]},
        version__json='"5.4.0"',
        server__json={"use-region-storage": "true", "key-type": "raw"},
        operator__json=[],
    ),
    printed(
        "two documents on one line",
        stores(1, 2, 3, 4),
        ring(),
        both__json="[]" + json.dumps(["balance-region-scheduler"]) + json.dumps({str(i): EVERY for i in range(1, 5)}),
    ),
    printed(
        "TiFlash, the only store of it leaves",
        [*stores(1, 2, 3), store(4, state="Offline", peers=4, labels=ENGINE)],
        [region(i, 12, (1, 2, 3, 4), {4: LEARNER}) if 4 <= i < 8 else region(i, 12, (1, 2, 3)) for i in range(1, 13)],
        rules__json=[DEFAULT, COLUMNAR],
        config__json=config(),
        operator__json=[],
    ),
    printed(
        "TiFlash joins, a table wants it",
        [*stores(1, 2, 3), store(4, peers=0, labels=ENGINE)],
        ring(),
        rules__json=[DEFAULT, COLUMNAR],
        config__json=config(),
        operator__json=[],
    ),
    printed(
        "isolation by zone, the third zone leaves (pd#3705)",
        ZONES,
        ring(stores=(1, 2, 4)),
        rules__json=[DEFAULT | {"location_labels": ["zone"], "isolation_level": "zone"}],
        config__json=config(replication={"location-labels": "zone", "isolation-level": "zone"}),
        operator__json=[],
    ),
    printed(
        "no store has room",
        [store(i, peers=120, available="50GiB", state="Offline" if i == 1 else "Up") for i in range(1, 5)],
        ring(120),
        rules__json=[DEFAULT],
        config__json=config(),
        operator__json=[],
    ),
    printed(
        "store limits are off",
        [store(i, state="Offline" if i == 3 else "Up") for i in range(1, 5)],
        ring(),
        rules__json=[DEFAULT],
        config__json=config(schedule={"store-limit": {str(i): UNLIMITED for i in range(1, 5)}}),
        operator__json=[],
    ),
    printed(
        "a store leaves, another one falls silent",
        [
            store(i, peers=60, state={1: "Offline", 4: "Disconnected"}.get(i, "Up"), silent_s=1680 * (i == 4))
            for i in range(1, 6)
        ],
        [region(i, 100, tuple(1 + (i + k) % 5 for k in range(3))) for i in range(1, 101)],
        rules__json=[DEFAULT],
        config__json=config(),
        operator__json=[],
    ),
    printed(
        "full stores beside an empty one",
        [*(store(i, peers=200, available="90GiB", used_size="1.1TiB") for i in (1, 2, 3)), store(4, peers=0)],
        ring(200),
        rules__json=[DEFAULT],
        config__json=config(),
        operator__json=[],
    ),
    printed(
        "most regions are empty (pd#8285)",
        [store(i, peers=0 if i == 4 else 150) for i in range(1, 5)],
        [region(i, 150, (1, 2, 3), approximate_size=96 if i % 3 == 0 else 1) for i in range(1, 151)],
        rules__json=[DEFAULT],
        config__json=config(schedule={"merge-schedule-limit": 0}),
        operator__json=[],
    ),
    printed(
        "a region check of an earlier moment",
        stores(1, 2, 3, 4),
        ring(),
        check__json={
            "count": 1,
            "regions": changed(
                ring(epoch={"conf_ver": 4, "version": 30}), 3, pending_peers=[{"id": 303, "store_id": 3}]
            )[2:3],
        },
    ),
    printed(
        "a session with groups of settings and a command that nobody reads here",
        stores(1, 2, 3, 4),
        ring(),
        session__txt=f'» member\n{{"members": [{{"name": "pd-1"}}]}}\n» config show schedule\n'
        f"{json.dumps(config()['schedule'])}\n» config show replication\n{json.dumps(config()['replication'])}\n"
        f"» operator show\n[]\n» region check miss-peer\n[]\n",
    ),
]


def explained(folder: Path) -> dict[str, Any]:
    """What `pd explain` shows of a folder: what is missing besides :data:`USUAL`, what PD does, forecasts, notes."""
    told = from_folder(folder)
    found = survey(told.cluster, told.regions, schedulers=told.schedulers, running=told.running, doubted=told.doubted)
    ahead = forecast(told.cluster, told.regions, told.limits, groups=found.groups, schedulers=told.schedulers)
    missing = [m.what for m in told.missing if m.what not in USUAL and not m.what.startswith("limits of store")]
    notes = [n for n in told.notes if not n.startswith("not simulated: ")]
    return {"missing": missing, "does": found.sentence, "ahead": in_words(ahead), "notes": notes}


@pytest.mark.parametrize("post", POSTS, ids=lambda post: post.name)
def test_a_post_is_read_or_named_and_forecasts_follow_the_answer(post: Post, tmp_path: Path) -> None:
    """All that is reported, word by word: what is missing, what PD does, how long it takes, and what is not read."""
    for name, content in post.files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    assert explained(tmp_path) == SAID[post.name]


def cut(text: str, width: int) -> str:
    """Lines as a terminal of some width shows them."""
    return "\n".join(line[at : at + width] for line in text.split("\n") for at in range(0, max(1, len(line)), width))


@pytest.mark.parametrize("width", [44, 80])
@pytest.mark.parametrize("indent", [None, 2])
def test_lines_that_a_terminal_cut_are_joined_and_said(indent: int | None, width: int, tmp_path: Path) -> None:
    """A line that ends within a text shows it; nothing is changed in a file whose lines are whole."""
    files = {"stores": {"stores": stores(1, 2, 3, 4)}, "regions": {"regions": ring()}}
    answers = []
    for folder, of in (("plain", 10**6), ("cut", width)):
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / f"{name}.json").write_text(cut(json.dumps(content, indent=indent), of))
        (tmp_path / folder / "operator.txt").write_text(cut(json.dumps([JOINT]), of))
        answers.append(explained(tmp_path / folder))
    plain, joined = answers
    names = sorted(
        p.name for p in (tmp_path / "cut").iterdir() if p.read_text() != (tmp_path / "plain" / p.name).read_text()
    )
    said = [f"joined: the lines of {name}, which a terminal cut at {width} characters" for name in names]
    assert "operator.txt" in names
    assert sorted(set(joined["notes"]) - set(plain["notes"])) == said
    assert {**joined, "notes": plain["notes"]} == plain


def test_a_region_inside_of_another_object_and_a_store_that_no_region_reports(tmp_path: Path) -> None:
    """`region key` prints the former. PD replaces no peer of a store that is down before a leader reports it."""
    (tmp_path / "stores.json").write_text(json.dumps({"stores": stores(1, 2, 3, 4)}))
    (tmp_path / "region.json").write_text(json.dumps({"region": region(2, 12, (1, 2, 3))}))
    assert "1 of 12 regions are given" in explained(tmp_path)["missing"][0]
    down = {"stores": [store(i, state="Down" if i == 3 else "Up", silent_s=4000 * (i == 3)) for i in (1, 2, 3, 4)]}
    (tmp_path / "stores.json").write_text(json.dumps(down))
    (tmp_path / "region.json").write_text(json.dumps({"regions": ring()}))
    assert explained(tmp_path)["missing"][0] == "reports of regions that peers on store 3 are down"


@pytest.mark.parametrize("text", ["Failed to get store: [404] not found", '{"id": 1, "state_name": "Up"}', "     1\t{"])
def test_a_file_that_is_none_is_named_with_what_it_begins_with(text: str, tmp_path: Path) -> None:
    """What pd-ctl could not do, what jq chose, and a listing with numbers of lines."""
    (tmp_path / "store.txt").write_text(text + "\n")
    (tmp_path / "region.json").write_text(json.dumps({"regions": ring()}))
    with pytest.raises(SourceError) as refused:
        from_folder(tmp_path)
    assert f"1 unknown (store.txt begins with {text.strip()!r})" in str(refused.value)
