"""What the README says works."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest
import yaml
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.cli import main

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_python_example_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The README's Python block runs as it stands, on the suite's session, and shows the topic's resolved_ts."""
    (code,) = (block for block in BLOCKS if "local_session" in block)
    monkeypatch.setattr(ticdc_lab, "local_session", lambda: spark)
    monkeypatch.chdir(Path(__file__).parent.parent)
    exec(compile(code.replace("/tmp/small", f"{tmp_path}/small"), "README.md", "exec"), {})
    assert "470603993791332352" in capfd.readouterr().out


def test_the_other_python_examples_run(capfd: pytest.CaptureFixture[str]) -> None:
    """The model of PD needs no session: a cluster, its other future, and pd-ctl's words."""
    others = [block for block in BLOCKS if "local_session" not in block]
    assert len(others) == 1
    exec(compile(others[0], "README.md", "exec"), {})
    shown = capfd.readouterr().out
    assert "balance-region-scheduler" in shown and "limit 2000" in shown


def test_every_command_shown_exists() -> None:
    """Each ``ticdc-lab COMMAND`` of the README is a command with the options that are shown."""
    shown = re.findall(r"^ticdc-lab ([\w-]+) +(.*?)(?:#.*)?$", README, re.MULTILINE)
    assert len(shown) == 44
    for name, rest in shown:
        command = main.commands[name]
        if isinstance(command, click.Group):
            command = command.commands[rest.split()[0]]
        known = {o for p in command.params for o in p.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, name


def test_files_named_exist() -> None:
    """Every path that the README names in the repository is there."""
    named = re.findall(r"`((?:notebooks|data|ticdc_lab|tests|benchmarks)/[\w./-]+)`", README)
    assert len(named) >= 5
    missing = [n for n in named if not os.path.exists(Path(__file__).parent.parent / n)]
    assert missing == []


def test_the_scenario_shown_is_the_file() -> None:
    """It is run by the tests of the pipeline's scenarios; comments may differ."""
    (shown,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = Path(__file__).parent.parent / "data/scenarios/pipeline/lock-behind-a-crash.yaml"
    kept = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {k: v for k, v in kept.items() if k != "plot"} == yaml.safe_load(shown)
