"""What the README shows works; its links, commands and files are checked with the ones of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The README's Python blocks run as they stand, on the suite's session, and show what the log contains."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.setattr(ticdc_lab, "session", lambda: spark)
    monkeypatch.setattr("ticdc_lab.log.session", lambda *_, **__: spark)
    monkeypatch.chdir(ROOT)
    for code in blocks:
        exec(compile(code.replace("/tmp/", f"{tmp_path}/"), "README.md", "exec"), {})
    said = capfd.readouterr().out
    assert "guarantees were checked" in said and "target_partition" in said
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_its_first_answer_is_what_the_command_prints(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line, from the first on."""
    shown = re.findall(r"```sh\n.*?\nticdc-lab (audit data/\S+)\n```\n\n```text\n(.*?)```", README, re.DOTALL)
    ((command, answer),) = shown
    monkeypatch.chdir(ROOT)
    printed = CliRunner().invoke(main, command.split(), obj=spark).stdout
    assert answer.count("\n") > 3 and printed.startswith(answer)


def test_it_is_read_in_minutes() -> None:
    """Four questions, two commands, all questions, one table of numbers, limits; everything else has a page."""
    assert len(README.splitlines()) <= 180
    assert len(re.findall(r"^\./lab \w+ +#", README, re.MULTILINE)) == 2
    assert README.count("\n|---") == 3


def test_its_numbers_are_those_of_the_benchmarks() -> None:
    """The one table of numbers stands word for word in docs/benchmarks.md, where all of them are."""
    table = [line for line in README[README.index("## Speed") :].splitlines() if line.startswith("|")]
    measured = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8").splitlines()
    assert len(table) >= 5
    assert [line for line in table if line not in measured] == []


def test_it_shows_five_pictures() -> None:
    """Each is a file of the repository that a clone can bear, and one that docs/pictures.py makes."""
    shown = re.findall(r"!\[[^\]]+\]\((docs/pictures/(\w+)\.png)\)", README)
    assert len(shown) == 5
    assert [path for path, _ in shown if not 0 < (ROOT / path).stat().st_size < 150_000] == []
    made = (ROOT / "docs/pictures.py").read_text(encoding="utf-8")
    assert [name for _, name in shown if f"def {name}()" not in made] == []
