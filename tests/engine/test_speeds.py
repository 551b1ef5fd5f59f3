"""What this machine did before shows how long the next log takes; nothing fails for want of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ticdc_lab.engine import speeds
from ticdc_lab.engine.speeds import KEPT, NEAR, expected_s, note


def test_nothing_is_said_before_something_was_measured() -> None:
    """Of the step itself: another protocol or engine shows nothing."""
    assert expected_s("decode canal-json", 1_000) is None
    note("decode canal-json", messages=1_000, seconds=2.0)
    assert expected_s("decode canal-json", 1_000) == 2.0
    assert expected_s("decode avro", 1_000) is None


def test_a_run_speaks_for_logs_of_about_its_size() -> None:
    """In proportion, up to three times as many or as few; beyond, it is unknown."""
    note("decode", messages=1_000, seconds=2.0)
    assert expected_s("decode", 1_500) == 3.0
    assert (expected_s("decode", NEAR * 1_000), expected_s("decode", NEAR * 1_000 + 1)) == (6.0, None)
    assert expected_s("decode", 333) is None


def test_the_middle_of_several_runs_counts() -> None:
    """One that took long because the machine was busy changes nothing; old ones go."""
    for seconds in (2.0, 2.2, 90.0):
        note("decode", messages=1_000, seconds=seconds)
    assert expected_s("decode", 1_000) == 2.2
    for _ in range(KEPT):
        note("decode", messages=1_000, seconds=4.0)
    assert expected_s("decode", 1_000) == 4.0
    assert len(json.loads(speeds.place().read_text())["decode"]) == KEPT


def test_an_empty_log_is_no_measurement() -> None:
    """Nor is one that took no time."""
    note("decode", messages=0, seconds=1.0)
    note("decode", messages=5, seconds=0.0)
    assert not speeds.place().exists()


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "[]", "7", '{"decode": 5}', '{"decode": [[1000], [0, 1], [1000, -1], ["a", 2], [true, 2], null]}',
     '{"decode": [[1000, NaN], [1e999, 1], [1000, Infinity]]}', "\x00\xff"],
)  # fmt: skip
def test_a_damaged_file_counts_as_empty_and_is_made_anew(damaged: str) -> None:
    """What is in it."""
    speeds.place().parent.mkdir(parents=True, exist_ok=True)
    speeds.place().write_text(damaged, encoding="latin-1")
    assert expected_s("decode", 1_000) is None
    note("decode", messages=1_000, seconds=2.0)
    assert expected_s("decode", 1_000) == 2.0


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the cache folder should be: nothing is kept and nothing fails."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(speeds, "cache_folder", lambda: tmp_path / "file")
    note("decode", messages=1_000, seconds=2.0)
    assert expected_s("decode", 1_000) is None
    assert (tmp_path / "file").read_text() == "in the way"
