"""Scenario files of the pipeline: what they assert holds, what they show is read, every mistake has its line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ticdc_lab.cli import main
from ticdc_lab.errors import ContractError, ScenarioError
from ticdc_lab.simulate.pipeline.looking import moments, why_at
from ticdc_lab.simulate.pipeline.model import PlayedPipeline, play
from ticdc_lab.simulate.pipeline.scenario import LoadSettings, Named, load_of_scenario
from ticdc_lab.simulate.scenario import Scenario, read_scenario, scenario_from_text

FOLDER = Path(__file__).resolve().parents[3] / "data/scenarios"
FILES = sorted((FOLDER / "pipeline").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_what_a_scenario_asserts_holds(path: Path) -> None:
    """Every assertion, and no invariant is violated; why is reported in words, not as a class writes itself."""
    played = play(read_scenario(path), keep=False)
    assert [o for o in played.outcomes if not o.held] == []
    assert [o for o in played.outcomes if re.search(r"\w\(\w+=", o.because)] == []
    assert played.held and len(played.outcomes) >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_scenario_is_said_what_it_shows(path: Path) -> None:
    """In its first line and in the list of scenarios."""
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert f"`{path.stem}`" in (FOLDER / "README.md").read_text(encoding="utf-8")


def scenario(*lines: str) -> Scenario:
    """A scenario of two captures and two tables, with more lines: they begin in line 4."""
    head = ["model: pipeline", "until: 6s", "cluster: {captures: 2, tables: 2}"]
    return scenario_from_text("\n".join([*head, *lines]), "file.yaml")


def test_a_load_is_read_and_drawn_by_the_seed() -> None:
    """The same seed draws the same; a long transaction and a named one are in it."""
    read = scenario(
        "load:",
        "  rows_per_s: 50",
        "  rows: 3",
        "  deleted: 10%",
        "  transactions: [{at: 1s, table: 2, handles: [7, 8], hold: 2s, rolls_back: true}]",
        "events: [{at: 2s, long_transaction: 1, hold: 1s, rows: 2}, {at: 2.5s, add_column: 2, column: c}]",
    )
    assert isinstance(read.load, LoadSettings)
    assert read.load.transactions == (Named(1_000_000, 2, (7, 8), 2_000_000, True),)
    one, same, other = (load_of_scenario(read, seed) for seed in (1, 1, 2))
    assert one == same != other
    held = [t for t in one.transactions if t.hold_us]
    assert [(t.start_us, len(t.mutations), t.rolls_back) for t in held] == [(1_000_000, 2, True), (2_000_000, 2, False)]
    assert [(at_us, job.info.columns[-1].name) for at_us, job in one.jobs if job.info] == [(2_500_000, "c")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("load: {rows_per_second: 5}", "file.yaml:4: expected a known field of load; found rows_per_second"),
        ("load: {transactions: [{at: 1s, table: 9, handles: [1]}]}", "expected a table of the cluster at load.trans"),
        ("load: {transactions: [{at: 1s, table: 1, handles: []}]}", "at least one handle, each once"),
        ("events: [{at: 1s, transfer_leader: 1, to: tikv-9}]", "expected a node of the cluster"),
        ("events: [{at: 1s, long_transaction: 1}]", "expected a field hold of long_transaction"),
        ("events: [{at: 1s, ddl: 1s}]", "expected a known field"),
        (
            "settings: {capture: {rule: both}}",
            "expected a known value at settings.capture.rule; found both",
        ),
        ("settings: {tikv: {stores: 3}}", "expected a known field of settings.tikv; found stores"),
        ("assert: [{always: resolved_ts is held by magic}]", "expected the name of one holder that is there"),
        ("load: {from: 5s, until: 3s}", "expected a moment after `from` at load.until; found 3s"),
        ("assert: [{eventually: rows lost}]", "rows lost is measured: compare it, as in `rows lost <= 10`"),
        ("assert: [{always: all is well}]", "a sentence of the vocabulary"),
        ("assert: [{always: rows owed < 5s}]", "a number beside rows owed at assert[0].always; found 5s"),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, said: str) -> None:
    """And with what is known there."""
    with pytest.raises(ScenarioError) as error:
        scenario(line)
    assert said in str(error.value) and str(error.value).startswith("file.yaml:4:")


def test_the_scheduler_has_no_load() -> None:
    """Its tables have traffic."""
    with pytest.raises(ScenarioError, match="no load"):
        scenario_from_text("model: scheduler\ncluster: {captures: 1, tables: 1}\nload: {rows_per_s: 1}", "f.yaml")


def failed(*lines: str) -> list[str]:
    """What failed of the assertions of a scenario."""
    return [o.assertion for o in play(scenario(*lines), keep=False).outcomes if not o.held]


def test_assertions_about_rows_can_fail() -> None:
    """Each sentence is false where it should be."""
    lines = ("load: {rows_per_s: 100, until: 6s}", "events: [{at: 2s, standing_sink: 4s}]", "assert:")
    wrong = ("eventually: everything is downstream", "eventually: nothing holds checkpoint_ts",
             "eventually: checkpoint_ts is held by ddl", "always: rows owed < 5", "eventually: rows delivered > 500",
             "eventually: rows on disk > 0", "eventually: resolved_ts lag > 3s")  # fmt: skip
    right = (
        "eventually: checkpoint_ts is held by sink",
        "eventually: rows lost = 0",
        "always: nothing holds resolved_ts",
    )
    found = failed(*lines, *(f"  - {{{text}}}" for text in (*wrong, *right)))
    assert [text.partition(": ")[2] for text in found[:2]] == [text.partition(": ")[2] for text in wrong[:2]]
    assert len(found) == len(wrong)


def test_what_is_read_from_the_world_is_judged_at_its_moment_whatever_rows_are_recorded() -> None:
    """Every 10 ms and at the ends of windows, not where rows are: these come when the world is already another one."""
    read = scenario(
        "load: {rows_per_s: 200}",
        "events: [{at: 2s, long_transaction: 1, hold: 2s}]",
        "assert:",
        "  - {within: 2s, after: long_transaction 1, holds: resolved_ts is held by transaction}",
        "  - {within: 2s, after: long_transaction 1, holds: rows in memory > 100}",
        "  - {at_most: 0, of: rows delivered, from: 2.5s, for: 1.004s}",
        "  - {eventually: rows delivered > 400}",
        "  - {always: rows in memory < 100}",
    )
    few, all_rows = (play(read, keep=False, level=level).outcomes for level in ("changes", "full"))
    assert few == all_rows and [o.held for o in few] == [True, True, True, True, False]
    assert [o.at_us % 10_000 for o in few] == [0, 0, 4_000, 0, 0]
    assert few[4].at_us <= few[1].at_us and few[2].at_us == 3_504_000


def test_why_of_a_run_knows_since_when() -> None:
    """From its samples: the slow sink's oldest row, and how long the checkpoint stands; nothing holds it afterwards."""
    read = scenario("load: {rows_per_s: 200, until: 4s}", "events: [{at: 2s, standing_sink: 2s}]")
    run = play(read, keep=True, sample_us=100_000).run
    held = why_at(run, at_us=3_900_000, watermark="checkpoint_ts")
    assert held.holders[0].kind == "sink" and 2_000_000 <= (held.holders[0].since_us or 0) < 2_600_000
    assert held.stands_since_us < 2_700_000 and "has stalled for" in held.text
    assert why_at(run, at_us=3_900_000).holders == ()
    assert why_at(run, at_us=6_000_000, watermark="checkpoint_ts").holders == ()
    assert len(moments(run)) > 50
    with pytest.raises(ContractError, match="sample_us"):
        why_at(play(read, keep=False).run, at_us=1_000_000)


def test_why_names_a_paused_capture() -> None:
    """It is reported as down, though its state is kept."""
    read = scenario("load: {rows_per_s: 100}", "events: [{at: 2s, pause: capture-2, for: 3s}]")
    run = play(read, sample_us=100_000).run
    owner = next(c for c in moments(run, until_us=1_900_000)[-1].captures if c.is_owner).address
    [holder, *_] = why_at(run, at_us=4_500_000, watermark="checkpoint_ts").holders
    assert holder.kind == ("scheduler" if owner == "capture-2" else "capture")


def test_what_is_the_slowest_is_no_reason_of_the_owner() -> None:
    """v4's owner names the lowest table or a barrier while it counts: the store that stands holds the watermark."""
    path = Path(__file__).resolve().parents[3] / "data/scenarios/pipeline/standing-store.yaml"
    assert play(read_scenario(path, {"variant": "v4"}), keep=False).held


def test_the_same_seed_gives_the_same_run_and_sums_stay_right_without_faults() -> None:
    """Outcomes, trace and log."""
    read = scenario("load: {rows_per_s: 100}", "network: {loss: 1%}")
    runs: list[PlayedPipeline] = [play(read, seed=3) for _ in range(2)]
    assert runs[0].trace.equals(runs[1].trace) and runs[0].run.log.equals(runs[1].run.log)
    assert runs[0].facts.ended and runs[0].facts.ended.final_right_blind


def simulate(*args: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, ["simulate", *args])


def test_the_command_tells_a_run_and_why() -> None:
    """Exit 0; the chain at a moment is printed, and is in the JSON."""
    file = str(FOLDER / "pipeline/long-transaction.yaml")
    done = simulate("pipeline", file, "--why", "6s")
    assert done.exit_code == 0, done.output
    assert "rows committed, " in done.stdout and "Why resolved_ts at 6s: The global resolved_ts is " in done.stdout
    assert "(primary t1_r100) is open: 3 locks in region " in done.stdout
    told: dict[str, Any] = json.loads(simulate("pipeline", file, "--why", "6s", "--json").stdout)
    assert [w["watermark"] for w in told["why"]] == ["resolved_ts", "checkpoint_ts"]
    assert told["why"][0]["holders"][0]["kind"] == "transaction"


def test_the_example_of_the_readme_asks_while_something_holds() -> None:
    """Its moment lies where the watermark stands; before the crash the answer would be that nothing holds it."""
    readme = (FOLDER.parent.parent / "README.md").read_text(encoding="utf-8")
    found = re.search(r"simulate +pipeline data/scenarios/(\S+) --why (\S+)", readme)
    assert found is not None
    told = json.loads(simulate("pipeline", str(FOLDER / found[1]), "--why", found[2], "--json").stdout)
    assert [h["kind"] for h in told["why"][0]["holders"]][:2] == ["capture", "transaction"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["scheduler", str(FOLDER / "pipeline/spill.yaml")], "is of the model pipeline: ticdc-lab simulate pipeline"),
        (["pipeline", str(FOLDER / "scheduler/drain.yaml")], "is of the model scheduler"),
        (["pipeline", str(FOLDER / "pipeline/spill.yaml"), "--why", "soon"], "expected a moment such as 7.5s"),
        (["pipeline", str(FOLDER / "pipeline/spill.yaml"), "--why", "40s"], "'40s'; the run ends at 12s"),
        (
            ["pipeline", str(FOLDER / "pipeline/spill.yaml"), "--why", "1s", "--seeds", "1..2"],
            "either --why or --seeds",
        ),
    ],
)
def test_what_cannot_be_run_is_said_and_exit_code_2(args: list[str], said: str) -> None:
    """A file of the other model, too."""
    done = simulate(*args)
    assert done.exit_code == 2 and said in done.stderr
