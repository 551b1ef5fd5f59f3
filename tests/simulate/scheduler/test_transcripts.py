"""Scenario files of the table scheduler with their transcripts, as the testdata of etcd's raft has them.

A file is the scenario, a line ``----``, and what comes of it: each message of the protocol that came in, or did not,
with what it asks, and each thing that happened, by time; then the assertions. Periodic messages are left out.
``python tests/simulate/scheduler/test_transcripts.py`` writes them again: read the difference before you keep it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ticdc_lab.simulate.arrows import arrows, shortly
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.narrative import Line

ROOT = Path(__file__).resolve().parents[3]
FOLDER, SCENARIOS = ROOT / "tests/data/scheduler", ROOT / "data/scenarios/scheduler"
VARIANTS = {
    "ten-steps": "v2", "owner-crash": "v2", "move-while-adding": "v2", "two-owners": "v2",
    "lost-message-datagram": "v2", "two-phase-move": "v3", "coordinator": "v4",
}  # fmt: skip
"""Files, and the variant that each is for."""
PERIODIC = frozenset({"Checkpoint", "Heartbeat", "HeartbeatResponse", "HeartBeatRequest", "NodeHeartbeat"})
CUT = "----\n"


def transcript(text: str) -> str:
    """Play a scenario and show what happened."""
    scenario = scenario_from_text(text)
    played = scenario.model.play(scenario)
    told: list[tuple[int, str]] = []
    for row in arrows(played.trace).itertuples():
        if ETCD not in (row.sender, row.receiver) and row.message not in PERIODIC:
            fate = "" if row.fate == "received" else f"{row.fate}: {row.because}"
            line = Line(row.end_us, row.receiver, f"<- {row.sender} {shortly(row.message, row.detail)}", fate)
            told.append((row.end_us, str(line)))
    told += [(line.time_us, str(line)) for line in played.happened]
    told.sort(key=lambda one: one[0])
    judged = [f"{'held' if o.held else 'FAILED'}  {o.assertion}: {o.because}" for o in played.outcomes]
    return "\n".join([*(line for _, line in told), "", *judged, ""])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_scenario_is_played_as_its_transcript_says(name: str) -> None:
    """Message by message, and its assertions hold or fail as they did."""
    text, _, expected = (FOLDER / f"{name}.txt").read_text().partition(CUT)
    assert transcript(text) == expected


@pytest.mark.parametrize("name", VARIANTS)
def test_a_transcript_is_of_the_file_that_users_have(name: str) -> None:
    """With the variant that it is shown for."""
    text, _, _ = (FOLDER / f"{name}.txt").read_text().partition(CUT)
    assert text == source(name) and read_scenario(SCENARIOS / f"{name}.yaml").model.name == "scheduler"


def test_another_run_gives_another_transcript() -> None:
    """Or the comparison would hold of anything: a seed draws other delays."""
    text, _, expected = (FOLDER / "ten-steps.txt").read_text().partition(CUT)
    assert transcript(f"{text}seed: 5\n") != expected


def source(name: str) -> str:
    """Give the scenario of a file, with its variant."""
    text = (SCENARIOS / f"{name}.yaml").read_text()
    named = f"variant: {VARIANTS[name]}\n"
    return text if "\nvariant:" in text else text.replace("model: scheduler\n", f"model: scheduler\n{named}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in VARIANTS:
        (FOLDER / f"{one}.txt").write_text(source(one) + CUT + transcript(source(one)))
