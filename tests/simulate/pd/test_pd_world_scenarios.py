"""Scenario files of PD: their assertions hold, and what cannot be is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ticdc_lab.cli import main
from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text

SCENARIOS = Path(__file__).parents[3] / "data" / "scenarios" / "pd"
QUICK = ("retire", "hot-read", "zones")


@pytest.mark.parametrize("name", QUICK)
def test_a_scenario_holds(name: str) -> None:
    """What the file claims is so, and no invariant is violated."""
    played = _played(name)
    assert played.held, [o for o in played.outcomes if not o.held]


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
    ],
)
def test_a_cluster_that_cannot_be_is_refused(text: str, says: str) -> None:
    """With the line and what was expected."""
    with pytest.raises(ScenarioError, match=says):
        scenario_from_text(f"model: pd\ncluster: {{{text}}}\n")


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ("pdctl: sore delete 4", "x.yaml:6: pd-ctl sore delete 4: no such command"),
        ("read: 1 7 999", r"expected regions of the start; found \[999\]"),
        ("write: 5 led by store-9", "expected 5 led by store-9; found 0"),
        ("grow: 999", r"found \[999\]"),
    ],
)
def test_an_event_that_cannot_come_is_refused_before_the_run(event: str, says: str) -> None:
    """A word that pd-ctl does not have and a region that is not there would else do nothing, in silence."""
    text = "model: pd\nname: x\nuntil: 1m\ncluster: {stores: 4, regions: 60}\nevents:\n  - {at: 10s, %s}\n"
    scenario = scenario_from_text(text % event, "x.yaml")
    with pytest.raises(ScenarioError, match=says):
        scenario.model.play(scenario)


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
    assert told["numbers"]["operators"]["replace-rule-offline-peer"] > 0 and told["violated"] is None
