"""Spark that is not installed yet: the command installs it in a checkout, and shows what to run anywhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ticdc_lab.cli import common
from ticdc_lab.errors import SparkMissingError

COMMAND = """
import click, sys
from pathlib import Path
from ticdc_lab.cli import common
from ticdc_lab.errors import SparkMissingError

common.checkout_script = lambda: Path("lab")

@click.command()
@click.option("--debug", is_flag=True)
@click.argument("word")
@common.guarded
def main(word):
    if not Path("installed").exists():
        raise SparkMissingError("Apache Spark is needed.", hint="Run: ./lab setup --spark")
    print("the answer for", word)

main()
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command above in ``folder``, where its ``lab`` is."""
    (folder / "command.py").write_text(COMMAND)
    command = [sys.executable, "command.py", "a word"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_command_of_a_checkout_waits_for_spark_and_runs_again(tmp_path: Path) -> None:
    """It reports it beforehand, keeps stdout for the answer, and gets the words it was given."""
    (tmp_path / "lab").write_text("import sys; open('installed', 'w'); print('lab:', *sys.argv[1:])")
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (0, "the answer for a word\n")
    first, second, third = done.stderr.splitlines()
    assert first == "ticdc-lab: Apache Spark is needed."
    assert second == "Installing it now, once, in one to three minutes (450 MB)."
    assert third == "lab: setup --spark"


def test_a_set_up_that_fails_ends_the_command(tmp_path: Path) -> None:
    """The script has reported why; its exit code is the command's."""
    (tmp_path / "lab").write_text("raise SystemExit(2)")
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_outside_a_checkout_it_is_said_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other error."""

    @common.guarded
    def command() -> None:
        raise SparkMissingError("Apache Spark is needed.", hint="Run: this")

    monkeypatch.setattr(common, "checkout_script", lambda: None)
    result = CliRunner().invoke(click.command()(lambda: command(debug=False)))
    assert (result.exit_code, result.stderr) == (2, "ticdc-lab: Apache Spark is needed.\n\nHint: Run: this\n")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SparkMissingError("Apache Spark is needed."), "Apache Spark is needed."),
        (ModuleNotFoundError("No module named 'delta.tables'", name="delta.tables"), "No module named 'delta.tables'"),
        (ImportError("cannot import name 'SparkContext' from 'pyspark'", name="pyspark"), "'SparkContext'"),
        (ModuleNotFoundError("No module named 'polars'", name="polars"), None),
        (ValueError("pyspark"), None),
    ],
)
def test_an_import_that_fails_for_spark_says_so(error: Exception, says: str | None) -> None:
    """What is missing in the light set is Spark's; anything else is an error of its own."""
    found = common.missing_spark(error)
    assert found is None if says is None else found is not None and says in found.message


def test_only_the_venv_of_the_checkout_is_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment of the user's own is the user's affair, and one attempt is enough."""
    (tmp_path / "lab").touch()
    monkeypatch.delenv("TICDC_LAB_SPARK_SET_UP", raising=False)
    monkeypatch.setattr(common.ticdc_lab, "__file__", str(tmp_path / "ticdc_lab/__init__.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert common.checkout_script() == tmp_path / "lab"
    monkeypatch.setenv("TICDC_LAB_SPARK_SET_UP", "1")
    assert common.checkout_script() is None
    monkeypatch.delenv("TICDC_LAB_SPARK_SET_UP")
    monkeypatch.setattr(sys, "prefix", "/opt/conda/envs/mine")
    assert common.checkout_script() is None
