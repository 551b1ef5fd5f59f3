"""Our PD decides what PD's own tests expect, in every scenario of golden/pd/scenarios.jsonl but those left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ticdc_lab.simulate.pd.replay import Replayed, replay

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pd"
LEFT_OUT: dict[str, str] = json.loads((GOLDEN / "left_out.json").read_text())


@pytest.fixture(scope="module")
def scenarios() -> Replayed:
    """The scenarios, judged once."""
    return replay(GOLDEN / "scenarios.jsonl")


def test_every_scenario_that_is_not_left_out_ends_as_expected(scenarios: Replayed) -> None:
    """A scenario is left out by name and with a reason, or it agrees."""
    wrong = [r for r in scenarios.records if r["agrees"] is not True and r["id"] not in LEFT_OUT]
    assert wrong == []
    assert scenarios.total == 157


def test_what_is_left_out_is_there_has_a_reason_and_is_not_met(scenarios: Replayed) -> None:
    """The list of what is left out does not outlive its reasons."""
    by_id = {r["id"]: r for r in scenarios.records}
    assert all(LEFT_OUT.values())
    assert [i for i in LEFT_OUT if by_id[i]["agrees"] is True] == []


def test_our_answer_has_the_form_of_the_file(scenarios: Replayed) -> None:
    """Where the file names one answer and we agree, ours equals it, except for notes and lists with several right
    answers.
    """
    for r in scenarios.records:
        if r["agrees"] and isinstance(r["file"], dict) and "one_of" not in r["file"]:
            file = {k: v for k, v in r["file"].items() if k != "note"}
            assert r["ours"] == file or any(isinstance(v, list) for v in file.values()), r["id"]


def test_a_checked_region_tells_why_each_store_was_not_chosen(scenarios: Replayed) -> None:
    """Every candidate is refused by a named filter, or scored; the one that is taken was kept in every choice."""
    (r,) = [r for r in scenarios.records if r["id"] == "ds-offline-target-skipped"]
    why = r["why"]
    refused = {x["store"]: x["filter"] for x in why["rejected"]}
    assert refused == {1: "excluded", 2: "excluded", 7: "state"}
    isolation = {x["store"]: x["score"] for x in why["scored"] if x["what"] == "isolation"}
    assert isolation == {3: 0, 4: 0, 5: 2, 6: 200}
    assert set(refused) | set(isolation) == set(why["candidates"])
    assert [x["store"] for x in why["scored"] if x["what"] == "region score"] == [r["ours"]["to_store"]] == [6]
