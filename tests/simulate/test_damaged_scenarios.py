"""A scenario file that a slip of the keyboard damaged."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.scenario import scenario_from_text

FILE = Path(__file__).resolve().parents[2] / "data/scenarios/scheduler/ddl-barrier.yaml"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_damaged_file_is_a_sentence_with_its_line(data: st.DataObject) -> None:
    """No matter what a slip of the keyboard does to a file, it is read or refused with file and line."""
    text = FILE.read_text(encoding="utf-8")
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.text(st.sampled_from("{}[]:-, \n\t#&*!|>'\"%@0aé"), max_size=3))
    told = _told(text[:at] + new + text[at + data.draw(st.integers(0, 3)) :])
    assert told is None or told.startswith("file.yaml:")


def _told(text: str) -> str | None:
    try:
        scenario_from_text(text, "file.yaml")
    except ScenarioError as error:
        return error.message
    return None
