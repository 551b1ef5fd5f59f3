"""Panels of a log, made again from what a state shows of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab import load
from ticdc_lab.cli import main
from ticdc_lab.events.sample import Sample
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.log import Log
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.widgets import open_state
from ticdc_lab.widgets.opening import OF_A_LOG
from ticdc_lab.widgets.state import StateError
from ticdc_lab.widgets.workbench import workbench

NAME = "messages_open-protocol_small.jsonl.gz"


@pytest.fixture(scope="module")
def state(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state of a browser of one table of a log, saved beside a copy of the log."""
    folder = tmp_path_factory.mktemp("handed_over")
    shutil.copy(golden(NAME), folder / NAME)
    log = load(spark, str(folder / NAME)).sampled(Sample(tables=("shop.orders",)))
    panel = OF_A_LOG["browse"](Log(log.materialise(str(folder / "decoded")), folder), {})
    panel.value = replace(panel.value, partition=1, kind="row")
    panel.save(folder / "browse.json")
    (folder / "finding").write_text(panel.figure.layout.meta["finding"])
    return folder / "browse.json"


def test_a_colleague_sees_the_same(spark: SparkSession, state: Path, tmp_path: Path) -> None:
    """Where the log lies elsewhere but beside the state; the sample is taken again."""
    told = json.loads(state.read_text())
    assert told["made_from"]["source"] == str(state.parent / NAME)
    assert told["made_from"]["sample"]["tables"] == ["shop.orders"]
    assert told["made_from"]["messages"] == 1470
    told["made_from"] |= {"source": f"/somebody/elses/{NAME}", "messages": 1471}
    shutil.copy(state.parent / NAME, tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(told))
    panel = open_state(tmp_path / "s.json", spark)
    assert panel.value.partition == 1 and panel.value.kind == "row"
    assert panel.figure.layout.meta["finding"] == (state.parent / "finding").read_text()
    assert "saved with messages 1471, here it is 1470" in panel.view.status
    assert panel.controls["table"].options == (("all", ""), ("shop.orders", "shop.orders"))


def test_the_command_opens_it(spark: SparkSession, state: Path) -> None:
    """The log named again."""
    result = CliRunner().invoke(main, ["open", str(state), "--source", str(golden(NAME)), "--json"], obj=spark)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["browse"]["finding"] == (state.parent / "finding").read_text()


def test_a_log_that_is_gone_is_said(spark: SparkSession, state: Path, tmp_path: Path) -> None:
    """With what to do."""
    told = json.loads(state.read_text())
    told["made_from"]["source"] = "/nowhere/log.jsonl"
    with pytest.raises(StateError, match="is not here, nor beside the state") as error:
        open_state(told, spark)
    assert "--source" in error.value.hint
    with pytest.raises(StateError, match="panel `cat` is not known"):
        open_state({**told, "panel": "cat"}, spark)


@pytest.fixture(scope="module")
def decoded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ChangeLog:
    """Decode once for all panels."""
    return load(spark, str(golden(NAME))).materialise(str(tmp_path_factory.mktemp("log") / "decoded"))


@pytest.mark.parametrize("name", OF_A_LOG)
def test_every_panel_of_a_log_opens_again(spark: SparkSession, decoded: ChangeLog, name: str, tmp_path: Path) -> None:
    """As it was saved."""
    panel = OF_A_LOG[name](Log(decoded, tmp_path), {})
    again = open_state(panel.state(), spark)
    assert again.value == panel.value and again.state() == panel.state()
    assert again.figure.layout.meta == panel.figure.layout.meta


def test_a_workbench_opens_again(spark: SparkSession) -> None:
    """With the tab that was open and what was chosen."""
    bench = workbench(str(golden(NAME)), spark).wait()
    bench.panels["messages"].value = replace(bench.panels["messages"].value, kind="row")
    bench.select(Selection(partition=1))
    kept = bench.state()
    assert set(kept["value"]["panels"]) == {"messages"}, "what nobody has changed is not kept, computed yet or not"
    assert bench.panels["overview"].is_as_made and bench.state()["value"]["panels"] == kept["value"]["panels"]
    bench.pages.open("messages")
    again = open_state(kept, spark)
    assert again.state()["value"] == kept["value"]
    assert again.panels["messages"].value.partition == 1
