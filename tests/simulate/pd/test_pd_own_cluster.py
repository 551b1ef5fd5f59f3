"""A user's own cluster over time: two moments compared, and played on with changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_pd_ctl import HEARD_NS, region, store
from test_pd_printed import KEYS, OPERATOR, ring
from worlds import S, small

from ticdc_lab.cli import main, pd_commands
from ticdc_lab.errors import ScenarioError, SourceError
from ticdc_lab.pd_core.balance import LEADER_HERE
from ticdc_lab.pd_core.before_after import before_after, words
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.forecast import MERGES, forecast, in_words
from ticdc_lab.pd_core.pd_ctl_json import Loaded, from_folder
from ticdc_lab.simulate.pd.looking import own_cluster
from ticdc_lab.simulate.pd.looking.own_cluster import changed, own_case, own_futures, own_policies
from ticdc_lab.simulate.pd.looking.recording import costs
from ticdc_lab.simulate.pd.world import pdctl
from ticdc_lab.simulate.pd.world.changes import Pdctl, StopStore, Timed
from ticdc_lab.simulate.pd.world.start import StoreStart, WorldSettings
from ticdc_lab.simulate.pd.world.world import World

SECOND_NS = 10**9


def moment(folder: Path, held: Sequence[tuple[int, ...]], at_s: int = 0, offline: int = 0, **files: Any) -> Path:
    """A folder of a moment: eight regions on some stores of five, and when the stores' heartbeats came."""
    folder.mkdir()
    regions = ring(8, 1)
    for n, some in enumerate(held):
        peers = [{"id": 10 * n + s, "store_id": s, "role_name": "Voter"} for s in some]
        regions[n] |= {"peers": peers, "leader": peers[0], "written_bytes": 600, "approximate_size": 64}
    on = [sum(i in some for some in held) for i in range(6)]
    stores = []
    for i in range(1, 6):
        meta = {"last_heartbeat": HEARD_NS + at_s * SECOND_NS, "labels": []}
        meta |= {"state_name": "Offline", "node_state": 2} if i == offline else {}
        stores.append(store(i, meta=meta, region_count=on[i], region_size=64 * on[i], region_weight=1))
    told: dict[str, Any] = {"stores": {"stores": stores}, "regions": {"regions": regions}} | files
    for name, content in told.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


HELD = [(1, 2, 3)] * 8
LATER = [(1, 4, 3), (1, 2, 4), (4, 2, 3)] + [(1, 2, 3)] * 5


def test_two_moments_say_what_moved_at_what_pace_and_what_is_left(tmp_path: Path) -> None:
    """Store 3 leaves: one of its eight peers went in 30 s, seven are left; two others moved besides."""
    one = moment(tmp_path / "a", HELD, offline=3)
    other = moment(tmp_path / "b", LATER, at_s=30, offline=3, ops=[OPERATOR])
    found = before_after(from_folder(one), from_folder(other))
    assert (found.seconds, found.moved, found.moved_mib, found.leaders) == (30, 3, 192, 1)
    by_store = {s["store"]: (s["came"], s["went"], s["peers_after"]) for s in found.stores}
    assert by_store == {1: (0, 1, 7), 2: (0, 1, 7), 3: (0, 1, 7), 4: (3, 0, 3), 5: (0, 0, 0)}
    leaves = next(f for f in found.left if f.forecast.what == "store 3 leaves")
    assert leaves.forecast.peers == 7 and leaves.at_pace_s is not None and found.moves
    assert (
        "peers came to another store (0.2 GiB, 6.0 a minute)" in found.sentence and "it still moves" in found.sentence
    )
    assert any("at the pace between the two" in line for line in words(found))


def test_what_does_not_move_says_what_holds_it(tmp_path: Path) -> None:
    """Nothing moved in ten minutes: what is never done, else that no operators are made."""
    one, other = moment(tmp_path / "a", HELD, offline=3), moment(tmp_path / "b", HELD, at_s=600, offline=3)
    found = before_after(from_folder(one), from_folder(other))
    assert not found.moves and "it does not move" in found.sentence and "operator show" in found.held_by[0]
    config = {
        "replication": {"enable-placement-rules": "false"},
        "schedule": {"enable-replace-offline-replica": "false"},
    }
    for folder in (one, other):
        (folder / "config.json").write_text(json.dumps(config))
    held = before_after(from_folder(one), from_folder(other)).held_by
    assert held[0] == "store 3 leaves: enable-replace-offline-replica is false"
    with pytest.raises(SourceError, match="before --before") as swapped:
        before_after(from_folder(other), from_folder(one))
    assert f"pd explain --before {one} --after {other}" in (swapped.value.hint or "")
    with pytest.raises(SourceError, match="are of the same moment"):
        before_after(from_folder(one), from_folder(one))


def test_peers_that_only_go_have_a_pace_and_running_operators_are_no_lost_cause(tmp_path: Path) -> None:
    """Four of eight surplus peers went in 25 s, as fast as their store may lose them; a region at work is left too."""
    more = [(1, 2, 3, 4)] * 8
    one = from_folder(moment(tmp_path / "a", more))
    told = before_after(one, from_folder(moment(tmp_path / "b", HELD[:4] + more[:4], at_s=25, operator=[])))
    assert told.moved == 0 and told.moves and ", 4 peers were removed without a new one and" in told.sentence
    assert not any(why.startswith("operators") for why in told.held_by)
    assert all(f.at_pace_s is not None and f.at_pace_s >= f.at_best_s for f in told.left)
    told = before_after(
        from_folder(moment(tmp_path / "c", HELD, offline=3)),
        from_folder(moment(tmp_path / "d", LATER, at_s=25, offline=3, operator=[OPERATOR])),
    )
    (leaves,) = (f.forecast for f in told.left if f.forecast.what == "store 3 leaves")
    assert (leaves.peers, leaves.never) == (7, ())


def test_two_clusters_are_no_two_moments(tmp_path: Path) -> None:
    """Ids of regions are small numbers in each: stores and keys distinguish clusters."""
    one, other = moment(tmp_path / "a", HELD), moment(tmp_path / "b", [(7, 8, 9)] * 8, at_s=60)
    stores = {"stores": [store(i, meta={"last_heartbeat": HEARD_NS + 60 * SECOND_NS}) for i in (7, 8, 9)]}
    (other / "stores.json").write_text(json.dumps(stores))
    with pytest.raises(SourceError, match="of two clusters: no store is in both"):
        before_after(from_folder(one), from_folder(other))
    other = moment(tmp_path / "c", HELD, at_s=60)
    (other / "regions.json").write_text((other / "regions.json").read_text().replace('"7480', '"7499'))
    with pytest.raises(SourceError, match="of two clusters: 7 of 8 regions that are in both have other keys"):
        before_after(from_folder(one), from_folder(other))


def test_of_some_regions_only_no_pace_is_made_up(tmp_path: Path) -> None:
    """What the others do is not known; the counts of stores show that the cluster moves."""
    one, other = moment(tmp_path / "a", HELD, offline=3), moment(tmp_path / "b", LATER, at_s=30, offline=3)
    regions = json.loads((other / "regions.json").read_text())["regions"][3:]
    (other / "regions.json").write_text(json.dumps({"regions": regions}))
    found = before_after(from_folder(one), from_folder(other))
    assert found.sentence.startswith("Of 5 regions that both have: in 30 s 0 peers came") and found.moves
    assert not any("at the pace" in line for line in words(found))


def test_an_own_cluster_is_played_with_its_loads_limits_and_schedulers(tmp_path: Path) -> None:
    """Bytes of a heartbeat are a minute's; the limits are PD's; removed schedulers do not run; offline stores leave."""
    v2 = [{"type": "balance-leader"}, {"type": "evict-leader", "args": ["1"]}]
    folder = moment(tmp_path / "a", HELD, offline=3, config={"schedule": {"schedulers-v2": v2, "store-limit": {
        "4": {"add-peer": 7, "remove-peer": 8}}}})  # fmt: skip
    loaded = from_folder(folder)
    case = own_case(loaded)
    assert set(case.start.regions.write.tolist()) == {10.0}
    assert [p.name for p in own_policies(loaded)] == ["balance-leader-scheduler", "evict-leader-scheduler"]
    world = World(case.start, 1, own_policies(loaded), case.changes)
    world.run(2_000_000)
    assert world.nodes.all[3].rates == (7, 8) and world.nodes.all[2].told.state == "removing"


def with_store(loaded: Loaded, i: int, **facts: Any) -> Loaded:
    """The same cluster with other facts about one store."""
    stores = {**loaded.cluster.stores, i: loaded.cluster.stores[i]._replace(**facts)}
    return loaded._replace(cluster=loaded.cluster._replace(stores=stores))


def test_a_store_that_was_down_is_replaced_at_once(tmp_path: Path) -> None:
    """It has been silent for an hour: no operator waits for another half."""
    loaded = with_store(from_folder(moment(tmp_path / "a", HELD)), 3, heartbeat_age_s=3600.0)
    found = own_futures(loaded, minutes=10)
    assert found.numbers["as it is"].operators["replace-rule-down-peer"] == 8
    assert found.numbers["as it is"].done_s is not None


def test_a_store_that_falls_silent_is_awaited_until_it_is_replaced(tmp_path: Path) -> None:
    """A run is not done while a store is about to count as down, no matter what its age at the start."""
    loaded = with_store(from_folder(moment(tmp_path / "a", HELD)), 3, heartbeat_age_s=60.0)
    config = replace(loaded.cluster.config, max_store_down_time_s=240.0)
    found = own_futures(loaded._replace(cluster=loaded.cluster._replace(config=config)), minutes=10)
    assert found.numbers["as it is"].operators["replace-rule-down-peer"] == 8


def test_a_peer_whose_snapshot_goes_to_a_store_that_fell_silent_is_removed(tmp_path: Path) -> None:
    """TiKV's leader is not at its snapshot without end: as it removes the peer, the region has three again."""
    loaded = from_folder(moment(tmp_path / "a", HELD, offline=3))
    config = replace(loaded.cluster.config, max_store_down_time_s=120.0)
    slow = WorldSettings(io_mib_a_tick=0.2)
    silent = [Timed(5 * SECOND_NS // 1000, StopStore(i)) for i in (4,)]
    run = own_futures(
        loaded._replace(cluster=loaded.cluster._replace(config=config)), silent, minutes=60, settings=slow
    ).runs["changed"]
    assert run.end.because == "settled" and all(len(run.world.region(i).peers) == 3 for i in range(1, 9))


def test_peers_keep_their_age_and_joint_states_are_left(tmp_path: Path) -> None:
    """PD fits the older peers first; a voter that is being demoted is a learner then."""
    folder = moment(tmp_path / "a", [(3, 1, 2, 4), *HELD[1:]])
    told = json.loads((folder / "regions.json").read_text())
    told["regions"][0]["peers"][0] |= {"role": 3, "role_name": "DemotingVoter", "id": 99}
    told["regions"][0]["peers"][3] |= {"role": 2, "role_name": "IncomingVoter"}
    (folder / "regions.json").write_text(json.dumps(told))
    first = World(own_case(from_folder(folder)).start, 1).region(1)
    assert [(p.store, p.role) for p in first.peers] == [(1, "voter"), (2, "voter"), (4, "voter"), (3, "learner")]


@pytest.mark.parametrize(("name", "led"), [("evict-leader", 0), ("grant-leader", 8)])
def test_leaders_that_are_evicted_or_granted_stay_so(name: str, led: int, tmp_path: Path) -> None:
    """Balance moves none of them back; the run ends."""
    v2 = [{"type": "balance-leader"}, {"type": name, "args": ["2"]}]
    held = [(2, 1, 3), (2, 3, 1), (1, 2, 3), (3, 1, 2)] * 2
    folder = moment(tmp_path / "a", held, config={"schedule": {"schedulers-v2": v2}, "cluster-version": "8.5.1"})
    run = own_futures(from_folder(folder), minutes=10).runs["as it is"]
    regions = run.world.regions
    assert run.end.because == "settled" and regions.members.leaders[regions.at[2]] == led
    two = run.world.cluster().stores[2]
    assert (two.leader_in_paused, two.leader_out_paused) == (True, True), "up to v8.5 both ways"


def test_leaders_outside_of_the_key_ranges_of_evict_leader_stay(tmp_path: Path) -> None:
    """Also with a batch of its own, which is how many a round moves."""
    regions = from_folder(moment(tmp_path / "a", [(2, 1, 3)] * 8)).regions
    ranges = {"2": [{"start-key": regions.start_key[5].as_py(), "end-key": ""}]}
    told = {"evict-leader": {"store-id-ranges": ranges, "batch": 1}, "shown": ["evict-leader-scheduler"]}
    loaded = from_folder(moment(tmp_path / "b", [(2, 1, 3)] * 8, **told))
    run = own_futures(loaded, minutes=10).runs["as it is"]
    assert run.world.regions.members.leaders[run.world.regions.at[2]] == 5
    world = World(own_case(loaded).start, 1, own_policies(loaded))
    scheduler = world.schedulers["evict-leader-scheduler"]
    assert len(scheduler.policy.schedule(world.seen(scheduler)).operators) == 1


def test_a_region_of_key_ranges_is_drawn_without_a_look_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three thousand where half of them lie in the ranges; where few do, all are looked at, but once."""
    (one,), keys = ring(1, 2, 1, 3), ["", *(f"{i:08X}" for i in range(1, 3_000)), ""]
    every = [one | {"id": i + 1, "start_key": keys[i], "end_key": keys[i + 1]} for i in range(3_000)]
    loaded = from_folder(moment(tmp_path / "a", [(2, 1, 3)] * 8, regions={"regions": every}))
    world, asked = World(own_case(loaded).start, 1, own_policies(loaded)), list[int]()
    range_of = world.regions.range_of
    monkeypatch.setattr(world.regions, "range_of", lambda row: (asked.append(row), range_of(row))[1])
    for begin, most in ((1_500, 1_040), (2_998, 4_040), (2_998, 1_040)):
        asked.clear()
        drawn = [r.start_key for r in world.draw(2, LEADER_HERE, ((keys[begin], ""),))]
        assert len(drawn) == 10 and {*drawn} <= {*keys[begin:-1]} and len(asked) <= most


def test_a_halted_pd_does_nothing_until_it_is_let_go(tmp_path: Path) -> None:
    """Neither checkers nor schedulers, and the answer reports it; a setting changes it."""
    loaded = from_folder(moment(tmp_path / "a", HELD, offline=3, config={"schedule": {"halt-scheduling": True}}))
    found = own_futures(loaded, changed(settings=["halt-scheduling=false"]), minutes=10)
    assert "as it is: PD does nothing, since halt-scheduling is true" in found.sentence
    assert not found.numbers["as it is"].operators and found.numbers["changed"].operators
    assert "changed: done after" in found.sentence


def test_peers_that_a_limit_of_0_keeps_on_a_store_are_not_called_done(tmp_path: Path) -> None:
    """The store is deleted, or down, and PD replaces none of its peers; the answer names the limit."""
    loaded = from_folder(moment(tmp_path / "a", HELD))
    for told in ({"remove": [1]}, {"down": [1]}):
        found = own_futures(loaded, changed(**told, settings=["replica-schedule-limit=0"]), minutes=60)
        n = found.runs["changed"].world.nodes.view(found.runs["changed"].world.now_us)[1].region_count
        said = f"but {n} peers of store 1 are still there, since replica-schedule-limit is 0"
        assert n > 1 and said in found.sentence and "changed: done after" not in found.sentence
        mended = own_futures(loaded, changed(**told), minutes=60)
        assert "still there" not in mended.sentence and "changed: done after" in mended.sentence


def test_after_a_halt_rounds_come_at_the_interval_of_before() -> None:
    """PD's tickers continue while scheduling is halted: ten milliseconds where a scheduler had not begun to wait."""
    start = small(on=(1, 2, 3), config=Config(halt_scheduling=True))
    world = World(start, 1, changes=[Timed(7 * S, Pdctl("config set halt-scheduling false"))])
    world.run(7 * S)
    assert not world.controller.created
    world.run(8 * S)
    first = min(r.created_us for r in (*world.controller.running.values(), *world.controller.ended))
    assert 7 * S < first < 7 * S + 20_000


def test_witnesses_are_refused(tmp_path: Path) -> None:
    """The model's stores do not know them."""
    loaded = from_folder(moment(tmp_path / "a", HELD))
    witness = loaded.regions.witness.copy()
    witness[0, 0] = True
    with pytest.raises(SourceError, match="witnesses are not played: 1 region has one") as refused:
        own_case(loaded._replace(regions=loaded.regions._replace(witness=witness)))
    assert f"`ticdc-lab pd explain --from {tmp_path / 'a'}`" in (refused.value.hint or "")


def test_a_change_is_played_beside_the_cluster_as_it_is(tmp_path: Path) -> None:
    """A store that is deleted is empty at the end; one that joins gets peers; the cluster as it is keeps the others."""
    loaded = from_folder(moment(tmp_path / "a", HELD))
    told = changed(remove=[1], add=["9,zone=z"], store_limits=["60", "2=30"], settings=["max-snapshot-count=9"])
    found = own_futures(loaded, told, minutes=20)
    assert list(found.runs) == ["as it is", "changed"] and all(r.end.because == "settled" for r in found.runs.values())
    regions = found.runs["changed"].world.regions
    peers = {i: regions.members.count[p] for i, p in regions.at.items()}
    assert not peers[1] and sum(peers.values()) == 24 and found.numbers["changed"].moved_mib > 0
    assert "changed: done after" in found.sentence
    refused = own_futures(loaded, [Pdctl("config set no-such 1")], minutes=5)
    assert "PD refuses config set no-such 1" in refused.sentence


def test_both_futures_can_be_recorded_and_words_come_at_their_moment() -> None:
    """Recordings have the numbers of their runs; a word at 60 s changes nothing before."""
    tuesday = from_folder(Path(__file__).parents[3] / "data" / "pd_ctl" / "tuesday")
    found = own_futures(tuesday, [Timed(60_000_000, Pdctl("store limit all 60"))], minutes=3, record=True)
    one, other = found.recordings["as it is"], found.recordings["changed"]
    assert costs(one).moved_mib == pytest.approx(found.numbers["as it is"].moved_mib)
    assert one.at(59_000_000).moved_mib == other.at(59_000_000).moved_mib < one.samples[-1].moved_mib
    assert other.samples[-1].moved_mib > 1.5 * one.samples[-1].moved_mib


def test_words_that_are_no_changes_are_refused() -> None:
    """With what was expected."""
    for wrong in ({"settings": ["a"]}, {"add": ["x"]}, {"add": ["4,zone"]}):
        with pytest.raises(ScenarioError, match="expected"):
            changed(**wrong)
    assert changed(add=["4,zone=a"])[0].store == StoreStart(4, labels={"zone": "a"}, started=False)  # type: ignore[attr-defined]


def test_some_regions_only_cannot_be_played(tmp_path: Path) -> None:
    """What is not there would look like a cluster that lost it."""
    folder = moment(tmp_path / "a", HELD)
    regions = json.loads((folder / "regions.json").read_text())["regions"]
    (folder / "regions.json").write_text(json.dumps({"regions": regions[2:]}))
    loaded: Loaded = from_folder(folder)
    with pytest.raises(SourceError, match="expected all regions"):
        own_case(loaded)


def test_a_large_cluster_is_announced_and_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr before it is played, with what takes less; then how much was played."""
    one = str(moment(tmp_path / "a", HELD, offline=3))
    quiet = CliRunner().invoke(main, ["simulate", "pd", "--from", one, "--minutes", "1", "--json"])
    assert quiet.stderr == ""
    monkeypatch.setattr(own_cluster, "MANY_REGIONS", 7)
    monkeypatch.setattr(pd_commands, "_PROGRESS_S", 0.0)
    told = CliRunner().invoke(main, ["simulate", "pd", "--from", one, "--minutes", "1", "--down", "5", "--json"])
    first, *more = told.stderr.splitlines()
    assert first.startswith("8 regions, up to 1 minutes of the cluster, twice: this may take 0.0 CPU hours. --min")
    assert f"pd explain --from {one}" in first and json.loads(told.stdout)["sentence"]
    assert "as it is: 0.0 of 1 min, 0 operators started" in more[0] and any(m.startswith("changed: ") for m in more)
    assert all("CPU hours more at this pace" in m for m in more)


def test_cpu_hours_have_to_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --minutes a run that takes hours is refused, with what takes less."""
    one = str(moment(tmp_path / "a", HELD))
    monkeypatch.setattr(own_cluster, "MANY_REGIONS", 7)
    monkeypatch.setattr(pd_commands, "_CPU_S_A_REGION", 0.25)
    done = CliRunner().invoke(main, ["simulate", "pd", "--from", one, "--down", "5"])
    assert (
        done.exit_code == 2 and "8 regions: 120 minutes of the cluster, twice, take about 8.0 CPU hours" in done.output
    )
    assert (
        "--minutes 5 plays 5 minutes, about 20 CPU minutes" in done.output and f"pd explain --from {one}" in done.output
    )
    done = CliRunner().invoke(main, ["simulate", "pd", "--from", one, "--minutes", "1"])
    assert done.exit_code == 0 and "CPU hours" in done.stderr


def test_schedulers_that_are_played_are_not_said_to_be_left_out(tmp_path: Path) -> None:
    """balance-hot-region has rounds in a run; shuffle-region has none."""
    one = moment(tmp_path / "a", HELD)
    names = ["balance-hot-region-scheduler", "shuffle-region-scheduler"]
    (one / "scheduler.json").write_text(json.dumps(names))
    done = CliRunner().invoke(main, ["simulate", "pd", "--from", str(one), "--minutes", "1", "--json"])
    (note,) = [n for n in json.loads(done.stdout)["notes"] if "not simulated" in n]
    assert "shuffle-region-scheduler" in note


def test_both_are_commands(tmp_path: Path) -> None:
    """One object each as JSON; text otherwise; wrong uses name what to give."""
    one = str(moment(tmp_path / "a", HELD, offline=3))
    other = str(moment(tmp_path / "b", LATER, at_s=30, offline=3))
    done = CliRunner().invoke(main, ["pd", "explain", "--before", one, "--after", other, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["moved"] == 3
    assert "store 3 leaves" in CliRunner().invoke(main, ["pd", "explain", "--before", one, "--after", other]).output
    done = CliRunner().invoke(main, ["simulate", "pd", "--from", one, "--down", "5", "--minutes", "3"])
    assert done.exit_code == 0 and "as it is: " in done.output and "operators: replace-rule-offline-peer" in done.output
    for wrong in (
        ["pd", "explain", "--before", one],
        ["simulate", "pd", "--down", "5"],
        ["simulate", "pd", "x", "--from", one],
    ):
        assert CliRunner().invoke(main, wrong).exit_code == 2


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--set", "regon-schedule-limit=4", "Did you mean region-schedule-limit?"),
        ("--set", "region-schedule-limit=many", "expected a whole number"),
        ("--store-limit", "44=30", "no store 44; it has 1, 2, 3, 4, 5.\n\nHint: Did you mean 4?"),
        ("--store-limit", "4=fast", "expected a number from 0 on"),
        ("--remove-store", "9", "no store 9; it has 1, 2, 3, 4, 5.\n\nHint: Give one of 1, 2"),
        ("--down", "9", "no store 9"),
        ("--add-store", "4,zone=a", "the cluster has a store 4"),
    ],
)
def test_changes_that_cannot_be_made_are_refused_before_anything_runs(
    option: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2 as other bad options have, with what was probably meant; no cluster is played."""
    monkeypatch.setattr(own_cluster, "own_run", lambda *_, **__: pytest.fail("played"))
    one = str(moment(tmp_path / "a", HELD))
    done = CliRunner().invoke(main, ["simulate", "pd", "--from", one, option, value])
    assert done.exit_code == 2 and said in done.output and done.stdout == ""


def test_labels_of_regions_are_played(tmp_path: Path) -> None:
    """Regions that are denied stay where they are, the others are balanced; one within which a rule ends is split."""
    on = [(1, 2, 3)] * 8
    data = [{"start_key": "", "end_key": KEYS[2]}]
    deny = {"id": "a", "index": 0, "labels": [{"key": "schedule", "value": "deny"}], "rule_type": "key-range"}
    cut = {
        **deny,
        "id": "b",
        "labels": [{"key": "x", "value": "y"}],
        "data": [{"start_key": KEYS[3][:-2], "end_key": ""}],
    }
    loaded = from_folder(moment(tmp_path / "a", on, labels=[{**deny, "data": data}, cut]))
    run = own_futures(loaded, minutes=20).runs["as it is"]
    regions = run.world.regions
    alive = [regions.region(row) for row in range(regions.n) if regions.alive[row]]
    stayed = [r.stores == {1, 2, 3} for r in alive if r.end_key and r.end_key <= KEYS[2]]
    assert stayed == [True] * 3 and any(r.stores != {1, 2, 3} for r in alive)
    assert run.world.controller.created["labeler-split-region"] == 1 and len(alive) == 9
    assert KEYS[3][:-2] in {r.start_key for r in alive}


def test_a_cluster_whose_placement_rules_are_missing_is_not_played(tmp_path: Path) -> None:
    """Its learners would be removed."""
    peers = [{"id": 1, "store_id": 1, "role_name": "Voter"}, {"id": 2, "store_id": 5, "role_name": "Learner"}]
    folder = moment(tmp_path / "a", HELD)
    regions = json.loads((folder / "regions.json").read_text())
    regions["regions"][0]["peers"] = peers
    (folder / "regions.json").write_text(json.dumps(regions))
    with pytest.raises(SourceError, match="the placement rules of 1 regions were not given"):
        own_case(from_folder(folder))


def test_the_limit_of_a_leaving_store_is_the_one_that_pd_shows(tmp_path: Path) -> None:
    """`store delete` takes it off and `cancel-delete` gives it back; what is set between counts."""
    loaded = from_folder(moment(tmp_path / "a", HELD, offline=3, limit={"3": {"add-peer": 15, "remove-peer": 5}}))
    world = World(own_case(loaded).start, 1, changes=own_case(loaded).changes)
    world.run(1_000_000)
    assert pdctl(world, "store limit")[3] == {"add-peer": 15, "remove-peer": 5}
    pdctl(world, "store limit 2 7")
    pdctl(world, "store delete 2")
    assert pdctl(world, "store limit")[2] == {"add-peer": 7, "remove-peer": 1e8}
    pdctl(world, "store cancel-delete 2")
    assert pdctl(world, "store limit")[2] == {"add-peer": 7, "remove-peer": 7}


def test_small_regions_are_merged_at_once(tmp_path: Path) -> None:
    """PD has led for longer than split-merge-interval, as `pd explain` takes it too."""
    folder = moment(tmp_path / "a", HELD)
    regions = json.loads((folder / "regions.json").read_text())
    for r in regions["regions"]:
        r |= {"approximate_size": 4, "approximate_keys": 10}
    (folder / "regions.json").write_text(json.dumps(regions))
    run = own_futures(from_folder(folder), minutes=20).runs["as it is"]
    assert run.world.controller.created["merge-region"] > 0 and run.world.regions.count < 8
    done = CliRunner().invoke(main, ["pd", "explain", "--from", str(folder)])
    assert "(1 of 8 regions); the other 7 in 0 s at best (merge-schedule-limit 8)" in done.output
    ended = CliRunner().invoke(main, ["pd", "explain", "--from", str(folder), "--json"])
    [merges] = [f for f in json.loads(ended.output)["forecast"] if f["what"] == MERGES]
    assert merges["peers"] == 8 and 8 - merges["never"][0]["peers"] == 8 - run.world.regions.count
    later = moment(tmp_path / "b", LATER, at_s=30)
    small_later = json.loads((later / "regions.json").read_text())
    for r in small_later["regions"]:
        r |= {"approximate_size": 4, "approximate_keys": 10}
    (later / "regions.json").write_text(json.dumps(small_later))
    told = before_after(from_folder(folder), from_folder(later))
    assert "peers are left, 8 regions are small and it still moves" in told.sentence
    assert all(f.at_pace_s is None for f in told.left if f.forecast.what == MERGES), "the pace is that of peers"


Merged = tuple[list[int], Sequence[tuple[int, ...]], dict[str, object], int]
TURNS = [(1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2)]
MERGED: dict[str, Merged] = {
    "all on the same stores": ([1] * 80, [(1, 2, 3)], {}, 15),
    "peers move before": ([10] * 80, TURNS, {}, 15),
    "some are large": ([1, 20, 40, 90] * 20, TURNS, {}, 60),
    "one at a time": ([4] * 60, TURNS, {"merge-schedule-limit": 1}, 2000),
    "a slow patrol": ([1] * 80, TURNS, {"patrol-region-interval": "1s"}, 2000),
    "none": ([40, 110] * 20, TURNS, {}, 15),
}


@pytest.mark.parametrize("name", MERGED)
def test_merges_are_forecast_as_they_are_played(name: str, tmp_path: Path) -> None:
    """As many regions are merged away, not much sooner; none stays small for want of a store limit."""
    sizes, on, settings, limit = MERGED[name]
    n = len(sizes)
    borders = ["", *(f"{16 * i:08X}" for i in range(1, n)), ""]
    regions = []
    for i, size in enumerate(sizes):
        told = region(i + 1, *on[i % len(on)], start_key=borders[i], end_key=borders[i + 1])
        regions.append(told | {"approximate_size": size, "approximate_keys": 10 * size})
    limits = {str(i): {"add-peer": limit, "remove-peer": limit} for i in range(1, 5)}
    config = {"schedule": {"split-merge-interval": "1h", "store-limit": limits, **settings}}
    stores = {"stores": [store(i, meta={"labels": []}, region_weight=1) for i in range(1, 5)]}
    files: dict[str, Any] = {"stores": stores, "regions": {"regions": regions}, "config": config}
    loaded = from_folder(moment(tmp_path / "a", [], **files))
    found = next(f for f in forecast(loaded.cluster, loaded.regions, loaded.limits) if f.what == MERGES)
    world = own_futures(loaded, minutes=60).runs["as it is"].world
    ended_s = [f.finished_us / 1e6 for f in world.controller.ended if f.desc == "merge-region"]
    merged = n - world.regions.count
    if name == "none":
        assert not merged and found.never == (("the merged region would be split again by its size", 20),)
        off = loaded.cluster._replace(config=replace(loaded.cluster.config, merge_schedule_limit=0))
        [line] = in_words([f for f in forecast(off, loaded.regions) if f.what == MERGES])
        assert line == "merges of small regions: never: merge-schedule-limit is 0 (20 regions)"
        return
    assert found.peers - found.stay == pytest.approx(merged, rel=0.06)
    assert 0.2 * max(ended_s) <= found.at_best_s <= 1.4 * max(ended_s)
    held_by = {"one at a time": "merge-", "a slow patrol": "patrol-region-interval 1 s", "peers move before": "remove"}
    assert found.held_by.startswith(held_by.get(name, ""))


def test_a_cluster_that_moved_and_has_no_operator_is_not_said_to_move(tmp_path: Path) -> None:
    """What moved since the first moment may have been done long before the second."""
    one = moment(tmp_path / "a", HELD, offline=3)
    told = before_after(from_folder(one), from_folder(moment(tmp_path / "b", LATER, at_s=30, offline=3, operator=[])))
    assert told.moves and "and no operator runs now" in told.sentence
    told = before_after(from_folder(one), from_folder(moment(tmp_path / "c", LATER, at_s=30, offline=3)))
    assert "and it still moves" in told.sentence, "nobody printed the operators"


def test_other_files_of_a_store_are_not_those_of_its_regions(tmp_path: Path) -> None:
    """124 GiB are used on each store, of regions 0.8 GiB or nothing: the free space and the used one are as printed.

    Formula v1 took the other files of an empty store for its first region's: it looked full, and nothing moved.
    """
    folder = moment(tmp_path / "a", HELD)
    space = {"capacity": "1TiB", "available": "900GiB"}
    stores = [store(i, meta={"version": "4.0.9"}, region_count=8 * (i < 4), region_size=512 * (i < 4), region_weight=1,
                    used_size="0.8GiB" if i < 4 else "0B", **space) for i in range(1, 5)]  # fmt: skip
    (folder / "stores.json").write_text(json.dumps({"stores": stores}))
    loaded = from_folder(folder)
    assert loaded.cluster.config.region_score_formula_version == "v1"
    world = World(own_case(loaded).start, 1)
    for i, told in world.cluster().stores.items():
        printed = loaded.cluster.stores[i]
        assert told.available == pytest.approx(printed.available) and told.used == pytest.approx(printed.used)
    moved = own_futures(loaded, minutes=10).numbers["as it is"].operators["balance-region-scheduler"]
    assert moved > 1, moved
