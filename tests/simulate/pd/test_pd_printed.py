"""Everything that pd-ctl prints is read, or named as unread; what is missing is in the first line."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import orjson
import pytest
import zstandard
from click.testing import CliRunner
from test_pd_ctl import HEARD_NS, region, store

from ticdc_lab.cli import main
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.bounded import LIMITS_VARIABLE
from ticdc_lab.pd_core import pd_ctl_files
from ticdc_lab.pd_core.cluster import Influence, rules_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.forecast import forecast, in_words
from ticdc_lab.pd_core.limits import PerMinute
from ticdc_lab.pd_core.merge_checker import table_of
from ticdc_lab.pd_core.operators import AddLearner, Kind, RemovePeer
from ticdc_lab.pd_core.pd_ctl_files import OTHER, PrintedFile, batches, documents, kinds_of
from ticdc_lab.pd_core.pd_ctl_json import Loaded, from_folder
from ticdc_lab.pd_core.recorded.records import lines_of
from ticdc_lab.pd_core.regions import lie_in, region_at
from ticdc_lab.pd_core.stores import PREPARING, SERVING
from ticdc_lab.pd_core.survey import BUSY, DOUBTED, survey

KEYS = [f"74800000000000{n:02X}FF{n:02X}00000000000000F8" for n in range(1, 9)]


def ring(n: int, *stores: int, **more: Any) -> list[dict[str, Any]]:
    """Regions that cover all keys."""
    borders = ["", *KEYS[: n - 1], ""]
    return [region(i + 1, *stores, start_key=borders[i], end_key=borders[i + 1], **more) for i in range(n)]


def given(folder: Path, **files: Any) -> Loaded:
    """A folder with stores 1 to 4, three regions on the first three of them, and other files."""
    told = {
        "store.json": {"stores": [store(i, version_of="7.5.1") for i in range(1, 5)]},
        "region.json": {"count": 3, "regions": ring(3, 1, 2, 3)},
    }
    for name, content in (told | {n.replace("__", "."): c for n, c in files.items()}).items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return from_folder(folder)


def rule(group: str, name: str, **more: Any) -> dict[str, Any]:
    """A placement rule for all keys."""
    return {"group_id": group, "id": name, "start_key": "", "end_key": "", "role": "voter", "count": 3} | more


OPERATOR = (
    "balance-region {mv peer: store [1] to [4]} (kind:region, region:2(5, 3), createAt:2024-01-01 00:00:00 +0800 CST, "
    "startAt:2024-01-01 00:00:00 +0800 CST, currentStep:1, size:96, steps:[0:{add learner peer 9 on store 4}, "
    "1:{use joint consensus, promote learner peer 9 on store 4 to voter, demote voter peer 1 on store 1 to learner}, "
    "2:{leave joint state, promote learner peer 9 on store 4 to voter, demote voter peer 1 on store 1 to learner}, "
    "3:{remove peer on store 1}], timeout:[10m0s])"
)
OLD_OPERATOR = (
    "replace-offline-replica {mv peer: store [1] to [4]} (kind:region,replica, region:3(5,3), createAt:.., "
    "startAt:.., currentStep:0, steps:[add learner peer 9 on store 4, promote learner peer 9 on store 4 to voter, "
    "remove peer on store 1])"
)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"stores": []}, "stores"),
        ({"store": {"id": 1}, "status": {}}, "stores"),
        ({"count": 0, "regions": None}, "regions"),
        (region(1, 1), "regions"),
        ([rule("pd", "default")], "rules"),
        ([{"group_id": "pd", "group_index": 0, "group_override": False, "rules": []}], "rules"),
        ({"group_id": "pd", "group_index": 0, "group_override": False, "rules": []}, "rules"),
        ([{"id": "pd"}, {"id": "x", "index": 40, "override": True}], "rules"),
        ({"1": {"add-peer": 15, "remove-peer": 15}}, "store limits"),
        (["balance-region-scheduler", "evict-leader-scheduler-5"], "schedulers"),
        ({"store-id-ranges": {"1": [{"start-key": "", "end-key": ""}]}}, "schedulers"),
        ([OPERATOR], "operators"),
        ({"as_peer": {}, "as_leader": None}, "hot regions"),
        ({"bytes-write-rate": {"1": 2.0}}, "hot stores"),
        ([{"start": 0, "end": 9, "count": 4}], "histogram"),
        ({"replication": {"max-replicas": 3}}, "config"),
        ({"range-name": "t", "start-key": "7480", "end-key": "7481"}, "schedulers"),
        ([{"name": "balance-region-scheduler", "paused_at": "..", "resume_at": ".."}], "schedulers"),
        ([{"id": "a", "index": 0, "labels": [], "rule_type": "key-range", "data": []}], "region labels"),
        ({"id": 6976297345, "max_peer_count": 3}, OTHER),
        ({"id": 6976297345}, OTHER),
        ({"raftstore": {}, "storage": {}}, OTHER),
        ("[2024/01/01] [INFO] [x.go:1] []", OTHER),
    ],
)
def test_a_file_is_recognised_by_what_it_contains(content: Any, kind: str, tmp_path: Path) -> None:
    """With any name; TiKV's settings and logs, which diag collects too, are none of pd-ctl's."""
    path = tmp_path / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert kinds_of(PrintedFile(path)) == [kind]


def test_a_tar_of_diag_is_read_and_what_is_foreign_is_named(tmp_path: Path) -> None:
    """Files below folders; the words of tiup before a document do not count."""
    inside = tmp_path / "10.0.0.1-2379"
    inside.mkdir()
    given(inside, placement_rule__json=[rule("pd", "default")], tikv__log="[INFO] started")
    text = (inside / "region.json").read_text()
    (inside / "region.json").write_text(f"Starting component `ctl`: /root/ctl pd\n{text}")
    with tarfile.open(tmp_path / "diag.tar.gz", "w:gz") as tar:
        tar.add(inside, "diag/10.0.0.1-2379")
    loaded = from_folder(tmp_path / "diag.tar.gz")
    assert (len(loaded.cluster.stores), len(loaded.regions.id)) == (4, 3)
    assert "not read, no output of pd-ctl that is known here: tikv.log" in loaded.notes
    with pytest.raises(SourceError, match="no file has stores"):
        from_folder(inside / "region.json")


def test_a_tar_of_a_folder_as_it_is_has_its_files(tmp_path: Path) -> None:
    """`tar -C folder .` calls them ./store.json; only hidden ones are left out, and a cut tar is named."""
    given(tmp_path, operator__json=[OPERATOR])
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        for name in ("store.json", "region.json", "operator.json"):
            tar.add(tmp_path / name, f"./{name}")
        tar.add(tmp_path / "store.json", "./.store.json.swp")
    loaded = from_folder(tmp_path / "a.tgz")
    assert len(loaded.cluster.stores) == 4 and len(loaded.operators) == 1 and "not read" not in " ".join(loaded.notes)
    (tmp_path / "b.tgz").write_bytes((tmp_path / "a.tgz").read_bytes()[:-40])
    with pytest.raises(SourceError, match=r"b\.tgz"):
        from_folder(tmp_path / "b.tgz")


_V2 = {"type": "balance-leader", "args": None}
_HOT = {"region_id": 2, "hot_degree": 9}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("hot.json", {"as_peer": True}),
        ("hot.json", {"as_peer": {"1": {"statistics": [{"a": None}]}}}),
        ("hot.json", {"as_peer": {"1": {"statistics": [_HOT | {"hot_degree": [None]}]}}}),
        ("config.json", {"schedule": {"schedulers-v2": [{"args": None}]}}),
        ("config.json", {"schedule": {"schedulers-v2": [_V2 | {"args": -1}]}}),
        ("config.json", {"schedule": {"schedulers-v2": 7}}),
        (
            "config.json",
            {"schedule": {"schedulers-v2": [_V2], "schedulers-payload": {"balance-leader-scheduler": "é"}}},
        ),
        ("config.json", {"schedule": {}, "label-property": {"reject-leader": [{"key": "a"}]}}),
        ("config.json", {"replication": {"location-labels": [None]}}),
        ("rule.json", [rule("pd", "default", count=-1)]),
        ("rule.json", [rule("pd", "default", id=[[]])]),
        ("rule.json", [{"group_id": "pd", "group_index": "x", "rules": [rule("pd", "default")]}]),
        ("rule.json", [rule("pd", "a", label_constraints=[{"key": "z", "op": "in", "values": [{}]}])]),
        ("scheduler-evict-leader.json", {"store-id-ranges": "1e400"}),
        ("store.json", {"stores": [store(1, region_size="é")]}),
        ("store.json", {"stores": [store(1, leader_weight=[])]}),
        ("operator.json", [{"desc": "a", "brief": "b", "currentStep": "x"}]),
    ],
)
def test_a_value_of_another_form_is_an_error_of_its_file(name: str, content: Any, tmp_path: Path) -> None:
    """No matter what the reader stumbles over: never a trace, and never a number that is none."""
    with pytest.raises(SourceError, match=name):
        given(tmp_path, **{name.replace(".", "__"): content})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[" * 100_000, "JSON"),
        ('{"stores": ' + "9" * 5_000 + "x", "JSON|digits"),
        (gzip.compress(b"{}" * 900)[:-9], "whole"),
    ],
    ids=["without end", "a long number", "gzip cut short"],
)
def test_a_file_over_the_limits_of_a_parser_is_said_in_words(content: str | bytes, says: str, tmp_path: Path) -> None:
    """Lists without end, numbers of thousands of digits, a packed file that is cut off."""
    path = tmp_path / "a.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SourceError, match=rf"a\.json.*({says})"):
        documents(path)
    with pytest.raises(SourceError, match=r"a\.json"):
        list(batches(path, "regions"))


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks without end, and an object without end among regions, take no memory without end."""
    monkeypatch.setenv(LIMITS_VARIABLE, "bytes=1000")
    monkeypatch.setattr(pd_ctl_files, "CHUNK", 10_000)
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(b'{"regions": [{"a": "' + b"x" * 100_000))
    for read in (lambda: documents(path), lambda: list(batches(path, "regions")), lambda: lines_of(path)):
        with pytest.raises(SourceError, match=rf"{LIMITS_VARIABLE}"):
            read()


WITNESSES = [rule("pd", "v", count=2), rule("pd", "w", count=1, is_witness=True)]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(
    ("stores", "witness", "rules", "words"),
    [
        ((1, 2, 3), True, [], ["witnesses that become full peers: 3 peers, 12 s at best (add-peer limit of store 3)"]),
        ((1, 2, 3), False, WITNESSES,
         ["peers that become witnesses: 3 peers, 12 s at best (remove-peer limit of store 3)"]),
        ((1, 2), False, WITNESSES, ["missing peers of rule pd/w: 3 peers, 0 s at best (no store limit counts them)"]),
    ],
    ids=["a witness that no rule asks for", "a witness that a rule asks for", "a witness that is missing"],
)  # fmt: skip
def test_a_change_of_a_witness_is_forecast(
    stores: tuple[int, ...], witness: bool, rules: list[Any], words: list[str], joint: bool, tmp_path: Path
) -> None:
    """Data comes at the add-peer limit and goes at the remove-peer limit; a new witness is free (operator/step.go)."""
    regions = ring(3, *stores)
    for r in regions:
        r["peers"][-1]["is_witness"] = witness
    schedule = {"enable-witness": bool(rules), "enable-joint-consensus": joint}
    config = {"cluster-version": "8.5.1", "schedule": schedule}
    more = {"r__json": rules} if rules else {}
    loaded = given(tmp_path, region__json={"count": 3, "regions": regions}, config__json=config, **more)
    found = survey(loaded.cluster, loaded.regions)
    assert in_words(forecast(loaded.cluster, loaded.regions, loaded.limits, groups=found.groups)) == words


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"role": "Voter"}, "role Voter is none of PD's"),
        ({"start_key": "75", "end_key": "74"}, "end_key 74 is not behind start_key 75"),
        ({"label_constraints": [{"key": "zone", "op": "is"}]}, "op is is none of PD's"),
    ],
)
def test_a_rule_that_pd_never_prints_is_refused(more: dict[str, Any], found: str, tmp_path: Path) -> None:
    """Else it would match nothing, in silence."""
    with pytest.raises(SourceError, match=found):
        given(tmp_path, r__json=[rule("pd", "default", **more)])


def test_keys_are_compared_as_bytes(tmp_path: Path) -> None:
    """Rules in lower case hold for regions in upper case."""
    tiflash = rule("tiflash", "t", role="learner", count=1, start_key=KEYS[0].lower(), end_key=KEYS[1].lower())
    loaded = given(tmp_path, r__json=[rule("pd", "default"), tiflash])
    held = [len(rules_of(loaded.cluster, region_at(loaded.regions, i))) for i in range(3)]
    assert held == [1, 2, 1]


@pytest.mark.parametrize("form", ["bundle", "bundles", "rules and groups"])
def test_groups_apply_by_index_then_name_and_override(form: str, tmp_path: Path) -> None:
    """A group with a higher index that overrides puts the groups before it out of force, in any form."""
    mine = [rule("TiDB_DDL_7", "v", count=5)]
    bundles = [
        {"group_id": "TiDB_DDL_7", "group_index": 40, "group_override": True, "rules": mine},
        {"group_id": "pd", "group_index": 0, "group_override": False, "rules": [rule("pd", "default")]},
    ]
    files: dict[str, Any] = {"a__json": bundles[0], "b__json": bundles[1]} if form == "bundle" else {"a__json": bundles}
    if form == "rules and groups":
        files = {"a__json": [*mine, rule("pd", "default")],
                 "b__json": [{"id": "pd"}, {"id": "TiDB_DDL_7", "index": 40, "override": True}]}  # fmt: skip
    loaded = given(tmp_path, **files)
    assert [(r.id, r.replicas) for r in rules_of(loaded.cluster, region_at(loaded.regions, 0))] == [("v", 5)]
    assert "bundle" not in loaded.first_line


def test_a_group_without_its_bundle_is_said_and_its_regions_are_not_judged(tmp_path: Path) -> None:
    """TiDB's groups are assumed to be as TiDB writes them; of others it is unknown which rules are in force."""
    loaded = given(tmp_path, a__json=[rule("pd", "default"), rule("TiDB_DDL_7", "v", count=5)])
    assert "bundle of the rule group TiDB_DDL_7" in loaded.first_line and loaded.doubted is None
    assert [r.replicas for r in rules_of(loaded.cluster, region_at(loaded.regions, 0))] == [5]
    mine = rule("mine", "v", count=5, start_key=KEYS[0])
    loaded = given(tmp_path, a__json=[rule("pd", "default"), mine])
    assert loaded.doubted is not None and loaded.doubted.tolist() == [False, True, True]
    outcomes = {o.group: o.regions for o in survey(loaded.cluster, loaded.regions, doubted=loaded.doubted).outcomes}
    assert outcomes[DOUBTED] == 2


def test_learners_without_rules_are_not_called_orphans(tmp_path: Path) -> None:
    """TiFlash, and no --rules: the first line reports it, and nothing is to be removed."""
    flash = store(4, meta={"labels": [{"key": "engine", "value": "tiflash"}]})
    peers = [{"id": i, "store_id": i, "role_name": "Voter"} for i in (1, 2, 3)]
    learner = {"id": 9, "store_id": 4, "role_name": "Learner", "is_learner": True}
    regions = ring(3, 1, 2, 3)
    regions[1] |= {"peers": [*peers, learner]}
    loaded = given(tmp_path, store__json={"stores": [store(1), store(2), store(3), flash]},
                   region__json={"regions": regions})  # fmt: skip
    assert "add --rules" in loaded.first_line
    told = survey(loaded.cluster, loaded.regions, doubted=loaded.doubted)
    assert "remove-orphan-peer" not in told.sentence and "1 region is not judged" in told.sentence


def test_schedulers_decide_who_has_rounds(tmp_path: Path) -> None:
    """Removed ones have none; evicted leaders go to no evicted store; a paused one is reported; others are named."""
    v2 = [{"type": "balance-leader", "args": None, "disable": False}, {"type": "evict-leader", "args": ["1"]},
          {"type": "balance-region", "args": None, "disable": True}, {"type": "shuffle-region"}]  # fmt: skip
    config = {"schedule": {"schedulers-v2": v2}, "cluster-version": "7.5.1"}
    loaded = given(tmp_path, config__json=config)
    one = loaded.cluster.stores[1]
    assert (one.leader_in_paused, one.leader_out_paused) == (True, True)
    told = survey(loaded.cluster, loaded.regions, schedulers=loaded.schedulers)
    rounds = {a.asked: a.sentence for a in told.rounds}
    assert "it was removed" in rounds["balance-region"] and "evict-leader-scheduler" in rounds["evict-leader 1"]
    assert any("shuffle-region-scheduler" in n for n in loaded.notes)
    config["cluster-version"] = "9.0.0"
    loaded = given(tmp_path, config__json=config, show__json=["grant-leader-scheduler-2", "balance-leader-scheduler"])
    two = loaded.cluster.stores[2]
    assert (two.leader_in_paused, two.leader_out_paused) == (False, True)
    assert not loaded.schedulers.get("evict-leader-scheduler").runs
    told = survey(loaded.cluster, loaded.regions, schedulers=loaded.schedulers)
    assert "leaders come to store 2" in {a.asked: a.sentence for a in told.rounds}["grant-leader 2"]
    ranges = {"store-id-ranges": {"3": [{"start-key": "", "end-key": ""}]}}
    loaded = given(tmp_path, show__json=["evict-leader-scheduler"], evict_leader__json=ranges)
    assert loaded.cluster.stores[3].leader_in_paused and not loaded.cluster.stores[1].leader_in_paused


@pytest.mark.parametrize(
    ("name", "content", "runs"),
    [
        ("show__json", "null", []),
        ("show_scheduler__json", [], []),
        ("scheduler_paused__json", "null", ["balance-leader", "balance-region"]),
        ("scheduler_paused__json", [], ["balance-leader", "balance-region"]),
        ("scheduler_paused__json", ["balance-region-scheduler"], ["balance-leader"]),
        ("a__json", [{"name": "balance-region-scheduler", "paused_at": "x", "resume_at": "y"}], ["balance-leader"]),
        ("scheduler_disabled__json", ["balance-leader-scheduler"], ["balance-region"]),
    ],
)
def test_a_list_of_paused_schedulers_is_not_the_list_of_all(
    name: str, content: Any, runs: list[str], tmp_path: Path
) -> None:
    """``scheduler show`` names all that run, with ``--status`` only the ones of that status."""
    found = given(tmp_path, **{name.replace("show__", "scheduler__"): content}).schedulers
    assert [n for n in ("balance-leader", "balance-region") if found.get(f"{n}-scheduler").runs] == runs


def test_what_a_scheduler_is_about_is_read_or_named(tmp_path: Path) -> None:
    """Without the stores of evict-leader it is unknown what it evicts; keys are hexadecimal, or base64 up to v8.5.4."""
    loaded = given(tmp_path, show__json=["balance-leader-scheduler", "evict-leader-scheduler"])
    assert "the stores of evict-leader-scheduler (give `scheduler config evict-leader-scheduler`)" in loaded.first_line
    ranges = {"store-id-ranges": {"3": [{"start-key": "7480", "end-key": ""}]}}
    loaded = given(tmp_path, show__json=["evict-leader-scheduler"], evict_leader__json=ranges)
    assert loaded.schedulers.get("evict-leader-scheduler").keys_of(3) == (("7480", ""),)
    assert "the stores of evict-leader-scheduler" not in loaded.first_line
    for text, keys in (("", ()), ("dIA=", (("7480", ""),)), ("7480ab", (("7480AB", ""),))):
        ranges["store-id-ranges"]["3"][0]["start-key"] = text
        assert given(tmp_path, evict_leader__json=ranges).schedulers.get("evict-leader-scheduler").keys_of(3) == keys


def test_balance_leaves_the_keys_of_a_range_job_alone(tmp_path: Path) -> None:
    """The first job that is not done is balance-range's; one that is finished has no keys."""
    job = {"job-id": 1, "rule": "peer-scatter", "engine": "tikv", "alias": "t", "status": "finished"}
    jobs = [job | {"ranges": [{"start-key": "", "end-key": ""}]}]
    jobs += [job | {"status": "running", "ranges": [{"start-key": KEYS[0], "end-key": KEYS[1]}]}]
    told = given(tmp_path, balance_range__json=jobs)
    assert told.schedulers.get("balance-region-scheduler").keys_of() == (("", KEYS[0]), (KEYS[1], ""))
    assert "not simulated: balance-range-scheduler, which evens out the regions of a key range" in told.notes
    assert "Not simulated: balance-range-scheduler, which evens out" in told.first_line
    jobs[1]["ranges"] = jobs[0]["ranges"]  # all keys; none is left
    told = given(tmp_path, balance_range__json=jobs)
    assert not lie_in(told.regions, told.schedulers.get("balance-region-scheduler").keys_of()).any()
    jobs[1]["status"] = "cancelled"
    assert not given(tmp_path, balance_range__json=jobs).schedulers.get("balance-leader-scheduler").keys_of()
    jobs[1] |= {"status": "running", "ranges": [{"start-key": "100", "end-key": ""}]}
    with pytest.raises(SourceError, match=r"balance_range\.json"):
        given(tmp_path, balance_range__json=jobs)


def test_settings_of_schedulers_that_are_not_asked_are_named(tmp_path: Path) -> None:
    """By what they contain; PD's counts of stores elsewhere are no output of `store`."""
    hot, trend = {"min-hot-byte-rate": 100, "read-priorities": ["byte", "key"]}, {"stores": [{"id": 1}], "history": {}}
    told = given(tmp_path, hot__json=hot, trend__json=trend)
    assert "not read: the settings of balance-hot-region-scheduler" in told.notes
    assert "not read, no output of pd-ctl that is known here: trend.json" in told.notes


def test_balance_moves_only_what_lies_within_its_key_ranges(tmp_path: Path) -> None:
    """As arguments in the settings: explained, forecast, and reported of a region outside."""
    stores = {"stores": [store(i, region_count=n, region_size=n * 96) for i, n in enumerate((900, 900, 900, 1), 1)]}
    entries = [
        {"type": "balance-region", "args": [quote_from_bytes(bytes.fromhex(KEYS[1])), "%ff%FF"]},
        {"type": "balance-leader"},
    ]
    told = given(tmp_path, store__json=stores, config__json={"schedule": {"schedulers-v2": entries}})
    [found] = forecast(told.cluster, told.regions, schedulers=told.schedulers)
    assert "it lies outside of the scheduler's key ranges" in dict(found.never)
    asked = {a.asked: a for a in survey(told.cluster, told.regions, schedulers=told.schedulers).rounds}
    assert not asked["balance-region"].explained.operators
    assert "of regions within its key ranges only" in asked["balance-region"].sentence
    done = CliRunner().invoke(main, ["pd", "explain", "--from", str(tmp_path), "--region", "1"])
    assert "balance-region: nothing: it lies outside of the scheduler's key ranges" in done.output
    entries[0]["args"][1] = ""
    told = given(tmp_path, store__json=stores, config__json={"schedule": {"schedulers-v2": entries}})
    [found] = forecast(told.cluster, told.regions, schedulers=told.schedulers)
    assert not found.never, "the last region lies within them"


def test_settings_limits_and_loads_that_nobody_printed_are_missing(tmp_path: Path) -> None:
    """What is assumed instead is reported: PD's defaults of that version, 15 peers a minute, 30 of TiFlash."""
    flash = store(4, meta={"version": "7.5.1", "labels": [{"key": "engine", "value": "tiflash"}]})
    told = {"stores": [*(store(i, version_of="7.5.1") for i in (1, 2, 3)), flash]}
    loaded = given(tmp_path, store__json=told)
    assert "settings (give `config show all`); the defaults of PD 7.5.1 are assumed" in loaded.first_line
    assert "limits of stores 1, 2, 3, 4 (give `store limit`)" in loaded.first_line
    assert [loaded.limits[i] for i in (1, 4)] == [PerMinute(15, 15), PerMinute(30, 30)]
    limits = {"default-store-limit": {"add-peer": 7, "remove-peer": 8}, "store-limit": {"4": {"rate": 9}}}
    loaded = given(tmp_path, store__json=told, config__json={"schedule": limits | {"store-limit-mode": "auto"}})
    assert "the settings that `config show` leaves out (give `config show all`)" in loaded.first_line
    assert "limits of" not in loaded.first_line and any("store-limit-mode auto" in n for n in loaded.notes)
    assert [loaded.limits[i] for i in (1, 4)] == [PerMinute(7, 8), PerMinute(9, 9)]
    busy = {"regions": ring(3, 1, 2, 3, written_bytes=70_000)}
    assert "hot regions, although 3 have load enough (give `hot read`)" in given(tmp_path, region__json=busy).first_line
    assert "hot regions" not in given(tmp_path, region__json=busy, hot__json={"as_leader": {}}).first_line


def test_groups_of_settings_may_be_in_files_of_their_own(tmp_path: Path) -> None:
    """``config show replication`` prints no group's name; what a second file defines again is not read."""
    schedule = {
        "max-snapshot-count": 9, "low-space-ratio": 0.8, "schedulers-v2": [{"type": "balance-leader"}],
        "store-limit": {"1": {"add-peer": 3, "remove-peer": 4}},
    }  # fmt: skip
    files = {"config__json": schedule, "replication__json": {"max-replicas": 5, "location-labels": "zone"}}
    loaded = given(tmp_path, **files)
    c = loaded.cluster.config
    assert (c.max_snapshot_count, c.max_replicas, c.location_labels) == (9, 5, ("zone",))
    assert loaded.limits[1] == PerMinute(3, 4) and not loaded.schedulers.get("balance-region-scheduler").runs
    loaded = given(tmp_path, **files, z__json={"schedule": {"max-snapshot-count": 9}})
    assert "not read: z.json, since another file has these settings too" in loaded.notes
    shown = {"schedule": {"max-snapshot-count": 1, "halt-scheduling": "true"}}
    loaded = given(tmp_path, **files, z__json=shown)
    assert (loaded.cluster.config.max_snapshot_count, loaded.cluster.config.halt_scheduling) == (9, True)
    words = f"not read: max-snapshot-count of {tmp_path / 'z.json'}, since an earlier file has another value"
    assert words in loaded.notes


def test_a_tar_is_read_once_whatever_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Diag's has logs of gigabytes: to find each member from the beginning would take time by its square."""
    given(tmp_path)
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        for n in range(9):
            (tmp_path / f"{n}.log").write_text("[2024/01/01 10:00:00.000 +08:00] [INFO] [a.go:1] [b]\n" * 99)
            tar.add(tmp_path / f"{n}.log")
        for name in ("store.json", "region.json"):
            tar.add(tmp_path / name)
    begun = []
    real = tarfile.open

    def counted(*given: Any, **more: Any) -> tarfile.TarFile:
        begun.append(given)
        return real(*given, **more)

    monkeypatch.setattr(tarfile, "open", counted)
    told = from_folder(tmp_path / "a.tgz")
    assert (len(told.cluster.stores), len(told.regions.id), len(begun)) == (4, 3, 1)


def test_a_region_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    """``region 99`` prints null."""
    assert len(given(tmp_path, region99__json="null\n").regions.id) == 3


def test_all_that_is_unknown_is_named(tmp_path: Path) -> None:
    """In one line."""
    loaded = given(tmp_path, **{f"health{i}__json": {"a": 1} for i in range(8)})
    (note,) = [n for n in loaded.notes if n.startswith("not read, no output of pd-ctl")]
    assert all(f"health{i}.json" in note for i in range(8))


def test_nothing_is_forecast_that_no_scheduler_does(tmp_path: Path) -> None:
    """Balance without balance-region, or with its limit at 0, is never; a PD that is halted reports it first."""
    stores = {"stores": [store(i, region_count=n, region_size=n * 96) for i, n in enumerate((900, 900, 900, 1), 1)]}
    told = given(tmp_path, store__json=stores, scheduler__json=["balance-leader-scheduler"])
    words = "balance-region-scheduler has no rounds: PD does not list it"
    found = forecast(told.cluster, told.regions, schedulers=told.schedulers)
    assert [(f.what, f.never[0][0]) for f in found] == [("balance of regions", words)]
    off = told.cluster._replace(config=replace(told.cluster.config, region_schedule_limit=0))
    assert forecast(off, told.regions)[0].never[0][0] == "region-schedule-limit is 0"
    done = CliRunner().invoke(main, ["pd", "explain", "--from", str(tmp_path)])
    assert f"balance of regions: never: {words}" in done.output
    halted = told.cluster._replace(config=replace(told.cluster.config, halt_scheduling=True))
    assert survey(halted, told.regions).sentence.startswith("nothing: halt-scheduling is true")


def test_running_operators_count_and_their_regions_are_busy(tmp_path: Path) -> None:
    """Steps that are left change scores; the region gets no second operator; old texts have no size."""
    loaded = given(tmp_path, ops__json=[OPERATOR, OLD_OPERATOR, "what is this (kind:x"])
    assert [(o.region, o.steps) for o in loaded.operators] == [
        (2, (RemovePeer(1),)), (3, (AddLearner(4), RemovePeer(1))),
    ]  # fmt: skip
    assert loaded.cluster.influence == {1: Influence(-192, -2), 4: Influence(96, 1)}
    assert loaded.running == {Kind.REGION: 1, Kind.REPLICA: 1}
    assert any("not read: operator what is this" in n for n in loaded.notes)
    told = survey(loaded.cluster, loaded.regions, running=loaded.running)
    assert {o.group: o.regions for o in told.outcomes}[BUSY] == 2
    assert "operator show" not in loaded.first_line
    assert "operator show" in given(tmp_path, ops__json="{}").first_line
    (tmp_path / "ops.json").unlink()
    assert "operator show" not in given(tmp_path, operator_show__json="[]").first_line


@pytest.mark.parametrize(
    ("version", "all_kinds"),
    [("3.0.2", True), ("4.0.13", True), ("4.0.14", False), ("5.0.3", True), ("5.0.4", False), ("5.1.0", True),
     ("5.1.1", False), ("5.2.0", False), ("8.5.0", False)],
)  # fmt: skip
def test_an_operator_takes_up_one_limit_or_those_of_all_its_kinds_by_version(
    version: str, all_kinds: bool, tmp_path: Path
) -> None:
    """tikv/pd#3820 came to three branches; with the old count a repair leaves balance no room."""
    config = {"cluster-version": version, "schedule": {"region-schedule-limit": 1, "replica-schedule-limit": 64}}
    loaded = given(tmp_path, ops__json=[OLD_OPERATOR], config__json=config)
    assert loaded.running == ({Kind.REGION: 1, Kind.REPLICA: 1} if all_kinds else {Kind.REPLICA: 1})
    rounds = {r.asked: r for r in survey(loaded.cluster, loaded.regions, running=loaded.running).rounds}
    assert ("region-schedule-limit" in rounds["balance-region"].explained.limit) is all_kinds


def test_hot_regions_and_limits_are_those_of_their_commands(tmp_path: Path) -> None:
    """Regions hot for long enough; ``store limit`` in both its forms; ``hot store`` is named as unread."""
    peer = {"region_id": 2, "hot_degree": 9}
    hot = {"as_leader": {"1": {"statistics": [peer, {"region_id": 3, "hot_degree": 1}]}, "2": None}, "as_peer": None}
    loaded = given(tmp_path, hot__json=hot, lim__json={"1": {"add-peer": 5, "remove-peer": 6}, "2": {"rate": 7}},
                   hotstore__json={"bytes-read-rate": {"1": 1}})  # fmt: skip
    assert [region_at(loaded.regions, i).hot for i in range(3)] == [False, True, False]
    assert loaded.limits == {1: PerMinute(5, 6), 2: PerMinute(7, 7), 3: PerMinute(), 4: PerMinute()}
    assert any("hotstore.json" in n for n in loaded.notes)


def test_settings_of_v3_become_those_of_today_or_are_named(tmp_path: Path) -> None:
    """disable-* are the contrary of enable-*, a balance rate is a limit of all stores, defaults are v3's."""
    told = {"schedule": {"disable-replace-offline-replica": "true", "disable-make-up-replica": "false",
                         "disable-raft-learner": "true", "store-balance-rate": 20, "new-thing": 1,
                         "max-merge-region-size": 20, "tolerant-size-ratio": 5},
            "replication": {"max-replicas": 3, "location-labels": None}, "cluster-version": "3.0.2",
            "label-property": None, "namespace": None}  # fmt: skip
    loaded = given(tmp_path, config__json=told)
    c = loaded.cluster.config
    assert (c.enable_replace_offline_replica, c.enable_make_up_replica, c.placement_rules) == (False, True, False)
    assert (c.region_score_formula_version, c.high_space_ratio, c.leader_schedule_policy) == ("v1", 0.6, "size")
    assert c.max_merge_region_keys == 200_000 and loaded.limits[4] == PerMinute(20, 20)
    for word in ("disable-replace-offline-replica true (v3)", "disable-raft-learner", "new-thing"):
        assert any(word in n for n in loaded.notes)
    assert not any("disable-make-up" in n for n in loaded.notes)


@pytest.mark.parametrize(
    ("version", "merge", "snapshots", "rules"),
    [("8.5.0", 54, 64, True), ("8.1.0", 20, 64, True), ("5.2.0", 20, 3, True), ("v4.0.16", 20, 3, False)],
)
def test_absent_settings_have_the_defaults_of_the_stores_version(
    version: str, merge: int, snapshots: int, rules: bool, tmp_path: Path
) -> None:
    """The oldest store counts, as it does for PD's cluster version."""
    stores = [store(1, meta={"version": version}), store(2, meta={"version": "8.5.1"})]
    c = given(tmp_path, store__json={"stores": stores}).cluster.config
    assert (c.max_merge_region_size, c.max_snapshot_count, c.placement_rules) == (merge, snapshots, rules)


def test_stores_with_nulls_spaces_and_states_of_their_time(tmp_path: Path) -> None:
    """A size with a blank is one; null is nothing; a node state that is left out is Preparing where states exist."""
    told = [
        store(1, meta={"labels": None, "version": "4.0.0"}, capacity="1.8 TiB", available="900GiB"),
        {"store": {"id": 2, "state_name": "Up", "version": "7.5.0"}, "status": None},
        store(3, meta={"node_state": "Removing", "state_name": "Offline"}, leader_count=None),
        store(4, meta={"version": "4.0.0"}, pause_leader_transfer_in=True),
    ]
    del told[0]["store"]["node_state"]
    stores = given(tmp_path, store__json={"stores": told}).cluster.stores
    assert [s.state for s in stores.values()] == [SERVING, PREPARING, "removing", SERVING]
    assert stores[1].capacity == pytest.approx(1.8 * (1 << 40)) and stores[4].leader_in_paused


def test_region_scan_is_read_to_its_last_document(tmp_path: Path) -> None:
    """A document for each 1,024 regions; a region printed twice counts once; null is an empty list."""
    regions = ring(4, 1, 2, 3)
    pages = [regions[:2], regions[1:3], None, regions[3:]]
    loaded = given(tmp_path, region__json="\n".join(json.dumps({"count": 1, "regions": p}, indent=1) for p in pages))
    assert loaded.regions.id.tolist() == [1, 2, 3, 4] and loaded.whole
    assert "regions are given" not in loaded.first_line


def test_some_regions_only_are_said_and_stores_count_for_themselves(tmp_path: Path) -> None:
    """Counts of PD's stores show how many there are; averages are the ones of the stores."""
    regions = ring(8, 1, 2, 3)
    stores = [store(i, leader_count=n, region_count=8, region_size=800) for i, n in ((1, 4), (2, 4), (3, 0))]
    loaded = given(tmp_path, store__json={"stores": stores}, region__json={"regions": regions[:2] + regions[4:5]})
    assert "3 of 8 regions are given, a gap between keys and the keys at an end" in loaded.first_line
    assert loaded.cluster.average_region_size == 100 and loaded.cluster.regions_on == {1: 8, 2: 8, 3: 8}


def test_what_is_faulty_is_named_itself(tmp_path: Path) -> None:
    """Not the first store, region or rule of the file."""
    stores = [store(1), store(2, capacity="much"), store(3)]
    with pytest.raises(SourceError, match=r"store 2: .*'much' is no size"):
        given(tmp_path, store__json={"stores": stores})
    regions = ring(3, 1, 2, 3)
    del regions[1]["start_key"]
    with pytest.raises(SourceError, match="region 2: expected regions"):
        given(tmp_path, store__json={"stores": [store(1)]}, region__json={"regions": regions})
    with pytest.raises(SourceError, match="keys in hexadecimal"):
        given(tmp_path, region__json={"regions": ring(3, 1)}, r__json=[rule("pd", "x", start_key="t_1")])


def test_scheduling_that_is_halted_does_nothing(tmp_path: Path) -> None:
    """No checker and no scheduler is asked."""
    loaded = given(tmp_path, config__json={"schedule": {"halt-scheduling": "true"}})
    (only,) = survey(loaded.cluster, loaded.regions).rounds
    assert "halt-scheduling is true" in only.sentence


def test_tables_are_told_by_their_keys() -> None:
    """The id after the first letter, over the border of the first group of eight bytes."""
    assert table_of("7480000000000003FFBD00000000000000F8") == "80000000000003BD"
    assert table_of("") == table_of("6D44444C") == ""
    assert Config().enable_cross_table_merge


def _zipped(folder: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w") as z:
        for name, data in files.items():
            z.writestr(f"pd/{name}", data)


def _tarred(folder: Path, files: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"pd/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    (folder / "a.diag").write_bytes(zstandard.compress(packed.getvalue()))


def _each(change: Callable[[bytes], bytes]) -> Callable[[Path, dict[str, bytes]], None]:
    def write(folder: Path, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            (folder / name).write_bytes(change(data))

    return write


_LOG = b'[2024/01/01 10:00:00.000 +08:00] [INFO] [client.go:1] ["create pd client"] [pd-address="[http://a:2379]"]\n'


@pytest.mark.parametrize(
    "write",
    [
        _each(lambda b: b.decode().encode("utf-16")),
        _each(lambda b: b"\xfe\xff" + b.decode().encode("utf-16-be")),
        _each(lambda b: b"\xef\xbb\xbf" + b.replace(b"\n", b"\r\n")),
        _each(lambda b: _LOG + b),
        _each(zstandard.compress),
        _each(lambda b: b"\n".join(orjson.dumps(x, option=2) for x in next(iter(json.loads(b).values())))),
        lambda folder, files: (folder / "session.txt").write_bytes(
            b"\n".join(b"\xc2\xbb %s\n%s\n" % (n.split(".")[0].encode(), b) for n, b in files.items())
        ),
        _zipped,
        _tarred,
    ],
    ids=["powershell", "utf-16-be", "bom-crlf", "log-line-first", "zstd", "jq-each", "session", "zip", "tar.zst"],
)  # fmt: skip
def test_files_are_read_however_they_were_saved(
    tmp_path: Path, write: Callable[[Path, dict[str, bytes]], None]
) -> None:
    """As PowerShell, jq, a session of pd-ctl, a log line before, zip and diag's packed tar leave them."""
    files = {
        "store.json": json.dumps({"stores": [store(i) for i in range(1, 5)]}, indent=2).encode(),
        "region.json": json.dumps({"regions": ring(3, 1, 2, 3)}, indent=2).encode(),
    }
    write(tmp_path, files)
    told = from_folder(tmp_path)
    assert (len(told.cluster.stores), told.regions.id.tolist()) == (4, [1, 2, 3])


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le"])
def test_a_file_in_utf_16_that_is_cut_is_refused(tmp_path: Path, coding: str) -> None:
    """Half a letter at its end shows that more is lost."""
    text = json.dumps({"stores": [store(i) for i in range(1, 5)]}).encode(coding)
    (tmp_path / "store.json").write_bytes(b"\xff\xfe" * (coding != "utf-16") + text + b"\n")
    with pytest.raises(SourceError, match=r"ends in the middle of a character: the file is cut"):
        from_folder(tmp_path)


def diag_folder(folder: Path) -> Path:
    """What diag collects (collector/config.go): the PDs' answers below HOST/DEPLOY_DIR/conf, others' beside them."""
    schedule: Any = {"max-snapshot-count": 9, "schedulers-v2": []}
    config = {"cluster-version": "7.5.1", "schedule": schedule, "name": "pd-1"}
    rules = [{"group_id": "pd", "group_index": 0, "group_override": False, "rules": [rule("pd", "default")]}]
    for n in (1, 2):
        conf = folder / f"10.0.1.{n}/tidb-deploy/pd-2379/conf"
        conf.mkdir(parents=True)
        given(conf, config__json=config | {"name": f"pd-{n}"}, placement_rule__json=rules)
        (conf / "region.json").unlink()
        (conf / "pd.toml").write_text('[schedule]\nmax-snapshot-count = 3\n[replication]\nlocation-labels = ["zone"]\n')
    conf = folder / "10.0.0.1/tidb-deploy/tikv-20160/conf"
    conf.mkdir(parents=True)
    (conf / "config.json").write_text(json.dumps({"raftstore": {}, "storage": {}, "log-level": "info"}))
    tiup = "user: tidb\ntopology:\n  server_configs:\n    pd:\n      schedule.max-snapshot-count: 5\n"
    (folder / "meta.yaml").write_text(tiup)
    return folder


def test_the_folder_that_diag_collects_is_one_input(tmp_path: Path) -> None:
    """The settings of its PDs count, not the ones of TiKV or of the first start; diag collects no regions."""
    folder = diag_folder(tmp_path)
    with pytest.raises(SourceError, match="no file has regions") as failed:
        from_folder(folder)
    assert "diag does not collect it" in failed.value.hint
    (folder / "region.json").write_text(json.dumps({"regions": ring(3, 1, 2, 3)}))
    told = from_folder(folder)
    assert told.cluster.config.max_snapshot_count == 9 and "settings" not in told.first_line
    first = "settings of PD's first start: PD keeps later ones, which `config show all` prints"
    for note in (
        "config.json, since another file has these settings too", f"2 files pd.toml ({first})", f"meta.yaml ({first})"
    ):  # fmt: skip
        assert f"not read: {note}" in told.notes
    assert "not read, no output of pd-ctl that is known here: config.json" in told.notes
    for packed in folder.rglob("pd-2379/conf/config.json"):
        packed.unlink()
    told = from_folder(folder)
    c = told.cluster.config
    assert (c.max_snapshot_count, c.location_labels) == (3, ("zone",))
    assert "pd.toml is assumed, which PD reads at its first start only" in told.first_line


@pytest.mark.parametrize(
    "text",
    [
        "server_configs:\n  pd:\n    schedule.max-snapshot-count: 5\n    replication.location-labels: [zone]\n",
        "server_configs:\n  pd:\n    schedule: {max-snapshot-count: 5}\n    replication: {location-labels: [zone]}\n",
        "spec:\n  pd:\n    config: |\n      [schedule]\n      max-snapshot-count = 5\n"
        '      [replication]\n      location-labels = ["zone"]\n',
        'log-level = "info"\n[schedule]\nmax-snapshot-count = 5\n[replication]\nlocation-labels = ["zone"]\n',
    ],
    ids=["tiup", "tiup in groups", "operator", "pd.toml"],
)
def test_settings_of_the_first_start_are_those_of_no_other_file(text: str, tmp_path: Path) -> None:
    """In TOML and YAML; the first line shows what they are."""
    told = given(tmp_path, settings__txt=text)
    assert (told.cluster.config.max_snapshot_count, told.cluster.config.location_labels) == (5, ("zone",))
    assert "settings.txt is assumed" in told.first_line


def test_a_package_that_only_clinic_opens_is_refused_in_words(tmp_path: Path) -> None:
    """`diag package` encrypts what it packs."""
    (tmp_path / "a.diag").write_bytes(b"D1ag\x1a\0\0\2{}\x91\x02")
    with pytest.raises(SourceError, match="diag packed it for Clinic, whose key alone opens it"):
        given(tmp_path)


def test_of_two_moments_in_one_folder_the_later_one_counts(tmp_path: Path) -> None:
    """Of a store the later heartbeat, of a region the newer epoch, no matter what the files' names; it is reported."""
    late = {"stores": [store(i, meta={"last_heartbeat": HEARD_NS + 3600 * 10**9}, region_count=9) for i in (1, 2)]}
    moved = ring(3, 4, 2, 3)[:1]
    moved[0]["epoch"] = {"conf_ver": 7, "version": 2}
    told = given(tmp_path, a_later__json=late, a_region__json={"regions": moved})
    assert [told.cluster.stores[i].region_count for i in (1, 2, 3)] == [9, 9, 7]
    assert region_at(told.regions, 0).stores == {4, 2, 3} and region_at(told.regions, 1).stores == {1, 2, 3}
    assert f"not read: 2 stores of {tmp_path / 'store.json'}, since another file heard of them later" in told.notes
    assert "not read: older forms of 1 region: a file has a newer epoch" in told.notes


@pytest.mark.parametrize(
    ("config", "witness", "named"),
    [
        ({"schedule": {}}, False, False),
        ({"schedule": {}}, True, True),
        ({"schedule": {}, "label-property": {"reject-leader": [{"key": "dc", "value": "c"}]}}, False, True),
    ],
)
def test_schedulers_that_a_pd_starts_with_are_named_first_where_they_move_anything(
    config: dict[str, Any], witness: bool, named: bool, tmp_path: Path
) -> None:
    """v6.6 to v7.6 start with the ones of witnesses, up to v5.1 with the one of label-property."""
    types = ("balance-region", "balance-leader", "balance-witness", "transfer-witness-leader", "label", "split-bucket")
    config["schedule"]["schedulers-v2"] = [{"type": t} for t in types]
    told = given(tmp_path, config__json=config, region__json={"regions": _witnessed(ring(3, 1, 2, 3), witness)})
    assert ("Not simulated" in told.first_line) is named
    assert "not simulated: split-bucket-scheduler, which splits hot buckets" in told.notes


def _witnessed(regions: list[dict[str, Any]], witness: bool) -> list[dict[str, Any]]:
    for r in regions:
        r["peers"][-1]["is_witness"] = witness
    return regions


@pytest.mark.parametrize(("version", "runs"), [("7.5.1", False), ("7.6.0", True), ("8.5.0", True)])
def test_a_pd_starts_with_the_schedulers_of_its_version(version: str, runs: bool, tmp_path: Path) -> None:
    """Where no one printed them."""
    told = given(tmp_path, store__json={"stores": [store(i, meta={"version": version}) for i in range(1, 5)]})
    assert told.schedulers.get("evict-slow-store-scheduler").runs is runs


def test_a_zip_with_a_password_is_refused_in_words(tmp_path: Path) -> None:
    """As a support desk sends them."""
    _zipped(tmp_path, {"store.json": b"{}"})
    (packed,) = tmp_path.iterdir()
    raw = bytearray(packed.read_bytes())
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + at] |= 1
    packed.write_bytes(raw)
    with pytest.raises(SourceError, match=r"store.json: cannot be read: .*password required"):
        from_folder(tmp_path)


def test_an_empty_list_of_a_session_is_what_the_file_is_named_after(tmp_path: Path) -> None:
    """No scheduler is there, which is not the same as not to know which ones are."""
    said = {"stores": [store(i) for i in range(1, 5)]}, {"regions": ring(3, 1, 2, 3)}, []
    (tmp_path / "scheduler_show.txt").write_text("\n".join(map(json.dumps, said)))
    assert not from_folder(tmp_path).schedulers.get("balance-region-scheduler").runs


def test_a_command_of_a_session_says_what_it_printed(tmp_path: Path) -> None:
    """No operator runs, and the settings without a name are evict-leader's: only the line before shows both."""
    show = ["balance-region-scheduler", "evict-leader-scheduler"]
    starts = "Starting component `ctl`: /root/.tiup/components/ctl/v7.5.0/ctl pd -u http://10.0.0.1:2379 operator show"
    said = [
        ("\u00bb store", {"stores": [store(i) for i in range(1, 5)]}), ("\u00bb region", {"regions": ring(3, 1, 2, 3)}),
        (starts, []), ("\u00bb scheduler show", show), ("\u00bb scheduler show --status paused", [show[0]]),
        ("\u00bb scheduler config evict-leader-scheduler", {"store-id-ranges": {"4": [{"start-key": ""}]}}),
    ]  # fmt: skip
    text = "\n\n".join(f"{line}\n{json.dumps(told, indent=2)}" for line, told in said)
    (tmp_path / "session.txt").write_text(f"{text}\n\n\u00bb exit\n")
    found = from_folder(tmp_path)
    assert not any("operator show" in m.command or "evict" in m.command for m in found.missing)
    assert found.schedulers.get("evict-leader-scheduler").stores == (4,)
    assert found.schedulers.get("balance-region-scheduler").why_not == "it is paused"
    assert not any("session.txt" in n for n in found.notes)


def test_null_is_what_a_command_prints_that_found_nothing(tmp_path: Path) -> None:
    """In a session the line before shows which command; a file is named after it, or the answer asks for that."""
    said = json.dumps({"stores": [store(i) for i in range(1, 5)]}), json.dumps({"regions": ring(3, 1, 2, 3)})
    (tmp_path / "session.txt").write_text(
        "\u00bb store\n{}\n\n\u00bb region\n{}\n\n\u00bb operator show\nnull\n".format(*said)
    )
    assert not any("operator show" in m.command for m in from_folder(tmp_path).missing)
    found = given(tmp_path, ops__json="null", session__txt="{}")
    assert any("operator show" in m.command for m in found.missing)
    assert "not read: ops.json is empty: name it after its command, as operator.json" in found.notes


def test_a_location_label_that_no_store_has_is_named(tmp_path: Path) -> None:
    """PD spreads nothing by it, and prints no warning."""
    labels = [rule("pd", "default", location_labels=["Zone", "host"]), rule("a", "b", location_labels=["host"])]
    stores = {"stores": [store(i, labels=[{"key": "zone", "value": f"z{i}"}]) for i in range(1, 5)]}
    notes = given(tmp_path, store__json=stores, rules__json=labels).notes
    assert [note for note in notes if "location label" in note] == [
        "no store has the label host, a location label of rules a/b, pd/default: it spreads no replicas "
        "(pd-ctl store label ID KEY VALUE)"
    ]


def test_a_file_of_diag_that_only_counts_stores_is_no_output_of_pd_ctl(tmp_path: Path) -> None:
    """It is named, and the others are read."""
    told = given(tmp_path, cluster__json={"cluster_name": "a", "stores": 3, "regions": {"a": 1}})
    assert "not read, no output of pd-ctl that is known here: cluster.json" in told.notes


def denying(label: str, start: str, end: str, index: int = 0, value: str = "deny") -> dict[str, Any]:
    """A rule for a label of the regions between two keys, as PD's API prints it."""
    labels = [{"key": label, "value": value}]
    data = [{"start_key": start.lower(), "end_key": end.lower()}]
    return {"id": f"{label}{index}", "index": index, "labels": labels, "rule_type": "key-range", "data": data}


def test_labels_of_regions_forbid_merges_and_balance(tmp_path: Path) -> None:
    """Of two values the one of the higher index counts; a region within which a rule ends is split first."""
    rules = [
        denying("schedule", KEYS[0], KEYS[2]),
        denying("merge_option", KEYS[0], KEYS[1]),
        denying("schedule", KEYS[1], KEYS[2], index=1, value="allow"),
        denying("merge_option", KEYS[2], KEYS[2][:-2] + "FF"),
    ]
    small = [{**r, "approximate_size": 5, "approximate_keys": 10} for r in ring(5, 1, 2, 3)]
    told = given(tmp_path, labels__json=rules, region__json={"regions": small})
    labels = told.regions.labels
    assert [set(ids) for ids in (labels.unscheduled, labels.unmerged, labels.split)] == [{2}, {2}, {4}]
    found = survey(told.cluster, told.regions, seed=1)
    does = {o.does: o.example for o in found.outcomes}
    assert does["labeler-split-region"] == 4
    why = {o.why: (o.here, o.example) for o in found.outcomes if o.why}
    assert why["a label of the region forbids scheduling"] == (1, 2)
    assert any(n.why == "a label of the region forbids scheduling" and n.times == 1 for n in found.not_chosen)
    assert why["next region: a label of one of the two forbids merging; previous region: there is none"] == (1, 1)
    assert any("next region: a rule for labels ends between the two" in w for w in why)


@pytest.mark.parametrize(("version", "unscheduled"), [("5.4.0", set()), ("6.0.0", {2})])
def test_the_label_schedule_is_known_since_v6(tmp_path: Path, version: str, unscheduled: set[int]) -> None:
    """An older PD keeps the rule and does nothing with it."""
    stores = {"stores": [store(i, meta={"version": version}) for i in range(1, 5)]}
    told = given(tmp_path, store__json=stores, labels__json=[denying("schedule", KEYS[0], KEYS[1])])
    assert told.regions.labels.unscheduled == unscheduled


def test_colours_of_jq_are_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``jq -C`` in a file; a colour may begin in one read and end in the next."""
    monkeypatch.setattr(pd_ctl_files, "CHUNK", 7)
    monkeypatch.setattr(pd_ctl_files, "_HEAD", 64)
    plain = json.dumps({"regions": ring(3, 1, 2, 3)}, indent=2)
    told = given(tmp_path, region__json=re.sub(r'("[a-z_]+")(:)', "\x1b[34;1m\\1\x1b[0m\x1b[1;39m\\2\x1b[0m", plain))
    assert told.regions.id.tolist() == [1, 2, 3] and "not read: the colours of region.json" in told.notes


def test_a_long_session_is_read_to_its_end(tmp_path: Path) -> None:
    """Nine megabytes of regions, and what was asked for after them."""
    regions: Any = {"regions": ring(3, 1, 2, 3, note="x" * 3_000_000)}
    said = {"stores": [store(i) for i in range(1, 5)]}, regions, [OPERATOR]
    (tmp_path / "session.txt").write_text("\n".join(map(json.dumps, said)))
    told = from_folder(tmp_path)
    assert (len(told.cluster.stores), told.regions.id.tolist(), len(told.operators)) == (4, [1, 2, 3], 1)


def test_a_scheduler_that_is_named_after_its_range_is_said_first(tmp_path: Path) -> None:
    """PD calls scatter-range after its range, without the word scheduler."""
    told = given(tmp_path, show__json=["scatter-range-t", "balance-region-scheduler"])
    assert "Not simulated: scatter-range-t, which spreads the regions of a key range" in told.first_line
    assert told.schedulers.get("balance-region-scheduler").runs and told.schedulers.told
