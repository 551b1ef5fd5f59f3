"""Scenario files of PD: their assertions hold, and what cannot be is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from worlds import S, small

from ticdc_lab.cli import main
from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.pd.world.changes import CutOff, InTouch, ReadFlow, SlowDisk, Timed, WriteFlow
from ticdc_lab.simulate.pd.world.scenario import changes_of, start_of
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text

SCENARIOS = Path(__file__).parents[3] / "data" / "scenarios" / "pd"


@pytest.mark.parametrize("name", sorted(p.stem for p in SCENARIOS.glob("*.yaml")))
def test_a_scenario_holds(name: str) -> None:
    """What the file claims is so, and no invariant is violated."""
    played = _played(name)
    assert played.held, [o for o in played.outcomes if not o.held]
    world = played.run.world
    if name in ("store-down", "scale-out"):
        added = [s for f in world.controller.ended for s in f.steps[: f.steps_done] if s.startswith("add-")]
        assert world.tasks.moved_mib == 96 * len(added) == world.monitor.caught_up_mib
    if name == "store-down":
        assert world.nodes.all[0].used == 120 * 96 == sum(world.nodes.all[0].stale.values())


@pytest.mark.soak
@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda p: p.stem)
@pytest.mark.parametrize("seed", range(1, 6))
def test_all_scenarios_hold_with_any_seed(path: Path, seed: int) -> None:
    """Claims are not true by luck."""
    scenario = read_scenario(path)
    assert scenario.model.play(scenario, seed=seed).held


def _played(name: str) -> Any:
    scenario = read_scenario(SCENARIOS / f"{name}.yaml")
    return scenario.model.play(scenario)


def test_a_claim_that_is_wrong_fails() -> None:
    """With what was there instead."""
    scenario = read_scenario(SCENARIOS / "retire.yaml")
    wrong = scenario_from_text(scenario.text.replace("store-4 is Tombstone", "store-4 is Down"))
    played = wrong.model.play(wrong)
    assert not played.held
    assert any("store-4 is Tombstone" in o.because for o in played.outcomes if not o.held)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stores: 3, regions: 0", "regions"),
        ("stores: 2, regions: 9", "at least 3 stores"),
        ("stores: 3, regions: 9, on: [7]", "stores that are there at first"),
        ("stores: [{id: 1}, {id: 1}], regions: 9", "each id once"),
        ("stores: 3, regions: 9, config: {no-such: 1}", "a setting of PD's"),
        ("stores: 3, regions: 9, on: [1, 1, 1]", "each store once"),
        ("stores: 3, regions: 9, config: {max-replicas: 0}", "a max-replicas of at least 1"),
        ("stores: 3, regions: 9, size: 0", "a number above 0 at cluster.size"),
        ("stores: 3, regions: 9, store_limit: -5", "a number from 0 on at cluster.store_limit"),
        ("stores: [{id: 99999999999}, {id: 2}, {id: 3}], regions: 9", "from 1 to 10000000"),
        ("stores: [{id: 1, capacity: 10, used: 20}, {id: 2}, {id: 3}], regions: 9", "at most the store's capacity"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(text: str, says: str) -> None:
    """With the line and what was expected."""
    with pytest.raises(ScenarioError, match=says):
        scenario_from_text(f"model: pd\ncluster: {{{text}}}\n")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("tick: 0s", "a duration of at least 1us"),
        ("store_heartbeat: 0s", "a duration of at least 1us"),
        ("compaction_ticks: 0", "a whole number from 1 on"),
        ("compression: 0", "a number above 0"),
        ("disk_mib_a_tick: 0", "a number above 0"),
        ("hot_history_samples: 0", "a whole number from 1 on"),
        ("io_mib_a_tick: -1", "a number from 0 on"),
        ("round: [5ms, 1ms]", "two rising durations"),
        ("round: [1ms]", "a list of 2"),
    ],
)
def test_a_setting_that_no_run_can_have_is_refused(setting: str, says: str) -> None:
    """With its line, when the file is read: they ended runs with a division by zero."""
    text = f"model: pd\ncluster: {{stores: 3, regions: 9}}\nsettings: {{{setting}}}\n"
    with pytest.raises(ScenarioError, match=rf"x.yaml:3: expected {says} at settings\."):
        scenario_from_text(text, "x.yaml")
    assert scenario_from_text(text.replace(setting, "round: [1ms, 5ms]")).settings.round_us == (1_000, 5_000)


def test_an_event_that_contradicts_the_state_is_reported_and_changes_nothing() -> None:
    """A store that runs neither starts nor comes back; one that is silent does not fall silent again."""
    events = (
        "{at: 1s, start_store: store-1}, {at: 2s, resume_store: store-2}, {at: 3s, stop_store: store-3}, "
        "{at: 4s, stop_store: store-3}, {at: 5s, resume_store: store-4}"
    )
    stores = "[{id: 1}, {id: 2}, {id: 3}, {id: 4, later: true}]"
    text = f"model: pd\nuntil: 9s\ncluster: {{stores: {stores}, regions: 9}}\nevents: [{events}]\n"
    scenario = scenario_from_text(text)
    played = scenario.model.play(scenario)
    assert [h.error for h in played.run.happened] == [
        "store 1 has joined already", "store 2 runs", "", "store 3 does not run", "store 4 has not joined",
    ]  # fmt: skip
    assert played.run.world.nodes.all[2].silent_us == 3 * S
    assert any("store 1 has joined already" in str(line) for line in played.happened)


def test_a_state_that_no_store_has_is_refused() -> None:
    """A claim with a typing error would never be true."""
    text = "model: pd\ncluster: {stores: 3, regions: 9}\nassert:\n  - {always: store-1 is Upp}\n"
    with pytest.raises(ScenarioError, match="a sentence of the vocabulary"):
        scenario_from_text(text)


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ("read: 1 7 999", r"expected regions of the start; found \[999\]"),
        ("write: 5 led by store-9", "expected 5 led by store-9; found 0"),
        ("grow: 999", r"found \[999\]"),
    ],
)
def test_an_event_that_cannot_come_is_refused_when_the_file_is_read(event: str, says: str) -> None:
    """A region that is not there would else do nothing, in silence."""
    text = "model: pd\nname: x\nuntil: 1m\ncluster: {stores: 4, regions: 60}\nevents:\n  - {at: 10s, %s}\n"
    with pytest.raises(ScenarioError, match=rf"x.yaml:6: .*{says}"):
        scenario_from_text(text % event, "x.yaml")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sore delete 4", "pd-ctl sore delete 4: no such command"),
        ("store remove 4", "store remove 4: no such command"),
        ("config set leader-schedul-limit 8", "config item leader-schedul-limit not found"),
        ("config set leader-schedule-limit many", "expected a whole number"),
        ("store limit all fast", "expected a number from 0 on"),
        ("store weight 9 heavy 1", "expected a number from 0 on"),
        ("operator add move-peer 2 3", "operator add move-peer 2 3: no such command"),
        ("operator add transfer-leader 2", "operator add transfer-leader 2: no such command"),
        ("scheduler add evict-leader-scheduler", "scheduler add evict-leader-scheduler"),
        ("scheduler add balance-all-scheduler", "scheduler balance-all-scheduler is not known"),
        ("'config placement-rules save {'", "config placement-rules save"),
    ],
)
def test_words_that_pd_ctl_does_not_have_are_refused_when_the_file_is_read(words: str, says: str) -> None:
    """With the line; what only the cluster refuses, a store that is not there for instance, comes in the run."""
    text = "model: pd\ncluster: {stores: 4, regions: 60}\nevents:\n  - {at: 10s, pdctl: %s}\n"
    with pytest.raises(ScenarioError, match=rf"x.yaml:4: .*{says}"):
        scenario_from_text(text % words, "x.yaml")
    for kept in ("store delete 9", "operator add transfer-leader 999 4", "config show", "store limit 9 30"):
        assert scenario_from_text(text % kept, "x.yaml").events


def test_an_event_is_its_change_and_ends_with_it() -> None:
    """Read from the file's fields, its regions looked up; `for` brings the change that ends it."""
    events = "{at: 5s, cut_off: store-2, for: 3s}, {at: 6s, slow_disk: store-1, mib_s: 5, for: 1s}"
    events += ", {at: 9s, read: 2 led by store-3}"
    scenario = scenario_from_text(f"model: pd\ncluster: {{stores: 4, regions: 60}}\nevents: [{events}]\n")
    cut, slow, read = CutOff(2, 3 * S), SlowDisk(1, 5, S), ReadFlow((3, 7), 16)
    assert [e.what for e in scenario.events] == [cut, slow, read] and scenario.events[0].name == "cut_off store-2"
    assert [*World(start_of(scenario), 0, changes=changes_of(scenario)).changes] == [
        Timed(5 * S, cut), Timed(6 * S, slow), Timed(7 * S, SlowDisk(1, None)), Timed(8 * S, InTouch(2)),
        Timed(9 * S, read),
    ]  # fmt: skip


def test_a_sentence_that_nobody_knows_is_refused() -> None:
    """With those that are known."""
    with pytest.raises(ScenarioError, match="peers are even"):
        scenario_from_text("model: pd\ncluster: {stores: 3, regions: 9}\nassert: [{eventually: all is well}]\n")


def test_a_setting_is_changed_from_outside() -> None:
    """``--set cluster.store_limit=60`` as for every model."""
    scenario = read_scenario(SCENARIOS / "retire.yaml", {"cluster.store_limit": "7", "settings.io_mib_a_tick": "5"})
    assert (scenario.cluster.store_limit, scenario.settings.io_mib_a_tick) == (7.0, 5.0)


def test_the_command_prints_what_happened_and_how_it_ended() -> None:
    """Text and JSON; exit 0 where all held."""
    path = str(SCENARIOS / "retire.yaml")
    text = CliRunner().invoke(main, ["simulate", "pd", path, "--lines", "5"])
    assert text.exit_code == 0 and "store 4: Tombstone" in text.output and "more lines" in text.output
    told = json.loads(CliRunner().invoke(main, ["simulate", "pd", path, "--json"]).output)
    assert told["numbers"]["operators"]["replace-rule-offline-peer"] > 0 and told["violation"] is None
    refused = [line for line in told["happened"] if line["because"].startswith("ErrStoresNotEnough")]
    assert refused[0]["what"] == "store delete 3" and "messages" not in told and told["end"]["because"] == "time"


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("network: {delay: 5ms}", "no `delay` for the model pd"),
        ("network: {loss: 0.5, transport: datagram}", "no `transport` for the model pd"),
        ("step_limit: 10", "no `step_limit` for the model pd"),
    ],
)
def test_a_section_without_effect_is_refused_by_name(section: str, why: str) -> None:
    """What a cluster under PD does not have is not read over: the line, the section, and what to do instead."""
    text = f"model: pd\n{section}\ncluster: {{stores: 3, regions: 9}}\n"
    with pytest.raises(ScenarioError, match=rf"scenario:2: expected {why}"):
        scenario_from_text(text)


def _leaders_moved(settings: str) -> list[int]:
    """How many leaders each of the first rounds moves, where store 1 leads everything."""
    text = f"""
model: pd
until: 3s
cluster: {{stores: 4, regions: 90}}
settings: {{{settings}}}
events: [{{at: 1s, pdctl: store weight 1 0.1 1}}]
"""
    run = scenario_from_text(text)
    made = run.model.play(run).run.operators.to_pylist()
    by_round: dict[int, int] = {}
    for o in made:
        if o["desc"] == "balance-leader-scheduler":
            by_round[o["created_us"]] = by_round.get(o["created_us"], 0) + 1
    return list(by_round.values())


def test_as_many_operators_of_a_name_wait_as_the_setting_says() -> None:
    """A round of balance-leader makes four transfers; with a limit of 2 two of them wait and the others are dropped."""
    assert max(_leaders_moved("max_waiting: 5")) == 4
    assert max(_leaders_moved("max_waiting: 2")) == 2


def test_write_flow_is_told_by_region_heartbeats() -> None:
    """A region is hot after three of them: three minutes with one a minute, later where they come less often."""

    def degree(heartbeat_s: int) -> int:
        world = World(
            small(12, 4, region_heartbeat_us=heartbeat_s * S), seed=1, changes=[Timed(0, WriteFlow((1,), 19.0))]
        )
        world.run(200 * S)
        return int(world.regions.degree[world.regions.row_of[1], 1])

    assert degree(60) == 3 and degree(45) == 2 and degree(150) == 1
