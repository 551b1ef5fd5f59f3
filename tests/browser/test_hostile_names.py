"""A table, a schema and a column whose names are HTML: text in every figure, hover and table of a report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT
from hostile import EVIL, hostile
from lab_page import LabPage
from pyspark.sql import SparkSession

sys.path.insert(0, str(ROOT / "tests"))
from offline import opened
from selenium.webdriver import ActionChains
from selenium.webdriver.remote.webelement import WebElement

from ticdc_lab.cli import main
from ticdc_lab.widgets.tabs import TABS

HOVER = """
const points = document.querySelectorAll('.plotly-graph-div');
let n = 0;
for (const g of points) {
  for (let curve = 0; curve < (g.data || []).length; curve++) {
    try {
      Plotly.Fx.hover(g, [{curveNumber: curve, pointNumber: 0}]);
      n += g.querySelectorAll('.hovertext').length > 0;
    } catch (e) {}
  }
}
return n;
"""


def test_a_name_that_is_html_runs_nothing_in_a_report(spark: SparkSession, tmp_path: Path) -> None:
    """No element comes of it and no script runs, no matter what the mouse is over; it is there as text."""
    page = tmp_path / "report.html"
    found = CliRunner().invoke(main, ["report", str(hostile(tmp_path)), "--out", str(page)], obj=spark)
    assert found.exit_code in (0, 1), found.output
    with opened(page) as looked:
        there, drawn = looked.drawn()
        assert there == drawn > 3
        assert looked.browser.execute_script(HOVER) > 3
        assert looked.browser.execute_script("return window.ran || 0") == 0
        assert looked.browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 0
        assert EVIL in looked.browser.execute_script("return document.documentElement.textContent")
        assert not [said for said in looked.complaints() if said.rpartition("/")[2] == "x"]


def test_a_name_that_ran_would_be_seen(tmp_path: Path) -> None:
    """The same question of a page that puts a name into its elements as it is."""
    page = tmp_path / "bad.html"
    page.write_text(f"<html><body>{EVIL}</body></html>")
    with opened(page) as looked:
        assert looked.browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 1
        looked.browser.implicitly_wait(2)
        assert looked.browser.execute_script("return window.ran || 0") == 1


_TAB = ".ticdc-workbench .lm-TabBar-tab"
_DRAWN = """
return [...document.querySelectorAll('.ticdc-workbench .ticdc-plot')].filter((p) => p.offsetParent && p.layout)
  .length
  + [...document.querySelectorAll('.ticdc-workbench .ticdc-wrong-words')].filter((e) => e.textContent.trim()).length;
"""
_RAN = "return [window.ran || 0, document.querySelectorAll('img[src=x]').length]"


@pytest.mark.soak
def test_a_name_that_is_html_runs_nothing_in_jupyterlab(lab: LabPage, tmp_path: Path) -> None:
    """In every tab of a workbench and in an answer, with the mouse over each part of each figure."""
    recording = hostile(tmp_path)
    code = f"import ticdc_lab\nbench = ticdc_lab.workbench({str(recording)!r})\nbench"
    answers = "log = bench.wait(300).pages.log\nfrom IPython.display import display\n"
    lab.open(lab.made("hostile", code, answers + "display(log, log.contents(), log.messages(), log.audit())"))
    lab.run_all()
    try:
        tabs = lab.until(lambda: lab.all(_TAB), "there are tabs", within_s=180)
        assert len(tabs) == len(TABS)
        hovers = 0
        for tab in tabs:
            lab.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", tab)
            tab.click()
            lab.until(lambda: lab.browser.execute_script(_DRAWN), "a figure, or why there is none", within_s=180)
            for plot in [p for p in lab.all(".ticdc-workbench .js-plotly-plot") if p.is_displayed()]:
                hovers += hovered(lab, plot)
            assert lab.browser.execute_script(_RAN) == [0, 0]
        assert hovers > len(TABS) / 2
        assert lab.cell_errors() == []
        assert lab.browser.execute_script(_RAN) == [0, 0]
        assert EVIL in lab.browser.execute_script("return document.querySelector('.jp-Notebook').textContent")
        assert not [said for said in lab.complaints() if said.rpartition("/")[2].startswith("x ")]
    finally:
        lab.picture("hostile-end")
        lab.closed()


def hovered(lab: LabPage, plot: WebElement) -> int:
    """Move the mouse over a plot in a grid; at how many places something was reported."""
    lab.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    width, height, said = plot.size["width"], plot.size["height"], 0
    for across in range(1, 8):
        for down in range(1, 7):
            x, y = int(width * (across / 8 - 0.5)), int(height * (down / 7 - 0.5))
            ActionChains(lab.browser, duration=20).move_to_element_with_offset(plot, x, y).perform()
            said += bool(lab.all(".js-plotly-plot .hovertext"))
    return said


pytestmark = pytest.mark.browser
