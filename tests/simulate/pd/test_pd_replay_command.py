"""``ticdc-lab pd replay``: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from ticdc_lab.cli import main

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pd"


def test_json_has_the_counts_and_an_entry_a_record() -> None:
    """The contract of the command line: total, agree, and line, ours, file, agrees of each record."""
    done = CliRunner().invoke(main, ["pd", "replay", str(GOLDEN / "scenarios.jsonl"), "--json"])
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    assert told["total"] == len(told["records"]) == told["agree"] + told["not_judged"]
    assert all({"line", "ours", "file", "agrees"} <= r.keys() for r in told["records"])


def test_a_table_by_kind_is_printed_and_a_disagreement_is_shown(tmp_path: Path) -> None:
    """A record that was changed is named with ours and the file's; the exit code reports it."""
    first = (GOLDEN / "scenarios.jsonl").read_text().splitlines()[1]
    path = tmp_path / "records.jsonl"
    path.write_text(f"{first}\n{first.replace('true', 'false')}\nnonsense\n")
    done = CliRunner().invoke(main, ["pd", "replay", str(path)])
    assert done.exit_code == 1
    assert "1 of 3 records agree" in done.output
    assert "line 2 (balance-leader, should-balance-count-65-55-48)" in done.output
    assert "line 3 (unknown): line: expected a JSON object, found" in done.output


def test_a_file_that_is_not_there_ends_with_a_sentence() -> None:
    """Exit code 2, no trace."""
    done = CliRunner().invoke(main, ["pd", "replay", "nowhere.jsonl"])
    assert done.exit_code == 2
    assert "cannot be read" in done.output and "Traceback" not in done.output
