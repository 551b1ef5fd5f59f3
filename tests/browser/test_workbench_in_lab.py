"""The workbench in JupyterLab on each kind of source, with Spark in the kernel: typed, read, every tab, saved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from broker import Broker, create_topic, produce
from conftest import golden
from lab_page import LabPage
from pyspark.sql import SparkSession
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from ticdc_lab import load
from ticdc_lab.widgets.tabs import TABS

OPEN = "messages_open-protocol_small.jsonl.gz"
LONG_S = 180.0
_TAB = ".ticdc-workbench .lm-TabBar-tab"
_SEEN = """
return [...document.querySelectorAll('.ticdc-workbench .ticdc-plot')].filter((p) => p.offsetParent)
  .map((p) => (p.layout?.title?.text ?? p.querySelector('h4')?.textContent ?? '').replaceAll('<br>', ' '));
"""
_WRONG = """
return [...document.querySelectorAll('.ticdc-workbench .ticdc-wrong-words')].filter((e) => e.offsetParent)
  .map((e) => e.textContent).join(' ');
"""

_CATCH = """
HTMLInputElement.prototype.click = function () {
  this.id = "caught";
  document.body.append(this);
};
"""
"""ipywidgets asks for a file by an input that is no part of the page; no dialog can be used here."""


@pytest.fixture
def source(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> str:
    """The same small log as the kind of source that a test names."""
    if request.param == "file":
        return str(golden(OPEN))
    if request.param == "delta":
        load(spark, str(golden(OPEN))).messages.write.format("delta").save(str(tmp_path / "lake"))
        return str(tmp_path / "lake")
    if request.param == "storage":
        shutil.unpack_archive(golden("storage_small.tar.gz"), tmp_path)
        return str(next(iter(sorted(tmp_path.rglob("metadata")))).parent)
    broker: Broker = request.getfixturevalue("broker")
    classic: SparkSession = request.getfixturevalue("classic")  # only Spark writes to Kafka
    create_topic(classic, broker, "in-the-lab", 4)
    produce(load(classic, str(golden(OPEN))).messages, broker, "in-the-lab")
    return broker.url("in-the-lab")


@pytest.mark.soak
@pytest.mark.parametrize("source", ["file", "delta", "storage", "kafka"], indirect=True)
def test_own_data_from_a_text_field_to_every_tab(
    lab: LabPage, source: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A wrong path is reported in words; then each tab draws, a finding leads to its messages, a file saves it all."""
    lab.open(lab.made("bench", "from ticdc_lab import workbench\nbench = workbench()\nbench"))
    lab.run_all()
    kind = request.node.callspec.params["source"]
    try:
        used(lab, source, kind, tmp_path)
        assert lab.complaints() == []
    finally:
        lab.picture(f"bench-{kind}-end")
        lab.closed()


def used(lab: LabPage, source: str, kind: str, downloads: Path) -> None:
    """Use it as one does who has a log."""
    field = lab.until(lambda: lab.all(".ticdc-workbench input[type=text]"), "the text field")[0]
    typed(field, "data/no_such_log.jsonl.gz")
    lab.until(lambda: "does not exist" in lab.browser.execute_script(_WRONG), "the wrong path is said", within_s=LONG_S)
    typed(field, source)
    tabs = lab.until(lambda: lab.all(_TAB), "there are tabs", within_s=LONG_S)
    assert lab.browser.execute_script(_WRONG).strip() == ""
    assert len(tabs) == len(TABS)
    titles = {name: shown(lab, i, f"bench-{kind}-{name}") for i, name in enumerate(TABS)}
    refused_alike = {"dispatch", "partitions"} if kind == "storage" else set()
    assert len({titles[name] for name in refused_alike}) == bool(refused_alike), titles
    assert len({titles[name] for name in TABS if name not in refused_alike}) == len(TABS) - len(refused_alike), titles
    saved_and_opened(lab, downloads)


def typed(field: WebElement, text: str) -> None:
    """Type into a field in the place of what it holds, and press enter."""
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text, Keys.ENTER)


def shown(lab: LabPage, nth: int, name: str) -> str:
    """Open a tab; gives what its figure shows, or in words why it has none."""
    lab.all(_TAB)[nth].click()

    def there() -> str:
        wrong = lab.browser.execute_script(_WRONG).strip()
        return wrong or "; ".join(lab.browser.execute_script(_SEEN))

    said = lab.until(there, f"tab {name} shows a figure", within_s=LONG_S)
    lab.picture(name)
    return str(said)


def saved_and_opened(lab: LabPage, downloads: Path) -> None:
    """Choose a partition, save, clear, and open the file: the partition is chosen again."""
    lab.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads), "eventsEnabled": True}
    )
    choosers = lab.all(".ticdc-chosen select")
    by_partition = next(e for e in choosers if "1" in [o.text for o in e.find_elements(By.TAG_NAME, "option")])
    by_partition.send_keys("1")
    lab.until(lambda: "partition 1" in chosen(lab), "partition 1 is chosen")
    button(lab, "save all").click()
    file = downloads / "workbench.state.json"
    lab.until(lambda: file.exists() and file.stat().st_size, "a file is saved")
    told = json.loads(file.read_text(encoding="utf-8"))
    assert told["value"]["selection"] == {"partition": 1}
    assert told["value"]["panels"] == {}, "what was chosen for all is no change of a panel"
    button(lab, "clear").click()
    lab.until(lambda: chosen(lab).startswith("Nothing is chosen"), "nothing is chosen")
    lab.browser.execute_script(_CATCH)
    button(lab, "open (0)").click()
    lab.until(lambda: lab.all("#caught"), "a file is asked for")[0].send_keys(str(file))
    lab.until(lambda: "partition 1" in chosen(lab), "partition 1 is chosen again", within_s=LONG_S)


def chosen(lab: LabPage) -> str:
    """What the line of the choice shows."""
    said = lab.browser.execute_script("return document.querySelector('.ticdc-chosen [role=status]').textContent")
    return str(said)


def button(lab: LabPage, name: str) -> WebElement:
    """A button by its words."""
    return next(e for e in lab.all(".ticdc-workbench button") if e.text.strip() == name)
